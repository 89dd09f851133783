"""`extract_atomic_facts`: single-sentence facts from an episode, each one once per owner.

A later fact on the same matter supersedes the earlier one ("I live in Porto" after "I live in Lisbon"). Both stay; the
earlier one carries `superseded_by` and `until`, which a person may take out again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cairn.errors import NotFound
from cairn.language import words
from cairn.language.near import NearSets, particulars
from cairn.language.traits import Trait, matter_of, replaces, told_of
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Written
from cairn.strategies import Job, Kit, Outcome, Strategy, StrategyAsk, asking
from cairn.strategies.statements import Setting, Statement, normal
from cairn.talk.messages import inline_of
from cairn.types import Entry, Message, Scope

if TYPE_CHECKING:
    from cairn.seams import Locator

SAME = 0.9
OWNERS_KEPT = 256
_SCHEMA = asking.listed(
    "facts", "text message_ids", text=asking.TEXT, message_ids=asking.TEXTS, attribute=asking.TEXT
)
_OVER_SCHEMA = asking.listed("over", "earlier later", earlier=asking.TEXT, later=asking.TEXT)


class ExtractAtomicFacts(Strategy):
    name = "extract_atomic_facts"
    purpose = "single-sentence facts from an episode"
    trigger = "cell"
    takes = frozenset({"episode"})
    kind = "atomic_fact"

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        episodes = kit.cells.episodes(scope, day)
        known = KnownFacts.of(scope, kit)
        drafts: list[Draft] = []
        answers: list[tuple[Job, int, str]] = []
        done: list[Outcome] = []
        try:
            for job in jobs:
                if job.ask.entry_id not in episodes:
                    answers.append((job, 0, f"episode {job.ask.entry_id} was removed"))
                    continue
                try:
                    found = _facts(job.ask, kit)
                except NotFound as gone:
                    answers.append((job, 0, str(gone)))
                    continue
                told = most_specific(found, kit.options.max_facts)
                texts = [(s, text) for s in told if (text := kit.redact(s.text).strip())]
                fresh = [(s, text) for s, text in texts if known.add(text)]
                said = kit.cells.cell(job.ask).messages if fresh else ()
                drafts += [fact_draft(job.ask, s, text, said) for s, text in fresh]
                cut = f"the {len(told)} most specific of {len(found)} statements" if told != found else ""
                why = cut if fresh else "nothing new was stated" if found else "nothing was stated"
                if found and not fresh and (again := self._written_before(job.ask, kit)):
                    done.append(Outcome(job, "wrote", "written before", again))
                    continue
                answers.append((job, len(fresh), why))
            written = kit.notebook.append("atomic_fact", scope, day, drafts, once_by=("parent_id",))
        except BaseException:
            known.forget(kit)
            raise
        settle(scope, kit, [w.entry_id for w in written] + [one for o in done for one in o.outputs])
        yield from done
        yield from answered(answers, written)

    def _written_before(self, ask: StrategyAsk, kit: Kit) -> tuple[str, ...]:
        """The facts of this episode that stand in the note, after a crash between writing and recording."""
        entries = kit.entries("atomic_fact", ask.scope, ask.day)
        return tuple(e.id for e in entries if e.inline.get("parent_id") == ask.entry_id)


def answered(answers: Iterable[tuple[Job, int, str]], written: Sequence[Written]) -> Iterator[Outcome]:
    """Each job's share of what was written, in their order: how many entries, or why there are none."""
    at = 0
    for job, count, why in answers:
        ids = tuple(w.entry_id for w in written[at : at + count])
        at += count
        yield Outcome(job, "wrote" if ids else "skipped", why, ids)


def settle(scope: Scope, kit: Kit, entry_ids: Sequence[str]) -> None:
    """Mark what the facts of `entry_ids` end, or what ends them, where they were told out of their order."""
    if not entry_ids:
        return
    known = KnownFacts.of(scope, kit)
    marks: dict[Locator, dict[str, Callable[[Entry], Draft]]] = {}
    for old, by in _confirmed(known.ended_by(set(entry_ids)), kit):
        day = datetime.fromisoformat(by.at).astimezone(kit.zone).date().isoformat()
        marks.setdefault(old.locator, {})[old.entry_id] = _mark(by.entry_id, day)
    for locator, edits in marks.items():
        kit.notebook.change_many(locator, edits)


def _confirmed(ended: Sequence[tuple[_Matter, _Matter]], kit: Kit) -> Sequence[tuple[_Matter, _Matter]]:
    """Of pairs (earlier, later) those that hold: a model is asked where there is one, else the rules decide.

    What a model named an attribute of is taken only on its word: rules cannot tell two jobs at once from a change.
    """
    if not ended:
        return ended
    lines = [
        f"earlier [{old.entry_id}] {old.at[:10]}: {old.text}\nlater [{by.entry_id}] {by.at[:10]}: {by.text}"
        for old, by in ended
    ]
    answer = asking.ask(kit, "supersession", kit.redact("\n\n".join(lines)), _OVER_SCHEMA)
    if answer is None:
        return [(old, by) for old, by in ended if not old.is_models and not by.is_models]
    over = {(str(one.get("earlier")), str(one.get("later"))) for one in asking.items(answer, "over")}
    return [(old, by) for old, by in ended if (old.entry_id, by.entry_id) in over]


