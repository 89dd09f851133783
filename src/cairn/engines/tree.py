"""A directory in which every path is opened relative to its parent without following links, so nothing leaves
it.

Every place is reached by walking from the root one segment at a time, each step relative to the directory
before it and refusing to follow a link. So a symbolic link below the root, planted early or swapped in at the
last moment, is met as an error before anything is made or read; there is no gap between check and use.

Everything here speaks POSIX (`openat`, `O_NOFOLLOW`, directory flush). Errors of the system are translated at
this edge: messages carry the key, never a path of the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache

from cairn.engines.refusals import folder_at, nothing_at
from cairn.errors import CairnError, Invalid, InvalidLocatorError, NotFound, RootGone, StorageFailed
from cairn.seams import Locator, checked_new_name
from cairn.seams.storage import MAX_SEGMENT_BYTES

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _ROOT | os.O_NOFOLLOW
# O_NONBLOCK: opening a pipe somebody left in the tree must not hang.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_UNUSABLE_NAME = re.compile("[\\\\\x00-\x1f\x7f\ud800-\udfff]")
_TEMP_MARK = ".tmp."
_TEMP_NAME = re.compile(r"\..*\.tmp\.[0-9a-f]{32}", re.DOTALL)
_TWIN_CACHE = 64
_BLOCK = 4096
_ATTEMPTS = 40

_TROUBLE = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EROFS: "the file system is read-only; make it writable and try again",
    errno.EACCES: "permission was denied; check the owner and mode of the folder",
    errno.EPERM: "the operation is not permitted; check the owner and mode of the folder",
    errno.EIO: "the disk reported an input/output error; check the disk",
    errno.EFBIG: "the file would exceed the size limit; raise the limit or split the file",
    errno.EEXIST: "a file is where a folder should be; move it away, or choose another folder",
    errno.ENOTDIR: "a file is where a folder should be; move it away, or choose another folder",
    errno.EMFILE: "this process has too many files open; try again, or raise its limit",
    errno.ENFILE: "the system has too many files open; try again",
}

LOST = (
    "the folder of this memory was moved, removed, or its disk is not mounted; put it back where it was, or restart what "
    "has it open to go on with what is there now"
)


def trouble_of(error: OSError) -> str:
    """What the system says is wrong, and what to do about it."""
    return _TROUBLE.get(error.errno or 0) or f"{os.strerror(error.errno or 0).lower()}; try again"


def failed(key: str, error: OSError) -> StorageFailed:
    """Translate an error of the system into one that names the key and the trouble."""
    trouble = trouble_of(error)
    name = errno.errorcode.get(error.errno or 0, "unknown")
    translated = StorageFailed(f"{key or 'the root'}: {trouble} ({name}).", key=key, trouble=name)
    translated.errno = error.errno
    return translated


def trouble_writing(folder: str | os.PathLike[str]) -> str:
    """Why nothing can be written into `folder`, or into the nearest folder above that is there; "" if it can.

    A block is written into a file without a name, where the system has such: nobody sees it, and a disk that is
    full says so. Elsewhere the free space is looked at.
    """
    place = os.path.abspath(folder)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        about = os.statvfs(place)
        if about.f_flag & os.ST_RDONLY:
            return "the file system is read-only"
        if not os.access(place, os.W_OK | os.X_OK):
            return "permission is denied"
        _write_a_block(place, about.f_bavail * about.f_frsize)
    except OSError as error:
        return _TROUBLE.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
    return ""


def _write_a_block(folder: str, free: int) -> None:
    """Raise the `OSError` that a write into `folder` would meet."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _TROUBLE and error.errno != errno.EEXIST:
            raise
        if free < _BLOCK:  # no such file here
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        return
    try:
        os.write(file, bytes(_BLOCK))
    finally:
        os.close(file)


