"""Time travel: every change of an entry is an event; checkpoints, diffs, restores that can be undone, purging."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from cairn.errors import Invalid, NotFound
from cairn.notes.notebook import Draft
from cairn.seams import Locator
from cairn.timetravel.changes import (
    HEAD,
    EntryChange,
    Observer,
    Restored,
    TimeTravel,
    taken_apart,
    with_blocks,
    words_of,
)
from cairn.types import Scope, Space
from tests.project_kit import SetClock
from tests.world import SPACE, World

ANN = Scope(Space(), "user", "ann")
DAY = "2026-11-01"


class Travelled(World):
    """A notebook that tells time travel of each write, as the library wires it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, in_memory=True, clock=SetClock())
        self.travelled = self.open()
        self.at = None

    def open(self) -> TimeTravel:
        return self.travel(SPACE)

    def add(self, text: str) -> str:
        [written] = self.notebook.append("episode", ANN, DAY, [Draft({"session_id": "s"}, {"Content": text})])
        self.at = written.locator
        self.travelled.observe(written.locator, "add")
        return written.entry_id

    def edit(self, entry_id: str, text: str) -> None:
        self.notebook.change(self.at, entry_id, lambda entry: Draft(entry.inline, {"Content": text}))
        self.travelled.observe(self.at, "edit")

    def remove(self, entry_id: str) -> None:
        self.notebook.remove(self.at, [entry_id])
        self.travelled.observe(self.at, "forget")

    def texts(self) -> dict[str, str]:
        return {entry.id: entry.sections["Content"] for entry in self.notebook.read(self.at).entries}


@pytest.fixture
def world(tmp_path):
    return Travelled(tmp_path)


def test_every_change_is_an_event_with_hashes_and_cause(world):
    """Added, changed, removed: before and after by hash, the cause, and nothing for entries that stayed."""
    one = world.add("Tea at noon.")
    two = world.add("Rain in May.")
    world.edit(one, "Coffee at noon.")
    world.remove(two)
    told = [(change.entry, change.action, change.cause) for change in reversed(world.travelled.log())]
    assert told == [
        (one, "added", "add"),
        (two, "added", "add"),
        (one, "changed", "edit"),
        (two, "removed", "forget"),
    ]
    assert [change.action for change in world.travelled.log(one)] == ["changed", "added"]
    changed = world.travelled.log(one)[0]
    assert changed.before == world.travelled.log(one)[1].after


def test_observing_twice_adds_nothing(world):
    """Idempotent: a repeated or late observation records no change that did not happen."""
    world.add("Tea.")
    before = world.journals.size(world.root.space(SPACE).child("journal/history/changes.jsonl"))
    for _ in range(3):
        assert world.travelled.observe(world.at) == []
    assert world.open().observe(world.at) == [], "a new process knows what was seen"
    assert world.journals.size(world.root.space(SPACE).child("journal/history/changes.jsonl")) == before


def test_a_checkpoint_can_be_compared_and_restored_and_the_restore_undone(world):
    """diff names what changed since; restore brings it back; restoring the later checkpoint undoes that."""
    one, two = world.add("Tea."), world.add("Rain.")
    first = world.travelled.checkpoint("before the edits")
    world.edit(one, "Coffee.")
    world.remove(two)
    three = world.add("Snow.")
    second = world.travelled.checkpoint()
    found = {item["entry"]: item["action"] for item in world.travelled.diff(first.id)}
    assert found == {one: "changed", two: "removed", three: "added"}
    assert "-Tea." in next(item for item in world.travelled.diff(first.id) if item["entry"] == one)["diff"]
    world.add("Hail.")
    assert {one["entry"]: one["action"] for one in world.travelled.diff(first.id, second.id)} == found
    assert [one["action"] for one in world.travelled.diff(second.id)] == ["added"]

    world.travelled.restore(first.id)
    assert world.texts() == {one: "Tea.", two: "Rain."}
    assert world.travelled.diff(first.id) == []
    world.travelled.restore(second.id)
    assert world.texts() == {one: "Coffee.", three: "Snow."}


def test_one_change_can_be_undone(world):
    """`restore ent-...` puts one entry back to before that change, and leaves the others."""
    one, two = world.add("Tea."), world.add("Rain.")
    world.edit(one, "Coffee.")
    world.edit(two, "Sun.")
    world.travelled.restore(world.travelled.log(one)[0].id)
    assert world.texts() == {one: "Tea.", two: "Sun."}


