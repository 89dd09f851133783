"""Remembers a hash of the last text written to each file, so that an edit by hand can be told from our own write.

An edit by hand is known by a text that differs from the last one of ours. It may come before a file was ever
indexed, so the index cannot tell; whoever writes notes can.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

_FILES = 4096  # remembered at a time; a file that fell out counts as changed by another


class OwnTexts:
    """The last known text of each file, as a number. In doubt a text is another's."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()

    def wrote(self, key: str, before: int | None, after: str) -> None:
        """A file was changed by us from the text with hash `before` (None: there was none) to `after`.

        Where the text before was already another's, `after` is, too: it holds what they wrote.
        """
        mark = hash(after)
        with self._guard:
            if before is None or self._hashes.get(key) == before:
                self._keep(key, mark)
            else:
                self._hashes.pop(key, None)

    def followed(self, key: str, mark: int) -> None:
        """All that the text with hash `mark` says was looked at: only what comes after it is new."""
        with self._guard:
            self._keep(key, mark)

    def is_by_hand(self, key: str) -> None:
        """What is written next is a person's word, whoever writes it down."""
        with self._guard:
            self._hashes.pop(key, None)

    def reads(self, key: str, mark: int) -> bool:
        """Whether a file whose text has the hash `mark` reads as we left it."""
        with self._guard:
            return self._hashes.get(key) == mark

    def _keep(self, key: str, mark: int) -> None:
        self._hashes[key] = mark
        self._hashes.move_to_end(key)
        if len(self._hashes) > _FILES:
            self._hashes.popitem(last=False)
