"""The storage seam: names, values, errors, registry, tiers."""

import ast
import dataclasses
import inspect
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import seams
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend
from cairn.errors import CairnError, Invalid, InvalidLocatorError, Misconfigured, NotFound, ProtocolError
from cairn.seams import (
    BackendRegistry,
    Capabilities,
    DerivedMaintenance,
    Info,
    Locator,
    StorageBackend,
    Tier,
    TierLayout,
    content_hash,
    normalize_key,
    registry,
)
from cairn.seams.storage import iterate_files
from cairn.testing import FixedClock

VERBS = {"resolve", "read", "write", "list", "exists", "info", "mkdir"}
SEAMS = Path(seams.__file__).parent
SOURCE = ast.parse("\n".join(file.read_text(encoding="utf-8") for file in sorted(SEAMS.glob("*.py"))))


def imported_modules(tree):
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_the_seam_is_seven_verbs_and_what_is_declared_beside_them():
    """S1, S6-S16: what a backend offers is exactly this, and what it must supply is marked abstract."""
    public = {name for name in vars(StorageBackend) if not name.startswith("_")}

    assert public == VERBS | {
        "archive",
        "capabilities",
        "close",
        "conflict_strategy",
        "derive_by",
        "derived_maintenance",
        "extensions",
        "forgotten_elsewhere",
        "from_settings",
        "is_shared",
        "journals",
        "keep",
        "learn_people",
        "locks",
        "people_in",
        "prune",
        "read_back",
        "read_version",
        "remove",
        "scan",
        "scan_lines",
        "scrub",
        "sweep",
        "tell",
        "trouble",
        "turn",
        "watch",
    }
    assert StorageBackend.__abstractmethods__ == (VERBS - {"resolve"}) | {"capabilities"}


def test_only_locators_and_infos_cross():
    """S4, S5: verbs take and return locators, infos, text and truth values; never a path, never bytes."""
    allowed = {"Locator", "Info", "str", "bool", "list[Locator]", "str | None"}
    for verb in VERBS:
        signature = inspect.signature(getattr(StorageBackend, verb))
        annotations = {p.annotation for n, p in signature.parameters.items() if n != "self"}
        assert annotations | {signature.return_annotation} <= allowed, verb


def test_exports_are_exactly_the_list():
    """S60: the storage names of the seam, and nothing that `import *` should not bring."""
    contract = {
        "InvalidLocatorError", "normalize_key", "Locator", "Info", "Capabilities", "StorageBackend",
        "ProtocolError", "BackendRegistry", "registry", "Tier", "TierLayout", "DerivedMaintenance",
    }  # fmt: skip
    assert contract <= set(seams.__all__)
    assert all(hasattr(seams, name) for name in seams.__all__)
    assert sorted(set(seams.__all__)) == sorted(seams.__all__)
    from cairn.engines import files

    assert set(files.__all__) == {"DeviceLocalBackend", "PROTOCOL"}


def test_the_seam_imports_no_engine_and_no_database():
    """S35, S49: the contract stands on the standard library and the error tree alone."""
    foreign = imported_modules(SOURCE) - set(sys.stdlib_module_names)
    assert foreign == {"cairn", "numpy"}
    assert not imported_modules(SOURCE) & {"sqlite3", "dbm", "os", "pathlib"}
    hidden = [n for n in ast.walk(SOURCE) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    assert any("numpy" in ast.unparse(node) for node in hidden), "numpy is for the type checker only"
    assert "import numpy" not in "\n".join(ast.unparse(n) for n in SOURCE.body if n not in hidden)


def test_a_locator_is_a_frozen_hashable_name():
    """S17-S20, S22: a value usable as a dict key, with key, parts, name and its bare key as text."""
    place = Locator("users/alice/user.md")

    assert {place: 1}[Locator("users/alice/user.md")] == 1
    assert (place.key, place.parts, place.name) == (
        "users/alice/user.md",
        ("users", "alice", "user.md"),
        "user.md",
    )
    assert str(place) == place.key
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.key = "other"
    root = Locator()
    assert (root.key, root.parts, root.name, str(root), root.parent) == ("", (), "", "", root)


def test_child_extends_and_cannot_escape():
    """S21: parts are appended and normalised; `..` is refused."""
    assert Locator("a").child("b/", "/c.md") == Locator("a/b/c.md")
    assert Locator("a").child() == Locator("a")
    assert Locator("a/b").parent == Locator("a")
    with pytest.raises(InvalidLocatorError):
        Locator("a").child("..", "b")


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("a//b", "a/b"),
        ("./a/./b/.", "a/b"),
        ("/abs/x", "abs/x"),
        ("///", ""),
        ("", ""),
        (".", ""),
        ("a/b/", "a/b"),
    ],
)
def test_keys_have_one_form(key, normal):
    """S23, S24, X1: empty and `.` segments go, a leading slash is made relative, by every way in."""
    backend = InMemoryBackend()
    assert (
        normalize_key(key)
        == Locator(key).key
        == backend.resolve(key).key
        == Locator().child(key).key
        == normal
    )


