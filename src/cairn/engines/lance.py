"""LanceDB tables: `.index/lancedb/<kind>.lance`, each row whole, with indexes over words, meaning and scalar columns.

They follow the rows, kind by kind, up to a version each (`state.json`); rows that are newer are found beside them,
so a table may be late, broken or missing and no answer is wrong for it. Folding new rows in happens in a process of
its own (`python -m cairn.engines.lance DIRECTORY`): loading LanceDB costs a second and 100 MB, which neither the
service nor a short command should pay for something that runs now and then.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from cairn.canonical import from_json
from cairn.engines import plain
from cairn.engines.database import clear, own_folder
from cairn.engines.lance_import import imported
from cairn.engines.rows import SqliteIndex
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_log = logging.getLogger(__name__)

# So many new rows at once are worth a process that folds them in.
MANY_ROWS = 1000
_IDLE_SECONDS = 15.0
_SELDOM_SECONDS = 600.0
_STATE = "state.json"
_BATCH = 20_000
# From here on comparing with every vector costs more than an index over them; it is trained anew as a table grows.
_INDEX_ROWS = 2000
_RETRAIN = 4
_PARTITION_ROWS = 4000
_OPTIMIZE_ROWS = 2000
_OPTIMIZE_FRAGMENTS = 20
_OPTIMIZE_WRITES = 60  # each leaves a version, however few rows there are
# Old versions live this long: a reader in another process may still be in one of them.
_KEEP_SECONDS = 60.0
_KEEP_OF_NEW = 0.001  # of nothing at all LanceDB warns
# So many parts of the index over vectors are looked through, and more of them where less than half of the rows pass.
# So few rows that pass are all compared: the index would look for them in vain among the many that do not.
_PROBES = 60
_COMMON_SHARE = 1 / 3
_COUNTS_KEPT = 256
# Words whose weights differ by less are asked for together.
_ALIKE = 1.1
# Tables with more rows are asked for ids and times, which cost twelve bytes a row to hold.
_NAMED_ROWS = 8_000_000
_FLAT_ROWS = 5000
# Bump when a table is made differently: the tables are then made anew.
_FORM = 3
_CACHE_BYTES = 768 * 1024 * 1024
_TEXT = ("app", "project", "track", "owner", "entry_id", "session_id", "cell_id", "parent_type", "parent_id")
# The columns that hold words.
_SAYING = (*_TEXT, "sender_name", "status", "text", "tokens", "metadata", "senders", "labels")
_SCALAR_INDEXES = {
    "id": "BTree",
    "scope": "Bitmap",
    "hidden": "Bitmap",
    "session_id": "BTree",
    "timestamp_ms": "BTree",
    "senders": "LabelList",
    "labels": "LabelList",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """A query to one table: up to `limit` rows that pass `where`, best by words, and best by nearness to `vector`.

    `words` are words of the scope and what each weighs among its texts, `rows` says how many rows the scope has of
    this kind. `timely` tells of rows by their times which of them pass, where `where` asks for nothing else.
    """

    scope: Scope
    kind: str
    where: str
    rows: int
    filtered: bool
    words: Mapping[str, float]
    vector: np.ndarray | None
    limit: int
    timely: Callable[[np.ndarray], np.ndarray | None] | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """For each part of a table the ids and the times of its rows, by their places.

    LanceDB knows where a row lies as soon as it found it; to fetch its id takes half as long again as to find it, and to
    ask all rows of a large table for their time longer than to find the best of them.
    """

    ids: Mapping[int, np.ndarray]
    times: Mapping[int, np.ndarray]

    @classmethod
    async def of(cls, table: Any) -> Places:
        import numpy as np

        found = await table.query().select(["id", "timestamp_ms"]).with_row_id().to_arrow()
        places, ids = found.column("_rowid").to_numpy(), found.column("id").to_numpy()
        times = found.column("timestamp_ms").to_numpy()
        if ids.max(initial=0) < 2**31:
            ids = ids.astype(np.int32)
        parts, out = places >> 32, cls({}, {})
        for part in np.unique(parts).tolist():
            here = parts == part
            at = (places[here] & 0xFFFFFFFF).astype(np.int64)
            for held, values in ((out.ids, ids), (out.times, times)):
                held[part] = np.zeros(int(at.max()) + 1, values.dtype)  # type: ignore[index]
                held[part][at] = values[here]
        return out

    @staticmethod
    def at(held: Mapping[int, np.ndarray], places: np.ndarray) -> np.ndarray:
        """What is held of the rows at these places, in their order."""
        import numpy as np

        parts, at = places >> 32, (places & 0xFFFFFFFF).astype(np.int64)
        out = np.zeros(len(places), np.int64)
        for part in np.unique(parts).tolist():
            out[parts == part] = held[part][at[parts == part]]
        return out


@dataclass(frozen=True, slots=True)
class OpenTable:
    """One version of a table, its notes, and the places of its rows, unless those take too much memory."""

    held: Mapping[str, Any]
    table: Any
    places: Places | None = None
    counts: dict[str, int] = field(default_factory=dict)

    async def passing(self, wish: Wish) -> int:
        """How many rows pass, about; many questions have the same filter."""
        if not wish.filtered:
            return wish.rows
        found = self.counts.get(wish.where)
        if found is None:
            if len(self.counts) >= _COUNTS_KEPT:
                self.counts.clear()
            found = self._timely(wish)
            if found is None:
                found = int(await self.table.count_rows(wish.where))
            self.counts[wish.where] = found
        return found

    def _timely(self, wish: Wish) -> int | None:
        """How many rows pass by their times; None where that is not all that is asked."""
        if wish.timely is None or self.places is None:
            return None
        judged = [wish.timely(times) for times in self.places.times.values()]
        known = [int(one.sum()) for one in judged if one is not None]
        return sum(known) if len(known) == len(judged) else None


def _of_one_weight(words: Mapping[str, float]) -> list[tuple[float, list[str]]]:
    """Words that weigh about the same, within a tenth, together, and what they weigh."""
    groups: list[list[str]] = []
    for word in sorted(words, key=words.__getitem__):
        if groups and words[word] <= _ALIKE * words[groups[-1][0]]:
            groups[-1].append(word)
        else:
            groups.append([word])
    return [(sum(words[word] for word in group) / len(group), group) for group in groups]


class LanceTables:
    """The tables as readers and their writer see them.

    Args:
        directory: The index directory; the tables are in `lancedb/` below it.
        index_rows: From how many rows on a table gets an index over its vectors.
    """

    # The column by which a row that fits is named.
    _names = "id"
    _cache_bytes = _CACHE_BYTES
    _form = _FORM

    def __init__(self, directory: Path, *, index_rows: int = _INDEX_ROWS) -> None:
        self._directory = directory
        self._folder = directory / "lancedb"
        self._index_rows = index_rows
        self._lock = threading.Lock()
        self._lancedb: Any = None
        self._loading: threading.Thread | None = None
        self._connection: Any = None
        self._open: dict[str, OpenTable] = {}

    def state(self) -> dict[str, Any]:
        """What the tables hold, and of which index and model; empty where there is nothing to rely on."""
        try:
            if not (self._folder / _STATE).is_file():
                return {}
            found = from_json(plain.read(self._folder / _STATE))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    # ---- reading -------------------------------------------------------------------------------------------------

    def load(self, *, wait: bool) -> bool:
        """Load LanceDB, beside the caller unless told to wait; whether it is there now."""
        with self._lock:
            if self._lancedb is None and self._loading is None:
                self._loading = threading.Thread(target=self._load, name="cairn-lancedb", daemon=True)
                self._loading.start()
            loading = self._loading
        if wait and loading is not None:
            loading.join()
        return self._lancedb is not None

    def _load(self) -> None:
        try:
            self._lancedb = imported()
        except Exception as error:  # a broken installation of it must not take search along
            _log.warning("LanceDB cannot be loaded, so answers come from memory: %s", error)

    def number(self, scope: Scope, here: int) -> int:  # noqa: ARG002 -- others number by it
        """The number that a scope has in the tables; `here` is the one that it has among the rows."""
        return here

    def best(self, state: Mapping[str, Any], wishes: Sequence[Wish]) -> Iterator[tuple[str, list[int]]]:
        """Ids of the rows that fit best, best first, of each kind by words and as many by meaning, as they are found.

        Raises:
            Exception: whatever LanceDB meets in a table that was removed or damaged under it.
        """
        for wish, ids in self._answers(state, wishes):
            yield wish.kind, ids

    def _answers(self, state: Mapping[str, Any], wishes: Sequence[Wish]) -> Iterator[tuple[Wish, list[Any]]]:
        """All is asked at once; whoever takes an answer works on it while the next ones are still looked for."""
        from lancedb.background_loop import LOOP

        told: SimpleQueue[tuple[Wish, list[Any]] | None] = SimpleQueue()
        asking = asyncio.run_coroutine_threadsafe(self._ask(state, wishes, told.put), LOOP.loop)
        asking.add_done_callback(lambda _: told.put(None))
        try:
            while (found := told.get()) is not None:
                yield found
            asking.result()
        finally:
            asking.cancel()

    async def _ask(
        self,
        state: Mapping[str, Any],
        wishes: Sequence[Wish],
        tell: Callable[[tuple[Wish, list[Any]]], None],
    ) -> None:
        async def told(wish: Wish, asked: Coroutine[Any, Any, list[Any]]) -> None:
            tell((wish, await asked))

        opened = [(wish, await self._open_table(state, wish.kind)) for wish in wishes]
        by_words = [told(wish, self._by_words(table, wish)) for wish, table in opened if wish.words]
        by_meaning = [
            told(wish, self._by_meaning(table, wish)) for wish, table in opened if wish.vector is not None
        ]
        await asyncio.gather(*by_words, *by_meaning)

    async def _by_words(self, opened: OpenTable, wish: Wish) -> list[Any]:
        """The best rows by BM25 in which a word weighs what it weighs among the owner's texts."""
        from lancedb.query import BooleanQuery, MatchQuery, Occur

        # Words asked together are looked up at once, and the rows that cannot be among the best are passed over.
        words = [
            (Occur.SHOULD, MatchQuery(" ".join(together), "tokens", boost=weight))
            for weight, together in _of_one_weight(wish.words)
        ]
        asked = words[0][1] if len(words) == 1 else BooleanQuery(words)

        def saying() -> Any:
            return opened.table.query().nearest_to_text(asked)

        found = await self._judged_late(opened, saying, wish, "_score", is_whole=True)
        return await self._ids_of(opened, saying(), wish, "_score") if found is None else found

    async def _by_meaning(self, opened: OpenTable, wish: Wish) -> list[Any]:
        def near() -> Any:
            return opened.table.query().nearest_to(wish.vector).column("vector").distance_type("cosine")

        def within(parts: int) -> Any:
            return near().maximum_nprobes(0).minimum_nprobes(parts).maximum_nprobes(parts)

        def usual() -> Any:
            return within(_PROBES) if trained else near().bypass_vector_index()

        trained = opened.held["trained"]
        parts = _partitions(trained) if trained else 0
        late = await self._judged_late(opened, usual, wish, "_distance", is_whole=False)
        if late is not None:
            return late
        if parts <= _PROBES:
            return await self._ids_of(opened, usual(), wish, "_distance")
        passing = await opened.passing(wish)
        if passing <= _FLAT_ROWS:
            return await self._ids_of(opened, near().bypass_vector_index(), wish, "_distance")
        share = passing / max(1, int(opened.held["rows"]))
        if wish.where and share >= _COMMON_SHARE:
            # Asking each row whether it passes costs more than comparing it: where many do, the nearest are asked alone.
            deeper = replace(wish, limit=int(1.25 * wish.limit / share))
            found = await self._ids_of(opened, within(_PROBES).postfilter(), deeper, "_distance")
            if len(found) >= wish.limit:
                return found[: wish.limit]
        # However few pass, as many that do are compared.
        probes = math.ceil(_PROBES * max(1.0, 0.5 / share))
        found = await self._ids_of(opened, within(min(probes, parts)), wish, "_distance")
        if len(found) < min(wish.limit, passing) and probes < parts:
            found = await self._ids_of(opened, within(parts), wish, "_distance")
        return found

    async def _judged_late(
        self, opened: OpenTable, query: Callable[[], Any], wish: Wish, score: str, *, is_whole: bool
    ) -> list[Any] | None:
        """The best rows that pass a filter by time, asked for without it and judged here; None where that may miss some.

        Where many pass, a few more of the best have as many among them that do. With `is_whole`, a query that
        finds fewer than it may has found all there are.
        """
        if wish.timely is None or opened.places is None:
            return None
        share = await opened.passing(wish) / max(1, int(opened.held["rows"]))
        if share < _COMMON_SHARE:
            return None
        limit = int(1.25 * wish.limit / share)
        places = (await query().select(["_rowid", score]).limit(limit).to_arrow()).column("_rowid").to_numpy()
        passing = wish.timely(Places.at(opened.places.times, places))
        if passing is None:
            return None
        best = places[passing][: wish.limit]
        if len(best) < wish.limit and not (is_whole and len(places) < limit):
            return None
        return list(Places.at(opened.places.ids, best).tolist())

    async def _ids_of(self, opened: OpenTable, query: Any, wish: Wish, score: str) -> list[Any]:
        query = query.where(wish.where) if wish.where else query
        name = self._names if opened.places is None else "_rowid"
        found = (await query.select([name, score]).limit(wish.limit).to_arrow()).column(name)
        if opened.places is None:
            return list(found.to_pylist())
        return list(Places.at(opened.places.ids, found.to_numpy()).tolist())

    async def _open_table(self, state: Mapping[str, Any], kind: str) -> OpenTable:
        """The table of a kind as `state` describes it; opened again whenever it was written."""
        held = state["kinds"][kind]
        known = self._open.get(kind)
        if known is None or known.held != held:
            if self._connection is None:
                session = self._lancedb.Session(index_cache_size_bytes=self._cache_bytes)
                self._connection = await self._lancedb.connect_async(self._folder, session=session)
            table = await self._connection.open_table(kind)
            places = await Places.of(table) if int(held["rows"]) <= _NAMED_ROWS else None
            known = self._open[kind] = OpenTable(held, table, places)
        return known

    def distrust(self, error: Exception) -> None:
        """Rely on nothing that is there any more: it did not answer, and is to be made anew."""
        _log.info("A LanceDB table did not answer and will be made anew: %s", error)
        self._open.clear()
        self._connection = None
        with suppress(OSError):
            (self._folder / _STATE).unlink()

    # ---- writing -------------------------------------------------------------------------------------------------

    def fold(self, index: SqliteIndex) -> int:
        """Bring every table up to the rows; returns how many rows were written or removed. One caller at a time."""
        # Before the lock: importing takes seconds on a busy machine, and a scrub waits for the lock.
        self._lancedb = self._lancedb or imported()
        with self._locked(0.0) as mine:
            if not mine:
                return 0
            state = self.state()
            stamp = index.stamp()
            if not fits(state, stamp):
                state = self._restart(stamp)
            kinds = {*index.kinds(), *state["kinds"]}
            return sum(self._fold_or_make_anew(index, state, kind) for kind in sorted(kinds))

    def has_news(self) -> bool:
        """Whether somebody else wrote the tables since they were last looked at."""
        return False

    def leads(self) -> bool:
        """Whether it is for this machine to write them."""
        return True

    def begin_fold(self) -> subprocess.Popen[bytes]:
        """Start a process that folds new rows in."""
        return folding([sys.executable, "-P", "-m", "cairn.engines.lance", str(self._directory)])

    def scrub(self, index: SqliteIndex, seconds: float = 30.0) -> bool:
        """Remove the tables that hold, or may hold, what the rows no longer say; False if a writer held on.

        For `forget`: LanceDB keeps removed rows in data files and indexes until it happens to rewrite them, and no byte
        may stay so long. They are made anew from the rows. A table of which no row went or was written anew since it was
        made has nothing to hide, and stays.
        """
        if not self._folder.exists():
            return True
        with self._locked(seconds) as mine:
            if not mine:
                return False
            state = self.state()
            known = state["kinds"] if fits(state, index.stamp()) else {}
            affected = [
                path
                for path in self._folder.glob("*.lance")
                if _may_hide(index, path.stem, known.get(path.stem))
            ]
            for path in affected:
                state.get("kinds", {}).pop(path.stem, None)
                shutil.rmtree(path, ignore_errors=True)
            if state:
                self._save(state)
            return not any(path.exists() for path in affected)

    @contextmanager
    def _locked(self, seconds: float) -> Iterator[bool]:
        own_folder(self._folder)
        guard = str(self._folder / ".lock")
        clear(guard)
        for link in filter(Path.is_symlink, self._folder.iterdir()):  # it would have us write elsewhere
            clear(str(link))
        lock = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        until = time.monotonic() + seconds
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        yield False
                        return
                    time.sleep(0.05)
            yield True
        finally:
            os.close(lock)

    def _restart(self, stamp: Mapping[str, Any]) -> dict[str, Any]:
        (self._folder / _STATE).unlink(missing_ok=True)
        for path in self._folder.glob("*.lance"):
            shutil.rmtree(path, ignore_errors=True)
        return {**stamp, "form": _FORM, "kinds": {}}

    def _fold_or_make_anew(self, index: SqliteIndex, state: dict[str, Any], kind: str) -> int:
        """Bring one table up to the rows; a table whose rows can be read while its indexes cannot is made anew."""
        try:
            return self._fold(index, state, kind)
        except Exception:
            if state["kinds"].pop(kind, None) is None or self._can_be_asked(kind):
                raise
            return self._fold(index, state, kind)

    def _fold(self, index: SqliteIndex, state: dict[str, Any], kind: str) -> int:
        mark = state["kinds"].get(kind)
        if (
            mark is None
            or (mark["version"] and index.trimmed_version() > mark["version"])
            or not self._readable(kind, mark)
        ):
            shutil.rmtree(self._folder / f"{kind}.lance", ignore_errors=True)
            mark = {"birth": time.time_ns(), "version": 0, "highest": 0, "rows": 0}
            mark |= {"unindexed": 0, "trained": 0, "written": 0, "prune_at": 0.0, "remains": False}
        is_new = not (self._folder / f"{kind}.lance").exists()
        done = 0
        while True:
            upto, columns, gone = index.since(kind, mark["version"], state["model"], _BATCH)
            if upto == mark["version"]:
                break
            ids = columns["id"]
            stale = [rowid for rowid in ids if rowid <= mark["highest"]] + gone
            # What it once held may lie in its files for long: only a table made anew is surely free of it.
            remains = mark.get("remains", True)
            if mark.get("alone") is not None and not _is_of(mark["alone"], columns):
                # Before anybody meets a row in the table that is not of the one scope it is said to be of.
                mark["alone"] = None
                self._save(state | {"kinds": {**state["kinds"], kind: mark}})
            if ids or stale:
                remains = self._write(kind, columns, stale, state["dimensions"]) or remains
            mark |= {
                "version": upto,
                "highest": max([mark["highest"], *ids]),
                "unindexed": mark["unindexed"] + len(ids) + len(gone),
                "written": mark["written"] + 1,
                "versions": mark.get("versions", 0) + 1,
                "remains": remains,
            }
            done += len(ids) + len(gone)
            if mark["rows"]:
                self._save(state | {"kinds": {**state["kinds"], kind: mark}})
        if (self._folder / f"{kind}.lance").exists():
            table = self._lancedb.connect(self._folder).open_table(kind)
            # Nobody reads in a table before the state names it: of a new one no earlier version need stay.
            self._optimize(table, mark, _KEEP_OF_NEW if is_new else _KEEP_SECONDS)
            mark["alone"] = _alone(table)
            state["kinds"][kind] = mark
            self._save(state)
        return done

    def _readable(self, kind: str, mark: Mapping[str, Any]) -> bool:
        if not (self._folder / f"{kind}.lance").exists():
            return not mark["rows"]
        try:
            table = self._lancedb.connect(self._folder).open_table(kind)
            table.search().where("id >= 0").select(["id"]).limit(1).to_arrow()
        except Exception as error:
            _log.warning("The LanceDB table %s cannot be read and is made anew: %s", kind, error)
            return False
        return True

    def _can_be_asked(self, kind: str) -> bool:
        """Whether a table can be asked by the indexes of its columns: by its numbers, its words and its vectors."""
        try:
            table = self._lancedb.connect(self._folder).open_table(kind)
            _alone(table)
            for one in (
                table.search().select(["tokens"]).where("tokens != ''").limit(1).to_arrow().to_pylist()
            ):
                table.search(one["tokens"], query_type="fts", fts_columns="tokens").limit(1).to_arrow()
            if any("vector" in found.columns for found in table.list_indices()):
                size = table.schema.field("vector").type.list_size
                table.search([1.0] * size, vector_column_name="vector").limit(1).to_arrow()
        except Exception as error:
            _log.warning(
                "The indexes of the LanceDB table %s cannot be read; it is made anew: %s", kind, error
            )
            return False
        return True

    def _save(self, state: Mapping[str, Any]) -> None:
        plain.put(self._folder / _STATE, json.dumps(state).encode())

    def _write(
        self, kind: str, columns: Mapping[str, Sequence[Any]], stale: Sequence[int], dimensions: int
    ) -> bool:
        """Put rows in the place of `stale` ones; whether those said anything that is said no more."""
        connection = self._lancedb.connect(self._folder)
        there = (self._folder / f"{kind}.lance").exists()
        table = connection.open_table(kind) if there else None
        remains = False
        if table is not None:
            place = {rowid: at for at, rowid in enumerate(columns["id"])}
            for start in range(0, len(stale), 5000):
                chosen = f"id IN ({', '.join(map(str, stale[start : start + 5000]))})"
                held = table.search().where(chosen).select(["id", *_SAYING]).limit(5000).to_arrow()
                remains = remains or any(_is_unsaid(one, columns, place) for one in held.to_pylist())
                table.delete(chosen)
        if not columns["id"]:
            return remains
        if table is None:
            connection.create_table(kind, arrow(columns, dimensions), on_bad_vectors="null")
        else:
            table.add(arrow(columns, dimensions), on_bad_vectors="null")
        return remains

    def _optimize(self, table: Any, mark: dict[str, Any], keep_seconds: float) -> None:
        """Index what is new, compact, and drop old versions, by how much was written since."""
        from lancedb.index import FTS, Bitmap, BTree, IvfSq, LabelList

        mark["rows"] = count = table.count_rows()
        has = {column for found in table.list_indices() for column in found.columns}
        if not count:
            return
        if "tokens" not in has:
            plain = {"stem": False, "remove_stop_words": False, "lower_case": False, "ascii_folding": False}
            words = FTS(with_position=False, base_tokenizer="whitespace", max_token_length=None, **plain)
            table.create_index("tokens", config=words)
            makers = {"Bitmap": Bitmap, "BTree": BTree, "LabelList": LabelList}
            for column, sort in _SCALAR_INDEXES.items():
                table.create_index(column, config=makers[sort]())
            mark["unindexed"] = 0
        if "vector" in table.schema.names and count >= max(self._index_rows, _RETRAIN * mark["trained"]):
            parts = _partitions(count)
            table.create_index("vector", config=IvfSq(distance_type="cosine", num_partitions=parts))
            mark["trained"] = count
        fragments = table.stats()["fragment_stats"]["num_fragments"]
        prune = bool(mark["prune_at"]) and time.time() >= mark["prune_at"]
        many = fragments >= _OPTIMIZE_FRAGMENTS or mark.get("versions", 0) >= _OPTIMIZE_WRITES
        if mark["unindexed"] >= _OPTIMIZE_ROWS or many or prune:
            table.optimize(cleanup_older_than=timedelta(seconds=keep_seconds))
            # What this made old can be dropped only later, when no reader can be in it.
            later = 0.0 if prune or keep_seconds <= _KEEP_OF_NEW else time.time() + 2 * keep_seconds
            mark |= {"unindexed": 0, "versions": 0, "prune_at": later}
            mark["written"] += 1


