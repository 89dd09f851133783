"""Where the truth is kept: seven verbs over `Locator`s, three declared extensions, journals, locks, and the tiers of a root.

No file-system path crosses this seam: what the rest of Cairn holds is a `Locator`.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import itertools
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self

from cairn.errors import (
    CairnError,
    Conflict,
    Invalid,
    InvalidLocatorError,
    Misconfigured,
    NotFound,
    ProtocolError,
    RootGone,
)
from cairn.types import is_device_name

_log = logging.getLogger(__name__)

MAX_SEGMENT_BYTES = 255

MAX_KEY_BYTES = 3072

_UNUSABLE = re.compile(r"[\\\x00-\x1f\x7f]")


def normalize_key(key: str) -> str:
    """Return the one canonical form of a backend-relative key.

    Empty and `.` segments are dropped and a leading `/` is made relative. `..`, a backslash, NUL and other
    control characters, lone surrogates and over-long segments raise `InvalidLocatorError`: no key can reach
    beyond its backend's root, and none is accepted that a file system could not carry.
    """
    if not isinstance(key, str):
        raise InvalidLocatorError(f"A locator key must be a string, not {type(key).__name__}.", key=key)
    segments = []
    for segment in key.split("/"):
        if segment in {"", "."}:
            continue
        if segment == "..":
            raise InvalidLocatorError(f"{_shown(key)}: '..' would leave the root.", key=key)
        if _UNUSABLE.search(segment):
            raise InvalidLocatorError(
                f"{_shown(key)}: backslash, NUL and control characters cannot be part of a key.", key=key
            )
        try:
            size = len(segment) if segment.isascii() else len(segment.encode("utf-8"))
        except UnicodeEncodeError:
            raise InvalidLocatorError(f"{_shown(key)}: not valid Unicode.", key=key) from None
        if size > MAX_SEGMENT_BYTES:
            raise InvalidLocatorError(
                f"{_shown(key)}: a segment has {size} bytes, more than the {MAX_SEGMENT_BYTES} a file name can "
                "have.",
                key=key,
            )
        segments.append(segment)
    normal = "/".join(segments)
    if len(normal.encode("utf-8")) > MAX_KEY_BYTES:
        raise InvalidLocatorError(f"{_shown(key)}: the key is longer than {MAX_KEY_BYTES} bytes.", key=key)
    return normal


def checked_new_name(name: str, key: str) -> None:
    """Refuse to make a file or folder that other systems could not carry; what is there already stays usable.

    Windows takes some names for devices and drops a dot or blank at the end. A key may say such a name; a
    backend refuses to create it, because a tree that is synced or cloned would break there.
    """
    if is_device_name(name) or name[-1:] in {".", " "}:
        raise InvalidLocatorError(
            f'{_shown(key)}: "{_shown(name)}" cannot be a file name everywhere (a device name, or a dot or blank '
            "at its end); choose another.",
            key=key,
        )


def content_hash(content: str | bytes) -> str:
    """The currency of compare-and-swap: sha256, in hex, of the text's UTF-8 bytes.

    Times of synced files lie; content does not. "" stands for "nothing there".
    """
    return hashlib.sha256(content.encode("utf-8") if isinstance(content, str) else content).hexdigest()


def _shown(key: str) -> str:
    text = key if len(key) <= 80 else key[:77] + "..."
    return text.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True, order=True)
class Locator:
    """A place inside a backend, by canonical key. Naming only: no input or output.

    >>> Locator("/users//alice/./user.md").parts
    ('users', 'alice', 'user.md')
    """

    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", normalize_key(self.key))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.key.split("/")) if self.key else ()

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Locator:
        """The place that holds this one; the root is its own parent."""
        return Locator(self.key.rpartition("/")[0])

    def child(self, *parts: str) -> Locator:
        """The place extended by `parts`; it cannot escape."""
        return Locator("/".join((self.key, *parts)))

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class Info:
    """What a backend knows of a place. Directories report size 0; `mtime` is epoch seconds."""

    locator: Locator
    is_dir: bool
    size: int
    mtime: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend declares of itself. Everything is False unless declared."""

    concurrent_writers: bool = False
    conflict_files: bool = False
    encryption: bool = False
    sync: bool = False


