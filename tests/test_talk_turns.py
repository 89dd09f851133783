"""Episodes laid beside their messages: what was said is recognised, whatever it is; what was corrected is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.notes.format import parse_note, render_body, render_entry
from cairn.talk import narrative
from cairn.talk.narrative import corrections_in
from cairn.talk.sessions import corrected
from cairn.types import ContentItem, Message, ToolCall

ZONE = ZoneInfo("Europe/Lisbon")
NOON = int(datetime(2026, 5, 28, 12, tzinfo=UTC).timestamp() * 1000)


def said(*lines: tuple[str, str]) -> list[Message]:
    return [
        Message(who.lower(), "user", NOON + 1000 * n, text, who, id=f"m_0_{n:06d}")
        for n, (who, text) in enumerate(lines)
    ]


def kept(messages: list[Message]) -> str:
    """The Content of the episode of `messages`, as it is read from a note."""
    body = render_body({"writer": "deterministic"}, {"Content": narrative.transcript(messages, ZONE)})
    note = parse_note(f"---\nid: x\n---\n\n{render_entry('ep_20260528_00000001', body)}")
    return note.entries[0].sections["Content"]


TALK = said(
    ("Ann", "I moved to Rome yesterday."),
    ("Bo", "yes"),
    ("Ann", "Two things:\n\nfirst, the cat is called Miso\n\nsecond, yes, I like it"),
    ("Bo", "yes"),
    ("Ann", "[image: a bowl]"),
)

MANY = st.lists(
    st.builds(
        Message,
        sender_id=st.text(
            st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=12
        ),
        role=st.sampled_from(["user", "assistant", "tool"]),
        timestamp=st.integers(NOON, NOON + 3 * 86_400_000),
        content=st.one_of(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80),
            st.lists(
                st.sampled_from(
                    [
                        "I\n\n",
                        "you:",
                        "#",
                        "##",
                        "###",
                        "<!--",
                        "-->",
                        "**",
                        "```",
                        "[x]",
                        "yesterday",
                        "last",
                        "week",
                        "明天",
                        "昨天我买了",
                        "\r\n",
                        "\t",
                        "-",
                        ">",
                        "\\",
                        "\u2028",
                        "\x85",
                    ]
                ),
                max_size=20,
            ).map(" ".join),
        ),
        tool_calls=st.sampled_from([(), (ToolCall("c1", "grep", '{"a": [1],\n\n"b": "[x]"}'),)]),
        tool_call_id=st.sampled_from([None, "c1"]),
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [replace(message, id=f"m_0_{n:06d}") for n, message in enumerate(found)])


@settings(max_examples=300, deadline=None)
@given(MANY)
def test_what_was_said_is_never_taken_for_a_correction(messages: list[Message]):
    """Any words, tools and senders: an episode as it was written corrects none of its messages."""
    assert corrections_in(kept(messages), messages) == {}


def test_long_and_listed_messages_are_recognised():
    """A pasted book and a message made of parts stand in the episode as they were said."""
    book = Message("ann", "user", NOON, "We met last week. " * 20_000, "Ann", id="m_0_000000")
    parts = (ContentItem("text", "look, tomorrow:"), ContentItem("image", "a cat", name="cat.png"))
    shown = Message("ann", "user", NOON, parts, "Ann", id="m_0_000001")
    assert corrections_in(kept([book, shown]), [book, shown]) == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("moved to Rome yesterday.", "moved to Milan yesterday.", {0: "I moved to Milan yesterday."}),
        (" [yesterday: 27 May 2026]", "", {}),
        (" yesterday.", "   yesterday.\n", {}),
        ("Ann: I moved", "Anna: I moved", {}),
        ("called Miso", "called Mochi", {2: TALK[2].text.replace("Miso", "Mochi")}),
        ("Ann: [image: a bowl]", "Ann: [image: a plate]", {4: "[image: a plate]"}),
        ("I like it", "I like it no more", {2: TALK[2].text + " no more"}),
        ("Bo: yes\n\nAnn: Two", "Bo: no\n\nAnn: Two", {1: "no"}),
        ("Bo: yes\n\nAnn: Two", "Ann: Two", {1: None}),
        ("Ann: Two", "Cy: a line of someone's own\n\nAnn: Two", {}),
        ("Bo: yes\n\nAnn: Two things:\n\n", "Ann: Three things:\n\n", {1: None, 2: "Three" + TALK[2].text[3:]}),
    ],
)  # fmt: skip
def test_a_correction_is_laid_to_the_message_it_corrects(old: str, new: str, expected: dict[int, str | None]):
    """A word changed, a line added to, a line taken out, a name or a bracket edited: each to its own message."""
    content = kept(TALK)
    assert content.count(old) == 1
    found = corrections_in(content.replace(old, new), TALK)
    assert found == {TALK[n].id: text for n, text in expected.items()}
    now = corrected(TALK, found)
    assert [m.id for m in now] == [m.id for m in TALK if found.get(m.id, "") is not None]
    assert all(m.text == (found.get(m.id) or TALK[int(m.id[-6:])].text) for m in now)
