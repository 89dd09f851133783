"""What the strategies read of cells."""

from __future__ import annotations

from types import SimpleNamespace

from cairn.strategies.cells import Cells
from cairn.talk.sessions import SessionLog, session_locator
from cairn.types import Scope
from tests.world import SPACE, World, said


def test_a_cell_reads_the_same_while_its_session_grows(tmp_path):
    """A cell read again and again as its session grows has the words that were in it."""
    kit = World(tmp_path)
    kit.add("s", said("the first stretch", 1), said("and its second line", 2))
    [cell_id] = kit.flush("s").cell_ids
    reader = Cells(kit.notebook, SessionLog(kit.journals))
    ask = SimpleNamespace(scope=Scope(SPACE, "user", "ann"), session_id="s", cell_id=cell_id)
    for number in range(10):
        kit.add("s", said(f"another line {number}", 10 + number))
        assert [one.text for one in reader.cell(ask).messages] == ["the first stretch", "and its second line"]


def test_words_that_memory_let_go_of_are_read_once_for_all_who_ask(tmp_path, monkeypatch):
    """Of a long session the oldest words are not held; several strategies that ask for them read its log once."""
    kit = World(tmp_path)
    cells = []
    for number in range(3):
        kit.add("s", said(f"stretch number {number}", 1 + number))
        cells += kit.flush("s").cell_ids
    log = SessionLog(kit.journals)
    reader = Cells(kit.notebook, log)
    where = session_locator(SPACE, "s")
    log.load(where)
    state = log.peek(where)
    assert state is not None
    state.let_go(0)
    assert not state.messages
    read, anew = [], log._read_anew
    monkeypatch.setattr(log, "_read_anew", lambda *at: read.append(at) or anew(*at))
    for number in (0, 1, 2, 0):
        ask = SimpleNamespace(scope=Scope(SPACE, "user", "ann"), session_id="s", cell_id=cells[number])
        assert [one.text for one in reader.cell(ask).messages] == [f"stretch number {number}"]
    assert len(read) == 1
