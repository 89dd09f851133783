"""The answer to a question for everything: stretches of talk by their time, and for a person what is known of them.

Nothing is ranked: such a question names no matter. Episodes are told by their summaries: of the days it names or of the last
session an even choice in order, otherwise the newest. A label says of how many.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TypeVar

from cairn.index import filters
from cairn.index.corpus import About, Pages, Row
from cairn.index.embedding_text import spoken_names
from cairn.language import words
from cairn.language.asking import Whole
from cairn.retrieval.answers import SearchRequest, shortened
from cairn.retrieval.fitting import expired, standing
from cairn.retrieval.lists import hit_of
from cairn.types import Evidence, Hit, Scope

_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
Days = Sequence[tuple[date, date]]
Told = TypeVar("Told", Hit, Evidence)

_MOST_ROWS = 500
_PROFILE_TOKENS = 1200
# Of a person the profile is told first, then what was kept on purpose, then the talk.
_SURE, _BESIDE = 1.0, 0.6


def without_marks(text: str) -> str:
    """A profile's text as a person reads it, without the comments that mark whose lines are whose.

    >>> without_marks("<!-- cairn:profile:begin sha256=00 --> Likes tea. <!-- cairn:profile:end -->")
    'Likes tea.'
    """
    return _COMMENT.sub("", text).strip()


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """What is told: `label` says of how much, `days` are those it is held to."""

    label: str
    days: Days
    episodes: tuple[Hit, ...] = ()
    profiles: tuple[Hit, ...] = ()
    memories: tuple[Hit, ...] | None = None

    def holds(self, moment: datetime, zone: tzinfo) -> bool:
        """Whether a time lies in the days that were asked for; never where none were."""
        day = moment.astimezone(zone).date()
        return any(first <= day <= last for first, last in self.days)


def answer(
    pages: Pages,
    scope: Scope,
    request: SearchRequest,
    asked: Whole,
    about: About,
    *,
    where: filters.Group,
    days: Days,
    count: int,
    now: datetime,
    zone: tzinfo,
) -> WholeAnswer | None:
    """Everything that `asked` means in one scope; None where it names somebody who is not known there."""
    senders = _senders(asked, about)
    if senders is None:
        return None
    tests: list[filters.Test | filters.Group] = [where] if where else []
    tests += [filters.Test("sender_id", "eq", one) for one in senders]
    if days:
        spans = tuple(
            filters.Group(
                "AND",
                (
                    filters.Test("timestamp", "gte", _ms(first, zone)),
                    filters.Test("timestamp", "lt", _ms(last + timedelta(days=1), zone)),
                ),
            )
            for first, last in days
        )
        tests.append(filters.Group("OR", spans))
    bound = f" of {_shown(days)}" if days else ""
    if asked.is_latest and not days:
        newest = _rows(pages, scope, ("episode",), tests, 1)[0]
        if newest and newest[0].session_id:
            tests.append(filters.Test("session_id", "eq", newest[0].session_id))
            bound = " of the latest session"
    rows, total = _rows(pages, scope, ("episode",), tests, _MOST_ROWS)
    chosen = _spread(rows[::-1], count) if bound else rows[:count]
    is_person = asked.kind == "person"
    told = tuple(_summarised(row, _BESIDE if is_person else _SURE) for row in chosen)
    label = ""
    if told:
        order = "in order" if bound else "newest first"
        count_said = f"{total} episode{'s' * (total != 1)}"
        label = f"Asked for everything: {count_said}{bound}, told by summaries, {order}, as far as they fit."
    elif days:
        label = f"Nothing is kept{bound}."
    if not is_person:
        return WholeAnswer(label, days, told)
    return WholeAnswer(
        label,
        days,
        told,
        () if where or days else _profiles(pages, scope, request),
        _memories(pages, scope, tests, count, now),
    )


def by_more_than_numbers(found: Sequence[Told] | None, query: str) -> tuple[Told, ...] | None:
    """What was found, less that which shares nothing with the query but a number: "14 May" is not told of by "14:53"."""
    asked = set(words.tokens(query)) - words.stop_words()
    if found is None:
        return None
    return tuple(
        one
        for one in found
        if not (shared := asked.intersection(words.tokens(one.text))) or not all(map(str.isdigit, shared))
    )


def _senders(asked: Whole, about: About) -> tuple[str, ...] | None:
    """Those who speak here among whom a question names as having talked; None where it names another."""
    left = set(asked.people)
    found = []
    for sender in about.senders if left else ():
        names = {token for form in spoken_names(((sender.id, sender.name),)) for token in words.tokens(form)}
        if names & asked.people:
            found.append(sender.id)
            left -= names
    return None if left else tuple(found)


def _rows(
    pages: Pages,
    scope: Scope,
    kinds: Sequence[str],
    tests: Sequence[filters.Test | filters.Group],
    limit: int,
) -> tuple[list[Row], int]:
    page = pages.page(scope, kinds, where=filters.Group("AND", tuple(tests)), limit=limit)
    return pages.rows(scope, page.rowids), page.total


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    """An even choice, with the first and the last.

    >>> _spread(["a", "b", "c", "d", "e"], 3)
    ['a', 'c', 'e']
    """
    if len(rows) <= count:
        return list(rows)
    if count == 1:
        return [rows[-1]]
    return [rows[round(place * (len(rows) - 1) / (count - 1))] for place in range(count)]


def _summarised(row: Row, score: float) -> Hit:
    """An episode as its subject and summary; `of` says how long all of it is."""
    hit = hit_of(row, score, None)
    content = str(row.fields.get("Content") or row.text)
    summary = str(row.fields.get("Summary") or shortened(content, 60))
    if summary == content:
        return hit
    return replace(hit, text=summary, fields={**hit.fields, "Content": summary, "of": len(content)})


def _profiles(pages: Pages, scope: Scope, request: SearchRequest) -> tuple[Hit, ...]:
    """The owner's profile, as much of it as leaves room for other things."""
    most = _PROFILE_TOKENS if request.token_budget is None else request.token_budget * 2 // 3
    found = (hit_of(row, _SURE, None) for row in _rows(pages, scope, ("profile",), (), 1)[0])
    return tuple(
        replace(hit, text=text) for hit in found if (text := shortened(without_marks(hit.text), most))
    )


def _memories(
    pages: Pages,
    scope: Scope,
    tests: Sequence[filters.Test | filters.Group],
    count: int,
    now: datetime,
) -> tuple[Hit, ...]:
    """What was kept on purpose: the pinned, important and recent first."""
    rows = _rows(pages, scope, ("memory",), tests, _MOST_ROWS)[0]
    worth = sorted(
        ((standing(row, now), row) for row in rows if not expired(row, now)), key=lambda one: -one[0]
    )
    return tuple(hit_of(row, score, None) for score, row in worth[:count])


def _ms(day: date, zone: tzinfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC).timestamp() * 1000)


def _shown(days: Days) -> str:
    return ", ".join(
        first.isoformat() if first == last else f"{first.isoformat()} to {last.isoformat()}"
        for first, last in days
    )
