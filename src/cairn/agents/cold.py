"""What a hook can say before the warm process is up: promoted memories from their page, and a look by words."""

from __future__ import annotations

from pathlib import Path

from cairn.engines.glance import glance
from cairn.governed.framing import frame
from cairn.language.words import tokens

_PAGE = Path("default_app/default_project/shared/pages/MEMORY.md")
_LINES = 4
_MOST_TERMS = 24
_LONGEST = 400


def brief(root: Path) -> str:
    """The lines of the general MEMORY.md, framed; "" where there is none."""
    try:
        text = (root / _PAGE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return frame([line[2:] for line in text.splitlines() if line.startswith("- ")])


def by_words(root: Path, person: str, prompt: str) -> str:
    """What the person said that holds half of the words of `prompt`, framed; "" for none."""
    terms = list(dict.fromkeys(tokens(prompt)))[:_MOST_TERMS]
    found = glance(root / ".index", person, terms, max(2, (len(terms) + 1) // 2))
    return frame([" ".join(text.split())[:_LONGEST] for text in found[:_LINES]])
