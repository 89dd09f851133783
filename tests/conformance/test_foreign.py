"""A backend that knows the contract's page and nothing of ours: held to account, refused or served."""

import time

import pytest

import cairn
from cairn.engines.foreign import ForeignBackend
from cairn.errors import Conflict, Invalid, NotFound, StorageFailed, StorageSelectionError
from cairn.seams import Capabilities, Info, Locator, StorageBackend, content_hash, registry
from cairn.surfaces import cli
from cairn.testing import run_conformance


class SevenVerbs(StorageBackend):
    """The seven verbs over a dictionary per root, with Python's own errors."""

    stores: dict = {}  # noqa: RUF012 -- what is kept between two openings

    def __init__(self, root=None):
        self.texts = self.stores.setdefault(str(root), {}) if root else {}
        self.folders = {""}

    @property
    def capabilities(self):
        return Capabilities()

    def read(self, locator):
        if locator.key not in self.texts:
            raise FileNotFoundError(locator.key)
        return self.texts[locator.key][0]

    def write(self, locator, content):
        content.encode("utf-8")
        self.texts[locator.key] = (content, time.time())
        return locator

    def list(self, locator):
        if locator.key in self.texts:
            return []
        start = f"{locator.key}/" if locator.key else ""
        found = {key[len(start) :].partition("/")[0] for key in self._all() if key.startswith(start)}
        return [locator.child(name) for name in found - {""}]

    def exists(self, locator):
        return locator.key in self.texts or self._is_dir(locator)

    def info(self, locator):
        if self._is_dir(locator):
            return Info(locator, True, 0, 0.0)
        if locator.key not in self.texts:
            raise FileNotFoundError(locator.key)
        text, mtime = self.texts[locator.key]
        return Info(locator, False, len(text.encode()), mtime)

    def mkdir(self, locator):
        self.folders.add(locator.key)
        return locator

    def _all(self):
        return {*self.texts, *self.folders}

    def _is_dir(self, locator):
        return not locator.key or any(
            (key == locator.key and key in self.folders) or key.startswith(f"{locator.key}/")
            for key in self._all()
        )


class Versioned(SevenVerbs):
    """The same with what a memory root needs: `expect` and `remove`; it cannot append."""

    extensions = frozenset({"expect", "remove"})

    def write(self, locator, content, *, expect=None):
        there = content_hash(self.texts[locator.key][0]) if locator.key in self.texts else ""
        if expect not in {None, there}:
            raise Conflict(f"{locator} is not what it was.")
        return super().write(locator, content)

    def remove(self, locator):
        if locator.key not in self.texts:
            raise FileNotFoundError(locator.key) if not self._is_dir(locator) else Invalid("a folder")
        del self.texts[locator.key]


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    def choose(backend):
        registry.register("theirs", backend, clobber=True)
        monkeypatch.setattr(backend, "stores", {})
        monkeypatch.setenv("CAIRN_STORAGE__BACKEND", "theirs")
        return tmp_path / "root"

    yield choose
    registry._classes.pop("theirs", None)


def test_seven_verbs_pass_the_suite():
    """S61, S66: whoever writes the seven verbs from their page passes; extensions are asked of who declares them."""
    report = run_conformance(SevenVerbs)
    assert len(report.universal) == 9
    assert report.extensions == ()


def test_seven_verbs_alone_are_refused_by_the_name_of_what_is_missing(chosen, capsys):
    """S1, S78: a sentence from Python and on the command line; nothing is made on disk."""
    root = chosen(SevenVerbs)
    with pytest.raises(StorageSelectionError, match=r'SevenVerbs cannot carry.*"expect" and "remove"'):
        cairn.open_blocking(root).__enter__()
    assert cli.main(["--root", str(root), "remember", "tea"]) != 0
    said = capsys.readouterr().err
    assert '"expect" and "remove"' in said
    assert "Traceback" not in said
    assert not root.exists()


def test_a_foreign_backend_carries_every_byte_of_a_root(chosen):
    """S1, S3: notes, session logs, journals and settings of strategies are in it; none of them is on the disk."""
    root = chosen(Versioned)
    assert run_conformance(lambda: ForeignBackend(Versioned())).extensions
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        memory.add(
            "s1",
            [
                {
                    "role": "user",
                    "sender_id": "ann",
                    "content": "I moved to Lisbon.",
                    "timestamp": 1_790_000_000_000,
                }
            ],
        )
        assert memory.flush("s1").status == "extracted"
        memory.remember("Ann drinks green tea.", scope="user", owner="ann")
        assert memory.search("Lisbon", user_id="ann", consistency="strong").episodes
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        assert memory.search("tea", user_id="ann", consistency="strong").memories
        memory.memories.forget(words=["green tea"])
        assert memory.search("Lisbon", user_id="ann", consistency="strong").episodes
    held = {key: text for key, (text, _) in Versioned.stores[str(root)].items()}
    kinds = {key.split("/")[2] for key in held if key.count("/") > 2}
    assert {"users", "sessions", "journal"} <= kinds
    assert "Lisbon" in "".join(held.values())
    assert "green tea" not in "".join(held.values())
    on_disk = {at.relative_to(root).parts[0] for at in root.rglob("*") if at.is_file()}
    assert on_disk <= {".index", ".tmp"}


def test_their_errors_become_ours():
    """S7: absence, text that is none and a disk that refuses are told by the tree, with the key."""
    backend = ForeignBackend(Versioned())
    for call in (backend.read, backend.info, backend.read_version, backend.remove):
        with pytest.raises(NotFound, match="none"):
            call(Locator("none.md"))
    with pytest.raises(Invalid, match="half"):
        backend.write(Locator("half.md"), "\ud800")

    class Broken(Versioned):
        def read(self, locator):
            raise PermissionError(13, "Permission denied", "/secret/place")

    with pytest.raises(StorageFailed, match=r"a\.md") as caught:
        ForeignBackend(Broken()).read(Locator("a.md"))
    assert "/secret" not in str(caught.value)
