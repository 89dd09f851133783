"""The keeper decides, under the lock of a scope, whether a text becomes a governed memory, merges into one, or is refused.

Every governed write asks here, and every correction is made here.

    remember -> framed recalls and credentials taken out
             -> the scope's lock, the shelf brought up to date
             -> empty | category | strict | duplicate | near duplicate | derivable
             -> note written, flushed -> verdict -> event

A merge or a correction leaves a line in `journal/memories.jsonl` before the note changes, so that the text it
replaces is never lost and `history` can tell it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cairn.canonical import as_line, objects_in
from cairn.config import Settings
from cairn.errors import Invalid, NotFound
from cairn.governed import gate
from cairn.governed.access import AccessLog, Ref, Stat, composite, ref, score_at
from cairn.governed.framing import strip_recalled
from cairn.governed.records import (
    CATEGORIES,
    COLUMNS,
    IMPORTANCES,
    KIND,
    ORIGINS,
    OWN_COLUMNS,
    SOURCE_TYPES,
    STATUSES,
    UNTRUSTED,
    Importance,
    Origin,
    Record,
    Status,
    from_entry,
    stamp,
)
from cairn.governed.secrets import redact
from cairn.governed.shelf import Shelf
from cairn.language.words import word_set
from cairn.notes.kinds import MemoryRoot
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Clock, Journals, Locator, Locks, StorageBackend
from cairn.seams.storage import children
from cairn.talk.sessions import SessionLog
from cairn.types import Entry, Scope, Space, Verdict, split_public_id, with_texts

_log = logging.getLogger(__name__)
MAX_CHARACTERS = 65_536
CONTRADICTS = "contradicts"
ECHO_SECONDS = 900.0
UNVOUCHED = 0.6  # how sure the word of a caller is who may not let memories in; a sweep asks for more
_SHELVES = 256
_CREDENTIAL_WORDS = word_set(
    "redacted password passwd pwd passphrase secret token api key apikey bearer basic authorization auth credential "
    "credentials is the my our your use login user username aws github url jwt private connection string"
)
_CHOICES: Mapping[str, Sequence[object]] = {
    "importance": IMPORTANCES,
    "status": (None, *STATUSES),
    "origin": ORIGINS,
    "tier": (None, 1, 2, 3),
    "source_type": (None, *SOURCE_TYPES),
    "mode": ("default", "strict"),
}

OnEvent = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One thing that happened to a memory."""

    at: str
    what: str
    by: str = ""
    reason: str = ""
    old: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None


