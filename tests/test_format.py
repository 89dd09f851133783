"""Text <-> values: entries, ids, escapes and heads, one rule at a time."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime

import pytest

from cairn.errors import Invalid, NotFound
from cairn.notes import frontmatter
from cairn.notes.format import (
    EntryId,
    content_sha256,
    escape_text,
    inline_text,
    list_items,
    parse_note,
    render_body,
    render_entry,
)
from tests.waiting import calls_of

HEAD = "---\nid: x\n---\n"


def entry(number: int, body: str = "### Content\ntext\n") -> str:
    return render_entry(f"ep_20260601_{number:08d}", body)


def codes(text: str) -> list[str]:
    return [problem.code for problem in parse_note(text).problems]


def ids(text: str) -> list[int]:
    return [int(e.id[-8:]) for e in parse_note(text).entries]


# --- ids ----------------------------------------------------------------------------------------------


def test_an_id_is_prefix_day_and_eight_digits():
    """E51 E53: format, parse and next_for."""
    made = EntryId.next_for("ep", date(2026, 6, 1), 0)
    assert str(made) == made.format() == "ep_20260601_00000001"
    assert EntryId.parse("ep_20260601_00000001") == made
    assert str(EntryId.next_for("ep", "2026-06-01", 41)) == "ep_20260601_00000042"


def test_an_id_is_split_from_the_right():
    """E97: a prefix may hold underscores; four-digit sequences are read and padded."""
    assert EntryId.parse("agent_case_20260601_0007") == EntryId("agent_case", "2026-06-01", 7)
    assert str(EntryId.parse("ep_20260601_0007")) == "ep_20260601_00000007"


@pytest.mark.parametrize(
    "text",
    [
        "", "ep", "ep_20260601", "ep_20260601_1", "ep_20260601_00000000", "ep_20261301_00000001", "ep_2026_00000001",
        "EP_20260601_00000001", "_20260601_00000001", "ep_20260601_000000001", "ep_20260601_0000000a",
        "ep_20260601_٠٠٠٠٠٠٠١", "ep_20260601_00000001\n", "../x_20260601_00000001",
    ],
)  # fmt: skip
def test_what_is_no_id_is_refused(text: str):
    """E51: other shapes, impossible dates, sequence zero and other digits are named errors."""
    with pytest.raises(Invalid):
        EntryId.parse(text)


def test_the_sequence_ends_at_eight_digits():
    """E52: one note holds at most 99,999,999 ids; the next one is an error, not a longer id."""
    with pytest.raises(Invalid):
        EntryId.next_for("ep", "2026-06-01", 99_999_999)


# --- entries ------------------------------------------------------------------------------------------


def test_an_entry_is_heading_fields_and_sections():
    """E50 E94: the exact block."""
    body = render_body({"a": "1", "ids": ["x", "y"], "gone": None}, {"Subject": "S", "Content": "c\n\nd"})
    assert entry(1, body) == (
        "<!-- entry:ep_20260601_00000001 -->\n## ep_20260601_00000001\n\n**a**: 1\n**ids**: [x, y]\n\n"
        "### Subject\nS\n\n### Content\nc\n\nd\n<!-- /entry:ep_20260601_00000001 -->\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"), (3, "3"), (0.7, "0.7"), (True, "true"), (False, "false"), ([], "[]"),
        (("a", "b"), "[a, b]"), (["a, b", "", '"q"', " x"], '["a, b", "", "\\"q\\"", " x"]'),
        (date(2026, 6, 1), "2026-06-01"), (datetime(2026, 6, 1, 9, tzinfo=UTC), "2026-06-01T09:00:00+00:00"),
    ],
)  # fmt: skip
def test_inline_values_have_one_text(value: object, text: str):
    """E94 E118: lists as [a, b], times with their offset, numbers and booleans plainly."""
    assert inline_text(value) == text


def test_inline_lists_are_read():
    """E94: items with commas are quoted; a value that is no list is one item."""
    assert list_items("[dana, ops_agent]") == ["dana", "ops_agent"]
    assert list_items('["a, b", c]') == ["a, b", "c"]
    assert list_items("alone") == ["alone"]
    assert list_items("[]") == list_items("") == []
    assert list_items('["open, x]') == ['"open', "x"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("plain", "plain"),
        ("---\nid: forged\n---", "---\nid: forged\n---"),
        ("### Content", "\\### Content"),
        ("\\### Content", "\\\\### Content"),
        ("## x\n# y\n#### z", "\\## x\n# y\n#### z"),
        ("<!-- entry:ep_1 -->", "<!--\\ entry:ep_1 -->"),
        ("say <!-- /entry:x --> twice", "say <!--\\ /entry:x --> twice"),
        ("<!--\\ entry:x -->", "<!--\\\\ entry:x -->"),
        ("<!-- a comment -->", "<!-- a comment -->"),
        ("\nouter\n", "\\\nouter\n\\"),
        ("a\n\nb", "a\n\nb"),
        (" ", "\\ "),
        ("\\", "\\\\"),
        ("C:\\new\\table", "C:\\new\\table"),
        ("**key**: value", "**key**: value"),
    ],
)
def test_escapes_are_few_and_readable(text: str, written: str):
    """P3: only what would be taken for a marker, a heading or an outer blank line gets a backslash."""
    assert escape_text(text) == written
    body = render_body({"k": text}, {"Content": text, "Other": text})
    (read,) = parse_note(HEAD + entry(1, body)).entries
    assert (read.inline, read.sections) == ({"k": text}, {"Content": text, "Other": text})


def test_text_without_escapes_reads_naturally():
    """E94: blank lines around a section's text are layout; backslashes and quotes in it are its own."""
    body = '\n\n**path**: C:\\new\n**q**: "quoted"\n\n### Content\n\n  indented \\d+\n\n\n### Empty\n\n'
    (read,) = parse_note(HEAD + entry(1, body)).entries
    assert read.inline == {"path": "C:\\new", "q": '"quoted"'}
    assert read.sections == {"Content": "  indented \\d+", "Empty": ""}


