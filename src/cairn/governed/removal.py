"""The steps of forgetting, place by place: session logs, notes, journals, generated pages.

Each step looks and removes in one go under the file's own lock, or only looks (`dry`): what a preview shows is
found by the very code that removes it. Words flow from what was said to episodes and facts, and from these to
profiles and pages; so the steps run in that order, and each leaves in `Wanted` what the next has to follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cairn.canonical import as_line, object_in
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.governed import corrections, pages
from cairn.governed.access import Ref
from cairn.governed.memories import Keeper
from cairn.governed.wanted import (
    TOMBSTONE,
    Affected,
    Lost,
    Wanted,
    cleaned_json,
    owner_name,
    quoted,
    scope_of_path,
    sentences,
    shown,
)
from cairn.language.words import word_set
from cairn.notes import frontmatter
from cairn.notes.format import list_items, parse_note
from cairn.notes.kinds import Place, place_of
from cairn.notes.notebook import Draft
from cairn.notes.unions import forgotten_marks
from cairn.seams import Locator, content_hash
from cairn.seams.storage import children, readable_files
from cairn.talk.lines import hashed_key
from cairn.talk.sessions import SessionState, message_id, place_of_session
from cairn.types import Entry, Scope, split_public_id

NAMED = "named"
_LOOKS = 5
_NOWHERE = -(2**31)
_PASSES = 8
_MADE_OF_OTHERS = frozenset({"atomic_fact", "foresight", "agent_case", "agent_skill", "profile"})
# Ids tie things together: they are never rewritten. Where one holds the words, the receipt says so.
_IDS = frozenset({
    "owner_id", "session_id", "sender_ids", "sender_id", "parent_id", "parent_type", "message_ids", "speaker_id",
    "source_session_id", "source_run_id", "source_episode_ids", "source_case_ids", "agent_id", "user_id", "run_id",
    "supersedes", "superseded_by", "deprecated_by", "id", "type", "file_type", "track", "role", "timestamp",
})  # fmt: skip

# In a message only who spoke, and when, is left alone: a call's id is found again by its own mark.
_OF_MESSAGE = frozenset({"sender_id", "role", "timestamp", "type"})
_OF_HISTORY = frozenset({"texts.jsonl", "changes.jsonl"})  # they are purged by time travel itself
_ID_LINE = re.compile(rf"\*\*(?:{'|'.join(sorted(_IDS))})\*\*: ")

WithoutItems = Callable[[str, Scope, Callable[[Mapping[str, Any]], bool]], str | None]
"""A profile's text, whose it is, and which of its items go -> its new text; None where none does."""


@dataclass(slots=True)
class ForgetTally:
    """What was found to go (or to stay), counted and listed."""

    dry: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    taken: dict[tuple[str, str], Affected] = field(default_factory=dict)

    def add(self, what: str, count: int) -> None:
        if count:
            self.counts[what] = self.counts.get(what, 0) + count

    def take(self, found: Affected) -> bool:
        """Note a thing once; whether it is new."""
        key = (found.path, found.id)
        if key in self.taken:
            return False
        self.taken[key] = found
        return True


