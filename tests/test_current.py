"""What is current: a later statement on the same matter ends the earlier one, and nothing else does."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cairn
from cairn.config import LlmSettings
from cairn.engines.spending import Spending
from cairn.engines.writers import OpenAIWriter
from cairn.language.near import particulars
from cairn.language.traits import Trait, only_trait, replaces, traits_of
from cairn.notes.format import parse_note
from cairn.notes.notebook import Draft
from cairn.operations.recalling import prompt
from cairn.retrieval.answers import as_said, shown
from cairn.seams import SystemClock
from cairn.types import Evidence, Hit, Scope, Space
from tests.fake_model import FakeModel
from tests.waiting import LONG
from tests.world import TALKED, World


def trait(text: str) -> Trait:
    return next(iter(traits_of(text, to_agent=True)))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in Lisbon.", "I live in Porto."),
        ("I live in Lisbon.", "Small update: I moved to Porto last month."),
        ("I live in Lisbon.", "Actually I moved again: since October I live in Porto."),
        ("I live in Lisbon.", "I left the old flat, and these days I live in Porto."),
        ("I live in Lisbon.", "I no longer live in Lisbon."),
        ("I work at Acme as a welder.", "I started working at Beta."),
        ("I work at Acme.", "I quit my job."),
        ("I work at Acme.", "I'm no longer at Acme."),
        ("My name is Ana Silva.", "I changed my name to Ana Costa."),
        ("I'm 34 years old.", "I'm 35 now."),
        ("I'm a teacher.", "I'm now a software engineer."),
        ("I'm vegetarian.", "I have started eating meat again."),
        ("I don't eat meat.", "I'm not vegetarian anymore."),
        ("I love coffee.", "I no longer like coffee."),
        ("I prefer tabs over spaces.", "I prefer spaces over tabs now."),
        ("My favorite color is red.", "My favorite color is blue."),
        ("I play tennis every week.", "I no longer play tennis."),
        ("I'm married.", "I got divorced in May."),
        ("Please always answer in French.", "From now on answer in English."),
        ("Keep your answers short.", "Please give me detailed answers."),
        ("Never use emojis.", "You can use emojis again."),
        ("Ich wohne in Leipzig.", "Inzwischen wohne ich in Bonn."),
        ("Ich arbeite bei Siemens.", "Ich arbeite nicht mehr bei Siemens."),
        ("Antworte bitte immer auf Deutsch.", "Bitte antworte ab jetzt auf Englisch."),
        ("J'habite à Lyon.", "J'habite maintenant à Paris."),
        ("J'aime le café.", "Je n'aime plus le café."),
        ("Vivo en Madrid.", "Ahora vivo en Sevilla."),
        ("Trabajo en Zara.", "Ya no trabajo en Zara."),
        ("Я живу в Риге.", "Я теперь живу в Москве."),
        ("Я люблю кофе.", "Я больше не люблю кофе."),
        ("我住在上海。", "我现在住在北京。"),
        ("请用英文回答。", "以后请用中文回答。"),
        ("東京に住んでいます。", "今は大阪に住んでいます。"),
        ("私は犬が好きです。", "私は犬が嫌いです。"),
    ],
)
def test_a_change_ends_what_it_changes(earlier: str, later: str):
    """Another value of the same attribute, or its end, in the languages there are files for."""
    assert replaces(trait(later), trait(earlier))
    assert not replaces(trait(earlier), trait(earlier))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I have a dog named Rex.", "I have a cat named Tom."),
        ("My son Ben is 5.", "My daughter Lea is 8."),
        ("I work at Acme.", "I also work at Beta on weekends."),
        ("I'm a nurse.", "I'm a photographer on the side."),
        ("I live in Lisbon.", "I live in an old house with a garden."),
        ("I live in Lisbon.", "I live in Lisbon near the castle."),
        ("I live in Lisbon.", "I'm from Ghana."),
        ("I love sushi.", "I hate mushrooms."),
        ("I love hiking.", "I really enjoy hiking with my dog."),
        ("Always use type hints.", "Never use emojis."),
        ("My favorite color is red.", "My favorite food is pizza."),
        ("I'm a teacher.", "I'm a terrible singer and a big reader."),
        ("I live in Lisbon.", "I no longer play tennis."),
        ("Ich arbeite bei Siemens.", "Ich arbeite nebenbei bei Aldi."),
        ("I live in Lisbon.", "I moved to PostgreSQL last week."),
        ("I live in Lisbon.", "We live in exciting times."),
        ("I work at Acme.", "I joined Anna for lunch."),
        ("I work at Acme.", "I'm joining Halden Marine in September."),
    ],
)
def test_other_matters_stay(earlier: str, later: str):
    """Two pets, two children, two jobs at once, the same said again: none ends another."""
    known = list(traits_of(earlier, to_agent=True))
    assert known
    assert not any(replaces(new, old) for new in traits_of(later, to_agent=True) for old in known)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ich habe am Montag mit Anna im Büro über den Plan gesprochen.", "Ich habe am Montag mit Anna im Büro nicht über den Plan gesprochen."),
        ("J'ai vu la maison de deux amis près du lac avec Anna hier soir.", "J'ai vu la maison de trois amis près du lac avec Anna hier soir."),
        ("Я был на работе с друзьями до вечера и видел там Анну.", "Я не был на работе с друзьями до вечера и видел там Анну."),
    ],
)  # fmt: skip
def test_a_denial_or_a_number_keeps_two_facts_apart(one: str, other: str):
    """In every language that lists them, not in English alone."""
    assert particulars(one) != particulars(other)


def marks(world: World, owner: str) -> dict[str, tuple[str, str]]:
    found = world.entries("atomic_fact", owner)
    texts = {entry.id: entry.sections["Fact"] for entry in found}
    return {
        entry.sections["Fact"]: (texts.get(entry.inline["superseded_by"], "?"), entry.inline["until"])
        for entry in found
        if "superseded_by" in entry.inline
    }


def test_facts_and_profile_say_what_is_over(tmp_path: Path):
    """Both facts stay; the earlier one is marked with the later and its day, whatever the order they came in."""
    world = World(tmp_path / "root")
    say = lambda day, text: world.talk([("Ana", text)], session=f"d{day}", at=TALKED + timedelta(days=day))  # noqa: E731
    world.run(say(0, "I live in Lisbon."), say(1, "I have two dogs."), say(9, "I live in Oslo."))
    world.run(say(5, "I live in Porto."))
    assert marks(world, "ana") == {
        "Ana: I live in Lisbon.": ("Ana: I live in Oslo.", "2023-05-17"),
        "Ana: I live in Porto.": ("Ana: I live in Oslo.", "2023-05-17"),
    }
    profile = next(world.folder.rglob("user.md")).read_text()
    items = {one["description"]: one for one in parse_note(profile).frontmatter["explicit_info"]}
    assert items["Ana: I live in Lisbon."]["superseded_by"] == "Ana: I live in Oslo."
    assert "- Ana: I live in Lisbon. (until 2023-05-17; stated 2023-05-08)" in profile
    assert "until" not in items["Ana: I have two dogs."]
    # Taken out by hand, a mark stays out when more is said and when everything is looked at again.
    (lisbon,) = [e for e in world.entries("atomic_fact", "ana") if "Lisbon" in e.sections["Fact"]]
    locator, _ = world.notebook.find(Scope(Space(), "user", "ana"), lisbon.id)
    world.notebook.change(locator, lisbon.id, lambda e: Draft.of(e, superseded_by=None, until=None))
    world.run(say(12, "I have a cat named Tom."))
    world.engine.recover()
    world.run()
    assert set(marks(world, "ana")) == {"Ana: I live in Porto."}


def test_what_is_over_is_told_and_stands_again_when_its_end_is_forgotten(tmp_path: Path):
    """Search, its prompt and `show` tell since when a fact is over; forgetting the later one takes the mark off."""
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        for day, text in ((1, "I live in Lisbon."), (9, "I live in Porto.")):
            at = int((TALKED + timedelta(days=day)).timestamp() * 1000)
            memory.add(f"s{day}", [{"sender_id": "ana", "role": "user", "timestamp": at, "content": text}])
            memory.flush(f"s{day}")
        memory.trigger("extract_atomic_facts")
        found = memory.search(
            "where do I live, in Lisbon?", user_id="ana", for_injection=True, consistency="strong"
        )
        facts = {one["content"]: one for hit in found.hits for one in shown(hit)["atomic_facts"]}
        old, new = facts["ana: I live in Lisbon."], facts["ana: I live in Porto."]
        assert (old["superseded_by"], old["until"]) == (new["id"], "2023-05-17")
        assert "until" not in new
        assert "Lisbon. (earlier, until 2023-05-17)" in prompt(found)
        assert memory.show(old["id"])["inline"]["until"] == "2023-05-17"
        listed = {one["id"]: one for one in memory.get("atomic_fact", user_id="ana").atomic_facts}
        assert (listed[old["id"]]["until"], "until" in listed[new["id"]]) == ("2023-05-17", False)
        said = memory.search("where do I live, in Lisbon?", user_id="ana", evidence=5, consistency="strong")
        shown_said = {one["text"]: one for one in said.as_data()["evidence"]}
        assert list(shown_said) == ["I live in Porto.", "I live in Lisbon."], (
            "what is over comes after what ended it"
        )
        assert shown_said["I live in Lisbon."]["earlier"] == {
            "fact": "ana: I live in Lisbon.",
            "superseded_by": new["id"],
            "until": "2023-05-17",
        }
        assert "earlier" not in shown_said["I live in Porto."]
        assert prompt(said).count("I live in Lisbon. (earlier, until 2023-05-17)") == 1
        messages = replace(said, episodes=())
        assert "said: I live in Lisbon. (earlier, until 2023-05-17)" in prompt(messages)
        memory.memories.forget(new["id"])
        assert "until" not in memory.show(old["id"])["inline"]


def test_remember_tells_of_another_home(tmp_path: Path):
    """A governed memory of the same matter is named, and one of another matter is not."""
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        old = memory.remember("I live in Lisbon", "fact", scope="user", owner="ana")
        memory.remember("I work at Acme", "fact", scope="user", owner="ana")
        told = memory.remember("I moved to Porto", "fact", scope="user", owner="ana")
        assert told.contradicts == (old.memory["id"],)


@pytest.mark.parametrize(
    ("kept", "told", "is_opposed"),
    [
        ("I like tea.", "I like coffee.", False),
        ("I like tea.", "I don't like green tea.", False),
        ("I like running.", "I don't like running in the rain.", False),
        ("I don't like tea.", "I like herbal tea.", False),
        ("Ich mag Tee.", "Ich mag keinen grünen Tee.", False),
        ("I like tea.", "I don't like tea.", True),
        ("J'aime le thé.", "Je n'aime pas le thé.", True),
        ("I like tea, not coffee.", "I like coffee.", True),
        ("My favourite colour is red.", "My favourite colour is blue.", True),
    ],
)
def test_remember_tells_near_tastes_from_one_that_changed(
    tmp_path: Path, kept: str, told: str, is_opposed: bool
):
    """Who likes tea need not like green tea; another value of the same matter is marked."""
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        memory.remember(kept, "preference", scope="user", owner="ana")
        assert bool(memory.remember(told, "preference", scope="user", owner="ana").contradicts) is is_opposed


def told_by_model(body: dict) -> dict:
    """A model's answers, by what it is asked for: facts with attributes, then which of them are over."""
    system, prompt = (message["content"] for message in body["messages"][:2])
    if "statements of a person are no longer true" in system:
        pairs = re.findall(r"earlier \[(\w+)\][^\n]*\nlater \[(\w+)\] [^\n]*(Porto|Beta)", prompt)
        return {"over": [{"earlier": old, "later": new} for old, new, what in pairs if what == "Porto"]}
    if "You extract facts" not in system:
        return {"items": [], "foresights": []}
    said = re.search(r"\[(m_\w+)\] \S+ \S+ Ana \(user\): (.*)", prompt)
    assert said is not None
    attribute = "home" if "live" in said[2] else "employer"
    text = f"Ana {said[2].removeprefix('I ').replace('live', 'lives').replace('work', 'works')}"
    return {
        "facts": [
            {"text": text, "message_ids": [said[1]], "attribute": attribute},
            {"text": "Ana owns a castle in Spain.", "message_ids": [said[1]]},
        ]
    }


