"""From add to episode on real files: durable, once, in order, and nothing written for bad input."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from cairn.engines.files import DeviceLocalBackend
from cairn.errors import CairnError, Invalid, StorageFailed, Unavailable
from cairn.talk import inbox, telling
from cairn.talk.sessions import message_id, session_locator
from cairn.testing.faults import Faults
from cairn.types import ContentItem, Space, ToolCall
from tests.waiting import LONG
from tests.world import MAY_8, SPACE, Death, ScriptedWriter, World, die, happens, is_episode, said


class Later:
    """A clock that is ahead of the machine's."""

    def __init__(self, hours=1):
        self.ahead = timedelta(hours=hours)

    def now(self):
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def kit(tmp_path):
    return World(tmp_path)


def test_add_accumulates_and_flush_extracts(kit):
    """E62 E63 E113: an add is "accumulated", a flush "extracted", a flush of nothing "no_extraction"."""
    added = kit.add(
        "s1", said("I moved to Oslo yesterday."), said("How is it there?", 1, who="bot", role="assistant")
    )
    flushed = kit.flush()

    assert (added.status, added.message_count, added.cell_ids) == ("accumulated", 2, ())
    assert (flushed.status, len(flushed.cell_ids)) == ("extracted", 1)
    assert kit.flush().status == "no_extraction"
    assert kit.flush("never-seen").status == "no_extraction"


def test_the_episode_is_on_disk_before_the_call_answers(kit):
    """E36 E65 E84 E94: users/<sender>/episodes/episode-<date>.md with the fields and sections of an episode."""
    kit.add(
        "s1", said("I moved to Oslo yesterday."), said("How is it there?", 1, who="bot", role="assistant")
    )
    [cell] = kit.flush().cell_ids

    path = kit.folder / "default_app/default_project/users/ann/episodes/episode-2023-05-08.md"
    assert path.is_file()
    [(owner, entry)] = kit.episodes()
    assert owner == "ann"
    assert {k: entry.inline[k] for k in ("owner_id", "session_id", "timestamp", "parent_type", "parent_id", "sender_ids")} == {
        "owner_id": "ann", "session_id": "s1", "timestamp": "2023-05-08T13:56:00.000+00:00",
        "parent_type": "memcell", "parent_id": cell, "sender_ids": "[ann, bot]",
    }  # fmt: skip
    assert list(entry.sections) == ["Subject", "Summary", "Content"]
    assert "yesterday (7 May 2023)" in entry.sections["Summary"]
    assert "[yesterday: 7 May 2023]" in entry.sections["Content"]
    assert entry.inline["writer"] == "deterministic"


def test_the_inbox_lies_outside_the_index(kit):
    """X4: un-extracted messages are in the session log, whole, the moment add answers."""
    kit.add("s1", said("first"), said("second", 1))

    assert kit.files() == {"default_app/default_project/sessions/s1.jsonl"}
    assert [m.text for m in World(kit.folder).capture.unprocessed(SPACE, "s1")] == ["first", "second"]


def test_the_transcript_of_a_cell_stays_and_is_traced_by_its_id(kit):
    """E32: the cut is in the log, and the words of a cell are there after the episode is written."""
    kit.add("s1", said("first"), said("second", 1))
    [cell] = kit.flush().cell_ids
    kit.add("s1", said("third", 2))

    state = kit.log()
    assert [(c.cell_id, c.reason, c.done, c.owners) for c in state.cells] == [
        (cell, "flush", True, (("user", "ann"),))
    ]
    assert [m.text for m in state.messages_of(state.cells[0])] == ["first", "second"]
    assert [m.id for m in state.open_messages] == [message_id("s1", 2)]


def test_every_user_of_a_group_chat_gets_the_episode(kit):
    """E36: one episode for each user of the session; the assistant, who is no user, gets none."""
    kit.add(
        "s1",
        said("Shall we hike?"),
        said("Yes, on Sunday!", 1, who="ben"),
        said("Noted.", 2, who="bot", role="assistant"),
    )
    kit.flush()

    assert sorted(owner for owner, _ in kit.episodes()) == ["ann", "ben"]
    assert len({entry.inline["parent_id"] for _, entry in kit.episodes()}) == 1
    assert [(scope.owner, eid) for scope, eid in kit.cells[0].episodes] == [("ann", "ep_20230508_00000001"), ("ben", "ep_20230508_00000001")]  # fmt: skip


