"""Planted bugs: whether anything notices when a promise is quietly dropped.

Each mutation changes one place of a copy of the tree; the named checks run on that copy and one of them must
fail. `python -m tools.mutations` runs all and prints a table; a name or part of one picks some. A mutation that
nobody finds means a check is missing, not that the bug is harmless. `--check` only looks whether each still has its
place in the source; it is part of `make lint`, so that whoever moves the place moves the planted bug along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug: what it is, where, the text that goes and the text that comes, and who should notice."""

    name: str
    file: str
    old: str
    new: str
    checks: tuple[str, ...]


WORLD = "tests/crash/test_world.py"
KILLS = "tests/crash/test_talk_kill.py"
MUTATIONS = (
    Mutation(
        "a journal line is not flushed",
        "engines/journals.py",
        "                if any(one.sync for one in batch):\n                    _flush(file)\n",
        "",
        ("tests/crash/test_flushes.py",),
    ),
    Mutation(
        "a note is not flushed before its rename",
        "engines/tree.py",
        "                    write_all(file, data)\n                    flush(file)\n",
        "                    write_all(file, data)\n",
        ("tests/crash/test_flushes.py",),
    ),
    Mutation(
        "the folder is not flushed after the rename",
        "engines/tree.py",
        "                self.note_new(fd, name)\n            flush(fd)\n\n    def _put",
        "                self.note_new(fd, name)\n\n    def _put",
        ("tests/crash/test_flushes.py",),
    ),
    Mutation(
        "the lock of a session is not taken",
        "talk/inbox.py",
        '        return self._locks.hold(f"session-{number:04d}")',
        "        import contextlib\n\n        return contextlib.nullcontext()",
        (KILLS, WORLD, "tests/test_talk_capture.py"),
    ),
    Mutation(
        "a note is written without comparing (expect=)",
        "notes/notebook.py",
        "self.storage.write(locator, new, expect=version)",
        "self.storage.write(locator, new)",
        ("tests/test_notebook.py", WORLD),
    ),
    Mutation(
        "a save in the last moment is not looked at",
        "engines/tree.py",
        "        try:\n            before(fd, temp, True)\n        except BaseException:",
        "        try:\n            pass\n        except BaseException:",
        ("tests/test_engines_files.py", "tests/test_notebook.py", WORLD),
    ),
    Mutation(
        "a cell is called done before its episode is written",
        "talk/telling.py",
        "            said = log.messages_of(record)\n        lsn = 0\n",
        "            said = log.messages_of(record)\n"
        "        self._inbox.done(space, session_id, [record.cell_id])\n        lsn = 0\n",
        (KILLS, "tests/test_talk_capture.py", WORLD),
    ),
    Mutation(
        "an episode is written again on a replay (no once_by)",
        "talk/telling.py",
        '"episode", scope, work.record.day, [drafted], once_by=("parent_id",)',
        '"episode", scope, work.record.day, [drafted]',
        ("tests/test_talk_capture.py", KILLS, WORLD),
    ),
    Mutation(
        "cells a crash left are not finished",
        "talk/capture.py",
        "        unfinished = self._pending.unfinished()\n        sessions = {(one.space, one.session_id) for one in unfinished.values()}\n",
        "        unfinished = self._pending.unfinished()\n        if not everywhere:\n            return 0\n"
        "        sessions = {(one.space, one.session_id) for one in unfinished.values()}\n",
        (KILLS, "tests/test_talk_capture.py"),
    ),
    Mutation(
        "a repeated add is kept twice",
        "talk/inbox.py",
        "        return state.batches.get(digest)\n",
        "        return None\n",
        ("tests/test_talk_capture.py", WORLD),
    ),
    Mutation(
        "words are read without their scope",
        "engines/warm.py",
        "words FROM rows WHERE scope_id = ?",
        "words FROM rows WHERE scope_id >= min(0, ?)",
        ("tests/test_isolation.py",),
    ),
    Mutation(
        "rows are read without their scope",
        "engines/rows.py",
        'query = f"SELECT {_COLUMNS} {_PLACED} WHERE +r.scope_id = ? AND r.id {AMONG}"',
        'query = f"SELECT {_COLUMNS} {_PLACED} WHERE +r.scope_id >= min(0, ?) AND r.id {AMONG}"',
        ("tests/test_isolation.py",),
    ),
    Mutation(
        "rows of a deleted note stay",
        "retrieval/indexer.py",
        "            self.removed.extend(old.rowid for old in stored.values())\n",
        "",
        ("tests/test_indexer.py", "tests/properties/test_index.py", WORLD),
    ),
    Mutation(
        "rows of an entry taken out stay",
        "retrieval/indexer.py",
        "                self.removed.append(old.rowid)\n",
        "                pass\n",
        ("tests/test_indexer.py", "tests/properties/test_index.py", WORLD),
    ),
    Mutation(
        "a lost queue is not noticed",
        "retrieval/indexer.py",
        "        if self._queue.take_lost():\n            self.scan()\n        generation",
        "        generation",
        ("tests/test_indexer.py", "tests/test_sqlite.py", "tests/crash/test_index.py", WORLD),
    ),
    Mutation(
        "a scan passes over files that are being indexed",
        "retrieval/indexer.py",
        'if old is not None and old.status == "processing":',
        'if old is not None and old.status == "processing" and not key:',
        ("tests/test_indexer.py",),
    ),
    Mutation(
        "a reader does not wait for a change that was queued again",
        "engines/changes.py",
        "{BUSY} AND since <= :lsn",
        "{BUSY} AND lsn <= :lsn",
        ("tests/test_sqlite.py", WORLD),
    ),
    Mutation(
        "a database file that lost its name is kept",
        "engines/database.py",
        "if found is None or found[:2] != before:",
        "if found is None:",
        ("tests/test_sqlite.py",),
    ),
    Mutation(
        "a torn last line is not cut off",
        "engines/journals.py",
        '        if size == 0 or (tail.endswith(b"\\n") and tail != _CONTINUED):\n            return size\n',
        "        if size >= 0:\n            return size\n",
        ("tests/test_engines_files.py", "tests/crash/test_storage_crash.py"),
    ),
    Mutation(
        "an import writes without comparing",
        "transfer.py",
        "ours.write(locator, merged, expect=content_hash(present))",
        "ours.write(locator, merged)",
        ("tests/test_transfer.py",),
    ),
    Mutation(
        "a symbolic link inside the root is followed",
        "engines/tree.py",
        "file = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC",
        "file = os.open(name, flags | os.O_CLOEXEC",
        ("tests/test_engines_files.py", "tests/crash/test_storage_crash.py"),
    ),
    Mutation(
        "the gate decides on what it read long ago",
        "governed/memories.py",
        "            shelf.refresh()\n            yield shelf\n",
        "            if not getattr(shelf, 'once', False):\n                shelf.refresh()\n                shelf.once = True\n"
        "            yield shelf\n",
        ("tests/test_governed_gate.py", WORLD),
    ),
    Mutation(
        "decay is applied twice",
        "governed/access.py",
        "    return decayed(score, (now - since).total_seconds(), half_life_days)",
        "    return decayed(decayed(score, (now - since).total_seconds(), half_life_days), (now - since).total_seconds(), half_life_days)",
        ("tests/test_governed_lifecycle.py", "tests/test_governed_gate.py"),
    ),
    Mutation(
        "history is pruned before it is consolidated",
        "project/archive.py",
        "            if event.number <= cursor\n            and event.id not in waiting\n            and _older(",
        "            if _older(",
        ("tests/test_project_retention.py",),
    ),
    Mutation(
        "credentials are not taken out",
        "governed/memories.py",
        '        if self.settings.keeping.secrets == "allow":\n            return list(texts)',
        "        if True:\n            return list(texts)",
        ("tests/test_governed_gate.py",),
    ),
    Mutation(
        "the Host header is not checked",
        "surfaces/guard.py",
        "        if name not in self._hosts and (",
        "        if False and (",
        ("tests/test_guard.py",),
    ),
)


