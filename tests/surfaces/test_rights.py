"""Who may do what over HTTP: every route against every kind of token, and sessions against their neighbours."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cairn.aio import AsyncMemory
from cairn.config import load
from cairn.surfaces.http import VERSIONS, build_app
from cairn.web.visitors import is_page
from tests.surfaces.served import repository, serving

CANARY = "quillheron"
SKILL = "---\nname: knots\ndescription: How knots are tied.\n---\n\n1. Tie the knot.\n"
REACH = {
    "all": "rw",
    "reader": "r",
    "alice": "rw owner=alice",
    "bob": "rw owner=bob",
    "sharing-bob": "rw owner=bob share promote pin",
    "acme": "rw app=acme",
    "elsewhere": "rw project=elsewhere",
    "no-share": "rw -share",
    "no-promote": "rw -promote",
    "no-pin": "rw -pin",
    "keeper": "rw admin",
}
BEYOND = ("bob", "acme", "elsewhere")


def secret(who: str) -> str:
    return f"{who}-0123456789abcdef"


@dataclass(frozen=True)
class Case:
    """One route, called about what is Alice's, the project's, or everybody's: who besides is refused."""

    body: Any = None
    query: str = ""
    writes: bool = False
    needs: tuple[str, ...] = ()
    closed: bool = True  # False for what tells of nobody's memory
    admin: bool = False  # only for who has the word
    status: int = 200


SAID = [{"sender_id": "alice", "role": "user", "timestamp": 1780300000000, "content": "Tea, please."}]
PATH = "?path={repo}"
LETS_IN = {"writes": True, "needs": ("share", "promote")}

