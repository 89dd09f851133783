"""The contract of the index: what search asks of it (`SearchIndex`), what `get` does (`Pages`), what the indexer writes (`RowStore`).

Search asks for words, meaning and filter in one question (`legs`), inside one scope. A `Corpus` holds everything ranking needs about an owner's rows, one array element per row, so that a query is
arithmetic over arrays and never a loop over rows. `legs` answers an `Ask` with such a corpus and the raw scores of
its rows. A filter is part of the question: it is applied before anything is cut, so that it never loses a row which
a deeper search without it would have found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from cairn.index.filters import NOTHING_ASKED, Group
from cairn.language import tongues
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

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
    "knowledge",
    "agent",
    "soul",
    "tools",
    "behaviors",
    "skill_file",
)
SKILL_FILE = "skill_file"  # a reference or a script beside a SKILL.md
AGENT_DOCUMENTS = ("agent", "soul", "tools", "behaviors")
PASSAGE = "passage"
SAID = frozenset({"message", PASSAGE})
KNOWLEDGE = "knowledge"  # a passage of a document, found and shown by itself
KIND_CODES: Mapping[str, int] = {name: code for code, name in enumerate(KINDS)}

# Bits of `Corpus.flags`, decided when a row is indexed. A question may state something, too ("I prefer tabs, how do I
# set them?"); one that only asks has ONLY_ASKS beside QUESTION. MACHINE is what an assistant or a tool said.
QUESTION, TIME_WORDS, NUMBERS, HIDDEN, ONLY_ASKS, MACHINE, ENDED = 1, 2, 4, 8, 16, 32, 64
MACHINE_ROLES = frozenset({"assistant", "tool", "system"})

# Rows of these states are shown only to those who ask for them.
HIDDEN_STATUSES = frozenset({"deprecated", "archived", "superseded", "rejected", "expired", "forgotten"})
# How long the vectors of word pieces are, whatever model gives them.
TOKEN_DIMENSIONS = 64
PAGE_ORDER: Mapping[str, str] = {"timestamp": "timestamp_ms", "updated_at": "updated_ms"}

# A question may be followed by what was shared with it: "Do you like it? [image: a bowl]".
_ASKS = re.compile(r"[?？]\s*(?:\[[^\]]*\]\s*)*$")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n+")
_STATED_WORDS = 4
_DIGIT = re.compile(r"\d")


def text_flags(
    text: str, fields: Mapping[str, Any] | None = None, *, hidden: bool = False, told: int | None = None
) -> int:
    """The `flags` of a row with this text and these fields; `hidden` marks deprecated, archived and expired ones.

    `told` are the `word_flags` of the text, where they are known.
    """
    asks, said = _ASKS.search(text), fields or {}
    return (
        (QUESTION if asks else 0)
        | (ONLY_ASKS if asks and not _states(text) else 0)
        | (MACHINE if said.get("role") in MACHINE_ROLES else 0)
        | (ENDED if said.get("superseded_by") else 0)
        | (HIDDEN if hidden else 0)
        | (word_flags(text) if told is None else told)
    )


def word_flags(text: str) -> int:
    """Whether a text tells a time or a number; neither is written with a blank, so its words tell the same one by one."""
    small = text.lower()
    times, numbers = (tongues.every_small_pattern("words", sort) for sort in ("times", "numbers"))
    return (TIME_WORDS if times.search(small) else 0) | (
        NUMBERS if _DIGIT.search(small) or numbers.search(small) else 0
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


def knowledge_scope(space: Space) -> Scope:
    """Whose knowledge is: the space's."""
    return Scope(space, "knowledge", "")


@dataclass(frozen=True, slots=True)
class Sender:
    """One who speaks in a scope's messages."""

    id: str
    name: str | None = None


class Names:
    """Gives each name a number, in the order of arrival; None has none, which is -1."""

    def __init__(self, names: Iterable[Any] = ()) -> None:
        self.names = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __getitem__(self, name: Hashable) -> int:
        if name is None:
            return -1
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number


