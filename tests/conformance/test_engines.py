"""The shipped suites over every engine that ships. S61: one suite, the same checks for any backend."""

import os
import unittest
from dataclasses import replace
from datetime import timedelta

import pytest

import cairn
from cairn.config import LlmSettings, load
from cairn.engines.changes import SqliteState
from cairn.engines.embedders import HashingEmbedder, Multilingual, ServiceEmbedder, choose
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.engines.jobs import SqliteJobs
from cairn.engines.journals import FileJournals
from cairn.engines.lance import LanceTables
from cairn.engines.large import LargeIndex
from cairn.engines.locks import FileLocks
from cairn.engines.onnx_folder import OnnxFolder
from cairn.engines.rows import SqliteIndex
from cairn.engines.vault import VaultBackend
from cairn.engines.writers import OpenAIWriter
from cairn.index.corpus import KNOWLEDGE, knowledge_scope
from cairn.retrieval.library import passage_text
from cairn.seams import Capabilities, Locator, SystemClock, Tier
from cairn.testing import (
    CLOCK_CHECKS,
    EXTENSION_CHECKS,
    JOURNAL_CHECKS,
    UNIVERSAL_CHECKS,
    EmbedderConformance,
    FixedClock,
    IndexConformance,
    IndexUnderTest,
    JobsConformance,
    JournalConformance,
    JumpingClock,
    LockConformance,
    StateConformance,
    StorageConformance,
    WriterConformance,
    check_writer_unavailable,
    run_checks,
    run_conformance,
)
from cairn.testing.storage import check_rebuild
from cairn.types import Space
from tests.fake_model import FakeModel
from tests.onnx_kit import make_folder

from .mirror import Mirrored

DAY = timedelta(days=1)


def memory_index(folder):
    """Rows in SQLite, answered from memory."""
    rows = SqliteIndex(folder)
    return IndexUnderTest(rows, rows)


def lance_index(folder):
    """The same rows, answered from tables of LanceDB, however few there are."""
    rows, tables = SqliteIndex(folder), LanceTables(folder, index_rows=500)
    tables.load(wait=True)
    return IndexUnderTest(rows, LargeIndex(rows, tables, whole_rows=0), lambda: tables.fold(rows))


class Fresh:
    """Hands each engine a folder of its own."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory):
        self.folder = lambda: tmp_path_factory.mktemp("engine")


class TestDeviceLocal(Fresh, StorageConformance):
    """S61, S66: device-local passes the suite."""

    def make_backend(self):
        return DeviceLocalBackend(root=self.folder())


class TestVault(Fresh, StorageConformance):
    """S61, S73: the vault passes the suite."""

    def make_backend(self):
        folder = self.folder()
        return VaultBackend(folder / "tree", cache=folder / "cache")


class TestInMemory(StorageConformance):
    """The reference passes the suite."""

    def make_backend(self):
        return InMemoryBackend()


class UnitTestInMemory(StorageConformance, unittest.TestCase):
    """S68: the mixin serves unittest as well."""

    def make_backend(self):
        return InMemoryBackend()


class TestFileJournals(Fresh, JournalConformance):
    def make_journals(self):
        return FileJournals(self.folder())


class TestWrittenJournals(JournalConformance):
    """Journals by `expect` alone, for a backend that cannot append."""

    def make_journals(self):
        return InMemoryBackend().journals


class TestMemoryIndex(Fresh, IndexConformance):
    """E6: the index in memory passes the suite."""

    def make_index(self):
        return memory_index(self.folder())


@pytest.mark.xdist_group("lance")  # importing LanceDB costs seconds: once is enough
class TestLanceIndex(Fresh, IndexConformance):
    """E5, E6, E56: the index in LanceDB passes the same suite."""

    def make_index(self):
        return lance_index(self.folder())


class TestFileLocks(Fresh, LockConformance):
    def make_locks(self):
        return FileLocks(self.folder() / "locks")


class TestInMemoryLocks(LockConformance):
    def make_locks(self):
        return InMemoryLocks()


class TestSqliteState(Fresh, StateConformance):
    def make_state(self):
        return SqliteState(self.folder())


class TestSqliteJobs(Fresh, JobsConformance):
    def make_jobs(self):
        return SqliteJobs(self.folder())


class TestHashingEmbedder(EmbedderConformance):
    def make_embedder(self):
        return HashingEmbedder(64)


class TestMiniLM(EmbedderConformance):
    """The local model, where it is installed."""

    def make_embedder(self):
        chosen = choose(load(environ=dict(os.environ), embedding__provider="auto"))
        return chosen if chosen is not None else pytest.skip("no model is installed")


class TestMultilingual(EmbedderConformance):
    def make_embedder(self):
        return Multilingual()


class TestOnnxFolder(Fresh, EmbedderConformance):
    def make_embedder(self):
        return OnnxFolder(str(make_folder(self.folder() / "encoder")))


class Served:
    """Hands each client an endpoint of its own, on loopback."""

    @pytest.fixture(autouse=True)
    def _model(self):
        with FakeModel() as model:
            self.url = model.url
            yield


class TestServiceEmbedder(Served, EmbedderConformance):
    def make_embedder(self):
        return ServiceEmbedder(self.url, "fake")


class TestOpenAIWriter(Served, WriterConformance):
    def make_writer(self):
        return OpenAIWriter(LlmSettings(base_url=self.url, model="fake"))


@pytest.mark.parametrize("behaviour", ["garbage", "401", "refusal", "wrong-shape"])
def test_a_model_that_is_of_no_use_is_unavailable(behaviour):
    """Whatever comes back, the caller learns it by one error and writes without a model."""
    with FakeModel(always=behaviour) as model:
        check_writer_unavailable(OpenAIWriter(LlmSettings(base_url=model.url, model="fake")))


@pytest.mark.parametrize(
    "make", [SystemClock, FixedClock, lambda: JumpingClock(SystemClock(), lambda _: -DAY)]
)
def test_clocks_keep_their_promise(make):
    """The machine's and those of tests."""
    run_checks(CLOCK_CHECKS, make)


