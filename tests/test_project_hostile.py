"""A repository whose settings name programs for git to run: reading it for a project memory runs none of them.

Each trap is a script that leaves its name behind. That it is armed is shown by plain git, which springs it.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import cairn
from cairn.engines.lance import LanceTables
from cairn.errors import Invalid
from cairn.project import git as asking
from cairn.surfaces.cli import main
from cairn.types import Space
from tests.project_kit import PYTHON_SERVICE, git, make_repo, open_at, ready_repo, write

# What plain git does that springs each trap.
ARMED = {
    "fsmonitor": ["status"],
    "gpg": ["log", "-1"],
    "textconv": ["diff", "HEAD~2", "HEAD~1", "--", "kept.trap"],
    "external": ["diff", "HEAD~2", "HEAD~1", "--", "notes.other"],
    "clean": ["diff", "--", "kept.trap"],
    "pager": ["log", "-1", "--oneline"],
    "hook": ["update-index", "--refresh", "--force-write-index"],
    "lazy": ["log", "--name-only", "-M"],
    "alternates": ["fetch", "elsewhere"],
    "ssh": ["ls-remote", "ssh://nobody@127.0.0.1/x"],
    "credential": ["credential", "fill"],
    "ext": ["ls-remote", "outside"],
}


class Hostile:
    """A repository full of traps, and who fell into them."""

    def __init__(self, folder, *, included):
        self.fired = folder / "fired"
        self.fired.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.tree = make_repo(
            folder / "repo", {**PYTHON_SERVICE, ".gitattributes": ATTRIBUTES, "gone.txt": "gone " * 50}
        )
        for text in ("one\n", "two\n"):
            for name in ("kept.trap", "notes.other"):
                (self.tree / name).write_text(text)
            git(self.tree, "add", "-A")
            git(self.tree, "commit", "-q", "-m", f"change: {text.strip()}")
        git(self.tree, "mv", "gone.txt", "moved.txt")
        (self.tree / "moved.txt").write_text("gone " * 50 + "and more\n")
        git(self.tree, "commit", "-qam", "move: one file")
        lacking = git(self.tree, "rev-parse", "HEAD:moved.txt").strip()
        self._sign_the_head()
        self.arm(folder, included=included)
        (self.tree / ".git" / "objects" / lacking[:2] / lacking[2:]).unlink()
        (self.tree / "kept.trap").write_text("three\n")

    def trap(self, name, last="exit 1"):
        script = self.bin / name
        script.write_text(f"#!/bin/sh\ntouch '{self.fired / name}'\n{last}\n")
        script.chmod(0o755)
        return str(script)

    def _sign_the_head(self):
        """A commit that looks signed: nobody has to hold a key for `log.showSignature` to ask the program."""
        plain = git(self.tree, "cat-file", "commit", "HEAD")
        head, _, words = plain.partition("\n\n")
        seal = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
        done = subprocess.run(
            ["git", "-C", str(self.tree), "hash-object", "-t", "commit", "-w", "--stdin"],
            input=f"{head}\n{seal}\n\n{words}",
            capture_output=True,
            text=True,
            check=True,
        )
        git(self.tree, "update-ref", "HEAD", done.stdout.strip())

    def arm(self, folder, *, included):
        other = make_repo(folder / "other", {"a.txt": "a"})
        hooks = folder / "hooks"
        hooks.mkdir()
        (hooks / "post-index-change").symlink_to(self.trap("hook", "exit 0"))
        (self.tree / ".git" / "objects" / "info" / "alternates").write_text(f"{other / '.git' / 'objects'}\n")
        settings = f"""
[core]
    repositoryformatversion = 1
    fsmonitor = {self.trap("fsmonitor")}
    hooksPath = {hooks}
    pager = {self.trap("pager", "cat")}
    sshCommand = {self.trap("ssh")}
    alternateRefsCommand = {self.trap("alternates")}
    editor = {self.trap("editor")}
    askPass = {self.trap("askpass")}
[log]
    showSignature = true
