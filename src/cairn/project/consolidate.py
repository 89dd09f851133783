"""Folds events, other branches and the repository's present state into the bundle, after showing what would
change.

Everything here is a pure function of events and a bundle; `project.py` reads, shows and writes. Without a model
the proposal comes from the signals alone; with one, from a completion that must have the bundle's shape. Either
way only the chosen sections may change, and dedup prefers to keep two similar things apart over losing one.

A repository that is read again is merged three ways: what it said last time, what the bundle holds now, what it says today. A
value that still equals last time's evidence follows today's; a value someone changed stays. An entry a person took out
does not come back just because its evidence is still there.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cairn.budget import kept
from cairn.errors import Invalid, Unavailable
from cairn.language.near import tied
from cairn.project.bundle import MAX_VALIDATION_COMMANDS, SECTIONS, Bundle, checked
from cairn.project.checkpoints import changed_sections
from cairn.project.describe import trap
from cairn.project.events import SIGNAL_KEYS, Event
from cairn.project.survey import sentences
from cairn.seams import Writer

OVERLAP = 0.8
MAX_GOTCHAS = 40
MAX_STEPS = 30
MAX_LINES = 12
_PREFIX = re.compile(r"^\s*(?:NEXT|DONE|TODO|FOLLOW[- ]?UP)\s*:\s*", re.IGNORECASE)
_LABEL = re.compile(
    r"^\s*(?:(?:a |the |one |another |known )?(?:gotcha|pitfall|trap|catch|beware|careful|caution|warning|watch out|note|"
    r"important|heads[- ]up|root cause|lesson|tip|next step|remaining(?: work)?|left to do|follow[- ]?up|next|to-?do|done)s?"
    r"(?: here| too| again)?\s*[:\u2013\u2014-]+\s+)+",
    re.IGNORECASE,
)
DONE = re.compile(r"^\s*DONE\s*:", re.IGNORECASE)
_WORDS = re.compile(r"\w+")


# ---------------------------------------------------------------- grouping


@dataclass(slots=True)
class EventGroup:
    """Events that tell of one thing."""

    events: list[Event] = field(default_factory=list)

    def lines(self, key: str) -> list[str]:
        """The signals of one kind, newest event first."""
        return [line for line, _ in self.told(key)]

    def told(self, key: str) -> list[tuple[str, Event]]:
        """The signals of one kind with the event each stands in; of two wordings of one thing, the longer."""
        found: list[tuple[str, Event]] = []
        for event in reversed(self.events):
            for line in getattr(event.signals, key):
                twin = next((at for at, (other, _) in enumerate(found) if _one_thing(line, other, key)), None)
                if twin is None:
                    found.append((line, event))
                elif len(line) > len(found[twin][0]):
                    found[twin] = (line, event)
        return found

    @property
    def newest(self) -> int:
        return max(event.number for event in self.events)

    def summary(self) -> dict[str, Any]:
        newest = max(self.events, key=lambda event: event.number)
        return {
            "events": [event.id for event in self.events],
            "summary": newest.summary,
            **{key: len(self.lines(key)) for key in SIGNAL_KEYS if key != "keyPaths"},
        }


def unlabelled(line: str) -> str:
    """`line` without the word that says what sort of line it is: "Gotcha: the cache is stale" is about the cache."""
    bare = _PREFIX.sub("", line)
    text = _LABEL.sub("", bare)
    return text if len(text.split()) > 2 else bare


def topic(line: str) -> str:
    """What a gotcha or hint is about: the words before its first colon, labels such as NEXT: taken off."""
    return " ".join(unlabelled(line).partition(":")[0].casefold().split())


def _one_thing(line: str, other: str, key: str) -> bool:
    """Whether two lines say the same: equal words, or one topic of which one wording holds the other."""
    if line.casefold() == other.casefold():
        return True
    # DONE and NEXT about one topic are different news: neither may swallow the other.
    if key not in {"gotchas", "nextStepHints"} or bool(DONE.match(line)) != bool(DONE.match(other)):
        return False
    if topic(line) != topic(other):
        return False
    words, others = _word_set(unlabelled(line)), _word_set(unlabelled(other))
    return words <= others or others <= words


def grouped(events: Sequence[Event]) -> list[EventGroup]:
    """Join events that share a gotcha or next-step topic, or a path together with a decision or check.

    A shared path alone joins nothing: half of all sessions touch the readme. Newest group first.
    """
    first: dict[tuple[str, ...], int] = {}
    pairs = []
    for index, event in enumerate(events):
        signals = event.signals
        keys: set[tuple[str, ...]] = {("gotcha", topic(line)) for line in signals.gotchas}
        keys |= {("next", topic(line)) for line in signals.nextStepHints}
        facts = [line.casefold() for line in (*signals.decisions, *signals.validationObservations)]
        keys |= {("path", path, fact) for path in signals.keyPaths for fact in facts}
        pairs += [(first.setdefault(key, index), index) for key in keys]
    groups = (EventGroup([events[index] for index in group]) for group in tied(len(events), pairs))
    return sorted(groups, key=lambda group: -group.newest)


# ---------------------------------------------------------------- dedup


def overlap(one: str, other: str) -> float:
    """Shared words over the larger set of words."""
    left, right = _word_set(one), _word_set(other)
    return len(left & right) / max(len(left), len(right)) if left and right else 0.0


@kept("the words of project notes", 4 * 1024 * 1024)
def _word_set(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text.casefold()))


def similar(one: str, other: str) -> bool:
    return one.casefold().strip() == other.casefold().strip() or overlap(one, other) >= OVERLAP


def same_gotcha(one: dict[str, str], other: dict[str, str]) -> bool:
    """Equal titles, or similar titles and a similar cause or way out."""
    if one["title"].casefold().strip() == other["title"].casefold().strip():
        return True
    return similar(one["title"], other["title"]) and (
        similar(one["cause"], other["cause"]) or similar(one["correctPath"], other["correctPath"])
    )


def same_step(one: dict[str, str], other: dict[str, str]) -> bool:
    """Similar titles and a similar start or end."""
    return similar(one["title"], other["title"]) and (
        one["title"].casefold() == other["title"].casefold()
        or similar(one["start"], other["start"])
        or similar(one["done"], other["done"])
    )


def _richer(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Field by field, the text that says more; a placeholder never beats a statement. Titles stay."""
    out = dict(one)
    for key, value in other.items():
        if key != "title" and _worth(value) > _worth(out[key]):
            out[key] = value
    return out


