"""How a root stands, the same by every surface, and what has no owner's words is told with its next step."""

import json
import subprocess
from datetime import UTC, datetime, timedelta

import cairn
from cairn.agents.hosts import HookEvent
from cairn.agents.taking import take_in
from cairn.engines import spool
from cairn.projects import space_at
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here

QUIET = {"CAIRN_EMBEDDING__PROVIDER": "none", "CAIRN_STRATEGIES__ENABLED": "false"}
SAID = {"sender_id": "ann", "role": "user", "timestamp": 1767225600000, "content": "I sail the Petrel."}


def test_status_is_the_same_by_every_surface(tmp_path, monkeypatch, capsys):
    """Root, index, queue, sweep, model, spend, engines, server and warnings; a trouble is a warning and exit code 1."""
    root = tmp_path / "root"
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    with cairn.open_blocking(root) as memory:
        memory.add("s1", [SAID])
        memory.flush("s1")
        memory.memories.sweep()
        memory.sync()
        mine = memory.status()
    assert mine["root"] == str(root)
    assert mine["index"]["state"] == "fresh"
    assert mine["index"]["rows"] > 0
    on_disk = sum(path.stat().st_size for path in (root / ".index").rglob("*") if path.is_file())
    assert mine["index"]["bytes"] > on_disk / 2
    assert mine["spaces"][0]["last_sweep"]
    assert mine["model"]["embedding"] is None
    assert (mine["model"]["tokens_today"], mine["warnings"]) == (0, [])
    assert mine["engines"]["storage"] == "device-local"

    assert main(["--root", str(root), "status", "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)
    with serving_here(root, env=QUIET) as server:
        status, answer = server.call("GET", "/api/v1/status")
    assert status == 200
    for told in (typed, answer["data"]):
        assert told.keys() == mine.keys()
        same = ("root", "version", "spaces", "engines", "model")
        assert [told[name] for name in same] == [mine[name] for name in same]

    log = next(root.glob("*/*/sessions/*.jsonl"))
    log.write_text(log.read_text() + '{"t":"add","n":100000000000000000000}\n')
    strange = "\n[strategies.trigger_profile_clustering]\nenabled = true\n"
    (root / "ome.toml").write_text((root / "ome.toml").read_text() + strange)
    assert main(["--root", str(root), "sync"]) == 0
    capsys.readouterr()
    assert main(["--root", str(root), "status"]) == 1
    said = capsys.readouterr().out
    assert "last sweep" in said
    assert "warning" in said
    assert log.name in said
    assert "trigger_profile_clustering" in said


def test_what_hooks_capture_is_seen(tmp_path, monkeypatch, capsys):
    """Who was set up and brought nothing, then when, from whom and for which repository, by every surface alike."""
    root, tree = tmp_path / "root", tmp_path / "harbor"
    for name, value in {**QUIET, "HOME": str(tmp_path), "CAIRN_MEMORY__ROOT": str(root)}.items():
        monkeypatch.setenv(name, value)
    with cairn.open_blocking(root, background=False) as memory:
        assert memory.status()["capture"] == {"agents": [], "last": None, "waiting": 0}
    assert main(["status"]) == 0
    assert "cairn integrate" in capsys.readouterr().out
    assert main(["integrate", "claude"]) == 0
    assert main(["doctor"]) == 0
    assert "nothing was captured yet from claude" in capsys.readouterr().out
    assert main(["status"]) == 0
    assert "nothing yet from claude" in capsys.readouterr().out

    tree.mkdir()
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    turn = HookEvent(
        "claude", "UserPromptSubmit", "turn", "s", str(tree), prompt="The crane is blue.", turn="1"
    )
    waits = spool.put(root, turn.to_json())
    with cairn.open_blocking(root, background=False) as memory:
        assert memory.status()["capture"]["waiting"] == 1
        waits.unlink()
        take_in(memory, HookEvent("codex", "Stop", "turn", "t", "", prompt="Elsewhere.", turn="1"))
        take_in(memory, turn)
        take_in(memory, HookEvent("codex", "SessionEnd", "end", "t", ""))
        mine = memory.status()["capture"]
    named = space_at(str(tree)).project
    assert named.startswith("harbor-")
    assert (mine["last"]["agent"], mine["last"]["project_id"]) == ("claude", named), (
        "a session that ends brings nothing"
    )
    assert datetime.now(UTC) - datetime.fromisoformat(mine["last"]["at"]) < timedelta(minutes=5)
    with serving_here(root, env=QUIET) as server:
        assert server.call("GET", "/api/v1/status")[1]["data"]["capture"] == mine
        page = server.call("GET", "/view/health")[1]
        assert f"claude, {named}</span>" in page.partition("Last captured")[2]
    assert main(["status"]) == 0
    assert f"ago from claude in {named}" in capsys.readouterr().out
    assert main(["doctor"]) == 0
    assert "captured" not in capsys.readouterr().out

    for number, strange in enumerate(("x", {}, {"at": "soon"}, {"at": 1e300}, {"at": float("nan")}, [1])):
        (root / ".hooks" / "read" / f"{number}").write_text(json.dumps({"kept": strange}))
    with cairn.open_blocking(root, background=False) as memory:
        assert memory.status()["capture"] == mine, "a damaged file tells nothing"
