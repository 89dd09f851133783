"""`reflect_episodes`: related episodes of a week become one narrative. Off by default.

Nothing is lost silently. The originals stay and are marked in `deprecated_entries`; every fact that hangs on
them gets exactly one fate in `journal/reflection.jsonl`: kept (its words are in the narrative), merged (another
fact says the same), superseded (a later one replaces it) or dropped with a reason. Each reflection is a run, which
`undo` takes back; what was undone is not done again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.canonical import objects_in
from cairn.language import dates, tongues, words
from cairn.language.near import particulars
from cairn.language.traits import Trait, matter_of, replaces
from cairn.notes.format import list_items
from cairn.notes.kinds import KINDS, place_of
from cairn.notes.notebook import Draft
from cairn.seams import Locator
from cairn.strategies import Job, Kit, Outcome, Schedule, Strategy, StrategyAsk, asking
from cairn.strategies.similarity import measured
from cairn.talk.messages import union_of
from cairn.types import Entry, Scope

NARRATIVE_CHARS = 20_000
SAME = 0.8
_RETOLD = ("home", "work", "occupation", "name", "favourite")
_SCHEMA = asking.shaped("subject narrative", subject=asking.TEXT, narrative=asking.TEXT)


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode with its day and time."""

    entry: Entry
    day: str
    at: datetime

    @property
    def text(self) -> str:
        return self.entry.sections.get("Summary") or self.entry.sections.get("Content", "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of one of the merged episodes."""

    id: str
    day: str
    episode_id: str
    text: str
    at: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a fact: kept, merged or superseded (`by` another), or dropped (`reason`)."""

    id: str
    fate: str
    by: str = ""
    reason: str = ""


class ReflectEpisodes(Strategy):
    name = "reflect_episodes"
    purpose = "related episodes merged into one narrative, with a ledger"
    trigger = "schedule"
    enabled = False
    cron = "0 2 * * 1"

    def scheduled(self, due: Schedule, kit: Kit) -> Iterable[StrategyAsk]:
        scopes = {
            place.scope
            for locator in kit.notebook.notes(kind="episode")
            if (place := place_of(locator)) is not None and place.scope.track == "user"
        }
        for scope in sorted(scopes):
            yield StrategyAsk(
                self.name,
                f"{due.at:%Y-%m-%dT%H:%M:%S}/{scope.space.app}/{scope.space.project}/user/{scope.owner}",
                scope,
            )

    def run(self, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        for job in jobs:
            name = hashlib.sha256(job.ask.input.encode()).hexdigest()[:12]
            made = reflect(job.ask.scope, kit, run=f"rfl_{name}")
            why = "" if made else "no two episodes belong together"
            yield Outcome(job, "wrote" if made else "skipped", why, tuple(made))


def reflect(scope: Scope, kit: Kit, *, run: str) -> list[str]:
    """Merge what belongs together in one owner's episodes; the ids of the narratives."""
    with kit.locks.hold(f"reflection {scope.space.app}/{scope.space.project}/{scope.owner}"):
        ledger = Ledger(scope, kit)
        made = []
        for plan in ledger.unfinished():
            members = [e for e in episodes_of(scope, kit, every=True) if e.entry.id in plan["members"]]
            if len(members) >= 2:
                with kit.notebook.run("reflection", str(plan["run"])):
                    made.append(_merge(scope, str(plan["cluster"]), members, ledger, str(plan["run"]), kit))
        for members in clusters_of(episodes_of(scope, kit), kit):
            named = "\n".join((scope.owner, *(m.entry.id for m in members)))
            cluster = "cl_" + hashlib.sha256(named.encode()).hexdigest()[:12]
            if cluster not in ledger.undone:
                with kit.notebook.run("reflection", run):
                    made.append(_merge(scope, cluster, members, ledger, run, kit))
        return made


# -- choosing


def episodes_of(scope: Scope, kit: Kit, *, every: bool = False) -> list[Episode]:
    """The episodes of an owner that stand for themselves: not narratives and, unless `every`, not deprecated."""
    found = []
    for day, note in kit.notes_of("episode", scope):
        gone = note.frontmatter.get("deprecated_entries")
        for entry in note.entries:
            is_gone = isinstance(gone, dict) and entry.id in gone and not every
            if is_gone or entry.inline.get("parent_type") == "cluster":
                continue
            found.append(Episode(entry, day, _time(entry, day)))
    return sorted(found, key=lambda e: (e.at, e.entry.id))


def _time(entry: Entry, day: str) -> datetime:
    try:
        at = datetime.fromisoformat(entry.inline.get("timestamp", ""))
    except ValueError:
        at = datetime.fromisoformat(day)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def clusters_of(episodes: Sequence[Episode], kit: Kit) -> list[list[Episode]]:
    """Groups of two or more episodes that resemble each other within the window, the largest first."""
    options = kit.options
    alike = measured([f"{e.entry.sections.get('Subject', '')}\n{e.text}" for e in episodes], kit)
    window = timedelta(days=options.window_days)
    groups: list[list[int]] = []
    for at, episode in enumerate(episodes):
        best, score = None, options.similarity
        for group in reversed(groups):
            if episode.at - episodes[group[0]].at > window:
                continue
            mean = sum(alike(at, member) for member in group) / len(group)
            if mean >= score:
                best, score = group, mean
        if best is None:
            groups.append([at])
        else:
            best.append(at)
    many = sorted((g for g in groups if len(g) >= 2), key=lambda g: (-len(g), g[0]))[: options.max_clusters]
    return [[episodes[at] for at in group] for group in many]


def facts_of(scope: Scope, members: Sequence[Episode], kit: Kit) -> list[Fact]:
    """The facts that hang on `members`, in their order."""
    parents = {m.entry.id for m in members}
    found = []
    for day in sorted({m.day for m in members}):
        for entry in kit.entries("atomic_fact", scope, day):
            parent = entry.inline.get("parent_id", "")
            if parent in parents:
                text = " ".join(entry.sections.get("Fact", "").split())
                found.append(Fact(entry.id, day, parent, text, entry.inline.get("timestamp", "")))
    order = {m.entry.id: n for n, m in enumerate(members)}
    return sorted(found, key=lambda f: (order[f.episode_id], f.at, f.id))


def fates_of(facts: Sequence[Fact]) -> list[Fate]:
    """One fate for each fact, in order: a repeat goes into the first, a replaced one points to its successor."""
    fates: list[Fate] = []
    first: list[tuple[Fact, frozenset[str], tuple[str, ...]]] = []
    successor: dict[str, str] = {}
    latest: dict[tuple[str, str], Fact] = {}
    stands: list[tuple[Fact, str, Trait]] = []
    for fact in facts:
        single, matter = _retold().match(fact.text), matter_of(fact.text)
        if single:
            slot = (single["who"].casefold(), _slot(single))
            if slot in latest and latest[slot].text != fact.text:
                successor[latest[slot].id] = fact.id
            latest[slot] = fact
        elif matter is not None:
            who, trait = matter
            over = [one for one, by, known in stands if by == who and replaces(trait, known)]
            successor.update((one.id, fact.id) for one in over)
            stands = [(one, by, known) for one, by, known in stands if one not in over]
            stands.append((fact, who, trait))
    for fact in facts:
        bag, own = words.word_set(fact.text), particulars(fact.text)
        twin = next((f for f, b, o in first if f.id not in successor and own == o and _same(bag, b)), None)
        if not fact.text:
            fates.append(Fate(fact.id, "dropped", reason="it says nothing"))
        elif fact.id in successor:
            fates.append(Fate(fact.id, "superseded", by=successor[fact.id]))
        elif twin is not None:
            fates.append(Fate(fact.id, "merged", by=twin.id))
        else:
            fates.append(Fate(fact.id, "kept"))
        first.append((fact, bag, own))
    return fates


@functools.cache
def _retold() -> re.Pattern[str]:
    """A fact told of someone else, in any language: who, and which of its attributes it sets."""
    owner = "|".join(map(re.escape, sorted(tongues.every_word("retold", "owner")))) or "(?!)"
    what = "|".join(f"(?P<{name}>{tongues.every_body('retold', name)})" for name in _RETOLD)
    return re.compile(rf"^(?P<who>[\w.@+-]+(?:{owner})?) ?(?:{what})", re.I)


def _slot(single: re.Match[str]) -> str:
    """What a fact told of someone else sets; a favourite by its own words."""
    return single["favourite"].casefold() if single["favourite"] else str(single.lastgroup)


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one) and len(one & other) >= SAME * len(one | other)


