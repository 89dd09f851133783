"""A backup taken while others write, read back when it is made, and restored into a new root."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile

import pytest

import cairn
from cairn import transfer
from cairn.engines.files import DeviceLocalBackend
from cairn.errors import Conflict, Invalid, Unavailable
from cairn.seams import Locator
from tests.surfaces.served import serving

SPACE = "default_app/default_project"
LOG, NOTE = Locator(f"{SPACE}/sessions/s1.jsonl"), Locator(f"{SPACE}/users/ann/episodes/2026-06-01.md")


def opened(root):
    return cairn.open_blocking(root, background=False, embedding__provider="none")


def message(text, n=0):
    return {"sender_id": "ann", "role": "user", "timestamp": 1_780_000_000_000 + n, "content": text}


def truth(root):
    """Every file of the truth below a root with its text, settings aside."""
    storage = DeviceLocalBackend(root)
    return {at.key: storage.read(at) for at in transfer.truth_files(storage) if len(at.parts) > 1}


def run(root, *words):
    command = [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(root), "--json", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_backup_of_a_running_server_restores(tmp_path):
    """The command line backs up beside a server; a new root made from it holds every file and answers the same."""
    root, new = tmp_path / "root", tmp_path / "new"
    (tmp_path / "backups").mkdir()
    with serving(root, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        assert server.post(
            "memory/add", {"session_id": "s1", "messages": [message("The lantern hangs in the attic.")]}
        )
        assert server.post("memory/flush", {"session_id": "s1"})[0] == 200
        assert server.post(
            "memory/add", {"session_id": "s2", "messages": [message("Not yet told: a heron.", 1)]}
        )
        made = run(root, "backup", tmp_path / "backups")
        assert made.returncode == 0, made.stderr
        assert server.call("GET", "/health")[0] == 200
    told = json.loads(made.stdout)
    assert told["target"].startswith(str(tmp_path / "backups" / "cairn-"))
    parts = {part["what"]: part["files"] for part in told["contents"]}
    assert parts["sessions"] == 2 and parts["users"] >= 1
    assert sum(parts.values()) == told["files"]

    with tarfile.open(told["target"]) as archive:
        kept = {name.removeprefix("./") for name in archive.getnames()}
    assert not [name for name in kept if name.startswith((".index", ".tmp"))]
    brought = run(new, "import", told["target"])
    assert brought.returncode == 0, brought.stderr
    then = {key: text for key, text in truth(new).items() if key in kept}
    assert then.keys() == {name for name in kept if name in truth(root)}
    assert then[LOG.key] == truth(root)[LOG.key]
    with opened(new) as memory:
        assert len(memory.search("lantern", user_id="ann", method="keyword").episodes) == 1
        assert memory.flush("s2").status == "extracted"
        assert not [one for one in memory.doctor() if one["level"] == "fail"]


class Busy(DeviceLocalBackend):
    """A root in which somebody writes each time the log is read, as often as they are told to."""

    def __init__(self, root, times):
        super().__init__(root)
        self.times = times
        self.order = []

    def read(self, locator):
        text = super().read(locator)
        self.order.append(locator)
        if locator == LOG and self.times:
            self.times -= 1
            # As capture does it: the note first, then the line that says so.
            for at, line in ((NOTE, "an episode\n"), (LOG, '{"told": 1}\n')):
                super().write(at, super().read(at) + line)
        return text


@pytest.fixture
def busy(tmp_path):
    def make(times):
        storage = Busy(tmp_path / "root", 0)
        storage.write(NOTE, "")
        storage.write(LOG, "")
        storage.times = times
        return storage

    return make


def counts(copy):
    return copy.read(LOG).count("told"), copy.read(NOTE).count("an episode")


def test_a_copy_waits_for_a_still_moment(tmp_path, busy):
    """What is written while it is copied is copied again, until nothing has changed."""
    done = transfer.export(busy(2), str(tmp_path / "copy"))
    assert done.still
    assert counts(DeviceLocalBackend(tmp_path / "copy")) == (2, 2)


def test_a_copy_that_finds_no_still_moment_claims_nothing_it_lacks(tmp_path, busy):
    """With somebody always writing, the log is copied before the note: every episode it tells of is there."""
    storage = busy(1000)
    done = transfer.export(storage, str(tmp_path / "copy"))
    claimed, there = counts(DeviceLocalBackend(tmp_path / "copy"))
    assert not done.still
    assert 0 < claimed <= there
    assert storage.order.index(LOG) < storage.order.index(NOTE)


def test_a_file_that_goes_meanwhile_is_not_in_the_copy(tmp_path, busy):
    """A note that is deleted between two looks is taken out of the copy again."""
    storage = busy(0)
    extra = Locator(f"{SPACE}/users/bob/user.md")
    storage.write(extra, "bob\n")
    looked = storage.read

    def read(locator):
        text = looked(locator)
        if locator == extra:
            storage.remove(extra)
        return text

    storage.read = read
    done = transfer.export(storage, str(tmp_path / "copy"))
    assert done.still and done.imported == 2
    assert not DeviceLocalBackend(tmp_path / "copy").exists(extra)


def test_an_archive_that_was_damaged_is_not_called_a_backup(tmp_path, busy):
    """What is read back is compared with what was copied; the file that differs is named."""
    target = str(tmp_path / "copy")
    done = transfer.export(busy(0), target)
    transfer.check_copy(target, done)
    DeviceLocalBackend(target).write(NOTE, "something else")
    with pytest.raises(Unavailable, match=r"2026-06-01\.md differs"):
        transfer.check_copy(target, done)


def test_bad_targets_are_refused_by_name(tmp_path):
    """A name that is no archive, one that is taken, one in the root itself, one that cannot be made."""
    with opened(tmp_path / "root") as memory:
        memory.add("s1", [message("hello")])
        with pytest.raises(Invalid, match=r"ending in \.tar\.gz"):
            memory.backup(str(tmp_path / "new-folder"))
        with pytest.raises(Invalid, match="lies in the memory root"):
            memory.backup(str(tmp_path / "root"))
        (tmp_path / "there.tar.gz").write_bytes(b"mine")
        with pytest.raises(Conflict, match="there already"):
            memory.backup(str(tmp_path / "there.tar.gz"))
        assert (tmp_path / "there.tar.gz").read_bytes() == b"mine"
        with pytest.raises(Unavailable, match="cannot be made"):
            memory.backup("/proc/nowhere/x.tar.gz")


def test_a_backup_leaves_keys_here_unless_asked(tmp_path):
    """Tokens stay here and are named once, however often the root was gone through."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cairn.toml").write_text('[server]\ntokens = ["secret-0123456789abcdef"]\n')
    with opened(tmp_path / "root") as memory:
        memory.add("s1", [message("hello")])
        assert memory.backup(str(tmp_path / "a.tar.gz"))["left_out"] == ["server.tokens"]
        assert memory.backup(str(tmp_path / "b.tar.gz"), with_secrets=True)["left_out"] == []
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert b"secret-0123" not in archive.extractfile("./cairn.toml").read()
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_read_is_named_and_all_else_is_copied(tmp_path):
    """A socket, a pipe and a note in another encoding cost only themselves; a folder or an archive alike."""
    with opened(tmp_path / "root") as memory:
        memory.add("s1", [message("The heron came.")])
        memory.flush("s1")
        space = tmp_path / "root" / SPACE
        os.mkfifo(space / "sessions" / "pipe.jsonl")
        (space / "users/ann/episodes/episode-2020-01-01.md").write_bytes(b"caf\xe9")
        with socket.socket(socket.AF_UNIX) as held, tempfile.TemporaryDirectory() as short:
            held.bind(f"{short}/x.sock")
            os.rename(f"{short}/x.sock", space / "sessions" / "x.sock")
        archive, folder = (
            memory.backup(str(tmp_path / "b.tar.gz")),
            memory.export_to(str(tmp_path / "copy")),
        )
    for made in (archive, folder):
        assert [one.partition(": ")[0].rpartition("/")[2] for one in made["unread"]] == [
            "pipe.jsonl",
            "x.sock",
            "episode-2020-01-01.md",
        ]
    assert "The heron came." in (tmp_path / "copy" / SPACE / "sessions/s1.jsonl").read_text()
