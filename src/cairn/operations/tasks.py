"""Talk on its way to episodes, as tasks: told from the session logs and from what waits, kept nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from cairn.errors import CairnError
from cairn.parts import Parts
from cairn.retrieval.showing import shown_time
from cairn.talk.sessions import session_locator
from cairn.types import Space


def tasks_of(parts: Parts, space: Space, session_id: str | None) -> Iterator[dict[str, Any]]:
    """Every closed stretch of a space's sessions, and the open one of each where there is one."""
    waiting = {one.cell_id: one.reason for one in parts.capture.waiting if one.scope.space == space}
    named = [(space, session_id)] if session_id is not None else parts.capture.sessions(space)
    for _, session in named:
        try:
            state = parts.sessions.load(session_locator(space, session), keep=False)
        except CairnError:
            continue
        for cell in state.cells:
            why = waiting.get(cell.cell_id)
            status = "success" if cell.done else "failed" if why else "processing"
            yield _task(cell.cell_id, status, "memory_flush", session, cell.at, why, done=cell.done)
        if opened := state.open_messages:
            mark = hashlib.sha256(session.encode("utf-8")).hexdigest()[:16]
            at = shown_time(opened[0].timestamp)
            yield _task(f"open_{mark}", "queued", "memory_add", session, at, None, done=False)


def _task(
    task_id: str, status: str, kind: str, session: str, at: str, why: str | None, *, done: bool
) -> dict[str, Any]:
    return {
        "id": task_id,
        "status": status,
        "task_type": kind,
        "session_id": session,
        "error": why,
        "error_code": "EXTRACTION_FAILED" if why else None,
        "created_at": at,
        "finished_at": at if done else None,
    }
