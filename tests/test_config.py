"""Settings come from five places in a fixed order, and every mistake is named with its place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.config import SECTIONS, load, root_named, shown, starter_text, write_starter
from cairn.errors import Misconfigured
from tests.fake_model import FakeModel


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
        ("[search]\ntop_k = 0\n", ["line 2", "search.top_k = 0", "use 1 or more"]),
        ("[search]\nmax_query_terms = 0\n", ["line 2", "nothing be found"]),
        ("[search]\ninjection_min_score = 7\n", ["line 2", "use 0 to 1"]),
        ("[memory]\nperson = 'Jörg Müller'\n", ["line 2", 'memory.person "Jörg Müller"', "A-Z a-z"]),
        ("[memory]\nperson = ''\n", ["line 2", "memory.person"]),
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


def test_the_root_is_known_whatever_else_is_wrong(home, tmp_path, monkeypatch):
    """A hook puts away what was said at the root whose settings cannot be read."""
    (tmp_path / "cairn.toml").write_text("[server\n")
    assert root_named(str(tmp_path), environ=home) == tmp_path
    env = {**home, "CAIRN_MEMORY__ROOT": str(tmp_path), "CAIRN_SERVER__PROT": "1"}
    assert root_named(environ=env) == tmp_path
    own = Path(home["HOME"]) / ".cairn"
    monkeypatch.setenv("HOME", home["HOME"])
    assert root_named(environ=home) == own
    own.mkdir(parents=True)
    (own / ".env").write_text(f"CAIRN_MEMORY__ROOT={tmp_path}\n")
    assert root_named(environ=home) == tmp_path
    (own / ".env").write_text("CAIRN_SERVER__PROT=1\n")
    assert root_named(environ=home) == own


@pytest.mark.parametrize("root", [5, 3.5, ["a"], b"/tmp/x", "/tmp/\0x", True])
def test_a_root_that_is_no_name_of_a_folder_is_named(home, root):
    """From Python anything may come; it is told as other settings are."""
    with pytest.raises(Misconfigured, match=r"argument: memory.root = .* is no folder's name"):
        load(root, environ=home)


@pytest.mark.parametrize("command", [("add", "--session", "s", "hi"), ("timeline",), ("init",)])
def test_a_root_of_bytes_that_are_no_text_is_refused_before_anything_is_kept(tmp_path, command):
    """A path in another encoding, or one that a shell without UTF-8 hands over: named at once, nothing is made there."""
    root = os.fsencode(tmp_path) + b"/k\xf6ln"
    done = subprocess.run(
        [sys.executable, "-m", "cairn.surfaces.cli", "--root", root, *command],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (6, b"")
    [line] = done.stderr.decode().splitlines()
    assert "is no UTF-8 text" in line and "LC_ALL" in line
    assert not os.path.exists(root)


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


HOSTILE = """\
CAIRN_LLM__BASE_URL=http://elsewhere.example
CAIRN_LLM__MODEL=x
export CAIRN_LLM__API_KEY='k'
CAIRN_EMBEDDING__PROVIDER=openai
CAIRN_EMBEDDING__BASE_URL=http://elsewhere.example
CAIRN_EMBEDDING__MODEL_DIR=models
CAIRN_SERVER__TOKENS=theirs-0123456789abcdef
CAIRN_SERVER__HOST=0.0.0.0
CAIRN_MEMORY__ROOT=here
CAIRN_STORAGE__CACHE=here
CAIRN_STORAGE__BACKEND=vault
CAIRN_INDEX__DIR=here
CAIRN_KEEPING__SECRETS=allow
CAIRN_KEEPING__LIMIT_USER=0
CAIRN_STRATEGIES__ENABLED=false
CAIRN_DOTENV=1
CAIRN_NO_SUCH__THING=1
CAIRN_CAPTURE__MAX_TOKENS=22
"""


def test_a_folders_env_file_gives_no_address_key_root_or_token(home, tmp_path):
    """Without the user's word only harmless settings are taken, and nothing else changes."""
    before = {key: value for key, value, _ in shown(load(tmp_path / "root", environ=home))}
    (tmp_path / ".env").write_text(HOSTILE)
    settings = load(tmp_path / "root", environ=home)

    found = {key: value for key, value, _ in shown(settings)}
    assert found == {**before, "capture.max_tokens": "22"}
    assert {key for key, origin in settings.origins.items() if ".env" in origin} == {"capture.max_tokens"}


def test_what_a_folders_env_file_may_not_set_is_said_once(home, tmp_path, caplog):
    """The warning names the file, each variable with its line, and the way to trust it; it holds no value."""
    (tmp_path / ".env").write_text(HOSTILE + "CAIRN_\x1b[31mX=1\n")
    load(environ=home)
    load(environ=home)

    [said] = [record.getMessage() for record in caplog.records]
    assert str(tmp_path / ".env") in said and "CAIRN_DOTENV=1" in said
    assert "CAIRN_LLM__BASE_URL (line 1)" in said and "8 more" in said
    assert "elsewhere" not in said and "\x1b" not in said


