"""Text <-> values: entries, their fields and their escaping. Pure, and exact to the byte both ways.

A note is a YAML head and a body. In the body, entries stand between HTML comments:

    <!-- entry:ep_20260601_00000001 -->
    ## ep_20260601_00000001

    **session_id**: s1

    ### Content
    any text
    <!-- /entry:ep_20260601_00000001 -->

Parsing looks for markers and headings only. Text that would look like one is written with a backslash that
reading takes away again, so any text comes back as it went in. `docs/note-format.md` is the specification.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property, lru_cache
from typing import Any

from cairn.canonical import from_json
from cairn.errors import Invalid, NotFound
from cairn.notes.frontmatter import Head, find_head, read_head
from cairn.types import Entry, Problem

_OPEN, _CLOSE, _END = "<!-- entry:", "<!-- /entry:", " -->"
_MARKER = re.compile(r"<!-- (/?)entry:([^\s<>]{1,200}) -->")
_INLINE_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TITLE = re.compile(r"[^\s#\\](?:[^\x00-\x1f\x7f\x85\u2028\u2029]{0,118}[^\s\x00-\x1f\x7f])?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)

# One rule in two directions: a line that begins with any number of backslashes and then something that
# matters gains one backslash when written and loses one when read.
_NEEDS_GUARD = re.compile(r"^(?=\\*#{2,3} |\\+[ \t\r]*$)", re.MULTILINE)
_GUARDED = re.compile(r"^\\(?=\\*#{2,3} |\\*[ \t\r]*$)", re.MULTILINE)
_MARKER_LIKE = re.compile(r"<!--(\\*)(?=[ \t]*/?entry:)")
_MARKER_GUARDED = re.compile(r"<!--\\(\\*)(?=[ \t]*/?entry:)")
_QUOTE_INLINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]|\A\\\"|\A[ \t]|[ \t]\Z")
_SOUND_ID = re.compile(r"[^\s<>]{1,200}")
_BLANKS = " \t\r"
MAX_SEQUENCE = 99_999_999


@dataclass(frozen=True, slots=True, order=True)
class EntryId:
    """`<prefix>_<YYYYMMDD>_<NNNNNNNN>`: unique in its note, never reused, never changed.

    >>> str(EntryId.next_for("ep", "2026-06-01", 0))
    'ep_20260601_00000001'
    """

    prefix: str
    day: str
    sequence: int

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise Invalid(f'"{self.prefix[:60]}" is not an entry id prefix.', field="entry_id")
        checked_day(self.day)
        if not 1 <= self.sequence <= MAX_SEQUENCE:
            raise Invalid(
                f"An entry's sequence is 1 to {MAX_SEQUENCE}, not {self.sequence}.", field="entry_id"
            )

    @classmethod
    def parse(cls, text: str) -> EntryId:
        """Read an id; a prefix may hold `_`, and 4-digit sequences of older notes are accepted."""
        parts = text.rsplit("_", 2)
        if len(parts) == 3:
            prefix, day, digits = parts
            if re.fullmatch(r"[0-9]{8}", day, re.ASCII) and re.fullmatch(
                r"[0-9]{4}|[0-9]{8}", digits, re.ASCII
            ):
                return cls(prefix, f"{day[:4]}-{day[4:6]}-{day[6:]}", int(digits))
        shown = text[:60].encode("unicode_escape").decode("ascii")
        raise Invalid(
            f'"{shown}" is not an entry id: expected prefix_YYYYMMDD_NNNNNNNN, e.g. ep_20260601_00000001.',
            field="entry_id",
        )

    @classmethod
    def next_for(cls, prefix: str, day: str | date, current_count: int) -> EntryId:
        """The id after `current_count` entries of that day's note."""
        return cls(prefix, day.isoformat() if isinstance(day, date) else day, current_count + 1)

    def __str__(self) -> str:
        return f"{self.prefix}_{self.day.replace('-', '')}_{self.sequence:08d}"

    format = __str__


def checked_day(day: str) -> str:
    """Return `day` if it is a real YYYY-MM-DD date."""
    if isinstance(day, str) and _DAY.fullmatch(day):
        try:
            date.fromisoformat(day)
        except ValueError:
            pass
        else:
            return day
    raise Invalid(f'"{str(day)[:40]}" is not a date: write YYYY-MM-DD.', field="day")


