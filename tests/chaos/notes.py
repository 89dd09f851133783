"""Hostile notes by the thousand: whatever the text, it round-trips, and damage stays where it was done.

Each case has a seed of its own, derived from the run's seed and its number, and is told when it fails.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.errors import Invalid, NotFound
from cairn.notes import format as note_format
from cairn.notes import frontmatter, yaml_heads
from cairn.notes.format import Note, list_items, parse_note, render_body, render_entry
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

MIN_CASES = 20_000
SOUP = [
    "<!-- entry:ep_20260601_00000001 -->", "<!-- /entry:ep_20260601_00000001 -->", "<!-- entry:", "<!--", " -->",
    "<!--\\ entry:x -->", "<!-- /entry:zz -->", "<!-- entry:zz -->", "---", "### Content", "### ", "###", "## ",
    "## ep_20260601_00000001", "# x", "**key**: value", "**", "**: ", "\\", "\\\\", "\\###", "\\### x", "\\## y",
    '\\"', '"', "'", "[a, b]", "a, b]", ": ", "- ", "{", "}", "&a", "*a", "!!python/object:x", "|", ">", "%", "@",
    "\n", "\n", "\n", "\n\n", "\r\n", "\r", "\t", " ", "  ", "\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "\x7f",
    "word", "日本語", "é", "e\u0301", "👩‍👧", "0", "1", "null", "true", "key", "\x01",
]  # fmt: skip


def soup(rng: random.Random, most: int = 12) -> str:
    return "".join(rng.choice(SOUP) for _ in range(rng.randrange(most + 1)))


def fields(rng: random.Random) -> dict[str, object]:
    return {f"key_{n}": soup(rng, 6) for n in range(rng.randrange(4))}


def sections(rng: random.Random) -> dict[str, str]:
    titles = ["Content", "Subject", "Fact", "A b", "Ünï", "C#", "x: y", "**b**"]
    return {title: soup(rng) for title in rng.sample(titles, rng.randrange(4))}


def a_note(rng: random.Random, count: int) -> tuple[str, list[tuple[str, dict[str, object], dict[str, str]]]]:
    newline = rng.choice(["\n", "\n", "\r\n"])
    told = []
    blocks = []
    for n in range(1, count + 1):
        said = (f"ep_20260601_{n:08d}", fields(rng), sections(rng))
        told.append(said)
        blocks.append(render_entry(said[0], render_body(said[1], said[2]), newline))
        blocks.append(rng.choice(["", "", newline, f"by hand{newline}"]))
    head = newline.join(["---", "id: x", "entry_count: 0", "last_appended_at: null", "---", ""])
    return head + "".join(blocks), told


def text_round_trips(rng: random.Random) -> None:
    """P3: any text comes back from an entry exactly, and forges nothing."""
    text, told = a_note(rng, rng.randrange(1, 4))
    note = parse_note(text)
    found = [(e.id, dict(e.inline), dict(e.sections)) for e in note.entries]
    assert found == told, (text, found, told)
    assert {p.code for p in note.problems} <= {"crlf"}, note.problems
    values = [soup(rng, 4) for _ in range(rng.randrange(4))]
    assert list_items(note_format.inline_text(values)) == values, values


def damage_stays_local(rng: random.Random) -> None:
    """An edit anywhere leaves every entry whose lines it does not touch readable and unchanged."""
    text, _ = a_note(rng, rng.randrange(1, 6))
    begin = rng.randrange(len(text) + 1)
    end = min(len(text), begin + rng.choice([0, 0, 1, 5, 40]))
    token = soup(rng, 4).replace("ep_20260601_00000001", "zz_20260601_00000001")
    broken = text[:begin] + token + text[end:]
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last + 1
    before, after = parse_note(text), parse_note(broken)
    shift = len(broken) - len(text)
    starts = {entry.id: entry for entry in after.entries}
    for entry in before.entries:
        if entry.end <= first or entry.start >= last:
            found = starts.get(entry.id)
            assert found is not None, (entry.id, text, broken, after.problems)
            assert (found.inline, found.sections) == (entry.inline, entry.sections)
            assert found.start == entry.start + (shift if entry.start >= last else 0)
    agree(after)


def agree(note: Note) -> None:
    """The short path for sound notes and the careful one say the same."""
    quick = note_format._parse_sound_entries(note.text, note.head.body, "Content")
    if quick is not None:
        careful = note_format._parse_any_entries(note.text, note.head.body, "Content")
        assert (quick[0], quick[1], set()) == careful, note.text


def anything_parses(rng: random.Random) -> None:
    """No text makes the parser raise; offsets and lines point at what they name."""
    note = parse_note(rng.choice(["", "---\n", "\ufeff---\r\n", "---\nid: x\n---\n"]) + soup(rng, 40))
    for entry in note.entries:
        block = note.text[entry.start : entry.end]
        assert block.startswith(f"<!-- entry:{entry.id} -->")
        assert f"<!-- /entry:{entry.id} -->" in block
        assert note.text.count("\n", 0, entry.start) + 1 == entry.line
    agree(note)


def heads_are_read_alike(rng: random.Random) -> None:
    """The quick reader of plain heads and YAML agree; a change of one key keeps the others."""
    head = "".join(
        f"{rng.choice(['id', 'date', 'k', 'on', 'x-y', soup(rng, 1)])}: {rng.choice(['1', '01', 'null', 'No', 'a b', chr(39) + 'q' + chr(39), soup(rng, 3)])}\n"
        for _ in range(rng.randrange(5))
    )
    quick = frontmatter._read_plain(head)
    careful, problems = yaml_heads.read(head)
    if quick is not None:
        assert (quick, []) == (careful, problems), head
    value = rng.choice(
        [1, 1.5, None, "text", "a: b", "#x", "'", ["a", "b"], {"o": "n"}, soup(rng, 4), True, "2026-06-01"]
    )
    try:
        after = frontmatter.with_values(head, {"k": value})
    except Invalid:
        return
    found, _ = frontmatter.read_head(after)
    assert found.get("k") == value
    assert {k: v for k, v in found.items() if k != "k"} == {k: v for k, v in careful.items() if k != "k"}


def notebook_keeps_the_rest(rng: random.Random) -> None:
    """P3: append, change and remove leave every byte outside their entry and their head keys alone."""
    scope = Scope(Space(), "user", "alice")
    storage = InMemoryBackend()
    notebook = Notebook(storage, InMemoryLocks())
    locator = KINDS["episode"].locator(scope, "2026-06-01")
    text, _ = a_note(rng, rng.randrange(1, 4))
    storage.write(locator, text)
    for _ in range(3):
        before = parse_note(storage.read(locator))
        draft = Draft(fields(rng), sections(rng))
        action = rng.choice(["append", "change", "remove", "type"])
        if action == "append":
            (written,) = notebook.append("episode", scope, "2026-06-01", [draft])
            after = notebook.read(locator)
            entry = after.entry(written.entry_id)
            assert entry.id not in before.by_id
            assert (entry.inline, entry.sections) == (draft.inline, draft.sections)
            assert (
                after.text[: entry.start]
                .removesuffix("\n")
                .removesuffix("\r")
                .endswith(before.body.removesuffix("\n").removesuffix("\r"))
            )
        elif action in {"change", "remove"} and before.entries:
            old = rng.choice(before.entries)
            if action == "change":
                notebook.change(locator, old.id, lambda _, d=draft: d)
                after = parse_note(storage.read(locator))
                new = after.entry(old.id)
                assert (new.inline, new.sections) == (draft.inline, draft.sections)
                assert after.text[: new.start] == before.text[: old.start]
                assert after.text[new.end :] == before.text[old.end :]
            else:
                try:
                    notebook.remove(locator, [old.id])
                except Invalid:  # a head broken by hand cannot keep the count
                    assert storage.read(locator) == before.text
                    continue
                after = parse_note(storage.read(locator))
                assert old.id not in after.by_id
                assert after.text.endswith(before.text[before.head.body : old.start] + before.text[old.end :])
        else:
            position = rng.randrange(len(before.text) + 1)
            storage.write(
                locator, before.text[:position] + rng.choice(["x", "\n", "é"]) + before.text[position:]
            )


CHECKS: tuple[Callable[[random.Random], None], ...] = (
    text_round_trips,
    damage_stays_local,
    anything_parses,
    heads_are_read_alike,
    notebook_keeps_the_rest,
)


def fuzz(seed: int, cases: int, until: float | None = None) -> int:
    """Run at least `cases` cases, then on while there is time; say how many."""
    done = 0
    while done < cases or (until is not None and time.monotonic() < until):
        check = CHECKS[done % len(CHECKS)]
        try:
            check(random.Random(f"{seed}/{done}"))
        except (Invalid, NotFound, AssertionError, ValueError, IndexError, KeyError, RecursionError) as error:
            raise AssertionError(f"{check.__name__}, seed {seed}/{done}: {error}") from error
        done += 1
    return done


def run(seconds: float, seed: int) -> dict[str, object]:
    return {"cases": fuzz(seed, MIN_CASES, time.monotonic() + seconds)}