def test_a_long_run_belongs_to_the_person_it_is_for_in_every_cell(kit):
    """One request, then cells of nothing but an assistant's and its tools' messages: each is the person's."""
    kit.add("s1", said("Migrate the billing tables, please."))
    for step in range(1, 7):
        role = "tool" if step % 2 else "assistant"
        kit.add("s1", said(f"step {step} marker{step:02d}", step, who="bot", role=role, tool_call_id="c1" if role == "tool" else None))  # fmt: skip
        kit.flush()

    assert {owner for owner, _ in kit.episodes()} == {"ann"}
    assert all(f"marker{step:02d}" in kit.told("ann") for step in range(1, 7))
    assert {cell.owners for cell in kit.log().cells} == {(("user", "ann"),)}


def test_who_joins_later_has_what_was_said_since(kit):
    """A person owns what is said from the first cell they speak in, whoever speaks in the cells after it."""
    kit.add("s1", said("The door code is 4411."))
    kit.flush()
    kit.add("s1", said("Hello, I am new here.", 1, who="ben"))
    kit.flush()
    World(kit.folder).add("s1", said("We meet on Monday.", 2))
    World(kit.folder).flush()

    assert "4411" not in kit.told("ben")
    assert "Monday" in kit.told("ben")
    assert "new here" in kit.told("ann")


def test_a_cell_without_a_user_belongs_to_its_agents(kit):
    """No message is without an episode: a monologue of an assistant is the agent's."""
    kit.add("s1", said("Working on it.", who="bot", role="assistant"))
    kit.flush()

    assert (kit.folder / "default_app/default_project/agents/bot/episodes/episode-2023-05-08.md").is_file()
    assert kit.cells[0].episodes == ()
    assert kit.cells[0].agents == ("bot",)


def test_two_messages_in_one_millisecond_are_both_kept(kit):
    """Identity is content and place, never the timestamp alone."""
    for text in ("first", "second", "third"):
        kit.add("s1", said(text))
    kit.flush()

    assert [m.text for m in kit.log().messages] == ["first", "second", "third"]
    assert all(text in kit.told() for text in ("first", "second", "third"))


def test_the_same_call_twice_is_kept_once(kit):
    """An exact duplicate of a batch is a retry: kept once, answered as before, also by another process."""
    batch = (said("only once", 1), said("and me", 2))

    answers = [kit.add("s1", *batch), kit.add("s1", *batch), World(kit.folder).add("s1", *batch)]

    assert {(a.status, a.message_count) for a in answers} == {("accumulated", 2)}
    assert len(kit.log().messages) == 2
    kit.flush()
    assert kit.add("s1", *batch).status == "accumulated"
    assert kit.flush().status == "no_extraction"


def test_an_idempotency_key_decides_what_is_a_retry(kit):
    """The same key is the same call; the same words under a new key are said again; a key is not reused."""
    kit.add("s1", said("hello"), key="k1")
    kit.add("s1", said("hello"), key="k1")
    kit.add("s1", said("hello"), key="k2")

    assert len(kit.log().messages) == 2
    with pytest.raises(Invalid, match="used for other messages"):
        kit.add("s1", said("something else"), key="k1")
    with pytest.raises(Invalid, match="idempotency key"):
        kit.add("s1", said("x"), key="")


def test_a_retry_of_an_add_that_extracted_says_so_again(tmp_path):
    """Answered as before: the retry reports the extraction and its cell, and makes no second one."""
    kit = World(tmp_path, capture__max_messages=2)
    batch = (said("one"), said("two", 1))

    first = kit.add("s1", *batch)
    again = World(tmp_path, capture__max_messages=2).add("s1", *batch)

    assert first.status == again.status == "extracted"
    assert first.cell_ids == again.cell_ids
    assert len(list(kit.episodes())) == 1


def test_a_full_stretch_is_cut_by_messages_and_by_tokens(tmp_path):
    """E64 E123: 500 messages or 65,536 tokens force a cut (smaller here); the caps hold for one huge message."""
    kit = World(tmp_path, capture__max_messages=3, capture__max_tokens=100)

    statuses = [kit.add("s1", said(f"word{n}", n)).status for n in range(7)]
    assert statuses == ["accumulated", "accumulated", "extracted"] * 2 + ["accumulated"]
    assert kit.add("s1", said("x" * 4000, 8)).status == "extracted"
    assert [(c.upto - c.first, c.reason) for c in kit.log().cells] == [(3, "messages"), (3, "messages"), (1, "tokens"), (1, "tokens")]  # fmt: skip


