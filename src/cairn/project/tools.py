"""The nine tools an agent gets for a repository's memory, as plain functions with one shape of result.

Each answers `{"tool", "schemaVersion": 1, "data"}` or `{"tool", "schemaVersion": 1, "error": {"code", "message"}}` with
code `tool_not_found`, `invalid_arguments` or `execution_failed`; a surface only has to carry it. None of them raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cairn.errors import CairnError, Invalid
from cairn.project.automate import run_once, runner_status
from cairn.project.project import ProjectMemory

SCHEMA_VERSION = 1
Starter = Callable[[ProjectMemory], dict[str, Any]]


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXTS = {"type": "array", "items": {"type": "string"}}
TOOLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "memory_assess": ("How the repository's memory stands, and the one thing to do about it.", _object()),
    "memory_maintain": (
        "Import new sessions, fold what was learned into the memory, archive what is old.",
        _object(),
    ),
    "memory_compact_handoff": (
        "Record what this session did and learned, for whoever comes next.",
        _object(
            ("summary",),
            summary={"type": "string"},
            decisions=_TEXTS,
            gotchas=_TEXTS,
            nextStepHints=_TEXTS,
            keyPaths=_TEXTS,
            validationObservations=_TEXTS,
        ),
    ),
    "memory_query": (
        "Ask about the repository: what it is, what to beware of, what changed, what is next.",
        _object(
            ("question",),
            question={"type": "string"},
            scope={"type": "string", "enum": ["state", "history", "all"]},
        ),
    ),
    "memory_status": (
        "State, backlog, drift, sources and retention in full.",
        _object(checkpoint={"type": "string"}),
    ),
    "memory_validate": ("Check that the record is whole.", _object()),
    "automation_status": ("Whether the background runner lives, and how its last run went.", _object()),
    "automation_ensure_running": ("Start the background runner unless it runs already.", _object()),
    "automation_run_once": ("One cycle of import, consolidation and pruning, now.", _object()),
}


def call(
    project: ProjectMemory, tool: str, arguments: Mapping[str, Any], *, start: Starter | None = None
) -> dict[str, Any]:
    """Run one tool. `start` starts the background runner (surfaces know how); without it that tool fails."""
    if tool not in TOOLS:
        return _error(tool, "tool_not_found", f'There is no tool "{tool}": {", ".join(TOOLS)}.')
    trouble = _trouble(TOOLS[tool][1], arguments)
    if trouble:
        return _error(tool, "invalid_arguments", trouble)
    try:
        return {"tool": tool, "schemaVersion": SCHEMA_VERSION, "data": _run(project, tool, arguments, start)}
    except Invalid as error:
        return _error(tool, "invalid_arguments", str(error))
    except (CairnError, OSError) as error:
        return _error(tool, "execution_failed", str(error))


def _run(project: ProjectMemory, tool: str, given: Mapping[str, Any], start: Starter | None) -> Any:
    if tool == "memory_assess":
        status = project.status()
        failed = [finding.to_json() for finding in project.validate() if finding.status == "fail"]
        return {
            "suggestedAction": status["suggestedAction"],
            "backlog": status["backlog"]["all"]["count"],
            "drift": status["drift"]["summary"],
            "failures": failed,
        }
    if tool == "memory_compact_handoff":
        signals = {key: value for key, value in given.items() if key != "summary"}
        return project.record(given["summary"], signals, ref="handoff").to_json()
    if tool == "memory_query":
        return project.query(given["question"], scope=given.get("scope", "all")).to_json()
    if tool == "memory_status":
        return project.status(checkpoint=given.get("checkpoint"))
    if tool == "memory_validate":
        findings = project.validate()
        return {"ok": all(f.status != "fail" for f in findings), "findings": [f.to_json() for f in findings]}
    if tool == "automation_status":
        project.record_.require()
        return runner_status(project.record_.storage, project.locks)
    if tool == "automation_ensure_running":
        project.record_.require()
        if start is None:
            raise CairnError("This surface cannot start processes: run `cairn project automate start`.")
        return start(project)
    project.record_.require()
    return run_once(project).to_json()


def _trouble(schema: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments, by the few rules the schemas use."""
    if not isinstance(given, Mapping):
        return "Arguments must be an object."
    known = schema["properties"]
    for name in schema["required"]:
        if name not in given:
            return f'"{name}" is required.'
    for name, value in given.items():
        if name not in known:
            return f'"{name}" is not an argument of this tool.'
        kind = known[name]["type"]
        fits = (
            isinstance(value, str)
            if kind == "string"
            else isinstance(value, list) and all(isinstance(v, str) for v in value)
        )
        if not fits:
            return f'"{name}" must be {"a text" if kind == "string" else "a list of texts"}.'
        if "enum" in known[name] and value not in known[name]["enum"]:
            return f'"{name}" must be one of {", ".join(known[name]["enum"])}.'
    return None


def _error(tool: str, code: str, message: str) -> dict[str, Any]:
    return {"tool": tool, "schemaVersion": SCHEMA_VERSION, "error": {"code": code, "message": message}}
