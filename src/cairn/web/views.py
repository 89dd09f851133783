"""For each view of the page: its template, and the data it asks of the operations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from itertools import groupby
from typing import Any

from cairn.errors import Forbidden
from cairn.memory import Memories
from cairn.operations.browse import Browse
from cairn.operations.knowledge import Knowledge
from cairn.operations.recall import Recall
from cairn.operations.repositories import Repositories
from cairn.operations.standing import Standing
from cairn.operations.time import Time
from cairn.operations.upkeep import Upkeep
from cairn.web import marking, picture
from cairn.web.desk import Desk
from cairn.wording import short

Query = Mapping[str, str]
Shown = tuple[str, dict[str, Any]]

KINDS = {
    "episode": "Episodes",
    "memory": "Memories",
    "atomic_fact": "Facts",
    "foresight": "Plans",
    "agent_case": "Cases",
    "agent_skill": "Skills",
    "profile": "Profiles",
}
# What the parts of a score are called on a card.
PARTS = {
    "cosine": "its meaning is near",
    "bm25": "its words match",
    "messages": "what was said matches",
    "facts": "a fact of it matches",
    "neighbours": "what was said around it is near",
    "session": "its session is near",
    "before": "what was said before it matches",
    "talk": "the whole talk matches",
    "length": "how long it is",
    "form": "it only asks",
    "author": "said by who is asked about",
    "asker": "said by who asks",
    "person": "said by a person",
    "sole": "the only one with these words",
    "many": "it tells of several things",
    "time": "a time is in it",
    "number": "a number is in it",
    "date": "of the day asked about",
}
PAGE = 40
# What a finding's next step says to run, and the form here that does the same.
STEPS = {
    "cairn doctor --fix": ("repair", "Mend it"),
    "cairn cascade sync": ("sync", "Bring up to date"),
    "cairn cascade fix --apply": ("retry", "Try again"),
    "cairn consolidate": ("consolidate", "Plan a consolidation"),
    "cairn sweep": ("sweep", "Plan a sweep"),
}
_MOST_BARS = 84
_MOST_REVIEWED = 100
_MOST_LOOKED = 500


def choice(query: Query) -> dict[str, str]:
    """The filters of a request: whose, which kind, from when to when."""
    scope, _, owner = query.get("who", "").partition(":")
    found = {"scope": scope, "owner": owner, "kind": query.get("kind", "")}
    found |= {name: query.get(name, "") for name in ("since", "until")}
    return {name: value for name, value in found.items() if value}


def home(desk: Desk, query: Query) -> Shown:
    """Search, or the timeline: what is there, newest first."""
    asked, words = choice(query), query.get("q", "").strip()
    shown: dict[str, Any] = {"query": query, "q": words, "kinds": KINDS}
    if words:
        found = desk.ask(Browse.find, query=words, explain=True, limit=25, **asked)
        library = (
            None
            if asked
            else desk.tried(Knowledge.knowledge_search, query=words[:2000], top_k=5, include_content=True)
        )
        for one in found["hits"]:
            one["reasons"] = reasons(one.get("explain") or {})
        shown |= {
            "found": found,
            "wanted": marking.terms(words),
            "documents": library["hits"] if library else [],
        }
        return "found.html", shown
    skip = int(query.get("skip", "0")) if query.get("skip", "0").isdigit() else 0
    told = desk.ask(Browse.timeline, offset=skip, limit=PAGE, days=True, **asked)
    entries = told["entries"]
    shown |= {
        "told": told,
        "days": [(day, list(of)) for day, of in groupby(entries, lambda one: one["timestamp"][:10])],
        "next": skip + len(entries) if skip + len(entries) < told["total"] else 0,
        "bars": bars(told["days"]),
    }
    if not skip:
        named = {name: asked[name] for name in ("scope", "owner") if name in asked}
        shown |= {"soon": desk.ask(Browse.upcoming, **named)["entries"][:6], "waiting": len(waiting(desk)[0])}
    return "home.html", shown


def reasons(explain: Mapping[str, float]) -> list[tuple[str, float]]:
    """The parts of a score in words, those that weigh most first."""
    told = [
        (name.removeprefix("part."), value) for name, value in explain.items() if name.startswith("part.")
    ]
    told.sort(key=lambda one: -abs(one[1]))
    return [(PARTS.get(name, name), value) for name, value in told if abs(value) >= 0.005]


def grown(days: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same stretches with how many entries there were at the end of each."""
    stretches, total = bars(days), 0
    for one in stretches:
        total += one["count"]
        one["sum"] = total
    return [{**one, "tall": max(1, round(36 * one["sum"] / total))} for one in stretches]


