"""P2: an index kept up to date equals one made anew, after any edits, moves, deletions and restores."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cairn.engines.lance import LanceTables
from cairn.engines.large import Answering, LargeIndex
from cairn.errors import Invalid
from cairn.index.corpus import Moved
from cairn.language.words import tokens
from cairn.talk.lines import message_to
from cairn.talk.sessions import cell_id, session_locator
from cairn.types import Message, Scope, Space
from tests.waiting import LONG
from tests.world import ALICE, BOB, Indexed, by_words

AGENT = Scope(Space("other"), "agent", "bot")
SCOPES = st.sampled_from([ALICE, BOB, AGENT])
DAYS = st.sampled_from(["2026-06-01", "2026-06-02"])
WORDS = (
    "alpha",
    "beta",
    "gamma",
    "日本語",
    "Москва",
    "snake_case",
    "<!-- entry:ep_20260601_00000001 -->",
    "---",
)
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


class KeptIndex(RuleBasedStateMachine):
    """Files change in every way a person, a program or git can change them; both indexes are compared each time."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-p2-"))
        self.world = Indexed(self.folder / "root", min_chars=0)
        self.lease = self.world.indexer.lease()
        assert self.lease.__enter__(), "held all along, as a running service does"
        self.world.indexer.begin()
        self.saved: dict[Path, bytes] = {}
        self.said = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.lease.__exit__(None, None, None)
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def files(self) -> list[Path]:
        return sorted(self.world.folder.rglob("*.md"))

    def some_file(self, number: int) -> Path | None:
        files = self.files()
        return files[number % len(files)] if files else None

    def compare(self) -> None:
        self.world.indexer.ensure_ready()
        self.world.indexer.scan()
        self.world.indexer.drain()
        fresh_dir = Path(tempfile.mkdtemp(prefix="fresh", dir=self.folder))
        fresh = Indexed(self.world.folder, index_dir=fresh_dir)
        fresh.waits.catch_up(LONG)
        self.agree(fresh)
        assert self.world.indexer.status().state == fresh.indexer.status().state == "fresh"
        fresh.close()
        shutil.rmtree(fresh_dir)

    def agree(self, fresh: Indexed) -> None:
        assert picture(self.world) == picture(fresh)

    @rule(scope=SCOPES, day=DAYS, text=TEXTS)
    def write(self, scope: Scope, day: str, text: str) -> None:
        with suppress(Invalid):  # a damaged note may refuse to be written to
            self.world.episode(text, scope, day)
        self.compare()

    @rule(number=st.integers(0, 9), old=st.sampled_from(WORDS), new=st.sampled_from(WORDS))
    def edit_by_hand(self, number: int, old: str, new: str) -> None:
        if file := self.some_file(number):
            file.write_text(file.read_text().replace(old, new, 1))
            self.compare()

    @rule(number=st.integers(0, 9), which=st.integers(0, 9))
    def remove_entry(self, number: int, which: int) -> None:
        if file := self.some_file(number):
            locator = self.world.storage.resolve(*file.relative_to(self.world.folder).parts)
            entries = self.world.notebook.read(locator).entries
            with suppress(Invalid):
                if entries:
                    self.world.notebook.remove(locator, [entries[which % len(entries)].id])
            self.compare()

    @rule(number=st.integers(0, 9))
    def delete_file(self, number: int) -> None:
        if file := self.some_file(number):
            file.unlink()
            self.compare()

    @rule(number=st.integers(0, 9), owner=st.sampled_from(["alice", "bob", "carol"]), day=DAYS)
    def move_file(self, number: int, owner: str, day: str) -> None:
        if file := self.some_file(number):
            target = self.world.note_path(Scope(Space(), "user", owner), day)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
            self.compare()

    @rule(number=st.integers(0, 9), old_time=st.booleans())
    def save_or_restore(self, number: int, old_time: bool) -> None:
        if file := self.some_file(number):
            if file in self.saved:
                file.write_bytes(self.saved.pop(file))
                if old_time:
                    os.utime(file, (1_700_000_000, 1_700_000_000))
                self.compare()
            else:
                self.saved[file] = file.read_bytes()

    @rule(number=st.integers(0, 9), what=st.sampled_from(["close", "open", "yaml", "tail"]))
    def damage(self, number: int, what: str) -> None:
        if file := self.some_file(number):
            text = file.read_text()
            if what == "close":
                text = text.replace("<!-- /entry:", "<!-- lost:", 1)
            elif what == "open":
                text = text.replace("<!-- entry:", "<!-- lost:", 1)
            elif what == "yaml":
                text = text.replace("entry_count:", "entry_count: [", 1)
            else:
                text = text[: len(text) * 2 // 3]
            file.write_text(text)
            self.compare()

    @rule(number=st.integers(0, 9))
    def deprecate(self, number: int) -> None:
        if file := self.some_file(number):
            locator = self.world.storage.resolve(*file.relative_to(self.world.folder).parts)
            note = self.world.notebook.read(locator)
            if note.entries and note.frontmatter:
                self.world.notebook.update_frontmatter(
                    locator, {"deprecated_entries": {note.entries[0].id: "x"}}
                )
            self.compare()

    @rule(text=TEXTS, scopes=st.lists(SCOPES, min_size=1, max_size=2, unique=True))
    def talk(self, text: str, scopes: list[Scope]) -> None:
        at = session_locator(Space(), "talk")
        first, self.said = self.said, self.said + 2
        messages = [
            message_to(Message("ana", "user", 1_780_000_000_000 + n, f"{text} {n}", "Ana")) for n in (0, 1)
        ]
        cut = {
            "t": "cut", "cell": cell_id(Space(), "talk", first, first + 1), "first": first, "upto": first + 1,
            "day": "2026-06-01", "owners": [[scope.track, scope.owner] for scope in scopes],
        }  # fmt: skip
        lines = [{"t": "add", "n": first, "messages": messages}, cut]
        self.world.journals.append(at, [json.dumps(line) for line in lines])
        self.world.indexer.note_change([(at, "modified")])
        self.compare()

    @rule(text=TEXTS)
    def write_profile(self, text: str) -> None:
        file = self.world.folder / self.world.root.note("profile", ALICE).key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\nid: p\ntype: user_profile\n---\n{text}\n")
        self.compare()

    @rule(lost=st.sampled_from(["", "sqlite/index.db", "sqlite/system.db"]))
    def lose_the_index(self, lost: str) -> None:
        place = self.world.folder / ".index" / lost
        if lost:
            for file in place.parent.glob(f"{place.name}*"):
                file.unlink()
        else:
            shutil.rmtree(place, ignore_errors=True)
        self.compare()


class KeptTables(KeptIndex):
    """The same, asked of the tables of LanceDB, which are folded now and then and are late in between."""

    from_tables = 0

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.tables = LanceTables(self.world.index_dir, index_rows=8)
        self.tables.load(wait=True)
        for place, word in enumerate(WORDS):
            self.world.episode(f"{word} {WORDS[place - 1]}", (ALICE, BOB, AGENT)[place % 3])
        self.world.indexer.drain()
        self.fold()
        # However few histories are drawn, each has rows that are too new for the tables, changed and gone since.
        self.write(ALICE, "2026-06-02", "alpha gamma")
        self.edit_by_hand(0, "alpha", "beta")
        self.remove_entry(1, 0)

    @rule()
    def fold(self) -> None:
        self.tables.fold(self.world.index)
        self.compare()

    @rule()
    def lose_the_tables(self) -> None:
        shutil.rmtree(self.world.index_dir / "lancedb", ignore_errors=True)
        self.compare()

    def agree(self, fresh: Indexed) -> None:
        super().agree(fresh)
        tables = LanceTables(fresh.index_dir, index_rows=8)
        tables.fold(fresh.index)
        tables.load(wait=True)
        assert picture(fresh, by_tables(fresh, tables)) == picture(self.world)
        assert picture(self.world, by_tables(self.world, self.tables)) == picture(self.world)


def by_tables(world: Indexed, tables: LanceTables) -> Callable[[Scope, Sequence[str]], Sequence[int]]:
    """Asks the tables of a world for words, and its rows in memory only where the tables are not there; no kind is too small."""
    large = LargeIndex(world.index, tables, whole_rows=0)
    answering = Answering(world.index, tables, engine="lancedb", memory_rows=0, large=large)

    def ask(scope: Scope, terms: Sequence[str]) -> Sequence[int]:
        while True:
            index = answering(scope)
            KeptTables.from_tables += index is large
            with suppress(Moved):
                return by_words(index, scope, terms)

    return ask


def picture(
    world: Indexed, ask: Callable[[Scope, Sequence[str]], Sequence[int]] | None = None
) -> tuple[object, ...]:
    """Everything a reader could tell apart: rows without their numbers, and hits by word for each scope."""
    ask = ask or partial(by_words, world.index)
    rows = [replace(row, rowid=0) for row in world.all_rows()]
    scopes = [scope for scope, _ in world.index.scopes()]
    hits = {
        (scope, word): sorted(
            (row.path, row.entry_id)
            for row in world.index.rows(scope, ask(scope, tokens(word)))
            if not row.damaged
        )
        for scope in scopes
        for word in WORDS
    }
    found = {key: value for key, value in hits.items() if value}
    return sorted(rows, key=lambda row: (row.path, str(row.scope), row.entry_id)), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "histories", "steps"),
    [
        pytest.param(KeptIndex, 12, 12, id="memory"),
        pytest.param(KeptTables, 2, 7, id="lancedb", marks=pytest.mark.xdist_group("lance")),
    ],
)
def test_incremental_index_equals_fresh_rebuild(machine, histories, steps):
    """P2: the same rows and the same hits, whatever happened to the files, in both engines."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert machine is KeptIndex or KeptTables.from_tables > 0
