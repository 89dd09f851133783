"""Bringing sessions in: each becomes one `imported_session` event, once for ever.

A session is read twice at most, always line by line: first to hash it and find its signals, then (if wanted)
to hand its messages to capture. A session that has grown since gives a second event with only what is new. The
order that makes a crash harmless: capture (idempotent by key), event, ledger; the active log counts as ledger
too, so an event without its ledger line is not imported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from cairn.canonical import stamp
from cairn.errors import CairnError, Invalid
from cairn.governed.secrets import redact
from cairn.project import git
from cairn.project.events import Event, EventDraft
from cairn.project.importers import Importer, Session, importer_for
from cairn.project.signals import Collector, ask
from cairn.project.sources import Imported, ImportLedger, Source
from cairn.seams import Writer
from cairn.types import Message

Capture = Callable[[str, Sequence[Message]], object]
Progress = Callable[[int, int, str], None]
CAPTURE_BATCH = 200
_TALK_CHARS = 60_000


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """What became of one session file: "imported", "grown", "known", "elsewhere", "empty" or "failed"."""

    path: str
    item: str
    result: str
    messages: int = 0
    detail: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The import of one source."""

    source: str
    outcomes: tuple[SessionOutcome, ...] = ()
    error: str | None = None

    def count(self, *results: str) -> int:
        return sum(outcome.result in results for outcome in self.outcomes)

    @property
    def imported(self) -> int:
        return self.count("imported", "grown")

    @property
    def first_error(self) -> str | None:
        failed = next((f"{o.path}: {o.detail}" for o in self.outcomes if o.result == "failed"), None)
        return self.error or failed

    def to_json(self) -> dict[str, Any]:
        counts = {
            result: self.count(result)
            for result in ("imported", "grown", "known", "elsewhere", "empty", "failed")
        }
        failures = [{"path": o.path, "error": o.detail} for o in self.outcomes if o.result == "failed"]
        notes = [
            {"path": o.path, "note": o.detail} for o in self.outcomes if o.result != "failed" and o.detail
        ]
        return {"source": self.source, **counts, "failures": failures, "notes": notes, "error": self.error}


@dataclass(slots=True)
class _Reading:
    collector: Collector = field(default_factory=Collector)
    digest: Any = field(default_factory=hashlib.sha256)
    total: int = 0
    prefixes: dict[int, str] = field(default_factory=dict)
    last_at: int = 0
    talk: str = ""


