"""S68: negative fixtures. For every check there is an engine that breaks just its promise, and is caught."""

import threading
from contextlib import contextmanager
from datetime import datetime

import numpy as np
import pytest

from cairn.engines.changes import SqliteState
from cairn.engines.embedders import HashingEmbedder
from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.engines.jobs import SqliteJobs
from cairn.errors import InvalidLocatorError, NotFound
from cairn.seams import Completion, DerivedMaintenance, Info, JournalSlice, Locator, content_hash
from cairn.seams.storage import WrittenJournals
from cairn.testing import (
    CLOCK_CHECKS,
    EMBEDDER_CHECKS,
    EXTENSION_CHECKS,
    JOBS_CHECKS,
    JOURNAL_CHECKS,
    LOCK_CHECKS,
    STATE_CHECKS,
    UNIVERSAL_CHECKS,
    WRITER_CHECKS,
    ConformanceFailure,
    check_rebuild,
    run_checks,
    run_conformance,
)

from .mirror import Mirror, Mirrored

APART = InMemoryBackend().journals


class ResolvesToText(InMemoryBackend):
    breaks = "resolve_and_locator"

    def resolve(self, *parts):
        return "/".join(parts)


class ResolvesRootElsewhere(InMemoryBackend):
    breaks = "resolve_and_locator"

    def resolve(self, *parts):
        return Locator("/".join(parts or ("root",)))


class AppendsOnWrite(InMemoryBackend):
    breaks = "write_read_round_trip"

    def write(self, locator, content, *, expect=None):
        old = self.read(locator) if self.exists(locator) else ""
        return super().write(locator, old + content, expect=expect)


class ReadsAbsentAsEmpty(InMemoryBackend):
    breaks = "write_read_round_trip"

    def read(self, locator):
        return super().read(locator) if self.exists(locator) else ""


class ReturnsNothingOnWrite(InMemoryBackend):
    breaks = "write_read_round_trip"

    def write(self, locator, content, *, expect=None):
        super().write(locator, content, expect=expect)


class TranslatesNewlines(InMemoryBackend):
    breaks = "lf_exact_round_trip"

    def read(self, locator):
        return super().read(locator).replace("\r\n", "\n")


class EndsWithNewline(InMemoryBackend):
    breaks = "lf_exact_round_trip"

    def write(self, locator, content, *, expect=None):
        ended = content if content.endswith("\n") or not content else content + "\n"
        return super().write(locator, ended, expect=expect)


class KnowsNoFolders(InMemoryBackend):
    breaks = "exists_flips"

    def exists(self, locator):
        return locator.key in self._files


class ExistsAlways(InMemoryBackend):
    breaks = "exists_flips"

    def exists(self, locator):
        return True

    def _check_new(self, locator):
        pass


class CountsCharacters(InMemoryBackend):
    breaks = "info"

    def info(self, locator):
        info = super().info(locator)
        return info if info.is_dir else Info(locator, False, len(self.read(locator)), info.mtime)


class InventsInfo(InMemoryBackend):
    breaks = "info"

    def info(self, locator):
        return super().info(locator) if self.exists(locator) else Info(locator, False, 0, 0.0)


class MakesFoldersOnce(InMemoryBackend):
    breaks = "mkdir_idempotent"

    def mkdir(self, locator):
        if len(locator.parts) == 3 and self.exists(locator):
            raise FileExistsError(locator.key)
        return super().mkdir(locator)


class EmptiesFolders(InMemoryBackend):
    breaks = "mkdir_idempotent"

    def mkdir(self, locator):
        if locator.key:
            self._files = {k: v for k, v in self._files.items() if not k.startswith(f"{locator.key}/")}
        return super().mkdir(locator)


class ListsTwice(InMemoryBackend):
    breaks = "list_children"

    def list(self, locator):
        return super().list(locator) * 2


class ListsEverythingBelow(InMemoryBackend):
    breaks = "list_children"

    def list(self, locator):
        prefix = f"{locator.key}/" if locator.key else ""
        return [Locator(k) for k in sorted({*self._files, *self._dirs} - {""}) if k.startswith(prefix)]


class RaisesOnAbsentList(InMemoryBackend):
    breaks = "list_on_absent"

    def list(self, locator):
        if locator.key and locator.key not in self._dirs:
            raise NotFound(locator.key)
        return super().list(locator)


class ListsAFileAsItself(InMemoryBackend):
    breaks = "list_on_absent"

    def list(self, locator):
        return [locator] if locator.key in self._files else super().list(locator)


class DropsDots(InMemoryBackend):
    breaks = "invalid_locator_rejected"

    def resolve(self, *parts):
        try:
            return super().resolve(*parts)
        except InvalidLocatorError:
            return Locator("/".join(part.replace("..", "") for part in parts if part.isprintable())[:99])


class WritesHalfCharacters(InMemoryBackend):
    breaks = "invalid_locator_rejected"

    def write(self, locator, content, *, expect=None):
        return super().write(locator, content.encode("utf-8", "replace").decode(), expect=expect)


