"""The pictures of the page in docs/: a small story, every view, light and dark and on a phone. Needs Chromium and pngquant.

python -m tools.make_pictures [VIEW ...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests import page_walks as walks
from tests.surfaces.served import serving

from cairn.config import load
from cairn.engines import sizes
from cairn.memory import Memory

OUT = Path(__file__).parent.parent / "docs" / "pictures"
START, DAY = 1793000000000, 86_400_000
TALK = (
    ("alice", "I moved to Lisbon in May and I love the light here.", "Lisbon suits you. Shall I remember the new address?"),
    ("alice", "I am allergic to peanuts, please keep that in mind for recipes.", "I will leave peanuts out from now on."),
    ("bo", "We decided to deploy only after the migration job is done.", "Then I check the job before each deploy."),
    ("alice", "My sister Marta visits me on 12 December, she likes long walks.", "I found three walks along the river."),
    ("bo", "The tide table parser breaks on leap seconds, line 212.", "A test for the last leap second would show it."),
    ("alice", "I started learning the cello with Mr. Tavares every Tuesday.", "Good luck with the first scales!"),
    ("bo", "The invoice for the harbour office is due on 3 December.", "I will remind you two days before."),
    ("alice", "أحب القهوة العربية في الصباح", "Noted."),
    ("alice", "Actually I moved again: since October I live in Porto.", "Porto it is."),
)  # fmt: skip
DOCUMENTS = {
    "Tide tables": "## Springs\n\nThe water is highest two days after full moon.\n\n## Neaps\n\nThe difference is least at half moon.",
    "Harbour rules": "## Speed\n\nFive knots inside the walls.\n\n## Berths\n\nVisitors moor at the east quay.",
}
VIEWS = {
    "timeline": "/",
    "search": "/?q=where+does+alice+live",
    "people": "/view/people",
    "person": "/view/who?scope=user&owner=alice",
    "review": "/view/review",
    "agent": "/view/who?scope=agent&owner=helper",
    "project": "/view/project",
    "changes": "/view/project?diff=chk-000001&until=chk-000002",
    "picture": "/view/map",
    "documents": "/view/knowledge",
    "health": "/view/health",
}
TALL = {"picture", "health", "entry"}  # what is worth seeing there stands below the first screen, too
GUARDED = {"CAIRN_SERVER__TOKENS": "picture-0123456789abcdef r"}
WAYS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1040, "height": 680}},
    "dark": {"viewport": {"width": 1040, "height": 680}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 760}, "is_mobile": True, "has_touch": True},
}


def fill(root: Path) -> None:
    """The story."""
    with Memory(load(root), background=False) as memory:
        for n, (who, text, answer) in enumerate(TALK):
            at = START + n * 2 * DAY
            said = [walks.said(who, text), walks.said("helper", answer, role="assistant")]
            memory.add(f"s{n}", [{**one, "timestamp": at + 60_000 * i} for i, one in enumerate(said)])
            memory.flush(f"s{n}")
            memory.sync()
            day = datetime.fromtimestamp(at / 1000, UTC).date().isoformat()
            sizes.note(memory.settings.server_dir, root, memory.settings.index_dir, day)
        memory.remember("Deploys wait for the migration job.", "gotcha", pinned=True)
        memory.remember("We write the test before the fix.", "convention")
        tabs = memory.remember("The parser is indented with tabs.", "convention").memory
        memory.memories.supersede(
            tabs["id"], "The parser is indented with spaces.", reason="the new formatter"
        )
        memory.remember("Times in tables are UTC, shown in the reader's zone.", "decision")
        for text in (
            "The staging database is reset every Sunday night.",
            "Bo reviews all changes of the parser.",
            "Releases are cut from main on Thursdays.",
        ):
            memory.remember(text, origin="agent")
        memory.remember("Alice drinks her coffee black.", "preference", "user", "alice", origin="agent")
        memory.memories.set_core(projectSummary="A parser for tide tables.", activeFocus=["leap seconds"])
        memory.remember("The harbour office opens at nine.")
        memory.remember("The harbour office does not open at nine.")
        way = memory.remember(
            "Publish the tide tables", "procedure", "agent", "helper",
            trigger="a new almanac is out", procedure="1. Run the parser.\n2. Compare ten days by hand.\n3. Upload.",
        ).memory  # fmt: skip
        for worked, why in (
            (True, "all ten days agree"),
            (False, "leap second"),
            (True, "all ten days agree"),
        ):
            memory.memories.outcome(way["id"], success=worked, reason=why, scope="agent", owner="helper")
        memory.memories.set_core(agent="helper", activeFocus=["the almanac of 2027"])
        memory.remember("Compare by hand before every upload.", "convention", "agent", "helper")
        for title, text in DOCUMENTS.items():
            memory.knowledge_upload(title, f"# {title}\n\n{text}\n", category_id="manuals")
        memory.checkpoint("before the almanac")
        memory.remember("The almanac of 2027 has a new column for draughts.", "fact")
        memory.checkpoint("after the almanac")
        memory.sync()


def link(page: Any, path: str, selector: str) -> str:
    """Where the first link of a kind on a view leads."""
    page.goto(path)
    return str(page.locator(selector).first.get_attribute("href"))


def main(chosen: list[str]) -> int:
    """Take them all, or those of the chosen views."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, walks.chromium() as browser:
        root = Path(folder) / "root"
        fill(root)
        empty = Path(folder) / "empty"
        with serving(root) as server, serving(empty) as new, serving(root, env=GUARDED) as guarded:
            for way, how in WAYS.items():
                page = walks.visitor(browser, server.port, root, **how)
                links = {
                    "entry": link(page, "/?q=Lisbon&kind=episode", "a.title"),
                    "document": link(page, "/view/knowledge", "a.title"),
                    "merge": link(page, "/view/review", "a[data-merge]"),
                }
                first = walks.visitor(browser, new.port, empty, **how)
                shots = {name: (page, path) for name, path in (VIEWS | links).items()}
                shots |= {
                    "forget": (page, links["entry"]),
                    "first-start": (first, "/"),
                    "sign-in": (walks.visitor(browser, guarded.port, **how), "/"),
                }
                for name, (tab, path) in shots.items():
                    if chosen and name not in chosen:
                        continue
                    tab.goto(path)
                    if name == "forget":
                        tab.click("button:has-text('Forget')")
                    tab.wait_for_load_state("load")
                    tab.mouse.move(0, 0)
                    tab.screenshot(path=OUT / f"{name}-{way}.png", full_page=name in TALL)
    files = [
        str(one) for one in sorted(OUT.glob("*.png")) if not chosen or one.stem.rpartition("-")[0] in chosen
    ]
    subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", *files], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
