"""ADE's way to rank governed memories: lexical, or hybrid where vectors are at hand; diverse at the end.

Cairn's own search ranks everything together and better; this is for clients that expect ADE's numbers, and for
a keeper without an index. Every hit it returns counts as a genuine read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cairn.errors import CairnError, Invalid
from cairn.governed.access import Stat, composite, ref
from cairn.governed.framing import frame
from cairn.governed.memories import Keeper
from cairn.governed.records import Record
from cairn.language.words import tokens, word_set
from cairn.seams import Embedder
from cairn.types import Scope, Space

K1, B = 1.2, 0.75
BM25_WEIGHT, COSINE_WEIGHT = 0.30, 0.70
MMR_LAMBDA = 0.7
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Ranked:
    """A memory that answers, and why: its composite, and the query score inside it."""

    record: Record
    score: float
    query_score: float


def search(
    keeper: Keeper,
    space: Space,
    query: str,
    *,
    scopes: Sequence[Scope] | None = None,
    limit: int = 10,
    embedder: Embedder | None = None,
    count: bool = True,
) -> list[Ranked]:
    """The live memories that fit `query`, best first (A26, A80-A82).

    Without an embedder (or when it fails) all words must occur; with one, BM25 and cosine are mixed. `count`
    False is for previews, which are no reads.

    Raises:
        Invalid: `limit` is not between 1 and 100.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid(f"limit {limit} is not between 1 and {MAX_LIMIT}.", field="limit")
    records = [r for scope in (scopes or keeper.scopes(space)) for r in keeper.records(scope) if r.is_live]
    stats = keeper.access.stats(space)
    now = keeper.clock.now()
    vectors = _cosines(query, records, embedder) if embedder is not None and query.strip() else None
    lexical = bm25(query, [record.content for record in records])
    found: list[Ranked] = []
    for n, record in enumerate(records):
        stat = stats.get(ref(record), Stat())
        if vectors is None:
            score = _lexical(query, record)
            total = composite(record, stat, now, query=score)
        else:
            score = BM25_WEIGHT * lexical[n] + COSINE_WEIGHT * max(vectors[n], 0.0)
            # The hybrid composite leaves tier and pin out.
            bare = composite(record.but(tier=2, pinned=False), stat, now, query=score) - 0.05
            total = bare
        if score > (0.0 if vectors is None else 0.1):
            found.append(Ranked(record, total, score))
    pool = max(40, 8 * limit)
    ranked = sorted(found, key=lambda hit: (-hit.score, hit.record.id))[:pool]
    chosen = mmr(ranked, limit, lambda hit: word_set(hit.record.content))
    if count:
        keeper.record_hits((hit.record.scope, hit.record.entry_id) for hit in chosen)
    return chosen


def recall(
    keeper: Keeper,
    space: Space,
    query: str,
    *,
    scopes: Sequence[Scope] | None = None,
    limit: int = 5,
    budget_tokens: int = 20_000,
    deadline_seconds: float = 0.3,
    embedder: Embedder | None = None,
) -> tuple[str, list[Ranked]]:
    """What to put before an agent: the best few memories framed as data, within a token budget and a deadline.

    Untrusted memories that no person promoted are left out. When the time is up before every scope was looked
    at, the answer is nothing: half a corpus, ranked, would pass for the whole (S85).
    """
    late = time.monotonic() + deadline_seconds
    wanted = list(scopes if scopes is not None else keeper.scopes(space))
    for scope in wanted:
        keeper.records(scope)
        if time.monotonic() > late:
            return "", []
    found = search(keeper, space, query, scopes=wanted, limit=limit * 2, embedder=embedder, count=False)
    if time.monotonic() > late:
        return "", []
    chosen: list[Ranked] = []
    for hit in found:
        cost = len(hit.record.content) // 3 + 8
        if hit.record.is_trusted or hit.record.status == "promoted":
            if cost > budget_tokens or len(chosen) == limit:
                break
            budget_tokens -= cost
            chosen.append(hit)
    keeper.record_hits((hit.record.scope, hit.record.entry_id) for hit in chosen)
    return frame([hit.record.content for hit in chosen]), chosen


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """BM25 of each text, squashed by s / (s + median of the positive scores)."""
    docs = [tokens(text) for text in texts]
    mean = sum(map(len, docs)) / len(docs) if docs else 0.0
    terms = set(tokens(query))
    frequency: Mapping[str, int] = {term: sum(term in set(doc) for doc in docs) for term in terms}
    scores = []
    for doc in docs:
        total = 0.0
        for term in terms:
            times = doc.count(term)
            if times:
                idf = math.log(1 + (len(docs) - frequency[term] + 0.5) / (frequency[term] + 0.5))
                total += idf * times * (K1 + 1) / (times + K1 * (1 - B + B * len(doc) / mean))
        scores.append(total)
    positive = sorted(score for score in scores if score > 0)
    median = positive[len(positive) // 2] if positive else 1.0
    return [score / (score + median) if score > 0 else 0.0 for score in scores]


def mmr(hits: Sequence[Ranked], limit: int, words: Callable[[Ranked], frozenset[str]]) -> list[Ranked]:
    """Up to `limit` hits, each as relevant as possible and as unlike those before it as possible."""
    left = [(hit, words(hit)) for hit in hits]
    chosen: list[tuple[Ranked, frozenset[str]]] = []
    while left and len(chosen) < limit:
        best = max(
            left,
            key=lambda pair: (
                MMR_LAMBDA * pair[0].score
                - (1 - MMR_LAMBDA) * max((_overlap(pair[1], other) for _, other in chosen), default=0.0)
            ),
        )
        left.remove(best)
        chosen.append(best)
    return [hit for hit, _ in chosen]


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / len(left | right) if left and right else 0.0


def _lexical(query: str, record: Record) -> float:
    wanted = set(tokens(query))
    said = set(tokens(f"{record.content} {record.trigger}"))
    return 1.0 if wanted and wanted <= said else 0.0


def _cosines(query: str, records: Sequence[Record], embedder: Embedder) -> list[float] | None:
    try:
        made = embedder.embed([query, *(record.content for record in records)])
    except CairnError:
        return None  # the model is not at hand: words alone decide
    return [float(x) for x in made[1:] @ made[0]] if records else []
