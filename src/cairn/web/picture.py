"""Draws people, agents and topics over time as SVG, each spot a link.

Rows are people, agents and the project, then the words that stand in most titles. A spot is as large as there are
entries of that row in that stretch of time, so one sees when something was talked about, and goes there. A bow joins
whoever and whatever the same entries are of: it leads to them. Below it stand threads: entries that hang together, each a
spot at its day that leads to it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from cairn.language import tongues
from cairn.language.near import tied
from cairn.language.words import stop_words
from cairn.operations.browse import Browse
from cairn.web.desk import Desk

_COLUMNS = 26
_MOST_OWNERS = 24
_TOPICS = 12
_READ = 1000
_MOST_BOWS = 60
_PROJECT = "the project"
_HIGH, _LEFT, _TOP = 30, 150, 34
_ACROSS, _NARROWEST, _WIDEST = 780, 24, 60
_MOST_THREADS, _THREAD_HIGH, _APART = 30, 44, 36
_WORD = re.compile(r"[^\W\d_]{4,}")


def draw(desk: Desk, asked: Mapping[str, str]) -> dict[str, Any]:
    """The rows, the columns and the spots, with where each leads."""
    told = desk.ask(Browse.timeline, limit=_READ, days=True, **asked)
    days = [date.fromisoformat(one["day"]) for one in told["days"]]
    if not days:
        return {"rows": [], "columns": [], "bows": [], "threads": None}
    first, last = min(days), max(days)
    step = max(1, math.ceil(((last - first).days + 1) / _COLUMNS))
    columns = [first + timedelta(days=n * step) for n in range(((last - first).days // step) + 1)]
    rows = [
        *_owners(desk, asked, first, step, len(columns)),
        *_topics(desk, told["entries"], first, step, len(columns)),
    ]
    wide = min(_WIDEST, max(_NARROWEST, _ACROSS // len(columns)))
    most = max((spot["count"] for row in rows for spot in row["spots"]), default=1)
    for at, row in enumerate(rows):
        row["y"] = _TOP + at * _HIGH + _HIGH // 2
        for spot in row["spots"]:
            start = columns[spot["column"]]
            spot["x"] = _LEFT + spot["column"] * wide + wide // 2
            spot["r"] = round(3 + 10 * math.sqrt(spot["count"] / most), 1)
            end = start + timedelta(days=step - 1)
            spot["words"] = f"{row['name']}: {spot['count']} from {start} to {end}"
            spot["href"] = desk.link("/", **row["query"], since=start.isoformat(), until=end.isoformat())
    lines = {(row["name"], row["sort"] == "topic"): row["y"] for row in rows}
    bows = _bows(desk, told["entries"], lines, first, step)
    for bow in bows:
        x, bulge = _LEFT + bow["column"] * wide + wide // 2, wide // 2
        bow["path"] = f"M{x} {bow['from']} Q{x + bulge} {(bow['from'] + bow['to']) // 2} {x} {bow['to']}"
    every = max(1, 110 // wide)
    marks = [
        {"x": _LEFT + n * wide, "text": f"{day:%d %b %Y}"} for n, day in enumerate(columns) if n % every == 0
    ]
    return {
        "rows": rows,
        "bows": bows,
        "columns": marks,
        "width": _LEFT + len(columns) * wide + 70,
        "height": _TOP + len(rows) * _HIGH + 12,
        "left": _LEFT,
        "threads": _threads(desk, asked),
    }


def _spots(days: Counter[date], first: date, step: int, columns: int) -> list[dict[str, Any]]:
    counted: Counter[int] = Counter()
    for day, count in days.items():
        counted[min(columns - 1, max(0, (day - first).days // step))] += count
    return [{"column": column, "count": count} for column, count in sorted(counted.items())]


def _bows(
    desk: Desk, entries: list[Mapping[str, Any]], at: Mapping[tuple[str, bool], int], first: date, step: int
) -> list[dict[str, Any]]:
    """Which owner and which topic the same entries are of, in each stretch of time; the strongest alone."""
    shared: Counter[tuple[str, str, str, int]] = Counter()
    for one in entries:
        name = one["owner"] or _PROJECT
        if one["timestamp"] and (name, False) in at:
            column = (date.fromisoformat(one["timestamp"][:10]) - first).days // step
            for word in {found.casefold() for found in _WORD.findall(one["title"])}:
                if (word, True) in at:
                    shared[one["scope"], one["owner"], word, column] += 1
    bows = []
    for (scope, owner, word, column), count in shared.most_common(_MOST_BOWS):
        start = first + timedelta(days=column * step)
        end = start + timedelta(days=step - 1)
        bows.append({
            "column": column, "from": at[owner or _PROJECT, False], "to": at[word, True],
            "words": f"{owner or _PROJECT} and {word}: {count} from {start} to {end}",
            "href": desk.link("/", q=word, who=f"{scope}:{owner}", since=start.isoformat(), until=end.isoformat()),
        })  # fmt: skip
    return bows


def _owners(
    desk: Desk, asked: Mapping[str, str], first: date, step: int, columns: int
) -> list[dict[str, Any]]:
    owners = sorted(desk.owners, key=lambda one: -sum(one["kinds"].values()))[:_MOST_OWNERS]
    rows = []
    more = {name: asked[name] for name in ("kind", "since", "until") if name in asked}
    for one in owners:
        if asked.get("owner") and (one["scope"], one["owner"]) != (asked.get("scope"), asked["owner"]):
            continue
        told = desk.ask(Browse.timeline, scope=one["scope"], owner=one["owner"], limit=1, days=True, **more)
        days = Counter({date.fromisoformat(day["day"]): day["count"] for day in told["days"]})
        if days:
            name = one["owner"] or _PROJECT
            rows.append({
                "name": name, "sort": one["scope"], "spots": _spots(days, first, step, columns),
                "query": {"who": f"{one['scope']}:{one['owner']}"},
            })  # fmt: skip
    return rows


def _topics(
    desk: Desk, entries: list[Mapping[str, Any]], first: date, step: int, columns: int
) -> list[dict[str, Any]]:
    """Rows of the words that stand in most titles, names of owners left out."""
    named = {word.casefold() for one in desk.owners for word in _WORD.findall(one["owner"])}
    days: dict[str, Counter[date]] = {}
    for one in entries:
        if not one["timestamp"]:
            continue
        day = date.fromisoformat(one["timestamp"][:10])
        for word in (
            {found.casefold() for found in _WORD.findall(one["title"])}
            - named
            - stop_words()
            - tongues.every_word("words", "plain_titles")
        ):
            days.setdefault(word, Counter())[day] += 1
    common = sorted(days, key=lambda word: (-sum(days[word].values()), word))
    return [
        {
            "name": word,
            "sort": "topic",
            "spots": _spots(days[word], first, step, columns),
            "query": {"q": word},
        }
        for word in common[:_TOPICS]
        if sum(days[word].values()) > 1
    ]


# ---------------------------------------------------------------- what hangs together


def _threads(desk: Desk, asked: Mapping[str, str]) -> dict[str, Any] | None:
    """Entries that hang together, a row each group, the newest group first; None where no two do."""
    asked = {name: asked[name] for name in ("scope", "owner", "since", "until") if name in asked}
    told = desk.ask(Browse.connections, **asked)
    known = {one["id"]: one for one in told["entries"] if one["timestamp"]}
    links = [one for one in told["links"] if one["from_id"] in known and one["to_id"] in known]
    groups = _groups(links)[:_MOST_THREADS]
    if not groups:
        return None
    days = [date.fromisoformat(known[name]["timestamp"][:10]) for group in groups for name in group]
    first, span = min(days), max(1, (max(days) - min(days)).days)
    places: dict[str, tuple[int, int]] = {}
    rows = []
    for at, group in enumerate(groups):
        y = _TOP + at * _THREAD_HIGH + _THREAD_HIGH - 14
        least, spots = 0, []
        for name in sorted(group, key=lambda one: (known[one]["timestamp"], one)):
            one = known[name]
            day = date.fromisoformat(one["timestamp"][:10])
            x = max(least, 12 + _ACROSS * (day - first).days // span)
            least = x + _APART
            places[name] = (x, y)
            words = f"{day}, {one['owner'] or _PROJECT}: {one['title'] or one['text']}"
            href = desk.link("/view/entry", id=name)
            spots.append({"x": x, "sort": one["scope"], "words": words, "href": href})
        newest = max(group, key=lambda one: known[one]["timestamp"])
        rows.append({"name": known[newest]["title"] or known[newest]["text"], "y": y, "spots": spots})
    lines = [
        {"how": one["how"].replace(" ", "-"), "from": places[one["to_id"]], "to": places[one["from_id"]]}
        for one in links
        if one["from_id"] in places and one["to_id"] in places
    ]
    wide = max(x for x, _ in places.values())
    return {
        "rows": rows,
        "lines": lines,
        "first": first.isoformat(),
        "last": max(days).isoformat(),
        "width": max(wide + 30, _LEFT * 2),
        "height": _TOP + len(rows) * _THREAD_HIGH + 12,
    }


def _groups(links: list[Mapping[str, str]]) -> list[list[str]]:
    """Entries that hang together by any number of links, in the order the links are told."""
    names = list(dict.fromkeys(link[end] for link in links for end in ("from_id", "to_id")))
    at = {name: number for number, name in enumerate(names)}
    groups = tied(len(names), ((at[link["from_id"]], at[link["to_id"]]) for link in links))
    return [[names[number] for number in group] for group in sorted(groups)]
