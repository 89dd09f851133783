"""Rows of the specification as a person meets them: one root after ordinary calls, looked at from outside."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn.notes.frontmatter import find_head, read_head
from cairn.surfaces.cli import main
from cairn.talk.lines import message_to
from tests.surfaces.served import serving_here
from tests.waiting import until
from tests.world import case_steps, trajectory

OPTIONS = {"embedding__provider": "none", "memory__timezone": "Asia/Tokyo"}
SHOP = {"app_id": "shop", "project_id": "web"}
SAID = (
    "I live in Lisbon and I am allergic to peanuts.",
    "I visit my aunt in Oslo on 5 June 2099.",
    "Our parrot Kiwi learned to whistle in March 2024.",
)
TASK = "The nightly backup of db0 fails with exit code 2, please fix it."
AT = 1_780_000_000_000  # 28 May 2026, 20:26:40 UTC: the 29th in Tokyo


def talk(memory: cairn.Memory, session: str, sender: str, *texts: str) -> None:
    memory.add(
        session,
        [
            {"sender_id": sender, "role": "user", "timestamp": AT + n, "content": text}
            for n, text in enumerate(texts)
        ],
        **SHOP,
    )
    memory.flush(session, **SHOP)


def files(folder: Path) -> list[str]:
    """The files of a root by their places, without the system's own dot folders."""
    found = sorted(at.relative_to(folder).as_posix() for at in folder.rglob("*") if at.is_file())
    return [name for name in found if not name.startswith((".index/", ".tmp/"))]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which two people talked, once everything that follows from it is written."""
    folder = tmp_path_factory.mktemp("rows") / "root"
    with cairn.open_blocking(folder, **OPTIONS) as memory:
        talk(memory, "s1", "alice", *SAID)
        talk(memory, "s2", "bob", "I keep bees.")
        home = folder / "shop/web/users/alice"
        for name in ("user.md", ".atomic_facts", ".foresights"):
            until((home / name).exists, f"{name} follows by itself")
        until(lambda: all(run.status in {"done", "skipped"} for run in memory.parts.engine.runs()))
        memory.sync()
    return folder


def test_the_tree_of_a_root_is_the_one_a_person_expects(told: Path) -> None:
    """E12, E14, E15, E18, E33, E36-E39, E46, E48, E49: app and project first, then the owner, then a file per kind and day;
    heads name owner and track, never the space; what is derived lies in dot folders.
    """
    day = "2026-05-29"
    mine = [name.removeprefix("shop/web/users/alice/") for name in files(told) if "/alice/" in name]
    assert mine == [
        f".atomic_facts/atomic_fact-{day}.md",
        f".foresights/foresight-{day}.md",
        f"episodes/episode-{day}.md",
        "user.md",
    ]
    assert not (told / "default_app").exists()
    for name in (name for name in files(told) if name.endswith(".md") and "/users/" in name):
        text = (told / name).read_text(encoding="utf-8")
        at = find_head(text)
        head = read_head(text[at.start : at.end])[0]
        assert (head["user_id"], head["track"]) == (name.split("/")[3], "user"), name
        assert not head.keys() & {"app", "app_id", "project", "project_id"}, name
        if day in name:
            assert (head["date"], head["entry_count"] > 0) == (day, True), name
            assert head["last_appended_at"].endswith("+00:00"), name


def test_the_systems_own_files_are_where_they_are_said_to_be(told: Path) -> None:
    """E20, E21, E22, E26, E27, E28: the queue with its numbers in `system.db`, runs and schedules of strategies in `ome.db`;
    locks below `.tmp/` and none among notes; no manifest.
    """
    with sqlite3.connect(told / ".index/sqlite/system.db") as db:
        rows = dict(db.execute("select md_path, lsn from md_change_state").fetchall())
    db.close()
    notes = [name for name in files(told) if name.endswith(".md") and "/users/" in name]
    assert set(notes) <= rows.keys()
    assert len(set(rows.values())) == len(rows), "each change has its own number"
    with sqlite3.connect(told / ".index/sqlite/ome.db") as db:
        ran = {name for (name,) in db.execute("select strategy from runs where status = 'done'")}
        db.execute("select * from schedules")
    db.close()
    assert {"extract_atomic_facts", "extract_foresight", "extract_user_profile"} <= ran
    assert any((told / ".tmp/locks").iterdir())
    names = [Path(name).name for name in files(told)]
    assert not [name for name in names if name.endswith(".lock") or "manifest" in name or "cascade" in name]


def test_two_files_with_one_pair_are_two_and_doctor_names_it(tmp_path: Path) -> None:
    """E55: of a copied note neither wins by order of arrival: both are told, each with its file, and doctor names the id."""
    with cairn.open_blocking(tmp_path, background=False, **OPTIONS) as memory:
        talk(memory, "s1", "alice", "I keep bees.")
        (note,) = (tmp_path / "shop/web/users/alice/episodes").iterdir()
        shutil.copy(note, note.with_name("episode-2026-01-02.md"))
        memory.sync()
        hits = memory.search("bees", user_id="alice", method="keyword", **SHOP).episodes
        assert len({hit.id for hit in hits}) == 1
        assert {Path(hit.path).name for hit in hits} == {note.name, "episode-2026-01-02.md"}
        entry = hits[0].id.removeprefix("alice_")
        assert [one for one in memory.doctor() if entry in one["what"] and "2026-01-02" in one["what"]]


def test_removing_the_index_loses_nothing_and_times_are_shown_in_the_zone(told: Path) -> None:
    """E1, E2, E19, E118: lists and answers are the same after `.index` is gone; notes hold UTC, answers the chosen zone."""

    def asked() -> list[list[Any]]:
        with cairn.open_blocking(told, background=False, **OPTIONS) as memory:
            ask = {"user_id": "alice", **SHOP}
            strong = {"method": "keyword", "consistency": "strong", **ask}
            hits = memory.search("parrot whistle", **strong).episodes
            assert memory.search("bees", **strong).episodes == ()
            episodes = memory.get("episode", **ask).episodes
            facts = memory.get("atomic_fact", **ask).atomic_facts
            plans = memory.get("foresight", **ask).foresights
            profiles = memory.get("profile", **ask).profiles
            assert hits and facts and plans and profiles
            return [list(episodes), list(facts), list(plans), list(profiles), [hit.id for hit in hits]]

    before = asked()
    shutil.rmtree(told / ".index")
    assert asked() == before
    episode = before[0][0]
    assert episode["timestamp"].startswith("2026-05-29T05:26:40") and episode["timestamp"].endswith("+09:00")
    note = (told / "shop/web/users/alice/episodes/episode-2026-05-29.md").read_text(encoding="utf-8")
    assert "**timestamp**: 2026-05-28T20:26:40.000+00:00" in note


def test_what_grows_by_use_is_reached_over_http(tmp_path: Path) -> None:
    """A27, A28, A29, A34, A35, A41, A46, A48, A79, A89, A90, A91, E31, E37, E38: outcomes, captures, cases, plans, facts, an agent's
    own documents, the daily log, runs and pins, by requests alone.
    """
    with serving_here(tmp_path / "root", env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:

        def call(method: str, path: str, body: Any = None, expect: int = 200) -> Any:
            status, answer = server.call(method, f"/api/v1/{path}", body)
            assert status == expect, (path, answer)
            return answer.get("data", answer)

        kept = {"content": "Roll back a failed deploy.", "category": "procedure", "confidence": 0.7}
        kept |= {"trigger": "a deploy fails", "procedure": "1. Roll back. 2. Tell."}
        good = call("POST", "memories", kept)["memory"]["id"]
        for n in range(3):
            report = {"success": True, "reason": f"went well {n}", "source": f"coder_ac_20260601_0000000{n}"}
            done = call("POST", f"memories/{good}/outcome", report)
        assert (done["success_count"], done["failure_count"], done["pinned"]) == (3, 0, True)
        assert [one["reason"] for one in done["history"]] == ["went well 0", "went well 1", "went well 2"]
        assert len(call("GET", f"memories/{good}/procedure")["sources"]) == 3
        weak = {**kept, "content": "Restart everything at once.", "confidence": 0.5}
        bad = call("POST", "memories", weak)["memory"]["id"]
        for _ in range(5):
            done = call("POST", f"memories/{bad}/outcome", {"success": False})
        assert (done["status"], done["failure_count"]) == ("archived", 5)

        remark = {
            "source_type": "pr_feedback",
            "source_key": "pr-17/3",
            "text": "Always close the pool first.",
        }
        assert call("POST", "captures", remark)["captured"]
        assert call("POST", "captures", remark)["reason"] == "known"
        assert [one["source_key"] for one in call("GET", "captures")["captures"]] == ["pr-17/3"]

        said = [
            {"sender_id": "alice", "role": "user", "timestamp": AT + n, "content": text}
            for n, text in enumerate(SAID)
        ]
        call("POST", "memory/add", {"session_id": "s1", "messages": said})
        call("POST", "memory/flush", {"session_id": "s1"})

        def listed(kind: str) -> Any:
            asked = {"memory_type": kind, "user_id": "alice", "consistency": "strong"}
            return call("POST", "memory/get", asked)

        until(lambda: "peanuts" in str(listed("atomic_fact")), "facts are listed")
        until(lambda: "Oslo" in str(listed("foresight")), "plans are listed")
        assert call("GET", "upcoming?scope=user&owner=alice&ahead=3660")["entries"] == [], "2099 is far"
        found = call(
            "POST",
            "memory/search",
            {
                "query": "peanuts",
                "user_id": "alice",
                "kinds": ["atomic_fact", "foresight"],
                "consistency": "strong",
            },
        )
        assert "peanuts" in str(found["atomic_facts"])

        worked = [
            message_to(one) for (one,) in trajectory(TASK, steps=case_steps(), final="The port was old.")
        ]
        call("POST", "memory/add", {"session_id": "s2", "messages": worked})
        call("POST", "memory/flush", {"session_id": "s2"})
        asked = {"memory_type": "agent_case", "agent_id": "ops_agent", "consistency": "strong"}
        until(lambda: call("POST", "memory/get", asked)["agent_cases"], "the case is listed")
        (case,) = call("POST", "memory/get", asked)["agent_cases"]
        assert (case["task_intent"], case["outcome"]) == (TASK, "success")
        assert [line[:8] for line in case["approach"].splitlines()[:4]] == [
            "1. shell",
            "2. read_",
            "3. edit_",
            "4. shell",
        ]
        assert "PGPORT=5432" in case["approach"]
        assert case["key_insight"], case

        call("PUT", "agents/coder", {"name": "Coder", "persona": {"tone": "terse"}})
        call("PUT", "agents/coder/documents/soul", {"text": "# Soul\n\nNever guesses at tides."})
        asked = {"query": "tides", "agent_id": "coder", "kinds": ["agent_document"], "consistency": "strong"}
        assert "Never guesses" in str(call("POST", "memory/search", asked)["agent_documents"])
        handed = call(
            "POST", "memory/search", {"query": "boats", "agent_id": "coder", "include_profile": True}
        )
        assert "Never guesses" in str(handed["agent_documents"]), "with the profile, whatever is asked"
        assert "coder" in str(call("GET", "agents"))

        run = call("POST", "memories", {"content": "A leak was found.", "scope": "lane", "owner": "r1"})
        assert run["memory"]["scope"] == "mission"
        own = {"content": "Prefers small commits.", "scope": "agent", "owner": "coder", "agent_id": "coder"}
        mine = call("POST", "memories", own)["memory"]["id"]
        call("POST", f"memories/{mine}/pin", {"scope": "agent", "owner": "coder"})
        assert call("GET", f"memories/{mine}?scope=agent&owner=coder")["pinned"] == 1
        call("POST", "memories/sweep", {})
        assert call("GET", "memories/runs")["last_sweep"]["entries_archived"] == 0
        call("POST", "daily", {"text": "Released 2.0."})
        assert "Released 2.0." in str(call("GET", "daily")["days"])
        call("POST", f"memories/{mine}/outcome", {"success": True, "scope": "agent", "owner": "coder"}, 422)


def test_governed_rows_as_a_program_meets_them(tmp_path: Path) -> None:
    """A12, A16, A20, A22, A30, A38, A42, A43, A44, A45, A49, A50, A51, A53, A54, A68, A71, A77, A78, A80, A86, A88, A92, A93: the
    gate, missions, pages, core memory and skills, by requests alone.
    """
    root = tmp_path / "root"
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:

        def call(method: str, path: str, body: Any = None, expect: int = 200) -> Any:
            status, answer = server.call(method, f"/api/v1/{path}", body)
            assert status == expect, (path, answer)
            return answer.get("data", answer)

        def kept(content: str, **more: Any) -> dict[str, Any]:
            memory: dict[str, Any] = call("POST", "memories", {"content": content, **more})["memory"]
            return memory

        fresh = kept("The gate sticks in winter.", origin="agent")
        assert (fresh["status"], fresh["confidence"], fresh["tier"]) == ("candidate", 0.6, 3)
        again = call("POST", "memories", {"content": "  the GATE sticks in winter. ", "origin": "agent"})
        assert (again["deduped"], again["memory"]["observation_count"]) == (True, 2)
        strict = kept("Deploys wait for the migration job.", category="gotcha", mode="strict", origin="agent")
        assert strict["status"] == "promoted"
        refused = call(
            "POST", "memories", {"content": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b"}
        )
        assert (refused["accepted"], bool(refused["reason"])) == (False, True)
        unknown = call("POST", "memories", {"content": "A poem of tides.", "category": "poem"})
        assert (unknown["accepted"], unknown["reason"]) == (False, "category")

        found = call(
            "POST",
            "memories/search",
            {"query": "migration job", "consistency": "strong", "for_injection": True},
        )
        assert found["memories"][0]["content"] == strict["content"]
        until(lambda: call("GET", f"memories/{strict['id']}")["access_count"] == 1, "a hit is counted")
        call("GET", "memories")
        shown = call("GET", f"memories/{strict['id']}")
        assert shown["access_count"] == 1, "a list is no access"
        assert shown["created_at"] <= shown["updated_at"] <= shown["last_accessed_at"]

        trees = ("alder", "birch", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "ivy", "juniper")
        for number, word in enumerate(trees):
            kept(f"The {word} tower has bells of bronze.", category="fact", pinned=number < 9)
            kept(f"The {word} team merges on Tuesdays only.", category="convention", mode="strict")
        assert call("POST", "refresh", {})["written"]
        pages = root / "default_app/default_project/shared/pages"
        first = (pages / "MEMORY.md").read_text(encoding="utf-8")
        assert first.count("tower has bells") == 6 + 2, "six pinned, and two for their topic"
        assert first.count("team merges") == 2, "two for a topic"
        assert (pages / "conventions.md").read_text(encoding="utf-8").count("team merges") == len(trees)
        assert call("POST", "refresh", {})["written"] == [], "the same memories give the same bytes"

        call("PUT", "core", {"projectSummary": "A tide parser."})
        call("PUT", "core?agent=coder", {"notes": ["Prefers short answers."]})
        assert call("GET", "core")["version"] == 1
        assert (call("GET", "core?agent=coder")["notes"], call("GET", "core")["notes"]) == (
            ["Prefers short answers."],
            [],
        )

        for run, success in (("run-1", True), ("run-2", False)):
            for text in (f"Seeding of {run} needs the network.", f"The cache of {run} is cold at start."):
                kept(text, category="gotcha", scope="mission", owner=run, mode="strict")
            done = call("POST", f"missions/{run}/end", {"success": success})
            assert (
                len(done["promoted"]),
                call("POST", f"missions/{run}/end", {"success": success})["promoted"],
            ) == (
                2 if success else 0,
                [],
            )
        told = [one["content"] for one in call("GET", "memories?scope=project&limit=200")["memories"]]
        assert [text for text in told if "run-1" in text] and not [text for text in told if "run-2" in text]
        call("POST", "memories/sweep", {})
        swept = call("GET", "memories/runs")["last_sweep"]
        assert (swept["trigger_reason"], swept["started_at"] <= swept["completed_at"]) == ("manual", True)

        way = kept(
            "Roll back a deploy.", category="procedure", trigger="a deploy fails", procedure="1. Roll back."
        )
        shown = call("GET", f"memories/{way['id']}/procedure")
        assert (shown["trigger"], shown["procedure"]) == ("a deploy fails", "1. Roll back.")
        call("POST", f"memories/{way['id']}/skill")
        assert [one for one in root.rglob("SKILL.md") if "a deploy fails" in one.read_text(encoding="utf-8")]


def test_strategies_of_another_program_are_named_and_cost_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E25, E82: an `ome.toml` that names strategies we do not have is a warning of `ome list`, `status` and `doctor`; the
    others work, and what the file switches off is off.
    """

    def run(*words: str, code: int = 0) -> str:
        assert main(["--root", str(tmp_path), *words]) == code
        return capsys.readouterr().out

    run("init")
    switches = "[strategies.trigger_profile_clustering]\nenabled = true\n[strategies.extract_foresight]\nenabled = false\n"
    (tmp_path / "ome.toml").write_text(switches)
    for words, code in ((("ome", "list"), 0), (("status",), 1), (("doctor",), 0)):
        assert 'there is no strategy "trigger_profile_clustering"' in run(*words, code=code), words
    run(
        "add",
        "--session",
        "s1",
        "--user",
        "alice",
        "I live in Lisbon. I visit my aunt in Oslo on 5 June 2099.",
    )
    run("flush", "--session", "s1")
    home = tmp_path / "default_app/default_project/users/alice"
    assert (home / ".atomic_facts").is_dir() and not (home / ".foresights").exists()


