"""What holds for every test.

`make test` draws the same examples each time: what was green here is green there, and a failure is a fault of the
change. New examples are drawn by `make chaos` (`PART=properties`), which prints its seed.
"""

import logging

import pytest
from hypothesis import HealthCheck, settings

from cairn.engines import quiet
from tests.project_kit import open_at, ready_repo
from tests.world import World

# Tests that load the model themselves are processes of ours, too.
quiet.hush()

# A busy machine is not a failure: time is measured by benchmarks, not by property tests.
settings.register_profile(
    "cairn", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
settings.register_profile(
    "chaos", settings.get_profile("cairn"), derandomize=False, print_blob=True, max_examples=300
)
settings.load_profile("cairn")


@pytest.fixture(autouse=True)
def _levels_of_logs():
    """A command sets what is logged for the rest of its process: here the next test is none of it."""
    root = logging.getLogger()
    kept = root.level, root.handlers[:]
    yield
    root.setLevel(kept[0])
    root.handlers[:] = [one for one in root.handlers if one in kept[1]]
    for name in [one for one in root.manager.loggerDict if one.partition(".")[0] in {"cairn", "uvicorn"}]:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def world(tmp_path):
    """A root that is opened part by part, on real engines."""
    return World(tmp_path)


@pytest.fixture
def tree(tmp_path):
    """A repository with a project memory."""
    return ready_repo(tmp_path / "repo")


@pytest.fixture
def project(tree):
    """The memory of that repository."""
    return open_at(tree)
