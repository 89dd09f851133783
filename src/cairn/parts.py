"""One open root, put together: the only place where engines are picked and handed to the parts above them.

`open_parts` reads top to bottom in the order things depend on each other; `Parts.close` undoes it in reverse.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.config import Settings
from cairn.daemon import Chore, Daemon
from cairn.engines import allocator
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.jobs import SqliteJobs
from cairn.engines.journals import FileJournals
from cairn.engines.lance import LanceMirror, MirrorProcess
from cairn.engines.locks import FileLocks
from cairn.engines.rows import SqliteIndex
from cairn.engines.selection import select_backend
from cairn.engines.sqlite import SqliteState
from cairn.engines.tables import MemoryTables
from cairn.engines.vault import locks_directory
from cairn.engines.watching import TreeWatch
from cairn.errors import CairnError, Invalid, Misconfigured, StorageFailed
from cairn.governed.framing import strip_recalled
from cairn.governed.memories import Keeper
from cairn.governed.secrets import redact
from cairn.notes.conflicts import merge_conflict_copies
from cairn.notes.kinds import place_of
from cairn.notes.notebook import ChangeType, Notebook
from cairn.notes.root import MemoryRoot
from cairn.retrieval.corpus import Row, SearchIndex
from cairn.retrieval.indexer import Indexer
from cairn.retrieval.lexical import NoteScan
from cairn.retrieval.listing import Listing
from cairn.retrieval.search import Searcher
from cairn.seams import Clock, Embedder, Journals, Locator, StorageBackend, SystemClock, Writer
from cairn.strategies import EditEvent
from cairn.strategies.corrections import FollowCorrections
from cairn.strategies.engine import Engine
from cairn.talk import Capture
from cairn.talk.sessions import SessionLog
from cairn.timetravel.observer import Observer
from cairn.timetravel.past import known_at
from cairn.types import CellEvent, Hit, Scope, Space

if TYPE_CHECKING:
    from cairn.governed.lifecycle import Trigger
    from cairn.timetravel.changes import TimeTravel

log = logging.getLogger("cairn")

QUIET_SECONDS = 0.03  # vectors wait until nobody has asked for so long: calls come in rows


class LazyEmbedder:
    """Picks the embedder when it is first asked for; a configured one that cannot be had is said once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._picked = False
        self._embedder: Embedder | None = None
        self.trouble = ""

    def __call__(self) -> Embedder | None:
        if not self._picked:
            with self._lock:
                if not self._picked:
                    self._embedder = self._pick()
                    self._picked = True
        return self._embedder

    def if_loaded(self) -> Embedder | None:
        """The embedder only if someone has used it already: `add` never pays for loading a model."""
        embedder = self._embedder
        return embedder if embedder is not None and getattr(embedder, "loaded", False) else None

    def _pick(self) -> Embedder | None:
        from cairn.engines.embedders import choose

        try:
            return choose(self._settings)
        except Misconfigured as error:
            self.trouble = str(error)
            log.warning("%s", error)
            return None


