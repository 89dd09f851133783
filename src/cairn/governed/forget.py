"""Forgetting: removes what is named from every place that holds it, and returns a receipt of what went and
what stays.

Archiving hides, superseding marks; forgetting removes. What goes is exactly what is named (an entry, or words),
the same statement elsewhere in the same owner's memory, and what was made from it: facts of an episode, items of
a profile, memories it was merged into. What is merely alike is listed and taken only on request, and nothing of
another owner is touched unless everybody's memory is asked for. A dry run shows all of that beforehand.

Words flow one way: from what was said to episodes and facts, from these to pages, history and index. So they are
taken out in that order, and before the next step whoever may still write what he read before is waited for. At
the end every byte below the root is looked at: a receipt is complete only if none of the words is left, and each
place that still holds them is named with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from cairn.errors import CairnError, Invalid, NotFound
from cairn.governed import removal, transcripts, unfinished
from cairn.governed.access import ref
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, stamp
from cairn.governed.transcripts import Log, Said
from cairn.governed.unfinished import ForgetAgain
from cairn.governed.wanted import (
    ELSEWHERE,
    IN_GIT,
    OF_HISTORY,
    SAID_AGAIN,
    SHORTEST,
    TELLING,
    Affected,
    Beside,
    ForgetTally,
    Left,
    Likeness,
    Lost,
    Wanted,
    folded,
    owner_name,
    quoted,
    scope_of_path,
    sentences,
    shown,
)
from cairn.language.near import jaccard
from cairn.language.words import word_set
from cairn.notes.format import list_items
from cairn.notes.kinds import Place, kind_of_entry, space_of
from cairn.seams import Locator
from cairn.seams.storage import iterate_files, readable_files
from cairn.talk.sessions import place_of_session
from cairn.types import Entry, Scope, Space, split_public_id

# Entries of these kinds hold one statement each: one is listed as a whole.
_SINGLE = frozenset({"memory", "atomic_fact", "foresight"})
# What these say is what somebody said: the same words without who said them are the same statement.
_QUOTES = frozenset({"atomic_fact", "foresight"})
_ALIKE_SHOWN = 200

# A second round is for what others write meanwhile: an editor, another process, someone saying it again.
_ROUNDS = 2
_STILL_THERE = ForgetAgain("the words are still there; it may have been written meanwhile: forget again")
_BY_ID = "an id or a name holds the words; those are not rewritten"
_OTHERS = "other owners' memory"
_OTHERS_WHY = "the same words stand there; they are not this owner's: ask for all owners to take them, too"
_ELSEWHERE_WHY = "the same words stand there; forget them there, too"
_OF_OTHERS = {_OTHERS_WHY: _OTHERS, _ELSEWHERE_WHY: ELSEWHERE}
_WORKSHOPS = (".index", ".tmp/cells")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was removed (or in a dry run: what would be), what is merely alike, and what could not be removed.

    The words in it are for whoever asked; no file keeps them.
    """

    id: str
    at: str
    removed: Mapping[str, int]
    places: Sequence[str]
    left: Left
    taken: Sequence[Affected] = ()
    alike: Sequence[Affected] = ()
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """Whether not a byte of the words is left below the root."""
        return not self.left and not self.dry_run


@dataclass(slots=True)
class _Named:
    """What a call names, read: the texts to look for, and what they are to be compared with."""

    id: str
    texts: list[str] = field(default_factory=list)
    entries: list[tuple[Scope, str]] = field(default_factory=list)
    cells: set[str] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)


