"""From changes to rows: diffs, damage, deletion, rebuilds and strong reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from cairn.engines import objects, row_tables, rows
from cairn.engines.database import Database
from cairn.engines.embedders import HashingEmbedder
from cairn.errors import Unavailable
from cairn.index import filters
from cairn.index.corpus import Ask
from cairn.retrieval import indexer
from cairn.seams import Known, Locator
from cairn.talk.lines import message_to
from cairn.talk.sessions import cell_id, session_locator
from cairn.types import Message, Scope, Space
from tests.waiting import LONG
from tests.world import ALICE, BOB, DAY, Indexed, by_meaning


@pytest.fixture
def world(tmp_path):
    made = Indexed(tmp_path / "root")
    yield made
    made.close()


class CountingEmbedder(HashingEmbedder):
    """Remembers every text it was asked for."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.asked: list[str] = []

    def embed(self, texts):
        self.asked.extend(texts)
        return super().embed(texts)


def say(
    world: Indexed, session: str, texts: list[str], owners: list[Scope], *, upto: int | None = None
) -> Locator:
    """A session log with one cut cell, as capture writes it."""
    at = session_locator(Space(), session)
    messages = [
        Message("alice", "user", 1_780_000_000_000 + n, text, "Alice") for n, text in enumerate(texts)
    ]
    upto = len(texts) if upto is None else upto
    lines = [
        {"t": "add", "n": 0, "batch": "b", "at": "", "messages": [message_to(m) for m in messages]},
        {
            "t": "cut", "cell": cell_id(Space(), session, 0, upto), "first": 0, "upto": upto, "day": DAY,
            "reason": "flush", "owners": [[scope.track, scope.owner] for scope in owners], "at": "",
        },
    ]  # fmt: skip
    world.journals.append(at, [json.dumps(line) for line in lines])
    world.indexer.note_change([(at, "modified")])
    return at


def test_a_written_entry_becomes_a_row_that_carries_its_answer(world):
    """E68, E56, E117: text, time, session, senders and fields are in the row; its public id names the owner."""
    entry = world.episode("We chose PostgreSQL for billing.", parent_type="memcell", parent_id="mc_1",
                          sender_ids=["alice", "bob"])  # fmt: skip
    world.sync()
    [row] = world.index.find(ALICE, [entry])
    assert row.id == f"alice_{entry}"
    assert (row.kind, row.session_id, row.cell_id, row.sender_ids) == (
        "episode",
        "s1",
        "mc_1",
        ("alice", "bob"),
    )
    assert row.timestamp_ms == int(datetime(2026, 6, 1, 10, tzinfo=UTC).timestamp() * 1000)
    assert row.fields["Content"] == "We chose PostgreSQL for billing."
    assert len(row.content_sha256) == 64
    assert world.hits("postgresql") == [entry]


def test_rows_join_by_scope_and_entry_id(world):
    """E54, P7: the same id under two owners is two rows, and neither sees the other's."""
    assert world.episode("secret plan of alice") == world.episode("secret plan of bob", BOB)
    world.sync()
    [mine], [theirs] = (world.index.find(s, [world.hits("secret", s)[0]]) for s in (ALICE, BOB))
    assert (mine.text, theirs.text) == ("secret plan of alice", "secret plan of bob")
    assert world.index.rows(BOB, [mine.rowid]) == []
    assert world.hits("plan", Scope(Space("other"), "user", "alice")) == []


def test_an_edit_before_the_first_look_is_told(world):
    """What we wrote and nobody touched is no edit; what was changed before it was ever indexed is one."""
    first = world.episode("I adopted a heron called Zaphodine.")
    world.sync()
    assert world.edited == []
    second = world.episode("I work as a plumber in Porto.")
    world.note_path().write_text(world.note_path().read_text().replace("Porto", "Braga"))
    third = world.episode("My sister plays the tuba.")  # written by us, over what a person changed
    world.sync()
    assert second in world.edited
    assert first not in world.edited
    world.edited.clear()
    world.episode("We went to the sea.")
    world.sync()
    assert world.edited == []
    world.note_path().write_text(world.note_path().read_text().replace("tuba", "horn"))
    world.sync()
    assert world.edited == [third]


