"""Journals and locks in PostgreSQL, for many machines on one bucket.

A journal is one row that says how long it is and one row per append: an append is a single statement, durable when it
is committed, and the row of the journal puts appends in order. A lock is an advisory lock of a connection: it is gone
with the connection, so a dead machine holds nothing.
"""

from __future__ import annotations

import functools
import hashlib
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from cairn.engines.changes import Base, Statements
from cairn.engines.inmemory import InMemoryLocks
from cairn.engines.outages import Outage
from cairn.errors import Misconfigured, StorageFailed, Unavailable
from cairn.seams import JournalSlice, Locator, Locks
from cairn.seams.storage import journal_made_anew, journal_moved, journal_slice, journal_unit

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

T = TypeVar("T")
SCHEMA = 2
"""1 becomes 2 with the first journal that leaves the database: to a server that knows 1 only it would be shorter."""
WAIT_SECONDS = 5
"""For how long a call waits for a database that does not answer; those that come after it are told at once."""
_FIRST_NAP = 0.001
_LONGEST_NAP = 0.02
_START_NAP = 0.2
_MAKE = """
CREATE TABLE IF NOT EXISTS cairn_schema (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS cairn_journals (
    root text NOT NULL, key text NOT NULL, size bigint NOT NULL, writer text NOT NULL,
    changed timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (root, key));
CREATE TABLE IF NOT EXISTS cairn_units (
    root text NOT NULL, key text NOT NULL, start bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (root, key, start));
CREATE INDEX IF NOT EXISTS cairn_journals_changed ON cairn_journals (root, changed);
CREATE TABLE IF NOT EXISTS cairn_notes (
    root text NOT NULL, key text NOT NULL, writer text NOT NULL, changed timestamptz NOT NULL, PRIMARY KEY (root, key));
CREATE INDEX IF NOT EXISTS cairn_notes_changed ON cairn_notes (root, changed);
CREATE TABLE IF NOT EXISTS cairn_marks (
    root text NOT NULL, name text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (root, name));
CREATE UNLOGGED TABLE IF NOT EXISTS cairn_vectors (
    root text NOT NULL, model text NOT NULL, key bytea NOT NULL, holder text NOT NULL, until timestamptz NOT NULL,
    fence bigint NOT NULL DEFAULT 1, vector bytea, pieces bytea, weights bytea, PRIMARY KEY (root, model, key));
CREATE TABLE IF NOT EXISTS cairn_jobs (
    root text NOT NULL, id bigserial UNIQUE, strategy text NOT NULL, input text NOT NULL, part text NOT NULL,
    payload text NOT NULL, gate_key text NOT NULL, status text NOT NULL, attempts integer NOT NULL DEFAULT 0,
    due_at float8 NOT NULL, enqueued_at float8 NOT NULL, started_at float8, finished_at float8,
    reason text NOT NULL DEFAULT '', outputs text NOT NULL DEFAULT '[]', fence bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (root, strategy, input));
CREATE INDEX IF NOT EXISTS cairn_jobs_waiting ON cairn_jobs (root, strategy, id) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS cairn_jobs_running ON cairn_jobs (root, part) WHERE status = 'running';
CREATE TABLE IF NOT EXISTS cairn_parts (
    root text NOT NULL, name text NOT NULL, holder text NOT NULL DEFAULT '', fence bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT '-infinity', PRIMARY KEY (root, name));
CREATE INDEX IF NOT EXISTS cairn_parts_held ON cairn_parts (root, holder) WHERE holder <> '';
CREATE TABLE IF NOT EXISTS cairn_counters (
    root text NOT NULL, strategy text NOT NULL, key text NOT NULL, value bigint NOT NULL, opened_at float8,
    PRIMARY KEY (root, strategy, key));
CREATE TABLE IF NOT EXISTS cairn_schedules (
    root text NOT NULL, strategy text NOT NULL, cron text NOT NULL, next_at float8 NOT NULL, last_at float8,
    PRIMARY KEY (root, strategy));
CREATE TABLE IF NOT EXISTS cairn_seen (
    root text NOT NULL, session text NOT NULL, size bigint NOT NULL, PRIMARY KEY (root, session));
CREATE TABLE IF NOT EXISTS cairn_tokens (
    root text NOT NULL, name text NOT NULL, data text NOT NULL, PRIMARY KEY (root, name));
CREATE TABLE IF NOT EXISTS cairn_servers (
    root text NOT NULL, name text NOT NULL, address text NOT NULL, place text NOT NULL, until timestamptz NOT NULL,
    PRIMARY KEY (root, name));
CREATE TABLE IF NOT EXISTS cairn_forgotten (
    root text NOT NULL, salt text NOT NULL, writer text NOT NULL, at timestamptz NOT NULL, hashes text[] NOT NULL,
    PRIMARY KEY (root, salt));
CREATE TABLE IF NOT EXISTS cairn_archives (
    root text PRIMARY KEY, number bigint NOT NULL, read_back text NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS cairn_queues (
    root text NOT NULL, queue text NOT NULL, birth text NOT NULL DEFAULT gen_random_uuid(), lsn bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0, ready_for text NOT NULL DEFAULT '', scan_of text NOT NULL DEFAULT '',
    scan_lsn bigint NOT NULL DEFAULT 0, used timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (root, queue));
CREATE TABLE IF NOT EXISTS cairn_changes (
    root text NOT NULL, queue text NOT NULL, path text COLLATE "C" NOT NULL, kind text NOT NULL, change_type text NOT NULL,
    mtime float8, size bigint, seen_at float8, last_changed_at float8 NOT NULL, last_attempt_at text, lsn bigint NOT NULL,
    since bigint NOT NULL, claimed bigint, later bigint, status text NOT NULL, holder text, error text,
    retryable boolean NOT NULL DEFAULT true, unread boolean NOT NULL DEFAULT false, retry_count integer NOT NULL DEFAULT 0,
    not_before float8 NOT NULL DEFAULT 0, PRIMARY KEY (root, queue, path));
CREATE INDEX IF NOT EXISTS cairn_changes_due ON cairn_changes (root, queue, status, lsn);
INSERT INTO cairn_schema SELECT 1 WHERE NOT EXISTS (SELECT FROM cairn_schema);
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'cairn_journals'::regclass AND attname = 'people') THEN
        ALTER TABLE cairn_journals ADD COLUMN people text[], ADD COLUMN known bigint NOT NULL DEFAULT -1;
    END IF;
END $$;
"""
_PEOPLE = """people = CASE WHEN %(people)s::text[] IS NULL OR j.people @> %(people)s::text[] THEN j.people
        ELSE (SELECT array_agg(DISTINCT one) FROM unnest(j.people || %(people)s::text[]) AS one) END,
    known = CASE WHEN j.known = j.size AND %(people)s::text[] IS NOT NULL THEN j.size + %(more)s ELSE -1 END"""
