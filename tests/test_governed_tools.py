"""ADE's ranking and tools, and maintenance as one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cairn.errors import Invalid, Unavailable
from cairn.governed import episodes, lifecycle, maintenance, ranking, tools
from cairn.governed.framing import strip_recalled
from cairn.seams import Completion
from cairn.types import Scope
from tests.governed_world import PROJECT, SPACE, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_add_tool_follows_the_agents_policy(world: World) -> None:
    """A78, A79: pinned promoted tier 1; strict promoted tier 2; otherwise candidate tier 3."""
    add = tools.memory_add
    pinned = add(world.keeper, SPACE, "Production is frozen in December.", pin=True)
    strict = add(world.keeper, SPACE, "Names of tests say what holds.", "convention", strict=True)
    plain = add(world.keeper, SPACE, "The cat is called Kim.")
    assert [r["durability"] for r in (pinned, strict, plain)] == ["promoted", "promoted", "candidate"]
    assert [r["tier"] for r in (pinned, strict, plain)] == [1, 2, 3]
    assert set(plain) == {"saved", "durability", "id", "tier", "deduped", "mergedIntoId", "reason"}
    assert world.keeper.find(SPACE, plain["id"]).confidence == 0.6


def test_a_rejection_is_an_answer_the_caller_must_look_at(world: World) -> None:
    """A77, trap 14: no error, no event; saved is False and durability rejected."""
    answer = tools.memory_add(world.keeper, SPACE, "Fixed the login bug")
    assert (answer["saved"], answer["durability"], answer["reason"]) == (False, "rejected", "code_derivable")
    assert world.events == []
    again = tools.memory_add(world.keeper, SPACE, "The cat is called Kim.")
    merged = tools.memory_add(world.keeper, SPACE, "the cat is called Kim.")
    assert (merged["deduped"], merged["mergedIntoId"]) == (True, again["id"])


def test_the_pin_and_core_tools_answer_in_their_shapes(world: World) -> None:
    """A79: {ok, id, pinned, tier}; the core document."""
    added = tools.memory_add(world.keeper, SPACE, "The cat is called Kim.")
    assert tools.memory_pin(world.keeper, SPACE, added["id"]) == {
        "ok": True,
        "id": added["id"],
        "pinned": True,
        "tier": 1,
    }
    assert tools.memory_update_core(world.keeper, SPACE, notes=["hello"])["version"] == 1
    web = world.keeper.remember("Run this as root.", origin="web")
    assert web.memory is not None
    with pytest.raises(Invalid, match="only a person"):
        tools.memory_pin(world.keeper, SPACE, str(web.memory["id"]))
    assert len(tools.categories()) == 6


def test_search_finds_all_words_limits_to_five_and_counts_each_hit(world: World) -> None:
    """A26, A79-A81: lexical without a model; every returned hit is a read, a preview is none."""
    for n in range(8):
        world.keeper.remember(f"Backup number {n} of host{n} runs at night with tool{n}.")
    world.keeper.remember("Dana likes tea.")
    found = tools.memory_search(world.keeper, SPACE, "backup night")
    assert len(found) == 5
    assert all("Backup" in hit["content"] for hit in found)
    assert tools.memory_search(world.keeper, SPACE, "backup tea") == []
    counts = sorted(world.keeper.access.stat(r).count for r in world.keeper.records(PROJECT))
    assert counts == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    ranking.search(world.keeper, SPACE, "tea", count=False)
    assert counts == sorted(world.keeper.access.stat(r).count for r in world.keeper.records(PROJECT))
    with pytest.raises(Invalid, match="limit"):
        ranking.search(world.keeper, SPACE, "tea", limit=101)


def test_search_never_leaves_its_scopes_and_skips_archived(world: World) -> None:
    """P7, A13: other owners and archived rows do not answer."""
    world.keeper.remember("Secret garden of Ana.", scope="user", owner="ana")
    mine = Scope(SPACE, "user", "ben")
    world.keeper.remember("Secret garden of Ben.", scope=mine)
    (hit,) = ranking.search(world.keeper, SPACE, "secret garden", scopes=[mine])
    assert hit.record.scope == mine
    world.keeper.rewrite(hit.record, lambda r: r.but(status="archived"))
    assert ranking.search(world.keeper, SPACE, "secret garden", scopes=[mine]) == []


def test_bm25_is_squashed_by_its_median() -> None:
    """A82: k1 1.2, b 0.75; s / (s + median): the median text scores one half, others stay below one."""
    scores = ranking.bm25("tea", ["tea", "tea and milk", "tea with milk and sugar and lemon", "coffee"])
    assert scores[3] == 0.0
    assert sorted(scores)[2] == pytest.approx(0.5)
    assert scores[0] > scores[1] > scores[2] > 0
    assert max(scores) < 1


class _Embedder:
    id = "two-axes"
    dimensions = 2

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.broken:
            raise Unavailable("no model")
        return np.array(
            [[1.0, 0.0] if "drink" in t or "tea" in t else [0.0, 1.0] for t in texts], dtype="float32"
        )


def test_hybrid_mixes_bm25_and_cosine_and_falls_back_to_words(world: World) -> None:
    """A26, A82: 0.30 BM25 + 0.70 cosine; without the model the words decide."""
    world.keeper.remember("Dana likes tea.")
    world.keeper.remember("The router is in the cellar.")
    (hit,) = ranking.search(world.keeper, SPACE, "favourite drink", embedder=_Embedder())
    assert hit.record.content == "Dana likes tea."
    assert hit.query_score == pytest.approx(0.7)
    assert ranking.search(world.keeper, SPACE, "favourite drink", embedder=_Embedder(broken=True)) == []
    (both,) = ranking.search(world.keeper, SPACE, "tea", embedder=_Embedder(), count=False)
    assert both.query_score == pytest.approx(0.7 + 0.3 * 0.5)


def test_mmr_prefers_what_has_not_been_said(world: World) -> None:
    """A82: lambda 0.7: the second of two twins comes after something new."""
    for text in ("alpha beta gamma delta one", "alpha beta gamma delta two", "alpha omega"):
        world.keeper.remember(text)
    records = world.keeper.records(PROJECT)
    hits = [
        ranking.Ranked(record, score, score) for record, score in zip(records, (0.9, 0.89, 0.8), strict=True)
    ]
    order = [
        hit.record.content for hit in ranking.mmr(hits, 3, lambda hit: frozenset(hit.record.content.split()))
    ]
    assert order == ["alpha beta gamma delta one", "alpha omega", "alpha beta gamma delta two"]


def test_upkeep_is_one_call_and_waits_its_turn(tmp_path: Path) -> None:
    """A45, A86, A87: reconcile, consolidate what is crowded, sweep, refresh; once a day by schedule."""
    world = World(tmp_path, overrides={"keeping__limit_project": 4})
    for n in range(4):
        world.keeper.remember(f"The nightly backup of db{n} writes to bucket seven")
    done = maintenance.run(world.keeper, SPACE, trigger="startup")
    assert done is not None
    assert len(done.consolidations) == 1
    assert any(key.endswith("MEMORY.md") for key in done.pages.written)
    assert maintenance.run(world.keeper, SPACE, trigger="startup") is None
    assert len(lifecycle.sweeps(world.keeper, SPACE)) == 1


def test_recall_is_framed_within_budget_and_keeps_untrusted_out(world: World) -> None:
    """S85: top 5 inside a token budget, as data; what came from the web waits for a person."""
    for n in range(8):
        world.keeper.remember(f"Backup number {n} of host{n} runs at night with tool{n}.")
    world.keeper.remember("Backup at night needs root, says a page.", origin="web")
    text, hits = ranking.recall(world.keeper, SPACE, "backup night", deadline_seconds=30)
    assert len(hits) == 5
    assert "says a page" not in text
    assert strip_recalled(text).strip() == ""
    few = ranking.recall(world.keeper, SPACE, "backup night", budget_tokens=60, deadline_seconds=30)[1]
    assert len(few) == 2
    assert ranking.recall(world.keeper, SPACE, "nothing like it", deadline_seconds=30) == ("", [])


def test_a_walk_cut_short_is_discarded(world: World) -> None:
    """S85: out of time means no answer, never half a corpus."""
    world.keeper.remember("Backup runs at night.")
    assert ranking.recall(world.keeper, SPACE, "backup", deadline_seconds=-1) == ("", [])


class _Scripted:
    id = "scripted"

    def complete(self, system: str, prompt: str, schema: object, *, purpose: str) -> Completion:
        if "broken" in prompt:
            raise Unavailable("no model")
        return Completion(
            {"approachTaken": "read the log", "outcome": "success", "gotchas": ["port 5432 is old"]}
        )


def test_an_episode_is_readable_and_comes_back_exactly(world: World) -> None:
    """A90: eight fields as text plus a base64 comment; a minimal record when the model fails; no credential inside."""
    made, sure = episodes.described("Fix the nightly backup", "...", duration=90, writer=_Scripted())  # type: ignore[arg-type]
    assert sure > episodes.FALLBACK_CONFIDENCE
    verdict = episodes.remember(world.keeper, SPACE, made, confidence=sure)
    assert verdict.memory is not None
    text = str(verdict.memory["content"])
    assert "Task: Fix the nightly backup\nOutcome: success\nApproach: read the log" in text
    assert episodes.parse(text) == made
    minimal, sure = episodes.described("broken task", "...", writer=_Scripted())  # type: ignore[arg-type]
    assert (minimal.outcome, sure) == ("partial", 0.5)
    secret = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    leaky = episodes.parse(episodes.render(episodes.Episode(f"log in with {secret} on the host")))
    assert leaky is not None
    assert secret not in leaky.taskDescription
    assert episodes.parse("no comment") is None
    with pytest.raises(Invalid):
        episodes.Episode("x", outcome="perhaps")  # type: ignore[arg-type]
