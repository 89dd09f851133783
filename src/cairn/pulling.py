"""Copies the notes of a bucket into a folder (`pull`) and the edits back (`push`).

    .cairn-pull.json of the folder: the hash of each note as it was brought (its base)

    only there changed ──> pull brings it         both changed ──> a conflict: theirs is put beside as NAME.theirs,
    only here changed  ──> push writes it, if               and is the new base; push takes the note once that
                           it is still the base there       copy was taken away

Nothing is written over that has not been seen: not here, and not there, where every write carries its base.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from cairn.canonical import from_json
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.notes.kinds import place_of
from cairn.seams import Locator, StorageBackend, content_hash
from cairn.seams.storage import text_at
from cairn.transfer import truth_files

_BASES = Locator(".cairn-pull.json")
_THEIRS = ".theirs"


@dataclass(slots=True)
class Pulled:
    """What a pull did, by path. `yours` are edits that `push` would take; a conflict is (path, what differs)."""

    brought: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    yours: list[str] = field(default_factory=list)
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    same: int = 0


@dataclass(slots=True)
class Pushed:
    """What a push did, by path. `missing` are gone from the folder and stay there, unless deleting was asked for."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class PulledFolder:
    """The notes of one root, or of a place in it, as files that a person edits.

    Args:
        here: The folder.
        there: The root.
        name: What the root is called: a folder belongs to one.
    """

    def __init__(self, here: StorageBackend, there: StorageBackend, name: str) -> None:
        self._here, self._there, self._name = here, there, name
        self._bases, self._under = self._read_bases()

    def pull(self, under: str | None = None) -> Pulled:
        """Bring what is new there. Raises `Conflict` for a folder with other files in it, or of another root."""
        if under is not None:
            self._under = Locator(under).key
        done = Pulled()
        theirs, unread = self._texts(self._there, done.problems)
        try:
            for key in sorted({*theirs, *filter(self._is_meant, self._bases)} - unread):
                self._settle(key, theirs.get(key), done)
        finally:
            self._write_bases()
        return done

    def _settle(self, key: str, theirs: str | None, done: Pulled) -> None:
        mine, base, new = text_at(self._here, Locator(key)), self._bases.get(key, ""), _hash(theirs)
        if _hash(mine) == new:
            done.same += mine is not None
        elif new == base:
            if mine is not None:  # edited here
                done.yours.append(key)
                return
            self._here.write(Locator(key), theirs or "", expect="")
            done.brought.append(key)
        elif mine is not None and _hash(mine) != base:
            done.conflicts.append(self._conflict(key, mine, theirs))
            return
        elif theirs is None:
            self._here.remove(Locator(key))
            done.removed.append(key)
        else:
            self._here.write(Locator(key), theirs, expect=_hash(mine))
            done.brought.append(key)
        self._know(key, new)

    def push(
        self, write: Callable[[Locator, str, str], object], hold: Callable[[str], AbstractContextManager[None]],
        drop: Callable[[Locator], object], *, delete: bool = False,
    ) -> Pushed:  # fmt: skip
        """Take the edits back.

        Args:
            write: Writes a note there (place, text, the version it must still have) and tells of it.
            hold: Keeps other writers from a note while it is compared and removed.
            drop: Removes a note there and tells of it.
            delete: Remove there what was removed here, unless it changed meanwhile.
        """
        if not self._bases and not self._here.exists(_BASES):
            raise Invalid("Nothing was pulled into this folder: `cairn pull` first.", field="folder")
        done = Pushed()
        mine, unread = self._texts(self._here, done.problems)
        try:
            for key, text in sorted(mine.items()):
                if _hash(text) != self._bases.get(key, ""):
                    self._push_one(key, text, write, done)
            for key in sorted({*filter(self._is_meant, self._bases)} - mine.keys() - unread):
                if delete:
                    with hold(key):
                        self._drop_one(key, drop, done)
                else:
                    done.missing.append(key)
        finally:
            self._write_bases()
        return done

    def _push_one(
        self, key: str, text: str, write: Callable[[Locator, str, str], object], done: Pushed
    ) -> None:
        if place_of(Locator(key)) is None:
            done.problems.append(
                f"{key} is no place of a note: move it to where a note can be, or out of the folder."
            )
            return
        if self._here.exists(Locator(key + _THEIRS)):
            done.problems.append(
                f"{key}: take what you want from {key}{_THEIRS}, delete that copy, and push again."
            )
            return
        try:
            write(Locator(key), text, self._bases.get(key, ""))
        except Conflict:
            theirs = text_at(self._there, Locator(key))
            if theirs != text:
                done.conflicts.append(self._conflict(key, text, theirs))
                return
        except CairnError as error:
            done.problems.append(str(error))
            return
        self._know(key, _hash(text))
        done.written.append(key)

    def _drop_one(self, key: str, drop: Callable[[Locator], object], done: Pushed) -> None:
        theirs = text_at(self._there, Locator(key))
        if theirs is not None and _hash(theirs) != self._bases[key]:
            self._here.write(Locator(key), theirs, expect="")
            self._know(key, _hash(theirs))
            done.problems.append(
                f"{key} changed there since it was pulled: it is in the folder again and not removed."
            )
            return
        if theirs is not None:
            drop(Locator(key))
        self._know(key, "")
        done.removed.append(key)

    def _conflict(self, key: str, mine: str, theirs: str | None) -> tuple[str, str]:
        """Put theirs beside ours, as the base of what the person makes of both; what differs."""
        if theirs is not None:
            self._here.write(Locator(key + _THEIRS), theirs)
        self._know(key, _hash(theirs))
        lines = difflib.unified_diff(
            (theirs or "").splitlines(keepends=True), mine.splitlines(keepends=True), "theirs", "yours"
        )
        return key, "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def _know(self, key: str, version: str) -> None:
        if version:
            self._bases[key] = version
        else:
            self._bases.pop(key, None)

    def _texts(self, storage: StorageBackend, problems: list[str]) -> tuple[dict[str, str], set[str]]:
        """The notes by path, and those that cannot be read, which are left alone and named."""
        found: dict[str, str] = {}
        unread: set[str] = set()
        for key in (at.key for at in truth_files(storage) if self._is_meant(at.key)):
            try:
                found[key] = storage.read(Locator(key))
            except NotFound:
                continue  # it went after it was listed
            except CairnError as error:
                unread.add(key)
                problems.append(str(error))
        return found, unread

    def _is_meant(self, key: str) -> bool:
        return key.endswith(".md") and (not self._under or f"{key}/".startswith(f"{self._under}/"))

    def _read_bases(self) -> tuple[dict[str, str], str]:
        try:
            found = from_json(self._here.read(_BASES))
            name, files, under = str(found["from"]), dict(found["files"]), str(found["under"])
        except NotFound:
            if others := self._here.list(Locator()):
                raise Conflict(
                    f"The folder is not empty ({others[0].name}) and nothing was pulled into it: choose an empty one.",
                    field="folder",
                ) from None
            return {}, ""
        except (ValueError, KeyError, TypeError):
            raise Invalid(
                f"{_BASES} of the folder cannot be read: pull into a new folder, and carry your edits over.",
                field="folder",
            ) from None
        if name != self._name:
            raise Conflict(
                f"The folder belongs to {name}, not to {self._name}. Choose another.", field="folder"
            )
        return files, under

    def _write_bases(self) -> None:
        told = {"from": self._name, "under": self._under, "files": dict(sorted(self._bases.items()))}
        self._here.write(_BASES, json.dumps(told, ensure_ascii=False, indent=1) + "\n")


def _hash(text: str | None) -> str:
    return "" if text is None else content_hash(text)
