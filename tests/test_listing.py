"""`get`: pages, order, filters and shapes."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

import cairn
from cairn.errors import Invalid
from cairn.notes.notebook import Draft
from cairn.retrieval.listing import Listing
from cairn.types import Scope, Space
from tests.world import ALICE, DAY, Indexed

BOT = Scope(Space(), "agent", "bot")


@pytest.fixture
def world(tmp_path):
    made = Indexed(tmp_path)
    yield made
    made.close()


@pytest.fixture
def listing(world):
    return Listing(world.index, world.indexer.status, timezone(timedelta(hours=2)))


def test_an_episode_is_shown_with_its_parts(world, listing):
    """E115, E117, E118: public id, owner, sections and the time in the display zone."""
    entry = world.notebook.append(
        "episode",
        Scope(Space(), "user", "alice"),
        DAY,
        [
            Draft(
                {"session_id": "s", "timestamp": f"{DAY}T10:00:00+00:00", "sender_ids": ["alice", "bot"]},
                {"Subject": "Tea", "Summary": "Likes tea", "Content": "Alice said: I like tea."},
            )
        ],
    )[0].entry_id
    world.sync()
    result = listing.get(ALICE, "episode")
    assert result.episodes == [
        {
            "id": f"alice_{entry}",
            "user_id": "alice",
            "app_id": "default",
            "project_id": "default",
            "session_id": "s",
            "timestamp": "2026-06-01T12:00:00+02:00",
            "sender_ids": ["alice", "bot"],
            "summary": "Likes tea",
            "subject": "Tea",
            "episode": "Alice said: I like tea.",
            "type": "Conversation",
        }
    ]
    assert (result.total_count, result.count, result.freshness.state) == (1, 1, "fresh")
    assert result.profiles == result.agent_cases == result.agent_skills == []


def test_cases_skills_and_profiles_have_their_own_arrays(world, listing):
    """E115: each type fills its array; numbers are numbers."""
    case = Draft(
        {"session_id": "s", "timestamp": f"{DAY}T10:00:00+00:00", "quality_score": 0.8},
        {"TaskIntent": "ship", "Approach": "test first", "KeyInsight": "small steps"},
    )
    world.notebook.append("agent_case", BOT, DAY, [case])
    skill = world.folder / world.root.note("agent_skill", BOT, "ship").key
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: ship\ndescription: d\nconfidence: 0.5\nsource_case_ids: [a, b]\n---\nbody\n")
    profile = world.folder / world.root.note("profile", Scope(Space(), "user", "alice")).key
    profile.parent.mkdir(parents=True)
    profile.write_text("---\nid: x\ntype: user_profile\nsummary: s\n---\nLives in Lisbon.\n")
    world.sync()
    [found] = listing.get(BOT, "agent_case").agent_cases
    assert (found["quality_score"], found["task_intent"], found["key_insight"]) == (
        0.8,
        "ship",
        "small steps",
    )
    [found] = listing.get(BOT, "agent_skill").agent_skills
    assert (found["id"], found["confidence"], found["source_case_ids"]) == ("bot_ship", 0.5, ["a", "b"])
    [found] = listing.get(ALICE, "profile").profiles
    assert found["profile_data"] == {"summary": "s", "content": "Lives in Lisbon."}


def test_pages_and_order(world, listing):
    """E115: pages from 1, newest first unless asked otherwise, and any page number is answered."""
    for n in range(5):
        world.episode(
            f"entry {n}", timestamp=f"{DAY}T1{n}:00:00+00:00", updated_at=f"{DAY}T2{3 - n % 3}:00:00+00:00"
        )
    world.sync()

    def texts(**asked):
        return [item["episode"][-1] for item in listing.get(ALICE, "episode", **asked).episodes]

    assert texts(page_size=2) == ["4", "3"]
    assert texts(page_size=2, page=3) == ["0"]
    assert texts(sort_order="asc") == ["0", "1", "2", "3", "4"]
    assert texts(sort_by="updated_at", page_size=2) == ["3", "0"]
    assert texts(page=10**9) == []
    assert listing.get(ALICE, "episode", page=10**30).total_count == 5
    assert texts(filters={"timestamp": {"gte": "2026-06-01T15:00:00"}}) == ["4", "3"], "naive: display zone"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"user_id": "a", "agent_id": "b"},
        {"user_id": "../x"},
        {"user_id": "a", "page": 0},
        {"user_id": "a", "page": True},
        {"user_id": "a", "page_size": 101},
        {"user_id": "a", "sort_by": "text"},
        {"user_id": "a", "sort_order": "up"},
        {"user_id": "a", "memory_type": "message"},
        {"user_id": "a", "filters": {"user_id": "b"}},
    ],
)
def test_bad_requests_are_refused_by_name(tmp_path, wrong):
    """E115, E116: what cannot be meant is an `Invalid` that says which field."""
    with (
        cairn.open_blocking(tmp_path, background=False, embedding__provider="none") as memory,
        pytest.raises(Invalid) as refused,
    ):
        memory.get(**{"memory_type": "episode", **wrong})
    assert refused.value.facts.get("field")
