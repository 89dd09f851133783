"""The HTTP contract whole: every path of it answers, under both versions, with the fields that clients read."""

from __future__ import annotations

import jsonschema
import pytest

from tests.surfaces.served import serving_here

SAID = {
    "sender_id": "alice",
    "role": "user",
    "timestamp": 1_780_000_000_000,
    "content": "The heron nests by the weir.",
}
TIDES = "# Tides\n\nThe moon pulls the sea.\n\n## Springs\n\nHighest at new moon.\n\n### Gauges\n\nRead at noon.\n"
ENVELOPE = {"request_id", "data"}
DOCUMENT = {"doc_id", "category_id", "title"}
TOPIC = {"topic_id", "topic_name", "topic_path", "depth", "summary"}
pytestmark = pytest.mark.xdist_group("http")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    env = {"CAIRN_EMBEDDING__PROVIDER": "hashing", "CAIRN_STRATEGIES__ENABLED": "false"}
    with serving_here(tmp_path_factory.mktemp("contract"), env=env) as running:
        yield running


def form(**fields):
    """A body of multipart/form-data; a pair is a file with its name."""
    lines = []
    for name, value in fields.items():
        file, data = value if isinstance(value, tuple) else ("", value)
        more = f'; filename="{file}"' if file else ""
        lines.append(f'--edge\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{data}\r\n')
    return "".join([*lines, "--edge--\r\n"]).encode()


def send(server, method, path, **fields):
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    return server.call(method, path, headers=headers, raw=form(**fields))


@pytest.mark.parametrize("version", ["/api/v1", "/api/v2"])
def test_documents_come_and_go_as_the_contract_says(server, version):
    """E17, E112, E120: a document is sent as a form, listed, shown with its topics, found, changed and removed."""
    at = f"{version}/knowledge/documents"
    where = {"title": "Tide tables", "category_id": "sea", "project_id": version[5:]}
    status, made = send(server, "POST", at, file=("tides.md", TIDES), **where)
    assert (status, set(made)) == (201, ENVELOPE)
    data = made["data"]
    fields = {"doc_id", "category_id", "topic_count", "source_name", "md_path", "original_file_path"}
    assert fields <= set(data)
    assert (data["topic_count"], data["source_name"], data["original_file_path"]) == (3, "tides.md", None)
    query = f"?project_id={version[5:]}"
    status, page = server.call("GET", f"{at}{query}&category_id=sea&sort_by=title&sort_order=asc")
    assert (status, set(page)) == (200, ENVELOPE)
    assert {"documents", "total", "page", "page_size"} <= set(page["data"])
    assert page["data"]["documents"][0].keys() >= DOCUMENT | {"topic_count", "created_at"}
    status, shown = server.call("GET", f"{at}/{data['doc_id']}{query}")
    more = {
        "summary",
        "source_name",
        "source_type",
        "original_file_path",
        "topics",
        "created_at",
        "updated_at",
    }
    assert status == 200
    assert shown["data"].keys() >= DOCUMENT | more
    assert [topic["topic_name"] for topic in shown["data"]["topics"]] == ["Tides", "Springs", "Gauges"]
    assert all(topic.keys() >= TOPIC for topic in shown["data"]["topics"])
    topic_id = shown["data"]["topics"][1]["topic_id"]
    status, topic = server.call("GET", f"{version}/knowledge/topics/{topic_id}{query}")
    more = {"doc_id", "category_id", "content", "content_labels", "parent_topic_id", "children_topic_ids"}
    assert status == 200
    assert topic["data"].keys() >= TOPIC | more | {"created_at", "updated_at"}
    assert topic["data"]["content"] == "Highest at new moon."
    assert topic["data"]["parent_topic_id"] == f"{data['doc_id']}_0"
    assert topic["data"]["children_topic_ids"] == [f"{data['doc_id']}_2"]
    asked = {"query": "highest at new moon", "include_content": True, "project_id": version[5:]}
    status, found = server.call("POST", f"{version}/knowledge/search", asked)
    assert status == 200
    assert found["data"].keys() >= {"hits", "total", "took_ms"}
    hit = found["data"]["hits"][0]
    more = {"category_id", "content", "score", "retrieval_method", "source", "document"}
    assert hit.keys() >= TOPIC | more
    assert hit["document"].keys() == {"doc_id", "title", "summary"}
    assert (hit["topic_id"], hit["content"]) == (topic_id, "Highest at new moon.")
    status, listed = server.call("GET", f"{version}/knowledge/categories{query}")
    wanted = {"category_id": "sea", "description": "", "document_count": 1}
    assert (status, listed["data"]["categories"]) == (200, [wanted])
    body = {"title": "Tides of the sea", "project_id": version[5:]}
    status, done = server.call("PATCH", f"{at}/{data['doc_id']}", body)
    assert status == 200
    assert done["data"].keys() == {"doc_id", "updated_fields", "updated_at"}
    assert done["data"]["updated_fields"] == ["title"]
    status, done = send(
        server, "PUT", f"{at}/{data['doc_id']}", file=("t.html", "<h1>Ebb</h1><p>Out."), **where
    )
    assert (status, done["data"]["doc_id"], done["data"]["topic_count"]) == (200, data["doc_id"], 1)
    assert server.call("DELETE", f"{at}/{data['doc_id']}{query}")[0] == 200
    assert server.call("GET", f"{at}/{data['doc_id']}{query}")[0] == 404
    assert server.call("GET", f"{at}{query}")[1]["data"]["total"] == 0


