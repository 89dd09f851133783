"""P9 end to end: a small disk that fills up, or turns read-only, under an open memory."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import cairn
from cairn.errors import CairnError, Unavailable
from cairn.notes.kinds import KINDS
from tests.chaos import faults
from tests.chaos.world import FIRST_DAY, TOKEN


@contextmanager
def small_disk(at: Path, megabytes: int = 16):
    """A file system of its own, of a few megabytes; the test is skipped where none may be mounted."""
    at.mkdir()
    mount = shutil.which("mount")
    done = (
        subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at)],
            check=False,
            capture_output=True,
        )
        if mount
        else None
    )
    if done is None or done.returncode:
        pytest.skip("no file system may be mounted here: " + (done.stderr.decode() if done else "no mount"))
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


LONG = "zqcccccc likes tea" + " and honey from the garden" * 400


def message(token: str, n: int) -> dict:
    return {
        "sender_id": "ana",
        "role": "user",
        "timestamp": FIRST_DAY + n * 1000,
        # Longer than what the last block of a file has left: a short line still fits a full disk.
        "content": f"The lantern is called {token}." + " It hangs in the hall." * 400,
    }


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def told(root: Path) -> Counter[str]:
    return Counter(
        token
        for path in root.glob("*/*/users/ana/episodes/*.md")
        for entry in KINDS["episode"].parse(path.read_text()).entries
        for token in TOKEN.findall(entry.sections["Content"])
    )


def opened(root: Path):
    return cairn.open_blocking(root, embedding__provider="none", background=False)


@pytest.mark.slow
def test_a_disk_that_fills_up_and_is_freed_again(tmp_path):
    """P9: full: every write is refused by name, what was kept stays; freed: the same calls succeed without help."""
    with small_disk(tmp_path / "disk") as disk:
        root = disk / "root"
        with opened(root) as memory:
            memory.add("s1", [message("zqaaaaaa", 1)])
            memory.flush("s1")
            ballast = fill(disk)
            for call in (
                lambda: memory.add("s1", [message("zqbbbbbb", 2)]),
                lambda: memory.parts.keeper.remember(LONG, scope="user", owner="ana"),
            ):
                with pytest.raises(Unavailable) as refused:
                    call()
                assert "zq" not in str(refused.value)
            assert told(root) == {"zqaaaaaa": 1}
            found = memory.search("zqaaaaaa", user_id="ana", method="keyword")
            assert [hit.entry_id for hit in found.episodes]

            ballast.unlink()
            memory.add("s1", [message("zqbbbbbb", 2)])
            memory.flush("s1")
            memory.parts.keeper.remember(LONG, scope="user", owner="ana")
            found = memory.search("zqbbbbbb", user_id="ana", method="keyword", consistency="strong")
            assert [hit.entry_id for hit in found.episodes]
        assert told(root) == {"zqaaaaaa": 1, "zqbbbbbb": 1}


@pytest.mark.slow
def test_opened_on_a_full_disk_it_reads_or_refuses_by_name(tmp_path):
    """P9: a root on a full disk either opens for reading or says why not; freed, it works as before."""
    with small_disk(tmp_path / "disk") as disk:
        root = disk / "root"
        with opened(root) as memory:
            memory.add("s1", [message("zqaaaaaa", 1)])
            memory.flush("s1")
        shutil.rmtree(root / ".index")
        ballast = fill(disk)
        with suppress(CairnError), opened(root) as memory:
            found = memory.search("zqaaaaaa", user_id="ana", method="keyword")
            assert [hit.entry_id for hit in found.episodes]
        ballast.unlink()
        with opened(root) as memory:
            found = memory.search("zqaaaaaa", user_id="ana", method="keyword", consistency="strong")
            assert [hit.entry_id for hit in found.episodes]


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [True, False], ids=["full", "read-only"])
def test_what_is_kept_is_told_where_nothing_can_be_written(tmp_path, is_full):
    """P9: every way of asking answers from the notes where no index can be opened, and says so."""
    with small_disk(tmp_path / "disk") as disk:
        root = disk / "root"
        with opened(root) as memory:
            plan = message("zqaaaaaa: I have a dentist appointment tomorrow.", 1)
            memory.add("s1", [{**plan, "timestamp": int(time.time() * 1000)}])
            memory.flush("s1")
            memory.parts.engine.run_due(seconds=30.0)
            memory.sync()
            assert memory.upcoming()["entries"]
        fill(disk) if is_full else subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        asks = {
            "recall": lambda memory: memory.recall("zqaaaaaa dentist", user_id="ana").prompt,
            "brief": lambda memory: memory.brief(user_id="ana").prompt,
            "find": lambda memory: memory.find("zqaaaaaa dentist"),
            "timeline": lambda memory: memory.timeline(),
            "upcoming": lambda memory: memory.upcoming(),
            "overview": lambda memory: memory.overview(),
        }
        for name, ask in asks.items():
            with opened(root) as memory:
                answer = ask(memory)
            assert ("'ana'" if name == "overview" else "dentist") in str(answer), name
            if isinstance(answer, dict):
                assert answer["freshness"]["state"] == "rebuilding", name


@pytest.mark.slow
def test_a_disk_that_turns_read_only(tmp_path):
    """P9: nothing is written, each refusal has a name, and when the disk is writable again so is the memory."""
    with small_disk(tmp_path / "disk") as disk:
        root = disk / "root"
        with opened(root) as memory:
            memory.add("s1", [message("zqaaaaaa", 1)])
            memory.flush("s1")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = {path: path.read_bytes() for path in root.rglob("*.md")}
        with pytest.raises(CairnError) as refused, opened(root) as memory:
            memory.add("s1", [message("zqbbbbbb", 2)])
        assert "ead-only" in str(refused.value)
        assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with opened(root) as memory:
            memory.add("s1", [message("zqbbbbbb", 2)])
            memory.flush("s1")
        assert told(root) == {"zqaaaaaa": 1, "zqbbbbbb": 1}


def test_system_calls_that_fail_by_schedule(tmp_path):
    """P9: full, broken, short, late and slow calls under a whole root: named errors, nothing lost, nothing doubled."""
    report = faults.one_trial(tmp_path / "root", seed=5)

    assert report["refused"] > 0
    assert report["answered"] == faults.CALLS
