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


class PreviewData:
    """What consolidating would change."""

    noop: Annotated[bool, says("whether nothing would", False)]
    summary: Annotated[
        dict[str, Any], says("what would be added, merged and dropped", {"changedSections": ["gotchas"]})
    ]
    diffs: Annotated[
        dict[str, str], says("the difference of each file", {"docs/cairn/gotchas.md": "+ a trap"})
    ]
