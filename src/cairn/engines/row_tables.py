"""The tables of the index and the statements that fill and trim them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import count
from operator import or_
from typing import Any, NamedTuple

from cairn.budget import share
from cairn.index.corpus import HIDDEN_STATUSES, PASSAGE, SAID, NewRow, embed_key, text_flags, word_flags
from cairn.index.embedding_text import spoken_name
from cairn.index.filters import packed
from cairn.index.postings import MARK_BYTES, group_of, rows_by_mark, word_marks
from cairn.language import words
from cairn.language.words import MAX_TOKEN
from cairn.types import Scope

SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('version', CAST(strftime('%s', 'now') AS INTEGER) * 1000), ('model', ''), ('trimmed', 0), ('cleared', 0);
CREATE TABLE scopes(
    id INTEGER PRIMARY KEY, app TEXT NOT NULL, project TEXT NOT NULL, track TEXT NOT NULL, owner TEXT NOT NULL,
    version INTEGER NOT NULL, worded INTEGER NOT NULL DEFAULT 0,
    UNIQUE (app, project, track, owner));
CREATE TABLE paths(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, cursor TEXT);
CREATE TABLE rows(
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope_id INTEGER NOT NULL, kind TEXT NOT NULL, entry_id TEXT NOT NULL,
    path_id INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL, session_id TEXT, cell_id TEXT, parent_type TEXT,
    parent_id TEXT, sender_ids TEXT NOT NULL, sender_name TEXT, ordinal INTEGER NOT NULL, hidden INTEGER NOT NULL,
    flags INTEGER NOT NULL, length INTEGER NOT NULL, embed_key BLOB NOT NULL, pending INTEGER NOT NULL,
    version INTEGER NOT NULL, worded INTEGER NOT NULL, words BLOB NOT NULL, updated_ms INTEGER NOT NULL,
    labels TEXT NOT NULL, status TEXT NOT NULL, damaged INTEGER NOT NULL DEFAULT 0, content_sha256 TEXT NOT NULL,
    source BLOB NOT NULL, text TEXT NOT NULL, embedded TEXT, fields TEXT NOT NULL);
CREATE UNIQUE INDEX rows_entry ON rows(scope_id, entry_id, path_id);
CREATE INDEX rows_path ON rows(path_id);
CREATE INDEX rows_version ON rows(scope_id, version);
CREATE INDEX rows_page ON rows(scope_id, kind, hidden, timestamp_ms);
CREATE INDEX rows_session ON rows(scope_id, session_id, ordinal);
CREATE INDEX rows_episode ON rows(scope_id, cell_id) WHERE kind = 'episode';
CREATE INDEX rows_kind ON rows(kind, version);
CREATE INDEX rows_pending ON rows(id) WHERE pending = 1;
CREATE INDEX rows_waiting ON rows(scope_id) WHERE pending = 1;
CREATE TABLE gone(version INTEGER NOT NULL, scope_id INTEGER NOT NULL, id INTEGER NOT NULL, kind TEXT NOT NULL);
CREATE INDEX gone_version ON gone(scope_id, version);
CREATE INDEX gone_kind ON gone(kind, version);
CREATE TABLE tallies(scope_id INTEGER NOT NULL, kind TEXT NOT NULL, rows INTEGER NOT NULL, words INTEGER NOT NULL,
    PRIMARY KEY (scope_id, kind)) WITHOUT ROWID;
CREATE TABLE terms(scope_id INTEGER NOT NULL, mark INTEGER NOT NULL, part INTEGER NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (scope_id, mark, part)) WITHOUT ROWID;
CREATE TABLE speakers(scope_id INTEGER NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (scope_id, id, name)) WITHOUT ROWID;
"""
# What ranking reads of a row stands before its texts: a long row lies in several pages. `words` are the marks of its
# words, as often as they occur. `version` moves with anything about a row, its vector included; `worded` only with what is written.
# `tallies`, `terms` and `speakers` count the rows of each scope: by kind, by the mark of a word and group of kinds, and by sender.
# BM25 weighs a row against the mean length of its table: one line of talk must not be measured against whole
# episodes, so each sort of text has its own.
FULL_TEXT = ("fts_message", "fts_episode", "fts_entry")
SCHEMA += ";".join(
    f"""
CREATE VIRTUAL TABLE {table} USING fts5(tokens, detail = none, tokenize = "ascii tokenchars '_'")"""
    for table in FULL_TEXT
)
VECTORS = """
CREATE TABLE models(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL);
CREATE TABLE vectors(id INTEGER PRIMARY KEY, model INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL,
    UNIQUE (model, key));
CREATE TABLE tokens(model INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (model, key))
"""
COUNTS = ("tallies", "terms", "speakers")
# What arrays of rows are made of, in the order of `arrays_of`, and what tells whose part a row is.
IN_ARRAYS = (
    "r.id, r.kind, r.timestamp_ms, r.session_id, r.ordinal, r.sender_ids, r.sender_name, r.cell_id, r.flags, r.length,"
    " r.entry_id, r.parent_type, r.parent_id"
)
AMONG = "IN (SELECT value FROM json_each(?))"  # numbers or texts, given as a list in JSON
_KEYS_AT_ONCE = 500
_WORDS_KEPT = 32_768
_GONE_KEPT = 20_000
_GONE_KEPT_AT_MOST = 200_000
# Bump when rows or tokens are made differently: the index is then made anew from the notes.
SCHEMA_VERSION = 13
VECTORS_VERSION = 2


