"""Imports sessions: each becomes one `imported_session` event, exactly once.

A session is read line by line: to hash it, for its signals (in the same pass where it is new) and, if wanted, to hand
its messages to capture. A session that has grown gives a second event with only what is new. The order that makes a crash
harmless: capture (idempotent by key), event, ledger; the active log counts as ledger too, so an event without its ledger
line is not imported again.

A file that nobody touched since it was last read is not opened. It goes by a hash of its place, size, inode and both its
times. The second, the change time, is the kernel's: it moves with every write, and no program can set it back, so a file that
was rewritten to the same length and given its old date is another one here. Only what had been left alone for `SETTLED` when it
was looked at is kept: a file that is still being written could change once more within one tick of a coarse clock.
`.cairn/automation/seen.json` is of one machine and may be deleted at any time: the files are then read once more. It holds
hashes and counts, no names and no words, and a repository that brings one along cannot know the hash of anybody's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cairn.canonical import as_line, stamp
from cairn.errors import CairnError, Invalid
from cairn.governed.secrets import redact
from cairn.project import git
from cairn.project.events import Event, EventDraft
from cairn.project.importers import Importer, Session, importer_for
from cairn.project.layout import SEEN, read_json
from cairn.project.signals import Collector, ask
from cairn.project.sources import Imported, ImportLedger, Source
from cairn.seams import StorageBackend, Writer
from cairn.types import Message
from cairn.version import VERSION

SETTLED = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Look:
    """What reading a file gave: "taken" (its messages and their hash), "elsewhere" (by whose measure) or "empty"."""

    result: str
    hash: str = ""
    messages: int = 0
    note: str | None = None


class SeenFiles:
    """The files of one source, as they were when they were last read."""

    def __init__(self, storage: StorageBackend, source: str, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._source = source
        self._now = now
        self._before = self._read().get(source, {})
        self._looks: dict[str, Any] = {}

    def mark(self, file: Path) -> str | None:
        """What `file` goes by as it is now; None where it was written just now. Taken before it is read."""
        found = file.stat()
        if self._now().timestamp() - found.st_ctime < SETTLED.total_seconds():
            return None
        named = (VERSION, file, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        return hashlib.sha256("\0".join(map(str, named)).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def look(self, mark: str | None) -> Look | None:
        """What was found when the file that goes by `mark` was read."""
        try:
            result, digest, messages, note = self._before[mark or ""]
            return Look(str(result), str(digest), int(messages), note if isinstance(note, str) else None)
        except (KeyError, OverflowError, TypeError, ValueError):
            return None

    def keep(self, mark: str | None, look: Look) -> None:
        if mark is not None:
            self._looks[mark] = list(astuple(look))

    def save(self) -> None:
        """Write down what was kept, and nothing of files that are gone. Without it the next import is slower, no more."""
        if self._looks != self._before:
            with suppress(CairnError, OSError):
                self._storage.write(SEEN, as_line({**self._read(), self._source: self._looks}))

    def _read(self) -> dict[str, dict[str, Any]]:
        with suppress(CairnError, OSError):
            if isinstance(held := read_json(self._storage, SEEN), dict):
                return {source: looks for source, looks in held.items() if isinstance(looks, dict)}
        return {}


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
    detail: str | None = None


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
        storage: StorageBackend,
        now: Callable[[], datetime],
        *,
        capture: Capture | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._ledger = ledger
        self._emit = emit
        self._storage = storage
        self._now = now
        self._capture = capture
        self._writer = writer
        self._logged = {(event.externalItemId, event.contentHash) for event in active if event.is_import}
        self._roots = _roots(tree)
        self._remote = git.remote_of(tree)
        told = "\0".join([*map(str, self._roots), self._remote or ""])
        self._here = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()

    def run(self, source: Source, progress: Progress | None = None) -> SourceReport:
        """Import one source. A file that cannot be read fails alone."""
        path = Path(source.path)
        if not path.exists():
            return SourceReport(source.id, error=f"{path} is not there any more")
        importer = importer_for(source.type)
        try:
            files = importer.find(path)
        except OSError as error:
            return SourceReport(source.id, error=f"{path}: {error.strerror or error}")
        outcomes = []
        seen = SeenFiles(self._storage, source.id, self._now)
        for index, file in enumerate(files):
            if progress:
                progress(index, len(files), file.name)
            outcomes.append(self._one(importer, source, file, seen))
        seen.save()
        if progress:
            progress(len(files), len(files), "")
        return SourceReport(source.id, tuple(outcomes))

    def _one(self, importer: Importer, source: Source, file: Path, seen: SeenFiles) -> SessionOutcome:
        session = Session(file, _known_by(importer.item(file)))
        where = str(file)
        try:
            if file.name.endswith(".zst"):
                raise Invalid("compressed sessions cannot be read: unpack the file with `zstd -d`")
            mark = seen.mark(file)
            outcome, look = self._known(source, session, seen.look(mark)) or self._import(
                importer, source, session
            )
        except CairnError as error:
            return SessionOutcome(where, session.item, "failed", detail=str(error))
        except OSError as error:
            return SessionOutcome(where, session.item, "failed", detail=error.strerror or str(error))
        seen.keep(mark, look)
        return outcome

    def _known(
        self, source: Source, session: Session, look: Look | None
    ) -> tuple[SessionOutcome, Look] | None:
        """What becomes of a file as it was when it was last read; None where it has to be read again.

        That its messages were taken is for the ledger to say: another branch may have another one.
        """
        if look is None:
            return None
        taken = Imported(source.type, session.item, look.hash, look.messages)
        if look.result == "taken" and taken in self._ledger.of(source.type, session.item):
            return SessionOutcome(str(session.path), session.item, "known"), look
        if look.result == "empty" or (look.result == "elsewhere" and look.hash == self._here):
            return SessionOutcome(str(session.path), session.item, look.result, detail=look.note), look
        return None

    def _import(self, importer: Importer, source: Source, session: Session) -> tuple[SessionOutcome, Look]:
        item, outcome = session.item, partial(SessionOutcome, str(session.path), session.item)
        before = self._ledger.of(source.type, item)
        reading = self._read(importer, session, before=before)
        if session.lines and session.bad_lines == session.lines:
            raise Invalid("no line of it is JSON")
        note = f"{session.bad_lines} unreadable lines skipped" if session.bad_lines else None
        if session.about.get("subagent") or not self._belongs(source, session):
            return outcome("elsewhere"), Look("elsewhere", self._here)
        if not reading.total:
            return outcome("empty", note), Look("empty", note=note)
        row = Imported(source.type, item, reading.digest.hexdigest(), reading.total)
        look = Look("taken", row.hash, row.messages)
        if row in before or (item, row.hash) in self._logged:
            if row not in before:
                self._ledger.add(row, self._now())
            return outcome("known"), look
        taken = max([0, *(old.messages for old in before if reading.prefixes.get(old.messages) == old.hash)])
        if before:
            reading = self._read(importer, Session(session.path, item), part=(taken, row.messages))
        if self._capture:
            stream = islice(importer.messages(Session(session.path, item)), taken, row.messages)
            while batch := list(islice(stream, CAPTURE_BATCH)):
                self._capture(item, batch)
        self._emit(self._draft(source, session, reading, row.hash))
        self._logged.add((item, row.hash))
        self._ledger.add(row, self._now())
        return outcome("grown" if taken else "imported", note), look

    def _read(
        self,
        importer: Importer,
        session: Session,
        *,
        before: Sequence[Imported] = (),
        part: tuple[int, int | None] = (0, None),
    ) -> _Reading:
        """One pass over the messages in `part`. Where some were taken `before`, they are hashed and nothing else: mostly
        that is all there is to do.
        """
        reading = _Reading()
        cuts = {row.messages for row in before}
        for message in islice(importer.messages(session), *part):
            reading.total += 1
            reading.digest.update(
                f"{message.role}\0{message.timestamp}\0{message.text}\0".encode("utf-8", "replace")
            )
            if cuts:
                if reading.total in cuts:
                    reading.prefixes[reading.total] = reading.digest.hexdigest()
                continue
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
