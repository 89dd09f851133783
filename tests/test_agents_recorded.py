"""What the real programs sent, once recorded (Claude Code 2.1.325, Codex 0.166.0): their hooks' inputs and transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn
from cairn.agents import hook
from cairn.agents.warm import Warm
from cairn.engines import spool
from cairn.memory import Memory

RECORDED = Path(__file__).parent / "golden" / "hooks"
FACT = "My editor is Helix and I never use tabs."


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(hook, "start_warm", lambda _root: None)
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        yield opened


def events(host: str, folder: Path, transcript: Path) -> Iterator[str]:
    """The inputs in their order, in this folder and with this transcript."""
    for line in (RECORDED / f"{host}-events.jsonl").read_text().splitlines():
        yield line.replace("FOLDER", str(folder)).replace("TRANSCRIPT", str(transcript))


def send(text: str, root: Path) -> None:
    assert hook.main(["--root", str(root)], text.encode()) == 0


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_a_recorded_session_is_kept_once_and_told_in_the_next(
    host: str,
    memory: Memory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Start, prompt, stop, compaction and end as they came: each message once, nothing that the host put there."""
    root = memory.settings.root
    transcript = tmp_path / f".{host}" / "session.jsonl"
    transcript.parent.mkdir()
    transcript.write_text((RECORDED / f"{host}-transcript.jsonl").read_text())
    warm = Warm(memory, root)
    for text in events(host, tmp_path, transcript):
        send(text, root)
        warm.drain()
    for text in events(host, tmp_path, transcript):  # a host that sends everything again
        send(text, root)
        warm.drain()
    assert spool.take_troubles(root) == []
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(one) == {"hookSpecificOutput"} for one in printed)
    first = next(json.loads(text) for text in events(host, tmp_path, transcript))
    session = f"{host}-{first['session_id']}"
    logged = (root / "default_app/default_project/sessions" / f"{session}.jsonl").read_text()
    assert logged.count(FACT) == 1 and logged.count("Noted.") == 1
    assert "put here by the host" not in logged and "being continued" not in logged
    assert "Helix" in memory.recall("which editor do I use").prompt
