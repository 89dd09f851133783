"""Is the record whole? One finding per check: pass, warn or fail, with a code and a sentence.

Nothing is changed here. A fail means that something disagrees which no command would mend by itself, or that
was not mended yet; the exit code of `cairn project validate` is 1 then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

from cairn.canonical import moment
from cairn.errors import CairnError, Invalid, Misconfigured, NotFound
from cairn.project import options as settings
from cairn.project import projections
from cairn.project.bundle import Bundle, bundle_hash, checked, paths_in
from cairn.project.checkpoints import checkpoint_key
from cairn.project.events import is_changed, normalised
from cairn.project.layout import ARCHIVE, EVENTS, LATEST_RUN, STATE, number_of, read_json
from cairn.project.options import SOURCE_SCOPES, ProjectOptions
from cairn.project.record import ProjectRecord, View
from cairn.seams import Locator

BASELINE_DAYS = 14
Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """The outcome of one check."""

    status: Status
    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"status": self.status, "code": self.code, "message": self.message}


def validate(record: ProjectRecord, now: datetime) -> list[RecordFinding]:
    """Every check over one work tree; the order is that of the file model."""
    try:
        record.require()
    except CairnError as error:
        return [
            RecordFinding(
                "fail", "state.missing" if isinstance(error, NotFound) else "state.schema", str(error)
            )
        ]
    findings: list[RecordFinding] = []
    try:
        options = settings.load(record.storage)
        findings.append(RecordFinding("pass", "config.valid", "config.json is valid."))
    except Misconfigured as error:
        options = ProjectOptions(settings.defaults())
        findings.append(RecordFinding("fail", "config.invalid", str(error)))
    try:
        view = record.view()
    except CairnError as error:
        return [*findings, RecordFinding("fail", "checkpoint.unreadable", str(error))]
    findings += _state(record, view)
    findings += _history(record, view, options)
    findings += _backlog(view, options)
    findings += _sources(record, view)
    findings += _checkpoints(record, view)
    findings += _coverage(view)
    findings += _pages(record, view)
    findings += _entry(record, view)
    findings += _paths(record, view.story.checkpoint.bundle)
    findings += _baseline(view.story.checkpoint.bundle, now)
    findings += _automation(record)
    findings += _archive(record)
    return findings


def _state(record: ProjectRecord, view: View) -> Iterator[RecordFinding]:
    try:
        state = read_json(record.storage, STATE)
    except Invalid as error:
        yield RecordFinding("fail", "state.unreadable", str(error))
        return
    if state is None:
        yield RecordFinding(
            "fail", "state.missing", f"{STATE} is missing; any writing command makes it again."
        )
        return
    try:
        bundle = checked(state.get("bundle") if isinstance(state, dict) else None)
    except Invalid as error:
        yield RecordFinding("fail", "state.bundle_shape", str(error))
        return
    if bundle_hash(bundle) != state.get("bundleHash"):
        yield RecordFinding("fail", "state.bundle_hash", f"{STATE}: bundleHash does not fit the bundle.")
    else:
        yield RecordFinding("pass", "state.bundle_hash", "The bundle fits its hash.")
    if _uncounted(state) != _uncounted(view.story.to_json()) and not view.problems:
        yield RecordFinding(
            "fail",
            "state.differs",
            f"{STATE} differs from what checkpoints and events say; the next `cairn project update` takes over what "
            "was changed in it, or keeps it aside.",
        )
    maintenance = state.get("maintenance") or {}
    counts = (maintenance.get("historyEventCount"), maintenance.get("importSourceCount"))
    if counts != (len(view.story.events), view.story.source_count):
        yield RecordFinding(
            "warn",
            "state.counts",
            f"{STATE}: counts {counts} are behind the files; the next command corrects them.",
        )
    else:
        yield RecordFinding("pass", "state.counts", "Event and source counts fit.")
    last = max((event.number for event in view.story.events), default=0)
    for scope in SOURCE_SCOPES:
        cursor = (maintenance.get("recallCursors") or {}).get(scope) or {}
        if number_of(cursor.get("lastRecalledEventId"), "evt") > max(
            last, view.story.checkpoint.event.number
        ):
            yield RecordFinding("fail", "state.cursor", f"The {scope} cursor is beyond the last event.")


def _uncounted(state: dict[str, Any]) -> dict[str, Any]:
    """A state without its counts, which a recorded event moves before the next command writes them."""
    maintenance = dict(state.get("maintenance") or {})
    maintenance.pop("historyEventCount", None)
    maintenance.pop("importSourceCount", None)
    return {**state, "maintenance": maintenance}


def _history(record: ProjectRecord, view: View, options: ProjectOptions) -> Iterator[RecordFinding]:
    for problem in view.problems:
        yield RecordFinding("fail", "history.unsettled", f"{problem}.")
    if view.parsed.bad:
        line, why = view.parsed.bad[0]
        yield RecordFinding("fail", "history.unreadable", f"{EVENTS}, line {line}: {why}.")
    if record.log.is_torn():
        yield RecordFinding(
            "fail", "history.torn", f"{EVENTS}: the last line is not whole; the next command takes it off."
        )
    changed = [event.id for event in view.parsed.events if is_changed(event)]
    if changed:
        yield RecordFinding(
            "fail",
            "history.changed",
            f"{EVENTS}: {', '.join(changed[:5])} no longer says what was recorded. Restore the line from version control.",
        )
    normal = normalised(view.parsed.events)
    if normal.renamed or normal.dropped:
        yield RecordFinding("fail", "history.order", "Event ids are not strictly increasing.")
    numbers = [event.number for event in normal.events]
    gaps = [after for before, after in pairwise(numbers) if after != before + 1]
    gapped = bool(gaps) or bool(numbers and numbers[0] != 1)
    if gapped and not options.get("retention.enabled") and not record.archive.batches():
        yield RecordFinding("fail", "history.gaps", "Event ids have gaps although retention is off.")
    elif not view.parsed.bad and not normal.renamed and not normal.dropped:
        yield RecordFinding("pass", "history.order", f"{len(numbers)} events, ids strictly increasing.")


def _backlog(view: View, options: ProjectOptions) -> Iterator[RecordFinding]:
    waiting, limit = len(view.story.backlog("all")), int(options.number("recall.backlogWarnThreshold"))
    status: Status = "warn" if waiting > limit else "pass"
    yield RecordFinding(
        status, "recall.backlog", f"{waiting} events wait to be consolidated (warning above {limit})."
    )


def _sources(record: ProjectRecord, view: View) -> Iterator[RecordFinding]:
    try:
        sources = record.sources.all()
    except Invalid as error:
        yield RecordFinding("fail", "sources.invalid", str(error))
        return
    for source in sources:
        if source.lastSyncStatus == "failed":
            yield RecordFinding("warn", "sources.failed", f"{source.id}: {source.lastSyncError}")
        if source.type not in {"claude-local", "codex-local", "jsonl"}:
            yield RecordFinding("fail", "sources.type", f'{source.id}: "{source.type}" is not a source type.')
    yield RecordFinding("pass", "sources.valid", f"{view.story.source_count} import sources.")


def _checkpoints(record: ProjectRecord, view: View) -> Iterator[RecordFinding]:
    broken = 0
    for at in record.checkpoints.files():
        try:
            checkpoint = record.checkpoints.read(at)
        except Invalid as error:
            broken += 1
            yield RecordFinding("fail", "checkpoint.unreadable", str(error))
            continue
        if (
            bundle_hash(checkpoint.bundle) != checkpoint.bundleHash
            or checkpoint_key(checkpoint) != checkpoint.key
        ):
            broken += 1
            yield RecordFinding("fail", "checkpoint.hash", f"{at}: its content does not fit its hash.")
    if not broken:
        yield RecordFinding(
            "pass", "checkpoint.hash", f"{len(record.checkpoints.files())} checkpoints fit their hashes."
        )
    try:
        state = read_json(record.storage, STATE) or {}
    except Invalid:
        return
    if state.get("bundleHash") != view.story.checkpoint.bundleHash:
        yield RecordFinding(
            "warn",
            "checkpoint.latest",
            f"{STATE} does not show the newest checkpoint {view.story.checkpoint.id}.",
        )


def _coverage(view: View) -> Iterator[RecordFinding]:
    events = [event for event in view.story.events if not event.is_own]
    silent = [event for event in events if not event.signals]
    if events and len(silent) == len(events):
        yield RecordFinding(
            "warn", "query.coverage", "No event carries a signal: questions about history will find little."
        )
    else:
        yield RecordFinding(
            "pass", "query.coverage", f"{len(events) - len(silent)} of {len(events)} events carry signals."
        )


def _pages(record: ProjectRecord, view: View) -> Iterator[RecordFinding]:
    digest = view.story.checkpoint.bundleHash
    for name, at in projections.PAGE_FILES.items():
        try:
            page = projections.examine(name, record.storage.read(at), digest)
        except NotFound:
            yield RecordFinding("fail", "projection.missing", f"{at} is missing.")
            continue
        except Invalid as error:
            yield RecordFinding("fail", "projection.unreadable", str(error))
            continue
        told = {
            "edited": (
                "warn",
                "projection.edited",
                f"{at} was edited by hand; the next command takes the edit over.",
            ),
            "stale": ("fail", "projection.stale", f"{at} shows an older bundle."),
            "merged": (
                "fail",
                "projection.merged",
                f"{at} was mixed by a merge; the next command writes it anew.",
            ),
            "foreign": ("fail", "projection.marker", f"{at} has no marker of this version."),
        }.get(page.condition)
        if told:
            status: Status = "warn" if told[0] == "warn" else "fail"
            yield RecordFinding(status, told[1], told[2])
        else:
            yield RecordFinding("pass", "projection.current", f"{at} is current.")


def _entry(record: ProjectRecord, view: View) -> Iterator[RecordFinding]:
    name = view.story.checkpoint.bundle["project"]["recommendedEntryFile"]
    try:
        text = record.storage.read(Locator(name))
    except (NotFound, Invalid) as error:
        yield RecordFinding("fail", "entry.missing", f"{name}: {error}")
        return
    found = projections.entry_hash(text)
    if found is None:
        yield RecordFinding("fail", "entry.block", f"{name} has no entry block of this version.")
    elif found != view.story.checkpoint.bundleHash:
        yield RecordFinding("fail", "entry.hash", f"The entry block in {name} names an older bundle.")
    elif projections.with_entry(text, found) != text:
        yield RecordFinding(
            "fail", "entry.changed", f"The entry block in {name} was changed; the next command puts it right."
        )
    else:
        yield RecordFinding("pass", "entry.block", f"{name} leads to the memory.")


def _paths(record: ProjectRecord, bundle: Bundle) -> Iterator[RecordFinding]:
    gone = [path for path in paths_in(bundle) if not (record.tree / path).exists()]
    if gone:
        yield RecordFinding(
            "warn", "bundle.paths", f"The bundle names paths that are gone: {', '.join(gone[:5])}."
        )
    else:
        yield RecordFinding("pass", "bundle.paths", "Every path in the bundle exists.")


def _baseline(bundle: Bundle, now: datetime) -> Iterator[RecordFinding]:
    at = moment(bundle["currentFocus"]["validationSnapshot"]["validatedAt"])
    if at is None:
        yield RecordFinding("warn", "validation.baseline", "No check result has been recorded yet.")
    elif now - at > timedelta(days=BASELINE_DAYS):
        yield RecordFinding(
            "warn", "validation.baseline", f"The last check result is older than {BASELINE_DAYS} days."
        )
    else:
        yield RecordFinding("pass", "validation.baseline", "The last check result is recent.")


def _automation(record: ProjectRecord) -> Iterator[RecordFinding]:
    try:
        run = read_json(record.storage, LATEST_RUN)
    except Invalid as error:
        yield RecordFinding("warn", "automation.result", str(error))
        return
    if isinstance(run, dict) and run.get("status") == "failed":
        yield RecordFinding("warn", "automation.failed", f"The last automatic run failed: {run.get('error')}")
    else:
        yield RecordFinding("pass", "automation.result", "No failed automatic run.")


def _archive(record: ProjectRecord) -> Iterator[RecordFinding]:
    trouble = False
    for name in record.archive.batches():
        at = ARCHIVE.child(name)
        files = [child for child in record.storage.list(at) if not record.storage.info(child).is_dir]
        try:
            manifest = record.archive.manifest(name)
        except Invalid as error:
            trouble = True
            yield RecordFinding("warn", "archive.manifest", str(error))
            continue
        if manifest is None and files:
            trouble = True
            yield RecordFinding(
                "warn", "archive.unfinished", f"{at} has no manifest; the next command sweeps it."
            )
        elif manifest is not None:
            held = {event.id for event in record.archive.events_of(name)}
            if set(manifest["archivedEventIds"]) != held:
                trouble = True
                yield RecordFinding(
                    "fail", "archive.content", f"{at}: the manifest names events the batch does not hold."
                )
    if not trouble:
        yield RecordFinding(
            "pass", "archive.content", f"{len(record.archive.batches())} archive batches are whole."
        )
