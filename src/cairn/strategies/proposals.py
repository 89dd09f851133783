"""`propose_memories`: what talk and cases teach, handed to the gate as candidates with their sources.

    an agent says   "The changelog must have the new version, otherwise the release test fails."   a lesson of the project
    a person says   "Always answer in French."      an order that stands, of that person
                    "We decided to use Postgres."   a decision, of that person
    three sessions in which an agent went the same way                                            a procedure of that agent

Each goes in once by (source_type, source_key), which is the message or the cases it comes from, and stays a candidate that
nothing recalls until a person promotes it. What an agent is about to do, what it asks and what stands in code is no
lesson. Doubt keeps nothing.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import NotFound
from cairn.governed import corrections, ledger, procedures
from cairn.language import tongues, traits
from cairn.language.sentences import split
from cairn.language.words import word_set
from cairn.strategies import Job, Kit, Outcome, Strategy, StrategyAsk
from cairn.strategies.skills import case_asks, cases_of
from cairn.strategies.statements import Setting, Statement, statements_of
from cairn.types import CellEvent, Message, Scope

if TYPE_CHECKING:
    from cairn.governed.memories import Keeper

_SHORTEST, _LONGEST, _MOST = 20, 400, 3
_FENCE = re.compile(r"^(`{3,}+|~{3,}+).*?(?:^\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NUMBERED = re.compile(r"^(?:\d+[.)]|[-*])\s+")
_SORTS = ("lesson", "instruction", "decision")


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing to propose: its sort, its words, and the message that says it."""

    sort: str
    words: str
    message_id: str

    def key(self, session: str) -> str:
        """What tells it from others in the ledger."""
        mark = hashlib.sha256(self.words.casefold().encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{session}#{self.message_id}"[:200] + f" {mark}"


class ProposeMemories(Strategy):
    name = "propose_memories"
    purpose = "lessons, standing orders, decisions and procedures as candidates for the gate"
    trigger = "cell"
    takes = frozenset({"episode", "agent", "case"})
    agents_only = True

    def discover(self, events: Sequence[CellEvent], kit: Kit) -> Iterable[StrategyAsk]:
        yield from super().discover(events, kit)
        yield from case_asks(self, kit)

    def run(self, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        keeper = kit.keeper()
        if keeper is None:
            return [Outcome(job, "skipped", "there is no gate") for job in jobs]
        by_agent: dict[Scope, list[Job]] = {}
        done = []
        for job in jobs:
            if job.ask.cell_id:
                done.append(_of_cell(job, kit, keeper))
            else:
                by_agent.setdefault(job.ask.scope, []).append(job)
        for scope, group in by_agent.items():
            made = _procedures(scope, kit, keeper)
            done += [_outcome(job, made, "no way of working recurs in three sessions") for job in group]
        return done


def lessons_in(text: str) -> Iterator[str]:
    """The lessons of a text, a few at most.

    >>> list(lessons_in("Done. The changelog must have the new version, otherwise the test fails."))
    ['The changelog must have the new version, otherwise the test fails.']
    >>> list(lessons_in("I must read the log, otherwise I will not know."))
    []
    """
    count = 0
    for sentence in split(_FENCE.sub("\n", text)):
        said = " ".join(sentence.split())
        labelled = _label().match(said)
        words = said[labelled.end() :] if labelled else said.lstrip("-*> ")
        if not _SHORTEST <= len(words) <= _LONGEST or words.endswith(("?", "？")):
            continue
        if labelled or (_says("duty", words) and _says("otherwise", words) and not _says("own", words)):
            yield words
            count += 1
        if count == _MOST:
            return


def follow(ask: StrategyAsk, said: Sequence[Message], kit: Kit) -> None:
    """Put away what was proposed from words that their owner has corrected, and propose what they say now.

    A candidate that a person has promoted, changed or archived is theirs and stays.
    """
    if (keeper := kit.keeper()) is None:
        return
    space, session = ask.scope.space, ask.session_id
    now = list(_of_person(statements_of(said, kit.zone), Setting.of(said), ask.scope.owner))
    holds = {(one.sort, one.key(session)) for one in now}
    places = {f"{session}#{message.id}"[:200] for message in said}
    is_outdated = False
    for row in ledger.CaptureLedger(keeper).rows(space):
        place = row.source_key.rpartition(" ")[0]
        if row.source_type not in _SORTS[1:] or row.memory_id is None or place not in places:
            continue
        if (row.source_type, row.source_key) in holds:
            continue
        try:
            record = keeper.find(space, row.memory_id, scope=ask.scope)
        except NotFound:
            continue
        is_outdated = True
        if record.status == "candidate" and record.source_id == row.source_key:
            corrections.archive(keeper, record, reason="its episode was corrected", by="strategy")
    if is_outdated:  # else nothing had been proposed here, perhaps because that is switched off
        _propose(now, ask, kit, keeper)


@functools.cache
def _label() -> re.Pattern[str]:
    said = tongues.every_body("lessons", "label")
    return re.compile(rf"^[\s*_#>-]*(?:{said})\s*[*_]*[:：][*_\s]*", re.IGNORECASE)


def _says(name: str, text: str) -> bool:
    return tongues.every_pattern("lessons", name).search(text) is not None


def _of_cell(job: Job, kit: Kit, keeper: Keeper) -> Outcome:
    ask = job.ask
    try:
        said = kit.cells.cell(ask).messages
    except NotFound as gone:
        return Outcome(job, "skipped", str(gone))
    if ask.scope.track == "agent":
        mine = (m for m in said if m.role == "assistant" and m.sender_id == ask.scope.owner)
        found = [Proposal("lesson", words, m.id) for m in mine for words in lessons_in(m.text)]
    else:
        stated = kit.cells.statements(ask, kit.zone)
        found = list(_of_person(stated, Setting.of(said), ask.scope.owner))
    return _outcome(job, _propose(found, ask, kit, keeper), "nothing to propose was said")


def _of_person(stated: Iterable[Statement], setting: Setting, owner: str) -> Iterator[Proposal]:
    """What a person orders for good, and decides, in talk with an agent; each once a message."""
    for one in stated if setting.has_agent else ():
        if one.speaker_id != owner or not one.message_ids:
            continue
        orders = [
            t for t in traits.traits_of(one.sentence, to_agent=True) if t.category == traits.INSTRUCTION
        ]
        if orders:
            yield Proposal("instruction", one.sentence[orders[0].begin :].strip(), one.message_ids[-1])
        elif _says("decision", one.sentence):
            yield Proposal("decision", one.sentence, one.message_ids[-1])


def _propose(found: Iterable[Proposal], ask: StrategyAsk, kit: Kit, keeper: Keeper) -> tuple[str, ...]:
    """Hand what was found to the gate; the ids of what is new there."""
    made = []
    for one in found:
        is_lesson = one.sort == "lesson"
        words = kit.redact(one.words).strip()
        verdict = ledger.learn(
            keeper, ask.scope.space, one.sort, one.key(ask.session_id), words,
            origin_key=ask.session_id, scope="project" if is_lesson else ask.scope, origin="strategy",
            category={"decision": "decision", "instruction": "preference"}.get(one.sort),
            session=ask.session_id, agent_id=ask.scope.owner if is_lesson else None,
        )  # fmt: skip
        if verdict is not None and verdict.accepted and verdict.memory is not None:
            made.append(str(verdict.memory["id"]))
    return tuple(made)


def _procedures(scope: Scope, kit: Kit, keeper: Keeper) -> tuple[str, ...]:
    """Propose what recurs in an agent's cases; the ids of what is new."""
    signals = []
    for case in cases_of(scope, kit).values():
        lines = [line.strip() for line in case.approach.splitlines() if line.strip()]
        if case.intent.strip() and lines:
            signals.append(
                procedures.Signal(
                    scope.public_id(case.id),
                    case.session_id or case.id,
                    word_set(case.intent),
                    " ".join(case.intent.split()),
                    [_NUMBERED.sub("", line) for line in lines],
                )
            )
    verdicts = procedures.propose(keeper, scope.space, signals, scope=scope)
    return tuple(one.memory_id for one in verdicts if one.memory_id is not None)


def _outcome(job: Job, made: tuple[str, ...], why: str) -> Outcome:
    return Outcome(job, "wrote" if made else "skipped", "" if made else why, made)