"""Who is in a journal, known as far as `known`: a server of before does not note it, so less than all of it may be."""
_NEW = """INSERT INTO cairn_journals AS j (root, key, size, writer, people, known)
    VALUES (%(root)s, %(key)s, %(more)s, %(writer)s, %(people)s::text[],
        CASE WHEN %(people)s::text[] IS NULL THEN -1 ELSE %(more)s END)"""
_APPENDED = """
WITH j AS (
    {how}
    RETURNING size)
INSERT INTO cairn_units SELECT %(root)s, %(key)s, size - %(more)s, %(data)s FROM j RETURNING start + %(more)s
"""
_GROWN = "size = j.size + %(more)s, writer = %(writer)s, changed = clock_timestamp()"
_APPEND = _APPENDED.format(how=f"{_NEW} ON CONFLICT (root, key) DO UPDATE SET {_GROWN}, {_PEOPLE}")
_APPEND_AT = _APPENDED.format(
    how=f"UPDATE cairn_journals AS j SET {_GROWN}, {_PEOPLE} WHERE root = %(root)s AND key = %(key)s AND size = %(expect)s"
)
_APPEND_FIRST = _APPENDED.format(
    how=f"{_NEW} ON CONFLICT (root, key) DO UPDATE SET {_GROWN}, people = excluded.people, known = excluded.known"
    " WHERE j.size = 0"
)
_READ = """
SELECT j.size, u.start, u.data FROM cairn_journals j LEFT JOIN cairn_units u
    ON u.root = j.root AND u.key = j.key AND u.start >= coalesce((
    SELECT max(start) FROM cairn_units WHERE root = %(root)s AND key = %(key)s AND start < %(start)s), 0)
WHERE j.root = %(root)s AND j.key = %(key)s ORDER BY u.start
"""
_SILENT = """
SELECT key FROM cairn_journals j WHERE root = %(root)s AND changed < clock_timestamp() - %(days)s * interval '1 day'
AND EXISTS (SELECT FROM cairn_units u WHERE u.root = j.root AND u.key = j.key) ORDER BY key
"""
_SINCE_A_DAY = """
INSERT INTO cairn_marks AS m VALUES (%(root)s, %(name)s, clock_timestamp())
ON CONFLICT (root, name) DO UPDATE SET at = m.at RETURNING at < clock_timestamp() - interval '1 day'
"""
_CHANGED = """
SELECT key, changed FROM cairn_journals
    WHERE root = %(root)s AND writer <> %(writer)s AND changed > %(since)s - interval '10 seconds'
UNION ALL SELECT key, changed FROM cairn_notes
    WHERE root = %(root)s AND writer <> %(writer)s AND changed > %(since)s - interval '10 seconds'
"""
_TELL = """
INSERT INTO cairn_notes SELECT %(root)s, key, %(writer)s, clock_timestamp() FROM unnest(%(keys)s::text[]) AS key
ON CONFLICT (root, key) DO UPDATE SET writer = excluded.writer, changed = excluded.changed RETURNING true
"""
_TURN = """
INSERT INTO cairn_marks AS m VALUES (%(root)s, %(name)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (root, name) DO UPDATE SET at = excluded.at WHERE m.at <= clock_timestamp() RETURNING true
"""
_NOT_LET_IN = ("authentication", "no password", "does not exist", "pg_hba.conf", "permission denied")
_OF_MACHINE = frozenset({"indexer", "engine"})  # the leases of `retrieval.indexer` and `strategies.engine`
_LOOK_SECONDS = 0.25
_IDLE_SECONDS = 1.0