@pytest.mark.parametrize(
    "key",
    [
        "..",
        "a/..",
        "../a",
        "a/../b",
        "a\\b",
        "..\\x",
        "a\x00",
        "a\nb",
        "a\x7f",
        "\ud800",
        "é" * 128,
        "a/" * 1600 + "b",
    ],
)
def test_hostile_keys_are_refused_by_name(key):
    """S6, S25, S33, S63: what could leave the root or no file can carry is a ValueError of its own kind."""
    for way in (normalize_key, Locator, InMemoryBackend().resolve, Locator("a").child):
        with pytest.raises(InvalidLocatorError) as caught:
            way(key)
        assert isinstance(caught.value, ValueError)
        assert not isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("key", [3, None, b"a", Path("a")])
def test_a_key_is_a_string(key):
    """S33: anything but a string is refused by name."""
    with pytest.raises(InvalidLocatorError):
        Locator(key)


def test_drive_letters_and_tildes_are_ordinary_names():
    """The key check does not treat them as special; confinement is by walking from the root."""
    assert Locator("C:/x").parts == ("C:", "x")
    assert Locator("~/x").parts == ("~", "x")


@given(st.text(max_size=60))
def test_no_key_reaches_beyond_the_root(text):
    """S25: whatever is accepted has no `..`, no outer slash, and normalising again changes nothing."""
    try:
        key = normalize_key(text)
    except InvalidLocatorError:
        return
    assert normalize_key(key) == key
    assert not key.startswith("/")
    assert not {"..", ".", ""} & set(Locator(key).parts)


def test_info_is_a_frozen_value_in_bytes_and_seconds():
    """S12, S26: locator, is_dir, size and mtime; the feed works on mtime."""
    assert [f.name for f in dataclasses.fields(Info)] == ["locator", "is_dir", "size", "mtime"]
    backend = InMemoryBackend()
    backend.write(Locator("a/b.md"), "ü")
    assert backend.info(Locator("a/b.md")).size == 2
    assert backend.info(Locator("a")).size == 0
    assert math.isfinite(backend.info(Locator("a")).mtime)
    with pytest.raises(dataclasses.FrozenInstanceError):
        backend.info(Locator("a")).size = 1


def test_capabilities_are_false_unless_declared():
    """S14, S28-S32: four booleans, all False by default, frozen."""
    assert dataclasses.asdict(Capabilities()) == {
        "concurrent_writers": False, "conflict_files": False, "encryption": False, "sync": False,
    }  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        Capabilities().sync = True


def test_strategy_and_derived_layer_have_defaults():
    """S15, S16, S65: "none" and no derived layer, answerable on every backend."""
    backend = InMemoryBackend()
    assert backend.conflict_strategy == "none"
    assert backend.derived_maintenance is None


def test_absence_and_a_bad_name_are_different_errors():
    """S7: reading nothing is a FileNotFoundError, a bad key is a ValueError; both are Cairn's."""
    with pytest.raises(FileNotFoundError) as absent:
        InMemoryBackend().read(Locator("none.md"))
    assert isinstance(absent.value, NotFound)
    assert not isinstance(absent.value, InvalidLocatorError)
    assert issubclass(InvalidLocatorError, CairnError)


def test_remove_is_an_extension_that_a_backend_may_lack():
    """C8: outside the seven verbs; a backend without it says so by name."""

    class Bare(InMemoryBackend):
        remove = StorageBackend.remove

    with pytest.raises(Invalid, match="does not offer"):
        Bare().remove(Locator("a"))


def test_content_hash_is_sha256_of_the_utf8_bytes():
    """S71: the currency of compare-and-swap, the same for text and for its bytes."""
    assert content_hash("ü\r\n") == content_hash("ü\r\n".encode())
    assert content_hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_iterate_files_walks_any_backend():
    """Every file below a place, depth first, by key order."""
    backend = InMemoryBackend()
    for key in ("b.md", "a/c.md", "a/b/x.md"):
        backend.write(Locator(key), key)
    assert [place.key for place in iterate_files(backend, Locator())] == ["a/b/x.md", "a/c.md", "b.md"]


# -- registry


def test_registry_keeps_classes_by_name():
    """S35, S37, S38: register answers None; get, `in` and sorted protocols."""
    mine = BackendRegistry()
    assert mine.register("zeta", InMemoryBackend) is None
    mine.register("alpha", DeviceLocalBackend)

    assert mine.get("zeta") is InMemoryBackend
    assert "alpha" in mine
    assert mine.protocols() == ("alpha", "zeta")


def test_a_miss_is_absence():
    """S36: get gives None and `in` gives False, for any question; neither raises."""
    assert BackendRegistry().get("none") is None
    assert "none" not in BackendRegistry()
    assert 3 not in BackendRegistry()


