"""What grows by use, through the surfaces: procedures, captured sources, agents' own documents, logs of what was done."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta

import pytest

import cairn
from cairn.retrieval import fitting
from cairn.surfaces.cli import main
from cairn.types import Scope, Space
from tests.waiting import until

OPTIONS = {"embedding__provider": "none", "strategies__enabled": False}
FORESIGHT = """---
id: foresight_log_alice_2026-06-01
type: foresight_daily
file_type: foresight_daily
schema_version: 1
user_id: alice
track: user
date: '2026-06-01'
entry_count: 1
---
<!-- entry:fs_20260601_00000001 -->
## fs_20260601_00000001

**owner_id**: alice
**start_time**: 2099-06-05T00:00:00+00:00
**end_time**: 2099-06-06T00:00:00+00:00

### Foresight

Alice will paint the dinghy on 5 June 2099.

### Evidence

"I paint the dinghy on Friday."

<!-- /entry:fs_20260601_00000001 -->
"""


def told(capsys, root, *words, code=0):
    """What a command says with --json."""
    assert main(["--root", str(root), "--json", *words]) == code
    return json.loads(capsys.readouterr().out)


def test_a_procedure_learns_from_its_outcomes(tmp_path, capsys):
    """A27, A28, A29, A91: counters, history and sources fill; it is pinned once it proved itself, archived once it failed
    too often; what a caller without the right reports pins nothing.
    """
    words = (
        "--category",
        "procedure",
        "--trigger",
        "a deploy fails",
        "--steps",
        "1. Roll back. 2. Tell.",
    )
    good = told(capsys, tmp_path, "remember", "Roll back a failed deploy.", *words, "--confidence", "0.7")
    good_id = good["memory"]["id"]
    for n in range(3):
        done = told(
            capsys, tmp_path, "memories", "outcome", good_id, "--success", "--reason", f"went well {n}",
            "--source", f"coder_ac_20260601_0000000{n}",
        )  # fmt: skip
    assert (done["success_count"], done["failure_count"], done["pinned"]) == (3, 0, True)
    assert done["confidence"] == pytest.approx(1 - 0.3 * 0.85**3, abs=1e-5)
    assert [one["reason"] for one in done["history"]] == ["went well 0", "went well 1", "went well 2"]
    assert len(done["sources"]) == 3
    assert told(capsys, tmp_path, "memories", "procedure", good_id) == done
    bad = told(capsys, tmp_path, "remember", "Restart everything at once.", *words, "--confidence", "0.5")
    for _ in range(5):
        done = told(capsys, tmp_path, "memories", "outcome", bad["memory"]["id"], "--failure")
    assert (done["status"], done["failure_count"]) == ("archived", 5)
    with cairn.open_blocking(tmp_path, background=False, **OPTIONS) as memory:
        other = memory.remember(
            "Warm the cache first.", "procedure", trigger="a cold start", procedure="1. Warm it.", confidence=0.9,
            status="candidate",
        )  # fmt: skip
        for _ in range(4):
            row = memory.memories.outcome(str(other.memory["id"]), success=True, vouched=False)
        assert (row["success_count"], row["pinned"], row["status"]) == (4, False, "candidate")
        fact = memory.remember("Tea is served at four.")
        with pytest.raises(cairn.Invalid, match="not a procedure"):
            memory.memories.outcome(str(fact.memory["id"]), success=True)


def test_a_source_is_captured_once(tmp_path, capsys):
    """A34, A89: corrections, errors and review remarks come in by source and key, once; an error from three places
    becomes a promoted gotcha; bots are not listened to; the ledger can be read.
    """
    first = ("capture", "add", "pr_feedback", "pr-17/3", "Always close the pool before the tests end.")
    done = told(capsys, tmp_path, *first)
    assert done["captured"]
    assert (done["verdict"]["memory"]["category"], done["verdict"]["memory"]["status"]) == (
        "convention",
        "candidate",
    )
    assert told(capsys, tmp_path, *first, code=1)["reason"] == "known"
    bot = told(
        capsys, tmp_path, "capture", "add", "pr_feedback", "pr-17/4", "Coverage fell by two percent here.",
        "--author", "codecov[bot]", code=1,
    )  # fmt: skip
    assert bot["reason"] == "nothing to capture"
    for n in range(3):
        text = f"The importer crashes with a timeout while reading the orders table {'again ' * n}".strip()
        done = told(
            capsys, tmp_path, "capture", "add", "error_capture", f"err-{n}", text, "--origin-key", f"run-{n}"
        )
    assert (done["verdict"]["memory"]["category"], done["verdict"]["memory"]["status"]) == (
        "gotcha",
        "promoted",
    )
    rows = told(capsys, tmp_path, "capture", "list")
    assert [row["source_key"] for row in rows["captures"]] == ["err-2", "err-1", "err-0", "pr-17/3"]


def test_an_agents_documents_and_skill_files_are_found(tmp_path, capsys):
    """E31, E121, A41: identity and documents are written by a call, searched, and handed out; references and scripts of
    a skill are found as the skill's.
    """
    told(capsys, tmp_path, "agents", "set", "coder", "--name", "The coder", "--persona", '{"tone": "dry"}')
    told(capsys, tmp_path, "agents", "write", "coder", "soul", "Speak plainly, like a lighthouse keeper.")
    assert (
        told(
            capsys, tmp_path, "agents", "write", "coder", "soul", "Speak plainly, like a lighthouse keeper."
        )["lsn"]
        == 0
    )
    told(capsys, tmp_path, "agents", "write", "coder", "tools", "Use ripgrep before anything else.")
    shown = told(capsys, tmp_path, "agents", "show", "coder")
    assert (shown["identity"]["name"], shown["identity"]["persona"]) == ("The coder", {"tone": "dry"})
    assert shown["documents"]["tools"] == "Use ripgrep before anything else."
    assert [one["id"] for one in told(capsys, tmp_path, "agents", "list")["agents"]] == ["coder"]
    assert main(["--root", str(tmp_path), "agents", "show", "nobody"]) == 3
    skill = tmp_path / "default_app" / "default_project" / "agents" / "coder" / "skills" / "skill_rigging"
    (skill / "references").mkdir(parents=True)
    (skill / "scripts").mkdir()
    (skill / "SKILL.md").write_text("---\nname: rigging\ndescription: How to rig.\n---\nRig it.\n")
    (skill / "references" / "knots.md").write_text("A halyard takes a buntline hitch.\n")
    (skill / "scripts" / "hoist.sh").write_text("#!/bin/sh\n# hoists the spinnaker\n")
    with cairn.open_blocking(tmp_path, background=False, **OPTIONS) as memory:
        ask = {"agent_id": "coder", "method": "keyword", "consistency": "strong"}
        for query, place in (("buntline hitch", "references/knots.md"), ("spinnaker", "scripts/hoist.sh")):
            hit = memory.search(query, **ask).agent_skills[0]
            assert (hit.fields["name"], hit.fields["description"]) == ("rigging", place)
        found = memory.search("lighthouse keeper", kinds=["agent_document"], **ask)
        assert [hit.kind for hit in found.agent_documents] == ["soul"]
        handed = memory.search("anything", include_profile=True, **ask)
        assert sorted(hit.kind for hit in handed.agent_documents) == ["soul", "tools"]
        page = memory.get("agent_document", agent_id="coder")
        assert sorted(item["name"] for item in page.agent_documents) == ["soul", "tools"]
        assert memory.get("agent_skill", agent_id="coder").total_count == 1
        (skill / "references" / "knots.md").unlink()
        assert memory.search("buntline hitch", **ask).agent_skills == ()


def test_plans_and_facts_are_listed_and_searched(tmp_path, capsys):
    """E37, E38: foresight has its window in lists and answers; both kinds are found where they are asked for."""
    home = tmp_path / "default_app" / "default_project" / "users" / "alice"
    (home / ".foresights").mkdir(parents=True)
    (home / ".atomic_facts").mkdir()
    (home / ".foresights" / "foresight-2026-06-01.md").write_text(FORESIGHT)
    fact = (
        FORESIGHT.replace("foresight", "atomic_fact")
        .replace("fs_", "af_")
        .replace("### Foresight", "### Fact")
    )
    (home / ".atomic_facts" / "atomic_fact-2026-06-01.md").write_text(fact)
    page = told(capsys, tmp_path, "get", "foresight", "--user", "alice")
    assert page["total_count"] == 1
    plan = page["foresights"][0]
    assert plan["start_time"].startswith("2099-06-05")
    assert plan["evidence"] == '"I paint the dinghy on Friday."'
    assert (
        told(capsys, tmp_path, "get", "atomic_fact", "--user", "alice")["atomic_facts"][0]["user_id"]
        == "alice"
    )
    both = ("--kinds", "foresight", "--kinds", "atomic_fact")
    found = told(capsys, tmp_path, "search", "--user", "alice", "--method", "keyword", *both, "dinghy")
    assert found["foresights"][0]["foresight"] == "Alice will paint the dinghy on 5 June 2099."
    assert len(found["atomic_facts"]) == 1
    plain = told(capsys, tmp_path, "search", "--user", "alice", "--method", "keyword", "dinghy", code=1)
    assert "foresights" not in plain
    assert main(["--root", str(tmp_path), "search", "--user", "alice", "--kinds", "dream", "x"]) == 2


def test_what_is_coming_up_says_when_it_is_due(tmp_path, capsys):
    """E38: of a deadline the day itself, of a stay its first day, of a promise without a day only its window; a plan of
    today is not over yet.
    """
    now = datetime.now(UTC)
    first, last, due = (now + timedelta(days=n) for n in (20, 23, 40))
    texts = (
        f"My tax return is due by {due.day} {due:%B %Y}.",
        f"I'm in Rome from {first.day} {first:%B %Y} to {last.day} {last:%B %Y}.",
        "I promised my sister to repair the old bicycle.",
    )
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        said = {"sender_id": "alice", "role": "user", "timestamp": int(now.timestamp() * 1000)}
        memory.add("s", [{**said, "content": text} for text in texts])
        memory.flush("s")
        until(lambda: len(memory.upcoming(ahead=60)["entries"]) == 3)
        plans = memory.upcoming(scope="user", owner="alice", ahead=60)["entries"]
        days = [one.date().isoformat() for one in (first, due)]
        assert [one["due"] for one in plans if one["due"]] == days
        by_day = {one["due"]: one for one in plans}
        assert by_day[days[0]]["ends"] == last.date().isoformat()
        assert by_day[days[1]]["starts"] < days[1] == by_day[days[1]]["ends"]
        assert "bicycle" in by_day[""]["text"]
        noon = datetime.combine(due.date(), time(12), UTC)
        listed = memory.parts.listing.upcoming(Scope(Space(), "user", "alice"), noon, noon)
        assert ["tax return" in row.text for row in listed] == [True]
        assert not fitting.expired(listed[0], noon)
        assert fitting.expired(listed[0], noon + timedelta(days=1))
    assert main(["--root", str(tmp_path), "upcoming", "--ahead", "60"]) == 0
    shown = capsys.readouterr().out
    assert f"{days[1]}  foresight" in shown
    assert shown.count("alice: ") == 3, "who plans it is named once"
    assert f"until {by_day['']['ends']}  foresight" in shown


def test_what_was_done_can_be_asked(tmp_path, capsys):
    """A35, A40, A46, A48: last sweep and consolidation, the daily log; core memory is settled at start; "lane" is a scope,
    and "user" without an owner the person of the settings.
    """
    assert main(["--root", str(tmp_path), "init"]) == 0
    capsys.readouterr()
    assert told(capsys, tmp_path, "runs", code=1)["last_sweep"] is None
    kept = told(
        capsys, tmp_path, "remember", "The run found a leak in the pool.", "--scope", "lane", "--owner", "r1"
    )
    assert kept["memory"]["scope"] == "mission"
    kept = told(capsys, tmp_path, "remember", "I sail on Sundays.", "--scope", "user")
    assert (kept["memory"]["scope"], kept["memory"]["scope_owner_id"]) == ("user", "me")
    told(capsys, tmp_path, "sweep")
    assert told(capsys, tmp_path, "runs")["last_sweep"]["entries_archived"] == 0
    assert told(capsys, tmp_path, "runs")["last_consolidation"] is None
    assert told(capsys, tmp_path, "consolidate", "--dry-run")["merged"] == []
    assert told(capsys, tmp_path, "runs")["last_consolidation"] is None, "a look is none"
    assert told(capsys, tmp_path, "consolidate")["merged"] == []
    assert told(capsys, tmp_path, "runs")["last_consolidation"]["clusters"] == 0
    days = told(capsys, tmp_path, "daily", "add", "Released 2.0.")["days"]
    assert "Released 2.0." in str(told(capsys, tmp_path, "daily", "show", "--day", next(iter(days)))["days"])
    told(capsys, tmp_path, "core", "set", "summary", "A parser for tide tables.")
    file = next(tmp_path.glob("*/*/shared/pages/core-memory.json"))
    newer = {**json.loads(file.read_text()), "version": 6, "projectSummary": "A planner for sailors."}
    file.write_text(json.dumps(newer))
    assert told(capsys, tmp_path, "core", "show")["projectSummary"] == "A planner for sailors."
    page = tmp_path / "default_app/default_project/shared/core.md"
    assert "planner" not in page.read_text(), "looking writes nothing"
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        assert memory.memories.core()["version"] == 6
        until(lambda: "planner" in page.read_text(), "the newer file is taken over at start")


def test_ways_of_working_that_recur_are_proposed_once(tmp_path):
    """A28: three sessions in which an agent went the same way become one candidate procedure with its sources."""
    with cairn.open_blocking(tmp_path, background=False, embedding__provider="none") as memory:
        notes = memory.parts.notebook
        from cairn.notes.notebook import Draft
        from cairn.types import Scope, Space

        scope = Scope(Space(), "agent", "coder")
        for n in range(3):
            sections = {
                "TaskIntent": "Find why the nightly export of orders fails",
                "Approach": "1. Read the log.\n2. Rerun the export alone.",
                "KeyInsight": "It ran out of disk.",
            }
            notes.append("agent_case", scope, f"2026-06-0{n + 1}", [Draft({"session_id": f"s{n}"}, sections)])
        assert memory.trigger("propose_memories")["dispatched"] == 3
        assert memory.trigger("propose_memories")["dispatched"] == 0
        found = memory.memories.list(scope="agent", owner="coder", category="procedure").memories
        assert [row["status"] for row in found] == ["candidate"]
        shown = memory.memories.procedure(str(found[0]["id"]), scope="agent", owner="coder")
        assert shown["procedure"] == "1. Read the log.\n2. Rerun the export alone."
        assert len(shown["sources"]) == 3
