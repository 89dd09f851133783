"""The tables of the index and the statements that fill and trim them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from cairn.index.corpus import PASSAGE, text_flags
from cairn.index.embedding_text import searched_words
from cairn.index.filters import packed
from cairn.index.postings import group_of
from cairn.index.rows import HIDDEN_STATUSES, NewRow, embed_key
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
    path_id INTEGER NOT NULL, text TEXT NOT NULL, embedded TEXT, fields TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    source BLOB NOT NULL, timestamp_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, session_id TEXT, cell_id TEXT,
    parent_type TEXT, parent_id TEXT, sender_ids TEXT NOT NULL, sender_name TEXT, ordinal INTEGER NOT NULL,
    labels TEXT NOT NULL, status TEXT NOT NULL, hidden INTEGER NOT NULL, damaged INTEGER NOT NULL DEFAULT 0,
    flags INTEGER NOT NULL, length INTEGER NOT NULL, embed_key BLOB NOT NULL, pending INTEGER NOT NULL,
    version INTEGER NOT NULL, worded INTEGER NOT NULL, UNIQUE (path_id, scope_id, entry_id));
CREATE INDEX rows_entry ON rows(scope_id, entry_id);
CREATE INDEX rows_version ON rows(scope_id, version);
CREATE INDEX rows_worded ON rows(scope_id, worded);
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
CREATE TABLE terms(scope_id INTEGER NOT NULL, term TEXT NOT NULL, part INTEGER NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (scope_id, term, part)) WITHOUT ROWID;
CREATE TABLE speakers(scope_id INTEGER NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (scope_id, id, name)) WITHOUT ROWID;
"""
# `version` moves with anything about a row, its vector included; `worded` only with what is written.
# `tallies`, `terms` and `speakers` count the rows of each scope: by kind, by word and group of kinds, and by sender.
# BM25 weighs a row against the mean length of its table: one line of talk must not be measured against whole
# episodes, so each sort of text has its own.
FULL_TEXT = ("fts_message", "fts_episode", "fts_entry")
SCHEMA += ";".join(
    f"""
CREATE VIRTUAL TABLE {table} USING fts5(scope, tokens, tokenize = "ascii tokenchars '_'");
INSERT INTO {table}({table}, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE VIRTUAL TABLE {table}_words USING fts5vocab('{table}', 'col')"""
    for table in FULL_TEXT
)
VECTORS = """
CREATE TABLE models(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL);
CREATE TABLE vectors(id INTEGER PRIMARY KEY, model INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL,
    UNIQUE (model, key));
CREATE TABLE tokens(model INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (model, key))
"""
COUNTS = ("tallies", "terms", "speakers")
SAID = frozenset({"message", PASSAGE})
_GONE_KEPT = 200_000
# Bump when rows or tokens are made differently: the index is then made anew from the notes.
SCHEMA_VERSION = 9
VECTORS_VERSION = 2


def prepared(new: NewRow) -> tuple[str, int, int, bytes, bool]:
    """Tokens, flags, length, embed key and whether hidden; made outside of the transaction."""
    row = new.row
    said = row.text if new.searched is None else new.searched
    tokens = searched_words(row.kind, said, row.sender_ids[0] if row.sender_ids else "", row.sender_name)
    hidden = row.status in HIDDEN_STATUSES
    return (
        " ".join(tokens),
        text_flags(row.text, row.fields, hidden=hidden),
        len(tokens),
        embed_key(new.embedded or said),
        hidden,
    )


_ROW = (
    "scope_id", "kind", "entry_id", "path_id", "text", "embedded", "fields", "content_sha256", "source", "timestamp_ms",
    "updated_ms", "session_id", "cell_id", "parent_type", "parent_id", "sender_ids", "labels", "sender_name", "ordinal",
    "status", "hidden", "damaged", "flags", "length", "embed_key", "pending", "version", "worded",
)  # fmt: skip
_INSERT = f"INSERT INTO rows({', '.join(_ROW)}) VALUES ({', '.join('?' * len(_ROW))})"
_UPDATE = f"UPDATE rows SET {', '.join(f'{name} = ?' for name in _ROW)} WHERE id = ?"


def put_row(
    db: sqlite3.Connection,
    new: NewRow,
    made: tuple[str, int, int, bytes, bool],
    scope_id: int,
    path_id: int,
    version: int,
    tally: RowTally,
    *,
    embedded: bool,
) -> None:
    """Write a row, in the place of the one that its entry had; `embedded` says that its vector is there already."""
    row = new.row
    tokens, flags, length, key, hidden = made
    senders = packed(row.sender_ids)
    said = new.embedded or new.searched
    values = (
        scope_id, row.kind, row.entry_id, path_id, row.text, said if said != row.text else None,
        json.dumps(dict(row.fields), ensure_ascii=False, default=str), row.content_sha256, new.source, row.timestamp_ms,
        row.updated_ms, row.session_id or None, row.cell_id or None, row.parent_type or None, row.parent_id or None,
        senders, packed(row.labels), row.sender_name, row.ordinal, row.status, hidden, row.damaged, flags, length, key,
        not embedded, version, version,
    )  # fmt: skip
    table = full_text(row.kind)
    old = db.execute(
        "SELECT id FROM rows WHERE path_id = ? AND scope_id = ? AND entry_id = ?",
        (path_id, scope_id, row.entry_id),
    ).fetchone()
    was = tally.take_out(db, old[0]) if old is not None else None
    tally.put_in(scope_id, row.kind, tokens, senders, row.sender_name)
    if old is None:
        rowid = db.execute(_INSERT, values).lastrowid
    else:
        rowid = old[0]
        db.execute(_UPDATE, (*values, rowid))
        if was == tokens:
            return
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    db.execute(f"INSERT INTO {table}(rowid, scope, tokens) VALUES (?, ?, ?)", (rowid, f"s{scope_id}", tokens))


