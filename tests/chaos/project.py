"""Project memory under kill -9: record, import, consolidate, prune and update, killed at random instants.

After every kill the next command must find a record that validates, and everything acknowledged must be there
exactly once, active or archived.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from cairn.project.project import ProjectMemory
from tests.project_kit import START, SetClock, failures, make_repo, open_at

DAYS_PER_TURN = 40


def child(tree: Path, acks: Path, sessions: Path) -> None:
    """Work until killed; each acknowledged event or session is noted before the next step."""
    turn = _turns(acks)
    with acks.open("a", encoding="utf-8") as noted:

        def note(kind: str, what: str) -> None:
            noted.write(f"{kind} {what}\n")
            noted.flush()

        print("ready", flush=True)
        while True:
            turn += 1
            note("turn", str(turn))
            project = open_at(tree, SetClock(START + timedelta(days=DAYS_PER_TURN * turn)))
            unique = f"{turn}-{os.getpid()}"
            project.record(
                f"rec {unique}",
                {"gotchas": [f"Trap {unique}: beware of {unique}."], "decisions": [f"We chose {unique}"]},
            )
            note("event", f"rec {unique}")
            rows = [
                {"role": "user", "content": f"Session {unique}", "timestamp": turn},
                {"role": "assistant", "content": f"We decided to use {unique}.", "timestamp": turn},
            ]
            (sessions / f"s{unique}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            project.import_()
            note("session", f"s{unique}")
            project.consolidate()
            project.prune()
            if turn % 3 == 0:
                project.update()


def _turns(acks: Path) -> int:
    lines = acks.read_text(encoding="utf-8").splitlines() if acks.exists() else []
    return max(
        (int(line.split()[1]) for line in lines if line.startswith("turn ") and len(line.split()) == 2),
        default=0,
    )


def check(project: ProjectMemory, acks: Path) -> Counter[str]:
    """Everything acknowledged is there once; the record validates after one command."""
    project.update()
    assert failures(project) == [], failures(project)
    archive = project.record_.archive
    events = [
        *project.events(),
        *(event for batch in archive.batches() for event in archive.events_of(batch)),
    ]
    counts = Counter(event.contentHash for event in events)
    doubled = [digest for digest, count in counts.items() if count > 1]
    assert not doubled, f"{len(doubled)} events are there twice"
    summaries = Counter(event.summary for event in events)
    items = Counter(event.externalItemId for event in events if event.is_import)
    for line in acks.read_text(encoding="utf-8").splitlines():
        kind, _, what = line.partition(" ")
        if kind == "event":
            assert summaries[what] == 1, f"{what}: {summaries[what]} times"
        elif kind == "session":
            assert items[what] == 1, f"session {what}: {items[what]} times"
    twice = [item for item, count in items.items() if count > 1]
    assert not twice, f"imported twice: {twice}"
    return summaries


def campaign(kills: int, seed: int, folder: Path, until: float = float("inf")) -> dict[str, Any]:
    """Kill the child `kills` times (or until a deadline), checking after each."""
    dice = random.Random(seed)
    tree = make_repo(
        folder / "repo", {"main.py": "X = 1\n", "README.md": "# Target\n\nA repository to be hurt.\n"}
    )
    sessions, acks = folder / "sessions", folder / "acks.txt"
    sessions.mkdir()
    acks.touch()
    project = open_at(tree)
    project.init()
    # Archives must not expire here: what was acknowledged has to be findable.
    config = tree / ".cairn/config.json"
    value = json.loads(config.read_text())
    value["retention"]["archive"]["expireAfterDays"] = 1_000_000
    value["retention"]["checkpoints"]["keepRecent"] = 3
    config.write_text(json.dumps(value))
    project.add_source("jsonl", sessions)
    done = 0
    while done < kills and time.monotonic() < until:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.project", str(tree), str(acks), str(sessions)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert worker.stdout is not None
        select.select([worker.stdout], [], [], 60)
        time.sleep(dice.uniform(0.0, 0.6))
        assert worker.poll() is None, worker.communicate()[1].decode()
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        done += 1
        check(open_at(tree, SetClock(START + timedelta(days=DAYS_PER_TURN * _turns(acks)))), acks)
    lines = acks.read_text().splitlines()
    return {
        "kills": done,
        "acknowledged": sum(line.startswith(("event", "session")) for line in lines),
        "batches": len(project.record_.archive.batches()),
        "seed": seed,
    }


def run(seconds: float, seed: int) -> dict[str, Any]:
    """100 kills, or as many as fit."""
    print(f"history: seed {seed}")
    with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
        return campaign(100, seed, Path(folder), time.monotonic() + seconds)


if __name__ == "__main__":
    child(*(Path(argument) for argument in sys.argv[1:4]))
