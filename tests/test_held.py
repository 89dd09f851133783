"""What a process holds follows what there is, not all there ever was: sessions, texts, words and names come and go."""

from __future__ import annotations

import numpy as np
import pytest

from cairn.engines import held_rows, large, warm
from cairn.engines.held_rows import HeldScopes, found_by
from cairn.engines.row_tables import model_number, scope_number
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import NewRow, Row
from cairn.index.postings import Postings, word_mark
from cairn.notes.notebook import Draft
from cairn.talk.sessions import SessionLog, session_locator
from cairn.timetravel import changes
from tests.test_postings import found, worded
from tests.test_timetravel import Travelled
from tests.world import ALICE, SPACE, Indexed, World, said


def test_of_many_sessions_the_last_are_held_and_nothing_of_a_boundary_that_is_closed(tmp_path):
    kit = World(tmp_path)
    for number in range(6):
        kit.add(f"s{number}", said("the lantern hangs in the attic"))
    log = kit.capture._log
    assert all(log.peek(session_locator(SPACE, f"s{number}")).watch is not None for number in range(6))
    kit.flush("s0")
    assert log.peek(session_locator(SPACE, "s0")).watch is None

    few = SessionLog(kit.journals, most=2)
    for number in range(6):
        few.load(session_locator(SPACE, f"s{number}"))
    held = [number for number in range(6) if few.peek(session_locator(SPACE, f"s{number}"))]
    assert held == [4, 5]
    assert [one.text for one in few.load(session_locator(SPACE, "s0")).messages] == [
        "the lantern hangs in the attic"
    ]


def test_a_history_knows_the_last_texts_alone_and_brings_back_all(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "_TEXTS_KNOWN", 4)
    world = Travelled(tmp_path)
    entry = world.add("text 0")
    first = world.travelled.checkpoint()
    for number in range(1, 20):
        world.edit(entry, f"text {number}")
    assert len(world.travelled._texts) == 4
    world.edit(entry, "text 0")  # known no more: written once more, and still one text
    world.edit(entry, "text 20")
    world.travelled.restore(first.id)
    assert world.texts() == {entry: "text 0"}


def test_a_history_does_not_read_all_its_texts_for_each_change(tmp_path, monkeypatch):
    """What a change costs must not grow with the years: texts are read on from where they were read."""
    world = Travelled(tmp_path)
    entry = world.add("text 0")
    read, whole = world.journals.read, []

    def counted(at, start=0):
        whole.append((at.name, start)) if not start else None
        return read(at, start)

    monkeypatch.setattr(world.journals, "read", counted)
    monkeypatch.setattr(changes, "_HEADS_HELD", 3)
    for number in range(
        8
    ):  # notes of other days come and rest: the head of the one in use is held all the same
        world.edit(entry, f"text {number}")
        draft = Draft({"session_id": "s"}, {"Content": "rest"})
        [other] = world.notebook.append("episode", ALICE, f"2026-07-{number + 1:02d}", [draft])
        world.travelled.observe(other.locator, "add")
    assert whole == []
    assert [one.after for one in world.travelled.log(entry)]


def test_words_that_no_row_has_any_more_are_let_go():
    held, stays = Postings(), [(1000, "memory", "the lantern stays")]
    held = held.updated(worded(stays))
    for number in range(200):
        held = held.updated(worded([(number, "message", f"word{number} lantern")]), [number - 1])
    anew = Postings().updated(worded([*stays, (199, "message", "word199 lantern")]))
    assert sum(len(segment.terms) for segment in held.segments) < 30
    assert sum(len(segment.rowid) for segment in held.segments) < 30
    for terms in (["lantern"], ["word199", "stays"], ["word5"]):
        ours, theirs = (found(one, terms) for one in (held, anew))
        assert ours == pytest.approx(theirs)


