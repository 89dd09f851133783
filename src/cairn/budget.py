"""Every cache of a process with its limit in bytes, in one list.

A cache that counts items holds as much as its items are long; so these count bytes. `kept` makes one of a function:
what was used least lately goes when the share is full, and what is larger than a sixteenth of it is not kept at all.
Caches of bounded size that live elsewhere name their share here, too, by `share`. The warm vectors and words of the
index are no part of it: they follow `index.memory_rows` and have a limit of their own.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

TOTAL = 64 * 1024 * 1024
SHARES: dict[str, int] = {}
CACHES: dict[str, Memoized] = {}
_EACH = 120  # what a place in a dictionary costs beside its key and its value


def share(name: str, most_bytes: int) -> int:
    """Note the share of a cache; all together they stay below `TOTAL`."""
    SHARES[name] = most_bytes
    return most_bytes


class Memoized:
    """Results by their arguments, at most `most_bytes` of them."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under `key`; made and kept where it is not."""
        with self._guard:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found[0]
        value = make()
        size = weight(key) + weight(value) + _EACH
        if size <= self.most_bytes // 16:
            with self._guard:
                if key not in self._held:
                    self._held[key] = (value, size)
                    self.bytes += size
                while self.bytes > self.most_bytes:
                    self.bytes -= self._held.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        with self._guard:
            self._held.clear()
            self.bytes = 0


def kept(name: str, most_bytes: int) -> Callable[[F], F]:
    """Keep what the function below returned, by its arguments, within a share of `most_bytes`."""

    def make(call: F) -> F:
        cache = CACHES[name] = Memoized(share(name, most_bytes))

        @functools.wraps(call)
        def run(*args: Any, **named: Any) -> Any:
            key = (args, *sorted(named.items())) if named else args
            return cache.get(key, lambda: call(*args, **named))

        run.cache_clear = cache.clear  # type: ignore[attr-defined]
        return cast("F", run)

    return make


def weight(value: Any) -> int:
    """About how many bytes a value takes: texts, numbers, and what holds them."""
    size = sys.getsizeof(value, 64)
    if isinstance(value, tuple | list | frozenset | set):
        return size + sum(map(weight, value))
    return size
