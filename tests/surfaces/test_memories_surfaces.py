"""Governed and project memory over HTTP, and one story told through all surfaces with one outcome."""

import asyncio
import contextlib
import io
import json
import sqlite3
from dataclasses import asdict

import pytest

import cairn
from cairn.background import sweep_due
from cairn.errors import Invalid
from cairn.operations.keeping import Keeping
from cairn.operations.memories import Single
from cairn.operations.recalling import prompt
from cairn.retrieval.answers import shown
from cairn.surfaces.cli import main
from tests.surfaces.served import repository, serving_here, serving_tokens
from tests.surfaces.test_memories_cli import files_with
from tests.surfaces.test_scenario import ENV
from tests.waiting import folded

pytestmark = pytest.mark.xdist_group("memories-http")

GOTCHA = "Deploys wait for the migration job to finish."
NEWER = "Deploys run the migrations themselves since the new pipeline."
LIKES = "Alice prefers tea over coffee."


def as_data(method, answer):
    """What an operation answered, as surfaces tell it."""
    return method.operation.told(None, answer, {})


def outcome(told):
    """What every telling must end with."""
    kept_, again, refused = told["verdicts"]
    assert (kept_["accepted"], kept_.get("deduped", False)) == (True, False)
    assert (again["accepted"], again["deduped"]) == (True, True)
    assert again["mergedIntoId"] == kept_["memory"]["id"]
    assert (refused["accepted"], refused["reason"]) == (False, "secret")
    assert "credential" in refused["detail"]
    assert [(row["content"], row["scope"]) for row in told["listed"]] == [(NEWER, "project"), (LIKES, "user")]
    assert told["old"]["status"] == "archived"
    assert told["old"]["superseded_by"] == told["successor"]["memory"]["id"]
    assert [line["what"] for line in told["history"]] == ["created", "merged", "pinned", "superseded"]
    assert any("superseded by" in line for line in told["why"])
    assert [item["content"] for item in told["found"]] == [NEWER]
    assert [item["content"] for item in told["hers"]] == [LIKES]
    assert told["prompt"].startswith("<cairn-recall")
    assert told["ended"]["promoted"]
    assert told["core"]["version"] == 1
    assert told["sweep"]["trigger_reason"] == "manual"
    assert (
        "default_app/default_project/shared/pages/MEMORY.md"
        in told["pages"]["written"] + told["pages"]["unchanged"]
    )
    assert told["receipt"]["complete"], told["receipt"]
    assert told["receipt"]["removed"]["memory entries"] == 1


async def story(memory):
    """The story, in Python's words; `memory` may be either twin."""

    async def do(answer):
        return await answer if asyncio.iscoroutine(answer) else answer

    from cairn.governed.memories import verdict_json

    kept_ = await do(memory.remember(GOTCHA, "gotcha"))
    again = await do(memory.remember(GOTCHA, "gotcha"))
    refused = await do(memory.remember("password = hunter2hunter2"))
    hers = await do(memory.remember(LIKES, "preference", "user", "alice"))
    key = kept_.memory["id"]
    await do(memory.memories.pin(key))
    successor = await do(memory.memories.supersede(key, NEWER, reason="new pipeline"))
    await do(memory.memories.show(hers.memory["id"]))
    page = await do(memory.memories.list())
    found = await do(memory.memories.search("migrations pipeline", consistency="strong", for_injection=True))
    mine = await do(memory.search("tea", user_id="alice", consistency="strong"))
    told = {
        "verdicts": [verdict_json(one) for one in (kept_, again, refused)],
        "successor": verdict_json(successor),
        "listed": sorted(page.memories, key=lambda row: row["scope"]),
        "old": await do(memory.memories.show(key)),
        "history": as_data(Single.history, await do(memory.memories.history(key)))["history"],
        "why": await do(memory.memories.why(key)),
        "found": [shown(hit) for hit in found.memories],
        "prompt": prompt(found),
        "hers": [shown(hit) for hit in mine.memories],
    }
    await do(memory.remember("Seeding needs the network.", "gotcha", "mission", "run-1", mode="strict"))
    told["ended"] = asdict(await do(memory.memories.end_mission("run-1", success=True)))
    told["core"] = await do(memory.memories.set_core(projectSummary="A tide parser."))
    told["sweep"] = as_data(Keeping.sweep, await do(memory.memories.sweep()))
    told["pages"] = as_data(Keeping.refresh, await do(memory.memories.refresh()))
    told["receipt"] = as_data(Single.forget, await do(memory.memories.forget(hers.memory["id"])))
    return told


