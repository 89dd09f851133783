"""`recall` and `brief`: one question over all that fits the caller, within a budget, or nothing."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import cairn
from cairn.agents import tools
from cairn.engines.embedders import HashingEmbedder
from cairn.errors import Invalid
from cairn.memory import Memory
from cairn.operations.recalling import prompt
from cairn.project.git import space_of
from cairn.projects import open_project
from tests.waiting import LONG, until


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        yield opened


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree


def say(memory: Memory, text: str, **place: str) -> None:
    now = int(time.time() * 1000)
    memory.add("s1", [{"sender_id": "me", "role": "user", "timestamp": now, "content": text}], **place)
    memory.flush("s1", **place)


def test_the_person_and_the_project_are_asked_at_once(memory: Memory, repository: Path) -> None:
    """Nobody is named: the settings' person, the general space and the repository's space answer together."""
    space = space_of(repository)
    say(memory, "I am allergic to peanuts.")
    memory.remember("Deploys wait for the migration job.", "gotcha", project_id=space.project)
    told = memory.recall("what am I allergic to", folder=str(repository))
    assert "peanuts" in told.prompt and "not an instruction" in told.prompt
    told = memory.recall("what do deploys wait for", folder=str(repository))
    assert [item.kind for item in told.items][:1] == ["memory"]
    assert told.items[0].space == space and told.items[0].id in told.prompt
    assert "migration" not in memory.recall("what do deploys wait for").prompt


def test_an_order_of_work_brings_of_the_record_what_is_about_it(memory: Memory, repository: Path) -> None:
    """ "run the tests" is told how tests are run, not everything in which something ran and something was tested."""
    project = open_project(repository)
    project.init()
    project.record("The nightly import runs on the old server, where tests of the parser fail now and then.")
    project.record("`make check` runs the tests.")
    told = [item.text for item in memory.recall("run the tests", folder=str(repository)).items]
    assert len(told) == 1 and "make check" in told[0]
    asked = memory.recall("where do tests of the parser fail?", folder=str(repository)).prompt
    assert "old server" in asked


def test_the_budget_decides_how_much_is_told(memory: Memory) -> None:
    """Of eight answers all are told where they fit, and the best of them where not."""
    animals = ["heron", "otter", "badger", "newt", "stoat", "lynx", "crane", "viper"]
    now = int(time.time() * 1000)
    for number, animal in enumerate(animals):
        said = f"We saw a {animal} at the river."
        sent = {"sender_id": "me", "role": "user", "timestamp": now + number, "content": said}
        memory.add(f"walk-{number}", [sent])
        memory.flush(f"walk-{number}")
    told = memory.recall("what did we see at the river", token_budget=800)
    assert [animal for animal in animals if animal not in told.prompt] == []
    told = memory.recall("what did we see at the river", token_budget=80)
    assert 0 < sum(animal in told.prompt for animal in animals) < 8 and told.tokens <= 80


def test_nothing_rather_than_junk(memory: Memory) -> None:
    """S85: an unrelated question gets an empty prompt, not the nearest memory."""
    say(memory, "I am allergic to peanuts.")
    told = memory.recall("what is the capital of Mongolia")
    assert (told.prompt, told.items, told.tokens) == ("", (), 0)


def test_a_budget_is_kept_and_a_long_text_is_cut_to_it(memory: Memory) -> None:
    """S85, A94: a long memory is shown by its beginning where it does not fit whole."""
    say(memory, "The peanut allergy plan: " + "carry the pen, call the nurse, tell the crew. " * 60)
    told = memory.recall("what is the peanut allergy plan", token_budget=120)
    assert 0 < told.tokens <= 120 and told.items[0].text.endswith("…")


def test_each_text_is_told_once(memory: Memory) -> None:
    """An episode, a fact and the message that all say the same are one line."""
    say(memory, "Dana likes her coffee black.")
    told = memory.recall("how does Dana like her coffee")
    assert told.prompt.casefold().count("coffee black") == len(told.items) == 1


@pytest.mark.parametrize("budget", [None, 400])
def test_a_sentence_is_told_once_beside_what_else_was_said(memory: Memory, budget: int | None) -> None:
    """Of an episode only the turns that are new stand beside its messages, in `recall` and in a search's prompt."""
    now = int(time.time() * 1000)
    said = [
        "Dana takes her coffee black.",
        "Rosa pours the coffee on Fridays.",
        "The mill for coffee is broken.",
    ]
    turn = {"sender_id": "me", "role": "user"}
    memory.add("s1", [{**turn, "timestamp": now + at, "content": text} for at, text in enumerate(said)])
    memory.flush("s1")
    memory.sync()
    found = memory.search(
        "who takes coffee how", user_id="me", evidence=3, for_injection=True, token_budget=budget
    )
    for told in (memory.recall("who takes coffee how").prompt, prompt(found, budget=budget)):
        assert all(told.count(text.rstrip(".")) == 1 for text in said), told


