"""An index with rows put straight into it, and a searcher over it, for the tests of search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn import config
from cairn.engines.embedders import HashingEmbedder
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Row
from cairn.index.embedding_text import spoken_names
from cairn.index.rows import NewRow
from cairn.retrieval.answers import SearchRequest, SearchResult
from cairn.retrieval.reading import in_passages
from cairn.retrieval.search import Searcher
from cairn.seams import Embedder
from cairn.types import Scope, Space

ALICE = Scope(Space(), "user", "alice")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class FixedClock:
    def now(self) -> datetime:
        return NOON


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class SearchWorld:
    """Rows of any scope, the real index, a searcher. `talk` adds a session with its episode, `entry` one entry."""

    def __init__(self, folder: Path, embedder: Embedder | None = None, **options: Any) -> None:
        self.folder = folder
        self.embedder = embedder if embedder is not None else HashingEmbedder(256)
        self.index = SqliteIndex(folder / ".index")
        self.index.begin_model(self.embedder.id)
        self.count = 0
        self.options = options
        self.embeds = True  # False leaves new rows waiting for their vectors

    def searcher(self, **options: Any) -> Searcher:
        settings = config.load(self.folder, environ={})
        given = {"embedder": lambda: self.embedder, **self.options, **options}
        return Searcher(self.index, settings=settings, clock=FixedClock(), **given)

    def ask(self, query: str, **options: Any) -> SearchResult:
        request = SearchRequest(
            query, **{"user_id": "alice", **options} if "agent_id" not in options else options
        )
        return self.searcher().search(request)

    def entry(self, kind: str, text: str, scope: Scope = ALICE, **fields: Any) -> str:
        self.count += 1
        titles = {"episode": "Content", "atomic_fact": "Fact", "memory": "Content"}
        row = Row(
            rowid=0, kind=kind, scope=scope, entry_id=f"{kind}_{self.count}", path=f"{kind}.md", text=text,
            timestamp_ms=ms("2026-05-01T10:00:00"), updated_ms=ms("2026-05-01T10:00:00"),
            fields={titles.get(kind, "Content"): text},
        )  # fmt: skip
        row = replace(row, **fields)
        new = NewRow(row, str(self.count).encode())
        self.put([new] if kind == "episode" else list(in_passages(new)))
        return row.entry_id

    def talk(
        self,
        session: str,
        said: list[tuple[str, str]],
        scope: Scope = ALICE,
        day: str = "2026-05-01",
        roles: Mapping[str, str] | None = None,
    ) -> None:
        names = spoken_names(tuple(sorted({(who, who) for who, _ in said})))
        senders = tuple(dict.fromkeys(who for who, _ in said))
        whole = "\n".join(f"{who} said: {text}" for who, text in said)
        cell = f"mc_{session}"
        at = ms(f"{day}T10:00:00")
        self.entry(
            "episode", whole, scope, session_id=session, cell_id=cell, parent_type="memcell", parent_id=cell,
            timestamp_ms=at, sender_ids=senders, entry_id=f"ep_{session}",
        )  # fmt: skip
        made = []
        for place, (who, text) in enumerate(said):
            row = Row(
                rowid=0, kind="message", scope=scope, entry_id=f"m_{session}_{place}", path="s.jsonl", text=text,
                timestamp_ms=at + place * 1000, updated_ms=at, session_id=session, cell_id=cell, ordinal=place,
                parent_type="memcell", parent_id=cell, sender_ids=(who,), sender_name=who.title(),
                fields={"role": (roles or {}).get(who, "user")},
            )  # fmt: skip
            made += in_passages(NewRow(row, f"{session}{place}{text}".encode()), names)
        self.put(made)

    def put(self, rows: list[NewRow]) -> None:
        self.index.apply(rows)
        if not self.embeds:
            return
        waiting = self.index.pending(10_000)
        texts = [one.text for one in waiting]
        keys = [one.key for one in waiting]
        pieces: dict[bytes, Any] = {}
        if self.embedder.token_dimensions:
            vectors, said = self.embedder.embed_tokens(texts)
            pieces = {key: found.vectors for key, found in zip(keys, said, strict=True)}
        else:
            vectors = self.embedder.embed(texts)
        self.index.put_vectors(waiting, dict(zip(keys, vectors, strict=True)), pieces)

    def close(self) -> None:
        self.index.close()
