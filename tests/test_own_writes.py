"""Whoever wrote something and asks next finds it: the first thing that everybody tries."""

import pytest

import cairn
from cairn.retrieval import waits
from tests.waiting import LONG, until

NOW = 1_780_000_000_000
BERTHS = ("The ferry", "The tug", "The pilot boat", "The dredger", "The lightship", "The barge")


def said(text, at=NOW):
    return {"sender_id": "ana", "role": "user", "timestamp": at, "content": text}


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A memory as a program or a server keeps it, on a machine where a moment is always enough."""
    for moment in ("_MOMENT_SECONDS", "_LOADING_SECONDS"):
        monkeypatch.setattr(waits, moment, LONG)
    with cairn.open_blocking(tmp_path, embedding__provider="hashing") as opened:
        yield opened


def test_what_was_written_is_in_the_answer_to_the_next_question(memory):
    """Talk that goes on, an episode, a memory and its correction, by words and by meaning, in answers and in lists."""
    for number, ship in enumerate(BERTHS):
        words = f"{ship} lies at berth {number}."
        memory.add("port", [said(words, NOW + number)])
        assert [one.text for one in memory.search(f"where is {ship}", user_id="ana", top_k=1).unflushed] == [
            words
        ]
        assert words in memory.recall(f"at which berth is {ship}", user_id="ana").prompt
        memory.flush("port")
        found = memory.search(f"where is {ship}", user_id="ana", evidence=1)
        assert [one.text for one in found.evidence] == [words] and found.freshness.notes == ()
        assert memory.get("episode", user_id="ana").total_count == number + 1
        assert memory.timeline(scope="user", owner="ana", kind="episode")["total"] == number + 1
        kept = memory.remember(f"{ship} pays its dues in month {number}.", "fact").memory_id
        assert kept in [hit.id for hit in memory.memories.search(f"{ship} dues").memories]
        memory.memories.edit(kept, content=f"{ship} pays its dues in week {number}.")
        assert f"week {number}" in " ".join(
            hit.text for hit in memory.memories.search(f"{ship} dues").memories
        )


def test_what_nobody_was_told_of_is_not_waited_for(memory):
    """A question would wait for each note of the strategies otherwise, one after the other."""
    memory.add("port", [said("My sister Berta moved to Lisbon.")])
    memory.flush("port")
    written = memory.parts.traffic.written
    until(lambda: memory.get("atomic_fact", user_id="ana", consistency="strong").total_count)
    assert written and memory.parts.traffic.written == written


def test_a_question_does_not_wait_for_an_index_that_does_not_move(tmp_path):
    """Another process holds the index and does nothing: the answer comes, and says what is pending."""
    with (
        cairn.open_blocking(tmp_path, embedding__provider="hashing", background=False) as other,
        other.parts.indexer.lease() as held,
        cairn.open_blocking(tmp_path, embedding__provider="hashing") as memory,
    ):
        assert held
        memory.remember("The ferry lies at berth 4.", "fact")
        found = memory.memories.search("ferry")
        assert found.freshness.pending == 1 and found.freshness.state != "fresh"


def test_who_was_waited_for_least_lately_is_forgotten_first(memory, monkeypatch):
    """What was waited for is remembered for so many owners, and never dropped for all at once."""
    monkeypatch.setattr(waits, "_MOST_REMEMBERED", 2)
    for owner in ("ana", "bert", "cleo"):
        memory.add("port", [{**said("The ferry lies at berth 4."), "sender_id": owner}])
        memory.search("where is the ferry", user_id=owner)
    known = {within[0].split("/")[3] for within, _ in memory.parts.waits._waited}
    assert known == {"cleo"}, "two of hers: for rows and for vectors"