class Keeper:
    """Governed memories of one root. Synchronous, thread-safe, safe across processes.

    Args:
        storage: Where notes and generated pages are.
        root: The places of the memory root.
        notebook: The only writer of notes.
        journals: Access hits, ledgers and histories.
        locks: Named locks; a scope's gate is one of them.
        clock: Time.
        settings: `keeping` and the display zone, which decides a new memory's day.
        sessions: Reads the session logs; shared with whoever else does.
        on_event: Told `memory_inserted` and `memory_upserted` with the memory's row; its errors are logged.
    """

    def __init__(
        self,
        *,
        storage: StorageBackend,
        root: MemoryRoot,
        notebook: Notebook,
        journals: Journals,
        locks: Locks,
        clock: Clock,
        settings: Settings,
        on_event: OnEvent | None = None,
        sessions: SessionLog | None = None,
    ) -> None:
        self.sessions = sessions or SessionLog(journals)
        self.storage = storage
        self.root = root
        self.notebook = notebook
        self.journals = journals
        self.locks = locks
        self.clock = clock
        self.settings = settings
        self.access = AccessLog(root=root, journals=journals, locks=locks, clock=clock)
        self.memo: dict[Any, Any] = {}  # what other modules of keeping have read from journals so far
        self._on_event = on_event
        self._guard = threading.Lock()
        self._shelves: dict[Scope, tuple[Shelf, threading.RLock]] = {}

    def close(self) -> None:
        """Write the access hits that still wait."""
        self.access.flush()

    # --- the gate --------------------------------------------------------------------------------------

    def remember(
        self,
        content: str,
        category: str = "fact",
        *,
        space: Space | None = None,
        scope: str | Scope = "project",
        owner: str = "",
        importance: Importance = "medium",
        confidence: float | None = None,
        pinned: bool = False,
        status: Status | None = None,
        mode: str = "default",
        origin: Origin = "human",
        tier: int | None = None,
        source_type: str | None = None,
        source_id: str | None = None,
        source_session_id: str | None = None,
        source_run_id: str | None = None,
        source_pack_key: str | None = None,
        agent_id: str | None = None,
        file_scope_pattern: str | None = None,
        trigger: str = "",
        procedure: str = "",
        supersedes: str | None = None,
        created_at: datetime | None = None,
        gated: bool = True,
        vouched: bool = True,
    ) -> Verdict:
        """Judge `content` and keep it, merge it into what says the same, or refuse it with a reason.

        A refusal is an answer, not an exception: look at `Verdict.accepted`. Reasons: `empty`, `recalled`,
        `secret`, `category`, `duplicate`, `near_duplicate`, `code_derivable`.

        Args:
            content: What to remember; outer blanks do not count.
            category: One of ten (`records.CATEGORIES`).
            space: The app and project.
            scope: "project", "agent", "mission" or "user" with its `owner`, or a `Scope`. "lane" means
                mission. "user" means the user named by `owner`; without an owner the agent named by `agent_id`
                (ADE's alias), and with neither the person of the settings (`memory.person`).
            owner: The user, agent or run; empty at project scope.
            importance: low, medium or high.
            confidence: 0 to 1; by default 1, or 0.6 for what an agent notes without strict mode.
            pinned: Keep it at hand: promoted, tier 1, no decay.
            status: "promoted" to skip candidacy. An untrusted origin stays a candidate until a person promotes
                it.
            mode: "strict" admits convention, pattern, gotcha and decision as promoted; for any other category
                it falls back to "default".
            origin: Where the words come from: human, agent, strategy, tool, web, recalled or import.
            tier: 1 to 3.
            source_type: agent, system, user, mission_promotion or consolidation.
            source_id: And the other source fields: kept as given.
            source_session_id: The session it was said in.
            source_run_id: The run.
            source_pack_key: The pack.
            agent_id: The agent that wrote it.
            file_scope_pattern: Which files it is about.
            trigger: When a procedure applies (category "procedure").
            procedure: Its steps, as Markdown.
            supersedes: The id this one replaces (set by `supersede`).
            created_at: When it was first known, for imports.
            gated: False lets code-derivable text in (for a person who insists).
            vouched: False for a caller who may not let memories in: what it says stays a candidate, is an
                agent's word where it names the agent, does not reword what was promoted, and is never sure enough
                to be let in by having been said often.

        Raises:
            Invalid: a scope, owner, field or text that no memory can have. Nothing was written.
        """
        where = self.scope_of(space or Space(), scope, owner, agent_id=agent_id)
        for name, given in (("owner", where.owner), ("agent_id", agent_id or "")):
            if self.cut(given) != given:
                raise Invalid(
                    f"{name} holds a credential: ids stand in names of files. Use another.", field=name
                )
        check_text(content, trigger, procedure)
        check_fields(
            importance=importance, status=status, origin=origin, tier=tier, source_type=source_type, mode=mode,
            confidence=confidence,
        )  # fmt: skip
        framed, content = content, strip_recalled(content).strip()
        if refusal := _says_nothing(framed, content, gated=gated):
            return refusal
        if not vouched:
            origin = "agent" if agent_id is not None and origin == "human" else origin
            confidence = min(UNVOUCHED, confidence if confidence is not None else UNVOUCHED)
        if origin == "recalled":
            return _refused("recalled", "It was recalled, not said anew.")
        (content, trigger, procedure), cut = self._without_credentials(content, trigger, procedure)
        if cut and (self.settings.keeping.secrets == "refuse" or not _says_enough(content)):
            return _refused(
                "secret", f"It holds a credential ({', '.join(cut)}); store that in a secret manager."
            )
        if category not in gate.CATEGORY_ALLOWLIST:
            return _refused("category", f'"{str(category)[:60]}" is not one of {", ".join(CATEGORIES)}.')
        strict = mode == "strict" and category in gate.STRICT_CATEGORIES
        now = self.clock.now()
        source: dict[str, Any] = with_texts(
            {
                "source_id": source_id,
                "source_session_id": source_session_id,
                "source_run_id": source_run_id,
                "source_pack_key": source_pack_key,
                "file_scope_pattern": file_scope_pattern,
            },
            self.cut,
        )
        fresh = _with_policy(
            Record(
                scope=where,
                content=content,
                category=category,
                importance=importance,
                origin=origin,
                source_type=source_type or {"human": "user"}.get(origin, "agent"),
                **source,
                agent_id=agent_id,
                dedupe=gate.dedupe_hash(content),
                created_at=created_at or now,
                updated_at=now,
                supersedes=supersedes,
                trigger=trigger,
                procedure=procedure,
            ),
            strict=strict and vouched,
            pinned=pinned and vouched,
            status=status if vouched or status == "archived" else None,
            tier=tier,
            confidence=confidence,
            now=now,
        )
        notes = [f"Redacted: {', '.join(cut)}."] if cut else []
        if fresh.origin in UNTRUSTED and (status == "promoted" or pinned or strict):
            notes.append(f"Origin {fresh.origin}: a candidate until a person promotes it.")
        with self.locked(where) as shelf:
            verdict = self._decide(shelf, fresh, gated=gated, vouched=vouched, detail=" ".join(notes) or None)
        if verdict.memory is not None and verdict.accepted and verdict.reason != "recalled":
            if not verdict.deduped:
                self._tell("memory_inserted", verdict.memory)
            self._tell("memory_upserted", verdict.memory)
        return verdict

    def _decide(
        self, shelf: Shelf, fresh: Record, *, gated: bool, vouched: bool, detail: str | None
    ) -> Verdict:
        same = shelf.exact(fresh.content)
        near = None if same is not None else shelf.near(fresh.content)
        if near is not None and (
            gate.differ(gate.gist(fresh.content), gate.gist(near.content))
            or gate.names_differ(fresh.content, near.content)
        ):
            near = None  # "never on Fridays" is no other wording of "on Fridays", nor is "on Mondays"
        old = same or near or shelf.reworded(fresh.content)
        if old is not None and old.id != fresh.supersedes:
            return self._merge(old, fresh, near=same is None, vouched=vouched, detail=detail)
        if gated and fresh.category != "procedure" and (why := gate.derivable(fresh.content)):
            return _refused("code_derivable", why)
        against = [old for old in shelf.opposed(fresh.content) if old.id != fresh.supersedes]
        if against:
            fresh = fresh.but(write_gate_reason=CONTRADICTS)
        kept, lsn = self.insert(fresh)
        if fresh.origin not in UNTRUSTED and vouched:
            for old in against:
                lsn = self.rewrite(old, lambda current: current.but(write_gate_reason=CONTRADICTS)) or lsn
        if against:
            told = f'It says otherwise than {against[0].id} ("{against[0].content[:120]}"): supersede or archive one.'
            detail = f"{detail} {told}" if detail else told
        return Verdict(
            accepted=True,
            memory=self.row(kept, Stat()),
            detail=detail,
            lsn=lsn,
            contradicts=tuple(old.id for old in against),
        )

    def _merge(self, old: Record, new: Record, *, near: bool, vouched: bool, detail: str | None) -> Verdict:
        reason = "near_duplicate" if near else "duplicate"
        read = self.access.stat(old).read if new.origin in {"agent", "strategy"} else None
        if read is not None and 0 <= (self.clock.now() - read).total_seconds() < ECHO_SECONDS:
            return Verdict(
                accepted=False,
                memory=self.row(old),
                reason="recalled",
                deduped=True,
                merged_into_id=old.id,
                detail="It repeats a memory that was just recalled; nothing was added.",
            )
        merged = gate.merge(old, new, near=near, vouched=vouched)
        told = self.history_line(
            old, "merged", by=new.origin, reason=reason,
            old={"content": old.content, "status": old.status, "confidence": old.confidence},
            new={"content": new.content, "source_id": new.source_id, "session": new.source_session_id},
        )  # fmt: skip
        self.note_histories(old.scope.space, [told], sync=merged.content != old.content)
        written = self.rewrite(old, lambda current: gate.merge(current, new, near=near, vouched=vouched))
        self.access.record([(old.scope, old.entry_id)], said_again=True)
        return Verdict(
            accepted=True,
            memory=self.row(merged),
            reason=reason,
            deduped=True,
            merged_into_id=old.id,
            detail=detail,
            lsn=written,
        )

    def cut(self, text: str) -> str:
        """`text` without credentials, unless the settings allow them."""
        return self._without_credentials(text)[0][0]

    def _without_credentials(self, *texts: str) -> tuple[list[str], Sequence[str]]:
        """Texts without credentials, unless the settings allow them, and the kinds that were in them, each once."""
        if self.settings.keeping.secrets == "allow":
            return list(texts), ()
        done = [redact(text) for text in texts]
        return [one.text for one in done], list(dict.fromkeys(kind for one in done for kind in one.kinds))

    # --- reading ---------------------------------------------------------------------------------------

    def scope_of(
        self, space: Space, scope: str | Scope, owner: str = "", *, agent_id: str | None = None
    ) -> Scope:
        """The scope a caller means. See `remember` for the words."""
        if isinstance(scope, Scope):
            return scope
        word = scope.strip().lower() if isinstance(scope, str) else ""
        if word == "user" and (owner or not agent_id):
            return Scope(space, "user", owner or self.settings.memory.person)
        track = gate.normalise_scope(word)
        if track == "project" and owner:
            raise Invalid(
                f'owner "{str(owner)[:60]}" at project scope: those memories are everyone\'s. Name the scope '
                "user, agent or mission, or leave the owner out.",
                field="owner",
            )
        if track == "agent":
            owner = owner or agent_id or ""
        if track != "project" and not owner:
            raise Invalid(
                f'scope "{track}" needs an owner: the id of the {"run" if track == "mission" else track}.',
                field="owner",
            )
        return Scope(space, track, owner)

    def scopes(self, space: Space) -> list[Scope]:
        """Every scope of `space` that has governed memories."""
        return [
            scope
            for scope in self.root.scopes(space)
            if children(self.storage, self.root.scope(scope).child("memories"))
        ]

    def records(self, scope: Scope) -> list[Record]:
        """Every memory of a scope, archived ones included, oldest note first."""
        with self._shelf(scope) as shelf:
            return sorted(shelf, key=lambda record: (record.locator.key, record.entry_id))

    def find(self, space: Space, memory_id: str, *, scope: Scope | None = None) -> Record:
        """The memory with that public id (owner and entry id) or entry id.

        Raises:
            NotFound: there is none.
            Invalid: several scopes have one; name the scope.
        """
        named, entry_id = split_public_id(str(memory_id))
        owner = named or None
        wanted = [scope] if scope is not None else self.scopes(space)
        found = []
        for one in wanted:
            if owner is not None and one.owner != owner and not (scope is not None and entry_id == memory_id):
                continue
            with self._shelf(one) as shelf:
                if record := shelf.get(entry_id):
                    found.append(record)
        if not found:
            raise NotFound(f'There is no memory "{str(memory_id)[:80]}".', id=memory_id)
        bare = [record for record in found if record.id == memory_id]
        found = bare or found
        if len(found) > 1:
            where = ", ".join(f"{r.scope.track} {r.scope.owner}".strip() for r in found)
            raise Invalid(
                f'"{memory_id}" is the id of several memories ({where}): name the scope.', id=memory_id
            )
        return found[0]

    def list(
        self,
        space: Space | None = None,
        *,
        scope: Scope | None = None,
        status: Status | None = None,
        category: str | None = None,
        pinned: bool | None = None,
        archived: bool = False,
        skills: bool = True,
        offset: int = 0,
        limit: int = 50,
    ) -> tuple[Sequence[dict[str, Any]], int]:
        """One page of memory rows, newest change first, and the total.

        Archived ones only with `archived` (or by asking for the status). `skills=False` hides the memories
        that stand behind indexed skills (A33).
        """
        where = space or (scope.space if scope is not None else Space())
        found = [
            record
            for one in ([scope] if scope is not None else self.scopes(where))
            for record in self.records(one)
            if (record.is_live or archived or status == "archived")
            and (status is None or record.status == status)
            and (category is None or record.category == category)
            and (pinned is None or record.pinned == pinned)
            and (skills or record.source_pack_key != "skill")
        ]
        found.sort(key=lambda r: (stamp(r.updated_at or r.created_at), r.id), reverse=True)
        stats = self.access.stats(where)
        page = found[offset : offset + limit]
        return [self.row(record, stats.get(ref(record), Stat())) for record in page], len(found)

    def row(self, record: Record, stat: Stat | None = None) -> dict[str, Any]:
        """A memory as ADE's `unified_memories` row (A4-A20), with our own columns after it."""
        known = self.access.stat(record) if stat is None else stat
        now, created = self.clock.now(), stamp(record.created_at) or None
        made = {
            "project_id": str(record.scope.space),
            "scope": record.scope.track,
            "scope_owner_id": record.scope.owner,
            "pinned": int(record.pinned),
            "access_score": score_at(record, known, now, self.settings.keeping.half_life_days),
            "composite_score": composite(record, known, now),
            "dedupe_key": gate.dedupe_key(record.content),
            "created_at": created,
            "updated_at": stamp(record.updated_at) or created,
            "last_accessed_at": stamp(known.last) or created,
            "access_count": known.count,
            "promoted_at": stamp(record.promoted_at) or None,
            "path": record.locator.key,
            "trigger": record.trigger or None,
            "procedure": record.procedure or None,
        }
        return {
            name: made[name] if name in made else getattr(record, name) for name in (*COLUMNS, *OWN_COLUMNS)
        }

    def record_hits(self, hits: Iterable[tuple[Scope, str]]) -> int:
        """Count a genuine retrieval of these (scope, entry id) pairs; best effort, never raises."""
        return self.access.record(hits)

    # --- shared with the other modules of keeping --------------------------------------------------------

    def day(self) -> str:
        """Today's date bucket, in the display zone."""
        return self.clock.now().astimezone(self.settings.zone).date().isoformat()

    @contextmanager
    def locked(self, scope: Scope) -> Iterator[Shelf]:
        """The scope's shelf, up to date, while no one else's gate can decide there."""
        with self.holding(scope), self._shelf(scope) as shelf:
            yield shelf

    def opposed(self, scope: Scope, memory_id: str) -> Sequence[Record]:
        """The live memories of a scope that say otherwise than one of them."""
        found = self.find(scope.space, memory_id, scope=scope)
        with self._shelf(scope) as shelf:
            return (
                [one for one in shelf.opposed(found.content) if one.id != found.id] if found.is_live else []
            )

    def holding(self, scope: Scope) -> AbstractContextManager[None]:
        """The scope's lock alone, for changes that look at the entries themselves."""
        return self.locks.hold(f"gate {self.root.scope(scope).key}")

    @contextmanager
    def _shelf(self, scope: Scope) -> Iterator[Shelf]:
        with self._guard:
            if scope not in self._shelves:
                while len(self._shelves) >= _SHELVES:
                    self._shelves.pop(next(iter(self._shelves)))
                folder = self.root.note(KIND, scope, "2000-01-01").parent
                self._shelves[scope] = (Shelf(self.storage, scope, folder), threading.RLock())
            shelf, guard = self._shelves[scope]
        with guard:
            shelf.refresh()
            yield shelf

    def rewrite(self, record: Record, edit: Callable[[Record], Record]) -> int:
        """Change one memory where it stands; `edit` gets what is in the file now. Returns the LSN."""
        return self.rewrite_many(record.locator, {record.entry_id: edit}, record.scope)

    def rewrite_many(
        self, locator: Locator, edits: Mapping[str, Callable[[Record], Record]], scope: Scope
    ) -> int:
        """Change several memories of one note in one rewrite. Returns the LSN."""

        def make(edit: Callable[[Record], Record]) -> Callable[[Entry], Draft]:
            def change(entry: Entry) -> Draft:
                before = from_entry(entry, scope, locator)
                after = edit(before)
                if after == before:
                    return Draft(dict(entry.inline), dict(entry.sections))
                return Draft(after.inline(), after.sections())

            return change

        done = self.notebook.change_many(locator, {entry_id: make(edit) for entry_id, edit in edits.items()})
        return max((written.lsn for written in done), default=0)

    def note_history(self, *records: Record, what: str, **about: Any) -> None:
        """Leave a line on what is about to happen to memories of one space; see `history_line`."""
        lines = [self.history_line(record, what, **about) for record in records]
        self.note_histories(records[0].scope.space if records else Space(), lines)

    def history_line(
        self,
        record: Record,
        what: str,
        *,
        by: str = "",
        reason: str = "",
        old: Mapping[str, Any] | None = None,
        new: Mapping[str, Any] | None = None,
    ) -> str:
        """What happened to a memory, by whom and why, and the fields that were and are, as a journal's line."""
        at, mem = stamp(self.clock.now()), list(ref(record))
        value = {"at": at, "m": mem, "what": what, "by": by, "reason": reason, "old": old, "new": new}
        told = {name: dict(one) if isinstance(one, Mapping) else one for name, one in value.items() if one}
        return as_line(with_texts(told, self.cut, skip=("at", "m")))

    def rewrite_all(self, records: Sequence[Record], edit: Callable[[Record], Record]) -> None:
        """Change memories of one scope in the same way, with one rewrite for each note."""
        for at in dict.fromkeys(record.locator for record in records):
            mine = {record.entry_id: edit for record in records if record.locator == at}
            self.rewrite_many(at, mine, records[0].scope)

    def insert(self, fresh: Record) -> tuple[Record, int]:
        """Write a memory into today's note; as it stands there, and the LSN. The caller holds the scope's lock."""
        draft = Draft(fresh.inline(), fresh.sections())
        written = self.notebook.append(KIND, fresh.scope, self.day(), [draft])[0]
        return fresh.but(entry_id=written.entry_id, locator=written.locator), written.lsn

    def noted(self, space: Space, journal: str) -> Iterator[dict[str, Any]]:
        """What a journal of a space holds, oldest first."""
        return objects_in(self.journals.read(self.root.journal(space, journal)).lines)

    def note(self, space: Space, journal: str, *values: Mapping[str, Any]) -> None:
        """Add lines to a journal of a space; durable when it returns."""
        self.journals.append(self.root.journal(space, journal), [as_line(value) for value in values])

    def note_histories(self, space: Space, lines: Sequence[str], *, sync: bool = True) -> None:
        """Leave lines on what is about to happen; without `sync` where no text would be lost with them."""
        if lines:
            self.journals.append(self.root.journal(space, "memories"), lines, sync=sync)

    def histories(self, space: Space) -> dict[Ref, Sequence[HistoryLine]]:
        """What happened to each memory of a space, oldest first."""
        out: dict[Ref, list[HistoryLine]] = {}
        for value in self.noted(space, "memories"):
            with suppress(ValueError, KeyError, TypeError):
                track, owner, entry_id = value["m"]
                told = HistoryLine(**{name: value[name] for name in HistoryLine.__slots__ if name in value})
                out.setdefault((track, owner, entry_id), []).append(told)
        return dict(out)

    def _tell(self, name: str, row: Mapping[str, Any]) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(name, row)
        except Exception:
            _log.exception("A subscriber of %s failed; the memory is kept.", name)


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict in ADE's words (A57), for surfaces: accepted, memory, reason, deduped, mergedIntoId."""
    named = {
        "memory": verdict.memory and dict(verdict.memory),
        "reason": verdict.reason,
        "mergedIntoId": verdict.merged_into_id,
        "detail": verdict.detail,
        "deduped": verdict.deduped or None,
        "lsn": verdict.lsn,
        "contradicts": list(verdict.contradicts) or None,
    }
    return {"accepted": verdict.accepted, **{key: value for key, value in named.items() if value is not None}}


