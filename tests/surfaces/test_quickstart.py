"""docs/quickstart.md, followed by copy and paste, works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.served import free_port

PAGE = Path(__file__).parent.parent.parent / "docs" / "quickstart.md"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cache", ["the user's cache", "an empty cache"])
def test_the_quickstart_runs_by_copy_and_paste(tmp_path, cache):
    """Every shell block in order in one shell, and the Python block, end without an error and find what they should.

    With what models this machine has, and without any: the page promises both.
    """
    text = PAGE.read_text(encoding="utf-8").replace("8123", str(free_port()))
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
    if cache == "an empty cache":
        env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    script = "set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(shell)
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Lisbon" in done.stdout
    assert "My cat Miso hates the new sofa." in done.stdout
    if cache == "an empty cache":
        assert "not installed" in done.stdout
    assert "Mochi" in done.stdout
    assert "5433" in done.stdout.rsplit('"data"', 1)[1]
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=500)
    assert told.returncode == 0, told.stderr
    assert "peanuts" in told.stdout