class Folder:
    """Starts a process that folds new rows in when one is due; the daemon calls it now and then.

    Due are `many` rows at once, any row once nothing changed for a moment, and old versions that can be
    dropped. One process at a time, and none before `apart_seconds` have passed since the last began; ten minutes, where there
    are fewer rows than `seldom_below`: nobody asks the tables of so few, and a process costs a second and 200 MB.
    """

    def __init__(
        self,
        index: SqliteIndex,
        tables: LanceTables,
        *,
        enabled: bool = True,
        many: int = MANY_ROWS,
        apart_seconds: float = 30.0,
        seldom_below: int = 0,
    ) -> None:
        self._seldom_below = seldom_below
        self._index = index
        self._tables = tables
        self._enabled = enabled
        self._many = many
        self._apart_seconds = apart_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._began = float("-inf")
        self._version = -1
        self._moved_at = 0.0

    def __call__(self) -> None:
        """Start a process if one is due and none is running."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
        if self._enabled and self._is_due():
            self._began = time.monotonic()
            self._process = self._tables.begin_fold()

    def now(self) -> None:
        """Fold in what waits, and wait for it."""
        if self._enabled and self._waiting():
            self._tables.begin_fold().wait()

    def after(self, version: int) -> None:
        """Fold in what waits where much was indexed since `version`: for a command that has no daemon beside it."""
        if self._enabled and version < self._index.version():
            changed = self._index.changed_count(dict.fromkeys(self._index.kinds(), version))
            if changed >= self._many:
                self.now()

    def if_many(self) -> None:
        """Fold in what waits where that is much: for a command without a daemon that removed whole tables."""
        if self._enabled and self._waiting() >= self._many:
            self.now()

    def told(self) -> dict[str, int]:
        """How many rows the tables hold, and how many changes are not in them yet."""
        kinds = self._tables.state().get("kinds", {}).values()
        return {
            "rows": sum(int(mark["rows"]) for mark in kinds),
            "waiting": self._waiting() if self._enabled else 0,
        }

    def _is_due(self) -> bool:
        now = time.monotonic()
        since = now - self._began
        if since < self._apart_seconds or (
            since < _SELDOM_SECONDS and self._index.last_row() < self._seldom_below
        ):
            return False
        version = self._index.version()
        if version != self._version:
            self._version, self._moved_at = version, now
        if self._tables.has_news():
            return True
        if not self._tables.leads():
            return False
        kinds = self._tables.state().get("kinds", {}).values()
        if any(mark["prune_at"] and time.time() >= mark["prune_at"] for mark in kinds):
            return True
        waiting = self._waiting()
        return waiting >= self._many or (waiting > 0 and now - self._moved_at >= _IDLE_SECONDS)

    def _waiting(self) -> int:
        state = self._tables.state()
        beside = sum(len(mark.get("beside", ())) for mark in state.get("kinds", {}).values())
        return self._index.changed_count(marks_of(state, self._index)) + beside

    def stop(self) -> None:
        """End a running process; what it committed stays, what it did not is done again."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()


