"""One open root, put together: the only place where engines are picked and handed to the parts above them.

Each part is a named stage, opened when it is first asked for and closed in reverse order:

    ground      storage, root, journals, locks              opened with the root
    writing     state (the change queue), notebook, observer, keeper
    reading     index, indexer, waits, listing, searcher
    talk        capture
    thinking    engine, writer, embedder

So a call opens what it needs: to remember a fact takes the notebook, its queue and the keeper, and neither the
index, the strategies nor a model. `background.start` opens all and begins background life.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from cairn.config import Settings
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.engines.selection import select_backend
from cairn.engines.vault import locks_directory
from cairn.errors import CairnError, Invalid, Misconfigured, NotFound, StorageFailed
from cairn.notes.kinds import MemoryRoot, place_of
from cairn.notes.notebook import ChangeType, Notebook
from cairn.seams import (
    Clock,
    DerivedMaintenance,
    Embedder,
    Jobs,
    Locator,
    Locks,
    State,
    StorageBackend,
    SystemClock,
    Tier,
    Writer,
)
from cairn.talk.sessions import SessionLog, place_of_session
from cairn.timetravel.changes import Observer
from cairn.traffic import Traffic
from cairn.types import CellEvent, Freshness, Hit, Message, Scope, Space

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.daemon import Daemon
    from cairn.engines.lance import Folder, LanceTables
    from cairn.engines.large import Answering
    from cairn.engines.links import LinkedStorage
    from cairn.engines.postgres import Postgres
    from cairn.engines.rows import SqliteIndex
    from cairn.engines.tokens import TokenFile
    from cairn.governed.memories import Keeper
    from cairn.index.corpus import Row
    from cairn.notes.conflicts import Merge
    from cairn.retrieval.events import Events
    from cairn.retrieval.indexer import Indexer
    from cairn.retrieval.lexical import NoteScan, ScannedScope
    from cairn.retrieval.listing import Listing
    from cairn.retrieval.search import Searcher
    from cairn.retrieval.waits import Waits
    from cairn.strategies import EditEvent
    from cairn.strategies.engine import Engine
    from cairn.talk import Capture
    from cairn.talk.copies import Copies
    from cairn.timetravel.changes import TimeTravel
    from cairn.timetravel.runs import Runs

log = logging.getLogger("cairn")
_carried = logging.getLogger("cairn.carried")  # what was found of another program, for people
_MANY_EDITS = 64  # from so many on a folder is listed rather than asked for each

T = TypeVar("T")


class Stage(Generic[T]):
    """A part that is opened when it is first asked for, once, whichever thread asks."""

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build
        self._name = build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, parts: None, owner: type) -> Stage[T]: ...
    @overload
    def __get__(self, parts: Parts, owner: type) -> T: ...
    def __get__(self, parts: Parts | None, owner: type) -> Stage[T] | T:
        if parts is None:
            return self
        with parts.opening:
            opened = vars(parts)
            if self._name not in opened:
                opened[self._name] = self._build(parts)
            made: T = opened[self._name]
            return made


class LazyEmbedder:
    """Picks the embedder when it is first asked for; a configured one that cannot be had is said once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._picked = False
        self._loading: threading.Thread | None = None
        self._embedder: Embedder | None = None
        self.trouble = ""

    def __call__(self) -> Embedder | None:
        if not self._picked:
            with self._lock:
                if not self._picked:
                    self._embedder = self._pick()
                    self._picked = True
        return self._embedder

    def is_at_hand(self) -> bool:
        """Whether a question by meaning waits for nothing; where it would, the model is being loaded from here on."""
        embedder = self()
        if embedder is None or embedder.loaded:
            return True
        with self._lock:
            if self._loading is None:
                self._loading = threading.Thread(target=_load, args=(embedder,), name="cairn-model")
                self._loading.start()
        return False

    def _pick(self) -> Embedder | None:
        from cairn.engines.embedders import choose

        try:
            return choose(self._settings)
        except Misconfigured as error:
            self.trouble = str(error)
            log.warning("%s", error)
            return None


def _load(embedder: Embedder) -> None:
    with suppress(CairnError):  # whoever asks by meaning is told
        embedder.embed(["ready"])


