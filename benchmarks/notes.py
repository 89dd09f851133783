"""How fast the notes are: append, group commit, parse and scan, each beside what it is measured against.

Machines differ and this one may be busy, so every figure is a ratio of two things timed in turn, in one run,
and the best round of each counts: noise only ever adds.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.format import parse_note
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator
from cairn.types import Scope, Space

ALICE = Scope(Space(), "user", "alice")
DAY = "2026-06-01"
NOTE = KINDS["episode"].locator(ALICE, DAY)


def an_episode(n: int) -> Draft:
    said = f"Alice said: The tomatoes of bed {n} want water, and the pump stays off before eight."
    return Draft(
        {
            "owner_id": "alice",
            "session_id": f"session-{n // 7}",
            "timestamp": "2026-06-01T09:30:00+00:00",
            "parent_type": "memcell",
            "parent_id": f"mc_{n:012x}",
            "sender_ids": ["alice", "gardener"],
        },
        {
            "Subject": f"Alice waters bed {n}",
            "Summary": said,
            "Content": f"{said}\ngardener said: Noted. Bed {n} is next, then the **beans**.\nAlice said: Thank you.",
        },
    )


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(rounds: int, *works: Callable[[], object], pause: float = 0.0) -> list[list[float]]:
    """Times of each work, one round of all after the other, so that a busy moment hits them alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for kept, work in zip(times, works, strict=True):
            time.sleep(pause)
            kept.append(timed(work))
    return times


@dataclass(frozen=True)
class Pair:
    """Seconds of each round: ours, and what it is compared with."""

    ours: list[float]
    theirs: list[float]

    def show(self, name: str, words: str, *, at_most: float = 0.0, at_least: float = 0.0) -> dict[str, Any]:
        ours, theirs = min(self.ours), min(self.theirs)
        middle = statistics.median(self.ours), statistics.median(self.theirs)
        ratio, median = (
            (theirs / ours, middle[1] / middle[0]) if at_least else (ours / theirs, middle[0] / middle[1])
        )
        met = ratio >= at_least if at_least else (not at_most or ratio <= at_most)
        print(
            f"{name:<14} {ours * 1e3:9.2f} ms  {theirs * 1e3:9.2f} ms  {ratio:6.2f}x (median {median:.2f}x)  {words}"
            f"{'' if met else '  MISSED'}"
        )
        return {
            "ours_ms": round(ours * 1e3, 3),
            "compared_ms": round(theirs * 1e3, 3),
            "ratio": round(ratio, 2),
            "ratio_of_medians": round(median, 2),
            "target": words,
            "met": met,
        }


def append(root: Path, entries: int, rounds: int, pause: float = 0.06) -> Pair:
    """One append to a long note against reading and atomically rewriting the same bytes."""
    storage = DeviceLocalBackend(root)
    notebook = Notebook(storage, FileLocks(root / ".tmp" / "locks"))
    notebook.append("episode", ALICE, DAY, [an_episode(n) for n in range(entries)])
    one = [an_episode(entries)]

    def rewrite() -> None:
        storage.write(NOTE, storage.read(NOTE))

    # The pause lets the file come to rest, as it has in life: people and agents do not append every 5 ms.
    theirs, ours = in_turn(rounds, rewrite, lambda: notebook.append("episode", ALICE, DAY, one), pause=pause)
    return Pair(ours, theirs)


def group_commit(root: Path, entries: int, rounds: int, writers: int = 8) -> Pair:
    """Cost per entry of eight writers together against one rewrite for each entry."""
    storage = DeviceLocalBackend(root)
    notebook = Notebook(storage, FileLocks(root / ".tmp" / "locks"))
    notebook.append("episode", ALICE, DAY, [an_episode(n) for n in range(entries)])
    each = 16

    def work() -> None:
        for n in range(each):
            notebook.append("episode", ALICE, DAY, [an_episode(n)])

    def together() -> None:
        threads = [threading.Thread(target=work) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one_by_one() -> None:
        for n in range(each):
            notebook.append("episode", ALICE, DAY, [an_episode(n)])

    theirs, ours = in_turn(rounds, one_by_one, together)
    return Pair([t / (each * writers) for t in ours], [t / each for t in theirs])


def parse(entries: int, rounds: int) -> Pair:
    """Parsing a long note against a Markdown library parsing it."""
    from markdown_it import MarkdownIt

    with tempfile.TemporaryDirectory() as folder:
        storage = DeviceLocalBackend(folder)
        notebook = Notebook(storage, FileLocks(f"{folder}/locks"))
        notebook.append("episode", ALICE, DAY, [an_episode(n) for n in range(entries)])
        text = storage.read(NOTE)
    library = MarkdownIt()
    assert len(parse_note(text).entries) == entries
    theirs, ours = in_turn(rounds, lambda: library.parse(text), lambda: [parse_note(text) for _ in range(5)])
    return Pair([t / 5 for t in ours], theirs)


def scan(root: Path, notes: int, rounds: int) -> Pair:
    """Scanning a tree of notes for changes against bare scandir and stat."""
    per_folder = 100
    for owner in range(notes // per_folder):
        folder = root / f"default_app/default_project/users/u{owner}/episodes"
        folder.mkdir(parents=True)
        for n in range(per_folder):
            (folder / f"episode-{2000 + n // 12}-{n % 12 + 1:02d}-01.md").write_text("---\nid: x\n---\n")
    storage = DeviceLocalBackend(root)

    def bare() -> int:
        found, waiting = 0, [str(root)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        entry.stat(follow_symlinks=False)
                        found += 1
        return found

    assert bare() == sum(1 for _ in storage.scan(Locator())) == notes
    theirs, ours = in_turn(rounds, bare, lambda: sum(1 for _ in storage.scan(Locator())))
    return Pair(ours, theirs)


def run(args: Any = None) -> dict[str, Any]:
    quick = bool(getattr(args, "quick", False))
    entries, notes, rounds = (500, 1_000, 3) if quick else (5_000, 20_000, 15)
    figures: dict[str, Any] = {"entries": entries, "notes": notes}
    print(f"{'':<14} {'ours':>12}  {'compared':>12}")
    with tempfile.TemporaryDirectory() as folder:
        pair = append(Path(folder), entries, rounds)
        figures["append"] = pair.show("append", "<= 1.5x read + atomic rewrite", at_most=1.5)
    with tempfile.TemporaryDirectory() as folder:
        # Not a target: an append right behind another cannot go by the file's times and hashes it instead.
        pair = append(Path(folder), entries, rounds, pause=0.0)
        figures["append_at_once"] = pair.show("append at once", "for information")
    with tempfile.TemporaryDirectory() as folder:
        pair = group_commit(Path(folder), entries, max(3, rounds // 3))
        figures["group_commit"] = pair.show(
            "group commit", ">= 6x cheaper per entry, 8 writers", at_least=6.0
        )
    figures["parse"] = parse(entries, 3).show("parse", ">= 50x faster than markdown-it-py", at_least=50.0)
    with tempfile.TemporaryDirectory() as folder:
        pair = scan(Path(folder), notes, max(3, rounds // 3))
        figures["scan"] = pair.show("scan", "< 2x bare scandir + stat", at_most=2.0)
    return figures
