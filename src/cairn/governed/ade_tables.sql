-- The tables of ADE that `cairn export --sqlite` writes, with their indexes and full-text triggers.
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
-- The legacy table: it is there for readers who ask for it, and nothing is written to it.
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
