"""Nothing a repository's history says is lost: as somebody at a shell meets it, command by command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.canonical import json_hash
from cairn.surfaces.cli import main
from tests.fake_model import FakeModel
from tests.project_kit import git, make_repo
from tests.test_project_nothing_lost import STEPS, TRAPS, old_tree, transcripts

Run = Callable[..., Any]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def run(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Type a `cairn project` command in the repository; what it says as JSON."""

    def call(*words: object, code: int = 0) -> Any:
        given = ["--root", str(tmp_path / "root"), "--json", "project", *(str(word) for word in words)]
        assert main([*given, "-C", str(tree)]) == code
        return json.loads(capsys.readouterr().out)

    return call


def bundle(tree: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tree / ".cairn/state.json").read_text())["bundle"]
    return found


def titles(tree: Path, section: str) -> str:
    return " ".join(one["title"].casefold() for one in bundle(tree)[section])


def settings(tree: Path, **recall: str) -> None:
    at = tree / ".cairn/config.json"
    given = json.loads(at.read_text())
    given["recall"].update(recall)
    at.write_text(json.dumps(given))


def test_sections_and_policies_take_only_what_they_fold(tree: Path, run: Run, tmp_path: Path) -> None:
    """M9, M10, M46, M47, M50, M51, M58: three traps and three steps of three sessions stay three each, with their sources; one
    section leaves the others to be folded; a policy leaves what it passes over, however old.
    """
    run("init")
    sessions = transcripts(
        tmp_path / "sessions", *(f"{trap}\n\n{step}" for trap, step in zip(TRAPS, STEPS, strict=True))
    )
    run("sources", "add", "claude-local", sessions)
    assert [one["imported"] for one in run("import")] == [3]
    settings(tree, policy="local-only")
    run("consolidate", "--yes")
    assert "login" not in titles(tree, "gotchas")
    assert run("prune")["events"] == []
    assert run("status")["backlog"]["imports"]["count"] == 3, (
        "a policy marks nothing as read that it did not fold"
    )
    settings(tree, policy="balanced")
    run("consolidate", "--yes", "--section", "gotchas")
    found = titles(tree, "gotchas")
    assert all(word in found for word in ("stale", "login", "migrations"))
    assert "retry queue" not in titles(tree, "nextSteps")
    run("consolidate", "--yes")
    found = titles(tree, "nextSteps")
    assert all(word in found for word in ("retry queue", "real files", "old parser"))
    [login] = [one for one in bundle(tree)["gotchas"] if "login" in one["title"].casefold()]
    assert "Task 1" in json.dumps(login), "its own session, not a neighbour's"
    assert run("status")["backlog"]["all"]["count"] == 0
    assert "login" in run("query", "which gotchas are there?", "--scope", "history")["answer"]


def test_an_edited_state_is_heard_and_damage_is_named(tree: Path, run: Run) -> None:
    """M1, M57: a program's edit of `state.json` is taken over by the next update; a changed event and a torn last line are
    failures of `validate`.
    """
    run("init")
    run("record", "Looked at locks", "--gotcha", "Locks: beware of the order. Take them by name.")
    at = tree / ".cairn/state.json"
    state = json.loads(at.read_text())
    state["bundle"]["currentFocus"]["summary"] = "Ship the parcel desk by Friday."
    state["bundleHash"] = json_hash(state["bundle"])
    at.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    assert not run("validate", code=1)["ok"]
    run("update")
    assert bundle(tree)["currentFocus"]["summary"] == "Ship the parcel desk by Friday."
    assert run("validate")["ok"]
    log = tree / ".cairn/history/events.jsonl"
    whole = log.read_text()
    log.write_text(whole.replace("Looked at locks", "Looked at keys"))
    assert not run("validate", code=1)["ok"]
    log.write_text(whole + '{"id": "evt-0000')
    assert not run("validate", code=1)["ok"]
    log.write_text(whole)
    assert run("validate")["ok"]


def test_a_tree_of_the_older_program_is_carried_over(tree: Path, run: Run) -> None:
    """M2, M18, M23, M38, M39: with a provider that is not ours; every command works afterwards, times and cursors stay."""
    run("init")
    old_tree(tree, automation={"provider": "claude"})
    told = run("init", "--force")
    assert "claude" in json.dumps(told)
    assert run("status")["backlog"]["imports"]["count"] == 1
    assert [one["id"] for one in run("sources", "list")] == ["claude-1"]
    events = [json.loads(line) for line in (tree / ".cairn/history/events.jsonl").read_text().splitlines()]
    assert [one["occurredAt"][:10] for one in events if one["kind"] == "imported_session"] == [
        "2025-03-01",
        "2025-03-02",
    ]
    run("consolidate", "--yes")
    assert "lesson 2" in titles(tree, "gotchas")
    assert run("validate")["ok"]


