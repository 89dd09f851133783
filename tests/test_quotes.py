"""Sentences that once came out wrong: each comes out right now, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cairn.language import traits
from cairn.strategies.foresight import foresights_of
from cairn.strategies.profile import Claim, claims_of
from cairn.strategies.statements import statements_of
from cairn.talk import narrative
from cairn.types import Message

WEDNESDAY = datetime(2026, 4, 22, 9, 30, tzinfo=UTC)


def said(*lines: tuple[str, str]) -> list[Message]:
    """Messages of people, and of an assistant where the speaker is called so."""
    return [
        Message(
            who.lower(),
            "assistant" if who == "Assistant" else "user",
            int((WEDNESDAY + timedelta(seconds=30 * n)).timestamp() * 1000),
            text,
            who,
            id=f"m{n}",
        )
        for n, (who, text) in enumerate(lines)
    ]


def facts(*lines: tuple[str, str]) -> list[str]:
    return [s.text for s in statements_of(said(*lines), UTC)]


SURE = ("Assistant", "Sure.")
DEBRIS = [
    "### Example of a Refined Section",
    "**Event B**: The outcome is 5.",
    "app.config['SQLALCHEMY_POOL_SIZE'] = 10",
    "Dear East Janethaven Writers' Studio Team,\n\nI moved to Porto in 2019 and I work at Acme.\n\nBest regards",
    '<li><i classes="fa fa-css3"></i> CSS3</li>',
    "| `migrations/` | Database migration scripts | High |",
    "[Prohibit I/O Operations in for Loops](#loops)\n[Use I/O pools in 2024](#pools)",
    "```python\nI = 5  # I moved to Oslo in 2019\n```",
    "> I moved to Oslo in 2019 and work at Acme.",
    "P(4, 2) = 4 × 3 = 12",
    "Here's my code:",
]


@pytest.mark.parametrize("text", DEBRIS)
@pytest.mark.parametrize("who", ["Sam", "Assistant"])
def test_material_gives_no_fact(who: str, text: str):
    """Code, tables, headings, links, letters, quotes and formulas: whoever pasted them."""
    assert facts(("Sam", "How do I do that?"), (who, text)) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([SURE, ("Sam", "I'm studying Euclid's Elements Book I.")], ["Sam: I'm studying Euclid's Elements Book I."]),
        ([("Tim", "So?"), ("John", "I've been playing The Witcher 3. I'm totally hooked on the choices.")], ["John: I've been playing The Witcher 3."]),
        ([("Dave", "So?"), ("Tim", "I'm a huge fan.")], []),
        ([("Dave", "So?"), ("Sam", "I will take Evan's advice.")], []),
        ([("Dave", "So?"), ("Tim", "I was hooked and wanted to learn more.")], []),
        ([("Tim", "Do you have any big goals for your basketball career?"), ("John", "Definitely! Winning a championship is my number one goal.")], ["John: Winning a championship is my number one goal."]),
        ([("Tim", "Hi"), ("John", "I saw the Finals game in Boston a few years back.")], ["John: I saw the Finals game in Boston a few years back."]),
        ([SURE, ("Nadia", "I moved my standup to 9:30")], ["Nadia: I moved my standup to 9:30."]),
        ([SURE, ("Nadia", "Btw I don't eat meat anymore")], ["Nadia: I don't eat meat anymore."]),
        ([SURE, ("Nadia", "Small update: I'm not at Kestrel anymore.")], ["Nadia: I'm not at Kestrel anymore."]),
        ([SURE, ("Nadia", "Ignore what I said about Porto, Marta is sick.")], []),
        ([("Bo", "hi"), ("Ann", "Since I was 17 or so.")], []),
        ([("Bo", "hi"), ("Ann", "last week was really eye-opening for me.")], []),
        ([("Bo", "hi"), ("Ann", "I graduated last week!")], ["Ann: I graduated last week (13-19 April 2026)!"]),
        ([("Raj", "hi"), ("Léa", "raj u bring board games")], []),
        ([("Ann", "Who?"), ("伟", "我下周三要去上海出差")], ["伟: 我下周三 (29 April 2026)要去上海出差。"]),
        ([SURE, ("Max", "I use `async/await` for I/O operations in Flask 3.")], ["Max: I use `async/await` for I/O operations in Flask 3."]),
        ([SURE, ("Eva", "My daughter Ines turns 7 on 19 June, she wants a cake")], ["Eva: My daughter Ines turns 7 on 19 June (19 June 2026), she wants a cake."]),
        ([SURE, ("Eva", "My tax return is due on 30 November.")], ["Eva: My tax return is due on 30 November (30 November 2026)."]),
        ([("Eva", "Hi"), ("Assistant", "The cause was the old port in backup.env. You should restart it. A port is a number.")], ["Assistant: The cause was the old port in backup.env."]),
    ],
)  # fmt: skip
def test_what_is_kept_is_what_was_said(lines: list[tuple[str, str]], expected: list[str]):
    """The words of the speaker and nothing else, whole or not at all."""
    assert facts(*lines) == expected


def test_a_yes_to_an_offer_is_no_news():
    """An assistant's question is no one's statement."""
    lines = [
        ("Nadia", "Hi"),
        ("Assistant", "Would you like help planning the handover at Orbita?"),
        ("Nadia", "Yes"),
    ]
    assert facts(*lines) == []


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("I'm vegetarian.", "Health"),
        ("I'm left-handed.", "Identity"),
        ("Please always answer in British English.", "Instruction"),
        ("Never use tabs in my code, and how do I sort a list?", "Instruction"),
        ("Remember that I use metric units. Can you convert 3 miles?", "Instruction"),
        ("Always include version numbers when I ask about libraries", "Instruction"),
        ("I prefer simple, minimal dependencies, how can I ensure that my app stays minimal?", "Preference"),
        ("I run a bakery in Ghent.", "Work"),
        ("Ich wohne seit Januar in Leipzig und arbeite bei der Bahn.", "Home"),
        ("Antworte bitte immer auf Deutsch.", "Instruction"),
        ("Ich bin übrigens jetzt Veganerin.", "Health"),
        ("J'habite à Lyon depuis mars.", "Home"),
        ("Je suis allergique aux noix.", "Health"),
        ("Vivo en Madrid.", "Home"),
        ("Prefiero el té al café.", "Preference"),
        ("Я живу в Риге.", "Home"),
        ("Я не люблю оливки.", "Preference"),
        ("我住在上海。", "Home"),
        ("我对花生过敏。", "Health"),
        ("東京に住んでいます。", "Home"),
        ("私は犬が好きです。", "Preference"),
    ],
)
def test_what_people_say_of_themselves_reaches_the_profile(text: str, category: str):
    """Standing instructions and preferences, also inside a message that asks something, in seven languages."""
    claims = claims_of(statements_of(said(SURE, ("Eva", text)), UTC), "eva")
    assert [claim.category for claim in claims] == [category]
    assert claims[0].evidence.rstrip(".。") in text
    assert "how" not in claims[0].description.lower()


def test_a_clause_without_a_verb_tells_nothing():
    """ "My business project" names something and says nothing of it."""
    talk = said(("Bo", "Hi"), ("Jon", "Thanks for asking about it, my business project."))
    assert facts(*[(m.speaker, m.text) for m in talk]) == []
    assert [
        c.category for c in claims_of(statements_of(said(("Jo", "My boss is Marta Silva.")), UTC), "jo")
    ] == ["Work"]


def test_advice_between_people_is_no_standing_instruction():
    """ "Always" said to a friend orders nothing of an agent."""
    talk = said(("Bo", "Bye"), ("Eva", "Always wear a helmet on the Oslo road."))
    assert claims_of(statements_of(talk, UTC), "eva") == []


def test_facts_and_plans_belong_to_whom_they_are_about():
    """Ten people in a room: each keeps their own, and what names them."""
    people = [f"Guest{letter}" for letter in "abcdefgh"]
    lines = [(who, "I am here for the harbour dinner.") for who in people]
    lines += [("Tom", "I booked the cabin in Sintra for Friday with Guesta.")]
    found = statements_of(said(*lines), UTC)
    (booked,) = [s for s in found if "cabin" in s.text]
    assert booked.about == ("tom", "guesta")
    (ahead,) = foresights_of(said(*lines), UTC)
    assert ahead.about == ("tom", "guesta")


@pytest.mark.parametrize(
    "text",
    ["I will take your advice.", "I'll take Evan's advice.", "We'll have to check some out.", "I'm going to need some new shoes after all these games though.", "Someday I want to see Rome."],
)  # fmt: skip
def test_small_talk_is_no_plan(text: str):
    """Foresight is what has a day or binds someone."""
    assert foresights_of(said(("Tim", "Hi"), ("John", text)), UTC) == []


def test_what_comes_up_often_is_no_trait():
    """Four sentences with dogs in them say nothing of a person but what each of them says."""
    lines = [
        "I walked the dogs on Monday.",
        "The dogs are asleep.",
        "We washed the dogs in Porto.",
        "Dogs bark a lot.",
    ]
    claims = claims_of(statements_of(said(*[("Sam", line) for line in lines]), UTC), "sam")
    assert all(claim.evidence.rstrip(".") in " ".join(lines) for claim in claims)
    assert not any("comes up" in claim.description for claim in claims)


def test_a_meeting_gives_its_decisions_tasks_and_figures():
    """What binds someone or is agreed is kept, courtesies and opinions are not; tasks are ahead for who has them."""
    lines = [
        ("Ann", "Good morning everyone, thanks for joining."),
        ("Bob", "The budget for Q3 is 45,000 euros."),
        ("Ann", "We decided to use PostgreSQL instead of MySQL."),
        ("Cara", "Ann will send the draft by Friday."),
        ("Bob", "I'll prepare the slides for Monday's demo."),
        ("Ann", "I think we should maybe look at colors."),
        ("Cara", "We agreed on a price of 49 dollars."),
        ("Bob", "Sounds good."),
        ("Bob", "Action item: Cara writes the release notes by Tuesday."),
    ]
    assert facts(*lines) == [
        "Bob: The budget for Q3 is 45,000 euros.",
        "Ann: We decided to use PostgreSQL instead of MySQL.",
        "Cara: Ann will send the draft by Friday (24 April 2026).",
        "Bob: I'll prepare the slides for Monday's (27 April 2026) demo.",
        "Cara: We agreed on a price of 49 dollars.",
        "Bob: Action item: Cara writes the release notes by Tuesday (28 April 2026).",
    ]
    ahead = {one.text: one for one in foresights_of(said(*lines), UTC)}
    assert [one.about for one in ahead.values()] == [("cara", "ann"), ("bob",), ("bob", "cara")]


def test_speech_gives_only_what_was_said_cleanly():
    """Of a transcript with its "um" and "the the" the clean sentences that bind someone are quoted, the rest is not."""
    noise = [(who, "Um , yeah , the the thing is uh fine .") for who in ("Ann", "Bob")] * 12
    talk = [
        ("Ann", "Um , so we will omit the touch screen in favour of voice recognition ."),
        ("Bob", "seventy five percent of users find most remote controls ugly ."),
        ("Ann", "We decided uh to to go for the the rubber case ."),
        ("Bob", "I think we should use solar power ."),
        ("Ann", "I'll send you the minutes of this meeting on Friday ."),
        ("Bob", "We will not use this ."),
    ]
    assert facts(*noise, *talk) == [
        "Ann: we will omit the touch screen in favour of voice recognition.",
        "Bob: seventy five percent of users find most remote controls ugly.",
        "Ann: I'll send you the minutes of this meeting on Friday (24 April 2026).",
    ]


def test_a_few_turns_of_a_transcript_are_speech_already():
    """However a meeting is cut: a transcriber's blanks before the signs tell it, and "um" in a sentence of any talk."""
    assert facts(
        ("Ann", "No , we have we have after lunch we have thirty minutes to prepare ."),
        ("Bob", "And we have L_C_ display ,"),
        ("Ann", "I grew up with Tom Willing actually , in Smallville ."),
        ("Bob", "We will omit the touch screen in favour of voice recognition ."),
    ) == ["Bob: We will omit the touch screen in favour of voice recognition."]
    assert facts(("Ann", "My grandparents lived on um 32nd Street in Boston.")) == []


