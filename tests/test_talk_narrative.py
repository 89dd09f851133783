"""The deterministic writer: every word kept, dates placed, and something worth reading on top."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import Invalid
from cairn.talk import narrative
from cairn.talk.messages import check_message
from cairn.types import Message, Space
from tests.world import World, said

LOCOMO = os.environ.get("CAIRN_LOCOMO", "")
BERLIN = ZoneInfo("Europe/Berlin")


def test_each_message_is_looked_through_for_times_once(monkeypatch):
    """However many of its sentences are quoted: it may be a book."""
    read, here, real = [], threading.get_ident(), narrative.dates.mentions

    def counted(text, *args, **named):
        if threading.get_ident() == here:
            read.append(text)
        return real(text, *args, **named)

    monkeypatch.setattr(narrative.dates, "mentions", counted)
    book = (
        "We met Dana in Oslo yesterday. Dana builds boats of oak. The harbour froze in March. Ida sells maps."
    )

    told = narrative.told([said(book), said("Tell me more about the boats tomorrow.", 1)], BERLIN)

    assert read == [book, "Tell me more about the boats tomorrow."]
    assert "yesterday (7 May 2023)" in told.summary
    assert "[yesterday: 7 May 2023]" in told.content


def test_an_episode_reads_like_a_note():
    """The whole form: headline with when and who, turns as said, dates in brackets, a day line at midnight."""
    text = narrative.told(
        [
            said("Hey! How are you?", sender_name="Ann"),
            said("I ran a charity race for mental health last Saturday.", 60, who="ben", sender_name="Ben"),
            said("Wow.", 9 * 3600, sender_name="Ann"),
        ],
        BERLIN,
    )

    assert text.subject == "Ben: I ran a charity race for mental health last Saturday (6 May 2023)."
    assert text.summary == "Ann and Ben, 8 May 2023. Ben: I ran a charity race for mental health last Saturday (6 May 2023)."  # fmt: skip
    assert text.content == (
        "On Monday, 8 May 2023, 15:56 to Tuesday, 9 May 2023, 00:56 (Europe/Berlin), Ann and Ben talked:\n\n"
        "Ann: Hey! How are you?\n\n"
        "Ben: I ran a charity race for mental health last Saturday. [last Saturday: 6 May 2023]\n\n"
        "(Tuesday, 9 May 2023)\n\n"
        "Ann: Wow."
    )


def test_the_day_of_a_word_is_the_day_of_its_message():
    """Each relative time is dated by the message it is in, in the display zone, not by the cell."""
    late = int(datetime(2023, 5, 8, 23, 30, tzinfo=UTC).timestamp() * 1000)

    text = narrative.told([said("I came today.", at=late)], BERLIN)

    assert "[today: 9 May 2023]" in text.content


def test_silence_has_an_episode_too():
    """Empty content is no crash: subject and content still say who."""
    text = narrative.told([said("")], BERLIN)

    assert text.subject == "A few words from ann"
    assert "ann: (nothing said)" in text.content


def test_a_crowd_is_listed_short():
    """Twenty speakers do not fill the headline."""
    text = narrative.told([said(f"I am guest number {n}.", n, who=f"guest{n}") for n in range(20)], BERLIN)

    assert "guest5 and 14 others talked" in text.content


def test_summary_and_subject_stay_small_whatever_is_said():
    """A megabyte without a full stop, or a thousand sentences: the summary is bounded, the content whole."""
    for long in ("word " * 200_000, "A sentence about lanterns and harbors. " * 20_000, "字" * 300_000):
        text = narrative.told([said(long)], BERLIN)
        assert len(text.subject) <= narrative.SUBJECT_CHARS
        assert len(text.summary) < 1500
        assert long.strip() in text.content


@given(st.lists(st.text(max_size=200), min_size=1, max_size=6))
def test_every_turn_is_found_verbatim(texts):
    """Whatever is said, the content holds it as it was said."""
    messages = []
    for n, text in enumerate(texts):
        message = said(text, n)
        try:
            check_message(message)
        except Invalid:
            continue
        messages.append(message)
    if messages:
        told = narrative.told(messages, BERLIN)
        assert all(message.text in told.content for message in messages)
        assert told.subject
        assert "\n" not in told.subject


def locomo_sessions():
    for sample in json.loads(Path(LOCOMO).read_text()):
        talk = sample["conversation"]
        for n in range(1, 100):
            if f"session_{n}" not in talk:
                continue
            at = datetime.strptime(talk[f"session_{n}_date_time"], "%I:%M %p on %d %B, %Y").replace(
                tzinfo=UTC
            )
            start = int(at.timestamp() * 1000)
            turns = [
                Message(turn["speaker"], "user", start + k * 1000, turn["text"], turn["speaker"])
                for k, turn in enumerate(talk[f"session_{n}"])
            ]
            yield f"{sample['sample_id']}-{n}", turns, at


@pytest.mark.skipif(not LOCOMO, reason="set CAIRN_LOCOMO to the path of the LoCoMo conversations")
def test_every_locomo_turn_is_found_and_dated(tmp_path):
    """Every session ingests; every turn's words are in some episode of each speaker; relative times have dates."""
    kit = World(tmp_path)
    turns = dated = sessions = 0
    for session, messages, at in locomo_sessions():
        space = Space("locomo", session.split("-")[0] + session.split("-")[1])
        kit.capture.add(space, session, messages)
        kit.capture.flush(space, session)
        sessions += 1
        found: dict[str, list[str]] = {}
        for locator in kit.notebook.notes(space, "episode"):
            for entry in kit.notebook.read(locator).entries:
                if entry.inline["session_id"] == session:
                    found.setdefault(entry.inline["owner_id"], []).append(entry.sections["Content"])
                    assert locator.key.endswith(f"episode-{at.date()}.md")
        for message in messages:
            turns += 1
            for owner in {m.sender_id for m in messages}:
                assert any(" ".join(message.text.split()) in " ".join(text.split()) for text in found[owner])
            if "yesterday" in message.text.lower():
                dated += 1
                day = narrative.dates.shown(*[(narrative.said_at(message.timestamp, ZoneInfo("UTC")) - narrative.timedelta(days=1)).date()] * 2)  # fmt: skip
                assert any(
                    f"yesterday: {day}" in text.lower().replace(day.lower(), day)
                    for text in found[message.sender_id]
                )
    assert sessions > 90
    assert turns > 1000
    assert dated > 20
