"""The one writer of notes: ids, group commit, compare-and-swap, and every other byte left alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cairn.engines import tree
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.engines.locks import FileLocks
from cairn.errors import Conflict, Invalid, NotFound, Unavailable
from cairn.notes.format import EntryId, render_entry
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator, StorageBackend, content_hash
from cairn.types import Entry, Scope, Space
from tests.waiting import LONG, until

ALICE = Scope(Space(), "user", "alice")
DAY = "2026-06-01"
NOTE = KINDS["episode"].locator(ALICE, DAY)


class FixedClock:
    def now(self) -> datetime:
        return datetime(2026, 6, 1, 9, 30, tzinfo=UTC)


class Book:
    """A notebook on in-memory storage, with what it announced."""

    def __init__(self, storage: StorageBackend | None = None) -> None:
        self.storage = storage or InMemoryBackend()
        self.changes: list[tuple[str, str]] = []
        self.notebook = Notebook(
            self.storage, InMemoryLocks(), clock=FixedClock(), on_change=self._noted, lock_seconds=5
        )

    def _noted(self, changes: Sequence[tuple[Locator, str]]) -> int:
        self.changes += [(locator.key, change) for locator, change in changes]
        return len(self.changes)

    def add(self, *texts: str, day: str = DAY) -> list[str]:
        drafts = [Draft({"session_id": "s1"}, {"Content": text}) for text in texts]
        return [written.entry_id for written in self.notebook.append("episode", ALICE, day, drafts)]

    def text(self) -> str:
        return self.storage.read(NOTE)

    def put(self, text: str) -> None:
        self.storage.write(NOTE, text)


@pytest.fixture
def book() -> Book:
    return Book()


def test_the_first_append_makes_a_whole_note(book: Book):
    """E33 E44 E45 E50 E51 E59: head, markers, heading, fields and section, exactly."""
    book.add("Hello.")

    assert book.text() == (
        "---\nid: episode_log_alice_2026-06-01\ntype: episode_daily\nfile_type: episode_daily\n"
        "schema_version: 1\nuser_id: alice\ntrack: user\ndate: '2026-06-01'\nentry_count: 1\n"
        "last_appended_at: '2026-06-01T09:30:00+00:00'\n---\n"
        "<!-- entry:ep_20260601_00000001 -->\n## ep_20260601_00000001\n\n**session_id**: s1\n\n"
        "### Content\nHello.\n<!-- /entry:ep_20260601_00000001 -->\n"
    )
    assert book.changes == [(NOTE.key, "added")]


def test_appended_entries_read_back(book: Book):
    """E59 E94: what was written is what is read, in order, with the count kept."""
    assert book.add("one", "two") == ["ep_20260601_00000001", "ep_20260601_00000002"]
    assert book.add("three") == ["ep_20260601_00000003"]

    note = book.notebook.read(NOTE)
    assert [e.sections["Content"] for e in note.entries] == ["one", "two", "three"]
    assert note.frontmatter["entry_count"] == 3
    assert note.problems == ()
    assert book.changes == [(NOTE.key, "added"), (NOTE.key, "modified")]


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        ("entry_count: 1\n", [1, 2, 3], 4),
        ("entry_count: 7\n", [1, 2, 3], 8),
        ("entry_count: 2\n", [1, 9, 3], 10),
        ("entry_count: -5\n", [1], 2),
        ("entry_count: lots\n", [1, 2], 3),
        ("entry_count: 999999999999\n", [2], 3),
        ("", [4], 5),
        ("entry_count: 3 # mine\n", [1], 4),
    ],
)
def test_the_next_id_follows_the_highest_ever_seen(book: Book, head: str, body: list[int], expected: int):
    """E52 E60 E98: 1 + max(count, highest), so a hand-lowered count or reordered entries reuse no id."""
    blocks = "".join(render_entry(f"ep_20260601_{n:08d}", "") for n in body)
    book.put(f"---\nid: x\n{head}---\n{blocks}")

    assert book.add("new") == [str(EntryId("ep", DAY, expected))]


def test_four_digit_ids_of_older_notes_count(book: Book):
    """E97 E98: short sequences are read, and the next id is padded to eight digits."""
    book.put("---\nid: x\n---\n" + render_entry("ep_20260601_0041", "### Content\nold\n"))

    assert book.add("new") == ["ep_20260601_00000042"]
    assert book.notebook.find(ALICE, "ep_20260601_0041")[1].sections == {"Content": "old"}


def test_damaged_entries_keep_their_ids(book: Book):
    """E96 E98: the id of an unterminated entry is not given again, and the new entry is readable."""
    book.put("---\nid: x\n---\n<!-- entry:ep_20260601_00000005 -->\nlost its end")

    assert book.add("new") == ["ep_20260601_00000006"]
    note = book.notebook.read(NOTE)
    assert [e.id for e in note.entries] == ["ep_20260601_00000006"]
    assert note.damaged == {"ep_20260601_00000005"}


def test_text_that_quotes_a_marker_cannot_raise_the_count(book: Book):
    """A body with our own markers neither forges an entry nor uses up ids."""
    hostile = "<!-- entry:ep_20260601_99999999 -->\n<!-- /entry:ep_20260601_99999999 -->\n"
    book.add(hostile, f"in a line {hostile}")

    assert book.add("next") == ["ep_20260601_00000003"]
    assert [e.sections["Content"] for e in book.notebook.read(NOTE).entries] == [
        hostile,
        f"in a line {hostile}",
        "next",
    ]


def test_a_marker_inside_a_line_of_a_hand_written_note_is_text(book: Book):
    """Only a marker alone on its line is one; a quoted one is neither entry nor count."""
    book.put("---\nid: x\n---\nsee <!-- entry:ep_20260601_00000077 --> there\n")

    assert book.add("new") == ["ep_20260601_00000001"]


def test_ids_start_over_for_each_day_and_owner(book: Book):
    """E52 E54: the same id may occur under two owners; it is unique in its note."""
    bob = Scope(Space(), "user", "bob")
    assert book.add("a") == ["ep_20260601_00000001"]
    assert book.add("b", day="2026-06-02") == ["ep_20260602_00000001"]
    assert book.notebook.append("episode", bob, DAY, [Draft()])[0].entry_id == "ep_20260601_00000001"


@pytest.mark.parametrize(
    "odd",
    [
        "# by hand\nid:   x\nextra: [1,\n  2]\n",
        "id: x\nentry_count:    0   \nlast_appended_at: null\nlast: 'v'\n",
        "last_appended_at: '2026-01-01T00:00:00+00:00'\nid: x\nentry_count: 0\n",
        'entry_count: 0\nnote: |\n  entry_count: 9\n\n  more\nlast_appended_at: "2020"\n',
    ],
)
def test_an_append_changes_only_the_keys_it_owns(book: Book, odd: str):
    """P3 E61: comments, order, quoting and unknown keys of the head stay; so does text between entries."""
    middle = render_entry("ep_20260601_00000001", "### Content\none\n") + "\nA note by hand.\n\n\n"
    book.put(f"---\n{odd}---\n{middle}")
    before = book.notebook.read(NOTE).frontmatter

    book.add("two")

    note = book.notebook.read(NOTE)
    assert note.text.endswith(f"{middle}{note.text[note.entries[1].start : note.entries[1].end]}")
    assert note.frontmatter == {**before, "entry_count": 2, "last_appended_at": "2026-06-01T09:30:00+00:00"}
    owned = ("entry_count:", "last_appended_at:")
    assert [x for x in odd.splitlines() if not x.startswith(owned)] == [
        x for x in note.text[note.head.start : note.head.end].splitlines() if not x.startswith(owned)
    ]


@pytest.mark.parametrize(
    "broken", ["---\nid: [\n---\n", "---\nid: x\n", "---\n- a\n---\n", "---\na: &x 1\n---\n"]
)
def test_a_broken_head_is_left_alone_and_the_entry_is_written(book: Book, broken: str):
    """A head that is not YAML keeps every byte; the new entry is readable below it."""
    book.put(broken)
    book.add("still works")

    assert book.text().startswith(broken)
    assert [e.sections["Content"] for e in book.notebook.read(NOTE).entries] == ["still works"]


def test_a_note_without_head_gets_one(book: Book):
    """E44: a note a person began by hand gains its frontmatter with the first append."""
    book.put("Just words.\n")
    book.add("entry")

    assert book.text().startswith("---\nid: episode_log_alice_2026-06-01\n")
    assert "\n---\nJust words.\n<!-- entry:" in book.text()
    assert book.notebook.read(NOTE).problems == ()


def test_a_byte_order_mark_and_windows_line_ends_stay(book: Book):
    """P3: BOM and CRLF survive an append, and the new entry follows the file's line ends."""
    old = "\ufeff---\r\nid: x\r\nentry_count: 1\r\nlast_appended_at: null\r\n---\r\n" + render_entry(
        "ep_20260601_00000001", "### Content\none\ntwo\n", "\r\n"
    )
    book.put(old)
    book.add("three\nfour", "keeps\rits own")

    text = book.text()
    assert text.startswith("\ufeff---\r\nid: x\r\nentry_count: 3\r\n")
    assert old.partition("---\r\n<!--")[2] in text
    note = book.notebook.read(NOTE)
    assert [e.sections["Content"] for e in note.entries] == ["one\ntwo", "three\nfour", "keeps\rits own"]
    assert {p.code for p in note.problems} >= {"bom", "crlf"}


