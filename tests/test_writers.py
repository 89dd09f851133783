"""The chat client against a real, scripted HTTP endpoint: ladder, repair, retries, budgets."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cairn.config import LlmSettings
from cairn.engines import answers
from cairn.engines.journals import FileJournals
from cairn.engines.spending import LEDGER, Spending
from cairn.engines.writers import OpenAIWriter, _seconds_of
from cairn.errors import Invalid, Misconfigured, Unavailable
from tests.fake_model import MISBEHAVIOURS, FakeModel
from tests.waiting import LONG

SCHEMA = {
    "type": "object",
    "properties": {"subject": {"type": "string"}, "summary": {"type": "string"}},
    "required": ["subject", "summary"],
    "additionalProperties": False,
}


class Day:
    """A clock that can be moved to another day."""

    def __init__(self):
        self.at = datetime(2026, 6, 1, 12, tzinfo=UTC)

    def now(self):
        return self.at


def writer(model, spending=None, **settings):
    return OpenAIWriter(
        LlmSettings(base_url=model.url, model="fake", **{"timeout_seconds": LONG, **settings}), spending
    )


def ask(which, prompt="the words"):
    return which.complete("You summarise.", prompt, SCHEMA, purpose="episode mc_1")


@pytest.mark.parametrize(
    "behaviour",
    ["good", "fenced", "thinking", "late-thinking", "braces", "no-usage", "no-schema", "no-strict"],
)
def test_an_answer_is_read_however_it_is_wrapped(behaviour):
    """Thoughts, fences, small talk and stray braces around the JSON do not matter."""
    with FakeModel(always=behaviour) as model:
        assert ask(writer(model)).value == {"subject": "the words", "summary": "the words"}


def test_the_request_is_what_the_protocol_says():
    """POST {base}/chat/completions with a strict schema, the key as a bearer token, and no sampling knobs."""
    with FakeModel() as model:
        ask(writer(model, api_key="sk-123"))

        [body] = model.requests
        assert model.paths == ["/v1/chat/completions"]
        assert model.headers[0]["Authorization"] == "Bearer sk-123"
        assert [turn["role"] for turn in body["messages"]] == ["system", "user"]
        forced = body["response_format"]
        assert forced["type"] == "json_schema"
        assert forced["json_schema"]["strict"] is True
        assert forced["json_schema"]["schema"]["required"] == ["subject", "summary"]
        assert set(body) == {"model", "messages", "stream", "response_format"}


@pytest.mark.parametrize(("behaviour", "rung"), [("no-strict", "json_object"), ("no-schema", None)])
def test_a_refused_way_of_asking_is_remembered(behaviour, rung):
    """json_schema, then json_object, then the prompt alone; what was refused once is not tried again."""
    with FakeModel(always=behaviour) as model:
        client = writer(model)
        ask(client)
        before = len(model.requests)
        ask(client)

        assert model.requests[-1].get("response_format", {}).get("type") == rung
        assert len(model.requests) == before + 1


def test_an_unusable_answer_is_sent_back_once():
    """One repair round carries the reason; the second answer counts."""
    with FakeModel(["wrong-shape"]) as model:
        assert ask(writer(model)).value["subject"] == "the words"

        repair = model.requests[1]["messages"]
        assert [turn["role"] for turn in repair] == ["system", "user", "assistant", "user"]
        assert "the answer.subject is not a string" in repair[-1]["content"]


def test_a_busy_server_is_asked_again():
    """429 and 5xx and a dropped line are retried within the attempts."""
    with FakeModel(["429", "500"]) as model:
        assert ask(writer(model)).prompt_tokens == 100
        assert len(model.requests) == 3
    with FakeModel(["disconnect"]) as model:
        assert ask(writer(model)).value


@pytest.mark.parametrize("behaviour", [b for b in MISBEHAVIOURS if b not in {"nul", "empty-fields"}])
def test_whatever_the_endpoint_does_the_error_is_named_and_in_time(behaviour):
    """Garbage, refusals, hangs, drips and errors: always `Unavailable`.

    What hangs or drips does so until the test is over: it is the writer's time budget that ends it.
    """
    with FakeModel(always=behaviour) as model:
        with pytest.raises(Unavailable):
            ask(writer(model, timeout_seconds=0.6, max_attempts=2))


def test_a_server_that_is_not_there_is_unavailable():
    """A closed port is an answer, not a crash."""
    with FakeModel() as model:
        gone = writer(model, max_attempts=1)
    with pytest.raises(Unavailable, match="does not answer"):
        ask(gone)


def test_errors_do_not_show_the_key():
    """The key is in no message."""
    with FakeModel(always="401") as model, pytest.raises(Unavailable) as caught:
        ask(writer(model, api_key="sk-very-secret"))
    assert "sk-very-secret" not in repr(caught.value) + str(caught.value.facts)


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "ftp://x"},
        {"base_url": "http://"},
        {"model": ""},
        {"base_url": "http://h:99999"},
        {"api_key": "a\nb"},
    ],
)
def test_unusable_settings_are_refused_by_name(settings):
    """Misconfigured at the start, not at the first call."""
    with pytest.raises(Misconfigured, match=r"\[llm\]"):
        OpenAIWriter(LlmSettings(**{"base_url": "http://localhost:1/v1", "model": "m", **settings}))


def test_tokens_are_booked_per_call_and_purpose(tmp_path):
    """A ledger line per answered call says what it was for, what it cost and how it ended."""
    journals = FileJournals(tmp_path)
    with FakeModel(["refusal", "no-usage"]) as model:
        client = writer(model, Spending(journals, Day(), 10_000))
        with pytest.raises(Unavailable, match="refused"):
            ask(client)
        ask(client)
        ask(client)

    lines = [json.loads(line) for line in journals.read(LEDGER).lines]
    assert [(line["purpose"], line["model"], line["outcome"]) for line in lines] == [
        ("episode mc_1", "fake", "refused"), ("episode mc_1", "fake", "answered"), ("episode mc_1", "fake", "answered"),
    ]  # fmt: skip
    assert (lines[2]["prompt_tokens"], lines[2]["completion_tokens"]) == (100, 20)
    assert lines[1]["estimated"] is True


def test_the_daily_cap_stops_calls_before_they_are_made(tmp_path):
    """Spent means unavailable, also for another process, until the next UTC day."""
    clock = Day()
    with FakeModel() as model:
        one = writer(model, Spending(FileJournals(tmp_path), clock, 300))
        two = writer(model, Spending(FileJournals(tmp_path), clock, 300))
        ask(one)
        with pytest.raises(Unavailable, match="daily cap of 300"):
            ask(two, "word " * 400)
        ask(two)
        with pytest.raises(Unavailable, match="240 are spent"):
            ask(one)
        assert len(model.requests) == 2
        clock.at = datetime(2026, 6, 2, 0, 1, tzinfo=UTC)
        ask(one)


def test_a_damaged_ledger_line_is_passed_over(tmp_path):
    """A hand edit in the ledger stops nothing."""
    journals = FileJournals(tmp_path)
    journals.append(
        LEDGER, ["{oops", '{"at": "2026-06-01", "prompt_tokens": "x", "completion_tokens": 1}', "[]"]
    )

    assert Spending(journals, Day(), 10).today() == 0


@pytest.mark.parametrize(
    ("value", "schema", "wrong"),
    [
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, None),
        ({"a": True}, {"properties": {"a": {"type": "integer"}}}, "is not a integer"),
        ({}, {"type": "object", "required": ["a"]}, 'has no "a"'),
        ({"b": 1}, {"properties": {}, "additionalProperties": False}, "not asked for"),
        (
            {"a": ["x", 2]},
            {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            r"a\[1\] is not a string",
        ),
        ({"a": "z"}, {"properties": {"a": {"enum": ["x", "y"]}}}, "not one of x, y"),
        ({"a": None}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, None),
        ({"a": 2.5}, {"properties": {"a": {"type": ["number", "null"]}}}, None),
        ({"a": ""}, {"properties": {"a": {"type": "string", "minLength": 1}}}, "too short"),
    ],
)
def test_the_schema_check_says_what_is_wrong(value, schema, wrong):
    """The plain part of JSON Schema that models are given, checked in full."""
    found = answers.misfit(value, schema)
    if wrong is None:
        assert found is None
    else:
        with pytest.raises(Invalid, match=wrong):
            answers.read_answer(json.dumps(value), schema)


def test_optional_keys_are_nullable_for_strict_servers_and_dropped_again():
    """Strict endpoints want every key; a null for an optional one means it is unset."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
    }

    strict = answers.strict(schema)

    assert strict["required"] == ["a", "b"]
    assert strict["properties"]["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert answers.read_answer('{"a": "x", "b": null}', schema) == {"a": "x"}


def test_retry_after_is_seconds_or_a_date():
    """Both forms of the header are understood; nonsense is ignored."""
    assert _seconds_of("2.5") == 2.5
    assert _seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert _seconds_of("nan") is None
    assert _seconds_of("soon") is None
    assert _seconds_of("") is None