def misplaced(mutations: Iterable[Mutation]) -> list[str]:
    """What of these cannot be planted: the text that goes does not stand exactly once, or a check is gone."""
    out = []
    for one in mutations:
        file = ROOT / "src" / "cairn" / one.file
        count = file.read_text(encoding="utf-8").count(one.old) if file.exists() else 0
        if count != 1:
            out.append(f'"{one.name}": its text stands {count} times in {one.file}')
        out += [f'"{one.name}": there is no {check}' for check in one.checks if not (ROOT / check).exists()]
    return out


def planted(mutation: Mutation, into: Path) -> None:
    """A copy of the tree with the bug in it."""
    keep = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "node_modules")
    shutil.copytree(ROOT, into, ignore=keep)
    file = into / "src" / "cairn" / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def tried(mutation: Mutation) -> tuple[str, float]:
    """Which check found it ("" for none), and how long that took."""
    with tempfile.TemporaryDirectory(prefix="cairn-mutation-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        planted(mutation, tree)
        begin = time.monotonic()
        for check in mutation.checks:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", check]
            environ = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
            for _ in range(
                3 if check in {WORLD, KILLS} else 1
            ):  # what depends on the instant gets a few chances
                try:
                    done = subprocess.run(
                        command,
                        cwd=tree,
                        env=environ,
                        check=False,
                        capture_output=True,
                        text=True,
                        timeout=SECONDS,
                    )
                except subprocess.TimeoutExpired:
                    return f"{check} (hangs)", time.monotonic() - begin
                if done.returncode == 1:
                    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
                    found = failed[0].removeprefix("FAILED ").partition(" - ")[0] if failed else check
                    return found, time.monotonic() - begin
                if done.returncode:
                    raise SystemExit(f"{check} cannot run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return "", time.monotonic() - begin


def main(wanted: list[str]) -> int:
    if wanted == ["--check"]:
        lost = misplaced(MUTATIONS)
        for line in lost:
            print(line)
        return 1 if lost else 0
    chosen = [one for one in MUTATIONS if not wanted or any(word in one.name for word in wanted)]
    if lost := misplaced(chosen):
        raise SystemExit("\n".join(lost))
    missed = 0
    print("| Planted bug | In | Found by |\n|---|---|---|", flush=True)
    for mutation in chosen:
        found, seconds = tried(mutation)
        missed += not found
        print(
            f"| {mutation.name} | `{mutation.file}` | {f'`{found}`, {seconds:.0f} s' if found else 'NOT FOUND'} |",
            flush=True,
        )
    print(f"\n{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
