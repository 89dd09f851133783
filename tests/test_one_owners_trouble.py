"""One owner's trouble is nobody else's: a name that clashes, a note that cannot be read, an episode that waits."""

from __future__ import annotations

import shutil

import pytest

import cairn
from cairn.errors import StorageFailed
from tests.surfaces.served import serving_here
from tests.waiting import until
from tests.world import World, said

AT = 1_780_000_000_000
OPTIONS = {"embedding__provider": "none", "background": False}
USERS = "default_app/default_project/users"


def message(text, who="alice", n=0, role="user"):
    return {"sender_id": who, "role": role, "timestamp": AT + n * 1000, "content": text}


def episodes(memory, who):
    found = memory.get("episode", user_id=who, consistency="strong").episodes
    return "\n".join(item["episode"] for item in found)


def latin_1(root, who):
    """Save the owner's note of today as an old editor would: no program can read it as UTF-8."""
    note = next((root / USERS / who / "episodes").glob("*.md"))
    kept = note.read_text()
    note.write_bytes(kept.replace("tea", "th\u00e9").encode("latin-1"))
    return note, kept


def test_a_name_that_differs_only_by_case_is_refused_before_anything_is_written(tmp_path):
    """ALICE beside alice: refused by name at `add`, over HTTP with 422; the log and alice's memory are as before."""
    with serving_here(tmp_path / "root", env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        assert server.post("memory/add", {"session_id": "s", "messages": [message("I like tea.")]})[0] == 200
        assert server.post("memory/flush", {"session_id": "s"})[0] == 200
        log = tmp_path / "root/default_app/default_project/sessions/s.jsonl"
        before = log.read_bytes()

        code, answer = server.post(
            "memory/add", {"session_id": "s", "messages": [message("I like rum.", "ALICE", 1)]}
        )

        assert code == 422
        assert '"alice"' in answer["error"]["message"]
        assert log.read_bytes() == before
        assert (
            server.post("memory/add", {"session_id": "s", "messages": [message("More tea.", n=2)]})[0] == 200
        )
        code, answer = server.post("memory/flush", {"session_id": "s"})
        assert (code, answer["data"]["status"], answer["data"]["waiting"]) == (200, "extracted", [])


@pytest.mark.parametrize("name", ["app_id", "project_id"])
def test_a_space_that_differs_only_by_case_is_refused_by_its_own_name(tmp_path, name):
    """The app or project is named, not the sender in it."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        memory.add("s", [message("I like tea.")], **{name: "Acme"})
        with pytest.raises(cairn.Invalid, match=f'{name} "acme" differs from "Acme"'):
            memory.add("s", [message("I like rum.")], **{name: "acme"})


def test_two_new_names_that_differ_only_by_case_are_not_both_taken_in(tmp_path):
    """Neither has a folder yet, in sessions that are both open: the second one is refused, not acknowledged and stuck."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        memory.add("one", [message("I like tea.", "Bea")])
        with pytest.raises(cairn.Invalid, match='"Bea"'):
            memory.add("two", [message("I like rum.", "bea")])
        assert memory.flush("two").status == "no_extraction"
        assert memory.flush("one").status == "extracted"


def test_an_assistant_is_checked_where_the_talk_is_its_own(tmp_path):
    """An assistant's name counts where no person speaks; in a person's session its episode is the person's."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        memory.add("one", [message("All done.", "bot", role="assistant")])
        with pytest.raises(cairn.Invalid, match='"bot"'):
            memory.add("two", [message("All done.", "BOT", role="assistant")])
        memory.add("three", [message("Go on.", "ann"), message("All done.", "BOT", 1, "assistant")])
        assert memory.flush("three").status == "extracted"


def test_a_note_that_cannot_be_read_holds_up_its_owner_alone(tmp_path):
    """Zoe gets her episode, adds go on, the trouble is named, and Bob's is written once his note is mended."""
    root = tmp_path / "root"
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        add, flush = "memory/add", "memory/flush"
        server.post(add, {"session_id": "first", "messages": [message("Bob likes tea.", "bob")]})
        server.post(flush, {"session_id": "first"})
        note, kept = latin_1(root, "bob")
        both = [message("We meet at nine.", "bob", 1), message("At the pier.", "zoe", 2)]
        server.post(add, {"session_id": "group", "messages": both})

        code, answer = server.post(flush, {"session_id": "group"})

        assert (code, answer["data"]["status"]) == (200, "extracted")
        assert "bob" in answer["data"]["waiting"][0]
        assert "not UTF-8" in answer["data"]["waiting"][0]
        code, answer = server.post(add, {"session_id": "group", "messages": [message("Or ten.", "zoe", 3)]})
        assert (code, answer["data"]["status"]) == (200, "accumulated")
        found = server.post(
            "memory/search", {"query": "pier", "user_id": "zoe", "method": "keyword", "consistency": "strong"}
        )
        assert len(found[1]["data"]["episodes"]) == 1

    with cairn.open_blocking(root, **OPTIONS) as memory:
        told = [item for item in memory.doctor() if "waits, its words are kept" in item["what"]]
        assert [item["level"] for item in told] == ["fail"]
        assert "bob" in told[0]["what"]
        assert "not UTF-8" in told[0]["what"]
        assert [one["owner"] for one in memory.index_status()["waiting"]] == ["bob"]
        note.write_text(kept)
        assert memory.flush("group").status == "extracted"
        assert memory.index_status()["waiting"] == []
        assert episodes(memory, "bob").count("We meet at nine.") == 1
        assert episodes(memory, "zoe").count("We meet at nine.") == 1
        assert not [item for item in memory.doctor() if "waits" in item["what"]]


def test_the_background_writes_what_waited(tmp_path):
    """Mended while a server runs: the episode is written without anybody asking."""
    root = tmp_path / "root"
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        add, flush = "memory/add", "memory/flush"
        server.post(add, {"session_id": "first", "messages": [message("Bob likes tea.", "bob")]})
        server.post(flush, {"session_id": "first"})
        note, kept = latin_1(root, "bob")
        server.post(add, {"session_id": "next", "messages": [message("We meet at nine.", "bob", 1)]})
        code, answer = server.post(flush, {"session_id": "next"})
        assert code == 503
        assert "its words are kept" in answer["error"]["message"]
        note.write_text(kept)
        until(lambda: "We meet at nine." in note.read_text())
        assert note.read_text().count("<!-- /entry:") == 2


def test_a_folder_that_clashes_after_the_add_is_named_and_tried_again(tmp_path):
    """The clash came by hand, after the words were acknowledged: adds answer, `flush` says what waits, and it recovers."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        memory.add("s", [message("I like tea.", "ann")])
        (tmp_path / USERS / "ann").rmdir()
        (tmp_path / USERS / "ANN").mkdir()
        with pytest.raises(cairn.Unavailable, match='"ANN"'):
            memory.flush("s")
        assert memory.add("s", [message("And rum.", "ann", 1)]).status == "accumulated"
        assert any('"ANN"' in item["what"] for item in memory.doctor())
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        assert any('"ANN"' in item["what"] for item in memory.doctor())
        shutil.rmtree(tmp_path / USERS / "ANN")
        assert memory.flush("s").status == "extracted"
        assert episodes(memory, "ann").count("I like tea.") == episodes(memory, "ann").count("And rum.") == 1


def test_an_episode_that_was_removed_while_another_waits_stays_removed(tmp_path):
    """Whose episode was written is noted in the log: trying again for Bob does not write Zoe's anew."""
    kit = World(tmp_path)
    kit.add("first", said("tea", who="bob"))
    kit.flush("first")
    note, kept = latin_1(tmp_path, "bob")
    kit.add("s1", said("nine", 1, who="bob"), said("ten", 2, who="zoe"))
    kit.flush("s1")
    [(locator, entry)] = [
        (at, kit.notebook.read(at).entries[0])
        for at in kit.notebook.notes(kind="episode")
        if "/zoe/" in at.key
    ]
    kit.notebook.remove(locator, [entry.id])
    note.write_text(kept)

    later = World(tmp_path)
    assert later.capture.recover() == 1
    assert sorted(owner for owner, _ in later.episodes()) == ["bob", "bob"]
    assert later.log().pending == []


def test_an_add_whose_episode_the_disk_refuses_says_what_it_has_written(tmp_path, monkeypatch):
    """The messages are durable, so the call answers so; the next one writes the episode."""
    kit = World(tmp_path, capture__max_messages=2)

    def refuse(*args, **kwargs):
        raise StorageFailed("The disk is full.")

    monkeypatch.setattr(kit.notebook, "append", refuse)
    outcome = kit.add("s1", said("one"), said("two", 1))
    monkeypatch.undo()

    assert outcome.status == "accumulated"
    assert [one.scope.owner for one in outcome.waiting] == ["ann"]
    assert kit.flush().status == "extracted"
    assert kit.told().count("one") == 1


def test_a_cell_that_waits_does_not_make_every_add_try_again(tmp_path, monkeypatch):
    """Each failure makes the pause longer, so a session with trouble stays as quick as others; a flush insists."""
    kit = World(tmp_path, capture__max_messages=2)
    tried = []

    def refuse(*args, **kwargs):
        tried.append(args)
        raise StorageFailed("The disk is full.")

    monkeypatch.setattr(kit.notebook, "append", refuse)
    kit.add("s1", said("one"), said("two", 1))
    for n in range(20):
        kit.add("s1", said(f"more {n}", n + 2), defer=n % 2 == 0)
    cells = len(kit.log().cells)

    assert len(tried) <= cells + 2