def test_only_the_edited_entry_is_embedded_again(tmp_path):
    """E72, E73, E95: an edit costs one embedding; an edit of an audit field updates the row and costs none."""
    embedder = CountingEmbedder()
    world = Indexed(tmp_path, embedder=lambda: embedder)
    for text in ("alpha one", "beta two", "gamma three"):
        world.episode(text)
    world.waits.catch_up(10, embed=True)
    assert sorted(embedder.asked) == ["alpha one", "beta two", "gamma three"]
    embedder.asked.clear()
    file = world.note_path()
    file.write_text(file.read_text().replace("beta two", "beta changed"))
    world.waits.catch_up(10, embed=True)
    assert embedder.asked == ["beta changed"]
    assert world.hits("two") == []
    [changed] = world.hits("changed")
    before = world.index.find(ALICE, [changed])[0]
    embedder.asked.clear()
    file.write_text(file.read_text().replace("**session_id**: s1", "**session_id**: s2"))
    world.waits.catch_up(10, embed=True)
    after = world.index.find(ALICE, [changed])[0]
    assert embedder.asked == []
    assert (after.session_id, after.rowid, after.content_sha256) == (
        "s2",
        before.rowid,
        before.content_sha256,
    )
    world.close()


def test_removed_entries_and_files_leave_no_rows(world):
    """E109: an entry cut out of a file, and a file that is gone when its change is worked on."""
    first, second = world.episode("keep this"), world.episode("drop this")
    world.sync()
    world.notebook.remove(world.root.note("episode", ALICE, DAY), [second])
    world.sync()
    assert world.hits("this") == [first]
    world.indexer.note_change([(world.root.note("episode", ALICE, DAY), "modified")])
    world.note_path().unlink()
    world.sync()
    assert world.all_rows(damaged=True) == []
    assert world.index.known_paths() == []
    key = world.root.note("episode", ALICE, DAY).key
    assert world.state.known([key])[key].change_type == "deleted"
    assert key not in world.state.known()


def test_damage_costs_neither_its_neighbours_nor_its_own_row(world):
    """E96: with an unterminated marker every other entry stays current; the damaged one's row is kept, marked."""
    ids = [world.episode(f"entry number{n}") for n in range(3)]
    world.sync()
    file = world.note_path()
    whole = file.read_text()
    broken = whole.replace(f"<!-- /entry:{ids[1]} -->\n", "").replace("number2", "number2 fresh")
    file.write_text(broken)
    world.sync()
    assert world.hits("entry") == ids
    assert [row.damaged for row in world.index.find(ALICE, ids)] == [False, True, False]
    assert world.hits("fresh") == [ids[2]], "entries after the damage are still followed"
    file.write_text(whole)
    world.sync()
    assert [row.damaged for row in world.index.find(ALICE, ids)] == [False, False, False]


def test_a_file_that_is_not_text_fails_for_good_and_keeps_its_rows(world):
    """E103, E107: a permanent failure has a reason, is not retried while the file stays, and costs no row."""
    entry = world.episode("still findable")
    world.sync()
    file = world.note_path()
    whole = file.read_bytes()
    file.write_bytes(whole + b"\xff\xfe")
    world.sync()
    assert world.hits("findable") == [entry]
    [failure] = world.state.failures()
    assert failure["retryable"] is False
    assert "UTF-8" in failure["error"]
    assert world.indexer.scan().queued == 0
    assert world.indexer.status().state == "fresh", "E110: permanent failures never flip the health"
    file.write_bytes(whole)
    world.sync()
    assert world.state.failures() == []


def test_deprecated_entries_are_hidden_and_say_their_successor(world):
    """E119: listed in the frontmatter's `deprecated_entries`, an entry stays but is hidden by default."""
    old, new = world.episode("old words"), world.episode("new words")
    world.sync()
    world.notebook.update_frontmatter(
        world.root.note("episode", ALICE, DAY), {"deprecated_entries": {old: new}}
    )
    world.sync()
    row = world.index.find(ALICE, [old])[0]
    assert (row.status, row.fields["deprecated_by"]) == ("deprecated", new)
    assert world.index.page(ALICE, ["episode"]).total == 1
    assert world.index.page(ALICE, ["episode"], hidden=True).total == 2
    corpus = world.index.corpus(ALICE)
    assert [bool(flag & 8) for flag in corpus.flags] == [True, False]


