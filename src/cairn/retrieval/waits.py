"""Lets callers wait until what they wrote can be found, and does the indexing itself where nobody else does.

    after a write     `wait_a_moment`: the next question of the same process finds what was written, unless that takes long
    a strong read     `reach`: the files are looked at, and all that differs is waited for
    a number          `wait`: everything up to a change is indexed

Whoever waits names the places he waits for (`Indexer.wanted`); the holder of the lease takes those first.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from cairn.errors import Unavailable
from cairn.index.corpus import RowStore
from cairn.retrieval.indexer import BATCH, Indexer
from cairn.retrieval.library import places_of
from cairn.seams import Embedder, State
from cairn.types import Freshness, Scope

_LOOK_SECONDS = 2.0
_STALLED_SECONDS = 15.0
_REBUILD_SECONDS = 3600.0
_FIRST_ASK_SECONDS = 5.0
_MOMENT_SECONDS, _FEW = 0.25, 64
_LOADING_SECONDS = 1.0
_MOST_REMEMBERED = 10_000  # owners; whoever falls out is looked at once more


class Waits:
    """Waits for the index.

    Args:
        indexer: Does the work, here or in whatever process holds the lease.
        queue: The change queue.
        index: Where rows are.
        embedder: Gives the embedder, or None.
    """

    def __init__(
        self, indexer: Indexer, queue: State, index: RowStore, embedder: Callable[[], Embedder | None]
    ) -> None:
        self._indexer, self._queue, self._index, self._embedder = indexer, queue, index, embedder
        self._waited: OrderedDict[tuple[tuple[str, ...], str], int] = OrderedDict()

    def asked(self, scope: Scope) -> None:
        """Take in the talk of a scope's owner that was left, since somebody asks for it.

        Where that is the first time for long, the answer waits for it, for some seconds at most: what it lacks then is
        told as what waits.
        """
        if self._indexer.take_left(scope):
            self.wait(None, _FIRST_ASK_SECONDS, scope)

    def wait(self, lsn: int | None = None, timeout: float = 10.0, scope: Scope | None = None) -> bool:
        """Wait until every change up to `lsn` (all there are, without one) is indexed; False if time ran out.

        With `scope`, only the changes of files that its rows are made of count. What cannot be read is not waited
        for. An LSN this queue never gave comes from one that was lost: a scan finds whatever it stood for. Where
        nobody holds the lease, the caller does the work itself.
        """
        deadline = time.monotonic() + timeout
        last = self._queue.last_lsn()
        if lsn is not None and lsn > last:
            lsn = self._indexer.scan().lsn
        target = lsn if lsn is not None else last
        return self._wait(target, places_of(scope) if scope is not None else (), deadline)

    def wait_a_moment(self, lsn: int, scopes: Sequence[Scope] = (), *, embed: bool = False) -> None:
        """Wait for the changes of some scopes up to `lsn`, unless that takes long: the answer then tells what is pending.

        With `embed`, for the vectors of their rows, too. What was waited for once is not waited for again.
        """
        within = tuple(dict.fromkeys(place for scope in scopes for place in places_of(scope)))
        try:
            if self._is_news(lsn, within, "rows"):
                now = self._queue.glance(within)
                if 0 < now.pending <= _FEW and now.applied_lsn < lsn:
                    self._wait(lsn, within, time.monotonic() + _MOMENT_SECONDS)
                self._note(lsn, within, "rows")
            if embed and self._is_news(lsn, within, "vectors") and (embedder := self._embedder()) is not None:
                if 0 < self._without_vector(scopes) <= _FEW:
                    longest = _MOMENT_SECONDS if embedder.loaded else _LOADING_SECONDS
                    self._wait_for_vectors(scopes, time.monotonic() + longest)
                self._note(lsn, within, "vectors")
        except Unavailable:
            return

    def _is_news(self, lsn: int, within: tuple[str, ...], what: str) -> bool:
        return self._waited.get((within, what), 0) < lsn

    def _note(self, lsn: int, within: tuple[str, ...], what: str) -> None:
        with self._indexer.progress:
            self._waited[within, what] = lsn
            self._waited.move_to_end((within, what))
            if len(self._waited) > _MOST_REMEMBERED:
                self._waited.popitem(last=False)

    def _wait(self, target: int, within: Sequence[str], deadline: float) -> bool:
        with self._indexer.progress:
            self._indexer.wanted.update(within)
        self._indexer.on_wanted(False)
        try:
            return self._is_reached(target, within, deadline)
        finally:
            with self._indexer.progress:
                self._indexer.wanted.subtract(within)
                self._indexer.wanted = +self._indexer.wanted

    def _is_reached(self, target: int, within: Sequence[str], deadline: float) -> bool:
        pause = 0.002
        while True:
            if not self._queue.waiting(target, within) and self._queue.ready_for() == self._index.generation:
                return True
            if time.monotonic() >= deadline:
                return False
            with self._indexer.lease() as mine:
                if mine:
                    self._indexer.begin()
                    # Its own changes first; the rest only where the whole index is being made anew.
                    if (within and self._indexer.drain(BATCH, within)) or self._indexer.drain(BATCH):
                        continue
            with self._indexer.progress:
                self._indexer.progress.wait(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 1.5, 0.05)

    def catch_up(self, timeout: float = 10.0, *, embed: bool = False) -> Freshness:
        """Bring everything up to date, and say how far that went."""
        self.reach(timeout, embed=embed)
        return self._indexer.status()

    def reach(self, timeout: float = 10.0, *, embed: bool = False, scope: Scope | None = None) -> bool:
        """Look at the files themselves, then wait for all that is queued: a strong read begins here.

        With `embed`, vectors are made too, as far as the time allows; with `scope`, all of this for one owner's files
        alone. Returns whether every change that was found is indexed.
        """
        deadline = time.monotonic() + timeout
        reached = self.wait(self._indexer.scan(scope).lsn, timeout, scope)
        if embed:
            self._wait_for_vectors(() if scope is None else (scope,), deadline)
        return reached

    def _without_vector(self, scopes: Sequence[Scope]) -> int:
        return sum(map(self._index.pending_count, scopes)) if scopes else self._index.pending_count()

    def _wait_for_vectors(self, scopes: Sequence[Scope], deadline: float) -> None:
        """Wait until the rows of some scopes have their vectors; where nobody holds the lease, the caller makes them."""
        with self._indexer.progress:
            self._indexer.vectors_awaited += 1
        self._indexer.on_wanted(True)
        try:
            while self._embedder() is not None and time.monotonic() < deadline:
                with self._indexer.lease() as mine:
                    if mine and not self._indexer.embed():
                        break
                if not self._without_vector(scopes):
                    break
                if not mine:
                    with self._indexer.progress:
                        self._indexer.progress.wait(0.02)
        finally:
            with self._indexer.progress:
                self._indexer.vectors_awaited -= 1

    def rebuild(self) -> None:
        """Make the index anew from the files, now. Vectors are kept where their text still occurs.

        Raises:
            Unavailable: another process indexes this root and does not move, or all is not done within an hour.
        """
        self._index.clear()
        until, moved, last = time.monotonic() + _REBUILD_SECONDS, time.monotonic(), None
        while not self.wait(None, _LOOK_SECONDS):
            counts, now = self._queue.counts(), time.monotonic()
            if counts != last:
                moved, last = now, counts
            if now > until:
                raise Unavailable("The index is still being made anew. Go on with `cairn cascade sync`.")
            if now - moved > _STALLED_SECONDS:
                raise Unavailable(
                    f"Another process looks after the index and has done nothing for {_STALLED_SECONDS:g} s (is it "
                    "stopped, or its disk?): let it go on or end it, then ask again. Searches look through the notes meanwhile."
                )
