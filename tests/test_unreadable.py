"""What cannot be read costs only its owner: strong reads of others do not wait, and an answer that rests on it says so."""

from __future__ import annotations

import os
import shutil
import socket
import threading

import pytest

import cairn
from cairn.errors import CairnError
from cairn.seams import Locator
from cairn.seams.storage import iterate_files
from tests.surfaces.served import serving_here
from tests.waiting import until

AT = 1_780_000_000_000
OPTIONS = {"embedding__provider": "none", "background": False}
SPACE = "default_app/default_project"


def message(text, who, n=0):
    return {"sender_id": who, "role": "user", "timestamp": AT + n * 1000, "content": text}


def told(memory, who, text, app="default"):
    memory.add(f"of-{who}", [message(text, who)], app_id=app)
    memory.flush(f"of-{who}", app_id=app)


def find(memory, who, words, **more):
    return memory.search(words, user_id=who, method="keyword", consistency="strong", **more)


def note_of(root, who):
    return next((root / SPACE / "users" / who / "episodes").glob("*.md"))


@pytest.fixture
def root(tmp_path):
    """Ann and Bob, both told and indexed, and Cleo in another app."""
    with cairn.open_blocking(tmp_path / "root", **OPTIONS) as memory:
        told(memory, "ann", "Ann keeps bees.")
        told(memory, "bob", "Bob keeps geese.")
        told(memory, "cleo", "Cleo keeps goats.", app="other")
        assert find(memory, "ann", "bees").freshness.state == "fresh"
    return tmp_path / "root"


def locked_note(root):
    note = note_of(root, "bob")
    note.write_text(note.read_text() + "\n")
    note.chmod(0)


def locked_folder(root):
    (root / SPACE / "users" / "bob").chmod(0)


def locked_log(root):
    log = root / SPACE / "sessions" / "of-bob.jsonl"
    log.write_text(log.read_text() + '{"t":"done","cell":"mc_1"}\n')
    log.chmod(0)


def in_place_of_bobs_note(root, made):
    """Put what was made elsewhere there in one step: a note that is gone for a moment has gone, and nobody misses it."""
    os.replace(made, note_of(root, "bob"))


def a_socket(root):
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(root.parent)
        try:
            made.bind("made")
        finally:
            os.chdir(here)
    in_place_of_bobs_note(root, root.parent / "made")


def a_folder(root):
    note = note_of(root, "bob")
    note.unlink()
    note.mkdir()


def a_dangling_link(root):
    (root.parent / "made").symlink_to("nowhere.md")
    in_place_of_bobs_note(root, root.parent / "made")


def a_pipe(root):
    os.mkfifo(root.parent / "made")
    in_place_of_bobs_note(root, root.parent / "made")


def latin_1(root):
    note = note_of(root, "bob")
    note.write_bytes(note.read_text().replace("geese", "g\u00e4nse geese").encode("latin-1"))


TROUBLES = [locked_note, locked_folder, locked_log, a_socket, a_folder, a_dangling_link, a_pipe, latin_1]
PERMISSIONS = {locked_note, locked_folder, locked_log}


def may_read_anything(tmp_path):
    """Whether modes mean nothing to this process, as for an administrator."""
    closed = tmp_path / "closed"
    closed.write_text("")
    closed.chmod(0)
    return os.access(closed, os.R_OK)


@pytest.mark.parametrize("place", ["users", "users/bob", "sessions", "journal", "", ".."])
def test_a_file_in_the_place_of_a_folder_is_named(root, place):
    """Nothing is found or kept below it, so `doctor` does not say that all is well."""
    at = (root / SPACE / place).resolve()
    shutil.rmtree(at)
    at.write_text("")
    with cairn.open_blocking(root, **OPTIONS) as memory:
        named = [item["what"].split(" ")[0] for item in memory.doctor() if item["level"] == "fail"]
    assert at.relative_to(root).as_posix() in named


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_cannot_be_read_costs_its_owner_alone(root, trouble, tmp_path):
    """Others are answered at once and fresh; its owner gets what was known, marked; `doctor` names it."""
    if trouble in PERMISSIONS and may_read_anything(tmp_path):
        pytest.skip("modes mean nothing to this user")
    trouble(root)
    try:
        with cairn.open_blocking(root, **OPTIONS) as memory:
            for who, words, app in (("ann", "bees", "default"), ("cleo", "goats", "other")):
                found = find(memory, who, words, app_id=app)
                assert len(found.episodes) == 1
                assert (found.freshness.state, found.freshness.notes) == ("fresh", ())
            mine = find(memory, "bob", "geese", evidence=3)
            assert mine.freshness.state == "behind"
            assert any("cannot be read" in note and "bob" in note for note in mine.freshness.notes)
            page = memory.get("episode", user_id="bob", consistency="strong")
            assert page.freshness.state == "behind"
            assert any("cannot be read" in note for note in page.freshness.notes)
            assert memory.index_status()["pending"] == 0
            assert any("bob" in item["what"] for item in memory.doctor() if item["level"] == "fail")
    finally:
        (root / SPACE / "users" / "bob").chmod(0o755)


