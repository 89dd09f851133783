"""Writer (the language model): any endpoint that speaks the OpenAI chat protocol.

complete ──> room under the daily cap? ──> ask ──> read the JSON, check the schema ──> value
                 429, 5xx, broken line: wait and ask again, within the time budget
                 400: the server cannot force JSON that way: one rung down the ladder, and remember it
                 not what was asked for: say so once, and ask again
everything else ──> Unavailable, and the caller writes without a model
"""

from __future__ import annotations

import email.utils
import json
import random
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cairn.canonical import from_json
from cairn.config import LlmSettings
from cairn.engines.answers import read_answer, strict
from cairn.engines.model_http import ModelEndpoint, NoAnswer
from cairn.engines.spending import Spending
from cairn.errors import Invalid, Misconfigured, Unavailable
from cairn.seams import Completion

RUNGS = ("json_schema", "json_object", "prompt")
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 8.0


class _Said(NamedTuple):
    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int


class OpenAIWriter:
    """A chat endpoint that answers with JSON.

    Args:
        settings: `[llm]`; `base_url` and `model` are needed.
        spending: The ledger and cap, if calls are to be counted.
    """

    def __init__(self, settings: LlmSettings, spending: Spending | None = None) -> None:
        if not settings.base_url or not settings.model:
            raise Misconfigured(
                "[llm] needs a model and a base_url that begins with http:// or https:// and names a host.",
                setting="llm.base_url" if settings.model else "llm.model",
            )
        self._endpoint = ModelEndpoint(
            "llm", settings.base_url, "chat/completions", api_key=settings.api_key, proxy=settings.proxy
        )
        self._settings = settings
        self._spending = spending
        self._rung = 0

    @property
    def id(self) -> str:
        return self._settings.model

    def complete(self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: str) -> Completion:
        """Ask once, within the time and token budgets.

        An answer that does not fit the schema is sent back once with the reason. Raises `Unavailable` for
        everything that keeps a fitting answer from coming: time, refusal, the cap, the network, the server.
        """
        until = time.monotonic() + self._settings.timeout_seconds
        instructions = (
            f"{system.rstrip()}\n\nAnswer with one JSON object and nothing else. It must fit this schema:\n"
            f"{json.dumps(schema, ensure_ascii=False)}"
        )
        talk = [{"role": "system", "content": instructions}, {"role": "user", "content": prompt}]
        prompt_tokens = completion_tokens = 0
        trouble = ""
        for round_number in (1, 2):
            said = self._ask(talk, schema, purpose, until)
            prompt_tokens += said.prompt_tokens
            completion_tokens += said.completion_tokens
            try:
                return Completion(read_answer(said.text, schema), prompt_tokens, completion_tokens)
            except Invalid as error:
                trouble = error.message
            if said.finish == "length":
                raise Unavailable(f"{self.id}: the answer was cut off before its end ({purpose}).")
            if round_number == 1:
                repair = f"That cannot be used: {trouble}. Answer again with the JSON object alone."
                talk += [
                    {"role": "assistant", "content": said.text[:8000]},
                    {"role": "user", "content": repair},
                ]
        self._step_down(self._rung)
        raise Unavailable(f"{self.id}: no usable answer for {purpose}: {trouble}.")

    def _ask(
        self, talk: list[dict[str, str]], schema: Mapping[str, Any], purpose: str, until: float
    ) -> _Said:
        """One answered request, after as many tries as the settings and the time allow."""
        expected = sum(len(turn["content"].encode("utf-8", "ignore")) for turn in talk) // 4
        pause = _FIRST_PAUSE
        tries = 0
        while True:
            if self._spending is not None:
                self._spending.check(expected, purpose)
            rung = self._rung
            wait: float | None = None
            try:
                body = self._body(talk, schema, purpose, rung)
                reply = self._endpoint.post(body, until - time.monotonic())
            except NoAnswer as error:
                is_late = time.monotonic() >= until
                trouble = "no answer within the time budget" if is_late else str(error)
                if is_late:
                    self._note(purpose, expected, 0, "timeout", estimated=True)
            else:
                if reply.status == 200:
                    return self._said(reply.body, expected, purpose)
                if reply.status in {400, 422} and rung < len(RUNGS) - 1:
                    self._step_down(rung)
                    continue
                trouble = reply.trouble
                if reply.status not in _RETRIED:
                    raise Unavailable(
                        f"{self.id} at {self._endpoint.host}: {trouble} ({purpose}).", status=reply.status
                    )
                wait = _seconds_of(reply.retry_after)
            tries += 1
            wait = wait if wait is not None else min(pause, _LONGEST_PAUSE) * (0.75 + random.random() / 2)
            pause *= 2
            if tries >= max(self._settings.max_attempts, 1) or time.monotonic() + wait >= until:
                raise Unavailable(
                    f"{self.id} at {self._endpoint.host} does not answer: {trouble} ({purpose})."
                )
            time.sleep(wait)

    def _body(self, talk: list[dict[str, str]], schema: Mapping[str, Any], purpose: str, rung: int) -> bytes:
        body: dict[str, Any] = {"model": self._settings.model, "messages": talk, "stream": False}
        if RUNGS[rung] == "json_schema":
            name = re.sub(
                r"[^A-Za-z0-9_-]", "_", purpose.split(maxsplit=1)[0] if purpose.split() else "answer"
            )[:60]
            forced = {"name": name, "strict": True, "schema": strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": forced}
        elif RUNGS[rung] == "json_object":
            body["response_format"] = {"type": "json_object"}
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")

    def _said(self, body: bytes, expected: int, purpose: str) -> _Said:
        """The words in a reply. Raises `Unavailable` for a refusal or something that is no reply at all."""
        try:
            answer = from_json(body)
            choice = answer["choices"][0]
            message = choice["message"]
            text, finish = message.get("content"), str(choice.get("finish_reason") or "")
            if isinstance(text, list):
                text = "".join(part.get("text", "") for part in text if isinstance(part, dict))
            refusal = message.get("refusal")
            usage = answer.get("usage") or {}
        except (ValueError, TypeError, LookupError, AttributeError):
            self._note(purpose, expected, 0, "invalid", estimated=True)
            raise Unavailable(
                f"{self.id} at {self._endpoint.host} answered with something that is no chat reply."
            ) from None
        spoken = text if isinstance(text, str) else ""
        prompt_tokens, completion_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        is_estimate = prompt_tokens is None or completion_tokens is None
        prompt_tokens = expected if prompt_tokens is None else prompt_tokens
        completion_tokens = len(spoken) // 4 if completion_tokens is None else completion_tokens
        is_refused = bool(refusal) or finish == "content_filter"
        outcome = "refused" if is_refused else "cut off" if finish == "length" else "answered"
        self._note(purpose, prompt_tokens, completion_tokens, outcome, estimated=is_estimate)
        if is_refused:
            raise Unavailable(f"{self.id} refused to answer ({purpose}).")
        return _Said(spoken, finish, prompt_tokens, completion_tokens)

    def _note(self, purpose: str, prompt: int, completion: int, outcome: str, *, estimated: bool) -> None:
        if self._spending is not None:
            self._spending.record(purpose, self.id, prompt, completion, outcome, estimated=estimated)

    def _step_down(self, refused: int) -> None:
        self._rung = max(self._rung, min(refused + 1, len(RUNGS) - 1))


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds_of(retry_after: str) -> float | None:
    """How long a `Retry-After` header asks to wait: seconds, or a date."""
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        pass
    else:
        return max(seconds, 0.0) if seconds == seconds else None  # noqa: PLR0124 -- "nan" is a float too
    try:
        when = email.utils.parsedate_to_datetime(retry_after)
    except (ValueError, TypeError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
