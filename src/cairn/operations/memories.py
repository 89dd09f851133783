"""Governed memories one by one: remember, look, correct, forget.

    verdict = memory.remember("Deploys wait for the migration job.", "gotcha")
    page = memory.memories.list(scope="project")
    memory.memories.supersede(verdict.memory["id"], "Deploys run migrations.", reason="new pipeline")

What a memory is and what may become of it is decided in `governed`; here its calls get names and a space. Project
memories belong to no owner, so `memory.search` never returns them: `memories.search` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from cairn.errors import Invalid, NotFound, Unavailable
from cairn.operations.table import Room, operation
from cairn.seams import Locator
from cairn.types import Scope, Space, Verdict

if TYPE_CHECKING:
    from cairn.governed.forget import Purger, Receipt, Wanted
    from cairn.governed.memories import HistoryLine
    from cairn.governed.records import Status
    from cairn.parts import Parts
    from cairn.retrieval.answers import SearchResult

MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One page of memory rows, newest change first, and how many there are in all."""

    memories: Sequence[Mapping[str, Any]]
    total: int


class Remember(Room):
    """The one call about governed memories that everybody needs."""

    @operation(writes=True)
    def remember(
        self,
        /,
        content: str,
        category: str = "fact",
        scope: str = "project",
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        *,
        mode: Literal["default", "strict"] = "default",
        importance: Literal["low", "medium", "high"] = "medium",
        pinned: bool = False,
        origin: Literal["human", "agent", "tool", "web", "recalled", "import"] = "human",
        **more: Any,
    ) -> Verdict:
        """Keep one explicit fact if the gate lets it in; the verdict says kept, merged or refused, and why.

        Args:
            content: What to remember.
            category: fact, preference, pattern, decision, gotcha, convention, episode, procedure, digest, handoff.
            scope: "project", or "agent", "mission", "user" with its `owner`.
            owner: The agent, run or user.
            app_id: The app.
            project_id: The project.
            mode: "strict" promotes conventions, patterns, gotchas and decisions at once.
            importance: low, medium or high.
            pinned: Keep it at hand: promoted, tier 1, no decay.
            origin: Where the words come from; what tools and pages say waits for a person.
            more: The other fields of `cairn.governed.memories.Keeper.remember`.

        Raises:
            Invalid: a field no memory can have. A refusal is no exception: see `Verdict.accepted`.
        """
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
            **more,
        )