def forget(
    keeper: Keeper,
    space: Space,
    memory_id: str | None = None,
    *,
    scope: Scope | None = None,
    words: Sequence[str] = (),
    also: Sequence[str] = (),
    similar: bool = False,
    all_owners: bool = False,
    dry_run: bool = False,
    beside: Beside | None = None,
) -> Receipt:
    """Remove a memory (or any entry) with what was made from it, or words, from one owner's memory.

    Args:
        keeper: Whose memories.
        space: The app and project; nothing outside it is touched.
        memory_id: A memory's id, or the id of another kind's entry together with `scope`.
        scope: Whose entry, where the id alone is not enough; whose memory, where only words are given.
        words: Phrases to remove wherever they stand as whole words, with the sentences that hold them.
        also: Ids of things that a former call listed as alike.
        similar: Take everything that is alike, too.
        all_owners: Look in everybody's memory, not in that of one owner alone.
        dry_run: Only tell what would go; nothing is changed.
        beside: What is done in places that this module cannot see.

    Raises:
        NotFound: there is no such entry, or nothing alike of an id in `also`.
        Invalid: neither an id nor words; words too short to be looked for; or words that several owners hold,
            where none is named.
    """
    beside = beside or Beside()
    earlier = beside.earlier()
    try:
        named = _named(keeper, space, memory_id, scope, words)
    except NotFound:
        if not earlier:
            raise
        named = _Named(str(memory_id))  # it went before the rest could
    named.entries += unfinished.from_names(space, earlier.get("entries", ()))
    reach = None if all_owners else (named.entries[0][0] if named.entries else scope)
    wanted = Wanted(
        space, reach, tuple(dict.fromkeys(named.entries)), phrases=tuple(w.strip() for w in words)
    )
    wanted.want((*named.texts, *earlier.get("statements", ())))
    wanted.cells |= named.cells.union(earlier.get("cells", ()))
    wanted.lost = {one: Lost(*both) for one, both in earlier.get("lost", {}).items()}
    wanted.paths += earlier.get("paths", ())
    if reach is None and not all_owners:
        wanted.reach = _only_owner(keeper, wanted)
    alike = _alike(keeper, wanted, named, (*named.texts, *words))
    alike = _with_chosen(keeper, wanted, alike, also=() if earlier else also, similar=similar)
    done = ForgetTally(dry=dry_run)
    if not dry_run:
        beside.keep(_leads(keeper, wanted))
    _remove(keeper, wanted, done, beside)
    if not dry_run:
        done.left += beside.stays(done.left)
    taken = {(one.path, one.id) for one in done.taken.values()}
    receipt = Receipt(
        memory_id or "words",
        stamp(keeper.clock.now()),
        dict(done.counts),
        sorted(set(wanted.paths)),
        tuple(dict.fromkeys(done.left)),
        tuple(done.taken.values()),
        tuple(one for one in alike if (one.path, one.id) not in taken),
        dry_run,
    )
    if not dry_run:
        _record(keeper, wanted, receipt)
        beside.end(receipt.left)
    return receipt


def _leads(keeper: Keeper, wanted: Wanted) -> dict[str, Any]:
    """What leads to the words once the first of them are gone: entries, statements, and the messages that lose some."""
    look = replace(wanted, lost=dict(wanted.lost), paths=list(wanted.paths))
    transcripts.from_sessions(keeper, look, ForgetTally(dry=True))
    for scope, entry in wanted.entries:
        with suppress(CairnError):
            look.paths.append(keeper.notebook.find(scope, entry)[0].key)
    return {
        "entries": unfinished.as_names(wanted.entries), "statements": wanted.statements, "cells": sorted(wanted.cells),
        "lost": {one: (lost.gone, lost.kept) for one, lost in look.lost.items()}, "paths": list(dict.fromkeys(look.paths)),
    }  # fmt: skip


def _record(keeper: Keeper, wanted: Wanted, receipt: Receipt) -> None:
    """A line that something was forgotten, without a word of it."""
    left = [where for where, _ in receipt.left if not wanted.found_in(where)]
    line = {"at": receipt.at, "id": receipt.id, "removed": dict(receipt.removed), "left": left}
    keeper.note(wanted.space, "forgotten", line)


def _remove(keeper: Keeper, wanted: Wanted, done: ForgetTally, beside: Beside) -> None:
    for _ in range(_ROUNDS):
        done.left.clear()
        transcripts.from_sessions(keeper, wanted, done)
        done.left += beside.settle() if not done.dry else ()
        removal.from_notes(keeper, wanted, done, beside.profile)
        removal.from_journals(keeper, wanted, done)
        removal.from_pages(keeper, wanted, done)
        if done.dry:
            return
        done.left += beside.purge(wanted, done.add)
        if not beside.purgers:
            done.left.append(("index", "no purge was given; its rows go when the notes are next indexed"))
        done.left += _Look(keeper, wanted, beside).left()
        if not any(why == _STILL_THERE for _, why in done.left):
            break


