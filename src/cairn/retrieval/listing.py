"""`get`: unranked pages of one owner's memories, straight from the index's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from operator import itemgetter
from typing import Any

from cairn.errors import Invalid
from cairn.index import filters as filter_language
from cairn.index.corpus import PAGE_ORDER, Pages, Row
from cairn.retrieval import fitting
from cairn.retrieval.answers import ARRAYS, ROWS_OF, owner_scope, shown, shown_freshness
from cairn.retrieval.lexical import ScannedScope
from cairn.types import Freshness, Scope

MAX_PAGE_SIZE = 100
_MAX_OFFSET = 2**62
_MOST_PLANS = 2000  # plans of one owner that are looked through for what is coming up, the newest first


@dataclass(frozen=True, slots=True)
class GetRequest:
    """What is asked for. Exactly one of `user_id` and `agent_id` names the owner."""

    memory_type: str
    user_id: str | None = None
    agent_id: str | None = None
    app_id: str = "default"
    project_id: str = "default"
    page: int = 1
    page_size: int = 20
    sort_by: str = "timestamp"
    sort_order: str = "desc"
    filters: Mapping[str, Any] | None = None


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

    def get(self, request: GetRequest) -> GetResult:
        """The page, however far out; an unknown owner has none.

        Raises:
            Invalid: a bad owner, type, page, order or filter.
        """
        scope = owner_scope(request.user_id, request.agent_id, request.app_id, request.project_id)
        if request.memory_type not in ARRAYS:
            raise Invalid(
                f'memory_type "{str(request.memory_type)[:60]}" is not one of {", ".join(ARRAYS)}.',
                field="memory_type",
            )
        if request.sort_by not in PAGE_ORDER:
            raise Invalid(
                f'sort_by "{str(request.sort_by)[:60]}" is not one of {", ".join(PAGE_ORDER)}.',
                field="sort_by",
            )
        if request.sort_order not in {"asc", "desc"}:
            raise Invalid(
                f'sort_order "{str(request.sort_order)[:60]}" is not one of asc, desc.', field="sort_order"
            )
        _whole("page", request.page, 1, None)
        _whole("page_size", request.page_size, 1, MAX_PAGE_SIZE)
        where = filter_language.parse(request.filters, zone=self._zone)
        while True:
            freshness = self._freshness(scope)
            pages: Pages = self._pages
            if (scanned := self._scanned(scope, freshness)) is not None:
                pages = scanned
                told = "the index is being rebuilt: this page comes from a scan of the notes"
                freshness = replace(freshness, notes=(*freshness.notes, told, *scanned.troubles))
            page = pages.page(
                scope,
                ROWS_OF.get(request.memory_type, (request.memory_type,)),
                where=where,
                sort=request.sort_by,
                descending=request.sort_order == "desc",
                offset=min((request.page - 1) * request.page_size, _MAX_OFFSET),
                limit=request.page_size,
            )
            items = [shown(row, self._zone) for row in pages.rows(scope, page.rowids)]
            # An index that went away while it was asked is asked again, or its answer is marked.
            if freshness.state == "rebuilding" or self._freshness(scope).generation == freshness.generation:
                break
        return GetResult(
            **{ARRAYS[request.memory_type]: items},
            total_count=page.total,
            count=len(items),
            freshness=freshness,
        )

    def _scanned(self, scope: Scope, freshness: Freshness) -> ScannedScope | None:
        """The notes themselves, while there is no index."""
        if freshness.state != "rebuilding" or self._fallback is None:
            return None
        return self._fallback(scope)

    def upcoming(self, scope: Scope, start: datetime, end: datetime, limit: int = 20) -> list[Row]:
        """The owner's plans whose window touches the time from `start` to `end`, the soonest first."""
        found = []
        pages = self._scanned(scope, self._freshness(scope)) or self._pages
        for offset in range(0, _MOST_PLANS, MAX_PAGE_SIZE):
            page = pages.page(scope, ["foresight"], offset=offset, limit=MAX_PAGE_SIZE)
            for row in pages.rows(scope, page.rowids):
                begins = fitting.moment_of(row.fields.get("start_time"))
                ends = fitting.end_of(row.fields.get("end_time") or row.fields.get("start_time"))
                if begins is not None and begins <= end and (ends or begins) >= start:
                    found.append((due_of(row, self._zone) or str(row.fields.get("end_time", "")), row))
            if len(page.rowids) < MAX_PAGE_SIZE:
                break
        return [row for _, row in sorted(found, key=itemgetter(0))[:limit]]


def due_of(row: Row, zone: tzinfo) -> str:
    """The day a plan is due: the one it begins on, or the last of what counts from the day it was told (a deadline,
    "this week"). Empty where no day was told and its window is only assumed.
    """
    begins, ends = (str(row.fields.get(name, "")) for name in ("start_time", "end_time"))
    if row.fields.get("window") == "assumed":
        return ""
    told = datetime.fromtimestamp(row.timestamp_ms / 1000, zone).date().isoformat()
    return begins if begins[:10] > told else ends or begins


def _whole(name: str, value: object, low: int, high: int | None) -> None:
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= low
        and (high is None or value <= high)
    ):
        return
    span = f"{low} or more" if high is None else f"{low} to {high}"
    raise Invalid(f"{name} must be a whole number of {span}.", field=name)
