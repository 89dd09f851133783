"""How a repository's memory stands: what waits, what drifted, what to do next. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cairn.project.bundle import Bundle
from cairn.project.checkpoints import Checkpoint, changed_sections
from cairn.project.consolidate import EventGroup, grouped, summary_of
from cairn.project.options import SOURCE_SCOPES, ProjectOptions
from cairn.project.sources import Source
from cairn.project.state import Story

# The groups shown are the newest ten; older events of a long backlog would not be among them.
GROUPED = 500


def drift(before: Checkpoint | None, bundle: Bundle) -> dict[str, Any]:
    """What differs between a checkpoint and the bundle as the pages and the state show it."""
    if before is None:
        return {"checkpoint": None, "changedSections": [], "summary": "No checkpoint to compare with."}
    changed = changed_sections(before.bundle, bundle)
    told = summary_of(before.bundle, bundle, {"gotchas": [], "nextSteps": []})
    return {
        "checkpoint": before.id,
        "changedSections": changed,
        "summary": f"Changed since {before.id}: {', '.join(changed)}." if changed else f"As in {before.id}.",
        **{
            key: told[key] for key in ("addedGotchas", "removedGotchas", "addedNextSteps", "removedNextSteps")
        },
    }


def suggested(
    sources: Sequence[Source],
    backlog: int,
    threshold: int,
    edited: Sequence[str],
    drifted: Sequence[str],
    *,
    considered: bool,
) -> str:
    """One thing to do, by a fixed order: a failed source, a long backlog, any backlog, drift, nothing."""
    failed = next((source for source in sources if source.lastSyncStatus == "failed"), None)
    if failed:
        return (
            f"Look at source {failed.id}: {failed.lastSyncError} (then `cairn project import {failed.id}`)."
        )
    if backlog > threshold and not considered:
        return f"{backlog} events wait, more than {threshold}: run `cairn project consolidate`."
    if backlog and not considered:
        return f"{backlog} event{'s' if backlog != 1 else ''} wait{'s' if backlog == 1 else ''}: run `cairn project consolidate`."
    if edited:
        return f"Edited by hand: {', '.join(edited)}. The next `cairn project update` takes the edits over."
    if drifted:
        return f"Changed since the checkpoint: {', '.join(drifted)}. Run `cairn project update`."
    return "Nothing to do."


def status(
    story: Story,
    options: ProjectOptions,
    sources: Sequence[Source],
    *,
    baseline: Checkpoint | None,
    shown: Bundle,
    edited: Sequence[str],
    retention: Mapping[str, Any],
    automation: Mapping[str, Any],
    problems: Sequence[str],
) -> dict[str, Any]:
    """The whole picture as one JSON value. Compared with the newest checkpoint unless another is named."""
    backlog = {scope: story.backlog(scope) for scope in SOURCE_SCOPES}
    groups: list[EventGroup] = grouped(backlog["all"][-GROUPED:])
    difference = drift(baseline, shown)
    threshold = int(options.number("recall.backlogWarnThreshold"))
    last = backlog["all"][-1].id if backlog["all"] else None
    run = automation.get("latestRun") or {}
    considered = bool(
        last and run.get("consideredThrough") == last and run.get("bundleHash") == story.checkpoint.bundleHash
    )
    return {
        "state": {
            "bundleHash": story.checkpoint.bundleHash,
            "latestCheckpointId": story.checkpoint.id,
            "generatedAt": story.checkpoint.createdAt,
            "provider": story.checkpoint.provider,
            "events": len(story.events),
        },
        "backlog": {
            scope: {"count": len(events), **story.cursor(scope)} for scope, events in backlog.items()
        },
        "backlogConsidered": considered,
        "groups": [group.summary() for group in groups[:10]],
        "sources": [source.to_json() for source in sources],
        "drift": difference,
        "editedPages": list(edited),
        "retention": dict(retention),
        "automation": dict(automation),
        "problems": list(problems),
        "suggestedAction": suggested(
            sources,
            len(backlog["all"]),
            threshold,
            edited,
            difference["changedSections"],
            considered=considered,
        ),
    }
