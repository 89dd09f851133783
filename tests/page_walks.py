"""What a person does on the page, in a real Chromium: each walk is one story, for the short form and the long one."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from urllib.parse import urlencode

from cairn.config import load
from cairn.memory import Memory
from cairn.notes.notebook import Draft
from cairn.types import Scope, Space
from cairn.web.visitors import Visitors
from tests.surfaces.served import serving
from tests.waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 90  # for one step, on a busy machine
ENV = {
    "CAIRN_EMBEDDING__PROVIDER": "none",
    "CAIRN_STRATEGIES__ENABLED": "false",
    # A browser connects ahead of need; the server hangs up on those who wait, which a walk must not run into.
    "CAIRN_SERVER__HEADER_TIMEOUT_SECONDS": "600",
}
QUIET = {"embedding__provider": "none", "strategies__enabled": False}
XSS = [
    "<script>document.title='pwned'</script>", "<img src=x onerror=\"document.title='pwned'\">",
    "[a](javascript:document.title='pwned')", "<javascript:document.title='pwned'>", "[b](data:text/html,<script>document.title='pwned'</script>)",
    "<svg onload=\"document.title='pwned'\">", "`</code><script>document.title='pwned'</script>`",
    "</textarea><script>document.title='pwned'</script>", "{{ 7*7 }} {% raw %}", "\u202etxt.exe\u202c \u2066x\u2069", "&lt;script&gt;",
    '<a href="vbscript:x">x</a> <iframe src=//x>', "# <u>h</u>\n\n| a |\n|---|\n| <b>c</b> |",
    "\"><svg/onload=document.title='pwned'>", "' autofocus onfocus=document.title='pwned' x='", "<math><a xlink:href=javascript:document.title='pwned'>m",
    "<details open ontoggle=document.title='pwned'>", "<body onpageshow=document.title='pwned'>", "<base href=//elsewhere.invalid/>",
    "[c]( JaVaScRiPt:document.title='pwned')", "[d](java\tscript:document.title='pwned')", "![e](http://elsewhere.invalid/e.png)",
    "<link rel=stylesheet href=//elsewhere.invalid/f.css><style>*{display:none}</style>", "<form action=//elsewhere.invalid><button>go</button></form>",
    "<meta http-equiv=refresh content='0;url=//elsewhere.invalid'>", "\u2067\u202bright to left\u202c\u2069 \u202dx",
]  # fmt: skip


def said(who, text, n=0, role="user"):
    return {"sender_id": who, "role": role, "timestamp": 1780300000000 + n * 86_400_000, "content": text}


def fill(root, *, candidates=0):
    """A root with two people, some talk and some memories."""
    with Memory(load(root, **QUIET), background=False) as memory:
        for n, (who, text) in enumerate([
            ("alice", "I moved to Lisbon and bought a boat called Petrel."),
            ("alice", "My sister Marta keeps bees in Porto."),
            ("bo", "The tide table parser breaks on leap seconds."),
        ]):  # fmt: skip
            memory.add(f"s{n}", [said(who, text, n), said("helper", "Noted.", n, "assistant")])
            memory.flush(f"s{n}")
        memory.remember("Deploys wait for the migration job.", "gotcha")
        old = memory.remember("We indent with tabs.", "convention").memory["id"]
        memory.memories.supersede(old, "We indent with spaces.", reason="a new formatter")
        memory.knowledge_upload("Winds", "# Winds\n\nThe mistral blows from the north.\n")
        way = memory.remember("Publish the tables", "procedure", "agent", "helper", trigger="an almanac is out", procedure="1. Parse.\n2. Compare.").memory  # fmt: skip
        memory.memories.outcome(
            way["id"], success=True, reason="all days agree", scope="agent", owner="helper"
        )
        memory.remember("The chandler is open on Sundays.", project_id="acme")
        memory.checkpoint("before the gale")
        memory.remember("The gale took the east mooring.", "fact")
        memory.checkpoint("after the gale")
        memory.remember("The mooring was laid anew.", "fact")
        alike = [f"The nightly backup of db{n} to the blue bucket is kept for thirty days." for n in range(3)]
        told = json.dumps([{"id": f"m{n}", "memory": text} for n, text in enumerate(alike)])
        memory.memories.import_from("mem0", told, trust=True)
        for n in range(candidates):
            memory.remember(
                f"{['Amber', 'Birch', 'Cedar', 'Dogwood', 'Elder', 'Fir', 'Gorse'][n]} is what build {n} is called.",
                origin="agent",
            )
        memory.sync()
    return root


@contextmanager
def chromium():
    """A browser, and a way to make visitors of it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def visitor(browser, port, root=None, **how):
    """A visitor's tab, by a one-time link of `root` if it is named; whatever goes wrong in it is collected."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{port}", **how)
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    page.troubles = []
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("dialog", lambda dialog: (page.troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on(
        "console", lambda line: page.troubles.append(line.text) if "Content Security" in line.text else None
    )
    page.on(
        "request",
        lambda asked: (
            None
            if asked.url.startswith((f"http://127.0.0.1:{port}/", "data:"))
            else page.troubles.append(asked.url)
        ),
    )
    if root is not None:
        page.goto(f"/view/open?code={Visitors(load(root).server_dir).offer()}")
    return page


def open_entry(page, words):
    """Search by keyboard and open the first answer."""
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_selector(".card mark")
    page.locator(".card a.title").first.click()
    page.wait_for_selector("article.entry")


# ---------------------------------------------------------------- walks


def first_start(browser, root):
    """An empty root says what to do; the first sentence written appears, and so does what others write."""
    with serving(root, env=ENV) as server:
        page = visitor(browser, server.port, root)
        assert "cairn add" in page.inner_text("main")
        page.fill("#content", "The kettle is in the left cupboard.")
        page.click("form.remember button")
        page.wait_for_selector("article.entry")
        page.goto("/")
        page.wait_for_selector("text=kettle")
        server.post("memories", {"content": "The teapot is on the upper shelf."})
        page.wait_for_selector("text=teapot")  # without a reload
        assert not page.troubles


def correct_and_find(page):
    """Search, open, edit, and find what was corrected; its history brings the old text back."""
    open_entry(page, "boat")
    assert page.locator("aside.said mark").count()
    page.click("a.button:has-text('Edit')")
    source = page.input_value("#source")
    page.fill("#source", source.replace("Petrel", "Kittiwake"))
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Saved.")
    until(
        lambda: page.goto("/?q=Kittiwake") and page.locator(".card mark").count(),
        "the correction is not found",
    )
    page.locator(".card a.title").first.click()
    page.locator("summary:has-text('changed')").first.wait_for()
    page.locator("button:has-text('Restore what was before')").first.click()
    page.wait_for_selector(".banner:has-text('Restored')")
    assert "Petrel" in page.inner_text(".body")


def review_by_keyboard(page):
    """Five candidates in a row: keep, refuse, reword, take back, keep."""
    page.goto("/view/review")
    page.wait_for_selector(".item.current")
    left = lambda: page.locator(".item:not(.gone)").count()  # noqa: E731
    begun = left()

    def press(key, said):
        page.keyboard.press(key)
        page.wait_for_selector(f"#toast:has-text('{said}')")
        page.evaluate("document.querySelector('#toast').hidden = true")

    press("y", "Kept.")
    press("n", "Put away.")
    page.keyboard.press("e")
    page.keyboard.press("Control+A")
    page.keyboard.type("It is called something else now.")
    page.locator(".item.current button:has-text('Keep it so')").click()
    page.wait_for_selector("#toast:has-text('Reworded')")
    assert left() == begun - 3
    press("u", "Taken back.")
    assert "something else" not in page.locator(".item.current .words").inner_text()
    page.keyboard.press("n")
    page.wait_for_selector("#toast:has-text('Put away.')")
    page.evaluate("document.querySelector('#toast').hidden = true")
    press("n", "Put away.")
    press("u", "Taken back.")
    press("y", "Kept.")
    press("y", "Kept.")
    assert left() == begun - 5
    page.reload()
    page.wait_for_selector("main h1")
    assert page.locator(".item").count() == begun - 5


def conflict(page, other):
    """Two people edit one entry: the second sees both texts, and nothing is lost."""
    open_entry(page, "bees")
    at = page.url + "&edit=1"
    page.goto(at)
    other.goto(at)
    page.fill("#source", page.input_value("#source").replace("bees", "doves"))
    other.fill("#source", other.input_value("#source").replace("bees", "goats"))
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Saved.")
    other.click("button:has-text('Save')")
    other.wait_for_selector("[role=alert]:has-text('changed since')")
    assert "goats" in other.input_value("#source") and "doves" in other.input_value("#theirs")
    other.click("button:has-text('Save mine over it')")
    other.wait_for_selector("text=Saved.")
    assert "goats" in other.inner_text(".body")


def forget(page, words="leap seconds"):
    """Look at what would go, let it go, read the receipt, find it nowhere."""
    open_entry(page, words)
    at = page.url
    page.click("button:has-text('Forget')")
    page.wait_for_selector("text=Look again")
    page.click("button:has-text('Forget for good')")
    page.wait_for_selector(".receipt")
    assert page.goto(at).status == 404
    page.goto(f"/?q={words.replace(' ', '+')}")
    assert not page.locator(".card mark").count()


def forget_person(page, who):
    """Everything of a person goes after a second look; the others stay."""
    page.goto(f"/view/who?scope=user&owner={who}")
    with page.expect_download() as found:
        page.click("a.button:has-text('Export')")
    assert found.value.suggested_filename == f"{who}.json"
    page.click(f"button:has-text('Forget {who}')")
    page.wait_for_selector("h1:has-text('Look again')")
    page.click("button:has-text('for good')")
    page.wait_for_selector(".receipt")
    page.goto("/view/people")
    assert not page.locator(f".who:has-text('{who}')").count() and page.locator(".who").count()


def hostile(browser, root):
    """The whole corpus in every place where text stands: it is seen as text, and nothing of it runs or is fetched."""
    with Memory(load(root, **QUIET), background=False) as memory:
        for n, text in enumerate(XSS):
            memory.add(f"x{n}", [said("eve", f"heronword {text}", n), said("bot", text, n, "assistant")])
            memory.flush(f"x{n}")
            memory.remember(f"heronword number {n}: {text}", "fact", "user", "eve", origin="agent")
        memory.add("long", [said("eve", "heronword " + "x" * 1_000_000, 50)])
        memory.flush("long")
        every = "\n\n".join(XSS)
        document = memory.knowledge_upload(
            f"heronword {XSS[0]} {XSS[9]}", f"# heronword {XSS[1]}\n\n{every}\n"
        ).id
        kept = memory.remember(f"heronword {XSS[1]} {XSS[9]}", "convention").memory["id"]
        memory.memories.supersede(kept, f"heronword {XSS[0]} {XSS[9]} again", reason=XSS[1])
        memory.sync()
    with serving(root, env=ENV) as server:
        page = visitor(browser, server.port, root)
        views = [
            "/",
            "/?q=heronword",
            "/view/review",
            "/view/who?scope=user&owner=eve",
            "/view/map",
            "/view/project",
            "/view/knowledge",
            "/view/knowledge?ask=heronword",
            f"/view/document?id={document}",
            "/?kind=memory",
        ]
        for path in views:
            page.goto(path)
            page.wait_for_load_state("load")
            assert "heronword" in page.content()
            harmless(page)
        for path in (
            "/view/people",
            "/view/health?look=1",
            f"/?{urlencode({'q': every})}",
            f"/?{urlencode({'who': XSS[1]})}",
        ):
            page.goto(path)
            harmless(page)
        links = page.eval_on_selector_all("a.title", "all => all.map(one => one.getAttribute('href'))")
        page.goto("/")
        links += page.eval_on_selector_all("a.title", "all => all.map(one => one.getAttribute('href'))")
        for link in dict.fromkeys(links):
            for more in ("", "&edit=1", "&correct=1"):
                answer = page.goto(link + more)
                assert answer.status == 200
                assert len(answer.body()) < (2_500_000 if more == "&edit=1" else 400_000)
                harmless(page)
        page.goto(links[0])
        page.click("button:has-text('Forget')")
        page.wait_for_selector("text=Look again")
        harmless(page)
        assert not page.troubles


def harmless(page):
    """Nothing of the text on this view has run, leads to a script, turns the reading round, or loads anything."""
    assert page.title() != "pwned"
    found = page.evaluate(
        """() => [...document.querySelectorAll('*')].flatMap(one => [...one.attributes].filter(
            at => at.name.startsWith('on') || (/^(href|src|action|xlink:href)$/.test(at.name)
                && !/^(https?:|mailto:|[/?#]|data:image)/.test(at.value.trim())) || at.name === 'style'
        ).map(at => `${one.tagName} ${at.name}=${at.value}`))"""
    )
    assert not found, (page.url, found)
    assert (
        page.locator("main iframe, main img, main base, main meta, main style, main link, main math").count()
        == 0
    )
    turned = [
        sign for sign in "\u202a\u202b\u202d\u202e\u2066\u2067\u2068" if sign in page.inner_text("body")
    ]
    assert not turned, (page.url, turned)


def rebuilding(browser, root):
    """While the index is made anew the page shows what the notes say, and says so."""
    with serving(root, env=ENV) as server:
        page = visitor(browser, server.port, root)
        shutil.rmtree(root / ".index")
        page.goto("/")
        assert "Petrel" in page.inner_text("main")
        page.goto("/view/health")
        page.click("button:has-text('Make the index anew')")
        page.wait_for_selector(".banner:has-text('Rebuilt')")
        page.goto("/?q=boat")
        assert page.locator(".card mark").count()


def server_gone(browser, root):
    """A server that went away is told of; once it is back the page goes on by itself, and nothing typed is lost."""
    with serving(root, env=ENV) as server:
        page, port = visitor(browser, server.port, root), server.port
        page.goto("/")
        page.fill("#content", "The anchor light is broken.")
        page.focus("#q")
        other = page.context.new_page()
        other.goto("/")
        open_entry(other, "boat")
        other.click("a.button:has-text('Edit')")
        source = other.input_value("#source").replace("Petrel", "Puffin")
        other.fill("#source", source)
    for tab in (page, other):
        tab.bring_to_front()
        tab.wait_for_selector("#away:not([hidden])")
        assert "does not answer" in tab.inner_text("#away")
    page.click("form.remember button")
    page.wait_for_selector("#toast:has-text('nothing was sent')")
    with Memory(load(root, **QUIET), background=False) as memory:
        memory.remember("The pump was mended meanwhile.")
        memory.sync()
    with serving(root, env=ENV, port=port):
        page.wait_for_selector("#away", state="hidden")
        page.wait_for_selector("#timeline >> text=pump was mended")
        assert page.input_value("#content") == "The anchor light is broken."
        page.click("form.remember button")
        page.wait_for_selector("article.entry h1:has-text('anchor light')")
        other.wait_for_selector("#away", state="hidden")
        assert other.input_value("#source") == source
        other.click("button:has-text('Save')")
        other.wait_for_selector("text=Saved.")
        assert "Puffin" in other.inner_text(".body")


def tokens(browser, root):
    """Nobody, one who only reads, and one owner: what a token may not see is nowhere, and what it may not do is not offered."""
    names = {"all": "", "reader": " r", "bo": " rw owner=bo"}
    secrets = {name: f"{name}-0123456789abcdef" for name in names}
    env = ENV | {"CAIRN_SERVER__TOKENS": ";".join(secrets[name] + reach for name, reach in names.items())}
    with serving(root, "--write", env=env) as server:
        views = [*VIEWS, "/?q=boat+sister+deploys+tide", "/view/health?look=1"]
        tabs = {name: visitor(browser, server.port) for name in ("nobody", *names)}
        for name in names:
            tabs[name].goto("/")
            tabs[name].fill("#token", secrets[name])
            tabs[name].click("button:has-text('Sign in')")
            tabs[name].wait_for_selector("nav")
        every = tabs["all"]
        every.goto("/?q=boat")
        alices = every.locator(".card a.title").first.get_attribute("href")
        deep = [alices, alices.replace("/entry", "/raw"), f"{alices}&edit=1", "/view/export?owner=alice"]
        for path in [*views, *deep, "/view/events"]:
            nobody = tabs["nobody"].request.get(path)
            assert nobody.status == 401 and "Petrel" not in nobody.text() and "alice" not in nobody.text()
        hidden = (
            "alice",
            "Petrel",
            "Lisbon",
            "Porto",
            "migration",
            "mooring",
            "chandler",
            "Publish the tables",
        )
        for path in views:
            if path != "/view/who?scope=user&owner=alice":
                assert tabs["bo"].goto(path).status in {200, 403}
                seen = tabs["bo"].inner_text("main") + tabs["bo"].inner_text("footer")
                assert not [word for word in hidden if word in seen], (path, seen)
                assert tabs["reader"].goto(path).status == 200
                offered = tabs["reader"].locator("form[method=post]:not([data-act=leave])")
                assert not offered.count(), path
        for path in (*deep, "/view/who?scope=user&owner=alice"):
            refused = tabs["bo"].request.get(path)
            assert refused.status == 403 and "Petrel" not in refused.text(), path
        tabs["bo"].goto("/?q=tide")
        assert tabs["bo"].locator(".card mark").count()
        sent = """async ([act, fields]) => {
            const body = new URLSearchParams({ form: document.querySelector('input[name=form]').value, ...fields });
            return (await fetch(`/view/do/${act}`, { method: 'POST', body })).status;
        }"""
        forged = {
            "id": alices.partition("id=")[2],
            "source": "x",
            "expect": "x",
            "sure": "yes",
            "owner": "alice",
        }
        for act in ("revise", "forget", "forget_person", "remember", "rebuild", "checkpoint"):
            fields = [act, forged | {"content": "Somebody was here."}]
            assert tabs["bo"].evaluate(sent, fields) == 403, act
            assert tabs["reader"].evaluate(sent, fields) == 403, act
        for name in ("reader", "bo"):
            tabs[name].goto("/view/people")
            tabs[name].evaluate(
                """() => new Promise(done => { window.heard = 0;
                const source = new EventSource('/view/events'); source.onopen = done;
                source.addEventListener('changed', () => { window.heard += 1; }); })"""
            )
        api = {"Authorization": f"Bearer {secrets['all']}"}
        place = {"scope": "user", "owner": "alice"}
        assert server.post("memories", {"content": "I sold the boat.", **place}, headers=api)[0] == 200
        until(lambda: tabs["reader"].evaluate("window.heard"), "who sees all heard nothing")
        assert tabs["bo"].evaluate("window.heard") == 0
        assert (
            server.post("memories", {"content": "I bought it.", **place, "owner": "bo"}, headers=api)[0]
            == 200
        )
        until(lambda: tabs["bo"].evaluate("window.heard"), "bo did not hear of his own")
        assert not [tab.troubles for tab in tabs.values() if tab.troubles]


def look_around(page):
    """What stands behind things: a score, a procedure's record, another project, what changed between two moments."""
    page.goto("/?q=boat")
    page.locator(".score summary").first.click()
    assert "match" in page.locator(".score dl").first.inner_text()
    page.goto("/view/who?scope=agent&owner=helper")
    assert "worked 1 of 1 time" in page.inner_text("main")
    page.click("a:has-text('Publish the tables')")
    page.wait_for_selector("text=all days agree")
    page.goto("/")
    assert "chandler" not in page.inner_text("main")
    page.select_option("select[name=space]", "default/acme")
    page.click(".filters button")
    page.wait_for_selector("text=chandler")
    assert "Petrel" not in page.inner_text("main")
    page.goto("/view/project")
    first, second = (page.locator("select[name=diff] option").nth(n).get_attribute("value") for n in (1, 0))
    page.select_option("select[name=diff]", first)
    page.select_option("select[name=until]", second)
    page.click("button:has-text('Compare')")
    page.wait_for_selector("#changes")
    changed = page.inner_text("#changes")
    assert "east mooring" in changed and "laid anew" not in changed


def put_right(page):
    """A memory is pinned, let loose, put away and brought back; corrected, the new one says what it replaces."""
    open_entry(page, "migration job")
    states = "article.entry header .state"
    for act, shown in (("Pin", "pinned"), ("Unpin", ""), ("Archive", "archived"), ("Bring back", "")):
        page.click(f".acts button:text-is('{act}')")
        page.wait_for_selector(".banner:visible")
        assert shown in page.locator(states).all_inner_texts() or not shown
    assert not {"pinned", "archived"} & set(page.locator(states).all_inner_texts())
    page.click("a.button:has-text('Correct')")
    page.fill("#content", "Deploys wait for the schema review.")
    page.fill("#reason", "the job is gone")
    page.click("form.edit button:has-text('Correct')")
    page.wait_for_selector("h2:has-text('Replaces')")
    assert "schema review" in page.inner_text("h1")
    page.click("section.linked:has(h2:has-text('Replaces')) a")
    page.wait_for_selector("h2:has-text('Was replaced by')")
    assert "migration job" in page.inner_text("h1")


def upkeep(page):
    """From Health: what a switch really did, findings, a consolidation that is planned, done and taken back."""
    page.goto("/view/health")
    page.click("button[aria-label='Switch reflect episodes on']")
    page.wait_for_selector(".banner:has-text('off still: strategies.enabled is false')")
    page.click("button:has-text('Bring up to date')")
    page.wait_for_selector(".banner:has-text('changes were applied')")
    page.click("button:has-text('Plan a sweep')")
    page.wait_for_selector("h1:has-text('what it would do')")
    page.goto("/view/health")
    page.click("a.button:has-text('Look through everything')")
    page.wait_for_selector("ul.findings")
    page.click("button:has-text('Mend what is safe')")
    page.wait_for_selector(".banner:visible")
    page.click("button:has-text('Plan a consolidation')")
    page.wait_for_selector("h1:has-text('Consolidate: what it would do')")
    page.click("button:has-text('Do it')")
    page.wait_for_selector("h1:has-text('Consolidate: done')")
    page.goto("/view/health")
    page.locator("button:has-text('Take back')").first.click()
    page.wait_for_selector(".banner:has-text('entries are as they were')")
    page.wait_for_selector("text=taken back")


def contradiction(page):
    """Two memories say otherwise: each is shown beside the other; with one of them gone the other is no trouble."""
    page.goto("/")
    for text in ("The office opens at nine.", "The office does not open at nine."):
        page.fill("#content", text)
        page.click("form.remember button")
        page.wait_for_selector("article.entry")
        page.goto("/")
    page.goto("/view/review")
    against = page.locator(".item:has(.against)").filter(has_text="office")
    assert against.count() == 2
    assert "does not open" in against.filter(has_text="The office opens at nine.").first.inner_text()
    against.first.locator("button:has-text('Refuse')").click()
    page.wait_for_selector("#toast:has-text('Put away.')")
    page.reload()
    page.wait_for_selector("main h1")
    assert not page.locator(".item:has(.against)").filter(has_text="office").count()


def merge_and_back(page):
    """A candidate and a memory become one by a joint text; undoing brings both back."""
    page.goto("/view/review")
    page.wait_for_selector(".item.current")
    words = page.locator(".item.current .words").inner_text()
    page.keyboard.press("m")
    page.wait_for_selector("h1:has-text('Merge')")
    box = page.locator("section.box:has(form)").first
    other = box.locator(".words").inner_text()
    box.locator("textarea").fill("Builds have the names of trees.")
    box.locator("button").click()
    page.wait_for_selector(".banner:has-text('Merged')")
    left = page.inner_text("main")
    assert words not in left and other not in left
    page.click(".banner button:has-text('Undo')")
    page.wait_for_selector(".banner:has-text('Restored')")
    assert words in page.inner_text("main") and other in page.inner_text("main")


def own_time_and_script(browser, port, root):
    """Days and times are the reader's own; a text goes in its own direction, and is found by its own words."""
    far = visitor(browser, port, root, timezone_id="Pacific/Honolulu", locale="en-US")
    far.goto("/?who=user:alice&kind=episode")
    days = far.locator(".day h2").all_inner_texts()
    assert days == ["Monday, June 1, 2026", "Sunday, May 31, 2026"], days
    far.locator(".day h2 a").last.click()
    far.wait_for_selector("text=Petrel")
    assert far.locator(".day").count() == 1 and "bees" not in far.inner_text("#timeline")
    for text, word, way in (
        ("أحب القهوة العربية في الصباح", "القهوة", "rtl"),
        ("我每天早上喝茶。", "喝茶", "ltr"),
    ):
        far.goto("/")
        far.fill("#content", text)
        far.click("form.remember button")
        far.wait_for_selector("article.entry")
        until(
            lambda word=word: far.goto(f"/?{urlencode({'q': word})}") and far.locator(".card mark").count(),
            f"{word} is not found",
        )
        title = far.locator(".card a.title").first
        assert title.evaluate("one => getComputedStyle(one).direction") == way


def long_day(browser, root):
    """A day with 1,000 entries comes as one scrolls, each once and under one heading."""
    with serving(root, env=ENV) as server:
        page = visitor(browser, server.port, root)
        page.goto("/?since=2026-03-03&until=2026-03-03")
        shown = "document.querySelectorAll('#timeline .line').length"
        while (seen := page.evaluate(shown)) < 1000:
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            until(lambda seen=seen: page.evaluate(shown) > seen, "no older entries came")
        titles = page.locator("#timeline a.title").all_inner_texts()
        assert len(titles) == len(set(titles)) == 1000 and page.locator(".day").count() == 1
        assert not page.locator("a.older").count() and not page.troubles


def fill_long_day(root):
    """A root with 1,000 entries of one day."""
    with Memory(load(root, **QUIET), background=False) as memory:
        drafts = [
            Draft(
                {"owner_id": "bo", "session_id": f"d{n}", "timestamp": f"2026-03-03T{n // 60:02d}:{n % 60:02d}:00Z"},
                {"Subject": f"Sounding {n}", "Content": f"At mark {n} the water is {n % 40} feet deep."},
            )
            for n in range(1000)
        ]  # fmt: skip
        memory.parts.notebook.append("episode", Scope(Space(), "user", "bo"), "2026-03-03", drafts)
        memory.sync()
    return root


def light(browser, port, root, views):
    """A first visit to any view brings less than 150 kB over."""
    for path in views:
        page = visitor(browser, port, root)
        sizes = []
        session = page.context.new_cdp_session(page)
        session.on(
            "Network.loadingFinished", lambda told, sizes=sizes: sizes.append(told["encodedDataLength"])
        )
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.goto(path)
        page.wait_for_load_state("load")
        assert 0 < sum(sizes) < 150_000, (path, sizes)
        page.context.close()


def without_script(browser, port, root):
    """Reading, searching and writing work with forms and links alone."""
    page = visitor(browser, port, root, java_script_enabled=False)
    page.goto("/")
    page.fill("#q", "boat")
    page.press("#q", "Enter")
    page.wait_for_selector(".card mark")
    page.goto("/")
    page.fill("#content", "The ladder is behind the shed.")
    page.click("form.remember button")
    page.wait_for_selector("article.entry h1:has-text('ladder')")


def accessible(page, views):
    """axe finds nothing wrong in any view."""
    from axe_playwright_python.sync_playwright import Axe

    for path in views:
        page.goto(path)
        page.wait_for_load_state("load")
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]})
        wrong = {
            one["id"]: [node["html"][:200] for node in one["nodes"][:3]]
            for one in found.response["violations"]
        }
        assert not wrong, (path, wrong)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 1, f"{path} is {wide} wider than the screen"


def every_view(page):
    """The address of every view there is, with something in it: those of `VIEWS`, and those of one thing."""
    page.goto("/?kind=memory")
    memory = page.locator(".card a.title, a.title").first.get_attribute("href")
    page.goto("/?kind=episode")
    entry = page.locator(".card a.title, a.title").first.get_attribute("href")
    name = memory.partition("id=")[2].partition("&")[0]
    page.goto("/view/knowledge")
    document = page.locator("a[href*='/view/document']").first.get_attribute("href")
    single = [entry, f"{entry}&edit=1", memory, f"{memory}&correct=1", f"/view/merge?id={name}", document]
    other = [
        "/view/who?scope=agent&owner=helper",
        "/view/health?look=1",
        "/view/knowledge?ask=mistral",
        "/view/project?diff=chk-000001&until=chk-000002",
        "/view/project?edit=core",
        "/view/nowhere",
    ]
    return [*VIEWS, *single, *other]


VIEWS = [
    "/",
    "/?q=boat",
    "/view/people",
    "/view/who?scope=user&owner=alice",
    "/view/review",
    "/view/project",
    "/view/knowledge",
    "/view/health",
    "/view/map",
]
