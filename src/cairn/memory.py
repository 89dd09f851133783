"""`Memory`: one open root, synchronous. Its methods are the operations; closing it closes its parts.

    with cairn.open_blocking("~/.cairn") as memory:
        memory.add("s1", messages)
        memory.flush("s1")
        result = memory.search("where does Alice live", user_id="alice")

A call runs on the caller's thread, from here to the disk and back; it may come from many threads at once. The
awaited twin is in `aio.py`. Engines are picked in `parts.py` and nowhere else.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cairn.config import Settings
from cairn.errors import CairnError, Invalid
from cairn.operations.access import Access
from cairn.operations.browse import Browse
from cairn.operations.keeping import Keeping
from cairn.operations.knowledge import Knowledge
from cairn.operations.memories import Remember, Single
from cairn.operations.moving import Moving
from cairn.operations.persons import Persons
from cairn.operations.recall import Recall
from cairn.operations.repositories import Repositories
from cairn.operations.standing import Standing
from cairn.operations.talk import Talk
from cairn.operations.time import Time
from cairn.operations.upkeep import Upkeep
from cairn.parts import Parts
from cairn.seams import Clock

if TYPE_CHECKING:
    from cairn.retrieval.events import Notice

log = logging.getLogger("cairn")

# Each open memory, and the process that opened it: in a child made by fork also those of its parent.
_open: dict[Memory, int] = {}


class Memory(
    Talk, Remember, Recall, Browse, Knowledge, Time, Repositories, Upkeep, Moving, Standing, Access, Persons
):
    """One open memory root; use it inside a `with` statement.

    Args:
        settings: Everything that can be set; see `cairn.config.load`.
        background: Notice edits, index, run strategies and sweep while open. Without it each call does its
            own indexing, as a lone command line does.
        clock: Time, for tests.
    """

    def __init__(self, settings: Settings, *, background: bool = True, clock: Clock | None = None) -> None:
        self.settings = settings
        self._background = background
        self._clock = clock
        self._opened: Parts | None = None
        self._process = 0
        self._entered = 0
        self._entering = threading.Lock()

    def __reduce__(self) -> Any:
        raise Invalid(
            "A memory belongs to the process that opens it and cannot be copied, pickled or sent to another: "
            "hand on its root (str) and open that there."
        )

    def __enter__(self) -> Memory:
        if any(process != os.getpid() for process in list(_open.values())):
            # A lock that a thread of the parent held at the fork, in SQLite or in Python, is never freed here.
            raise Invalid(
                "A memory was open in the process that this one was forked from, and its threads and locks did not come"
                " along: fork first and open it in each child (gunicorn: in post_fork), or start children by spawn."
            )
        with self._entering:
            if self._opened is None:
                self._open()
            self._entered += 1  # who enters an open memory shares it: it is closed when the last has left
        return self

    def _open(self) -> None:
        parts = Parts(self.settings, clock=self._clock, patient=not self._background)
        self._opened, self._process = parts, os.getpid()
        _open[self] = self._process
        atexit.register(self._left_open)
        try:
            if self._background:
                from cairn import background
                from cairn.operations import forgetting

                # Listed before anything is served: what this process begins itself is not its to take up.
                begun = forgetting.left_behind(parts)
                background.start(parts, finish=lambda: forgetting.finish(self, begun))
        except BaseException:
            self._opened = None
            self._close(parts)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is None:
            return
        if self._process != os.getpid():
            self._opened = None
            return  # a copy of it after a fork: closing is for the process that opened it
        with self._entering:
            self._entered -= 1
            if self._entered or (parts := self._opened) is None:
                return
            self._opened = None
            try:
                if not self._background and parts.is_open("engine"):
                    parts.engine.run_due(seconds=10.0)  # a lone call does its own thinking
            except CairnError as trouble:
                # What was asked for is done and acknowledged; thinking is taken up by the next to open the root.
                log.warning("strategies: left for later: %s", trouble)
            finally:
                self._close(parts)

    def _left_open(self) -> None:
        """Close it where a program ends without: a thread that is cut off inside the model's runtime aborts the process."""
        if self._process != os.getpid():
            return
        with self._entering:
            parts, self._opened = self._opened, None
            if parts is not None:
                self._close(parts)

    def _close(self, parts: Parts) -> None:
        atexit.unregister(self._left_open)
        try:
            parts.close()
        finally:
            _open.pop(self, None)

    @property
    def parts(self) -> Parts:
        """The parts of the open root, for those who build on them."""
        if self._opened is None:
            raise Invalid("This memory is not open: use it inside `with cairn.open_blocking(...) as memory`.")
        if self._process != os.getpid():
            # Its threads and locks stayed with the parent: whoever waits for one of them here waits for ever.
            raise Invalid(
                "This memory was opened before a fork, by another process: fork before opening one, or spawn."
            )
        return self._opened

    def subscribe(self, listener: Callable[[Mapping[str, Any]], object], *kinds: str) -> Callable[[], None]:
        """Call `listener` with every event from now on ("changed", "memory_upserted", ...); returns what ends that.

        It is called on the thread in which something happened and should be quick; what it raises is logged.
        """

        def told(event: Notice) -> None:
            if not kinds or event.kind in kinds:
                listener(event.as_data())

        return self.parts.events.listen(told)

    @functools.cached_property
    def memories(self) -> Memories:
        """Governed memories: list, correct, forget, sweep, consolidate, core memory, skills and pages."""
        return Memories(self)


class Memories(Single, Keeping):
    """`memory.memories`: list, correct, forget, sweep, consolidate, core memory, skills and pages.

    Every call takes `app_id` and `project_id`. Where an id alone is not enough, `scope` ("project", "agent",
    "mission", "user") and `owner` say whose memory is meant. Rows are plain mappings with ADE's column names.
    """

    def __init__(self, memory: Memory) -> None:
        self.settings = memory.settings
        self._memory = memory

    @property
    def parts(self) -> Parts:
        """The parts of the open root."""
        return self._memory.parts

    def on_upserted(self, listener: Callable[[Mapping[str, Any]], object]) -> Callable[[], None]:
        """Call `listener` with the row of each memory that is kept or merged into another; returns what ends that."""
        from cairn.retrieval.events import UPSERTED

        return self._memory.subscribe(lambda event: listener(event["memory"]), UPSERTED)