def test_a_filter_loses_nothing_on_any_surface(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E6: one long message of the session that is asked for, among thousands of another that hold the word better."""
    root, rare = tmp_path / "root", {"session_id": "rare"}
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        for batch in range(9):
            said = [
                {
                    "sender_id": "alice",
                    "role": "user",
                    "timestamp": AT + batch * 500 + n,
                    "content": "apple pie",
                }
                for n in range(480)
            ]
            memory.add("crowd", said)
        long = "At length, of an apple " + "and more " * 150
        memory.add(
            "rare", [{"sender_id": "alice", "role": "user", "timestamp": AT + 10_000, "content": long}]
        )
        memory.flush("crowd")
        memory.flush("rare")
        memory.sync()
        found = memory.search("apple", user_id="alice", method="keyword", filters=rare, evidence=5)
        assert [one.session_id for one in found.evidence] == ["rare"]
    asked = [
        "search",
        "--user",
        "alice",
        "--method",
        "keyword",
        "--filters",
        json.dumps(rare),
        "--evidence",
        "5",
    ]
    assert main(["--root", str(root), *asked, "apple", "--json"]) == 0
    assert [one["session_id"] for one in json.loads(capsys.readouterr().out)["evidence"]] == ["rare"]
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        body = {"query": "apple", "user_id": "alice", "method": "keyword", "filters": rare, "evidence": 5}
        data = server.post("memory/search", {**body, "consistency": "strong"})[1]["data"]
        assert [one["session_id"] for one in data["evidence"]] == ["rare"]
