"""Time travel: every change of an entry is an event; checkpoints, diffs, restores that can be undone, purging."""

from __future__ import annotations

import gc
import json

import pytest

from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.errors import Invalid, NotFound
from cairn.notes.notebook import Draft, Notebook
from cairn.notes.root import MemoryRoot
from cairn.seams import Locator
from cairn.timetravel.changes import EntryChange, TimeTravel
from cairn.timetravel.observer import Observer
from cairn.types import Scope, Space
from tests.project_kit import SetClock

ANN = Scope(Space(), "user", "ann")
DAY = "2026-11-01"


class World:
    """A notebook that tells time travel of each write, as the library wires it."""

    def __init__(self) -> None:
        self.storage, self.locks, self.clock = InMemoryBackend(), InMemoryLocks(), SetClock()
        self.journals = self.storage.journals
        self.notebook = Notebook(self.storage, self.locks, clock=self.clock)
        self.space = MemoryRoot(self.storage).space(Space())
        self.travel = self.open()
        self.at = None

    def open(self) -> TimeTravel:
        return TimeTravel(self.space, self.notebook, self.journals, self.locks, self.clock)

    def add(self, text: str) -> str:
        [written] = self.notebook.append("episode", ANN, DAY, [Draft({"session_id": "s"}, {"Content": text})])
        self.at = written.locator
        self.travel.observe(written.locator, "add")
        return written.entry_id

    def edit(self, entry_id: str, text: str) -> None:
        self.notebook.change(self.at, entry_id, lambda entry: Draft(entry.inline, {"Content": text}))
        self.travel.observe(self.at, "edit")

    def remove(self, entry_id: str) -> None:
        self.notebook.remove(self.at, [entry_id])
        self.travel.observe(self.at, "forget")

    def texts(self) -> dict[str, str]:
        return {entry.id: entry.sections["Content"] for entry in self.notebook.read(self.at).entries}


@pytest.fixture
def world():
    return World()


def test_every_change_is_an_event_with_hashes_and_cause(world):
    """Added, changed, removed: before and after by hash, the cause, and nothing for entries that stayed."""
    one = world.add("Tea at noon.")
    two = world.add("Rain in May.")
    world.edit(one, "Coffee at noon.")
    world.remove(two)
    told = [(change.entry, change.action, change.cause) for change in reversed(world.travel.log())]
    assert told == [
        (one, "added", "add"),
        (two, "added", "add"),
        (one, "changed", "edit"),
        (two, "removed", "forget"),
    ]
    assert [change.action for change in world.travel.log(one)] == ["changed", "added"]
    changed = world.travel.log(one)[0]
    assert changed.before == world.travel.log(one)[1].after


def test_observing_twice_adds_nothing(world):
    """Idempotent: a repeated or late observation records no change that did not happen."""
    world.add("Tea.")
    before = world.journals.size(world.space.child("journal/history/changes.jsonl"))
    for _ in range(3):
        assert world.travel.observe(world.at) == []
    assert world.open().observe(world.at) == [], "a new process knows what was seen"
    assert world.journals.size(world.space.child("journal/history/changes.jsonl")) == before


def test_a_checkpoint_can_be_compared_and_restored_and_the_restore_undone(world):
    """diff names what changed since; restore brings it back; restoring the later checkpoint undoes that."""
    one, two = world.add("Tea."), world.add("Rain.")
    first = world.travel.checkpoint("before the edits")
    world.edit(one, "Coffee.")
    world.remove(two)
    three = world.add("Snow.")
    second = world.travel.checkpoint()
    found = {item["entry"]: item["action"] for item in world.travel.diff(first.id)}
    assert found == {one: "changed", two: "removed", three: "added"}
    assert "-Tea." in next(item for item in world.travel.diff(first.id) if item["entry"] == one)["diff"]

    world.travel.restore(first.id)
    assert world.texts() == {one: "Tea.", two: "Rain."}
    assert world.travel.diff(first.id) == []
    world.travel.restore(second.id)
    assert world.texts() == {one: "Coffee.", three: "Snow."}


