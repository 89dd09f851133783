"""Conflict copies: what a sync program leaves when two machines wrote one note, found and merged without loss.

    episode-2026-03-02.md                                             the note
    episode-2026-03-02 (Ann's conflicted copy 2026-03-03).md          Dropbox
    episode-2026-03-02 2.md                                           iCloud
    episode-2026-03-02-ANNS-LAPTOP.md                                 OneDrive
    episode-2026-03-02.sync-conflict-20260303-101500-ABCDEFG.md       Syncthing
    episode-2026-03-02 (1).md                                         Google Drive
    episode-2026-03-02 (SFConflict ann@example.org 2026-03-03-10-15-00).md   Seafile
    episode-2026-03-02 (conflicted copy 2026-03-03 101500).md         Nextcloud, ownCloud
    episode-2026-03-02_conflict-20260303-101500.md                    ownCloud of old
    episode-2026-03-02_laptop_May-20-1015-2026_Conflict.md            Synology Drive
    episode-2026-03-02.Conflict.md                                    Resilio
    episode-2026-03-02 [conflicted].md                                pCloud
    episode-2026-03-02.md.conflict1                                   rclone
    episode-2026-03-02 (# Name clash 2026-03-03 #).md                 Proton Drive
    episode-2026-03-02 (Ann Smith).md                                 Box
    episode-2026-03-02 (Kopie in Konflikt von Ann 2026-03-03).md      Dropbox, in the language of its user
    episode-2026-03-02 - Copy.md                                      a copy by hand

Session logs and journals (`*.jsonl`) get copies under the same names. Theirs are united line by line, by
`cairn.talk.merging` and `cairn.notes.unions`. A copy of a daily note is merged entry by entry: the union by id. Where one id has two texts both stay, the one
from the copy under a new id with `conflict_of` naming the old. What cannot be merged (a person's text between
entries, other frontmatter, damaged entries, documents) is left in the copy and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cairn.errors import Invalid, NotFound
from cairn.notes import frontmatter
from cairn.notes.format import EntryId, Note, markers, spliced
from cairn.notes.kinds import Place, place_of
from cairn.notes.notebook import Notebook
from cairn.seams import Locator, StorageBackend
from cairn.types import Entry

MARK = "conflict_of"
IsKnown = Callable[[Entry, Note], bool]

_DROPBOX = re.compile(r"(?P<stem>.+?) \([^()]*conflicted copy[^()]*\)(?: \(\d{1,2}\))?", re.IGNORECASE)
_SEAFILE = re.compile(r"(?P<stem>.+?) \(SFConflict [^()]*\)")
_SYNCTHING = re.compile(r"(?P<stem>.+)\.sync-conflict-\d{8}-\d{6}(?:-[A-Za-z2-7]{7})?")
# Names that are believed where taking the addition away leaves the name of a note or a log.
_SPOKEN = r"conflict|conflit|konflikt|clash|конфликт|冲突|衝突|競合|충돌"
_LIKELY: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "Synology",
        re.compile(r"(?P<stem>.+)_[^_]+_[A-Z][a-z]{2}-\d{1,2}-\d{4}-\d{4}_Conflict(?: \(\d{1,2}\))?"),
    ),
    ("ownCloud", re.compile(r"(?P<stem>.+?)[._-]conflict(?:ed)?\d{0,3}(?:[._-][\w.-]*)?", re.IGNORECASE)),
    (
        "a sync program",
        re.compile(
            rf"(?P<stem>.+?) ?[(\[][^()\[\]]*(?:{_SPOKEN})[^()\[\]]*[)\]](?: \(\d{{1,2}}\))?", re.IGNORECASE
        ),
    ),
    ("Google Drive", re.compile(r"(?P<stem>.+) \(\d{1,2}\)")),
    ("Box", re.compile(r"(?P<stem>.+) \([^()]{1,80}\)")),
    ("iCloud", re.compile(r"(?P<stem>.+) (?:[2-9]|[1-9]\d)")),
    ("a copy", re.compile(r"(?P<stem>.+?)(?: - Copy| copy)(?: \(?\d{1,2}\)?)?", re.IGNORECASE)),
)
_STAMPED = re.compile(r"[._](?:sync-)?conflict-\d{8}-\d{6}")  # no session is called so
_RCLONE = re.compile(r"(?P<stem>.+)\.(?P<ending>md|jsonl)\.(?:conflict|path)\d{1,3}")
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
_LOUD_MACHINE = re.compile(r"(?=.*[A-Z])[A-Z0-9][A-Z0-9_-]{2,62}", re.ASCII)

_LOG_FOLDERS = {"sessions": "session", "journal": "journal"}
_LOG_NAME = re.compile(r"[a-z0-9_.@+=%-]+\.jsonl", re.ASCII)

_UNREADABLE = frozenset({"unterminated-entry", "stray-close", "mismatched-close", "doubled-entry"})
_OWN_KEYS = frozenset({"entry_count", "last_appended_at"})


@dataclass(frozen=True, slots=True)
class ConflictCopy:
    """A file that a sync program made beside a note. `place` is None where the original is no note."""

    locator: Locator
    original: Locator
    program: str
    place: Place | None

    @property
    def log(self) -> str:
        """Which sort of log this is a copy of: "session" or "journal"; "" for anything else."""
        return _log_kind(self.original)

    @property
    def is_daily(self) -> bool:
        return self.place is not None and self.place.kind.storage == "daily"


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge did.

    `added` are ids the note did not have; `doubled` pairs an id that had two texts with the new id of the
    other one; `same` counts entries that were there already. `leftovers` says what only the copy holds: then
    the copy stays (`removed` False) for a person to look at.
    """

    copy: ConflictCopy
    added: tuple[str, ...] = ()
    doubled: tuple[tuple[str, str], ...] = ()
    same: int = 0
    leftovers: tuple[str, ...] = ()
    removed: bool = False
    lsn: int = 0


