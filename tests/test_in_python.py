"""The library as programs use it: forks, calls given up on, paths and times as objects, values that fit nowhere."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import cairn
from tests.waiting import LONG


def said(words, at=0):
    return [{"sender_id": "ann", "role": "user", "timestamp": 1780300000000 + at, "content": words}]


def test_a_memory_is_of_the_process_that_opened_it(tmp_path):
    """A child made by fork is told so at once (its threads stayed with the parent), and takes nothing from the parent by
    leaving.
    """
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s1", said("I keep bees."))
        child = os.fork()
        if child == 0:
            signal.alarm(120)  # hanging, not slowness
            code = 3
            try:
                memory.search("bees", user_id="ann")
            except cairn.Invalid as refused:
                memory.__exit__(None, None, None)
                code = 0 if "fork before opening one" in str(refused) else 4
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        memory.flush("s1")
        found = memory.search("what does she keep", user_id="ann", consistency="strong", method="keyword")
        assert [one.session_id for one in found.episodes] == ["s1"]


def test_a_child_of_a_process_with_an_open_memory_is_told_to_fork_first(tmp_path):
    """A lock that a thread of the parent held at the fork would hold the child for ever. A child of a parent that has
    closed its memory, or of one that never had one, opens its own.
    """

    def child(root):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.apply_async(opened_there, (root,)).get(120)

    with cairn.open_blocking(tmp_path / "a", embedding__provider="none") as memory:
        memory.add("s1", said("I keep bees."))
        for root in (tmp_path / "a", tmp_path / "b"):
            assert "fork first and open it in each child" in child(root)
        assert not (tmp_path / "b").exists()
        memory.add("s1", said("And hens.", 1))
    assert child(tmp_path / "a") == "1 added"


def opened_there(root):
    try:
        with cairn.open_blocking(root, embedding__provider="none") as memory:
            return f"{memory.add('s2', said('Said by a child.')).message_count} added"
    except cairn.Invalid as refused:
        return str(refused)


def test_calls_that_were_given_up_on_end_before_the_memory_closes(tmp_path):
    """What a cancelled call still does is done on an open memory, whole, and nobody hears of how it ended."""
    heard = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        async with cairn.open(tmp_path, embedding__provider="none") as memory:
            await memory.add("s1", said("I keep bees."))
            for number in range(40):
                task = asyncio.create_task(
                    memory.search("hive", user_id="ann", consistency="strong")
                    if number % 2
                    else memory.add("s1", said(f"Hive number {number}.", number + 1))
                )
                await asyncio.sleep(number % 4 * 0.0005)
                task.cancel()
            parts = memory.parts
            real, open_calls = parts.close, []
            parts.close = lambda: (open_calls.append(len(memory.pools._running) - 1), real())
        gc.collect()
        await asyncio.sleep(0)
        return open_calls

    assert asyncio.run(run()) == [0]
    gc.collect()
    assert not heard


def test_paths_and_times_may_be_objects(tmp_path):
    with cairn.open_blocking(tmp_path / "root", embedding__provider="none", background=False) as memory:
        memory.add("s1", said("I keep bees."))
        memory.flush("s1")
        copied = memory.export_to(tmp_path / "copy")
        assert copied["target"] == str(tmp_path / "copy")
        assert Path(memory.backup(tmp_path)["target"]).is_file()
        day = datetime(2026, 6, 1, tzinfo=UTC)
        assert len(memory.timeline(since=day, until=date(2026, 6, 1))["entries"]) == 1
        assert not memory.timeline(until=day)["entries"]


def test_what_fits_nowhere_is_refused_by_name(tmp_path):
    itself: dict[str, object] = {}
    itself["me"] = itself
    with cairn.open_blocking(tmp_path, embedding__provider="none", background=False) as memory:
        for call in (
            lambda: memory.add("s1", said("I keep bees."), metadata=itself),
            lambda: memory.search(b"bees", user_id="ann"),
            lambda: memory.timeline(since=5),
        ):
            with pytest.raises(cairn.Invalid, match=r"metadata|query: must be a text|since"):
                call()


def test_what_stands_for_a_field_is_taken(tmp_path):
    """Tuples, sets and generators for lists, other mappings for objects, whole numbers of NumPy, days and paths."""
    document = tmp_path / "hives.md"
    document.write_text("# Hives\n\nThe hives stand behind the barn.\n")
    with cairn.open_blocking(tmp_path / "root", embedding__provider="none", background=False) as memory:
        memory.add(
            "s1", (one for one in said("I keep bees.")), tags={"farm"}, metadata=MappingProxyType({"n": 1})
        )
        memory.flush("s1")
        found = memory.search(
            "bees", user_id="ann", top_k=np.int64(3), min_score=np.float32(0), filters={"tags": "farm"},
            as_of=datetime(2100, 1, 1, tzinfo=UTC), consistency="strong",
        )  # fmt: skip
        assert [one.fields["Content"] for one in found.episodes]
        assert memory.knowledge_add((path for path in [document]), category="farm")
        assert len(memory.timeline(until=date.max)["entries"]) == len(memory.timeline()["entries"]) > 0


def test_a_day_lasts_until_midnight_where_it_has_25_hours(tmp_path):
    late = (
        int(datetime(2026, 10, 25, 22, 30, tzinfo=UTC).timestamp() * 1000) - said("")[0]["timestamp"]
    )  # 23:30 there
    with cairn.open_blocking(
        tmp_path, embedding__provider="none", background=False, memory__timezone="Europe/Berlin"
    ) as memory:
        memory.add("s1", said("I keep bees.", late))
        memory.flush("s1")
        day = memory.timeline(since="2026-10-25", until="2026-10-25")
        assert [one["kind"] for one in day["entries"]] == ["episode"]
        assert not memory.timeline(until="2026-10-24")["entries"]
        assert memory.timeline(until="20261025")["entries"] == day["entries"]


def test_whoever_enters_an_open_memory_shares_it(tmp_path):
    """A part of a program that enters the memory it was handed does not close it for the others; the last one does."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        with memory as same:
            same.add("s1", said("I keep bees."))
        memory.add("s1", said("And a goat.", 1))
        assert len(memory.unprocessed("s1")) == 2
    with pytest.raises(cairn.Invalid, match="not open"):
        memory.unprocessed("s1")
    with memory:
        assert len(memory.unprocessed("s1")) == 2

    async def handlers():
        async def handler(number):
            async with shared:
                await shared.add("s2", said(f"I am number {number}.", number))

        shared = cairn.open(tmp_path, embedding__provider="none")
        await asyncio.gather(*map(handler, range(8)))
        async with shared:
            await asyncio.gather(*map(handler, range(8, 12)))
            return len(await shared.unprocessed("s2"))

    assert asyncio.run(handlers()) == 12