class translating:  # noqa: N801 -- read as a verb, `with translating(key):`; it stands around each step of every write
    """Let no bare error of the system out of the block."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, CairnError):
            raise failed(self._key, error) from error


def is_temp(name: str) -> bool:
    """Whether a name is that of an unfinished write; such names are never listed and never written to."""
    return name.startswith(".") and _TEMP_MARK in name


def refuse_temps(locator: Locator) -> None:
    """Refuse to write at, or below, a name that no listing would show."""
    if any(is_temp(part) for part in locator.parts):
        raise InvalidLocatorError(
            f"{locator}: names of the form .x.tmp.y belong to unfinished writes; choose another.",
            key=locator.key,
        )


def is_usable(name: str) -> bool:
    """Whether a name found on disk can be part of a key and is not an unfinished write."""
    return _UNUSABLE_NAME.search(name) is None and not (name[0] == "." and _TEMP_MARK in name)


class FileInTheWay(Invalid):
    """A segment that should be a folder is a file."""


class Tree:
    """A confined directory. Keys go in, bytes and file descriptors come out."""

    def __init__(self, root: str | os.PathLike[str], *, max_bytes: int = 0) -> None:
        given = os.fspath(root)
        self.max_bytes = max_bytes
        if not given or "\x00" in given:
            raise Invalid("A storage root needs a folder name.", root=given)
        self.path = os.path.realpath(os.path.expanduser(given))
        # Memory is private: a root we make is readable by its owner only. An existing one keeps its mode.
        with translating(""):
            if not os.path.isdir(self.path):
                self._make_root()
        self._twins: dict[tuple[int, int], tuple[int, dict[str, str]]] = {}
        self._kept: tuple[int, int] | None = None

    def keep(self) -> None:
        """From now on only the folder that lies there now is the root: none in its place is read, written or made.

        A disk that is gone leaves the empty folder it was mounted on; what was written there would vanish from sight when
        the disk is back.
        """
        with translating(""):
            self._kept = _identity(self.path)

    def is_kept(self) -> bool:
        """Whether the root is the folder that `keep` saw, where it was asked to."""
        try:
            return self._kept in {None, _identity(self.path)}
        except OSError:
            return False

    # -- walking

    @contextmanager
    def directory(self, key: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory at `key`; with `make`, missing ones are made and flushed.

        Raises `NotFound` if it is absent, `FileInTheWay` if a file is there, and `InvalidLocatorError` if a
        link is.
        """
        fd = self._open(key, make=make)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open(self, key: str, *, make: bool, below: str = "") -> int:
        """The directory at `key`; `below` will be made in it, and is refused before its folders are made."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._walked(key, make=make, below=below)
            except FileNotFoundError:
                # Somebody removes folders while we make them (`rm -rf .index`): begin again from the root.
                if not make or attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.001 * attempt)
        raise AssertionError("unreachable")

    def _walked(self, key: str, *, make: bool, below: str) -> int:
        names = key.split("/") if key else []
        # The root itself was resolved once; only what lies below it is untrusted.
        try:
            fd = os.open(self.path, _ROOT)
        except FileNotFoundError:
            self._refuse_another(None)
            if not make:
                raise nothing_at("") from None
            self._make_root()
            fd = os.open(self.path, _ROOT)
        try:
            self._refuse_another(fd)
            for position, name in enumerate(names):
                inner = self._open_directory(fd, name, key, make=make)
                if inner is None:
                    # Refuse before the first folder is made: bad input leaves nothing behind.
                    for new in (*names[position:], *([below] if below else [])):
                        checked_new_name(new, key)
                    inner = self._make_directory(fd, name, key)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    @contextmanager
    def parent(self, locator: Locator, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open parent directory and the last segment. A file among the parents refuses a write by name."""
        above, _, name = locator.key.rpartition("/")
        try:
            fd = self._open(above, make=make, below=name)
        except FileInTheWay:
            if make:
                raise
            raise nothing_at(locator.key) from None
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _refuse_another(self, fd: int | None) -> None:
        """Refuse what lies in the place of the root, which is open at `fd`, where it is not the root that is kept."""
        if self._kept is not None and (fd is None or _identity(fd) != self._kept):
            raise RootGone(f"the root: {LOST}.", key="", trouble="ENOENT")

    def _make_root(self) -> None:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        above = os.open(os.path.dirname(self.path), _ROOT)
        try:
            flush(above)
        finally:
            os.close(above)

    def _open_directory(self, fd: int, name: str, key: str, *, make: bool) -> int | None:
        """The directory `name` below `fd`; None where there is none and it may be made."""
        try:
            return os.open(name, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if make:
                return None
            raise nothing_at(key) from None
        except OSError as error:
            self._refuse_link(fd, name, key)
            if error.errno == errno.ENOTDIR:
                raise FileInTheWay(f'{key}: "{name}" is a file, not a folder.', key=key) from None
            raise

    def _make_directory(self, fd: int, name: str, key: str) -> int:
        self.check_new(fd, name, key)
        with suppress(FileExistsError):
            os.mkdir(name, _as_open_as(fd, 0o777), dir_fd=fd)
        inner = os.open(name, _DIRECTORY, dir_fd=fd)
        self.note_new(fd, name)
        flush(fd)
        return inner

    def _refuse_link(self, fd: int, name: str, key: str) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                raise InvalidLocatorError(
                    f'{key}: "{name}" is a symbolic link; places inside the root are real files and folders. '
                    "Replace the link by what it points to.",
                    key=key,
                )

    # -- looking

    def stat(self, locator: Locator) -> os.stat_result:
        """What is at the place. Raises `NotFound` or, for a link, `InvalidLocatorError`."""
        if not locator.key:
            with self.directory("") as fd:
                return os.fstat(fd)
        with self.parent(locator) as (fd, name):
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                raise nothing_at(locator.key) from None
            if stat.S_ISLNK(found.st_mode):
                self._refuse_link(fd, name, locator.key)
            return found

    def open_file(self, fd: int, name: str, key: str, flags: int = _FILE) -> int:
        """Open a regular file below an open directory; links, folders, pipes and devices are refused."""
        mode = _as_open_as(fd, 0o666) if flags & os.O_CREAT else 0
        try:
            file = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode, dir_fd=fd)
        except FileNotFoundError:
            raise nothing_at(key) from None
        except FileExistsError:
            raise
        except OSError as error:
            self._refuse_link(fd, name, key)
            if error.errno == errno.EISDIR:
                raise folder_at(key) from None
            raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise Invalid(f"{key}: what is there is not a regular file.", key=key)
        return file

    def read_bytes(self, locator: Locator) -> bytes:
        with self.parent(locator) as (fd, name):
            if not name:
                raise Invalid("The root is a folder, not a file.", key="")
            return self.read_at(fd, name, locator.key)

    def read_at(self, fd: int, name: str, key: str) -> bytes:
        file = self.open_file(fd, name, key)
        with os.fdopen(file, "rb", buffering=0) as handle:
            self.check_size(key, os.fstat(file).st_size)
            data: bytes = handle.read()
        return data

    def check_size(self, key: str, size: int) -> None:
        """Refuse what is larger than a note may be: one such file would take the memory of everybody's process."""
        if self.max_bytes and size > self.max_bytes:
            raise Invalid(
                f"{key} has {size} bytes, more than a note may have (storage.max_note_bytes = {self.max_bytes}): "
                "split it, or raise the limit.",
                key=key,
            )

    # -- changing

    def replace(
        self,
        locator: Locator,
        data: bytes,
        before: Callable[[int, str, bool], None] | None = None,
        during: AbstractContextManager[None] | None = None,
        *,
        make: bool = True,
    ) -> None:
        """Put `data` at the place atomically and durably; without `make` only where something is there.

        A temporary file beside it is written and flushed, `before(directory, name, final)` may still object, then
        it is renamed over the place (those two steps inside `during`) and the directory is flushed: after a
        power cut the rename itself could be missing otherwise. Whatever fails, the temporary file goes and
        the old bytes stay.
        """
        key = locator.key
        if not key:
            raise Invalid("The root is a folder; give a file name to write to.", key="")
        refuse_temps(locator)
        with self.parent(locator, make=make) as (fd, name):
            mode = self._mode_before(fd, name, key, make=make)
            temp = _temp_name(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(temp, flags, _as_open_as(fd, 0o666), dir_fd=fd)
            try:
                try:
                    if mode is not None:
                        os.fchmod(file, mode)
                    write_all(file, data)
                    flush(file)
                finally:
                    os.close(file)
                with during or nullcontext():
                    self._put(fd, temp, name, before)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=fd)
                raise
            if mode is None:
                self.note_new(fd, name)
            flush(fd)

    def _put(self, fd: int, temp: str, name: str, before: Callable[[int, str, bool], None] | None) -> None:
        """Rename `temp` to `name`, but only over what `before` accepts.

        A look and a rename are two steps, and somebody may save between them. So the two files are exchanged
        in one step, and what came out is looked at again: if it is not what was accepted, it goes back.
        Where files cannot be exchanged, the last look comes right before the rename. The first look may be a
        cheap one (`final` False); the last decides.
        """
        if before is None:
            os.replace(temp, name, src_dir_fd=fd, dst_dir_fd=fd)
            return
        before(fd, name, False)
        ours = os.stat(temp, dir_fd=fd, follow_symlinks=False).st_ino
        try:
            exchanged = _exchange(fd, temp, name)
        except FileNotFoundError:
            try:
                os.link(temp, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            except FileExistsError:
                before(fd, name, True)
                raise
            os.unlink(temp, dir_fd=fd)
            return
        if not exchanged:
            before(fd, name, True)
            os.replace(temp, name, src_dir_fd=fd, dst_dir_fd=fd)
            return
        try:
            before(fd, temp, True)
        except BaseException:
            _exchange(fd, temp, name)
            if os.stat(temp, dir_fd=fd, follow_symlinks=False).st_ino != ours:
                # Yet another save came in meanwhile: it is the newest, so it stays in place.
                os.replace(temp, name, src_dir_fd=fd, dst_dir_fd=fd)
            raise
        os.unlink(temp, dir_fd=fd)

    def _mode_before(self, fd: int, name: str, key: str, *, make: bool) -> int | None:
        """The mode of the file to be replaced, which a person may have set; None for a new name."""
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            if not make:
                raise nothing_at(key) from None
            self.check_new(fd, name, key)
            return None
        if stat.S_ISREG(found.st_mode):
            return stat.S_IMODE(found.st_mode)
        self._refuse_link(fd, name, key)
        raise Invalid(f"{key}: what is there is not a regular file.", key=key)

    def unlink(self, locator: Locator) -> None:
        with self.parent(locator) as (fd, name):
            os.close(self.open_file(fd, name, locator.key))
            os.unlink(name, dir_fd=fd)
            self._twins.pop(_identity(fd), None)
            flush(fd)

    def prune(self, locator: Locator) -> int:
        """Remove a folder and those below it, as far as they are empty; how many went."""
        removed = 0
        try:
            with self.directory(locator.key) as fd, os.scandir(fd) as found:
                inside = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        except NotFound:
            return 0
        for name in inside:
            removed += self.prune(locator.child(name))
        with self.parent(locator) as (fd, name):
            try:
                os.rmdir(name, dir_fd=fd)
            except OSError:
                return removed
            self._twins.pop(_identity(fd), None)
            flush(fd)
        return removed + 1

    def sweep_temps(self, older_than_seconds: float) -> int:
        """Remove what writes that were killed left behind; young ones may belong to a write that lives."""
        removed = 0
        waiting = [""]
        while waiting:
            key = waiting.pop()
            with suppress(CairnError, OSError), self.directory(key) as fd, os.scandir(fd) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{key}/{entry.name}" if key else entry.name)
                    elif _TEMP_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):
                            if time.time() - entry.stat(follow_symlinks=False).st_mtime >= older_than_seconds:
                                os.unlink(entry.name, dir_fd=fd)
                                removed += 1
        return removed

    # -- names that differ only in case

    def check_new(self, fd: int, name: str, key: str) -> None:
        """Refuse a new name that is no name everywhere, or whose sibling differs only by case or Unicode form.

        On half of all machines the two are one file, and a synced or cloned tree would lose one of them.
        It is a guard for trees that travel, taken when a name is made; it is not a lock.
        """
        checked_new_name(name, key)
        twin = self._names(fd).get(_folded(name))
        if twin is None or twin == name:
            return
        try:
            os.stat(twin, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        raise InvalidLocatorError(
            f'{key}: "{name}" differs from "{twin}" beside it only by case or Unicode form; use that name, or '
            "choose another.",
            key=key,
            twin=twin,
        )

    def note_new(self, fd: int, name: str) -> None:
        """Keep the memory of sibling names in step with a name just made, so that many need one listing."""
        found = os.fstat(fd)
        identity = found.st_dev, found.st_ino
        known = self._twins.get(identity)
        if known is not None:
            known[1][_folded(name)] = name
            self._twins[identity] = (found.st_mtime_ns, known[1])

    def _names(self, fd: int) -> dict[str, str]:
        found = os.fstat(fd)
        identity, stamp = (found.st_dev, found.st_ino), found.st_mtime_ns
        known = self._twins.get(identity)
        if known is not None and known[0] == stamp:
            return known[1]
        names = {_folded(name): name for name in os.listdir(fd) if not is_temp(name)}
        while len(self._twins) >= _TWIN_CACHE:
            with suppress(KeyError, StopIteration, RuntimeError):
                self._twins.pop(next(iter(self._twins)))
        self._twins[identity] = (stamp, names)
        return names


_RENAME_EXCHANGE = 2


@lru_cache(maxsize=1)
def exchanging() -> Callable[..., int] | None:
    """The call that exchanges two names, by Linux's name or macOS's: the arguments are the same."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    found: Callable[..., int] | None = getattr(library, "renameat2", None) or getattr(
        library, "renameatx_np", None
    )
    return found


def _exchange(fd: int, one: str, other: str) -> bool:
    """Let two names swap their files in one step; False where the system cannot."""
    import ctypes

    call = exchanging()
    if call is None:
        return False
    ctypes.set_errno(0)
    if call(fd, one.encode("utf-8"), fd, other.encode("utf-8"), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        return False
    raise OSError(code, os.strerror(code))


def flush(fd: int) -> None:
    """Flush a file or a folder to the disk itself; on macOS `fsync` alone leaves it in the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def is_at(opened: os.stat_result, path: str, directory: int | None = None) -> bool:
    """Whether an open file is still the one at `path`: it may have been removed or replaced meanwhile."""
    try:
        found = os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte; a disk that fills up halfway raises on the next round."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _as_open_as(directory: int, most: int) -> int:
    """The mode of something new: no reader or writer more than its folder has, so a private root stays private."""
    return most & (stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)


def _temp_name(name: str) -> str:
    tail = f"{_TEMP_MARK}{uuid.uuid4().hex}"
    head = name.encode("utf-8")[: MAX_SEGMENT_BYTES - len(tail) - 1].decode("utf-8", "ignore")
    return f".{head}{tail}"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold() if not name.isascii() else name.lower()


def _identity(at: int | str) -> tuple[int, int]:
    """Which file this is, by its descriptor or its path."""
    found = os.stat(at)
    return found.st_dev, found.st_ino