# ---------------------------------------------------------------- what was said


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a log, as it stands in its line."""

    id: str
    at: Locator
    ordinal: int
    raw: Mapping[str, Any]
    is_in_reach: bool
    users: frozenset[str]

    @property
    def text(self) -> str:
        content = self.raw.get("content")
        if isinstance(content, str):
            return content
        items = content if isinstance(content, list) else []
        return "\n".join(str(item.get("text") or "") for item in items if isinstance(item, dict))


class _Log:
    """The lines of one session log, parsed as far as they can be."""

    def __init__(self, wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str]) -> None:
        self._wanted = wanted
        self.at, self.session_id, self.lines = at, session_id, lines
        self.values = [object_in(line) for line in lines]
        self._firsts = self._ordinals()
        self.users = frozenset(str(m.get("sender_id")) for _, m in self._all() if m.get("role") == "user")

    def _ordinals(self) -> list[int]:
        """The place of each line's first message, as the session itself counts; far below 0 for a line set aside."""
        state = SessionState(self._wanted.space, self.session_id)
        out = []
        for line, value in zip(self.lines, self.values, strict=True):
            before = state.next_ordinal
            state.feed([line])
            count = len(_messages(value))
            out.append(state.next_ordinal - count if state.next_ordinal >= before + count else _NOWHERE)
        return out

    def _all(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for value, first in zip(self.values, self._firsts, strict=True):
            if value is not None and value.get("t") == "add":
                yield from ((n, m) for n, m in enumerate(_messages(value), first) if isinstance(m, dict))

    def lines_read(self) -> Iterator[tuple[str, dict[str, Any] | None, int]]:
        """Each line, what it says, and the ordinal of its first message."""
        return zip(self.lines, self.values, self._firsts, strict=True)

    def said(self) -> Iterator[Said]:
        for ordinal, raw in self._all():
            yield self.message(ordinal, raw)

    def message(self, ordinal: int, raw: Mapping[str, Any]) -> Said:
        mid = message_id(self.session_id, ordinal)
        return Said(mid, self.at, ordinal, raw, self._is_theirs(raw), self.users)

    def _is_theirs(self, raw: Mapping[str, Any]) -> bool:
        """A person's own messages, and what agents and tools said in a session with them; an agent's own."""
        reach = self._wanted.reach
        if reach is None:
            return True
        sender, role = str(raw.get("sender_id")), raw.get("role")
        if reach.track == "user":
            return sender == reach.owner if role == "user" else reach.owner in self.users
        return reach.track == "agent" and role != "user" and sender == reach.owner

    def is_in_cell(self, ordinal: int) -> bool:
        """Whether the message lies in a cell that goes with its episode."""
        for value in self.values:
            if value is not None and value.get("t") == "cut" and value.get("cell") in self._wanted.cells:
                first, upto = value.get("first"), value.get("upto")
                if isinstance(first, int) and isinstance(upto, int) and first <= ordinal < upto:
                    return True
        return False

    def cleaned(self, done: ForgetTally) -> tuple[list[str], int]:
        """The lines without the words, and how many messages that touched."""
        out, touched = [], 0
        for line, value, first in zip(self.lines, self.values, self._firsts, strict=True):
            made, count = self._clean(line, value, first, done)
            out.append(made)
            touched += count
        return out, touched

    def _clean(
        self, line: str, value: dict[str, Any] | None, first: int, done: ForgetTally
    ) -> tuple[str, int]:
        wanted = self._wanted
        if value is not None and isinstance(key := value.get("key"), str) and wanted.found_in(key):
            # Logs of before hold an idempotency key as it was given; its mark does as well.
            value = {name: one for name, one in value.items() if name != "key"} | {
                "key_hash": hashed_key(key)
            }
            line = as_line(value)
            made, count = self._clean(line, value, first, done)
            return made, count + 1
        alone = wanted.reach is None or self.users <= {wanted.reach.owner}
        if value is None:
            return (wanted.masked(line), 1) if alone and wanted.found_in(line) else (line, 0)
        count = 0
        messages: list[Any] = []
        if value.get("t") == "corrected":
            owner = value.get("owner")
            mine = wanted.reach is None or owner == [wanted.reach.track, wanted.reach.owner]
            messages = [cleaned_json(wanted, m, skip=_OF_MESSAGE) if mine else m for m in _messages(value)]
            count = sum(a is not b for a, b in zip(messages, _messages(value), strict=True))
        elif value.get("t") == "add":
            for ordinal, raw in enumerate(_messages(value), first):
                kept = self._without(self.message(ordinal, raw), done) if isinstance(raw, dict) else raw
                count += kept is not raw
                messages.append(kept)
        if not count:
            return line, 0
        return as_line({**value, "messages": messages}), count

    def _without(self, said: Said, done: ForgetTally) -> Any:
        """A message without the words; None where it said nothing else, so that the ordinals of others stay."""
        wanted, raw = self._wanted, said.raw
        if not said.is_in_reach:
            return raw
        whole = self.is_in_cell(said.ordinal) and (
            raw.get("role") == "user" or wanted.reach is None or len(self.users) < 2
        )
        cleaned = None if whole else cleaned_json(wanted, raw, skip=_OF_MESSAGE)
        if cleaned is raw:
            return raw
        if cleaned is not None:
            content = cleaned.get("content")
            is_empty = isinstance(content, str) and not word_set(content.replace(TOMBSTONE, " "))
            cleaned = None if is_empty and not cleaned.get("tool_calls") else cleaned
        lost = wanted.lost.setdefault(said.id, Lost())
        parts = sentences(said.text)
        gone = [s for s in parts if cleaned is None or wanted.found_in(s)]
        lost.gone += gone
        lost.kept = [] if cleaned is None else [s for s in parts if s not in gone and word_set(s)]
        words = shown(" ".join(gone) or said.text or json.dumps(raw, ensure_ascii=False))
        sender = f"{'user' if raw.get('role') == 'user' else 'agent'} {raw.get('sender_id')}"
        why = "told in what goes" if whole else "the same words"
        done.take(Affected("message", said.id, said.at.key, sender, words, why))
        return cleaned


def messages_of(keeper: Keeper, wanted: Wanted) -> Iterator[Said]:
    """Every message of the space's sessions."""
    for at, session_id in _logs(keeper, wanted):
        yield from _Log(wanted, at, session_id, keeper.journals.read(at).lines).said()


def _logs(keeper: Keeper, wanted: Wanted) -> Iterator[tuple[Locator, str]]:
    """Every log of the space that is one, and its session; what else is there, the look through all bytes tells."""
    for at in readable_files(keeper.storage, keeper.root.sessions(wanted.space)):
        place = place_of_session(at)
        if place is None:
            continue
        try:
            keeper.journals.size(at)
        except CairnError:
            continue
        yield at, place[1]


def said_in(wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str]) -> Iterator[Said]:
    """Every message of one log."""
    return _Log(wanted, at, session_id, lines).said()


