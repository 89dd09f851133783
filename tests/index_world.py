"""A root with its notebook, queue, index and indexer, for the tests of the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.engines.embedders import HashingEmbedder
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.engines.rows import SqliteIndex
from cairn.engines.sqlite import SqliteState
from cairn.index.corpus import Ask, Found, Row, SearchIndex
from cairn.language.words import tokens
from cairn.notes.notebook import Draft, Notebook
from cairn.notes.own import OwnTexts
from cairn.notes.root import MemoryRoot
from cairn.retrieval.indexer import Indexer
from cairn.seams import Embedder
from cairn.types import Scope, Space

ALICE = Scope(Space(), "user", "alice")
BOB = Scope(Space(), "user", "bob")
DAY = "2026-06-01"


def by_words(index: SearchIndex, scope: Scope, terms: Sequence[str], **ask: Any) -> list[int]:
    """The rowids that hold any of the terms and pass, best first."""
    found = index.legs(scope, Ask(terms=terms, **ask))
    return _best(found, found.bm25, found.bm25 > 0)


def by_meaning(index: SearchIndex, scope: Scope, vector: Any, **ask: Any) -> list[int]:
    """The rowids that pass, nearest first."""
    found = index.legs(scope, Ask(plain=vector, **ask))
    return _best(found, found.cosine, found.corpus.has_vector)


def _best(found: Found, scores: Any, fits: Any) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    return [int(found.corpus.rowid[at]) for at in order if fits[at] and found.passing[at]]


class World:
    """Everything from the folder to the rows, on real engines."""

    def __init__(
        self,
        folder: Path,
        *,
        embedder: Callable[[], Embedder | None] | None = None,
        index_dir: Path | None = None,
        min_chars: int = 16_384,
    ) -> None:
        self.folder = folder
        index_dir = index_dir or folder / ".index"
        self.storage = DeviceLocalBackend(folder)
        self.journals = FileJournals(folder)
        self.locks = FileLocks(
            index_dir / "locks" if index_dir.parent != folder else folder / ".tmp" / "locks"
        )
        self.state = SqliteState(index_dir)
        self.index = SqliteIndex(index_dir)
        one = HashingEmbedder(64)
        self.edited: list[str] = []
        own = OwnTexts()
        self.indexer = Indexer(
            storage=self.storage,
            journals=self.journals,
            locks=self.locks,
            queue=self.state,
            index=self.index,
            embedder=embedder or (lambda: one),
            on_edit=lambda rows: self.edited.extend(row.entry_id for row in rows),
            own=own,
        )
        self.indexer._recent.min_chars = min_chars
        self.root = MemoryRoot(self.storage)
        self.notebook = Notebook(self.storage, self.locks, on_change=self.indexer.note_change, own=own)

    def episode(self, text: str, scope: Scope = ALICE, day: str = DAY, **inline: object) -> str:
        fields = {"owner_id": scope.owner, "session_id": "s1", "timestamp": f"{day}T10:00:00+00:00", **inline}
        [written] = self.notebook.append("episode", scope, day, [Draft(fields, {"Content": text})])
        return written.entry_id

    def path(self, scope: Scope = ALICE, day: str = DAY, kind: str = "episode") -> Path:
        return self.folder / self.root.note(kind, scope, day).key

    def sync(self) -> None:
        self.indexer.catch_up(10)

    def hits(self, words: str, scope: Scope = ALICE) -> list[str]:
        found = by_words(self.index, scope, tokens(words))
        return sorted(row.entry_id for row in self.index.rows(scope, found))

    def all_rows(self, *, damaged: bool = False) -> list[Row]:
        found = []
        for scope, kinds in self.index.scopes():
            page = self.index.page(scope, list(kinds), limit=10**6, hidden=True)
            found.extend(self.index.rows(scope, page.rowids))
        return [row for row in found if damaged or not row.damaged]

    def close(self) -> None:
        self.state.close()
        self.index.close()
