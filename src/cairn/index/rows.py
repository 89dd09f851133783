"""The writing side of the index: what the indexer asks of it, and the values that pass between them.

Reading for search stands in `corpus.py`. Here are the writing side (`RowStore`) and pages for `get` (`Pages`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cairn.index.corpus import Row
from cairn.index.filters import NOTHING_ASKED, Group
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

# Rows of these states are shown only to those who ask for them.
HIDDEN_STATUSES = frozenset({"deprecated", "archived", "superseded", "rejected", "expired", "forgotten"})
# How long the vectors of word pieces are, whatever model gives them.
TOKEN_DIMENSIONS = 64
PAGE_ORDER: Mapping[str, str] = {"timestamp": "timestamp_ms", "updated_at": "updated_ms"}


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row on its way into the index.

    `source` is a hash of the bytes it was made from: an equal one means there is nothing to do. `embedded` is
    the text to embed where it differs from the row's own, `searched` the text whose words it is found by.
    """

    row: Row
    source: bytes
    embedded: str | None = None
    searched: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What the index holds of an entry; an empty `source` means it must be looked at again."""

    rowid: int
    source: bytes
    damaged: bool
    cell_id: str | None


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that waits for its vector."""

    rowid: int
    key: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """Rowids of one page, and how many rows there are in all."""

    rowids: tuple[int, ...]
    total: int


class RowStore(Protocol):
    """The writing side of the index. Only the holder of the indexer's lease calls it."""

    @property
    def generation(self) -> str: ...

    def stored(self, path: str) -> dict[tuple[Scope, str], Stored]: ...

    def apply(
        self,
        rows: Sequence[NewRow],
        *,
        removed: Sequence[int] = (),
        damaged: Sequence[int] = (),
    ) -> int: ...

    def forget_paths(self, paths: Sequence[str]) -> None: ...

    def known_paths(self, within: Sequence[str] = ()) -> list[str]: ...

    def begin_model(self, model: str) -> None: ...

    def pending(self, limit: int, *, settled: bool = False) -> list[Pending]: ...

    def pending_count(self, scope: Scope | None = None) -> int: ...

    def have_vectors(self, keys: Sequence[bytes]) -> set[bytes]: ...

    def put_vectors(
        self,
        rows: Sequence[Pending],
        fresh: Mapping[bytes, np.ndarray],
        tokens: Mapping[bytes, np.ndarray] | None = None,
    ) -> int: ...

    def clear(self) -> None: ...

    def maintain(self, *, budget_seconds: float = 1.0) -> dict[str, int]: ...


class Pages(Protocol):
    """Unranked pages of one scope, and rows by id."""

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
    ) -> Page: ...

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]: ...

    def find(self, scope: Scope, entry_ids: Sequence[str], kind: str | None = None) -> list[Row]: ...


def embed_key(text: str) -> bytes:
    """The name of a text among the vectors of a model."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
