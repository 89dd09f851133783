"""Search: a question about one owner's memory, answered with hits, evidence, or nothing.

    request ─> checked ─> question read against who speaks in the scope ─> its words, rare ones for more, and its vectors
            ─> one call of the index: words (BM25), meaning (cosine), filter ─> `ScopeQuestion`
            ─> ranked (rank.py) ─> filtered, gated, cut to size (lists.py) ─> SearchResult with freshness

Scores lie in 0..1. Under `vector` a score is the cosine. Otherwise it is how well a row fits in absolute terms (how
much of the question its words cover, how near its meaning is), the same for every kind of row, so that lists can be put
together. Nothing fits, so nothing is returned: lists are never padded.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
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
    TOKEN_DIMENSIONS,
    About,
    Ask,
    Corpus,
    Found,
    Moved,
    Pages,
    SearchIndex,
    knowledge_scope,
)
from cairn.index.embedding_text import about_whom, names_any, question_text, spoken_names
from cairn.language import asking, dates, spans, tongues, words
from cairn.retrieval.answers import ARRAYS, SearchRequest, SearchResult, checked, within_budget
from cairn.retrieval.fitting import anew_of, asks_nothing, by_name_alone, doubt_of, ease_of, rarity
from cairn.retrieval.lists import ScopeQuestion, current_memories
from cairn.retrieval.rank import Legs, Question
from cairn.seams import Clock, Embedder, Writer
from cairn.seams.models import TokenVectors
from cairn.types import Freshness, Hit, Message, Scope, Space

if TYPE_CHECKING:
    import numpy as np

    from cairn.retrieval.lexical import ScannedScope

__all__ = ["SearchRequest", "SearchResult", "Searcher"]

_MAX_TERMS = 8192
# Senders by whose name a question is narrowed down: so many, each with such a share of the talk.
_AUTHOR_MAX_SENDERS, _AUTHOR_MIN_SHARE = 8, 0.1
_LONGEST_RANGE = 93
# From this nearness on a row without a word of the question says something to it.
_HYBRID_FLOOR = 0.2
_EPOCH = date(1970, 1, 1).toordinal()
_MONTH = re.compile("|".join(spans.MONTHS), re.IGNORECASE)
_SOLE_ROWS = 6
# What a plain word that one message has to itself counts less than a number or a path, where its meaning is known too.
_PLAIN = 0.5
# Below the first share of words it knows, a model's nearness is chance; from the second on it is fully believed when
# something is to be let through. In order to rank, any meaning is better than none.
_GRASPED, _UNSURE, _SURE = 0.02, 0.45, 0.65
# Languages share words with the model's own ("table", "moment"); what lies near by them is half chance.
_ANOTHER_LANGUAGE = 0.5
# How far `anew_of` counts for a model without word pieces.
_BY_VECTOR_ALONE = 0.5
# So many who speak are told by their names; among more, a name is a word like others.
_MOST_PEOPLE = 32
_ARRAYS = {**ARRAYS, "memory": "memories", KNOWLEDGE: "knowledge"}


class Searcher:
    """Answers requests. Synchronous and thread-safe.

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
        pages: The rows by their time, for questions that ask for everything; without it they are asked like others.
        on_hits: Told which governed memories were returned.
        past: An index of what a scope held at a time; None where nothing was recorded by then.
        opposed: The live memories of a scope that say otherwise than one of them, and since when each is there.
        on_asked: Told whose memory is asked, before anything is looked at.
        on_behind: Told that somebody asks by meaning where rows wait for their vector.
        one_look: Inside of it, what is asked of the index is answered from one state of it.
        generation: Which index this is, as `freshness` tells it.
        at_once: How many threads rank at the same time.
    """

    def __init__(
        self,
        index: SearchIndex | Callable[[Scope], SearchIndex],
        *,
        settings: Settings,
        clock: Clock,
        embedder: Callable[[], Embedder | None] = lambda: None,
        freshness: Callable[[Scope], Freshness] = lambda _: Freshness(0, 0, "fresh"),
        wait: Callable[[int | None, float, Scope, bool], object] = lambda *_: True,
        unprocessed: Callable[[Space, str, Collection[str] | None], Sequence[Message]] | None = None,
        writer: Writer | None = None,
        fallback: Callable[[Scope], ScannedScope | None] | None = None,
        pages: Pages | None = None,
        on_hits: Callable[[Scope, Sequence[Hit]], None] | None = None,
        past: Callable[[Scope, datetime], ScannedScope | None] | None = None,
        opposed: Callable[[Scope, str], Sequence[tuple[str, datetime | None]]] = lambda *_: (),
        on_asked: Callable[[Scope], None] = lambda _: None,
        on_behind: Callable[[], None] = lambda: None,
        one_look: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        generation: Callable[[], str] = str,
        at_once: int = 2,
    ) -> None:
        self._one_look = one_look
        # More threads than cores only take the interpreter from each other, at every row that is read.
        self._turns = threading.Semaphore(at_once)
        self._generation = generation
        self._on_asked = on_asked
        self._on_behind = on_behind
        self._index: Callable[[Scope], SearchIndex] = index if callable(index) else lambda _: index
        self._settings = settings
        self._embedder = embedder
        self._freshness = freshness
        self._wait = wait
        self._clock = clock
        self._unprocessed = unprocessed
        self._vectors: OrderedDict[tuple[str, str], tuple[np.ndarray, TokenVectors | None]] = OrderedDict()
        self._guard = threading.Lock()
        self._writer = writer
        self._fallback = fallback
        self._pages = pages
        self._on_hits = on_hits
        self._past = past
        self._opposed = opposed

    def search(self, request: SearchRequest) -> SearchResult:
        """Answer `request`.

        Raises:
            Invalid: the request breaks a rule; the message names the field.
            Unavailable: `consistency="strong"` or `min_lsn` could not be reached in time.
        """
        scope = request.scope
        method, where = checked(request, self._settings)
        if request.consistency == "strong" or request.min_lsn is not None:
            self._until_seen(request, scope, method)
        self._on_asked(scope)
        if method == "agentic" or request.enable_llm_rerank:
            from cairn.retrieval import agentic
        if method == "agentic":
            result = agentic.search(
                lambda one: self._once(one, scope, one.method, where),
                request,
                self._writer,
                count=self._settings.search.top_k if request.top_k == -1 else request.top_k,
            )
        else:
            result = self._once(request, scope, method, where)
        if request.enable_llm_rerank and result.episodes:
            result = agentic.reranked(result, request.query, self._writer)
        if self._on_hits is not None and request.is_use and result.memories:
            self._on_hits(scope, result.memories)
        return result

    def together(self, query: str, scopes: Iterable[Scope]) -> dict[str, Any]:
        """What requests share whose answers are put together, as fields of theirs: `held`, `among` and `people`.

        Documents are no memory of anybody's; they are judged by their own number.
        """
        terms = words.query_terms(query, limit=_MAX_TERMS)
        held: Counter[str] = Counter()
        among = 0
        people: dict[tuple[str, str | None], None] = {}
        for scope in scopes:
            # A scope whose index moves away meanwhile is counted by whoever asks it next.
            with contextlib.suppress(Moved):
                index: SearchIndex
                try:
                    index = self._index(scope)
                    about = index.about(scope)
                except Unavailable:  # then the notes answer: see `_looked`
                    if self._fallback is None or (scanned := self._fallback(scope)) is None:
                        raise
                    index, about = scanned, scanned.about(scope)
                held.update(index.frequencies(scope, terms))
                among += _size_of(about) if scope.track != KNOWLEDGE else 0
                people.update(dict.fromkeys((one.id, one.name) for one in about.senders))
        return {"held": held, "among": among, "people": tuple(people) if len(people) <= _MOST_PEOPLE else ()}

    def has_rows(self, scope: Scope) -> bool:
        """Whether there is anything to ask in a scope, as far as the index knows."""
        try:
            with self._one_look():
                return self._index(scope).about(scope).rows > 0
        except Moved:
            return True

    # ---- one round ------------------------------------------------------------------------------------------

    def _once(self, request: SearchRequest, scope: Scope, method: str, where: filters.Group) -> SearchResult:
        while True:
            with contextlib.suppress(Moved):
                with self._one_look():
                    result, generation = self._looked(request, scope, method, where)
                # An index that went away while it was asked may have said half of the truth.
                with contextlib.suppress(Unavailable):
                    if generation is None or self._generation() == generation:
                        return result

    def _looked(
        self, request: SearchRequest, scope: Scope, method: str, where: filters.Group
    ) -> tuple[SearchResult, str | None]:
        """The answer, and which index it comes from; None where it comes from the notes."""
        index = self._index(scope)
        pages = self._pages
        fresh = self._freshness(scope)
        notes = list(fresh.notes)
        is_scanned = fresh.state == "rebuilding"
        if is_scanned and self._fallback is not None:
            scanned = self._fallback(scope)
            if scanned is not None:
                index = pages = scanned
                notes.append("the index is being rebuilt: this answer comes from a scan of the notes")
                notes += scanned.troubles
        about = index.about(scope)
        if method != "keyword" and not is_scanned and about.waiting and self._embedder() is not None:
            # By meaning, rows that wait for their vector are behind as well.
            self._on_behind()
            fresh = replace(fresh, pending=fresh.pending + about.waiting, state="behind")
        if request.as_of is not None and self._past is not None:
            then = self._past(scope, _aware(request.as_of, self._settings.zone))
            if then is not None:
                index = pages = then
                request, about = replace(request, as_of=None), then.about(scope)
                notes.append("this answer comes from what was recorded by then, by its words")
        asked = self._ready(request, scope, method, where, index, about, notes)
        with self._turns:
            messages, message_parts = asked.message_scores()
            lists: dict[str, Any] = {"episodes": asked.episodes(messages)}
            for kind in ("agent_case", "agent_skill", "memory", KNOWLEDGE, *request.kinds):
                lists[_ARRAYS[kind]] = asked.entries(kind)
            lists |= asked.verbatim(messages, message_parts)
            if request.include_profile:
                lists["profiles"] = asked.whole_documents(("profile",))
                lists["agent_documents"] = asked.whole_documents(AGENT_DOCUMENTS)
            lists |= self._whole(pages, asked, about, lists)
            if not asked.question.wants_former:
                lists["memories"] = current_memories(lists["memories"], self._opposed)
        session = filters.plain_session(request.filters)
        result = SearchResult(
            **lists,
            unprocessed_messages=() if session is None else self._open_messages(asked, session),
            freshness=replace(fresh, notes=tuple(dict.fromkeys(notes))),
            method=method,
            space=scope.space,
            session_id=session or "",
            has_documents=None
            if is_scanned or scope.track == KNOWLEDGE
            else self._has_documents(scope.space),
        )
        if request.token_budget is not None:
            result = within_budget(result, request.token_budget)
        return result, None if is_scanned else fresh.generation

    def _has_documents(self, space: Space) -> bool | None:
        """Whether a space has documents; within the look of a question this reads nothing more."""
        scope = knowledge_scope(space)
        try:
            return self._index(scope).about(scope).rows > 0
        except (Moved, Unavailable):
            return None

    def _whole(
        self, pages: Pages | None, asked: ScopeQuestion, about: About, lists: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What stands in the place of ranked lists where a question asks for everything; nothing for any other."""
        request, zone = asked.request, self._settings.zone
        read = asking.read(request.query)
        wanted = read.whole
        if wanted is None or pages is None or request.as_of is not None or asked.scope.track == KNOWLEDGE:
            return {}
        from cairn.retrieval import whole

        days = _named_days(read.times, asked.now, about, zone)
        told = whole.answer(
            pages,
            asked.scope,
            request,
            wanted,
            about,
            where=asked.where,
            days=days,
            count=asked.count,
            now=asked.now,
            zone=zone,
        )
        if told is None:
            return {}
        if wanted.kind == "then" and not told.episodes:
            # What happened on a day may have been told later: it is looked for like anything else.
            found = {name: lists[name] for name in ("episodes", "evidence", "unflushed") if name in lists}
            kept = {name: whole.by_more_than_numbers(ones, request.query) for name, ones in found.items()}
            return {**kept, "whole": "" if any(kept.values()) else told.label}
        out: dict[str, Any] = {"episodes": told.episodes, "whole": told.label}
        if told.profiles:
            out["profiles"] = told.profiles
        if told.memories is not None:
            out["memories"] = told.memories
        said = [one for one in lists["evidence"] or () if told.holds(one.timestamp, zone)]
        if request.for_injection and lists["evidence"] is not None and wanted.kind != "then":
            out["evidence"] = tuple(said)
        is_bound = bool(days)
        out["unflushed"] = tuple(
            one for one in asked.open_talk(asked.count) if not is_bound or told.holds(one.timestamp, zone)
        )
        return out

    def _open_messages(self, asked: ScopeQuestion, session: str) -> tuple[Message, ...]:
        """What a session holds un-extracted, for an owner who takes part in it."""
        found = tuple(self._open_part(asked.scope.space, session, asked.request.limited_to) or ())
        takes_part = asked.index.takes_part(asked.scope, session) or any(
            m.sender_id == asked.scope.owner for m in found
        )
        return found if takes_part else ()

    def _until_seen(self, request: SearchRequest, scope: Scope, method: str) -> None:
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

    # ---- a question for one scope: its words weighed, embedded, asked of the index, held to who may see what ---------

    def _ready(
        self,
        request: SearchRequest,
        scope: Scope,
        method: str,
        where: filters.Group,
        index: SearchIndex,
        about: About,
        notes: list[str],
    ) -> ScopeQuestion:
        """`request` ready for `scope`: read, weighed, embedded and put to the index; `notes` takes what is to be said of it."""
        import numpy as np

        asked = asking.read(request.query)
        now = self._clock.now()
        is_knowledge = scope.track == KNOWLEDGE
        question = read_question(
            request.query,
            about,
            now=now,
            zone=self._settings.zone,
            people=() if is_knowledge else request.people,
        )
        plain = voiced = pieces = None
        trust = 1.0
        if method != "keyword" and about.rows:
            plain, voiced, pieces, trust = self._meant(about, question, asked.language, notes, method)
        # By meaning alone, how well a row fits is asked by those alone who let it decide or are told it.
        fits = method != "vector" or plain is None or request.for_injection or request.explain
        if not fits:
            question = replace(question, terms=())
        counts = index.frequencies(scope, question.terms) if about.rows else {}
        if not counts and question.names and plain is None and not request.for_injection:
            # By words alone, and no other word is held: who is asked about still narrows it down. It answers nothing.
            question = replace(question, terms=question.terms + question.names)
            counts = index.frequencies(scope, question.terms)
        terms = _without_parts(question.terms, counts)
        held = counts if request.held is None else request.held
        telling = [
            term
            for term in _each_once(terms, held, request.query)
            if term not in asked.stand_ins and not _is_empty(term, asked.fillers, is_known=term in held)
        ] or terms
        # However long a question is, each of its words counts as asked; only those that are held can be looked for.
        weights = {term: rarity(held.get(term, 0)) for term in telling}
        asked_for = sum(weights.values()) or 1.0
        weights = {term: weight / asked_for for term, weight in weights.items()}
        limit = self._settings.search.max_query_terms
        if len(terms) > limit:
            known = [term for term in terms if term in counts]
            kept = set(sorted(known, key=lambda term: counts[term])[:limit])
            terms = tuple(term for term in terms if term in kept)
        question = replace(question, terms=terms)
        rare = [term for term in terms if 0 < counts.get(term, 0) <= _SOLE_ROWS]
        # Among how many rows one is judged: those of all that is asked together; documents by their own number.
        rows = _size_of(about) if is_knowledge or request.among is None else request.among
        near_by_name = by_name_alone(rows)
        # Typed without capitals, any word may be a name: how the memory writes it tells.
        in_small = bool(near_by_name) and asked.may_name_in_small
        names = [
            term for term in weights if near_by_name and term in counts and (in_small or term in asked.named)
        ]
        count = self._settings.search.top_k if request.top_k == -1 else request.top_k
        until = None if request.as_of is None else _aware(request.as_of, self._settings.zone)
        is_limited = request.limited_to is not None or request.unheard
        found = index.legs(
            scope,
            Ask(
                terms=terms,
                weights={term: weights[term] for term in terms if term in weights},
                rare=list(dict.fromkeys([*rare, *names])),
                plain=plain,
                voiced=voiced,
                where=where,
                hidden=request.include_hidden or question.wants_former,
                until_ms=None if until is None else int(until.timestamp() * 1000),
                count=None if is_limited else max(count, request.evidence),
            ),
        )
        corpus, cosine = found.corpus, found.cosine
        if in_small and names:
            places = sorted({int(place) for term in names for place in found.holding.get(term, ())})
            texts = (row.text for row in index.rows(scope, corpus.rowid[places].tolist()))
            written = asking.names_as_written(request.query, names, texts)
            names = [term for term in names if term in written]
        bm25 = sole = None
        if cosine is None or not fits:
            trust = 1.0
        if method != "vector" or cosine is None:
            # A match counts as one, however common its word is among a handful of rows.
            bm25 = np.where(found.bm25 > 0, found.bm25 + np.float32(0.05), np.float32(0))
            sole = _sole_words(found, question, counts, about.rows, trust if cosine is not None else 0.0)
        worth = _worth(corpus, cosine, bm25)
        legs = Legs(
            None if cosine is None else corpus.folded(cosine),
            None if bm25 is None else corpus.folded(bm25),
            sole,
        )
        allowed = found.passing
        if question.wants_former and not request.include_hidden:
            # What was replaced is what such a question asks for; what was put away for another reason is not.
            was = (corpus.kind == KIND_CODES["memory"]) & (corpus.flags & ENDED > 0)
            allowed = allowed & (was | (corpus.flags & HIDDEN == 0))
        if request.limited_to is not None:
            allowed = allowed & self._within_reach(corpus, request.limited_to)
        if request.unheard:
            allowed = allowed & ~_still_said_by(corpus, request.unheard)
        # By one vector without word pieces more is near by chance.
        anew = anew_of(rows) * (_BY_VECTOR_ALONE if plain is not None and pieces is None else 1.0)
        if is_knowledge or question.is_named or not question.is_meant:
            anew = 0.0
        # Documents are asked about nobody.
        ease = ease_of(rows, is_meant=question.is_meant)
        unheard = sum(term not in held for term in weights) / max(1, len(weights))
        return ScopeQuestion(
            request=request,
            scope=scope,
            method=method,
            count=count,
            where=where,
            index=index,
            corpus=corpus,
            question=question,
            legs=legs,
            allowed=allowed,
            speaks=_speaking(corpus, legs, request.radius, method),
            now=now,
            zone=self._settings.zone,
            least=self._settings.search.injection_min_score,
            words_asked=len(weights),
            trust=trust,
            pieces=pieces,
            part=_best_part(corpus, worth),
            worth=worth,
            weights=weights,
            covered=corpus.folded(found.covered),
            late=np.zeros(len(corpus), np.float32),
            ease=max(0.0, ease) if is_knowledge else ease,
            anew=anew,
            has_blanks=tongues.known()[asked.language].has_blanks,
            doubt=0.0 if is_knowledge or question.is_meant else doubt_of(rows, unheard),
            by_name=near_by_name * _only_named(found, weights, names)
            if 0 < len(names) < len(terms)
            else None,
            idle=request.for_injection and asks_nothing(request.query[:2000]),
        )

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

    def _meant(
        self, about: About, question: Question, language: str, notes: list[str], method: str
    ) -> tuple[np.ndarray | None, np.ndarray | None, TokenVectors | None, float]:
        """The query as vectors: as asked, for entries, and in the sender's voice, for messages, where that is another.

        Beside them the word pieces in that voice, where the embedder gives them, and how far nearness is believed.
        """
        silent = (None, None, None, 1.0)
        embedder = self._embedder()
        if embedder is None:
            notes.append("no embedding model is installed: this answer rests on words alone")
            return silent
        try:
            if not about.embedded or about.model != embedder.id:
                notes.append("no vectors of the current model yet: this answer rests on words alone")
                return silent
            # A rare word in pieces does not make a plain sentence another language.
            trust, is_plain = (
                1.0,
                embedder.language is not None and tongues.shows(question.text[:2000], embedder.language),
            )
            if not is_plain:
                grasp = embedder.grasps(question.text)
                if method == "hybrid" and grasp < _GRASPED:
                    # A script the model has no words for: what lies near by it does so by chance.
                    return silent
                trust = min(1.0, max(0.0, (grasp - _UNSURE) / (_SURE - _UNSURE)))
                trust *= 1.0 if embedder.language in {None, language} else _ANOTHER_LANGUAGE
            (plain, _), (voiced, pieces) = self._embedded(embedder, (question.text, question.voiced))
        except Unavailable as error:
            notes.append(f"the embedder cannot answer, so this rests on words alone: {error}")
            return silent
        if about.waiting:
            notes.append("some rows have no vector yet")
        if question.voiced == question.text:
            return plain, None, pieces, trust
        # Most entries bear a name, and by the name alone all of a person's are near: it counts for half.
        both = plain + voiced
        return both / max(1e-6, float((both @ both) ** 0.5)), voiced, pieces, trust

    def _embedded(
        self, embedder: Embedder, texts: Sequence[str]
    ) -> list[tuple[np.ndarray, TokenVectors | None]]:
        """Unit vectors of query texts, and their word pieces; those asked before come from memory."""
        with self._guard:
            have = {text: known for text in texts if (known := self._vectors.get((embedder.id, text)))}
        missing = [text for text in dict.fromkeys(texts) if text not in have]
        if missing:
            said: Sequence[TokenVectors | None] = [None] * len(missing)
            if self._settings.index.token_vectors and embedder.token_dimensions == TOKEN_DIMENSIONS:
                vectors, said = embedder.embed_tokens(missing)
            else:
                vectors = embedder.embed(missing)
            have.update(zip(missing, zip(vectors, said, strict=True), strict=True))
            with self._guard:
                self._vectors.update(((embedder.id, text), have[text]) for text in missing)
                while len(self._vectors) > 512:
                    self._vectors.popitem(last=False)
        return [have[text] for text in texts]


