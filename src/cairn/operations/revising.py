"""Replaces an entry's block, or a document's body, in its file by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cairn.errors import Conflict, Invalid
from cairn.notes.format import parse_note, render_entry
from cairn.seams import Locator, content_hash

if TYPE_CHECKING:
    from cairn.parts import Parts
    from cairn.types import Entry


def source_of(text: str, entry: Entry) -> str:
    """What stands between the markers of an entry, below its heading."""
    block = text[entry.start : entry.end].replace("\r\n", "\n")
    lines = block.strip("\n").split("\n")[1:-1]
    if lines and lines[0].strip() == f"## {entry.id}":
        lines = lines[1:]
    return "\n".join(lines).strip("\n")


def version_of(source: str) -> str:
    """What `revise` compares: a hash of the text somebody read."""
    return content_hash(source)[:16]


def revise(parts: Parts, shown: Mapping[str, Any], source: str, expect: str) -> None:
    """Write `source` where `shown` stands, under the note's lock.

    Raises:
        Conflict: the file holds another version by now.
        Invalid: the text would not come back as one entry.
    """
    locator = Locator(shown["path"])
    name = shown["id"].removeprefix(f"{shown['owner']}_") if shown["owner"] else shown["id"]
    clean = source.replace("\r\n", "\n").strip("\n")

    def edit(text: str | None) -> str:
        note = parse_note(text or "")
        if not shown["line"]:
            old, start, end = note.body.strip(), note.head.body, len(note.text)
            new = f"{clean}\n"
        else:
            entry = note.entry(name)
            old, start, end = source_of(note.text, entry), entry.start, entry.end
            newline = "\r\n" if "\r\n" in note.text[start:end] else "\n"
            new = render_entry(entry.id, f"{clean}\n", newline)
            if not note.text[start:end].endswith("\n"):
                new = new.rstrip("\r\n")
        if version_of(old) != expect:
            raise Conflict(
                f"{shown['id']} was changed since you read it. Nothing was written.", id=shown["id"]
            )
        made = note.text[:start] + new + note.text[end:]
        _check(note.text, made, name, whole=not shown["line"])
        return made

    parts.notebook.own.is_by_hand(locator.key)
    parts.notebook.rewrite(locator, edit)
    parts.observer.settle()


def _check(before: str, after: str, name: str, *, whole: bool) -> None:
    """The note must read as before, with this one entry changed."""
    old, new = parse_note(before), parse_note(after)
    if {one.id for one in old.entries} != {one.id for one in new.entries} or new.damaged - old.damaged:
        raise Invalid(
            "The text holds a marker of an entry (<!-- entry: ... -->), which would tear the note apart. Take it out.",
            field="source",
        )
    if not whole and not any(new.entry(name).sections.values()) and not new.entry(name).inline:
        raise Invalid("Nothing of the text would be kept: write at least one sentence.", field="source")