class Postgres:
    """Connections to one database, and errors in our words.

    Args:
        url: "postgresql://user@host/name"; a password is best left to PGPASSWORD or a password file.
        root: Which root this is: several share a database.
    """

    def __init__(self, url: str, root: str, *, connections: int = 16) -> None:
        try:
            from psycopg_pool import ConnectionPool
        except ImportError:
            raise Misconfigured(
                "psycopg is not installed: pip install 'cairn-memory[cluster]'", setting="storage.database"
            ) from None
        self.url, self.root = url, root
        self.writer = uuid.uuid4().hex
        self.outage = Outage()
        self._migrate()
        self._used: WeakKeyDictionary[Connection[Any], float] = WeakKeyDictionary()
        self.pool: ConnectionPool[Connection[Any]] = ConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            timeout=WAIT_SECONDS,
            kwargs={"autocommit": True, "connect_timeout": WAIT_SECONDS},
            check=self._check,
            open=True,
        )

    def close(self) -> None:
        self.pool.close()

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        import psycopg
        from psycopg_pool import PoolTimeout

        with self.outage.watched():
            try:
                with self.pool.connection() as one:
                    yield one
                    self._used[one] = time.monotonic()
            except (PoolTimeout, psycopg.OperationalError) as error:
                raise no_answer(error) from error
            except psycopg.errors.UndefinedTable as error:
                raise StorageFailed(
                    "The tables of this memory are gone from its database, so nothing is acknowledged: stop the servers, run "
                    "`cairn restore database` on each machine, which reads them back from the bucket, and start them again."
                ) from error
            except psycopg.Error as error:
                raise StorageFailed(f"PostgreSQL refused: {_short(error)}") from error

    def _check(self, one: Connection[Any]) -> None:
        """Ask a connection whether it is alive that nobody used for a moment: PostgreSQL may have been restarted."""
        if time.monotonic() - self._used.get(one, float("-inf")) > _IDLE_SECONDS:
            self.pool.check_connection(one)

    def ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        """All rows of a query, with `root` given."""
        with self.connection() as one:
            return one.execute(query, {"root": self.root, "writer": self.writer, **values}).fetchall()

    def tell(self, *keys: str) -> None:
        """Let other machines know that notes changed. One that is not told finds it by its next scan."""
        with suppress(Unavailable):
            self.ask(_TELL, keys=sorted(keys))

    def turn(self, name: str, seconds: float) -> bool:
        """Whether what `name` says is this machine's to do now: the first to ask has it, for so long."""
        try:
            return bool(self.ask(_TURN, name=name, seconds=seconds))
        except Unavailable:
            return False

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """One process at a time does what `name` says, of all on this root; another waits for it."""
        number = _number(f"{self.root} alone {name}")
        with self.connection() as one:
            one.execute("SELECT pg_advisory_lock(%s)", [number])
            try:
                yield
            finally:
                one.execute("SELECT pg_advisory_unlock(%s)", [number])

    def drop_vectors(self, older_than_seconds: float = 0.0) -> None:
        """Let go of vectors that were made so long ago: each machine has them by then, or makes its own."""
        self.ask(
            "DELETE FROM cairn_vectors WHERE root = %(root)s"
            " AND until < clock_timestamp() - %(seconds)s * interval '1 second' RETURNING true",
            seconds=older_than_seconds,
        )

    def drop_news(self) -> None:
        """Let go of the names of notes that changed an hour ago: whoever has not heard of them looks at every note."""
        self.ask(
            "DELETE FROM cairn_notes WHERE root = %(root)s AND changed < clock_timestamp() - interval '1 hour' RETURNING true"
        )

    def watch(self, on_keys: Callable[[set[str]], None], stop: threading.Event) -> None:
        """Report what other machines write, within a quarter of a second, until `stop` is set."""
        [[since]] = self.ask("SELECT clock_timestamp() - interval '1 minute'")
        seen: dict[str, object] = {}
        while not stop.wait(_LOOK_SECONDS):
            # A commit may become visible after a later one: look a little further back than the last time seen.
            rows = self.ask(_CHANGED, since=since)
            fresh = {key: at for key, at in rows if seen.get(key) != at}
            seen = dict(rows)
            since = max([since, *seen.values()])
            if fresh:
                on_keys(set(fresh))

    def _version(self) -> int:
        """Make what is missing of the tables; the number of their schema."""
        import psycopg

        with psycopg.connect(self.url, connect_timeout=WAIT_SECONDS) as one:
            one.execute("SELECT pg_advisory_xact_lock(%s)", [_number("cairn schema")])
            one.execute(_MAKE)
            row = one.execute("SELECT version FROM cairn_schema").fetchone()
            return row[0] if row else 0

    def _migrate(self) -> None:
        """Make or check the tables, one process at a time. The first question: whoever cannot come in learns why.

        Raises:
            Misconfigured: the address, the name or the password is wrong, or the schema is newer.
            Unavailable: it does not answer.
        """
        import psycopg

        until = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                version = self._version()
                break
            except psycopg.ProgrammingError as error:
                if error.sqlstate is not None:
                    raise StorageFailed(f"PostgreSQL refused: {_short(error)}") from error
                raise Misconfigured(
                    "storage.database is no address of a database: write postgresql://user@host/name.",
                    setting="storage.database",
                ) from None
            except psycopg.OperationalError as error:
                if any(sign in str(error) for sign in _NOT_LET_IN):
                    raise Misconfigured(
                        f"PostgreSQL does not let this server in: {_short(error)}. Correct storage.database, or "
                        "PGPASSWORD.",
                        setting="storage.database",
                    ) from error
                if time.monotonic() >= until:
                    raise no_answer(error) from error
                time.sleep(_START_NAP)
            except psycopg.Error as error:
                raise StorageFailed(f"PostgreSQL refused: {_short(error)}") from error
        if version > SCHEMA:
            raise Misconfigured(
                f"The database has schema {version}; this version of Cairn knows {SCHEMA}. Upgrade this server.",
                setting="storage.database",
            )