@pytest.mark.parametrize(
    "text",
    [
        "I feel like I've made significant progress since May 2, 2024.",
        "The error is happening on line 42 of `app.py`.",
        "An isosceles triangle has 2 equal sides.",
        "The complement method gives us 0.97 by subtracting from 1.",
        "I'm trying to handle OperationalError in SQLAlchemy 2.0 calls.",
        "However, I think testing for SQL injection will be important in Flask 3.",
    ],
)
def test_what_one_is_at_is_no_fact(text: str):
    """To an agent: feelings, a passing error, an attempt at nothing of one's own, and what textbooks say."""
    assert facts(SURE, ("Sam", text)) == []
    assert foresights_of(said(SURE, ("Sam", "I want to know how we did over the past 7 days.")), UTC) == []


def test_one_message_has_one_reading():
    """Episode, fact and foresight tell the same days of one message."""
    talk = said(SURE, ("Nadia", "I'm joining Halden Marine in September. I was in Rome on 5 May."))
    episode = narrative.told(talk, ZoneInfo("UTC"))
    told = [*facts(*[(m.speaker, m.text) for m in talk]), *(a.text for a in foresights_of(talk, UTC))]
    assert "[in September: September 2026; on 5 May: 5 May 2025]" in episode.content
    assert any("(September 2026)" in text for text in told)
    assert not any("2025" in text for text in told if "September" in text)


