"""Governed memories of an open root, for callers: `memory.remember` and everything under `memory.memories`.

    verdict = await memory.remember("Deploys wait for the migration job.", "gotcha")
    page = await memory.memories.list(scope="project")
    await memory.memories.supersede(verdict.memory["id"], "Deploys run migrations.", reason="new pipeline")

What a memory is and what may become of it is decided in `keeping`; here its calls get names, a space, and a
thread. Project memories belong to no owner, so `memory.search` never returns them: `memories.search` does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from cairn.errors import Invalid, NotFound, Unavailable
from cairn.governed import (
    consolidation,
    core,
    corrections,
    forget,
    lifecycle,
    maintenance,
    migrate,
    missions,
    pages,
    skills,
)
from cairn.governed.forget import Purger, Receipt, Wanted
from cairn.governed.removal import cleaned_block
from cairn.governed.skills import ScanReport
from cairn.parts import Parts
from cairn.seams import Locator
from cairn.strategies.profile import without_items
from cairn.types import Scope, Space, Verdict

if TYPE_CHECKING:
    from cairn.governed.memories import HistoryLine
    from cairn.governed.records import Status
    from cairn.retrieval.answers import SearchResult

P = ParamSpec("P")
T = TypeVar("T")

MAX_PAGE = 500


class Pool(Protocol):
    """Runs a call in one of the memory's thread pools."""

    def __call__(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """One page of memory rows, newest change first, and how many there are in all."""

    memories: Sequence[Mapping[str, Any]]
    total: int


class Memories:
    """`memory.memories`: list, correct, forget, sweep, consolidate, core memory, skills and pages.

    Every call takes `app_id` and `project_id`. Where an id alone is not enough, `scope` ("project", "agent",
    "mission", "user") and `owner` say whose memory is meant. Rows are plain mappings with ADE's column names.
    """

    def __init__(self, parts: Callable[[], Parts], read: Pool, write: Pool) -> None:
        self._parts = parts
        self._read = read
        self._write = write

    # ------------------------------------------------------------ reading

    async def list(
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
        parts, space = self._parts(), Space(app_id, project_id)
        _check_list(status, category, offset, limit)

        def look() -> MemoryPage:
            rows, total = parts.keeper.list(
                space,
                scope=_scope(parts, space, scope, owner),
                status=cast("Status | None", status),
                category=category,
                pinned=pinned,
                archived=archived,
                skills=skills,
                offset=offset,
                limit=limit,
            )
            return MemoryPage(rows, total)

        return await self._read(look)

    async def show(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """One memory as a row."""
        parts, space = self._parts(), Space(app_id, project_id)

        def look() -> dict[str, Any]:
            found = parts.keeper.find(space, memory_id, scope=_scope(parts, space, scope, owner))
            return parts.keeper.row(found)

        return await self._read(look)

    async def search(
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

        parts, space = self._parts(), Space(app_id, project_id)
        where = parts.keeper.scope_of(space, scope, owner)
        request = SearchRequest(
            query=query,
            scope=where,
            method=method,
            top_k=top_k,
            min_score=min_score,
            token_budget=token_budget,
            explain=explain,
            for_injection=for_injection,
            include_hidden=archived,
            consistency=consistency,
        )

        def look() -> SearchResult:
            if parts.daemon is None or consistency == "strong":
                parts.indexer.catch_up(request.wait_seconds, embed=method != "keyword")
            found = parts.searcher.search(request)
            return replace(found, episodes=(), agent_cases=(), agent_skills=(), unprocessed_messages=())

        return await self._read(look)

    async def history(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[HistoryLine]:
        """Everything on record about a memory, oldest first."""
        return await self._one(
            self._read, corrections.history, memory_id, Space(app_id, project_id), scope, owner
        )

    async def why(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[str]:
        """Why a memory is kept as it is: where it came from, what merged, how it is used."""
        return await self._one(
            self._read, corrections.why, memory_id, Space(app_id, project_id), scope, owner
        )

    # ------------------------------------------------------------ correcting

    async def edit(
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
        if not changes:
            raise Invalid("Say what to change: content, category, importance, ...", field="content")
        space = Space(app_id, project_id)
        return await self._one(
            self._write, corrections.edit, memory_id, space, scope, owner, reason=reason, **changes
        )

    async def supersede(
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
        parts, space = self._parts(), Space(app_id, project_id)

        def change() -> Verdict:
            where = _scope(parts, space, scope, owner)
            return corrections.supersede(
                parts.keeper, space, memory_id, content, reason=reason, scope=where, **fields
            )

        return await self._write(change)

    async def pin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Keep a memory at hand: promoted, tier 1, no decay."""
        space = Space(app_id, project_id)
        return await self._one(self._write, corrections.pin, memory_id, space, scope, owner)

    async def unpin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Let a pinned memory age like any other, from now."""
        space = Space(app_id, project_id)
        return await self._one(self._write, corrections.pin, memory_id, space, scope, owner, pinned=False)

    async def archive(
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
        space = Space(app_id, project_id)
        return await self._one(
            self._write, corrections.archive, memory_id, space, scope, owner, reason=reason
        )

    async def restore(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Bring an archived memory back."""
        space = Space(app_id, project_id)
        return await self._one(self._write, corrections.restore, memory_id, space, scope, owner)

    async def promote(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Promote a candidate: a person vouches for it, whatever its origin."""
        space = Space(app_id, project_id)
        return await self._one(self._write, corrections.promote, memory_id, space, scope, owner)

    async def forget(
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
        parts, space = self._parts(), Space(app_id, project_id)
        phrases, more = _texts(words, "words"), _texts(also, "also")

        def remove() -> Receipt:
            where = _scope(parts, space, scope, owner)
            entry = memory_id
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

        return await self._write(remove)

    # ------------------------------------------------------------ keeping as a whole

    async def sweep(
        self, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> lifecycle.SweepReport:
        """Decay, demote, promote and archive what is due; consolidate crowded scopes; refresh the pages.

        A dry run only tells.
        """
        parts, space = self._parts(), Space(app_id, project_id)

        def run() -> lifecycle.SweepReport:
            if dry_run:
                report = lifecycle.sweep(parts.keeper, space, dry_run=True)
            else:
                done = maintenance.run(parts.keeper, space, writer=parts.writer)
                report = done.sweep if done is not None else None
                parts.tables.sync(parts.keeper)
            if report is None:  # pragma: no cover -- by hand it is always due
                raise Unavailable("Another sweep of this project is under way; wait for it to end.")
            return report

        return await self._write(run)

    async def import_from(
        self,
        source: str,
        text: str,
        *,
        owner: str = "",
        trust: bool = False,
        app_id: str = "default",
        project_id: str = "default",
    ) -> migrate.ImportReport:
        """Take in another program's export through the gate, each item once: ade, mem0, everos, basic-memory
        or claude. What comes in waits for a person to promote it, unless `trust` vouches for all of it.
        """
        parts, space = self._parts(), Space(app_id, project_id)

        def take() -> migrate.ImportReport:
            items = migrate.read(source, text, owner=owner)
            return migrate.bring_in(parts.keeper, space, source, items, trust=trust)

        return await self._write(take)

    async def consolidate(
        self,
        *,
        dry_run: bool = False,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> consolidation.ConsolidationReport:
        """Merge clusters of memories that say nearly the same. `undo_consolidation` takes a run back."""
        parts, space = self._parts(), Space(app_id, project_id)

        def merge() -> consolidation.ConsolidationReport:
            where = _scope(parts, space, scope, owner)
            return consolidation.consolidate(
                parts.keeper, space, scope=where, writer=parts.writer, dry_run=dry_run
            )

        return await self._write(merge)

    async def undo_consolidation(
        self, run_id: str, *, app_id: str = "default", project_id: str = "default"
    ) -> int:
        """Take a consolidation back; how many memories are as they were before."""
        return await self._write(consolidation.undo, self._parts().keeper, Space(app_id, project_id), run_id)

    async def end_mission(
        self, run_id: str, *, success: bool, app_id: str = "default", project_id: str = "default"
    ) -> missions.MissionEnd:
        """End a run: on success what it learned goes to the project, once; then its own are archived."""
        return await self._write(
            missions.end, self._parts().keeper, Space(app_id, project_id), run_id, success=success
        )

    async def core(
        self, agent: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """The core memory of the project, or of an agent."""
        parts, scope = self._parts(), core.core_scope(Space(app_id, project_id), agent)
        return await self._read(lambda: core.show(parts.keeper, scope).payload())

    async def set_core(
        self, /, agent: str = "", *, app_id: str = "default", project_id: str = "default", **fields: Any
    ) -> dict[str, Any]:
        """Set fields of the core memory: projectSummary, criticalConventions, userPreferences, activeFocus,
        notes. The version grows by one.
        """
        if not fields:
            raise Invalid("Say which field to set: projectSummary, criticalConventions, ...", field="core")
        parts, scope = self._parts(), core.core_scope(Space(app_id, project_id), agent)
        return await self._write(lambda: core.update(parts.keeper, scope, **fields).payload())

    async def skills(
        self, *, app_id: str = "default", project_id: str = "default"
    ) -> Sequence[Mapping[str, Any]]:
        """The registry of skill files, tombstones included."""
        keeper = self._parts().keeper
        return await self._read(
            lambda: [asdict(row) for row in skills.index(keeper, Space(app_id, project_id))]
        )

    async def scan_skills(
        self, folders: Sequence[str] = (), *, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Bring the registry in step with the skills in the root and in `folders`."""
        parts, space = self._parts(), Space(app_id, project_id)

        def scan() -> ScanReport:
            from cairn.engines.skillfolders import skill_files

            found = [*skills.in_root(parts.keeper, space)]
            sources = ["root"]
            for folder in folders:
                mine = skill_files(folder)
                found += mine.files
                sources.append(mine.source)
            return skills.scan(parts.keeper, space, found, sources=sources)

        return await self._write(scan)

    async def export_skill(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> str:
        """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; the path inside the root."""
        parts, space = self._parts(), Space(app_id, project_id)

        def write() -> str:
            where = _scope(parts, space, scope, owner)
            return skills.export(parts.keeper, space, memory_id, scope=where).key

        return await self._write(write)

    async def import_skill(
        self, path: str, *, text: str | None = None, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Take one SKILL.md in as a procedure: the file at `path`, or `text` under that name."""
        parts, space = self._parts(), Space(app_id, project_id)

        def take() -> ScanReport:
            from cairn.engines.skillfolders import one_skill_file

            file = one_skill_file(path) if text is None else skills.SkillFile(path, text, source="import")
            return skills.scan(parts.keeper, space, [file], sources=())

        return await self._write(take)

    async def refresh(self, *, app_id: str = "default", project_id: str = "default") -> pages.PagesReport:
        """Make the pages agents read (MEMORY.md and its topics) anew, and settle core memory."""
        parts, space = self._parts(), Space(app_id, project_id)

        def make() -> pages.PagesReport:
            core.reconcile_all(parts.keeper, space)
            return pages.refresh(parts.keeper, space)

        return await self._write(make)

    async def _one(
        self,
        pool: Pool,
        call: Callable[..., T],
        memory_id: str,
        space: Space,
        scope: str | None,
        owner: str,
        **more: Any,
    ) -> T:
        parts = self._parts()

        def run() -> T:
            where = _scope(parts, space, scope, owner)
            return call(parts.keeper, space, memory_id, scope=where, **more)

        return await pool(run)


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


def _scope(parts: Parts, space: Space, scope: str | None, owner: str) -> Scope | None:
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
