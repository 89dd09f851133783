"""Late interaction: each word piece of the question looks for its best match among the word pieces of a row.

One vector for a whole text is a blur of all it says; the vectors of its pieces still know each word in its place.
They take 64 bytes each and stay on disk, so only the best candidates of the other legs are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from cairn.seams.models import TokenVectors

# A larger product is shared out among the library's threads, which spin while they wait for each other: eight times
# the processor time for the same numbers.
_AT_ONCE = 512


def late_matches(question: TokenVectors, rows: Sequence[np.ndarray | None]) -> np.ndarray:
    """For each row and each piece of the question the best match of that piece in the row, 0 where there is none."""
    import numpy as np

    out = np.zeros((len(rows), len(question.vectors)), np.float32)
    have = [n for n, row in enumerate(rows) if row is not None and len(row)]
    if not have or not len(question.vectors):
        return out
    said = [rows[n] for n in have]
    flat = np.concatenate(said).astype(np.float32)  # type: ignore[arg-type]  # only rows that are there
    starts = np.cumsum([0, *(len(row) for row in said[:-1])])  # type: ignore[arg-type]
    asked = question.vectors.astype(np.float32).T
    near = np.empty((len(flat), asked.shape[1]), np.float32)
    for at in range(0, len(flat), _AT_ONCE):
        np.matmul(flat[at : at + _AT_ONCE], asked, out=near[at : at + _AT_ONCE])
    out[have] = np.maximum.reduceat(near, starts, axis=0) / (127.0 * 127.0)
    return out


def weighed(question: TokenVectors, matches: np.ndarray) -> np.ndarray:
    """For each row the mean of its matches, rare pieces of the question counting more."""
    import numpy as np

    return np.asarray(matches @ (question.weights / question.weights.sum()), np.float32)