# Every route of the application has its line here; a new one without fails `test_every_route_has_a_case`.
CASES: dict[tuple[str, str], Case] = {
    ("GET", "/health"): Case(closed=False),
    ("GET", "/ready"): Case(closed=False),
    ("GET", "/metrics"): Case(closed=False),
    ("GET", "/openapi.json"): Case(closed=False),
    ("GET", "/docs"): Case(closed=False),
    ("POST", "/memory/add"): Case({"session_id": "hers", "messages": SAID}, writes=True),
    ("POST", "/memory/flush"): Case({"session_id": "hers"}, writes=True),
    ("POST", "/memory/search"): Case({"user_id": "alice", "query": CANARY, "evidence": 3}),
    ("POST", "/memory/get"): Case({"user_id": "alice", "memory_type": "episode"}),
    ("POST", "/memory/reextract"): Case({"date": "2026-01-01"}, writes=True, needs=("share",)),
    ("POST", "/recall"): Case({"query": CANARY, "user_id": "alice"}),
    ("POST", "/brief"): Case({"user_id": "alice"}),
    ("GET", "/show"): Case(query="?id={id}"),
    ("GET", "/events"): Case(query="?owner=alice"),
    ("GET", "/overview"): Case(closed=False),
    ("GET", "/timeline"): Case(query="?scope=user&owner=alice"),
    ("GET", "/upcoming"): Case(query="?scope=user&owner=alice"),
    ("POST", "/find"): Case({"query": CANARY, "scope": "user", "owner": "alice"}),
    ("GET", "/linked"): Case(query="?id={id}"),
    ("GET", "/connections"): Case(query="?scope=user&owner=alice"),
    ("POST", "/revise"): Case(
        {"id": "{id}", "source": "It was revised.", "expect": "0123456789abcdef"},
        writes=True,
        needs=("promote",),
        status=409,
    ),
    ("GET", "/tasks"): Case(),
    ("GET", "/tasks/{task_id}"): Case(status=404),
    ("POST", "/cascade/quiesce"): Case(writes=True, needs=("share",)),
    ("POST", "/knowledge/documents"): Case(
        {"title": "Nests", "file": f"# Nests\n\nOf the {CANARY}."},
        writes=True,
        needs=("share", "promote"),
        status=201,
    ),
    ("GET", "/knowledge/documents"): Case(),
    ("GET", "/knowledge/documents/{doc_id}"): Case(status=404),
    ("PUT", "/knowledge/documents/{doc_id}"): Case(
        {"title": "Nests", "file": "x"}, writes=True, needs=("share", "promote"), status=404
    ),
    ("PATCH", "/knowledge/documents/{doc_id}"): Case(
        {"title": "Nests"}, writes=True, needs=("share", "promote"), status=404
    ),
    ("DELETE", "/knowledge/documents/{doc_id}"): Case(writes=True, needs=("share", "promote"), status=404),
    ("GET", "/knowledge/topics/{topic_id}"): Case(status=404),
    ("POST", "/knowledge/search"): Case({"query": CANARY}),
    ("GET", "/knowledge/categories"): Case(),
    ("GET", "/knowledge/links"): Case(),
    ("POST", "/knowledge/links"): Case({"path": "{repo}"}, writes=True, needs=("share", "promote")),
    ("DELETE", "/knowledge/links/{name}"): Case(writes=True, needs=("share", "promote"), status=404),
    ("GET", "/index"): Case(),
    ("POST", "/index/sync"): Case({}, writes=True, needs=("share",)),
    ("POST", "/index/failures"): Case({}, writes=True, needs=("share",)),
    ("POST", "/index/rebuild"): Case(writes=True, needs=("share",)),
    ("GET", "/ome"): Case(),
    ("POST", "/ome/switch"): Case({"name": "reflect_episodes"}, writes=True, needs=("share",)),
    ("POST", "/doctor/repair"): Case(writes=True, needs=("share",)),
    ("POST", "/ome/trigger"): Case({"name": "extract_atomic_facts"}, writes=True, needs=("share",)),
    ("GET", "/doctor"): Case(),
    ("POST", "/memories"): Case(
        {"content": "Alice's boat is called Petrel.", "scope": "user", "owner": "alice"}, writes=True
    ),
    ("GET", "/memories"): Case(query="?scope=user&owner=alice"),
    ("POST", "/memories/search"): Case({"query": CANARY, "scope": "user", "owner": "alice"}),
    ("POST", "/memories/import"): Case(
        {"source": "claude", "text": "- Alice keeps a log.", "owner": "alice", "trust": True},
        writes=True,
        needs=("share", "promote"),
    ),
    ("POST", "/memories/forget"): Case({"id": "{id}", "all_owners": True}, writes=True, needs=("share",)),
    ("POST", "/memories/sweep"): Case({}, writes=True, needs=("share",)),
    ("POST", "/memories/consolidate"): Case({}, writes=True, needs=("share", "promote")),
    ("GET", "/memories/{id}"): Case(),
    ("PATCH", "/memories/{id}"): Case({"content": "It was reworded."}, writes=True, needs=("promote",)),
    ("DELETE", "/memories/{id}"): Case(writes=True, needs=("share",)),
    ("POST", "/memories/{id}/skill"): Case(writes=True, needs=("share",), status=422),
    ("POST", "/memories/{id}/supersede"): Case(
        {"content": "It was replaced by this.", "reason": "news"}, writes=True, needs=("promote",)
    ),
    ("POST", "/memories/{id}/pin"): Case(writes=True, needs=("pin",)),
    ("POST", "/memories/{id}/unpin"): Case(writes=True, needs=("pin",)),
    ("POST", "/memories/{id}/archive"): Case(writes=True),
    ("POST", "/memories/{id}/restore"): Case(writes=True, needs=("promote",)),
    ("POST", "/memories/{id}/promote"): Case(writes=True, needs=("promote",)),
    ("POST", "/memories/{id}/outcome"): Case({"success": True}, writes=True, status=422),
    ("GET", "/memories/{id}/procedure"): Case(status=422),
    ("POST", "/captures"): Case(
        {
            "source_type": "intervention",
            "source_key": "k",
            "text": "Always tie the boat twice.",
            "scope": "user",
            "owner": "alice",
        },
        writes=True,
    ),
    ("GET", "/captures"): Case(),
    ("GET", "/agents"): Case(),
    ("GET", "/agents/{agent}"): Case(status=404),
    ("PUT", "/agents/{agent}"): Case({"name": "A"}, writes=True, needs=("promote",)),
    ("PUT", "/agents/{agent}/documents/{document}"): Case({"text": "Dry."}, writes=True, needs=("promote",)),
    ("GET", "/memories/runs"): Case(),
    ("POST", "/daily"): Case({"text": "Low tide."}, writes=True, needs=("share",)),
    ("GET", "/daily"): Case(),
    ("GET", "/memories/{id}/history"): Case(),
    ("GET", "/memories/{id}/why"): Case(),
    ("POST", "/missions/{run}/end"): Case({"success": True}, writes=True, needs=("share",)),
    ("GET", "/core"): Case(),
    ("PUT", "/core"): Case({"notes": ["Mind the tide."]}, writes=True, needs=("share", "promote")),
    ("GET", "/skills"): Case(),
    ("POST", "/skills/scan"): Case({}, writes=True, needs=("share", "promote")),
    ("POST", "/skills/import"): Case(
        {"name": "knots", "text": SKILL}, writes=True, needs=("share", "promote")
    ),
    ("POST", "/refresh"): Case({}, writes=True, needs=("share",)),
    ("GET", "/log"): Case(),
    ("GET", "/checkpoints"): Case(),
    ("POST", "/checkpoints"): Case({"label": "here"}, writes=True, needs=("share",)),
    ("GET", "/diff"): Case(query="?target=chk-000001"),
    ("POST", "/restore"): Case({"target": "chk-000001"}, writes=True, needs=("share",)),
    ("POST", "/undo"): Case({"run_id": "none"}, writes=True, needs=("share", "promote"), status=404),
    ("POST", "/history/fold"): Case({}, writes=True, needs=("share",)),
    ("GET", "/person"): Case(query="?user_id=alice"),
    ("POST", "/person/forget"): Case({"user_id": "nobodys"}, writes=True, needs=("share",), status=404),
    ("GET", "/session"): Case(query="?session_id=hers"),
    ("POST", "/session/forget"): Case({"session_id": "nobodys"}, writes=True, needs=("share",), status=404),
    ("GET", "/status"): Case(),
    ("GET", "/tokens"): Case(admin=True),
    ("POST", "/tokens"): Case({"name": "made-{count}", "rights": "rw admin"}, writes=True, admin=True),
    ("DELETE", "/tokens/{name}"): Case(writes=True, admin=True),
    ("GET", "/audit"): Case(admin=True),
    ("GET", "/project/status"): Case(query=PATH),
    ("GET", "/project/story"): Case(query=PATH),
    ("POST", "/project/query"): Case({"path": "{repo}", "question": "what is this"}),
    ("GET", "/project/validate"): Case(query=PATH),
    ("POST", "/project/consolidate"): Case({"path": "{repo}", "apply": True}, **LETS_IN),
    ("POST", "/project/init"): Case({"path": "{repo}"}, status=409, **LETS_IN),
    ("POST", "/project/update"): Case({"path": "{repo}"}, **LETS_IN),
    ("POST", "/project/record"): Case({"path": "{repo}", "summary": "The dock was mended"}, **LETS_IN),
    ("GET", "/project/sources"): Case(query=PATH),
    ("POST", "/project/sources"): Case(
        {"path": "{repo}", "type": "jsonl", "folder": "{none}"}, status=404, **LETS_IN
    ),
    ("DELETE", "/project/sources/{id}"): Case(query=PATH, status=404, **LETS_IN),
    ("POST", "/project/import"): Case({"path": "{repo}"}, **LETS_IN),
    ("POST", "/project/prune"): Case({"path": "{repo}"}, **LETS_IN),
    ("POST", "/project/restore"): Case({"path": "{repo}", "id": "chk-000001"}, **LETS_IN),
    ("GET", "/project/automate"): Case(query=PATH),
    ("POST", "/project/automate"): Case({"path": "{repo}"}, **LETS_IN),
}


