"""The table of background threads and chores: when each runs, who waits for it, and how it gives way to
calls.

    start(parts)   opens every part and begins: Daemon (index, watch, behind), recovery

People are served first: what somebody may be waiting for (the index thread) gives way with its scans alone. All else is done by one
thread, `behind`, a piece of each in turn, and before each piece it gives way to calls and to the index
(`Traffic.give_way`: for a tenth of a second at most, so that work goes on under load). What waits for another machine (a language
model, an embedding server) has a thread of its own, so that nothing else waits with it.

`docs/architecture.md` shows the table; `make docs` writes it there.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - a thread that needs it first while the program ends could not load it
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn import governed
from cairn.daemon import Daemon, Piece
from cairn.errors import CairnError
from cairn.parts import Parts, Stage
from cairn.seams import Locator
from cairn.types import split_public_id

if TYPE_CHECKING:
    from cairn.governed.lifecycle import Trigger
    from cairn.seams.storage import Watch

_log = logging.getLogger("cairn")
_TURN = 0.9  # of its time: whoever did it last may be first again
_JOBS_AT_ONCE, _JOBS_SECONDS = 128, 0.5
_FORGOTTEN = "forgotten"  # until when this machine has forgotten what others did
_FORGET_SECONDS = 30.0


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
    """A chore: what is done every so many seconds in the thread `cairn-behind`, and who waits for it.

    What concerns the whole root is done by one of its machines, whose turn it is; what concerns this process alone is done
    `everywhere`, also where another process looks after the index. A root that it is not for (`is_for`) does without it.
    """

    name: str
    every_seconds: float
    run: Callable[[Parts], object]
    waits: str = "nobody"
    of_root: bool = False
    everywhere: bool = False
    is_for: Callable[[Parts], object] = lambda _: True

    def of(self, parts: Parts) -> Piece:
        """The chore as the daemon runs it, for the first time once its time has passed."""

        def run() -> None:
            if not self.of_root or parts.storage.turn(self.name, _TURN * self.every_seconds):
                self.run(parts)

        due = time.monotonic() + self.every_seconds
        return Piece(self.name, self.every_seconds, run, self.everywhere, due=due)


def sweep_due(parts: Parts) -> int:
    """Keep each space in order whose last sweep is `keeping.sweep_hours` old; how many were due."""
    trigger: Trigger = "schedule" if parts.swept else "startup"
    done = 0
    for space in parts.root.spaces():
        try:
            if parts.keeper.scopes(space) and governed.lifecycle.keep_in_order(
                parts.keeper, space, trigger=trigger, writer=parts.writer
            ):
                done += 1
        except CairnError as error:
            _log.warning("the sweep of %s/%s failed: %s", space.app, space.project, error)
    parts.swept = True
    return done


def _sweep_leftovers(parts: Parts) -> None:
    """Temporary files of killed writers and lock files nobody uses go away."""
    parts.storage.sweep()
    parts.local_locks.sweep()


def _note_sizes(parts: Parts) -> None:
    """What the root takes on the disk is kept once a day."""
    from cairn.engines import sizes

    settings, day = parts.settings, parts.clock.now().astimezone(parts.settings.zone).date().isoformat()
    sizes.note(settings.server_dir, settings.root, parts.index_dir, day)


def _forget_too(parts: Parts) -> None:
    """What other machines forgot goes from this one's index, to its last byte, and whose it was from the audit log."""
    from cairn.engines import plain
    from cairn.engines.audit import AuditLog
    from cairn.engines.tree import Tree

    folder = parts.settings.server_dir
    try:
        since = plain.read(folder / _FORGOTTEN).decode()
    except (OSError, UnicodeDecodeError):
        since = ""
    gone = parts.storage.forgotten_elsewhere(since)
    if gone is None or not parts.waits.wait(parts.indexer.scan().lsn, _FORGET_SECONDS):
        return
    parts.state.forget()
    if not (parts.index.scrub() and parts.state.scrub()):
        return

    def change(line: dict[str, Any]) -> dict[str, Any]:
        about = line.get("about")
        if not gone.hashes or not isinstance(about, dict):
            return line
        said = {name: {str(value), split_public_id(str(value))[0]} for name, value in about.items()}
        named = {name for name, ids in said.items() if any(gone.names(one) for one in ids if one)}
        return {**line, "about": about | dict.fromkeys(named, governed.wanted.TOMBSTONE)}

    AuditLog(folder, parts.settings.server.audit_bytes).rewrite(change)
    Tree(folder).replace(Locator(_FORGOTTEN), gone.upto.encode())


def _give_back(_parts: Parts) -> None:
    from cairn.engines import allocator

    allocator.trim()