class Prepared(NamedTuple):
    """The parts of a row that are computed before the transaction."""

    tokens: str
    flags: int
    length: int
    key: bytes
    hidden: bool
    words: bytes


def prepared(new: NewRow) -> Prepared:
    row = new.row
    said = row.text if new.searched is None else new.searched
    tokens, marks, told = _read_text(said)
    if name := spoken_name(row.kind, row.sender_ids[0] if row.sender_ids else "", row.sender_name):
        named = _read_text(name)
        tokens, marks = f"{named[0]} {tokens}".strip(), named[1] + marks
    hidden = row.status in HIDDEN_STATUSES
    return Prepared(
        tokens,
        text_flags(row.text, row.fields, hidden=hidden, told=told if said == row.text else None),
        len(marks) // MARK_BYTES,
        embed_key(new.embedded or said),
        hidden,
        marks,
    )


def _read_text(text: str) -> tuple[str, bytes, int]:
    """The tokens of a text, their marks, and what its words tell of times and numbers."""
    given = text.split()
    # Beyond ASCII words may stand without blanks; and what is long hardly comes again.
    if not text.isascii() or len(max(given, key=len, default="")) > MAX_TOKEN:
        return _read.__wrapped__(text)
    if not given:
        return "", b"", 0
    tokens, marks, told = zip(*map(_read, given), strict=True)
    return " ".join(filter(None, tokens)), b"".join(marks), reduce(or_, told)


share("words as rows have them", _WORDS_KEPT * 640)


@lru_cache(maxsize=_WORDS_KEPT)
def _read(word: str) -> tuple[str, bytes, int]:
    tokens = words.tokens(word)
    return " ".join(tokens), word_marks(tokens), word_flags(word)


_ROW = (
    "scope_id", "kind", "entry_id", "path_id", "text", "embedded", "fields", "content_sha256", "source", "timestamp_ms",
    "updated_ms", "session_id", "cell_id", "parent_type", "parent_id", "sender_ids", "labels", "sender_name", "ordinal",
    "status", "hidden", "damaged", "flags", "length", "embed_key", "pending", "version", "worded", "words", "id",
)  # fmt: skip
_INSERT = f"INSERT INTO rows({', '.join(_ROW)}) VALUES ({', '.join('?' * len(_ROW))})"
_UPDATE = f"UPDATE rows SET {', '.join(f'{name} = ?' for name in _ROW[:-1])} WHERE id = ?"
_ENTRY = "path_id = ? AND scope_id = ? AND entry_id = ?"
_encoded = json.JSONEncoder(ensure_ascii=False, default=str).encode


