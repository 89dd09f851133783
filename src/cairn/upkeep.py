"""Looking after an open root: what is where, what is behind, what is wrong, and moving it as a whole."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cairn.engines import transfer
from cairn.errors import CairnError, Invalid, NotFound
from cairn.notes.conflicts import conflict_copies, merged
from cairn.notes.format import list_items
from cairn.notes.kinds import place_of
from cairn.notes.sessions import SessionLog, session_locator
from cairn.parts import Parts
from cairn.seams import Locator
from cairn.strategies.reflection import runs_of, undo
from cairn.types import Entry, Message, Scope, Space
from cairn.version import VERSION

if TYPE_CHECKING:
    from cairn.keeping.checks import Finding

_ENTRY_ID = re.compile(r"(?:(?P<owner>.+)_)?(?P<entry>[a-z]+_\d{8}_\d{4,8})")


# ---------------------------------------------------------------- showing one entry


def show(parts: Parts, space: Space, public_id: str) -> dict[str, Any]:
    """One entry by its public id (`<owner>_<entry id>`), with its place and the messages it came from.

    Raises:
        Invalid: it is no entry id.
        NotFound: no scope of the space holds it.
    """
    found = _ENTRY_ID.fullmatch(public_id)
    if not found:
        raise Invalid(
            f'"{public_id[:80]}" is not an entry id; they look like alice_ep_20260601_00000001.', field="id"
        )
    owner, entry_id = found["owner"] or "", found["entry"]
    for scope in _scopes_of(space, owner):
        try:
            locator, entry = parts.notebook.find(scope, entry_id)
        except (NotFound, Invalid):
            continue
        place = place_of(locator)
        return {
            "id": public_id,
            "kind": place.kind.name if place else "",
            "scope": scope.track,
            "owner": scope.owner,
            "path": locator.key,
            "line": entry.line,
            "inline": dict(entry.inline),
            "sections": dict(entry.sections),
            "messages": [_said(message, parts) for message in messages_of(parts, scope, entry)],
        }
    hint = "" if owner else f" An id begins with its owner, for example alice_{entry_id}."
    raise NotFound(f"There is no entry {public_id} in {space.app}/{space.project}.{hint}", id=public_id)


def _scopes_of(space: Space, owner: str) -> Iterable[Scope]:
    if not owner:
        return [Scope(space, "project", "")]
    return [Scope(space, "user", owner), Scope(space, "agent", owner), Scope(space, "mission", owner)]


def messages_of(parts: Parts, scope: Scope, entry: Entry) -> list[Message]:
    """The verbatim messages an entry was made from; none where its session is unknown."""
    session_id = entry.inline.get("session_id")
    if not session_id:
        return []
    try:
        log = SessionLog(parts.journals).load(session_locator(scope.space, session_id))
    except CairnError:
        return []
    wanted = set(list_items(entry.inline.get("message_ids", "")))
    if wanted:
        return [message for message in log.messages if message.id in wanted]
    parent = entry.inline.get("parent_id", "")
    if entry.inline.get("parent_type") == "episode":
        try:
            _, episode = parts.notebook.find(scope, parent)
            parent = episode.inline.get("parent_id", "")
        except CairnError:
            return []
    return [message for cell in log.cells if cell.cell_id == parent for message in log.messages_of(cell)]


def _said(message: Message, parts: Parts) -> dict[str, Any]:
    at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(parts.settings.zone)
    return {
        "id": message.id,
        "timestamp": at.isoformat(),
        "sender_id": message.sender_id,
        "sender_name": message.sender_name,
        "role": message.role,
        "text": message.text,
    }


def session_owners(parts: Parts, space: Space, session_id: str) -> list[str]:
    """Everyone who spoke in a session, in order of appearance."""
    log = SessionLog(parts.journals).load(session_locator(space, session_id))
    return list(dict.fromkeys(message.sender_id for message in log.messages))


# ---------------------------------------------------------------- the index


def index_status(parts: Parts) -> dict[str, Any]:
    """The queue and the index at a glance."""
    counts = parts.state.counts()
    fresh = parts.indexer.status()
    status: dict[str, Any] = {
        "state": fresh.state,
        "pending": counts.pending,
        "done": counts.done,
        "failed": counts.failed,
        "last_lsn": counts.last_lsn,
        "applied_lsn": counts.applied_lsn,
        "rows": sum(sum(kinds.values()) for _, kinds in parts.index.scopes()),
        "vectors_missing": parts.indexer.waiting_for_vectors(),
        "index_bytes": parts.index.size_bytes(),
    }
    if parts.daemon is not None:
        status["daemon"] = parts.daemon.health()
    return status


def sync(parts: Parts, path: str | None) -> dict[str, Any]:
    """Scan (or take the one note) and drain; what is left is in the answer."""
    before = parts.state.counts()
    if path is None:
        lsn = parts.indexer.scan().lsn
    else:
        locator = Locator(path)
        present = parts.storage.exists(locator)
        if place_of(locator) is None and not locator.name.endswith(".jsonl"):
            raise Invalid(f"{path} is no note of this root.", path=path)
        lsn = parts.indexer.note_change([(locator, "modified" if present else "deleted")])
    parts.indexer.wait(lsn, timeout=600.0)
    while parts.indexer.embed():
        pass
    parts.tables.sync(parts.keeper)
    after = parts.state.counts()
    return {
        "applied": max(after.last_lsn - before.applied_lsn, 0),
        "pending": after.pending,
        "failed": after.failed,
        "lsn": after.applied_lsn,
    }


def failures(parts: Parts, *, retry: bool) -> list[dict[str, Any]]:
    """What could not be indexed, as far as it is known."""
    found = [
        {
            "path": row["path"],
            "retryable": bool(row["retryable"]),
            "reason": row["error"],
            "retries": row["retry_count"],
        }
        for row in parts.state.failures()
    ]
    if retry:
        parts.state.retry_failed()
        parts.indexer.wait(timeout=60.0)
    return found


def rebuild(parts: Parts) -> dict[str, Any]:
    """Make the index anew and wait for it."""
    started = time.perf_counter()
    parts.indexer.rebuild()
    parts.indexer.catch_up(timeout=3600.0, embed=True)
    parts.tables.sync(parts.keeper)
    status = index_status(parts)
    return {
        "rows": status["rows"],
        "notes": status["done"],
        "failed": status["failed"],
        "seconds": round(time.perf_counter() - started, 3),
    }


# ---------------------------------------------------------------- strategies


def strategies(parts: Parts) -> list[dict[str, Any]]:
    """Every strategy as one row."""
    rows = []
    for item in parts.engine.list():
        rows.append(
            {
                "name": item.name,
                "purpose": item.purpose,
                "enabled": item.enabled,
                "trigger": item.cron or item.trigger,
                "runs": item.counts.get("done", 0),
                "skipped": item.counts.get("skipped", 0),
                "waiting": item.counts.get("pending", 0) + item.counts.get("running", 0),
                "failed": item.counts.get("dead", 0),
                "last_run": item.last_run_at.isoformat() if item.last_run_at else "",
                "last_error": item.last_error,
            }
        )
    return rows


def trigger(parts: Parts, name: str, timeout: float, force: bool) -> dict[str, Any]:
    """Run a strategy now; the answer has the contract's shape."""
    done = parts.engine.trigger(name, timeout=timeout, force=force)
    runs = parts.engine.runs(strategy=name, limit=20)
    return {
        "status": done.status,
        "name": name,
        "dispatched": done.wrote + done.skipped,
        "waiting": done.waiting,
        "runs": [{"run_id": str(run.id), "status": run.status, "error": run.reason or None} for run in runs],
    }


