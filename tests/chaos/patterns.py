"""Every pattern of the product on texts that mean harm: work that grows with the square of a text stops a server (P6).

A sign, a piece of a pattern, or both together, again and again: twice as much of it may take twice the processor time,
not four times. Patterns that are only tried at the beginning of a name, a line or a window, known by name, are tried there alone.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import cairn
from cairn.governed.secrets import Shape
from cairn.language.later import Later
from tests.chaos.world import Violation

SIZE = 25_000
LITTLE = 0.12  # seconds of the processor; what takes less is not looked at twice
MOST_TIMES = 3.0
SIGNS = (
    " ", "\n", "\t", "a", "A", "0", ".", "-", "_", "/", "\\", "[", "(", "{", "<", '"', "'", "`", "#", "*", "=", "&", "%", ":",
    ";", ",", "|", "@", "+", "$", "漢", "。", "é", "\u200b", "a ", "a.", "0.", "a-", "a\n", "- a\n", "# \n", "at ", "Error[\n",
    "```\n", "~~~x\n", "[a](", "<a ", "...x", "1 ", "A b ", "http://", "a@b.", "Monday ", "don't ", "I am ",
)  # fmt: skip
# Tried by `match` or `fullmatch`, or on a few characters alone.
ANCHORED = {
    "cairn.engines.tree._TEMP_NAME", "cairn.governed.framing._LONG_RUN", "cairn.governed.framing._BYTES",
    "cairn.language.documents._NO_TITLE",
    "cairn.language.sentences._LAST_WORD", "cairn.notes.frontmatter._PLAIN_LINE", "cairn.operations.lookup._ENTRY_ID",
    "cairn.operations.lookup._MESSAGE_ID", "cairn.governed.gate._SUBJECT",
    "cairn.language.prose._LABEL", "cairn.language.phrases._WORD_BEFORE", "cairn.language.phrases._WORD_BEHIND",
    "cairn.language.dates._ENDS", "cairn.language.phrases._PARTS",
    "cairn.language.tongues._FIXED", "cairn.transfer.MAY_HOLD_KEYS", "cairn.moving.MAY_HOLD_KEYS",  # our own data (as `_PARTS`); names of files
    "cairn.index.embedding_text._BEFORE_MARK",  # behind another that leaves one blank of many
}  # fmt: skip
FILE_NAMES = "cairn.notes.conflicts."
_PIECE = re.compile(r"[^\W\d]{2,12}|[-:/@#.<>=\"' ]{2,6}")


def all_patterns() -> dict[re.Pattern[str], str]:
    """Every compiled pattern that a module of the product holds, and where."""
    found = {}
    for module in pkgutil.walk_packages(cairn.__path__, "cairn."):
        if module.name.startswith(("cairn.adapters", "cairn.testing")) or "__main__" in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            found.update({one: where for where, one in _held(value, f"{module.name}.{name}")})
    return found


def _held(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(value, Shape | Later):
        value = value.pattern if isinstance(value, Shape) else value.now
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield where, value
    elif depth < 3 and isinstance(value, dict | list | tuple | set | frozenset):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _held(one, where, depth + 1)


def seconds(pattern: re.Pattern[str], unit: str, size: int, *, at_the_beginning: bool = False) -> float:
    """The processor time that all matches in so much of `unit` take, or the one that begins it."""
    text = unit * (size // len(unit)) + "\x01"
    begun = time.thread_time()
    if at_the_beginning:
        pattern.match(text)
    else:
        for _ in pattern.finditer(text):
            pass
    return time.thread_time() - begun


def grows(pattern: re.Pattern[str], unit: str, *, at_the_beginning: bool = False) -> bool:
    """Whether twice as much takes far more than twice the work, tried twice."""
    for _ in range(2):
        once = seconds(pattern, unit, SIZE, at_the_beginning=at_the_beginning)
        if once < LITTLE:
            return False
        if seconds(pattern, unit, 2 * SIZE, at_the_beginning=at_the_beginning) < MOST_TIMES * once:
            return False
    return True


def run(budget: float, seed: int) -> dict[str, int]:
    """Signs first, then drawn pieces of the patterns, until the time is up; the first that grows so ends it."""
    rng = random.Random(seed)
    until = time.monotonic() + budget
    patterns = [(where, one) for one, where in all_patterns().items() if not where.startswith(FILE_NAMES)]
    rng.shuffle(patterns)
    tried = 0
    drawn = False
    while not tried or time.monotonic() < until:
        for where, pattern in patterns:
            pieces = [*SIGNS, *_PIECE.findall(pattern.pattern)]
            units = ["".join(rng.choices(pieces, k=rng.randint(1, 3))) for _ in range(8)] if drawn else SIGNS
            for unit in units:
                tried += 1
                if grows(pattern, unit, at_the_beginning=where in ANCHORED):
                    raise Violation(
                        f"{where} works with the square of a text on {unit!r}: {pattern.pattern[:200]}"
                    )
            if tried and time.monotonic() > until:
                break
        drawn = True
    return {"patterns": len(patterns), "tried": tried}
