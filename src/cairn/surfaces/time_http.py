"""The HTTP routes of time travel: what changed, moments to come back to, and coming back.

They tell and change a space as a whole, so a token that is limited to owners does not reach them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cairn.surfaces.routes import Call, Endpoint
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.surfaces import schemas, schemas_kept


async def log(call: Call) -> Any:
    query = cast("schemas_kept.LogQuery", call.query)
    space = _reached(call, query, write=False)
    return {"changes": await call.memory.log(query.id, limit=query.limit, **space)}


async def checkpoints(call: Call) -> Any:
    space = _reached(call, call.query, write=False)
    return {"checkpoints": await call.memory.checkpoints(**space)}


async def mark(call: Call) -> Any:
    body = cast("schemas_kept.CheckpointRequest", call.body)
    space = _reached(call, body, write=True)
    return await call.memory.checkpoint(body.label, **space)


async def diff(call: Call) -> Any:
    query = cast("schemas_kept.DiffQuery", call.query)
    space = _reached(call, query, write=False)
    return {"differences": await call.memory.diff(query.target, **space)}


async def restore(call: Call) -> Any:
    body = cast("schemas_kept.RestoreRequest", call.body)
    space = _reached(call, body, write=not body.dry_run)
    plan = await call.memory.restore(body.target, dry_run=body.dry_run, **space)
    return {"dry_run": body.dry_run, "entries": plan}


def _reached(call: Call, at: schemas.SpaceQuery | schemas.Spaced, *, write: bool) -> dict[str, Any]:
    """The space a call names, if the caller's token reaches all of it."""
    call.grant.reach_space(Space(at.app_id, at.project_id), write=write)
    return {"app_id": at.app_id, "project_id": at.project_id}


ENDPOINTS: list[Endpoint] = [
    Endpoint("GET", "/log", log, "Changes of entries, newest first", None, "LogData", query="LogQuery"),
    Endpoint("GET", "/checkpoints", checkpoints, "The marked moments", None, "CheckpointsData", query="SpaceQuery"),
    Endpoint("POST", "/checkpoints", mark, "Mark this moment", "CheckpointRequest", "CheckpointData"),
    Endpoint("GET", "/diff", diff, "What is different now from a checkpoint or a time", None, "DiffData",
             query="DiffQuery"),
    Endpoint("POST", "/restore", restore, "Bring back a checkpoint, a time, or what was before one change",
             "RestoreRequest", "RestoreData"),
]  # fmt: skip
