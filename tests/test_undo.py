"""One history: what a run wrote is taken back as a whole, and what a person did since stays."""

from __future__ import annotations

import json

import pytest

import cairn
from cairn.surfaces.cli import main

OPTIONS = {"embedding__provider": "none", "strategies__enabled": False}
ALIKE = [f"The nightly backup of db{n} to the blue bucket is kept for thirty days." for n in range(3)]


@pytest.fixture
def memory(tmp_path):
    with cairn.open_blocking(tmp_path / "root", background=False, **OPTIONS) as opened:
        yield opened


def notes(memory):
    root = memory.parts.settings.root
    return {path: path.read_bytes() for path in root.rglob("memories/*.md")}


def latest(memory, kind):
    return next(run for run in memory.memories.runs()["runs"] if run["kind"] == kind)


def test_every_kind_of_run_is_taken_back_to_the_byte(memory):
    """S90, A87, A36: a correction, a consolidation, an import and an undo are runs: listed, taken back exactly, once."""
    kept = memory.remember("The boiler is in the cellar.", status="promoted").memory["id"]
    before = notes(memory)
    memory.memories.edit(kept, content="The boiler is in the attic.")
    memory.memories.supersede(kept, "The boiler is gone.", reason="sold")
    corrections = [run for run in memory.memories.runs()["runs"] if run["kind"] == "correction"]
    assert [run["entries"] for run in corrections] == [2, 1], "superseding changes the old and adds the new"
    for run in corrections:
        assert memory.undo(run["run_id"]).kind == "correction"
    assert notes(memory) == before

    items = json.dumps([{"id": f"m{n}", "memory": text} for n, text in enumerate(ALIKE)])
    imported = memory.memories.import_from("mem0", items)
    assert len(imported.kept) == 3
    run = latest(memory, "import")["run_id"]
    told = memory.undo(run, dry_run=True)
    assert [one.action for one in told.entries] == ["remove"] * 3
    assert notes(memory) != before
    memory.undo(run)
    assert notes(memory) == before
    assert memory.undo(run).entries == (), "a second time changes nothing"
    assert latest(memory, "import")["undone_at"]
    again = memory.memories.import_from("mem0", items, trust=True)
    assert len(again.kept) == 3, "what was taken back may come again"

    merged = notes(memory)
    done = memory.memories.consolidate()
    assert len(done.merged) == 1
    memory.undo("consolidation")
    assert notes(memory) == merged
    memory.undo("undo")
    assert (
        len([one for one in memory.memories.list(status="promoted").memories if "db" in one["content"]]) == 1
    )
    assert latest(memory, "consolidation")["undone_at"] is None, "its undo was undone: it stands again"
    for path in merged:
        path.unlink()
    memory.undo(latest(memory, "import")["run_id"])
    assert notes(memory) == {}, "a note that a person removed does not come back empty"


def test_what_a_person_changed_since_stays_and_is_told(tmp_path, capsys):
    """Tenet 5: an entry that was edited, in a file or by a call, is kept and named; the others go back; by command."""
    root = tmp_path / "root"

    def run(*words, code=0):
        assert main(["--root", str(root), "--json", *words]) == code
        return json.loads(capsys.readouterr().out)

    ids = [run("remember", text, "--status", "promoted")["memory"]["id"] for text in ALIKE]
    run("consolidate")
    [note] = root.rglob("memories/*.md")
    note.write_text(
        note.read_text().replace("db1 to the blue", "db1 to the red", 1) + "\nA line of my own.\n"
    )
    run_id = run("runs")["runs"][0]["run_id"]
    told = run("undo", run_id)
    assert (told["kind"], told["restored"], told["kept"]) == ("consolidation", 3, 1)
    assert [one["entry"] for one in told["entries"] if one["action"] == "kept"] == [ids[1]]
    text = note.read_text()
    assert "db1 to the red" in text and text.endswith("A line of my own.\n")
    standing = {one["content"] for one in run("memories", "list", "--status", "promoted")["memories"]}
    assert {ALIKE[0], ALIKE[2]} <= standing
    again = run("undo", run_id)
    assert (again["restored"], again["kept"]) == (0, 1)
    assert run_id in {one["cause"] for one in run("log")}
    assert main(["--root", str(root), "undo", "nothing"]) == 3
    assert run_id not in capsys.readouterr().err, "only runs that stand are offered"


def test_what_was_forgotten_does_not_come_back(memory):
    """A text that was forgotten since is named as gone; the rest of the run is taken back."""
    first = memory.remember("Dana's pin is under the mat.", status="promoted").memory["id"]
    memory.memories.edit(first, content="Dana has no pin any more.")
    run = latest(memory, "correction")["run_id"]
    memory.memories.forget(words=["pin is under the mat"])
    assert {one.action for one in memory.undo(run).entries} <= {"kept", "purged"}
    assert "under the mat" not in "".join(text.decode() for text in notes(memory).values())
