"""The bundle: what a newcomer to a repository needs, in six sections. Here are its shape and its rules.

A bundle is JSON (`dict`): `project`, `projectMap`, `currentFocus`, `gotchas`, `nextSteps`,
`validationCommands`. `checked` refuses anything else with the path of the trouble. Building one from a
repository is in `evidence.py`, folding history into one in `consolidate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cairn.canonical import json_hash
from cairn.errors import Invalid

Bundle = dict[str, Any]

# Section names as they are written on the command line, and the key each stands for.
SECTIONS: Mapping[str, str] = {
    "project": "project",
    "project-map": "projectMap",
    "current-focus": "currentFocus",
    "gotchas": "gotchas",
    "next-steps": "nextSteps",
    "validation-commands": "validationCommands",
}
MAX_VALIDATION_COMMANDS = 2
VALIDATION_STATUSES = ("passed", "failed", "unknown")


def section_value(bundle: Bundle, name: str) -> Any:
    return bundle.get(SECTIONS[name])


def bundle_hash(bundle: Bundle) -> str:
    """sha256 over the canonical JSON: key order does not matter, list order does."""
    return json_hash(bundle)


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"bundle.{at} must be a non-empty text.", field=at)


def _optional_text(value: Any, at: str) -> None:
    if value is not None:
        _text(value, at)


def _texts(value: Any, at: str) -> None:
    if not isinstance(value, list):
        raise Invalid(f"bundle.{at} must be a list.", field=at)
    for index, item in enumerate(value):
        _text(item, f"{at}[{index}]")


def _records(*keys: str) -> Callable[[Any, str], None]:
    def check(value: Any, at: str) -> None:
        if not isinstance(value, list):
            raise Invalid(f"bundle.{at} must be a list.", field=at)
        for index, item in enumerate(value):
            _fields(item, f"{at}[{index}]", dict.fromkeys(keys, _text))

    return check


def _fields(value: Any, at: str, fields: Mapping[str, Callable[[Any, str], None]]) -> None:
    if not isinstance(value, dict):
        raise Invalid(f"bundle.{at} must be an object.", field=at)
    wrong = sorted(set(value) ^ set(fields))
    if wrong:
        trouble = "has no" if wrong[0] in fields else "does not know"
        raise Invalid(f'bundle.{at} {trouble} "{wrong[0]}".', field=f"{at}.{wrong[0]}")
    for key, check in fields.items():
        check(value[key], f"{at}.{key}" if at else key)


def _commands(value: Any, at: str) -> None:
    if not isinstance(value, list) or len(value) > MAX_VALIDATION_COMMANDS:
        raise Invalid(f"bundle.{at} must be a list of at most {MAX_VALIDATION_COMMANDS} commands.", field=at)
    for index, item in enumerate(value):
        here = f"{at}[{index}]"
        _fields(item, here, {"label": _text, "command": _texts, "purpose": _text})
        if not item["command"]:
            raise Invalid(f"bundle.{here}.command is empty.", field=here)


def _snapshot(value: Any, at: str) -> None:
    def status(text: Any, here: str) -> None:
        if text not in VALIDATION_STATUSES:
            raise Invalid(f"bundle.{here} must be one of {', '.join(VALIDATION_STATUSES)}.", field=here)

    _fields(
        value,
        at,
        {
            "status": status,
            "validatedAt": _optional_text,
            "summary": _text,
            "results": _texts,
            "suggestedNextActions": _texts,
        },
    )


def _project(value: Any, at: str) -> None:
    _fields(
        value,
        at,
        {
            "name": _text,
            "summary": _text,
            "primaryEcosystem": _text,
            "packageManager": _optional_text,
            "workspaceManager": _optional_text,
            "recommendedEntryFile": _text,
            "keyPaths": _texts,
        },
    )


def _project_map(value: Any, at: str) -> None:
    _fields(
        value,
        at,
        {
            "modules": _records("name", "path", "responsibility"),
            "entrypoints": _records("path", "role"),
            "denseSourceAreas": _records("path", "note"),
            "architectureNotes": _texts,
            "firstFilesToRead": _texts,
        },
    )


def _focus(value: Any, at: str) -> None:
    _fields(
        value,
        at,
        {"summary": _text, "currentState": _texts, "knownRisks": _texts, "validationSnapshot": _snapshot},
    )


def checked(bundle: Any) -> Bundle:
    """Return `bundle` if it has exactly the bundle's shape; raise `Invalid` with the path of the trouble."""
    _fields(
        bundle,
        "",
        {
            "project": _project,
            "projectMap": _project_map,
            "currentFocus": _focus,
            "gotchas": _records("title", "symptom", "cause", "correctPath"),
            "nextSteps": _records("title", "why", "start", "done"),
            "validationCommands": _commands,
        },
    )
    return dict(bundle)


def paths_in(bundle: Bundle) -> list[str]:
    """Every repository path a bundle points at, for the check that they still exist."""
    project, chart = bundle["project"], bundle["projectMap"]
    found = [project["recommendedEntryFile"], *project["keyPaths"], *chart["firstFilesToRead"]]
    for key in ("modules", "entrypoints", "denseSourceAreas"):
        found += [item["path"] for item in chart[key]]
    return list(dict.fromkeys(found))