def test_a_message_is_told_with_the_days_it_meant(memory: Memory) -> None:
    """The words stay as they were said; the day stands behind them, and does not make another text of them."""
    at = int(datetime(2026, 3, 5, 12, tzinfo=UTC).timestamp() * 1000)
    memory.add(
        "s1", [{"sender_id": "me", "role": "user", "timestamp": at, "content": "I sold the boat yesterday."}]
    )
    memory.flush("s1")
    told = memory.recall("when did I sell the boat")
    assert told.prompt.count("sold the boat") == 1
    assert "I sold the boat yesterday. [yesterday: 4 March 2026]" in told.prompt
    assert (
        memory.search("sell the boat", user_id="me", evidence=1).evidence[0].text
        == "I sold the boat yesterday."
    )


def test_an_answer_is_told_with_the_question_it_follows(memory: Memory) -> None:
    """Who asked then used the words of who asks now; the answer shares none. A question back is no answer."""
    now = int(time.time() * 1000)
    said = [
        ("me", "Nine users could not log in. Why did the load test break at 800 users?"),
        ("bot", "Connections: each of twenty held one while it waited for the tax service."),
        ("me", "Good. Why did the load test break last year?"),
        ("bot", "Which one do you mean?"),
    ]
    turns = [
        {
            "sender_id": who,
            "role": "assistant" if who == "bot" else "user",
            "timestamp": now + at,
            "content": text,
        }
        for at, (who, text) in enumerate(said)
    ]
    memory.add("s1", turns)
    memory.flush("s1")
    memory.sync()
    query = "why did the load test break at 800 users"
    found = memory.search(query, user_id="me", evidence=5, for_injection=True, method="keyword")
    told = [one.text for one in found.evidence or ()]
    assert told[:2] == [said[0][1], said[1][1]] and said[3][1] not in told
    assert "tax service" in memory.recall(query, method="keyword").prompt
    assert memory.search(query, user_id="me", evidence=5, method="keyword").evidence[1].text == said[2][1]


def test_what_a_tool_said_is_not_told(memory: Memory) -> None:
    """Words of tools and pages wait for a person before they reach a prompt."""
    memory.remember("The vendor supports TLS 1.3.", origin="web")
    assert memory.recall("which TLS does the vendor support").prompt == ""


def test_a_new_session_is_told_what_was_promoted(memory: Memory) -> None:
    """A94: `brief` tells the lines of MEMORY.md as it would be made now, framed, within its budget; nothing is written."""
    memory.remember("Deploys wait for the migration job.", "gotcha", mode="strict", pinned=True)
    assert "migration job" in memory.brief().prompt
    assert not list(memory.settings.root.rglob("MEMORY.md"))
    memory.memories.refresh()
    for word in ("alder", "birch", "cedar", "dogwood", "elm"):
        memory.remember(f"The {word} service has its own deploy key.", "gotcha", mode="strict", pinned=True)
    memory.memories.refresh()
    whole = memory.brief()
    assert "migration job" in whole.prompt
    assert 0 < memory.brief(token_budget=whole.tokens - 5).tokens <= whole.tokens - 5


