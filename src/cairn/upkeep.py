"""Looking after an open root: what is where, what is behind, what is wrong, and moving it as a whole."""

from __future__ import annotations

import re
import time
from typing import Any

from cairn.engines import transfer
from cairn.errors import Invalid, NotFound
from cairn.governed.secrets import redact
from cairn.notes.conflicts import merged
from cairn.notes.kinds import place_of
from cairn.parts import Parts
from cairn.seams import Locator
from cairn.settings_files import without_secrets
from cairn.strategies.reflection import runs_of, undo
from cairn.talk.sessions import session_locator
from cairn.types import Space
from cairn.version import VERSION

# Copies of the settings that editors and sync programs leave beside them, and environment files.
_MAY_HOLD_KEYS = re.compile(r"cairn.*toml|\.env", re.IGNORECASE)
_ENTRY_ID = re.compile(r"(?:(?P<owner>.+)_)?(?P<entry>[a-z]+_\d{8}_\d{4,8})")


def session_owners(parts: Parts, space: Space, session_id: str) -> list[str]:
    """Everyone who spoke in a session, in order of appearance."""
    log = parts.sessions.load(session_locator(space, session_id))
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
        "set_aside": parts.state.set_aside(),
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


# ---------------------------------------------------------------- moving it as a whole


def export_to(parts: Parts, target: str, *, with_secrets: bool = False) -> dict[str, Any]:
    """Copy the truth; see `engines/transfer.py`.

    API keys and tokens stay here unless `with_secrets` asks for them; `left_out` names what did.

    Raises:
        Invalid: the target lies in the root itself, where it would be read as memory.
    """
    if transfer.lies_in(target, parts.settings.root):
        raise Invalid(f"{target} lies in the memory root: choose a place outside of it.", target=target)
    left_out: list[str] = []

    def keep(locator: Locator, text: str) -> str | None:
        return (
            text if with_secrets or len(locator.parts) > 1 else _without_secrets(locator.name, text, left_out)
        )

    done = transfer.export(parts.storage, target, keep)
    return {"target": target, "files": done.imported, "bytes": done.bytes, "left_out": left_out}


def _without_secrets(name: str, text: str, left_out: list[str]) -> str | None:
    """A file at the top of the root without keys and tokens; None for one that stays here as a whole."""
    if name == "cairn.toml":
        found = without_secrets(text)
        if found is not None:
            rest = redact(found[0])  # a password in an address, a key that was commented out
            left_out += [*found[1], *(f"{name}: {kind}" for kind in rest.kinds)]
            return rest.text
    elif not _MAY_HOLD_KEYS.search(name):
        return text
    left_out.append(name)
    return None


def import_from(parts: Parts, source: str) -> dict[str, Any]:
    """Bring a memory in; nothing here is overwritten."""

    def merge(locator: Locator, ours: str, theirs: str) -> str:
        place = place_of(locator)
        assert place is not None
        return merged(place, ours, theirs).text

    done = transfer.bring_in(parts.storage, parts.journals, source, merge)
    parts.indexer.scan()
    return {"imported": done.imported, "same": done.same, "merged": done.merged, "problems": done.problems}
