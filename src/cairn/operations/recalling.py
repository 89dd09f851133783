"""`recall`: one question to everything the caller may see, answered as lines for a prompt.

    recall(query) -> the person's memory, in the general space and in the repository's
                  -> the agent's cases and skills -> governed memories of the project -> its documents
                  -> the repository's record
                  -> one list by score, each sentence once, within a token budget, framed as data

Every source is asked through the same gate (`for_injection`): nothing rather than junk. `brief` is what a new
session should know before the first question: core memory, what was promoted, and what is due. `prompt` is a single
search as such lines.
"""

from __future__ import annotations

import itertools
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError
from cairn.governed.framing import frame
from cairn.governed.records import UNTRUSTED
from cairn.index.corpus import KNOWLEDGE, knowledge_scope
from cairn.language import asking, dates, sentences, traits
from cairn.notes.format import list_items
from cairn.operations.library import at_home
from cairn.retrieval.answers import (
    SearchRequest,
    SearchResult,
    as_said,
    as_told,
    shortened,
    tokens_of,
)
from cairn.retrieval.fitting import fit_by_words
from cairn.retrieval.library import passage_text
from cairn.retrieval.lists import GAP
from cairn.talk import narrative
from cairn.types import Evidence, Freshness, Hit, Scope, Space

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.parts import Parts
    from cairn.project.project import ProjectMemory

log = logging.getLogger("cairn")

_EVIDENCE = 8
_PER_SOURCE = 4
_OF_EVERYTHING = 10
_ABOUT_AS_WELL = 0.1
_MOST_CHANGES = 20  # of one matter, one after the other
_DUE_DAYS = 14
_SMALLEST_PIECE = 24  # tokens; less of a text than that says nothing
_TURN = re.compile(r"\n(?=\[…\]\n)|\n\n")
# As days are put behind the words that meant them: "(7 May 2023)", "[yesterday: 7 May 2023]".
_DATE = re.compile(r" \((?:[^()]*\b)?\d{4}\)| \[[^][]+: [^][]*\b\d{4}\]")
_SAID = frozenset({"message", "episode"})
_ENDS = ".…!。！"