def undo_reflection(parts: Parts, run_id: str) -> list[str]:
    """Take back one reflection run in every scope it touched; the latest one if `run_id` is empty.

    Raises:
        NotFound: no scope knows such a run; the message names those there are.
    """
    restored: list[str] = []
    scopes = {
        place.scope for at in parts.notebook.notes(kind="episode") if (place := place_of(at)) is not None
    }
    known = sorted({run for scope in scopes for run in runs_of(scope, parts.engine.kit)})
    run_id = run_id or (known[-1] if known else "")
    for scope in sorted(scopes) if run_id in known else ():
        try:
            undone = undo(scope, parts.engine.kit, run=run_id)
        except NotFound:
            continue
        restored.extend((*undone.restored, *undone.mended))
    if not restored:
        there = f"There are: {', '.join(known[-5:])}." if known else "None has been made, or all were undone."
        raise NotFound(
            f"There is no reflection run {run_id} to undo. ".replace("  ", " ") + there, run=run_id
        )
    return restored


# ---------------------------------------------------------------- health


def health(parts: Parts) -> dict[str, Any]:
    """What /health answers: nothing in it reads notes or waits for work."""
    counts = parts.state.counts()
    fresh = parts.indexer.status()
    failed = parts.state.failures() if counts.failed else []
    permanent = sum(1 for row in failed if not row["retryable"])
    daemon = parts.daemon.health() if parts.daemon is not None else {"healthy": True, "reasons": []}
    llm, embed = (
        parts.writer is not None,
        parts.settings.embedding.provider != "none" and not parts.embedder.trouble,
    )
    disabled = [name for name, on in (("llm", llm), ("embed", embed), ("rerank", llm)) if not on]
    return {
        "status": "ok" if daemon["healthy"] else "degraded",
        "version": VERSION,
        "capabilities": {"llm": llm, "embed": embed, "rerank": llm, "multimodal_llm": False, "parser": False},
        "disabled_features": disabled,
        "cascade": {
            "healthy": daemon["healthy"],
            "reasons": daemon["reasons"],
            "pending": counts.pending,
            "failed_permanent": permanent,
            "failed_retryable": len(failed) - permanent,
            "drain_consecutive_failures": daemon.get("failed_drains", 0),
            "unrecoverable_total": permanent,
            "optimize_failure_streak": daemon.get("failed_maintenance", 0),
            "prune_stale_seconds": 0.0,
            "state": fresh.state,
            "lag": max(counts.last_lsn - counts.applied_lsn, 0),
            "leases": {"indexer": bool(daemon.get("indexing", False))},
        },
    }


