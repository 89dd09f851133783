"""The suites of the two queues: changes that wait for the index (`State`), and jobs of the strategies (`Jobs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cairn.seams import Jobs, Noticed, State
from cairn.testing.suite import Mixin, in_threads, require
from cairn.types import Queued, Scope, Space, StrategyAsk


def _edited(*paths: str) -> list[Noticed]:
    return [Noticed(path, "episode", "modified", 1.0) for path in paths]


# -- changes


def check_state_order(state: State) -> None:
    """LSNs grow, work is claimed oldest first, and a path that is queued again goes to the back, once."""
    first = state.enqueue(_edited("a", "b"))
    later = state.enqueue(_edited("a"))
    require(0 < first < later == state.last_lsn(), f"LSNs must grow, got {first}, {later}")
    claimed = state.claim(10, holder="me")
    require([change.path for change in claimed] == ["b", "a"], f"oldest first, got {claimed}")
    require(claimed[-1].lsn == later, "a change has the LSN of its last queueing")
    require(state.claim(10, holder="other") == [], "what is claimed is not given twice")
    require(state.finish(claimed, holder="me", seen={}) == 2, "both must be finished")
    require(state.waiting() == 0 and state.counts().applied_lsn == later, "all is applied then")


def check_state_stale_claim(state: State) -> None:
    """A change that is queued anew while it is worked on stays: finishing the old claim does not end it."""
    state.enqueue(_edited("a"))
    claimed = state.claim(1, holder="me")
    lsn = state.enqueue(_edited("a"))
    require(state.finish(claimed, holder="me", seen={"a": (1.0, 1)}) == 0, "the old claim must end nothing")
    require(state.waiting(lsn) == 1, "the new change waits")
    again = state.claim(1, holder="me")
    require([change.lsn for change in again] == [lsn], "it is claimed with its new LSN")
    require(state.finish(again, holder="other", seen={}) == 0, "only who holds a claim ends it")
    require(state.finish(again, holder="me", seen={}) == 1, "its holder ends it")


def check_state_recover(state: State) -> None:
    """Claims of a dead holder are free at once; one's own stay."""
    state.enqueue(_edited("a", "b"))
    dead, mine = state.claim(1, holder="dead"), state.claim(1, holder="me")
    require(state.recover(holder="me") == 1, "the dead one's claim must be freed")
    require(
        [c.path for c in state.claim(9, holder="me")] == [c.path for c in dead], "it can be claimed again"
    )
    require(state.finish(mine, holder="me", seen={}) == 1, "one's own claim is kept")


def check_state_failures(state: State) -> None:
    """A permanent failure waits for an edit and names its reason; a retryable one can be asked back."""
    state.enqueue(_edited("bad", "slow"))
    bad, slow = state.claim(2, holder="me")
    state.fail(bad, "it is not UTF-8", holder="me", retryable=False, seen=(1.0, 3))
    state.fail(slow, "the disk is away", holder="me", retryable=True, unread=True)
    told = {row["path"]: row for row in state.failures()}
    require(told["bad"]["error"] == "it is not UTF-8" and told["bad"]["retryable"] is False, f"got {told}")
    require(state.counts().failed == 2 and state.waiting() == 0, "nobody waits for what failed")
    require(state.known(["bad"])["bad"].size == 3, "what the file was is remembered")
    require(
        state.retry_failed() == 1 and [c.path for c in state.claim(9, holder="me")] == ["slow"], "one returns"
    )
    state.enqueue(_edited("bad"))
    require([c.path for c in state.claim(9, holder="me")] == ["bad"], "an edit brings the other back")


def check_state_within(state: State) -> None:
    """Work, counts and memory can be asked of the places below some folders alone."""
    state.enqueue(_edited("u/ann/x", "u/anna/x", "u/bob/x"))
    require(state.waiting(within=("u/ann/",)) == 1, "a folder's name is not that of its neighbour")
    require(state.glance(("u/ann/", "u/bob/")).pending == 2, "several folders are asked at once")
    require(set(state.known(within=("u/bob/",))) == {"u/bob/x"}, "memory too")
    state.enqueue([Noticed("u/eve/x", "episode", "deleted")])
    require("u/eve/x" in state.known(), "what is gone is known until it is indexed as gone")
    state.finish(state.claim(9, holder="me", within=("u/eve/",)), holder="me", seen={})
    require("u/eve/x" not in state.known() and "u/eve/x" in state.known(["u/eve/x"]), "then by name alone")
    require([c.path for c in state.claim(9, holder="me", within=("u/bob/",))] == ["u/bob/x"], "claims too")


