"""ADE's tables: same names and columns, filled from notes and journals into a file that `cairn export --sqlite` writes.

The tables, the indexes and the full-text triggers are made first, then filled, so that no row is ever written past a
trigger. `sync` brings a file up to date by writing only what differs. Nothing here reads these tables. One file holds
every space, so keys name the space, too; whatever refers to a memory does so by that key.
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
create table if not exists projects (id text primary key, app_id text not null, name text not null);
create table if not exists unified_memories (
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
create index if not exists idx_unified_memories_project_scope_tier on unified_memories(project_id, scope, tier);
create index if not exists idx_unified_memories_scope_owner on unified_memories(project_id, scope, scope_owner_id);
create index if not exists idx_unified_memories_project_status on unified_memories(project_id, status);
create index if not exists idx_unified_memories_project_pinned on unified_memories(project_id, pinned, tier);
create index if not exists idx_unified_memories_project_accessed on unified_memories(project_id, last_accessed_at);
create index if not exists idx_unified_memories_project_dedupe on unified_memories(project_id, scope, scope_owner_id, dedupe_key);
create virtual table if not exists unified_memories_fts using fts5(
  content, content='unified_memories', content_rowid='rowid'
);
create trigger if not exists unified_memories_fts_ai after insert on unified_memories begin
  insert into unified_memories_fts(rowid, content) values (new.rowid, new.content);
end;
create trigger if not exists unified_memories_fts_bd before delete on unified_memories begin
  insert into unified_memories_fts(unified_memories_fts, rowid, content) values ('delete', old.rowid, old.content);
end;
create trigger if not exists unified_memories_fts_bu before update on unified_memories begin
  insert into unified_memories_fts(unified_memories_fts, rowid, content) values ('delete', old.rowid, old.content);
end;
create trigger if not exists unified_memories_fts_au after update on unified_memories begin
  insert into unified_memories_fts(rowid, content) values (new.rowid, new.content);
end;
create table if not exists unified_memory_embeddings (
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
create table if not exists memory_procedure_details (
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
create table if not exists memory_procedure_sources (
  procedure_memory_id text not null,
  episode_memory_id text not null,
  created_at text not null,
  primary key (procedure_memory_id, episode_memory_id)
);
create table if not exists memory_procedure_history (
  id text primary key,
  procedure_memory_id text not null,
  confidence real not null,
  outcome text not null,
  reason text,
  recorded_at text not null
);
create table if not exists memory_skill_index (
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
create table if not exists memory_capture_ledger (
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
create unique index if not exists idx_ledger_key on memory_capture_ledger(project_id, source_type, source_key);
create table if not exists memory_sweep_log (
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
create table if not exists memory_consolidation_log (
  id text primary key,
  project_id text not null,
  started_at text not null,
  ended_at text,
  trigger text not null,
  clusters integer not null,
  entries_merged integer not null,
  undone_at text
);
create table if not exists cto_core_memory_state (
  project_id text primary key,
  version integer not null,
  payload_json text not null,
  updated_at text not null
);
create table if not exists agent_identities (
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
create table if not exists memories (
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
TABLES = (
    "unified_memory_embeddings", "memory_procedure_details", "memory_procedure_sources", "memory_procedure_history",
    "memory_skill_index", "memory_capture_ledger", "memory_sweep_log", "memory_consolidation_log",
    "cto_core_memory_state", "agent_identities", "unified_memories", "projects",
)  # fmt: skip


def table_id(record: Record) -> str:
    """A memory's key in the tables. The public id is unique in a space and track only, this one everywhere."""
    return f"{project_id(record)}/{record.scope.track}/{record.id}"


def create(conn: sqlite3.Connection) -> None:
    """Tables, indexes and triggers; harmless where they exist."""
    conn.execute("pragma foreign_keys = on")
    conn.executescript(SCHEMA)


def rebuild(conn: sqlite3.Connection, keeper: Keeper, *, embedder: Embedder | None = None) -> int:
    """Fill every table anew from notes and journals; returns how many memories there are."""
    create(conn)
    with conn:
        for table in TABLES:
            conn.execute(f"delete from {table}")
    return sum(sync(conn, keeper, space, embedder=embedder) for space in keeper.root.spaces())


