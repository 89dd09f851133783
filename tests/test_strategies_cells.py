"""What the strategies keep of the cells they read."""

from __future__ import annotations

from types import SimpleNamespace

from cairn.strategies import cells
from cairn.types import Scope
from tests.world import SPACE, World, said


def test_a_session_that_grows_is_counted_once(tmp_path, monkeypatch):
    """A cell read again and again as its session grows neither fills the cache nor breaks it."""
    monkeypatch.setattr(cells, "_MESSAGES_KEPT", 6)
    kit = World(tmp_path)
    kit.add("s", said("the first stretch", 1), said("and its second line", 2))
    [cell_id] = kit.flush("s").cell_ids
    reader = cells.Cells(kit.notebook, kit.journals)
    ask = SimpleNamespace(scope=Scope(SPACE, "user", "ann"), session_id="s", cell_id=cell_id)
    for number in range(10):
        kit.add("s", said(f"another line {number}", 10 + number))
        assert len(reader.cell(ask).messages) == 2
    assert reader._messages_kept == 2