def put_rows(
    db: sqlite3.Connection, given: Sequence[tuple[NewRow, Prepared]], version: int, model: int | None
) -> tuple[RowTally, set[int]]:
    """Write rows, each in the place of the one that its entry had; what that counts, and the scopes it touches.

    A row that has a vector of `model` already does not wait for one.
    """
    tally, touched = RowTally(), set[int]()
    have = with_vectors(db, model, [made.key for _, made in given])
    last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'rows'").fetchone()
    numbers = count(last[0] + 1 if last else 1)
    fresh: list[tuple[Any, ...]] = []
    worded: dict[str, list[tuple[int, str]]] = {table: [] for table in FULL_TEXT}
    for scope_id, path_id, is_new, new, made in _distinct(db, given):
        row = new.row
        senders = packed(row.sender_ids)
        said = new.embedded or new.searched
        values = (
            scope_id, row.kind, row.entry_id, path_id, row.text, said if said != row.text else None,
            _encoded(dict(row.fields)), row.content_sha256, new.source, row.timestamp_ms,
            row.updated_ms, row.session_id or None, row.cell_id or None, row.parent_type or None, row.parent_id or None,
            senders, packed(row.labels), row.sender_name, row.ordinal, row.status, made.hidden, row.damaged, made.flags,
            made.length, made.key, made.key not in have, version, version, made.words,
        )  # fmt: skip
        table = full_text(row.kind)
        was = None if is_new else tally.take_out(db, _ENTRY, path_id, scope_id, row.entry_id)
        tally.count(1, scope_id, row.kind, made.words, senders, row.sender_name)
        touched.add(scope_id)
        if was is None:
            rowid = next(numbers)
            fresh.append((*values, rowid))
        else:
            rowid = was.rowid
            db.execute(_UPDATE, (*values, rowid))
            if was.words == made.words:
                continue
            db.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        worded[table].append((rowid, made.tokens))
    db.executemany(_INSERT, fresh)
    for table, told in worded.items():
        db.executemany(f"INSERT INTO {table}(rowid, tokens) VALUES (?, ?)", told)
    return tally, touched


def _distinct(
    db: sqlite3.Connection, given: Sequence[tuple[NewRow, Prepared]]
) -> Iterable[tuple[int, int, bool, NewRow, Prepared]]:
    """The last that is given of each entry, with the numbers of its scope and file, and whether that file is new."""
    scopes: dict[Scope, int] = {}
    paths: dict[str, tuple[int, bool]] = {}
    chosen: dict[tuple[int, int, str], tuple[int, int, bool, NewRow, Prepared]] = {}
    scope, scope_id = None, 0
    for new, made in given:
        row = new.row
        # Most come from one owner's file: comparing scopes costs more than all the rest.
        if row.scope is not scope:
            scope = row.scope
            scope_id = scopes.get(scope) or scope_number(db, scope) or _new_scope(db, scope)
            scopes[scope] = scope_id
        if row.path not in paths:
            new_path = db.execute(
                "INSERT OR IGNORE INTO paths(path) VALUES (?) RETURNING id", (row.path,)
            ).fetchall()
            [[number]] = new_path or db.execute("SELECT id FROM paths WHERE path = ?", (row.path,))
            paths[row.path] = (number, bool(new_path))
        path_id, is_new = paths[row.path]
        chosen[path_id, scope_id, row.entry_id] = (scope_id, path_id, is_new, new, made)
    return chosen.values()


class Held(NamedTuple):
    """What is counted of a row that the index holds."""

    rowid: int
    scope_id: int
    kind: str
    words: bytes
    senders: str
    name: str | None


class RowTally:
    """What a transaction adds to the counts of its scopes and takes from them; written once, at its end."""

    def __init__(self) -> None:
        self._kinds: Counter[tuple[int, str]] = Counter()
        self._words: Counter[tuple[int, str]] = Counter()
        self._terms: defaultdict[tuple[int, int], tuple[list[bytes], list[bytes]]] = defaultdict(
            lambda: ([], [])
        )
        self._speakers: Counter[tuple[int, str, str]] = Counter()

    def take_out(self, db: sqlite3.Connection, where: str, *values: object) -> Held | None:
        """Count the row that `where` finds no longer; that row as it stands now, None where there is none."""
        query = f"SELECT id, scope_id, kind, words, sender_ids, sender_name FROM rows WHERE {where}"
        found = db.execute(query, values).fetchone()
        if found is None:
            return None
        held = Held(*found)
        self.count(-1, *held[1:])
        return held

    def count(
        self, step: int, scope_id: int, kind: str, words: bytes, senders: str, name: str | None
    ) -> None:
        """Count a row: one more (`step` 1) or one less (-1)."""
        self._kinds[scope_id, kind] += step
        self._words[scope_id, kind] += step * (len(words) // MARK_BYTES)
        self._terms[scope_id, group_of(kind)][step < 0].append(words)
        if kind in SAID and senders:
            self._speakers[scope_id, senders.strip("\n"), name or ""] += step

    def write(self, db: sqlite3.Connection) -> None:
        add = "ON CONFLICT DO UPDATE SET rows = rows + excluded.rows"
        kinds = [(*key, step, self._words[key]) for key, step in self._kinds.items()]
        db.executemany(
            f"INSERT INTO tallies VALUES (?, ?, ?, ?) {add}, words = words + excluded.words", kinds
        )
        terms = []
        for (scope_id, part), (come, went) in sorted(self._terms.items()):
            counted = rows_by_mark(come)
            counted.subtract(rows_by_mark(went))
            terms += [(scope_id, mark, part, many) for mark, many in sorted(counted.items()) if many]
        speakers = [(*key, step) for key, step in self._speakers.items() if step]
        for table, moved in (("terms", terms), ("speakers", speakers)):
            db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?) {add}", moved)
            emptied = [row[:3] for row in moved if row[3] < 0]
            names = ("mark", "part") if table == "terms" else ("id", "name")
            db.executemany(
                f"DELETE FROM {table} WHERE scope_id = ? AND {names[0]} = ? AND {names[1]} = ? AND rows <= 0",
                emptied,
            )