def test_fields_end_where_text_begins():
    """C2 E94: a bold line below loose text is text; loose text is the main section."""
    text = f"{HEAD}<!-- entry:a_1 -->\n**k**: v\n\nLoose words.\n**Note**: stays\n<!-- /entry:a_1 -->\n"
    (read,) = parse_note(text, loose="Fact").entries
    assert (read.inline, read.sections) == ({"k": "v"}, {"Fact": "Loose words.\n**Note**: stays"})


def test_doubled_fields_and_sections_are_reported_and_nothing_is_lost():
    """Doubled keys: the first field counts, sections of one name are joined."""
    note = parse_note(HEAD + entry(1, "**k**: 1\n**k**: 2\n\n### A\nx\n\n### A\ny\n"))
    assert (note.entries[0].inline, note.entries[0].sections) == ({"k": "1"}, {"A": "x\n\ny"})
    assert [p.code for p in note.problems] == ["doubled-field", "doubled-section"]


def test_windows_line_ends_read_as_line_ends():
    """CRLF: the text of an entry reads the same, and the note says so once."""
    text = (HEAD + entry(1, "**k**: v\n\n### Content\na\nb\n")).replace("\n", "\r\n")
    note = parse_note(text)
    assert (note.entries[0].inline, note.entries[0].sections) == ({"k": "v"}, {"Content": "a\nb"})
    assert note.frontmatter == {"id": "x"}
    assert [p.code for p in note.problems] == ["crlf"]


def test_offsets_and_lines_point_at_the_entry():
    """Entries know where they are, so that a change touches nothing else."""
    note = parse_note(HEAD + "hand\n" + entry(1) + "between\n" + entry(2))
    assert [e.line for e in note.entries] == [5, 12]
    assert [note.text[e.start : e.end] for e in note.entries] == [entry(1), entry(2)]


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left", "problems", "damaged"),
    [
        (entry(1)[:60] + "\n" + entry(2) + entry(3), [2, 3], ["unterminated-entry"], [1]),
        (entry(1) + entry(2)[:60], [1], ["unterminated-entry"], [2]),
        (entry(1, "x\n" + entry(2)) + entry(3), [2, 3], ["unterminated-entry", "stray-close"], [1]),
        (entry(1) + entry(1, "other\n") + entry(2), [1, 2], ["doubled-entry"], []),
        ("<!-- /entry:ep_20260601_00000009 -->\n" + entry(1), [1], ["stray-close"], []),
        (entry(1).replace("/entry:ep_20260601_00000001", "/entry:ep_20260601_00000002") + entry(3), [3], ["mismatched-close"], [1]),
        (entry(1).replace("## ep_20260601_00000001", "## ep_20260601_00000007"), [1], ["heading-mismatch"], []),
    ],
)  # fmt: skip
def test_damage_is_reported_and_the_rest_stays_usable(
    text: str, left: list[int], problems: list[str], damaged: list[int]
):
    """E96 C15: better than stopping: reading goes on at the next opening marker, and names what it lost."""
    note = parse_note(HEAD + text)
    assert [int(e.id[-8:]) for e in note.entries] == left
    assert [p.code for p in note.problems] == problems
    assert sorted(int(i[-8:]) for i in note.damaged) == damaged
    assert all(1 <= p.line <= note.text.count("\n") + 1 for p in note.problems)


