"""What an agent's memory tools do, in ADE's shapes: search, add, pin, update the core memory (A78, A79).

Surfaces that offer these tools (MCP, HTTP) call here, so that an agent's write meets the agent's policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.governed import core, corrections, ranking
from cairn.governed.memories import Keeper, durability
from cairn.governed.records import AGENT_CATEGORIES, Importance
from cairn.seams import Embedder
from cairn.types import Scope, Space

SEARCH_LIMIT = 5


def memory_search(
    keeper: Keeper,
    space: Space,
    query: str,
    *,
    scopes: Sequence[Scope] | None = None,
    limit: int = SEARCH_LIMIT,
    embedder: Embedder | None = None,
) -> list[dict[str, Any]]:
    """The memories that fit, as data: id, content, category, scope, tier, pinned, score."""
    return [
        {
            "id": hit.record.id,
            "content": hit.record.content,
            "category": hit.record.category,
            "scope": hit.record.scope.track,
            "tier": hit.record.tier,
            "pinned": hit.record.pinned,
            "confidence": hit.record.confidence,
            "score": round(hit.score, 6),
        }
        for hit in ranking.search(keeper, space, query, scopes=scopes, limit=limit, embedder=embedder)
    ]


def memory_add(
    keeper: Keeper,
    space: Space,
    content: str,
    category: str = "fact",
    *,
    scope: str | Scope = "project",
    owner: str = "",
    importance: Importance = "medium",
    pin: bool = False,
    strict: bool = False,
    agent_id: str | None = None,
    **source: Any,
) -> dict[str, Any]:
    """Write as an agent. Look at `saved`: a refusal is `durability: "rejected"`, not an error (A77)."""
    verdict = keeper.remember(
        content, category, space=space, scope=scope, owner=owner, importance=importance, pinned=pin,
        mode="strict" if strict else "default", origin="agent", agent_id=agent_id, **source,
    )  # fmt: skip
    memory = verdict.memory or {}
    return {
        "saved": verdict.accepted,
        "durability": durability(verdict),
        "id": memory.get("id"),
        "tier": memory.get("tier"),
        "deduped": verdict.deduped,
        "mergedIntoId": verdict.merged_into_id,
        "reason": verdict.reason,
    }


def memory_pin(keeper: Keeper, space: Space, memory_id: str, *, pinned: bool = True) -> dict[str, Any]:
    """Pin or unpin as an agent; what came from an untrusted origin only a person can pin."""
    row = corrections.pin(keeper, space, memory_id, pinned=pinned, by="agent")
    return {"ok": True, "id": row["id"], "pinned": bool(row["pinned"]), "tier": row["tier"]}


def memory_update_core(keeper: Keeper, space: Space, *, agent: str = "", **fields: Any) -> dict[str, Any]:
    """Set fields of the project's (or an agent's) core memory."""
    return core.update(keeper, core.core_scope(space, agent), **fields).payload()


def categories() -> Sequence[str]:
    """The categories an agent is offered."""
    return AGENT_CATEGORIES