def test_documents_are_one_row_named_by_their_place(world):
    """E35, E34: a profile and a skill are indexed whole, whatever their frontmatter says."""
    profile = world.root.note("profile", ALICE)
    (world.folder / profile.key).parent.mkdir(parents=True)
    (world.folder / profile.key).write_text(
        "---\ntype: user_profile\nsummary: likes tea\n---\n# Alice\nMoved to Lisbon.\n"
    )
    bot = Scope(Space(), "agent", "bot")
    skill = world.folder / world.root.note("agent_skill", bot, "deploy").key
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: how to ship\n---\nRun the tests first.\n")
    world.sync()
    assert world.hits("lisbon") == ["profile"]
    assert world.hits("ship", bot) == ["deploy"]
    [row] = world.index.find(bot, ["deploy"])
    assert (row.kind, row.fields["description"]) == ("agent_skill", "how to ship")


def test_messages_of_a_cut_cell_are_rows_of_each_owner(world):
    """A cut cell's words are searchable verbatim for every owner of the cell, open ones for whom they would go to."""
    bot = Scope(Space(), "agent", "bot")
    at = say(world, "talk", ["I adopted a cat", "her name is Luna", "not yet cut"], [ALICE, bot], upto=2)
    world.sync()
    for scope in (ALICE, bot):
        [hit] = world.hits("luna", scope)
        [row] = world.index.find(scope, [hit])
        assert (row.kind, row.ordinal, row.session_id, row.sender_name) == ("message", 1, "talk", "Alice")
        assert row.cell_id == cell_id(Space(), "talk", 0, 2)
    [hit] = world.hits("cut")
    assert world.index.find(ALICE, [hit])[0].cell_id is None and world.hits("cut", bot) == []
    more = {"t": "cut", "cell": "mc_next", "first": 2, "upto": 3, "day": DAY, "owners": [["user", "alice"]]}
    world.journals.append(at, [json.dumps(more)])
    world.sync()
    assert len(world.hits("cut")) == 1
    assert world.hits("cut", bot) == []


def test_a_file_that_only_grew_costs_what_was_added(tmp_path, monkeypatch):
    """The hundredth entry of a day is indexed without comparing the ninety-nine before it; an edit compares all."""
    world = Indexed(tmp_path, min_chars=0)
    with world.indexer.lease() as mine:
        assert mine
        world.indexer.begin()
        first = world.episode("entry one")
        say(world, "talk", ["hello there"], [ALICE])
        world.indexer.drain()
        compared: list[str] = []
        whole = world.index.stored
        monkeypatch.setattr(world.index, "stored", lambda path: compared.append(path) or whole(path))
        more = [world.episode(f"entry {n}") for n in range(3)]
        line = {"t": "add", "n": 1, "messages": [message_to(Message("bob", "user", 9, "general kenobi"))]}
        cut = {"t": "cut", "cell": "mc_2", "first": 1, "upto": 2, "day": DAY, "owners": [["user", "alice"]]}
        at = session_locator(Space(), "talk")
        world.journals.append(at, [json.dumps(line), json.dumps(cut)])
        world.indexer.note_change([(at, "modified")])
        world.indexer.drain()
        assert compared == []
        assert world.hits("entry") == [first, *more]
        assert len(world.hits("kenobi")) == len(world.hits("hello")) == 1
        forgotten = json.loads(world.journals.read(at).lines[0])
        forgotten["messages"] = [None]
        world.journals.replace(at, [json.dumps(forgotten), *world.journals.read(at).lines[1:]])
        file = world.note_path()
        file.write_text(file.read_text().replace("entry one", "entry changed"))
        world.indexer.scan()
        world.indexer.drain()
        assert len(compared) == 2
        assert (world.hits("one"), world.hits("changed"), world.hits("hello")) == ([], [first], [])
    world.close()


def test_scan_finds_every_hand_edit(world):
    """E107: newer, older, created, deleted and moved files are all found by the next scan, without a watcher."""
    world.episode("one")
    file = world.note_path()
    os.utime(file, (1_700_000_000, 1_700_000_000))
    world.sync()
    assert world.indexer.scan().queued == 0
    os.utime(file, (1_000_000_000, 1_000_000_000))
    assert world.indexer.scan().queued == 1, "an older time is a difference too"
    world.indexer.drain()
    moved = file.with_name("episode-2026-06-02.md")
    file.rename(moved)
    assert world.indexer.scan().queued == 2
    world.sync()
    assert {row.path for row in world.all_rows()} == {str(moved.relative_to(world.folder))}
    (world.folder / "default_app/default_project/users/alice/episodes/notes.txt").write_text("not a note")
    assert world.indexer.scan().queued == 0