class SessionImport:
    """Imports the sessions of sources into a log. The caller appends: `emit` takes a draft, returns the event."""

    def __init__(
        self,
        tree: Path,
        ledger: ImportLedger,
        active: Sequence[Event],
        emit: Callable[[EventDraft], Event],
        remember: Callable[[Imported], None],
        *,
        capture: Capture | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._ledger = ledger
        self._emit = emit
        self._remember = remember
        self._capture = capture
        self._writer = writer
        self._logged = {(event.externalItemId, event.contentHash) for event in active if event.is_import}
        self._roots = _roots(tree)
        self._remote = git.remote_of(tree)

    def run(self, source: Source, progress: Progress | None = None) -> SourceReport:
        """Import one source. A file that cannot be read fails alone."""
        path = Path(source.path)
        if not path.exists():
            return SourceReport(source.id, error=f"{path} is not there any more")
        importer = importer_for(source.type)
        try:
            files = list(importer.find(path))
        except OSError as error:
            return SourceReport(source.id, error=f"{path}: {error.strerror or error}")
        outcomes = []
        for index, file in enumerate(files):
            if progress:
                progress(index, len(files), file.name)
            outcomes.append(self._one(importer, source, file))
        if progress:
            progress(len(files), len(files), "")
        return SourceReport(source.id, tuple(outcomes))

    def _one(self, importer: Importer, source: Source, file: Path) -> SessionOutcome:
        item = _known_by(importer.item(file))
        where = str(file)
        try:
            if file.name.endswith(".zst"):
                raise Invalid("compressed sessions cannot be read: unpack the file with `zstd -d`")
            return self._import(importer, source, file, item, where)
        except CairnError as error:
            return SessionOutcome(where, item, "failed", detail=str(error))
        except OSError as error:
            return SessionOutcome(where, item, "failed", detail=error.strerror or str(error))

    def _import(
        self, importer: Importer, source: Source, file: Path, item: str, where: str
    ) -> SessionOutcome:
        session = Session(file, item)
        before = self._ledger.of(source.type, item)
        reading = self._read(importer, session, {row.messages for row in before})
        if session.lines and session.bad_lines == session.lines:
            raise Invalid("no line of it is JSON")
        note = f"{session.bad_lines} unreadable lines skipped" if session.bad_lines else None
        if session.about.get("subagent") or not self._belongs(source, session):
            return SessionOutcome(where, item, "elsewhere")
        if not reading.total:
            return SessionOutcome(where, item, "empty", detail=note)
        whole = reading.digest.hexdigest()
        if any(row.messages == reading.total and row.hash == whole for row in before):
            return SessionOutcome(where, item, "known", reading.total)
        taken = max(
            (row.messages for row in before if reading.prefixes.get(row.messages) == row.hash), default=0
        )
        if taken:
            reading = self._read(importer, Session(file, item), set(), skip=taken)
        row = Imported(source.type, item, whole, taken + reading.total)
        if (item, whole) in self._logged:
            self._remember(row)
            return SessionOutcome(where, item, "known", reading.total)
        if self._capture:
            self._hand_over(importer, Session(file, item), taken)
        event = self._emit(self._draft(source, session, reading, whole))
        self._logged.add((item, whole))
        self._remember(row)
        return SessionOutcome(where, item, "grown" if taken else "imported", reading.total, note, event.id)

    def _read(self, importer: Importer, session: Session, cuts: set[int], skip: int = 0) -> _Reading:
        reading = _Reading()
        for message in islice(importer.messages(session), skip, None):
            reading.total += 1
            reading.digest.update(
                f"{message.role}\0{message.timestamp}\0{message.text}\0".encode("utf-8", "replace")
            )
            if reading.total in cuts:
                reading.prefixes[reading.total] = reading.digest.hexdigest()
            reading.collector.add(message.role, message.text)
            reading.last_at = max(reading.last_at, message.timestamp)
            if self._writer is not None and len(reading.talk) < _TALK_CHARS:
                reading.talk += f"{message.role}: {message.text[:4000]}\n\n"
        return reading

    def _belongs(self, source: Source, session: Session) -> bool:
        """Whether a session was about this repository; where it does not say, its source decides."""
        if (
            source.type == "jsonl"
            or session.path.parent == Path(source.path)
            or session.path == Path(source.path)
        ):
            return True
        remote = session.about.get("remote")
        if remote and self._remote and _same_remote(remote, self._remote):
            return True
        cwd = session.about.get("cwd")
        if cwd is None:
            return remote is None
        here = Path(cwd)
        return any(here == root or root in here.parents for root in self._roots)

    def _draft(self, source: Source, session: Session, reading: _Reading, whole: str) -> EventDraft:
        told = ask(self._writer, reading.talk) if self._writer is not None else None
        title = session.about.get("customTitle") or session.about.get("aiTitle")
        summary, signals = told or (
            reading.collector.summary(f"Session {session.item}"),
            reading.collector.signals(),
        )
        return EventDraft(
            kind="imported_session",
            summary=title or summary,
            signals=signals,
            sourceRef=f"{source.type}:{session.item}",
            sourceId=source.id,
            externalItemId=session.item,
            contentHash=whole,
            occurredAt=stamp(datetime.fromtimestamp(reading.last_at / 1000, UTC))
            if reading.last_at
            else None,
        )

    def _hand_over(self, importer: Importer, session: Session, skip: int) -> None:
        assert self._capture is not None
        stream: Iterator[Message] = islice(importer.messages(session), skip, None)
        while batch := list(islice(stream, CAPTURE_BATCH)):
            self._capture(session.item, batch)


def _known_by(item: str) -> str:
    """What a session goes by: its own id, or where that holds a credential, one of the same use without it."""
    found = redact(item)
    if not found.findings:
        return item
    return f"{found.text} {hashlib.sha256(item.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _roots(tree: Path) -> list[Path]:
    """Every work tree of the repository, so that a session in one of them counts for all."""
    listed = git.git(tree, "worktree", "list", "--porcelain") or ""
    found = [
        Path(line.removeprefix("worktree ")) for line in listed.splitlines() if line.startswith("worktree ")
    ]
    return list(dict.fromkeys([tree, tree.resolve(), *found]))


def _same_remote(one: str, other: str) -> bool:
    def bare(url: str) -> str:
        tail = url.rpartition("@")[2].rpartition("://")[2].replace(":", "/")
        return tail.removesuffix("/").removesuffix(".git").lower()

    return bare(one) == bare(other)
