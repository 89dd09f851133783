"""`sources.json`: which session folders are imported into a repository's history, and how the last time went.

The registry holds paths of one machine, so it stays out of version control. The import ledger
(`history/imports.jsonl`) does not: it remembers every session ever imported, and pruning never touches it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cairn.canonical import compact, pretty, rows_in, stamp
from cairn.errors import Conflict, Invalid, NotFound
from cairn.project.layout import IMPORTS, SOURCES, read_json
from cairn.seams import Journals, Locator, StorageBackend

SOURCE_TYPES = ("claude-local", "codex-local", "jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """One registered folder (or file) of sessions."""

    id: str
    type: str
    path: str
    createdAt: str
    updatedAt: str
    lastSyncedAt: str | None = None
    lastSyncStatus: str = "never"
    lastSyncError: str | None = None
    lastImportedCount: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sources_at(storage: StorageBackend, at: Locator) -> list[Source]:
    """The sources a registry file names. Raises `Invalid` where it is not one."""
    data = read_json(storage, at)
    if data is None:
        return []
    rows = data.get("sources") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise Invalid(f'{at} must hold {{"sources": [...]}}.', path=str(at))
    names = {field.name for field in fields(Source)}
    out = []
    for row in rows:
        if not isinstance(row, dict) or not all(
            isinstance(row.get(key), str) for key in ("id", "type", "path")
        ):
            raise Invalid(f"{at}: a source lacks id, type or path.", path=str(at))
        known = {key: value for key, value in row.items() if key in names}
        known.setdefault("createdAt", "")
        known.setdefault("updatedAt", "")
        out.append(Source(**known))
    return out


class SourceRegistry:
    """The sources of one repository. The caller holds the repository lock while changing them."""

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage

    def all(self) -> list[Source]:
        return sources_at(self._storage, SOURCES)

    def add(self, kind: str, path: Path, now: datetime) -> Source:
        """Register a folder. Adding the same one again is a `Conflict`."""
        if kind not in SOURCE_TYPES:
            raise Invalid(f'"{kind}" is not a source type ({", ".join(SOURCE_TYPES)}).', field="type")
        where = path.expanduser().absolute()
        if not where.exists():
            raise NotFound(f"{where}: nothing there to import from.", path=str(where))
        known = self.all()
        ident = f"{kind}-{hashlib.sha256(str(where).encode()).hexdigest()[:8]}"
        if any(source.id == ident for source in known):
            raise Conflict(f"{where} is registered already as {ident}.", id=ident)
        source = Source(ident, kind, str(where), stamp(now), stamp(now))
        self.save([*known, source])
        return source

    def remove(self, ident: str) -> Source:
        known = self.all()
        found = next((source for source in known if source.id == ident), None)
        if found is None:
            raise NotFound(f"There is no source {ident}. `cairn project sources list` names them.", id=ident)
        self.save([source for source in known if source.id != ident])
        return found

    def record(self, ident: str, now: datetime, imported: int, error: str | None) -> None:
        """Note how an import of a source went."""
        news: dict[str, Any] = {"lastSyncedAt": stamp(now), "updatedAt": stamp(now), "lastSyncError": error}
        news |= {"lastSyncStatus": "failed" if error else "passed", "lastImportedCount": imported}
        self.save([replace(one, **news) if one.id == ident else one for one in self.all()])

    def save(self, sources: Sequence[Source]) -> None:
        self._storage.write(SOURCES, pretty({"sources": [source.to_json() for source in sources]}))


@dataclass(frozen=True, slots=True)
class Imported:
    """What the ledger knows of a session: how many messages were taken, and their running hash."""

    type: str
    item: str
    hash: str
    messages: int


class ImportLedger:
    """Every session ever imported: type, item id, hash and number of the messages taken."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._known: dict[tuple[str, str], list[Imported]] = {}
        for row in rows_in(Imported, journals.read(IMPORTS).lines):
            if isinstance(row.messages, int):
                self._keep(row)

    def _keep(self, row: Imported) -> None:
        rows = self._known.setdefault((row.type, row.item), [])
        if row not in rows:
            rows.append(row)

    def of(self, kind: str, item: str) -> list[Imported]:
        """What was taken of one session so far, most messages last."""
        return sorted(self._known.get((kind, item), []), key=lambda row: row.messages)

    def add(self, row: Imported, at: datetime) -> None:
        """Remember, durably."""
        if row in self._known.get((row.type, row.item), []):
            return
        self._journals.append(IMPORTS, [compact({**asdict(row), "at": stamp(at)})])
        self._keep(row)
