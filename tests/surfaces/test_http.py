"""The HTTP surface against a real server: shapes of the contract, errors, and what it must never do."""

import concurrent.futures
import http.client
import json
import socket

import pytest

from tests.surfaces.served import serving
from tests.waiting import LONG, until

NOW = 1_780_000_000_000
pytestmark = pytest.mark.xdist_group("http")


def said(text, sender="alice", role="user", at=NOW, **more):
    return {"sender_id": sender, "role": role, "timestamp": at, "content": text, **more}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("root"), env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as running:
        yield running


def remember(server, session, *texts, sender="alice"):
    messages = [said(text, sender, at=NOW + n) for n, text in enumerate(texts)]
    assert server.post("memory/add", {"session_id": session, "messages": messages})[0] == 200
    status, body = server.post("memory/flush", {"session_id": session})
    assert status == 200
    return body["data"]


def find(server, query, user="alice", **more):
    body = {"user_id": user, "query": query, "consistency": "strong", **more}
    status, answer = server.post("memory/search", body)
    assert status == 200, answer
    return answer["data"]


def test_add_answers_in_the_envelope(server):
    """E62, E112: add answers {request_id, data:{message_count, status}}, accumulated until a boundary."""
    status, body = server.post(
        "memory/add", {"session_id": "env", "messages": [said("one"), said("two", at=NOW + 1)]}
    )
    assert status == 200
    assert set(body) == {"request_id", "data"}
    assert body["data"]["message_count"] == 2
    assert body["data"]["status"] == "accumulated"


def test_flush_extracts_once(server):
    """E63, E113: flush answers extracted, and no_extraction when nothing is open."""
    server.post("memory/add", {"session_id": "once", "messages": [said("a harbour in fog")]})
    assert server.post("memory/flush", {"session_id": "once"})[1]["data"]["status"] == "extracted"
    assert server.post("memory/flush", {"session_id": "once"})[1]["data"]["status"] == "no_extraction"


def test_async_mode_is_accepted_and_kept(server):
    """The contract's async_mode answers 202 queued; the message is durable all the same."""
    status, body = server.post(
        "memory/add", {"session_id": "as", "messages": [said("quince jelly")], "async_mode": True}
    )
    assert status == 202
    assert body["data"]["status"] == "queued"
    server.post("memory/flush", {"session_id": "as"})
    assert find(server, "quince", method="keyword")["episodes"]


def test_search_has_five_arrays_and_the_item_shape(server):
    """E114, E117: five arrays always; an episode has the fields of the contract and a public id."""
    remember(server, "shape", "The violin lives in the attic.")
    data = find(server, "violin attic", method="keyword", evidence=2)
    for name in ("episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages"):
        assert isinstance(data[name], list)
    item = data["episodes"][0]
    wanted = {
        "id",
        "user_id",
        "app_id",
        "project_id",
        "session_id",
        "timestamp",
        "sender_ids",
        "summary",
        "subject",
        "episode",
        "type",
        "score",
        "atomic_facts",
    }
    assert wanted <= set(item)
    assert item["id"].startswith("alice_ep_")
    assert item["type"] == "Conversation"
    assert item["app_id"] == item["project_id"] == "default"
    until(lambda: find(server, "violin", method="keyword")["freshness"]["state"] == "fresh")
    evidence = data["evidence"][0]
    assert "violin" in evidence["text"]
    assert evidence["entry_ids"]


def test_get_pages_and_counts(server):
    """E115: pages from 1, exact totals, a far page is empty and no error."""
    for number in range(3):
        remember(server, f"page{number}", f"pagetext {number}", sender="pager")
    body = {"user_id": "pager", "memory_type": "episode", "page_size": 2, "consistency": "strong"}
    first = server.post("memory/get", body)[1]["data"]
    assert (first["total_count"], first["count"], len(first["episodes"])) == (3, 2, 2)
    second = server.post("memory/get", {**body, "page": 2})[1]["data"]
    assert second["count"] == 1
    far = server.post("memory/get", {**body, "page": 10**9})
    assert far[0] == 200
    assert far[1]["data"]["count"] == 0


