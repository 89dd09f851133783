"""Many machines on one bucket and one database: real PostgreSQL, a real S3 server, real processes.

`make cluster` installs what this needs and runs it. Elsewhere it is skipped, and says what is missing.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from tools import cluster as many

import cairn
from cairn.engines import postgres
from cairn.engines.cluster import ClusterBackend
from cairn.engines.embedders import HashingEmbedder
from cairn.engines.locks import FileLocks
from cairn.engines.objects import ObjectBackend
from cairn.engines.postgres import Postgres, PostgresJournals, PostgresLocks
from cairn.engines.postgres_jobs import PostgresJobs
from cairn.engines.postgres_state import PostgresState
from cairn.engines.shared_vectors import SharedVectors
from cairn.errors import Invalid, Misconfigured, StorageFailed, StorageSelectionError, Unavailable
from cairn.seams import Locator, Noticed, SystemClock
from cairn.strategies import engine as strategies
from cairn.surfaces.cli import main
from cairn.testing import (
    EMBEDDER_CHECKS,
    JOBS_CHECKS,
    JOURNAL_CHECKS,
    LOCK_CHECKS,
    STATE_CHECKS,
    run_conformance,
)
from cairn.testing.suite import in_threads, run_checks
from cairn.types import Queued, Scope, Space, StrategyAsk
from tests.cluster import planted
from tests.surfaces.served import serving
from tests.surfaces.test_scenario import (
    ENV,
    run_cli,
    through_async,
    through_blocking,
    through_cli,
    through_http,
)
from tests.waiting import LONG, until

pytestmark = [
    pytest.mark.skipif(bool(many.missing()), reason=f"make cluster brings what is missing: {many.missing()}"),
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture
def options(engines):
    """The settings of a new root on both engines."""
    database, store, _ = engines
    return {
        "storage__backend": "s3",
        "storage__url": f"s3://cairn/root-{random.randrange(10**9)}",
        "storage__endpoint": store.endpoint,
        "storage__database": database.url,
        "embedding__provider": "none",
    }


def bucket(store):
    from obstore.store import S3Store

    return S3Store(
        "cairn",
        prefix=f"suite-{random.randrange(10**9)}",
        endpoint=store.endpoint,
        client_options={"allow_http": True, "timeout": "10s"},
    )


def test_the_shipped_suites_pass_over_both_engines(engines, tmp_path):
    """Storage on objects alone, storage with journals in PostgreSQL, journals, locks, and both queues."""
    database, store, _ = engines
    opened = []

    def rows():
        opened.append(Postgres(database.url, f"suite-{random.randrange(10**9)}", connections=8))
        return opened[-1]

    assert "append_many_threads" in run_conformance(lambda: ObjectBackend(bucket(store))).extensions
    assert "append" in run_conformance(lambda: ClusterBackend(bucket(store), rows())).extensions
    run_checks(JOURNAL_CHECKS, lambda: PostgresJournals(rows()))

    def locks():
        opened.append(PostgresLocks(rows(), FileLocks(tmp_path / f"{len(opened)}")))
        return opened[-1]

    run_checks(LOCK_CHECKS, locks)

    def jobs():
        opened.append(PostgresJobs(rows(), SystemClock()))
        return opened[-1]

    run_checks(JOBS_CHECKS, jobs)
    queues = itertools.count()
    run_checks(STATE_CHECKS, lambda: PostgresState(rows(), tmp_path / f"index{next(queues)}"))
    for one in reversed(opened):
        one.close()


def test_whoever_claims_a_change_keeps_nobody_waiting_and_a_queue_that_nobody_uses_is_dropped(
    engines, tmp_path
):
    """Two processes on one index and another index on the same root, with a claim that is not committed yet."""
    database, _, _ = engines
    with closing(Postgres(database.url, f"root-{random.randrange(10**9)}", connections=4)) as rows:
        one, other = PostgresState(rows, tmp_path / "index"), PostgresState(rows, tmp_path / "index")
        elsewhere = PostgresState(rows, tmp_path / "elsewhere")
        changes = [Noticed(path, "episode", "modified", 1.0) for path in ("a", "b", "a")]
        assert one.enqueue(changes) == elsewhere.enqueue(changes) == 2, (
            "a path is in it once, an index has its own"
        )
        with rows.connection() as held, held.transaction():
            held.execute("SELECT FROM cairn_changes WHERE root = %s AND path = 'a' FOR UPDATE", [rows.root])
            assert [change.path for change in other.claim(9, holder="other")] == ["b"]
        assert [change.path for change in one.claim(9, holder="one")] == ["a"]
        assert elsewhere.waiting() == 2, "what is done here is not done there"
        shutil.rmtree(tmp_path / "elsewhere")
        assert elsewhere.counts().pending == 0, "with the folder of an index its queue is another"
        kept = "SELECT count(DISTINCT queue) FROM cairn_changes WHERE root = %(root)s"
        assert rows.ask(kept) == [(2,)]
        rows.ask(
            "UPDATE cairn_queues SET used = used - interval '8 days' WHERE root = %(root)s RETURNING true"
        )
        one.maintain()
        assert rows.ask(kept) == [(1,)], "its own is used, whatever it said before"


def test_servers_work_with_their_queues_in_the_database(engines, options, tmp_path):
    """What one says the other finds; an index that vanishes is made anew; what waits is seen in one place."""
    database, _, _ = engines
    chosen = options | {"storage__queue": "database"}
    with (
        cairn.open_blocking(tmp_path / "one", **chosen) as one,
        cairn.open_blocking(tmp_path / "other", **chosen) as other,
    ):
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        lsn = one.flush("s").lsn
        assert finds(one, "Zaphodine", min_lsn=lsn) and finds(other, "Zaphodine", consistency="strong")
        assert other.status()["engines"]["queue"] == "PostgresState"
        with closing(Postgres(database.url, options["storage__url"], connections=1)) as rows:
            told = rows.ask("SELECT queue, count(*) FROM cairn_changes WHERE root = %(root)s GROUP BY 1")
        assert len(told) == 2 and all(count for _, count in told)
        shutil.rmtree(tmp_path / "other" / ".index")
        assert finds(other, "Zaphodine", consistency="strong")
        other.add("t", [message("The quokka is called Mirabella.", 1)])
        other.flush("t")
        assert finds(other, "Mirabella", consistency="strong") and finds(
            one, "Mirabella", consistency="strong"
        )
        until(lambda: other.status()["index"]["state"] == "fresh")
    with pytest.raises(Misconfigured, match=r"storage\.queue"):
        cairn.open_blocking(tmp_path / "three", storage__queue="database", embedding__provider="none")


def test_machines_make_the_same_folder_at_once(engines):
    """One that saw no folder, and finds it there a moment later, goes on: servers start together, an owner is new to both."""
    store = bucket(engines[1])
    other = ObjectBackend(store)

    class Late(ObjectBackend):
        def _is_folder(self, key: str) -> bool:
            found = super()._is_folder(key)
            if not found:
                other.mkdir(Locator(key))
            return found

    Late(store).mkdir(Locator("default_app/default_project/users/ann"))
    with pytest.raises(Invalid, match="a folder is there"):
        other.write(Locator("default_app/default_project/users/ann"), "no")


def test_looking_for_silent_sessions_and_new_cells_costs_the_same_however_many_there_are(
    options, tmp_path, monkeypatch
):
    """Questions to the database are counted; a session is not closed by a look that was taken before somebody spoke."""
    asked: list[str] = []
    ask = Postgres.ask

    def counted(self, query, **values):
        asked.append(query)
        return ask(self, query, **values)

    with cairn.open_blocking(tmp_path / "one", background=False, **options) as one:
        capture, engine = one.parts.capture, one.parts.engine
        costs, later = [], -1.0  # as if a minute had gone by since the last word
        for upto in (3, 12):
            for n in range(upto):
                one.add(f"s{n}", [message(f"I bought trombone{upto}.", n)])
                one.flush(f"s{n}")
            capture.close_silent(later)
            seen = engine._cells.events({})[1]
            with monkeypatch.context() as counting:
                counting.setattr(Postgres, "ask", counted)
                asked.clear()
                assert capture.close_silent(later) == 0 and engine._cells.events(seen) == ([], {})
                costs.append(len(asked))
            assert len(seen) == upto
        assert costs[0] == costs[1] < 12
        one.add("open", [message("A word.", 1)])
        logs = list(capture._logs())
        monkeypatch.setattr(capture, "_logs", lambda: [(*log[:3], 0.0) for log in logs])
        assert capture.close_silent(1.0) == 0, "it was written to since"


def message(text: str, n: int = 0) -> dict[str, object]:
    return many.said(text, 1_780_000_000_000 + n)


def finds(memory, words: str, **more: object) -> bool:
    """Whether a search has these words. One that says that it cannot look in time is asked again, as it says."""
    answers: list[str] = []

    def is_answered() -> bool:
        with suppress(Unavailable):
            found = memory.search(words, user_id="alice", method="keyword", evidence=3, **more)
            answers.append(str(found.as_data()))
        return bool(answers)

    until(is_answered)
    return words in answers[0]


def test_what_one_machine_writes_another_has(engines, options, tmp_path):
    """Strong reads see it at once, others within moments; the bucket alone is a whole root; forget reaches all."""
    with (
        cairn.open_blocking(tmp_path / "one", **options) as one,
        cairn.open_blocking(tmp_path / "two", **options) as two,
    ):
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        two.add("s", [message("She likes anchovies.", 1)])  # the same open session, from elsewhere
        assert one.flush("s").status == "extracted"
        assert finds(two, "Zaphodine", consistency="strong")
        assert finds(two, "anchovies", consistency="strong")
        two.add("t", [message("I work as a plumber in Porto.", 2)])
        two.flush("t")
        until(lambda: finds(one, "plumber"))  # nobody asked for it strongly
        assert one.remember("We deploy with make ship.").accepted
        assert two.remember("We deploy with make ship.").deduped
        assert one.parts.storage.archive()
        with cairn.open_blocking(tmp_path / "alone", **{**options, "storage__database": ""}) as alone:
            assert finds(alone, "anchovies", consistency="strong")
            assert alone.parts.storage.read(Locator("default_app/default_project/sessions/t.jsonl"))
        one.memories.forget(words=["Zaphodine"])
        assert not finds(two, "Zaphodine", consistency="strong")
        for key, _, _ in ObjectBackend.scan(one.parts.storage):
            assert "Zaphodine" not in ObjectBackend.read(one.parts.storage, Locator(key)), key


def test_a_person_is_forgotten_by_every_server(engines, options, tmp_path):
    """Nothing names them in the bucket or the database, and soon no byte of another server's disk does: neither its index
    nor its audit log. The receipt says so.
    """
    env = {
        **many.KEYS,
        **{f"CAIRN_{name.upper()}": str(value) for name, value in options.items()},
        "CAIRN_SERVER__ADVERTISE": "none",
    }
    name, word = "annabel_lee", "Zaphodine"
    with (
        serving(tmp_path / "one", env=env) as one,
        serving(tmp_path / "two", env=env) as two,
    ):
        told = {**message(f"I adopted a heron called {word}."), "sender_id": name}
        other = {**message("It rains in Porto.", 1), "sender_id": "bob"}
        for server, session, said in ((one, "s-alone", told), (two, "s-bob", other)):
            assert server.post("memory/add", {"session_id": session, "messages": [said]})[0] == 200
            assert server.post("memory/flush", {"session_id": session})[0] == 200
        question = {"user_id": name, "query": word, "method": "keyword", "consistency": "strong"}
        assert word in str(two.post("memory/search", question))
        status, answer = one.post("person/forget", {"user_id": name})
        assert (status, answer["data"]["complete"]) == (200, True)
        assert "other servers" in [stays["where"] for stays in answer["data"]["stays"]]

        def holds(machine):
            files = [at for at in (tmp_path / machine).rglob("*") if at.is_file()]
            return [
                at.name
                for at in files
                if any(one.encode() in at.read_bytes() for one in (name, word, "s-alone"))
            ]

        assert holds("one") == []
        until(lambda: holds("two") == [], "the other server forgets, too")
        assert "annabel" not in str(two.post("memory/search", question))
        assert "rains" in str(two.post("memory/search", {**question, "user_id": "bob", "query": "rains"}))
    store = ClusterBackend.from_settings(cairn.config.load(tmp_path / "two", **options))
    with closing(store):
        keys = [key for page in store._store.list() for key in (str(one["path"]) for one in page)]
        assert keys and not [key for key in keys if name in key or "s-alone" in key]
        store.database.ask("UPDATE cairn_notes SET changed = changed - interval '2 hours' RETURNING true")
        store.archive()
    with psycopg.connect(options["storage__database"]) as rows:
        for (table,) in rows.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall():
            found = rows.execute(
                f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s OR t::text LIKE %s',
                (f"%{name}%", f"%{word}%"),
            )
            assert found.fetchone() == (0,), table


def test_machines_take_turns_and_tell_each_other(options, tmp_path):
    """Open talk is indexed elsewhere once somebody asks there; what one finds edited by an S3 tool, the others hear of."""
    options |= {"index__scan_seconds": 3600}
    with (
        cairn.open_blocking(tmp_path / "one", **options) as one,
        cairn.open_blocking(tmp_path / "two", **options) as two,
    ):
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        until(lambda: finds(two, "Zaphodine"))
        one.flush("s")
        until(lambda: "Zaphodine" in str(two.get(user_id="alice", memory_type="episode").as_data()))
        [note] = one.parts.storage.list(Locator(f"{many.SPACE}/users/alice/episodes"))
        edited = one.parts.storage.read(note).replace("Zaphodine", "Trilliane")
        ObjectBackend.write(one.parts.storage, note, edited)  # as a tool does, which tells nobody
        one.parts.indexer.scan_in_turn(0.0)
        until(lambda: "Trilliane" in str(two.get(user_id="alice", memory_type="episode").as_data()))
        assert [memory.parts.storage.turn("a chore", 60.0) for memory in (two, one, two)] == [
            True,
            False,
            False,
        ]
        # A model is asked about a cell by one of them; each indexes by itself.
        first, second = one.parts.locks, two.parts.locks
        with first.lease("cell-007") as mine, second.lease("cell-007") as also:
            assert (mine, also) == (True, False)
        with (
            second.lease("cell-007") as mine,
            PostgresLocks(two.parts.storage.database, FileLocks(tmp_path / "three")).lease("indexer") as also,
        ):
            assert mine and also


def test_a_read_anywhere_sees_a_write_anywhere_or_says_that_it_cannot(engines):
    """Strong, or by the change that another server gave: found at once. With the store away it is refused, not guessed."""
    database, store, folder = engines
    with many.cluster(database, store, folder, 0) as world:
        one = world.add(CAIRN_SERVER__ADVERTISE="none")
        # It hears of nothing by itself: what it finds, the question made it look for.
        two = world.add(
            linked=True,
            CAIRN_INDEX__WATCH="false",
            CAIRN_INDEX__SCAN_SECONDS="3600",
            CAIRN_SERVER__ADVERTISE="none",
        )

        def ask(machine, what, **body):
            return machine.call("POST", f"/api/v1/memory/{what}", body)

        def found(words, **more):
            status, answer = ask(two, "search", user_id="alice", query=words, method="keyword", **more)
            return status, status == 200 and words in str(answer["data"]["episodes"])

        def told(session, text):
            assert ask(one, "add", session_id=session, messages=[message(text)])[0] == 200
            return ask(one, "flush", session_id=session)[1]["data"]["lsn"]

        told("s", "I adopted a heron called Zaphodine.")
        assert found("Zaphodine") == (200, False)
        assert found("Zaphodine", consistency="strong") == (200, True)
        for n in range(3):  # its own changes carry it past the other's numbers
            ask(two, "add", session_id=f"own{n}", messages=[message("Hello.")])
            last = ask(two, "flush", session_id=f"own{n}")[1]["data"]["lsn"]
        lsn = told("t", "I work as a plumber in Porto.")
        assert lsn <= last and found("plumber") == (200, False)
        assert found("plumber", min_lsn=lsn) == (200, True)
        told("u", "I bought a trombone.")
        two.links["store"].set("cut")
        assert found("trombone", consistency="strong") == found("trombone", min_lsn=lsn) == (503, False)
        assert found("plumber") == (200, True)
        two.links["store"].set("whole")
        # Those who ask within a second of one who waited in vain are refused, too.
        until(lambda: found("trombone", min_lsn=lsn) == (200, True))


def test_a_machine_does_what_another_did_not_live_to_do(options, tmp_path, monkeypatch):
    """What follows from an episode is found and done by any machine, once, also where the one that wrote it is gone."""
    monkeypatch.setattr(strategies, "LOOK_AROUND_SECONDS", 0.0)
    with cairn.open_blocking(tmp_path / "two", **options) as two:
        with cairn.open_blocking(tmp_path / "one", background=False, **options) as one:
            one.add("s", [message("I work as a plumber in Porto.")])
            one.flush("s")
        facts = Locator(f"{many.SPACE}/users/alice/.atomic_facts")
        until(lambda: two.parts.storage.exists(facts))
        [note] = two.parts.storage.list(facts)
        until(lambda: "plumber" in two.parts.storage.read(note))


def test_an_owner_is_worked_on_by_one_machine_and_a_late_one_ends_nothing(engines):
    """Two machines share the owners; the work of one that is gone is another's; what the first ends then is not ended."""
    database, _, _ = engines
    shared = Postgres(database.url, f"jobs-{random.randrange(10**9)}")
    fleeting = PostgresJobs(
        shared, SystemClock(), lease_seconds=0.001
    )  # it lapses at once, and is never renewed in time
    lasting, third = (PostgresJobs(shared, SystemClock()) for _ in range(2))

    def asked(owner, n):
        return Queued(StrategyAsk("facts", f"{owner}{n}", Scope(Space(), "user", owner)), owner, False, 0.0)

    def claimed(jobs, limit):
        return jobs.claim(["facts"], limit, now=1.0, far=1e12)

    lasting.enqueue([asked(owner, n) for owner in ("ann", "bob") for n in range(3)], now=1.0)
    mine = claimed(lasting, 1)
    other = claimed(third, 9)
    assert {job.ask.scope.owner for job in (*mine, *other)} == {"ann", "bob"} and len(other) == 3
    assert {job.ask.scope.owner for job in mine}.isdisjoint(job.ask.scope.owner for job in other)
    assert third.revive() == 3 and lasting.revive() == 1  # each its own
    late = claimed(fleeting, 9)
    until(lambda: lasting.revive() == len(late) == 6)
    again = claimed(lasting, 9)
    assert {job.id for job in again} == {job.id for job in late}
    fleeting.finish([(job.id, "done", "too late", ()) for job in late], now=1.0)
    assert lasting.counts() == {"facts": {"running": 6}}
    lasting.finish([(job.id, "done", "", ()) for job in again], now=1.0)
    assert third.counts() == {"facts": {"done": 6}}
    for one in (fleeting, lasting, third, shared):
        one.close()


