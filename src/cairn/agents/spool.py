"""Events of hooks on their way into memory: one small file each, durable before the hook returns.

    <root>/.hooks/<time>-<pid>-<n>.json     an event that is still to be taken in
    <root>/.hooks/troubles.jsonl            what went wrong since a session was last begun

The hook writes, the warm process takes in and removes. Nothing else touches the folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_TROUBLE_BYTES = 65_536


def folder(root: Path) -> Path:
    return root / ".hooks"


def put(root: Path, event: dict[str, Any]) -> Path:
    """Keep one event; it is on disk when this returns."""
    at = folder(root)
    at.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    made = at / f".{name}.tmp"
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, json.dumps(event).encode("utf-8", "surrogatepass"))
        os.fsync(handle)
    finally:
        os.close(handle)
    target = at / name
    os.rename(made, target)
    return target


def waiting(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The events that are still to be taken in, oldest first; a broken file is set aside."""
    at = folder(root)
    names = sorted(name for name in os.listdir(at) if name.endswith(".json")) if at.is_dir() else []
    for name in names:
        path = at / name
        try:
            event = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            with_name = path.with_suffix(".broken")
            os.replace(path, with_name)
            trouble(root, f"{name} could not be read and was set aside")
            continue
        if isinstance(event, dict):
            yield path, event


def trouble(root: Path, words: str) -> None:
    """Note that something went wrong, for the next session to say; never raises."""
    try:
        at = folder(root)
        at.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = at / "troubles.jsonl"
        if path.exists() and path.stat().st_size > _MOST_TROUBLE_BYTES:
            return
        line = json.dumps({"at": int(time.time()), "trouble": words[:500]}) + "\n"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
    except OSError:
        return


def take_troubles(root: Path) -> list[str]:
    """What went wrong since this was last asked, each once; it is said only once."""
    path = folder(root) / "troubles.jsonl"
    try:
        aside = path.with_suffix(f".{os.getpid()}")
        os.rename(path, aside)
        lines = aside.read_text("utf-8", "replace").splitlines()
        aside.unlink()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(str(json.loads(line)["trouble"]))
        except (ValueError, KeyError, TypeError):
            continue
    return list(dict.fromkeys(found))