def _nowhere(at: Locator, _start: int, _end: int) -> bytes:
    raise StorageFailed(f"{at}: its beginning is not in the database.", key=at.key)


class PostgresJournals:
    """`Journals` as rows. The beginning of a journal may have left the database (`let_go`); it reads as before.

    Args:
        database: Where they are.
        on_rewrite: Told of a journal that was changed otherwise than at its end.
        beginning: Gives bytes of a journal that have left the database.
    """

    def __init__(
        self,
        database: Postgres,
        on_rewrite: Callable[[Locator], object] = lambda _: None,
        beginning: Callable[[Locator, int, int], bytes] = _nowhere,
    ) -> None:
        self.people_in: Callable[[Locator, Sequence[str]], Collection[str] | None] = lambda _at, _lines: None
        """Who is in lines that are appended; None where nobody can say."""
        self._database = database
        self._on_rewrite = on_rewrite
        self._beginning = beginning

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        del sync  # every commit is durable
        data = journal_unit(at, lines)
        if not data:
            return self.size(at)
        query = _APPEND if expect is None else _APPEND_AT if expect else _APPEND_FIRST
        people = self.people_in(at, lines)
        found = self._database.ask(
            query,
            key=at.key,
            more=len(data),
            data=data,
            expect=expect,
            people=None if people is None else sorted(people),
        )
        if not found:
            raise journal_moved(at, expect or 0, self.size(at))
        return int(found[0][0])

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        data = self._held(at, max(start - 1, 0))
        if data is None:
            return JournalSlice((), 0) if not start else journal_slice(at, b"", start)
        return journal_slice(at, data, start)

    def _held(self, at: Locator, start: int = 0) -> bytes | None:
        """The bytes of a journal from `start` on; None where there is none."""
        rows = self._database.ask(_READ, key=at.key, start=start)
        while rows:
            there = _first(rows)
            if start >= there:
                return _bytes(rows)[start - there :]
            trouble: StorageFailed | None = None
            try:
                data = self._beginning(at, start, there) + _bytes(rows)
            except StorageFailed as error:
                trouble = error
            # Somebody may have rewritten it meanwhile, and what was its beginning is no longer.
            rows = self._database.ask(_READ, key=at.key, start=start)
            if rows and _first(rows) == there:
                if trouble is not None:
                    raise trouble
                return data
        return None

    def silent(self, days: float) -> list[str]:
        """The journals with rows to which nothing was written for so long.

        None in the first day: a server of before, which is replaced meanwhile, would take what is left for all there is.
        """
        [[is_time]] = self._database.ask(_SINCE_A_DAY, name="journals may leave")
        return [row[0] for row in self._database.ask(_SILENT, days=days)] if is_time else []

    def let_go(self, at: Locator, copy: bytes) -> bool:
        """Drop the rows of a journal whose every byte is in `copy`, which `beginning` gives from now on; else nothing."""
        values = {"root": self._database.root, "key": at.key, "start": 0}
        with self._database.connection() as one, one.transaction():
            one.execute(
                "SELECT FROM cairn_journals WHERE root = %(root)s AND key = %(key)s FOR UPDATE", values
            )
            rows = one.execute(_READ, values).fetchall()
            if not rows or rows[0][0] != len(copy) or _bytes(rows) != copy[_first(rows) :]:
                return False
            one.execute("UPDATE cairn_schema SET version = %s WHERE version < %s", [SCHEMA, SCHEMA])
            one.execute("DELETE FROM cairn_units WHERE root = %(root)s AND key = %(key)s", values)
        return True

    def size(self, at: Locator) -> int:
        found = self.looked_at(at)
        return found[0] if found is not None else 0

    def looked_at(self, at: Locator) -> tuple[int, float] | None:
        """The size of one journal, and when it was changed; None where there is none."""
        rows = self._database.ask(
            "SELECT size, extract(epoch FROM changed)::float8 FROM cairn_journals"
            " WHERE root = %(root)s AND key = %(key)s",
            key=at.key,
        )
        return (int(rows[0][0]), float(rows[0][1])) if rows else None

    def people(self, keys: Sequence[str]) -> dict[str, frozenset[str]]:
        """Who is in each of these journals; those of which it is not known are left out."""
        rows = self._database.ask(
            "SELECT key, people FROM cairn_journals WHERE root = %(root)s AND key = ANY(%(keys)s) AND known = size",
            keys=list(keys),
        )
        return {key: frozenset(people or ()) for key, people in rows}

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        return len(self._rewrite(at, lambda old: journal_made_anew(at, lines, len(old))) or b"")

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        def edited(old: bytes) -> bytes | None:
            lines = change(journal_slice(at, old, 0).lines) if old else None
            return None if lines is None else journal_made_anew(at, lines, len(old))

        return self._rewrite(at, edited) is not None

    def whole(self, at: Locator) -> bytes | None:
        """All bytes of a journal; None where there is none."""
        return self._held(at)

    def put(self, at: Locator, data: bytes, check: Callable[[bytes | None], object]) -> None:
        """Make `data` the whole journal, once `check` has seen what is there (None: nothing) and let it pass."""
        self._rewrite(at, lambda _: data, check)

    def mend(self, at: Locator, change: Callable[[bytes], bytes | None]) -> bool:
        """Make what `change` says of a journal's bytes (none, where there is none) the whole of it; whether it did."""
        return self._rewrite(at, change) is not None

    def drop(self, at: Locator) -> bool:
        """Remove a journal; whether there was one."""
        with self._database.connection() as one, one.transaction():
            values = {"root": self._database.root, "key": at.key}
            one.execute("DELETE FROM cairn_units WHERE root = %(root)s AND key = %(key)s", values)
            gone = one.execute("DELETE FROM cairn_journals WHERE root = %(root)s AND key = %(key)s", values)
            return bool(gone.rowcount)

    def found(self, below: Locator) -> list[tuple[str, int, float]]:
        """The journals at and below a place: key, size and time."""
        query = (
            "SELECT key, size, extract(epoch FROM changed)::float8 FROM cairn_journals WHERE root = %(root)s"
        )
        if below.key:
            query += " AND (key = %(key)s OR starts_with(key, %(folder)s))"
        return self._database.ask(query + " ORDER BY key", key=below.key, folder=f"{below.key}/")

    def names(self, base: str) -> list[str]:
        """The journals and folders that stand right below a place ("" or one that ends in a slash)."""
        query = (
            "SELECT DISTINCT split_part(substr(key, %(start)s), '/', 1) FROM cairn_journals"
            " WHERE root = %(root)s AND starts_with(key, %(base)s)"
        )
        return [row[0] for row in self._database.ask(query, base=base, start=len(base) + 1)]

    def _rewrite(
        self,
        at: Locator,
        change: Callable[[bytes], bytes | None],
        check: Callable[[bytes | None], object] = lambda _: None,
    ) -> bytes | None:
        """Put what `change` makes of a journal in its place, with nobody appending meanwhile."""
        values: dict[str, object] = {
            "root": self._database.root, "key": at.key, "writer": self._database.writer
        }  # fmt: skip
        with self._database.connection() as one, one.transaction():
            # A journal that is not there yet cannot be locked by its row: the name is.
            one.execute("SELECT pg_advisory_xact_lock(%s)", [_number(f"{self._database.root} {at.key}")])
            one.execute(
                "SELECT FROM cairn_journals WHERE root = %(root)s AND key = %(key)s FOR UPDATE", values
            )
            rows = one.execute(_READ, values | {"start": 0}).fetchall()
            early = self._beginning(at, 0, _first(rows)) if rows and _first(rows) else b""
            old = early + _bytes(rows)
            check(old if rows else None)
            new = change(old)
            if new is None:
                return None
            values |= {"data": new, "size": len(new)}
            one.execute("DELETE FROM cairn_units WHERE root = %(root)s AND key = %(key)s", values)
            one.execute(
                "INSERT INTO cairn_journals (root, key, size, writer) VALUES (%(root)s, %(key)s, %(size)s, %(writer)s)"
                " ON CONFLICT (root, key)"
                " DO UPDATE SET size = %(size)s, writer = %(writer)s, changed = clock_timestamp(), people = NULL,"
                " known = -1",
                values,
            )
            if new:
                one.execute("INSERT INTO cairn_units VALUES (%(root)s, %(key)s, 0, %(data)s)", values)
        self._on_rewrite(at)
        return new


