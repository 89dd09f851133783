"""Session logs and journals in a synced folder: what two machines wrote is united, each word once."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import cairn
from cairn.notes import unions
from cairn.notes.conflicts import conflict_copy
from cairn.seams import Locator
from cairn.surfaces.cli import main
from cairn.talk.merging import united
from cairn.talk.sessions import SessionState, session_locator
from cairn.types import Space
from tests.two_machines import NAMES, Machine, Sync, said

SPACE = "default_app/default_project"
SESSIONS = ("main", "side")
Acked = Counter[tuple[str, str]]


def word(rng):
    """A made-up word: no two facts are alike, or speak against each other."""
    return "".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(4)).capitalize()


def steps(rng: random.Random, one: Machine, two: Machine, sync: Sync, count: int) -> tuple[Acked, list[str]]:
    """A random life of both machines; every acknowledged message, by session and words, and every fact."""
    acked: Acked = Counter()
    facts = []
    for n in range(count):
        machine = rng.choice((one, two))
        memory = machine.memory
        session = rng.choice(SESSIONS)
        what = rng.random()
        if what < 0.45:
            texts = [f"w{n}x{k} {machine.name}" for k in range(rng.randrange(1, 4))]
            memory.add(session, [said(f"{text} said", rng.choice(("ann", "ben")), n) for text in texts])
            acked.update((session, text) for text in texts)
        elif what < 0.65:
            memory.flush(session)
        elif what < 0.75:
            facts.append(f"{word(rng)} keeps {word(rng)} beside {word(rng)} and {word(rng)}.")
            assert memory.remember(facts[-1], scope="user", owner="ann").accepted
        elif what < 0.85:
            memory.sync()
        else:
            sync.run()
    return acked, facts


def settle(one: Machine, two: Machine, sync: Sync) -> None:
    """Sync and merge until nothing moves any more, then tell what is open."""
    for turn in range(12):
        sync.run()
        for machine in (one, two):
            machine.memory.sync()
        if turn == 3:
            for session in SESSIONS:
                one.memory.flush(session)
        if turn > 4 and one.files() == two.files():
            return
    mine, theirs = one.files(), two.files()
    raise AssertionError([path for path in {*mine, *theirs} if mine.get(path) != theirs.get(path)])


def heard(machine: Machine) -> Acked:
    found: Acked = Counter()
    for session in SESSIONS:
        state = machine.memory.parts.sessions.load(session_locator(Space(), session))
        assert state.troubles == []
        assert state.pending == []
        found.update((session, message.text.removesuffix(" said")) for message in state.messages)
    return found


def told(machine: Machine) -> dict[str, Counter[str]]:
    """How often each message stands in the episodes of each owner."""
    by_owner: dict[str, Counter[str]] = {}
    notebook = machine.memory.parts.notebook
    for at in notebook.notes(kind="episode"):
        counts = by_owner.setdefault(at.parts[3], Counter())
        for entry in notebook.read(at).entries:
            for line in entry.sections["Content"].split("\n\n")[1:]:
                counts[line.partition(": ")[2].removesuffix(" said")] += 1
    return by_owner


def is_plain(path: str) -> bool:
    return not any(mark in path for mark in (" ", "(", "sync-conflict", "LAPTOP"))


@pytest.mark.parametrize(("seed", "service"), list(enumerate(sorted(NAMES) * 2)))
def test_two_machines_lose_nothing_and_double_nothing(tmp_path, seed, service):
    """Any interleaving of adds, flushes, facts, merges and syncs: each message and fact once, told once each."""
    rng = random.Random(f"two machines {seed}")
    with Machine("one", tmp_path) as one, Machine("two", tmp_path) as two:
        sync = Sync(one, two, NAMES[service], rng)
        acked, facts = steps(rng, one, two, sync, 40)
        settle(one, two, sync)

        assert sync.conflicts > 0
        for machine in (one, two):
            assert heard(machine) == acked
            assert [path for path in machine.files() if not is_plain(path)] == []
            episodes = told(machine)
            for session, text in acked:
                counts = [counts[text] for counts in episodes.values() if counts[text]]
                assert counts, (session, text)
                assert set(counts) == {1}, (session, text)
            page = machine.memory.memories.list(scope="user", owner="ann", limit=100, archived=True)
            kept = Counter(item["content"] for item in page.memories)
            assert [kept[fact] for fact in facts] == [1] * len(facts)
            word = min(text for _, text in acked).split()[0]
            for who in [who for who, counts in episodes.items() if any(word in text for text in counts)]:
                found = machine.memory.search(
                    word, user_id=who, method="keyword", consistency="strong", evidence=5
                )
                assert len([hit for hit in found.evidence if word in hit.text.split()]) == 1


# ---------------------------------------------------------------- the doors


def split_session(tmp_path: Path, **options) -> Path:
    """A root whose session "main" has a conflict copy with an acknowledged message of its own."""
    root, other = tmp_path / "root", tmp_path / "other"
    with cairn.open_blocking(root, embedding__provider="none", background=False, **options) as memory:
        memory.add("main", [said("both know the heron", "ann", 0)])
    shutil.copytree(root, other, ignore=shutil.ignore_patterns(".*"))
    for place, bird in ((root, "egret"), (other, "stork")):
        with cairn.open_blocking(place, embedding__provider="none", background=False) as memory:
            memory.add("main", [said(f"only here the {bird}", "ann", 1)])
    name = "main (Ann's conflicted copy 2026-06-01).jsonl"
    shutil.copy(other / SPACE / "sessions" / "main.jsonl", root / SPACE / "sessions" / name)
    return root


@pytest.mark.parametrize("command", [("doctor", "--fix"), ("cascade", "sync")])
def test_a_copy_of_a_log_is_merged_by_command(tmp_path, monkeypatch, capsys, command):
    """Also where the root is an ordinary folder: the message is flushed, found once, and the copy is gone."""
    root = split_session(tmp_path)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    main(["--root", str(root), "doctor"])
    assert "main (Ann's conflicted copy 2026-06-01).jsonl is a sync conflict copy" in capsys.readouterr().out

    main(["--root", str(root), *command])
    main(["--root", str(root), "flush", "--session", "main"])

    assert [at.name for at in (root / SPACE / "sessions").iterdir()] == ["main.jsonl"]
    with cairn.open_blocking(root, embedding__provider="none", background=False) as memory:
        for bird in ("heron", "egret", "stork"):
            found = memory.search(bird, user_id="ann", method="keyword", consistency="strong", evidence=5)
            assert len([hit for hit in found.evidence if bird in hit.text]) == 1
        [episode] = memory.get("episode", user_id="ann").episodes
        assert [episode["episode"].count(bird) for bird in ("heron", "egret", "stork")] == [1, 1, 1]


def test_a_vault_merges_copies_of_logs_when_it_is_opened(tmp_path):
    """Without being asked: what lies in the copy is part of the session as soon as somebody opens the vault."""
    root = split_session(tmp_path)
    options = {
        "storage__backend": "vault",
        "storage__cache": str(tmp_path / "cache"),
        "embedding__provider": "none",
    }
    with cairn.open_blocking(root, background=False, **options) as memory:
        texts = [message.text for message in memory.unprocessed("main")]
    assert sorted(texts) == ["both know the heron", "only here the egret", "only here the stork"]


def test_words_forgotten_on_one_machine_stay_forgotten(tmp_path):
    """A copy of a log or a note that still holds them does not bring them back."""
    with Machine("one", tmp_path) as one, Machine("two", tmp_path) as two:
        sync = Sync(one, two, NAMES["Dropbox"], random.Random(4))
        one.memory.add(
            "main", [said("The cellar code is 4711 today.", "ann", 0), said("Rain again.", "ben", 1)]
        )
        one.memory.flush("main")
        sync.run()
        one.memory.memories.forget(words=["The cellar code is 4711 today."], all_owners=True)
        one.memory.add("main", [said("one goes on", "ann", 2)])
        two.memory.add("main", [said("two goes on", "ann", 2)])
        for session in ("main", "side"):
            two.memory.flush(session)
        for _ in range(5):
            sync.run()
            for machine in (one, two):
                machine.memory.sync()
        for machine in (one, two):
            texts = [
                m.text for m in machine.memory.parts.sessions.load(session_locator(Space(), "main")).messages
            ]
            assert sorted(texts) == ["Rain again.", "one goes on", "two goes on"]
            # What a note held for a moment, because the other machine's came first, its history may still tell.
            left = [path for path, data in machine.files().items() if b"4711" in data]
            assert [path for path in left if "/history/" not in path] == []


def test_a_person_forgotten_on_one_machine_stays_forgotten(tmp_path):
    """Another machine's journal, which still tells of them and has grown meanwhile, does not bring their lines back."""
    with Machine("one", tmp_path) as one, Machine("two", tmp_path) as two:
        sync = Sync(one, two, NAMES["Dropbox"], random.Random(4))
        for _ in range(2):
            one.memory.remember("Ann keeps a heron on the roof.", scope="user", owner="ann")
        sync.run()
        one.memory.forget_person("ann")
        for _ in range(2):
            two.memory.remember("Ben keeps an egret in the cellar.", scope="user", owner="ben")
        for _ in range(5):
            sync.run()
            for machine in (one, two):
                machine.memory.sync()
        for machine in (one, two):
            lines = (machine.root / SPACE / "journal/memories.jsonl").read_text().splitlines()
            assert any('"ben"' in line for line in lines)
            assert not [line for line in lines if '"ann"' in line]


