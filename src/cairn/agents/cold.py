"""Answers hooks and tools before the warm process is up: promoted memories from their page, and a search by
words on disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engines import plain
from cairn.engines.row_tables import FULL_TEXT
from cairn.governed.framing import frame
from cairn.language.words import stop_words, tokens
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.config import Settings

OPENING = "The memory is still being opened, so this was looked for by its words alone: ask again for more."
_PAGE = Path("default_app/default_project/shared/pages/MEMORY.md")
_LINES = 4
_MOST_TERMS = 24
_PER_TABLE = 8
_LONGEST = 400


def brief(root: Path) -> str:
    """The lines of the general MEMORY.md, framed; "" where there is none."""
    try:
        text = plain.read(root / _PAGE).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return frame([line[2:] for line in text.splitlines() if line.startswith("- ")])


def spaces_of(folder: str) -> list[Space]:
    """Where what is asked in a folder may be told from: the general space, and the repository's where it is in one."""
    if not folder:
        return [Space()]
    from cairn.projects import spaces_at

    return list(dict.fromkeys([Space(), *spaces_at(folder)]))


def by_words(index_dir: Path, person: str, spaces: Sequence[Space], prompt: str) -> list[str]:
    """What the person said in these spaces that holds half of the words of `prompt` that say something, best first; a few lines at most.

    A question of before is left out: it tells nothing.
    """
    terms = [one for one in dict.fromkeys(tokens(prompt)) if one not in stop_words()][:_MOST_TERMS]
    found = _glance(index_dir, person, spaces, terms, max(2, (len(terms) + 1) // 2))
    lines: list[str] = []
    for text in found:
        line = " ".join(text.split())[:_LONGEST]
        if not line.endswith(("?", "？")) and not any(one in line for one in lines):
            lines.append(line)
    return lines[:_LINES]


def _glance(
    index_dir: Path, owner: str, spaces: Sequence[Space], terms: Sequence[str], least: int
) -> list[str]:
    """Texts of `owner`, a person, in these spaces that hold at least `least` of the terms, best first.

    With the standard library alone: no model, no ranker, no writing.
    """
    path = index_dir / "sqlite" / "index.db"
    words = [term for term in terms if term.replace("_", "").isalnum()]
    if not words or not path.exists():
        return []
    query = " OR ".join(f'"{word}"' for word in words)
    named = [part for space in spaces for part in (space.app, space.project)]
    places = ", ".join(["(?, ?)"] * len(spaces))
    found: dict[str, float] = {}
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.1)) as db:
            for table in FULL_TEXT:
                for text, tokens, score in db.execute(
                    f"SELECT rows.text, {table}.tokens, bm25({table}) FROM {table}"
                    f" JOIN rows ON rows.id = {table}.rowid JOIN scopes ON scopes.id = rows.scope_id"
                    f" WHERE {table} MATCH ? AND rows.hidden = 0 AND rows.status IN ('', 'promoted')"
                    # What stands in an open stretch was said just now, perhaps by the one who asks.
                    " AND (rows.kind NOT IN ('message', 'passage') OR rows.cell_id IS NOT NULL)"
                    " AND scopes.track = 'user' AND scopes.owner = ?"
                    f" AND (scopes.app, scopes.project) IN (VALUES {places}) ORDER BY 3 LIMIT {_PER_TABLE}",
                    (query, owner, *named),
                ):
                    if len(set(words) & set(str(tokens).split())) >= least:
                        found[str(text)] = float(score)
    except sqlite3.Error:
        return []
    return sorted(found, key=found.__getitem__)


def told(settings: Settings, folder: str, prompt: str) -> str:
    """The same for who asks in a folder, framed; "" for none."""
    return frame(by_words(settings.index_dir, settings.memory.person, spaces_of(folder), prompt))


def recalled(settings: Settings, folder: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the tool `recall` says by words alone; None where it finds nothing so, or was asked for more than a question."""
    query = given.get("query")
    if given.keys() != {"query"} or not isinstance(query, str):
        return None
    lines = by_words(settings.index_dir, settings.memory.person, spaces_of(folder), query)
    if not lines:
        return None
    prompt = frame(lines)
    items = [{"text": line, "kind": "message", "source": "by words", "id": "", "at": None} for line in lines]
    return {"text": f"{prompt}\n{OPENING}", "data": {"items": items, "prompt": prompt, "notes": [OPENING]}}