def without_sender(
    wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str], ordinals: Collection[int], owner: str
) -> list[str]:
    """The lines of a log without some messages, and without their sender among those its cells are told to."""
    log, out = _Log(wanted, at, session_id, lines), []
    theirs = ["user", owner]
    for line, value, first in log.lines_read():
        if value is None:
            out.append(line)
            continue
        if value.get("owner") == theirs:
            continue
        made = dict(value)
        if value.get("t") == "add":
            made["messages"] = [
                None if n in ordinals else raw for n, raw in enumerate(_messages(value), first)
            ]
        for name in ("owners", "for"):
            if isinstance(held := value.get(name), list):
                made[name] = [one for one in held if one not in (theirs, owner)]
        out.append(line if made == value else as_line(made))
    return out


def from_sessions(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    """Messages in reach lose the words; one that said nothing else goes."""
    for at, session in _logs(keeper, wanted):
        touched = 0

        def change(lines: Sequence[str], at: Locator = at, session_id: str = session) -> list[str] | None:
            nonlocal touched
            out, touched = _Log(wanted, at, session_id, lines).cleaned(done)
            return out if touched and not done.dry else None

        if done.dry:
            change(keeper.journals.read(at).lines)
        else:
            keeper.journals.edit(at, change)
        if touched:
            done.add("messages", touched)
            wanted.paths.append(at.key)


def is_their_session(wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str]) -> bool:
    """Whether who is asked about took part in a session."""
    return any(said.is_in_reach for said in _Log(wanted, at, session_id, lines).said())


def is_clean_session(wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str]) -> bool:
    """Whether nothing of a log that is in reach holds the words any more."""
    return _Log(wanted, at, session_id, lines).cleaned(ForgetTally(dry=True))[1] == 0


