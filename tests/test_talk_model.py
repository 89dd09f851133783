"""Extraction by a model that may do anything: every message still ends in an episode."""

from __future__ import annotations

import threading

import pytest

from cairn.config import LlmSettings
from cairn.engines.spending import Spending
from cairn.engines.writers import OpenAIWriter
from cairn.seams import SystemClock
from cairn.testing.faults import Faults
from tests.fake_model import MISBEHAVIOURS, FakeModel
from tests.waiting import LONG, until
from tests.world import SPACE, Death, World, die, happens, said


def model_kit(folder, model, *, faults=None, **settings):
    plain = World(folder)
    spending = Spending(plain.journals, SystemClock(), settings.pop("cap", 1_000_000))
    settings = {"timeout_seconds": LONG, "max_attempts": 2, **settings}
    return World(
        folder,
        faults=faults,
        writer=OpenAIWriter(LlmSettings(base_url=model.url, model="fake", **settings), spending),
    )


def test_a_model_writes_the_episode(tmp_path):
    """E64: with a model, its subject, summary and content are the episode; the entry says who wrote it."""
    answer = {
        "subject": "Ann's\ncat",
        "summary": "Ann adopted a cat.",
        "content": "Ann said she adopted a cat.",
    }
    with FakeModel(answer=lambda body: answer) as model:
        kit = model_kit(tmp_path, model)
        kit.add("s1", said("I adopted a cat yesterday."))
        kit.flush()

        prompt = model.requests[0]["messages"][1]["content"]
        assert "[yesterday: 7 May 2023]" in prompt
    [(_, entry)] = kit.episodes()
    assert entry.sections == {
        "Subject": "Ann's cat",
        "Summary": "Ann adopted a cat.",
        "Content": "Ann said she adopted a cat.",
    }
    assert entry.inline["writer"] == "model:fake"
    assert "writer_failure" not in entry.inline


@pytest.mark.parametrize("behaviour", MISBEHAVIOURS)
def test_every_message_ends_in_an_episode_whatever_the_model_does(tmp_path, behaviour):
    """C11: garbage, 429, 500, hangs, truncated and brace-laden JSON: the deterministic text stands in and says why."""
    with FakeModel(always=behaviour) as model:
        kit = model_kit(tmp_path, model, timeout_seconds=0.5)
        kit.add("s1", said("alpha bravo charlie"), said("delta }}{ echo", 1, who="ben"))
        assert kit.flush().status == "extracted"

    for owner, entry in kit.episodes():
        assert "alpha bravo charlie" in entry.sections["Content"], owner
        assert "delta }}{ echo" in entry.sections["Content"]
        assert entry.inline["writer"] == "deterministic"
        assert entry.inline["writer_failure"]
    assert len(list(kit.episodes())) == 2
    assert kit.log().pending == []


def test_a_spent_cap_falls_back(tmp_path):
    """Beyond the daily cap no call is made and episodes go on without the model."""
    with FakeModel() as model:
        kit = model_kit(tmp_path, model, cap=10)
        kit.add("s1", said("alpha bravo charlie"))
        kit.flush()

        assert model.requests == []
    [(_, entry)] = kit.episodes()
    assert "daily cap" in entry.inline["writer_failure"]


def test_adds_go_on_while_the_model_thinks(tmp_path):
    """No lock on the session is held during the call."""
    with FakeModel(["hang"]) as model:
        kit = model_kit(tmp_path, model, max_attempts=1)
        kit.add("s1", said("first"))
        flusher = threading.Thread(target=kit.flush)
        flusher.start()
        until(lambda: model.requests)

        kit.add("s1", said("second", 1))
        second = kit.flush()
        assert flusher.is_alive(), "the second was told while the first still waits for its answer"
        model.released.set()
        flusher.join()

    assert second.status == "extracted"
    assert [m.text for m in kit.capture.unprocessed(SPACE, "s1")] == []
    assert len(list(kit.episodes())) == 2


def test_prompts_are_files_that_a_root_may_replace(tmp_path):
    """The root's `prompts/episode.md` wins over the built-in one."""
    with FakeModel() as model:
        kit = model_kit(tmp_path, model)
        kit.add("s1", said("one"))
        kit.flush()
        (tmp_path / "prompts").mkdir()
        (tmp_path / "prompts" / "episode.md").write_text("Write like a sailor.")
        kit.add("s1", said("two", 1))
        kit.flush()

        systems = [body["messages"][0]["content"] for body in model.requests]
    assert systems[0].startswith("You write the diary")
    assert systems[1].startswith("Write like a sailor.")


def test_recovery_does_not_pay_twice_for_an_episode_that_is_there(tmp_path):
    """A crash between episode and done costs no second model call."""
    with FakeModel() as model:
        faults = Faults(lambda _: None)
        kit = model_kit(tmp_path, model, faults=faults)
        kit.add("s1", said("one"))
        # Its log is written twice more: when the cell is cut, and when the episode is there.
        happens(faults, lambda call: call.key.endswith("sessions/s1.jsonl") and bool(kit.notes()), die)
        with pytest.raises(Death):
            kit.flush()

        later = model_kit(tmp_path, model)
        assert later.capture.recover() == 1
        assert len(model.requests) == 1
        assert len(list(later.episodes())) == 1


def test_reextracting_with_a_model_replaces_the_plain_text(tmp_path):
    """A better writer later: the same entry, told anew."""
    plain = World(tmp_path)
    plain.add("s1", said("I adopted a cat."))
    plain.flush()
    [(_, before)] = plain.episodes()

    with FakeModel() as model:
        kit = model_kit(tmp_path, model)
        assert kit.capture.reextract(SPACE, session="s1") == 1
    [(_, after)] = kit.episodes()
    assert after.id == before.id
    assert (before.inline["writer"], after.inline["writer"]) == ("deterministic", "model:fake")


def test_a_huge_cell_is_clipped_for_the_prompt_only(tmp_path):
    """A megabyte is not sent to the model whole; the log keeps it all."""
    with FakeModel() as model:
        kit = model_kit(tmp_path, model)
        kit.add("s1", said("start " + "x" * 1_000_000 + " end"))
        kit.flush()

        prompt = model.requests[0]["messages"][1]["content"]
    assert len(prompt) < 310_000
    assert "characters left out" in prompt
    assert len(kit.log().messages[0].text) > 1_000_000
