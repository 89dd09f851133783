"""The vault: several writers on one synced tree, a mutex outside it, and selection that fails loudly."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from importlib import metadata

import pytest

from cairn.config import load
from cairn.engines import selection, vault
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend
from cairn.engines.locks import FileLocks
from cairn.engines.selection import find_backend, select_backend
from cairn.engines.vault import VaultBackend, VaultMutex, locks_directory
from cairn.errors import (
    CapabilityMismatchError,
    Conflict,
    Invalid,
    InvalidLocatorError,
    Misconfigured,
    StorageSelectionError,
    Unavailable,
)
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Notebook
from cairn.seams import BackendRegistry, Capabilities, Locator, content_hash
from cairn.types import Scope, Space
from tests.copies import merge_conflict_copies
from tests.waiting import LONG, until

N = Locator("n.md")


@pytest.fixture
def tree(tmp_path):
    return tmp_path / "tree"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def backend(tree, cache):
    return VaultBackend(tree, cache=cache)


def test_profile(backend):
    """S16, S29-S32, S73: it declares several writers, conflict files and sync, not encryption; whole-file."""
    assert backend.capabilities == Capabilities(concurrent_writers=True, conflict_files=True, sync=True)
    assert backend.capabilities.encryption is False
    assert backend.conflict_strategy == "whole-file"


def test_nothing_of_the_mutex_lies_in_the_tree(backend, tree, cache):
    """S72: the lock is `<cache>/locks/<sha256 of the real path>/lock`; the tree holds notes only."""
    backend.write(N, "x")
    home = locks_directory(tree, cache)

    assert os.listdir(tree) == ["n.md"]
    assert home == str(
        cache.resolve() / "locks" / __import__("hashlib").sha256(os.fsencode(tree.resolve())).hexdigest()
    )
    assert os.listdir(home) == ["guard"]


def test_two_names_of_one_tree_share_the_mutex(tmp_path, tree, cache):
    """S72: the hash is of the real path, so a link to the tree leads to the same lock."""
    tree.mkdir()
    (tmp_path / "ln").symlink_to(tree)
    assert locks_directory(tmp_path / "ln", cache) == locks_directory(tree, cache)


def test_a_cache_inside_the_tree_is_refused(tree):
    """S72, S32: locks in a synced folder would travel."""
    with pytest.raises(Invalid, match="inside the synced folder"):
        VaultBackend(tree, cache=tree / ".cache")
    assert not tree.exists()


def test_default_timings(tmp_path):
    """S72: timeout 10 s, stale after 10 s, a heartbeat every 5 s; each can be set."""
    mutex = VaultMutex(tmp_path)
    assert (mutex._timeout, mutex._stale, mutex._beat) == (10.0, 10.0, 5.0)
    assert VaultMutex(tmp_path, timeout_seconds=1)._timeout == 1


def test_the_mutex_is_a_directory_while_held(tmp_path):
    """S72: made by mkdir, gone after; a second writer waits and then says so, by name."""
    mutex, other = VaultMutex(tmp_path / "m"), VaultMutex(tmp_path / "m", timeout_seconds=0.05)
    with mutex.hold():
        assert (tmp_path / "m" / "lock").is_dir()
        with pytest.raises(Unavailable, match="another writer"), other.hold():
            pass
    assert not (tmp_path / "m" / "lock").exists()
    with other.hold():
        pass


def test_threads_of_one_process_exclude_each_other(tmp_path):
    """S72: the mutex stands between threads too."""
    mutex, inside, most = VaultMutex(tmp_path / "m"), [], []

    def work():
        for _ in range(15):
            with mutex.hold():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(most) == 60
    assert max(most) == 1


def test_a_dead_writers_mutex_is_taken_over(tmp_path):
    """S72: a directory nobody has touched for the stale time belongs to the dead; one just touched does not."""
    lock = tmp_path / "m" / "lock"
    lock.mkdir(parents=True)
    (lock / "sometoken").touch()
    with (
        pytest.raises(Unavailable),
        VaultMutex(tmp_path / "m", timeout_seconds=0.2, stale_seconds=LONG).hold(),
    ):
        pass
    os.utime(lock, (time.time() - 2 * LONG,) * 2)
    with VaultMutex(tmp_path / "m", timeout_seconds=LONG, stale_seconds=LONG).hold():
        assert not (lock / "sometoken").exists()


def test_a_heartbeat_keeps_a_slow_writer_in(tmp_path):
    """S72: a writer that is slower than the stale time keeps the mutex by touching it."""
    slow = VaultMutex(tmp_path / "m", stale_seconds=LONG, heartbeat_seconds=0.05)
    other = VaultMutex(tmp_path / "m", timeout_seconds=0.2, stale_seconds=LONG)
    with slow.hold() as token:
        lock = tmp_path / "m" / "lock"
        os.utime(lock, (1, 1))
        until(lambda: lock.stat().st_mtime > 1)
        with pytest.raises(Unavailable), other.hold():
            pass
        with slow.still_held(token):
            pass


def test_a_writer_that_slept_through_a_takeover_writes_nothing(backend, tree, cache, monkeypatch):
    """S72, S73: whoever lost the mutex finds out before the rename; the newcomer's text stays."""
    backend.write(N, "old")
    other = VaultBackend(tree, cache=cache, stale_seconds=0)
    sleeper = VaultBackend(tree, cache=cache, heartbeat_seconds=60)
    real, slept = os.fsync, []

    def sleep_once(fd):
        real(fd)
        if not slept:
            slept.append(1)
            other.write(N, "by the newcomer")

    monkeypatch.setattr(os, "fsync", sleep_once)
    with pytest.raises(Conflict, match="took over"):
        sleeper.write(N, "by the sleeper")
    assert backend.read(N) == "by the newcomer"
    assert os.listdir(tree) == ["n.md"]
    assert not os.path.exists(os.path.join(locks_directory(tree, cache), "lock"))