class Counting(HashingEmbedder):
    """Counts the texts it was given; may fail or hold on at the first."""

    def __init__(self):
        super().__init__(64)
        self.texts: list[str] = []
        self.before = lambda: None

    def embed(self, texts):
        self.before()
        self.texts += texts
        return super().embed(texts)


def test_a_text_is_embedded_once_by_all_machines(engines):
    """Machines with the same texts share them; the claims of one that failed or died are free; a late one is not heard."""
    database, _, _ = engines
    shared = Postgres(database.url, f"vectors-{random.randrange(10**9)}")
    run_checks(EMBEDDER_CHECKS, lambda: SharedVectors(HashingEmbedder(64), shared))
    texts = [f"The heron number {n} nests by the weir." for n in range(200)]
    expected = HashingEmbedder(64).embed(texts)
    made = [Counting() for _ in range(3)]
    got: dict[int, Any] = {}

    def work(who: int) -> None:
        got[who] = SharedVectors(made[who], shared).embed(texts)

    in_threads(work, range(3))
    assert sorted(text for one in made for text in one.texts) == sorted(texts)
    assert all(abs(got[who] - expected).max() < 0.01 for who in range(3))

    def fail() -> None:
        raise Unavailable("the model is away")

    broken, whole, slow = (Counting() for _ in range(3))
    broken.before = fail
    with pytest.raises(Unavailable, match="the model is away"):
        SharedVectors(broken, shared).embed(["a new text"])
    SharedVectors(whole, shared).embed(["a new text"])  # nobody waits for a lease
    # One that takes longer than its lease: another makes it meanwhile, and what the first says then is not taken.
    slow.before = lambda: SharedVectors(whole, shared).embed(["a slow text"])
    SharedVectors(slow, shared, lease_seconds=0.0).embed(["a slow text"])
    assert (whole.texts, slow.texts) == (["a new text", "a slow text"], ["a slow text"])
    [[fence]] = shared.ask("SELECT max(fence) FROM cairn_vectors WHERE root = %(root)s")
    assert fence == 2
    shared.drop_vectors()
    assert shared.ask("SELECT FROM cairn_vectors WHERE root = %(root)s") == []
    shared.close()
    assert (
        abs(SharedVectors(whole, shared).embed(texts) - expected).max() < 0.01
    )  # without the database, its own


