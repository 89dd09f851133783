"""A question made ready for one scope: its words weighed, its meaning as vectors, both legs asked, who may see what.

text ─> read against who speaks there ─> words that tell something, rare ones for more ─> vectors, as asked and in
the voice of whom it is about ─> one call of the index ─> `ScopeQuestion`
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from cairn.config import Settings
from cairn.errors import Forbidden, Unavailable
from cairn.index import filters
from cairn.index.corpus import (
    KIND_CODES,
    KNOWLEDGE,
    About,
    Ask,
    Corpus,
    Found,
    SearchIndex,
)
from cairn.index.rows import TOKEN_DIMENSIONS
from cairn.language import asking, tongues, words
from cairn.language.asking import fillers, tongue_of
from cairn.retrieval import rank
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.fitting import asks_nothing, by_name_alone, doubt_of, ease_of, rarity
from cairn.retrieval.rank import Legs, Question
from cairn.seams import Clock, Embedder
from cairn.seams.models import TokenVectors
from cairn.types import Message, Scope, Space

if TYPE_CHECKING:
    import numpy as np


_SOLE_ROWS = 6
# What a plain word that one message has to itself counts less than a number or a path, where its meaning is known too.
_PLAIN = 0.5
# Below the first share of words it knows, a model's nearness is chance; from the second on it is fully believed when
# something is to be let through. In order to rank, any meaning is better than none.
_GRASPED, _UNSURE, _SURE = 0.02, 0.45, 0.65
# Languages share words with the model's own ("table", "moment"); what lies near by them is half chance.
_ANOTHER_LANGUAGE = 0.5


@dataclass(frozen=True, slots=True)
class ScopeQuestion:
    """A checked request with everything the steps need."""

    request: SearchRequest
    scope: Scope
    method: str
    count: int
    where: filters.Group
    index: SearchIndex
    corpus: Corpus
    question: Question
    legs: Legs
    allowed: np.ndarray
    now: datetime
    weights: Mapping[str, float]
    trust: float
    pieces: Mapping[str, TokenVectors]
    part: np.ndarray
    covered: np.ndarray
    late: np.ndarray
    ease: float
    doubt: float
    by_name: np.ndarray

    @property
    def by_cosine(self) -> np.ndarray | None:
        """What rows are ranked by where only meaning was asked for; None where more was."""
        return self.legs.cosine if self.method == "vector" else None

    @property
    def idle(self) -> bool:
        """Small talk on its way into a prompt: there is nothing to look for."""
        return self.request.for_injection and asks_nothing(self.request.query[:2000])


@dataclass(frozen=True, slots=True)
class _Meant:
    """A question by its meaning: as asked, in its sender's voice where that is another, and how far nearness is believed."""

    plain: np.ndarray | None = None
    voiced: np.ndarray | None = None
    trust: Callable[[], float] = lambda: 1.0