def test_an_episode_that_a_person_reworded_is_not_taken_for_a_copy(tmp_path):
    """Two machines cut the same talk, a person edits one of the two episodes: the edit is there afterwards."""
    with Machine("one", tmp_path) as one, Machine("two", tmp_path) as two:
        sync = Sync(one, two, NAMES["iCloud"], random.Random(1))
        one.memory.add("main", [said("a common word", "ann", 0)])
        sync.run()
        for machine, text in ((one, "one alone"), (two, "two alone")):
            machine.memory.add("main", [said(text, "ann", 1)])
            machine.memory.flush("main")
        note = next((two.root / SPACE / "users/ann/episodes").glob("*.md"))
        note.write_text(note.read_text().replace("ann: two alone", "ann: two alone, as I recall it"))
        for _ in range(6):
            sync.run()
            for machine in (one, two):
                machine.memory.sync()
        text = next((one.root / SPACE / "users/ann/episodes").glob("*.md")).read_text()
        assert "as I recall it" in text
        assert text.count("\n\nann: one alone") == 1


def test_two_sessions_of_one_name_are_not_mixed(tmp_path):
    """Begun on each machine by callers limited to different owners: both logs stay, and `doctor` names the copy."""
    root, other = tmp_path / "root", tmp_path / "other"
    for place, who in ((root, "ann"), (other, "ben")):
        with cairn.open_blocking(place, embedding__provider="none", background=False) as memory:
            memory.add("main", [said(f"{who} alone", who, 0)], limited_to=[who])
    copy = root / SPACE / "sessions" / "main (1).jsonl"
    shutil.copy(other / SPACE / "sessions" / "main.jsonl", copy)
    with cairn.open_blocking(root, embedding__provider="none", background=False) as memory:
        memory.sync()
        assert [message.text for message in memory.unprocessed("main")] == ["ann alone"]
        assert any("main (1).jsonl" in item["what"] for item in memory.doctor())
    assert copy.exists()


