"""What EverOS had accepted and not yet extracted, read from its `system.db`: the buffer, and the queue of requests.

The file is copied with its log before it is opened, so that nothing of it changes, whoever has it open.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn.canonical import from_json
from cairn.errors import CairnError
from cairn.types import Space

FOREIGN = "foreign"  # the ending under which `Database` sets another program's file aside
TAKEN = "taken"  # and the one it has once its messages are in the inbox
UNREAD = "unread"  # or the one it has where they could not all be read
DAMAGED = "damaged"  # what `Database` calls a file that cannot be read at all, ours or not
_VERSION_AT = slice(60, 64)  # of the schema, in the header of every SQLite file
Waiting = tuple[Space, str, dict[str, Any], str]
_FIELDS = ("sender_id", "sender_name", "role", "timestamp", "content", "tool_calls", "tool_call_id")


def is_there(directory: Path) -> bool:
    """Whether an index directory holds, or held, a `system.db` that is not ours; no database is opened for it."""
    path = _path(directory)
    if _is_plain(f"{path}.{FOREIGN}"):
        return True
    return _is_plain(path) and _is_ours(path) is False


def buffered(directory: Path) -> tuple[list[Waiting], str]:
    """Every message that was accepted and not extracted, in order: space, session, message, readable words; and why it is
    not all of them, "" where it is.

    None for another database. It is looked for where it was made, and where it was set aside.
    """
    path = _path(directory)
    aside = Path(f"{path}.{FOREIGN}")
    found_at = aside if _is_plain(aside) else path
    found: list[Waiting] = []
    with tempfile.TemporaryDirectory(prefix="cairn-buffer-") as scratch:
        copy = Path(scratch) / "system.db"
        for suffix in ("", "-wal"):
            if _is_plain(f"{found_at}{suffix}"):
                shutil.copyfile(f"{found_at}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as db:
                db.row_factory = sqlite3.Row
                names = {str(row[0]) for row in db.execute("SELECT name FROM sqlite_master")}
                for table, read in (("unprocessed_buffer", _buffer), ("memorize_inbox", _queue)):
                    found.extend(read(db) if table in names else ())
        except (sqlite3.Error, IndexError) as error:
            return found, f"system.db cannot be read whole ({error})"
    return found, ""


def done_with(directory: Path, *, whole: bool) -> None:
    """Give the file that was set aside the name of one that was looked through, or could not be; it is kept."""
    path = _path(directory)
    was = FOREIGN if whole or _is_plain(f"{path}.{FOREIGN}") else DAMAGED
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}.{was}{suffix}").replace(f"{path}.{TAKEN if whole else UNREAD}{suffix}")


def unread(directory: Path) -> str:
    """What is to be said of a `system.db` that could not be read and is not known to be ours; "" for none.

    Ours is made anew from the files, and nothing of it is missed.
    """
    for ending in (UNREAD, DAMAGED):
        aside = Path(f"{_path(directory)}.{ending}")
        if _is_plain(aside) and not _is_ours(aside):
            return (
                f"a database that cannot be read whole was set aside as .index/sqlite/{aside.name}: if EverOS made it, "
                "messages that it had not extracted may be in there alone"
            )
    return ""


def _is_ours(path: Path) -> bool | None:
    """Whether a database has a version, as ours have; None where it is no database, or cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        head = file.read(_VERSION_AT.stop)
        if head.startswith(b"SQLite format 3\0"):
            return any(head[_VERSION_AT])
    return None


def _is_plain(path: str | Path) -> bool:
    """Whether a file is there, and no link to another, nor a pipe that would keep us waiting."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _path(directory: Path) -> Path:
    return directory / "sqlite" / "system.db"


def _buffer(db: sqlite3.Connection) -> Iterator[Waiting]:
    for row in db.execute("SELECT * FROM unprocessed_buffer ORDER BY timestamp, message_id"):
        fields = dict(row) | {
            "timestamp": _milliseconds(row["timestamp"]),
            "content": _json(row["content_items_json"]) or row["text"],
            "tool_calls": _json(row["tool_calls_json"]),
        }
        yield from _told(row, fields, row["text"])


def _queue(db: sqlite3.Connection) -> Iterator[Waiting]:
    """Requests that were accepted and not carried out."""
    for row in db.execute("SELECT * FROM memorize_inbox WHERE status <> 'success' ORDER BY id"):
        body = _json(row["payload_json"])
        for fields in body.get("messages") or () if isinstance(body, dict) else ():
            if isinstance(fields, dict):
                said = fields.get("content")
                yield from _told(row, fields, said if isinstance(said, str) else "")


def _told(row: sqlite3.Row, fields: Mapping[str, Any], words: str) -> Iterator[Waiting]:
    message = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    if isinstance(message.get("content"), list):
        message["content"] = [
            {key: value for key, value in item.items() if value is not None}
            if isinstance(item, dict)
            else item
            for item in message["content"]
        ]
    with suppress(CairnError):  # a space that no folder can be named after was never served
        yield Space(row["app_id"], row["project_id"]), row["session_id"], message, words


def _json(text: object) -> Any:
    try:
        return from_json(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def _milliseconds(text: object) -> int | None:
    """A time as SQLite has it: UTC, without saying so."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)
