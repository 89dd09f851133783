"""Copies a root from one storage to another while the source is in use, and verifies every file.

    what changed since the last round ──> noted in the target's `.cairn-move.jsonl` ──> written there
    ... until a round finds nothing new; then everything is read back and compared

What stands in that list is ours to write over. So a call that was killed is called again and goes on, one after the
servers were stopped brings over what came since, and what somebody else wrote at the target is named and stays. Settings
(`cairn.toml`) belong to a machine and stay where they are.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from cairn.canonical import from_json
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.seams import Locator, StorageBackend, content_hash
from cairn.seams.storage import text_at
from cairn.transfer import LEFT_OUT, MAY_HOLD_KEYS, claims_first

NOTED = Locator(".cairn-move.jsonl")
_ROUNDS = 5
_AT_ONCE = 8
_BATCH = 200


@dataclass(slots=True)
class MoveReport:
    """What a move did. `still` says that the last round found nothing new, `verified` how many files were read back
    from the target and are what was copied.
    """

    files: int = 0
    bytes: int = 0
    copied: int = 0
    removed: int = 0
    verified: int = 0
    still: bool = False
    problems: list[str] = field(default_factory=list)


def move(source: StorageBackend, target: StorageBackend, name: str, to: str) -> MoveReport:
    """Make `target` hold what `source` holds.

    Args:
        source: The root as it is; others may be writing to it.
        target: An empty place, or one that an earlier move of the same root began to fill.
        name: What the source is called; a later move from another one is refused.
        to: What the target is called, for messages.

    Raises:
        Invalid: there is nothing to move.
        Conflict: the target holds what this root did not bring.
    """
    return _Move(source, target, name, to).run()


class _Move:
    def __init__(self, source: StorageBackend, target: StorageBackend, name: str, to: str) -> None:
        self._source, self._target, self._name, self._to = source, target, name, to
        self._noted: dict[str, set[str]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._there: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._done = MoveReport()

    def run(self) -> MoveReport:
        done = self._done
        if not (found := self._stamps()):
            raise Invalid(f"{self._name} holds no memory: there is nothing to move.", source=self._name)
        self._begin()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for _ in range(_ROUNDS):
                if not self._round(found, threads):
                    done.still = True
                    break
                found = self._stamps()
            keys = sorted(self._there)
            read_back = dict(zip(keys, threads.map(self._hash_there, keys), strict=True))
        differ = [key for key in keys if read_back[key] != self._there[key]]
        done.files, done.bytes = len(found), sum(self._sizes.values())
        done.verified = len(keys) - len(differ)
        done.problems += [
            f"{key} is not at {self._to} as it was copied: somebody writes there." for key in differ
        ]
        return done

    def _stamps(self) -> dict[str, tuple[int, int]]:
        """The files that travel, with what tells two versions apart."""
        return {key: (size, moment) for key, size, moment in self._source.scan() if _travels(key)}

    def _begin(self) -> None:
        """See whose the target is: nobody's, or that of an earlier move of this root."""
        lines = [from_json(line) for line in self._target.journals.read(NOTED).lines]
        present = [key for key, _, _ in self._target.scan() if _travels(key)]
        if not lines:
            if present:
                raise Conflict(
                    f"{self._to} holds a memory already ({len(present)} files, {min(present)} among them) that was "
                    "not moved there from here. Choose an empty place.",
                    target=self._to,
                )
            self._target.journals.append(NOTED, [json.dumps({"from": self._name}, ensure_ascii=False)])
            return
        if lines[0].get("from") != self._name:
            raise Conflict(
                f"{self._to} is being filled from {lines[0].get('from')}, not from {self._name}. Choose an empty place.",
                target=self._to,
            )
        for one in lines[1:]:
            for key, version in one.items():
                self._noted.setdefault(key, set()).add(version)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = dict(zip(present, threads.map(self._hash_there, present), strict=True))
        foreign = [key for key, version in found.items() if version not in self._noted.get(key, ())]
        # What this root holds in just that form is no loss, whoever wrote it.
        foreign = [key for key in foreign if found[key] != _hash_of(self._source, key)]
        if foreign:
            raise Conflict(
                f"{self._to} was written to since the move: {min(foreign)} ({len(foreign)} files). It is in use, and "
                "nothing there is written over.",
                target=self._to,
            )
        self._there = {key: version for key, version in found.items() if version}

    def _round(self, stamps: dict[str, tuple[int, int]], threads: ThreadPoolExecutor) -> int:
        """Bring over what changed since the last round; how many files."""
        fresh = [key for key, stamp in stamps.items() if self._seen.get(key) != stamp]
        fresh.sort(key=lambda key: claims_first(Locator(key)))
        gone = sorted(self._there.keys() - stamps.keys())
        copied = 0
        for start in range(0, len(fresh), _BATCH):
            batch = fresh[start : start + _BATCH]
            texts = zip(batch, threads.map(self._read, batch), strict=True)
            new = {key: text for key, text in texts if text is not None and not self._has(key, text)}
            if new:
                note = {key: content_hash(text) for key, text in new.items()}
                self._target.journals.append(NOTED, [json.dumps(note, ensure_ascii=False)])
                copied += sum(threads.map(self._write, new, new.values()))
            self._seen |= {key: stamps[key] for key in batch}
        for key in gone:
            self._target.remove(Locator(key))
            del self._there[key]
            self._sizes.pop(key, None)
        self._done.copied += copied
        self._done.removed += len(gone)
        return copied + len(gone)

    def _has(self, key: str, text: str) -> bool:
        return self._there.get(key) == content_hash(text)

    def _read(self, key: str) -> str | None:
        try:
            text = self._source.read(Locator(key))
        except NotFound:
            return None  # it went after it was listed; the next round sees that
        except CairnError as error:
            self._problem(str(error))
            return None
        self._sizes[key] = len(text.encode("utf-8"))
        return text

    def _write(self, key: str, text: str) -> int:
        try:
            self._target.write(Locator(key), text, expect=self._there.get(key, ""))
        except CairnError as error:
            self._problem(str(error))
            return 0
        self._there[key] = content_hash(text)
        return 1

    def _hash_there(self, key: str) -> str:
        return _hash_of(self._target, key)

    def _problem(self, words: str) -> None:
        if words not in self._done.problems:
            self._done.problems.append(words)


def _hash_of(storage: StorageBackend, key: str) -> str:
    """The hash of a file; "" where there is none."""
    text = text_at(storage, Locator(key))
    return "" if text is None else content_hash(text)


def _travels(key: str) -> bool:
    first, below, _ = key.partition("/")
    if first in LEFT_OUT or key == NOTED.key:
        return False
    return bool(below) or not MAY_HOLD_KEYS.search(first)