def test_a_log_put_in_the_place_of_another_of_the_same_length_is_read(tmp_path):
    """A sync program exchanges a log under an open memory; lengths of lines tell nothing."""
    with Machine("one", tmp_path) as one:
        one.memory.add("main", [said("aaaa", "ann", 0)])
        at = f"{SPACE}/sessions/main.jsonl"
        one.put(at, one.files()[at].replace(b"aaaa", b"bbbb"))
        one.memory.add("main", [said("cccc", "ann", 1)])
        assert [message.text for message in one.memory.unprocessed("main")] == ["bbbb", "cccc"]


# ---------------------------------------------------------------- names and lines


@pytest.mark.parametrize("service", sorted(NAMES))
@pytest.mark.parametrize("path", ["sessions/main.jsonl", "sessions/%41nn-1.jsonl", "journal/memories.jsonl",
                                  "journal/history/changes.jsonl", f"sessions/{'x' * 180}%/yy.jsonl"])  # fmt: skip
def test_copies_of_logs_are_known_by_their_names(service, path):
    """Every service's naming, for logs of sessions and for journals, in folders of any depth."""
    original = Locator(f"a/p/{path}")
    stem, _, end = original.name.rpartition(".")
    found = conflict_copy(original.parent.child(NAMES[service](stem, f".{end}", 7)))
    assert found is not None
    assert found.original == original
    assert found.log == {"sessions": "session", "journal": "journal"}[path.partition("/")[0]]


