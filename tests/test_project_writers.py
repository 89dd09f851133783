"""Many writers at once, and what must never reach a committed log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cairn.errors import CairnError
from tests.project_kit import event_lines, failures, make_repo, open_at
from tests.waiting import LONG


def test_credentials_never_reach_the_log(tree, project):
    """The log is committed: a key in a summary or a signal is cut out before it is written."""
    secret = "AKIA" + "Z7QHXWLPR4T2MNB9"
    project.record(f"Set the key {secret}", {"decisions": [f"We chose to use {secret} for now"]})
    text = (tree / ".cairn/history/events.jsonl").read_text()
    assert secret not in text
    assert "[redacted" in text


def test_many_processes_record_at_once(tree):
    """Four processes write 25 events each: none is lost, every id is its own, in order."""
    code = (
        "import sys, pathlib; from tests.project_kit import open_at; p = open_at(pathlib.Path(sys.argv[1]));"
        "[p.record(f'{sys.argv[2]} {n}', {'decisions': [f'We chose {n}']}) for n in range(25)]"
    )
    here = Path(__file__).parent.parent
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tree), str(n)], cwd=here) for n in range(4)]
    assert [worker.wait(LONG) for worker in workers] == [0] * 4
    events = event_lines(tree)
    assert [event["id"] for event in events] == [f"evt-{n:06d}" for n in range(1, 102)]
    assert {event["summary"] for event in events[1:]} == {f"{w} {n}" for w in range(4) for n in range(25)}
    assert failures(open_at(tree)) == []


def test_a_file_in_the_way_is_a_named_error(tmp_path):
    """.cairn is a file: init says so and changes nothing."""
    tree = make_repo(tmp_path / "r", {"a.py": "A = 1\n", ".cairn": "mine\n"})
    with pytest.raises(CairnError):
        open_at(tree).init()
    assert (tree / ".cairn").read_text() == "mine\n"
    assert not (tree / "docs").exists()
