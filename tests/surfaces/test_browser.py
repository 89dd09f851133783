"""The page in a real Chromium, in short: correct and find, review by keyboard, accessibility. `make e2e` walks all of it."""

import pytest

from tests import page_walks as walks
from tests.surfaces.served import serving

pytestmark = [
    pytest.mark.skipif(
        walks.CHROMIUM is None, reason="no Chromium here (Debian and Ubuntu: apt install chromium)"
    ),
    pytest.mark.xdist_group("chromium"),
]


def test_a_person_on_the_page(tmp_path):
    """One story in one browser: search, correct, find the correction, bring it back; review five by keyboard; every
    view is accessible, and nothing went wrong in the console.
    """
    root = walks.fill(tmp_path / "root", candidates=6)
    with walks.chromium() as browser, serving(root, env=walks.ENV) as server:
        page = walks.visitor(browser, server.port, root)
        walks.correct_and_find(page)
        walks.accessible(page, ["/", "/view/review"])
        walks.review_by_keyboard(page)
        assert not page.troubles
