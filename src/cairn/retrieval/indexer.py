"""Turns changed files into rows; the only path by which anything becomes searchable.

    notebook, capture, watcher, scan ──> queue (LSN) ──> drain: read · parse · compare by hash · one transaction
                                                                └──> embed: rows without a vector, in batches
    `.index/` gone or broken ──> "rebuilding": a whole scan queues every file, then "fresh" again

Anyone may queue; only the holder of the lease "indexer" drains, embeds and maintains. Every step may be
repeated: rows depend on the file alone, vectors on the text alone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Literal

from cairn.errors import CairnError, Invalid, NotFound, Unavailable
from cairn.index.corpus import TOKEN_DIMENSIONS, NewRow, Pending, Row, RowStore, Stored
from cairn.notes.kinds import place_of
from cairn.notes.notebook import ChangeType, OwnTexts
from cairn.retrieval.library import is_linked, kind_of, noticed, places_of, read_file
from cairn.retrieval.reading import MAX_ENTRY_BYTES, PART_MARK, Look, Recent
from cairn.seams import (
    Embedder,
    Glance,
    Known,
    Locator,
    Locks,
    Noticed,
    State,
    StorageBackend,
)
from cairn.seams.models import TokenVectors
from cairn.talk.sessions import SessionLog
from cairn.types import Change, Freshness, Scope

if TYPE_CHECKING:
    import numpy as np


LEASE = "indexer"
_log = logging.getLogger(__name__)
BATCH = 100
_ROWS_PER_COMMIT = 2000
# Enough for two cores' worth of batches; each round also makes readers look again, so it should not be tiny.
_EMBED_BATCH = 128
_SAME_MTIME = 0.000002  # what a time loses as a number of seconds; a store's versions differ by their tag below that second
_UNSURE_SECONDS = 0.1
_REMOVED_KEPT = 1000
# Of several machines each scans what is its turn, and everything at every tenth time: it may have missed a word.
_TURN, _EVERYTHING = 0.9, 10
_LEFT_SECONDS = 0.5
_MOST_ASKED = 10_000


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan of the files found."""

    files: int
    queued: int
    lsn: int