def test_a_silence_closes_the_old_stretch_before_the_new_message(kit):
    """A gap in the messages' own times cuts; the message after it opens the next stretch."""
    kit.add("s1", said("good night"))
    added = kit.add("s1", said("good morning", 8 * 3600))

    assert added.status == "extracted"
    assert "good night" in kit.told()
    assert [m.text for m in kit.capture.unprocessed(SPACE, "s1")] == ["good morning"]


def test_history_sent_in_one_call_lands_on_its_own_days(tmp_path):
    """C12: the bucket is the day the cell was said, in the display zone, decided once."""
    kit = World(tmp_path, memory__timezone="America/New_York")
    day = 24 * 3600
    kit.add("s1", said("one", at=MAY_8), said("two", day), said("three", 2 * day + 12 * 3600))
    kit.flush()

    assert [(c.day, c.reason) for c in kit.log().cells] == [
        ("2023-05-08", "gap"),
        ("2023-05-09", "gap"),
        ("2023-05-10", "flush"),
    ]
    assert [m.timestamp for m in kit.log().messages][2] // 86_400_000 == (MAY_8 // 86_400_000) + 3


def test_deferring_only_buffers(tmp_path):
    """E113: defer_extraction never extracts, even past the caps; the next call that does not defer catches up."""
    kit = World(tmp_path, capture__max_messages=2)
    for n in range(5):
        assert kit.add("s1", said(f"w{n}", n), defer=True).status == "accumulated"
    assert list(kit.episodes()) == []

    assert kit.add("s1", said("w5", 5)).status == "extracted"
    assert [c.upto - c.first for c in kit.log().cells] == [2, 2, 2]


def test_the_event_of_a_cell_names_its_mode(tmp_path):
    """E66 E76: one event per cell; agent mode, set or per call, is told to the strategies."""
    kit = World(tmp_path)
    kit.add("s1", said("fix the build"), said("Done.", 1, who="bot", role="assistant"), mode="agent")
    [cell] = kit.flush().cell_ids
    kit.add("s1", said("thanks", 2))
    kit.flush()

    assert next((e.cell_id, e.mode, e.agents, e.day) for e in kit.cells) == (
        cell,
        "agent",
        ("bot",),
        "2023-05-08",
    )
    assert kit.cells[1].mode == "chat"
    with pytest.raises(Invalid, match="mode"):
        kit.add("s1", said("x", 3), mode="robot")


def test_a_strategy_that_fails_does_not_fail_the_flush_and_is_told_again(tmp_path):
    """E67: extraction answers whatever becomes of the strategies; the event is raised again at the next open."""

    def broken(event):
        raise RuntimeError("no strategies today")

    kit = World(tmp_path, on_cell=broken)
    kit.add("s1", said("hello there"))
    assert kit.flush().status == "extracted"

    later = World(tmp_path)
    assert later.capture.recover() == 1
    assert len(later.cells) == 1
    assert len(list(later.episodes())) == 1
    assert later.capture.recover() == 0


def test_the_index_is_told_of_note_and_session(kit):
    """E68: words queue their session's log, an extraction the note and the log; each answers with the highest LSN."""
    added = kit.add("s1", said("hello there"))
    assert kit.changes == [("default_app/default_project/sessions/s1.jsonl", "modified")] and added.lsn == 1
    assert kit.add("s1", said("hello there")).lsn == 0, "a repeat brings nothing new"
    kit.changes.clear()
    flushed = kit.flush()

    assert kit.changes == [
        ("default_app/default_project/users/ann/episodes/episode-2023-05-08.md", "added"),
        ("default_app/default_project/sessions/s1.jsonl", "modified"),
    ]
    assert flushed.lsn == 2


@pytest.mark.parametrize("step", range(1, 8))
def test_a_crash_at_any_step_gives_the_same_episodes_once(tmp_path, step):
    """P1: whatever write a flush dies before, a restart with recovery has each message in exactly one episode."""
    faults, writes = Faults(lambda _: None), iter(range(1, 100))
    kit = World(tmp_path, faults=faults)
    kit.add("s1", said("alpha bravo"), said("charlie delta", 1, who="ben"))
    happens(faults, lambda _: next(writes) == step, die)
    with suppress(Death):
        kit.flush()

    later = World(tmp_path)
    cut = later.log().cells
    assert later.capture.recover() == sum(not cell.done for cell in cut)
    assert later.flush().status == ("no_extraction" if cut else "extracted")
    assert sorted(owner for owner, _ in later.episodes()) == ["ann", "ben"]
    assert later.log().pending == []