class World:
    """A running server with all the tokens, and what Alice has in it."""

    def __init__(self, server: Any, base: Path) -> None:
        self.server = server
        self.base = base
        self.repo = str(base / "repos" / "tides")
        self.count = 0
        self.numbers = itertools.count()

    def call(self, who: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {secret(who)}"} if who else {}
        return self.server.call(method, path, body, headers=headers)

    def v1(self, who: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, answer = self.call(who, method, f"/api/v1{path}", body)
        return status, answer.get("data") or answer.get("error")

    def fresh(self, *, archived: bool = False) -> str:
        """A promoted memory of Alice's that nobody else has touched."""
        self.count += 1
        body = {
            "content": f"Alice's {CANARY} number {self.count} nests in bay {self.count}.",
            "scope": "user",
        }
        status, verdict = self.v1(
            "all", "POST", "/memories", {**body, "owner": "alice", "status": "promoted"}
        )
        assert status == 200
        made = verdict["memory"]["id"]
        if archived:
            assert self.v1("all", "POST", f"/memories/{made}/archive")[0] == 200
        return made

    def truth(self) -> dict[str, str]:
        """Every file of the root that is no index, cache or lock, by its hash, once the background is done.

        What was found by earlier calls is counted in its own time: that journal is left out.
        """
        assert self.v1("all", "GET", "/log")[0] == 200  # waits until what was done so far is on record
        root = self.base / "root"
        out = {}
        for path in sorted(root.rglob("*")):
            place = path.relative_to(root)
            if path.is_file() and not place.parts[0].startswith(".") and path.name != "access.jsonl":
                out[str(place)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return out


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("rights")
    repository(base / "repos" / "tides")
    env = {
        "CAIRN_SERVER__TOKENS": ";".join(f"{secret(who)} {reach}" for who, reach in REACH.items()),
        "CAIRN_SERVER__PROJECT_ROOTS": str(base / "repos"),
        "CAIRN_EMBEDDING__PROVIDER": "none",
        "CAIRN_STRATEGIES__ENABLED": "false",
    }
    with serving(base / "root", env=env) as server:
        made = World(server, base)
        said = [{**SAID[0], "content": f"My {CANARY} is grey."}]
        assert made.v1("all", "POST", "/memory/add", {"session_id": "hers", "messages": said})[0] == 200
        assert made.v1("all", "POST", "/memory/flush", {"session_id": "hers"})[0] == 200
        said = [{**SAID[0], "content": f"My open {CANARY} is blue."}]
        assert made.v1("all", "POST", "/memory/add", {"session_id": "hers", "messages": said})[0] == 200
        assert made.v1("all", "POST", "/memories", {"content": f"The project's {CANARY}."})[0] == 200
        # The first sweep would come by itself half a minute after the start, in the middle of a case.
        assert made.v1("all", "POST", "/memories/sweep", {})[0] == 200
        assert made.v1("all", "POST", "/checkpoints", {"label": "start"})[0] == 200
        yield made


def filled(world: World, path: str, case: Case, memory: str) -> tuple[str, Any]:
    """The path and body of a case, about `memory`."""
    path = (path + case.query).replace("{id}", memory).replace("{run}", "run-1").replace("{task_id}", "none")
    path = path.replace("{doc_id}", "d_" + 16 * "0").replace("{topic_id}", "d_" + 16 * "0" + "_1")
    path = (
        path.replace("/links/{name}", "/links/nothing")
        .replace("{agent}", "alice")
        .replace("{document}", "soul")
    )
    if "{name}" in path:  # a token that is there to be revoked
        name = f"there-{next(world.numbers)}"
        assert world.v1("keeper", "POST", "/tokens", {"name": name})[0] == 200
        path = path.replace("{name}", name)
    known = {"{repo}": world.repo, "{none}": f"{world.repo}/none", "{id}": memory}
    known["made-{count}"] = f"made-{next(world.numbers)}"
    body = case.body
    if isinstance(body, dict):
        body = {
            name: known.get(value, value) if isinstance(value, str) else value for name, value in body.items()
        }
    return path.replace("{repo}", world.repo), body


def prefixes(path: str) -> tuple[str, ...]:
    return ("",) if path in {"/health", "/ready", "/metrics", "/openapi.json", "/docs"} else VERSIONS


def test_every_route_has_a_case(tmp_path):
    """A route that nobody thought of here would be one whose rights nobody thought of."""
    app: Any = build_app(AsyncMemory(load(tmp_path)), own=False)
    app.app._complete()
    found = set()
    for route in app.app._app.routes:
        if is_page(route.path) or route.path == "/mcp":  # tried in test_page.py and test_mcp_http.py
            continue
        path = next((route.path.removeprefix(v) for v in VERSIONS if route.path.startswith(v)), route.path)
        found |= {(method, path) for method in route.methods - {"HEAD"}}
    assert found == set(CASES)


@pytest.mark.parametrize(("method", "path"), [*CASES], ids=[f"{m} {p}" for m, p in CASES])
def test_a_route_is_refused_to_all_who_may_not(world, method, path):
    """No token, a wrong one, one of another owner, app or project, one for reading, one without the right: each is
    refused by status and code, nothing is written, and no word of Alice's is told.
    """
    case = CASES[method, path]
    target = world.fresh(archived=path.endswith("/restore"))
    before = world.truth()
    for prefix in prefixes(path):
        at, body = filled(world, prefix + path, case, target)
        refused: list[tuple[str | None, int, str]] = []
        if path not in {"/health", "/ready"}:
            refused += [(None, 401, "UNAUTHORIZED"), ("nobody", 401, "UNAUTHORIZED")]
        if case.closed:
            refused += [(who, 403, "FORBIDDEN") for who in BEYOND]
        shared = path == "/core" or path.startswith("/knowledge/")
        if case.closed and not shared:  # "share" reaches the project's own, and no other owner
            refused += [("sharing-bob", 403, "FORBIDDEN")]
        if case.writes:
            refused += [("reader", 403, "FORBIDDEN")]
        refused += [(f"no-{right}", 403, "FORBIDDEN") for right in case.needs]
        if case.admin:
            refused += [(who, 403, "FORBIDDEN") for who in ("all", "reader", "no-pin")]
        for who, status, code in refused:
            got, answer = world.call(who, method, at, body)
            assert (got, answer["error"]["code"]) == (status, code), (who, answer)
            assert CANARY not in str(answer), (who, answer)
    assert world.truth() == before
    for prefix in prefixes(path):
        at, body = filled(world, prefix + path, case, world.fresh(archived=path.endswith("/restore")))
        who = "keeper" if case.admin else "all" if case.writes else "reader"
        got, answer = world.call(who, method, at, body)
        assert got == case.status, answer


# ---------------------------------------------------------------- sessions


def said(who: str, words: str, *, days: int = 0, role: str = "user") -> dict[str, Any]:
    at = 1780300000000 + days * 86_400_000
    return {"sender_id": who, "role": role, "timestamp": at, "content": words}


def words_of(world: World, who: str, owner: str) -> str:
    """All that a token can read of an owner: pages, hits, evidence and open parts."""
    look = {"user_id": owner, "query": CANARY, "evidence": 20, "consistency": "strong", "method": "keyword"}
    calls = [
        world.v1(
            who, "POST", "/memory/get", {"user_id": owner, "memory_type": "episode", "consistency": "strong"}
        ),
        world.v1(who, "POST", "/memory/search", look),
        *(
            world.v1(who, "POST", "/memory/search", {**look, "filters": {"session_id": session}})
            for session in ("hers-alone", "room", "shared-by-accident", "main")
        ),
        world.v1(who, "GET", f"/memories?scope=user&owner={owner}"),
    ]
    assert [status for status, _ in calls] == [200] * len(calls)
    return str(calls)


def test_nobody_joins_a_session_of_somebody_else(world):
    """A token for Bob neither speaks in Alice's open session, nor closes it, nor learns a word of it."""
    hers = {"session_id": "hers-alone", "messages": [said("alice", f"My {CANARY} has a secret nest.")]}
    assert world.v1("alice", "POST", "/memory/add", hers)[0] == 200
    before = world.truth()
    for messages in (
        [said("bob", "x")],
        [said("bob", "x", days=3)],
        [said("bob", "x"), said("bob", "y", days=3)],
        [said("bob", "x", role="assistant")],
    ):
        for more in ({}, {"defer_extraction": True}, {"async_mode": True}, {"idempotency_key": "k"}):
            body = {"session_id": "hers-alone", "messages": messages, **more}
            status, error = world.v1("bob", "POST", "/memory/add", body)
            assert (status, error["code"]) == (403, "FORBIDDEN")
            assert '"hers-alone"' in error["message"]
            assert "another session_id" in error["message"]
    status, error = world.v1("bob", "POST", "/memory/add", hers)
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert world.v1("bob", "POST", "/memory/flush", {"session_id": "hers-alone"})[0] == 403
    assert world.truth() == before
    assert (
        world.v1("alice", "POST", "/memory/flush", {"session_id": "hers-alone"})[1]["status"] == "extracted"
    )
    assert "secret nest" not in words_of(world, "bob", "bob")
    assert "secret nest" in words_of(world, "alice", "alice")


def test_who_begins_a_session_gets_no_share_in_what_others_say(world):
    """Bob begins a session under an id he guessed: whoever speaks for Alice there is refused by name, not mixed in."""
    mine = {"session_id": "main", "messages": [said("bob", "x")]}
    assert world.v1("bob", "POST", "/memory/add", mine)[0] == 200
    hers = {"session_id": "main", "messages": [said("alice", f"My {CANARY} moved on Monday.")]}
    before = world.truth()
    assert world.v1("alice", "POST", "/memory/add", hers)[0] == 403
    status, error = world.v1("all", "POST", "/memory/add", hers)
    assert (status, error["code"]) == (409, "CONFLICT")
    assert '"main"' in error["message"]
    assert "another session_id" in error["message"]
    assert world.truth() == before
    # What an assistant answers him is his, and comes from the application that has him call.
    answered = [said("helper", "At your service.", role="assistant")]
    assert world.v1("all", "POST", "/memory/add", {"session_id": "main", "messages": answered})[0] == 200
    again = {"session_id": "main", "messages": [said("bob", "Thank you.")]}
    assert world.v1("bob", "POST", "/memory/add", again)[0] == 200
    assert world.v1("bob", "POST", "/memory/flush", {"session_id": "main"})[1]["status"] == "extracted"
    assert "moved on Monday" not in words_of(world, "bob", "bob")


def test_an_owner_adds_the_assistants_turn_of_her_own_session(world):
    """Both halves of her talk as a model's client has them; alone it needs her words before it, under no other name."""
    turn = [{"role": "user", "content": "I keep bees."}, {"role": "assistant", "content": "How many hives?"}]
    mine = {"session_id": "bees", "messages": turn, "user_id": "alice"}
    assert world.v1("alice", "POST", "/memory/add", mine)[0] == 200
    more = {"session_id": "bees", "messages": [{"role": "assistant", "content": "And where?"}]}
    assert world.v1("alice", "POST", "/memory/add", more)[0] == 200
    before = world.truth()
    for refused in (
        more | {"session_id": "nobodys"},
        more | {"messages": [said("helper", "And where?", role="assistant")]},
        mine | {"user_id": "bob", "session_id": "his"},
        {"session_id": "unnamed", "messages": turn},  # the settings' person is somebody else
    ):
        assert world.v1("alice", "POST", "/memory/add", refused)[0] == 403
    assert world.v1("bob", "POST", "/memory/add", more)[0] == 403
    assert world.truth() == before
    assert world.v1("alice", "POST", "/memory/flush", {"session_id": "bees"})[1]["status"] == "extracted"
    look = {"user_id": "alice", "query": "who keeps bees", "consistency": "strong"}
    assert "bees" in str(world.v1("alice", "POST", "/memory/search", look))


def test_the_open_part_of_a_session_is_told_to_those_it_belongs_to(world):
    """Two users of one application under one session id: neither's token sees what is open there."""
    first = [said("bob", f"Bob saw a {CANARY}."), said("bob", "That was all.", days=3)]
    assert (
        world.v1("all", "POST", "/memory/add", {"session_id": "shared-by-accident", "messages": first})[0]
        == 200
    )
    assert world.v1("all", "POST", "/memory/flush", {"session_id": "shared-by-accident"})[0] == 200
    look = {"user_id": "bob", "query": CANARY, "filters": {"session_id": "shared-by-accident"}}
    hers = [said("alice", f"Alice's {CANARY} sleeps.", days=9)]
    assert (
        world.v1("all", "POST", "/memory/add", {"session_id": "shared-by-accident", "messages": hers})[0]
        == 200
    )
    look["consistency"] = "strong"
    assert "sleeps" in str(world.v1("all", "POST", "/memory/search", look))
    assert "sleeps" not in words_of(world, "bob", "bob")
    assert world.v1("bob", "POST", "/memory/flush", {"session_id": "shared-by-accident"})[0] == 403


def test_a_trusted_caller_keeps_group_chats(world):
    """Without a limit to owners several people speak in one session, and each has its episode."""
    talk = [
        said("alice", "Shall we meet?"),
        said("bob", "At noon."),
        said("helper", "Noted.", role="assistant"),
    ]
    assert world.v1("all", "POST", "/memory/add", {"session_id": "room", "messages": talk})[0] == 200
    assert world.v1("alice", "POST", "/memory/add", {"session_id": "room", "messages": [talk[0]]})[0] == 403
    assert world.v1("all", "POST", "/memory/flush", {"session_id": "room"})[1]["status"] == "extracted"
    assert "At noon." in words_of(world, "alice", "alice")


def test_nothing_is_to_flush_in_a_session_that_is_not_there(world):
    assert world.v1("bob", "POST", "/memory/flush", {"session_id": "never"})[1]["status"] == "no_extraction"


def test_a_session_stays_closed_after_a_restart(tmp_path):
    """Whose a session is stands in its log: another process knows it, too."""
    tokens = ";".join(f"{secret(who)} {REACH[who]}" for who in ("all", "alice", "bob"))
    env = {"CAIRN_SERVER__TOKENS": tokens, "CAIRN_EMBEDDING__PROVIDER": "none"}
    for turn in (1, 2):
        with serving(tmp_path / "root", env=env) as server:
            world = World(server, tmp_path)
            mine = {"session_id": "s", "messages": [said("bob", f"turn {turn}")]}
            assert world.v1("bob", "POST", "/memory/add", mine)[0] == 200
            hers = {"session_id": "s", "messages": [said("alice", "hello")]}
            assert world.v1("alice", "POST", "/memory/add", hers)[0] == 403
            assert world.v1("all", "POST", "/memory/add", hers)[0] == 409


# ---------------------------------------------------------------- letting in


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"agent_id": "bob"},
        {"agent_id": "bob", "mode": "strict", "pinned": True, "category": "convention"},
        {"scope": "project"},
        {"scope": "project", "agent_id": "bob"},
        {"scope": "user", "owner": "bob", "mode": "strict", "category": "convention"},
        {"scope": "user", "owner": "bob", "pinned": True},
        {"scope": "user", "owner": "bob", "status": "promoted"},
        {"scope": "agent", "agent_id": "bob", "status": "promoted"},
        {"scope": "user", "agent_id": "alice"},
        {"scope": "user", "owner": "bob", "agent_id": "alice"},
        {"scope": "mission", "owner": "run-7"},
    ],
)
def test_an_owner_writes_neither_for_all_nor_past_the_gate(world, body):
    """A token limited to owners writes candidates of theirs: an agent's name makes no owner of the project."""
    before = world.truth()
    status, error = world.v1(
        "bob", "POST", "/memories", {"content": f"Everybody obeys the {CANARY}.", **body}
    )
    assert (status, error["code"]) == (403, "FORBIDDEN")
    assert world.truth() == before