def test_a_memory_that_nobody_closes_is_closed_when_the_program_ends(tmp_path):
    """A notebook, or a server that keeps one for good: no thread of it is cut off in the middle of the model's loading."""
    program = (
        "import atexit, sys, cairn\n"
        "def look():\n"
        "    try: memory.parts\n"
        "    except cairn.Invalid: print('closed')\n"
        "atexit.register(look)  # runs after what is registered later\n"
        "memory = cairn.open_blocking(sys.argv[1]).__enter__()\n"
        "memory.remember('Deploys wait for the migration job.', 'gotcha')\n"
        "print(len(memory.memories.list().memories))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "root")],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\nclosed\n", "")


def test_one_memory_serves_several_event_loops(tmp_path):
    """Frameworks run a loop of their own in a thread: calls beyond what runs at a time wait in each of them."""

    async def many(memory):
        found = await asyncio.gather(*(memory.unprocessed("s1") for _ in range(40)))
        return {len(one) for one in found}

    async def two():
        async with cairn.open(tmp_path, embedding__provider="none") as memory:
            await memory.add("s1", said("I keep bees."))
            return await many(memory), await asyncio.to_thread(lambda: asyncio.run(many(memory)))

    assert asyncio.run(two()) == ({1}, {1})


def test_a_memory_cannot_be_sent_to_another_process(tmp_path):
    """Pickled or copied it is refused by what to do instead; what it answers may be sent anywhere."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s1", said("I keep bees."))
        found = memory.search("bees", user_id="ann")
        assert pickle.loads(pickle.dumps(found)) == found
        for one in (memory, memory.memories, cairn.open(tmp_path)):
            for way in (pickle.dumps, copy.deepcopy):
                with pytest.raises(cairn.Invalid, match="hand on its root"):
                    way(one)