def test_a_file_without_a_last_line_end_is_not_glued_to(book: Book):
    """An entry starts on a line of its own even where an editor left no final line end."""
    book.put("---\nid: x\n---\nlast words")
    book.add("new")

    assert "last words\n<!-- entry:" in book.text()


@pytest.mark.parametrize("empty", ["", "\ufeff"])
def test_an_empty_file_becomes_a_note(book: Book, empty: str):
    """A file somebody touched is filled like a new one."""
    book.put(empty)
    book.add("x")

    assert book.text().startswith(f"{empty}---\nid: episode_log_alice")


def test_ten_megabytes_of_frontmatter_are_refused_and_untouched(book: Book):
    """A head beyond the cap is a named error; nothing is written."""
    text = "---\n" + "".join(f"k{n}: {'v' * 90}\n" for n in range(100_000)) + "---\n"
    book.put(text)

    with pytest.raises(Invalid, match="frontmatter"):
        book.add("x")
    assert book.text() == text
    assert book.changes == []
    assert "frontmatter-size" in [p.code for p in book.notebook.read(NOTE).problems]


@pytest.mark.parametrize(
    "draft",
    [
        Draft({}, {"Content": "a\x00b"}),
        Draft({}, {"Content": "\ud800"}),
        Draft({"k": "\x00"}, {}),
        Draft({"k": "\udfff"}, {}),
        Draft({"bad key": "v"}, {}),
        Draft({"**k**: x\n**y": "v"}, {}),
        Draft({}, {"": "x"}),
        Draft({}, {"A\n### B": "x"}),
        Draft({}, {" A": "x"}),
        Draft({}, {"A <!-- entry:x -->": "x"}),
        Draft({"k": {"a": 1}}, {}),
        Draft({"k": datetime(2026, 1, 1)}, {}),  # noqa: DTZ001 - the point of the case
        Draft({}, {"Content": 3}),  # type: ignore[dict-item]
    ],
)
def test_what_no_note_can_hold_is_refused_whole(book: Book, draft: Draft):
    """P6: one bad draft refuses its call by name, and nothing of the call is written."""
    with pytest.raises(Invalid):
        book.notebook.append("episode", ALICE, DAY, [Draft({}, {"Content": "good"}), draft])

    assert not book.storage.exists(NOTE)
    assert book.changes == []


