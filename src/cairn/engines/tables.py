"""Writes a new SQLite file for other programs under a temporary name and renames it when it is complete."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cairn.errors import Conflict, Unavailable


def write_database(target: Path, fill: Callable[[sqlite3.Connection], int]) -> int:
    """Make the database `target`, readable by its owner alone, and have `fill` write into it; what that returns.

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