def test_a_damaged_entry_is_named_when_asked_for():
    """The error says whether an entry is missing or merely unreadable."""
    note = parse_note(HEAD + entry(1)[:50])
    with pytest.raises(NotFound, match="damaged"):
        note.entry("ep_20260601_00000001")
    with pytest.raises(NotFound, match="not in this note"):
        note.entry("ep_20260601_00000002")


def test_a_marker_counts_only_alone_on_its_line():
    """E50: quoted inside a line, a marker is text."""
    assert ids(HEAD + "see <!-- entry:ep_20260601_00000009 -->\n" + entry(1)) == [1]
    assert ids(HEAD + "<!-- entry:ep_20260601_00000009 --> see\n" + entry(1)) == [1]
    assert ids(HEAD + entry(1).replace(" -->\n##", " -->  \n##")) == [1], "trailing blanks are layout"


# --- heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("a: [1", "frontmatter-yaml"),
        ("a: b: c", "frontmatter-yaml"),
        ("\ta: 1", "frontmatter-yaml"),
        ("a: &x [1]\nb: 2", "frontmatter-anchor"),
        ("a: *x", "frontmatter-anchor"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]", "frontmatter-anchor"),
        ("a: !!python/object/apply:os.system [echo]", "frontmatter-tag"),
        ("a: !custom x", "frontmatter-tag"),
        ("a: " + "[" * 40 + "]" * 40, "frontmatter-depth"),
        ("- a\n- b", "frontmatter-shape"),
        ("just words", "frontmatter-shape"),
        ("a: 1\na: 2", "frontmatter-doubled-key"),
        ("k: \x07", "frontmatter-yaml"),
        ("n: " + "9" * 6000, "frontmatter-yaml"),
        ("a: " + "x" * 70_000, "frontmatter-size"),
    ],
)  # fmt: skip
def test_a_hostile_head_is_one_problem_and_the_entries_stay(head: str, code: str):
    """P6: bombs, anchors, tags, depth, size, doubled keys and broken YAML never cost an entry."""
    note = parse_note(f"---\n{head}\n---\n{entry(1)}")
    assert [p.code for p in note.problems] == [code]
    assert [e.sections for e in note.entries] == [{"Content": "text"}]
    assert note.frontmatter == ({"a": 1} if code == "frontmatter-doubled-key" else {})


def test_a_bomb_is_refused_unread():
    """P6: ten megabytes of head, a million nested lists or anchors never reach the YAML reader's builder."""
    for head in ("k: v\n" * 2_000_000, "[" * 1_000_000, "a: &a x\n" + "b: *a\n" * 5_000):
        work = calls_of(lambda head=head: parse_note(f"---\n{head}\n---\n"))
        assert parse_note(f"---\n{head}\n---\n").frontmatter == {}
        assert work.total() < 2_000, work.most_common(5)


def test_missing_and_unclosed_heads_cost_no_entry():
    """E44: without a head, or with one that never closes, the entries are all there."""
    assert codes(entry(1)) == ["frontmatter-missing"]
    assert codes("") == ["frontmatter-missing"]
    unclosed = "---\nid: x\n" + entry(1, "### Content\na\n---\nb\n") + entry(2)
    assert codes(unclosed) == ["frontmatter-unterminated"]
    assert ids(unclosed) == [1, 2]