@pytest.mark.parametrize("key", ["a/p/sessions/main.jsonl", "a/p/sessions/main-two.jsonl", "a/p/journal/skill-index.jsonl",
                                 "a/p/notes/plan 2.jsonl", "x 2.jsonl"])  # fmt: skip
def test_ordinary_logs_are_not_taken_for_copies(key):
    """A session called main-two is no copy of main."""
    assert conflict_copy(Locator(key)) is None


def lines_of(*values) -> list[str]:
    return [json.dumps(value) for value in values]


def test_a_journal_is_united_by_time_and_once():
    """What both have, then what each added, in the order of time; a line that both added is there once."""
    common = lines_of({"at": "1", "x": 0})
    one = [*common, *lines_of({"at": "2", "x": 1}, {"at": "4", "x": 2}, {"at": "5", "x": "same"})]
    two = [*common, *lines_of({"at": "3", "x": 3}, {"at": "5", "x": "same"})]
    made = unions.united("memories.jsonl", one, two)
    assert [json.loads(line)["x"] for line in made] == [0, 1, 3, 2, "same"]
    assert unions.united("memories.jsonl", made, two) is None
    assert unions.united("memories.jsonl", made, one) is None


def test_what_was_taken_out_of_a_journal_does_not_come_back():
    """Forgetting leaves a mark in the place of a line: a copy that still has it is united without it."""
    before = lines_of({"x": 1}, {"x": "secret"}, {"x": 2})
    after = lines_of({"x": 1}, {"x": 2})
    marked = [*after, *unions.forgotten_marks(before, after)]
    copy = [*before, *lines_of({"x": "other"})]
    for name in ("daily.jsonl", "texts.jsonl"):
        for one, two in ((marked, copy), (copy, marked)):
            made = unions.united(name, one, two)
            assert "secret" not in "".join(made)
            assert set(lines_of({"x": 1}, {"x": 2}, {"x": "other"})) < set(made)


def test_changes_and_checkpoints_of_two_histories_keep_apart():
    """Ours keep their numbers; theirs get the next ones, and a checkpoint of theirs goes by its time."""
    first = {
        "id": "ent-000001",
        "at": "1",
        "path": "p",
        "entry": "e",
        "before": None,
        "after": "a",
        "cause": "write",
    }
    mine, theirs = ({**first, "id": "ent-000002", "at": at, "after": at} for at in ("2", "3"))
    made = unions.united("changes.jsonl", lines_of(first, mine), lines_of(first, theirs))
    assert [(json.loads(line)["id"], json.loads(line)["at"]) for line in made] == [
        ("ent-000001", "1"), ("ent-000002", "2"), ("ent-000003", "3"),
    ]  # fmt: skip
    mark = {"id": "chk-000001", "at": "5", "changes": 1, "hash": "h", "label": "mine"}
    made = unions.united("checkpoints.jsonl", lines_of(mark), lines_of({**mark, "label": "theirs"}))
    assert [json.loads(line)["changes"] for line in made] == [1, -1]


