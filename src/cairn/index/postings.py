"""Which row holds which word how often, in memory: BM25 of a whole scope as a few array operations.

Rows fall into groups (messages, episodes, other entries), and each row is weighed against its own group: how
rare a word is and how long a text is mean different things for a line of talk and for a whole episode. Words are known
by marks of eight bytes alone, as rows keep them. A `Postings` never changes; `updated` gives a new one that shares all that stayed the same.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from cairn.budget import share

if TYPE_CHECKING:
    import numpy as np

    from cairn.index.corpus import Ask, Corpus

GROUPS = ("message", "episode")
_K1, _B = 1.2, 0.75
_MAX_SEGMENTS = 6
_FEW_ROWS = 50
MARK_BYTES = 8
_MARKS_KEPT = 8192
# Postings that are gone through in one round: more would take megabytes for a moment, fewer take longer.
_POSTINGS_AT_ONCE = 1 << 16


share("marks of words", _MARKS_KEPT * 200)


@lru_cache(maxsize=_MARKS_KEPT)
def word_mark(word: str) -> bytes:
    """Eight bytes that stand for a word, the same everywhere: no two words share them but by a chance of one in 10^19."""
    return hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()


def word_marks(words: Iterable[str]) -> bytes:
    """The marks of words one behind the other, as rows keep them."""
    return b"".join(map(word_mark, words))


def mark_number(word: str) -> int:
    """The mark of a word as the number that arrays and tables have."""
    return int.from_bytes(word_mark(word), sys.byteorder, signed=True)


def rows_by_mark(rows: Sequence[bytes]) -> Counter[int]:
    """In how many rows each word occurs, by its mark; of each row the marks of its words are given."""
    if len(rows) < _FEW_ROWS:
        return Counter(mark for words in rows for mark in set(memoryview(words).cast("q")))
    import numpy as np

    held = _made([(0, "", words) for words in rows])
    return Counter(dict(zip(held.terms.tolist(), np.diff(held.starts).tolist(), strict=True)))


def group_of(kind: str) -> int:
    """The group whose texts a row of this kind is weighed against."""
    if kind == "passage":
        return GROUPS.index("message")
    return GROUPS.index(kind) if kind in GROUPS else len(GROUPS)


def rarity(rows: Any, holding: Any) -> Any:
    """What a word weighs that `holding` of `rows` rows have; of numbers or arrays."""
    import numpy as np

    return np.log1p((rows - holding + 0.5) / (holding + 0.5))


def norm(length: Any, mean: Any) -> Any:
    """What a row's length does to its counts; of numbers or arrays."""
    return _K1 * (1 - _B + _B * length / mean)