def conflict_copies(storage: StorageBackend) -> Iterator[ConflictCopy]:
    """Every conflict copy of a root, by name; files of the system's own folders are passed over."""
    for top in [top for top in storage.list(Locator()) if top.name[0] != "."]:
        for key in sorted(key for key, _, _ in storage.scan(top)):
            found = conflict_copy(Locator(key))
            if found is not None and (_is_certain(found) or storage.exists(found.original)):
                yield found


def conflict_copy(locator: Locator) -> ConflictCopy | None:
    """What a name says: the copy of which note, made by which program; None for an ordinary name.

    The wordy names of Dropbox and Syncthing are believed for any file. The short ones are ordinary names in
    other places (`plan 2.md`, `user-guide.md`), so they count only where taking the addition away leaves the
    name of a note: a daily note, or a document and an addition that looks like a machine's.
    """
    if place_of(locator) is not None or (_log_kind(locator) and not _STAMPED.search(locator.name)):
        return None
    stem, dot, ending = locator.name.rpartition(".")
    if after := _RCLONE.fullmatch(locator.name):
        stem, ending = f"{after['stem']}.conflict", after["ending"]
    if not stem:
        return None
    for program, pattern in (("Dropbox", _DROPBOX), ("Seafile", _SEAFILE), ("Syncthing", _SYNCTHING)):
        if match := pattern.fullmatch(stem):
            original = locator.parent.child(f"{match['stem']}{dot}{ending}")
            return ConflictCopy(locator, original, program, place_of(original))
    for program, pattern in _LIKELY:
        if match := pattern.fullmatch(stem):
            original = locator.parent.child(f"{match['stem']}{dot}{ending}")
            if (place := place_of(original)) is not None or _log_kind(original):
                return ConflictCopy(locator, original, program, place)
    return _onedrive(locator, stem, f"{dot}{ending}")