def test_a_new_machine_asks_from_the_command_line(options, tmp_path):
    """Nothing was prepared on it: the first look finds what others wrote, and an export is an ordinary root."""
    with cairn.open_blocking(tmp_path / "one", **options) as one:
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        one.flush("s")
    env = {f"CAIRN_{name.upper()}": value for name, value in options.items()}

    def cairn_says(*words: str, **more: str) -> str:
        command = [sys.executable, "-m", "cairn.surfaces.cli", *words]
        return subprocess.run(
            command, env={**os.environ, **more}, check=True, capture_output=True, text=True
        ).stdout

    new, copy = str(tmp_path / "new"), str(tmp_path / "copy")
    assert "Zaphodine" in cairn_says("--root", new, "search", "heron", "--user", "alice", **env)
    cairn_says("--root", new, "export", str(tmp_path / "all.tar.gz"), **env)
    cairn_says("--root", copy, "import", str(tmp_path / "all.tar.gz"))
    assert "Zaphodine" in cairn_says("--root", copy, "search", "heron", "--user", "alice")


def four_lines(root, options):
    """A machine's folder with the settings that a cluster takes."""
    root.mkdir()
    lines = [
        f'{name.removeprefix("storage__")} = "{value}"'
        for name, value in options.items()
        if "storage" in name
    ]
    (root / "cairn.toml").write_text("\n".join(["[storage]", *lines]) + "\n")
    return root