def test_an_edit_within_the_same_instant_is_not_missed(world):
    """A file changed right after it was read, with the same time and size, is found by the next scan."""
    world.episode("aaaa bbbb")
    file = world.note_path()
    instant = time.time_ns() + 5_000_000_000
    os.utime(file, ns=(instant, instant))
    world.sync()
    file.write_text(file.read_text().replace("bbbb", "cccc"))
    os.utime(file, ns=(instant, instant))
    world.sync()
    assert len(world.hits("cccc")) == 1


def test_index_deleted_while_running_is_made_anew_by_itself(world):
    """E2, E111: after `rm -rf .index` the state is "rebuilding" until every file is indexed again, then fresh."""
    ids = [world.episode(f"row number{n}", day=f"2026-06-{n + 1:02}") for n in range(5)]
    world.sync()
    generation = world.index.generation
    shutil.rmtree(world.folder / ".index")
    assert world.indexer.status().state == "rebuilding"
    assert world.hits("row") == []
    late = world.episode("row written meanwhile", day="2026-06-09")
    with world.indexer.lease() as mine:
        assert mine
        world.indexer.begin()
        world.indexer.drain()
    assert world.indexer.status().state == "fresh"
    assert world.hits("row") == sorted([*ids, late])
    assert world.index.generation != generation


def test_what_is_kept_of_removed_rows_has_a_bound(world, monkeypatch):
    """Rows that come and go leave neither a list of removals nor vectors that grow with them, while others wait."""
    monkeypatch.setattr(row_tables, "_GONE_KEPT", 40)
    monkeypatch.setattr(rows, "_UNUSED_KEPT", 10)
    for n in range(60):
        world.episode(f"the boat of morning {n} is blue", day="2026-06-09")
        world.waits.catch_up(10, embed=True)
        world.note_path(day="2026-06-09").unlink()
        world.indexer.scan()
        world.sync()
    last = world.episode("the last boat is green")
    world.sync()  # it has no vector yet
    world.indexer.maintain()
    gone = world.index._db.read(lambda db: db.execute("SELECT count(*) FROM gone").fetchone()[0])
    held = world.index._vectors.read(lambda db: db.execute("SELECT count(*) FROM vectors").fetchone()[0])
    assert 20 <= gone <= 41
    assert held <= 12
    assert world.hits("boat") == [last]
    assert world.index.trimmed_version() < world.index.version()


@pytest.mark.parametrize("lost", ["system.db", "index.db", "vectors.db"])
def test_any_one_file_of_the_index_may_be_lost(world, lost):
    """Losing queue, rows or vectors alone is noticed and mended."""
    entry = world.episode("a row")
    world.waits.catch_up(10, embed=True)
    for file in (world.folder / ".index" / "sqlite").glob(f"{lost}*"):
        file.unlink()
    world.waits.catch_up(10, embed=True)
    assert world.hits("row") == [entry]
    assert world.indexer.status().state == "fresh"
    assert world.index.corpus(ALICE).has_vector.all()
    assert world.index._vectors.read(lambda db: db.execute("SELECT count(*) FROM vectors").fetchone()[0]) == 1


def test_a_damaged_index_file_is_rebuilt(world):
    """A broken `index.db` is set aside; nobody is told of an error and the rows come back."""
    entry = world.episode("a row")
    world.sync()
    world.close()
    file = world.folder / ".index" / "sqlite" / "index.db"
    for side in ("-wal", "-shm"):
        file.with_name(file.name + side).unlink(missing_ok=True)
    data = bytearray(file.read_bytes())
    data[100:3000] = os.urandom(2900)
    file.write_bytes(data)
    again = Indexed(world.folder)
    assert again.hits("row") == []
    again.sync()
    assert again.hits("row") == [entry]
    again.close()