Watch = Callable[[Callable[[set[str]], None], threading.Event], None]
"""Reports the keys that were touched to the first argument until the second is set."""

EXTENSIONS = ("expect", "remove", "append")
"""What a backend may offer beside the seven verbs. A memory root needs the first two."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What was brought back from copies, since what they were copies of was lost or became older than they are.

    `until` is when the last round of copying began: what was acknowledged before it is there. `journals` has the files
    of lines that were brought back, `at` when that was; "" where nothing was lost so far.
    """

    until: str = ""
    at: str = ""
    journals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalSlice:
    """Whole lines of a journal from one offset on; `end` is the offset to continue from."""

    lines: tuple[str, ...]
    end: int


class Journals(Protocol):
    """Append-only files of lines in the SOURCE tier: what cannot be recomputed.

    A line is one JSON text without line breaks. `append` is durable when it returns, all of its lines or
    none of them. A torn last line (power cut) is never returned and never glued to a later one.
    """

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        """Add `lines` durably, as one unit; return the offset after them.

        With `sync` off the unit survives the death of the process but perhaps not a power cut: for marks that
        can be found out again, at the price of some work. With `expect`, the end of the journal as the caller
        last saw it, the unit is added there or not at all.

        Raises:
            Conflict: the journal ends elsewhere than at `expect`; somebody wrote meanwhile. Read on, and retry.
        """
        ...

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        """Whole lines from byte offset `start`; nothing (end 0) where there is no journal."""
        ...

    def size(self, at: Locator) -> int:
        """Bytes written so far; 0 where there is no journal."""
        ...

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        """Atomically make `lines` the whole journal (compaction, forget). The caller holds its lock.

        Who had read the old one to its end learns of it by `Conflict`, however long the new one is.
        """
        ...

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        """Rewrite a journal with nobody appending meanwhile: `change` gets its lines and returns the new ones.

        None leaves it as it is. Returns whether it was rewritten; a journal that is not there never is. Who had
        read the old one to its end learns of it as with `replace`. `change` may run more than once.
        """
        ...


