"""What search is asked and what it answers: the values, their rules, and their outside form.

What was found is turned into the dictionaries that callers see here and nowhere else. `get` gives rows as they are;
`search` adds to the same items what belongs to a hit: its score, its place and its facts. Nothing here reads a file: a
row carries all that is shown.
"""

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
from cairn.index.corpus import AGENT_DOCUMENTS, SKILL_FILE, Row
from cairn.notes.format import list_items
from cairn.talk.lines import message_to
from cairn.talk.messages import METADATA, TAGS, read_inline
from cairn.types import Evidence, Freshness, Hit, Message, Scope, Space

MAX_TOP_K = 100
LISTS = ("episodes", "profiles", "agent_cases", "agent_skills", "memories", "knowledge")
# Kinds that are looked for where a request names them, and the list of each.
FURTHER: Mapping[str, str] = {
    "foresight": "foresights",
    "atomic_fact": "atomic_facts",
    "agent_document": "agent_documents",
}
# The array of an answer that each kind goes into.
ARRAYS: Mapping[str, str] = {
    "episode": "episodes",
    "profile": "profiles",
    "agent_case": "agent_cases",
    "agent_skill": "agent_skills",
    **FURTHER,
}
# Which kinds of rows one of these types stands for, where that is more than its own.
ROWS_OF: Mapping[str, tuple[str, ...]] = {"agent_document": AGENT_DOCUMENTS}
_STRUCTURE = frozenset({"id", "type", "file_type", "schema_version", "user_id", "agent_id", "track", "body"})
_EPOCH = datetime.fromtimestamp(0, UTC)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE = re.compile(r"[.!?。！？](?=\s|$)|\n")
_LEAST_TOKENS = 4


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question to one owner's memory, `scope`.

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
    scope: Scope
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


def checked(request: SearchRequest, settings: Settings) -> tuple[str, filters.Group]:
    """The method and the filter of a request, or `Invalid` with the field that breaks a rule.

    Each field by itself is what its operation says of it; here is what is known only of them together, or by the settings.
    """
    if not request.query.strip():
        raise Invalid("query is blank: say what to look for.", field="query")
    limit = settings.server.max_query_chars
    if len(request.query) > limit:
        raise Invalid(
            f"query has {len(request.query)} characters, more than {limit}: shorten it.", field="query"
        )
    if not (request.top_k == -1 or 1 <= request.top_k <= MAX_TOP_K):
        raise Invalid(
            f"top_k is {request.top_k}: use -1 for the default, or 1 to {MAX_TOP_K}.", field="top_k"
        )
    if unknown := [kind for kind in request.kinds if str(kind) not in FURTHER]:
        raise Invalid(f'kinds: "{str(unknown[0])[:60]}" is not one of {", ".join(FURTHER)}.', field="kinds")
    method = "agentic" if request.method == "llm_multiround" else request.method
    return method, filters.parse(request.filters, zone=settings.zone)


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


# ---------------------------------------------------------------- what is shown of what was found


def shown_time(moment: int | datetime | None, zone: tzinfo = UTC) -> str:
    """An instant as ISO text in the display zone; the epoch where none is known, so that the field stays a date."""
    try:
        if isinstance(moment, int):
            moment = datetime.fromtimestamp(moment / 1000, UTC)
        return (moment or _EPOCH).astimezone(zone).isoformat()
    except (ValueError, OverflowError, OSError):
        return _EPOCH.astimezone(zone).isoformat()


def shown(found: Row | Hit, zone: tzinfo = UTC) -> dict[str, Any]:
    """A row or a hit as an item of the array of its kind.

    >>> from cairn.types import Scope, Space
    >>> row = Row(1, "agent_skill", Scope(Space(), "agent", "bot"), "deploy", "p", "", 0, fields={"name": "deploy"})
    >>> shown(row)["id"], shown(row)["confidence"]
    ('bot_deploy', 0.0)
    """
    shape = _SHAPES[found.kind]
    item = {"id": found.id, **shape(found, zone)}
    return item | _of_hit(found) if isinstance(found, Hit) else item