def folding(command: Sequence[str], **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def marks_of(state: Mapping[str, Any], index: SqliteIndex) -> dict[str, int]:
    """Up to which version each kind is in its table; nothing where the tables are of another index or model."""
    if not fits(state, index.stamp()):
        return {}
    return {kind: int(mark["version"]) for kind, mark in state["kinds"].items()}


def fits(state: Mapping[str, Any], stamp: Mapping[str, Any]) -> bool:
    """Whether the tables that `state` tells of were made of these rows and vectors."""
    known = "kinds" in state and state.get("form") == _FORM
    return known and all(state.get(name) == value for name, value in stamp.items())


def _alone(table: Any) -> int | None:
    """The number of the scope that all rows of a table are of, if none of them is hidden: nobody has to ask for that."""
    first = table.search().select(["scope"]).limit(1).to_arrow().column("scope").to_pylist()
    others = f"scope != {first[0]} OR hidden = true" if first else ""
    return int(first[0]) if first and not table.count_rows(others) else None


def _is_of(scope: int, columns: Mapping[str, Sequence[Any]]) -> bool:
    """Whether all rows are of a scope and none is hidden."""
    return not any(columns["hidden"]) and all(one == scope for one in columns["scope"])


def _is_unsaid(
    old: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], place: Mapping[int, int]
) -> bool:
    """Whether a row of a table says anything that the row in its place does not."""
    at = place.get(old["id"])
    return at is None or any(old[name] and old[name] != columns[name][at] for name in _SAYING)


