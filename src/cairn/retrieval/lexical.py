"""Search without an index: the notes of one owner, read now and scored by their words.

While `.index/` is missing or being made anew, answers come from here and are marked so. Only the owner's own
folders and the session logs of the space are read, newest first, for a bounded time; what is made serves the
next questions for a moment, too. It answers like the index does, so ranking need not know the difference.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, NotFound
from cairn.index.corpus import (
    HIDDEN_STATUSES,
    KIND_CODES,
    NAMED,
    PAGE_ORDER,
    PASSAGE,
    About,
    Ask,
    Corpus,
    Found,
    Names,
    Page,
    Row,
    Sender,
    about_corpus,
    arrays_of,
    passing_rows,
    text_flags,
)
from cairn.index.embedding_text import searched_words
from cairn.index.filters import NOTHING_ASKED, Group
from cairn.index.postings import Postings, word_marks
from cairn.notes.kinds import place_of, scope_locator
from cairn.retrieval.library import kind_of, read_file
from cairn.retrieval.reading import read_note, read_session
from cairn.seams import Locator, StorageBackend
from cairn.seams.storage import iterate_files
from cairn.talk.sessions import SessionLog, place_of_session, sessions_of
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np


class NoteScan:
    """Makes a `ScannedScope` of an owner's files, and keeps it for a moment.

    Args:
        storage: Where the notes are.
        sessions: Reads the session logs; shared with whoever else does.
        zone: Times without an offset are meant in it.
        seconds: How long one scan may take; what was read by then is what is answered from.
        keep_seconds: How long a scan serves further questions.
    """

    def __init__(
        self,
        storage: StorageBackend,
        sessions: SessionLog,
        *,
        zone: tzinfo = UTC,
        seconds: float = 3.0,
        keep_seconds: float = 1.0,
    ) -> None:
        self._storage = storage
        self._sessions = sessions
        self._zone = zone
        self._seconds = seconds
        self._keep_seconds = keep_seconds
        self._kept: dict[Scope, tuple[float, ScannedScope]] = {}
        self._lock = threading.Lock()

    def of(self, scope: Scope) -> ScannedScope:
        """The scope's rows as its files say now; `troubles` tells where time ran out, or a file cannot be read."""
        with self._lock:
            now = time.monotonic()
            self._kept = {key: held for key, held in self._kept.items() if now - held[0] < self._keep_seconds}
            held = self._kept.get(scope)
            if held is not None:
                return held[1]
            troubles: list[str] = []
            rows = self._read(scope, now + self._seconds, troubles)
            made = ScannedScope(scope, rows, troubles=troubles)
            self._kept[scope] = (time.monotonic(), made)
            return made

    def _read(self, scope: Scope, until: float, troubles: list[str]) -> list[Row]:
        rows: list[Row] = []
        for read in (self._notes(scope, troubles), self._talk(scope)):
            for found in read:
                rows.extend(found)
                if time.monotonic() > until:
                    troubles.append("there was no time to read all of the notes: there may be more")
                    return rows
        return rows

    def _notes(self, scope: Scope, troubles: list[str]) -> Iterator[list[Row]]:
        def note_trouble(at: Locator, error: CairnError) -> None:
            troubles.append(f"{at} cannot be read, nothing of it is answered: {error}")

        files = iterate_files(self._storage, scope_locator(scope), note_trouble)
        for locator in sorted(files, reverse=True):
            place = place_of(locator)
            if place is None and kind_of(locator) is None:
                continue
            try:
                text = self._storage.read(locator)
            except NotFound:
                continue
            except CairnError as error:
                note_trouble(locator, error)
                continue
            if place is None:
                found = read_file(locator, text, {}, zone=self._zone)
            else:
                found = read_note(place, place.kind.parse(text), locator.key, {}, zone=self._zone)
            yield [new.row for new in found.rows]

    def as_of(
        self, scope: Scope, texts: Mapping[tuple[str, str], str], when: datetime
    ) -> ScannedScope | None:
        """What a scope held at `when`; None where nothing had been recorded by then.

        Entries are as their `texts` (by path and id) stood then; messages are those said by then.
        """
        blocks: dict[str, list[str]] = {}
        for (path, _), text in sorted(texts.items()):
            blocks.setdefault(path, []).append(text)
        rows: list[Row] = []
        for path, found in blocks.items():
            place = place_of(Locator(path))
            if place is None or place.scope != scope or place.kind.storage != "daily":
                continue
            note = place.kind.parse("\n".join(found))
            rows += [new.row for new in read_note(place, note, path, {}, zone=self._zone).rows]
        if not texts:
            return None
        until_ms = int(when.timestamp() * 1000)
        said = (row for found in self._talk(scope, when) for row in found if row.timestamp_ms <= until_ms)
        return ScannedScope(scope, [*rows, *said])

    def _talk(self, scope: Scope, when: datetime | None = None) -> Iterator[list[Row]]:
        files = iterate_files(self._storage, sessions_of(scope.space), lambda *_: None)
        logs = [at for at in files if place_of_session(at)]
        for locator in sorted(logs, key=self._age, reverse=True):
            try:
                state = self._sessions.load(locator, corrected_by=when, keep=False)
            except CairnError:
                continue
            yield [new.row for new in read_session(state, locator.key, {}).rows if new.row.scope == scope]

    def _age(self, locator: Locator) -> float:
        try:
            return self._storage.info(locator).mtime
        except CairnError:
            return 0.0


