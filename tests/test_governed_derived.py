"""ADE's derived tables, imports from elsewhere, and what doctor finds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cairn.errors import Invalid
from cairn.governed import checks, core, derived, forget, ledger, lifecycle, migrate, pages, procedures
from cairn.governed.records import COLUMNS, from_entry
from cairn.types import Entry, Scope, Space
from tests.world import PROJECT, SPACE, World


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "memories.db")) as made:
        yield made


def _fill(world: World) -> None:
    keeper = world.keeper
    keeper.remember("Deploys need two reviews.", "convention", status="promoted", agent_id="dev")
    keeper.remember("Dana likes green tea.", "preference", scope="user", owner="dana")
    keeper.remember("The dev agent likes small diffs.", scope="agent", owner="dana")
    keeper.remember("Learned in a run.", scope="mission", owner="run-1", status="promoted", confidence=0.9)
    added = procedures.add(
        keeper, SPACE, "Reset staging", trigger="data is stale", steps="1. reset", sources=["ep_1"]
    )
    assert added.memory is not None
    procedures.outcome(keeper, keeper.find(SPACE, str(added.memory["id"])), success=True, reason="fine")
    ledger.learn(keeper, SPACE, "intervention", "m1", "Please never push on Fridays.", author="dana")
    procedures.scan_skills(
        keeper,
        SPACE,
        [procedures.SkillFile("x/lint/SKILL.md", "---\nname: lint\ndescription: d\n---\n1. ruff")],
    )
    for n in range(3):
        keeper.remember(f"The nightly backup of db{n} writes to bucket seven")
    lifecycle.consolidate(keeper, SPACE)
    ledger.end_mission(keeper, SPACE, "run-1", success=True)
    core.update(keeper, PROJECT, notes=["one"])
    core.set_identity(keeper, SPACE, "dev", name="Dev")
    keeper.remember("Another project's memory.", space=Space("default", "other"))
    lifecycle.sweep(keeper, SPACE)


def _dump(conn: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every table but the legacy one, which is there for readers who ask for it and stays empty."""
    tables = {table for (table,) in conn.execute("select name from pragma_table_list where type = 'table'")}
    ours = {table for table in tables if not table.startswith("sqlite_")} - {"memories"}
    return {t: sorted(map(tuple, conn.execute(f"select * from {t}")), key=repr) for t in sorted(ours)}


def test_every_table_of_the_set_exists_and_is_filled(world: World, conn: sqlite3.Connection) -> None:
    """A1, A3, A25, A27-A29, A31, A34, A35, A39, A41: same names and columns, from notes and journals."""
    _fill(world)
    derived.fill(conn, world.keeper, embedder=_Hashing())
    dump = _dump(conn)
    assert len(dump) == 12
    assert all(dump.values()), [table for table, rows in dump.items() if not rows]
    columns = [row[1] for row in conn.execute("pragma table_info(unified_memories)")]
    assert tuple(columns) == COLUMNS
    detail = [row[1] for row in conn.execute("pragma table_info(memory_procedure_details)")]
    assert detail == [
        "memory_id", "trigger", "procedure_markdown", "success_count", "failure_count", "last_used_at",
        "exported_skill_path", "exported_at", "superseded_by_memory_id", "created_at", "updated_at",
    ]  # fmt: skip
    embedding = [row[1] for row in conn.execute("pragma table_info(unified_memory_embeddings)")]
    assert embedding == [
        "id", "memory_id", "project_id", "embedding_model", "embedding_blob", "dimensions", "norm", "created_at",
        "updated_at",
    ]  # fmt: skip


def test_column_defaults_are_the_seeds(conn: sqlite3.Connection) -> None:
    """A4, A7, A10-A14, A16-A20: a bare insert gets them; project_id must exist."""
    derived.create(conn)
    conn.execute("insert into projects values ('p', 'a', 'p')")
    conn.execute(
        "insert into unified_memories (id, project_id, scope, category, content, created_at, updated_at, last_accessed_at) "
        "values ('x', 'p', 'project', 'fact', 'text', 't', 't', 't')"
    )
    row = conn.execute(
        "select tier, importance, confidence, observation_count, status, source_type, pinned, access_score, "
        "composite_score, dedupe_key, access_count, promoted_at from unified_memories"
    ).fetchone()
    assert row == (2, "medium", 1.0, 1, "promoted", "agent", 0, 0.0, 0.0, "", 0, None)
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(
            "insert into unified_memories (id, project_id, scope, category, content, created_at, updated_at, last_accessed_at) "
            "values ('y', 'nowhere', 'project', 'fact', 'text', 't', 't', 't')"
        )