def check_state_ready(state: State) -> None:
    """An index is complete when all that was queued for it is done, and only with the queue it was queued in."""
    queue = state.clear()
    lsn = state.enqueue(_edited("a"))
    require(not state.has_scan("g1") and not state.set_ready("g1"), "no scan was noted yet")
    state.note_scan("g1", lsn, queue="another queue")
    require(not state.has_scan("g1"), "the note of another queue is not taken")
    state.note_scan("g1", lsn, queue=queue)
    require(state.has_scan("g1") and not state.set_ready("g1"), "one change still waits")
    state.finish(state.claim(1, holder="me"), holder="me", seen={}, remarks={"a": "an entry without an end"})
    require(state.set_ready("g1") and state.ready_for() == "g1", "then it is complete")
    require([row["path"] for row in state.set_aside()] == ["a"], "what was set aside is told")
    state.clear()
    require(state.ready_for() == "" and state.last_lsn() >= lsn, "clearing forgets all but the LSN")


def check_state_many_threads(state: State) -> None:
    """Many threads queue and claim: each change is given to one of them, none is lost, `on_enqueue` is called."""
    calls: list[str] = []
    state.on_enqueue = calls.extend
    got: list[str] = []

    def work(who: int) -> None:
        for n in range(5):
            state.enqueue(_edited(f"{who}.{n}"))
        while claimed := state.claim(3, holder=f"h{who}"):
            got.extend(change.path for change in claimed)
            state.finish(claimed, holder=f"h{who}", seen={})

    in_threads(work, range(4))
    require(sorted(got) == sorted(f"{who}.{n}" for who in range(4) for n in range(5)), f"got {sorted(got)}")
    require(len(calls) == 20 and state.waiting() == 0, "everybody was told, nothing waits")


def check_state_growing_log(state: State) -> None:
    """What is said while its log waits is read with it; what is said after the claim is queued anew."""
    said = [Noticed("s.jsonl", "session", "modified")]
    state.recover(holder="me")
    state.sole = True
    first = state.enqueue(said)
    require(state.enqueue(said) >= first and state.waiting() == 1, "one change waits for both")
    claimed = state.claim(9, holder="me")
    later = state.enqueue(said)
    state.finish(claimed, holder="me", seen={"s.jsonl": (1.0, 1)})
    require(later > first and state.waiting(later) == 1, "what came after the claim still waits")
    state.clear()
    state.enqueue(said)
    require(state.waiting() == 1, "a queue that was cleared holds nothing that could cover it")
    state.sole = False
    require(state.enqueue(said) > later, "where others claim, too, each change is queued")


STATE_CHECKS: Mapping[str, Callable[[State], None]] = {
    "order": check_state_order,
    "stale_claim": check_state_stale_claim,
    "recover": check_state_recover,
    "failures": check_state_failures,
    "within": check_state_within,
    "ready": check_state_ready,
    "many_threads": check_state_many_threads,
    "growing_log": check_state_growing_log,
}


class StateConformance(Mixin, checks=STATE_CHECKS, make="make_state"):
    """Derive from this, give `make_state`, and every check of the change queue is a test."""

    def make_state(self) -> State:
        raise NotImplementedError


# -- jobs


def _queued(*inputs: str, strategy: str = "facts", held: bool = False, due_at: float = 0.0) -> list[Queued]:
    owner = Scope(Space(), "user", "ann")
    return [Queued(StrategyAsk(strategy, one, owner), "ann", held, due_at) for one in inputs]


FAR = 1e12


def check_jobs_once(jobs: Jobs) -> None:
    """An input is queued once for a strategy; jobs come oldest first, of one strategy, with what was asked."""
    require(jobs.enqueue(_queued("a", "b"), now=1) == 2, "both are new")
    require(jobs.enqueue(_queued("a"), now=2) == 0, "a known input is not queued again")
    require(jobs.known("facts", ["a", "b", "z"]) == {"a", "b"}, "what has a record is known")
    jobs.enqueue(_queued("a", strategy="plans"), now=3)
    claimed = jobs.claim(["plans", "facts"], 9, now=4, far=FAR)
    require([(job.ask.strategy, job.ask.input) for job in claimed] == [("plans", "a")], "the first with work")
    claimed = jobs.claim(["facts"], 1, now=4, far=FAR)
    require([(job.ask.input, job.attempt) for job in claimed] == [("a", 1)], f"oldest first, got {claimed}")
    require(claimed[0].ask.scope.owner == "ann", "a job knows what was asked")


