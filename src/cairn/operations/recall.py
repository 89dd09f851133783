"""Operations that read: search, get, recall, brief, show."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cairn.errors import Unavailable
from cairn.index.corpus import knowledge_scope
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import (
    ID_PATTERN,
    MAX_ID,
    AgentId,
    AppId,
    Consistency,
    Explain,
    Filters,
    ForInjection,
    MinScore,
    ProjectId,
    TokenBudget,
    TopK,
    UserId,
    moment_told,
)
from cairn.operations.table import Granted, Room, operation, says
from cairn.operations.talk import LimitedTo
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.operations.recalling import Recalled
    from cairn.retrieval.answers import SearchRequest, SearchResult
    from cairn.retrieval.listing import GetResult

answers = Answers("recall")

log = logging.getLogger("cairn")

MemoryType = Literal[
    "episode", "profile", "agent_case", "agent_skill", "foresight", "atomic_fact", "agent_document"
]
FurtherKind = Literal["foresight", "atomic_fact", "agent_document"]
SeesShared = Annotated[bool, Granted("sees_shared")]
ReachedProjects = Annotated[Collection[str] | None, Granted("projects")]
_STRONG_SECONDS = 10.0
Method = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]


Person = Annotated[
    str | None,
    says("whose memory; memory.person of the settings where none is named", "alice", low=1, high=MAX_ID),
]
Here = Annotated[
    str | None, says("a folder of the repository at hand: its memory is asked, too", ".", here=True)
]
OtherProject = Annotated[
    str | None,
    says(
        "the project to ask instead of the one the folder belongs to",
        "tides",
        low=1,
        high=MAX_ID,
        pattern=ID_PATTERN,
    ),
]


def _recalled(found: Recalled, room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    from cairn.retrieval.answers import shown_freshness, shown_time

    items = [
        {
            "text": one.text,
            "kind": one.kind,
            "score": one.score,
            "source": one.source,
            "id": one.id,
            "at": shown_time(one.at, room.settings.zone) if one.at else None,
        }
        for one in found.items
    ]
    return {
        "items": items,
        "prompt": found.prompt,
        "tokens": found.tokens,
        "notes": list(found.notes),
        "freshness": shown_freshness(found.freshness),
    }


def search_data(result: SearchResult, room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a search, with text for a prompt where it was asked for."""
    from cairn.operations.recalling import prompt

    zone = room.settings.zone
    data = result.as_data(zone)
    if asked["for_injection"]:
        data["prompt"] = prompt(result, budget=asked["token_budget"], zone=zone)
    return data