def test_a_byte_order_mark_is_no_part_of_the_head():
    """BOM: the head is found behind it, and the mark is reported."""
    note = parse_note("\ufeff" + HEAD + entry(1))
    assert (note.frontmatter, [p.code for p in note.problems]) == ({"id": "x"}, ["bom"])


def test_dates_in_a_head_stay_text():
    """E45 C12: quoted or not, a date is the same text; nothing turns into local time."""
    assert frontmatter.read_head("date: 2026-06-01\nat: 2026-06-01 10:00:00\n")[0] == {
        "date": "2026-06-01",
        "at": "2026-06-01 10:00:00",
    }


@pytest.mark.parametrize(
    ("before", "updates", "after"),
    [
        ("a: 1\nb: 2\n", {"a": 5}, "a: 5\nb: 2\n"),
        ("a: 1\n# why\nb: 'x' # c\n", {"c": "new"}, "a: 1\n# why\nb: 'x' # c\nc: new\n"),
        ("a:\n- 1\n- 2\nb: 2\n", {"a": [3]}, "a:\n- 3\nb: 2\n"),
        ("a: >\n  long\n\n  text\nb: 2\n", {"a": "short"}, "a: short\nb: 2\n"),
        ("a: 1\nb: 2\n", {"a": None}, "b: 2\n"),
        ("a: 1\r\nb: 2\r\n", {"b": "z"}, "a: 1\r\nb: z\r\n"),
        ("a: 1", {"b": 2}, "a: 1\nb: 2\n"),
        ("'a': 1\n", {"a": 2}, "a: 2\n"),
        ("nested:\n  a: 1\n", {"a": 2}, "nested:\n  a: 1\na: 2\n"),
    ],
)
def test_one_key_changes_and_the_rest_stays(before: str, updates: dict[str, object], after: str):
    """P3 E61: comments, order, quoting and line ends of other keys survive."""
    assert frontmatter.with_values(before, updates) == after


@pytest.mark.parametrize("head", ["a: [\n", "{a: 1,\nb: 2}\n", "- a\n", "a: &x 1\n"])
def test_a_head_that_cannot_be_changed_safely_is_refused(head: str):
    """P3: rather an error than a guess."""
    with pytest.raises(Invalid):
        frontmatter.with_values(head, {"b": 3})


@pytest.mark.parametrize("value", ["\ud800", object(), "x" * 70_000])
def test_values_no_head_can_hold_are_refused(value: object):
    """P6: named before anything is written."""
    with pytest.raises(Invalid):
        frontmatter.dump({"k": value})


def test_what_we_write_in_a_head_we_read_back():
    """E45: hostile strings are quoted by YAML and cannot forge a key or close the head."""
    values = {
        "a": "x\n---\nb: forged",
        "c": "- no",
        "d": "yes",
        "e": "2026-06-01",
        "f": "#",
        "g": "\u2028",
        "h": "",
    }
    note = parse_note(f"---\n{frontmatter.dump(values)}---\nbody\n")
    assert (note.frontmatter, note.body, note.problems) == (values, "body\n", ())


# --- the hash -----------------------------------------------------------------------------------------


def test_the_hash_is_over_sorted_key_value_lines():
    """E95: order does not matter, content does, and line breaks cannot imitate another field."""
    assert content_sha256({"b": "2", "a": "1"}) == content_sha256({"a": "1", "b": "2"})
    assert content_sha256({"a": "1\nb=2"}) != content_sha256({"a": "1", "b": "2"})
    assert content_sha256({"a": "1", "b": "x"}) == hashlib.sha256(b"a=1\nb=x").hexdigest()


def test_two_markers_on_one_line_are_read_as_the_careful_reader_reads_them():
    """A marker counts where it has a line of its own, whichever of the two readers looks."""
    ids = ("ep_20260601_00000001", "ep_20260601_00000002")
    one, two = (f"<!-- entry:{i} -->\n## {i}\n\n### Content\nx\n<!-- /entry:{i} -->" for i in ids)
    sound, joined = (
        parse_note(f"---\nid: x\n---\n{one}\n{two}\n"),
        parse_note(f"---\nid: x\n---\n{one}{two}\n"),
    )
    assert [entry.id for entry in sound.entries] == list(ids)
    assert joined.entries == ()
    assert joined.damaged == {ids[0]}
