"""Where a repository's memory lives, and the one way its JSON is written and hashed.

Everything is a `Locator` relative to the work tree. `.cairn/` holds the record, `docs/cairn/` the pages a
person reads. JSON files are written with recursively sorted keys and two-space indent, so that the hash of
a bundle does not depend on who wrote it; lists keep their order, because order is meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any

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
DAEMON = AUTOMATION.child("daemon.json")
PAGES = Locator("docs/cairn")

LOCAL_SOURCE = "cairn.local"
REF_PREFIX = "cairn:"
CONFLICT_LINE = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: .*)?$", re.MULTILINE)


def pretty(value: Any) -> str:
    """The canonical text of a JSON file: sorted keys, two spaces, one newline at the end."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def compact(value: Any) -> str:
    """The canonical text of a journal line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def json_hash(value: Any) -> str:
    """sha256 over the sorted, indented JSON of `value`: equal content gives an equal hash, whatever the key order."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def text_hash(text: str) -> str:
    """sha256 of `text` as UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def stamp(moment: datetime) -> str:
    """`moment` as it is written in every file: UTC, milliseconds, `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: object) -> datetime | None:
    """The time a stamp names, aware and in UTC; None where it is not a time."""
    if not isinstance(text, str):
        return None
    try:
        value = datetime.fromisoformat(text)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
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
