"""Read-only storage that shows linked folders below `knowledge/.linked/`.

`knowledge/links.toml` of a space names them. Their files are read as text, PDF and DOCX through a converter; links out of
them and hidden files are passed over, and whatever would change one is refused. A folder that is not there (a drive that
is not plugged in) is said so: what was known of it stays until it comes back or is unlinked.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cairn.engines.convert import MAX_BYTES, text_of
from cairn.engines.foreign import WrappedBackend
from cairn.errors import CairnError, Invalid, InvalidLocatorError, NotFound, StorageFailed
from cairn.language.documents import FOLDER, LINKED, LINKS
from cairn.seams import Info, Locator, StorageBackend

_NAME = re.compile(r"[\w-][\w.-]{0,59}")
_HEAD = "# Folders that are searched where they lie; nothing is ever written to them. See `cairn knowledge link`.\n"


@dataclass(frozen=True, slots=True)
class Link:
    """A folder of this machine, under the name it has among a space's knowledge."""

    name: str
    folder: Path


def read_links(text: str) -> dict[str, Link]:
    """The links that a `links.toml` names.

    Raises:
        Invalid: it is not TOML, or a link in it has no usable name or path.
    """
    try:
        found = tomllib.loads(text).get("links", {})
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{LINKS}: {error}. Mend it, or remove the file and link again.", file=LINKS) from None
    out = {}
    for name, values in found.items() if isinstance(found, dict) else ():
        path = values.get("path") if isinstance(values, dict) else None
        if not _NAME.fullmatch(name) or not isinstance(path, str) or not Path(path).is_absolute():
            raise Invalid(
                f'{LINKS}: "{name[:60]}" needs a plain name and an absolute path: mend it.', file=LINKS
            )
        out[name] = Link(name, Path(path))
    return out


def write_links(links: Mapping[str, Link]) -> str:
    """The text of a `links.toml`."""
    lines = [_HEAD]
    for name, link in sorted(links.items()):
        path = json.dumps(str(link.folder), ensure_ascii=False)
        lines.append(f"[links.{json.dumps(name)}]\npath = {path}\n")
    return "\n".join(lines)


