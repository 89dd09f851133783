"""Which server is home to an owner: calls go there, an owner's talk is indexed there and nowhere else."""

from __future__ import annotations

import random
import signal
import sqlite3
import urllib.request
from contextlib import closing

import psycopg
import pytest
from tools import cluster as many

import cairn
from cairn.engines.postgres import Postgres, PostgresJournals
from cairn.engines.postgres_servers import Servers
from cairn.retrieval.indexer import LeftTalk
from cairn.seams import Locator
from cairn.types import Scope, Space
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(many.missing()), reason=f"make cluster brings what is missing: {many.missing()}"),
    pytest.mark.xdist_group("cluster-homes"),
]
OWNERS = [f"p{n}" for n in range(12)]


def said(text, person="alice", at=1_780_000_000_000):
    return many.said(text, at, person)


def add(machine, session, text, person, **more):
    body = {"session_id": session, "messages": [said(text, person)], **more}
    return machine.call("POST", "/api/v1/memory/add", body)


def found(machine, person, words, **more):
    body = {"user_id": person, "query": words, "method": "keyword", "evidence": 5, **more}
    status, answer = machine.call("POST", "/api/v1/memory/search", body)
    return status == 200 and words in str(answer["data"])


def rows_of(machine):
    """The rows that a server has in its own index, by owner."""
    with closing(sqlite3.connect(f"file:{machine.folder}/.index/sqlite/index.db?mode=ro", uri=True)) as db:
        query = "SELECT s.owner, count(*) FROM rows r JOIN scopes s ON s.id = r.scope_id WHERE r.kind = 'message' GROUP BY 1"
        return dict(db.execute(query).fetchall())


