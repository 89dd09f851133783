"""`status`: index, queue, strategies, models, engines and warnings of a root in one answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Unavailable
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.table import Room, operation
from cairn.version import VERSION

if TYPE_CHECKING:
    from cairn.parts import Parts
    from cairn.strategies.engine import StrategyStatus

answers = Answers("upkeep")


class Standing(Room):
    """The operation `status`."""

    @operation("GET /status", answers.StatusData, rules.root(write=False))
    def status(self) -> dict[str, Any]:
        """The state of the memory: root, index and queue, strategies, last sweep, last capture, models and spend, engines, warnings.

        Quick, since it looks at no note: `doctor` looks through everything.
        """
        from cairn.engines import sizes

        parts = self.parts
        strategies = _strategies(parts)
        spaces = _spaces(parts)
        told: dict[str, Any] = {
            "root": str(parts.settings.root),
            "version": VERSION,
            "index": _index(parts),
            "strategies": {
                "on": len(strategies),
                "waiting": sum(
                    one.counts.get("pending", 0) + one.counts.get("running", 0) for one in strategies
                ),
                "gave_up": sum(one.counts.get("dead", 0) for one in strategies),
            },
            "spaces": spaces,
            "capture": _capture(parts),
            "model": _model(parts),
            "engines": _engines(parts),
            "server": _server(parts),
            "sizes": sizes.days(parts.settings.server_dir),
        }
        told["warnings"] = [*_warnings(parts, told)]
        return told


def _index(parts: Parts) -> dict[str, Any]:
    from cairn.engines.bytescan import size_of

    told: dict[str, Any] = {"state": parts.indexer.status().state, "pending": 0, "failed": 0}
    told |= {"vectors_missing": 0, "rows": 0, "bytes": size_of(parts.index_dir)}
    with suppress(Unavailable):  # the warnings name what does not answer
        counts = parts.state.counts()
        told |= {"pending": counts.pending, "failed": counts.failed}
        told["vectors_missing"] = parts.indexer.waiting_for_vectors()
        told["rows"] = sum(sum(kinds.values()) for _, kinds in parts.index.scopes())
    return told


def _strategies(parts: Parts) -> list[StrategyStatus]:
    try:
        return [one for one in parts.engine.list() if one.enabled]
    except Unavailable:  # the warnings name what does not answer
        return []


def _spaces(parts: Parts) -> list[dict[str, Any]]:
    from cairn.governed import lifecycle

    rows = []
    try:
        spaces = list(parts.root.spaces())
    except Unavailable:  # the warnings name what does not answer
        return []
    for space in spaces:
        try:
            swept = [str(one.get("started_at") or "") for one in lifecycle.sweeps(parts.keeper, space)]
        except CairnError:
            swept = []
        rows.append(
            {"app_id": space.app, "project_id": space.project, "last_sweep": max(swept, default="") or None}
        )
    return rows


def _capture(parts: Parts) -> dict[str, Any]:
    from cairn.engines import spool

    root = parts.settings.root
    last = spool.last_kept(root)
    if last is not None:
        last = {**last, "at": datetime.fromtimestamp(last["at"], UTC).isoformat(timespec="seconds")}
    return {
        "agents": spool.integrated(root),
        "last": last,
        "waiting": sum(1 for _ in spool.folder(root).glob("*.json")),
    }


def _model(parts: Parts) -> dict[str, Any]:
    llm, embedder = parts.settings.llm, parts.embedder()
    spent = 0
    if llm.base_url:
        from cairn.engines.spending import Spending

        with suppress(Unavailable):
            spent = Spending(parts.journals, parts.clock, llm.daily_token_cap).today()
    named = None
    if embedder is not None:
        named = parts.settings.embedding.model  # An endpoint that is away does not say its dimensions.
        with suppress(Unavailable):
            named = embedder.id
    return {
        "embedding": named,
        "language_model": llm.model or None,
        "tokens_today": spent,
        "tokens_cap": llm.daily_token_cap,
    }


def _engines(parts: Parts) -> dict[str, str]:
    return {
        "storage": parts.settings.storage.backend,
        "locks": type(parts.locks).__name__,
        "journals": type(parts.journals).__name__,
        "queue": type(parts.state).__name__,
        "jobs": type(parts.engine.jobs).__name__,
        "rows": type(parts.index).__name__,
        "index": parts.settings.index.engine,
    }


def _server(parts: Parts) -> dict[str, Any]:
    from cairn.engines.tokens import TokenFile
    from cairn.rights import parse_tokens

    kept = TokenFile(parts.settings.server_dir).grants()
    return {
        "tokens": len(kept) + len(parse_tokens(parts.settings.server.tokens)),
        "address": f"{parts.settings.server.host}:{parts.settings.server.port}",
    }


def _warnings(parts: Parts, told: dict[str, Any]) -> Iterator[str]:
    """What a person should look at, each with its next step."""
    from cairn.engines import everos
    from cairn.engines.audit import AuditLog
    from cairn.engines.tree import trouble_writing
    from cairn.retrieval import tongue

    for name, place in (("the memory root", parts.settings.root), ("the index", parts.settings.index_dir)):
        if trouble := trouble_writing(place):
            yield f"{name} cannot be written: {trouble}. Make room, or make it writable."
    if trouble := AuditLog(parts.settings.server_dir, parts.settings.server.audit_bytes).blocked():
        yield trouble
    if trouble := parts.storage.trouble():
        yield f"{trouble}. Searches go on; start it again." if parts.storage.is_shared else f"{trouble}."
    if parts.daemon is not None:
        yield from parts.daemon.health()["reasons"]
    if told["index"]["failed"]:
        yield f"{told['index']['failed']} files could not be indexed: `cairn cascade fix` names them."
    try:
        for one in parts.state.set_aside()[:20]:
            yield f"{one['path']}: {one['trouble']} (set aside; `cairn doctor` has the line)."
    except Unavailable as trouble:
        yield f"The index cannot be looked at: {trouble} Notes answer meanwhile; `cairn doctor` has the next step."
    if unread := everos.unread(parts.index_dir):
        yield f"{unread}. `cairn doctor` has the next step."
    for waiting in parts.capture.waiting[:20]:
        yield f"{str(waiting).rstrip('.')}. It is tried again by itself."
    if parts.engine.trouble:
        yield parts.engine.trouble
    yield from parts.engine.unknown.values()
    if told["strategies"]["gave_up"]:
        yield f"strategies gave up on {told['strategies']['gave_up']} runs: `cairn doctor` names them."
    if told["model"]["embedding"] is None and parts.settings.embedding.provider != "none":
        yield parts.embedder.trouble or "The local embedding model is not installed: `cairn model install`."
    with suppress(Unavailable):  # the warnings above name what does not answer
        scopes = (scope for scope, _ in parts.index.scopes())
        if tongue.is_foreign(parts.index, scopes, parts.settings.embedding, parts.embedder()):
            yield f"{tongue.HINT}: {tongue.STEP}."
    if told["model"]["tokens_today"] >= told["model"]["tokens_cap"] and told["model"]["language_model"]:
        yield "The day's tokens of the language model are spent; llm.daily_token_cap sets how many."