def test_bad_documents_are_refused_and_leave_the_old_one(server):
    """No file, no title, an unknown form field, a damaged PDF, an unknown ending: a 4xx that names it, nothing changed."""
    at = "/api/v1/knowledge/documents"
    kept = send(server, "POST", at, file=("kept.md", "# Kept\n\nStill here.\n"), title="Kept")[1]["data"][
        "doc_id"
    ]
    for fields, word in (
        ({"title": "x"}, "file"),
        ({"file": ("a.md", "x")}, "title"),
        ({"file": ("a.md", "x"), "title": "---"}, "title"),
        ({"file": ("a.md", "x"), "title": "x", "colour": "red"}, "colour"),
        ({"file": ("a.pdf", "%PDF-1.4 nothing"), "title": "x"}, "a.pdf"),
        ({"file": ("a.png", "x"), "title": "x"}, "a.png"),
        ({"file": ("a.md", "x"), "title": "x", "category_id": "../up"}, "category"),
    ):
        for method, path in (("POST", at), ("PUT", f"{at}/{kept}")):
            status, answer = send(server, method, path, **fields)
            assert status == 422, (fields, answer)
            assert word in answer["error"]["message"]
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    assert server.call("POST", at, headers=headers, raw=b"no form at all")[0] in {400, 422}
    assert server.call("GET", f"{at}/d_nonsense")[0] == 422
    shown = server.call("GET", f"{at}/{kept}")[1]["data"]
    assert shown["topics"][0]["summary"] == "Still here."


def test_talk_is_told_as_tasks_and_the_index_comes_to_rest(server):
    """E112: tasks say what waits and what is done; quiesce answers with its own fields, beside the envelope and in it."""
    server.post("memory/add", {"session_id": "t", "messages": [SAID]})
    status, page = server.call("GET", "/api/v1/tasks?session_id=t")
    assert status == 200
    assert page["data"].keys() == {"total", "page", "page_size", "items"}
    waiting = page["data"]["items"][0]
    assert waiting.keys() >= {"id", "status", "task_type", "error", "error_code", "created_at", "finished_at"}
    assert (waiting["status"], waiting["task_type"]) == ("queued", "memory_add")
    server.post("memory/flush", {"session_id": "t"})
    done = server.call("GET", "/api/v2/tasks?session_id=t&status=success")[1]["data"]["items"]
    assert [one["task_type"] for one in done] == ["memory_flush"]
    assert server.call("GET", f"/api/v1/tasks/{done[0]['id']}")[1]["data"] == done[0]
    assert server.call("GET", "/api/v1/tasks/none")[0] == 404
    server.post("memory/add", {"session_id": "elsewhere", "app_id": "bay", "messages": [SAID]})
    (there,) = server.call("GET", "/api/v1/tasks?app_id=bay")[1]["data"]["items"]
    assert server.call("GET", f"/api/v1/tasks/{there['id']}")[1]["data"] == there, "an id needs no space"
    wanted = {"quiesced", "drained", "pending_before", "pending_after", "failed_permanent"}
    for version in ("v1", "v2"):
        status, answer = server.call("POST", f"/api/{version}/cascade/quiesce")
        assert status == 200
        assert answer.keys() >= wanted
        assert answer["data"].keys() == wanted
        assert (answer["quiesced"], answer["pending_after"]) == (True, 0)
    status, answer = server.post("ome/trigger", {"name": "extract_atomic_facts", "force": True})
    assert answer.keys() >= {"status", "name", "dispatched", "runs"}