def _with_policy(
    record: Record,
    *,
    strict: bool,
    pinned: bool,
    status: Status | None,
    tier: int | None,
    confidence: float | None,
    now: datetime,
) -> Record:
    """Status, tier and confidence of a fresh memory (A54, A78): asked for, else by who writes and how."""
    promoted = pinned or strict or status == "promoted" or record.category in gate.PROMOTE_ON_WRITE
    if record.origin in UNTRUSTED:
        promoted = pinned = False
    if promoted:
        usual = (1 if pinned else 2, 1.0)
    elif record.origin == "human":
        usual = (2, 1.0)
    else:
        usual = (3, 0.6)
    return record.but(
        status="promoted" if promoted else (status if status == "archived" else "candidate"),
        tier=tier if tier is not None and not (pinned and tier != 1) else usual[0],
        confidence=confidence if confidence is not None else usual[1],
        pinned=pinned,
        promoted_at=now if promoted else None,
    )


def _refused(reason: str, detail: str) -> Verdict:
    return Verdict(accepted=False, reason=reason, detail=detail)


def _says_nothing(framed: str, content: str, *, gated: bool) -> Verdict | None:
    """The refusal of a text that says nothing once framed recalls are out of it; None where it says something."""
    if not content and framed.strip():
        return _refused("recalled", "Nothing but recalled memories is in it; those are kept already.")
    if not content:
        return _refused("empty", "There is no text to remember.")
    if gated and not gate.says_something(content):
        return _refused("empty", "It says nothing by itself; say what is to be remembered.")
    return None