def read_question(
    query: str,
    about: About,
    *,
    now: datetime,
    zone: tzinfo = UTC,
    people: tuple[tuple[str, str | None], ...] = (),
) -> Question:
    """Read `query` against the senders and times of a scope; where nobody speaks in it, against `people`."""
    senders = _named_senders(about)
    names = spoken_names(tuple((s.id, s.name) for s in about.senders)) if senders else ()
    author, is_named, without = -1, False, set[str]()
    if not about.senders and people:
        names = spoken_names(people)
        is_named = names_any(query, names)
        without = {token for name in names for token in words.tokens(name)}
    voiced = question_text(query, names) if names else query
    if senders:
        meant = [i for i, forms in senders.items() if names_any(query, forms)]
        is_named = bool(meant)
        if len(meant) > 1:
            about_them = about_whom(query, names)
            meant = [i for i in meant if any(form.split()[0] in about_them for form in senders[i])]
        if len(meant) == 1 and len(senders) > 1:
            author = meant[0]
        if len(senders) > 1 or len(about.senders) == 1:
            # Whoever is spoken to by an assistant is named by it: there the name is a word like others.
            without = {token for i in senders for form in senders[i] for token in words.tokens(form)}
    asked = asking.read(query)
    is_meant = is_named or asked.is_personal
    terms = tuple(words.query_terms(query, limit=_MAX_TERMS, without=without))
    owner = next((i for i, one in enumerate(about.senders) if one.id == about.scope.owner), -1)
    of_oneself = asking.read(voiced).of_oneself if len(senders) == 1 else asked.of_oneself
    return Question(
        text=query,
        voiced=voiced,
        terms=terms,
        author=author,
        names=tuple(t for t in dict.fromkeys(words.tokens(query)) if t in without and t not in terms)
        if without
        else (),
        is_named=is_named,
        is_meant=is_meant,
        is_for_anyone=not is_meant and asked.is_for_anyone,
        days=tuple(
            (start.toordinal() - _EPOCH, end.toordinal() - _EPOCH)
            for start, end in _named_days(asked.times, now, about, zone)
            if (end - start).days <= _LONGEST_RANGE
        ),
        wants_time=asked.wants_time,
        wants_number=asked.wants_number,
        wants_reason=asked.wants_reason,
        asker=owner if of_oneself else -1,
        wants_advice=asked.wants_advice,
        wants_several=asked.wants_several,
        wants_former=asked.wants_former,
    )


