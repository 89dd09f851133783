"""A process whose disk refuses beyond a size: the kernel says no, not a double. Run by test_capture_disk."""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

from cairn.errors import StorageFailed
from cairn.seams import SystemClock
from tests.world import World, said


def main(root: str) -> None:
    """Add until refused, then lift the limit and go on; prints how often each happened."""
    kit = World(Path(root), capture__max_messages=7, clock=SystemClock())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = refused = 0
    for limit in (3_000, 9_000, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
        for n in range(60):
            text = f"<{limit}-{n}>" + " lantern" * 8
            try:
                kit.add(f"s{n % 2}", said(text, n))
                kept += 1
                print("kept", f"<{limit}-{n}>")
            except StorageFailed:
                refused += 1
                print("refused", f"<{limit}-{n}>")
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        for n in range(2):
            kit.flush(f"s{n}")
    assert kept
    assert refused


if __name__ == "__main__":
    main(sys.argv[1])