def _worth(text: str) -> int:
    return 0 if text.startswith(("Not stated", "See ", "Told ", "Seen in", "Mentioned in")) else len(text)


def deduped(items: Sequence[dict[str, str]], same: Any) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """Items without repetitions, and which title went into which."""
    out: list[dict[str, str]] = []
    merged: list[tuple[str, str]] = []
    for item in items:
        twin = next((index for index, kept in enumerate(out) if same(kept, item)), None)
        if twin is None:
            out.append(item)
        else:
            if item["title"] != out[twin]["title"]:
                merged.append((item["title"], out[twin]["title"]))
            out[twin] = _richer(out[twin], item)
    return out, merged


def united(base: Bundle, heads: Sequence[Bundle]) -> Bundle:
    """One bundle of several branches': lists of things joined and deduped, the rest from the newest."""
    out = copy.deepcopy(base)
    for other in heads:
        out["gotchas"] = deduped([*out["gotchas"], *other["gotchas"]], same_gotcha)[0]
        out["nextSteps"] = deduped([*out["nextSteps"], *other["nextSteps"]], same_step)[0]
        for section, key in (
            ("projectMap", "architectureNotes"),
            ("currentFocus", "knownRisks"),
            ("project", "keyPaths"),
        ):
            out[section][key] = _flat([*out[section][key], *other[section][key]])
    return checked(out)


def _flat(lines: Sequence[str]) -> list[str]:
    """Flat lists merge equal lines only."""
    return list(dict.fromkeys(lines))


# ---------------------------------------------------------------- proposing


