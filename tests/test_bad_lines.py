"""One bad line in one session's log costs only itself, whatever it says, for everybody and after a restart."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest

import cairn
from cairn.seams import Locator
from cairn.talk.sessions import SessionLog, session_locator
from cairn.types import Space
from tests.world import World, said

AT = 1_780_000_000_000
OPTIONS = {"embedding__provider": "none", "background": False}
MESSAGE = {"sender_id": "eve", "role": "user", "timestamp": AT, "content": "planted"}


def _add(**more):
    return {"t": "add", "n": 1, "batch": "b", "at": "", "messages": [MESSAGE], **more}


def _cut(**more):
    return {
        "t": "cut",
        "cell": "mc_bad",
        "first": 0,
        "upto": 1,
        "day": "2026-05-28",
        "owners": [["user", "eve"]],
        **more,
    }


def _with(**more):
    return _add(messages=[{**MESSAGE, **more}])


def _without(name):
    return _add(messages=[{key: value for key, value in MESSAGE.items() if key != name}])


# Each is one line of a log that no add, cut or correction of ours could have written.
BAD = {
    "place beyond any": _add(n=10**20),
    "place beyond the gap": _add(n=2**31 - 2),
    "place infinite": json.dumps(_add(n=5)).replace('"n": 5', '"n": 1e400'),
    "place NaN": '{"t": "add", "n": NaN, "messages": []}',
    "place with 5000 digits": json.dumps(_add(n=5)).replace('"n": 5', '"n": ' + "9" * 5000),
    "place negative": _add(n=-1),
    "place true": _add(n=True),
    "place a text": _add(n="1"),
    "place a fraction": _add(n=1.5),
    "place null": _add(n=None),
    "place a list": _add(n=[1]),
    "no messages": {"t": "add", "n": 1},
    "messages a number": _add(messages=3),
    "messages an object": _add(messages={"0": MESSAGE}),
    "a million messages": _add(messages=[None] * 1_000_000),
    "message a text": _add(messages=["hello"]),
    "batch a list": _add(batch=["b"]),
    "key a number": _add(key_hash=7),
    "mode an object": _add(mode={}),
    "for a text": _add(**{"for": "eve"}),
    "timestamp a text": _with(timestamp="2026-05-28T12:00:00"),
    "timestamp negative": _with(timestamp=-5),
    "timestamp beyond any": _with(timestamp=10**30),
    "timestamp infinite": '{"t": "add", "n": 1, "messages": [{"sender_id": "eve", "role": "user", "timestamp": 1e999, "content": "x"}]}',
    "timestamp true": _with(timestamp=True),
    "timestamp missing": _without("timestamp"),
    "content missing": _without("content"),
    "content null": _with(content=None),
    "content a number": _with(content=5),
    "content deep": _with(content=[{"type": "text", "text": "x", "extras": json.loads("[" * 60 + "]" * 60)}]),
    "content of no items": _with(content=[1, 2]),
    "content with NUL": _with(content="a\0b"),
    "content half a surrogate": '{"t": "add", "n": 1, "messages": [{"sender_id": "eve", "role": "user", "timestamp": 1780000000000, "content": "\\ud800"}]}',
    "name half a surrogate": _with(sender_name="\udfff"),
    "sender a path": _with(sender_id="../../etc/passwd"),
    "sender an object": _with(sender_id={}),
    "sender missing": _without("sender_id"),
    "role unknown": _with(role="king"),
    "role a list": _with(role=["user"]),
    "tool calls a number": _with(tool_calls=5),
    "tool call without a function": _with(tool_calls=[{"id": "c"}]),
    "cell beyond what was said": _cut(upto=10**9),
    "cell beyond any place": _cut(upto=10**20),
    "cell of a whole town": _cut(owners=[["user", f"u{n}"] for n in range(2000)]),
    "cell that ends before it begins": _cut(first=1, upto=0),
    "cell infinite": '{"t": "cut", "cell": "mc_bad", "first": 0, "upto": 1e400, "day": "2026-05-28"}',
    "cell without an end": {"t": "cut", "cell": "mc_bad", "day": "2026-05-28"},
    "cell without an id": _cut(cell=None),
    "cell with a long id": _cut(cell="m" * 100_000),
    "cell on no day": _cut(day="2026-02-30"),
    "cell on a list": _cut(day=["2026-05-28"]),
    "cell of a path": _cut(owners=[["user", "../bob"]]),
    "cell of no track": _cut(owners=[["king", "eve"]]),
    "cell of a text": _cut(owners="eve"),
    "done with a list": {"t": "done", "cell": ["mc_1"]},
    "corrected by nobody": {"t": "corrected", "cell": "mc_1", "owner": 5, "messages": []},
    "corrected to a number": {
        "t": "corrected",
        "cell": "mc_1",
        "owner": ["user", "eve"],
        "messages": [{"n": 0, "content": 5}],
    },
    "corrected at no place": {
        "t": "corrected",
        "cell": "mc_1",
        "owner": ["user", "eve"],
        "messages": [{"n": 10**20, "content": ""}],
    },
    "corrected at no time": {
        "t": "corrected",
        "cell": "mc_1",
        "owner": ["user", "eve"],
        "messages": [],
        "at": "now",
    },
    "followed by a list": {"t": "followed", "cell": "mc_1", "owner": [["user"], "eve"]},
    "of no sort": {"t": "crown", "cell": "mc_1"},
    "of a sort that is a list": {"t": ["add"]},
    "a number": "5",
    "null": "null",
    "a text": '"add"',
    "a list": "[1, 2]",
    "nested deeply": "[" * 100_000,
    "nested deeply inside": '{"t": "add", "n": 1, "messages": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "cut off": '{"t": "add", "n": 1, "messa',
    "empty": "",
    "blanks": "   ",
    "with NUL": "\0\0\0\0",
    "not UTF-8": b'{"t": "add", "n": 1, "messages": [{"content": "\xff\xfe"}]}',
    "long": '{"t": "add", "x": "' + "y" * 3_000_000,
}


def _bytes(line):
    text = json.dumps(line) if isinstance(line, dict) else line
    return text if isinstance(text, bytes) else text.encode("utf-8")


def message(text, who, n=0):
    return {"sender_id": who, "role": "user", "timestamp": AT + n * 1000, "content": text}


def told(memory, who):
    found = memory.get("episode", user_id=who, consistency="strong").episodes
    return "\n".join(item["episode"] for item in found)


def test_a_bad_line_costs_only_itself(tmp_path):
    """Every shape: what was said before and after it becomes one episode, and nobody else notices anything."""
    root = tmp_path / "root"
    with cairn.open_blocking(root, **OPTIONS) as memory:
        memory.add("other", [message("Bob keeps bees.", "bob")])
        memory.flush("other")
        for number in range(len(BAD)):
            memory.add(f"s{number}", [message(f"before {number}.", f"u{number}")])
    for number, line in enumerate(BAD.values()):
        with (root / f"default_app/default_project/sessions/s{number}.jsonl").open("ab") as log:
            log.write(_bytes(line) + b"\n")

    with cairn.open_blocking(root, **OPTIONS) as memory:
        for number in range(len(BAD)):
            memory.add(f"s{number}", [message(f"after {number}.", f"u{number}", 1)])
            assert memory.flush(f"s{number}").status == "extracted"
    with cairn.open_blocking(root, **OPTIONS) as memory:
        hits = memory.search("bees", user_id="bob", method="keyword", consistency="strong")
        assert [hit.text for hit in hits.episodes]
        assert hits.freshness.state == "fresh"
        findings = [item["what"] for item in memory.doctor()]
        aside = {one["path"]: one["trouble"] for one in memory.index_status()["set_aside"]}
        for number, name in enumerate(BAD):
            content = told(memory, f"u{number}")
            assert content.count(f"before {number}.") == content.count(f"after {number}.") == 1, name
            assert "planted" not in content, name
            path = f"default_app/default_project/sessions/s{number}.jsonl"
            assert any(what.startswith(f"{path}, line 2: ") for what in findings), name
            assert aside[path].startswith("line 2: "), name


@pytest.mark.parametrize("spot", [0, 1, 2, 3, 4, 5])
def test_a_bad_line_anywhere_leaves_places_and_cells_as_they_were(tmp_path, spot):
    """Inserted between any two lines, none of the shapes moves a message or opens a cell again."""
    kit = World(tmp_path)
    for n in range(3):
        kit.add("s1", said(f"<{n}>", n))
        if n == 1:
            kit.flush()
    before = kit.log()
    place = tmp_path / session_locator(Space(), "s1").key
    lines = place.read_bytes().split(b"\n")[:-1]
    for name, line in BAD.items():
        place.write_bytes(b"\n".join([*lines[:spot], _bytes(line), *lines[spot:]]) + b"\n")
        state = SessionLog(kit.journals).load(Locator(session_locator(Space(), "s1").key))
        assert [(m.id, m.text) for m in state.messages if m.sender_id == "ann"] == [
            (m.id, m.text) for m in before.messages
        ], name
        assert state.cells == before.cells, name
        assert state.skipped_lines >= 1, name
        assert state.troubles[0].line == spot + 1, name


@pytest.mark.parametrize("owners", [[["user", "eve"]], [], [["agent", "eve"]]])
def test_who_spoke_is_told_whoever_a_cut_line_names(tmp_path, owners):
    """A planted line that gives a cell to somebody else does not take the words from the one who said them."""
    kit = World(tmp_path)
    kit.add("s1", said("the orchard is sold"))
    place = tmp_path / session_locator(Space(), "s1").key
    place.write_bytes(place.read_bytes() + _bytes(_cut(owners=owners)) + b"\n")

    later = World(tmp_path)
    later.add("s1", said("and the mill", 1))
    later.flush()

    assert later.told().count("the orchard is sold") == 1 + len(owners)
    assert [("user", "ann") in cell.owners for cell in later.log().cells] == [True, True]


def test_a_lost_cut_line_is_made_good(tmp_path):
    """Words whose cut line was destroyed are told by the next flush, or by a full recovery; nothing is told twice."""
    kit = World(tmp_path)
    for n in range(3):
        kit.add("s1", said(f"<{n}>", n))
        kit.flush()
    place = tmp_path / session_locator(Space(), "s1").key
    lines = place.read_text().split("\n")
    cut = next(n for n, line in enumerate(lines) if '"t":"cut"' in line)
    lines[cut] = "x" * len(lines[cut])
    place.write_text("\n".join(lines))

    later = World(tmp_path)
    later.capture.recover(everywhere=True)

    assert [m.text for cell in later.log().cells for m in later.log().messages_of(cell)] == [
        "<1>",
        "<2>",
        "<0>",
    ]
    assert later.log().pending == []
    assert [later.told().count(f"<{n}>") for n in range(3)] == [1, 1, 1]


def test_a_destroyed_ledger_line_does_not_keep_the_root_shut(tmp_path):
    """The list of unfinished cells may be damaged or hostile, too: what cannot be read of it is passed over."""
    kit = World(tmp_path)
    kit.add("s1", said("hello"))
    kit.capture._inbox.flush(Space(), "s1")
    [ledger] = (tmp_path / ".tmp" / "cells").iterdir()
    hostile = [
        '["cut", "mc_1", "default", "default", 5, ""]',
        '["cut", "mc_2", "..", "x", "s", ""]',
        "[" * 100_000,
        '["cut", ["x"], "a", "b", "c", 5]',
        '["cut", "mc_3", "default", "default", "../../up", ""]',
        '["cut", "mc_4", "default", "default", "s"]',
        "{}",
        "null",
    ]
    ledger.write_text("\n".join(hostile) + "\n" + ledger.read_text())

    assert World(tmp_path).capture.recover() == 1


def test_a_line_that_no_reader_can_hold_costs_only_itself_in_any_journal(tmp_path):
    """JSON that nests too deeply is passed over by whoever reads a journal; what stands beside it is answered."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        kept = memory.remember("We deploy on Fridays.").memory["id"]
        memory.memories.note_day("Released 2.0.")
        memory.memories.capture("pr_feedback", "pr-1", "Always close the pool.")
        memory.memories.sweep()
    journal = tmp_path / "default_app" / "default_project" / "journal"
    names = {"daily", "ledger", "memories", "sweeps", "access", "missions", "consolidations", "procedures"}
    for name in (*names, "skill-index", "merges", "history/runs", "history/changes", "tokens"):
        path = journal / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[" * 100_000 + "\n" + (path.read_text() if path.exists() else ""))

    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        room = memory.memories
        assert room.daily() and room.captures()["total"] == 1
        assert room.runs()["last_sweep"] and room.history(kept)
        assert room.skills() == [] and not room.end_mission("run-1", success=True).already
        assert room.show(kept)["content"] == "We deploy on Fridays."
        assert memory.log()


def _mutated(rng: random.Random, line: bytes) -> bytes:
    """A real line with one value of it exchanged, or some of its bytes."""
    odd = [
        10**20,
        -1,
        1e308,
        True,
        None,
        "x",
        "\ud800",
        [],
        {},
        [[]],
        "a\0b",
        2**31,
        0.5,
        "../up",
        "y" * 5000,
    ]
    try:
        value = json.loads(line)
        holder = value
        while True:
            key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
                holder = holder[key]
                continue
            holder[key] = rng.choice(odd)
            return json.dumps(value).encode()
    except (ValueError, IndexError):
        at = rng.randrange(len(line) + 1)
        return line[:at] + bytes(rng.choice(range(11, 256)) for _ in range(4)) + line[at + 4 :]


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_to_any_lines_leaves_the_rest_in_use(seed):
    """Drawn damage: lines exchanged, doubled, dropped or planted; whatever stands is told, and adding goes on."""
    rng = random.Random(f"bad-lines-{seed}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        kit = World(root, capture__max_messages=4)
        for n in range(12):
            kit.add("s1", said(f"<{n}>", n), said(f"<{n}b>", n))
            if rng.random() < 0.2:
                kit.flush()
        place = root / session_locator(Space(), "s1").key
        lines = place.read_bytes().split(b"\n")[:-1]
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(lines))
            way = rng.random()
            if way < 0.5:
                lines[at] = _mutated(rng, lines[at]).replace(b"\n", b"")
            elif way < 0.7:
                lines.insert(at, _bytes(rng.choice(list(BAD.values()))))
            elif way < 0.85:
                lines.insert(at, lines[at])
            else:
                lines[at] = b"#"
        place.write_bytes(b"\n".join(lines) + b"\n")

        later = World(root, capture__max_messages=4)
        standing = Counter(m.text for m in later.log().messages)
        later.capture.recover(everywhere=True)
        later.add("s1", said("and on", 99))
        later.flush()

        state = later.log()
        in_cells = Counter(m.text for cell in state.cells for m in state.messages_of(cell))
        assert in_cells == standing + Counter(["and on"])
        assert len(state.messages) <= 30
        assert state.pending == []
        assert state.open_messages == []