def test_sessions_and_cells_of_rows_that_went_are_let_go(tmp_path, monkeypatch):
    """The codes of what stays are others afterwards; what they stand for is the same as in an index opened anew."""
    monkeypatch.setattr(warm, "_GONE_ROWS", 5)
    world = Indexed(tmp_path)
    try:
        for number in range(20):
            day = f"2026-06-{number + 1:02d}"
            world.episode(f"walk {number}", day=day, session_id=f"s{number}", parent_id=f"mc_{number}")
            world.sync()
            world.index.corpus(ALICE)
            if number >= 3:
                world.note_path(day=f"2026-06-{number - 2:02d}").unlink()
                world.indexer.scan()
                world.sync()
        held = world.index.corpus(ALICE)
        assert len(held.sessions) < 12
        other = SqliteIndex(tmp_path / ".index")
        try:
            anew = other.corpus(ALICE)
        finally:
            other.close()
        assert held.rowid.tolist() == anew.rowid.tolist()
        assert _named(held) == _named(anew)
        assert {session for session, _ in _named(held)} == {"s17", "s18", "s19"}
    finally:
        world.close()


def _named(corpus):
    """Each row's session and cell, by name."""
    return [
        (
            corpus.sessions[session] if session >= 0 else None,
            corpus.cells[cell] if cell >= 0 else None,
        )
        for session, cell in zip(corpus.session.tolist(), corpus.cell.tolist(), strict=True)
    ]


def test_rows_of_a_large_scope_are_held_as_they_are_however_many_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(held_rows, "_MOST_ROWS", 8)
    index = SqliteIndex(tmp_path)
    index.begin_model("model")
    index.apply([line(n, f"word{n} lantern lantern", f"s{n % 5}") for n in range(30)])
    waiting = index.pending(30)
    index.put_vectors(waiting[:20], {one.key: np.full(4, one.rowid) for one in waiting[:20]})
    held = HeldScopes()
    known = ("lantern", *(f"word{n}" for n in range(30)), *(f"turn{n}" for n in range(6)))
    words = {word_mark(word): word for word in known}

    def told(db, ids):
        kept = held.current(db, (index.generation, scope_number(db, ALICE), model_number(db, "model")))
        places = kept.read(db, ids)
        at = np.fromiter(places.values(), np.int64, len(places))
        columns = kept.columns
        said = {place: [] for place in range(len(at))}
        for place, number in zip(*columns.words_of(at), strict=True):
            said[place].append(words[number.tobytes()])
        vectors = columns.vectors_of(at)
        return {
            rowid: (
                columns.entries[place][0],
                columns.names["session"].names[columns["session"][place]],
                " ".join(said[n]),
                0 if vectors is None else int(vectors[n, 0]),
            )
            for n, (rowid, place) in enumerate(places.items())
        }, len(columns)

    numbers = [one.rowid for one in index.pending(30)] + [one.rowid for one in waiting[:20]]
    vectors = {one.rowid: one.rowid for one in waiting[:20]}
    for turn in range(6):
        asked = sorted(numbers)[turn * 5 : turn * 5 + 10]
        found, size = index.database.read(lambda db, asked=asked: told(db, asked))
        there = index.rows(ALICE, asked)
        assert found == {
            row.rowid: (row.entry_id, row.session_id, row.text, vectors.get(row.rowid, 0)) for row in there
        }
        assert size <= 8 + 10
        changed = there[2]
        index.apply([line(int(changed.entry_id[1:]), f"turn{turn} lantern", changed.session_id)])
        vectors.pop(changed.rowid, None)
        index.apply([], removed=[there[3].rowid])
    index.close()


def test_which_episode_a_cell_has_is_remembered_until_one_comes(tmp_path):
    index, held = SqliteIndex(tmp_path), HeldScopes()

    def told(db, cells):
        number = scope_number(db, ALICE)
        kept = held.current(db, (index.generation, number, None))
        return sorted(kept.read(db, found_by(db, kept.episodes, cells, large._EPISODES, number)))

    def asked(*cells):
        return index.database.read(lambda db: told(db, cells))

    index.apply([line(1, "a lantern", "s1", kind="episode", cell_id="c1")])
    [first] = asked("c1", "c2")
    assert asked("c2") == []
    index.apply([line(2, "a kite", "s2", kind="episode", cell_id="c2")])
    [second] = asked("c2")
    assert asked("c1", "c2") == [first, second]
    index.apply([], removed=[first])
    assert asked("c1", "c2") == [second]
    index.close()


def line(number: int, text: str, session: str, **more: str) -> NewRow:
    row = Row(
        rowid=0, kind=more.pop("kind", "message"), scope=ALICE, entry_id=f"m{number}", path=f"{session}.jsonl", text=text,
        timestamp_ms=number, session_id=session, ordinal=number, **more,
    )  # fmt: skip
    return NewRow(row, text.encode())
