"""Query, status and validate: answers with evidence, one suggestion, findings with codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cairn.errors import Invalid, NotFound
from cairn.project.query import NOT_ENOUGH, mode_of
from cairn.project.signals import Collector
from cairn.project.sources import Source
from cairn.project.status import suggested
from cairn.seams import Completion
from tests.project_kit import SetClock, failures, git, open_at, state, tree_bytes


@pytest.mark.parametrize(
    ("question", "mode"),
    [
        ("What should we do next?", "next"),
        ("what is next about the traps", "next"),
        ("Which gotchas changed?", "traps"),
        ("What changed in the carriers?", "changes"),
        ("Where is the command line?", "answer"),
        ("Was soll ich als nächstes tun?", "next"),
        ("Worauf muss man achten?", "traps"),
        ("Was ist zuletzt passiert?", "changes"),
    ],
)
def test_mode_by_wording(question, mode):
    """M53: next, then traps, then changes, else answer."""
    assert mode_of(question) == mode


def test_signals_are_found_by_the_wording_of_each_language():
    """The words stand in the languages' files; a sentence that says nothing of itself gives nothing."""
    told = Collector()
    told.add(
        "user", "Wir haben uns gegen Redis entschieden. Der Build ist rot. Das Wetter ist heute schön genug."
    )
    told.add(
        "assistant",
        "We decided to keep SQLite for now. Next step: write the migration. 12 tests passed here.",
    )
    found = told.signals()
    assert found.decisions == ("Wir haben uns gegen Redis entschieden.", "We decided to keep SQLite for now.")
    assert found.validationObservations == ("Der Build ist rot.", "12 tests passed here.")
    assert found.nextStepHints == ("Next step: write the migration.",)


def test_answers_cite_and_need_no_model(project):
    """M53, M55: an extractive answer with citations to bundle, pages and events."""
    project.record(
        "Tuned polling of carriers", {"decisions": ["Polling of carriers uses backoff of two minutes"]}
    )
    result = project.query("How is polling of carriers done?").to_json()
    assert result["mode"] == "answer"
    assert "carriers" in result["answer"]
    assert set(result) == {"mode", "answer", "why", "citations"}
    kinds = set()
    for citation in result["citations"]:
        assert set(citation) == {"sourceType", "sourceId", "pathOrSection", "summary", "projectionPath"}
        kinds.add(citation["sourceType"])
        assert (citation["projectionPath"] is not None) == (citation["sourceType"] == "bundle")
    assert {"bundle", "event"} <= kinds
    assert len(result["citations"]) <= 8


def test_each_mode_leads_with_its_own(project):
    """M53: the section a mode is about comes first, with and without words in common."""
    project.record("fixed times", {"decisions": ["We store UTC"]})
    assert "Retry failed webhooks" in project.query("what is next?").answer
    assert project.query("any traps with carrier times?").answer.startswith("Carrier times")
    assert [one.sourceType for one in project.query("what changed lately?").citations[:2]] == [
        "commit",
        "event",
    ]
    assert "make test" in project.query("how do I run the tests?").answer


def test_plain_questions_about_a_repository_are_answered(project, tree):
    """M9, M53, A98: what it is, where something is, what changed (newest first, people's commits too), and what single
    events say.
    """
    clock = project.clock
    project.record("Looked at webhooks", {"gotchas": ["Gotcha: webhooks arrive twice on Mondays"]})
    clock.at = clock.now() + timedelta(minutes=5)
    project.record(
        "Planned the release", {"nextStepHints": ["Next step: sign the release of the parcel desk"]}
    )
    what = project.query("what is this project?")
    assert what.enough
    assert what.citations[0].sourceId == "project"
    name = next(path for path in sorted(tree.rglob("*.py")) if path.stem != "__init__")
    place = project.query(f"where is {name.stem}?")
    assert place.enough
    assert any(name.name in one.summary or name.stem in one.summary for one in place.citations)
    assert "twice on Mondays" in project.query("which gotchas are there?", scope="history").answer
    assert "sign the release" in project.query("what is next?", scope="history").answer
    (tree / "NEWS.md").write_text("news\n")
    git(tree, "add", "NEWS.md")
    git(tree, "commit", "-q", "-m", "Add the news page")
    changed = project.query("what changed recently?", scope="history")
    assert {"commit", "event"} <= {one.sourceType for one in changed.citations}
    events = [one.summary.partition(": ")[2] for one in changed.citations if one.sourceType == "event"]
    assert events.index("Planned the release") < events.index("Looked at webhooks")
    assert not project.query("where is the flux capacitor?").enough
    lines = changed.answer.splitlines()
    assert any("Add the news page" in line for line in lines), "commits are told, not only cited"
    assert "Set up project memory" not in changed.answer, "that its memory was set up is no news of a project"
    dates = [one.summary for one in changed.citations if one.sourceType == "checkpoint"]
    assert not [one for one in dates if "Planned the release" in one], "an event is told once"


