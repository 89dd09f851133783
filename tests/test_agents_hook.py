"""Hooks of coding agents: what is captured, what is told, and that nothing ever stops a person's work."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import cairn
from cairn import config
from cairn.agents import cold, hook, link
from cairn.agents.hosts import HookEvent, answer, read_event
from cairn.agents.taking import take_in
from cairn.agents.warm import Warm, answering, serve
from cairn.agents.warm import main as warm_main
from cairn.engines import minilm, spool
from cairn.engines.locks import FileLocks
from cairn.memory import Memory
from cairn.projects import space_at
from cairn.types import Space
from tests.waiting import LONG, until

START = {"hook_event_name": "SessionStart", "session_id": "abc", "source": "startup", "transcript_path": ""}
PROMPT = {"hook_event_name": "UserPromptSubmit", "session_id": "abc", "prompt": "what am I allergic to"}
STOP = {"hook_event_name": "Stop", "session_id": "abc", "last_assistant_message": "Peanuts."}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    return tmp_path / "root"


@pytest.fixture
def memory(root: Path) -> Iterator[Memory]:
    with cairn.open_blocking(root, background=False) as opened:
        yield opened


def call(root: Path, data: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cairn hook` as an agent calls it."""
    text = data if isinstance(data, str) else json.dumps(data)
    return subprocess.run(
        [sys.executable, "-m", "cairn.surfaces.cli", "hook", "--root", str(root)],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
        timeout=LONG,
    )