def test_only_daily_kinds_are_appended_to(book: Book):
    """E33 E35: a profile is rewritten, never appended to; an unknown kind is named."""
    for kind in ("profile", "agent_skill", "nonsense"):
        with pytest.raises(Invalid):
            book.notebook.append(kind, ALICE, DAY, [Draft()])
    assert book.notebook.append("episode", ALICE, DAY, []) == []


# --- once ---------------------------------------------------------------------------------------------


def facts(*parents: str) -> list[Draft]:
    return [Draft({"parent_id": parent}, {"Fact": f"about {parent}"}) for parent in parents]


def test_the_same_source_is_written_once(book: Book):
    """A replay with the same key values finds the entries of the first run, in order."""
    first = book.notebook.append(
        "atomic_fact", ALICE, DAY, facts("ep_1", "ep_1", "ep_2"), once_by=["parent_id"]
    )
    again = book.notebook.append(
        "atomic_fact", ALICE, DAY, facts("ep_1", "ep_1", "ep_2"), once_by=["parent_id"]
    )

    assert [w.created for w in first] == [True, True, True]
    assert [w.entry_id for w in again] == [w.entry_id for w in first]
    assert not any(w.created or w.lsn for w in again)
    assert len(book.changes) == 1


def test_a_partly_known_call_writes_the_rest(book: Book):
    """Only drafts whose key values are new are written; values are compared whole, not by their beginning."""
    book.notebook.append("atomic_fact", ALICE, DAY, facts("ep_10"), once_by=["parent_id"])
    written = book.notebook.append("atomic_fact", ALICE, DAY, facts("ep_1", "ep_10"), once_by=["parent_id"])

    assert [w.created for w in written] == [True, False]


