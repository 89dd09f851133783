"""Forgetting: what was known is taken out of every place that holds it, and a receipt says which.

Archiving hides, superseding marks; forgetting removes. The words of a memory are looked for in the whole space:
notes of every kind, transcripts and inbox, journals, generated pages. An entry that says nothing else goes; in
longer texts the sentences that say it are replaced by a mark. The index, which lives outside the notes, is
purged through hooks. What cannot be reached (a repository's history, backups) is named, not passed over.

Words flow one way: from what was said to episodes and facts, from these to pages, history and index. So they are
taken out in that order, and before the next step whoever may still write what he read before is waited for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.governed import pages
from cairn.governed.access import Ref, ref
from cairn.governed.gate import jaccard
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, stamp
from cairn.language.words import word_set
from cairn.notes.kinds import Place, kind_of_entry, place_of
from cairn.notes.notebook import Draft
from cairn.seams import Locator, content_hash, iterate_files
from cairn.talk.sessions import place_of_session
from cairn.types import Entry, Scope, Space

TOMBSTONE = "[forgotten]"
# Entries of these kinds hold one statement each: one that matches is removed whole.
_SINGLE = frozenset({"memory", "atomic_fact", "foresight"})
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?。！？]+(?=\s|\Z)|[。！？]|\n|\Z)")
_SHORTEST = 8
_ALIKE = 0.6
_ALIKE_WITH_MARK = 0.3
_GIT = Locator(".git")

# A second round is for what others write meanwhile: an editor, another process, someone saying it again.
_ROUNDS = 2
_LOOKS = 5
_STILL_THERE = "the words are still there; it may have been written meanwhile: forget again"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was removed, by place, and what could not be."""

    id: str
    at: str
    removed: Mapping[str, int]
    places: Sequence[str]
    left: Sequence[tuple[str, str]]

    @property
    def complete(self) -> bool:
        return not self.left


@dataclass(slots=True)
class Wanted:
    """What is being forgotten: the words to look for, and the entries themselves. Purge hooks receive it."""

    space: Space
    needles: tuple[str, ...]
    entries: tuple[tuple[Scope, str], ...]
    patterns: tuple[re.Pattern[str], ...] = ()
    bags: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    paths: list[str] = field(default_factory=list)

    def found_in(self, text: str) -> bool:
        """Whether `text` says any of it, word for word (blanks and case aside)."""
        return any(pattern.search(text) for pattern in self.patterns)

    def says(self, sentence: str) -> bool:
        """Whether one sentence says it, in these or nearly these words."""
        if self.found_in(sentence):
            return True
        words = word_set(sentence)
        for bag, marks in self.bags:
            alike = jaccard(words, bag)
            if alike >= _ALIKE or (alike >= _ALIKE_WITH_MARK and marks & words):
                return True
        return False

    def without(self, text: str) -> str:
        """`text` with the sentences that say it replaced by a mark; the same object where none does."""
        if not self.found_in(text) and not any(self.says(s) for s in _sentences(text)):
            return text
        parts: list[str] = []
        for sentence in _sentences(text):
            if not self.says(sentence):
                parts.append(sentence)
                continue
            tail = "\n" if sentence.endswith("\n") else ""
            if parts and parts[-1].strip() == TOMBSTONE:
                parts[-1] = parts[-1].rstrip("\n") + tail
            else:
                parts.append((" " if sentence.startswith(" ") else "") + TOMBSTONE + tail)
        whole = "".join(parts)
        for pattern in self.patterns:  # what runs over the end of a sentence
            whole = pattern.sub(TOMBSTONE, whole)
        return whole


Purger = Callable[[Wanted], int]