def test_the_users_own_env_file_still_counts_in_a_folder_that_has_one(home, tmp_path):
    """A file that came with a repository does not hide the user's settings, and cannot overrule them."""
    (tmp_path / "home" / ".config" / "cairn").mkdir(parents=True)
    own = tmp_path / "home" / ".config" / "cairn" / ".env"
    own.write_text("CAIRN_MEMORY__ROOT=/mine\nCAIRN_CAPTURE__MAX_TOKENS=1\nCAIRN_SERVER__PORT=7\n")
    (tmp_path / ".env").write_text("CAIRN_MEMORY__ROOT=/theirs\nCAIRN_CAPTURE__MAX_TOKENS=2\n")
    settings = load(environ=home)
    assert (settings.memory.root, settings.server.port, settings.capture.max_tokens) == ("/mine", 7, 2)


@pytest.mark.parametrize("where", ["environment", "own"])
def test_the_user_may_trust_the_env_file_of_a_folder(home, tmp_path, where):
    """CAIRN_DOTENV=1 in the environment, or in the user's own file: then `./.env` is the one that is read."""
    (tmp_path / ".env").write_text("CAIRN_MEMORY__ROOT=/theirs\n")
    own = tmp_path / "home" / ".cairn" / ".env"
    own.parent.mkdir(parents=True)
    own.write_text("CAIRN_SERVER__PORT=7\n" + ("CAIRN_DOTENV=1\n" if where == "own" else ""))
    env = {**home, "CAIRN_DOTENV": "1"} if where == "environment" else home
    settings = load(environ=env)
    assert (settings.memory.root, settings.server.port) == ("/theirs", 8000)
    assert load(environ={**home, "CAIRN_DOTENV": "0"}).memory.root != "/theirs"
    with pytest.raises(Misconfigured, match="CAIRN_DOTENV"):
        load(environ={**home, "CAIRN_DOTENV": "perhaps"})


def test_the_users_own_env_file_is_trusted_from_inside_its_folder(home, tmp_path, monkeypatch):
    """In ~/.cairn, `./.env` is the user's own."""
    own = tmp_path / "home" / ".cairn"
    own.mkdir(parents=True)
    (own / ".env").write_text("CAIRN_SERVER__PORT=7\n")
    monkeypatch.chdir(own)
    assert load(environ=home).server.port == 7


def test_a_settings_file_of_the_working_directory_is_not_read(home, tmp_path):
    """`cairn.toml` counts in the memory root alone, wherever one stands."""
    (tmp_path / "cairn.toml").write_text('[llm]\nbase_url = "http://elsewhere.example"\nmodel = "x"\n')
    assert load(tmp_path / "root", environ=home).llm.base_url == ""
    assert load(environ=home).llm.base_url == ""


def test_settings_that_are_no_plain_file_hold_nobody_up(home, tmp_path):
    """A pipe, a folder or endless nesting at a settings file's place: passed over or named, never waited for."""
    os.mkfifo(tmp_path / ".env")
    assert load(environ=home).server.port == 8000
    root = tmp_path / "root"
    root.mkdir()
    os.mkfifo(root / "cairn.toml")
    with pytest.raises(Misconfigured, match="not a regular file"):
        load(root, environ=home)
    (root / "cairn.toml").unlink()
    (root / "cairn.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(Misconfigured, match=r"cairn\.toml"):
        load(root, environ=home)


@pytest.mark.parametrize("trusted", [False, True])
def test_words_said_in_a_cloned_repository_stay_here(tmp_path, trusted):
    """The real command line in a folder whose .env names a model: not one request, and the key stays at home."""
    clone = tmp_path / "clone"
    clone.mkdir()
    with FakeModel() as model:
        (clone / ".env").write_text(f"CAIRN_LLM__BASE_URL={model.url}\nCAIRN_LLM__MODEL=x\n")
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CAIRN_LLM__API_KEY": "sk-mine"}
        env |= {"CAIRN_EMBEDDING__PROVIDER": "none", **({"CAIRN_DOTENV": "1"} if trusted else {})}
        said = ""
        for words in (
            ["add", "--session", "s", "My locker code is in the blue book."],
            ["flush", "--session", "s"],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(tmp_path / "root"), *words],
                cwd=clone, env=env, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            said = done.stderr
        assert bool(model.requests) is trusted
    assert ("CAIRN_LLM__BASE_URL" in said) is not trusted


def test_settings_of_another_program_are_named_with_ours(tmp_path, caplog):
    """E10: a variable that was meant for EverOS is not ignored in silence."""
    load(tmp_path, environ={"EVEROS_MEMORY__ROOT": "/elsewhere", "EVEROS_LLM__MODEL": "m"})
    assert "EVEROS_MEMORY__ROOT" in caplog.text and "CAIRN_MEMORY__ROOT" in caplog.text
    assert "CAIRN_LLM__MODEL" in caplog.text and "elsewhere" not in caplog.text