def test_recovery_without_the_ledger_finds_the_cell_in_the_logs(tmp_path):
    """Losing `.tmp` loses nothing: a full recovery reads the logs, and the next call on the session does too."""
    for session in ("s1", "s2"):
        kit = World(tmp_path, faults=Faults(lambda _: None))
        kit.add(session, said(f"words of {session}"))
        happens(kit.faults, is_episode, die)
        with pytest.raises(Death):
            kit.flush(session)
    for file in (tmp_path / ".tmp" / "cells").iterdir():
        file.unlink()

    [cell] = kit.log("s2").pending
    assert World(tmp_path).capture.is_at(cell)  # its process may still be at it: only a flush would not wait
    later = World(tmp_path, clock=Later())
    assert later.capture.recover() == 0
    assert later.flush("s2").status == "extracted"
    assert later.capture.recover(everywhere=True) == 1
    assert len(list(later.episodes())) == 2


def test_recovery_beside_a_cut_does_not_strike_it_off_the_ledger(tmp_path):
    """P1: a cell is noted before it is cut; recovery in that moment finds no cut, and must not call it settled."""
    kit, other = World(tmp_path, faults=Faults(lambda _: None)), World(tmp_path)
    kit.add("s1", said("alpha bravo"))
    beside = threading.Thread(target=other.capture.recover)

    def recover():
        beside.start()
        beside.join(0.3)

    # The cell is noted in the ledger, then cut in the log; its process is killed right after that.
    happens(kit.faults, lambda call: call.key.endswith("sessions/s1.jsonl"), recover)
    happens(kit.faults, is_episode, die)
    with pytest.raises(Death):
        kit.flush()
    beside.join()
    assert World(tmp_path).capture.recover() == 1
    assert [owner for owner, _ in kit.episodes()] == ["ann"]