def test_the_word_of_an_agent_is_a_candidate_until_it_is_let_in(world):
    """Without the right nothing the agent says is promoted or rewords what is; with it a person lets it in."""
    mine = {"content": "Tides are read before noon.", "scope": "agent", "agent_id": "bob"}
    status, verdict = world.v1("bob", "POST", "/memories", mine)
    assert (status, verdict["memory"]["status"], verdict["memory"]["origin"]) == (200, "candidate", "agent")
    made = verdict["memory"]["id"]
    assert world.v1("bob", "PATCH", f"/memories/{made}", {"content": "Tides are read at noon."})[0] == 200
    assert world.v1("bob", "POST", f"/memories/{made}/promote")[0] == 403
    assert world.v1("sharing-bob", "POST", f"/memories/{made}/promote")[1]["status"] == "promoted"
    for method, path, body in (
        ("PATCH", f"/memories/{made}", {"content": "Tides are never read."}),
        ("POST", f"/memories/{made}/supersede", {"content": "Tides are never read.", "reason": "x"}),
        ("POST", f"/memories/{made}/pin", None),
    ):
        assert world.v1("bob", method, path, body)[0] == 403
    # Nearly the same again: it is counted, and the words that were let in stay as they are.
    long = "Read the tide table of the north harbour before every single trip out to the far island"
    kept = {"content": f"{long} early.", "scope": "user", "owner": "bob", "status": "promoted"}
    kept = world.v1("sharing-bob", "POST", "/memories", kept)[1]["memory"]["id"]
    near = {"content": f"{long} soon.", "scope": "user", "owner": "bob", "importance": "high"}
    status, verdict = world.v1("bob", "POST", "/memories", near)
    assert (status, verdict["reason"], verdict["memory"]["id"]) == (200, "near_duplicate", kept)
    found = world.v1("bob", "GET", f"/memories/{kept}?scope=user&owner=bob")[1]
    assert (found["content"], found["importance"], found["observation_count"]) == (
        f"{long} early.",
        "medium",
        2,
    )


