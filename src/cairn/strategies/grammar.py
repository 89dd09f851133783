"""Words and signs of a sentence, and word lists written as text."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*(?:-[^\W_]+)*|\s+|.", re.DOTALL)


def lexicon(text: str) -> frozenset[str]:
    """The words of `text`, as a set; `_` stands for a blank inside one."""
    return frozenset(word.replace("_", " ") for word in text.split())


def words_of(text: str) -> list[str]:
    """Words, blanks and signs of `text`, in order; joined they give it back.

    >>> words_of("I'm in!")
    ["I'm", ' ', 'in', '!']
    """
    return _WORD.findall(text)
