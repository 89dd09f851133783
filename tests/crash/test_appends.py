"""kill -9 in the middle of appends, with real processes on a real disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

ALICE = Scope(Space(), "user", "alice")
NOTE = KINDS["episode"].locator(ALICE, "2026-06-01")

# Each acknowledged entry is told on standard output by one write, so a kill cannot tear or invent a line.
WRITER = """
import os, sys, threading
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

root, name, threads, appends = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
notebook = Notebook(DeviceLocalBackend(root), FileLocks(root + "/.tmp/locks"))
alice = Scope(Space(), "user", "alice")

def work(thread):
    for n in range(appends // threads):
        said = f"{name}-{thread}-{n}"
        (written,) = notebook.append("episode", alice, "2026-06-01", [Draft({"said": said}, {"Content": "<!-- entry:x -->"})])
        os.write(1, f"{written.entry_id} {said}\\n".encode())

workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


def start(root: Path, name: str, threads: int, appends: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(root), name, str(threads), str(appends)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "src"}
    )


def told(process: subprocess.Popen[str], lines: int | None = None) -> list[str]:
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.strip())
        if lines is not None and len(found) >= lines:
            break
    return found


@pytest.mark.parametrize("threads", [1, 4])
def test_killed_in_the_middle_of_500_appends(tmp_path: Path, threads: int):
    """P1 E84: the note is readable and holds every acknowledged entry; the next append goes on from there."""
    with start(tmp_path, "w", threads, 500) as process:
        acknowledged = told(process, random.Random(threads).randrange(60, 440))
        process.send_signal(signal.SIGKILL)
        acknowledged += told(process)
    assert process.returncode == -signal.SIGKILL, "it was killed, not finished"

    notebook = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks"))
    note = notebook.read(NOTE)
    found = [f"{e.id} {e.inline['said']}" for e in note.entries]
    assert note.problems == ()
    assert set(acknowledged) <= set(found)
    assert len(found) <= len(acknowledged) + threads, "at most the appends under way are there unasked"
    assert len({e.id for e in note.entries}) == len(found)
    (written,) = notebook.append("episode", ALICE, "2026-06-01", [Draft()])
    assert int(written.entry_id[-8:]) == len(found) + 1


def test_one_of_two_writers_is_killed_and_the_other_goes_on(tmp_path: Path):
    """P1 P4: a dead process leaves its lock free and loses nothing of the other's."""
    with start(tmp_path, "victim", 2, 400) as victim, start(tmp_path, "other", 2, 120) as other:
        acknowledged = told(victim, 25)
        victim.send_signal(signal.SIGKILL)
        acknowledged += told(victim) + told(other)
    assert other.returncode == 0

    note = Notebook(DeviceLocalBackend(tmp_path), FileLocks(tmp_path / ".tmp" / "locks")).read(NOTE)
    found = [f"{e.id} {e.inline['said']}" for e in note.entries]
    assert note.problems == ()
    assert set(acknowledged) <= set(found)
    assert len({line.split()[1] for line in found}) == len(found), "nothing twice"
    assert sum("other" in line for line in found) == 120