[gpg]
    program = {self.trap("gpg")}
[diff "trap"]
    textconv = {self.trap("textconv", 'cat "$1"')}
[diff "other"]
    command = {self.trap("external", "exit 0")}
[filter "trap"]
    clean = {self.trap("clean", "cat")}
    smudge = {self.trap("smudge", "cat")}
[credential]
    helper = {self.trap("credential")}
[protocol]
    allow = always
[protocol "ext"]
    allow = always
[extensions]
    partialClone = origin
[remote "origin"]
    url = {other}
    promisor = true
    uploadpack = {self.trap("lazy")}
    fetch = +refs/heads/*:refs/remotes/origin/*
[remote "elsewhere"]
    url = {other}
    fetch = +refs/heads/*:refs/remotes/elsewhere/*
[remote "outside"]
    url = ext::{self.trap("ext")}
[submodule]
    recurse = true
[color]
    ui = always
"""
        config = self.tree / ".git" / "config"
        if included:
            (folder / "more.config").write_text(settings)
            # The format and its extensions are read from the repository's own file alone.
            settings = f"""
[core]
    repositoryformatversion = 1
[extensions]
    partialClone = origin
[include]
    path = {folder / "more.config"}
"""
        config.write_text(config.read_text() + settings)

    def sprung(self):
        """Who fell into a trap since the last look."""
        names = sorted(path.name for path in self.fired.iterdir())
        for name in names:
            (self.fired / name).unlink()
        return names


ATTRIBUTES = "*.trap diff=trap filter=trap\n*.other diff=other\n"


@pytest.fixture(params=[False, True], ids=["config", "included"])
def hostile(request, tmp_path, monkeypatch):
    """The repository, entered, with no settings of this machine and a memory root of its own."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("CAIRN_MEMORY__ROOT", str(tmp_path / "root"))
    made = Hostile(tmp_path, included=request.param)
    monkeypatch.chdir(made.tree)
    return made


def plain(hostile, *arguments):
    """Git as a person calls it, on a terminal; what it reads is an address to ask a password for."""
    ours, theirs = os.openpty()
    try:
        subprocess.run(
            ["git", "-C", str(hostile.tree), *arguments],
            input=b"protocol=https\nhost=example.org\n\n",
            stdout=theirs if "--oneline" in arguments else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_traps_are_armed(hostile):
    """Plain git falls into each one: otherwise the test below would prove nothing."""
    for name, arguments in ARMED.items():
        (hostile.tree / "kept.trap").write_text(f"for {name}\n")
        plain(hostile, *arguments)
        assert name in hostile.sprung(), name


def test_no_program_of_the_repository_is_run(hostile, capsys):
    """Every command of a project memory reads the repository; none of its programs runs, and its story is told."""
    hostile.sprung()
    commands = (
        ["init"],
        ["update"],
        ["record", "Tried it", "--gotcha", "A trap: look at the settings first."],
        ["consolidate"],
        ["query", "what changed"],
        ["status"],
        ["validate"],
        ["sources", "list"],
        ["import"],
        ["automate", "run-once"],
    )
    for words in commands:
        code = main(["project", *words])
        assert code in {0, 1}, (words, capsys.readouterr().err)
        assert hostile.sprung() == [], words
    # The names of the commits are known although one of their files cannot be had.
    assert [commit.subject for commit in asking.recent_commits(hostile.tree)][:2] == [
        "move: one file",
        "change: two",
    ]
    assert "\x1b" not in (asking.git(hostile.tree, "log", "-1", "--oneline", "--decorate") or "")
    assert hostile.sprung() == []


def test_variables_that_lead_git_astray_are_left_out(hostile, monkeypatch, tmp_path):
    """Called from a hook, git's own variables name another repository and programs; they do not count."""
    other = make_repo(tmp_path / "third", {"a.txt": "a"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", hostile.trap("by-variable"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", hostile.trap("by-variable"))

    assert asking.top_of(hostile.tree) == hostile.tree
    assert "kept.trap" in (asking.tracked_files(hostile.tree) or [])
    assert hostile.sprung() == []


def test_a_work_tree_that_is_somewhere_else_is_not_believed(tmp_path):
    """`core.worktree` may name the home folder; what is read and written stays where the repository is."""
    home = tmp_path / "home"
    tree = make_repo(home / "src" / "repo", {"a.txt": "a"})
    (home / "private.txt").write_text("private")
    git(tree, "config", "core.worktree", str(home))

    assert asking.top_of(tree) == tree
    assert "private.txt" not in str(asking.tracked_files(tree))


def test_a_bare_repository_inside_a_clone_is_not_asked(tmp_path):
    """A folder that looks like a git directory can be committed, settings and all: it is a plain folder to us."""
    tree = make_repo(tmp_path / "repo", {"a.txt": "a"})
    git(tmp_path, "init", "-q", "--bare", str(tree / "tests" / "fixture"))
    fired = tmp_path / "fired"
    with (tree / "tests" / "fixture" / "config").open("a") as config:
        config.write(f'[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "touch {fired}; false"\n')

    asking.tracked_files(tree / "tests" / "fixture")

    assert not fired.exists()


@pytest.mark.parametrize("place", ["config", "info/attributes"])
def test_links_in_the_git_folder_are_not_written_through(tmp_path, place):
    """The merge driver and the binding go into the repository's own files; a link to another file is left alone."""
    tree = make_repo(tmp_path / "repo", {"a.txt": "a"})
    file = tree / ".git" / place
    outside = tmp_path / "outside"
    outside.write_text(file.read_text() if file.exists() else "mine\n")
    before = outside.read_text()
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    file.symlink_to(outside)

    asking.ease_merges(tree, ["AGENTS.md"])
    asking.bind(tree, Space("default", "parcel"))

    assert outside.read_text() == before


def test_session_folders_that_came_with_the_repository_are_not_imported(tmp_path):
    """A committed sources.json could name any folder of the user; what lies there would go into its history."""
    private = tmp_path / "private"
    write(
        private, {"talk.jsonl": '{"role": "user", "content": "My locker code is 4711 in the blue book."}\n'}
    )
    tree = ready_repo(tmp_path / "repo")
    project = open_at(tree)
    project.add_source("jsonl", private)
    git(tree, "add", "-A")
    git(tree, "add", "-f", ".cairn/sources.json")
    git(tree, "commit", "-q", "-m", "take this along")

    with pytest.raises(Invalid, match="came with the repository"):
        project.import_()
    assert "locker" not in "".join(path.read_text() for path in (tree / ".cairn").rglob("*.jsonl"))

    git(tree, "rm", "-q", "--cached", ".cairn/sources.json")
    assert [report.imported for report in project.import_()] == [1]


def test_git_is_started_in_one_place():
    """A second door would have to think of all this again."""
    source = Path(asking.__file__).parents[1]
    doors = [
        path.name for path in source.rglob("*.py") if re.search(r"""[\[(]\s*["']git["'],""", path.read_text())
    ]
    assert doors == [Path(asking.__file__).name]


def test_no_module_of_the_folder_one_stands_in_is_taken_for_ours(tmp_path, monkeypatch):
    """`python -m` looks in the working directory first: a clone with a `cairn` folder or a `json.py` is not run."""
    fired = tmp_path / "fired"
    write(
        tmp_path,
        dict.fromkeys(("cairn/__init__.py", "json.py"), f"open({str(fired)!r}, 'a').write(__name__)\n"),
    )
    monkeypatch.chdir(tmp_path)
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        memory.remember("Deploys wait for the migration job.")
    assert LanceTables(tmp_path / "root" / ".index" / "lancedb").begin_fold().wait() == 0
    assert not fired.exists()
    sources = [path.read_text("utf-8") for path in Path(asking.__file__).parents[1].rglob("*.py")]
    assert re.findall(r'sys\.executable, "-m"', "\n".join(sources)) == []
