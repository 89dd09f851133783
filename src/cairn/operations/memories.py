"""Governed memories one by one: remember, look, correct, forget.

    verdict = memory.remember("Deploys wait for the migration job.", "gotcha")
    page = memory.memories.list(scope="project")
    memory.memories.supersede(verdict.memory["id"], "Deploys run migrations.", reason="new pipeline")

What a memory is and what may become of it is decided in `governed`; here its calls get names and a space. Project
memories belong to no owner, so `memory.search` never returns them: `memories.search` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import merge
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, get_args

from cairn import governed
from cairn.errors import Invalid, NotFound
from cairn.governed.memories import HistoryLine
from cairn.notes.format import parse_note
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import (
    ID_PATTERN,
    MAX_ID,
    MAX_TEXT,
    AnyScope,
    AppId,
    Category,
    Confidence,
    Consistency,
    DryRun,
    Explain,
    Files,
    ForInjection,
    Importance,
    InScope,
    InSpace,
    MemoryId,
    MinScore,
    Origin,
    Owner,
    ProjectId,
    Reason,
    ScopeName,
    Status,
    Steps,
    Tier,
    TokenBudget,
    TopK,
    TriggerText,
    memory_named,
    named_scope,
    scope_named,
    space_named,
)
from cairn.operations.forgetting import purgers, while_quiet
from cairn.operations.recall import search_data
from cairn.operations.table import F, Granted, Room, operation, says
from cairn.types import Scope, Space, Verdict, split_public_id

if TYPE_CHECKING:
    from cairn.governed.forget import Receipt
    from cairn.governed.records import Record
    from cairn.governed.wanted import Beside
    from cairn.parts import Parts
    from cairn.retrieval.answers import SearchResult

answers = Answers("memories")

MAX_PAGE = 500
_EDITS = 1000
PLACE = ("scope", "owner", "app_id", "project_id")

Vouched = Annotated[bool, Granted("promote")]
Text = Annotated[str, says("what to remember", "Deploys wait for the migration job.", high=MAX_TEXT)]
NewText = Annotated[str | None, says("what it says from now on", "Deploys run migrations.", high=MAX_TEXT)]
NewCategory = Annotated[Category | None, says("what kind of statement it is", "gotcha")]
NewImportance = Annotated[Importance | None, says("how much it matters", "high")]
Limited = Annotated[str | None, says("where it comes from", "msg-17", high=500)]


def _verdict(verdict: Verdict, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return governed.memories.verdict_json(verdict)


def _found(result: SearchResult, room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
    data = search_data(result, room, asked)
    return {name: data[name] for name in ("memories", "prompt", "freshness") if name in data}


def _words(block: str) -> str:
    entries = parse_note(block).entries
    return entries[0].sections.get("Content", "") if entries else ""


def _history(lines: Sequence[HistoryLine], _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"history": [{name: value for name, value in asdict(line).items() if value} for line in lines]}


def _corrects(name: str, also: rules.AlsoRule | None = None, **row: Any) -> Callable[[F], F]:
    """An operation that changes the memory it names and answers with its row."""
    may = rules.one_memory(write=True, also=also)
    shown: dict[str, Any] = {
        "http": f"POST /memories/{{id}}/{name}",
        "in_query": PLACE,
        "answers": answers.MemoryRow,
    } | row
    return operation(allow=may, **shown)


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One page of memory rows, newest change first, and how many there are in all."""

    memories: Sequence[Mapping[str, Any]]
    total: int


