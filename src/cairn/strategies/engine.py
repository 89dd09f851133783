"""The strategy engine: turns events into jobs and runs them on the caller's thread.

    handle(event)   anyone      -> asks -> queued in ome.db
    run_due(limit)  lease holder -> claim a batch -> strategy.run -> journal/derived.jsonl -> recorded
    recover()       at start     -> nothing stays `running`; inputs the queue does not know are found in the notes

The queue may vanish at any moment: which inputs were worked on is known from the notes and from one journal
line per finished input. A run holds the engine lease, so two processes never derive the same thing at once.
"""

from __future__ import annotations

import builtins
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from cairn.canonical import objects_in
from cairn.errors import CairnError, Invalid, NotFound, Unavailable
from cairn.seams import Clock, Embedder, Jobs, Journals, Locator, Locks, Writer
from cairn.seams.storage import read_on
from cairn.strategies import Event, Job, Kit, Outcome, Schedule, Strategy, StrategyAsk
from cairn.strategies.cases import ExtractAgentCase
from cairn.strategies.cells import CELLS_KEPT, Cells
from cairn.strategies.corrections import FollowCorrections
from cairn.strategies.facts import ExtractAtomicFacts
from cairn.strategies.foresight import ExtractForesight
from cairn.strategies.options import Cron, LiveOptions, Options
from cairn.strategies.profile import ExtractUserProfile
from cairn.strategies.proposals import ProposeMemories
from cairn.strategies.reflection import ReflectEpisodes
from cairn.strategies.skills import ExtractAgentSkill
from cairn.talk.sessions import SessionLog
from cairn.types import CellEvent, JobRun, Queued, Space

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.governed.memories import Keeper
    from cairn.notes.kinds import MemoryRoot
    from cairn.notes.notebook import Notebook

LEASE = "engine"
BATCH = CELLS_KEPT  # what one strategy has read, the next still finds
MODEL_BATCH = 8
LONGEST_BACKOFF = 300.0
WAIT_WHEN_UNAVAILABLE = 15.0
LOOK_AROUND_SECONDS = 30.0
MOST_LATELY = 200_000
KEEP_RECORDS_SECONDS = 30 * 86400.0
KEEP_RECORDS = 5_000  # some 2 MB
KEEP_RECORDS_SHARED = 1_000_000
PRUNE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StrategyStatus:
    """One line of `list()`: what a strategy is, how it is set, and how it fares."""

    name: str
    purpose: str
    trigger: str
    enabled: bool
    cron: str
    next_at: datetime | None
    counts: dict[str, int]
    last_run_at: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """What a trigger did. `status`: "done" (all its work ended), "timeout" (the rest stays queued),
    "disabled" (switched off and not forced), "busy" (another process works on it and was not done in time).
    """

    status: Literal["done", "timeout", "disabled", "busy"]
    wrote: int = 0
    skipped: int = 0
    waiting: int = 0


