"""The journal of which memories were read, how often and when; scores are computed from it and never stored
in notes.

Counting reads in the notes would rewrite a file for every search, wake every watcher and race with editors.
So hits go to `journal/access.jsonl` of the space, in batches and at best effort; the sweep folds them into one
line per memory. Only genuine retrieval is recorded here: a sweep, a lint, a rebuild or a listing is not.

    {"t": "hit", "at": "...", "m": [["user", "alice", "mem_20260601_00000001"], ...]}    it answered a query
    {"t": "seen", "at": "...", "m": [...]}                                               it was said again
    {"t": "state", "m": ["user", "alice", "mem_..."], "score": 0.5, "at": "...", "count": 3, "last": "..."}

Scores decay lazily: a state says what the score was and when, and any later moment follows from it. That is
why sweeping every day or once a month gives the same numbers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cairn.canonical import as_line, moment, objects_in
from cairn.errors import CairnError
from cairn.governed.gate import IMPORTANCE_SCORE, seed_score
from cairn.governed.records import PREFIX, Record, stamp
from cairn.notes.kinds import MemoryRoot
from cairn.seams import Clock, Journals, Locator, Locks
from cairn.seams.storage import read_on
from cairn.types import Scope, Space

EVERGREEN = frozenset({"preference", "convention"})
_BATCH = 256
_BATCH_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIER_BONUS = {1: 0.15, 2: 0.05, 3: -0.05}

Ref = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of the reads of one memory.

    `score` held at `at` (None: the memory's own seed, at birth). `read` is the last time it answered a query,
    as far as the journal still tells; `last` also counts having been said again.
    """

    count: int = 0
    last: datetime | None = None
    score: float | None = None
    at: datetime | None = None
    read: datetime | None = None


def ref(record: Record) -> Ref:
    return (record.scope.track, record.scope.owner, record.entry_id)


def born(record: Record) -> datetime:
    """When the memory was written; a hand-written entry without a time was, on its note's day."""
    if record.created_at is not None:
        return record.created_at
    day = record.locator.name.removesuffix(".md")[-10:]
    return moment(day) or _EPOCH


def is_evergreen(record: Record) -> bool:
    """Whether it skips decay: pinned, or of a category that does not age."""
    return record.pinned or record.category in EVERGREEN


def decayed(score: float, elapsed_seconds: float, half_life_days: float) -> float:
    """`score` after `elapsed_seconds`: halved every half-life; never raised by a clock that ran backwards."""
    if half_life_days <= 0:
        return score
    return float(score * 0.5 ** (max(elapsed_seconds, 0.0) / (half_life_days * 86_400)))


def score_at(record: Record, stat: Stat, now: datetime, half_life_days: float) -> float:
    """The access score at `now` (A59): from the later of last access and last decay, over the time since."""
    seed = seed_score(record.importance, record.confidence)
    score, since = (stat.score, stat.at) if stat.score is not None and stat.at else (seed, born(record))
    if stat.last is not None and stat.last >= since:
        # A read lifts the score to its seed, or leaves it where it is if that is higher.
        if not is_evergreen(record):
            score = decayed(score, (stat.last - since).total_seconds(), half_life_days)
        score, since = max(score, seed), stat.last
    if is_evergreen(record):
        return score
    return decayed(score, (now - since).total_seconds(), half_life_days)


def composite(record: Record, stat: Stat, now: datetime, *, query: float = 0.0) -> float:
    """ADE's lexical composite (A81); without a query it is the standing of the memory by itself."""
    last = max(stat.last or born(record), born(record))
    recency = decayed(1.0, (now - last).total_seconds(), 30.0)
    return (
        0.4 * query
        + 0.2 * recency
        + 0.15 * IMPORTANCE_SCORE[record.importance]
        + 0.15 * min(record.confidence, 1.0)
        + 0.1 * min(stat.count / 10, 1.0)
        + _TIER_BONUS[record.tier]
        + (0.1 if record.pinned else 0.0)
    )


