"""Recall: questions, pages, and one thing by its id."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from cairn.errors import Invalid, Unavailable
from cairn.operations.table import Room, operation
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.operations.recalling import Recalled
    from cairn.retrieval.answers import SearchResult
    from cairn.retrieval.listing import GetResult

log = logging.getLogger("cairn")

MemoryType = Literal["episode", "profile", "agent_case", "agent_skill"]
Method = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]


class Recall(Room):
    """What a memory is asked."""

    @operation(writes=False)
    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
        method: Method = "hybrid",
        top_k: int = -1,
        radius: float | None = None,
        min_score: float | None = None,
        include_profile: bool = False,
        enable_llm_rerank: bool = False,
        filters: Mapping[str, Any] | None = None,
        evidence: int = 0,
        token_budget: int | None = None,
        explain: bool = False,
        for_injection: bool = False,
        consistency: Literal["eventual", "strong"] = "eventual",
        min_lsn: int | None = None,
        as_of: str | datetime | None = None,
    ) -> SearchResult:
        """Find what answers `query` in one owner's memory. An empty result is an answer.

        Args:
            query: The question, in plain words.
            user_id: Whose memory; exactly one of `user_id` and `agent_id`.
            agent_id: The agent, if it is one's.
            app_id: The app of the space to look in.
            project_id: The project of the space; nothing outside of it is seen.
            method: "keyword" by words, "vector" by meaning, "hybrid" both, "agentic" asks again where a model is set.
            top_k: How many of each kind; -1 for the default, at most 100.
            radius: Leave out what is further away in meaning than this similarity (0 to 1).
            min_score: Leave out hits below this score (0 to 1).
            include_profile: Add the owner's profile.
            enable_llm_rerank: Let the model order the hits, where one is set.
            filters: Predicates on `session_id`, `parent_type`, `parent_id`, `timestamp` and `sender_id`.
            evidence: How many verbatim messages to add.
            token_budget: Return at most this many tokens of text.
            explain: Show what each leg contributed to a score.
            for_injection: Nothing rather than junk: for use in a prompt.
            consistency: "strong" first waits until every change so far is indexed.
            min_lsn: Wait until this change (as `add` and `flush` return it) is indexed.
            as_of: Answer from what was recorded by then.

        Raises:
            Invalid: the query, the owner, a filter or a number is wrong; the message names it.
            Unavailable: the wait for `consistency` or `min_lsn` took too long.
        """
        from cairn.retrieval.answers import SearchRequest

        request = SearchRequest(
            query=query,
            user_id=user_id,
            agent_id=agent_id,
            app_id=app_id,
            project_id=project_id,
            method=method,
            top_k=top_k,
            radius=radius,
            min_score=min_score,
            include_profile=include_profile,
            enable_llm_rerank=enable_llm_rerank,
            filters=filters,
            evidence=evidence,
            token_budget=token_budget,
            explain=explain,
            for_injection=for_injection,
            consistency=consistency,
            min_lsn=min_lsn,
            as_of=_moment(as_of),
        )
        if self.parts.daemon is None or consistency == "strong":
            # Words are searchable as soon as rows are; meaning needs the vectors too.
            self._catch_up(consistency, request.wait_seconds, embed=method != "keyword")
        with self.parts.foreground():
            return self.parts.searcher.search(request)

    @operation(writes=False)
    def recall(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        mission_id: str | None = None,
        folder: str | None = None,
        app_id: str = "default",
        project_id: str | None = None,
        token_budget: int = 800,
        min_score: float | None = None,
    ) -> Recalled:
        """What of everything remembered helps with `query`: nothing rather than junk, framed as data.

        Args:
            query: The question, or the prompt a person just wrote.
            user_id: Whose memory; the settings' `memory.person` unless given.
            agent_id: Ask the memory of this agent, too.
            mission_id: Ask the memories of this running mission, too.
            folder: A folder of the repository at hand: its space and its record are asked, too.
            app_id: The app of the general space.
            project_id: The project to ask instead of the one `folder` belongs to.
            token_budget: The most tokens of the prompt.
            min_score: Leave out what scores less (0 to 1).

        Raises:
            Invalid: the query, an id or a number is wrong; the message names it.
        """
        from cairn.operations import recalling

        return recalling.recall(
            self.parts,
            query,
            user_id=user_id,
            agent_id=agent_id,
            mission_id=mission_id,
            folder=folder,
            app_id=app_id,
            project_id=project_id,
            token_budget=token_budget,
            min_score=min_score,
        )

    @operation(writes=False)
    def brief(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        folder: str | None = None,
        app_id: str = "default",
        project_id: str | None = None,
        token_budget: int = 1500,
    ) -> Recalled:
        """What a new session should know: core memory, what was promoted, how the project stands, what is due.

        Args:
            user_id: Whose memory; the settings' `memory.person` unless given.
            agent_id: The agent whose core memory is shown, too.
            folder: A folder of the repository at hand.
            app_id: The app of the general space.
            project_id: The project to ask instead of the one `folder` belongs to.
            token_budget: The most tokens of the prompt.
        """
        from cairn.operations import recalling

        return recalling.brief(
            self.parts,
            user_id=user_id,
            agent_id=agent_id,
            folder=folder,
            app_id=app_id,
            project_id=project_id,
            token_budget=token_budget,
        )

    @operation(writes=False)
    def get(
        self,
        memory_type: MemoryType,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
        page: int = 1,
        page_size: int = 20,
        sort_by: Literal["timestamp", "updated_at"] = "timestamp",
        sort_order: Literal["asc", "desc"] = "desc",
        filters: Mapping[str, Any] | None = None,
        consistency: Literal["eventual", "strong"] = "eventual",
    ) -> GetResult:
        """One page of an owner's memories of one type, newest first unless asked otherwise."""
        from cairn.retrieval.listing import GetRequest

        request = GetRequest(
            memory_type=memory_type,
            user_id=user_id,
            agent_id=agent_id,
            app_id=app_id,
            project_id=project_id,
            page=page,
            page_size=page_size,
            sort_by=sort_by,
            sort_order=sort_order,
            filters=filters,
        )
        if self.parts.daemon is None or consistency == "strong":
            self._catch_up(consistency)
        return self.parts.listing.get(request)

    @operation(writes=False)
    def show(self, entry_id: str, app_id: str = "default", project_id: str = "default") -> dict[str, Any]:
        """One thing by any id that a search, a listing or `doctor` gives: its text, its file and line, and the
        messages it came from.

        Raises:
            Invalid: it can be no id, or several owners have an entry of that name.
            NotFound: nothing goes by it in this space.
        """
        from cairn.operations import lookup

        return lookup.show(self.parts, Space(app_id, project_id), entry_id)

    def _catch_up(self, consistency: str, seconds: float = 10.0, *, embed: bool = False) -> None:
        """Bring the index up to date; on a disk that refuses, a reader who did not insist gets what there is."""
        try:
            self.parts.catch_up(seconds, embed=embed)
        except Unavailable as error:
            if consistency == "strong":
                raise
            log.warning("the index is not up to date: %s", error)


def _moment(text: str | datetime | None) -> datetime | None:
    """The time a caller means, in UTC; without an offset it is meant in UTC."""
    if text is None:
        return None
    try:
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        raise Invalid(
            f'as_of "{str(text)[:60]}" is not a time; write it like 2026-06-01T12:00:00+00:00.', field="as_of"
        ) from None