def through_async(root):
    async def tell():
        async with cairn.open(root, embedding__provider="hashing") as memory:
            return await story(memory)

    return asyncio.run(tell())


def through_blocking(root):
    with cairn.open_blocking(root, embedding__provider="hashing") as memory:
        return asyncio.run(story(memory))


def through_cli(root):
    def run(*words, code=0):
        # In this process: that a cold start works is told by the other scenario.
        said = io.StringIO()
        with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
            for name, value in ENV.items():
                patch.setenv(name, value)
            assert main(["--root", str(root), *words, "--json"]) == code, said.getvalue()
        return json.loads(said.getvalue())

    gotcha = ("remember", GOTCHA, "--category", "gotcha")
    verdicts = [run(*gotcha), run(*gotcha), run("remember", "password = hunter2hunter2", code=1)]
    hers = run("remember", LIKES, "--category", "preference", "--scope", "user", "--owner", "alice")
    key = verdicts[0]["memory"]["id"]
    run("memories", "pin", key)
    told = {
        "verdicts": verdicts,
        "successor": run("memories", "supersede", key, NEWER, "--reason", "new pipeline"),
        "listed": sorted(run("memories", "list")["memories"], key=lambda row: row["scope"]),
        "old": run("memories", "show", key),
        "history": run("memories", "history", key),
        "why": run("memories", "why", key)["why"],
        "hers": run("search", "--user", "alice", "tea")["memories"],
    }
    found = run("memories", "search", "--as-prompt", "migrations", "pipeline")
    told |= {"found": found["memories"], "prompt": found["prompt"]}
    run("remember", "Seeding needs the network.", "--category", "gotcha", "--scope", "mission", "--owner", "run-1",
        "--mode", "strict")  # fmt: skip
    told["ended"] = run("mission", "end", "run-1", "--success")
    told["core"] = run("core", "set", "summary", "A tide parser.")
    told["sweep"] = run("sweep")
    told["pages"] = run("refresh")
    told["receipt"] = run("memories", "forget", hers["memory"]["id"], "--yes")
    return told


def through_http(root):
    with serving_here(root, env=ENV) as server:

        def call(method, path, body=None, code=200):
            status, answer = server.call(method, f"/api/v1/{path}", body)
            assert status == code, answer
            return answer["data"]

        gotcha = {"content": GOTCHA, "category": "gotcha"}
        verdicts = [
            call("POST", "memories", gotcha),
            call("POST", "memories", gotcha),
            call("POST", "memories", {"content": "password = hunter2hunter2"}),
        ]
        hers = {"content": LIKES, "category": "preference", "scope": "user", "owner": "alice"}
        hers = call("POST", "memories", hers)["memory"]["id"]
        key = verdicts[0]["memory"]["id"]
        call("POST", f"memories/{key}/pin")
        ask = {"query": "migrations pipeline", "consistency": "strong", "for_injection": True}
        told = {
            "verdicts": verdicts,
            "successor": call(
                "POST", f"memories/{key}/supersede", {"content": NEWER, "reason": "new pipeline"}
            ),
            "listed": sorted(call("GET", "memories")["memories"], key=lambda row: row["scope"]),
            "old": call("GET", f"memories/{key}"),
            "history": call("GET", f"memories/{key}/history")["history"],
            "why": call("GET", f"memories/{key}/why")["why"],
        }
        found = call("POST", "memories/search", ask)
        told |= {"found": found["memories"], "prompt": found["prompt"]}
        mine = {"user_id": "alice", "query": "tea", "consistency": "strong"}
        told["hers"] = call("POST", "memory/search", mine)["memories"]
        run = {
            "content": "Seeding needs the network.",
            "category": "gotcha",
            "scope": "mission",
            "owner": "run-1",
        }
        call("POST", "memories", {**run, "mode": "strict"})
        told["ended"] = call("POST", "missions/run-1/end", {"success": True})
        told["core"] = call("PUT", "core", {"projectSummary": "A tide parser."})
        told["sweep"] = call("POST", "memories/sweep", {})
        told["pages"] = call("POST", "refresh", {})
        told["receipt"] = call("DELETE", f"memories/{hers}")
        return told


