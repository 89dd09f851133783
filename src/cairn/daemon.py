"""Runs the background threads of an open memory: watches files, drains changes, makes vectors, runs what is
due.

    watch ──┐                        ┌─> drain ──> searchable by words
    poll  ──┼─> wake ─> index thread ┼─> scan, every `scan_seconds` (the guarantee)
    enqueue─┘                        └─> maintenance, every minute
                       behind        ──> vectors, strategies, chores: a piece of each in turn (the table is in background.py)

A note that was written is indexed as soon as the call that wrote it is over: beside the index each of its last steps would
wait for the interpreter. Talk that is still going on is taken in at the first poll at which nobody is
being served, and gets its vectors once nobody was for a second: an add that had to share the interpreter with the indexing of
the one before would take three times as long. While calls never cease, some of it is taken in every half second, or so much
more rarely that it costs a twentieth of the time, and all of it at the next scan, which lets calls go first. Whoever searches or
waits for it ends the waiting. What nobody waits for has one thread, which gives way to calls and to the index before each piece.

Every process with an open memory may run one. The lease decides who works; the others only wait to take over,
which a dead holder's lock allows at once. A failing step is recorded and tried again; it never ends the life.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from cairn.errors import CairnError, Invalid
from cairn.retrieval.indexer import Indexer
from cairn.seams import State
from cairn.seams.storage import Watch
from cairn.traffic import QUIET_SECONDS, Traffic

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
PUT_OFF_SECONDS = 0.5
TALK_QUIET_SECONDS = 1.0
TAKE_OVER_SECONDS = 0.5
MAINTAIN_SECONDS = 60.0
REWATCH_SECONDS = (1.0, 60.0)
UNHEALTHY_DRAINS = 3
UNHEALTHY_MAINTENANCE = 5
_EMBED_AT_ONCE, _EMBED_BESIDE_PEOPLE = 128, 32
_DRAIN_AT_ONCE, _DRAIN_BESIDE_PEOPLE = 500, 32
_REST = 20  # times what it took: the share of talk that goes on, beside people
_VECTORS_LOOK_SECONDS = 1.0
_FAILED_SECONDS = 2.0
_STOP_SECONDS = 15.0
_TALK_PUT_OFF = 30  # looks; then open talk gets its vectors beside people


@dataclass(eq=False, slots=True)
class Piece:
    """A kind of background work, done a piece at a time: periodically, and when it is woken.

    Args:
        name: What the log calls it.
        every_seconds: The time between two looks.
        run: Does a piece; what it answers is true where more is to be done at once.
        everywhere: Also where another process holds the lease.
        apart: It waits for another machine, so it has a thread of its own, which holds up nothing else.
        due: When it is looked at next, by the monotonic clock.
    """

    name: str
    every_seconds: float
    run: Callable[[], object]
    everywhere: bool = False
    apart: bool = False
    due: float = 0.0
    is_woken: bool = False
    news: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """There is something to do now."""
        self.is_woken = True
        self.news()


class TroubleLog:
    """Says in the log what goes wrong again and again: the first time, then ever more rarely, a line each time."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._times: dict[str, int] = {}

    def failed(self, what: str, error: Exception) -> None:
        """Count a failure of `what`; the 1st, 2nd, 4th, 8th... in a row is told. The trace is for debugging,
        except where the error is one that nobody foresaw.
        """
        times = self._times[what] = self._times.get(what, 0) + 1
        if times & (times - 1):
            return
        again = f" ({times} times in a row)" if times > 1 else ""
        trace = self._log.isEnabledFor(logging.DEBUG) or (times == 1 and not isinstance(error, CairnError))
        self._log.warning("%s: %s: %s%s", what, type(error).__name__, error, again, exc_info=trace)

    def went_well(self, what: str) -> None:
        """Start counting anew."""
        self._times.pop(what, None)


