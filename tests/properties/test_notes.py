"""P3 and P4 as properties: any text round-trips, every other byte survives, no update is lost."""

from __future__ import annotations

import threading
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.engines.locks import FileLocks
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
from cairn.notes.kinds import KINDS, safe_name
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space
from tests.chaos.notes import SOUP, fuzz

ALICE = Scope(Space(), "user", "alice")
NOTE = KINDS["episode"].locator(ALICE, "2026-06-01")

plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
hostile = st.lists(st.one_of(st.sampled_from(SOUP), plain), max_size=12).map("".join)
text = st.one_of(plain, hostile)
keys = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_.-]{0,12}\Z")
titles = st.from_regex(r"\A[A-Za-z][A-Za-z0-9 _:*#-]{0,12}[A-Za-z]\Z")
drafts = st.builds(Draft, st.dictionaries(keys, text, max_size=4), st.dictionaries(titles, text, max_size=4))


def entry_of(sections: dict[str, str]) -> str:
    return render_entry("ep_20260601_00000001", render_body({}, sections))


@given(text)
def test_any_text_survives_escaping(value: str):
    """P3: reading undoes escaping, and the escaped form holds no marker and no heading."""
    escaped = escape_text(value)
    [read] = parse_note("---\nid: x\n---\n" + entry_of({"Content": value})).entries
    assert read.sections["Content"] == value
    assert "<!-- entry:" not in escaped
    assert "<!-- /entry:" not in escaped
    assert not any(line.startswith(("### ", "## ")) for line in escaped.split("\n"))


@given(st.lists(drafts, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_any_entry_reads_back_as_it_was_written(items: list[Draft], newline: str):
    """P3 E94: fields and sections come back exact, in order, with either line end."""
    blocks = [
        render_entry(f"ep_20260601_{n:08d}", render_body(d.inline, d.sections), newline)
        for n, d in enumerate(items, 1)
    ]
    note = parse_note(f"---{newline}id: x{newline}---{newline}" + "".join(blocks))

    assert [(dict(e.inline), dict(e.sections)) for e in note.entries] == [
        (d.inline, d.sections) for d in items
    ]
    assert [note.text[e.start : e.end] for e in note.entries] == blocks
    assert {p.code for p in note.problems} <= {"crlf"}


@given(st.lists(text, max_size=5))
def test_inline_lists_read_back(items: list[str]):
    """E94: a list written `[a, b]` gives its items again, whatever they hold."""
    assert list_items(inline_text(items)) == items


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(value: str):
    """P6: parsing never raises."""
    parse_note(value)
    parse_note(f"---\n{value}\n---\n{value}")


@given(st.dictionaries(keys, text, max_size=4), st.dictionaries(keys, text, max_size=4))
def test_two_different_contents_have_two_hashes(one: dict[str, str], other: dict[str, str]):
    """E95: the hash tells contents apart, line breaks in values included, and ignores their order."""
    assert (content_sha256(one) == content_sha256(other)) is (one == other)
    assert content_sha256(one) == content_sha256(dict(reversed(one.items())))


@given(st.from_regex(r"\A[a-z][a-z0-9_]{0,8}\Z"), st.dates(), st.integers(0, 99_999_998))
def test_ids_read_back(prefix: str, day: object, count: int):
    """E51 E53 E97: parse undoes format, also for prefixes with underscores."""
    made = EntryId.next_for(prefix, str(day), count)
    assert EntryId.parse(made.format()) == made


@given(text)
def test_names_are_stable(value: str):
    """E101: making a name safe twice changes nothing more."""
    once = safe_name(value)
    assert safe_name(once) == once


@settings(max_examples=60)
@given(st.lists(drafts, min_size=2, max_size=5), st.data())
def test_a_rewrite_touches_its_entry_alone(items: list[Draft], data: st.DataObject):
    """P3: change and remove keep every byte outside their entry, appends keep all of the body."""
    storage = InMemoryBackend()
    notebook = Notebook(storage, InMemoryLocks())
    written = notebook.append("episode", ALICE, "2026-06-01", items)
    victim = data.draw(st.sampled_from(written)).entry_id
    new = data.draw(drafts)
    before = notebook.read(NOTE)

    notebook.change(NOTE, victim, lambda _: new)
    after = notebook.read(NOTE)
    old, changed = before.entry(victim), after.entry(victim)
    assert (changed.inline, changed.sections) == (new.inline, new.sections)
    assert before.text[: old.start] == after.text[: changed.start]
    assert before.text[old.end :] == after.text[changed.end :]

    notebook.append("episode", ALICE, "2026-06-01", [new])
    assert notebook.read(NOTE).body.startswith(after.body)
    notebook.remove(NOTE, [victim])
    assert victim not in notebook.read(NOTE).by_id


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.booleans(), min_size=5, max_size=12))
def test_two_writers_and_an_editor_lose_nothing(tmp_path_factory, plan: list[bool]):
    """P4: appends of two notebooks, changes, and a person's saves all end up in the file."""
    root: Path = tmp_path_factory.mktemp("p4")
    books = [Notebook(DeviceLocalBackend(root), FileLocks(root / ".tmp" / "locks")) for _ in range(2)]
    (seed,) = books[0].append("episode", ALICE, "2026-06-01", [Draft({"n": 0}, {"Content": "seed"})])
    typed: list[str] = []

    def write(book: Notebook, name: str) -> None:
        for n, grow in enumerate(plan):
            if grow:
                book.append("episode", ALICE, "2026-06-01", [Draft({}, {"Content": f"{name}{n}"})])
            else:
                book.change(NOTE, seed.entry_id, lambda e: Draft({"n": int(e.inline["n"]) + 1}, e.sections))

    def edit() -> None:
        # A careful editor: it saves only if the file still is what it showed, as editors with a warning do.
        storage = DeviceLocalBackend(root)
        for n in range(len(plan)):
            while True:
                shown, version = storage.read_version(NOTE)
                try:
                    storage.write(NOTE, f"{shown}typed {n}\n", expect=version)
                except Exception:
                    continue
                typed.append(f"typed {n}\n")
                break

    threads = [
        threading.Thread(target=write, args=(book, name)) for book, name in zip(books, "ab", strict=True)
    ]
    threads.append(threading.Thread(target=edit))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    note = books[0].read(NOTE)
    said = [e.sections["Content"] for e in note.entries]
    assert sorted(said) == sorted(
        ["seed", *(f"{name}{n}" for name in "ab" for n, grow in enumerate(plan) if grow)]
    )
    assert note.entry(seed.entry_id).inline["n"] == str(2 * plan.count(False))
    assert all(line in note.text for line in typed)
    assert note.problems == ()


def test_a_short_fuzz_of_the_parser():
    """P3 P6: the first cases of the chaos run; `make chaos` runs 20,000 and more."""
    assert fuzz(seed=7, cases=2_000) == 2_000
