"""Conformance suites and fakes, for us and for whoever writes an engine.

Each seam with more than one engine has a suite of named checks. Every check gets a fresh engine from a factory
and raises `ConformanceFailure` when a promise of the seam is broken. Run them in one go,

    report = run_conformance(lambda: MyBackend(tempfile.mkdtemp()))

or one by one under pytest or unittest by deriving from a mixin:

    class TestMyBackend(StorageConformance):
        def make_backend(self): return MyBackend(tempfile.mkdtemp())

No check asserts a clock value: synced times lie.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.errors import Conflict, Invalid, InvalidLocatorError, NotFound, Unavailable
from cairn.seams import (
    Capabilities,
    Info,
    Journals,
    Locator,
    Locks,
    StorageBackend,
    Tier,
    TierLayout,
    content_hash,
)

__all__ = [
    "EXTENSION_CHECKS",
    "JOURNAL_CHECKS",
    "LOCK_CHECKS",
    "UNIVERSAL_CHECKS",
    "ConformanceFailure",
    "ConformanceReport",
    "FixedClock",
    "JournalConformance",
    "LockConformance",
    "StorageConformance",
    "check_rebuild",
    "run_checks",
    "run_conformance",
]


class ConformanceFailure(AssertionError):
    """An engine broke a promise of its seam. `check` names the check that found it."""

    def __init__(self, message: str, check: str = "") -> None:
        super().__init__(f"{check}: {message}" if check else message)
        self.check = check


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """What `run_conformance` saw: the checks passed, the rebuild's outcome, and what the backend declares."""

    universal: tuple[str, ...]
    derived: str
    routing: Mapping[str, Any]


class FixedClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, at: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)) -> None:
        if at.tzinfo is None:
            raise Invalid("A clock needs an aware time.")
        self._now = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, **amount: float) -> datetime:
        """Move on by `timedelta(**amount)` and return the new time."""
        self._now += timedelta(**amount)
        return self._now


def _require(holds: object, message: str) -> None:
    # Not an assert: the suite has to bite under `python -O` too.
    if not holds:
        raise ConformanceFailure(message)


def _raises(
    kinds: type[Exception] | tuple[type[Exception], ...], action: Callable[[], object], message: str
) -> None:
    try:
        action()
    except kinds:
        return
    except Exception as error:
        raise ConformanceFailure(f"{message}, not {type(error).__name__}: {error}") from error
    raise ConformanceFailure(message)


# -- storage: nine checks that hold for every backend


def check_resolve_and_locator(backend: StorageBackend) -> None:
    """`resolve` names places canonically; the root is "" and names never reach the outside."""
    _require(backend.resolve() == Locator(""), "resolve() must name the root")
    place = backend.resolve("/a//b/", "./c.md")
    _require(isinstance(place, Locator), "resolve must answer with a Locator")
    _require(place == Locator("a/b/c.md"), f"resolve must normalise, got {place!r}")
    _require(place.parts == ("a", "b", "c.md") and place.name == "c.md", "parts and name must follow the key")
    _require(str(place) == "a/b/c.md" and hash(place) == hash(Locator("a/b/c.md")), "a locator is its key")
    _require(backend.resolve("a").child("b", "c.md") == place, "child must extend the key")
    _require(isinstance(backend.capabilities, Capabilities), "capabilities must be declared")
    _require(
        isinstance(backend.conflict_strategy, str) and backend.conflict_strategy, "a strategy must be named"
    )


