"""All of a person or a session: handed over, and forgotten to the last byte, through Python, the command line and HTTP."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

import cairn
from cairn.agents.warm import Warm
from cairn.engines import audit, spool
from cairn.surfaces.cli import main
from tests import held
from tests.surfaces.served import serving_here

QUIET = {"CAIRN_EMBEDDING__PROVIDER": "none"}


def said(who, words, at, role="user"):
    return {"sender_id": who, "role": role, "timestamp": 1780300000000 + at * 1000, "content": words}


def a_life(memory):
    """Alicia alone, Alicia and Bob together, Bob about her; memories, facts, a profile, history, pages, hits."""
    alone = [
        said("alicia", "I moved to Lisbon in May.", 0),
        said("helper", "Lisbon is noted.", 1, "assistant"),
        said("alicia", "My sister Vera lives in Porto. I plan to visit her next week.", 2),
    ]
    memory.add("alicias-own", alone, idempotency_key="alicia-1")
    memory.flush("alicias-own")
    memory.add(
        "together", [said("alicia", "My cat is called Plumkin.", 10), said("bob", "I prefer green tea.", 11)]
    )
    memory.flush("together")
    memory.add("alicias-open", [said("alicia", "An open word of mine.", 100)])
    memory.add("bobs-own", [said("bob", "I met alicia at the harbour.", 200)])
    memory.flush("bobs-own")
    for words in ("Alicia likes sailing.", "Alicia keeps her boat in bay nine."):
        memory.remember(words, scope="user", owner="alicia")
    memory.remember("The release is on Friday.")
    memory.checkpoint("before")
    memory.search("where does she live", user_id="alicia", consistency="strong")
    memory.parts.engine.run_due(seconds=30)
    memory.memories.sweep()
    memory.sync()


def holding(root: Path, words: str) -> list[str]:
    return held.holding(root, words, pattern=True)


class ThroughPython:
    def __init__(self, root):
        self.root = root

    def ask(self, name, **fields):
        with cairn.open_blocking(self.root) as memory:
            row = getattr(cairn.Memory, name).operation
            return row.told(memory, row.call(memory, **fields), fields)


class ThroughCommands:
    def __init__(self, root, capsys):
        self.root, self.capsys = root, capsys

    def ask(self, name, **fields):
        verb, what = name.split("_")
        subject = fields.pop("user_id", None) or fields.pop("session_id")
        flags = [f"--{key.replace('_', '-')}" for key, value in fields.items() if value]
        if verb == "forget" and not fields.get("dry_run"):
            assert (
                main(["--root", str(self.root), what, verb, subject]) == 2
            )  # nobody can answer: --yes is needed
            flags.append("--yes")
        self.capsys.readouterr()
        main(["--root", str(self.root), "--json", what, verb, subject, *flags])
        return json.loads(self.capsys.readouterr().out)


class ThroughHttp:
    def __init__(self, server):
        self.server = server

    def ask(self, name, **fields):
        verb, what = name.split("_")
        if verb == "forget":
            status, answer = self.server.post(f"{what}/forget", fields)
        else:
            key, value = fields.popitem()
            status, answer = self.server.call("GET", f"/api/v1/{what}?{key}={value}")
        assert status == 200, answer
        return answer["data"]


@pytest.fixture(params=["python", "commands", "http"])
def reached(request, tmp_path, monkeypatch, capsys):
    """A root with a life in it, and a way to reach it."""
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "root"
    with cairn.open_blocking(root) as memory:
        a_life(memory)
    if request.param == "http":
        with serving_here(root, env=QUIET) as server:
            yield root, ThroughHttp(server)
    else:
        yield root, ThroughPython(root) if request.param == "python" else ThroughCommands(root, capsys)


def test_a_person_is_handed_over_and_forgotten_to_the_last_byte(reached):
    """Everything of hers is in the export; a preview changes nothing; afterwards only what others say names her, and the
    receipt tells of that, of the backups, and of what went.
    """
    root, by = reached
    export = by.ask("export_person", user_id="alicia")
    text = json.dumps(export)
    for words in (
        "moved to Lisbon",
        "Vera lives in Porto",
        "Plumkin",
        "open word",
        "likes sailing",
        "bay nine",
    ):
        assert words in text
    assert "green tea" not in json.dumps(export["sessions"])
    assert {one["session_id"]: one["shared"] for one in export["sessions"]} == {
        "alicias-own": False,
        "alicias-open": False,
        "together": True,
    }
    before = sorted(path for path in root.glob("*/*/users/**/*"))
    told = by.ask("forget_person", user_id="alicia", shared=True, dry_run=True)
    assert (told["dry_run"], told["complete"]) == (True, False)
    assert told["sessions"] == ["alicias-open", "alicias-own"]
    assert sorted(path for path in root.glob("*/*/users/**/*")) == before

    receipt = by.ask("forget_person", user_id="alicia", shared=True)
    assert receipt["complete"], receipt["stays"]
    assert receipt["removed"]["sessions"] == 2
    assert receipt["removed"]["messages"] == told["removed"]["messages"] == 5
    assert receipt["removed"]["notes"] >= 4
    why = {one["where"]: one["why"] for one in receipt["stays"]}
    assert "backups" in why
    named = [where for where in why if "bob" in where]
    assert named
    assert all("others' words" in why[where] for where in named)
    # No word she said, and no name of her sessions, anywhere; her id only where Bob said it, and in copies of that.
    assert holding(root, "Lisbon|Porto|Plumkin|open word|sailing|bay nine|alicias-o|alicia-1") == []
    left = [name for name in holding(root, r"alicia") if not name.startswith(".index")]
    assert all("bob" in name or "texts.jsonl" in name for name in left), left
    assert not any("alicia" in name for name in left)
    with cairn.open_blocking(root) as memory:
        assert "green tea" in str(memory.get(user_id="bob", memory_type="episode"))
        assert "harbour" in str(memory.get(user_id="bob", memory_type="episode"))
        with pytest.raises(cairn.NotFound):
            memory.forget_person("alicia")
        assert memory.restore("chk-000001", dry_run=True) is not None
        assert memory.doctor() == [] or "alicia" not in str(memory.doctor())


def test_what_was_said_with_others_stays_unless_asked_for(reached):
    """Without `shared` a session of several is theirs: it stays, and the receipt says so. A session goes as a whole,
    for everybody who was in it.
    """
    root, by = reached
    receipt = by.ask("forget_person", user_id="alicia")
    assert receipt["complete"], receipt["stays"]
    assert ("session together", True) in [
        (one["where"], "others had a part" in one["why"]) for one in receipt["stays"]
    ]
    assert any("sessions" in name for name in holding(root, "Plumkin"))
    assert not (root / "default_app/default_project/users/alicia").exists()
    export = by.ask("export_session", session_id="together")
    assert "Plumkin" in str(export["messages"])
    assert [one["kind"] for one in export["entries"]].count("episode") == 1
    preview = by.ask("forget_session", session_id="together", dry_run=True)
    assert preview["removed"]["messages"] == 2
    receipt = by.ask("forget_session", session_id="together")
    assert receipt["complete"], receipt["stays"]
    assert holding(root, "Plumkin|green tea|together") == []
    assert any("users/bob" in name for name in holding(root, "harbour"))


def test_the_audit_log_forgets_too(tmp_path):
    """Lines about her stay as lines, without her name; the call that forgot her does not bring it back."""
    root = tmp_path / "root"
    with serving_here(root, env={**QUIET, "CAIRN_STRATEGIES__ENABLED": "false"}) as server:
        body = {"session_id": "alicias-own", "messages": [said("alicia", "I sail.", 0)]}
        assert server.post("memory/add", body)[0] == 200
        assert server.post("memory/search", {"user_id": "alicia", "query": "sail"})[0] == 200
        assert b"alicia" in (root / ".server" / "audit.jsonl").read_bytes()
        assert server.post("person/forget", {"user_id": "alicia"})[1]["data"]["complete"]
    assert holding(root, "alicia") == []
    lines = [json.loads(line) for line in (root / ".server" / "audit.jsonl").read_bytes().splitlines()]
    assert [line["operation"] for line in lines] == ["add", "search", "forget_person"]
    assert lines[1]["about"]["user_id"] == "[forgotten]"


@pytest.mark.parametrize("who", ["al", "anna"])
def test_a_name_that_others_words_hold_is_forgotten_wholly(tmp_path, who):
    """ "Anna" stands in "Susanna" and "al" in "also": that these are in the index is no trace of who went."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        memory.add("bobs", [said("bob", "I also met Susanna at the annals of Hannah.", 0)])
        memory.flush("bobs")
        memory.add("own", [said(who, "I sail to Lisbon.", 100)])
        memory.flush("own")
        memory.parts.engine.run_due(seconds=30)
        receipt = memory.forget_person(who)
        assert receipt.complete, receipt.stays
    assert holding(root, "Lisbon") == []


