"""Storage under fire: writers killed at random instants, dead holders of the vault, and links swapped in.

Each round starts real processes on a fresh tree, kills them at random, and looks at what is left: every
acknowledged line is there once, every text is whole, nothing outside the root was touched.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.vault import VaultBackend
from cairn.errors import CairnError
from cairn.seams import Locator

AT = Locator("app/x.jsonl")

_APPENDER = """
    import sys
    from cairn.engines.journals import FileJournals
    from cairn.seams import Locator
    root, who = sys.argv[1:]
    journals, n = FileJournals(root), 0
    while True:
        journals.append(Locator("app/x.jsonl"), [f"{who}.{n}", "x" * (n * 997 % 30_000), f"{who}.{n} end"])
        print(f"{who}.{n}", flush=True)
        n += 1
"""

_SWAPPER = """
    import sys
    from cairn.engines.vault import VaultBackend
    from cairn.errors import Conflict, Unavailable
    from cairn.seams import Locator, content_hash
    root, who = sys.argv[1:]
    vault = VaultBackend(root + "/tree", cache=root + "/cache", stale_seconds=0.15, heartbeat_seconds=0.04)
    n = 0
    while True:
        seen = vault.read(Locator("n.md"))
        try:
            vault.write(Locator("n.md"), seen + f"{who}.{n}\\n", expect=content_hash(seen))
        except (Conflict, Unavailable):
            continue
        print(f"{who}.{n}", flush=True)
        n += 1
"""


def run(seconds: float, seed: int) -> dict[str, int]:
    """Rounds of all three until the time is up; at least one of each. Raises on a violation."""
    until = time.monotonic() + seconds
    chance = random.Random(seed)
    total = {"rounds": 0, "kills": 0, "acknowledged": 0, "links": 0}
    while total["rounds"] == 0 or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            root = Path(folder)
            total["acknowledged"] += _kill_appenders(root / "journal", chance, total)
            total["acknowledged"] += _kill_swappers(root / "vault", chance, total)
            total["links"] += _swap_links(root / "links", chance)
        total["rounds"] += 1
    return total


def _killed(code: str, root: Path, chance: random.Random, total: dict[str, int], writers: int) -> list[str]:
    """Start writers one after another, kill each at a random instant; what they acknowledged."""
    children = []
    for number in range(writers):
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code), str(root), f"w{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    acknowledged: list[str] = []
    for child in children:
        assert child.stdout is not None
        acknowledged.append(child.stdout.readline().strip())
        time.sleep(chance.uniform(0, 0.05))
        child.kill()
        # The last line may be cut: only whole ones were acknowledged.
        acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
        child.wait()
        child.stdout.close()
        total["kills"] += 1
    return [line for line in acknowledged if line]


def _kill_appenders(root: Path, chance: random.Random, total: dict[str, int]) -> int:
    acknowledged = _killed(_APPENDER, root, chance, total, writers=3)
    journals = FileJournals(root)
    journals.append(AT, ["after.0", "", "after.0 end"])
    lines = journals.read(AT).lines
    begins, ends = lines[::3], lines[2::3]
    if [f"{begin} end" for begin in begins] != list(ends):
        raise AssertionError("a unit of the journal is not whole")
    _compare(acknowledged, list(begins))
    return len(acknowledged)


def _kill_swappers(root: Path, chance: random.Random, total: dict[str, int]) -> int:
    vault = VaultBackend(root / "tree", cache=root / "cache", stale_seconds=0.15)
    vault.write(Locator("n.md"), "")
    acknowledged = _killed(_SWAPPER, root, chance, total, writers=3)
    text = vault.read(Locator("n.md"))
    vault.write(Locator("n.md"), text + "after\n")
    if vault.list(Locator()) != [Locator("n.md")]:
        raise AssertionError("something other than the note lies in the vault")
    _compare(acknowledged, text.splitlines())
    return len(acknowledged)


def _compare(acknowledged: list[str], found: list[str]) -> None:
    missing = set(acknowledged) - set(found)
    if missing:
        raise AssertionError(f"acknowledged but missing: {sorted(missing)[:5]}")
    if len(set(found)) != len(found):
        raise AssertionError("a line is there twice")


def _swap_links(root: Path, chance: random.Random) -> int:
    """One thread swaps a folder for a link out of the root and back; writers must never follow it."""
    outside = root / "outside"
    outside.mkdir(parents=True)
    backend = DeviceLocalBackend(root / "tree")
    backend.mkdir(Locator("d"))
    stop = threading.Event()

    def swap() -> None:
        folder, aside = root / "tree" / "d", root / "tree" / "aside"
        while not stop.is_set():
            with suppress(OSError):
                folder.rename(aside)
                folder.symlink_to(outside)
                time.sleep(0)
                folder.unlink()
                if folder.exists():
                    shutil.rmtree(folder)
                aside.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    tried = 0
    until = time.monotonic() + chance.uniform(0.3, 0.6)
    while time.monotonic() < until:
        tried += 1
        with suppress(CairnError):
            backend.write(Locator(f"d/n{tried % 7}.md"), "inside")
        with suppress(CairnError):
            FileJournals(root / "tree").append(Locator("d/j.jsonl"), ["inside"])
        with suppress(CairnError):
            backend.mkdir(Locator("d/sub/deeper"))
    stop.set()
    thread.join()
    if os.listdir(outside):
        raise AssertionError(f"written outside the root: {os.listdir(outside)}")
    return tried