def test_an_edit_that_arrives_during_a_write_is_a_conflict(backend, tree, monkeypatch):
    """S9, S73: mutex, hash, re-hash, atomic write; the sync program's text is not overwritten unseen."""
    backend.write(N, "one")
    real = os.fsync

    def arrives(fd):
        real(fd)
        (tree / "n.md").write_text("synced in")

    monkeypatch.setattr(os, "fsync", arrives)
    with pytest.raises(Conflict):
        backend.write(N, "two")
    assert (tree / "n.md").read_text() == "synced in"


def test_one_call_is_all_that_the_hash_inside_write_covers(backend):
    """S74: two callers that read, then both write, lose the first update, unless they pass `expect`."""
    backend.write(N, "base")
    first, second = backend.read(N), backend.read(N)
    backend.write(N, first + " +1")
    backend.write(N, second + " +2")
    assert backend.read(N) == "base +2", "the promise ends with the call"

    seen = content_hash(backend.read(N))
    backend.write(N, "base +2 +3", expect=seen)
    with pytest.raises(Conflict):
        backend.write(N, "base +2 +4", expect=seen)
    assert backend.read(N) == "base +2 +3"


def test_versions_are_hashes_here(backend, tree):
    """S71, S81: times of synced files lie, so a version never rests on them, however long a file lay still."""
    backend.write(N, "one")
    os.utime(tree / "n.md", (1, 1))
    until(lambda: DeviceLocalBackend(tree).read_version(N)[1].startswith("stat:"))
    assert backend.read_version(N) == ("one", content_hash("one"))


def test_links_are_refused_here_too(backend, tree, tmp_path):
    """E100, S64: confinement is that of the local tree."""
    (tree / "ln").symlink_to(tmp_path)
    with pytest.raises(InvalidLocatorError):
        backend.write(Locator("ln/x.md"), "x")
    assert not (tmp_path / "x.md").exists()