class Remember(Room):
    """`remember`, the call that keeps one governed memory."""

    @operation(
        "POST /memories",
        answers.VerdictData,
        rules.remember,
        judges=("content", "trigger", "procedure"),
        data=_verdict,
    )
    def remember(
        self,
        content: Text,
        category: Annotated[
            str,
            says(
                "fact, preference, pattern, decision, gotcha, convention, episode, procedure, digest, handoff",
                "gotcha",
                high=100,
            ),
        ] = "fact",
        scope: Annotated[ScopeName, says("whose it is", "user")] = "project",
        owner: Annotated[str, says("the user, agent or run; not for the project", "alice", high=MAX_ID)] = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        mode: Annotated[
            Literal["default", "strict"],
            says('"strict" promotes conventions, patterns, gotchas and decisions at once', "strict"),
        ] = "default",
        importance: Annotated[Importance, says("how much it matters", "high")] = "medium",
        pinned: Annotated[bool, says("keep it at hand: promoted, tier 1, no decay", True)] = False,
        origin: Annotated[
            Origin,
            says(
                "where the text comes from; what tools and web pages say stays a candidate until a person promotes it",
                "agent",
            ),
        ] = "human",
        confidence: Confidence = None,
        status: Annotated[Status | None, says("the status to start with", "candidate")] = None,
        tier: Tier = None,
        source_id: Limited = None,
        source_session_id: Limited = None,
        source_run_id: Limited = None,
        agent_id: Annotated[
            str | None, says("the agent who says it", "coder", low=1, high=MAX_ID, pattern=ID_PATTERN)
        ] = None,
        file_scope_pattern: Files = None,
        trigger: TriggerText = None,
        procedure: Steps = None,
        vouched: Vouched = True,
    ) -> Verdict:
        """Remember one fact, if the gate lets it in; the verdict says kept, merged or refused, and why.

        Raises:
            Invalid: a field no memory can have. A refusal is no exception: see `Verdict.accepted`.
        """
        if status is None and origin == "human" and vouched and agent_id is None:
            status = "promoted"  # what a person says on purpose needs nobody else to vouch for it
        return self.parts.keeper.remember(
            content,
            category,
            space=Space(app_id, project_id),
            scope=scope,
            owner=owner,
            mode=mode,
            importance=importance,
            pinned=pinned,
            origin=origin,
            confidence=confidence,
            status=status,
            tier=tier,
            source_id=source_id,
            source_session_id=source_session_id,
            source_run_id=source_run_id,
            agent_id=agent_id,
            file_scope_pattern=file_scope_pattern,
            trigger=trigger or "",
            procedure=procedure or "",
            vouched=vouched,
        )