def test_the_six_indexes_are_there(conn: sqlite3.Connection) -> None:
    """A21: on the seed's columns, in their order."""
    derived.create(conn)
    found = {
        tuple(row[2] for row in conn.execute(f"pragma index_info({name})"))
        for (_, name, *_rest) in conn.execute("pragma index_list(unified_memories)")
        if not name.startswith("sqlite_")
    }
    assert found == {
        ("project_id", "scope", "tier"), ("project_id", "scope", "scope_owner_id"), ("project_id", "status"),
        ("project_id", "pinned", "tier"), ("project_id", "last_accessed_at"),
        ("project_id", "scope", "scope_owner_id", "dedupe_key"),
    }  # fmt: skip


def test_full_text_follows_insert_update_and_delete(world: World, conn: sqlite3.Connection) -> None:
    """A23, A24, A26, A70, Y6: FTS5 by four triggers that exist before the first row; no vector needed."""
    world.keeper.remember("Deploys need two reviews.", status="promoted")
    derived.fill(conn, world.keeper)
    triggers = {row[0] for row in conn.execute("select name from sqlite_master where type = 'trigger'")}
    assert triggers == {f"unified_memories_fts_{end}" for end in ("ai", "bd", "bu", "au")}
    assert (
        "fts5"
        in conn.execute("select sql from sqlite_master where name = 'unified_memories_fts'").fetchone()[0]
    )

    def found(words: str) -> int:
        rows = conn.execute(
            "select rowid from unified_memories_fts where unified_memories_fts match ?", (words,)
        )
        return len(rows.fetchall())

    assert found("two reviews") == 1
    conn.execute("update unified_memories set content = 'Deploys need three approvals.'")
    assert (found("reviews"), found("approvals")) == (0, 1)
    conn.execute("create temp table copy as select * from unified_memories")
    conn.execute("delete from unified_memories")
    conn.execute("insert into unified_memories select * from copy")
    assert found("approvals") == 1, "a row that is put in again is found once"
    conn.execute("insert into unified_memories_fts(unified_memories_fts) values ('integrity-check')")
    conn.execute("delete from unified_memories")
    assert found("approvals") == 0
    conn.execute("insert into unified_memories_fts(unified_memories_fts) values ('integrity-check')")


def test_tables_made_anew_are_the_same(world: World, tmp_path: Path, conn: sqlite3.Connection) -> None:
    """C1: after edits, merges, sweeps and forgetting, from the files alone."""
    _fill(world)
    world.journals.replace(world.root.journal(SPACE, "skill-index"), [])
    for record in world.keeper.records(PROJECT)[:2]:
        forget.forget(world.keeper, SPACE, record.id)
    derived.fill(conn, world.keeper)
    with closing(sqlite3.connect(tmp_path / "fresh.db")) as fresh:
        derived.fill(fresh, world.reopen())
        assert _dump(fresh) == _dump(conn)


def test_owners_with_the_same_id_do_not_collide(world: World, conn: sqlite3.Connection) -> None:
    """E54, trap 7: user dana and agent dana each have a first memory of the day."""
    world.keeper.remember("Dana likes tea.", scope="user", owner="dana")
    world.keeper.remember("The agent dana logs at info.", scope="agent", owner="dana")
    assert derived.fill(conn, world.keeper) == 2
    found = conn.execute("select scope, scope_owner_id from unified_memories order by scope").fetchall()
    assert found == [("agent", "dana"), ("user", "dana")]


class _Hashing:
    dimensions = 384
    id = "model-a"

    def __init__(self) -> None:
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(len(texts))
        made = np.stack([np.random.default_rng(abs(hash(t)) % 2**32).normal(size=384) for t in texts]).astype(
            "float32"
        )
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_every_live_memory_gets_a_vector(world: World, conn: sqlite3.Connection) -> None:
    """A25, A84: float32 blobs with their norm and model, made in batches of 50."""
    for n in range(60):
        world.keeper.remember(f"Fact {n} about thing{n} and place{n}.")
    embedder = _Hashing()
    derived.fill(conn, world.keeper, embedder=embedder)
    assert embedder.calls == [50, 10]
    blob, size, norm, model = conn.execute(
        "select embedding_blob, dimensions, norm, embedding_model from unified_memory_embeddings"
    ).fetchone()
    assert (len(blob), size, model) == (384 * 4, 384, "model-a")
    assert norm == pytest.approx(1.0, abs=1e-5)


# --- imports ------------------------------------------------------------------------------------------------------