def test_remove_and_scan(backend):
    """C8: the extensions work through the mutex."""
    backend.write(N, "x")
    assert [key for key, _, _ in backend.scan()] == ["n.md"]
    backend.remove(N)
    assert list(backend.scan()) == []


def run_together(code, *args):
    return [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(number), *map(str, args)])
        for number in (1, 2)
    ]


def test_two_processes_swap_on_one_file_without_loss(backend, tree, cache):
    """S74, P4: two processes, 150 read-modify-writes each by `expect` alone; every line is there once."""
    code = """
        import sys
        from cairn.engines.vault import VaultBackend
        from cairn.errors import Conflict
        from cairn.seams import Locator, content_hash
        b = VaultBackend(sys.argv[2], cache=sys.argv[3], timeout_seconds=240, stale_seconds=240)
        at = Locator("n.md")
        for n in range(150):
            while True:
                seen = b.read(at)
                try:
                    b.write(at, seen + f"{sys.argv[1]}.{n}\\n", expect=content_hash(seen))
                    break
                except Conflict:
                    continue
    """
    backend.write(N, "")
    assert [child.wait(LONG) for child in run_together(code, tree, cache)] == [0, 0]
    lines = backend.read(N).splitlines()
    assert sorted(lines) == sorted(f"{who}.{n}" for who in (1, 2) for n in range(150))


WRITER = """
    import sys
    from cairn.engines.locks import FileLocks
    from cairn.engines.vault import VaultBackend, locks_directory
    from cairn.notes.notebook import Draft, Notebook
    from cairn.types import Scope, Space
    who, tree, cache = sys.argv[1:]
    files = VaultBackend(tree, cache=cache, timeout_seconds=240, stale_seconds=240)
    notebook = Notebook(files, FileLocks(locks_directory(tree, cache) + "/names"))
    for n in range(500):
        text = f"writer {who} said {n}"
        notebook.append("episode", Scope(Space(), "user", "alice"), "2026-03-02", [Draft({}, {"Content": text})])
"""


@pytest.mark.slow
def test_two_vault_writers_and_a_planted_conflict_copy(tree, cache):
    """S29, S30, S72-S74, P4: 500 appends from each of two processes and a copy merged meanwhile:
    nothing lost, nothing doubled."""
    alice = Scope(Space(), "user", "alice")
    note = KINDS["episode"].locator(alice, "2026-03-02")
    locks = FileLocks(locks_directory(tree, cache) + "/names")
    backend = VaultBackend(tree, cache=cache, timeout_seconds=LONG, stale_seconds=LONG)
    notebook = Notebook(backend, locks)

    children = run_together(WRITER, tree, cache)
    until(lambda: backend.exists(note) and len(notebook.read(note).entries) > 100)
    # Another machine saw the first entries, then wrote its own: the ids collide with those written here.
    theirs = backend.read(note)
    head, mark, _ = theirs.partition("<!-- entry:ep_20260302_00000050 -->")
    other = "".join(
        f"<!-- entry:ep_20260302_{n:08d} -->\n## ep_20260302_{n:08d}\n\n### Content\nthe other machine said {n}\n"
        f"<!-- /entry:ep_20260302_{n:08d} -->\n"
        for n in range(50, 80)
    )
    assert mark
    backend.write(
        note.parent.child("episode-2026-03-02.sync-conflict-20260303-101500-ABCDEFG.md"), head + other
    )
    merges = merge_conflict_copies(notebook, backend)
    assert [child.wait(LONG) for child in children] == [0, 0]

    found = notebook.read(note)
    said = sorted(entry.sections["Content"] for entry in found.entries)
    expected = [f"writer {who} said {n}" for who in (1, 2) for n in range(500)]
    expected += [f"the other machine said {n}" for n in range(50, 80)]
    assert said == sorted(expected)
    assert len({entry.id for entry in found.entries}) == len(found.entries) == 1030
    assert found.problems == ()
    assert [(m.same, len(m.added), len(m.doubled), m.removed) for m in merges] == [(49, 0, 30, True)]
    assert all(entry.inline["conflict_of"] for entry in found.entries if "other" in entry.sections["Content"])
    assert [place.name for place in backend.list(note.parent)] == ["episode-2026-03-02.md"]


