"""The lock suite."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from cairn.errors import Invalid, Unavailable
from cairn.seams import Locks
from cairn.testing.suite import Mixin, in_threads, raises, require


def check_lock_excludes(locks: Locks) -> None:
    """Only one thread at a time is inside a name."""
    pause = threading.Event()
    inside: list[int] = []
    most: list[int] = []

    def work(who: int) -> None:
        for _ in range(20):
            with locks.hold("note"):
                inside.append(who)
                pause.wait(0.0002)
                most.append(len(inside))
                inside.remove(who)

    in_threads(work, range(6))
    require(len(most) == 120 and max(most) == 1, "two threads were inside one lock")


def check_lock_times_out(locks: Locks) -> None:
    """A lock that stays taken raises Unavailable in time; another name is free."""
    trouble: list[Exception | None] = []

    def second() -> None:
        with locks.hold("other", timeout=5):
            pass
        try:
            with locks.hold("note", timeout=0.05):
                trouble.append(None)
        except Exception as error:
            trouble.append(error)

    with locks.hold("note"):
        in_threads(lambda _: second(), [0])
    require(
        trouble and isinstance(trouble[0], Unavailable), f"a taken lock must raise Unavailable, got {trouble}"
    )
    in_threads(lambda _: second(), [0])
    require(trouble[1] is None, "a lock is free after its block")


def check_lock_freed_by_error(locks: Locks) -> None:
    """An error inside the block frees the lock and goes on its way."""

    def fail() -> None:
        with locks.hold("note"):
            raise KeyError("inside")

    raises(KeyError, fail, "an error inside the block must come out")
    with locks.hold("note", timeout=1):
        pass


def check_lock_does_not_nest(locks: Locks) -> None:
    """A thread that asks for what it holds gets an error, not a deadlock."""

    def again() -> None:
        with locks.hold("note"), locks.hold("note", timeout=2):
            pass

    raises(Invalid, again, "asking twice must raise Invalid")
    with locks.hold("note", timeout=1):
        pass


def check_lease(locks: Locks) -> None:
    """A lease is had or not, at once; it is free after its block."""
    seen: list[bool] = []

    def other(_: int) -> None:
        with locks.lease("indexer") as mine:
            seen.append(mine)

    with locks.lease("indexer") as mine:
        require(mine is True, "a free lease must be had")
        in_threads(other, [0])
    in_threads(other, [0])
    require(seen == [False, True], f"a lease is refused while held and had afterwards, got {seen}")


LOCK_CHECKS: Mapping[str, Callable[[Locks], None]] = {
    "excludes": check_lock_excludes,
    "times_out": check_lock_times_out,
    "freed_by_error": check_lock_freed_by_error,
    "does_not_nest": check_lock_does_not_nest,
    "lease": check_lease,
}


class LockConformance(Mixin, checks=LOCK_CHECKS, make="make_locks"):
    """Derive from this, give `make_locks`, and every lock check is a test."""

    def make_locks(self) -> Locks:
        raise NotImplementedError
