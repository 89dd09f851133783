"""One story, told through Python async, Python blocking, the command line and HTTP, with one outcome."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import cairn
from tests.surfaces.served import serving

NOW = 1_780_000_000_000
ENV = {"CAIRN_EMBEDDING__PROVIDER": "hashing"}
TALK = [
    ("alice", "user", "I moved to Lisbon last Friday."),
    ("bot", "assistant", "How is the new flat?"),
    ("alice", "user", "Tiny, and my cat Miso hates the sofa."),
]
MESSAGES = [
    {"sender_id": who, "role": role, "timestamp": NOW + 1000 * n, "content": text}
    for n, (who, role, text) in enumerate(TALK)
]


def outcome(add, flush, again, episodes, total, others):
    """What every telling must end with."""
    assert (add["status"], add["message_count"]) == ("accumulated", 3)
    assert flush["status"] == "extracted"
    assert again["status"] == "no_extraction"
    assert [item["id"] for item in episodes] == ["alice_ep_20260528_00000001"]
    assert all(text in episodes[0]["episode"] for _, _, text in TALK)
    assert episodes[0]["sender_ids"] == ["alice", "bot"]
    assert total == 1
    assert others == []


def through_http(root):
    with serving(root, env=ENV) as server:
        add = server.post("memory/add", {"session_id": "s1", "messages": MESSAGES})[1]["data"]
        flush = server.post("memory/flush", {"session_id": "s1"})[1]["data"]
        again = server.post("memory/flush", {"session_id": "s1"})[1]["data"]
        ask = {"user_id": "alice", "query": "cat Miso", "method": "keyword", "consistency": "strong"}
        found = server.post("memory/search", ask)[1]["data"]
        page = server.post("memory/get", {"user_id": "alice", "memory_type": "episode"})[1]["data"]
        others = server.post("memory/search", {**ask, "user_id": "bob"})[1]["data"]
    outcome(add, flush, again, found["episodes"], page["total_count"], others["episodes"])


def run_cli(root, *words, code=0, stdin=None):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    done = subprocess.run(
        [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(root), *words, "--json"],
        input=stdin,
        capture_output=True,
        text=True,
        env={**clean, **ENV},
    )
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def through_cli(root):
    lines = "\n".join(json.dumps(message) for message in MESSAGES)
    add = run_cli(root, "add", "--session", "s1", "--file", "-", stdin=lines)
    flush = run_cli(root, "flush", "--session", "s1")
    again = run_cli(root, "flush", "--session", "s1")
    found = run_cli(root, "search", "--user", "alice", "--method", "keyword", "cat", "Miso")
    page = run_cli(root, "get", "episode", "--user", "alice")
    others = run_cli(root, "search", "--user", "bob", "--method", "keyword", "cat Miso", code=1)
    outcome(add, flush, again, found["episodes"], page["total_count"], others["episodes"])


def shown(result):
    return result.as_data()["episodes"]


def as_dict(value):
    return {name: getattr(value, name) for name in ("status", "message_count") if hasattr(value, name)}


def through_blocking(root):
    with cairn.open_blocking(root, embedding__provider="hashing") as memory:
        add = memory.add("s1", MESSAGES)
        flush, again = memory.flush("s1"), memory.flush("s1")
        found = memory.search("cat Miso", user_id="alice", method="keyword", consistency="strong")
        page = memory.get("episode", user_id="alice")
        others = memory.search("cat Miso", user_id="bob", method="keyword")
    outcome(as_dict(add), as_dict(flush), as_dict(again), shown(found), page.total_count, shown(others))


def through_async(root):
    async def story():
        async with cairn.open(root, embedding__provider="hashing") as memory:
            add = await memory.add("s1", MESSAGES)
            flush, again = await memory.flush("s1"), await memory.flush("s1")
            found = await memory.search("cat Miso", user_id="alice", method="keyword", consistency="strong")
            page = await memory.get("episode", user_id="alice")
            others = await memory.search("cat Miso", user_id="bob", method="keyword")
        outcome(as_dict(add), as_dict(flush), as_dict(again), shown(found), page.total_count, shown(others))

    asyncio.run(story())


@pytest.mark.parametrize("tell", [through_async, through_blocking, through_cli, through_http])
def test_the_same_story_ends_the_same_way(tell, tmp_path):
    """Add, flush, flush again, search, list, and another user's empty search: one outcome everywhere."""
    tell(tmp_path / "root")


def test_the_command_line_works_beside_a_server(tmp_path):
    """E88: many processes, one root: what the command line writes, the running server finds."""
    with serving(tmp_path, env=ENV) as server:
        run_cli(tmp_path, "add", "--session", "c", "--sender", "carol", "the gooseberry patch")
        run_cli(tmp_path, "flush", "--session", "c")
        ask = {"user_id": "carol", "query": "gooseberry", "method": "keyword", "consistency": "strong"}
        assert server.post("memory/search", ask)[1]["data"]["episodes"]
        assert run_cli(tmp_path, "search", "--user", "carol", "gooseberry")["episodes"]
