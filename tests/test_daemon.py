"""Background life: edits noticed, work taken over, nothing stopped by a failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from cairn.daemon import Daemon, Piece
from cairn.engines.watching import TreeWatch
from cairn.errors import Unavailable
from cairn.retrieval.indexer import Indexer
from cairn.traffic import Traffic
from tests.waiting import LONG, until
from tests.world import ALICE, Indexed, said


def embedded(world: Indexed) -> bool:
    has = world.index.corpus(ALICE).has_vector
    return len(has) > 0 and bool(has.all())


@pytest.fixture
def live(tmp_path):
    """A factory of worlds with a running daemon; all are stopped at the end."""
    made: list[tuple[Indexed, Daemon]] = []

    def start(**settings) -> tuple[Indexed, Daemon]:
        world = Indexed(tmp_path / "root")
        settings.setdefault("watch", TreeWatch(world.folder))
        daemon = Daemon(world.indexer, world.state, **settings)
        daemon.start()
        made.append((world, daemon))
        return world, daemon

    yield start
    for world, daemon in reversed(made):
        daemon.stop()
        world.close()


def test_writes_and_edits_are_found_within_a_moment(live):
    """E69, E70: a write through the notebook and a save in an editor are searchable long before the next scan."""
    world, daemon = live(scan_seconds=3600)
    until(lambda: daemon.health()["indexing"])
    entry = world.episode("written by the notebook")
    until(lambda: world.hits("notebook") == [entry])
    until(lambda: daemon.health()["watching"])
    file = world.note_path()
    file.write_text(file.read_text().replace("notebook", "editor"))
    until(lambda: world.hits("editor") == [entry])
    until(lambda: embedded(world))
    file.unlink()
    until(lambda: world.hits("editor") == [])


def test_notes_that_appear_with_their_folder_are_found_long_before_the_next_scan(live, tmp_path):
    """A sync or a pull into an empty root: nothing was watched while it wrote, and nobody waits for the scan."""
    other = Indexed(tmp_path / "elsewhere")
    entry = other.episode("brought along by a pull")
    other.close()
    world, daemon = live(scan_seconds=3600)
    until(lambda: daemon.health()["indexing"] and daemon.health()["watching"])
    for folder in (tmp_path / "elsewhere").iterdir():
        if not folder.name.startswith("."):
            shutil.copytree(folder, world.folder / folder.name)
    until(lambda: world.hits("pull") == [entry])


def test_a_folder_that_is_whole_when_it_appears_is_looked_through_at_once(live, tmp_path, monkeypatch):
    """A pull that ended before anything was watched: no further change comes, and the first tick is far away."""
    monkeypatch.setattr("cairn.engines.watching._TICK_MS", 3_600_000)
    other = Indexed(tmp_path / "elsewhere")
    entry = other.episode("moved here in one go")
    other.close()
    world, daemon = live(scan_seconds=3600)
    until(lambda: daemon.health()["indexing"] and daemon.health()["watching"])
    [folder] = [one for one in (tmp_path / "elsewhere").iterdir() if not one.name.startswith(".")]
    folder.rename(world.folder / folder.name)
    until(lambda: world.hits("moved") == [entry])


def test_a_watch_that_was_refused_is_begun_again_soon(live, tmp_path):
    """The system's watches were all taken for a moment: edits are found long before the next scan all the same."""
    begun = []

    def refused_at_first(on_keys, stop):
        begun.append(True)
        if len(begun) == 1:
            raise OSError(24, "Too many open files")
        TreeWatch(tmp_path / "root")(on_keys, stop)

    world, _ = live(watch=refused_at_first, scan_seconds=3600)
    entry = world.episode("before")
    until(lambda: world.hits("before") == [entry] and bool(begun))
    until(lambda: len(begun) > 1)
    file = world.note_path()
    file.write_text(file.read_text().replace("before", "afterwards"))
    until(lambda: world.hits("afterwards") == [entry])
    assert len(begun) == 2


def test_without_a_watcher_the_next_scan_finds_the_edit(live):
    """inotify refused: edits are found at the next scan, and at once on a strong read."""

    def refused(_on_keys, _stop):
        raise OSError(28, "inotify watch limit reached")

    world, daemon = live(watch=refused, scan_seconds=0.5)
    entry = world.episode("before")
    until(lambda: world.hits("before") == [entry])
    file = world.note_path()
    file.write_text(file.read_text().replace("before", "after"))
    until(lambda: world.hits("after") == [entry])
    until(lambda: not daemon.health()["watching"], "a watch that is refused is no watch")
    assert daemon.health()["healthy"], "scans carry on; nothing is wrong"
    file.write_text(file.read_text().replace("after", "finally"))
    world.waits.catch_up(LONG)
    assert world.hits("finally") == [entry]


