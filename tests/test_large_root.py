"""A root made by command lives like any other: indexed into LanceDB, searched, edited, rebuilt, forgotten from."""

from __future__ import annotations

import pytest
from tools import make_root

import cairn
from cairn.engines.large import LargeIndex
from cairn.types import Scope, Space
from tests.waiting import folded

pytestmark = pytest.mark.xdist_group("lance")  # importing LanceDB costs seconds: once is enough
OWNER = Scope(Space(), "user", "person0")


def test_a_made_root_is_searched_edited_rebuilt_and_forgotten_from(tmp_path, capsys):
    """E1, E2, E5, E24, E56: 800 rows of two owners, answered from the tables and from what is fresh beside them."""
    folder = tmp_path / "root"
    assert make_root.main([str(folder), "--rows", "800", "--owners", "2"]) == 0
    assert "800 rows of 2 owners" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        make_root.main([str(folder), "--rows", "5"])
    with cairn.open_blocking(folder, embedding__provider="none", index__engine="lancedb") as memory:
        parts = memory.parts
        parts.answering._large._whole_rows = 0  # the tables are asked, however few rows there are

        def fold() -> None:
            memory.sync()
            folded(memory)
            assert isinstance(parts.answering(OWNER), LargeIndex)
            kinds = parts.lance.state()["kinds"]
            assert sum(mark["rows"] for mark in kinds.values()) == 800
            tables = {at.name for at in (folder / ".index" / "lancedb").glob("*.lance")}
            assert tables == {f"{kind}.lance" for kind in kinds} and len(kinds) > 1

        def found(words: str) -> list[str]:
            asked = memory.search(words, user_id="person0", method="keyword", consistency="strong")
            return [text for hit in asked.episodes for text in (hit.text, *(fact.text for fact in hit.facts))]

        fold()
        assert make_root.said(123) in found("item 123")[0]
        assert make_root.said(123) in found("item 123"), "the fact stands below its episode"
        assert not any("item 523" in text for text in found("item 523")), "that is the other owner's"
        was, now = make_root.said(123), "Ana gave the theremin away, item 123."
        for note in folder.rglob("*.md"):
            if was in note.read_text():
                note.write_text(note.read_text().replace(was, now))
        assert now in found("theremin")
        memory.rebuild()
        fold()
        assert now in found("theremin")
        assert memory.memories.forget(words=["theremin"], scope="user", owner="person0").complete
        assert found("theremin") == []
        assert make_root.said(222) in found("item 222"), "a neighbour in the same tables is still there"