# ---------------------------------------------------------------- notes


def files_in_reach(keeper: Keeper, wanted: Wanted) -> Iterator[Locator]:
    """Every note and document of the space that may be touched: no logs, no journals, no generated pages."""
    for top in children(keeper.storage, keeper.root.space(wanted.space)):
        if top.name in {"sessions", "journal"}:
            continue
        for at in readable_files(keeper.storage, top):
            if "pages" not in at.parts and wanted.reaches_path(at):
                yield at


def entries_of(keeper: Keeper, wanted: Wanted) -> Iterator[tuple[Locator, Place, Entry]]:
    """Every entry in reach."""
    for at in files_in_reach(keeper, wanted):
        place = place_of(at)
        if place is not None and place.kind.storage == "daily":
            with suppress(CairnError):
                yield from ((at, place, entry) for entry in keeper.notebook.read(at).entries)


def from_notes(keeper: Keeper, wanted: Wanted, done: ForgetTally, items: WithoutItems | None) -> None:
    """Entries go or lose the words, and with them what was made of them, until nothing follows any more."""
    revived = _merged_from(keeper, wanted)
    for _ in range(_PASSES):
        before = (len(wanted.entries), len(wanted.followed))
        for at in files_in_reach(keeper, wanted):
            # A file or an entry that goes between looking and removing is looked at again.
            for _ in range(_LOOKS):
                with suppress(NotFound):
                    _from_file(keeper, wanted, done, at, items)
                    break
        if (len(wanted.entries), len(wanted.followed)) == before:
            break
    for scope, entry in revived:
        if not done.dry and (scope, entry) not in wanted.entries:
            with suppress(NotFound, Invalid):
                corrections.restore(keeper, wanted.space, entry, scope=scope)


def _from_file(
    keeper: Keeper, wanted: Wanted, done: ForgetTally, at: Locator, items: WithoutItems | None
) -> None:
    try:
        text = keeper.storage.read(at)
    except CairnError:
        return  # gone, or not text; the last look names it if its bytes hold the words
    place = place_of(at)
    if place is not None and place.kind.storage == "daily":
        _from_daily(keeper, wanted, done, at, place)
        return
    made = _document(wanted, text, place, items)
    if made is not None and made != text:
        gone = [s for s in sentences(text) if wanted.found_in(s, derived=True)] or [text]
        owner = owner_name(scope_of_path(wanted.space, at))
        found = Affected("document", at.key, at.key, owner, shown(" ".join(gone)), "the same words")
        if done.take(found):
            done.add("documents rewritten", 1)
            wanted.paths.append(at.key)
        if not done.dry:
            keeper.notebook.rewrite(
                at, lambda old: _document(wanted, old, place, items) if old is not None else None
            )


def _document(wanted: Wanted, text: str, place: Place | None, items: WithoutItems | None) -> str | None:
    """A document without the words: values of its head and sentences of its body; None where it has none."""
    kind = place.kind.name if place is not None else ""
    out = text
    if kind == "profile" and items is not None and place is not None:
        made = items(out, place.scope, lambda item: _item_goes(wanted, item))
        out = made if made is not None else out
    derived = kind in _MADE_OF_OTHERS
    if not wanted.found_in(out, derived=derived):
        return out if out != text else None
    note = parse_note(out)
    if not note.head.closed or not note.frontmatter:
        return wanted.without(out, derived=derived)
    values = {key: cleaned_json(wanted, value) for key, value in note.frontmatter.items() if key not in _IDS}
    changed = {key: value for key, value in values.items() if value is not note.frontmatter[key]}
    head = out[note.head.start : note.head.end]
    if changed:
        try:
            head = frontmatter.with_values(head, changed)
        except Invalid:
            head = wanted.masked(head)
    middle = out[note.head.end : note.head.body]
    return f"{out[: note.head.start]}{head}{middle}{wanted.without(note.body, derived=derived)}"


