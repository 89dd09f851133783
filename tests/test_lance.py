"""The tables of LanceDB: late, broken or missing, answers stay right."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import lancedb
import numpy as np
import pytest

from cairn import config
from cairn.engines import lance
from cairn.engines.embedders import HashingEmbedder
from cairn.engines.lance import Folder, LanceTables, Wish
from cairn.engines.large import Answering, LargeIndex
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Ask, Moved, NewRow, Row
from cairn.notes.notebook import Draft
from cairn.retrieval import waits
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.search import Searcher
from cairn.seams import SystemClock
from tests.chaos import engines
from tests.waiting import LONG, until
from tests.world import ALICE, BOB, DAY, Indexed, by_meaning, by_words

EMBEDDER = HashingEmbedder(64)
pytestmark = pytest.mark.xdist_group("lance")  # importing LanceDB costs seconds: once is enough


class LargeWorld(Indexed):
    """Every scope counts as too large for memory, so that LanceDB is asked."""

    def __init__(self, folder, rows: int = 400):
        super().__init__(folder)
        self.tables = LanceTables(folder / ".index", index_rows=300)
        self.large = LargeIndex(self.index, self.tables, whole_rows=0, best=20)
        self.answering = Answering(self.index, self.tables, engine="auto", memory_rows=5, large=self.large)
        for scope, count in ((ALICE, rows), (BOB, 20)):
            drafts = [
                Draft({"session_id": f"s{n % 7}", "timestamp": f"{DAY}T10:00:00+00:00"}, {"Content": text(n)})
                for n in range(count)
            ]
            self.ids = self.notebook.append("episode", scope, DAY, drafts)
        self.embedded()

    def embedded(self) -> None:
        self.waits.catch_up(30, embed=True)
        assert self.indexer.waiting_for_vectors() == 0

    def fold(self) -> int:
        done = self.tables.fold(self.index)
        assert self.tables.state()["kinds"]["episode"]["version"] == self.index.version()
        return done

    def asked(self, scope=ALICE):
        """Whoever answers, asked so that a lost table is met."""
        index = self.answering(scope)
        try:
            index.legs(scope, Ask(terms=("topic1",)))
        except Moved:
            index = self.answering(scope)
        return index

    def top(self, words: str, scope=ALICE) -> list[str]:
        found = by_meaning(self.asked(scope), scope, EMBEDDER.embed([words])[0])[:3]
        return [row.text for row in self.index.rows(scope, found)]


def text(n: int) -> str:
    return f"topic{n} concerns item{n * 7} and place{n * 13}"


@pytest.fixture
def world(tmp_path):
    made = LargeWorld(tmp_path)
    yield made
    made.close()


def test_a_table_holds_whole_rows_and_answers_for_them(world):
    """E5, E24, E56: `<kind>.lance` has text, words, vector, tags, metadata and scalars, and indexes over them."""
    assert world.answering(ALICE) is world.index, "without tables memory answers"
    assert world.fold() == 420
    assert world.answering(ALICE) is world.large
    import lancedb

    table = lancedb.connect(world.folder / ".index" / "lancedb").open_table("episode")
    [row] = table.search().where(f"entry_id = '{world.ids[3].entry_id}' AND owner = 'bob'").to_list()
    assert (row["text"], row["session_id"], row["app"], row["track"]) == (text(3), "s3", "default", "user")
    assert {"topic3", "item21"} <= {word.removeprefix(f"{row['scope']}:") for word in row["tokens"].split()}
    assert (len(row["vector"]), row["tags"], row["senders"]) == (64, [], [])
    assert text(3) in row["metadata"]
    indexed = {column for index in table.list_indices() for column in index.columns}
    assert indexed == {
        "id",
        "scope",
        "hidden",
        "session_id",
        "timestamp_ms",
        "senders",
        "labels",
        "tokens",
        "vector",
    }
    assert world.top(text(123))[0] == text(123)
    assert world.top(text(5), BOB)[0] == text(5)
    assert [r.text for r in world.index.rows(ALICE, by_words(world.large, ALICE, ["item70"]))] == [text(10)]
    assert not world.tables.state()["kinds"]["episode"]["remains"]
    # Beside the table, what it has not seen yet.
    file = world.note_path()
    file.write_text(file.read_text().replace(text(123), "topic123 became something else entirely"))
    fresh = world.episode("a brand new thing about zebras")
    world.embedded()
    assert text(123) not in world.top(text(123)), "a changed row is not found by its old vector"
    assert world.top("brand new thing about zebras")[0].startswith("a brand new")
    world.notebook.remove(world.root.note("episode", ALICE, DAY), [fresh])
    world.embedded()
    assert world.fold() > 0
    assert world.tables.state()["kinds"]["episode"]["remains"], "its files may still hold what was changed"
    assert world.top("topic123 became something else entirely")[0].startswith("topic123 became")
    assert not any("zebras" in found for found in world.top("brand new thing about zebras"))


def test_the_index_over_vectors_agrees_with_exact_search(world):
    """Of the ten nearest, LanceDB proposes at least 98 in 100, with a filter and without."""
    world.fold()
    agreed = total = 0
    for n in range(0, 400, 20):
        query = EMBEDDER.embed([f"item{n * 7} topic{n + 1}"])[0]
        exact = world.index.legs(ALICE, Ask(plain=query)).cosine
        found = world.large.legs(ALICE, Ask(plain=query)).cosine
        agreed += np.count_nonzero(np.sort(found)[-10:] >= np.sort(exact)[-10] - 1e-4)
        total += 10
    assert agreed / total >= 0.98
    unasked = world.large.legs(ALICE, Ask())
    assert len(unasked.corpus), "some rows show what is usual"
    assert not unasked.passing.any(), "and are no answer"


def test_links_among_the_tables_are_taken_away_not_followed(world):
    """Neither the folder of the tables, nor a table, nor its lock leads to another place; nothing there is written or lost."""
    theirs = world.folder.parent / "theirs"
    (theirs / "episode.lance").mkdir(parents=True)
    (theirs / "episode.lance" / "mine").write_text("mine")
    folder = world.folder / ".index" / "lancedb"
    folder.symlink_to(theirs)
    assert world.tables.scrub(world.index)
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(theirs / "lock")
    (folder / "episode.lance").symlink_to(theirs / "episode.lance")
    assert world.fold() == 420
    assert world.top(text(50))[0] == text(50)
    assert [path.name for path in theirs.rglob("*")] == ["episode.lance", "mine"]


@pytest.mark.parametrize("damage", ["gone", "half", "no state", "bytes", "its indexes"])
def test_broken_tables_are_made_anew(world, damage):
    """E2, E5: missing, half deleted, unmarked or overwritten tables cost nothing but time, while they are in use, too."""
    world.fold()
    assert world.top(text(50))[0] == text(50)
    folder = world.folder / ".index" / "lancedb"
    if damage == "gone":
        shutil.rmtree(folder)
    elif damage == "half":
        shutil.rmtree(folder / "episode.lance" / "data")
    elif damage == "its indexes":
        for file in (folder / "episode.lance" / "_indices").rglob("bitmap*"):
            file.unlink()
    elif damage == "bytes":
        for file in (folder / "episode.lance").rglob("*"):
            if file.is_file():
                file.write_bytes(b"nonsense")
    else:
        (folder / "state.json").unlink()
    assert world.top(text(50))[0] == text(50)
    assert world.fold() in {0, 420}
    assert world.top(text(50))[0] == text(50)


@pytest.mark.parametrize("lost", ["tokens", "vector", ""])
def test_a_fold_that_fails_makes_a_table_anew_where_an_index_of_it_is_lost(world, monkeypatch, lost):
    """What is wrong elsewhere (a disk that is full) is said, and costs no table."""
    world.fold()
    table = lancedb.connect(world.folder / ".index" / "lancedb").open_table("episode")
    [chosen] = [found.index_uuid for found in table.list_indices() if lost in found.columns] or [None]
    if chosen is not None:
        shutil.rmtree(world.folder / ".index" / "lancedb" / "episode.lance" / "_indices" / chosen)
    optimize, tries = LanceTables._optimize, []

    def failing(self, *given):
        tries.append(given)
        if len(tries) == 1:
            raise RuntimeError("LanceError(IO)")
        optimize(self, *given)

    monkeypatch.setattr(LanceTables, "_optimize", failing)
    world.notebook.append("episode", ALICE, DAY, [Draft({"session_id": "s1"}, {"Content": text(500)})])
    world.embedded()
    birth = world.tables.state()["kinds"]["episode"]["birth"]
    with nullcontext() if lost else pytest.raises(RuntimeError):
        LanceTables(world.folder / ".index", index_rows=300).fold(world.index)
    assert (world.tables.state()["kinds"]["episode"]["birth"] != birth) == bool(lost)
    assert world.top(text(500))[0] == text(500)


def test_a_rebuilt_index_is_followed_from_the_start(world):
    """After a rebuild rows have other ids; the old tables are not believed."""
    world.fold()
    world.waits.rebuild()
    world.embedded()
    assert world.answering(ALICE) is world.index
    assert world.top(text(9))[0] == text(9)
    assert world.fold() == 420
    assert world.answering(ALICE) is world.large
    assert world.top(text(9))[0] == text(9)


def test_filters_mean_the_same_to_lancedb(world):
    """E6: the second dialect chooses what the first does, whatever quotes and signs stand in the values."""
    world.fold()
    everyone = {row.rowid: row for row in world.all_rows() if row.scope == ALICE}
    cases = [
        {"session_id": "s3"},
        {"session_id": {"ne": "s3"}},
        {"session_id": {"in": ["s1", "it's", "\\", 's"2', "x' OR '1'='1"]}},
        {"session_id": {"in": []}},
        {"session_id": {"gt": "s2", "lte": "s5"}},
        {"OR": [{"parent_id": "nowhere"}, {"sender_id": {"ne": "ana'); --"}, "session_id": "s6"}]},
        {"parent_id": {"ne": "\\'"}},
        {"sender_id": {"in": ["a", "b"]}},
        {"timestamp": {"gte": "2026-06-01T10:00:00+00:00"}, "session_id": "s0"},
        {"timestamp": {"lt": 5}},
        {"tags": {"ne": "it's"}, "metadata.it's": {"ne": "\\"}, "session_id": "s1"},
    ]
    from cairn.index.filters import parse

    world.tables.load(wait=True)
    state = world.tables.state()
    scope = world.large.legs(ALICE, Ask(terms=("topic1",))).corpus.scope
    number = world.index.database.read(
        lambda db: db.execute("SELECT id FROM scopes WHERE owner = ?", (scope.owner,)).fetchone()[0]
    )
    words = {f"{number}:{word}": 1.0 for word in ("concern", "concerns", "item")}
    for case in cases:
        where = parse(case)
        wish = Wish(
            ALICE, "episode", f"scope = {number} AND {where.to_lance()}", 400, True, words, None, 1000
        )
        [(_, found)] = world.tables.best(state, [wish])
        expected = set(by_words(world.index, ALICE, ["concern", "concerns", "item"], where=where))
        assert set(found) == expected, case
        assert set(found) <= everyone.keys()


def test_a_rebuild_goes_on_for_as_long_as_it_moves(tmp_path, monkeypatch):
    """A million rows take minutes, and nobody else makes them."""
    world = Indexed(tmp_path)
    for n in range(12):
        world.notebook.append("episode", ALICE, f"2026-05-{n + 1:02}", [Draft({}, {"Content": text(n)})])
    world.waits.catch_up(LONG)
    rows, drain, passed = world.index.about(ALICE).rows, world.indexer.drain, [0.0]

    def one_by_one(limit=None, within=()):
        passed[0] += 8.0
        return drain(1, within)

    monkeypatch.setattr(world.indexer, "drain", one_by_one)
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    world.waits.rebuild()
    assert passed[0] > 90 and world.index.about(ALICE).rows == rows >= 12
    world.close()


def test_what_others_say_does_not_decide_what_is_proposed(tmp_path):
    """A word that everybody else uses is as rare for an owner as it is in his own texts."""
    index, tables = SqliteIndex(tmp_path), LanceTables(tmp_path)
    said = [(ALICE, f"meeting budget report number{n}") for n in range(200)]
    said += [(BOB, f"zebra zebra number{n}") for n in range(600)] + [(ALICE, "a zebra")]
    made = [
        Row(0, "episode", scope, f"e{n}", "a.md", words, timestamp_ms=n)
        for n, (scope, words) in enumerate(said)
    ]
    index.apply([NewRow(row, bytes(2)) for row in made])
    tables.fold(index)
    large = LargeIndex(index, tables, whole_rows=0, best=20)
    found = large.legs(ALICE, Ask(terms=("zebra", "meeting", "budget", "report")))
    exact = index.legs(ALICE, Ask(terms=("zebra", "meeting", "budget", "report")))
    best, place = int(exact.corpus.rowid[exact.bm25.argmax()]), int(found.bm25.argmax())
    assert index.rows(ALICE, [best])[0].text == "a zebra"
    assert (int(found.corpus.rowid[place]), bool(found.passing[place])) == (best, True)
    assert found.bm25[place] == pytest.approx(exact.bm25.max())
    index.close()


def test_a_table_of_one_owner_is_asked_without_naming_them_until_another_comes(tmp_path):
    """Nor may a hidden row be told of, nor one of somebody else crowd out what is nearest."""
    index, tables = SqliteIndex(tmp_path), LanceTables(tmp_path)
    index.begin_model("m")

    def put(scope, first, count, status=""):
        made = [
            Row(0, "episode", scope, f"e{n}", "a.md", f"lantern number{n}", n, status=status)
            for n in range(first, first + count)
        ]
        index.apply([NewRow(row, bytes(2)) for row in made])
        waiting = index.pending(count)
        index.put_vectors(
            waiting, {one.key: np.eye(8, dtype=np.float32)[n % 8] for n, one in enumerate(waiting)}
        )
        tables.fold(index)
        return tables.state()["kinds"]["episode"]["alone"]

    asked = Ask(terms=("lantern",), plain=np.eye(8, dtype=np.float32)[0], hidden=False)

    def passing():
        found = LargeIndex(index, tables, whole_rows=0, best=30).legs(ALICE, asked)
        return [row.entry_id for row in index.rows(ALICE, found.corpus.rowid[found.passing].tolist())]

    assert put(ALICE, 0, 40) is not None
    everything = passing()
    assert len(everything) >= 30
    assert put(BOB, 100, 400) is None
    assert passing() == everything
    index.apply([], removed=[row.rowid for row in index.find(BOB, [f"e{n}" for n in range(100, 500)])])
    tables.fold(index)
    assert tables.state()["kinds"]["episode"]["alone"] is not None
    assert passing() == everything
    assert put(ALICE, 600, 90, "archived") is None
    assert not {f"e{n}" for n in range(600, 690)} & set(passing())
    assert len(passing()) >= 30
    index.close()


def test_an_answer_that_shows_more_looks_at_more(tmp_path):
    """And one that may show only some of what is found looks at as many as it can."""
    index, tables = SqliteIndex(tmp_path), LanceTables(tmp_path)
    made = [Row(0, "message", ALICE, f"m{n}", "a.jsonl", f"lantern number{n}", n) for n in range(500)]
    index.apply([NewRow(row, bytes(2)) for row in made])
    tables.fold(index)
    large = LargeIndex(index, tables, whole_rows=0)
    tables.load(wait=True)

    def looked_at(count):
        found = large.legs(ALICE, Ask(terms=("lantern",), count=count))
        return int((found.bm25[found.passing] > 0).sum())

    shallow = looked_at(10)
    assert 50 < shallow < 200 and looked_at(1) == shallow
    assert shallow < looked_at(12) < looked_at(100) == looked_at(None) == 200

    class Noted:
        """The rows, and what was asked of them last."""

        def __getattr__(self, name):
            return getattr(index, name)

        def legs(self, scope, ask):
            self.ask = ask
            return index.legs(scope, ask)

    noted = Noted()
    searcher = Searcher(noted, settings=config.load(tmp_path, environ={}), clock=SystemClock())
    for more, count in (
        ({"top_k": 7}, 7),
        ({"top_k": 7, "evidence": 30}, 30),
        ({"top_k": 7, "limited_to": ["alice"]}, None),
        ({"top_k": 7, "unheard": ["s1"]}, None),
    ):
        searcher.search(SearchRequest("lantern", ALICE, method="keyword", **more))
        assert noted.ask.count == count
    index.close()


def test_words_that_weigh_alike_are_asked_for_together():
    weighed = lance._of_one_weight({"a": 1.0, "b": 2.0, "c": 1.05, "d": 1.2, "e": 2.1})
    assert [(pytest.approx(weight), group) for weight, group in weighed] == [
        (1.025, ["a", "c"]), (1.2, ["d"]), (2.05, ["b", "e"]),
    ]  # fmt: skip


def test_rows_are_folded_in_by_a_process_that_starts_when_due(tmp_path):
    """Many rows at once start it; it writes the tables and ends; the service itself imports nothing."""
    world = LargeWorld(tmp_path, rows=40)
    folder = Folder(world.index, world.tables, many=30, apart_seconds=0.0)
    until(lambda: folder() or folder.told()["waiting"] == 0)
    assert folder.told() == {"rows": 60, "waiting": 0}
    folder.stop()
    code = (
        "import sys, pathlib; from cairn.engines.large import Answering; from cairn.engines.lance import Folder;"
        "sys.exit(any(name in sys.modules for name in ('lancedb', 'pyarrow', 'onnxruntime', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    world.close()


def test_tables_that_nobody_asks_are_seldom_brought_up_to_date(tmp_path):
    """Of few rows memory answers: one process makes the tables, and the next rows wait for their turn there."""

    class Counted(LanceTables):
        begun = 0

        def begin_fold(self):
            self.begun += 1
            self.process = super().begin_fold()
            return self.process

    world = LargeWorld(tmp_path, rows=40)
    tables = Counted(tmp_path / ".index")
    few = Folder(world.index, tables, many=1, apart_seconds=0.0, seldom_below=10_000)
    until(lambda: few() or few.told()["waiting"] == 0)
    tables.process.wait()  # it ends after what it has written is seen
    world.notebook.append("episode", ALICE, DAY, [Draft({"session_id": "new"}, {"Content": "one more"})])
    world.embedded()
    for _ in range(5):
        few()
    assert (tables.begun, few.told()["waiting"]) == (1, 1)
    many = Folder(world.index, tables, many=1, apart_seconds=0.0, seldom_below=10)
    until(lambda: many() or many.told()["waiting"] == 0)
    assert tables.begun == 2
    world.notebook.append("episode", ALICE, DAY, [Draft({"session_id": "new"}, {"Content": "and another"})])
    world.embedded()
    until(lambda: many() or many.told()["waiting"] == 0)
    assert tables.begun == 3, "rows that are asked of the tables are there soon"
    few.stop()
    many.stop()
    world.close()


def test_lancedb_is_loaded_without_its_rest_client():
    """Most of an import serves tables on other machines: it is left out until somebody wants it, then whole."""
    code = (
        "import sys\n"
        "from cairn.engines.lance_import import imported\n"
        "lancedb = imported()\n"
        "assert not [name for name in sys.modules if name.startswith('lance_namespace_urllib3_client')]\n"
        "from lancedb.namespace import QueryTableRequest as late\n"
        "made = late(k=1, vector={'single_vector': [1.0]})\n"
        "from lance_namespace_urllib3_client.models import QueryTableRequest as real\n"
        "assert type(made) is real and real is not late\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_index_size_stays_bounded(tmp_path, monkeypatch):
    """P12: however often notes are rewritten: 8 bytes per byte of truth, 8 per dimension and 512 per row, and 1 MB."""
    monkeypatch.setattr(lance, "_KEEP_SECONDS", 0.001)
    world = LargeWorld(tmp_path, rows=200)
    file = world.note_path()
    for turn in range(6):
        file.write_text(file.read_text().replace(f"and{'x' * turn} place", f"and{'x' * (turn + 1)} place"))
        world.embedded()
        world.fold()
        world.indexer.maintain()
    for _ in range(2):
        state = world.tables.state()
        state["kinds"]["episode"]["prune_at"] = 1.0
        world.tables._save(state)
        world.tables.fold(world.index)
    markdown = sum(f.stat().st_size for f in world.folder.rglob("*.md"))
    size = sum(f.stat().st_size for f in (world.folder / ".index").rglob("*") if f.is_file())
    assert size < 8 * markdown + 220 * (8 * 64 + 512) + 1_048_576
    world.close()


def test_a_table_just_made_keeps_no_earlier_versions(tmp_path, monkeypatch):
    """Its batches are compacted before the state names it, so nobody can be in what they were."""
    monkeypatch.setattr(lance, "_BATCH", 50)
    monkeypatch.setattr(lance, "_OPTIMIZE_FRAGMENTS", 3)
    world = LargeWorld(tmp_path, rows=400)
    world.fold()
    made = world.folder / ".index" / "lancedb" / "episode.lance"
    assert len(list((made / "_versions").glob("*.manifest"))) <= 3
    assert len(list((made / "data").iterdir())) <= 2
    assert world.tables.state()["kinds"]["episode"]["prune_at"] == 0.0
    world.close()


def test_a_small_table_that_is_often_written_keeps_few_versions(tmp_path, monkeypatch):
    """Each write leaves a version with its files: by their number they are folded, however few rows were changed."""
    monkeypatch.setattr(lance, "_KEEP_SECONDS", 0.001)
    monkeypatch.setattr(lance, "_OPTIMIZE_WRITES", 5)
    world = LargeWorld(tmp_path, rows=20)
    file = world.note_path()
    kept = []
    for turn in range(16):
        file.write_text(file.read_text().replace(f"and{'x' * turn} place", f"and{'x' * (turn + 1)} place", 1))
        world.embedded()
        world.fold()
        kept.append(
            len(list((world.folder / ".index" / "lancedb" / "episode.lance" / "_versions").iterdir()))
        )
    assert max(kept[8:]) <= 20
    world.close()


def test_a_reader_sees_what_another_process_folded_in(world):
    """Two processes on one root: the tables of one are the answers of the other, without opening it anew."""
    world.fold()
    other = SqliteIndex(world.folder / ".index")
    other.use_model(EMBEDDER.id)
    reader = LanceTables(world.folder / ".index")
    reader.load(wait=True)
    large = LargeIndex(other, reader, whole_rows=0)
    assert len(by_words(large, ALICE, ["item70"])) == 1
    world.episode("something of quartz")
    world.embedded()
    assert len(by_words(large, ALICE, ["quartz"])) == 1, "before it is folded in"
    world.fold()
    assert len(by_words(large, ALICE, ["quartz"])) == 1, "and after"
    other.close()


def test_both_engines_and_an_index_made_anew_agree_after_any_history(tmp_path):
    """P1, P2: edits, folding, forgetting, damage, lost tables, a lost `.index`; `make chaos PART=engines` draws more and kills -9."""
    happened = engines.history(tmp_path / "root", seed=8, steps=12)
    assert sum(happened.values()) == 12
    assert {"edit", "fold", "forget", "damage", "lose"} <= happened.keys()


def test_numpy_is_whole_before_lancedb_is_loaded():
    """Two threads that import numpy from its two ends get a half-made module: whoever loads LanceDB begins with its name."""
    code = (
        "import importlib, sys\n"
        "from cairn.engines import lance_import\n"
        "def load(name):\n"
        "    sys.exit(0 if name == 'lancedb' and 'numpy' in sys.modules else 1)\n"
        "importlib.import_module = load\n"
        "lance_import.imported()\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
