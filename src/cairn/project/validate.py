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
from cairn.project.options import SOURCE_SCOPES, Options
from cairn.project.record import Record, View
from cairn.seams import Locator

BASELINE_DAYS = 14
Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    status: Status
    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"status": self.status, "code": self.code, "message": self.message}


def validate(record: Record, now: datetime) -> list[Finding]:
    """Every check over one work tree; the order is that of the file model."""
    try:
        record.require()
    except CairnError as error:
        return [
            Finding("fail", "state.missing" if isinstance(error, NotFound) else "state.schema", str(error))
        ]
    findings: list[Finding] = []
    try:
        options = settings.load(record.storage)
        findings.append(Finding("pass", "config.valid", "config.json is valid."))
    except Misconfigured as error:
        options = Options(settings.defaults())
        findings.append(Finding("fail", "config.invalid", str(error)))
    try:
        view = record.view()
    except CairnError as error:
        return [*findings, Finding("fail", "checkpoint.unreadable", str(error))]
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


def _state(record: Record, view: View) -> Iterator[Finding]:
    try:
        state = read_json(record.storage, STATE)
    except Invalid as error:
        yield Finding("fail", "state.unreadable", str(error))
        return
    if state is None:
        yield Finding("fail", "state.missing", f"{STATE} is missing; any writing command makes it again.")
        return
    try:
        bundle = checked(state.get("bundle") if isinstance(state, dict) else None)
    except Invalid as error:
        yield Finding("fail", "state.bundle_shape", str(error))
        return
    if bundle_hash(bundle) != state.get("bundleHash"):
        yield Finding("fail", "state.bundle_hash", f"{STATE}: bundleHash does not fit the bundle.")
    else:
        yield Finding("pass", "state.bundle_hash", "The bundle fits its hash.")
    if _uncounted(state) != _uncounted(view.story.to_json()) and not view.problems:
        yield Finding(
            "fail",
            "state.differs",
            f"{STATE} differs from what checkpoints and events say; the next `cairn project update` takes over what "
            "was changed in it, or keeps it aside.",
        )
    maintenance = state.get("maintenance") or {}
    counts = (maintenance.get("historyEventCount"), maintenance.get("importSourceCount"))
    if counts != (len(view.story.events), view.story.source_count):
        yield Finding(
            "warn",
            "state.counts",
            f"{STATE}: counts {counts} are behind the files; the next command corrects them.",
        )
    else:
        yield Finding("pass", "state.counts", "Event and source counts fit.")
    last = max((event.number for event in view.story.events), default=0)
    for scope in SOURCE_SCOPES:
        cursor = (maintenance.get("recallCursors") or {}).get(scope) or {}
        if number_of(cursor.get("lastRecalledEventId"), "evt") > max(
            last, view.story.checkpoint.event.number
        ):
            yield Finding("fail", "state.cursor", f"The {scope} cursor is beyond the last event.")


def _uncounted(state: dict[str, Any]) -> dict[str, Any]:
    """A state without its counts, which a recorded event moves before the next command writes them."""
    maintenance = dict(state.get("maintenance") or {})
    maintenance.pop("historyEventCount", None)
    maintenance.pop("importSourceCount", None)
    return {**state, "maintenance": maintenance}


def _history(record: Record, view: View, options: Options) -> Iterator[Finding]:
    for problem in view.problems:
        yield Finding("fail", "history.unsettled", f"{problem}.")
    if view.parsed.bad:
        line, why = view.parsed.bad[0]
        yield Finding("fail", "history.unreadable", f"{EVENTS}, line {line}: {why}.")
    if record.log.is_torn():
        yield Finding(
            "fail", "history.torn", f"{EVENTS}: the last line is not whole; the next command takes it off."
        )
    changed = [event.id for event in view.parsed.events if is_changed(event)]
    if changed:
        yield Finding(
            "fail",
            "history.changed",
            f"{EVENTS}: {', '.join(changed[:5])} no longer says what was recorded. Restore the line from version control.",
        )
    normal = normalised(view.parsed.events)
    if normal.renamed or normal.dropped:
        yield Finding("fail", "history.order", "Event ids are not strictly increasing.")
    numbers = [event.number for event in normal.events]
    gaps = [after for before, after in pairwise(numbers) if after != before + 1]
    gapped = bool(gaps) or bool(numbers and numbers[0] != 1)
    if gapped and not options.get("retention.enabled") and not record.archive.batches():
        yield Finding("fail", "history.gaps", "Event ids have gaps although retention is off.")
    elif not view.parsed.bad and not normal.renamed and not normal.dropped:
        yield Finding("pass", "history.order", f"{len(numbers)} events, ids strictly increasing.")


def _backlog(view: View, options: Options) -> Iterator[Finding]:
    waiting, limit = len(view.story.backlog("all")), int(options.number("recall.backlogWarnThreshold"))
    status: Status = "warn" if waiting > limit else "pass"
    yield Finding(
        status, "recall.backlog", f"{waiting} events wait to be consolidated (warning above {limit})."
    )


def _sources(record: Record, view: View) -> Iterator[Finding]:
    try:
        sources = record.sources.all()
    except Invalid as error:
        yield Finding("fail", "sources.invalid", str(error))
        return
    for source in sources:
        if source.lastSyncStatus == "failed":
            yield Finding("warn", "sources.failed", f"{source.id}: {source.lastSyncError}")
        if source.type not in {"claude-local", "codex-local", "jsonl"}:
            yield Finding("fail", "sources.type", f'{source.id}: "{source.type}" is not a source type.')
    yield Finding("pass", "sources.valid", f"{view.story.source_count} import sources.")