def proposed(bundle: Bundle, groups: Sequence[EventGroup], exists: Callable[[str], bool]) -> Bundle:
    """The bundle with what the groups tell, from their wording alone."""
    out = copy.deepcopy(bundle)
    gotchas, steps, done = [], [], []
    decisions: list[str] = []
    checks: list[tuple[str, Event]] = []
    for group in groups:
        gotchas += [
            trap(unlabelled(line), f"Seen in {event.id} ({event.summary}).", event.id)
            for line, event in group.told("gotchas")
        ]
        for line, event in group.told("nextStepHints"):
            if DONE.match(line):
                done.append(_PREFIX.sub("", line))
            else:
                steps.append(_step(line, event, exists))
        decisions += group.lines("decisions")
        for event in group.events:
            checks += [(line, event) for line in event.signals.validationObservations]
    out["gotchas"] = _told_apart([*gotchas, *out["gotchas"]], "symptom")
    steps = _told_apart(steps, "why")
    finished = [title for title in done if title]
    out["nextSteps"] = [
        step for step in [*steps, *out["nextSteps"]] if not any(_is_about(title, step) for title in finished)
    ]
    _fold_focus(out, groups, decisions, checks)
    notes = [line for line in decisions if _is_structural(line)]
    out["projectMap"]["architectureNotes"] = _flat([*out["projectMap"]["architectureNotes"], *notes])[
        -MAX_LINES:
    ]
    _fold_commands(out, checks)
    return out


def _is_about(title: str, step: dict[str, str]) -> bool:
    return similar(title, step["title"]) or topic(title) == topic(step["title"])


def _told_apart(items: Sequence[dict[str, str]], key: str) -> list[dict[str, str]]:
    """Items of one title that tell of different things, each with a title of its own."""
    titles: dict[str, str] = {}
    out = []
    for item in items:
        known = titles.setdefault(item["title"].casefold(), item[key])
        words, others = _word_set(item[key]), _word_set(known)
        if not (words <= others or others <= words):
            item = {**item, "title": sentences(f"{item['title']}: {item[key]}", 1, 120).rstrip(".")}
        out.append(item)
    return out


def _step(line: str, event: Event, exists: Callable[[str], bool]) -> dict[str, str]:
    text = unlabelled(line)
    head, _, tail = text.partition(": ")
    title = head if tail and len(head) <= 100 else sentences(text, 1, 120)
    paths = [path for path in event.signals.keyPaths if exists(path)]
    return {
        "title": title.rstrip("."),
        "why": tail if tail and len(head) <= 100 else f"Mentioned in {event.id}: {event.summary}",
        "start": next((path for path in paths if path in text), paths[0] if paths else f"See {event.id}."),
        "done": "It is carried out and the checks pass.",
    }


def _is_structural(line: str) -> bool:
    return bool(
        re.search(
            r"\b(?:module|package|layer|service|schema|database|table|api|endpoint|architecture|format|protocol|storage|queue)\b",
            line,
            re.IGNORECASE,
        )
    )


def _fold_focus(
    out: Bundle, groups: Sequence[EventGroup], decisions: Sequence[str], checks: Sequence[tuple[str, Event]]
) -> None:
    focus = out["currentFocus"]
    recent = [max(group.events, key=lambda event: event.number) for group in groups[:3]]
    news = [f"{event.happened_at[:10]}: {event.summary}" for event in recent]
    focus["currentState"] = _flat([*news, *decisions[:4], *focus["currentState"]])[:MAX_LINES]
    if recent:
        focus["summary"] = f"Latest, {recent[0].happened_at[:10]}: {recent[0].summary.rstrip('.')}."
    if checks:
        newest = max(checks, key=lambda item: item[1].number)
        results = [line for line, event in checks if event.number == newest[1].number]
        failed = any(_failed(line) for line in results)
        focus["validationSnapshot"] = {
            "status": "failed" if failed else "passed",
            "validatedAt": newest[1].happened_at,
            "summary": results[-1],
            "results": _flat(results)[:MAX_LINES],
            "suggestedNextActions": [f"Look into: {line}" for line in results if _failed(line)][:3],
        }


def _failed(line: str) -> bool:
    zero = re.sub(
        r"\b(?:0|no) (?:tests? )?(?:failed|failures?|failing|errors?)\b", "", line, flags=re.IGNORECASE
    )
    return bool(re.search(r"\b(?:fail|fails|failed|failing|failures?|broken|red)\b", zero, re.IGNORECASE))


