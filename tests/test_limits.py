"""What is too large or in somebody's hands costs only itself: notes, entries, archives, a queue, a stopped process."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

import cairn
from cairn.aio import AsyncMemory
from cairn.config import load
from cairn.engines.database import Database
from cairn.operations.table import operations_of
from cairn.retrieval import waits
from cairn.seams import Locator
from tests.waiting import LONG, at_rest, until

QUIET = {"embedding__provider": "none"}


def said(who, words, at=0):
    return [{"sender_id": who, "role": "user", "timestamp": 1780300000000 + at, "content": words}]


def found(memory, who, words):
    return words in str(memory.search(words, user_id=who, evidence=5, consistency="strong"))


def test_a_huge_note_or_entry_costs_only_itself(tmp_path):
    """A note beyond the limit is not read, an entry beyond it not indexed; each is named with the setting, everybody
    else's words and the rest of the note are found, and nothing grows beyond the limit by us.
    """
    limits = {**QUIET, "storage__max_note_bytes": 60_000, "storage__max_entry_bytes": 4_000}
    with cairn.open_blocking(tmp_path, **limits) as memory:
        for who in ("ann", "bob"):
            memory.add(f"s-{who}", said(who, f"I keep a heron called {who}bird."))
            memory.flush(f"s-{who}")
        home = tmp_path / "default_app" / "default_project" / "users"
        note = next(home.glob("ann/episodes/*.md"))
        whole = note.read_text()
        entry = whole[whole.index("<!-- entry:") :]
        note.write_text(whole + entry.replace("_00000001", "_00000002").replace("annbird", "hugebird " * 900))
        huge = home / "zoe" / "episodes" / note.name
        huge.parent.mkdir(parents=True)
        huge.write_text(whole.replace("ann", "zoe") + "x" * 80_000)
        assert found(memory, "ann", "annbird")
        assert found(memory, "bob", "bobbird")
        assert not found(memory, "ann", "hugebird")
        told = "\n".join(f"{one['what']} {one['next']}" for one in memory.doctor())
        assert "storage.max_note_bytes" in told and "zoe" in told
        assert "storage.max_entry_bytes" in told and "_00000002" in told
        before = note.read_bytes()
        big = Locator("default_app/default_project/users/ann/big.md")
        with pytest.raises(cairn.Invalid, match="max_note_bytes"):
            memory.parts.storage.write(big, "x" * 80_000)
        assert note.read_bytes() == before
        assert not memory.parts.storage.exists(big)


def test_folding_the_history_keeps_what_is_needed(tmp_path):
    """Former texts go that stand nowhere, are in no checkpoint and are old; the checkpoint still comes back whole."""
    with cairn.open_blocking(tmp_path, **QUIET, strategies__enabled=False) as memory:
        one = memory.remember("The tide turns at noon.", scope="user", owner="ann").memory["id"]
        mark = memory.checkpoint("noon")["id"]
        for hour in ("one", "two", "three"):
            memory.memories.edit(one, content=f"The tide turns at {hour}.")
            memory.log()
        assert memory.fold_history(30)["texts"] == 0
        told = memory.fold_history(0, dry_run=True)
        assert told["texts"] >= 2
        assert memory.fold_history(0) == {**told, "dry_run": False}
        assert memory.fold_history(0)["texts"] == 0
        kept = next(tmp_path.glob("*/*/journal/history/texts.jsonl")).read_text()
        assert "at noon" in kept and "at three" in kept
        assert "at one" not in kept and "at two" not in kept
        memory.restore(mark)
        assert memory.memories.show(one)["content"] == "The tide turns at noon."


def test_an_archive_that_unpacks_to_too_much_brings_nothing(tmp_path):
    """A small archive of a large file of zeros is refused while it is unpacked, by the setting's name."""
    bomb = tmp_path / "bomb.tar.gz"
    with tarfile.open(bomb, "w:gz") as archive:
        for number in range(4):
            member = tarfile.TarInfo(f"default_app/default_project/users/u{number}/user.md")
            member.size = 1_000_000
            archive.addfile(member, io.BytesIO(b"0" * 1_000_000))
    assert bomb.stat().st_size < 50_000
    root = tmp_path / "root"
    with cairn.open_blocking(root, **QUIET, storage__max_import_bytes=2_000_000) as memory:
        with pytest.raises(cairn.Invalid, match="max_import_bytes"):
            memory.import_from(str(bomb))
    assert not list(root.glob("default_app/**/*.md"))
    with cairn.open_blocking(root, **QUIET) as memory:
        assert memory.import_from(str(bomb))["imported"] == 4


