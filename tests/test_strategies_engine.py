"""The offline engine: queue, lease, retries, schedules, settings, and finding its work again."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn.errors import Invalid, Misconfigured, Unavailable
from cairn.notes.kinds import place_of
from cairn.seams import Locator
from cairn.strategies import Event, Job, Kit, Outcome, Strategy, StrategyAsk, cells, engine
from cairn.strategies import options as ome
from cairn.strategies.options import Cron
from cairn.types import CellEvent
from tests.waiting import calls_of
from tests.world import TALKED, MovedClock, World, case_steps, trajectory

TALK = [
    ("Caroline", "I went to a LGBTQ support group yesterday."),
    ("Melanie", "I live in Boston. I'm going to visit my sister in Denver next month."),
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root", clock=MovedClock(datetime(2026, 11, 15, 12, tzinfo=UTC)))


class Stumbling(Strategy):
    """Fails as often as it is told to."""

    name = "stumbling"
    purpose = "fails"
    trigger = "cell"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.ran: list[str] = []

    def asks(self, event: Event) -> Iterable[StrategyAsk]:
        if isinstance(event, CellEvent):
            scope = event.episodes[0][0]
            yield StrategyAsk(self.name, event.cell_id, scope, event.cell_id, event.session_id, event.day)

    def run(self, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        if self.errors:
            raise self.errors.pop(0)
        for job in jobs:
            self.ran.append(job.ask.input)
            yield Outcome(job, "wrote", "", ("x",))


def test_an_event_gives_every_derived_kind_and_a_repeat_gives_nothing(world: World):
    """E39 E66 E67 E76 E83: facts, foresight and profile of a cell; the same event again is known."""
    event = world.talk(TALK)

    assert world.engine.handle(event) == 6
    assert world.run() == 6
    assert world.engine.handle(event) == 0
    assert "Caroline: I went to a LGBTQ support group yesterday (7 May 2023)." in world.facts("caroline")
    assert world.entries("foresight", "melanie")[0].inline["end_time"] == "2023-06-30"
    assert (world.folder / "default_app/default_project/users/melanie/user.md").exists()


def test_state_lives_in_ome_db(world: World):
    """E21 E23: run records and counters in `.index/sqlite/ome.db`, and one engine at a time by a lease."""
    event = world.talk(TALK)
    world.engine.handle(event)
    with world.locks.lease("engine") as mine:
        assert mine
        done = []
        other = threading.Thread(target=lambda: done.append(world.engine.run_due()))
        other.start()
        other.join()
        assert done == [0]
    assert (world.folder / ".index/sqlite/ome.db").exists()
    world.run()
    assert {run.status for run in world.engine.runs()} == {"done", "skipped"}
    with sqlite3.connect(world.folder / ".index/sqlite/ome.db") as db:
        assert db.execute("SELECT sum(value) FROM counters").fetchone() == (6,)
    db.close()


def test_a_vanished_queue_is_found_again_from_the_notes(world: World):
    """E21: `.index/` may vanish at any moment; what ran is recognised, what did not is found."""
    world.run(world.talk(TALK))
    before = world.tree()
    world.engine.handle(world.talk(TALK[:1], session="s2"))
    shutil.rmtree(world.folder / ".index")

    world.run()

    after = world.tree()
    assert {k: v for k, v in after.items() if k in before and "episodes" not in k} == {
        k: v for k, v in before.items() if "episodes" not in k
    }
    assert [r.ask.session_id for r in world.engine.runs(limit=10)] == ["s2"] * 3


def test_records_of_runs_are_bounded_while_it_runs_and_nothing_runs_again(world: World, monkeypatch):
    """A process that is never started again keeps few records; what they told is known from the journal."""
    monkeypatch.setattr(engine, "KEEP_RECORDS", 2)
    monkeypatch.setattr(engine, "PRUNE_SECONDS", 0.0)
    assert world.run(world.talk(TALK), world.talk(TALK[:1], session="s2")) == 9

    world.run()
    assert len(world.engine.runs(limit=50)) == 2
    before = world.tree()
    world.fresh_engine().recover()
    world.run()
    assert world.tree() == before


def test_derived_kinds_are_recognised_without_queue_and_without_journal(world: World):
    """With ome.db and derived.jsonl both gone the notes themselves say what was done; nothing is doubled."""
    world.run(world.talk(TALK))
    before = world.tree()
    shutil.rmtree(world.folder / ".index")
    (world.folder / "default_app/default_project/journal/derived.jsonl").unlink()

    world.fresh_engine().recover()
    world.run()

    assert world.tree() == before


def test_looking_for_work_reads_the_journal_only_where_somebody_asks(world: World, monkeypatch):
    """It grows for as long as the memory is used; a look that finds what the queue knows must not hold all of it."""
    world.run(world.talk(TALK))
    journals, read = world.engine._journals, []
    real = journals.read
    monkeypatch.setattr(journals, "read", lambda at, start=0: read.append(at.name) or real(at, start))
    assert world.engine._discover(everything=True) == 0
    assert "derived.jsonl" not in read
    shutil.rmtree(world.folder / ".index")
    assert world.fresh_engine()._discover(everything=True) == 0
    assert "derived.jsonl" in read


def test_recover_leaves_nothing_running(world: World):
    """A job that a dead engine was running is ready again at once."""
    world.engine.handle(world.talk(TALK))
    now = world.clock.now().timestamp()
    world.engine.jobs.claim(["extract_atomic_facts"], 10, now=now, far=now + 1000)
    assert world.engine.jobs.counts()["extract_atomic_facts"] == {"running": 2}

    successor = world.fresh_engine()
    assert successor.recover() >= 2
    assert "running" not in successor.jobs.counts()["extract_atomic_facts"]


def test_a_failure_is_retried_with_backoff_then_set_aside_with_its_reason(world: World):
    """Retries wait 1, 2, 4 ... seconds; after max_retries the job is dead and says why."""
    strategy = Stumbling(*(RuntimeError(f"no {n}") for n in range(9)))
    engine = world.fresh_engine([strategy])
    world.storage.write(Locator("ome.toml"), "[strategies.stumbling]\nmax_retries = 2\n")
    engine.handle(world.talk(TALK))

    assert engine.run_due() == 0
    assert engine.run_due() == 0, "not due before its second has passed"
    world.clock.move(seconds=1)
    assert engine.run_due() == 0
    world.clock.move(seconds=2)
    assert engine.run_due() == 1

    (run,) = engine.runs(status="dead")
    assert run.reason == "RuntimeError: no 2"
    assert engine.list()[0].last_error == "RuntimeError: no 2"
    strategy.errors.clear()
    assert engine.trigger("stumbling", force=True).wrote == 1
    assert engine.runs(status="dead") == []


def test_one_bad_input_does_not_hold_up_its_neighbours(world: World):
    """A batch that fails is worked through one by one."""
    strategy = Stumbling(RuntimeError("batch"), RuntimeError("first"))
    engine = world.fresh_engine([strategy])
    world.storage.write(Locator("ome.toml"), "")
    engine.handle(*(world.talk(TALK, session=f"s{n}") for n in range(4)))

    assert engine.run_due() == 3
    assert len(strategy.ran) == 3
    assert [r.reason for r in engine.runs(status="pending")] == ["RuntimeError: first"]


def test_an_unavailable_disk_is_waited_for_and_never_kills_a_job(world: World):
    """P9: a full disk costs no attempt; the job runs when the disk is back."""
    strategy = Stumbling(*(Unavailable("disk full") for _ in range(12)))
    engine = world.fresh_engine([strategy])
    world.storage.write(Locator("ome.toml"), "")
    engine.handle(world.talk(TALK))
    for _ in range(12):
        engine.run_due()
        world.clock.move(seconds=20)

    assert engine.run_due() == 1
    assert engine.runs()[0].status == "done"


def test_a_removed_episode_is_a_named_outcome(world: World):
    """An episode deleted before its strategy ran is skipped with the reason, not retried."""
    event = world.talk(TALK)
    scope, episode = event.episodes[0]
    world.notebook.remove(world.root.note("episode", scope, event.day), [episode])

    world.run(event)

    reasons = {r.ask.scope.owner: r.reason for r in world.engine.runs(strategy="extract_atomic_facts")}
    assert reasons[scope.owner] == f"episode {episode} was removed"


def test_what_a_strategy_has_read_the_next_one_finds_however_many_wait(world: World, monkeypatch):
    """Each strategy has its turn with the cells that were read last: reading one costs more than all else."""
    monkeypatch.setattr(cells, "CELLS_KEPT", 2)
    for number in range(6):
        world.engine.handle(world.talk(TALK, session=f"s{number}"))

    def work() -> None:
        while world.engine.run_due(4):
            pass

    assert calls_of(work)["statements_of"] == 6
    assert {run.status for run in world.engine.runs(limit=100)} <= {"done", "skipped"}


def test_forgotten_words_are_a_named_outcome(world: World):
    """A cell whose messages were forgotten before the run is skipped with the reason."""
    event = world.talk(TALK)
    (world.folder / "default_app/default_project/sessions/s1.jsonl").unlink()

    world.run(event)

    assert {r.status for r in world.engine.runs()} == {"skipped"}
    assert "not in session s1 any more" in world.engine.runs()[0].reason


def test_a_clock_set_back_does_not_strand_work(world: World):
    """A due time far beyond any backoff means the clock jumped: the job runs."""
    engine = world.fresh_engine([Stumbling(RuntimeError("once"))])
    world.storage.write(Locator("ome.toml"), "")
    engine.handle(world.talk(TALK))
    engine.run_due()
    world.clock.move(days=-300)

    assert engine.run_due() == 1


# -- ome.toml


def test_the_template_is_valid_and_says_the_defaults(world: World):
    """E25 E30: what `ensure` puts in place checks, and changes nothing."""
    defaults = world.engine._live.defaults
    assert ome.parse(ome.template(), defaults) == (defaults, {})
    assert not defaults["reflect_episodes"].enabled
    assert (world.folder / "ome.toml").read_text() == ome.template()


def test_a_switch_is_live_without_a_restart(world: World):
    """E25 E82: `enabled = false` takes effect on the next look, at most a second later."""
    world.configure("[strategies.extract_foresight]\nenabled = false\n")
    world.run(world.talk(TALK))
    assert world.entries("foresight", "melanie") == []

    world.configure("[strategies.extract_foresight]\nenabled = true\n")
    world.run()
    assert len(world.entries("foresight", "melanie")) == 1


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        (
            "[strategies.extract_foresight]\nenable = true\n",
            'line 2: [strategies.extract_foresight] has no setting "enable"',
        ),
        ("[extract_foresight]\nenabled = true\n", 'there is no "extract_foresight" here'),
        ("[strategies.extract_foresight]\nenabled = 1\n", "enabled = 1 is not true or false"),
        ("[strategies.extract_foresight]\nmax_retries = -1\n", "is not a whole number"),
        ('[strategies.reflect_episodes]\ncron = "61 * * * *"\n', '"61" is not a minute'),
        ("[strategies.extract_foresight.gate]\nthreshold = 0\n", "threshold must be 1 or more"),
        (
            '[strategies.extract_foresight.gate]\nevent_field = "x"\n',
            "is not one of owner_id, session_id, space",
        ),
        ("[strategies.extract_foresight]\nsimilarity = 0.5\n", 'has no setting "similarity"'),
        ("strategies = 3\n", "must be a table"),
        ("[strategies", "ome.toml: "),
    ],
)
def test_a_broken_file_is_named_and_the_old_settings_stay(world: World, text: str, trouble: str):
    """E122: unknown keys and bad values are errors with their line; what was good before goes on."""
    world.configure("[strategies.extract_foresight]\nenabled = false\n")
    assert world.engine.trouble == ""
    world.configure(text)

    assert trouble in world.engine.trouble
    world.run(world.talk(TALK))
    assert world.entries("foresight", "melanie") == []
    assert world.facts("caroline")


def test_a_strategy_that_is_not_there_is_skipped_alone(world: World):
    """E122: a table of another program's strategy is a warning that the list shows; everything else holds."""
    world.configure(
        "[strategies.trigger_profile_clustering]\nenabled = true\n[strategies.extract_foresight]\nenabled = false\n"
    )
    assert world.engine.trouble == ""
    assert 'line 1: there is no strategy "trigger_profile_clustering"' in str(world.engine.unknown)
    [row] = [row for row in world.engine.list() if row.name == "trigger_profile_clustering"]
    assert not row.enabled and "skipped" in row.purpose and "there is no strategy" in row.last_error
    world.run(world.talk(TALK))
    assert world.entries("foresight", "melanie") == [] and world.facts("caroline")


