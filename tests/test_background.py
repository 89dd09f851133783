"""The table of background life is what really runs: looked at in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cairn
from cairn.background import CHORES, WORKERS

LOOK = """
import json, sys, threading, cairn
from cairn.background import WORKERS
from tests.waiting import until

steady = {f"cairn-{one.name}" for one in WORKERS} - {"cairn-recover"}  # which ends as soon as it is done
with cairn.open_blocking(sys.argv[1], embedding__provider="none") as memory:
    memory.add("s", [{"role": "user", "content": "I moved to Lisbon."}], user_id="ana")
    memory.flush("s")
    seen = set()
    until(lambda: seen.update(one.name for one in threading.enumerate()) or steady <= seen)
print(json.dumps(sorted(seen)))
"""


def test_every_thread_of_an_open_memory_stands_in_the_table(tmp_path: Path) -> None:
    """A memory that is held open has the threads of the table, all of them, and no other of ours."""
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path / "root")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    ours = {name for name in json.loads(ran.stdout) if name.startswith("cairn-")}
    declared = {f"cairn-{one.name}" for one in WORKERS}
    assert declared - {"cairn-recover"} <= ours <= declared
    assert len({task.name for task in CHORES}) == len(CHORES)


def test_a_root_has_the_chores_that_can_find_something_in_it(tmp_path: Path) -> None:
    """What only other machines or sync programs give cause for is no chore of a folder that one machine uses."""
    found = {}
    for backend in ("device-local", "vault"):
        settings = {"storage__backend": backend, "embedding__provider": "none"}
        with cairn.open_blocking(tmp_path / backend, background=False, **settings) as memory:
            found[backend] = [task.name for task in CHORES if task.is_for(memory.parts)]
    beside = {"follow tokens", "forget what others forgot"}
    assert {task.name for task in CHORES} - {*found["vault"]} == beside
    assert {*found["vault"]} - {*found["device-local"]} == {"merge conflict copies"}
