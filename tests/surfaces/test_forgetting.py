"""Forgetting through every surface: what is named goes, nothing else does, and what went cannot come back."""

import pytest

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