class Engine:
    """Runs strategies. Thread-safe; several processes may hold one each, and the lease picks who works.

    Args:
        root: Where things are.
        notebook: The writer of notes.
        journals: The writer of journals.
        locks: For the engine lease.
        clock: The time.
        settings: The display zone and the switch for the whole engine.
        writer: The language model, if one is configured.
        embedder: Gives the embedder when one can be had.
        jobs: The queue.
        redact: Applied to every text before it is written.
        keeper: Gives the gate, for what is proposed as a memory.
        give_way: Called before each job and inside long ones, on behalf of those who wait for a call.
        strategies: Which strategies there are (all of them by default).
    """

    def __init__(
        self,
        *,
        root: MemoryRoot,
        notebook: Notebook,
        journals: Journals,
        locks: Locks,
        clock: Clock,
        settings: Settings,
        writer: Writer | None = None,
        embedder: Callable[[], Embedder | None] = lambda: None,
        jobs: Jobs,
        redact: Callable[[str], str] | None = None,
        keeper: Callable[[], Keeper | None] = lambda: None,
        give_way: Callable[[], object] = lambda: None,
        strategies: Sequence[Strategy] | None = None,
        sessions: SessionLog | None = None,
    ) -> None:
        self._strategies = {s.name: s for s in (all_strategies() if strategies is None else strategies)}
        self._clock, self._locks, self._journals = clock, locks, journals
        self._on = settings.strategies.enabled
        self._notebook = notebook
        self._root = root
        self.jobs = jobs
        self._cells = Cells(notebook, sessions or SessionLog(journals), give_way)
        self.on_work: Callable[[], None] = lambda: None
        """Told that this process queued something."""
        self._kit = Kit(
            root=root,
            notebook=notebook,
            journals=journals,
            locks=locks,
            clock=clock,
            zone=settings.zone,
            cells=self._cells,
            options=Options(),
            writer=writer,
            embedder=embedder,
            redact=redact or (lambda text: text),
            keeper=keeper,
        )
        defaults = {s.name: Options(enabled=s.enabled, cron=s.cron) for s in self._strategies.values()}
        self._live = LiveOptions(notebook, defaults)
        self._scanned: dict[str, float] = {}
        self._looked_upto: dict[Space, int] = {}
        self._lately: set[tuple[Space, str, str]] = set()
        self._last_look = float("inf")
        self._looked_around = self._pruned = time.monotonic()
        self._look_again = False
        self._latest = ""  # the strategy that had its turn last
        self._one_at_a_time = threading.Lock()

    @property
    def kit(self) -> Kit:
        """What strategies are given, for undo."""
        return self._kit

    def close(self) -> None:
        self.jobs.close()

    # -- events

    def handle(self, *events: Event) -> int:
        """Queue what `events` ask for, in one transaction; how many new jobs that made. Knows a repeated event."""
        if not self._on:
            return 0
        return self._enqueue([ask for e in events for s in self._strategies.values() for ask in s.asks(e)])

    def look_again(self) -> None:
        """Nobody knows any more what was edited: go through everything, now or, should this process end, later."""
        if self._on:
            self.jobs.forget_seen()
            self._look_again = True
            self.on_work()

    def _enqueue(self, asks: Sequence[StrategyAsk]) -> int:
        if not asks:
            return 0
        now = self._now()
        queued = []
        for ask in asks:
            chosen = self._live.of(ask.strategy)
            gate = chosen.gate
            key = {
                "owner_id": f"{ask.scope.space.app}/{ask.scope.space.project}/{ask.scope.track}/{ask.scope.owner}",
                "session_id": f"{ask.scope.space.app}/{ask.scope.space.project}/{ask.session_id}",
                "space": f"{ask.scope.space.app}/{ask.scope.space.project}",
            }[gate.event_field]
            held = gate.threshold > 1 or gate.cooldown_seconds > 0
            queued.append(Queued(ask, key, held, now + chosen.idle_seconds))
        try:
            made = self.jobs.enqueue(queued, now=now)
        except Unavailable:
            # Somebody holds the queue: the logs and notes say what is to be done, and are looked through once it is free.
            self._look_again, made = True, 0
            self.on_work()
        if made:
            self.on_work()
        return made

    # -- running

    def forget(self, names: Callable[[str], bool]) -> int:
        """Drop what is queued and recorded about somebody who is forgotten; how many records."""
        return self.jobs.forget(names)

    @contextmanager
    def paused(self, timeout: float = 60.0) -> Iterator[bool]:
        """No strategy of any process runs while this is held; False where one was not done in time.

        For `forget`: what a strategy read before would otherwise be written after. What is kept of the logs in
        memory is dropped.
        """
        until = time.monotonic() + timeout
        with ExitStack() as held:
            if not self._one_at_a_time.acquire(timeout=timeout):
                yield False
                return
            held.callback(self._one_at_a_time.release)
            try:
                held.enter_context(self._locks.hold(LEASE, timeout=max(until - time.monotonic(), 0.0)))
                mine = True
            except Unavailable:
                mine = False
            self._cells.drop()
            self._kit.cache.clear()
            yield mine

    def has_due(self, only: str = "") -> bool:
        """Whether `run_due` would find something; two cheap reads."""
        if not self._on:
            return False
        now = self._now()
        # The read comes first: it is what notices that the queue vanished.
        waiting = self.jobs.due([only] if only else self._live.active(), now=now, far=self._far(now))
        lost = self.jobs.is_new or self._look_again
        return waiting or lost or (not only and self._clocks_due(now))

    def run_due(self, limit: int = 1024, *, seconds: float = 10.0, only: str = "") -> int:
        """Work on what is due, on this thread, until `limit` jobs ended or `seconds` passed.

        Args:
            limit: The most jobs to end.
            seconds: The most time to begin jobs in.
            only: Work for this strategy alone.

        Returns:
            How many jobs ended; 0 also when another process holds the lease.
        """
        if not self._on or not self.has_due(only):
            return 0
        names = (
            (lambda: [name for name in self._live.active() if name == only]) if only else self._live.active
        )
        return self._drain(names, limit, time.monotonic() + seconds)

    def _drain(self, names: Callable[[], Sequence[str]], limit: int, deadline: float) -> int:
        ended = 0
        with ExitStack() as held:
            if not self._one_at_a_time.acquire(timeout=min(max(deadline - time.monotonic(), 0.0), 1e6)):
                return 0
            held.callback(self._one_at_a_time.release)
            if not held.enter_context(self._locks.lease(LEASE)):
                return 0
            self.jobs.revive()
            if self.jobs.is_new or self._look_again:
                self._look_again = False
                try:
                    self._discover(everything=True)
                except BaseException:
                    self._look_again = True
                    raise
            while ended < limit and time.monotonic() < deadline:
                self._turn_clocks()
                now = self._now()
                size = min(limit - ended, MODEL_BATCH if self._kit.writer else BATCH)
                jobs = self.jobs.claim(self._in_turn(names()), size, now=now, far=self._far(now))
                if not jobs:
                    self._cells.let_go()
                    break
                self._latest = jobs[0].ask.strategy
                ended += self._run_batch(jobs)
        return ended

    def _in_turn(self, names: Sequence[str]) -> Sequence[str]:
        """The strategies, those behind the latest first: each of them finds what was read for the one before."""
        after = names.index(self._latest) + 1 if self._latest in names else 0
        return [*names[after:], *names[:after]]

    def _done_lately(self, spaces: Iterable[Space]) -> set[tuple[Space, str, str]]:
        """What any machine has finished, as far as this one has read the journal, and on from there."""
        for space in spaces:
            part, _ = read_on(self._journals, self._journal(space), self._looked_upto.get(space, 0))
            self._looked_upto[space] = part.end
            self._lately |= _records(space, part.lines)
        if len(self._lately) > MOST_LATELY:  # what is forgotten here could at worst be done twice
            self._lately = set()
        return self._lately

    def _run_batch(self, jobs: Sequence[Job]) -> int:
        if not jobs:
            return 0
        name = jobs[0].ask.strategy
        strategy = self._strategies[name]
        kit = replace(self._kit, options=self._live.of(name))
        try:
            outcomes = [*strategy.run(jobs, kit)]
        except Unavailable as error:
            self._put_back(jobs, error)
            return 0
        except Exception as error:
            if len(jobs) > 1:
                return sum(self._run_batch([job]) for job in jobs)
            return self._failed(jobs[0], error)
        missed = {job.id for job in jobs} - {outcome.job.id for outcome in outcomes}
        try:
            self._record(outcomes)
        except (CairnError, OSError) as error:
            self._put_back(jobs, error)
            return 0
        for job in jobs:
            if job.id in missed:
                self._failed(job, RuntimeError(f"{name} gave no answer for {job.ask.input}"))
        return len(outcomes)

    def _put_back(self, jobs: Sequence[Job], error: Exception) -> None:
        """Let jobs wait for a disk or a lock; that is nobody's failure and costs no attempt."""
        due = self._now() + WAIT_WHEN_UNAVAILABLE
        self.jobs.retry(((job.id, _named(error), due) for job in jobs), count=False)

    def _record(self, outcomes: Sequence[Outcome]) -> None:
        """First the journal, which outlives the index, then the queue."""
        at = self._clock.now().isoformat()
        lines: dict[Space, list[str]] = {}
        for outcome in outcomes:
            ask = outcome.job.ask
            line: dict[str, Any] = {
                "at": at,
                "strategy": ask.strategy,
                "input": ask.input,
                "outcome": outcome.status,
            }
            if outcome.reason:
                line["reason"] = outcome.reason
            lines.setdefault(ask.scope.space, []).append(json.dumps(line, ensure_ascii=False))
        for space, texts in lines.items():
            self._journals.append(self._journal(space), texts)
        ended = (
            (o.job.id, "done" if o.status == "wrote" else "skipped", o.reason, o.outputs[:64])
            for o in outcomes
        )
        self.jobs.finish(ended, now=self._now())
        self.handle(*(event for outcome in outcomes for event in outcome.events))

    def _failed(self, job: Job, error: Exception) -> int:
        now = self._now()
        if isinstance(error, NotFound):
            self._record([Outcome(job, "skipped", f"what it consumes is gone: {error}")])
            return 1
        if job.attempt > self._live.of(job.ask.strategy).max_retries:
            self.jobs.finish([(job.id, "dead", _named(error), ())], now=now)
            return 1
        self.jobs.retry([(job.id, _named(error), now + min(2.0 ** (job.attempt - 1), LONGEST_BACKOFF))])
        return 0

    # -- schedules

    def _clocks_due(self, now: float) -> bool:
        was_set_back = now < self._last_look
        self._last_look = now
        if was_set_back or self._look_around_due:
            return True
        for name in self._live.active():
            chosen = self._live.of(name)
            if chosen.cron:
                row = self.jobs.schedules().get(name)
                if row is None or row[0] != chosen.cron or row[1] <= now:
                    return True
            if chosen.scan_interval_seconds and self._scan_due(name, chosen, now):
                return True
            if (chosen.gate.threshold > 1 or chosen.gate.cooldown_seconds) and self.jobs.counts().get(
                name, {}
            ).get("held"):
                return True
        return False

    @property
    def _look_around_due(self) -> bool:
        """Whether other machines may have told cells by now of which nobody here has heard."""
        since = time.monotonic() - self._looked_around
        return self._notebook.storage.is_shared and since >= LOOK_AROUND_SECONDS

    def _scan_due(self, name: str, chosen: Options, now: float) -> bool:
        last = self._scanned.get(name)
        return last is None or now >= last + chosen.scan_interval_seconds or now < last

    def _turn_clocks(self) -> None:
        """Queue what schedules, scans and opened gates make due. One late cron time counts, not every missed one."""
        now = self._now()
        if time.monotonic() - self._pruned >= PRUNE_SECONDS:
            self._prune()
        if self._look_around_due:
            # One of them looks for what a machine did not live to queue.
            self._looked_around = time.monotonic()
            if self._notebook.storage.turn("look for work", LOOK_AROUND_SECONDS):
                self._discover(everything=False)
        rows = self.jobs.schedules()
        for name in self._live.active():
            chosen = self._live.of(name)
            if chosen.cron:
                self._turn_cron(name, chosen.cron, now, rows.get(name))
            elif name in rows:
                self.jobs.set_schedule(name, "", None, None)
            if chosen.scan_interval_seconds and self._scan_due(name, chosen, now):
                self._scanned[name] = now
                self._discover(only=name, everything=True)
            gate = chosen.gate
            if gate.threshold > 1 or gate.cooldown_seconds:
                self.jobs.open_gates(name, gate.threshold, gate.cooldown_seconds, now=now)

    def _turn_cron(
        self, name: str, cron: str, now: float, row: tuple[str, float, float | None] | None
    ) -> None:
        local = datetime.fromtimestamp(now, UTC).astimezone(self._kit.zone)
        coming = Cron.parse(cron).next(local)
        assert coming is not None
        if row is None or row[0] != cron:
            self.jobs.set_schedule(name, cron, coming.timestamp(), None)
        elif row[1] <= now:
            due = datetime.fromtimestamp(row[1], UTC)
            self._enqueue(self._asked_by_clock(name, due))
            self.jobs.set_schedule(name, cron, coming.timestamp(), row[1])
        elif coming.timestamp() < row[1]:
            # The clock was set back: what lay ahead is now too far ahead.
            self.jobs.set_schedule(name, cron, coming.timestamp(), None)

    def _asked_by_clock(self, name: str, due: datetime) -> builtins.list[StrategyAsk]:
        strategy = self._strategies[name]
        kit = replace(self._kit, options=self._live.of(name))
        if strategy.trigger == "schedule":
            return [*strategy.scheduled(Schedule(name, due), kit)]
        self._discover(only=name, everything=True)
        return []

    # -- finding work again

    def recover(self) -> int:
        """After a start: nothing stays `running`, and inputs that never reached the queue are found.

        Returns:
            How many jobs are ready again. 0 when another process holds the lease: it is alive and at work.
        """
        if not self._on:
            return 0
        with self._one_at_a_time, self._locks.lease(LEASE) as mine:
            if not mine:
                return 0
            back = self.jobs.revive()
            self._prune()
            return back + self._discover(everything=self.jobs.is_new)

    def _prune(self) -> None:
        """Drop old records of runs. Where many servers share a queue more stay: they are looked up in it, not in a journal."""
        self._pruned = time.monotonic()
        most = KEEP_RECORDS_SHARED if self._notebook.storage.is_shared else KEEP_RECORDS
        self.jobs.prune(self._now() - KEEP_RECORDS_SECONDS, most)

    def _discover(self, *, only: str = "", everything: bool) -> int:
        if self.jobs.is_new:
            # A queue made anew knows of nothing, so everything is looked for, whoever asked.
            only, everything = "", True
        events, sizes = self._cells.events({} if everything else self.jobs.seen())
        wanted = [
            (name, strategy, kit, fresh)
            for name, strategy in self._strategies.items()
            if not only or name == only
            for kit in [replace(self._kit, options=self._live.of(name))]
            if (fresh := self._unknown(name, strategy, events, kit))
        ]
        asks: list[StrategyAsk] = []
        if wanted:  # the journal grows for as long as the memory is used: it is read where somebody asks
            spaces = {event.space for event in events} | set(self._root.spaces())
            again = everything or not self._notebook.storage.is_shared
            done = self._journalled(spaces) if again else self._done_lately(spaces)
            for name, strategy, kit, found in wanted:
                fresh = [ask for ask in found if (ask.scope.space, name, ask.input) not in done]
                finished = strategy.finished(fresh, kit) if fresh else set()
                asks += [ask for ask in fresh if ask.input not in finished]
        made = self._enqueue(asks)
        if not only:
            self.jobs.set_seen(sizes)
            self.jobs.set_found(now=self._now())
        return made

    def _unknown(
        self, name: str, strategy: Strategy, events: Sequence[CellEvent], kit: Kit
    ) -> builtins.list[StrategyAsk]:
        """What a strategy would do about these events, and the queue knows nothing of."""
        found = [*strategy.discover(events, kit)]
        known = self.jobs.known(name, [ask.input for ask in found]) if found else ()
        return [ask for ask in found if ask.input not in known]

    def _journalled(self, spaces: Iterable[Space]) -> set[tuple[Space, str, str]]:
        found = set()
        for space in spaces:
            part = self._journals.read(self._journal(space))
            found |= _records(space, part.lines)
            self._looked_upto[space] = part.end
        if self._notebook.storage.is_shared:
            self._lately |= found
        return found

    # -- looking and asking

    def list(self) -> builtins.list[StrategyStatus]:
        """Every strategy with its settings, counts and last run."""
        counts, rows = self.jobs.counts(), self.jobs.schedules()
        out = []
        for name, strategy in self._strategies.items():
            chosen = self._live.of(name)
            row = rows.get(name)
            last = [run for run in self.jobs.runs(strategy=name, limit=1) if run.finished_at]
            dead = self.jobs.runs(strategy=name, status="dead", limit=1)
            troubled = [run for run in self.jobs.runs(strategy=name, status="pending", limit=1) if run.reason]
            trouble = dead or troubled
            out.append(
                StrategyStatus(
                    name,
                    strategy.purpose,
                    strategy.trigger,
                    chosen.enabled and self._on,
                    chosen.cron,
                    datetime.fromtimestamp(row[1], UTC) if row and chosen.enabled else None,
                    counts.get(name, {}),
                    datetime.fromtimestamp(last[0].finished_at or 0.0, UTC) if last else None,
                    trouble[0].reason if trouble else "",
                )
            )
        unknown = [
            StrategyStatus(name, "unknown: skipped", "", False, "", None, {}, None, words)
            for name, words in self.unknown.items()
        ]
        if self.trouble:
            held = StrategyStatus("ome.toml", "cannot be used", "", False, "", None, {}, None, self.trouble)
            unknown.append(held)
        return [*out, *unknown]

    @property
    def unknown(self) -> Mapping[str, str]:
        """Strategies that `ome.toml` names and there are not: skipped, each with what is said of it."""
        return self._live.unknown

    @property
    def trouble(self) -> str:
        """What is wrong with `ome.toml`, or "" when it is good."""
        return self._live.trouble

    def switch(self, name: str, *, enabled: bool) -> None:
        """Switch a strategy on or off in `ome.toml`."""
        self._live.switch(name, enabled=enabled)

    def runs(self, *, strategy: str = "", status: str = "", limit: int = 50) -> builtins.list[JobRun]:
        """Run records, newest first."""
        if strategy:
            self._named_strategy(strategy)
        return self.jobs.runs(strategy=strategy, status=status, limit=limit)

    def trigger(self, name: str, *, timeout: float = 60.0, force: bool = False) -> TriggerResult:
        """Run one strategy now on everything it has not worked on, and wait for it.

        Args:
            name: The strategy.
            timeout: Stop waiting after so many seconds; what is left stays queued.
            force: Also when it is switched off, and give its dead jobs another chance.

        Raises:
            Invalid: there is no such strategy, or the timeout is not positive.
        """
        strategy = self._named_strategy(name)
        if not timeout > 0:
            raise Invalid(f"timeout = {timeout} is not a positive number of seconds.", field="timeout")
        if not force and (not self._on or name not in self._live.active()):
            return TriggerResult("disabled")
        before = self.jobs.counts().get(name, {})
        deadline = time.monotonic() + timeout
        asked = False
        while True:
            if not asked:
                with self._one_at_a_time, self._locks.lease(LEASE) as mine:
                    if mine:
                        asked = True
                        if strategy.trigger == "schedule":
                            kit = replace(self._kit, options=self._live.of(name))
                            self._enqueue(list(strategy.scheduled(Schedule(name, self._clock.now()), kit)))
                        else:
                            self._discover(only=name, everything=True)
                        self.jobs.free_held(name, dead_too=force, now=self._now())
            if asked:
                self._drain(lambda: (name,), 10**9, deadline)
            counts = self.jobs.counts().get(name, {})
            left = counts.get("pending", 0) + counts.get("running", 0)
            late = time.monotonic() >= deadline
            if (asked and not left) or late:
                break
            time.sleep(0.05)
        gained = {key: counts.get(key, 0) - before.get(key, 0) for key in ("done", "skipped")}
        status: Literal["done", "timeout", "busy"] = (
            "done" if asked and not left else "timeout" if asked else "busy"
        )
        return TriggerResult(status, max(gained["done"], 0), max(gained["skipped"], 0), left)

    def _named_strategy(self, name: str) -> Strategy:
        if name not in self._strategies:
            raise Invalid(
                f'There is no strategy "{name}". There are: {", ".join(self._strategies)}.', field="strategy"
            )
        return self._strategies[name]

    # -- small things

    def _journal(self, space: Space) -> Locator:
        return self._root.space(space).child("journal", "derived.jsonl")

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _far(self, now: float) -> float:
        slowest = max((self._live.of(name).idle_seconds for name in self._strategies), default=0.0)
        return now + max(slowest, LONGEST_BACKOFF) + 60


def _records(space: Space, lines: Iterable[str]) -> set[tuple[Space, str, str]]:
    """What lines of the journal say was worked on: (space, strategy, input)."""
    found = set()
    for record in objects_in(lines):
        with suppress(KeyError, TypeError):
            found.add((space, record["strategy"], record["input"]))
    return found


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def all_strategies() -> list[Strategy]:
    """One of each, in the order in which they run."""
    return [
        ExtractAtomicFacts(),
        ExtractForesight(),
        ExtractUserProfile(),
        # After those whose notes it mends: what they have not written yet cannot be put right.
        FollowCorrections(),
        ExtractAgentCase(),
        ExtractAgentSkill(),
        ProposeMemories(),
        ReflectEpisodes(),
    ]
