"""What is remembered is its owner's alone: modes of everything that is made, and keys that stay at home."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tarfile

import pytest

import cairn
from cairn.config import starter_text
from cairn.engines.files import DeviceLocalBackend
from cairn.settings_files import without_secrets
from cairn.surfaces.cli import main

KEY, TOKEN, OLD = "sk-live-0123456789abcdefghij", "tok-abcdef0123456789", "sk-live-zyxwvutsrqponmlkjihg"
SETTINGS = f"""\
# my settings
[llm]
base_url = "http://me:hunter2hunter2@127.0.0.1:9/v1"  # at home
model = "m"
api_key = "{KEY}"
# api_key = "{OLD}"

[server]
port = 9000
tokens = [
    "{TOKEN} r",  # reader
    "{TOKEN}-two",
]
allowed_hosts = ["a.example"]
"""


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch, tmp_path):
    """The umask most systems have: what is private must be so by our doing."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "hashing")
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield
    os.umask(before)


def run(*words: str) -> None:
    assert main(list(words)) == 0, words


def open_to_others(folder) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [f"{path} {stat.filemode(path.lstat().st_mode)}" for path in found if path.lstat().st_mode & 0o077]


def said(text):
    return {"sender_id": "alice", "role": "user", "timestamp": 1_780_000_000_000, "content": text}


@pytest.mark.parametrize("door", ["init", "add", "python", "vault"])
def test_whatever_makes_the_root_makes_it_and_all_in_it_private(tmp_path, monkeypatch, door):
    """0700 and 0600, whichever call comes first; a synced folder's index in the cache too."""
    root = tmp_path / "root"
    monkeypatch.setenv("CAIRN_STORAGE__CACHE", str(tmp_path / "cache" / "cairn"))
    if door == "vault":
        monkeypatch.setenv("CAIRN_STORAGE__BACKEND", "vault")
    if door == "python":
        with cairn.open_blocking(root) as memory:
            memory.add("s", [said("I keep bees.")])
    else:
        run(
            "--root",
            str(root),
            "init" if door == "init" else "add",
            *(["--session", "s", "hello"] if door != "init" else []),
        )
    run("--root", str(root), "add", "--session", "s", "--sender", "alice", "I keep bees in Lisbon.")
    run("--root", str(root), "flush", "--session", "s")
    run("--root", str(root), "remember", "We deploy with make ship, never on Fridays.")
    run("--root", str(root), "search", "--user", "alice", "--strong", "bees")
    run("--root", str(root), "sweep")
    run("--root", str(root), "cascade", "sync")

    assert open_to_others(root) == []
    leaves = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [str(path) for path in leaves if path.stat().st_mode & 0o077] == []
    assert bool(leaves) == (door == "vault")


def test_a_starter_that_replaces_another_is_private(tmp_path):
    """`init --force` over a file that everybody may read."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cairn.toml").write_text("")
    run("--root", str(tmp_path / "root"), "init", "--force")
    assert stat.S_IMODE((tmp_path / "root" / "cairn.toml").stat().st_mode) == 0o600


def test_what_is_new_is_as_open_as_its_folder_and_what_was_there_keeps_its_mode(tmp_path):
    """In a folder its owner has opened to a group, new files are open to it too: that was decided by a person."""
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o750)
    run("--root", str(root), "add", "--session", "s", "hello")
    log = next(root.rglob("sessions/*.jsonl"))
    assert stat.S_IMODE(log.stat().st_mode) == 0o640
    note = root / "ome.toml"
    note.chmod(0o604)
    storage = DeviceLocalBackend(root)
    storage.write(storage.resolve("ome.toml"), "# mine\n")
    assert stat.S_IMODE(note.stat().st_mode) == 0o604


def exported(tmp_path, name, *options):
    """A root with keys, exported from the command line; the export's folder, unpacked if it was an archive."""
    root = tmp_path / "root"
    run("--root", str(root), "init")
    (root / "cairn.toml").write_text(SETTINGS)
    for beside in (".env", "cairn (conflicted copy).toml", "cairn.toml~"):
        (root / beside).write_text(f"CAIRN_LLM__API_KEY={KEY}\n")
    run("--root", str(root), "add", "--session", "s", "--sender", "alice", "I keep bees in Lisbon.")
    target = tmp_path / name
    run("--root", str(root), "export", str(target), *options)
    if not name.endswith(".gz"):
        return target
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        assert [member.name for member in archive if member.mode & 0o077] == []
        archive.extractall(tmp_path / "unpacked", filter="data")
    return tmp_path / "unpacked"


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
def test_an_export_is_private_and_leaves_keys_and_tokens_out(tmp_path, name, capsys):
    """Nothing secret travels, the rest of the settings does, what stayed is named, and it can be brought in."""
    found = exported(tmp_path, name)
    everything = "".join(path.read_text() for path in found.rglob("*") if path.is_file())
    assert "bees" in everything
    assert [word for word in (KEY, TOKEN, OLD, "hunter2hunter2") if word in everything] == []
    text = (found / "cairn.toml").read_text()
    assert "port = 9000" in text and "# my settings" in text and 'allowed_hosts = ["a.example"]' in text
    assert "tokens" not in text
    out = capsys.readouterr().out
    for left in ("llm.api_key", "server.tokens", ".env", "cairn (conflicted copy).toml", "cairn.toml~"):
        assert left in out
    if name == "copy":
        assert open_to_others(found) == []
    run("--root", str(tmp_path / "other"), "import", str(tmp_path / name))
    run("--root", str(tmp_path / "other"), "flush", "--session", "s")
    run("--root", str(tmp_path / "other"), "search", "--user", "alice", "--method", "keyword", "bees")