def test_index_removed_under_load_costs_no_error_and_no_row(live):
    """Design 2: `rm -rf .index` during writes and reads; every call is answered, then all rows are back."""
    world, daemon = live(watch=None)
    until(lambda: daemon.health()["indexing"])
    done = threading.Event()
    errors: list[BaseException] = []
    written: list[str] = []

    def write() -> None:
        try:
            for n in range(60):
                written.append(world.episode(f"row number{n}", day=f"2026-06-{n % 5 + 1:02}"))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    def read() -> None:
        try:
            while not done.is_set():
                world.hits("row")
                world.index.corpus(ALICE)
                assert world.indexer.status().state in {"fresh", "behind", "rebuilding"}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write), *(threading.Thread(target=read) for _ in range(2))]
    for thread in threads:
        thread.start()
    for turn in range(3):
        until(lambda turn=turn: len(written) > 15 * turn or errors)
        shutil.rmtree(world.folder / ".index", ignore_errors=True)
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(written) == 60
    until(lambda: world.hits("row") == sorted(written) and world.indexer.status().state == "fresh")


def test_a_second_process_takes_over_when_the_first_is_killed(live, tmp_path):
    """Design 6: the lease of a process that was killed -9 passes on within a second or two; nothing is lost."""
    code = textwrap.dedent(
        f"""
        import sys, time, pathlib
        sys.path.insert(0, {os.getcwd()!r})
        from cairn.daemon import Daemon
        from tests.world import Indexed
        world = Indexed(pathlib.Path({str(tmp_path / "root")!r}))
        daemon = Daemon(world.indexer, world.state)
        daemon.start()
        while not daemon.health()["indexing"]:
            time.sleep(0.01)
        print("indexing", flush=True)
        sys.stdin.read()
        """
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline().strip() == "indexing"
        world, daemon = live(watch=None)
        entry = world.episode("indexed by the other")
        until(lambda: world.hits("indexed") == [entry])
        assert not daemon.health()["indexing"]
        first.send_signal(signal.SIGKILL)
        late = world.episode("late words")
        until(lambda: world.hits("late") == [late])
        assert daemon.health()["indexing"]


def test_failing_chores_and_drains_are_recorded_and_life_goes_on(live, monkeypatch):
    """E110: three failed drains in a row are unhealthy; the next good one heals; chores run on their own time."""
    ran = threading.Event()

    def bad() -> None:
        raise RuntimeError("no good")

    world, daemon = live(watch=None, pieces=[Piece("bad", 0.05, bad), Piece("good", 0.05, ran.set)])
    until(lambda: daemon.health()["indexing"])
    whole = world.state.claim
    monkeypatch.setattr(
        world.state, "claim", lambda *_a, **_k: (_ for _ in ()).throw(Unavailable("disk full"))
    )
    entry = world.episode("patience")
    until(lambda: not daemon.health()["healthy"])
    assert daemon.health()["failed_drains"] >= 3
    monkeypatch.setattr(world.state, "claim", whole)
    until(lambda: world.hits("patience") == [entry])
    until(lambda: daemon.health()["healthy"])
    assert daemon.health()["failed_drains"] == 0
    assert ran.wait(LONG)


def test_an_idle_daemon_costs_next_to_nothing(live, monkeypatch):
    """A look while idle is one small question to the queue: no scan, no drain, no file and no vector."""
    world, daemon = live(scan_seconds=3600)
    until(lambda: daemon.health()["indexing"] and daemon.health()["watching"])
    world.episode("one")
    until(lambda: embedded(world))
    looks: list[int] = []
    work: list[str] = []
    quiet = world.state.data_version
    monkeypatch.setattr(world.state, "data_version", lambda: looks.append(1) or quiet())

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: work.append(name) or real(*a, **k))

    # What the watch has to say about our own write comes first; from then on nothing happens any more.
    until(lambda: len(looks) > 10)
    for owner, name in ((world.indexer, "scan"), (world.indexer, "drain"), (world.state, "claim")):
        counted(owner, name)
    for name in ("read", "list", "scan"):
        counted(world.storage, name)

    def still() -> bool:
        work.clear()
        looks.clear()
        until(lambda: len(looks) > 10)
        return not work

    until(still, "an idle daemon went on working")


