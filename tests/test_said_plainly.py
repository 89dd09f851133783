"""Plain sentences in seven languages (`said_plainly.toml`): wishes, requests, statements, what is not so, and changes."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cairn import BlockingMemory, config
from cairn.language import tongues, traits, wishes
from cairn.notes.format import parse_note
from cairn.strategies import profile
from cairn.strategies.statements import Statement, statements_of
from cairn.types import Message
from tests.waiting import LONG

SAID = tomllib.loads(Path(__file__).with_name("said_plainly.toml").read_text("utf-8"))
STANDING = tomllib.loads(Path(__file__).with_name("said_standing.toml").read_text("utf-8"))
BY_FORM = tomllib.loads(Path(__file__).with_name("said_by_form.toml").read_text("utf-8"))
OF_ONESELF = tomllib.loads(Path(__file__).with_name("said_of_oneself.toml").read_text("utf-8"))
IN_ANSWER = tomllib.loads(Path(__file__).with_name("said_in_answer.toml").read_text("utf-8"))
AT = datetime(2026, 4, 22, 9, 30, tzinfo=UTC)


def told(text: str, *, to_agent: bool = True, day: int = 0) -> tuple[list[Statement], list[profile.Claim]]:
    """What one sentence gives, said to an agent or to a friend."""
    at = int((AT + timedelta(days=day)).timestamp() * 1000)
    other = Message("b", "assistant" if to_agent else "user", at + 1, "Ok.", "Bo", id="m2")
    talk = [Message("p", "user", at, text, "P", id=f"m{day}"), other]
    said = [one for one in statements_of(talk, UTC) if one.speaker_id == "p"]
    return said, profile.claims_of(said, "p")


def each(name: str) -> list[str]:
    return [text for texts in SAID[name].values() for text in texts]


@pytest.mark.parametrize("text", each("wishes"))
def test_a_wish_stands_in_the_profile(text: str):
    """Orders that stand and tastes, in their own words."""
    assert any(claim.evidence.rstrip(".。") in text for claim in told(text)[1])


@pytest.mark.parametrize("text", each("once"))
def test_what_is_asked_once_is_no_order(text: str):
    """A task, or what somebody else always does, binds nobody."""
    assert not [one for one in told(text)[1] if one.category == traits.INSTRUCTION]


@pytest.mark.parametrize("language", STANDING["wishes"])
def test_orders_and_tastes_in_everyday_wordings(language: str):
    """Nineteen of twenty reach the profile, and nothing that binds nobody does."""
    wishes, others = (STANDING[name][language] for name in ("wishes", "others"))
    missed = [text for text in wishes if not told(text)[1]]
    taken = [
        text
        for text in others
        if any(one.category in {traits.INSTRUCTION, "Preference"} for one in told(text)[1])
    ]
    assert not taken
    assert len(missed) <= len(wishes) / 20, missed


@pytest.mark.parametrize("language", BY_FORM["wishes"])
def test_orders_and_tastes_are_known_by_their_form(language: str):
    """What lasts or is about the manner of answers stands; a piece of work, a part of a text, a statement does not."""
    missed = [text for text in BY_FORM["wishes"][language] if not told(text)[1]]
    taken = [
        text
        for text in BY_FORM["others"][language]
        if any(one.category in {traits.INSTRUCTION, "Preference"} for one in told(text)[1])
    ]
    assert (missed, taken) == ([], [])


@pytest.mark.parametrize(
    "text", ["Enough with the disclaimers.", "Schluss mit den Floskeln.", "Basta de halagos."]
)
def test_an_order_among_people_is_not_told_by_its_form(text: str):
    """Only an agent is there to be told how to answer."""
    assert told(text, to_agent=True)[1]
    assert not told(text, to_agent=False)[1]


@pytest.mark.timeout(LONG)
def test_a_sentence_of_one_word_over_and_over_is_read_in_time():
    """No class of words takes much longer than the sentence is long, in whatever language it is read."""
    for said in ("not ", "ich bin ", "je ne ", "no soy muy ", "когда ", "请用", "when you ", "a "):
        for tongue in tongues.known().values():
            assert not wishes.ordered((said * 300)[:300] + "?", tongue)
            assert wishes.felt((said * 300)[:300] + "?", tongue) is None


def test_an_order_reaches_the_profile_and_a_task_does_not(tmp_path: Path):
    """Through the public surface, in one message each."""
    said = (
        "Go easy on the exclamation points.",
        "Format the dates in column B as ISO.",
        "Golf leaves me cold.",
    )
    with BlockingMemory(config.load(tmp_path, environ={}), background=False) as memory:
        for number, text in enumerate(said):
            at = int((AT + timedelta(days=number)).timestamp() * 1000)
            words = {
                "sender_id": "ann",
                "sender_name": "Ann",
                "role": "user",
                "timestamp": at,
                "content": text,
            }
            reply = {"sender_id": "bot", "role": "assistant", "timestamp": at + 1, "content": "Ok."}
            memory.add(f"s{number}", [words, reply])
            memory.flush(f"s{number}")
        memory.trigger("extract_user_profile")
        page = next(tmp_path.rglob("users/ann/user.md")).read_text()
    assert said[0] in page
    assert said[2] in page
    assert "column B" not in page


@pytest.mark.parametrize(
    ("text", "halves"),
    [
        (
            "I'm dyslexic so please point out every spelling mistake.",
            ["I'm dyslexic", "please point out every spelling mistake"],
        ),
        ("I'm vegetarian, so please fix the recipe.", ["I'm vegetarian"]),
    ],
)
def test_an_order_beside_its_reason_reaches_the_profile_too(text: str, halves: list[str]):
    """Both halves of the sentence; a task asked for once stays out."""
    assert [claim.evidence for claim in told(text)[1]] == halves


@pytest.mark.parametrize("text", ["He told me: never skip breakfast.", "The sign says: always knock."])
def test_what_somebody_else_orders_is_no_order(text: str):
    """What a manual or a coach says to do binds nobody here."""
    assert not [one for one in told(text)[1] if one.category == traits.INSTRUCTION]


def answered(question: str, answer: str, role: str) -> list[str]:
    """The facts of an answer to what a friend or an agent asked."""
    at = int(AT.timestamp() * 1000)
    asked = Message("b", "user" if role == "user" else "assistant", at, question, "Bo", id="m1")
    said = statements_of([asked, Message("p", "user", at + 1, answer, "P", id="m2")], UTC)
    return [one.text for one in said if one.speaker_id == "p"]


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("language", IN_ANSWER["kept"])
def test_an_answer_without_a_subject_is_kept_with_its_question(language: str, role: str):
    """Both as they were said; small talk, what points back and what says nothing gives no fact."""
    kept = {q: answered(q, a, role) for q, a in IN_ANSWER["kept"][language]}
    wanted = {q: [f"Bo: {q} P: {a}"] for q, a in IN_ANSWER["kept"][language]}
    left = [made for q, a in IN_ANSWER["left"][language] if (made := answered(q, a, role))]
    assert (kept, left) == (wanted, [])


@pytest.mark.parametrize("to_agent", [True, False])
@pytest.mark.parametrize(("text", "word"), [tuple(one) for one in each("plain")])
def test_a_plain_statement_is_a_fact(text: str, word: str, to_agent: bool):
    """What a person says of themself is not lost, whoever hears it."""
    assert any(word in one.text for one in told(text, to_agent=to_agent)[0])


@pytest.mark.parametrize("to_agent", [True, False])
@pytest.mark.parametrize("language", OF_ONESELF["said"])
def test_a_short_sentence_about_oneself_is_a_fact(language: str, to_agent: bool):
    """Nineteen of twenty, however few their words are, and no passing state."""
    said = OF_ONESELF["said"][language]
    missed = [text for text in said if not told(text, to_agent=to_agent)[0]]
    taken = [text for text in OF_ONESELF["empty"].get(language, ()) if told(text, to_agent=to_agent)[0]]
    assert not taken
    assert len(missed) <= len(said) / 20, missed


@pytest.mark.parametrize("to_agent", [True, False])
@pytest.mark.parametrize("text", each("unreal"))
def test_what_is_not_so_is_not_written(text: str, to_agent: bool):
    """Questions, conditions, wishes, dreams, jokes and what others say of themselves."""
    assert told(text, to_agent=to_agent) == ([], [])


def ended(pair: list[str]) -> bool:
    (first, early), (second, late) = (told(text, day=day) for day, text in enumerate(pair))
    items, _ = profile.merged(profile.merged([], early)[0], late)
    facts = any(
        old is not None and traits.replaces(new, old[1])
        for old in (traits.matter_of(one.text) for one in first)
        for one in second
        for new in traits.told_of(one.text)
    )
    return facts or any("until" in item for item in items)


@pytest.mark.parametrize("pair", SAID["pairs"]["changes"])
def test_the_later_ends_the_earlier(pair: list[str]):
    """A move, another job, a change of mind, something given up."""
    assert ended(pair)


@pytest.mark.parametrize("pair", SAID["pairs"]["besides"])
def test_what_holds_at_once_is_not_ended(pair: list[str]):
    """Another's home, a second pet, a visit, what was before."""
    assert not ended(pair)


