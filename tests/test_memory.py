"""The facade over a real root: vaults, secrets, conflict copies, recovery and default silence."""

import shutil
import socket
from datetime import UTC, datetime, timedelta

import pytest

import cairn
from tests.waiting import until

NOW = 1_780_000_000_000


def said(text, sender="alice", at=NOW):
    return {"sender_id": sender, "role": "user", "timestamp": at, "content": text}


def find(memory, query, user="alice", **more):
    return memory.search(query, user_id=user, method="keyword", consistency="strong", **more).episodes


def test_a_vault_keeps_its_index_and_locks_outside(tmp_path):
    """S43, C8: nothing of the index and no lock lies in a synced folder."""
    vault, cache = tmp_path / "vault", tmp_path / "cache"
    options = {"storage__backend": "vault", "storage__cache": str(cache), "embedding__provider": "none"}
    with cairn.open_blocking(vault, **options) as memory:
        memory.add("s", [said("heron")])
        memory.flush("s")
        assert find(memory, "heron")
    assert not (vault / ".index").exists()
    assert not (vault / ".tmp" / "locks").exists()
    assert list(cache.rglob("index.db"))


def test_an_index_inside_a_vault_is_refused(tmp_path):
    """S75: a database must not travel with a synced folder: a named error, nothing made."""
    options = {
        "storage__backend": "vault",
        "storage__cache": str(tmp_path / "c"),
        "index__dir": str(tmp_path / "v" / "i"),
    }
    with pytest.raises(cairn.Misconfigured), cairn.open_blocking(tmp_path / "v", **options):
        pass


def test_conflict_copies_in_a_vault_are_merged(tmp_path):
    """A copy that a sync program left is brought into its note and found."""
    options = {
        "storage__backend": "vault",
        "storage__cache": str(tmp_path / "cache"),
        "embedding__provider": "none",
    }
    with cairn.open_blocking(tmp_path / "v", **options) as memory:
        memory.add("s", [said("heron")])
        memory.flush("s")
    note = next((tmp_path / "v").glob("*/*/users/alice/episodes/*.md"))
    text = note.read_text().replace("_00000001", "_00000002").replace("heron", "egret")
    (note.parent / f"{note.stem} (Ann's conflicted copy 2026-06-01).md").write_text(text)
    with cairn.open_blocking(tmp_path / "v", **options) as memory:
        assert find(memory, "heron")
        assert find(memory, "egret")
    assert len(list(note.parent.glob("*.md"))) == 1


def test_secrets_never_reach_the_disk(tmp_path):
    """A credential in a message is cut out before the first byte is written, or refused when set so."""
    key = "AKIA" + "Z3QW7RT2VB9KX5LM"
    with cairn.open_blocking(tmp_path / "a", embedding__provider="none") as memory:
        memory.add("s", [said(f"the key is {key} ok")])
        memory.flush("s")
    for file in (tmp_path / "a").rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file
    with cairn.open_blocking(tmp_path / "b", embedding__provider="none", keeping__secrets="refuse") as memory:
        with pytest.raises(cairn.Invalid, match="credential"):
            memory.add("s", [said(f"the key is {key} ok")])


def test_default_mode_opens_no_socket(tmp_path, monkeypatch):
    """P8, E6: with default settings nothing connects anywhere; all engines are in the process."""
    calls = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: calls.append(address))
    with cairn.open_blocking(tmp_path) as memory:
        memory.add("s", [said("we met Hans in Bremen last year")])
        memory.flush("s")
        memory.search("who did we meet", user_id="alice", consistency="strong")
    assert calls == []


def test_strategies_follow_a_flush(tmp_path):
    """E67, E77: facts appear by themselves, are nested under their episode and name their parent."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s", [said("I adopted a parrot called Kiwi in March 2024.")])
        memory.flush("s")
        facts = until(lambda: next((hit.facts for hit in find(memory, "parrot Kiwi")), ()))
    assert any("parrot" in fact.text for fact in facts)


def test_whoever_subscribes_hears_of_kept_memories_and_of_hand_edits(tmp_path):
    """A56: callbacks hear of each upserted memory and of every file that is indexed anew; one that fails harms nobody."""
    rows, files = [], []
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.memories.on_upserted(lambda _row: 1 / 0)
        stop = memory.memories.on_upserted(rows.append)
        memory.subscribe(files.append, "changed")
        memory.remember("Builds run on Alpine.")
        memory.remember("Builds run on Alpine.")
        stop()
        memory.remember("Releases go out on Tuesdays.")
        assert [row["content"] for row in rows] == ["Builds run on Alpine."] * 2
        note = next(tmp_path.glob("*/*/shared/memories/*.md"))
        until(lambda: files, "the written note is told")
        files.clear()
        note.write_text(note.read_text().replace("Tuesdays", "Mondays"))
        until(lambda: files, "the edited note is told")
        assert files[0]["path"] == note.relative_to(tmp_path).as_posix()
        assert (files[0]["scope"], files[0]["owner"], files[0]["kind"]) == ("project", None, "memory")


def test_a_closed_memory_says_so(tmp_path):
    """Using a memory outside its block is a named error."""
    memory = cairn.open_blocking(tmp_path)
    with pytest.raises(cairn.Invalid, match="not open"):
        memory.flush("s")


def test_show_traces_an_entry_to_its_words(tmp_path):
    """An entry names its file and line and the very messages it came from."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s", [said("the lighthouse is red"), said("and tall", at=NOW + 5)])
        memory.flush("s")
        entry = find(memory, "lighthouse")[0].id
        shown = memory.show(entry)
    assert [message["text"] for message in shown["messages"]] == ["the lighthouse is red", "and tall"]
    lines = (tmp_path / shown["path"]).read_text().splitlines()
    assert shown["inline"]["parent_id"] in "\n".join(lines)
    assert lines[shown["line"] - 1].startswith("<!-- entry:")


