"""What search asks of the index: the rows of one scope as aligned arrays, and five questions.

A `Corpus` holds everything ranking needs about one owner's rows, one array element per row, so that a query
is arithmetic over arrays and never a loop over rows. The index makes it, keeps it warm and hands out the
same object until a row changes. A scope beyond `index.memory_rows` has a corpus without vectors; `nearest`
then answers from the vector index on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

    from cairn.retrieval.filters import Group

# The kind of each row as a small number. "message" is a verbatim message of a cut cell.
# "passage" is a further stretch of a text too long to be read at once: found by itself, shown as part of its whole.
KINDS = (
    "message",
    "episode",
    "atomic_fact",
    "foresight",
    "agent_case",
    "agent_skill",
    "profile",
    "memory",
    "passage",
)
PASSAGE = "passage"
KIND_CODES: Mapping[str, int] = {name: code for code, name in enumerate(KINDS)}

# Bits of `Corpus.flags`, decided when a row is indexed. A question may state something, too ("I prefer tabs, how do I
# set them?"); one that only asks has ONLY_ASKS beside QUESTION. MACHINE is what an assistant or a tool said.
QUESTION, TIME_WORDS, NUMBERS, HIDDEN, ONLY_ASKS, MACHINE = 1, 2, 4, 8, 16, 32
MACHINE_ROLES = frozenset({"assistant", "tool", "system"})

# A question may be followed by what was shared with it: "Do you like it? [image: a bowl]".
_ASKS = re.compile(r"[?？]\s*(?:\[[^\]]*\]\s*)*$")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n+")
_STATED_WORDS = 4
_MONTHS = "january|february|march|april|june|july|august|september|october|november|december"
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|weeks?|weekend|months?|years?|recently|since|"
    rf"(?:mon|tues|wednes|thurs|fri|satur|sun)day|{_MONTHS}|(?:19|20)\d\d)\b|\bMay\b"
    r"|昨天|今天|明天|昨日|今日|明日|上周|下周|去年|明年|вчера|сегодня|завтра|gestern|heute|morgen|hier|demain|ayer|mañana",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|once|twice|couple|several|few|dozen)\b",
    re.IGNORECASE,
)


def text_flags(text: str, *, hidden: bool = False, role: object = None) -> int:
    """The `flags` of a row with this text; `hidden` marks deprecated, archived and expired ones."""
    asks = _ASKS.search(text)
    return (
        (QUESTION if asks else 0)
        | (ONLY_ASKS if asks and not _states(text) else 0)
        | (MACHINE if role in MACHINE_ROLES else 0)
        | (TIME_WORDS if _TIME.search(text) else 0)
        | (NUMBERS if _NUMBER.search(text) else 0)
        | (HIDDEN if hidden else 0)
    )


def _states(text: str) -> bool:
    """Whether a text that ends in a question also says something: a sentence of its own that asks nothing.

    >>> _states("Nice! How was it?"), _states("I moved the job to cron. Is that fine?")
    (False, True)
    """
    for sentence in _SENTENCE_END.split(text):
        said = sentence.strip()
        if said and not said.endswith(("?", "？")):
            spaced = len(said.split())
            if spaced >= _STATED_WORDS or (
                not said.isascii() and spaced == 1 and len(said) >= 2 * _STATED_WORDS
            ):
                return True
    return False


@dataclass(frozen=True, slots=True)
class Sender:
    """One who speaks in a scope's messages."""

    id: str
    name: str | None = None