def gauges(parts: Parts) -> dict[str, tuple[str, float]]:
    """Figures for Prometheus."""
    counts = parts.state.counts()
    return {
        "cairn_changes_pending": ("Changes that wait to be indexed.", counts.pending),
        "cairn_changes_failed": ("Changes that could not be indexed.", counts.failed),
        "cairn_lsn_last": ("The newest change.", counts.last_lsn),
        "cairn_lsn_applied": ("Every change up to this one is searchable.", counts.applied_lsn),
        "cairn_vectors_missing": ("Rows that wait for their vector.", parts.indexer.waiting_for_vectors()),
        "cairn_index_bytes": ("Bytes of the index on disk.", parts.index.size_bytes()),
    }


# ---------------------------------------------------------------- doctor


def finding(level: str, what: str, following: str) -> dict[str, Any]:
    return {"level": level, "what": what, "next": following}


_NEXT_STEPS = {
    "crlf": "nothing has to be done",
    "bom": "nothing has to be done",
    "frontmatter": "mend the lines between the --- at the top (docs/note-format.md); the entries are read without them",
    "doubled-entry": "give the second one an id of its own; until then only the first is searched",
    "doubled-": "keep one of the two",
    "unterminated-entry": "put its closing marker back; the other entries stay searchable",
    "mismatched-close": "correct the marker; the other entries stay searchable",
    "stray-close": "remove the marker, or put the opening one back",
}


def _next_step(code: str) -> str:
    """What to do about a problem in a note, by its code or the start of it."""
    if code.endswith("-mismatch"):
        return "correct the line, or move the file back; the file's place counts"
    found = next((step for start, step in _NEXT_STEPS.items() if code.startswith(start)), "")
    return found or "correct the line by hand; the rest of the note stays searchable"


def _has_body(text: str) -> bool:
    """Whether a note says anything below its frontmatter."""
    return bool(
        re.sub(r"\A---\r?\n.*?^---[ \t]*$", "", text, count=1, flags=re.DOTALL | re.MULTILINE).strip()
    )