def forwarded(machine):
    """How many calls a server has sent on."""
    with urllib.request.urlopen(f"http://127.0.0.1:{machine.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if 'route="forwarded"' in line and "_count" in line)


def test_servers_agree_on_the_home_of_an_owner_and_what_one_leaves_moves(engines):
    """All choose the same server; one that is not ready, is reached elsewhere only, or left is nobody's home."""
    database, _, _ = engines
    root = f"homes-{random.randrange(10**9)}"
    pools = [Postgres(database.url, root, connections=2) for _ in range(4)]
    ready = True
    one, two, far, new = (
        Servers(pools[0], "10.0.0.1:8000"),
        Servers(pools[1], "10.0.0.2:8000", is_ready=lambda: ready),
        Servers(pools[2], "127.0.0.1:8000", place="another machine"),
        Servers(pools[3], "10.0.0.4:8000", is_ready=lambda: False),
    )
    try:
        assert one.home("p0") is None  # it is alone
        for _ in range(2):
            for each in (one, two, far, new):
                each.beat()
        homes = {name: (one.home(name), two.home(name)) for name in OWNERS * 4}
        assert all((here is None) != (there is None) for here, there in homes.values())
        assert {home for pair in homes.values() for home in pair if home} == {
            (one.name, "10.0.0.1:8000"),
            (two.name, "10.0.0.2:8000"),
        }
        ready = False  # it is told to end
        two.beat()
        one.beat()
        assert not one.is_up(two.name) and {one.home(name) for name in OWNERS} == {None}
    finally:
        for pool in pools:
            pool.close()


def test_an_owners_talk_is_indexed_by_one_server_whichever_is_asked(engines):
    """Adds and questions go to any server by turns: each message has one row in the cluster, and every answer has it."""
    with many.cluster(*engines, 2) as world:
        one, two = world.machines
        until(lambda: forwarded_some(one, two))
        before = {name: (rows_of(one).get(name, 0), rows_of(two).get(name, 0)) for name in OWNERS}
        for n, name in enumerate(OWNERS * 3):
            machine = world.machines[n // len(OWNERS) % 2]
            assert add(machine, f"s-{name}", f"The w{n}ord heron.", name)[0] == 200
        for n, name in enumerate(OWNERS * 3):
            for machine in world.machines:
                until(lambda n=n, name=name, machine=machine: found(machine, name, f"w{n}ord"))
        gained = {
            name: tuple(
                after - had
                for after, had in zip(
                    (rows_of(one).get(name, 0), rows_of(two).get(name, 0)), before[name], strict=True
                )
            )
            for name in OWNERS
        }
        assert all(sorted(each) == [0, 3] for each in gained.values()), gained
        assert {each.index(3) for each in gained.values()} == {0, 1}  # the work is shared


def forwarded_some(one, two):
    """Whether both servers know of each other: each has sent calls on."""
    for n in range(20):
        for machine in (one, two):
            found(machine, f"nobody{n}", "nothing")
    return forwarded(one) and forwarded(two)


def test_a_home_that_is_gone_cut_off_or_stopped_costs_a_moment(engines):
    """Its owners' calls are answered by the server that was asked; nothing is lost, and nothing is there twice."""
    with many.cluster(*engines, 0) as world:
        one, two = (world.add(linked=True) for _ in range(2))
        until(lambda: forwarded_some(one, two))

        # Whose home is the second server: asked at the first one, its calls are sent on.
        def is_there(name):
            before = forwarded(one)
            found(one, name, "nothing")
            return forwarded(one) > before

        name, other, third, *_ = [name for name in (f"o{n}" for n in range(60)) if is_there(name)]
        assert add(one, "kept", "I adopted a heron called Zaphodine.", name)[0] == 200
        two.links["servers"].set("cut")
        assert add(one, "kept", "I work as a plumber.", name)[0] == 200
        assert found(one, name, "plumber", consistency="strong") and found(one, name, "Zaphodine")
        two.links["servers"].set("whole")
        # Stopped in the middle of a call: it goes on later, and finds that the same messages are kept already.
        until(lambda: is_there(other))
        two.process.send_signal(signal.SIGSTOP)
        assert add(one, "stopped", "I bought a trombone.", other)[0] == 200
        two.process.send_signal(signal.SIGCONT)
        until(lambda: is_there(third))
        two.kill()
        assert add(one, "dead", "I like anchovies.", third)[0] == 200
        assert found(one, third, "anchovies", consistency="strong")
        with psycopg.connect(world.database.url) as rows:
            query = "SELECT string_agg(convert_from(data, 'UTF8'), '') FROM cairn_units WHERE root = %s AND key LIKE %s"
            [log] = rows.execute(query, [world.env["CAIRN_STORAGE__URL"], "%/stopped.jsonl"]).fetchone()
        assert log.count("trombone") == 1
        two.start()
        two.wait()


def test_messages_that_cannot_be_told_apart_are_not_kept_twice(engines):
    """A call without times and key, whose home ends before it answers, is refused: whoever sends it knows what to do."""
    with many.cluster(*engines, 2) as world:
        one, two = world.machines
        until(lambda: forwarded_some(one, two))

        def is_there(name):
            before = forwarded(one)
            found(one, name, "nothing")
            return forwarded(one) > before

        name = next(name for name in (f"o{n}" for n in range(60)) if is_there(name))
        two.process.send_signal(signal.SIGSTOP)
        undated = {"sender_id": name, "role": "user", "content": "I bought a trombone."}
        status, _ = one.call("POST", "/api/v1/memory/add", {"session_id": "s", "messages": [undated]})
        two.process.send_signal(signal.SIGCONT)
        assert status == 503


def test_a_call_that_was_meant_for_another_server_is_not_answered(engines):
    """An address that another server has by now answers 421, so that whoever sent the call on answers it itself."""
    with many.cluster(*engines, 1) as world:
        [one] = world.machines

        def status():
            return one.call("POST", "/api/v1/memory/search", {}, headers={"cairn-home": "somebody-else"})[0]

        until(lambda: status() == 421)


def test_it_is_known_who_is_in_a_log_unless_a_server_of_before_wrote_to_it(engines):
    """Speakers are noted with the append that brings them; after one that did not note them, nobody claims to know."""
    database, _, _ = engines
    pool = Postgres(database.url, f"people-{random.randrange(10**9)}", connections=2)
    journals = PostgresJournals(pool)
    journals.people_in = lambda _at, lines: frozenset(line.split()[0] for line in lines)
    at = Locator("a/p/sessions/s.jsonl")
    size = journals.append(at, ["alice says"], expect=0)
    size = journals.append(at, ["bob says"], expect=size)
    journals.append(at, ["alice again"])
    assert journals.people([at.key]) == {at.key: {"alice", "bob"}}
    pool.ask(
        "UPDATE cairn_journals SET size = size + 5 WHERE root = %(root)s AND key = %(key)s RETURNING true",
        key=at.key,
    )
    assert journals.people([at.key]) == {}
    other = Locator("a/p/sessions/t.jsonl")
    journals.append(other, ["alice says"])
    assert journals.people([other.key])
    journals.replace(other, ["nobody says"])
    assert journals.people([other.key]) == {}
    journals.people_in = lambda _at, _lines: None
    third = Locator("a/p/sessions/u.jsonl")
    journals.append(third, ["alice says"])
    assert journals.people([third.key]) == {}
    pool.close()


def test_talk_is_left_until_one_of_those_who_are_in_it_is_asked_for():
    """What nobody knows the people of is anybody's; what was taken is left no longer."""
    left = LeftTalk()
    alice, bob = (Scope(Space(), "user", name) for name in ("alice", "bob"))
    at = f"{many.SPACE}/sessions/"
    left.put(f"{at}both.jsonl", {"alice", "bob"})
    left.put(f"{at}hers.jsonl", {"alice"})
    left.put(f"{at}unknown.jsonl", None)
    left.put("other/p/sessions/x.jsonl", {"alice"})
    assert left.take(bob) == {f"{at}both.jsonl", f"{at}unknown.jsonl"}
    left.put(f"{at}both.jsonl", {"alice", "bob"})
    left.put(f"{at}both.jsonl", {"bob"})  # as it was heard of last
    assert left.take(alice) == {f"{at}hers.jsonl"}
    assert left.take(alice) == set() and left
    assert left.take(bob) == {f"{at}both.jsonl"}


def test_a_server_that_was_never_asked_takes_talk_in_with_the_first_question(engines, tmp_path):
    """It has nothing of the owner's talk before, and all of it in its first answer."""
    database, store, _ = engines
    options = {
        "storage__backend": "s3",
        "storage__url": f"s3://cairn/root-{random.randrange(10**9)}",
        "storage__endpoint": store.endpoint,
        "storage__database": database.url,
        "embedding__provider": "none",
    }
    with cairn.open_blocking(tmp_path / "one", **options) as one:
        for n, name in enumerate(("alice", "alice", "bob")):
            one.add(f"s{n}", [said(f"The w{n}ord heron.", name)])
        with cairn.open_blocking(tmp_path / "two", **options) as two:
            until(lambda: two.parts.indexer.status().state == "fresh")
            assert two.parts.index.scopes() == []
            answer = two.search("heron", user_id="alice", method="keyword", evidence=5)
            assert all(f"w{n}ord" in str(answer) for n in (0, 1))
            assert {scope.owner for scope, _ in two.parts.index.scopes()} == {"alice"}