# ---------------------------------------------------------------- naming


def _named(
    keeper: Keeper, space: Space, memory_id: str | None, scope: Scope | None, words: Sequence[str]
) -> _Named:
    for word in words:
        if not isinstance(word, str) or len(word.strip()) < SHORTEST:
            raise Invalid(
                f'"{word}" is too short to be forgotten everywhere: give at least {SHORTEST} characters.',
                field="words",
            )
    if memory_id is None:
        if not words:
            raise Invalid("Say what to forget: an id, or words.", field="id")
        return _Named("words")
    record, entry_id, owner = _entry(keeper, space, memory_id, scope)
    named = _Named(memory_id, entries=[(owner, entry_id)])
    if isinstance(record, Record):
        named.texts = [record.content, record.trigger, record.procedure]
        for told in keeper.histories(space).get(ref(record), ()):
            named.texts += [
                str(side["content"]) for side in (told.old, told.new) if side and side.get("content")
            ]
        return named
    kind = kind_of_entry(entry_id)
    # A title is not a statement; what an entry tells is in its main section.
    named.texts = [
        text for title, text in record.sections.items() if title in (kind.main_section, "Evidence")
    ]
    if kind.name in _QUOTES:
        named.texts = [one for text in named.texts for one in quoted(text)]
    named.messages = set(list_items(record.inline.get("message_ids", "[]")))
    if kind.name == "episode" and record.inline.get("parent_type") == "memcell":
        named.cells = {record.inline.get("parent_id", "")} - {""}
    return named


def _entry(
    keeper: Keeper, space: Space, memory_id: str, scope: Scope | None
) -> tuple[Record | Entry, str, Scope]:
    owner, entry_id = split_public_id(memory_id)
    if not entry_id.startswith("mem_"):
        try:
            kind_of_entry(entry_id)
        except Invalid as error:
            told = f"{error} What has no id is forgotten by its words (--words)."
            raise Invalid(told, field="memory_id") from None
        if scope is None:
            raise Invalid(f"{memory_id} is not a memory: name the scope it belongs to.", field="scope")
        if owner and owner != scope.owner:
            raise NotFound(
                f"{memory_id} belongs to {owner}, not to {scope.owner or 'the project'}.", id=memory_id
            )
        return keeper.notebook.find(scope, entry_id)[1], entry_id, scope
    record = keeper.find(space, memory_id, scope=scope)
    return record, record.entry_id, record.scope


def _only_owner(keeper: Keeper, wanted: Wanted) -> Scope | None:
    """The one owner whose memory holds the words; None where nobody's does.

    Raises:
        Invalid: several do, so that somebody has to say whose is meant.
    """
    holders: dict[Scope, None] = {}
    for said in transcripts.messages_of(keeper, wanted):
        if wanted.found_in(json.dumps(said.raw, ensure_ascii=False)):
            holders.update(dict.fromkeys(_speakers(wanted.space, said)))
    for at in removal.files_in_reach(keeper, wanted):
        try:
            if wanted.found_in(keeper.storage.read(at)):
                holders[scope_of_path(wanted.space, at)] = None
        except CairnError:
            continue
    if len(holders) > 1:
        names = ", ".join(sorted(owner_name(one) for one in holders)[:8])
        raise Invalid(
            f"The words stand in the memory of several ({names}): name one by scope and owner, or ask for all owners.",
            field="owner",
        )
    return next(iter(holders), None)


def _speakers(space: Space, said: Said) -> Iterator[Scope]:
    if said.raw.get("role") == "user":
        yield Scope(space, "user", str(said.raw.get("sender_id")))
    elif not said.users:
        yield Scope(space, "agent", str(said.raw.get("sender_id")))
    elif len(said.users) == 1:
        yield Scope(space, "user", next(iter(said.users)))


# ---------------------------------------------------------------- what is merely alike


