"""Words, meaning and filter in one question: a filter is asked before anything is cut."""

from __future__ import annotations

import numpy as np
import pytest

from cairn.engines import lance, rows
from cairn.engines.lance import LanceTables
from cairn.engines.large import LargeIndex
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Ask, NewRow, Row
from cairn.index.filters import parse
from cairn.language.words import tokens
from cairn.types import Scope, Space
from tests.world import ALICE, SearchWorld, from_tables

ENGINES = ["memory", pytest.param("lancedb", marks=pytest.mark.xdist_group("lance"))]
RARE = {"session_id": "rare"}


def said(number: int, text: str, session: str, scope: Scope = ALICE) -> NewRow:
    row = Row(
        rowid=0, kind="message", scope=scope, entry_id=f"m{number}", path=f"{session}.jsonl", text=text,
        timestamp_ms=number, session_id=session, sender_ids=("alice",), ordinal=number,
    )  # fmt: skip
    return NewRow(row, str(number).encode())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_filter_finds_the_one_among_thousands_that_hold_the_word(tmp_path, engine):
    """E6: 6,000 short messages fit the word better than the long one of the session that is asked for."""
    world = SearchWorld(tmp_path)
    crowd = [said(n, "apple pie", "crowd") for n in range(6000)]
    world.index.apply([*crowd, said(6000, "at length, of an apple " + "and more " * 200, "rare")])
    if engine == "lancedb":
        world.asked = from_tables(world.index, tmp_path)
    found = world.ask("apple", method="keyword", filters=RARE, evidence=5).evidence
    assert [one.session_id for one in found] == ["rare"]
    world.close()