def test_key_values_of_any_text_are_recognised(book: Book):
    """Escaped values compare by what they say."""
    for value in ("a\nb", " x ", '\\"q"', "<!-- entry:x -->", "", "[a, b]"):
        first, second = (
            book.notebook.append("atomic_fact", ALICE, DAY, facts(value), once_by=["parent_id"])[0]
            for _ in range(2)
        )
        assert (first.created, second.created) == (True, False)
        assert first.entry_id == second.entry_id


def test_once_by_a_missing_field_is_refused(book: Book):
    """A draft without the key cannot be recognised later, so it is refused now."""
    with pytest.raises(Invalid, match="once_by"):
        book.notebook.append("atomic_fact", ALICE, DAY, [Draft()], once_by=["parent_id"])


def test_racing_replays_write_once():
    """Eight threads with one source: one entry, eight answers with its id."""
    book = Book()
    answers: list[str] = []

    def work() -> None:
        answers.append(
            book.notebook.append("atomic_fact", ALICE, DAY, facts("ep_1"), once_by=["parent_id"])[0].entry_id
        )

    run_together(work, 8)
    assert set(answers) == {"af_20260601_00000001"}
    assert len(book.notebook.read(KINDS["atomic_fact"].locator(ALICE, DAY)).entries) == 1


# --- change and remove --------------------------------------------------------------------------------


def test_a_changed_entry_keeps_its_id_and_place(book: Book):
    """E57 C2: in place, and every byte outside the entry stays (P3)."""
    first, second, third = book.add("one", "two", "three")
    before = book.text()
    written = book.notebook.change(NOTE, second, lambda e: Draft.of(e, status="archived"))

    note = book.notebook.read(NOTE)
    assert (written.entry_id, written.created) == (second, False)
    assert [e.id for e in note.entries] == [first, second, third]
    assert note.entry(second).inline == {"session_id": "s1", "status": "archived"}
    assert book.text().replace("**status**: archived\n", "") == before
    assert book.changes[-1] == (NOTE.key, "modified")


def test_many_entries_change_in_one_write(book: Book):
    """C6: a batch of transitions rewrites each file once."""
    ids = book.add(*"abcdef")
    book.notebook.change_many(
        NOTE, {i: lambda e: Draft(e.inline, {"Content": e.sections["Content"].upper()}) for i in ids[::2]}
    )

    assert [e.sections["Content"] for e in book.notebook.read(NOTE).entries] == ["A", "b", "C", "d", "E", "f"]
    assert len(book.changes) == 2


def test_a_change_of_nothing_writes_nothing(book: Book):
    """An edit that returns what is there leaves the file and the queue alone."""
    (entry,) = book.add("one")
    written = book.notebook.change(NOTE, entry, Draft.of)

    assert written.lsn == 0
    assert len(book.changes) == 1


def test_one_bad_edit_leaves_the_note_as_it_was(book: Book):
    """A batch with an unknown entry or an unwritable draft changes nothing at all."""
    (entry,) = book.add("one")
    before = book.text()

    with pytest.raises(NotFound):
        book.notebook.change_many(NOTE, {entry: lambda e: Draft(), "ep_20260601_00000009": Draft.of})
    with pytest.raises(Invalid):
        book.notebook.change(NOTE, entry, lambda e: Draft({}, {"Content": "\x00"}))
    with pytest.raises(NotFound):
        book.notebook.change(KINDS["episode"].locator(ALICE, "2020-01-01"), entry, Draft.of)
    assert book.text() == before