class Locks(Protocol):
    """Named locks across threads and processes of one root. A dead holder's lock is free at once."""

    def hold(self, name: str, *, timeout: float = 30.0) -> AbstractContextManager[None]:
        """Hold `name` for a unit of work. Raises `Unavailable` when it cannot be had in time."""
        ...

    def lease(self, name: str) -> AbstractContextManager[bool]:
        """Try to take `name` without waiting: yields True while held, False if another has it."""
        ...


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What machines beside this one forgot: until when, and of whom, as salted hashes."""

    upto: str
    hashes: tuple[tuple[str, str], ...] = ()

    def names(self, name: str) -> bool:
        """Whether it is about who has this id."""
        return any(hashed(salt, name) == one for salt, one in self.hashes)


def hashed(salt: str, name: str) -> str:
    """An id that is gone, as others are told of it: who has it knows it again, and nobody reads it there."""
    return hashlib.sha256(f"{salt} {name}".encode("utf-8", "surrogatepass")).hexdigest()


class StorageBackend(ABC):
    """Where the truth is kept: text at places. Synchronous; only `Locator` and `Info` cross.

    `extensions` declares which of `EXTENSIONS` a backend offers: `expect` (`write(..., expect=)` and
    `read_version`), `remove`, and `append` (`journals` of its own, with true appends). Where there is no
    `append`, journals are written by means of `expect`.
    """

    extensions: frozenset[str] = frozenset()
    is_shared: bool = False
    """Whether other machines write here, with an index each: what they write is news to this one's."""

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Open the backend that `settings` describe; here with nothing but their `root`."""
        make: Any = cls
        return make(root=settings.root)  # type: ignore[no-any-return]

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this backend declares of itself."""

    @property
    def conflict_strategy(self) -> str:
        """What becomes of two writes to one place: "none" (last write wins) or "whole-file"."""
        return "none"

    _derived: Callable[[], DerivedMaintenance] | None = None

    @property
    def derived_maintenance(self) -> DerivedMaintenance | None:
        """The derived layer over this backend: index and pages of the memory that is open on it; None while none is."""
        return self._derived() if self._derived is not None else None

    def derive_by(self, layer: Callable[[], DerivedMaintenance] | None) -> None:
        """Say who keeps the derived layer over this backend: the memory that was opened on it."""
        self._derived = layer

    def resolve(self, *parts: str) -> Locator:
        """Name a place; no parts name the root. Raises `InvalidLocatorError` on a bad part."""
        return Locator("/".join(parts))

    @abstractmethod
    def read(self, locator: Locator) -> str:
        """The text at `locator`, exact to the byte. Raises `NotFound` (a FileNotFoundError) if absent."""

    def read_version(self, locator: Locator) -> tuple[str, str]:
        """Extension: the text and its version, for a later `write(..., expect=version)`.

        The version is the `content_hash` unless a backend has a cheaper proof that nothing was written since
        (a file's inode and times, an object's tag).
        """
        text = self.read(locator)
        return text, content_hash(text)

    @abstractmethod
    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        """Put `content` at `locator` and return the place written.

        Once this returns the text survives a crash; readers see the old text or the new one, never a mix.
        Missing parents are made.

        Args:
            locator: The place to write.
            content: The whole new text.
            expect: Extension: the `content_hash` of the text the caller last saw, its `read_version`, or ""
                for "nothing there".
                Leave it out to overwrite.

        Raises:
            Conflict: `expect` was given and the place holds something else.
        """

    @abstractmethod
    def list(self, locator: Locator) -> list[Locator]:
        """The immediate children, sorted by key; [] for an absent place and for a file."""

    @abstractmethod
    def exists(self, locator: Locator) -> bool:
        """Whether a file or a directory is there."""

    @abstractmethod
    def info(self, locator: Locator) -> Info:
        """What is known of the place. Raises `NotFound` if absent."""

    @abstractmethod
    def mkdir(self, locator: Locator) -> Locator:
        """Make sure a directory is there, parents included, and return it. Idempotent."""

    def remove(self, locator: Locator) -> None:
        """Extension: remove the file at `locator` durably. Raises `NotFound` if absent.

        Outside the seven verbs: only expiry, `forget` and undo use it.
        """
        raise Invalid(f"{type(self).__name__} cannot remove {locator}: it does not offer the extension.")

    def prune(self, locator: Locator) -> int:  # noqa: ARG002 -- a default
        """Remove a folder and those below it, as far as they are empty; how many went. None where there are none."""
        return 0

    @cached_property
    def journals(self) -> Journals:
        """Append-only files among the others: what is appended here, `read`, `list` and `info` see, too."""
        return WrittenJournals(self)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        """Every file below a place as (key, size, mtime in ns), for noticing changes; in no special order.

        Given: a walk by `list` and `info`. A folder that cannot be read ends the scan with its error; with
        `passed_over`, that is told of it and the scan goes on.
        """
        for at in iterate_files(self, locator, passed_over):
            try:
                info = self.info(at)
            except NotFound:
                continue
            yield at.key, info.size, int(info.mtime * 1e9)

    def scan_lines(
        self, locator: Locator, passed_over: Callable[[Locator, CairnError], object] | None = None
    ) -> Iterator[tuple[str, int, int]]:
        """What `scan` tells of the files that grow line by line, which an engine may keep otherwise than the rest."""
        return (found for found in self.scan(locator, passed_over) if found[0].endswith(".jsonl"))

    def locks(self, local: Locks) -> Locks:
        """The locks of whoever writes here: those of this machine, unless several machines do."""
        return local

    def watch(self) -> Watch | None:
        """What tells of other machines' changes as they happen; None where there are none, or only a scan finds them."""
        return None

    def turn(self, name: str, seconds: float) -> bool:  # noqa: ARG002 -- a default
        """Whether what `name` says is this machine's to do now; where several share the work, one of them for so long."""
        return True

    def tell(self, keys: Iterable[str]) -> None:  # noqa: B027 -- a default
        """Let other machines know of files that changed otherwise than through this storage."""

    def learn_people(self, people_in: Callable[[Locator, Sequence[str]], Collection[str] | None]) -> None:  # noqa: B027
        """Say who is in lines that are appended, for `people_in` to tell; None where nobody can say."""

    def people_in(self, keys: Collection[str]) -> Mapping[str, Collection[str]]:  # noqa: ARG002 -- a default
        """Who is in each of these files of lines, so that a machine need not take in what it is not asked about.

        Those of which it is not known are left out: they may be about anybody.
        """
        return {}

    def scrub(self, gone: Sequence[str] = ()) -> bool:  # noqa: ARG002 -- a default
        """Drop what was made of notes and is kept for a while for other machines, and have those forget, too: what their
        indexes held, and in their audit logs the ids in `gone`. False where it could not be.
        """
        return True

    def forgotten_elsewhere(self, since: str) -> Forgotten | None:  # noqa: ARG002 -- a default
        """What other machines had forgotten after `since` (of an earlier answer, "" for ever); None where nothing was."""
        return None

    def archive(self, *only: Locator) -> int:  # noqa: ARG002 -- a default
        """Put aside copies of what is kept elsewhere than with the notes, and say how many; nothing as a rule.

        With `only`, of these places alone.
        """
        return 0

    def read_back(self) -> ReadBack | None:
        """Bring back what is there as such a copy only, and say what was; None where there are no copies."""
        return None

    def keep(self) -> None:  # noqa: B027 -- a default
        """Answer from now on for what lies here now alone, where something else may come to lie in its place."""

    def trouble(self) -> str:
        """What this storage cannot do just now, in a sentence for anybody to read; "" as a rule. Answers at once."""
        return ""

    def close(self) -> None:  # noqa: B027 -- a default
        """Let go of connections, where there are any."""

    def sweep(self, older_than_seconds: float = 3600.0) -> int:  # noqa: ARG002 -- a default
        """Remove what killed writers left behind so long ago, and say how many; nothing where nothing is left."""
        return 0