@dataclass
class Parts:
    """Everything one open root is made of."""

    settings: Settings
    clock: Clock
    storage: StorageBackend
    root: MemoryRoot
    journals: Journals
    sessions: SessionLog
    locks: FileLocks
    state: SqliteState
    index: SqliteIndex
    mirror: LanceMirror
    notebook: Notebook
    indexer: Indexer
    listing: Listing
    searcher: Searcher
    capture: Capture
    keeper: Keeper
    engine: Engine
    observer: Observer
    tables: MemoryTables
    embedder: LazyEmbedder
    writer: Writer | None
    closing: ExitStack
    daemon: Daemon | None = None
    follower: MirrorProcess | None = None
    _swept: bool = False

    @property
    def local_folders(self) -> list[Path]:
        """Where this machine keeps something of the root beside it: for a root that others see, too."""
        if not self.storage.capabilities.sync:
            return []
        return [Path(locks_directory(self.settings.root, self.settings.cache_dir))]

    def start(self) -> None:
        """Begin background life: notice edits, index, run what is due."""
        self.indexer.tells_new = (
            False  # a new episode is seen in milliseconds; the engine looks at those of before
        )
        watch = TreeWatch(self.settings.root) if self.settings.index.watch else None
        self.follower = MirrorProcess(self.settings.index_dir, self.index, self.mirror)
        self.closing.callback(self.follower.stop)
        self.daemon = Daemon(
            self.indexer,
            self.state,
            watch=watch,
            scan_seconds=self.settings.index.scan_seconds,
            follow=self.follower,
            step_aside=partial(self.engine.step_aside, QUIET_SECONDS),
            chores=[
                Chore("merge conflict copies", 60.0, self._merge_copies),
                Chore("sweep temporary files", 6 * 3600.0, self._sweep_leftovers, apart=True),
                Chore("sweep memories", 30.0, self.sweep_due, apart=True),
                Chore("record edits", 60.0, self.observer.look_around, apart=True),
                Chore("give memory back", 60.0, allocator.trim, apart=True),
            ],
        )
        self.daemon.start()
        threading.Thread(target=self._finish_everywhere, name="cairn-recover", daemon=True).start()
        self.closing.callback(self.daemon.stop)
        thinking = _Thinking(self.engine)
        thinking.start()
        self.closing.callback(thinking.stop)
        self.observer.start()

    def catch_up(self, seconds: float, *, embed: bool = False) -> None:
        """Look at the files themselves and index what differs, and what follows from an edit by hand."""
        self.indexer.catch_up(seconds, embed=embed)
        if self.engine.run_due(seconds=seconds, only=FollowCorrections.name):
            self.indexer.catch_up(seconds, embed=embed)

    def sweep_due(self) -> int:
        """Keep each space in order whose last sweep is `keeping.sweep_hours` old; how many were due."""
        from cairn.governed import maintenance

        trigger: Trigger = "schedule" if self._swept else "startup"
        done = 0
        for space in self.keeper.spaces():
            try:
                if self.keeper.scopes(space) and maintenance.run(
                    self.keeper, space, trigger=trigger, writer=self.writer
                ):
                    done += 1
            except CairnError as error:
                log.warning("the sweep of %s/%s failed: %s", space.app, space.project, error)
        self._swept = True
        if done:
            self.tables.sync(self.keeper)
        return done

    def _finish_everywhere(self) -> None:
        """A power cut may take the ledger of cells under way: look through every session once."""
        try:
            self.capture.recover(everywhere=True)
        except Exception:
            log.exception("recovery of unfinished cells failed; each session's next call tries again")

    def _merge_copies(self) -> None:
        """What a sync program left beside a note is brought into it, entry by entry."""
        if self.storage.capabilities.conflict_files:
            merge_conflict_copies(self.notebook, self.storage)

    def _sweep_leftovers(self) -> None:
        """Temporary files of killed writers and lock files nobody uses go away."""
        if isinstance(self.storage, DeviceLocalBackend):
            self.storage.sweep()
        self.locks.sweep()

    def close(self) -> None:
        """Stop what runs, then close what is open, in reverse order."""
        self.closing.close()


