"""`cairn integrate`: what is written into other programs' files, and that exactly this is taken back."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.agents import edits, integrate
from cairn.agents.hosts import HOSTS
from cairn.surfaces.cli import main

FILES = {
    "claude": (".claude/settings.json", ".claude.json"),
    "codex": (".codex/hooks.json", ".codex/config.toml"),
    "cursor": (".cursor/hooks.json", ".cursor/mcp.json"),
    "gemini": (".gemini/settings.json",),
    "opencode": (".config/opencode/opencode.json",),
}
FOREIGN = {
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "beep"}]}],
        "PreCompact": [],
        "stop": [{"command": "beep"}],
    },
    "mcpServers": {"other": {"command": "other", "args": []}},
    "mcp": {"other": {"type": "local", "command": ["other"]}},
    "zeta": [1, {"a": "ü \\u00fc"}],
}
FORMS = {
    "two spaces": json.dumps(FOREIGN, indent=2) + "\n",
    "four spaces, no end": json.dumps(FOREIGN, indent=4),
    "tabs": json.dumps(FOREIGN, indent="\t", ensure_ascii=False) + "\n\n",
    "one line": json.dumps(FOREIGN),
    "odd": '{\n  "hooks" : { } ,\n\n  "mcpServers":{},   "mcp": {\n  },\n "x": "}{[]"\n}\n',
    "empty object": "{}",
    "empty": "",
}
TOML = '# mine\nmodel = "o"   # kept\n[mcp_servers.other]\ncommand = "other"'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    at = tmp_path / "home"
    at.mkdir()
    monkeypatch.setenv("HOME", str(at))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CAIRN_MEMORY__ROOT", str(at / "memory"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return at


def below(folder: Path) -> dict[str, bytes]:
    """Every file outside of the memory root."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("memory/")}


def names_cairn(path: Path) -> bool:
    """Whether a settings file that is still valid names our command."""
    text = path.read_text()
    value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    return re.search(r'"(/[^"]*/)?cairn', json.dumps(value)) is not None


@pytest.mark.parametrize("host", HOSTS)
def test_files_that_were_not_there_come_and_go(host: str, home: Path) -> None:
    """A dry run writes nothing; writing makes valid files that name us; removing leaves none behind."""
    assert main(["integrate", host, "--dry-run"]) == 0
    assert below(home) == {}
    assert main(["integrate", host]) == 0
    assert set(below(home)) == set(FILES[host])
    assert all(names_cairn(home / name) for name in FILES[host])
    written = below(home)
    assert main(["integrate", host]) == 0
    assert below(home) == written, "a second time changes nothing"
    assert main(["integrate", host, "--remove"]) == 0
    assert below(home) == {}
    assert main(["integrate", host, "--remove"]) == 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("host", HOSTS)
def test_foreign_entries_stay_and_files_are_as_before_to_the_byte(host: str, form: str, home: Path) -> None:
    """M63: whatever the indentation: others' entries are all there, and removal gives the very bytes back."""
    for name in FILES[host]:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TOML if path.suffix == ".toml" else FORMS[form])
    before = below(home)
    assert main(["integrate", host]) == 0
    for name in FILES[host]:
        text = (home / name).read_text()
        assert names_cairn(home / name)
        if name.endswith(".json") and FORMS[form].strip():
            was, now = json.loads(FORMS[form]), json.loads(text)
            assert {key: now[key] for key in was if key not in {"hooks", "mcp", "mcpServers"}} == {
                key: value for key, value in was.items() if key not in {"hooks", "mcp", "mcpServers"}
            }
            for event, groups in was.get("hooks", {}).items():
                assert now["hooks"][event][: len(groups)] == groups
    assert main(["integrate", host, "--remove"]) == 0
    assert below(home) == before


