"""Search: a question about one owner's memory, answered with hits, evidence, or nothing.

    request ─> checked ─> question read against the scope ─> legs: words (BM25), meaning (cosine)
            ─> ranked (rank.py) ─> filtered, gated, cut to size ─> SearchResult with freshness

Scores lie in 0..1. Under `vector` a score is the cosine. Otherwise it is how well a row fits in absolute terms (how
much of the question its words cover, how near its meaning is), the same for every kind of row, so that lists can be put
together. Nothing fits, so nothing is returned: lists are never padded.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cairn.config import Settings
from cairn.errors import Forbidden, Unavailable
from cairn.index import filters
from cairn.index.corpus import (
    AGENT_DOCUMENTS,
    ENDED,
    HIDDEN,
    KIND_CODES,
    KNOWLEDGE,
    SKILL_FILE,
    About,
    Ask,
    Corpus,
    Found,
    Moved,
    Row,
    SearchIndex,
)
from cairn.index.rows import TOKEN_DIMENSIONS
from cairn.language import tongues, words
from cairn.language.asking import fillers, tongue_of
from cairn.language.passages import PASSAGE_BYTES, passages
from cairn.notes.format import list_items
from cairn.retrieval import rank
from cairn.retrieval.answers import FURTHER, SearchRequest, SearchResult, checked, within_budget
from cairn.retrieval.fitting import ease_of, expired, falling, fits_of, rarity, says_nothing, standing
from cairn.retrieval.late import late_matches, weighed
from cairn.retrieval.rank import Legs, Question
from cairn.seams import Clock, Embedder, Writer
from cairn.seams.models import TokenVectors
from cairn.types import Evidence, Freshness, Hit, Message, Scope, Space

if TYPE_CHECKING:
    import numpy as np

    from cairn.retrieval.lexical import ScannedScope

__all__ = ["SearchRequest", "SearchResult", "Searcher"]

_FACTS_PER_EPISODE = 5
_ROWS_KEPT = 4096
_PIECES_KEPT = 2000
_SOLE_ROWS = 6
# Below the first share of words it knows, a model's nearness is chance; from the second on it is fully believed when
# something is to be let through. In order to rank, any meaning is better than none.
_GRASPED, _UNSURE, _SURE = 0.02, 0.45, 0.65
# Languages share words with the model's own ("table", "moment"); what lies near by them is half chance.
_ANOTHER_LANGUAGE = 0.5
_EXCERPT_CHARS, _EXCERPT_MESSAGES = 2 * PASSAGE_BYTES, 3
_GAP = "[…]"
_HYBRID_FLOOR = 0.2
# Which kinds of rows a list holds, where that is more than its own.
ROWS_SHOWN_AS = {"agent_document": AGENT_DOCUMENTS, "agent_skill": ("agent_skill", SKILL_FILE)}
_ARRAYS = {
    "episode": "episodes",
    "agent_case": "agent_cases",
    "agent_skill": "agent_skills",
    "memory": "memories",
    KNOWLEDGE: "knowledge",
    **FURTHER,
}


@dataclass(frozen=True, slots=True)
class _Asked:
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

    @property
    def by_cosine(self) -> np.ndarray | None:
        """What rows are ranked by where only meaning was asked for; None where more was."""
        return self.legs.cosine if self.method == "vector" else None

    @property
    def idle(self) -> bool:
        """Small talk on its way into a prompt: there is nothing to look for."""
        return self.request.for_injection and says_nothing(self.request.query[:2000])


@dataclass(frozen=True, slots=True)
class _Meant:
    """A question by its meaning: as asked, in its sender's voice where that is another, and how far nearness is believed."""

    plain: np.ndarray | None = None
    voiced: np.ndarray | None = None
    trust: Callable[[], float] = lambda: 1.0


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A row in the order of its list: its place in the corpus and among the rows that were ranked, and how well it did.

    `share` compares it with the best of its list by the evidence that ranked them, `fit` says how well it answers, and
    `score` what is shown of that.
    """

    position: int
    place: int
    share: float
    fit: float
    score: float
    row: Row


@dataclass(frozen=True, slots=True)
class _Gate:
    """What verbatim messages have to pass on their way into a prompt: the best of them by rank, and by fit."""

    score: float
    fit: float

    def lets(self, score: float, fit: float, least: float) -> bool:
        """Whether a message passes; where the best does not, none does.

        An answer may share nothing with the question it follows; it passes on the strength of its rank.
        """
        share = score / self.score if self.score > 1e-6 else float(score >= self.score)
        return self.fit >= least and (fit >= 0.6 * least or self.fit * share >= least)


class Searcher:
    """Answers requests. Synchronous and thread-safe; holds nothing but a small cache of query vectors.

    Args:
        index: The reading side of the index, or what gives it for a scope.
        settings: All settings.
        clock: What "now" is.
        embedder: Gives the embedder, or None where there is none: search is then lexical and says so.
        freshness: How far the index is behind the files of a scope.
        wait: Waits until a change (None: every change of the scope so far) is searchable, by meaning too if told so,
            at most so many seconds; False where it is not.
        unprocessed: The messages of a session that are not extracted yet, for a caller limited to some owners;
            `Forbidden` where the session holds words of others.
        writer: A model for the agentic method.
        fallback: An index scanned from the notes, for the time the real one is being rebuilt.
        on_hits: Told which governed memories were returned.
        past: An index of what a scope held at a time; None where nothing was recorded by then.
        on_behind: Told that somebody asks by meaning where rows wait for their vector.
        one_look: Inside of it, what is asked of the index is answered from one state of it.
        generation: Which index this is, as `freshness` tells it.
    """

    def __init__(
        self,
        index: SearchIndex | Callable[[Scope], SearchIndex],
        *,
        settings: Settings,
        clock: Clock,
        embedder: Callable[[], Embedder | None] = lambda: None,
        freshness: Callable[[Scope], Freshness] = lambda _: Freshness(0, 0, "fresh"),
        wait: Callable[[int | None, float, Scope, bool], object] | None = None,
        unprocessed: Callable[[Space, str, Collection[str] | None], Sequence[Message]] | None = None,
        writer: Writer | None = None,
        fallback: Callable[[Scope], ScannedScope | None] | None = None,
        on_hits: Callable[[Scope, Sequence[Hit]], None] | None = None,
        past: Callable[[Scope, datetime], SearchIndex | None] | None = None,
        on_behind: Callable[[], None] = lambda: None,
        one_look: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        generation: Callable[[], str] = str,
    ) -> None:
        self._one_look = one_look
        self._generation = generation
        self._on_behind = on_behind
        self._index: Callable[[Scope], SearchIndex] = index if callable(index) else lambda _: index
        self._settings = settings
        self._clock = clock
        self._embedder = embedder
        self._freshness = freshness
        self._wait = wait
        self._unprocessed = unprocessed
        self._writer = writer
        self._fallback = fallback
        self._on_hits = on_hits
        self._past = past
        self._vectors: OrderedDict[tuple[str, str], tuple[np.ndarray, TokenVectors | None]] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, request: SearchRequest) -> SearchResult:
        """Answer `request`.

        Raises:
            Invalid: the request breaks a rule; the message names the field.
            Unavailable: `consistency="strong"` or `min_lsn` could not be reached in time.
        """
        scope, method, _ = checked(request, self._settings)
        if request.consistency == "strong" or request.min_lsn is not None:
            self._until_seen(request, scope, method)
        if method == "agentic":
            from cairn.retrieval import agentic

            result = agentic.search(self._once, request, self._writer, count=self._count(request))
        else:
            result = self._once(replace(request, method=method))
        if request.enable_llm_rerank and result.episodes:
            from cairn.retrieval import agentic

            result = agentic.reranked(result, request.query, self._writer)
        if self._on_hits is not None and request.is_use and result.memories:
            self._on_hits(scope, result.memories)
        return result

    def held(self, query: str, scopes: Iterable[Scope]) -> dict[str, int]:
        """How many rows of `scopes` hold each word of a question: for requests whose answers are put together."""
        terms = words.query_terms(query, limit=rank.MAX_TERMS)
        total: Counter[str] = Counter()
        for scope in scopes:
            # A scope whose index moves away meanwhile is counted by whoever asks it next.
            with contextlib.suppress(Moved):
                total.update(self._index(scope).frequencies(scope, terms))
        return total

    def size(self, scopes: Iterable[Scope]) -> int:
        """How large the memory of `scopes` is, together: their lists are compared, so each is judged by the size of all.

        Documents are no memory of anybody's; they are judged by their own number.
        """
        total = 0
        for scope in (one for one in scopes if one.track != KNOWLEDGE):
            with contextlib.suppress(Moved):
                total += _size(self._index(scope).about(scope))
        return total

    def has_rows(self, scope: Scope) -> bool:
        """Whether there is anything to ask in a scope, as far as the index knows."""
        try:
            return self._index(scope).about(scope).rows > 0
        except Moved:
            return True

    # ---- one round ------------------------------------------------------------------------------------------

    def _once(self, request: SearchRequest) -> SearchResult:
        while True:
            with contextlib.suppress(Moved):
                with self._one_look():
                    result, generation = self._looked(request)
                if generation is None or self._is_there(generation):
                    return result

    def _is_there(self, generation: str) -> bool:
        """Whether the index did not go away while it was asked; what it said may then be half of the truth."""
        try:
            return self._generation() == generation
        except Unavailable:
            return False

    def _looked(self, request: SearchRequest) -> tuple[SearchResult, str | None]:
        """The answer, and which index it comes from; None where it comes from the notes."""
        scope, method, where = checked(request, self._settings)
        index = self._index(scope)
        fresh = self._behind(self._freshness(scope), index, scope, method)
        notes = list(fresh.notes)
        if fresh.state == "rebuilding" and self._fallback is not None:
            scanned = self._fallback(scope)
            if scanned is not None:
                index = scanned
                notes.append("the index is being rebuilt: this answer comes from a scan of the notes")
                notes += scanned.troubles
        if request.as_of is not None and self._past is not None:
            then = self._past(scope, _aware(request.as_of, self._zone))
            if then is not None:
                index, request = then, replace(request, as_of=None)
                notes.append("this answer comes from what was recorded by then, by its words")
        asked = self._asked(request, scope, method, where, index, notes)
        messages, message_parts = self._message_scores(asked)
        episodes = self._episodes(asked, messages)
        lists: dict[str, Any] = {"episodes": episodes}
        for kind in ("agent_case", "agent_skill", "memory", KNOWLEDGE, *request.kinds):
            lists[_ARRAYS[kind]] = self._entries(asked, kind)
        lists |= self._verbatim(asked, messages, message_parts)
        if request.include_profile:
            lists["agent_documents"] = self._whole_documents(asked, AGENT_DOCUMENTS)
        result = SearchResult(
            **lists,
            profiles=self._whole_documents(asked, ("profile",)) if request.include_profile else (),
            unprocessed_messages=self._open_messages(asked),
            freshness=replace(fresh, notes=tuple(dict.fromkeys(notes))),
            method=method,
            space=scope.space,
            session_id=filters.plain_session(request.filters) or "",
        )
        if request.token_budget is not None:
            result = within_budget(result, request.token_budget)
        return result, None if fresh.state == "rebuilding" else fresh.generation

    def _behind(self, fresh: Freshness, index: SearchIndex, scope: Scope, method: str) -> Freshness:
        """What is said of an answer by meaning: rows that wait for their vector are behind as well."""
        if method == "keyword" or fresh.state == "rebuilding" or self._embedder() is None:
            return fresh
        try:
            waiting = index.about(scope).waiting
        except Moved:
            return fresh
        if not waiting:
            return fresh
        self._on_behind()
        return replace(fresh, pending=fresh.pending + waiting, state="behind")

    def _asked(
        self,
        request: SearchRequest,
        scope: Scope,
        method: str,
        where: filters.Group,
        index: SearchIndex,
        notes: list[str],
    ) -> _Asked:
        import numpy as np

        about = index.about(scope)
        now = self._clock.now()
        limit = self._settings.search.max_query_terms
        question = rank.read_question(request.query, about, now=now, zone=self._zone)
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
        if len(question.terms) > limit:
            known = [term for term in question.terms if term in counts]
            kept = set(sorted(known, key=lambda term: counts[term])[:limit])
            question = replace(question, terms=tuple(term for term in question.terms if term in kept))
        question = replace(question, terms=_without_parts(question.terms, counts))
        empty = fillers(request.query)
        held = counts if request.held is None else request.held
        telling = [
            term for term in question.terms if not _is_empty(term, empty, is_known=term in held)
        ] or question.terms
        weights = {term: rarity(held.get(term, 0)) for term in telling}
        rare = [term for term in question.terms if 0 < counts.get(term, 0) <= _SOLE_ROWS]
        until = None if request.as_of is None else _aware(request.as_of, self._zone)
        found = index.legs(
            scope,
            Ask(
                terms=question.terms,
                weights=weights,
                rare=rare,
                plain=meant.plain,
                voiced=meant.voiced,
                where=where,
                hidden=request.include_hidden,
                until_ms=None if until is None else int(until.timestamp() * 1000),
            ),
        )
        corpus, cosine = found.corpus, found.cosine
        bm25 = None
        if method != "vector" or cosine is None:
            # A match counts as one, however common its word is among a handful of rows.
            bm25 = np.where(found.bm25 > 0, found.bm25 + np.float32(0.05), np.float32(0))
        trust = meant.trust() if cosine is not None and fits else 1.0
        part = _best_part(corpus, cosine, bm25)
        legs = Legs(
            None if cosine is None else corpus.folded(cosine),
            None if bm25 is None else corpus.folded(bm25),
            None if bm25 is None else _sole_words(found, question, counts, about.rows),
        )
        allowed = found.passing
        if request.limited_to is not None:
            allowed = allowed & self._within_reach(corpus, request.limited_to)
        if request.unheard:
            allowed = allowed & ~_still_said_by(corpus, request.unheard)
        covered = corpus.folded(found.covered / np.float32(sum(weights.values()) or 1.0))
        return _Asked(
            request, scope, method, self._count(request), where, index, corpus, question,
            legs, allowed, now, weights, trust, pieces, part, covered, np.zeros(len(corpus), np.float32),
            self._ease(request, about, question),
        )  # fmt: skip

    def _ease(self, request: SearchRequest, about: About, question: Question) -> float:
        """How much sooner a row is believed for the size of the memory it is in; documents are asked about nobody."""
        if about.scope.track == KNOWLEDGE:
            return max(0.0, ease_of(_size(about), is_meant=question.is_meant))
        rows = _size(about) if request.among is None else request.among
        return ease_of(rows, is_meant=question.is_meant)

    def _within_reach(self, corpus: Corpus, owners: Collection[str]) -> np.ndarray:
        """All rows but the open messages of sessions that hold words of others than `owners`."""
        import numpy as np

        is_open = (corpus.kind == KIND_CODES["message"]) & (corpus.cell < 0)
        out = np.ones(len(corpus), bool)
        for session in np.unique(corpus.session[is_open]).tolist():
            if session < 0 or self._open_part(corpus.scope.space, corpus.sessions[session], owners) is None:
                out &= ~(is_open & (corpus.session == session))
        return out

    def _open_part(
        self, space: Space, session: str, limited_to: Collection[str] | None
    ) -> Sequence[Message] | None:
        """What a session holds un-extracted; None where a caller with these limits may not see it."""
        try:
            return self._unprocessed(space, session, limited_to) if self._unprocessed is not None else None
        except Forbidden:
            return None

    def _message_scores(self, asked: _Asked) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The ranking of the messages; the best of them are looked at word piece by word piece."""
        import numpy as np

        scores, parts = rank.message_scores(asked.corpus, asked.legs, asked.question, zone=self._zone)
        pieces = asked.pieces.get(asked.question.voiced)
        if pieces is None or not len(scores) or asked.method == "vector":
            return scores, parts
        talk = rank.talk_of(asked.corpus, self._zone)
        usable = np.where(asked.allowed[talk.at], scores, -np.inf)
        chosen = np.sort(rank.top(usable, max(rank.CANDIDATES, 2 * asked.request.evidence)))
        places = rank.with_before(talk, chosen)
        matches = self._late(asked, talk.at[places], pieces)
        if not matches.any():
            return scores, parts
        late = rank.LateMatches(places, matches, pieces.weights / pieces.weights.sum())
        return rank.reranked(scores, parts, talk, chosen, late)

    def _late(self, asked: _Asked, at: np.ndarray, pieces: TokenVectors) -> np.ndarray:
        """How the rows at `at` match each piece of the question, each by the best of its passages.

        That passage is noted in `asked.part`, how well it matches in all in `asked.late`.
        """
        import numpy as np

        corpus = asked.corpus
        places, whole = corpus.parts
        inside = np.flatnonzero(np.isin(whole, at)) if len(places) else places
        every = np.concatenate([at, places[inside]])
        of = np.concatenate([at, whole[inside]])
        rowids = corpus.rowid[every].tolist()
        kept: dict[int, np.ndarray] = corpus.derived.setdefault("pieces", {})
        missing = [rowid for rowid in rowids if rowid not in kept]
        if missing:
            found = asked.index.token_vectors(asked.scope, missing)
            if len(kept) + len(found) > _PIECES_KEPT:
                kept = corpus.derived["pieces"] = {}
                found = {**found, **asked.index.token_vectors(asked.scope, rowids)}
            kept.update(found)
        matches = late_matches(pieces, [kept.get(rowid) for rowid in rowids])
        scores = weighed(pieces, matches)
        best = np.zeros(len(corpus), np.float32)
        np.maximum.at(best, of, scores)
        chosen = np.zeros(len(corpus), np.int64)
        for number, (place, row, score) in enumerate(
            zip(every.tolist(), of.tolist(), scores.tolist(), strict=True)
        ):
            if score >= best[row]:
                chosen[row] = number
                if score > 0:
                    asked.part[row] = place
        asked.late[at] = best[at]
        return np.asarray(matches[chosen[at]])

    def _look_closer(self, asked: _Asked, at: np.ndarray) -> None:
        """Match the entries at `at` with the question word piece by word piece, for how well they fit.

        By meaning alone nothing is ranked or shown by that, unless it is asked for.
        """
        if asked.by_cosine is not None and not (asked.request.for_injection or asked.request.explain):
            return
        pieces = asked.pieces.get(asked.question.text)
        if pieces is not None and len(at):
            self._late(asked, at, pieces)

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

        return _Meant(plain, None if question.voiced == question.text else voiced, trust)

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

    # ---- lists ----------------------------------------------------------------------------------------------

    def _episodes(self, asked: _Asked, messages: np.ndarray) -> tuple[Hit, ...]:
        import numpy as np

        talk = rank.talk_of(asked.corpus, self._zone)
        scores, parts = rank.episode_scores(
            asked.corpus, asked.legs, asked.question, messages, zone=self._zone
        )
        touched = self._touched_episodes(asked, talk)
        alone = np.ones(len(talk.episodes), bool)
        alone[talk.episode[talk.episode >= 0]] = False

        def fits(places: np.ndarray) -> np.ndarray:
            # A long text fits by the best of what was said in it; what was written about it counts where nothing was.
            out = np.zeros(len(talk.episodes), np.float32)
            inside = np.flatnonzero(np.isin(talk.episode, places))
            np.maximum.at(out, talk.episode[inside], self._fits(asked, talk.at[inside]))
            written = places[alone[places]]
            self._look_closer(asked, talk.episodes[written])
            out[written] = self._fits(asked, talk.episodes[written])
            return np.asarray(out[places])

        ranked = self._ranked(asked, talk.episodes, scores, asked.count, touched=touched, fits=fits)
        hits = self._excerpts(asked, talk, messages, self._hits(asked, ranked[: asked.count], parts))
        return tuple(self._with_facts(asked, hits))

    def _excerpts(
        self, asked: _Asked, talk: rank.TalkOrder, messages: np.ndarray, hits: Sequence[tuple[int, Hit]]
    ) -> list[tuple[int, Hit]]:
        """Long episodes as their summary and the few things said in them that speak to the question best."""
        import numpy as np

        long = [
            position for position, hit in hits if len(str(hit.fields.get("Content", ""))) > _EXCERPT_CHARS
        ]
        said: dict[int, list[int]] = {}
        for position in long:
            mine = (talk.cell == asked.corpus.cell[position]) & (talk.cell >= 0)
            inside = np.flatnonzero(mine & asked.allowed[talk.at])
            best = inside[np.argsort(-messages[inside], kind="stable")[:_EXCERPT_MESSAGES]]
            said[position] = [int(talk.at[place]) for place in np.sort(best)]
        wanted = {at for places in said.values() for at in places}
        rowids = [int(asked.corpus.rowid[at]) for at in wanted]
        rowids += [int(asked.corpus.rowid[asked.part[at]]) for at in wanted]
        rows = self._rows(asked, rowids) if rowids else {}
        out = []
        for position, hit in hits:
            if position not in said:
                out.append((position, hit))
                continue
            told = []
            for at in said[position]:
                row = rows.get(int(asked.corpus.rowid[at]))
                if row is not None:
                    text, _ = _passage(row, rows.get(int(asked.corpus.rowid[asked.part[at]]), row))
                    told.append(f"{row.sender_name or ''.join(row.sender_ids)}: {text}")
            whole = str(hit.fields["Content"])
            content = f"\n{_GAP}\n".join(told) or whole[: passages(whole)[0].end] + _GAP
            heads = [str(hit.fields.get(name, "")) for name in ("Subject", "Summary")]
            text = "\n".join([*(head for head in heads if head and head not in content), content])
            fields = {**hit.fields, "Content": content, "of": len(whole)}
            out.append((position, replace(hit, text=text, fields=fields)))
        return out

    def _touched_episodes(self, asked: _Asked, talk: rank.TalkOrder) -> np.ndarray:
        """Episodes of which a message or a fact, if not they themselves, speaks to the question."""
        import numpy as np

        out = np.array(self._speaks(asked, talk.episodes), bool)
        facts = asked.corpus.of_kinds("atomic_fact")
        for at in (talk.at, facts[asked.allowed[facts]]):
            episode = talk.by_cell[asked.corpus.cell[at]]
            out[episode[self._speaks(asked, at) & (episode >= 0)]] = True
        return out

    def _with_facts(self, asked: _Asked, hits: Sequence[tuple[int, Hit]]) -> list[Hit]:
        """Each episode with the facts of its stretch of talk that speak to the question."""
        import numpy as np

        corpus = asked.corpus
        facts = corpus.of_kinds("atomic_fact")
        if not len(facts) or not hits:
            return [hit for _, hit in hits]
        facts = facts[asked.allowed[facts] & self._speaks(asked, facts)]
        scores, parts = rank.entry_scores(corpus, asked.legs, asked.question, facts, zone=self._zone)
        cells = {int(corpus.cell[position]) for position, _ in hits} - {-1}
        near = np.isin(corpus.cell[facts], np.array(sorted(cells), np.int32))
        # The best facts of all these episodes, no more than a few of one: an answer is read, not filed.
        chosen: dict[int, list[int]] = {cell: [] for cell in cells}
        for place in rank.top(np.where(near, scores, -np.inf), 4 * asked.count):
            mine = chosen[int(corpus.cell[facts[place]])]
            if len(mine) < _FACTS_PER_EPISODE and sum(map(len, chosen.values())) < 2 * asked.count:
                mine.append(int(place))
        picked = np.array([place for mine in chosen.values() for place in mine], np.int64)
        shares = {name: part[picked] for name, part in parts.items()}
        found = dict(
            self._hits(asked, self._ranked(asked, facts[picked], scores[picked], len(picked)), shares)
        )
        out = []
        for position, hit in hits:
            mine = chosen.get(int(corpus.cell[position]), [])
            out.append(
                replace(hit, facts=tuple(found[int(facts[p])] for p in mine if int(facts[p]) in found))
            )
        return out

    def _entries(self, asked: _Asked, kind: str) -> tuple[Hit, ...]:
        import numpy as np

        kinds = ROWS_SHOWN_AS.get(kind, (kind,))
        at = asked.corpus.of_kinds(*kinds)
        if not len(at):
            return ()
        scores, parts = rank.entry_scores(asked.corpus, asked.legs, asked.question, at, zone=self._zone)
        if kind != "memory":
            ranked = self._ranked(asked, at, scores, asked.count)
            return tuple(hit for _, hit in self._hits(asked, ranked[: asked.count], parts))
        pool = [
            replace(one, share=one.share * worth, score=one.score * worth)
            for one in self._ranked(asked, at, scores, max(40, 8 * asked.count))
            for worth in [standing(one.row, asked.now)]
        ]
        pool.sort(key=lambda one: -one.share)
        if len(pool) > asked.count and asked.corpus.vectors is not None:
            vectors = asked.corpus.vectors[[one.position for one in pool]]
            kept = rank.diverse(np.array([one.share for one in pool], np.float32), vectors, asked.count)
            pool = [pool[place] for place in sorted(kept)]
        return tuple(hit for _, hit in self._hits(asked, pool[: asked.count], parts))

    def _ranked(
        self,
        asked: _Asked,
        at: np.ndarray,
        scores: np.ndarray,
        count: int,
        *,
        touched: np.ndarray | None = None,
        fits: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> list[_Ranked]:
        """The best `count` of the rows at `at`, best first, after every rule that can drop one; a few to spare.

        `fits` says how well those at some places of `at` answer, where that is not judged by the rows' own words and
        meaning.
        """
        import numpy as np

        if asked.idle:
            return []
        usable = asked.allowed[at] & (self._speaks(asked, at) if touched is None else touched)
        if asked.by_cosine is not None:
            scores = asked.by_cosine[at]
        # Only memories expire between being indexed and being asked for: a few more make up for those.
        spare = count + 10 if (asked.corpus.kind[at] == KIND_CODES["memory"]).any() else 0
        ranked = rank.top(np.where(usable, scores, -np.inf), count + spare)
        if fits is None:
            self._look_closer(asked, at[ranked])
        rows = self._rows(asked, asked.corpus.rowid[at[ranked]].tolist())
        fitting = fits(ranked) if fits is not None else self._fits(asked, at[ranked])
        best = max(1e-6, float(scores[ranked[0]])) if len(ranked) else 1.0
        out = []
        for place, fit in zip(ranked.tolist(), fitting.tolist(), strict=True):
            row = rows.get(int(asked.corpus.rowid[at[place]]))
            if row is None or expired(row, asked.now):
                continue
            if asked.request.for_injection and (
                fit < self._settings.search.injection_min_score or says_nothing(row.text)
            ):
                continue
            share = max(0.05, float(scores[place]) / best)
            score = fit if asked.by_cosine is None else min(1.0, max(0.0, float(scores[place])))
            out.append(_Ranked(int(at[place]), place, share, fit, score, row))
        return out

    def _hits(
        self, asked: _Asked, ranked: Sequence[_Ranked], parts: Mapping[str, np.ndarray]
    ) -> list[tuple[int, Hit]]:
        """Ranked rows as (position, hit), with scores that fall in their order."""
        out = []
        for one, shown in zip(ranked, falling([one.score for one in ranked]), strict=True):
            if asked.request.min_score is not None and shown < asked.request.min_score:
                continue
            explain = (
                self._explained(asked, one.position, parts, one.place, one.fit)
                if asked.request.explain
                else None
            )
            out.append((one.position, _hit(one.row, shown, explain)))
        return out

    def _rows(self, asked: _Asked, rowids: Sequence[int]) -> dict[int, Row]:
        """Rows by rowid. They stay with the corpus, which is another one as soon as a row changes."""
        kept: dict[int, Row] = asked.corpus.derived.setdefault("rows", {})
        missing = [rowid for rowid in rowids if rowid not in kept]
        if len(kept) + len(missing) > _ROWS_KEPT:
            kept = asked.corpus.derived["rows"] = {}
            missing = list(rowids)
        if missing:
            kept.update((row.rowid, row) for row in asked.index.rows(asked.scope, missing))
        return {rowid: kept[rowid] for rowid in rowids if rowid in kept}

    def _speaks(self, asked: _Asked, at: np.ndarray) -> np.ndarray:
        """Which of these rows say anything to the question: a shared word, or a meaning near enough."""
        import numpy as np

        radius = asked.request.radius
        out = np.zeros(len(at), bool)
        if asked.legs.bm25 is not None:
            out |= asked.legs.bm25[at] > 0
        if asked.legs.cosine is not None:
            floor = radius if radius is not None else (-1.0 if asked.method == "vector" else _HYBRID_FLOOR)
            out |= (asked.legs.cosine[at] >= floor) & asked.corpus.has_vector[at]
        return out

    def _fits(self, asked: _Asked, at: np.ndarray) -> np.ndarray:
        """How well the rows at `at` answer, in absolute terms: words covered and nearness, 0..1."""
        near = None if asked.legs.cosine is None else asked.legs.cosine[at]
        return fits_of(
            near,
            asked.covered[at],
            asked.late[at],
            length=asked.corpus.length[asked.part[at]],
            words_asked=len(asked.weights),
            trust=asked.trust,
            is_named=asked.question.is_named,
            is_order=asked.question.is_order,
            ease=asked.ease,
        )

    def _explained(
        self, asked: _Asked, position: int, parts: Mapping[str, np.ndarray], place: int, fitting: float
    ) -> dict[str, float]:
        out = {f"part.{name}": round(float(values[place]), 4) for name, values in parts.items()}
        if asked.legs.cosine is not None:
            out["cosine"] = round(float(asked.legs.cosine[position]), 4)
        if asked.legs.bm25 is not None:
            out["bm25"] = round(float(asked.legs.bm25[position]), 4)
        out["fit"] = round(fitting, 4)
        return out

    def _whole_documents(self, asked: _Asked, kinds: Sequence[str]) -> tuple[Hit, ...]:
        """The owner's profile, or an agent's documents, whatever the question: asked for, not searched."""
        if asked.where:
            return ()
        at = asked.corpus.of_kinds(*kinds)
        rows = asked.index.rows(asked.scope, asked.corpus.rowid[at[asked.allowed[at]]].tolist())
        return tuple(_hit(row, 1.0, None) for row in rows)

    def _open_messages(self, asked: _Asked) -> tuple[Message, ...]:
        """What a plainly named session holds un-extracted, for an owner who takes part in it."""
        session = filters.plain_session(asked.request.filters)
        if session is None:
            return ()
        found = tuple(self._open_part(asked.scope.space, session, asked.request.limited_to) or ())
        takes_part = asked.index.takes_part(asked.scope, session) or any(
            m.sender_id == asked.scope.owner for m in found
        )
        return found if takes_part else ()

    def _verbatim(self, asked: _Asked, scores: np.ndarray, parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The best messages, as many as were asked for, and beside them the best of those that are in no episode yet."""
        import numpy as np

        count = asked.request.evidence
        talk = rank.talk_of(asked.corpus, self._zone)
        if not len(talk) or asked.idle:
            return {"evidence": () if count else None}
        if asked.by_cosine is not None:
            scores = asked.by_cosine[talk.at]
        usable, speaks = asked.allowed[talk.at], self._speaks(asked, talk.at)
        is_open = talk.cell < 0
        loud = usable & (speaks | (talk.before(speaks.astype(np.float32)) > 0))
        lists = asked.question.wants_several and asked.by_cosine is None and len(talk.starts) > 1
        best = rank.top(
            np.where(loud if asked.legs.cosine is None else usable, scores, -np.inf),
            max(1, 3 * count if lists else count),
        )
        first = int(best[0]) if len(best) else -1
        chosen = rank.spread(best.tolist(), scores, talk, count) if lists else best[:count].tolist()
        if asked.by_cosine is None and asked.legs.cosine is not None and asked.corpus.vectors is not None:
            chosen, scores = rank.newer_first(chosen, scores, talk, asked.corpus.vectors)
            first = chosen[0] if chosen else first
        chosen, over = self._ended(asked, talk, chosen)
        more = [
            place
            for place in rank.top(np.where(usable & speaks & is_open, scores, -np.inf), asked.count).tolist()
            if place not in chosen
        ]
        if first < 0:
            return {"evidence": () if count else None}
        lead = talk.at[[*(chosen or more)[:3], first]]
        gate = _Gate(float(scores[first]), float(self._fits(asked, lead).max()))
        return {
            "evidence": self._evidence(asked, chosen, gate, scores, parts, over) if count else None,
            "unflushed": self._evidence(asked, more, gate, scores, parts, {}),
        }

    def _ended(
        self, asked: _Asked, talk: rank.TalkOrder, places: Sequence[int]
    ) -> tuple[list[int], dict[int, Row]]:
        """`places` with what is over behind what ended it, and for each such place the fact of it that is over."""
        import numpy as np

        corpus, order = asked.corpus, list(places)
        cells = talk.cell[order][talk.cell[order] >= 0]
        facts = corpus.of_kinds("atomic_fact")
        facts = facts[np.isin(corpus.cell[facts], cells) & (corpus.flags[facts] & HIDDEN == 0)]
        if not (corpus.flags[facts] & ENDED).any():
            return order, {}
        rows = self._rows(asked, corpus.rowid[[*facts, *talk.at[order]]].tolist())
        said = {
            row.entry_id: place
            for place in order
            if (row := rows.get(int(corpus.rowid[talk.at[place]]))) is not None
        }
        stated: dict[str, int] = {}
        over: dict[int, Row] = {}
        for rowid in corpus.rowid[facts].tolist():
            fact = rows.get(rowid)
            for name in list_items(str(fact.fields.get("message_ids", ""))) if fact is not None else ():
                if name in said and fact is not None:
                    stated[fact.entry_id] = said[name]
                    if fact.fields.get("superseded_by"):
                        over[said[name]] = fact
        for place, fact in over.items():
            newer = stated.get(str(fact.fields["superseded_by"]), place)
            if order.index(newer) > order.index(place):
                order.remove(place)
                order.insert(order.index(newer) + 1, place)
        return order, over

    def _evidence(
        self,
        asked: _Asked,
        places: Sequence[int],
        best: _Gate,
        scores: np.ndarray,
        parts: Mapping[str, np.ndarray],
        over: Mapping[int, Row],
    ) -> tuple[Evidence, ...]:
        """The messages at `places` of the talk, best first, that pass every rule."""
        import numpy as np

        corpus, talk = asked.corpus, rank.talk_of(asked.corpus, self._zone)
        at = talk.at[np.array(places, np.int64)]
        about = {
            place: int(corpus.rowid[talk.episodes[talk.episode[place]]])
            for place in places
            if talk.episode[place] >= 0
        }
        wanted = corpus.rowid[at].tolist()
        inside = corpus.rowid[asked.part[at]].tolist()
        rows = self._rows(asked, [*wanted, *inside, *sorted(set(about.values()))])
        fits = self._fits(asked, at).tolist()
        shown = falling(fits if asked.by_cosine is None else np.clip(asked.by_cosine[at], 0.0, 1.0).tolist())
        out = []
        for place, rowid, part, fit, score in zip(places, wanted, inside, fits, shown, strict=True):
            row = rows.get(rowid)
            if row is None or (asked.request.min_score is not None and score < asked.request.min_score):
                continue
            if asked.request.for_injection and (
                not best.lets(float(scores[place]), fit, self._settings.search.injection_min_score)
                or says_nothing(row.text)
            ):
                continue
            text, passage = _passage(row, rows.get(part, row))
            linked = rows.get(about.get(place, -1))
            explain = (
                self._explained(asked, int(talk.at[place]), parts, place, fit)
                if asked.request.explain
                else None
            )
            out.append(
                Evidence(
                    session_id=row.session_id or "",
                    message_id=row.entry_id,
                    timestamp=datetime.fromtimestamp(row.timestamp_ms / 1000, UTC),
                    sender_id=row.sender_ids[0] if row.sender_ids else "",
                    sender_name=row.sender_name,
                    text=text,
                    score=round(score, 6),
                    passage=passage,
                    entry_ids=(linked.entry_id,) if linked is not None else (),
                    tags=row.fields.get("tags") or (),
                    metadata=row.fields.get("metadata"),
                    explain=explain,
                    unflushed=row.cell_id is None,
                    earlier=_hit(over[place], score, None) if place in over else None,
                )
            )
        return tuple(out)

    # ---- checks ---------------------------------------------------------------------------------------------

    @property
    def _zone(self) -> Any:
        return self._settings.zone

    def _count(self, request: SearchRequest) -> int:
        return self._settings.search.top_k if request.top_k == -1 else request.top_k

    def _until_seen(self, request: SearchRequest, scope: Scope, method: str) -> None:
        if self._wait is None:
            return
        lsn = None if request.consistency == "strong" else request.min_lsn
        # Words are searchable as soon as rows are; meaning needs the vectors too.
        reached = self._wait(lsn, request.wait_seconds, scope, method != "keyword")
        # While the index is rebuilt, the scan of the notes that answers instead has seen everything.
        scanning = self._fallback is not None and self._freshness(scope).state == "rebuilding"
        if reached is False and not scanning:
            what = "every change so far" if lsn is None else f"change {lsn}"
            raise Unavailable(
                f"The index has not reached {what} within {request.wait_seconds:g} s: ask again, or without strong "
                "consistency.",
                lsn=lsn,
            )


def _size(about: About) -> int:
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


def _sole_words(found: Found, question: Question, counts: Mapping[str, int], rows: int) -> np.ndarray | None:
    """What share of the question each message has to itself: words that no other message holds, rare ones for more.

    One message with the very number, name or path that is asked for is the answer, however alike the others are.
    """
    import numpy as np

    corpus = found.corpus
    said = corpus.kind == KIND_CODES["message"]
    if not found.holding or int(said.sum()) < 2:
        return None
    weight = {term: float(np.log(1 + rows / (1 + counts.get(term, 0)))) for term in question.terms}
    out = np.zeros(len(corpus), np.float32)
    for term, places in found.holding.items():
        wholes = np.unique(corpus.places(corpus.whole[places]))
        wholes = wholes[said[wholes]]
        if len(wholes) == 1:
            out[wholes[0]] += weight[term]
    total = sum(weight.values())
    return out / np.float32(total) if out.any() else None


def _passage(row: Row, part: Row) -> tuple[str, tuple[int, int, int] | None]:
    """What is shown of a row: the passage `part` of it, with its place in the whole; all of a text that was not cut."""
    place = part.fields.get("passage")
    if not place:
        return row.text, None
    start, end, of = (int(number) for number in place)
    return row.text[start:end].strip(), (start, end, of)


def _hit(row: Row, score: float, explain: Mapping[str, float] | None) -> Hit:
    return Hit(
        kind=row.kind,
        scope=row.scope,
        entry_id=row.entry_id,
        path=row.path,
        score=round(score, 6),
        timestamp=datetime.fromtimestamp(row.timestamp_ms / 1000, UTC) if row.timestamp_ms else None,
        session_id=row.session_id,
        text=row.text,
        fields={**row.fields, "sender_ids": list(row.sender_ids)},
        explain=explain,
    )


def _aware(moment: datetime, zone: Any) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