def test_a_model_says_what_is_over_and_is_held_to_what_was_said(tmp_path: Path):
    """Through the protocol: a change is marked, two jobs at once are not, and a castle nobody spoke of is no fact."""
    with FakeModel(answer=told_by_model) as model:
        plain = World(tmp_path / "root")
        spending = Spending(plain.journals, SystemClock(), 1_000_000)
        settings = LlmSettings(base_url=model.url, model="fake", timeout_seconds=LONG)
        world = World(tmp_path / "root", writer=OpenAIWriter(settings, spending))
        for day, text in enumerate(
            ["I live in Lisbon.", "I work at Acme.", "I live in Porto.", "I work at Beta."]
        ):
            world.run(world.talk([("Ana", text)], session=f"d{day}", at=TALKED + timedelta(days=day)))
    assert world.facts("ana") == ["Ana lives in Lisbon.", "Ana works at Acme.", "Ana lives in Porto.", "Ana works at Beta."]  # fmt: skip
    assert marks(world, "ana") == {"Ana lives in Lisbon.": ("Ana lives in Porto.", "2023-05-10")}


OVER = [
    ("I work as a nurse at St. Mary's.", "I work as a paramedic for the city now."),
    ("I live in Bristol.", "I moved to Leeds last month."),
    ("My girlfriend is Hannah.", "Hannah and I broke up last week."),
    ("My phone number is 0171 555010.", "My new phone number is 0171 555999."),
    ("My favourite colour is green.", "My favourite colour is orange these days."),
    ("The deadline for the report is 3 June.", "The deadline for the report moved to 17 June."),
    ("I have a cat named Biscuit.", "Biscuit died on Sunday."),
    ("I smoke a pack a day.", "I quit smoking in March."),
    ("I'm a vegetarian.", "I'm not a vegetarian anymore."),
    ("I don't eat meat.", "I have started eating meat again."),
    ("My boss is Mr. Keller.", "My new boss is Ms. Ortiz."),
    ("I drive a red Fiat Panda.", "I sold the Fiat Panda."),
    ("I'm single.", "I'm married now."),
    ("I'm allergic to penicillin.", "I'm not allergic to penicillin after all."),
    ("We deploy on Fridays.", "We no longer deploy on Fridays."),
    ("I use vim as my editor.", "I switched from vim to Helix."),
    ("My daughter is 6 years old.", "My daughter is 7 years old now."),
    ("I'm unemployed.", "I got a job at Siemens."),
    ("I'm engaged to Tom.", "Tom and I called off the engagement."),
    ("My office is on the third floor.", "My office is on the fifth floor now."),
    ("The wifi password hint is my first school.", "The wifi password hint is now my first car."),
    ("I play the trumpet in a band.", "I left the band in May."),
    ("My email is kim@old.example.", "My email is kim@new.example now."),
    ("I'm learning Polish.", "I gave up learning Polish."),
    ("The standup is at 9:00.", "The standup is at 9:30 now."),
    ("My landlord is Mr. Brandt.", "Mr. Brandt is no longer my landlord."),
    ("We use Jenkins for CI.", "We moved from Jenkins to GitHub Actions."),
    ("I prefer morning meetings.", "I now prefer afternoon meetings."),
    ("The meeting is on Monday.", "The meeting is on Tuesday now."),
    ("My dentist is Dr. Wu.", "My new dentist is Dr. Roth."),
    ("Prefiero viajar en tren.", "Ahora prefiero viajar en avión."),
    ("I work for a bank in Zurich.", "I no longer work for the bank."),
    ("My car is a Golf.", "My new car is an Octavia."),
    ("The launch is on 4 May.", "The launch was postponed to 11 May."),
    ("I have a dog named Pepper.", "Pepper passed away in June."),
    ("I'm dating Marco.", "Marco and I split up."),
    ("I drink two coffees a day.", "I stopped drinking coffee."),
    ("Our database is MySQL.", "We migrated from MySQL to Postgres."),
    ("My rent is 900 euros.", "My rent is 980 euros now."),
    ("My son is in third grade.", "My son is in fourth grade now."),
    ("I live in Ghent.", "We live in Bruges now."),
    ("I play in a chess club.", "I left the chess club."),
    ("My manager is Priya.", "Priya is no longer my manager."),
    ("I'm a member of the gym in Mill Road.", "I'm not a member of the gym anymore."),
    ("The deadline is 3 June.", "The deadline moved to 17 July."),
]
BOTH = [
    ("I have two cats.", "I have a dog, too."),
    ("I work on Mondays.", "I also work on Saturdays."),
    ("My aunt lives in Riga.", "My uncle lives in Riga now."),
    ("I ran a marathon in 2021.", "I ran a marathon in 2024."),
    ("I'm allergic to cats.", "I sold my cat figurines."),
    ("Our staging server is in Paris.", "Our test server is in Milan now."),
    ("My phone is black.", "My phone is in the car now."),
    ("I like jazz.", "I quit jazz class."),
    ("My mother is 70.", "My father is 72 now."),
    ("I use Vim for notes.", "I use Word for letters now."),
    ("My office is in Oslo.", "I left Oslo."),
    ("My sister is Anna.", "My sister is Lena."),
    ("I speak Dutch.", "I speak Korean."),
    ("My home address is 4 Mill Lane.", "My work address is 12 Dock Road."),
    ("I like hiking.", "I like chess."),
    ("I have a dog named Max.", "I have a dog named Rex."),
    ("My brother lives in Rome.", "My sister lives in Paris."),
    ("I work at a bakery.", "I work at a school on weekends."),
    ("I'm allergic to nuts.", "I'm allergic to cats."),
    ("My favourite film is Alien.", "My favourite book is Dune."),
    ("I play the piano.", "I play tennis."),
    ("I visited Rome in 2019.", "I visited Rome in 2023."),
    ("My son goes to school in Bern.", "My daughter goes to school in Basel."),
    ("The deadline for the report is 3 June.", "The deadline for the budget is 17 June."),
    ("I live in Bristol.", "My mother lives in Leeds."),
    ("I never eat breakfast.", "I never eat fish."),
    ("I share a flat with Hannah.", "Hannah and I broke up."),
    ("My brother smokes a lot.", "I quit smoking."),
    ("I love Berlin.", "I left Berlin in May."),
    ("My brother is in Rome.", "My brother is a doctor now."),
    ("My car is red.", "My car is broken now."),
    ("My daughter is 6 years old.", "My daughter is 120 cm tall now."),
    ("I met Tom in the band.", "I left the band."),
    ("My son is 6 years old.", "My daughter is 7 years old now."),
    ("The budget for Q1 is 300 euros.", "The budget for Q2 is 400 euros now."),
    ("My work email is a@x.example.", "My home email is b@y.example now."),
    ("I play the piano.", "I play the drums now."),
    ("My flat is in Bonn.", "My office is in Bonn now."),
    ("I bought a Fiat in 2019.", "I sold the Fiat."),
    ("My boss is Ann.", "My boss is in Oslo now."),
    ("I like morning walks.", "I now like evening walks too."),
]