# -- selection


def settings(tmp_path, **given):
    return load(tmp_path / "root", environ={"HOME": str(tmp_path)}, **given)


def test_the_default_is_device_local(tmp_path):
    """S50, S77: absent config file and absent key are no error; they mean device-local."""
    assert type(select_backend(settings(tmp_path))) is DeviceLocalBackend


def test_a_configured_name_is_obeyed(tmp_path):
    """S77: file first, then environment and argument over it; each names a registered backend."""
    assert type(select_backend(settings(tmp_path, storage__backend="vault"))) is VaultBackend
    (tmp_path / "root").mkdir(exist_ok=True)
    (tmp_path / "root" / "cairn.toml").write_text('[storage]\nbackend = "vault"\n')
    assert type(select_backend(settings(tmp_path))) is VaultBackend


def test_a_vault_path_in_the_environment_means_vault(tmp_path):
    """S77: MEMORY_VAULT_PATH, when nothing of ours says otherwise; config and explicit roots are stronger."""
    env = {
        "MEMORY_VAULT_PATH": str(tmp_path / "v"),
        "XDG_CACHE_HOME": str(tmp_path / "c"),
        "HOME": str(tmp_path),
    }
    chosen = load(environ=env)
    assert (chosen.storage.backend, chosen.root) == ("vault", tmp_path / "v")
    assert type(select_backend(chosen)) is VaultBackend
    assert load(tmp_path / "mine", environ=env).storage.backend == "device-local"
    assert load(environ={**env, "CAIRN_STORAGE__BACKEND": "device-local"}).storage.backend == "device-local"
    (tmp_path / "v" / "cairn.toml").write_text('[storage]\nbackend = "device-local"\n')
    assert load(environ=env).storage.backend == "device-local"
    assert load(environ={**env, "MEMORY_VAULT_PATH": ""}).storage.backend == "device-local"


def test_an_unknown_name_is_loud(tmp_path):
    """S36, S78: no fallback; the message names what there is; nothing is made on disk."""
    with pytest.raises(
        StorageSelectionError, match=r'"valt": no such backend. Known are device-local'
    ) as caught:
        select_backend(settings(tmp_path, storage__backend="valt"))
    assert isinstance(caught.value, RuntimeError)
    assert not (tmp_path / "root").exists()


def test_a_vault_without_a_path_is_loud(tmp_path):
    """S78: the default root is not a synced folder."""
    with pytest.raises(StorageSelectionError, match=r"memory\.root"):
        select_backend(load(environ={"HOME": str(tmp_path)}, storage__backend="vault"))


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_name_is_loud(tmp_path, name):
    """S78: the value must be a non-empty string."""
    with pytest.raises(StorageSelectionError):
        select_backend(settings(tmp_path, storage__backend=name))


