"""Messages of OpenAI, Anthropic, Gemini, LangChain and others, as these programs have them, from every way in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn.errors import Invalid
from cairn.memory import Memory
from cairn.surfaces.cli import main

OPENAI_CHAT = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "What is the weather in Lisbon?", "name": "Ann"},
    {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    {"role": "assistant", "content": "21 degrees.", "refusal": None},
    {"role": "assistant", "content": None, "refusal": "I cannot do that."},
]
OPENAI_RESPONSES = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "What is the weather in Lisbon?"}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city": "Lisbon"}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "21 degrees"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "21 degrees.", "annotations": []}],
    },
]
ANTHROPIC = [
    {"role": "user", "content": "What is the weather in Lisbon?"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 3},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Lisbon"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "call_1",
                "content": [{"type": "text", "text": "21 degrees"}],
            },
            {"type": "text", "text": "And tomorrow?"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Rain.", "citations": None}]},
]
LANGCHAIN = [
    {"type": "system", "content": "You are helpful."},
    {
        "type": "human",
        "content": "What is the weather in Lisbon?",
        "additional_kwargs": {},
        "response_metadata": {},
        "id": "1",
    },
    {
        "type": "ai",
        "content": "",
        "tool_calls": [{"name": "weather", "args": {"city": "Lisbon"}, "id": "call_1", "type": "tool_call"}],
        "invalid_tool_calls": [],
        "usage_metadata": None,
    },
    {
        "type": "tool",
        "content": "21 degrees",
        "tool_call_id": "call_1",
        "status": "success",
        "name": "weather",
    },
    {"type": "ai", "data": {"content": "21 degrees.", "type": "ai"}},
]


AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
GEMINI = [
    {"role": "user", "parts": [{"text": "What is the weather in Lisbon?"}]},
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "Let me look.", "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "Lisbon"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "call_1", "name": "weather", "response": {"result": "21 degrees"}}}
        ],
    },
    {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "21 degrees."}]}, "finishReason": "STOP"}
        ]
    },
]
BEDROCK = [
    {"role": "user", "content": [{"text": "What is the weather in Lisbon?"}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm"}}},
            {"text": "Let me look."},
            {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Lisbon"}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "call_1", "content": [{"text": "21 degrees"}], "status": "success"}}
        ],
    },
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "21 degrees."}]}},
        "stopReason": "end_turn",
    },
]
VERCEL = [
    {"role": "user", "content": [{"type": "text", "text": "What is the weather in Lisbon?"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool-call", "toolCallId": "call_1", "toolName": "weather", "input": {"city": "Lisbon"}},
        ],
    },
    {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "call_1",
                "toolName": "weather",
                "output": {"type": "text", "value": "21 degrees"},
            }
        ],
    },
    {"role": "assistant", "parts": [{"type": "text", "text": "21 degrees."}]},
]


@pytest.fixture
def memory(tmp_path: Path):
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        yield opened


def told(memory: Memory, session: str) -> list[tuple[str, str, str]]:
    return [(one.sender_id, one.role, one.text) for one in memory.unprocessed(session)]


QUESTION = ("ann", "user", "What is the weather in Lisbon?")
RESULT = ("assistant", "tool", "21 degrees")
ANSWER = ("assistant", "assistant", "21 degrees.")


@pytest.mark.parametrize(
    ("form", "expected", "left_out"),
    [
        (
            OPENAI_CHAT,
            [
                QUESTION,
                ("assistant", "assistant", ""),
                RESULT,
                ANSWER,
                ("assistant", "assistant", "I cannot do that."),
            ],
            1,
        ),
        (OPENAI_RESPONSES, [QUESTION, ("assistant", "assistant", ""), RESULT, ANSWER], 2),
        (
            ANTHROPIC,
            [
                QUESTION,
                ("assistant", "assistant", "Let me look."),
                RESULT,
                ("ann", "user", "And tomorrow?"),
                ("assistant", "assistant", "Rain."),
            ],
            1,
        ),
        (GEMINI, [QUESTION, ("assistant", "assistant", "Let me look."), RESULT, ANSWER], 1),
        (BEDROCK, [QUESTION, ("assistant", "assistant", "Let me look."), RESULT, ANSWER], 1),
        (VERCEL, [QUESTION, ("assistant", "assistant", "Let me look."), RESULT, ANSWER], 0),
        (LANGCHAIN, [QUESTION, ("assistant", "assistant", ""), RESULT, ANSWER], 1),
    ],
    ids=["openai chat", "openai responses", "anthropic", "gemini", "bedrock", "vercel", "langchain"],
)
def test_a_conversation_is_taken_as_it_is(memory: Memory, form, expected, left_out) -> None:
    """Without a sender or a time on any message: the user is who the call names, order is kept, calls keep their ids."""
    outcome = memory.add("s1", form, user_id="ann", mode="chat", defer_extraction=True)
    assert told(memory, "s1") == expected and len(outcome.skipped) == left_out
    kept = memory.unprocessed("s1")
    assert [one.timestamp for one in kept] == sorted({one.timestamp for one in kept})
    (call,) = [call for one in kept for call in one.tool_calls]
    assert (call.id, call.name, "Lisbon" in call.arguments) == ("call_1", "weather", True)
    assert [one.tool_call_id for one in kept if one.role == "tool"] == ["call_1"]


def call(number: str | None, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rows": [1, Decimal("2.5")]}, '{"rows": [1, "2.5"]}'),
        ([{"row": 1}, {"row": 2}], '[{"row": 1}, {"row": 2}]'),
        (42, "42"),
        (None, ""),
        ({"at": datetime(2026, 5, 1, tzinfo=UTC)}, '{"at": "2026-05-01 00:00:00+00:00"}'),
        ({1: "a", (2, 3): "b"}, "{1: 'a', (2, 3): 'b'}"),
        (["a", {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "web_search_result", "title": "Tides", "url": "https://t.example", "encrypted_content": "x"}],
         "Tides (https://t.example)"),
        ([{"type": "bash_output", "stdout": "2", "encrypted_content": "x"}], '{"type": "bash_output", "stdout": "2"}'),
    ],
)  # fmt: skip
def test_a_tool_may_give_back_anything(memory: Memory, given, expected: str) -> None:
    """Whatever JSON can carry is kept as its text, in OpenAI's form, in Anthropic's and in that of the responses alike."""
    memory.add(
        "s1",
        [
            {"role": "tool", "tool_call_id": "c1", "content": given},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": given}]},
            {"type": "function_call_output", "call_id": "c1", "output": given},
        ],
        user_id="ann",
        defer_extraction=True,
    )
    assert told(memory, "s1") == [("assistant", "tool", expected)] * 3
    assert {one.tool_call_id for one in memory.unprocessed("s1")} == {"c1"}


def test_a_failed_tool_says_so_and_its_picture_is_kept(memory: Memory) -> None:
    """That a call failed is a flag in these programs and a word here; a picture in a result stays one."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no such city"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": "TypeError: no such city"},
        {"type": "tool_result", "tool_use_id": "c3", "content": [{"type": "text", "text": "See."}, picture]},
    ]
    said = [
        {"role": "user", "sender_id": "bob", "content": results},
        {"type": "tool", "content": "timed out", "status": "error", "tool_call_id": "c4"},
    ]
    memory.add("s1", said, user_id="ann", defer_extraction=True)
    assert [text for _, _, text in told(memory, "s1")] == [
        "Error: no such city",
        "TypeError: no such city",
        "See.\n[image: png]",
        "Error: timed out",
    ]
    assert {who for who, _, _ in told(memory, "s1")} == {"assistant"}, "a tool's words are not the user's"
    assert memory.unprocessed("s1")[2].content[1].base64 == "aGk="