def test_a_checkpoint_of_the_other_machine_can_be_restored(tmp_path):
    """Made on two before a mistake there; after the folders met it is known on one, too, and brings the note back."""
    with Machine("one", tmp_path) as one, Machine("two", tmp_path) as two:
        sync = Sync(one, two, NAMES["Seafile"], random.Random(2))
        one.memory.remember("The lamp stands on pier nine.", scope="user", owner="ann")
        one.memory.log()
        one.memory.checkpoint("of one")
        sync.run()
        one.memory.checkpoint("later on one")
        made = two.memory.checkpoint("of two")
        for _ in range(4):
            sync.run()
            for machine in (one, two):
                machine.memory.sync()
        marks = {mark["label"]: mark for mark in one.memory.checkpoints()}
        assert set(marks) == {"of one", "later on one", "of two"}
        assert len({mark["id"] for mark in marks.values()}) == 3
        assert made["label"] == "of two"
        note = next((one.root / SPACE / "users/ann").rglob("memory*.md"))
        note.write_text(note.read_text().replace("pier nine", "pier ten"))
        one.memory.restore(marks["of two"]["id"])
        assert "pier nine" in note.read_text()


@pytest.mark.parametrize("seed", range(60))
def test_the_union_of_two_logs_holds_each_message_once(seed):
    """Drawn logs that begin alike: the union holds both, in cells that do not overlap, and nothing twice however often."""
    rng = random.Random(f"union {seed}")
    common = _drawn(rng, "c", [], rng.randrange(0, 5))
    one = _drawn(rng, "o", common, rng.randrange(0, 6))
    two = _drawn(rng, "t", common, rng.randrange(0, 6))
    made = united(Space(), "s", one, two) or one
    state, mine, theirs = (_read(lines) for lines in (made, one, two))
    assert state.troubles == []
    texts = [message.text for message in state.messages]
    assert sorted(texts) == sorted({m.text for m in (*mine.messages, *theirs.messages)})
    for cell in mine.cells:
        assert [m.text for m in state.messages_of(state.cell(cell.cell_id))] == [
            m.text for m in mine.messages_of(cell)
        ]
    for side in (mine, theirs):
        order = [
            message.text
            for message in side.open_messages
            if message.text in {m.text for m in state.open_messages}
        ]
        assert [text for text in texts if text in set(order)] == order
    again = united(Space(), "s", made, two) or made
    assert [m.text for m in _read(again).messages] == texts
    assert (
        united(Space(), "s", made, one) is None
        or _read(united(Space(), "s", made, one)).messages == state.messages
    )


def _read(lines: list[str]) -> SessionState:
    state = SessionState(Space(), "s")
    state.feed(lines)
    return state


def _drawn(rng: random.Random, name: str, begin: list[str], count: int) -> list[str]:
    """`begin` and further lines as an inbox writes them."""
    lines = list(begin)
    for n in range(count):
        state = _read(lines)
        if rng.random() < 0.6 or state.cut_upto == state.next_ordinal:
            texts = [f"{name}{n}.{k}" for k in range(rng.randrange(1, 4))]
            lines.append(json.dumps({
                "t": "add", "n": state.next_ordinal, "batch": f"{name}{n}", "at": f"2026-06-01T00:00:{rng.randrange(60):02d}",
                "messages": [{"sender_id": "ann", "role": "user", "timestamp": 1_780_000_000_000, "content": text} for text in texts],
            }))  # fmt: skip
        else:
            upto = rng.randrange(state.cut_upto, state.next_ordinal) + 1
            cell = state.new_cell_id(state.cut_upto, upto)
            lines.append(json.dumps({
                "t": "cut", "cell": cell, "first": state.cut_upto, "upto": upto, "day": "2026-06-01",
                "owners": [["user", "ann"]], "at": "2026-06-01T00:01:00+00:00",
            }))  # fmt: skip
            if rng.random() < 0.7:
                lines.append(json.dumps({"t": "done", "cell": cell}))
    return lines