def test_a_changed_entry_keeps_its_line_ends(book: Book):
    """P3: a block with Windows line ends stays one, and a last line without end stays without."""
    block = render_entry("ep_20260601_00000001", "### Content\none\n", "\r\n")
    for tail in ("\r\n", ""):
        book.put("---\r\nid: x\r\n---\r\n" + block.removesuffix("\r\n") + tail)
        book.notebook.change(NOTE, "ep_20260601_00000001", lambda e: Draft({}, {"Content": "two"}))
        assert (
            book.text() == "---\r\nid: x\r\n---\r\n" + block.replace("one", "two").removesuffix("\r\n") + tail
        )


def test_a_removed_entry_is_gone_and_its_id_is_not_given_again(book: Book):
    """E98 C12: ids are never reused, also when the last entry goes."""
    first, second = book.add("one", "two")
    book.notebook.remove(NOTE, [second])

    note = book.notebook.read(NOTE)
    assert [e.id for e in note.entries] == [first]
    assert note.frontmatter["entry_count"] == 2
    assert book.add("three") == ["ep_20260601_00000003"]


def test_removing_from_a_note_with_a_lowered_count_raises_it(book: Book):
    """E98: the count then remembers the id that was taken out."""
    book.put("---\nid: x\nentry_count: 1\n---\n" + render_entry("ep_20260601_00000006", "") + "kept\n")
    book.notebook.remove(NOTE, ["ep_20260601_00000006"])

    assert book.text() == "---\nid: x\nentry_count: 6\n---\nkept\n"
    assert book.add("x") == ["ep_20260601_00000007"]


def test_removing_what_is_not_there_changes_nothing(book: Book):
    """A missing id is named; entries named beside it stay."""
    (entry,) = book.add("one")
    before = book.text()
    with pytest.raises(NotFound, match="ep_20260601_00000009"):
        book.notebook.remove(NOTE, [entry, "ep_20260601_00000009"])
    assert book.text() == before


# --- documents ----------------------------------------------------------------------------------------


def test_a_document_is_made_and_rewritten(book: Book):
    """E34 E35 E39: single files and skills are overwritten whole; None leaves them."""
    kind = KINDS["profile"]
    locator = kind.locator(ALICE)
    book.notebook.rewrite(locator, lambda old: kind.document(ALICE, {"summary": "tea"}, "Likes tea."))
    assert book.notebook.rewrite(locator, lambda old: None) == 0
    book.notebook.rewrite(locator, lambda old: (old or "").replace("tea", "coffee"))

    note = book.notebook.read(locator)
    assert (note.frontmatter["summary"], note.body) == ("coffee", "Likes coffee.\n")
    assert [change for _, change in book.changes] == ["added", "modified"]


def test_a_rewrite_with_unwritable_text_is_refused(book: Book):
    """NUL and half a surrogate pair are named errors; nothing is written."""
    for text in ("a\x00", "\ud83d"):
        with pytest.raises(Invalid):
            book.notebook.rewrite(KINDS["profile"].locator(ALICE), lambda old, text=text: text)
    assert not book.changes


def test_frontmatter_is_updated_in_place(book: Book):
    """E119 P3: a map of deprecated entries comes into the head; everything else stays."""
    book.add("one")
    before = book.text()
    book.notebook.update_frontmatter(
        NOTE, {"deprecated_entries": {"ep_20260601_00000001": "ep_20260601_00000002"}}
    )
    added = "deprecated_entries:\n  ep_20260601_00000001: ep_20260601_00000002\n"
    assert book.text() == before.replace("+00:00'\n---", f"+00:00'\n{added}---")

    book.notebook.update_frontmatter(
        NOTE, lambda head: {"deprecated_entries": {**head["deprecated_entries"], "a": "b"}}
    )
    assert book.notebook.read(NOTE).frontmatter["deprecated_entries"] == {
        "ep_20260601_00000001": "ep_20260601_00000002",
        "a": "b",
    }
    book.notebook.update_frontmatter(NOTE, {"deprecated_entries": None})
    assert book.text() == before