def _checkpoints(record: Record, view: View) -> Iterator[Finding]:
    broken = 0
    for at in record.checkpoints.files():
        try:
            checkpoint = record.checkpoints.read(at)
        except Invalid as error:
            broken += 1
            yield Finding("fail", "checkpoint.unreadable", str(error))
            continue
        if (
            bundle_hash(checkpoint.bundle) != checkpoint.bundleHash
            or checkpoint_key(checkpoint) != checkpoint.key
        ):
            broken += 1
            yield Finding("fail", "checkpoint.hash", f"{at}: its content does not fit its hash.")
    if not broken:
        yield Finding(
            "pass", "checkpoint.hash", f"{len(record.checkpoints.files())} checkpoints fit their hashes."
        )
    try:
        state = read_json(record.storage, STATE) or {}
    except Invalid:
        return
    if state.get("bundleHash") != view.story.checkpoint.bundleHash:
        yield Finding(
            "warn",
            "checkpoint.latest",
            f"{STATE} does not show the newest checkpoint {view.story.checkpoint.id}.",
        )


def _coverage(view: View) -> Iterator[Finding]:
    events = [event for event in view.story.events if not event.is_own]
    silent = [event for event in events if not event.signals]
    if events and len(silent) == len(events):
        yield Finding(
            "warn", "query.coverage", "No event carries a signal: questions about history will find little."
        )
    else:
        yield Finding(
            "pass", "query.coverage", f"{len(events) - len(silent)} of {len(events)} events carry signals."
        )


def _pages(record: Record, view: View) -> Iterator[Finding]:
    digest = view.story.checkpoint.bundleHash
    for name, at in projections.PAGE_FILES.items():
        try:
            page = projections.examine(name, record.storage.read(at), digest)
        except NotFound:
            yield Finding("fail", "projection.missing", f"{at} is missing.")
            continue
        except Invalid as error:
            yield Finding("fail", "projection.unreadable", str(error))
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
            yield Finding(status, told[1], told[2])
        else:
            yield Finding("pass", "projection.current", f"{at} is current.")


def _entry(record: Record, view: View) -> Iterator[Finding]:
    name = view.story.checkpoint.bundle["project"]["recommendedEntryFile"]
    try:
        text = record.storage.read(Locator(name))
    except (NotFound, Invalid) as error:
        yield Finding("fail", "entry.missing", f"{name}: {error}")
        return
    found = projections.entry_hash(text)
    if found is None:
        yield Finding("fail", "entry.block", f"{name} has no entry block of this version.")
    elif found != view.story.checkpoint.bundleHash:
        yield Finding("fail", "entry.hash", f"The entry block in {name} names an older bundle.")
    elif projections.with_entry(text, found) != text:
        yield Finding(
            "fail", "entry.changed", f"The entry block in {name} was changed; the next command puts it right."
        )
    else:
        yield Finding("pass", "entry.block", f"{name} leads to the memory.")


def _paths(record: Record, bundle: Bundle) -> Iterator[Finding]:
    gone = [path for path in paths_in(bundle) if not (record.tree / path).exists()]
    if gone:
        yield Finding("warn", "bundle.paths", f"The bundle names paths that are gone: {', '.join(gone[:5])}.")
    else:
        yield Finding("pass", "bundle.paths", "Every path in the bundle exists.")


def _baseline(bundle: Bundle, now: datetime) -> Iterator[Finding]:
    at = moment(bundle["currentFocus"]["validationSnapshot"]["validatedAt"])
    if at is None:
        yield Finding("warn", "validation.baseline", "No check result has been recorded yet.")
    elif now - at > timedelta(days=BASELINE_DAYS):
        yield Finding(
            "warn", "validation.baseline", f"The last check result is older than {BASELINE_DAYS} days."
        )
    else:
        yield Finding("pass", "validation.baseline", "The last check result is recent.")


def _automation(record: Record) -> Iterator[Finding]:
    try:
        run = read_json(record.storage, LATEST_RUN)
    except Invalid as error:
        yield Finding("warn", "automation.result", str(error))
        return
    if isinstance(run, dict) and run.get("status") == "failed":
        yield Finding("warn", "automation.failed", f"The last automatic run failed: {run.get('error')}")
    else:
        yield Finding("pass", "automation.result", "No failed automatic run.")


def _archive(record: Record) -> Iterator[Finding]:
    trouble = False
    for name in record.archive.batches():
        at = ARCHIVE.child(name)
        files = [child for child in record.storage.list(at) if not record.storage.info(child).is_dir]
        try:
            manifest = record.archive.manifest(name)
        except Invalid as error:
            trouble = True
            yield Finding("warn", "archive.manifest", str(error))
            continue
        if manifest is None and files:
            trouble = True
            yield Finding("warn", "archive.unfinished", f"{at} has no manifest; the next command sweeps it.")
        elif manifest is not None:
            held = {event.id for event in record.archive.events_of(name)}
            if set(manifest["archivedEventIds"]) != held:
                trouble = True
                yield Finding(
                    "fail", "archive.content", f"{at}: the manifest names events the batch does not hold."
                )
    if not trouble:
        yield Finding(
            "pass", "archive.content", f"{len(record.archive.batches())} archive batches are whole."
        )