def _fold_commands(out: Bundle, checks: Sequence[tuple[str, Event]]) -> None:
    for line, event in checks:
        if len(out["validationCommands"]) >= MAX_VALIDATION_COMMANDS:
            return
        for quoted in re.findall(r"`([^`]{3,80})`", line):
            try:
                command = shlex.split(quoted)
            except ValueError:
                continue
            known = [item["command"] for item in out["validationCommands"]]
            if len(command) >= 2 and command not in known and len(known) < MAX_VALIDATION_COMMANDS:
                out["validationCommands"].append(
                    {"label": command[-1], "command": command, "purpose": f"used in {event.id}"}
                )


def asked(writer: Writer, bundle: Bundle, groups: Sequence[EventGroup]) -> Bundle | None:
    """A bundle from a model, or None where it cannot give one of the right shape."""
    news = [
        {
            "summary": group.events[-1].summary,
            "at": group.events[-1].happened_at,
            **{key: group.lines(key) for key in SIGNAL_KEYS},
        }
        for group in groups[:40]
    ]
    system = (
        "You keep the memory of a software repository for those who come next. You get the current bundle and new, "
        "grouped events. Return the whole updated bundle with exactly the same shape. Change only what the events "
        "support, keep what is still true, drop next steps that are done, merge repetitions, never invent paths."
    )
    try:
        answer = writer.complete(
            system,
            json.dumps({"bundle": bundle, "events": news}, ensure_ascii=False),
            {"type": "object", "required": ["bundle"], "properties": {"bundle": {"type": "object"}}},
            purpose="project-consolidate",
        )
        return checked(answer.value["bundle"])
    except (Unavailable, Invalid, KeyError, TypeError):
        return None


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True)
class Plan:
    """What a consolidation would do. `bundle` is None when there is nothing to fold.

    `read` are the events all of whose news may be folded; of `read_in_part` a protected section would change too,
    so they stay in the backlog.
    """

    bundle: Bundle | None
    events: tuple[Event, ...]
    section: str
    source: str
    policy: str
    protected: tuple[str, ...]
    summary: dict[str, Any]
    diffs: dict[str, str]
    provider: str
    read: tuple[Event, ...] = ()
    read_in_part: tuple[Event, ...] = ()

    @property
    def is_noop(self) -> bool:
        return self.bundle is None


def protected_sections(policy: str, section: str) -> tuple[str, ...]:
    """Sections that may not change: all but the chosen one, and the map under `project-map-protected`."""
    frozen = [name for name in SECTIONS if section not in {"all", name}]
    if policy == "project-map-protected" and section != "project-map" and "project-map" not in frozen:
        frozen.append("project-map")
    return tuple(frozen)


def allowed_events(events: Sequence[Event], policy: str) -> list[Event]:
    """The events a policy lets into the bundle."""
    if policy == "imports-only":
        return [event for event in events if event.is_import]
    if policy == "local-only":
        return [event for event in events if not event.is_import]
    return list(events)


def news_of(event: Event) -> set[str]:
    """The sections an event has something for."""
    signals = event.signals
    news = {"current-focus"}
    if signals.gotchas:
        news.add("gotchas")
    if signals.nextStepHints:
        news.add("next-steps")
    if any(_is_structural(line) for line in signals.decisions):
        news.add("project-map")
    if any("`" in line for line in signals.validationObservations):
        news.add("validation-commands")
    return news


def folded(before: Bundle, candidate: Bundle, protected: Sequence[str]) -> tuple[Bundle, dict[str, Any]]:
    """The candidate with protected sections put back and repetitions merged, and what that changed."""
    after = copy.deepcopy(candidate)
    for name in protected:
        after[SECTIONS[name]] = copy.deepcopy(before[SECTIONS[name]])
    merged: dict[str, list[tuple[str, str]]] = {"gotchas": [], "nextSteps": []}
    for key, same, limit in (("gotchas", same_gotcha, MAX_GOTCHAS), ("nextSteps", same_step, MAX_STEPS)):
        if next(name for name, value in SECTIONS.items() if value == key) not in protected:
            after[key], merged[key] = deduped(_old_first(before[key], after[key]), same)
            after[key] = after[key][:limit]
    after = checked(after)
    return after, summary_of(before, after, merged)


