"""The filter language: what it accepts, what it means, what it refuses."""

import sqlite3
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import Invalid
from cairn.index.filters import packed, parse, plain_session
from cairn.talk.messages import labels_of

ROWS = [
    {
        "session_id": "s1",
        "parent_type": "memcell",
        "parent_id": "mc_1",
        "timestamp": 1000,
        "sender_id": ["ana", "bo"],
        "labels": labels_of(["deploy", "a\nb"], {"ticket": 42, "team": ["web", "ops"], "done": True}),
    },
    {
        "session_id": "s2",
        "parent_type": "memcell",
        "parent_id": "mc_2",
        "timestamp": 2000,
        "sender_id": ["bo"],
        "labels": labels_of(["deployment"], {"ticket": "42", "long": "x" * 5000}),
    },
    {"session_id": "s2", "parent_type": "episode", "parent_id": "ep_1", "timestamp": 3000, "sender_id": []},
    {"session_id": None, "parent_type": None, "parent_id": None, "timestamp": 4000, "sender_id": []},
]


def chosen(filters) -> list[int]:
    """Timestamps of the rows that pass, by predicate and by SQL; the two must agree."""
    group = parse(filters)
    by_hand = [row["timestamp"] for row in ROWS if group.matches(row)]
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE r (session_id, parent_type, parent_id, timestamp_ms, sender_ids, labels)")
    db.executemany(
        "INSERT INTO r VALUES (?,?,?,?,?,?)",
        [
            (
                r["session_id"],
                r["parent_type"],
                r["parent_id"],
                r["timestamp"],
                packed(r["sender_id"]),
                packed(r.get("labels", ())),
            )
            for r in ROWS
        ],
    )
    sql, values = group.to_sql()
    by_sql = [n for (n,) in db.execute(f"SELECT timestamp_ms FROM r WHERE {sql} ORDER BY 1", values)]
    db.close()
    assert by_hand == by_sql
    times, names = np.array([row["timestamp"] for row in ROWS]), ["s1", "s2"]
    places = np.array([-1 if row["session_id"] is None else names.index(row["session_id"]) for row in ROWS])
    at_once = group.over(times, places, names)
    assert at_once is None or times[at_once].tolist() == by_hand
    return by_hand


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (None, [1000, 2000, 3000, 4000]),
        ({}, [1000, 2000, 3000, 4000]),
        ({"session_id": "s1"}, [1000]),
        ({"session_id": {"ne": "s1"}}, [2000, 3000, 4000]),
        ({"session_id": {"in": ["s1", "s2"]}}, [1000, 2000, 3000]),
        ({"session_id": {"in": []}}, []),
        ({"timestamp": {"gte": 2000, "lt": 4000}}, [2000, 3000]),
        ({"timestamp": "1970-01-01T00:00:02+00:00"}, [2000]),
        ({"sender_id": "bo"}, [1000, 2000]),
        ({"sender_id": {"ne": "bo"}}, [3000, 4000]),
        ({"sender_id": {"in": ["ana", "eve"]}}, [1000]),
        ({"sender_id": "b"}, []),
        ({"OR": [{"session_id": "s1"}, {"parent_type": "episode"}]}, [1000, 3000]),
        ({"AND": [{"session_id": "s2"}, {"parent_type": "memcell"}], "timestamp": {"gt": 1}}, [2000]),
        ({"AND": None, "parent_id": "mc_1"}, [1000]),
        ({"tags": "deploy"}, [1000]),
        ({"tags": {"in": ["a\nb", "deployment"]}}, [1000, 2000]),
        ({"tags": {"ne": "deploy"}}, [2000, 3000, 4000]),
        ({"metadata.ticket": 42.0}, [1000]),
        ({"metadata.ticket": "42"}, [2000]),
        ({"metadata.done": True, "metadata.team": {"in": ["ops", "none"]}}, [1000]),
        ({"metadata.done": 1}, []),
        ({"metadata.long": "x" * 5000}, [2000]),
        ({"metadata.long": "x" * 4999}, []),
        ({"OR": [{"AND": [{"sender_id": "ana"}]}, {"timestamp": {"gte": 4000}}]}, [1000, 4000]),
    ],
)
def test_filters_mean_the_same_to_sql_and_to_python(filters, expected):
    """E116: AND / OR lists and field predicates mix, side by side means all of them."""
    assert chosen(filters) == expected


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"user_id": "bob"}, "user_id"),
        ({"AND": [{"app_id": "x"}]}, "app_id"),
        ({"project_id": {"eq": "x"}}, "project_id"),
        ({"colour": "red"}, "colour"),
        ({"session_id": {"like": "s%"}}, "like"),
        ({"session_id": {}}, "session_id"),
        ({"session_id": ["a"]}, "in"),
        ({"session_id": 7}, "session_id"),
        ({"timestamp": "soon"}, "timestamp"),
        ({"timestamp": True}, "timestamp"),
        ({"timestamp": float("inf")}, "timestamp"),
        ({"sender_id": {"gt": "a"}}, "sender_id"),
        ({"session_id": {"in": "s1"}}, "list"),
        ({"metadata.ticket": {"gte": 3}}, "no order"),
        ({"metadata.ticket": None}, "metadata.ticket"),
        ({"metadata": {"ticket": 42}}, "metadata.KEY"),
        ({"tags": 7}, "tags"),
        ({"OR": []}, "OR"),
        ({"AND": {"session_id": "x"}}, "AND"),
        ({"OR": ["x"]}, "object"),
        ([], "object"),
    ],
)
def test_bad_filters_are_named(filters, names):
    """E116: owner, app and project are refused inside filters; so is anything unknown, by name."""
    with pytest.raises(Invalid, match=names):
        parse(filters)