def test_calls_without_ids_older_calls_and_broken_ones_are_kept(memory: Memory) -> None:
    """Ollama names no ids and gives arguments as an object, OpenAI's older form has one call, LangChain lists broken calls apart."""
    said = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"c": 1}}}],
        },
        {"role": "tool", "tool_name": "weather", "content": "21"},
        {"role": "assistant", "content": None, "function_call": {"name": "tide", "arguments": "{}"}},
        {"role": "function", "name": "tide", "content": "high"},
        {
            "type": "ai",
            "content": "",
            "invalid_tool_calls": [{"name": "moon", "args": "{bad", "id": "c9", "error": "e"}],
        },
        {"role": "assistant", "tool_calls": [call("c1", "one", {}), call("c2", "two", "{}")]},
    ]
    memory.add("s1", said, user_id="ann", defer_extraction=True)
    kept = memory.unprocessed("s1")
    assert [(c.id, c.name, c.arguments) for one in kept for c in one.tool_calls] == [
        ("weather", "weather", '{"c": 1}'),
        ("tide", "tide", "{}"),
        ("c9", "moon", "{bad"),
        ("c1", "one", "{}"),
        ("c2", "two", "{}"),
    ]
    assert [one.tool_call_id for one in kept if one.role == "tool"] == ["weather", "tide"]


