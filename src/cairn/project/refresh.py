"""Bringing a bundle up to date with the repository without losing what was learned or corrected.

A three-way merge: what the repository said last time, what the bundle holds now, what the repository says
today. A value that still equals last time's evidence follows today's; a value someone changed stays. An entry
a person took out does not come back just because its evidence is still there.
"""

from __future__ import annotations

import copy
from typing import Any

from cairn.project.bundle import Bundle, checked
from cairn.project.consolidate import MAX_LINES, deduped, same_gotcha, same_step

_KEYS = ("title", "path", "label", "name")


def refreshed(base: Bundle | None, mine: Bundle, theirs: Bundle) -> Bundle:
    """`mine` with what changed from `base` to `theirs`; without a base, lists join and `mine` wins."""
    if base is None:
        base = {key: {} if isinstance(value, dict) else [] for key, value in theirs.items()}
    out: Bundle = {key: _merged(base.get(key), mine[key], theirs[key]) for key in theirs}
    focus, old, now = out["currentFocus"], base.get("currentFocus") or {}, theirs["currentFocus"]
    # News is not a correction: the newest sentence about the present wins.
    focus["summary"] = (
        now["summary"] if now["summary"] != old.get("summary") else mine["currentFocus"]["summary"]
    )
    for key in ("currentState", "knownRisks"):
        kept = [line for line in mine["currentFocus"][key] if line not in old.get(key, [])]
        focus[key] = list(dict.fromkeys([*now[key], *kept]))[:MAX_LINES]
    out["gotchas"] = deduped(out["gotchas"], same_gotcha)[0]
    out["nextSteps"] = deduped(out["nextSteps"], same_step)[0]
    out["validationCommands"] = out["validationCommands"][:2]
    return checked(out)


def three_way(base: Bundle, mine: Bundle, theirs: Bundle) -> Bundle:
    """What changed from `base` to `mine`, applied to `theirs`."""
    return checked({key: _merged(base[key], mine[key], theirs[key]) for key in theirs})


def _merged(base: Any, mine: Any, theirs: Any) -> Any:
    if mine == base:
        return copy.deepcopy(theirs)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        known = base if isinstance(base, dict) else {}
        return {key: _merged(known.get(key), mine.get(key, theirs[key]), theirs[key]) for key in theirs}
    if isinstance(mine, list) and isinstance(theirs, list):
        return _merged_list(base if isinstance(base, list) else [], mine, theirs)
    return copy.deepcopy(mine)


def _merged_list(base: list[Any], mine: list[Any], theirs: list[Any]) -> list[Any]:
    before, today = {_name(item): item for item in base}, {_name(item): item for item in theirs}
    out = []
    for item in mine:
        name = _name(item)
        if name in today:
            out.append(_merged(before.get(name), item, today[name]) if isinstance(item, dict) else item)
        elif before.get(name) != item:
            out.append(item)
    held = {_name(item) for item in mine}
    return out + [item for name, item in today.items() if name not in held and name not in before]


def _name(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return next((str(item[key]) for key in _KEYS if key in item), str(item))
