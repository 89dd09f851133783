"""What every storage backend refuses, in the same words: text that is none, a place that is empty, taken or written to since."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.errors import Conflict, Invalid, InvalidLocatorError, NotFound
from cairn.seams import Locator, content_hash


def encoded(key: str, content: str) -> bytes:
    """The bytes of a text, as they are kept."""
    if not isinstance(content, str):
        raise Invalid(f"{key}: content must be text, not {type(content).__name__}.", key=key)
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Invalid(
            f"{key}: character {error.start} is half of a surrogate pair and cannot be stored as UTF-8.",
            key=key,
        ) from None


def nothing_at(key: str) -> NotFound:
    return NotFound(f"{key or 'the root'}: nothing is there.", key=key)


def folder_at(key: str) -> Invalid:
    return Invalid(f"{key or 'the root'}: a folder is there, not a file.", key=key)


def check_beside(locator: Locator, siblings: Sequence[Locator]) -> None:
    """Refuse a new name that differs from one beside it only by case."""
    for one in siblings:
        if one.key != locator.key and one.key.casefold() == locator.key.casefold():
            told = f'{locator}: it differs from "{one.name}" beside it only by case; choose another name.'
            raise InvalidLocatorError(told, key=locator.key, twin=one.name)


def check_expected(key: str, expect: str | None, there: str | bytes | None) -> None:
    """Refuse a write where something else is there (None: nothing) than was expected."""
    found = "" if there is None else content_hash(there)
    if expect is not None and found != expect:
        raise written_meanwhile(key, expect, found)


def written_meanwhile(key: str, expect: str = "", found: str = "") -> Conflict:
    what = "removed" if expect and not found else "written"
    return Conflict(
        f"{key}: it was {what} by someone else since it was read. Read it again and retry.",
        key=key,
        expected=expect,
        found=found,
    )