def _named_senders(about: About) -> dict[int, tuple[str, ...]]:
    """Senders with speakable names, up to eight, each with a fair share of the talk; nothing where there are more.

    Only among two or more does a name narrow anything down. A person and an assistant are no such pair: what the
    assistant says about a person answers questions about them just as well.
    """
    found: dict[int, tuple[str, ...]] = {}
    if len(about.senders) <= _AUTHOR_MAX_SENDERS * 4:
        fair = _AUTHOR_MIN_SHARE * sum(about.spoken) / max(1, len(about.senders) / 2)
        for i, sender in enumerate(about.senders):
            forms = spoken_names(((sender.id, sender.name),))
            if forms and about.spoken[i] >= fair:
                found[i] = forms
    return found if len(found) <= _AUTHOR_MAX_SENDERS else {}


def _named_days(
    times: dates.Times, now: datetime, about: About, zone: tzinfo
) -> tuple[tuple[date, date], ...]:
    """Day ranges that the query names, by the `times` found in it.

    "yesterday" counts from now; "7 May" without a year is the one nearest to the end of what is remembered. Where a
    question leaves two readings the one in the past is taken: that is what a memory is asked for.
    """
    if not times:
        return ()
    latest = datetime.fromtimestamp(about.latest_ms / 1000, UTC) if about.latest_ms else now
    found = []
    for base, by_calendar in ((latest, True), (now, False)):
        for mention in times.mentions(base.astimezone(zone), lean=-1):
            dated = any(ch.isdigit() for ch in mention.words) or _MONTH.search(mention.words) is not None
            if (dated or mention.is_absolute) if by_calendar else not dated:
                found.append((mention.start, mention.end))
    return tuple(found)


