"""Conflict copies: recognised by name, merged entry by entry, nothing lost and nothing doubled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.notes.conflicts import (
    conflict_copies,
    conflict_copy,
    merge_conflict_copy,
    merged,
)
from cairn.notes.kinds import KINDS, Place, place_of
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator
from cairn.types import Scope, Space
from tests.copies import merge_conflict_copies

ALICE = Scope(Space(), "user", "alice")
DAY = "2026-03-02"
NOTE = KINDS["episode"].locator(ALICE, DAY)
PLACE = Place(ALICE, KINDS["episode"], day=DAY)


@pytest.fixture
def storage():
    return InMemoryBackend()


@pytest.fixture
def notebook(storage):
    return Notebook(storage, InMemoryLocks())


def add(notebook, *texts):
    return [
        w.entry_id
        for w in notebook.append("episode", ALICE, DAY, [Draft({"n": t}, {"Content": t}) for t in texts])
    ]


def note_of(*texts):
    """A note as another machine would have written it."""
    storage = InMemoryBackend()
    add(Notebook(storage, InMemoryLocks()), *texts)
    return storage.read(NOTE)


def copy_beside(storage, text, name="episode-2026-03-02 (Ann's conflicted copy 2026-03-03).md"):
    place = NOTE.parent.child(name)
    storage.write(place, text)
    return conflict_copy(place)


def contents(text):
    return sorted(entry.sections["Content"] for entry in PLACE.kind.parse(text).entries)


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("episode-2026-03-02 (Ann's conflicted copy 2026-03-03).md", "Dropbox"),
        ("episode-2026-03-02 (ann-laptop's conflicted copy 2026-03-03).md", "Dropbox"),
        ("episode-2026-03-02 (conflicted copy 2026-03-03 101500).md", "Dropbox"),
        ("episode-2026-03-02 (Ann's conflicted copy 2026-03-03) (1).md", "Dropbox"),
        ("episode-2026-03-02 2.md", "iCloud"),
        ("episode-2026-03-02 13.md", "iCloud"),
        ("episode-2026-03-02-DESKTOP-7F3KQ.md", "OneDrive"),
        ("episode-2026-03-02-annslaptop.md", "OneDrive"),
        ("episode-2026-03-02-ANN-2.md", "OneDrive"),
        ("episode-2026-03-02.sync-conflict-20260303-101500-ABCDEFG.md", "Syncthing"),
        ("episode-2026-03-02.sync-conflict-20260303-101500.md", "Syncthing"),
        ("episode-2026-03-02 (1).md", "Google Drive"),
        ("episode-2026-03-02_conflict-20260303-101500.md", "ownCloud"),
        ("episode-2026-03-02.Conflict.md", "ownCloud"),
        ("episode-2026-03-02_laptop_May-20-1015-2026_Conflict.md", "Synology"),
        ("episode-2026-03-02 [conflicted].md", "a sync program"),
        ("episode-2026-03-02 (# Name clash 2026-03-03 ab #).md", "a sync program"),
        ("episode-2026-03-02 (Kopie in Konflikt von Ann 2026-03-03).md", "a sync program"),
        ("episode-2026-03-02 (Ann 的冲突副本 2026-03-03).md", "a sync program"),
        ("episode-2026-03-02.md.conflict1", "ownCloud"),
        ("episode-2026-03-02 (Ann Smith).md", "Box"),
        ("episode-2026-03-02 - Copy.md", "a copy"),
        ("episode-2026-03-02 copy 2.md", "a copy"),
    ],
)
def test_names_of_sync_programs_are_recognised(name, program):
    """S30: each program's name leads to the daily note it is a copy of."""
    found = conflict_copy(NOTE.parent.child(name))

    assert found is not None
    assert (found.program, found.original, found.is_daily) == (program, NOTE, True)
    assert found.place == place_of(NOTE)


@pytest.mark.parametrize(
    "key",
    [
        NOTE.key,
        "default_app/default_project/users/alice/episodes/plan 2.md",
        "default_app/default_project/users/alice/episodes/notes (1).md",
        "default_app/default_project/users/alice/episodes/episode-2026-13-40 2.md",
        "default_app/default_project/users/alice/episodes/episode-2026-03.md",
        "default_app/default_project/users/alice/user-guide.md",
        "default_app/default_project/users/alice/user.md",
        "default_app/default_project/agents/bot/skills/skill_x-2/SKILL.md",
        "default_app/default_project/users/alice-2/user.md",
        "default_app/default_project/knowledge/report-2026-03-02.md",
        "README.md",
        "cairn.toml",
        "no-ending",
    ],
)
def test_ordinary_names_are_not_misread(key):
    """S30: a name is a copy only where taking the addition away leaves a note's name."""
    assert conflict_copy(Locator(key)) is None