def _item_goes(wanted: Wanted, item: Mapping[str, Any]) -> bool:
    said = [str(item.get(key) or "") for key in ("description", "evidence")]
    ids = item.get("message_ids")
    linked = [str(one) for one in ids] if isinstance(ids, list) else []
    return any(wanted.found_in(one, derived=True) for one in said) or wanted.follows_from_lost(
        linked, said[0]
    )


def _from_daily(keeper: Keeper, wanted: Wanted, done: ForgetTally, at: Locator, place: Place) -> None:
    note = keeper.notebook.read(at)
    remove: list[str] = []
    change: dict[str, Callable[[Entry], Draft]] = {}
    for entry in note.entries:
        why = _why(wanted, place, entry)
        derived = _is_derived(place, entry)
        says = [t for t in entry.sections.values() if wanted.found_in(t, derived=derived)]
        inline = [k for k, t in entry.inline.items() if k not in _IDS and wanted.found_in(t)]
        if not why and says and wanted.nothing_left(entry.sections.values(), derived=derived):
            why = "the same words"
        ended_by = entry.inline.get("superseded_by", "")
        holds_again = place.kind.name == "atomic_fact" and (place.scope, ended_by) in wanted.entries
        if why:
            remove.append(entry.id)
            _follow(wanted, place, entry)
            _take(done, place, at, entry, " ".join(entry.sections.values()), why)
        elif says or inline:
            change[entry.id] = _rewriter(wanted, derived=derived)
            gone = [s for t in says for s in sentences(t) if wanted.found_in(s, derived=derived)]
            words = " ".join(gone or [entry.inline[k] for k in inline])
            if _take(done, place, at, entry, words, "the same words, in part"):
                done.add("entries rewritten", 1)
        elif holds_again:
            # What a forgotten fact had ended is no longer over, as far as anything is known.
            change[entry.id] = lambda one: Draft.of(one, superseded_by=None, until=None)
    for one in remove:
        if (place.scope, one) not in wanted.entries:
            wanted.entries = (*wanted.entries, (place.scope, one))
    done.add(f"{place.kind.name} entries", 0 if done.dry else len(remove))
    if (change or remove) and at.key not in wanted.paths:
        wanted.paths.append(at.key)
    if done.dry:
        return
    if change:
        keeper.notebook.change_many(at, change)
    if remove:
        keeper.notebook.remove(at, remove)
    if wanted.found_in(_without_ids(keeper.storage.read(at), note.entries)):
        # Between the entries, or in a block that cannot be read: the words go all the same.
        keeper.notebook.rewrite(at, lambda old: wanted.masked(old) if old is not None else None)


def _without_ids(text: str, entries: Sequence[Entry]) -> str:
    for value in {entry.inline[key] for entry in entries for key in _IDS & entry.inline.keys()}:
        text = text.replace(value, "") if value else text
    return text


def _take(done: ForgetTally, place: Place, at: Locator, entry: Entry, words: str, why: str) -> bool:
    name = place.scope.public_id(entry.id)
    taken = done.take(Affected(place.kind.name, name, at.key, owner_name(place.scope), shown(words), why))
    if taken and done.dry and not why.endswith("in part"):
        done.add(f"{place.kind.name} entries", 1)
    return taken


def _is_derived(place: Place, entry: Entry) -> bool:
    return place.kind.name in _MADE_OF_OTHERS or entry.inline.get("parent_type") == "cluster"


def _why(wanted: Wanted, place: Place, entry: Entry) -> str:
    """Why an entry goes whole, by name or by what it was made of; "" where it does not."""
    gone = {one for scope, one in wanted.entries if scope == place.scope}
    if entry.id in gone:
        return NAMED
    if not _is_derived(place, entry):
        return ""
    inline = entry.inline
    parent = inline.get("parent_id", "")
    if parent in gone or (inline.get("parent_type") == "memcell" and parent in wanted.cells):
        return f"made from {parent}"
    sources = list_items(inline.get("source_episode_ids", "[]"))
    if sources and gone.issuperset(sources):
        return f"made from {', '.join(sources)[:200]}"
    messages = list_items(inline.get("message_ids", "[]"))
    text = entry.sections.get(place.kind.main_section, "")
    if messages and wanted.follows_from_lost(messages, text):
        return f"made from {', '.join(one for one in messages if one in wanted.lost)[:200]}"
    return ""


