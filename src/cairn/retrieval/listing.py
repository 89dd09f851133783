"""`get`: unranked pages of one owner's memories, straight from the index's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from operator import itemgetter
from typing import Any

from cairn.index import filters as filter_language
from cairn.index.corpus import Pages, Row
from cairn.retrieval import fitting
from cairn.retrieval.answers import ARRAYS, ROWS_OF, shown, shown_freshness
from cairn.retrieval.lexical import ScannedScope
from cairn.types import Freshness, Scope

_AT_ONCE, _MOST_COMING = 100, 20
_MAX_OFFSET = 2**62
_MOST_PLANS = 2000  # plans of one owner that are looked through for what is coming up, the newest first


@dataclass(frozen=True, slots=True)
class GetResult:
    """One page. Of the arrays the one of the asked type may be filled; `total_count` is exact."""

    episodes: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    agent_cases: list[dict[str, Any]] = field(default_factory=list)
    agent_skills: list[dict[str, Any]] = field(default_factory=list)
    foresights: list[dict[str, Any]] = field(default_factory=list)
    atomic_facts: list[dict[str, Any]] = field(default_factory=list)
    agent_documents: list[dict[str, Any]] = field(default_factory=list)
    total_count: int = 0
    count: int = 0
    freshness: Freshness = field(default_factory=lambda: Freshness(0, 0, "fresh"))

    def as_data(self) -> dict[str, Any]:
        """The page as the outside knows it."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ARRAYS.values()}
        return {
            **arrays,
            "total_count": self.total_count,
            "count": self.count,
            "freshness": shown_freshness(self.freshness),
        }


class Listing:
    """Answers `get`.

    Args:
        pages: The index.
        freshness: How far the index is behind the files of a scope.
        zone: The display zone, for times in answers and in filters without an offset.
        fallback: An index scanned from the notes, for the time the real one is being rebuilt.
    """

    def __init__(
        self,
        pages: Pages,
        freshness: Callable[[Scope], Freshness],
        zone: tzinfo = UTC,
        fallback: Callable[[Scope], ScannedScope | None] | None = None,
    ) -> None:
        self._pages = pages
        self._freshness = freshness
        self._zone = zone
        self._fallback = fallback

    def get(
        self,
        scope: Scope,
        memory_type: str,
        *,
        page: int = 1,
        page_size: int = 20,
        sort_by: str = "timestamp",
        sort_order: str = "desc",
        filters: Mapping[str, Any] | None = None,
    ) -> GetResult:
        """One page, however far out; an unknown owner has none. Raises `Invalid` for a filter that means nothing."""
        where = filter_language.parse(filters, zone=self._zone)
        while True:
            freshness = self._freshness(scope)
            pages: Pages = self._pages
            if (scanned := self._scanned(scope, freshness)) is not None:
                pages = scanned
                told = "the index is being rebuilt: this page comes from a scan of the notes"
                freshness = replace(freshness, notes=(*freshness.notes, told, *scanned.troubles))
            found = pages.page(
                scope,
                ROWS_OF.get(memory_type, (memory_type,)),
                where=where,
                sort=sort_by,
                descending=sort_order == "desc",
                offset=min((page - 1) * page_size, _MAX_OFFSET),
                limit=page_size,
            )
            items = [shown(row, self._zone) for row in pages.rows(scope, found.rowids)]
            # An index that went away while it was asked is asked again, or its answer is marked.
            if freshness.state == "rebuilding" or self._freshness(scope).generation == freshness.generation:
                break
        return GetResult(
            **{ARRAYS[memory_type]: items},
            total_count=found.total,
            count=len(items),
            freshness=freshness,
        )

    def _scanned(self, scope: Scope, freshness: Freshness) -> ScannedScope | None:
        """The notes themselves, while there is no index."""
        if freshness.state != "rebuilding" or self._fallback is None:
            return None
        return self._fallback(scope)

    def upcoming(self, scope: Scope, start: datetime, end: datetime) -> list[Row]:
        """The owner's plans whose window touches the time from `start` to `end`, the soonest first."""
        found = []
        pages = self._scanned(scope, self._freshness(scope)) or self._pages
        for offset in range(0, _MOST_PLANS, _AT_ONCE):
            page = pages.page(scope, ["foresight"], offset=offset, limit=_AT_ONCE)
            for row in pages.rows(scope, page.rowids):
                begins = fitting.moment_of(row.fields.get("start_time"))
                ends = fitting.end_of(row.fields.get("end_time") or row.fields.get("start_time"))
                if begins is not None and begins <= end and (ends or begins) >= start:
                    found.append((due_of(row, self._zone) or str(row.fields.get("end_time", "")), row))
            if len(page.rowids) < _AT_ONCE:
                break
        return [row for _, row in sorted(found, key=itemgetter(0))[:_MOST_COMING]]


def due_of(row: Row, zone: tzinfo) -> str:
    """The day a plan is due: the one it begins on, or the last of what counts from the day it was told (a deadline,
    "this week"). Empty where no day was told and its window is only assumed.
    """
    begins, ends = (str(row.fields.get(name, "")) for name in ("start_time", "end_time"))
    if row.fields.get("window") == "assumed":
        return ""
    told = datetime.fromtimestamp(row.timestamp_ms / 1000, zone).date().isoformat()
    return begins if begins[:10] > told else ends or begins