class AccessLog:
    """The access journals of all spaces. Thread-safe; safe across processes."""

    def __init__(self, *, root: MemoryRoot, journals: Journals, locks: Locks, clock: Clock) -> None:
        self._root = root
        self._journals = journals
        self._locks = locks
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: dict[Space, list[tuple[str, datetime, Ref]]] = {}
        self._since: dict[Space, float] = {}
        self._read: dict[Space, _Replay] = {}

    def record(self, hits: Iterable[tuple[Scope, str]], *, said_again: bool = False) -> int:
        """Note that these memories answered a query; returns how many were counted. Never raises.

        Entries of other kinds are passed over. Lines are written when enough have gathered, when some seconds
        have passed, and before anyone asks; a crash may lose the last few.
        """
        now = self._clock.now()
        sort = "seen" if said_again else "hit"
        due: list[Space] = []
        counted = 0
        with self._guard:
            for scope, entry_id in hits:
                if entry_id.startswith(f"{PREFIX}_"):
                    waiting = self._waiting.setdefault(scope.space, [])
                    waiting.append((sort, now, (scope.track, scope.owner, entry_id)))
                    counted += 1
                    since = self._since.setdefault(scope.space, time.monotonic())
                    if len(waiting) >= _BATCH or time.monotonic() - since >= _BATCH_SECONDS:
                        due.append(scope.space)
        for space in dict.fromkeys(due):
            try:
                self.flush(space)
            except CairnError:
                pass  # best effort: reading must not fail because counting did
        return counted

    def flush(self, space: Space | None = None) -> None:
        """Write what waits."""
        for one in [space] if space is not None else list(self._waiting):
            with self._guard:
                waiting = self._waiting.pop(one, [])
                self._since.pop(one, None)
            if waiting:
                by_time: dict[tuple[str, datetime], list[Ref]] = {}
                for sort, at, mem in waiting:
                    by_time.setdefault((sort, at), []).append(mem)
                lines = [
                    as_line({"t": sort, "at": stamp(at), "m": mems}) for (sort, at), mems in by_time.items()
                ]
                with self._locks.hold(self._lock(one)):
                    self._journals.append(self._at(one), lines, sync=False)

    def stats(self, space: Space) -> Mapping[Ref, Stat]:
        """Everything known of the reads in `space`, hits that wait included. A snapshot."""
        self.flush(space)
        with self._guard:
            replay = self._read.setdefault(space, _Replay())
            replay.catch_up(self._journals, self._root.journal(space, "access"))
            return dict(replay.stats)

    def stat(self, record: Record) -> Stat:
        """What is known of one memory."""
        return self.stats(record.scope.space).get(ref(record), Stat())

    def set_states(self, space: Space, states: Mapping[Ref, Stat]) -> None:
        """Put the score of some memories on record as of a moment (a merge, an unpin)."""
        with self._locks.hold(self._lock(space)):
            self._journals.append(self._at(space), [_state(mem, stat) for mem, stat in states.items()])

    def compact(self, space: Space, states: Mapping[Ref, Stat]) -> None:
        """Fold the journal into one line for each memory of `states`; hits made meanwhile are kept."""
        self.flush(space)
        with self._locks.hold(self._lock(space)):
            replay = _Replay()
            replay.catch_up(self._journals, self._at(space))
            lines = []
            for mem, stat in states.items():
                seen = replay.stats.get(mem, Stat())
                later = seen.last is not None and stat.at is not None and seen.last > stat.at
                kept = replace(
                    stat, count=max(stat.count, seen.count), last=seen.last if later else stat.last
                )
                lines.append(_state(mem, kept))
            self._journals.replace(self._at(space), lines)
        with self._guard:
            self._read.pop(space, None)

    def _at(self, space: Space) -> Locator:
        return self._root.journal(space, "access")

    @staticmethod
    def _lock(space: Space) -> str:
        return f"access {space}"


class _Replay:
    """An access journal read so far."""

    def __init__(self) -> None:
        self.stats: dict[Ref, Stat] = {}
        self._end = 0

    def catch_up(self, journals: Journals, at: Locator) -> None:
        found, is_anew = read_on(journals, at, self._end)
        if is_anew:
            self.stats.clear()
        for value in objects_in(found.lines):
            self._take(value)
        self._end = found.end

    def _take(self, value: Mapping[str, Any]) -> None:
        try:
            if value["t"] in {"hit", "seen"}:
                at = moment(value["at"])
                read = at if value["t"] == "hit" else None
                for track, owner, entry_id in value["m"]:
                    old = self.stats.get((track, owner, entry_id), Stat())
                    last = max(old.last, at) if old.last and at else at
                    self.stats[track, owner, entry_id] = replace(
                        old, count=old.count + 1, last=last, read=read or old.read
                    )
            elif value["t"] == "state":
                track, owner, entry_id = value["m"]
                self.stats[track, owner, entry_id] = Stat(
                    int(value["count"]), moment(value.get("last")), float(value["score"]), moment(value["at"])
                )
        except (ValueError, TypeError, KeyError):
            return  # a damaged line loses its own counts, nothing else


def _state(mem: Ref, stat: Stat) -> str:
    value = {
        "t": "state",
        "m": list(mem),
        "score": stat.score if stat.score is not None else 0.0,
        "at": stamp(stat.at),
        "count": stat.count,
        "last": stamp(stat.last) or None,
    }
    return as_line(value)