class Questions:
    """Makes questions ready. Holds nothing but a small cache of their vectors.

    Args:
        settings: All settings.
        clock: What "now" is.
        embedder: Gives the embedder, or None where there is none.
        unprocessed: The messages of a session that are not extracted yet, for a caller limited to some owners;
            `Forbidden` where the session holds words of others.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        embedder: Callable[[], Embedder | None],
        unprocessed: Callable[[Space, str, Collection[str] | None], Sequence[Message]] | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._embedder = embedder
        self._unprocessed = unprocessed
        self._vectors: OrderedDict[tuple[str, str], tuple[np.ndarray, TokenVectors | None]] = OrderedDict()
        self._lock = threading.Lock()

    def ready(
        self,
        request: SearchRequest,
        scope: Scope,
        method: str,
        where: filters.Group,
        index: SearchIndex,
        notes: list[str],
    ) -> ScopeQuestion:
        """`request` ready for `scope`: read, weighed, embedded and put to the index; `notes` takes what is to be said of it."""
        import numpy as np

        about = index.about(scope)
        now = self._clock.now()
        limit = self._settings.search.max_query_terms
        people = request.people if scope.track != KNOWLEDGE else ()
        question = rank.read_question(request.query, about, now=now, zone=self._settings.zone, people=people)
        pieces: dict[str, TokenVectors] = {}
        meant = self._meant(about, question, notes, pieces, method) if method != "keyword" else _Meant()
        # By meaning alone, how well a row fits is asked by those alone who let it decide or are told it.
        fits = method != "vector" or meant.plain is None or request.for_injection or request.explain
        if not fits:
            question = replace(question, terms=())
        counts = index.frequencies(scope, question.terms) if about.rows else {}
        if not counts and question.names and meant.plain is None and not request.for_injection:
            # By words alone, and no other word is held: who is asked about still narrows it down. It answers nothing.
            question = replace(question, terms=question.terms + question.names)
            counts = index.frequencies(scope, question.terms)
        question = replace(question, terms=_without_parts(question.terms, counts))
        empty = fillers(request.query)
        held = counts if request.held is None else request.held
        vague = asking.standing_in(request.query)
        telling = [
            term
            for term in question.terms
            if term not in vague and not _is_empty(term, empty, is_known=term in held)
        ] or question.terms
        # However long a question is, each of its words counts as asked; only those that are held can be looked for.
        weights = {term: rarity(held.get(term, 0)) for term in telling}
        if len(question.terms) > limit:
            known = [term for term in question.terms if term in counts]
            kept = set(sorted(known, key=lambda term: counts[term])[:limit])
            question = replace(question, terms=tuple(term for term in question.terms if term in kept))
        rare = [term for term in question.terms if 0 < counts.get(term, 0) <= _SOLE_ROWS]
        near_by_name = by_name_alone(self._size(request, about))
        # Typed without capitals, any word may be a name: how the memory writes it tells.
        in_small = bool(near_by_name) and asking.may_name_in_small(request.query)
        named = asking.named_in(request.query) if near_by_name and not in_small else frozenset[str]()
        names = [term for term in weights if term in counts and (in_small or term in named)]
        until = None if request.as_of is None else aware(request.as_of, self._settings.zone)
        found = index.legs(
            scope,
            Ask(
                terms=question.terms,
                weights={term: weights[term] for term in question.terms if term in weights},
                rare=list(dict.fromkeys([*rare, *names])),
                plain=meant.plain,
                voiced=meant.voiced,
                where=where,
                hidden=request.include_hidden,
                until_ms=None if until is None else int(until.timestamp() * 1000),
                count=self._wanted(request),
            ),
        )
        corpus, cosine = found.corpus, found.cosine
        if in_small and names:
            written = asking.names_as_written(
                request.query, names, _texts_holding(index, scope, found, names)
            )
            names = [term for term in names if term in written]
        bm25 = None
        if method != "vector" or cosine is None:
            # A match counts as one, however common its word is among a handful of rows.
            bm25 = np.where(found.bm25 > 0, found.bm25 + np.float32(0.05), np.float32(0))
        trust = meant.trust() if cosine is not None and fits else 1.0
        part = _best_part(corpus, cosine, bm25)
        legs = Legs(
            None if cosine is None else corpus.folded(cosine),
            None if bm25 is None else corpus.folded(bm25),
            None
            if bm25 is None
            else _sole_words(found, question, counts, about.rows, trust if cosine is not None else 0.0),
        )
        allowed = found.passing
        if request.limited_to is not None:
            allowed = allowed & self._within_reach(corpus, request.limited_to)
        if request.unheard:
            allowed = allowed & ~_still_said_by(corpus, request.unheard)
        covered = corpus.folded(found.covered / np.float32(sum(weights.values()) or 1.0))
        return ScopeQuestion(
            request, scope, method, count_of(request, self._settings), where, index, corpus, question,
            legs, allowed, now, weights, trust, pieces, part, covered, np.zeros(len(corpus), np.float32),
            *self._leaning(request, about, question, sum(term not in held for term in weights) / max(1, len(weights))),
            near_by_name * _only_named(found, weights, names if len(names) < len(question.terms) else ()),
        )  # fmt: skip

    def _wanted(self, request: SearchRequest) -> int | None:
        """How many rows of a kind the answer shows at most; None where some that are found may not be shown."""
        if request.limited_to is not None or request.unheard:
            return None
        return max(count_of(request, self._settings), request.evidence)

    def _leaning(
        self, request: SearchRequest, about: About, question: Question, unheard: float
    ) -> tuple[float, float]:
        """How much sooner a row is believed for the size of the memory, and how much later for words it never heard.

        Documents are asked about nobody.
        """
        rows = self._size(request, about)
        if about.scope.track == KNOWLEDGE:
            return max(0.0, ease_of(rows, is_meant=question.is_meant)), 0.0
        doubt = 0.0 if question.is_meant else doubt_of(rows, unheard)
        return ease_of(rows, is_meant=question.is_meant), doubt

    @staticmethod
    def _size(request: SearchRequest, about: About) -> int:
        """Among how many rows one is judged: those of all that is asked together; documents by their own number."""
        together = request.among if about.scope.track != KNOWLEDGE else None
        return size_of(about) if together is None else together

    def _within_reach(self, corpus: Corpus, owners: Collection[str]) -> np.ndarray:
        """All rows but the open messages of sessions that hold words of others than `owners`."""
        import numpy as np

        is_open = (corpus.kind == KIND_CODES["message"]) & (corpus.cell < 0)
        out = np.ones(len(corpus), bool)
        for session in np.unique(corpus.session[is_open]).tolist():
            if session < 0 or self.open_part(corpus.scope.space, corpus.sessions[session], owners) is None:
                out &= ~(is_open & (corpus.session == session))
        return out

    def open_part(
        self, space: Space, session: str, limited_to: Collection[str] | None
    ) -> Sequence[Message] | None:
        """What a session holds un-extracted; None where a caller with these limits may not see it."""
        try:
            return self._unprocessed(space, session, limited_to) if self._unprocessed is not None else None
        except Forbidden:
            return None

    def _meant(
        self,
        about: About,
        question: Question,
        notes: list[str],
        pieces: dict[str, TokenVectors],
        method: str,
    ) -> _Meant:
        """The query as vectors: as asked, for entries, and in the sender's voice, for messages; none without meaning.

        The word pieces of both forms of the query go into `pieces`, where the embedder gives them.
        """
        if not about.rows:
            return _Meant()
        embedder = self._embedder()
        if embedder is None:
            notes.append("no embedding model is installed: this answer rests on words alone")
            return _Meant()
        if not about.embedded or about.model != embedder.id:
            notes.append("no vectors of the current model yet: this answer rests on words alone")
            return _Meant()
        try:
            grasp = functools.cache(lambda: embedder.grasps(question.text))
            if method == "hybrid" and grasp() < _GRASPED:
                # A script the model has no words for: what lies near by it does so by chance.
                return _Meant()
            plain, voiced = self._embedded(embedder, [question.text, question.voiced], pieces)
        except Unavailable as error:
            notes.append(f"the embedder cannot answer, so this rests on words alone: {error}")
            return _Meant()
        if about.waiting:
            notes.append("some rows have no vector yet")

        def trust() -> float:
            if embedder.language is not None and tongues.shows(question.text[:2000], embedder.language):
                return 1.0  # a rare word in pieces does not make a plain sentence another language
            sure = min(1.0, max(0.0, (grasp() - _UNSURE) / (_SURE - _UNSURE)))
            return sure if _speaks_it(embedder, question.text) else sure * _ANOTHER_LANGUAGE

        if question.voiced == question.text:
            return _Meant(plain, None, trust)
        # Most entries bear a name, and by the name alone all of a person's are near: it counts for half.
        both = plain + voiced
        return _Meant(both / max(1e-6, float((both @ both) ** 0.5)), voiced, trust)

    def _embedded(
        self, embedder: Embedder, texts: Sequence[str], pieces: dict[str, TokenVectors]
    ) -> list[np.ndarray]:
        """Unit vectors of query texts, and their word pieces; those asked before come from memory."""
        keys = [(embedder.id, text) for text in texts]
        with self._lock:
            have = {key: self._vectors[key] for key in keys if key in self._vectors}
        missing = list(dict.fromkeys(key for key in keys if key not in have))
        if missing:
            asked = [text for _, text in missing]
            if self._settings.index.token_vectors and embedder.token_dimensions == TOKEN_DIMENSIONS:
                fresh, said = embedder.embed_tokens(asked)
                have.update(zip(missing, zip(fresh, said, strict=True), strict=True))
            else:
                have.update(
                    (key, (vector, None)) for key, vector in zip(missing, embedder.embed(asked), strict=True)
                )
            with self._lock:
                self._vectors.update((key, have[key]) for key in missing)
                while len(self._vectors) > 512:
                    self._vectors.popitem(last=False)
        for key in keys:
            known = have[key][1]
            if known is not None:
                pieces[key[1]] = known
        return [have[key][0] for key in keys]


def count_of(request: SearchRequest, settings: Settings) -> int:
    """How many hits a list has at most."""
    return settings.search.top_k if request.top_k == -1 else request.top_k


def size_of(about: About) -> int:
    """How much a memory holds: what was said in it, else what is written."""
    return sum(about.spoken) or about.rows


def _speaks_it(embedder: Embedder | None, text: str) -> bool:
    """Whether a text is in the language the embedder was made for; one that names none is believed to know all."""
    language = embedder.language if embedder else None
    return language is None or tongue_of(text).code == language


def _still_said_by(corpus: Corpus, speakers: Collection[str]) -> np.ndarray:
    """Which rows are messages of these, or passages of such, in a stretch of talk that is not cut yet."""
    import numpy as np

    theirs = np.array([one.id in speakers for one in corpus.senders], bool)
    out = (corpus.sender >= 0) & (corpus.cell < 0)
    out[out] = theirs[corpus.sender[out]]
    return out


def _best_part(corpus: Corpus, cosine: np.ndarray | None, bm25: np.ndarray | None) -> np.ndarray:
    """For each row the place of the passage of it that speaks best to the question; its own where it was not cut."""
    import numpy as np

    best = np.arange(len(corpus))
    at, whole = corpus.parts
    if not len(at):
        return best
    worth = np.zeros(len(corpus), np.float32)
    if cosine is not None:
        worth += cosine / 0.5
    if bm25 is not None:
        worth += bm25 / max(1.0, float(bm25.max()))
    most = corpus.folded(worth)
    better = worth[at] >= most[whole]
    best[whole[better]] = at[better]
    return best


def _is_empty(term: str, empty: Collection[str], *, is_known: bool) -> bool:
    """Whether a token asks nothing: a filler, a compound of fillers, or a pair of characters of two words.

    Among Chinese characters a pair with a filler in it that nobody ever wrote is no word at all.
    """
    if len(term) == 2 and all("\u3400" <= letter <= "\u9fff" for letter in term):
        return (all if is_known else any)(letter in empty for letter in term)
    return all(part in empty or words.stem(part) in empty for part in term.split("_"))


def _without_parts(terms: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    """The words to look for; those of a number or name from code only where it is not known as a whole.

    >>> _without_parts(["status", "4_2_17", "4", "2", "17"], {"4_2_17": 1, "4": 5, "status": 2})
    ('status', '4_2_17')
    """
    known = [term for term in terms if "_" in term and counts.get(term) and any(ch.isdigit() for ch in term)]
    parts = {part for term in known for part in term.split("_")}
    return tuple(term for term in terms if term not in parts) if parts else tuple(terms)


def _texts_holding(index: SearchIndex, scope: Scope, found: Found, terms: Sequence[str]) -> Iterator[str]:
    """The texts of the rows that hold one of these words."""
    places = sorted({int(place) for term in terms for place in found.holding.get(term, ())})
    return (row.text for row in index.rows(scope, found.corpus.rowid[places].tolist()))


def _only_named(found: Found, weights: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Which rows share nothing with the question but a name in it (1.0)."""
    import numpy as np

    held = np.zeros(len(found.corpus), np.float32)
    if not names:
        return held
    for name in names:
        held[found.holding.get(name, [])] += np.float32(weights[name])
    alone = (held > 0) & (found.corpus.folded(found.covered) - found.corpus.folded(held) < 1e-4)
    return np.asarray(alone, np.float32)