@dataclass(frozen=True, slots=True)
class RecalledItem:
    """One recalled text: what it says, when it was said, and where it comes from."""

    text: str
    kind: str
    score: float
    source: str
    id: str = ""
    at: datetime | None = None
    space: Space = field(default_factory=Space)
    pieces: tuple[str, ...] = field(default=(), repr=False)
    """Of an episode the facts, or what was said turn by turn, that its text is put together from."""

    def line(self, zone: Any) -> str:
        """The item as one line of a prompt."""
        day = f"{self.at.astimezone(zone).date().isoformat()} " if self.at is not None else ""
        where = f"{self.source} {self.id}".strip()
        return f"{day}{self.text} [{where}]"


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was recalled, best first; `prompt` is the same as framed text, "" for nothing."""

    items: tuple[RecalledItem, ...] = ()
    prompt: str = ""
    tokens: int = 0
    freshness: Freshness = field(default_factory=lambda: Freshness(0, 0, "fresh"))
    notes: tuple[str, ...] = ()


def recall(
    parts: Parts,
    query: str,
    *,
    token_budget: int,
    method: str,
    user_id: str | None = None,
    agent_id: str | None = None,
    mission_id: str | None = None,
    folder: str | None = None,
    app_id: str = "default",
    project_id: str | None = None,
    more: Iterable[Space] = (),
    min_score: float | None = None,
    filters: Mapping[str, Any] | None = None,
    open_talk: bool = True,
    shared: bool = True,
    projects: Collection[str] | None = None,
) -> Recalled:
    """Ask every source that fits the caller, through one gate, and choose the best.

    Without `shared` nothing that is the project's own is asked; `projects` are those the caller may see. Of what lies in
    `more` everything is asked in any case.
    """
    person = user_id or parts.settings.memory.person
    project = _project_at(folder)
    notes: list[str] = []
    labels: list[str] = []
    nothing: list[str] = []
    found: list[RecalledItem] = []
    freshness: Freshness | None = None
    unheard = () if open_talk else tuple(one for one in (person, agent_id) if one)
    read = asking.read(query)
    asked = partial(
        SearchRequest,
        query,
        for_injection=True,
        top_k=_OF_EVERYTHING if read.whole is not None else _PER_SOURCE,
        method=method,
        min_score=min_score,
        filters=filters,
        unheard=unheard,
    )
    spaces = list(dict.fromkeys([*_spaces(app_id, project_id, project, projects), *more]))
    requests = list(_requests(asked, spaces, person, agent_id, mission_id, shared=shared))
    scopes = [one.scope for one in requests]
    parts.settle(*scopes, embed=method != "keyword")
    with parts.traffic:
        common = parts.searcher.together(query, scopes)
        for request, scope in zip(requests, scopes, strict=True):
            if (
                freshness is not None
                and freshness.state != "rebuilding"
                and not parts.searcher.has_rows(scope)
            ):
                continue  # most people have no mission, no documents and no cases of this agent
            result = at_home(parts, parts.searcher.search(replace(request, **common)))
            freshness = _worse(freshness, result.freshness)
            notes += result.freshness.notes
            if result.whole:
                (labels if result.episodes else nothing).append(result.whole)
            found += _items(result, parts.settings.zone, wants_former=read.wants_former)
            if not (read.wants_former or filters):
                found += _what_is_so_now(parts, scope, result)
    if project is not None and not filters:
        least = parts.settings.search.injection_min_score
        for item in _from_project(project, query, notes):
            fit = fit_by_words(query, item.text, common["held"])
            # An order of work asks for nothing: its words must be told of, not only stand there.
            if fit >= least or not read.is_for_anyone:
                found.append(replace(item, score=max(least, fit)))
    if not (read.wants_former or filters or dates.looks_back(query)):
        found = _newest_number_first(found)
    # That one memory keeps nothing of a time is no news where another does.
    told = _Told("" if open_talk else query)
    notes += labels or nothing
    return _told(found, told, token_budget, parts.settings.zone, freshness, notes, labels)


def brief(
    parts: Parts,
    *,
    user_id: str | None,
    agent_id: str | None,
    folder: str | None,
    app_id: str,
    project_id: str | None,
    token_budget: int,
    shared: bool = True,
    projects: Collection[str] | None = None,
) -> Recalled:
    """Core memory and promoted memories, what is due, and the repository's next steps."""
    person = user_id or parts.settings.memory.person
    project = _project_at(folder)
    found: list[RecalledItem] = []
    notes: list[str] = []
    for space in _spaces(app_id, project_id, project, projects):
        found += _core(parts, space, agent_id, shared=shared)
        found += _due(parts, Scope(space, "user", person))
    if project is not None:
        found += _from_project(project, "what should I do next", notes)
    return _told(found, _Told(), token_budget, parts.settings.zone, None, notes)


def _project_at(folder: str | Path | None) -> ProjectMemory | None:
    """The repository's memory at `folder`; None without a folder, or where it cannot be looked at."""
    if folder is None:
        return None
    from cairn.projects import open_project

    try:
        return open_project(folder)
    except CairnError as error:
        log.warning("the repository at %s is left out: %s", folder, error)
        return None


def _spaces(
    app: str, project_id: str | None, project: ProjectMemory | None, projects: Collection[str] | None
) -> list[Space]:
    """The general space, and the repository's or the one that was named; of `projects` alone, where they are limited."""
    spaces = [Space(app, "default")]
    if project_id is not None:
        spaces.append(Space(app, project_id))
    elif project is not None:
        spaces += project.spaces
    return [one for one in dict.fromkeys(spaces) if projects is None or one.project in projects]


def _requests(
    asked: Callable[..., SearchRequest],
    spaces: Iterable[Space],
    person: str,
    agent: str | None,
    mission: str | None,
    *,
    shared: bool,
) -> Iterator[SearchRequest]:
    for space in spaces:
        yield asked(scope=Scope(space, "user", person), evidence=_EVIDENCE)
        if shared:
            yield asked(scope=Scope(space, "project", ""))
            yield asked(scope=knowledge_scope(space))
        if agent is not None:
            yield asked(scope=Scope(space, "agent", agent))
        if mission is not None:
            yield asked(scope=Scope(space, "mission", mission))


