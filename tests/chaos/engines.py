"""Two engines, one truth: whatever happens to files and tables, memory, LanceDB and an index made anew agree.

A history is drawn by its seed: episodes come, change, go and are forgotten to the last byte for three owners, rows are folded into the
tables or not, tables lose bytes or vanish, `.index` is removed, and a process that folds is killed -9. After each step every owner's
rows are asked for by words, meaning and filter of both engines; at the end an index made anew is asked, too.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cairn.engines.embedders import HashingEmbedder
from cairn.engines.lance import LanceTables
from cairn.engines.large import Answering, LargeIndex
from cairn.index.corpus import Ask, Moved, SearchIndex
from cairn.index.filters import parse
from cairn.language.words import tokens
from cairn.types import Scope, Space
from tests import held
from tests.world import ALICE, BOB, DAY, Indexed

OWNERS = (ALICE, BOB, Scope(Space("other"), "agent", "bot"))
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
EMBEDDER = HashingEmbedder(64)


class TwoEngines:
    """One root, asked through both engines."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.open()
        self.steps = {
            self.write: 6, self.edit: 4, self.drop: 2, self.fold: 5, self.damage: 1, self.lose: 1, self.kill: 1,
            self.forget: 2,
        }  # fmt: skip

    def open(self) -> None:
        self.world = Indexed(self.folder)
        self.tables = LanceTables(self.folder / ".index", index_rows=40)
        self.tables.load(wait=True)
        large = LargeIndex(self.world.index, self.tables, whole_rows=0)
        self.answering = Answering(
            self.world.index, self.tables, engine="lancedb", memory_rows=0, large=large
        )

    def close(self) -> None:
        self.world.close()

    # ---- what happens --------------------------------------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.random.randrange(1, 30)):
            said = " ".join(self.random.choices(WORDS, k=self.random.randrange(1, 6)))
            session = f"s{self.random.randrange(4)}"
            self.world.episode(said, self.random.choice(OWNERS), session_id=session)

    def edit(self) -> None:
        files = sorted(self.folder.rglob("episode-*.md"))
        if files:
            file = self.random.choice(files)
            old, new = self.random.choices(WORDS, k=2)
            file.write_text(file.read_text().replace(old, new, self.random.randrange(1, 4)))

    def drop(self) -> None:
        owner = self.random.choice(OWNERS)
        at = self.world.root.note("episode", owner, DAY)
        if self.world.storage.exists(at):
            entries = self.world.notebook.read(at).entries
            chosen = self.random.sample([entry.id for entry in entries], min(3, len(entries)))
            if chosen:
                self.world.notebook.remove(at, chosen)

    def forget(self) -> None:
        """An entry goes with a word that only it has, and no byte of either engine holds that word."""
        word, owner = f"once{self.random.randrange(10**9)}", self.random.choice(OWNERS)
        entry = self.world.episode(f"{word} {self.random.choice(WORDS)}", owner, session_id="s1")
        self.world.waits.catch_up(60, embed=True)
        if self.random.random() < 0.7:
            self.fold()
            assert any("lancedb" in name for name in held.holding(self.world.index_dir, word))
        assert held.holding(self.world.index_dir, word)
        self.world.notebook.remove(self.world.root.note("episode", owner, DAY), [entry])
        self.world.waits.catch_up(60, embed=True)
        if self.random.random() < 0.3:
            self.fold()
        assert self.world.index.scrub()
        assert self.tables.scrub(self.world.index)
        assert self.world.state.scrub()
        assert held.holding(self.world.index_dir, word) == []

    def fold(self) -> None:
        self.tables.fold(self.world.index)

    def damage(self) -> None:
        files = [path for path in (self.folder / ".index" / "lancedb").rglob("*") if path.is_file()]
        for file in self.random.sample(sorted(files), min(3, len(files))):
            if self.random.random() < 0.5:
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[: self.random.randrange(50)])

    def lose(self) -> None:
        lost = "lancedb" if self.random.random() < 0.5 else ""
        shutil.rmtree(self.folder / ".index" / lost, ignore_errors=True)

    def kill(self) -> None:
        """A process that folds in dies at some moment, or is done before."""
        command = [sys.executable, "-m", "cairn.engines.lance", str(self.folder / ".index")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.random.uniform(0.5, 4.0))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    # ---- what holds ----------------------------------------------------------------------------------------------

    def step(self) -> str:
        [chosen] = self.random.choices(list(self.steps), list(self.steps.values()))
        chosen()
        self.world.waits.catch_up(60, embed=True)
        self.compare()
        return chosen.__name__

    def compare(self) -> None:
        for owner in OWNERS:
            expected = told(self.world.index, owner)
            for _ in range(3):
                index = self.answering(owner)
                try:
                    assert told(index, owner) == expected, owner
                    break
                except Moved:
                    continue
            else:
                raise AssertionError("the engine moved three times without anybody touching it")

    def anew(self) -> None:
        """An index made anew answers the same, in both engines."""
        before = {owner: told(self.world.index, owner) for owner in OWNERS}
        with tempfile.TemporaryDirectory(prefix="cairn-anew-") as place:
            fresh = Indexed(self.folder, index_dir=Path(place))
            fresh.waits.catch_up(60, embed=True)
            tables = LanceTables(Path(place))
            tables.fold(fresh.index)
            tables.load(wait=True)
            large = LargeIndex(fresh.index, tables, whole_rows=0)
            for owner, expected in before.items():
                assert told(fresh.index, owner) == expected
                assert told(large, owner) == expected
            fresh.close()


def told(index: SearchIndex, owner: Scope) -> object:
    """What an engine says of an owner: who is found by each word, near a text, and within a session; with scores."""
    near = EMBEDDER.embed(["alpha beta"])[0]
    out: list[object] = [index.about(owner).rows, dict(index.frequencies(owner, tokens(" ".join(WORDS))))]
    for word in WORDS:
        for where in ({}, {"session_id": "s1"}):
            found = index.legs(owner, Ask(terms=tokens(word), plain=near, where=parse(where)))
            assert found.cosine is not None
            shown = {
                int(rowid): (round(float(bm25), 3), round(float(cosine), 3))
                for rowid, bm25, cosine, passes in zip(
                    found.corpus.rowid, found.bm25, found.cosine, found.passing, strict=True
                )
                if passes and bm25 > 0
            }
            rows = index.rows(owner, list(shown))
            best = sorted(shown[row.rowid] + (row.entry_id, row.text) for row in rows)
            out.append(best if len(best) <= 150 else len(best))
    return out


def history(folder: Path, seed: int, steps: int) -> dict[str, int]:
    """One drawn history; how often each thing happened."""
    world = TwoEngines(folder, seed)
    happened: dict[str, int] = {}
    try:
        for _ in range(steps):
            name = world.step()
            happened[name] = happened.get(name, 0) + 1
        world.anew()
    except BaseException as error:
        error.add_note(
            f"history {seed}, after {happened}: PART=engines SEED={seed} CHAOS_SECONDS=1 make chaos"
        )
        raise
    finally:
        world.close()
    return happened


def run(seconds: float, seed_number: int) -> dict[str, int]:
    report: dict[str, int] = {"histories": 0}
    until = time.monotonic() + seconds
    number = seed_number
    while time.monotonic() < until or not report["histories"]:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-", ignore_cleanup_errors=True) as folder:
            for name, count in history(Path(folder) / "root", number, 25).items():
                report[name] = report.get(name, 0) + count
        report["histories"] += 1
        number += 1
    return report
