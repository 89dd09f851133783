"""Forgetting beside others at work: whoever read the words before may not write them after the receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn import BlockingMemory
from cairn.engines import lance
from cairn.engines.lance import LanceTables
from cairn.engines.rows import SqliteIndex
from cairn.governed import forget, pages
from cairn.notes.notebook import Notebook
from cairn.types import Message, Scope, Space
from tests import held
from tests.waiting import LONG

CANARY = "zebra" + "crossing77"
SAID = [
    "Good morning to you all.",
    f"I open the vault with {CANARY} every morning.",
    "Then I water the plants in the hall.",
]
DANA = Scope(Space(), "user", "dana")


def holding(root: Path) -> list[str]:
    return held.holding(root, CANARY)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[BlockingMemory]:
    with cairn.open_blocking(tmp_path / "root", embedding__provider="hashing") as opened:
        yield opened


def say(memory: BlockingMemory, session: str = "s1") -> None:
    messages = [Message("dana", "user", 1780315200000 + n * 60_000, text) for n, text in enumerate(SAID)]
    memory.parts.capture.add(Space(), session, messages)


class Held:
    """A call that stops, at its first turn, between what it read and what it writes."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool]
    ) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        real = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            if when(*args) and not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(LONG)
            return real(*args, **more)

        monkeypatch.setattr(owner, name, call)

    @contextmanager
    def while_at(self, act: Callable[[], object], release_after: float | None = 1.5) -> Iterator[None]:
        """Run `act` beside the block until it is held; let it go on after a while, or at the block's end."""
        thread = threading.Thread(target=act)
        thread.start()
        assert self.reached.wait(LONG)
        if release_after is not None:
            threading.Timer(release_after, self.go.set).start()
        try:
            yield
        finally:
            self.go.set()
            thread.join(LONG)
            assert not thread.is_alive()


def forgotten(memory: BlockingMemory) -> None:
    root = memory.settings.root
    receipt = memory.memories.forget(words=[CANARY])
    assert receipt.complete, receipt.left
    assert holding(root) == []


def test_an_episode_being_told_is_waited_for(memory, monkeypatch):
    """Forget: a flush has read the words and not yet written its episode; the receipt comes after it."""
    parts = memory.parts
    say(memory)
    held = Held(monkeypatch, Notebook, "append", lambda _self, kind, *_: kind == "episode")
    with held.while_at(lambda: parts.capture.flush(Space(), "s1")):
        forgotten(memory)
    assert holding(memory.settings.root) == []
    found = memory.search("plants", user_id="dana", consistency="strong")
    assert found.episodes


def test_an_episode_another_process_is_telling_loses_the_words(memory, monkeypatch):
    """Forget: who cannot be waited for looks again after writing, and tells the cell without what was forgotten."""
    parts = memory.parts
    say(memory)
    held = Held(monkeypatch, Notebook, "append", lambda _self, kind, *_: kind == "episode")
    with held.while_at(lambda: parts.capture.flush(Space(), "s1"), release_after=None):
        forget.forget(parts.keeper, Space(), words=[CANARY])  # as another process would: nobody to wait for
    parts.observer.settle()
    assert [name for name in holding(memory.settings.root) if name.endswith(".md")] == []
    assert memory.search("plants", user_id="dana", consistency="strong").episodes


def test_a_running_strategy_is_waited_for(memory, monkeypatch):
    """Forget: a strategy has read the cell and not yet written its facts; none of them says it afterwards."""
    held = Held(monkeypatch, Notebook, "append", lambda _self, kind, *_: kind == "atomic_fact")
    say(memory)
    with held.while_at(lambda: memory.flush("s1")):
        forgotten(memory)
    memory.trigger("extract_atomic_facts")
    assert holding(memory.settings.root) == []


def test_pages_being_made_are_waited_for(memory, monkeypatch):
    """Forget: a refresh that read the memory before writes its pages before the cleaned ones, not after."""
    parts = memory.parts
    parts.keeper.remember(SAID[1], status="promoted")
    held = Held(monkeypatch, pages, "_put", lambda _keeper, at, _body: at.name == "MEMORY.md")
    with held.while_at(lambda: pages.refresh(parts.keeper, Space())):
        forgotten(memory)
    assert holding(memory.settings.root) == []


def test_a_busy_root_does_not_make_a_receipt_incomplete(memory):
    """Forget: what others write meanwhile has nothing to do with it and is not waited for to the last."""
    parts = memory.parts
    say(memory)
    memory.flush("s1")
    stop = threading.Event()

    def keep_queueing() -> None:
        at = parts.root.note("episode", DANA, "2026-06-01")
        while not stop.wait(0.0005):
            parts.indexer.note_change([(at, "modified")])

    thread = threading.Thread(target=keep_queueing)
    thread.start()
    try:
        receipt = memory.memories.forget(words=[CANARY])
    finally:
        stop.set()
        thread.join()
    assert receipt.complete, receipt.left


def test_vectors_of_a_text_that_went_meanwhile_are_not_kept(memory, monkeypatch):
    """Forget: an embedder at work on a forgotten text leaves no vector of it behind."""
    index = memory.parts.index
    memory.parts.daemon.stop()
    say(memory)
    memory.flush("s1")
    memory.parts.waits.wait()
    rows = index.pending(10)
    assert any(CANARY in row.text for row in rows)
    from cairn.engines.embedders import HashingEmbedder

    embedder = HashingEmbedder(64)
    index.begin_model(embedder.id)
    vectors = dict(zip([row.key for row in rows], embedder.embed([row.text for row in rows]), strict=True))
    forgotten(memory)
    index.put_vectors(rows, vectors)
    gone = [row.key for row in rows if CANARY in row.text]
    assert index.have_vectors(gone) == set()


def test_folding_that_is_starting_does_not_hold_up_a_scrub(tmp_path, monkeypatch):
    """Forget: importing LanceDB takes long on a busy machine; the tables are free meanwhile."""
    (tmp_path / "lancedb").mkdir()
    tables, index = LanceTables(tmp_path), SqliteIndex(tmp_path)
    scrubbed = []

    def importing() -> Any:
        scrubbed.append(LanceTables(tmp_path).scrub(index, seconds=0.0))
        raise ImportError("enough seen")

    monkeypatch.setattr(lance, "imported", importing)
    with pytest.raises(ImportError):
        tables.fold(index)
    index.close()
    assert scrubbed == [True]
