"""Answers from the files while there is no index."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cairn.index import filters
from cairn.language.words import tokens
from cairn.retrieval.lexical import NoteScan
from cairn.talk.lines import message_to
from cairn.talk.sessions import cell_id, session_locator
from cairn.types import Message, Space
from tests.world import ALICE, BOB, DAY, Indexed, by_words


@pytest.fixture
def world(tmp_path):
    made = Indexed(tmp_path)
    yield made
    made.close()


def test_scan_finds_what_the_index_finds(world):
    """E7, C10: while the index is away the same rows answer, by their words, from the files themselves."""
    ids = [world.episode(f"We talked about topic{n % 3} today", session_id=f"s{n}") for n in range(9)]
    world.episode("We talked about topic1 too", BOB)
    at = session_locator(Space(), "s1")
    cut = {"t": "cut", "cell": cell_id(Space(), "s1", 0, 1), "first": 0, "upto": 1, "day": DAY,
           "owners": [["user", "alice"]]}  # fmt: skip
    said = message_to(Message("alice", "user", 5, "topic1 verbatim"))
    world.journals.append(at, [json.dumps({"t": "add", "n": 0, "messages": [said]}), json.dumps(cut)])
    world.sync()
    scanned = NoteScan(world.storage, world.sessions).of(ALICE)
    assert scanned.troubles == ()
    found = by_words(scanned, ALICE, tokens("topic1"))
    assert sorted(row.entry_id for row in scanned.rows(ALICE, found)) == world.hits("topic1")
    assert len(found) == 4
    assert by_words(scanned, BOB, tokens("topic1")) == [], "P7: a scan answers for one scope"
    chosen = by_words(
        scanned, ALICE, tokens("talked"), where=filters.parse({"session_id": {"in": ["s0", "s2"]}})
    )
    assert sorted(row.entry_id for row in scanned.rows(ALICE, chosen)) == [ids[0], ids[2]]
    warm, cold = world.index.corpus(ALICE), scanned.corpus(ALICE)
    assert len(warm) == len(cold) == 10
    assert sorted(cold.timestamp_ms) == sorted(warm.timestamp_ms)
    assert np.count_nonzero(cold.sender >= 0) == 1
    assert scanned.frequencies(scanned.scope, ["talk", "nowhere"]) == {"talk": 9}


def test_scan_stops_when_its_time_is_up(world):
    """A scan takes a bounded time and says that it is not complete; the newest notes are read first."""
    for day in range(1, 10):
        world.episode(f"day {day}", day=f"2026-06-0{day}")
    scanned = NoteScan(world.storage, world.sessions, seconds=0.0).of(ALICE)
    assert "no time" in scanned.troubles[0]
    assert [row.text for row in scanned.rows(ALICE, range(1, 50))] == ["day 9"]


def test_a_scan_serves_for_a_moment_and_then_looks_again(world):
    """Repeated questions during a rebuild do not read the files each time, and never for long."""
    world.episode("first")
    quick = NoteScan(world.storage, world.sessions, keep_seconds=0.0)
    kept = NoteScan(world.storage, world.sessions, keep_seconds=60.0)
    assert (len(quick.of(ALICE).corpus(ALICE)), len(kept.of(ALICE).corpus(ALICE))) == (1, 1)
    world.episode("second")
    assert (len(quick.of(ALICE).corpus(ALICE)), len(kept.of(ALICE).corpus(ALICE))) == (2, 1)
