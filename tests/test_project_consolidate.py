"""Consolidation: backlog, cursors, grouping, dedup, sections, policies, no-ops, and its two old traps."""

from __future__ import annotations

import pytest

from cairn.errors import Invalid, Unavailable
from cairn.project.consolidate import deduped, folded, grouped, overlap, same_gotcha, same_step, topic
from cairn.project.events import EventDraft, Signals
from cairn.seams import Completion
from tests.project_kit import START, event_lines, failures, open_at, state, tree_bytes


def session(project, item, **signals):
    """An imported session, as an import would log it."""
    draft = EventDraft(
        "imported_session",
        f"Session {item}",
        Signals.of(signals),
        f"jsonl:{item}",
        "jsonl-1",
        item,
        item.ljust(64, "0"),
    )
    with project.locks.hold("project"):
        return project.record_.append(draft)


def event(number, **signals):
    return EventDraft("tool_run", f"e{number}", Signals.of(signals), "cairn:record").event(number, START)


def test_consolidate_reads_previews_and_applies(tree, project):
    """M46, M49: events after the cursor, a summary then diffs, applied on confirmation."""
    project.record(
        "Met a trap",
        {
            "gotchas": ["Cold cache: first call fails. Use warmup."],
            "nextStepHints": ["NEXT: write warmup: saves a minute"],
        },
    )
    before = tree_bytes(tree)
    seen = []
    _, written = project.consolidate(confirm=lambda plan: (seen.append(plan), False)[1])
    assert written is None
    assert tree_bytes(tree) == before, "an unconfirmed preview writes nothing"
    assert seen[0].summary["addedGotchas"] == ["Cold cache"]
    assert seen[0].summary["addedNextSteps"] == ["write warmup"]
    assert seen[0].summary["changedSections"] == ["current-focus", "gotchas", "next-steps"]
    assert '+    "title": "Cold cache"' in seen[0].diffs["gotchas"]

    _, written = project.consolidate(confirm=lambda plan: True)

    assert written is not None
    gotcha = next(item for item in state(tree)["bundle"]["gotchas"] if item["title"] == "Cold cache")
    assert gotcha["correctPath"] == "Use warmup."
    assert failures(project) == []


def test_no_op_writes_nothing_and_moves_no_cursor(tree, project):
    """M48: no events, or nothing that changes the bundle: not a byte changes."""
    before = tree_bytes(tree)
    plan, written = project.consolidate()
    assert plan.is_noop
    assert written is None
    assert tree_bytes(tree) == before
    project.record("Nothing worth keeping")
    before = tree_bytes(tree)
    plan, written = project.consolidate()
    assert plan.is_noop
    assert tree_bytes(tree) == before


def test_consolidation_does_not_feed_on_its_own_event(tree, project):
    """C7a: after a consolidation the backlog is empty, and another one is a no-op; so is one after update."""
    project.record("x", {"decisions": ["We chose x"]})
    project.consolidate()
    assert project.status()["backlog"]["all"]["count"] == 0
    assert project.consolidate()[0].is_noop
    project.update()
    assert project.status()["backlog"]["all"]["count"] == 0
    cursor = state(tree)["maintenance"]["recallCursors"]["all"]["lastRecalledEventId"]
    assert cursor == "evt-000003", "the cursor passes the consolidation's own event"


def test_cursors_of_the_three_scopes_are_independent(tree, project):
    """M39, X13: only an `all` run moves the top-level pair; scopes do not move each other."""
    project.record("local", {"decisions": ["We chose local"]})
    session(project, "s1", decisions=["We chose imports"])
    project.consolidate(source="local")
    kept = state(tree)["maintenance"]
    assert kept["lastRecalledEventId"] is None
    assert kept["recallCursors"]["local"]["lastRecalledEventId"] == "evt-000004"
    assert kept["recallCursors"]["imports"]["lastRecalledEventId"] is None
    counts = {scope: value["count"] for scope, value in project.status()["backlog"].items()}
    assert counts == {"all": 2, "local": 0, "imports": 1}
    project.consolidate(source="all")
    kept = state(tree)["maintenance"]
    assert kept["lastRecalledEventId"] == kept["recallCursors"]["all"]["lastRecalledEventId"] == "evt-000005"
    assert kept["recallCursors"]["imports"]["lastRecalledEventId"] is None
    assert project.status()["backlog"]["imports"]["count"] == 1


