"""How counts and long texts are put into a line that a person reads."""

from __future__ import annotations

import re


def counted(count: int, word: str) -> str:
    """How many, with their word: "1 event", "2 events", "2 memories", "2 batches"."""
    if count != 1:
        word = re.sub("(?<=[^aeiou])y$", "ie", word) + ("es" if word.endswith(("ch", "x", "s")) else "s")
    return f"{count} {word}"


def short(text: str, limit: int = 100) -> str:
    """A text in one line, cut at `limit`."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def words_of_system(error: OSError) -> str:
    """What the system refused, where, and what to look at."""
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{where}: check the path, its owner and its space."
