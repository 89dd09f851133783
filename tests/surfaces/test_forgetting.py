"""Forgetting through every surface: what is named goes, nothing else does, and what went cannot come back."""

import pytest

from tests.held import holding
from tests.surfaces.forgetting_kit import SURFACES, reached

pytestmark = pytest.mark.xdist_group("memories-http")


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")


@pytest.mark.parametrize("surface", SURFACES)
def test_a_checkpoint_from_before_a_forgetting_still_brings_the_others_back(surface, tmp_path):
    """Restore: what was forgotten is skipped and named, in a dry run too; every other entry comes back."""
    with reached(surface, tmp_path / "root") as door:
        gone = door.remember("The old harbour gate opens with code brass-lantern.")
        door.remember("The ferry leaves at noon.")
        broken = door.remember("Tides are read from the board by the pier.")
        mark = door.mark()
        door.forget(gone)
        door.edit(broken, "Tides are made up.")
        plan = door.restore(mark, dry_run=True)
        assert sorted(item["action"] for item in plan) == ["purged", "write"]
        assert [item["entry"] for item in plan if item["action"] == "purged"] == [gone]
        assert "Tides are made up." in door.contents()
        assert door.restore(mark) == plan
        assert door.contents() == [
            "The ferry leaves at noon.",
            "Tides are read from the board by the pier.",
        ]


# ---------------------------------------------------------------- what is named, and nothing else

CLUSTER = "The staging cluster of Acme is upgraded every Monday at nine by the platform team."
OTHERS = {
    "bea": CLUSTER.replace("Monday", "Tuesday"),
    "carl": CLUSTER.replace("staging", "production"),
    "dora": CLUSTER.replace("Acme", "Globex"),
    "emil": CLUSTER.replace("is upgraded", "is never upgraded"),
    "fred": CLUSTER.replace("at nine by the platform team", "at ten by the release crew"),
    "gina": CLUSTER.replace(".", ", see OPS-10471."),
    "hugo": CLUSTER,
}
PAIRS = [
    ("Invoice 10471 for the harbour office was paid on 3 May.", "Invoice 10472 for the harbour office was paid on 4 May."),
    ("Never restart worker-3 while a backup of the archive runs.", "Always restart worker-4 while a backup of the archive runs."),
    ("Anna drinks green tea without sugar in the morning.", "Berta drinks green tea without sugar in the morning."),
    ("The office in Porto closes at six on Fridays.", "The office in Porto does not close at six on Fridays."),
    ("Ann likes tea.", "Ann likes tea with milk and a slice of lemon."),
    ("Version 2.1 of the parser reads empty files.", "Version 2.10 of the parser reads empty files."),
    ("请把会议安排在星期一上午", "请把会议安排在星期二上午"),
    ("Der Server im Keller läuft nachts auf Stufe 3.", "Der Server im Keller läuft nachts auf Stufe 4."),
]  # fmt: skip


@pytest.mark.parametrize("surface", SURFACES)
def test_different_facts_of_other_owners_stay(surface, tmp_path):
    """Forget: another day, cluster, company, the denial, other words, a ticket, even the very same words of another."""
    with reached(surface, tmp_path / "root") as door:
        mine = door.remember(CLUSTER, scope="user", owner="ann")
        for owner, text in OTHERS.items():
            door.remember(text, scope="user", owner=owner)
        receipt = door.forget(mine)
        assert receipt["removed"]["memory entries"] == 1
        assert [one["words"] for one in receipt["taken"]] == [CLUSTER]
        assert receipt["alike"] == []
        assert door.contents() == sorted(OTHERS.values())
        # Hugo said the very same: that is his, and the receipt does not claim that the words are gone.
        assert not receipt["complete"]
        assert [one["where"] for one in receipt["left"]] == ["other owners' memory"]