def _follow(wanted: Wanted, place: Place, entry: Entry) -> None:
    """What is made of a removed entry has to lose its sentences, too."""
    if _is_derived(place, entry):
        wanted.follow(quoted(entry.sections.get(place.kind.main_section, "")))


def _rewriter(wanted: Wanted, *, derived: bool) -> Callable[[Entry], Draft]:
    """Tags and metadata of what was made of talk go, too: nobody can tell which message they came with."""
    return lambda entry: Draft(
        {
            key: TOMBSTONE if key not in _IDS and wanted.found_in(text) else text
            for key, text in entry.inline.items()
            if key not in {"tags", "metadata"} or "parent_type" not in entry.inline
        },
        {title: wanted.without(text, derived=derived) for title, text in entry.sections.items()},
    )


def cleaned_block(wanted: Wanted, path: str, text: str, items: WithoutItems | None = None) -> str | None:
    """What may stay of a former text of an entry (or of a document) at `path`; None for nothing."""
    at = Locator(path) if path else None
    place = place_of(at) if at is not None else None
    if at is not None and not wanted.reaches_path(at):
        return text
    if place is not None and place.kind.storage != "daily":
        made = _document(wanted, text, place, items)
        return text if made is None else made
    entries = parse_note(text).entries
    derived = any(place is not None and _is_derived(place, entry) for entry in entries)
    if not wanted.found_in(text, derived=derived):
        return text
    sections = [one for entry in entries for one in entry.sections.values()]
    if entries and wanted.nothing_left(sections, derived=derived):
        return None
    lines = text.splitlines(keepends=True)
    return "".join(line if _ID_LINE.match(line) else wanted.without(line, derived=derived) for line in lines)


def _merged_from(keeper: Keeper, wanted: Wanted) -> list[tuple[Scope, str]]:
    """Memories that were merged from what goes, go; the others they were merged from are to come back."""
    revived: list[tuple[Scope, str]] = []
    for line in keeper.journals.read(keeper.root.journal(wanted.space, "consolidations")).lines:
        value = object_in(line) or {}
        if value.get("t") != "merged":
            continue
        with suppress(Invalid, KeyError, TypeError):
            scope = Scope(wanted.space, value["track"], value["owner"])
            originals = [(scope, str(one)) for one in value["originals"]]
            if wanted.reaches(scope) and set(originals) & set(wanted.entries):
                wanted.entries = tuple(dict.fromkeys((*wanted.entries, (scope, str(value["new"])))))
                revived += originals
    return revived


# ---------------------------------------------------------------- journals