@dataclass(frozen=True)
class Note:
    """A parsed note.

    `entries` are the readable ones in file order; `damaged` holds the ids of entries that were opened but
    cannot be read (unterminated, nested, doubled): what was indexed for them should stay.
    """

    text: str = field(repr=False)
    frontmatter: Mapping[str, Any]
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    damaged: frozenset[str] = frozenset()
    head: Head = field(default=Head(0, 0, 0, fenced=False), repr=False)

    @property
    def body(self) -> str:
        """Everything below the head, as it stands in the file."""
        return self.text[self.head.body :]

    @cached_property
    def by_id(self) -> Mapping[str, Entry]:
        return {entry.id: entry for entry in self.entries}

    def entry(self, entry_id: str) -> Entry:
        """The entry with that id. Raises `NotFound`, saying so when it is there but damaged."""
        found = self.by_id.get(entry_id)
        if found is None:
            why = (
                "is there but damaged: mend its markers"
                if entry_id in self.damaged
                else "is not in this note"
            )
            raise NotFound(f"Entry {entry_id[:80]} {why}.", entry_id=entry_id)
        return found


def parse_note(text: str, *, loose: str = "Content") -> Note:
    """Read a whole note; never raises.

    Args:
        text: The note.
        loose: The section that text standing in an entry without any `###` heading is taken for.
    """
    head = find_head(text)
    problems: list[Problem] = []
    if text.startswith("\ufeff"):
        problems.append(Problem("bom", 1, "The note begins with a byte order mark; it is kept."))
    if "\r" in text[:4096] and "\r\n" in text:
        problems.append(Problem("crlf", 1, "The note has Windows line ends; they are kept."))
    frontmatter: dict[str, Any] = {}
    if not head.fenced:
        problems.append(Problem("frontmatter-missing", 1, "The note has no frontmatter."))
    elif not head.closed:
        problems.append(Problem("frontmatter-unterminated", 1, "The frontmatter has no closing ---."))
    else:
        frontmatter, wrong = read_head(text[head.start : head.end])
        problems.extend(wrong)
    sound = _parse_sound_entries(text, head.body, loose)
    entries, more, damaged = (*sound, set[str]()) if sound else _parse_any_entries(text, head.body, loose)
    problems.extend(more)
    return Note(text, frontmatter, entries, tuple(problems), frozenset(damaged), head)


def with_blocks(text: str, chosen: Callable[[str], bool]) -> str:
    """A note with those entries alone whose text is `chosen`; whole where it is damaged, as all of it is to be looked at."""
    head, *blocks = text.split(_OPEN)
    if any(block.count(_CLOSE) != 1 for block in blocks):
        return text
    return _OPEN.join([head, *filter(chosen, blocks)])


def markers(text: str, start: int = 0) -> Iterator[tuple[re.Match[str], bool, str]]:
    """Each entry marker that stands alone on its line: the match, whether it closes, and the id."""
    for match in _MARKER.finditer(text, start):
        begin, end = match.span()
        if begin > start and text[begin - 1] != "\n":
            continue
        stop = text.find("\n", end)
        if text[end : len(text) if stop < 0 else stop].strip(_BLANKS):
            continue
        yield match, match.group(1) == "/", match.group(2)


