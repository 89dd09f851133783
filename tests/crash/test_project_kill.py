"""kill -9 while a repository's memory is being written: the next command finds everything, once."""

from __future__ import annotations

import os

import pytest

from cairn.project.record import ProjectRecord
from tests.chaos.project import campaign
from tests.project_kit import event_lines, failures, open_at, ready_repo, state


@pytest.mark.slow
def test_killed_in_the_middle_of_anything(tmp_path):
    """P1 for project memory, the short form: 5 kills; `make chaos` does 100."""
    report = campaign(5, seed=int(os.environ.get("SEED", "8")), folder=tmp_path)
    assert report["kills"] == 5


class PowerCut(BaseException):
    """The process ends here; nothing may clean up."""


STEPS = ["checkpoint", "state", "page", "entry", "event"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("command", ["consolidate", "update", "edit"])
def test_cut_before_each_step_of_a_write(tmp_path, monkeypatch, step, command):
    """M40: stopped before any step of the write order, the next command finishes or repeats it; nothing is lost or doubled."""
    tree = ready_repo(tmp_path / "repo")
    project = open_at(tree)
    project.record("Learned", {"gotchas": ["Rope: it frays. Use steel."], "decisions": ["We chose steel"]})
    if command == "edit":
        page = tree / "docs/cairn/current-focus.md"
        page.write_text(
            page.read_text().replace("## Known risks\n\n", "## Known risks\n\n- Rope may fray\n", 1)
        )
    (tree / "src/parcel/billing.py").write_text("# TODO: write invoices\n")
    storage, log = project.record_.storage, project.record_.log
    write, append = storage.write, log.append

    def guarded(at, text, **more):
        kind = (
            "checkpoint"
            if "checkpoints" in at.key
            else "state"
            if at.key.endswith("state.json")
            else "page"
            if at.key.startswith("docs/")
            else "entry"
        )
        if kind == step:
            raise PowerCut
        return write(at, text, **more)

    def guarded_append(events):
        if step == "event":
            raise PowerCut
        append(events)

    monkeypatch.setattr(storage, "write", guarded)
    monkeypatch.setattr(log, "append", guarded_append)
    with pytest.raises(PowerCut):
        project.consolidate() if command == "consolidate" else project.update()

    fresh = open_at(tree)
    fresh.update()
    fresh.consolidate()

    assert failures(fresh) == []
    summaries = [event["summary"] for event in event_lines(tree)]
    assert summaries.count("Learned") == 1
    assert len({event["contentHash"] for event in event_lines(tree)}) == len(summaries)
    assert [item["title"] for item in state(tree)["bundle"]["gotchas"]].count("Rope") == 1
    if command == "edit":
        assert "Rope may fray" in state(tree)["bundle"]["currentFocus"]["knownRisks"]


def test_cut_while_two_branches_are_united(tmp_path, monkeypatch):
    """A cut at any write of the merge of checkpoints leaves a record the next command completes."""
    import shutil

    ours, theirs = ready_repo(tmp_path / "ours"), ready_repo(tmp_path / "theirs")
    for tree, name in ((ours, "ours"), (theirs, "theirs")):
        for turn in range(2):
            open_at(tree).record(
                f"{name} {turn}", {"gotchas": [f"{name} trap {turn}: beware of {name}{turn}."]}
            )
            open_at(tree).consolidate()
    for file in (theirs / ".cairn/history/checkpoints").iterdir():
        if not (ours / ".cairn/history/checkpoints" / file.name).exists():
            shutil.copy(file, ours / ".cairn/history/checkpoints")
    extra = (theirs / ".cairn/history/events.jsonl").read_text().splitlines()[1:]
    with (ours / ".cairn/history/events.jsonl").open("a") as handle:
        handle.write("\n".join(extra) + "\n")
    for cut in range(1, 12):
        tree = tmp_path / f"cut{cut}"
        shutil.copytree(ours, tree)
        project = open_at(tree)
        left = [cut]
        write, remove = project.record_.storage.write, project.record_.storage.remove

        def counted(*given, call=write, left=left, **more):
            left[0] -= 1
            if not left[0]:
                raise PowerCut
            return call(*given, **more)

        monkeypatch.setattr(project.record_.storage, "write", counted)
        monkeypatch.setattr(
            project.record_.storage, "remove", lambda at, call=remove, again=counted: again(at, call=call)
        )
        try:
            project.update()
        except PowerCut:
            pass
        fresh = open_at(tree)
        fresh.update()
        assert failures(fresh) == [], cut
        titles = {item["title"].lower() for item in state(tree)["bundle"]["gotchas"]}
        assert {f"{name} trap {turn}" for name in ("ours", "theirs") for turn in range(2)} <= titles, cut
        assert isinstance(fresh.record_, ProjectRecord)
