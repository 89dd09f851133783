"""The change queue on SQLite."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from cairn.engines import changes
from cairn.engines.changes import MAX_RETRIES, SqliteState
from cairn.engines.database import Database, Remembered, _Connection
from cairn.engines.jobs import SqliteJobs
from cairn.errors import Unavailable
from cairn.seams import Noticed
from tests.waiting import LONG


class SetClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def state(tmp_path, clock):
    queue = SqliteState(tmp_path / ".index", clock=clock)
    yield queue
    queue.close()


def noticed(*paths: str, change_type: str = "modified") -> list[Noticed]:
    return [Noticed(path, "episode", change_type) for path in paths]


def test_lsn_grows_and_a_path_queued_again_moves_to_the_back(state):
    """E104: max + 1 on each enqueue, so a re-enqueued path waits behind the others."""
    assert state.enqueue(noticed("a.md", "b.md")) == 2
    assert state.enqueue(noticed("a.md")) == 3
    claimed = state.claim(10, holder="me")
    assert [(change.path, change.lsn) for change in claimed] == [("b.md", 2), ("a.md", 3)]
    assert state.counts().pending == 2, "work in progress is shown as pending"


def test_a_database_written_anew_is_not_held_in_memory(tmp_path):
    """Forget: the copy goes through an unnamed file of the same folder, and nothing of it stays."""
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from cairn.engines.database import Database\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "db = Database(Path(sys.argv[1]) / 'large.db', 'CREATE TABLE t(x)', version=1)\n"
        "for _ in range(60): db.write(lambda c: c.execute('INSERT INTO t VALUES (randomblob(1000000))'))\n"
        "db.write(lambda c: c.execute('DELETE FROM t WHERE rowid % 10 = 0'))\n"
        "before = peak()\n"
        "assert db.scrub()\n"
        "print(peak() - before, db.read(lambda c: c.execute('PRAGMA temp_store_directory').fetchall()))\n"
        "db.close()\n"
    )
    folder = tmp_path / "it's here"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    grown, left = done.stdout.split(" ", 1)
    assert (int(grown) < 25, left.strip()) == (True, "[]")
    assert {one.name for one in folder.iterdir()} == {"large.db", ".opening"}
    assert 54_000_000 <= (folder / "large.db").stat().st_size < 56_000_000


def test_a_stale_claim_loses_to_a_new_change(state):
    """E105: what was queued again during the work stays pending whatever the worker reports."""
    state.enqueue(noticed("a.md"))
    [claimed] = state.claim(10, holder="me")
    state.enqueue(noticed("a.md"))
    assert state.finish([claimed], holder="me", seen={}) == 0
    state.fail(claimed, "late", holder="me", retryable=False)
    assert state.counts().pending == 1
    assert state.failures() == []
    [again] = state.claim(10, holder="me")
    assert state.finish([again], holder="me", seen={}) == 1
    assert state.counts() == type(state.counts())(pending=0, done=1, failed=0, last_lsn=2, applied_lsn=2)


def test_claims_of_a_dead_holder_are_recovered_at_once(state):
    """E106: a new lease holder returns every foreign claim to the queue, and the dead one's report is void."""
    state.enqueue(noticed("a.md", "b.md"))
    dead = state.claim(1, holder="dead")
    assert state.recover(holder="new") == 1
    mine = state.claim(10, holder="new")
    assert [change.path for change in mine] == ["a.md", "b.md"]
    assert state.finish(dead, holder="dead", seen={}) == 0
    assert state.finish(mine, holder="new", seen={}) == 2


def test_a_failure_pauses_its_own_change_and_no_other(state, clock):
    """E108: a retryable failure backs off, is counted, and blocks nobody; after the last try it stands failed."""
    state.enqueue(noticed("bad.md", "good.md"))
    bad, good = state.claim(10, holder="me")
    state.fail(bad, "embedding service is away", holder="me", retryable=True)
    state.finish([good], holder="me", seen={})
    assert state.claim(10, holder="me") == []
    [shown] = state.failures()
    assert (shown["status"], shown["error"]) == ("pending", "embedding service is away")
    for _ in range(MAX_RETRIES - 1):
        clock.forward(61)
        [bad] = state.claim(10, holder="me")
        state.fail(bad, "still away", holder="me", retryable=True)
    clock.forward(3600)
    assert state.claim(10, holder="me") == []
    assert state.counts().failed == 1
    assert state.retry_failed() == 1, "E91: the retryable ones can be put back"
    assert [change.retry_count for change in state.claim(10, holder="me")] == [0]