# What a row is in numbers, in the order of `arrays_of`.
ATTRIBUTES = {
    "rowid": "int64", "kind": "int8", "timestamp_ms": "int64", "session": "int32", "ordinal": "int32", "sender": "int32",
    "cell": "int32", "flags": "uint8", "length": "int32",
}  # fmt: skip


NAMED = ("session", "sender", "cell")


def arrays_of(rows: Sequence[Sequence[Any]], named: Mapping[str, Names]) -> dict[str, Any]:
    """Rows as one array for each of `ATTRIBUTES`: of each row come those first, behind its sender the sender's name.

    What is `NAMED` becomes a number in `named`; a sender is known there by id and name.
    """
    import numpy as np

    ids, kinds, times, sessions, ordinals, senders, names, cells, flags, lengths, *_ = list(
        zip(*rows, strict=True)
    ) or [()] * (len(ATTRIBUTES) + 1)
    speakers = [
        named["sender"][one.strip("\n"), name or None] if kind in SAID and one else -1
        for kind, one, name in zip(kinds, senders, names, strict=True)
    ]
    values = (
        ids, [KIND_CODES[kind] for kind in kinds], times, [named["session"][one] for one in sessions], ordinals, speakers,
        [named["cell"][one] for one in cells], flags, lengths,
    )  # fmt: skip
    return {name: np.array(found, ATTRIBUTES[name]) for name, found in zip(ATTRIBUTES, values, strict=True)}


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
        standing: For how many rows of the scope each one stands (float32), where not all of them are here: those that
            are there to show what is usual stand for many. None where the whole scope is here.
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
    standing: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rowid)

    def positions(self, rowids: np.ndarray) -> np.ndarray:
        """Where these rowids stand in the arrays; -1 for those that are not of this scope."""
        import numpy as np

        if not len(self.rowid):
            return np.full(len(rowids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.rowid, rowids), len(self.rowid) - 1)
        return np.where(self.rowid[at] == rowids, at, -1)

    def places(self, rowids: np.ndarray) -> np.ndarray:
        """Where those of these rowids that are of this scope stand in the arrays."""
        at = self.positions(rowids)
        return at[at >= 0]

    def standing_at(self, at: np.ndarray) -> np.ndarray | None:
        """For how many rows those at `at` stand; None where each stands for itself."""
        return None if self.standing is None else self.standing[at]

    def of_kinds(self, *kinds: str) -> np.ndarray:
        """The places of the rows of these kinds; looked up once."""
        import numpy as np

        found: np.ndarray | None = self.derived.get(kinds)
        if found is None:
            found = np.flatnonzero(np.isin(self.kind, [KIND_CODES[kind] for kind in kinds]))
            self.derived[kinds] = found
        return found

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
    def derived(self) -> dict[Any, Any]:
        """A place for what ranking computes once per corpus (thread-safe to fill: last writer wins)."""
        return {}


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it is shown. For messages `entry_id` is the message id; `fields` has an entry's own data.

    Inline keys stand in `fields` as written, sections by their title, so that no answer reads a file. `status`
    is "" for a live row; "deprecated", "archived" and their like are hidden unless asked for. `ordinal` is a
    message's place in its session; `labels` are its tags and metadata as filters compare them. `rowid` is 0 until the index gave one; it is never given twice.
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
    labels: Sequence[str] = ()

    @property
    def id(self) -> str:
        """The public id: owner and entry id joined, unique inside a space and kind."""
        return self.scope.public_id(self.entry_id)


