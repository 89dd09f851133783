"""JSON and hashes in the one form in which they are written to files, and time stamps of the histories.

JSON files have recursively sorted keys and two-space indent, so that a hash does not depend on who wrote the
file; lists keep their order, because order is meaning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_LONGEST = 200  # characters of a label; a longer value is compared by its hash
# Made once: `json.dumps` with options makes an encoder for each call, which costs as much as a short line.
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_GIVEN = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def pretty(value: Any) -> str:
    """The canonical text of a JSON file: sorted keys, two spaces, one newline at the end."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def compact(value: Any) -> str:
    """The canonical text of a journal line."""
    return _SORTED.encode(value)


def as_line(value: Any) -> str:
    """A journal's line whose keys stand as they were given."""
    return _GIVEN.encode(value)


def from_json(text: str | bytes, *, strict: bool = False, once: bool = False) -> Any:
    """What JSON that others wrote says; with `strict` without the numbers that are none (NaN, Infinity).

    With `once` no object may have a field twice, either: all but the last would be lost unsaid.

    Raises:
        ValueError: it cannot be read, for whatever reason; the words are for people.
    """
    try:
        if strict or once:
            return (_ONCE if once else _STRICT).decode(
                text.decode("utf-8") if isinstance(text, bytes) else text
            )
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):  # of digits, by the name of a function of Python
            raise ValueError("it holds a number of several thousand digits") from None
        raise


def storable(text: str) -> str:
    """`text` as a note or a log can hold it: NUL, and halves of characters that a program has cut a text in, become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _with_each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise ValueError(f"one object has the field {json.dumps(name[:80])} twice")
    return found


_STRICT = json.JSONDecoder(parse_constant=_no_number)
_ONCE = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_with_each_once)


def object_in(line: str | bytes) -> dict[str, Any] | None:
    """The JSON object a journal's line, or the body of a call, holds; None where it is damaged, or holds something else."""
    try:
        value = from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def objects_in(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The objects that a journal's lines hold. A damaged line costs only itself: it is passed over."""
    return (value for line in lines if (value := object_in(line)) is not None)


def rows_in(shape: type[T], lines: Iterable[str]) -> Iterator[T]:
    """A journal's lines as values of a dataclass. Fields it does not know are passed over, and a line that lacks one of its own."""
    names = [one.name for one in fields(shape)]
    for value in objects_in(lines):
        with suppress(TypeError):
            yield shape(**{name: value[name] for name in names if name in value})


def json_hash(value: Any) -> str:
    """sha256 over the sorted, indented JSON of `value`: equal content gives an equal hash, whatever the key order."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def text_hash(text: str) -> str:
    """sha256 of `text` as UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stamp(moment: datetime) -> str:
    """`moment` as the histories of repositories and of entries have it: UTC, milliseconds, `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: object) -> datetime | None:
    """The time a stamp names, aware and in UTC; None where it is not a time."""
    if not isinstance(text, str):
        return None
    try:
        value = datetime.fromisoformat(text.strip())
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_in_zone(text: str) -> datetime | None:
    """The time a person names, who has to say in which zone: None for one without, as for what is no time."""
    with suppress(ValueError):
        if datetime.fromisoformat(text.strip()).tzinfo is not None:
            return moment(text)
    return None


def label(name: str, value: Any) -> str:
    """One label. Equal numbers are equal, however they are written.

    >>> label("metadata.ticket", 42.0), label("metadata.ticket", "42"), label("metadata.done", True)
    ('metadata.ticket=42', 'metadata.ticket="42"', 'metadata.done=true')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    named = json.dumps(name)[1:-1]
    text = f"{named}={json.dumps(value)}"
    if len(text) <= _LONGEST:
        return text
    return f"{named[:_LONGEST]}=#{hashlib.blake2b(text.encode('ascii'), digest_size=16).hexdigest()}"