def _may_hide(index: SqliteIndex, kind: str, mark: Mapping[str, Any] | None) -> bool:
    """Whether the table of a kind may hold words that no row of it has any more."""
    return (
        mark is None
        or mark.get("remains", True)
        or index.trimmed_version() > mark["version"]
        or index.has_changed(kind, mark["version"])
    )


def _partitions(trained: int) -> int:
    """Into how many parts an index over the vectors of so many rows is divided."""
    return max(2, trained // _PARTITION_ROWS)


def arrow(given: Mapping[str, Sequence[Any]], dimensions: int, *, places: bool = False) -> Any:
    """Rows as an Arrow table. The vectors of rows that wait for theirs are null; without a model there is no column.

    With `places`, a mark of what each row says stands beside its number, for tables that several machines share.
    """
    import numpy as np
    import pyarrow as pa

    types: dict[str, Any] = {"id": pa.int64(), "scope": pa.int64(), **dict.fromkeys(_TEXT, pa.string())}
    if places:
        types["content"] = pa.int64()
    types |= {
        "senders": pa.list_(pa.string()),
        "sender_name": pa.string(),
        "labels": pa.list_(pa.string()),
        "tags": pa.list_(pa.string()),
    }
    types |= dict.fromkeys(("timestamp_ms", "updated_ms", "ordinal"), pa.int64())
    types |= {"status": pa.string(), "hidden": pa.bool_()}
    types |= dict.fromkeys(("text", "tokens", "metadata"), pa.string())
    columns = {name: pa.array(given[name], kind) for name, kind in types.items()}
    if dimensions:
        found, blank = given["vector"], bytes(2 * dimensions)
        flat = np.frombuffer(b"".join(one or blank for one in found), np.float16).astype(np.float32)
        missing = pa.array([one is None for one in found], pa.bool_())
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(flat), dimensions, mask=missing)
    return pa.table(columns)


def main(argv: Sequence[str]) -> int:
    """Fold once, at low priority."""
    os.umask(0o077)  # a process of our own: LanceDB names no mode for the files it makes
    with suppress(OSError):
        os.nice(10)
    directory = Path(argv[1])
    index = SqliteIndex(directory)
    try:
        LanceTables(directory).fold(index)
    finally:
        index.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