def check_write_read_round_trip(backend: StorageBackend) -> None:
    """What is written is what is read, parents are made, a second write replaces the first."""
    place = backend.resolve("deep/er/note.md")
    _require(backend.write(place, "first\n") == place, "write must return the place written")
    _require(backend.read(place) == "first\n", "read must give what was written")
    backend.write(place, "2nd\n")
    _require(backend.read(place) == "2nd\n", "a second write must replace the whole text")
    backend.write(place, "")
    _require(backend.read(place) == "", "an empty text must be kept as such")
    _raises(
        NotFound,
        lambda: backend.read(backend.resolve("deep/er/none.md")),
        "reading nothing must raise NotFound",
    )
    _raises(
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
        _require(backend.read(place) == text, f"{text!r} came back as {backend.read(place)!r}")


def check_exists_flips(backend: StorageBackend) -> None:
    """`exists` is False before and True after, for files, folders and the root."""
    place = backend.resolve("folder/note.md")
    _require(backend.exists(place) is False, "nothing exists before it is written")
    _require(backend.exists(backend.resolve("folder")) is False, "no folder exists before it is made")
    backend.write(place, "x")
    _require(backend.exists(place) is True, "a written file exists")
    _require(backend.exists(backend.resolve("folder")) is True, "the parents of a written file exist")
    _require(backend.exists(backend.resolve()) is True, "the root exists")
    _require(backend.exists(backend.resolve("folder/other.md")) is False, "a neighbour does not exist")


def check_info(backend: StorageBackend) -> None:
    """`info` tells files from folders; size counts UTF-8 bytes; an absent place raises."""
    place = backend.resolve("folder/note.md")
    text = "größe 你好\r\n"
    backend.write(place, text)
    info = backend.info(place)
    _require(isinstance(info, Info) and info.locator == place, "info must answer with an Info of that place")
    _require(info.is_dir is False, "a file is not a folder")
    _require(info.size == len(text.encode()), f"size must be the UTF-8 byte length, got {info.size}")
    _require(isinstance(info.mtime, float), "mtime must be a float of epoch seconds")
    folder = backend.info(backend.resolve("folder"))
    _require(folder.is_dir is True and folder.size == 0, "a folder reports is_dir and size 0")
    _raises(
        FileNotFoundError,
        lambda: backend.info(backend.resolve("none")),
        "info of nothing must raise NotFound",
    )


def check_mkdir_idempotent(backend: StorageBackend) -> None:
    """`mkdir` makes parents, may be repeated, and keeps what is inside."""
    place = backend.resolve("a/b/c")
    _require(backend.mkdir(place) == place, "mkdir must return the folder")
    _require(backend.info(place).is_dir, "mkdir must make a folder")
    _require(backend.info(backend.resolve("a")).is_dir, "mkdir must make parents")
    backend.write(place.child("note.md"), "kept")
    _require(backend.mkdir(place) == place, "a second mkdir must succeed")
    _require(backend.read(place.child("note.md")) == "kept", "a second mkdir must keep what is inside")


def check_list_children(backend: StorageBackend) -> None:
    """`list` gives the immediate children, files and folders, sorted by key."""
    for key in ("d/b.md", "d/a.md", "d/sub/deep.md", "d/B0.md", "e.md"):
        backend.write(backend.resolve(key), key)
    backend.mkdir(backend.resolve("d/empty"))
    found = backend.list(backend.resolve("d"))
    _require(all(isinstance(child, Locator) for child in found), "children must be Locators")
    expected = ["d/B0.md", "d/a.md", "d/b.md", "d/empty", "d/sub"]
    _require([child.key for child in found] == expected, f"expected {expected}, got {[c.key for c in found]}")
    _require(
        [child.key for child in backend.list(backend.resolve())] == ["d", "e.md"],
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
        _require(found == [], f"list({key!r}) must answer [], got {found}")


HOSTILE_PARTS = ("..", "a/../b", "../../etc", "a\\..\\b", "nul\x00", "line\nbreak", "x" * 256, "\ud800")


def check_invalid_locator_rejected(backend: StorageBackend) -> None:
    """A key that could leave the root, or that no file can carry, is refused by name; a `/` is made relative."""
    for part in HOSTILE_PARTS:
        _raises(
            InvalidLocatorError,
            lambda part=part: backend.resolve("safe", part),  # type: ignore[misc]
            f"resolve of {part[:20]!r} must raise InvalidLocatorError",
        )
    _require(issubclass(InvalidLocatorError, ValueError), "InvalidLocatorError is a ValueError")
    _require(backend.resolve("/etc/passwd").key == "etc/passwd", "a leading slash is made relative")
    _raises(
        Invalid,
        lambda: backend.write(backend.resolve("half.md"), "\ud800"),
        "text that is not Unicode must raise Invalid",
    )
    _require(not backend.exists(backend.resolve("half.md")), "a refused write must leave nothing behind")


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


def check_rebuild(backend: StorageBackend, layout: TierLayout | None = None) -> None:
    """A rebuild of the derived tier mirrors the source to the byte, and follows it when it changes.

    The second half is what defeats a rebuild that knows its answer by heart.
    """
    layout = layout or TierLayout()
    maintenance = backend.derived_maintenance
    if maintenance is None:
        raise ConformanceFailure("the backend has no derived layer to rebuild")
    root = layout.root_for(Tier.LOCAL_INDEX)
    _require(not _texts(backend, root), "the derived root must be empty before the first rebuild")
    for texts in (
        {"a.md": "first\r\n", "sub/b.md": "grün"},
        {"a.md": "changed\n", "sub/b.md": "grün", "c.md": "new"},
    ):
        for key, text in texts.items():
            backend.write(layout.source.child(key), text)
        maintenance.reindex(Tier.LOCAL_INDEX)
        found = _texts(backend, root)
        _require(found == texts, f"the rebuilt tier must mirror the source: expected {texts}, got {found}")


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


# -- storage: the two declared extensions


def check_expect(backend: StorageBackend) -> None:
    """`expect` writes only over the text the caller saw; "" stands for nothing there."""
    place = backend.resolve("note.md")
    _raises(
        Conflict,
        lambda: backend.write(place, "x", expect=content_hash("something")),
        "expecting a text where there is none must raise Conflict",
    )
    _require(not backend.exists(place), "a refused write must leave nothing behind")
    backend.write(place, "one", expect="")
    _raises(Conflict, lambda: backend.write(place, "two", expect=""), "expecting nothing must raise Conflict")
    backend.write(place, "two", expect=content_hash("one"))
    _raises(
        Conflict,
        lambda: backend.write(place, "three", expect=content_hash("one")),
        "expecting a text that is no longer there must raise Conflict",
    )
    _require(backend.read(place) == "two", "a refused write must keep what is there")


def check_version(backend: StorageBackend) -> None:
    """`read_version` gives the text and what `expect` takes: good while nobody wrote, a Conflict afterwards."""
    place = backend.resolve("note.md")
    _raises(NotFound, lambda: backend.read_version(place), "a version of nothing must raise NotFound")
    backend.write(place, "one")
    for _ in range(2):
        text, version = backend.read_version(place)
        _require(text == "one" and version, f"expected the text and a version, got {text!r}, {version!r}")
        backend.write(place, "two", expect=version)
        _require(backend.read(place) == "two", "a version nobody wrote over must be accepted")
        _raises(
            Conflict,
            lambda version=version: backend.write(place, "three", expect=version),  # type: ignore[misc]
            "a version someone wrote over must raise Conflict",
        )
        _require(backend.read(place) == "two", "a refused write must keep what is there")
        backend.write(place, "one")
        # The second round meets a file that has lain still, where a backend may know a cheaper proof.
        threading.Event().wait(0.15)


def check_remove(backend: StorageBackend) -> None:
    """`remove` takes one file away and says so when there is none."""
    place, other = backend.resolve("d/note.md"), backend.resolve("d/other.md")
    backend.write(place, "x")
    backend.write(other, "y")
    backend.remove(place)
    _require(not backend.exists(place), "a removed file is gone")
    _require(backend.list(backend.resolve("d")) == [other], "remove must take nothing else")
    _raises(NotFound, lambda: backend.remove(place), "removing nothing must raise NotFound")
    _raises(Invalid, lambda: backend.remove(backend.resolve("d")), "remove is for files, not for folders")


EXTENSION_CHECKS: Mapping[str, Callable[[StorageBackend], None]] = {
    "expect": check_expect,
    "version": check_version,
    "remove": check_remove,
}


# -- journals


def check_journal_round_trip(journals: Journals) -> None:
    """Lines come back in order and exactly; offsets continue where the last answer ended."""
    at = Locator("journal/x.jsonl")
    first = journals.append(at, ['{"n": 1}', '{"n": "ü"}'])
    _require(first == journals.size(at) > 0, "append must return the offset after its lines")
    seen = journals.read(at)
    _require(
        seen.lines == ('{"n": 1}', '{"n": "ü"}') and seen.end == first, f"lines must come back, got {seen}"
    )
    journals.append(at, ['{"n": 3}'])
    later = journals.read(at, seen.end)
    _require(
        later.lines == ('{"n": 3}',) and later.end == journals.size(at), "an offset continues the reading"
    )
    _require(journals.read(at, later.end).lines == (), "at the end there is nothing more")
    _require(journals.append(at, []) == later.end, "appending nothing changes nothing")


def check_journal_absent(journals: Journals) -> None:
    """Where there is no journal there are no lines, and no error."""
    at = Locator("journal/none.jsonl")
    _require(journals.read(at).lines == () and journals.read(at).end == 0, "an absent journal reads as empty")
    _require(journals.size(at) == 0, "an absent journal has size 0")


def check_journal_all_or_none(journals: Journals) -> None:
    """A unit with one bad line leaves no line behind."""
    at = Locator("journal/x.jsonl")
    journals.append(at, ["kept"])
    for bad in ("line\nbreak", "half \ud800"):
        _raises(Invalid, lambda bad=bad: journals.append(at, ["good", bad]), f"{bad!r} must raise Invalid")  # type: ignore[misc]
    _require(journals.read(at).lines == ("kept",), "a refused unit must leave nothing behind")


def check_journal_replace(journals: Journals) -> None:
    """`replace` makes the lines the whole journal; an offset from before is met as a Conflict."""
    at = Locator("journal/x.jsonl")
    end = journals.append(at, ["one", "two", "three"])
    journals.replace(at, ["only"])
    _require(journals.read(at).lines == ("only",), "replace must drop the old lines")
    _raises(Conflict, lambda: journals.read(at, end), "an offset beyond the journal must raise Conflict")
    journals.append(at, ["more"])
    _require(journals.read(at).lines == ("only", "more"), "appends continue after a replace")


def check_journal_many_threads(journals: Journals) -> None:
    """Units of many threads are each whole, none is lost, none is doubled."""
    at = Locator("journal/x.jsonl")
    ends: list[int] = []

    def work(who: int) -> None:
        ends.extend(journals.append(at, [f"{who}.{n}a", f"{who}.{n}b"]) for n in range(20))

    _in_threads(work, range(6))
    lines = journals.read(at).lines
    _require(
        len(lines) == 240 and len(set(lines)) == 240, f"expected 240 different lines, got {len(set(lines))}"
    )
    _require(
        all(one[:-1] == two[:-1] for one, two in zip(lines[::2], lines[1::2], strict=True)),
        "units stay together",
    )
    _require(len(set(ends)) == 120 and max(ends) == journals.size(at), "every append has its own end")


JOURNAL_CHECKS: Mapping[str, Callable[[Journals], None]] = {
    "round_trip": check_journal_round_trip,
    "absent": check_journal_absent,
    "all_or_none": check_journal_all_or_none,
    "replace": check_journal_replace,
    "many_threads": check_journal_many_threads,
}


# -- locks


def check_lock_excludes(locks: Locks) -> None:
    """Only one thread at a time is inside a name."""
    pause = threading.Event()
    inside: list[int] = []
    most: list[int] = []

    def work(who: int) -> None:
        for _ in range(20):
            with locks.hold("note"):
                inside.append(who)
                pause.wait(0.0002)
                most.append(len(inside))
                inside.remove(who)

    _in_threads(work, range(6))
    _require(len(most) == 120 and max(most) == 1, "two threads were inside one lock")


def check_lock_times_out(locks: Locks) -> None:
    """A lock that stays taken raises Unavailable in time; another name is free."""
    trouble: list[Exception | None] = []

    def second() -> None:
        with locks.hold("other", timeout=5):
            pass
        try:
            with locks.hold("note", timeout=0.05):
                trouble.append(None)
        except Exception as error:
            trouble.append(error)

    with locks.hold("note"):
        _in_threads(lambda _: second(), [0])
    _require(
        trouble and isinstance(trouble[0], Unavailable), f"a taken lock must raise Unavailable, got {trouble}"
    )
    _in_threads(lambda _: second(), [0])
    _require(trouble[1] is None, "a lock is free after its block")


def check_lock_freed_by_error(locks: Locks) -> None:
    """An error inside the block frees the lock and goes on its way."""

    def fail() -> None:
        with locks.hold("note"):
            raise KeyError("inside")

    _raises(KeyError, fail, "an error inside the block must come out")
    with locks.hold("note", timeout=1):
        pass


def check_lock_does_not_nest(locks: Locks) -> None:
    """A thread that asks for what it holds gets an error, not a deadlock."""

    def again() -> None:
        with locks.hold("note"), locks.hold("note", timeout=2):
            pass

    _raises(Invalid, again, "asking twice must raise Invalid")
    with locks.hold("note", timeout=1):
        pass


def check_lease(locks: Locks) -> None:
    """A lease is had or not, at once; it is free after its block."""
    seen: list[bool] = []

    def other(_: int) -> None:
        with locks.lease("indexer") as mine:
            seen.append(mine)

    with locks.lease("indexer") as mine:
        _require(mine is True, "a free lease must be had")
        _in_threads(other, [0])
    _in_threads(other, [0])
    _require(seen == [False, True], f"a lease is refused while held and had afterwards, got {seen}")


LOCK_CHECKS: Mapping[str, Callable[[Locks], None]] = {
    "excludes": check_lock_excludes,
    "times_out": check_lock_times_out,
    "freed_by_error": check_lock_freed_by_error,
    "does_not_nest": check_lock_does_not_nest,
    "lease": check_lease,
}


def _in_threads(work: Callable[[int], None], args: Iterable[int]) -> None:
    troubles: list[BaseException] = []

    def run(arg: int) -> None:
        try:
            work(arg)
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=run, args=(arg,), daemon=True) for arg in args]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    _require(not any(thread.is_alive() for thread in threads), "a thread is stuck")
    if troubles:
        raise ConformanceFailure(f"a thread failed: {troubles[0]!r}") from troubles[0]