def test_two_flushes_at_once_make_one_episode(kit):
    """Two flushes of one session at once: one extracts, the other finds nothing open."""
    for n in range(10):
        kit.add(f"s{n}", said(f"text {n}"))
        ready = threading.Barrier(2)
        results = []

        def flush(session=f"s{n}", ready=ready, results=results):
            ready.wait()
            results.append(kit.flush(session).status)

        threads = [threading.Thread(target=flush) for _ in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert sorted(results) == ["extracted", "no_extraction"]

    assert len(list(kit.episodes())) == 10


def test_adds_during_flushes_are_neither_lost_nor_doubled(kit):
    """Four writers and a flusher on one session: every message ends in exactly one episode."""

    def write(who):
        for n in range(25):
            kit.add("s1", said(f"<{who}-{n}>", n, who=f"u{who}"))

    done = threading.Event()

    def flush():
        while not done.is_set():
            kit.flush()

    writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    flusher = threading.Thread(target=flush)
    flusher.start()
    [t.start() for t in writers]
    [t.join() for t in writers]
    done.set()
    flusher.join()
    kit.flush()

    told = list(
        {entry.inline["parent_id"]: entry.sections["Content"] for _, entry in kit.episodes()}.values()
    )
    for who in range(4):
        for n in range(25):
            assert sum(f"<{who}-{n}>" in text for text in told) == 1
    numbers = [int(m.text.strip("<>").split("-")[1]) for m in kit.log().messages if m.sender_id == "u0"]
    assert numbers == sorted(numbers)


def test_two_processes_share_a_session(tmp_path):
    """Each sees what the other appended: one order, cuts respected, caps counted together."""
    one, two = World(tmp_path, capture__max_messages=4), World(tmp_path, capture__max_messages=4)
    one.add("s1", said("a"))
    two.add("s1", said("b", 1))
    one.add("s1", said("c", 2))

    assert two.add("s1", said("d", 3)).status == "extracted"
    assert one.flush().status == "no_extraction"
    one.add("s1", said("e", 4))
    assert [m.text for m in two.capture.unprocessed(SPACE, "s1")] == ["e"]
    assert len(list(one.episodes())) == 1


def test_what_memory_holds_of_a_session_decides_nothing_once_another_wrote(tmp_path):
    """A repeat of what another process kept is known, and so are its words, its cut and a log it removed."""
    one, two = World(tmp_path), World(tmp_path)
    one.add("s1", said("a"))
    two.add("s1", said("b", 1))

    one.add("s1", said("b", 1))
    assert [m.text for m in one.log().messages] == ["a", "b"]
    two.add("s1", said("c", 2))
    assert [m.text for m in one.capture.unprocessed(SPACE, "s1")] == ["a", "b", "c"]
    two.flush()
    assert one.flush().status == "no_extraction"
    (tmp_path / "default_app/default_project/sessions/s1.jsonl").unlink()
    one.add("s1", said("a"))
    assert [m.id for m in one.log().messages] == [message_id("s1", 0)]


def test_a_log_rewritten_by_another_is_read_anew(tmp_path):
    """When something was forgotten from a log, a process that remembers the old one notices."""
    one, two = World(tmp_path), World(tmp_path)
    one.add("s1", said("a" * 50), said("keep", 1))
    place = session_locator(SPACE, "s1")
    line = json.loads(two.journals.read(place).lines[0])
    line["messages"][0] = None
    two.journals.replace(place, [json.dumps(line)])
    two.add("s1", said("b" * 100, 2))

    one.add("s1", said("c", 3))

    assert [m.text for m in one.capture.unprocessed(SPACE, "s1")] == ["keep", "b" * 100, "c"]
    assert [m.id for m in one.log().messages] == [message_id("s1", n) for n in (1, 2, 3)]


def test_spaces_and_sessions_do_not_meet(kit):
    """E12 E62: the buffer is keyed by session, app and project; ids that differ in case differ."""
    for space, session in ((Space(), "S"), (Space(), "s"), (Space("x"), "s"), (Space("x", "y"), "s")):
        kit.capture.add(space, session, [said(f"{space.app} {space.project} {session}")])

    for space, session in ((Space(), "S"), (Space(), "s"), (Space("x"), "s"), (Space("x", "y"), "s")):
        assert [m.text for m in kit.capture.unprocessed(space, session)] == [
            f"{space.app} {space.project} {session}"
        ]


def test_any_text_reaches_the_episode_whole(kit):
    """Marker look-alikes, braces, RTL, CJK, emoji, blank lines, a megabyte: every word is in the episode."""
    texts = [
        "x <!-- /entry:ep_20260101_00000001 --> y\n### Content\nfaked <!-- entry:ep_20260101_00000099 -->",
        "if (x) { return '}' } }", "Привет 世界 🦊 \u202eabc é", "a\r\n\r\nb", "---\nid: y\n---", "big " * 262_144, "",
    ]  # fmt: skip
    kit.add("s1", *(said(text, n) for n, text in enumerate(texts)))
    kit.flush()

    owners = list(kit.episodes())
    told = kit.told().replace("\r\n", "\n")
    for text in texts:
        assert text.replace("\r\n", "\n").strip() in told
    assert {owner for owner, _ in owners} == {"ann"}
    assert all(len(entry.sections["Summary"]) < 1500 for _, entry in owners)


def test_tools_and_parts_are_told(kit):
    """Tool calls, results and attachments stand in the episode by name and text."""
    kit.add(
        "s1",
        said("What is in the picture?", who="ann"),
        said("", 1, who="bot", role="assistant", tool_calls=(ToolCall("c1", "look", '{"path": "cat.png"}'),)),
        said("a sleeping cat", 2, who="tool", role="tool", tool_call_id="c1"),
        said((ContentItem("text", "See this"), ContentItem("image", name="cat.png", base64="AAAA")), 3),
    )
    kit.flush()

    told = kit.told("ann")
    for text in (
        '[bot called look: {"path": "cat.png"}]',
        "look answered: a sleeping cat",
        "See this\n[image: cat.png]",
    ):
        assert text in told
    assert "AAAA" not in told


def test_secrets_are_cut_before_the_first_byte(tmp_path):
    """Redaction happens on the way in: neither log nor episode ever holds the credential."""
    kit = World(tmp_path, redact=lambda text: text.replace("hunter2", "[redacted]"))
    kit.add("s1", said("my password is hunter2"), said((ContentItem("text", "hunter2"),), 1),
            said("", 2, who="bot", role="assistant", tool_calls=(ToolCall("c", "login", "hunter2"),)))  # fmt: skip
    kit.flush()

    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    assert "my password is [redacted]" in kit.told()


@pytest.mark.parametrize(
    "session", ["", "../../x", "a\0b", "x\n**owner_id**: root", "/tmp/x", "~", "x" * 129, " pad", 7]
)
def test_hostile_session_ids_are_refused_and_nothing_is_written(kit, session):
    """P6: a named error before any file exists."""
    for call in (
        lambda: kit.add(session, said("x")),
        lambda: kit.flush(session),
        lambda: kit.capture.unprocessed(SPACE, session),
    ):
        with pytest.raises(Invalid, match="session_id"):
            call()
    assert kit.files() == set()


def test_a_bad_message_keeps_the_whole_batch_out(kit):
    """E113: all or nothing."""
    with pytest.raises(Invalid, match=r"messages\[1\]\.timestamp"):
        kit.add("s1", said("good"), said("bad", at=0))

    assert kit.files() == set()


def test_a_full_disk_leaves_the_inbox_as_it_was(kit, monkeypatch):
    """P9: the disk refuses an add: a named error, the old messages, and the next add works."""
    kit.add("s1", said("kept"))
    real = os.fdatasync

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(StorageFailed):
        kit.add("s1", said("refused", 1))
    monkeypatch.setattr(os, "fdatasync", real)

    assert [m.text for m in kit.capture.unprocessed(SPACE, "s1")] == ["kept"]
    kit.add("s1", said("next", 2))
    assert [m.text for m in kit.log().messages] == ["kept", "next"]


def test_an_episode_the_disk_refuses_is_written_by_the_next_call(kit, monkeypatch):
    """P9: the cut stands, the messages are safe, and a later flush writes what is missing, once."""
    kit.add("s1", said("kept"))

    def refuse(*args, **kwargs):
        raise StorageFailed("The disk is full.")

    monkeypatch.setattr(kit.notebook, "append", refuse)
    with pytest.raises(StorageFailed):
        kit.flush()
    monkeypatch.undo()

    assert kit.flush().status == "extracted"
    assert len(list(kit.episodes())) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_a_named_error(tmp_path):
    """P9: a read-only root refuses by name."""
    kit = World(tmp_path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CairnError):
            kit.add("s1", said("x"))
    finally:
        tmp_path.chmod(0o700)


def test_reextracting_replaces_the_text_and_keeps_the_id(kit):
    """Entries are told anew in place, by session, user or date; a removed episode stays removed."""
    kit.add("s1", said("I adopted a cat."), said("Lovely!", 1, who="ben"))
    kit.add("s2", said("I sold the car.", 3600 * 24))
    kit.flush("s1")
    kit.flush("s2")
    before = {(owner, e.id): e.sections["Content"] for owner, e in kit.episodes()}
    for locator in list(kit.notebook.notes(kind="episode")):
        kit.storage.write(locator, kit.storage.read(locator).replace("I adopted a cat.", "Nothing happened."))

    assert kit.capture.reextract(SPACE, session="s1") == 2
    assert {(owner, e.id): e.sections["Content"] for owner, e in kit.episodes()} == before
    assert kit.capture.reextract(SPACE, user="ben") == 1
    assert kit.capture.reextract(SPACE, date="2023-05-09") == 1
    assert kit.capture.reextract(SPACE, user="nobody") == 0
    [locator] = [n for n in kit.notebook.notes(kind="episode") if "/ben/" in n.key]
    kit.notebook.remove(locator, [kit.notebook.read(locator).entries[0].id])
    assert kit.capture.reextract(SPACE) == 2


def test_the_cost_of_an_add_does_not_grow_with_the_open_buffer(kit, monkeypatch):
    """With 400 messages open an add reads nothing back and writes one line."""
    for n in range(400):
        kit.add("s1", said(f"message number {n} about gardens and lanterns", n), defer=True)
    reads = []
    monkeypatch.setattr(type(kit.journals), "read", lambda *a: reads.append(a))
    size = kit.journals.size(session_locator(SPACE, "s1"))

    kit.add("s1", said("one more", 400))

    assert reads == []
    assert kit.journals.size(session_locator(SPACE, "s1")) - size < 300


def test_an_add_walks_to_its_log_once_and_opens_nothing_else(kit, monkeypatch):
    """Five files are opened for a message: the root, the three folders below it, and the log."""
    kit.add("s1", said("first"))
    opened, here, real = [], threading.get_ident(), os.open

    def counted(path, *args, **named):
        if threading.get_ident() == here:
            opened.append(os.fspath(path))
        return real(path, *args, **named)

    monkeypatch.setattr(os, "open", counted)
    kit.add("s1", said("second", 1))

    assert opened == [str(kit.folder.resolve()), "default_app", "default_project", "sessions", "s1.jsonl"]


def test_memory_of_sessions_is_bounded(tmp_path, monkeypatch):
    """Only so many bytes of sessions are remembered; one that was dropped is read from its log again."""
    kit = World(tmp_path, sessions_bytes=10_000)
    for n in range(10):
        kit.add(f"s{n}", said("hello", n))
    read: list[str] = []
    whole = type(kit.journals).read
    monkeypatch.setattr(
        type(kit.journals),
        "read",
        lambda self, at, start=0: (read.append(at.name), whole(self, at, start))[1],
    )

    kit.add("s9", said("again", 20))
    kit.add("s0", said("again", 20))

    assert read == ["s0.jsonl"]
    assert [m.text for m in kit.capture.unprocessed(SPACE, "s0")] == ["hello", "again"]


def test_a_noted_cell_that_no_log_knows_is_struck_off_after_an_hour(kit):
    """A cut that never came leaves a line in the ledger: recovery looks for it until it can be on its way no longer."""
    ledger = World(kit.folder, clock=Later(0)).capture._pending
    ledger.begin(SPACE, "gone", ["mc_1"])

    assert World(kit.folder, clock=Later(0)).capture.recover() == 0
    assert list(ledger.unfinished()) == ["mc_1"]
    assert World(kit.folder, clock=Later(2)).capture.recover() == 0
    assert ledger.unfinished() == {}


def test_the_ledger_does_not_pile_up(kit, monkeypatch):
    """A long-running process strikes out what is done from time to time; what is unfinished stays."""
    monkeypatch.setattr(inbox, "_TIDIED_AFTER", 5)
    crashed = World(kit.folder, faults=Faults(lambda _: None))
    crashed.add("s1", said("hello"))
    happens(crashed.faults, is_episode, die)
    with pytest.raises(Death):
        crashed.flush()
    [cell] = crashed.log().cells
    for n in range(23):
        kit.add("s2", said(f"hello {n}", n))
        kit.flush("s2")
    kit.capture.close()

    [ledger] = (kit.folder / ".tmp" / "cells").iterdir()
    assert len(ledger.read_text().splitlines()) < 15
    assert list(kit.capture._pending.unfinished()) == [cell.cell_id]
    assert World(kit.folder, clock=Later()).capture.recover() == 1


def test_a_locked_session_is_a_named_error(kit, monkeypatch):
    """A session that another wrote to, and holds too long, answers "unavailable", not a hang."""
    kit.add("s1", said("x"))
    World(kit.folder).add("s1", said("y", 1))
    monkeypatch.setattr(
        kit.locks, "hold", lambda name, timeout=30.0: (_ for _ in ()).throw(Unavailable("busy"))
    )
    with pytest.raises(Unavailable):
        kit.add("s1", said("z", 2))


def test_an_add_takes_a_lock_only_after_somebody_came_between(kit, monkeypatch):
    """Speed: the append itself sees whether the log is another by now; without that no lock file is touched."""
    held = []
    real = kit.locks.hold
    monkeypatch.setattr(kit.locks, "hold", lambda name, **given: (held.append(name), real(name, **given))[1])
    kit.add("s1", said("x"))
    kit.add("s1", said("y", 1))
    assert held == []
    World(kit.folder).add("s1", said("z", 2))
    kit.add("s1", said("last", 3))
    assert len(held) == 1
    assert [message.text for message in kit.log().messages] == ["x", "y", "z", "last"]


def test_a_call_waits_for_the_disk_no_more_than_it_must(kit, monkeypatch):
    """Speed: an add costs one flush of the disk, an extraction one for the cut and those of the note."""
    flushed = []
    real, real_all = os.fdatasync, os.fsync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (flushed.append("log"), real(fd))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append("note"), real_all(fd))[1])
    kit.add("s1", said("first"))
    kit.flush()

    flushed.clear()
    kit.add("s1", said("second", 1))
    assert flushed == ["log"]
    flushed.clear()
    kit.flush()
    assert flushed.count("log") == 1
    assert flushed.count("note") <= 2


