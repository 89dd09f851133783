"""Merges two copies of a journal: the union of their lines, each once, in order.

Both begin alike; then each side has appended, or has been united with others before. Lines of both are kept, by their
time, and the same line once. What `forget` took out of a journal in a synced folder leaves a mark, a hash of the line
that was there, so that a copy which still has the line does not bring it back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cairn.canonical import as_line, object_in, text_hash

_MARK = "forgotten"
_TIMES = ("at", "updated_at", "created_at")


def united(name: str, ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """The lines of one journal that holds what both hold; None where `ours` does already."""
    gone = _forgotten((*ours, *theirs))
    kept, other = ([line for line in lines if _hash(line) not in gone] for lines in (ours, theirs))
    lines = _SPECIAL.get(name, by_time)(kept, other)
    return None if lines == list(ours) else lines


def forgotten_marks(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Lines that say which of `before` are not to come back, now that the journal holds `after`."""
    left = {line.rstrip() for line in after}
    return [as_line({"t": _MARK, "of": _hash(line)}) for line in before if line.rstrip() not in left]


def _forgotten(lines: Iterable[str]) -> set[str]:
    return {
        str(value.get("of")) for line in lines if _MARK in line and (value := _value(line)).get("t") == _MARK
    }


def _hash(line: str) -> str:
    return text_hash(line.rstrip())[:24]


def by_time(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """What both have at the beginning, then the lines of both by time; each side keeps its order."""
    same = _same(ours, theirs)
    mine = ours[same:]
    here = Counter(mine)
    fresh = [line for line in theirs[same:] if not _taken(here, line)]
    ordered = heapq.merge(
        ((_time(line), 0, n, line) for n, line in enumerate(mine)),
        ((_time(line), 1, n, line) for n, line in enumerate(fresh)),
    )
    return [*ours[:same], *(line for _, _, _, line in ordered)]


def _same(ours: Sequence[str], theirs: Sequence[str]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((n for n, (mine, other) in pairs if mine != other), min(len(ours), len(theirs)))


def _taken(here: Counter[str], line: str) -> bool:
    """Whether a line is among `here`, as often as it was asked for."""
    here[line] -= 1
    return here[line] >= 0


def _time(line: str) -> str:
    value = _value(line)
    return next((str(value[name]) for name in _TIMES if isinstance(value.get(name), str)), "")


def _value(line: str) -> Mapping[str, Any]:
    return object_in(line) or {}


# ---------------------------------------------------------------- journals with numbers of their own


def _numbered(prefix: str, more: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., list[str]]:
    """A union of lines that are numbered by their place: ours keep their numbers, theirs get the next ones."""

    def make(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
        known = Counter(_nameless(line) for line in ours)
        lines = list(ours)
        for line in theirs:
            name = _nameless(line)
            if known[name] > 0:
                known[name] -= 1
                continue
            value = _value(line)
            if value:
                line = as_line(more({**value, "id": f"{prefix}-{len(lines) + 1:06d}"}))
            lines.append(line)
        return lines

    return make


def _nameless(line: str) -> str:
    value = _value(line)
    if not value:
        return line
    return as_line({name: value[name] for name in sorted(value) if name not in {"id", "changes"}})


def _by_moment(value: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint of the other side: how many changes there had been is another number here, its time is not."""
    return {**value, "changes": -1}


def _by_hash(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Texts of entries: each by its hash, once; ours keep their places."""
    known = {str(_value(line).get("hash", line)) for line in ours}
    lines = list(ours)
    for line in theirs:
        name = str(_value(line).get("hash", line))
        if name not in known:
            known.add(name)
            lines.append(line)
    return lines


_SPECIAL: Mapping[str, Callable[[Sequence[str], Sequence[str]], list[str]]] = {
    "changes.jsonl": _numbered("ent", lambda value: value),
    "checkpoints.jsonl": _numbered("chk", _by_moment),
    "texts.jsonl": _by_hash,
}