def _page(result: GetResult, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return result.as_data()


class Recall(Room):
    """What a memory is asked."""

    @operation("POST /memory/search", answers.SearchData, rules.owner, data=search_data, writes=False)
    def search(
        self,
        query: Annotated[str, says("the question, in plain words", "where does Alice live", low=1)],
        *,
        user_id: UserId = None,
        agent_id: AgentId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        method: Annotated[
            Method,
            says('"keyword" by words, "vector" by meaning, "hybrid" both, "agentic" asks again', "hybrid"),
        ] = "hybrid",
        top_k: TopK = -1,
        radius: Annotated[
            float | None,
            says("leave out what is further away in meaning than this similarity", 0.4, low=0, high=1),
        ] = None,
        min_score: MinScore = None,
        include_profile: Annotated[bool, says("add the owner's profile", True)] = False,
        enable_llm_rerank: Annotated[
            bool, says("let the language model reorder the hits, if one is set", True)
        ] = False,
        filters: Filters = None,
        evidence: Annotated[int, says("how many verbatim messages to add", 5, low=0, high=100)] = 0,
        token_budget: TokenBudget = None,
        kinds: Annotated[
            Sequence[FurtherKind],
            says("further kinds to look for, each in its own list", ["foresight"], high=3, each=(1, 40)),
        ] = (),
        include_knowledge: Annotated[
            bool, says("look into the space's documents, too, unless there is a filter", True)
        ] = True,
        explain: Explain = False,
        for_injection: ForInjection = False,
        consistency: Consistency = "eventual",
        min_lsn: Annotated[
            int | None, says("wait until this change (as add and flush return it) is indexed", 12, low=0)
        ] = None,
        as_of: Annotated[
            str | datetime | None,
            says("answer from what was recorded up to this time", "2026-06-01T12:00:00+00:00", high=100),
        ] = None,
        limited_to: LimitedTo = None,
        sees_shared: SeesShared = True,
    ) -> SearchResult:
        """Find what answers a question in one owner's memory; an empty result is an answer.

        Raises:
            Invalid: the query, the owner, a filter or a number is wrong; the message names it.
            Unavailable: the wait for `consistency` or `min_lsn` took too long.
        """
        from cairn.retrieval.answers import SearchRequest, owner_scope

        request = SearchRequest(
            query,
            owner_scope(user_id, agent_id, app_id, project_id),
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
            as_of=moment_told(as_of, UTC, "as_of") if as_of is not None else None,
            limited_to=limited_to,
            kinds=tuple(kinds),
        )
        if consistency != "strong":
            self.parts.settle(request.scope, embed=method != "keyword")
        with self.parts.traffic:
            found = self.parts.searcher.search(request)
            if include_knowledge and sees_shared and not filters and as_of is None:
                found = self._beside_knowledge(found, request)
            return found

    def _beside_knowledge(self, found: SearchResult, request: SearchRequest) -> SearchResult:
        """The same answer with what the documents of the space say, where there are any."""
        scope = knowledge_scope(found.space)
        # What is not indexed yet is found by those who wait for it, and while notes are scanned.
        if request.consistency == "strong" or found.freshness.state == "rebuilding":
            has_documents = self.parts.storage.exists(self.parts.root.knowledge(scope.space))
        elif found.has_documents is None:
            has_documents = self.parts.searcher.has_rows(scope)
        else:
            has_documents = found.has_documents
        if not has_documents:
            return found
        from cairn.operations.library import at_home
        from cairn.retrieval.answers import within_budget

        asked = replace(
            request, scope=scope, include_profile=False, evidence=0, kinds=(), min_lsn=None,
            enable_llm_rerank=False, method="hybrid" if found.method == "agentic" else found.method,
        )  # fmt: skip
        known = at_home(self.parts, self.parts.searcher.search(asked))
        whole = replace(found, knowledge=known.knowledge)
        return within_budget(whole, request.token_budget) if request.token_budget is not None else whole

    @operation("POST /recall", answers.RecalledData, rules.recall, data=_recalled, writes=False)
    def recall(
        self,
        query: Annotated[
            str, says("the question, or the prompt a person just wrote", "where does Alice live", low=1)
        ],
        *,
        user_id: Person = None,
        agent_id: Annotated[
            str | None, says("ask the memory of this agent, too", "coder", low=1, high=MAX_ID)
        ] = None,
        mission_id: Annotated[
            str | None, says("ask the memories of this running mission, too", "run-42", low=1, high=MAX_ID)
        ] = None,
        folder: Here = None,
        app_id: AppId = "default",
        project_id: OtherProject = None,
        token_budget: Annotated[int, says("the most tokens in the prompt", 800, low=1)] = 800,
        method: Annotated[
            Literal["keyword", "hybrid"],
            says("by words and meaning, or by words alone, which waits for no model", "keyword"),
        ] = "hybrid",
        min_score: MinScore = None,
        filters: Filters = None,
        open_talk: Annotated[bool, says("include messages that are not flushed yet", False)] = True,
        sees_shared: SeesShared = True,
        projects: ReachedProjects = None,
    ) -> Recalled:
        """Find what helps with a question in every memory the caller may see, framed as data; nothing if nothing fits.

        With `filters` a repository's own record is not asked: it has nothing that they could be held against.

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
            method=method,
            min_score=min_score,
            filters=filters,
            open_talk=open_talk,
            shared=sees_shared,
            projects=projects,
        )

    @operation("POST /brief", answers.RecalledData, rules.recall, data=_recalled, writes=False)
    def brief(
        self,
        *,
        user_id: Person = None,
        agent_id: Annotated[
            str | None, says("the agent whose core memory is shown, too", "coder", low=1, high=MAX_ID)
        ] = None,
        folder: Here = None,
        app_id: AppId = "default",
        project_id: OtherProject = None,
        token_budget: Annotated[int, says("the most tokens in the prompt", 1500, low=1)] = 1500,
        sees_shared: SeesShared = True,
        projects: ReachedProjects = None,
    ) -> Recalled:
        """What a new session should know: core memory, promoted memories, the state of the project, what is due."""
        from cairn.operations import recalling

        return recalling.brief(
            self.parts,
            user_id=user_id,
            agent_id=agent_id,
            folder=folder,
            app_id=app_id,
            project_id=project_id,
            token_budget=token_budget,
            shared=sees_shared,
            projects=projects,
        )

    @operation("POST /memory/get", answers.GetData, rules.owner, data=_page, writes=False)
    def get(
        self,
        memory_type: Annotated[MemoryType, says("which kind", "episode")],
        *,
        user_id: UserId = None,
        agent_id: AgentId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        page: Annotated[int, says("which page", 1, low=1)] = 1,
        page_size: Annotated[int, says("how many a page", 20, low=1, high=100)] = 20,
        sort_by: Annotated[
            Literal["timestamp", "updated_at"], says("what to sort by", "timestamp")
        ] = "timestamp",
        sort_order: Annotated[Literal["asc", "desc"], says("oldest or newest first", "desc")] = "desc",
        filters: Filters = None,
        consistency: Consistency = "eventual",
    ) -> GetResult:
        """List an owner's memories of one type, page by page, newest first unless asked otherwise."""
        from cairn.retrieval.answers import owner_scope

        scope = owner_scope(user_id, agent_id, app_id, project_id)
        if consistency == "strong":
            if not self.parts.catch_up(_STRONG_SECONDS, scope=scope) and (
                self.parts.freshness(scope).state != "rebuilding"
            ):
                raise Unavailable(
                    f"The index has not reached every change so far within {_STRONG_SECONDS:g} s: ask again, or "
                    "without strong consistency."
                )
        else:
            self.parts.settle(scope)
        return self.parts.listing.get(
            scope,
            memory_type,
            page=page,
            page_size=page_size,
            sort_by=sort_by,
            sort_order=sort_order,
            filters=filters,
        )

    @operation("GET /show", answers.ShownData, rules.one_entry(write=False))
    def show(
        self,
        entry_id: Annotated[
            str,
            says(
                "an entry, profile, skill, message or cell, or path#id",
                "alice_ep_20260601_00000001",
                low=1,
                high=4096,
                wire="id",
            ),
        ],
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """One thing by any id that is printed: its text, its file and line, and the messages it came from.

        Raises:
            Invalid: it can be no id, or several owners have an entry of that name.
            NotFound: nothing goes by it in this space.
        """
        from cairn.operations import lookup

        return lookup.show(self.parts, Space(app_id, project_id), entry_id)