def forget(
    keeper: Keeper,
    space: Space,
    memory_id: str | None = None,
    *,
    scope: Scope | None = None,
    words: Sequence[str] = (),
    settle: Callable[[], Sequence[tuple[str, str]]] = lambda: (),
    purgers: Mapping[str, Purger] | None = None,
) -> Receipt:
    """Remove a memory (or any entry) and every copy of what it says from a space.

    Args:
        keeper: Whose memories.
        space: The app and project; nothing outside it is touched.
        memory_id: A memory's id, or the id of another kind's entry together with `scope`.
        scope: Whose entry, where the id alone is not enough.
        words: Further phrases to remove wherever they stand, exactly as given (at least 4 characters each).
        settle: Waits for those who read what was said before it was cleaned and may still write from it;
            returns who was not done in time, and why, for the receipt.
        purgers: By name, what removes it from places this module cannot see (the index, the vectors, the
            history of entries); each gets a `Wanted` and returns how many things it removed.

    Raises:
        NotFound: there is no such entry.
        Invalid: neither an id nor words; or words too short to be looked for.
    """
    wanted = _wanted(keeper, space, memory_id, scope, words)
    done = _Tally()
    for _ in range(_ROUNDS):
        done.left.clear()
        _from_sessions(keeper, wanted, done)
        done.left += settle()
        _from_notes(keeper, wanted, done)
        _from_journals(keeper, wanted, done)
        _from_pages(keeper, wanted, done)
        for name, purge in (purgers or {}).items():
            try:
                done.add(name, purge(wanted))
            except CairnError as error:
                done.left.append((name, str(error)))
        if not purgers:
            done.left.append(("index", "no purge was given; its rows go when the notes are next indexed"))
        _verify(keeper, wanted, done)
        if not any(why == _STILL_THERE for _, why in done.left):
            break
    receipt = Receipt(
        memory_id or "words",
        stamp(keeper.clock.now()),
        dict(done.counts),
        sorted(set(wanted.paths)),
        tuple(done.left),
    )
    line = {
        "at": receipt.at,
        "id": receipt.id,
        "removed": dict(receipt.removed),
        "left": [where for where, _ in receipt.left],
    }
    keeper.journals.append(keeper.root.journal(space, "forgotten"), [json.dumps(line)])
    return receipt


class _Tally:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.left: list[tuple[str, str]] = []

    def add(self, what: str, count: int) -> None:
        if count:
            self.counts[what] = self.counts.get(what, 0) + count


def _wanted(
    keeper: Keeper, space: Space, memory_id: str | None, scope: Scope | None, words: Sequence[str]
) -> Wanted:
    texts: list[str] = []
    entries: list[tuple[Scope, str]] = []
    if memory_id is not None:
        record, entry, owner = _entry(keeper, space, memory_id, scope)
        entries.append((owner, entry))
        if isinstance(record, Record):
            texts += [record.content, record.trigger, record.procedure]
            for told in keeper.histories(space).get(ref(record), ()):
                texts += [
                    str(side["content"]) for side in (told.old, told.new) if side and side.get("content")
                ]
        else:
            texts += list(record.sections.values())
    for word in words:
        if len(word.strip()) < 4:
            raise Invalid(
                f'"{word}" is too short to be forgotten everywhere: give at least 4 characters.',
                field="words",
            )
    if not texts and not words:
        raise Invalid("Say what to forget: an id, or words.", field="id")
    lines = [line.strip() for text in texts for line in (text, *text.splitlines())]
    needles = tuple(
        dict.fromkeys(
            n for n in (*lines, *(w.strip() for w in words)) if len(n) >= (4 if n in words else _SHORTEST)
        )
    )
    bags = []
    for text in dict.fromkeys(t for t in texts if len(word_set(t)) >= 3):
        bag = word_set(text)
        bags.append((bag, frozenset(w for w in bag if len(w) >= 5 and any(c.isdigit() for c in w))))
    patterns = tuple(
        re.compile(r"\s+".join(map(re.escape, needle.split())), re.IGNORECASE) for needle in needles
    )
    return Wanted(space, needles, tuple(entries), patterns, tuple(bags))


def _entry(
    keeper: Keeper, space: Space, memory_id: str, scope: Scope | None
) -> tuple[Record | Entry, str, Scope]:
    entry_id = "_".join(memory_id.rsplit("_", 3)[-3:])
    if not entry_id.startswith("mem_"):
        if scope is None:
            raise Invalid(f"{memory_id} is not a memory: name the scope it belongs to.", field="scope")
        kind_of_entry(memory_id)
        return keeper.notebook.find(scope, memory_id)[1], memory_id, scope
    record = keeper.find(space, memory_id, scope=scope)
    return record, record.entry_id, record.scope


