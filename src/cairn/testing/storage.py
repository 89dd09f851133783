"""The storage suite: nine checks for every backend, the rebuild, and the extensions that a backend declares.

The nine ask for the seven verbs and Python's own errors, nothing more; the extensions ask for ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cairn.errors import Conflict, Invalid, InvalidLocatorError, NotFound
from cairn.seams import Capabilities, Info, Journals, Locator, StorageBackend, Tier, TierLayout, content_hash
from cairn.testing.journals import JOURNAL_CHECKS
from cairn.testing.suite import ConformanceFailure, Mixin, raises, require, run_checks


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """What `run_conformance` saw: the checks passed, the rebuild's outcome, what the backend declares, and the extensions tried."""

    universal: tuple[str, ...]
    derived: str
    routing: Mapping[str, Any]
    extensions: tuple[str, ...] = ()


# -- storage: nine checks that hold for every backend


def check_resolve_and_locator(backend: StorageBackend) -> None:
    """`resolve` names places canonically; the root is "" and names never reach the outside."""
    require(backend.resolve() == Locator(""), "resolve() must name the root")
    place = backend.resolve("/a//b/", "./c.md")
    require(isinstance(place, Locator), "resolve must answer with a Locator")
    require(place == Locator("a/b/c.md"), f"resolve must normalise, got {place!r}")
    require(place.parts == ("a", "b", "c.md") and place.name == "c.md", "parts and name must follow the key")
    require(str(place) == "a/b/c.md" and hash(place) == hash(Locator("a/b/c.md")), "a locator is its key")
    require(backend.resolve("a").child("b", "c.md") == place, "child must extend the key")
    require(isinstance(backend.capabilities, Capabilities), "capabilities must be declared")
    require(
        isinstance(backend.conflict_strategy, str) and backend.conflict_strategy, "a strategy must be named"
    )


def check_write_read_round_trip(backend: StorageBackend) -> None:
    """What is written is what is read, parents are made, a second write replaces the first."""
    place = backend.resolve("deep/er/note.md")
    require(backend.write(place, "first\n") == place, "write must return the place written")
    require(backend.read(place) == "first\n", "read must give what was written")
    backend.write(place, "2nd\n")
    require(backend.read(place) == "2nd\n", "a second write must replace the whole text")
    backend.write(place, "")
    require(backend.read(place) == "", "an empty text must be kept as such")
    raises(
        FileNotFoundError,
        lambda: backend.read(backend.resolve("deep/er/none.md")),
        "reading nothing must raise FileNotFoundError",
    )
    raises(
        FileNotFoundError,
        lambda: backend.read(backend.resolve("none/at/all.md")),
        "reading below an absent folder must raise FileNotFoundError",
    )


EXACT_TEXTS = (
    "one\ntwo\n",
    "one\r\ntwo\r\n",
    "one\ntwo\r\nthree\rfour\n",
    "no final newline",
    "grüße 你好 🪨\r\nzweite Zeile\r\n",
    "\ufeffbom and \u2028 separators\x0b\x0c",
)


def check_lf_exact_round_trip(backend: StorageBackend) -> None:
    """No newline is translated: LF, CRLF, a bare CR and a missing last one come back to the byte."""
    for number, text in enumerate(EXACT_TEXTS):
        place = backend.resolve(f"exact-{number}.md")
        backend.write(place, text)
        require(backend.read(place) == text, f"{text!r} came back as {backend.read(place)!r}")


def check_exists_flips(backend: StorageBackend) -> None:
    """`exists` is False before and True after, for files, folders and the root."""
    place = backend.resolve("folder/note.md")
    require(backend.exists(place) is False, "nothing exists before it is written")
    require(backend.exists(backend.resolve("folder")) is False, "no folder exists before it is made")
    backend.write(place, "x")
    require(backend.exists(place) is True, "a written file exists")
    require(backend.exists(backend.resolve("folder")) is True, "the parents of a written file exist")
    require(backend.exists(backend.resolve()) is True, "the root exists")
    require(backend.exists(backend.resolve("folder/other.md")) is False, "a neighbour does not exist")


