"""The truth of many machines: notes as objects in a bucket, journals as rows in PostgreSQL.

What grows line by line (`*.jsonl`: session logs, journals) is in the database, where an append is one commit; all
else is an object. To whoever reads, lists or scans it is one tree. A copy of each journal that changed goes to the
bucket from time to time (`archive`), so that the bucket alone is a whole root, but for the last minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from cairn.engines.objects import TAG, ObjectBackend, opened_store, written_by_another
from cairn.engines.postgres import Postgres, PostgresJournals, PostgresLocks
from cairn.errors import CairnError, Conflict, Invalid, NotFound, Unavailable
from cairn.seams import Info, Locator, Locks, content_hash
from cairn.seams.storage import Watch

if TYPE_CHECKING:
    from cairn.config import Settings

_LINES = ".jsonl"
_ATTEMPTS = 20
_KEEP_VECTORS_SECONDS = 3600.0
_log = logging.getLogger(__name__)


class ClusterBackend(ObjectBackend):
    """An `ObjectBackend` whose journals are in a database."""

    extensions = frozenset({"expect", "remove", "append"})

    def __init__(self, store: Any, database: Postgres, name: str = "the object store") -> None:
        super().__init__(store, name)
        self.database = database
        self._rows = PostgresJournals(database, self._copy_again)
        self._held: list[PostgresLocks] = []

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Open the bucket of `storage.url` and the database of `storage.database`."""
        store = opened_store(settings.storage)
        made = cls(store, Postgres(settings.storage.database, settings.storage.url), settings.storage.url)
        try:
            made.probe()
            made._take_back_if_lost()
        except BaseException:
            made.close()
            raise
        return made

    def _take_back_if_lost(self) -> None:
        if not self._rows.found(Locator()) and (count := self.take_back()):
            _log.warning(
                "the database holds no journals of this root: %d were read back from their copies in the bucket. "
                "What was added after the last copy, and not yet in an episode, is missing.",
                count,
            )

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
            raise NotFound(f"{locator}: nothing is there.", key=locator.key)
        return data.decode("utf-8", "backslashreplace"), content_hash(data)

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        if not _is_lines(locator):
            super().write(locator, content, expect=expect)
            self.database.tell(locator.key)
            return locator
        try:
            data = content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid(
                f"{locator}: character {error.start} cannot be stored as UTF-8.", key=locator.key
            ) from None

        def check(old: bytes | None) -> None:
            found = "" if old is None else content_hash(old)
            if expect is not None and found != expect:
                raise written_by_another(locator, expect, found)

        self._rows.put(locator, data, check)
        return locator

    def list(self, locator: Locator) -> list[Locator]:
        base = f"{locator.key}/" if locator.key else ""
        found = {at.key for at in super().list(locator) if not _is_lines(at)}
        found |= {base + name for name in self._rows.names(base)}
        return [Locator(key) for key in sorted(found)]

    def exists(self, locator: Locator) -> bool:
        return bool(self._rows.found(locator)) or (not _is_lines(locator) and super().exists(locator))

    def info(self, locator: Locator) -> Info:
        if not _is_lines(locator):
            try:
                return super().info(locator)
            except NotFound:
                if not self._rows.found(locator):
                    raise
                return Info(locator, is_dir=True, size=0, mtime=0.0)
        for key, size, changed in self._rows.found(locator):
            if key == locator.key:
                return Info(locator, is_dir=False, size=size, mtime=changed)
        raise NotFound(f"{locator}: nothing is there.", key=locator.key)

    def remove(self, locator: Locator) -> None:
        if not _is_lines(locator):
            super().remove(locator)
            self.database.tell(locator.key)
            return
        gone = self._rows.drop(locator)
        if self._head(locator.key) is not None:
            super().remove(locator)  # its copy
        elif not gone:
            raise NotFound(f"{locator}: nothing is there.", key=locator.key)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        for key, size, moment in super().scan(locator, passed_over):
            if not key.endswith(_LINES):
                yield key, size, moment
        for key, size, changed in self._rows.found(locator):
            yield key, size, int(changed * 1e9)

    def archive(self) -> int:
        """Copy each journal that changed since its last copy to the bucket; how many were copied."""
        self.database.drop_vectors(_KEEP_VECTORS_SECONDS)
        copies = {key: size for key, size, _ in super().scan() if key.endswith(_LINES)}
        behind = [key for key, size, _ in self._rows.found(Locator()) if copies.get(key) != size]
        return sum(self._copy(Locator(key)) for key in behind)

    def scrub(self) -> bool:
        try:
            self.database.drop_vectors()
        except Unavailable:
            return False
        return True

    def _copy_again(self, locator: Locator) -> None:
        """Bring the copy of a journal up to date, if there is one: what was taken out must not stay in it."""
        if self._head(locator.key) is not None:
            self._copy(locator)

    def _copy(self, locator: Locator) -> bool:
        """Copy a journal to the bucket; whether it is there. The tag is read before the rows, so that of two who
        copy at once the one with the older rows is refused and looks again.
        """
        for _ in range(_ATTEMPTS):
            meta = self._head(locator.key)
            data = self._rows.whole(locator)
            if data is None:
                return False
            tag = "" if meta is None else f"{TAG}{meta['e_tag']}"
            try:
                super().write(locator, data.decode("utf-8", "backslashreplace"), expect=tag)
            except Conflict:
                continue
            return True
        return False

    def take_back(self) -> int:
        """Bring journals of which only the copy is left into the database; how many. After it was lost."""
        known = {key for key, _, _ in self._rows.found(Locator())}
        count = 0
        for key, _, _ in list(super().scan()):
            if key.endswith(_LINES) and key not in known:
                self._rows.put(Locator(key), super().read(Locator(key)).encode("utf-8"), lambda _: None)
                count += 1
        return count

    def locks(self, local: Locks) -> Locks:
        made = PostgresLocks(self.database, local)
        self._held.append(made)
        return made

    def turn(self, name: str, seconds: float) -> bool:
        return self.database.turn(name, seconds)

    def tell(self, keys: Iterable[str]) -> None:
        self.database.tell(*keys)

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


def _is_lines(locator: Locator) -> bool:
    return locator.key.endswith(_LINES)