def _items(result: SearchResult, zone: tzinfo, *, wants_former: bool) -> Iterator[RecalledItem]:
    """The hits and verbatim messages of one answer; what no person has vouched for is left out.

    What is over stands behind what is so now, unless what was before is asked for.
    """
    space = result.space
    told = {fact.entry_id: fact.score for hit in result.episodes for fact in hit.facts}
    behind = {} if wants_former else _behind_newer(result.evidence or ())
    for hit in result.hits:
        if hit.kind == "memory" and not _is_vouched_for(hit):
            continue
        if hit.kind == KNOWLEDGE:
            where = f"{hit.fields['topic_path']}, {hit.path}:{hit.fields['line']}"
            yield RecalledItem(passage_text(hit.text), hit.kind, hit.score, where, hit.id, None, space)
            continue
        # What is told of an episode are its facts; how well it answers by what else was said in it is not theirs.
        facts = (fact.score if wants_former else _standing(fact, told) for fact in hit.facts)
        score = max(facts, default=hit.score)
        score = min(score, behind.get(hit.session_id or "", score))
        pieces = _pieces(hit)
        yield RecalledItem(" ".join(pieces), hit.kind, score, hit.kind, hit.id, hit.timestamp, space, pieces)
    for said in (*(result.evidence or ()), *result.unflushed):
        source = "said just now in" if said.unflushed else "said in"
        text = f"{said.sender_name or said.sender_id}: {_said(said, zone)}"
        yield RecalledItem(text, "message", said.score, source, said.session_id, said.timestamp, space)


def _what_is_so_now(parts: Parts, scope: Scope, result: SearchResult) -> Iterator[RecalledItem]:
    """The facts that ended facts of an answer, where it does not tell them itself: whoever hears that they live in
    Lisbon no longer is to hear where they do.
    """
    facts = [fact for hit in result.episodes for fact in hit.facts] if not result.whole else []
    told = {fact.entry_id for fact in facts}
    said = {one.message_id for one in result.evidence or ()}
    heard = [(one.earlier, one.score) for one in result.evidence or () if one.earlier is not None]
    for fact, score in [*((one, one.score) for one in facts), *heard]:
        by, newest = str(fact.fields.get("superseded_by") or ""), None
        for _ in range(_MOST_CHANGES):
            rows = parts.index.find(scope, [by], fact.kind) if by and by not in told else []
            if not rows:
                break
            newest = rows[0]
            by = str(newest.fields.get("superseded_by") or "")
        if (
            newest is None
            or by in told
            or said.intersection(list_items(str(newest.fields.get("message_ids"))))
        ):
            continue
        told.add(newest.entry_id)
        episode = scope.public_id(str(newest.fields.get("parent_id") or newest.entry_id))
        at = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC)
        yield RecalledItem(
            newest.text, "episode", score + 1e-6, "episode", episode, at, scope.space, (newest.text,)
        )


def _newest_number_first(found: Sequence[RecalledItem]) -> list[RecalledItem]:
    """What gives a thing another number or day than an older item of the answer stands right before it."""
    said = sorted((one for one in found if one.at is not None and one.kind in _SAID), key=_when)
    told = {
        id(one): [
            number for piece in one.pieces or (one.text,) for number in traits.quantities(_spoken(piece)[1])
        ]
        for one in said
    }
    score = {id(one): one.score for one in said}
    for older, newer in itertools.combinations(said, 2):
        if _when(older).date() < _when(newer).date() and traits.differ(told[id(older)], told[id(newer)]):
            score[id(newer)] = max(score[id(newer)], score[id(older)] + 1e-6)
    return [replace(one, score=score.get(id(one), one.score)) for one in found]


def _when(item: RecalledItem) -> datetime:
    return item.at or datetime.min.replace(tzinfo=UTC)


def _behind_newer(said: Sequence[Evidence]) -> dict[str, float]:
    """For each session whose words stand behind newer ones that answer about as well: the most its episode may score."""
    out: dict[str, float] = {}
    for place, item in enumerate(said):
        newer = [
            one.score
            for one in said[:place]
            if one.timestamp.date() > item.timestamp.date() and one.score - item.score < _ABOUT_AS_WELL
        ]
        if newer and item.session_id not in out:
            out[item.session_id] = min(newer) - 1e-6
    return {session: most for session, most in out.items() if said[0].session_id != session}