@dataclass(frozen=True)
class Corpus:
    """The rows of one scope. All arrays have one element per row and share their order (rowid ascending).

    Attributes:
        rowid: The index's number of the row (int64), ascending.
        kind: Index into `KINDS` (int8).
        timestamp_ms: When it was said or happened (int64; 0 where unknown).
        session: Index into `sessions` (int32; -1 where there is none).
        ordinal: Place of a message within its session (int32; 0 for entries).
        sender: Index into `senders` for messages (int32; -1 for entries).
        cell: Index into `cells`: rows made from one stretch of talk share it (int32; -1 where unknown).
            A fact whose parent is an episode belongs to that episode's cell.
        flags: QUESTION, ONLY_ASKS, TIME_WORDS, NUMBERS, HIDDEN, MACHINE (uint8).
        length: Tokens of the row's text (int32).
        whole: For a passage the rowid of the row it is a part of, for any other row its own (int64).
        vectors: Unit vectors (float32, n x d); rows without one are zero. None where they stay on disk or
            nothing is embedded.
        has_vector: Which rows have a vector of the current model (bool).
        version: Differs whenever any row differs.
    """

    scope: Scope
    version: int
    rowid: np.ndarray
    kind: np.ndarray
    timestamp_ms: np.ndarray
    session: np.ndarray
    ordinal: np.ndarray
    sender: np.ndarray
    cell: np.ndarray
    flags: np.ndarray
    length: np.ndarray
    whole: np.ndarray
    has_vector: np.ndarray
    vectors: np.ndarray | None
    sessions: Sequence[str]
    senders: Sequence[Sender]
    cells: Sequence[str]
    model: str = ""

    def __len__(self) -> int:
        return len(self.rowid)

    def positions(self, rowids: np.ndarray) -> np.ndarray:
        """Where these rowids stand in the arrays; -1 for those that are not of this scope."""
        import numpy as np

        if not len(self.rowid):
            return np.full(len(rowids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.rowid, rowids), len(self.rowid) - 1)
        return np.where(self.rowid[at] == rowids, at, -1)

    @cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of all passages, and for each the place of the row it is a part of."""
        import numpy as np

        at = np.flatnonzero(self.kind == KIND_CODES[PASSAGE])
        whole = self.positions(self.whole[at])
        return at[whole >= 0], whole[whole >= 0]

    @cached_property
    def part_count(self) -> np.ndarray:
        """Into how many passages each row was cut (int64); 1 for most."""
        import numpy as np

        return np.bincount(self.parts[1], minlength=len(self)) + 1

    def folded(self, values: np.ndarray) -> np.ndarray:
        """`values` with each row as good as the best of its passages."""
        import numpy as np

        at, whole = self.parts
        if not len(at):
            return values
        out = values.copy()
        np.maximum.at(out, whole, values[at])
        return out

    @cached_property
    def derived(self) -> dict[str, Any]:
        """A place for what ranking computes once per corpus (thread-safe to fill: last writer wins)."""
        return {}


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it is shown. For messages `entry_id` is the message id; `fields` has an entry's own data.

    Inline keys stand in `fields` as written, sections by their title, so that no answer reads a file. `status`
    is "" for a live row; "deprecated", "archived" and their like are hidden unless asked for. `ordinal` is a
    message's place in its session. `rowid` is 0 until the index gave one; it is never given twice.
    """

    rowid: int
    kind: str
    scope: Scope
    entry_id: str
    path: str
    text: str
    timestamp_ms: int
    session_id: str | None = None
    cell_id: str | None = None
    parent_type: str | None = None
    parent_id: str | None = None
    sender_ids: Sequence[str] = ()
    sender_name: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    updated_ms: int = 0
    ordinal: int = 0
    status: str = ""
    content_sha256: str = ""
    damaged: bool = False

    @property
    def id(self) -> str:
        """The public id: owner and entry id joined, unique inside a space and kind."""
        return self.scope.public_id(self.entry_id)


class SearchIndex(Protocol):
    """The reading side of the index. Every question names its scope; no answer leaves it."""

    def corpus(self, scope: Scope) -> Corpus:
        """The scope's rows; an empty corpus for an unknown owner. Cheap while nothing changed."""
        ...

    def lexical(self, scope: Scope, terms: Sequence[str], *, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Rowids and BM25 scores (higher is better) of the rows that hold any term, best first."""
        ...

    def nearest(self, scope: Scope, vector: np.ndarray, *, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Rowids and cosines of the rows nearest to a unit vector, best first."""
        ...

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> Mapping[int, np.ndarray]:
        """The vectors of the word pieces of these rows (int8), by rowid; rows without them are missing."""
        ...

    def matching(self, scope: Scope, where: Group) -> np.ndarray:
        """Rowids of the scope's rows that pass a filter, ascending."""
        ...

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        """The rows themselves, in the order asked; those that vanished meanwhile are left out."""
        ...

    def covered(self, scope: Scope, weights: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Rowids that hold any of these terms, and for each the sum of the weights of those it holds."""
        ...

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many rows each term occurs; terms that occur nowhere are missing."""
        ...
