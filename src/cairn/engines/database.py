"""A SQLite file that is reopened or recreated when it vanishes, breaks, is locked or belongs to another
program.

Everything under `.index/` is disposable while the service runs. So each use looks whether the file it has
open is still the file that is there (one `stat`), opens anew where it is not, sets a broken file aside and
starts an empty one, and waits out a busy one. What was lost is told by `generation`: it differs from the one
seen before, and whoever keeps derived data looks at that.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import sqlite3
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from cairn.engines.tree import trouble_of
from cairn.errors import Unavailable

BUSY_SECONDS = 15.0
_STATEMENT_SECONDS = 1.0
_VANISHING_SECONDS = 1.0
_GIVEN_UP_SECONDS = 5.0
_LOGS = ("-wal", "-shm")
_SIDE_FILES = (*_LOGS, "-journal")
_ASIDE = ("damaged", "foreign", "taken", "unread")  # what files are called that were set aside
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_LOST = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR}
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_INTERRUPT}
_MOST_STRIKES = 6
_STAMPS_KEPT = 64
_CACHE_KB = 512  # of each of some twenty connections: the system caches pages
# From so many rows on a transaction is given room: with the little that a connection has, pages go to disk and back.
_MANY_ROWS, _ROOM_KB = 500, 16_384
_VACUUM = threading.Lock()

log = logging.getLogger("cairn.index")

T = TypeVar("T")


class _Vanishing(sqlite3.OperationalError):
    """The file, or its log, was removed or replaced while it was opened."""

    sqlite_errorcode = sqlite3.SQLITE_CANTOPEN


class _Busy(sqlite3.OperationalError):
    """Readers hold on, or the connection was closed by a thread that noticed a new file first."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class _OtherVersion(sqlite3.DatabaseError):
    """The file has another schema than ours."""

    sqlite_errorcode = sqlite3.SQLITE_FORMAT


class _Connection(sqlite3.Connection):
    """A connection that can be referred to weakly, so that a finished thread's is not kept alive.

    Whoever asks it something holds `used`: closed by another thread meanwhile, SQLite would read freed memory.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        self.used = threading.RLock()
        super().__init__(*args, **more)

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it never opened: the folder was being removed
            self.close()


class Remembered(Generic[T]):
    """What was read from a database, by what was asked: each is read again once anybody has committed there."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[T, dict[int, int]]] = {}

    def get(self, db: Database, asked: Hashable, read: Callable[[T | None], T]) -> T:
        """What there is now; `read` is given what was held, and gives that very thing where it is so still.

        The stamp is taken first: what is committed while it is read is seen the next time. What a thread found to be so still
        is noted beside what the others found, and they need not look again.
        """
        connection, number = db.stamp()
        value, stamps = self._known.get(asked) or (None, {})
        if value is not None and stamps.get(connection) == number:
            return value
        found = read(value)
        held = self._known.get(asked)
        if held is None or held[0] is not found or len(held[1]) >= _STAMPS_KEPT:
            if len(self._known) >= self._most:
                self._known.clear()
            held = self._known[asked] = found, {}
        held[1][connection] = number
        return found