@pytest.mark.parametrize("surface", SURFACES)
def test_different_facts_of_the_same_owner_stay_and_are_shown(surface, tmp_path):
    """Forget: what differs in a number, a name, a denial or says more is listed with its words, and stays."""
    with reached(surface, tmp_path / "root") as door:
        ids = {}
        for n, (named, other) in enumerate(PAIRS):
            for text in (named, other):
                ids[text] = door.remember(text, scope="user", owner=f"ann{n}")
        for named, _ in PAIRS:
            preview = door.forget(ids[named], dry_run=True)
            receipt = door.forget(ids[named])
            assert [one["words"] for one in receipt["taken"]] == [named]
            assert preview["taken"] == receipt["taken"]
            assert preview["alike"] == receipt["alike"]
            assert (preview["dry_run"], preview["complete"]) == (True, False)
        assert door.contents() == sorted(other for _, other in PAIRS)


@pytest.mark.parametrize("surface", SURFACES)
def test_what_is_alike_is_listed_and_goes_on_request(surface, tmp_path):
    """Forget: a preview names what is alike with words, path and owner; by id one of it goes, on request all of it."""
    root = tmp_path / "root"
    with reached(surface, root) as door:
        first = door.remember("Invoice 10471 for the harbour office in Porto was paid on 3 May.")
        second = door.remember("Invoice 10472 for the harbour office in Lisbon was paid on 4 June.")
        third = door.remember("Invoice 10473 for the harbour office in Faro was paid on 5 July.")
        before = {at: at.read_bytes() for at in root.rglob("*.md")}
        preview = door.forget(first, dry_run=True)
        assert {at: at.read_bytes() for at in root.rglob("*.md")} == before
        assert [one["id"] for one in preview["taken"] if one["what"] == "memory"] == [first]
        assert {one["id"] for one in preview["alike"]} == {second, third}
        for one in preview["alike"]:
            assert one["owner"] == "project"
            assert (root / one["path"]).is_file()
            assert one["words"].startswith("Invoice 1047")
        receipt = door.forget(first, also=[second])
        assert {one["id"] for one in receipt["taken"] if one["what"] == "memory"} == {first, second}
        assert [one["id"] for one in receipt["alike"]] == [third]
        assert receipt["complete"], receipt
        again = door.remember("Invoice 10474 for the harbour office in Braga was paid on 6 August.")
        receipt = door.forget(again, similar=True)
        assert {one["id"] for one in receipt["taken"] if one["what"] == "memory"} == {third, again}
        assert door.contents() == []


@pytest.mark.parametrize("surface", SURFACES)
def test_everybodys_memory_is_touched_only_on_request(surface, tmp_path):
    """Forget: with all owners asked for, the same words go wherever they stand, and the others' are listed."""
    root = tmp_path / "root"
    with reached(surface, root) as door:
        mine = door.remember(CLUSTER, scope="user", owner="ann")
        for owner, text in OTHERS.items():
            door.remember(text, scope="user", owner=owner)
        preview = door.forget(mine, all_owners=True, dry_run=True)
        assert {one["owner"] for one in preview["taken"]} == {"user ann", "user hugo"}
        assert {one["owner"] for one in preview["alike"]} == {f"user {one}" for one in OTHERS} - {"user hugo"}
        receipt = door.forget(mine, all_owners=True)
        assert receipt["complete"], receipt["left"]
        assert door.contents() == sorted(text for text in OTHERS.values() if text != CLUSTER)
        assert holding(root, CLUSTER) == []


@pytest.mark.parametrize("surface", SURFACES)
def test_words_go_from_one_owners_memory(surface, tmp_path):
    """Forget by words: whole words only, in the named owner's memory; where several hold them, somebody must choose."""
    root = tmp_path / "root"
    with reached(surface, root) as door:
        for owner in ("ann", "bea"):
            door.remember("The spare key hangs at Elmstreet 12.", scope="user", owner=owner)
            door.remember("The gym is at Elmstreet 125, first floor.", scope="user", owner=owner)
        why = door.refused(words=["Elmstreet 12"])
        assert "user ann, user bea" in why
        assert "all owners" in why
        receipt = door.forget(words=["Elmstreet 12"], scope="user", owner="ann")
        assert [one["words"] for one in receipt["taken"]] == ["The spare key hangs at Elmstreet 12."]
        assert door.contents() == [
            "The gym is at Elmstreet 125, first floor.",
            "The gym is at Elmstreet 125, first floor.",
            "The spare key hangs at Elmstreet 12.",
        ]
        receipt = door.forget(words=["Elmstreet 12"])
        assert receipt["complete"], receipt["left"]