def test_saying_it_often_does_not_let_it_in(world):
    """However sure of itself and however often an agent says a thing, a sweep lets in only what others confirm."""
    mine = {
        "content": "The lighthouse keeper wants all parcels left at the west door.",
        "scope": "user",
        "owner": "bob",
    }
    for _ in range(6):
        status, verdict = world.v1("bob", "POST", "/memories", {**mine, "confidence": 1.0})
        assert status == 200
    made = verdict["memory"]["id"] + "?scope=user&owner=bob"
    assert world.v1("bob", "PATCH", f"/memories/{made}", {"confidence": 1.0})[0] == 403
    look = {"query": "lighthouse keeper parcels", "scope": "user", "owner": "bob", "consistency": "strong"}

    def promoted_after_a_sweep() -> bool:
        assert world.v1("bob", "POST", "/memories/search", look)[1]["memories"]
        assert world.v1("all", "POST", "/memories/sweep", {})[0] == 200
        return world.v1("bob", "GET", f"/memories/{made}")[1]["status"] == "promoted"

    assert not promoted_after_a_sweep()
    assert world.v1("sharing-bob", "POST", "/memories", mine)[1]["deduped"]
    assert promoted_after_a_sweep()


def test_sharing_is_a_right_of_its_own(world):
    """With it an owner's token reads and writes what is the project's, and still no other owner's."""
    status, verdict = world.v1("sharing-bob", "POST", "/memories", {"content": "The pier is closed in May."})
    assert (status, verdict["memory"]["scope"]) == (200, "project")
    made = verdict["memory"]["id"]
    assert world.v1("sharing-bob", "GET", f"/memories/{made}")[0] == 200
    assert world.v1("bob", "GET", f"/memories/{made}")[0] == 403
    assert world.v1("sharing-bob", "GET", "/memories?scope=project")[0] == 200
    assert world.v1("sharing-bob", "GET", "/memories")[0] == 403
    hers = world.fresh().removeprefix("alice_")
    status, found = world.v1(
        "sharing-bob", "GET", f"/memories/{hers}"
    )  # without its owner: the project's, if any
    assert status == 404 or (status, found["scope"]) == (200, "project")
    assert "alice" not in str(found).lower()
