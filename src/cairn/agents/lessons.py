"""Lessons that an agent states in so many words, as candidates: a person lets them in, or lets them go.

    "The changelog must have the new version, otherwise the release test fails."   an obligation, and what follows without it
    "Lesson learned: stop the proxy before the migration."                         a label

What an agent is about to do, what it asks and what stands in code is no lesson. Doubt keeps nothing.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator

from cairn.governed.ledger import learn
from cairn.language import tongues
from cairn.language.sentences import split
from cairn.memory import Memory
from cairn.types import Message, Space

_SHORTEST, _LONGEST, _MOST = 20, 400, 3
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


@functools.cache
def _label() -> re.Pattern[str]:
    said = tongues.every_body("lessons", "label")
    return re.compile(rf"^[\s*_#>-]*(?:{said})\s*[*_]*[:：][*_\s]*", re.IGNORECASE)


def _says(name: str, text: str) -> bool:
    return tongues.every_pattern("lessons", name).search(text) is not None


def lessons_in(text: str) -> Iterator[str]:
    """The lessons of a text, a few at most.

    >>> list(lessons_in("Done. The changelog must have the new version, otherwise the test fails."))
    ['The changelog must have the new version, otherwise the test fails.']
    >>> list(lessons_in("I must read the log, otherwise I will not know."))
    []
    """
    count = 0
    for sentence in split(_FENCE.sub("\n", text)):
        said = " ".join(sentence.split())
        labelled = _label().match(said)
        words = said[labelled.end() :] if labelled else said.lstrip("-*> ")
        if not _SHORTEST <= len(words) <= _LONGEST or words.endswith(("?", "？")):
            continue
        if labelled or (_says("duty", words) and _says("otherwise", words) and not _says("own", words)):
            yield words
            count += 1
        if count == _MOST:
            return


def keep(memory: Memory, space: Space, session: str, message: Message) -> int:
    """Keep the lessons of an agent's message, each once for ever; how many are new."""
    count = 0
    for words in lessons_in(message.text):
        mark = hashlib.sha256(words.casefold().encode("utf-8", "surrogatepass")).hexdigest()[:12]
        source = f"{session}#{message.id}"[:200]
        learnt = learn(memory.parts.keeper, space, "lesson", f"{source} {mark}", words, origin_key=session)
        count += learnt is not None and learnt.accepted
    return count
