"""`cairn hook`: what a coding agent calls at the start of a session, at each prompt and after each turn.

    stdin (JSON of the host) -> HookEvent -> capture moments: one file in the spool -> a word to the warm process
                                          -> start, prompt: ask the warm process, print its context

It fails open: whatever happens, it prints nothing or one JSON object, exits with 0, and what went wrong is said
at the next start of a session. Little more than the standard library is imported, so that a prompt waits for one
small process; the warm process (`warm.py`) holds the memory open, is started where it is not there, and ends when idle.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.agents import spool
from cairn.agents.hosts import HookEvent, answer, read_event
from cairn.agents.link import ask, start_warm

if TYPE_CHECKING:
    from cairn.config import Settings

_MAX_INPUT = 16 * 1024 * 1024
_PROMPT_SECONDS = 1.5
_START_SECONDS = 4.0
OFF_SWITCH = Path(".cairn/agents-off")


def main(argv: Sequence[str]) -> int:
    """Run one hook; always 0."""
    root = None
    try:
        if os.environ.get("CAIRN_DISABLE") == "1":
            return 0
        data = json.loads(sys.stdin.buffer.read(_MAX_INPUT) or b"{}")
        event = read_event(data, _option(argv, "--host") or "auto") if isinstance(data, dict) else None
        if event is None or is_switched_off(event.folder):
            return 0
        settings = settings_of(_option(argv, "--root"))
        root = settings.root
        if settings.keeping.secrets != "allow":
            event = without_credentials(event)
        out = answer(event, act(root, event, settings.memory.person))
        if out:
            sys.stdout.write(out + "\n")
            sys.stdout.flush()
    except BaseException as error:
        if root is not None:
            spool.trouble(root, f"a hook failed: {type(error).__name__}: {error}")
    return 0


def without_credentials(event: HookEvent) -> HookEvent:
    """The event as it may be written: a spool is a file like any other."""
    from cairn.governed.secrets import redact
    from cairn.types import with_texts

    places = ("host", "name", "moment", "folder", "transcript")
    cleaned: HookEvent = with_texts(event, lambda text: redact(text).text, skip=places)
    return cleaned


def act(root: Path, event: HookEvent, person: str) -> str:
    """Capture what was said, or find what helps with what is asked; the context to show, "" for none."""
    if event.moment in {"turn", "compact", "end"}:
        if event.session:
            spool.put(root, event.to_json())
            if ask(root, {"op": "drain"}, 0.2) is None:
                start_warm(root)
        return ""
    if event.moment == "prompt" and event.session and event.prompt:
        spool.put(root, event.to_json())
    seconds = _START_SECONDS if event.moment == "start" else _PROMPT_SECONDS
    told = ask(root, {"op": event.moment, "event": event.to_json()}, seconds)
    if told is None:
        start_warm(root)
        told = {"context": _cold(root, event, person)}
    context = str(told.get("context", ""))
    if event.moment == "start":
        troubles = spool.take_troubles(root)
        if troubles:
            context += "\nMemory had trouble since the last session: " + "; ".join(troubles[:5])
    return context.strip()


def _cold(root: Path, event: HookEvent, person: str) -> str:
    """What can be said before the warm process is up: promoted memories at a start, words alone at a prompt."""
    from cairn.agents import cold

    return cold.brief(root) if event.moment == "start" else cold.by_words(root, person, event.prompt)


def is_switched_off(folder: str) -> bool:
    """Whether the repository that `folder` is in says that no agent's memory is wanted."""
    if not folder:
        return False
    place = Path(folder)
    return any((parent / OFF_SWITCH).exists() for parent in (place, *place.parents))


def settings_of(named: str | None) -> Settings:
    """The settings of this user's memory, from the option, the environment and the settings files."""
    from cairn.config import load

    return load(named)


def _option(argv: Sequence[str], name: str) -> str | None:
    for number, word in enumerate(argv):
        if word == name and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None
