"""Forgetting: a canary has no hit in any byte of the root afterwards, and the receipt is honest."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import cairn
from cairn.errors import Invalid, NotFound, Unavailable
from cairn.governed import core, corrections, forget, ledger, lifecycle, pages
from cairn.governed.wanted import TOMBSTONE, Beside, Wanted, sentences
from cairn.notes.notebook import Draft
from cairn.talk.sessions import SessionLog, session_locator
from cairn.types import Scope, Space
from tests.world import PROJECT, SPACE, World

CANARY = "zebra" + "crossing77"
FACT = f"Dana opens the vault with {CANARY} every morning."
DANA = Scope(SPACE, "user", "dana")


def _plant(world: World) -> str:
    """Say the canary through every path that keeps something."""
    keeper = world.keeper
    message = {"sender_id": "dana", "role": "user", "timestamp": 1780315200000}
    lines = [
        {"t": "add", "n": 0, "batch": "b1", "at": "x", "messages": [
            {**message, "content": "Good morning."},
            {**message, "content": f"I open the vault with {CANARY} every morning. The weather is fine."},
            {**message, "content": FACT},
            {**message, "role": "assistant", "content": "ok", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"q": FACT})}}]},
            {**message, "content": [{"type": "text", "text": FACT}, {"type": "text", "text": "and tea"}]},
        ]},
        {"t": "cut", "cell": "mc_1", "first": 0, "upto": 5, "day": "2026-06-01", "reason": "flush"},
        {"t": "done", "cell": "mc_1"},
    ]  # fmt: skip
    world.journals.append(session_locator(SPACE, "s1"), [json.dumps(line) for line in lines])
    world.notebook.append("episode", DANA, "2026-06-01", [
        Draft({"session_id": "s1"}, {"Subject": "Morning", "Content": f"Dana greeted. {FACT} Then she had tea."})])  # fmt: skip
    world.notebook.append("atomic_fact", DANA, "2026-06-01", [
        Draft({"session_id": "s1"}, {"Fact": f"Dana said: I open the vault with {CANARY} every morning."}),
        Draft({"session_id": "s1"}, {"Fact": "Dana had tea."})])  # fmt: skip
    verdict = keeper.remember(FACT, scope="user", owner="dana", status="promoted", source_session_id="s1")
    assert verdict.memory is not None
    keeper.remember(FACT.replace("every morning", "every single morning"), scope="user", owner="dana")
    keeper.remember(FACT, status="promoted")
    keeper.remember("The office plants are watered on Mondays.", status="promoted")
    keeper.record_hits([(DANA, str(verdict.memory["entry_id"]))])
    ledger.learn(keeper, SPACE, "intervention", "m1", FACT, author="dana", scope="user", owner="dana")
    core.update(keeper, PROJECT, notes=[FACT, "plants on Mondays"])
    pages.log(keeper, SPACE, FACT)
    lifecycle.keep_in_order(keeper, SPACE)
    page = world.folder / "default_app/default_project/shared/pages/facts.md"
    page.write_text(page.read_text() + f"my remark on {CANARY}\n" + FACT + "\n")
    pages.refresh(keeper, SPACE)
    knowledge = world.folder / "default_app/default_project/knowledge/guide.md"
    knowledge.parent.mkdir()
    knowledge.write_text(f"# Guide\n\nFirst line.\n{FACT}\nLast line.\n")
    return str(verdict.memory["id"])


def test_a_canary_has_no_hit_in_any_byte_of_the_root(world: World) -> None:
    """Forget: entry, copies in other kinds, inbox and transcript, journals, pages, documents; with readers beside it."""
    memory_id = _plant(world)
    assert len(world.bytes_holding(CANARY)) >= 9
    stop = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        while not stop.is_set():
            try:
                world.keeper.list(SPACE)
                SessionLog(world.journals).load(session_locator(SPACE, "s1"))
            except Exception as error:
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    receipt = forget.forget(
        world.keeper,
        SPACE,
        memory_id,
        words=[CANARY],
        all_owners=True,
        beside=Beside(purgers={"index": lambda wanted: 1}),
    )
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert world.bytes_holding(CANARY) == []
    assert receipt.complete, receipt.left
    assert receipt.removed["memory entries"] >= 2
    assert receipt.removed["atomic_fact entries"] == 1
    assert receipt.removed["entries rewritten"] == 1
    assert receipt.removed["messages"] == 4
    assert receipt.removed["index"] == 1
    assert receipt.removed["journal lines"] >= 3
    assert receipt.removed["documents rewritten"] >= 2


def test_forgetting_by_id_alone_finds_the_copies_on_request(world: World) -> None:
    """Forget: asked for everybody's memory and what is alike, nearly equal sentences go everywhere; the remark stays."""
    memory_id = _plant(world)
    receipt = forget.forget(
        world.keeper,
        SPACE,
        memory_id,
        similar=True,
        all_owners=True,
        beside=Beside(purgers={"index": lambda wanted: 0}),
    )
    left = world.bytes_holding(CANARY)
    assert all(".edited-" in name for name in left), left
    assert receipt.removed["messages"] == 4