def narrative_of(
    members: Sequence[Episode], facts: Sequence[Fact], fates: Sequence[Fate]
) -> tuple[str, list[Fate]]:
    """The story in order of time, and the fates as they are once the space ran out."""
    by_id = {f.id: f for f in facts}
    final = {fate.id: fate for fate in fates}
    parts: list[str] = []
    size = 0
    for member in members:
        kept = [by_id[f.id] for f in fates if f.fate == "kept" and by_id[f.id].episode_id == member.entry.id]
        told = []
        for fact in kept:
            if size + len(fact.text) > NARRATIVE_CHARS:
                final[fact.id] = Fate(
                    fact.id,
                    "dropped",
                    reason=f"the narrative is full ({NARRATIVE_CHARS} characters); it stands in its own note",
                )
                continue
            size += len(fact.text) + 1
            told.append(fact.text)
        if not told and not kept:
            told = [" ".join(member.text.split())[: max(0, min(600, NARRATIVE_CHARS - size))]]
            size += len(told[0])
        if any(told):
            parts.append(f"{member.at:%-d %B %Y}: {' '.join(told)}")
    return "\n".join(parts), [final[f.id] for f in fates]


# -- writing


def _merge(scope: Scope, cluster: str, members: Sequence[Episode], ledger: Ledger, run: str, kit: Kit) -> str:
    facts = facts_of(scope, members, kit)
    text, fates = narrative_of(members, facts, fates_of(facts))
    subject = members[0].entry.sections.get("Subject", "") or members[0].text[:120]
    when = dates.shown(members[0].at.date(), members[-1].at.date())
    title = f"{len(members)} conversations, {when}: {' '.join(subject.split())[:120]}"
    title, text, fates = _improved(title, text, members, facts, fates, kit)
    deprecated_facts: dict[str, dict[str, str]] = {}
    for fact, fate in zip(facts, fates, strict=True):
        if fate.fate in {"merged", "superseded"}:
            deprecated_facts.setdefault(fact.day, {})[fact.id] = fate.by
    ledger.begin(run, cluster, [m.entry.id for m in members], fates)
    last = members[-1]
    senders = dict.fromkeys(s for m in members for s in list_items(m.entry.inline.get("sender_ids", "[]")))
    draft = Draft(
        {
            "owner_id": scope.owner,
            "session_id": last.entry.inline.get("session_id", ""),
            "timestamp": last.at.astimezone(UTC).isoformat(),
            "parent_type": "cluster",
            "parent_id": cluster,
            "sender_ids": list(senders),
            "source_episode_ids": [m.entry.id for m in members],
            **union_of(m.entry.inline for m in members),
        },
        {
            "Subject": kit.redact(title),
            "Summary": kit.redact(" ".join(text.split())[:300]),
            "Content": kit.redact(text),
        },
    )
    written = kit.notebook.append("episode", scope, last.day, [draft], once_by=("parent_id",))[0]
    for day in sorted({m.day for m in members}):
        old = {m.entry.id: written.entry_id for m in members if m.day == day}
        _deprecate(KINDS["episode"].locator(scope, day), old, kit)
    for day, old in sorted(deprecated_facts.items()):
        _deprecate(KINDS["atomic_fact"].locator(scope, day), old, kit)
    ledger.end(run, cluster, written.entry_id)
    return written.entry_id


