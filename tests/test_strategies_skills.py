"""Cases become skills: grouped, valid, growing, and never over a person's edit."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml

from cairn.errors import Invalid
from cairn.notes.format import parse_note
from cairn.strategies.skills import portable
from tests.world import TALKED, World, case_steps, trajectory

FINAL = "The backup used the old port 5432. PostgreSQL listens on 5433 now; the backup works again."
SKILLS = "default_app/default_project/agents/ops_agent/skills"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "root")


def solve(world: World, number: int, task: str = "", **more: str) -> None:
    task = task or f"The nightly backup of db{number} fails with exit code 2, please find out why and fix it."
    lines = trajectory(
        task,
        steps=case_steps(),
        final=more.get("final", FINAL),
        thanks=more.get("thanks", "Thanks, works."),
        at=TALKED + timedelta(days=number),
    )
    world.run(world.talk(lines, session=f"ops{number}", at=TALKED + timedelta(days=number), mode="agent"))


def skill_files(world: World) -> list[Path]:
    return sorted((world.folder / SKILLS).rglob("SKILL.md"))


def test_a_cluster_of_one_is_no_skill(world: World):
    """E81: one case waits, with the reason on record."""
    solve(world, 0)
    assert skill_files(world) == []
    assert world.engine.runs(strategy="extract_agent_skill")[0].reason == "no other case is like it yet"


def test_similar_cases_become_one_skill_that_grows(world: World):
    """E41 E81 E121 A91 C13: one folder, source cases, confidence by outcomes, maturity by sessions."""
    for number in range(4):
        solve(world, number)
    solve(world, 9, "Please translate the onboarding handbook into Portuguese for the new colleagues.")
    (path,) = skill_files(world)
    note = parse_note(path.read_text())
    head = note.frontmatter
    assert path.parent.name == f"skill_{head['name']}"
    assert head["source_case_ids"] == [f"ac_202305{8 + n:02d}_00000001" for n in range(4)]
    assert head["maturity_score"] == 1.0
    assert head["confidence"] == pytest.approx(1 - 0.45 * 0.85**4, abs=1e-4)
    assert head["cluster_id"].startswith("cl_")
    assert "1. shell: command=systemctl status backup" in note.body
    lines = (world.folder / "default_app/default_project/journal/skills.jsonl").read_text().splitlines()
    assert [json.loads(line)["cases"] for line in lines] == [2, 3, 4]


def test_a_failure_costs_confidence(world: World):
    """A91: a failed case lowers what the skill claims, and is named as a pitfall."""
    solve(world, 0)
    solve(world, 1)
    before = parse_note(skill_files(world)[0].read_text()).frontmatter["confidence"]
    solve(world, 2, thanks="It still fails.", final="I changed the port because it was old.")
    note = parse_note(skill_files(world)[0].read_text())
    assert note.frontmatter["confidence"] <= before
    assert "ended as partial" in note.body


def test_a_persons_edit_is_never_clobbered(world: World):
    """A hand-edited body and description stay as they are; only the counts in the head move on."""
    solve(world, 0)
    solve(world, 1)
    (path,) = skill_files(world)
    edited = path.read_text().replace("## Steps", "## Steps (mine)")
    edited = re.sub(r"description: '.*?'\n", "description: My own words.\n", edited, flags=re.DOTALL)
    path.write_text(edited)

    solve(world, 2)

    note = parse_note(path.read_text())
    assert "## Steps (mine)" in note.body and note.body == parse_note(edited).body
    assert note.frontmatter["description"] == "My own words."
    assert len(note.frontmatter["source_case_ids"]) == 3
    run = world.engine.runs(strategy="extract_agent_skill")[0]
    assert run.reason == "edited by hand: its body was kept as it is"


def test_a_skill_written_by_hand_covers_its_cases(world: World):
    """A92: a person's own skill on the same thing makes a learned one needless."""
    folder = world.folder / SKILLS / "skill_backup"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: backup\ndescription: The nightly backup of a db fails with exit code, find out why and fix\n---\nDo this.\n"
    )
    solve(world, 0)
    solve(world, 1)
    assert len(skill_files(world)) == 1
    assert "written by hand, covers it" in world.engine.runs(strategy="extract_agent_skill")[0].reason


def test_skills_obey_the_agent_skills_rules(world: World):
    """E34: in place the name and description are valid; the portable copy has the folder and keys any host takes."""
    solve(world, 0, "Répare l'éolienne «Nord»: check the turbine log & restart the service, please!")
    solve(world, 1, "Répare l'éolienne «Süd»: check the turbine log & restart the service, please!")
    (path,) = skill_files(world)
    text = path.read_text()
    folder, copy = portable(text)
    head = yaml.safe_load(copy.split("---\n")[1])
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", head["name"]) and len(head["name"]) <= 64
    assert head["name"] == folder == parse_note(text).frontmatter["name"]
    assert 1 <= len(head["description"]) <= 1024 and "Use when" in head["description"]
    assert set(head) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert all(isinstance(v, str) for v in head["metadata"].values())
    assert len(parse_note(text).body.splitlines()) < 500
    with pytest.raises(Invalid, match="Skill name"):
        portable(text.replace(f"name: {folder}", "name: Bad_Name"))


def test_skills_survive_the_loss_of_the_index(world: World):
    """Everything in `.index/` gone: cases and skills are recognised, nothing doubles."""
    solve(world, 0)
    solve(world, 1)
    before = world.tree()
    shutil.rmtree(world.folder / ".index")
    (world.folder / "default_app/default_project/journal/derived.jsonl").unlink()
    world.run()
    assert world.tree() == before


def test_vectors_decide_where_they_can_be_had(tmp_path: Path):
    """E81: cosine at the set similarity when there is an embedder; the same tasks part ways when it says so."""

    class OneHot:
        id = "one-hot"
        dimensions = 8

        def __init__(self) -> None:
            self.seen: list[str] = []

        def embed(self, texts):
            for text in texts:
                if text not in self.seen:
                    self.seen.append(text)
            out = np.zeros((len(texts), 8), dtype=np.float32)
            for row, text in enumerate(texts):
                out[row, self.seen.index(text)] = 1
            return out

    embedder = OneHot()
    world = World(tmp_path / "root", embedder=lambda: embedder)
    solve(world, 0)
    solve(world, 1)
    assert skill_files(world) == [] and len(embedder.seen) == 2
