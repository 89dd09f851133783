"""Memories, episodes and messages are ranked together by one scale: what shares a word is not above what answers."""

import cairn
from tests.surfaces.served import serving_here

START = 1_780_000_000_000
HOME = {"embedding__provider": "none", "background": False}
# Everybody speaks of deploys, and the one that answers says little else of the question; two memories share a word with it.
TALK = [f"Deploy {n} of the shop went through, the team had cake number {n}." for n in range(12)]
ANSWER = "The deploy of the shop stopped: the certificate had run out."
LONG = "We read every log that anybody had kept, and went from host to host until late, and then " + ANSWER
MEMORIES = ["Every deploy is announced in the channel.", "Cake is bought at the corner."]
QUERY = "why did the deploy of the shop stop overnight"


def said(text, n):
    return {"sender_id": "alice", "role": "user", "timestamp": START + 60_000 * n, "content": text}


def test_a_memory_that_shares_a_word_is_below_the_talk_that_answers(tmp_path):
    """`find`, `recall` and the server's `find` put both episodes that answer before a memory that shares one word."""
    with cairn.open_blocking(tmp_path, **HOME) as memory:
        memory.add("usual", [said(text, n) for n, text in enumerate(TALK)])
        memory.add("short", [said(ANSWER, 100)])
        memory.add("long", [said(LONG, 200)])
        for session in ("usual", "short", "long"):
            memory.flush(session)
        for text in MEMORIES:
            assert memory.remember(text, scope="project").accepted
        found = memory.find(QUERY)["hits"]
        assert [one["kind"] for one in found][:2] == ["episode", "episode"]
        assert {one["session_id"] for one in found[:2]} == {"short", "long"}
        [shared] = [one for one in found if one["kind"] == "memory"]
        assert all(one["score"] >= shared["score"] for one in found if one["kind"] == "episode"), (
            "the same one word counts the same in a scope of two memories and in one of many messages"
        )
        one_word = memory.find("which deploy wobbled", limit=3)["hits"]
        assert one_word[0]["kind"] == "episode", "alike in words, the talk is not behind the memory"
        told = memory.recall(QUERY, user_id="alice")
        assert {item.kind for item in told.items[:2]} <= {"episode", "message"}
        assert [item.score for item in told.items] == sorted((i.score for i in told.items), reverse=True)
    with serving_here(tmp_path, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        status, body = server.post("find", {"query": QUERY})
        assert status == 200
        served = body["data"]["hits"]
        assert {one["session_id"] for one in served[:2]} == {"short", "long"}
        assert [one["score"] for one in served] == sorted((one["score"] for one in served), reverse=True)