MEM0 = {"results": [
    {"id": "1", "memory": "Likes hiking in the mountains", "user_id": "dana", "created_at": "2025-03-01T10:00:00Z"},
    {"id": "2", "memory": "Works as a nurse in Bern", "user_id": "dana"},
    {"id": "3", "memory": "", "user_id": "dana"},
]}  # fmt: skip
BASIC = """---
title: Coffee
type: note
---
# Coffee
## Observations
- [decision] We brew with the blue machine #coffee (since May)
- [tip] Grind right before brewing #method
- [ ] an open task is no observation
## Relations
- relates_to [[Tea]]
"""
CLAUDE = """# Project memory

Use pnpm, never npm.

## Gotchas
- The dev server caches .env; restart it.
- CI runs on Node 20
```
code is skipped
```
## Style preferences
1. Short answers in German
"""


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("mem0", json.dumps(MEM0), ["Likes hiking in the mountains", "Works as a nurse in Bern"]),
        ("basic-memory", BASIC, ["We brew with the blue machine", "Grind right before brewing"]),
        ("claude", CLAUDE, [
            "Use pnpm, never npm.", "The dev server caches .env; restart it.", "CI runs on Node 20",
            "Short answers in German"]),
        ("everos", json.dumps({"data": {"episodes": [{"id": "e1", "summary": "s", "content": "Dana moved to Bern.", "user_id": "dana"}]}}),
         ["Dana moved to Bern."]),
        ("ade", json.dumps({"memories": [{"id": "a", "content": "Use UTC.", "category": "convention"}, {"id": "b", "content": " "}]}),
         ["Use UTC."]),
    ],
)  # fmt: skip
def test_exports_come_in_through_the_gate_once(
    world: World, source: str, text: str, expected: list[str]
) -> None:
    """A36, migration: kept as untrusted candidates, each once, whatever the order of runs."""
    items = migrate.read(source, text, owner="dana" if source == "basic-memory" else "")
    assert [item.content for item in items] == expected
    report = migrate.bring_in(world.keeper, SPACE, source, items)
    assert (len(report.kept), report.refused, report.known) == (len(expected), [], [])
    again = migrate.bring_in(world.reopen(), SPACE, source, items)
    assert (again.kept, len(again.known)) == ([], len(expected))
    for memory_id in report.kept:
        row = world.keeper.row(world.keeper.find(SPACE, memory_id))
        assert (row["status"], row["origin"]) == ("candidate", "import")
        assert row["source_id"].startswith(f"{source}:")


def test_categories_and_owners_come_along(world: World) -> None:
    """Migration: headings and tags name the category, user ids the owner, times the age."""
    by_text = {i.content: i.category for i in migrate.read("claude", CLAUDE)}
    assert by_text["CI runs on Node 20"] == "gotcha"
    assert by_text["Short answers in German"] == "preference"
    assert next(i.category for i in migrate.read("basic-memory", BASIC)) == "decision"
    report = migrate.bring_in(world.keeper, SPACE, "mem0", migrate.read("mem0", json.dumps(MEM0)))
    record = world.keeper.find(SPACE, report.kept[0])
    assert record.scope == Scope(SPACE, "user", "dana")
    assert record.created_at is not None
    assert record.created_at.year == 2025


def test_legacy_scores_are_seeded_and_a_trusted_import_counts_as_human(world: World) -> None:
    """A36, A69: access scores from composite and count; a person may vouch for the source."""
    rows = [{"id": 7, "content": "Use UTC in every log line.", "category": "rumour", "scope": "user", "agent_id": "dev",
             "composite_score": 0.5, "access_count": 4, "confidence": 0.2, "importance": "low"}]  # fmt: skip
    report = migrate.bring_in(world.keeper, SPACE, "ade", migrate.from_rows(rows), trust=True)
    record = world.keeper.find(SPACE, report.kept[0])
    assert (record.scope, record.origin) == (Scope(SPACE, "agent", "dev"), "human")
    row = world.keeper.row(record)
    assert row["access_score"] == pytest.approx(0.7)
    assert row["access_count"] == 4


def test_bad_exports_are_named(world: World) -> None:
    """Migration: not JSON, not a list, an unknown format, a hostile owner."""
    for source, text in (("mem0", "{"), ("mem0", '{"results": 3}'), ("ade", "7"), ("fax", "")):
        with pytest.raises(Invalid):
            migrate.read(source, text)
    evil = [migrate.Incoming("k", "text of a memory", scope="user", owner="../../etc")]
    report = migrate.bring_in(world.keeper, SPACE, "mem0", evil)
    assert report.refused[0][0] == "k"
    secret = [migrate.Incoming("s", "pass" + "word: hunter2secret9")]
    assert migrate.bring_in(world.keeper, SPACE, "mem0", secret).refused == [("s", "secret")]


