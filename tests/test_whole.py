"""Questions for everything: told by their time and by summaries, through every surface; small talk stays silent."""

from datetime import UTC, datetime, timedelta

import pytest

import cairn
from cairn.agents import tools
from cairn.language import asking, tongues
from cairn.retrieval.fitting import asks_nothing
from cairn.seams import SystemClock
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here

# For each language what asks for all talk, for one time, for the last talk, and for what is known of who asks.
ASKED = {
    "en": ("What did we talk about?", "What did we talk about yesterday?", "Summarise our last meeting, please", "What have I told you so far?"),
    "de": ("Worüber haben wir gesprochen?", "Was haben wir gestern besprochen?", "Fass unser letztes Gespräch zusammen", "Was weißt du über mich?"),
    "es": ("¿De qué hablamos?", "¿De qué hablamos ayer?", "Resume nuestra última conversación", "¿Qué sabes de mí?"),
    "fr": ("De quoi avons-nous parlé ?", "De quoi a-t-on parlé hier ?", "Résume notre dernière conversation", "Que sais-tu de moi ?"),
    "ja": ("私たちは何について話しましたか？", "昨日何を話しましたか？", "前回は何を話しましたか？", "私について何を知っていますか？"),
    "ru": ("О чём мы говорили?", "О чём мы говорили вчера?", "О чём мы говорили в прошлый раз?", "Что ты знаешь обо мне?"),
    "zh": ("我们聊了什么？", "我们昨天聊了什么？", "我们上次聊了些什么？", "你都知道关于我的哪些事？"),
}  # fmt: skip
MORE = [
    "what was the general discussion of the meeting?", "Catch me up", "Can you bring me up to speed?", "What happened last week?",
    "What did I do yesterday?", "Summarize what you know about me", "what have we been talking about lately?", "What did I miss?",
    "Give me a short summary of our conversation so far", "Bring mich auf den neuesten Stand", "Was ist letzte Woche passiert?",
    "Mets-moi au courant", "Ponme al día", "¿Qué pasó la semana pasada?", "Введи меня в курс дела", "上周发生了什么？", "先週何がありましたか？",
]  # fmt: skip
OTHERS = [
    "Summarise the French revolution", "What happened?", "What's up?", "hello", "What did you recommend?", "What did Ann cook?",
    "Summarize this text", "where were we", "Can you say that again?", "What do you know about Rust?", "What did I say about Ann?",
    "What did we discuss about the budget?", "Do you need anything today?", "How was the weather yesterday?", "what do you think?",
    "Was hast du gekocht?", "Qu'est-ce que tu penses ?", "Что ты думаешь?", "你觉得呢？", "どう思いますか？",
]  # fmt: skip


def test_every_language_has_them():
    assert set(ASKED) == set(tongues.known())


@pytest.mark.parametrize("language", ASKED)
def test_questions_for_everything_are_known_by_the_words_of_their_language(language):
    for number, text in enumerate(ASKED[language]):
        read = asking.read(text).whole
        assert read is not None, text
        assert read.kind == ("person" if number == 3 else "talk"), text
        assert read.is_latest == (number == 2), text


@pytest.mark.parametrize("text", MORE)
def test_in_other_words(text):
    assert asking.read(text).whole is not None


@pytest.mark.parametrize("text", OTHERS)
def test_what_asks_for_something_or_nothing_is_none(text):
    assert asking.read(text).whole is None


def test_before_a_matter_the_frame_counts_for_nothing():
    """ "What did the team discuss about the boat?" asks for the boat."""
    read = asking.read("What did the team discuss about the new boat?")
    assert asking.read_whole("What did the team discuss about the new boat?").matter == {"boat"}
    assert "boat" not in read.stand_ins and {"team", "discuss"} <= read.stand_ins