def test_what_a_server_did_within_one_answer_stays_in_its_order(memory: Memory) -> None:
    """Words, a call, its result and more words of one message become messages in that order."""
    content = [
        {"type": "text", "text": "Searching."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tides"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{"type": "text", "text": "High at nine."}],
        },
        {"type": "text", "text": "High tide is at nine.", "citations": [{"cited_text": "High"}]},
    ]
    memory.add("s1", [{"role": "assistant", "content": content}], defer_extraction=True)
    assert [(role, text) for _, role, text in told(memory, "s1")] == [
        ("assistant", "Searching."),
        ("tool", "High at nine."),
        ("assistant", "High tide is at nine."),
    ]


def test_a_block_that_is_not_known_costs_itself_alone(memory: Memory) -> None:
    """What comes new into these programs keeps its words; without any it is left out, and that is said."""
    content = [
        {"type": "text", "text": "Look at this.", "something_new": {"a": 1}},
        {"type": "video_url", "video_url": {"url": "https://v.example/boat.mp4"}},
        {"type": "hologram", "caption": "a boat in the air"},
        {"type": "hologram", "points": [1, 2]},
        {"type": "thinking", "thinking": "hm"},
    ]
    outcome = memory.add("s1", [{"role": "user", "content": content}], user_id="ann", defer_extraction=True)
    assert told(memory, "s1") == [
        ("ann", "user", "Look at this.\n[doc: https://v.example/boat.mp4]\na boat in the air")
    ]
    assert outcome.skipped == (
        "messages[0].content[3] is hologram, of which nothing can be kept",
        "messages[0].content[4] is thinking, which nobody said",
    )


def test_spoken_answers_and_empty_ones(memory: Memory) -> None:
    """An answer as sound is kept with its transcript; one that says and calls nothing is left out, and that is said."""
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "audio": {"data": "aGk=", "transcript": "Hello there."}},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": []},
    ]
    outcome = memory.add("s1", said, user_id="ann", defer_extraction=True)
    assert [text for _, _, text in told(memory, "s1")] == ["hi", "[audio: Hello there.]"]
    assert outcome.skipped == tuple(f"messages[{n}] has no words and calls no tool" for n in (2, 3, 4))


@pytest.mark.parametrize(
    "given",
    [
        datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        "2026-05-01T12:00:00Z",
        "2026-05-01T14:00:00.000+02:00",
        1777636800000.0,
    ],
)
def test_a_time_is_taken_in_every_form_that_names_one_moment(memory: Memory, given) -> None:
    """A datetime, ISO 8601 and milliseconds; each of these says the same."""
    memory.add(
        "s1", [{"role": "user", "content": "x", "timestamp": given}], user_id="ann", defer_extraction=True
    )
    assert memory.unprocessed("s1")[0].timestamp == 1777636800000


def test_names_times_and_pictures_come_along(memory: Memory) -> None:
    """`name` is the sender's name, a datetime is a time, an image is kept by its address or its bytes, with its words."""
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    inline = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    captioned = {
        **picture,
        "image_url": {"url": "https://example.org/dog.png", "alt_text": "a dog on a quay"},
    }
    spoken = {
        "type": "input_audio",
        "input_audio": {"data": "aGk=", "format": "wav"},
        "transcript": "Hello there.",
    }
    content = [{"type": "text", "text": "My cat."}, picture, inline, captioned, spoken]
    memory.add(
        "s1", [{"role": "user", "name": "Ann", "timestamp": at, "content": content}], defer_extraction=True
    )
    (one,) = memory.unprocessed("s1")
    assert (one.sender_id, one.sender_name, one.timestamp) == ("me", "Ann", int(at.timestamp() * 1000))
    assert [(item.type, item.text, item.uri, item.base64, item.ext) for item in one.content] == [
        ("text", "My cat.", None, None, None),
        ("image", None, "https://example.org/cat.png", None, None),
        ("image", None, None, "aGk=", "png"),
        ("image", "a dog on a quay", "https://example.org/dog.png", None, None),
        ("audio", "Hello there.", None, "aGk=", "wav"),
    ]
    assert "[image: a dog on a quay]" in one.text and "[audio: Hello there.]" in one.text