def test_a_broken_file_stands_in_the_list(world: World):
    """The template sends people to `cairn ome list`: it names what is wrong with the file."""
    world.configure("[strategies.extract_foresight]\nenable = true\n")
    [row] = [row for row in world.engine.list() if row.name == "ome.toml"]
    assert 'has no setting "enable"' in row.last_error


def test_a_file_broken_at_start_holds_the_strategies_and_loses_nothing(tmp_path: Path):
    """Nothing runs that the file might have switched off; events queue, and run once it is mended."""
    world = World(tmp_path / "root")
    world.storage.write(Locator("ome.toml"), "[strategies.extract_foresight]\noops = true\n")
    world.engine = world.fresh_engine()
    assert world.run(world.talk(TALK)) == 0
    assert "oops" in world.engine.trouble

    world.configure("")
    assert world.run() == 6


def test_a_gate_counts_events_before_it_opens(world: World):
    """E122: gate.threshold and cooldown_seconds hold jobs back until enough of one owner's events came."""
    world.configure("[strategies.extract_user_profile.gate]\nthreshold = 3\ncooldown_seconds = 60\n")
    for n in range(2):
        world.run(world.talk(TALK, session=f"s{n}"))
    assert world.engine.jobs.counts()["extract_user_profile"] == {"held": 4}

    world.run(world.talk(TALK, session="s2"))
    assert "held" not in world.engine.jobs.counts()["extract_user_profile"]

    for n in range(3, 6):
        world.run(world.talk(TALK, session=f"s{n}"))
    assert world.engine.jobs.counts()["extract_user_profile"]["held"] == 6
    world.clock.move(seconds=61)
    world.run()
    assert "held" not in world.engine.jobs.counts()["extract_user_profile"]