def test_only_concrete_backends_register():
    """S37, S76: the base, an abstract subclass, an instance and a stranger are a TypeError."""

    class Half(StorageBackend):
        def read(self, locator):
            return ""

    for wrong in (StorageBackend, Half, InMemoryBackend(), dict, "in-memory", None):
        with pytest.raises(TypeError):
            BackendRegistry().register("x", wrong)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_backend_needs_a_name(name):
    """S34, S37: an empty name is a ProtocolError, a ValueError."""
    with pytest.raises(ProtocolError) as caught:
        BackendRegistry().register(name, InMemoryBackend)
    assert isinstance(caught.value, ValueError)


def test_a_taken_name_needs_clobber():
    """S34, S37: a duplicate is refused, and keeps the first, unless clobber is said."""
    mine = BackendRegistry()
    mine.register("x", InMemoryBackend)
    with pytest.raises(ProtocolError):
        mine.register("x", DeviceLocalBackend)
    assert mine.get("x") is InMemoryBackend
    mine.register("x", DeviceLocalBackend, clobber=True)
    assert mine.get("x") is DeviceLocalBackend


def test_registries_share_nothing():
    """S39: two registries are independent."""
    one, two = BackendRegistry(), BackendRegistry()
    one.register("x", InMemoryBackend)
    assert "x" not in two


def test_the_default_registry_holds_what_was_imported():
    """S2, S40, S51: device-local is there from the import of its module, vault from that of its own."""
    from cairn.engines import vault

    assert registry.get("device-local") is DeviceLocalBackend
    assert registry.get("vault") is vault.VaultBackend


# -- tiers


def test_tiers_say_what_syncs_and_what_is_derived():
    """S41-S44: only the index stays home, only the source is authoritative."""
    assert [(t.value, t.syncs, t.derived) for t in Tier] == [
        ("source", True, False),
        ("shared-abstracts", True, True),
        ("local-index", False, True),
    ]


def test_layout_defaults_and_roots():
    """S45, S46: three placeholder locators that can be overridden; root_for and never_sync_root."""
    layout = TierLayout()
    assert [layout.root_for(tier).key for tier in Tier] == ["source", "shared-abstracts", "local-index"]
    assert layout.never_sync_root == Locator("local-index")
    assert TierLayout(local_index=Locator("cache/ix")).root_for(Tier.LOCAL_INDEX) == Locator("cache/ix")
    with pytest.raises(dataclasses.FrozenInstanceError):
        layout.source = Locator("x")


def test_layout_creates_nothing(tmp_path):
    """S45: naming tiers touches no disk."""
    DeviceLocalBackend(tmp_path / "r")
    TierLayout()
    assert list((tmp_path / "r").iterdir()) == []


@pytest.mark.parametrize(
    "pair", [("source", "shared_abstracts"), ("source", "local_index"), ("shared_abstracts", "local_index")]
)
def test_tier_roots_must_differ(pair):
    """S47: any two at one place are a ValueError, also when spelled differently."""
    with pytest.raises(ValueError, match="differ"):
        TierLayout(**dict.fromkeys(pair, Locator("same")))
    with pytest.raises(ValueError, match="differ"):
        TierLayout(**{pair[0]: Locator("same/"), pair[1]: Locator("/same")})


def test_a_nested_index_root_is_refused_where_the_tree_syncs():
    """S75, C8: the layout alone checks equality; with a synced backend an index inside is refused."""
    nested = TierLayout(source=Locator(""), local_index=Locator(".index"))
    nested.check_for(Capabilities(sync=False))
    with pytest.raises(Misconfigured, match="synced"):
        nested.check_for(Capabilities(sync=True))
    TierLayout(source=Locator("tree"), local_index=Locator("tree-index")).check_for(Capabilities(sync=True))


def test_derived_maintenance_is_named_not_built():
    """S48, S49: exactly two abstract methods, no instance, and no concrete subclass in the module."""
    assert DerivedMaintenance.__abstractmethods__ == {"reindex", "changed_since"}
    with pytest.raises(TypeError):
        DerivedMaintenance()
    subclasses = [
        node.name
        for node in ast.walk(SOURCE)
        if isinstance(node, ast.ClassDef) and any("DerivedMaintenance" in ast.unparse(b) for b in node.bases)
    ]
    assert subclasses == []


def test_a_fixed_clock_stands_still_until_told():
    """Tests set the time; it is aware and UTC."""
    clock = FixedClock()
    assert clock.now() == clock.now()
    assert clock.now().utcoffset().total_seconds() == 0
    assert (clock.advance(hours=2) - FixedClock().now()).total_seconds() == 7200


@pytest.mark.parametrize("package", ["notes", "talk", "governed", "retrieval", "language"])
def test_what_stands_above_the_seam_reaches_storage_through_it_alone(package):
    """S1, S3: no module there opens a file or knows a path; it holds locators and asks the backend."""
    for file in sorted((SEAMS.parent / package).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert not imported_modules(tree) & {"pathlib", "shutil", "tempfile", "io", "glob"}, file.name
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not [
            call for call in calls if call == "open" or (call.startswith("os.") and call != "os.getpid")
        ]
