"""How a repository's memory stands (what waits, what drifted, what to do next), and whether its record is whole.

Nothing is changed here. `validate` gives one finding per check: pass, warn or fail, with a code and a sentence. A fail means
that something disagrees which no command would mend by itself, or that was not mended yet; the exit code of
`cairn project validate` is 1 then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from cairn.canonical import json_hash, moment
from cairn.errors import CairnError, Invalid, Misconfigured, NotFound
from cairn.project import options as settings
from cairn.project import projections
from cairn.project.bundle import Bundle, checked, paths_in
from cairn.project.checkpoints import Checkpoint, changed_sections, checkpoint_key
from cairn.project.consolidate import grouped, summary_of
from cairn.project.events import is_changed, normalised
from cairn.project.layout import ARCHIVE, EVENTS, LATEST_RUN, STATE, number_of, read_json
from cairn.project.options import SOURCE_SCOPES, ProjectOptions
from cairn.project.record import ProjectRecord, View
from cairn.project.sources import SOURCE_TYPES, Source
from cairn.seams import Locator
from cairn.wording import counted

# The groups shown are the newest ten; older events of a long backlog would not be among them.
GROUPED = 500


def drift(before: Checkpoint, bundle: Bundle) -> dict[str, Any]:
    """What differs between a checkpoint and the bundle as the pages and the state show it."""
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
    unsettled: bool = False,
) -> str:
    """One thing to do, by a fixed order: a failed source, a merge, a long backlog, any backlog, drift, nothing."""
    failed = next((source for source in sources if source.lastSyncStatus == "failed"), None)
    if failed:
        return (
            f"Look at source {failed.id}: {failed.lastSyncError} (then `cairn project import {failed.id}`)."
        )
    if unsettled:
        return "Run `cairn project update` and commit what it writes: it settles what is noted here."
    if backlog > threshold and not considered:
        return f"{backlog} events wait, more than {threshold}: run `cairn project consolidate`."
    if backlog and not considered:
        return (
            f"{counted(backlog, 'event')} wait{'s' if backlog == 1 else ''}: run `cairn project consolidate`."
        )
    if edited:
        return f"Edited by hand: {', '.join(edited)}. The next `cairn project update` takes the edits over."
    if drifted:
        return f"Changed since the checkpoint: {', '.join(drifted)}. Run `cairn project update`."
    return "Nothing to do."


def status(
    record: ProjectRecord, options: ProjectOptions, now: datetime, checkpoint: str | None
) -> dict[str, Any]:
    """The whole picture as one JSON value. Compared with the newest checkpoint unless another is named."""
    view = record.view()
    story, sources = view.story, record.sources.all()
    backlog = {scope: story.backlog(scope) for scope in SOURCE_SCOPES}
    groups = grouped(backlog["all"][-GROUPED:])
    difference = drift(record.checkpoints.find(checkpoint) if checkpoint else story.checkpoint, view.shown)
    plan = record.archive.plan(story, options, now)
    run = None
    with suppress(Invalid):
        run = read_json(record.storage, LATEST_RUN)
    run = run if isinstance(run, dict) else None
    last = (backlog["all"][-1].id, story.checkpoint.bundleHash) if backlog["all"] else None
    considered = last is not None and last == (
        (run or {}).get("consideredThrough"),
        (run or {}).get("bundleHash"),
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
        "editedPages": list(view.edited),
        "retention": {
            "enabled": options.get("retention.enabled"),
            "prunableEvents": len(plan.events),
            "prunableCheckpoints": len(plan.checkpoints),
            "archiveBatches": len(record.archive.batches()),
        },
        "automation": {"latestRun": run},
        "problems": list(view.problems),
        "suggestedAction": suggested(
            sources,
            len(backlog["all"]),
            int(options.number("recall.backlogWarnThreshold")),
            view.edited,
            difference["changedSections"],
            considered=considered,
            unsettled=bool(view.problems),
        ),
    }


BASELINE_DAYS = 14
Status = Literal["pass", "warn", "fail"]
_Found = tuple[Status, str, str]
_COUNTS = ("historyEventCount", "importSourceCount")


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """The outcome of one check."""

    status: Status
    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def validate(record: ProjectRecord, now: datetime) -> list[RecordFinding]:
    """Every check over one work tree; the order is that of the file model."""
    return [RecordFinding(*found) for found in _checks(record, now)]


def _checks(record: ProjectRecord, now: datetime) -> Iterator[_Found]:
    try:
        record.require()
    except CairnError as error:
        yield "fail", "state.missing" if isinstance(error, NotFound) else "state.schema", str(error)
        return
    try:
        options = settings.load(record.storage)
        yield "pass", "config.valid", "config.json is valid."
    except Misconfigured as error:
        options = ProjectOptions(settings.defaults())
        yield "fail", "config.invalid", str(error)
    try:
        view = record.view()
    except CairnError as error:
        yield "fail", "checkpoint.unreadable", str(error)
        return
    yield from _state(record, view)
    yield from _history(record, view, options)
    waiting, limit = len(view.story.backlog("all")), int(options.number("recall.backlogWarnThreshold"))
    told = f"{waiting} events wait to be consolidated (warning above {limit})."
    yield "warn" if waiting > limit else "pass", "recall.backlog", told
    yield from _sources(record, view)
    yield from _checkpoints(record, view)
    events = [event for event in view.story.events if not event.is_own]
    told = f"{sum(bool(event.signals) for event in events)} of {len(events)} events carry signals."
    if events and not any(event.signals for event in events):
        yield "warn", "query.coverage", "No event carries a signal: questions about history will find little."
    else:
        yield "pass", "query.coverage", told
    yield from _pages(record, view.story.checkpoint.bundleHash)
    yield _entry(record, view)
    bundle = view.story.checkpoint.bundle
    gone = [path for path in paths_in(bundle) if not (record.tree / path).exists()]
    if gone:
        yield "warn", "bundle.paths", f"The bundle names paths that are gone: {', '.join(gone[:5])}."
    else:
        yield "pass", "bundle.paths", "Every path in the bundle exists."
    at = moment(bundle["currentFocus"]["validationSnapshot"]["validatedAt"])
    if at is None:
        yield "warn", "validation.baseline", "No check result has been recorded yet."
    elif now - at > timedelta(days=BASELINE_DAYS):
        yield "warn", "validation.baseline", f"The last check result is older than {BASELINE_DAYS} days."
    else:
        yield "pass", "validation.baseline", "The last check result is recent."
    yield _automation(record)
    yield from _archive(record)


def _state(record: ProjectRecord, view: View) -> Iterator[_Found]:
    try:
        state = read_json(record.storage, STATE)
    except Invalid as error:
        made = f"{STATE} is not valid JSON (line {error.facts.get('line')}); `cairn project update` makes it again."
        yield "fail", "state.unreadable", str(error) if error.facts.get("conflict") else made
        return
    if state is None:
        yield "fail", "state.missing", f"{STATE} is missing; any writing command makes it again."
        return
    try:
        bundle = checked(state.get("bundle") if isinstance(state, dict) else None)
    except Invalid as error:
        yield "fail", "state.bundle_shape", str(error)
        return
    if json_hash(bundle) != state.get("bundleHash"):
        yield "fail", "state.bundle_hash", f"{STATE}: bundleHash does not fit the bundle."
    else:
        yield "pass", "state.bundle_hash", "The bundle fits its hash."
    if _uncounted(state) != _uncounted(view.story.to_json()) and not view.problems:
        told = f"{STATE} differs from what checkpoints and events say; the next `cairn project update` takes over what was"
        yield "fail", "state.differs", f"{told} changed in it, or keeps it aside."
    maintenance = state.get("maintenance") or {}
    counts = tuple(maintenance.get(name) for name in _COUNTS)
    if counts != (len(view.story.events), view.story.source_count):
        told = f"{STATE}: counts {counts} are behind the files; the next command corrects them."
        yield "warn", "state.counts", told
    else:
        yield "pass", "state.counts", "Event and source counts fit."
    last = max(view.story.checkpoint.event.number, *(event.number for event in view.story.events), 0)
    for scope in SOURCE_SCOPES:
        cursor = (maintenance.get("recallCursors") or {}).get(scope) or {}
        if number_of(cursor.get("lastRecalledEventId"), "evt") > last:
            yield "fail", "state.cursor", f"The {scope} cursor is beyond the last event."


def _uncounted(state: dict[str, Any]) -> dict[str, Any]:
    """A state without its counts, which a recorded event moves before the next command writes them."""
    kept = {key: value for key, value in (state.get("maintenance") or {}).items() if key not in _COUNTS}
    return {**state, "maintenance": kept}


def _history(record: ProjectRecord, view: View, options: ProjectOptions) -> Iterator[_Found]:
    for problem in view.problems:
        yield "fail", "history.unsettled", f"{problem}."
    if view.parsed.bad:
        line, why = view.parsed.bad[0]
        yield "fail", "history.unreadable", f"{EVENTS}, line {line}: {why}."
    if record.log.is_torn():
        yield "fail", "history.torn", f"{EVENTS}: the last line is not whole; the next command takes it off."
    changed = ", ".join([event.id for event in view.parsed.events if is_changed(event)][:5])
    if changed:
        told = f"{EVENTS}: {changed} no longer says what was recorded. Restore the line from version control."
        yield "fail", "history.changed", told
    normal = normalised(view.parsed.events)
    if normal.renamed or normal.dropped:
        yield "fail", "history.order", "Event ids are not strictly increasing."
    numbers = [event.number for event in normal.events]
    gapped = numbers != list(range(1, len(numbers) + 1))
    if gapped and not options.get("retention.enabled") and not record.archive.batches():
        yield "fail", "history.gaps", "Event ids have gaps although retention is off."
    elif not view.parsed.bad and not normal.renamed and not normal.dropped:
        yield "pass", "history.order", f"{len(numbers)} events, ids strictly increasing."


def _sources(record: ProjectRecord, view: View) -> Iterator[_Found]:
    try:
        sources = record.sources.all()
    except Invalid as error:
        yield "fail", "sources.invalid", str(error)
        return
    for source in sources:
        if source.lastSyncStatus == "failed":
            yield "warn", "sources.failed", f"{source.id}: {source.lastSyncError}"
        if source.type not in SOURCE_TYPES:
            yield "fail", "sources.type", f'{source.id}: "{source.type}" is not a source type.'
    yield "pass", "sources.valid", f"{view.story.source_count} import sources."


def _checkpoints(record: ProjectRecord, view: View) -> Iterator[_Found]:
    files, broken = record.checkpoints.files(), False
    for at in files:
        try:
            checkpoint = record.checkpoints.read(at)
        except Invalid as error:
            broken = True
            yield "fail", "checkpoint.unreadable", str(error)
            continue
        held = json_hash(checkpoint.bundle), checkpoint_key(checkpoint)
        if held != (checkpoint.bundleHash, checkpoint.key):
            broken = True
            yield "fail", "checkpoint.hash", f"{at}: its content does not fit its hash."
    if not broken:
        yield "pass", "checkpoint.hash", f"{len(files)} checkpoints fit their hashes."
    newest = view.story.checkpoint
    with suppress(Invalid):
        if (read_json(record.storage, STATE) or {}).get("bundleHash") != newest.bundleHash:
            yield "warn", "checkpoint.latest", f"{STATE} does not show the newest checkpoint {newest.id}."


_PAGE_TROUBLES: Mapping[str, tuple[Status, str, str]] = {
    "edited": ("warn", "projection.edited", "was edited by hand; the next command takes the edit over."),
    "stale": ("fail", "projection.stale", "shows an older bundle."),
    "merged": ("fail", "projection.merged", "was mixed by a merge; the next command writes it anew."),
    "foreign": ("fail", "projection.marker", "has no marker of this version."),
    "current": ("pass", "projection.current", "is current."),
}


def _pages(record: ProjectRecord, digest: str) -> Iterator[_Found]:
    for name, at in projections.PAGE_FILES.items():
        try:
            page = projections.examine(name, record.storage.read(at), digest)
        except NotFound:
            yield "fail", "projection.missing", f"{at} is missing."
        except Invalid as error:
            yield "fail", "projection.unreadable", str(error)
        else:
            status, code, words = _PAGE_TROUBLES[page.condition]
            yield status, code, f"{at} {words}"


def _entry(record: ProjectRecord, view: View) -> _Found:
    name = view.story.checkpoint.bundle["project"]["recommendedEntryFile"]
    try:
        text = record.storage.read(Locator(name))
    except (NotFound, Invalid) as error:
        return "fail", "entry.missing", f"{name}: {error}"
    found = projections.entry_hash(text)
    if found is None:
        return "fail", "entry.block", f"{name} has no entry block of this version."
    if found != view.story.checkpoint.bundleHash:
        return "fail", "entry.hash", f"The entry block in {name} names an older bundle."
    if projections.with_entry(text, found) != text:
        return (
            "fail",
            "entry.changed",
            f"The entry block in {name} was changed; the next command puts it right.",
        )
    return "pass", "entry.block", f"{name} leads to the memory."


def _automation(record: ProjectRecord) -> _Found:
    try:
        run = read_json(record.storage, LATEST_RUN)
    except Invalid as error:
        return "warn", "automation.result", str(error)
    if isinstance(run, dict) and run.get("status") == "failed":
        return "warn", "automation.failed", f"The last automatic run failed: {run.get('error')}"
    return "pass", "automation.result", "No failed automatic run."


def _archive(record: ProjectRecord) -> Iterator[_Found]:
    names, whole = record.archive.batches(), 0
    for name in names:
        at = ARCHIVE.child(name)
        try:
            manifest = record.archive.manifest(name)
        except Invalid as error:
            yield "warn", "archive.manifest", str(error)
            continue
        if manifest is None and not all(record.storage.info(one).is_dir for one in record.storage.list(at)):
            yield "warn", "archive.unfinished", f"{at} has no manifest; the next command sweeps it."
        elif manifest is not None and set(manifest["archivedEventIds"]) != {
            event.id for event in record.archive.events_of(name)
        }:
            yield "fail", "archive.content", f"{at}: the manifest names events the batch does not hold."
        else:
            whole += 1
    if whole == len(names):
        yield "pass", "archive.content", f"{len(names)} archive batches are whole."
