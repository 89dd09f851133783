"""Export and import: a whole memory as a folder or an archive, from one storage to another.

Only the truth travels: `.index/` and `.tmp/` are made anew where they are missing. What is written is readable by
its owner alone. Others may write while a root is copied: it is gone through until nothing has changed since the last
time, so that the copy is of one moment. Where that does not come, the copy is one that a power cut could have left:
what tells of work done (session logs, journals) is copied before the notes that hold it, and the next open of
the copy finishes what is open. An import never overwrites:
what is the same is left, daily notes are merged entry by entry, a longer journal that begins with ours replaces
it, and whatever else differs is put beside ours under another name and reported.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cairn.engines.files import DeviceLocalBackend
from cairn.errors import CairnError, Conflict, Invalid, NotFound, Unavailable
from cairn.notes.kinds import place_of, space_of
from cairn.seams import Journals, Locator, StorageBackend, content_hash
from cairn.seams.storage import iterate_files, text_at

LEFT_OUT = frozenset({".index", ".tmp", ".server", ".lock", ".git", ".cairn-move.jsonl"})
# Copies of the settings that editors and sync programs leave beside them, and environment files.
MAY_HOLD_KEYS = re.compile(r"cairn.*toml|\.env", re.IGNORECASE)
_ARCHIVES = (".tar.gz", ".tgz")
_OTHER_ARCHIVES = (".zip", ".tar", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_MAX_HEAD_BYTES = 1 << 20
_MAX_MEMBERS = 1_000_000
_MAX_FILE_BYTES = 512 * 1024 * 1024
_ATTEMPTS = 20
_ROUNDS = 5
_CLAIMS = ("sessions", "journal")  # copied first: what they say was done is in the notes, which come after

Merge = Callable[[Locator, str, str], str]
Beside = Callable[[Path], list[str]]
Keep = Callable[[Locator, str], str | None]


@dataclass(slots=True)
class Transfer:
    """What an export or import did, file by file count, and what a person should look at."""

    imported: int = 0
    same: int = 0
    merged: int = 0
    bytes: int = 0
    still: bool = True
    sizes: dict[Locator, int] = field(default_factory=dict)
    hashes: dict[Locator, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def truth_files(
    storage: StorageBackend, passed_over: Callable[[Locator, CairnError], object] | None = None
) -> Iterator[Locator]:
    """Every file of the root that is not derived; `passed_over` is told of what cannot be looked at."""
    for top in storage.list(Locator("")):
        if top.name in LEFT_OUT:
            continue
        if storage.info(top).is_dir:
            yield from iterate_files(storage, top, passed_over)
        else:
            yield top


def export(storage: StorageBackend, target: str, keep: Keep = lambda _, text: text) -> Transfer:
    """Copy the truth into `target`: a new or empty folder, or a name that ends in .tar.gz.

    Args:
        storage: The root to copy.
        target: Where to; the folder is made private to its owner, the archive is mode 0600.
        keep: Gives the text to copy for each file; None leaves the file out.

    Raises:
        Invalid: its name is that of an archive of another kind (.zip).
        Conflict: the target is there and not empty.
        Unavailable: the target cannot be made.
    """
    place = _place(target)
    if place.name.endswith(_ARCHIVES):
        return _export_archive(storage, place, keep)
    if place.name.lower().endswith(_OTHER_ARCHIVES) and not place.is_dir():
        raise Invalid(
            f"{target} is named like an archive of another kind: give a name that ends in .tar.gz, or that of a new folder.",
            target=target,
        )
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise Conflict(
            f"{target} is there already and not an empty folder. Choose another name.", target=target
        )
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.chmod(0o700)  # an empty one may be open to others
    except OSError as error:
        raise Unavailable(f"{target} cannot be made: {error.strerror or error}.", target=target) from None
    return _copy(storage, DeviceLocalBackend(place), keep)


def lies_in(target: str, root: Path) -> bool:
    """Whether an export to `target` would land in `root`."""
    return _place(target).resolve().is_relative_to(root.resolve())


def archive_at(target: str, name: str) -> str:
    """The archive that `target` means: one called `name` where it is a folder.

    Raises:
        Invalid: it is neither a folder nor a name for an archive.
    """
    place = _place(target)
    if place.is_dir():
        return str(place / name)
    if not place.name.endswith(_ARCHIVES):
        raise Invalid(
            f"{target} is neither a folder that is there nor a name ending in .tar.gz: give one of them.",
            target=target,
        )
    return str(target)


def _place(name: str | os.PathLike[str]) -> Path:
    """The path of a folder or archive. An empty name does not mean the folder one stands in."""
    name = str(name) if isinstance(name, os.PathLike) else name
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise Invalid(f"{name!r:.60} is no folder and no archive: give its path.", field="path")
    return Path(name).expanduser()


def _copy(source: StorageBackend, target: StorageBackend, keep: Keep) -> Transfer:
    done = Transfer(still=False)
    seen: dict[Locator, str] = {}
    unread: dict[Locator, CairnError] = {}
    for _ in range(_ROUNDS):
        before, seen = seen, {}
        unread.clear()
        for locator in sorted(truth_files(source, unread.__setitem__), key=claims_first):
            try:
                text = keep(locator, source.read(locator))
            except NotFound:
                continue  # it went after it was listed
            except (
                CairnError
            ) as error:  # a pipe, a socket, another encoding: that one is named, the others are copied
                source.list(Locator(""))  # unless it is the storage that is away
                unread[locator] = error
                continue
            if text is None:
                continue
            seen[locator] = content_hash(text)
            if seen[locator] != before.get(locator):
                target.write(locator, text)
                done.sizes[locator] = len(text.encode("utf-8"))
        for gone in before.keys() - seen.keys():
            target.remove(gone)
            del done.sizes[gone]
        if seen == before:
            done.still = True
            break
    done.problems += [str(error) for _, error in sorted(unread.items(), key=lambda one: one[0].key)]
    done.hashes, done.imported, done.bytes = seen, len(seen), sum(done.sizes.values())
    return done


def claims_first(locator: Locator) -> tuple[bool, str]:
    """The order of a copy that a power cut could have left: what tells of work done before the notes that hold it."""
    return not (len(locator.parts) > 3 and locator.parts[2] in _CLAIMS), locator.key


def _export_archive(storage: StorageBackend, place: Path, keep: Keep) -> Transfer:
    if place.exists():
        raise Conflict(f"{place} is there already. Choose another name.", target=str(place))
    unfinished = place.with_name(f".{place.name}.tmp.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="cairn-export-") as scratch:
            done = _copy(storage, DeviceLocalBackend(scratch), keep)
            file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as handle:
                with tarfile.open(fileobj=handle, mode="w:gz") as archive:
                    archive.add(scratch, arcname=".", recursive=True)
                handle.flush()
                os.fsync(handle.fileno())
        os.replace(unfinished, place)
    except OSError as error:
        raise Unavailable(f"{place} cannot be made: {error.strerror or error}.", target=str(place)) from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return done


def check_copy(target: str, copied: Transfer) -> None:
    """Read an export back and compare every file with what was copied.

    Raises:
        Unavailable: a file is not there or not what it was; the disk or what lies between is at fault.
    """
    with _opened(target) as place:
        there = DeviceLocalBackend(place)
        found = {locator: content_hash(there.read(locator)) for locator in truth_files(there)}
    wrong = [at for at in copied.hashes.keys() | found.keys() if copied.hashes.get(at) != found.get(at)]
    if wrong:
        raise Unavailable(
            f"{target} does not hold what was copied: {min(wrong, key=str)} differs. Do not rely on it; try another disk.",
            target=target,
        )


def bring_in(
    storage: StorageBackend,
    journals: Journals,
    source: str,
    merge: Merge,
    *,
    max_bytes: int = 0,
    beside: Beside = lambda _: [],
) -> Transfer:
    """Bring the memory at `source` (a folder or archive) into `storage`; see the module for the rules.

    Args:
        storage: The root that receives; others may be writing to it.
        journals: Its journals.
        source: A folder, or an archive made by `export`. Another program's memory root of the same form works.
        merge: Merges two versions of a daily note, theirs into ours.
        max_bytes: The most an archive may unpack to; 0 for no limit.
        beside: Takes what another program keeps beside its notes, from the folder; returns what it could not take.

    Raises:
        NotFound: there is nothing at `source`.
        Invalid: it is not a memory root, not a readable archive, or one that unpacks to more than `max_bytes`.
    """
    with _opened(source, max_bytes) as place:
        theirs, done = DeviceLocalBackend(place), Transfer()
        files = [
            at
            for at in truth_files(theirs)
            if len(at.parts) <= 1 or space_of(Locator("/".join(at.parts[:2])))
        ]
        if not any(len(at.parts) > 2 for at in files) and not (place / ".index" / "sqlite").is_dir():
            raise Invalid(
                f"{source} does not look like a memory root: no <app>/<project>/ folder in it.", source=source
            )
        for locator in files:
            if len(locator.parts) == 1:
                continue  # settings stay with the root they were made for
            try:
                _take(storage, journals, theirs.read(locator), locator, merge, done)
            except CairnError as error:
                done.problems.append(str(error))
        done.problems += beside(place)
        return done


def _take(
    ours: StorageBackend, journals: Journals, text: str, locator: Locator, merge: Merge, done: Transfer
) -> None:
    done.bytes += len(text.encode("utf-8"))
    for attempt in range(_ATTEMPTS):
        try:
            _take_once(ours, journals, text, locator, merge, done)
            return
        except Conflict:  # somebody wrote there meanwhile: look again
            if attempt + 1 == _ATTEMPTS:
                raise


def _take_once(
    ours: StorageBackend, journals: Journals, text: str, locator: Locator, merge: Merge, done: Transfer
) -> None:
    try:
        present = ours.read(locator)
    except NotFound:
        ours.write(locator, text, expect="")
        done.imported += 1
        return
    if present == text or (locator.name.endswith(".jsonl") and present.startswith(text)):
        done.same += 1
        return
    place = place_of(locator)
    if place is not None and place.kind.storage == "daily":
        merged = merge(locator, present, text)
        if merged != present:
            ours.write(locator, merged, expect=content_hash(present))
        done.merged += 1
    elif locator.name.endswith(".jsonl") and _lengthened(journals, locator, text):
        done.merged += 1
    else:
        aside = _aside(ours, locator, text)
        if not ours.exists(aside):
            ours.write(aside, text, expect="")
        done.problems.append(
            f"{locator} differs from what is here; theirs is kept as {aside.name} for you to compare."
        )


def _lengthened(journals: Journals, locator: Locator, text: str) -> bool:
    """Replace a journal by a longer one that begins with it, with nobody appending meanwhile."""
    longer = [line.removesuffix("\t") for line in text.split("\n")[:-1]]

    def change(lines: Sequence[str]) -> Sequence[str] | None:
        return longer if longer[: len(lines)] == list(lines) else None

    return journals.edit(locator, change)


def _aside(storage: StorageBackend, locator: Locator, text: str) -> Locator:
    """Where theirs is to be kept, or is kept already since an earlier import."""
    stem, dot, suffix = locator.name.rpartition(".")
    for number in range(1, 1000):
        name = f"{stem} (imported {number}){dot}{suffix}"
        candidate = locator.parent.child(name)
        if text_at(storage, candidate) in {None, text}:
            return candidate
    raise Conflict(f"{locator}: there are a thousand imported copies already. Tidy them up first.")


class _Member(tarfile.TarInfo):
    """A member whose head is believed within limits.

    What describes a member (long names, extended heads) is read into memory whole, and a length below nothing leads back
    to a member that was there already, again and again. A head that is damaged or missing is an error, where tarfile would
    take it for the end.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if _is_end(buf):
                raise
            raise tarfile.ReadError("it ends too early" if not buf else str(error)) from None

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > _MAX_HEAD_BYTES:
            raise tarfile.ReadError(f"a head of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError(f"a length of {count} bytes")
        length: int = super()._block(count)  # type: ignore[misc]
        return length


def _is_end(block: bytes | bytearray) -> bool:
    """Whether this is the block of zeros that ends an archive."""
    return bool(block) and not any(block)


def source_at(source: str) -> Path:
    """The folder or archive that is to be brought in.

    Raises:
        NotFound: there is none.
    """
    place = _place(source)
    if not place.is_dir() and not place.is_file():
        raise NotFound(f"{source}: there is no such folder or archive.", source=source)
    return place


@contextmanager
def _opened(source: str, max_bytes: int = 0) -> Iterator[Path]:
    """The folder at `source`, or one that an archive is unpacked to meanwhile."""
    place = source_at(source)
    if place.is_dir():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="cairn-import-") as scratch:
        try:
            with tarfile.open(place, "r:*", tarinfo=_Member) as archive:
                unpacked = members = 0
                for member in archive:
                    members, unpacked = members + 1, unpacked + max(member.size, 0)
                    if max_bytes and (unpacked > max_bytes or members > _MAX_MEMBERS):
                        raise Invalid(
                            f"{source} unpacks to more than {max_bytes} bytes or {_MAX_MEMBERS} files (storage.max_import_bytes): "
                            "nothing was brought in. Raise the limit if you trust it.",
                            source=source,
                        )
                    if member.isfile() and member.size <= _MAX_FILE_BYTES:
                        archive.extract(member, scratch, filter="data")
                # The checksum of what was packed stands behind the end, and is compared by who reads that far.
                if archive.fileobj and len(archive.fileobj.read(_MAX_HEAD_BYTES)) == _MAX_HEAD_BYTES:
                    raise tarfile.ReadError("its end is not where it says")
        except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            first = (str(error).splitlines() or ["it is empty"])[0].rstrip(":.")
            raise Invalid(
                f"{source} is not an archive that can be read whole ({first}): nothing was brought in. Give a folder, or a "
                ".tar.gz that `cairn export` made.",
                source=source,
            ) from None
        yield Path(scratch)