class Indexer:
    """Keeps the index in step with the files.

    Args:
        storage: Where the notes are.
        sessions: Reads the session logs; shared with whoever else does.
        locks: For the lease.
        queue: The change queue.
        index: Where rows go.
        embedder: Gives the embedder, or None: then search is lexical.
        zone: Times without an offset are meant in it.
        token_vectors: Whether the vectors of single word pieces are kept, too, where the embedder gives them.
        on_edit: Told of episodes that may have been edited, at least once each, before their new rows are in.
        on_lost: Told, before a rebuild begins, that nobody knows any more what was edited since the last one.
        own: Which notes read as they were written here: an episode that is new in any other one may have been
            edited before it was first seen, and `on_edit` hears of it.
        on_indexed: Told of changes that are in the index now, while it is not being made anew.
        max_entry: A longer entry of a note has no row.
    """

    def __init__(
        self,
        *,
        storage: StorageBackend,
        sessions: SessionLog,
        locks: Locks,
        queue: State,
        index: RowStore,
        embedder: Callable[[], Embedder | None] = lambda: None,
        zone: tzinfo = UTC,
        token_vectors: bool = True,
        on_edit: Callable[[Sequence[Row]], object] = lambda _: None,
        on_lost: Callable[[], object] = lambda: None,
        own: OwnTexts | None = None,
        on_indexed: Callable[[Sequence[Change]], object] = lambda _: None,
        max_entry: int = MAX_ENTRY_BYTES,
    ) -> None:
        self._on_indexed = on_indexed
        self._own = own or OwnTexts()
        self._on_edit, self._on_lost = on_edit, on_lost
        self._removed: set[tuple[Scope, str]] = set()
        self._storage = storage
        self._sessions = sessions
        self._locks = locks
        self._queue = queue
        self._index = index
        self._embedder = embedder
        self._zone = zone
        self._token_vectors = token_vectors
        self._recent = Recent(max_entry=max_entry)
        self.holder = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._working = threading.RLock()
        self.progress = threading.Condition()
        """Told whenever more of the index is done."""
        self._rebuilding = False
        self._embed_again_at = 0.0
        self.wanted: Counter[str] = Counter()
        """Places whose changes somebody waits for: they come first."""
        self._unreadable: dict[str, str] = {}
        self._scans = 0
        self.leaves_talk = False
        """Whether talk that other machines wrote is left until somebody asks here for one of those who are in it."""
        self._left = LeftTalk()
        self._asked: OrderedDict[Scope, float] = OrderedDict()
        self.vectors_awaited = 0
        """How many callers wait for vectors now."""
        self.on_wanted: Callable[[bool], None] = lambda _vectors: None
        """Told when somebody asks for what is queued, and whether for its vectors, too: whoever indexes need not poll."""

    # ---- queueing: anyone, any time --------------------------------------------------------------------------

    def note_change(self, changes: Sequence[tuple[Locator, ChangeType]]) -> int:
        """Queue files that were written; the `on_change` of notebook and capture. Never raises."""
        return self._queue.enqueue(noticed(changes))

    def hint(self, keys: Collection[str]) -> int:
        """Queue those of `keys` that differ from what the queue knows; what a watcher saw. Returns how many.

        Our own writes are seen by the watcher too; they are known already and cost one look at the file. A session's
        log grows with every message and is queued by who cuts it; only other machines' logs are news, and are left
        until somebody asks here for what their space holds (`status`), or the next scan.
        """
        kinds = {key: kind for key in keys if (kind := kind_of(Locator(key))) is not None}
        logs = {key for key, kind in kinds.items() if kind == "session"}
        if self._storage.is_shared:
            self._leave(logs)
        return self._queue_news({key: kind for key, kind in kinds.items() if key not in logs})

    def _leave(self, logs: Collection[str]) -> None:
        """Leave logs of other machines until somebody is asked for who is in them."""
        if not logs:
            return
        try:
            people = self._storage.people_in(logs)
        except CairnError:
            people = {}  # they may be anybody's
        with self.progress:
            for key in logs:
                self._left.put(key, people.get(key))

    def take_left(self, scope: Scope) -> bool:
        """Queue the logs of other machines that an owner is in, a moment's worth together, since somebody asks for it.

        Whether there were any, and nobody had asked for long.
        """
        if not self._left:
            return False
        now = time.monotonic()
        with self.progress:
            is_first = scope not in self._asked
            if now < self._asked.get(scope, 0.0):
                return False
            self._asked[scope] = now + _LEFT_SECONDS
            self._asked.move_to_end(scope)
            if len(self._asked) > _MOST_ASKED:
                self._asked.popitem(last=False)
            mine = self._left.take(scope)
        if not mine:
            return False
        try:
            return bool(self._queue_news(dict.fromkeys(mine, "session"))) and is_first
        except CairnError:
            with self.progress:
                for key in mine:
                    self._left.put(key, None)
            return is_first

    def _queue_news(self, kinds: Mapping[str, str]) -> int:
        """Queue those of these files, by kind, that differ from what the queue knows; how many."""
        if not kinds:
            return 0
        known = self._queue.known(list(kinds))
        news: list[Noticed] = []
        for key, kind in kinds.items():
            old = known.get(key)
            try:
                info = self._storage.info(Locator(key))
            except NotFound:
                if old is not None and old.change_type != "deleted":
                    news.append(Noticed(key, kind, "deleted"))
                continue
            except CairnError:
                if not is_linked(Locator(key)):
                    news.append(Noticed(key, kind, "modified"))
                continue
            if (change := _change(old, info.size, info.mtime)) is not None:
                news.append(Noticed(key, kind, change, info.mtime))
        if news:
            self._queue.enqueue(news)
        return len(news)

    def scan_in_turn(self, seconds: float, *, everything: bool = False) -> None:
        """Scan, as is done every so many seconds. Where several machines do, each space is scanned by one of them, and
        the others are told what it finds.
        """
        self._scans += 1
        if everything or not self._storage.is_shared or not self._scans % _EVERYTHING:
            self.scan()
            return
        for top in self._storage.list(Locator()):
            for space in () if top.name.startswith(".") else self._storage.list(top):
                if self._storage.turn(f"scan {space.key}", _TURN * seconds):
                    self.scan(below=f"{space.key}/")

    def scan(self, scope: Scope | None = None, *, below: str = "") -> Scanned:
        """Compare every file with what the queue remembers and queue what differs. The guarantee.

        With `scope`, only the files that its rows are made of; those that could not be read are tried again. With
        `below`, only those below this place.
        """
        within = places_of(scope) if scope is not None else (below,) if below else ()
        known = self._queue.known(within=within)
        news: list[Noticed] = []
        unsure: list[tuple[str, str]] = []
        present: set[str] = set()
        hidden: dict[str, str] = {}
        for key, size, mtime in self._files(within, hidden):
            kind = kind_of(Locator(key))
            if kind is None:
                continue
            present.add(key)
            old = known.get(key)
            if (change := _change(old, size, mtime)) is not None:
                news.append(Noticed(key, kind, change, mtime))
            elif old is None or old.status == "pending":
                continue
            elif old.unread and scope is not None:
                news.append(Noticed(key, kind, "modified", mtime))
            elif old.status == "done" and old.seen_at is not None and old.seen_at - mtime < _UNSURE_SECONDS:
                # Read so soon after it was written that a later write may carry the same time.
                unsure.append((key, kind))
        gone = {path for path, old in known.items() if old.change_type != "deleted" or old.status != "done"}
        gone.update(self._index.known_paths(within))
        for path in gone - present:
            change = self._missing(path, known.get(path), hidden, again=scope is not None)
            if change is not None:
                news.append(Noticed(path, kind_of(Locator(path)) or "unknown", change))
        if self.leaves_talk and self._storage.is_shared:
            news = self._without_left(news, known, scope)
        if self._storage.is_shared and not self._rebuilding:
            self._storage.tell(
                one.path for one in news if one.kind != "session" and not is_linked(Locator(one.path))
            )
        news.extend(Noticed(key, kind, "modified") for key, kind in unsure)
        self._note_unreadable(within, hidden)
        lsn = self._queue.enqueue(news) if news else self._queue.last_lsn()
        return Scanned(len(present), len(news), lsn)

    def _without_left(
        self, news: Sequence[Noticed], known: Mapping[str, Known], scope: Scope | None
    ) -> list[Noticed]:
        """What is to be queued of what a scan found: not the talk that this machine has nothing of, and is not asked for.

        Of what it has, all of it; for a scope, only what its owner is in.
        """
        logs = [one.path for one in news if one.kind == "session" and one.change_type != "deleted"]
        if scope is None:
            left = {key for key in logs if key not in known}
        else:
            people = self._storage.people_in(logs) if logs else {}
            left = {key for key in logs if key in people and scope.owner not in people[key]}
        self._leave(left)
        return [one for one in news if one.path not in left]

    def _missing(
        self, path: str, old: Known | None, hidden: Mapping[str, str], *, again: bool
    ) -> ChangeType | None:
        """What became of a file that was there and was not met: removed, or hidden behind what cannot be read.

        Of a linked folder that is away the folder is noted, and its files are left as they are known: to try each of
        them would cost thousands of changes and say one thing thousands of times.
        """
        if not any(path.startswith(f"{folder}/") for folder in hidden):
            try:
                self._storage.info(Locator(path))
            except NotFound:
                return "deleted"
            except CairnError:
                pass
        if is_linked(Locator(path)):
            return None
        # A folder, a link or a socket is in its place, or its folder cannot be read: what was known of it stays.
        return "modified" if old is None or old.status != "failed" or (again and old.unread) else None

    def _note_unreadable(self, within: Sequence[str], hidden: Mapping[str, str]) -> None:
        kept = {
            folder: why
            for folder, why in self._unreadable.items()
            if within and not f"{folder}/".startswith(tuple(within))
        }
        self._unreadable = {**kept, **hidden}

    def _files(self, within: Sequence[str], hidden: dict[str, str]) -> Iterator[tuple[str, int, float]]:
        """Every file of the truth with size and mtime; the system's own dot folders are passed over.

        Folders that cannot be read go to `hidden`, with the reason.
        """

        def note(at: Locator, error: CairnError) -> None:
            hidden[at.key] = str(error)

        tops = [Locator(start) for start in within] or [
            top for top in self._storage.list(Locator()) if not top.name.startswith(".")
        ]
        for top in tops:
            for key, size, mtime_ns in self._storage.scan(top, note):
                yield key, size, mtime_ns / 1e9

    # ---- working: the holder of the lease ---------------------------------------------------------------------

    def lease(self) -> AbstractContextManager[bool]:
        """Try to become the one who indexes this root."""
        return self._locks.lease(LEASE)

    def begin(self) -> None:
        """First act of a new lease holder: free what a dead one had claimed, and see whether all is there."""
        self._queue.recover(holder=self.holder)
        self._recent.clear()
        self.ensure_ready()

    def ensure_ready(self) -> None:
        """Start a rebuild where queue or rows were lost, and end it once every file has been seen."""
        if self._queue.take_lost():
            self.scan()
        generation = self._index.generation
        self._rebuilding = self._queue.ready_for() != generation
        if not self._rebuilding:
            return
        # Either file may be lost again at any step. What is known of a rebuild therefore lies in the queue, by
        # the name of the index it is for: a scan made for other files never vouches for these.
        if not self._queue.has_scan(generation):
            self._on_lost()
            cleared = self._queue.clear()
            lsn = self.scan().lsn
            if self._queue.take_lost():
                return  # not all of it was queued: the next look begins again
            self._queue.note_scan(generation, lsn, queue=cleared)
        self._rebuilding = not self._queue.set_ready(generation)

    def drain(self, limit: int | None = None, within: Sequence[str] = ()) -> int:
        """Index up to `limit` queued changes (all that are due, without one); return how many.

        With `within`, only of files below these places.
        """
        count = 0
        while limit is None or count < limit:
            with self._working:
                size = BATCH if limit is None else min(BATCH, limit - count)
                changes = self._claim(size, within)
                if not changes:
                    break
                self._work(changes)
            count += len(changes)
            self._tell()
        if count or self._rebuilding:
            self.ensure_ready()
            self._tell()
        return count

    def _claim(self, size: int, within: Sequence[str]) -> list[Change]:
        """The next changes; those that somebody waits for come first."""
        if within:
            return self._queue.claim(size, holder=self.holder, within=within)
        with self.progress:
            wanted = list(self.wanted)
        if wanted and (changes := self._queue.claim(size, holder=self.holder, within=wanted)):
            return changes
        return self._queue.claim(size, holder=self.holder)

    def _work(self, changes: Sequence[Change]) -> None:
        """Index one batch of changes: their rows in as few transactions as their size allows."""
        batch = _Batch(self._index.generation)
        for change in changes:
            try:
                seen, look, stored = self._look(change, batch.generation)
            except (Invalid, UnicodeError) as error:
                # Not readable as text: what was indexed stays until the file is mended or removed.
                self._fail(change, error, retryable=False, unread=True)
                continue
            except (CairnError, OSError) as error:
                self._fail(change, error, retryable=True, unread=True)
                continue
            except Exception as error:
                # A fault of ours, met in this file: it must not keep the others from being indexed.
                _log.exception("%s could not be read", change.path)
                self._fail(change, error, retryable=False, unread=True)
                continue
            batch.add(change, seen, look, stored)
            if len(batch.rows) >= _ROWS_PER_COMMIT:
                self._commit(batch)
                batch = _Batch(batch.generation)
        self._commit(batch)

    def _commit(self, batch: _Batch) -> None:
        if not batch.changes:
            return
        try:
            edited = self._edited(batch)
            if edited:
                self._on_edit(edited)
            if batch.rows or batch.removed or batch.damaged:
                self._index.apply(batch.rows, removed=batch.removed, damaged=batch.damaged)
            if batch.gone:
                self._index.forget_paths(batch.gone)
        except CairnError as error:
            for change in batch.changes:
                self._fail(change, error, retryable=True, unread=False)
            return
        except Exception as error:
            # A fault of ours, met in one file's words: it must not keep the others from being indexed.
            alone = batch.apart()
            if len(alone) > 1:
                for one in alone:
                    self._commit(one)
                return
            _log.exception("%s could not be indexed", batch.changes[0].path)
            self._fail(batch.changes[0], error, retryable=False, unread=False)
            return
        for path, look in batch.looks.items():
            if look.mark:
                self._own.followed(path, look.mark)
        for path in batch.gone:
            self._recent.drop(path)  # should the same text come back, it has no rows any more
            if not self._storage.exists(Locator(path)):
                self._own.is_by_hand(path)
        if self._index.generation == batch.generation:
            for path, look in batch.looks.items():
                self._recent.keep(path, look.memory)
        else:
            self._recent.clear()
        remarks = {path: look.troubles for path, look in batch.looks.items() if look.troubles}
        self._queue.finish(batch.changes, holder=self.holder, seen=batch.seen, remarks=remarks)
        self._on_indexed(batch.changes)

    def _edited(self, batch: _Batch) -> list[Row]:
        """The episodes of a batch that read otherwise than before."""
        # A file caught between being emptied and being filled again loses its rows for a moment.
        self._removed |= batch.lost
        found = [
            row
            for row, known in batch.episodes
            if known
            or not self._own.reads(row.path, batch.looks[row.path].mark)
            or _name(row) in self._removed
        ]
        self._removed -= {_name(row) for row in found}
        if len(self._removed) > _REMOVED_KEPT:
            self._removed.clear()
        return found

    def _look(
        self, change: Change, generation: str
    ) -> tuple[tuple[float, int] | None, Look | None, Mapping[tuple[Scope, str], Stored]]:
        """The file as it is now, and what the index holds of it. A file that is not there has no rows.

        Where only the end of a large file is new, what the index holds of the rest is not even asked for.
        """
        locator = Locator(change.path)
        kind, place = kind_of(locator), place_of(locator)
        known: dict[tuple[Scope, str], bytes] | None = None
        stored: Mapping[tuple[Scope, str], Stored] = {}
        try:
            info = self._storage.info(locator)
            text = self._storage.read(locator) if kind not in {None, "session"} else ""
            while kind is not None:
                look: Look | None = None
                if kind == "session":
                    look = self._recent.session(self._sessions, locator, generation, known)
                elif place is not None:
                    look = self._recent.note(place, change.path, text, generation, known, self._zone)
                elif known is not None:
                    look = Look(
                        read_file(locator, text, known, mtime=info.mtime, zone=self._zone), whole=True
                    )
                if look is not None:
                    return (info.mtime, info.size), look, stored
                stored = self._index.stored(change.path)
                known = {key: old.source for key, old in stored.items()}
        except NotFound:
            pass
        return None, None, self._index.stored(change.path)

    def _fail(self, change: Change, error: Exception, *, retryable: bool, unread: bool) -> None:
        level = logging.DEBUG if change.retry_count else logging.WARNING
        _log.log(level, "%s could not be indexed: %s", change.path, error)
        self._recent.drop(change.path)
        seen = None
        try:
            info = self._storage.info(Locator(change.path))
            seen = (info.mtime, info.size)
        except (CairnError, OSError):
            pass
        self._queue.fail(
            change,
            str(error) or type(error).__name__,
            holder=self.holder,
            retryable=retryable,
            seen=seen,
            unread=unread,
        )

    # ---- vectors ----------------------------------------------------------------------------------------------

    def embed(self, limit: int = _EMBED_BATCH, *, settled: bool = False) -> int:
        """Give up to `limit` rows their vector; returns how many got one. 0 when nothing waits.

        With `settled`, none of talk that still goes on.

        Texts that were embedded before, by whichever index, cost nothing. When the embedder cannot answer,
        it is left alone for a while; rows are found by their words meanwhile.
        """
        if time.monotonic() < self._embed_again_at:
            return 0
        embedder = self._embedder()
        if embedder is None:
            return 0
        try:
            self._index.begin_model(embedder.id)
            rows = self._index.pending(limit, settled=settled)
            if not rows:
                return 0
            fresh, tokens = self._fresh(embedder, rows)
        except Unavailable as error:
            _log.warning("The embedder does not answer: %s", error)
            self._embed_again_at = time.monotonic() + 5.0
            return 0
        self._index.put_vectors(rows, fresh, tokens)
        self._tell()
        return len(rows)

    def _fresh(
        self, embedder: Embedder, rows: Sequence[Pending]
    ) -> tuple[dict[bytes, np.ndarray], dict[bytes, np.ndarray]]:
        """The vectors of those rows' texts that have none yet, and those of their word pieces."""
        have = self._index.have_vectors([row.key for row in rows])
        texts = {row.key: row.text for row in rows if row.key not in have}
        if not texts:
            return {}, {}
        pieces: list[TokenVectors] = []
        if self._token_vectors and embedder.token_dimensions == TOKEN_DIMENSIONS:
            vectors, pieces = embedder.embed_tokens(list(texts.values()))
        else:
            vectors = embedder.embed(list(texts.values()))
        if vectors.shape != (len(texts), embedder.dimensions):
            raise Unavailable(
                f"{embedder.id} gave an array of shape {vectors.shape} for {len(texts)} texts of "
                f"{embedder.dimensions} dimensions."
            )
        tokens = {key: found.vectors for key, found in zip(texts, pieces, strict=False)}
        return dict(zip(texts, vectors, strict=True)), tokens

    def waiting_for_vectors(self) -> int:
        """How many rows wait for their vector; 0 where there is no model to give them any."""
        return self._index.pending_count() if self._embedder() is not None else 0

    # ---- how far we are -----------------------------------------------------------------------------------------

    def status(self, scope: Scope | None = None) -> Freshness:
        """How far the index is behind the files (those of `scope`, if given), as far as the queue knows.

        Rows that wait for their vector are not counted: see `waiting_for_vectors`. A file that cannot be read makes a scope "behind", and a note names it: what is answered is what was known
        of it before.
        """
        within = places_of(scope) if scope is not None else ()
        if scope is not None:
            self.take_left(scope)
        try:
            now = self._queue.glance(within)
            generation = self._index.generation
        except Unavailable:
            return Freshness(0, 0, "rebuilding")
        if now.pending:
            self.on_wanted(False)
        notes = self._unread(scope, now) if scope is not None else ()
        if now.ready_for != generation:
            return Freshness(now.applied_lsn, now.pending, "rebuilding", notes, generation)
        state: Literal["behind", "fresh"] = "behind" if now.pending or notes else "fresh"
        return Freshness(now.applied_lsn, now.pending, state, notes, generation)

    def _unread(self, scope: Scope, now: Glance) -> tuple[str, ...]:
        """What a scope's answer rests on and cannot be read."""
        mine, *rest = places_of(scope)
        failed = [(path, why) for path, why in now.failed
                  if path.startswith(mine) or (path.startswith(tuple(rest)) and self._is_in(scope, path))]  # fmt: skip
        failed += [
            (folder, why)
            for folder, why in self._unreadable.items()
            if f"{folder}/".startswith(mine) or mine.startswith(f"{folder}/")
        ]
        # Of a linked folder the reason says where it lies: the place it has here is nobody's.
        said = (
            f"what was known before is answered: {why}"
            if is_linked(Locator(path))
            else f"{path} cannot be read, what was known of it before is answered: {why}"
            for path, why in failed
        )
        return tuple(dict.fromkeys(said))

    def _is_in(self, scope: Scope, path: str) -> bool:
        """Whether the index holds rows of this scope from the file: a log that nobody could read is nobody's."""
        return any(where == scope for where, _ in self._index.stored(path))

    def _tell(self) -> None:
        with self.progress:
            self.progress.notify_all()

    # ---- maintenance --------------------------------------------------------------------------------------------

    def maintain(self) -> dict[str, int]:
        """Keep the index small and quick; bounded in time."""
        self._queue.maintain()
        return self._index.maintain()

    def changed_since(self, mtime: float) -> list[Locator]:
        """Files of the truth modified strictly after `mtime`, by key: a hint, to be settled by hash."""
        return sorted(
            Locator(key) for key, _, at in self._files((), {}) if at > mtime and kind_of(Locator(key))
        )