def check_info(backend: StorageBackend) -> None:
    """`info` tells files from folders; size counts UTF-8 bytes; an absent place raises."""
    place = backend.resolve("folder/note.md")
    text = "größe 你好\r\n"
    backend.write(place, text)
    info = backend.info(place)
    require(isinstance(info, Info) and info.locator == place, "info must answer with an Info of that place")
    require(info.is_dir is False, "a file is not a folder")
    require(info.size == len(text.encode()), f"size must be the UTF-8 byte length, got {info.size}")
    require(isinstance(info.mtime, float), "mtime must be a float of epoch seconds")
    folder = backend.info(backend.resolve("folder"))
    require(folder.is_dir is True and folder.size == 0, "a folder reports is_dir and size 0")
    raises(
        FileNotFoundError,
        lambda: backend.info(backend.resolve("none")),
        "info of nothing must raise FileNotFoundError",
    )


def check_mkdir_idempotent(backend: StorageBackend) -> None:
    """`mkdir` makes parents, may be repeated, and keeps what is inside."""
    place = backend.resolve("a/b/c")
    require(backend.mkdir(place) == place, "mkdir must return the folder")
    require(backend.info(place).is_dir, "mkdir must make a folder")
    require(backend.info(backend.resolve("a")).is_dir, "mkdir must make parents")
    backend.write(place.child("note.md"), "kept")
    require(backend.mkdir(place) == place, "a second mkdir must succeed")
    require(backend.read(place.child("note.md")) == "kept", "a second mkdir must keep what is inside")


def check_list_children(backend: StorageBackend) -> None:
    """`list` gives the immediate children, files and folders, each once and in any order."""
    for key in ("d/b.md", "d/a.md", "d/sub/deep.md", "d/B0.md", "e.md"):
        backend.write(backend.resolve(key), key)
    backend.mkdir(backend.resolve("d/empty"))
    found = backend.list(backend.resolve("d"))
    require(all(isinstance(child, Locator) for child in found), "children must be Locators")
    expected = ["d/B0.md", "d/a.md", "d/b.md", "d/empty", "d/sub"]
    keys = sorted(child.key for child in found)
    require(keys == expected, f"expected {expected}, got {keys}")
    require(
        sorted(child.key for child in backend.list(backend.resolve())) == ["d", "e.md"],
        "the root lists its children",
    )


def check_list_on_absent(backend: StorageBackend) -> None:
    """`list` answers [] for an empty folder, an absent place and a file; it never raises."""
    backend.mkdir(backend.resolve("empty"))
    backend.write(backend.resolve("note.md"), "x")
    for key in ("empty", "absent", "absent/deeper", "note.md", "note.md/below"):
        try:
            found = backend.list(backend.resolve(key))
        except Exception as error:
            raise ConformanceFailure(
                f"list({key!r}) must answer [], not raise {type(error).__name__}"
            ) from error
        require(found == [], f"list({key!r}) must answer [], got {found}")


HOSTILE_PARTS = ("..", "a/../b", "../../etc", "a\\..\\b", "nul\x00", "line\nbreak", "x" * 256, "\ud800")


def check_invalid_locator_rejected(backend: StorageBackend) -> None:
    """A key that could leave the root, or that no file can carry, is refused by name; a `/` is made relative."""
    for part in HOSTILE_PARTS:
        raises(
            InvalidLocatorError,
            lambda part=part: backend.resolve("safe", part),  # type: ignore[misc]
            f"resolve of {part[:20]!r} must raise InvalidLocatorError",
        )
    require(issubclass(InvalidLocatorError, ValueError), "InvalidLocatorError is a ValueError")
    require(backend.resolve("/etc/passwd").key == "etc/passwd", "a leading slash is made relative")
    raises(
        ValueError,
        lambda: backend.write(backend.resolve("half.md"), "\ud800"),
        "text that is not Unicode must raise a ValueError",
    )
    require(not backend.exists(backend.resolve("half.md")), "a refused write must leave nothing behind")


