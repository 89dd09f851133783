"""The command line as a person meets it: output, exit codes, bad input, help."""

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys

import pytest
from tools.make_docs import subcommands

import cairn
from cairn.surfaces.cli import GROUPS, HOMES, build_parser, main
from tests.waiting import LONG

ENV = {"CAIRN_EMBEDDING__PROVIDER": "none"}


def test_first_minutes(cli):
    """E19, E87, E117: init writes a starter, and keeps the system's own folders out of git; add, flush, search, get and show
    by the public id work in a row and say what to do next.
    """
    code, out, _ = cli("init")
    assert code == 0
    assert "cairn add" in out
    starter = (cli.root / "cairn.toml").read_text().splitlines()
    assert len(starter) > 50
    assert all(line.startswith(("#", "[")) for line in starter if line), (
        "every setting stands there, as a comment"
    )
    ignored = (cli.root / ".gitignore").read_text().splitlines()
    assert {"/.index/", "/.tmp/", "/cairn.toml"} <= set(ignored)
    (cli.root / ".gitignore").write_text("mine\n")
    assert cli("init", "--force")[0] == 0
    assert (cli.root / ".gitignore").read_text() == "mine\n"
    assert cli("add", "--session", "s1", "--sender", "alice", "I", "keep", "bees")[0] == 0
    assert cli("flush", "--session", "s1")[0] == 0
    code, out, _ = cli("search", "--user", "alice", "bees")
    assert code == 0
    assert "bees" in out
    code, out, _ = cli("get", "episode", "--user", "alice", "--json")
    entry = json.loads(out)["episodes"][0]["id"]
    assert entry.startswith("alice_ep_"), "the owner and the entry"
    code, out, _ = cli("show", entry)
    assert code == 0
    assert "line " in out
    assert "alice: I keep bees" in out


def test_an_empty_name_is_refused_not_taken_for_everybody(cli):
    """A variable that was not set (`--user "$WHO"`) neither lists everybody nor writes into the memory of the person here."""
    cli("add", "--session", "s1", "--sender", "alice", "I keep bees")
    cli("flush", "--session", "s1")
    for words in (
        ("timeline", "--user", ""),
        ("search", "--user", "", "bees"),
        ("remember", "I keep bees", "--user", ""),
        ("memories", "forget", "--words", "keep bees", "--user", "", "--yes"),
        ("memories", "list", "--scope", "user", "--owner", ""),
        ("audit", "--token", ""),
    ):
        code, out, err = cli(*words)
        assert (code, out) == (2, "")
        assert "the name is empty: name one, or leave the option out" in err
    assert cli("search", "--user", "alice", "bees")[0] == 0
    assert cli("memories", "list")[0] == 1, "nothing was remembered"


def test_a_person_alone_with_the_memory_names_nobody(cli):
    """What is said and asked without an owner is the person's of the settings."""
    cli("init")
    assert cli("add", "--session", "s1", "I keep bees")[0] == 0
    assert cli("flush", "--session", "s1")[0] == 0
    code, out, _ = cli("search", "bees")
    assert code == 0
    assert "I keep bees" in out
    assert len(json.loads(cli("get", "episode", "--json")[1])["episodes"]) == 1


def test_a_person_reads_what_was_said_and_a_program_what_it_asked_for(cli):
    """Below a hit stand the words that answer, as they were said, and no fact of it that is about something else."""
    cli("init")
    said = (
        "Hello there, good to see you.",
        "We are both vegetarian, my sister and I.",
        "My passport is green.",
    )
    for text in said:
        cli("add", "--session", "s1", "--sender", "mia", text)
    cli("flush", "--session", "s1")
    code, out, _ = cli("search", "--user", "mia", "vegetarian")
    assert code == 0
    assert "      mia: We are both vegetarian, my sister and I." in out.splitlines()
    assert "passport" not in out and "also said" not in out
    assert "evidence" not in json.loads(cli("search", "--user", "mia", "vegetarian", "--json")[1])
    code, out, _ = cli("search", "--user", "mia", "volcano")
    assert code == 1 and "vegetarian" not in out


