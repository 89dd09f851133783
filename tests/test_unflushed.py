"""What was added is found before it is flushed, says so, is its owners' alone, and is never there twice."""

import json

import cairn
from cairn.retrieval.answers import SearchRequest
from cairn.surfaces.cli import main
from cairn.types import Scope, Space
from tests.surfaces.served import serving_here
from tests.waiting import until

NOW = 1_780_000_000_000
CAR = "I parked the car in bay C17."


def said(text, sender="ana", role="user", at=NOW):
    return {"sender_id": sender, "role": role, "timestamp": at, "content": text}


def asked(memory, query="where is the car parked", user="ana", **more):
    return memory.search(query, user_id=user, consistency="strong", **more)


def test_the_open_stretch_answers_and_is_gone_from_there_once_cut(tmp_path):
    """Its owners find it, marked, after a restart too; a cut makes it an episode, and each word is found once."""
    with cairn.open_blocking(tmp_path, embedding__provider="hashing", background=False) as memory:
        memory.add("diary", [said("The pier closes at dusk.")])
        memory.flush("diary")
        added = memory.add("diary", [said(CAR, at=NOW + 1)])
        assert added.status == "accumulated" and added.lsn > 0
        found = asked(memory)
        assert [(one.text, one.unflushed, one.session_id) for one in found.unflushed] == [
            (CAR, True, "diary")
        ]
        assert found.as_data()["unflushed"][0]["unflushed"] is True
        both = asked(memory, evidence=5)
        assert [one.text for one in both.evidence].count(CAR) == 1, (
            "among the evidence where that is asked for"
        )
        assert not both.unflushed and both.evidence[0].unflushed and both.evidence[0].entry_ids == ()
        assert not any(
            one.unflushed for one in asked(memory, "when does the pier close", evidence=1).evidence
        )
        told = memory.recall("where is the car parked", user_id="ana")
        assert "bay C17" in told.prompt and "said just now in diary" in told.prompt
        assert "C17" in asked(memory, for_injection=True, token_budget=60).unflushed[0].text
        assert not asked(memory, user="bob").unflushed and not asked(memory, user="bob", evidence=5).evidence
    with cairn.open_blocking(tmp_path, embedding__provider="hashing", background=False) as memory:
        assert [one.text for one in asked(memory).unflushed] == [CAR], "a restart keeps it"
        memory.flush("diary")
        cut = asked(memory, evidence=5)
        assert (
            not cut.unflushed and [(one.text, one.unflushed) for one in cut.evidence].count((CAR, False)) == 1
        )
        assert sum("C17" in hit.text for hit in cut.episodes) == 1


def test_who_joins_has_what_is_open_and_who_does_not_has_nothing(tmp_path):
    """An open stretch is whose it would be if it were cut now: an agent's until a person speaks, then theirs."""
    with cairn.open_blocking(tmp_path, embedding__provider="none", background=False) as memory:
        memory.add("run", [said("The build waits for the lime kiln.", "coder", "assistant")])
        assert memory.search("lime kiln", agent_id="coder", consistency="strong").unflushed
        memory.add("run", [said("Go on without it.", "ana", at=NOW + 1)])
        assert not memory.search("lime kiln", agent_id="coder", consistency="strong").unflushed
        assert asked(memory, "lime kiln").unflushed
        memory.add("run", [said("I wait as well.", "bob", at=NOW + 2)])
        assert asked(memory, "lime kiln", "bob").unflushed, "and so does who comes later"
        alone = asked(memory, "lime kiln", limited_to={"ana"})
        assert not alone.unflushed, "a caller limited to one owner sees nothing open of a shared session"
        assert asked(memory, "lime kiln", limited_to={"ana", "bob"}).unflushed


def test_command_and_server_find_it_too(tmp_path, capsys):
    """`cairn add` then `cairn search`, and POST add then search: found, and said to be in no episode yet."""
    root = ["--root", str(tmp_path / "one")]
    assert main([*root, "add", "--session", "diary", CAR]) == 0
    assert main([*root, "search", "--user", "me", "--strong", "where is my car"]) == 0
    assert f"{CAR} (not flushed yet)" in capsys.readouterr().out
    assert main([*root, "--json", "search", "--user", "me", "--strong", "where is my car"]) == 0
    assert json.loads(capsys.readouterr().out)["unflushed"][0]["session_id"] == "diary"
    with serving_here(tmp_path / "two", env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        _, added = server.post("memory/add", {"session_id": "d", "messages": [said(CAR)]})
        query = {"user_id": "ana", "query": "where is the car", "evidence": 3}
        query["min_lsn"] = added["data"].get("lsn", 0)
        status, body = server.post("memory/search", query | {"consistency": "strong"})
        assert status == 200 and body["data"]["evidence"][0]["unflushed"] is True
        assert server.post("recall", {"query": "where is the car", "user_id": "ana"})[1]["data"]["items"]


def test_rows_without_their_vector_are_pending(tmp_path):
    """Fresh means found by meaning, too: an answer and the health say how many rows wait for their vector."""
    with cairn.open_blocking(tmp_path, embedding__provider="hashing", background=False) as memory:
        memory.add("diary", [said(CAR)])
        words = memory.search("car", user_id="ana", method="keyword")
        assert words.freshness.state == "fresh" and words.freshness.pending == 0
        early = memory.parts.searcher.search(SearchRequest("car", Scope(Space(), "user", "ana")))
        assert (early.freshness.state, early.freshness.pending) == ("behind", 1)
        assert memory.health()["cascade"]["pending"] == 1 and memory.health()["cascade"]["state"] == "behind"
        assert asked(memory).freshness.state == "fresh" and memory.health()["cascade"]["state"] == "fresh"


def test_open_talk_gets_its_vectors_beside_people_who_ask_by_meaning(tmp_path):
    """It waits for a quiet moment otherwise; its words are found meanwhile."""
    with cairn.open_blocking(tmp_path / "root", embedding__provider="hashing") as memory:
        waiting = memory.parts.indexer.waiting_for_vectors
        with memory.parts.traffic:
            memory.add("diary", [said(CAR)])
            until(lambda: memory.search("car", user_id="ana", method="keyword").unflushed)
            until(lambda: memory.search("car", user_id="ana").freshness.state == "fresh" and not waiting())
        memory.add("diary", [said("The pier closes at dusk.", at=NOW + 1)])
        until(lambda: memory.search("pier", user_id="ana", method="keyword").unflushed)
        until(lambda: not waiting())
