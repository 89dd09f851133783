"""Books the tokens of each model call in a journal, and enforces the daily cap."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from cairn.canonical import objects_in
from cairn.errors import Unavailable
from cairn.seams import Clock, Journals, Locator

LEDGER = Locator("default_app/default_project/journal/tokens.jsonl")


class Spending:
    """The token ledger of a root: one line per answered call, and the sum of the current UTC day.

    Lines of other processes count too; they are read when the ledger has grown.
    """

    def __init__(self, journals: Journals, clock: Clock, daily_cap: int) -> None:
        self._journals = journals
        self._clock = clock
        self._cap = daily_cap
        self._offset = 0
        self._days: dict[str, int] = {}
        self._guard = threading.Lock()

    def check(self, expected: int, purpose: str) -> None:
        """Raise `Unavailable` if `expected` more tokens would pass the day's cap."""
        spent = self.today()
        if spent + expected > self._cap:
            raise Unavailable(
                f"The daily cap of {self._cap} tokens leaves no room for {purpose}: {spent} are spent, about "
                f"{expected} more are needed. It opens again at 00:00 UTC; [llm] daily_token_cap sets it.",
                setting="llm.daily_token_cap",
                spent=spent,
            )

    def record(
        self, purpose: str, model: str, prompt: int, completion: int, outcome: str, *, estimated: bool = False
    ) -> None:
        """Add what one call cost."""
        line = {"at": self._clock.now().isoformat(timespec="seconds"), "purpose": purpose, "model": model}
        figures = {"prompt_tokens": prompt, "completion_tokens": completion, "outcome": outcome}
        self._journals.append(
            LEDGER, [json.dumps({**line, **figures, **({"estimated": True} if estimated else {})})]
        )

    def today(self) -> int:
        """Tokens spent since 00:00 UTC."""
        today = self._clock.now().date().isoformat()
        with self._guard:
            if self._journals.size(LEDGER) != self._offset:
                tail = self._journals.read(LEDGER, self._offset)
                self._offset = tail.end
                for entry in objects_in(tail.lines):
                    self._count(entry)
            return self._days.get(today, 0)

    def _count(self, entry: Mapping[str, Any]) -> None:
        try:
            day = str(entry["at"])[:10]
            spent = int(entry["prompt_tokens"]) + int(entry["completion_tokens"])
        except (ValueError, TypeError, KeyError):
            return
        self._days[day] = self._days.get(day, 0) + max(spent, 0)
