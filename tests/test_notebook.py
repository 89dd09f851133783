"""The one writer of notes: ids, group commit, compare-and-swap, and every other byte left alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator, StorageBackend
from cairn.types import Scope, Space

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