def test_what_happened_is_told_by_its_real_time_whoever_told_it(project, tree, monkeypatch):
    """M53: events and commits in one order, newest first, each behind its day; an import after the fact is no news."""
    clock = project.clock
    start = datetime.now(UTC).replace(hour=9) + timedelta(
        days=2
    )  # after the first commit, whatever the clock
    clock.at = start

    def at(minutes: int) -> datetime:
        return start + timedelta(minutes=minutes)

    def commit(text: str, when: datetime) -> None:
        monkeypatch.setenv("GIT_COMMITTER_DATE", when.astimezone(timezone(timedelta(hours=14))).isoformat())
        git(tree, "commit", "-q", "--allow-empty", "-m", text)

    commit("Commit before", at(-20))
    project.record("Event between", {"decisions": ["We keep it"]})
    commit("Commit after", at(20))
    clock.at = start + timedelta(minutes=40)
    project.record("Event last", {"gotchas": ["Gotcha: lasts are last"]})
    clock.at = start + timedelta(minutes=60)
    commit("Clock ahead", at(60 * 24 * 400))
    lines = project.query("what changed recently?").answer.splitlines()
    said = [line.partition(": ")[2].rsplit(" [", 1)[0] for line in lines]
    assert said == ["Clock ahead", "Event last", "Commit after", "Event between", "Commit before"]
    assert {line[:10] for line in lines[1:]} == {start.date().isoformat()}, "one zone for all days"
    about = project.query("what changed recently in the lasts?").answer
    assert "Event last. Gotcha: lasts are last" in about
    assert "Commit after" not in about


