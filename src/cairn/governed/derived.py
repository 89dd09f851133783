"""ADE's tables: same names and columns, filled from notes and journals into a file that `cairn export --sqlite` writes.

The tables, the indexes and the full-text triggers (`ade_tables.sql`) are made first, then filled, so that no row is ever written past a
trigger. The file is always a new one, and nothing here reads it. One file holds every space, so keys name the space,
too; whatever refers to a memory does so by that key.
"""

from __future__ import annotations

import array
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from cairn.governed import core, lifecycle, procedures
from cairn.governed.access import Stat, born, ref
from cairn.governed.ledger import CaptureLedger
from cairn.governed.memories import Keeper
from cairn.governed.records import COLUMNS, Record, stamp
from cairn.seams import Embedder
from cairn.types import Space


def table_id(record: Record) -> str:
    """A memory's key in the tables. The public id is unique in a space and track only, this one everywhere."""
    return f"{record.scope.space}/{record.scope.track}/{record.id}"


def create(conn: sqlite3.Connection) -> None:
    """Tables, indexes and triggers."""
    conn.execute("pragma foreign_keys = on")
    conn.executescript(resources.files("cairn.governed").joinpath("ade_tables.sql").read_text("utf-8"))


def fill(conn: sqlite3.Connection, keeper: Keeper, *, embedder: Embedder | None = None) -> int:
    """Make and fill every table of a new file from notes and journals; returns how many memories there are."""
    create(conn)
    return sum(_fill_space(conn, keeper, space, embedder) for space in keeper.root.spaces())


def _fill_space(conn: sqlite3.Connection, keeper: Keeper, space: Space, embedder: Embedder | None) -> int:
    project = str(space)
    stats = keeper.access.stats(space)
    records = [record for scope in keeper.scopes(space) for record in keeper.records(scope)]
    with conn:
        _insert(conn, "projects", (project, space.app, space.project))
        for key, record in {table_id(record): record for record in records}.items():
            row = keeper.row(record, stats.get(ref(record), Stat()))
            row |= {"id": key, "scope_owner_id": record.scope.owner or None}
            for column in ("created_at", "updated_at", "last_accessed_at"):
                row[column] = row[column] or stamp(born(record))
            _insert(conn, "unified_memories", [row[column] for column in COLUMNS])
        keys = {record.id: table_id(record) for record in records}
        _fill_procedures(conn, keeper, space, records, keys)
        _fill_logs(conn, keeper, space, project, keys)
        if embedder is not None:
            _embed(conn, keeper, project, records, embedder)
    return len(records)


def _key(keys: Mapping[str, str], memory_id: str | None) -> str | None:
    """The key of a memory in the tables; what refers to something else (an episode, a case) stays as it is."""
    return keys.get(memory_id, memory_id) if memory_id is not None else None


def _fill_procedures(
    conn: sqlite3.Connection, keeper: Keeper, space: Space, records: Iterable[Record], keys: Mapping[str, str]
) -> None:
    known = procedures.details(keeper, space)
    for record in records:
        if record.category != "procedure":
            continue
        key = table_id(record)
        told = known.get(ref(record), procedures.Details())
        created = stamp(born(record))
        _insert(
            conn, "memory_procedure_details",
            (key, record.trigger, record.procedure, told.success_count, told.failure_count, told.last_used_at,
             told.exported_skill_path, told.exported_at, _key(keys, record.superseded_by), created,
             stamp(record.updated_at) or created),
        )  # fmt: skip
        for episode, at in told.sources:
            _insert(conn, "memory_procedure_sources", (key, _key(keys, episode), at))
        for row in told.history:
            _insert(
                conn, "memory_procedure_history",
                (f"{key}#{row['id']}", key, row["confidence"], row["outcome"], row["reason"], row["recorded_at"]),
            )  # fmt: skip


def _fill_logs(
    conn: sqlite3.Connection, keeper: Keeper, space: Space, project: str, keys: Mapping[str, str]
) -> None:
    for skill in procedures.skill_index(keeper, space):
        _insert(
            conn, "memory_skill_index",
            (f"{project}/{skill.id}", skill.path, skill.kind, skill.source, _key(keys, skill.memory_id), skill.content_hash,
             skill.last_modified_at, skill.archived_at, skill.created_at, skill.updated_at),
        )  # fmt: skip
    for row in CaptureLedger(keeper).rows(space):
        _insert(
            conn, "memory_capture_ledger",
            (f"{project}/{row.id}", project, row.source_type, row.source_key, _key(keys, row.memory_id),
             _key(keys, row.episode_memory_id),
             json.dumps(row.metadata, sort_keys=True), row.created_at, row.updated_at),
        )  # fmt: skip
    for sweep in lifecycle.sweeps(keeper, space):
        names = ("sweep_id", "project_id", "started_at", "completed_at", "trigger_reason", "entries_decayed",
                 "entries_demoted", "entries_promoted", "entries_archived", "entries_orphaned", "duration_ms")  # fmt: skip
        _insert(conn, "memory_sweep_log", [sweep.get(name) for name in names])
    for run in lifecycle.consolidations(keeper, space):
        kept = ("run_id", "project_id", "started_at", "completed_at", "trigger_reason", "clusters", "entries_merged")  # fmt: skip
        _insert(conn, "memory_consolidation_log", (*(run[name] for name in kept), run.get("undone_at")))
    document = core.show(keeper, core.core_scope(space))
    if document.version:
        payload = json.dumps(document.payload(), ensure_ascii=False, sort_keys=True)
        _insert(conn, "cto_core_memory_state", (project, document.version, payload, document.updatedAt))
    for one in core.identities(keeper, space):
        values = [
            json.dumps(v, sort_keys=True)
            for v in (one.profile, one.persona, one.tool_policy, one.user_preferences)
        ]
        beat = json.dumps(one.heartbeat, sort_keys=True) if one.heartbeat is not None else None
        _insert(
            conn, "agent_identities",
            (one.id, project, one.name, *values, beat, one.model_preference, one.created_at, one.updated_at),
        )  # fmt: skip


def _insert(conn: sqlite3.Connection, table: str, values: Sequence[Any]) -> None:
    conn.execute(f"insert or replace into {table} values ({', '.join('?' * len(values))})", tuple(values))


def _embed(
    conn: sqlite3.Connection, keeper: Keeper, project: str, records: Sequence[Record], embedder: Embedder
) -> None:
    """Vectors of the live rows, fifty at a time."""
    live = [record for record in records if record.is_live]
    now = stamp(keeper.clock.now())
    for start in range(0, len(live), 50):
        batch = live[start : start + 50]
        vectors = embedder.embed([record.content for record in batch]).tolist()
        for record, vector in zip(batch, vectors, strict=True):
            key = table_id(record)
            norm = math.sqrt(sum(x * x for x in vector))
            _insert(
                conn, "unified_memory_embeddings",
                (f"emb/{key}", key, project, embedder.id, array.array("f", vector).tobytes(), len(vector), norm,
                 now, stamp(record.updated_at or born(record))),
            )  # fmt: skip