def _size_of(about: About) -> int:
    """How much a memory holds: what was said in it, else what is written."""
    return sum(about.spoken) or about.rows


def _still_said_by(corpus: Corpus, speakers: Collection[str]) -> np.ndarray:
    """Which rows are messages of these, or passages of such, in a stretch of talk that is not cut yet."""
    import numpy as np

    theirs = np.array([one.id in speakers for one in corpus.senders], bool)
    out = (corpus.sender >= 0) & (corpus.cell < 0)
    out[out] = theirs[corpus.sender[out]]
    return out


def _speaking(corpus: Corpus, legs: Legs, radius: float | None, method: str) -> np.ndarray:
    """Which rows say anything to a question."""
    import numpy as np

    out = np.zeros(len(corpus), bool)
    if legs.bm25 is not None:
        out |= legs.bm25 > 0
    if legs.cosine is not None:
        floor = radius if radius is not None else (-1.0 if method == "vector" else _HYBRID_FLOOR)
        out |= (legs.cosine >= floor) & corpus.has_vector
    return out


def _worth(corpus: Corpus, cosine: np.ndarray | None, bm25: np.ndarray | None) -> np.ndarray:
    """How well each row, and each passage of a long one, speaks to the question by meaning and words together."""
    import numpy as np

    worth = np.zeros(len(corpus), np.float32)
    if cosine is not None:
        worth += cosine / 0.5
    if bm25 is not None:
        worth += bm25 / max(1.0, float(bm25.max(initial=0.0)))
    return worth