def _alike(keeper: Keeper, wanted: Wanted, named: _Named, texts: Sequence[str]) -> list[Affected]:
    """What says nearly the same in reach, and what a named entry was made from; each statement once, and not endlessly many."""
    out: dict[tuple[str, str], Affected] = {}
    for one, words in _all_alike(keeper, wanted, named, Likeness(texts)):
        out.setdefault((one.owner, folded(words)), one)
        if len(out) == _ALIKE_SHOWN:
            break
    return list(out.values())


def _all_alike(
    keeper: Keeper, wanted: Wanted, named: _Named, likeness: Likeness
) -> Iterator[tuple[Affected, str]]:
    """Each with its words."""
    for at, place, entry in removal.entries_of(keeper, wanted, likeness.may_be_in, _SINGLE.__contains__):
        if (place.scope, entry.id) in wanted.entries:
            continue
        text = entry.sections.get(place.kind.main_section, "")
        if (why := likeness.why(text)) and wanted.without(text) is text:
            yield _affected(place, at, entry, text, why), text
    for said in transcripts.messages_of(keeper, wanted):
        if not said.is_in_reach:
            continue
        owner = f"{'user' if said.raw.get('role') == 'user' else 'agent'} {said.raw.get('sender_id')}"
        source = _source(said, named) if said.id in named.messages else ""
        for one in sentences(said.text):
            why = "what it was made from" if one == source else likeness.why(one)
            if why and wanted.without(one) is one:
                yield Affected("message", said.id, said.at.key, owner, shown(one), why), one
    for at, place, entry in removal.entries_of(
        keeper, wanted, likeness.may_be_in, lambda kind: kind not in _SINGLE
    ):
        if (place.scope, entry.id) in wanted.entries:
            continue
        for one in (s for text in entry.sections.values() for s in sentences(text)):
            told = one.partition(": ")[2] or one
            if (why := likeness.why(told)) and wanted.without(one) is one:
                yield _affected(place, at, entry, told, why), told


def _affected(place: Place, at: Locator, entry: Entry, words: str, why: str) -> Affected:
    name = place.scope.public_id(entry.id)
    return Affected(place.kind.name, name, at.key, owner_name(place.scope), shown(words), why)


def _source(said: Said, named: _Named) -> str:
    """The sentence of a message that a named entry was made from: the one most like it."""
    bags = [word_set(text) for text in named.texts]
    return max(
        sentences(said.text), key=lambda one: max(jaccard(word_set(one), bag) for bag in bags), default=""
    )


def _with_chosen(
    keeper: Keeper, wanted: Wanted, alike: Sequence[Affected], *, also: Sequence[str], similar: bool
) -> list[Affected]:
    """Take what was asked for of the alike ones into what is wanted; the rest."""
    unknown = set(also) - {one.id for one in alike}
    if unknown:
        raise NotFound(
            f"{min(unknown)[:80]} is not among what is alike here: a dry run lists what is.", id="also"
        )
    chosen = [one for one in alike if similar or one.id in also]
    ids = {split_public_id(one.id)[1] for one in chosen}
    named = removal.entries_of(
        keeper, wanted, lambda block: any(one in block for one in ids), _SINGLE.__contains__
    )
    for at, place, entry in named if chosen else ():
        name = place.scope.public_id(entry.id)
        if any((one.id, one.path) == (name, at.key) for one in chosen):
            wanted.entries = (*wanted.entries, (place.scope, entry.id))
    wanted.want(one.words for one in chosen)
    return [one for one in alike if one not in chosen]


# ---------------------------------------------------------------- the last look