def test_state_is_in_sqlite_and_is_made_again(tmp_path):
    """E4: queue, rows and engine state are SQLite files in .index/sqlite, and come back when they are deleted."""
    folder = tmp_path / ".index" / "sqlite"
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s", [said("a kingfisher")])
        memory.flush("s")
        assert find(memory, "kingfisher")
        assert {"system.db", "index.db", "ome.db"} <= {file.name for file in folder.iterdir()}
    shutil.rmtree(tmp_path / ".index")
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        assert find(memory, "kingfisher")
        assert {"system.db", "index.db"} <= {file.name for file in folder.iterdir()}


def test_one_id_under_two_owners_stays_two_rows(tmp_path):
    """E54, E55: the same entry id under two owners is two memories, and each owner finds only its own."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        for user, bird in (("alice", "robin"), ("bob", "raven")):
            memory.add(f"s-{user}", [said(f"a {bird}", sender=user)])
            memory.flush(f"s-{user}")
        one, other = find(memory, "robin"), find(memory, "raven", user="bob")
        assert one[0].entry_id == other[0].entry_id
        assert one[0].id != other[0].id
        assert not find(memory, "raven")


def test_every_write_answers_with_a_growing_lsn(tmp_path):
    """E74, E75: each write has a later number, the queue remembers what was done, and waiting for a number works."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        numbers = []
        for number in range(3):
            memory.add(f"s{number}", [said(f"swift {number}", at=NOW + number)])
            numbers.append(memory.flush(f"s{number}").lsn)
        assert numbers == sorted(set(numbers))
        hits = memory.search("swift", user_id="alice", method="keyword", min_lsn=numbers[-1]).episodes
        assert len(hits) == 3
        path = hits[0].path  # a strategy may write to it again: done for now
        until(lambda: memory.parts.state.known([path])[path].status == "done")


def test_search_as_of_a_time_answers_from_what_was_known_then(tmp_path):
    """An edit and a removal made later do not reach back; what was not known yet is not found."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s", [said("the heron nests by the weir")])
        memory.flush("s")
        assert find(memory, "heron")
        memory.log()
        then = datetime.now(UTC)
        until(lambda: datetime.now(UTC) - then > timedelta(milliseconds=1))
        note = next(tmp_path.glob("*/*/users/alice/episodes/*.md"))
        note.write_text(note.read_text().replace("heron", "osprey"))
        assert find(memory, "osprey")
        asked = {"user_id": "alice", "method": "keyword"}
        before = memory.search("heron", as_of=then, **asked)
        assert "heron" in before.episodes[0].fields["Content"]
        assert any("recorded by then" in remark for remark in before.freshness.notes)
        assert not memory.search("osprey", as_of=then, **asked).episodes
        assert memory.search("osprey", as_of=datetime.now(UTC), **asked).episodes


def test_a_strong_hybrid_search_does_not_wait_for_vectors_nobody_makes(tmp_path):
    """Without a model there is nothing to wait for: an hour's patience is not used, and words answer."""
    with cairn.open_blocking(tmp_path, embedding__provider="none") as memory:
        memory.add("s", [said("a bittern booms")])
        memory.flush("s")
        memory.parts.catch_up(3600, embed=True)
        result = memory.search("bittern", user_id="alice", consistency="strong")
        assert result.episodes


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.reextract(date="2026-13-45"),
        lambda m: m.reextract(date=20260101),
        lambda m: m.reextract(user_id=5),
        lambda m: m.search("x", user_id="ana", as_of="2026-13-45"),
        lambda m: m.search("x", user_id="ana", as_of=5),
        lambda m: m.search("x", user_id="ana", as_of="0001-01-01T00:00:00+14:00"),
        lambda m: m.get("episode", user_id="ana", page=0),
        lambda m: m.get("episode", user_id="ana", sort_by="luck"),
        lambda m: m.get("episode", user_id="ana", sort_order="luck"),
        lambda m: m.log(limit=-1),
        lambda m: m.log(limit="5"),
        lambda m: m.log(5),
        lambda m: m.show(5),
        lambda m: m.show(None),
        lambda m: m.diff(None),
        lambda m: m.restore(None),
        lambda m: m.export_to(""),
        lambda m: m.export_to("a\0b"),
        lambda m: m.import_from(""),
        lambda m: m.sync(""),
        lambda m: m.memories.list(limit="5"),
        lambda m: m.memories.list(offset=1.5),
        lambda m: m.memories.list(scope="project", owner="ana"),
        lambda m: m.memories.import_skill("a\0b"),
        lambda m: m.memories.scan_skills([""]),
        lambda m: m.memories.import_from("mem0", "[" * 100_000),
        lambda m: m.memories.import_from("claude", "- x", owner="../x"),
        lambda m: m.remember("Tea is at four.", owner="ana"),
    ],
)
def test_nonsense_is_a_named_error_in_python_too(tmp_path, call):
    """A date, number, id or path that is none is `Invalid`, and nothing is written."""
    with cairn.open_blocking(tmp_path / "root", embedding__provider="none", background=False) as memory:
        memory.remember("The pier closes at dusk.")
        before = {path: path.read_bytes() for path in (tmp_path / "root").rglob("*.md")}
        with pytest.raises(cairn.Invalid):
            call(memory)
        assert {path: path.read_bytes() for path in (tmp_path / "root").rglob("*.md")} == before