@pytest.mark.parametrize(
    "toml", ["[storage\nbackend=", "[storage]\nbackend = 3\n", "[storage]\nbackend = []\n"]
)
def test_a_config_that_cannot_be_read_is_loud(tmp_path, toml):
    """S78: unparseable config or a value that is no text stops everything; nothing is demoted."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cairn.toml").write_text(toml)
    with pytest.raises(Misconfigured, match=r"cairn\.toml"):
        settings(tmp_path)


class FromAPackage(InMemoryBackend):
    """What an installed package could offer."""

    made_with: object = None

    @classmethod
    def from_settings(cls, given):
        cls.made_with = given
        return cls()


@pytest.fixture
def offered(monkeypatch):
    def offer(**points):
        found = [
            metadata.EntryPoint(name=name, value=value, group=selection.PLUGINS)
            for name, value in points.items()
        ]
        monkeypatch.setattr(
            metadata, "entry_points", lambda group: found if group == selection.PLUGINS else []
        )

    return offer


def test_an_installed_package_may_offer_a_backend(tmp_path, offered):
    """S77, S35: found by its entry point, made by its own from_settings."""
    offered(mine=f"{__name__}:FromAPackage")
    chosen = settings(tmp_path, storage__backend="mine")
    made = select_backend(chosen, known=BackendRegistry())
    assert made.capabilities == FromAPackage().capabilities
    assert FromAPackage.made_with is chosen


@pytest.mark.parametrize("way", ["argument", "environment", "file"])
def test_a_backend_that_keeps_nothing_cannot_be_chosen(tmp_path, way):
    """S40, S78: whichever way it is named, the sentence says what would be lost and what to choose."""
    given, env = {}, {"HOME": str(tmp_path)}
    if way == "argument":
        given = {"storage__backend": "in-memory"}
    elif way == "environment":
        env["CAIRN_STORAGE__BACKEND"] = "in-memory"
    else:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "cairn.toml").write_text('[storage]\nbackend = "in-memory"\n')
    chosen = load(tmp_path / "root", environ=env, **given)
    with pytest.raises(
        StorageSelectionError,
        match=r"lose everything when the process ends.*Choose device-local or s3 or vault",
    ):
        select_backend(chosen)


@pytest.mark.parametrize("value", ["not_a_module:X", "cairn.errors:NoSuch", "builtins:dict"])
def test_a_package_that_cannot_be_loaded_is_loud(tmp_path, offered, value):
    """S78: missing, broken, or not a backend at all."""
    offered(mine=value)
    with pytest.raises(StorageSelectionError, match="cannot be used"):
        find_backend("mine", BackendRegistry())


def test_a_root_that_cannot_be_used_is_loud(tmp_path):
    """S78: a file where the root should be is a selection error, not a traceback."""
    chosen = settings(tmp_path)
    (tmp_path / "root").write_text("a file")
    with pytest.raises(StorageSelectionError, match="a file is where a folder should be"):
        select_backend(chosen)


def test_required_capabilities_are_checked_by_name(tmp_path):
    """S79: each unmet flag is named; what is met passes."""
    with pytest.raises(CapabilityMismatchError, match="concurrent_writers, sync") as caught:
        select_backend(settings(tmp_path), required=Capabilities(concurrent_writers=True, sync=True))
    assert isinstance(caught.value, StorageSelectionError)
    assert caught.value.facts["missing"] == ("concurrent_writers", "sync")
    made = select_backend(
        settings(tmp_path, storage__backend="vault"),
        required=Capabilities(concurrent_writers=True, sync=True),
    )
    assert type(made) is VaultBackend


def test_a_vaults_index_and_locks_stay_on_this_machine(tmp_path):
    """S32, S43, C8: the index of a synced tree lies in the cache, and a setting that says otherwise is refused."""
    chosen = settings(tmp_path, storage__backend="vault")
    assert chosen.index_dir.is_relative_to(chosen.cache_dir)
    assert not chosen.index_dir.is_relative_to(chosen.root)
    assert settings(tmp_path).index_dir == tmp_path / "root" / ".index"
    for given in (
        {"index__dir": str(tmp_path / "root" / "ix")},
        {"storage__cache": str(tmp_path / "root" / "c")},
    ):
        with pytest.raises(Misconfigured, match="inside the synced folder"):
            settings(tmp_path, storage__backend="vault", **given)


def test_vault_registers_itself():
    """S40, S2: the name is there from the import of its module."""
    assert vault.PROTOCOL == "vault"
    assert find_backend("vault") is VaultBackend
