"""Storage for many machines: notes are objects in a bucket, journals are rows in PostgreSQL.

What grows line by line (`*.jsonl`: session logs, journals) is in the database, where an append is one commit; all
else is an object. To whoever reads, lists or scans it is one tree. A copy of each journal that changed goes to the
bucket from time to time, and that of a session's log before its episode (`archive`), so that the bucket alone is a whole
root, but for the talk of the last minutes. The rows of a journal that was silent for long leave the database: it is read
from its copy then.

Each round of copying has a number, in the database and in the bucket. A database whose number is smaller was lost, or
brought back from an older backup: before anything is copied over them, the copies are read back (`take_back`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from cairn.canonical import from_json
from cairn.engines.objects import ARCHIVED, ObjectBackend, opened_store
from cairn.engines.postgres import Postgres, PostgresJournals, PostgresLocks
from cairn.engines.refusals import check_expected, encoded, nothing_at
from cairn.errors import CairnError, Conflict, NotFound, StorageFailed, Unavailable
from cairn.seams import Info, Locator, Locks, content_hash
from cairn.seams.storage import Forgotten, ReadBack, Watch, hashed

if TYPE_CHECKING:
    from cairn.config import Settings

_LINES = ".jsonl"
_ATTEMPTS = 20
_KEEP_VECTORS_SECONDS = 3600.0
_NEXT_ROUND = """
INSERT INTO cairn_archives AS a VALUES (%(root)s, 1) ON CONFLICT (root) DO UPDATE SET number = a.number + 1
RETURNING number, clock_timestamp()
"""
_READ_BACK = """
INSERT INTO cairn_archives VALUES (%(root)s, %(number)s, %(told)s)
ON CONFLICT (root) DO UPDATE SET number = excluded.number, read_back = excluded.read_back RETURNING true
"""
_FORGOT = """
INSERT INTO cairn_forgotten VALUES (%(root)s, %(salt)s, %(writer)s, clock_timestamp(), %(hashes)s::text[]) RETURNING true
"""
# A commit may become visible after a later one: what was told in the last moment is taken at the next look.
_FORGOTTEN = """
SELECT salt, at::text, hashes FROM cairn_forgotten WHERE root = %(root)s AND writer <> %(writer)s
AND at > %(since)s::timestamptz AND at < clock_timestamp() - interval '10 seconds' ORDER BY at
"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The last round of copying: its number, and when it began."""

    number: int = 0
    begun: str = ""