def _of_hit(hit: Hit) -> dict[str, Any]:
    more: dict[str, Any] = {"path": hit.path, "score": hit.score}
    if hit.kind == "episode":
        if "of" in hit.fields:
            more["episode_length"] = hit.fields["of"]
        more["atomic_facts"] = [
            {
                "id": fact.id,
                "content": _text(fact.fields.get("Fact")) or fact.text,
                "score": fact.score,
                **ended(fact),
            }
            for fact in hit.facts
        ]
    if hit.message_ids:
        more["message_ids"] = list(hit.message_ids)
    if hit.explain is not None:
        more["explain"] = dict(hit.explain)
    return more


def ended(fact: Row | Hit) -> dict[str, str]:
    """Since when a fact is over, and by which other; nothing for one that stands."""
    by, until = _text(fact.fields.get("superseded_by")), _text(fact.fields.get("until"))
    until = until or _text(fact.fields.get("superseded_at"))[: len("2026-11-30")]
    return {"superseded_by": fact.scope.public_id(by), "until": until} if by and until else {}


def as_told(fact: Hit, text: str | None = None) -> str:
    """A fact or memory in an answer that is read, with the day since which it is over, or since which another says otherwise."""
    over, text = ended(fact), fact.text if text is None else text
    if since := _text(fact.fields.get("contradicted_at"))[: len("2026-11-30")]:
        by = fact.scope.public_id(_text(fact.fields.get("contradicted_by")))
        return f"{text} (earlier; {by} of {since} says otherwise)"
    return f"{text} (earlier, until {over['until']})" if over else text


def as_said(item: Evidence) -> str:
    """A message in an answer that is read, with the day since which what it says is over.

    Of a message that says more than that, what is over is named.
    """
    over = ended(item.earlier) if item.earlier is not None else {}
    if not over or item.earlier is None:
        return item.text
    fact = item.earlier.text.partition(": ")[2] or item.earlier.text
    is_all = 2 * len(fact) > len(item.text)
    return f"{item.text} ({'' if is_all else f'“{fact}” is '}earlier, until {over['until']})"


def _space(found: Row | Hit) -> dict[str, Any]:
    return {"app_id": found.scope.space.app, "project_id": found.scope.space.project}


def _when(found: Row | Hit, zone: tzinfo) -> str:
    return shown_time(found.timestamp if isinstance(found, Hit) else found.timestamp_ms, zone)


