"""The page over HTTP: who may see and change what, and what hostile text becomes. The browser is in `test_browser.py`."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

import cairn
from cairn.config import load
from cairn.engines import sizes
from cairn.memory import Memory
from cairn.rights import OPEN
from cairn.web import marking
from cairn.web.desk import Desk
from cairn.web.pages import WebPages
from cairn.web.views import VIEWS
from cairn.web.visitors import Visitors
from tests.surfaces.served import serving
from tests.waiting import LONG, until

NASTY = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> [click](javascript:alert(1)) "
    "[data](data:text/html,<script>) [vb](vbscript:x) \u202egnp.exe\u202c ![i](http://elsewhere/x.png) [ok](https://example.org/)"
)
ENV = {"CAIRN_EMBEDDING__PROVIDER": "none", "CAIRN_STRATEGIES__ENABLED": "false"}


class Seen(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


class Visitor:
    """A browser without scripts: one cookie, forms by hand."""

    def __init__(self, port, cookie=""):
        self.port, self.cookie = port, cookie

    def call(self, method, path, fields=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        given = {"Cookie": self.cookie} if self.cookie else {}
        body = urlencode(fields) if isinstance(fields, dict) else fields
        if isinstance(fields, dict):
            given["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body, given | headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        self.headers = answer.headers
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return answer.status, text

    def get(self, path):
        return self.call("GET", path)

    @property
    def secret(self):
        """What a form of this visit carries."""
        form = re.search(r'name="form" value="([^"]+)"', self.get("/view/health")[1])
        return form[1] if form else ""

    def post(self, act, **fields):
        """Send a form of this visit, as its script would."""
        given = {"form": self.secret, **fields}
        return self.call("POST", f"/view/do/{act}", given, Accept="application/json")

    def upload(self, name, data, **fields):
        """Send a form with a file, as a browser without a script does."""
        parts = [
            f'--XX\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
            for key, value in fields.items()
        ]
        parts.append(f'--XX\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n')
        body = "".join(parts).encode() + data + b"\r\n--XX--\r\n"
        return self.call(
            "POST", "/view/do/upload", body, **{"Content-Type": "multipart/form-data; boundary=XX"}
        )


def said(who, text, n=0):
    return [{"sender_id": who, "role": "user", "timestamp": 1780300000000 + n * 86_400_000, "content": text}]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("page") / "root"
    with Memory(
        load(place, embedding__provider="none", strategies__enabled=False), background=False
    ) as memory:
        memory.add("s1", said("alice", "I moved to Lisbon and bought a boat called Petrel."))
        memory.flush("s1")
        memory.add("s2", said("bo", f"My quillheron is grey. {NASTY}", 1))
        memory.flush("s2")
        memory.remember("Deploys wait for the migration job.", "gotcha")
        memory.remember("The tide table has leap seconds.", origin="agent")
        manual = place.parent / "tides.md"
        manual.write_text("# Tides\n\n## Springs\n\nThe water is <b>high</b> at noon.\n")
        memory.knowledge_add([str(manual)], category="manuals")
        memory.sync()
    return place


@pytest.fixture(scope="module")
def server(root):
    with serving(root, env={**ENV, "CAIRN_SERVER__PROJECT_ROOTS": str(root.parent / "folders")}) as running:
        yield running


@pytest.fixture(scope="module")
def owner(server, root):
    """Somebody who came by `cairn open`."""
    visitor = Visitor(server.port)
    code = Visitors(load(root).server_dir).offer()
    assert visitor.get(f"/view/open?code={code}")[0] == 303
    cookie = visitor.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert Visitor(server.port).get(f"/view/open?code={code}")[0] == 403  # the link works once
    return visitor


def test_cairn_open_uses_the_server_that_runs(server, root):
    """The command finds the server of this root and prints a link that lets in, once."""
    command = [
        sys.executable,
        "-m",
        "cairn.surfaces.cli",
        "--root",
        str(root),
        "open",
        "--no-browser",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    link = json.loads(done.stdout)["link"]
    assert link.startswith(f"http://127.0.0.1:{server.port}/view/open?code=")
    visitor = Visitor(server.port)
    assert visitor.get(link.partition(str(server.port))[2])[0] == 303
    assert "You may change what is here" in visitor.get("/")[1]


def test_who_only_looks_changes_nothing(server):
    """Without a link or `--write` everything is shown and no form is there; one sent by hand is refused."""
    visitor = Visitor(server.port)
    for path in (
        "/",
        "/?q=boat",
        "/view/people",
        "/view/who?scope=user&owner=alice",
        "/view/review",
        "/view/project",
        "/view/knowledge",
        "/view/health",
        "/view/map",
    ):
        status, text = visitor.get(path)
        assert status == 200, path
        assert 'method="post"' not in text, path
        assert "script-src 'self'" in visitor.headers["content-security-policy"]
        assert visitor.headers["cache-control"] == "no-store"
        assert len(text) < 150_000
    assert "Petrel" in visitor.get("/?q=boat")[1]
    listed = visitor.get("/view/knowledge?ask=noon")[1]
    topic = re.search(r'href="(/view/document\?[^"]+topic=[^"]+)"', listed)[1].replace("&amp;", "&")
    assert "is &lt;b&gt;high&lt;/b&gt; at noon" in visitor.get(topic)[1]
    assert visitor.post("remember", content="A stranger was here.")[0] == 403
    assert visitor.get("/view/none")[0] == 404
    assert visitor.get("/view/entry?id=../../etc/passwd")[0] in {404, 422}


def test_pages_of_others_reach_nothing(server, owner):
    """Another origin, a framing page and a form without the secret of the visit are refused."""
    assert owner.call("GET", "/", Host="evil.example")[0] == 403
    assert owner.call("POST", "/view/do/remember", {"content": "x"}, Origin="http://evil.example")[0] == 403
    for guess in ("guess", "", "ｇｕｅｓｓ", "\U0001f511" * 50):
        status, text = owner.call("POST", "/view/do/remember", {"content": "It was forged.", "form": guess})
        assert status == 403 and "not of this visit" in text
    assert owner.get("/")[0] == 200 and "frame-ancestors 'none'" in owner.headers["content-security-policy"]


def test_hostile_text_is_text(server, owner):
    """Stored markup, links to code and signs that turn the direction come out harmless in every view that shows them."""
    found = re.search(r'href="(/view/entry\?id=bo_ep[^"]+)"', owner.get("/?q=quillheron")[1])
    assert found
    for path in ("/", "/?q=quillheron", found[1], "/view/who?scope=user&owner=bo"):
        text = owner.get(path)[1]
        assert "quillheron" in text.replace("<mark>", "").replace("</mark>", ""), path
        tags = Seen(text).tags
        for tag, attributes in tags:
            assert not any(name.startswith("on") for name in attributes), (path, tag, attributes)
            assert tag != "img" or attributes["src"].startswith("/view/static/"), (path, attributes)
            address = (attributes.get("href") or "/").lower()
            assert address.startswith(("/", "#", "https://example.org/", "http://elsewhere/")), (
                path,
                address,
            )
        scripts = [attributes for tag, attributes in tags if tag == "script"]
        assert [one["src"].partition("?")[0] for one in scripts] == ["/view/static/page.js"], path
        assert "\u202e" not in text and "[U+202E]" in text, path


def test_an_entry_is_put_right_and_found_so(owner):
    """An edit is saved, found, and undone by its history; what was changed meanwhile is a conflict that shows both."""
    page = owner.get("/?q=boat")[1]
    name = re.search(r'href="/view/entry\?id=(alice_ep[^"]+)"', page)[1]
    text = owner.get(f"/view/entry?id={name}&edit=1")[1]
    assert "What was said" not in text and "Petrel" in text
    expect = re.search(r'name="expect" value="(\w+)"', text)[1]
    source = "### Subject\nA boat\n\n### Content\nAlice has a boat called Kittiwake.\n"
    status, answer = owner.post("revise", id=name, expect=expect, source=source)
    told = json.loads(answer)
    assert status == 200 and told["undo"].startswith("ent-")
    assert "Kittiwake" in owner.get(f"/view/entry?id={name}")[1]
    status, answer = owner.post("revise", id=name, expect=expect, source="### Content\nMine instead.\n")
    assert status == 409 and "Mine instead." in answer and "Kittiwake" in answer
    status, answer = owner.post("revise", id=name, expect="x", source="<!-- entry:ep_20260101_00000009 -->")
    assert status == 409
    assert owner.post("restore", target=told["undo"])[0] == 200
    text = owner.get(f"/view/entry?id={name}")[1]
    assert "Petrel" in text and "+Alice has a boat called Kittiwake." in text  # the history tells of it


def test_a_candidate_is_reviewed_and_taken_back(owner):
    """Keeping lets a candidate in; undoing puts it back into the inbox."""
    page = owner.get("/view/review")[1]
    name = re.search(r'data-id="([^"]+)"', page)[1]
    told = json.loads(owner.post("keep", id=name, scope="project")[1])
    assert name not in owner.get("/view/review")[1]
    assert owner.post("restore", target=told["undo"])[0] == 200
    assert name in owner.get("/view/review")[1]


def test_a_server_without_visitors_loads_no_page():
    """What the page needs is imported when somebody first looks at it."""
    loaded = "import cairn.surfaces.http, sys; print(sorted({'jinja2', 'markdown_it', 'cairn.web.pages'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=LONG
    )
    assert done.stdout.strip() == "[]"


def test_what_contradicts_is_reviewed(owner):
    """A memory that says otherwise than another comes up first."""
    owner.post("remember", content="The harbour office opens at nine.")
    other = json.loads(owner.post("remember", content="The harbour office does not open at nine.")[1])["to"]
    text = owner.get("/view/review")[1]
    assert text.count("says otherwise than another") == 2
    name = other.partition("id=")[2]
    assert owner.post("keep", id=name)[0] == 200  # both may stand: who keeps one has seen the other
    assert owner.get("/view/review")[1].count("says otherwise than another") == 1
    assert "Contradicts" in owner.get(other)[1]
    assert owner.post("archive", id=name)[0] == 200
    assert "says otherwise than another" not in owner.get("/view/review")[1]


def test_what_contradicts_is_told_before_it_is_indexed(tmp_path, monkeypatch):
    """The other memory is shown from its note, as its row would show it: who looks at once misses nothing."""
    settings = load(tmp_path / "root", embedding__provider="none", strategies__enabled=False)
    with Memory(settings, background=False) as memory:
        told = [
            memory.remember(f"The harbour office {what}.")
            for what in ("opens at nine", "does not open at nine")
        ]
        ids = [one.memory["id"] for one in told]
        with monkeypatch.context() as behind:
            behind.setattr(memory.parts.index, "find", lambda *_args: [])
            told = memory.linked(ids[1])["contradicts"]
        row = next(one for one in memory.timeline()["entries"] if one["id"] == ids[0])
    assert [one["id"] for one in told] == [ids[0]]
    assert told == [row]


def test_every_entry_tells_what_contradicts_it(tmp_path):
    """The field is declared, so it is there: empty for an episode, which nothing contradicts."""
    settings = load(tmp_path / "root", embedding__provider="none", strategies__enabled=False)
    with Memory(settings, background=False) as memory:
        memory.add("s1", said("u1", "The harbour office opens at nine.", 1))
        memory.flush("s1")
        (episode,) = memory.timeline()["entries"]
        assert memory.linked(episode["id"])["contradicts"] == []


@pytest.mark.parametrize(
    ("question", "text", "shown"),
    [
        ("猫の名前", "私の猫の名前はミケです。", "私の<mark>猫の名前</mark>はミケです。"),
        ("猫の名前", "コミットする前に必ずテストを実行する。", "コミットする前に必ずテストを実行する。"),
        ("猫", "猫が好き", "<mark>猫</mark>が好き"),
        ("where is Lisbon", "私はLisbonに引っ越しました", "私は<mark>Lisbon</mark>に引っ越しました"),
        ("strassen", "Die Straßen <b>", "Die <mark>Straßen</mark> &lt;b&gt;"),
    ],
)
def test_what_matched_is_marked_and_no_more(question, text, shown):
    assert marking.marked(text, marking.terms(question)) == shown


def test_an_excerpt_begins_where_something_matched():
    text = "あ" * 900 + " 猫の名前はミケです。"
    assert "<mark>猫の名前</mark>" in marking.excerpt(text, marking.terms("猫の名前"))


def test_a_timeline_of_many_is_one(tmp_path):
    """Entries of several owners come as one list, newest first, page by page without a gap or a double."""
    with Memory(
        load(tmp_path / "root", embedding__provider="none", strategies__enabled=False), background=False
    ) as memory:
        for n in range(12):
            memory.add(f"s{n}", said(f"u{n % 5}", f"This is note number {n}.", n))
            memory.flush(f"s{n}")
        whole = memory.timeline(limit=100, days=True)
        pages = [one for at in range(0, 12, 5) for one in memory.timeline(offset=at, limit=5)["entries"]]
        mine = memory.timeline(scope="user", owner="u1", offset=1, limit=5)
    assert [one["id"] for one in pages] == [one["id"] for one in whole["entries"]]
    times = [one["timestamp"] for one in pages]
    assert len(times) == whole["total"] == 12 and times == sorted(times, reverse=True)
    assert sum(one["count"] for one in whole["days"]) == 12 and len(whole["days"]) == 12
    assert mine["total"] == 3 and len(mine["entries"]) == 2


def test_a_repository_is_read(tmp_path, root):
    """Below `server.project_roots` a repository shows its pages, checkpoints and events; elsewhere nothing."""
    repo = tmp_path / "tides"
    repo.mkdir()
    (repo / "README.md").write_text("# Tides\n\nReads tide tables of the Atlantic.\n")
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    cairn.open_project(repo).init()
    settings = load(root, server__project_roots=(str(tmp_path),), embedding__provider="none")
    with Memory(settings, background=False) as memory:
        desk = Desk(memory, OPEN)
        template, shown = VIEWS["project"](desk, {"path": str(repo), "before": "chk-000001"})
        assert "Atlantic" in str(shown["story"]["pages"]) and shown["story"]["checkpoints"]
        assert VIEWS["project"](desk, {"path": "/etc"})[1]["trouble"]
        assert template == "project.html"


def test_the_picture_shows_what_hangs_together_and_health_how_large_it_is(tmp_path):
    """A memory, what replaced it and the talk it came of are one thread of links; sizes are noted once a day."""
    with Memory(load(tmp_path / "root", embedding__provider="none"), background=False) as memory:
        desk = Desk(memory, OPEN)
        memory.remember("The ladder is behind the shed.", "fact")
        memory.sync()
        assert VIEWS["map"](desk, {})[1]["picture"]["threads"] is None
        old = memory.remember("We indent with tabs.", "convention").memory["id"]
        new = memory.memories.supersede(old, "We indent with <b>spaces</b>.", reason="a new formatter")
        memory.memories.supersede(new.memory["id"], "We indent with two spaces.", reason="a vote")
        memory.sync()
        told = memory.connections()
        assert [one["how"] for one in told["links"]] == ["replaces", "replaces"]
        assert memory.connections(scope="user", owner="nobody")["links"] == []
        threads = VIEWS["map"](desk, {})[1]["picture"]["threads"]
        assert [len(row["spots"]) for row in threads["rows"]] == [3] and "two spaces" in threads["rows"][0][
            "name"
        ]
        assert {line["how"] for line in threads["lines"]} == {"replaces"}
        pages = WebPages(SimpleNamespace(memory=memory), Visitors(tmp_path), lambda _: 500, lambda: False)
        text = pages._templates.get_template("map.html").render(
            {"picture": VIEWS["map"](desk, {})[1]["picture"], "desk": desk, "stamps": pages._stamps}
        )
        assert "&lt;b&gt;spaces" in text and "<b>spaces" not in text
        place = memory.settings.server_dir
        for day in ("2026-06-01", "2026-06-01", "2026-06-02"):
            sizes.note(place, memory.settings.root, memory.parts.index_dir, day)
        (place / "sizes.jsonl").write_text((place / "sizes.jsonl").read_text() + "torn")
        assert [one["day"] for one in memory.status()["sizes"]] == ["2026-06-01", "2026-06-02"]
        shown = VIEWS["health"](desk, {})[1]["sizes"]
        assert [one["high"] for one in shown][-1] == 36 and shown[0]["files"] > 0 < shown[0]["index"]


def test_documents_are_taken_in_and_folders_followed(owner, server, root):
    """A file by a form, found by its words; a folder below `server.project_roots`, and no other."""
    secret = owner.secret
    assert (
        owner.upload("../winds.md", b"# Winds\n\nThe mistral blows from the north.\n", form=secret, title="")[
            0
        ]
        == 303
    )
    at = owner.headers["location"]
    assert "mistral" in owner.get(at)[1] and "<h1" in owner.get(at)[1]
    assert "winds" in owner.get("/view/knowledge?ask=mistral")[1]
    assert owner.upload("x.md", b"# X\n\nNo.\n", form="wrong", title="")[0] == 403
    assert Visitor(server.port).upload("x.md", b"# X\n\nNo.\n", form=secret, title="")[0] == 403
    assert owner.upload("", b"", form=secret, title="")[0] == 422
    assert owner.upload("x.exe", b"MZ\x00\x01", form=secret, title="")[0] == 422
    name = re.search(r"id=([^&]+)", at)[1]
    assert owner.post("drop", id=name)[0] == 200 and owner.get(at)[0] == 404

    folder = root.parent / "folders" / "charts"
    folder.mkdir(parents=True)
    (folder / "shoals.md").write_text("# Shoals\n\nThe Goodwin sands move.\n")
    assert owner.post("link", path=str(root.parent))[0] == 403
    assert owner.post("link", path=str(folder))[0] == 200
    assert "charts" in owner.get("/view/knowledge")[1]
    assert owner.post("unlink", name="charts")[0] == 200
    assert (folder / "shoals.md").exists() and "Unlink" not in owner.get("/view/knowledge")[1]


def test_what_is_coming_up_shows_when_it_is_due(root):
    """The day a plan is for, not the day it was made; every template can be read."""
    with Memory(load(root, embedding__provider="none"), background=False) as memory:
        pages = WebPages(SimpleNamespace(memory=memory), Visitors(root), lambda _: 500, lambda: False)
        pages.prepare()
        pages._load_more()
        plan = {"id": "alice_fs_1", "title": "Pay the harbour", "starts": "2026-11-01", "ends": "2026-12-04"}
        parts = pages._templates.get_template("parts.html").module
        assert "2026-12-03" in parts.coming(Desk(memory, OPEN), [{**plan, "due": "2026-12-03"}])
        assert "2026-12-04" in parts.coming(Desk(memory, OPEN), [{**plan, "due": ""}])


def test_forgetting_is_looked_at_first(owner):
    """The first form only tells what would go; the second gives the receipt."""
    made = json.loads(owner.post("remember", content="The spare key is under the blue stone.")[1])["to"]
    name = made.partition("id=")[2]
    status, text = owner.post("forget", id=name)
    assert status == 200 and "Look again" in text and "blue stone" in text
    assert "blue stone" in owner.get(made)[1]
    status, text = owner.post("forget", id=name, sure="yes")
    assert status == 200 and "Receipt" in text and "blue stone" not in text
    assert owner.get(made)[0] == 404


def test_a_visit_outlives_its_server(tmp_path):
    """A cookie opens the page after a restart, with the same secret in its forms; *Leave* ends it for good."""
    before = Visitors(tmp_path)
    secret, visit = before.begin(is_owner=True)
    headers = {b"host": b"127.0.0.1:8000", b"cookie": f"cairn_page_8000={secret}".encode()}
    after = Visitors(tmp_path)
    kept = after.of(headers)
    assert kept is not None and kept.is_owner and kept.form == visit.form and secret not in kept.form
    assert Visitors(tmp_path).of({**headers, b"cookie": b"cairn_page_8000=guess"}) is None
    assert not any(secret in one.name or secret in one.read_text() for one in (tmp_path / "page").iterdir())
    after.end(kept)
    assert after.of(headers) is None and Visitors(tmp_path).of(headers) is None
    digest = b"\x01" * 32
    token, _ = before.begin(digest=digest)
    found = Visitors(tmp_path).of({**headers, b"cookie": f"cairn_page_8000={token}".encode()})
    assert found is not None and found.digest == digest and not found.is_owner


def test_a_strategy_is_switched(owner, root):
    """A switch of the health view writes ome.toml, comments and all; the view shows it."""
    assert owner.post("switch", name="reflect_episodes", on="yes")[0] == 200
    assert re.search(
        r"\[strategies.reflect_episodes\][^\[]*\nenabled = true", (root / "ome.toml").read_text()
    )
    assert owner.post("switch", name="reflect_episodes", on="no")[0] == 200
    text = (root / "ome.toml").read_text()
    assert re.search(r"\[strategies.reflect_episodes\][^\[]*\nenabled = false", text) and text.startswith(
        "# Which"
    )
    assert owner.post("switch", name="nothing", on="no")[0] == 404


def audited(root):
    """Operation, owner and status of every call by a token, from the audit log."""
    calls = [json.loads(line) for line in (root / ".server" / "audit.jsonl").read_bytes().splitlines()]
    return {(one["operation"], one["about"].get("owner"), one["status"]) for one in calls if one["token"]}


def test_a_token_shows_what_it_may_see(root):
    """Who signs in with a token of one owner sees that owner and nothing of another's, anywhere."""
    secret = "bo-0123456789abcdef"
    env = ENV | {"CAIRN_SERVER__TOKENS": f"{secret} rw owner=bo;all-0123456789abcdef rw"}
    with serving(root, "--write", env=env) as running:
        visitor = Visitor(running.port)
        status, text = visitor.get("/")
        assert status == 401 and "Petrel" not in text and "Token" in text
        assert visitor.call("POST", "/view/login", {"token": "wrong-0123456789abcdef"})[0] == 401
        assert visitor.call("POST", "/view/login", {"token": secret})[0] == 303
        for path in (
            "/",
            "/?q=quillheron+boat+Petrel",
            "/view/people",
            "/view/review",
            "/view/map",
            "/view/health",
            "/view/project",
        ):
            status, text = visitor.get(path)
            assert status == 200, (path, text)
            assert "alice" not in text and "Lisbon" not in text and "migration" not in text, path
        assert "quillheron" in visitor.get("/")[1]
        status, text = visitor.get("/view/who?scope=user&owner=alice")
        assert status == 403 and "Petrel" not in text
        alices = "alice_ep_20260601_00000001"
        assert visitor.get(f"/view/entry?id={alices}")[0] == 403
        assert visitor.post("revise", id=alices, source="x", expect="y")[0] == 403
        wanted = {("page who", "alice", 403), ("page people", None, 200), ("revise", None, 403)}
        until(
            lambda: wanted <= audited(root), "the audit log has what was asked here"
        )  # written after the answer
        assert b"quillheron" not in (root / ".server" / "audit.jsonl").read_bytes(), "nor does it say more"
        other = Visitor(running.port)
        assert other.call("POST", "/view/login", {"token": "all-0123456789abcdef"})[0] == 303
        assert "Petrel" in other.get("/")[1]