@pytest.mark.parametrize("tell", [through_async, through_blocking, through_cli, through_http])
def test_the_story_of_every_surface_ends_the_same_way_here(tell, options, tmp_path):
    """Four lines of `cairn.toml`, and what Python, the command line and HTTP tell has the outcome that it has in a folder."""
    tell(four_lines(tmp_path / "root", options))


def test_the_command_line_of_one_machine_works_beside_the_server_of_another(options, tmp_path):
    """What the command line writes on one machine, the running server on the other finds, and the other way round."""
    here, there = four_lines(tmp_path / "here", options), four_lines(tmp_path / "there", options)
    with serving(there, env=ENV) as server:
        run_cli(here, "add", "--session", "c", "--sender", "carol", "the gooseberry patch")
        run_cli(here, "flush", "--session", "c")
        ask = {"user_id": "carol", "query": "gooseberry", "method": "keyword", "consistency": "strong"}
        assert server.post("memory/search", ask)[1]["data"]["episodes"]
        server.post("memories", {"content": "We deploy with make ship."})
        assert "make ship" in str(run_cli(here, "find", "deploy"))


def test_a_token_holds_at_every_server(engines, options):
    """One that is added or revoked at a server holds at the others, at one that starts later, and after the database is lost."""
    database, store, folder = engines
    with many.cluster(database, store, folder, 2) as world:
        one, two = world.machines
        options |= {"storage__url": world.env["CAIRN_STORAGE__URL"]}
        with cairn.open_blocking(one.folder, background=False, **options) as memory:
            secret = memory.add_token("ops", "rw admin")["secret"]

        def ask(machine, method="GET", place="", body=None, token=secret):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return machine.call(method, f"/api/v1/tokens{place}", body, headers=headers)

        for machine in (one, two):
            until(lambda machine=machine: (ask(machine)[0], ask(machine, token="")[0]) == (200, 401))
        with psycopg.connect(database.url, autocommit=True) as rows:
            rows.execute("DELETE FROM cairn_tokens WHERE root = %s", [options["storage__url"]])
        three = world.add()
        until(lambda: (ask(three)[0], ask(three, token="")[0]) == (200, 401))
        spare = ask(two, "POST", body={"name": "spare", "rights": "rw admin"})[1]["data"]["secret"]
        until(lambda: ask(one, token=spare)[0] == 200)
        assert ask(one, "DELETE", "/ops")[0] == 200
        until(lambda: [ask(machine)[0] for machine in world.machines] == [401] * 3)
        assert ask(three, token=spare)[0] == 200


