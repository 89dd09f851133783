"""Kills a strategies worker at random instants, then looks every derived entry up."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from cairn.notes.kinds import KINDS
from cairn.seams.storage import iterate_files
from cairn.strategies.statements import statements_of
from cairn.talk.sessions import SessionLog, place_of_session, sessions_of
from cairn.types import Scope, Space
from tests.crash import strategies_worker

HERE = Path(__file__).resolve().parents[2]
CELLS_A_LIFE = 6


def run(root: Path, kills: int, seed: int) -> dict[str, int]:
    """`kills` lives of a worker on one root, then one that may finish. Raises on a missing or doubled entry."""
    chance = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    number = vanished = finished = 0
    for _ in range(kills):
        worker = _start(root, number, CELLS_A_LIFE)
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(chance.uniform(0, 0.25))
        worker.send_signal(signal.SIGKILL)
        finished += "done" in worker.stdout.read()
        worker.wait()
        worker.stdout.close()
        number += CELLS_A_LIFE
        if chance.random() < 0.3:
            shutil.rmtree(root / ".index", ignore_errors=True)
            vanished += 1
    last = _start(root, number, 1)
    assert last.stdout is not None
    out = last.stdout.read()
    assert last.wait(240) == 0 and "done" in out, f"the last worker did not finish: {out}"
    last.stdout.close()
    return {"kills": kills, "finished before the kill": finished, "indexes removed": vanished, **check(root)}


def _start(root: Path, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.strategies_worker", str(root), str(first), str(count)]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True)


def check(root: Path) -> dict[str, int]:
    """Every finished cell has its derived kinds, once."""
    _, engine = strategies_worker.parts(root)
    kit = engine._kit
    counts = engine.jobs.counts()
    assert not any({"running", "pending", "dead"} & set(c) for c in counts.values()), counts
    ana, ops = Scope(Space(), "user", "ana"), Scope(Space(), "agent", "ops")
    facts: Counter[tuple[str, str]] = Counter()
    ahead: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    parents: dict[str, str] = {}
    for kind, scope in (("episode", ana), ("atomic_fact", ana), ("foresight", ana), ("agent_case", ops)):
        for locator in kit.notebook.storage.list(KINDS[kind].locator(scope, "2023-05-08").parent):
            note = kit.notebook.read(locator)
            assert not note.problems, (locator, note.problems)
            for entry in note.entries:
                parent = entry.inline["parent_id"]
                if kind == "episode":
                    parents[entry.id] = parent
                elif kind == "atomic_fact":
                    facts[parents[parent], entry.sections["Fact"]] += 1
                elif kind == "foresight":
                    ahead[parent] += 1
                else:
                    cases[parent] += 1
    sourced = Counter(
        case for place in iterate_files(kit.notebook.storage, kit.root.scope(ops).child("skills"))
        for case in kit.notebook.read(place).frontmatter["source_case_ids"]
    )  # fmt: skip
    told: set[str] = set()
    cells = 0
    log = SessionLog(kit.journals)
    for locator in iterate_files(kit.notebook.storage, sessions_of(Space())):
        if place_of_session(locator) is None:
            continue
        state = log.load(locator)
        for cell in state.cells:
            assert cell.done, f"{cell.cell_id} was never finished"
            cells += 1
            for statement in statements_of(state.messages_of(cell), kit.zone):
                count = facts[cell.cell_id, statement.text]
                assert count == 1 or (count == 0 and any(f == statement.text for _, f in facts)), (
                    cell.cell_id,
                    statement.text,
                    count,
                )
                told.add(statement.text)
            assert ahead[cell.cell_id] == 1, (cell.cell_id, ahead[cell.cell_id])
            assert cases[cell.cell_id] == 1, (cell.cell_id, cases[cell.cell_id])
    assert {text for _, text in facts} == told
    assert max(Counter(text for _, text in facts.elements()).values()) == 1, (
        "a fact is stated twice for one owner"
    )
    assert len(sourced) == cells and set(sourced.values()) == {1}, "every case is in one skill, once"
    profile = kit.notebook.read(KINDS["profile"].locator(ana)).frontmatter["explicit_info"]
    assert len([i for i in profile if i.get("attribute") == "home" and "until" not in i]) == 1
    return {
        "cells": cells,
        "facts": sum(facts.values()),
        "foresights": sum(ahead.values()),
        "cases": sum(cases.values()),
    }
