"""The background runner of a work tree: imports, consolidates and prunes every few minutes.

A run never waits for a person and never touches git: pages and record are written like any other change in the
work tree, dirty or not, and committing them stays with the person. In the middle of a merge or rebase it
leaves everything alone. The lease is the system's own file lock, so a killed runner's place is free at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cairn.canonical import pretty, stamp
from cairn.errors import CairnError, Invalid
from cairn.project import git
from cairn.project.layout import DAEMON, LATEST_RUN, read_json
from cairn.project.project import ProjectMemory
from cairn.seams import Locks, StorageBackend

LEASE = "daemon.lock"
STATUSES = ("idle", "imported", "recalled", "recalled_noop", "failed")
_IN_PROGRESS = ("MERGE_HEAD", "rebase-merge", "rebase-apply", "CHERRY_PICK_HEAD", "REVERT_HEAD")


@dataclass(frozen=True, slots=True)
class RunResult:
    """One automatic run. `status` is the most telling of what happened."""

    status: str
    started: str
    finished: str
    imported: int = 0
    changed: tuple[str, ...] = ()
    pruned: dict[str, Any] = field(default_factory=dict)
    considered: str | None = None
    bundle_hash: str | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "startedAt": self.started,
            "finishedAt": self.finished,
            "importedCount": self.imported,
            "changedSections": list(self.changed),
            "pruned": self.pruned,
            "consideredThrough": self.considered,
            "bundleHash": self.bundle_hash,
            "error": self.error,
            "notes": list(self.notes),
        }


def run_once(project: ProjectMemory) -> RunResult:
    """One cycle: look, import, consolidate, prune. A failure is recorded and returned, not raised."""
    started = stamp(project.clock.now())
    try:
        result = _cycle(project, started)
    except (CairnError, OSError) as error:
        told = str(error) if isinstance(error, CairnError) else error.strerror or str(error)
        result = RunResult("failed", started, stamp(project.clock.now()), error=told)
    try:
        project.record_.storage.write(LATEST_RUN, pretty(result.to_json()))
    except CairnError as error:
        return RunResult("failed", started, result.finished, error=result.error or str(error))
    return result


def _cycle(project: ProjectMemory, started: str) -> RunResult:
    options = project.options
    busy = in_progress(project)
    if busy:
        return RunResult("idle", started, stamp(project.clock.now()), notes=(f"{busy}: left alone",))
    status, imported, notes = "idle", 0, []
    if options.get("automation.importSyncBeforeRecall") and project.sources():
        reports = project.import_()
        imported = sum(report.imported for report in reports)
        notes += [report.first_error for report in reports if report.first_error]
        status = "imported" if imported else status
    considered = None
    changed: tuple[str, ...] = ()
    if options.get("automation.autoRecall"):
        plan, written = project.consolidate()
        if written:
            status, changed = "recalled", written.changed
        elif plan.events:
            status = "imported" if imported else "recalled_noop"
            considered = plan.events[-1].id
    pruned: dict[str, Any] = {}
    if options.get("retention.enabled"):
        prune, batch = project.prune()
        pruned = {**prune.to_json(), "batch": batch} if prune else {}
    digest = project.record_.view().story.checkpoint.bundleHash
    finished = stamp(project.clock.now())
    return RunResult(
        status, started, finished, imported, changed, pruned, considered, digest, notes=tuple(notes)
    )


def in_progress(project: ProjectMemory) -> str | None:
    """What git is in the middle of, if anything: "a merge is in progress"."""
    folder = git.git(project.tree, "rev-parse", "--absolute-git-dir")
    if not folder:
        return None
    for name in _IN_PROGRESS:
        if os.path.exists(os.path.join(folder.strip(), name)):
            return f"{name.split('_')[0].split('-')[0].lower()} in progress"
    return None


def run(
    project: ProjectMemory, stop: threading.Event, after_cycle: Callable[[RunResult], None] | None = None
) -> bool:
    """Run cycles until `stop` is set, holding the lease (`automate start`); False, at once, where another runner has it."""
    with project.locks.lease(LEASE) as held:
        if not held:
            return False
        storage = project.record_.storage
        storage.write(DAEMON, pretty({"pid": os.getpid(), "startedAt": stamp(project.clock.now())}))
        try:
            while not stop.is_set():
                result = run_once(project)
                if after_cycle:
                    after_cycle(result)
                minutes = 15.0
                with suppress(CairnError):
                    minutes = project.options.number("automation.intervalMinutes")
                stop.wait(max(1.0, minutes * 60))
        finally:
            with suppress(CairnError, OSError):
                storage.remove(DAEMON)
        return True


def runner_status(storage: StorageBackend, locks: Locks) -> dict[str, Any]:
    """Whether a runner lives, by its lease; its pid and start by what it wrote."""
    with locks.lease(LEASE) as free:
        running = not free
    try:
        noted = read_json(storage, DAEMON)
        run = read_json(storage, LATEST_RUN)
    except Invalid:
        noted = run = None
    noted = noted if isinstance(noted, dict) else {}
    return {
        "running": running,
        "pid": noted.get("pid") if running else None,
        "startedAt": noted.get("startedAt") if running else None,
        "stale": bool(noted) and not running,
        "latestRun": run if isinstance(run, dict) else None,
    }