def _onedrive(locator: Locator, stem: str, ending: str) -> ConflictCopy | None:
    cut = len(stem)
    while (cut := stem.rfind("-", 0, cut)) > 0:
        original = locator.parent.child(stem[:cut] + ending)
        place = place_of(original)
        if place is not None:
            machine = _MACHINE if place.kind.storage == "daily" else _LOUD_MACHINE
            if machine.fullmatch(stem[cut + 1 :]):
                return ConflictCopy(locator, original, "OneDrive", place)
        elif _log_kind(original) and _MACHINE.fullmatch(stem[cut + 1 :]):
            return ConflictCopy(locator, original, "OneDrive", None)
    return None


def _log_kind(locator: Locator) -> str:
    """Which sort of log has its place there ("session", "journal"), if any; no name of one has capitals or blanks."""
    parts = locator.parts
    if len(parts) < 4 or not _LOG_NAME.fullmatch(parts[-1]):
        return ""
    return _LOG_FOLDERS.get(parts[2], "")


def _is_certain(copy: ConflictCopy) -> bool:
    """A wordy name, or the name of a daily note and more: a copy even if its original is gone."""
    return copy.is_daily or bool(copy.log) or copy.program in {"Dropbox", "Seafile", "Syncthing"}


@dataclass(slots=True)
class _Merging:
    """The text of a note while entries of a copy are added to it."""

    text: str
    added: list[str] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    same: int = 0
    leftovers: list[str] = field(default_factory=list)


def merge_conflict_copy(
    notebook: Notebook, storage: StorageBackend, copy: ConflictCopy, is_known: IsKnown | None = None
) -> Merge:
    """Bring what the copy of a daily note holds into the note, then remove the copy if nothing else is in it.

    Safe to repeat: an entry that a broken-off merge already brought over is known by its text. `is_known` may name
    further entries of the copy that say nothing the note does not say.

    Raises:
        Invalid: the copy's text cannot be read (not UTF-8); both files stay as they are.
    """
    if copy.place is None or not copy.is_daily:
        return Merge(copy, leftovers=("not a daily note: compare it with the original by hand",))
    place, merging = copy.place, _Merging("")
    try:
        seen = storage.read(copy.locator)
    except NotFound:
        return Merge(copy, removed=True)

    def edit(text: str | None) -> str | None:
        nonlocal merging
        merging = merged(place, text, seen, is_known)
        return merging.text

    lsn = notebook.rewrite(copy.original, edit)
    removed = not merging.leftovers and _remove_if_unchanged(storage, copy.locator, seen)
    return Merge(
        copy,
        tuple(merging.added),
        tuple(merging.doubled),
        merging.same,
        tuple(merging.leftovers),
        removed=removed,
        lsn=lsn,
    )


def merged(place: Place, original: str | None, copy: str, is_known: IsKnown | None = None) -> _Merging:
    """The original with the copy's entries brought in, and what happened; pure.

    Where there is no original any more, the copy becomes it.
    """
    if original is None:
        ids = [entry.id for entry in place.kind.parse(copy).entries]
        return _Merging(copy, added=ids)
    ours, theirs = place.kind.parse(original), place.kind.parse(copy)
    out = _Merging(original, leftovers=list(_leftovers(ours, theirs)))
    known = {_identity(entry) for entry in ours.entries}
    taken = {entry_id for _, _, entry_id in markers(original)}
    counts = {frontmatter.entry_count(one.frontmatter) for one in (ours, theirs)}
    highest = max(_sequences(ours, place) | _sequences(theirs, place) | counts)
    newline = "\r\n" if original.lstrip("\ufeff").startswith("---\r\n") else "\n"
    blocks = []
    for entry in theirs.entries:
        block = _ended(theirs.text[entry.start : entry.end], newline)
        if _identity(entry) in known or (is_known is not None and is_known(entry, ours)):
            out.same += 1
        elif entry.id not in taken:
            blocks.append(block)
            out.added.append(entry.id)
            taken.add(entry.id)
            known.add(_identity(entry))
        else:
            highest += 1
            new_id = str(EntryId(place.kind.prefix, place.day, highest))
            blocks.append(_renamed(block, entry, new_id, newline))
            out.doubled.append((entry.id, new_id))
            known.add(_identity(entry))
    if blocks:
        out.text = _counted(_ended(original, newline), highest) + "".join(blocks)
    return out