class _Thinking(threading.Thread):
    """Runs strategies as their work comes in, in a thread of its own; a failure is logged and life goes on."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="cairn-strategies", daemon=True)
        self._engine = engine
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self._engine.recover()
        except Exception:
            log.exception("strategies: recovery failed; it is tried again with the next work")
        while not self._stopping.is_set():
            try:
                self._engine.run_due(seconds=2.0)
            except Exception:
                log.exception("strategies: a round failed")
                self._stopping.wait(1.0)
            self._engine.wait(0.5)

    def stop(self) -> None:
        self._stopping.set()
        self._engine.handle_many(())
        self.join(15.0)


def _redactor(settings: Settings) -> Callable[[str], str]:
    """What happens to a text that is about to be written: framed recalls go, credentials are cut out."""
    if settings.keeping.secrets == "allow":
        return strip_recalled

    def check(text: str) -> str:
        found = redact(strip_recalled(text))
        if found.findings and settings.keeping.secrets == "refuse":
            raise Invalid(
                f"The text holds a credential ({found.findings[0].kind}); nothing was written. Take it out and try again.",
                field="content",
            )
        return found.text

    return check


def _writer(settings: Settings, journals: Journals, clock: Clock) -> Writer | None:
    if not settings.llm.base_url:
        return None
    from cairn.engines.spending import Spending
    from cairn.engines.writers import OpenAIWriter

    return OpenAIWriter(settings.llm, Spending(journals, clock, settings.llm.daily_token_cap))


def open_parts(settings: Settings, *, clock: Clock | None = None, patient: bool = False) -> Parts:
    """Open the root the settings name and finish what a crash left.

    A `patient` caller gets a root that cannot be written, too: what is there can be read and looked after, and
    each write is refused by name.
    """
    time = clock or SystemClock()
    with ExitStack() as undo:
        storage = select_backend(settings)
        root = MemoryRoot(storage)
        try:
            root.ensure((files("cairn.strategies") / "ome.toml").read_text("utf-8"))
        except StorageFailed:
            if not patient:
                raise
        index_dir = _checked_index_dir(settings, storage)
        locks = FileLocks(_lock_dir(settings, storage))
        journals = FileJournals(settings.root)
        sessions = SessionLog(journals)
        state = SqliteState(index_dir, clock=time)
        undo.callback(state.close)
        index = SqliteIndex(index_dir, memory_rows=settings.index.memory_rows)
        undo.callback(index.close)
        mirror = index.mirror = LanceMirror(index_dir)
        embedder = LazyEmbedder(settings)
        indexer = Indexer(
            storage=storage,
            journals=journals,
            locks=locks,
            queue=state,
            index=index,
            embedder=embedder,
            zone=settings.zone,
            on_edit=lambda rows: engine.handle_many(edits_of(rows)),
            on_lost=lambda: engine.look_again(),  # noqa: PLW0108 -- it is made further down
            sessions=sessions,
        )

        def travel(space: Space) -> TimeTravel:
            from cairn.timetravel.changes import TimeTravel

            return TimeTravel(root.space(space), notebook, journals, locks, time)

        observer = Observer(storage, travel, indexer.changed_since)
        undo.callback(observer.stop)

        def note_change(changes: Sequence[tuple[Locator, ChangeType]]) -> int:
            observer.tell(changes)
            return indexer.note_change(changes)

        notebook = Notebook(storage, locks, clock=time, on_change=note_change)
        writer = _writer(settings, journals, time)
        redactor = _redactor(settings)
        keeper = Keeper(
            storage=storage,
            root=root,
            notebook=notebook,
            journals=journals,
            locks=locks,
            clock=time,
            settings=settings,
            sessions=sessions,
        )
        undo.callback(keeper.close)
        jobs = SqliteJobs(index_dir)
        engine = Engine(
            root=root,
            notebook=notebook,
            journals=journals,
            locks=locks,
            clock=time,
            settings=settings,
            writer=writer,
            embedder=embedder,
            jobs=jobs,
            redact=redactor,
            sessions=sessions,
        )
        undo.callback(engine.close)

        def tell_engine(event: CellEvent) -> None:
            engine.handle(event)

        capture = Capture(
            storage=storage,
            notebook=notebook,
            journals=journals,
            locks=locks,
            clock=time,
            settings=settings,
            writer=writer,
            embedder=embedder.if_loaded,
            on_cell=tell_engine,
            on_change=indexer.note_change,
            redact=redactor,
            local=_local(settings, storage),
            sessions=sessions,
        )

        def count_hits(scope: Scope, hits: Sequence[Hit]) -> None:
            keeper.record_hits([(scope, hit.entry_id) for hit in hits])

        def wait(lsn: int | None, timeout: float) -> bool:
            if lsn is None:  # look at the files themselves, so that a hand edit counts
                indexer.catch_up(timeout)
            return indexer.wait(lsn, timeout)

        scan = NoteScan(storage, journals, zone=settings.zone, sessions=sessions)

        def past(scope: Scope, when: datetime) -> SearchIndex | None:
            return known_at(observer, scan, scope, when, settings.zone)

        searcher = Searcher(
            index,
            settings=settings,
            clock=time,
            embedder=embedder,
            freshness=indexer.status,
            wait=wait,
            unprocessed=capture.unprocessed,
            writer=writer,
            fallback=scan.of,
            on_hits=count_hits,
            past=past,
        )
        listing = Listing(index, indexer.status, settings.zone)
        capture.recover()
        if storage.capabilities.conflict_files:
            merge_conflict_copies(notebook, storage)
        return Parts(
            settings=settings,
            clock=time,
            storage=storage,
            root=root,
            journals=journals,
            sessions=sessions,
            locks=locks,
            state=state,
            index=index,
            mirror=mirror,
            notebook=notebook,
            indexer=indexer,
            listing=listing,
            searcher=searcher,
            capture=capture,
            keeper=keeper,
            engine=engine,
            observer=observer,
            tables=MemoryTables(index_dir, locks),
            embedder=embedder,
            writer=writer,
            closing=undo.pop_all(),
        )


def edits_of(rows: Sequence[Row]) -> list[EditEvent]:
    """The events of episodes that were edited; one that was made of no cell has nothing to follow it."""
    return [
        EditEvent(row.scope, row.entry_id, place.day, row.cell_id, row.session_id)
        for row in rows
        if row.cell_id and row.session_id and (place := place_of(Locator(row.path))) is not None
    ]


def _checked_index_dir(settings: Settings, storage: StorageBackend) -> Path:
    """Where the index lives; never inside a tree that an outside service replicates."""
    chosen = settings.index_dir
    if storage.capabilities.sync and (chosen == settings.root or settings.root in chosen.parents):
        raise Misconfigured(
            "index.dir lies inside the synced root: a database must not travel with it. Choose a place outside.",
            setting="index.dir",
        )
    return chosen


def _local(settings: Settings, storage: StorageBackend) -> tuple[StorageBackend, Journals] | None:
    """Storage and journals of this machine alone, where the root is replicated to others."""
    if not storage.capabilities.sync:
        return None
    place = Path(locks_directory(settings.root, settings.cache_dir)) / "cells"
    return DeviceLocalBackend(place), FileJournals(place)


def _lock_dir(settings: Settings, storage: StorageBackend) -> Path:
    if storage.capabilities.sync:
        return Path(locks_directory(settings.root, settings.cache_dir)) / "names"
    return settings.root / ".tmp" / "locks"