def _first(rows: Sequence[tuple[Any, ...]]) -> int:
    """Where the part of a journal begins that is in the database: at its end, where all of it has left."""
    size, first, _ = rows[0]
    return int(size if first is None else first)


def _bytes(rows: Sequence[tuple[Any, ...]]) -> bytes:
    return b"".join(bytes(row[2]) for row in rows if row[2] is not None)


class PostgresLocks:
    """`Locks` for all machines of a root, in PostgreSQL; leases of what each machine has for itself are taken here.

    One connection holds the locks of all threads of the process, which exclude each other before they ask. Should it
    break, they are all free, as they are when the machine dies; compare-and-swap still stands between two writers.
    Each machine has an index of its own and works off its own share of the jobs: those leases ask `local`.
    """

    def __init__(self, database: Postgres, local: Locks) -> None:
        self._database = database
        self._threads = InMemoryLocks()
        self._local = local
        self._mutex = threading.Lock()
        self._holder: Connection[Any] | None = None
        self._led: dict[str, Connection[Any] | None] = {}

    @contextmanager
    def hold(self, name: str, *, timeout: float = 30.0) -> Iterator[None]:
        until = time.monotonic() + timeout
        with self._threads.hold(name, timeout=timeout):
            number = _number(f"{self._database.root} lock {name}")
            nap = _FIRST_NAP
            while not self._asked(number):
                if time.monotonic() >= until:
                    raise Unavailable(
                        f'The lock "{name}" was not free within {timeout:g} s: another machine is at work there. '
                        "Try again.",
                        name=name,
                    )
                time.sleep(nap * random.uniform(0.5, 1.0))
                nap = min(nap * 1.5, _LONGEST_NAP)
            try:
                yield
            finally:
                self._free(number)

    @contextmanager
    def lease(self, name: str) -> Iterator[bool]:
        if name in _OF_MACHINE:
            with self._local.lease(name) as mine:
                yield mine
            return
        with self._threads.lease(name) as mine:
            number = _number(f"{self._database.root} lock {name}")
            try:
                mine = mine and self._asked(number)
            except Unavailable:
                mine = False
            try:
                yield mine
            finally:
                if mine:
                    self._free(number)

    def _free(self, number: int) -> None:
        with suppress(Unavailable):  # then it is free anyway
            self._ask("SELECT pg_advisory_unlock(%s)", number)

    def leads(self, name: str) -> bool:
        """Whether this process is the one of all machines that does what `name` says; it tries to be, if nobody is.

        It stays so until it ends or its connection breaks. Whoever goes on after that is refused where it writes.
        """
        number = _number(f"{self._database.root} lead {name}")
        try:
            held = self._led.get(name)
            # Asked on a connection that broke, the question is asked again on a new one, which holds nothing.
            is_there = held is self._holder and self._ask("SELECT %s IS NOT NULL", number)
            if held is not None and is_there and held is self._holder:
                return True
            leads = self._ask("SELECT pg_try_advisory_lock(%s)", number)
        except Unavailable:
            leads = False
        self._led[name] = self._holder if leads else None
        return leads

    def close(self) -> None:
        with self._mutex:
            if self._holder is not None:
                self._holder.close()
                self._holder = None

    def _asked(self, number: int) -> bool:
        """Try to have a lock. Giving one back is tried in any case."""
        with self._database.outage.watched():
            return self._ask("SELECT pg_try_advisory_lock(%s)", number)

    def _ask(self, query: str, number: int) -> bool:
        """One question on the connection that holds the locks; on a new one where that is gone."""
        import psycopg

        with self._mutex:
            for attempt in (1, 2):
                try:
                    if self._holder is None:
                        self._holder = psycopg.connect(
                            self._database.url, autocommit=True, connect_timeout=WAIT_SECONDS
                        )
                    row = self._holder.execute(query, [number]).fetchone()
                    return bool(row and row[0])
                except psycopg.Error as error:
                    if self._holder is not None:
                        self._holder.close()
                        self._holder = None
                    if attempt == 2:
                        raise no_answer(error) from error
        raise AssertionError("unreachable")