def _episode(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    body = _text(fields.get("Content")) or found.text
    senders = found.sender_ids if isinstance(found, Row) else _texts(fields.get("sender_ids"))
    return {
        "user_id": found.scope.owner if found.scope.track == "user" else None,
        **_space(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "sender_ids": list(senders),
        "summary": _text(fields.get("Summary")) or body[:200],
        "subject": _text(fields.get("Subject")) or body[:80],
        "episode": body,
        "type": "Conversation",
        **_labels_in(fields),
    }


def _labels_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    inline = {key: str(fields[key]) for key in (TAGS, METADATA) if key in fields}
    return _labelled(*read_inline(inline)) if inline else {}


def _labelled(tags: Sequence[str], metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Tags and metadata, where there are any."""
    return ({"tags": list(tags)} if tags else {}) | ({"metadata": dict(metadata)} if metadata else {})


def _profile(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    data = {name: value for name, value in found.fields.items() if name not in _STRUCTURE}
    return {
        "user_id": found.scope.owner if found.scope.track == "user" else None,
        **_space(found),
        "profile_data": data | {"content": _text(found.fields.get("body")).strip()},
    }


def _agent_case(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "task_intent": _text(fields.get("TaskIntent")),
        "approach": _text(fields.get("Approach")),
        "outcome": _text(fields.get("outcome")) or None,
        "quality_score": _number(fields.get("quality_score")),
        "key_insight": fields.get("KeyInsight") or None,
        **_labels_in(fields),
    }


def _agent_skill(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "name": _text(fields.get("name")) or found.entry_id,
        "description": _text(fields.get("description")),
        "content": (_text(fields.get("body")) or found.text).strip(),
        "confidence": _number(fields.get("confidence")),
        "maturity_score": _number(fields.get("maturity_score")),
        "source_case_ids": _texts(fields.get("source_case_ids")),
    }


def _memory(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    inline = {
        name: value
        for name, value in found.fields.items()
        if name.isascii() and name.replace("_", "").islower()
    }
    return {
        **_space(found),
        "scope": found.scope.track,
        "owner_id": found.scope.owner or None,
        "content": _text(found.fields.get("Content")) or found.text,
        "timestamp": _when(found, zone),
        **inline,
    }


def _knowledge(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_space(found),
        "doc_id": _text(fields.get("doc_id")),
        "topic_id": _text(fields.get("topic_id")),
        "title": _text(fields.get("title")),
        "category_id": _text(fields.get("category")),
        "heading": _text(fields.get("topic_path")),
        "line": int(_number(fields.get("line"))),
        "content": found.text.partition("\n")[2],
    }


def _foresight(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_made_of_talk(found, zone),
        "foresight": _text(fields.get("Foresight")) or found.text,
        "evidence": _text(fields.get("Evidence")),
        "start_time": fields.get("start_time") or None,
        "end_time": fields.get("end_time") or None,
    }


def _atomic_fact(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_made_of_talk(found, zone),
        "content": _text(fields.get("Fact")) or found.text,
        "parent_type": fields.get("parent_type") or None,
        "parent_id": fields.get("parent_id") or None,
        **ended(found),
    }


def _agent_document(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "name": found.kind,
        "content": _text(found.fields.get("body")).strip() or found.text,
    }


def _made_of_talk(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    mine = found.scope
    return {
        "user_id": mine.owner if mine.track == "user" else None,
        "agent_id": mine.owner if mine.track == "agent" else None,
        **_space(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
    }


_SHAPES = {
    "knowledge": _knowledge,
    "foresight": _foresight,
    "atomic_fact": _atomic_fact,
    **dict.fromkeys(AGENT_DOCUMENTS, _agent_document),
    "episode": _episode,
    "profile": _profile,
    "agent_case": _agent_case,
    "agent_skill": _agent_skill,
    SKILL_FILE: _agent_skill,
    "memory": _memory,
}


def shown_message(
    said: Message, *, app: str, project: str, session_id: str, zone: tzinfo = UTC
) -> dict[str, Any]:
    """A message as it was said, with where it was said."""
    kept = message_to(said)
    return {
        "id": said.id,
        "app_id": app,
        "project_id": project,
        "session_id": session_id,
        "sender_id": said.sender_id,
        "sender_name": said.sender_name,
        "role": said.role,
        "content": kept["content"],
        "timestamp": shown_time(said.timestamp, zone),
        "tool_calls": kept.get("tool_calls"),
        "tool_call_id": said.tool_call_id,
        **_labelled(said.tags, said.metadata),
    }


def shown_evidence(item: Evidence, zone: tzinfo = UTC) -> dict[str, Any]:
    """A verbatim message behind an answer."""
    out: dict[str, Any] = {
        "session_id": item.session_id,
        "message_id": item.message_id,
        "timestamp": shown_time(item.timestamp, zone),
        "sender_id": item.sender_id,
        "sender_name": item.sender_name,
        "text": item.text,
        "score": item.score,
        "entry_ids": list(item.entry_ids),
        "unflushed": item.unflushed,
        **_labelled(item.tags, item.metadata),
    }
    if item.earlier is not None:
        out["earlier"] = {"fact": item.earlier.text, **ended(item.earlier)}
    if item.passage is not None:
        out["passage"] = dict(zip(("start", "end", "of"), item.passage, strict=True))
    return out if item.explain is None else out | {"explain": dict(item.explain)}


def shown_freshness(value: Freshness) -> dict[str, Any]:
    """How far the index was behind."""
    return {"lsn": value.lsn, "pending": value.pending, "state": value.state, "notes": list(value.notes)}


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # what cannot be a number is caught
    except (TypeError, ValueError):
        return 0.0
    return number if abs(number) < float("inf") else 0.0


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return list_items(value)
    return [str(part) for part in value] if isinstance(value, list | tuple) else []