def from_journals(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    """Histories, ledgers and logs about what goes, and the words in the lines of those in reach."""
    refs: set[Ref] = {(scope.track, scope.owner, entry) for scope, entry in wanted.entries}
    ids = {scope.public_id(entry) for scope, entry in wanted.entries}
    if not done.dry:
        keeper.access.flush(wanted.space)
    for at in readable_files(keeper.storage, keeper.root.journal(wanted.space)):
        if not at.name.endswith(".jsonl") or at.name in _OF_HISTORY:
            continue
        count = 0

        def change(lines: Sequence[str], name: str = at.name) -> list[str] | None:
            nonlocal count
            count, out = 0, []
            for line in lines:
                kept = journal_line(wanted, refs, ids, name, line)
                count += kept != line
                if kept is not None:
                    out.append(kept)
            if keeper.storage.capabilities.sync:
                out += forgotten_marks(lines, out)
            return out if count and not done.dry else None

        if done.dry:
            change(keeper.journals.read(at).lines)
        else:
            keeper.journals.edit(at, change)
        if count:
            done.add("journal lines", count)
            wanted.paths.append(at.key)
    if not done.dry:
        keeper.memo.clear()


def journal_line(wanted: Wanted, refs: set[Ref], ids: set[str], name: str, line: str) -> str | None:
    """A journal's line without the words, or None where nothing of it should stay."""
    value = object_in(line)
    if value is None:
        return wanted.masked(line) if wanted.reach is None and wanted.found_in(line) else line
    mem = value.get("m")
    if name == "access.jsonl" and value.get("t") in {"hit", "seen"} and isinstance(mem, list):
        rest = [one for one in mem if not isinstance(one, list) or tuple(one) not in refs]
        if len(rest) == len(mem):
            return line
        return json.dumps({**value, "m": rest}, separators=(",", ":")) if rest else None
    if isinstance(mem, list) and all(isinstance(one, str) for one in mem) and tuple(mem) in refs:
        return None
    if name == "consolidations.jsonl" and value.get("t") == "merged":
        named = {
            (value.get("track"), value.get("owner"), one)
            for one in [*value.get("originals", ()), value.get("new")]
        }
        if named & refs:
            return None
    made = value
    if name == "ledger.jsonl" and value.get("memory_id") in ids:
        # The key stays: what was forgotten must not be taken in again from the same source.
        made = {**value, "memory_id": None, "metadata": {"forgotten": True}}
    if _line_in_reach(wanted, value):
        made = cleaned_json(wanted, made, skip=_IDS)
    return line if made is value else as_line(made)


def _line_in_reach(wanted: Wanted, value: Mapping[str, Any]) -> bool:
    """Whether a journal's line may be about who is asked about: all but those that name somebody else."""
    reach = wanted.reach
    if reach is None:
        return True
    mem = value.get("m")
    if isinstance(mem, list) and len(mem) == 3 and all(isinstance(one, str) for one in mem):
        return mem[:2] == [reach.track, reach.owner]
    if "track" in value and "owner" in value:
        return (value["track"], value["owner"]) == (reach.track, reach.owner)
    if isinstance(value.get("agent"), str):
        return (reach.track, reach.owner) == ("agent", value["agent"])
    named = value.get("memory_id")
    owner = split_public_id(named)[0] if isinstance(named, str) else ""
    return not owner or owner == reach.owner


# ---------------------------------------------------------------- pages


def from_pages(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    """Pages that a person edited lose the words; the others are made anew."""
    if done.dry:
        _clean_pages(keeper, wanted, done)
    else:
        pages.refresh(keeper, wanted.space, first=lambda: _clean_pages(keeper, wanted, done))


def _clean_pages(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    base = keeper.root.space(wanted.space)
    for top in (base.child("shared"), base.child("agents")):
        for at in readable_files(keeper.storage, top):
            if "pages" not in at.parts:
                continue
            try:
                text = keeper.storage.read(at)
            except CairnError:
                continue
            is_kept = ".edited-" in at.name or at.name.endswith(".json")
            if not wanted.found_in(text) or (is_kept and not wanted.reaches_path(at)):
                continue
            gone = [s for s in sentences(text) if wanted.found_in(s)]
            owner = owner_name(scope_of_path(wanted.space, at))
            done.take(Affected("page", at.key, at.key, owner, shown(" ".join(gone)), "the same words"))
            done.add("pages", 1)
            wanted.paths.append(at.key)
            if done.dry:
                continue
            with suppress(Conflict, NotFound):
                # A person saves or removes it just now: the next round sees it.
                if is_kept:
                    made = wanted.masked(wanted.without(text))
                    keeper.storage.write(at, made, expect=content_hash(text))
                else:
                    keeper.storage.remove(at)


# ---------------------------------------------------------------- small things


def _messages(value: Mapping[str, Any] | None) -> list[Any]:
    found = value.get("messages") if value is not None else None
    return found if isinstance(found, list) else []