def test_rebuild_keeps_vectors(tmp_path):
    """S48, C8: a rebuild makes the same rows again and embeds nothing that is known already."""
    embedder = CountingEmbedder()
    world = Indexed(tmp_path, embedder=lambda: embedder)
    ids = [world.episode(f"text {n}") for n in range(20)]
    world.waits.catch_up(10, embed=True)
    assert len(embedder.asked) == 20
    world.waits.rebuild()
    assert world.hits("text") == ids
    assert world.indexer.waiting_for_vectors() == 0
    assert len(embedder.asked) == 20
    world.close()


def test_changed_since_is_strictly_newer(world):
    """S27, S48: source places modified after a time, by key; derived and foreign files are not among them."""
    world.episode("one")
    world.episode("two", day="2026-06-02")
    world.sync()
    first, second = world.note_path(), world.note_path(day="2026-06-02")
    os.utime(first, (100, 100))
    os.utime(second, (200, 200))
    key = str(second.relative_to(world.folder))
    assert world.indexer.changed_since(100) == [Locator(key)]
    assert world.indexer.changed_since(200) == []


def test_a_changed_model_embeds_again_and_never_mixes(tmp_path):
    """A83, E56: vectors of another model are not served; the old ones stay until all rows have new ones."""
    embedders = [HashingEmbedder(64)]
    world = Indexed(tmp_path, embedder=lambda: embedders[-1])
    world.episode("hello world")
    world.waits.catch_up(10, embed=True)
    assert world.index.corpus(ALICE).vectors.shape == (1, 64)
    embedders.append(HashingEmbedder(32))
    world.index.use_model(embedders[-1].id)
    corpus = world.index.corpus(ALICE)
    assert corpus.vectors is None
    assert not corpus.has_vector.any()
    world.episode("another")
    world.waits.catch_up(10, embed=True)
    assert world.index.corpus(ALICE).vectors.shape == (2, 32)
    world.close()


def test_a_process_that_never_embeds_serves_the_vectors_there_are(world):
    """A reader beside the indexer sees the vectors of the rows' model, named in the corpus."""
    world.episode("hello world")
    world.waits.catch_up(10, embed=True)
    reader = Indexed(world.folder)
    corpus = reader.index.corpus(ALICE)
    assert (corpus.model, corpus.vectors.shape) == (HashingEmbedder(64).id, (1, 64))
    reader.close()


def test_a_failing_embedder_leaves_keyword_search_whole(tmp_path):
    """A26: rows are found by their words while no vector can be made."""

    class Away(HashingEmbedder):
        def embed(self, texts):
            raise Unavailable("the service is away")

    world = Indexed(tmp_path, embedder=lambda: Away(8))
    entry = world.episode("findable words")
    world.waits.catch_up(2, embed=True)
    assert world.hits("findable") == [entry]
    assert world.indexer.waiting_for_vectors() == 1
    world.close()


def test_corpus_follows_every_change(world):
    """The arrays of a scope are brought up to date by version and equal those loaded afresh."""
    rng = np.random.default_rng(7)
    ids = [world.episode(f"word{n} again") for n in range(30)]
    world.waits.catch_up(10, embed=True)
    held = world.index.corpus(ALICE)
    assert world.index.corpus(ALICE) is held, "the same object while nothing changed"
    note = world.root.note("episode", ALICE, DAY)
    for _ in range(6):
        drop, edit = rng.choice(len(ids), 2, replace=False)
        file = world.note_path()
        file.write_text(file.read_text().replace(f"word{edit} again", f"word{edit} edited"))
        if any(row.entry_id == ids[drop] for row in world.all_rows()):
            world.notebook.remove(note, [ids[drop]])
        ids.append(world.episode(f"word{len(ids)} again"))
        world.waits.catch_up(10, embed=True)
        warm = world.index.corpus(ALICE)
        world.index._warm.clear()
        cold = world.index.corpus(ALICE)
        for name in ("rowid", "kind", "timestamp_ms", "ordinal", "flags", "length", "has_vector", "vectors"):
            assert np.array_equal(getattr(warm, name), getattr(cold, name)), name
        assert [warm.sessions[c] for c in warm.session] == [cold.sessions[c] for c in cold.session]