class Parts:
    """Everything one open root is made of.

    Args:
        settings: Which root, and everything that can be set.
        clock: The time.
        patient: Open a root that cannot be written, too: what is there can be read and looked after, and each
            write is refused by name.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None, patient: bool = False) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.opening = threading.RLock()
        self.closing = ExitStack()
        self.traffic = Traffic()  # held by calls that somebody waits for: all else pauses meanwhile
        self.daemon: Daemon | None = None
        self.swept = False
        self.storage: StorageBackend = select_backend(settings)
        self.storage.learn_people(_people_in)
        self.root = MemoryRoot(self.storage)
        try:
            self.root.ensure((files("cairn.strategies") / "ome.toml").read_text("utf-8"))
        except StorageFailed:
            if not patient:
                raise
        self.storage.keep()
        self.index_dir = _checked_index_dir(settings, self.storage, self.root)
        self.closing.callback(self.storage.close)
        self.storage.derive_by(lambda: self.derived)
        self.closing.callback(self.storage.derive_by, None)
        self.local_locks = FileLocks(_lock_dir(settings, self.storage))
        self.locks: Locks = self.storage.locks(self.local_locks)
        self.journals = self.storage.journals
        # A sync program may put another log in the place of one, as long as it was: its time tells them apart.
        is_replicated = self.storage.capabilities.sync
        self.sessions = SessionLog(self.journals, changed_at=self._mtime if is_replicated else None)
        try:
            if self.storage.capabilities.conflict_files:
                self.merge_copies()
            self._take_over()
        except BaseException:
            self.close()
            raise

    @property
    def local_folders(self) -> list[Path]:
        """Where this machine keeps something of the root beside it: for a root that others see, too."""
        if not self.storage.capabilities.sync:
            return []
        return [Path(locks_directory(self.settings.root, self.settings.cache_dir))]

    def is_open(self, stage: str) -> bool:
        """Whether somebody has asked for this part yet."""
        return stage in vars(self)

    @Stage
    def state(self) -> State:
        """The queue of changes that wait to be indexed."""
        if self.settings.storage.queue == "database" and (database := self.database()) is not None:
            from cairn.engines.postgres_state import PostgresState

            return PostgresState(database, self.index_dir, self.clock)
        from cairn.engines.changes import SqliteState

        made = SqliteState(self.index_dir, clock=self.clock)
        self.closing.callback(made.close)
        return made

    @Stage
    def events(self) -> Events:
        """Tells listeners what changed."""
        from cairn.retrieval.events import Events

        return Events(int(self.clock.now().timestamp() * 1000))

    @Stage
    def observer(self) -> Observer:
        """Records what entries were before they changed."""
        made = Observer(self.storage, self._travel, self._changed_since)
        self.closing.callback(made.settle)
        return made

    @Stage
    def notebook(self) -> Notebook:
        """The only writer of notes; the queue and the record of changes are opened before it, to close after it."""
        state, observer = self.state, self.observer

        def written(changes: Sequence[tuple[Locator, ChangeType]]) -> int:
            from cairn.retrieval.library import noticed

            observer.tell(changes)
            return self.traffic.wrote(state.enqueue(noticed(changes)))

        return Notebook(self.storage, self.locks, clock=self.clock, on_change=written, history=self.runs)

    @Stage
    def runs(self) -> Runs:
        """What consolidations, sweeps, reflections and the like wrote, to be taken back as a whole."""
        from cairn.timetravel.runs import Runs

        return Runs(self.root, self.journals, self.clock, self.observer.of)

    @Stage
    def keeper(self) -> Keeper:
        """Governed memories."""
        from cairn.governed.memories import Keeper

        made = Keeper(
            storage=self.storage,
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            sessions=self.sessions,
            on_event=self._tell_of_memory,
        )
        self.closing.callback(made.close)
        return made

    @Stage
    def redact(self) -> Callable[[str], str]:
        """What happens to a text that is about to be written: framed recalls go, credentials are cut out."""
        from cairn.governed.framing import strip_recalled
        from cairn.governed.secrets import redact

        if self.settings.keeping.secrets == "allow":
            return strip_recalled
        refuses = self.settings.keeping.secrets == "refuse"

        def check(text: str) -> str:
            found = redact(strip_recalled(text))
            if found.findings and refuses:
                raise Invalid(
                    f"The text holds a credential ({found.findings[0].kind}); nothing was written. Take it out and try again.",
                    field="content",
                )
            return found.text

        return check

    # ------------------------------------------------------------ talk

    @Stage
    def capture(self) -> Capture:
        """Takes messages in and writes their episodes; what a crash left unfinished is finished first."""
        from cairn.talk import Capture

        made = Capture(
            storage=self.storage,
            notebook=self.notebook,
            sessions=self.sessions,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            writer=self.writer,
            on_cell=self._think_of,
            redact=self.redact,
            local=_local(self.settings, self.storage),
        )
        self.closing.callback(made.close)
        made.recover()
        return made

    @Stage
    def copies(self) -> Copies:
        """Merges what a sync program left beside files."""
        from cairn.talk.copies import Copies

        return Copies(
            storage=self.storage,
            notebook=self.notebook,
            journals=self.journals,
            sessions=self.sessions,
            clock=self.clock,
            zone=self.settings.zone,
        )

    # ------------------------------------------------------------ reading

    @Stage
    def linked(self) -> LinkedStorage:
        """The root's files, and those of the folders it links to, for reading."""
        from cairn.engines.links import LinkedStorage
        from cairn.retrieval.library import document_at

        return LinkedStorage(self.storage, lambda at: document_at(at) is not None, self.redact)

    @Stage
    def index(self) -> SqliteIndex:
        """Rows, full text and vectors; made anew from the files whenever it is lost."""
        from cairn.engines.rows import SqliteIndex

        made = SqliteIndex(self.index_dir, memory_rows=self.settings.index.memory_rows)
        self.closing.callback(made.close)
        return made

    @Stage
    def lance(self) -> LanceTables:
        """The tables of LanceDB, one for each kind: on this machine, or in the bucket that several share."""
        from cairn.engines.lance import LanceTables

        if self.database() is None:
            return LanceTables(self.index_dir)
        from cairn.engines.postgres import PostgresLocks
        from cairn.engines.shared_tables import SharedTables

        assert isinstance(self.locks, PostgresLocks)
        return SharedTables(
            self.index_dir,
            self.settings.storage,
            self.index,
            self.locks,
            is_whole=lambda: self.state.ready_for() == self.index.generation,
        )

    @Stage
    def folder(self) -> Folder:
        """Folds new rows into the tables."""
        from cairn.engines.lance import Folder

        chosen = self.settings.index
        # Where memory answers for everybody, the tables are only kept ready for those who grow beyond it.
        seldom_below = chosen.memory_rows // 2 if chosen.engine == "auto" and self.database() is None else 0
        made = Folder(self.index, self.lance, enabled=chosen.engine != "memory", seldom_below=seldom_below)
        self.closing.callback(made.stop)
        return made

    @Stage
    def answering(self) -> Answering:
        """Chooses who answers for a scope, memory or LanceDB."""
        from cairn.engines.large import Answering

        chosen = self.settings.index
        return Answering(self.index, self.lance, engine=chosen.engine, memory_rows=chosen.memory_rows)

    @Stage
    def indexer(self) -> Indexer:
        """Keeps the index in step with the files."""
        from cairn.retrieval.indexer import Indexer

        return Indexer(
            storage=self.linked,
            sessions=self.sessions,
            locks=self.locks,
            queue=self.state,
            index=self.index,
            embedder=self._indexing_embedder(),
            zone=self.settings.zone,
            token_vectors=self.settings.index.token_vectors,
            max_entry=self.settings.storage.max_entry_bytes,
            on_edit=self._follow_edits,
            on_lost=self._look_again,
            own=self.notebook.own,
            on_indexed=self.events.changed,
        )

    @Stage
    def waits(self) -> Waits:
        """Lets callers wait for the index."""
        from cairn.retrieval.waits import Waits

        return Waits(self.indexer, self.state, self.index, self.embedder)

    @Stage
    def derived(self) -> DerivedMaintenance:
        """Makes the index and the pages anew, for whoever holds the storage alone."""
        return _Derived(self)

    @Stage
    def scan(self) -> NoteScan:
        """Searches the files themselves, where there is no index."""
        from cairn.retrieval.lexical import NoteScan

        return NoteScan(self.linked, self.sessions, zone=self.settings.zone)

    @Stage
    def searcher(self) -> Searcher:
        """Answers questions."""
        from cairn.retrieval.search import Searcher

        return Searcher(
            self.answering,
            settings=self.settings,
            clock=self.clock,
            embedder=self.embedder,
            freshness=self.freshness,
            wait=self._wait_for_index,
            unprocessed=self._unprocessed,
            writer=self.writer,
            fallback=self.scan.of,
            pages=self.index,
            on_hits=self._count_hits,
            past=self._known_at,
            opposed=self._opposed,
            on_asked=self.waits.asked,
            on_behind=lambda: self.indexer.on_wanted(True),
            one_look=self.index.database.one_look,
            at_once=max(2, os.cpu_count() or 2),
            generation=lambda: self.index.generation,
        )

    @Stage
    def listing(self) -> Listing:
        """Pages of what there is; whatever a crash left unfinished is in them."""
        from cairn.retrieval.listing import Listing

        assert self.capture is not None
        return Listing(self.index, self.freshness, self.settings.zone, fallback=self.scan.of)

    # ------------------------------------------------------------ thinking

    @Stage
    def embedder(self) -> LazyEmbedder:
        """Gives the embedding model, if there is one."""
        return LazyEmbedder(self.settings)

    @Stage
    def writer(self) -> Writer | None:
        """The language model, if one is configured."""
        if not self.settings.llm.base_url:
            return None
        from cairn.engines.spending import Spending
        from cairn.engines.writers import OpenAIWriter

        cap = self.settings.llm.daily_token_cap
        return OpenAIWriter(self.settings.llm, Spending(self.journals, self.clock, cap))

    @Stage
    def engine(self) -> Engine:
        """Runs the strategies."""
        from cairn.strategies.engine import Engine

        made = Engine(
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            writer=self.writer,
            embedder=self.embedder,
            jobs=self._jobs(),
            redact=self.redact,
            keeper=lambda: self.keeper,
            give_way=self.traffic.give_way,
            sessions=self.sessions,
        )
        self.closing.callback(made.close)
        return made

    def database(self) -> Postgres | None:
        """The database that the machines of this root share; None where there is one machine, or no database."""
        if not self.storage.is_shared or not self.settings.storage.database:
            return None
        from cairn.engines.cluster import ClusterBackend

        assert isinstance(self.storage, ClusterBackend)
        return self.storage.database

    def token_file(self) -> TokenFile:
        """The tokens of the HTTP server; those of all servers, where there are several."""
        if (database := self.database()) is not None:
            from cairn.engines.tokens import SharedTokens

            return SharedTokens(self.settings.server_dir, database)
        from cairn.engines.tokens import TokenFile

        return TokenFile(self.settings.server_dir)

    def _jobs(self) -> Jobs:
        """The queue of the strategies: this machine's, or that of all machines."""
        if (database := self.database()) is not None:
            from cairn.engines.postgres_jobs import PostgresJobs

            return PostgresJobs(database, self.clock)
        from cairn.engines.jobs import SqliteJobs

        return SqliteJobs(self.index_dir)

    def _indexing_embedder(self) -> Callable[[], Embedder | None]:
        """Gives what makes the vectors of rows: the embedding model, once for all machines."""
        if (database := self.database()) is None:
            return self.embedder
        from cairn.engines.shared_vectors import SharedVectors

        def give() -> Embedder | None:
            found = self.embedder()
            return None if found is None else SharedVectors(found, database)

        return give

    # ------------------------------------------------------------ what one part tells another

    def _mtime(self, at: Locator) -> float:
        try:
            return self.storage.info(at).mtime
        except NotFound:
            return 0.0

    def _tell_of_memory(self, kind: str, row: Mapping[str, Any]) -> None:
        if (place := place_of(Locator(row["path"]))) is not None:
            self.events.memory(kind, place.scope, row)

    def _unprocessed(
        self, space: Space, session_id: str, limited_to: Collection[str] | None
    ) -> Sequence[Message]:
        return self.capture.unprocessed(space, session_id, limited_to=limited_to)

    def _think_of(self, event: CellEvent) -> None:
        self.engine.handle(event)

    def _follow_edits(self, rows: Sequence[Row]) -> None:
        events = edits_of(rows)
        if not self.storage.is_shared:
            # Notes that were brought along without their talk have nothing to be compared with: thousands at once, at times.
            events = with_talk(self.storage, events)
        self.engine.handle(*events)

    def _look_again(self) -> None:
        self.engine.look_again()

    def _changed_since(self, moment: float) -> Iterable[Locator]:
        return self.indexer.changed_since(moment)

    def _travel(self, space: Space) -> TimeTravel:
        from cairn.timetravel.changes import TimeTravel

        return TimeTravel(
            self.root.space(space),
            self.notebook,
            self.journals,
            self.locks,
            self.clock,
            is_replicated=self.storage.capabilities.sync,
        )

    def _known_at(self, scope: Scope, when: datetime) -> ScannedScope | None:
        self.observer.look_around(scope.space)
        return self.scan.as_of(scope, self.observer.of(scope.space).as_of(when), when)

    def _opposed(self, scope: Scope, memory_id: str) -> Sequence[tuple[str, datetime | None]]:
        try:
            return [(one.entry_id, one.created_at) for one in self.keeper.opposed(scope, memory_id)]
        except CairnError:  # it has gone since it was indexed, or its notes cannot be read now
            return ()

    def _count_hits(self, scope: Scope, hits: Sequence[Hit]) -> None:
        self.keeper.record_hits([(scope, hit.entry_id) for hit in hits])

    def _wait_for_index(self, lsn: int | None, timeout: float, scope: Scope, embed: bool) -> bool:
        # Look at the files themselves, so that a hand edit counts. Each machine numbers the changes by itself: the
        # number of one says nothing to another, where the change is in the storage that all of them see.
        if lsn is None or self.storage.is_shared:
            return self.catch_up(timeout, embed=embed, scope=scope)
        return self.waits.wait(lsn, timeout)

    def freshness(self, scope: Scope) -> Freshness:
        """How far the index is behind an owner's files, and what of theirs is not in it."""
        fresh = self.indexer.status(scope)
        waiting = self.capture.waiting if self.is_open("capture") else []
        notes = [str(one) for one in waiting if one.scope == scope]
        return replace(fresh, notes=(*fresh.notes, *notes)) if notes else fresh

    def settle(self, *scopes: Scope, embed: bool = False) -> None:
        """What was written here is in the answer to whoever asks next, unless that takes long, or the disk refuses.

        A lone call does its own indexing; else the background does, first of these scopes.
        """
        if self.daemon is not None:
            self.waits.wait_a_moment(self.traffic.written, scopes, embed=embed)
        else:
            try:
                self.catch_up(10.0, embed=embed)
            except CairnError as error:
                log.warning("the index is not up to date: %s", error)

    def catch_up(self, seconds: float, *, embed: bool = False, scope: Scope | None = None) -> bool:
        """Look at the files themselves and index what differs, and what follows from an edit by hand.

        With `scope`, only that owner's files. Returns whether all of it is indexed.
        """
        from cairn.strategies.corrections import FollowCorrections

        before = self.index.version()
        reached = self.waits.reach(seconds, embed=embed, scope=scope)
        if self.engine.run_due(seconds=seconds, only=FollowCorrections.name):
            reached = self.waits.reach(seconds, embed=embed, scope=scope)
        if self.daemon is None:
            self.folder.after(before)
        return reached

    def merge_copies(self) -> list[Merge]:
        """Merge every conflict copy there is, and settle what two machines told of the same talk."""
        done = self.copies.merge()
        for space in self.root.spaces():
            for session_id in self.copies.lately(space):
                self.capture.settle_session(space, session_id)
        return done

    def _take_over(self) -> None:
        """Where EverOS served this root: what it had not extracted comes in as inbox, once, and is said once."""
        from cairn.engines import everos

        was_unread = everos.unread(self.index_dir)
        if everos.is_there(self.index_dir):
            with self.locks.hold("take over"):
                self.state.counts()  # sets a file that is not ours aside
                try:
                    count, problems, trouble = self._buffered(self.index_dir)
                    everos.done_with(self.index_dir, whole=not trouble)
                except (CairnError, OSError) as error:  # what came in already is known again by its keys
                    _carried.warning("what EverOS had not extracted waits for the next open: %s", error)
                    return
            for problem in problems:
                _carried.warning("%s", problem)
            if count:
                _carried.warning("%d messages that EverOS had not extracted are in the inbox.", count)
        if (unread := everos.unread(self.index_dir)) and not was_unread:
            _carried.warning("%s; `cairn doctor` has the next step.", unread)

    def take_buffer(self, directory: Path) -> tuple[int, list[str]]:
        """The messages of EverOS's buffer, from an index directory of its, as inbox; how many, and what was refused."""
        count, problems, trouble = self._buffered(directory)
        return count, [*problems, *([f"{trouble}: what else waited there is not here."] if trouble else ())]

    def _buffered(self, directory: Path) -> tuple[int, list[str], str]:
        from cairn.engines import everos
        from cairn.talk.foreign import take_in

        waiting, trouble = everos.buffered(directory)
        return *take_in(self.capture, waiting), trouble

    def close(self) -> None:
        """Stop what runs, then close what is open, in reverse order."""
        self.closing.close()


