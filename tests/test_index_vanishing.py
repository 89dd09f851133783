"""`rm -rf .index` in the middle of an answer: never half of the truth under the name of the whole."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import cairn
from cairn.engines.large import LargeIndex
from cairn.retrieval.indexer import Indexer
from cairn.types import Message, Scope, Space
from tests.waiting import until
from tests.world import Indexed

ANN = Scope(Space(), "user", "ann")


async def _said(memory, count: int) -> None:
    for number in range(count):
        at = 1_780_000_000_000 + number * 1000
        await memory.add(f"s{number}", [Message("ann", "user", at, f"the river number{number} is wide")])
        await memory.flush(f"s{number}")


async def _run(folder, engine: str, turns: int) -> None:
    given = {"embedding__provider": "none", "strategies__enabled": False, "index__engine": engine}
    async with cairn.open(folder, **given) as memory:
        await _said(memory, 12)
        parts, from_tables = memory.parts, 0
        parts.answering._large._whole_rows = 0
        result = await memory.search("river", user_id="ann", method="keyword", top_k=50, consistency="strong")
        assert len(result.episodes) == 12
        stop = threading.Event()
        asked = 0

        def remove() -> None:
            nonlocal from_tables
            for turn in range(1, turns + 1):
                if engine == "lancedb":
                    parts.lance.fold(parts.index)
                    until(lambda turn=turn: asked >= 5 * turn - 3 or stop.is_set())
                    from_tables += isinstance(parts.answering(ANN), LargeIndex)
                shutil.rmtree(folder / ".index", ignore_errors=True)
                until(lambda turn=turn: asked >= 5 * turn or stop.is_set())
            stop.set()

        thread = threading.Thread(target=remove)
        thread.start()
        try:
            while not stop.is_set():
                found = await memory.search("river", user_id="ann", method="keyword", top_k=50)
                listed = await memory.get("episode", user_id="ann", page_size=50)
                asked += 1
                assert len(found.episodes) == 12, found.freshness
                assert listed.total_count == 12 or listed.freshness.state == "rebuilding", listed.freshness
        finally:
            stop.set()
            thread.join()
        await memory.search("river", user_id="ann", consistency="strong")
        listed = await memory.get("episode", user_id="ann", consistency="strong")
        assert (listed.total_count, listed.freshness.state) == (12, "fresh")
        assert (from_tables > 0) == (engine == "lancedb")


@pytest.mark.parametrize(
    ("engine", "turns"),
    [("memory", 8), pytest.param("lancedb", 3, marks=pytest.mark.xdist_group("lance"))],
)
def test_every_answer_is_whole_or_marked_while_the_index_is_removed(tmp_path, engine, turns):
    """Design 5: no error to any caller; searches stay whole from the notes; pages are whole or say "rebuilding"."""
    import asyncio

    asyncio.run(_run(tmp_path, engine, turns))


class Tripwire:
    """A queue or an index before whose n-th call, counted over both, something happens."""

    def __init__(self, part, before):
        self._part = part
        self._before = before

    def __getattr__(self, name):
        self._before()
        return getattr(self._part, name)


def _rebuilt_with_a_loss(world: Indexed, entries: list[str], lost: str, at: int) -> bool:
    """Rebuild an index and lose files before step `at`; False once there are fewer steps than that."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            for file in (world.folder / ".index" / "sqlite").glob(lost):
                file.unlink()

    world.index.clear()
    indexer = world.indexer
    indexer._queue, indexer._index = Tripwire(world.state, step), Tripwire(world.index, step)
    for act in (indexer.begin, lambda: indexer.drain(1), indexer.ensure_ready, indexer.drain):
        act()
        if indexer.status().state == "fresh":
            assert world.hits("heron") == entries, f"{lost} lost before step {at}: fresh, and not whole"
    indexer._queue, indexer._index = world.state, world.index
    world.waits.wait()
    assert (world.hits("heron"), indexer.status().state) == (entries, "fresh"), (lost, at)
    return steps >= at


@pytest.mark.parametrize("lost", ["*", "system.db*", "index.db*", "*-[ws][ah][lm]"])
def test_files_lost_at_any_step_of_a_rebuild_leave_nothing_half_made(tmp_path, lost):
    """Design 2: whatever goes before whichever step, "fresh" is said of a whole index only, and it comes true."""
    world = Indexed(tmp_path)
    entries = sorted(world.episode(f"a heron number{n}", day=f"2026-06-0{n}") for n in (1, 2))
    at = 1
    while _rebuilt_with_a_loss(world, entries, lost, at):
        at += 1
    world.close()
    assert at > 20


def test_the_rebuild_of_one_holder_is_not_ended_by_the_scan_of_another(tmp_path):
    """Design 6: the lease changed hands and came back; the first holder's own scan is void since the second's."""
    world = Indexed(tmp_path)
    entry = world.episode("a heron by the weir")
    world.indexer.ensure_ready()
    other = Indexer(
        storage=world.storage,
        sessions=world.sessions,
        locks=world.locks,
        queue=world.state,
        index=world.index,
    )
    other.ensure_ready()
    world.indexer.ensure_ready()
    assert world.indexer.status().state == "rebuilding"
    world.indexer.drain()
    assert (world.hits("heron"), world.indexer.status().state) == ([entry], "fresh")
    world.close()


def test_a_log_that_is_removed_alone_is_not_passed_over(tmp_path):
    """A slow `rm -rf` meets files made anew: their logs go, the files stay. No reader may see the rest as all."""
    world = Indexed(tmp_path)
    first = world.episode("a heron by the weir")
    world.sync()
    world.index.database.shrink()  # what was indexed so far is in the file itself, the rest in its log
    second = world.episode("a heron on the roof", day="2026-06-02")
    world.sync()
    for side in ("-wal", "-shm"):
        (tmp_path / ".index" / "sqlite" / f"index.db{side}").unlink()

    def seen_by_another_thread() -> tuple[list[str], str]:
        return world.hits("heron"), world.indexer.status().state

    with ThreadPoolExecutor(1) as pool:
        hits, state = pool.submit(seen_by_another_thread).result()
        assert state == "rebuilding" or hits == sorted([first, second])
        world.sync()
        assert pool.submit(seen_by_another_thread).result() == (sorted([first, second]), "fresh")
    world.close()


def test_a_scan_that_could_not_be_queued_makes_no_index_complete(tmp_path, monkeypatch):
    """A full disk while a rebuild begins: nothing was queued, so nothing is called done."""
    world = Indexed(tmp_path)
    entry = world.episode("a heron by the weir")
    world.sync()
    world.index.clear()

    def refused(_changes) -> int:
        world.state._lost = True  # what `enqueue` does where the queue cannot be written
        return world.state.last_lsn()

    with monkeypatch.context() as full:
        full.setattr(world.state, "enqueue", refused)
        world.indexer.ensure_ready()
        assert world.indexer.status().state == "rebuilding"
    world.sync()
    assert (world.hits("heron"), world.indexer.status().state) == ([entry], "fresh")
    world.close()