def test_a_memory_moves_to_a_bucket_and_back(engines, options, tmp_path, capsys):
    """A folder that serves becomes a bucket and a database; its notes are edited in a folder; it becomes a folder again."""
    plain = {"embedding__provider": "none", "background": False}
    bucket_at, database_at = options["storage__url"], options["storage__database"]
    more = ["--database", database_at, "--endpoint", options["storage__endpoint"], "--json"]

    def cairn_does(*words: str) -> dict[str, Any]:
        assert main([*words]) == 0
        return json.loads(capsys.readouterr().out)

    with cairn.open_blocking(tmp_path / "one", **plain) as one:
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        one.flush("s")
        first = cairn_does("move", str(tmp_path / "one"), bucket_at, *more)
        one.add("s", [message("She likes anchovies.", 1)])
    second = cairn_does("move", str(tmp_path / "one"), bucket_at, *more)
    assert (
        first["verified"] == first["files"] and second["verified"] == second["files"] > second["copied"] > 0
    )
    with cairn.open_blocking(tmp_path / "two", background=False, **options) as two:
        two.flush("s")
        assert finds(two, "Zaphodine", consistency="strong") and finds(two, "anchovies", consistency="strong")
        two.pull(str(tmp_path / "notes"))
        [note] = [at for at in (tmp_path / "notes").rglob("episodes/*.md") if "Zaphodine" in at.read_text()]
        note.write_text(note.read_text().replace("Zaphodine", "Trilliane"))
        assert len(two.push(str(tmp_path / "notes"))["written"]) == 1
        assert finds(two, "Trilliane", consistency="strong")
        two.remember("We deploy with make ship.")
        two.export_to(str(tmp_path / "exported"))
    # An export of a bucket is a root, and an export is brought into another bucket.
    other = {**options, "storage__url": f"{bucket_at}-other"}
    with cairn.open_blocking(tmp_path / "exported", **plain) as exported:
        assert finds(exported, "Trilliane", consistency="strong")
    with cairn.open_blocking(tmp_path / "four", background=False, **other) as four:
        four.import_from(str(tmp_path / "exported"))
        assert finds(four, "anchovies", consistency="strong")
    third = cairn_does("--root", str(tmp_path / "two"), "move", bucket_at, str(tmp_path / "three"), *more)
    assert third["verified"] == third["files"] >= second["files"]
    with cairn.open_blocking(tmp_path / "three", **plain) as three:
        assert finds(three, "Trilliane", consistency="strong") and finds(
            three, "anchovies", consistency="strong"
        )
    assert main(["move", str(tmp_path / "one"), bucket_at, *more]) == 4
    assert "was written to since the move" in capsys.readouterr().out


def rows_of(database, root, *tables):
    """What some tables of the database hold of a root: as a backup keeps it, and with nothing, as after a loss."""
    with psycopg.connect(database.url, autocommit=True) as line:
        kept = {
            name: line.execute(f"SELECT * FROM {name} WHERE root = %s", [root]).fetchall() for name in tables
        }

        def bring_back(held: dict[str, list[tuple[Any, ...]]]) -> None:
            with psycopg.connect(database.url, autocommit=True) as again:
                for name in tables:
                    again.execute(f"DELETE FROM {name} WHERE root = %s", [root])
                    for row in held.get(name, ()):
                        places = ", ".join(["%s"] * len(row))
                        again.execute(f"INSERT INTO {name} VALUES ({places})", row)

    return kept, bring_back


JOURNAL_TABLES = ("cairn_journals", "cairn_units", "cairn_archives")


