"""LanceDB tables in the bucket, for all machines of a root: one of them writes, each of them reads.

<prefix>/.index/lancedb/<form and model>/state.json              who writes, and what each table holds
<prefix>/.index/lancedb/<form and model>/<kind>_<birth>.lance    the tables

Each machine numbers its rows by itself, so in the tables a row is named by what all of them know: its place (owner, file
and entry), with a mark of what it says there. One machine leads and writes, under a lock in the database; its notes about
the tables (`state.json`) are written only over those that it read, so that one which lost its lead, and goes on, is
refused. Each machine compares its own rows with one version of the tables, notes up to which of its changes that version
has them, and asks that version alone until it has compared again: what a table does not have yet, or has otherwise, is
found beside it, as new rows always are. No question looks at the notes in the bucket, and no answer is older for a late
table. Where the store is away, or a version is gone, the answer comes from memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cairn.config import StorageSettings
from cairn.engines import plain
from cairn.engines.lance import LanceTables, OpenTable, Wish, folding
from cairn.engines.lance import arrow as arrow_table
from cairn.engines.lance import fits as fits_stamp
from cairn.engines.lance_import import imported
from cairn.engines.objects import opened_store, storing
from cairn.engines.row_tables import AMONG, scope_number
from cairn.engines.rows import SqliteIndex
from cairn.errors import CairnError, NotFound
from cairn.types import Scope

if TYPE_CHECKING:
    from cairn.engines.postgres import PostgresLocks

PREFIX = ".index/lancedb"
# Bump when a table in the bucket is made differently: machines of both versions then have tables of their own.
_FORM = 1
_LOCK = "the tables of LanceDB"
_BATCH = 20_000
# A reader compares again within this time; what it compared with stays for longer.
_LOOK_SECONDS = 5.0
_KEEP_SECONDS = 600.0
# Rows that a table has otherwise than this machine, for a while or for good (a folder that only this machine has).
_MOST_BESIDE = 1000
# After something was forgotten, a machine that may still hold it writes nothing into the tables for so long.
_QUIET_SECONDS = 120.0
_GIVEN = "CAIRN_SHARED_TABLES"
_log = logging.getLogger(__name__)


class SharedTables(LanceTables):
    """`LanceTables` in a bucket.

    Args:
        directory: This machine's index directory, for what it knows of the tables.
        place: The bucket.
        index: This machine's rows.
        locks: The locks of all machines.
        is_whole: Whether this machine's index has all there is, and is not being made anew.
        index_rows: From how many rows on a table gets an index over its vectors.
    """

    _names = "entry_id"

    def __init__(
        self,
        directory: Path,
        place: StorageSettings,
        index: SqliteIndex,
        locks: PostgresLocks,
        *,
        is_whole: Callable[[], bool] = lambda: True,
        index_rows: int | None = None,
    ) -> None:
        super().__init__(directory, **({} if index_rows is None else {"index_rows": index_rows}))
        self._place, self._index, self._locks, self._is_whole = place, index, locks, is_whole
        self._store: Any = None
        self._looked_at, self._last_look = float("-inf"), False

    # ---- reading -------------------------------------------------------------------------------------------------

    def number(self, scope: Scope, here: int) -> int:  # noqa: ARG002 -- what this machine counts means nothing there
        return _number(scope.space.app, scope.space.project, scope.track, scope.owner) >> 15

    def best(self, state: Mapping[str, Any], wishes: Sequence[Wish]) -> Iterator[tuple[str, list[int]]]:
        for wish, named in self._answers(state, wishes):
            yield wish.kind, self._here(wish.scope, named)

    def _here(self, scope: Scope, entries: Sequence[str]) -> list[int]:
        """The rows of these entries on this machine, in the same order."""
        query = f"SELECT entry_id, id FROM rows WHERE scope_id = ? AND entry_id {AMONG}"

        def ask(db: sqlite3.Connection) -> dict[str, list[int]]:
            found = dict[str, list[int]]()
            for entry, rowid in db.execute(query, (scope_number(db, scope), json.dumps([*entries]))):
                found.setdefault(entry, []).append(rowid)
            return found

        by_entry = self._index.database.read(ask)
        return [rowid for entry in dict.fromkeys(entries) for rowid in by_entry.get(entry, ())]

    async def _open_table(self, state: Mapping[str, Any], kind: str) -> OpenTable:
        """The version of a table that this machine compared its rows with."""
        held = state["kinds"][kind]
        known = self._open.get(kind)
        if known is None or (known.held["birth"], known.held["at"]) != (held["birth"], held["at"]):
            if self._connection is None:
                session = self._lancedb.Session(index_cache_size_bytes=self._cache_bytes)
                self._connection = await self._lancedb.connect_async(
                    self._address(state["model"]), session=session, storage_options=self._options()
                )
            table = await self._connection.open_table(_named(kind, held))
            await table.checkout(held["at"])
            known = self._open[kind] = OpenTable(held, table)
        return known

    def _address(self, model: str) -> str:
        return f"{self._place.url.rstrip('/')}/{_home(model)}"

    def _options(self) -> dict[str, str]:
        """How LanceDB reaches the bucket: as our own client does."""
        seconds = f"{self._place.timeout_seconds:g}s"
        options = {"timeout": seconds, "connect_timeout": "5s", "client_max_retries": "3"}
        options["client_retry_timeout"] = str(max(1, int(self._place.timeout_seconds)))
        options["region"] = self._place.region or os.environ.get("AWS_REGION") or "us-east-1"
        if self._place.endpoint:
            options["endpoint"] = self._place.endpoint
            options["allow_http"] = str(self._place.endpoint.startswith("http://")).lower()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            if value := os.environ.get(name):
                options[name.lower()] = value
        return options

    # ---- the notes about the tables ------------------------------------------------------------------------------

    def _noted(self, model: str) -> tuple[dict[str, Any], str]:
        """What is noted about the tables of a model, and its tag; nothing where there are none yet."""
        import obstore

        key = f"{_home(model)}/state.json"
        try:
            with storing(self._place.url, key):
                found = obstore.get(self._opened(), key)
                state, tag = json.loads(bytes(found.bytes())), str(found.meta["e_tag"])
        except NotFound:
            return {"epoch": 0, "writer": "", "scrub": "", "kinds": {}}, ""
        return state, tag

    def _note(self, model: str, state: dict[str, Any], tag: str) -> str:
        """Write the notes over those with this tag; their new tag.

        Raises:
            Conflict: another machine wrote them meanwhile, so it leads now.
        """
        import obstore

        state["written"] = uuid.uuid4().hex
        key, mode = f"{_home(model)}/state.json", cast("Any", {"e_tag": tag} if tag else "create")
        with storing(self._place.url, key):
            made = obstore.put(
                self._opened(), key, json.dumps(state).encode(), mode=mode, use_multipart=False
            )
        return str(made["e_tag"])

    def _opened(self) -> Any:
        self._store = self._store or opened_store(self._place)
        return self._store

    # ---- writing -------------------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether the tables were written since this machine compared its rows with them; asked every few seconds."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at, self._last_look = time.monotonic(), False
            with suppress(CairnError):
                noted, _ = self._noted(self._index.stamp()["model"])
                self._last_look = noted.get("written") != self.state().get("written")
        return self._last_look

    def leads(self) -> bool:
        return self._locks.leads(_LOCK)

    def begin_fold(self) -> subprocess.Popen[bytes]:
        self._looked_at = float("-inf")
        role = "write" if self.leads() else "compare"
        command = [sys.executable, "-P", "-m", "cairn.engines.shared_tables", str(self._directory), role]
        return folding(command, **{_GIVEN: json.dumps(asdict(self._place))})

    def fold(self, index: SqliteIndex, *, write: bool = True) -> int:
        """Bring the tables up to this machine's rows, then compare; returns how many rows were written or removed."""
        self._lancedb = self._lancedb or imported()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked(0.0) as mine:
            if not mine:
                return 0
            self._drop_own()
            done = 0
            try:
                if write and self._is_whole():
                    with self._locks.hold(f"{_LOCK}, written", timeout=0.0):
                        done = self._write_all(index)
            except CairnError as error:
                _log.info("The tables of LanceDB are left to another machine: %s", error)
            self._compare_all(index)
            return done

    def _drop_own(self) -> None:
        """Remove tables that this machine had for itself, before they were in the bucket."""
        for path in self._folder.glob("*.lance"):
            shutil.rmtree(path, ignore_errors=True)

    def _write_all(self, index: SqliteIndex) -> int:
        stamp = index.stamp()
        noted, tag = self._noted(stamp["model"])
        if self._is_quiet(noted["scrub"]):
            return 0
        is_new = (noted["writer"], noted.get("dimensions")) != (stamp["generation"], stamp["dimensions"])
        if is_new:
            # From here on the one who wrote before is refused.
            if noted.get("dimensions") != stamp["dimensions"]:
                noted["kinds"] = {}
            noted |= {"epoch": noted["epoch"] + 1, "writer": stamp["generation"]}
            noted["dimensions"] = stamp["dimensions"]
            tag = self._note(stamp["model"], noted, tag)
        connection = self._lancedb.connect(self._address(stamp["model"]), storage_options=self._options())
        before = {kind: mark["birth"] for kind, mark in noted["kinds"].items()}
        done = 0
        for kind in sorted({*index.kinds(), *before}):
            done += self._write_kind(index, connection, noted, kind, stamp, is_new=is_new)
        self._note(stamp["model"], noted, tag)
        if is_new or before != {kind: mark["birth"] for kind, mark in noted["kinds"].items()}:
            self._sweep(stamp["model"], noted)
        return done

    def _write_kind(
        self,
        index: SqliteIndex,
        connection: Any,
        noted: dict[str, Any],
        kind: str,
        stamp: Mapping[str, Any],
        *,
        is_new: bool,
    ) -> int:
        """Bring one table up to the rows.

        What it holds is compared with all of them where another wrote it last: the notes say at which version it was left.
        """
        mark = noted["kinds"].get(kind)
        table = self._found(connection, kind, mark)
        if table is None:
            mark = {"birth": time.time_ns(), "version": 0, "rows": 0, "compared": uuid.uuid4().hex, "at": 0}
            mark |= {"unindexed": 0, "trained": 0, "written": 0, "prune_at": 0.0, "remains": False}
        holds: dict[int, int] | None = None
        if (
            is_new
            or table is None
            or table.version != mark["at"]
            or index.trimmed_version() > mark["version"]
        ):
            holds = {} if table is None else _contents(table)
            mark |= {"version": 0, "compared": uuid.uuid4().hex}
        done, went = 0, False
        while True:
            upto, columns, gone = index.since(kind, mark["version"], stamp["model"], _BATCH)
            if upto == mark["version"]:
                break
            columns = self._shared(columns)
            ids, says = columns["id"], columns["content"]
            there = holds if holds is not None else _contents(table, ids)
            chosen = [at for at, one in enumerate(ids) if there.get(one) != says[at]]
            stale = [ids[at] for at in chosen if ids[at] in there]
            mark["remains"] |= any(there[ids[at]] >> 1 != says[at] >> 1 for at in chosen if ids[at] in there)
            _remove(table, stale)
            if chosen:
                rows = arrow_table(_taken(columns, chosen), stamp["dimensions"], places=True)
                if table is None:
                    table = connection.create_table(_named(kind, mark), rows, on_bad_vectors="null")
                else:
                    table.add(rows, on_bad_vectors="null")
            went, done = went or bool(gone), done + len(chosen)
            mark |= {"version": upto, "unindexed": mark["unindexed"] + len(chosen)}
        if table is None:
            return done
        if went or holds is not None:
            local = {one for _, _, one, _ in _own(index, kind, 0, ())}
            lost = [one for one in (holds if holds is not None else _contents(table)) if one not in local]
            _remove(table, lost)
            mark["remains"] |= bool(lost)
            done += len(lost)
        if done or not mark["rows"] or mark["prune_at"]:
            self._optimize(table, mark, _KEEP_SECONDS)
        mark["at"] = table.version
        noted["kinds"][kind] = mark
        return done

    def _found(self, connection: Any, kind: str, mark: Mapping[str, Any] | None) -> Any:
        """The table of a kind; None where there is none, or it is damaged.

        Raises:
            CairnError: the store does not answer, so nothing is known about it.
        """
        if mark is None:
            return None
        try:
            return connection.open_table(_named(kind, mark))
        except Exception as error:
            self._noted("")  # does the store answer?
            _log.warning("The LanceDB table %s cannot be read and is made anew: %s", kind, error)
            return None

    def _sweep(self, model: str, noted: Mapping[str, Any]) -> None:
        """Remove tables of this model that the notes do not name: their writer ended, or lost its lead, in the middle."""
        import obstore

        kept = [
            f"{_home(model)}/state.json",
            *(_place(model, kind, mark) for kind, mark in noted["kinds"].items()),
        ]
        with storing(self._place.url, PREFIX):
            there = [one["path"] for page in obstore.list(self._opened(), _home(model)) for one in page]
            if going := [key for key in there if not key.startswith(tuple(kept))]:
                obstore.delete(self._opened(), going)

    def _shared(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """Rows as every machine knows them: named by their place, with the mark of what they say."""
        made = dict(columns)
        scopes = list(zip(*(columns[name] for name in ("app", "project", "track", "owner")), strict=True))
        made["id"] = [
            _number(*scope, path, entry)
            for scope, path, entry in zip(scopes, columns["path"], columns["entry_id"], strict=True)
        ]
        made["content"] = [
            _says(source, vector is not None)
            for source, vector in zip(columns["source"], columns["vector"], strict=True)
        ]
        numbers = {scope: _number(*scope) >> 15 for scope in set(scopes)}
        made["scope"] = [numbers[scope] for scope in scopes]
        made["tokens"] = [
            " ".join(f"{there}:{word.partition(':')[2]}" for word in tokens.split())
            for there, tokens in zip(made["scope"], columns["tokens"], strict=True)
        ]
        return made

    # ---- comparing -----------------------------------------------------------------------------------------------

    def _compare_all(self, index: SqliteIndex) -> None:
        """Note up to which of this machine's changes each table has its rows, and in which version of it."""
        stamp = index.stamp()
        try:
            noted, _ = self._noted(stamp["model"])
        except CairnError as error:
            _log.info("The tables of LanceDB are not compared: %s", error)
            return
        state = self.state()
        known = state["kinds"] if fits_stamp(state, stamp) else {}
        kinds = {}
        if noted.get("dimensions") == stamp["dimensions"]:
            connection = self._lancedb.connect(self._address(stamp["model"]), storage_options=self._options())
            for kind, mark in noted["kinds"].items():
                before = known.get(kind, {})
                is_same = all(before.get(name) == mark[name] for name in ("birth", "compared"))
                since, beside = (before["version"], before["beside"]) if is_same else (0, ())
                table = self._found(connection, kind, mark)
                if table is not None:
                    table.checkout(mark["at"])
                    kinds[kind] = {**mark, **_agreed(index, kind, table, since, beside)}
        self._save({**stamp, "form": self._form, "written": noted.get("written"), "kinds": kinds})

    # ---- forgetting ----------------------------------------------------------------------------------------------

    def scrub(self, index: SqliteIndex, seconds: float = 30.0) -> bool:
        """Remove the tables that hold, or may hold, what this machine's rows no longer say; False if a writer held on."""
        import obstore

        self._drop_own()
        model = index.stamp()["model"]
        try:
            with self._locks.hold(f"{_LOCK}, written", timeout=seconds):
                noted, tag = self._noted(model)
                with storing(self._place.url, PREFIX):
                    there = [one["path"] for page in obstore.list(self._opened(), PREFIX) for one in page]
                kept = self._clean(index, model, noted)
                going = [
                    key
                    for key in there
                    if key.count("/") > PREFIX.count("/") + 1 and not key.startswith(kept)
                ]
                if not going:
                    return True
                noted["kinds"] = {
                    kind: mark for kind, mark in noted["kinds"].items() if _place(model, kind, mark) in kept
                }
                noted |= {"epoch": noted["epoch"] + 1, "writer": "", "scrub": uuid.uuid4().hex}
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._seen_scrub(noted["scrub"], 0.0)  # this machine has nothing of it any more
                self._note(model, noted, tag)
                with storing(self._place.url, PREFIX):
                    obstore.delete(self._opened(), going)
        except CairnError as error:
            _log.info("The tables of LanceDB could not be cleaned: %s", error)
            return False
        with suppress(OSError):
            (self._folder / "state.json").unlink()
        return True

    def _clean(self, index: SqliteIndex, model: str, noted: Mapping[str, Any]) -> tuple[str, ...]:
        """Where the tables are that hold nothing but what the rows say, and the notes about them."""
        kept = [f"{_home(model)}/state.json"]
        marks = {kind: mark for kind, mark in noted["kinds"].items() if not mark["remains"]}
        if marks:
            self._lancedb = self._lancedb or imported()
            connection = self._lancedb.connect(self._address(model), storage_options=self._options())
            for kind, mark in marks.items():
                table = self._found(connection, kind, mark)
                if table is None or table.version != mark["at"]:
                    continue
                local = {one: says >> 1 for _, _, one, says in _own(index, kind, 0, ())}
                if all(local.get(one) == says >> 1 for one, says in _contents(table).items()):
                    kept.append(_place(model, kind, mark))
        return tuple(kept)

    def _is_quiet(self, scrub: str) -> bool:
        """Whether this machine may still hold what was forgotten elsewhere: it has known of it for too short a time."""
        if not scrub:
            return False
        path = self._folder / "scrubbed.json"
        try:
            seen = json.loads(plain.read(path))
        except (OSError, ValueError):
            seen = {}
        if seen.get("scrub") != scrub:
            seen = self._seen_scrub(scrub, time.time())
        return 0.0 <= time.time() - float(seen["at"]) < _QUIET_SECONDS

    def _seen_scrub(self, scrub: str, at: float) -> dict[str, Any]:
        seen = {"scrub": scrub, "at": at}
        plain.put(self._folder / "scrubbed.json", json.dumps(seen).encode())
        return seen


def _number(*names: str) -> int:
    """A place as the number by which all machines know it: 63 bits."""
    named = "\0".join(names).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "big") >> 1