def read_on(journals: Journals, at: Locator, end: int) -> tuple[JournalSlice, bool]:
    """What a journal has behind `end`, to which it was read; where it was replaced meanwhile, all of it, and True."""
    try:
        return journals.read(at, end), False
    except Conflict:
        return journals.read(at), True


def journal_moved(at: Locator, expect: int, end: int) -> Conflict:
    """The refusal of an append that expected the journal to end elsewhere."""
    return Conflict(
        f"{at}: it ends at byte {end}, not at {expect}: somebody wrote meanwhile. Read on, and retry.",
        key=at.key,
        expected=expect,
        found=end,
    )


def journal_made_anew(at: Locator, lines: Sequence[str], old_end: int) -> bytes:
    """A whole journal of `lines` in which none begins where the former one ended.

    A reader goes on from the offset it had come to. Were that a line's beginning by chance, it would keep what
    was taken out; so the first line gets a blank at its end until it is not.
    """
    made = [journal_unit(at, [line]) for line in lines]
    for blanks in range(len(lines) + 1):
        tried = [made[0][:-1] + b" " * blanks + b"\n", *made[1:]] if made else []
        if old_end not in itertools.accumulate(map(len, tried)):
            break
    return b"".join(tried)


def journal_unit(at: Locator, lines: Sequence[str]) -> bytes:
    """The bytes of one append: every line but the last ends in a tab. Refuses what would not be a line.

    To a JSON reader the tab is blank space; to us it says that the unit goes on, so that one which a power cut
    left half written is known.
    """
    if isinstance(lines, str):
        raise Invalid(f"{at}: give a list of lines, not one text.", key=at.key)
    for line in lines:
        if not isinstance(line, str) or "\n" in line or line.endswith(("\t", "\r")):
            raise Invalid(
                f"{at}: a journal line is one text without line breaks or a tab at its end.", key=at.key
            )
    try:
        return ("\t\n".join(lines) + "\n").encode("utf-8") if lines else b""
    except UnicodeEncodeError as error:
        raise Invalid(f"{at}: character {error.start} cannot be stored as UTF-8.", key=at.key) from None


def journal_whole(data: bytes) -> int:
    """How many bytes of `data` are whole units: up to the last line end that is not a continued one."""
    end = len(data)
    while (end := data.rfind(b"\n", 0, end)) >= 0:
        if not data.endswith(b"\t", 0, end):
            return end + 1
    return 0