def test_one_word_names_the_owner_in_every_command(cli):
    """`--user` and `--agent` are told as for a search, wherever a scope and its owner can be named."""
    cli("init")
    assert cli("remember", "Prefers short answers.", "--user", "alice")[0] == 0
    same = (["--user", "alice"], ["--scope", "user", "--owner", "alice"])
    for command in (["memories", "list"], ["timeline"], ["connections"]):
        told = [cli(*command, *whose) for whose in same]
        assert told[0] == told[1] and told[0][2] == ""
        assert ("short answers" in told[0][1]) is (
            command != ["connections"]
        )  # one alone is joined to nothing
    assert "short answers" not in cli("memories", "list", "--agent", "alice")[1]


def test_nothing_found_is_an_answer_with_exit_code_one(cli):
    """Silence is an answer: exit code 1 and a sentence."""
    cli("init")
    code, out, _ = cli("search", "--user", "nobody", "anything")
    assert code == 1
    assert "Nothing fits." in out and "`cairn owners`" in out and "--user" in out


@pytest.mark.parametrize("before", [True, False])
def test_global_options_stand_on_either_side(cli, before, tmp_path):
    """--json, --app and --project are understood before and after the subcommand."""
    options = ["--json", "--app", "acme"]
    words = ["add", "--session", "s", "--sender", "bob", "hello"]
    code, out, _ = cli(*([*options, *words] if before else [*words, *options]))
    assert code == 0
    assert json.loads(out)["message_count"] == 1
    assert (cli.root / "acme" / "default_project" / "sessions").exists()


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["add", "--session", "../x", "--sender", "a", "t"], 2, "session_id"),
        (["add", "--session", "s", "--sender", "..", "t"], 2, "sender_id"),
        (["add", "--session", "s"], 2, "nothing to add"),
        (["add", "--session", "s", "--file", "none.json"], 3, "none.json"),
        (["add", "--session", "s", "--file", __file__], 2, "cairn knowledge add"),
        (["search", "--user", "a", "--filters", "{", "x"], 2, "--filters"),
        (["search", "--user", "a", "--top-k", "0", "x"], 2, "top_k"),
        (["show", "nonsense"], 2, "entry id"),
        (["show", "alice_ep_20260101_00000001"], 3, "no entry"),
        (["import", "nowhere"], 3, "nowhere"),
        (["cascade", "sync", "notes.txt"], 2, "notes.txt"),
        (["reextract", "--date", "2026-13-45"], 2, "2026-13-45"),
        (["reextract", "--date", "20260601"], 2, "20260601"),
        (["reextract", "--user", "../x"], 2, "user_id"),
        (["reextract", "--session", ""], 2, "--session: the name is empty"),
        (["search", "--user", "a", "--as-of", "2026-13-45", "x"], 2, "as_of"),
        (["search", "--user", "a", "--as-of", "0001-01-01T00:00:00+14:00", "x"], 2, "as_of"),
        (["get", "episode", "--user", "a", "--page", "0"], 2, "page"),
        (["get", "episode", "--user", "a", "--sort-by", "luck"], 2, "luck"),
        (["log", "--limit", "0"], 2, "limit"),
        (["log", "--limit", "-1"], 2, "limit"),
        (["log", "--limit", "99999999999999999999"], 2, "limit"),
        (["diff", "2026-13-45"], 2, "2026-13-45"),
        (["diff", "0001-01-01T00:00:00+14:00"], 2, "0001-01-01"),
        (["restore", "2026-13-45"], 2, "2026-13-45"),
        (["server", "start", "--port", "99999999"], 6, "server.port"),
        (["export", "/proc/nowhere/x"], 5, "/proc/nowhere/x"),
        (["remember", "Tea is at four.", "--owner", "bob"], 2, "bob"),
        (["memories", "list", "--scope", "project", "--owner", "bob"], 2, "bob"),
        (["memories", "list", "--scope", "agent", "--user", "bob"], 2, "--user"),
        (["memories", "list", "--agent", "coder", "--user", "bob"], 2, "--user"),
        (["timeline", "--owner", "bob", "--agent", "bob"], 2, "--agent"),
        (["memories", "import", "--from", "claude", "--user", "../x", "cairn.toml"], 2, "owner"),
        (["skills", "import", "cairn.toml"], 2, "SKILL.md"),
        (["skills", "import", ""], 2, "path"),
        (["skills", "scan", ""], 2, "folders"),
        (["import", ""], 2, "path"),
        (["export", ""], 2, "path"),
        (["export", "x.zip"], 2, ".tar.gz"),
        (["add", "--session", "s", "--at", "yesterday", "hi"], 2, "2026-06-01"),
    ],
)
def test_bad_input_has_a_code_and_a_sentence(cli, words, code, part):
    """Errors go to standard error with the documented exit code; with --json they are JSON."""
    cli("init")
    (cli.root.parent / "cairn.toml").write_text("- a file that is no skill\n")
    got, out, err = cli(*words)
    assert got == code
    assert part in err
    assert out == ""
    got, out, _ = cli(*words, "--json")
    assert got == code
    assert part in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    "words",
    [
        ["search", "--user", "a", "x"],
        ["memories", "list"],
        ["memories", "show", "mem_20260101_00000001"],
        ["core", "show"],
        ["skills", "list"],
        ["sweep"],
        ["refresh"],
        ["log"],
        ["diff", "2026-01-01"],
        ["restore", "chk-000001"],
    ],
)
def test_a_misspelt_root_is_not_made_by_looking(cli, words):
    """What only reads or tidies a root makes none where there is none."""
    code, _, err = cli(*words)
    assert code == 3
    assert "There is no memory at" in err
    assert not cli.root.exists()