def test_a_permanent_failure_waits_for_an_edit(state):
    """E103, E107: not retryable means not retried, neither by time nor by `retry_failed`; a new change is."""
    state.enqueue(noticed("bad.md"))
    [bad] = state.claim(10, holder="me")
    state.fail(bad, "not UTF-8", holder="me", retryable=False, seen=(1.0, 5))
    assert state.retry_failed() == 0
    assert state.known()["bad.md"].mtime == 1.0
    state.enqueue(noticed("bad.md"))
    assert len(state.claim(10, holder="me")) == 1


def test_the_queue_file_may_vanish_while_in_use(state, tmp_path):
    """E2, E111: `rm -rf .index` never fails a write; LSNs go on growing and no index counts as complete."""
    state.enqueue(noticed("a.md", "b.md"))
    state.note_scan("one", 0, queue=state._db.generation)
    assert state.set_ready("one")
    shutil.rmtree(tmp_path / ".index")
    assert state.enqueue(noticed("c.md")) == 3
    assert state.ready_for() == ""
    assert [change.path for change in state.claim(10, holder="me")] == ["c.md"]


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000], ids=["emptied", "overwritten"])
def test_a_damaged_queue_file_is_set_aside(state, tmp_path, damage):
    """Damage is met like deletion: the next use finds an empty queue, without an error."""
    state.enqueue(noticed("a.md"))
    file = tmp_path / ".index" / "sqlite" / "system.db"
    for side in ("-wal", "-shm"):
        file.with_name(file.name + side).unlink(missing_ok=True)
    file.write_bytes(damage)
    fresh = SqliteState(tmp_path / ".index")
    assert fresh.enqueue(noticed("b.md")) >= 1
    assert [change.path for change in fresh.claim(10, holder="me")] == ["b.md"]
    fresh.close()


