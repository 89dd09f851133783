"""The two queues: changes that wait for the index (`State`), and jobs of the strategies (`Jobs`). Both may vanish."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from cairn.types import Change, Job, JobRun, Queued


@dataclass(frozen=True, slots=True)
class Noticed:
    """A place that differs from what the index saw, on its way into the queue."""

    path: str
    kind: str
    change_type: Literal["added", "modified", "deleted"]
    mtime: float | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The queue at a glance. Work that is being done counts as pending."""

    pending: int
    done: int
    failed: int
    last_lsn: int
    applied_lsn: int


@dataclass(frozen=True, slots=True)
class Glance:
    """How far the index is: the LSN it has reached, changes that wait, which index is complete, and failures.

    `failed` has the path and the reason of what could not be read or indexed.
    """

    applied_lsn: int
    pending: int
    ready_for: str
    failed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What the queue remembers of a file it is done with, or waits for."""

    status: str
    change_type: str
    mtime: float | None
    size: int | None
    seen_at: float | None
    retryable: bool
    unread: bool = False


class State(Protocol):
    """The change queue: one row per path, the newest change wins, LSNs grow.

    It lives in the index directory and may be lost with it: a scan of the files finds the same work.
    """

    on_enqueue: Callable[[Collection[str]], None] | None
    """Called with the kinds of what was queued after each `enqueue` of this process: its indexer need not poll."""

    sole: bool
    """Set while this process holds the indexer's lease: nobody else claims then."""

    def enqueue(self, changes: Sequence[Noticed]) -> int:
        """Queue `changes` and return the highest LSN given. Never raises: a lost queue costs a scan.

        A log of talk grows with every message. While `sole` is set, one that waits and that nobody has claimed yet may
        be left as it is: whoever claims it reads all of it.
        """
        ...

    def take_lost(self) -> bool:
        """Whether a change could not be queued since the last time this was asked: scan if so."""
        ...

    def claim(self, limit: int, *, holder: str, within: Sequence[str] = ()) -> list[Change]:
        """Take up to `limit` due changes, oldest first, under `holder`'s name; of places below `within`, if given."""
        ...

    def finish(
        self,
        changes: Sequence[Change],
        *,
        holder: str,
        seen: Mapping[str, tuple[float, int] | None],
        remarks: Mapping[str, str] | None = None,
    ) -> int:
        """Finish what is still claimed by `holder`; how many. A path queued anew meanwhile stays pending.

        `seen` has what each file was when it was read: (mtime, size), or None for one that is gone. `remarks`
        says of a path what in it could not be read and was set aside.
        """
        ...

    def fail(
        self,
        change: Change,
        reason: str,
        *,
        holder: str,
        retryable: bool,
        seen: tuple[float, int] | None = None,
        unread: bool = False,
    ) -> None:
        """Record a failure. A retryable one comes back after a pause; the other waits for an edit.

        `seen` is the file's (mtime, size): while they stay, a scan does not queue it again. With `unread` the file
        itself is the trouble: nobody waits for it, and a retryable one is tried now and then for ever.
        """
        ...

    def recover(self, *, holder: str) -> int:
        """Return every claim of another holder to pending. Only the indexer's lease holder calls it."""
        ...

    def retry_failed(self) -> int:
        """Put the retryable failures back in the queue; how many."""
        ...

    def failures(self) -> list[dict[str, Any]]:
        """Every failed change with its reason, oldest first; also those still waiting for another try."""
        ...

    def set_aside(self) -> list[dict[str, str]]:
        """Files that are indexed but for a part that cannot be read, by path, and what that is."""
        ...

    def counts(self) -> QueueCounts: ...

    def waiting(self, lsn: int | None = None, within: Sequence[str] = ()) -> int:
        """How many changes up to `lsn` (all of them without one) are not yet done or given up."""
        ...

    def last_lsn(self) -> int: ...

    def known(self, paths: Sequence[str] | None = None, within: Sequence[str] = ()) -> Mapping[str, Known]:
        """What is remembered of `paths`, of those below `within`, or of every path.

        What is gone, and indexed as gone, only where it is named in `paths`.
        """
        ...

    def glance(self, within: Sequence[str] = ()) -> Glance:
        """How far the index is, of the places below `within`: cheap enough for every answer."""
        ...

    def data_version(self) -> tuple[int, int]:
        """Changes when another connection committed, so that an idle indexer can poll for next to nothing."""
        ...

    def ready_for(self) -> str:
        """The generation of the index that holds every file; "" while none does."""
        ...

    def clear(self) -> str:
        """Forget every change, keep the LSN; no index is complete then. Returns which queue was cleared."""
        ...

    def note_scan(self, generation: str, lsn: int, *, queue: str) -> None:
        """Note that every file is queued up to `lsn` for the index of this generation, if `queue` is still this one."""
        ...

    def has_scan(self, generation: str) -> bool:
        """Whether every file was queued for the index of this generation since the queue was cleared."""
        ...

    def set_ready(self, generation: str) -> bool:
        """Call the index of this generation complete, if a scan for it was queued and all of that is done."""
        ...

    def maintain(self) -> None:
        """Keep it small: what is gone and indexed as such is forgotten after a day."""
        ...

    def forget(self, paths: Sequence[str] | None = None) -> None:
        """Drop the names of files that are gone and indexed as such: these, or all such."""
        ...

    def scrub(self) -> bool:
        """Leave no byte of removed rows on disk; False if readers held on."""
        ...

    def close(self) -> None: ...