class ClusterBackend(ObjectBackend):
    """An `ObjectBackend` whose journals are in a database."""

    extensions = frozenset({"expect", "remove", "append"})

    def __init__(
        self, store: Any, database: Postgres, name: str = "the object store", *, keep_days: float = 0.0
    ) -> None:
        super().__init__(store, name)
        self.database = database
        self._keep_days = keep_days
        self._rows = PostgresJournals(database, self._copy_again, self._copied)
        self._held: list[PostgresLocks] = []

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Open the bucket of `storage.url` and the database of `storage.database`."""
        store = opened_store(settings.storage)
        made = cls(
            store,
            Postgres(settings.storage.database, settings.storage.url),
            settings.storage.url,
            keep_days=settings.storage.keep_days,
        )
        try:
            made.probe()
            made.read_back()
        except BaseException:
            made.close()
            raise
        return made

    @property
    def journals(self) -> PostgresJournals:
        return self._rows

    def read(self, locator: Locator) -> str:
        return self.read_version(locator)[0] if _is_lines(locator) else super().read(locator)

    def read_version(self, locator: Locator) -> tuple[str, str]:
        if not _is_lines(locator):
            return super().read_version(locator)
        data = self._rows.whole(locator)
        if data is None:
            raise nothing_at(locator.key)
        return data.decode("utf-8", "backslashreplace"), content_hash(data)

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        if not _is_lines(locator):
            super().write(locator, content, expect=expect)
            self.database.tell(locator.key)
            return locator
        data = encoded(locator.key, content)
        self._rows.put(locator, data, partial(check_expected, locator.key, expect))
        return locator

    def list(self, locator: Locator) -> list[Locator]:
        base = f"{locator.key}/" if locator.key else ""
        found = {at.key for at in super().list(locator) if not _is_lines(at)}
        found |= {base + name for name in self._rows.names(base)}
        return [Locator(key) for key in sorted(found)]

    def exists(self, locator: Locator) -> bool:
        if _is_lines(locator):
            return self._rows.looked_at(locator) is not None
        return bool(self._rows.found(locator)) or super().exists(locator)

    def info(self, locator: Locator) -> Info:
        if not _is_lines(locator):
            try:
                return super().info(locator)
            except NotFound:
                if not self._rows.found(locator):
                    raise
                return Info(locator, is_dir=True, size=0, mtime=0.0)
        if (found := self._rows.looked_at(locator)) is None:
            raise nothing_at(locator.key)
        return Info(locator, is_dir=False, size=found[0], mtime=found[1])

    def remove(self, locator: Locator) -> None:
        if not _is_lines(locator):
            super().remove(locator)
            self.database.tell(locator.key)
            return
        gone = self._rows.drop(locator)
        if self._head(locator.key) is not None:
            super().remove(locator)  # its copy
        elif not gone:
            raise nothing_at(locator.key)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        for key, size, moment in super().scan(locator, passed_over):
            if not key.endswith(_LINES):
                yield key, size, moment
        yield from self.scan_lines(locator)

    def scan_lines(
        self,
        locator: Locator,
        passed_over: Callable[[Locator, CairnError], object] | None = None,  # noqa: ARG002 -- rows can be read
    ) -> Iterator[tuple[str, int, int]]:
        for key, size, changed in self._rows.found(locator):
            yield key, size, int(changed * 1e9)

    def archive(self, *only: Locator) -> int:
        """Copy each journal that changed since its last copy to the bucket, and let go of the rows of silent ones.

        With `only`, copy these alone. Returns how many were copied.
        """
        if only:
            return sum(self._copy(at, wary=True) for at in only)
        self.read_back()  # never copy an older database over what is newer
        self.database.drop_vectors(_KEEP_VECTORS_SECONDS)
        self.database.drop_news()
        [[number, begun]] = self.database.ask(_NEXT_ROUND)
        copies = self._copies()
        behind = [key for key, size, _ in self._rows.found(Locator()) if copies.get(key) != size]
        count = sum(self._copy(Locator(key)) for key in behind)
        self._put(ARCHIVED, json.dumps(asdict(_Mark(number, begun.isoformat()))).encode())
        if self._keep_days:
            for key in self._rows.silent(self._keep_days):
                self._rows.let_go(Locator(key), self._bytes(key) or b"")
        return count

    def _copies(self) -> dict[str, int]:
        """The copies of journals in the bucket, with their sizes."""
        return {key: size for key, size, _ in super().scan() if key.endswith(_LINES)}

    def prune(self, locator: Locator) -> int:
        return 0 if self._rows.found(locator) else super().prune(locator)

    def scrub(self, gone: Sequence[str] = ()) -> bool:
        salt = uuid.uuid4().hex
        try:
            self.database.drop_vectors()
            self.database.ask(_FORGOT, salt=salt, hashes=[hashed(salt, one) for one in gone])
        except Unavailable:
            return False
        return True

    def forgotten_elsewhere(self, since: str) -> Forgotten | None:
        rows = self.database.ask(_FORGOTTEN, since=since or "-infinity")
        hashes = tuple((salt, one) for salt, _, told in rows for one in told)
        return Forgotten(rows[-1][1], hashes) if rows else None

    def _copy_again(self, locator: Locator) -> None:
        """Bring the copy of a journal up to date, if there is one: what was taken out must not stay in it."""
        if self._head(locator.key) is not None:
            self._copy(locator)

    def _copy(self, locator: Locator, *, wary: bool = False) -> bool:
        """Copy a journal to the bucket; whether it is there. The tag is read before the rows, so that of two who
        copy at once the one with the older rows is refused and looks again.

        A copy that is longer belongs to a database that was newer, or to a journal that was rewritten: `wary`, the
        former is looked into first.
        """
        for _ in range(_ATTEMPTS):
            meta = self._head(locator.key)
            data = self._rows.whole(locator)
            if data is None:
                return False
            if wary and meta is not None and meta["size"] > len(data):
                self.read_back()
                wary = False
                continue
            try:
                self._put(locator.key, data, "create" if meta is None else {"e_tag": meta["e_tag"]})
            except Conflict:
                if self._bytes(locator.key) != data:
                    continue
            return True
        return False

    def _put(self, key: str, data: bytes, mode: Any = "overwrite") -> None:
        import obstore

        with self._told(key):
            obstore.put(self._store, key, data, mode=mode, use_multipart=False)

    def _copied(self, at: Locator, start: int, end: int) -> bytes:
        """Bytes of a journal that have left the database."""
        import obstore

        data = b""
        with suppress(NotFound), self._told(at.key):
            data = bytes(obstore.get_range(self._store, at.key, start=start, end=end))
        if len(data) != end - start:
            raise StorageFailed(
                f"{at}: its first {end} bytes left the database, and its object in {self._name} has fewer: bring that "
                "object back from the bucket's versions or a backup.",
                key=at.key,
            )
        return data

    def read_back(self) -> ReadBack:
        mark = self._mark()
        if (found := self._known_rounds(mark)) is not None:
            return found
        with self.database.alone("read back"):
            if (found := self._known_rounds(mark)) is not None:
                return found
            brought = self._take_back()
            done = ReadBack(mark.begun, datetime.now(UTC).isoformat(timespec="seconds"), brought)
            told = json.dumps(asdict(done)) if brought else ""
            self.database.ask(_READ_BACK, number=mark.number, told=told)
        if brought:
            _log.warning(
                "the database was lost, or is older than the bucket: %d journals were read back from their copies. "
                "`cairn restore database` says what is missing.",
                len(brought),
            )
        return done

    def _mark(self) -> _Mark:
        """What the bucket says of the last round of copying; nothing where it says nothing that can be read."""
        data = self._bytes(ARCHIVED)
        try:
            found = from_json(data or b"{}")
            return _Mark(int(found.get("number", 0)), str(found.get("begun", "")))
        except (ValueError, TypeError, AttributeError):
            _log.warning(
                "%s/%s cannot be read; the next round of copying writes it anew", self._name, ARCHIVED
            )
            return _Mark()

    def _known_rounds(self, mark: _Mark) -> ReadBack | None:
        """What was read back so far; None where the database does not know of all rounds of copying."""
        rows = self.database.ask("SELECT number, read_back FROM cairn_archives WHERE root = %(root)s")
        if not rows or rows[0][0] < mark.number:
            return None
        told = from_json(rows[0][1] or "{}")
        return ReadBack(**told | {"journals": tuple(told["journals"])}) if told else ReadBack(mark.begun)

    def _take_back(self) -> tuple[str, ...]:
        """Bring what copies of journals have and the database has not into it; which journals that were."""
        written = {key: changed for key, _, changed in self._rows.found(Locator())}
        brought = []
        for key, _, copied in list(super().scan()):
            if key.endswith(_LINES):
                data = self._bytes(key) or b""
                since = written.get(key, 0.0) > copied / 1e9
                if self._rows.mend(Locator(key), partial(_with_copy, data, since)):
                    brought.append(key)
        return tuple(sorted(brought))

    def locks(self, local: Locks) -> Locks:
        made = PostgresLocks(self.database, local)
        self._held.append(made)
        return made

    def turn(self, name: str, seconds: float) -> bool:
        return self.database.turn(name, seconds)

    def tell(self, keys: Iterable[str]) -> None:
        self.database.tell(*keys)

    def learn_people(self, people_in: Callable[[Locator, Sequence[str]], Collection[str] | None]) -> None:
        self._rows.people_in = people_in

    def people_in(self, keys: Collection[str]) -> Mapping[str, Collection[str]]:
        return self._rows.people([key for key in keys if key.endswith(_LINES)])

    def watch(self) -> Watch | None:
        return self.database.watch

    def trouble(self) -> str:
        if self.database.outage.words:
            return "PostgreSQL does not answer: what is said is not taken in"
        return super().trouble()

    def close(self) -> None:
        for one in self._held:
            one.close()
        self.database.close()


def _with_copy(copy: bytes, since: bool, old: bytes) -> bytes | None:
    """A journal with what its copy has; None where it has all of it. `since`: it was written to after it was copied."""
    if old.startswith(copy):
        return None
    if not since or copy.startswith(old):
        return copy
    known = set(old.splitlines(keepends=True))
    return old + b"".join(line for line in copy.splitlines(keepends=True) if line not in known)


def _is_lines(locator: Locator) -> bool:
    return locator.key.endswith(_LINES)