def test_enqueue_never_raises_even_where_nothing_can_be_written(tmp_path, monkeypatch):
    """E84: a write is acknowledged by its file; a queue that cannot be written only asks for a scan."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the index directory should be")
    state = SqliteState(blocked)
    assert state.enqueue(noticed("a.md")) == 0
    assert state.take_lost()
    assert not state.take_lost()
    tries: list[float] = []
    monkeypatch.setattr("cairn.engines.database.time.sleep", tries.append)
    assert state.enqueue(noticed("b.md")) == 0
    assert sum(tries) < 0.5, "once given up, it is not waited for each time"
    state.close()


def test_many_threads_and_two_handles_queue_without_a_lock_error(tmp_path):
    """Design 6: "database is locked" is never shown."""
    handles = [SqliteState(tmp_path), SqliteState(tmp_path)]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(40):
                handles[number % 2].enqueue(noticed(f"{number}-{step}.md"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert handles[0].counts().pending == 320
    assert handles[0].last_lsn() == 320
    for handle in handles:
        handle.close()


def test_a_batch_of_changes_is_one_transaction(state):
    """The queue is never the slow part: 5,000 changes in, claimed and done cost one commit a batch."""
    commits: list[str] = []
    write = state._db.write
    state._db.write = lambda change, **more: commits.append(change.__name__) or write(change, **more)
    for start in range(0, 5000, 100):
        state.enqueue(noticed(*(f"{start + n}.md" for n in range(100))))
    while claimed := state.claim(200, holder="me"):
        state.finish(claimed, holder="me", seen={})
    assert state.counts().done == 5000
    assert len(commits) <= 50 + 26 + 25


def test_removed_files_are_forgotten_after_a_day(state, clock):
    """The queue does not grow with every file that ever was: a removal that is indexed goes after a day."""
    state.enqueue(noticed("gone.md", change_type="deleted") + noticed("kept.md"))
    claimed = state.claim(10, holder="me")
    state.finish(claimed, holder="me", seen={"gone.md": None, "kept.md": (1.0, 1)})
    state.maintain()
    both = ["gone.md", "kept.md"]
    assert set(state.known(both)) == {"gone.md", "kept.md"}
    clock.forward(25 * 3600)
    state.maintain()
    assert set(state.known(both)) == {"kept.md"}
    assert state.last_lsn() == 2


def test_of_many_removed_files_the_earliest_are_forgotten_at_once(state, monkeypatch):
    """A queue that sees thousands of removals an hour stays small without waiting for their day."""
    monkeypatch.setattr(changes, "TOMBSTONES_KEPT", 3)
    names = [f"gone-{n}.md" for n in range(5)]
    state.enqueue(noticed(*names, change_type="deleted") + noticed("kept.md"))
    state.finish(state.claim(10, holder="me"), holder="me", seen=dict.fromkeys(names) | {"kept.md": (1.0, 1)})
    state.enqueue(noticed("waits.md", change_type="deleted"))
    state.maintain()
    assert set(state.known([*names, "kept.md", "waits.md"])) == {*names[2:], "kept.md", "waits.md"}


def _counter(path: Path) -> Database:
    return Database(path, "CREATE TABLE told(word TEXT)", version=1)


def test_a_file_that_is_closed_lets_those_finish_who_read_it(tmp_path):
    """A thread that outlives the memory gets its answer, then a refusal; nothing is closed in its hands."""
    file = _counter(tmp_path / "told.db")
    file.write(lambda db: db.execute("INSERT INTO told VALUES ('kept')"))
    began, closed, answers = threading.Event(), threading.Event(), []

    def ask(db):
        began.set()
        closed.wait(LONG)
        return db.execute("SELECT word FROM told").fetchone()

    def read():
        answers.append(file.read(ask))
        with pytest.raises(Unavailable, match="shut down"):
            file.read(ask)

    reading = threading.Thread(target=read)
    reading.start()
    assert began.wait(LONG)
    file.close()
    closed.set()
    reading.join()
    assert answers == [("kept",)]


def _once_after(monkeypatch, statement, act):
    """Let `act` happen right after some connection has run `statement` for the first time."""
    connect, waiting = sqlite3.connect, [act]

    def watched(*args, factory=sqlite3.Connection, **more):
        class Watched(factory):
            def execute(self, sql, *given):
                found = super().execute(sql, *given)
                if sql != statement or not waiting:
                    return found
                row = found.fetchone()
                found.close()
                waiting.pop()()
                return SimpleNamespace(fetchone=lambda: row)

        return connect(*args, factory=Watched, **more)

    monkeypatch.setattr(sqlite3, "connect", watched)


def test_two_who_make_the_file_at_once_agree_on_it(tmp_path, monkeypatch):
    """The guard lies in the folder that may vanish, so both may believe that they are the first."""
    path = tmp_path / "sqlite" / "told.db"
    first, second = _counter(path), _counter(path)

    def meanwhile():
        (path.parent / ".opening").unlink()
        second.write(lambda db: db.execute("INSERT INTO told VALUES ('second')"))

    _once_after(monkeypatch, "PRAGMA user_version", meanwhile)
    first.write(lambda db: db.execute("INSERT INTO told VALUES ('first')"))
    assert second.read(lambda db: db.execute("SELECT count(*) FROM told").fetchone()) == (2,)
    assert first.generation == second.generation
    first.close()
    second.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_not_taken_for_the_new_one(tmp_path, monkeypatch):
    """Whoever wrote into the old file, which has no name any more, would be heard by nobody."""
    path = tmp_path / "sqlite" / "told.db"
    first, second = _counter(path), _counter(path)

    def meanwhile():
        shutil.rmtree(path.parent)
        assert second.generation

    _once_after(monkeypatch, "SELECT generation FROM birth", meanwhile)
    first.write(lambda db: db.execute("INSERT INTO told VALUES ('first')"))
    assert second.read(lambda db: db.execute("SELECT word FROM told").fetchall()) == [("first",)]
    first.close()
    second.close()


@pytest.mark.parametrize("where", ["told.db", "told.db-wal", ".opening"])
@pytest.mark.parametrize("what", ["link", "dangling", "loop", "pipe", "folder"])
def test_what_stands_in_a_files_place_is_taken_away_not_followed(tmp_path, where, what):
    """A link would have us write into somebody's database, or make one elsewhere; a pipe or a folder would stop us."""
    theirs = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(theirs)) as db:
        db.execute("CREATE TABLE mine(x)")
    before = theirs.read_bytes()
    at = tmp_path / "sqlite" / where
    at.parent.mkdir()
    if what == "pipe":
        os.mkfifo(at)
    elif what == "folder":
        at.mkdir()
    else:
        at.symlink_to({"link": theirs, "dangling": tmp_path / "new.db", "loop": at}[what])
    counter = _counter(tmp_path / "sqlite" / "told.db")
    counter.write(lambda db: db.execute("INSERT INTO told VALUES ('first')"))
    assert counter.read(lambda db: db.execute("SELECT word FROM told").fetchall()) == [("first",)]
    counter.close()
    assert theirs.read_bytes() == before and sorted(one.name for one in tmp_path.iterdir()) == [
        "sqlite",
        "theirs.db",
    ]