def _identity(entry: Entry) -> tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """What an entry says, under the id it was born with: equal on both sides whoever merged first."""
    inline = {key: value for key, value in entry.inline.items() if key != MARK}
    return (
        entry.inline.get(MARK, entry.id),
        tuple(sorted(inline.items())),
        tuple(sorted(entry.sections.items())),
    )


def _leftovers(ours: Note, theirs: Note) -> Iterator[str]:
    """What the copy holds beside whole entries and the original does not."""
    damaged = [problem for problem in theirs.problems if problem.code in _UNREADABLE]
    if damaged:
        yield f"line {damaged[0].line}: {damaged[0].message}"
    if any(p.code.startswith("frontmatter") and p.code != "frontmatter-missing" for p in theirs.problems):
        if theirs.text[theirs.head.start : theirs.head.end] != ours.text[ours.head.start : ours.head.end]:
            yield "frontmatter that cannot be read"
    else:
        other = [
            key
            for key, value in theirs.frontmatter.items()
            if key not in _OWN_KEYS and ours.frontmatter.get(key) != value
        ]
        if other:
            yield f"other frontmatter: {', '.join(other)}"
    if set(_loose_lines(theirs)) - set(_loose_lines(ours)):
        yield "text between entries"
    if any(problem.code.startswith("doubled-") for problem in theirs.problems):
        yield "entries with doubled fields or sections"


def _loose_lines(note: Note) -> Iterator[str]:
    outside = spliced(note, {entry.id: "" for entry in note.entries})[note.head.body :]
    return (line.strip() for line in outside.splitlines() if line.strip())


def _sequences(note: Note, place: Place) -> set[int]:
    found = {0}
    for _, _, entry_id in markers(note.text):
        try:
            parsed = EntryId.parse(entry_id)
        except Invalid:
            continue
        if (parsed.prefix, parsed.day) == (place.kind.prefix, place.day):
            found.add(parsed.sequence)
    return found


def _counted(text: str, count: int) -> str:
    head = frontmatter.find_head(text)
    if not head.fenced or not head.closed:
        return text
    try:
        return frontmatter.in_head(text, {"entry_count": count}, head)
    except Invalid:
        return text


def _renamed(block: str, entry: Entry, new_id: str, newline: str) -> str:
    """The block of `entry` under another id, every byte of its text kept, and marked with the id it was born with."""
    lines = block.splitlines(keepends=True)
    for position in (0, -1):
        lines[position] = lines[position].replace(entry.id, new_id, 1)
    at = 1
    if len(lines) > 2 and lines[1].strip() == f"## {entry.id}":
        lines[1] = lines[1].replace(entry.id, new_id, 1)
        at = 2
    if MARK in entry.inline:
        return "".join(lines)
    rest = lines[at:]
    while len(rest) > 1 and not rest[0].strip():
        rest = rest[1:]
    gap = [] if rest[0].startswith("**") or len(rest) == 1 else [newline]
    mark = [newline, f"**{MARK}**: {entry.id}{newline}", *gap]
    return "".join(lines[:at] + mark + rest)


def _ended(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


def _remove_if_unchanged(storage: StorageBackend, locator: Locator, seen: str) -> bool:
    try:
        if storage.read(locator) != seen:
            return False
        storage.remove(locator)
    except NotFound:
        return True
    except Invalid:
        return False
    return True