def test_both_versions_answer(server):
    """Every route exists under /api/v1 and /api/v2."""
    body = {"user_id": "alice", "query": "violin", "method": "keyword"}
    assert server.call("POST", "/api/v2/memory/search", body)[0] == 200


def test_spaces_and_owners_never_meet(server):
    """P7: another app, project or user sees nothing."""
    remember(server, "p7", "the zanzibar secret plan")
    assert find(server, "zanzibar", method="keyword")["episodes"]
    assert not find(server, "zanzibar", user="mallory", method="keyword")["episodes"]
    assert not find(server, "zanzibar", method="keyword", app_id="other")["episodes"]
    assert not find(server, "zanzibar", method="keyword", project_id="other")["episodes"]


def test_unprocessed_messages_when_asked(server):
    """E114: un-extracted messages come only with a plain top-level session_id filter."""
    server.post("memory/add", {"session_id": "open1", "messages": [said("not yet cut")]})
    data = find(server, "anything", filters={"session_id": "open1"})
    assert [item["content"] for item in data["unprocessed_messages"]] == ["not yet cut"]
    assert data["unprocessed_messages"][0]["session_id"] == "open1"
    assert find(server, "anything")["unprocessed_messages"] == []


BAD = [
    ("memory/add", {"session_id": "b", "messages": [said("x", sender="../../etc")]}, "sender_id"),
    ("memory/add", {"session_id": "../../x", "messages": [said("x")]}, "session_id"),
    ("memory/add", {"session_id": "a\0b", "messages": [said("x")]}, "session_id"),
    ("memory/add", {"session_id": "b", "messages": []}, "messages"),
    ("memory/add", {"session_id": "b"}, "messages"),
    ("memory/add", {"session_id": "b", "messages": [said(None)]}, "content"),
    ("memory/add", {"session_id": "b", "messages": [said("x")], "nonsense": 1}, "nonsense"),
    ("memory/add", {"session_id": "b", "messages": [said("x", nonsense=1)]}, "nonsense"),
    ("memory/add", {"session_id": "b", "messages": [said("x", role="system")]}, "system"),
    ("memory/add", {"session_id": "b", "messages": [said("x", at=1_780_000_000)]}, "seconds"),
    ("memory/add", {"session_id": "b", "messages": [said("x", at=-1)]}, "timestamp"),
    ("memory/add", {"session_id": "b", "messages": [said("x", at=10**18)]}, "timestamp"),
    ("memory/add", {"session_id": "b", "messages": [said("x")] * 501}, "messages"),
    ("memory/add", {"session_id": "b", "messages": [said("nul\0")]}, "NUL"),
    (
        "memory/add",
        {"session_id": "b", "messages": [said("x"), said("\ud83d")]},
        "messages[1].content holds half",
    ),
    (
        "memory/add",
        {"session_id": "b", "messages": [said("x", metadata={"a": ["\udc00"]})]},
        "[0].metadata.a[0] holds",
    ),
    (
        "memory/add",
        {"session_id": "b", "messages": [said("x", tool_calls=7)]},
        "messages[0].tool_calls must be a list",
    ),
    ("memory/add", {"session_id": "b", "messages": [said("x")], "app_id": "../x"}, "app_id"),
    ("memory/flush", {"session_id": "b", "x": 1}, "x"),
    ("memory/search", {"query": "x"}, "user_id"),
    ("memory/search", {"user_id": "a", "agent_id": "b", "query": "x"}, "exactly one"),
    ("memory/search", {"user_id": "a", "query": "x", "kinds": [[]]}, "kinds"),
    ("memory/search", {"user_id": "a", "query": "x", "kinds": [5]}, "kinds"),
    ("memory/search", {"user_id": "a", "query": "x", "min_lsn": -(10**400)}, "min_lsn"),
    ("memory/search", {"user_id": "a", "query": "x", "radius": 10**400}, "radius"),
    ("memory/search", {"user_id": "a", "query": "  "}, "query"),
    ("memory/search", {"user_id": "a", "query": "x", "top_k": 0}, "top_k"),
    ("memory/search", {"user_id": "a", "query": "x", "method": "magic"}, "method"),
    ("memory/search", {"user_id": "a", "query": "x", "filters": {"owner_id": "b"}}, "owner_id"),
    ("memory/search", {"user_id": "a", "query": "x" * 70_000}, "characters"),
    ("memory/search", {"user_id": "a", "query": "x", "as_of": "2026-13-45"}, "as_of"),
    ("memory/search", {"user_id": "a", "query": "x", "as_of": "0001-01-01T00:00:00+14:00"}, "as_of"),
    ("memory/search", {"user_id": "a", "query": "x", "top_k": 10**30}, "top_k"),
    ("memory/search", {"user_id": "a", "query": "x", "token_budget": -1}, "token_budget"),
    (
        "memory/search",
        {"user_id": "a", "query": "x", "filters": {"timestamp": {"gte": "2026-13-45"}}},
        "timestamp",
    ),
    ("memory/get", {"user_id": "a", "memory_type": "foo"}, "memory_type"),
    ("memory/get", {"user_id": "a", "memory_type": "episode", "page": 0}, "page"),
    ("memory/get", {"user_id": "a", "memory_type": "episode", "sort_by": "luck"}, "sort_by"),
    ("memory/get", {"user_id": "a", "memory_type": "episode", "filters": {"timestamp": 1e300}}, "timestamp"),
]


