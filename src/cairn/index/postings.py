"""Which row holds which word how often, in memory: BM25 of a whole scope as a few array operations.

Rows fall into groups (messages, episodes, other entries), and each row is weighed against its own group: how
rare a word is and how long a text is mean different things for a line of talk and for a whole episode. A
`Postings` never changes; `updated` gives a new one that shares all that stayed the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
_GONE_ROWS = 1024
_MARKS_KEPT = 32_768


share("marks of words", _MARKS_KEPT * 200)


@lru_cache(maxsize=_MARKS_KEPT)
def word_mark(word: str) -> bytes:
    """Eight bytes that stand for a word, the same everywhere: no two words share them but by a chance of one in 10^19."""
    return hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()


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
    """Rows that came together. Postings are sorted by term; `terms` and `starts` say where each term's begin."""

    rowid: np.ndarray
    group: np.ndarray
    length: np.ndarray
    alive: np.ndarray
    terms: np.ndarray
    starts: np.ndarray
    row: np.ndarray
    count: np.ndarray

    def of(self, term: int) -> slice:
        place = int(self.terms.searchsorted(term))
        if place == len(self.terms) or self.terms[place] != term:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))


@dataclass(frozen=True)
class Postings:
    """The words of one scope's rows.

    `vocabulary` only grows and is shared by all that came of one another, until so many rows are `gone` that it is
    made anew from the words that are left.
    """

    segments: tuple[_Segment, ...]
    vocabulary: dict[str, int]
    gone: int = 0

    @staticmethod
    def empty() -> Postings:
        return Postings((), {})

    def updated(self, rows: Sequence[tuple[int, str, str]], gone: Iterable[int] = ()) -> Postings:
        """Postings in which `rows` (rowid, kind, tokens joined by blanks) are as given and `gone` are not."""
        import numpy as np

        dropped = np.array(sorted({*gone, *(row[0] for row in rows)}), np.int64)
        kept, away = [], self.gone
        for segment in self.segments:
            hit = np.isin(segment.rowid, dropped) if len(dropped) else np.zeros(0, bool)
            away += int((hit & segment.alive).sum()) if hit.any() else 0
            kept.append(replace(segment, alive=segment.alive & ~hit) if hit.any() else segment)
        kept = [segment for segment in kept if segment.alive.any()]
        if rows:
            kept.append(self._made(rows))
        # Like the digits of a number: a segment joins its elder once it is no longer much smaller.
        while len(kept) > 1 and (len(kept) > _MAX_SEGMENTS or len(kept[-2].rowid) < 4 * len(kept[-1].rowid)):
            last = kept.pop()
            kept[-1] = _joined(kept[-1], last)
        if away > max(_GONE_ROWS, sum(len(segment.rowid) for segment in kept)):
            return _renumbered(kept, self.vocabulary)
        return Postings(tuple(kept), self.vocabulary, away)

    def _made(self, rows: Sequence[tuple[int, str, str]]) -> _Segment:
        import numpy as np

        number = self.vocabulary
        flat: list[int] = []
        sizes = []
        for _, _, tokens in rows:
            found = tokens.split()
            flat += [number.setdefault(token, len(number)) for token in found]
            sizes.append(len(found))
        lengths = np.array(sizes, np.int64)
        owner = np.repeat(np.arange(len(rows)), lengths)
        return _segment(
            np.array([row[0] for row in rows], np.int64),
            np.array([group_of(row[1]) for row in rows], np.int8),
            lengths.astype(np.float32),
            np.array(flat, np.int64),
            owner,
            np.ones(len(flat), np.float32),
        )

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

    def scores(self, terms: Iterable[str]) -> np.ndarray:
        """BM25 of each row of `rowids`; 0 for those that hold none of `terms`."""
        import numpy as np

        rows, norms = self._norms
        totals = [np.zeros(len(segment.rowid), np.float32) for segment in self.segments]
        for term in dict.fromkeys(terms):
            number = self.vocabulary.get(term)
            if number is None:
                continue
            found = []
            spread = np.zeros(len(rows))
            for place, segment in enumerate(self.segments):
                cut = segment.of(number)
                row, count = segment.row[cut], segment.count[cut]
                if not self._whole[place]:
                    alive = segment.alive[row]
                    row, count = row[alive], count[alive]
                group = segment.group[row]
                spread += np.bincount(group, minlength=len(rows))
                found.append((place, row, count, group))
            weight = rarity(rows, spread).astype(np.float32)
            for place, row, count, group in found:
                totals[place][row] += weight[group] * gain(count, norms[place][row])
        return np.concatenate([np.zeros(0, np.float32), *totals])

    def covered(self, weights: Mapping[str, float]) -> np.ndarray:
        """For each row of `rowids` the sum of the weights of those terms that it holds."""
        import numpy as np

        totals = [np.zeros(len(segment.rowid), np.float32) for segment in self.segments]
        for term, weight in weights.items():
            number = self.vocabulary.get(term)
            if number is None:
                continue
            for total, segment in zip(totals, self.segments, strict=True):
                total[segment.row[segment.of(number)]] += weight
        return np.concatenate([np.zeros(0, np.float32), *totals])

    def legs(self, corpus: Corpus, ask: Ask) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """What a question's words find, by place in `corpus`: BM25, the weight covered, and where rare words stand."""
        import numpy as np

        at = self._places(corpus)

        def placed(values: np.ndarray) -> np.ndarray:
            out = np.zeros(len(corpus) + 1, np.float32)
            out[at] = values
            return out[:-1]

        holding = {term: np.flatnonzero(placed(self.covered({term: 1.0}))) for term in ask.rare}
        return placed(self.scores(ask.terms)), placed(self.covered(ask.weights)), holding

    def _places(self, corpus: Corpus) -> np.ndarray:
        """The place in `corpus` of each row of `rowids`, the one behind all where it has none; looked up once for both."""
        import numpy as np

        known: tuple[Postings, np.ndarray] | None = corpus.derived.get("words")
        if known is None or known[0] is not self:
            at = corpus.positions(self.rowids)
            known = corpus.derived["words"] = (self, np.where(at < 0, len(corpus), at))
        return known[1]

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many rows each term occurs; terms that occur nowhere are missing."""
        out = {}
        for term in terms:
            number = self.vocabulary.get(term)
            if number is not None:
                many = sum(int(s.alive[s.row[s.of(number)]].sum()) for s in self.segments)
                if many:
                    out[term] = many
        return out

    @property
    def nbytes(self) -> int:
        arrays = sum(
            s.row.nbytes + s.count.nbytes + s.terms.nbytes * 2 + 24 * len(s.rowid) for s in self.segments
        )
        return arrays + 120 * len(self.vocabulary)


def _renumbered(segments: Sequence[_Segment], vocabulary: Mapping[str, int]) -> Postings:
    """The same postings in one segment, and only the words that its rows hold."""
    import numpy as np

    if not segments:
        return Postings.empty()
    whole = _joined(*segments)
    words = dict(zip(vocabulary.values(), vocabulary, strict=True))
    fresh = {words[number]: place for place, number in enumerate(whole.terms.tolist())}
    return Postings((replace(whole, terms=np.arange(len(whole.terms))),), fresh)


def _segment(
    rowid: np.ndarray,
    group: np.ndarray,
    length: np.ndarray,
    term: np.ndarray,
    row: np.ndarray,
    count: np.ndarray,
) -> _Segment:
    """Sort postings by term and row, and add up the counts of equal ones."""
    import numpy as np

    key = term * max(1, len(rowid)) + row
    order = np.argsort(key, kind="stable")
    key, count = key[order], count[order]
    first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, np.int64)
    totals = np.add.reduceat(count, first) if len(first) else count
    key = key[first]
    owner = key // max(1, len(rowid))
    begins = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else np.zeros(0, np.int64)
    return _Segment(
        rowid=rowid,
        group=group,
        length=length,
        alive=np.ones(len(rowid), bool),
        terms=owner[begins],
        starts=np.r_[begins, len(owner)],
        row=(key - owner * max(1, len(rowid))).astype(np.int32),
        count=totals.astype(np.float32),
    )


def _joined(*segments: _Segment) -> _Segment:
    """One segment of the rows that are alive in these."""
    import numpy as np

    parts = []
    base = 0
    for segment in segments:
        new = np.cumsum(segment.alive) - 1 + base
        term = np.repeat(segment.terms, np.diff(segment.starts))
        live = segment.alive[segment.row]
        parts.append((term[live], new[segment.row[live]], segment.count[live]))
        base += int(segment.alive.sum())
    return _segment(
        np.concatenate([one.rowid[one.alive] for one in segments]),
        np.concatenate([one.group[one.alive] for one in segments]),
        np.concatenate([one.length[one.alive] for one in segments]),
        *(np.concatenate([part[i] for part in parts]) for i in range(3)),
    )
