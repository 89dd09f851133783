"""Questions for everything: what was talked about, what happened last week, what is known of me.

They name no matter that words could be looked up by. What they are put in stands in `language/data/<code>.toml` under
`[asking.whole]`: `talk` asks what was said, `then` does so beside a time that is named, `person` asks what is known of who
asks, `latest` names the last talk alone, and `around` lists what may stand beside all that without naming a matter.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from cairn.language import dates, tongues, words

_LONGEST = 240
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # which days a time stands for is not asked here

Kind = Literal["talk", "then", "person"]


@dataclass(frozen=True, slots=True)
class Whole:
    """How a question asks for everything.

    Attributes:
        kind: What it asks for.
        is_latest: It means the last talk alone.
        people: The tokens of whom it names as those who talked; they must be known where it is asked.
        matter: The tokens of what it is about all the same; it asks for everything where there are none.
    """

    kind: Kind
    is_latest: bool
    people: frozenset[str]
    matter: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    kinds: Sequence[tuple[Kind, re.Pattern[str]]]
    latest: re.Pattern[str]
    around: re.Pattern[str]


def read(query: str, times: dates.Times | None = None) -> Whole | None:
    """How `query` asks what was talked about or is known, by the words of its language; None where it does not.

    `times` are those it names, where they are known already.

    >>> read("What did we talk about last week?") == Whole("talk", False, frozenset(), frozenset())
    True
    >>> read("What did Ann and I discuss about the boat?").matter, read("What did Ann cook?")
    (frozenset({'boat'}), None)
    >>> read("Could you summarise our last meeting, please?").is_latest, read("Summarise the French revolution")
    (True, None)
    >>> read("What happened in May?").kind, read("What happened?"), read("What do you know about me?").kind
    ('then', None, 'person')
    """
    if len(query) > _LONGEST:
        return None
    tongue = tongues.spoken_in(query)
    table = _table(tongue.code)
    if not table.kinds:
        return None
    said, has_time = query, False
    times = dates.times_in(query) if times is None else times
    for mention in reversed(times.mentions(_ANY_DAY, lean=-1)):
        gap = " " if tongue.has_blanks else ""
        said, has_time = f"{said[: mention.begin]}{gap}{said[mention.stop :]}", True
    for kind, pattern in table.kinds:
        found = pattern.search(said) if kind != "then" or has_time else None
        if found is None:
            continue
        people = " ".join(part for part in found.groupdict().values() if part)
        rest = table.latest.sub(" ", f"{said[: found.start()]} , {said[found.end() :]}")
        return Whole(
            kind,
            table.latest.search(said) is not None,
            _telling(people, table, tongue.code),
            _telling(rest, table, tongue.code),
        )
    return None


def _telling(text: str, table: _Table, code: str) -> frozenset[str]:
    """The tokens of a text that name something."""
    fillers = words.tokens(str(tongues.known()[code].table("asking").get("fillers", "")))
    small = words.tokens(" ".join(tongues.every_word("words", "small")))
    return frozenset(words.tokens(table.around.sub(" ", text))) - words.stop_words() - {*fillers, *small}


@functools.cache
def _table(code: str) -> _Table:
    tongue = tongues.known()[code]
    found = tongue.table("asking").get("whole", {})
    around = sorted(str(found.get("around", "")).split(), key=len, reverse=True)
    return _Table(
        [
            (kind, tongues.compiled([pattern], tongue))
            for kind in ("person", "talk", "then")
            for pattern in found.get(kind, ())
        ],
        tongues.compiled(found.get("latest", ()), tongue),
        tongues.compiled([re.escape(word).replace("_", " ") for word in around], tongue),
    )