def _parse_sound_entries(text: str, start: int, loose: str) -> tuple[tuple[Entry, ...], list[Problem]] | None:
    """All entries of a note without damage, quickly; None as soon as anything is unusual."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    pieces = text[start:].split(_OPEN)
    position = start + len(pieces[0])
    line = text.count("\n", 0, position) + 1
    gap = pieces[0]
    joined = False  # the marker before has no line of its own
    for piece in pieces[1:]:
        entry_id, mark, rest = piece.partition(_END)
        block, closing, after = rest.partition(f"{_CLOSE}{entry_id}{_END}")
        if (
            joined
            or (gap and gap[-1] != "\n")
            or not mark
            or block[:1] != "\n"
            or block[-1] != "\n"
            or not closing
            or entry_id in seen
            or (after and after[0] != "\n")
        ):
            return None
        seen.add(entry_id)
        inline, sections = _parse_block(block, entry_id, line, loose, problems)
        gap, joined = after[1:], not after
        end = position + len(_OPEN) + len(piece) - len(gap)
        entries.append(Entry(entry_id, inline, sections, position, end, line))
        position += len(_OPEN) + len(piece)
        line += piece.count("\n")
    sound = text.count(_CLOSE, start) == len(entries) and all(map(_SOUND_ID.fullmatch, seen))
    return (tuple(entries), problems) if sound else None


def _parse_any_entries(
    text: str, start: int, loose: str
) -> tuple[tuple[Entry, ...], list[Problem], set[str]]:
    """Whatever can be read of a note, damage and all: after each break it goes on at the next opening marker."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    damaged: set[str] = set()
    seen: set[str] = set()
    opened: tuple[re.Match[str], str, int] | None = None
    line, counted = 1, 0
    for match, closes, entry_id in markers(text, start):
        begin = match.start()
        line += text.count("\n", counted, begin)
        counted = begin
        if not closes:
            if opened is not None:
                problems.append(_unterminated(opened[1], opened[2]))
                damaged.add(opened[1])
            opened = (match, entry_id, line)
            continue
        if opened is None:
            problems.append(
                Problem("stray-close", line, f"A closing marker of {entry_id} has no opening one.")
            )
            continue
        first, open_id, open_line = opened
        opened = None
        if entry_id != open_id:
            problems.append(
                Problem("mismatched-close", line, f"{open_id} (line {open_line}) is closed as {entry_id}.")
            )
            damaged.add(open_id)
        elif open_id in seen:
            problems.append(
                Problem("doubled-entry", open_line, f"{open_id} is used twice; the first one counts.")
            )
        else:
            seen.add(open_id)
            stop = text.find("\n", match.end())
            end = len(text) if stop < 0 else stop + 1
            block = text[first.end() : begin]
            inline, sections = _parse_block(block, open_id, open_line, loose, problems)
            entries.append(Entry(open_id, inline, sections, first.start(), end, open_line))
    if opened is not None:
        problems.append(_unterminated(opened[1], opened[2]))
        damaged.add(opened[1])
    return tuple(entries), problems, damaged - seen


def _unterminated(entry_id: str, line: int) -> Problem:
    return Problem("unterminated-entry", line, f"{entry_id} is opened but not closed before the next entry.")


def _parse_block(
    block: str, entry_id: str, line: int, loose: str, problems: list[Problem]
) -> tuple[dict[str, str], dict[str, str]]:
    """Fields and sections of one entry, from the text between its markers."""
    if block.startswith("\r\n"):
        block = block.replace("\r\n", "\n")
    parts = block.split("\n### ")
    heading = f"\n## {entry_id}\n"
    if parts[0].startswith(heading):
        fields = _plain_fields(parts[0][len(heading) :].strip("\n"))
        sections: dict[str, str] = {}
        if fields is not None:
            for part in parts[1:]:
                title, _, raw = part.partition("\n")
                if not title or title[0] in _BLANKS or title[-1] in _BLANKS or title in sections:
                    break
                sections[title] = _read_section(raw)
            else:
                return fields, sections
    return _parse_odd_block(parts, entry_id, line, loose, problems)


def _plain_fields(text: str) -> dict[str, str] | None:
    """The inline fields, where nothing else stands before the first section; None otherwise."""
    fields: dict[str, str] = {}
    if not text:
        return fields
    # Values with escapes or outer blanks are rare: look for them once, not in every line.
    plain = not (
        "\\" in text or "\t" in text or "\r" in text or " \n" in text or ":  " in text or text[-1] == " "
    )
    rows = text.split("\n")
    for row in rows:
        key, colon, value = row.partition("**: ")
        name = _field_name(key)
        if not colon or name is None:
            return None
        fields[name] = value if plain else _read_inline(value.strip(_BLANKS))
    return fields if len(fields) == len(rows) else None


@lru_cache(maxsize=512)
def _field_name(key: str) -> str | None:
    """`owner_id` for `**owner_id`; None for what is no field. There are few names, met again and again."""
    return key[2:] if key.startswith("**") and _INLINE_KEY.fullmatch(key, 2) else None