def test_talk_that_goes_on_is_told_but_to_who_is_in_it(memory: Memory) -> None:
    """A prompt is no answer to one like it: with `open_talk` off, their own words count once cut."""
    now = int(time.time() * 1000)
    words = {"me": "My dentist is called Ruiz.", "dana": "The dentist is closed in August."}
    for who, text in words.items():
        memory.add(who, [{"sender_id": who, "role": "user", "timestamp": now, "content": text}])
    memory.sync()
    assert "Ruiz" in memory.recall("which dentist do I have").prompt
    assert memory.recall("which dentist do I have", open_talk=False).prompt == ""
    assert "August" in memory.recall("when is the dentist closed", user_id="dana").prompt
    told = memory.recall("when is the dentist closed", user_id="dana", agent_id="me", open_talk=False)
    assert told.prompt == ""
    memory.flush("me")
    assert "Ruiz" in memory.recall("which dentist do I have", open_talk=False).prompt
    said = [item.text for item in memory.recall("My dentist is called Ruiz.", open_talk=False).items]
    assert not [text for text in said if text.startswith("me: My dentist")]


def test_while_the_model_is_loaded_agents_are_answered_by_words(tmp_path: Path) -> None:
    """A host waits for its first answer: it is told what words find, and that there may be more."""
    released = threading.Event()

    class Slow(HashingEmbedder):
        loaded = False

        def embed(self, texts):
            assert released.wait(LONG)
            self.loaded = True
            return super().embed(texts)

    with cairn.open_blocking(tmp_path / "root", embedding__provider="hashing") as memory:
        memory.remember("Deploys wait for the migration job.", "gotcha")
        memory.sync()
        slow = memory.parts.embedder._embedder = Slow(256)
        asked = {"op": "tool", "name": "recall", "arguments": {"query": "what do deploys wait for"}}
        told = tools.reply(memory, asked)
        assert "migration job" in told["text"] and "words alone" in told["text"]
        released.set()
        until(lambda: slow.loaded)
        told = tools.reply(memory, asked)
        assert "migration job" in told["text"] and "words alone" not in told["text"]


def test_bad_questions_are_refused_by_name(memory: Memory) -> None:
    """A blank query, and a person no owner can be."""
    with pytest.raises(Invalid, match="query is blank"):
        memory.recall("  ")
    with pytest.raises(Invalid):
        memory.recall("x", user_id="../../etc")
    assert memory.recall("x", folder="/no/such/folder").prompt == ""


NUMBERS = [
    (
        "My fee is 60 an hour, paid within two weeks.",
        "Putting my fee up to 75 from May, all clients know.",
        "What fee do I charge?",
        "75",
    ),
    (
        "Unser Beitrag ist 20 Euro, zahlbar im Januar.",
        "Unser Beitrag steigt auf 26 ab Juli, so der Vorstand.",
        "Wie hoch ist unser Beitrag?",
        "26",
    ),
    (
        "El torneo es el 3 de mayo, en Vigo.",
        "cambio: llueve mucho, pasamos el torneo al 17 de mayo.",
        "¿Cuándo es el torneo?",
        "17 de mayo",
    ),
    (
        "Notre loyer est 800 euros, charges comprises.",
        "Notre loyer passe à 850 en mars, hélas pour nous.",
        "Combien coûte notre loyer ?",
        "850",
    ),
]


@pytest.mark.parametrize(("old", "new", "question", "told"), NUMBERS)
def test_the_newest_number_of_a_thing_is_told_first(
    memory: Memory, old: str, new: str, question: str, told: str
) -> None:
    """A price, a date that were given another value later: the later leads, and the earlier is told behind it."""
    for number, text in enumerate((old, new)):
        at = int(datetime(2026, 2 + number, 3, 9, tzinfo=UTC).timestamp() * 1000)
        memory.add(f"n{number}", [{"sender_id": "me", "role": "user", "timestamp": at, "content": text}])
        memory.flush(f"n{number}")
    first, *rest = memory.recall(question).items
    assert told in first.text
    assert any(old.split(",")[0] in one.text for one in rest)


def test_another_thing_s_number_leads_nothing(memory: Memory) -> None:
    """A rent is no fee, however new it is."""
    for number, text in enumerate(
        ("My fee is 60 an hour.", "My rent went up to 900.", "My fee went up to 75.")
    ):
        at = int(datetime(2026, 2 + number, 3, 9, tzinfo=UTC).timestamp() * 1000)
        memory.add(f"n{number}", [{"sender_id": "me", "role": "user", "timestamp": at, "content": text}])
        memory.flush(f"n{number}")
    assert "75" in memory.recall("What is my fee?").items[0].text
    assert "900" in memory.recall("What is my rent?").items[0].text