@pytest.mark.parametrize("tell", [through_async, through_blocking, through_cli, through_http])
def test_the_same_story_of_memories_ends_the_same_way(tell, tmp_path):
    """Remember, merge, refuse, pin, supersede, search, end a mission, sweep and forget: one outcome everywhere."""
    root = tmp_path / "root"
    outcome(tell(root))
    assert files_with(root, LIKES) == []


def test_due_spaces_are_swept_in_the_background_once(tmp_path):
    """A60: at startup what is due is swept and its pages made; within `sweep_hours` it is not swept again."""

    async def tell():
        async with cairn.open(tmp_path / "root", embedding__provider="none") as memory:
            await memory.remember("Lamps go out at ten.", "convention", mode="strict")
            assert sweep_due(memory.parts) == 1
            assert sweep_due(memory.parts) == 0
            from cairn.governed.lifecycle import sweeps
            from cairn.types import Space

            return [one["trigger_reason"] for one in sweeps(memory.parts.keeper, Space())]

    assert asyncio.run(tell()) == ["startup"]
    page = tmp_path / "root" / "default_app" / "default_project" / "shared" / "pages" / "MEMORY.md"
    assert "Lamps go out at ten." in page.read_text()


def test_a_server_forgets_while_it_is_read(tmp_path):
    """The canary leaves every byte of the root while readers ask, and the answers stay whole."""
    import threading

    with cairn.open_blocking(tmp_path / "root", embedding__provider="hashing") as memory:
        made = [memory.remember(f"The {n}th buoy is painted {word}.", scope="user", owner="kim") for n, word in
                enumerate(["red", "green", "vermilion-31337"])]  # fmt: skip
        memory.search("buoy", user_id="kim", consistency="strong")
        stop, failed = threading.Event(), []

        def ask():
            while not stop.is_set():
                try:
                    memory.search("buoy painted", user_id="kim")
                except Exception as error:
                    failed.append(error)

        readers = [threading.Thread(target=ask) for _ in range(2)]
        for reader in readers:
            reader.start()
        receipt = memory.memories.forget(made[-1].memory["id"], words=["vermilion-31337"])
        stop.set()
        for reader in readers:
            reader.join()
        assert failed == []
        assert receipt.complete, receipt.left
        assert files_with(tmp_path / "root", "vermilion-31337") == []
        found = memory.search("buoy painted", user_id="kim", consistency="strong")
        assert sorted(hit.text for hit in found.memories) == [
            "The 0th buoy is painted red.",
            "The 1th buoy is painted green.",
        ]


def test_the_history_of_a_memory_tells_of_edits_of_its_file(tmp_path):
    """What an editor changed stands between what commands did, with the words before and after; a command's change is told once."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, strategies__enabled=False) as memory:
        first = memory.remember("Lunch is at noon.").memory["id"]
        assert memory.log()
        (note,) = root.rglob("memory-*.md")
        note.write_text(note.read_text().replace("at noon", "at one"))
        assert memory.memories.history(first)[-1].new == {"content": "Lunch is at one."}
        memory.memories.edit(first, content="Lunch is at two.")
        memory.memories.pin(first)
    with cairn.open_blocking(root, strategies__enabled=False) as memory:
        told = [(line.what, line.old, line.new) for line in memory.memories.history(first)]
    assert [what for what, _, _ in told] == ["created", "edited in its file", "edited", "pinned"]
    assert told[1][1:] == ({"content": "Lunch is at noon."}, {"content": "Lunch is at one."})
    assert told[2][1:] == ({"content": "Lunch is at one."}, {"content": "Lunch is at two."})


def test_forgetting_reaches_open_talk_facts_history_and_lancedb(tmp_path):
    """A canary said twice, once in talk not extracted yet, is in no byte afterwards, nor after the next flush."""
    canary, root = "cerulean31337", tmp_path / "root"

    def said(text, n):
        return {
            "sender_id": "kim",
            "role": "user",
            "timestamp": 1_780_000_000_000 + n * 1000,
            "content": text,
        }

    with cairn.open_blocking(root, embedding__provider="hashing") as memory:
        memory.add(
            "s1", [said(f"My locker code is {canary}, do not tell.", 0), said("I sail on Sundays.", 1)]
        )
        memory.flush("s1")
        memory.add(
            "s2", [said(f"The locker code {canary} is still valid.", 2), said("I bought a green boat.", 3)]
        )
        made = memory.remember(
            f"Kim's locker code is {canary}.", scope="user", owner="kim", status="promoted"
        )
        memory.checkpoint("before")
        memory.search("locker", user_id="kim", consistency="strong")
        folded(memory)
        held = files_with(root, canary)
        for part in (
            "lancedb",
            "index.db",
            "history/texts.jsonl",
            "s1.jsonl",
            "s2.jsonl",
            "episodes",
            "memories",
        ):
            assert any(part in name for name in held), part
        receipt = memory.memories.forget(made.memory["id"], words=[canary])
        assert receipt.complete, receipt.left
        assert files_with(root, canary) == []
        memory.flush("s2")
        found = memory.search("boat", user_id="kim", consistency="strong")
        assert any("green boat" in hit.text for hit in found.episodes)
        folded(memory)
        assert memory.parts.folder.told()["rows"] > 0
        assert memory.search(canary, user_id="kim", method="keyword").hits == ()
    assert files_with(root, canary) == []


# ---------------------------------------------------------------- HTTP alone


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with tokens and one repository it was told about."""
    base = tmp_path_factory.mktemp("world")
    repo = repository(base / "repos" / "tides")
    outside = base / "outside"
    outside.mkdir()
    (base / "repos" / "link").symlink_to(outside)
    with serving_tokens(base, ENV) as call:
        call.repo, call.outside, call.base = repo, outside, base
        yield call