class LeftTalk:
    """Session logs that are indexed later, when one of their owners is asked about."""

    def __init__(self) -> None:
        self._owners: dict[str, Collection[str] | None] = {}
        self._logs: dict[tuple[str, str | None], set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._owners)

    def put(self, key: str, owners: Collection[str] | None) -> None:
        """Leave a log that these are in, or nobody knows who."""
        self._drop(key)
        self._owners[key] = owners
        for name in self._names(key):
            self._logs.setdefault(name, set()).add(key)

    def take(self, scope: Scope) -> set[str]:
        """The logs that the owner of a scope may be in; they are left no longer."""
        _, *talk = places_of(scope)
        found = {key for at in talk for who in (scope.owner, None) for key in self._logs.get((at, who), ())}
        for key in found:
            self._drop(key)
        return found

    def _drop(self, key: str) -> None:
        for name in self._names(key) if key in self._owners else ():
            logs = self._logs[name]
            logs.discard(key)
            if not logs:
                del self._logs[name]
        self._owners.pop(key, None)

    def _names(self, key: str) -> list[tuple[str, str | None]]:
        owners = self._owners[key]
        at = "/".join(key.split("/", 3)[:3]) + "/"
        return [(at, None)] if owners is None else [(at, owner) for owner in owners]


_Added = tuple[Change, tuple[float, int] | None, Look | None, Mapping[tuple[Scope, str], Stored]]