def test_the_default_opens_no_connection(kit, monkeypatch):
    """C11 P8: without a model configured nothing is sent anywhere, from the first add to the episode."""

    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    kit.add("s1", said("hello there, I moved to Oslo"))

    assert kit.flush().status == "extracted"


def test_the_ledger_can_live_on_this_machine_alone(tmp_path):
    """A root that other machines see too keeps its unfinished cells elsewhere; recovery still finds them."""
    local = DeviceLocalBackend(tmp_path / "here")

    def broken(event):
        raise RuntimeError("not now")

    kit = World(tmp_path / "shared", local=local, on_cell=broken)
    kit.add("s1", said("hello"))
    kit.flush()

    assert not (tmp_path / "shared" / ".tmp" / "cells").exists()
    assert World(tmp_path / "shared", local=local).capture.recover() == 1


def test_sessions_can_be_listed(kit):
    """Every session with a log, by space or all; other files are not taken for one."""
    kit.add("One", said("x"))
    kit.capture.add(Space("app", "p"), "two/three", [said("x")])
    (kit.folder / "default_app/default_project/sessions/notes.txt").write_text("mine")

    assert list(kit.capture.sessions(SPACE)) == [(SPACE, "One")]
    assert set(kit.capture.sessions()) == {(SPACE, "One"), (Space("app", "p"), "two/three")}


