"""A search by words in the index on disk with the standard library alone: no model, no ranker, no writing.

For a caller that may not wait for the rest of the product to load. The caller names the owner; there is no look
without one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cairn.engines.row_tables import FULL_TEXT

_PER_TABLE = 8


def glance(index_dir: Path, owner: str, terms: Sequence[str], least: int) -> list[str]:
    """Texts of `owner` (a person, in all spaces) that hold at least `least` of the terms, best first."""
    path = index_dir / "sqlite" / "index.db"
    words = [term for term in terms if term.replace("_", "").isalnum()]
    if not words or not path.exists():
        return []
    query = " OR ".join(f'"{word}"' for word in words)
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
                    f" AND scopes.track = 'user' AND scopes.owner = ? ORDER BY 3 LIMIT {_PER_TABLE}",
                    (query, owner),
                ):
                    if len(set(words) & set(str(tokens).split())) >= least:
                        found[str(text)] = float(score)
    except sqlite3.Error:
        return []
    return sorted(found, key=found.__getitem__)
