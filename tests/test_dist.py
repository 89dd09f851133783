"""What `make dist` refuses: a wheel that lacks a file of the package, has one too many, or says another version."""

import json
import zipfile
from pathlib import Path

import pytest
import yaml
from tools.check_dist import run, tracked_files, troubles_of

from cairn.engines import minilm
from cairn.errors import Misconfigured

ROOT = Path(__file__).parent.parent
ABOUT = "Version: 1.2.3\nProvides-Extra: model\nProvides-Extra: mcp\n\n"
PACKAGE = ("cairn/__init__.py", "cairn/strategies/ome.toml")


@pytest.fixture
def wheel(tmp_path):
    def make(*names, about=ABOUT):
        with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
            for name in names:
                archive.writestr(name, "")
            archive.writestr("cairn_memory-1.2.3.dist-info/METADATA", about)
        return tmp_path / "made.whl"

    return make


def test_a_whole_wheel_passes(wheel):
    """Every file there, nothing else, the right version: nothing to say."""
    assert list(troubles_of(wheel(*PACKAGE), PACKAGE, "1.2.3")) == []


def test_a_wheel_without_its_data_is_named(wheel):
    """A file that git knows and the wheel lacks is named, and so is one too many."""
    found = list(troubles_of(wheel("cairn/__init__.py", "tests/stray.py"), PACKAGE, "1.2.3"))
    assert found == [
        "cairn/strategies/ome.toml is not in the wheel",
        "tests/stray.py is in the wheel and not in git",
    ]


def test_a_wheel_of_another_version_is_named(wheel):
    """The metadata must say the version of the package and offer its extras."""
    found = list(
        troubles_of(wheel(*PACKAGE, about="Version: 1.2.2\nProvides-Extra: mcp\n\n"), PACKAGE, "1.2.3")
    )
    assert found == [
        "the wheel says version 1.2.2, the package 1.2.3",
        "the wheel does not offer the extra [model]",
    ]


def test_a_step_that_says_something_else_ends_the_check(tmp_path):
    """An exit code or an answer other than expected stops `make dist`."""
    with pytest.raises(SystemExit, match="exit code 3"):
        run("step", ["sh", "-c", "exit 3"], cwd=tmp_path, env={})
    with pytest.raises(SystemExit, match="Lisbon"):
        run("step", ["sh", "-c", "echo Porto"], cwd=tmp_path, env={}, expect="Lisbon")


def test_git_knows_the_files_that_are_no_python():
    """Prompts, word lists and switches are among the files a wheel must have."""
    known = tracked_files()
    assert {"cairn/strategies/ome.toml", "cairn/language/data/en.toml", "cairn/py.typed"} <= known
    assert any(name.startswith("cairn/talk/prompts/") for name in known)


def test_a_release_is_checked_before_it_is_published():
    """The job that publishes waits for the one that tests, builds and tries, and keeps no secret of its own."""
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert [step["run"] for step in jobs["build"]["steps"] if "make dist" in step.get("run", "")]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_a_model_that_cannot_run_is_not_called_installed(tmp_path, monkeypatch):
    """A model somebody else left in the cache is of no use without the packages that run it: they are named."""
    folder = tmp_path / minilm.FOLDER
    folder.mkdir()
    for name in (minilm.GRAPH, minilm.TOKENIZER):
        (folder / name).write_text("left")
    sizes = dict.fromkeys((minilm.GRAPH, minilm.TOKENIZER), 4)
    (folder / minilm.STAMP).write_text(json.dumps({"model": minilm.MODEL_ID, "sizes": sizes}))
    monkeypatch.setattr(minilm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        Misconfigured, match=r"onnxruntime, tokenizers: run `pip install 'cairn-memory\[model\]'`"
    ):
        minilm.install_model(tmp_path)
