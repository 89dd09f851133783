"""A pattern that is compiled when it is first used: a command that asks one question need not wait for those of all others."""

from __future__ import annotations

import re
from functools import cached_property


class Later:
    """The pattern that is `written`, compiled at the first look at `now`."""

    def __init__(self, written: str) -> None:
        self.written = written

    @cached_property
    def now(self) -> re.Pattern[str]:
        return re.compile(self.written)