def release(scope: Scope, kit: Kit, entry_ids: Sequence[str]) -> None:
    """Take the marks of facts that are no more off those they had ended."""
    marked = KnownFacts.of(scope, kit).marked_by(set(entry_ids))
    for locator, ended in marked.items():
        kit.notebook.change_many(locator, dict.fromkeys(ended, _mark(None, None)))


def _mark(by: str | None, until: str | None) -> Callable[[Entry], Draft]:
    return lambda entry: Draft.of(entry, superseded_by=by, until=until)


def fact_draft(ask: StrategyAsk, statement: Statement, text: str, said: Sequence[Message] = ()) -> Draft:
    """The entry of one fact of the episode an ask is about, of which this was `said`."""
    sources = frozenset(statement.message_ids)
    return Draft(
        {
            "owner_id": ask.scope.owner,
            "timestamp": statement.said_at.astimezone(UTC).isoformat(),
            "parent_type": "episode",
            "parent_id": ask.entry_id,
            "session_id": ask.session_id,
            "message_ids": list(statement.message_ids),
            "speaker_id": statement.speaker_id,
            "attribute": statement.attribute or None,
            **inline_of(message for message in said if message.id in sources),
        },
        {"Fact": text},
    )


def _facts(ask: StrategyAsk, kit: Kit) -> list[Statement]:
    if kit.writer is not None:
        cell = kit.cells.cell(ask)
        answer = asking.ask(kit, "facts", asking.transcript(cell.messages, kit), _SCHEMA)
        by_id = {m.id: m for m in cell.messages}
        found = []
        for item in asking.items(answer, "facts"):
            text = asking.line(item.get("text"))
            ids = asking.known_ids(item.get("message_ids"), by_id)
            if len(text.split()) >= 3 and ids and asking.holds(text, asking.cited(ids, by_id, kit.zone)):
                source = by_id[ids[0]]
                at = datetime.fromtimestamp(source.timestamp / 1000, UTC)
                named = Setting.of(cell.messages).named(text, source)
                about = tuple(dict.fromkeys([*(by_id[one].sender_id for one in ids), *sorted(named)]))
                attribute = asking.line(item.get("attribute"), 40).casefold()
                found.append(
                    Statement(
                        text, ids, at, source.sender_id, source.speaker, text, about, attribute=attribute
                    )
                )
        if found:
            return [said for said in found if belongs(said, ask.scope.owner)]
    return [said for said in kit.cells.statements(ask, kit.zone) if belongs(said, ask.scope.owner)]


def belongs(said: Statement, owner: str) -> bool:
    """Whether a statement is `owner`'s to keep: they made it, it names them, or it was made for everyone's sake."""
    return not said.about or owner in said.about


def most_specific(found: Sequence[Statement], limit: int) -> Sequence[Statement]:
    """The `limit` statements that tell most for their length, in their order; all of them where `limit` is 0.

    Names, numbers and identifiers tell, and so do words that few of the others have.
    """
    if not limit or len(found) <= limit:
        return found
    bags = [words.word_set(one.text) for one in found]
    spread = Counter(word for bag in bags for word in bag)

    def weight(at: int) -> float:
        rare = sum(1 / spread[word] for word in bags[at])
        return (len(set(particulars(found[at].text))) + rare) / math.sqrt(len(bags[at]) or 1)

    best = sorted(range(len(found)), key=lambda at: (-weight(at), at))[:limit]
    return [found[at] for at in sorted(best)]


@dataclass(frozen=True, slots=True)
class _Matter:
    """A fact that sets or ends something of its speaker: where it stands, when it was said, and what ended it.

    `trait` is what it sets and nothing else, so that it may end; `means` is all that it says, so that it may end others.
    """

    locator: Locator
    entry_id: str
    speaker: str
    at: str
    trait: Trait | None
    means: tuple[Trait, ...]
    ended_by: str
    text: str
    is_models: bool

    @classmethod
    def of(cls, locator: Locator, entry: Entry) -> _Matter | None:
        inline, text = entry.inline, " ".join(entry.sections.get("Fact", "").split())
        found, told = matter_of(text), told_of(text)
        attribute = inline.get("attribute", "")
        if attribute and found is None:
            value = frozenset(words.stem(word) for word in words.word_set(text))
            found = inline.get("speaker_id", ""), Trait("", attribute, 0, 0, value, value)
            told = (found[1],)
        if found is None and not told:
            return None
        who = found[0] if found else text.partition(": ")[0].casefold()
        speaker, at = inline.get("speaker_id") or who, inline.get("timestamp", "")
        try:
            datetime.fromisoformat(at)
        except ValueError:
            return None
        ended_by = inline.get("superseded_by", "")
        trait = found[1] if found else None
        return cls(locator, entry.id, speaker, at, trait, told, ended_by, text, bool(attribute))

    def ends(self, other: _Matter) -> bool:
        """Whether this one was said after `other` and takes its place."""
        is_later = (self.at, self.entry_id) > (other.at, other.entry_id)
        if not is_later or self.speaker != other.speaker or other.trait is None:
            return False
        return any(replaces(one, other.trait) for one in self.means)