def test_unknown_and_wrong_query_parameters_are_refused_by_name(world):
    """Each parameter is known, given once and well-formed, or the answer names it."""
    for path, part in [
        ("memories?limitt=3", "limitt"),
        ("memories?limit=0", "limit"),
        ("memories?limit=abc", "limit"),
        ("memories?status=gone", "status"),
        ("memories?scope=user&scope=agent", "scope"),
        ("memories?scope=agent", "owner"),
        ("memories?owner=bob", "scope"),
        ("memories/mem_20260101_00000001?x=1", "x"),
        ("core?agent=../etc", "agent"),
        ("doctor?deep=1", "deep"),
        ("project/status", "path"),
    ]:
        status, error = world("all", "GET", path)
        assert (status, error["code"]) == (422, "INVALID_INPUT"), path
        assert part in error["message"], path


def test_unknown_and_wrong_fields_are_refused_by_name(world):
    """Bodies are strict: unknown fields, wrong types and out-of-range values are named, and nothing is written."""
    made = world("all", "POST", "memories", {"content": "The pier closes at dusk."})[1]["memory"]["id"]
    for method, path, body, part in [
        ("POST", "memories", {"content": "x", "colour": "red"}, "colour"),
        ("POST", "memories", {"content": 7}, "content"),
        ("POST", "memories", {"content": "x", "scope": "galaxy"}, "scope"),
        ("POST", "memories", {"content": "x", "scope": "agent"}, "owner"),
        ("POST", "memories", {"content": "x", "scope": "user", "owner": "../x"}, "../x"),
        ("POST", "memories", {"content": "x", "confidence": 2}, "confidence"),
        ("POST", "memories/search", {"query": ""}, "query"),
        ("PATCH", f"memories/{made}", {}, "change"),
        ("PATCH", f"memories/{made}", {"tier": 9}, "tier"),
        ("PATCH", f"memories/{made}", {"content": " "}, "text"),
        ("POST", f"memories/{made}/supersede", {"content": "y"}, "reason"),
        ("PUT", "core", {}, "field"),
        ("PUT", "core", {"notes": "one"}, "notes"),
        ("POST", "missions/run-9/end", {}, "success"),
        ("POST", "missions/..%2Fx/end", {"success": True}, ""),
    ]:
        status, error = world("all", method, path, body)
        assert status in {404, 422}, (path, error)
        assert part in error["message"], path
    assert world("all", "GET", f"memories/{made}")[1]["content"] == "The pier closes at dusk."


def test_what_is_not_there_is_404(world):
    """A memory, a run and a route that are not there are said to be so."""
    for method, path, body in [
        ("GET", "memories/mem_20200101_00000001", None),
        ("DELETE", "memories/mem_20200101_00000001", None),
        ("POST", "memories/mem_20200101_00000001/pin", None),
        ("POST", "undo", {"run_id": "con_nothing"}),
        ("POST", "memories/mem_20200101_00000001/praise", None),
    ]:
        status, error = world("all", method, path, body)
        assert (status, error["code"]) == (404, "NOT_FOUND"), path