class Daemon:
    """The background life of one open memory.

    Args:
        indexer: Does the work.
        signals: The queue, for noticing what other processes queued.
        watch: Reports touched keys until stopped; None to rely on scans.
        scan_seconds: Time between whole scans.
        pieces: What nobody waits for, after the vectors, in the order in which they have their turn.
        follow: Called when no vector is missing (tables of LanceDB).
        traffic: Who is served.
        asks_outside: Whether vectors come from another machine.
    """

    def __init__(
        self,
        indexer: Indexer,
        signals: State,
        *,
        watch: Watch | None = None,
        scan_seconds: float = 30.0,
        pieces: Sequence[Piece] = (),
        follow: Callable[[], object] = lambda: None,
        traffic: Traffic | None = None,
        asks_outside: bool = False,
    ) -> None:
        self._indexer = indexer
        self._signals = signals
        self._watch = watch
        self._scan_seconds = max(scan_seconds, 0.05)
        self._follow = follow
        self._traffic = traffic or Traffic()
        self._vectors = Piece("embed", _VECTORS_LOOK_SECONDS, self._embed, apart=asks_outside)
        self._pieces = [self._vectors, *pieces]
        self._beside_people = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._scan_now = threading.Event()
        self._threads: list[threading.Thread] = []
        self._holding = False
        self._watching = False
        self._drained_since_maintenance = 0
        self._failed_drains = 0
        self._failed_maintenance = 0
        self._notes_queued = self._rows_wanted = self._vectors_due = self._vectors_wanted = False
        self._talk_put_off = 0
        self._last_kind = ""
        self._told = TroubleLog(_log)

    def start(self) -> None:
        if self._threads:
            raise Invalid("This daemon is running already.")
        self._signals.on_enqueue = self._queued
        self._indexer.on_wanted = self._wanted
        self._spawn("index", self._index_life)
        self._spawn("behind", partial(self._behind_life, [one for one in self._pieces if not one.apart]))
        for piece in self._pieces:
            if piece.apart:
                self._spawn(piece.name, partial(self._behind_life, [piece]))

    def stop(self) -> None:
        """End all threads; the lease is free when this returns."""
        self._stop.set()
        self._wake.set()
        for piece in self._pieces:
            piece.wake()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.1))
        self._threads = []

    def health(self) -> dict[str, Any]:
        """Whether the background works. Files that can never be indexed are no illness of the daemon."""
        reasons = []
        if self._failed_drains >= UNHEALTHY_DRAINS:
            reasons.append(
                f"{self._failed_drains} drains failed in a row ({self._last_kind}); the log has more"
            )
        if self._failed_maintenance >= UNHEALTHY_MAINTENANCE:
            reasons.append(
                f"{self._failed_maintenance} maintenance runs failed ({self._last_kind}); the log has more"
            )
        return {
            "healthy": not reasons,
            "reasons": reasons,
            "failed_drains": self._failed_drains,
            "failed_maintenance": self._failed_maintenance,
            "indexing": self._holding,
            "watching": self._watching,
            "running": any(thread.is_alive() for thread in self._threads),
        }

    def _queued(self, kinds: Collection[str]) -> None:
        if any(kind != "session" for kind in kinds):
            self._notes_queued = True
            self._traffic.afterwards(self._wake.set)

    def _wanted(self, vectors: bool) -> None:
        """Somebody asks for what is queued."""
        self._rows_wanted = True
        self._wake.set()
        if vectors:
            self._vectors_wanted = True
            self._vectors.wake()

    def _spawn(self, name: str, run: Callable[[], None]) -> None:
        def live() -> None:
            self._traffic.begin_background()
            run()

        thread = threading.Thread(target=live, name=f"cairn-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    # ---- the index thread -------------------------------------------------------------------------------------

    def _index_life(self) -> None:
        with ExitStack() as held:
            while not self._stop.is_set():
                if self._take_lease(held):
                    break
                self._stop.wait(TAKE_OVER_SECONDS)
            if self._stop.is_set():
                return
            if self._watch is not None:
                self._spawn("watch", self._watch_life)
            scanned = maintained = time.monotonic()
            pause = 0.0
            version: tuple[int, int] | None = None
            put_off, put_off_until = PUT_OFF_SECONDS, 0.0
            while not self._stop.is_set():
                self._wake.wait(POLL_SECONDS)
                self._wake.clear()
                if self._stop.is_set():
                    break
                try:
                    version, moved = self._moved(version)
                    since = time.monotonic() - scanned
                    everything = since >= self._scan_seconds
                    if everything or (self._scan_now.is_set() and since >= pause):
                        # Whoever waits for a scan does it; here it comes after the calls, with all that it finds.
                        self._traffic.give_way(unless=lambda: self._rows_wanted)
                        lost = self._scan_now.is_set()
                        self._scan_now.clear()
                        begun = time.monotonic()
                        self._indexer.scan_in_turn(self._scan_seconds, everything=lost)
                        scanned = time.monotonic()
                        # A storm of new folders must not become a storm of scans.
                        pause = min(max(0.2, 5 * (scanned - begun)), self._scan_seconds)
                    if moved and not put_off_until:
                        put_off_until = time.monotonic() + put_off
                    quiet = not self._traffic.is_busy(QUIET_SECONDS)
                    asked = everything or self._notes_queued or self._rows_wanted or self._failed_drains > 0
                    if asked or (put_off_until and (quiet or time.monotonic() >= put_off_until)):
                        put_off_until, begun = 0.0, time.monotonic()
                        left = self._drain(give_way=not asked)
                        rest = 0.0 if asked else _REST * (time.monotonic() - begun)
                        put_off = max(PUT_OFF_SECONDS, rest)
                        put_off_until = time.monotonic() + put_off if left else 0.0
                    self._failed_drains = 0
                    self._told.went_well("index")
                except Exception as error:
                    self._failed_drains += 1
                    self._record("index", error)
                    self._stop.wait(min(0.2 * self._failed_drains, 5.0))
                if time.monotonic() - maintained >= MAINTAIN_SECONDS:
                    maintained = time.monotonic()
                    self._run("maintain", self._maintain)

    def _let_go(self) -> None:
        """Before the lease is free: what is queued from here on is for another to claim."""
        self._holding = self._signals.sole = False

    def _take_lease(self, held: ExitStack) -> bool:
        try:
            if held.enter_context(self._indexer.lease()):
                self._indexer.begin()
                self._indexer.scan()
                held.callback(self._let_go)
                self._holding = self._signals.sole = self._rows_wanted = True
                self._wake.set()
                return True
        except Exception as error:
            self._record("lease", error)
        held.close()
        return False

    def _moved(self, version: tuple[int, int] | None) -> tuple[tuple[int, int], bool]:
        """Whether another connection wrote to the queue, or the index is no longer what it was."""
        now = self._signals.data_version()
        self._indexer.ensure_ready()
        return now, now != version

    def _drain(self, *, give_way: bool) -> bool:
        """Index what is queued, or with `give_way` what there is time for until a call comes; whether some may be left."""
        at_once = _DRAIN_BESIDE_PEOPLE if give_way else _DRAIN_AT_ONCE
        while not self._stop.is_set():
            notes, self._notes_queued, self._rows_wanted = self._notes_queued, False, False
            with self._traffic.indexing():
                count = self._indexer.drain(at_once)
            self._drained_since_maintenance += count
            if count and notes:
                self._vectors_due = True
                self._vectors.wake()
            if count < at_once:
                return False
            if give_way and self._traffic.is_busy(QUIET_SECONDS):
                return True
        return False

    def _run(self, name: str, run: Callable[[], object]) -> None:
        try:
            run()
            self._told.went_well(name)
        except Exception as error:
            self._record(name, error)

    def _maintain(self) -> None:
        if not self._drained_since_maintenance:
            return
        try:
            self._indexer.maintain()
        except Exception:
            self._failed_maintenance += 1
            raise
        self._drained_since_maintenance = 0
        self._failed_maintenance = 0

    def _record(self, what: str, error: Exception) -> None:
        # The health of a server is anybody's to ask for: no name of a note, and so of an owner, goes there.
        trouble = error.facts.get("trouble") if isinstance(error, CairnError) else None
        self._last_kind = f"{type(error).__name__}{f' {trouble}' if trouble else ''}"
        self._told.failed(what, error)

    # ---- behind: what nobody waits for ---------------------------------------------------------------------------

    def _behind_life(self, pieces: Sequence[Piece]) -> None:
        news = threading.Event()
        for piece in pieces:
            piece.news = news.set
        while not self._stop.is_set():
            for piece in pieces:
                if (piece.is_woken or time.monotonic() >= piece.due) and not self._stop.is_set():
                    self._do(piece)
            news.wait(max(min(piece.due for piece in pieces) - time.monotonic(), 0.0))
            news.clear()

    def _do(self, piece: Piece) -> None:
        """One piece of one kind of work, after those who wait; where more is to be done, it has another turn at once."""
        piece.is_woken, pause = False, piece.every_seconds
        if piece.everywhere or self._holding:
            self._beside_people = self._traffic.give_way(
                QUIET_SECONDS, unless=lambda: piece is self._vectors and self._indexer.vectors_awaited > 0
            )
            try:
                pause = 0.0 if piece.run() else pause
                self._told.went_well(piece.name)
            except Exception as error:
                self._record(piece.name, error)
                pause = max(pause, _FAILED_SECONDS)
        piece.due = time.monotonic() + pause

    def _embed(self) -> bool:
        """Give a batch of rows their vectors; whether there may be more. When none is missing the tables follow.

        Until nobody was served for a second only what is asked for gets any: what was written, or also talk that goes on.
        """
        notes, self._vectors_due = self._vectors_due, False
        talk, self._vectors_wanted = self._vectors_wanted or self._talk_put_off >= _TALK_PUT_OFF, False
        left = not talk and self._traffic.is_busy(TALK_QUIET_SECONDS)
        try:
            if left and not notes:
                self._talk_put_off += 1
                return False
            limit = _EMBED_BESIDE_PEOPLE if self._beside_people else _EMBED_AT_ONCE
            if self._indexer.embed(limit, settled=left):
                self._vectors_due, self._vectors_wanted = notes, self._vectors_wanted or talk
                return True
            self._talk_put_off = self._talk_put_off + 1 if left else 0
            self._follow()
        except Exception:
            self._vectors_wanted = True
            raise
        return False

    # ---- the watch thread ---------------------------------------------------------------------------------------

    def _watch_life(self) -> None:
        assert self._watch is not None
        pause, longest = REWATCH_SECONDS
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._watching = True
                self._watch(self._seen, self._stop)
            except Exception as error:
                self._record("watch", error)
            self._watching = False
            # Whatever happened between two watches, or overflowed one, is found by a scan.
            self._scan_now.set()
            self._wake.set()
            if time.monotonic() - began > longest:
                pause = REWATCH_SECONDS[0]
            # The system has few watches for all programs together: one may be free again soon, or never.
            self._stop.wait(pause)
            pause = min(2 * pause, longest)

    def _seen(self, keys: set[str]) -> None:
        files = {key for key in keys if key.endswith((".md", ".jsonl"))}
        if files != keys:
            # A folder was made, moved or removed: its files may have come or gone without a word each.
            self._scan_now.set()
            self._wake.set()
        if files:
            try:
                self._indexer.hint(files)
            except Exception as error:
                self._record("hint", error)
                self._scan_now.set()