def _says_enough(content: str) -> bool:
    return len(word_set(content) - _CREDENTIAL_WORDS) >= 3


def check_text(*texts: str) -> None:
    """Refuse text no note can hold."""
    for text in texts:
        if not isinstance(text, str):
            raise Invalid(f"A memory is text, not {type(text).__name__}.", field="content")
        if len(text) > MAX_CHARACTERS:
            raise Invalid(
                f"A memory of {len(text)} characters is too long (at most {MAX_CHARACTERS}): keep the point of it, "
                "and the document itself under knowledge.",
                field="content",
            )
        if "\0" in text:
            raise Invalid("Text in a memory cannot hold NUL.", field="content")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise Invalid(
                "Text in a memory must be valid Unicode (a lone surrogate is in it).", field="content"
            ) from None


def check_fields(*, confidence: float | None = None, **given: object) -> None:
    """Refuse fields outside their range, by name."""
    for name, value in given.items():
        if isinstance(value, bool) or value not in _CHOICES[name]:
            names = ", ".join(str(one) for one in _CHOICES[name] if one is not None)
            raise Invalid(f'{name} "{str(value)[:60]}" is not one of {names}.', field=name)
    if confidence is not None and not (isinstance(confidence, int | float) and 0 <= confidence <= 1):
        raise Invalid(f"confidence {confidence!r:.60} is not between 0 and 1.", field="confidence")
