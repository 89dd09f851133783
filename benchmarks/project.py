"""How fast project memory is: init on 10,000 files, events, status and query over a long history, a large import."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn.project.checkpoints import made
from cairn.project.events import EventDraft, Signals
from cairn.project.project import ProjectMemory
from cairn.projects import open_project


def _git(tree: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(tree), "-c", "user.name=b", "-c", "user.email=b@example.org", *arguments],
        check=True,
    )


def _repository(tree: Path, files: int) -> None:
    tree.mkdir(parents=True)
    for number in range(files):
        folder = tree / f"src/part{number % 40}/sub{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        mark = "# TODO: tidy this up\n" if number % 50 == 0 else ""
        (folder / f"file{number}.py").write_text(f'"""File {number}."""\n{mark}X = {number}\n' * 5)
    (tree / "README.md").write_text("# Big\n\nA repository of many files, for timing.\n")
    (tree / "pyproject.toml").write_text('[project]\nname = "big"\nversion = "1"\n')
    _git(tree, "init", "-q")
    _git(tree, "add", "-A")
    _git(tree, "commit", "-q", "-m", "all of it")


def _timed(work: Callable[[], object], rounds: int = 1) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _long_history(project: ProjectMemory, events: int, checkpoints: int) -> None:
    record = project.record_
    story = record.view().story
    now = datetime.now(UTC)
    rows = [
        EventDraft(
            "tool_run",
            f"Worked on part {number % 40}, step {number}",
            Signals.of({"decisions": [f"We chose way {number}"], "keyPaths": [f"src/part{number % 40}"], "gotchas": [f"Trap {number % 300}: mind the gap"]}),
            "cairn:record",
        ).event(number, now)
        for number in range(2, events + 2)
    ]  # fmt: skip
    record.log.replace([*story.events, *rows])
    parent = story.checkpoint.key
    for number in range(2, checkpoints + 2):
        event = EventDraft(
            "tool_run", f"c{number}", Signals(), "cairn:update", effect={"command": "update"}
        ).event(events + number, now)
        checkpoint = made(
            number, event, story.checkpoint.bundle, f"Snapshot {number}", parents=[parent], provider="none"
        )
        path = record.tree / checkpoint.file.key
        path.write_text(json.dumps(checkpoint.to_json()))
        parent = checkpoint.key
    record.log.append([event])


def _sessions(folder: Path, count: int, total_bytes: int) -> None:
    folder.mkdir()
    filler = "The carrier answered late and we waited for it. " * 20
    for number in range(count):
        rows = []
        size = 0
        while size < total_bytes // count:
            turn = len(rows)
            role = "user" if turn % 2 == 0 else "assistant"
            text = f"Turn {turn} of session {number}. We decided to use plan {turn}. {filler}"
            row = json.dumps(
                {
                    "type": role,
                    "uuid": f"{number}-{turn}",
                    "timestamp": "2026-10-01T10:00:00Z",
                    "message": {"content": text if role == "user" else [{"type": "text", "text": text}]},
                }
            )
            rows.append(row)
            size += len(row)
        (folder / f"s{number}.jsonl").write_text("\n".join(rows) + "\n")


def run(args: Any) -> dict[str, Any]:
    """Print the table and return the figures."""
    quick = bool(getattr(args, "quick", False))
    files, events, checkpoints = (500, 500, 50) if quick else (10_000, 10_000, 1_000)
    count, size = (20, 2_000_000) if quick else (1_000, 200_000_000)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        tree = Path(folder) / "big"
        _repository(tree, files)
        project = open_project(tree)
        figures[f"init_{files}_files_s"] = _timed(project.init)
        figures["update_s"] = _timed(project.update)
        figures["record_ms"] = 1000 * _timed(
            lambda: project.record("One more", {"decisions": ["We chose it"]}), 50
        )
        _long_history(project, events, checkpoints)
        figures["record_long_ms"] = 1000 * _timed(
            lambda: project.record("One more", {"decisions": ["We chose it"]}), 50
        )
        probe = tree / "probe"
        figures["fsync_ms"] = 1000 * _timed(lambda: _flush(probe), 50)
        figures["status_ms"] = 1000 * _timed(project.status, 5)
        figures["query_ms"] = 1000 * _timed(lambda: project.query("what trap is there in part 7?"), 5)
        figures["validate_ms"] = 1000 * _timed(project.validate)
        figures["plan_ms"] = 1000 * _timed(project.plan)
        _sessions(Path(folder) / "sessions", count, size)
        small = Path(folder) / "small"
        _repository(small, 10)
        code = (
            "import sys, pathlib, resource, time; from cairn.projects import open_project;"
            "p = open_project(pathlib.Path(sys.argv[1])); p.init(); p.add_source('claude-local', pathlib.Path(sys.argv[2]));"
            "now = lambda: (time.perf_counter(), time.process_time());"
            "a = now(); [r] = p.import_(); b = now(); [again] = p.import_(); c = now();"
            "print(r.imported, again.imported, b[0] - a[0], c[0] - b[0], b[1] - a[1], c[1] - b[1],"
            " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
        )
        out = subprocess.run([sys.executable, "-c", code, str(small), str(Path(folder) / "sessions")], capture_output=True, text=True, check=True)  # fmt: skip
        imported, again, seconds, second_time, cpu, second_cpu, megabytes = out.stdout.split()
        assert (int(imported), int(again)) == (count, 0), out.stdout
        figures |= {
            "import_sessions": int(imported),
            "import_mb": size // 1_000_000,
            "import_s": float(seconds),
            "import_again_s": float(second_time),
            "import_cpu_s": float(cpu),
            "import_again_cpu_s": float(second_cpu),
            "import_peak_mb": int(megabytes),
        }
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for name, value in figures.items():
        print(f"{name:24} {value:10.2f}" if isinstance(value, float) else f"{name:24} {value:10}")
    return figures


def _flush(path: Path) -> None:
    import os

    with path.open("ab") as handle:
        handle.write(b"x" * 200 + b"\n")
        handle.flush()
        os.fdatasync(handle.fileno())
