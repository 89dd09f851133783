"""`cairn hook`: what a coding agent calls at the start of a session, at each prompt and after each turn.

    stdin (JSON of the host) -> HookEvent -> capture moments: one file in the spool -> a word to the warm process
                                          -> start, prompt: ask the warm process, print its context

It fails open: whatever happens, it prints nothing or one JSON object, exits with 0, and what went wrong is said
at the next start of a session. Where the warm process (`warm.py`) runs, all of this is done there, and the hook is the
small client `quick.py`; where it does not, the hook does it here and starts it. It ends when idle.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.agents import quick
from cairn.agents.hosts import HookEvent, answer, read_event
from cairn.agents.link import ask, start_warm
from cairn.canonical import from_json, storable
from cairn.engines import spool
from cairn.errors import CairnError, Invalid

if TYPE_CHECKING:
    from cairn.config import Settings

Tell = Callable[[dict[str, Any], float], dict[str, Any] | None]
"""Tells the warm process something and gives its answer; None where there is none in time."""

OFF_SWITCH = Path(".cairn/agents-off")


def main(argv: Sequence[str], sent: bytes, *, alone: bool = False) -> int:
    """Run one hook; always 0.

    Args:
        argv: The options.
        sent: What the host sent.
        alone: The warm process was asked already and is too slow to wait for.
    """
    root = None
    try:
        if os.environ.get("CAIRN_DISABLE") == "1":
            return 0
        from cairn.config import load, root_named

        named, host = quick.option(argv, "--root"), quick.option(argv, "--host")
        try:
            settings = load(named)
        except CairnError as error:
            root = root_named(named)
            out = put_away(sent, host, root, error)
        else:
            root = settings.root
            tell: Tell = (lambda _message, _seconds: None) if alone else partial(ask, root)
            out = answered(sent, host, settings, tell)
        if out:
            sys.stdout.write(out)
            sys.stdout.flush()
    except BaseException as error:
        if root is not None:
            spool.trouble(root, failed(error))
    return 0


def failed(error: BaseException) -> str:
    """What is said of a hook that failed; an error of ours speaks for itself."""
    name = "" if isinstance(error, CairnError) else f"{type(error).__name__}: "
    return f"a hook failed: {name}{error}"


def answered(sent: bytes, host: str | None, settings: Settings, tell: Tell) -> str:
    """What a hook prints for what its host sent, with the line end; "" for nothing."""
    event = _event_in(sent, host)
    if event is None:
        return ""
    if settings.keeping.secrets != "allow":
        event = without_credentials(event)
    out = answer(event, act(settings, event, tell))
    return out + "\n" if out else ""


def put_away(sent: bytes, host: str | None, root: Path, error: CairnError) -> str:
    """The same where the settings cannot be read: what was said waits in the spool, and a start says why."""
    event = _event_in(sent, host)
    if event is None:
        return ""
    if event.moment == "start":
        words = f"Memory is not open: {error} What is said is kept, and taken in once that is mended."
        return answer(event, words) + "\n"
    if event.session:
        spool.put(root, without_credentials(event).to_json())
    return ""


def _event_in(sent: bytes, host: str | None) -> HookEvent | None:
    """What a host tells; None where that is nothing of ours, or agents are switched off there."""
    from cairn.types import with_texts

    try:
        data = with_texts(from_json(sent or b"{}"), storable)
    except ValueError as error:
        long = len(sent) >= quick.MAX_INPUT
        what = f"more than {quick.MAX_INPUT >> 20} MB" if long else f"no JSON ({error})"
        raise Invalid(f"what the agent sent is {what}; it is left out") from None
    event = read_event(data, host or "auto") if isinstance(data, dict) else None
    return None if event is None or is_switched_off(event.folder) else event


def without_credentials(event: HookEvent) -> HookEvent:
    """The event as it may be written: a spool is a file like any other."""
    from cairn.governed.secrets import redact
    from cairn.types import with_texts

    places = ("host", "name", "moment", "folder", "transcript")
    cleaned: HookEvent = with_texts(event, lambda text: redact(text).text, skip=places)
    return cleaned


def act(settings: Settings, event: HookEvent, tell: Tell) -> str:
    """Capture what was said, or find what helps with what is asked; the context to show, "" for none."""
    root = settings.root
    if event.moment in {"turn", "compact", "end"}:
        if event.session:
            spool.put(root, event.to_json())
            if tell({"op": "drain"}, 0.2) is None:
                start_warm(root)
        return ""
    if event.moment == "prompt" and not event.prompt.strip():
        return ""  # an image alone: its turn is captured, and there are no words to look for
    is_kept = event.moment == "prompt" and bool(event.session)
    with spool.putting(root, event.to_json()) if is_kept else nullcontext():
        seconds = quick.START_SECONDS if event.moment == "start" else quick.PROMPT_SECONDS
        told = tell({"op": event.moment, "event": event.to_json()}, seconds)
        if told is None:
            start_warm(root)
            told = {"context": _cold(settings, event)}
    context = str(told.get("context", ""))
    if event.moment == "start":
        troubles = [one for one in (spool.blocked(root), *spool.take_troubles(root)) if one]
        if troubles:
            context += "\nMemory had trouble since the last session: " + "; ".join(troubles[:5])
    return context.strip()


def _cold(settings: Settings, event: HookEvent) -> str:
    """What can be said before the warm process is up: promoted memories at a start, words alone at a prompt."""
    from cairn.agents import cold

    if event.moment == "start":
        return cold.brief(settings.root)
    return cold.told(settings, event.folder, event.prompt)


def is_switched_off(folder: str) -> bool:
    """Whether the repository that `folder` is in says that no agent's memory is wanted."""
    if not folder:
        return False
    place = Path(folder)
    return any((tree / OFF_SWITCH).exists() for tree in (place, *place.parents, *_main_tree(place)))


def _main_tree(place: Path) -> list[Path]:
    """The work tree of a repository whose further work tree `place` is in; none where there is no such."""
    link = next((one for parent in (place, *place.parents) if (one := parent / ".git").exists()), None)
    if link is None or not link.is_file():
        return []
    try:
        own = (link.parent / os.fsdecode(link.read_bytes()).removeprefix("gitdir:").strip()).resolve()
    except (OSError, ValueError):  # closed to us, or damaged: it names no other tree, and costs no turn
        return []
    common = own.parent.parent
    return [common.parent] if own.parent.name == "worktrees" and common.name == ".git" else []
