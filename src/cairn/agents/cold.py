"""Answers hooks and tools before the warm process is up: promoted memories from their page, and a search by
words on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.engines import plain
from cairn.engines.glance import glance
from cairn.governed.framing import frame
from cairn.language.words import stop_words, tokens

OPENING = "The memory is still being opened, so this was looked for by its words alone: ask again for more."
_PAGE = Path("default_app/default_project/shared/pages/MEMORY.md")
_LINES = 4
_MOST_TERMS = 24
_LONGEST = 400


def brief(root: Path) -> str:
    """The lines of the general MEMORY.md, framed; "" where there is none."""
    try:
        text = plain.read(root / _PAGE).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return frame([line[2:] for line in text.splitlines() if line.startswith("- ")])


def by_words(index_dir: Path, person: str, prompt: str) -> list[str]:
    """What the person said that holds half of the words of `prompt` that say something, best first; a few lines at most.

    A question of before is left out: it tells nothing.
    """
    terms = [one for one in dict.fromkeys(tokens(prompt)) if one not in stop_words()][:_MOST_TERMS]
    found = glance(index_dir, person, terms, max(2, (len(terms) + 1) // 2))
    lines: list[str] = []
    for text in found:
        line = " ".join(text.split())[:_LONGEST]
        if not line.endswith(("?", "？")) and not any(one in line for one in lines):
            lines.append(line)
    return lines[:_LINES]


def told(index_dir: Path, person: str, prompt: str) -> str:
    """The same, framed; "" for none."""
    return frame(by_words(index_dir, person, prompt))


def recalled(index_dir: Path, person: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the tool `recall` says by words alone; None where it finds nothing so, or was asked for more than a question."""
    query = given.get("query")
    if given.keys() != {"query"} or not isinstance(query, str):
        return None
    lines = by_words(index_dir, person, query)
    if not lines:
        return None
    prompt = frame(lines)
    items = [{"text": line, "kind": "message", "source": "by words", "id": "", "at": None} for line in lines]
    return {"text": f"{prompt}\n{OPENING}", "data": {"items": items, "prompt": prompt, "notes": [OPENING]}}
