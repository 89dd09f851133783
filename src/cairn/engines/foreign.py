"""Wraps a storage backend of another package and translates its errors and listings into those of the seam.

Whoever writes one knows the seven verbs and Python's own errors. What stands above the seam goes by the error tree
and by sorted lists. This wrapper lies between: absence becomes `NotFound`, text that cannot be stored `Invalid`, and
whatever else the system refused `StorageFailed`, each with the key and without a path of the machine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from cairn.engines.refusals import nothing_at
from cairn.errors import CairnError, Invalid, StorageFailed
from cairn.seams import Capabilities, DerivedMaintenance, Journals, Locator, StorageBackend
from cairn.seams.storage import WrittenJournals


def _passed_on(verb: str) -> Any:
    """A verb that `inner` answers alone."""
    return lambda self, *given, **more: getattr(self._inner, verb)(*given, **more)


def _at_place(verb: str) -> Any:
    """A verb that names a place: `_around` sees it pass."""

    def run(self: WrappedBackend, locator: Locator, *given: Any, **more: Any) -> Any:
        with self._around(verb.removesuffix("_version"), locator):
            return getattr(self._inner, verb)(locator, *given, **more)

    return run


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

    read, read_version, write = map(_at_place, ("read", "read_version", "write"))
    list, exists, info, mkdir = map(_at_place, ("list", "exists", "info", "mkdir"))
    remove, prune = map(_at_place, ("remove", "prune"))
    sweep, locks, watch, turn, tell = map(_passed_on, ("sweep", "locks", "watch", "turn", "tell"))
    people_in = _passed_on("people_in")
    scrub, archive, read_back = map(_passed_on, ("scrub", "archive", "read_back"))
    forgotten_elsewhere = _passed_on("forgotten_elsewhere")
    trouble, keep, close = map(_passed_on, ("trouble", "keep", "close"))


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
            raise nothing_at(locator.key) from error
        except UnicodeError as error:
            raise Invalid(f"{locator}: its text is not valid Unicode ({error}).", key=locator.key) from error
        except OSError as error:
            trouble = error.strerror or type(error).__name__
            raise StorageFailed(f"{locator}: the storage refused ({trouble}).", key=locator.key) from error