def test_size_is_bounded():
    """Neither depth nor breadth of a filter can exhaust the server."""
    deep: dict = {"session_id": "x"}
    for _ in range(50):
        deep = {"AND": [deep]}
    with pytest.raises(Invalid, match="deep"):
        parse(deep)
    with pytest.raises(Invalid, match="conditions"):
        parse({"OR": [{"session_id": str(n)} for n in range(500)]})
    with pytest.raises(Invalid, match="1000"):
        parse({"session_id": {"in": [str(n) for n in range(1001)]}})


def test_naive_time_is_the_display_zone():
    """E118: a timestamp without an offset is read in the display zone."""
    berlin = ZoneInfo("Europe/Berlin")
    group = parse({"timestamp": {"gte": "2026-01-01T00:00:00"}}, zone=berlin)
    assert group.to_sql()[1] == [int(datetime(2025, 12, 31, 23, tzinfo=UTC).timestamp() * 1000)]


@given(st.text(max_size=30))
def test_no_value_enters_the_sql_text(value):
    """Whatever a value holds, it is bound and never spliced."""
    sql, bound = parse({"session_id": value, "sender_id": {"in": [value]}}).to_sql()
    assert sql == "(session_id IS ? AND (instr(sender_ids, ?) > 0))"
    assert bound == [value, f"\n{value}\n"]


def test_plain_session_is_found_only_at_the_top():
    """E114: only an outright session name opens the un-extracted messages."""
    assert plain_session({"session_id": "s1"}) == "s1"
    assert plain_session({"session_id": {"eq": "s1"}}) == "s1"
    assert plain_session({"session_id": {"in": ["s1"]}}) is None
    assert plain_session({"AND": [{"session_id": "s1"}]}) is None
    assert plain_session(None) is None


def test_a_value_that_is_no_unicode_is_refused():
    """P6: half a surrogate pair cannot be looked up, and is refused before the database sees it."""
    with pytest.raises(Invalid, match="Unicode"):
        parse({"session_id": "a\ud800"})
