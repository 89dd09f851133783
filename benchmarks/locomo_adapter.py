"""Cairn as a system of a LoCoMo retrieval benchmark: `ingest(conversation)`, then `search(question, k)`.

The conversation goes in through `add` and `flush`, session by session, both speakers as senders; questions are
asked through `search` with `evidence` as one of the two, in whose memory the shared sessions lie. Any object with
`speakers` and `turns` (each with `dia_id`, `speaker`, `body`, `session`, `date`) is a conversation. The class can be
named to an outside harness as `benchmarks.locomo_adapter:Cairn`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from datetime import UTC
from pathlib import Path
from typing import Any

from cairn import config
from cairn.capture import Capture
from cairn.engines.embedders import choose
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.engines.rows import SqliteIndex
from cairn.engines.sqlite import SqliteState
from cairn.notes.notebook import Notebook
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.indexer import Indexer
from cairn.retrieval.search import Searcher
from cairn.seams import SystemClock
from cairn.types import Message, Space

SPACE = Space()


class Product:
    """Capture, index and search on a folder of their own, with the defaults a user gets."""

    def __init__(self, folder: Path) -> None:
        self.settings = config.load(folder, environ={})
        storage, journals = DeviceLocalBackend(folder), FileJournals(folder)
        locks = FileLocks(folder / ".tmp" / "locks")
        self.state, self.index = SqliteState(folder / ".index"), SqliteIndex(folder / ".index")
        embedder = choose(self.settings)
        self.indexer = Indexer(
            storage=storage,
            journals=journals,
            locks=locks,
            queue=self.state,
            index=self.index,
            embedder=lambda: embedder,
        )
        notebook = Notebook(storage, locks, on_change=self.indexer.note_change)
        self.capture = Capture(
            storage=storage,
            notebook=notebook,
            journals=journals,
            locks=locks,
            clock=SystemClock(),
            settings=self.settings,
            on_change=self.indexer.note_change,
        )
        self.searcher = Searcher(
            self.index,
            settings=self.settings,
            clock=SystemClock(),
            embedder=lambda: embedder,
            freshness=self.indexer.status,
            wait=self.indexer.wait,
        )

    def close(self) -> None:
        self.state.close()
        self.index.close()


class Cairn:
    """The plug-in. A fresh folder for each conversation, removed afterwards."""

    name = "cairn"
    reach = 0

    def __init__(self, opts: dict[str, Any] | None = None) -> None:
        self.opts = opts or {}
        self.product: Product | None = None

    def ingest(self, conv: Any) -> None:
        self.close()
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-locomo-"))
        self.product = Product(self.folder)
        self.owner = _id(conv.speakers[0])
        self.ids: dict[str, list[str]] = {}
        sessions = defaultdict(list)
        for turn in conv.turns:
            sessions[turn.session].append(turn)
        for number, turns in sessions.items():
            session = f"session-{number}"
            self.ids[session] = [turn.dia_id for turn in turns]
            began = int(turns[0].date.replace(tzinfo=UTC).timestamp() * 1000)
            messages = [
                Message(
                    _id(turn.speaker), "user", began + place * 20_000, turn.body, sender_name=turn.speaker
                )
                for place, turn in enumerate(turns)
            ]
            for start in range(0, len(messages), 100):
                self.product.capture.add(SPACE, session, messages[start : start + 100])
            self.product.capture.flush(SPACE, session)
        self.product.indexer.catch_up(600, embed=True)

    def search(self, query: str, k: int) -> list[list[str]]:
        assert self.product is not None
        result = self.product.searcher.search(SearchRequest(query, user_id=self.owner, evidence=k, top_k=5))
        return [[self.ids[e.session_id][int(e.message_id.rpartition("_")[2])]] for e in result.evidence or ()]

    def close(self) -> None:
        if self.product is not None:
            self.product.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.product = None


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", name.lower()) or "someone"
