"""Time that tests set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cairn.errors import Invalid


class FixedClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, at: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)) -> None:
        if at.tzinfo is None:
            raise Invalid("A clock needs an aware time.")
        self._now = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, **amount: float) -> datetime:
        """Move on by `timedelta(**amount)` and return the new time."""
        self._now += timedelta(**amount)
        return self._now
