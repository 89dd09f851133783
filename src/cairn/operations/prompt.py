"""Formats what was found as text for an agent's context, framed as data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo

from cairn.governed.framing import frame
from cairn.governed.records import UNTRUSTED
from cairn.index.corpus import KNOWLEDGE
from cairn.retrieval.answers import SearchResult, shortened, tokens_of
from cairn.retrieval.library import passage_text
from cairn.retrieval.showing import as_said, as_told
from cairn.types import Hit


def prompt(result: SearchResult, *, budget: int | None = None, zone: tzinfo = UTC) -> str:
    """What was found as text for an agent's context: framed as data, best first, within `budget` tokens.

    What does not fit is passed over for what does; where nothing fits, the best is shortened. What came from a tool
    or a page and no person has promoted is left out. "" for nothing.
    """
    every = list(_prompt_lines(result, zone))
    label = [result.whole] if result.whole and every else []
    if budget is None:
        return frame([*label, *every])
    lines: list[str] = []
    left = budget - tokens_of(frame(["x"])) - sum(tokens_of(line) + 1 for line in label)
    for line in every:
        cost = tokens_of(line) + 1
        if cost <= left:
            lines.append(line)
            left -= cost
    if not lines and every:
        first = shortened(every[0], left - 2)
        lines = [first] if first else []
    return frame([*label, *lines] if lines else [])


def _prompt_lines(result: SearchResult, zone: tzinfo) -> Iterator[str]:
    for hit in result.hits:
        if hit.kind == "memory" and not _is_vouched_for(hit):
            continue
        if hit.kind == KNOWLEDGE:
            yield f"{passage_text(hit.text)} ({hit.fields['topic_path']}, {hit.path}:{hit.fields['line']})"
            continue
        day = f"{hit.timestamp.astimezone(zone).date().isoformat()}: " if hit.timestamp else ""
        words = str(hit.fields.get("Content") or hit.fields.get("Summary") or hit.text)
        facts = " ".join(map(as_told, hit.facts))
        yield f"{day}{facts if hit.kind == 'episode' and facts else words} ({hit.id})"
    for item in (*(result.evidence or ()), *result.unflushed):
        day = item.timestamp.astimezone(zone).date().isoformat()
        yield f"{day}, {item.sender_name or item.sender_id} said: {as_said(item)}"


def _is_vouched_for(hit: Hit) -> bool:
    return hit.fields.get("origin", "human") not in UNTRUSTED or hit.fields.get("status") == "promoted"
