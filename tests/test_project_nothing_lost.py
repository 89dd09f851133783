"""What a repository's history says is neither merged away nor called read before it was folded."""

from __future__ import annotations

import json

import pytest

from tests.project_kit import SetClock, open_at, ready_repo, state


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def project(tmp_path, clock):
    return open_at(ready_repo(tmp_path / "tree"), clock)


def transcripts(folder, *sentences, day="2026-05-01"):
    """A folder with one session of a coding agent for each sentence."""
    folder.mkdir()
    for number, sentence in enumerate(sentences):
        records = [
            {
                "type": "user",
                "uuid": f"u{number}",
                "timestamp": f"{day}T10:00:00Z",
                "message": {"content": f"Task {number}"},
            },
            {
                "type": "assistant",
                "uuid": f"a{number}",
                "timestamp": f"{day}T10:05:00Z",
                "message": {"content": sentence},
            },
        ]
        (folder / f"s{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


TRAPS = (
    "Gotcha: the cache is stale after a deploy unless it is warmed.",
    "Gotcha: the login form double submits on slow networks.",
    "Gotcha: migrations lock the orders table for minutes.",
)
STEPS = (
    "Next step: write the retry queue for webhooks.",
    "Next step: measure the import with real files.",
    "Next steps: remove the old parser from the tree.",
)


@pytest.mark.parametrize(("sentences", "key"), [(TRAPS, "gotchas"), (STEPS, "nextSteps")])
def test_three_sessions_with_three_lessons_give_three_entries(project, tmp_path, sentences, key):
    """M46, M50, M51: a label such as "Gotcha" is no topic; titles say what it is about, sources are right."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", *sentences))
    project.import_()
    project.consolidate()
    found = state(project.tree)["bundle"][key]
    for number, sentence in enumerate(sentences):
        words = set(sentence.partition(": ")[2].rstrip(".").casefold().split())
        [entry] = [one for one in found if len(words & set(one["title"].casefold().split())) > len(words) / 2]
        assert f"Task {number}" in json.dumps(entry)
    assert not {"gotcha", "next step", "next steps"} & {one["title"].casefold() for one in found}


def test_different_news_of_one_topic_stay_apart(project):
    """M51: what says something else under the same heading keeps its own words."""
    project.record("one", {"gotchas": ["Cache: stale after a deploy"]})
    project.record("two", {"gotchas": ["Cache: never share it between tenants"]})
    project.consolidate()
    told = json.dumps(state(project.tree)["bundle"]["gotchas"]).casefold()
    assert "stale after a deploy" in told and "between tenants" in told


def test_events_are_of_the_day_of_their_session(project, tmp_path):
    """The focus and the answers name the session's day, not the day of the import."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", TRAPS[0], day="2026-04-02"))
    project.import_()
    project.consolidate()
    assert "2026-04-02" in state(project.tree)["bundle"]["currentFocus"]["summary"]


def test_a_consolidation_of_one_section_leaves_the_others_to_be_folded(project):
    """M47: only what was folded is read; the rest of the event is folded later, and nothing twice."""
    project.record(
        "x",
        {"gotchas": ["Cold cache: warm it first"], "nextStepHints": ["NEXT: retry webhooks: they get lost"]},
    )
    project.consolidate(section="gotchas")
    titles = {one["title"] for one in state(project.tree)["bundle"]["nextSteps"]}
    assert "Retry webhooks" not in titles and "retry webhooks" not in titles
    again, written = project.consolidate(section="gotchas")
    assert again.is_noop and written is None
    _, written = project.consolidate()
    assert written is not None
    assert any(
        "retry webhooks" in one["title"].casefold() for one in state(project.tree)["bundle"]["nextSteps"]
    )
    assert project.consolidate()[0].is_noop


def test_a_policy_reads_only_what_it_folds_and_retention_keeps_the_rest(project, clock, tmp_path):
    """M10, M47, M58: an import under local-only waits, and is not archived however old it is."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", TRAPS[0]))
    project.import_()
    project.record("local", {"gotchas": ["Flaky clock: freeze it in tests"]})
    project.consolidate(policy="local-only")
    assert project.status()["backlog"]["imports"]["count"] == 1
    clock.pass_days(200)
    project.prune()
    project.consolidate()
    assert "cache is stale" in json.dumps(state(project.tree)["bundle"]["gotchas"]).casefold()


def test_the_protected_map_still_gets_its_news_later(project):
    """M47: under project-map-protected an event with news for the map stays in the backlog until the map may change."""
    project.record(
        "x", {"gotchas": ["Trap door: mind it"], "decisions": ["We chose one API module for billing"]}
    )
    project.consolidate(policy="project-map-protected")
    project.consolidate()
    assert (
        "We chose one API module for billing"
        in state(project.tree)["bundle"]["projectMap"]["architectureNotes"]
    )