def test_a_removed_file_comes_back_with_its_head(world):
    """When the whole note is gone, restoring makes it again, frontmatter included."""
    one = world.add("Tea.")
    made = world.travelled.checkpoint()
    world.notebook.drop(world.at)
    world.travelled.observe(world.at, "dropped")
    world.travelled.restore(made.id)
    assert world.texts() == {one: "Tea."}
    assert world.storage.read(world.at).startswith("---\n")
    assert world.add("Next.") != one, "the id is not given twice"


def test_the_head_of_a_note_goes_up_to_its_first_entry(world):
    """Also where a person quotes that entry before it: head and entries together are the file."""
    one = world.add("Tea.")
    note = world.notebook.read(world.at)
    block = note.text[note.entries[0].start :]
    text = f"{note.text[: note.head.body]}As it was: {block}\nAs it is:\n{block}"
    found = taken_apart(world.at, text)
    assert set(found) == {one, HEAD}
    assert found[HEAD] + found[one] == text


def test_an_entry_comes_back_where_it_stands_behind_one_without_a_line_end(world):
    """The one before was the last of its file then, saved by an editor without a final line end."""
    one, two = world.add("Tea."), world.add("Rain.")
    text = world.storage.read(world.at)
    blocks = taken_apart(world.at, text)
    then = [
        Restored(str(world.at), one, blocks[one].rstrip("\n")),
        Restored(str(world.at), two, blocks[two].replace("Rain.", "Sun.")),
    ]
    made = with_blocks(text, then, "")
    assert made is not None
    assert "Rain." not in made
    assert made.count(f"\n<!-- entry:{two} -->\n") == 1
    assert list(taken_apart(world.at, made)) == [one, two, HEAD]


def test_reading_as_of_a_moment(world):
    """as_of takes a checkpoint or a time with a zone; the texts are those of then."""
    one = world.add("Tea.")
    then = world.clock.now()
    world.clock.pass_days(1)
    world.edit(one, "Coffee.")
    [text] = world.travelled.as_of(then).values()
    assert "Tea." in text
    [text] = world.travelled.as_of(world.clock.now()).values()
    assert "Coffee." in text
    for bad in ("yesterday", "2026-13-01", "2026-11-01", "2026-11-01T10:00:00"):
        with pytest.raises(Invalid, match="neither a checkpoint"):
            world.travelled.as_of(bad)
    with pytest.raises(NotFound, match="chk-000009"):
        world.travelled.as_of("chk-000009")


def test_purging_takes_the_words_out_for_good(world):
    """forget: no text of the entry stays in the history, another entry's equal text does; the change stays as a bare line."""
    one, two = world.add("My secret is blue."), world.add("Rain.")
    world.edit(one, "My secret is green.")
    world.remove(one)
    assert world.travelled.purge(entries=[one]) == 2
    stored = "\n".join(
        world.journals.read(world.root.space(SPACE).child("journal/history/texts.jsonl")).lines
    )
    assert "secret" not in stored
    assert "Rain." in stored
    assert [change.action for change in world.travelled.log(one)] == ["removed", "changed", "added"]
    with pytest.raises(NotFound, match="purged"):
        world.travelled.restore(world.travelled.log(one)[0].id)
    assert world.travelled.purge(clean=lambda _, text: None if "Rain" in text else text) == 1
    assert two in world.texts()


def test_what_forgetting_left_of_a_text_comes_back(world):
    """A text that lost words on request is no damaged one, also after it lost others."""
    one = world.add("My secret is blue. Rain falls.")
    first = world.travelled.checkpoint()
    world.edit(one, "Snow.")
    for word in ("blue", "secret"):
        assert world.travelled.purge(clean=lambda _, text, word=word: text.replace(word, "[forgotten]")) == 1
    assert world.open().damaged_texts() == 0
    assert [item.action for item in world.travelled.restore(first.id)] == ["write"]
    assert world.texts() == {one: "My [forgotten] is [forgotten]. Rain falls."}


