"""An episode corrected by hand: the wrong statement is gone from everything that search says."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn import BlockingMemory
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.errors import StorageFailed
from cairn.notes.notebook import Notebook
from cairn.parts import with_talk
from cairn.seams import Locator
from cairn.strategies import EditEvent
from cairn.talk.sessions import session_locator
from cairn.types import Scope, Space
from tests.waiting import until

NOW = 1_780_000_000_000
DAY = "2026-05-28"


def said(text: str, at: int = NOW, sender: str = "alice") -> dict[str, Any]:
    role = "assistant" if sender == "bot" else "user"
    return {"sender_id": sender, "role": role, "timestamp": at, "content": text}


def opened(root: Path, **options: Any):
    """A memory whose background works in milliseconds and embeds without a model."""
    return cairn.open_blocking(
        root, **{"embedding__provider": "hashing", "index__scan_seconds": 0.5} | options
    )


def note(root: Path, kind: str = "episode", user: str = "alice") -> Path:
    folder = {"episode": "episodes", "atomic_fact": ".atomic_facts", "foresight": ".foresights"}[kind]
    return root / f"default_app/default_project/users/{user}/{folder}/{kind}-{DAY}.md"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def answer(memory: BlockingMemory, query: str, user: str = "alice", **more: Any) -> dict[str, Any]:
    return memory.search(
        query, user_id=user, method="keyword", evidence=5, include_profile=True, **more
    ).as_data()


def says(memory: BlockingMemory, word: str, user: str = "alice") -> bool:
    """Whether any answer to `word` shows it: in an episode, its facts, the evidence, or the profile."""
    return word in json.dumps(answer(memory, word, user))


def derived(root: Path, word: str) -> bool:
    """Whether a fact of alice's holds `word`."""
    return note(root, "atomic_fact").exists() and word in note(root, "atomic_fact").read_text()


def tell(memory: BlockingMemory, *texts: str, session: str = "s") -> None:
    memory.add(session, [said(text, NOW + 1000 * n) for n, text in enumerate(texts)], defer_extraction=True)
    memory.flush(session)


def settled(memory: BlockingMemory) -> bool:
    counts = memory.parts.engine.jobs.counts()
    return not any(one.get("pending") or one.get("running") for one in counts.values())


def quiet(memory: BlockingMemory) -> bool:
    """Every change is indexed, and so every edit told to the engine, and the engine is done with all of them."""
    return not memory.parts.indexer.status().pending and settled(memory)


def log(root: Path, session: str = "s") -> list[dict[str, Any]]:
    path = root / f"default_app/default_project/sessions/{session}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_corrected_word_is_gone_from_search_within_a_moment(tmp_path):
    """The old word leaves the episode, its facts, the evidence, the profile and the plans; the new one comes."""
    with opened(tmp_path) as memory:
        tell(
            memory,
            "I live in Romeville with my cat.",
            "I'm going to visit Berta in Romeville tomorrow.",
            "My sister plays the tuba every weekend.",
        )
        until(lambda: derived(tmp_path, "Romeville") and settled(memory) and says(memory, "Romeville"))
        tuba = [line for line in note(tmp_path, "atomic_fact").read_text().splitlines() if "tuba" in line]
        assert "Romeville" in note(tmp_path, "foresight").read_text()
        edit(note(tmp_path), "Romeville", "Milanburg")
        until(lambda: says(memory, "Milanburg"))
        until(lambda: not says(memory, "Romeville"))
        until(lambda: derived(tmp_path, "Milanburg") and settled(memory))
        assert not derived(tmp_path, "Romeville")
        assert "Romeville" not in note(tmp_path, "foresight").read_text()
        assert "Milanburg" in note(tmp_path, "foresight").read_text()
        assert "Romeville" not in (tmp_path / "default_app/default_project/users/alice/user.md").read_text()
        assert [
            line for line in note(tmp_path, "atomic_fact").read_text().splitlines() if "tuba" in line
        ] == tuba
        shown = answer(memory, "Where do I live? Milanburg")
        assert shown["evidence"][0]["text"] == "I live in Milanburg with my cat."
        assert any("Milanburg" in fact["content"] for fact in shown["episodes"][0]["atomic_facts"])
        assert log(tmp_path)[0]["messages"][0]["content"] == "I live in Romeville with my cat."


