"""Where a stretch of talk ends: size, silence, topic; deterministic and cheap."""

from __future__ import annotations

import random

import pytest

import cairn
from cairn.config import CaptureSettings
from cairn.talk.inbox import Cut, Stretch, estimated_tokens, message_tokens
from cairn.types import ToolCall
from tests.world import said

SEA = [
    "harbor",
    "sail",
    "anchor",
    "tide",
    "wave",
    "gull",
    "captain",
    "rope",
    "mast",
    "keel",
    "deck",
    "storm",
    "island",
    "reef",
    "whale",
]
KITCHEN = [
    "oven",
    "flour",
    "butter",
    "sugar",
    "recipe",
    "knife",
    "onion",
    "garlic",
    "skillet",
    "roast",
    "simmer",
    "whisk",
    "pastry",
    "dough",
    "spice",
]


def talk(vocabulary, count, start=0, seed=1):
    rng = random.Random(seed)
    return [said(" ".join(rng.sample(vocabulary, 6)), start + n) for n in range(count)]


def cuts_of(messages, **settings):
    stretch = Stretch(CaptureSettings(**settings))
    return [cut for n, message in enumerate(messages) for cut in stretch.take(n, message)]


def test_a_change_of_topic_cuts_where_it_happened():
    """E64: two windows of talk that share no words are two stretches; the cut stands between them."""
    assert cuts_of(talk(SEA, 12) + talk(KITCHEN, 12, 12)) == [Cut(12, "topic")]


def test_the_same_topic_is_one_stretch():
    """However long it goes on; and the same messages give the same cuts."""
    assert cuts_of(talk(SEA, 100)) == []
    mixed = talk(SEA, 20) + talk(KITCHEN, 20, 20) + talk(SEA, 20, 40, seed=3)
    assert cuts_of(mixed) == cuts_of(mixed)
    assert [cut.upto for cut in cuts_of(mixed)] == [20, 40]


def test_small_talk_is_no_change_of_topic():
    """Windows with hardly a content word say nothing about the topic."""
    assert (
        cuts_of(
            talk(SEA, 12)
            + [
                said(word, 12 + n)
                for n, word in enumerate(["ok", "yes", "sure", "fine", "ok", "right", "no", "hm"])
            ]
        )
        == []
    )


def test_topic_cuts_can_be_switched_off():
    """`topic_shift = false` leaves size and silence."""
    assert cuts_of(talk(SEA, 12) + talk(KITCHEN, 12, 12), topic_shift=False) == []


def test_what_is_loaded_moves_no_cut(tmp_path):
    """The same talk is cut at the same places in a process that has asked its model and in one that has not."""
    ships = [
        "boat",
        "vessel",
        "marina",
        "ocean",
        "surf",
        "seabird",
        "skipper",
        "cable",
        "pier",
        "hull",
        "ferry",
        "gale",
        "atoll",
    ]
    texts = [message.text for message in talk(SEA, 12) + talk(ships, 12, 12)]
    found = []
    for name in ("asked", "fresh"):
        with cairn.open_blocking(tmp_path / name, background=False) as memory:
            if name == "asked":
                memory.search("warm it up", user_id="ann")
            for n, text in enumerate(texts):
                memory.add(
                    "s1",
                    [
                        {
                            "sender_id": "ann",
                            "role": "user",
                            "timestamp": 1_780_000_000_000 + n,
                            "content": text,
                        }
                    ],
                )
            memory.flush("s1")
            found.append(memory.get("episode", user_id="ann").total_count)
    assert found == [2, 2]


def test_a_gap_counts_in_either_direction_and_can_be_switched_off():
    """E64: silence is measured between neighbours; an older message after a newer one is another stretch too."""
    times = [0, 10, 4000, 4010, 0]
    messages = [said("x", n) for n in times]

    assert cuts_of(messages) == [Cut(2, "gap"), Cut(4, "gap")]
    assert cuts_of(messages, gap_minutes=0) == []


def test_caps_count_from_the_last_cut():
    """E123: after every cut the counts begin anew."""
    assert [c.upto for c in cuts_of([said("x", n) for n in range(10)], max_messages=4)] == [4, 8]
    big = [said("y" * 400, n) for n in range(6)]
    assert [(c.upto, c.reason) for c in cuts_of(big, max_tokens=250)] == [(2, "tokens"), (4, "tokens")]
    assert cuts_of(big, max_tokens=0, max_messages=0) == []


def test_the_default_caps_are_those_of_the_format():
    """E123: 65,536 tokens or 500 messages."""
    assert (CaptureSettings().max_tokens, CaptureSettings().max_messages) == (65_536, 500)
    assert [c.upto for c in cuts_of([said("word", n) for n in range(501)])] == [500]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("four", 1), ("a sentence of about ten tokens in English", 11), ("世界" * 10, 15)],
)
def test_tokens_are_estimated_offline(text, tokens):
    """A quarter of the UTF-8 bytes, rounded up; tool calls count."""
    assert estimated_tokens(text) == tokens
    call = said(text, role="assistant", tool_calls=(ToolCall("c", "name", "x" * 40),))
    assert message_tokens(call) == tokens + 4 + 11