NOW = datetime(2026, 11, 18, 14, 53, 7, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _at_that_time(monkeypatch):
    """What is said and what is asked lie on the same days, also where midnight passes while the tests run."""
    monkeypatch.setattr(SystemClock, "now", lambda _self: NOW)


def said(text, days=0, sender="ana", name="Ana", role="user"):
    at = int((NOW - timedelta(days=days)).timestamp() * 1000)
    return {"sender_id": sender, "sender_name": name, "role": role, "timestamp": at, "content": text}


def fill(memory):
    memory.add("one", [said("I moved to Lisbon for the harbour job.", 40)])
    memory.add("two", [said("The boiler was repaired for 300 euros.", 20)])
    memory.add(
        "three", [said("Ben and I chose oak for the kitchen.", 3), said("Oak it is.", 3, "ben", "Ben")]
    )
    for session in ("one", "two", "three"):
        memory.flush(session)


OPTIONS = {"embedding__provider": "hashing", "background": False}


def test_the_newest_first_or_what_lies_in_the_time_that_is_named(tmp_path):
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        fill(memory)
        asked = {"user_id": "ana", "consistency": "strong", "for_injection": True, "evidence": 3}
        found = memory.search("What did we talk about?", **asked)
        assert [hit.session_id for hit in found.episodes] == ["three", "two", "one"]
        assert found.evidence == () and "3 episodes" in found.whole and "newest first" in found.whole
        day = (NOW - timedelta(days=20)).date()
        found = memory.search(f"What did we talk about on {day:%d %B %Y}?", **asked)
        assert [hit.session_id for hit in found.episodes] == ["two"] and day.isoformat() in found.whole
        found = memory.search("Summarise our last session", **asked)
        assert [hit.session_id for hit in found.episodes] == ["three"] and "latest session" in found.whole
        found = memory.search("What did Ben and I talk about?", **asked)
        assert [hit.session_id for hit in found.episodes] == ["three"], "of those he took part in"
        assert not memory.search("What did Zoe and I talk about?", **asked).whole, (
            "nobody of that name spoke here"
        )
        found = memory.search("What did we talk about yesterday?", **asked)
        assert not found.episodes and found.whole == f"Nothing is kept of {(NOW - timedelta(days=1)).date()}."
        assert memory.recall("What did we talk about yesterday?", user_id="ana").prompt == ""
        memory.remember("Deploys wait for the tide table.")  # the project's memory is asked, too
        told = memory.recall(f"What did we talk about on {day:%d %B %Y}?", user_id="ana")
        assert "boiler" in told.prompt and "Nothing is kept" not in told.prompt, (
            "where one of several memories does"
        )
        for small in ("thanks a lot", "hello again", "what do you think?"):
            assert asks_nothing(small) and not memory.recall(small, user_id="ana").prompt


def test_of_a_person_the_profile_and_what_was_kept_come_first(tmp_path):
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        fill(memory)
        memory.add("four", [said("I live in Porto. Please always answer in French.", 1)])
        memory.flush("four")
        memory.trigger("extract_user_profile")
        memory.remember("Deploys wait for the tide table.")
        memory.remember("Ana takes her tea black.", scope="user", owner="ana")
        told = memory.recall("What do you know about me?", user_id="ana")
        kinds = [item.kind for item in told.items]
        assert kinds[0] == "profile" and "Porto" in told.items[0].text and "<!--" not in told.prompt
        assert kinds.index("memory") < kinds.index("episode") and kinds.count("memory") == 2
        short = memory.search(
            "What do you know about me?",
            user_id="ana",
            token_budget=60,
            for_injection=True,
            consistency="strong",
        )
        assert short.profiles, "a long profile is shortened, not left out"


def test_what_is_not_cut_yet_is_told_beside_the_episodes(tmp_path):
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        fill(memory)
        memory.add("five", [said("The ferry leaves at noon."), said("I have the tickets.")])
        told = memory.recall("What did we talk about today?", user_id="ana")
        assert "ferry" in told.prompt and "boiler" not in told.prompt
        quiet = memory.recall("What did we talk about today?", user_id="ana", open_talk=False)
        assert "ferry" not in quiet.prompt, "an agent has its own session before it"
        assert not memory.recall("What did we talk about?", user_id="zoe").prompt


def test_every_surface_tells_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "hashing")
    question = "What did we talk about?"
    with cairn.open_blocking(tmp_path, memory__person="ana", **OPTIONS) as memory:
        fill(memory)
        prompt = memory.recall(question, user_id="ana").prompt
        call = {"op": "tool", "name": "recall", "arguments": {"query": question}}
        assert prompt in tools.reply(memory, call)["text"]
    assert "Asked for everything: 3 episodes" in prompt and "boiler" in prompt
    assert main(["--root", str(tmp_path), "recall", question, "--user", "ana"]) == 0
    assert prompt in capsys.readouterr().out
    assert main(["--root", str(tmp_path), "search", question, "--user", "ana"]) == 0
    assert "Asked for everything: 3 episodes" in capsys.readouterr().out
    about = "What do you know about me?"
    assert main(["--root", str(tmp_path), "search", about, "--user", "ana"]) == 0
    shown = capsys.readouterr().out
    assert "profile of ana" in shown
    assert "<!--" not in shown
    with serving_here(tmp_path, env={"CAIRN_EMBEDDING__PROVIDER": "hashing"}) as server:
        assert server.post("recall", {"query": question, "user_id": "ana"})[1]["data"]["prompt"] == prompt
        asked = {"query": question, "user_id": "ana", "for_injection": True, "token_budget": 800}
        data = server.post("memory/search", asked)[1]["data"]
        assert data["whole"] in data["prompt"] and len(data["episodes"]) == 3


def test_what_happened_on_a_day_may_have_been_told_later(tmp_path):
    """Nothing was said on the day itself: it is looked for like anything else, and what is found is told."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        day = NOW - timedelta(days=6)
        memory.add("late", [said(f"On {day:%d %B} I carved pumpkins in Kassel.", 3)])
        memory.flush("late")
        told = memory.recall(f"What did I do on {day:%d %B}?", user_id="ana")
        assert "pumpkins" in told.prompt
        quiet = memory.search(
            f"What did I do on {NOW - timedelta(days=400):%d %B %Y}?", user_id="ana", method="keyword"
        )
        assert not quiet.episodes and quiet.whole.startswith("Nothing is kept of ")


@pytest.mark.parametrize("asked", ["14 May 2024", "12 March 2024"])
def test_a_number_alone_tells_of_no_day(tmp_path, asked):
    """Neither the hour of a message ("14:53") nor the day of another month is what was done on the day asked for."""
    with cairn.open_blocking(tmp_path, **OPTIONS) as memory:
        at = datetime(2026, 11, 15, 14, 53, tzinfo=UTC)
        words = "On 12 November I carved pumpkins in Kassel."
        memory.add("late", [{"sender_id": "ana", "role": "user", "timestamp": at, "content": words}])
        memory.flush("late")
        found = memory.search(f"What did I do on {asked}?", user_id="ana", method="keyword", evidence=3)
        assert not found.episodes and not found.evidence
        assert found.whole.startswith("Nothing is kept of 2024-")
        assert memory.search("What did I do on 12 November?", user_id="ana", method="keyword").episodes
