"""What is so since a change, and what tells nothing (`said_since.toml`), in seven languages."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cairn.language.sentences import split
from cairn.language.traits import matter_of, replaces, told_of
from cairn.strategies import profile
from cairn.strategies.statements import Statement, statements_of
from cairn.types import Message

SAID = tomllib.loads(Path(__file__).with_name("said_since.toml").read_text("utf-8"))
AT = int(datetime(2026, 3, 4, 10, 0, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000


def told(text: str, *, to_agent: bool = True, day: int = 0) -> list[Statement]:
    """What one message gives, said to an agent or to a friend."""
    at = AT + day * DAY
    other = Message("b", "assistant" if to_agent else "user", at + 1, "Ok.", "Bo", id=f"b{day}")
    talk = [Message("p", "user", at, text, "P", id=f"m{day}"), other]
    return [one for one in statements_of(talk, UTC) if one.speaker_id == "p"]


def each(name: str) -> list[list[str]]:
    return [pair for pairs in SAID[name].values() for pair in pairs]


def is_over(earlier: str, later: str) -> bool:
    """Whether a fact made of the later words marks the one made of the earlier."""
    (one, *_), new = told(earlier), told(later, day=40)
    matter = matter_of(one.text)
    return matter is not None and any(
        replaces(said, matter[1]) for fact in new for said in told_of(fact.text)
    )


def items(earlier: str, later: str) -> list[dict]:
    """The profile after both were said."""
    first, _ = profile.merged([], profile.claims_of(told(earlier), "p"))
    return profile.merged(first, profile.claims_of(told(later, day=40), "p"))[0]


@pytest.mark.parametrize(("earlier", "later"), each("changes"))
def test_a_change_is_seen_behind_what_is_told_before_it(earlier: str, later: str):
    """The earlier fact is marked, and the profile never gives it as current."""
    assert is_over(earlier, later)
    assert not [
        one for one in items(earlier, later) if "until" not in one and one["first_stated"] < "2026-04"
    ]


@pytest.mark.parametrize(("earlier", "later"), each("besides"))
def test_what_merely_looks_like_a_change_ends_nothing(earlier: str, later: str):
    """Another person's move, a sibling more, another meeting, a denial of something else."""
    assert not is_over(earlier, later)
    assert not [one for one in items(earlier, later) if "until" in one]


@pytest.mark.parametrize(("earlier", "later"), each("facts"))
def test_a_fact_is_over_though_no_profile_holds_it(earlier: str, later: str):
    """A number, a price, a doctor, a gym, a car."""
    assert is_over(earlier, later)


@pytest.mark.parametrize("text", each("chatter"))
def test_chatter_is_no_fact(text: str):
    """Exclamations and courtesies with "my" and "I" in them."""
    assert told(text, to_agent=False) == []


@pytest.mark.parametrize("text", each("kept"))
def test_what_is_worth_keeping_is_kept_whoever_it_is_about(text: str):
    """Somebody's food and health, who looks after what, what was decided, how things must be: in the words as said."""
    assert [one.text for one in told(text)] == [f"P: {text}"]


@pytest.mark.parametrize("text", each("passing"))
def test_what_only_looks_like_it_is_not(text: str):
    """Of nothing in particular, or said for the moment."""
    assert told(text) == []


@pytest.mark.parametrize("text", each("unbound"))
def test_a_figure_a_comfort_and_a_supposition_order_nothing(text: str):
    """None is an instruction in the profile, nor a preference or a habit; nor is what is announced, or told by others."""
    assert not [one.category for one in profile.claims_of(told(text), "p")]


@pytest.mark.parametrize("text", each("bound"))
def test_an_order_and_a_taste_are_known_beside_announcements(text: str):
    """It is about the manner of answers, told to the listener, or the speaker's own."""
    assert [one.category for one in profile.claims_of(told(text), "p")]


def test_what_was_done_lately_is_a_fact_with_its_day():
    """The speaker's own, told to an agent; what points at nothing of theirs is none."""
    (done,) = told("I handed in my dissertation twelve days ago.")
    assert done.text == "P: I handed in my dissertation twelve days ago (20 February 2026)."
    (stopped,) = told("J'ai arrêté de courir il y a trois semaines.")
    assert stopped.text == "P: J'ai arrêté de courir il y a trois semaines (9-15 February 2026)."
    assert told("I saw it three days ago.") == told("We laughed a lot yesterday.") == []


def test_a_day_and_a_month_in_figures_end_no_sentence():
    """Before a small letter the second dot is the date's; before a capital it may be the sentence's."""
    assert split("Ich habe am 28.09. die Stelle zugesagt. Danach war ich müde.")[0].endswith("zugesagt.")
    assert split("Wir treffen uns am 3.10. Danach essen wir.") == [
        "Wir treffen uns am 3.10.",
        "Danach essen wir.",
    ]


def test_an_answer_to_an_agent_is_no_order():
    """What trip it is to be was asked, and the figure answers it."""
    asked = Message("a", "assistant", AT, "What is your budget and what do you enjoy?", id="m1")
    given = Message(
        "p", "user", AT + 1, "Around 7,000 euros including flights. We love gardens.", "P", id="m2"
    )
    found = profile.claims_of(statements_of([asked, given], UTC), "p")
    assert all(one.category == "Preference" and "euros" not in one.description for one in found)


@pytest.mark.parametrize(
    "pasted",
    [
        "Here's the chat log: [10:02] Ben: I prefer Vim. [10:03] Ana: I live in Rome!",
        "What do you make of this?\n10:02 Ben: I prefer Vim.\n10:03 Ana: I'm allergic to nuts.",
        "Summarise please:\nBen: I prefer Vim.\nAna: I live in Rome.\nBen: I hate mornings.",
        "[12.05.26, 09:14:02] Ben Ohm: I moved to Kiel.",
    ],
)
def test_a_pasted_chat_is_nobodys_word(pasted: str):
    """Neither a fact nor a taste of whoever pasted it."""
    assert not [
        one
        for one in told(pasted)
        if any(name in one.text for name in ("Vim", "Rome", "nuts", "Kiel", "mornings"))
    ]


def test_what_is_played_is_not_so():
    """Behind the wish to play a part nothing is taken as said in earnest; before it all is."""
    text = "I'm allergic to nuts. Can you role-play as a waiter? I'd like my steak rare. I live in Rome."
    assert [one.text for one in told(text)] == ["P: I'm allergic to nuts."]


def test_labels_of_ones_own_are_no_chat():
    """Lines that each name something else are the writer's own."""
    text = "Diet: I'm vegetarian.\nWork: I work at Halden Marine."
    assert len(told(text)) == 2


def test_a_number_before_a_stop_ends_a_sentence_where_ordinals_are_written_otherwise():
    """ "from 7." ends an English sentence, though a small letter follows; "am 7. mai" is one in German."""
    assert len(split("We meet on 27 June, from 7. you should come.")) == 2
    assert len(split("Wir treffen uns am 7. mai im Park.")) == 1


def test_what_an_assistant_reports_with_figures_is_kept():
    """What was changed in which commit, and what came of it; not what may be done."""
    said = "The timeout was cut from 60 to 5 seconds in commit 9ab12cd. Memory went from 2.1 GB to 400 MB after that."
    found = statements_of([Message("a", "assistant", AT, said, "Bot", id="m1")], UTC)
    assert ["9ab12cd" in found[0].text, "400 MB" in found[-1].text] == [True, True]
    assert not statements_of(
        [Message("a", "assistant", AT, "Memory could be cut by streaming the parts.", "Bot", id="m2")], UTC
    )