def test_an_edit_while_nothing_ran_is_followed_at_the_next_look(tmp_path):
    """A lone search that never had a server still finds no old word, and an index made anew says the same."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.", "I work as a plumber in Porto.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    with opened(tmp_path, background=False) as memory:
        assert not says(memory, "Zaphodine")
        assert says(memory, "Trillianne")
        kept = [answer(memory, word) for word in ("Trillianne", "plumber", "heron called")]
    shutil.rmtree(tmp_path / ".index")
    with opened(tmp_path, background=False) as memory:
        anew = [answer(memory, word) for word in ("Trillianne", "plumber", "heron called")]
        assert not says(memory, "Zaphodine")
    for one in (*kept, *anew):
        one.pop("freshness")
    assert anew == kept


def test_an_edit_and_a_lost_index_at_once_are_followed_too(tmp_path):
    """Nobody knows any more that the episode read otherwise: the messages themselves tell."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    shutil.rmtree(tmp_path / ".index")
    with opened(tmp_path) as memory:
        until(lambda: says(memory, "Trillianne") and not says(memory, "Zaphodine"))
        assert derived(tmp_path, "Trillianne")


def test_undoing_an_edit_brings_the_old_facts_back_and_doing_it_again_takes_them(tmp_path):
    """There and back twice: the facts always say what the episode says, and nothing piles up."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.", "I work as a plumber in Porto.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
        first = sorted(
            line for line in note(tmp_path, "atomic_fact").read_text().splitlines() if "alice " in line
        )
        for _ in range(2):
            for old, new in (("Zaphodine", "Trillianne"), ("Trillianne", "Zaphodine")):
                edit(note(tmp_path), old, new)
                until(lambda new=new: derived(tmp_path, new) and says(memory, new))  # type: ignore[misc]
                until(lambda old=old: not says(memory, old) and settled(memory))  # type: ignore[misc]
        now = sorted(
            line for line in note(tmp_path, "atomic_fact").read_text().splitlines() if "alice " in line
        )
        assert now == first


def test_a_line_taken_out_leaves_no_fact_and_no_evidence(tmp_path):
    """A turn that a person removes is not said any more; the turns around it are."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.", "I work as a plumber in Porto.")
        until(lambda: derived(tmp_path, "Zaphodine") and derived(tmp_path, "plumber") and settled(memory))
        text = note(tmp_path).read_text()
        lines = [line for line in text.splitlines() if "Zaphodine" not in line or line.startswith("#")]
        note(tmp_path).write_text("\n".join(lines) + "\n")
        until(lambda: not says(memory, "Zaphodine") and settled(memory))
        assert not derived(tmp_path, "Zaphodine")
        assert derived(tmp_path, "plumber")


def test_what_a_person_wrote_or_changed_or_removed_stays_so(tmp_path):
    """Facts written and edited by hand outlive a correction, and a fact thrown away does not come back."""
    with opened(tmp_path) as memory:
        tell(
            memory,
            "I adopted a heron called Zaphodine.",
            "I bought Zaphodine a red boat.",
            "I work as a plumber in Porto.",
        )
        until(lambda: derived(tmp_path, "boat") and derived(tmp_path, "plumber") and settled(memory))
    facts = note(tmp_path, "atomic_fact")
    head, *entries = facts.read_text().split("<!-- entry:")
    entries = [e.replace("red boat", "red boat, made of cork") for e in entries if "plumber" not in e]
    facts.write_text("<!-- entry:".join([head, *entries]))
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    with opened(tmp_path) as memory:
        until(lambda: derived(tmp_path, "Trillianne") and settled(memory))
        text = facts.read_text()
        assert "Zaphodine a red boat, made of cork" in text
        assert "called Zaphodine" not in text
        assert "plumber" not in text


