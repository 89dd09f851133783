"""ADE's tables: same names and columns, filled from notes and journals into a file that `cairn export --sqlite` writes.

The tables, the indexes and the full-text triggers are made first, then filled, so that no row is ever written past a
trigger. The file is always a new one, and nothing here reads it. One file holds every space, so keys name the space,
too; whatever refers to a memory does so by that key.
"""

from __future__ import annotations

import array
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cairn.governed import consolidation, core, lifecycle, procedures, skills
from cairn.governed.access import Stat, born, ref
from cairn.governed.ledger import CaptureLedger
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, project_id, stamp
from cairn.seams import Embedder
from cairn.types import Space

MEMORY_COLUMNS = (
    "id", "project_id", "scope", "scope_owner_id", "tier", "category", "content", "importance", "confidence",
    "observation_count", "status", "source_type", "source_id", "source_session_id", "source_pack_key", "source_run_id",
    "file_scope_pattern", "agent_id", "pinned", "access_score", "composite_score", "write_gate_reason", "dedupe_key",
    "created_at", "updated_at", "last_accessed_at", "access_count", "promoted_at",
)  # fmt: skip

SCHEMA = """
create table projects (id text primary key, app_id text not null, name text not null);
create table unified_memories (
  id text primary key,
  project_id text not null references projects(id),
  scope text not null,
  scope_owner_id text,
  tier integer not null default 2,
  category text not null,
  content text not null,
  importance text not null default 'medium',
  confidence real not null default 1.0,
  observation_count integer not null default 1,
  status text not null default 'promoted',
  source_type text not null default 'agent',
  source_id text,
  source_session_id text,
  source_pack_key text,
  source_run_id text,
  file_scope_pattern text,
  agent_id text,
  pinned integer not null default 0,
  access_score real not null default 0,
  composite_score real not null default 0,
  write_gate_reason text,
  dedupe_key text not null default '',
  created_at text not null,
  updated_at text not null,
  last_accessed_at text not null,
  access_count integer not null default 0,
  promoted_at text
);
create index idx_unified_memories_project_scope_tier on unified_memories(project_id, scope, tier);
create index idx_unified_memories_scope_owner on unified_memories(project_id, scope, scope_owner_id);
create index idx_unified_memories_project_status on unified_memories(project_id, status);
create index idx_unified_memories_project_pinned on unified_memories(project_id, pinned, tier);
create index idx_unified_memories_project_accessed on unified_memories(project_id, last_accessed_at);
create index idx_unified_memories_project_dedupe on unified_memories(project_id, scope, scope_owner_id, dedupe_key);
create virtual table unified_memories_fts using fts5(
  content, content='unified_memories', content_rowid='rowid'
);
create trigger unified_memories_fts_ai after insert on unified_memories begin
  insert into unified_memories_fts(rowid, content) values (new.rowid, new.content);
end;
create trigger unified_memories_fts_bd before delete on unified_memories begin
  insert into unified_memories_fts(unified_memories_fts, rowid, content) values ('delete', old.rowid, old.content);
end;
create trigger unified_memories_fts_bu before update on unified_memories begin
  insert into unified_memories_fts(unified_memories_fts, rowid, content) values ('delete', old.rowid, old.content);
end;
create trigger unified_memories_fts_au after update on unified_memories begin
  insert into unified_memories_fts(rowid, content) values (new.rowid, new.content);
end;
create table unified_memory_embeddings (
  id text primary key,
  memory_id text not null references unified_memories(id) on delete cascade,
  project_id text not null,
  embedding_model text not null,
  embedding_blob blob not null,
  dimensions integer not null,
  norm real,
  created_at text not null,
  updated_at text not null
);
create table memory_procedure_details (
  memory_id text primary key references unified_memories(id) on delete cascade,
  trigger text not null,
  procedure_markdown text not null,
  success_count integer not null default 0,
  failure_count integer not null default 0,
  last_used_at text,
  exported_skill_path text,
  exported_at text,
  superseded_by_memory_id text,
  created_at text not null,
  updated_at text not null
);
create table memory_procedure_sources (
  procedure_memory_id text not null,
  episode_memory_id text not null,
  created_at text not null,
  primary key (procedure_memory_id, episode_memory_id)
);
create table memory_procedure_history (
  id text primary key,
  procedure_memory_id text not null,
  confidence real not null,
  outcome text not null,
  reason text,
  recorded_at text not null
);
create table memory_skill_index (
  id text primary key,
  path text not null,
  kind text not null,
  source text not null,
  memory_id text,
  content_hash text not null,
  last_modified_at text,
  archived_at text,
  created_at text not null,
  updated_at text not null
);
create table memory_capture_ledger (
  id text primary key,
  project_id text not null,
  source_type text not null,
  source_key text not null,
  memory_id text,
  episode_memory_id text,
  metadata_json text,
  created_at text not null,
  updated_at text not null
);
create unique index idx_ledger_key on memory_capture_ledger(project_id, source_type, source_key);
create table memory_sweep_log (
  id text primary key,
  project_id text not null,
  started_at text not null,
  ended_at text,
  trigger text not null,
  entries_decayed integer not null,
  entries_demoted integer not null,
  entries_promoted integer not null,
  entries_archived integer not null,
  entries_orphaned integer not null,
  duration_ms integer not null
);
create table memory_consolidation_log (
  id text primary key,
  project_id text not null,
  started_at text not null,
  ended_at text,
  trigger text not null,
  clusters integer not null,
  entries_merged integer not null,
  undone_at text
);
create table cto_core_memory_state (
  project_id text primary key,
  version integer not null,
  payload_json text not null,
  updated_at text not null
);
create table agent_identities (
  id text not null,
  project_id text not null,
  name text not null,
  profile_json text not null default '{}',
  persona_json text not null default '{}',
  tool_policy_json text not null default '{}',
  user_preferences_json text not null default '{}',
  heartbeat_json text,
  model_preference text,
  created_at text not null,
  updated_at text not null,
  primary key (project_id, id)
);
create table memories (
  id text primary key,
  project_id text not null,
  scope text not null,
  category text not null,
  content text not null,
  importance text default 'medium',
  source_session_id text,
  source_pack_key text,
  status text default 'promoted',
  agent_id text,
  confidence real default 1.0,
  promoted_at text,
  source_run_id text,
  created_at text not null,
  last_accessed_at text not null,
  access_count integer default 0
);
"""
# `memories` is the legacy table: it is there for readers who ask for it, and nothing is written to it.


