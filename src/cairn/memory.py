"""Memory: opens the parts, owns their lifetime, and reads top to bottom as the data flows.

    async with cairn.open("~/.cairn") as memory:
        await memory.add("s1", messages)
        await memory.flush("s1")
        result = await memory.search("where does Alice live", user_id="alice")

The parts are synchronous and safe to call from many threads; this facade moves each call to a thread, so an
event loop never waits for a disk. Engines are picked in `parts.py` and nowhere else.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from cairn import checkup, showing, timeline, upkeep
from cairn.config import Settings
from cairn.errors import CairnError, Invalid, Unavailable
from cairn.parts import Parts, open_parts
from cairn.seams import Clock
from cairn.types import Message, Space, Verdict

if TYPE_CHECKING:
    from cairn.governed_facade import Memories
    from cairn.retrieval.answers import SearchRequest, SearchResult
    from cairn.retrieval.listing import GetRequest, GetResult
    from cairn.talk import AddOutcome, FlushOutcome

log = logging.getLogger("cairn")

P = ParamSpec("P")
T = TypeVar("T")

MemoryType = Literal["episode", "profile", "agent_case", "agent_skill"]
Method = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]


class Memory:
    """One open memory root.

    Args:
        settings: Everything that can be set; see `cairn.config.load`.
        background: Notice edits, index, run strategies and sweep while open. Without it each call does its
            own indexing, as a lone command line does.
        clock: Time, for tests.
    """

    def __init__(self, settings: Settings, *, background: bool = True, clock: Clock | None = None) -> None:
        self.settings = settings
        self._background = background
        self._clock = clock
        self._opened: Parts | None = None
        self._writers: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None

    # ------------------------------------------------------------ lifetime

    async def __aenter__(self) -> Memory:
        self._writers = ThreadPoolExecutor(16, "cairn-write")
        self._readers = ThreadPoolExecutor(4, "cairn-read")
        await self._write(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._write(self._close)
        for pool in (self._writers, self._readers):
            if pool is not None:
                pool.shutdown(wait=True)
        self._writers = self._readers = None

    def _open(self) -> None:
        self._opened = open_parts(self.settings, clock=self._clock, patient=not self._background)
        if self._background:
            self._opened.start()

    def _close(self) -> None:
        if self._opened is not None:
            parts, self._opened = self._opened, None
            try:
                if not self._background:
                    parts.engine.run_due(seconds=10.0)  # a lone call does its own thinking
            except CairnError as error:
                # What was asked for is done and acknowledged; thinking is taken up by the next to open the root.
                log.warning("strategies: left for later: %s", error)
            finally:
                parts.close()

    @property
    def parts(self) -> Parts:
        """The parts of the open root, for those who build on them."""
        if self._opened is None:
            raise Invalid("This memory is not open: use it inside `async with cairn.open(...) as memory`.")
        return self._opened

    @functools.cached_property
    def memories(self) -> Memories:
        """Governed memories: list, correct, forget, sweep, consolidate, core memory, skills and pages."""
        from cairn.governed_facade import Memories

        return Memories(lambda: self.parts, self._read, self._write)

    async def _write(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in(self._writers, call, *args, **kwargs)

    async def _read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in(self._readers, call, *args, **kwargs)

    async def _in(
        self, pool: ThreadPoolExecutor | None, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if pool is None:
            raise Invalid("This memory is not open: use it inside `async with cairn.open(...) as memory`.")
        return await asyncio.get_running_loop().run_in_executor(
            pool, functools.partial(call, *args, **kwargs)
        )

    # ------------------------------------------------------------ talk

    async def add(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        app_id: str = "default",
        project_id: str = "default",
        *,
        defer_extraction: bool = False,
        idempotency_key: str | None = None,
        mode: Literal["chat", "agent"] | None = None,
        limited_to: Collection[str] | None = None,
    ) -> AddOutcome:
        """Keep `messages`, all or none, durably before this returns.

        `status` is "accumulated", or "extracted" if a boundary closed a cell and its episode is on disk. A caller
        `limited_to` some owners speaks only in their sessions, and those it begins are closed to other users.

        Raises:
            Invalid: something in the input breaks a rule.
            Forbidden: the session is of somebody outside `limited_to`.
            Conflict: the session was begun by a caller limited to others than a sender.
        """
        return await self._write(
            self._add,
            Space(app_id, project_id),
            session_id,
            messages,
            defer_extraction,
            idempotency_key,
            mode,
            limited_to,
        )

    def _add(
        self,
        space: Space,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        defer: bool,
        key: str | None,
        mode: str | None,
        limited_to: Collection[str] | None,
    ) -> AddOutcome:
        from cairn.talk import parse_message

        parsed = [
            one if isinstance(one, Message) else parse_message(one, f"messages[{n}]")
            for n, one in enumerate(messages)
        ]
        with self.parts.engine.foreground():
            return self.parts.capture.add(
                space, session_id, parsed, defer=defer, key=key, mode=mode, limited_to=limited_to
            )

    async def flush(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> FlushOutcome:
        """Close the session's open stretch now; its episode is on disk before this returns.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        return await self._write(self._flush, Space(app_id, project_id), session_id, limited_to)

    def _flush(self, space: Space, session_id: str, limited_to: Collection[str] | None) -> FlushOutcome:
        with self.parts.engine.foreground():
            return self.parts.capture.flush(space, session_id, limited_to=limited_to)

    async def remember(
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
        return await self._write(
            self.parts.keeper.remember,
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

    # ------------------------------------------------------------ recall

    async def search(
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
        return await self._read(self._search, request)

    def _search(self, request: SearchRequest) -> SearchResult:
        if not self._background or request.consistency == "strong":
            # Words are searchable as soon as rows are; meaning needs the vectors too.
            self._catch_up(request.consistency, request.wait_seconds, embed=request.method != "keyword")
        with self.parts.engine.foreground():
            return self.parts.searcher.search(request)

    async def get(
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
        return await self._read(self._get, request, consistency)

    def _get(self, request: GetRequest, consistency: str) -> GetResult:
        if consistency == "strong" or not self._background:
            self._catch_up(consistency)
        return self.parts.listing.get(request)

    def _catch_up(self, consistency: str, seconds: float = 10.0, *, embed: bool = False) -> None:
        """Bring the index up to date; on a disk that refuses, a reader who did not insist gets what there is."""
        try:
            self.parts.catch_up(seconds, embed=embed)
        except Unavailable as error:
            if consistency == "strong":
                raise
            log.warning("the index is not up to date: %s", error)

    async def show(
        self, entry_id: str, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """One thing by any id that a search, a listing or `doctor` gives: its text, its file and line, and the
        messages it came from.

        Raises:
            Invalid: it can be no id, or several owners have an entry of that name.
            NotFound: nothing goes by it in this space.
        """
        return await self._read(showing.show, self.parts, Space(app_id, project_id), entry_id)

    async def unprocessed(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> list[Message]:
        """The messages of a session that are in no cell yet.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        space = Space(app_id, project_id)
        return await self._read(self.parts.capture.unprocessed, space, session_id, limited_to=limited_to)

    async def session_owners(
        self, session_id: str, app_id: str = "default", project_id: str = "default"
    ) -> list[str]:
        """Everyone who spoke in a session."""
        return await self._read(upkeep.session_owners, self.parts, Space(app_id, project_id), session_id)

    async def reextract(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        date: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
    ) -> int:
        """Write episodes anew from their transcripts, in place; the number changed.

        Raises:
            Invalid: an id that cannot be one, or a `date` that is no day (YYYY-MM-DD).
        """
        return await self._write(
            self.parts.capture.reextract, Space(app_id, project_id), session_id, user_id, date
        )

    # ------------------------------------------------------------ index

    async def index_status(self) -> dict[str, Any]:
        """The queue, the index and who works on it."""
        return await self._read(upkeep.index_status, self.parts)

    async def sync(self, path: str | None = None) -> dict[str, Any]:
        """Bring the index up to date now: every file, or one note."""
        return await self._write(upkeep.sync, self.parts, path)

    async def failures(self, *, retry: bool = False) -> list[dict[str, Any]]:
        """Changes that could not be indexed, with reasons; with `retry` the retryable ones are queued again."""
        return await self._write(upkeep.failures, self.parts, retry=retry)

    async def rebuild(self) -> dict[str, Any]:
        """Make the whole index anew from the files."""
        return await self._write(upkeep.rebuild, self.parts)

    # ------------------------------------------------------------ strategies

    async def strategies(self) -> list[dict[str, Any]]:
        """Every strategy: whether it is on, what triggers it, how its runs went."""
        return await self._read(upkeep.strategies, self.parts)

    async def trigger(self, name: str, *, timeout: float = 120.0, force: bool = False) -> dict[str, Any]:
        """Run a strategy now over all it has not seen."""
        return await self._write(upkeep.trigger, self.parts, name, timeout, force)

    async def undo_reflection(self, run_id: str) -> list[str]:
        """Take back one reflection run; the notes are byte for byte as before it."""
        return await self._write(upkeep.undo_reflection, self.parts, run_id)

    # ------------------------------------------------------------ upkeep

    async def health(self) -> dict[str, Any]:
        """Status, capabilities and the index's health; quick whatever else goes on."""
        return await self._read(upkeep.health, self.parts)

    async def gauges(self) -> dict[str, tuple[str, float]]:
        """Figures for /metrics."""
        return await self._read(upkeep.gauges, self.parts)

    async def doctor(self) -> list[dict[str, Any]]:
        """Look for trouble everywhere; each finding names the next step."""
        return await self._read(checkup.doctor, self.parts)

    async def repair(self) -> list[dict[str, Any]]:
        """Mend what is safe to mend among `doctor`'s findings, and say what was done."""
        return await self._write(checkup.repair, self.parts)

    # ------------------------------------------------------------ time

    async def log(
        self,
        entry_id: str | None = None,
        *,
        limit: int = 100,
        app_id: str = "default",
        project_id: str = "default",
    ) -> list[dict[str, Any]]:
        """Changes of entries, newest first: of one entry by the id `search` gives or `path#id`, or of all."""
        return await self._read(timeline.log, self.parts, Space(app_id, project_id), entry_id, limit)

    async def checkpoint(
        self, label: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """Mark this moment, to compare with or come back to."""
        return await self._write(timeline.checkpoint, self.parts, Space(app_id, project_id), label)

    async def checkpoints(
        self, *, app_id: str = "default", project_id: str = "default"
    ) -> list[dict[str, Any]]:
        """Every marked moment."""
        return await self._read(timeline.checkpoints, self.parts, Space(app_id, project_id))

    async def diff(
        self, target: str, *, app_id: str = "default", project_id: str = "default"
    ) -> list[dict[str, Any]]:
        """What is different now from a checkpoint or a time."""
        return await self._read(timeline.diff, self.parts, Space(app_id, project_id), target)

    async def restore(
        self, target: str, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> list[dict[str, Any]]:
        """Bring entries back to a checkpoint, a time, or before one change; this too can be undone."""
        space = Space(app_id, project_id)
        return await self._write(timeline.restore, self.parts, space, target, dry_run=dry_run)

    # ------------------------------------------------------------ as a whole

    async def export_to(self, target: str, *, with_secrets: bool = False) -> dict[str, Any]:
        """Copy the truth into a new folder or a .tar.gz archive, readable by its owner alone.

        API keys and tokens of the settings are left out, and named in the answer, unless `with_secrets` is given.
        """
        return await self._write(upkeep.export_to, self.parts, target, with_secrets=with_secrets)

    async def import_from(self, source: str) -> dict[str, Any]:
        """Bring in an export, a folder or another program's memory root; nothing here is overwritten."""
        return await self._write(upkeep.import_from, self.parts, source)


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