class Single(Room):
    """Governed memories, one at a time."""

    # ------------------------------------------------------------ reading

    @operation(writes=False)
    def list(
        self,
        *,
        scope: str | None = None,
        owner: str = "",
        status: str | None = None,
        category: str | None = None,
        pinned: bool | None = None,
        archived: bool = False,
        skills: bool = True,
        offset: int = 0,
        limit: int = 50,
        app_id: str = "default",
        project_id: str = "default",
    ) -> MemoryPage:
        """One page of memories. Archived ones only with `archived`, or by asking for that status.

        Raises:
            Invalid: an unknown scope, status or category, or a page that cannot be.
        """
        _check_list(status, category, offset, limit)
        space = Space(app_id, project_id)
        rows, total = self.parts.keeper.list(
            space,
            scope=self._scope(space, scope, owner),
            status=cast("Status | None", status),
            category=category,
            pinned=pinned,
            archived=archived,
            skills=skills,
            offset=offset,
            limit=limit,
        )
        return MemoryPage(rows, total)

    @operation(writes=False)
    def show(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """One memory as a row."""
        space = Space(app_id, project_id)
        found = self.parts.keeper.find(space, memory_id, scope=self._scope(space, scope, owner))
        return self.parts.keeper.row(found)

    @operation(writes=False)
    def search(
        self,
        query: str,
        *,
        scope: str = "project",
        owner: str = "",
        method: str = "hybrid",
        top_k: int = -1,
        min_score: float | None = None,
        token_budget: int | None = None,
        explain: bool = False,
        for_injection: bool = False,
        archived: bool = False,
        consistency: str = "eventual",
        app_id: str = "default",
        project_id: str = "default",
    ) -> SearchResult:
        """Find the memories of one scope that answer `query`; the project's unless another is named.

        Only `result.memories` is filled. A hit counts as a use of the memory.
        """
        from cairn.retrieval.answers import SearchRequest

        parts = self.parts
        request = SearchRequest(
            query=query,
            scope=parts.keeper.scope_of(Space(app_id, project_id), scope, owner),
            method=method,
            top_k=top_k,
            min_score=min_score,
            token_budget=token_budget,
            explain=explain,
            for_injection=for_injection,
            include_hidden=archived,
            consistency=consistency,
        )
        if parts.daemon is None or consistency == "strong":
            parts.indexer.catch_up(request.wait_seconds, embed=method != "keyword")
        found = parts.searcher.search(request)
        return replace(found, episodes=(), agent_cases=(), agent_skills=(), unprocessed_messages=())

    @operation(writes=False)
    def history(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[HistoryLine]:
        """Everything on record about a memory, oldest first."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.history(self.parts.keeper, space, memory_id, scope=where)

    @operation(writes=False)
    def why(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[str]:
        """Why a memory is kept as it is: where it came from, what merged, how it is used."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.why(self.parts.keeper, space, memory_id, scope=where)

    # ------------------------------------------------------------ correcting

    @operation(writes=True)
    def edit(
        self,
        /,
        memory_id: str,
        *,
        reason: str = "",
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        **changes: Any,
    ) -> dict[str, Any]:
        """Change fields of a memory: content, category, importance, confidence, tier, file_scope_pattern,
        trigger, procedure. The old text stays in its history.
        """
        from cairn.governed import corrections

        if not changes:
            raise Invalid("Say what to change: content, category, importance, ...", field="content")
        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.edit(self.parts.keeper, space, memory_id, scope=where, reason=reason, **changes)

    @operation(writes=True)
    def supersede(
        self,
        /,
        memory_id: str,
        content: str,
        *,
        reason: str,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        **fields: Any,
    ) -> Verdict:
        """Replace a memory by a new one; the old stays readable and says by what and why."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.supersede(
            self.parts.keeper, space, memory_id, content, reason=reason, scope=where, **fields
        )

    @operation(writes=True)
    def pin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Keep a memory at hand: promoted, tier 1, no decay."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.pin(self.parts.keeper, space, memory_id, scope=where)

    @operation(writes=True)
    def unpin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Let a pinned memory age like any other, from now."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.pin(self.parts.keeper, space, memory_id, scope=where, pinned=False)

    @operation(writes=True)
    def archive(
        self,
        memory_id: str,
        *,
        reason: str = "",
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Put a memory away: it stays in its note, but out of answers, dedup and limits."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.archive(self.parts.keeper, space, memory_id, scope=where, reason=reason)

    @operation(writes=True)
    def restore(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Bring an archived memory back."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.restore(self.parts.keeper, space, memory_id, scope=where)

    @operation(writes=True)
    def promote(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Promote a candidate: a person vouches for it, whatever its origin."""
        from cairn.governed import corrections

        space = Space(app_id, project_id)
        where = self._scope(space, scope, owner)
        return corrections.promote(self.parts.keeper, space, memory_id, scope=where)

    @operation(writes=True)
    def forget(
        self,
        memory_id: str | None = None,
        *,
        words: Sequence[str] = (),
        also: Sequence[str] = (),
        similar: bool = False,
        all_owners: bool = False,
        dry_run: bool = False,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Receipt:
        """Remove a memory, the same statement elsewhere in its owner's memory, and what was made from it: notes,
        transcripts, journals, pages, index, history. There is no undo.

        Entries of other kinds (an episode, a fact) go by their public id in the same way.

        Args:
            memory_id: What to forget.
            words: Phrases to take out wherever they stand as whole words, with the sentences that hold them.
            also: Ids of things that a dry run or an earlier receipt listed as alike.
            similar: Take everything that is alike, too.
            all_owners: Everybody's memory, not one owner's alone.
            dry_run: Only tell what would go, with its words, and what is alike.
            scope: Whose entry or words: "project", "agent", "mission" or "user".
            owner: Its id.
            app_id: The app.
            project_id: The project.

        Returns:
            What went, what is alike and stays, and what could not be removed; `complete` only where not a byte
            of the words is left below the root.
        """
        from cairn.governed import forget
        from cairn.strategies.profile import without_items

        parts, space, entry = self.parts, Space(app_id, project_id), memory_id
        phrases, more = _texts(words, "words"), _texts(also, "also")
        where = self._scope(space, scope, owner)
        if memory_id is not None and where is None:
            entry, where = _entry_of(parts, space, memory_id)

        def run(*, paused: bool) -> Receipt:
            return forget.forget(
                parts.keeper,
                space,
                entry,
                scope=where,
                words=phrases,
                also=more,
                similar=similar,
                all_owners=all_owners,
                dry_run=dry_run,
                settle=lambda: unsettled(parts, paused=paused),
                purgers=purgers(parts),
                profile=without_items,
                files=lambda: _every_file(parts),
            )

        if dry_run:
            return run(paused=True)
        with parts.engine.paused() as paused:
            return run(paused=paused)

    def _scope(self, space: Space, scope: str | None, owner: str) -> Scope | None:
        return named_scope(self.parts, space, scope, owner)


def unsettled(parts: Parts, *, paused: bool) -> list[tuple[str, str]]:
    """Wait for whoever may still write what he read before it was forgotten; who was not done in time."""
    left = []
    if not paused:
        left.append(
            ("strategies", "one has been running for a minute and may write what it read; forget again")
        )
    if not parts.capture.settle():
        left.append(
            ("episodes", "a model has been telling one for a minute; forget again once it is written")
        )
    return left


def purgers(parts: Parts) -> Mapping[str, Purger]:
    """What `forget` cannot see from the notes: former texts of entries, and the index to its last byte."""
    return {
        "history texts": lambda wanted: _purge_history(parts, wanted),
        "index": lambda wanted: _purge_index(parts, wanted),
    }


def _entry_of(parts: Parts, space: Space, public_id: str) -> tuple[str, Scope | None]:
    """What `forget` needs of a public id: a memory's as it is, another kind's entry id and its scope."""
    *owner, kind, day, number = public_id.rsplit("_", 3) if public_id.count("_") >= 2 else ("", "mem", "", "")
    if kind == "mem" or not owner or not owner[0]:
        return public_id, None
    entry = f"{kind}_{day}_{number}"
    for track in ("user", "agent", "mission"):
        try:
            scope = Scope(space, track, owner[0])
            parts.notebook.find(scope, entry)
        except (NotFound, Invalid):
            continue
        return entry, scope
    raise NotFound(f"There is no entry {public_id[:80]} in {space.app}/{space.project}.", id=public_id)


def _purge_history(parts: Parts, wanted: Wanted) -> int:
    """Former texts of the forgotten entries, and every text with the words."""
    from cairn.governed.removal import cleaned_block
    from cairn.strategies.profile import without_items

    parts.observer.settle()
    named = []
    for scope, entry in wanted.entries:
        folder = parts.root.scope(scope).key + "/"
        named += [f"{path}#{entry}" for path in wanted.paths if path.startswith(folder)]
    return parts.observer.of(wanted.space).purge(
        entries=named, clean=lambda path, text: cleaned_block(wanted, path, text, without_items)
    )


def _every_file(parts: Parts) -> Iterator[tuple[str, bytes | None]]:
    """All that is kept of this root, on this machine: the root, and an index or scratch space beside it."""
    from cairn.engines.bytescan import pieces

    root = parts.settings.root
    beside = [(".index", parts.settings.index_dir), *((".local", at) for at in parts.local_folders)]
    outside = [(name, at) for name, at in beside if root != at and root not in at.parents]
    return pieces([("", root), *outside])


def _purge_index(parts: Parts, wanted: Wanted) -> int:
    """Index the cleaned files, then write the databases anew, so that no byte of the old rows remains."""
    paths = sorted(set(wanted.paths))
    parts.indexer.note_change([(Locator(path), "modified") for path in paths])
    # Up to here and no further: on a busy root something else always waits.
    if not parts.indexer.wait(parts.indexer.scan().lsn, 60.0):
        raise Unavailable("the cleaned notes are not indexed yet; forget again in a moment")
    if parts.follower is not None:
        parts.follower.stop()
    scrubs = (
        ("rows and vectors", parts.index.scrub),
        ("the vector mirror", parts.mirror.scrub),
        ("the change queue", parts.state.scrub),
        ("the tables", parts.tables.scrub),
    )
    left = [name for name, scrub in scrubs if not scrub()]
    if left:
        raise Unavailable(f"{', '.join(left)}: in use just now; forget again to remove the freed bytes")
    return len(paths)


def named_scope(parts: Parts, space: Space, scope: str | None, owner: str) -> Scope | None:
    """The scope a caller named; None where the id alone shall say it."""
    if scope is None:
        if owner:
            raise Invalid(
                f'owner "{owner[:60]}" without a scope: say whether it is a user, an agent or a mission.',
                field="scope",
            )
        return None
    return parts.keeper.scope_of(space, scope, owner)


def _texts(values: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(one, str) for one in values):
        raise Invalid(f"{field} must be a list of texts.", field=field)
    return tuple(values)


def _check_list(status: str | None, category: str | None, offset: int, limit: int) -> None:
    from cairn.governed.records import CATEGORIES, STATUSES

    for name, value, allowed in (("status", status, STATUSES), ("category", category, CATEGORIES)):
        if value is not None and value not in allowed:
            raise Invalid(f'{name} "{value[:60]}" is not one of {", ".join(allowed)}.', field=name)
    if not isinstance(offset, int) or offset < 0:
        raise Invalid(f"offset is {offset!r:.60}: use 0 or more.", field="offset")
    if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"limit is {limit!r:.60}: use 1 to {MAX_PAGE}.", field="limit")