def test_a_change_told_beside_something_ends_the_earlier_fact(tmp_path: Path):
    """Through the public surface: both facts stay, and the earlier one carries "until" and what ended it."""
    with BlockingMemory(config.load(tmp_path, environ={}), background=False) as memory:
        for day, text in enumerate(("My manager is Petra.", "Petra left, my manager is Olaf now.")):
            at = int((AT + timedelta(days=day)).timestamp() * 1000)
            said = {
                "sender_id": "ann",
                "sender_name": "Ann",
                "role": "user",
                "timestamp": at,
                "content": text,
            }
            memory.add(f"s{day}", [said])
            memory.flush(f"s{day}")
        memory.trigger("extract_atomic_facts")
    facts = {
        entry.sections["Fact"]: entry.inline.get("until")
        for note in tmp_path.rglob("users/ann/.atomic_facts/*.md")
        for entry in parse_note(note.read_text()).entries
    }
    assert facts == {
        "Ann: My manager is Petra.": "2026-04-23",
        "Ann: Petra left, my manager is Olaf now.": None,
    }


def test_what_an_agent_did_for_whom_it_speaks_to_is_a_fact():
    """A report names its numbers; what is said about code shown below is none."""
    talk = [
        Message("p", "user", 1776850200000, "Could you raise the limit?", "P", id="m1"),
        Message(
            "a",
            "assistant",
            1776850201000,
            "I have raised your daily limit to 2,000 euros until 30 April. I have added 3 comments to your code below.",
            "Agent",
            id="m2",
        ),
    ]
    told_of_agent = [one.text for one in statements_of(talk, UTC)]
    assert told_of_agent == ["Agent: I have raised your daily limit to 2,000 euros until 30 April."]


