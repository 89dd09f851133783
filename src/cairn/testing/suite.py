"""What every suite is made of: checks with names, a failure that says which, and test methods from both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class ConformanceFailure(AssertionError):
    """An engine broke a promise of its seam. `check` names the check that found it."""

    def __init__(self, message: str, check: str = "") -> None:
        super().__init__(f"{check}: {message}" if check else message)
        self.check = check


def require(holds: object, message: str) -> None:
    # Not an assert: the suite has to bite under `python -O` too.
    if not holds:
        raise ConformanceFailure(message)


def raises(
    kinds: type[Exception] | tuple[type[Exception], ...], action: Callable[[], object], message: str
) -> None:
    try:
        action()
    except kinds:
        return
    except Exception as error:
        raise ConformanceFailure(f"{message}, not {type(error).__name__}: {error}") from error
    raise ConformanceFailure(message)


def in_threads(work: Callable[[int], None], args: Iterable[int]) -> None:
    troubles: list[BaseException] = []

    def run(arg: int) -> None:
        try:
            work(arg)
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=run, args=(arg,), daemon=True) for arg in args]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    require(not any(thread.is_alive() for thread in threads), "a thread is stuck")
    if troubles:
        raise ConformanceFailure(f"a thread failed: {troubles[0]!r}") from troubles[0]


def run_checks(checks: Mapping[str, Callable[[Any], None]], factory: Callable[[], Any]) -> tuple[str, ...]:
    """Run every check on a fresh engine; raise at the first violation, named; else return the names."""
    for name, check in checks.items():
        try:
            check(factory())
        except ConformanceFailure as failure:
            raise ConformanceFailure(str(failure), name) from failure
        except Exception as error:
            raise ConformanceFailure(f"unexpected {type(error).__name__}: {error}", name) from error
    return tuple(checks)


class Mixin:
    """Turns a suite into test methods that pytest and unittest both find."""

    def __init_subclass__(
        cls, checks: Mapping[str, Callable[[Any], None]] | None = None, make: str = ""
    ) -> None:
        super().__init_subclass__()
        for name, check in (checks or {}).items():

            def test(self: Any, check: Callable[[Any], None] = check) -> None:
                check(getattr(self, make)())

            test.__doc__ = check.__doc__
            test.__name__ = f"test_{name}"
            setattr(cls, test.__name__, test)