class IgnoresExpect(InMemoryBackend):
    breaks = "expect"

    def write(self, locator, content, *, expect=None):
        return super().write(locator, content)


class VersionsByLength(InMemoryBackend):
    breaks = "version"

    def read_version(self, locator):
        text = self.read(locator)
        return text, str(len(text))

    def write(self, locator, content, *, expect=None):
        if expect and expect.isdigit():
            expect = content_hash(self.read(locator)) if len(self.read(locator)) == int(expect) else expect
        return super().write(locator, content, expect=expect)


class KeepsJournalsApart(InMemoryBackend):
    breaks = "append"

    @property
    def journals(self):
        return APART


class RemovesQuietly(InMemoryBackend):
    breaks = "remove"

    def remove(self, locator):
        if self.exists(locator):
            super().remove(locator)


BROKEN = [
    cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, InMemoryBackend) and hasattr(cls, "breaks")
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_backend_is_caught_by_the_check_of_its_promise(broken):
    """S68: the check whose promise is broken says so, and names itself."""
    checks = {**UNIVERSAL_CHECKS, **EXTENSION_CHECKS}
    with pytest.raises(ConformanceFailure) as caught:
        run_checks({broken.breaks: checks[broken.breaks]}, broken)
    assert caught.value.check == broken.breaks
    if broken.breaks in UNIVERSAL_CHECKS:
        with pytest.raises(ConformanceFailure):
            run_conformance(broken)


def test_every_check_has_a_backend_that_fails_it():
    """S66, S68: no check of the suite is without a negative fixture."""
    assert {broken.breaks for broken in BROKEN} == {*UNIVERSAL_CHECKS, *EXTENSION_CHECKS}


class KnowsTheAnswer(Mirror):
    def reindex(self, tier):
        for key, text in {"a.md": "first\r\n", "sub/b.md": "grün"}.items():
            self.backend.write(self.layout.root_for(tier).child(key), text)


class DoesNothing(DerivedMaintenance):
    def reindex(self, tier):
        pass

    def changed_since(self, mtime):
        return []


@pytest.mark.parametrize("maintenance", [KnowsTheAnswer, lambda _: DoesNothing()])
def test_a_rebuild_that_does_not_follow_the_source_is_caught(maintenance):
    """S67: a hard-coded rebuild passes the first look and fails the second."""

    class Broken(Mirrored):
        @property
        def derived_maintenance(self):
            return maintenance(self)

    with pytest.raises(ConformanceFailure) as caught:
        run_conformance(Broken)
    assert caught.value.check == "rebuild"


def test_a_derived_root_that_is_not_empty_at_first_is_caught():
    """S67: leftovers in the derived root would let a rebuild that does nothing pass."""

    class Prefilled(Mirrored):
        def __init__(self, root=None):
            super().__init__()
            self.write(Locator("local-index/a.md"), "left over")

    with pytest.raises(ConformanceFailure, match="must be empty"):
        run_checks({"rebuild": check_rebuild}, Prefilled)


class MadeJournals(WrittenJournals):
    def __init__(self):
        super().__init__(InMemoryBackend())


class LosesOrder(MadeJournals):
    breaks = "round_trip"

    def read(self, at, start=0):
        found = super().read(at, start)
        return JournalSlice(found.lines[::-1], found.end)


class RaisesOnAbsent(MadeJournals):
    breaks = "absent"

    def read(self, at, start=0):
        if not self.size(at):
            raise NotFound(at.key)
        return super().read(at, start)


class AppendsLineByLine(MadeJournals):
    breaks = "all_or_none"

    def append(self, at, lines):
        for line in lines:
            super().append(at, [line])
        return self.size(at)


class ReplacesByAppending(MadeJournals):
    breaks = "replace"

    def replace(self, at, lines):
        return self.append(at, lines)


class SplitsUnits(MadeJournals):
    breaks = "many_threads"

    def append(self, at, lines):
        for line in lines:
            super().append(at, [line])
            threading.Event().wait(0.01)
        return self.size(at)


class ExcludesNobody(InMemoryLocks):
    breaks = "excludes"

    @contextmanager
    def hold(self, name, *, timeout=30.0):
        yield
        threading.Event().wait(0.01)


class NeverTimesOut(InMemoryLocks):
    breaks = "times_out"

    @contextmanager
    def hold(self, name, *, timeout=30.0):
        yield


class KeepsOnError(InMemoryLocks):
    breaks = "freed_by_error"

    @contextmanager
    def hold(self, name, *, timeout=30.0):
        lock = self._named(name)
        if not lock.acquire(timeout=timeout):
            raise TimeoutError
        yield
        lock.release()


class Nests(InMemoryLocks):
    breaks = "does_not_nest"

    @contextmanager
    def hold(self, name, *, timeout=30.0):
        yield


class LeasesToAll(InMemoryLocks):
    breaks = "lease"

    @contextmanager
    def lease(self, name):
        yield True