def test_a_joke_owned_up_to_takes_back_what_was_said():
    """In the next sentence or the next message of the same person; what was said before that stays."""
    at = int(AT.timestamp() * 1000)
    said = ["My cousin Ines lives in Porto.", "I sold my house in Leeds for a goat.", "Just kidding!"]

    def kept(texts: list[str]) -> list[str]:
        talk = [Message("p", "user", at + n, text, "P", id=f"m{n}") for n, text in enumerate(texts)]
        return [one.sentence for one in statements_of(talk, UTC)]

    assert kept(said) == kept([" ".join(said)]) == ["My cousin Ines lives in Porto."]
    assert kept([*said[:2], "I'm not kidding."]) == [one.rstrip(".") + "." for one in said[:2]]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Vous avez fêté ça ?", "Oui, au restaurant, on était quinze."),
        ("几个人？", "一家三口，再加我爸。"),
        ("And the new job?", "Starts on the 4th of May."),
    ],
)
def test_half_an_answer_is_no_fact(question: str, answer: str):
    """What does not begin with whom it is about says nothing without its question."""
    at = int(AT.timestamp() * 1000)
    talk = [
        Message("a", "user", at, question, "A", id="m1"),
        Message("b", "user", at + 1, answer, "B", id="m2"),
    ]
    assert statements_of(talk, UTC) == []