def sync(conn: sqlite3.Connection, keeper: Keeper, space: Space, *, embedder: Embedder | None = None) -> int:
    """Bring the rows of one space up to date, writing only what differs; returns its number of memories."""
    create(conn)
    project = f"{space.app}/{space.project}"
    stats = keeper.access.stats(space)
    records = [record for scope in keeper.scopes(space) for record in keeper.records(scope)]
    rows: dict[str, tuple[Any, ...]] = {}
    for record in records:
        row = keeper.row(record, stats.get(ref(record), Stat()))
        row |= {"id": table_id(record), "scope_owner_id": record.scope.owner or None}
        for column in ("created_at", "updated_at", "last_accessed_at"):
            row[column] = row[column] or stamp(born(record))
        rows[row["id"]] = tuple(row[column] for column in MEMORY_COLUMNS)
    names = ", ".join(MEMORY_COLUMNS)
    with conn:
        conn.execute("insert or ignore into projects values (?, ?, ?)", (project, space.app, space.project))
        found = conn.execute(f"select {names} from unified_memories where project_id = ?", (project,))
        known = {row[0]: tuple(row) for row in found}
        conn.executemany(
            "delete from unified_memories where id = ?", [(gone,) for gone in known.keys() - rows.keys()]
        )
        changes = ", ".join(f"{column} = excluded.{column}" for column in MEMORY_COLUMNS[1:])
        conn.executemany(
            f"insert into unified_memories ({names}) values ({', '.join('?' * len(MEMORY_COLUMNS))}) "
            f"on conflict(id) do update set {changes}",
            [row for key, row in rows.items() if known.get(key) != row],
        )
        _clear_small(conn, project)
        keys = {record.id: table_id(record) for record in records}
        _sync_procedures(conn, keeper, space, records, keys)
        _sync_logs(conn, keeper, space, project, keys)
    if embedder is not None:
        _embed(conn, keeper, project, records, embedder)
    return len(records)


def search(
    conn: sqlite3.Connection, project: str, words: Sequence[str], limit: int = 10
) -> list[tuple[str, float]]:
    """Rows that hold all words, by BM25; lexical search needs no embedding (A26)."""
    query = " AND ".join('"' + word.replace('"', '""') + '"' for word in words)
    if not query:
        return []
    found = conn.execute(
        "select m.id, bm25(unified_memories_fts) from unified_memories_fts f "
        "join unified_memories m on m.rowid = f.rowid "
        "where unified_memories_fts match ? and m.project_id = ? and m.status <> 'archived' order by 2, 1 limit ?",
        (query, project, limit),
    )
    return [(row[0], -row[1]) for row in found]


def _clear_small(conn: sqlite3.Connection, project: str) -> None:
    """The small tables are filled anew each time, so that what left the journals leaves them too."""
    start = f"{project}/"
    for table, column in (
        ("memory_procedure_details", "memory_id"),
        ("memory_procedure_sources", "procedure_memory_id"),
        ("memory_procedure_history", "procedure_memory_id"),
        ("memory_skill_index", "id"),
    ):
        conn.execute(f"delete from {table} where substr({column}, 1, ?) = ?", (len(start), start))
    for table in (
        "memory_capture_ledger", "memory_sweep_log", "memory_consolidation_log", "cto_core_memory_state", "agent_identities",
    ):  # fmt: skip
        conn.execute(f"delete from {table} where project_id = ?", (project,))


def _key(keys: Mapping[str, str], memory_id: str | None) -> str | None:
    """The key of a memory in the tables; what refers to something else (an episode, a case) stays as it is."""
    return keys.get(memory_id, memory_id) if memory_id is not None else None