def test_grants_hold_on_every_route(world):
    """P7: a token reaches its owners, apps and verbs, and nothing else, on each route."""
    ours = world("all", "POST", "memories", {"content": "The reef map is in the safe."})[1]["memory"]["id"]
    bobs = {"content": "Bob keeps bees.", "scope": "user", "owner": "bob"}
    bobs = world("all", "POST", "memories", bobs)[1]["memory"]["id"]
    hers = {"content": "Alice sails on Sundays.", "scope": "user", "owner": "alice"}
    status, verdict = world("alice", "POST", "memories", hers)
    assert status == 200
    hers = verdict["memory"]["id"]
    assert world("alice", "GET", f"memories/{hers}")[0] == 200
    assert world("alice", "GET", "memories?scope=user&owner=alice")[1]["total"] == 1
    bare = bobs.removeprefix("bob_")
    refused = [
        ("alice", "GET", "memories", None),
        ("alice", "GET", "memories?scope=user&owner=bob", None),
        ("alice", "GET", f"memories/{bobs}", None),
        ("alice", "GET", f"memories/{bare}?scope=user&owner=bob", None),
        ("alice", "GET", f"memories/{ours}", None),
        ("alice", "GET", "memories/bob_mem_20200101_00000001", None),
        ("alice", "POST", "memories", {"content": "x y z"}),
        ("alice", "POST", "memories", {"content": "x y z", "scope": "user", "owner": "bob"}),
        (
            "alice",
            "POST",
            "memories",
            {"content": "x y z", "scope": "user", "owner": "alice", "agent_id": "bob"},
        ),
        ("alice", "POST", "memories/search", {"query": "reef"}),
        ("alice", "DELETE", f"memories/{hers}", None),
        ("alice", "POST", f"memories/{hers}/pin", None),
        ("alice", "POST", f"memories/{hers}/promote", None),
        ("alice", "POST", "memories/sweep", {}),
        ("alice", "POST", "memories/consolidate", {}),
        ("alice", "POST", "missions/run-1/end", {"success": True}),
        ("alice", "GET", "core", None),
        ("alice", "PUT", "core", {"notes": ["x"]}),
        ("alice", "GET", "skills", None),
        ("alice", "POST", "refresh", {}),
        ("alice", "GET", "doctor", None),
        ("alice", "POST", "ome/trigger", {"name": "extract_facts"}),
        ("acme", "POST", "ome/trigger", {"name": "extract_facts"}),
        ("alice", "GET", f"project/status?path={world.repo}", None),
        ("acme", "GET", f"memories/{ours}", None),
        ("acme", "GET", "memories", None),
        ("acme", "GET", "doctor", None),
        ("reader", "POST", "memories", {"content": "x y z"}),
        ("reader", "PATCH", f"memories/{ours}", {"content": "x y z"}),
        ("reader", "DELETE", f"memories/{ours}", None),
        *(
            ("reader", "POST", f"memories/{ours}/{verb}", None)
            for verb in ("pin", "unpin", "archive", "restore", "promote")
        ),
        ("reader", "POST", f"memories/{ours}/supersede", {"content": "x", "reason": "y"}),
        ("reader", "POST", "memories/sweep", {}),
        ("reader", "POST", "undo", {"run_id": "con_1"}),
        ("reader", "PUT", "core", {"notes": ["x"]}),
        ("reader", "POST", "refresh", {}),
    ]
    for who, method, path, body in refused:
        status, error = world(who, method, path, body)
        assert (status, error["code"]) == (403, "FORBIDDEN"), (who, method, path, error)
    for method, path, body in [
        ("POST", "memories", {"content": "Slipped in by Alice.", "owner": "alice"}),
        ("POST", "memories", {"content": "Slipped in by Alice.", "scope": "project", "owner": "alice"}),
        ("POST", "memories/search", {"query": "reef", "owner": "alice"}),
        ("GET", "memories?scope=project&owner=alice", None),
        ("GET", f"memories/{ours}?scope=project&owner=alice", None),
    ]:
        # An owner beside the project's scope must not pass for the owner of the project's memories.
        status, error = world("alice", method, path, body)
        assert status in {403, 422}, (method, path, error)
        assert "reef map" not in str(error)
    assert world("all", "POST", "memories/search", {"query": "slipped"})[1]["memories"] == []
    assert world("reader", "GET", f"memories/{ours}")[1]["content"] == "The reef map is in the safe."
    assert world("reader", "POST", "memories/sweep", {"dry_run": True})[0] == 200
    assert world("acme", "GET", "memories?app_id=acme")[1]["total"] == 0
    assert world("all", "GET", "doctor")[0] == 200