def test_documents_and_other_files_are_recognised_but_left(storage, notebook):
    """S16: the whole file is the unit there; a person decides. They are reported, not merged."""
    user = Locator("default_app/default_project/users/alice/user.md")
    copies = [
        user.parent.child("user-DESKTOP-7F3.md"),
        user.parent.child("user 2.md"),
        Locator("default_app/default_project/sessions/s.sync-conflict-20260303-101500-ABCDEFG.jsonl"),
    ]
    for place in (user, *copies):
        storage.write(place, "text")

    found = {copy.locator: copy for copy in conflict_copies(storage)}
    assert set(found) == set(copies)
    for merge in merge_conflict_copies(notebook, storage):
        assert not merge.removed
        assert merge.leftovers
    assert all(storage.exists(place) for place in copies)


def test_a_weak_name_needs_its_original(storage):
    """S30: `user 2.md` beside no `user.md` is an ordinary file."""
    storage.write(Locator("default_app/default_project/users/alice/user 2.md"), "text")
    assert list(conflict_copies(storage)) == []


def test_the_union_by_id_is_kept(storage, notebook):
    """S16, S30: entries only in the copy come over as they are; those on both sides stay once."""
    storage.write(NOTE, note_of("one", "two"))
    copy = copy_beside(storage, note_of("one", "two", "three", "four"))
    merge = merge_conflict_copy(notebook, storage, copy)

    assert (merge.same, len(merge.added), merge.doubled, merge.leftovers) == (2, 2, (), ())
    assert merge.removed
    assert not storage.exists(copy.locator)
    assert contents(storage.read(NOTE)) == ["four", "one", "three", "two"]
    assert notebook.read(NOTE).problems == ()
    assert add(notebook, "five") == ["ep_20260302_00000005"]


def test_one_id_with_two_texts_keeps_both_and_says_so(storage, notebook):
    """S30: the copy's text goes to the end under a new id that names the old one."""
    storage.write(NOTE, note_of("shared", "ours"))
    copy = copy_beside(storage, note_of("shared", "theirs", "only theirs"))
    before = storage.read(NOTE)
    merge = merge_conflict_copy(notebook, storage, copy)

    assert merge.doubled == (("ep_20260302_00000002", "ep_20260302_00000004"),)
    assert merge.added == ("ep_20260302_00000003",)
    note = notebook.read(NOTE)
    assert note.entry("ep_20260302_00000002").sections == {"Content": "ours"}
    other = note.entry("ep_20260302_00000004")
    assert other.sections == {"Content": "theirs"}
    assert other.inline == {"conflict_of": "ep_20260302_00000002", "n": "theirs"}
    assert note.frontmatter["entry_count"] == 4
    assert note.problems == ()
    assert note.body.startswith(before.split("---\n", 2)[2]), "our entries keep every byte"


def test_a_merge_may_be_repeated(storage, notebook):
    """P1: a merge broken off before the copy was removed doubles nothing when it runs again."""
    theirs = note_of("shared", "theirs", "only theirs")
    storage.write(NOTE, note_of("shared", "ours"))
    merge_conflict_copy(notebook, storage, copy_beside(storage, theirs))
    once = storage.read(NOTE)
    again = merge_conflict_copy(notebook, storage, copy_beside(storage, theirs))

    assert storage.read(NOTE) == once
    assert (again.added, again.doubled, again.same, again.lsn) == ((), (), 3, 0)
    assert again.removed


def test_two_machines_that_merge_each_other_agree(storage):
    """S30: merged both ways round, both notes say the same things, and merging those changes nothing."""
    ours, theirs = note_of("shared", "ours"), note_of("shared", "theirs", "more")
    here, there = merged(PLACE, ours, theirs).text, merged(PLACE, theirs, ours).text

    assert contents(here) == contents(there) == ["more", "ours", "shared", "theirs"]
    assert merged(PLACE, here, there).text == here
    assert merged(PLACE, there, here).text == there