def _standing(fact: Hit, told: Mapping[str, float]) -> float:
    """A fact's score; one that is over stands right behind what ended it, where that is told as well."""
    newer = told.get(str(fact.fields.get("superseded_by", "")))
    return fact.score if newer is None else min(fact.score, newer - 1e-6)


class _Told:
    """The sentences a prompt holds already, by who said them: what adds none to them is not told again.

    Nor is what only repeats `asked`, whoever said it.
    """

    def __init__(self, asked: str = "") -> None:
        self._asked = {words for _, words in _sentences(f": {asked}")}
        self._sentences: set[tuple[str, str]] = set()

    def unheard(self, pieces: Iterable[str]) -> tuple[str, ...]:
        """Those of `pieces` that say something new."""
        return tuple(one for one in pieces if any(map(self._is_new, _sentences(one))))

    def add(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            for who, words in _sentences(piece):
                self._sentences |= {(who, words), ("", words)}

    def _is_new(self, sentence: tuple[str, str]) -> bool:
        return sentence not in self._sentences and sentence[1] not in self._asked


def _sentences(piece: str) -> Iterator[tuple[str, str]]:
    """Who says each sentence of a piece, "" where no name stands before it, and its words without a date put behind them."""
    who, said = _spoken(piece)
    for sentence in sentences.split(said):
        if key := " ".join(sentence.casefold().split()).rstrip(_ENDS):
            yield who.casefold().removesuffix(" said"), key


def _spoken(piece: str) -> tuple[str, str]:
    """Who says a piece, "" where no name stands before it, and what is said, without a date put behind it."""
    who, colon, said = _DATE.sub("", piece).removeprefix(GAP).strip().partition(": ")
    return (who, said) if colon else ("", who)


def _pieces(hit: Hit) -> tuple[str, ...]:
    """What is told of a hit: of an episode its facts, or what was said in it turn by turn; of others all of it."""
    if hit.kind == "episode" and hit.facts:
        return tuple(map(as_told, hit.facts))
    text = str(hit.fields.get("Content") or hit.fields.get("Summary") or hit.text)
    if hit.kind == "memory":
        return (as_told(hit, text),)
    if hit.kind != "episode":
        return (text,)
    first, *turns = _TURN.split(text)
    return tuple(turns) if turns and narrative.is_headline(first) else (first, *turns)


def _said(said: Evidence, zone: tzinfo) -> str:
    """A message as it was said, and behind it the days that its relative times meant."""
    meant = narrative.meanings(dates.mentions(said.text, said.timestamp.astimezone(zone)))
    return f"{as_said(said)} [{meant}]" if meant else as_said(said)


def _is_vouched_for(hit: Hit) -> bool:
    return hit.fields.get("origin", "human") not in UNTRUSTED or hit.fields.get("status") == "promoted"


def _from_project(project: ProjectMemory, query: str, notes: list[str]) -> Iterator[RecalledItem]:
    """What the repository's own record answers, with where it stands there."""
    try:
        if not project.exists:
            return
        answer = project.query(query)
    except CairnError as error:
        notes.append(f"the repository's memory was left out: {error}")
        return
    if not answer.enough:
        return
    for citation in answer.citations[:_PER_SOURCE]:
        yield RecalledItem(
            citation.summary,
            "project",
            0.5,
            citation.projectionPath or citation.pathOrSection,
            citation.sourceId,
            None,
            project.space,
        )


def _core(parts: Parts, space: Space, agent: str | None, *, shared: bool) -> Iterator[RecalledItem]:
    """Core memory and promoted memories, as the MEMORY.md page of this space says them once it is made anew."""
    from cairn.governed import pages

    scopes = [Scope(space, "project", "")] if shared else []
    scopes += [Scope(space, "agent", agent)] if agent else []
    for scope in scopes:
        at = pages.folder(parts.keeper, scope).child("MEMORY.md")
        for line in pages.told_first(parts.keeper, scope):
            yield RecalledItem(line, "core", 1.0, at.key, "", None, space)


def _due(parts: Parts, scope: Scope) -> Iterator[RecalledItem]:
    """What of the person's plans falls into the next days."""
    now = parts.clock.now()
    for row in parts.listing.upcoming(scope, now, now + timedelta(days=_DUE_DAYS)):
        yield RecalledItem(row.text, "foresight", 0.9, "coming up", row.id, None, scope.space)


def _worse(one: Freshness | None, other: Freshness) -> Freshness:
    if one is None or other.state != "fresh" or other.pending > one.pending:
        return other
    return one


def _told(
    found: Iterable[RecalledItem],
    told: _Told,
    budget: int,
    zone: Any,
    freshness: Freshness | None,
    notes: Iterable[str],
    labels: Iterable[str] = (),
) -> Recalled:
    """The best of `found`, each sentence once, that fit the budget together; a long first one is cut to fit.

    `labels` stand before them and say what they are.
    """
    first = list(dict.fromkeys(labels))
    budget -= sum(tokens_of(label) + 1 for label in first)
    chosen: list[RecalledItem] = []
    for item in sorted(found, key=lambda one: -one.score):
        pieces = told.unheard(item.pieces or (item.text,))
        if not pieces:
            continue
        fitting = _cut(replace(item, text=" ".join(pieces), pieces=pieces), chosen, budget, zone)
        if fitting is None:
            continue
        told.add(fitting.pieces)
        chosen.append(fitting)
    prompt = frame([*first, *(item.line(zone) for item in chosen)] if chosen else [])
    return Recalled(
        tuple(chosen),
        prompt,
        tokens_of(prompt),
        freshness or Freshness(0, 0, "fresh"),
        tuple(dict.fromkeys(notes)),
    )


def _cut(item: RecalledItem, chosen: list[RecalledItem], budget: int, zone: Any) -> RecalledItem | None:
    """`item` whole, or its beginning where only that fits beside what was chosen; None for neither."""
    lines = [one.line(zone) for one in chosen]
    if tokens_of(frame([*lines, item.line(zone)])) <= budget:
        return item
    room = budget - tokens_of(frame([*lines, replace(item, text="…").line(zone)]))
    if room < _SMALLEST_PIECE:
        return None
    words = item.text.split()
    while words and tokens_of(" ".join(words)) > room:
        words = words[: max(len(words) * room // max(tokens_of(" ".join(words)), 1) - 1, 0)]
    if len(words) < _SMALLEST_PIECE // 2:
        return None
    text = " ".join(words) + " …"
    return replace(item, text=text, pieces=(text,))


# ---------------------------------------------------------------- one search as text


def prompt(result: SearchResult, *, budget: int | None = None, zone: tzinfo = UTC) -> str:
    """What was found as text for an agent's context: framed as data, best first, within `budget` tokens.

    What does not fit is passed over for what does; where nothing fits, the best is shortened. What came from a tool
    or a page and no person has promoted is left out. "" for nothing.
    """
    shown = list(_shown(result, zone))
    label = [result.whole] if result.whole and shown else []
    left = sys.maxsize if budget is None else budget - tokens_of(frame(["x"]))
    left -= sum(tokens_of(line) + 1 for line in label)
    told, lines = _Told(), []
    for before, every, behind in shown:
        pieces = told.unheard(every)
        line = f"{before}{' '.join(pieces)}{behind}"
        if pieces and (cost := tokens_of(line) + 1) <= left:
            lines.append(line)
            told.add(pieces)
            left -= cost
    if not lines and shown:
        before, every, behind = shown[0]
        first = shortened(f"{before}{' '.join(every)}{behind}", left - 2)
        lines = [first] if first else []
    return frame([*label, *lines] if lines else [])


def _shown(result: SearchResult, zone: tzinfo) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What a line of the prompt says of each hit and message, and what stands before and behind that."""
    for hit in result.hits:
        if hit.kind == "memory" and not _is_vouched_for(hit):
            continue
        if hit.kind == KNOWLEDGE:
            where = f" ({hit.fields['topic_path']}, {hit.path}:{hit.fields['line']})"
            yield "", (passage_text(hit.text),), where
            continue
        day = f"{hit.timestamp.astimezone(zone).date().isoformat()}: " if hit.timestamp else ""
        yield day, _pieces(hit), f" ({hit.id})"
    for item in (*(result.evidence or ()), *result.unflushed):
        day = item.timestamp.astimezone(zone).date().isoformat()
        yield f"{day}, ", (f"{item.sender_name or item.sender_id} said: {_said(item, zone)}",), ""
