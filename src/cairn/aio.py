"""The same calls awaited: `async with cairn.open(root) as memory`. No logic of its own.

Each operation of the table becomes a coroutine that runs it in a thread, so that an event loop never waits for a
disk. They share one pool, each kind by number in each loop: four calls at a time read, sixteen write, since a writer mostly waits for its
turn at the disk, and two look through everything (`apart`: doctor, diff, export and the like), so that nobody else waits
behind them. Each twin has the parameters of its operation, for editors and type checkers, too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from cairn.errors import Invalid
from cairn.memory import Memories, Memory

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.parts import Parts
    from cairn.seams import Clock

P = ParamSpec("P")
T = TypeVar("T")

_AT_A_TIME = (4, 16, 2)  # reads, writes, apart
_PATIENCE = 10.0  # seconds that closing waits for calls that do not end
_CLOSED = "This memory is not open: use it inside `async with cairn.open(...) as memory`."


class Pools:
    """The threads that calls run in while the memory is open, and how many calls of each kind run at a time."""

    def __init__(self) -> None:
        self.calls: ThreadPoolExecutor | None = None

    def open(self) -> None:
        self.calls = ThreadPoolExecutor(sum(_AT_A_TIME), "cairn-call")
        # A semaphore serves one event loop alone, and a program may have several: each counts its own calls.
        self._limits: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, ...]] = (
            WeakKeyDictionary()
        )
        self._running: set[asyncio.Future[Any]] = set()

    def close(self) -> None:
        if self.calls is not None:
            self.calls.shutdown(wait=True)
        self.calls = None

    async def run(self, call: Callable[[], T], *, writes: bool, apart: bool = False) -> T:
        if (pool := self.calls) is None:
            raise Invalid(_CLOSED)
        here = asyncio.get_running_loop()
        if (limits := self._limits.get(here)) is None:
            limits = self._limits[here] = tuple(map(asyncio.Semaphore, _AT_A_TIME))
        limit = limits[2 if apart else 1 if writes else 0]
        await limit.acquire()
        running: asyncio.Future[T] = here.run_in_executor(pool, call)
        self._running.add(running)

        def done(ended: asyncio.Future[Any]) -> None:
            # A call that nobody waits for any more still has its place until its thread is done; how it ended is told to nobody.
            self._running.discard(ended)
            limit.release()
            if not ended.cancelled():
                ended.exception()

        running.add_done_callback(done)
        return await asyncio.shield(running)

    async def settle(self) -> None:
        """Wait for the calls under way, those that nobody waits for any more included."""
        here = asyncio.get_running_loop()
        while mine := [one for one in list(self._running) if one.get_loop() is here]:
            if not (await asyncio.wait(mine, timeout=_PATIENCE))[0]:
                break


def _awaited(
    call: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A call of a room, run in a thread of its twin's pools."""
    row = getattr(call, "operation", None)
    how = {"writes": row.writes, "apart": row.apart} if row is not None else {"writes": False}

    @functools.wraps(call)
    async def run(self: AsyncMemory | AsyncMemories, /, *args: P.args, **named: P.kwargs) -> T:
        return await self.pools.run(functools.partial(call, self.memory, *args, **named), **how)

    return run