def check_jobs_outcome(jobs: Jobs) -> None:
    """A job ends with a record, or goes back with a later due time; a dead holder's work is revived."""
    jobs.enqueue(_queued("a", "b", "c"), now=1)
    a, b, _ = jobs.claim(["facts"], 9, now=1, far=FAR)
    jobs.finish([(a.id, "done", "", ["af_1"])], now=2)
    jobs.retry([(b.id, "not now", 50.0)])
    require(jobs.counts() == {"facts": {"done": 1, "pending": 1, "running": 1}}, f"got {jobs.counts()}")
    require(jobs.claim(["facts"], 9, now=49, far=FAR) == [], "it is not due yet")
    require([job.attempt for job in jobs.claim(["facts"], 9, now=50, far=FAR)] == [2], "attempts are counted")
    jobs.finish([(a.id, "dead", "late", [])], now=60)
    told = {run.input: run for run in jobs.runs()}
    require(told["a"].status == "done" and told["a"].outputs == ("af_1",), "what has ended stays as it ended")
    require(jobs.revive() == 2 and jobs.due(["facts"], now=60, far=FAR), "what ran is queued again")
    require(jobs.prune(10, most=9) == 1 and not jobs.known("facts", ["a"]), "old records go")
    jobs.enqueue(_queued("d", "e"), now=61)
    jobs.finish([(job.id, "done", "", []) for job in jobs.claim(["facts"], 9, now=61, far=FAR)], now=62)
    ended = jobs.counts()["facts"]["done"]
    require(jobs.prune(10, most=ended) == 0, "a record that is not one too many stays")
    require(jobs.prune(10, most=1) == ended - 1, "of too many records the earliest go")
    require(
        jobs.known("facts", ["d", "e"]) == {"e"}, f"the latest stays, got {jobs.known('facts', ['d', 'e'])}"
    )


def check_jobs_clock_set_back(jobs: Jobs) -> None:
    """A due time that no pause can explain is due: the clock was set back."""
    jobs.enqueue(_queued("a", due_at=1000.0), now=1)
    require(not jobs.due(["facts"], now=10, far=5000.0), "it is not due")
    require(jobs.due(["facts"], now=10, far=500.0), "beyond `far` it is")
    require(len(jobs.claim(["facts"], 9, now=10, far=500.0)) == 1, "and can be claimed")


def check_jobs_gates(jobs: Jobs) -> None:
    """Held jobs wait until their key has counted enough and its cooldown is over, or somebody frees them."""
    jobs.enqueue(_queued("a", held=True), now=1)
    require(jobs.open_gates("facts", 2, 100, now=1) == 0, "one is not enough")
    jobs.enqueue(_queued("b", held=True), now=2)
    require(jobs.open_gates("facts", 2, 100, now=2) == 2, "two are")
    jobs.enqueue(_queued("c", "d", held=True), now=3)
    require(jobs.open_gates("facts", 2, 100, now=50) == 0, "the gate cools down")
    require(jobs.open_gates("facts", 2, 100, now=102) == 2, "and opens again")
    jobs.enqueue(_queued("e", held=True), now=103)
    jobs.free_held("facts", dead_too=False, now=103)
    require(len(jobs.claim(["facts"], 9, now=103, far=FAR)) == 5, "who is freed waits for no count")


def check_jobs_marks(jobs: Jobs) -> None:
    """Schedules, lengths of logs and whether the queue is new are remembered."""
    require(jobs.is_new, "a queue begins as new")
    jobs.set_found(now=1)
    require(not jobs.is_new, "until its work was found")
    jobs.set_schedule("reflect", "0 3 * * *", 100.0, None)
    jobs.set_schedule("reflect", "0 4 * * *", 200.0, 100.0)
    require(jobs.schedules() == {"reflect": ("0 4 * * *", 200.0, 100.0)}, f"got {jobs.schedules()}")
    jobs.set_schedule("reflect", "", None, None)
    require(not jobs.schedules(), "no time removes it")
    jobs.set_seen({"s1": 10, "s2": 20})
    jobs.set_seen({"s1": 11})
    require(jobs.seen() == {"s1": 11, "s2": 20}, f"got {jobs.seen()}")
    jobs.forget_seen()
    require(jobs.seen() == {}, "forgotten lengths are gone")


def check_jobs_many_threads(jobs: Jobs) -> None:
    """Each job is claimed by one thread, none is lost."""
    got: list[str] = []

    def work(who: int) -> None:
        jobs.enqueue(_queued(*(f"{who}.{n}" for n in range(10))), now=1)
        while claimed := jobs.claim(["facts"], 3, now=1, far=FAR):
            got.extend(job.ask.input for job in claimed)

    in_threads(work, range(4))
    require(sorted(got) == sorted(f"{who}.{n}" for who in range(4) for n in range(10)), f"got {sorted(got)}")


JOBS_CHECKS: Mapping[str, Callable[[Jobs], None]] = {
    "once": check_jobs_once,
    "outcome": check_jobs_outcome,
    "clock_set_back": check_jobs_clock_set_back,
    "gates": check_jobs_gates,
    "marks": check_jobs_marks,
    "many_threads": check_jobs_many_threads,
}


class JobsConformance(Mixin, checks=JOBS_CHECKS, make="make_jobs"):
    """Derive from this, give `make_jobs`, and every check of the jobs is a test."""

    def make_jobs(self) -> Jobs:
        raise NotImplementedError