def test_vectors_come_in_small_batches_beside_people(live, monkeypatch):
    """A batch of vectors takes a core for tens of milliseconds: beside people nobody waits for a long one."""
    asked, traffic, embed = [], Traffic(), Indexer.embed
    monkeypatch.setattr(
        Indexer, "embed", lambda self, limit, **of: asked.append(limit) or embed(self, limit, **of)
    )
    with traffic:  # before anything runs: no batch was begun while nobody was there
        world, _ = live(traffic=traffic)
        for number in range(12):
            world.episode(f"The boat number {number} is in the harbour.")
        until(lambda: len(world.hits("harbour")) == 12 and embedded(world))
        assert asked and set(asked) == {32}
    asked.clear()
    world.episode("The last boat is in the harbour.")
    until(lambda: asked and embedded(world))
    until(lambda: max(asked) > 32)


def test_what_nobody_waits_for_waits_for_calls_and_the_index_but_not_for_ever(monkeypatch):
    """One place decides: a piece begins once no call is served and nothing is on its way into the index, or after a while."""
    traffic, told = Traffic(), []
    assert not traffic.give_way()
    with traffic.indexing():
        assert not traffic.give_way(longest=0.01), "the index is waited for, too, but is no call"
    with traffic:
        assert traffic.is_busy()
        waiting = threading.Thread(target=lambda: told.append(traffic.give_way(longest=LONG)))
        looked, look = [], traffic.is_busy
        monkeypatch.setattr(
            traffic, "is_busy", lambda *quiet: (look(*quiet), looked.append(threading.current_thread()))[0]
        )
        waiting.start()
        until(lambda: waiting in looked)  # the call is seen while it is served
        assert traffic.give_way(longest=0.01), "it goes on although somebody is served"
        assert told == []
    waiting.join(LONG)
    assert told == [True]
    assert traffic.is_busy(LONG) and not traffic.is_busy()


def test_what_is_done_in_the_background_is_no_call():
    """What finishes the work of a killed process uses operations like a caller: nobody gives way to it, nor waits for its notes."""
    traffic, told = Traffic(), []

    def finish() -> None:
        traffic.begin_background()
        with traffic:
            traffic.wrote(7)
            told.extend((traffic.is_busy(LONG), traffic.give_way(longest=0.01), traffic.written))

    thread = threading.Thread(target=finish)
    thread.start()
    thread.join(LONG)
    assert told == [False, False, 0]
    with traffic:
        assert traffic.wrote(7) == traffic.written


def test_what_a_call_leaves_to_others_begins_when_it_is_over():
    """Once, however often it was asked for, and not before the outermost call ends; where no call is served, at once."""
    traffic, told = Traffic(), []

    def wake() -> None:
        told.append(traffic.is_busy())

    with traffic:
        with traffic:
            traffic.afterwards(wake)
            traffic.afterwards(wake)
        assert told == []
        other = threading.Thread(target=traffic.afterwards, args=(wake,))
        other.start()
        other.join(LONG)
        assert told == [True], "another thread serves no call"
    assert told == [True, False]
    traffic.afterwards(wake)
    assert told == [True, False, False]


def test_a_note_wakes_the_index_when_its_call_is_over_and_a_question_at_once(live, monkeypatch):
    """Beside the index each last step of the call would wait for the interpreter; who asks does not wait for the call."""
    monkeypatch.setattr("cairn.daemon.POLL_SECONDS", LONG)

    class Told(Traffic):
        def afterwards(self, act):
            left.append(act)
            super().afterwards(act)

    left, traffic = [], Told()
    world, daemon = live(traffic=traffic, watch=None, scan_seconds=3600)
    until(lambda: daemon.health()["indexing"])
    with traffic:
        entry = world.episode("written within a call")
        assert len(left) == 1
    until(lambda: world.state.counts().pending == 0)
    assert world.hits("written") == [entry]
    with traffic:
        world.episode("asked for within a call")
        world.indexer.on_wanted(False)
        until(lambda: world.state.counts().pending == 0)


def test_a_scan_lets_calls_go_first(live, monkeypatch):
    """A folder that a call has made is looked at when nobody is served: what the scan finds would be indexed beside the call."""
    order: list[str] = []

    class Told(Traffic):
        def give_way(self, *args, **more):
            if threading.current_thread().name == "cairn-index":
                order.append("way")
            return super().give_way(*args, **more)

    scan = Indexer.scan_in_turn
    monkeypatch.setattr(
        Indexer, "scan_in_turn", lambda *args, **more: order.append("scan") or scan(*args, **more)
    )
    live(traffic=Told(), scan_seconds=0.05)
    until(lambda: order.count("scan") > 2)
    assert order[:4] == ["way", "scan", "way", "scan"]