@pytest.mark.parametrize(
    ("checks", "broken"),
    [
        (JOURNAL_CHECKS, b)
        for b in (LosesOrder, RaisesOnAbsent, AppendsLineByLine, ReplacesByAppending, SplitsUnits)
    ]
    + [(LOCK_CHECKS, b) for b in (ExcludesNobody, NeverTimesOut, KeepsOnError, Nests, LeasesToAll)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_journals_and_locks_are_caught(checks, broken):
    """Journals and locks have negative fixtures too."""
    with pytest.raises(ConformanceFailure) as caught:
        run_checks({broken.breaks: checks[broken.breaks]}, broken)
    assert caught.value.check == broken.breaks


class ClaimsNewestFirst(SqliteState):
    breaks = "order"

    def claim(self, limit, *, holder, within=()):
        return super().claim(limit, holder=holder, within=within)[::-1]


class EndsStaleClaims(SqliteState):
    breaks = "stale_claim"

    def finish(self, changes, *, holder, seen, remarks=None):
        super().finish(changes, holder=holder, seen=seen, remarks=remarks)
        return len(changes)


class FreesEverybody(SqliteState):
    breaks = "recover"

    def recover(self, *, holder):
        return super().recover(holder="nobody")


class RetriesForEver(SqliteState):
    breaks = "failures"

    def fail(self, change, reason, *, holder, retryable, seen=None, unread=False):
        super().fail(change, reason, holder=holder, retryable=True, seen=seen, unread=True)


class KnowsNoFolder(SqliteState):
    breaks = "within"

    def waiting(self, lsn=None, within=()):
        return super().waiting(lsn)


class ReadyAtOnce(SqliteState):
    breaks = "ready"

    def set_ready(self, generation):
        return True


class TellsNobody(SqliteState):
    breaks = "many_threads"

    def enqueue(self, changes):
        self.on_enqueue = None
        return super().enqueue(changes)


class CoversWhatIsRead(SqliteState):
    breaks = "growing_log"

    def claim(self, limit, *, holder, within=()):
        waiting = set(self._unclaimed)
        claimed = super().claim(limit, holder=holder, within=within)
        self._unclaimed |= waiting
        return claimed


class QueuesTwice(SqliteJobs):
    breaks = "once"

    def enqueue(self, queued, *, now):
        return super().enqueue(queued, now=now) or len(queued)


class ForgetsAttempts(SqliteJobs):
    breaks = "outcome"

    def retry(self, failed, *, count=True):
        super().retry(failed, count=False)


class TrustsTheClock(SqliteJobs):
    breaks = "clock_set_back"

    def due(self, strategies, *, now, far):
        return super().due(strategies, now=now, far=1e15)


class NeverCools(SqliteJobs):
    breaks = "gates"

    def open_gates(self, strategy, threshold, cooldown, *, now):
        return super().open_gates(strategy, threshold, 0, now=now)


class AlwaysNew(SqliteJobs):
    breaks = "marks"
    is_new = True


class GivesToAll(SqliteJobs):
    breaks = "many_threads"

    def claim(self, strategies, limit, *, now, far):
        claimed = super().claim(strategies, limit, now=now, far=far)
        return claimed * 2


class LongVectors(HashingEmbedder):
    breaks = "unit_vectors"

    def embed(self, texts):
        return super().embed(texts) * 3


class MindsCompany(HashingEmbedder):
    breaks = "repeatable"

    def embed(self, texts):
        return super().embed(texts) * np.float32(1 / len(texts))


class PromisesPieces(HashingEmbedder):
    breaks = "pieces"
    token_dimensions = 8


class AnswersFreely:
    breaks = "answers"
    id = "free"

    def complete(self, system, prompt, schema, *, purpose):
        return Completion({"anything": 1})


class LocalTime:
    breaks = "utc"

    def now(self):
        return datetime(2026, 1, 1)  # noqa: DTZ001 -- the fault


SUITES = [
    (STATE_CHECKS, SqliteState),
    (JOBS_CHECKS, SqliteJobs),
    (EMBEDDER_CHECKS, HashingEmbedder),
    (WRITER_CHECKS, AnswersFreely),
    (CLOCK_CHECKS, LocalTime),
]
BROKEN_ENGINES = [
    (checks, cls)
    for checks, base in SUITES
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, base) and "breaks" in vars(cls)
]


@pytest.mark.parametrize(
    ("checks", "broken"), BROKEN_ENGINES, ids=lambda value: getattr(value, "__name__", "")
)
def test_broken_queues_models_and_clocks_are_caught(checks, broken, tmp_path_factory):
    """For every check of every other seam there is an engine that breaks just its promise."""
    folder = issubclass(broken, SqliteState | SqliteJobs)
    with pytest.raises(ConformanceFailure) as caught:
        run_checks(
            {broken.breaks: checks[broken.breaks]},
            lambda: broken(tmp_path_factory.mktemp("broken")) if folder else broken(),
        )
    assert caught.value.check == broken.breaks


def test_every_check_of_every_seam_has_an_engine_that_fails_it():
    """No check of a suite is without a negative fixture."""
    for checks, _ in SUITES:
        assert {cls.breaks for other, cls in BROKEN_ENGINES if other is checks} == set(checks)
