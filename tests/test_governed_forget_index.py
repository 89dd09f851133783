"""Forgetting with the whole product open: talk, facts, memories and a real index; no byte of the canary stays."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from cairn import config
from cairn.engines import bytescan
from cairn.engines.large import LargeIndex
from cairn.engines.rows import SqliteIndex
from cairn.governed import forget, pages
from cairn.governed.framing import frame
from cairn.governed.wanted import Beside
from cairn.index.corpus import Moved, Row
from cairn.language.words import tokens
from cairn.operations.forgetting import purgers, while_quiet
from cairn.parts import Parts
from cairn.types import Message, Scope, Space
from tests import held
from tests.waiting import LONG
from tests.world import by_words

CANARY = "zebra" + "crossing77"


def _holding(root: Path) -> list[str]:
    return held.holding(root, CANARY)


@pytest.mark.parametrize(
    "engine", ["memory", pytest.param("lancedb", marks=pytest.mark.xdist_group("lance"))]
)
def test_forget_leaves_no_byte_in_root_or_index(tmp_path: Path, engine: str) -> None:
    """Forget: the canary is found by search before, and in no file of the root, index included, after."""
    root = tmp_path / "root"
    settings = config.load(root, environ={}, embedding__provider="hashing", index__engine=engine)
    parts = Parts(settings)
    parts.answering._large._whole_rows = 0  # the tables are asked, however few rows there are
    space, dana = Space(), Scope(Space(), "user", "dana")
    try:
        said = f"I open the vault with {CANARY} every morning."
        messages = [
            Message("dana", "user", 1780315200000 + n * 60_000, text, "Dana")
            for n, text in enumerate(
                ["Good morning to you all.", said, "Then I water the plants in the hall."]
            )
        ]
        parts.capture.add(space, "s1", messages)
        parts.capture.flush(space, "s1")
        verdict = parts.keeper.remember(
            f"Dana opens the vault with {CANARY} every morning.", scope=dana, status="promoted"
        )
        assert verdict.memory is not None
        pages.refresh(parts.keeper, space)
        parts.waits.catch_up(LONG)
        if engine == "lancedb":
            parts.lance.fold(parts.index)
            parts.lance.load(wait=True)
            assert any("lance" in name for name in _holding(root))
        assert isinstance(parts.answering(dana), LargeIndex) == (engine == "lancedb")
        assert any(".index" in name for name in _holding(root))
        stop = threading.Event()
        readers = [threading.Thread(target=_read, args=(parts, dana, stop)) for _ in range(2)]
        for reader in readers:
            reader.start()
        receipt = forget.forget(
            parts.keeper,
            space,
            str(verdict.memory["id"]),
            words=[CANARY],
            beside=Beside(purgers=purgers(parts)),
        )
        stop.set()
        for reader in readers:
            reader.join()
        assert receipt.complete, receipt.left
        assert _holding(root) == []
        if engine == "lancedb":
            parts.lance.fold(parts.index)
            assert isinstance(parts.answering(dana), LargeIndex)
            assert _holding(root) == []
        assert [one.text for one in _said(parts, dana, "plants")] != []
        assert _said(parts, dana, CANARY) == []
        rows, _ = parts.keeper.list(space)
        assert rows == []
        texts = [row.text for row in parts.index.rows(dana, [int(n) for n in parts.index.corpus(dana).rowid])]
        assert any("plants" in text for text in texts)
        assert not any(CANARY in text for text in texts)
    finally:
        parts.closing.close()


@pytest.mark.xdist_group("lance")
def test_a_lone_command_that_forgets_leaves_the_tables_ready(tmp_path: Path) -> None:
    """Where nothing runs beside a command, the next one need not read a very large scope whole for want of its tables."""
    settings = config.load(tmp_path / "root", environ={}, embedding__provider="none", index__engine="lancedb")
    parts, dana = Parts(settings), Scope(Space(), "user", "dana")
    parts.folder._many = 3
    try:
        for number in range(4):
            parts.keeper.remember(f"Dana keeps lamp number {number} in the {CANARY}.", scope=dana)
        parts.waits.catch_up(LONG)
        parts.lance.fold(parts.index)
        birth = parts.lance.state()["kinds"]["memory"]["birth"]

        def forgotten(words: str, *, dry_run: bool) -> bool:
            return while_quiet(
                parts,
                lambda beside: (
                    forget.forget(
                        parts.keeper, Space(), words=[words], scope=dana, dry_run=dry_run, beside=beside
                    ).complete
                ),
                purgers(parts),
                call={"call": "forget", "words": [words], "dry_run": dry_run},
            )

        forgotten("lamp number 3", dry_run=True)
        assert parts.lance.state()["kinds"]["memory"]["birth"] == birth
        assert forgotten("lamp number 3", dry_run=False)
        made = parts.lance.state()["kinds"]["memory"]
        assert (made["birth"] != birth, made["rows"]) == (True, 3)
        parts.folder._many = 50
        assert forgotten("lamp number 2", dry_run=False)
        assert "memory" not in parts.lance.state()["kinds"], "few rows are not worth a process"
    finally:
        parts.closing.close()


def _read(parts: Parts, scope: Scope, stop: threading.Event) -> None:
    while not stop.wait(0.01):
        parts.index.scopes(scope.space)
        parts.index.corpus(scope)
        _said(parts, scope, "plants")


def _said(parts: Parts, scope: Scope, word: str) -> list[Row]:
    """The rows with a word, as the engine finds them."""
    while True:
        index = parts.answering(scope)
        with suppress(Moved):
            return index.rows(scope, by_words(index, scope, tokens(word)))


def test_what_was_recalled_is_not_captured_as_said(tmp_path: Path) -> None:
    """Poisoning: recall put into a message and captured, again and again, reaches neither transcript nor notes."""
    root = tmp_path / "root"
    parts = Parts(config.load(root, environ={}, embedding__provider="none"))
    try:
        verdict = parts.keeper.remember(f"Dana opens the vault with {CANARY} every morning.")
        assert verdict.memory is not None
        held = _holding(root)
        for n in range(20):
            framed = frame([str(verdict.memory["content"])])
            at = 1780315200000 + n * 60_000
            messages = [
                Message("bot", "assistant", at, f"{framed}\nHere is what I know, round {n}."),
                Message("bot", "assistant", at + 1000, framed),
            ]
            parts.capture.add(Space(), "s1", messages)
        parts.capture.flush(Space(), "s1")
        parts.waits.catch_up(LONG)
        assert [name for name in _holding(root) if ".index" not in name] == [
            n for n in held if ".index" not in n
        ]
        assert len(parts.keeper.list(Space())[0]) == 1
    finally:
        parts.closing.close()


def test_a_look_at_every_byte_keeps_the_databases_locked(tmp_path: Path) -> None:
    """Forget: another process that opens and closes the index after the last look leaves the log of this one alone."""
    index = SqliteIndex(tmp_path)
    try:
        assert index.generation
        [base] = tmp_path.rglob("index.db")
        log = Path(f"{base}-wal")
        before = log.stat().st_ino
        seen = [path for path, _ in bytescan.pieces([("", tmp_path)])]
        assert str(base.relative_to(tmp_path)) in seen
        look = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM birth').close()"
        )
        subprocess.run([sys.executable, "-c", look, str(base)], check=True)
        assert log.stat().st_ino == before
    finally:
        index.close()
