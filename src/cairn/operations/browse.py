"""Looking through a memory as a person does: who is there, what came when, what is coming up, and finding any of it.

`search` asks one owner's memory, as an agent must. A person in front of a page asks everything that may be seen at
once: these operations go over the owners of a space, and the caller's grant decides which of them are there at all.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from cairn.errors import Conflict, Invalid, Unavailable
from cairn.notes.format import list_items
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import MAX_TEXT, AnyScope, Explain, InSpace, Owner, moment_told, space_named
from cairn.operations.table import Room, operation, says
from cairn.operations.talk import LimitedTo, Sees
from cairn.types import Hit, Scope, Space

if TYPE_CHECKING:
    from cairn.governed.records import Record
    from cairn.index.corpus import Pages, Row
    from cairn.parts import Parts

answers = Answers("browse")


TRACKS = ("project", "user", "agent", "mission")
Kind = Literal["episode", "memory", "agent_case", "agent_skill", "foresight", "atomic_fact", "profile"]
# What a timeline shows where no kind is named: facts, plans and profiles stand with what they came from.
_TOLD = ("episode", "memory", "agent_case")
_MOST_ASKED, _MOST_LISTED = 40, 200  # owners, in one call
_CHUNK = 8
_TITLE_CHARS = 120
_TEXT_CHARS = 1200
_HOUR_MS = 3_600_000

OneKind = Annotated[Kind | None, says("only this kind", "episode")]
Since = Annotated[str | None, says("from this day or time on", "2026-06-01", low=1, high=40)]
Until = Annotated[str | None, says("up to this day, or before this time", "2026-06-30", low=1, high=40)]
EntryName = Annotated[
    str,
    says("an entry, profile or skill, or path#id", "alice_ep_20260601_00000001", low=1, high=4096, wire="id"),
]


class Browse(Room):
    """What a person looks through."""

    @operation("GET /overview", answers.OverviewData, rules.anybody)
    def overview(self, *, sees: Sees = None) -> dict[str, Any]:
        """Who has a memory here and how much of each kind: every owner of every space the caller may see."""
        parts = self.parts
        parts.settle()
        counted = _counted(parts)
        for space in parts.root.spaces():
            for scope in parts.root.scopes(space):
                counted.setdefault(scope, {})
        owners = [
            {
                "app_id": scope.space.app,
                "project_id": scope.space.project,
                "scope": scope.track,
                "owner": scope.owner,
                "kinds": {kind: n for kind, n in kinds.items() if kind != "passage"},
            }
            for scope, kinds in counted.items()
            if scope.track != "knowledge" and (sees is None or sees(scope))
        ]
        owners.sort(
            key=lambda one: (one["app_id"], one["project_id"], TRACKS.index(one["scope"]), one["owner"])
        )
        return {"owners": owners, "freshness": _freshness(parts)}

    @operation("GET /timeline", answers.TimelineData, rules.seen)
    def timeline(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        kind: OneKind = None,
        since: Since = None,
        until: Until = None,
        session_id: Annotated[str | None, says("only what was said there", "s1", low=1, high=128)] = None,
        archived: Annotated[bool, says("archived and superseded ones, too", True)] = False,
        offset: Annotated[int, says("how many to skip", 50, low=0, high=100_000)] = 0,
        limit: Annotated[int, says("at most this many", 50, low=1, high=1000)] = 50,
        days: Annotated[bool, says("count the entries of each day, too", True)] = False,
        sees: Sees = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Entries of everybody, or of one owner, newest first."""
        from cairn.index import filters

        parts, space = self.parts, space_named(**at)
        parts.settle()
        asked = _window(since, until, self.settings.zone)
        if session_id is not None:
            asked["session_id"] = session_id
        where, kinds = filters.parse(asked, zone=self.settings.zone), [kind] if kind else list(_TOLD)
        scopes, left = _asked(parts, space, scope, owner, sees, most=_MOST_LISTED)
        streams: list[Iterator[Row]] = []
        total = 0
        hours: Counter[int] = Counter()
        rebuilding = parts.indexer.status().state == "rebuilding"
        for one in scopes:
            pages = _pages(parts, one) if rebuilding else parts.index
            # One owner's page is had at once; of several, each may hold all that comes before it.
            passed, most = (offset, limit) if len(scopes) == 1 else (0, offset + limit)
            page = pages.page(one, kinds, where=where, offset=passed, limit=most, hidden=archived)
            total += page.total
            streams.append(_in_turn(pages, one, page.rowids, limit if len(scopes) == 1 else _CHUNK))
            if days and pages is parts.index:
                hours.update(parts.index.hours(one, kinds))
        begin = 0 if len(scopes) == 1 else offset
        newest = islice(heapq.merge(*streams, key=lambda row: -row.timestamp_ms), begin, begin + limit)
        told: dict[str, Any] = {
            "entries": [card(row, self.settings.zone) for row in newest],
            "total": total,
            "freshness": _freshness(parts, left),
        }
        if days:
            told["days"] = _days(hours, self.settings.zone)
        return told

    @operation("GET /upcoming", answers.UpcomingData, rules.seen)
    def upcoming(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        ahead: Annotated[int, says("how many days to look ahead", 30, low=1, high=3660)] = 30,
        sees: Sees = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """What is coming up: plans whose time falls into the next days, those that are due soonest first."""
        from cairn.retrieval.listing import due_of

        parts, now = self.parts, self.parts.clock.now()
        parts.settle()
        scopes, left = _asked(parts, space_named(**at), scope, owner, sees)
        zone = self.settings.zone
        found = [
            {
                **card(row, zone),
                "starts": str(row.fields.get("start_time", "")),
                "ends": str(row.fields.get("end_time", "")),
                "due": due_of(row, zone),
            }
            for one in scopes
            if one.track in {"user", "agent"}
            for row in parts.listing.upcoming(one, now, now + timedelta(days=ahead))
        ]
        return {
            "entries": sorted(found, key=lambda one: one["due"] or one["ends"]),
            "freshness": _freshness(parts, left),
        }

    @operation("POST /find", answers.FoundData, rules.seen, writes=False)
    def find(
        self,
        query: Annotated[str, says("the question, in plain words", "where does Alice live", low=1)],
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        kind: OneKind = None,
        since: Since = None,
        until: Until = None,
        limit: Annotated[int, says("at most this many", 20, low=1, high=100)] = 20,
        explain: Explain = False,
        sees: Sees = None,
        limited_to: LimitedTo = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Find what answers a question in everybody's memory, or in one owner's, best first.

        A person who looks something up is no use of a memory: nothing is counted.
        """
        from cairn.retrieval.answers import SearchRequest

        parts = self.parts
        parts.settle(embed=True)
        scopes, left = _asked(parts, space_named(**at), scope, owner, sees)
        asked = _window(since, until, self.settings.zone) or None
        found: list[dict[str, Any]] = []
        notes = list(left)
        with parts.traffic:
            shared = parts.searcher.together(query, scopes)
            for one in scopes:
                request = SearchRequest(
                    query,
                    scope=one,
                    **shared,
                    top_k=limit,
                    evidence=3,
                    filters=asked,
                    explain=explain,
                    is_use=False,
                    limited_to=limited_to,
                )
                result = parts.searcher.search(request)
                notes += result.freshness.notes
                said = _said(result.evidence or ())
                hits = (hit for hit in result.hits if kind is None or kind in (hit.kind, "atomic_fact"))
                for hit in hits:
                    if kind == "atomic_fact":
                        found += [
                            {**card(fact, self.settings.zone), "score": fact.score} for fact in hit.facts
                        ]
                    else:
                        found.append({
                            **card(hit, self.settings.zone),
                            "score": hit.score,
                            "facts": [str(fact.fields.get("Fact") or fact.text) for fact in hit.facts],
                            "said": said.get(hit.entry_id, []),
                            "explain": dict(hit.explain) if hit.explain else None,
                        })  # fmt: skip
        best = heapq.nlargest(limit, found, key=lambda one: one["score"])
        return {"hits": best, "freshness": _freshness(parts, list(dict.fromkeys(notes)))}

    @operation("GET /linked", answers.LinkedData, rules.one_entry(write=False))
    def linked(self, entry_id: EntryName, **at: Unpack[InSpace]) -> dict[str, Any]:
        """What an entry came from, what was made from it, and what it replaces, was replaced by or contradicts."""
        from cairn.index import filters
        from cairn.operations import lookup

        parts, space = self.parts, space_named(**at)
        parts.settle()
        shown = lookup.show(parts, space, entry_id)
        scope, inline = Scope(space, shown["scope"], shown["owner"]), shown["inline"]
        name = shown["id"].removeprefix(f"{scope.owner}_") if scope.owner else shown["id"]
        pages = _pages(parts, scope)
        where = filters.parse({"parent_id": name})
        page = pages.page(scope, list(_DERIVED), where=where, limit=200, hidden=True)
        links: dict[str, list[dict[str, Any]]] = {
            "made_from_it": [card(row, self.settings.zone) for row in pages.rows(scope, page.rowids)]
        }
        for relation, field in _RELATIONS.items():
            named = [one.removeprefix(f"{scope.owner}_") for one in _ids(inline.get(field))]
            rows = pages.find(scope, named) if named else []
            links[relation] = [card(row, self.settings.zone) for row in rows if row.entry_id != name]
        opposed = parts.keeper.opposed(scope, shown["id"]) if shown["kind"] == "memory" else ()
        links["contradicts"] = [card(_as_hit(one), self.settings.zone) for one in opposed]
        return links

    @operation("GET /connections", answers.ConnectionsData, rules.seen)
    def connections(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        since: Since = None,
        until: Until = None,
        limit: Annotated[int, says("at most this many links", 100, low=1, high=1000)] = 200,
        sees: Sees = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """How entries are related, the newest links first: what replaces or contradicts what, what came of the same talk."""
        from cairn.index import filters

        parts, zone = self.parts, self.settings.zone
        parts.settle()
        scopes, left = _asked(parts, space_named(**at), scope, owner, sees)
        where = filters.parse(_window(since, until, zone), zone=zone)
        rows: list[Row] = []
        for one in scopes:
            pages = _pages(parts, one)
            page = pages.page(one, list(_TIED), where=where, limit=_MOST_READ, hidden=True)
            rows += pages.rows(one, page.rowids)
        ties = sorted(
            _ties(rows, lambda row: parts.keeper.opposed(row.scope, row.id)),
            key=lambda tie: -max(tie[0].timestamp_ms, tie[1].timestamp_ms),
        )[:limit]
        tied = {row.id: row for tie in ties for row in tie[:2]}
        return {
            "entries": [card(row, zone) for row in sorted(tied.values(), key=lambda row: -row.timestamp_ms)],
            "links": [{"from_id": one.id, "to_id": other.id, "how": how} for one, other, how in ties],
            "freshness": _freshness(parts, left),
        }

    @operation("POST /revise", answers.RevisedData, rules.one_entry(write=True))
    def revise(
        self,
        entry_id: EntryName,
        source: Annotated[
            str,
            says(
                "the whole new text of it, as Markdown",
                "### Content\nShe moved to Porto.",
                low=1,
                high=16 * MAX_TEXT,
            ),
        ],
        *,
        expect: Annotated[
            str,
            says(
                "the `version` that `show` gave: another one is a conflict, and nothing is written",
                "9f86d081",
                low=1,
                high=64,
            ),
        ],
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Correct an entry or a document in place, if nobody changed it since it was read.

        Raises:
            NotFound: nothing goes by that id.
            Conflict: it was changed since; the message says so, and `show` has both its text and its version.
            Invalid: the text could not be kept in a note.
        """
        from cairn.operations import lookup

        shown = lookup.show(self.parts, space_named(**at), entry_id)
        if shown["kind"] in {"message", "cell", "page"}:
            raise Invalid(f"A {shown['kind']} is what was said or made; it is not edited.", field="id")
        if shown["version"] != expect:
            raise Conflict(
                f"{shown['id']} was changed since you read it. Nothing was written: look at both, then save again.",
                id=shown["id"],
                version=shown["version"],
            )
        lookup.revise(self.parts, shown, source, expect)
        return {
            "id": shown["id"],
            "version": lookup.show(self.parts, space_named(**at), entry_id)["version"],
        }


_DERIVED = ("atomic_fact", "foresight", "memory", "agent_case", "agent_skill", "episode")
_RELATIONS = {
    "came_from": "parent_id",
    "supersedes": "supersedes",
    "superseded_by": "superseded_by",
}


_TIED = ("episode", "memory", "agent_case", "agent_skill", "atomic_fact")
_MOST_READ = 2000  # entries of one owner, the newest


def _ties(rows: Sequence[Row], opposed: Callable[[Row], Sequence[Record]]) -> list[tuple[Row, Row, str]]:
    """Which of `rows` hang together, the newer of two first, and how; `opposed` tells what says otherwise."""
    named = {(row.scope, row.entry_id): row for row in rows}
    talks = {
        (row.scope.space, row.session_id): row for row in rows if row.kind == "episode" and row.session_id
    }
    found: dict[tuple[str, str], tuple[Row, Row, str]] = {}

    def tie(row: Row, other: Row | None, how: str) -> None:
        if other is not None and row is not other and (other.id, row.id) not in found:
            found.setdefault((row.id, other.id), (row, other, how))

    for row in rows:
        for relation in ("supersedes", "superseded_by"):
            for name in _ids(row.fields.get(relation)):
                other = named.get((row.scope, name.removeprefix(f"{row.scope.owner}_")))
                if relation == "superseded_by" and other is not None:
                    tie(other, row, "replaces")
                else:
                    tie(row, other, "replaces")
        for record in opposed(row) if row.fields.get("write_gate_reason") == "contradicts" else ():
            tie(row, named.get((row.scope, record.entry_id)), "contradicts")
        if row.kind not in {"episode", "atomic_fact"} and row.session_id:
            tie(row, talks.get((row.scope.space, row.session_id)), "same talk")
    return list(found.values())


def _ids(value: object) -> list[str]:
    if isinstance(value, str):
        return [one for one in (list_items(value) if value.startswith("[") else [value]) if one]
    return [str(one) for one in value] if isinstance(value, list | tuple) else []


# ---------------------------------------------------------------- whose


def _asked(
    parts: Parts,
    space: Space,
    scope: str | None,
    owner: str,
    sees: Callable[[Scope], bool] | None,
    most: int = _MOST_ASKED,
) -> tuple[list[Scope], list[str]]:
    """The owners to ask, those with the most first, and a word about those that are left out.

    Raises:
        Invalid: an owner without a scope, or a scope that needs one.
    """
    if scope is not None and (owner or scope == "project"):
        return [parts.keeper.scope_of(space, scope, owner)], []
    if owner:
        raise Invalid(
            f'owner "{owner[:60]}" without a scope: say whether it is a user, an agent or a mission.',
            field="scope",
        )
    counted = {one: sum(kinds.values()) for one, kinds in _counted(parts, space).items()}
    known = [
        one for one in {**counted, **dict.fromkeys(parts.root.scopes(space), 0)} if scope in (None, one.track)
    ]
    # Documents are asked by operations of their own.
    seen = [one for one in known if one.track != "knowledge" and (sees is None or sees(one))]
    seen.sort(key=lambda one: -counted.get(one, 0))
    left = len(seen) - most
    words = [f"{left} owners with fewer entries were not asked: choose one by name"] if left > 0 else []
    return seen[:most], words


def _counted(parts: Parts, space: Space | None = None) -> dict[Scope, dict[str, int]]:
    """How much of each kind everybody has; nothing where the index cannot be used: folders tell who there is."""
    try:
        return dict(parts.index.scopes(space))
    except Unavailable:
        return {}


def _in_turn(pages: Pages, scope: Scope, rowids: Sequence[int], chunk: int) -> Iterator[Row]:
    """The rows of a page as they are asked for: of many owners' pages most are never needed."""
    for at in range(0, len(rowids), chunk):
        yield from pages.rows(scope, rowids[at : at + chunk])


def _pages(parts: Parts, scope: Scope) -> Pages:
    """The index, or a scan of the notes while there is none."""
    if parts.freshness(scope).state == "rebuilding" and (scanned := parts.scan.of(scope)) is not None:
        return scanned
    return parts.index


def _freshness(parts: Parts, notes: Sequence[str] = ()) -> dict[str, Any]:
    from cairn.retrieval.answers import shown_freshness

    shown = shown_freshness(parts.indexer.status())
    return shown | {"notes": [*shown["notes"], *notes]}


# ---------------------------------------------------------------- what is shown of one


def card(found: Row | Hit, zone: Any) -> dict[str, Any]:
    """A row or a hit as one line of a listing: what it is, whose, when, its title and the beginning of its text."""
    from cairn.index.corpus import Row
    from cairn.retrieval.answers import shown_time

    fields = found.fields
    text = str(next((fields[name] for name in _MAIN if fields.get(name)), "") or found.text).strip()
    title = str(next((fields[name] for name in _TITLES if fields.get(name)), "")) or text.partition("\n")[0]
    at = found.timestamp_ms if isinstance(found, Row) else found.timestamp
    return {
        "id": found.id,
        "kind": found.kind,
        "app_id": found.scope.space.app,
        "project_id": found.scope.space.project,
        "scope": found.scope.track,
        "owner": found.scope.owner,
        "title": _cut(title, _TITLE_CHARS),
        "text": _cut(text, _TEXT_CHARS),
        "timestamp": shown_time(at, zone) if at else "",
        "session_id": found.session_id or "",
        "status": str(fields.get("status") or ""),
        "category": str(fields.get("category") or ""),
        "pinned": str(fields.get("pinned", "")).lower() in {"true", "1"},
        "origin": str(fields.get("origin") or ""),
        "path": found.path,
    }


def _as_hit(memory: Record) -> Hit:
    """A memory as its note has it: one that was just kept may have no row yet."""
    made = memory.created_at
    return Hit(
        kind="memory",
        scope=memory.scope,
        entry_id=memory.entry_id,
        path=memory.locator.key,
        score=1.0,
        timestamp=made and datetime.fromtimestamp(round(made.timestamp() * 1000) / 1000, UTC),
        text=memory.content,
        fields={**memory.inline(), **memory.sections()},
    )


_MAIN = ("Content", "Fact", "Foresight", "KeyInsight", "Approach", "body")
_TITLES = ("Subject", "TaskIntent", "name")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _said(evidence: Sequence[Any]) -> dict[str, list[dict[str, str]]]:
    """The verbatim messages behind each entry."""
    found: dict[str, list[dict[str, str]]] = {}
    for one in evidence:
        words = {"sender": one.sender_name or one.sender_id, "text": _cut(one.text, 400)}
        for entry in one.entry_ids:
            found.setdefault(entry, []).append(words)
    return found


# ---------------------------------------------------------------- when


def _window(since: str | None, until: str | None, zone: Any) -> dict[str, Any]:
    """A filter for a stretch of time; a bare day is the whole of it, in the display zone."""
    bounds: dict[str, int] = {}
    if since is not None:
        bounds["gte"] = int(moment_told(since, zone, "since").timestamp() * 1000)
    if until is not None and (end := _end_of(until, zone)) is not None:
        bounds["lt"] = int(end.timestamp() * 1000)
    return {"timestamp": bounds} if bounds else {}


def _end_of(until: str, zone: Any) -> datetime | None:
    """Where `until` ends: a bare day with the next midnight of the zone, the last day there is never."""
    try:
        day = date.fromisoformat(until)
    except ValueError:
        return moment_told(until, zone, "until")
    return None if day == date.max else moment_told((day + timedelta(days=1)).isoformat(), zone, "until")


def _days(hours: Mapping[int, int], zone: Any) -> list[dict[str, Any]]:
    """Entries per day of the display zone, from entries per hour."""
    counted: Counter[str] = Counter()
    for hour, count in hours.items():
        try:
            at = datetime.fromtimestamp(hour * _HOUR_MS / 1000, UTC).astimezone(zone)
        except (ValueError, OverflowError, OSError):
            continue
        counted[at.date().isoformat()] += count
    return [{"day": day, "count": count} for day, count in sorted(counted.items())]
