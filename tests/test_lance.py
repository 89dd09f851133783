"""The LanceDB mirror: late, broken or missing, answers stay right."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from cairn.engines.embedders import HashingEmbedder
from cairn.engines.lance import LanceMirror, MirrorProcess
from cairn.engines.rows import SqliteIndex
from cairn.notes.notebook import Draft
from tests.index_world import ALICE, BOB, DAY, World, by_meaning
from tests.waiting import until

EMBEDDER = HashingEmbedder(64)
pytestmark = pytest.mark.xdist_group("lance")  # importing LanceDB costs seconds: once is enough


class LargeWorld(World):
    """Every scope counts as too large for memory, so that vectors are asked of the mirror."""

    def __init__(self, folder, rows: int = 400):
        super().__init__(folder)
        self.index.close()
        self.index = SqliteIndex(folder / ".index", memory_rows=5)
        self.indexer._index = self.index
        self.mirror = LanceMirror(folder / ".index", index_rows=300)
        for scope, count in ((ALICE, rows), (BOB, 20)):
            drafts = [
                Draft({"session_id": f"s{n % 7}", "timestamp": f"{DAY}T10:00:00+00:00"}, {"Content": text(n)})
                for n in range(count)
            ]
            self.ids = self.notebook.append("episode", scope, DAY, drafts)
        self.embedded()

    def embedded(self) -> None:
        self.indexer.catch_up(30, embed=True)
        assert self.indexer.waiting_for_vectors() == 0

    def follow(self) -> int:
        done = self.mirror.follow(self.index)
        assert self.mirror.watermark()["version"] == self.index.version()
        return done

    def top(self, words: str, scope=ALICE) -> list[str]:
        found = by_meaning(self.index, scope, EMBEDDER.embed([words])[0])[:3]
        return [row.text for row in self.index.rows(scope, found)]


def text(n: int) -> str:
    return f"topic{n} concerns item{n * 7} and place{n * 13}"


@pytest.fixture
def world(tmp_path):
    made = LargeWorld(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("damage", ["gone", "half", "no mark"])
def test_a_broken_mirror_is_made_anew(world, damage):
    """E5: a missing, half deleted or unmarked mirror costs nothing but time."""
    world.follow()
    folder = world.folder / ".index" / "lancedb"
    if damage == "gone":
        shutil.rmtree(folder)
    elif damage == "half":
        shutil.rmtree(folder / "entries.lance" / "data")
    else:
        (folder / "mirror.json").unlink()
    assert world.top(text(50))[0] == text(50)
    assert world.follow() == 420
    assert world.top(text(50))[0] == text(50)


def test_a_rebuilt_index_is_followed_from_the_start(world):
    """After a rebuild rows have other ids; the old mirror is not believed."""
    world.follow()
    world.indexer.rebuild()
    world.embedded()
    assert world.top(text(9))[0] == text(9)
    assert world.follow() == 420


def test_the_follower_is_a_process_that_starts_when_due(tmp_path):
    """Many rows at once start it; it writes the mirror and ends; the service itself imports nothing."""
    world = LargeWorld(tmp_path, rows=40)
    follower = MirrorProcess(world.folder / ".index", world.index, world.mirror, many=30, apart_seconds=0.0)
    until(lambda: follower() or world.mirror.watermark().get("version") == world.index.version())
    follower.stop()
    code = (
        "import sys, pathlib; from cairn.engines.lance import LanceMirror, MirrorProcess;"
        "sys.exit(any(name in sys.modules for name in ('lancedb', 'pyarrow', 'onnxruntime')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    world.close()


def test_index_size_stays_bounded(tmp_path, monkeypatch):
    """However often notes are rewritten: 8 bytes per byte of truth, 8 per dimension and 512 per row, and 1 MB."""
    monkeypatch.setattr("cairn.engines.lance._KEEP_SECONDS", 0.05)
    world = LargeWorld(tmp_path, rows=200)
    file = world.path()
    for turn in range(6):
        file.write_text(file.read_text().replace(f"and{'x' * turn} place", f"and{'x' * (turn + 1)} place"))
        world.embedded()
        world.follow()
        world.indexer.maintain()
    time.sleep(0.2)
    world.follow()
    mark = world.mirror.watermark()
    world.mirror._save(mark | {"prune_at": time.time() - 1})
    world.follow()
    markdown = sum(f.stat().st_size for f in world.folder.rglob("*.md"))
    size = sum(f.stat().st_size for f in (world.folder / ".index").rglob("*") if f.is_file())
    assert size < 8 * markdown + 220 * (8 * 64 + 512) + 1_048_576
    world.close()