UNIVERSAL_CHECKS: Mapping[str, Callable[[StorageBackend], None]] = {
    "resolve_and_locator": check_resolve_and_locator,
    "write_read_round_trip": check_write_read_round_trip,
    "lf_exact_round_trip": check_lf_exact_round_trip,
    "exists_flips": check_exists_flips,
    "info": check_info,
    "mkdir_idempotent": check_mkdir_idempotent,
    "list_children": check_list_children,
    "list_on_absent": check_list_on_absent,
    "invalid_locator_rejected": check_invalid_locator_rejected,
}


def check_rebuild(
    backend: StorageBackend,
    layout: TierLayout | None = None,
    held: Callable[[StorageBackend], Mapping[str, str]] | None = None,
) -> None:
    """A rebuild of the derived tier mirrors the source to the byte, and follows it when it changes.

    The second half is what defeats a rebuild that knows its answer by heart. Where the tier is no folder of texts but a
    database, `held` tells the texts it holds, without blanks around them, by their keys below the source.
    """
    layout = layout or TierLayout()
    maintenance = backend.derived_maintenance
    if maintenance is None:
        raise ConformanceFailure("the backend has no derived layer to rebuild")
    root = layout.root_for(Tier.LOCAL_INDEX)
    require(
        not (held(backend) if held else _texts(backend, root)),
        "the derived root must be empty before the first rebuild",
    )
    for texts in (
        {"a.md": "first\r\n", "sub/b.md": "grün"},
        {"a.md": "changed\n", "sub/b.md": "grün", "c.md": "new"},
    ):
        for key, text in texts.items():
            backend.write(layout.source.child(key), text)
        maintenance.reindex(Tier.LOCAL_INDEX)
        found = held(backend) if held else _texts(backend, root)
        wanted = {key: text.strip() for key, text in texts.items()} if held else texts
        require(found == wanted, f"the rebuilt tier must mirror the source: expected {wanted}, got {found}")


def _texts(backend: StorageBackend, root: Locator) -> dict[str, str]:
    texts: dict[str, str] = {}
    waiting = backend.list(root)
    while waiting:
        place = waiting.pop()
        if backend.info(place).is_dir:
            waiting += backend.list(place)
        else:
            texts[place.key.removeprefix(f"{root.key}/")] = backend.read(place)
    return texts


# -- storage: the declared extensions


def check_expect(backend: StorageBackend) -> None:
    """`expect` writes only over the text the caller saw; "" stands for nothing there."""
    place = backend.resolve("note.md")
    raises(
        Conflict,
        lambda: backend.write(place, "x", expect=content_hash("something")),
        "expecting a text where there is none must raise Conflict",
    )
    require(not backend.exists(place), "a refused write must leave nothing behind")
    backend.write(place, "one", expect="")
    raises(Conflict, lambda: backend.write(place, "two", expect=""), "expecting nothing must raise Conflict")
    backend.write(place, "two", expect=content_hash("one"))
    raises(
        Conflict,
        lambda: backend.write(place, "three", expect=content_hash("one")),
        "expecting a text that is no longer there must raise Conflict",
    )
    require(backend.read(place) == "two", "a refused write must keep what is there")


def check_version(backend: StorageBackend) -> None:
    """`read_version` gives the text and what `expect` takes: good while nobody wrote, a Conflict afterwards."""
    place = backend.resolve("note.md")
    raises(NotFound, lambda: backend.read_version(place), "a version of nothing must raise NotFound")
    backend.write(place, "one")
    for _ in range(2):
        text, version = backend.read_version(place)
        require(text == "one" and version, f"expected the text and a version, got {text!r}, {version!r}")
        backend.write(place, "two", expect=version)
        require(backend.read(place) == "two", "a version nobody wrote over must be accepted")
        raises(
            Conflict,
            lambda version=version: backend.write(place, "three", expect=version),  # type: ignore[misc]
            "a version someone wrote over must raise Conflict",
        )
        require(backend.read(place) == "two", "a refused write must keep what is there")
        backend.write(place, "one")
        # The second round meets a file that has lain still, where a backend may know a cheaper proof.
        threading.Event().wait(0.15)


