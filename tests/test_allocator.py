"""The allocator of a server gives memory back, and its products take one thread each."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
from cairn.engines import allocator

assert allocator.settle()

def resident():
    with open("/proc/self/statm") as lines:
        return int(lines.read().split()[1]) * 4096

def work():
    for _ in range(40):
        [bytearray(300_000) for _ in range(8)]

threads = [threading.Thread(target=work) for _ in range(16)]
before = resident()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
allocator.trim()
print((resident() - before) // 1_000_000)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the settings are those of glibc")
def test_large_texts_of_many_threads_are_given_back():
    """Sixteen threads that made and dropped large texts leave less than one text each behind."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 5


@pytest.mark.parametrize(("wish", "threads"), [(None, "1"), ("3", "3")])
def test_products_of_a_command_run_on_the_thread_that_asks(monkeypatch, wish, threads):
    """Shared out, small products cost twice the processor time; whoever wants it otherwise says so."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if wish:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", wish)
    ask = (
        "import contextlib, os\nfrom cairn.surfaces.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--version'])\nprint(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == threads