@pytest.mark.parametrize("section", ["gotchas", "next-steps", "current-focus"])
def test_only_the_selected_section_changes(tree, project, section):
    """M46, M47: one section is chosen, the others keep their content."""
    project.record(
        "x", {"gotchas": ["Trap: beware"], "nextStepHints": ["NEXT: go: on"], "decisions": ["We chose it"]}
    )
    plan, _ = project.consolidate(section=section)
    assert plan.summary["changedSections"] == [section]
    assert plan.summary["selectedSection"] == section
    assert section not in plan.summary["protectedSections"]


def test_policies(tree, project):
    """M47: imports-only and local-only choose what is folded; project-map-protected freezes the map unless chosen."""
    project.record("local", {"gotchas": ["Local trap: beware"], "decisions": ["We chose one API module"]})
    session(project, "s1", gotchas=["Imported trap: beware"])
    assert project.plan(policy="imports-only").summary["addedGotchas"] == ["Imported trap"]
    assert project.plan(policy="local-only").summary["addedGotchas"] == ["Local trap"]
    assert "project-map" in project.plan().summary["changedSections"]
    assert "project-map" not in project.plan(policy="project-map-protected").summary["changedSections"]
    assert project.plan(policy="project-map-protected", section="project-map").summary["changedSections"] == [
        "project-map"
    ]


@pytest.mark.parametrize("flags", [{"section": "poems"}, {"source": "mars"}, {"policy": "wild"}])
def test_unknown_flags_are_refused(project, flags):
    """M47: an unknown section, source or policy names the known ones."""
    with pytest.raises(Invalid, match="is not one of"):
        project.consolidate(**flags)


def test_grouping_needs_more_than_a_shared_path():
    """M50: a shared topic joins; a path alone does not, a path with a decision or a check does."""
    one = event(1, gotchas=["Cache: cold"], keyPaths=["a.py"])
    two = event(2, gotchas=["cache: very cold, really"], keyPaths=["b.py"])
    three = event(3, keyPaths=["a.py"], decisions=["Use Redis"])
    four = event(4, keyPaths=["a.py"], decisions=["Use Redis"])
    five = event(5, keyPaths=["a.py"], nextStepHints=["NEXT: tidy up: soon"])
    six = event(6, nextStepHints=["DONE: tidy up"])
    groups = grouped([one, two, three, four, five, six])
    assert [[e.number for e in group.events] for group in groups] == [[5, 6], [3, 4], [1, 2]]
    assert groups[2].lines("gotchas") == ["cache: very cold, really"], "the longest wording is kept"


def test_topics_lose_their_prefix():
    """M50: text before the first colon, NEXT: and DONE: taken off."""
    assert topic("NEXT: Write docs: because") == topic("DONE: write  docs") == "write docs"


def test_dedup_prefers_to_keep_things_apart():
    """M51, Y11: 0.8 of the larger set; a similar title alone is not enough; the richer text wins."""
    assert overlap("a b c d e", "a b c d") == 0.8
    first = {
        "title": "Cold cache on start",
        "symptom": "slow",
        "cause": "empty cache after deploy",
        "correctPath": "warm it",
    }
    twin = {
        "title": "cold cache on start",
        "symptom": "the first call takes ten seconds",
        "cause": "x",
        "correctPath": "y",
    }
    cousin = {
        "title": "Cold cache on start again",
        "symptom": "s",
        "cause": "other thing",
        "correctPath": "elsewhere",
    }
    kept, merged = deduped([first, twin, cousin], same_gotcha)
    assert [item["title"] for item in kept] == ["Cold cache on start", "Cold cache on start again"]
    assert kept[0]["symptom"] == "the first call takes ten seconds"
    assert merged == [("cold cache on start", "Cold cache on start")]
    step = {"title": "write the docs now", "why": "w", "start": "docs/a.md", "done": "d1"}
    assert same_step(step, {**step, "title": "write the docs now please", "done": "other"})
    assert not same_step(
        step, {**step, "title": "write the docs now please", "start": "elsewhere", "done": "other"}
    )