class Database:
    """One SQLite file in WAL mode: a reading connection per thread, one writing connection behind a lock.

    Args:
        path: The file. Its directory is made when missing.
        schema: The statements that make an empty file usable.
        version: A file of another version is removed, and what it held is made again from the files.
        attach: Further files by schema name, opened along (each with its own `Database`).
    """

    def __init__(
        self, path: Path, schema: str, *, version: int, attach: dict[str, Database] | None = None
    ) -> None:
        self.path = path
        self._name, self._logs = str(path), tuple(f"{path}{suffix}" for suffix in _LOGS)
        self._schema = schema
        self._version = version
        self._attached = attach or {}
        self._lock = threading.RLock()
        self._local = threading.local()
        self._identity: tuple[int, ...] | None = None
        self._without_log: tuple[int, ...] | None = None
        self._writer: sqlite3.Connection | None = None
        self._readers: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._epoch = 0
        self._opened = itertools.count()
        self._attached_epochs: list[int] = []
        self._generation = ""
        self._gave_up_at = float("-inf")
        self._closed = False

    @property
    def generation(self) -> str:
        """Which file this is; another value means that all earlier content is gone."""
        self._living(self.make_current)
        return self._generation

    def read(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Run `ask` on this thread's reading connection; again on a fresh file if the old one is lost."""

        def once() -> T:
            connection = self._reader()
            with connection.used:
                try:
                    return ask(connection)
                except sqlite3.ProgrammingError:
                    _notice_close(connection)
                    raise
                finally:
                    if self._closed:
                        connection.close()

        return self._living(once)

    def write(
        self, change: Callable[[sqlite3.Connection], T], *, patience: float = BUSY_SECONDS, rows: int = 0
    ) -> T:
        """Run `change` in one immediate transaction. It may be run again, so it must only touch the database.

        `rows` says about how many it writes: for many the connection is given more memory for its pages.

        Raises:
            Unavailable: it could not be done within `patience` seconds.
        """

        def once() -> T:
            with self._lock:
                self._look()
                writer = self._writer
                assert writer is not None
                try:
                    if rows >= _MANY_ROWS:
                        writer.execute(f"PRAGMA cache_size = -{_ROOM_KB}")
                    writer.execute("BEGIN IMMEDIATE")
                    result = change(writer)
                    writer.execute("COMMIT")
                except BaseException as error:
                    with contextlib.suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                    if isinstance(error, sqlite3.ProgrammingError):
                        _notice_close(writer)
                    raise
                finally:
                    if rows >= _MANY_ROWS:
                        with contextlib.suppress(sqlite3.Error):
                            writer.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
                return result

        return self._living(once, patience)

    @contextlib.contextmanager
    def one_look(self) -> Iterator[None]:
        """Inside, this thread looks once whether the file is the one that is there, and `kept` values stay.

        One question reads a dozen times. All of it is then read from one file; whether that is still there is for the
        asker to see behind it, by `generation`.
        """
        self._local.looked, self._local.memo = 0, {}
        try:
            yield
        finally:
            self._local.looked, self._local.memo = -1, None

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives; within one look the same for the same key."""
        memo: dict[Hashable, T] | None = getattr(self._local, "memo", None)
        if memo is None:
            return make()
        if key not in memo:
            memo[key] = make()
        return memo[key]

    def stamp(self) -> tuple[int, int]:
        """Which connection this thread reads by, and a number that changes on it when anybody committed: see `Remembered`."""

        def ask(connection: sqlite3.Connection) -> tuple[int, int]:
            number = self._local.held[2]
            return number, int(connection.execute("PRAGMA data_version").fetchone()[0])

        return self.kept("stamp", lambda: self.read(ask))

    def shrink(self) -> None:
        """Fold the write-ahead log into the file, where no reader stands in the way."""
        with self._lock:
            self._living(self.make_current)
            assert self._writer is not None
            with contextlib.suppress(sqlite3.OperationalError):
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def scrub(self, seconds: float = 15.0) -> bool:
        """Write the file anew without what was deleted, so that none of its bytes remain; False if readers held on.

        Deleted rows leave their text in free pages and in the write-ahead log. Files that were set aside, as
        broken or as another program's, go too.
        """
        for ending in _ASIDE:
            for old in self.path.parent.glob(f"{self.path.name}.{ending}*"):
                old.unlink(missing_ok=True)

        def once() -> bool:
            with self._lock:
                self.make_current()
                assert self._writer is not None
                self._write_anew(self._writer)
                busy = self._writer.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()[0]
                if busy:
                    raise _Busy("database is locked")
                return True

        try:
            return self._living(once, seconds)
        except Unavailable:
            return False

    def _write_anew(self, connection: sqlite3.Connection) -> None:
        """Have SQLite write the file anew by way of an unnamed file beside it: held in memory, a copy is as large as the index.

        Where SQLite cannot be told the folder, the copy is held: what is private does not go to the system's own.
        """
        beside = str(self.path.parent).replace("'", "''")
        with _VACUUM:  # the folder is one for the whole process
            connection.execute(f"PRAGMA temp_store_directory = '{beside}'")
            try:
                if connection.execute("PRAGMA temp_store_directory").fetchone():
                    connection.execute("PRAGMA temp_store = FILE")
                connection.execute("VACUUM main")
            finally:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute("PRAGMA temp_store_directory = ''")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()
            for connection in list(self._readers):
                with contextlib.suppress(sqlite3.Error):
                    if connection.used.acquire(blocking=False):
                        try:
                            connection.close()
                        finally:
                            connection.used.release()
                    else:
                        connection.interrupt()  # the thread that uses it closes it

    def _living(self, act: Callable[[], T], patience: float = BUSY_SECONDS) -> T:
        began = time.monotonic()
        deadline = began + patience
        pause = 0.002
        strikes = 0
        while True:
            if self._closed:
                raise Unavailable(f"{self.path.name} is closed: the memory was shut down.")
            try:
                return act()
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
                trouble = Unavailable(f"{self.path.name} cannot be used: {error}.")
                if code in _BROKEN:
                    if not any(one.heal() for one in self._attached.values()):
                        self._set_aside()
                elif code == sqlite3.SQLITE_ERROR:
                    # A table is missing, or being made: whole again by now, or whole all along. The second is our own mistake.
                    strikes += 1
                    if self._sort() != "ours":
                        self._set_aside()
                    elif strikes > _MOST_STRIKES:
                        raise trouble from error
                elif code in _LOST:
                    self._drop()
                    # Shorter than it says, and still so on new connections: its log was cut, which nothing else would mend.
                    strikes += getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
                    if strikes > _MOST_STRIKES:
                        self._set_aside()
                    if time.monotonic() > began + self._hope():
                        self._gave_up_at = time.monotonic()
                        raise trouble from error
                elif code not in _PASSING:
                    raise trouble from error
                if time.monotonic() > deadline:
                    raise trouble from error
            except OSError as error:
                # A folder that is being removed under us shows as missing, or as there and not there.
                passing = isinstance(error, FileNotFoundError | FileExistsError)
                if not passing or time.monotonic() > min(deadline, began + self._hope()):
                    self._gave_up_at = time.monotonic()
                    raise Unavailable(f"{self.path.name} cannot be used: {trouble_of(error)}.") from error
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _hope(self) -> float:
        """How long a folder that cannot be used is tried: hardly, while the last failure is fresh in mind."""
        return 0.05 if time.monotonic() - self._gave_up_at < _GIVEN_UP_SECONDS else _VANISHING_SECONDS

    def _reader(self) -> _Connection:
        self.make_current()
        held: tuple[int, _Connection, int] | None = getattr(self._local, "held", None)
        if held is None or held[0] != self._epoch:
            if held is not None:
                held[1].close()
            self._local.held = None
            with self._lock:
                opened = self._open()
                if not self._is_whole():
                    # Its log went while this opened: it would read a file without what was committed last.
                    opened.close()
                    raise _Vanishing("unable to open: its files are being removed")
                held = (self._epoch, opened, next(self._opened))
                self._readers.add(opened)
            self._local.held = held
        return held[1]

    def _is_whole(self) -> bool:
        """Whether the file that is open, with its log, is the one that is there; the attached ones too."""
        return self.is_current() and all(one.is_current() for one in self._attached.values())

    def is_current(self) -> bool:
        """Whether the file that is open is the file that is there."""
        return self._identity is not None and self._found() == self._identity

    def make_current(self) -> int:
        """Make sure that the file that is open is the file that is there; which opening of it this is."""
        looked = getattr(self._local, "looked", -1)
        if looked == self._epoch and self._identity is not None:
            return self._epoch
        epoch = self._look()
        if looked >= 0:
            self._local.looked = epoch
        return epoch

    def _look(self) -> int:
        attached = [database.make_current() for database in self._attached.values()]
        if self.is_current() and attached == self._attached_epochs:
            return self._epoch
        with self._lock:
            if self._closed:
                raise Unavailable(f"{self.path.name} is closed: the memory was shut down.")
            if self.is_current() and attached == self._attached_epochs:
                return self._epoch
            self._drop()
            with self._guarded():
                for suffix in ("", *_SIDE_FILES):
                    clear(f"{self.path}{suffix}")
                found = self._found()
                if (
                    found is not None
                    and (
                        # Emptied by someone; older connections may still hold its locks, so start another file.
                        self.path.stat().st_size == 0
                        # Its log was removed under us: what was committed there is seen by nobody who comes now.
                        or found[:2] == self._without_log
                    )
                ):
                    self._unlink()
                self._without_log = None
                before = self._there()
                self._writer = self._open()
                self._prepare(self._writer)
                found = self._found()
                if found is None or found[:2] != before:
                    # Another file took its name meanwhile: what is open has no name any more, nobody else sees it.
                    raise _Vanishing("unable to open: the file was replaced")
                if 0 in found[2:] and _has_log(self._writer):
                    raise _Vanishing("unable to open: its files are being removed")
                self._epoch += 1
                self._attached_epochs = attached
                self._identity = found
            return self._epoch

    def _found(self) -> tuple[int, ...] | None:
        """Device and inode of the file, and the inodes of its log and the log's index; 0 for one not there.

        A folder is removed name by name: a file made anew in between may lose its new log to the old removal.
        """
        try:
            found = os.lstat(self._name)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None  # a link may lead to anybody's database: it is not opened
        identity = [found.st_dev, found.st_ino]
        for log_file in self._logs:
            try:
                identity.append(os.lstat(log_file).st_ino)
            except FileNotFoundError:
                identity.append(0)
        return tuple(identity)

    def _there(self) -> tuple[int, ...] | None:
        """The file's identity before it is opened; an empty one is made where there is none."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        found = self._found()
        return found[:2] if found is not None else None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """One process at a time creates or replaces the file, unless the whole folder vanishes meanwhile."""
        own_folder(self.path.parent)
        guard = str(self.path.parent / ".opening")
        clear(guard)
        handle = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _open(self) -> _Connection:
        connection = sqlite3.connect(
            self.path,
            factory=_Connection,
            timeout=_STATEMENT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA journal_size_limit=16777216")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            for name, database in self._attached.items():
                connection.execute(f"ATTACH DATABASE ? AS {name}", (str(database.path),))
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found not in {0, self._version} or (found == 0 and _is_foreign(connection)):
            raise _OtherVersion(f"it has schema version {found}, not {self._version}")
        if found == 0:
            # Where the guard vanished with its folder, two may get here: the second finds a table and looks again.
            connection.executescript(
                "BEGIN IMMEDIATE;"
                "CREATE TABLE IF NOT EXISTS birth(generation TEXT NOT NULL);"
                f"INSERT INTO birth SELECT '{uuid.uuid4().hex}' WHERE NOT EXISTS (SELECT 1 FROM birth);"
                f"{self._schema};PRAGMA user_version={self._version};COMMIT;"
            )
        self._generation = str(connection.execute("SELECT generation FROM birth").fetchone()[0])

    def _drop(self) -> None:
        """Let go of the file. Reading connections are closed by the threads that use them."""
        with self._lock:
            with contextlib.suppress(OSError):
                found = self._found()
                if self._identity and found and found[:2] == self._identity[:2] and found != self._identity:
                    self._without_log = found[:2]
            self._identity = None
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(sqlite3.Error):
                    writer.close()

    def heal(self) -> bool:
        """Move the file out of the way if it cannot be read; whether it could not."""
        is_broken = self._sort() != "ours"
        if is_broken:
            self._set_aside()
        return is_broken

    def _set_aside(self) -> None:
        """Move a file that cannot be read, or is not ours, out of the way, unless someone already did.

        One of ours with another schema is sound and derived, so it is removed: kept, it would only take room.
        """
        with self._lock:
            mine = self._identity
            self._drop()
            with contextlib.suppress(OSError), self._guarded():
                if mine not in {None, self._found()}:
                    return
                sort = self._sort()
                if mine is None and sort == "ours":
                    return
                if sort == "old":
                    self._unlink()
                    log.info("%s is of another version of Cairn; it is made anew.", self.path.name)
                    return
                theirs = sort == "foreign"
                aside = f"{self.path}.{'foreign' if theirs else 'damaged'}"
                os.replace(self.path, aside)
                for suffix in _SIDE_FILES if theirs else ():  # what is still in its log belongs to it
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")
                self._unlink()
                log.warning(
                    "%s was set aside as %s; it is made anew.", self.path.name, os.path.basename(aside)
                )

    def _sort(self) -> Literal["ours", "old", "foreign", "damaged"]:
        """What the file is: ours, ours with another schema, a sound one without our mark, or none that can be used."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=1.0)) as db:
                if _is_foreign(db):
                    return "foreign"
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version not in {0, self._version}:
                    return "old"
                made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'birth'").fetchone()
                return "ours" if version and made else "damaged"
        except sqlite3.DatabaseError as error:
            return "ours" if error.sqlite_errorcode & 0xFF in _PASSING else "damaged"

    def _unlink(self) -> None:
        for suffix in ("", *_SIDE_FILES):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def own_folder(path: Path) -> None:
    """Make a folder of the index; what else stands in its place is taken away, a link above all.

    It is looked at once: asked twice, one that is removed and made anew in between would pass for something else.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFDIR
    if not stat.S_ISDIR(mode):
        log.warning("%s is no folder of ours; it is taken away and made anew.", path.name)
        with contextlib.suppress(IsADirectoryError):  # somebody else made it anew just now
            path.unlink(missing_ok=True)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def clear(path: str) -> None:
    """Take away what is no regular file: a link would have us write elsewhere, a pipe or a folder would stop us."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode):
        return
    log.warning("%s is no file of ours; it is taken away and made anew.", os.path.basename(path))
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def _has_log(connection: sqlite3.Connection) -> bool:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"


def _is_foreign(connection: sqlite3.Connection) -> bool:
    """Whether there are tables, and none of them is the one that every file of ours has."""
    names = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return bool(names) and "birth" not in names


def _notice_close(connection: sqlite3.Connection) -> None:
    """A use of a connection that another thread closed, because it saw a new file first, is tried again."""
    try:
        connection.total_changes  # noqa: B018 -- it raises on a closed connection
    except sqlite3.ProgrammingError:
        raise _Busy("the connection was closed") from None


def beginning_with(column: str, starts: Sequence[str]) -> tuple[str, dict[str, object]]:
    """A further condition on a column and its values: it begins with one of `starts`; none where there are none."""
    named: dict[str, object] = {}
    for number, start in enumerate(starts):
        named |= {f"from{number}": start, f"upto{number}": start[:-1] + chr(ord(start[-1]) + 1)}
    either = [f"({column} >= :from{number} AND {column} < :upto{number})" for number in range(len(starts))]
    return f" AND ({' OR '.join(either)})" if either else "", named