def _says(source: bytes, has_vector: bool) -> int:
    """A mark of what a row says; its last bit tells whether it has a vector."""
    said = int.from_bytes(hashlib.blake2b(source, digest_size=8).digest(), "big") >> 2
    return said << 1 | has_vector


def _home(model: str) -> str:
    return f"{PREFIX}/{_FORM}-{hashlib.sha256(model.encode()).hexdigest()[:12]}"


def _named(kind: str, mark: Mapping[str, Any]) -> str:
    """A table's name; one that is made anew has another, so that no reader takes it for the old one."""
    return f"{kind}_{mark['birth']}"


def _place(model: str, kind: str, mark: Mapping[str, Any]) -> str:
    return f"{_home(model)}/{_named(kind, mark)}.lance/"


def _contents(table: Any, ids: Sequence[int] | None = None) -> dict[int, int]:
    """The rows of a table, or those of `ids` that it has, with the mark of what each says."""
    found: dict[int, int] = {}
    if table is None:
        return found
    chosen: list[str | None] = [None]
    if ids is not None:
        chosen = [f"id IN ({', '.join(map(str, part))})" for part in _parts(list(ids))]
    for where in chosen:
        query = table.search().select(["id", "content"])
        if where is not None:
            query = query.where(where)
        rows = query.limit(table.count_rows() + 1).to_arrow()
        found.update(zip(rows.column("id").to_pylist(), rows.column("content").to_pylist(), strict=True))
    return found