def gain(count: Any, usual: Any) -> Any:
    """What `count` occurrences are worth in a row whose `norm` is `usual`; of numbers or arrays."""
    return count * (_K1 + 1) / (count + usual)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows that came together. Postings are sorted by the marks of words; `terms` and `starts` say where each word's begin."""

    rowid: np.ndarray
    group: np.ndarray
    length: np.ndarray
    alive: np.ndarray
    terms: np.ndarray
    starts: np.ndarray
    row: np.ndarray
    count: np.ndarray

    def of(self, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the postings of each mark begin, and how many there are."""
        import numpy as np

        place = self.terms.searchsorted(marks)
        held = self.terms.take(place, mode="clip") == marks if len(self.terms) else np.zeros(len(marks), bool)
        begin = self.starts.take(place, mode="clip")
        return begin, np.where(held, self.starts.take(place + 1, mode="clip") - begin, 0)


@dataclass(frozen=True, slots=True)
class _Held:
    """Postings of several terms in one segment: of which term each is, its row, how often, and the row's group."""

    segment: int
    of: np.ndarray
    row: np.ndarray
    count: np.ndarray
    group: np.ndarray


@dataclass(frozen=True)
class Postings:
    """The words of one scope's rows, by their marks."""

    segments: tuple[_Segment, ...] = ()

    def updated(self, rows: Sequence[tuple[int, str, bytes]], gone: Iterable[int] = ()) -> Postings:
        """Postings in which `rows` (rowid, kind, marks of their words) are as given and `gone` are not."""
        import numpy as np

        dropped = np.array(sorted({*gone, *(row[0] for row in rows)}), np.int64)
        kept = []
        for segment in self.segments:
            hit = np.isin(segment.rowid, dropped) if len(dropped) else np.zeros(0, bool)
            if hit.any():
                segment = replace(segment, alive=segment.alive & ~hit)
                if 2 * segment.alive.sum() < len(segment.rowid):
                    segment = _joined(segment)  # without the words of those that went
            kept.append(segment)
        kept = [segment for segment in kept if len(segment.rowid)]
        if rows:
            kept.append(_made(rows))
        # Like the digits of a number: a segment joins its elder once it is no longer much smaller.
        while len(kept) > 1 and (len(kept) > _MAX_SEGMENTS or len(kept[-2].rowid) < 4 * len(kept[-1].rowid)):
            last = kept.pop()
            kept[-1] = _joined(kept[-1], last)
        return Postings(tuple(kept))

    @cached_property
    def _norms(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Rows per group, and for each segment what a row's length does to its counts."""
        import numpy as np

        rows, words = np.zeros(len(GROUPS) + 1), np.zeros(len(GROUPS) + 1)
        for segment in self.segments:
            rows += np.bincount(segment.group[segment.alive], minlength=len(rows))
            words += np.bincount(
                segment.group[segment.alive], segment.length[segment.alive], minlength=len(rows)
            )
        mean = np.maximum(words / np.maximum(rows, 1), 1.0)
        return rows, [
            norm(segment.length, mean[segment.group]).astype(np.float32) for segment in self.segments
        ]

    @cached_property
    def rowids(self) -> np.ndarray:
        """The rowids of all rows that are alive, segment by segment, -1 for the others; scores stand in this order."""
        import numpy as np

        found = [np.where(segment.alive, segment.rowid, -1) for segment in self.segments]
        return np.concatenate([np.zeros(0, np.int64), *found])

    @cached_property
    def _whole(self) -> list[bool]:
        """Which segments have lost no row."""
        return [bool(segment.alive.all()) for segment in self.segments]

    def _cuts(self, terms: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Where the postings of each term begin in each segment, and how many there are."""
        import numpy as np

        marks = np.frombuffer(word_marks(terms), np.int64)
        return [segment.of(marks) for segment in self.segments]

    def _holding(self, terms: Sequence[str]) -> Iterator[tuple[int, np.ndarray, list[_Held]]]:
        """The living rows that hold each of some terms, and how often: for a few terms at a time.

        A round has the first of its terms, in how many rows each occurs by group of rows, and what each segment holds.
        """
        import numpy as np

        cuts = self._cuts(terms)
        behind = np.cumsum(sum((many for _, many in cuts), np.zeros(len(terms), np.int64)))
        groups = len(GROUPS) + 1
        first = 0
        while first < len(terms):
            done = behind[first - 1] if first else 0
            stop = max(first + 1, int(behind.searchsorted(done + _POSTINGS_AT_ONCE, "right")))
            spread = np.zeros((stop - first) * groups, np.int64)
            found = []
            for number, (segment, (begin, many)) in enumerate(zip(self.segments, cuts, strict=True)):
                some = many[first:stop]
                of = np.repeat(np.arange(len(some)), some)
                if not len(of):
                    continue
                # The postings of a word stand one behind the other, those of the next word elsewhere.
                at = np.arange(len(of)) + (begin[first:stop] - (np.cumsum(some) - some))[of]
                row, count = segment.row[at], segment.count[at]
                if not self._whole[number]:
                    alive = segment.alive[row]
                    of, row, count = of[alive], row[alive], count[alive]
                group = segment.group[row]
                spread += np.bincount(of * groups + group, minlength=len(spread))
                found.append(_Held(number, of, row, count, group))
            yield first, spread.reshape(-1, groups), found
            first = stop

    def scores(self, terms: Iterable[str]) -> np.ndarray:
        """BM25 of each row of `rowids`; 0 for those that hold none of `terms`."""
        return self._found(list(terms), {})[0]

    def _found(self, terms: Sequence[str], weights: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """For each row of `rowids` its BM25, and the sum of the weights of those words that it holds."""
        import numpy as np

        rows, norms = self._norms
        sums = [np.zeros((2, len(segment.rowid))) for segment in self.segments]
        asked = list(dict.fromkeys((*terms, *weights)))
        sought = frozenset(terms)
        is_sought = np.array([term in sought for term in asked], bool)
        weight = np.array([weights.get(term, 0.0) for term in asked], float)
        for first, spread, found in self._holding(asked):
            here = slice(first, first + len(spread))
            rare = rarity(rows, spread).astype(np.float32) * is_sought[here, None]
            for one in found:
                worth = rare[one.of, one.group] * gain(one.count, norms[one.segment][one.row])
                size = len(sums[one.segment][0])
                sums[one.segment][0] += np.bincount(one.row, worth, size)
                if weights:
                    sums[one.segment][1] += np.bincount(one.row, weight[here][one.of], size)
        joined = np.concatenate([np.zeros((2, 0)), *sums], axis=1).astype(np.float32)
        return joined[0], joined[1]

    def legs(self, corpus: Corpus, ask: Ask) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """What a question's words find, by place in `corpus`: BM25, the weight covered, and where rare words stand."""
        import numpy as np

        at = self._places(corpus)

        def placed(values: np.ndarray) -> np.ndarray:
            if at is None:
                return values
            out = np.zeros(len(corpus) + 1, np.float32)
            out[at] = values
            return out[:-1]

        begins = np.cumsum([0, *(len(segment.rowid) for segment in self.segments)])
        holding = {}
        for first, spread, found in self._holding(ask.rare) if ask.rare else ():
            for number, term in enumerate(ask.rare[first : first + len(spread)]):
                mine = [one.row[one.of == number] + begins[one.segment] for one in found]
                places = np.concatenate([np.zeros(0, np.int64), *mine])
                places = places if at is None else at[places]
                holding[term] = np.sort(places[places < len(corpus)])
        scores, covered = self._found(ask.terms, ask.weights)
        return placed(scores), placed(covered), holding

    def _places(self, corpus: Corpus) -> np.ndarray | None:
        """The place in `corpus` of each row of `rowids`, the one behind all where it has none; looked up once for both.

        None where each row is at its own.
        """
        import numpy as np

        known: tuple[Postings, np.ndarray | None] | None = corpus.derived.get("words")
        if known is None or known[0] is not self:
            at = None
            if not np.array_equal(self.rowids, corpus.rowid):
                at = corpus.positions(self.rowids)
                at = np.where(at < 0, len(corpus), at)
            known = corpus.derived["words"] = (self, at)
        return known[1]

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many rows each term occurs; terms that occur nowhere are missing."""
        asked = list(dict.fromkeys(terms))
        if all(self._whole):
            cuts = self._cuts(asked)
            many = sum((many for _, many in cuts[1:]), cuts[0][1]).tolist() if cuts else []
        else:
            many = [held for _, spread, _ in self._holding(asked) for held in spread.sum(axis=1).tolist()]
        return {term: held for term, held in zip(asked, many, strict=False) if held}

    @property
    def nbytes(self) -> int:
        return sum(
            s.row.nbytes + s.count.nbytes + s.terms.nbytes * 2 + 24 * len(s.rowid) for s in self.segments
        )


def _made(rows: Sequence[tuple[int, str, bytes]]) -> _Segment:
    import numpy as np

    lengths = np.fromiter((len(row[2]) for row in rows), np.int64, len(rows)) // MARK_BYTES
    marks = np.frombuffer(b"".join(row[2] for row in rows), np.int64)
    return _segment(
        np.array([row[0] for row in rows], np.int64),
        np.array([group_of(row[1]) for row in rows], np.int8),
        lengths.astype(np.float32),
        marks,
        np.repeat(np.arange(len(rows), dtype=np.int32), lengths),
        np.ones(len(marks), np.float32),
    )


def _segment(
    rowid: np.ndarray,
    group: np.ndarray,
    length: np.ndarray,
    mark: np.ndarray,
    row: np.ndarray,
    count: np.ndarray,
) -> _Segment:
    """Sort postings, whose rows ascend for each word, by words, and add up the counts of equal ones."""
    import numpy as np

    order = np.argsort(mark, kind="stable")
    mark, row, count = mark[order], row[order], count[order]
    differs = np.ones(len(mark), bool)
    begins = differs.copy()
    begins[1:] = mark[1:] != mark[:-1]
    differs[1:] = begins[1:] | (row[1:] != row[:-1])
    first = np.flatnonzero(differs)
    starts = np.flatnonzero(begins[first])
    return _Segment(
        rowid=rowid,
        group=group,
        length=length,
        alive=np.ones(len(rowid), bool),
        terms=mark[first][starts],
        starts=np.r_[starts, len(first)],
        row=row[first],
        count=np.add.reduceat(count, first) if len(first) else count,
    )


def _joined(*segments: _Segment) -> _Segment:
    """One segment of the rows that are alive in these."""
    import numpy as np

    parts = []
    base = 0
    for segment in segments:
        new = (np.cumsum(segment.alive) - 1 + base).astype(np.int32)
        mark = np.repeat(segment.terms, np.diff(segment.starts))
        live = segment.alive[segment.row]
        parts.append((mark[live], new[segment.row[live]], segment.count[live]))
        base += int(segment.alive.sum())
    return _segment(
        np.concatenate([one.rowid[one.alive] for one in segments]),
        np.concatenate([one.group[one.alive] for one in segments]),
        np.concatenate([one.length[one.alive] for one in segments]),
        *(np.concatenate([part[i] for part in parts]) for i in range(3)),
    )
