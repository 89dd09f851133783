"""Messages of OpenAI, Anthropic and LangChain, as these programs have them, from every way in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

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
            0,
        ),
        (LANGCHAIN, [QUESTION, ("assistant", "assistant", ""), RESULT, ANSWER], 1),
    ],
    ids=["openai chat", "openai responses", "anthropic", "langchain"],
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