class _Look:
    """Looks through every byte for the words, and says of each file that holds them why it does.

    Looked for are the words that were named, and those of everything that went with them. The index and other
    copies hold what the notes hold: one of them is named only where no note, log or journal is the reason.
    """

    def __init__(self, keeper: Keeper, wanted: Wanted, beside: Beside) -> None:
        self._keeper = keeper
        self._wanted = wanted
        self._told = Wanted(wanted.space, wanted.reach)
        lost = (one for message in wanted.lost.values() for one in message.gone)
        self._told.want(one for one in (*wanted.followed, *lost) if len(word_set(one)) >= TELLING)
        self._files = beside.files or self._of_space
        self._space = keeper.root.space(wanted.space)
        self._ids = [
            place[1]
            for at in readable_files(keeper.storage, keeper.root.sessions(wanted.space))
            if (place := place_of_session(at)) is not None and wanted.found_in(place[1])
        ]

    def left(self) -> list[tuple[str, str]]:
        truth: dict[str, str] = {}
        copies: dict[str, str] = {}
        for path, piece in self._files():
            at = self._locator(path)
            why = self._why(path, at, piece)
            if why:
                held = copies if at is None and why in {_STILL_THERE, SAID_AGAIN} else truth
                held[path] = _STILL_THERE if held.get(path) == _STILL_THERE else why
        found = [(path, why) for path, why in truth.items() if why not in _OF_OTHERS]
        if self._ids:
            # What works with a session's name writes it again: the folder is named, whatever holds it just now.
            found = [one for one in found if one[1] != _BY_ID or not one[0].startswith(_WORKSHOPS)]
            found += [(folder, _BY_ID) for folder in _WORKSHOPS]
        if not any(why in _OF_OTHERS or why == SAID_AGAIN for why in truth.values()):
            found += [(path, _STILL_THERE) for path in copies]
        found += [(_OF_OTHERS[why], why) for why in _OF_OTHERS if why in truth.values()]
        if self._keeper.storage.exists(Locator(IN_GIT[0])):
            found.append(IN_GIT)
        return found

    def _of_space(self) -> Iterator[tuple[str, bytes | None]]:
        for at in iterate_files(self._keeper.storage, self._space):
            try:
                yield at.key, self._keeper.storage.read(at).encode("utf-8")
            except NotFound:
                continue
            except CairnError:
                yield at.key, None

    def _why(self, path: str, at: Locator | None, piece: bytes | None) -> str:
        if path == ".git" or path.startswith(".git/"):
            return ""
        if any(self._wanted.found_in(unquote(part)) for part in path.split("/")):
            return _BY_ID if at is None or self._is_theirs(at) else self._whose(at, self._wanted)
        if piece is None:
            return "it cannot be read and was not searched"
        if self._wanted.found_in_bytes(piece):
            bare = piece
            for one in self._ids:
                bare = bare.replace(one.encode("utf-8"), b"")
            if not self._wanted.found_in_bytes(bare):
                return _BY_ID
            return self._whose(at, self._wanted) if at is not None else _STILL_THERE
        if self._told.found_in_bytes(piece):
            why = self._whose(at, self._told) if at is not None else _STILL_THERE
            return SAID_AGAIN if why == _STILL_THERE and at is not None else why
        return ""

    def _is_theirs(self, at: Locator) -> bool:
        place = place_of_session(at)
        if place is None or place[0] != self._wanted.space:
            return self._wanted.reaches_path(at)
        return Log(self._wanted, at, place[1], self._keeper.journals.read(at).lines).is_theirs

    def _locator(self, path: str) -> Locator | None:
        """The place of a note, a log or a journal; None for the index, former texts, pages and the like."""
        if path.startswith("."):
            return None
        try:
            at = Locator(path)
        except CairnError:
            return None
        if space_of(at) is None or at.name in OF_HISTORY:
            return None
        return None if "pages" in at.parts and ".edited-" not in at.name else at

    def _whose(self, at: Locator, sought: Wanted) -> str:
        """Why a file of the truth holds words: they are others' words, or they should have gone."""
        if at.parts[: len(self._space.parts)] != self._space.parts:
            return _ELSEWHERE_WHY
        top = at.parts[len(self._space.parts)]
        if top == "sessions":
            place = place_of_session(at)
            lines = self._keeper.journals.read(at).lines
            is_clean = place is not None and Log(sought, at, place[1], lines).is_clean
            return _OTHERS_WHY if is_clean else _STILL_THERE
        if top == "journal":
            lines = self._keeper.journals.read(at).lines
            is_clean = all(removal.journal_line(sought, set(), set(), at.name, one) == one for one in lines)
            return _OTHERS_WHY if is_clean else _STILL_THERE
        return _STILL_THERE if self._wanted.reaches_path(at) else _OTHERS_WHY
