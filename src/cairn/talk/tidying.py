"""Removes duplicate episodes of a cell after two machines wrote the same talk.

Where logs or notes of two machines were united, a note may hold two episodes of one cell, one that tells what the cell
held before, or one of a cell whose words are in other cells now. Of those that a machine wrote and that say nothing but
what was said in the session, one stays, with the cell's words, and the others go; what a person has reworded stays as
it is, for a person to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import cast
from zoneinfo import ZoneInfo

from cairn.errors import CairnError, NotFound
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator
from cairn.talk import narrative
from cairn.talk.lines import CellRecord
from cairn.talk.merging import FORGOTTEN
from cairn.talk.sessions import SessionState
from cairn.talk.turns import DETERMINISTIC, called
from cairn.types import Entry, Message, Scope, Track

_DAY_LINE = re.compile(r"\(\w+, [^()\n]{1,40}\)")
_TURN = re.compile(r"[^:\n]{1,300}: ")
_HEADLINE = re.compile(r"On \w+, .{1,400}:")


def is_machine_made(entry: Entry, said: Sequence[Message], zone: ZoneInfo, *, forgotten: int = 0) -> bool:
    """Whether an episode says nothing but what was said: no person has put a word into it.

    Of messages that were forgotten since, `forgotten` in number, nobody knows the words any more: so many turns of
    somebody who spoke may be others.
    """
    if entry.inline.get("writer") != DETERMINISTIC:
        return True
    tools = called(said)
    known = {
        paragraph
        for message in said
        for names in (tools, {})
        for paragraph in _paragraphs(narrative.turn(message, zone, names))
    }
    told = _paragraphs(entry.sections.get("Content", ""))
    others = [
        paragraph
        for n, paragraph in enumerate(told)
        if paragraph not in known
        and not _DAY_LINE.fullmatch(paragraph)
        and not (n == 0 and _HEADLINE.fullmatch(paragraph))
    ]
    return len(others) <= forgotten and all(_TURN.match(paragraph) for paragraph in others)


def says_what_was_said(entry: Entry, state: SessionState, zone: ZoneInfo) -> bool:
    """Whether an episode of a session was made by a machine, as far as the session's log can tell."""
    cell = state.cell(entry.inline.get("parent_id", ""))
    return is_machine_made(
        entry, state.messages, zone, forgotten=_forgotten_in(state, cell) if cell is not None else 0
    )


def _forgotten_in(state: SessionState, cell: CellRecord) -> int:
    """How many messages of a cell were forgotten, wholly or in part."""
    said = state.messages_of(cell)
    return max(cell.upto - cell.first - len(said), 0) + sum(FORGOTTEN in message.text for message in said)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def tidy(notebook: Notebook, state: SessionState, zone: ZoneInfo) -> int:
    """Remove the episodes of a session that say what others say; returns how many went."""
    count = 0
    for cell in (*state.merged.values(), *state.cells):
        for locator in _notes_of(state, cell):
            with suppress(CairnError):  # a note that cannot be read now is looked at the next time
                count += _tidy_note(notebook, state, cell, locator, zone)
    return count


def episode_notes(state: SessionState) -> Iterator[Locator]:
    """The notes that episodes of a session's cells lie in."""
    for cell in (*state.merged.values(), *state.cells):
        yield from _notes_of(state, cell)


def _notes_of(state: SessionState, cell: CellRecord) -> Iterator[Locator]:
    for track, owner in cell.owners:
        yield KINDS["episode"].locator(Scope(state.space, cast("Track", track), owner), cell.day)


def _tidy_note(
    notebook: Notebook, state: SessionState, cell: CellRecord, locator: Locator, zone: ZoneInfo
) -> int:
    try:
        entries = notebook.read(locator).entries
    except NotFound:
        return 0
    found = [entry for entry in entries if entry.inline.get("parent_id") == cell.cell_id]
    is_gone = cell.cell_id in state.merged
    said = state.messages_of(cell)
    content = narrative.transcript(said, zone) if said else ""
    if not found or (len(found) == 1 and found[0].sections.get("Content") == content and not is_gone):
        return 0
    gone = _forgotten_in(state, cell)
    ours = [entry for entry in found if is_machine_made(entry, state.messages, zone, forgotten=gone)]
    if is_gone:
        doomed = ours
    else:
        kept = _best(found, content)
        doomed = [entry for entry in ours if entry is not kept]
        if said and kept in ours and kept.inline.get("writer") == DETERMINISTIC:
            _reword(notebook, locator, kept, narrative.told(said, zone))
    if doomed:
        notebook.remove(locator, [entry.id for entry in doomed])
    return len(doomed)


def _best(entries: Iterable[Entry], content: str) -> Entry:
    """The episode to keep: one that a cell's words would make, else the first."""
    found = list(entries)
    return next((entry for entry in found if entry.sections.get("Content") == content), found[0])


def _reword(notebook: Notebook, locator: Locator, entry: Entry, told: narrative.EpisodeText) -> None:
    sections = {"Subject": told.subject, "Summary": told.summary, "Content": told.content}
    if {name: entry.sections.get(name) for name in sections} != sections:
        notebook.change(locator, entry.id, lambda old: Draft({**old.inline}, {**old.sections, **sections}))
