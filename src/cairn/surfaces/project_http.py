"""The HTTP routes of project memory: status, query, validate, and what consolidating would change. All only read.

A server does not open just any folder it is asked for: `server.project_roots` lists the folders whose
repositories may be asked about. Without it these routes are refused.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cairn.surfaces.guard import Refusal
from cairn.surfaces.routes import Call, Endpoint

if TYPE_CHECKING:
    from cairn.project.project import ProjectMemory
    from cairn.surfaces import schemas_kept

T = TypeVar("T")


def allowed_folder(call: Call, path: str) -> Path:
    """The folder at `path`, links resolved, if the server was told about it.

    Raises:
        Refusal: 403 without `server.project_roots` or outside of them, 404 where there is none, 422 for no path.
    """
    roots = _roots(call)
    if not roots:
        raise Refusal(
            403,
            "CAPABILITY_UNAVAILABLE",
            "This server was told of no repositories. List their folders in server.project_roots.",
        )
    if "\0" in path or not Path(path).is_absolute():
        raise Refusal(422, "INVALID_INPUT", "path: give the absolute path of a repository.")
    folder = Path(path).resolve()
    # Said before looking whether it is there, so that nobody can ask which folders this machine has.
    if not _is_below(folder, roots):
        raise _outside()
    if not folder.is_dir():
        raise Refusal(404, "NOT_FOUND", "path: there is no such folder below server.project_roots.")
    return folder


def _allowed_tree(call: Call, path: str) -> ProjectMemory:
    """The project memory at `path`, if the server was told about it and the token reaches its space."""
    folder = allowed_folder(call, path)
    from cairn.projects import open_project  # a fifth of a second that most servers never need

    project = open_project(folder, writer=call.memory.parts.writer)
    if not _is_below(project.tree.resolve(), _roots(call)):
        raise _outside()
    call.grant.reach_space(project.space)
    return project


def _roots(call: Call) -> list[Path]:
    return [Path(root).expanduser().resolve() for root in call.memory.settings.server.project_roots]


def _outside() -> Refusal:
    return Refusal(403, "FORBIDDEN", "path is not below any of server.project_roots.")


def _is_below(folder: Path, roots: list[Path]) -> bool:
    return any(folder == root or root in folder.parents for root in roots)


async def status(call: Call) -> Any:
    query = cast("schemas_kept.ProjectStatusQuery", call.query)
    return await asyncio.to_thread(
        lambda: _allowed_tree(call, query.path).status(checkpoint=query.checkpoint)
    )


async def query(call: Call) -> Any:
    body = cast("schemas_kept.ProjectQueryRequest", call.body)
    return await asyncio.to_thread(
        lambda: _allowed_tree(call, body.path).query(body.question, scope=body.scope).to_json()
    )


async def validate(call: Call) -> Any:
    at = cast("schemas_kept.ProjectQuery", call.query)

    def look() -> dict[str, Any]:
        findings = _allowed_tree(call, at.path).validate()
        return {
            "ok": not any(finding.status == "fail" for finding in findings),
            "findings": [finding.to_json() for finding in findings],
        }

    return await asyncio.to_thread(look)


async def preview(call: Call) -> Any:
    body = cast("schemas_kept.ProjectPreviewRequest", call.body)

    def look() -> dict[str, Any]:
        plan = _allowed_tree(call, body.path).plan(
            section=body.section, source=body.source, policy=body.policy
        )
        return {"noop": plan.is_noop, "summary": plan.summary, "diffs": dict(plan.diffs)}

    return await asyncio.to_thread(look)


ENDPOINTS: list[Endpoint] = [
    Endpoint(
        "GET",
        "/project/status",
        status,
        "How a repository's memory stands",
        None,
        "Answer",
        query="ProjectStatusQuery",
    ),
    Endpoint(
        "POST",
        "/project/query",
        query,
        "Ask about a repository; the answer cites its evidence",
        "ProjectQueryRequest",
        "Answer",
    ),
    Endpoint(
        "GET",
        "/project/validate",
        validate,
        "Whether a repository's record is whole",
        None,
        "ValidateData",
        query="ProjectQuery",
    ),
    Endpoint(
        "POST",
        "/project/consolidate",
        preview,
        "What consolidating would change; nothing is written",
        "ProjectPreviewRequest",
        "PreviewData",
    ),
]