def doctor(parts: Parts) -> list[dict[str, Any]]:
    """Every trouble that can be seen from here, worst first."""
    found: list[dict[str, Any]] = []
    for locator in parts.notebook.notes():
        try:
            note = parts.notebook.read(locator)
        except CairnError as error:
            found.append(finding("fail", str(error), f"open {locator} and mend it; nothing else is affected"))
            continue
        for problem in note.problems:
            where = f"{locator}, line {problem.line}: {problem.message}"
            level = "info" if problem.code in {"crlf", "bom"} else "warn"
            found.append(finding(level, where, _next_step(problem.code)))
        place = place_of(locator)
        if place is not None and place.day and not note.entries and _has_body(parts.notebook.text(locator)):
            found.append(
                finding(
                    "warn",
                    f"{locator} holds text outside of any entry; it is kept, but not searched",
                    "put it between entry markers (docs/note-format.md), or `cairn add` it",
                )
            )
    copies = list(conflict_copies(parts.storage))
    copied = {copy.locator for copy in copies}
    for locator in parts.notebook.strays():
        if locator not in copied:
            found.append(
                finding(
                    "warn",
                    f"{locator} has a name that no note has; it is kept, but not searched",
                    "rename it like the notes beside it (kind-YYYY-MM-DD.md), or move it elsewhere",
                )
            )
    for copy in copies:
        found.append(
            finding(
                "warn",
                f"{copy.locator} is a sync conflict copy of {copy.original}",
                "run `cairn cascade sync` or merge it by hand",
            )
        )
    for row in failures(parts, retry=False):
        following = (
            "run `cairn cascade fix --apply`"
            if row["retryable"]
            else f"mend {row['path']}; saving it queues it again"
        )
        found.append(finding("fail", f"{row['path']} is not indexed: {row['reason']}", following))
    if parts.engine.trouble:
        found.append(
            finding("fail", parts.engine.trouble, "correct ome.toml; it is read again within seconds")
        )
    for run in parts.engine.runs(status="dead", limit=20):
        found.append(
            finding(
                "warn",
                f"{run.strategy} gave up on {run.input} after {run.attempts} tries: {run.reason}",
                f"run `cairn ome trigger {run.strategy} --force` once the cause is gone",
            )
        )
    if parts.embedder() is None and parts.settings.embedding.provider != "none":
        trouble = (
            parts.embedder.trouble
            or "the local embedding model is not installed: search works on words alone"
        )
        found.append(finding("info", trouble, "run `cairn model install`"))
    fresh = parts.indexer.status()
    if fresh.state != "fresh":
        found.append(
            finding(
                "info",
                f"the index is {fresh.state}: {fresh.pending} changes pending",
                "run `cairn cascade sync`",
            )
        )
    from cairn.keeping import checks

    for space in parts.keeper.spaces():
        found.extend(_memory_finding(one) for one in checks.check(parts.keeper, space))
    order = {"fail": 0, "warn": 1, "info": 2}
    return sorted(found, key=lambda item: order[item["level"]])


def _memory_finding(one: Finding) -> dict[str, Any]:
    following = (
        "run `cairn doctor --fix`" if one.fixable else _NEXT.get(one.code, "correct the entry by hand")
    )
    return finding(one.status, f"{one.where}: {one.message}", following)


_NEXT = {
    "secret": "run `cairn memories forget ID --yes`, and rotate the credential",
    "untrusted-promoted": "look at it with `cairn memories show ID`; archive it if nobody vouches for it",
    "duplicate": "run `cairn consolidate`, or archive one of them",
    "over-limit": "run `cairn sweep`",
    "page-edited": "move the edit into a note or a memory, then run `cairn refresh`",
    "core-differs": "run `cairn refresh`",
    "code-derivable": "archive it with `cairn memories archive ID` if it tells nothing new",
    "journal-damaged": "restore the file from a backup if the lines matter; the rest is in use",
}


def repair(parts: Parts) -> list[dict[str, Any]]:
    """Mend what is safe to mend in every space; each item says what was done."""
    from cairn.keeping import checks

    return [
        {"where": one.where, "what": one.message, "code": one.code}
        for space in parts.keeper.spaces()
        for one in checks.repair(parts.keeper, space)
    ]


# ---------------------------------------------------------------- moving it as a whole


def export_to(parts: Parts, target: str) -> dict[str, Any]:
    """Copy the truth; see `engines/transfer.py`."""
    done = transfer.export(parts.storage, target)
    return {"target": target, "files": done.imported, "bytes": done.bytes}


def import_from(parts: Parts, source: str) -> dict[str, Any]:
    """Bring a memory in; nothing here is overwritten."""

    def merge(locator: Locator, ours: str, theirs: str) -> str:
        place = place_of(locator)
        assert place is not None
        return merged(place, ours, theirs).text

    done = transfer.bring_in(parts.storage, parts.journals, source, merge)
    parts.indexer.scan()
    return {"imported": done.imported, "same": done.same, "merged": done.merged, "problems": done.problems}