def test_nearest_is_exact(world):
    """The vector leg of a scope in memory finds the row whose text was asked for."""
    ids = [world.episode(f"topic{n} details{n}") for n in range(10)]
    world.waits.catch_up(10, embed=True)
    query = HashingEmbedder(64).embed(["topic3 details3"])[0]
    best = by_meaning(world.index, ALICE, query)[0]
    assert world.index.rows(ALICE, [best])[0].entry_id == ids[3]
    assert world.index.legs(ALICE, Ask(plain=query)).cosine.max() == pytest.approx(1.0, abs=0.01)


def test_pages_are_sorted_filtered_and_counted_exactly(world):
    """E115: page 10**9 is empty, the total is exact, filters are compiled into the query."""
    for n in range(5):
        world.episode(
            f"entry {n}", timestamp=f"2026-06-01T1{n}:00:00+00:00", session_id="odd" if n % 2 else "even"
        )
    world.sync()
    page = world.index.page(ALICE, ["episode"], limit=2, offset=2)
    texts = [row.text for row in world.index.rows(ALICE, page.rowids)]
    assert (texts, page.total) == (["entry 2", "entry 1"], 5)
    assert world.index.page(ALICE, ["episode"], offset=20 * 10**9).rowids == ()
    odd = world.index.page(ALICE, ["episode"], where=filters.parse({"session_id": "odd"}))
    assert odd.total == 2


def test_wait_covers_the_callers_own_write(world):
    """E86: after `wait(lsn)` the write is searchable; an LSN of a lost queue is met by a scan."""
    entry = world.episode("my own words")
    assert world.waits.wait(world.state.last_lsn(), LONG)
    assert world.hits("own") == [entry]
    shutil.rmtree(world.folder / ".index")
    world.close()
    again = Indexed(world.folder)
    assert again.waits.wait(10**6, LONG)
    assert again.hits("own") == [entry]
    again.close()