def _parse_odd_block(
    parts: Sequence[str], entry_id: str, line: int, loose: str, problems: list[Problem]
) -> tuple[dict[str, str], dict[str, str]]:
    """The same for an entry a person wrote: loose text, other headings, doubled names."""
    inline: dict[str, str] = {}
    sections: dict[str, str] = {}
    position = 0
    for row in parts[0].split("\n"):
        if row[:2] == "**":
            key, colon, value = row[2:].partition("**:")
            if colon and _INLINE_KEY.fullmatch(key):
                value = value.strip(_BLANKS)
                if key in inline:
                    problems.append(
                        Problem("doubled-field", line, f"{entry_id} sets {key[:64]} twice; the first counts.")
                    )
                else:
                    inline[key] = _read_inline(value) if "\\" in value else value
                position += len(row) + 1
                continue
        if not row.strip(_BLANKS) or (not inline and _is_heading(row, entry_id, line, problems)):
            position += len(row) + 1
            continue
        sections[loose] = _read_section(parts[0][position:])
        break
    title = ""
    for part in parts[1:]:
        name, _, raw = part.partition("\n")
        name = name.strip(_BLANKS)
        if not name:
            if title:
                sections[title] += "\n### " + part.rstrip("\n")
            continue
        title = name
        text = _read_section(raw)
        if title in sections:
            problems.append(Problem("doubled-section", line, f"{entry_id} has {title[:80]} twice; joined."))
            text = "\n\n".join(filter(None, (sections[title], text)))
        sections[title] = text
    return inline, sections


def _is_heading(row: str, entry_id: str, line: int, problems: list[Problem]) -> bool:
    if not row.startswith("## "):
        return False
    named = row[3:].strip(_BLANKS)
    if named == entry_id:
        return True
    if named.startswith(entry_id.partition("_")[0] + "_"):
        problems.append(Problem("heading-mismatch", line, f"{entry_id} is headed {named[:80]}."))
        return True
    return False


def _read_inline(value: str) -> str:
    if value.startswith('\\"'):
        try:
            decoded = from_json(value[1:])
        except ValueError:
            return value
        if isinstance(decoded, str):
            value = decoded
    return _MARKER_GUARDED.sub(r"<!--\1", value) if "<!--\\" in value else value


def _read_section(raw: str) -> str:
    text = raw.strip("\n")
    if text and text[0] not in _BLANKS and text[-1] not in _BLANKS and "\\" not in text:
        return text
    while text and text[0] in _BLANKS:
        first, newline, rest = text.partition("\n")
        if first.strip(_BLANKS):
            break
        text = rest.lstrip("\n") if newline else ""
    while text and text[-1] in _BLANKS:
        rest, newline, last = text.rpartition("\n")
        if last.strip(_BLANKS):
            break
        text = rest.rstrip("\n") if newline else ""
    if "\\" in text:
        text = _GUARDED.sub("", _MARKER_GUARDED.sub(r"<!--\1", text))
    return text


def escape_text(text: str) -> str:
    """`text` as it may stand in a section."""
    if not text:
        return ""
    if "#" in text or "\\" in text:
        text = _NEEDS_GUARD.sub(r"\\", text)
    if "<!--" in text:
        text = _MARKER_LIKE.sub(r"<!--\\\1", text)
    first, newline, _ = text.partition("\n")
    if not first.strip(_BLANKS):
        text = "\\" + text
    if newline:
        rest, _, last = text.rpartition("\n")
        if not last.strip(_BLANKS):
            text = f"{rest}\n\\{last}"
    return text


