"""The steps of forgetting, place by place: notes, journals, generated pages; session logs are in `transcripts.py`.

Each step looks and removes in one go under the file's own lock, or only looks (`dry`): what a preview shows is
found by the very code that removes it. Words flow from what was said to episodes and facts, and from these to
profiles and pages; so the steps run in that order, and each leaves in `Wanted` what the next has to follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from cairn.canonical import as_line, object_in
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.governed import corrections, pages
from cairn.governed.access import Ref
from cairn.governed.memories import Keeper
from cairn.governed.transcripts import edited
from cairn.governed.wanted import (
    OF_HISTORY,
    TOMBSTONE,
    Affected,
    ForgetTally,
    Wanted,
    WithoutItems,
    cleaned_json,
    owner_name,
    quoted,
    scope_of_path,
    sentences,
    shown,
)
from cairn.notes import frontmatter
from cairn.notes.format import list_items, parse_note, with_blocks
from cairn.notes.kinds import Place, place_of
from cairn.notes.notebook import Draft
from cairn.notes.unions import forgotten_marks
from cairn.seams import Locator, content_hash
from cairn.seams.storage import children, readable_files
from cairn.types import Entry, Scope, Space, split_public_id

NAMED = "named"
_LOOKS = 5
_PASSES = 8
_MADE_OF_OTHERS = frozenset({"atomic_fact", "foresight", "agent_case", "agent_skill", "profile"})
# Ids tie things together: they are never rewritten. Where one holds the words, the receipt says so.
_IDS = frozenset({
    "owner_id", "session_id", "sender_ids", "sender_id", "parent_id", "parent_type", "message_ids", "speaker_id",
    "source_session_id", "source_run_id", "source_episode_ids", "source_case_ids", "agent_id", "user_id", "run_id",
    "supersedes", "superseded_by", "deprecated_by", "id", "type", "file_type", "track", "role", "timestamp",
})  # fmt: skip

_ID_LINE = re.compile(rf"\*\*(?:{'|'.join(sorted(_IDS))})\*\*: ")


# ---------------------------------------------------------------- notes


def files_in_reach(keeper: Keeper, wanted: Wanted) -> Iterator[Locator]:
    """Every note and document of the space that may be touched: no logs, no journals, no generated pages."""
    for top in children(keeper.storage, keeper.root.space(wanted.space)):
        if top.name in {"sessions", "journal"}:
            continue
        for at in readable_files(keeper.storage, top):
            if "pages" not in at.parts and wanted.reaches_path(at):
                yield at


def entries_of(
    keeper: Keeper,
    wanted: Wanted,
    may: Callable[[str], bool] = bool,
    kinds: Callable[[str], bool] = bool,
) -> Iterator[tuple[Locator, Place, Entry]]:
    """Every entry in reach of which it `may` be wanted, as it stands in its note; of those `kinds` alone."""
    for at in files_in_reach(keeper, wanted):
        place = place_of(at)
        if place is not None and place.kind.storage == "daily" and kinds(place.kind.name):
            with suppress(CairnError):
                note = keeper.notebook.parse(at, with_blocks(keeper.storage.read(at), may))
                yield from ((at, place, entry) for entry in note.entries)


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
                corrections.restore(keeper, keeper.find(wanted.space, entry, scope=scope))


def _from_file(
    keeper: Keeper, wanted: Wanted, done: ForgetTally, at: Locator, items: WithoutItems | None
) -> None:
    try:
        text = keeper.storage.read(at)
    except CairnError:
        return  # gone, or not text; the last look names it if its bytes hold the words
    place = place_of(at)
    if place is not None and place.kind.storage == "daily":
        _from_daily(keeper, wanted, done, at, place, text)
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


def _from_daily(
    keeper: Keeper, wanted: Wanted, done: ForgetTally, at: Locator, place: Place, text: str
) -> None:
    note = keeper.notebook.parse(at, with_blocks(text, wanted.touches(place.scope)))
    remove: list[str] = []
    change: dict[str, Callable[[Entry], Draft]] = {}
    for entry in note.entries:
        why = _why(wanted, place, entry)
        derived = _is_derived(place, entry)
        says = [t for t in entry.sections.values() if wanted.found_in(t, derived=derived)]
        inline = [k for k, t in entry.inline.items() if k not in _IDS and wanted.found_in_layers(t)]
        if not why and says and wanted.nothing_left(entry.sections.values(), derived=derived):
            why = "the same words"
        ended_by = entry.inline.get("superseded_by", "")
        holds_again = place.kind.name == "atomic_fact" and (place.scope, ended_by) in wanted.entries
        if why:
            remove.append(entry.id)
            if derived:  # what is made of it has to lose its sentences, too
                wanted.follow(quoted(entry.sections.get(place.kind.main_section, "")))
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
    if change or remove:
        text = keeper.storage.read(at)
    if wanted.found_in(text) and wanted.found_in(_without_ids(text, keeper.notebook.read(at).entries)):
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


def _rewriter(wanted: Wanted, *, derived: bool) -> Callable[[Entry], Draft]:
    """Tags and metadata of what was made of talk go, too: nobody can tell which message they came with."""
    return lambda entry: Draft(
        {
            key: TOMBSTONE if key not in _IDS and wanted.found_in_layers(text) else text
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
    if not wanted.found_in(text, derived=derived) and not wanted.found_in_layers(text):
        return text
    sections = [one for entry in entries for one in entry.sections.values()]
    if entries and wanted.nothing_left(sections, derived=derived):
        return None
    out = []
    for is_id, lines in groupby(text.splitlines(keepends=True), lambda line: bool(_ID_LINE.match(line))):
        made = "".join(line if is_id else wanted.without_in_line(line, derived=derived) for line in lines)
        out.append(made if is_id else wanted.masked(made))  # words may run over the end of a line
    return "".join(out)


def _merged_from(keeper: Keeper, wanted: Wanted) -> list[tuple[Scope, str]]:
    """Memories that were merged from what goes, go; the others they were merged from are to come back."""
    revived: list[tuple[Scope, str]] = []
    for value in keeper.noted(wanted.space, "consolidations"):
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


def in_journals(
    keeper: Keeper, space: Space, clean: Callable[[str, str], str | None], *, dry: bool
) -> dict[Locator, int]:
    """Take each line of a space's journals, by the name of its journal, through `clean`; how many that touches in which.

    None for a line takes it out; where the root is synced, no copy of the journal brings it back.
    """
    touched = {}
    if not dry:
        keeper.access.flush(space)
    for at in readable_files(keeper.storage, keeper.root.journal(space)):
        if not at.name.endswith(".jsonl") or at.name in OF_HISTORY:
            continue

        def make(lines: Sequence[str], name: str = at.name) -> tuple[list[str], int]:
            kept = [clean(name, line) for line in lines]
            out = [line for line in kept if line is not None]
            if keeper.storage.capabilities.sync:
                out += forgotten_marks(lines, out)
            return out, sum(made != line for made, line in zip(kept, lines, strict=True))

        with suppress(Invalid):  # no file of lines: the last look names it
            if count := edited(keeper, at, make, dry=dry):
                touched[at] = count
    if not dry:
        keeper.memo.clear()
    return touched


def from_journals(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    """Histories, ledgers and logs about what goes, and the words in the lines of those in reach."""
    refs: set[Ref] = {(scope.track, scope.owner, entry) for scope, entry in wanted.entries}
    ids = {scope.public_id(entry) for scope, entry in wanted.entries}
    touched = in_journals(keeper, wanted.space, partial(journal_line, wanted, refs, ids), dry=done.dry)
    done.add("journal lines", sum(touched.values()))
    wanted.paths += [at.key for at in touched]


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