def test_the_database_is_lost_and_read_back_from_the_bucket(engines, options, tmp_path, capsys):
    """All that an episode was made of is there again, and all before the last copy; what is missing is named word for word."""
    database, _, _ = engines
    root = options["storage__url"]
    with cairn.open_blocking(tmp_path / "one", background=False, **options) as one:
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        one.add("t", [message("The weir is closed.", 5)])
        one.parts.storage.archive()
        one.add("t", [message("Trilliane waits at the weir.", 6)])
        one.flush("s")  # its words go to the bucket with its episode
        assert finds(one, "Trilliane", consistency="strong")
        said = one.parts.storage.read(Locator(f"{many.SPACE}/sessions/s.jsonl"))
    rows_of(database, root, *JOURNAL_TABLES)[1]({})
    env = {f"CAIRN_{name.upper()}": value for name, value in options.items()}
    with pytest.MonkeyPatch.context() as set_here:
        for name, value in env.items():
            set_here.setenv(name, value)
        assert main(["--root", str(tmp_path / "one"), "restore", "database"]) == 1
        told = capsys.readouterr().out
        assert "read back" in told and "Trilliane waits at the weir." in told and "1 message." in told
        assert "heron" not in told and "is closed" not in told
    with cairn.open_blocking(tmp_path / "two", background=False, **options) as two:
        assert two.read_back()["missing"] == []  # this machine knew nothing
        assert said.startswith(two.parts.storage.read(Locator(f"{many.SPACE}/sessions/s.jsonl")))
        two.add("s", [message("She likes anchovies.", 1)])
        two.flush("s")
        assert finds(two, "Zaphodine", consistency="strong") and finds(two, "anchovies", consistency="strong")


def test_a_database_that_is_made_anew_below_a_server_is_named_with_what_to_do(engines, options, tmp_path):
    """Nothing is taken in that would begin a log again, and after a restart all is there."""
    database, _, _ = engines
    name = f"again{random.randrange(10**9)}"
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        chosen = options | {"storage__database": database.url.removesuffix("/cairn") + f"/{name}"}
        with cairn.open_blocking(tmp_path / "one", background=False, **chosen) as one:
            one.add("s", [message("I adopted a heron called Zaphodine.")])
            one.flush("s")
            one.parts.storage.archive()
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute(f"CREATE DATABASE {name}")

            def is_told() -> bool:  # first that connections ended, then what is gone
                with pytest.raises((Unavailable, StorageFailed)) as refused:
                    one.add("s", [message("She likes anchovies.", 1)])
                return "cairn restore database" in str(refused.value)

            until(is_told)
        with cairn.open_blocking(tmp_path / "one", background=False, **chosen) as again:
            again.add("s", [message("She likes anchovies.", 1)])
            again.flush("s")
            assert finds(again, "Zaphodine", consistency="strong")
            assert finds(again, "anchovies", consistency="strong")


def test_an_older_database_is_brought_up_to_the_bucket(engines, options, tmp_path):
    """One from a backup, or a replica that was behind: what the bucket has is not lost, nor what was added since."""
    database, _, _ = engines
    root = options["storage__url"]
    log = Locator(f"{many.SPACE}/sessions/s.jsonl")
    with cairn.open_blocking(tmp_path / "one", background=False, **options) as one:
        one.add("s", [message("I adopted a heron called Zaphodine.")])
        one.parts.storage.archive()
        kept, bring_back = rows_of(database, root, *JOURNAL_TABLES)
        one.add("s", [message("She likes anchovies.", 1)])
        one.add("t", [message("I bought a trombone.", 2)])
        one.parts.storage.archive()
        bring_back(kept)
    with cairn.open_blocking(tmp_path / "two", background=False, **options) as two:
        assert "anchovies" in two.parts.storage.read(log) and len(two.read_back()["journals"]) >= 2
        two.flush("s")
        assert finds(two, "anchovies", consistency="strong")
        bring_back(kept)  # while a server runs, which then goes on
        with cairn.open_blocking(tmp_path / "three", background=False, **options | {"storage__keep_days": 0}):
            pass
        again = two.parts.storage.read(log)
        assert again.count("anchovies") == again.count("Zaphodine") == 1


def test_a_silent_journal_leaves_the_database_and_reads_as_before(engines, options, tmp_path):
    """It is read, added to, forgotten in and copied as ever; without its object that is named; older servers are refused."""
    database, _, _ = engines
    with psycopg.connect(database.url, autocommit=True) as rows:
        rows.execute("CREATE DATABASE silent")
    options |= {
        "storage__database": database.url.removesuffix("/cairn") + "/silent",
        "storage__keep_days": 1e-9,
    }
    log = Locator(f"{many.SPACE}/sessions/s.jsonl")
    with (
        cairn.open_blocking(tmp_path / "one", background=False, **options) as one,
        psycopg.connect(options["storage__database"], autocommit=True) as rows,
    ):

        def held() -> list[tuple[int]]:
            query = "SELECT start FROM cairn_units WHERE key = %s ORDER BY start"
            return rows.execute(query, [log.key]).fetchall()

        one.add("s", [message("I adopted a heron called Zaphodine.")])
        one.add("s", [message("She likes anchovies.", 1)])
        before, journals = one.parts.storage.read(log), one.parts.journals
        one.parts.storage.archive()
        assert held()  # not in the first day: servers of before may still run
        rows.execute("UPDATE cairn_marks SET at = '-infinity' WHERE name = 'journals may leave'")
        one.parts.storage.archive()
        assert held() == [] and one.parts.storage.read(log) == before
        assert rows.execute("SELECT version FROM cairn_schema").fetchall() == [(postgres.SCHEMA,)]
        half = journals.append(log, ['{"t": "told", "cell": "mc_0"}'])
        assert held() == [(len(before),)] and journals.size(log) == half
        assert [*journals.read(log).lines][:-1] == before.splitlines()
        assert journals.read(log, len(before)).lines == ('{"t": "told", "cell": "mc_0"}',)
        with pytest.raises(cairn.Conflict):
            journals.read(log, 3)
        with cairn.open_blocking(tmp_path / "two", background=False, **options) as two:
            two.add("s", [message("Trilliane waits at the weir.", 2)])
            two.flush("s")
            assert all(finds(two, word, consistency="strong") for word in ("Zaphodine", "Trilliane"))
        one.parts.storage.archive()
        one.memories.forget(words=["anchovies"])
        assert "anchovies" not in one.parts.storage.read(log) and "Trilliane" in one.parts.storage.read(log)
        assert "anchovies" not in ObjectBackend.read(one.parts.storage, log)
        one.parts.storage.archive()
        assert held() == []
        ObjectBackend.remove(one.parts.storage, log)
        with pytest.raises(StorageFailed, match=r"s\.jsonl: its first \d+ bytes left the database"):
            one.parts.storage.read(log)
        monkey = pytest.MonkeyPatch()
        monkey.setattr(postgres, "SCHEMA", 1)
        with pytest.raises(
            (Misconfigured, StorageSelectionError), match=r"schema 2; this version of Cairn knows 1"
        ):
            cairn.open_blocking(tmp_path / "three", background=False, **options).__enter__()
        monkey.undo()


