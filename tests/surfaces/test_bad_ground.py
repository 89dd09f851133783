"""A server on bad ground: a full disk, settings that are no file, an index that is a link."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest

import cairn
from cairn import errors
from cairn.surfaces.cli import main
from tests.crash.test_full_disk import fill, message, small_disk
from tests.surfaces.served import free_port, serving
from tests.waiting import until

ENV = {"CAIRN_EMBEDDING__PROVIDER": "hashing"}


def test_health_tells_that_nothing_can_be_written(tmp_path):
    """Full: `/health` says so while adds are refused, and the log is not flooded. Freed: all is well again."""
    with small_disk(tmp_path / "disk") as disk:
        log = tmp_path / "log"
        with serving(disk / "root", env=ENV, log=log) as server:
            assert server.call("GET", "/health")[1]["status"] == "ok"
            first = {"session_id": "s", "messages": [message("zqaaaaaa", 1)]}
            assert server.post("memory/add", first)[0] == 200
            assert server.post("memory/flush", {"session_id": "s"})[0] == 200
            ballast = fill(disk)
            more = {"session_id": "s", "messages": [message("zqbbbbbb", 2)]}
            assert server.post("memory/add", more)[0] == 503
            status, health = server.call("GET", "/health")
            assert (status, health["status"]) == (200, "degraded")
            assert any("memory root cannot be written: the disk is full" in why for why in health["reasons"])
            assert str(disk) not in str(health)
            assert any(
                "disk is full" in one["what"]
                for one in server.call("GET", "/api/v1/doctor")[1]["data"]["findings"]
            )
            ballast.unlink()
            until(lambda: server.call("GET", "/health")[1]["status"] == "ok", "it did not recover")
            assert server.post("memory/add", more)[0] == 200
        assert "Traceback" not in log.read_text()


def test_status_answers_on_a_full_disk(tmp_path):
    """No part of the index can be opened there: it is told, beside what still can be."""

    def cairn(*command):
        return subprocess.run(
            [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(disk / "root"), *command],
            env={**os.environ, **ENV}, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    with small_disk(tmp_path / "disk") as disk:
        assert cairn("add", "--session", "s", "--sender", "ana", "The lantern is red.").returncode == 0
        ballast = fill(disk)
        told = cairn("status")
        assert str(disk / "root") in told.stdout
        assert "the memory root cannot be written: the disk is full" in told.stdout
        assert "The index cannot be looked at" in told.stdout
        ballast.unlink()
        assert "cannot be" not in cairn("status").stdout


def test_what_fails_again_and_again_is_told_ever_more_rarely(caplog):
    """The 1st, 2nd, 4th, 8th... time, a line each; after a success the count begins anew."""
    import logging

    from cairn.daemon import TroubleLog
    from cairn.errors import Unavailable

    told = TroubleLog(logging.getLogger("cairn.test"))
    with caplog.at_level("WARNING", logger="cairn"):
        for _ in range(100):
            told.failed("a round", Unavailable("the disk is full"))
        assert len(caplog.records) == 7
        assert "64 times in a row" in caplog.text
        assert not any(record.exc_info for record in caplog.records)
        told.went_well("a round")
        told.failed("a round", Unavailable("the disk is full"))
        assert len(caplog.records) == 8
        told.failed("another", RuntimeError("nobody foresaw this"))
        assert caplog.records[-1].exc_info


def _settings_are_a_pipe(root):
    os.mkfifo(root / "cairn.toml")


def _settings_are_too_deep(root):
    (root / "cairn.toml").write_text("[memory]\ntimezone = " + "[" * 100_000)


def _strategies_are_too_deep(root):
    (root / "ome.toml").write_text("[strategies]\nx = " + "[" * 100_000)


def _index_is_a_link(root):
    (root.parent / "elsewhere").mkdir()
    (root / ".index").symlink_to(root.parent / "elsewhere")


def _index_leads_nowhere(root):
    (root / ".index").symlink_to(root.parent / "nowhere")


def _index_is_a_file(root):
    (root / ".index").touch()


@pytest.mark.parametrize(
    "command", [["server", "start"], ["search", "tea", "--user", "ann"]], ids=lambda c: c[0]
)
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_settings_are_a_pipe, "cairn.toml cannot be read: it is not a regular file"),
        (_settings_are_too_deep, "cairn.toml: it is nested too deeply"),
        (_index_is_a_link, '".index" is a symbolic link'),
        (_index_leads_nowhere, '".index" is a symbolic link'),
        (_index_is_a_file, '".index" is a file, not a folder'),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_bad_ground_is_named_in_one_line(tmp_path, command, make, says):
    """The server and the command line end with one line that names the thing and the trouble."""
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    more = ["--port", str(free_port())] if command[0] == "server" else []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    done = subprocess.run(
        [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(root), *command, *more],
        env={**clean, **ENV}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode not in {0, 1}
    [line] = done.stderr.splitlines()
    assert line.startswith("cairn: ")
    assert says in line
    if (root.parent / "elsewhere").exists():
        assert not list((root.parent / "elsewhere").iterdir())


def test_strategies_that_are_nested_too_deeply_keep_their_settings(tmp_path):
    """`ome.toml` is read while running: a bad one is named, and what held before holds on."""
    root = tmp_path / "root"
    root.mkdir()
    _strategies_are_too_deep(root)
    log = tmp_path / "log"
    with serving(root, env=ENV, log=log) as server:
        assert server.post("memory/add", {"session_id": "s", "messages": [message("zqaaaaaa", 1)]})[0] == 200
        assert server.post("memory/flush", {"session_id": "s"})[0] == 200
        findings = server.call("GET", "/api/v1/doctor")[1]["data"]["findings"]
        assert any("nested too deeply" in str(one) for one in findings)
    assert "Traceback" not in log.read_text()


def test_a_log_of_the_index_that_is_cut_short_is_made_anew(tmp_path):
    """A write-ahead log that lost its end under a running server: `/health` goes on answering, and searches find
    everything again without a restart.
    """
    root = tmp_path / "root"
    with serving(root, env=ENV) as server:
        for number in range(8):
            said = {"session_id": f"s{number}", "messages": [message(f"zqcccc{number} is green", number)]}
            assert server.post("memory/add", said)[0] == 200
            assert server.post("memory/flush", {"session_id": f"s{number}"})[0] == 200
        asked = {"user_id": said["messages"][0]["sender_id"], "query": "green", "consistency": "strong"}
        assert len(server.post("memory/search", asked)[1]["data"]["episodes"]) == 8
        os.truncate(root / ".index" / "sqlite" / "index.db-wal", 1000)
        (
            root / "default_app/default_project/users" / asked["user_id"] / "episodes/episode-2020-01-01.md"
        ).touch()

        def found():
            health = server.call("GET", "/health")
            assert health[0] == 200, health
            status, answer = server.post("memory/search", asked)
            return status == 200 and len(answer["data"]["episodes"]) == 8 and health[1]["status"] == "ok"

        until(found, "it did not recover")
        assert server.post("memory/add", {"session_id": "s9", "messages": [message("zqd", 99)]})[0] == 200
        until(
            lambda: server.post("memory/search", asked)[1]["data"]["freshness"]["state"] == "fresh",
            "not fresh",
        )


def test_a_folder_that_is_no_longer_there_takes_nothing_in(tmp_path):
    """The root is moved away under a server, as when its disk is gone: nothing is kept in an empty folder in its place,
    nothing is answered from there, and `/health`, `/ready` and the log say why. Back in its place all is as it was.
    """
    root, away, log = tmp_path / "root", tmp_path / "away", tmp_path / "log"
    first = {"session_id": "s", "messages": [message("zqaaaaaa", 1)]}
    more = {"session_id": "s", "messages": [message("zqbbbbbb", 2)]}
    question = {"user_id": "ana", "query": "zqaaaaaa", "method": "keyword", "evidence": 2}
    with serving(root, env=ENV, log=log) as server:
        assert server.post("memory/add", first)[0] == 200
        assert server.post("memory/flush", {"session_id": "s"})[0] == 200
        root.rename(away)
        root.mkdir()  # what a disk was mounted on
        for name, body in (
            ("memory/add", more), ("memory/flush", {"session_id": "s"}), ("memory/search", question),
            ("memories", {"content": "We deploy with make ship."}),
            ("memory/get", {"memory_type": "episode", "user_id": "ana"}), ("recall", {"query": "zqaaaaaa", "user_id": "ana"}),
            ("person/forget", {"user_id": "ana"}),
        ):  # fmt: skip
            status, answer = server.post(name, body)
            assert status == 503, (name, answer)
            assert "moved, removed, or its disk is not mounted" in answer["error"]["message"]
        status, health = server.call("GET", "/health")
        assert (status, health["status"]) == (200, "degraded")
        assert any("its disk is not mounted" in why for why in health["reasons"])
        assert str(tmp_path) not in str(health)
        assert server.call("GET", "/ready")[0] == 503
        warnings = server.call("GET", "/api/v1/status")[1]["data"]["warnings"]
        assert any("its disk is not mounted" in one for one in warnings)
        until(lambda: "its disk is not mounted" in log.read_text(), "the log said nothing")
        assert {at.name for at in root.rglob("*") if at.suffix in {".md", ".jsonl"}} <= {"audit.jsonl"}
        root.rename(tmp_path / "husk")
        away.rename(root)
        until(lambda: server.call("GET", "/health")[1]["status"] == "ok", "it did not recover")
        assert server.post("memory/add", more)[0] == 200
        found = server.post("memory/search", {**question, "consistency": "strong"})
        assert "zqaaaaaa" in str(found)
    kept = (root / "default_app" / "default_project" / "sessions" / "s.jsonl").read_text()
    assert "zqaaaaaa" in kept and "zqbbbbbb" in kept


def test_a_root_that_cannot_be_is_named_with_its_path_and_a_way_out(tmp_path, capsys):
    """A name that is too long, a file in the way: which path it is, and how another is named."""
    for root, says in (
        (tmp_path / ("n" * 300), "Check the path"),
        (tmp_path / "file" / "below", "is not a folder"),
    ):
        (tmp_path / "file").touch()
        assert main(["--root", str(root), "add", "--session", "s", "hi"]) > 1
        [line] = capsys.readouterr().err.splitlines()
        assert str(root) in line
        assert says in line
        assert "--root or CAIRN_MEMORY__ROOT" in line


def test_in_the_place_of_a_root_that_is_gone_no_token_is_made(tmp_path):
    """A token that is made for a memory lies with it: none is given out that would be gone once the disk is back."""
    root, away = tmp_path / "root", tmp_path / "away"
    with cairn.open_blocking(root) as memory:
        memory.add_token("laptop")
        root.rename(away)
        root.mkdir()
        for call in (
            partial(memory.add_token, "phone"),
            partial(memory.revoke_token, "laptop"),
            memory.tokens,
        ):
            with pytest.raises(errors.RootGone, match="put it back where it was"):
                call()
        assert not (root / ".server").exists()
        root.rename(tmp_path / "husk")
        away.rename(root)
        assert [one["name"] for one in memory.tokens()] == ["laptop"]