def check_remove(backend: StorageBackend) -> None:
    """`remove` takes one file away and says so when there is none."""
    place, other = backend.resolve("d/note.md"), backend.resolve("d/other.md")
    backend.write(place, "x")
    backend.write(other, "y")
    backend.remove(place)
    require(not backend.exists(place), "a removed file is gone")
    require(backend.list(backend.resolve("d")) == [other], "remove must take nothing else")
    raises(NotFound, lambda: backend.remove(place), "removing nothing must raise NotFound")
    raises(Invalid, lambda: backend.remove(backend.resolve("d")), "remove is for files, not for folders")


def check_append(backend: StorageBackend) -> None:
    """What is appended to a journal is a file like any other: read, listed, measured and removed by the verbs."""
    place = backend.resolve("journal/x.jsonl")
    backend.journals.append(place, ['{"n": 1}'])
    backend.journals.append(place, ['{"n": 2}', '{"n": 3}'])
    require(backend.read(place).split() == ['{"n":', "1}", '{"n":', "2}", '{"n":', "3}"], "read must see it")
    require(backend.list(place.parent) == [place], "list must see it")
    require(backend.info(place).size == backend.journals.size(place), "info must measure it")
    backend.write(place, '{"n": 4}\n')
    require(backend.journals.read(place).lines == ('{"n": 4}',), "a journal must see what was written")
    backend.journals.append(place, ['{"n": 5}'])
    require(backend.read(place).count("\n") == 2, "an append must continue what was written")


def _on_journals(check: Callable[[Journals], None]) -> Callable[[StorageBackend], None]:
    def on_journals(backend: StorageBackend) -> None:
        check(backend.journals)

    on_journals.__doc__ = check.__doc__
    return on_journals


EXTENSION_CHECKS: Mapping[str, Callable[[StorageBackend], None]] = {
    "expect": check_expect,
    "version": check_version,
    "remove": check_remove,
    "append": check_append,
}


def _declared(backend: StorageBackend) -> dict[str, Callable[[StorageBackend], None]]:
    """The checks of what the backend offers; journals come with `append`, or by means of `expect`."""
    needs = {"expect": {"expect"}, "version": {"expect"}, "remove": {"remove"}}
    journals = {f"append_{name}": _on_journals(check) for name, check in JOURNAL_CHECKS.items()}
    return {
        name: check
        for name, check in {**EXTENSION_CHECKS, **journals}.items()
        if backend.extensions & needs.get(name, {"append", "expect"})
    }


def run_conformance(
    factory: Callable[[], StorageBackend], *, layout: TierLayout | None = None
) -> ConformanceReport:
    """Run the storage suite: nine universal checks, the declared extensions, the rebuild of a derived layer.

    Args:
        factory: Makes a fresh, empty backend at each call.
        layout: Where the backend keeps its tiers, if not at the default places.

    Raises:
        ConformanceFailure: at the first violation.
    """
    universal = run_checks(UNIVERSAL_CHECKS, factory)
    probe = factory()
    extensions = run_checks(_declared(probe), factory)
    derived = "absent"
    if probe.derived_maintenance is not None:
        run_checks({"rebuild": lambda backend: check_rebuild(backend, layout)}, factory)
        derived = "passed"
    return ConformanceReport(
        universal,
        derived,
        {"capabilities": probe.capabilities, "conflict_strategy": probe.conflict_strategy},
        extensions,
    )


class StorageConformance(Mixin, checks=UNIVERSAL_CHECKS, make="make_backend"):
    """Derive from this, give `make_backend`, and every storage check is a test."""

    def make_backend(self) -> StorageBackend:
        raise NotImplementedError

    def test_extensions(self) -> None:
        """What the backend declares beside the seven verbs it keeps."""
        run_checks(_declared(self.make_backend()), self.make_backend)

    def test_rebuild(self) -> None:
        """The derived layer, where there is one, rebuilds from the source."""
        backend = self.make_backend()
        if backend.derived_maintenance is not None:
            check_rebuild(backend)
