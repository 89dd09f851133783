"""What a kill cannot show: that bytes were flushed before they were acknowledged. System calls are counted."""

from __future__ import annotations

import pytest

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.seams import Locator
from cairn.testing import Faults, faulty_disk


@pytest.fixture
def counted():
    with faulty_disk(Faults(lambda _: None)) as faults:
        yield faults.calls


def test_an_appended_line_is_flushed_before_it_is_acknowledged(tmp_path, counted):
    """P1: every append of a journal makes one flush of its bytes; the first one flushes the folder before that."""
    journals = FileJournals(tmp_path)
    at = Locator("app/log.jsonl")
    journals.append(at, ["one"])
    assert counted["fsync"] >= 1, "the new name is not durable"
    for number in range(1, 6):
        assert counted["fdatasync"] == number
        journals.append(at, [f"line {number}"])


def test_lines_that_may_be_found_out_again_are_not_flushed(tmp_path, counted):
    """`sync=False` is what it says: no flush is paid for."""
    FileJournals(tmp_path).append(Locator("log.jsonl"), ["mark"], sync=False)
    assert counted["fdatasync"] == 0


def test_a_note_and_its_name_are_flushed_before_it_is_acknowledged(tmp_path, counted):
    """P1: each write flushes the new file before the rename, and the folder after it."""
    storage = DeviceLocalBackend(tmp_path)
    storage.write(Locator("a/n.md"), "one")
    before = counted["fsync"]
    storage.write(Locator("a/n.md"), "two")
    assert counted["fsync"] - before == 2
    before = counted["fsync"]
    storage.remove(Locator("a/n.md"))
    assert counted["fsync"] - before == 1


def test_bytes_are_flushed_before_they_get_their_name(tmp_path):
    """P1: write, flush, rename, flush the folder, in this order; another could show an empty file after a power cut."""
    order: list[str] = []

    def note(call):
        order.append(call.verb)

    with faulty_disk(Faults(note)):
        storage = DeviceLocalBackend(tmp_path)
        storage.write(Locator("n.md"), "one")
        order.clear()
        storage.write(Locator("n.md"), "two")
    assert order[:4] == ["create", "fchmod", "write", "fsync"]
    assert order[-1] == "fsync"
    assert "replace" in order[4:] or "link" in order[4:]
