"""Background life, in one table: every thread and every chore, when it runs, who waits for it and how it gives way.

    start(parts)   opens every part and begins: Daemon (index, embed, watch, chores), strategies, recovery

People are served first: what somebody may be waiting for (the index thread) never gives way; all else does, before each
piece of its work (`Engine.step_aside`: while calls are served, for a tenth of a second at most, so that work goes on
under load). A chore runs in the one thread for chores, after the chores that were due before it.

`docs/architecture.md` shows the table; `make docs` writes it there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cairn.daemon import QUIET_SECONDS, Chore, Daemon, TroubleLog
from cairn.errors import CairnError
from cairn.parts import Parts, Stage

if TYPE_CHECKING:
    from cairn.governed.lifecycle import Trigger
    from cairn.seams.storage import Watch
    from cairn.strategies.engine import Engine

_log = logging.getLogger("cairn")
_TURN = 0.9  # of its time: whoever did it last may be first again


@dataclass(frozen=True, slots=True)
class Worker:
    """A thread, `cairn-NAME`: what it does, when, who waits for that, and how it gives way to calls."""

    name: str
    does: str
    when: str
    waits: str = "nobody"
    gives_way: str = "no"


@dataclass(frozen=True, slots=True)
class Task:
    """A chore: what is done every so many seconds in the thread `cairn-chores`, and who waits for it.

    What concerns the whole root is done by one of its machines, whose turn it is; what concerns this process alone is done
    `everywhere`, also where another process looks after the index.
    """

    name: str
    every_seconds: float
    run: Callable[[Parts], object]
    waits: str = "nobody"
    of_root: bool = False
    everywhere: bool = False

    def of(self, parts: Parts) -> Chore:
        """The chore as the daemon runs it."""

        def run() -> None:
            if not self.of_root or parts.storage.turn(self.name, _TURN * self.every_seconds):
                self.run(parts)

        return Chore(self.name, self.every_seconds, run, self.everywhere)


def sweep_due(parts: Parts) -> int:
    """Keep each space in order whose last sweep is `keeping.sweep_hours` old; how many were due."""
    from cairn.governed import maintenance

    trigger: Trigger = "schedule" if parts.swept else "startup"
    done = 0
    for space in parts.root.spaces():
        try:
            if parts.keeper.scopes(space) and maintenance.run(
                parts.keeper, space, trigger=trigger, writer=parts.writer
            ):
                done += 1
        except CairnError as error:
            _log.warning("the sweep of %s/%s failed: %s", space.app, space.project, error)
    parts.swept = True
    return done


def _merge_copies(parts: Parts) -> None:
    """What a sync program left beside a file is brought into it."""
    if parts.storage.capabilities.conflict_files:
        parts.merge_copies()


def _sweep_leftovers(parts: Parts) -> None:
    """Temporary files of killed writers and lock files nobody uses go away."""
    parts.storage.sweep()
    parts.local_locks.sweep()


def _note_sizes(parts: Parts) -> None:
    """What the root takes on the disk is kept once a day."""
    from cairn.engines import sizes

    settings, day = parts.settings, parts.clock.now().astimezone(parts.settings.zone).date().isoformat()
    sizes.note(settings.server_dir, settings.root, parts.index_dir, day)


def _give_back(_parts: Parts) -> None:
    from cairn.engines import allocator

    allocator.trim()


def _follow_tokens(parts: Parts) -> None:
    """Tokens that were added or revoked at another server of this root hold here, too."""
    if parts.storage.is_shared and parts.settings.storage.database:
        parts.token_file()


WORKERS = (
    Worker(
        "index",
        "brings changed files into the index; scans all files, which is the guarantee",
        "a change is queued or seen, for talk that goes on half a second later at most; every `index.scan_seconds`; what piled up is tidied every minute",
        "a search that is strong or names a change",
    ),
    Worker(
        "embed",
        "makes vectors, then brings the tables of LanceDB up to date",
        "rows without a vector are there; for talk that goes on, a second after the last call",
        gives_way="before each batch, and batches are smaller beside calls",
    ),
    Worker(
        "watch",
        "hears of edits by hand and hints them to the index",
        "the system tells of one",
        gives_way="-",
    ),
    Worker(
        "strategies",
        "runs the offline strategies: facts, foresight, profile, cases, skills, reflection, corrections",
        "an episode is written or edited; a cron time is there",
        "`trigger`; a strong search, for corrections",
        "between two jobs, and inside long ones",
    ),
    Worker(
        "recover",
        "settles core memory, and finishes cells that a killed process left",
        "once, at the start",
        "the next call of that session does its own",
    ),
    Worker(
        "chores", "runs the chores below, one after another", "each has its time", gives_way="before each"
    ),
)
CHORES = (
    Task("write episodes that wait", 1.0, lambda parts: parts.capture.retry(), "whoever reads that episode"),
    Task(
        "record changes",
        1.0,
        lambda parts: parts.observer.settle(),
        "`log`, `diff` and `restore`, which have it record at once",
        everywhere=True,
    ),
    Task("follow tokens", 1.0, _follow_tokens, "whoever was given one at another server"),
    Task("close silent sessions", 30.0, lambda parts: parts.capture.close_silent(), of_root=True),
    Task("sweep memories", 30.0, sweep_due, of_root=True),
    Task("merge conflict copies", 60.0, _merge_copies, "whoever reads that note", of_root=True),
    Task("record edits", 60.0, lambda parts: parts.observer.look_around(), "`log`, which looks itself", True),
    Task("give memory back", 60.0, _give_back),
    Task("note the sizes", 60.0, _note_sizes),
    Task("archive journals", 120.0, lambda parts: parts.storage.archive(), of_root=True),
    Task("sweep temporary files", 6 * 3600.0, _sweep_leftovers),
)


def start(parts: Parts) -> None:
    """Open everything and begin background life: notice edits, index, run what is due."""
    for name, stage in vars(type(parts)).items():
        if isinstance(stage, Stage):
            getattr(parts, name)
    parts.daemon = Daemon(
        parts.indexer,
        parts.state,
        watch=_watch(parts) if parts.settings.index.watch else None,
        scan_seconds=parts.settings.index.scan_seconds,
        follow=parts.folder,
        step_aside=partial(parts.engine.step_aside, QUIET_SECONDS),
        is_busy=parts.engine.is_busy,
        chores=[task.of(parts) for task in CHORES],
    )
    # The tables of LanceDB have all there is, if every scope is answered from them.
    parts.indexer.leaves_talk = parts.settings.index.engine != "lancedb"
    parts.daemon.start()
    threading.Thread(target=_recover, args=(parts,), name="cairn-recover", daemon=True).start()
    parts.closing.callback(parts.daemon.stop)
    thinking = _Thinking(parts.engine)
    thinking.start()
    parts.closing.callback(thinking.stop)


def _watch(parts: Parts) -> Watch:
    """What tells of changes: the storage itself where other machines write it, else the folder."""
    from cairn.engines.watching import TreeWatch

    return parts.storage.watch() or TreeWatch(parts.settings.root, parts.linked.folders)


def _recover(parts: Parts) -> None:
    """What changed while nothing ran: core memory is settled, and every session looked through once, since a power
    cut may take the ledger of cells under way.
    """
    from cairn.governed import core

    for space in parts.root.spaces():
        try:
            core.reconcile_all(parts.keeper, space)
        except CairnError as error:
            _log.warning("core memory of %s/%s is left as it is: %s", space.app, space.project, error)
    try:
        parts.capture.recover(everywhere=True)
    except Exception:
        _log.exception("recovery of unfinished cells failed; each session's next call tries again")


class _Thinking(threading.Thread):
    """Runs strategies as their work comes in, in a thread of its own; a failure is logged and life goes on."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="cairn-strategies", daemon=True)
        self._engine = engine
        self._stopping = threading.Event()
        self._told = TroubleLog(_log)

    def run(self) -> None:
        try:
            self._engine.recover()
        except Exception as error:
            self._told.failed("strategies: recovery, tried again with the next work", error)
        while not self._stopping.is_set():
            try:
                self._engine.run_due(seconds=2.0)
                self._told.went_well("strategies: a round")
            except Exception as error:
                self._told.failed("strategies: a round", error)
                self._stopping.wait(1.0)
            self._engine.wait(0.5)

    def stop(self) -> None:
        self._stopping.set()
        self._engine.handle_many(())
        self.join(15.0)