def test_what_cannot_be_used_is_named(engines, options, tmp_path, monkeypatch):
    """A wrong key, a bucket that is not there, an address without a bucket, a database that is away."""
    for change, words in (
        ({"storage__url": "bucket"}, "s3://bucket/prefix"),
        ({"storage__url": "s3://key:secret@cairn/x"}, "AWS_ACCESS_KEY_ID"),
    ):
        with pytest.raises((StorageSelectionError, Misconfigured), match=words):
            cairn.open_blocking(tmp_path / "x", **{**options, **change}).__enter__()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageSelectionError, match="the secret key is wrong"):
        cairn.open_blocking(tmp_path / "x", **options).__enter__()
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(Misconfigured, match="wants keys"):
            cairn.open_blocking(tmp_path / "x", **options).__enter__()
    for other, words in (
        (
            options["storage__database"].replace("/cairn", "/nowhere"),
            'does not let this server in.*"nowhere"',
        ),
        (options["storage__database"].replace("cairn@", "nobody@"), 'does not let this server in.*"nobody"'),
        ("nonsense", "postgresql://user@host/name"),
    ):
        with pytest.raises(Misconfigured, match=words):
            cairn.open_blocking(tmp_path / "y", **{**options, "storage__database": other}).__enter__()
    away = {"storage__database": f"postgresql://cairn@127.0.0.1:{many.free_port()}/cairn"}
    with pytest.raises((StorageSelectionError, Unavailable), match="PostgreSQL does not answer"):
        cairn.open_blocking(tmp_path / "y", **{**options, **away}).__enter__()