def _parts(ids: list[int], size: int = 5000) -> Iterator[list[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _remove(table: Any, ids: Iterable[int]) -> None:
    for part in _parts(list(ids)):
        table.delete(f"id IN ({', '.join(map(str, part))})")


def _taken(columns: Mapping[str, Sequence[Any]], places: Sequence[int]) -> dict[str, Sequence[Any]]:
    return {name: [values[at] for at in places] for name, values in columns.items()}


def _own(index: SqliteIndex, kind: str, since: int, also: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The rows of this machine that changed since, and those of `also`: version, rowid, and as all machines know them."""
    model = index.stamp()["model"]
    query = (
        "SELECT r.version, r.id, s.app, s.project, s.track, s.owner, p.path, r.entry_id, r.source,"
        " EXISTS (SELECT 1 FROM v.vectors e JOIN v.models m ON m.id = e.model WHERE m.name = ? AND e.key = r.embed_key)"
        " FROM rows r JOIN scopes s ON s.id = r.scope_id JOIN paths p ON p.id = r.path_id WHERE r.kind = ?"
        f" AND (r.version > ? OR r.id IN ({','.join(map(str, also))})) ORDER BY r.version"
    )
    rows = index.database.read(lambda db: db.execute(query, (model, kind, since)).fetchall())
    return [(row[0], row[1], _number(*row[2:8]), _says(row[8], bool(row[9]))) for row in rows]


def _agreed(index: SqliteIndex, kind: str, table: Any, since: int, beside: Sequence[int]) -> dict[str, Any]:
    """Up to which version a table has this machine's rows, and which few it has otherwise or not at all."""
    latest = index.version()
    own = _own(index, kind, since, beside)
    there = _contents(table, [one for _, _, one, _ in own]) if len(own) <= _BATCH else _contents(table)
    missing = [(version, rowid) for version, rowid, one, says in own if there.get(one) != says]
    if len(missing) <= _MOST_BESIDE:
        return {"version": latest, "beside": [rowid for _, rowid in missing]}
    return {"version": missing[0][0] - 1, "beside": []}


def main(argv: Sequence[str]) -> int:
    """Write or compare once, at low priority."""
    from cairn.engines.changes import SqliteState
    from cairn.engines.inmemory import InMemoryLocks
    from cairn.engines.postgres import Postgres, PostgresLocks
    from cairn.engines.postgres_state import PostgresState

    os.umask(0o077)
    with suppress(OSError):
        os.nice(10)
    directory, place = Path(argv[1]), StorageSettings(**json.loads(os.environ[_GIVEN]))
    index, database = SqliteIndex(directory), Postgres(place.database, place.url, connections=2)
    queue = PostgresState(database, directory) if place.queue == "database" else SqliteState(directory)
    locks = PostgresLocks(database, InMemoryLocks())
    try:
        tables = SharedTables(
            directory, place, index, locks, is_whole=lambda: queue.ready_for() == index.generation
        )
        tables.fold(index, write=argv[2] == "write")
    finally:
        for one in (queue, locks, database, index):
            one.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
