"""Storage in a folder that a sync program shares between machines (Dropbox, iCloud, Syncthing, ...).

Nothing of ours that must not travel lies in the folder: the mutex between writers of this machine lives in
the local cache. Between machines there is no lock at all; there the sync program makes conflict copies, which
`cairn.notes.conflicts` finds and merges.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from cairn.config import Settings
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.refusals import encoded
from cairn.engines.tree import translating
from cairn.errors import Conflict, Invalid, Unavailable
from cairn.seams import Capabilities, Locator, content_hash, registry

__all__ = ["PROTOCOL", "VaultBackend", "VaultMutex", "locks_directory"]

PROTOCOL = "vault"
DEFAULT_CACHE = "~/.cache/cairn"


def locks_directory(root: str | os.PathLike[str], cache: str | os.PathLike[str] = DEFAULT_CACHE) -> str:
    """Where everything that guards this tree lives: in the local cache, by the hash of the tree's real path.

    It holds the vault's mutex (`lock`); a `FileLocks` for the same tree belongs in `names` below it.
    """
    real = os.path.realpath(os.path.expanduser(os.fspath(root)))
    directory = os.path.join(
        os.path.realpath(os.path.expanduser(os.fspath(cache))),
        "locks",
        hashlib.sha256(os.fsencode(real)).hexdigest(),
    )
    if os.path.commonpath([real, directory]) == real:
        raise Invalid("The cache lies inside the synced folder; locks there would travel. Choose another.")
    return directory


class VaultMutex:
    """One writer at a time per tree, by a directory that exists while it is held.

    The holder touches the directory every `heartbeat_seconds`; one untouched for `stale_seconds` belongs to a
    writer that died and is taken over. Because a sleeping writer looks dead too, taking over and the last
    step of a write both happen under a short `flock`: a writer that lost the mutex finds out before it
    renames anything. Whoever waits leaves a file that says so; who comes later and finds the mutex free lets them go
    first, once.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        timeout_seconds: float = 10.0,
        stale_seconds: float = 10.0,
        heartbeat_seconds: float = 5.0,
    ) -> None:
        self._home = os.fspath(directory)
        self._lock = os.path.join(self._home, "lock")
        self._wanted = os.path.join(self._home, "wanted")
        self._timeout, self._stale, self._beat = timeout_seconds, stale_seconds, heartbeat_seconds
        self._thread_lock = threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[str]:
        """Hold the mutex; yields the token of this holding. Raises `Unavailable` when it cannot be had in time."""
        until = time.monotonic() + self._timeout
        if not self._thread_lock.acquire(timeout=self._timeout):
            raise self._too_late()
        try:
            token = self._acquire(until)
            done = threading.Event()
            heart = threading.Thread(target=self._keep_alive, args=(token, done), daemon=True)
            heart.start()
            try:
                yield token
            finally:
                done.set()
                heart.join()
                self._release(token)
        finally:
            self._thread_lock.release()

    @contextmanager
    def still_held(self, token: str) -> Iterator[None]:
        """Run the block knowing that nobody takes over meanwhile. Raises `Conflict` if somebody has already."""
        with self._guarded():
            if not self._is_mine(token):
                raise Conflict(
                    "Another writer took over this vault while this one slept. Read again and retry."
                )
            yield

    def _acquire(self, until: float) -> str:
        token = uuid.uuid4().hex
        nap = 0.0005
        has_waited = False
        while True:
            with translating("the vault's mutex"):
                if self._try(token):
                    if not self._is_wanted() or has_waited:
                        return token
                    self._release(token)
                    has_waited = True
                    time.sleep(0.01)
                    continue
                self._take_over_if_stale()
                with suppress(FileNotFoundError):
                    os.close(os.open(self._wanted, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            if time.monotonic() >= until:
                raise self._too_late()
            has_waited = True
            time.sleep(nap * random.uniform(0.5, 1.0))
            nap = min(nap * 1.5, 0.005)

    def _is_wanted(self) -> bool:
        """Whether somebody waits; whoever still does says so again."""
        try:
            os.unlink(self._wanted)
        except FileNotFoundError:
            return False
        return True

    def _try(self, token: str) -> bool:
        try:
            os.mkdir(self._lock, 0o700)
        except FileExistsError:
            return False
        except FileNotFoundError:
            os.makedirs(self._home, mode=0o700, exist_ok=True)
            return False
        # Should the holder die before the next line, the empty directory goes stale like any other.
        os.close(
            os.open(
                os.path.join(self._lock, token), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600
            )
        )
        return True

    def _take_over_if_stale(self) -> None:
        if self._age() < self._stale:
            return
        with self._guarded():
            # Looked at again: another may have taken over, and be alive, since the first look.
            if self._age() >= self._stale:
                self._clear()

    def _age(self) -> float:
        try:
            return time.time() - os.stat(self._lock).st_mtime
        except FileNotFoundError:
            return 0.0

    def _keep_alive(self, token: str, done: threading.Event) -> None:
        while not done.wait(self._beat):
            with suppress(OSError), self._guarded():
                if self._is_mine(token):
                    os.utime(self._lock)

    def _release(self, token: str) -> None:
        with translating("the vault's mutex"), self._guarded():
            if self._is_mine(token):
                self._clear()

    def _is_mine(self, token: str) -> bool:
        return os.path.exists(os.path.join(self._lock, token))

    def _clear(self) -> None:
        with suppress(FileNotFoundError):
            for name in os.listdir(self._lock):
                os.unlink(os.path.join(self._lock, name))
            os.rmdir(self._lock)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        file = os.open(os.path.join(self._home, "guard"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _too_late(self) -> Unavailable:
        return Unavailable(
            f"The vault was not free within {self._timeout:g} s: another writer is at work. Try again."
        )


class VaultBackend(DeviceLocalBackend):
    """A local tree that several writers and a sync program share.

    A write takes the mutex, hashes what is there, puts the new text safely beside it, hashes again and only
    then renames: an edit that arrives meanwhile is a `Conflict`. That covers one call. A caller that reads,
    thinks and writes passes `expect=`, or the first of two such callers loses its change.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        cache: str | os.PathLike[str] = DEFAULT_CACHE,
        timeout_seconds: float = 10.0,
        stale_seconds: float = 10.0,
        heartbeat_seconds: float = 5.0,
        max_bytes: int = 0,
    ) -> None:
        directory = locks_directory(root, cache)
        super().__init__(root, max_bytes=max_bytes)
        self._mutex = VaultMutex(
            directory,
            timeout_seconds=timeout_seconds,
            stale_seconds=stale_seconds,
            heartbeat_seconds=heartbeat_seconds,
        )

    @classmethod
    def from_settings(cls, settings: Settings) -> VaultBackend:
        return cls(settings.root, cache=settings.cache_dir, max_bytes=settings.storage.max_note_bytes)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=True, conflict_files=True, encryption=False, sync=True)

    @property
    def conflict_strategy(self) -> str:
        return "whole-file"

    def read_version(self, locator: Locator) -> tuple[str, str]:
        """The text and its content's hash: the times of synced files lie."""
        text = self.read(locator)
        return text, content_hash(text)

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        data = encoded(locator.key, content)
        with self._mutex.hold() as token, translating(locator.key):
            seen = self._hash(locator) if expect is None else expect
            self._tree.replace(
                locator,
                data,
                partial(self._expect, locator, seen),
                during=self._mutex.still_held(token),
            )
        return locator

    def remove(self, locator: Locator) -> None:
        with self._mutex.hold():
            super().remove(locator)

    def _hash(self, locator: Locator) -> str:
        with self._tree.parent(locator, make=True) as (directory, name):
            return self._hash_at(directory, name, locator.key) if name else ""


registry.register(PROTOCOL, VaultBackend, clobber=True)