def test_report_names_what_was_checked(tmp_path_factory):
    """S66, S68: the driver reports the nine universal checks, the rebuild and what the backend declares."""
    report = run_conformance(lambda: DeviceLocalBackend(tmp_path_factory.mktemp("b")))

    assert report.universal == (
        "resolve_and_locator",
        "write_read_round_trip",
        "lf_exact_round_trip",
        "exists_flips",
        "info",
        "mkdir_idempotent",
        "list_children",
        "list_on_absent",
        "invalid_locator_rejected",
    )
    assert report.universal == tuple(UNIVERSAL_CHECKS)
    assert report.derived == "absent"
    assert report.routing == {"capabilities": Capabilities(), "conflict_strategy": "none"}
    assert report.extensions == (*EXTENSION_CHECKS, *(f"append_{name}" for name in JOURNAL_CHECKS))


@pytest.mark.parametrize("make", [DeviceLocalBackend, InMemoryBackend], ids=["device-local", "in-memory"])
def test_our_backends_list_by_key(make, tmp_path):
    """S57: what ships lists in the order of keys, whichever order things were written in."""
    backend = make(tmp_path) if make is DeviceLocalBackend else make()
    for key in ("d/b.md", "d/a.md", "d/sub/x.md", "d/B0.md"):
        backend.write(Locator(key), key)
    assert [at.name for at in backend.list(Locator("d"))] == ["B0.md", "a.md", "b.md", "sub"]


def test_rebuild_runs_where_a_derived_layer_exists():
    """S65, S67: a backend with a derived layer is asked to rebuild it, twice."""
    assert run_conformance(Mirrored).derived == "passed"


@pytest.mark.parametrize("backend", ["device-local", "vault"])
def test_the_index_of_an_open_memory_is_the_derived_layer(tmp_path, backend):
    """S45, S48, S65, S67: the check meets the real index: what is written through the seam is in its rows after a rebuild,
    and again when it changed; pages are made anew the same way; the truth is not.
    """
    options = {"storage__backend": backend, "storage__cache": str(tmp_path / "cache")}
    with cairn.open_blocking(
        tmp_path / "root", background=False, embedding__provider="none", **options
    ) as memory:
        parts = memory.parts
        tiers = parts.root.tiers(Space())
        layout = replace(tiers, source=parts.root.knowledge(Space()))

        def held(_backend):
            scope = knowledge_scope(Space())
            rows = parts.index.rows(scope, parts.index.page(scope, [KNOWLEDGE], limit=9).rowids)
            return {row.path.removeprefix(f"{layout.source}/"): passage_text(row.text) for row in rows}

        check_rebuild(parts.storage, layout, held)
        memory.remember("Deploys wait for the migration job.", pinned=True)
        made = parts.storage.derived_maintenance
        made.reindex(Tier.SHARED_ABSTRACTS)
        assert "migration job" in parts.storage.read(tiers.shared_abstracts.child("MEMORY.md"))
        assert layout.source.child("c.md") in made.changed_since(0)
        with pytest.raises(cairn.Invalid):
            made.reindex(Tier.SOURCE)
        storage = parts.storage
    assert storage.derived_maintenance is None


def test_a_derived_layer_tells_what_changed():
    """S48, S81: changed_since gives the source places that are strictly newer, and is only a hint."""
    backend = Mirrored()
    backend.write(Locator("source/a.md"), "x")
    mtime = backend.info(Locator("source/a.md")).mtime

    assert backend.derived_maintenance.changed_since(mtime - 1) == [Locator("source/a.md")]
    assert backend.derived_maintenance.changed_since(mtime) == []
    backend.derived_maintenance.reindex(Tier.LOCAL_INDEX)
    assert backend.read(Locator("local-index/a.md")) == "x"