class _Batch:
    """Several files' worth of changes on their way into one transaction."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.looks: dict[str, Look] = {}
        self.changes: list[Change] = []
        self.rows: list[NewRow] = []
        self.episodes: list[tuple[Row, bool]] = []
        self.lost: set[tuple[Scope, str]] = set()
        self.removed: list[int] = []
        self.damaged: list[int] = []
        self.gone: list[str] = []
        self.seen: dict[str, tuple[float, int] | None] = {}
        self._added: list[_Added] = []

    def apart(self) -> list[_Batch]:
        """The same changes, each in a batch of its own."""
        alone = []
        for added in self._added:
            alone.append(_Batch(self.generation))
            alone[-1].add(*added)
        return alone

    def add(
        self,
        change: Change,
        seen: tuple[float, int] | None,
        look: Look | None,
        stored: Mapping[tuple[Scope, str], Stored],
    ) -> None:
        self._added.append((change, seen, look, stored))
        self.changes.append(change)
        self.seen[change.path] = seen
        if look is None:
            self.removed.extend(old.rowid for old in stored.values())
            self.gone.append(change.path)
            self.lost.update(stored if change.kind == "episode" else ())
            return
        found = look.found
        self.looks[change.path] = look
        self.rows.extend(found.rows)
        if change.kind == "episode":
            self.episodes += [(new.row, _name(new.row) in stored) for new in found.rows]
            self.lost.update(stored.keys() - found.present)
        for key, old in stored.items():
            if key in found.present:
                continue
            if key[1].partition(PART_MARK)[0] not in found.damaged:
                self.removed.append(old.rowid)
            elif not old.damaged:
                self.damaged.append(old.rowid)


def _name(row: Row) -> tuple[Scope, str]:
    return row.scope, row.entry_id


def _change(old: Known | None, size: int, mtime: float) -> ChangeType | None:
    """What a file that is there is to be queued as; None where the queue knows it as it is."""
    if old is not None and old.status == "pending":
        return None
    if old is not None and old.status == "processing":
        return "modified"  # whoever works on it may have read it before its last change
    if old is None or old.change_type == "deleted":
        return "added"
    is_same = old.mtime is not None and abs(old.mtime - mtime) <= _SAME_MTIME and old.size in {None, size}
    return None if is_same else "modified"
