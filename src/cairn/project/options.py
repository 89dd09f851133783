"""`config.json`: how a repository consolidates, answers, runs itself and forgets. Flags win for one run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cairn.errors import Invalid, Misconfigured
from cairn.project.bundle import SECTIONS
from cairn.project.layout import CONFIG, read_json
from cairn.seams import StorageBackend
from cairn.settings_files import check_choice, laid_over

SECTION_NAMES = ("all", *SECTIONS)
SOURCE_SCOPES = ("all", "local", "imports")
POLICIES = ("balanced", "imports-only", "local-only", "project-map-protected")

DEFAULTS: Mapping[str, Any] = {
    "recall": {
        "defaultSection": "all",
        "defaultSource": "all",
        "policy": "balanced",
        "backlogWarnThreshold": 10,
        "preview": {"showDiffByDefault": False},
    },
    "query": {
        "defaultOutput": "text",
        "templates": {
            "answer": {"instructions": "Answer from the evidence in a few sentences."},
            "changes": {"instructions": "Say what changed, newest first."},
            "next": {"instructions": "Say what to do next, where to start and when it is done."},
            "traps": {"instructions": "Name the trap, its cause and the way around it."},
        },
    },
    "automation": {
        "intervalMinutes": 15,
        "provider": "auto",
        "importSyncBeforeRecall": True,
        "autoRecall": True,
    },
    "retention": {
        "enabled": True,
        "history": {"maxAgeDays": 90},
        "checkpoints": {"maxAgeDays": 30, "keepRecent": 10},
        "archive": {"expireAfterDays": 180},
    },
    "binding": {"app": None, "project": None},
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "recall.defaultSection": SECTION_NAMES,
    "recall.defaultSource": SOURCE_SCOPES,
    "recall.policy": POLICIES,
    "query.defaultOutput": ("text", "json"),
    "automation.provider": ("auto", "none"),
}


@dataclass(frozen=True, slots=True)
class ProjectOptions:
    """The checked content of `config.json`, defaults filled in. Ask with a dotted name."""

    values: Mapping[str, Any]

    def get(self, dotted: str) -> Any:
        value: Any = self.values
        for key in dotted.split("."):
            value = value[key]
        return value

    def text(self, dotted: str, given: str | None = None) -> str:
        """The setting, or what a flag says for this run; either must be one of the known choices."""
        value = given if given is not None else self.get(dotted)
        allowed = _CHOICES[dotted]
        if value not in allowed:
            raise Invalid(
                f'{dotted.rpartition(".")[2]} "{value}" is not one of {", ".join(allowed)}.', field=dotted
            )
        return str(value)

    def number(self, dotted: str) -> float:
        return float(self.get(dotted))


def defaults() -> dict[str, Any]:
    """A fresh copy of the default settings."""
    return copy.deepcopy(dict(DEFAULTS))


def load(storage: StorageBackend) -> ProjectOptions:
    """Read `config.json`.

    Raises:
        Misconfigured: it is not JSON, or a value has the wrong kind; the message names the setting.
    """
    try:
        data = read_json(storage, CONFIG)
    except Invalid as error:
        raise Misconfigured(str(error), **error.facts) from None
    if data is not None and not isinstance(data, dict):
        raise Misconfigured(f"{CONFIG} must hold a JSON object.", setting=str(CONFIG))
    values = merged(data or {})
    for dotted, allowed in _CHOICES.items():
        section, _, key = dotted.partition(".")
        check_choice(values[section][key], allowed, dotted, str(CONFIG))
    return ProjectOptions(values)


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with `given` over them; unknown names and wrong kinds raise. A template may have any name."""
    base = defaults()
    query = given.get("query")
    templates = query.get("templates") if isinstance(query, dict) else None
    for name, template in templates.items() if isinstance(templates, dict) else ():
        if isinstance(template, dict):
            base["query"]["templates"].setdefault(name, dict.fromkeys(template))
    return laid_over(base, given, "", lambda _section, _key: str(CONFIG))


def settled(values: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """`values` with every choice that is not ours set to the default, each noted: what came from elsewhere must open."""
    for dotted, allowed in _CHOICES.items():
        section, _, key = dotted.partition(".")
        value = values[section][key]
        if value not in allowed:
            default = DEFAULTS[section][key]
            notes.append(f'{dotted} = "{value}" is not one of {", ".join(allowed)}; it is "{default}" here')
            values[section][key] = default
    return values