def test_summary_never_counts_a_merge_as_a_removal(tree, project):
    """M49: merged and removed never overlap."""
    before = state(tree)["bundle"]
    before["gotchas"] = [
        {"title": "Cold cache on big start", "symptom": "s", "cause": "c", "correctPath": "p"},
        {"title": "Cold cache on start", "symptom": "s", "cause": "c2", "correctPath": "p2"},
        {"title": "Gone", "symptom": "s", "cause": "c", "correctPath": "p"},
    ]
    after = {**before, "gotchas": [before["gotchas"][0], {**before["gotchas"][1], "cause": "c"}]}
    _, summary = folded(before, after, [])
    assert summary["mergedGotchas"] == ["Cold cache on start -> Cold cache on big start"]
    assert summary["removedGotchas"] == ["Gone"]


def test_a_step_that_is_done_leaves_the_list(tree, project):
    """DONE: removes the step it names, whether from before or from the same batch."""
    project.record("plan", {"nextStepHints": ["NEXT: retry webhooks: they get lost"]})
    project.consolidate()
    assert "retry webhooks" in {step["title"] for step in state(tree)["bundle"]["nextSteps"]}
    project.record("did", {"nextStepHints": ["DONE: retry webhooks"]})
    plan, _ = project.consolidate()
    assert (
        plan.summary["removedNextSteps"] == ["Retry failed webhooks", "retry webhooks"]
        or "retry webhooks" in plan.summary["removedNextSteps"]
    )
    assert "retry webhooks" not in {step["title"] for step in state(tree)["bundle"]["nextSteps"]}


def test_check_results_become_the_validation_snapshot(tree, project):
    """M35: the newest observation decides; zero failures is not a failure."""
    project.record("ran", {"validationObservations": ["118 passed, 2 failed"]})
    project.record("ran again", {"validationObservations": ["120 passed, 0 failed"]})
    project.consolidate()
    snapshot = state(tree)["bundle"]["currentFocus"]["validationSnapshot"]
    assert snapshot["status"] == "passed"
    assert snapshot["summary"] == "120 passed, 0 failed"
    assert "validation.baseline" in {
        finding.code for finding in project.validate() if finding.status == "pass"
    }


def test_an_event_recorded_while_a_person_decides_is_neither_lost_nor_skipped(tree, project):
    """The plan is made again under the lock when the backlog moved meanwhile."""
    project.record("one", {"gotchas": ["First trap: beware"]})

    def confirm(plan):
        open_at(tree).record("two", {"gotchas": ["Second trap: beware"]})
        return True

    project.consolidate(confirm=confirm)
    assert {"First trap", "Second trap"} <= {item["title"] for item in state(tree)["bundle"]["gotchas"]}
    assert project.status()["backlog"]["all"]["count"] == 0


class ScriptedWriter:
    """A model that says what it is told to."""

    id = "scripted"

    def __init__(self, answer):
        self.answer = answer
        self.calls = []

    def complete(self, system, prompt, schema, *, purpose):
        self.calls.append(purpose)
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completion(self.answer)


def test_a_model_may_propose_and_is_checked(tree, project):
    """M46, M64: with a model its bundle is taken if it has the shape; otherwise the wording rules stand."""
    project.record("x", {"gotchas": ["Trap: beware"]})
    bundle = state(tree)["bundle"]
    told = {**bundle, "gotchas": [{"title": "Told", "symptom": "s", "cause": "c", "correctPath": "p"}]}
    good = open_at(tree, writer=ScriptedWriter({"bundle": told}))
    assert good.plan().summary["addedGotchas"] == ["Told"]
    assert good.plan().provider == "scripted"
    for answer in ({"bundle": {"gotchas": []}}, {}, Unavailable("no budget")):
        poor = open_at(tree, writer=ScriptedWriter(answer))
        assert poor.plan().summary["addedGotchas"] == ["Trap"]
        assert poor.plan().provider == "none"


def test_restore_brings_back_a_checkpoint_and_can_be_undone(tree, project):
    """A restored bundle is a new checkpoint; restoring the one before it undoes that."""
    project.record("x", {"gotchas": ["Trap: beware"]})
    project.consolidate()
    after = state(tree)["bundleHash"]
    project.restore("chk-000001")
    assert "Trap" not in {item["title"] for item in state(tree)["bundle"]["gotchas"]}
    project.restore("chk-000002")
    assert state(tree)["bundleHash"] == after
    assert state(tree)["maintenance"]["latestCheckpointId"] == "chk-000004"
    assert failures(project) == []
    assert event_lines(tree)[-1]["sourceRef"] == "cairn:restore"