def test_a_flush_waits_for_the_thread_that_finishes_its_cell(tmp_path):
    """A cell that recovery is telling just now is told when a flush of its session answers."""
    kit = World(tmp_path, faults=Faults(lambda _: None))
    kit.add("s1", said("the words of a cut cell"))
    began, go_on = threading.Event(), threading.Event()
    happens(kit.faults, is_episode, lambda: (began.set(), go_on.wait(LONG)))
    first = threading.Thread(target=kit.flush)
    first.start()
    assert began.wait(LONG)
    threading.Timer(0.3, go_on.set).start()
    kit.flush()
    assert len(list(kit.episodes())) == 1
    first.join()


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_a_flush_tells_what_another_process_cut_and_did_not_tell(tmp_path, monkeypatch, hours):
    """A flush that names nothing that waits has told all that was said before, whoever cut it, by whatever clock."""
    gone, here = World(tmp_path, clock=Later(hours)), World(tmp_path, clock=Later(0))
    gone.add("s1", said("I moved to Oslo yesterday."))
    [cell], _ = gone.capture._inbox.flush(SPACE, "s1")  # it is cut, and its process ends there
    here.add("s1", said("It snows.", 1))

    done = here.flush()

    assert (done.status, done.waiting) == ("extracted", ())
    assert "Oslo" in here.told() and "snows" in here.told() and len(list(here.episodes())) == 2
    assert here.flush().status == "no_extraction"
    monkeypatch.setattr(telling, "_OTHERS_SECONDS", 0.0)
    newcomer = World(tmp_path, clock=Later(0))
    assert newcomer.capture.is_at(cell) == (hours > 0)  # a clock ahead: it may have been cut just now
    assert not newcomer.capture.is_at(cell)