def test_a_call_with_a_key_is_kept_once_though_we_dated_it(memory: Memory) -> None:
    """A loop that tries again sends no times; other words under the same key are still refused."""
    said = [{"role": "user", "content": "I moved to Lisbon."}]
    for _ in range(3):
        memory.add("s1", said, user_id="ann", idempotency_key="turn-1", defer_extraction=True)
    assert len(memory.unprocessed("s1")) == 1
    with pytest.raises(Invalid, match="was used for other messages"):
        memory.add(
            "s1", [{"role": "user", "content": "I moved to Porto."}], user_id="ann", idempotency_key="turn-1"
        )


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "user", "content": None}, r"messages\[0\].content must be a text"),
        ({"role": "user", "content": "x", "nonsense": 1}, 'unknown field "nonsense"'),
        ({"role": "robot", "content": "x"}, 'role "robot" is not a role'),
        ({"type": "robot", "content": "x"}, 'role "robot" is not a role'),
        ({"content": "x"}, "role is missing"),
        ({"role": "system", "content": "x"}, "nothing to add: messages.0. has role system"),
        ({"role": "tool", "content": "x"}, "tool_call_id is missing"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]},
            "id must be a text",
        ),
        ({"role": "user", "content": [{"type": "video_url"}]}, 'type "video_url" is not one of'),
        ({"role": "user", "content": [{"type": "hologram"}]}, "nothing to add: .* is hologram, of which"),
        ({"role": "user", "content": [{"type": "text", "body": "x"}]}, 'unknown field "body"'),
        (
            {"role": "user", "content": "x", "timestamp": AT.replace(tzinfo=None)},
            "timestamp .* names no zone",
        ),
        ({"role": "user", "content": "x", "timestamp": "2026-05-01"}, "timestamp .* names no zone"),
        ({"role": "user", "content": "x", "timestamp": "soon"}, "timestamp .* not a text: int.time"),
        ({"role": "user", "content": "x", "timestamp": 1777636800.5}, "not a fraction: int.time"),
        ({"role": "user", "content": "x", "metadata": {"due": AT}}, "metadata.due holds datetime"),
        ("hello", "must be an object"),
        (7, "must be an object"),
    ],
)
def test_what_is_really_wrong_is_still_named(memory: Memory, message, complaint: str) -> None:
    """Other programs' forms are known ones; everything else is refused as before, and nothing is kept."""
    with pytest.raises(Invalid, match=complaint):
        memory.add("s1", [message], user_id="ann")
    assert memory.unprocessed("s1") == []


def test_a_programs_own_classes_are_taken_too(memory: Memory) -> None:
    """What such a program returns can be handed on: anything with `model_dump`, as pydantic's classes have it."""
    from pydantic import BaseModel

    class AIMessage(BaseModel):
        type: str = "ai"
        content: str = "21 degrees."
        id: str | None = None

    memory.add("s1", [{"role": "user", "content": "Hm?"}, AIMessage()], user_id="ann", defer_extraction=True)
    assert told(memory, "s1")[-1] == ANSWER

    class Function(BaseModel):
        name: str = "weather"
        arguments: str = '{"city": "Lisbon"}'

    class Call(BaseModel):
        id: str = "call_1"
        type: str = "function"
        function: Function = Function()

    class Answer(BaseModel):
        """As OpenAI's client gives one back that calls a tool: without words, with fields that came new."""

        role: str = "assistant"
        content: str | None = None
        tool_calls: list[Call] | None = [Call()]
        something_new: str = "x"

    class Block(BaseModel):
        type: str
        text: str | None = None
        id: str | None = None
        name: str | None = None
        input: dict[str, Any] | None = None

    @dataclass
    class Said:
        role: str
        content: str

    blocks = [
        Block(type="text", text="Let me look."),
        Block(type="tool_use", id="call_1", name="weather", input={"city": "Lisbon"}),
    ]
    whole = {"choices": [{"index": 0, "finish_reason": "stop", "message": Answer()}], "created": 1}
    for number, turn in enumerate(
        [Answer(), {"role": "assistant", "content": None, "tool_calls": [Call()]}, whole, {"role": "assistant", "content": blocks}]
    ):  # fmt: skip
        memory.add(f"n{number}", [Said("user", "Hm?"), turn], user_id="ann", defer_extraction=True)
        asked, answered = memory.unprocessed(f"n{number}")
        assert (asked.sender_id, asked.text) == ("ann", "Hm?")
        assert [(one.id, "Lisbon" in one.arguments) for one in answered.tool_calls] == [("call_1", True)]
    memory.add("pairs", [("human", "Hm?"), ("ai", "21 degrees.")], user_id="ann", defer_extraction=True)
    assert told(memory, "pairs")[-1] == ANSWER