def test_idle_seconds_wait_for_quiet(world: World):
    """E122: each new event of the same owner moves the due time along."""
    world.configure("[strategies.extract_atomic_facts]\nidle_seconds = 30\n")
    world.run(world.talk(TALK))
    world.clock.move(seconds=20)
    world.run(world.talk(TALK, session="s2"))
    world.clock.move(seconds=20)
    world.run()
    assert world.facts("caroline") == []

    world.clock.move(seconds=11)
    world.run()
    assert world.facts("caroline")


def test_scan_interval_finds_what_no_event_told_of(world: World):
    """E122: scan_interval_seconds looks through the session logs for missed cells."""
    world.run()
    world.talk(TALK)
    assert world.run() == 0
    world.configure("[strategies.extract_atomic_facts]\nscan_interval_seconds = 10\n")
    world.clock.move(seconds=11)
    world.run()
    assert world.facts("caroline")


# -- cron and triggers


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 2 * * 1", "2026-11-15T12:00", "2026-11-16T02:00"),
        ("*/15 9-17 * * mon-fri", "2026-11-13T17:50", "2026-11-16T09:00"),
        ("30 4 29 2 *", "2026-11-15T12:00", "2028-02-29T04:30"),
        ("0 0 1,15 * *", "2026-11-15T00:00", "2026-12-01T00:00"),
        ("0 0 13 * fri", "2026-11-07T00:00", "2026-11-13T00:00"),
        ("5 0 * aug 7", "2026-11-15T12:00", "2027-08-01T00:05"),
    ],
)
def test_cron_times(text: str, after: str, expected: str):
    """Five fields with lists, ranges, steps and names; Sunday is 0 and 7."""
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert Cron.parse(text).next(moment) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "* * * 13 *",
        "a * * * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "0 0 31 2 *",
    ],
)
def test_cron_refuses_what_cannot_be_meant(text: str):
    """A bad expression is a named error, also a day that never comes."""
    with pytest.raises(Misconfigured, match="cron ="):
        Cron.parse(text)


