"""What strategies find reaches the gate as candidates, through every surface."""

from __future__ import annotations

import json

import pytest

import cairn
from cairn.strategies.proposals import lessons_in
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here
from tests.surfaces.test_scenario import ENV

LESSON = "The changelog must have the new version, otherwise the release test fails."
TALK = (
    ("user", "alice", "Never commit without running the tests. We decided to use Postgres for the ledger."),
    ("assistant", "coder", f"Done. {LESSON} I must go on, or else it breaks."),
    ("user", "alice", "Fine. Should we always deploy, or else wait? I had soup for lunch."),
)
ORDER, CHOICE = "Never commit without running the tests.", "We decided to use Postgres for the ledger."


def messages(talk):
    return [
        {"role": role, "sender_id": sender, "timestamp": 1_780_000_000_000 + n * 1000, "content": text}
        for n, (role, sender, text) in enumerate(talk)
    ]


def told(capsys, root, *words):
    assert main(["--root", str(root), "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def gist(rows):
    return sorted((row["content"], row["category"], row["scope"], row["scope_owner_id"]) for row in rows)


EXPECTED = sorted(
    [
        (LESSON, "convention", "project", ""),
        (ORDER, "preference", "user", "alice"),
        (CHOICE, "decision", "user", "alice"),
    ]
)


def test_what_strategies_find_waits_at_the_gate(tmp_path, capsys, monkeypatch):
    """A34, S84: lessons, orders and decisions of a talk become candidates with their sources, once for each source, on
    every surface; nothing recalls them until a person promotes one, and a sweep promotes none.
    """
    root = tmp_path / "root"
    with serving_here(root, env=ENV) as server:
        body = {"session_id": "s1", "messages": messages(TALK)}
        assert server.post("memory/add", body)[0] == 200
        assert server.post("memory/flush", {"session_id": "s1"})[0] == 200
        ran = server.call("POST", "/api/v1/ome/trigger", {"name": "propose_memories"})
        assert (ran[0], ran[1]["data"]["status"]) == (200, "done")
        rows = server.call("GET", "/api/v1/memories?status=candidate")[1]["data"]["memories"]
        assert gist(rows) == EXPECTED
        assert {row["origin"] for row in rows} == {"strategy"}
        assert {row["source_session_id"] for row in rows} == {"s1"}
        captures = server.call("GET", "/api/v1/captures?source_type=lesson")[1]["data"]["captures"]
        assert [one["memory_id"] for one in captures] == [r["id"] for r in rows if r["content"] == LESSON]
        asked = {"query": "what must the changelog have", "user_id": "bob", "agent_id": "coder"}
        items = server.post("recall", asked)[1]["data"]["items"]
        assert "memory" not in {item["kind"] for item in items}
        swept = server.call("POST", "/api/v1/memories/sweep", {})[1]["data"]
        assert swept["entries_promoted"] == 0
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    assert "propose_memories" in {row["name"] for row in told(capsys, root, "ome", "list")}
    assert gist(told(capsys, root, "memories", "list", "--status", "candidate")["memories"]) == EXPECTED
    (lesson,) = (row["id"] for row in rows if row["content"] == LESSON)
    told(capsys, root, "memories", "promote", lesson)
    with cairn.open_blocking(root, background=False) as memory:
        found = memory.recall("what must the changelog have", user_id="bob")
        assert LESSON in {item.text for item in found.items if item.kind == "memory"}
        assert not [one for one in memory.doctor() if "make sure a person" in one["what"]]


def test_a_candidate_follows_its_source(tmp_path):
    """A34, S84: the same words in the same message are proposed once, also after the queue is gone; a corrected episode
    puts away what it no longer says; a forgotten session takes its candidates along; what a switch turns off stays off.
    """
    with cairn.open_blocking(tmp_path, background=False, embedding__provider="none") as memory:
        memory.add("s1", messages(TALK))
        memory.flush("s1")
        assert memory.trigger("propose_memories")["dispatched"] == 2
        (note,) = tmp_path.glob("*/*/users/alice/episodes/*.md")
        note.write_text(note.read_text().replace("use Postgres for", "use MariaDB for"))
        memory.trigger("follow_corrections")
        live = [row["content"] for row in memory.memories.list(owner="alice", scope="user").memories]
        assert sorted(live) == [ORDER, "We decided to use MariaDB for the ledger."]
        gone = memory.memories.list(owner="alice", scope="user", status="archived").memories
        assert [row["content"] for row in gone] == [CHOICE]
    for file in (tmp_path / ".index" / "sqlite").glob("ome.db*"):
        file.unlink()
    with cairn.open_blocking(tmp_path, background=False, embedding__provider="none") as memory:
        before = len(memory.memories.list(archived=True).memories)
        assert memory.trigger("propose_memories")["dispatched"] == 0
        assert len(memory.memories.list(archived=True).memories) == before
        memory.switch("propose_memories", off=True)
        assert memory.trigger("propose_memories")["status"] == "disabled"
        memory.forget_session("s1")
        assert memory.memories.list(archived=True).memories == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Lesson learned: stop the proxy before the migration.", ["stop the proxy before the migration."]),
        ("Should it always run, or else fail?\n```\nyou must not, otherwise it fails\n```", []),
        ("Die Version muss im Changelog stehen, sonst schlägt der Test fehl.", None),
        ("I must go on, or else it breaks.", []),
    ],
)
def test_only_what_is_put_as_a_lesson_is_one(said, expected):
    """S84: doubt keeps nothing."""
    assert list(lessons_in(said)) == ([said] if expected is None else expected)
