"""What the memory of a repository answers: status, story, answers, findings."""

from __future__ import annotations

from typing import Annotated, Any

from cairn.operations.table import says


class Drift:
    """How far the work tree is from a checkpoint."""

    summary: Annotated[str, says("in a sentence", "2 files changed")]


class ProjectStatusData:
    """How a repository's memory stands; more fields follow these."""

    state: Annotated[
        dict[str, Any],
        says("the newest checkpoint and when it was made", {"latestCheckpointId": "chk-000003"}),
    ]
    backlog: Annotated[dict[str, Any], says("events that wait to be folded in", {"all": {"count": 2}})]
    drift: Annotated[
        Drift, says("how far the work tree is from the checkpoint", {"summary": "2 files changed"})
    ]
    suggestedAction: Annotated[str, says("what to do next", "cairn project consolidate")]  # noqa: N815 -- the contract's name


class ProjectMoment:
    """An event or a checkpoint of a repository."""

    id: Annotated[str, says("its id", "chk-000003")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    summary: Annotated[str, says("what it is about", "Folded in 2 events")]
    kind: Annotated[str, says("of an event: what it is", "note")] = ""


class ProjectStoryData:
    """A repository's memory to read."""

    pages: Annotated[dict[str, str], says("its pages, by name, as Markdown", {"gotchas": "# Gotchas"})]
    checkpoints: Annotated[list[ProjectMoment], says("newest first", [])]
    events: Annotated[list[ProjectMoment], says("newest first", [])]
    changed: Annotated[
        dict[str, str], says("what each section changed, where two were compared", {"gotchas": "+ a trap"})
    ]


class ProjectAnswer:
    """An answer about a repository; more fields follow these."""

    answer: Annotated[str, says("the answer", "Deploys wait for the migration job [1].")]
    citations: Annotated[list[dict[str, Any]], says("its evidence", [{"sourceId": "evt-000001"}])]


class ProjectFinding:
    """One check of a repository's record."""

    status: Annotated[str, says("pass, warn or fail", "pass")]
    code: Annotated[str, says("which check", "checkpoint-hash")]
    message: Annotated[str, says("what was found", "every checkpoint has its hash")]


class ValidateData:
    """Whether a repository's record is whole."""

    ok: Annotated[bool, says("whether nothing fails", True)]
    findings: Annotated[list[ProjectFinding], says("each check", [])]


class ProjectChangeData:
    """What was written of a repository's memory."""

    eventId: Annotated[str | None, says("the event that was added", "evt-000004")]  # noqa: N815 -- the contract's name
    checkpointId: Annotated[str, says("the checkpoint that holds the bundle", "chk-000003")]  # noqa: N815 -- the contract's name
    bundleHash: Annotated[str, says("the hash of the bundle", "9f86d081884c7d65")]  # noqa: N815 -- the contract's name
    changedSections: Annotated[list[str], says("what changed", ["gotchas"])]  # noqa: N815 -- the contract's name
    notes: Annotated[list[str], says("what to know about it", [])]
    summary: Annotated[str, says("in a sentence", "Folded in 2 events")]


class ProjectEvent:
    """An event of a repository's record; more fields follow these."""

    id: Annotated[str, says("its id", "evt-000004")]
    kind: Annotated[str, says("what it is", "tool_run")]
    summary: Annotated[str, says("what happened", "Moved the parser to its own file")]
    signals: Annotated[dict[str, list[str]], says("what it carries", {"gotchas": ["ports: 8000 is taken."]})]


class FoldedData:
    """What consolidating changed, or would."""

    noop: Annotated[bool, says("whether there is nothing to fold in", False)]
    applied: Annotated[bool, says("whether it was written", True)]
    summary: Annotated[
        dict[str, Any], says("what is added, merged and dropped", {"changedSections": ["gotchas"]})
    ]
    diffs: Annotated[
        dict[str, str], says("the difference of each file", {"docs/cairn/gotchas.md": "+ a trap"})
    ]
    written: Annotated[ProjectChangeData | None, says("what was written, where it was", None)]


class SourceData:
    """A folder that sessions are imported from; more fields follow these."""

    id: Annotated[str, says("its id", "claude-local-1")]
    type: Annotated[str, says("whose format", "claude-local")]
    path: Annotated[str, says("where it is", "/srv/sessions")]
    lastSyncStatus: Annotated[str, says("how the last import went: never, passed or failed", "passed")]  # noqa: N815 -- the contract's name


class SourcesData:
    """The folders that sessions are imported from."""

    sources: Annotated[list[SourceData], says("each of them", [])]


class ReportData:
    """What the import of one source did; more counts follow these."""

    source: Annotated[str, says("its id", "claude-local-1")]
    imported: Annotated[int, says("sessions that are new", 3)]
    grown: Annotated[int, says("sessions that had grown", 1)]
    known: Annotated[int, says("sessions that were as before", 40)]
    failed: Annotated[int, says("sessions that could not be read", 0)]
    failures: Annotated[list[dict[str, Any]], says("which, and why", [])]
    error: Annotated[str | None, says("why nothing could be imported", None)]


class ReportsData:
    """What an import did."""

    reports: Annotated[list[ReportData], says("source by source", [])]


class PrunedData:
    """What left a repository's record, or would."""

    events: Annotated[list[str], says("the events", ["evt-000001"])]
    checkpoints: Annotated[list[str], says("the checkpoints", ["chk-000001"])]
    expiredBatches: Annotated[list[str], says("archives that were too old", [])]  # noqa: N815 -- the contract's name
    warnings: Annotated[list[str], says("what stayed, and why", [])]
    batch: Annotated[str | None, says("the archive they went to", "prune-20260601T093000000Z")]
    dryRun: Annotated[bool, says("whether nothing was done", False)]  # noqa: N815 -- the contract's name


class RunnerData:
    """The background runner of a repository."""

    running: Annotated[bool, says("whether it runs", True)]
    pid: Annotated[int | None, says("its process", 4242)]
    startedAt: Annotated[str | None, says("since when", "2026-06-01T09:30:00+00:00")]  # noqa: N815 -- the contract's name
    stale: Annotated[bool, says("whether one ended without saying so", False)]
    latestRun: Annotated[dict[str, Any] | None, says("how its last run went", {"status": "idle"})]  # noqa: N815 -- the contract's name


class RunData:
    """One run of the upkeep; more fields follow these."""

    status: Annotated[str, says("idle, imported, recalled, recalled_noop or failed", "recalled")]
    importedCount: Annotated[int, says("sessions that were imported", 3)]  # noqa: N815 -- the contract's name
    changedSections: Annotated[list[str], says("what changed", ["gotchas"])]  # noqa: N815 -- the contract's name
    error: Annotated[str | None, says("why it failed", None)]
    notes: Annotated[list[str], says("what to know about it", [])]