class RowTally:
    """What a transaction adds to the counts of its scopes and takes from them; written once, at its end."""

    def __init__(self) -> None:
        self._kinds: Counter[tuple[int, str]] = Counter()
        self._words: Counter[tuple[int, str]] = Counter()
        self._terms: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        self._speakers: Counter[tuple[int, str, str]] = Counter()

    def put_in(self, scope_id: int, kind: str, tokens: str, senders: str, name: str | None) -> None:
        self._count(1, scope_id, kind, tokens, senders, name)

    def take_out(self, db: sqlite3.Connection, rowid: int) -> str:
        """Count a row no longer, as it stands now; returns its tokens."""
        query = "SELECT scope_id, kind, sender_ids, sender_name FROM rows WHERE id = ?"
        scope_id, kind, senders, name = db.execute(query, (rowid,)).fetchone()
        found = db.execute(f"SELECT tokens FROM {full_text(kind)} WHERE rowid = ?", (rowid,)).fetchone()
        tokens = str(found[0]) if found else ""
        self._count(-1, scope_id, kind, tokens, senders, name)
        return tokens

    def _count(
        self, step: int, scope_id: int, kind: str, tokens: str, senders: str, name: str | None
    ) -> None:
        held, terms = tokens.split(), self._terms[scope_id, group_of(kind)]
        self._kinds[scope_id, kind] += step
        self._words[scope_id, kind] += step * len(held)
        (terms.update if step > 0 else terms.subtract)(set(held))
        if kind in SAID and senders:
            self._speakers[scope_id, senders.strip("\n"), name or ""] += step

    def write(self, db: sqlite3.Connection) -> None:
        add = "ON CONFLICT DO UPDATE SET rows = rows + excluded.rows"
        kinds = [(*key, step, self._words[key]) for key, step in self._kinds.items()]
        db.executemany(
            f"INSERT INTO tallies VALUES (?, ?, ?, ?) {add}, words = words + excluded.words", kinds
        )
        terms = [
            (scope_id, term, part, step)
            for (scope_id, part), counted in self._terms.items()
            for term, step in counted.items()
        ]
        speakers = [(*key, step) for key, step in self._speakers.items()]
        for table, counts in (("terms", terms), ("speakers", speakers)):
            moved = [row for row in counts if row[3]]
            db.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?) {add}", moved)
            emptied = [row[:3] for row in moved if row[3] < 0]
            names = ("term", "part") if table == "terms" else ("id", "name")
            db.executemany(
                f"DELETE FROM {table} WHERE scope_id = ? AND {names[0]} = ? AND {names[1]} = ? AND rows <= 0",
                emptied,
            )


def full_text(kind: str) -> str:
    table = "fts_message" if kind == PASSAGE else f"fts_{kind}"
    return table if table in FULL_TEXT else "fts_entry"


def merge_step(db: sqlite3.Connection) -> tuple[int, int]:
    before = db.total_changes
    for table in FULL_TEXT:
        db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', 300)")
    return before, db.total_changes


def trim_gone(db: sqlite3.Connection) -> int:
    """Keep the list of removals short; readers older than what was trimmed load their scope anew."""
    if int(db.execute("SELECT count(*) FROM gone").fetchone()[0]) <= _GONE_KEPT:
        return 0
    edge = int(db.execute("SELECT max(version) FROM gone").fetchone()[0])
    db.execute("UPDATE meta SET value = ? WHERE key = 'trimmed'", (edge,))
    return db.execute("DELETE FROM gone").rowcount


def scope_number(db: sqlite3.Connection, scope: Scope) -> int | None:
    query = "SELECT id FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?"
    found = db.execute(query, (scope.space.app, scope.space.project, scope.track, scope.owner)).fetchone()
    return int(found[0]) if found else None


def scope_made(db: sqlite3.Connection, scope: Scope, known: dict[Scope, int]) -> int:
    db.execute(
        "INSERT OR IGNORE INTO scopes(app, project, track, owner, version) VALUES (?, ?, ?, ?, 0)",
        (scope.space.app, scope.space.project, scope.track, scope.owner),
    )
    number = scope_number(db, scope)
    assert number is not None
    known[scope] = number
    return number


def path_made(db: sqlite3.Connection, path: str, known: dict[str, int]) -> int:
    db.execute("INSERT OR IGNORE INTO paths(path) VALUES (?)", (path,))
    known[path] = int(db.execute("SELECT id FROM paths WHERE path = ?", (path,)).fetchone()[0])
    return known[path]


def model_number(db: sqlite3.Connection, model: str) -> int | None:
    if not model:
        return None
    found = db.execute("SELECT id FROM v.models WHERE name = ?", (model,)).fetchone()
    return int(found[0]) if found else None


def with_vectors(db: sqlite3.Connection, model: int | None, keys: Sequence[bytes]) -> set[bytes]:
    """Which of these texts have a vector of a model."""
    found: set[bytes] = set()
    for part in parts(list(keys)) if model is not None else ():
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


def parts(values: list[Any], size: int = 500) -> Iterable[list[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))