# Every call of the contract below a version: method, path, body, status, and what clients read of the answer.
CALLS = [
    ("POST", "memory/add", {"session_id": "c", "messages": [SAID]}, 200, "message_count status"),
    (
        "POST",
        "memory/add",
        {"session_id": "d", "messages": [SAID], "async_mode": True},
        202,
        "status message_count pending",
    ),
    ("POST", "memory/add", {"session_id": "c", "messages": []}, 422, ""),
    ("POST", "memory/flush", {"session_id": "c"}, 200, "status"),
    ("POST", "memory/flush", {}, 422, ""),
    (
        "POST",
        "memory/search",
        {"user_id": "alice", "query": "heron", "filters": {"session_id": "c"}},
        200,
        "episodes profiles agent_cases agent_skills unprocessed_messages",
    ),
    ("POST", "memory/search", {"user_id": "alice", "query": "heron", "colour": "red"}, 422, ""),
    (
        "POST",
        "memory/get",
        {"user_id": "alice", "memory_type": "episode"},
        200,
        "episodes profiles agent_cases agent_skills total_count count",
    ),
    ("POST", "memory/get", {"user_id": "alice", "memory_type": "dream"}, 422, ""),
    (
        "POST",
        "ome/trigger",
        {"name": "extract_atomic_facts", "force": True},
        200,
        "status name dispatched runs",
    ),
    ("POST", "ome/trigger", {}, 422, ""),
    ("GET", "knowledge/documents", None, 200, "documents total page page_size"),
    ("GET", "knowledge/documents?page=0", None, 422, ""),
    ("GET", "knowledge/documents/{doc_id}", None, 200, "doc_id category_id title summary topics"),
    ("GET", "knowledge/topics/{topic_id}", None, 200, "topic_id doc_id topic_name topic_path content"),
    (
        "PATCH",
        "knowledge/documents/{doc_id}",
        {"title": "Herons"},
        200,
        "doc_id updated_fields updated_at",
    ),
    ("PATCH", "knowledge/documents/{doc_id}", {"title": ""}, 422, ""),
    ("POST", "knowledge/search", {"query": "weir"}, 200, "hits total took_ms"),
    ("POST", "knowledge/search", {"query": ""}, 422, ""),
    ("GET", "knowledge/categories", None, 200, "categories"),
    (
        "POST",
        "cascade/quiesce",
        None,
        200,
        "quiesced drained pending_before pending_after failed_permanent",
    ),
    ("GET", "tasks?session_id=c", None, 200, "total page page_size items"),
    ("GET", "tasks?status=dream", None, 422, ""),
    ("GET", "tasks/{task_id}", None, 200, "id status task_type created_at"),
    ("DELETE", "knowledge/documents/{doc_id}", None, 200, ""),
]


@pytest.mark.parametrize("version", ["/api/v1", "/api/v2"])
def test_every_path_of_the_contract_answers_in_its_shape(server, version):
    """E112-E115, E120: each call has the status of the contract, the fields clients read, and the shape that the server's
    own description promises.
    """
    described = server.call("GET", "/openapi.json")[1]
    called, told, wrong = set(), {}, []

    def fits(method, template, status, answer):
        called.add((method.lower(), template))
        promised = described["paths"][template][method.lower()]["responses"]
        shape = promised.get(str(status)) or promised[f"{status // 100}XX"]
        schema = shape["content"]["application/json"]["schema"]
        checker = jsonschema.Draft202012Validator({"components": described["components"], **schema})
        wrong.extend(f"{method} {template}: {error.message}" for error in checker.iter_errors(answer))

    at = f"{version}/knowledge/documents"
    status, made = send(server, "POST", at, file=("h.md", "# Herons\n\nThey nest by the weir.\n"), title="H")
    assert status == 201
    fits("POST", at, status, made)
    ids = {"doc_id": made["data"]["doc_id"]}
    ids["topic_id"] = f"{ids['doc_id']}_0"
    status, answer = send(server, "PUT", f"{at}/{ids['doc_id']}", file=("h.md", "# Herons\n"), title="H")
    assert status == 200
    fits("PUT", f"{at}/{{doc_id}}", status, answer)
    for method, path, body, wanted, fields in CALLS:
        if "{task_id}" in path:
            ids["task_id"] = told["tasks"]["items"][0]["id"]
        template = f"{version}/{path.partition('?')[0]}"
        status, answer = server.call(method, f"{version}/{path}".format(**ids), body)
        assert status == wanted, (method, path, answer)
        fits(method, template, status, answer)
        if wanted == 422:
            assert answer["error"]["message"] and answer["error"]["code"], path
            continue
        assert set(fields.split()) <= answer["data"].keys(), (method, path)
        told[path.partition("?")[0]] = answer["data"]
    status, answer = server.call("GET", "/health")
    assert status == 200
    assert answer.keys() >= {
        "status",
        "version",
        "capabilities",
        "disabled_features",
        "cascade",
        "memorize_queue",
    }
    assert answer["cascade"]["index_rows"]["episode"] >= 1
    assert answer["cascade"]["index_emptied"] is False
    fits("GET", "/health", status, answer)
    assert server.call("GET", "/metrics")[0] == 200
    assert len(called) == 18
    assert wrong == []