def journal_slice(at: Locator, data: bytes, start: int) -> JournalSlice:
    """The whole lines of `data`, the bytes of a journal from one before `start` on (all of them where it is 0).

    A line that is not UTF-8 comes back with its odd bytes spelled out.

    Raises:
        Conflict: `start` is not a line's beginning any more; the journal was replaced. Read from 0.
    """
    if start:
        if not data.startswith(b"\n"):
            raise Conflict(
                f"{at}: byte {start} is no longer the start of a line; the journal was replaced. Read it from 0.",
                key=at.key,
                start=start,
            )
        data = data[1:]
    whole = data[: journal_whole(data)]
    lines = whole.decode("utf-8", "backslashreplace").split("\n")[:-1]
    return JournalSlice(tuple(line.removesuffix("\t") for line in lines), start + len(whole))


class WrittenJournals:
    """`Journals` by `read_version` and `write(expect=)`, for a backend without `append`.

    Each append writes the journal anew if nobody wrote meanwhile, and tries again if somebody did: as safe as one
    write, and as dear as the journal is long.
    """

    _ATTEMPTS = 50

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage
        self._lock = threading.Lock()

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        del sync  # there is no write that is not durable
        unit = journal_unit(at, lines)

        def longer(data: bytes) -> bytes | None:
            if unit and expect not in {None, len(data)}:
                raise journal_moved(at, expect or 0, len(data))
            return data + unit if unit else None

        return len(self._write(at, longer))

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        return journal_slice(at, self._read(at)[0][max(start - 1, 0) :], start)

    def size(self, at: Locator) -> int:
        try:
            return self._storage.info(at).size
        except NotFound:
            return 0

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        return len(self._write(at, lambda data: journal_made_anew(at, lines, len(data))))

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        lines: Sequence[str] | None = None

        def edited(data: bytes) -> bytes | None:
            nonlocal lines
            lines = change(journal_slice(at, data, 0).lines) if data else None
            return None if lines is None else journal_made_anew(at, lines, len(data))

        self._write(at, edited)
        return lines is not None

    def _read(self, at: Locator) -> tuple[bytes, str]:
        try:
            text, version = self._storage.read_version(at)
        except NotFound:
            return b"", ""
        return text.encode("utf-8"), version

    def _write(self, at: Locator, change: Callable[[bytes], bytes | None]) -> bytes:
        """What the journal holds once `change` was made of its whole units; None leaves them as they are."""
        with self._lock:
            for attempt in itertools.count(1):
                data, version = self._read(at)
                data = data[: journal_whole(data)]
                made = change(data)
                if made is None:
                    return data
                try:
                    self._storage.write(at, made.decode("utf-8"), expect=version)
                    return made
                except Conflict:
                    if attempt == self._ATTEMPTS:
                        raise
                    time.sleep(min(0.001 * 2**attempt, 0.05))
        raise AssertionError("unreachable")


class BackendRegistry:
    """Backend classes by protocol name. A miss is absence, never an error; selection makes it loud."""

    def __init__(self) -> None:
        self._classes: dict[str, type[StorageBackend]] = {}

    def register(self, protocol: str, backend: type[StorageBackend], *, clobber: bool = False) -> None:
        """Make `backend` known as `protocol`.

        Raises:
            TypeError: `backend` is not a concrete `StorageBackend` subclass.
            ProtocolError: the name is empty, or taken and `clobber` is False.
        """
        if (
            not isinstance(backend, type)
            or not issubclass(backend, StorageBackend)
            or inspect.isabstract(backend)
        ):
            raise TypeError(f"{backend!r} is not a concrete StorageBackend class.")
        if not isinstance(protocol, str) or not protocol.strip():
            raise ProtocolError("A backend needs a non-empty protocol name.")
        if protocol in self._classes and not clobber:
            raise ProtocolError(f'"{protocol}" is registered already; pass clobber=True to replace it.')
        self._classes[protocol] = backend

    def get(self, protocol: str) -> type[StorageBackend] | None:
        return self._classes.get(protocol)

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._classes

    def protocols(self) -> tuple[str, ...]:
        return tuple(sorted(self._classes))


registry = BackendRegistry()