def test_an_entry_is_named_by_either_of_its_ids(world: World) -> None:
    """The id that searches print, with its owner before it, names the same entry as the one in the note."""
    _plant(world)
    draft = Draft({}, {"Fact": "Dana fasts."})
    entry_id = world.notebook.append("atomic_fact", DANA, "2026-06-02", [draft])[0].entry_id
    public = f"dana_{entry_id}"
    for named in (entry_id, public):
        receipt = forget.forget(world.keeper, SPACE, named, scope=DANA, dry_run=True)
        assert "Dana fasts." in str(receipt.taken)
    with pytest.raises(NotFound, match="belongs to dana, not to eve"):
        forget.forget(world.keeper, SPACE, public, scope=Scope(SPACE, "user", "eve"), dry_run=True)
    with pytest.raises(Invalid, match="by its words"):
        forget.forget(world.keeper, SPACE, "migration", dry_run=True)


def test_what_was_not_asked_for_stays(world: World) -> None:
    """Forget: neighbours, the rest of an episode, other messages and other projects are untouched."""
    other = Space("default", "other")
    world.keeper.remember(FACT, space=other)
    memory_id = _plant(world)
    forget.forget(world.keeper, SPACE, memory_id, words=[CANARY], all_owners=True)
    assert len(world.keeper.records(Scope(other, "project", ""))) == 1
    assert [r.content for r in world.keeper.records(PROJECT)] == ["The office plants are watered on Mondays."]
    episode = (
        world.folder / "default_app/default_project/users/dana/episodes/episode-2026-06-01.md"
    ).read_text()
    assert f"Dana greeted. {TOMBSTONE} Then she had tea." in episode
    state = SessionLog(world.journals).load(session_locator(SPACE, "s1"))
    texts = {int(m.id[-6:]): m.text for m in state.messages}
    assert texts == {
        0: "Good morning.", 1: f"{TOMBSTONE} The weather is fine.", 3: "ok", 4: f"{TOMBSTONE}\nand tea",
    }  # fmt: skip
    assert state.cells[0].done
    facts = (
        world.folder / "default_app/default_project/users/dana/.atomic_facts/atomic_fact-2026-06-01.md"
    ).read_text()
    assert "Dana had tea." in facts
    guide = (world.folder / "default_app/default_project/knowledge/guide.md").read_text()
    assert guide == f"# Guide\n\nFirst line.\n{TOMBSTONE}\nLast line.\n"
    assert core.show(world.keeper, PROJECT).notes == (TOMBSTONE, "plants on Mondays")


