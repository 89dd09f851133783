"""`follow_corrections`: updates what was derived from an episode when a person edits the episode.

    episode edited -> which messages does it tell otherwise? (talk/narrative.py)
                   -> recorded in the session's log: the index holds those messages as corrected, for this owner
                   -> facts, foresight, profile and proposals: what only the old words stated goes, what the new ones state comes
                   -> "followed" in the log

Every step may be repeated, and until the last line stands the whole is: which derived entries are the machine's is
known by making them again from the messages as they were. An entry that says anything else was written or changed
by a person and stays. Only episodes of the deterministic writer are followed: a model's text cannot be laid beside
the messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cairn.errors import Invalid, NotFound
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft
from cairn.strategies import (
    CaseEvent,
    EditEvent,
    Job,
    Kit,
    Outcome,
    Strategy,
    StrategyAsk,
    profile,
    proposals,
)
from cairn.strategies.facts import KnownFacts, belongs, fact_draft, release, settle
from cairn.strategies.foresight import foresight_draft, foresights_of, mine
from cairn.strategies.statements import Statement, statements_of
from cairn.talk.lines import Followed, corrected_line, line_of
from cairn.talk.narrative import DETERMINISTIC, corrections_in
from cairn.talk.sessions import CellCorrections, Corrections, corrected, ordinal_of, session_locator
from cairn.types import Cell, CellEvent, Entry, Message, Scope


class FollowCorrections(Strategy):
    name = "follow_corrections"
    purpose = "what was derived follows an episode that was corrected by hand"
    trigger = "edit"
    takes = frozenset({"edit"})

    def discover(self, events: Sequence[CellEvent], kit: Kit) -> Iterable[StrategyAsk]:
        """Episodes that tell their cell otherwise than the log knows: edited while nobody looked."""
        episodes: dict[tuple[Scope, str], Mapping[str, Entry]] = {}
        for event in events:
            for scope, episode_id in event.episodes:
                if (scope, event.day) not in episodes:
                    episodes[scope, event.day] = _episodes(scope, event.day, kit)
                ask = self.ask(scope, event.cell_id, event, episode_id)
                try:
                    now, mine, _ = _looked(ask, episodes[scope, event.day], kit)
                except NotFound:
                    continue
                if mine.recorded or now != mine.followed:
                    yield ask

    def ask(
        self, scope: Scope, consumed: str, event: CellEvent | CaseEvent | EditEvent, entry_id: str = ""
    ) -> StrategyAsk:
        # The same words may be put in, taken out and put in again: each time is an input of its own.
        ask = super().ask(scope, consumed, event, entry_id)
        return replace(ask, input=f"{ask.input}/{uuid.uuid4().hex[:12]}")

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        episodes = _episodes(scope, day, kit)
        for job in jobs:
            try:
                with kit.notebook.run("correction"):
                    done = self._follow(job.ask, episodes, kit)
            except NotFound as gone:
                yield Outcome(job, "skipped", str(gone))
                continue
            why = "" if done else "nothing was corrected"
            yield Outcome(job, "wrote" if done else "skipped", why, done)

    def _follow(self, ask: StrategyAsk, episodes: Mapping[str, Entry], kit: Kit) -> tuple[str, ...]:
        now, mine, cell = _looked(ask, episodes, kit)
        said, ask = (
            cell.messages,
            replace(ask, day=cell.day),
        )  # though the episode may have been moved to another
        if now == mine.followed and not mine.recorded:
            return ()
        scope, versions = ask.scope, [mine.followed, *mine.recorded]
        if now != mine.current:
            at = kit.clock.now().isoformat()
            texts = {ordinal_of(message): text for message, text in now.items()}
            _note(kit, ask, corrected_line(ask.cell_id, scope.track, scope.owner, texts, at))
        if scope.track == "user":
            before = [corrected(said, version) for version in versions]
            after = corrected(said, now)
            stated = [statements_of(version, kit.zone) for version in (*before, after)]
            stated = [[said for said in one if belongs(said, scope.owner)] for one in stated]
            facts = [_facts(ask, one, kit) for one in stated]
            ahead = [_foresights(ask, version, kit) for version in (*before, after)]
            _exchange("atomic_fact", ask, ask.entry_id, facts[:-1], facts[-1], kit)
            _exchange("foresight", ask, ask.cell_id, ahead[:-1], ahead[-1], kit)
            profile.follow(scope, kit, stated[:-1], stated[-1])
            proposals.follow(ask, after, kit)
        _note(kit, ask, line_of(Followed(ask.cell_id, scope.track, scope.owner)))
        return (ask.entry_id,)


def _episodes(scope: Scope, day: str, kit: Kit) -> dict[str, Entry]:
    """The episodes of an owner's day, by cell. A merged copy may hold a cell twice: the first one counts."""
    found: dict[str, Entry] = {}
    for entry in kit.cells.episodes(scope, day).values():
        found.setdefault(entry.inline.get("parent_id", ""), entry)
    return found


