"""`doctor` where the root itself is in trouble: one finding more, never an end."""

import os
import subprocess

import pytest

import cairn
from cairn import config
from cairn.engines import minilm
from tests.crash.test_full_disk import small_disk

AT = 1_780_000_000_000
OPTIONS = {"embedding__provider": "none", "background": False}


def damaged_root(root):
    """A root with one damaged note and a credential somebody wrote in by hand."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        said = {"sender_id": "ann", "role": "user", "timestamp": AT, "content": "I live in Porto."}
        memory.add("s", [said])
        memory.flush("s")
        memory.remember("The pier closes at dusk.")
    note = next(root.glob("*/*/users/ann/episodes/*.md"))
    note.write_text(note.read_text().replace("<!-- /entry:", "<!-- lost:"))
    kept = next(root.glob("*/*/shared/memories/*.md"))
    kept.write_text(kept.read_text().replace("at dusk.", "at dusk. password = hunter2hunter2"))


def looked_after(root):
    with cairn.open_blocking(root, **OPTIONS) as memory:
        return [(item["level"], item["what"]) for item in memory.doctor()]


def assert_all_is_told(found, trouble):
    assert ("fail", trouble) in [(level, what.partition(": ")[2]) for level, what in found]
    assert any("is opened but not closed" in what for _, what in found)
    assert any("holds a credential" in what for _, what in found)
    assert [level for level, _ in found] == sorted((level for level, _ in found), key="fail warn info".index)


@pytest.mark.parametrize("bare", [False, True])
def test_a_read_only_disk_is_one_finding_among_others(tmp_path, bare):
    """A root on a read-only file system is looked through to the end, even where it has no index yet."""
    with small_disk(tmp_path / "disk") as disk:
        root = disk / "root"
        damaged_root(root)
        if bare:
            subprocess.run(
                ["rm", "-r", str(root / ".index"), str(root / ".tmp"), str(root / "ome.toml")], check=True
            )
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert_all_is_told(looked_after(root), "the file system is read-only")
        with cairn.open_blocking(root, **OPTIONS) as memory:
            assert memory.show("ann_profile")["kind"] == "profile"
            with pytest.raises(cairn.CairnError, match="ead-only"):
                memory.remember("The pier opens at dawn.")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_finding_among_others(tmp_path):
    """A root whose mode forbids writing is looked through to the end."""
    root = tmp_path / "root"
    damaged_root(root)
    root.chmod(0o500)
    try:
        assert_all_is_told(looked_after(root), "permission is denied")
    finally:
        root.chmod(0o700)


def test_a_look_that_breaks_is_told_and_the_others_go_on(tmp_path):
    """An index that cannot be opened hides no other finding."""
    root = tmp_path / "root"
    damaged_root(root)
    with cairn.open_blocking(root, **OPTIONS) as memory:

        def broken():
            raise cairn.Unavailable("the queue is away")

        memory.parts.state.failures = broken
        found = [(item["level"], item["what"]) for item in memory.doctor()]
    assert ("fail", "the index could not be looked at: the queue is away") in found
    assert any("is opened but not closed" in what for _, what in found)


def test_a_healthy_root_has_no_findings(tmp_path):
    """Where all is well nothing is said."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, **OPTIONS) as memory:
        memory.remember("The pier closes at dusk.")
        memory.sync()
    assert looked_after(root) == []


AT = 1_790_000_000_000


def test_who_writes_a_language_the_model_does_not_know_is_told_which_setting_helps(tmp_path):
    """By `status` and `doctor`; not who writes English, and not who chose the model themself."""
    if minilm.installed(config.models_dir()) is None or minilm.missing_packages():
        pytest.skip("the local model is not installed: run `make setup`")
    said = {
        "de": [
            "Ich wohne jetzt in der Gerberstraße.",
            "Wir haben gestern eine Teekanne gekauft, die nicht tropft.",
        ],
        "en": ["I live in Tanner Street now.", "Yesterday we bought a teapot that does not drip."],
    }
    for language, texts in said.items():
        with cairn.open_blocking(tmp_path / language, background=False) as memory:
            for number in range(12):
                text = f"{texts[number % 2]} {number}"
                memory.add(
                    "s1", [{"sender_id": "me", "role": "user", "timestamp": AT + number, "content": text}]
                )
            memory.flush("s1")
            memory.sync()
            told = [one for one in memory.status()["warnings"] if "multilingual" in one]
            found = [one for one in memory.doctor() if "multilingual" in str(one)]
            assert bool(told) is bool(found) is (language == "de"), language
    with cairn.open_blocking(tmp_path / "de", background=False, **{"embedding.provider": "minilm"}) as memory:
        assert not [one for one in memory.status()["warnings"] if "multilingual" in one]