def _people_in(at: Locator, lines: Sequence[str]) -> Collection[str] | None:
    """Who is in lines of a session's log; of other journals nobody asks."""
    from cairn.talk.lines import people_in

    return people_in(lines) if place_of_session(at) is not None else None


def edits_of(rows: Sequence[Row]) -> list[EditEvent]:
    """The events of episodes that were edited; one that was made of no cell has nothing to follow it."""
    from cairn.strategies import EditEvent

    places = {path: place_of(Locator(path)) for path in {row.path for row in rows if row.cell_id}}
    return [
        EditEvent(row.scope, row.entry_id, place.day, row.cell_id, row.session_id)
        for row in rows
        if row.cell_id and row.session_id and (place := places[row.path]) is not None
    ]


def with_talk(storage: StorageBackend, events: Sequence[EditEvent]) -> list[EditEvent]:
    """Those of episodes whose talk may be here: each log is asked for, or where they are many, their folders are listed."""
    from cairn.talk.sessions import session_locator, sessions_of

    def is_there(at: Locator) -> bool:
        try:
            return storage.exists(at)
        except CairnError:
            return True

    if len(events) < _MANY_EDITS:
        return [one for one in events if is_there(session_locator(one.scope.space, one.session_id))]
    spaces = {one.scope.space for one in events}
    try:
        logs = {space: {at.key for at in storage.list(sessions_of(space))} for space in spaces}
    except CairnError:
        return list(events)
    # The log of a long id is in a folder of its own.
    return [
        one
        for one in events
        if (here := logs[one.scope.space])
        and "/".join(session_locator(one.scope.space, one.session_id).parts[:4]) in here
    ]