def test_a_summary_parts_turns_that_have_no_full_stop():
    """Chat without punctuation reads as sentences, each with who said it."""
    talk = said(
        ("Nadia", "I hand over the thermal chamber scripts to Jonas"),
        ("Nadia", "the new job at Halden starts in June"),
        ("Bo", "nice the new job at Halden sounds like a change"),
        ("Nadia", "my daughter Ines turns 7 on 19 June and wants a cake in the shape of a whale"),
        ("Nadia", "Halden wants my papers for the new job before June"),
    )
    episode = narrative.told(talk, ZoneInfo("UTC"))
    assert "Halden" in episode.subject
    assert "Jonas. Nadia: " in episode.summary or episode.summary.count("Nadia: ") >= 2
    assert " Nadia: " in episode.summary and "  " not in episode.summary


def test_the_same_words_give_the_same_facts():
    """Nothing that is loaded or was said before changes what a talk gives."""
    talk = said(
        ("Eva", "I live in Oslo."), ("Bo", "Ich wohne in Bonn."), ("Eva", "I met Marta in Rome yesterday.")
    )
    first = statements_of(talk, UTC)
    statements_of(said(("Zed", "Je suis parti hier. 我住在上海。")), UTC)
    assert statements_of(talk, UTC) == first


_APART = """
import sys
for name in {first!r}.split():
    __import__(name)
from datetime import UTC
from cairn.language import tongues, traits
from cairn.strategies.foresight import foresights_of
from cairn.strategies.profile import claims_of, merged
from cairn.strategies.statements import statements_of
from tests.test_quotes import APART, said
if {warm!r}:
    for line in reversed(APART):
        statements_of(said(line, ("Zed", "Je suis parti hier. 我住在上海。 Ich wohne in Ulm.")), UTC)
talk = said(*APART)
found = statements_of(talk, UTC)
for one in found:
    print(one.text, one.message_ids, one.about, one.speaker_id, one.to_agent, sep="|")
for one in foresights_of(talk, UTC):
    print(one.text, one.start, one.end, one.is_stated, sep="|")
for who in ("eva", "bo"):
    claims = claims_of(found, who)
    print(*merged([], claims)[0], sep="\\n")
    print(*(traits.replaces(late.read(), early.read()) for late in claims for early in claims))
"""

