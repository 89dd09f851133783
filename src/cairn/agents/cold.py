"""Answers hooks and tools before the warm process is up: promoted memories from their page, and a search by
words on disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from operator import itemgetter
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


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A text found by words: who says it, where none is named in it, when, and where it comes from."""

    text: str
    at: datetime | None
    source: str

    def line(self, zone: tzinfo) -> str:
        """It as one line of a prompt."""
        day = f"{self.at.astimezone(zone).date().isoformat()} " if self.at else ""
        return f"{day}{self.text} [{self.source}]"


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


def by_words(index_dir: Path, person: str, spaces: Sequence[Space], prompt: str) -> list[Glimpse]:
    """What the person said in these spaces, or heard, that holds half of the words of `prompt` that say something, best first; a few at most.

    A question of before is left out: it tells nothing.
    """
    terms = [one for one in dict.fromkeys(tokens(prompt)) if one not in stop_words()][:_MOST_TERMS]
    told: list[Glimpse] = []
    for found in _glance(index_dir, person, spaces, terms, max(2, (len(terms) + 1) // 2)):
        if not found.text.endswith(("?", "？")) and not any(one.text in found.text for one in told):
            told.append(found)
    return told[:_LINES]


def _glance(
    index_dir: Path, owner: str, spaces: Sequence[Space], terms: Sequence[str], least: int
) -> list[Glimpse]:
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
    found: dict[str, tuple[float, Glimpse]] = {}
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.1)) as db:
            for table in FULL_TEXT:
                for text, tokens, score, *where in db.execute(
                    f"SELECT rows.text, {table}.tokens, bm25({table}), rows.kind, rows.entry_id, rows.session_id,"
                    f" rows.timestamp_ms, rows.sender_name, rows.sender_ids FROM {table}"
                    f" JOIN rows ON rows.id = {table}.rowid JOIN scopes ON scopes.id = rows.scope_id"
                    f" WHERE {table} MATCH ? AND rows.hidden = 0 AND rows.status IN ('', 'promoted')"
                    # What stands in an open stretch was said just now, perhaps by the one who asks.
                    " AND (rows.kind NOT IN ('message', 'passage') OR rows.cell_id IS NOT NULL)"
                    " AND scopes.track = 'user' AND scopes.owner = ?"
                    f" AND (scopes.app, scopes.project) IN (VALUES {places}) ORDER BY 3 LIMIT {_PER_TABLE}",
                    (query, owner, *named),
                ):
                    if len(set(words) & set(str(tokens).split())) >= least:
                        found[str(text)] = float(score), _glimpse(str(text), *where)
    except sqlite3.Error:
        return []
    return [glimpse for _, glimpse in sorted(found.values(), key=itemgetter(0))]


def _glimpse(
    text: str,
    kind: str,
    entry_id: str,
    session: str | None,
    timestamp_ms: int,
    name: str | None,
    senders: str,
) -> Glimpse:
    who = f"{name or senders.strip()}: " if kind == "message" else ""
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC) if timestamp_ms else None
    return Glimpse(
        who + " ".join(text.split())[:_LONGEST], at, f"said in {session}" if session else f"{kind} {entry_id}"
    )


def told(settings: Settings, folder: str, prompt: str) -> str:
    """The same for who asks in a folder, framed; "" for none."""
    found = by_words(settings.index_dir, settings.memory.person, spaces_of(folder), prompt)
    return frame([one.line(settings.zone) for one in found])


def recalled(settings: Settings, folder: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the tool `recall` says by words alone; None where it finds nothing so, or was asked for more than a question."""
    query = given.get("query")
    if given.keys() != {"query"} or not isinstance(query, str):
        return None
    found = by_words(settings.index_dir, settings.memory.person, spaces_of(folder), query)
    if not found:
        return None
    prompt = frame([one.line(settings.zone) for one in found])
    items = [
        {
            "text": one.text,
            "kind": "message",
            "source": f"by words, {one.source}",
            "id": "",
            "at": one.at and one.at.isoformat(),
        }
        for one in found
    ]
    return {"text": f"{prompt}\n{OPENING}", "data": {"items": items, "prompt": prompt, "notes": [OPENING]}}