def test_a_project_is_reached_only_below_the_roots(world):
    """Project routes answer for repositories the server was told about; links and dots do not lead out."""
    status, found = world("all", "GET", f"project/status?path={world.repo}")
    assert status == 200
    assert found["state"]["latestCheckpointId"].startswith("chk-")
    status, found = world(
        "all", "POST", "project/query", {"path": str(world.repo), "question": "what is this"}
    )
    assert status == 200
    assert "answer" in found
    assert world("all", "GET", f"project/validate?path={world.repo}")[1]["ok"] is True
    assert world("all", "POST", "project/consolidate", {"path": str(world.repo)})[1]["noop"] in {True, False}
    for path in (
        world.outside,
        world.base / "repos" / "link",
        f"{world.repo}/../../outside",
        "/etc",
        "/no/such",
    ):
        status, error = world("all", "GET", f"project/status?path={path}")
        assert (status, error["code"]) == (403, "FORBIDDEN"), path
    assert world("all", "GET", f"project/status?path={world.base}/repos/none")[0] == 404
    assert world("all", "GET", "project/status?path=repos/tides")[0] == 422
    status, error = world(
        "all", "POST", "project/query", {"path": str(world.repo), "question": "x", "scope": "moon"}
    )
    assert status == 422


def test_a_project_is_written_over_http_as_by_command(world):
    """What happened is recorded, shown, folded in, asked for, pruned and brought back, below the roots alone."""
    at = {"path": str(world.repo)}

    def call(method: str, path: str, body=None, expect: int = 200):
        status, answer = world("all", method, f"project/{path}", body)
        assert status == expect, (path, answer)
        return answer

    before = call("POST", "update", at)["checkpointId"]
    trap = "ferry: the old pier floods. Use the north pier."
    event = call("POST", "record", {**at, "summary": "Met the pier", "gotchas": [trap]})
    assert event["signals"]["gotchas"] == [trap]
    shown = call("POST", "consolidate", {**at, "section": "gotchas"})
    assert (shown["noop"], shown["applied"], shown["written"]) == (False, False, None)
    assert call("GET", f"status?path={world.repo}")["backlog"]["all"]["count"] == 1, "shown is not folded"
    done = call("POST", "consolidate", {**at, "apply": True})
    assert done["applied"]
    asked = call("POST", "query", {**at, "question": "what traps does the ferry have"})
    assert "north pier" in asked["answer"]
    assert "gotchas" in call("POST", "restore", {**at, "id": before})["changedSections"]
    assert "north pier" not in call("POST", "query", {**at, "question": "what traps are there"})["answer"]

    sessions = world.repo / "sessions"
    sessions.mkdir()
    outside = {**at, "type": "jsonl", "folder": str(world.outside)}
    assert call("POST", "sources", outside, 403)["code"] == "FORBIDDEN"
    added = call("POST", "sources", {**outside, "folder": str(sessions)})
    assert [one["id"] for one in call("GET", f"sources?path={world.repo}")["sources"]] == [added["id"]]
    assert [one["source"] for one in call("POST", "import", at)["reports"]] == [added["id"]]
    assert call("POST", "import", {**at, "ids": ["none"]}, 404)["code"] == "NOT_FOUND"
    call("DELETE", f"sources/{added['id']}?path={world.repo}")
    assert call("GET", f"sources?path={world.repo}")["sources"] == []
    assert call("POST", "prune", {**at, "dry_run": True})["batch"] is None
    assert call("POST", "automate", at)["error"] is None
    runner = call("GET", f"automate?path={world.repo}")
    assert (runner["running"], runner["latestRun"]["error"]) == (False, None)
    assert call("POST", "record", {**at, "summary": ""}, 422)


