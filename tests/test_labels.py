"""Tags and metadata of messages: kept, carried on to what is made of them, and filtered on from every side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cairn
from cairn.errors import Invalid
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here

MAY = 1_778_000_000_000


def said(text: str, n: int, **more: object) -> dict:
    return {"sender_id": "ann", "role": "user", "timestamp": MAY + n * 1000, "content": text, **more}


def test_tags_and_metadata_go_with_the_words_and_can_be_filtered_on(tmp_path: Path, capsys) -> None:
    """E116: A message keeps its own, an episode has those of all its messages, and search, get and recall choose by them."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, background=False) as memory:
        memory.add(
            "s1",
            [
                said("The rollback of the billing service took four minutes.", 0, tags=["deploy"]),
                said(
                    "The rollback script lives in tools.", 1, metadata={"team": "ops", "odd": {"in": ["a"]}}
                ),
            ],
            tags=["work"],
            metadata={"ticket": 42, "team": "web"},
        )
        memory.flush("s1")
        memory.add("s2", [said("A rollback of my holiday plans is due.", 2)])
        memory.flush("s2")

        def sessions(filters: dict) -> list[str]:
            found = memory.search(
                "rollback", user_id="ann", filters=filters, method="keyword", consistency="strong", evidence=5
            )
            assert {hit.session_id for hit in found.evidence} >= {hit.session_id for hit in found.hits}
            return sorted(hit.session_id or "" for hit in found.hits)

        assert sessions({}) == ["s1", "s2"]
        assert sessions({"tags": "work"}) == sessions({"metadata.ticket": 42}) == ["s1"]
        assert sessions({"tags": {"ne": "work"}}) == ["s2"]
        assert sessions({"metadata.team": "web"}) == sessions({"metadata.team": "ops"}) == ["s1"]
        assert sessions({"metadata.ticket": "42"}) == []
        found = memory.search(
            "rollback", user_id="ann", filters={"tags": "deploy"}, evidence=5, consistency="strong"
        )
        assert [(one.tags, one.metadata) for one in found.evidence] == [
            (["deploy", "work"], {"ticket": 42, "team": "web"})
        ]
        page = memory.get("episode", user_id="ann", filters={"metadata.team": "ops"}).episodes
        assert [(one["tags"], one["metadata"]) for one in page] == [
            (["deploy", "work"], {"ticket": 42, "team": ["web", "ops"], "odd": {"in": ["a"]}})
        ]
        told = memory.recall("what about the rollback", user_id="ann", filters={"tags": "work"})
        assert "billing" in told.prompt and "holiday" not in told.prompt
        for bad, name in (
            ({"tags": "deploy"}, "tags"),
            ({"tags": ["two\nlines"]}, "tags"),
            ({"metadata": ["x"]}, "metadata"),
            ({"metadata": {"x": float("nan")}}, "metadata"),
            ({"metadata": {"x": "y" * 20_000}}, "metadata"),
        ):
            with pytest.raises(Invalid, match=name):
                memory.add("s3", [said("never kept", 3, **bad)])
            with pytest.raises(Invalid, match=name):
                memory.add("s3", [said("never kept", 3)], **bad)
        assert memory.unprocessed("s3") == []
        episode = next(root.glob("*/*/users/ann/episodes/*.md"))
        assert "**tags**: [deploy, work]" in episode.read_text()
        # What is forgotten takes its labels along, also out of the episode.
        memory.memories.forget(words=["rollback script"], scope="user", owner="ann")
        assert "ops" not in episode.read_text() and "billing" in episode.read_text()
    run = ["--root", str(root), "--json"]
    assert (
        main(
            [*run, "add", "--session", "s4", "--tags", "cli", "--metadata", '{"n": 1}', "A rollback by hand."]
        )
        == 0
    )
    assert main([*run, "flush", "--session", "s4"]) == 0
    capsys.readouterr()
    assert main([*run, "get", "--user", "me", "episode", "--filters", '{"tags": "cli"}']) == 0
    assert json.loads(capsys.readouterr().out)["episodes"][0]["metadata"] == {"n": 1}
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        message = said("The rollback over the wire.", 9, tags=["wire"], metadata={"n": 2})
        assert server.post("memory/add", {"session_id": "s5", "messages": [message]})[0] == 200
        asked = {"query": "rollback", "user_id": "ann", "filters": {"session_id": "s5"}}
        open_part = server.post("memory/search", asked)[1]["data"]["unprocessed_messages"]
        assert (open_part[0]["tags"], open_part[0]["metadata"]) == (["wire"], {"n": 2})
        server.post("memory/flush", {"session_id": "s5"})
        asked |= {"filters": {"metadata.n": {"in": [2, 3]}}, "consistency": "strong"}
        status, body = server.post("memory/search", asked)
        assert status == 200 and [one["tags"] for one in body["data"]["episodes"]] == [["wire"]]
        status, body = server.post("memory/search", asked | {"filters": {"metadata.n": {"gt": 1}}})
        assert status == 422 and "no order" in json.dumps(body)
