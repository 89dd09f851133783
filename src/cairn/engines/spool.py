"""Hook events on disk until they are taken in: one small file each, flushed before the hook returns.

    <root>/.hooks/<time>-<pid>-<n>.json     an event that is still to be taken in
    <root>/.hooks/<time>-<pid>-<n>.broken   one that cannot be taken in, set aside
    <root>/.hooks/read/<session, hashed>    how far a transcript was read, hashes of words that came before it, what was kept last
    <root>/.hooks/written/<host>-*.json     what an integration has written into a coding agent's settings
    <root>/.hooks/troubles.jsonl            what went wrong since a session was last begun

The hook writes, the warm process takes in and removes. Who forgets somebody takes what waits of them out of it, while
he holds the lock `LOCK`; whoever takes an event in holds it, too, and looks at the event once more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cairn.canonical import from_json, objects_in
from cairn.engines import plain

LOCK = "hooks"
_MOST_TROUBLE_BYTES = 65_536


def folder(root: Path) -> Path:
    return root / ".hooks"


def prepared(root: Path) -> Path:
    """The same, made where it is not there; a hook may be the first to need the root, which is its owner's alone then, too."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = folder(root)
    at.mkdir(mode=0o700, exist_ok=True)
    return at


def put(root: Path, event: dict[str, Any]) -> Path:
    """Keep one event; it is on disk when this returns."""
    target = prepared(root) / f"{time.time_ns():020d}-{os.getpid()}.json"
    _write(target, event)
    return target


@contextmanager
def putting(root: Path, event: dict[str, Any]) -> Iterator[None]:
    """Keep one event beside something else, since a disk may take its time; it is on disk when this ends."""
    failed: list[Exception] = []

    def keep() -> None:
        try:
            put(root, event)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


def _write(target: Path, event: dict[str, Any]) -> None:
    plain.put(target, json.dumps(event).encode("utf-8", "surrogatepass"))


def session_of(event: dict[str, Any]) -> str:
    """The session of the memory that an event belongs to."""
    return f"{event.get('host', '')}-{event.get('session', '')}"[:128]


def cursor(root: Path, session: str) -> Path:
    """Where it is noted how far the transcript of a session was read."""
    import hashlib  # a hook that only puts an event away does without

    name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return folder(root) / "read" / name


def last_kept(root: Path) -> dict[str, Any] | None:
    """What was last taken in of a coding agent: `at` (seconds), `agent`, `app_id`, `project_id`; None before the first."""
    newest: dict[str, Any] | None = None
    for written, path in _sessions(root):
        if newest is not None and written < newest["at"]:  # a file is never older than what it tells
            break
        try:
            found = (read(path) or {})["kept"]
            at = float(found["at"])
            told = {"at": at, **{name: str(found[name]) for name in ("agent", "app_id", "project_id")}}
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= at <= written + 1 and (newest is None or at > newest["at"]):
            newest = told
    return newest


def _sessions(root: Path) -> list[tuple[float, Path]]:
    at = folder(root) / "read"
    try:
        with os.scandir(at) as entries:
            files = [(one.stat(follow_symlinks=False).st_mtime, at / one.name) for one in entries]
    except OSError:
        return []
    return sorted(files, reverse=True)


def integrated(root: Path) -> list[str]:
    """The coding agents whose settings were written for this root."""
    at = folder(root) / "written"
    return sorted({path.name.partition("-")[0] for path in at.glob("*.json")}) if at.is_dir() else []


def kept(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Everything that lies here with words in it: events, half written and broken ones, what was said of trouble.

    What cannot be read as an event is given as `{"text": ...}`.
    """
    at = folder(root)
    for name in sorted(os.listdir(at)) if at.is_dir() else ():
        event = read(at / name)
        if event is not None:
            yield at / name, event


def read(path: Path) -> dict[str, Any] | None:
    """What a file here holds, as `kept` gives it; None for a folder, and for what was taken in meanwhile."""
    try:
        raw = plain.read(path)
    except OSError:
        return None
    try:
        event = from_json(raw)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"text": raw.decode("utf-8", "replace")}


def clean(root: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> int:
    """Put `change(event)` in the place of each (None: it goes); how many became others. The caller holds `LOCK`.

    What cannot be read as an event goes where it would become another.
    """
    changed = 0
    for path, event in kept(root):
        made = change(event)
        if made == event:
            continue
        changed += 1
        if made is None or "text" in event:
            path.unlink(missing_ok=True)
        else:
            _write(path, made)
    return changed


def forget_marks(root: Path, session: str) -> None:
    """Keep how far the transcript of a session was read, so that it is not read again, and no hash of its words."""
    path = cursor(root, session)
    try:
        at = int(from_json(plain.read(path))["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    _write(path, {"at": at, "early": [], "seen": []})


def waiting(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The events that are still to be taken in, oldest first; a broken file is set aside."""
    at = folder(root)
    names = sorted(name for name in os.listdir(at) if name.endswith(".json")) if at.is_dir() else []
    for name in names:
        path = at / name
        try:
            event = from_json(plain.read(path))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            with_name = path.with_suffix(".broken")
            os.replace(path, with_name)
            trouble(root, f"{name} could not be read and was set aside")
            continue
        if isinstance(event, dict):
            yield path, event


def aside(root: Path) -> list[Path]:
    """The events that could not be taken in."""
    at = folder(root)
    return sorted(at.glob("*.broken")) if at.is_dir() else []


def try_again(root: Path) -> list[str]:
    """Have the events that were set aside taken in again, as far as they can be read at all; the names they have now."""
    again = []
    for path in aside(root):
        if "text" not in (read(path) or {"text": ""}):
            path.rename(path.with_suffix(".json"))
            again.append(path.with_suffix(".json").name)
    return again


def trouble(root: Path, words: str) -> None:
    """Note that something went wrong, for the next session to say; never raises."""
    try:
        path = prepared(root) / "troubles.jsonl"
        if path.exists() and path.stat().st_size > _MOST_TROUBLE_BYTES:
            return
        line = json.dumps({"at": int(time.time()), "trouble": words[:500]}) + "\n"
        handle = plain.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
    except OSError:
        return


def blocked(root: Path) -> str:
    """Why nothing can be kept here, "" where it can: then no trouble could be noted either."""
    at = folder(root)
    probe = at / f".probe.{os.getpid()}"
    try:
        prepared(root)
        try:
            probe.write_bytes(b" " * 4096)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return f"nothing can be kept in {at}: {error.strerror or error}"
    return ""


def take_troubles(root: Path) -> list[str]:
    """What went wrong since this was last asked, each once; it is said only once."""
    path = folder(root) / "troubles.jsonl"
    try:
        aside = path.with_suffix(f".{os.getpid()}")
        os.rename(path, aside)
        try:
            lines = plain.read(aside).decode("utf-8", "replace").splitlines()
        finally:
            aside.unlink()
    except OSError:
        return []
    return list(dict.fromkeys(str(one["trouble"]) for one in objects_in(lines) if "trouble" in one))
