"""Made-up talk in real words: drawn by frequency from the reference text that comes with Python itself.

Nothing is downloaded and nothing copied; the words are as frequent as words are, and a model reads them as words.
"""

from __future__ import annotations

import random
import re
from functools import cache


@cache
def vocabulary() -> list[str]:
    """Every word of Python's own help texts, repeated as often as it occurs."""
    from pydoc_data.topics import topics

    return re.findall(r"[a-z]{3,12}", " ".join(topics.values()).lower())


class Talk:
    """Sentences and messages, the same ones for the same seed.

    One talk keeps to its subject, 120 words drawn for it, so that no boundary is found inside it; `wide` has none.
    """

    def __init__(self, seed: int = 1, *, wide: bool = False) -> None:
        self.random = random.Random(seed)
        self.subject = vocabulary() if wide else self.random.choices(vocabulary(), k=120)
        self.at = 1_780_000_000_000

    def words(self, count: int = 12) -> str:
        return " ".join(self.random.choices(self.subject, k=count))

    def mark(self) -> str:
        """A word that nobody else says."""
        return f"zz{self.random.getrandbits(48):012x}"

    def message(self, text: str, who: str = "ann", role: str = "user") -> dict[str, object]:
        self.at += 1000
        return {"sender_id": who, "role": role, "timestamp": self.at, "content": text}