def test_an_empty_root_is_no_root(cli, tmp_path):
    """`--root ""` does not mean the folder one stands in."""
    code, _, err = cli("get", "episode", "--user", "a", "--root", "")
    assert code == 6
    assert "memory.root" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_bytes_that_are_no_text_are_said_again_without_a_traceback(tmp_path, as_json):
    """An argument that is not UTF-8 is refused by name, also where the terminal takes UTF-8 alone."""
    words = [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(tmp_path / "root")]
    env = {**os.environ, **ENV, "PYTHONIOENCODING": "utf-8:strict"}
    subprocess.run([*words, "init"], env=env, check=True, capture_output=True)
    done = subprocess.run(
        [*words, "show", b"\xffx", *(["--json"] if as_json else [])],
        env=env,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    if as_json:
        assert "entry_id: is no Unicode text" in json.loads(done.stdout)["error"]["message"]


def test_an_export_into_the_root_is_refused(cli):
    """A copy below the root would be read as memory itself."""
    cli("init")
    for name in ("inside", "inside.tar.gz", "../root/x"):
        code, _, err = cli("export", str(cli.root / name))
        assert code == 2
        assert "outside" in err
    assert not list(cli.root.glob("inside*"))


def test_log_takes_the_ids_that_search_prints(cli):
    """An entry's changes are found by its public id, its bare one and its place; nonsense is exit code 1."""
    cli("add", "--session", "s", "--sender", "alice", "I live in Porto.")
    cli("flush", "--session", "s")
    entry = json.loads(cli("get", "episode", "--user", "alice", "--json")[1])["episodes"][0]["id"]
    by_place = json.loads(cli("log", "--json")[1])
    wanted = next(one for one in by_place if one["entry"] == entry.removeprefix("alice_"))
    for name in (entry, wanted["entry"], f"{wanted['path']}#{wanted['entry']}", wanted["id"]):
        code, out, _ = cli("log", name, "--json")
        assert (code, json.loads(out)) == (0, [wanted])
    profile = json.loads(cli("log", "alice_profile", "--json")[1])
    assert {one["path"].rpartition("/")[2] for one in profile} == {"user.md"}
    for nobody in ("bob_" + wanted["entry"], "bob_profile", "nonsense"):
        assert cli("log", nobody)[0] == 1


def test_a_wrong_setting_is_exit_code_six(cli):
    """A misconfigured root names file and line."""
    cli.root.mkdir()
    (cli.root / "cairn.toml").write_text("[server]\nport = 'x'\n")
    code, _, err = cli("config", "show")
    assert code == 6
    assert "cairn.toml, line 2" in err


def test_config_show_names_origins(cli):
    """S80: config show prints every setting with its origin, what storage is chosen among them, and makes nothing."""
    code, out, _ = cli("config", "show", "--json")
    assert code == 0
    assert not cli.root.exists()
    rows = json.loads(out)
    assert rows["memory.root"]["from"] == "argument"
    assert rows["embedding.provider"]["from"] == "environment CAIRN_EMBEDDING__PROVIDER"


def test_what_is_wrong_with_the_strategies_file_is_told(cli):
    """E25, E122: a table of another program's is skipped alone, a file that is no TOML leaves things as they were; the list,
    the status and the doctor say so.
    """
    cli("add", "--session", "s", "--sender", "a", "pomegranate")
    file = cli.root / "ome.toml"
    foreign = "[strategies.trigger_profile_clustering]\nenabled = true\n"
    for text, trouble in (
        (
            f"{foreign}[strategies.extract_foresight]\nenabled = false\n",
            'there is no strategy "trigger_profile_clustering"',
        ),
        ("[strategies", "ome.toml"),
    ):
        file.write_text(text)
        listed = cli("ome", "list")[1]
        assert trouble in listed.splitlines()[-1]
        for command in ("status", "doctor"):
            assert trouble in cli(command)[1]
        if foreign in text:
            [row] = [line for line in listed.splitlines() if line.startswith("extract_foresight")]
            assert row.split()[1] == "off"
            assert "extract_atomic_facts\ton" in listed


def test_cascade_commands(cli):
    """E89-E92: status, sync, fix and rebuild work on a lone root; a rebuild keeps every row."""
    cli("add", "--session", "s", "--sender", "a", "pomegranate")
    cli("flush", "--session", "s")
    assert cli("cascade", "sync")[0] == 0
    status = json.loads(cli("cascade", "status", "--json")[1])
    assert status["pending"] == 0
    assert cli("cascade", "fix")[0] == 0
    rebuilt = json.loads(cli("cascade", "rebuild", "--json")[1])
    assert rebuilt["rows"] == status["rows"] > 0
    assert cli("search", "--user", "a", "pomegranate")[0] == 0


def test_a_line_that_was_set_aside_is_named(cli):
    """One hostile line in a session's log: every command answers, and `doctor` and `cascade status` name the line."""
    cli("add", "--session", "s", "--sender", "a", "pomegranate")
    with (cli.root / "default_app/default_project/sessions/s.jsonl").open("a") as log:
        log.write('{"t":"add","n":100000000000000000000,"messages":[]}\n')
    assert cli("add", "--session", "s", "--sender", "a", "quince")[0] == 0
    assert cli("flush", "--session", "s")[0] == 0
    for word in ("pomegranate", "quince"):
        assert cli("search", "--user", "a", word)[0] == 0

    where = "default_app/default_project/sessions/s.jsonl"
    assert f'{where}, line 2: its "n" is no place in a session' in cli("doctor")[1]
    assert f'set aside  {where}: line 2: its "n"' in cli("cascade", "status")[1]


def test_doctor_names_damage_and_the_next_step(cli):
    """A damaged note is found with file, line and what to do."""
    cli("add", "--session", "s", "--sender", "a", "text")
    cli("flush", "--session", "s")
    note = next(cli.root.glob("*/*/users/a/episodes/*.md"))
    note.write_text(note.read_text().replace("<!-- /entry:", "<!-- lost:"))
    _, out, _ = cli("doctor", "--json")
    findings = json.loads(out)["findings"]
    assert any(note.name in item["what"] and item["next"] for item in findings)


def test_doctor_sees_what_search_cannot(cli):
    """Hand-made notes that nothing reads are reported: text outside of entries, names that fit no kind."""
    cli("add", "--session", "s", "--sender", "a", "--at", "1780000000000", "text")
    cli("flush", "--session", "s")
    note = next(cli.root.glob("*/*/users/a/episodes/*.md"))
    note.with_name("old.md").write_text(note.read_text())
    note.with_name("episode-2026-01-01.md").write_text("A keeps bees.\n")
    note.write_bytes(note.read_bytes().replace(b"\n", b"\r\n"))
    found = {
        item["what"].split("episodes/")[-1]: item
        for item in json.loads(cli("doctor", "--json")[1])["findings"]
    }
    assert "rename" in found["old.md has a name that no note has; it is kept, but not searched"]["next"]
    bees = "episode-2026-01-01.md holds text outside of any entry; it is kept, but not searched"
    assert "entry markers" in found[bees]["next"]
    (ends,) = (item for what, item in found.items() if "Windows line ends" in what)
    assert ends["level"] == "info"


def test_export_and_import_carry_everything(cli, tmp_path):
    """A folder and an archive bring a memory to a new root; importing twice changes nothing."""
    cli("add", "--session", "s", "--sender", "a", "tamarind")
    cli("flush", "--session", "s")
    for target in (tmp_path / "copy", tmp_path / "copy.tar.gz"):
        assert cli("export", str(target))[0] == 0
        assert cli("export", str(target))[0] == 4
        other = str(tmp_path / f"root-{target.name}")
        assert main(["--root", other, "import", str(target)]) == 0
        assert main(["--root", other, "search", "--user", "a", "tamarind"]) == 0
        assert main(["--root", other, "import", str(target)]) == 0
        files = {p.relative_to(other).as_posix() for p in (tmp_path / f"root-{target.name}").rglob("*.md")}
        assert files == {p.relative_to(cli.root).as_posix() for p in cli.root.rglob("*.md")}


def test_an_import_of_nothing_makes_no_root(cli, tmp_path):
    """A slip in a name is said before a root is made for what does not come."""
    code, _, err = cli("import", str(tmp_path / "nope"))
    assert (code, "no such folder or archive" in err) == (3, True)
    assert not cli.root.exists()


@pytest.mark.parametrize("when", ["2026-06-01", "2026-06-01T02:00:00+02:00", "1780272000000"])
def test_when_it_was_said_is_a_day_a_time_or_milliseconds(cli, when):
    """`add --at` takes what --since takes; without an offset it is the display zone's."""
    assert cli("add", "--session", "s", "--sender", "a", "--at", when, "I keep bees")[0] == 0
    (log,) = cli.root.rglob("sessions/**/*.jsonl")
    assert "1780272000000" in log.read_text()


def test_import_merges_and_never_overwrites(cli, tmp_path):
    """Two roots with notes of one day merge entry by entry; what differs otherwise is kept beside."""
    other = tmp_path / "other"
    for root, text in ((cli.root, "first root"), (other, "second root")):
        at = "1780000000000"
        main(["--root", str(root), "add", "--session", text.split()[0], "--sender", "a", "--at", at, text])
        main(["--root", str(root), "flush", "--session", text.split()[0]])
    _, out, _ = cli("import", str(other), "--json")
    assert json.loads(out[out.index("{") :])["merged"] == 1
    note = next(cli.root.glob("*/*/users/a/episodes/*.md")).read_text()
    assert "first root" in note
    assert "second root" in note


def test_every_command_has_help_with_words():
    """Each command describes itself, and each option says what it means."""
    commands = subcommands(build_parser())
    assert len(commands) > 15
    for name, command in commands.items():
        assert command.description, name


def test_a_cold_keyword_search_is_quick(tmp_path):
    """A lone call imports no heavy library: numpy, lancedb, pyarrow, onnxruntime and pydantic stay out of add."""
    code = (
        "import sys\nfrom cairn.surfaces.cli import main\n"
        f"main(['--root', {str(tmp_path)!r}, 'add', '--session', 's', '--sender', 'a', 'hello'])\n"
        "heavy = {'numpy', 'lancedb', 'pyarrow', 'onnxruntime', 'pydantic', 'starlette', 'rich', 'yaml', 'httpx2'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **ENV})
    heavy = set(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))
    assert not heavy & {
        "numpy",
        "lancedb",
        "pyarrow",
        "onnxruntime",
        "starlette",
        "rich",
        "pydantic",
        "httpx2",
        "yaml",
    }, heavy


def test_a_server_begins_without_what_its_first_answer_does_not_need(tmp_path):
    """Repositories, YAML, the page, patterns of scripts without blanks, and the framework's routes wait until they are asked for."""
    code = (
        "import contextlib, sys\nfrom starlette.testclient import TestClient\n"
        "import cairn\nfrom cairn.aio import AsyncMemory\nfrom cairn.config import load\nfrom cairn.surfaces.http import build_app\n"
        "from cairn.language import words\n"
        f"app = build_app(AsyncMemory(load({str(tmp_path)!r})), hooks=True)\n"
        "with TestClient(app, base_url='http://127.0.0.1') as client:\n"
        "    assert client.get('/health').status_code == 200\n"
        "    loaded = {'yaml', 'numpy', 'cairn.projects', 'cairn.agents.taking', 'cairn.web.pages'} & set(sys.modules)\n"
        "    compiled = 'now' in vars(words._RUNS)\n"
        "    known = len(app.app._app.routes)\n"
        "    assert client.get('/api/v1/memory/nothing').status_code == 404\n"
        "    print(*sorted(loaded), compiled, known < len(app.app._app.routes))\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**clean, **ENV})
    assert done.stdout.split() == ["False", "True"], done.stderr[-2000:]


def test_import_cairn_is_light():
    """`import cairn` brings in nothing heavy and has exactly the public names."""
    code = "import sys, cairn; print(sorted({'numpy','lancedb','pydantic','yaml','asyncio','sqlite3'} & set(sys.modules)), len(cairn.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("[]"), done.stdout


def test_reading_makes_no_folder(cli):
    """A misspelt root is named, with the next step, and nothing appears in its place."""
    for words in (
        ["search", "--user", "a", "x"],
        ["doctor"],
        ["get", "episode", "--user", "a"],
        ["export", "o"],
    ):
        code, out, err = cli(*words)
        assert code == 3, words
        assert "cairn init" in err
        assert not out
    assert not cli.root.exists()


def test_a_root_that_is_a_file_is_named(cli):
    """The trouble is the root, not the settings file below it."""
    cli.root.write_text("not a folder")
    for words in (["init"], ["search", "--user", "a", "x"]):
        code, _, err = cli(*words)
        assert code == 6
        assert "is not a folder" in err
    assert cli.root.read_text() == "not a folder"


def test_usage_errors_are_one_sentence_and_json_when_asked(cli):
    """What argparse finds is reported like every other error."""
    code, out, err = cli("search", "--user", "a", "--top-k", "many", "x")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "--top-k" in err
    assert "`cairn search --help`" in err
    code, out, err = cli("search", "--json", "--user", "a", "--agent", "b", "x")
    assert (code, err) == (2, "")
    assert "--user" in json.loads(out)["error"]["message"]


def test_no_words_at_all_print_the_help(capsys):
    """`cairn` alone shows what there is."""
    assert main([]) == 2
    assert "first steps" in capsys.readouterr().out


def test_a_disk_error_is_a_sentence(cli, monkeypatch):
    """An error of the operating system that no part foresaw is no traceback."""
    monkeypatch.setattr(
        "cairn.config.starter_text",
        lambda: (_ for _ in ()).throw(OSError(28, "No space left", "x")),
    )
    code, out, err = cli("init")
    assert (code, out) == (5, "")
    assert err.startswith("cairn: No space left (x)")


def test_lists_say_what_each_memory_is(cli):
    """A profile shows its summary; an id without its owner is understood where one owner has it."""
    cli("add", "--session", "s", "--sender", "ana", "--name", "Ana", "I am allergic to peanuts.")
    cli("flush", "--session", "s")
    code, out, _ = cli("get", "profile", "--user", "ana")
    assert code == 0
    assert "Ana: I am allergic to peanuts" in out
    entry = json.loads(cli("get", "episode", "--user", "ana", "--json")[1])["episodes"][0]["id"]
    code, out, _ = cli("show", entry.removeprefix("ana_"))
    assert code == 0
    assert entry in out


def test_a_reflection_run_is_undone_without_knowing_its_id(cli):
    """`undo reflection` takes back the latest of them; without one it says that there is none."""
    for day in (1, 2):
        at = str(1_781_500_000_000 + day * 3_600_000)
        text = "The greenhouse heater broke again, so I ordered the spare valve from Berlin."
        cli("add", "--session", f"s{day}", "--sender", "ana", "--name", "Ana", "--at", at, text)
        cli("flush", "--session", f"s{day}")
    code, _, err = cli("undo", "reflection")
    assert code == 3
    assert "None has written anything yet" in err
    code, out, _ = cli("ome", "trigger", "reflect_episodes")
    assert code == 1
    assert "--force" in out
    before = {p: p.read_bytes() for p in cli.root.rglob("users/**/*.md")}
    assert cli("ome", "trigger", "reflect_episodes", "--force")[0] == 0
    assert {p: p.read_bytes() for p in cli.root.rglob("users/**/*.md")} != before
    code, out, err = cli("undo", "reflection")
    assert code == 0, err
    assert {p: p.read_bytes() for p in cli.root.rglob("users/**/*.md")} == before


def test_a_taken_port_is_one_sentence(cli):
    """The server names the address and the trouble, and prints no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = cli("server", "start", "--port", str(port))
    assert (code, out) == (6, "")
    assert err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err
    assert "--port" in err
    code, _, err = cli("server", "start", "--host", "no such host")
    assert code == 6
    assert err.count("\n") == 1


@pytest.mark.parametrize("provider", ["none", "auto"])
def test_the_demo_holds_what_it_shows(cli, monkeypatch, provider):
    """The tour ends well, with the local model and without one (then nothing waits for vectors)."""
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", provider)
    code, out, err = cli("demo", "--json")
    assert code == 0, out + err
    steps = json.loads(out)
    assert steps["ok"]


def test_what_was_remembered_commands_no_terminal(tmp_path):
    """Text with escapes, marks of direction and markup is shown on a terminal, not obeyed; tables stand it, too; what a
    program reads keeps its value.
    """
    said = "\x1b]0;owned\x07\x1b[2J \x9b31m \u202etxt.exe [/INST] [red]ramen[/red]\r\nin two lines"
    root, env = tmp_path / "root", {**os.environ, **ENV, "COLUMNS": "200"}
    with cairn.open_blocking(root) as memory:
        memory.remember(said, scope="user", owner="vic", mode="strict")
        memory.add("s1", [{"sender_id": "vic", "role": "user", "timestamp": 1780300000000, "content": said}])
        memory.flush("s1")

    def on_a_terminal(*words):
        ours, theirs = os.openpty()
        command = [sys.executable, "-P", "-m", "cairn.surfaces.cli", "--root", str(root), *words]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
            os.close(theirs)
            out = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while piece := os.read(ours, 65536):
                    out += piece
            os.close(ours)
        return process.wait(), out.decode()

    for words in (
        ["search", "--user", "vic", "ramen"],
        ["show", "vic_ep_20260601_00000001"],
        ["memories", "list", "--scope", "user", "--owner", "vic"],
        ["search", "--user", "vic", "--json", "ramen"],
    ):
        code, out = on_a_terminal(*words)
        assert code == 0, (words, out)
        assert "[red]ramen[/red]" in out, words
        assert "\x1b]0;" not in out and "\x1b[2J" not in out, words
        assert not set(out) & {"\x07", "\x9b", "\u202e"}, words
    assert "\\x1b]0;owned" in on_a_terminal("show", "\x1b]0;owned\x07")[1]
    told = subprocess.run(
        [sys.executable, "-P", "-m", "cairn.surfaces.cli", "--root", str(root), "session", "export", "s1", "--json"],
        capture_output=True, text=True, check=True, env=env,
    )  # fmt: skip
    assert json.loads(told.stdout)["messages"][0]["content"] == said


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["serach", "x"], 'no command "serach". Did you mean `cairn search`? See `cairn --help`.'),
        (["memories", "lst"], "Did you mean `cairn memories list`? See `cairn memories --help`."),
        (
            ["search", "--usr", "ann", "x"],
            "no option --usr. Did you mean `--user`? See `cairn search --help`.",
        ),
        (
            ["edit", "mem_1", "new words"],
            'no further words, as "new words"; what it takes besides goes by options.',
        ),
        (["edit", "mem_1", "new words"], "See `cairn memories edit --help`."),
        (["help", "nosuch"], 'no command "nosuch". See `cairn --help`.'),
    ],
)
def test_a_slip_of_the_fingers_is_answered_by_what_was_meant(cli, words, part):
    """Whatever level it happens on, the sentence names the nearest word and the help of that very command."""
    code, _, err = cli(*words)
    assert code == 2
    assert part in err


def test_help_is_a_word_too_and_lists_each_command_once_by_what_it_is_for(cli, monkeypatch):
    """`cairn help` and `cairn help COMMAND`; no command is missing in the list, nor there twice; nothing is wider than the terminal."""
    assert sorted(" ".join(GROUPS.values()).split()) == sorted(HOMES)
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = cli("help")
    assert code == 0
    assert all(f"\n{title}:\n" in out for title in GROUPS)
    listed = [line.split()[0] for line in out.splitlines() if re.match(r"  [a-z]", line)]
    assert [name for name in listed if name in HOMES] == " ".join(GROUPS.values()).split()
    examples = out.index("first steps:")
    assert max(map(len, out[:examples].splitlines())) <= 60
    code, out, _ = cli("help", "search")
    assert code == 0 and "usage: cairn search" in out


@pytest.mark.parametrize("text", [[], [""], [" "]])
def test_no_words_are_nothing_to_add(text, tmp_path, capsys):
    """An empty variable of a script is no message; it was kept as one."""
    assert main(["--root", str(tmp_path / "root"), "add", "--session", "s1", *text]) == 2
    assert "nothing to add: give a text or --file" in capsys.readouterr().err
    assert not list(tmp_path.rglob("sessions"))


def test_a_command_without_streams_does_its_work(tmp_path):
    """A daemon closes them: nothing is said, and what was asked is done."""
    command = shlex.join([sys.executable, "-m", "cairn.surfaces.cli", "--root", str(tmp_path / "root")])
    for closed in (">&-", "<&- >&- 2>&-"):
        words = f"{command} remember 'The tide of {len(closed)} turns at noon.' {closed}"
        done = subprocess.run(words, shell=True, capture_output=True, text=True, timeout=LONG)
        assert (done.returncode, done.stderr) == (0, "")
    notes = "".join(path.read_text() for path in (tmp_path / "root").rglob("memory-*.md"))
    assert notes.count("turns at noon.") == 2


def test_in_a_folder_that_was_removed_commands_and_tools_go_on(tmp_path):
    """An agent's work tree may be taken away under it: what needs no folder works, the rest names the trouble."""
    gone = tmp_path / "gone"
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting})

    def run(*words):
        gone.mkdir()
        program = [sys.executable, "-m", "cairn.surfaces.cli", *words]
        command = f"rmdir {shlex.quote(str(gone))} && exec {shlex.join(program)}"
        env = {**os.environ, "CAIRN_MEMORY__ROOT": str(tmp_path / "root"), "HOME": str(tmp_path)}
        return subprocess.run(
            command,
            shell=True,
            cwd=gone,
            env=env,
            input=hello + "\n",
            capture_output=True,
            text=True,
            timeout=LONG,
        )

    told = run("mcp")
    assert json.loads(told.stdout)["result"]["serverInfo"]["name"] == "cairn"
    for words in (("integrate", "off"), ("project", "status")):
        assert run(*words).stderr == "cairn: The folder you stand in is no longer there: go to another.\n"
