"""Tables of LanceDB in a bucket: a real S3 server, real PostgreSQL, several machines in one process.

`make cluster` installs what this needs and runs it. Elsewhere it is skipped, and says what is missing.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

import numpy as np
import pytest
from tools import cluster as many

from cairn.config import StorageSettings
from cairn.engines import shared_tables
from cairn.engines.lance import Folder
from cairn.engines.large import Answering, LargeIndex
from cairn.engines.locks import FileLocks
from cairn.engines.postgres import Postgres, PostgresLocks
from cairn.engines.rows import SqliteIndex
from cairn.engines.shared_tables import PREFIX, SharedTables
from cairn.errors import Conflict
from cairn.index.corpus import Ask, Moved, NewRow, Row
from cairn.testing import INDEX_CHECKS, IndexUnderTest
from cairn.testing.suite import run_checks
from cairn.types import Scope, Space

pytestmark = [
    pytest.mark.skipif(bool(many.missing()), reason=f"make cluster brings what is missing: {many.missing()}"),
    pytest.mark.xdist_group("cluster"),
]
ANA, BO = (Scope(Space(), "user", name) for name in ("ana", "bo"))


class Machine:
    """The rows of one machine, and the tables as it sees them."""

    def __init__(self, folder, engines, root, opened):
        database, store, _ = engines
        place = StorageSettings(
            "s3", url=f"s3://cairn/{root}", endpoint=store.endpoint, database=database.url
        )
        self.rows = SqliteIndex(folder)
        pool = Postgres(database.url, place.url, connections=2)
        self.locks = PostgresLocks(pool, FileLocks(folder))
        for one in (pool, self.locks, self.rows):
            opened.callback(one.close)
        self.tables = SharedTables(folder, place, self.rows, self.locks, index_rows=500)
        self.tables.load(wait=True)
        self.large = LargeIndex(self.rows, self.tables, whole_rows=0)
        self.asked = Answering(self.rows, self.tables, engine="lancedb", memory_rows=0, large=self.large)

    def put(self, texts, scope=ANA, vectors=True):
        self.rows.begin_model("suite@16")
        self.rows.apply([row(number, text, scope) for number, text in texts.items()])
        while vectors and (waiting := self.rows.pending(1000)):
            self.rows.put_vectors(waiting, {one.key: vector(one.text) for one in waiting})

    def finds(self, word, scope=ANA, tables=True):
        index = self.asked(scope)
        assert (index is self.large) == tables
        found = index.legs(scope, Ask(terms=(word,)))
        rows = index.rows(scope, [int(one) for one in found.corpus.rowid[found.bm25 > 0]])
        return sorted(one.text for one in rows)

    def near(self, text):
        found = self.large.legs(ANA, Ask(plain=vector(text)))
        return {
            one.text: round(float(found.cosine[at]), 3)
            for at, one in enumerate(self.large.rows(ANA, list(map(int, found.corpus.rowid))))
        }


def vector(text):
    made = np.random.default_rng(len(text)).normal(size=16).astype(np.float32)
    return made / np.linalg.norm(made)


def row(number, text, scope):
    made = Row(0, "message", scope, f"e{number}", f"{scope.owner}.md", text, 1000 + number, session_id="s")
    return NewRow(made, text.encode())


@pytest.fixture
def world(engines, tmp_path):
    root = f"tables-{random.randrange(10**9)}"
    with ExitStack() as opened:
        yield lambda name, other=root: Machine(tmp_path / name, engines, other, opened)


def test_the_index_suite_passes_over_tables_in_a_bucket(world):
    """Every answer is the same before and after the rows are in the tables."""

    def under():
        name = f"suite-{random.randrange(10**9)}"
        made = world(name, name)
        return IndexUnderTest(made.rows, made.large, lambda: made.tables.fold(made.rows))

    assert run_checks(INDEX_CHECKS, under)


def test_one_machine_writes_and_all_read(world):
    """Machines number rows each in their own way: a table written by one answers for another, with what is newer there."""
    one, two = world("one"), world("two")
    said = {number: f"heron number{number} said" for number in range(60)}
    one.put(said)
    two.put({0: "otter here"}, BO)  # so that owners and rows have other numbers
    two.put(dict(reversed(said.items())))
    assert one.tables.leads() and not two.tables.leads()
    assert one.tables.fold(one.rows) == 60
    assert two.tables.has_news() and two.tables.fold(two.rows, write=False) == 0
    assert two.finds("number7") == one.finds("number7") == ["heron number7 said"]
    assert two.near(said[11]) == one.near(said[11]) and two.near(said[11])[said[11]] == 1.0
    assert len(two.finds("heron")) == 60 and not two.finds("heron", BO)
    # What one of them changed is found there at once; the other has its own state until it hears of it.
    two.put({7: "egret instead", 60: "heron number60 said"})
    assert two.finds("number7") == [] and two.finds("egret") == ["egret instead"] and two.finds("number60")
    assert one.finds("number7") and not one.finds("egret")
    assert Folder(two.rows, two.tables).told()["waiting"] > 0
    one.put({7: "egret instead", 60: "heron number60 said"})
    assert one.tables.fold(one.rows) == 2
    two.tables.fold(two.rows, write=False)
    assert two.finds("egret") == one.finds("egret") and two.finds("number60")
    assert Folder(two.rows, two.tables).told()["waiting"] == 1  # the otter, of which the writer knows nothing


def test_a_writer_that_lost_its_lead_is_refused_and_the_next_mends_the_tables(world, monkeypatch, engines):
    """Two write at once: the one whose notes come late gets none in, and what it did to a table is put right."""
    one, two = world("one"), world("two")
    for machine in (one, two):
        machine.put({number: f"heron number{number}" for number in range(40)})
    one.tables.fold(one.rows)
    assert one.tables.leads()
    one.put({40: "late bittern"})
    note = one.tables._note
    refused = []

    def late(*given):
        monkeypatch.setattr(one.tables, "_note", note)
        engines[0].free_locks()
        assert two.tables.leads() and two.tables.fold(two.rows) >= 0
        try:
            return note(*given)
        except Conflict:
            refused.append(True)
            raise

    monkeypatch.setattr(one.tables, "_note", late)
    one.tables.fold(one.rows)
    assert refused and not one.tables.leads()
    assert one.finds("bittern") == ["late bittern"] and two.finds("bittern") == []
    two.put({41: "another heron"})
    two.tables.fold(two.rows)  # which takes out what it does not know of
    assert len(two.finds("heron")) == 41
    noted, _ = two.tables._noted("suite@16")
    assert noted["epoch"] >= 2 and noted["kinds"]["message"]["rows"] == 41
    assert one.finds("bittern") == ["late bittern"]


def test_tables_and_what_is_known_of_them_may_vanish(world):
    """Without its own notes, with a table gone from the bucket, or an index made anew, a machine answers, and mends."""
    import obstore

    one, two = world("one"), world("two")
    for machine in (one, two):
        machine.put({number: f"heron number{number}" for number in range(40)})
    one.tables.fold(one.rows)
    two.tables.fold(two.rows, write=False)
    (two.tables._folder / "state.json").unlink()
    assert len(two.finds("heron", tables=False)) == 40
    two.tables.fold(two.rows, write=False)
    assert len(two.finds("heron")) == 40
    store = one.tables._opened()
    obstore.delete(
        store, [at["path"] for page in obstore.list(store, PREFIX) for at in page if ".lance/" in at["path"]]
    )
    two.tables._open.clear()
    with pytest.raises(Moved):
        two.finds("number7")
    assert two.finds("number7", tables=False)
    assert one.tables.fold(one.rows) == 40
    two.tables.fold(two.rows, write=False)
    assert two.finds("number7")
    one.rows.clear()
    one.put({number: f"heron number{number}" for number in range(20)})
    assert one.tables.fold(one.rows) == 20  # it compares, and takes out the rest
    assert len(one.finds("heron")) == 20


def test_what_is_forgotten_goes_from_the_bucket_and_does_not_come_back(world, monkeypatch):
    """Every version of a table that held it goes; a machine that may still hold it does not write for a while."""
    import obstore

    one, two = world("one"), world("two")
    for machine in (one, two):
        machine.put({number: f"heron number{number}" for number in range(40)} | {40: "Zaphodine secret"})
    one.tables.fold(one.rows)
    two.tables.fold(two.rows, write=False)
    store = one.tables._opened()

    def held():
        keys = [at["path"] for page in obstore.list(store, PREFIX) for at in page]
        return [key for key in keys if b"Zaphodine" in bytes(obstore.get(store, key).bytes())]

    assert held() and two.tables.scrub(two.rows) and held()  # nothing of two's rows went: the tables stay
    gone = [stored.rowid for (_, entry), stored in two.rows.stored("ana.md").items() if entry == "e40"]
    two.rows.apply([], removed=gone)
    assert two.tables.scrub(two.rows) and not held()
    assert one.tables.fold(one.rows) == 0 and not held()  # it has not heard of it yet
    assert len(one.finds("heron", tables=False)) == 40
    assert two.tables.fold(two.rows) == 40 and not held()
    monkeypatch.setattr(shared_tables, "_QUIET_SECONDS", 0.0)
    one.tables.fold(one.rows)
    assert len(one.finds("heron")) == 40
