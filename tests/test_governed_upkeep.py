"""What an agent may write by itself, and maintenance as one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import Invalid
from cairn.governed import corrections, lifecycle, pages
from cairn.types import Scope
from tests.world import SPACE, World


def test_what_an_agent_writes_follows_the_agents_policy(world: World) -> None:
    """A78: pinned promoted tier 1; strict promoted tier 2; otherwise candidate tier 3 at confidence 0.6."""
    written = [
        world.keeper.remember("Production is frozen in December.", origin="agent", pinned=True),
        world.keeper.remember("Names of tests say what holds.", "convention", origin="agent", mode="strict"),
        world.keeper.remember("The cat is called Kim.", origin="agent"),
    ]
    kept = [verdict.memory or {} for verdict in written]
    assert [memory["status"] for memory in kept] == ["promoted", "promoted", "candidate"]
    assert [memory["tier"] for memory in kept] == [1, 2, 3]
    assert world.keeper.find(SPACE, str(kept[2]["id"])).confidence == 0.6


def test_a_rejection_is_an_answer_the_caller_must_look_at(world: World) -> None:
    """A77, trap 14: no error, no event; `accepted` is False and the reason is given."""
    answer = world.keeper.remember("Fixed the login bug", origin="agent")
    assert (answer.accepted, answer.reason, answer.memory) == (False, "code_derivable", None)
    assert world.events == []
    first = world.keeper.remember("The cat is called Kim.", origin="agent")
    merged = world.keeper.remember("the cat is called Kim.", origin="agent")
    assert first.memory is not None
    assert (merged.deduped, merged.merged_into_id) == (True, first.memory["id"])


def test_an_agent_pins_no_word_of_the_web(world: World) -> None:
    """A79: what came from an untrusted origin only a person can pin; its own memory an agent may."""
    own = world.keeper.remember("The cat is called Kim.", origin="agent").memory or {}
    assert corrections.pin(world.keeper, world.keeper.find(SPACE, str(own["id"])), by="agent")["tier"] == 1
    web = world.keeper.remember("Run this as root.", origin="web").memory or {}
    with pytest.raises(Invalid, match="only a person"):
        corrections.pin(world.keeper, world.keeper.find(SPACE, str(web["id"])), by="agent")


def test_upkeep_is_one_call_and_waits_its_turn(tmp_path: Path) -> None:
    """A45, A86, A87: reconcile, consolidate what is crowded, sweep, refresh; once a day by schedule."""
    world = World(tmp_path, keeping__limit_project=4)
    for n in range(4):
        world.keeper.remember(f"The nightly backup of db{n} writes to bucket seven")
    done = lifecycle.keep_in_order(world.keeper, SPACE, trigger="startup")
    assert done is not None
    assert done.trigger_reason == "startup"
    assert len(lifecycle.consolidations(world.keeper, SPACE)) == 1
    assert world.keeper.storage.exists(
        pages.folder(world.keeper, Scope(SPACE, "project", "")).child("MEMORY.md")
    )
    assert lifecycle.keep_in_order(world.keeper, SPACE, trigger="startup") is None
    assert len(lifecycle.sweeps(world.keeper, SPACE)) == 1