class _Derived(DerivedMaintenance):
    """What is made of the notes of an open root: the index, and the pages of each space."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def reindex(self, tier: Tier) -> None:
        if tier is Tier.LOCAL_INDEX:
            self._parts.waits.rebuild()
        elif tier is Tier.SHARED_ABSTRACTS:
            from cairn.governed import pages

            for space in self._parts.root.spaces():
                pages.refresh(self._parts.keeper, space)
        else:
            raise Invalid(f"{tier.value} is the truth: nothing can make it anew.", tier=tier.value)

    def changed_since(self, mtime: float) -> list[Locator]:
        return self._parts.indexer.changed_since(mtime)


def _checked_index_dir(settings: Settings, storage: StorageBackend, root: MemoryRoot) -> Path:
    """Where the index lives; never inside a tree that an outside service replicates."""
    chosen = settings.index_dir
    if storage.capabilities.sync and chosen.is_relative_to(settings.root):
        inside = Locator(chosen.relative_to(settings.root).as_posix())
        replace(root.tiers(Space()), local_index=inside if inside.key else root.index).check_for(
            storage.capabilities
        )
    return chosen


def _local(settings: Settings, storage: StorageBackend) -> StorageBackend | None:
    """Storage of this machine alone, where the root is replicated to others."""
    if not storage.capabilities.sync:
        return None
    return DeviceLocalBackend(Path(locks_directory(settings.root, settings.cache_dir)) / "cells")


def _lock_dir(settings: Settings, storage: StorageBackend) -> Path:
    if storage.capabilities.sync:
        return Path(locks_directory(settings.root, settings.cache_dir)) / "names"
    return settings.root / ".tmp" / "locks"