COMMENTED = """\ufeff{
  // "hooks": {} stood here
  "url": "http://a//b", /* } */
  "hooks": {
    "Stop": [ // none yet
    ],
    "BeforeAgent": [{"hooks": []},], // two commas
  }, // the last
}
"""
PLAIN = """{
  "url": "http://a//b",
  "hooks": {"Stop": [], "BeforeAgent": [{"hooks": []}]}
}"""


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gemini", ".gemini/settings.json"),
        ("claude", ".claude/settings.json"),
        ("opencode", ".config/opencode/opencode.jsonc"),
    ],
)
def test_comments_and_last_commas_are_read_over_and_stay(host: str, name: str, home: Path) -> None:
    """Several hosts allow them: the entries come in where they belong, and removal gives the very bytes back."""
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text(COMMENTED)
    assert main(["integrate", host]) == 0
    now = (home / name).read_text()
    for comment in (
        '// "hooks": {} stood here',
        "/* } */",
        "// none yet",
        "// two commas",
        "// the last",
        "\ufeff",
    ):
        assert now.count(comment) == 1
        now = now.replace(comment, "")
    found = json.loads(re.sub(r",(\s*[}\]])", r"\1", now))
    was = json.loads(PLAIN)
    assert found["url"] == was["url"] and found["hooks"]["BeforeAgent"][:1] == was["hooks"]["BeforeAgent"]
    assert host == "opencode" or found["hooks"]["Stop" if host == "claude" else "SessionStart"]
    assert main(["integrate", host]) == 0
    assert main(["integrate", host, "--remove"]) == 0
    assert (home / name).read_text() == COMMENTED


