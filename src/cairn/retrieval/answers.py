"""What search is asked and what it answers: the values, their rules, and their outside form."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from cairn.config import Settings
from cairn.errors import Invalid
from cairn.index import filters
from cairn.retrieval.showing import shown, shown_evidence, shown_freshness, shown_message
from cairn.types import Evidence, Freshness, Hit, Message, Scope, Space

METHODS = ("keyword", "vector", "hybrid", "agentic", "llm_multiround")
MAX_TOP_K = 100
LISTS = ("episodes", "profiles", "agent_cases", "agent_skills", "memories", "knowledge")
# Kinds that are looked for where a request names them, and the list of each.
FURTHER: Mapping[str, str] = {
    "foresight": "foresights",
    "atomic_fact": "atomic_facts",
    "agent_document": "agent_documents",
}
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE = re.compile(r"[.!?。！？](?=\s|$)|\n")
_LEAST_TOKENS = 4


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question. Exactly one of `user_id` and `agent_id` says whose memory is asked, or `scope` alone does.

    `radius` is the least cosine at which meaning alone counts; `min_score` the least score returned.
    `evidence` asks for that many verbatim messages, `token_budget` bounds the words of the whole answer, and
    `for_injection` returns only what is surely about the question. A caller `limited_to` some owners sees what is
    not flushed yet only of sessions that hold nobody else's words. Hits count as uses of their memories with `is_use`.
    Where several scopes are asked at once (`Searcher.together`), `held` says in how many rows each word is, since what is
    rare in a small scope may be common in all of them together, `among` how much they hold together, and `people` who
    speaks in them: a name is no word of what is asked. What those in `unheard` say in a stretch of talk that is not cut
    yet is left out.
    """

    query: str
    user_id: str | None = None
    agent_id: str | None = None
    app_id: str = "default"
    project_id: str = "default"
    method: str = "hybrid"
    top_k: int = -1
    radius: float | None = None
    min_score: float | None = None
    include_profile: bool = False
    enable_llm_rerank: bool = False
    filters: Mapping[str, Any] | None = None
    evidence: int = 0
    token_budget: int | None = None
    explain: bool = False
    for_injection: bool = False
    include_hidden: bool = False
    consistency: str = "eventual"
    min_lsn: int | None = None
    wait_seconds: float = 10.0
    as_of: datetime | None = None
    scope: Scope | None = None
    limited_to: Collection[str] | None = None
    is_use: bool = True
    kinds: Sequence[str] = ()
    held: Mapping[str, int] | None = None
    among: int | None = None
    people: tuple[tuple[str, str | None], ...] = ()
    unheard: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, list by list, best first; and how far the index was behind when it was found.

    `unflushed` has the messages that answer and are in no episode yet; those among `evidence` are not repeated. `whole` says
    what is told of how much where a question asked for everything; it is empty for any other. `has_documents` says whether the
    space has any, None where nobody looked.
    """

    episodes: tuple[Hit, ...] = ()
    profiles: tuple[Hit, ...] = ()
    agent_cases: tuple[Hit, ...] = ()
    agent_skills: tuple[Hit, ...] = ()
    memories: tuple[Hit, ...] = ()
    knowledge: tuple[Hit, ...] = ()
    foresights: tuple[Hit, ...] = ()
    atomic_facts: tuple[Hit, ...] = ()
    agent_documents: tuple[Hit, ...] = ()
    unprocessed_messages: tuple[Message, ...] = ()
    unflushed: tuple[Evidence, ...] = ()
    evidence: tuple[Evidence, ...] | None = None
    freshness: Freshness = field(default_factory=lambda: Freshness(0, 0, "fresh"))
    method: str = "hybrid"
    space: Space = field(default_factory=Space)
    session_id: str = ""
    whole: str = ""
    has_documents: bool | None = None

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All hits of all lists, best first."""
        everything = [hit for name in (*LISTS, *FURTHER.values()) for hit in getattr(self, name)]
        return tuple(sorted(everything, key=lambda hit: -hit.score))

    def as_data(self, zone: tzinfo = UTC) -> dict[str, Any]:
        """The answer as the outside knows it: five arrays always, others beside them where they hold anything."""
        place = {"app": self.space.app, "project": self.space.project, "session_id": self.session_id}
        data: dict[str, Any] = {name: [shown(hit, zone) for hit in getattr(self, name)] for name in LISTS}
        for name in FURTHER.values():
            if found := getattr(self, name):
                data[name] = [shown(hit, zone) for hit in found]
        data["unprocessed_messages"] = [
            shown_message(said, zone=zone, **place) for said in self.unprocessed_messages
        ]
        data["unflushed"] = [shown_evidence(item, zone) for item in self.unflushed]
        if self.evidence is not None:
            data["evidence"] = [shown_evidence(item, zone) for item in self.evidence]
        if self.whole:
            data["whole"] = self.whole
        data["freshness"] = shown_freshness(self.freshness)
        return data


def owner_scope(user_id: str | None, agent_id: str | None, app_id: str, project_id: str) -> Scope:
    """The scope a request names. Raises `Invalid` unless it names exactly one owner."""
    if (user_id is None) == (agent_id is None):
        raise Invalid("Name the owner by exactly one of user_id and agent_id.", field="user_id")
    space = Space(app_id, project_id)
    return Scope(space, "user", user_id) if user_id is not None else Scope(space, "agent", agent_id or "")