class ScannedScope:
    """A `SearchIndex` and `Pages` over rows in memory, without vectors. Every question must name its one scope.

    `troubles` says what is missing from them, and why.
    """

    def __init__(self, scope: Scope, rows: Sequence[Row], *, troubles: Sequence[str] = ()) -> None:
        self.scope = scope
        self.troubles = tuple(troubles)
        # Whole texts are at hand here: their passages are chosen when they are shown.
        known = (row for row in rows if row.kind in KIND_CODES and row.kind != PASSAGE)
        self._rows = [replace(row, rowid=n) for n, row in enumerate(known, 1)]
        words = [
            searched_words(row.kind, row.text, row.sender_ids[0] if row.sender_ids else "", row.sender_name)
            for row in self._rows
        ]
        self._lengths = [len(found) for found in words]
        self._words = Postings().updated(
            [(row.rowid, row.kind, word_marks(found)) for row, found in zip(self._rows, words, strict=True)]
        )
        self._corpus: Corpus | None = None

    def corpus(self, scope: Scope) -> Corpus:
        import numpy as np

        rows = self._of(scope)
        if self._corpus is not None and rows:
            return self._corpus
        episodes = {row.entry_id: row.cell_id for row in rows if row.kind == "episode"}
        named = {name: Names() for name in NAMED}
        arrays = arrays_of(
            [
                (
                    row.rowid, row.kind, row.timestamp_ms, row.session_id or None, row.ordinal, "".join(row.sender_ids[:1]),
                    row.sender_name, row.cell_id or episodes.get(row.parent_id or "") or None,
                    text_flags(row.text, row.fields, hidden=row.status in HIDDEN_STATUSES), length,
                )
                for row, length in zip(rows, self._lengths, strict=False)
            ],
            named,
        )  # fmt: skip
        made = Corpus(
            scope=scope,
            version=-1,
            **arrays,
            whole=arrays["rowid"],
            has_vector=np.zeros(len(rows), bool),
            vectors=None,
            sessions=named["session"].names,
            senders=[Sender(*one) for one in named["sender"].names],
            cells=named["cell"].names,
        )
        if rows:
            self._corpus = made
        return made

    def about(self, scope: Scope) -> About:
        return about_corpus(self.corpus(scope))

    def takes_part(self, scope: Scope, session_id: str) -> bool:
        return session_id in self.corpus(scope).sessions

    def legs(self, scope: Scope, ask: Ask) -> Found:
        """Words and filter over the rows at hand; there are no vectors."""
        corpus = self.corpus(scope)
        bm25, covered, holding = self._words.legs(corpus, ask)
        return Found(
            corpus=corpus,
            passing=passing_rows(corpus, ask, lambda: self.matching(scope, ask.where)),
            bm25=bm25,
            cosine=None,
            covered=covered,
            holding=holding,
        )

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> Mapping[int, np.ndarray]:  # noqa: ARG002 -- as above
        return {}

    def matching(self, scope: Scope, where: Group) -> np.ndarray:
        import numpy as np

        def plain(row: Row) -> dict[str, Any]:
            return {
                "session_id": row.session_id,
                "parent_type": row.parent_type,
                "parent_id": row.parent_id,
                "timestamp": row.timestamp_ms,
                "sender_id": row.sender_ids,
                "labels": row.labels,
            }

        return np.array([row.rowid for row in self._of(scope) if where.matches(plain(row))], np.int64)

    def page(
        self,
        scope: Scope,
        kinds: Sequence[str],
        *,
        where: Group = NOTHING_ASKED,
        sort: str = "timestamp",
        descending: bool = True,
        offset: int = 0,
        limit: int = 20,
        hidden: bool = False,
    ) -> Page:
        """One page of rows with the exact total, as the index gives it."""
        passing = set(self.matching(scope, where).tolist())
        found = [
            row
            for row in self._of(scope)
            if row.kind in kinds and row.rowid in passing and (hidden or row.status not in HIDDEN_STATUSES)
        ]
        found.sort(key=lambda row: (getattr(row, PAGE_ORDER[sort]), row.entry_id), reverse=descending)
        return Page(tuple(row.rowid for row in found[offset : offset + limit]), len(found))

    def find(self, scope: Scope, entry_ids: Sequence[str], kind: str | None = None) -> list[Row]:
        """The rows of these entries."""
        wanted = frozenset(entry_ids)
        return [row for row in self._of(scope) if row.entry_id in wanted and kind in {None, row.kind}]

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        rows = self._of(scope)
        return [rows[int(rowid) - 1] for rowid in rowids if 0 < int(rowid) <= len(rows)]

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        return self._words.frequencies(terms) if self._of(scope) else {}

    def _of(self, scope: Scope) -> list[Row]:
        return self._rows if scope == self.scope else []
