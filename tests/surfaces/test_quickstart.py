"""docs/quickstart.md, followed by copy and paste, works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.served import free_port

PAGE = Path(__file__).parent.parent.parent / "docs" / "quickstart.md"


@pytest.mark.timeout(180)
def test_the_quickstart_runs_by_copy_and_paste(tmp_path):
    """Every shell block in order in one shell, and the Python block, end without an error and find what they should."""
    # A person waits two seconds and looks; on a machine with much else to do the test waits until it is up.
    up = "for n in $(seq 150); do curl -s localhost:8123/health >/dev/null && break; sleep 0.2; done"
    text = PAGE.read_text(encoding="utf-8").replace("sleep 2\n", up + "\n").replace("8123", str(free_port()))
    shell = [
        block for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL) if "make run" not in block
    ]
    shim = tmp_path / "bin"
    shim.mkdir()
    (shim / "cairn").write_text(f'#!/bin/sh\nexec {sys.executable} -m cairn.surfaces.cli "$@"\n')
    (shim / "cairn").chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    env = {
        **clean,
        "PATH": f"{shim}:{os.environ['PATH']}",
        "CAIRN_MEMORY__ROOT": str(tmp_path / "memory"),
    }
    script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(shell)
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Lisbon" in done.stdout
    assert "Mochi" in done.stdout
    assert "5433" in done.stdout.rsplit('"data"', 1)[1]
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    assert "peanuts" in told.stdout