def test_a_flush_says_what_another_process_asks_a_model_about(tmp_path):
    """Where telling is dear, what another process may be telling is left to it, and named."""
    model = ScriptedWriter({})
    other, here = World(tmp_path), World(tmp_path, writer=model)
    other.add("s1", said("I moved to Oslo yesterday."))
    other.capture._inbox.flush(SPACE, "s1")

    done = here.flush()

    assert (done.status, [one.scope.owner for one in done.waiting]) == ("no_extraction", ["ann"])
    assert "another call is writing it" in str(done.waiting[0]) and not model.asked


def test_a_silent_session_is_closed_by_itself(tmp_path):
    """Nobody need say flush: what was said becomes an episode once nothing was added for a while, and only then."""
    kit = World(tmp_path)
    kit.add("s1", said("I parked the car in bay C17."))
    assert kit.capture.close_silent() == 0
    later = World(tmp_path, clock=Later(hours=1))
    assert later.capture.close_silent() == 1
    [(_, entry)] = later.episodes()
    assert "C17" in str(entry)
    assert later.capture.close_silent() == 0
    assert len(later.capture._silent) == len(list(later.capture.sessions()))
    for session in later.capture.sessions():  # what is gone is known no more
        later.storage.remove(session_locator(*session))
    assert later.capture.close_silent() == 0
    assert later.capture._silent == {}


def test_one_session_that_cannot_be_closed_holds_up_no_other(tmp_path):
    """A log that cannot be read is passed over; the others are closed."""
    kit = World(tmp_path)
    kit.add("s1", said("I parked the car in bay C17."))
    (tmp_path / "default_app/default_project/sessions/s0.jsonl").mkdir()
    assert World(tmp_path, clock=Later(hours=1)).capture.close_silent() == 1
