"""Search: a question about one owner's memory, answered with hits, evidence, or nothing.

    request ─> checked ─> question read against the scope ─> legs: words (BM25), meaning (cosine)
            ─> ranked (rank.py) ─> filtered, gated, cut to size ─> SearchResult with freshness

Scores lie in 0..1. Under `vector` a score is the cosine. Otherwise it is how well a row fits in absolute terms (how
much of the question its words cover, how near its meaning is), the same for every kind of row, so that lists can be put
together. Nothing fits, so nothing is returned: lists are never padded.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cairn.config import Settings
from cairn.errors import Unavailable
from cairn.index import filters
from cairn.index.corpus import AGENT_DOCUMENTS, KNOWLEDGE, About, Moved, SearchIndex, knowledge_scope
from cairn.index.rows import Pages
from cairn.language import asking, words
from cairn.retrieval.answers import FURTHER, SearchRequest, SearchResult, checked, within_budget
from cairn.retrieval.lists import ScopeQuestion
from cairn.retrieval.questions import MAX_TERMS, Questions, aware, named_days, size_of
from cairn.seams import Clock, Embedder, Writer
from cairn.types import Freshness, Hit, Message, Scope, Space

if TYPE_CHECKING:
    from cairn.retrieval.lexical import ScannedScope

__all__ = ["SearchRequest", "SearchResult", "Searcher"]

# So many who speak are told by their names; among more, a name is a word like others.
_MOST_PEOPLE = 32
_ARRAYS = {
    "episode": "episodes",
    "agent_case": "agent_cases",
    "agent_skill": "agent_skills",
    "memory": "memories",
    KNOWLEDGE: "knowledge",
    **FURTHER,
}


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
        wait: Callable[[int | None, float, Scope, bool], object] | None = None,
        unprocessed: Callable[[Space, str, Collection[str] | None], Sequence[Message]] | None = None,
        writer: Writer | None = None,
        fallback: Callable[[Scope], ScannedScope | None] | None = None,
        pages: Pages | None = None,
        on_hits: Callable[[Scope, Sequence[Hit]], None] | None = None,
        past: Callable[[Scope, datetime], ScannedScope | None] | None = None,
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
        self._questions = Questions(
            settings=settings, clock=clock, embedder=embedder, unprocessed=unprocessed
        )
        self._writer = writer
        self._fallback = fallback
        self._pages = pages
        self._on_hits = on_hits
        self._past = past

    def search(self, request: SearchRequest) -> SearchResult:
        """Answer `request`.

        Raises:
            Invalid: the request breaks a rule; the message names the field.
            Unavailable: `consistency="strong"` or `min_lsn` could not be reached in time.
        """
        scope, method, where = checked(request, self._settings)
        if self._wait is not None and (request.consistency == "strong" or request.min_lsn is not None):
            self._until_seen(request, scope, method, self._wait)
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
        terms = words.query_terms(query, limit=MAX_TERMS)
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
                among += size_of(about) if scope.track != KNOWLEDGE else 0
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
            then = self._past(scope, aware(request.as_of, self._settings.zone))
            if then is not None:
                index = pages = then
                request, about = replace(request, as_of=None), then.about(scope)
                notes.append("this answer comes from what was recorded by then, by its words")
        asked = self._questions.ready(request, scope, method, where, index, about, notes)
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
        wanted = asking.read(request.query).whole
        if wanted is None or pages is None or request.as_of is not None or asked.scope.track == KNOWLEDGE:
            return {}
        from cairn.retrieval import whole

        days = named_days(request.query, asked.now, about, zone)
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
        found = tuple(self._questions.open_part(asked.scope.space, session, asked.request.limited_to) or ())
        takes_part = asked.index.takes_part(asked.scope, session) or any(
            m.sender_id == asked.scope.owner for m in found
        )
        return found if takes_part else ()

    def _until_seen(
        self,
        request: SearchRequest,
        scope: Scope,
        method: str,
        wait: Callable[[int | None, float, Scope, bool], object],
    ) -> None:
        lsn = None if request.consistency == "strong" else request.min_lsn
        # Words are searchable as soon as rows are; meaning needs the vectors too.
        reached = wait(lsn, request.wait_seconds, scope, method != "keyword")
        # While the index is rebuilt, the scan of the notes that answers instead has seen everything.
        scanning = self._fallback is not None and self._freshness(scope).state == "rebuilding"
        if reached is False and not scanning:
            what = "every change so far" if lsn is None else f"change {lsn}"
            raise Unavailable(
                f"The index has not reached {what} within {request.wait_seconds:g} s: ask again, or without strong "
                "consistency.",
                lsn=lsn,
            )
