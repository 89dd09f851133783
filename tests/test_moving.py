"""Moving a whole memory, and its notes to a folder that a person edits and back: nothing lost, nothing written over."""

from __future__ import annotations

import json
import threading

import pytest

import cairn
from cairn import moving
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend
from cairn.errors import Conflict, Invalid, NotFound, Unavailable
from cairn.seams import Locator
from cairn.surfaces.cli import main
from tests.waiting import until

NOTES = "default_app/default_project/users/alice"


def said(text, n=0):
    return {"sender_id": "alice", "role": "user", "timestamp": 1_780_000_000_000 + n, "content": text}


def opened(root):
    return cairn.open_blocking(root, background=False, embedding__provider="none")


@pytest.fixture
def root(tmp_path):
    """A memory with a session, an episode and settings of its machine."""
    with opened(tmp_path / "root") as memory:
        memory.add("s1", [said("The lantern hangs in the attic.")])
        memory.flush("s1")
    (tmp_path / "root" / "cairn.toml").write_text('[memory]\ntimezone = "Europe/Lisbon"\n')
    return tmp_path / "root"


def test_a_memory_moves_and_says_the_same(root, tmp_path, capsys):
    """By command: all is read back; again, it brings what came since; in use or somebody else's, it is refused by name."""
    there = str(tmp_path / "there")
    (root / "default_app" / "by-hand.md").write_text("A page of one's own.\n")
    move = ["move", str(root), there, "--json"]
    assert main(move) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["copied"] == done["verified"] == done["files"] > 2 and done["still"]
    assert not (tmp_path / "there" / "cairn.toml").exists()
    with opened(root) as memory:
        memory.add("s2", [said("The ladder is in the cellar.", 1)])
        memory.flush("s2")
        note = next(memory.parts.notebook.notes(kind="episode"))
        (root / "default_app" / "by-hand.md").unlink()
    assert main(move) == 0
    again = json.loads(capsys.readouterr().out)
    assert 0 < again["copied"] < again["files"] == again["verified"] and again["removed"] == 1
    with opened(there) as memory:
        assert (
            len(memory.search("ladder", user_id="alice", method="keyword", consistency="strong").episodes)
            == 1
        )
        memory.add("s3", [said("The rope is on the roof.", 2)])  # it is in use now
    assert main(move) == 4
    assert "was written to since the move" in capsys.readouterr().out
    with opened(tmp_path / "other") as memory:
        memory.add("s1", [said("Another memory.")])
    assert main(["move", str(tmp_path / "other"), there]) == 4
    assert "is being filled from" in capsys.readouterr().err
    assert main(["move", there, str(root)]) == 4
    assert f"{root} holds a memory already" in capsys.readouterr().err
    assert root.joinpath(note.key).read_text() == tmp_path.joinpath("there", note.key).read_text()
    assert main(["move", str(tmp_path / "nowhere"), there]) == 3
    assert main(["move", str(root), str(root / "below")]) == 2


class Failing(InMemoryBackend):
    """A target that goes away in the middle."""

    left = 2

    def write(self, locator, content, *, expect=None):
        if locator != moving.NOTED:
            self.left -= 1
            if not self.left:
                raise Unavailable("The store does not answer.")
        return super().write(locator, content, expect=expect)


def test_a_move_that_was_cut_off_goes_on(root):
    """What did not get over is named; the next call brings it, also where the source changed meanwhile."""
    source, target = DeviceLocalBackend(root), Failing()
    first = moving.move(source, target, "here", "there")
    assert first.problems == ["The store does not answer."] and first.verified == first.files - 1
    for key in [key for key, _, _ in source.scan() if key.startswith("default_app") and key.endswith(".md")]:
        source.write(Locator(key), source.read(Locator(key)) + "\nBy hand.\n")
    second = moving.move(source, target, "here", "there")
    assert second.problems == [] and second.verified == second.files and second.still
    assert moving.move(source, target, "here", "there").copied == 0


def test_a_move_beside_a_writer_ends_and_the_next_has_the_rest(root, tmp_path):
    """The source serves all the while: every message that was acknowledged is in the target after the last call."""
    stop, told = threading.Event(), []
    with opened(root) as memory:

        def talk():
            while not stop.is_set():
                memory.add("s1", [said(f"Message {len(told)}.", len(told) + 1)])
                told.append(f"Message {len(told)}.")

        writer = threading.Thread(target=talk)
        writer.start()
        until(lambda: told)
        memory.move_to(str(tmp_path / "there"))
        stop.set()
        writer.join()
        done = memory.move_to(str(tmp_path / "there"))
    assert done["still"] and done["verified"] == done["files"]
    log = tmp_path.joinpath("there", "default_app/default_project/sessions/s1.jsonl").read_text()
    assert told and all(text in log for text in told)