def test_a_forgotten_source_is_not_captured_again(world: World) -> None:
    """Forget, A34: the ledger keeps the key, without the words."""
    memory_id = _plant(world)
    forget.forget(world.keeper, SPACE, memory_id, words=[CANARY])
    assert (
        ledger.learn(
            world.keeper, SPACE, "intervention", "m1", FACT, author="dana", scope="user", owner="dana"
        )
        is None
    )
    row = ledger.CaptureLedger(world.keeper).find(SPACE, "intervention", "m1")
    assert row is not None
    assert (row.memory_id, row.metadata) == (None, {"forgotten": True})


def test_the_id_of_a_forgotten_memory_is_never_given_again(world: World) -> None:
    """E98: the next memory of the day gets a new id."""
    first = world.keeper.remember(FACT)
    assert first.memory is not None
    forget.forget(world.keeper, SPACE, str(first.memory["id"]))
    second = world.keeper.remember("Something else entirely.")
    assert second.memory is not None
    assert second.memory["id"] != first.memory["id"]
    with pytest.raises(NotFound):
        corrections.history(world.keeper, world.keeper.find(SPACE, str(first.memory["id"])))


def test_a_forgotten_consolidation_cannot_bring_it_back(tmp_path: Path) -> None:
    """Forget: former texts kept for undo go as well."""
    options = {"embedding__provider": "none", "strategies__enabled": False}
    with cairn.open_blocking(tmp_path, background=False, **options) as memory:
        for n in range(3):
            memory.remember(f"The nightly backup of db{n} writes to bucket {CANARY}")
        done = memory.memories.consolidate()
        memory.memories.forget(done.merged[0].new_id, words=[CANARY])
        memory.undo(done.run_id)
    assert not [at for at in tmp_path.rglob("*") if at.is_file() and CANARY.encode() in at.read_bytes()]


def test_the_receipt_names_what_could_not_be_removed(world: World) -> None:
    """Forget: git history, a purge that failed, a missing purge."""
    (world.folder / ".git").mkdir()
    memory_id = _plant(world)

    def broken(wanted: Wanted) -> int:
        assert wanted.found_in(FACT)
        assert (DANA, "mem_20260601_00000001") in wanted.entries
        raise Unavailable("the index is locked")

    receipt = forget.forget(
        world.keeper, SPACE, memory_id, words=[CANARY], beside=Beside(purgers={"index": broken})
    )
    assert not receipt.complete
    assert dict(receipt.left)["index"] == "the index is locked"
    assert "history" in dict(receipt.left)[".git"]
    lines = world.journals.read(world.root.journal(SPACE, "forgotten")).lines
    assert json.loads(lines[0])["id"] == memory_id
    again = world.keeper.remember("Another thing to forget soon.")
    assert again.memory is not None
    assert "index" in dict(forget.forget(world.keeper, SPACE, str(again.memory["id"])).left)


def test_an_entry_of_another_kind_can_be_forgotten(world: World) -> None:
    """Forget: a fact by id and owner."""
    _plant(world)
    receipt = forget.forget(world.keeper, SPACE, "af_20260601_00000002", scope=DANA)
    assert receipt.removed["atomic_fact entries"] == 1
    with pytest.raises(Invalid, match="scope"):
        forget.forget(world.keeper, SPACE, "af_20260601_00000001")


def test_bad_requests_are_named_and_change_nothing(world: World) -> None:
    """Forget: an unknown id, no words, words too short."""
    _plant(world)
    before = world.bytes_holding(CANARY)
    with pytest.raises(NotFound):
        forget.forget(world.keeper, SPACE, "mem_20200101_00000001")
    with pytest.raises(Invalid, match="id, or words"):
        forget.forget(world.keeper, SPACE)
    with pytest.raises(Invalid, match="too short"):
        forget.forget(world.keeper, SPACE, words=["abc"])
    assert world.bytes_holding(CANARY) == before


@pytest.mark.parametrize(
    "text", ["See www.acme.example now. He said v1.2... then left.Next", "a。b！？c.。d", "...", "x.\n\ny?"]
)
def test_the_sentences_that_forgetting_looks_at_are_the_whole_text(text):
    """A dot inside a word ends no sentence, and what stands before it is looked at like the rest."""
    assert "".join(sentences(text)) == text