def _best_part(corpus: Corpus, worth: np.ndarray) -> np.ndarray:
    """For each row the place of the passage of it that speaks best to the question; its own where it was not cut."""
    import numpy as np

    best = np.arange(len(corpus))
    at, whole = corpus.parts
    if len(at):
        better = worth[at] >= corpus.folded(worth)[whole]
        best[whole[better]] = at[better]
    return best


def _is_empty(term: str, empty: Collection[str], *, is_known: bool) -> bool:
    """Whether a token asks nothing: a filler, a compound of fillers, or a pair of characters of two words.

    Among Chinese characters a pair with a filler in it that nobody ever wrote is no word at all.
    """
    if _is_pair(term):
        return (all if is_known else any)(letter in empty for letter in term)
    return all(part in empty or words.stem(part) in empty for part in term.split("_"))


def _is_pair(term: str) -> bool:
    """Whether a token is two neighbouring Chinese characters."""
    return len(term) == 2 and all("\u3400" <= letter <= "\u9fff" for letter in term)


def _each_once(terms: Sequence[str], held: Collection[str], query: str) -> list[str]:
    """The terms that stand for a word of the question, each word once.

    A word with accents is looked for without them as well. What is written with a hyphen and held nowhere in one is asked by
    its parts. Of Chinese characters every pair is looked for: one that is not held and overlaps one that is, is
    the end of one word and the beginning of the next.

    >>> _each_once(["kunftig", "künftig", "miet"], [], ""), _each_once(["家医", "医院", "院开", "开刀"], ["医院"], "")
    (['kunftig', 'miet'], ['医院', '开刀'])
    >>> _each_once(["partons_nous", "parton", "nou"], [], "Où partons-nous ?")
    ['parton', 'nou']
    """
    pairs = [term for term in terms if term in held and _is_pair(term)]
    first, last = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    hyphens = query.casefold()

    def is_one(term: str) -> bool:
        if _is_pair(term):
            return term in held or (term[0] not in last and term[1] not in first)
        if "_" in term:
            is_number = any(letter.isdigit() for letter in term)
            return term in held or is_number or term.replace("_", "-") not in hyphens
        return term.isascii() or not _again(term, terms)

    return [term for term in terms if is_one(term)]


def _again(term: str, terms: Collection[str]) -> bool:
    """Whether a term with accents is among the terms without them."""
    bare = words.stem(words.without_accents(term))
    return bare != term and bare in terms


def _without_parts(terms: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    """The words to look for; those of a number or name from code only where it is not known as a whole.

    >>> _without_parts(["status", "4_2_17", "4", "2", "17"], {"4_2_17": 1, "4": 5, "status": 2})
    ('status', '4_2_17')
    """
    known = [term for term in terms if "_" in term and counts.get(term) and any(ch.isdigit() for ch in term)]
    parts = {part for term in known for part in term.split("_")}
    return tuple(term for term in terms if term not in parts) if parts else tuple(terms)


def _only_named(found: Found, weights: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Which rows share nothing with the question but a name in it (1.0)."""
    import numpy as np

    held = np.zeros(len(found.corpus), np.float32)
    for name in names:
        held[found.holding.get(name, [])] += np.float32(weights[name])
    least = 0.5 * min(weights.values())
    alone = (held > 0) & (found.corpus.folded(found.covered) - found.corpus.folded(held) < least)
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


def _aware(moment: datetime, zone: tzinfo) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