def sized(days: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The last days with how tall their bars are, the index on top of the files."""
    last = days[-_MOST_BARS:]
    most = max((one["files"] + one["index"] for one in last), default=0) or 1
    return [
        {
            **one,
            "low": round(36 * one["files"] / most),
            "high": round(36 * (one["files"] + one["index"]) / most),
        }
        for one in last
    ]


def bars(days: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The activity strip: at most so many bars over all there is, each a stretch of days."""
    if not days:
        return []
    counted = {date.fromisoformat(one["day"]): one["count"] for one in days}
    first, last = min(counted), max(counted)
    step = max(1, math.ceil(((last - first).days + 1) / _MOST_BARS))
    sums: Counter[int] = Counter()
    for day, count in counted.items():
        sums[(last - day).days // step] += count
    most = max(sums.values())
    out = []
    for back in range(min(_MOST_BARS, (last - first).days // step + 1) - 1, -1, -1):
        end = last - timedelta(days=back * step)
        start = max(first, end - timedelta(days=step - 1))
        count = sums.get(back, 0)
        out.append({
            "since": start.isoformat(), "until": end.isoformat(), "count": count,
            "height": max(2, round(36 * math.sqrt(count / most))) if count else 1,
        })  # fmt: skip
    return out


# ---------------------------------------------------------------- one entry


def entry(desk: Desk, query: Query) -> Shown:
    """One thing by its id, with all that is known about it."""
    name = query.get("id", "")
    found = desk.ask(Recall.show, id=name)
    body = "\n\n".join(found["sections"].values())
    shown: dict[str, Any] = {
        "found": found,
        "sections": {title: text for title, text in found["sections"].items() if text.strip()},
        "title": _title(found),
        "said_by": [{**one, "marked": marking.used(one["text"], body)} for one in found["messages"][:200]],
        "links": {},
        "row": None,
        "why": [],
        "changes": None,
        "editing": query.get("edit") == "1" and bool(found.get("version")),
        "correcting": query.get("correct") == "1",
    }
    if found.get("version"):
        shown["links"] = {k: v for k, v in desk.ask(Browse.linked, id=found["id"]).items() if v}
        shown["changes"] = desk.tried(Time.log, id=found["id"], limit=30, diffs=True)
    if found["kind"] == "memory":
        place = {"scope": found["scope"], "owner": found["owner"]}
        shown["row"] = desk.ask(Memories.show, id=found["id"], **place)
        shown["why"] = desk.ask(Memories.why, id=found["id"], **place)["why"]
        if shown["row"]["category"] == "procedure":
            shown["record"] = desk.ask(Memories.procedure, id=found["id"], **place)
    return "entry.html", shown


def _title(found: Mapping[str, Any]) -> str:
    sections = found["sections"]
    text = sections.get("Subject") or sections.get("TaskIntent") or found["inline"].get("name")
    text = text or next((one for one in sections.values() if one.strip()), "") or found["id"]
    return short(str(text).strip().partition("\n")[0].lstrip("# "), 140)


def merge(desk: Desk, query: Query) -> Shown:
    """What a candidate could become one with."""
    found = desk.ask(Memories.show, id=query.get("id", ""))
    place = {"scope": found["scope"], "owner": found["scope_owner_id"]}
    near = desk.ask(Memories.search, query=found["content"][:2000], top_k=8, **place)["memories"]
    return "merge.html", {"row": found, "near": [one for one in near if one["id"] != found["id"]]}


# ---------------------------------------------------------------- people and agents


def who(desk: Desk, query: Query) -> Shown:
    """A person, an agent or a run: the profile, and what there is of each kind."""
    scope, owner = query.get("scope", "user"), query.get("owner", "")
    place = {"scope": scope, "owner": owner}
    parts: list[tuple[str, str, Any]] = []
    ways = desk.ask(Memories.list, category="procedure", limit=20, **place)["memories"]
    for kind in ("memory", "episode", "atomic_fact", "agent_case", "agent_skill"):
        told = desk.ask(Browse.timeline, kind=kind, limit=8, **place)
        if kind == "memory":  # procedures stand apart, with their record
            told["entries"] = [one for one in told["entries"] if one["category"] != "procedure"]
            told["total"] -= len(ways)
        if told["total"] > 0:
            parts.append((kind, KINDS[kind], told))
    shown: dict[str, Any] = {"scope": scope, "owner": owner, "parts_of": parts, "profile": None, "core": None}
    shown["soon"] = desk.ask(Browse.upcoming, ahead=365, **place)["entries"][:12]
    if scope == "user":
        profiles = desk.ask(Recall.get, memory_type="profile", user_id=owner)["profiles"]
        shown["profile"] = next(iter(profiles), None)
    if scope == "agent":
        shown["core"] = desk.tried(Memories.core, agent=owner)
    shown["procedures"] = [desk.ask(Memories.procedure, id=one["id"], **place) for one in ways]
    return "who.html", shown


def people(desk: Desk, _query: Query) -> Shown:
    """Everybody in this space."""
    return "people.html", {"owners": desk.owners}


# ---------------------------------------------------------------- what waits for a person


def candidates(desk: Desk) -> list[Mapping[str, Any]]:
    """Memories that wait for a person to let them in."""
    return _of_all(desk, status="candidate", limit=_MOST_REVIEWED)


def _of_all(desk: Desk, **asked: Any) -> list[Mapping[str, Any]]:
    """Memories of everybody, or of those who may be seen."""
    try:
        return list(desk.ask(Memories.list, skills=False, **asked)["memories"])
    except Forbidden:  # not everybody's: one by one
        rows = []
        for one in desk.owners:
            if one["kinds"].get("memory"):
                place = {"scope": one["scope"], "owner": one["owner"]}
                rows += desk.ask(Memories.list, skills=False, **asked, **place)["memories"]
        return rows


def review(desk: Desk, _query: Query) -> Shown:
    """The inbox: what says otherwise than another memory first, with that other one, then candidates."""
    rows, others = waiting(desk)
    return "review.html", {"rows": rows, "others": others}


def waiting(desk: Desk) -> tuple[list[Mapping[str, Any]], dict[str, list[Mapping[str, Any]]]]:
    """The memories that wait for a person, and for each that says otherwise what it stands against."""
    marked = [one for one in _of_all(desk, limit=_MOST_LOOKED) if one["write_gate_reason"] == "contradicts"]
    others = {
        one["id"]: desk.ask(Browse.linked, id=one["id"])["contradicts"] for one in marked[:_MOST_REVIEWED]
    }
    against = [one for one in marked if others.get(one["id"])]
    return [*against, *(one for one in candidates(desk) if not others.get(one["id"]))], others


# ---------------------------------------------------------------- the project


def project(desk: Desk, query: Query) -> Shown:
    """The memory of the project itself: core memory, what was promoted, checkpoints, skills, repositories."""
    shown: dict[str, Any] = {
        "core": desk.tried(Memories.core),
        "groups": [],
        "editing": query.get("edit") == "core",
    }
    listed = desk.tried(Memories.list, scope="project", limit=200, skills=False)
    rows = listed["memories"] if listed else []
    by = {one["category"] for one in rows}
    shown["groups"] = [(name, [one for one in rows if one["category"] == name]) for name in sorted(by)]
    shown["skills"] = (desk.tried(Memories.skills) or {"skills": []})["skills"]
    made = desk.tried(Time.checkpoints)
    shown["checkpoints"] = list(reversed(made["checkpoints"])) if made else None
    shown["named"] = {one["id"]: one["label"] or one["id"] for one in shown["checkpoints"] or ()}
    shown["since"], shown["until"], shown["diff"] = query.get("diff", ""), query.get("until", ""), None
    if shown["since"]:
        later = {"until": shown["until"]} if shown["until"] else {}
        told = desk.ask(Time.diff, target=shown["since"], **later)["differences"]
        shown["diff"] = [{**one, "words": gist(one["diff"]) or one["entry"]} for one in told]
    path = query.get("path", "")
    shown["roots"], shown["path"] = desk.memory.settings.server.project_roots, path
    if path:
        shown["repo"], shown["trouble"] = desk.told(Repositories.project_status, path=path)
        if not shown["trouble"]:
            more = {name: query[name] for name in ("before", "after") if query.get(name)}
            shown |= {"before": "", "after": ""} | more
            shown["story"], shown["trouble"] = desk.told(
                Repositories.project_story, path=path, limit=30, **more
            )
        asked = query.get("ask", "").strip()
        if asked and not shown["trouble"]:
            shown["answer"] = desk.ask(Repositories.project_query, path=path, question=asked)
    return "project.html", shown


def gist(diff: str) -> str:
    """The first words of a difference that a person would read: no mark, no heading, no field."""
    said = (
        line[1:].strip() for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}
    )
    return next((line[:160] for line in said if line and not line.startswith(("#", "<!--", "**"))), "")


# ---------------------------------------------------------------- documents


def knowledge(desk: Desk, query: Query) -> Shown:
    """The documents of this space, by category, and the folders that are linked."""
    words, category = query.get("ask", "").strip(), query.get("category", "")
    at = int(query["page"]) if query.get("page", "").isdigit() and query["page"] != "0" else 1
    shown: dict[str, Any] = {
        "category": category,
        "ask": words,
        "found": None,
        "wanted": marking.terms(words),
        "roots": desk.memory.settings.server.project_roots,
    }
    if words:
        shown["found"] = desk.ask(
            Knowledge.knowledge_search, query=words[:2000], top_k=15, include_content=True
        )["hits"]
    more = {"category_id": category} if category else {}
    shown["listed"] = desk.ask(Knowledge.knowledge_list, page=at, page_size=50, **more)
    shown["categories"] = desk.ask(Knowledge.knowledge_categories)["categories"]
    shown["folders"] = desk.ask(Knowledge.knowledge_links)["links"]
    return "knowledge.html", shown


def document(desk: Desk, query: Query) -> Shown:
    """One document: its topics, and the words of one of them."""
    found = desk.ask(Knowledge.knowledge_show, doc_id=query.get("id", ""))
    topics = found["topics"]
    wanted = query.get("topic") or (topics[0]["topic_id"] if topics else "")
    topic = desk.ask(Knowledge.knowledge_topic, topic_id=wanted) if wanted else None
    if topic and not topic["content"].strip() and not query.get("topic") and len(topics) > 1:
        topic = desk.ask(
            Knowledge.knowledge_topic, topic_id=topics[1]["topic_id"]
        )  # the first is a bare title
    return "document.html", {"found": found, "topic": topic}


# ---------------------------------------------------------------- health


def health(desk: Desk, query: Query) -> Shown:
    """How the memory is: freshness, queue, trouble with its next step, strategies, upkeep.

    What can be seen at a glance is always shown; `look` goes through every file.
    """
    status = desk.tried(Upkeep.index_status)
    shown: dict[str, Any] = {"status": status, "health": desk.ask(Upkeep.health)}
    if status is not None:
        shown["strategies"] = desk.ask(Upkeep.strategies)["strategies"]
        shown["standing"] = desk.ask(Standing.status)
        found = desk.ask(Upkeep.doctor)["findings"] if query.get("look") else None
        shown["findings"] = found and [{**one, "act": _step(one["next"])} for one in found]
        shown["runs"] = (desk.tried(Memories.runs, limit=8) or {"runs": []})["runs"]
        shown["grown"] = grown(desk.ask(Browse.timeline, limit=1, days=True)["days"])
        shown["sizes"] = sized(shown["standing"]["sizes"])
        shown["failures"] = (desk.tried(Upkeep.failures) or {"failures": []})["failures"]
    return "health.html", shown


def _step(words: str) -> tuple[str, str] | None:
    return next((act for command, act in STEPS.items() if f"`{command}`" in words), None)


def seen_as_picture(desk: Desk, query: Query) -> Shown:
    """People, agents and topics over time; each spot leads to what it stands for."""
    return "map.html", {"picture": picture.draw(desk, choice(query))}


VIEWS: Mapping[str, Callable[[Desk, Query], Shown]] = {
    "": home,
    "entry": entry,
    "merge": merge,
    "who": who,
    "people": people,
    "review": review,
    "project": project,
    "knowledge": knowledge,
    "document": document,
    "health": health,
    "map": seen_as_picture,
}
