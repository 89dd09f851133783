"""A disk that refuses: a named error, nothing kept is lost, and work goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.world import World


def test_a_disk_that_refuses_loses_nothing_it_kept(tmp_path):
    """P9: the kernel refuses writes beyond a size in the middle of adds and episodes; what was kept is told once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.talk_disk", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    kit = World(tmp_path)
    assert kit.capture.recover(everywhere=True) == 0
    for session in ("s0", "s1"):
        kit.flush(session)
    logged = [m.text.split()[0] for session in ("s0", "s1") for m in kit.log(session).messages]
    told = kit.told()
    for line in done.stdout.splitlines():
        fate, token = line.split()
        if fate == "kept":
            assert logged.count(token) == 1
            assert told.count(token) == 1
        else:
            assert logged.count(token) <= 1
            assert told.count(token) == logged.count(token)
    assert kit.log("s0").skipped_lines == 0
