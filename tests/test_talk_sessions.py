"""The session log on disk: `cairn.talk.sessions`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import Invalid, InvalidLocatorError
from cairn.seams import JournalSlice, Locator
from cairn.talk import lines as kinds_of_line
from cairn.talk import parse_message, sessions
from cairn.types import ContentItem, Message, Space, ToolCall, checked_session_id

SPACE = Space()
PLACE = sessions.session_locator(SPACE, "s1")


class Lines:
    """Journals in a dictionary: offsets count lines."""

    def __init__(self):
        self.held = {}
        self.starts = []

    def append(self, at, lines, *, sync=True):
        self.held.setdefault(at, []).extend(lines)
        return len(self.held[at])

    def read(self, at, start=0):
        self.starts.append(start)
        found = self.held.get(at, [])
        return JournalSlice(tuple(found[start:]), len(found))

    def size(self, at):
        return len(self.held.get(at, []))

    def replace(self, at, lines):
        self.held[at] = list(lines)
        return len(lines)


def add(n, *texts, batch=""):
    said = [kinds_of_line.message_to(Message("ann", "user", 1_700_000_000_000 + n, text)) for text in texts]
    return json.dumps({"t": "add", "n": n, "batch": batch, "messages": said})


def cut(cell, first, upto):
    return json.dumps({"t": "cut", "cell": cell, "first": first, "upto": upto, "day": "2023-05-08",
                       "owners": [["user", "ann"]]})  # fmt: skip


def test_a_log_tells_what_is_open_and_what_was_cut():
    """X4: the inbox is the part of the log after the last cut; a cell knows its words and whether it is done."""
    lines = Lines()
    lines.append(
        PLACE, [add(0, "a", "b"), cut("mc_1", 0, 2), add(2, "c"), json.dumps({"t": "done", "cell": "mc_1"})]
    )

    state = sessions.SessionLog(lines).load(PLACE)

    assert [m.text for m in state.messages] == ["a", "b", "c"]
    assert [m.text for m in state.open_messages] == ["c"]
    assert [(c.cell_id, c.owners, c.done) for c in state.cells] == [("mc_1", (("user", "ann"),), True)]
    assert [m.id for m in state.messages_of(state.cells[0])] == [sessions.message_id("s1", n) for n in (0, 1)]
    assert state.pending == []


def test_a_cut_without_done_is_pending():
    """A crash between the cut and the episode leaves a cell that recovery can find."""
    lines = Lines()
    lines.append(PLACE, [add(0, "a"), cut("mc_1", 0, 1)])

    assert [c.cell_id for c in sessions.SessionLog(lines).load(PLACE).pending] == ["mc_1"]


def test_reading_on_costs_only_the_tail():
    """A state follows other writers by reading what was appended since it was last looked at."""
    lines = Lines()
    log = sessions.SessionLog(lines)
    lines.append(PLACE, [add(0, "a")])
    before = log.load(PLACE)
    lines.append(PLACE, [add(1, "b", batch="k")])

    after = log.load(PLACE)

    assert lines.starts == [0, 1]
    assert [m.text for m in before.open_messages] == ["a"]
    assert [m.text for m in after.open_messages] == ["a", "b"]
    assert after.epoch == before.epoch


def test_a_long_session_is_kept_without_the_words_of_old_cells():
    """Memory holds the open part and the newest cells, however long the session runs; a reader of all reads anew."""
    lines = Lines()
    log = sessions.SessionLog(lines)
    for n in range(40):
        done = json.dumps({"t": "done", "cell": f"mc_{n}"})
        lines.append(PLACE, [add(n, f"{n} " + "x" * 100_000), cut(f"mc_{n}", n, n + 1), done])
        log.load(PLACE, after=(log.load(PLACE).epoch, n))
    lines.append(PLACE, [add(40, "open")])
    with log.live(PLACE) as state:
        held = [m.text[:4].strip("x ") for m in state.messages]

    assert held[-1] == "open"
    assert 1 < len(held) < 40
    assert len(log.load(PLACE).messages) == 41


def test_broken_lines_and_forgotten_messages_keep_every_id_in_place():
    """A hand-damaged line is counted and skipped, a forgotten message leaves a gap; later ids never shift."""
    forgotten = json.loads(add(0, "a", "b"))
    forgotten["messages"][0] = None
    state = sessions.SessionState(SPACE, "s1")

    state.feed([json.dumps(forgotten), "{oops", '{"t": "add", "messages": 3}', add(4, "e")])

    assert {m.text: m.id for m in state.messages} == {
        "b": sessions.message_id("s1", 1),
        "e": sessions.message_id("s1", 4),
    }
    assert state.skipped_lines == 2


def test_every_field_of_a_message_survives_the_log():
    """Content items, tool calls and names come back as they went in."""
    said = Message(
        "bot", "assistant", 1_700_000_000_000, (ContentItem("text", "hi"), ContentItem("image", uri="x:y", extras={"w": 1})),
        "Bot", (ToolCall("c1", "look", '{"q": "}"}'),),
    )  # fmt: skip

    assert parse_message(json.loads(json.dumps(kinds_of_line.message_to(said)))) == said


def test_a_message_of_a_later_version_is_read_without_its_new_fields():
    """What a log holds is kept words: a field that nobody knows here costs nothing, in the message or in its parts."""
    said = {"sender_id": "a", "role": "user", "timestamp": 1_700_000_000_000, "mood": "glad"}
    said["content"] = [{"type": "text", "text": "hi", "tone": 3}]
    line = json.dumps({"t": "add", "n": 0, "messages": [said], "later": True})
    state = sessions.SessionState(SPACE, "s1")

    state.feed([line])

    assert [message.text for message in state.messages] == ["hi"]
    assert state.troubles == []


@given(st.text(min_size=1, max_size=128))
def test_any_allowed_session_id_has_its_own_safe_file(session_id):
    """Whatever the id holds: one safe file, found again from its name, never more than a segment may carry."""
    try:
        checked_session_id(session_id)
    except Invalid:
        return

    place = sessions.session_locator(SPACE, session_id)

    assert sessions.place_of_session(place) == (SPACE, session_id)
    assert place.key == place.key.lower()
    assert all(len(part) <= 200 and not part.startswith(".") for part in place.parts)


@pytest.mark.parametrize(
    "session_id",
    ["A" * 128, "🦊" * 128, "con", "nul.txt", "a/b", ".hid", "%41", "a" * 127 + ".", "." * 2 + "x" * 100],
)
def test_ids_that_files_cannot_carry_are_written_otherwise(session_id):
    """Capitals, device names, dots, slashes and long Unicode ids each keep a file of their own."""
    place = sessions.session_locator(Space("app", "p"), session_id)

    assert sessions.place_of_session(place) == (Space("app", "p"), session_id)
    assert (
        sessions.session_locator(Space("app", "p"), session_id.swapcase()) != place
        or session_id == session_id.swapcase()
    )


@pytest.mark.parametrize(
    "key",
    ["a/b/users/x.jsonl", "a/b/sessions/x.md", "a/b/sessions/X.jsonl", "a/b/sessions/f/x.jsonl", "a/b/sessions/%4.jsonl",
     "a/b/sessions/%ff.jsonl", "a/b/sessions/%61.jsonl", "x.jsonl"],
)  # fmt: skip
def test_other_places_are_not_sessions(key):
    """Only the one canonical name of an id is its log; look-alikes are nobody's."""
    assert sessions.place_of_session(Locator(key)) is None
    with pytest.raises(InvalidLocatorError):
        sessions.SessionLog(Lines()).load(Locator(key))


def test_cell_ids_are_the_same_whenever_computed():
    """A replay after a crash names the same cell, another stretch another one."""
    one = sessions.cell_id(SPACE, "s1", 0, 4)

    assert one == sessions.cell_id(SPACE, "s1", 0, 4)
    assert len({one, sessions.cell_id(SPACE, "s1", 0, 5), sessions.cell_id(Space("x"), "s1", 0, 4)}) == 3
    assert one.startswith("mc_")
    assert len(one) == 15
