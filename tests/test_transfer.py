"""Export and import: the truth travels, nothing is overwritten, and no archive writes outside."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import stat
import tarfile
import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest

import cairn
from cairn import transfer
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.errors import Invalid
from cairn.notes.conflicts import merged
from cairn.notes.kinds import KINDS, place_of
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator
from cairn.surfaces.cli import main
from cairn.types import Scope, Space
from tests.surfaces.served import serving_here

ALICE = Scope(Space(), "user", "alice")
NOTE = KINDS["episode"].locator(ALICE, "2026-06-01")


def said(text, n=0):
    return {"sender_id": "alice", "role": "user", "timestamp": 1_780_000_000_000 + n, "content": text}


def opened(root):
    return cairn.open_blocking(root, background=False, embedding__provider="none")


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
def test_what_was_exported_can_be_brought_in_elsewhere(tmp_path, name):
    """A memory that travels as a folder or an archive says the same in its new root; twice changes nothing."""
    with opened(tmp_path / "a") as memory:
        memory.add("s1", [said("The lantern hangs in the attic.")])
        memory.flush("s1")
        memory.export_to(str(tmp_path / name))
    with opened(tmp_path / "b") as memory:
        assert memory.import_from(str(tmp_path / name))["imported"] > 0
        again = memory.import_from(str(tmp_path / name))
        assert (again["imported"], again["problems"]) == (0, [])
        found = memory.search("lantern", user_id="alice", method="keyword")
        assert len(found.episodes) == 1
    assert not (tmp_path / name / ".index").exists()


def damaged(packed: bytes) -> dict[str, bytes]:
    """An archive with one thing wrong with it; which tarfile alone takes for whole or for shorter than it is."""
    plain = gzip.decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        middle = archive.getmembers()[len(archive.getmembers()) // 2].offset
    loose = bytearray(gzip.compress(plain, compresslevel=0))
    loose[loose.index(b"lantern")] ^= 1
    return {
        "a letter": bytes(loose),
        "a head": gzip.compress(plain[:middle] + b"\xff" + plain[middle + 1 :]),
        "the sum": packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:],
        "cut behind": packed[:-6],
        "cut between members": gzip.compress(plain[:middle]),
        "cut in the middle": packed[: len(packed) // 2],
        "much behind its end": gzip.compress(plain + bytes(2 << 20)),
        "no stream": packed[:40] + bytes(b ^ 255 for b in packed[40:]),
    }


def test_a_damaged_archive_is_refused_whole(tmp_path):
    """P6: a letter that changed on the way, or an end that is missing, is told by name, and nothing is brought in."""
    with opened(tmp_path / "a") as memory:
        memory.add("s1", [said("The lantern hangs in the attic.")])
        memory.flush("s1")
        memory.export_to(str(tmp_path / "whole.tar.gz"))
    with opened(tmp_path / "b") as memory:
        for what, packed in damaged((tmp_path / "whole.tar.gz").read_bytes()).items():
            (tmp_path / "damaged.tar.gz").write_bytes(packed)
            with pytest.raises(Invalid) as refused:
                memory.import_from(str(tmp_path / "damaged.tar.gz"))
            assert "not an archive that can be read whole" in str(refused.value), what
            assert not list((tmp_path / "b").glob("default_app/**/*.*")), what
        assert memory.import_from(str(tmp_path / "whole.tar.gz"))["imported"] > 0


def test_what_differs_is_put_aside_once(tmp_path):
    """A log that went on differently on both sides stays beside ours, however often it is brought in."""
    with opened(tmp_path / "a") as memory:
        memory.add("s1", [said("The lantern hangs in the attic.")])
        memory.export_to(str(tmp_path / "copy"))
        memory.add("s1", [said("It burns.", 1)])
    with opened(tmp_path / "copy") as memory:
        memory.add("s1", [said("It is broken.", 2)])
    with opened(tmp_path / "a") as memory:
        for _ in range(2):
            assert "s1 (imported 1).jsonl" in str(memory.import_from(str(tmp_path / "copy"))["problems"])
    assert len(list(tmp_path.glob("a/*/*/sessions/s1*.jsonl"))) == 2


@pytest.mark.parametrize("evil", ["../outside.md", "/tmp/cairn-outside.md", "a/b/../../../outside.md"])
def test_an_archive_cannot_write_outside(tmp_path, evil):
    """P6: a member that would leave the target is refused, and nothing is written anywhere."""
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        member = tarfile.TarInfo(evil)
        member.size = 4
        made.addfile(member, io.BytesIO(b"evil"))
    with opened(tmp_path / "root") as memory:
        with pytest.raises(Invalid):
            memory.import_from(str(archive))
    assert not list(tmp_path.rglob("*outside*"))


def test_links_and_devices_in_an_archive_are_passed_over(tmp_path):
    """P6: only regular files come in, and nothing beside a link, through it or by its name."""
    archive, home = tmp_path / "links.tar.gz", "default_app/default_project/users/alice"
    odd = (
        (tarfile.SYMTYPE, "link.md"),
        (tarfile.LNKTYPE, "hard.md"),
        (tarfile.CHRTYPE, "device.md"),
        (tarfile.FIFOTYPE, "pipe.md"),
        (tarfile.SYMTYPE, "episodes"),
    )
    for good in (False, True):
        with tarfile.open(archive, "w:gz") as made:
            for kind, name in odd:
                member = tarfile.TarInfo(f"{home}/{name}")
                member.type, member.linkname = kind, "/etc/passwd"
                made.addfile(member)
            if good:
                member = tarfile.TarInfo(f"{home}/user.md")
                member.size, member.mode = 8, 0o6777
                made.addfile(member, io.BytesIO(b"---\n---\n"))
        with opened(tmp_path / "root") as memory:
            if good:
                assert memory.import_from(str(archive))["imported"] == 1
            else:
                with pytest.raises(Invalid, match="memory root"):
                    memory.import_from(str(archive))
    found = sorted((tmp_path / "root" / home).iterdir())
    assert [one.name for one in found] == ["user.md"]
    assert stat.S_ISREG(found[0].lstat().st_mode) and found[0].lstat().st_mode & 0o7077 == 0


def test_an_import_beside_writers_loses_nothing_of_theirs(tmp_path):
    """P4: notes and journals that grow during an import keep every line that was acknowledged."""
    there, here = tmp_path / "there", tmp_path / "here"
    theirs_files, theirs_log = DeviceLocalBackend(there), FileJournals(there)
    theirs = Notebook(theirs_files, FileLocks(there / "locks"))
    ours_files, ours_log = DeviceLocalBackend(here), FileJournals(here)
    ours = Notebook(ours_files, FileLocks(here / "locks"))
    at = Locator("default_app/default_project/sessions/s.jsonl")
    for n in range(3):
        [kept] = theirs.append("episode", ALICE, "2026-06-01", [Draft({"said": f"common{n}"})])
        ours_files.write(NOTE, theirs_files.read(NOTE))
        theirs_log.append(at, [f"line{n}"])
    ours_log.append(at, ["line0"])
    for n in range(30):
        theirs.append("episode", ALICE, "2026-06-01", [Draft({"said": f"theirs{n}"})])
        theirs_log.append(at, [f"later{n}"])
    done = threading.Event()

    def write() -> None:
        for n in range(40):
            ours.append("episode", ALICE, "2026-06-01", [Draft({"said": f"ours{n}"})])
            ours_log.append(at, [f"mine{n}"])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()

    def merge(locator, mine, other):
        return merged(place_of(locator), mine, other).text

    while not done.is_set():
        transfer.bring_in(ours_files, ours_log, str(there), merge)
    writer.join()
    transfer.bring_in(ours_files, ours_log, str(there), merge)
    found = [entry.inline["said"] for entry in ours.read(NOTE).entries]
    assert {f"ours{n}" for n in range(40)} <= set(found)
    assert {f"theirs{n}" for n in range(30)} <= set(found)
    lines = ours_log.read(at).lines
    assert [line for line in lines if line.startswith("mine")] == [f"mine{n}" for n in range(40)]
    assert kept


def test_an_entry_appended_during_the_merge_stays(tmp_path):
    """P4: whoever writes between the look and the write of an import is met, not overwritten."""
    there, here = tmp_path / "there", tmp_path / "here"
    Notebook(DeviceLocalBackend(there), FileLocks(there / "locks")).append(
        "episode", ALICE, "2026-06-01", [Draft({"said": "theirs"})]
    )
    ours_files = DeviceLocalBackend(here)
    ours = Notebook(ours_files, FileLocks(here / "locks"))
    ours.append("episode", ALICE, "2026-06-01", [Draft({"said": "ours"})])
    late = ["late"]

    def merge(locator, mine, other):
        for words in late:
            ours.append("episode", ALICE, "2026-06-01", [Draft({"said": words})])
        late.clear()
        return merged(place_of(locator), mine, other).text

    transfer.bring_in(ours_files, FileJournals(here), str(there), merge)
    assert {entry.inline["said"] for entry in ours.read(NOTE).entries} == {"theirs", "ours", "late"}


# The tables of EverOS 1.5.1, as far as they hold what it accepted and did not extract.
EVEROS = """
CREATE TABLE md_change_state (md_path VARCHAR NOT NULL PRIMARY KEY, status VARCHAR NOT NULL);
CREATE TABLE unprocessed_buffer (
    created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL, message_id VARCHAR NOT NULL, app_id VARCHAR NOT NULL,
    project_id VARCHAR NOT NULL, session_id VARCHAR NOT NULL, track VARCHAR NOT NULL, sender_id VARCHAR NOT NULL,
    sender_name VARCHAR, role VARCHAR NOT NULL, timestamp DATETIME NOT NULL, content_items_json VARCHAR NOT NULL,
    text VARCHAR NOT NULL, tool_calls_json VARCHAR, tool_call_id VARCHAR,
    PRIMARY KEY (message_id, app_id, project_id));
