"""What a person does on the page, in a real Chromium: each walk is one story, for the short form and the long one."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from urllib.parse import urlencode

from cairn.config import load
from cairn.memory import Memory
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
    """A server that went away is told of; once it is back the page goes on."""
    with serving(root, env=ENV) as server:
        page = visitor(browser, server.port, root)
        port = server.port
        page.wait_for_load_state("load")
    page.wait_for_selector("#away:not([hidden])")
    with serving(root, env=ENV, port=port):
        page.wait_for_selector("#away", state="hidden")


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