def test_a_save_that_empties_the_file_first_is_followed(tmp_path):
    """An editor that truncates and then writes: the rows are gone for a moment, the edit is an edit all the same."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory) and says(memory, "Zaphodine"))
        text = note(tmp_path).read_text()
        note(tmp_path).write_text("")
        until(lambda: not answer(memory, "heron")["episodes"])
        note(tmp_path).write_text(text.replace("Zaphodine", "Trillianne"))
        until(lambda: says(memory, "Trillianne") and not says(memory, "Zaphodine"))
        assert not derived(tmp_path, "Zaphodine")


def test_a_correction_far_back_in_a_long_session_is_followed(tmp_path):
    """A log that the indexer reads by its end only is read whole again; the cells behind stay as they were."""
    with opened(tmp_path) as memory:
        for n, name in enumerate(("Zaphodine", "Marvina", "Fordette")):
            filler = " ".join(f"word{n}x{i}" for i in range(3000))
            memory.add("s", [said(f"I adopted a heron called {name}.", NOW + n), said(filler, NOW + n)])
            memory.flush("s")
        until(lambda: all(derived(tmp_path, name) for name in ("Zaphodine", "Fordette")) and settled(memory))
        until(lambda: says(memory, "Fordette"))
        edit(note(tmp_path), "Zaphodine", "Trillianne")
        until(lambda: says(memory, "Trillianne") and not says(memory, "Zaphodine"))
        until(lambda: settled(memory))
        shown = answer(memory, "heron called", consistency="strong")["evidence"]
        assert sorted(one["text"].split()[-1] for one in shown if "heron" in one["text"]) == [
            "Fordette.",
            "Marvina.",
            "Trillianne.",
        ]


def test_only_the_owner_who_corrected_is_corrected(tmp_path):
    """Two people share a talk, each with an episode: one's correction leaves the other's memory as it was."""
    with opened(tmp_path) as memory:
        talk = [
            said("I adopted a heron called Zaphodine with bob."),
            said("What a lovely name!", NOW + 1000, "bob"),
        ]
        memory.add("s", talk, defer_extraction=True)
        memory.flush("s")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory) and says(memory, "Zaphodine", "bob"))
        edit(note(tmp_path), "Zaphodine", "Trillianne")
        until(lambda: not says(memory, "Zaphodine") and settled(memory))
        assert says(memory, "Zaphodine", "bob")
        assert "Zaphodine" in note(tmp_path, "atomic_fact", "bob").read_text()


def test_our_own_writes_lead_to_nothing_and_reextract_takes_a_correction_back(tmp_path):
    """`reextract` of an untouched episode records nothing; of a corrected one it restores what was said."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
        before = note(tmp_path, "atomic_fact").read_text()
        memory.reextract(session_id="s")
        until(lambda: quiet(memory))
        assert [line["t"] for line in log(tmp_path)] == ["add", "cut", "done"]
        assert note(tmp_path, "atomic_fact").read_text() == before
        edit(note(tmp_path), "Zaphodine", "Trillianne")
        until(lambda: not says(memory, "Zaphodine") and derived(tmp_path, "Trillianne"))
        memory.reextract(session_id="s")
        until(lambda: says(memory, "Zaphodine") and derived(tmp_path, "Zaphodine"))
        until(lambda: not says(memory, "Trillianne") and settled(memory))
        assert log(tmp_path)[-2]["messages"] == []


def test_a_model_written_episode_is_left_alone(tmp_path):
    """Its Content is not the messages, so an edit says nothing about which of them is wrong."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
    edit(note(tmp_path), "**writer**: deterministic", "**writer**: model:x")
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    with opened(tmp_path, background=False) as memory:
        assert says(memory, "Trillianne")
        assert derived(tmp_path, "Zaphodine")
    assert [line["t"] for line in log(tmp_path)] == ["add", "cut", "done"]


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, step: int):
    """The following ends before its `step`th write, as if the process had died there."""
    count = 0

    def dead(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                raise StorageFailed("dead")
            return real(*args, **kwargs)

        return call

    append = FileJournals.append
    dying = dead(append)

    def noted(journals: FileJournals, at: Locator, lines: Sequence[str], **how: Any) -> Any:
        corrects = any('"t":"corrected"' in line or '"t":"followed"' in line for line in lines)
        return (dying if corrects else append)(journals, at, lines, **how)

    with monkeypatch.context() as patched:
        patched.setattr(FileJournals, "append", noted)
        for name in ("append", "remove", "rewrite"):
            patched.setattr(Notebook, name, dead(getattr(Notebook, name)))
        yield


@pytest.mark.parametrize("step", range(1, 8))
def test_a_death_at_any_step_is_made_good(tmp_path, monkeypatch, step):
    """Whatever was written before the end, the next one to look finishes it; also after another edit."""
    with opened(tmp_path) as memory:
        tell(memory, "I live in Romeville with my cat.", "I'm going to visit Berta in Romeville tomorrow.")
        until(lambda: derived(tmp_path, "Romeville") and settled(memory))
    edit(note(tmp_path), "Romeville", "Milanburg")
    with dying(monkeypatch, step), opened(tmp_path, background=False) as memory:
        answer(memory, "Milanburg")
    if step % 2:
        shutil.rmtree(tmp_path / ".index")
    else:
        edit(note(tmp_path), "Milanburg", "Turinstadt")
    new = "Milanburg" if step % 2 else "Turinstadt"
    with opened(tmp_path, background=True) as memory:
        memory.trigger("follow_corrections")
        until(lambda: says(memory, new) and settled(memory))
        for old in {"Romeville", "Milanburg"} - {new}:
            until(lambda old=old: not says(memory, old))  # type: ignore[misc]
            assert not derived(tmp_path, old)
            assert old not in note(tmp_path, "foresight").read_text()
        assert derived(tmp_path, new)
        assert note(tmp_path, "atomic_fact").read_text().count(f"live in {new}") == 1
        assert new in note(tmp_path, "foresight").read_text()
        assert f"live in {new}" in (tmp_path / "default_app/default_project/users/alice/user.md").read_text()


def test_an_edit_beside_a_lost_index_file_is_followed(tmp_path):
    """The rows were lost and the strategies' queue was not (a new version's rows, say): the edit is found."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
    with opened(tmp_path) as memory:  # a start after which the engine knows the session as it is
        until(lambda: bool(memory.parts.engine.jobs.seen()))
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    for file in (tmp_path / ".index/sqlite").glob("index.db*"):
        file.unlink()
    with opened(tmp_path) as memory:
        until(lambda: says(memory, "Trillianne") and not says(memory, "Zaphodine"))


