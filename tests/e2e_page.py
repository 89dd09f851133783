"""The page as a person meets it, in a real Chromium: every walk, one after the other. Part of `make e2e`."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests import page_walks as walks
from tests.surfaces.served import serving


def main() -> int:
    """Every walk; exit code 0 if all of them held, also where there is no browser to walk in."""
    if walks.CHROMIUM is None:
        print("skipped: no Chromium here (Debian and Ubuntu: apt install chromium)")
        return 0
    chosen, failed = sys.argv[1:], []
    with tempfile.TemporaryDirectory(prefix="cairn-page-") as folder, walks.chromium() as browser:
        base = Path(folder)

        def walk(name, run):
            if chosen and name not in chosen:
                return
            began, how = time.monotonic(), "ok    "
            try:
                run()
            except Exception:
                traceback.print_exc()
                failed.append(name)
                how = "FAILED"
            print(f"{how}  {time.monotonic() - began:6.1f} s  {name}", flush=True)

        walk("first start", lambda: walks.first_start(browser, base / "empty"))
        root = walks.fill(base / "root", candidates=6)
        with serving(root, env=walks.ENV, log=base / "server.log") as server:
            page = walks.visitor(browser, server.port, root)
            walk("look around", lambda: walks.look_around(page))
            walk("own time and script", lambda: walks.own_time_and_script(browser, server.port, root))
            walk("correct and find", lambda: walks.correct_and_find(page))
            walk("contradiction", lambda: walks.contradiction(page))
            walk("merge and back", lambda: walks.merge_and_back(page))
            walk("review by keyboard", lambda: walks.review_by_keyboard(page))
            walk("conflict", lambda: walks.conflict(page, walks.visitor(browser, server.port, root)))
            walk("forget", lambda: walks.forget(page))
            walk("put right", lambda: walks.put_right(page))
            walk("upkeep", lambda: walks.upkeep(page))
            walk("without a script", lambda: walks.without_script(browser, server.port, root))
            walk("light", lambda: walks.light(browser, server.port, root, walks.every_view(page)))
            phone = {"viewport": {"width": 360, "height": 720}, "is_mobile": True, "has_touch": True}
            for scheme in ("light", "dark"):
                for name, how in (("", {}), (" on a phone", phone)):
                    tab = walks.visitor(browser, server.port, root, color_scheme=scheme, **how)
                    walk(
                        f"accessible, {scheme}{name}",
                        lambda tab=tab: walks.accessible(tab, walks.every_view(tab)),
                    )
            walk("forget a person", lambda: walks.forget_person(page, "bo"))
            assert not page.troubles, page.troubles
        walk("an index that is made anew", lambda: walks.rebuilding(browser, root))
        walk("a server that went away", lambda: walks.server_gone(browser, root))
        walk("tokens", lambda: walks.tokens(browser, walks.fill(base / "guarded")))
        walk("a long day", lambda: walks.long_day(browser, walks.fill_long_day(base / "day")))
        walk("hostile text", lambda: walks.hostile(browser, base / "hostile"))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