def test_whoever_asks_goes_before_a_scan_that_waits_for_calls():
    """Rows that somebody asks for are not held up by a scan behind calls that never cease."""
    traffic = Traffic()
    with traffic:
        assert traffic.give_way(longest=LONG, unless=lambda: True)


def test_pieces_of_work_have_their_turn_one_after_another(live):
    """However much one kind of work has to do, the others come in between; one that waits outside holds up nobody."""
    done: list[str] = []
    free = threading.Event()

    def work(name: str, much: bool) -> Piece:
        return Piece(name, 3600.0, lambda: done.append(name) or (much and len(done) < 50), everywhere=True)

    slow = Piece("slow", 3600.0, lambda: free.wait(LONG), everywhere=True, apart=True)
    later = work("later", much=False)
    live(watch=None, pieces=[slow, work("much", much=True), work("more", much=True), later])
    until(lambda: len(done) >= 50)
    assert done[:5] == ["much", "more", "later", "much", "more"]
    assert done.count("later") == 1
    later.wake()
    until(lambda: done.count("later") == 2)
    free.set()


def test_open_talk_wakes_no_embedder_beside_people_but_a_note_and_a_question_do(live, monkeypatch):
    """An add does not share the processor with the vectors of the one before."""
    monkeypatch.setattr("cairn.daemon._TALK_PUT_OFF", 10**9)
    traffic, asked = Traffic(), []
    with traffic:
        world, daemon = live(traffic=traffic)
        embed = world.indexer.embed
        monkeypatch.setattr(
            world.indexer, "embed", lambda limit, **of: asked.append(limit) or embed(limit, **of)
        )
        until(lambda: daemon.health()["indexing"])
        world.add("s", said("The boat is still at sea.", who="alice"))
        until(lambda: world.index.pending_count() == 1)
        assert asked == []
        world.episode("The boat is in the harbour.")
        until(lambda: world.hits("harbour") and world.index.pending_count() == 1)
        assert asked
        assert "at sea" in world.index.pending(9)[0].text
        world.indexer.on_wanted(True)
        until(lambda: embedded(world))


def test_open_talk_comes_in_pieces_beside_calls_and_whole_when_it_is_asked_for(live, monkeypatch):
    """Calls that never cease share the interpreter with a piece of it now and then; a question ends the waiting."""
    monkeypatch.setattr("cairn.daemon._TALK_PUT_OFF", 10**9)
    monkeypatch.setattr("cairn.daemon._DRAIN_BESIDE_PEOPLE", 2)
    monkeypatch.setattr("cairn.daemon._REST", 10**9)
    traffic, turn, begun, drain = Traffic(), threading.Lock(), [], Indexer.drain

    def counted(self, limit):
        with turn:
            begun.append(limit)
            return drain(self, limit)

    monkeypatch.setattr(Indexer, "drain", counted)
    with traffic:
        world, _ = live(traffic=traffic, scan_seconds=3600)
        until(lambda: bool(begun))  # whoever begins takes in what is there
        with turn:  # a piece is taken before all of it is there, or after
            begun.clear()
            for number in range(7):
                world.add(f"s{number}", said("The boat is still at sea.", who="alice"))
        until(lambda: world.index.pending_count() == 2)
        with turn:  # the piece is over: its rows are there before the queue says so
            assert set(begun) == {2}
            assert world.indexer.status(ALICE).pending == 5, "what waits is told, and asked for by that"
        until(lambda: world.index.pending_count() == 7)
        assert max(begun) > 2


def test_open_talk_is_all_taken_in_beside_calls_that_never_cease(live, monkeypatch):
    """However rarely a piece has its turn, no talk waits for ever."""
    monkeypatch.setattr("cairn.daemon._DRAIN_BESIDE_PEOPLE", 2)
    monkeypatch.setattr("cairn.daemon.PUT_OFF_SECONDS", 0.01)
    monkeypatch.setattr("cairn.daemon._REST", 0)
    traffic = Traffic()
    with traffic:
        world, daemon = live(traffic=traffic)
        until(lambda: daemon.health()["indexing"])
        for number in range(7):
            world.add(f"s{number}", said("The boat is still at sea.", who="alice"))
        until(lambda: len(world.index.corpus(ALICE).has_vector) == 7)