def test_an_episode_edited_before_it_was_ever_indexed_is_followed(tmp_path):
    """Flushed by one lone call, corrected, asked for by the next: no old word."""
    with opened(tmp_path, background=False) as memory:
        tell(memory, "I adopted a heron called Zaphodine.")
    edit(note(tmp_path), "Zaphodine", "Trillianne")
    with opened(tmp_path, background=False) as memory:
        assert says(memory, "Trillianne")
        assert not says(memory, "Zaphodine")


def test_forgetting_reaches_what_was_corrected(tmp_path):
    """Words that came in by a correction are taken out of the session's log, too, and nothing brings them back."""
    with opened(tmp_path) as memory:
        tell(memory, "I adopted a heron called Zaphodine.", "I work as a plumber in Porto.")
        until(lambda: derived(tmp_path, "Zaphodine") and settled(memory))
        edit(note(tmp_path), "Zaphodine", "Trillianne")
        until(lambda: derived(tmp_path, "Trillianne") and not says(memory, "Zaphodine") and settled(memory))
        memory.memories.forget(words=["Trillianne"])
        until(lambda: quiet(memory))
        assert not says(memory, "Trillianne")
        assert says(memory, "plumber")
    for file in (tmp_path / "default_app").rglob("*.*"):
        assert not file.is_file() or "Trillianne" not in file.read_text(), file


KILLED = """
import os, signal, sys
import cairn
from cairn.strategies import corrections
from tests.test_corrections import answer, opened
count = 0
def dying(real):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
corrections._note = dying(corrections._note)
corrections._exchange = dying(corrections._exchange)
import pathlib
with opened(pathlib.Path(sys.argv[1]), background=False) as memory:
    answer(memory, "Milanburg")
"""


@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_killed_process_leaves_nothing_half_done(tmp_path, step):
    """kill -9 before the record, between facts and plans, and before the last line: the next one to look ends it."""
    with opened(tmp_path) as memory:
        tell(memory, "I live in Romeville with my cat.", "I'm going to visit Berta in Romeville tomorrow.")
        until(lambda: derived(tmp_path, "Romeville") and settled(memory))
    edit(note(tmp_path), "Romeville", "Milanburg")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(step)], check=False)
    assert done.returncode == -signal.SIGKILL
    with opened(tmp_path, background=False) as memory:
        assert says(memory, "Milanburg")
        assert not says(memory, "Romeville")
    assert note(tmp_path, "atomic_fact").read_text().count("live in Milanburg") == 1
    assert "Romeville" not in note(tmp_path, "foresight").read_text()
    assert [line["t"] for line in log(tmp_path)][3:] == ["corrected", "followed"]


def test_notes_that_come_without_their_talk_are_no_work_for_the_strategies(tmp_path):
    """A bulk of notes, as from a pull, is found by its words; only where a log is there can it be compared."""
    here, there = tmp_path / "here", tmp_path / "there"
    with opened(there) as other:
        tell(other, "I live in Romeville with my cat.")
    shutil.copytree(note(there).parent, note(here).parent)
    with opened(here) as memory:
        until(lambda: says(memory, "Romeville") and quiet(memory))
        assert "follow_corrections" not in memory.parts.engine.jobs.counts()


@pytest.mark.parametrize("gone", [3, 100])
def test_edits_of_episodes_without_their_talk_are_no_work(tmp_path: Path, gone: int) -> None:
    """Corrections: few or many at once, only episodes whose session has a log here are followed; a long id's counts."""
    storage, scope = DeviceLocalBackend(tmp_path), Scope(Space(), "user", "alice")
    here = ["kept", "L" * 200]
    for session in here:
        storage.write(session_locator(scope.space, session), "{}\n")
    sessions = [*(f"gone{n}" for n in range(gone)), *here]
    events = [EditEvent(scope, f"e{n}", DAY, f"mc_{n}", session) for n, session in enumerate(sessions)]
    assert [one.session_id for one in with_talk(storage, events)] == here
    elsewhere = [replace(one, scope=Scope(Space("other"), "user", "alice")) for one in events]
    assert with_talk(storage, elsewhere) == []
