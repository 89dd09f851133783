"""Standing in a repository: what agents said there is found by the commands a person types there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import cairn
from cairn.agents.hosts import HookEvent
from cairn.agents.taking import take_in
from cairn.agents.tools import ToolRun
from cairn.projects import space_at, spaces_at
from cairn.rights import OPEN
from cairn.surfaces.cli import main

SAID = "The staging database listens on port 5433."


def git(tree: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(tree), *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which an agent has had a session, which is over."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "hashing")
    monkeypatch.setenv("CAIRN_MEMORY__ROOT", str(tmp_path / "memory"))
    tree = tmp_path / "harbor"
    tree.mkdir()
    git(tree, "init", "-q")
    with cairn.open_blocking(tmp_path / "memory", background=False) as memory:
        take_in(memory, HookEvent("gemini", "AfterAgent", "turn", "g", str(tree), prompt=SAID, turn="1"))
        take_in(memory, HookEvent("gemini", "SessionEnd", "end", "g", str(tree)))
    monkeypatch.chdir(tree)
    return tree


def test_recall_asks_the_repository_one_stands_in(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As hooks and tools do; from elsewhere nothing of it is told."""
    assert main(["recall", "staging database port"]) == 0
    assert "5433" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["recall", "staging database port"]) == 1
    assert main(["recall", "--folder", str(repository), "staging database port"]) == 0


def test_a_command_that_finds_nothing_names_the_repositorys_own_memory(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other commands ask one space: an empty answer says how to ask this repository's, and a dot does it."""
    for words in (
        ["search", "staging"],
        ["timeline"],
        ["show", "me_ep_20260101_00000001"],
        ["list"],
        ["log"],
    ):
        assert main(words) in {1, 3}
        assert "add `--project .`" in capsys.readouterr().err
    assert main(["search", "--project", ".", "staging"]) == 0
    assert "5433" in capsys.readouterr().out
    assert main(["--project", ".", "timeline"]) == 0
    assert main(["remember", "--project", ".", "The crane needs a permit from the port office."]) == 0
    assert main(["list", "--project", "."]) == 0
    assert "permit" in capsys.readouterr().out
    assert main(["list", "--json"]) == 1
    assert "--project" not in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["search", "staging"]) == 1
    assert "--project" not in capsys.readouterr().err
    assert main(["search", "--project", ".", "staging"]) == 2
    assert "repository you stand in" in capsys.readouterr().err


def test_what_was_said_before_there_was_a_remote_is_still_found(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remote names the space from then on; what lies in the one of before is asked, too, by commands and by tools."""
    before = space_at(str(repository))
    git(repository, "remote", "add", "origin", "git@example.com:dana/harbor.git")
    assert spaces_at(str(repository)) == [space_at(str(repository)), before]
    assert space_at(str(repository)) != before
    assert main(["recall", "staging database port"]) == 0
    assert "5433" in capsys.readouterr().out
    with cairn.open_blocking(tmp_path / "memory", background=False) as memory:
        assert before in ToolRun(memory, {}, str(repository), OPEN).spaces


def test_a_clone_that_has_another_name_is_told_what_was_said_under_the_old_one(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Moved, given a remote, the remote renamed: the space is a new one each time, and the others are asked, too."""
    moved = repository.rename(tmp_path / "quay")
    monkeypatch.chdir(moved)
    git(moved, "remote", "add", "origin", "git@example.com:dana/harbor.git")
    with cairn.open_blocking(tmp_path / "memory", background=False) as memory:
        for number, words in enumerate(("The crane needs a permit.", "The pilot boat leaves at six.")):
            take_in(memory, HookEvent("gemini", "AfterAgent", "turn", f"r{number}", str(moved), prompt=words))
            git(moved, "remote", "set-url", "origin", f"git@example.com:dana/quay{number}.git")
        tool = ToolRun(memory, {}, str(moved), OPEN)
        assert tool.spaces[0] == space_at(str(moved)) and len(set(tool.spaces)) == 6
    for question, answer in (
        ("staging database port", "5433"),
        ("crane permit", "permit"),
        ("pilot boat", "six"),
    ):
        assert main(["recall", question]) == 0
        assert answer in capsys.readouterr().out
    noted = subprocess.run(
        ["git", "-C", str(moved), "config", "--get-all", "cairn.was"], capture_output=True, text=True
    ).stdout.split()
    assert len(noted) == len(set(noted)) == 3


def test_an_id_that_two_spaces_gave_shows_both(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each space counts its own memories: what `recall` told of the repository is not taken for the general one."""
    space = space_at(str(repository))
    with cairn.open_blocking(tmp_path / "memory", background=False) as memory:
        kept = memory.remember("The pier closes at dusk.", "fact").memory_id
        memory.remember("The crane needs a permit.", "fact", project_id=space.project)
        alone = memory.remember(
            "The tide table hangs at the gate.", "fact", project_id=space.project
        ).memory_id
    assert main(["recall", "who needs a permit"]) == 0
    assert str(kept) in capsys.readouterr().out
    assert main(["show", str(kept)]) == 0
    shown = capsys.readouterr()
    assert "The pier closes" in shown.out
    assert f"goes by this id in {space}: cairn show --project {space.project} {kept}" in shown.out + shown.err
    assert main(["show", "--project", space.project, str(kept)]) == 0
    assert "The crane needs" in capsys.readouterr().out
    assert main(["show", str(alone)]) == 0
    assert "The tide table" in capsys.readouterr().out
    assert main(["show", "mem_20990101_00000009"]) == 3


def test_a_clone_names_no_other_repositorys_memory(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A committed binding to another repository's space reads nothing there and writes nothing there; one is told of it."""
    theirs = space_at(str(repository))
    hostile, clone = tmp_path / "hostile", tmp_path / "clone"
    (hostile / ".cairn").mkdir(parents=True)
    named = {"app": theirs.app, "project": theirs.project}
    (hostile / ".cairn" / "config.json").write_text(json.dumps({"binding": named}))
    git(hostile, "init", "-q")
    git(hostile, "add", "-A")
    git(hostile, "-c", "user.name=m", "-c", "user.email=m@example.com", "commit", "-q", "-m", "a gift")
    git(tmp_path, "clone", "-q", str(hostile), str(clone))
    monkeypatch.chdir(clone)

    assert main(["recall", "staging database port"]) == 1
    assert "5433" not in capsys.readouterr().out
    assert theirs not in spaces_at(str(clone))
    with cairn.open_blocking(tmp_path / "memory", background=False) as memory:
        assert theirs not in ToolRun(memory, {}, str(clone), OPEN).spaces
        planted = "The staging database moved to evil.example."
        take_in(memory, HookEvent("gemini", "AfterAgent", "turn", "c", str(clone), prompt=planted, turn="1"))
    assert main(["recall", "--folder", str(repository), "staging database"]) == 0
    assert "evil.example" not in capsys.readouterr().out
    assert main(["recall", "staging database"]) == 0
    assert "evil.example" in capsys.readouterr().out, "what was said in the clone is kept, in its own space"

    for command in ("status", "doctor"):
        main([command])
        told = capsys.readouterr().err
        assert theirs.project in told
        assert "git config cairn.space" in told
    git(clone, "config", "cairn.space", f"{theirs.app}/{theirs.project}")
    assert main(["recall", "staging database port"]) == 0
    assert "5433" in capsys.readouterr().out, "a person may say that it is the same repository"
    main(["status"])
    assert "cairn.space" not in capsys.readouterr().err