def checked(request: SearchRequest, settings: Settings) -> tuple[Scope, str, filters.Group]:
    """The scope, the method and the filter of a request, or `Invalid` with the field that breaks a rule."""
    query = request.query
    if not isinstance(query, str):
        raise Invalid(f"query must be a text, not {type(query).__name__}.", field="query")
    if not query.strip():
        raise Invalid("query is blank: say what to look for.", field="query")
    limit = settings.server.max_query_chars
    if len(query) > limit:
        raise Invalid(f"query has {len(query)} characters, more than {limit}: shorten it.", field="query")
    if request.method not in METHODS:
        raise Invalid(f'"{request.method}" is not a method ({", ".join(METHODS)}).', field="method")
    for name in ("top_k", "evidence", "token_budget", "min_lsn"):
        value = getattr(request, name)
        if not _whole(value) and not (value is None and name in {"token_budget", "min_lsn"}):
            raise Invalid(f"{name} must be a whole number, not {value!r:.60}.", field=name)
    if not (request.top_k == -1 or 1 <= request.top_k <= MAX_TOP_K):
        raise Invalid(
            f"top_k is {request.top_k}: use -1 for the default, or 1 to {MAX_TOP_K}.", field="top_k"
        )
    if not 0 <= request.evidence <= MAX_TOP_K:
        raise Invalid(f"evidence is {request.evidence}: use 0 to {MAX_TOP_K}.", field="evidence")
    for name in ("radius", "min_score"):
        value = getattr(request, name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            raise Invalid(f"{name} is {value!r:.60}: use a number from 0 to 1.", field=name)
    if request.token_budget is not None and request.token_budget < 0:
        raise Invalid(
            f"token_budget is {request.token_budget}: use 0 or more, or leave it out for no bound.",
            field="token_budget",
        )
    if request.consistency not in {"eventual", "strong"}:
        raise Invalid(
            f'consistency "{request.consistency}" is neither eventual nor strong.', field="consistency"
        )
    if unknown := [kind for kind in request.kinds if str(kind) not in FURTHER]:
        raise Invalid(f'kinds: "{str(unknown[0])[:60]}" is not one of {", ".join(FURTHER)}.', field="kinds")
    scope = request.scope or owner_scope(
        request.user_id, request.agent_id, request.app_id, request.project_id
    )
    method = "agentic" if request.method == "llm_multiround" else request.method
    return scope, method, filters.parse(request.filters, zone=settings.zone)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def tokens_of(text: str) -> int:
    """How many tokens a text costs, roughly: words and punctuation marks."""
    return len(_TOKEN.findall(text))


def within_budget(result: SearchResult, budget: int) -> SearchResult:
    """The same answer cut to `budget` tokens: verbatim evidence first, then hits by score.

    What does not fit is passed over for what does. Where no evidence fits, the best of it is shortened instead; the
    rest of it is had by its id.
    """
    left = budget
    evidence, left = _fitting(result.evidence or (), left)
    unflushed, left = _fitting(result.unflushed, left, is_only=not evidence)
    chosen: set[int] = set()
    for hit in result.hits:
        cost = tokens_of(hit.text) + sum(tokens_of(fact.text) for fact in hit.facts)
        if cost <= left:
            left -= cost
            chosen.add(id(hit))
    messages = []
    for message in result.unprocessed_messages:
        cost = tokens_of(message.text)
        if cost <= left:
            left -= cost
            messages.append(message)
    lists: dict[str, Any] = {
        name: tuple(hit for hit in getattr(result, name) if id(hit) in chosen)
        for name in (*LISTS, *FURTHER.values())
    }
    return replace(
        result,
        **lists,
        evidence=None if result.evidence is None else evidence,
        unflushed=unflushed,
        unprocessed_messages=tuple(messages),
    )


def _fitting(
    said: Sequence[Evidence], left: int, *, is_only: bool = True
) -> tuple[tuple[Evidence, ...], int]:
    """Those of `said` that fit into `left` tokens, and what is left then; where none does, the best one shortened."""
    kept = []
    for item in said:
        cost = tokens_of(_spoken(item))
        if cost <= left:
            left -= cost
            kept.append(item)
    if said and not kept and is_only:
        room = left - tokens_of(_spoken(replace(said[0], text="")))
        text = shortened(said[0].text, room)
        if text:
            kept.append(replace(said[0], text=text))
            left -= tokens_of(_spoken(kept[0]))
    return tuple(kept), left


def _spoken(item: Evidence) -> str:
    return f"{item.sender_name or item.sender_id}: {item.text}"


def shortened(text: str, budget: int) -> str:
    """The beginning of `text` within `budget` tokens, to the end of a sentence where there is one; "" for no room.

    >>> shortened("One two. Three four five.", 5)
    'One two.…'
    """
    found = list(itertools.islice(_TOKEN.finditer(text), max(0, budget) + 1))
    if len(found) <= budget:
        return text
    if budget < _LEAST_TOKENS:
        return ""
    cut = text[: found[budget - 1].start()]
    ends = [match.end() for match in _SENTENCE.finditer(cut)]
    if ends and ends[-1] >= len(cut) // 3:
        cut = cut[: ends[-1]]
    return cut.rstrip() + "…"