def _sync_procedures(
    conn: sqlite3.Connection, keeper: Keeper, space: Space, records: Iterable[Record], keys: Mapping[str, str]
) -> None:
    known = procedures.details(keeper, space)
    for record in records:
        if record.category != "procedure":
            continue
        key = table_id(record)
        told = known.get(ref(record), procedures.Details())
        created = stamp(born(record))
        _replace(
            conn, "memory_procedure_details",
            (key, record.trigger, record.procedure, told.success_count, told.failure_count, told.last_used_at,
             told.exported_skill_path, told.exported_at, _key(keys, record.superseded_by), created,
             stamp(record.updated_at) or created),
        )  # fmt: skip
        for episode, at in told.sources:
            _replace(conn, "memory_procedure_sources", (key, _key(keys, episode), at))
        for row in told.history:
            _replace(
                conn, "memory_procedure_history",
                (f"{key}#{row['id']}", key, row["confidence"], row["outcome"], row["reason"], row["recorded_at"]),
            )  # fmt: skip


def _sync_logs(
    conn: sqlite3.Connection, keeper: Keeper, space: Space, project: str, keys: Mapping[str, str]
) -> None:
    for skill in skills.index(keeper, space):
        _replace(
            conn, "memory_skill_index",
            (f"{project}/{skill.id}", skill.path, skill.kind, skill.source, _key(keys, skill.memory_id), skill.content_hash,
             skill.last_modified_at, skill.archived_at, skill.created_at, skill.updated_at),
        )  # fmt: skip
    for row in CaptureLedger(keeper).rows(space):
        _replace(
            conn, "memory_capture_ledger",
            (f"{project}/{row.id}", project, row.source_type, row.source_key, _key(keys, row.memory_id),
             _key(keys, row.episode_memory_id),
             json.dumps(row.metadata, sort_keys=True), row.created_at, row.updated_at),
        )  # fmt: skip
    for sweep in lifecycle.sweeps(keeper, space):
        names = ("sweep_id", "project_id", "started_at", "completed_at", "trigger_reason", "entries_decayed",
                 "entries_demoted", "entries_promoted", "entries_archived", "entries_orphaned", "duration_ms")  # fmt: skip
        _replace(conn, "memory_sweep_log", [sweep.get(name) for name in names])
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
        _replace(conn, "memory_consolidation_log", (*(run[name] for name in kept), run.get("undone_at")))
    document = core.show(keeper, core.core_scope(space))
    if document.version:
        payload = json.dumps(document.payload(), ensure_ascii=False, sort_keys=True)
        _replace(conn, "cto_core_memory_state", (project, document.version, payload, document.updatedAt))
    for one in core.identities(keeper, space):
        values = [
            json.dumps(v, sort_keys=True)
            for v in (one.profile, one.persona, one.tool_policy, one.user_preferences)
        ]
        beat = json.dumps(one.heartbeat, sort_keys=True) if one.heartbeat is not None else None
        _replace(
            conn, "agent_identities",
            (one.id, project, one.name, *values, beat, one.model_preference, one.created_at, one.updated_at),
        )  # fmt: skip


def _replace(conn: sqlite3.Connection, table: str, values: Sequence[Any]) -> None:
    conn.execute(f"insert or replace into {table} values ({', '.join('?' * len(values))})", tuple(values))


def _embed(
    conn: sqlite3.Connection, keeper: Keeper, project: str, records: Sequence[Record], embedder: Embedder
) -> None:
    """Vectors for live rows that have none of this model; those of another model count as missing (A83)."""
    found = conn.execute(
        "select memory_id, updated_at from unified_memory_embeddings where project_id = ? and embedding_model = ?",
        (project, embedder.id),
    )
    have = dict(found.fetchall())
    missing = [r for r in records if r.is_live and have.get(table_id(r)) != stamp(r.updated_at or born(r))]
    for start in range(0, len(missing), 50):
        batch = missing[start : start + 50]
        vectors = embedder.embed([record.content for record in batch])
        now = stamp(keeper.clock.now())
        with conn:
            for record, vector in zip(batch, vectors.tolist(), strict=True):
                key = table_id(record)
                norm = math.sqrt(sum(x * x for x in vector))
                _replace(
                    conn, "unified_memory_embeddings",
                    (f"emb/{key}", key, project, embedder.id, array.array("f", vector).tobytes(), len(vector), norm,
                     now, stamp(record.updated_at or born(record))),
                )  # fmt: skip