def test_what_is_not_an_entry_stays_in_the_copy(storage, notebook):
    """Tenet 5: a person's lines, other frontmatter and damaged entries are reported, and the copy is kept."""
    storage.write(NOTE, note_of("one"))
    theirs = note_of("one", "two")
    damaged = theirs.replace("<!-- /entry:ep_20260302_00000002 -->", "")
    for text, trouble in (
        (theirs + "\nA line of my own.\n", "between entries"),
        (theirs.replace("schema_version: 1", "schema_version: 1\nmood: good"), "mood"),
        (damaged, "not closed"),
        (theirs + theirs.partition("<!-- ")[1] + theirs.partition("<!-- ")[2], "twice"),
    ):
        copy = copy_beside(storage, text)
        merge = merge_conflict_copy(notebook, storage, copy)
        assert any(trouble in leftover for leftover in merge.leftovers), trouble
        assert not merge.removed
        assert storage.read(copy.locator) == text
    assert contents(storage.read(NOTE)) == ["one", "two"]


def test_a_copy_without_original_becomes_it(storage, notebook):
    """Without loss: where the note is gone the copy takes its place."""
    theirs = note_of("one", "two")
    merge = merge_conflict_copy(notebook, storage, copy_beside(storage, theirs))
    assert merge.removed
    assert storage.read(NOTE) == theirs


def test_a_copy_written_during_the_merge_is_kept(storage, notebook):
    """P4: a newer state of the copy, arrived while we merged the older, is not removed."""
    storage.write(NOTE, note_of("one"))
    copy = copy_beside(storage, note_of("one", "two"))

    class Late(Notebook):
        def rewrite(self, locator, edit):
            lsn = super().rewrite(locator, edit)
            storage.write(copy.locator, note_of("one", "two", "three"))
            return lsn

    assert not merge_conflict_copy(Late(storage, InMemoryLocks()), storage, copy).removed
    assert merge_conflict_copy(notebook, storage, copy).added == ("ep_20260302_00000003",)
    assert contents(storage.read(NOTE)) == ["one", "three", "two"]


def test_an_unreadable_copy_stops_nothing(tmp_path, notebook):
    """P6: a copy that is not text is reported; the others are merged."""
    from cairn.engines.files import DeviceLocalBackend

    storage = DeviceLocalBackend(tmp_path)
    notebook = Notebook(storage, InMemoryLocks())
    storage.write(NOTE, note_of("one"))
    copy_beside(storage, note_of("one", "two"), "episode-2026-03-02 2.md")
    bad = copy_beside(storage, "x", "episode-2026-03-02 3.md")
    (tmp_path / bad.locator.key).write_bytes(b"\xff\xfe")

    reports = {merge.copy.locator: merge for merge in merge_conflict_copies(notebook, storage)}
    assert "UTF-8" in reports[bad.locator].leftovers[0]
    assert contents(storage.read(NOTE)) == ["one", "two"]
    assert storage.exists(bad.locator)


def test_windows_line_ends_are_kept(storage, notebook):
    """P3: a note with CRLF stays one; the copy's entry is readable in it."""
    storage.write(NOTE, note_of("one", "ours").replace("\n", "\r\n"))
    merge = merge_conflict_copy(notebook, storage, copy_beside(storage, note_of("one", "theirs")))
    assert merge.same == 1
    assert contents(storage.read(NOTE)) == ["one", "ours", "theirs"]


TEXTS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40),
    min_size=1,
    max_size=5,
)


@given(TEXTS, TEXTS, TEXTS)
def test_any_two_notes_merge_without_loss(shared, ours, theirs):
    """P3: for any texts, every entry of both sides is in the merge once, under different ids."""
    left, right = note_of(*shared, *ours), note_of(*shared, *theirs)
    result = merged(PLACE, left, right)
    note = PLACE.kind.parse(result.text)
    born = [(entry.inline.get("conflict_of", entry.id), entry.sections["Content"]) for entry in note.entries]
    expected = {
        (entry.id, entry.sections["Content"])
        for text in (left, right)
        for entry in PLACE.kind.parse(text).entries
    }

    assert not note.damaged
    assert sorted(born) == sorted(expected)
    assert len({entry.id for entry in note.entries}) == len(note.entries)
    assert merged(PLACE, result.text, right).text == result.text