class LinkedStorage(WrappedBackend):
    """The root's storage, and below `knowledge/.linked/` the folders it links to, for reading.

    Args:
        base: The root's storage.
        is_document: Whether a place of a linked folder holds something to read.
        clean: What is done with a text before anybody sees it: credentials are cut out.
    """

    def __init__(
        self, base: StorageBackend, is_document: Callable[[Locator], bool], clean: Callable[[str], str]
    ) -> None:
        super().__init__(base)
        self._is_document = is_document
        self._clean = clean
        self._links: dict[str, tuple[tuple[float, int], dict[str, Link]]] = {}

    def turn(self, name: str, seconds: float) -> bool:
        # Nobody else looks through the folders of this machine.
        return bool(self.folders()) or self._inner.turn(name, seconds)

    # ------------------------------------------------------------ links

    def links(self, file: Locator) -> dict[str, Link]:
        """The links of one `links.toml`, by name; none where it is not there. What is wrong with it is raised."""
        try:
            info = self._inner.info(file)
        except NotFound:
            self._links.pop(file.key, None)
            return {}
        stamp = (info.mtime, info.size)
        held = self._links.get(file.key)
        if held is None or held[0] != stamp:
            held = (stamp, read_links(self._inner.read(file)))
            self._links[file.key] = held
        return held[1]

    def folders(self) -> dict[Path, str]:
        """The linked folders met so far, and the key each has here."""
        return {
            link.folder: f"{file.removesuffix(LINKS)}{LINKED}/{name}"
            for file, (_, links) in list(self._links.items())
            for name, link in links.items()
        }

    def _linked(self, locator: Locator) -> tuple[Link, tuple[str, ...]] | None:
        """The link a locator lies below, and its place there; None for the root's own files."""
        parts = locator.parts
        if len(parts) < 5 or parts[2] != FOLDER or parts[3] != LINKED:
            return None
        link = self.links(Locator("/".join((*parts[:3], LINKS)))).get(parts[4])
        if link is None:
            raise NotFound(f'There is no link "{parts[4]}".', link=parts[4])
        return link, parts[5:]

    def path_of(self, locator: Locator) -> Path | None:
        """Where a linked file really lies; None for the root's own."""
        found = self._linked(locator)
        return found[0].folder.joinpath(*found[1]) if found is not None else None

    # ------------------------------------------------------------ reading

    def read(self, locator: Locator) -> str:
        found = self._linked(locator)
        if found is None:
            return self._inner.read(locator)
        path = _inside(*found, locator)
        try:
            if path.stat().st_size > MAX_BYTES:
                raise _too_large(path, path.stat().st_size)
            return self._clean(text_of(str(path), path.read_bytes()))
        except FileNotFoundError:
            raise NotFound(f"{locator}: there is no such file.", locator=locator.key) from None
        except OSError as error:
            raise StorageFailed(
                f"{locator}: {error.strerror or error}.", locator=locator.key, trouble=error.errno
            ) from None

    def info(self, locator: Locator) -> Info:
        parts = locator.parts
        if parts[2:] == (FOLDER, LINKED):
            return Info(locator, is_dir=True, size=0, mtime=0.0)
        found = self._linked(locator)
        if found is None:
            return self._inner.info(locator)
        path = _inside(*found, locator)
        try:
            known = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"{locator}: there is no such file.", locator=locator.key) from None
        except OSError as error:
            raise StorageFailed(
                f"{locator}: {error.strerror or error}.", locator=locator.key, trouble=error.errno
            ) from None
        if stat.S_ISDIR(known.st_mode):
            return Info(locator, is_dir=True, size=0, mtime=known.st_mtime)
        if not stat.S_ISREG(known.st_mode):
            raise NotFound(f"{locator}: a link or a device, which is not followed.", locator=locator.key)
        return Info(locator, is_dir=False, size=known.st_size, mtime=known.st_mtime)

    def exists(self, locator: Locator) -> bool:
        try:
            self.info(locator)
        except NotFound:
            return False
        return True

    def list(self, locator: Locator) -> list[Locator]:
        parts = locator.parts
        if parts[2:] == (FOLDER,):
            found = self._inner.list(locator)
            return [*found, locator.child(LINKED)] if self.links(locator.child(LINKS)) else found
        if parts[2:] == (FOLDER, LINKED):
            return [locator.child(name) for name in self.links(locator.parent.child(LINKS))]
        linked = self._linked(locator)
        if linked is None:
            return self._inner.list(locator)
        path = _inside(*linked, locator)
        out = []
        for name, _is_dir, _size, _mtime in _entries(path, locator):
            with suppress(InvalidLocatorError):
                out.append(locator.child(name))
        return sorted(out)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        """Every file below a place as (key, size, mtime in ns): the root's own, then those of the links met there."""
        files = []
        for key, size, mtime in self._inner.scan(locator, passed_over):
            if key.endswith(f"/{FOLDER}/{LINKS}") and key.count("/") == 3:
                files.append(Locator(key))
            yield key, size, mtime
        for file in files:
            try:
                links = self.links(file)
            except CairnError as error:
                if passed_over is None:
                    raise
                passed_over(file.parent.child(LINKED), error)
                continue
            for name, link in links.items():
                yield from self._walk(link.folder, file.parent.child(LINKED, name), passed_over)

    def _walk(
        self,
        folder: Path,
        at: Locator,
        passed_over: Callable[[Locator, CairnError], object] | None,
    ) -> Iterator[tuple[str, int, int]]:
        waiting = [(folder, at)]
        while waiting:
            path, place = waiting.pop()
            try:
                for name, is_dir, size, mtime in _entries(path, place, top=path == folder):
                    try:
                        child = place.child(name)
                    except InvalidLocatorError:
                        continue  # a name that no key can carry
                    if is_dir:
                        waiting.append((path / name, child))
                    elif self._is_document(child):
                        yield child.key, size, mtime
            except CairnError as error:
                if passed_over is None:
                    raise
                passed_over(place, error)

    def closed(self, folder: Path, at: Locator) -> Iterator[str]:
        """What of a linked folder cannot be looked into, each with the reason."""
        found: dict[str, None] = {}
        for _ in self._walk(folder, at, lambda _place, error: found.setdefault(str(error).rstrip("."))):
            pass
        yield from found

    @contextmanager
    def _around(self, verb: str, locator: Locator) -> Iterator[None]:
        if locator.parts[2:4] == (FOLDER, LINKED) and verb in {"write", "mkdir", "remove"}:
            raise Invalid(f"{locator} lies in a linked folder: it is only read.", locator=locator.key)
        yield


def _inside(link: Link, rest: tuple[str, ...], locator: Locator) -> Path:
    """The path of a linked file; no folder on the way to it is a link.

    Raises:
        StorageFailed: the linked folder itself is not there.
        NotFound: a link stands on the way.
    """
    if not link.folder.is_dir():
        raise _not_there(link.folder, locator)
    path = link.folder
    for name in rest:
        path = path / name
        if path.is_symlink():
            raise NotFound(f"{locator}: a link, which is not followed.", locator=locator.key)
    return path


def _not_there(folder: Path, at: Locator) -> StorageFailed:
    return StorageFailed(
        f"The linked folder {folder} is not there: bring it back, or `cairn knowledge unlink` it.",
        locator=at.key,
    )


def _too_large(path: Path, size: int) -> Invalid:
    return Invalid(
        f"{path} has {size} bytes, more than the {MAX_BYTES} that a document may have: split it.",
        path=str(path),
    )


def _entries(path: Path, at: Locator, *, top: bool = False) -> Iterator[tuple[str, bool, int, int]]:
    """Name, whether a folder, size and mtime of what lies in a folder; links and hidden names are passed over."""
    try:
        with os.scandir(path) as found:
            for entry in found:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name, True, 0, 0
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        known = entry.stat(follow_symlinks=False)
                        yield entry.name, False, known.st_size, known.st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        if top:
            raise _not_there(path, at) from None
    except OSError as error:
        raise StorageFailed(
            f"{path}: {error.strerror or error}.", locator=at.key, trouble=error.errno
        ) from None