def test_a_disk_that_fills_up_meanwhile_leaves_a_receipt_that_says_so(tmp_path, monkeypatch):
    """Where the audit log cannot be written anew she is not forgotten yet, though others name her; the next call ends it."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        a_life(memory)
        log = root / ".server" / "audit.jsonl"
        log.parent.mkdir(exist_ok=True)
        log.write_text('{"at":"2026-06-01T00:00:00Z","about":{"user_id":"alicia"}}\n')
        with monkeypatch.context() as full:
            full.setattr(
                audit.plain, "put", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no room"))
            )
            receipt = memory.forget_person("alicia", shared=True)
        assert not receipt.complete
        assert "no room" in dict(receipt.stays)["audit lines"]
        assert memory.forget_person("alicia", shared=True).complete
    assert "alicia" not in log.read_text()


def test_a_former_text_that_only_lists_the_person_goes_too(tmp_path):
    """An episode of others is told anew in two steps; the one between, without the person's lines, still lists them."""
    with cairn.open_blocking(tmp_path / "root", background=False, embedding__provider="none") as memory:
        memory.add("both", [said("bob", "The ferry leaves at noon.", 0), said("u3", "I sail.", 1)])
        memory.flush("both")
        note = next((tmp_path / "root").rglob("users/bob/episodes/*.md"))
        told = note.read_text()
        assert "**sender_ids**: [bob, u3]" in told
        note.write_text(told.replace("u3: I sail.", ""))
        memory.sync()
        memory.log()
        note.write_text(told)
        memory.sync()
        receipt = memory.forget_person("u3", shared=True)
        assert receipt.complete, receipt.stays
    assert holding(tmp_path / "root", r"(?<![a-z])u3(?![a-z])") == []