def _deprecate(locator: Locator, old: Mapping[str, str], kit: Kit) -> None:
    def updated(head: Mapping[str, Any]) -> Mapping[str, Any]:
        before = head.get("deprecated_entries")
        return {"deprecated_entries": {**(before if isinstance(before, dict) else {}), **old}}

    kit.notebook.update_frontmatter(locator, updated)


def _improved(
    title: str, text: str, members: Sequence[Episode], facts: Sequence[Fact], fates: Sequence[Fate], kit: Kit
) -> tuple[str, str, list[Fate]]:
    """A model's narrative, followed by every kept fact it left out: the ledger stays true whatever it wrote."""
    if kit.writer is None:
        return title, text, list(fates)
    shown = [f"[{m.entry.id}] {m.at:%Y-%m-%d}: {m.text}" for m in members] + [
        f"[{f.id}] {f.text}" for f in facts
    ]
    answer = asking.ask(kit, "reflection", "\n".join(shown), _SCHEMA)
    story = answer.get("narrative") if answer is not None else None
    if not isinstance(story, str) or not 40 <= len(story.strip()) <= NARRATIVE_CHARS:
        return title, text, list(fates)
    assert answer is not None
    kept = {fate.id for fate in fates if fate.fate == "kept"}
    left_out = [f.text for f in facts if f.id in kept and f.text not in story]
    whole = story.strip() + ("\n\nAs stated: " + " ".join(left_out) if left_out else "")
    return asking.line(answer.get("subject"), 160) or title, whole, list(fates)