def transcript(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(kind: str, uuid: str, content: Any, **more: Any) -> dict[str, Any]:
    at = "2026-05-01T10:00:00.000Z"
    return {
        "type": kind,
        "uuid": uuid,
        "timestamp": at,
        "message": {"role": kind, "content": content},
        **more,
    }


def test_the_client_of_the_warm_process_imports_next_to_nothing() -> None:
    """A prompt waits for it: no parser, no settings, no paths, not even JSON; where nobody answers, the other half is loaded."""
    program = (
        "import sys; from cairn.agents import quick; known = set(sys.modules)\n"
        "print(sorted(known & {'argparse', 'json', 're', 'socket', 'hashlib', 'pathlib', 'typing', 'subprocess', 'logging', 'dataclasses', 'tempfile', 'sqlite3',"
        " 'cairn.config', 'cairn.types', 'cairn.agents.hook', 'cairn.surfaces.cli'}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "src"},
    )
    assert done.stdout == "[]\n"


BAD_INPUTS = {
    "empty": "",
    "broken": "{",
    "list": "[1]",
    "unknown event": json.dumps({"hook_event_name": "Dance"}),
    "missing keys": json.dumps({"hook_event_name": "Stop"}),
    "numbers for texts": json.dumps({"hook_event_name": "Stop", "session_id": 5, "cwd": [], "prompt": {}}),
    "a subagent": json.dumps({**STOP, "agent_id": "x"}),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("kind", BAD_INPUTS)
def test_a_hook_always_ends_with_zero_and_prints_nothing_it_does_not_know(
    kind: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a host sends, its work goes on."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    assert hook.main(["--root", str(root)], BAD_INPUTS[kind].encode()) == 0
    assert capsys.readouterr().out == ""


def test_a_real_hook_bears_whatever_a_host_sends(root: Path, tmp_path: Path) -> None:
    """Real processes: what is too large, torn, nested, of the wrong kind or leads to a pipe costs nothing but itself."""
    os.mkfifo(tmp_path / "pipe")
    odd = tmp_path / "a\nb"
    odd.mkdir()
    (tmp_path / "linked").symlink_to("/etc/passwd")
    hostile: list[bytes] = [
        b"\0" * 1000,
        b'{"hook_event_name":"Stop","session_id":"\xff\xfe"}',
        b'{"hook_event_name":"Stop","session_id":"s","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        json.dumps(PROMPT).encode("utf-16"),
        *(
            json.dumps({**STOP, **more}).encode()
            for more in (
                {"session_id": "a\0b", "cwd": "/tmp/\0x", "transcript_path": "/tmp/\0"},
                {"session_id": "\ud800", "cwd": "\udfff"},
                {"session_id": "../../../../etc/x", "cwd": "/" + "x" * 5000},
                {"cwd": str(odd), "transcript_path": str(odd / "x")},
                *(
                    {"transcript_path": at}
                    for at in (str(tmp_path / "pipe"), str(tmp_path / "linked"), "/dev/zero")
                ),
            )
        ),
        json.dumps({**PROMPT, "prompt": "lantern " * 700_000}).encode(),
    ]
    command = [sys.executable, "-m", "cairn.surfaces.cli", "hook", "--root", str(root)]
    env = {**os.environ, "CAIRN_EMBEDDING__PROVIDER": "none"}
    for sent in hostile:
        done = subprocess.run(command, input=sent, capture_output=True, env=env, check=False, timeout=LONG)
        assert (done.returncode, done.stderr) == (0, b""), sent[:80]
        assert not done.stdout or isinstance(json.loads(done.stdout), dict)
    said = {**STOP, "session_id": "last", "last_assistant_message": "The walrus sleeps."}
    assert call(root, said, CAIRN_EMBEDDING__PROVIDER="none").returncode == 0
    try:
        assert until(lambda: any("walrus" in log.read_text() for log in root.rglob("sessions/*.jsonl")))
        assert not any("root:x:" in log.read_text() for log in root.rglob("sessions/*.jsonl"))
    finally:
        assert until(lambda: link.ask(root, {"op": "end"}, LONG))
    assert not (tmp_path / "etc").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&- <&-", "<&- >&- 2>&-"])
def test_a_hook_without_streams_ends_with_zero(closed: str, root: Path) -> None:
    """A host may start it with none of them; there is nothing to say it with, and nothing that it would stop."""
    program = "import sys; sys.argv = ['cairn', 'hook', *sys.argv[1:]]; from cairn.surfaces.start import main; main()"
    command = shlex.join([sys.executable, "-c", program, "--root", str(root)])
    done = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_process_is_found_with_less_of_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts start an MCP server without the variables that a hook has; the folder that those name is found without them."""
    user = f"/run/user/{os.getuid()}"
    monkeypatch.setattr(os.path, "isdir", lambda at: at == user)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", user)
    by_hook = link.socket_path(root)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert link.socket_path(root) == by_hook and str(by_hook).startswith(user)


def test_a_hook_is_switched_off_by_the_environment_and_by_a_repository(root: Path, tmp_path: Path) -> None:
    """CAIRN_DISABLE=1, or a file in the repository: nothing is read, nothing is kept."""
    assert call(root, STOP, CAIRN_DISABLE="1").returncode == 0
    tree = tmp_path / "tree" / "deep"
    tree.mkdir(parents=True)
    (tmp_path / "tree" / ".cairn").mkdir()
    (tmp_path / "tree" / hook.OFF_SWITCH).touch()
    assert call(root, {**STOP, "cwd": str(tree)}).returncode == 0
    assert not spool.folder(root).exists()


def test_a_damaged_git_file_costs_no_prompt(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves zeros where a further work tree names its repository: what is said there is kept."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    (tmp_path / ".git").write_bytes(bytes(64))
    said = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s",
        "cwd": str(tmp_path),
        "prompt": "The heron.",
    }
    assert hook.main(["--root", str(root)], json.dumps(said).encode()) == 0
    assert [event.get("prompt") for _, event in spool.kept(root)] == ["The heron."]


def test_a_root_that_a_hook_makes_is_its_owners_alone(root: Path) -> None:
    """An agent's first prompt may come before `cairn init`: nobody else may read what is kept from it."""
    before = os.umask(0o022)
    try:
        spool.put(root, {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like tea."})
        spool.put(root, {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like rye."})
    finally:
        os.umask(before)
    assert [oct(path.stat().st_mode & 0o777) for path in (root, spool.folder(root))] == ["0o700", "0o700"]


def test_a_prompt_without_words_is_no_trouble(memory: Memory) -> None:
    """An image alone is a prompt like any other: there is nothing to recall, and nothing to complain of."""
    warm = Warm(memory, memory.settings.root)
    assert warm.hooked("", json.dumps({**PROMPT, "prompt": " \n"}).encode()) == ""
    assert spool.take_troubles(memory.settings.root) == []


def test_what_cannot_be_read_is_said_in_words(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person reads it at the next start: no name of Python's, and the limit by its size."""
    warm = Warm(memory, memory.settings.root)
    monkeypatch.setattr(hook.quick, "MAX_INPUT", 1 << 20)
    warm.hooked("", b"not json")
    warm.hooked("", json.dumps({**PROMPT, "prompt": "x" * (1 << 21)}).encode()[: 1 << 20])
    told = spool.take_troubles(memory.settings.root)
    assert "no JSON" in told[0] and "more than 1 MB" in told[1] and "Error" not in " ".join(told)


def test_a_failure_is_said_at_the_next_start_and_only_then(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hook that failed is silent at once and visible later."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)

    def broken(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "put", broken)
        assert hook.main(["--root", str(root)], json.dumps(STOP).encode()) == 0
    for expected in (True, False):
        assert hook.main(["--root", str(root)], json.dumps(START).encode()) == 0
        assert ("disk full" in capsys.readouterr().out) is expected


def test_where_nothing_can_be_kept_every_start_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that takes no event takes no note of that trouble either: a start looks for itself."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    root.mkdir()
    spool.folder(root).write_text("in the way")
    assert hook.main(["--root", str(root)], json.dumps(STOP).encode()) == 0
    assert capsys.readouterr().out == ""
    assert hook.main(["--root", str(root)], json.dumps(START).encode()) == 0
    assert f"nothing can be kept in {spool.folder(root)}" in capsys.readouterr().out
    spool.folder(root).unlink()
    assert hook.main(["--root", str(root)], json.dumps(START).encode()) == 0
    assert capsys.readouterr().out == ""
    assert os.listdir(spool.folder(root)) == []


@pytest.mark.parametrize("wrong", ["[memory\nroot=", "[memory]\ncolour = 'blue'\n", "[search]\ntop_k = 0\n"])
def test_settings_that_cannot_be_read_cost_no_turn_and_every_start_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    """A slip in cairn.toml must not switch the memory off in silence: turns wait, and are taken in once it is mended."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    with cairn.open_blocking(root, background=False):
        pass
    (root / "cairn.toml").write_text(wrong)
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    for event in (PROMPT, {**PROMPT, "prompt": f"The key is {key}."}, STOP):
        assert hook.main(["--root", str(root)], json.dumps(event).encode()) == 0
    assert capsys.readouterr().out == ""
    assert key not in "".join(path.read_text() for path, _ in spool.waiting(root))
    for _ in range(2):
        assert hook.main(["--root", str(root)], json.dumps(START).encode()) == 0
        said = json.loads(capsys.readouterr().out)["hookSpecificOutput"]["additionalContext"]
        assert said.startswith("Memory is not open: cairn.toml") and "is kept" in said
    (root / "cairn.toml").unlink()
    with cairn.open_blocking(root, background=False) as memory:
        assert Warm(memory, root).drain() == 3
        (log,) = (path for path in root.rglob("*.jsonl") if path.parent.name == "sessions")
        assert "allergic" in log.read_text() and "Peanuts." in log.read_text()


def test_the_warm_process_ends_when_its_root_is_moved(root: Path, tmp_path: Path) -> None:
    """A person renames the folder of a memory in use: no second one grows in its place, and no call goes into it."""
    life = threading.Thread(target=serve, args=(root,), kwargs={"idle_seconds": LONG})
    life.start()
    assert until(lambda: link.ask(root, {"op": "ping"}, 1.0))
    root.rename(tmp_path / "moved")
    assert link.ask(root, {"op": "drain"}, LONG) is None
    life.join(LONG)
    assert not life.is_alive() and not link.socket_path(root).exists()
    assert not (root / ".hooks").exists()


def test_trouble_in_a_root_that_was_moved_makes_no_other_in_its_place(memory: Memory, tmp_path: Path) -> None:
    """What fails because the root is gone is not noted there: the folder would be there again, and empty."""
    root = memory.settings.root
    take_in(memory, HookEvent("gemini", "AfterAgent", "turn", "s", "", prompt="The tide is high."))
    warm = Warm(memory, root)
    root.rename(tmp_path / "moved")
    warm.close_silent(0.0)
    assert not root.exists()


@pytest.mark.parametrize("what", ["settings", "model"])
def test_the_warm_process_ends_when_what_it_was_opened_with_is_another(
    what: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next prompt is answered with the new settings, or with the model that was installed meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    life = threading.Thread(target=serve, args=(root,), kwargs={"idle_seconds": 8 * LONG})
    life.start()
    assert until(lambda: link.ask(root, {"op": "ping"}, 1.0))
    if what == "settings":
        (root / "cairn.toml").write_text('[memory]\nperson = "ann"\n')
    else:
        folder = config.models_dir() / minilm.FOLDER
        folder.mkdir(parents=True)
        for name in (minilm.GRAPH, minilm.TOKENIZER):
            (folder / name).write_text("")
        sizes = {minilm.GRAPH: 0, minilm.TOKENIZER: 0}
        (folder / minilm.STAMP).write_text(json.dumps({"sizes": sizes, "model": minilm.MODEL_ID}))
    life.join(LONG)
    assert not life.is_alive() and not link.socket_path(root).exists()


def test_a_transcript_is_taken_in_once_with_its_tools(memory: Memory, tmp_path: Path) -> None:
    """Talk and tool calls by their own ids; recalled text, sidechains and our own tools are left out."""
    frame = (
        memory.remember("Deploys wait for the migration job.", "gotcha")
        and memory.recall("deploys wait").prompt
    )
    path = transcript(
        tmp_path / "t.jsonl",
        record("user", "u1", f"{frame}\nWhy does docker compose hang on milvus?"),
        record(
            "assistant",
            "a1",
            [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "docker ps"}}],
        ),
        record("user", "u2", [{"type": "tool_result", "tool_use_id": "c1", "content": "port 19530 in use"}]),
        record(
            "assistant", "a2", [{"type": "tool_use", "id": "c2", "name": "mcp__cairn__recall", "input": {}}]
        ),
        record("user", "u3", [{"type": "tool_result", "tool_use_id": "c2", "content": "remembered words"}]),
        record("assistant", "a3", [{"type": "text", "text": "Port 19530 is taken by another container."}]),
        record("assistant", "s1", "a side talk", isSidechain=True),
        {"type": "api-request-blob", "uuid": "x", "message": {"content": "copied request"}},
    )
    event = HookEvent("claude", "Stop", "turn", "abc", "", transcript=str(path))
    first = take_in(memory, event)
    assert first == 4
    assert take_in(memory, event) == 0
    with path.open("a") as handle:
        handle.write(
            json.dumps(record("user", "u4", "Thanks, use 19531 then.")) + "\n" + '{"type": "user", "uu'
        )
    assert take_in(memory, event) == 1
    kept = "\n".join(message.text for message in memory.unprocessed("claude-abc"))
    assert "milvus" in kept and "19530 in use" in kept and "19531" in kept
    for unwanted in ("migration", "remembered words", "a side talk", "copied request"):
        assert unwanted not in kept


def test_a_hundred_rounds_of_one_session_grow_the_root_by_nothing(memory: Memory, tmp_path: Path) -> None:
    """Recall and capture of the same session again and again: every file but the index stays as it was."""
    memory.add("before", [{"role": "user", "content": "I am allergic to peanuts."}])
    memory.flush("before")
    path = transcript(tmp_path / "t.jsonl", record("user", "u1", "What am I allergic to?"))
    root = memory.settings.root
    warm = Warm(memory, root)
    about = {"session_id": "abc", "cwd": "", "transcript_path": str(path)}

    def round_of_hooks() -> str:
        out = ""
        for name, more in (
            ("SessionStart", {}),
            ("UserPromptSubmit", {"prompt": "What am I allergic to?"}),
            ("Stop", {}),
        ):
            out += warm.hooked("", json.dumps({"hook_event_name": name, **about, **more}).encode())
        with path.open("a") as handle:
            handle.write(
                json.dumps(
                    record(
                        "user",
                        "u1",
                        json.loads(out.splitlines()[-1])["hookSpecificOutput"]["additionalContext"],
                    )
                )
                + "\n"
            )
        warm.drain()
        return out

    def sizes() -> dict[str, int]:
        files = (file for file in root.rglob("*") if file.is_file() and ".index" not in file.parts)
        return {str(file): file.stat().st_size for file in files if file.parent.name != "read"}

    first = round_of_hooks()
    assert "peanuts" in first and "What am I" not in first  # what is asked just now is no memory
    before = sizes()
    for _ in range(100):
        assert round_of_hooks() == first
    assert sizes() == before


def test_lessons_the_agent_states_become_candidates_with_their_source(memory: Memory, tmp_path: Path) -> None:
    """S84: in so many words, each once; what it plans, asks, or shows as code is none, and no candidate is recalled."""
    lesson = "The changelog must have the new version, otherwise the release test fails."
    path = transcript(
        tmp_path / "t.jsonl",
        record("user", "u1", "You must answer, otherwise I stop."),
        record(
            "assistant", "a1", [{"type": "text", "text": f"Fixed. {lesson} I must go on, or else it breaks."}]
        ),
        record(
            "assistant",
            "a2",
            "Should it always run, or else fail?\n```\nyou must not, otherwise it fails\n```",
        ),
        record("assistant", "a3", f"As said: {lesson[0].lower()}{lesson[1:]}"),
    )
    event = HookEvent("claude", "Stop", "turn", "abc", "", transcript=str(path))
    take_in(memory, event)
    take_in(memory, replace(event, name="SessionEnd", moment="end"))
    memory.trigger("propose_memories")
    kept = memory.memories.list(status="candidate").memories
    assert [(row["content"], row["origin"]) for row in kept][-1:] == [(lesson, "strategy")] and len(kept) <= 2
    assert (kept[-1]["source_session_id"], kept[-1]["agent_id"]) == ("claude-abc", "claude")
    items = memory.recall("what must the changelog have", user_id="bob", agent_id="claude").items
    assert "memory" not in {item.kind for item in items}


def test_words_of_an_event_are_known_when_the_transcript_brings_them(memory: Memory, tmp_path: Path) -> None:
    """A prompt taken before its transcript was written is not taken twice."""
    path = tmp_path / "t.jsonl"
    event = HookEvent(
        "claude", "UserPromptSubmit", "prompt", "abc", "", prompt="I moved to Porto.", transcript=str(path)
    )
    assert take_in(memory, event) == 1
    transcript(path, record("user", "u1", "I moved to Porto."), record("assistant", "a1", "Noted."))
    assert take_in(memory, HookEvent("claude", "Stop", "turn", "abc", "", transcript=str(path))) == 1
    assert [message.text for message in memory.unprocessed("claude-abc")] == ["I moved to Porto.", "Noted."]


@pytest.mark.parametrize(("name", "kind"), [("SessionEnd", "end"), ("PreCompact", "compact")])
def test_the_end_of_a_session_writes_its_episode(
    memory: Memory, tmp_path: Path, name: str, kind: str
) -> None:
    """A96: at the end, and before compaction, the talk is cut into an episode of the person."""
    path = transcript(tmp_path / "t.jsonl", record("user", "u1", "I am allergic to peanuts."))
    take_in(memory, HookEvent("claude", name, kind, "abc", "", transcript=str(path)))
    assert "peanuts" in memory.recall("what am I allergic to").prompt
    assert memory.get("episode", user_id="me").total_count == 1


def test_clones_of_a_repository_share_a_space(tmp_path: Path) -> None:
    """By the remote: a fact told in one clone is asked for in another."""
    spaces = []
    for name in ("one", "two"):
        tree = tmp_path / name
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
        subprocess.run(
            ["git", "-C", str(tree), "remote", "add", "origin", "git@host:team/app.git"], check=True
        )
        spaces.append(space_at(str(tree)))
    assert spaces[0] == spaces[1] and spaces[0].project != "default"
    assert space_at(str(tmp_path)).project == "default" and space_at("/no/such").project == "default"


def test_a_session_stays_with_its_repository_wherever_its_agent_goes(memory: Memory, tmp_path: Path) -> None:
    """Hooks tell where the agent is now (`cd`): what is said goes to, and is recalled from, where the session began."""
    for name in ("app", "app/vendor"):
        subprocess.run(["git", "init", "-q", str(tmp_path / name)], check=True)
    at, inside = str(tmp_path / "app"), str(tmp_path / "app" / "vendor")
    lost = str(tmp_path / "app" / "worktrees" / "gone")

    def said(session: str, folder: str, moment: str, uuid: str, words: str) -> None:
        path = tmp_path / f"{session}.jsonl"
        with path.open("a") as handle:
            handle.write(json.dumps(record("user", uuid, words, cwd=folder)) + "\n")
        take_in(memory, HookEvent("claude", "Stop", moment, session, folder, transcript=str(path)))  # type: ignore[arg-type]

    said("abc", at, "turn", "u1", "The staging database listens on port 5433.")
    said("abc", inside, "turn", "u2", "The vendored library is built with the flag quick.")
    said("abc", inside, "end", "u3", "That is all, goodbye.")
    said("def", lost, "end", "u4", "The canary header is called otter.")
    said("ghi", str(tmp_path), "turn", "u5", "Let us look at the library.")
    said("ghi", inside, "turn", "u6", "The library needs the old compiler.")

    def kept(folder: str, session: str) -> list[str]:
        project = space_at(folder).project.replace("default", "default_project")
        logs = memory.settings.root.glob(f"*/{project}/sessions/claude-{session}.jsonl")
        lines = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
        return [one["content"] for line in lines for one in line.get("messages", ())]

    assert len(kept(at, "abc")) == 3 and not kept(inside, "abc")
    assert len(kept(at, "def")) == 1, "a work tree that is gone is its repository's"
    began_nowhere = kept(str(tmp_path), "ghi"), kept(inside, "ghi")
    assert [len(one) for one in began_nowhere] == [1, 1]
    warm = Warm(memory, memory.settings.root)
    asked = HookEvent(
        "claude", "UserPromptSubmit", "prompt", "abc", inside, prompt="which port has the staging database"
    )
    assert "5433" in warm.reply({"op": "prompt", "event": asked.to_json()})["context"]
    other = replace(asked, session="new")
    assert "5433" not in warm.reply({"op": "prompt", "event": other.to_json()})["context"]


def test_where_agents_are_switched_off_nothing_is_kept_from_elsewhere(memory: Memory, tmp_path: Path) -> None:
    """A transcript tells where each thing was said; a further work tree of a repository is off with it."""
    off, on = tmp_path / "off", tmp_path / "on"
    for one in (off, on):
        subprocess.run(["git", "init", "-q", str(one)], check=True)
    commit = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "-q", "--allow-empty"]
    subprocess.run(["git", "-C", str(off), *commit, "-m", "feat: begin"], check=True)
    subprocess.run(["git", "-C", str(off), "worktree", "add", "-q", str(tmp_path / "further")], check=True)
    (off / ".cairn").mkdir()
    (off / hook.OFF_SWITCH).write_text("")
    path = transcript(
        tmp_path / "t.jsonl",
        record("user", "u1", "The secret project is called heron.", cwd=str(off)),
        record("user", "u2", "Its key lies in the vault.", cwd=str(tmp_path / "further")),
        record("user", "u3", "Here we say what we like.", cwd=str(on)),
    )
    take_in(memory, HookEvent("claude", "Stop", "turn", "abc", str(on), transcript=str(path)))
    kept = "".join(one.read_text() for one in memory.settings.root.glob("*/*/sessions/*.jsonl"))
    assert "what we like" in kept and "heron" not in kept and "vault" not in kept
    assert hook.is_switched_off(str(tmp_path / "further")) and not hook.is_switched_off(str(on))


def test_a_fork_brings_what_is_new_in_it(memory: Memory, tmp_path: Path) -> None:
    """Its transcript begins with a copy of that of its origin, by the same ids; what nobody has taken in yet comes with it."""
    spoken = [
        record("user", "u1", "The staging port is 5433."),
        record("assistant", "a1", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]),
        record("assistant", "a2", [{"type": "text", "text": "Noted."}]),
    ]
    for number, name in enumerate(("origin", "fork", "second")):
        said = record("user", f"n{number}", f"Way number {number}.")
        path = transcript(tmp_path / f"{name}.jsonl", *spoken, said)
        event = HookEvent("claude", "Stop", "turn", name, "", transcript=str(path))
        assert take_in(memory, event) == (4 if name == "origin" else 1)
        assert take_in(memory, event) == 0
        spoken.append(said)
    unknown = [record("user", "x1", "Said before there was a memory."), record("user", "x2", "So was this.")]
    transcript(tmp_path / "unseen.jsonl", *unknown)
    path = transcript(tmp_path / "late.jsonl", *unknown, record("user", "x3", "And this is new."))
    assert take_in(memory, HookEvent("claude", "Stop", "turn", "late", "", transcript=str(path))) == 3


def test_what_hosts_send_is_read_alike() -> None:
    """Claude Code, Codex, Gemini and Cursor: moment, session and words; only known fields are answered."""
    codex = read_event({**PROMPT, "turn_id": "t1", "model": "m"})
    gemini = read_event({"hook_event_name": "BeforeAgent", "session_id": "g", "prompt": "hello"})
    cursor = read_event({"hook_event_name": "beforeSubmitPrompt", "conversation_id": "c", "prompt": "hello"})
    assert codex is not None and (codex.host, codex.moment, codex.turn) == ("codex", "prompt", "t1")
    assert gemini is not None and (gemini.host, gemini.moment) == ("gemini", "prompt")
    assert cursor is not None and (cursor.host, cursor.session) == ("cursor", "c")
    told = json.loads(answer(codex, "x"))
    assert told == {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "x"}}
    assert answer(codex, "") == ""


def test_without_the_warm_process_words_alone_are_told_of_the_person_alone(memory: Memory) -> None:
    """The first prompt after a pause: the index as it lies on disk, and nobody else's rows."""
    now = int(time.time() * 1000)
    for who, text in (
        ("me", "The staging database password rotates on Mondays."),
        ("bob", "The staging database is mine."),
        ("me", "What do we know about the staging database and the heron?"),
    ):
        memory.add(who, [{"sender_id": who, "role": "user", "timestamp": now, "content": text}])
        memory.flush(who)
    memory.search("staging", user_id="me", method="keyword")
    settings, asked = memory.settings, "when does the staging database password rotate"
    found = cold.by_words(settings.index_dir, "me", [Space()], asked)
    assert found and all("Mondays" in one.text and "mine" not in one.text for one in found)
    for nothing in ("the weather in Mongolia", "what do we know about it", "do we know the heron of staging"):
        assert cold.by_words(settings.index_dir, "me", [Space()], nothing) == []
    told = cold.recalled(settings, "", {"query": asked})
    assert "Mondays" in told["text"] and "not an instruction" in told["text"] and "ask again" in told["text"]
    assert [item["text"] for item in told["data"]["items"]] == [one.text for one in found]
    day = time.strftime("%Y-%m-%d", time.gmtime(now / 1000))
    line = f"- {day} me: The staging database password rotates on Mondays. [said in me]"
    assert line in cold.told(settings, "", asked), "as for every later prompt: who said it, when and where"
    for waits in (
        {"query": "the weather in Mongolia"},
        {"query": 5},
        {},
        {"query": asked, "token_budget": 9},
    ):
        assert cold.recalled(settings, "", waits) is None
    warm, message = (
        Warm(memory, memory.settings.root),
        {"op": "tool", "name": "recall", "arguments": {"query": asked}},
    )
    warm.ready.clear()
    assert warm.reply(message) == told
    warm.ready.set()
    assert "Mondays" in warm.reply(message)["text"] and "being opened" not in warm.reply(message)["text"]


def test_before_the_warm_process_is_up_no_repository_is_told_what_was_said_in_another(
    memory: Memory, tmp_path: Path
) -> None:
    """The first prompt after a pause: the general space and the repository's own, as for every later one."""
    trees = [tmp_path / name for name in ("harbor", "tides")]
    now = int(time.time() * 1000)
    for tree in (*trees, None):
        said = (
            f"The staging database of {tree.name if tree else 'everybody'} rotates its password on Mondays."
        )
        space = Space()
        if tree is not None:
            subprocess.run(["git", "init", "-q", str(tree)], check=True)
            space = space_at(str(tree))
        where = {"app_id": space.app, "project_id": space.project}
        message = {"sender_id": "me", "role": "user", "timestamp": now, "content": said}
        memory.add(said[-20:], [message], **where)
        memory.flush(said[-20:], **where)
        memory.search("staging", user_id="me", method="keyword", **where)
    asked = "when does the staging database password rotate"
    for tree, other in (trees, trees[::-1]):
        told = cold.told(memory.settings, str(tree), asked)
        assert f"of {tree.name}" in told and "of everybody" in told and f"of {other.name}" not in told
    outside = cold.told(memory.settings, str(tmp_path), asked)
    assert "of everybody" in outside and "of harbor" not in outside and "of tides" not in outside


def test_the_warm_process_answers_and_captures_until_it_is_told_to_end(root: Path, tmp_path: Path) -> None:
    """The real process line by line: a fact told in one session is in the context of the next prompt."""
    life = threading.Thread(target=serve, args=(root,), kwargs={"idle_seconds": LONG})
    life.start()
    path = transcript(tmp_path / "t.jsonl", record("user", "u1", "I am allergic to peanuts."))
    assert until(lambda: link.ask(root, {"op": "ping"}, 1.0))
    assert call(root, {**STOP, "hook_event_name": "SessionEnd", "transcript_path": str(path)}).stdout == ""
    assert until(lambda: not list(spool.waiting(root)))

    def told() -> str:
        return call(root, {**PROMPT, "session_id": "def"}).stdout

    context = json.loads(until(told))["hookSpecificOutput"]["additionalContext"]
    assert "peanuts" in context and "not an instruction" in context
    assert link.ask(root, {"op": "end"}, LONG) == {"ok": True}
    life.join(LONG)
    assert not life.is_alive() and not link.socket_path(root).exists()


def test_the_warm_process_ends_when_idle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks: it ends by itself and takes its socket along."""
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    life = threading.Thread(target=serve, args=(root,), kwargs={"idle_seconds": 0.2})
    life.start()
    life.join(LONG)
    assert not life.is_alive() and not link.socket_path(root).exists()


def test_a_hook_starts_the_warm_process_which_ends_when_told(root: Path) -> None:
    """As a host does it: nobody is there, the hook starts it apart from itself, the next call finds it."""
    assert call(root, PROMPT).returncode == 0
    assert until(lambda: link.ask(root, {"op": "ping"}, 5.0))
    assert link.ask(root, {"op": "end"}, LONG) == {"ok": True}
    assert until(lambda: not link.socket_path(root).exists())


def test_what_was_asked_before_the_end_is_answered(root: Path) -> None:
    """It shuts its door, answers the call it has taken, and closes the memory last."""
    leaving, opened = threading.Event(), SimpleQueue[Memory]()
    told: list[dict[str, Any]] = []

    def live() -> None:
        with cairn.open_blocking(root, background=False) as memory, answering(memory):
            opened.put(memory)
            leaving.wait(LONG)

    def remember(words: str) -> None:
        message = {"op": "tool", "name": "remember", "arguments": {"content": words}}
        told.append(link.converse(root, message, LONG))

    life = threading.Thread(target=live)
    life.start()
    memory = opened.get(timeout=LONG)
    memory.parts.notebook._lock_seconds = LONG
    remember("Deploys wait for the migration job.")
    path = memory.show(told[0]["data"]["id"])["path"]
    asking = threading.Thread(target=remember, args=("Backups run at noon.",))
    locks = Path(memory.parts.locks._directory)

    def somebody_waits() -> bool:
        return any(one.stat().st_mode & stat.S_IXUSR for one in locks.glob("*.lock"))

    with FileLocks(locks).hold(path):
        asking.start()
        until(somebody_waits, "the call is under way")
        leaving.set()
        until(lambda: not link.socket_path(root).exists())
        assert link.ask(root, {"op": "ping"}, LONG) is None
        life.join(1.0)
        assert life.is_alive() and not told[1:]
    asking.join(LONG)
    life.join(LONG)
    assert told[1]["data"]["accepted"]
    with cairn.open_blocking(root, background=False) as again:
        assert again.show(told[1]["data"]["id"])


def test_one_that_comes_while_another_leaves_takes_its_place(root: Path) -> None:
    """The lock is held and nobody answers: it waits until it is free, and serves."""
    at = link.socket_path(root)
    at.parent.mkdir(parents=True)
    with at.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        life = threading.Thread(target=serve, args=(root,), kwargs={"idle_seconds": LONG})
        life.start()
        life.join(1.0)
        assert life.is_alive() and not root.exists()
    assert until(lambda: link.ask(root, {"op": "ping"}, 1.0))
    assert serve(root) == 0, "where another serves, it ends at once"
    assert link.ask(root, {"op": "end"}, LONG)
    life.join(LONG)
    assert not life.is_alive()


@pytest.mark.parametrize("added", [0, 1])
def test_what_is_taken_in_when_the_memory_closes_is_left_to_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch, added: int
) -> None:
    """The end of the process is no fault of an event: all of it comes in next time, and nobody is told of trouble."""
    event = {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like tea.", "reply": "Noted."}
    add, calls = Memory.add, []
    with ExitStack() as opened:
        memory = opened.enter_context(cairn.open_blocking(root, background=False))
        warm = Warm(memory, root)

        def closing(here: Memory, *args: Any, **given: Any) -> Any:
            if len(calls) == added:
                warm.stop()
                warm.over.set()
                opened.close()
            calls.append(args)
            return add(here, *args, **given)

        for turn in ("1", "2"):
            spool.put(root, {**event, "turn": turn})
        with monkeypatch.context() as patch:
            patch.setattr(Memory, "add", closing)
            assert warm.drain() == 0
    assert len(list(spool.waiting(root))) == 2
    assert not spool.aside(root) and not spool.take_troubles(root)
    with cairn.open_blocking(root, background=False) as memory:
        assert Warm(memory, root).drain() == 2
        assert [one.text for one in memory.unprocessed("gemini-g")] == ["I like tea.", "Noted."] * 2


def test_a_warm_process_that_cannot_start_says_so_at_the_next_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting nobody can follow: the process ends, and the next session is told why."""
    monkeypatch.setenv("CAIRN_MEMORY__COLOUR", "blue")
    assert warm_main(["--root", str(root)]) == 1
    assert "could not start" in " ".join(spool.take_troubles(root))


def test_a_broken_event_is_set_aside_and_the_rest_is_taken(memory: Memory) -> None:
    """One bad file in the spool costs only itself."""
    root = memory.settings.root
    spool.put(
        root, {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like tea.", "turn": "1"}
    )
    (spool.folder(root) / "00000000000000000001-1.json").write_text("{")
    warm = Warm(memory, root)
    assert warm.drain() == 1
    assert [m.text for m in memory.unprocessed("gemini-g")] == ["I like tea."]
    assert "set aside" in " ".join(spool.take_troubles(root))


def test_a_prompt_is_kept_though_its_session_is_killed(memory: Memory, tmp_path: Path) -> None:
    """The transcript is written behind the talk: the event's own words are kept, and known when it brings them."""
    path = transcript(tmp_path / "t.jsonl", record("user", "u1", "First things first."))
    event = read_event(
        {
            **PROMPT,
            "prompt": "The key of osprey is in the vault.",
            "prompt_id": "p2",
            "transcript_path": str(path),
        }
    )
    assert event is not None
    for _ in range(2):
        take_in(memory, event)
    said = [message.text for message in memory.unprocessed("claude-abc")]
    assert said == ["First things first.", "The key of osprey is in the vault."]
    with path.open("a") as file:
        file.write(json.dumps(record("user", "u2", "The key of osprey is in the vault.")) + "\n")
    take_in(memory, event)
    assert len(memory.unprocessed("claude-abc")) == 2


def test_a_bad_event_holds_up_no_other(memory: Memory) -> None:
    """An event that can never be kept is set aside and said; the next one is taken."""
    root = memory.settings.root
    spool.put(root, {"host": "gemini", "moment": "turn", "session": "\0", "prompt": "x", "turn": "1"})
    spool.put(
        root, {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like tea.", "turn": "1"}
    )
    assert Warm(memory, root).drain() == 1
    assert [message.text for message in memory.unprocessed("gemini-g")] == ["I like tea."]
    assert "set aside" in " ".join(spool.take_troubles(root))


@pytest.mark.parametrize("cut", ["\ud83d", "a.txt\0b.txt\0"])
def test_what_no_text_may_hold_costs_neither_its_message_nor_the_session(
    memory: Memory, tmp_path: Path, cut: str
) -> None:
    """Hosts cut texts in the middle of a character, and tools print NUL: the rest of that message and all later turns are kept."""
    path = transcript(
        tmp_path / "t.jsonl",
        record("user", "u1", "List the files."),
        record(
            "assistant",
            "a1",
            [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "find"}}],
        ),
        record("user", "u2", [{"type": "tool_result", "tool_use_id": "c1", "content": f"found {cut}"}]),
    )
    root, warm = memory.settings.root, Warm(memory, memory.settings.root)
    sent = {**STOP, "transcript_path": str(path), "last_assistant_message": ""}
    warm.hooked("", json.dumps(sent).encode())
    with path.open("a") as file:
        file.write(json.dumps(record("user", "u3", "Ingrid is release captain.")) + "\n")
    warm.hooked(
        "", json.dumps({**PROMPT, "prompt": f"The mascot is a heron {cut}", "prompt_id": "p"}).encode()
    )
    warm.hooked("", json.dumps(sent).encode())
    assert warm.drain() >= 2
    kept = "\n".join(message.text for message in memory.unprocessed("claude-abc"))
    assert "found \ufffd" in kept or "found a.txt\ufffdb.txt" in kept
    assert "Ingrid is release captain." in kept and "The mascot is a heron" in kept
    assert spool.take_troubles(root) == [] and spool.aside(root) == []


def test_a_message_that_is_refused_keeps_no_later_one_out(memory: Memory, tmp_path: Path) -> None:
    """Whatever one message is refused for: it is said, and what follows it in the session is captured."""
    path = transcript(
        tmp_path / "t.jsonl",
        record("user", "u1", "This one comes from a strange clock.", timestamp="0001-01-01T00:00:00Z"),
        record("user", "u2", "Ingrid is release captain."),
    )
    event = HookEvent("claude", "Stop", "turn", "abc", "", transcript=str(path))
    take_in(memory, event)
    take_in(memory, event)
    assert [message.text for message in memory.unprocessed("claude-abc")] == ["Ingrid is release captain."]
    assert "left out" in " ".join(spool.take_troubles(memory.settings.root))


def test_turns_that_were_set_aside_are_found_by_doctor_and_tried_again(memory: Memory) -> None:
    """What could not be taken in is not forgotten: doctor counts it, --fix has it tried again, the next look takes it in."""
    root = memory.settings.root
    event = {"host": "gemini", "moment": "turn", "session": "g", "prompt": "I like tea.", "turn": "1"}
    set_aside = spool.put(root, event)
    set_aside.rename(set_aside.with_suffix(".broken"))
    (spool.folder(root) / "00000000000000000001-1.broken").write_text("{")
    waiting = spool.put(root, {**event, "prompt": "I like rye bread.", "turn": "2"})
    os.utime(waiting, (1, 1))
    told = {one["level"]: one["what"] for one in memory.doctor() if "coding agent" in one["what"]}
    assert "2 turns" in told["warn"] and "1 turn of a coding agent waits" in told["info"]
    assert [one["code"] for one in memory.repair()].count("set-aside") == 1
    assert Warm(memory, root).drain() == 2
    said = {message.text for message in memory.unprocessed("gemini-g")}
    assert said == {"I like tea.", "I like rye bread."}
    assert [path.name for path in spool.aside(root)] == ["00000000000000000001-1.broken"]


def test_a_session_that_falls_silent_is_closed_and_told(memory: Memory) -> None:
    """A killed session sends no end: its words become an episode all the same, once, and a live one is left alone."""
    root = memory.settings.root
    for session, words in (("dead", "The key of osprey is in the vault."), ("live", "I like tea.")):
        spool.put(
            root, {"host": "gemini", "moment": "turn", "session": session, "prompt": words, "turn": "1"}
        )
    warm = Warm(memory, root)
    assert warm.drain() == 2
    for path in root.rglob("sessions/gemini-dead*.jsonl"):
        os.utime(path, (1.0, 1.0))
    warm.close_silent(10.0)
    assert memory.unprocessed("gemini-dead") == [] and len(memory.unprocessed("gemini-live")) == 1
    assert "vault" in memory.recall("where is the key of osprey").prompt
    assert warm.reply({"op": "close"}) == {"ok": True} and memory.unprocessed("gemini-live") == []


def test_a_credential_in_a_prompt_is_not_even_in_the_spool(
    root: Path, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool is a file like any other; and the prompt is still known again in the transcript, which has it all."""
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    token = "gh" + "p_" + "Zq7CI5CFKlFNXfsfYQc87OMjaGdlpbCB0GNE"
    said = f"Deploy with {token} to the staging host."
    path = transcript(tmp_path / "t.jsonl")
    data = {"hook_event_name": "UserPromptSubmit", "session_id": "abc", "cwd": "", "prompt": said,
            "transcript_path": str(path)}  # fmt: skip
    assert hook.main(["--root", str(root), "--host", "claude"], json.dumps(data).encode()) == 0
    [(_, kept)] = spool.waiting(root)
    assert kept["prompt"] == "Deploy with [redacted: github-token] to the staging host."
    assert not any(token.encode() in at.read_bytes() for at in root.rglob("*") if at.is_file())
    assert take_in(memory, HookEvent.of(kept)) == 1
    transcript(path, record("user", "u1", said), record("assistant", "a1", "Done."))
    assert take_in(memory, HookEvent("claude", "Stop", "turn", "abc", "", transcript=str(path))) == 1
    assert [message.text for message in memory.unprocessed("claude-abc")] == [kept["prompt"], "Done."]


def test_a_hook_is_one_wherever_its_root_is_named(tmp_path: Path) -> None:
    """A host's turn never fails: `--root` may stand before the command, too."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "cairn.surfaces.cli",
        "--root",
        str(tmp_path / "root"),
        "hook",
        "Stop",
    ]
    done = subprocess.run(
        words, input=b"{broken", env={**os.environ, "CAIRN_DISABLE": "1"}, capture_output=True, timeout=LONG
    )
    assert (done.returncode, done.stdout) == (0, b"")
