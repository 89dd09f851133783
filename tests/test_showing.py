"""`show` takes every id that anything prints."""

import json

import pytest

import cairn
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft
from cairn.types import Scope, Space

AT = 1_780_000_000_000
DAY = "2026-05-28"
SPACE = Space()


def said(sender, text, n):
    return {"sender_id": sender, "role": "user", "timestamp": AT + 60_000 * n, "content": text}


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """A root with something of every kind, owners with underscores among them."""
    root = tmp_path_factory.mktemp("shown") / "root"
    with cairn.open_blocking(root, embedding__provider="none", background=False) as memory:
        memory.add("talk", [said("ann_b", "I live in Porto and I keep bees.", 1)])
        memory.add("talk", [said("ann_b", "I will visit Lisbon next Friday.", 2)])
        memory.flush("talk")
        memory.remember("Deploys wait for the migration job.", "gotcha")
        memory.remember("Ann prefers tea over coffee.", "preference", "user", "ann_b")
        memory.remember("Runs need the network for seeding.", "gotcha", "agent", "coder")
        memory.memories.set_core(projectSummary="A tide parser.")
        parts = memory.parts
        coder = Scope(SPACE, "agent", "coder")
        parts.notebook.append(
            "agent_case",
            coder,
            DAY,
            [
                Draft(
                    {"session_id": "talk", "quality_score": 0.8, "timestamp": "2026-05-28T12:00:00+00:00"},
                    {"TaskIntent": "Seed the network", "Approach": "Ask for it first."},
                )
            ],
        )
        kind = KINDS["agent_skill"]
        text = kind.document(
            coder,
            {"name": "seed_runs", "description": "Seeds runs"},
            "# Steps\n\nSeed the network.\n",
            name="seed_runs",
        )
        parts.notebook.rewrite(kind.locator(coder, "seed_runs"), lambda _: text)
        parts.engine.run_due(seconds=20.0)
        memory.memories.refresh()
        memory.sync()
        yield memory


def printed(memory):
    """Every id that search, get, list and log give, with the kind it is of."""
    ids = {}
    for owner in ({"user_id": "ann_b"}, {"agent_id": "coder"}):
        found = memory.search(
            "bees Porto tea seed network", **owner, evidence=10, include_profile=True, top_k=20
        ).as_data()
        for name, kind in (
            ("episodes", "episode"),
            ("profiles", "profile"),
            ("agent_cases", "agent_case"),
            ("agent_skills", "agent_skill"),
            ("memories", "memory"),
        ):
            ids |= {item["id"]: kind for item in found[name]}
        for item in found["episodes"]:
            ids |= {fact["id"]: "atomic_fact" for fact in item["atomic_facts"]}
        for item in found["evidence"]:
            ids[item["message_id"]] = "message"
            ids |= {name: "episode" for name in item["entry_ids"] if name.startswith("ep_")}
        for kind in ("episode", "profile", "agent_case", "agent_skill"):
            listed = memory.get(kind, **owner).as_data()
            ids |= {item["id"]: kind for item in listed[f"{kind}s"]}
    ids |= {row["id"]: "memory" for row in memory.memories.list().memories}
    return ids


def test_every_id_that_is_printed_is_shown(memory):
    """Episodes, facts, profiles, cases, skills, memories and messages: what was printed leads to the thing."""
    ids = printed(memory)
    assert set(ids.values()) == {
        "episode", "atomic_fact", "profile", "agent_case", "agent_skill", "memory", "message",
    }  # fmt: skip
    for name, kind in ids.items():
        shown = memory.show(name)
        assert shown["kind"] == kind, name
        assert (memory.settings.root / shown["path"]).is_file()
        assert shown["sections"] or shown["messages"]
        json.dumps(shown)


def test_each_change_leads_to_its_entry(memory):
    """What `log` prints as path#entry is shown, and so are foresights and documents found there."""
    kinds = set()
    for change in memory.log(limit=1000):
        wanted = change["path"] if change["entry"] == "*" else f"{change['path']}#{change['entry']}"
        shown = memory.show(wanted)
        kinds.add(shown["kind"])
        assert shown["path"] == change["path"]
        assert memory.show(shown["id"])["path"] == change["path"]
    assert {"episode", "atomic_fact", "foresight", "memory", "profile", "core"} <= kinds


def test_a_cell_and_a_page_are_shown(memory):
    """A cell's id leads to its talk, the path of a page to its text."""
    entry = memory.get("episode", user_id="ann_b").episodes[0]["id"]
    cell = memory.show(entry)["inline"]["parent_id"]
    assert [one["text"] for one in memory.show(cell)["messages"]] == [
        "I live in Porto and I keep bees.",
        "I will visit Lisbon next Friday.",
    ]
    page = memory.show("default_app/default_project/shared/pages/MEMORY.md")
    assert (page["kind"], page["line"]) == ("page", 0)
    assert page["sections"]["Content"]


def test_a_bare_id_of_several_owners_is_not_guessed(memory):
    """An entry id without its owner is taken where one owner has it; otherwise the owners are named."""
    bare = "mem_" + next(
        row["id"] for row in memory.memories.list(scope="agent", owner="coder").memories
    ).removeprefix("coder_mem_")
    assert memory.show(bare)["scope"] == "project"
    for owner in ("ann_b", "bob"):
        memory.add(f"of {owner}", [said(owner, "I keep bees too.", 3)], project_id="other")
        memory.flush(f"of {owner}", project_id="other")
    with pytest.raises(cairn.Invalid, match="ann_b_ep_20260528_00000001, bob_ep_20260528_00000001"):
        memory.show("ep_20260528_00000001", project_id="other")


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ("nonsense", cairn.Invalid),
        ("", cairn.Invalid),
        ("a b", cairn.Invalid),
        ("../../etc/passwd", cairn.Invalid),
        ("/etc/passwd", cairn.NotFound),
        ("ann_b_ep_20260528_00000099", cairn.NotFound),
        ("nobody_profile", cairn.NotFound),
        ("coder_nothing", cairn.NotFound),
        ("mc_0123456789ab", cairn.NotFound),
        ("m_0123456789abcdef_000001", cairn.NotFound),
        ("default_app/default_project/sessions/talk.jsonl", cairn.NotFound),
        ("acme/default_project/users/ann_b/user.md", cairn.NotFound),
        ("default_app/default_project/users/ann_b/episodes/episode-2026-05-28.md", cairn.Invalid),
    ],
)
def test_what_is_no_id_is_said_so(memory, wanted, error):
    """Nonsense, other spaces and what is not there are named errors."""
    with pytest.raises(error):
        memory.show(wanted)
