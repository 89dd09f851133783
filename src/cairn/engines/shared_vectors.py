"""An embedder for many machines: one machine claims and embeds a text, the others read its vector from the
database.

Every machine has an index of its own, and making vectors is by far the dearest part of it (and costs money with a service).
So a batch of texts is claimed in the database a few at a time, each with a lease and a number that grows with its claims:
several machines with the same batch share it, one that dies leaves its texts to the others when the lease lapses, and one
that comes late is not listened to. The database is an exchange, not a store: what was made is dropped after an hour. Without it
each machine makes its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cairn.engines.postgres import Postgres
from cairn.errors import CairnError
from cairn.index.corpus import embed_key
from cairn.seams import Embedder
from cairn.seams.models import TokenVectors

if TYPE_CHECKING:
    import numpy as np

    _Made = dict[bytes, tuple[np.ndarray, TokenVectors | None]]
    _Make = Callable[[Sequence[str]], tuple[np.ndarray, list[TokenVectors]]]

LEASE_SECONDS = 10.0
_AT_ONCE = 32
_NAP_SECONDS = 0.05
_CLAIM = """
INSERT INTO cairn_vectors AS v (root, model, key, holder, until)
SELECT %(root)s, %(model)s, key, %(writer)s, clock_timestamp() + %(lease)s * interval '1 second'
FROM (SELECT o.key FROM unnest(%(keys)s::bytea[]) AS o(key) WHERE NOT EXISTS (
    SELECT FROM cairn_vectors h WHERE h.root = %(root)s AND h.model = %(model)s AND h.key = o.key
    AND (h.vector IS NOT NULL OR h.until >= clock_timestamp())) ORDER BY o.key LIMIT %(limit)s) AS free
ON CONFLICT (root, model, key) DO UPDATE SET holder = excluded.holder, until = excluded.until, fence = v.fence + 1
WHERE v.vector IS NULL AND v.until < clock_timestamp() RETURNING v.key, v.fence
"""
_FETCH = """
SELECT key, vector, pieces, weights FROM cairn_vectors
WHERE root = %(root)s AND model = %(model)s AND key = ANY(%(keys)s::bytea[]) AND vector IS NOT NULL
"""
_PUT = """
UPDATE cairn_vectors v SET vector = made.vector, pieces = made.pieces, weights = made.weights, until = clock_timestamp()
FROM unnest(%(keys)s::bytea[], %(fences)s::bigint[], %(vectors)s::bytea[], %(pieces)s::bytea[], %(weights)s::bytea[])
    AS made(key, fence, vector, pieces, weights)
WHERE v.root = %(root)s AND v.model = %(model)s AND v.key = made.key AND v.fence = made.fence AND v.vector IS NULL
RETURNING v.key
"""
_LET_GO = """
DELETE FROM cairn_vectors WHERE root = %(root)s AND model = %(model)s AND key = ANY(%(keys)s::bytea[])
AND holder = %(writer)s AND vector IS NULL RETURNING key
"""


class SharedVectors(Embedder):
    """An `Embedder` that makes what no other machine has made or is making.

    Args:
        inner: Makes vectors.
        database: Where machines meet.
        lease_seconds: After how long a claim without vectors is free.
    """

    def __init__(self, inner: Embedder, database: Postgres, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._inner, self._database, self._lease = inner, database, lease_seconds
        self.language = inner.language
        self._nap = threading.Event()  # never set: a pause

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    @property
    def loaded(self) -> bool:
        return self._inner.loaded

    @property
    def token_dimensions(self) -> int:
        return self._inner.token_dimensions

    def grasps(self, text: str) -> float:
        return self._inner.grasps(text)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._shared(self.id, texts, lambda some: (self._inner.embed(some), []))[0]

    def embed_tokens(self, texts: Sequence[str]) -> tuple[np.ndarray, list[TokenVectors]]:
        return self._shared(f"{self.id} and pieces", texts, self._inner.embed_tokens)

    def _shared(self, model: str, texts: Sequence[str], make: _Make) -> tuple[np.ndarray, list[TokenVectors]]:
        import numpy as np

        if not texts:
            return make(texts)
        by_key = {embed_key(text): text for text in texts}
        done: _Made = {}
        try:
            while missing := [key for key in by_key if key not in done]:
                done |= self._fetched(model, missing)
                claims = self._claimed(model, [key for key in missing if key not in done])
                if claims:
                    done |= self._make(model, claims, by_key, make)
                elif len(done) < len(by_key):
                    self._nap.wait(_NAP_SECONDS)
        except _Away:
            rest = [key for key in by_key if key not in done]
            done |= _named(rest, *make([by_key[key] for key in rest]))
        found = [done[embed_key(text)] for text in texts]
        pieces = [each for _, each in found if each is not None]
        return np.stack([vector for vector, _ in found]).astype(np.float32), pieces

    def _fetched(self, model: str, keys: Sequence[bytes]) -> _Made:
        """What any machine made of these texts."""
        import numpy as np

        made: _Made = {}
        for key, vector, pieces, weights in self._ask(_FETCH, model=model, keys=list(keys)):
            each = None
            if weights is not None:
                held = np.frombuffer(weights, np.float32)
                each = TokenVectors(np.frombuffer(pieces, np.int8).reshape(len(held), -1), held)
            made[bytes(key)] = (np.frombuffer(vector, np.float16), each)
        return made

    def _claimed(self, model: str, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Those of these texts that are this machine's to make, a few, each with the number of its claim."""
        if not keys:
            return {}
        rows = self._ask(_CLAIM, model=model, keys=list(keys), lease=self._lease, limit=_AT_ONCE)
        return {bytes(key): fence for key, fence in rows}

    def _make(
        self, model: str, claims: Mapping[bytes, int], by_key: Mapping[bytes, str], make: _Make
    ) -> _Made:
        """Make the vectors of what was claimed, and let the others have them."""
        import numpy as np

        try:
            made = _named(list(claims), *make([by_key[key] for key in claims]))
        except BaseException:
            with suppress(_Away):
                self._ask(_LET_GO, model=model, keys=list(claims))
            raise
        with suppress(_Away):  # what was made is good here all the same
            self._ask(
                _PUT,
                model=model,
                keys=list(made),
                fences=[claims[key] for key in made],
                vectors=[np.asarray(vector, np.float16).tobytes() for vector, _ in made.values()],
                pieces=[None if each is None else each.vectors.tobytes() for _, each in made.values()],
                weights=[None if each is None else each.weights.tobytes() for _, each in made.values()],
            )
        return made

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        try:
            return self._database.ask(query, **values)
        except CairnError as error:
            raise _Away from error


class _Away(Exception):
    """The database cannot be asked."""


def _named(keys: Sequence[bytes], vectors: np.ndarray, pieces: Sequence[TokenVectors]) -> _Made:
    each: Sequence[TokenVectors | None] = pieces or [None] * len(keys)
    return dict(zip(keys, zip(vectors, each, strict=True), strict=True))