def test_heads_of_an_archive_are_believed_within_limits(tmp_path):
    """One of gigabytes is read into no memory, a length below nothing leads nowhere back; nothing is brought in."""
    huge = tarfile.TarInfo("././@LongLink")
    huge.type, huge.size = tarfile.GNUTYPE_LONGNAME, 64 << 20
    back = tarfile.TarInfo("default_app/default_project/users/ann/user.md")
    lost = tarfile.TarInfo("default_app/default_project/users/bob")
    lost.type = tarfile.DIRTYPE
    ahead = tarfile.TarInfo("default_app/default_project/users/cleo/user.md")
    ahead.size = 3_000_000
    heads = {
        "a head of": [huge.tobuf() + bytes(64 << 20)],
        "a length of": [_with_size(back, -2048)],
        "max_import_bytes": [_with_size(lost, -(10**9)), ahead.tobuf() + bytes(3_000_064)],
    }
    with cairn.open_blocking(tmp_path / "root", **QUIET, storage__max_import_bytes=2_000_000) as memory:
        for why, pieces in heads.items():
            bomb = tmp_path / "bomb.tar.gz"
            first = tarfile.TarInfo("first").tobuf()
            bomb.write_bytes(gzip.compress(first + b"".join(pieces) + bytes(1024), compresslevel=1))
            with pytest.raises(cairn.Invalid, match=why):
                memory.import_from(str(bomb))
    assert not list((tmp_path / "root").glob("default_app/**/*.md"))


def _with_size(member, size):
    """A member whose extended head says how long it is."""
    member.pax_headers = {"size": str(size)}
    return member.tobuf(tarfile.PAX_FORMAT)


def test_a_small_document_that_unpacks_to_too_much_is_refused(tmp_path):
    """A part of zeros inside a DOCX is not unpacked; others come in."""
    pytest.importorskip("docx")
    bomb = tmp_path / "bomb.docx"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        with packed.open("word/document.xml", "w") as part:
            for _ in range(101):
                part.write(bytes(1 << 20))
    (tmp_path / "tides.md").write_text("# Tides\n\nThe tide turns at noon.\n")
    with cairn.open_blocking(tmp_path / "root", **QUIET) as memory:
        done = memory.knowledge_add([str(bomb), str(tmp_path / "tides.md")])
    assert "unpacks to more than" in str(done), done
    assert "tides" in str(done)


def test_a_queue_in_other_hands_holds_nobody_up(tmp_path, monkeypatch):
    """Another program holds `ome.db`: a flush does not wait for it, and its work is found once the file is free."""
    with cairn.open_blocking(tmp_path, **QUIET) as memory:
        memory.add("s1", said("ann", "I moved to Lisbon."))
        memory.flush("s1")
        memory.parts.engine.run_due(seconds=LONG)
        patience = []
        real = Database.write

        def told(database, *given, **more):
            if database.path.name == "ome.db":
                patience.append(more)
            return real(database, *given, **more)

        monkeypatch.setattr(Database, "write", told)
        holder = sqlite3.connect(tmp_path / ".index" / "sqlite" / "ome.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        memory.add("s2", said("ann", "My sister Vera lives in Porto.", 5000))
        assert memory.flush("s2").status == "extracted"
        assert {"patience": 1.0} in patience
        holder.execute("ROLLBACK")
        holder.close()
        memory.parts.engine.run_due(seconds=LONG)
        facts = tmp_path / "default_app" / "default_project" / "users" / "ann" / ".atomic_facts"
        until(
            lambda: any("Porto" in one.read_text() for one in facts.glob("*.md")),
            "the work was not found again",
        )


STOPPED = """
import sys, cairn
with cairn.open_blocking(sys.argv[1], embedding__provider="none") as memory:
    from tests.waiting import until
    until(lambda: memory.index_status()["daemon"]["indexing"], "no lease")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_rebuild_beside_a_stopped_process_says_so(tmp_path, monkeypatch):
    """The holder of the index's lease is stopped: a rebuild ends with a sentence that says what to do."""
    monkeypatch.setattr(waits, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(waits, "_STALLED_SECONDS", 0.3)
    holder = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "ready\n"
        with cairn.Memory(load(tmp_path, **QUIET), background=False) as memory:
            memory.add("s1", said("ann", "I keep herons."))
            memory.flush("s1")
            until(lambda: at_rest(memory))  # stopped in the midst of a write it would hold its lock
            os.kill(holder.pid, signal.SIGSTOP)
            with pytest.raises(cairn.Unavailable, match="let it go on or end it"):
                memory.rebuild()
            os.kill(holder.pid, signal.SIGCONT)
    finally:
        os.kill(holder.pid, signal.SIGCONT)
        holder.communicate("", timeout=LONG)


def test_what_looks_through_everything_runs_apart(tmp_path):
    """However many doctors, diffs and exports run, a search and an add have threads of their own."""
    rows = operations_of(cairn.Memory)
    assert {"doctor", "repair", "diff", "backup", "export_to", "export_person", "rebuild"} <= {
        name for name, row in rows.items() if row.apart
    }
    assert not any(
        rows[name].apart for name in ("add", "flush", "search", "get", "recall", "remember", "status")
    )

    async def crowd() -> None:
        async with AsyncMemory(load(tmp_path, **QUIET)) as memory:
            free = threading.Event()
            slow = [
                asyncio.create_task(memory.pools.run(free.wait, writes=False, apart=True)) for _ in range(20)
            ]
            await memory.add("s1", said("ann", "I keep herons."))
            assert await memory.search("herons", user_id="ann") is not None
            assert not any(one.done() for one in slow)
            free.set()
            await asyncio.gather(*slow)

    asyncio.run(crowd())