# --- doctor ---------------------------------------------------------------------------------------------------------


def _hand(world: World, entry_id: str, body: str, day: str = "2026-05-01") -> None:
    note = world.folder / f"default_app/default_project/shared/memories/memory-{day}.md"
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.open("a") as file:
        file.write(f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n{body}\n<!-- /entry:{entry_id} -->\n")


def test_doctor_reports_what_the_gate_would_have_refused_and_deletes_nothing(world: World) -> None:
    """A37, C4, C15: hand-written oddities are named, each with its place."""
    assert checks.check(world.keeper, SPACE) == []
    _hand(world, "mem_20260501_00000001", "**category**: rumour\n\n### Content\nWe keep bees on the roof.")
    _hand(world, "mem_20260501_00000002", "### Content\ndiff --git a/x b/x\n@@ -1,2 +1,3 @@\n+a")
    _hand(world, "mem_20260501_00000003", "### Content\nwe keep bees on the roof.")
    _hand(
        world,
        "mem_20260501_00000004",
        "### Content\nThe gh" + "p_" + "a1B2c3D4e5F6" * 3 + " is on the build host",
    )
    _hand(
        world,
        "mem_20260501_00000005",
        "**superseded_by**: mem_20200101_00000009\n**status**: archived\n\n### Content\nold",
    )
    _hand(world, "mem_20260501_00000006", "**origin**: web\n\n### Content\nTrust me on this one.")
    odd = "**status**: bogus\n**confidence**: 7\n**dedupe**: 0123\n\n### Content\nA row with odd fields."
    _hand(world, "mem_20260501_00000007", odd)
    _hand(world, "mem_20260501_00000006", "### Content\nThe same id in another note.", day="2026-05-02")
    pages.refresh(world.keeper, SPACE)
    page = world.folder / "default_app/default_project/shared/pages/MEMORY.md"
    page.write_text(page.read_text() + "mine\n")
    world.journals.append(world.root.journal(SPACE, "ledger"), ["{not json"])
    before = {name: (world.folder / name).read_bytes() for name in world.notes()}
    codes = {finding.code for finding in checks.check(world.keeper, SPACE)}
    assert codes == {
        "category", "code-derivable", "duplicate", "secret", "successor-missing", "untrusted-promoted", "id-doubled",
        "page-edited", "journal-damaged", "field",
    }  # fmt: skip
    checks.repair(world.keeper, SPACE)
    assert {name: (world.folder / name).read_bytes() for name in world.notes()} == before


def test_repair_mends_marks_and_open_supersessions(world: World) -> None:
    """A37: stale dedupe marks after a hand edit, which is no trouble to name, and a supersede that was cut short."""
    verdict = world.keeper.remember("Lunch is at noon.")
    assert verdict.memory is not None
    note = world.folder / str(verdict.memory["path"])
    note.write_text(note.read_text().replace("Lunch is at noon.", "Lunch is at one sharp."))
    world.keeper.remember("Dinner is at eight.", supersedes=str(verdict.memory["id"]))
    codes = {finding.code for finding in checks.check(world.keeper, SPACE)}
    assert codes == {"supersession-open"}
    mended = {finding.code for finding in checks.repair(world.keeper, SPACE)}
    assert mended == {"dedupe-stale", "supersession-open"}
    assert checks.check(world.keeper, SPACE) == []


def test_malformed_fields_read_as_their_defaults() -> None:
    """A37, C2: a row that makes no sense never stops the others."""
    entry = Entry(
        "mem_20260501_00000001",
        {"tier": "gold", "confidence": "-3", "status": "Deprecated", "importance": "HUGE", "pinned": "maybe",
         "observation_count": "many", "created_at": "yesterday", "custom": "kept"},
        {"Content": "text", "Extra": "kept too"},
    )  # fmt: skip
    record = from_entry(entry, PROJECT, world_locator())
    assert (record.tier, record.confidence, record.status, record.importance) == (
        2,
        1.0,
        "archived",
        "medium",
    )
    assert (record.pinned, record.observation_count, record.created_at) == (False, 1, None)
    assert record.inline()["custom"] == "kept"
    assert record.sections()["Extra"] == "kept too"


def world_locator():  # type: ignore[no-untyped-def]
    from cairn.seams import Locator

    return Locator("default_app/default_project/shared/memories/memory-2026-05-01.md")