def test_what_one_asks_first_is_answered(tree: Path, run: Run) -> None:
    """M9, M53, A98: what it is, what to do next (a person's own step first), what changed (people's commits, too), what
    single events say; what nobody ever said is not answered.
    """
    run("init")
    run(
        "record",
        "Looked at webhooks",
        "--gotcha",
        "Gotcha: webhooks arrive twice on Mondays",
        "--next",
        "Paint the shed",
    )
    run("consolidate", "--yes")
    assert "parcel" in run("query", "what is this project?")["answer"].casefold()
    assert "paint the shed" in run("query", "what should I do next?")["answer"].casefold().splitlines()[0]
    assert "twice on Mondays" in run("query", "which gotchas are there?", "--scope", "history")["answer"]
    (tree / "NEWS.md").write_text("news\n")
    git(tree, "add", "NEWS.md")
    git(tree, "commit", "-q", "-m", "Add the news page")
    changed = run("query", "what changed recently?")["answer"]
    assert "Looked at webhooks" in changed
    assert changed.index("Add the news page") < changed.index("parcel: first version"), "newest first"
    assert run("query", "where is the flux capacitor?", code=1)["citations"] == []


def test_a_model_proposes_the_bundle_where_one_is_set(
    tree: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M46, M64: its bundle is taken if it has the shape; where it has not, the rules decide."""
    run("init")

    def told(body: dict[str, Any]) -> dict[str, Any]:
        given = json.loads(body["messages"][1]["content"])["bundle"]
        trap = {"title": "Told", "symptom": "s", "cause": "c", "correctPath": "p"}
        return {"bundle": {**given, "gotchas": [trap]}}

    monkeypatch.setenv("CAIRN_LLM__MODEL", "fake")
    for always, found in (("wrong-shape", "sessions"), ("good", "told")):
        run("record", "Traced the login", "--gotcha", f"Sessions: they expire in UTC ({always})")
        with FakeModel(always=always, answer=told) as model:
            monkeypatch.setenv("CAIRN_LLM__BASE_URL", model.url)
            run("consolidate", "--yes")
            assert titles(tree, "gotchas").split()[-1] == found
            assert f"expire in UTC ({always})" in model.requests[-1]["messages"][1]["content"]


def test_a_memory_of_a_repository_from_its_first_day(tree: Path, run: Run) -> None:
    """M1, M19, M22, M26, M28, M39, M44, M45, M48, M49, M54, M55, M56: its files, pages and block; what is new is folded in once
    and told; answers cite, status suggests, an update without news writes nothing.
    """
    run("init")
    assert {"config.json", "state.json", "history"} <= {one.name for one in (tree / ".cairn").iterdir()}
    pages = sorted(one.name for one in (tree / "docs/cairn").glob("*.md"))
    assert pages == ["README.md", "current-focus.md", "gotchas.md", "next-steps.md", "project-map.md"]
    assert "docs/cairn/README.md" in (tree / "README.md").read_text(), "the entry file leads to the pages"
    config = json.loads((tree / ".cairn/config.json").read_text())
    assert {"automation", "query", "recall", "retention"} <= config.keys()
    before = (tree / ".cairn/state.json").read_bytes()
    assert run("consolidate", "--yes")["noop"]
    run("update")
    assert (tree / ".cairn/state.json").read_bytes() == before, "nothing new changes not a byte"
    run(
        "record",
        "Traced the login",
        "--gotcha",
        "Sessions: they expire in UTC",
        "--next",
        "Renew them in time",
    )
    status = run("status")
    assert [status["backlog"][name]["count"] for name in ("all", "local", "imports")] == [1, 1, 0]
    assert "consolidate" in json.dumps(status["suggestedAction"])
    assert not run("consolidate", "--dry-run")["applied"]
    assert run("status")["backlog"]["all"]["count"] == 1, "a look folds nothing in"
    assert run("query", "what should I do next?")["answer"].startswith("Renew them in time"), (
        "what waits is told, too"
    )
    assert "expire in UTC" in run("query", "which gotchas are there?")["answer"]
    run("record", "Painted it", "--next", "DONE: Paint the shed")
    assert "shed" not in run("query", "what should I do next?")["answer"], "what is done is no step"
    done = run("consolidate", "--yes")
    assert (len(done["summary"]["addedGotchas"]), len(done["summary"]["addedNextSteps"])) == (1, 1)
    assert run("consolidate", "--yes")["noop"]
    assert "expire in UTC" in (tree / "docs/cairn/gotchas.md").read_text()
    told = run("query", "when do sessions expire?")
    assert {one["sourceType"] for one in told["citations"]} & {"bundle", "event"}
    assert "not enough evidence" in run("query", "who painted the ceiling?", code=1)["answer"]
    (tree / "tool.py").write_text("print(1)\n")
    git(tree, "add", "tool.py")
    git(tree, "commit", "-q", "-m", "Add a tool")
    assert run("update")["changedSections"]
    assert run("validate")["ok"]