class AsyncMemory:
    """`Memory`, each call awaited. Takes what `Memory` takes; use it inside an `async with` statement."""

    def __init__(self, settings: Settings, *, background: bool = True, clock: Clock | None = None) -> None:
        self.memory = Memory(settings, background=background, clock=clock)
        self.pools = Pools()
        self._entered = 0
        self.memories = AsyncMemories(self.memory.memories, self.pools)

    @property
    def settings(self) -> Settings:
        return self.memory.settings

    @property
    def parts(self) -> Parts:
        """The parts of the open root, for those who build on them."""
        return self.memory.parts

    async def __aenter__(self) -> AsyncMemory:
        if self.pools.calls is None:
            self.pools.open()
        self._entered += 1
        try:
            await self.pools.run(self.memory.__enter__, writes=True)
        except BaseException:
            self._left()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.pools.calls is None:
            return
        try:
            if self._entered == 1:
                await self.pools.settle()
            await self.pools.run(lambda: self.memory.__exit__(None, None, None), writes=True)
        finally:
            self._left()

    def _left(self) -> None:
        self._entered -= 1
        if not self._entered:
            self.pools.close()

    subscribe = _awaited(Memory.subscribe)
    add = _awaited(Memory.add)
    add_token = _awaited(Memory.add_token)
    audit = _awaited(Memory.audit)
    backup = _awaited(Memory.backup)
    brief = _awaited(Memory.brief)
    checkpoint = _awaited(Memory.checkpoint)
    checkpoints = _awaited(Memory.checkpoints)
    connections = _awaited(Memory.connections)
    diff = _awaited(Memory.diff)
    doctor = _awaited(Memory.doctor)
    events = _awaited(Memory.events)
    export_person = _awaited(Memory.export_person)
    export_session = _awaited(Memory.export_session)
    export_sqlite = _awaited(Memory.export_sqlite)
    export_to = _awaited(Memory.export_to)
    failures = _awaited(Memory.failures)
    find = _awaited(Memory.find)
    flush = _awaited(Memory.flush)
    fold_history = _awaited(Memory.fold_history)
    forget_person = _awaited(Memory.forget_person)
    forget_session = _awaited(Memory.forget_session)
    gauges = _awaited(Memory.gauges)
    get = _awaited(Memory.get)
    health = _awaited(Memory.health)
    import_from = _awaited(Memory.import_from)
    index_status = _awaited(Memory.index_status)
    knowledge_add = _awaited(Memory.knowledge_add)
    knowledge_categories = _awaited(Memory.knowledge_categories)
    knowledge_edit = _awaited(Memory.knowledge_edit)
    knowledge_link = _awaited(Memory.knowledge_link)
    knowledge_links = _awaited(Memory.knowledge_links)
    knowledge_list = _awaited(Memory.knowledge_list)
    knowledge_remove = _awaited(Memory.knowledge_remove)
    knowledge_replace = _awaited(Memory.knowledge_replace)
    knowledge_search = _awaited(Memory.knowledge_search)
    knowledge_show = _awaited(Memory.knowledge_show)
    knowledge_topic = _awaited(Memory.knowledge_topic)
    knowledge_unlink = _awaited(Memory.knowledge_unlink)
    knowledge_upload = _awaited(Memory.knowledge_upload)
    linked = _awaited(Memory.linked)
    log = _awaited(Memory.log)
    move_to = _awaited(Memory.move_to)
    overview = _awaited(Memory.overview)
    project_consolidate = _awaited(Memory.project_consolidate)
    project_import = _awaited(Memory.project_import)
    project_init = _awaited(Memory.project_init)
    project_prune = _awaited(Memory.project_prune)
    project_query = _awaited(Memory.project_query)
    project_record = _awaited(Memory.project_record)
    project_restore = _awaited(Memory.project_restore)
    project_run_once = _awaited(Memory.project_run_once)
    project_runner = _awaited(Memory.project_runner)
    project_source_add = _awaited(Memory.project_source_add)
    project_source_remove = _awaited(Memory.project_source_remove)
    project_sources = _awaited(Memory.project_sources)
    project_status = _awaited(Memory.project_status)
    project_story = _awaited(Memory.project_story)
    project_update = _awaited(Memory.project_update)
    project_validate = _awaited(Memory.project_validate)
    pull = _awaited(Memory.pull)
    push = _awaited(Memory.push)
    quiesce = _awaited(Memory.quiesce)
    read_back = _awaited(Memory.read_back)
    rebuild = _awaited(Memory.rebuild)
    recall = _awaited(Memory.recall)
    reextract = _awaited(Memory.reextract)
    remember = _awaited(Memory.remember)
    repair = _awaited(Memory.repair)
    restore = _awaited(Memory.restore)
    revise = _awaited(Memory.revise)
    revoke_token = _awaited(Memory.revoke_token)
    search = _awaited(Memory.search)
    session_owners = _awaited(Memory.session_owners)
    show = _awaited(Memory.show)
    status = _awaited(Memory.status)
    strategies = _awaited(Memory.strategies)
    switch = _awaited(Memory.switch)
    sync = _awaited(Memory.sync)
    task = _awaited(Memory.task)
    tasks = _awaited(Memory.tasks)
    timeline = _awaited(Memory.timeline)
    tokens = _awaited(Memory.tokens)
    trigger = _awaited(Memory.trigger)
    undo = _awaited(Memory.undo)
    unprocessed = _awaited(Memory.unprocessed)
    upcoming = _awaited(Memory.upcoming)


class AsyncMemories:
    """`memory.memories`, each call awaited."""

    def __init__(self, memory: Memories, pools: Pools) -> None:
        self.memory = memory
        self.pools = pools

    on_upserted = _awaited(Memories.on_upserted)
    agent = _awaited(Memories.agent)
    agents = _awaited(Memories.agents)
    archive = _awaited(Memories.archive)
    capture = _awaited(Memories.capture)
    captures = _awaited(Memories.captures)
    consolidate = _awaited(Memories.consolidate)
    core = _awaited(Memories.core)
    daily = _awaited(Memories.daily)
    edit = _awaited(Memories.edit)
    end_mission = _awaited(Memories.end_mission)
    export_skill = _awaited(Memories.export_skill)
    forget = _awaited(Memories.forget)
    history = _awaited(Memories.history)
    import_from = _awaited(Memories.import_from)
    import_skill = _awaited(Memories.import_skill)
    list = _awaited(Memories.list)
    note_day = _awaited(Memories.note_day)
    outcome = _awaited(Memories.outcome)
    pin = _awaited(Memories.pin)
    procedure = _awaited(Memories.procedure)
    promote = _awaited(Memories.promote)
    refresh = _awaited(Memories.refresh)
    restore = _awaited(Memories.restore)
    runs = _awaited(Memories.runs)
    scan_skills = _awaited(Memories.scan_skills)
    search = _awaited(Memories.search)
    set_agent = _awaited(Memories.set_agent)
    set_agent_document = _awaited(Memories.set_agent_document)
    set_core = _awaited(Memories.set_core)
    show = _awaited(Memories.show)
    skills = _awaited(Memories.skills)
    supersede = _awaited(Memories.supersede)
    sweep = _awaited(Memories.sweep)
    unpin = _awaited(Memories.unpin)
    why = _awaited(Memories.why)