CREATE TABLE memorize_inbox (
    id INTEGER PRIMARY KEY, app_id VARCHAR NOT NULL, project_id VARCHAR NOT NULL, session_id VARCHAR NOT NULL,
    payload_json VARCHAR NOT NULL, status VARCHAR NOT NULL);
"""


def everos_root(root):
    """A root as EverOS leaves it when it is killed: three messages buffered, one more request queued, a log beside it."""
    (root / ".index/sqlite").mkdir(parents=True)
    path = root / ".index/sqlite/system.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(EVEROS)
    for n, (who, role, items, text) in enumerate(
        [
            (
                "dana",
                "user",
                [{"type": "text", "text": "The boiler is in the cellar."}],
                "The boiler is in the cellar.",
            ),
            ("helper", "assistant", [{"type": "text", "text": "Noted."}], "Noted."),
            ("dana", "user", [{"type": "hologram", "text": None, "uri": "x"}], "A picture of the boiler."),
        ]
    ):
        at = f"2026-06-01 10:00:0{n}.250000"
        row = (
            at,
            at,
            f"m{n}",
            "default",
            "default",
            "kitchen",
            "memorize",
            who,
            None,
            role,
            at,
            json.dumps(items),
            text,
            None,
            None,
        )
        db.execute(f"INSERT INTO unprocessed_buffer VALUES ({', '.join('?' * len(row))})", row)
    queued = {"session_id": "kitchen", "messages": [said("The valve is red.", 308_005_000)]}
    db.execute(
        "INSERT INTO memorize_inbox VALUES (1, 'default', 'default', 'kitchen', ?, 'queued')",
        (json.dumps(queued),),
    )
    db.execute("INSERT INTO memorize_inbox VALUES (2, 'default', 'default', 'kitchen', '', 'success')")
    db.commit()
    with closing(sqlite3.connect(root / ".index/sqlite/ome.db")) as ome:
        ome.executescript("CREATE TABLE run_record (id TEXT); INSERT INTO run_record VALUES ('r1');")
    return db


def test_a_root_that_everos_served_opens_with_its_buffer_as_inbox(tmp_path, caplog):
    """E2, E10, E20, E62: foreign databases are set aside whole and said once; what was not extracted waits here, with times and
    senders, once; a flush makes it an episode, and forgetting takes the set-aside files along.
    """
    root = tmp_path / "root"
    with closing(everos_root(root)):
        with opened(root) as memory:
            waiting = memory.unprocessed("kitchen")
    assert [(one.sender_id, one.text) for one in waiting] == [
        ("dana", "The boiler is in the cellar."),
        ("helper", "Noted."),
        ("dana", "A picture of the boiler."),
        ("alice", "The valve is red."),
    ]
    assert waiting[0].timestamp == datetime(2026, 6, 1, 10, 0, 0, 250_000, UTC).timestamp() * 1000
    assert caplog.text.count("4 messages that EverOS had not extracted") == 1
    assert caplog.text.count("system.db was set aside") == 1
    caplog.clear()
    with opened(root) as memory:
        assert len(memory.unprocessed("kitchen")) == 4
        memory.flush("kitchen")
        assert len(list((root / "default_app/default_project/users/dana/episodes").iterdir())) == 1
        assert memory.strategies()
    with opened(root) as memory:
        assert memory.unprocessed("kitchen") == []
        assert "EverOS" not in caplog.text
        names = {one.name for one in (root / ".index/sqlite").iterdir()}
        assert {"system.db.taken", "ome.db.foreign"} <= names
        memory.forget_session("kitchen")
    assert not [one for one in (root / ".index/sqlite").iterdir() if b"boiler" in one.read_bytes()]


@pytest.mark.parametrize("damage", ["a page", "its end", "all of it"])
def test_a_damaged_buffer_is_told_and_kept(tmp_path, damage, capsys, caplog):
    """E2, E20: what can be read of it comes in; that there may be more is said once, then by `status` and `doctor` until the
    file is gone, from Python, by command and over HTTP.
    """
    root = tmp_path / "root"
    everos_root(root).close()
    path = root / ".index/sqlite/system.db"
    data = bytearray(path.read_bytes())
    if damage == "a page":  # the one with the queue of requests
        at = data.index(b"The valve is red.") // 4096 * 4096
        data[at : at + 4096] = b"\x55" * 4096
    path.write_bytes(
        data[:5000] if damage == "its end" else b"no database" * 99 if damage == "all of it" else data
    )
    with opened(root) as memory:
        assert len(memory.unprocessed("kitchen")) == (3 if damage == "a page" else 0)
        memory.index_status()
        assert [one for one in memory.status()["warnings"] if "EverOS" in one]
        (told,) = [one for one in memory.doctor() if "EverOS" in one["what"]]
        assert (told["level"], "sqlite3" in told["next"]) == ("warn", True)
    assert caplog.text.count("system.db was set aside") == 1
    caplog.clear()
    run = ["--root", str(root)]
    capsys.readouterr()
    assert main([*run, "status"]) == 1
    assert "may be in there alone" in capsys.readouterr().out
    assert main([*run, "doctor"]) == 0
    assert "may be in there alone" in capsys.readouterr().out
    assert caplog.text == "", "the log said it once"
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        assert "may be in there alone" in str(server.call("GET", "/api/v1/status")[1]["data"]["warnings"])
    kept = next(one for one in path.parent.iterdir() if one.suffix in {".unread", ".damaged"})
    assert kept.stat().st_size > 900
    kept.unlink()
    assert main([*run, "status"]) == 0


def test_a_damaged_buffer_elsewhere_is_named_by_the_import(tmp_path, capsys):
    """What can be read of another root's buffer comes in, and the answer says that it is not all."""
    source = tmp_path / "theirs"
    everos_root(source).close()
    path = source / ".index/sqlite/system.db"
    data = bytearray(path.read_bytes())
    at = data.index(b"The valve is red.") // 4096 * 4096
    data[at : at + 4096] = b"\x55" * 4096
    path.write_bytes(data)
    assert main(["--root", str(tmp_path / "root"), "import", str(source)]) == 1
    told = capsys.readouterr().out
    assert "3 messages" in told
    assert "system.db cannot be read whole" in told
    assert path.read_bytes() == data


def test_an_import_takes_the_buffer_of_another_program_along(tmp_path):
    """A folder that EverOS served, or an archive of it: its waiting messages come in once, and its files stay as they are."""
    source = tmp_path / "theirs"
    with closing(everos_root(source)) as db, opened(tmp_path / "root") as memory:
        first = memory.import_from(str(source))
        assert (first["messages"], first["problems"]) == (4, [])
        assert memory.import_from(str(source))["messages"] == 0
        assert [one.text for one in memory.unprocessed("kitchen")][-1] == "The valve is red."
        assert db.execute("SELECT count(*) FROM unprocessed_buffer").fetchone() == (3,)