def no_answer(error: BaseException) -> Unavailable:
    """The error of a database that cannot be reached."""
    return Unavailable(
        f"PostgreSQL does not answer; nothing is acknowledged without it. Try again in a moment. ({_short(error)})"
    )


class PostgresBase(Base):
    """The database of all machines as a queue uses it, with the names of its tables, and the values that every statement has."""

    def __init__(
        self, database: Postgres, names: Mapping[str, str], given: Callable[[], dict[str, object]]
    ) -> None:
        self.database, self._given = database, given
        self._spelled = functools.cache(
            # Values are named as `:name`; psycopg has another way.
            lambda query: re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", query.format_map(names))
        )

    def ask(self, query: str, **values: object) -> list[Any]:
        return self.database.ask(self._spelled(query), **self._given(), **values)

    def work(self, work: Callable[[Statements], T], *, patience: float = 0.0) -> T:  # noqa: ARG002 -- the pool's
        given = {"root": self.database.root, **self._given()}
        with self.database.connection() as one, one.transaction():
            return work(_Transaction(one, given, self._spelled))


class _Transaction:
    def __init__(
        self, one: Connection[Any], given: Mapping[str, object], spelled: Callable[[str], str]
    ) -> None:
        self._one, self._given, self._spelled = one, given, spelled

    def ask(self, query: str, **values: object) -> list[Any]:
        return self._one.execute(self._spelled(query), {**self._given, **values}).fetchall()

    def do(self, query: str, *rows: Mapping[str, object]) -> int:
        with self._one.cursor() as cursor:
            cursor.executemany(self._spelled(query), [{**self._given, **row} for row in rows])
            return cursor.rowcount


def _number(name: str) -> int:
    """A name as the signed number that an advisory lock takes."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big", signed=True)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