def test_a_folder_of_the_index_that_leads_elsewhere_is_made_anew(tmp_path):
    """Nothing is written where it leads, and what is there stays."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "told.db").write_bytes(b"mine")
    (tmp_path / "sqlite").symlink_to(theirs)
    counter = _counter(tmp_path / "sqlite" / "told.db")
    counter.write(lambda db: db.execute("INSERT INTO told VALUES ('first')"))
    counter.close()
    assert [(one.name, one.read_bytes()) for one in theirs.iterdir()] == [("told.db", b"mine")]


def test_a_reader_waits_for_its_change_though_the_path_is_queued_again(state):
    """P4: an LSN that was given is indexed before a reader who waits for it goes on, however busy its file is."""
    mine = state.enqueue(noticed("a.md"))
    state.enqueue(noticed("a.md"))
    assert state.waiting(mine)
    assert state.counts().applied_lsn < mine
    [claim] = state.claim(10, holder="me")
    later = state.enqueue(noticed("a.md"))
    assert state.waiting(mine), "read perhaps, but not indexed yet"
    state.enqueue(noticed("a.md"))
    assert state.finish([claim], holder="me", seen={}) == 0
    assert not state.waiting(mine), "what was queued before the claim is indexed, though more has come"
    assert state.waiting(later)
    assert state.counts().applied_lsn == later - 1
    assert state.finish(state.claim(10, holder="me"), holder="me", seen={}) == 1
    assert not state.waiting()
    assert state.counts().applied_lsn == state.last_lsn()


def test_an_index_is_not_complete_while_a_file_of_its_scan_waits_again(state):
    """A file of the scan that is queued anew before it was read gets another place, and is still to be read."""
    lsn = state.enqueue(noticed("a.md", "b.md"))
    state.note_scan("one", lsn, queue=state._db.generation)
    state.enqueue(noticed("a.md"))
    [b, _a] = state.claim(10, holder="me")
    state.finish([b], holder="me", seen={})
    assert not state.set_ready("one")
    state.finish([_a], holder="me", seen={})
    assert not state.set_ready("another"), "no scan was made for it"
    assert state.set_ready("one")
    assert state.ready_for() == "one"


def test_a_connection_that_never_opened_ends_quietly(tmp_path):
    """A file that cannot be opened (its folder goes away just now) is an error to the caller, and no second one later."""
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(tmp_path / "gone" / "x.db", factory=_Connection)
    gc.collect()


def test_within_one_look_a_thread_reads_one_file_and_sees_behind_it_that_it_is_gone(tmp_path):
    """What a question reads is of one file, though that vanishes meanwhile; another thread and a write see the new one."""
    db = Database(tmp_path / "a.db", "CREATE TABLE said(word TEXT)", version=1)
    words = "SELECT word FROM said"
    with contextlib.closing(db):
        db.write(lambda one: one.execute("INSERT INTO said VALUES ('old')"))
        before = db.generation
        with db.one_look():
            assert db.read(lambda one: one.execute(words).fetchall()) == [("old",)]
            assert [db.kept("key", lambda made=made: made) for made in (1, 2)] == [1, 1]
            for file in tmp_path.glob("a.db*"):
                file.unlink()
            assert db.read(lambda one: one.execute(words).fetchall()) == [("old",)]
        assert db.kept("key", lambda: 2) == 2
        assert db.read(lambda one: one.execute(words).fetchall()) == []
        assert db.generation != before
        with db.one_look():
            db.read(lambda one: one.execute(words).fetchall())
            for file in tmp_path.glob("a.db*"):
                file.unlink()
            db.write(lambda one: one.execute("INSERT INTO said VALUES ('new')"))
            assert db.read(lambda one: one.execute(words).fetchall()) == [("new",)]


def test_another_programs_database_is_set_aside_whole(tmp_path):
    """A file with tables and without our mark is kept under another name, and ours is made beside it."""
    path = tmp_path / "system.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE md_change_state (path TEXT)")
        db.execute("INSERT INTO md_change_state VALUES ('theirs')")
        db.commit()
    ours = Database(path, "CREATE TABLE md_change_state (lsn INTEGER)", version=7)
    ours.write(lambda db: db.execute("INSERT INTO md_change_state VALUES (1)"))
    assert ours.read(lambda db: db.execute("SELECT lsn FROM md_change_state").fetchall()) == [(1,)]
    ours.close()
    with contextlib.closing(sqlite3.connect(f"{path}.foreign")) as db:
        assert db.execute("SELECT path FROM md_change_state").fetchall() == [("theirs",)]


def test_a_newer_schema_makes_the_file_anew_without_a_warning(tmp_path, caplog):
    """A new version of ours is no trouble that a person has to read of, and nothing is called damaged; a damaged file is."""
    path = tmp_path / "a.db"
    caplog.set_level("INFO", logger="cairn")
    for version in (7, 8):
        made = Database(path, "CREATE TABLE said (words TEXT)", version=version)
        assert made.read(lambda db: db.execute("SELECT * FROM said").fetchall()) == []
        made.close()
    assert [one for one in caplog.records if one.levelname == "WARNING"] == []
    assert "a.db is of another version of Cairn; it is made anew." in caplog.text
    assert not list(tmp_path.glob("*.damaged"))
    path.write_bytes(b"garbage" * 1000)
    made = Database(path, "CREATE TABLE said (words TEXT)", version=8)
    assert made.read(lambda db: db.execute("SELECT * FROM said").fetchall()) == []
    made.close()
    assert "a.db was set aside as a.db.damaged" in caplog.text


def test_a_job_queue_made_anew_says_so_until_its_work_is_found(tmp_path):
    """Also to a process that did not make it; the mark is in the file."""
    maker, other = SqliteJobs(tmp_path), SqliteJobs(tmp_path)
    assert maker.is_new and other.is_new
    maker.set_found(now=1.0)
    assert not maker.is_new and not other.is_new
    maker.close()
    other.close()


def test_a_database_that_the_system_refuses_says_what_to_do(tmp_path, monkeypatch):
    """On a read-only file system, for one: the file, the trouble and the next step, not the number of an error."""
    counter = _counter(tmp_path / "sqlite" / "told.db")

    def refused(*_given):
        raise OSError(errno.EROFS, "Read-only file system", "x/.opening")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(
        Unavailable, match=r"told\.db cannot be used: the file system is read-only; make it writable"
    ):
        counter.write(lambda db: db.execute("INSERT INTO told VALUES ('first')"))


def test_what_is_remembered_is_read_again_once_anybody_has_committed(tmp_path):
    """One look at the file answers for what nobody changed; a thread that has not looked yet looks for itself."""
    path, reads = tmp_path / "sqlite" / "told.db", []
    ours, theirs = _counter(path), _counter(path)
    remembered: Remembered[list[str]] = Remembered()

    def words() -> list[str]:
        return remembered.get(ours, "words", read)

    def read(last: list[str] | None) -> list[str]:
        reads.append(threading.current_thread().name)
        found = ours.read(lambda db: [row[0] for row in db.execute("SELECT word FROM told")])
        return last if last is not None and found == last else found

    def elsewhere() -> list[str]:
        with ThreadPoolExecutor(1, thread_name_prefix="other") as pool:
            return pool.submit(words).result()

    first = words()
    assert first == [] and words() is first and len(reads) == 1
    assert elsewhere() == [] and len(reads) == 2, "each thread has a connection of its own"
    assert words() == [] and len(reads) == 2
    theirs.write(lambda db: db.execute("INSERT INTO told VALUES ('one')"))
    assert elsewhere() == ["one"] and len(reads) == 3
    assert words() == ["one"] and len(reads) == 4, (
        "what another thread read after a change is not ours to trust"
    )
    ours.close()
    theirs.close()


def test_threads_that_find_at_once_that_nothing_changed_look_once_each(tmp_path):
    """What one notes while another reads stays noted: else they would all look again, and each undo what the last one noted."""
    path, reads = tmp_path / "sqlite" / "told.db", []
    ours, theirs = _counter(path), _counter(path)
    remembered: Remembered[list[str]] = Remembered()

    def words(meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        def read(last: list[str] | None) -> list[str]:
            reads.append(threading.current_thread().name)
            found = ours.read(lambda db: [row[0] for row in db.execute("SELECT word FROM told")])
            meanwhile()
            return last if last is not None and found == last else found

        return remembered.get(ours, "words", read)

    with ThreadPoolExecutor(1) as other:
        first = words()
        assert other.submit(words).result() is first
        theirs.write(lambda db: db.execute("CREATE TABLE beside(word TEXT)"))
        reads.clear()
        assert words(lambda: other.submit(words).result()) is first
        assert len(reads) == 2
        assert words() is other.submit(words).result() is first
        assert len(reads) == 2
    ours.close()
    theirs.close()