def full_text(kind: str) -> str:
    table = "fts_message" if kind == PASSAGE else f"fts_{kind}"
    return table if table in FULL_TEXT else "fts_entry"


def merge_step(db: sqlite3.Connection) -> bool:
    """Merge a little of each full-text table; whether there was anything to merge."""
    did = False
    for table in FULL_TEXT:
        before = db.total_changes
        db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', 300)")
        did |= db.total_changes - before > 1  # the statement itself counts as one
    return did


def trim_gone(db: sqlite3.Connection) -> int:
    """Keep the list of removals short against the rows there are; the later half of it stays.

    A reader older than what was trimmed loads its scope anew, which costs the less the fewer rows there are.
    """
    gone, rows = (
        int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("gone", "rows")
    )
    most = min(_GONE_KEPT + rows, _GONE_KEPT_AT_MOST)
    if gone <= most:
        return 0
    latest = "SELECT version FROM gone ORDER BY version DESC LIMIT 1 OFFSET ?"
    edge = int(db.execute(latest, (most // 2,)).fetchone()[0])
    db.execute("UPDATE meta SET value = ? WHERE key = 'trimmed'", (edge,))
    return db.execute("DELETE FROM gone WHERE version <= ?", (edge,)).rowcount


def meta(db: sqlite3.Connection, key: str) -> Any:
    """What is noted of the whole index under `key`."""
    return db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0]


def next_version(db: sqlite3.Connection) -> int:
    """The version of a transaction that changes rows: one more than that of all before it."""
    [[version]] = db.execute("UPDATE meta SET value = value + 1 WHERE key = 'version' RETURNING value")
    return int(version)


def scope_number(db: sqlite3.Connection, scope: Scope) -> int | None:
    query = "SELECT id FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?"
    found = db.execute(query, (scope.space.app, scope.space.project, scope.track, scope.owner)).fetchone()
    return int(found[0]) if found else None


def _new_scope(db: sqlite3.Connection, scope: Scope) -> int:
    query = "INSERT INTO scopes(app, project, track, owner, version) VALUES (?, ?, ?, ?, 0) RETURNING id"
    [[number]] = db.execute(query, (scope.space.app, scope.space.project, scope.track, scope.owner))
    return int(number)


def model_number(db: sqlite3.Connection, model: str) -> int | None:
    if not model:
        return None
    found = db.execute("SELECT id FROM v.models WHERE name = ?", (model,)).fetchone()
    return int(found[0]) if found else None


def with_vectors(db: sqlite3.Connection, model: int | None, keys: Sequence[bytes]) -> set[bytes]:
    """Which of these texts have a vector of a model."""
    found: set[bytes] = set()
    for start in range(0, len(keys) if model is not None else 0, _KEYS_AT_ONCE):
        part = keys[start : start + _KEYS_AT_ONCE]
        query = f"SELECT key FROM v.vectors WHERE model = ? AND key IN ({','.join('?' * len(part))})"
        found.update(row[0] for row in db.execute(query, (model, *part)))
    return found


def drop_vectors(db: sqlite3.Connection, numbers: Iterable[tuple[int]]) -> None:
    """Remove vectors by their number, and the word pieces of the same texts."""
    chosen = list(numbers)
    db.executemany(
        "DELETE FROM tokens WHERE (model, key) IN (SELECT model, key FROM vectors WHERE id = ?)", chosen
    )
    db.executemany("DELETE FROM vectors WHERE id = ?", chosen)