def test_one_change_can_be_undone(world):
    """`restore ent-...` puts one entry back to before that change, and leaves the others."""
    one, two = world.add("Tea."), world.add("Rain.")
    world.edit(one, "Coffee.")
    world.edit(two, "Sun.")
    world.travel.restore(world.travel.log(one)[0].id)
    assert world.texts() == {one: "Tea.", two: "Sun."}


def test_a_removed_file_comes_back_with_its_head(world):
    """When the whole note is gone, restoring makes it again, frontmatter included."""
    one = world.add("Tea.")
    made = world.travel.checkpoint()
    world.notebook.drop(world.at)
    world.travel.observe(world.at, "dropped")
    world.travel.restore(made.id)
    assert world.texts() == {one: "Tea."}
    assert world.notebook.text(world.at).startswith("---\n")
    assert world.add("Next.") != one, "the id is not given twice"


def test_reading_as_of_a_moment(world):
    """as_of takes a checkpoint or a time with a zone; the texts are those of then."""
    one = world.add("Tea.")
    then = world.clock.now()
    world.clock.pass_days(1)
    world.edit(one, "Coffee.")
    [text] = world.travel.as_of(then).values()
    assert "Tea." in text
    [text] = world.travel.as_of(world.clock.now()).values()
    assert "Coffee." in text
    for bad in ("yesterday", "2026-13-01"):
        with pytest.raises(Invalid, match="neither a checkpoint"):
            world.travel.as_of(bad)
    with pytest.raises(NotFound, match="chk-000009"):
        world.travel.as_of("chk-000009")


def test_purging_takes_the_words_out_for_good(world):
    """forget: no text of the entry stays in the history, another entry's equal text does; the change stays as a bare line."""
    one, two = world.add("My secret is blue."), world.add("Rain.")
    world.edit(one, "My secret is green.")
    world.remove(one)
    assert world.travel.purge(entries=[one]) == 2
    stored = "\n".join(world.journals.read(world.space.child("journal/history/texts.jsonl")).lines)
    assert "secret" not in stored
    assert "Rain." in stored
    assert [change.action for change in world.travel.log(one)] == ["removed", "changed", "added"]
    with pytest.raises(NotFound, match="purged"):
        world.travel.restore(world.travel.log(one)[0].id)
    assert world.travel.purge(clean=lambda _, text: None if "Rain" in text else text) == 1
    assert two in world.texts()


def test_documents_without_entries_are_one_entry(world):
    """A profile is a document: it is kept, compared and restored whole."""
    at = Locator("default_app/default_project/users/ann/user.md")
    world.notebook.rewrite(at, lambda _: "---\ntype: profile\n---\nLikes tea.\n")
    world.travel.observe(at)
    made = world.travel.checkpoint()
    world.notebook.rewrite(at, lambda _: "---\ntype: profile\n---\nLikes coffee.\n")
    world.travel.observe(at)
    world.travel.restore(made.id)
    assert "tea" in world.notebook.text(at)


def test_another_space_is_refused(world):
    """A note of another space cannot enter this history."""
    with pytest.raises(Invalid, match="not below"):
        world.travel.observe(Locator("other_app/p/users/ann/user.md"))


def test_torn_lines_do_not_stop_the_history(world):
    """A line that is no JSON, or not ours, is passed over."""
    one = world.add("Tea.")
    at = world.space.child("journal/history/changes.jsonl")
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
    assert len(world.travel.log(limit=1000)) == 61
    world.storage.remove(world.at)
    world.travel.observe(world.at, "removed by hand")
    assert world.travel._now == {}
    assert world.travel.log(limit=1)[0].action == "removed"
    assert len(world.open().log(limit=1000)) == 62


def test_a_note_deleted_by_hand_is_recorded_as_removed(world):
    """E69: a deletion is an edit like others, though a file that is gone has no time to be found by."""
    observer = Observer(world.storage, lambda _space: world.travel, lambda _after: [])
    entry = world.add("a text that a person deletes")
    observer.of(Space())
    assert observer.look_around() == 0
    world.storage.remove(world.at)
    assert observer.look_around() == 2, "its entry and the head of its file"
    assert [(change.entry, change.action) for change in world.travel.log(limit=1)] == [(entry, "removed")]
    assert world.travel.as_of(world.clock.now()) == {}
    assert observer.look_around() == 0
