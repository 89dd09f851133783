"""Operations for whoever runs a root: index, strategies, doctor, export, backup, import."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cairn.errors import Invalid, NotFound
from cairn.notes.kinds import place_of
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import MAX_ID, AppId, ProjectId
from cairn.operations.table import Room, operation, says
from cairn.seams import Locator
from cairn.types import Space
from cairn.version import VERSION

if TYPE_CHECKING:
    from cairn import transfer
    from cairn.parts import Parts

answers = Answers("upkeep")


class Upkeep(Room):
    """Operations for whoever runs a root."""

    # ------------------------------------------------------------ what happens

    @operation("GET /events", answers.EventsData, rules.events)
    def events(
        self,
        *,
        after: Annotated[
            int | None,
            says("events after this number; without it, only the newest number", 1780300000000, low=0),
        ] = None,
        owner: Annotated[
            str | None, says("only those of this user, agent or run", "alice", low=1, high=MAX_ID)
        ] = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """What changed lately in a space: files that were indexed, memories that were kept.

        Over HTTP with `Accept: text/event-stream` the answer goes on: each event as it happens.
        """
        hub, space = self.parts.events, Space(app_id, project_id)
        last = hub.last
        found = [] if after is None else hub.after(after)
        told = [one.as_data() for one in found if one.concerns(space, owner)]
        return {"events": told, "last": max(last, found[-1].number if found else 0)}

    # ------------------------------------------------------------ the index

    @operation("GET /index", answers.IndexStatus, rules.root(write=False))
    def index_status(self) -> dict[str, Any]:
        """The queue, the index and who works on it."""
        from cairn.engines.bytescan import size_of

        counts = self.parts.state.counts()
        fresh = self.parts.indexer.status()
        status: dict[str, Any] = {
            "state": fresh.state,
            "pending": counts.pending,
            "done": counts.done,
            "failed": counts.failed,
            "last_lsn": counts.last_lsn,
            "applied_lsn": counts.applied_lsn,
            "rows": sum(sum(kinds.values()) for _, kinds in self.parts.index.scopes()),
            "vectors_missing": self.parts.indexer.waiting_for_vectors(),
            "index_bytes": size_of(self.parts.index_dir),
            "engine": self.parts.settings.index.engine,
            "lancedb": self.parts.folder.told(),
            "set_aside": self.parts.state.set_aside(),
            "waiting": [
                {
                    "owner": one.scope.owner,
                    "session_id": one.session_id,
                    "cell_id": one.cell_id,
                    "reason": one.reason,
                }
                for one in self.parts.capture.waiting
            ],
        }
        if self.parts.daemon is not None:
            status["daemon"] = self.parts.daemon.health()
        return status

    @operation("POST /index/sync", answers.SyncData, rules.root(write=True), apart=True)
    def sync(
        self,
        path: Annotated[
            str | None,
            says(
                "only this note, by its path in the root",
                "default_app/default_project/users/alice/user.md",
                low=1,
                high=4096,
            ),
        ] = None,
    ) -> dict[str, Any]:
        """Bring the index up to date now: every file, or one note; conflict copies of a sync program are merged first."""
        before = self.parts.state.counts()
        if path is None:
            self.parts.merge_copies()
            lsn = self.parts.indexer.scan().lsn
        else:
            locator = Locator(path)
            present = self.parts.storage.exists(locator)
            if place_of(locator) is None and not locator.name.endswith(".jsonl"):
                raise Invalid(f"{path} is no note of this root.", path=path)
            lsn = self.parts.indexer.note_change([(locator, "modified" if present else "deleted")])
        self.parts.waits.wait(lsn, timeout=600.0)
        while self.parts.indexer.embed():
            pass
        self.parts.folder.now()
        after = self.parts.state.counts()
        return {
            "applied": max(after.last_lsn - before.applied_lsn, 0),
            "pending": after.pending,
            "failed": after.failed,
            "lsn": after.applied_lsn,
        }

    @operation(
        "POST /cascade/quiesce", answers.QuiesceData, rules.root(write=True), in_query=("timeout",), flat=True
    )
    def quiesce(
        self,
        *,
        timeout: Annotated[
            float, says("how many seconds to wait at most", 30.0, low=0.001, high=3600)
        ] = 30.0,
    ) -> dict[str, Any]:
        """Wait until every change so far is indexed, and say whether that is so."""
        before = self.parts.state.counts()
        lsn = self.parts.indexer.scan().lsn
        waiting = self.parts.state.counts().pending
        deadline = time.monotonic() + timeout
        self.parts.waits.wait(lsn, timeout)
        after = self.parts.state.counts()
        while after.pending and (left := deadline - time.monotonic()) > 0:  # what came in meanwhile
            self.parts.waits.wait(None, left)
            after = self.parts.state.counts()
        return {
            "quiesced": not after.pending,
            "drained": max(waiting - after.pending, 0),
            "pending_before": max(before.pending, waiting),
            "pending_after": after.pending,
            "failed_permanent": sum(not row["retryable"] for row in self.parts.state.failures()),
        }

    @operation("POST /index/failures", answers.FailuresData, rules.root(write=True), apart=True)
    def failures(
        self,
        *,
        retry: Annotated[bool, says("queue the retryable ones again", True)] = False,
    ) -> list[dict[str, Any]]:
        """Changes that could not be indexed, with reasons; with `retry` the retryable ones are queued again."""
        found = [
            {
                "path": row["path"],
                "retryable": bool(row["retryable"]),
                "reason": row["error"],
                "retries": row["retry_count"],
            }
            for row in self.parts.state.failures()
        ]
        if retry:
            self.parts.state.retry_failed()
            self.parts.waits.wait(timeout=60.0)
        return found

    @operation("POST /index/rebuild", answers.RebuildData, rules.root(write=True), apart=True)
    def rebuild(self) -> dict[str, Any]:
        """Rebuild the whole index from the files."""
        started = time.perf_counter()
        self.parts.waits.rebuild()
        self.parts.waits.catch_up(timeout=3600.0, embed=True)
        self.parts.folder.now()
        status = self.index_status()
        return {
            "rows": status["rows"],
            "notes": status["done"],
            "failed": status["failed"],
            "seconds": round(time.perf_counter() - started, 3),
        }

    # ------------------------------------------------------------ strategies

    @operation("GET /ome", answers.StrategiesData, rules.root(write=False))
    def strategies(self) -> list[dict[str, Any]]:
        """Every strategy: whether it is on, what triggers it, how its runs went."""
        rows = []
        for item in self.parts.engine.list():
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

    @operation("POST /ome/switch", answers.StrategiesData, rules.root(write=True))
    def switch(
        self,
        name: Annotated[str, says("the strategy", "reflect_episodes", low=1, high=200)],
        *,
        off: Annotated[bool, says("off instead of on", True)] = False,
    ) -> list[dict[str, Any]]:
        """Switch a strategy on, or off, in `ome.toml`; every strategy as it stands then."""
        self.parts.engine.switch(name, enabled=not off)
        return self.strategies()

    @operation("POST /ome/trigger", answers.TriggerAnswer, rules.root(write=True), flat=True, apart=True)
    def trigger(
        self,
        name: Annotated[str, says("the strategy", "extract_atomic_facts", low=1, high=200)],
        *,
        timeout: Annotated[
            float, says("how many seconds to wait for it", 120.0, low=0.001, high=3600)
        ] = 120.0,
        force: Annotated[bool, says("run it even if it is switched off", True)] = False,
    ) -> dict[str, Any]:
        """Run a strategy now over everything it has not processed."""
        done = self.parts.engine.trigger(name, timeout=timeout, force=force)
        runs = self.parts.engine.runs(strategy=name, limit=20)
        return {
            "status": done.status,
            "name": name,
            "dispatched": done.wrote + done.skipped,
            "waiting": done.waiting,
            "runs": [
                {"run_id": str(run.id), "status": run.status, "error": run.reason or None} for run in runs
            ],
        }

    # ------------------------------------------------------------ health

    @operation(answers=answers.HealthAnswer)
    def health(self) -> dict[str, Any]:
        """Status, capabilities and the index's health; quick whatever else goes on."""
        counts = self.parts.state.counts()
        fresh = self.parts.indexer.status()
        failed = self.parts.state.failures() if counts.failed else []
        permanent = sum(1 for row in failed if not row["retryable"])
        daemon: dict[str, Any] = (
            self.parts.daemon.health() if self.parts.daemon is not None else {"healthy": True, "reasons": []}
        )
        llm, embed = (
            self.parts.writer is not None,
            self.parts.settings.embedding.provider != "none" and not self.parts.embedder.trouble,
        )
        reasons = [*daemon["reasons"], *_unwritable(self.parts)]
        storage = self.parts.storage
        if trouble := storage.trouble():
            reasons.append(trouble)
        waiting = self.parts.indexer.waiting_for_vectors()
        rows: dict[str, int] = {}
        for _, kinds in self.parts.index.scopes():
            for kind, count in kinds.items():
                rows[kind] = rows.get(kind, 0) + count
        disabled = [name for name, on in (("llm", llm), ("embed", embed), ("rerank", llm)) if not on]
        return {
            "status": "ok" if not reasons else "degraded",
            "version": VERSION,
            "reasons": reasons,
            # What others share is searched without while it is away; without its folder a memory answers nothing.
            "ready": fresh.state != "rebuilding" and (storage.is_shared or not trouble),
            "capabilities": {
                "llm": llm,
                "embed": embed,
                "rerank": llm,
                "multimodal_llm": False,
                "parser": False,
            },
            "disabled_features": disabled,
            "cascade": {
                "healthy": daemon["healthy"],
                "reasons": daemon["reasons"],
                "pending": counts.pending + waiting,
                "failed_permanent": permanent,
                "failed_retryable": len(failed) - permanent,
                "drain_consecutive_failures": daemon.get("failed_drains", 0),
                "unrecoverable_total": permanent,
                "optimize_failure_streak": daemon.get("failed_maintenance", 0),
                "prune_stale_seconds": 0.0,
                "index_rows": rows,
                "index_emptied": not rows and fresh.state == "rebuilding",
                "state": "behind" if waiting and fresh.state == "fresh" else fresh.state,
                "lag": max(counts.last_lsn - counts.applied_lsn, 0),
                "leases": {"indexer": bool(daemon.get("indexing", False))},
            },
            "memorize_queue": None,
        }

    @operation()
    def gauges(self) -> dict[str, tuple[str, float]]:
        """Figures for /metrics."""
        from cairn.engines.bytescan import size_of

        counts = self.parts.state.counts()
        return {
            "cairn_changes_pending": ("Changes that wait to be indexed.", counts.pending),
            "cairn_changes_failed": ("Changes that could not be indexed.", counts.failed),
            "cairn_lsn_last": ("The newest change.", counts.last_lsn),
            "cairn_lsn_applied": ("Every change up to this one is searchable.", counts.applied_lsn),
            "cairn_vectors_missing": (
                "Rows that wait for their vector.",
                self.parts.indexer.waiting_for_vectors(),
            ),
            "cairn_index_bytes": ("Bytes of the index on disk.", size_of(self.parts.index_dir)),
        }

    @operation("GET /doctor", answers.DoctorData, rules.root(write=False), apart=True)
    def doctor(self) -> list[dict[str, Any]]:
        """Look for problems everywhere; each finding names the next step."""
        from cairn import doctor

        return doctor.findings(self.parts)

    @operation("POST /doctor/repair", answers.RepairData, rules.root(write=True), apart=True)
    def repair(self) -> list[dict[str, Any]]:
        """Repair what is safe to repair among `doctor`'s findings, and say what was done."""
        from cairn import doctor

        return doctor.repair(self.parts)

    # ------------------------------------------------------------ as a whole

    @operation(writes=True, answers=answers.ExportData, allow=rules.root(write=True), apart=True)
    def export_to(
        self,
        target: Annotated[str, says("a new folder, or a name ending in .tar.gz", "backup.tar.gz", here=True)],
        *,
        with_secrets: Annotated[
            bool, says("include API keys and tokens, which are left out otherwise", True)
        ] = False,
    ) -> dict[str, Any]:
        """Copy the truth into a new folder or a .tar.gz archive, readable by its owner alone.

        API keys and tokens of the settings are left out, and named in the answer, unless `with_secrets` is given.

        Raises:
            Invalid: the target lies in the root itself, where it would be read as memory.
        """
        done, left_out = self._copied(target, with_secrets=with_secrets)
        return {
            "target": str(target),
            "files": done.imported,
            "bytes": done.bytes,
            "left_out": left_out,
            "unread": done.problems,
        }

    @operation(writes=True, answers=answers.TablesData, allow=rules.root(write=True))
    def export_sqlite(
        self,
        target: Annotated[str, says("a new file", "memories.db", low=1, here=True)],
    ) -> dict[str, Any]:
        """Write governed memories as ADE's tables into a new SQLite file: memories with full text and vectors,
        procedures, skills, ledger, logs, core memory and agents.

        Raises:
            Conflict: there is a file of that name.
            Invalid: the target lies in the root itself.
        """
        from cairn.engines.ade import write_database
        from cairn.governed import derived

        path = Path(target).expanduser().absolute()
        root = self.settings.root.resolve()
        if root in path.resolve().parents:
            raise Invalid(f"{path} lies in the memory itself: choose a place outside.", target=target)
        if not path.parent.is_dir():
            raise NotFound(f"{path.parent} is no folder.", target=target)
        embedder = self.parts.embedder()
        done = write_database(path, lambda db: derived.fill(db, self.parts.keeper, embedder=embedder))
        return {"target": str(path), "memories": done, "bytes": path.stat().st_size}

    @operation(writes=True, answers=answers.BackupData, allow=rules.root(write=True), apart=True)
    def backup(
        self,
        target: Annotated[
            str,
            says(
                "a folder, in which the archive is named by its time, or a new name ending in .tar.gz",
                "backups",
                here=True,
            ),
        ],
        *,
        with_secrets: Annotated[
            bool, says("include API keys and tokens, which are left out otherwise", True)
        ] = False,
    ) -> dict[str, Any]:
        """Copy the truth into a .tar.gz archive while others go on writing, and read it back before saying so.

        `still` says that nothing was written meanwhile, so that the copy is of one moment. Otherwise it is as after a
        power cut: opening what was restored from it finishes what was open. `import` restores it, into a new root.

        Raises:
            Invalid: the target is neither a folder nor a name for an archive, or lies in the root itself.
            Conflict: there is an archive of that name.
            Unavailable: it cannot be written, or does not hold what was copied.
        """
        from cairn import transfer

        at = self.parts.clock.now().astimezone(UTC)
        place = transfer.archive_at(target, f"cairn-{at:%Y%m%dT%H%M%SZ}.tar.gz")
        done, left_out = self._copied(place, with_secrets=with_secrets)
        transfer.check_copy(place, done)
        contents: dict[str, list[int]] = {}
        for locator, size in done.sizes.items():
            parts = locator.parts
            what = "settings" if len(parts) == 1 else parts[2] if len(parts) > 3 else "other"
            counted = contents.setdefault(what, [0, 0])
            counted[0] += 1
            counted[1] += size
        return {
            "target": place,
            "files": done.imported,
            "bytes": done.bytes,
            "still": done.still,
            "contents": [
                {"what": what, "files": files, "bytes": size}
                for what, (files, size) in sorted(contents.items())
            ],
            "left_out": left_out,
            "unread": done.problems,
        }

    def _copied(self, target: str, *, with_secrets: bool) -> tuple[transfer.Transfer, list[str]]:
        """Export to `target`: what was copied, and the names of what stayed here."""
        from cairn import transfer

        if transfer.lies_in(target, self.parts.settings.root):
            raise Invalid(f"{target} lies in the memory root: choose a place outside of it.", target=target)
        left_out: list[str] = []

        def keep(locator: Locator, text: str) -> str | None:
            if with_secrets or len(locator.parts) > 1:
                return text
            return _without_secrets(locator.name, text, left_out)

        done = transfer.export(self.parts.storage, target, keep)
        return done, list(dict.fromkeys(left_out))

    @operation(writes=True, answers=answers.BroughtData, allow=rules.root(write=True), apart=True)
    def import_from(
        self,
        source: Annotated[
            str, says("an export, a folder, or another program's memory root", "backup.tar.gz", here=True)
        ],
    ) -> dict[str, Any]:
        """Bring in an export, a folder or another program's memory root; nothing here is overwritten.

        Messages that EverOS had accepted there and not extracted come in as inbox, each once.
        """
        from cairn import transfer
        from cairn.engines import everos
        from cairn.notes.conflicts import merged

        def merge(locator: Locator, ours: str, theirs: str) -> str:
            place = place_of(locator)
            assert place is not None
            return merged(place, ours, theirs).text

        most = self.settings.storage.max_import_bytes
        messages = 0

        def buffered(place: Path) -> list[str]:
            nonlocal messages
            if not everos.is_there(place / ".index"):
                return []
            messages, problems = self.parts.take_buffer(place / ".index")
            return problems

        done = transfer.bring_in(
            self.parts.storage, self.parts.journals, source, merge, max_bytes=most, beside=buffered
        )
        self.parts.indexer.scan()
        return {
            "messages": messages,
            "imported": done.imported,
            "same": done.same,
            "merged": done.merged,
            "problems": done.problems,
        }


def _without_secrets(name: str, text: str, left_out: list[str]) -> str | None:
    """A file at the top of the root without keys and tokens; None for one that stays here as a whole."""
    from cairn.governed.secrets import redact
    from cairn.settings_files import without_secrets
    from cairn.transfer import MAY_HOLD_KEYS

    if name == "cairn.toml":
        found = without_secrets(text)
        if found is not None:
            rest = redact(found[0])  # a password in an address, a key that was commented out
            left_out += [*found[1], *(f"{name}: {kind}" for kind in rest.kinds)]
            return rest.text
    elif not MAY_HOLD_KEYS.search(name):
        return text
    left_out.append(name)
    return None


def _unwritable(parts: Parts) -> Iterator[str]:
    """What cannot be written, and why; no path is told, since anybody may ask for the health of a server."""
    from cairn.engines.tree import trouble_writing

    for name, place in (("the memory root", parts.settings.root), ("the index", parts.settings.index_dir)):
        if trouble := trouble_writing(place):
            yield f"{name} cannot be written: {trouble}"
