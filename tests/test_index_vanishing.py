"""`rm -rf .index` in the middle of an answer: never half of the truth under the name of the whole."""

from __future__ import annotations

import shutil
import threading
import time

import cairn
from cairn.types import Message


async def _said(memory, count: int) -> None:
    for number in range(count):
        at = 1_780_000_000_000 + number * 1000
        await memory.add(f"s{number}", [Message("ann", "user", at, f"the river number{number} is wide")])
        await memory.flush(f"s{number}")


async def _run(folder) -> None:
    async with cairn.open(folder, embedding__provider="none", strategies__enabled=False) as memory:
        await _said(memory, 12)
        result = await memory.search("river", user_id="ann", method="keyword", top_k=50, consistency="strong")
        assert len(result.episodes) == 12
        stop = threading.Event()

        def remove() -> None:
            for _ in range(8):
                shutil.rmtree(folder / ".index", ignore_errors=True)
                time.sleep(0.15)
            stop.set()

        thread = threading.Thread(target=remove)
        thread.start()
        asked = marked = 0
        while not stop.is_set():
            found = await memory.search("river", user_id="ann", method="keyword", top_k=50)
            listed = await memory.get("episode", user_id="ann", page_size=50)
            asked += 1
            marked += found.freshness.state == "rebuilding"
            assert len(found.episodes) == 12, found.freshness
            assert listed.total_count == 12 or listed.freshness.state == "rebuilding", listed.freshness
        thread.join()
        assert asked > 0
        await memory.search("river", user_id="ann", consistency="strong")
        listed = await memory.get("episode", user_id="ann", consistency="strong")
        assert (listed.total_count, listed.freshness.state) == (12, "fresh")


def test_every_answer_is_whole_or_marked_while_the_index_is_removed(tmp_path):
    """Design 5: no error to any caller; searches stay whole from the notes; pages are whole or say "rebuilding"."""
    import asyncio

    asyncio.run(_run(tmp_path))