def test_a_schedule_is_kept_and_a_long_sleep_runs_it_once(world: World):
    """E22: cron times are persisted; a month asleep is one run, and a clock set back is noticed."""
    world.talk(TALK)
    world.talk(TALK, session="s2")
    world.configure("[strategies.reflect_episodes]\nenabled = true\n")
    world.run()
    assert (
        world.engine.jobs.schedules()["reflect_episodes"][1]
        == datetime(2026, 11, 16, 2, tzinfo=UTC).timestamp()
    )  # type: ignore[index]
    world.clock.move(days=40)

    world.run()

    runs = world.engine.runs(strategy="reflect_episodes")
    assert sorted(r.input for r in runs) == [
        f"2026-11-16T02:00:00/default/default/user/{o}" for o in ("caroline", "melanie")
    ]
    assert len(world.entries("episode", "caroline")) == 3
    world.clock.move(days=-100)
    world.run()
    assert world.engine.list()[-1].next_at < datetime(2026, 9, 30, tzinfo=UTC)  # type: ignore[operator]


def test_trigger_runs_now_or_says_why_not(world: World):
    """Trigger: done, disabled unless forced, busy when another holds the lease; unknown names are refused."""
    world.talk(TALK)
    done = world.engine.trigger("extract_atomic_facts")
    assert (done.status, done.wrote, done.waiting) == ("done", 2, 0)
    assert world.engine.trigger("reflect_episodes").status == "disabled"
    assert world.engine.trigger("reflect_episodes", force=True).status == "done"
    with pytest.raises(Invalid, match="There is no strategy"):
        world.engine.trigger("nope")
    with pytest.raises(Invalid, match="positive"):
        world.engine.trigger("extract_foresight", timeout=0)
    results = []
    with world.locks.lease("engine"):
        asker = threading.Thread(
            target=lambda: results.append(world.engine.trigger("extract_foresight", timeout=0.2))
        )
        asker.start()
        asker.join()
    assert results[0].status == "busy"


