"""Where a repository's memory lives, and how its JSON files are read.

Everything is a `Locator` relative to the work tree. `.cairn/` holds the record, `docs/cairn/` the pages a
person reads.
"""

from __future__ import annotations

import re
from typing import Any

from cairn.canonical import from_json
from cairn.errors import Invalid, NotFound
from cairn.seams import Locator, StorageBackend

SCHEMA_VERSION = 2
GENERATOR_VERSION = "0.3.0"
PROJECTION_VERSION = 3
ENTRY_VERSION = 3

HOME = Locator(".cairn")
STATE = HOME.child("state.json")
CONFIG = HOME.child("config.json")
SOURCES = HOME.child("sources.json")
EVENTS = HOME.child("history/events.jsonl")
IMPORTS = HOME.child("history/imports.jsonl")
CHECKPOINTS = HOME.child("history/checkpoints")
ARCHIVE = HOME.child("archive")
EDITS = HOME.child("edits")
AUTOMATION = HOME.child("automation")
LATEST_RUN = AUTOMATION.child("latest-run.json")
SEEN = AUTOMATION.child("seen.json")
DAEMON = AUTOMATION.child("daemon.json")
PAGES = Locator("docs/cairn")

LOCAL_SOURCE = "cairn.local"
REF_PREFIX = "cairn:"
CONFLICT_LINE = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: .*)?$", re.MULTILINE)


def read_json(storage: StorageBackend, at: Locator) -> Any:
    """The JSON at `at`, or None where there is no file.

    Raises:
        Invalid: the file is not JSON; the message says whether a merge left its markers in it.
    """
    try:
        text = storage.read(at)
    except NotFound:
        return None
    except UnicodeDecodeError:
        raise Invalid(f"{at} is not UTF-8 text. Restore it from version control.", path=str(at)) from None
    try:
        return from_json(text)
    except ValueError as error:
        found = CONFLICT_LINE.search(text)
        if found:
            line = text.count("\n", 0, found.start()) + 1
            raise Invalid(
                f"{at}, line {line}: merge-conflict markers. Keep one side and run the command again.",
                path=str(at),
                line=line,
                conflict=True,
            ) from None
        line = getattr(error, "lineno", 1)
        raise Invalid(
            f"{at}, line {line}: not valid JSON. Correct the line, or restore the file from version control.",
            path=str(at),
            line=line,
        ) from None


def number_of(ident: object, prefix: str) -> int:
    """The number in an id such as `evt-000012`; 0 where it is not one."""
    if not isinstance(ident, str) or not ident.startswith(f"{prefix}-"):
        return 0
    digits = ident[len(prefix) + 1 :]
    return int(digits) if len(digits) >= 6 and digits.isascii() and digits.isdigit() else 0