def test_documents_without_entries_are_one_entry(world):
    """A profile is a document: it is kept, compared and restored whole."""
    at = Locator("default_app/default_project/users/ann/user.md")
    world.notebook.rewrite(at, lambda _: "---\ntype: profile\n---\nLikes tea.\n")
    world.travelled.observe(at)
    made = world.travelled.checkpoint()
    world.notebook.rewrite(at, lambda _: "---\ntype: profile\n---\nLikes coffee.\n")
    world.travelled.observe(at)
    world.travelled.restore(made.id)
    assert "tea" in world.storage.read(at)


def test_coming_back_to_before_a_note_began_leaves_nothing_to_come_back_to(world):
    """A day's note keeps its head, by which ids are not given twice, and is no document then; a document goes whole."""
    before = world.travelled.checkpoint()
    one = world.add("Tea.")
    at = Locator("default_app/default_project/users/ann/user.md")
    world.notebook.rewrite(at, lambda _: "---\ntype: profile\n---\nLikes tea.\n")
    world.travelled.observe(at)
    after = world.travelled.checkpoint()
    plan = world.travelled.restore(before.id)
    assert sorted((item.entry, item.action) for item in plan) == [("*", "remove"), (one, "remove")]
    assert not world.storage.exists(at)
    assert world.travelled.diff(before.id) == []
    assert world.travelled.restore_plan(before.id) == []
    assert {change.action for change in world.travelled.log(limit=2)} == {"removed"}
    world.travelled.restore(after.id)
    assert world.texts() == {one: "Tea."}
    assert "Likes tea." in world.storage.read(at)
    assert world.travelled.diff(after.id) == []
    assert world.add("Next.") != one


def test_another_space_is_refused(world):
    """A note of another space cannot enter this history."""
    with pytest.raises(Invalid, match="not below"):
        world.travelled.observe(Locator("other_app/p/users/ann/user.md"))


def test_torn_lines_do_not_stop_the_history(world):
    """A line that is no JSON, or not ours, is passed over."""
    one = world.add("Tea.")
    at = world.root.space(SPACE).child("journal/history/changes.jsonl")
    world.journals.append(at, ["{half", json.dumps({"id": 1})])
    assert [change.entry for change in world.open().log()] == [one]


def test_what_is_kept_in_memory_does_not_grow_with_the_changes(world):
    """A long life: changes stay in their journal, and a note that is gone leaves nothing behind."""
    gc.collect()
    before = [one for one in gc.get_objects() if isinstance(one, EntryChange)]  # of other tests, if any
    entry = world.add("the first text")
    for number in range(60):
        world.edit(entry, f"text number {number}")
    gc.collect()
    assert sum(isinstance(one, EntryChange) for one in gc.get_objects()) <= len(before)
    assert len(world.travelled.log(limit=1000)) == 61
    world.storage.remove(world.at)
    world.travelled.observe(world.at, "removed by hand")
    assert world.travelled._now == {}
    assert world.travelled.log(limit=1)[0].action == "removed"
    assert len(world.open().log(limit=1000)) == 62


def test_a_note_deleted_by_hand_is_recorded_as_removed(world):
    """A deletion is an edit like others, though a file that is gone has no time to be found by."""
    observer = Observer(world.storage, lambda _space: world.travelled, lambda _after: [])
    entry = world.add("a text that a person deletes")
    observer.of(Space())
    assert observer.look_around() == 0
    world.storage.remove(world.at)
    assert observer.look_around() == 2, "its entry and the head of its file"
    assert [(change.entry, change.action) for change in world.travelled.log(limit=1)] == [(entry, "removed")]
    assert world.travelled.as_of(world.clock.now()) == {}
    assert observer.look_around() == 0


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, "---\ntype: profile\n---\n<!-- mark -->\nLikes\ntea.\n", "Likes tea."),
        ("Likes tea.\n", None, "Likes tea."),
        (None, None, ""),
        ("a\nb\nc\n", "a\nB\nc\n", "text: b -> B"),
        ("a\nc\n", "a\nb\nc\n", "text:  -> b"),
        ("---\nkind: x\n---\n", "---\nkind: y\nupdated_at: now\n---\n", "kind: x -> y"),
        ("a\nb\n", "a\r\nb\r\n", "the same words: only stamps or line ends changed"),
        ("x" * 300, None, "x" * 199 + "…"),
    ],
)
def test_a_change_is_told_in_one_line(before, after, words):
    """What came or went, or the lines in which the two differ; stamps that change with every write are no news."""
    assert words_of(before, after) == words