def test_keys_travel_when_they_are_asked_for(tmp_path):
    """`--with-secrets` copies the settings as they are, just as private."""
    found = exported(tmp_path, "copy", "--with-secrets")
    assert (found / "cairn.toml").read_text() == SETTINGS
    assert (found / ".env").exists()
    assert open_to_others(found) == []


def test_python_says_what_an_export_left_out(tmp_path):
    """The same two ways from the library."""
    root = tmp_path / "root"
    run("--root", str(root), "add", "--session", "s", "hello")
    (root / "cairn.toml").write_text(f'[server]\ntokens = ["{TOKEN}"]\n')
    with cairn.open_blocking(root, background=False) as memory:
        assert memory.export_to(str(tmp_path / "a"))["left_out"] == ["server.tokens"]
        assert memory.export_to(str(tmp_path / "b"), with_secrets=True)["left_out"] == []
    assert TOKEN in (tmp_path / "b" / "cairn.toml").read_text()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('[llm]\napi_key = "k"\nmodel = "m"\n', '[llm]\nmodel = "m"\n'),
        ('[llm]\napi_key = """\nk\n"""\n[search]\ntop_k = 3\n', "[llm]\n[search]\ntop_k = 3\n"),
        ('[server]\ntokens = ["a",\n\n  "b" ]\nport = 1', "[server]\nport = 1"),
        ('[llm]\n"api_key" = "k"\n', "[llm]\n"),
        ('[embedding]\napi_key = "k"\n[llm]\napi_key = "j"\n', "[embedding]\n[llm]\n"),
        ('llm = { api_key = "k", model = "m" }\n', None),
        ('llm.api_key = "k"\n', None),
        ("[llm\n", None),
        ('[llm]\n# api_key = "k"\n# a word\n#api_key="j"', "[llm]\n# a word\n"),
        ('# tokens = [\n#  "a",\n#  "b" ]\nend.x = 1\n', "end.x = 1\n"),
        ('# tokens = ["a", "b"]\n# port = 1\n', "# port = 1\n"),
        ('# tokens = []\n# api_key = ""\n', '# tokens = []\n# api_key = ""\n'),
    ],
)
def test_secrets_go_by_whole_statements_or_the_file_stays(text, rest):
    """Every form TOML allows is either cut out exactly or not touched at all."""
    found = without_secrets(text)
    assert (found and found[0]) == rest


def test_a_starter_has_nothing_to_leave_out(tmp_path):
    """Commented defaults are no secrets."""
    root = tmp_path / "root"
    run("--root", str(root), "init")
    with cairn.open_blocking(root, background=False) as memory:
        assert memory.export_to(str(tmp_path / "copy"))["left_out"] == []
    assert (tmp_path / "copy" / "cairn.toml").read_text() == starter_text()


def test_doctor_names_settings_with_keys_that_others_can_read_and_mends_them(tmp_path, capsys):
    """A root made by an earlier version has such a file."""
    root = tmp_path / "root"
    run("--root", str(root), "init")
    (root / "cairn.toml").write_text(f'[server]\ntokens = ["{TOKEN}"]\n')
    (root / "cairn.toml").chmod(0o644)
    capsys.readouterr()
    main(["--root", str(root), "doctor"])
    assert "can be read by other users" in capsys.readouterr().out
    main(["--root", str(root), "doctor", "--fix"])
    assert stat.S_IMODE((root / "cairn.toml").stat().st_mode) == 0o600
    main(["--root", str(root), "doctor"])
    assert "can be read by other users" not in capsys.readouterr().out.rpartition("alone now")[2]


def test_the_process_that_writes_lance_tables_keeps_them_private(tmp_path):
    """LanceDB asks for no mode of its own: the follower's umask decides."""
    from cairn.engines import lance

    root = tmp_path / "root"
    run("--root", str(root), "add", "--session", "s", "--sender", "alice", "I keep bees in Lisbon.")
    run("--root", str(root), "flush", "--session", "s")
    run("--root", str(root), "search", "--user", "alice", "--strong", "bees")
    run("--root", str(root), "cascade", "sync")
    subprocess.run([sys.executable, "-m", lance.__name__, str(root / ".index")], check=True)
    assert list((root / ".index").rglob("*.lance"))
    assert open_to_others(root) == []
