"""The page in a real Chromium: how soon it is painted, what it weighs, how a long day scrolls.

First paint is from the browser asking for the document to the first frame with content, as Chromium's own tracing
tells it: unlike the page's own paint entries, which a headless browser often leaves out, it is there for every load.
The floor is the same document and the same two files from a bare server. `--entries 10000` chooses how many entries
there are, `--loads 40` how often each view is loaded.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests import page_walks as walks

from benchmarks._client import Server, milliseconds, until
from benchmarks.http import bulk, entry_text, sections
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

LONG_DAY = "2026-03-03"
FRAMES = """async () => {
  const gaps = []; let last = performance.now(), still = 0, least = 0, lines = 0;
  while (still < 60) {
    scrollBy(0, 400);
    await new Promise(requestAnimationFrame);
    const now = performance.now(); gaps.push(now - last); last = now;
    lines = document.querySelectorAll('#timeline .line').length;
    if (scrollY > least) { least = scrollY; still = 0; } else still += 1;
  }
  return { gaps, lines };
}"""


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks page")
    parser.add_argument("--entries", type=int, default=200 if args.quick else 10_000)
    parser.add_argument("--loads", type=int, default=5 if args.quick else 40)
    options = parser.parse_args(args.rest)
    if walks.CHROMIUM is None:
        raise SystemExit("it needs Chromium (Debian and Ubuntu: apt install chromium)")
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    figures: dict[str, Any] = {"entries": options.entries, "loads": options.loads}

    def take(name: str, value: Any) -> None:
        figures[name] = value
        print(f"{name:<34} {value}", flush=True)

    try:
        with Server.cairn(folder / "root") as server:
            bulk(server, folder / "root", options.entries)
            busy_day(server, folder / "root", 100 if args.quick else 1000)
            with walks.chromium() as browser:
                page = walks.visitor(browser, server.port, folder / "root")
                words = [" ".join(entry_text(n).split()[1:5]) for n in range(options.loads)]
                views = {"home": ["/"] * options.loads, "search": [f"/?q={one}" for one in words]}
                for name, paths in views.items():
                    spent = server.cpu_seconds()
                    told = painted(page, paths)
                    spent = (server.cpu_seconds() - spent) / (len(paths) + 1)
                    take(name, told | {"server CPU ms": round(spent * 1e3, 1)})
                take(
                    "weight",
                    {
                        name: weight(browser, server.port, folder / "root", path[0])
                        for name, path in views.items()
                    },
                )
                page.goto("/")
                with bare(folder / "kept", page) as port:
                    take("floor", painted(walks.visitor(browser, port), ["/"] * options.loads))
                page.goto(f"/?since={LONG_DAY}&until={LONG_DAY}")
                told = page.evaluate(FRAMES)
                gaps = [gap / 1000 for gap in told["gaps"]]
                take(
                    "long day",
                    {
                        "entries": told["lines"],
                        "frame p50 ms": milliseconds(gaps),
                        "frame p95 ms": milliseconds(gaps, 0.95),
                        "longest ms": milliseconds(gaps, 1.0),
                    },
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def busy_day(server: Server, root: Path, size: int) -> None:
    """One day with very many entries, of somebody else."""
    notebook = Notebook(DeviceLocalBackend(root), FileLocks(root / ".tmp" / "locks"))
    drafts = []
    for number in range(size):
        at = f"{LONG_DAY}T{number // 60 % 24:02d}:{number % 60:02d}:00+00:00"
        about = {"owner_id": "busy", "session_id": f"d{number}", "timestamp": at}
        about |= {"parent_type": "memcell", "parent_id": f"mc_d{number:011x}"}
        drafts.append(Draft(about, sections(entry_text(number))))
    notebook.append(
        "episode", Scope(Space(), "user", "busy"), date.fromisoformat(LONG_DAY).isoformat(), drafts
    )
    client = server.client()
    until(
        lambda: client.post("get", user_id="busy", memory_type="episode", page_size=1)["total_count"] >= size,
        pause=0.05,
        limit=600,
    )


def painted(page: Any, paths: list[str]) -> dict[str, float]:
    """Milliseconds from the request for the document to its first bytes and to the first frame with content."""
    page.goto(paths[0])
    page.wait_for_load_state("load")
    session = page.context.new_cdp_session(page)
    seen: dict[str, float] = {}

    def asked(event: Any) -> None:
        if event["type"] == "Document":
            seen["asked"] = event["timestamp"]

    def answered(event: Any) -> None:
        if event["type"] == "Document":
            seen["answered"] = event["timestamp"]

    def lived(event: Any) -> None:
        seen[event["name"]] = event["timestamp"]

    session.on("Network.requestWillBeSent", asked)
    session.on("Network.responseReceived", answered)
    session.on("Page.lifecycleEvent", lived)
    session.send("Network.enable")
    session.send("Page.enable")
    session.send("Page.setLifecycleEventsEnabled", {"enabled": True})
    page.bring_to_front()
    answers, paints = [], []
    for path in paths:
        seen.clear()
        page.goto(path)
        until(lambda: bool(page.evaluate("1")) and "firstContentfulPaint" in seen, pause=0.01)
        answers.append(seen["answered"] - seen["asked"])
        paints.append(seen["firstContentfulPaint"] - seen["asked"])
    session.detach()
    return {
        "answered p50 ms": milliseconds(answers),
        "answered p95 ms": milliseconds(answers, 0.95),
        "first paint p50 ms": milliseconds(paints),
        "first paint p95 ms": milliseconds(paints, 0.95),
    }


def weight(browser: Any, port: int, root: Path, path: str) -> float:
    """Kilobytes that a first visit brings over, as they are sent."""
    page = walks.visitor(browser, port, root)
    session = page.context.new_cdp_session(page)
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    page.goto(path)
    page.wait_for_load_state("load")
    page.evaluate("1")
    page.context.close()
    return round(sum(sizes) / 1000, 1)


@contextmanager
def bare(folder: Path, page: Any) -> Iterator[int]:
    """A server of files with the document that `page` shows, and what it loads."""
    folder.mkdir()
    static = folder / "view" / "static"
    static.mkdir(parents=True)
    (folder / "index.html").write_bytes(page.request.get("/").body())
    for name in ("page.css", "page.js", "cairn.svg"):
        (static / name).write_bytes(page.request.get(f"/view/static/{name}").body())

    silent = {"protocol_version": "HTTP/1.1", "log_message": lambda *_: None}
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), silent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
