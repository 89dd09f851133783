"""Finds conflict copies of notes, session logs and journals in a root, and merges each into its original.

A sync program that met two versions of a file keeps one and puts the other beside it. Notes are merged entry by entry
(`cairn.notes.conflicts`), logs and journals line by line. A copy goes once all it holds is in the original; one that
cannot be read or united stays, and is reported. What was united is noted in `journal/merges.jsonl`, for the episodes
that two machines made of the same talk may arrive long after the logs did.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

from cairn.canonical import moment, objects_in, stamp
from cairn.errors import CairnError
from cairn.notes.conflicts import ConflictCopy, Merge, conflict_copies, merge_conflict_copy
from cairn.notes.format import Note
from cairn.notes.kinds import space_locator
from cairn.notes.notebook import Notebook
from cairn.notes.unions import united as united_journals
from cairn.seams import Clock, Journals, Locator, StorageBackend
from cairn.talk.merging import says_what_was_said
from cairn.talk.merging import united as united_sessions
from cairn.talk.sessions import SessionLog, place_of_session, session_locator
from cairn.types import Entry, Space, checked_session_id

_log = logging.getLogger(__name__)
_SETTLED_AFTER = timedelta(days=30)


class Copies:
    """Finds and merges conflict copies.

    Args:
        storage: Where the files are.
        notebook: Merges notes.
        journals: Rewrites logs with nobody appending meanwhile.
        sessions: Reads session logs.
        clock: When something was united.
        zone: The display zone, in which episodes are told.
    """

    def __init__(
        self,
        *,
        storage: StorageBackend,
        notebook: Notebook,
        journals: Journals,
        sessions: SessionLog,
        clock: Clock,
        zone: ZoneInfo,
    ) -> None:
        self._sessions = sessions
        self._zone = zone
        self._storage = storage
        self._notebook = notebook
        self._journals = journals
        self._clock = clock
        self._stayed: dict[Locator, tuple[tuple[float, int], Merge]] = {}

    def merge(self) -> list[Merge]:
        """Merge every conflict copy; one that cannot be is reported and left."""
        done = []
        stayed: dict[Locator, tuple[tuple[float, int], Merge]] = {}
        for copy in list(conflict_copies(self._storage)):
            try:
                info = self._storage.info(copy.locator)
                known = self._stayed.get(copy.locator)
                if known is not None and known[0] == (info.mtime, info.size):
                    merge = known[1]  # what can be merged of it was, and it has not changed since
                else:
                    merge = self._merge(copy)
                if not merge.removed:
                    stayed[copy.locator] = ((info.mtime, info.size), merge)
            except CairnError as error:
                merge = Merge(copy, leftovers=(str(error),))
            done.append(merge)
        self._stayed = stayed
        return done

    def _merge(self, copy: ConflictCopy) -> Merge:
        if copy.log == "session":
            return self._merge_session(copy)
        if copy.log == "journal":
            name = copy.original.name
            return self._merge_log(copy, lambda ours, theirs: united_journals(name, ours, theirs))[0]
        place = copy.place
        done = merge_conflict_copy(
            self._notebook,
            self._storage,
            copy,
            partial(self._is_told, place.scope.space)
            if place is not None and place.kind.name == "episode"
            else None,
        )
        if place is not None and place.kind.name == "episode" and (done.added or done.doubled):
            for session_id in sorted(self._sessions_in(copy.original)):
                self._note(place.scope.space, session_id)
        return done

    def _is_told(self, space: Space, entry: Entry, ours: Note) -> bool:
        """Whether an episode of the copy was made by a machine of a cell that has its episode in our note, or needs none."""
        session_id, cell_id = entry.inline.get("session_id"), entry.inline.get("parent_id")
        if not session_id or not cell_id:
            return False
        state = self._sessions.load(session_locator(space, checked_session_id(session_id)), keep=False)
        cell = state.cell(cell_id)
        if cell is None and cell_id not in state.merged:
            return False
        has_its_own = any(other.inline.get("parent_id") == cell_id for other in ours.entries)
        return (cell is None or has_its_own) and says_what_was_said(entry, state, self._zone)

    def _merge_session(self, copy: ConflictCopy) -> Merge:
        place = place_of_session(copy.original)
        if place is None:
            return Merge(copy, leftovers=("no session can have that name: look at it by hand",))
        space, session_id = place
        done, changed = self._merge_log(
            copy, lambda ours, theirs: united_sessions(space, session_id, ours, theirs)
        )
        if changed:
            self._note(space, session_id)
            self._notebook.announce(copy.original, "modified")
        return done

    def _merge_log(
        self, copy: ConflictCopy, unite: Callable[[Sequence[str], Sequence[str]], list[str] | None]
    ) -> tuple[Merge, bool]:
        theirs = self._journals.read(copy.locator).lines
        clean = [line.rstrip() for line in theirs]
        if not self._journals.size(copy.original):
            changed = bool(clean)
            self._journals.append(copy.original, clean)
        else:

            def change(lines: Sequence[str]) -> list[str] | None:
                made = unite([line.rstrip() for line in lines], clean)
                return None if made is None else [line.rstrip() for line in made]

            changed = self._journals.edit(copy.original, change)
        removed = self._journals.read(copy.locator).lines == theirs
        if removed:
            self._storage.remove(copy.locator)
        return Merge(copy, removed=removed), changed

    def _sessions_in(self, locator: Locator) -> set[str]:
        """The sessions whose episodes a note holds."""
        entries = self._notebook.read(locator).entries
        return {session for entry in entries if (session := entry.inline.get("session_id"))}

    # ---- what was united lately ----------------------------------------------------------------------------------

    def _note(self, space: Space, session_id: str) -> None:
        line = json.dumps({"at": stamp(self._clock.now()), "session": session_id}, ensure_ascii=False)
        self._journals.append(self._merges(space), [line])

    def lately(self, space: Space) -> list[str]:
        """The sessions of a space that were united within the last weeks, by any machine."""
        since = self._clock.now() - _SETTLED_AFTER
        found: dict[str, None] = {}
        for value in objects_in(self._journals.read(self._merges(space)).lines):
            at, session = moment(value.get("at")), value.get("session")
            if at is not None and at >= since and isinstance(session, str):
                found[session] = None
        return list(found)

    @staticmethod
    def _merges(space: Space) -> Locator:
        return space_locator(space).child("journal", "merges.jsonl")