def test_a_host_that_is_started_from_anywhere_finds_the_program_and_the_root(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PATH and a root that this shell alone was told of are written out; a program that is on the PATH to stay is named."""
    own = Path(sys.prefix) / "bin" / "cairn"
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert main(["integrate", "claude"]) == 0
    hooks = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == f"{own} hook --root {home / 'memory'}"
    server = json.loads((home / ".claude.json").read_text())["mcpServers"]["cairn"]
    assert server == {"command": str(own), "args": ["mcp", "--root", str(home / "memory")]}
    installed = tmp_path / "bin" / "cairn"
    installed.parent.mkdir()
    installed.symlink_to(own)
    monkeypatch.setenv(
        "PATH", f"{installed.parent}{os.pathsep}{own.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    )
    written = below(home)
    assert main(["integrate", "claude"]) == 0
    assert below(home) == written, "the same hook by another path is not put in twice"
    assert main(["integrate", "claude", "--remove"]) == 0
    monkeypatch.delenv("CAIRN_MEMORY__ROOT")
    assert main(["integrate", "claude"]) == 0
    hooks = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == "cairn hook"
    assert stat.S_IMODE((home / ".cairn").stat().st_mode) == 0o700, "a root that is made is its owner's alone"


def test_what_was_written_before_a_file_refused_can_be_taken_back(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two files cannot be written: the first is on the receipt, and --remove takes it back."""
    real, before = integrate.write, '{"model": "x"}'

    def refuse(changes: list[integrate.HostChange]) -> None:
        if changes[0].path.name == ".claude.json" and changes[0].after is not None:
            raise PermissionError(13, "Permission denied", str(changes[0].path))
        real(changes)

    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text(before)
    monkeypatch.setattr(integrate, "write", refuse)
    assert main(["integrate", "claude"]) == 5
    assert "Permission denied" in capsys.readouterr().err
    assert names_cairn(home / ".claude/settings.json")
    assert main(["integrate", "claude", "--remove"]) == 0
    assert below(home) == {".claude/settings.json": before.encode()}


def test_what_somebody_changed_meanwhile_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another entry beside ours is kept; ours in another form is named and left to the person."""
    assert main(["integrate", "claude"]) == 0
    settings = home / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace('{\n  "hooks"', '{\n  "model": "x",\n  "hooks"', 1))
    server = home / ".claude.json"
    server.write_text(json.dumps(json.loads(server.read_text())))
    assert main(["integrate", "claude", "--remove"]) == 1
    assert str(server) in capsys.readouterr().err
    assert "cairn" in server.read_text()
    assert json.loads(settings.read_text())["model"] == "x"


@pytest.mark.parametrize(
    ("host", "name", "text", "says"),
    [
        ("claude", ".claude.json", '{"a": 1,,}', "not valid JSON (line 1"),
        ("claude", ".claude/settings.json", "[]", "no JSON object"),
        ("claude", ".claude/settings.json", '{"hooks": {"Stop": {}}}', '"hooks.Stop" should be a list'),
        ("claude", ".claude/settings.json", '{"hooks": []}', '"hooks" should be an object'),
        ("claude", ".claude/settings.json", '{"hooks": {"Stop": null}}', '"hooks.Stop" should be a list'),
        ("gemini", ".gemini/settings.json", '{"mcpServers": 5}', '"mcpServers" should be an object'),
        ("codex", ".codex/config.toml", "a = = 1", "not valid TOML"),
        ("codex", ".codex/config.toml", "mcp_servers = {}", "add [mcp_servers.cairn] by hand"),
    ],
)
def test_a_broken_file_is_named_and_nothing_is_written_anywhere(
    host: str, name: str, text: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert main(["integrate", host]) == 2
    said = capsys.readouterr().err
    assert str(path) in said and says in said and "Nothing was written" in said
    assert below(home) == {name: text.encode()}


def test_a_project_gets_its_own_files_and_words(home: Path, tmp_path: Path) -> None:
    """With --project the files of the repository; with --notes a marked block, in the file's own line ends."""
    work = tmp_path / "work"
    (work / "AGENTS.md").write_bytes(b"# Rules\r\nBe kind.\r\n")
    before = below(work)
    assert main(["integrate", "codex", "--project", "--notes"]) == 0
    words = (work / "AGENTS.md").read_bytes()
    assert words.startswith(before["AGENTS.md"]) and words.count(b"cairn:begin") == 1
    assert b"\n" not in words.replace(b"\r\n", b"")
    assert names_cairn(work / ".codex" / "hooks.json") and below(home) == {}
    assert main(["integrate", "codex", "--project", "--remove"]) == 0
    assert below(work) == before and not (work / ".codex").exists()


def test_a_host_that_is_set_up_twice_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the user's hooks and a repository's both run: whichever comes second, how to take back the other is said."""
    (Path.cwd() / "README.md").touch()
    assert main(["integrate", "claude"]) == 0
    assert "set up" not in capsys.readouterr().err
    assert main(["integrate", "claude", "--project"]) == 0
    said = capsys.readouterr().err
    assert "for all your projects, too" in said and "`cairn integrate claude --remove`" in said
    assert main(["integrate", "claude"]) == 0
    assert "in 1 repository, too" in capsys.readouterr().err
    assert main(["integrate", "codex"]) == 0
    assert main(["integrate", "claude", "--project", "--remove"]) == 0
    assert main(["integrate", "claude"]) == 0
    assert "set up" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "link"), [("claude", ".claude"), ("claude", ".mcp.json"), ("codex", "AGENTS.md")]
)
def test_a_link_out_of_a_repository_is_not_written_through(
    host: str,
    link: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whose repository it is may be anybody: entries for it alone stay in it, also where a link leads to nothing yet."""
    tree = tmp_path / "clone"
    (tree / ".git").mkdir(parents=True)
    (tree / link).symlink_to(home / "elsewhere")
    monkeypatch.chdir(tree)
    assert main(["integrate", host, "--project", "--notes"]) == 2
    assert "leads out of this repository" in capsys.readouterr().err
    assert not (home / "elsewhere").exists()
    assert sorted(one.name for one in tree.iterdir()) == sorted([".git", link])


def test_links_and_modes_stay_and_a_root_is_named(home: Path, tmp_path: Path) -> None:
    """Settings kept elsewhere behind a link are changed there; another root than the usual is part of the command."""
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    (home / ".claude.json").symlink_to(real)
    assert main(["--root", str(tmp_path / "other"), "integrate", "claude"]) == 0
    assert (home / ".claude.json").is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert json.loads(real.read_text())["mcpServers"]["cairn"]["args"] == [
        "mcp",
        "--root",
        str(tmp_path / "other"),
    ]
    hooks = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"].endswith(f"cairn hook --root {tmp_path / 'other'}")


@pytest.mark.parametrize("host", HOSTS)
def test_entries_that_run_a_program_that_is_gone_are_put_there_anew(
    host: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment of `cairn` was moved: setting the host up again mends it, and removing still gives the bytes back."""
    for name in FILES[host]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("[other]\na = 1\n" if name.endswith("toml") else '{"other": [1]}')
    before = below(home)
    assert main(["integrate", host]) == 0
    right = below(home)
    receipts = list((home / "memory").rglob("written/*.json"))
    for path in [*(home / name for name in FILES[host]), *receipts]:
        path.write_text(
            re.sub(
                r'(?<=["\s])[^"\s]*/bin/cairn\b', "/gone/bin/cairn", path.read_text().replace('\\"/', '\\" /')
            ).replace('\\" /', '\\"/')
        )
    moved = below(home)
    assert moved != right
    assert main(["integrate", host]) == 0
    assert below(home) == right
    assert main(["integrate", host]) == 0
    assert below(home) == right
    assert main(["integrate", host, "--remove"]) == 0
    assert below(home) == before
    for name, text in moved.items():
        (home / name).write_bytes(text)
    capsys.readouterr()
    assert main(["integrate", host]) == 0
    assert "also runs `/gone/bin/cairn " in capsys.readouterr().err, "what others wrote is named"
    assert below(home) == moved


def test_what_runs_another_memory_is_named(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hooks of two roots capture twice, and the server can be of one alone: whoever sets up the second is told."""
    assert main(["--root", str(tmp_path / "old"), "integrate", "claude"]) == 0
    capsys.readouterr()
    assert main(["integrate", "claude"]) == 0
    said = capsys.readouterr().err
    assert f"mcp --root {tmp_path / 'old'}`" in said
    assert said.count(f"hook --root {tmp_path / 'old'}`") == 1, "once, not for every event"


@pytest.mark.parametrize(
    ("host", "name", "text", "says"),
    [
        ("claude", ".claude/settings.json", '{"disableAllHooks": true}', "has disableAllHooks = true, so claude runs no hooks"),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n", "has features.hooks = false, so codex runs no hooks"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "so gemini runs no hooks"),
        ("claude", ".claude.json", '{"mcpServers": {"cairn": {"command": "other", "args": ["x"]}}}', "also runs `other x`"),
        ("codex", ".codex/config.toml", '[mcp_servers.cairn]\ncommand = "other"\n', "also runs `other`"),
    ],
)  # fmt: skip
def test_what_keeps_a_host_from_it_is_named(
    host: str, name: str, text: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hooks that are switched off altogether, and a server of that name that is another program."""
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)
    for _ in ("first", "again"):
        assert main(["integrate", host]) == 0
        assert says in capsys.readouterr().err
    assert main(["integrate", host, "--remove"]) == 0
    assert below(home) == {name: text.encode()}


def test_a_home_folder_is_no_repository(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Off there would be off in every folder below it, and its own files are those of all projects."""
    monkeypatch.chdir(home)
    for words in (["off"], ["claude", "--project"]):
        assert main(["integrate", *words]) == 2
        assert "is your home folder" in capsys.readouterr().err
    assert below(home) == {}
    assert main(["integrate", "on"]) == 0


def test_what_a_host_does_with_it_is_said_as_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One without hooks captures nothing, and a dry run has set nothing up."""
    assert main(["integrate", "opencode", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "nothing is captured" in said and "next session" not in said
    assert main(["integrate", "claude"]) == 0
    assert "From its next session on claude has the memory" in capsys.readouterr().out


def test_a_repository_is_switched_off_and_on(home: Path, tmp_path: Path) -> None:
    from cairn.agents.hook import is_switched_off

    inner = tmp_path / "work" / "deep"
    inner.mkdir()
    assert main(["integrate", "off"]) == 0
    assert is_switched_off(str(inner))
    assert main(["integrate", "on"]) == 0
    assert not is_switched_off(str(inner))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(
    holder=st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    path=st.sampled_from([("cairn!",), ("hooks!", "Stop", "+"), ("a!", "b", "c")]),
)
def test_an_insertion_adds_one_entry_and_comes_out_again(
    holder: dict, indent: int | str | None, path: tuple[str, ...]
) -> None:
    """For any JSON object in any indentation: the rest is untouched, and the old text comes back."""
    text = json.dumps(holder, indent=indent)
    done = edits.insert_json(text, path, {"command": "cairn"}, "x.json")
    now = json.loads(done.text)
    assert {key: now[key] for key in holder} == holder and set(now) == {*holder, path[0]}
    assert edits.take_out(done.text, [(done.at, done.piece)]) == text


@pytest.mark.parametrize("host", HOSTS)
def test_a_persons_folder_stays_where_nothing_is_left_in_it(host: str, home: Path) -> None:
    """The folder they stand in holds a host's file alone: only folders that were made with the files go with them."""
    work = Path.cwd()
    assert main(["integrate", host, "--project"]) == 0
    assert main(["integrate", host, "--project", "--remove"]) == 0
    assert work.is_dir() and list(work.iterdir()) == [] and home.is_dir()


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("host", HOSTS)
def test_the_folders_are_as_they_were_before(host: str, there: bool, home: Path) -> None:
    """A host's folder that was there, empty, stays; those that were made for its files are gone, up to the last."""

    def folders() -> set[Path]:
        return {
            path for path in home.rglob("*") if path.is_dir() and not path.is_relative_to(home / "memory")
        }

    if there:
        for name in FILES[host]:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
    before = folders()
    for _ in range(2):
        assert main(["integrate", host]) == 0
    assert main(["integrate", host, "--remove"]) == 0
    assert folders() == before
