"""Forgetting that is killed on the way: the same call made again ends it, and so does the next start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cairn
from cairn.governed import unfinished
from tests import held
from tests.waiting import until

WORDS = "Plumkin|bay nineteen|vermilion"
ENV = {"CAIRN_EMBEDDING__PROVIDER": "none"}
CALLS = {
    "session": {"call": "forget_session", "session_id": "s1"},
    "person": {"call": "forget_person", "user_id": "dana", "shared": True},
    "memory": {"call": "forget", "memory_id": "dana_mem_{day}_00000001"},
}


def said(who, words, at):
    return {"sender_id": who, "role": "user", "timestamp": 1780300000000 + at * 1000, "content": words}


def fill(root: Path, what: str) -> dict[str, object]:
    """A root whose vermilion words all go with what the call names; returns the call."""
    with cairn.open_blocking(root, embedding__provider="none", background=False) as memory:
        call = dict(CALLS[what])
        if what == "memory":
            made = memory.remember(
                "The boat Plumkin lies in bay nineteen.", scope="user", owner="dana"
            ).memory
            memory.memories.edit(
                made["id"], content="The boat Plumkin lies in bay nineteen, painted vermilion."
            )
            call["memory_id"] = made["id"]
        else:
            memory.add("s1", [said("dana", "My cat Plumkin sleeps in bay nineteen.", 0)])
            memory.flush("s1")
            found = memory.timeline(kind="episode")["entries"][0]["id"]
            shown = memory.show(found)
            memory.revise(
                found, shown["source"].replace("sleeps", "dozes, vermilion,"), expect=shown["version"]
            )
        if what == "person":
            memory.add(
                "both", [said("dana", "Plumkin likes bay nineteen.", 9), said("bob", "I like tea.", 10)]
            )
            memory.flush("both")
        memory.add("s2", [said("bob", "My dog is called Rex.", 20)])
        memory.flush("s2")
        memory.parts.engine.run_due(seconds=30)
        memory.checkpoint("now")
        memory.sync()
    left = (
        root / "default_app/default_project/users/dana" / f".note.md.tmp.{'a1' * 16}"
    )  # by a write that was killed
    left.write_text("Plumkin")
    os.utime(left, (1780300000, 1780300000))
    assert held.holding(root, WORDS, pattern=True)
    return call


def killed(root: Path, call: dict[str, object], at: int) -> subprocess.CompletedProcess[str]:
    worker = str(Path(__file__).with_name("forget_worker.py"))
    command = [sys.executable, "-P", worker, str(root), json.dumps(call), str(at)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ENV}, check=False)


@pytest.mark.parametrize("what", list(CALLS))
def test_a_forgetting_that_was_killed_is_ended_by_the_next(tmp_path, what):
    """At every few of its writes: whoever asks again, or starts next, leaves not a byte; what others said stays."""
    full = tmp_path / "full"
    call = fill(full, what)
    writes = killed(shutil.copytree(full, tmp_path / "whole"), call, 0)
    assert writes.returncode == 0, writes.stderr
    assert not held.holding(tmp_path / "whole", WORDS, pattern=True)
    total, cut = int(writes.stdout), 0
    for number, at in enumerate(sorted({2, *range(3, total + 1, max(total // 3, 1)), total})):
        root = shutil.copytree(full, tmp_path / f"{at}")
        died = killed(root, call, at)
        cut += died.returncode == 9
        again = number % 2 == 0  # in turn: asked again, or merely started
        with cairn.open_blocking(root, embedding__provider="none", background=not again) as memory:
            if again:
                asked = {name: value for name, value in call.items() if name != "call"}
                receipt = getattr(memory.memories if what == "memory" else memory, str(call["call"]))(**asked)
                assert receipt.complete, (at, receipt)
            else:
                until(lambda memory=memory: not list(unfinished.calls(memory.parts.storage)), "it is ended")
            assert "Rex" in str(memory.search("dog", user_id="bob", consistency="strong").episodes)
        assert not held.holding(root, WORDS, pattern=True), (at, died.returncode)
        shutil.rmtree(root)
    assert cut > 2