def test_frontmatter_of_a_broken_head_is_not_touched(book: Book):
    """A head that cannot be read is for a person to mend."""
    for text in ("---\na: [\n---\n", "---\nnever closed\n", "---\na: *x\n---\n"):
        book.put(text)
        with pytest.raises(Invalid):
            book.notebook.update_frontmatter(NOTE, {"k": 1})
        assert book.text() == text


def test_a_dropped_file_is_announced(book: Book):
    """The whole note goes, and the queue hears of it; a second time there is nothing."""
    book.add("one")
    assert book.notebook.drop(NOTE) == 2
    assert book.changes[-1] == (NOTE.key, "deleted")
    with pytest.raises(NotFound):
        book.notebook.drop(NOTE)


# --- finding ------------------------------------------------------------------------------------------


def test_an_entry_is_found_by_owner_and_id(book: Book):
    """E54 E57: the pair of owner and id leads to the note and the entry."""
    book.add("one")
    locator, entry = book.notebook.find(ALICE, "ep_20260601_00000001")
    assert (locator, entry.sections["Content"]) == (NOTE, "one")
    for missing in ("ep_20260601_00000002", "ep_20260602_00000001"):
        with pytest.raises(NotFound):
            book.notebook.find(ALICE, missing)
    with pytest.raises(Invalid):
        book.notebook.find(ALICE, "../../etc/passwd")


def test_notes_are_listed_by_space_and_kind(book: Book):
    """E12: a listing never leaves its space, and shows notes alone."""
    shop = Scope(Space("shop", "web"), "agent", "bot")
    book.add("one")
    book.notebook.append("agent_case", shop, DAY, [Draft()])
    book.notebook.rewrite(KINDS["profile"].locator(ALICE), lambda old: "---\nid: p\n---\n")
    book.storage.write(Locator("default_app/default_project/users/alice/todo.txt"), "x")
    book.storage.write(Locator(".index/users/alice/user.md"), "x")

    assert len(list(book.notebook.notes())) == 3
    assert list(book.notebook.notes(Space())) == [NOTE, KINDS["profile"].locator(ALICE)]
    assert list(book.notebook.notes(kind="agent_case")) == [KINDS["agent_case"].locator(shop, DAY)]
    assert list(book.notebook.notes(Space("none", "here"))) == []


# --- together -----------------------------------------------------------------------------------------


def run_together(work: object, count: int) -> None:
    assert callable(work)
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert errors == []


def test_appends_that_arrive_together_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """E99: while one commit is under way the rest gather, and each caller gets ids of its own."""
    notebook = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks"))
    writing, batches, ids, commit = list(range(8)), [], [], Notebook._append_batch

    def commit_late(book, place, locator, batch):
        batches.append(len(batch))
        until(lambda: len(book.together.lines[locator.key].waiting) + len(batch) == len(writing))
        commit(book, place, locator, batch)

    monkeypatch.setattr(Notebook, "_append_batch", commit_late)

    def work() -> None:
        for _ in range(5):
            ids.extend(
                w.entry_id for w in notebook.append("episode", ALICE, DAY, [Draft({}, {"Content": "x"})] * 2)
            )
        writing.pop()

    run_together(work, 8)
    assert sorted(ids) == [str(EntryId("ep", DAY, n)) for n in range(1, 81)]
    assert [e.id for e in notebook.read(NOTE).entries] == sorted(ids)
    assert sum(batches) == 40
    assert len(batches) <= 10, (
        "whoever is not in one write is in the next: 40 calls of eight need ten at most"
    )