class Jobs(Protocol):
    """The queue of the strategies: one job per (strategy, input), gates that hold jobs back, schedules.

    It lives in the index directory and may be lost with it: the notes and session logs say what is to be done.
    """

    @property
    def is_new(self) -> bool:
        """Whether it was made anew since it was last found from the notes, by whatever process."""
        ...

    def set_found(self, *, now: float) -> None:
        """All work the notes hold is queued: `is_new` is over."""
        ...

    def enqueue(self, queued: Sequence[Queued], *, now: float) -> int:
        """Queue the asks that are not known yet, count them, and return how many were new."""
        ...

    def open_gates(self, strategy: str, threshold: int, cooldown: float, *, now: float) -> int:
        """Let the held jobs go whose key has counted `threshold` events and is past its cooldown."""
        ...

    def free_held(self, strategy: str, *, dead_too: bool, now: float) -> int:
        """Make the held jobs of a strategy pending and due, and its dead ones too if wanted."""
        ...

    def claim(self, strategies: Sequence[str], limit: int, *, now: float, far: float) -> list[Job]:
        """Take up to `limit` due jobs of one strategy and mark them running; a due time beyond `far` is due too."""
        ...

    def finish(self, ended: Iterable[tuple[int, str, str, Sequence[str]]], *, now: float) -> None:
        """Record (job id, status, reason, outputs) for jobs that are still running, and as they were claimed here."""
        ...

    def retry(self, failed: Iterable[tuple[int, str, float]], *, count: bool = True) -> None:
        """Put running jobs back: (job id, reason, due at). `count=False` takes the attempt back as well."""
        ...

    def forget(self, names: Callable[[str], bool]) -> int:
        """Drop every record that `names` says is about who is forgotten, and its bytes; how many."""
        ...

    def revive(self) -> int:
        """Return every running job to the queue that nobody alive works on. Only the holder of the engine's lease calls it."""
        ...

    def prune(self, before: float, most: int) -> int:
        """Drop records of runs that ended before `before`, and all but the latest `most` of those that ended."""
        ...

    def schedules(self) -> Mapping[str, tuple[str, float, float | None]]:
        """(cron, next time, last time) of each strategy that has one."""
        ...

    def set_schedule(self, strategy: str, cron: str, next_at: float | None, last_at: float | None) -> None:
        """Remember when a strategy is due; no time removes it."""
        ...

    def seen(self) -> dict[str, int]:
        """How long each session log was when its cells were last looked at."""
        ...

    def set_seen(self, sizes: dict[str, int]) -> None:
        """Remember how long each session log was."""
        ...

    def forget_seen(self) -> None:
        """Let every session log be looked at again."""
        ...

    def due(self, strategies: Sequence[str], *, now: float, far: float) -> bool:
        """Whether any of `strategies` has work to claim, or work that somebody claimed, alive or dead."""
        ...

    def counts(self) -> dict[str, dict[str, int]]:
        """How many jobs each strategy has in each status."""
        ...

    def known(self, strategy: str, inputs: Collection[str]) -> set[str]:
        """Those of `inputs` that have a record for `strategy`."""
        ...

    def runs(self, *, strategy: str = "", status: str = "", limit: int = 50) -> list[JobRun]:
        """Run records, newest first."""
        ...

    def close(self) -> None: ...
