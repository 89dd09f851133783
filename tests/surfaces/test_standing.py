"""How a root stands, the same by every surface, and what has no owner's words is told with its next step."""

import json

import cairn
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