class Single(Room):
    """Operations on single governed memories: list, search, edit, forget."""

    # ------------------------------------------------------------ reading

    @operation("GET /memories", answers.MemoriesData, rules.one_scope)
    def list(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        status: Annotated[Status | None, says("only these", "promoted")] = None,
        category: Annotated[Category | None, says("only these", "decision")] = None,
        pinned: Annotated[bool | None, says("only pinned ones, or only others", True)] = None,
        archived: Annotated[bool, says("archived ones, too", True)] = False,
        skills: Annotated[bool, says("include memories that stand for skill files", False)] = True,
        offset: Annotated[int, says("how many to skip", 50, low=0)] = 0,
        limit: Annotated[int, says("how many a page", 50, low=1, high=MAX_PAGE)] = 50,
        **at: Unpack[InSpace],
    ) -> MemoryPage:
        """One page of memories. Archived ones only with `archived`, or by asking for that status.

        Raises:
            Invalid: an unknown scope, status or category, or a page that cannot be.
        """
        _check_list(status, category, offset, limit)
        space = space_named(**at)
        rows, total = self.parts.keeper.list(
            space,
            scope=named_scope(self.parts, space, scope, owner),
            status=status,
            category=category,
            pinned=pinned,
            archived=archived,
            skills=skills,
            offset=offset,
            limit=limit,
        )
        return MemoryPage(rows, total)

    @operation("GET /memories/{id}", answers.MemoryRow, rules.one_memory(write=False))
    def show(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """One memory as a row."""
        return self.parts.keeper.row(memory_named(self.parts, memory_id, at))

    @operation("POST /memories/search", answers.MemorySearchData, rules.one_scope, data=_found, writes=False)
    def search(
        self,
        query: Annotated[str, says("the question, in plain words", "what waits for migrations", low=1)],
        *,
        scope: Annotated[ScopeName, says("whose memories", "agent")] = "project",
        owner: Owner = "",
        method: Annotated[
            Literal["keyword", "vector", "hybrid"], says("by words, by meaning, or both", "hybrid")
        ] = "hybrid",
        top_k: TopK = -1,
        min_score: MinScore = None,
        token_budget: TokenBudget = None,
        explain: Explain = False,
        for_injection: ForInjection = False,
        archived: Annotated[bool, says("archived ones, too", True)] = False,
        consistency: Consistency = "eventual",
        **at: Unpack[InSpace],
    ) -> SearchResult:
        """Find the memories of one scope that answer `query`; the project's unless another is named.

        Only `result.memories` is filled. A hit counts as a use of the memory.
        """
        from cairn.retrieval.answers import SearchRequest

        parts = self.parts
        request = SearchRequest(
            query=query,
            scope=parts.keeper.scope_of(space_named(**at), scope, owner),
            method=method,
            top_k=top_k,
            min_score=min_score,
            token_budget=token_budget,
            explain=explain,
            for_injection=for_injection,
            include_hidden=archived,
            consistency=consistency,
        )
        if consistency != "strong":
            parts.settle(request.scope, embed=method != "keyword")
        found = parts.searcher.search(request)
        return replace(
            found, episodes=(), agent_cases=(), agent_skills=(), unprocessed_messages=(), unflushed=()
        )

    @operation(
        "GET /memories/{id}/history",
        answers.HistoryData,
        rules.one_memory(write=False),
        data=_history,
        apart=True,
    )
    def history(self, memory_id: MemoryId, **at: Unpack[InScope]) -> Sequence[HistoryLine]:
        """Everything on record about a memory, oldest first, new words that its file got from an editor included."""
        record = memory_named(self.parts, memory_id, at)
        told = governed.corrections.history(self.parts.keeper, record)
        return list(merge(told, self._edits(record, told), key=lambda line: line.at))

    def _edits(self, record: Record, told: Sequence[HistoryLine]) -> Sequence[HistoryLine]:
        """The changes of a memory's words that came by its file alone, oldest first."""
        space, known = record.scope.space, {(line.new or {}).get("content") for line in told}
        self.parts.observer.look_around(space)
        travel = self.parts.observer.of(space)
        changes = [
            one
            for one in travel.log(f"{record.locator.key}#{record.entry_id}", limit=_EDITS)
            if one.cause == "edit"
        ]
        texts = travel.texts([one for change in changes for one in (change.before, change.after) if one])
        lines = []
        for change in reversed(changes):
            old, new = (_words(texts.get(one or "", "")) for one in (change.before, change.after))
            if old and new and old != new and new not in known:
                lines.append(
                    HistoryLine(change.at, "edited in its file", "", "", {"content": old}, {"content": new})
                )
        return lines

    @operation("GET /memories/{id}/why", answers.WhyData, rules.one_memory(write=False))
    def why(self, memory_id: MemoryId, **at: Unpack[InScope]) -> Sequence[str]:
        """Why a memory is kept as it is: where it came from, what merged, how it is used."""
        return governed.corrections.why(self.parts.keeper, memory_named(self.parts, memory_id, at))

    # ------------------------------------------------------------ correcting

    @_corrects("", rules.may_reword, http="PATCH /memories/{id}")
    def edit(
        self,
        memory_id: MemoryId,
        *,
        content: NewText = None,
        category: NewCategory = None,
        importance: NewImportance = None,
        confidence: Confidence = None,
        tier: Tier = None,
        file_scope_pattern: Files = None,
        trigger: TriggerText = None,
        procedure: Steps = None,
        reason: Reason = "",
        **at: Unpack[InScope],
    ) -> dict[str, Any]:
        """Change a memory where it stands; the old text stays in its history."""
        named: dict[str, Any] = {
            "content": content,
            "category": category,
            "importance": importance,
            "confidence": confidence,
            "tier": tier,
            "file_scope_pattern": file_scope_pattern,
            "trigger": trigger,
            "procedure": procedure,
        }
        changes = {name: value for name, value in named.items() if value is not None}
        if not changes:
            raise Invalid("Say what to change: content, category, importance, ...", field="content")
        record = memory_named(self.parts, memory_id, at)
        return governed.corrections.edit(self.parts.keeper, record, reason=reason, **changes)

    @_corrects("supersede", rules.may_reword, judges=("content",), answers=answers.VerdictData, data=_verdict)
    def supersede(
        self,
        memory_id: MemoryId,
        content: Annotated[str, says("the new memory", "We use spaces.", high=MAX_TEXT)],
        *,
        reason: Annotated[str, says("why", "a new formatter", low=1, high=2000)],
        category: NewCategory = None,
        importance: NewImportance = None,
        vouched: Vouched = True,
        **at: Unpack[InScope],
    ) -> Verdict:
        """Replace a memory by a new one; the old stays readable and says by what and why."""
        old = memory_named(self.parts, memory_id, at)
        return governed.corrections.supersede(
            self.parts.keeper, old, content, reason=reason, vouched=vouched,
            category=category or old.category, importance=importance or old.importance,
        )  # fmt: skip

    @_corrects("pin", rules.may_pin("pin"))
    def pin(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """Keep a memory at hand: promoted, tier 1, no decay."""
        return governed.corrections.pin(self.parts.keeper, memory_named(self.parts, memory_id, at))

    @_corrects("unpin", rules.may_pin("unpin"))
    def unpin(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """Let a pinned memory age like any other, from now."""
        return governed.corrections.pin(
            self.parts.keeper, memory_named(self.parts, memory_id, at), pinned=False
        )

    @_corrects("archive", in_query=("reason", *PLACE))
    def archive(self, memory_id: MemoryId, *, reason: Reason = "", **at: Unpack[InScope]) -> dict[str, Any]:
        """Put a memory away: it stays in its note, but out of answers, dedup and limits."""
        return governed.corrections.archive(
            self.parts.keeper, memory_named(self.parts, memory_id, at), reason=reason
        )

    @_corrects("restore", rules.may_restore, apart=True)
    def restore(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """Bring an archived memory back."""
        return governed.corrections.restore(self.parts.keeper, memory_named(self.parts, memory_id, at))

    @_corrects("promote", rules.may_promote)
    def promote(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """Promote a candidate: a person vouches for it, whatever its origin."""
        return governed.corrections.promote(self.parts.keeper, memory_named(self.parts, memory_id, at))

    @_corrects("outcome", answers=answers.ProcedureData)
    def outcome(
        self,
        memory_id: MemoryId,
        *,
        success: Annotated[bool, says("whether it worked", True)],
        reason: Reason = "",
        source: Annotated[
            str, says("the episode or case that shows it", "coder_ac_20260601_00000001", high=200)
        ] = "",
        vouched: Vouched = True,
        pins: Annotated[bool, Granted("pin")] = True,
        **at: Unpack[InScope],
    ) -> dict[str, Any]:
        """Record how a use of a procedure went: it grows surer or fades, is pinned when it proves itself (three
        successes, confidence 0.8) and archived when it does not (five uses, below 0.3).
        """
        keeper, record = self.parts.keeper, memory_named(self.parts, memory_id, at)
        governed.procedures.outcome(
            keeper, record, success=success, reason=reason, source=source, vouched=vouched and pins
        )
        return governed.procedures.show(keeper, memory_named(self.parts, memory_id, at))

    @operation("GET /memories/{id}/procedure", answers.ProcedureData, rules.one_memory(write=False))
    def procedure(self, memory_id: MemoryId, **at: Unpack[InScope]) -> dict[str, Any]:
        """A procedure as a whole: when and how, how often it worked, every outcome, and what it was learned from."""
        return governed.procedures.show(self.parts.keeper, memory_named(self.parts, memory_id, at))

    @operation(
        ("POST /memories/forget", "DELETE /memories/{id}"),
        answers.ReceiptData,
        rules.forget,
        judges=("words", "also", "memory_id"),
        apart=True,
    )
    def forget(
        self,
        memory_id: Annotated[
            str | None, says("what to forget", "alice_mem_20260601_00000001", low=1, high=200, wire="id")
        ] = None,
        *,
        words: Annotated[
            Sequence[str],
            says(
                "phrases to remove wherever they occur as whole words, with the sentences that hold them",
                ["Elm Street 12"],
                high=100,
                each=(1, 4096),
            ),
        ] = (),
        also: Annotated[
            Sequence[str],
            says(
                "ids of things that a dry run or an earlier receipt listed as alike",
                ["alice_mem_20260601_00000002"],
                high=500,
                each=(1, 200),
            ),
        ] = (),
        similar: Annotated[bool, says("also remove everything that is listed as alike", True)] = False,
        all_owners: Annotated[bool, says("everybody's memory, not one owner's alone", True)] = False,
        dry_run: DryRun = False,
        **at: Unpack[InScope],
    ) -> Receipt:
        """Remove a memory, the same statement elsewhere in its owner's memory, and what was made from it: notes,
        transcripts, journals, pages, index, history. There is no undo.

        Entries of other kinds (an episode, a fact) go by their public id in the same way.

        Returns:
            What went, what is alike and stays, and what could not be removed; `complete` only where not a byte
            of the words is left below the root.
        """
        parts, entry = self.parts, memory_id
        phrases, more = _texts(words, "words"), _texts(also, "also")
        space, where = scope_named(parts, **at)
        if memory_id is not None and where is None:
            entry, where = _entry_of(parts, space, memory_id)

        def run(beside: Beside) -> Receipt:
            return governed.forget.forget(
                parts.keeper, space, entry, scope=where, words=phrases, also=more, similar=similar,
                all_owners=all_owners, dry_run=dry_run, beside=beside,
            )  # fmt: skip

        call = {
            "call": "forget", "memory_id": memory_id, "words": phrases, "also": more, "similar": similar,
            "all_owners": all_owners, "dry_run": dry_run, **at,
        }  # fmt: skip
        return while_quiet(parts, run, purgers(parts), call=call)


def _entry_of(parts: Parts, space: Space, public_id: str) -> tuple[str, Scope | None]:
    """What `forget` needs of a public id: a memory's as it is, another kind's entry id and its scope."""
    owner, entry = split_public_id(public_id)
    if entry.startswith("mem_") or not owner:
        return public_id, None
    for track in ("user", "agent", "mission"):
        try:
            scope = Scope(space, track, owner)
            parts.notebook.find(scope, entry)
        except (NotFound, Invalid):
            continue
        return entry, scope
    raise NotFound(f"There is no entry {public_id[:80]} in {space.app}/{space.project}.", id=public_id)


def _texts(values: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(one, str) for one in values):
        raise Invalid(f"{field} must be a list of texts.", field=field)
    return tuple(values)


def _check_list(status: str | None, category: str | None, offset: int, limit: int) -> None:
    for name, value, allowed in (
        ("status", status, get_args(Status)),
        ("category", category, get_args(Category)),
    ):
        if value is not None and value not in allowed:
            raise Invalid(f'{name} "{value[:60]}" is not one of {", ".join(allowed)}.', field=name)
    if not isinstance(offset, int) or offset < 0:
        raise Invalid(f"offset is {offset!r:.60}: use 0 or more.", field="offset")
    if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"limit is {limit!r:.60}: use 1 to {MAX_PAGE}.", field="limit")