@pytest.mark.parametrize(("name", "body", "word"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_named_and_refused(server, name, body, word):
    """Every bad input is a 422 in the envelope that names the field, and nothing is written."""
    status, answer = server.post(name, body)
    assert status == 422, answer
    assert answer["error"]["code"] == "INVALID_INPUT"
    assert word in answer["error"]["message"]
    assert answer["error"]["path"] == f"/api/v1/{name}"


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{bad", None, 400),
        (b"", None, 400),
        (b"[]", None, 422),
        (b"\xff\xfe{}", None, 400),
        (b"[" * 5000 + b"]" * 5000, None, 400),
        (
            b'{"session_id": "twice", "messages": [{"role": "user", "content": "a", "content": "b"}]}',
            None,
            400,
        ),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Host": "evil.example"}, 403),
        (b"{}", {"Origin": "https://evil.example"}, 403),
    ],
)
def test_malformed_requests_have_the_envelope(server, raw, headers, status):
    """Broken JSON, wrong types, foreign hosts and origins: always the one envelope."""
    got, answer = server.call("POST", "/api/v1/memory/add", raw=raw, headers=headers)
    assert got == status
    assert set(answer) == {"request_id", "error"}


def test_a_body_may_begin_with_the_mark_of_its_order(server):
    """Some programs put a byte order mark before UTF-8; a parser may pass over it, and does."""
    raw = "\ufeff" + json.dumps({"session_id": "marked", "messages": [said("x")]})
    assert server.call("POST", "/api/v1/memory/add", raw=raw.encode())[0] == 200


def test_framework_errors_have_the_envelope(server):
    """E112: 404 and 405 of the framework look like every other error."""
    status, answer = server.call("POST", "/api/v1/memory/nope", {})
    assert (status, answer["error"]["code"]) == (404, "NOT_FOUND")
    status, answer = server.call("GET", "/api/v1/memory/add")
    assert status == 405
    assert "request_id" in answer


def test_health_and_metrics_and_docs(server):
    """Health has the contract's blocks, metrics are Prometheus text, the description is served."""
    status, health = server.call("GET", "/health")
    assert status == 200
    assert health["status"] == "ok"
    assert {"healthy", "reasons", "pending", "failed_permanent"} <= set(health["cascade"])
    until(lambda: server.call("GET", "/ready")[0] == 200)  # alive is not ready: an index is made first
    assert server.call("GET", "/ready")[1]["ready"] is True
    status, text = server.call("GET", "/metrics")
    assert status == 200
    assert 'cairn_requests_total{route="/health",status="200"}' in text
    assert server.call("GET", "/openapi.json")[1]["openapi"].startswith("3.1")
    assert "<html" in server.call("GET", "/docs")[1]


def listened(server, wanted, *, headers=None, do=lambda: None):
    """What a stream of events says until `wanted` kinds of ida's have come; `do` runs once it has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG)
    connection.request("GET", "/api/v1/events", headers={"Accept": "text/event-stream", **(headers or {})})
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.readline().startswith(b"retry:")
    do()
    found = []
    try:
        while not wanted <= {event["event"] for event in found if event.get("owner") == "ida"}:
            line = answer.readline()
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
    finally:
        connection.close()
    return found


def test_events_are_told_as_they_happen(server):
    """A56: a kept memory and the file it went to are told to whoever listens, and again to who lost the connection."""
    begin = server.call("GET", "/api/v1/events")[1]["data"]["last"]

    def keep():
        body = {"content": "The lighthouse keeper whistles at noon.", "scope": "user", "owner": "ida"}
        assert server.post("memories", body)[0] == 200

    found = listened(server, {"memory_inserted", "memory_upserted", "changed"}, do=keep)
    told = next(event for event in found if event["event"] == "memory_upserted")
    assert (told["scope"], told["owner"]) == ("user", "ida")
    assert told["memory"]["content"] == "The lighthouse keeper whistles at noon."
    file = next(event for event in found if event["event"] == "changed" and event["owner"] == "ida")
    assert (file["kind"], file["path"]) == ("memory", told["memory"]["path"])
    again = listened(server, {"memory_upserted"}, headers={"Last-Event-ID": str(begin)})
    assert told in again
    page = server.call("GET", f"/api/v1/events?after={begin}&owner=ida")[1]["data"]
    assert {event["owner"] for event in page["events"]} == {"ida"}
    assert page["last"] >= told["id"]
    # A number of another life of the server: nobody knows what came since.
    assert server.call("GET", "/api/v1/events?after=1")[1]["data"]["events"][0]["event"] == "missed"
    assert server.call("GET", "/api/v1/events?after=-1")[0] == 422


def test_a_slow_client_starves_nobody(server):
    """A client that trickles its body holds up only itself."""
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(
            b"POST /api/v1/memory/add HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(lambda _: server.call("GET", "/health")[0], range(40)))
        assert codes == [200] * 40, "answered while the other still trickles"


def test_keep_alive_survives_a_refusal(server):
    """A refused call leaves its connection usable."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG)
    try:
        for body, status in ((b"{bad", 400), (json.dumps({"session_id": "never"}).encode(), 200)):
            connection.request("POST", "/api/v1/memory/flush", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    finally:
        connection.close()


def test_a_token_is_needed_and_limits(tmp_path):
    """With tokens every call needs one, and a limited one reaches only its own."""
    secret, reader = "w" * 20, "r" * 20
    tokens = f"{secret} rw;{reader} r owner=alice"
    env = {"CAIRN_SERVER__TOKENS": tokens, "CAIRN_EMBEDDING__PROVIDER": "none"}
    with serving(tmp_path, env=env) as server:
        add = {"session_id": "t", "messages": [said("token text")]}
        assert server.post("memory/add", add)[0] == 401
        assert server.post("memory/add", add, headers={"Authorization": f"Bearer {reader}"})[0] == 403
        assert server.post("memory/add", add, headers={"Authorization": f"Bearer {secret}"})[0] == 200
        look = {"user_id": "alice", "query": "token"}
        assert server.post("memory/search", look, headers={"Authorization": f"Bearer {reader}"})[0] == 200
        look["user_id"] = "bob"
        assert server.post("memory/search", look, headers={"Authorization": f"Bearer {reader}"})[0] == 403
        assert server.call("GET", "/health")[0] == 200