def table_id(record: Record) -> str:
    """A memory's key in the tables. The public id is unique in a space and track only, this one everywhere."""
    return f"{project_id(record)}/{record.scope.track}/{record.id}"


def create(conn: sqlite3.Connection) -> None:
    """Tables, indexes and triggers."""
    conn.execute("pragma foreign_keys = on")
    conn.executescript(SCHEMA)


def fill(conn: sqlite3.Connection, keeper: Keeper, *, embedder: Embedder | None = None) -> int:
    """Make and fill every table of a new file from notes and journals; returns how many memories there are."""
    create(conn)
    return sum(_fill_space(conn, keeper, space, embedder) for space in keeper.root.spaces())


def _fill_space(conn: sqlite3.Connection, keeper: Keeper, space: Space, embedder: Embedder | None) -> int:
    project = f"{space.app}/{space.project}"
    stats = keeper.access.stats(space)
    records = [record for scope in keeper.scopes(space) for record in keeper.records(scope)]
    with conn:
        _insert(conn, "projects", (project, space.app, space.project))
        for key, record in {table_id(record): record for record in records}.items():
            row = keeper.row(record, stats.get(ref(record), Stat()))
            row |= {"id": key, "scope_owner_id": record.scope.owner or None}
            for column in ("created_at", "updated_at", "last_accessed_at"):
                row[column] = row[column] or stamp(born(record))
            _insert(conn, "unified_memories", [row[column] for column in MEMORY_COLUMNS])
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
    for skill in skills.index(keeper, space):
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
    for run in consolidation.runs(keeper, space):
        kept = (
            "run_id",
            "project_id",
            "started_at",
            "completed_at",
            "trigger_reason",
            "clusters",
            "entries_merged",
        )
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