# -- the ledger


class Ledger:
    """`journal/reflection.jsonl` of a space: plans with every fact's fate, and which of them were carried out."""

    def __init__(self, scope: Scope, kit: Kit) -> None:
        self._scope, self._kit = scope, kit
        self._at = kit.root.journal(scope.space, "reflection")
        self.lines = _lines(self._at, kit)
        history = kit.notebook.history
        undone = history.undone(scope.space) if history is not None else frozenset()
        self.undone = {
            x["cluster"]
            for x in self.lines
            if x.get("t") == "plan" and x.get("owner") == scope.owner and x.get("run") in undone
        }

    def unfinished(self) -> list[dict[str, Any]]:
        """Plans of this owner that a crash cut short."""
        ended = {x["cluster"] for x in self.lines if x.get("t") == "end"} | self.undone
        return [
            x
            for x in self.lines
            if x.get("t") == "plan" and x.get("owner") == self._scope.owner and x["cluster"] not in ended
        ]

    def begin(self, run: str, cluster: str, members: Sequence[str], fates: Sequence[Fate]) -> None:
        """Journal the plan, once: a repeat after a crash keeps the first."""
        if any(x.get("t") == "plan" and x.get("cluster") == cluster for x in self.lines):
            return
        plan = {
            "t": "plan",
            "run": run,
            "cluster": cluster,
            "owner": self._scope.owner,
            "at": self._kit.clock.now().isoformat(),
            "members": list(members),
            "facts": [
                {k: v for k, v in (("id", f.id), ("fate", f.fate), ("by", f.by), ("reason", f.reason)) if v}
                for f in fates
            ],
        }
        self._append(plan)

    def end(self, run: str, cluster: str, narrative: str) -> None:
        """Journal that a plan was carried out."""
        self._append(
            {"t": "end", "run": run, "cluster": cluster, "owner": self._scope.owner, "narrative": narrative}
        )

    def _append(self, line: Mapping[str, Any]) -> None:
        self._kit.journals.append(self._at, [json.dumps(line, ensure_ascii=False)])
        self.lines = _lines(self._at, self._kit)


def _lines(at: Locator, kit: Kit) -> list[dict[str, Any]]:
    return list(objects_in(kit.journals.read(at).lines))
