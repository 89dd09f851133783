"""Forgetting follows what was made from what: by parents, messages, sources and merges, in one owner's memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn
from cairn import Memory
from cairn.notes.format import parse_note
from tests.held import holding

START = 1780315200000
THINKING = ("extract_atomic_facts", "extract_foresight", "extract_user_profile")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with cairn.open_blocking(tmp_path / "root", embedding__provider="hashing") as opened:
        yield opened


def talk(memory: Memory, session: str, *said: tuple[str, str], hours: int = 0) -> None:
    """Say something, close the stretch, and let everything be derived from it."""
    messages = [
        {
            "sender_id": who,
            "role": "assistant" if who == "bot" else "user",
            "timestamp": START + hours * 3_600_000 + n * 60_000,
            "content": text,
        }
        for n, (who, text) in enumerate(said)
    ]
    memory.add(session, messages)
    memory.flush(session)
    for name in THINKING:
        memory.trigger(name)


def episodes(memory: Memory, owner: str = "alice") -> dict[str, str]:
    found = memory.get("episode", user_id=owner, consistency="strong").episodes
    return {one["session_id"]: one["id"] for one in found}


def fact(memory: Memory, word: str) -> str:
    """The public id of the one fact with that word."""
    folder = memory.settings.root / "default_app/default_project/users/alice/.atomic_facts"
    [found] = [
        entry.id
        for note in folder.glob("*.md")
        for entry in parse_note(note.read_text()).entries
        if word in entry.sections["Fact"]
    ]
    return f"alice_{found}"


def reworded(memory: Memory, old: str, new: str) -> None:
    """A person words a fact in their own way, in the note."""
    folder = memory.settings.root / "default_app/default_project/users/alice/.atomic_facts"
    [note] = folder.glob("*.md")
    assert old in note.read_text()
    note.write_text(note.read_text().replace(old, new))


def owned(memory: Memory, owner: str = "alice") -> str:
    """All that is written in an owner's folder."""
    folder = memory.settings.root / "default_app" / "default_project" / "users" / owner
    return "\n".join(at.read_text() for at in sorted(folder.rglob("*.md")))


def test_an_episode_takes_its_messages_facts_and_profile_items_with_it(memory):
    """Links: what was told in it, said in it and learned from it goes; another session stays whole."""
    talk(memory, "s1", ("alice", "I live in Berlin with my cat Tom."), ("bot", "Noted, a cat."))
    talk(memory, "s2", ("alice", "I work at a bakery called Crust."), hours=30)
    root = memory.settings.root
    assert "Berlin" in owned(memory)
    first = episodes(memory)["s1"]
    preview = memory.memories.forget(first, dry_run=True)
    receipt = memory.memories.forget(first)
    assert receipt.complete, receipt.left
    assert {(one.what, one.words) for one in preview.taken} == {
        (one.what, one.words) for one in receipt.taken
    }
    assert {"episode", "message", "atomic_fact"} <= {one.what for one in receipt.taken}
    for gone in ("Berlin", "cat Tom", "Noted, a cat"):
        assert holding(root, gone) == []
    assert "Crust" in owned(memory)
    assert [one.text for one in memory.search("bakery", user_id="alice", consistency="strong").episodes]


def test_words_of_a_message_take_what_was_derived_from_them(memory):
    """Links: a fact that says it in other words goes with the message it rests on; the next sentence's stay."""
    talk(memory, "s1", ("alice", "I live in Berlin with my cat Tom. I prefer tea over coffee."))
    reworded(memory, "alice: I live in Berlin with my cat Tom.", "Alice is at home in Berlin with a cat.")
    receipt = memory.memories.forget(words=["my cat Tom"])
    assert receipt.complete, receipt.left
    kept = owned(memory)
    assert "Berlin" not in kept
    assert kept.count("I prefer tea over coffee.") > 1
    assert holding(memory.settings.root, "Berlin") == []


def test_a_fact_takes_its_quote_and_names_what_it_was_made_from(memory):
    """Links point one way: a fact that quotes goes with the same words; the message one was made from is only listed."""
    talk(memory, "s1", ("alice", "I live in Berlin with my cat Tom. I prefer tea over coffee."))
    tea = fact(memory, "tea")
    receipt = memory.memories.forget(tea)
    assert receipt.complete, receipt.left
    assert holding(memory.settings.root, "I prefer tea over coffee") == []
    assert "I live in Berlin with my cat Tom." in owned(memory)
    reworded(memory, "alice: I live in Berlin with my cat Tom.", "Alice is at home in Berlin with a cat.")
    receipt = memory.memories.forget(fact(memory, "at home"))
    assert "at home" not in owned(memory)
    assert "I live in Berlin with my cat Tom." in owned(memory)
    [source] = [one for one in receipt.alike if one.why == "what it was made from"]
    assert source.words == "I live in Berlin with my cat Tom."
    log = memory.settings.root / source.path
    assert source.words in log.read_text()


def test_what_another_said_in_the_same_session_stays(memory):
    """Owners: in a shared session one's own words go; the other's episode is theirs, and the receipt says so."""
    talk(memory, "s1", ("alice", "I live in Berlin with my cat Tom."), ("bob", "I love hiking in the Alps."))
    receipt = memory.memories.forget(episodes(memory)["s1"])
    assert "Berlin" not in owned(memory, "alice")
    assert "Berlin" in owned(memory, "bob")
    assert "I love hiking in the Alps." in owned(memory, "bob")
    assert not receipt.complete
    assert [where for where, _ in receipt.left] == ["other owners' memory"]
    log = (memory.settings.root / "default_app/default_project/sessions/s1.jsonl").read_text()
    assert "Berlin" not in log
    assert "hiking" in log


def test_a_merged_memory_goes_with_what_it_was_merged_from(memory):
    """Links: a consolidation of what is forgotten goes; the others it was made from come back."""
    ids = [
        memory.remember(
            f"The nightly backup of the database {name} writes to the cold bucket", "fact"
        ).memory["id"]
        for name in ("amber", "birch", "cedar")
    ]
    merged = memory.memories.consolidate().merged
    assert len(merged) == 1
    receipt = memory.memories.forget(ids[0])
    assert {one.id for one in receipt.taken if one.what == "memory"} == {ids[0], merged[0].new_id}
    rows = memory.memories.list().memories
    assert {row["id"] for row in rows} == set(ids[1:])
    assert all(row["superseded_by"] is None for row in rows)
    assert holding(memory.settings.root, "amber") == []
