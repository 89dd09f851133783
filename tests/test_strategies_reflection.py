"""Reflection: related episodes become one narrative, no fact is lost silently, and undo is exact."""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import NotFound
from cairn.strategies.reflection import Fact, fates_of, narrative_of
from cairn.timetravel.runs import TakenBack
from cairn.types import Scope, Space
from tests.world import TALKED, ScriptedWriter, World

ANA = Scope(Space(), "user", "ana")
JOURNAL = "default_app/default_project/journal/reflection.jsonl"


def story(world: World, count: int = 3, *, days: int = 1) -> None:
    for n in range(count):
        text = (
            f"I trained for the Oslo marathon with my coach Eva today. I ran {10 + n} km on the coast road."
        )
        if n:
            text += " I live in Bergen." if n == 1 else " I live in Oslo."
        world.run(
            world.talk(
                [("Ana", text), ("Bo", "I like the Oslo marathon.")],
                session=f"s{n}",
                at=TALKED + timedelta(days=n * days),
            )
        )


def reflected(world: World) -> list[str]:
    world.engine.trigger("reflect_episodes", force=True)
    return [r.input for r in world.engine.runs(strategy="reflect_episodes")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root")


def ledger(world: World) -> list[dict]:
    return [json.loads(line) for line in (world.folder / JOURNAL).read_text().splitlines()]


def undo_all(world: World) -> list[TakenBack]:
    """Take every reflection back; what became of each entry."""
    found = []
    for run in world.runs.runs(Space()):
        if run["kind"] == "reflection":
            found += world.runs.undo(world.notebook, Space(), run["run_id"]).entries
    return found


def test_a_week_of_one_thing_becomes_one_narrative(world: World):
    """E119: parent_type cluster; originals stay and are listed in deprecated_entries."""
    story(world)
    before = world.entries("episode", "ana")
    reflected(world)

    episodes = world.entries("episode", "ana")
    (new,) = [e for e in episodes if e.inline["parent_type"] == "cluster"]
    assert [e.sections for e in episodes if e is not new] == [e.sections for e in before]
    assert new.inline["parent_id"].startswith("cl_")
    for n in range(3):
        day = f"2023-05-{8 + n:02d}"
        head = world.notebook.read(world.root.note("episode", ANA, day)).frontmatter
        assert head["deprecated_entries"] == {f"ep_{day.replace('-', '')}_00000001": new.id}
    assert "Ana: I ran 12 km on the coast road." in new.sections["Content"]
    assert new.sections["Content"].startswith("8 May 2023: ")


def test_it_is_off_by_default_and_leaves_far_apart_episodes_alone(world: World):
    """E119: disabled unless switched on; a window of seven days."""
    story(world, days=20)
    assert world.engine.trigger("reflect_episodes").status == "disabled"
    before = world.tree()
    reflected(world)
    assert world.tree() == before
    assert {r.reason for r in world.engine.runs(strategy="reflect_episodes")} == {
        "no two episodes belong together"
    }


def test_every_fact_has_one_fate(world: World):
    """The ledger: kept, merged into another, superseded by a later one; deprecated facts are marked."""
    story(world)
    reflected(world)
    plan = next(x for x in ledger(world) if x["t"] == "plan" and x["owner"] == "ana")
    ids = [e.id for e in world.entries("atomic_fact", "ana")]
    assert [f["id"] for f in plan["facts"]] == sorted(ids, key=[f["id"] for f in plan["facts"]].index)
    fates = {f["id"]: f for f in plan["facts"]}
    facts = {e.id: e.sections["Fact"] for e in world.entries("atomic_fact", "ana")}
    old = next(i for i, text in facts.items() if text == "Ana: I live in Bergen.")
    assert fates[old]["fate"] == "superseded" and facts[fates[old]["by"]] == "Ana: I live in Oslo."
    head = world.notebook.read(world.root.note("atomic_fact", ANA, "2023-05-09")).frontmatter
    assert head["deprecated_entries"][old] == fates[old]["by"]
    assert not any(x["t"] == "before" for x in ledger(world)), "full copies do not stay in the journal"


def test_one_preference_does_not_replace_another():
    """A person has many preferences: only what has one value at a time is superseded."""
    texts = (
        "Ana prefers tea to coffee.",
        "Ana prefers window seats.",
        "Ana: I live in Porto.",
        "Ana: I live in Oslo.",
    )
    facts = [Fact(f"af_{n}", "2023-05-08", "ep", text, f"{n}") for n, text in enumerate(texts)]
    assert [fate.fate for fate in fates_of(facts)] == ["kept", "kept", "superseded", "kept"]


def test_a_second_run_finds_nothing_left_to_merge(world: World):
    """Narratives and deprecated originals are not merged again."""
    story(world)
    reflected(world)
    before = world.tree()
    world.clock.move(days=7)
    reflected(world)
    assert world.tree() == before


def test_undo_restores_every_byte(world: World):
    """E119: one call takes the run back, exactly; it is not done again by itself."""
    story(world)
    before = world.tree()
    reflected(world)
    assert world.tree() != before

    undo_all(world)
    assert world.tree() == before
    world.clock.move(days=7)
    reflected(world)
    assert world.tree() == before
    with pytest.raises(NotFound, match="to undo"):
        world.runs.undo(world.notebook, Space(), "reflection")


def test_undo_keeps_what_a_person_wrote_since(world: World):
    """A file that was edited after the run loses the narrative and the marks, and keeps the edit."""
    story(world)
    reflected(world)
    path = world.folder / "default_app/default_project/users/ana/episodes/episode-2023-05-08.md"
    path.write_text(path.read_text() + "\nA line of my own.\n")

    done = undo_all(world)

    assert "remove" in {one.action for one in done} and "kept" not in {one.action for one in done}
    assert "A line of my own." in path.read_text() and "deprecated_entries" not in path.read_text()
    assert not [e for e in world.entries("episode", "ana") if e.inline["parent_type"] == "cluster"]


def test_a_run_that_died_half_way_is_finished_and_undone_exactly(world: World, monkeypatch):
    """Killed between two files: the repeat completes it, and undo still knows what every file was."""
    story(world)
    before = world.tree()
    real = world.notebook.update_frontmatter
    calls = []

    def dying(locator, updates):
        calls.append(locator)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(locator, updates)

    monkeypatch.setattr(world.notebook, "update_frontmatter", dying)
    with pytest.raises(KeyboardInterrupt):
        reflected(world)
    monkeypatch.undo()
    world.engine = world.fresh_engine()
    world.engine.recover()
    reflected(world)
    assert len([e for e in world.entries("episode", "ana") if e.inline["parent_type"] == "cluster"]) == 1
    undo_all(world)
    assert world.tree() == before


def test_a_models_narrative_keeps_the_kept(tmp_path: Path):
    """Whatever the model writes, every kept fact is in the narrative."""
    world = World(tmp_path / "root")
    story(world)
    world.engine._kit = type(world.engine._kit)(
        **{**{f: getattr(world.engine._kit, f) for f in world.engine._kit.__slots__},
           "writer": ScriptedWriter({"subject": "Running", "narrative": "Ana ran a lot along the coast, day after day after day."})}
    )  # fmt: skip
    reflected(world)
    (new,) = [e for e in world.entries("episode", "ana") if e.inline["parent_type"] == "cluster"]
    kept = [
        f["id"]
        for x in ledger(world)
        if x["t"] == "plan" and x["owner"] == "ana"
        for f in x["facts"]
        if f["fate"] == "kept"
    ]
    facts = {e.id: e.sections["Fact"] for e in world.entries("atomic_fact", "ana")}
    assert new.sections["Subject"] == "Running" and kept
    assert all(facts[i] in new.sections["Content"] for i in kept)


_WORDS = st.sampled_from(
    [
        "Ana lives in Oslo.",
        "Ana lives in Rome.",
        "Bo ran 5 km.",
        "Bo ran 6 km.",
        "Bo did not run.",
        "Ana has a red boat.",
        "Ana has a red boat",
        "",
        "x " * 3000,
    ]
)


@given(st.lists(_WORDS, max_size=25))
@settings(max_examples=200, deadline=None)
def test_reflection_conserves_every_fact_id(texts: list[str]):
    """Each fact of the inputs appears in the ledger exactly once, and what is called kept is in the story."""
    facts = [
        Fact(f"af_20230508_{n:08d}", "2023-05-08", "ep", text, f"{n:04d}") for n, text in enumerate(texts)
    ]
    first = fates_of(facts)
    assert [f.id for f in first] == [f.id for f in facts]

    class Member:
        at = TALKED
        text = "s"

        class entry:
            id = "ep"

    story_text, fates = narrative_of([Member()], facts, first)  # type: ignore[list-item]
    assert [f.id for f in fates] == [f.id for f in facts]
    by_id = {f.id: f for f in facts}
    for fate in fates:
        assert fate.fate in {"kept", "merged", "superseded", "dropped"}
        assert (fate.by in by_id) == (fate.fate in {"merged", "superseded"})
        assert bool(fate.reason) == (fate.fate == "dropped")
        if fate.fate == "kept":
            assert by_id[fate.id].text in story_text


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5), st.integers(0, 2**16))
@settings(max_examples=8, deadline=None)
def test_undo_is_byte_identical_for_any_week(gaps: list[int], seed: int):
    """Random weeks: reflect, undo, and the tree is what it was."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory) / "root")
        at = TALKED
        for n, gap in enumerate(gaps):
            at += timedelta(days=gap, minutes=seed % 97)
            world.run(
                world.talk(
                    [("Ana", f"I trained for the Oslo marathon with Eva and ran {n + seed % 7} km today.")],
                    session=f"s{n}",
                    at=at,
                )
            )
        before = world.tree()
        reflected(world)
        if world.tree() != before:
            undo_all(world)
        assert world.tree() == before
