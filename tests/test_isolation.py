"""P7 at the index itself: every way of asking stays inside one scope, held in memory or read from disk."""

from __future__ import annotations

import pytest

from cairn.engines.embedders import HashingEmbedder
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Ask
from cairn.index.filters import parse
from cairn.language.words import tokens
from cairn.types import Scope, Space
from tests.world import Indexed, by_meaning, by_words, from_tables

SCOPES = [
    Scope(Space(app, project), track, owner)
    for app, project in (("default", "default"), ("default", "web"), ("shop", "default"))
    for track in ("user", "agent")
    for owner in ("ana", "ana2")
]
EMBEDDER = HashingEmbedder(64)


@pytest.fixture
def world(tmp_path):
    """The same words, on the same day, with the same entry ids, for every owner of every space."""
    made = Indexed(tmp_path)
    for number, scope in enumerate(SCOPES):
        made.episode(f"the lantern of number{number}", scope)
    made.waits.catch_up(20, embed=True)
    yield made
    made.close()


@pytest.mark.parametrize("memory_rows", [0, 50_000], ids=["from disk", "held in memory"])
@pytest.mark.parametrize("number", range(len(SCOPES)))
def test_no_way_of_asking_leaves_the_scope(world, memory_rows, number):
    """E12, P7: words, nearness, filters, pages, ids and rowids of others give nothing of theirs."""
    index = SqliteIndex(world.folder / ".index", memory_rows=memory_rows)
    index.use_model(EMBEDDER.id)
    try:
        scope, everyone = SCOPES[number], [row.rowid for row in world.all_rows()]
        [mine] = index.rows(scope, everyone)
        assert mine.text.endswith(f"number{number}")
        assert by_words(index, scope, tokens("lantern")) == [mine.rowid]
        other = tokens(f"number{(number + 1) % len(SCOPES)}")
        assert by_words(index, scope, other[:1]) in ([], [mine.rowid])
        near = EMBEDDER.embed(["the lantern"])[0]
        assert by_meaning(index, scope, near) == [mine.rowid]
        assert by_meaning(index, scope, near, where=parse({"session_id": "s1"})) == [mine.rowid]
        assert by_meaning(index, scope, near, where=parse({"session_id": "s2"})) == []
        assert (index.about(scope).rows, index.frequencies(scope, tokens("lantern"))) == (1, {"lantern": 1})
        assert [row.rowid for row in index.find(scope, [mine.entry_id])] == [mine.rowid]
        assert index.page(scope, ["episode"], limit=100).rowids == (mine.rowid,)
        assert index.corpus(scope).rowid.tolist() == [mine.rowid]
    finally:
        index.close()


@pytest.mark.xdist_group("lance")
def test_no_way_of_asking_the_tables_leaves_the_scope(world):
    """E12, P7: all owners share a table for each kind, and no question finds anything of another."""
    asked = from_tables(world.index, world.folder)
    everyone = [row.rowid for row in world.all_rows()]
    near = EMBEDDER.embed(["the lantern"])[0]
    for number, scope in enumerate(SCOPES):
        [mine] = asked.rows(scope, everyone)
        assert mine.text.endswith(f"number{number}")
        assert by_words(asked, scope, tokens("lantern")) == [mine.rowid]
        other = tokens(f"number{(number + 1) % len(SCOPES)}")
        assert by_words(asked, scope, other[:1]) in ([], [mine.rowid])
        assert by_meaning(asked, scope, near) == [mine.rowid]
        assert by_meaning(asked, scope, near, where=parse({"session_id": "s1"})) == [mine.rowid]
        assert by_meaning(asked, scope, near, where=parse({"session_id": "s2"})) == []
        assert (asked.about(scope).rows, asked.frequencies(scope, tokens("lantern"))) == (1, {"lantern": 1})
        assert asked.takes_part(scope, "s1")
        assert asked.legs(scope, Ask(plain=near)).corpus.rowid.tolist() == [mine.rowid]