def takes_over(earlier: str, later: str) -> bool:
    one, other = only_trait(earlier), only_trait(later)
    return one is not None and other is not None and replaces(other, one)


def test_what_says_that_it_was_otherwise_before_ends_it():
    """A job, a number, a date that moved, a pet that died: whatever the sentence is about, it names what is over."""
    assert [pair for pair in OVER if not takes_over(*pair)] == []


def test_two_things_that_hold_at_once_end_nothing():
    """Siblings, languages, two visits, another quality of the same thing, somebody else's habit."""
    assert [pair for pair in BOTH if takes_over(*pair)] == []


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ("Ich wohne in Köln.", "Ich bin letzte Woche nach Bonn gezogen.", "Wo wohne ich?"),
        ("Vivo en Sevilla.", "La semana pasada me mudé a Bilbao.", "¿Dónde vivo?"),
        ("I live in Cologne.", "Last week I moved to Bonn.", "Where do I live?"),
        ("我住在上海。", "我上周搬到了杭州，离公司很近。", "我住在哪里？"),
    ],
)
def test_a_day_that_was_put_into_a_fact_hides_no_change(
    tmp_path: Path, before: str, after: str, asked: str
) -> None:
    """Behind "last week" a fact has its date, in the midst of the words that say what changed.

    What is so now is told before what is over, in whatever other words it was said than it is asked in.
    """
    said_on = datetime(2026, 5, 5, 9, tzinfo=UTC)
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        for days, text in ((0, before), (40, after)):
            said = {"role": "user", "content": text, "timestamp": said_on + timedelta(days=days)}
            memory.add(f"s{days}", [said], user_id="ben")
            memory.flush(f"s{days}")
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        told = memory.recall(asked, user_id="ben").prompt
    over = told.index(f"ben: {before} (earlier, until 2026-06-14)")
    assert 0 < told.index(re.findall(r"Bonn|Bilbao|杭州", after)[0]) < over