@pytest.mark.parametrize("trouble", [a_socket, a_folder, a_dangling_link, latin_1])
def test_a_server_answers_others_at_once_and_notices_the_mending(root, trouble):
    """The same over HTTP with a running index; once the note is back, its owner is fresh again."""
    kept = note_of(root, "bob").read_text()
    place = note_of(root, "bob")
    with serving_here(root, env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:

        def ask(who, words):
            body = {"query": words, "user_id": who, "method": "keyword", "consistency": "strong"}
            code, answer = server.post("memory/search", body)
            assert code == 200
            return answer["data"]

        trouble(root)
        assert ask("ann", "bees")["freshness"]["state"] == "fresh"

        def is_behind_and_named():
            """In one answer: while the watcher has the note looked at once more, it waits and nothing is known of it."""
            told = ask("bob", "geese")["freshness"]
            return told["state"] == "behind" and any(place.name in note for note in told["notes"])

        until(is_behind_and_named)
        if place.is_dir() and not place.is_symlink():
            place.rmdir()
        else:
            place.unlink()
        place.write_text(kept.replace("geese", "swans"))
        assert len(ask("bob", "swans")["episodes"]) == 1
        assert ask("bob", "geese")["episodes"] == []
        until(lambda: ask("bob", "swans")["freshness"]["state"] == "fresh")


def test_a_link_in_one_owners_folder_stops_nothing_that_is_for_all(root, tmp_path):
    """History, lists, sweeps, pages and forgetting go through everybody's folders: one that cannot be read is passed over."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        for who, what in (("ann", "red boots"), ("bob", "a green hat")):
            assert memory.remember(f"{who} wears {what} in the garden.", scope="user", owner=who).accepted
        made = memory.checkpoint("before")
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in ("memories", "episodes"):
        shutil.rmtree(root / SPACE / "users" / "bob" / folder)
        (root / SPACE / "users" / "bob" / folder).symlink_to(outside)
    with cairn.open_blocking(root, **OPTIONS) as memory:
        assert memory.log() and memory.checkpoints()
        memory.diff(made["id"])
        assert len(memory.memories.list().memories) == 1
        for act in (
            memory.memories.sweep,
            memory.memories.refresh,
            memory.memories.consolidate,
            memory.overview,
        ):
            act()
        gone = memory.memories.forget(words=["red boots"], scope="user", owner="ann")
        assert gone.removed["memory entries"] == 1
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_stands_in_the_place_of_a_journal_or_page_costs_only_itself(root, tmp_path, what):
    """A journal of ours is made anew beside it, a page or a log is passed over; nothing is followed, nobody is stopped."""
    outside = tmp_path / "outside"
    with cairn.open_blocking(root, **OPTIONS) as memory:
        assert memory.remember("Ann wears red boots in the garden.", scope="user", owner="ann").accepted
        memory.memories.note_day("A day.")
        memory.memories.sweep()
    space = root / SPACE
    places = [
        *space.glob("journal/*.jsonl"),
        *space.glob("journal/history/*.jsonl"),
        *(root / ".tmp/cells").iterdir(),
    ]
    places += [
        space / "shared/pages/facts.md",
        space / "sessions/of-bob.jsonl",
        root / ".index/sqlite/vectors.db",
    ]
    assert len(places) > 8
    for place in places:
        place.unlink(missing_ok=True)
        {"link": lambda at: at.symlink_to(outside), "pipe": os.mkfifo, "folder": os.mkdir}[what](place)
    with cairn.open_blocking(root, **OPTIONS) as memory:
        told(memory, "zoe", "Zoe keeps zebras.")
        assert find(memory, "zoe", "zebras").episodes and memory.memories.list().memories
        memory.memories.note_day("Another day.")
        assert memory.checkpoint("after") and memory.log()
        memory.memories.sweep()
        gone = memory.memories.forget(words=["red boots"], scope="user", owner="ann")
        assert gone.removed["memory entries"] == 1
        assert memory.doctor()
        assert "Another day." in str(memory.memories.daily())
    assert not outside.exists()
    assert len(list(space.glob("journal/daily.jsonl.aside-*"))) == 1


def test_a_note_that_may_be_read_again_is_found_by_the_next_strong_read(root, tmp_path):
    """Its time and size are as before: only trying again tells."""
    if may_read_anything(tmp_path):
        pytest.skip("modes mean nothing to this user")
    locked_note(root)
    with cairn.open_blocking(root, **OPTIONS) as memory:
        assert find(memory, "bob", "geese").freshness.state == "behind"
        note_of(root, "bob").chmod(0o644)
        found = find(memory, "bob", "geese")
        assert (found.freshness.state, len(found.episodes)) == ("fresh", 1)


def test_a_rebuild_beside_something_unreadable_comes_to_an_end(root):
    """The index is complete although one note cannot be indexed; nobody is told for ever that it is being rebuilt."""
    latin_1(root)
    shutil.rmtree(root / ".index")
    with cairn.open_blocking(root, **OPTIONS) as memory:
        found = find(memory, "ann", "bees")
        assert (found.freshness.state, len(found.episodes)) == ("fresh", 1)
        assert find(memory, "bob", "geese").freshness.state == "behind"


def test_strong_reads_wait_for_their_own_changes(root):
    """With changes of another owner queued and nobody indexing, a strong read does not do their work first."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        indexer = memory.parts.indexer
        for n in range(250):
            place = (
                root
                / SPACE
                / "users"
                / "dan"
                / "episodes"
                / f"episode-2020-{n // 28 + 1:02d}-{n % 28 + 1:02d}.md"
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(note_of(root, "bob").read_text())
        queued = indexer.scan().queued
        note = note_of(root, "ann")
        note.write_text(note.read_text().replace("bees", "moths"))
        assert find(memory, "ann", "moths").episodes
        assert queued >= 250
        assert memory.index_status()["pending"] > 100


def test_a_strong_search_looks_at_the_files_once(root, monkeypatch):
    """One look at the owner's folder and the session logs; nothing of anybody else is listed."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        find(memory, "ann", "bees")
        scanned = []
        real = memory.parts.indexer.scan
        monkeypatch.setattr(
            memory.parts.indexer, "scan", lambda scope=None: (scanned.append(scope), real(scope))[1]
        )
        listed = []
        storage = memory.parts.storage
        quick = storage.scan
        monkeypatch.setattr(
            storage, "scan", lambda at, note=None: (listed.append(at.key), quick(at, note))[1]
        )
        find(memory, "ann", "bees")
        assert [scope.owner for scope in scanned] == ["ann"]
        assert listed == [f"{SPACE}/users/ann", f"{SPACE}/sessions"]


def test_folders_that_come_and_go_never_end_a_walk(root):
    """What is moved away between being listed and being looked at is not there, for everybody else."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        storage = memory.parts.storage
        real = storage.list
        bob = root / SPACE / "users" / "bob"

        def listing(at):
            found = real(at)
            if at.name == "users" and bob.exists():
                bob.rename(root / "elsewhere")
            return found

        storage.list = listing
        assert [at.parts[3] for at in memory.parts.notebook.notes(kind="episode")] == ["ann", "cleo"]


def test_a_strong_search_beside_folders_that_move_is_never_an_error(root):
    """Another owner's folder moves to and fro, the index is lost again and again: Ann is always answered."""
    stop = threading.Event()
    bob, away = root / SPACE / "users" / "bob", root / "away"

    def moving():
        while not stop.is_set():
            bob.rename(away)
            away.rename(bob)

    thread = threading.Thread(target=moving)
    with cairn.open_blocking(root, **OPTIONS) as memory:
        thread.start()
        try:
            for n in range(40):
                if n % 10 == 0:
                    shutil.rmtree(root / ".index", ignore_errors=True)
                assert len(find(memory, "ann", "bees", evidence=2).episodes) == 1
        finally:
            stop.set()
            thread.join()


def test_a_page_comes_from_the_files_while_the_index_is_made(root):
    """C4: `get` answers from a scan of the notes while the index is being rebuilt, as `search` does, and says so."""
    with cairn.open_blocking(root, **OPTIONS) as memory:
        for n in range(40):
            memory.add("many", [message(f"Ann counts to {n}.", "ann", n)])
            memory.flush("many")
        whole = memory.get("episode", user_id="ann", consistency="strong", page_size=100)
        # Somebody else holds the lease and does nothing with it.
        shutil.rmtree(root / ".index")
        with memory.parts.locks.lease("indexer") as mine:
            assert mine
            for consistency in ("strong", "eventual"):
                page = memory.get("episode", user_id="ann", consistency=consistency, page_size=100)
                assert page.total_count == whole.total_count == 41
                assert [item["id"] for item in page.episodes] == [item["id"] for item in whole.episodes]
                assert page.freshness.state == "rebuilding"
                assert any("scan of the notes" in note for note in page.freshness.notes)
            second = memory.get("episode", user_id="ann", page=2, page_size=30)
            assert [item["id"] for item in second.episodes] == [item["id"] for item in whole.episodes[30:]]


def test_a_walk_tells_what_it_passed_over(tmp_path):
    """A folder that cannot be listed ends a walk with its error, unless somebody wants to hear of it."""

    class Storage:
        def list(self, at):
            if at.key == "a":
                raise CairnError("not this one")
            return [Locator("a"), Locator("b")] if not at.key else []

        def info(self, at):
            from cairn.seams import Info

            return Info(at, at.key == "a", 0, 0.0)

    with pytest.raises(CairnError):
        list(iterate_files(Storage(), Locator()))
    heard = []
    assert list(
        iterate_files(Storage(), Locator(), lambda at, error: heard.append((at.key, str(error))))
    ) == [Locator("b")]
    assert heard == [("a", "not this one")]