@pytest.mark.parametrize("memory_rows", [5, 50_000], ids=["vectors on disk", "vectors in memory"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compared", [5000, 0], ids=["all that pass", "by the index over vectors"])
def test_a_filter_finds_by_meaning_however_large_the_scope(
    tmp_path, monkeypatch, memory_rows, engine, compared
):
    """E6: beyond `index.memory_rows`, too, the nearest row that passes is found, though many others lie nearer."""
    world = SearchWorld(tmp_path)
    world.say("crowd", [("alice", "the harbour at night")] * 700)
    world.say("rare", [("alice", "some boat in a harbour")])
    world.index.close()
    world.index = SqliteIndex(tmp_path / ".index", memory_rows=memory_rows)
    world.index.use_model(world.model.id)
    if engine == "lancedb":
        # As in a table of millions: more parts than are looked through.
        monkeypatch.setattr(lance, "_PARTITION_ROWS", 10)
        monkeypatch.setattr(lance, "_FLAT_ROWS", compared)
        world.asked = from_tables(world.index, tmp_path, index_rows=100)
        assert lance._partitions(world.asked._tables.state()["kinds"]["message"]["trained"]) > lance._PROBES
    result = world.ask("the harbour at night", method="vector", filters=RARE, evidence=5)
    assert [one.session_id for one in result.evidence] == ["rare"]
    assert [hit.session_id for hit in result.episodes] == ["rare"]
    world.close()


@pytest.mark.xdist_group("lance")
@pytest.mark.parametrize("share", [1 / 3, 2.0], ids=["the nearest first", "those that pass first"])
def test_a_filter_that_half_of_the_rows_pass_finds_what_lies_behind_the_other_half(
    tmp_path, monkeypatch, share
):
    """E6: where many rows pass, the nearest are asked first whether they do; none of them does here."""
    world = SearchWorld(tmp_path)
    world.say("crowd", [("alice", "the harbour at night")] * 700)
    world.say("rare", [("alice", f"some boat number{n} in a harbour") for n in range(600)])
    monkeypatch.setattr(lance, "_PARTITION_ROWS", 15)
    monkeypatch.setattr(lance, "_FLAT_ROWS", 0)
    monkeypatch.setattr(lance, "_COMMON_SHARE", share)
    world.asked = from_tables(world.index, tmp_path, index_rows=100)
    result = world.ask("the harbour at night", method="vector", filters=RARE, evidence=50)
    world.asked = None
    exact = world.ask("the harbour at night", method="vector", filters=RARE, evidence=50)
    assert {one.session_id for one in result.evidence} == {"rare"} and len(result.evidence) == 50
    assert result.evidence[0].score == pytest.approx(exact.evidence[0].score, abs=1e-3)
    world.close()


def test_word_scores_know_nothing_of_other_owners(tmp_path):
    """P7: what others wrote moves no score of words, neither by how common a word is nor by how long texts are."""
    alone, crowded = SearchWorld(tmp_path / "a"), SearchWorld(tmp_path / "b")
    mine = [
        said(n, text, "s1") for n, text in enumerate(["a red kite", "the kite is blue and very high", "tea"])
    ]
    other = Scope(Space(), "user", "other")
    crowded.index.apply([said(n, "kite " * (1 + n % 7), "s1", other) for n in range(50)])
    answers = []
    for world in (alone, crowded):
        world.index.apply(mine)
        found = world.index.legs(ALICE, Ask(terms=tokens("blue kite"), where=parse({"session_id": "s1"})))
        answers.append((found.bm25.tolist(), found.passing.tolist()))
        world.close()
    assert answers[0] == answers[1]
    assert answers[0][0][1] > answers[0][0][0] > answers[0][0][2] == 0


def test_rows_that_come_together_are_kept_as_those_that_come_one_by_one(tmp_path):
    """An entry that comes twice in a batch is one row, as it came last; no number of a row is given twice."""
    together, apart = SearchWorld(tmp_path / "a"), SearchWorld(tmp_path / "b")
    given = [said(n % 3, f"text {n} of the kite", "s1") for n in range(5)]
    together.index.apply(given)
    for one in given:
        apart.index.apply([one])
    kept = []
    for world in (together, apart):
        page = world.index.page(ALICE, ["message"])
        world.index.apply([], removed=page.rowids[:1])
        world.index.apply([given[0], said(7, "a new kite", "s2")])
        asked = world.index.legs(ALICE, Ask(terms=["kite"]))
        after = world.index.page(ALICE, ["message"])
        fresh = set(after.rowids) - set(page.rowids)
        assert min(fresh) > max(page.rowids)
        texts = sorted((row.entry_id, row.text) for row in world.index.rows(ALICE, after.rowids))
        kept.append((page.total, after.total, texts, sorted(asked.bm25.tolist()), world.index.scopes()))
        world.close()
    assert kept[0] == kept[1]
    assert kept[0][:2] == (3, 3)


def test_maintenance_ends_when_there_is_nothing_left_to_merge(tmp_path):
    """The full-text tables are merged until none of them has anything to merge, not until the time for it is over."""
    index = SqliteIndex(tmp_path)
    scope = Scope(Space(), "user", "alice")
    for n in range(40):
        row = Row(0, "episode", scope, f"e{n}", "p", f"word{n} heron", n + 1)
        index.apply([NewRow(row, bytes([n]))])
    index.maintain(budget_seconds=60.0)
    assert index.maintain(budget_seconds=5.0)["merges"] == 0
    index.close()


def test_vectors_of_a_large_scope_are_read_through_once(tmp_path, monkeypatch):
    """Not once for every block of them: twice the rows cost twice the steps."""
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 20)
    index = SqliteIndex(tmp_path)
    index.begin_model("m")
    steps = []
    for first in (0, 400):
        index.apply([said(n, f"boat number{n}", f"s{n % 7}") for n in range(first, 2 * first or 400)])
        waiting = index.pending(1000)
        index.put_vectors(waiting, {one.key: np.eye(8, dtype=np.float32)[0] for one in waiting})
        taken = [0]

        def step(taken=taken):
            taken[0] += 1

        index.database.read(lambda db, step=step: db.set_progress_handler(step, 100))
        assert sum(len(rowids) for rowids, _ in index.stored_vectors(ALICE)) == (2 * first or 400)
        index.database.read(lambda db: db.set_progress_handler(None, 0))
        steps.append(taken[0])
    assert steps[1] < 2.5 * steps[0]
    index.close()


@pytest.mark.xdist_group("lance")
def test_a_filter_by_time_is_judged_late_and_loses_nothing(tmp_path):
    """E6: in a table of one owner the best are found first and judged by their times; all are asked where too few pass."""
    world = SearchWorld(tmp_path)
    random = np.random.default_rng(3)
    # What is old fits better, by words and by meaning, than anything that is newer.
    talk = [
        f"lantern number{n} " + "boat " * int(random.integers(4)) + "and more " * (20 if n >= 450 else 0)
        for n in range(900)
    ]
    world.index.apply([said(n, text, f"s{n % 7}") for n, text in enumerate(talk)])
    waiting = world.index.pending(900)
    made = random.standard_normal((900, world.model.dimensions)).astype(np.float32)
    made[:450, 0] += 40
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    order = {one.rowid: place for place, one in enumerate(sorted(waiting, key=lambda one: one.rowid))}
    world.index.put_vectors(waiting, {one.key: made[order[one.rowid]] for one in waiting})
    tables = LanceTables(tmp_path / ".index")
    tables.fold(world.index)
    large = LargeIndex(world.index, tables, whole_rows=0, best=30)
    tables.load(wait=True)
    assert tables.state()["kinds"]["message"]["alone"] is not None

    def best(index, ask, scores):
        found = index.legs(ALICE, ask)
        fits = found.passing & (getattr(found, scores) > (0 if scores == "bm25" else -2))
        # An index over vectors rounds: the last of thirty may be another.
        return sorted(getattr(found, scores)[fits].tolist(), reverse=True)[: 30 if scores == "bm25" else 20]

    filters = [None, {"timestamp": {"lt": 100}}, {"timestamp": {"gte": 100}}, {"timestamp": {"in": [5, 800]}}]
    filters += [
        {"timestamp": {"gt": int(low), "lte": int(low) + int(wide)}}
        for low, wide in random.integers(0, 900, (20, 2))
    ]
    filters += [
        {"OR": [{"timestamp": {"lt": 50}}, {"timestamp": {"gte": 400}}]},
        {"timestamp": {"gte": 100}, "session_id": "s3"},
        {"timestamp": {"ne": 77}},
    ]
    for case in filters:
        for until in (None, 600):
            for ask, scores in (
                (Ask(terms=("lantern", "boat"), where=parse(case), until_ms=until), "bm25"),
                (Ask(plain=made[int(random.integers(450))], where=parse(case), until_ms=until), "cosine"),
            ):
                assert best(large, ask, scores) == pytest.approx(best(world.index, ask, scores), abs=1e-4), (
                    case
                )
    world.close()