# -- drivers


def run_checks(checks: Mapping[str, Callable[[Any], None]], factory: Callable[[], Any]) -> tuple[str, ...]:
    """Run every check on a fresh engine; raise at the first violation, named; else return the names."""
    for name, check in checks.items():
        try:
            check(factory())
        except ConformanceFailure as failure:
            raise ConformanceFailure(str(failure), name) from failure
        except Exception as error:
            raise ConformanceFailure(f"unexpected {type(error).__name__}: {error}", name) from error
    return tuple(checks)


def run_conformance(
    factory: Callable[[], StorageBackend], *, layout: TierLayout | None = None
) -> ConformanceReport:
    """Run the storage suite: nine universal checks, and the rebuild where there is a derived layer.

    Args:
        factory: Makes a fresh, empty backend at each call.
        layout: Where the backend keeps its tiers, if not at the default places.

    Raises:
        ConformanceFailure: at the first violation.
    """
    universal = run_checks(UNIVERSAL_CHECKS, factory)
    probe = factory()
    derived = "absent"
    if probe.derived_maintenance is not None:
        run_checks({"rebuild": lambda backend: check_rebuild(backend, layout)}, factory)
        derived = "passed"
    return ConformanceReport(
        universal,
        derived,
        {"capabilities": probe.capabilities, "conflict_strategy": probe.conflict_strategy},
    )


