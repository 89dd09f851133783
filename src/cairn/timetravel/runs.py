"""Runs: the writes of one piece of work under one id, which can be undone as a whole.

A run is a consolidation, a sweep, a reflection, a correction, an import, the end of a mission, or an undo. While one is
at work, the notebook tells of each write before it is made (`Runs.ahead`), and the history of entries records it
under the id of the run. So taking a run back needs no copies of its own:

    changes of the run    entry -> what it was before, what the run made of it
    the note now          an entry that is as the run left it goes back; one that was changed since stays, and is told

`journal/history/runs.jsonl` has one line for each run and one for each undo; it holds no words.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cairn.canonical import compact, objects_in, stamp, text_hash
from cairn.errors import NotFound
from cairn.notes import frontmatter
from cairn.notes.format import parse_note
from cairn.notes.kinds import MemoryRoot, place_of
from cairn.notes.notebook import Notebook, Run
from cairn.seams import Clock, Journals, Locator
from cairn.timetravel.changes import HEAD, Restored, TimeTravel, taken_apart, with_blocks
from cairn.types import Space

_COUNTS = frozenset({"entry_count", "last_appended_at"})  # they never go back: a number is given once
_NAMED = 5

Fates = dict[str, tuple[str | None, str | None]]
"""Of a note: entry -> hash of what it was before a run, and of what the run made of it."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What became of one entry in an undo: "write", "remove", "kept" (changed since), "purged" (forgotten since) or "damaged"."""

    path: str
    entry: str
    action: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did, entry by entry."""

    run_id: str
    kind: str
    entries: tuple[TakenBack, ...]


class Runs:
    """The runs of every space of a root.

    Args:
        root: Where the notes are.
        journals: Hold the log of runs.
        clock: When a run began.
        travel: The history of one space, brought up to date.
    """

    def __init__(
        self, root: MemoryRoot, journals: Journals, clock: Clock, travel: Callable[[Space], TimeTravel]
    ) -> None:
        self._root, self._journals, self._clock, self._travel = root, journals, clock, travel
        self._begun: set[tuple[Space, str]] = set()
        self._guard = threading.Lock()

    def ahead(self, run: Run, at: Locator, before: str | None, after: str | None) -> None:
        """Record what a run is about to write: after a crash it is known, whether the write came to be or not."""
        if (place := place_of(at)) is None:
            return
        space = place.scope.space
        with self._guard:
            is_new = (space, run.id) not in self._begun
            self._begun.add((space, run.id))
        if is_new:
            self._note(space, {"t": "run", "run": run.id, "kind": run.kind, "at": self._now()})
        self._travel(space).ahead(at, before, after, cause=run.id)

    def runs(self, space: Space, *, limit: int = 100) -> list[dict[str, Any]]:
        """The runs of a space that wrote something, newest first, with how many entries each changed."""
        counts = Counter(
            change.cause for change in self._travel(space).log(limit=10**9) if change.before != change.after
        )
        undone = self._undone_at(space)
        begun = islice(reversed(self._begun_in(space).items()), limit)
        return [
            {"run_id": run, "kind": line["kind"], "at": line["at"], "entries": counts[run], "undone_at": undone.get(run)}
            for run, line in begun
        ]  # fmt: skip

    def undone(self, space: Space) -> frozenset[str]:
        """The ids of the runs that were taken back."""
        return frozenset(self._undone_at(space))

    def undo(self, notebook: Notebook, space: Space, run_id: str, *, dry_run: bool = False) -> Undone:
        """Take back what a run wrote, through the notebook, as a run of its own; a second time changes nothing.

        Args:
            notebook: Writes.
            space: Whose run.
            run_id: A run, one change of an entry (`ent-...`), or a kind of run for the latest that stands.
            dry_run: Only tell what would happen.

        Raises:
            NotFound: there is no such run; the message names the latest ones.
        """
        run_id, kind = self._named(space, run_id)
        travel = self._travel(space)
        fates: dict[str, Fates] = {}
        for change in travel.changes_of(run_id):
            of_note = fates.setdefault(change.path, {})
            first = of_note.get(change.entry, (change.before, None))[0]
            of_note[change.entry] = (first, change.after)
        hashes = [one for found in fates.values() for pair in found.values() for one in pair if one]
        texts, lost = travel.texts(hashes), travel.lost(hashes)
        done: list[TakenBack] = []
        with notebook.run("undo") as mine:
            for path, found in fates.items():
                done += _take_back(notebook, Locator(path), found, texts, lost, dry_run=dry_run)
            if not dry_run and run_id not in self.undone(space) and kind != "change":
                self._note(space, {"t": "undone", "run": run_id, "by": mine.id, "at": self._now()})
        return Undone(run_id, kind, tuple(done))

    def _named(self, space: Space, wanted: str) -> tuple[str, str]:
        known, undone = self._begun_in(space), self.undone(space)
        standing = [run for run, line in known.items() if run not in undone]
        latest = next((run for run in reversed(standing) if known[run]["kind"] == wanted), None)
        run = latest or wanted
        if run in known:
            return run, str(known[run]["kind"])
        if run.startswith("ent-") and any(True for _ in self._travel(space).changes_of(run)):
            return run, "change"
        there = ", ".join(f"{one} ({known[one]['kind']})" for one in standing[-_NAMED:])
        raise NotFound(
            f"There is no run {wanted[:80]} to undo. "
            + (
                f"The latest are {there}; `cairn runs` lists them."
                if there
                else "None has written anything yet."
            ),
            run=wanted[:80],
        )

    def _begun_in(self, space: Space) -> dict[str, dict[str, Any]]:
        known: dict[str, dict[str, Any]] = {}
        for line in self._lines(space):
            if line.get("t") == "run" and {"run", "kind", "at"} <= line.keys():
                known.setdefault(str(line["run"]), line)
        return known

    def _undone_at(self, space: Space) -> dict[str, str]:
        """Runs that were taken back, and when; one whose undo was itself taken back stands again."""
        found: dict[str, str] = {}
        for line in reversed(list(self._lines(space))):
            if line.get("t") == "undone" and line.get("by") not in found:
                found[str(line.get("run"))] = str(line.get("at"))
        return found

    def _lines(self, space: Space) -> list[dict[str, Any]]:
        return list(objects_in(self._journals.read(self._at(space)).lines))

    def _note(self, space: Space, line: Mapping[str, Any]) -> None:
        self._journals.append(self._at(space), [compact(line)])

    def _at(self, space: Space) -> Locator:
        return self._root.journal(space, "history/runs")

    def _now(self) -> str:
        return stamp(self._clock.now())


def _take_back(
    notebook: Notebook,
    at: Locator,
    fates: Fates,
    texts: Mapping[str, str],
    lost: Mapping[str, str],
    *,
    dry_run: bool,
) -> list[TakenBack]:
    """Bring the entries of one note back that are still as the run left them."""
    told: list[TakenBack] = []
    is_empty = False

    def edit(text: str | None) -> str | None:
        nonlocal is_empty
        told[:], is_empty = [], False
        now = {entry: text_hash(block) for entry, block in taken_apart(at, text).items()}
        items = []
        for entry, (before, after) in fates.items():
            current = now.get(entry)
            if entry == HEAD or before in {after, current}:
                continue
            if current != after:
                told.append(TakenBack(at.key, entry, "kept"))
            elif before is not None and before in lost:
                told.append(TakenBack(at.key, entry, lost[before]))
            else:
                items.append(Restored(at.key, entry, texts[before] if before is not None else None))
                told.append(TakenBack(at.key, entry, items[-1].action))
        made = text
        if items:
            head_then = texts.get(fates.get(HEAD, (None, None))[0] or "", "")
            found = with_blocks(text, items, head_then)
            made = text if found is None else found
        head = taken_apart(at, text).get(HEAD, "")
        if made is not None and HEAD in fates and head:
            made = _head_back(head, fates[HEAD], texts) + made.removeprefix(head)
        is_empty = text is not None and (made or "").strip() == head.strip() and _was_made(fates)
        return None if dry_run or is_empty or made == text else made

    notebook.rewrite(at, edit)
    if is_empty and not dry_run:
        notebook.drop(at)
    return told


def _was_made(fates: Fates) -> bool:
    """Whether the run made the note."""
    return all(before is None for before, _ in fates.values())


def _head_back(head: str, fate: tuple[str | None, str | None], texts: Mapping[str, str]) -> str:
    """The head of a note as before the run; where it was changed since, without what the run changed in it."""
    before, after = (texts.get(digest or "", "") for digest in fate)
    if not before:
        return head
    if text_hash(head) == fate[1]:
        return before
    old, new, now = (parse_note(one).frontmatter for one in (before, after, head))
    updates = {
        key: _value_back(old.get(key), new.get(key), now.get(key))
        for key in {*old, *new} - _COUNTS
        if old.get(key) != new.get(key)
    }
    updates = {key: value for key, value in updates.items() if value != now.get(key)}
    found = frontmatter.find_head(head)
    if not updates or not found.fenced or not found.closed:
        return head
    return frontmatter.in_head(head, updates, found)


def _value_back(old: Any, new: Any, now: Any) -> Any:
    """A value of the head without what the run did to it: whole, or key by key of a mapping."""
    if now == new:
        return old
    if not isinstance(now, dict) or not isinstance(new, dict):
        return now
    known = old if isinstance(old, dict) else {}
    kept = {key: value for key, value in now.items() if key not in new or new[key] != value or key in known}
    return {
        key: known[key] if new.get(key) == value and key in known else value for key, value in kept.items()
    } or None