class Tier(enum.Enum):
    """How authoritative a part of the tree is, and whether it travels with a synced folder."""

    SOURCE = "source"
    SHARED_ABSTRACTS = "shared-abstracts"
    LOCAL_INDEX = "local-index"

    @property
    def syncs(self) -> bool:
        return self is not Tier.LOCAL_INDEX

    @property
    def derived(self) -> bool:
        return self is not Tier.SOURCE


@dataclass(frozen=True, slots=True)
class TierLayout:
    """Where each tier lives. Creates nothing; refuses two tiers at one place."""

    source: Locator = field(default_factory=lambda: Locator("source"))
    shared_abstracts: Locator = field(default_factory=lambda: Locator("shared-abstracts"))
    local_index: Locator = field(default_factory=lambda: Locator("local-index"))

    def __post_init__(self) -> None:
        roots = (self.source, self.shared_abstracts, self.local_index)
        if len(set(roots)) != len(roots):
            raise ValueError(f"Tier roots must differ: {', '.join(map(str, roots))}.")

    def check_for(self, capabilities: Capabilities) -> None:
        """Refuse an index inside a tier that another program replicates: it would travel, whatever its name.

        Raises:
            Misconfigured: the backend syncs and the index root lies inside the source or the abstracts.
        """
        for outer in (self.source, self.shared_abstracts):
            if capabilities.sync and self.local_index.parts[: len(outer.parts)] == outer.parts:
                raise Misconfigured(
                    f'The index root "{self.local_index}" lies inside "{outer or "the root"}", which is synced. '
                    "Keep the index in a folder of this machine.",
                    setting="index.dir",
                )

    @property
    def never_sync_root(self) -> Locator:
        return self.local_index

    def root_for(self, tier: Tier) -> Locator:
        return {
            Tier.SOURCE: self.source,
            Tier.SHARED_ABSTRACTS: self.shared_abstracts,
            Tier.LOCAL_INDEX: self.local_index,
        }[tier]


class DerivedMaintenance(ABC):
    """Keeps derived tiers in step with the source."""

    @abstractmethod
    def reindex(self, tier: Tier) -> None:
        """Rebuild a whole derived tier from SOURCE."""

    @abstractmethod
    def changed_since(self, mtime: float) -> list[Locator]:
        """Source places modified strictly after `mtime`: a hint, to be settled by hash."""


def children(storage: StorageBackend, at: Locator) -> list[Locator]:
    """What lies in a folder; none of it where a link, a file or a folder that cannot be read stands there.

    For whoever looks through everybody's folders: what is wrong with one costs that one alone, and `doctor` names it. That
    the root itself is gone is raised: nobody has nothing because of that.
    """
    try:
        return storage.list(at)
    except RootGone:
        raise
    except CairnError as error:
        _pass_over(at, error)
        return []


def text_at(storage: StorageBackend, at: Locator) -> str | None:
    """What a file holds; None where there is none."""
    try:
        return storage.read(at)
    except NotFound:
        return None


def readable_files(storage: StorageBackend, at: Locator) -> Iterator[Locator]:
    """Every file below `at` that can be reached, as `iterate_files` gives them; see `children` for the rest."""
    return iterate_files(storage, at, _pass_over)


def _pass_over(at: Locator, error: CairnError) -> None:
    _log.debug("%s is passed over: %s", at, error)


def iterate_files(
    storage: StorageBackend,
    at: Locator,
    passed_over: Callable[[Locator, CairnError], object] | None = None,
) -> Iterator[Locator]:
    """Every file below `at`, depth first, by key order; works on any backend.

    What goes away between being listed and being looked at is not there. A folder that cannot be read ends the
    walk with its error; with `passed_over`, that is told of it and the walk goes on beside it, unless the root is gone.
    """
    try:
        children = storage.list(at)
    except RootGone:
        raise
    except CairnError as error:
        if passed_over is None:
            raise
        passed_over(at, error)
        return
    for child in children:
        try:
            is_dir = storage.info(child).is_dir
        except NotFound:
            continue
        except RootGone:
            raise
        except CairnError as error:
            if passed_over is None:
                raise
            passed_over(child, error)
            continue
        if is_dir:
            yield from iterate_files(storage, child, passed_over)
        else:
            yield child