def inline_text(value: object) -> str:
    """The text of an inline value: lists as `[a, b]`, times as UTC ISO, booleans as true/false."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Invalid("A time in a note needs a zone: pass an aware datetime.", field="inline")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "[" + ", ".join(_list_item(inline_text(item)) for item in value) + "]"
    raise Invalid(f"An inline field cannot hold {type(value).__name__}.", field="inline")


def _list_item(text: str) -> str:
    if not text or text != text.strip() or text[0] in '"[' or re.search(r"[,\]\x00-\x1f]", text):
        return json.dumps(text, ensure_ascii=False)
    return text


_LIST_ITEM = re.compile(r'[ \t]*("(?:[^"\\]|\\.)*"(?=[ \t]*(?:,|\Z))|[^,]*)')


def list_items(value: str) -> list[str]:
    """The items of an inline list `[a, b]`; a value that is no list is its own single item."""
    bare = value.strip()
    if not (bare.startswith("[") and bare.endswith("]")):
        return [bare] if bare else []
    inner = bare[1:-1].strip()
    items: list[str] = []
    position = 0
    while position < len(inner):
        match = _LIST_ITEM.match(inner, position)
        assert match is not None
        items.append(_read_item(match.group(1).strip()))
        position = inner.find(",", match.end()) + 1 or len(inner)
    return items


def _read_item(item: str) -> str:
    if item.startswith('"'):
        try:
            decoded = from_json(item)
        except ValueError:
            return item
        if isinstance(decoded, str):
            return decoded
    return item


def render_body(inline: Mapping[str, object], sections: Mapping[str, str]) -> str:
    """The lines of an entry below its heading. Fields that are None are left out.

    Raises:
        Invalid: a bad key or title, NUL, or text that is not valid Unicode.
    """
    lines = []
    for key, value in inline.items():
        if not isinstance(key, str) or not _INLINE_KEY.fullmatch(key):
            raise Invalid(f'"{str(key)[:60]}" is not an inline field name.', field="inline")
        if value is not None:
            lines.append(f"**{key}**: {_inline_value(inline_text(value))}".rstrip(" ") + "\n")
    parts = ["".join(lines)] if lines else []
    for title, text in sections.items():
        if not isinstance(title, str) or not _TITLE.fullmatch(title) or "<!--" in title:
            raise Invalid(f'"{str(title)[:60]!r}" is not a section title.', field="sections")
        if not isinstance(text, str):
            raise Invalid(f"Section {title} must be text, not {type(text).__name__}.", field="sections")
        parts.append(f"### {title}\n{escape_text(text)}" + ("\n" if text else ""))
    return checked_text("\n".join(parts), field="sections")


def checked_text(text: str, where: str = "Text", **about: str) -> str:
    """Return `text` if a note can hold it."""
    if "\0" in text:
        raise Invalid(f"{where} in a note cannot hold NUL.", **about)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Invalid(f"{where} in a note must be valid Unicode: {error.reason}.", **about) from None
    return text


def _inline_value(text: str) -> str:
    if "\0" in text:
        raise Invalid("Text in a note cannot hold NUL.", field="inline")
    if "<!--" in text:
        text = _MARKER_LIKE.sub(r"<!--\\\1", text)
    if _QUOTE_INLINE.search(text):
        quoted = json.dumps(text, ensure_ascii=False)
        text = "\\" + re.sub(r"[\x7f\x85\u2028\u2029]", lambda m: f"\\u{ord(m.group()):04x}", quoted)
    return text


def render_entry(entry_id: str, body: str, newline: str = "\n") -> str:
    """A whole entry block around `body` (from `render_body`), markers and last line end included.

    Windows line ends are used only where the text holds no carriage return of its own: then they read back
    exactly.
    """
    gap = "\n" if body else ""
    block = f"<!-- entry:{entry_id} -->\n## {entry_id}\n{gap}{body}<!-- /entry:{entry_id} -->\n"
    return block.replace("\n", newline) if newline != "\n" and "\r" not in block else block


def below_headings(text: str, heading: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Each heading of a plain text, folded, and what stands below it up to the next."""
    found = list(heading.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=False):
        yield match[1].strip().casefold(), text[match.end() : end].strip()


def spliced(note: Note, blocks: Mapping[str, str]) -> str:
    """The text of a note with other blocks in the place of some entries, by id; every other byte stays.

    Raises:
        NotFound: an entry is not there, or damaged.
    """
    pieces, position = [], 0
    for entry in sorted(map(note.entry, blocks), key=lambda one: one.start):
        pieces += [note.text[position : entry.start], blocks[entry.id]]
        position = entry.end
    return "".join(pieces) + note.text[position:]


def content_sha256(fields: Mapping[str, str]) -> str:
    """sha256 over the sorted `key=value` lines of an entry's content fields.

    Line breaks and backslashes inside values are escaped, so that no two sets of fields share their lines.
    """
    lines = (f"{key}={fields[key]}".replace("\\", "\\\\").replace("\n", "\\n") for key in sorted(fields))
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