@pytest.mark.parametrize("whole", [{"user_id": "alicia"}, {"session_id": "x7"}])
def test_an_id_too_short_to_be_searched_for_goes_from_what_has_a_field_for_it(tmp_path, whole):
    """Neither the queue of the strategies nor the audit log names a session that went; one of another app stays there."""
    root = tmp_path / "root"
    talk = [said("alicia", "I sail.", 0), said("helper", "I decided to wait for the tide.", 1, "assistant")]
    with serving_here(root, env={**QUIET, "CAIRN_STRATEGIES__ENABLED": "false"}) as server:
        for app in ("default", "other"):
            assert server.post("memory/add", {"session_id": "x7", "messages": talk, "app_id": app})[0] == 200
    with cairn.open_blocking(root, background=False, embedding__provider="none") as memory:
        memory.flush("x7")
        memory.parts.engine.run_due(seconds=30)
        assert "session_id='x7'" in str(memory.parts.engine.jobs.runs())
        going = memory.forget_person if "user_id" in whole else memory.forget_session
        receipt = going(**whole)
        assert receipt.complete, receipt.stays
        assert "other apps or projects" in dict(receipt.stays)
        left = f"{memory.parts.engine.jobs.runs()} {memory.parts.engine.jobs.seen()}"
        assert "session_id='x7'" not in left
        assert "default_project/sessions/x7" not in left.replace("other/default_project", "")
    lines = [json.loads(line) for line in (root / ".server" / "audit.jsonl").read_bytes().splitlines()]
    assert [line["about"]["session_id"] for line in lines] == ["[forgotten]", "x7"]


def hooked(session, words):
    return {
        "host": "claude",
        "name": "Stop",
        "moment": "turn",
        "session": session,
        "folder": "",
        "prompt": words,
    }


def test_what_hooks_of_agents_left_is_handed_over_and_forgotten(tmp_path, monkeypatch):
    """Words that no memory has taken in yet are kept all the same: they are in the export, and they go with the rest."""
    for name, value in {**QUIET, "CAIRN_MEMORY__PERSON": "alicia"}.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "root"
    by = ThroughPython(root)
    spool.put(root, hooked("one", "I moved to Lisbon."))
    spool.put(root, hooked("two", "My cat is called Plumkin. The sky is blue."))
    (spool.folder(root) / "0-1.broken").write_text('{"prompt": "half a word of Porto')
    spool.cursor(root, "claude-one").parent.mkdir()
    spool.cursor(root, "claude-one").write_text('{"at": 7, "early": ["ab"], "seen": ["cd"]}')

    assert [one["prompt"] for one in by.ask("export_session", session_id="claude-one")["waiting"]] == [
        "I moved to Lisbon."
    ]
    assert by.ask("forget_session", session_id="claude-one", dry_run=True)["removed"] == {"waiting events": 1}
    receipt = by.ask("forget_session", session_id="claude-one")
    assert (receipt["complete"], receipt["removed"]["waiting events"]) == (True, 1), receipt["stays"]
    assert holding(root, "Lisbon") == []
    # How far the transcript was read stays, or it would all come back; what was said in it does not, hashed or not.
    assert json.loads(spool.cursor(root, "claude-one").read_text()) == {"at": 7, "early": [], "seen": []}

    with cairn.open_blocking(root) as memory:
        assert memory.memories.forget(words=["Plumkin"]).complete
    assert holding(root, "Plumkin") == []
    assert "sky is blue" in str(by.ask("export_person", user_id="alicia")["waiting"])
    with pytest.raises(cairn.NotFound):
        by.ask("forget_person", user_id="bob")
    assert by.ask("forget_person", user_id="alicia")["complete"]
    assert holding(root, "sky is blue|Porto") == []


def test_an_event_that_is_forgotten_while_it_is_taken_in_stays_away(tmp_path, monkeypatch):
    root = tmp_path / "root"
    waiting = spool.waiting

    def forgotten(at):
        for path, event in waiting(at):
            path.unlink()
            yield path, event

    monkeypatch.setattr(spool, "waiting", forgotten)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    with cairn.open_blocking(root, background=False) as memory:
        spool.put(root, hooked("one", "I moved to Lisbon."))
        assert Warm(memory, root).drain() == 0
    assert holding(root, "Lisbon") == []