WORKERS = (
    Worker(
        "index",
        "brings changed files into the index; scans all files, which is the guarantee",
        "a change is queued or seen, talk that goes on at the first quiet moment, while calls never cease in a twentieth of the time, or when it is asked for; every `index.scan_seconds`; what piled up is tidied every minute",
        "a search that is strong or names a change",
        "before a scan",
    ),
    Worker(
        "watch",
        "hears of edits by hand and hints them to the index",
        "the system tells of one",
        gives_way="-",
    ),
    Worker(
        "behind",
        "makes vectors and brings the tables of LanceDB up to date; runs the offline strategies (facts, foresight, profile, "
        "cases, skills, reflection, corrections); does the chores below",
        "vectors: rows without one are there, for talk that goes on a second after the last call; strategies: an episode is "
        "written or edited, or a cron time is there; each chore at its time",
        "`trigger` and, for corrections, a strong search: each runs its own",
        "before each batch, job and chore, and inside long ones; batches are smaller beside calls",
    ),
    Worker(
        "recover",
        "settles core memory, and finishes cells that a killed process left",
        "once, at the start",
        "the next call of that session does its own",
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
    Task(
        "follow tokens",
        1.0,
        lambda parts: parts.token_file(),
        "whoever was given one at another server",
        is_for=lambda parts: parts.database() is not None,
    ),
    Task("forget what others forgot", 20.0, _forget_too, is_for=lambda parts: parts.storage.is_shared),
    Task("close silent sessions", 30.0, lambda parts: parts.capture.close_silent(), of_root=True),
    Task("sweep memories", 30.0, sweep_due, of_root=True),
    Task(
        "merge conflict copies",
        60.0,
        lambda parts: parts.merge_copies(),
        "whoever reads that note",
        of_root=True,
        is_for=lambda parts: parts.storage.capabilities.conflict_files,
    ),
    Task("record edits", 60.0, lambda parts: parts.observer.look_around(), "`log`, which looks itself", True),
    Task("give memory back", 60.0, _give_back),
    Task("note the sizes", 60.0, _note_sizes),
    Task("archive journals", 120.0, lambda parts: parts.storage.archive(), of_root=True),
    Task("sweep temporary files", 6 * 3600.0, _sweep_leftovers),
)


def start(parts: Parts, *, finish: Callable[[], None]) -> None:
    """Open everything and begin background life: notice edits, index, run what is due.

    `finish` ends what was begun to be forgotten, which this module cannot reach.
    """
    for name, stage in vars(type(parts)).items():
        if isinstance(stage, Stage):
            getattr(parts, name)
    thinking = _thinking(parts)
    parts.engine.on_work = thinking.wake
    parts.daemon = Daemon(
        parts.indexer,
        parts.state,
        watch=_watch(parts) if parts.settings.index.watch else None,
        scan_seconds=parts.settings.index.scan_seconds,
        pieces=[thinking, *(task.of(parts) for task in CHORES if task.is_for(parts))],
        follow=parts.folder,
        traffic=parts.traffic,
        asks_outside=parts.settings.embedding.provider == "openai",
    )
    # The tables of LanceDB have all there is, if every scope is answered from them.
    parts.indexer.leaves_talk = parts.settings.index.engine != "lancedb"
    parts.daemon.start()
    threading.Thread(target=_recover, args=(parts, finish), name="cairn-recover", daemon=True).start()
    parts.closing.callback(parts.daemon.stop)


def _thinking(parts: Parts) -> Piece:
    """The strategies, some jobs at a time; what an earlier process left is looked for first."""
    recovered = False

    def run() -> int:
        nonlocal recovered
        if not recovered:
            recovered = True
            parts.engine.recover()
        return parts.engine.run_due(_JOBS_AT_ONCE, seconds=_JOBS_SECONDS)

    return Piece("strategies", 0.5, run, everywhere=True, apart=parts.writer is not None)


def _watch(parts: Parts) -> Watch:
    """What tells of changes: the storage itself where other machines write it, else the folder."""
    from cairn.engines.watching import TreeWatch

    return parts.storage.watch() or TreeWatch(parts.settings.root, parts.linked.folders)


def _recover(parts: Parts, finish: Callable[[], None]) -> None:
    """What changed while nothing ran: core memory is settled, and every session looked through once, since a power
    cut may take the ledger of cells under way. No call: nobody asks for what it finishes, nor waits until it is over.
    """
    parts.traffic.begin_background()
    for space in parts.root.spaces():
        try:
            governed.core.reconcile_all(parts.keeper, space)
        except CairnError as error:
            _log.warning("core memory of %s/%s is left as it is: %s", space.app, space.project, error)
    try:
        parts.capture.recover(everywhere=True)
    except Exception:
        _log.exception("recovery of unfinished cells failed; each session's next call tries again")
    try:
        finish()
    except Exception:
        _log.exception("what was begun to be forgotten is still on record; forget it again, or restart")