def _looked(
    ask: StrategyAsk, episodes: Mapping[str, Entry], kit: Kit
) -> tuple[Corrections, CellCorrections, Cell]:
    """What an episode corrects now, what the log knows of that, and what was said."""
    entry = episodes.get(ask.cell_id)
    if entry is None or entry.id != ask.entry_id:
        raise NotFound(f"episode {ask.entry_id} was removed")
    cell, mine = kit.cells.said(ask)
    now: dict[str, str | None] = {}
    if entry.inline.get("writer") == DETERMINISTIC:
        now = corrections_in(entry.sections.get("Content", ""), cell.messages)
    return {one: text and _redacted(text, kit) for one, text in now.items()}, mine, cell


def _redacted(text: str, kit: Kit) -> str | None:
    """`text` as it may be copied to another file; None where the settings refuse that."""
    try:
        return kit.redact(text).strip() or None
    except Invalid:
        return None


def _note(kit: Kit, ask: StrategyAsk, line: str) -> None:
    locator = session_locator(ask.scope.space, ask.session_id)
    kit.journals.append(locator, [line])
    kit.notebook.announce(locator, "modified")


def _facts(ask: StrategyAsk, said: Sequence[Statement], kit: Kit) -> Iterable[Draft]:
    for statement in said:
        if text := kit.redact(statement.text).strip():
            yield fact_draft(ask, statement, text, kit.cells.cell(ask).messages)


def _foresights(ask: StrategyAsk, messages: Sequence[Message], kit: Kit) -> Iterable[Draft]:
    found = mine(foresights_of(messages, kit.zone), ask.scope.owner)
    return (foresight_draft(ask, ahead, kit.redact) for ahead in found)


def _exchange(
    kind: str,
    ask: StrategyAsk,
    parent: str,
    before: Sequence[Iterable[Draft]],
    after: Iterable[Draft],
    kit: Kit,
) -> None:
    """Bring the entries of one parent from what was derived before (the followed version first) to what is now."""
    old = [{_key(draft.sections): draft for draft in drafts} for drafts in before]
    new = {_key(draft.sections): draft for draft in after}
    locator = KINDS[kind].locator(ask.scope, ask.day)
    entries = kit.entries(kind, ask.scope, ask.day)
    mine = {e.id: _key(e.sections) for e in entries if e.inline.get("parent_id") == parent}
    if old[0] and not mine:
        return  # its strategy has yet to run (and will read the corrected words), or is off
    outdated = set().union(*old) - set(new)
    gone = [entry_id for entry_id, key in mine.items() if key in outdated]
    fresh = {key: d for key, d in new.items() if key not in old[0] and key not in mine.values()}
    if kind == "atomic_fact" and fresh:
        known = KnownFacts.of(ask.scope, kit)
        known.leave_out(locator, [mine[entry_id][0] for entry_id in gone])
        fresh = {key: draft for key, draft in fresh.items() if known.add(key[0])}
        known.forget(kit)
    # The new ones come first: after a crash in between, what is left to do can still be told.
    written = kit.notebook.append(kind, ask.scope, ask.day, list(fresh.values())) if fresh else []
    if gone:
        kit.notebook.remove(locator, gone)
    if kind == "atomic_fact":
        release(ask.scope, kit, gone)
        settle(ask.scope, kit, [one.entry_id for one in written])


def _key(sections: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(" ".join(text.split()) for text in sections.values())