def _sole_words(
    found: Found, question: Question, counts: Mapping[str, int], rows: int, known: float
) -> np.ndarray | None:
    """What share of the question each message has to itself: words that no other message holds, rare ones for more.

    One message with the very number, name or path that is asked for is the answer, however alike the others are. Where
    meaning is `known` (0 to 1), plain words are judged by it as well and count for less, the less of the question they
    are: in a small memory most words are in one message only, and what answers may say one of them otherwise, not all.
    """
    import numpy as np

    corpus = found.corpus
    said = corpus.kind == KIND_CODES["message"]
    if not found.holding or int(said.sum()) < 2:
        return None
    weight = {term: float(np.log(1 + rows / (1 + counts.get(term, 0)))) for term in question.terms}
    total = sum(weight.values())
    out, plain = np.zeros(len(corpus), np.float32), np.zeros(len(corpus), np.float32)
    for term, places in found.holding.items():
        wholes = np.unique(corpus.places(corpus.whole[places]))
        wholes = wholes[said[wholes]]
        if len(wholes) == 1:
            out[wholes[0]] += weight[term] / total
            plain[wholes[0]] += term.replace("_", "0").isalpha() * weight[term] / total
    return out - np.float32(_PLAIN * known) * plain * (1 - out) if out.any() else None


def aware(moment: datetime, zone: tzinfo) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
