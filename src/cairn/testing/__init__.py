"""Conformance suites and fakes, for us and for whoever writes an engine.

Each seam with more than one engine has a suite of named checks. Every check gets a fresh engine from a factory
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
from cairn.testing.journals import JOURNAL_CHECKS, JournalConformance
from cairn.testing.locks import LOCK_CHECKS, LockConformance
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
    "EXTENSION_CHECKS",
    "JOURNAL_CHECKS",
    "LOCK_CHECKS",
    "UNIVERSAL_CHECKS",
    "Call",
    "ConformanceFailure",
    "ConformanceReport",
    "Fault",
    "Faults",
    "FaultyBackend",
    "FaultyJournals",
    "FixedClock",
    "JournalConformance",
    "JumpingClock",
    "LockConformance",
    "StorageConformance",
    "check_rebuild",
    "faulty_disk",
    "run_checks",
    "run_conformance",
]
