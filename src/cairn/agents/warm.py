"""The warm process: holds a memory open for the hooks of coding agents. The first hook starts it; it ends
when idle.

    hook -> socket -> start, prompt: brief or recall -> one JSON line back
    cairn mcp      -> tool, pages: what the tool answers
                   -> drain: the spool is taken in, in the background, and each file removed when it is kept

One process a root (a lock decides), or the HTTP server of the root, where one runs. What hooks left in the spool while nobody was there is taken in at start.

It also ends when what it was opened with is another: `cairn.toml`, the installed model, this package. The next call starts one that has the new.

One that ends shuts its door first, so that whoever comes now starts another, then answers the calls it has taken, and closes
the memory last. A call that takes longer than that is not answered: whoever made it asks the next process.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import logging
import os
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cairn import version
from cairn.agents import cold, quick, tools
from cairn.agents.hook import answered, failed
from cairn.agents.hosts import HookEvent
from cairn.agents.link import ask, socket_path
from cairn.canonical import from_json
from cairn.config import Settings, load
from cairn.engines import minilm, spool
from cairn.errors import CairnError, Unavailable
from cairn.memory import Memory
from cairn.operations import recalling
from cairn.traffic import QUIET_SECONDS

log = logging.getLogger("cairn.agents")

IDLE_SECONDS = 20 * 60.0
SILENT_MINUTES = 10.0  # before this process ends for want of work
_LOOK_SECONDS = 5.0
_PROMPT_TOKENS = 600  # the most of what is told at a prompt
_SOON_SECONDS = 0.2
_SILENCE_SECONDS = 60.0
_LONGEST_LINE = 32 * 1024 * 1024
_FINISH_SECONDS = 20.0  # for calls that were taken before the door was shut
_LEAVING_SECONDS = 30.0  # for another process to be gone, or to answer
_LEAVING_LOOK_SECONDS = 0.05


class Warm:
    """Answers hooks over an open memory.

    Args:
        memory: The open memory.
        root: Its folder, for the spool.
        silent_minutes: After how long a silence a session is closed; None leaves that to the settings.
    """

    def __init__(
        self,
        memory: Memory,
        root: Path,
        *,
        silent_minutes: float | None = SILENT_MINUTES,
    ) -> None:
        self._silent_minutes = silent_minutes
        self.memory = memory
        self.root = root
        self._place = _place_of(root)
        self.last_call = time.monotonic()
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._drained = threading.Lock()
        self.dismissed = threading.Event()
        self.over = threading.Event()  # the memory is closed, or about to be
        self.ready = threading.Event()
        self.ready.set()

    def has_lost_its_root(self) -> bool:
        """Whether the folder that was opened lies there no longer: it was moved, or taken out.

        Then this ends before anything is written, which would make half a root in its place; a hook goes on alone.
        """
        if _place_of(self.root) == self._place:
            return False
        self.dismissed.set()
        return True

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one message of a hook."""
        self.last_call = time.monotonic()
        what = message.get("op")
        if what == "drain":
            self._wanted.set()
            return {"ok": True}
        if what == "close":
            self.drain()
            self.close_silent(0.0)
            return {"ok": True}
        if what == "end":
            self.dismissed.set()
            return {"ok": True}
        if what in {"start", "prompt"} and isinstance(message.get("event"), dict):
            try:
                return {"context": self._context(HookEvent.of(message["event"]))}
            finally:
                self._wanted.set()  # what was said is taken in once it is answered
        if what in {"tool", "pages"}:
            return self._early(message) or tools.reply(self.memory, message)
        return {"ok": what == "ping", "pid": os.getpid()}

    def _early(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What words alone tell while this is still being made ready; None where that is nothing, or it is."""
        if self.ready.is_set() or message.get("name") != "recall":
            return None
        folder = str(message.get("folder") or "")
        return cold.recalled(self.memory.settings, folder, message.get("arguments") or {})

    def hooked(self, host: str, sent: bytes) -> str:
        """What a hook prints for what its host sent."""
        try:
            with self.memory.parts.traffic:
                return answered(sent, host or None, self.memory.settings, lambda one, _: self.reply(one))
        except Exception as error:
            self._trouble(failed(error))
            return ""
        finally:
            self._wanted.set()  # what it kept may have come to the disk after its answer was found

    def _context(self, event: HookEvent) -> str:
        folder = event.folder or None
        try:
            if event.moment == "start":
                return self.memory.brief(agent_id=event.host, folder=folder).prompt
            settings = self.memory.settings
            if not self.ready.is_set() and (words := cold.told(settings, event.folder, event.prompt)):
                return words
            from cairn.agents.taking import repository_of

            limit = settings.server.max_query_chars
            return recalling.recall(
                self.memory.parts,
                event.prompt[:limit]
                .encode("utf-8", "replace")
                .decode(),  # half a character counts for nothing
                agent_id=event.host,
                folder=folder,
                token_budget=_PROMPT_TOKENS,
                method="hybrid" if self.memory.parts.embedder.is_at_hand() else "keyword",
                open_talk=False,  # a request like one of before is no answer to it
                more=repository_of(self.root, event),
            ).prompt
        except CairnError as error:
            self._trouble(f"recall failed: {error}")
            return ""

    def _trouble(self, words: str) -> None:
        """Have the next session say what went wrong; a call that the end of this process cut off is made again elsewhere.

        Where the root is gone nothing is noted: that would make half a root in its place.
        """
        if not self.over.is_set() and not self.has_lost_its_root():
            spool.trouble(self.root, words)

    def drain(self) -> int:
        """Take in what lies in the spool, oldest first; how many events were kept."""
        kept = 0
        with self._drained:
            for path, data in spool.waiting(self.root):
                if self._stopping.is_set():
                    break  # the next process goes on
                self.memory.parts.traffic.give_way(QUIET_SECONDS)
                try:
                    with self.memory.parts.local_locks.hold(spool.LOCK):
                        if spool.read(path) != data:
                            continue  # somebody forgot it, or part of it, meanwhile
                        self._take_in(data)
                except Unavailable as error:
                    self._trouble(f"a turn is not captured yet: {error}")
                    break
                except Exception as error:
                    if self.over.is_set():
                        break  # the memory was closed under it, which is no fault of the event
                    log.exception("hooks: %s", path.name)
                    os.replace(path, path.with_suffix(".broken"))
                    self._trouble(f"{path.name} was set aside: {type(error).__name__}: {error}")
                    continue
                path.unlink(missing_ok=True)
                kept += 1
        return kept

    def _take_in(self, data: dict[str, Any]) -> None:
        """Keep what one event of a hook says."""
        from cairn.agents.taking import take_in  # a server at its start has no hook to answer yet

        take_in(self.memory, HookEvent.of(data))

    def drain_until_stopped(self) -> None:
        looked = float("-inf")
        while not self._stopping.is_set():
            self._wanted.wait(_SILENCE_SECONDS)
            self._wanted.clear()
            self.drain()
            if time.monotonic() - looked >= _SILENCE_SECONDS:  # it looks at every session there is
                self.close_silent(self._silent_minutes)
                looked = time.monotonic()

    def close_silent(self, minutes: float | None) -> None:
        """Close the sessions that have sent nothing for so long, so that what was said there is recalled."""
        try:
            self.memory.parts.capture.close_silent(minutes)
        except CairnError as error:
            self._trouble(f"a silent session is not closed yet: {error}")

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()


def _place_of(root: Path) -> tuple[int, int] | None:
    """Which folder lies there; None for none."""
    try:
        found = root.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Handler(socketserver.StreamRequestHandler):
    timeout = 5.0
    warm: Warm

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self.warm.has_lost_its_root():
                return
            line = self.rfile.readline(_LONGEST_LINE)
            if line.startswith(quick.SENT):
                host = line[len(quick.SENT) :].decode("utf-8", "replace").strip()
                out = self.warm.hooked(host, self.rfile.read(quick.MAX_INPUT))
                self._tell(quick.TOLD + out.encode("utf-8", "surrogatepass"))
                return
            message = from_json(line)
            answer = self.warm.reply(message if isinstance(message, dict) else {})
            self._tell(json.dumps(answer).encode("utf-8", "surrogatepass") + b"\n")

    def _tell(self, answer: bytes) -> None:
        if not self.warm.over.is_set():  # else it may speak of a memory that was closed under it
            self.wfile.write(answer)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._calls = 0
        self._fewer = threading.Condition()

    def process_request_thread(self, *args: Any) -> None:
        try:
            super().process_request_thread(*args)
        finally:
            self._count(-1)

    def process_request(self, *args: Any) -> None:
        self._count(1)  # by the thread that takes calls, so that none is overlooked
        try:
            super().process_request(*args)
        except BaseException:
            self._count(-1)
            raise

    def _count(self, more: int) -> None:
        with self._fewer:
            self._calls += more
            self._fewer.notify_all()

    def shut(self) -> None:
        """Take no more calls; whoever has come and is not served yet is sent away."""
        self.shutdown()
        self.server_close()

    def finish(self, seconds: float) -> None:
        """Wait for the calls that were taken."""
        with self._fewer:
            self._fewer.wait_for(lambda: not self._calls, seconds)


@contextlib.contextmanager
def _alone(at: Path) -> Iterator[bool]:
    """Whether this is the only warm process of the root; the lock goes with the process."""
    at.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if at.parent.stat().st_uid != os.getuid():
        yield False
        return
    handle = os.open(at.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(handle)


@contextlib.contextmanager
def answering(memory: Memory, *, silent_minutes: float | None = None) -> Iterator[Warm | None]:
    """Answer the hooks and the MCP servers of this user over the root's socket; None where another process does."""
    root = memory.settings.root
    at = socket_path(root)
    with contextlib.ExitStack() as alone:
        if not alone.enter_context(_alone(at)):
            yield None
            return
        warm = Warm(memory, root, silent_minutes=silent_minutes)
        at.unlink(missing_ok=True)
        server = _Server(str(at), type("Handler", (_Handler,), {"warm": warm}))
        alone.callback(server.server_close)
        at.chmod(0o600)
        listening = threading.Thread(target=server.serve_forever, name="cairn-hooks", daemon=True)
        taking = threading.Thread(target=warm.drain_until_stopped, name="cairn-spool", daemon=True)
        listening.start()
        taking.start()
        warm.wake()
        try:
            yield warm
        finally:
            at.unlink(missing_ok=True)
            server.shut()
            alone.close()  # another may serve from here on
            server.finish(_FINISH_SECONDS)
            warm.stop()
            taking.join(30.0)
            warm.over.set()


def _opened_with(settings: Settings) -> tuple[object, ...]:
    """What a process reads once, at its start."""
    files = (settings.root / "cairn.toml", Path(version.__file__))
    return (*map(_stamp_of, files), minilm.installed(settings.models_dir))


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_served(root: Path) -> bool:
    """Whether another process answers for the root; one that is leaving is waited for."""
    until = time.monotonic() + _LEAVING_SECONDS
    while True:
        with _alone(socket_path(root)) as free:
            if free:
                return False
        if ask(root, {"op": "ping"}, 1.0) is not None or time.monotonic() > until:
            return True
        time.sleep(_LEAVING_LOOK_SECONDS)


def serve(root: Path, *, idle_seconds: float = IDLE_SECONDS) -> int:
    """Answer hooks until nobody has asked for `idle_seconds`."""
    settings = load(root)
    opened_with = _opened_with(settings)
    if _is_served(settings.root):
        return 0  # before anything is opened
    with Memory(settings) as memory, answering(memory, silent_minutes=SILENT_MINUTES) as warm:
        if warm is not None:
            warm.ready.clear()  # until then words alone tell what they can
            import cairn.agents.taking  # noqa: F401 -- loaded while nobody waits, as the model is

            memory.parts.embedder()
            if not warm.dismissed.wait(_SOON_SECONDS):
                with contextlib.suppress(CairnError):
                    memory.find("ready", limit=1)  # and what else the first question needs
            gc.collect()
            gc.freeze()  # what the start made stays: no prompt waits while it is walked again
            warm.ready.set()
            while time.monotonic() - warm.last_call < idle_seconds and not warm.has_lost_its_root():
                if warm.dismissed.wait(min(_LOOK_SECONDS, idle_seconds / 4)):
                    break
                if _opened_with(settings) != opened_with:
                    break
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cairn-warm", description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    options = parser.parse_args(argv)
    try:
        return serve(Path(options.root), idle_seconds=options.idle_seconds)
    except (CairnError, OSError) as error:
        spool.trouble(Path(options.root), f"the warm process could not start: {error}")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