_Key = tuple[str, tuple[str, ...]]
"""The form under which two facts are one and the same: the words, and the particulars among them."""


@dataclass(frozen=True, slots=True)
class _Noted:
    """What one note said when it was read: its size and time then, its facts by their keys, and what they set or end."""

    stamp: tuple[int, float]
    keys: frozenset[_Key]
    matters: tuple[_Matter, ...]


class KnownFacts:
    """What is known of one owner already, so that nothing is stated twice.

    Two facts are the same when their words are, or nearly: at least 90 % of all words shared, with the same
    particulars (names, numbers, identifiers, denials). Notes are read again when they changed.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._notes: dict[str, _Noted] = {}
        self._near: NearSets[_Key] = NearSets()

    @classmethod
    def of(cls, scope: Scope, kit: Kit) -> KnownFacts:
        """The facts of `scope` as the notes have them now."""
        key = f"known facts {scope}"
        book = kit.cache.pop(key, None)
        if not isinstance(book, KnownFacts):
            book = cls(scope)
        kit.cache[key] = book
        while len(kit.cache) > OWNERS_KEPT:
            kit.cache.pop(next(iter(kit.cache)))
        book._catch_up(kit)
        return book

    def forget(self, kit: Kit) -> None:
        """Start over from the notes next time: what was added here may not have been written."""
        kit.cache.pop(f"known facts {self._scope}", None)

    def _catch_up(self, kit: Kit) -> None:
        storage = kit.notebook.storage
        folder = KINDS["atomic_fact"].locator(self._scope, "2000-01-01").parent
        notes: dict[str, _Noted] = {}
        for locator in storage.list(folder):
            try:
                info = storage.info(locator)
                noted = self._notes.get(locator.key)
                if noted is None or noted.stamp != (info.size, info.mtime):
                    noted = self._noted((info.size, info.mtime), locator, kit.notebook.read(locator).entries)
            except NotFound:
                continue
            notes[locator.key] = noted
        before, self._notes = self._notes, notes
        gone = (one.keys for key, one in before.items() if notes.get(key) is not one)
        self._drop(frozenset().union(*gone))

    def _noted(self, stamp: tuple[int, float], locator: Locator, entries: Sequence[Entry]) -> _Noted:
        found = {_key(text): text for entry in entries if (text := entry.sections.get("Fact", ""))}
        for key, text in found.items():
            if key not in self._near:
                self._near.put(key, words.word_set(text))
        matters = tuple(m for entry in entries if (m := _Matter.of(locator, entry)))
        return _Noted(stamp, frozenset(found), matters)

    def ended_by(self, fresh: AbstractSet[str]) -> list[tuple[_Matter, _Matter]]:
        """The facts that stand and are over since `fresh` came, each with the one that ended it."""
        found: list[tuple[_Matter, _Matter]] = []
        standing = [one for note in self._notes.values() for one in note.matters if not one.ended_by]
        oldest_first = sorted(standing, key=lambda one: (one.at, one.entry_id))
        changes = [one for one in oldest_first if any(t.slot or t.how == "end" for t in one.means)]
        news = [one for one in changes if one.entry_id in fresh]
        for one in oldest_first if fresh else ():
            for by in changes if one.entry_id in fresh else news:
                if by.ends(one):
                    found.append((one, by))
                    break
        return found

    def marked_by(self, gone: AbstractSet[str]) -> dict[Locator, list[str]]:
        """The facts that carry the mark of one of `gone`, by note."""
        found: dict[Locator, list[str]] = {}
        for one in (one for note in self._notes.values() for one in note.matters if one.ended_by in gone):
            found.setdefault(one.locator, []).append(one.entry_id)
        return found

    def leave_out(self, locator: Locator, texts: Iterable[str]) -> None:
        """Facts at `locator` that are about to be removed no longer make another one known."""
        if (noted := self._notes.get(locator.key)) is not None:
            mine = noted.keys.intersection(map(_key, texts))
            self._notes[locator.key] = replace(noted, keys=noted.keys - mine)
            self._drop(mine)

    def _drop(self, keys: Iterable[_Key]) -> None:
        """Forget those of `keys` that no note holds any more."""
        for key in keys:
            if not any(key in noted.keys for noted in self._notes.values()):
                self._near.drop(key)

    def add(self, text: str) -> bool:
        """Take `text` in; False if it was known."""
        key, said = _key(text), words.word_set(text)
        if key in self._near or any(other[1] == key[1] for other, _ in self._near.near(said, SAME)):
            return False
        self._near.put(key, said)
        return True


def _key(text: str) -> _Key:
    return normal(text), particulars(text)
