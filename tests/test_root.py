"""The places of a memory root, and what comes into being when."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend
from cairn.errors import Invalid
from cairn.notes.kinds import MemoryRoot
from cairn.seams import Capabilities, Locator, Tier
from cairn.seams.storage import iterate_files
from cairn.types import Scope, Space


def test_every_system_place_is_a_property():
    """E19-E27 E29: names and nesting of the system's own files, as locators."""
    root = MemoryRoot(InMemoryBackend())

    assert {
        name: getattr(root, name).key for name in dir(root) if isinstance(getattr(root, name), Locator)
    } == {
        "root": "",
        "index": ".index",
        "sqlite": ".index/sqlite",
        "lancedb": ".index/lancedb",
        "tmp": ".tmp",
        "locks": ".tmp/locks",
        "ome_toml": "ome.toml",
    }


def test_ensure_makes_the_systems_folders_and_nothing_else(tmp_path: Path):
    """E10 E25 E28 E30: index and staging folders and the template; user folders wait for their first note."""
    MemoryRoot(DeviceLocalBackend(tmp_path)).ensure()

    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == [
        ".index",
        ".index/lancedb",
        ".index/sqlite",
        ".tmp",
        "ome.toml",
    ]


def test_ensure_twice_keeps_a_persons_overrides(tmp_path: Path):
    """E25 E30: an ome.toml that is there is never overwritten."""
    root = MemoryRoot(DeviceLocalBackend(tmp_path))
    (tmp_path / "ome.toml").write_text("# mine\n")
    root.ensure()
    root.ensure("# template\n")

    assert (tmp_path / "ome.toml").read_text() == "# mine\n"


def test_a_synced_root_gets_no_index_folder():
    """C8 S32: a database must not travel with a synced tree."""

    class Synced(InMemoryBackend):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(sync=True)

    storage = Synced()
    MemoryRoot(storage).ensure()

    assert not storage.exists(MemoryRoot.index)
    assert [at.key for at in iterate_files(storage, Locator())] == ["ome.toml"]


def test_places_of_a_space():
    """E12 E16 E17 E32: spaces nest two levels; knowledge, sessions and journals stand beside the owners."""
    root = MemoryRoot(InMemoryBackend())
    shop = Space("shop", "web")
    bot = Scope(shop, "agent", "bot")

    assert root.space(shop).key == "shop/web"
    assert root.scope(bot).key == "shop/web/agents/bot"
    assert root.knowledge(shop).key == "shop/web/knowledge"
    assert root.sessions(shop).key == "shop/web/sessions"
    assert root.journal(shop).key == "shop/web/journal"
    assert root.journal(shop, "access").key == "shop/web/journal/access.jsonl"
    assert root.note("episode", bot, "2026-06-01").key == "shop/web/agents/bot/episodes/episode-2026-06-01.md"
    assert root.note("agent_skill", bot, "fix").key == "shop/web/agents/bot/skills/skill_fix/SKILL.md"
    with pytest.raises(Invalid, match="memcell"):
        root.note("memcell", bot, "2026-06-01")


def test_tiers_of_a_root_are_where_its_parts_lie():
    """S45 S46: the whole tree is the source, a space's pages and the index are made of it, and only the index stays here."""
    tiers = MemoryRoot(InMemoryBackend()).tiers(Space("shop", "web"))
    assert [tiers.root_for(tier).key for tier in Tier] == ["", "shop/web/shared/pages", ".index"]
    assert tiers.never_sync_root == MemoryRoot.index


def test_two_spaces_never_share_a_folder():
    """E12: different (app, project) pairs have different folders, "default" included."""
    root = MemoryRoot(InMemoryBackend())
    names = ["default", "a", "b", "default-app", "A"]
    places = [root.space(Space(app, project)) for app in names for project in names]
    assert len(set(places)) == len(places)