def test_a_killed_indexer_is_replaced_at_once(world):
    """E71, E106, design 6: claims and lease of a process killed in the middle are free for the next one."""
    for n in range(3):
        world.episode(f"row {n}", day=f"2026-06-0{n + 1}")
    code = textwrap.dedent(
        f"""
        import sys, time, pathlib
        sys.path.insert(0, {os.getcwd()!r})
        from tests.world import Indexed
        world = Indexed(pathlib.Path({str(world.folder)!r}))
        with world.indexer.lease() as mine:
            world.state.claim(2, holder=world.indexer.holder)
            print("claimed" if mine else "refused", flush=True)
            sys.stdin.read()
        """
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline().strip() == "claimed"
    assert not world.waits.wait(None, 0.2), "the other one holds the lease"
    other.kill()
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert world.waits.wait(None, LONG)
    assert len(world.hits("row")) == 3


def test_a_row_that_lost_all_its_words_is_not_found_by_the_old_ones(tmp_path):
    """P2: words held in memory follow a text that became empty, as an index made anew would."""
    world = Indexed(tmp_path)
    file = world.folder / world.root.note("profile", ALICE).key
    file.parent.mkdir(parents=True)
    file.write_text("---\nid: p\ntype: user_profile\n---\nalpha\n")
    world.sync()
    assert world.hits("alpha") == ["profile"]
    file.write_text("---\nid: p\ntype: user_prof")
    world.sync()
    assert world.hits("alpha") == []
    world.close()


@pytest.mark.parametrize("lost", ["all", "index.db", "system.db"])
def test_a_rebuild_that_loses_its_files_again_is_not_called_ready(world, lost):
    """A scan made for files that are gone says nothing of the new ones: not fresh before every note is seen."""
    entry = world.episode("a heron by the weir")
    world.indexer.drain()  # ends with the beginning of a rebuild: this index has never seen a whole scan
    shutil.rmtree(world.folder / ".index")
    world.indexer.ensure_ready()
    assert world.indexer.status().state == "rebuilding", "the scan was for the files that are gone"
    for file in (world.folder / ".index" / "sqlite").glob("*" if lost == "all" else f"{lost}*"):
        file.unlink()
    world.indexer.ensure_ready()
    assert world.indexer.status().state == "rebuilding"
    while world.indexer.drain():
        pass
    world.indexer.ensure_ready()
    assert world.indexer.status().state == "fresh"
    assert world.hits("heron") == [entry]


@pytest.mark.parametrize("before", ["there", "gone"])
def test_a_scan_sees_a_change_made_while_the_file_is_being_indexed(world, before):
    """P4: a strong read begins with a scan; a file someone else is just indexing may have been read too early."""
    entry = world.episode("The boat is in the harbour.")
    world.sync()
    path, reader = world.note_path(), Indexed(world.folder)
    text = path.read_text()
    if before == "gone":
        path.unlink()
    else:
        path.write_text(text.replace("harbour", "cellar"))
    world.indexer.hint([path.relative_to(world.folder).as_posix()])
    apply, scanned = world.index.apply, []

    def meanwhile(*args, **more):
        if not scanned:
            path.write_text(text.replace("harbour", "orchard"))
            scanned.append(reader.indexer.scan())
        return apply(*args, **more)

    world.index.apply = meanwhile
    world.indexer.drain()
    assert scanned[0].queued
    assert reader.waits.wait(scanned[0].lsn, LONG)
    assert reader.hits("orchard") == [entry]
    reader.close()


def test_a_long_note_that_goes_and_comes_back_as_it_was_is_found_again(world):
    """P2: a checkout back and forth, a folder moved away and back; what was remembered of the file went with it."""
    entry = world.episode("The boat is in the harbour. " + "It is a quiet place. " * 1000)
    path, aside = world.note_path(), world.folder / "aside.md"
    with world.indexer.lease() as mine:  # all along, as a running service
        assert mine
        world.indexer.begin()
        world.indexer.drain()
        for there, found in ((False, []), (True, [entry])):
            (aside if there else path).rename(path if there else aside)
            world.indexer.scan()
            world.indexer.drain()
            assert world.hits("harbour") == found


def test_a_change_that_could_not_be_queued_is_looked_for(world, monkeypatch):
    """A write never fails because of the queue; what it could not take in, the next look at the files finds."""
    world.sync()

    def full(*_args, **_more):
        raise Unavailable("system.db cannot be used: disk full.")

    monkeypatch.setattr(Database, "write", full)
    entry = world.episode("The boat is in the harbour.")
    monkeypatch.undo()
    with world.indexer.lease() as mine:
        assert mine
        world.indexer.ensure_ready()
        world.indexer.drain()
    assert world.hits("harbour") == [entry]


def test_versions_of_an_object_in_one_second_are_told_apart():
    """A store's times have whole seconds: the tag tells versions of one size apart, and each is found to be itself."""
    second = datetime(2026, 6, 1, 12, tzinfo=UTC)
    times = [objects._moment({"last_modified": second, "e_tag": f'"{n}"'}) / 1e9 for n in range(200)]
    known = [Known("done", "modified", at, 10, at + 1, False, False) for at in times]
    taken_for = [[n for n, at in enumerate(times) if indexer._change(old, 10, at) is None] for old in known]
    assert taken_for == [[n] for n in range(200)]


def test_what_is_known_of_one_place_is_told_without_all_the_others(tmp_path):
    """A strong read of one owner asks for his files alone, however many owners there are."""
    world = Indexed(tmp_path)
    for scope in (ALICE, BOB):
        world.episode("a lantern", scope)
    world.waits.catch_up(LONG)
    everything = world.index.known_paths()
    users = sorted({path.rpartition("/episodes")[0] + "/" for path in everything})
    assert len(users) == 2
    for own in users:
        mine = [path for path in everything if path.startswith(own)]
        assert mine and world.index.known_paths([own]) == mine
    assert sorted(world.index.known_paths(users)) == sorted(everything)
    assert world.index.known_paths([f"{users[0]}x"]) == []
    world.close()


def test_a_fault_met_in_one_file_keeps_no_other_from_being_indexed(world, monkeypatch):
    """Files go into the index together; the one whose words cannot be taken in fails alone, and says so."""
    say(world, "good", ["The ferry leaves at nine."], [ALICE])
    say(world, "bad", ["Poison for the reader of words."], [BOB])
    apply = world.index.apply

    def faulty(rows, **more):
        if any("Poison" in new.row.text for new in rows):
            raise RecursionError("too deep")
        return apply(rows, **more)

    monkeypatch.setattr(world.index, "apply", faulty)
    world.sync()
    assert [failure["path"] for failure in world.state.failures()] == [session_locator(Space(), "bad").key]
    assert world.hits("ferry")
