"""Storage, journals and locks on local files: exact, durable, confined, and clear when the disk refuses."""

import ast
import errno
import fcntl
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.engines import files, tree
from cairn.engines.files import PROTOCOL, DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.engines.vault import VaultMutex
from cairn.errors import Conflict, Invalid, InvalidLocatorError, NotFound, StorageFailed, Unavailable
from cairn.seams import Capabilities, Locator, content_hash, registry
from tests.waiting import LONG, calls_of, until


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def backend(root):
    return DeviceLocalBackend(root=root)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# -- what it is


def test_profile_and_name():
    """S40, S50, S51, S53: registered as device-local at import; declares nothing; last write wins."""
    assert PROTOCOL == "device-local"
    assert registry.get(PROTOCOL) is DeviceLocalBackend


def test_root_is_made_and_declares_nothing(tmp_path):
    """S52, S53: the root is injectable, made on construction, private; all capabilities are False."""
    backend = DeviceLocalBackend(root=str(tmp_path / "deep" / "root"))

    assert (tmp_path / "deep" / "root").is_dir()
    assert stat.S_IMODE((tmp_path / "deep" / "root").stat().st_mode) == 0o700
    assert backend.capabilities == Capabilities()
    assert backend.conflict_strategy == "none"


def test_without_a_root_it_is_the_default_one(tmp_path, monkeypatch):
    """S50, S52: `DeviceLocalBackend()` is the memory of the person whose machine it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    store = DeviceLocalBackend()
    store.write(store.resolve("a.md"), "x")
    assert (tmp_path / ".cairn" / "a.md").read_text() == "x"


@pytest.mark.parametrize("bad", ["", "a\x00b"])
def test_a_root_needs_a_name(bad):
    """S52: an empty or impossible root is refused by name."""
    with pytest.raises(Invalid):
        DeviceLocalBackend(root=bad)


def test_module_holds_no_mutex_no_merger_no_database():
    """S59: files.py defines and imports none of them; exclusion and appends live in modules of their own."""
    source = ast.parse(Path(files.__file__).read_text(encoding="utf-8"))
    defined = {
        node.name.lower() for node in ast.walk(source) if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(source)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert not [
        name for name in defined if any(w in name for w in ("mutex", "lock", "merge", "sync", "index"))
    ]
    assert not imported & {
        "fcntl",
        "threading",
        "sqlite3",
        "lancedb",
        "cairn.engines.locks",
        "cairn.engines.vault",
    }


# -- exactness


def test_keys_map_to_files_below_the_root(backend, root):
    """S54: the root joined with the parts, nothing else."""
    backend.write(Locator("users/alice/user.md"), "hi")
    assert (root / "users" / "alice" / "user.md").read_bytes() == b"hi"


def test_bytes_are_exact_both_ways(backend, root):
    """S55, S8: no newline translation, no added byte."""
    (root / "crlf.md").write_bytes(b"a\r\nb\rc\n\xef\xbb\xbf")
    assert backend.read(Locator("crlf.md")) == "a\r\nb\rc\n\ufeff"
    backend.write(Locator("out.md"), "a\r\nb\rc")
    assert (root / "out.md").read_bytes() == b"a\r\nb\rc"


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_round_trips(tmp_path_factory, text):
    """S5, S8, S55: every encodable text comes back as it was."""
    backend = DeviceLocalBackend(tmp_path_factory.getbasetemp() / "roundtrip")
    backend.write(Locator("x.md"), text)
    assert backend.read(Locator("x.md")) == text


def test_text_that_is_not_unicode_is_refused(backend, root):
    """Bad input: a lone surrogate raises Invalid and leaves nothing; so do bytes."""
    for content in ("half \ud83d", b"bytes"):
        with pytest.raises(Invalid):
            backend.write(Locator("a/x.md"), content)
    assert names_in(root) == []


def test_a_file_that_is_not_utf8_is_named(backend, root):
    """Bad input: reading Latin-1 bytes says which file and where."""
    (root / "latin.md").write_bytes(b"gr\xfc\xdfe")
    with pytest.raises(Invalid, match=r"latin\.md: not UTF-8 from byte 2"):
        backend.read(Locator("latin.md"))


# -- atomic, durable


def test_write_is_temp_flush_rename_flush(backend, root, monkeypatch):
    """E58, S56, S70: a temp beside the place, exclusive, flushed, renamed; then the directory is flushed."""
    steps = []

    def watched(name, describe):
        real = getattr(os, name)

        def call(*args, **kwargs):
            steps.append(describe(*args, **kwargs))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    backend.mkdir(Locator("d"))
    watched("open", lambda path, flags, *a, **k: f"create {path}" if flags & os.O_CREAT else "open")
    watched("fsync", lambda fd: "flush dir" if stat.S_ISDIR(os.fstat(fd).st_mode) else "flush file")
    watched("replace", lambda a, b, **k: f"rename {a} {b}")
    backend.write(Locator("d/n.md"), "text")

    shown = [step for step in steps if step != "open"]
    assert [step.split()[0] for step in shown] == ["create", "flush", "rename", "flush"]
    assert shown[0].split()[1].startswith(".n.md.tmp.")
    assert (shown[1], shown[3]) == ("flush file", "flush dir")
    assert shown[2].endswith(" n.md")
    assert names_in(root / "d") == ["n.md"]


def test_new_parents_are_flushed_too(backend, monkeypatch):
    """S56: each folder made on the way is flushed into its parent."""
    flushed = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(os.fstat(fd).st_ino), real(fd))[1])
    backend.write(Locator("a/b/c.md"), "x")
    assert len(set(flushed)) == 4, "the root, a, b, and the file"


def test_a_write_that_fails_leaves_the_old_text_and_no_temp(backend, root, monkeypatch):
    """S56, S70, P9: whatever step fails, the prior bytes stay and the temp goes."""
    backend.write(Locator("n.md"), "old")
    for step in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*args, **kwargs):
                raise OSError(errno.EIO, "boom", "/secret/path")

            patch.setattr(os, step, fail)
            with pytest.raises(StorageFailed) as caught:
                backend.write(Locator("n.md"), "new")
        assert "n.md" in str(caught.value)
        assert "/secret" not in str(caught.value)
        assert str(root) not in str(caught.value)
        assert caught.value.errno == errno.EIO
        assert backend.read(Locator("n.md")) == "old"
        assert names_in(root) == ["n.md"]


def test_kill_in_the_middle_of_writes_leaves_a_whole_text(root):
    """S56: kill -9 at any moment leaves the old text or the new one, never a mix."""
    code = """
        import sys
        from cairn.engines.files import DeviceLocalBackend
        from cairn.seams import Locator
        b = DeviceLocalBackend(sys.argv[1])
        n = 0
        while True:
            n += 1
            b.write(Locator("n.md"), str(n % 10) * 300_000)
            print(n, flush=True)
    """
    for lines in (1, 2, 5):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(root)], stdout=subprocess.PIPE, text=True
        )
        first = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        acknowledged = int([*first, *child.stdout.read().split()][-1])
        child.wait()
        child.stdout.close()
        text = DeviceLocalBackend(root).read(Locator("n.md"))
        assert len(text) == 300_000
        assert len(set(text)) == 1
        assert text[0] in {str(acknowledged % 10), str((acknowledged + 1) % 10)}


def test_unfinished_writes_are_never_listed(backend, root):
    """E58, C8: dot-temp names left by a crash are hidden from list and scan, and cannot be written to."""
    backend.write(Locator("n.md"), "x")
    (root / ".n.md.tmp.0123").write_text("left over")

    assert backend.list(Locator()) == [Locator("n.md")]
    assert [key for key, _, _ in backend.scan()] == ["n.md"]
    for act in (
        lambda: backend.write(Locator(".a.tmp.b"), "x"),
        lambda: backend.write(Locator("new/.a.tmp.b"), "x"),
        lambda: backend.write(Locator("new/.a.tmp.b/n.md"), "x"),
        lambda: backend.mkdir(Locator(".a.tmp.b")),
        lambda: FileJournals(root).append(Locator("new/.a.tmp.b"), ["x"]),
    ):
        with pytest.raises(InvalidLocatorError):
            act()
    assert not backend.exists(Locator("new"))


def test_a_write_bound_to_be_refused_makes_no_folder(backend, root):
    """Bad input: expecting a text where there is no folder yet leaves none behind."""
    with pytest.raises(Conflict):
        backend.write(Locator("new/folder/n.md"), "x", expect=content_hash("y"))
    assert names_in(root) == []


def test_what_killed_writes_left_is_swept_when_old(backend, root):
    """E58: old temps of ours go, young ones and everything else stay."""
    backend.write(Locator("a/n.md"), "x")
    old, young = f".n.md.tmp.{'0' * 32}", f".n.md.tmp.{'1' * 32}"
    for name in (old, young, ".mine.tmp.txt"):
        (root / "a" / name).write_text("left over")
    os.utime(root / "a" / old, (1, 1))
    os.utime(root / "a" / ".mine.tmp.txt", (1, 1))
    (root / "a" / "ln").symlink_to(root / "a" / old)

    assert backend.sweep() == 1
    assert names_in(root / "a") == [".mine.tmp.txt", young, "ln", "n.md"]
    assert backend.sweep(older_than_seconds=0) == 1


def test_names_as_long_as_a_file_system_allows(backend):
    """Bad input: 255 bytes are a name, the temp of such a name is shortened; 256 are refused by the key rule."""
    for name in ("x" * 255, "ü" * 127 + "x"):
        backend.write(Locator(f"d/{name}"), "long")
        assert backend.read(Locator(f"d/{name}")) == "long"
    deep = "/".join(["d" * 200] * 15)
    backend.write(Locator(deep), "deep")
    assert backend.read(Locator(deep)) == "deep"


def test_a_mode_set_by_a_person_survives(backend, root):
    """A rewrite keeps the permissions of the file it replaces; a new file follows the umask."""
    backend.write(Locator("n.md"), "x")
    os.chmod(root / "n.md", 0o600)
    backend.write(Locator("n.md"), "y")
    assert stat.S_IMODE((root / "n.md").stat().st_mode) == 0o600


# -- the verbs


def test_list_is_sorted_and_forgiving(backend, root):
    """S10, S57, X2: children by key; [] for an absent place and for a file; unusable names are passed over."""
    for key in ("b.md", "a.md", "sub/x.md"):
        backend.write(Locator(key), "x")
    (root / "back\\slash.md").write_text("x")
    (root / "new\nline.md").write_text("x")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.md")).write_text("x")

    assert [place.key for place in backend.list(Locator())] == ["a.md", "b.md", "sub"]
    assert sorted(key for key, _, _ in backend.scan()) == ["a.md", "b.md", "sub/x.md"]
    assert backend.list(Locator("none")) == backend.list(Locator("a.md")) == []


def test_exists_info_mkdir(backend, root):
    """S11, S12, S13, S26, S58: as the contract says, on real files."""
    assert not backend.exists(Locator("a/b"))
    assert backend.mkdir(Locator("a/b")) == backend.mkdir(Locator("a/b")) == Locator("a/b")
    assert backend.exists(Locator("a/b"))
    backend.write(Locator("a/n.md"), "ü")
    info = backend.info(Locator("a/n.md"))
    assert (info.size, info.is_dir, info.mtime) == (2, False, (root / "a" / "n.md").stat().st_mtime)
    assert (backend.info(Locator("a")).is_dir, backend.info(Locator("a")).size) == (True, 0)
    with pytest.raises(NotFound):
        backend.info(Locator("none"))


def test_a_folder_is_not_a_file_nor_the_reverse(backend):
    """Bad input: reading, writing or removing a folder, or writing below a file, is refused by name."""
    backend.write(Locator("d/n.md"), "x")
    for act in (
        lambda: backend.read(Locator("d")),
        lambda: backend.read(Locator()),
        lambda: backend.write(Locator("d"), "x"),
        lambda: backend.write(Locator(), "x"),
        lambda: backend.write(Locator("d/n.md/below"), "x"),
        lambda: backend.mkdir(Locator("d/n.md")),
        lambda: backend.remove(Locator("d")),
    ):
        with pytest.raises(Invalid):
            act()
    with pytest.raises(NotFound):
        backend.read(Locator("d/n.md/below"))
    assert not backend.exists(Locator("d/n.md/below"))


def test_pipes_do_not_hang(backend, root):
    """Bad input: a named pipe in the tree is refused, not waited for."""
    os.mkfifo(root / "pipe.md")
    for act in (lambda: backend.read(Locator("pipe.md")), lambda: backend.write(Locator("pipe.md"), "x")):
        with pytest.raises(Invalid):
            act()
    assert list(backend.scan()) == []


def test_expect_meets_a_hand_edit(backend, root):
    """C8: an edit made between read and write is a Conflict; the edit stays."""
    backend.write(Locator("n.md"), "one")
    seen = content_hash(backend.read(Locator("n.md")))
    (root / "n.md").write_text("edited by hand")
    with pytest.raises(Conflict) as caught:
        backend.write(Locator("n.md"), "two", expect=seen)
    assert caught.value.facts["found"] == content_hash("edited by hand")
    assert (root / "n.md").read_text() == "edited by hand"
    assert names_in(root) == ["n.md"]


def test_expect_meets_an_edit_made_while_the_new_text_was_flushed(backend, root, monkeypatch):
    """C8: the comparison comes after the slow part, just before the rename."""
    backend.write(Locator("n.md"), "one")
    real = os.fsync

    def edit_meanwhile(fd):
        real(fd)
        (root / "n.md").write_text("late edit")

    monkeypatch.setattr(os, "fsync", edit_meanwhile)
    with pytest.raises(Conflict):
        backend.write(Locator("n.md"), "two", expect=content_hash("one"))
    assert (root / "n.md").read_text() == "late edit"


def test_remove_is_durable_and_precise(backend, monkeypatch):
    """C8: the extension removes one file and flushes the folder."""
    backend.write(Locator("d/n.md"), "x")
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    backend.remove(Locator("d/n.md"))
    assert len(flushed) == 1
    assert not backend.exists(Locator("d/n.md"))


def test_a_removed_root_comes_back_with_the_next_write(backend, root):
    """S52: reads say nothing is there; a write makes the root anew."""
    root.rmdir()
    assert backend.list(Locator()) == []
    with pytest.raises(NotFound):
        backend.read(Locator("n.md"))
    backend.write(Locator("n.md"), "x")
    assert backend.read(Locator("n.md")) == "x"


# -- confinement


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.md").write_text("secret")
    return folder


def test_links_out_of_the_root_are_refused_before_anything_happens(backend, root, outside):
    """E100, S25, S64, P6: a linked folder or file is neither read, written, listed nor made below."""
    (root / "ln").symlink_to(outside)
    (root / "file.md").symlink_to(outside / "secret.md")
    (root / "dangling.md").symlink_to(outside / "made.md")
    for act in (
        lambda: backend.read(Locator("ln/secret.md")),
        lambda: backend.write(Locator("ln/new.md"), "x"),
        lambda: backend.write(Locator("ln/deep/new.md"), "x"),
        lambda: backend.mkdir(Locator("ln/deep")),
        lambda: backend.list(Locator("ln")),
        lambda: list(backend.scan(Locator("ln"))),
        lambda: backend.info(Locator("ln/secret.md")),
        lambda: backend.exists(Locator("ln/secret.md")),
        lambda: backend.remove(Locator("ln/secret.md")),
        lambda: backend.read(Locator("file.md")),
        lambda: backend.write(Locator("file.md"), "x"),
        lambda: backend.write(Locator("dangling.md"), "x"),
        lambda: backend.remove(Locator("file.md")),
        lambda: FileJournals(root).append(Locator("ln/j.jsonl"), ["x"]),
        lambda: FileJournals(root).append(Locator("file.md"), ["x"]),
        lambda: FileJournals(root).read(Locator("file.md")),
    ):
        with pytest.raises(InvalidLocatorError):
            act()
    assert names_in(outside) == ["secret.md"]
    assert (outside / "secret.md").read_text() == "secret"
    assert backend.list(Locator()) == []
    assert list(backend.scan()) == []


def test_a_link_swapped_in_later_is_caught(backend, root, outside):
    """E100: a folder that was fine at the first write and is a link at the second is refused."""
    backend.write(Locator("d/n.md"), "x")
    (root / "d").rename(root / "was-d")
    (root / "d").symlink_to(outside)
    with pytest.raises(InvalidLocatorError):
        backend.write(Locator("d/n.md"), "y")
    assert names_in(outside) == ["secret.md"]


def test_a_folder_swapped_for_a_link_during_a_write_changes_nothing_outside(
    backend, root, outside, monkeypatch
):
    """E100: the walk holds the folder itself, so a swap between check and use cannot redirect the write."""
    backend.write(Locator("d/n.md"), "old")
    real = os.fsync

    def swap(fd):
        real(fd)
        if (root / "d").is_dir() and not (root / "d").is_symlink():
            (root / "d").rename(root / "moved")
            (root / "d").symlink_to(outside)

    monkeypatch.setattr(os, "fsync", swap)
    backend.write(Locator("d/n.md"), "new")
    assert names_in(outside) == ["secret.md"]
    assert (root / "moved" / "n.md").read_text() == "new"


def test_the_root_itself_may_be_a_link(tmp_path):
    """E100: a person may link the root to where they keep it; only what lies below is confined."""
    (tmp_path / "real").mkdir()
    (tmp_path / "ln").symlink_to(tmp_path / "real")
    DeviceLocalBackend(tmp_path / "ln").write(Locator("n.md"), "x")
    assert (tmp_path / "real" / "n.md").read_text() == "x"


def test_names_that_differ_only_by_case_get_a_named_error(backend, root):
    """Bad input: a twin by case or Unicode form is refused, for files and folders; the first stays."""
    backend.write(Locator("Notes/Day.md"), "x")
    backend.write(Locator("Notes/caf\u00e9.md"), "x")
    for key in ("Notes/day.md", "notes/other.md", "Notes/cafe\u0301.md", "Notes/DAY.MD"):
        with pytest.raises(InvalidLocatorError, match="only by case"):
            backend.write(Locator(key), "y")
    with pytest.raises(InvalidLocatorError):
        FileJournals(root).append(Locator("Notes/DAY.md"), ["x"])
    backend.write(Locator("Notes/Day.md"), "again")
    backend.remove(Locator("Notes/Day.md"))
    backend.write(Locator("Notes/day.md"), "now free")
    (root / "Notes" / "BYHAND.md").write_text("x")
    with pytest.raises(InvalidLocatorError):
        backend.write(Locator("Notes/ByHand.md"), "y")


@pytest.mark.parametrize("name", ["con", "NUL.md", "aux", "com1.tar.gz", "LPT9", "ends.", "ends "])
def test_names_that_windows_cannot_carry_are_not_made(backend, root, name):
    """Bad input: device names and a dot or blank at the end; as a file, a folder, a parent and a journal."""
    for act in (
        lambda: backend.write(Locator(f"d/{name}"), "x"),
        lambda: backend.write(Locator(f"{name}/n.md"), "x"),
        lambda: backend.mkdir(Locator(name)),
        lambda: FileJournals(root).append(Locator(name), ["x"]),
        lambda: InMemoryBackend().write(Locator(f"{name}/n.md"), "x"),
    ):
        with pytest.raises(InvalidLocatorError, match="everywhere"):
            act()
    assert names_in(root) == []
    (root / name).write_text("made by another program")
    assert backend.read(Locator(name)) == "made by another program"
    backend.write(Locator("console/null.md"), "fine")


# -- a disk that refuses


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 1 MB, where the machine lets us mount one."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_named_and_harms_nothing(small_disk):
    """P9: ENOSPC is a StorageFailed that names the key; old text and journal stay; room brings recovery."""
    backend, journals = DeviceLocalBackend(small_disk / "r"), FileJournals(small_disk / "r")
    backend.write(Locator("n.md"), "old")
    journals.append(Locator("j.jsonl"), ["kept"])
    with pytest.raises(StorageFailed, match=r"n\.md: the disk is full") as caught:
        backend.write(Locator("n.md"), "x" * 2_000_000)
    assert isinstance(caught.value, OSError)
    assert str(small_disk) not in str(caught.value)
    with pytest.raises(StorageFailed, match="full"):
        journals.append(Locator("j.jsonl"), ["y" * 2_000_000])

    assert backend.read(Locator("n.md")) == "old"
    assert journals.read(Locator("j.jsonl")).lines == ("kept",)
    assert names_in(small_disk / "r") == ["j.jsonl", "n.md"]
    backend.write(Locator("n.md"), "new")
    journals.append(Locator("j.jsonl"), ["more"])
    assert journals.read(Locator("j.jsonl")).lines == ("kept", "more")


def test_a_read_only_disk_is_named(small_disk):
    """P9: EROFS is a StorageFailed for every verb that changes something; reading goes on."""
    backend, journals = DeviceLocalBackend(small_disk / "r"), FileJournals(small_disk / "r")
    backend.write(Locator("n.md"), "old")
    journals.append(Locator("j.jsonl"), ["kept"])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (
        lambda: backend.write(Locator("n.md"), "x"),
        lambda: backend.mkdir(Locator("d")),
        lambda: backend.remove(Locator("n.md")),
        lambda: journals.append(Locator("j.jsonl"), ["x"]),
        lambda: journals.replace(Locator("j.jsonl"), ["x"]),
        lambda: FileLocks(small_disk / "locks").hold("x").__enter__(),
    ):
        with pytest.raises(StorageFailed, match="read-only"):
            act()
    assert backend.read(Locator("n.md")) == "old"
    assert journals.read(Locator("j.jsonl")).lines == ("kept",)


def test_a_size_limit_is_named(root):
    """P9: EFBIG halfway through a write (a process limit, so it runs everywhere) leaves the old state."""
    code = """
        import resource, signal, sys
        from cairn.engines.files import DeviceLocalBackend
        from cairn.engines.journals import FileJournals
        from cairn.errors import StorageFailed
        from cairn.seams import Locator
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        b, j = DeviceLocalBackend(sys.argv[1]), FileJournals(sys.argv[1])
        b.write(Locator("n.md"), "old"); j.append(Locator("j.jsonl"), ["kept"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for act in (lambda: b.write(Locator("n.md"), "x" * 200_000), lambda: j.append(Locator("j.jsonl"), ["y" * 200_000])):
            try: act()
            except StorageFailed as error: print(error)
        print(b.read(Locator("n.md")), j.read(Locator("j.jsonl")).lines, [p.key for p in b.list(Locator())])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(root)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert "n.md" in lines[0]
    assert "size limit" in lines[0]
    assert "j.jsonl" in lines[1]
    assert lines[2] == "old ('kept',) ['j.jsonl', 'n.md']"
    assert resource.RLIMIT_FSIZE
    assert signal.SIGXFSZ


def test_every_error_of_the_system_is_translated():
    """Each errno becomes a StorageFailed with the key and a word on what to do; none leaks a path."""
    for number in errno.errorcode:
        error = tree.failed("users/a.md", OSError(number, "x", "/home/me/x"))
        assert str(error).startswith("users/a.md: ")
        assert "/home" not in str(error)
        assert errno.errorcode[number] in str(error)


# -- scan


def test_scan_tells_size_and_time_of_every_file(backend, root):
    """Change detection: keys below a place with their size and mtime in ns; folders that vanish are passed over."""
    for n in range(30):
        backend.write(Locator(f"users/u{n % 3}/n{n}.md"), "x" * n)
    found = {key: (size, mtime) for key, size, mtime in backend.scan(Locator("users/u1"))}

    assert sorted(found) == sorted(f"users/u1/n{n}.md" for n in range(1, 30, 3))
    known = (root / "users" / "u1" / "n4.md").stat()
    assert found["users/u1/n4.md"] == (4, known.st_mtime_ns)
    assert list(backend.scan(Locator("none"))) == []
    assert len(list(backend.scan())) == 30


def test_scan_makes_the_bare_calls_alone(tmp_path):
    """Speed: a tree of 4,000 notes costs one stat a note, and a few calls of the system a folder."""
    for folder in range(40):
        (tmp_path / f"d{folder}").mkdir()
        for note in range(100):
            (tmp_path / f"d{folder}" / f"note-{note}.md").touch()
    backend = DeviceLocalBackend(tmp_path)

    work = calls_of(lambda: list(backend.scan()))

    assert work["scandir"] == 41
    assert work["stat"] + work["fstat"] <= 4000 + 2 * 41
    assert work["open"] <= 3 * 41
    assert work.total() < 8 * 4000, work.most_common(8)


# -- journals


@pytest.fixture
def journals(root):
    return FileJournals(root)


AT = Locator("app/sessions/s.jsonl")


@pytest.mark.parametrize(
    "torn", [b"half a li", b"first\t\n", b"first\t\nsecond\t\nthi", b"x" * 200_000, b"\t\n", b"\t"]
)
def test_a_torn_tail_is_never_returned_nor_glued(journals, root, torn):
    """Tenet 3: what a power cut left of a unit is not read, and the next append starts on a fresh line."""
    end = journals.append(AT, ["a", "b"])
    path = root / AT.key
    with path.open("ab") as handle:
        handle.write(torn)

    assert journals.read(AT).lines == ("a", "b")
    assert journals.read(AT).end == end
    journals.append(AT, ["c"])
    assert journals.read(AT).lines == ("a", "b", "c")
    assert journals.read(AT, end).lines == ("c",)


def test_a_journal_that_is_all_torn_starts_anew(journals, root):
    """Tenet 3: a first line that was never finished leaves an empty journal."""
    (root / "app" / "sessions").mkdir(parents=True)
    (root / AT.key).write_bytes(b"never finis")
    assert journals.read(AT).lines == ()
    journals.append(AT, ["first"])
    assert (root / AT.key).read_bytes() == b"first\n"


@given(
    st.lists(
        st.lists(
            st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=20),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_cut_anywhere_a_journal_holds_whole_units(tmp_path_factory, units, data):
    """Tenet 3: truncate the file at any byte: what reads back is a prefix of the units, each whole."""
    units = [[line.rstrip("\t\r") for line in unit] for unit in units]
    root = tmp_path_factory.mktemp("cut")
    journals = FileJournals(root)
    for unit in units:
        journals.append(Locator("j"), unit)
    size = journals.size(Locator("j"))
    cut = data.draw(st.integers(0, size))
    os.truncate(root / "j", cut)

    prefixes = [tuple(line for unit in units[:n] for line in unit) for n in range(len(units) + 1)]
    kept = journals.read(Locator("j")).lines
    assert kept in prefixes
    journals.append(Locator("j"), ["next"])
    assert journals.read(Locator("j")).lines == (*kept, "next")
    if cut == size:
        assert kept == prefixes[-1]


def test_a_line_of_odd_bytes_hurts_only_itself(journals, root):
    """Damage stays in its line: it comes back spelled out, where a JSON reader will refuse it."""
    journals.append(AT, ["a"])
    with (root / AT.key).open("ab") as handle:
        handle.write(b'{"x": "\xff"}\n')
    journals.append(AT, ["c"])
    assert journals.read(AT).lines == ("a", '{"x": "\\xff"}', "c")


def test_one_append_is_one_write_and_one_flush(journals, monkeypatch):
    """Speed: after the first, an append costs one write and one fdatasync, however many lines."""
    journals.append(AT, ["first"])
    calls = []
    for name in ("write", "fdatasync", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    journals.append(AT, ["a", "b", "c"])
    assert calls == ["write", "fdatasync"]


def test_appends_that_meet_are_committed_together(journals, monkeypatch):
    """Speed: eight threads that arrive while one flushes share the next flush."""
    journals.append(AT, ["first"])
    flushes, arrived, real = [], threading.Event(), os.fdatasync

    def slow(fd):
        flushes.append(1)
        if len(flushes) == 1:
            arrived.set()
            until(lambda: len(journals.together.lines[AT.key].waiting) == 8)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    threads = [threading.Thread(target=journals.append, args=(AT, ["lead"]))]
    threads[0].start()
    arrived.wait(LONG)
    threads += [threading.Thread(target=journals.append, args=(AT, [f"f{n}"])) for n in range(8)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(LONG)

    assert len(flushes) == 2
    assert sorted(journals.read(AT).lines) == sorted(["first", "lead", *(f"f{n}" for n in range(8))])
    assert journals.together.lines == {}


def test_an_interrupted_commit_acknowledges_nobody(journals, monkeypatch):
    """Durable: where the thread that commits for others is stopped (Ctrl-C), each of them is told so; the next append goes on."""
    journals.append(AT, ["kept"])
    arrived, real, answers = threading.Event(), os.fdatasync, []

    def stopped(fd):
        monkeypatch.setattr(os, "fdatasync", together)
        arrived.set()
        until(lambda: len(journals.together.lines[AT.key].waiting) == 3)
        real(fd)

    def together(fd):
        monkeypatch.setattr(os, "fdatasync", real)
        raise KeyboardInterrupt

    def append(name):
        try:
            answers.append((name, journals.append(AT, [name])))
        except BaseException as error:
            answers.append((name, type(error)))

    monkeypatch.setattr(os, "fdatasync", stopped)
    threads = [threading.Thread(target=append, args=("lead",))]
    threads[0].start()
    arrived.wait(LONG)
    threads += [threading.Thread(target=append, args=(f"f{n}",)) for n in range(3)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(LONG)

    refused = [answer for name, answer in answers if name != "lead"]
    assert sorted(refused, key=str) == [KeyboardInterrupt, Unavailable, Unavailable]
    assert journals.read(AT).lines == ("kept", "lead")
    assert journals.together.lines == {}
    journals.append(AT, ["next"])
    assert journals.read(AT).lines == ("kept", "lead", "next")


def test_a_failed_commit_tells_everyone_who_waited(journals, monkeypatch):
    """P9: no append is acknowledged when the flush failed, and none of its lines stay."""
    journals.append(AT, ["kept"])

    def fail(fd):
        raise OSError(errno.EIO, "boom")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageFailed, match="input/output"):
            journals.append(AT, ["lost"])
    assert journals.read(AT).lines == ("kept",)


def test_a_journal_replaced_or_deleted_meanwhile_is_noticed(journals, root):
    """Another process compacts or a person deletes: appends go to the file that is there now."""
    journals.append(AT, ["a"])
    FileJournals(root).replace(AT, ["compacted"])
    journals.append(AT, ["b"])
    assert journals.read(AT).lines == ("compacted", "b")
    (root / AT.key).unlink()
    journals.append(AT, ["c"])
    assert journals.read(AT).lines == ("c",)


def test_an_append_that_waited_for_a_replaced_journal_goes_to_the_new_one(journals, root):
    """The lock is on the file: whoever gets it late looks whether the file is still the journal."""
    journals.append(AT, ["a"])
    path = root / AT.key
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=journals.append, args=(AT, ["b"]))
        thread.start()
        time.sleep(0.05)
        assert thread.is_alive(), "an append waits for the lock of another process"
        fresh = path.with_name("fresh")
        fresh.write_bytes(b"compacted\n")
        fresh.rename(path)
    thread.join(LONG)
    assert journals.read(AT).lines == ("compacted", "b")


def test_the_name_of_a_new_journal_is_durable_before_its_first_line(journals, monkeypatch):
    """Tenet 3: the folders are flushed first, so a journal with content cannot lose its name."""
    calls = []
    for name in ("write", "fdatasync", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    journals.append(AT, ["a"])
    assert calls == ["fsync", "fsync", "fsync", "write", "fdatasync"], "app, sessions, the file's name"


@pytest.mark.parametrize("bad", [["a\nb"], ["ok", 3], "one text", ["tail\t"], ["\udc00"]])
def test_what_is_no_line_is_refused(journals, bad):
    """Bad input: line breaks, non-text and half characters raise Invalid, and nothing is made."""
    with pytest.raises(Invalid):
        journals.append(AT, bad)
    assert journals.size(AT) == 0


def run_processes(code, *args, count):
    """Run `count` Python processes with their number and `args`; all must succeed."""
    children = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(n), *map(str, args)])
        for n in range(count)
    ]
    assert [child.wait(LONG) for child in children] == [0] * count


def test_eight_processes_append_to_one_journal(journals, root):
    """P5: 8 processes, 4 threads each; every unit is there once and whole."""
    code = """
        import sys, threading
        from cairn.engines.journals import FileJournals
        from cairn.seams import Locator
        j, at = FileJournals(sys.argv[2]), Locator("app/sessions/s.jsonl")
        def work(t):
            for n in range(10):
                j.append(at, [f"{sys.argv[1]}.{t}.{n}a", f"{sys.argv[1]}.{t}.{n}b"])
        ts = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        [t.start() for t in ts]; [t.join() for t in ts]
    """
    run_processes(code, root, count=8)
    lines = journals.read(AT).lines
    assert len(lines) == len(set(lines)) == 8 * 4 * 10 * 2
    assert all(a[:-1] == b[:-1] for a, b in zip(lines[::2], lines[1::2], strict=True))


def test_killed_appenders_lose_nothing_acknowledged(root):
    """P1, tenet 3: kill -9 amid appends: what was acknowledged is there once, what is there is whole."""
    code = """
        import sys
        from cairn.engines.journals import FileJournals
        from cairn.seams import Locator
        j, n = FileJournals(sys.argv[1]), 0
        while True:
            j.append(Locator("j"), [f"{sys.argv[2]}-{n}", "x" * 50_000, f"{sys.argv[2]}-{n} end"])
            print(f"{sys.argv[2]}-{n}", flush=True)
            n += 1
    """
    acknowledged = []
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(root), str(turn)],
            stdout=subprocess.PIPE,
            text=True,
        )
        acknowledged += [child.stdout.readline().strip() for _ in range(turn + 1)]
        child.kill()
        acknowledged += child.stdout.read().split()
        child.wait()
        child.stdout.close()
    lines = FileJournals(root).read(Locator("j")).lines
    begins, ends = lines[::3], lines[2::3]
    assert [f"{begin} end" for begin in begins] == list(ends)
    assert set(acknowledged) <= set(begins)
    assert len(set(begins)) == len(begins)


# -- locks


def test_locks_exclude_across_processes(tmp_path):
    """P5, E99: 8 processes add to one counter under a lock; no increment is lost."""
    (tmp_path / "count").write_text("0")
    code = """
        import sys, threading
        from pathlib import Path
        from cairn.engines.locks import FileLocks
        locks, count = FileLocks(sys.argv[2] + "/locks"), Path(sys.argv[2]) / "count"
        def work():
            for n in range(25):
                with locks.hold("count"):
                    count.write_text(str(int(count.read_text()) + 1))
        ts = [threading.Thread(target=work) for _ in range(2)]
        [t.start() for t in ts]; [t.join() for t in ts]
    """
    run_processes(code, tmp_path, count=8)
    assert (tmp_path / "count").read_text() == "400"


HOLDER = """
    import sys, time
    from cairn.engines.locks import FileLocks
    with FileLocks(sys.argv[1]).lease("indexer") as mine:
        print(mine, flush=True)
        sys.stdin.read()
"""


def test_a_dead_holder_frees_its_lock_at_once(tmp_path):
    """Design 6: while the holder lives the lease is refused; killed, it is had at the next try."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "locks")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "True\n"
    locks = FileLocks(tmp_path / "locks")
    with locks.lease("indexer") as mine:
        assert mine is False
    with pytest.raises(Unavailable, match="indexer"), locks.hold("indexer", timeout=0.05):
        pass
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    with locks.hold("indexer", timeout=0):
        pass


def test_a_swept_or_removed_lock_folder_is_made_anew(tmp_path):
    """Locks keep excluding after their files are swept or their folder is removed."""
    locks = FileLocks(tmp_path / "locks")
    with locks.hold("a"):
        pass
    assert locks.sweep(older_than_seconds=0) == 1
    with locks.hold("a"):
        assert FileLocks(tmp_path / "locks").sweep(older_than_seconds=0) == 0, "a held lock is not swept"
        with FileLocks(tmp_path / "locks").lease("a") as mine:
            assert mine is False
    for path in (tmp_path / "locks").iterdir():
        path.unlink()
    (tmp_path / "locks").rmdir()
    assert locks.sweep() == 0
    with locks.hold("a"), FileLocks(tmp_path / "locks").lease("a") as mine:
        assert mine is False


def test_a_lock_file_removed_at_the_last_moment_is_noticed(tmp_path, monkeypatch):
    """Swept between opening and locking, a file excludes nobody: the lock is taken anew on the file that is there."""
    removed = []
    real = fcntl.flock

    def sweep_first(file, how):
        if not removed and how & fcntl.LOCK_EX:
            removed.extend((tmp_path / "locks").iterdir())
            for path in removed:
                path.unlink()
        return real(file, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with FileLocks(tmp_path / "locks").hold("a"):
        assert len(removed) == 1
        with FileLocks(tmp_path / "locks").lease("a") as mine:
            assert mine is False


@pytest.mark.parametrize("kind", ["a named lock", "the mutex of a vault"])
def test_who_waits_for_a_lock_goes_before_who_comes_later(tmp_path, monkeypatch, kind):
    """A process that takes a lock again and again keeps nobody out: it lets go once where somebody waits."""
    if kind == "a named lock":
        take = [partial(FileLocks(tmp_path).hold, "a", timeout=LONG) for _ in range(2)]
    else:
        take = [VaultMutex(tmp_path, timeout_seconds=LONG).hold for _ in range(2)]
    order, tried, entered, real = [], threading.Event(), threading.Event(), time.sleep

    def nap(seconds):
        if threading.current_thread() is threading.main_thread():
            assert entered.wait(LONG)
        else:
            tried.set()
            real(seconds)

    def wait():
        with take[0]():
            order.append("who waited")
        entered.set()

    monkeypatch.setattr(time, "sleep", nap)
    waiting = threading.Thread(target=wait)
    with take[1]():
        waiting.start()
        assert tried.wait(LONG)
    with take[1]():
        order.append("who came later")
    waiting.join(LONG)
    assert order == ["who waited", "who came later"]


def test_a_fork_does_not_keep_a_lock(tmp_path):
    """A child forked inside the block does not hold the lock after the parent let go."""
    locks = FileLocks(tmp_path / "locks")
    with locks.hold("a"):
        fd = os.open(tmp_path, os.O_RDONLY)
        held = [os.dup(n) for n in range(3, fd) if _is_lock(n, tmp_path)]
        os.close(fd)
        assert held
    with FileLocks(tmp_path / "locks").lease("a") as mine:
        assert mine is True
    for number in held:
        os.close(number)


def _is_lock(number, folder):
    try:
        return str(folder / "locks") in os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return False


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_lock_needs_a_name(tmp_path, name):
    """Bad input: refused by name."""
    with pytest.raises(Invalid), FileLocks(tmp_path).hold(name):
        pass


def test_a_folder_is_made_while_its_parent_is_being_removed(tmp_path):
    """Whoever opens a root while somebody removes `.index` gets the folder, not an error."""
    storage = DeviceLocalBackend(tmp_path)
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            shutil.rmtree(tmp_path / ".index", ignore_errors=True)
            time.sleep(0.05)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for _ in range(150):
            storage.mkdir(Locator(".index/lancedb"))
    finally:
        stop.set()
        remover.join()