def test_notes_are_edited_in_a_folder_and_pushed(root, tmp_path, capsys):
    """An edit goes back, one on both sides is a conflict that loses neither, and what was removed stays until asked."""
    folder = tmp_path / "notes"
    with opened(root) as memory:
        memory.remember("We deploy with make ship.")
        assert len(memory.pull(str(folder))["brought"]) > 1
        note = next(at for at in memory.parts.notebook.notes(kind="episode"))
        mine, theirs = folder / note.key, root / note.key
        mine.write_text(mine.read_text().replace("attic", "kitchen"))
        assert memory.pull(str(folder))["yours"] == [note.key]
        assert memory.push(str(folder))["written"] == [note.key]
        assert memory.search("kitchen", user_id="alice", method="keyword", consistency="strong").episodes
        assert memory.pull(str(folder))["same"] > 1

        theirs.write_text(theirs.read_text().replace("kitchen", "garden"))
        mine.write_text(mine.read_text().replace("kitchen", "garage"))
        refused = memory.push(str(folder))
        assert [one["path"] for one in refused["conflicts"]] == [note.key] and not refused["written"]
        assert "garden" in theirs.read_text() and "garage" in mine.read_text()
        assert "+" in refused["conflicts"][0]["diff"] and "garden" in refused["conflicts"][0]["diff"]
        copy = folder / f"{note.key}.theirs"
        assert "garden" in copy.read_text()
        assert "delete that copy" in memory.push(str(folder))["problems"][0]
        copy.unlink()
        assert memory.push(str(folder))["written"] == [note.key]
        assert "garage" in theirs.read_text()

        mine.unlink()
        assert memory.push(str(folder))["missing"] == [note.key] and theirs.exists()
        assert memory.push(str(folder), delete=True)["removed"] == [note.key] and not theirs.exists()
        assert not memory.search("garage", user_id="alice", method="keyword", consistency="strong").episodes
        (folder / "mine.md").write_text("no note\n")
        assert "is no place of a note" in memory.push(str(folder))["problems"][0]
    assert main(["--root", str(root), "push", str(folder)]) == 1
    assert main(["--root", str(root), "pull", str(folder)]) == 0


def test_an_edit_there_and_a_removal_here_lose_nothing(root, tmp_path):
    """What changed there comes back instead of being removed; a pull of one owner leaves others' notes alone."""
    folder = tmp_path / "notes"
    with opened(root) as memory:
        memory.remember("We deploy with make ship.")
        whole = len(memory.pull(str(folder))["brought"])
        some = memory.pull(str(folder), under=NOTES)
        assert some["same"] < whole and some["removed"] == []
        note = next(at for at in memory.parts.notebook.notes(kind="episode"))
        (folder / note.key).unlink()
        (root / note.key).write_text((root / note.key).read_text() + "\nBy hand.\n")
        assert "in the folder again" in memory.push(str(folder), delete=True)["problems"][0]
        assert "By hand." in (folder / note.key).read_text() and (root / note.key).exists()
        (folder / note.key).write_text("mine\n")
        (root / note.key).unlink()
        assert [one["path"] for one in memory.pull(str(folder))["conflicts"]] == [note.key]
        assert (folder / note.key).read_text() == "mine\n"


def test_a_folder_belongs_to_one_memory(root, tmp_path):
    """Another's folder, one with other files, one never pulled into, one that is not there: each is said."""
    with opened(root) as memory:
        memory.pull(str(tmp_path / "notes"))
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.md").write_text("mine\n")
        with pytest.raises(Conflict, match=r"not empty \(thesis.md\)"):
            memory.pull(str(tmp_path / "full"))
        with pytest.raises(NotFound):
            memory.push(str(tmp_path / "nothing"))
        (tmp_path / "empty").mkdir()
        with pytest.raises(Invalid, match="cairn pull"):
            memory.push(str(tmp_path / "empty"))
        with pytest.raises(Invalid, match="memory root"):
            memory.pull(str(root / "below"))
    with opened(tmp_path / "other") as other, pytest.raises(Conflict, match="belongs to"):
        other.pull(str(tmp_path / "notes"))
