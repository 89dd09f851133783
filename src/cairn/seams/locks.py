"""Units of work and leases, across the threads and processes of one root."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Locks(Protocol):
    """Named locks across threads and processes of one root. A dead holder's lock is free at once."""

    def hold(self, name: str, *, timeout: float = 30.0) -> AbstractContextManager[None]:
        """Hold `name` for a unit of work. Raises `Unavailable` when it cannot be had in time."""
        ...

    def lease(self, name: str) -> AbstractContextManager[bool]:
        """Try to take `name` without waiting: yields True while held, False if another has it."""
        ...