def test_a_file_is_found_by_what_it_is_about(tmp_path):
    """M53: plurals, "the code for", and what only tries a thing out stands behind the thing itself; by command."""
    tree = tmp_path / "repo"
    git(tmp_path, "init", "-q", str(tree))
    for name in ("src/gate.go", "src/gate_test.go", "tests/test_gate.go", "test.js", "README.md"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("# Gate\n\nA gate for parcels that opens by itself.\n")
    git(tree, "add", ".")
    git(tree, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "-m", "Begin with the gate")
    project = open_at(tree)
    project.init()
    found = project.query("where is the code for gates?").citations
    assert next(one.sourceId for one in found if one.sourceType == "file") == "src/gate.go"
    assert "test.js" in {one.summary for one in project.query("where are the tests?").citations}
    assert "Begin with the gate" in project.query("what changed recently?").answer
    project.record("Looked at the gate", {"gotchas": ["Gotcha: the gate sticks"]})
    project.consolidate()
    (tree / "docs.md").write_text("x\n")
    told = [one.summary for one in project.query("where is the gate?").citations]
    assert told[0] == "src/gate.go"
    assert len(set(told)) == len(told), "what two places say alike is told once"
    assert not [one for one in told if "Folded in" in one]
    assert "Folded in" not in project.query("what changed recently?").answer, "bookkeeping is no news"


class Counting:
    """A model that counts how often it is asked."""

    id = "counting"

    def __init__(self):
        self.calls = 0

    def complete(self, system, prompt, schema, *, purpose):
        self.calls += 1
        return Completion({"answer": "In the model's words [1]."})


def test_too_little_evidence_gives_one_fixed_answer_and_no_model_call(tree, project):
    """M54: checked before the model; at most two citations."""
    model = Counting()
    asked = open_at(tree, writer=model)
    for question in ("Who won the cup in Lisbon?", "zebra crossing", "parcel"):
        result = asked.query(question)
        assert result.answer == NOT_ENOUGH
        assert len(result.citations) <= 2
    assert model.calls == 0
    assert asked.query("how do I run the tests?").answer == "In the model's words [1]."
    assert model.calls == 1


@pytest.mark.parametrize("question", ["", "   ", "x" * 5000])
def test_bad_questions_are_refused(project, question):
    """An empty or monstrous question is a named error."""
    with pytest.raises(Invalid):
        project.query(question)


def test_scopes(project):
    """M53: state, history, all."""
    project.record("Tuned polling of carriers", {"decisions": ["Polling of carriers uses backoff"]})
    assert {c.sourceType for c in project.query("polling carriers backoff", scope="state").citations} == {
        "bundle"
    }
    assert {c.sourceType for c in project.query("polling carriers backoff", scope="history").citations} <= {
        "event",
        "checkpoint",
    }
    with pytest.raises(Invalid, match="state, history, all"):
        project.query("x y", scope="moon")


def test_archived_history_takes_no_part(tree):
    """M10, M17: what was archived is in no answer, no backlog, no status."""
    clock = SetClock()
    project = open_at(tree, clock)
    project.record("Unicorn stable built", {"validationObservations": ["unicorn stable tests passed"]})
    project.consolidate(section="validation-commands")
    project.record("y", {"decisions": ["We chose y"]})
    project.consolidate()
    clock.pass_days(100)
    assert project.prune()[1] is not None
    assert "Unicorn" not in json.dumps(project.query("unicorn stable", scope="history").to_json())


def test_status_says_everything_and_writes_nothing(tree, project):
    """M56: state, three backlogs, groups, sources, drift, retention, one suggestion."""
    project.record("x", {"decisions": ["We chose x"]})
    before = tree_bytes(tree)
    found = project.status()
    assert tree_bytes(tree) == before
    assert {"state", "backlog", "groups", "sources", "drift", "retention", "suggestedAction"} <= set(found)
    assert {scope: value["count"] for scope, value in found["backlog"].items()} == {
        "all": 1,
        "local": 1,
        "imports": 0,
    }
    assert found["groups"][0]["events"] == ["evt-000002"]
    assert "consolidate" in found["suggestedAction"]


def test_drift_is_measured_against_the_latest_checkpoint_by_default(project):
    """M12, Y9: no flag compares with the newest; a flag with the one named."""
    assert project.status()["drift"]["checkpoint"] == "chk-000001"
    project.record("x", {"gotchas": ["Trap: beware"]})
    project.consolidate()
    assert project.status()["drift"]["changedSections"] == []
    against = project.status(checkpoint="chk-000001")["drift"]
    assert against["checkpoint"] == "chk-000001"
    assert against["addedGotchas"] == ["Trap"]
    with pytest.raises(NotFound, match="chk-000099"):
        project.status(checkpoint="chk-000099")


def test_suggestion_order():
    """M56, Y10: failed source, long backlog, any backlog, edits and drift, nothing."""
    failed = Source("s", "jsonl", "/x", "", "", lastSyncStatus="failed", lastSyncError="gone")
    assert "source s" in suggested([failed], 99, 10, ["p"], ["gotchas"], considered=False)
    assert "more than 10" in suggested([], 99, 10, ["p"], ["gotchas"], considered=False)
    assert "1 event waits" in suggested([], 1, 10, ["p"], ["gotchas"], considered=False)
    assert "Edited by hand" in suggested([], 0, 10, ["p"], ["gotchas"], considered=False)
    assert "gotchas" in suggested([], 0, 10, [], ["gotchas"], considered=False)
    assert suggested([], 0, 10, [], [], considered=False) == "Nothing to do."
    assert suggested([], 3, 10, [], [], considered=True) == "Nothing to do."


def _damage(tree, name):
    log = tree / ".cairn/history/events.jsonl"
    if name == "state.bundle_hash":
        value = state(tree)
        value["bundle"]["project"]["name"] = "other"
        (tree / ".cairn/state.json").write_text(json.dumps(value))
    elif name == "state.unreadable":
        (tree / ".cairn/state.json").write_text("{")
    elif name == "state.bundle_shape":
        (tree / ".cairn/state.json").write_text(json.dumps({**state(tree), "bundle": {}}))
    elif name == "state.missing":
        (tree / ".cairn/state.json").unlink()
    elif name == "history.order":
        lines = log.read_text().splitlines()
        log.write_text("\n".join(reversed(lines)) + "\n")
    elif name == "checkpoint.hash":
        [first, *_] = sorted((tree / ".cairn/history/checkpoints").iterdir())
        first.write_text(first.read_text().replace("Tells customers", "Told customers", 1))
    elif name == "projection.missing":
        (tree / "docs/cairn/gotchas.md").unlink()
    elif name == "projection.marker":
        (tree / "docs/cairn/gotchas.md").write_text("# Mine\n")
    elif name == "projection.edited":
        at = tree / "docs/cairn/gotchas.md"
        at.write_text(at.read_text() + "More.\n")
    elif name in {"entry.block", "entry.missing"}:
        at = tree / "README.md"
        at.unlink() if name == "entry.missing" else at.write_text("# Nothing here\n")
    elif name == "entry.hash":
        at = tree / "README.md"
        at.write_text(at.read_text().replace(state(tree)["bundleHash"], "0" * 64))
    elif name == "bundle.paths":
        (tree / "Makefile").unlink()
        git(tree, "rm", "-q", "-r", "--cached", "tests")
        __import__("shutil").rmtree(tree / "tests")
    elif name == "config.invalid":
        (tree / ".cairn/config.json").write_text("[]")
    elif name == "sources.invalid":
        (tree / ".cairn/sources.json").write_text("{}")
    elif name == "archive.unfinished":
        at = tree / ".cairn/archive/prune-20260101T000000000Z"
        at.mkdir(parents=True)
        (at / "events.jsonl").write_text("")
    elif name == "archive.manifest":
        at = tree / ".cairn/archive/prune-20260101T000000000Z"
        at.mkdir(parents=True)
        (at / "manifest.json").write_text("no")


DAMAGE = {
    "state.bundle_hash": "fail", "state.unreadable": "fail", "state.bundle_shape": "fail", "state.missing": "fail",
    "history.order": "fail", "checkpoint.hash": "fail", "projection.missing": "fail", "projection.marker": "fail",
    "projection.edited": "warn", "entry.block": "fail", "entry.missing": "fail", "entry.hash": "fail", "bundle.paths": "warn",
    "config.invalid": "fail", "sources.invalid": "fail", "archive.unfinished": "warn", "archive.manifest": "warn",
}  # fmt: skip


@pytest.mark.parametrize(("code", "status"), DAMAGE.items())
def test_validate_names_each_damage(tree, project, code, status):
    """M57, C15: one finding per trouble, with its code; and sound before the damage."""
    project.record("x", {"decisions": ["We chose x"]})
    project.consolidate()
    assert failures(project) == []
    _damage(tree, code)
    found = {(finding.code, finding.status) for finding in project.validate()}
    assert (code, status) in found


def test_gaps_need_retention(tree, project):
    """M57: a gap in the ids fails where retention is off and passes where it is on."""
    for turn in range(3):
        project.record(f"r{turn}")
    log = tree / ".cairn/history/events.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], lines[2], lines[3]]) + "\n")
    assert failures(project) == []
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["retention"]["enabled"] = False
    at.write_text(json.dumps(config))
    assert any("history.gaps" in line for line in failures(project))


def test_backlog_and_baseline_warn(tree):
    """M57: more events than the threshold, and a check result older than fourteen days, are warnings."""
    clock = SetClock()
    project = open_at(tree, clock)
    project.record("ran", {"validationObservations": ["3 passed"]})
    project.consolidate()
    clock.pass_days(15)
    for turn in range(11):
        project.record(f"r{turn}", {"decisions": [f"We chose {turn}"]})
    warned = {finding.code for finding in project.validate() if finding.status == "warn"}
    assert {"recall.backlog", "validation.baseline"} <= warned


def test_a_persons_own_steps_come_first(project, tree):
    """M53: what somebody wrote on the page or recorded stands before what the tree asks for, wherever it is on the page."""
    page = tree / "docs/cairn/next-steps.md"
    page.write_text(
        page.read_text()
        + "\n## Call the carrier\n\n- **Why:** They changed their terms.\n- **Start:** the contract\n- **Done:** they signed\n"
    )
    lines = project.query("what should I do next?").answer.splitlines()
    assert lines[0].startswith("Call the carrier")
    assert len(lines) > 1
    project.record("Talked to Ann", {"nextStepHints": ["Next step: sign the release"]})
    project.consolidate()
    lines = project.query("what should I do next?").answer.splitlines()
    assert {lines[0].split(".")[0].lower(), lines[1].split(".")[0].lower()} == {
        "call the carrier",
        "sign the release",
    }
