"""Conformance suites and fakes, for us and for whoever writes an engine.

Each seam has a suite of named checks. Every check gets a fresh engine from a factory
and raises `ConformanceFailure` when a promise of the seam is broken. Run them in one go,

    report = run_conformance(lambda: MyBackend(tempfile.mkdtemp()))

or one by one under pytest or unittest by deriving from a mixin:

    class TestMyBackend(StorageConformance):
        def make_backend(self): return MyBackend(tempfile.mkdtemp())

No check asserts a clock value: synced times lie.

`faults` makes disks fail and clocks jump by schedule, at the seam or under the file engines.
"""

from __future__ import annotations

from cairn.testing.clock import FixedClock
from cairn.testing.faults import (
    Call,
    Fault,
    Faults,
    FaultyBackend,
    FaultyJournals,
    JumpingClock,
    faulty_disk,
)
from cairn.testing.index import INDEX_CHECKS, IndexConformance, IndexUnderTest
from cairn.testing.journals import JOURNAL_CHECKS, JournalConformance
from cairn.testing.locks import LOCK_CHECKS, LockConformance
from cairn.testing.models import (
    CLOCK_CHECKS,
    EMBEDDER_CHECKS,
    WRITER_CHECKS,
    ClockConformance,
    EmbedderConformance,
    WriterConformance,
    check_writer_unavailable,
)
from cairn.testing.queues import JOBS_CHECKS, STATE_CHECKS, JobsConformance, StateConformance
from cairn.testing.storage import (
    EXTENSION_CHECKS,
    UNIVERSAL_CHECKS,
    ConformanceReport,
    StorageConformance,
    check_rebuild,
    run_conformance,
)
from cairn.testing.suite import ConformanceFailure, run_checks

__all__ = [
    "CLOCK_CHECKS",
    "EMBEDDER_CHECKS",
    "EXTENSION_CHECKS",
    "INDEX_CHECKS",
    "JOBS_CHECKS",
    "JOURNAL_CHECKS",
    "LOCK_CHECKS",
    "STATE_CHECKS",
    "UNIVERSAL_CHECKS",
    "WRITER_CHECKS",
    "Call",
    "ClockConformance",
    "ConformanceFailure",
    "ConformanceReport",
    "EmbedderConformance",
    "Fault",
    "Faults",
    "FaultyBackend",
    "FaultyJournals",
    "FixedClock",
    "IndexConformance",
    "IndexUnderTest",
    "JobsConformance",
    "JournalConformance",
    "JumpingClock",
    "LockConformance",
    "StateConformance",
    "StorageConformance",
    "WriterConformance",
    "check_rebuild",
    "check_writer_unavailable",
    "faulty_disk",
    "run_checks",
    "run_conformance",
]