class FailingBackend(InMemoryBackend):
    """Fails its next writes with a given error."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        if self.errors:
            raise self.errors.pop(0)
        return super().write(locator, content, expect=expect)


def test_a_failed_write_fails_its_callers_and_the_next_succeeds():
    """P9: the error reaches the caller, the old state is intact, and no id is lost."""
    storage = FailingBackend()
    book = Book(storage)
    book.add("one")
    storage.errors = [Unavailable("disk full")]

    with pytest.raises(Unavailable, match="disk full"):
        book.add("two")
    assert [e.sections["Content"] for e in book.notebook.read(NOTE).entries] == ["one"]
    assert book.add("three") == ["ep_20260601_00000002"]


def test_a_hand_edit_between_read_and_write_is_kept(tmp_path: Path):
    """P4: the write is refused, the note read again, and both the edit and the entry are there."""
    for edit in ("rename", "in place"):
        root = tmp_path / edit
        storage = EditedBackend(root)
        book = Book(storage)
        book.add("one")
        storage.edit = edit
        storage.path = root / NOTE.key
        book.add("two")

        assert storage.edit == ""
        assert "typed by hand" in book.text()
        assert [e.sections["Content"] for e in book.notebook.read(NOTE).entries] == ["one", "two"]


class EditedBackend(DeviceLocalBackend):
    """A person saves the file just after it was read."""

    edit = ""
    path = Path()

    def read_version(self, locator: Locator) -> tuple[str, str]:
        found = super().read_version(locator)
        if self.edit:
            new = found[0].replace("\n---\n", "\n---\ntyped by hand\n", 1)
            if self.edit == "rename":
                other = self.path.with_name("other")
                other.write_text(new)
                other.replace(self.path)
            else:
                self.path.write_text(new)
            self.edit = ""
        return found


def test_a_settled_file_is_compared_by_its_times_and_a_fresh_one_by_its_content(tmp_path: Path, monkeypatch):
    """P4: the cheap version is used only once a later change is bound to show in it."""
    storage = DeviceLocalBackend(tmp_path)
    storage.write(NOTE, "one")
    with monkeypatch.context() as slow:
        slow.setattr("cairn.engines.files._SETTLED_NS", int(LONG * 10**9))
        text, fresh = storage.read_version(NOTE)
    assert text == "one"
    assert fresh.endswith(content_hash("one"))

    until(lambda: storage.read_version(NOTE)[1].startswith("stat:"))
    text, settled = storage.read_version(NOTE)
    (tmp_path / NOTE.key).write_text("two")
    for version in (fresh, settled):
        with pytest.raises(Conflict):
            storage.write(NOTE, "mine", expect=version)
    (tmp_path / NOTE.key).unlink()
    with pytest.raises(Conflict):
        storage.write(NOTE, "mine", expect=settled)
    assert not storage.exists(NOTE)


def test_a_file_that_never_rests_is_a_conflict():
    """P4: after many tries the caller hears of it; nothing was overwritten."""
    storage = FailingBackend()
    book = Book(storage)
    storage.errors = [Conflict("again")] * 60
    with pytest.raises(Conflict):
        book.add("x")
    assert not storage.exists(NOTE)


def test_a_queue_that_cannot_be_reached_does_not_undo_the_write(caplog: pytest.LogCaptureFixture):
    """The entry is durable and acknowledged with LSN 0; a scan will find it."""

    def down(changes: object) -> int:
        raise Unavailable("no index")

    storage = InMemoryBackend()
    notebook = Notebook(storage, InMemoryLocks(), on_change=down)
    (written,) = notebook.append("episode", ALICE, DAY, [Draft()])

    assert (written.created, written.lsn) == (True, 0)
    assert storage.exists(NOTE)
    assert "a scan will find it" in caplog.text


def test_a_lock_that_is_not_free_is_named_in_time():
    """A held file lock ends in Unavailable, and nothing is written."""
    storage, locks = InMemoryBackend(), InMemoryLocks()
    notebook = Notebook(storage, locks, lock_seconds=0.05)
    done = threading.Event()

    def hold() -> None:
        with locks.hold(NOTE.key):
            done.wait(LONG)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        while True:
            with locks.lease(NOTE.key) as free:
                if not free:
                    break
        with pytest.raises(Unavailable):
            notebook.append("episode", ALICE, DAY, [Draft()])
    finally:
        done.set()
        thread.join()
    assert not storage.exists(NOTE)


def test_an_owner_that_differs_only_by_case_is_refused(tmp_path: Path):
    """E102: on half of all machines the two would be one folder; the error names the twin."""
    notebook = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks"))
    notebook.append("episode", ALICE, DAY, [Draft()])
    with pytest.raises(Invalid, match="alice"):
        notebook.append("episode", Scope(Space(), "user", "Alice"), DAY, [Draft()])


def test_a_linked_folder_is_refused(tmp_path: Path):
    """E100: a symlink inside the root cannot carry a note out of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    (root / NOTE.parent.parent.parent.key).mkdir(parents=True)
    (root / NOTE.parent.parent.key).symlink_to(outside)
    notebook = Notebook(DeviceLocalBackend(root), FileLocks(root / ".tmp" / "locks"))

    with pytest.raises(Invalid, match="symbolic link"):
        notebook.append("episode", ALICE, DAY, [Draft()])
    assert list(outside.iterdir()) == []