APART = [
    ("Eva", "I live in Oslo and I have two cats. On Friday I'll fly to Rome with Bo and Assistant."),
    ("Bo", "Ich wohne in Bonn, bitte duze mich. Ich mag Tee, Kaffee und Kakao."),
    ("Assistant", "I pinned numpy to 1.26.4 and removed src/old.py."),
    ("Eva", "From now on, answer in French. I met Marta, Jon and Ines in Rome yesterday."),
    ("Marta", "It was fun."),
    ("Jon", "Yes, it was."),
    ("Ines", "Very much so."),
    ("Bo", "Я живу в Казани, у меня аллергия на орехи и кошек. 我喜欢喝茶和咖啡。"),
    ("Eva", "I moved to Bergen last week, I work at Acme now and I no longer eat meat."),
]


def test_a_fresh_process_gives_the_same_bytes_whatever_its_seed_and_imports():
    """Neither the order of hashes, nor what was loaded, nor what was read before shows in what is written."""
    told = [
        subprocess.run(
            [sys.executable, "-c", _APART.format(first=first, warm=warm)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed, first, warm in (
            ("1", "cairn.retrieval.search cairn", False),
            ("77", "cairn.language.dates", True),
            ("4242", "cairn.strategies.profile", False),
        )
    ]
    assert told[0] == told[1] == told[2]
    assert told[0].count(b"\n") > 20


GENERALITIES = [
    "We've got the right attitude to take on the harder things in life.",
    "We're pushing ourselves and supporting each other which is super motivating.",
    "If we stand together we can tackle any problems and build a great community.",
    "We all have unique paths, and by working together we can build a better world.",
    "I love being around friends and having such a great time.",
    "I love watching them play in the garden.",
    "Nice to meet you, Ana.",
    "ich glaub das war ne blöde idee",
    "Franchement je sais plus quoi faire.",
    "帮我写一首关于春天的诗。",
]


@pytest.mark.parametrize("text", GENERALITIES)
def test_generalities_give_no_fact(text: str):
    """What anybody could say of anything is not worth having."""
    assert facts(("Sam", text), ("Ana", "How lovely!")) == []


def test_plans_of_a_trip_and_a_deadline():
    """Two plans of one message, each with its own day; what is repeated often is no trait of its speaker."""
    text = "I'm flying to Rome on 12 December. My tax return is due on 30 November."
    plans = [(plan.text, f"{plan.end}") for plan in foresights_of(said(("Eva", text)), UTC)]
    assert plans == [
        ("Eva: I'm flying to Rome on 12 December (12 December 2026).", "2026-12-12"),
        ("Eva: My tax return is due on 30 November (30 November 2026).", "2026-11-30"),
    ]
    dogs = [("Sam", f"I met {n} dogs in the park on {n} May.") for n in (1, 2, 3, 4)]
    assert not [c for c in claims_of(statements_of(said(*dogs), UTC), "sam") if "comes up" in c.description]


def test_a_transcribers_blanks_are_not_quoted():
    """Nor does a verb of noticing tell when the noticed thing is due."""
    told = facts(("Sam", "I moved to Porto , near the castle ."), SURE)
    assert told == ["Sam: I moved to Porto, near the castle."]
    (fact,) = facts(
        ("Sam", "I noticed that the first sprint now targets completion by May 31 at Acme."), SURE
    )
    assert "(31 May 2026)" in fact
    assert facts(("Sam", "The door code is 4471."), SURE) == ["Sam: The door code is 4471."]


# An order or a wish, and the words of it that must reach the profile.
WISHES = {
    "Quick note before we start: whenever you show me shell commands, use fish syntax.": "fish",
    "Please stop calling me Sir, just Robin is fine.": "Robin",
    "From now on, answer in metric units only.": "metric",
    "I'd rather get one recommendation than a list of options.": "one recommendation",
    "Never commit directly to main, always open a pull request.": "pull request",
    "Don't ever use emojis in my emails.": "emojis",
    "I've been wrestling with this deployment for two hours and the container still exits with code 137. The logs show nothing useful, and I already doubled the memory. By the way, when you suggest fixes, explain the reason first and then the command. Anyway, here is the manifest I use at the moment, with limits at 512Mi and requests at 256Mi, can you see what is wrong with it?": "explain the reason",
    "I can't stand cilantro, so leave it out of any recipe.": "cilantro",
    "Keep your answers under 100 words.": "100 words",
    "I like my coffee black.": "coffee",
    "When I ask about libraries, always tell me the license too.": "license",
    "Bitte duze mich ab jetzt.": "duze",
    "Antworte mir bitte immer auf Deutsch.": "Deutsch",
    "Ich mag keine langen Erklärungen, komm immer gleich zum Punkt.": "langen Erklärungen",
    "Schick mir nie Links ohne eine kurze Zusammenfassung.": "Links",
    "Ich trinke am liebsten grünen Tee.": "Tee",
    "Hör auf, mich Herr Doktor zu nennen.": "Doktor",
    "Heute war ein langer Tag, wir haben das Release doch noch geschafft und das Team ist erleichtert. Für die Zukunft: frag mich immer, bevor du etwas löschst. Morgen geht es mit der Dokumentation weiter, die liegt noch bei Sabine.": "frag mich",
    "Réponds-moi toujours en français, s'il te plaît.": "français",
    "Ne m'envoie jamais de code sans commentaires.": "commentaires",
    "Je préfère les réponses courtes.": "courtes",
    "À partir de maintenant, tutoie-moi.": "tutoie",
    "Je déteste les réunions le lundi matin.": "réunions",
    "Contéstame siempre en español.": "español",
    "Nunca uses anglicismos en mis textos.": "anglicismos",
    "Prefiero los vuelos por la mañana.": "vuelos",
    "A partir de ahora trátame de usted.": "usted",
    "No me gusta el picante.": "picante",
    "请以后都用中文回答我。": "中文",
    "不要在代码里写英文注释。": "英文注释",
    "我喜欢简短的回答。": "简短",
    "从现在开始叫我小王。": "小王",
    "我不喜欢吃香菜。": "香菜",
    "我最喜欢的颜色是蓝色。": "蓝色",
    "永远不要给我打电话，发邮件就行。": "打电话",
    "Whenever we talk about money, convert it to Swiss francs.": "francs",
    "Address me as Dr. Lund.": "Lund",
    "Quit adding disclaimers to everything you write.": "disclaimers",
    "I'm more into short novels than long ones.": "novels",
    "Write commit messages in lower case from now on.": "lower case",
    "I need the slides by noon. Also, don't schedule anything for me before ten, ever.": "before ten",
    "Nenn mich bitte Charly.": "Charly",
    "Rechne mir Preise immer in Euro um.": "Euro",
    "Ich hasse Telefonate am Morgen.": "Telefonate",
    "Donne-moi toujours les sources.": "sources",
    "Évite les anglicismes, s'il te plaît.": "anglicismes",
    "J'adore la cuisine thaïe.": "thaïe",
    "Deja de llamarme señora.": "señora",
    "Me encanta el senderismo.": "senderismo",
    "Explícame siempre los pasos uno por uno.": "pasos",
    "以后请用公制单位。": "公制",
    "别再给我推荐电影了。": "电影",
}
CHANGED = [
    ("Use British spelling in my documents, always.", "Scratch that, use American spelling in my documents."),
    ("My favourite editor is Helix.", "My favourite editor is Zed now."),
    ("Use spaces for indentation, please always.", "Never mind, use tabs for indentation."),
    ("I prefer morning meetings.", "Actually I now prefer afternoon meetings."),
    ("Always answer in French.", "You can answer in English again."),
    ("Prefiero viajar en tren.", "Ahora prefiero viajar en avión."),
]


def wished(text: str) -> list[Claim]:
    found = claims_of(statements_of(said(("Ana", text), SURE), UTC), "ana")
    return [one for one in found if one.category in {"Instruction", "Preference", "Identity", "Health"}]


def test_orders_and_wishes_reach_the_profile_wherever_they_stand():
    """In five languages, at the end of a long message, with the lasting word in front, inside or last."""
    assert [
        text for text, words in WISHES.items() if not any(words in one.evidence for one in wished(text))
    ] == []


@pytest.mark.parametrize(("earlier", "later"), CHANGED)
def test_a_wish_that_changed_takes_the_place_of_the_first(earlier: str, later: str):
    """Also one that is taken back with "never mind" or "again"."""
    [old], [new] = wished(earlier), wished(later)
    assert traits.replaces(new.read(), old.read())
    assert not traits.replaces(old.read(), old.read())