@pytest.mark.skipif(not many.program("rclone"), reason="make cluster brings rclone")
def test_a_store_that_ignores_conditions_is_refused(tmp_path):
    """rclone takes a second creation and a stale tag without a word: it is tried at the start and named."""
    (tmp_path / "served" / "cairn").mkdir(parents=True)
    port = many.free_port()
    command = [
        many.program("rclone"),
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        "key,secret",
    ]
    server = subprocess.Popen([*command, str(tmp_path / "served")], stderr=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        until(answers)
        options = {"storage__backend": "s3", "storage__url": "s3://cairn/root"}
        with pytest.raises(StorageSelectionError, match=r"ignores conditional writes \(If-None-Match\)"):
            cairn.open_blocking(
                tmp_path / "x", storage__endpoint=f"http://127.0.0.1:{port}", **options
            ).__enter__()
    finally:
        server.kill()
        server.wait()
    assert not list((tmp_path / "served" / "cairn").rglob("*.md"))


@pytest.mark.parametrize("bug", ["if-match", "fencing"])
def test_the_suites_find_a_planted_bug(engines, monkeypatch, bug):
    """An engine that ignores the tag it was given, or the place an append belongs at, does not pass what is shipped."""
    database, store, _ = engines
    monkeypatch.setattr(ObjectBackend, "_mode", ObjectBackend._mode)
    monkeypatch.setattr(postgres, "_APPEND_AT", postgres._APPEND_AT)
    planted.BUGS[bug]()
    opened = []

    def rows():
        opened.append(Postgres(database.url, f"suite-{random.randrange(10**9)}", connections=2))
        return PostgresJournals(opened[-1])

    suites = {
        "if-match": lambda: run_conformance(lambda: ObjectBackend(bucket(store))),
        "fencing": lambda: run_checks(JOURNAL_CHECKS, rows),
    }
    with pytest.raises(AssertionError):
        suites[bug]()
    for one in opened:
        one.close()


@pytest.mark.parametrize("bug", ["", "fencing"])
def test_an_append_that_comes_late_is_not_believed(engines, options, tmp_path, monkeypatch, bug):
    """A machine loses its locks in the middle of an add, and another takes the same call: one message, unless the place is
    not asked for.
    """
    if bug:
        monkeypatch.setattr(postgres, "_APPEND_AT", postgres._APPEND_AT)
        planted.BUGS[bug]()
    with (
        cairn.open_blocking(tmp_path / "one", background=False, **options) as one,
        cairn.open_blocking(tmp_path / "two", background=False, **options) as two,
    ):
        one.add("s", [message("Good morning.")])
        append, twin = one.parts.sessions.append, {"idempotency_key": "k"}

        def late(*args: Any, **more: Any) -> None:
            monkeypatch.setattr(one.parts.sessions, "append", append)
            engines[0].free_locks()
            two.add("s", [message("It rains.", 1)])
            two.add("s", [message("I adopted a heron.", 2)], **twin)
            append(*args, **more)

        monkeypatch.setattr(one.parts.sessions, "append", late)
        one.add("s", [message("I adopted a heron.", 2)], **twin)
        one.flush("s")
        log = two.parts.storage.read(Locator(f"{many.SPACE}/sessions/s.jsonl"))
        notes = "".join(map(two.parts.storage.read, two.parts.notebook.notes(kind="episode")))
    said = ("Good morning.", "It rains.", "I adopted a heron.")
    assert log.count(said[2]) == (2 if bug else 1)
    assert bug or [notes.count(f"\n\nalice: {text}\n") for text in said] == [1, 1, 1]


@pytest.mark.parametrize("program", ["cairn.surfaces.cli", "tests.cluster.planted"])
def test_what_is_acknowledged_survives_the_end_of_its_server(engines, options, monkeypatch, program):
    """A server is killed as soon as it has answered: the message is there, unless it answers before it commits."""
    database, store, folder = engines
    monkeypatch.setenv("PLANTED", "early")
    with many.cluster(database, store, folder, 0) as world:
        machine = world.add(program)
        asked = {"session_id": "s", "messages": [message("I adopted a heron called Zaphodine.")]}
        assert machine.call("POST", "/api/v1/memory/add", asked)[0] == 200
        machine.kill()
        rows = Postgres(database.url, world.env["CAIRN_STORAGE__URL"])
        log = PostgresJournals(rows).whole(Locator(f"{many.SPACE}/sessions/s.jsonl"))
        rows.close()
    assert bool(log and b"Zaphodine" in log) == (program == "cairn.surfaces.cli")


def test_a_server_that_is_told_to_end_loses_nothing(engines):
    """It says that it is not ready while it still takes calls; told twice, it ends; what it acknowledged is there."""
    database, store, folder = engines
    with many.cluster(database, store, folder, 0) as world:
        machine = world.add(CAIRN_SERVER__DRAIN_SECONDS="600")
        acknowledged: list[str] = []

        def add(n: int) -> bool:
            text = f"Message number {n}."
            asked = {"session_id": f"s{n % 4}", "messages": [message(text, n)]}
            if machine.call("POST", "/api/v1/memory/add", asked)[0] != 200:
                return False
            acknowledged.append(text)
            return True

        def go_on(start: int) -> None:
            n = start
            while add(n):
                n += 4

        clients = [threading.Thread(target=go_on, args=(n,)) for n in range(4)]
        for client in clients:
            client.start()
        until(lambda: len(acknowledged) > 20)
        assert machine.call("GET", "/ready")[0] == 200
        machine.process.terminate()
        until(lambda: machine.call("GET", "/ready")[0] == 503)
        before = len(acknowledged)
        until(lambda: len(acknowledged) > before + 8)  # it still takes calls, from all of them
        machine.process.terminate()
        machine.process.wait(LONG)
        for client in clients:
            client.join()
        rows = Postgres(database.url, world.env["CAIRN_STORAGE__URL"])
        logs = b"".join(
            PostgresJournals(rows).whole(Locator(f"{many.SPACE}/sessions/s{n}.jsonl")) or b""
            for n in range(4)
        )
        rows.close()
    assert [text for text in acknowledged if logs.count(f'"{text}"'.encode()) != 1] == []


def test_an_engine_that_is_away_is_named_and_waited_for_once(engines):
    """Without the database or the store, `status` tells so, searches go on, and what needs it is refused by name."""
    database, store, folder = engines
    with many.cluster(database, store, folder, 0) as world:
        machine = world.add(linked=True)
        many.tell_a_story(machine, machine)
        for engine, words in (("database", "PostgreSQL does not answer"), ("store", "does not answer")):
            machine.links[engine].set("cut")
            until(
                lambda words=words: words in str(machine.call("GET", "/api/v1/status")[1]["data"]["warnings"])
            )
            query = {"user_id": "alice", "query": "heron", "method": "keyword"}
            status, found = machine.call("POST", "/api/v1/memory/search", query)
            assert status == 200 and "heron" in str(found["data"]["episodes"])
            assert (
                machine.call("POST", "/api/v1/memories", {"content": "We deploy with make ship."})[0] == 503
            )
            assert machine.call("GET", "/health")[0] == 200
            machine.links[engine].set("whole")
            until(
                lambda words=words: (
                    words not in str(machine.call("GET", "/api/v1/status")[1]["data"]["warnings"])
                )
            )
        assert machine.call("POST", "/api/v1/memories", {"content": "We deploy with make ship."})[0] == 200


def test_two_versions_serve_side_by_side(engines, tmp_path):
    """A server of an earlier commit and one of now, on one root: each finds what the other was told, in both directions."""
    repository = many.__file__.rpartition("/tools/")[0]
    earlier = subprocess.run(
        ["git", "-C", repository, "archive", "-o", str(tmp_path / "old.tar"), "HEAD~5", "src"],
        capture_output=True,
    )
    if earlier.returncode:
        pytest.skip("this is no clone with a history, so there is no earlier version to run")
    subprocess.run(["tar", "-xf", str(tmp_path / "old.tar"), "-C", str(tmp_path)], check=True)
    database, store, folder = engines
    with many.cluster(database, store, folder, 1) as world:
        new, old = world.machines[0], world.add(PYTHONPATH=str(tmp_path / "src"))
        assert many.tell_a_story(old, new) and many.tell_a_story(new, old)
        for one, other, n in ((old, new, 1), (new, old, 2)):
            for machine in (one, other):
                asked = {"session_id": f"both{n}", "messages": [message(f"I bought trombone{n}.", n)]}
                asked["idempotency_key"] = f"k{n}"
                assert machine.call("POST", "/api/v1/memory/add", asked)[0] == 200
            assert other.call("POST", "/api/v1/memory/flush", {"session_id": f"both{n}"})[0] == 200
            query = {
                "user_id": "alice",
                "query": f"trombone{n}",
                "method": "keyword",
                "consistency": "strong",
            }
            for machine in (one, other):
                episodes = machine.call("POST", "/api/v1/memory/search", query)[1]["data"]["episodes"]
                told = "".join(episode["episode"] for episode in episodes)
                assert told.count(f"alice: I bought trombone{n}.") == 1


@pytest.mark.slow
def test_servers_killed_and_engines_stopped_lose_nothing(engines):
    """Three servers, four clients: everything acknowledged is there once, in order, and told in one episode."""
    assert many.faults(*engines, seconds=10.0, seed=1) == []