@dataclass(frozen=True, slots=True)
class About:
    """Facts about a scope that a question is read with: who speaks in it, how much, and until when.

    `spoken` counts the messages of each sender. `embedded` and `waiting` count the rows with and without a vector of
    `model`.
    """

    scope: Scope
    rows: int
    senders: Sequence[Sender]
    spoken: Sequence[int]
    latest_ms: int
    embedded: int = 0
    waiting: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the index.

    Attributes:
        terms: The words to look for.
        weights: What each word counts for in `Found.covered`.
        rare: The words whose rows are wanted by name, in `Found.holding`.
        plain: A unit vector that rows are compared with; None to ask for words alone.
        voiced: The one that messages and their passages are compared with; `plain` where it is None.
        where: The caller's filter.
        hidden: Whether deprecated, archived and expired rows count.
        until_ms: No row that is younger counts.
        count: How many rows of a kind an answer shows at most: an index that does not look at all of them looks for so
            many. None where all that fit are wanted.
    """

    terms: Sequence[str] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    rare: Sequence[str] = ()
    plain: np.ndarray | None = None
    voiced: np.ndarray | None = None
    where: Group = NOTHING_ASKED
    hidden: bool = True
    until_ms: int | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to an `Ask`: a corpus, and for each of its rows (aligned arrays) what the question found.

    Attributes:
        corpus: Every row that fits, and others beside them that ranking compares with: not all of a scope, perhaps.
        passing: Which rows pass the filter, may be shown, and are old enough (bool).
        bm25: How well the words fit, against this owner's texts alone; 0 where none occurs, above 0 where one does.
        cosine: Nearness in meaning (0 without a vector); None where it was not asked for.
        covered: The sum of the weights of the words a row holds.
        holding: For each rare word the places of the rows that hold it.
    """

    corpus: Corpus
    passing: np.ndarray
    bm25: np.ndarray
    cosine: np.ndarray | None
    covered: np.ndarray
    holding: Mapping[str, np.ndarray]


class Moved(Exception):
    """Raised when an index or table vanished or broke during a question; asking again gets an answer elsewhere."""


class SearchIndex(Protocol):
    """The reading side of the index. Every question names its scope; no answer leaves it."""

    def about(self, scope: Scope) -> About:
        """Who and how much there is; zeros for an unknown owner. Cheap while nothing changed."""
        ...

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many rows of the scope each term occurs; terms that occur nowhere are missing."""
        ...

    def legs(self, scope: Scope, ask: Ask) -> Found:
        """Words, meaning and filter, asked at once. Every row that passes and is among the best is in the answer.

        Raises:
            Moved: the engine lost what it answers from; ask for an index again, and that one.
        """
        ...

    def takes_part(self, scope: Scope, session_id: str) -> bool:
        """Whether the scope has rows of a session."""
        ...

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> Mapping[int, np.ndarray]:
        """The vectors of the word pieces of these rows (int8), by rowid; rows without them are missing."""
        ...

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        """The rows themselves, in the order asked; those that vanished meanwhile are left out."""
        ...


def about_corpus(corpus: Corpus) -> About:
    """What there is to say about a corpus that holds all of a scope; counted once per corpus."""
    import numpy as np

    made: About | None = corpus.derived.get("about")
    if made is None:
        embedded = int(corpus.has_vector.sum())
        made = corpus.derived["about"] = About(
            scope=corpus.scope,
            rows=len(corpus),
            senders=corpus.senders,
            spoken=np.bincount(corpus.sender[corpus.sender >= 0], minlength=len(corpus.senders)).tolist(),
            latest_ms=int(corpus.timestamp_ms.max()) if len(corpus) else 0,
            embedded=embedded,
            waiting=len(corpus) - embedded,
            model=corpus.model,
        )
    return made


def passing_rows(corpus: Corpus, ask: Ask, matching: Callable[[], np.ndarray]) -> np.ndarray:
    """Which rows of a corpus pass an `Ask`; `matching` gives the rowids that pass a filter over more than times."""
    import numpy as np

    passing = np.ones(len(corpus), bool)
    if not ask.hidden:
        passing &= (corpus.flags & HIDDEN) == 0
    if ask.until_ms is not None:
        passing &= corpus.timestamp_ms <= ask.until_ms
    if ask.where:
        fits = ask.where.over(corpus.timestamp_ms, corpus.session, corpus.sessions)
        if fits is None:
            fits = np.zeros(len(corpus), bool)
            fits[corpus.places(matching())] = True
        passing &= fits
    return passing


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
