"""Wraps a storage backend of another package and translates its errors and listings into those of the seam.

Whoever writes one knows the seven verbs and Python's own errors. What stands above the seam goes by the error tree
and by sorted lists. This wrapper lies between: absence becomes `NotFound`, text that cannot be stored `Invalid`, and
whatever else the system refused `StorageFailed`, each with the key and without a path of the machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

from cairn.engines.inmemory import nothing_at
from cairn.errors import CairnError, Invalid, StorageFailed
from cairn.seams import Capabilities, DerivedMaintenance, Info, Journals, Locator, Locks, StorageBackend
from cairn.seams.journals import WrittenJournals
from cairn.seams.storage import ReadBack, Watch


class WrappedBackend(StorageBackend):
    """Passes every verb on to `inner`; `_around` sees each that names a place."""

    def __init__(self, inner: StorageBackend) -> None:
        self._inner = inner
        self.extensions, self.is_shared = inner.extensions, inner.is_shared

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    @property
    def conflict_strategy(self) -> str:
        return self._inner.conflict_strategy

    @property
    def derived_maintenance(self) -> DerivedMaintenance | None:
        return self._inner.derived_maintenance or super().derived_maintenance

    @abstractmethod
    def _around(self, verb: str, locator: Locator) -> AbstractContextManager[None]:
        """What stands around a verb that is passed on."""

    def read(self, locator: Locator) -> str:
        with self._around("read", locator):
            return self._inner.read(locator)

    def read_version(self, locator: Locator) -> tuple[str, str]:
        with self._around("read", locator):
            return self._inner.read_version(locator)

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        with self._around("write", locator):
            return self._inner.write(locator, content, expect=expect)

    def list(self, locator: Locator) -> list[Locator]:
        with self._around("list", locator):
            return self._inner.list(locator)

    def exists(self, locator: Locator) -> bool:
        with self._around("exists", locator):
            return self._inner.exists(locator)

    def info(self, locator: Locator) -> Info:
        with self._around("info", locator):
            return self._inner.info(locator)

    def mkdir(self, locator: Locator) -> Locator:
        with self._around("mkdir", locator):
            return self._inner.mkdir(locator)

    def remove(self, locator: Locator) -> None:
        with self._around("remove", locator):
            self._inner.remove(locator)

    def prune(self, locator: Locator) -> int:
        with self._around("prune", locator):
            return self._inner.prune(locator)

    def sweep(self, older_than_seconds: float = 3600.0) -> int:
        return self._inner.sweep(older_than_seconds)

    def locks(self, local: Locks) -> Locks:
        return self._inner.locks(local)

    def watch(self) -> Watch | None:
        return self._inner.watch()

    def turn(self, name: str, seconds: float) -> bool:
        return self._inner.turn(name, seconds)

    def tell(self, keys: Iterable[str]) -> None:
        self._inner.tell(keys)

    def scrub(self) -> bool:
        return self._inner.scrub()

    def archive(self, *only: Locator) -> int:
        return self._inner.archive(*only)

    def read_back(self) -> ReadBack | None:
        return self._inner.read_back()

    def trouble(self) -> str:
        return self._inner.trouble()

    def close(self) -> None:
        self._inner.close()


class ForeignBackend(WrappedBackend):
    """A backend of another package; what comes back is translated."""

    @cached_property
    def journals(self) -> Journals:
        return self._inner.journals if "append" in self.extensions else WrittenJournals(self)

    def list(self, locator: Locator) -> list[Locator]:
        return sorted(super().list(locator))

    @contextmanager
    def _around(self, verb: str, locator: Locator) -> Iterator[None]:  # noqa: ARG002 -- all alike
        try:
            yield
        except CairnError:
            raise
        except FileNotFoundError as error:
            raise nothing_at(locator) from error
        except UnicodeError as error:
            raise Invalid(f"{locator}: its text is not valid Unicode ({error}).", key=locator.key) from error
        except OSError as error:
            trouble = error.strerror or type(error).__name__
            raise StorageFailed(f"{locator}: the storage refused ({trouble}).", key=locator.key) from error