class _Mixin:
    """Turns a suite into test methods that pytest and unittest both find."""

    def __init_subclass__(
        cls, checks: Mapping[str, Callable[[Any], None]] | None = None, make: str = ""
    ) -> None:
        super().__init_subclass__()
        for name, check in (checks or {}).items():

            def test(self: Any, check: Callable[[Any], None] = check) -> None:
                check(getattr(self, make)())

            test.__doc__ = check.__doc__
            test.__name__ = f"test_{name}"
            setattr(cls, test.__name__, test)


class StorageConformance(_Mixin, checks={**UNIVERSAL_CHECKS, **EXTENSION_CHECKS}, make="make_backend"):
    """Derive from this, give `make_backend`, and every storage check is a test."""

    def make_backend(self) -> StorageBackend:
        raise NotImplementedError

    def test_rebuild(self) -> None:
        """The derived layer, where there is one, rebuilds from the source."""
        backend = self.make_backend()
        if backend.derived_maintenance is not None:
            check_rebuild(backend)


class JournalConformance(_Mixin, checks=JOURNAL_CHECKS, make="make_journals"):
    """Derive from this, give `make_journals`, and every journal check is a test."""

    def make_journals(self) -> Journals:
        raise NotImplementedError


class LockConformance(_Mixin, checks=LOCK_CHECKS, make="make_locks"):
    """Derive from this, give `make_locks`, and every lock check is a test."""

    def make_locks(self) -> Locks:
        raise NotImplementedError
