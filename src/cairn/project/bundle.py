"""The bundle: what a newcomer to a repository needs, in six sections. Here are its shape and its rules.

A bundle is JSON (`dict`): `project`, `projectMap`, `currentFocus`, `gotchas`, `nextSteps`,
`validationCommands`. `checked` refuses anything else with the path of the trouble. Building one from a
repository is in `describe.py`, folding history into one in `consolidate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
# A text, a text or none (None), one of some words (a tuple), a list of what stands in it, or an object with these fields.
_SHAPE: Mapping[str, Any] = {
    "project": {
        **dict.fromkeys(("name", "summary", "primaryEcosystem"), str),
        **dict.fromkeys(("packageManager", "workspaceManager"), None),
        "recommendedEntryFile": str,
        "keyPaths": [str],
    },
    "projectMap": {
        "modules": [dict.fromkeys(("name", "path", "responsibility"), str)],
        "entrypoints": [dict.fromkeys(("path", "role"), str)],
        "denseSourceAreas": [dict.fromkeys(("path", "note"), str)],
        "architectureNotes": [str],
        "firstFilesToRead": [str],
    },
    "currentFocus": {
        "summary": str,
        "currentState": [str],
        "knownRisks": [str],
        "validationSnapshot": {
            "status": ("passed", "failed", "unknown"),
            "validatedAt": None,
            "summary": str,
            "results": [str],
            "suggestedNextActions": [str],
        },
    },
    "gotchas": [dict.fromkeys(("title", "symptom", "cause", "correctPath"), str)],
    "nextSteps": [dict.fromkeys(("title", "why", "start", "done"), str)],
    "validationCommands": [{"label": str, "command": [str], "purpose": str}],
}


def checked(bundle: Any) -> Bundle:
    """Return `bundle` if it has exactly the bundle's shape; raise `Invalid` with the path of the trouble."""
    _fit(bundle, _SHAPE, "")
    return dict(bundle)


def _fit(value: Any, shape: Any, at: str) -> None:
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            raise Invalid(f"bundle.{at} must be an object.", field=at)
        if wrong := sorted(set(value) ^ set(shape)):
            trouble = "has no" if wrong[0] in shape else "does not know"
            raise Invalid(f'bundle.{at} {trouble} "{wrong[0]}".', field=f"{at}.{wrong[0]}")
        for key, inner in shape.items():
            _fit(value[key], inner, f"{at}.{key}" if at else key)
    elif isinstance(shape, list):
        few = at == "validationCommands"
        if not isinstance(value, list) or (few and len(value) > MAX_VALIDATION_COMMANDS):
            limit = f" of at most {MAX_VALIDATION_COMMANDS} commands" if few else ""
            raise Invalid(f"bundle.{at} must be a list{limit}.", field=at)
        if not value and at.endswith(".command"):
            raise Invalid(f"bundle.{at} is empty.", field=at.removesuffix(".command"))
        for index, item in enumerate(value):
            _fit(item, shape[0], f"{at}[{index}]")
    elif isinstance(shape, tuple):
        if value not in shape:
            raise Invalid(f"bundle.{at} must be one of {', '.join(shape)}.", field=at)
    elif (shape or value is not None) and (not isinstance(value, str) or not value.strip()):
        raise Invalid(f"bundle.{at} must be a non-empty text.", field=at)


def paths_in(bundle: Bundle) -> list[str]:
    """Every repository path a bundle points at, for the check that they still exist."""
    project, chart = bundle["project"], bundle["projectMap"]
    found = [project["recommendedEntryFile"], *project["keyPaths"], *chart["firstFilesToRead"]]
    for key in ("modules", "entrypoints", "denseSourceAreas"):
        found += [item["path"] for item in chart[key]]
    return list(dict.fromkeys(found))