def test_what_is_so_now_comes_first_unless_what_was_before_is_asked(tmp_path: Path) -> None:
    """An older fact does not stand before a newer message that answers as well; "before" turns it round."""
    now = datetime.now(UTC)

    def said(text: str, days: int) -> dict[str, object]:
        at = int((now - timedelta(days=days)).timestamp() * 1000)
        return {"sender_id": "ana", "sender_name": "Ana", "role": "user", "timestamp": at, "content": text}

    with cairn.open_blocking(tmp_path, embedding__provider="hashing", background=False) as memory:
        memory.add("one", [said("The kitchen budget is 12,000 euros.", 30)])
        memory.add("two", [said("The kitchen budget is 14,500 euros.", 2)])
        for session in ("one", "two"):
            memory.flush(session)
        memory.trigger("extract_atomic_facts")
        current = memory.recall("What is the kitchen budget?", user_id="ana").prompt
        former = memory.recall("What was the kitchen budget before?", user_id="ana").prompt
    assert 0 < current.index("14,500") < current.index("12,000")
    assert 0 < former.index("12,000") < former.index("14,500")


def test_of_a_message_that_says_more_what_is_over_is_named() -> None:
    """ "(earlier, until ...)" behind two statements would be taken for both."""
    fact = Hit(
        "atomic_fact", Scope(Space(), "user", "ana"), "af_1", "p", 0.5, None, None, "Ana: I drive a Skoda.",
        {"superseded_by": "af_2", "until": "2026-11-08"},
    )  # fmt: skip
    text = "I drive a Skoda. And I take my coffee with oat milk, two sugars and some cinnamon."
    both = Evidence("s", "m", datetime.now(UTC), "ana", "Ana", text, 0.5, earlier=fact)
    assert as_said(both).endswith("(“I drive a Skoda.” is earlier, until 2026-11-08)")
    alone = replace(both, text="I drive a Skoda.")
    assert as_said(alone) == "I drive a Skoda. (earlier, until 2026-11-08)"
