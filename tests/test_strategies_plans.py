"""Plans told in the present tense, and what people say about themselves in German: what is taken and what is not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import cairn
from cairn.language import dates
from cairn.strategies.foresight import foresights_of
from cairn.strategies.profile import claims_of
from cairn.strategies.statements import statements_of
from cairn.types import Message
from tests.world import World

SAID_AT = datetime(2026, 11, 11, 12, tzinfo=UTC)  # a Wednesday


def said(text: str) -> list[Message]:
    return [Message("ana", "user", int(SAID_AT.timestamp() * 1000), text, "Ana", id="m_1")]


PLANS = [
    ("My birthday is on 24 November.", "2026-11-24", "2026-11-24"),
    ("We meet her tomorrow at 14:00.", "2026-11-12", "2026-11-12"),
    ("We meet her on Monday at 14:00.", "2026-11-16", "2026-11-16"),
    ("I fly to Rome on Friday.", "2026-11-13", "2026-11-13"),
    ("I have lunch with Ben on Friday.", "2026-11-13", "2026-11-13"),
    ("My mother arrives next Tuesday with my sister.", "2026-11-17", "2026-11-17"),
    ("Tomorrow I visit my parents in Porto.", "2026-11-12", "2026-11-12"),
    ("I start my new job on Monday.", "2026-11-16", "2026-11-16"),
    ("We leave for the coast on Saturday morning.", "2026-11-14", "2026-11-14"),
    ("I have a call with the bank tomorrow afternoon.", "2026-11-12", "2026-11-12"),
    ("I see the dentist tomorrow at nine.", "2026-11-12", "2026-11-12"),
    ("The team presents the prototype next Monday.", "2026-11-16", "2026-11-16"),
    ("We host a dinner for the neighbours on Saturday.", "2026-11-14", "2026-11-14"),
    ("I take the written exam next week.", "2026-11-16", "2026-11-22"),
    ("Our flight leaves tomorrow at 6:30.", "2026-11-12", "2026-11-12"),
    ("I go to the opera with Marta tomorrow.", "2026-11-12", "2026-11-12"),
    ("We move into the new flat on 1 December.", "2026-12-01", "2026-12-01"),
    ("I run the marathon on 29 November.", "2026-11-29", "2026-11-29"),
    ("On Friday we celebrate my birthday at the harbour.", "2026-11-13", "2026-11-13"),
    ("I'm meeting him tomorrow at noon.", "2026-11-12", "2026-11-12"),
    ("We're closing the shop from 3 to 17 August for holidays in Crete.", "2027-08-03", "2027-08-17"),
    ("The plumber can do 20 November.", "2026-11-20", "2026-11-20"),
    ("I'm hiking with some buddies this weekend.", "2026-11-14", "2026-11-15"),
    ("Beschluss: Wir ziehen im Dezember um.", "2026-12-01", "2026-12-31"),
    ("Yo empiezo las prácticas el 1 de diciembre.", "2026-12-01", "2026-12-01"),
    ("Demain je passe à la banque.", "2026-11-12", "2026-11-12"),
    ("Завтра я сдаю проект.", "2026-11-12", "2026-11-12"),
    ("Wir treffen uns morgen um 14 Uhr.", "2026-11-12", "2026-11-12"),
    ("Ich besuche nächste Woche meine Eltern.", "2026-11-16", "2026-11-22"),
]
NO_PLANS = [
    "We meet every Friday.",
    "I'm considering a new tool by December 1.",
    "I balance my time like I did on 3 November 2026.",
    "Are you coming? It's fun.",
    "We're closing the shop for good.",
    "I go to the gym on Mondays.",
    "We met her yesterday at 14:00.",
    "I usually leave the office at six.",
    "I have a dog and two cats.",
    "I see what you mean.",
    "We never meet on Friday.",
    "I take the bus to work each Monday.",
    "If we meet tomorrow I bring cake.",
    "Do we meet tomorrow?",
    "We could meet tomorrow at noon.",
    "I visited my parents last week.",
    "We don't meet tomorrow after all.",
    "I always run on Sunday mornings.",
    "I play tennis with Ben every Tuesday.",
    "I went to Rome on Friday.",
    "The shop has nice shoes.",
    "I have known Marta since May.",
    "Maybe we go to the coast tomorrow.",
    "I started my new job on Monday.",
    "I saw the dentist on Tuesday at nine.",
    "She said the bus leaves from the harbour.",
    "I go by Sam at work.",
    "Wir treffen uns jeden Freitag.",
    "Wir haben uns gestern getroffen.",
    "Vielleicht fliege ich morgen nach Rom.",
]


OTHERS = [
    "My aunt is visiting from Porto tomorrow.",
    "The electrician comes tomorrow.",
    "Ben and Ida are coming over tomorrow.",
    "The new sofa will be delivered tomorrow.",
    "Let's meet tomorrow at ten.",
    "Meine Tante besucht uns morgen.",
    "Der Elektriker kommt morgen.",
    "Ma tante arrive demain.",
    "Les voisins viennent demain.",
    "Mi tía llega mañana.",
    "Los vecinos vienen mañana.",
]
NOT_OTHERS = [
    "The tests are passing since yesterday.",
    "My aunt is getting better every day.",
    "It is getting late tomorrow or not.",
    "Meine Tante kommt aus Porto.",
    "Ma tante vient de Porto.",
    "Mi tía viene de Oporto.",
]
NOTED = [
    "dentist appointment next Thursday at 9",
    "Dentist on Friday at 3pm.",
    "Parents' evening tomorrow at 7.",
    "Flight to Rome on 12 December.",
    "Car inspection on Monday.",
    "Team lunch on Friday, 12:30.",
    "My haircut is on Saturday at 10.",
    "Interview with Siemens next Tuesday, 14:00.",
    "Zahnarzttermin nächsten Donnerstag um 9",
    "Elternabend morgen um 19 Uhr.",
    "Flug nach Rom am 12. Dezember.",
    "TÜV am Montag.",
    "Vorstellungsgespräch bei Siemens am Dienstag um 14 Uhr.",
    "Vol pour Rome le 12 décembre.",
    "Réunion des parents demain à 19 h.",
    "Contrôle technique lundi.",
    "Cita con el dentista el próximo jueves a las 9",
    "Vuelo a Roma el 12 de diciembre.",
    "Reunión de padres mañana a las 7.",
    "Entrevista en Siemens el martes a las 14:00.",
    "Приём у стоматолога в следующий четверг в 9",
    "Рейс в Рим 12 декабря.",
    "Родительское собрание завтра в 19:00.",
    "Собеседование в Сименсе во вторник.",
    "下周四九点看牙医",
    "12月12日飞罗马的航班。",
    "明天晚上七点家长会。",
    "周二下午两点面试。",
    "来週木曜9時に歯医者の予約",
    "12月12日ローマ行きのフライト。",
    "明日19時から保護者会。",
    "火曜日14時に面接。",
]
NOT_NOTED = [
    "Great game yesterday at 8.",
    "Nice weather tomorrow.",
    "The meeting on Monday was fine.",
    "Is there a flight to Rome on 12 May?",
    "Meetings on Fridays are pointless.",
    "No appointment on Thursday.",
    "Maybe dinner on Friday.",
    "Das Treffen am Montag war gut.",
    "Schönes Wetter morgen.",
    "Kein Termin am Donnerstag.",
    "La réunion de lundi était bien.",
    "Beau temps demain.",
    "La reunión del lunes fue bien.",
    "Buen tiempo mañana.",
    "Встреча в понедельник прошла хорошо.",
    "Хорошая погода завтра.",
    "昨天的会议很好。",
    "明天天气不错。",
    "昨日の会議はよかった。",
    "明日はいい天気。",
]


@pytest.mark.parametrize("text", OTHERS)
def test_what_others_do_on_a_day_ahead_is_a_plan(text: str) -> None:
    """A visitor, a craftsman, a delivery: not only what the speaker means to do."""
    (plan,) = foresights_of(said(text), UTC)
    assert plan.evidence == text
    assert plan.is_stated


@pytest.mark.parametrize("text", NOT_OTHERS)
def test_what_others_do_without_a_day_ahead_is_none(text: str) -> None:
    """Where somebody is from, and what goes on."""
    assert foresights_of(said(text), UTC) == []


@pytest.mark.parametrize("text", NOTED)
def test_an_appointment_jotted_down_is_a_plan(text: str) -> None:
    """Without a verb, in seven languages; a day that leaves two readings gives a window that is assumed."""
    (plan,) = foresights_of(said(text), UTC)
    assert plan.evidence == text
    assert plan.end > SAID_AT.date()


@pytest.mark.parametrize("text", NOT_NOTED)
def test_the_weather_the_past_and_no_appointment_are_no_plans(text: str) -> None:
    """A noun and a day alone do not make one."""
    assert foresights_of(said(text), UTC) == []


def test_a_far_appointment_is_ahead_until_its_day() -> None:
    """Its year is not told, and the nearest is meant: it is that day alone. A promise may name another day than its own."""
    (plan,) = foresights_of(said("Wedding in Porto on 12 December."), UTC)
    assert (plan.start.isoformat(), plan.end.isoformat(), plan.is_stated) == (
        "2026-12-12",
        "2026-12-12",
        True,
    )
    (plan,) = foresights_of(said("I promised her on 24 November to repair the bike."), UTC)
    assert (plan.end.isoformat(), plan.is_stated) == ("2026-12-11", False)


@pytest.mark.parametrize(("text", "start", "end"), PLANS)
def test_a_present_tense_with_a_day_ahead_is_a_plan(text: str, start: str, end: str) -> None:
    """What is said of a coming day is kept with that day, whoever "her" may be."""
    (plan,) = foresights_of(said(text), UTC)
    assert (plan.start.isoformat(), plan.end.isoformat(), plan.is_stated) == (start, end, True)
    assert plan.evidence == text


@pytest.mark.parametrize("text", NO_PLANS)
def test_habits_doubts_denials_and_the_past_are_no_plans(text: str) -> None:
    """A day in a sentence does not make it one."""
    assert foresights_of(said(text), UTC) == []


def _dated(text: str) -> str:
    return dates.beside(text, dates.mentions(text, SAID_AT))


def test_a_day_that_comes_every_week_has_no_date() -> None:
    """ "Every Friday" is told as it is; "on Monday" of a meeting is the one ahead."""
    assert _dated("We meet every Friday.") == "We meet every Friday."
    assert _dated("We meet every other Friday.") == "We meet every other Friday."
    assert _dated("We meet on Friday.") == "We meet on Friday (13 November 2026)."
    assert _dated("We met on Friday.") == "We met on Friday (6 November 2026)."


GERMAN = [
    ("Ich wohne in Berlin.", "Home", "home"),
    ("Ich lebe seit 2019 in München.", "Home", "home"),
    ("Ich bin letztes Jahr nach Hamburg gezogen.", "Home", "home"),
    ("Ich mag Käse.", "Preference", "taste käse"),
    ("Ich mag Tee.", "Preference", "taste tee"),
    ("Ich liebe klassische Musik.", "Preference", "taste klassisch musik"),
    ("Ich mag keine Oliven.", "Preference", "taste oliven"),
    ("Ich mag Fisch überhaupt nicht.", "Preference", "taste fisch"),
    ("Ich hasse Staus.", "Preference", "taste staus"),
    ("Ich arbeite als Lehrerin.", "Work", "occupation"),
    ("Ich arbeite bei Siemens.", "Work", "employer"),
    ("Ich bin Krankenpfleger.", "Work", "occupation"),
    ("Ich bin Softwareentwicklerin in einer kleinen Firma.", "Work", "occupation"),
    ("Mein Name ist Anna Schmidt.", "Identity", "name"),
    ("Ich heiße Jonas.", "Identity", "name"),
    ("Ich bin 34 Jahre alt.", "Identity", "age"),
    ("Ich komme aus Österreich.", "Identity", "origin"),
    ("Ich bin in Leipzig aufgewachsen.", "Identity", "origin"),
    ("Ich bin Vegetarierin.", "Health", "diet"),
    ("Ich bin allergisch gegen Nüsse.", "Health", ""),
    ("Ich bin gegen Erdnüsse allergisch.", "Health", ""),
    ("Ich esse kein Fleisch.", "Health", "diet"),
    ("Meine Lieblingsfarbe ist Grün.", "Preference", "favorite farb"),
    ("Ich spiele gern Schach.", "Preference", "taste schach"),
    ("Ich trinke gerne grünen Tee.", "Preference", "taste grünen tee"),
    ("Meine Schwester heißt Lena.", "Family", ""),
    ("Ich habe zwei Kinder.", "Family", "count child"),
    ("Ich bin verheiratet.", "Family", "marital"),
    ("Ich spreche fließend Spanisch.", "Skill", ""),
    ("Ich gehe jeden Morgen joggen.", "Habit", ""),
    ("Ich studiere Physik in Wien.", "Education", ""),
]
NOT_TOLD = [
    "Ich weiß nicht.",
    "Ich auch nicht.",
    "Ich mag dich.",
    "Ich mag das.",
    "Ich mag, wie du das machst.",
    "Ich würde gern in Berlin wohnen.",
    "Ich wohne nicht in Berlin.",
    "Ich wohnte früher in Berlin.",
    "Wohne ich in Berlin?",
    "Wo wohnst du?",
    "Er wohnt in Berlin.",
    "Ich lebe in der Hoffnung auf besseres Wetter.",
    "Ich arbeite bei Regen lieber drinnen.",
    "Ich arbeite als ob es kein Morgen gäbe.",
    "Ich komme aus dem Büro.",
    "Ich komme aus der Sitzung und bin müde.",
    "Ich bin sicher.",
    "Ich bin müde.",
    "Ich bin hier.",
    "Ich bin gleich da.",
    "Ich heiße es nicht gut.",
    "Ich hätte gern einen Kaffee.",
    "Ich möchte gern einen Tisch reservieren.",
    "Ich danke dir.",
    "Mir geht es gut.",
    "Mein Gott, ist das schön.",
    "Ich habe Hunger.",
    "Ich habe eine Frage.",
    "Ich kann nicht kommen.",
    "Ich liebe es.",
    "Ich könnte jeden Tag Pizza essen.",
    "Mein Kampf is a book I never read.",
]


@pytest.mark.parametrize(("text", "category", "slot"), GERMAN)
def test_german_statements_about_oneself_reach_the_profile(text: str, category: str, slot: str) -> None:
    """Each is understood for what it is about, and told in its own words."""
    (claim,) = claims_of(statements_of(said(text), UTC), "ana")
    assert (claim.category, claim.slot) == (category, slot)
    assert claim.description.startswith("Ana: ")


@pytest.mark.parametrize("text", NOT_TOLD)
def test_german_sentences_that_tell_nothing_of_the_kind_do_not(text: str) -> None:
    """Wishes, denials, the past, small talk and other people stay out of the profile."""
    assert claims_of(statements_of(said(text), UTC), "ana") == []


def test_a_move_told_in_german_ends_what_english_said(tmp_path: Path) -> None:
    """One home at a time, whichever language it is told in; the old one stays with its end."""
    world = World(tmp_path / "root")
    world.run(world.talk([("Ana", "I live in Porto.")], session="s1", at=datetime(2026, 5, 1, tzinfo=UTC)))
    world.run(
        world.talk([("Ana", "Ich wohne in Berlin.")], session="s2", at=datetime(2026, 6, 1, tzinfo=UTC))
    )
    world.run(world.talk([("Ana", "Ich mag Käse.")], session="s3", at=datetime(2026, 6, 2, tzinfo=UTC)))
    profile = next(text.decode() for name, text in world.tree().items() if name.endswith("users/ana/user.md"))
    current, _, earlier = profile.partition("Earlier")
    assert "Ich wohne in Berlin" in current
    assert "Ich mag Käse" in current
    assert "I live in Porto" in earlier


ORDERS = [
    "Whenever you show me code, use four spaces.",
    "Please never suggest restaurants with fish.",
    "Don't address me by my last name.",
    "I'd like you to always cite your sources.",
    "You should always ask before you delete anything.",
    "No emojis, please.",
    "Going forward, round all prices to whole euros.",
    "Bitte duze mich.",
    "Verwende in Zukunft nur noch metrische Einheiten.",
    "Nenne mich bitte nie Herr Schmidt.",
    "Tutoie-moi, s'il te plaît.",
    "N'utilise plus d'emojis dans tes réponses.",
    "Responde siempre en español, por favor.",
    "请不要用英文回答我。",
    "回答的时候请简短一点。",
    "Отвечай всегда по-русски.",
    "Никогда не предлагай мне мясо.",
    "いつも日本語で答えてください。",
    "絵文字は使わないでください。",
    "Please double-check every calculation you give me from now on.",
    "I never want to see Comic Sans in my slides.",
    "Use British spelling in everything you write for me.",
    "Always put the conclusion first.",
    "When you recommend a book, tell me how long it is.",
    "Stop starting your answers with an apology.",
    "Antworte mir künftig nur in Stichpunkten.",
    "Bitte keine Fachbegriffe.",
    "Réponds-moi toujours en deux phrases.",
    "Ne me propose plus de restaurants italiens.",
    "Escribe siempre las fechas con el mes primero.",
    "以后请叫我小李。",
    "请每次都给出来源。",
    "Называй меня Сашей.",
    "これからは敬語を使わないでください。",
]
TASTES = [
    "I'd rather have the aisle seat.",
    "I can't stand loud restaurants.",
    "I'm more of a tea person.",
    "Spicy food isn't for me.",
    "Ich trinke lieber Tee als Kaffee.",
    "Am liebsten esse ich Pasta.",
    "Je préfère le train à l'avion.",
    "Je n'aime pas du tout les réunions.",
    "Prefiero viajar en tren.",
    "No me gusta el cilantro.",
    "我更喜欢坐火车。",
    "我不喜欢香菜。",
    "Я предпочитаю чай.",
    "私はコーヒーより紅茶が好きです。",
    "I prefer window seats on long flights.",
    "I hate being called on the phone.",
    "My go-to drink is an espresso.",
    "I don't like surprises.",
    "Ich kann Koriander nicht ausstehen.",
    "J'adore la randonnée.",
    "Me encanta el café solo.",
    "我最喜欢的水果是芒果。",
    "Я терпеть не могу лук.",
    "辛い食べ物が苦手です。",
]
NO_WISHES = [
    "ok",
    "Thanks!",
    "Danke dir",
    "好的",
    "Merci beaucoup !",
    "Sounds good, go ahead.",
    "What's the best way to always be on time?",
    "Never mind.",
    "Always happy to help.",
    "I'd rather not say.",
    "Never heard of it.",
    "Always a pleasure!",
    "Don't worry about it.",
    "No problem, please go on.",
    "Bitte nicht vergessen!",
    "Ça ne marche pas.",
]


def wishes(text: str) -> list[str]:
    """Under which heads of the profile a sentence said to an agent comes."""
    answer = Message("bot", "assistant", int(SAID_AT.timestamp() * 1000), "Sure.", "Bot", id="m_2")
    return [claim.category for claim in claims_of(statements_of([*said(text), answer], UTC), "ana")]


@pytest.mark.parametrize(
    ("text", "category"),
    [*((text, "Instruction") for text in ORDERS), *((text, "Preference") for text in TASTES)],
)
def test_standing_orders_and_tastes_reach_the_profile(text: str, category: str) -> None:
    """In seven languages, however they are put."""
    assert category in wishes(text)


@pytest.mark.parametrize("text", NO_WISHES)
def test_courtesies_and_questions_are_no_wishes(text: str) -> None:
    """ "Never mind" orders nothing; "ok" is no memory."""
    assert wishes(text) == []


def test_an_appointment_jotted_down_is_coming_up(tmp_path: Path) -> None:
    """Through the public surface: added, flushed, and told by `upcoming`."""
    with cairn.open_blocking(tmp_path / "root", background=False) as memory:
        at = int(time.time() * 1000)
        note = {
            "sender_id": "ana",
            "role": "user",
            "timestamp": at,
            "content": "Dentist appointment tomorrow at 9.",
        }
        memory.add("notes", [note])
        memory.flush("notes")
        memory.trigger("extract_foresight")
        (plan,) = memory.upcoming(scope="user", owner="ana")["entries"]
    assert "Dentist appointment tomorrow" in str(plan)


QUOTED = [
    (
        "I signed up for the half marathon on 28 November and I have no idea how to train for it",
        "Ana: I signed up for the half marathon on 28 November …",
    ),
    (
        "Are you coming to my birthday? It's on the 19th of December, at the lake.",
        "Ana: Are you coming to my birthday? It's on the 19th of December (19 December 2026), at the lake.",
    ),
    ("Then we move it. Decision: release 4.0 on December 1.", "Ana: Decision: release 4.0 on December 1."),
]


@pytest.mark.parametrize(("text", "quoted"), QUOTED)
def test_a_plan_is_quoted_with_what_it_needs_and_no_more(text: str, quoted: str) -> None:
    """Neither the doubt behind it is told, nor "it" without the question that says what it is."""
    (plan,) = foresights_of(said(text), UTC)
    assert plan.text == quoted


@pytest.mark.parametrize(
    "text",
    [
        "I booked the cabin for a few weeks back.",
        "I'm going to paint the fence in a few weeks.",
        "I've signed up for the course in half a year.",
        "Chaque année en mars, on va à la mer.",
        "Every year in March we're going to the coast.",
        "In my dream I'm flying to Oslo tomorrow.",
        "The film is called The Day After Tomorrow.",
    ],
)
def test_no_window_is_made_up_for_a_time_that_is_not_understood(text: str) -> None:
    """Nor is a habit, a dream or a title a plan."""
    assert foresights_of(said(text), UTC) == []


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("下周五之前我要交报告。", "2026-11-20"),
        ("金曜日までにレポートを出す予定です。", "2026-11-13"),
        ("Tengo que entregar el informe hasta el viernes.", "2026-11-13"),
        ("Je dois rendre le rapport avant le 20 novembre.", "2026-11-20"),
        ("Bis Freitag muss ich den Bericht abgeben.", "2026-11-13"),
        ("I have to hand in the report by 20 November.", "2026-11-20"),
    ],
)
def test_a_deadline_counts_from_today(text: str, end: str) -> None:
    """Until when something must be done stands before its day in some languages, behind it in others."""
    (plan,) = foresights_of(said(text), UTC)
    assert (plan.start, plan.end.isoformat(), plan.is_stated) == (SAID_AT.date(), end, True)


@pytest.mark.parametrize(
    "text",
    ["I bought tickets for the concert on 8 May.", "J'ai acheté des billets pour le concert du 8 mai."],
)
def test_a_plan_is_not_over_before_the_day_it_names(text: str) -> None:
    """Which 8 May is not said, but the coming one is within the window."""
    (plan,) = foresights_of(said(text), UTC)
    assert (plan.end.isoformat(), plan.is_stated) == ("2027-05-08", False)


@pytest.mark.parametrize(
    "text",
    ["我弟弟11月8号过了生日。", "我奶奶11月9号过了八十岁生日。", "爷爷11月5日过完了七十大寿，很热闹。"],
)
def test_a_birthday_that_is_over_is_no_plan(text: str) -> None:
    """It was kept this year: the next one is not meant."""
    assert foresights_of(said(text), UTC) == []


@pytest.mark.parametrize(
    ("text", "day"),
    [("我弟弟11月28号过生日。", "2026-11-28"), ("我奶奶11月29号过八十岁生日。", "2026-11-29")],
)
def test_a_birthday_ahead_is_a_plan(text: str, day: str) -> None:
    (plan,) = foresights_of(said(text), UTC)
    assert plan.end.isoformat() == day
