"""Export and import: the truth travels, nothing is overwritten, and no archive writes outside."""

from __future__ import annotations

import io
import tarfile
import threading

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
from cairn.types import Scope, Space

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
    """P6: only regular files come in."""
    archive = tmp_path / "links.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for kind, name in (
            (tarfile.SYMTYPE, "link.md"),
            (tarfile.CHRTYPE, "device.md"),
            (tarfile.FIFOTYPE, "pipe.md"),
        ):
            member = tarfile.TarInfo(f"default_app/default_project/users/alice/{name}")
            member.type, member.linkname = kind, "/etc/passwd"
            made.addfile(member)
    with opened(tmp_path / "root") as memory:
        with pytest.raises(Invalid, match="memory root"):
            memory.import_from(str(archive))


def test_an_import_beside_writers_loses_nothing_of_theirs(tmp_path):
    """P4: notes and journals that grow during an import keep every line that was acknowledged."""
    there, here = tmp_path / "there", tmp_path / "here"
    theirs, theirs_log = Notebook(DeviceLocalBackend(there), FileLocks(there / "locks")), FileJournals(there)
    ours_files, ours_log = DeviceLocalBackend(here), FileJournals(here)
    ours = Notebook(ours_files, FileLocks(here / "locks"))
    at = Locator("default_app/default_project/sessions/s.jsonl")
    for n in range(3):
        [kept] = theirs.append("episode", ALICE, "2026-06-01", [Draft({"said": f"common{n}"})])
        ours_files.write(NOTE, theirs.text(NOTE))
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
