"""Settings come from five places in a fixed order, and every mistake is named with its place."""

import re

import pytest

from cairn.config import SECTIONS, load, shown
from cairn.errors import Misconfigured
from cairn.surfaces.starter import starter_text, write_starter


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home and working directory, so that no .env of this machine is read."""
    monkeypatch.chdir(tmp_path)
    return {"HOME": str(tmp_path / "home")}


def test_defaults_need_nothing(home):
    """With no file and no variable the defaults hold and the root is ~/.cairn (E10)."""
    settings = load(environ=home)
    assert settings.memory.root == "~/.cairn"
    assert settings.llm.base_url == ""
    assert settings.server.host == "127.0.0.1"


def test_each_source_wins_over_the_one_before(home, tmp_path):
    """Defaults < cairn.toml < .env < environment < argument, and each value says where it came from."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "cairn.toml").write_text(
        "[capture]\nmax_messages = 10\nmax_tokens = 11\n[server]\nport = 1\n[search]\ntop_k = 1\n"
    )
    (tmp_path / ".env").write_text("CAIRN_CAPTURE__MAX_TOKENS=22\nCAIRN_SERVER__PORT=2\nOTHER=1\n")
    env = {**home, "CAIRN_SERVER__PORT": "3", "CAIRN_SEARCH__TOP_K": "3"}
    settings = load(root, environ=env, search__top_k=4)
    assert settings.capture.max_messages == 10
    assert settings.capture.max_tokens == 22
    assert settings.server.port == 3
    assert settings.search.top_k == 4
    assert settings.origins["capture.max_messages"] == "cairn.toml, line 2"
    assert settings.origins["capture.max_tokens"].endswith(".env, line 1")
    assert settings.origins["server.port"] == "environment CAIRN_SERVER__PORT"
    assert settings.origins["search.top_k"] == "argument"


def test_first_env_file_wins(home, tmp_path):
    """E11: ./.env, then the XDG folder, then the home folder; the first that is there is the only one read."""
    xdg = tmp_path / "xdg"
    (xdg / "cairn").mkdir(parents=True)
    (xdg / "cairn" / ".env").write_text("CAIRN_SERVER__PORT=7\n")
    (tmp_path / "home" / ".cairn").mkdir(parents=True)
    (tmp_path / "home" / ".cairn" / ".env").write_text("CAIRN_SERVER__PORT=8\nCAIRN_SEARCH__TOP_K=8\n")
    env = {**home, "XDG_CONFIG_HOME": str(xdg)}
    settings = load(environ=env)
    assert settings.server.port == 7
    assert settings.search.top_k == 10


def test_root_from_the_environment_finds_its_toml(home, tmp_path):
    """E10: the root may come from the environment, and its cairn.toml is then read."""
    (tmp_path / "cairn.toml").write_text('[memory]\ntimezone = "Europe/Berlin"\n')
    settings = load(environ={**home, "CAIRN_MEMORY__ROOT": str(tmp_path)})
    assert settings.root == tmp_path
    assert settings.zone.key == "Europe/Berlin"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[capture]\nmax_mesages = 3\n", ["cairn.toml, line 2", "max_mesages", "max_messages"]),
        ("[captures]\nmax_messages = 3\n", ["cairn.toml, line 2", "captures"]),
        ("[server]\n\nport = 'x'\n", ["cairn.toml, line 3", "server.port", "whole number"]),
        ("[server]\nport = -1\n", ["line 2", "server.port"]),
        ("[server]\nport = true\n", ["line 2", "server.port"]),
        ("[capture]\ntopic_shift = 'maybe'\n", ["line 2", "true or false"]),
        ("[capture]\nmode = 'group'\n", ["line 2", "chat, agent"]),
        ("[memory]\ntimezone = 'Mars/Base'\n", ["line 2", "Mars/Base", "time zone"]),
        ("[llm]\nbase_url = 'http://x'\n", ["base_url and model", "model is missing"]),
        ("port = 3\n", ["line 1", "[section]"]),
        ("[server\n", ["cairn.toml"]),
        ("[server]\nport = nan\n", ["server.port"]),
        ("[server]\nallowed_hosts = [1]\n", ["list of texts"]),
    ],
)
def test_mistakes_are_named_with_their_place(home, tmp_path, toml, words):
    """An unknown name or a bad value names file, line, setting and what would be right."""
    (tmp_path / "cairn.toml").write_text(toml)
    with pytest.raises(Misconfigured) as caught:
        load(tmp_path, environ=home)
    for word in words:
        assert word in str(caught.value)


def test_unknown_environment_variables_are_named(home):
    """A misspelt CAIRN_ variable is an error, not silence."""
    with pytest.raises(Misconfigured, match="CAIRN_SERVER__PROT"):
        load(environ={**home, "CAIRN_SERVER__PROT": "1"})
    with pytest.raises(Misconfigured, match="CAIRN_SECTION__KEY"):
        load(environ={**home, "CAIRN_ROOT": "/x"})


def test_secrets_are_masked_when_shown(home):
    """Keys and tokens never appear in `config show`."""
    env = {**home, "CAIRN_LLM__API_KEY": "k-123", "CAIRN_SERVER__TOKENS": "t" * 20 + " r;" + "u" * 20}
    settings = load(environ=env)
    assert len(settings.server.tokens) == 2
    text = str(shown(settings))
    assert "k-123" not in text
    assert "tttt" not in text
    assert "(set, not shown)" in text


def test_starter_lists_every_setting_and_changes_nothing(home, tmp_path):
    """`cairn init` writes every setting, commented out: loading it gives the defaults."""
    text = starter_text()
    for section, cls in SECTIONS.items():
        assert f"[{section}]" in text
        for key in cls.__dataclass_fields__:
            assert (section, key) == ("memory", "root") or f"# {key} = " in text
    assert write_starter(tmp_path) is True
    assert write_starter(tmp_path) is False
    assert load(tmp_path, environ=home).server == load(environ=home).server


def test_starter_lines_are_valid_when_uncommented(home, tmp_path):
    """Every commented default is valid TOML for its setting."""
    text = re.sub(r"^# (?=[a-z_]+ = [^`]*$)", "", starter_text(), flags=re.MULTILINE)
    (tmp_path / "cairn.toml").write_text(text)
    assert load(tmp_path, environ=home).capture == load(environ=home).capture