def test_skipped_inputs_are_journalled_and_not_redone(world: World):
    """An input that gave nothing says so in journal/derived.jsonl and stays skipped when the index vanishes."""
    world.run(world.talk([("Ana", "Hey!"), ("Bo", "Hi there!")]))
    lines = [
        json.loads(x)
        for x in (world.folder / "default_app/default_project/journal/derived.jsonl").read_text().splitlines()
    ]
    assert {x["reason"] for x in lines} >= {"nothing was stated", "nothing lies ahead in it"}
    shutil.rmtree(world.folder / ".index")

    assert world.run() == 0


def test_an_idle_engine_asks_almost_nothing(world: World):
    """Idle costs two small reads a look, and opens no file."""
    world.run(world.talk(TALK))
    world.engine.run_due()
    work = calls_of(world.engine.run_due)
    assert work["execute"] <= 2
    assert not work["open"] and not work["scandir"], work.most_common(12)


def test_the_whole_engine_can_be_off(tmp_path: Path):
    """strategies.enabled = false queues and runs nothing."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "cairn.toml").write_text("[strategies]\nenabled = false\n")
    world = World(root)
    assert world.engine.handle(world.talk(TALK)) == 0
    assert world.run() == 0


def test_every_derived_note_checks_against_the_note_format(world: World):
    """E37-E41 E93 E94: what the strategies write parses without a single problem."""
    for number in range(3):
        task = f"The nightly backup of db{number} fails with exit code 2, please find out why and fix it."
        lines = trajectory(task, steps=case_steps(), final="The cause was the old port; it works again.")
        world.run(world.talk(lines, session=f"ops{number}", at=TALKED + timedelta(days=number)))
    world.run(world.talk(TALK))
    world.engine.trigger("reflect_episodes", force=True)
    kinds = set()
    for locator in world.notebook.notes():
        note = world.notebook.read(locator)
        assert note.problems == (), (locator, note.problems)
        kinds.add(place_of(locator).kind.name)  # type: ignore[union-attr]
    assert kinds == {"episode", "atomic_fact", "foresight", "profile", "agent_case", "agent_skill"}


def test_doctor_names_a_broken_file_and_what_was_given_up(tmp_path: Path):
    """A broken `ome.toml` and dead jobs are findings with a next step."""
    from cairn import open_blocking

    (tmp_path / "ome.toml").write_text("[strategies.extract_foresight]\nnope = true\n")
    with open_blocking(tmp_path, background=False, embedding__provider="none") as memory:
        found = [finding for finding in memory.doctor() if "ome.toml" in str(finding)]
    assert found and 'has no setting "nope"' in str(found[0])


def test_people_go_first_but_work_goes_on(world: World):
    """While an add or a search is in progress each job steps aside first, and goes on all the same."""
    event = world.talk(TALK)
    world.engine.handle(event)
    with world.traffic:
        assert world.traffic.give_way(), "somebody is waited for"
        work = calls_of(lambda: world.run() == 6 or pytest.fail("jobs stand still"))
        assert work["give_way"] >= 6
    assert not world.traffic.give_way(), "nobody is there any more"
