"""A pipe, a link or a folder in the place of a small file of ours holds nobody up, and is not followed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.agents import cold, taking
from cairn.engines import sizes, spool
from cairn.engines.audit import AuditLog
from cairn.engines.tokens import TokenFile
from cairn.errors import Misconfigured
from tests.surfaces.served import serving_here
from tests.waiting import LONG, until

LINE = {"at": "2026-06-01T10:00:00Z", "operation": "search"}


def _stand_in(path: Path, kind: str) -> Path:
    """Something that is no plain file, at `path`; for a link, what it leads to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    target = path.with_name("elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        target.write_text("theirs")
        path.symlink_to(target)
    else:
        path.mkdir()
    return target


def _audited(root: Path) -> object:
    log = AuditLog(root, 4096)
    log.write(LINE)
    log.rewrite(lambda line: {**line, "operation": "x"})
    return log.trouble and list(log.read())


def _troubled(root: Path) -> object:
    spool.trouble(root, "something")
    return spool.take_troubles(root)


def _waiting(root: Path) -> object:
    return [event for _, event in spool.waiting(root)]


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the audit log": ("audit.jsonl", _audited),
    "the sizes of days": ("sizes.jsonl", sizes.days),
    "troubles of hooks": (".hooks/troubles.jsonl", _troubled),
    "an event of a hook": (".hooks/1.json", _waiting),
    "how far a transcript was read": (
        f".hooks/read/{spool.cursor(Path(), 's').name}",
        lambda root: taking._Cursor(root, "s").early,
    ),
    "the page of a cold start": (cold._PAGE.as_posix(), cold.brief),
}


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(
    name: str, kind: str, tmp_path: Path
) -> None:
    """Whoever reads or lengthens the file goes on as if there were none."""
    place, act = READERS[name]
    target = _stand_in(tmp_path / place, kind)
    assert not act(tmp_path)
    assert kind != "link" or target.read_text() == "theirs"


@pytest.mark.timeout(2 * LONG)
def test_a_server_goes_on_when_its_audit_log_is_a_pipe(tmp_path: Path) -> None:
    """Calls are answered, and `status` tells that they are not logged; without the pipe they are again."""
    with serving_here(tmp_path / "root", env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:

        def told() -> str:
            status, answer = server.call("GET", "/api/v1/status")
            assert status == 200
            return json.dumps(answer)

        log = tmp_path / "root" / ".server" / "audit.jsonl"

        def is_logged() -> bool:  # a call is logged once it is answered
            return log.exists() and log.stat().st_size > 0

        told()
        until(is_logged)
        log.unlink()
        os.mkfifo(log)
        until(lambda: "audit log" in told())
        log.unlink()
        told()
        until(is_logged)


@pytest.mark.timeout(LONG)
def test_a_list_of_tokens_that_is_a_pipe_lets_nobody_in(tmp_path: Path) -> None:
    """It is refused like a broken one, at once."""
    _stand_in(tmp_path / "tokens.json", "pipe")
    with pytest.raises(Misconfigured):
        TokenFile(tmp_path).read()