def test_a_file_of_such_messages_goes_in_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same array, as it lies there; what is left out is said."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(OPENAI_CHAT))
    root = ["--root", str(tmp_path / "root")]
    assert main([*root, "add", "--session", "s1", "--user", "ann", "--defer", "--file", str(file)]) == 0
    said = capsys.readouterr().out
    assert "5 messages kept" in said and "role system" in said
    assert main([*root, "add", "--session", "s1", "--user", "ann", "--defer", "And tomorrow?"]) == 0
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        assert told(opened, "s1")[0] == QUESTION and told(opened, "s1")[-1] == (
            "ann",
            "user",
            "And tomorrow?",
        )


def deep(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = {"type": "document", "content": [inner]}
    return inner


@pytest.mark.parametrize(
    ("one", "named"),
    [
        ({"role": "assistant", "content": "x", "invalid_tool_calls": 5}, "messages[1].invalid_tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": ["x"], "content": [{"type": "tool_use", "id": "c", "name": "f"}]},
         "tool_calls[1] must be an object"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [deep(600, "x")]}]},
         "messages[1] is nested too deeply"),
        ({"role": "tool", "tool_call_id": "c", "content": deep(3000, "x")}, "messages[1] is nested too deeply"),
        ({"role": "user", "content": b"words"}, "messages[1].content must be a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_and_nothing_is_written(memory: Memory, one, named: str) -> None:
    """Calls that are no list or no objects, blocks without end, bytes for words: a refusal of the whole call, by the field."""
    with pytest.raises(Invalid) as refused:
        memory.add("s1", [{"role": "user", "content": "Hm?"}, one], user_id="ann")
    assert named in str(refused.value) and memory.unprocessed("s1") == []


def test_words_in_two_places_of_a_message_are_both_kept_or_named(memory: Memory) -> None:
    """A refusal beside words is said after them; words in parts count where the content is empty, else they are named."""
    said = [
        {"role": "assistant", "content": "Well.", "refusal": "I cannot do that."},
        {"role": "user", "content": "", "parts": [{"type": "text", "text": "Why?"}]},
        {"role": "user", "content": "Hm.", "parts": [{"type": "text", "text": "Why not?"}]},
    ]
    outcome = memory.add("s1", said, user_id="ann", defer_extraction=True)
    assert [text for _, _, text in told(memory, "s1")] == ["Well.\nI cannot do that.", "Why?", "Hm."]
    assert outcome.skipped == ("messages[2].parts stands beside content, which was taken",)


def test_a_file_of_lines_is_parted_at_line_feeds_alone(tmp_path: Path) -> None:
    """U+2028 and U+0085 may stand within a line of JSON, CR LF at its end, and a byte order mark before the first."""
    lines = [{"role": "user", "content": "a\u2028b"}, {"role": "user", "content": "c\x85d"}]
    file = tmp_path / "chat.jsonl"
    file.write_bytes(
        ("\ufeff" + "".join(json.dumps(one, ensure_ascii=False) + "\r\n" for one in lines)).encode()
    )
    assert (
        main(["--root", str(tmp_path / "root"), "add", "--session", "s1", "--defer", "--file", str(file)])
        == 0
    )
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        assert [one.text for one in opened.unprocessed("s1")] == ["a\u2028b", "c\x85d"]
