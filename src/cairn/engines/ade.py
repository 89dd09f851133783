"""A database of ADE, read as the rows that an import takes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cairn.errors import Invalid


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


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


def from_database(path: Path) -> list[Mapping[str, Any]]:
    """The rows of an ADE database: its memories with what is known of procedures, and what the legacy table still holds.

    Raises:
        Invalid: it is no such database.
    """
    try:
        with _whole(path) as file, closing(sqlite3.connect(file, uri=True)) as db:
            db.row_factory = sqlite3.Row
            names = {
                row[0] for row in db.execute("select name from sqlite_master where type in ('table', 'view')")
            }
            rows: list[dict[str, Any]] = []
            if "unified_memories" in names:
                rows += [dict(row) for row in db.execute("select * from unified_memories")]
            if "memory_procedure_details" in names:
                known = {
                    row["memory_id"]: dict(row)
                    for row in db.execute("select * from memory_procedure_details")
                }
                for row in rows:
                    told = known.get(row.get("id"), {})
                    row |= {key: told.get(key) for key in ("trigger", "procedure_markdown")}
            if "memories" in names:
                rows += [dict(row) for row in db.execute("select * from memories")]
    except (sqlite3.Error, OSError) as error:
        raise Invalid(f"{path.name} cannot be read as a database: {error}.", file=str(path)) from None
    if not {"unified_memories", "memories"} & names:
        raise Invalid(
            f"{path.name} has neither unified_memories nor memories: no database of ADE.", file=str(path)
        )
    return [{k: v for k, v in row.items() if not isinstance(v, bytes)} for row in rows]
