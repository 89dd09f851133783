"""Messages as JSON brings them: what is kept, and the named error for everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import Invalid
from cairn.talk import MAX_MESSAGES, foreign, parse_message
from cairn.talk.lines import message_to
from cairn.talk.messages import checked_batch
from cairn.types import ContentItem, Message, ToolCall
from tests.world import MAY_8


def raw(**fields):
    return {"sender_id": "ann", "role": "user", "timestamp": MAY_8, "content": "hello", **fields}


def test_every_field_of_the_shape_is_read():
    """Text or content items, tool calls with their function, and the call a tool answers."""
    assert parse_message(raw(sender_name="Ann")) == Message("ann", "user", MAY_8, "hello", "Ann")
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image", "uri": "x:y", "extras": {"w": [1, None, 2.5]}},
    ]
    assert parse_message(raw(content=parts)).content == (
        ContentItem("text", "see"),
        ContentItem("image", uri="x:y", extras={"w": [1, None, 2.5]}),
    )
    calls = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
    assert parse_message(raw(role="assistant", tool_calls=calls)).tool_calls == (
        ToolCall("c1", "look", "{}"),
    )
    assert parse_message(raw(role="tool", tool_call_id="c1")).tool_call_id == "c1"
    assert parse_message(raw(tool_calls=None, tool_call_id=None, sender_name=None)) == parse_message(raw())


@pytest.mark.parametrize(
    "content", ["", [], "Привет 世界 🦊 \u202eabc é", "x <!-- /entry:ep_1 --> y", "a\nb\r\n\tc", "}" * 100]
)
def test_harmless_oddities_are_kept(content):
    """Empty content, any script, markers and braces are words like others."""
    assert parse_message(raw(content=content)).text == ("" if content == [] else content)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"timestamp": 0}, "not after 1 January 1970"),
        ({"timestamp": -1}, "not after 1 January 1970"),
        ({"timestamp": 10**18}, "beyond the year 9999; as nanoseconds"),
        ({"timestamp": 1_683_554_160_000_000}, "as microseconds it would be 1683554160000"),
        (
            {"timestamp": 1_683_554_160},
            "looks like seconds: send milliseconds since 1970, that is 1683554160000",
        ),
        ({"timestamp": True}, "not true or false"),
        ({"timestamp": "2026-01-01"}, "not a text"),
        ({"timestamp": 1.5e12}, "not a fraction"),
        ({"timestamp": None}, "not null"),
        ({"content": None}, "content must be a text or a list"),
        ({"content": 7}, "content must be a text or a list"),
        ({"content": {"type": "text"}}, "content must be a text or a list"),
        ({"content": "a\0b"}, "NUL character at position 1"),
        ({"content": "x \ud800 y"}, "lone surrogate stands at position 2"),
        ({"content": ["hello"]}, r"content\[0\] must be an object"),
        ({"content": [{"text": "x"}]}, r"content\[0\].type is missing"),
        ({"content": [{"type": "video"}]}, r'type "video" is not one of'),
        ({"content": [{"type": "text", "body": "x"}]}, r'unknown field "body"'),
        ({"content": [{"type": "text", "text": 3}]}, r"content\[0\].text must be a text"),
        ({"content": [{"type": "image", "extras": [1]}]}, "extras must be an object"),
        ({"content": [{"type": "image", "extras": {"a": float("nan")}}]}, "JSON cannot carry"),
        ({"content": [{"type": "image", "extras": {"a": "\0"}}]}, "NUL"),
        ({"role": "system"}, 'role "system" is not a role'),
        ({"role": 1}, "role a number is not a role"),
        ({"role": "tool"}, "tool_call_id is missing"),
        ({"tool_calls": "x"}, "tool_calls must be a list"),
        ({"tool_calls": [{"id": "c"}]}, r"tool_calls\[0\].function must be an object"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, r"tool_calls\[0\].id is missing"),
        ({"tool_calls": [{"id": "c", "function": {"name": "f"}}]}, "function.arguments is missing"),
        (
            {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]},
            "arguments must be a text",
        ),
        ({"sender_id": "../../etc"}, "sender_id"),
        ({"sender_id": ".."}, "sender_id"),
        ({"sender_id": "/tmp/x"}, "sender_id"),
        ({"sender_id": "abc\n"}, "sender_id"),
        ({"sender_id": "алиса"}, "sender_id"),
        ({"sender_id": "a" * 129}, "sender_id"),
        ({"sender_id": ""}, "sender_id"),
        ({"sender_id": "nul"}, "sender_id"),
        ({"sender_id": 5}, "sender_id must be a string"),
        ({"sender_name": "a\n**owner_id**: root"}, "sender_name holds a line break"),
        ({"sender_name": 5}, "sender_name must be a text"),
        ({"sender_name": "n" * 300}, "300 characters"),
        ({"nonsense": 1}, 'unknown field "nonsense"'),
    ],
)
def test_bad_input_gets_a_named_error(fields, complaint):
    """P6: the message names the field, the trouble and, where there is one, the value to send instead."""
    with pytest.raises(Invalid, match=complaint) as caught:
        parse_message(raw(**fields), "messages[1]")
    assert "messages[1]" in str(caught.value)


@pytest.mark.parametrize("missing", ["sender_id", "role", "timestamp", "content"])
def test_a_missing_field_is_named(missing):
    """Each required field is asked for by name."""
    message = raw()
    del message[missing]
    with pytest.raises(Invalid, match=rf"messages\[0\].{missing} is missing"):
        parse_message(message, "messages[0]")


@pytest.mark.parametrize("count", [0, MAX_MESSAGES + 1])
def test_a_call_takes_1_to_500_messages(count):
    """E113: 1 to 500 messages, all or nothing."""
    with pytest.raises(Invalid, match=f"messages holds {count} messages"):
        checked_batch([parse_message(raw())] * count)
    assert len(checked_batch([parse_message(raw())] * MAX_MESSAGES)) == MAX_MESSAGES


@pytest.mark.parametrize("value", [None, "text", {"a": 1}, 7, b"[]"])
def test_messages_must_be_a_list(value):
    """Anything else is refused before it is looked into."""
    with pytest.raises(Invalid, match="messages must be a list"):
        foreign.taken(value, user_id="ana", now_ms=MAY_8)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["sender_id", "role", "timestamp", "content", "tool_calls", "tool_call_id", "sender_name", "x"]
        ),
        _json,
    )
)
def test_any_json_is_a_message_or_a_named_error(fields):
    """Nothing but `Invalid` comes out, and what is accepted survives the log unchanged."""
    try:
        message = parse_message(raw(**fields))
    except Invalid:
        return
    assert parse_message(json.loads(json.dumps(message_to(message), ensure_ascii=False))) == message