def test_without_roots_no_project_is_reached(tmp_path):
    """A server that was told of no repository says so, and opens none."""
    with serving_here(tmp_path / "root", env=ENV) as server:
        status, answer = server.call("GET", f"/api/v1/project/status?path={tmp_path}")
        assert (status, answer["error"]["code"]) == (403, "CAPABILITY_UNAVAILABLE")
        assert "server.project_roots" in answer["error"]["message"]
        found = server.post("memory/search", {"user_id": "a", "query": "x", "for_injection": True})[1]["data"]
        assert found["prompt"] == ""


def old_database(path):
    """A file as ADE left it: a memory with its counts, and one that only its legacy table holds."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(
            """create table unified_memories (id text, scope text, category text, content text, status text,
              access_count integer, observation_count integer, embedding blob);
            insert into unified_memories values
              ('n', 'project', 'gotcha', 'The lock of the weir sticks.', 'archived', 2, 3, x'00ff');
            create table memories (id text, content text, status text, access_count integer);
            insert into memories values ('o', 'The old pier burned down in 1920.', 'promoted', 7);"""
        )
        db.commit()
    return path.read_bytes()


def sent(server, data, **fields):
    """A form with a file to the import."""
    said = {"source": "ade", **fields}
    parts = [f'--edge\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in said.items()]
    parts.append('--edge\r\nContent-Disposition: form-data; name="text"; filename="ade.db"\r\n\r\n')
    raw = "".join(parts).encode() + data + b"\r\n--edge--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    return server.call("POST", "/api/v1/memories/import", raw=raw, headers=headers)


def counted(rows):
    return sorted((row["content"], row["status"], row["access_count"]) for row in rows)


CARRIED = [
    ("The lock of the weir sticks.", "archived", 2),
    ("The old pier burned down in 1920.", "promoted", 7),
]


def test_a_database_of_ade_comes_in_by_every_surface(tmp_path, monkeypatch):
    """A36, A69: its bytes to Python, a form over HTTP, its file to the command; status and counts are kept, and it comes in
    once. What is no such database is refused by name, and nothing is written.
    """
    data = old_database(tmp_path / "ade.db")
    with serving_here(tmp_path / "http", env=ENV) as server:
        status, done = sent(server, data, trust="true")
        assert (status, len(done["data"]["kept"])) == (200, 2), done
        assert counted(server.call("GET", "/api/v1/memories?archived=true")[1]["data"]["memories"]) == CARRIED
        assert len(sent(server, data, trust="true")[1]["data"]["known"]) == 2
        for bad, why in (
            (data[:4000] + b"\0" * 96, "database"),
            (b"\xff\xfe\0", "neither UTF-8 text nor"),
            (b"{", "not JSON"),
        ):
            status, told = sent(server, bad)
            assert (status, why in told["error"]["message"]) == (422, True), told
        assert sent(server, data, trust="maybe")[0] == 422
    with cairn.open_blocking(tmp_path / "python", background=False, embedding__provider="none") as memory:
        assert len(memory.memories.import_from("ade", data, trust=True).kept) == 2
        assert counted(memory.memories.list(archived=True).memories) == CARRIED
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    at = ["--root", str(tmp_path / "cli"), "memories"]
    assert main([*at, "import", "--from", "ade", "--trust", str(tmp_path / "ade.db")]) == 0
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main([*at, "list", "--archived", "--json"])
    assert counted(json.loads(said.getvalue())["memories"]) == CARRIED


def test_a_database_that_means_harm_is_not_believed(tmp_path):
    """A view that never ends is not read, and a column that makes much of nothing has an end."""
    endless, bomb = tmp_path / "endless.db", tmp_path / "bomb.db"
    loop = "with recursive n(content) as (select 'x' union all select content from n) select * from n"
    with contextlib.closing(sqlite3.connect(endless)) as db:
        db.execute(f"create view unified_memories as {loop}")
    big = "hex(zeroblob(20000000))"
    with contextlib.closing(sqlite3.connect(bomb)) as db:
        db.execute(f"create table unified_memories (id text, content text as ({big}))")
        db.executemany("insert into unified_memories (id) values (?)", [(str(n),) for n in range(20)])
        db.commit()
    with cairn.open_blocking(tmp_path / "root", background=False, embedding__provider="none") as memory:
        for path, why in ((endless, "no database of ADE"), (bomb, "bytes of text")):
            with pytest.raises(Invalid, match=why):
                memory.memories.import_from("ade", path.read_bytes())
        assert not memory.memories.list(archived=True).memories