def _from_notes(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    base = keeper.root.space(wanted.space)
    for top in keeper.storage.list(base):
        if top.name in {"sessions", "journal"}:
            continue
        for at in iterate_files(keeper.storage, top):
            if "pages" in at.parts:
                continue
            # A file or an entry that goes between looking and removing is looked at again.
            for _ in range(_LOOKS):
                with suppress(NotFound):
                    _from_note(keeper, wanted, done, at)
                    break


def _from_note(keeper: Keeper, wanted: Wanted, done: _Tally, at: Locator) -> None:
    try:
        text = keeper.storage.read(at)
    except CairnError:
        return  # gone, or not text; `_verify` names it if its bytes hold the words
    place = place_of(at)
    named = {entry for scope, entry in wanted.entries if place is not None and scope == place.scope}
    if place is not None and place.kind.storage == "daily":
        _from_daily(keeper, wanted, done, at, place, named)
    elif wanted.without(text) is not text:
        keeper.notebook.rewrite(at, lambda old: wanted.without(old) if old is not None else None)
        done.add("documents rewritten", 1)
        wanted.paths.append(at.key)


def _from_daily(
    keeper: Keeper, wanted: Wanted, done: _Tally, at: Locator, place: Place, named: set[str]
) -> None:
    note = keeper.notebook.read(at)
    remove: list[str] = []
    change: dict[str, Callable[[Entry], Draft]] = {}
    for entry in note.entries:
        says = [title for title, text in entry.sections.items() if wanted.without(text) is not text]
        inline = [key for key, text in entry.inline.items() if wanted.found_in(text)]
        if entry.id in named or (says and (place.kind.name in _SINGLE or _nothing_left(wanted, entry))):
            remove.append(entry.id)
        elif says or inline:
            change[entry.id] = _rewriter(wanted)
    if change:
        keeper.notebook.change_many(at, change)
        done.add("entries rewritten", len(change))
    if remove:
        scope = place.scope
        wanted.entries = tuple(dict.fromkeys((*wanted.entries, *((scope, one) for one in remove))))
        keeper.notebook.remove(at, remove)
        done.add(f"{place.kind.name} entries", len(remove))
    if change or remove:
        wanted.paths.append(at.key)
    text = keeper.storage.read(at)
    if wanted.found_in(text):
        # Between the entries, or in a block that cannot be read: the words go all the same.
        keeper.notebook.rewrite(at, lambda old: _plainly(wanted, old) if old is not None else None)
        done.add("documents rewritten", 1)


def _rewriter(wanted: Wanted) -> Callable[[Entry], Draft]:
    return lambda entry: Draft(
        {key: TOMBSTONE if wanted.found_in(text) else text for key, text in entry.inline.items()},
        {title: wanted.without(text) for title, text in entry.sections.items()},
    )


def _nothing_left(wanted: Wanted, entry: Entry) -> bool:
    rest = " ".join(wanted.without(text) for text in entry.sections.values()).replace(TOMBSTONE, " ")
    return not word_set(rest)


def _plainly(wanted: Wanted, text: str) -> str:
    for pattern in wanted.patterns:
        text = pattern.sub(TOMBSTONE, text)
    return text


def _from_sessions(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    for at in iterate_files(keeper.storage, keeper.root.sessions(wanted.space)):
        if place_of_session(at) is None:
            continue
        touched = 0

        def change(lines: Sequence[str]) -> list[str] | None:
            nonlocal touched
            touched, out = 0, []
            for line in lines:
                cleaned, count = _clean_line(wanted, line)
                touched += count
                out.append(cleaned)
            return out if touched else None

        if keeper.journals.edit(at, change):
            done.add("messages", touched)
            wanted.paths.append(at.key)


def _clean_line(wanted: Wanted, line: str) -> tuple[str, int]:
    try:
        value = json.loads(line)
    except ValueError:
        return (_plainly(wanted, line), 1) if wanted.found_in(line) else (line, 0)
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        return line, 0
    count = 0
    for n, message in enumerate(messages):
        cleaned = _cleaned(wanted, message)
        if cleaned is not message:
            count += 1
            content = cleaned.get("content") if isinstance(cleaned, dict) else None
            empty = isinstance(content, str) and not word_set(content.replace(TOMBSTONE, " "))
            # A message that said nothing else leaves null, so that the ordinals of the others stay.
            messages[n] = None if empty and not cleaned.get("tool_calls") else cleaned
    if not count:
        return line, 0
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")), count


def _cleaned(wanted: Wanted, value: Any) -> Any:
    """A JSON value without the words; the very same object where it holds none of them."""
    if isinstance(value, str):
        return wanted.without(value)
    if isinstance(value, list):
        items = [_cleaned(wanted, item) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        made = {
            _plainly(wanted, key) if wanted.found_in(key) else key: _cleaned(wanted, item)
            for key, item in value.items()
        }
        same = made.keys() == value.keys() and all(made[key] is value[key] for key in value)
        return value if same else made
    return value


def _from_journals(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    refs: set[Ref] = {(scope.track, scope.owner, entry) for scope, entry in wanted.entries}
    ids = {f"{scope.owner}_{entry}" if scope.owner else entry for scope, entry in wanted.entries}
    keeper.access.flush(wanted.space)
    folder = keeper.root.journal(wanted.space)
    for at in iterate_files(keeper.storage, folder):
        if not at.name.endswith(".jsonl"):
            continue
        count = 0

        def change(lines: Sequence[str], name: str = at.name) -> list[str] | None:
            nonlocal count
            count, out = 0, []
            for line in lines:
                kept = _journal_line(wanted, refs, ids, name, line)
                count += kept != line
                if kept is not None:
                    out.append(kept)
            return out if count else None

        if keeper.journals.edit(at, change):
            done.add("journal lines", count)
            wanted.paths.append(at.key)
    keeper.memo.clear()


def _journal_line(wanted: Wanted, refs: set[Ref], ids: set[str], name: str, line: str) -> str | None:
    """A journal's line without the words, or None where nothing of it should stay."""
    try:
        value = json.loads(line)
    except ValueError:
        return _plainly(wanted, line) if wanted.found_in(line) else line
    if not isinstance(value, dict):
        return line
    mem = value.get("m")
    if name == "access.jsonl" and value.get("t") in {"hit", "seen"} and isinstance(mem, list):
        rest = [one for one in mem if tuple(one) not in refs]
        if len(rest) == len(mem):
            return line
        return json.dumps({**value, "m": rest}, separators=(",", ":")) if rest else None
    if isinstance(mem, list) and tuple(mem) in refs:
        return None
    if name == "consolidations.jsonl" and value.get("t") in {"merged", "intent"}:
        named = {
            (value.get("track"), value.get("owner"), one)
            for one in [*value.get("originals", ()), value.get("new")]
        }
        if named & refs:
            return None
    if name == "ledger.jsonl" and value.get("memory_id") in ids:
        # The key stays: what was forgotten must not be taken in again from the same source.
        value = {**value, "memory_id": None, "metadata": {"forgotten": True}}
    cleaned = _cleaned(wanted, value)
    made = json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"))
    return line if cleaned == json.loads(line) else made


def _from_pages(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    """Pages a person edited lose the words; the others are made anew."""
    pages.refresh(keeper, wanted.space, first=lambda: _clean_pages(keeper, wanted, done))


def _clean_pages(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    base = keeper.root.space(wanted.space)
    for top in (base.child("shared"), base.child("agents")):
        for at in iterate_files(keeper.storage, top):
            if "pages" not in at.parts:
                continue
            try:
                text = keeper.storage.read(at)
            except CairnError:
                continue
            cleaned = wanted.without(text)
            if cleaned is text:
                continue
            with suppress(
                Conflict, NotFound
            ):  # a person saves or removes it just now: the next round sees it
                if ".edited-" in at.name or at.name.endswith(".json"):
                    keeper.storage.write(at, _plainly(wanted, cleaned), expect=content_hash(text))
                else:
                    keeper.storage.remove(at)
                done.add("pages", 1)
                wanted.paths.append(at.key)


def _verify(keeper: Keeper, wanted: Wanted, done: _Tally) -> None:
    for at in iterate_files(keeper.storage, keeper.root.space(wanted.space)):
        try:
            if wanted.found_in(keeper.storage.read(at)):
                done.left.append((at.key, _STILL_THERE))
        except NotFound:
            continue
        except CairnError:
            done.left.append((at.key, "it is not text and was not searched"))
    if keeper.storage.exists(_GIT):
        done.left.append(
            (".git", "the repository's history keeps former versions; rewrite it to remove them there")
        )


def _sentences(text: str) -> Iterable[str]:
    return (match[0] for match in _SENTENCE.finditer(text) if match[0])
