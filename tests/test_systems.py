"""Other operating systems: what is missing is said in one sentence, and what has another name is found under it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import types

import pytest

import cairn
from cairn import systems
from cairn.engines import tree
from cairn.engines.files import DeviceLocalBackend
from cairn.seams import Locator, content_hash

WITHOUT = """
import importlib.util, sys
sys.modules["fcntl"] = None
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "fcntl" else found(name, *more)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False)


def test_a_system_without_file_locks_is_refused_in_a_sentence(tmp_path):
    """The command line and the library say what is missing and what to do; nothing is made."""
    root = str(tmp_path / "root")
    done = run(f"from cairn.surfaces.cli import main\nsys.exit(main(['--root', {root!r}, 'status']))")
    assert done.returncode == 6
    assert "fcntl" in done.stderr
    assert "WSL 2" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(
        f"import cairn\ntry:\n    cairn.open_blocking({root!r})\nexcept cairn.Misconfigured as error:\n    print(error)"
    )
    assert "fcntl" in done.stdout
    assert not (tmp_path / "root").exists()


def test_what_is_missing_is_named(monkeypatch):
    """Each thing by itself; here nothing is missing."""
    assert systems.lacks() == []
    monkeypatch.delattr(os, "O_NOFOLLOW")
    assert "O_NOFOLLOW" in systems.lacks()[0]
    with pytest.raises(cairn.Misconfigured, match="O_NOFOLLOW"):
        systems.check()


def test_without_an_exchange_of_names_a_save_meanwhile_is_still_met(tmp_path, monkeypatch):
    """Where two names cannot be swapped in one step, the text is compared just before the rename."""
    monkeypatch.setattr(tree, "exchanging", lambda: None)
    storage, at = DeviceLocalBackend(tmp_path), Locator("a/note.md")
    storage.write(at, "one\n")
    storage.write(at, "two\n", expect=content_hash("one\n"))
    assert storage.read(at) == "two\n"
    (tmp_path / "a" / "note.md").write_text("a person's\n")
    with pytest.raises(cairn.Conflict):
        storage.write(at, "three\n", expect=content_hash("two\n"))
    assert storage.read(at) == "a person's\n"
    assert os.listdir(tmp_path / "a") == ["note.md"]


def test_the_exchange_goes_by_another_name_on_a_mac(monkeypatch):
    """macOS calls it renameatx_np, with the same arguments and the same number for a swap."""
    import ctypes

    mac = types.SimpleNamespace(renameatx_np=lambda *given: given)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: mac)
    assert tree.exchanging.__wrapped__() is mac.renameatx_np


def test_a_flush_reaches_the_disk_of_a_mac(tmp_path, monkeypatch):
    """There fsync leaves bytes in the drive's cache: F_FULLFSYNC is asked for, and fsync where a disk knows no such thing."""
    asked = []

    def control(fd, what):
        asked.append(what)
        if len(asked) == 1:
            raise OSError(45, "not supported")

    flushed = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", flushed.append)
    for _ in range(2):
        tree.flush(7)
    assert (asked, flushed) == ([51, 51], [7])