def test_a_file_that_is_not_utf8_is_refused_and_untouched(tmp_path: Path):
    """P6: bytes that are no text are a named error, not a lossy rewrite."""
    path = tmp_path / NOTE.key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"---\nid: x\n---\n\xff\xfe")
    notebook = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks"))

    with pytest.raises(Invalid, match="UTF-8"):
        notebook.append("episode", ALICE, DAY, [Draft()])
    assert path.read_bytes() == b"---\nid: x\n---\n\xff\xfe"


def test_temporary_files_do_not_stay(tmp_path: Path):
    """E58: the write goes through a temporary file beside the note, which is gone afterwards."""
    notebook = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks"))
    notebook.append("episode", ALICE, DAY, [Draft()])
    assert [p.name for p in (tmp_path / NOTE.parent.key).iterdir()] == [NOTE.name]


def test_an_entry_with_text_alone_reads_as_content(book: Book):
    """C2: an entry a person typed, without fields or headings, is its kind's main section."""
    locator = KINDS["memory"].locator(ALICE, DAY)
    book.storage.write(
        locator,
        "---\nid: x\n---\n<!-- entry:mem_20260601_00000001 -->\nUse pnpm.\n<!-- /entry:mem_20260601_00000001 -->\n",
    )

    entry: Entry = book.notebook.read(locator).entries[0]
    assert (entry.inline, entry.sections) == ({}, {"Content": "Use pnpm."})
    book.notebook.change(locator, entry.id, lambda e: Draft.of(e, status="archived"))
    assert book.notebook.read(locator).entries[0].sections == {"Content": "Use pnpm."}


def test_a_save_in_the_last_moment_is_met_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """P4: a save between the last look and the rename comes back into place, and the write is a conflict."""
    storage = DeviceLocalBackend(tmp_path)
    path = tmp_path / NOTE.key
    for settled in (False, True):
        storage.write(NOTE, "seen")
        if not settled:
            monkeypatch.setattr("cairn.engines.files._SETTLED_NS", int(LONG * 10**9))
        until(lambda settled=settled: ("=" in storage.read_version(NOTE)[1]) is not settled)
        _, version = storage.read_version(NOTE)
        assert ("=" in version) is not settled
        exchange, saves = tree.exchanging(), ["saved meanwhile"]
        assert exchange is not None

        def save_first(*names: object, exchange=exchange, saves=saves) -> int:
            if saves:
                path.with_name("editor").write_text(saves.pop())
                path.with_name("editor").replace(path)
            return exchange(*names)

        monkeypatch.setattr(tree, "exchanging", lambda save_first=save_first: save_first)
        with pytest.raises(Conflict):
            storage.write(NOTE, "machine", expect=version)
        monkeypatch.undo()
        assert path.read_text() == "saved meanwhile"
        assert [p.name for p in path.parent.iterdir()] == [NOTE.name]


def test_a_note_made_in_the_last_moment_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """P4: "nothing there" is held up to the very creation of the name."""
    storage = DeviceLocalBackend(tmp_path)
    path = tmp_path / NOTE.key
    exchange = tree.exchanging()
    assert exchange is not None

    def then_made(*names: object) -> int:
        answer = exchange(*names)
        path.write_text("theirs")
        return answer

    monkeypatch.setattr(tree, "exchanging", lambda: then_made)
    with pytest.raises(Conflict):
        storage.write(NOTE, "mine", expect="")
    assert path.read_text() == "theirs"
    assert [p.name for p in path.parent.iterdir()] == [NOTE.name]