def _old_first(before: Sequence[dict[str, str]], after: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Known titles keep their words and places at the front, so that dedup folds news into them."""
    known = {item["title"] for item in before}
    return [item for item in after if item["title"] in known] + [
        item for item in after if item["title"] not in known
    ]


def summary_of(before: Bundle, after: Bundle, merged: dict[str, list[tuple[str, str]]]) -> dict[str, Any]:
    """Changed sections, and per list what was added, removed and merged; the last two never overlap."""
    out: dict[str, Any] = {"changedSections": changed_sections(before, after)}
    for key, label in (("gotchas", "Gotchas"), ("nextSteps", "NextSteps")):
        old, new = {item["title"] for item in before[key]}, {item["title"] for item in after[key]}
        gone_by_merge = [title for title, _ in merged[key] if title in old and title not in new]
        out[f"added{label}"] = [item["title"] for item in after[key] if item["title"] not in old]
        out[f"merged{label}"] = [f"{one} -> {other}" for one, other in merged[key]]
        out[f"removed{label}"] = [
            item["title"]
            for item in before[key]
            if item["title"] not in new and item["title"] not in gone_by_merge
        ]
    out["currentFocusChanged"] = before["currentFocus"] != after["currentFocus"]
    out["validationChanged"] = (
        before["validationCommands"] != after["validationCommands"]
        or before["currentFocus"]["validationSnapshot"] != after["currentFocus"]["validationSnapshot"]
    )
    return out


_KEYS = ("title", "path", "label", "name")


def refreshed(base: Bundle | None, mine: Bundle, theirs: Bundle) -> Bundle:
    """`mine` with what changed from `base` to `theirs`; without a base, lists join and `mine` wins."""
    if base is None:
        base = {key: {} if isinstance(value, dict) else [] for key, value in theirs.items()}
    out: Bundle = {key: _merged(base.get(key), mine[key], theirs[key]) for key in theirs}
    focus, old, now = out["currentFocus"], base.get("currentFocus") or {}, theirs["currentFocus"]
    # News is not a correction: the newest sentence about the present wins.
    focus["summary"] = (
        now["summary"] if now["summary"] != old.get("summary") else mine["currentFocus"]["summary"]
    )
    for key in ("currentState", "knownRisks"):
        kept = [line for line in mine["currentFocus"][key] if line not in old.get(key, [])]
        focus[key] = list(dict.fromkeys([*now[key], *kept]))[:MAX_LINES]
    out["gotchas"] = deduped(out["gotchas"], same_gotcha)[0]
    out["nextSteps"] = deduped(out["nextSteps"], same_step)[0]
    out["validationCommands"] = out["validationCommands"][:2]
    return checked(out)


def three_way(base: Bundle, mine: Bundle, theirs: Bundle) -> Bundle:
    """What changed from `base` to `mine`, applied to `theirs`."""
    return checked({key: _merged(base[key], mine[key], theirs[key]) for key in theirs})


def _merged(base: Any, mine: Any, theirs: Any) -> Any:
    if mine == base:
        return copy.deepcopy(theirs)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        known = base if isinstance(base, dict) else {}
        return {key: _merged(known.get(key), mine.get(key, theirs[key]), theirs[key]) for key in theirs}
    if isinstance(mine, list) and isinstance(theirs, list):
        return _merged_list(base if isinstance(base, list) else [], mine, theirs)
    return copy.deepcopy(mine)


def _merged_list(base: list[Any], mine: list[Any], theirs: list[Any]) -> list[Any]:
    before, today = {_name(item): item for item in base}, {_name(item): item for item in theirs}
    out = []
    for item in mine:
        name = _name(item)
        if name in today:
            out.append(_merged(before.get(name), item, today[name]) if isinstance(item, dict) else item)
        elif before.get(name) != item:
            out.append(item)
    held = {_name(item) for item in mine}
    return out + [item for name, item in today.items() if name not in held and name not in before]


def _name(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return next((str(item[key]) for key in _KEYS if key in item), str(item))
