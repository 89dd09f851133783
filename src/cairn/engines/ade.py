"""Reads a database of ADE as rows for an import, and writes one for other programs."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cairn.errors import Conflict, Invalid, Unavailable

_MAGIC = b"SQLite format 3\0"
_MOST_BYTES = 64 * 1024 * 1024
_TABLES = ("unified_memories", "memory_procedure_details", "memories")


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def _whole(path: Path) -> Iterator[str]:
    """Where to read the database, changing nothing beside it: a copy where its newest rows are still in its log."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        yield f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        return
    with TemporaryDirectory(prefix="cairn-ade-") as folder:
        copy = Path(folder) / "ade.db"
        shutil.copyfile(path, copy)
        shutil.copyfile(log, f"{copy}-wal")
        yield copy.as_uri()


def text_of(data: bytes) -> str:
    """What an import takes, of the bytes of an export: its text, or the rows of a database as text.

    Raises:
        Invalid: it is neither.
    """
    if not data.startswith(_MAGIC):
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Invalid(
                f"The export is neither UTF-8 text nor an SQLite database: {error}.", field="text"
            ) from None
    with TemporaryDirectory(prefix="cairn-ade-") as folder:
        copy = Path(folder) / "ade.db"
        copy.write_bytes(data)
        return rows_text(copy)


def rows_text(path: Path) -> str:
    """The rows of an ADE database as a text that an import takes.

    Raises:
        Invalid: it is no such database.
    """
    return json.dumps({"rows": from_database(path)}, ensure_ascii=False)


def from_database(path: Path) -> list[Mapping[str, Any]]:
    """The rows of an ADE database: its memories with what is known of procedures, and what the legacy table still holds.

    Whoever made it may mean harm: only tables are read, not what a view computes, and no more than an import may be.

    Raises:
        Invalid: it is no such database.
    """
    try:
        with _whole(path) as file, closing(sqlite3.connect(file, uri=True)) as db:
            db.row_factory = sqlite3.Row
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            db.execute("PRAGMA trusted_schema = OFF")
            names = {row[0] for row in db.execute("select name from sqlite_master where type = 'table'")}
            left = _MOST_BYTES
            found: dict[str, list[dict[str, Any]]] = {table: [] for table in _TABLES}
            for table in _TABLES:
                for row in db.execute(f"select * from {table}") if table in names else ():
                    kept = {key: value for key, value in dict(row).items() if not isinstance(value, bytes)}
                    left -= sum(len(value) for value in kept.values() if isinstance(value, str))
                    if left < 0:
                        raise Invalid(
                            f"{path.name} holds more than {_MOST_BYTES:,} bytes of text.", file=path.name
                        )
                    found[table].append(kept)
    except (sqlite3.Error, OSError) as error:
        raise Invalid(f"{path.name} cannot be read as a database: {error}.", file=path.name) from None
    if not {"unified_memories", "memories"} & names:
        raise Invalid(
            f"{path.name} has neither unified_memories nor memories: no database of ADE.", file=path.name
        )
    memories, details, legacy = (found[table] for table in _TABLES)
    known = {row.get("memory_id"): row for row in details}
    for row in memories:
        told = known.get(row.get("id"), {})
        row |= {key: told.get(key) for key in ("trigger", "procedure_markdown")}
    return [*memories, *legacy]


def write_database(target: Path, fill: Callable[[sqlite3.Connection], int]) -> int:
    """Make the database `target`, readable by its owner alone, and have `fill` write into it; what that returns.

    It has a temporary name until it is complete.

    Raises:
        Conflict: there is a file of that name; it is left as it is.
        Unavailable: it cannot be written.
    """
    if target.exists():
        raise Conflict(f"{target} is there already: choose a new name, or move it away.", target=str(target))
    draft = target.with_name(f".{target.name}.tmp.{uuid.uuid4().hex[:8]}")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(draft)) as db:
            done = fill(db)
        os.link(draft, target)
    except FileExistsError:
        raise Conflict(f"{target} is there already: choose a new name.", target=str(target)) from None
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"{target} cannot be written: {error}.", target=str(target)) from None
    finally:
        draft.unlink(missing_ok=True)
    return done
