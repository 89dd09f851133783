"""Several machines think about one root: an owner's work is done by one of them at a time, and once."""

from __future__ import annotations

import pytest

import cairn
from cairn.engines.files import DeviceLocalBackend
from cairn.notes.kinds import KINDS


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """Two of them on one root, each with an index and a queue of its own."""
    monkeypatch.setattr(DeviceLocalBackend, "is_shared", True)
    made = [
        cairn.open_blocking(
            tmp_path / "root", background=False, embedding__provider="none", index__dir=str(tmp_path / name)
        )
        for name in ("one", "two")
    ]
    with made[0] as one, made[1] as two:
        yield one, two


def facts(memory):
    notes = [
        memory.parts.storage.read(at) for at in memory.parts.notebook.notes(kind=KINDS["atomic_fact"].name)
    ]
    return "".join(notes).count("Zaphodine")


def test_work_of_an_owner_is_claimed_and_done_once(machines):
    """While one machine is at it the other leaves it queued, without an attempt; afterwards it knows that it is done."""
    one, two = machines
    said = {
        "sender_id": "alice",
        "role": "user",
        "timestamp": 1_780_000_000_000,
        "content": "I adopted a heron called Zaphodine.",
    }
    one.parts.engine.recover()
    two.parts.engine.recover()
    one.add("s", [said])
    one.flush("s")
    assert two.parts.engine.recover() > 0
    with two.parts.locks.hold("think default/default/user/alice"):
        one.parts.engine.run_due()
        assert facts(one) == 0
        [waiting] = one.parts.engine.runs(strategy="extract_atomic_facts")
        assert (waiting.status, waiting.reason) == ("pending", "another machine is at it")
    assert two.parts.engine.run_due() > 0
    found = facts(two)
    assert found > 0, two.parts.engine.runs()
    done = one.parts.engine.trigger("extract_atomic_facts")
    assert (done.status, done.wrote) == ("done", 0)
    assert one.parts.engine.runs(strategy="extract_atomic_facts")[0].reason == "another machine did it"
    assert facts(one) == found
