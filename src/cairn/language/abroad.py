"""Everyday time words of German, French, Spanish, Chinese and Japanese, as rules for `dates`.

A language's rules are tried only on a text that shows it by words of its own: French "hier" is yesterday,
German "hier" is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date

from cairn.language import spans
from cairn.language.spans import Days

_Resolve = Callable[[re.Match[str], date], Days]
Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], "Days | None"], bool]


def _words(steps: Mapping[str, tuple[str, int]], *, bounded: bool = True) -> Rule:
    """A rule for fixed phrases, each a unit and how many of it away."""
    body = "|".join(re.escape(w).replace(r"\ ", r"\s+") for w in sorted(steps, key=len, reverse=True))
    pattern = re.compile(rf"\b(?:{body})\b" if bounded else f"(?:{body})", re.IGNORECASE)

    def resolve(match: re.Match[str], today: date) -> Days:
        return spans.shifted(*steps[re.sub(r"\s+", " ", match.group().lower())], today)

    return pattern, resolve, False


def _ago(pattern: str, numbers: str, units: Mapping[str, str]) -> Rule:
    """A rule for "N units ago": `pattern` has the holes {count} and {unit}; `numbers` are the words for 1, 2, 3..."""
    values: dict[str, int] = {}
    for n, words in enumerate(numbers.split(), 1):
        values.update(dict.fromkeys(words.split("/"), n))
    count = r"(?P<count>\d{1,3}|" + "|".join(sorted(values, key=len, reverse=True)) + ")"
    unit = "(?P<unit>" + "|".join(sorted(units, key=len, reverse=True)) + ")"

    def resolve(match: re.Match[str], today: date) -> Days:
        said = match["count"].lower()
        steps = int(said) if said.isdecimal() else values[said]
        return spans.shifted(units[match["unit"].lower()], -steps, today)

    return re.compile(pattern.format(count=count, unit=unit), re.IGNORECASE), resolve, False


def _weekdays(pattern: str, names: str, *, future: bool) -> Rule:
    """A rule for last or next weekday: `pattern` has the hole {day}; `names` run from Monday."""
    numbers = {name: n for n, name in enumerate(names.split())}
    day = "(?P<day>" + "|".join(numbers) + ")"

    def resolve(match: re.Match[str], today: date) -> Days:
        return spans.one(spans.weekday_near(numbers[match["day"].lower()], today, future=future))

    return re.compile(pattern.format(day=day), re.IGNORECASE), resolve, False


def _day_and_month(pattern: str, names: str) -> Rule:
    """A rule for a day and a month, with or without a year (then the nearest one); `names` run from January."""
    numbers = {name: n for n, words in enumerate(names.split(), 1) for name in words.split("/")}
    month = "(?P<month>" + "|".join(sorted(numbers, key=len, reverse=True)) + ")"

    def resolve(match: re.Match[str], today: date) -> Days | None:
        month, day = numbers[match["month"].lower()], int(match["day"])
        years = [int(match["year"])] if match["year"] else [today.year - 1, today.year, today.year + 1]
        days = [date(year, month, day) for year in years if spans.exists(year, month, day)]
        return spans.one(min(days, key=lambda near: abs(near - today))) if days else None

    return re.compile(pattern.format(month=month), re.IGNORECASE), resolve, False


def _tomorrow(_match: re.Match[str], today: date) -> Days:
    return spans.shifted("day", 1, today)


_GERMAN_DAYS = "montag dienstag mittwoch donnerstag freitag samstag sonntag"
_FRENCH_DAYS = "lundi mardi mercredi jeudi vendredi samedi dimanche"
_SPANISH_DAYS = "lunes martes miércoles jueves viernes sábado domingo"

_GERMAN = (
    _words({
        "vorgestern": ("day", -2), "gestern": ("day", -1), "heute": ("day", 0), "übermorgen": ("day", 2),
        "gestern abend": ("day", -1), "heute abend": ("day", 0), "heute morgen": ("day", 0),
        "letzte woche": ("week", -1), "vorige woche": ("week", -1), "diese woche": ("week", 0),
        "nächste woche": ("week", 1), "letztes wochenende": ("weekend", -1), "letzten monat": ("month", -1),
        "nächsten monat": ("month", 1), "letztes jahr": ("year", -1), "dieses jahr": ("year", 0),
        "nächstes jahr": ("year", 1),
    }),
    _ago(r"\bvor\s+{count}\s+{unit}\b", "einem/einer/ein zwei drei vier fünf sechs sieben acht neun zehn",
         {"tag": "day", "tagen": "day", "woche": "week", "wochen": "week", "monat": "month",
          "monaten": "month", "jahr": "year", "jahren": "year"}),
    _weekdays(r"\b(?:letzten|vergangenen|vorigen)\s+{day}\b", _GERMAN_DAYS, future=False),
    _weekdays(r"\b(?:nächsten|kommenden|bis|bis\s+zum|spätestens\s+am)\s+{day}\b", _GERMAN_DAYS, future=True),
    # "morgen" is tomorrow, but not after "heute", "guten" or "jeden", and not with a capital: then it is morning.
    (re.compile(r"(?<!heute )(?<!gestern )(?<![gG]uten )(?<!jeden )(?<!am )\bmorgen\b(?! zusammen)"), _tomorrow, False),
    _day_and_month(
        r"\b(?P<day>0?[1-9]|[12]\d|3[01])\.\s*{month}\b(?:\s+(?P<year>(?:19|20)\d\d)\b)?",
        "januar/jänner februar märz april mai juni juli august september oktober november dezember",
    ),
)  # fmt: skip
_FRENCH = (
    _words({
        "avant-hier": ("day", -2), "hier": ("day", -1), "hier soir": ("day", -1), "aujourd'hui": ("day", 0),
        "aujourd’hui": ("day", 0), "demain": ("day", 1), "après-demain": ("day", 2), "ce soir": ("day", 0),
        "la semaine dernière": ("week", -1), "cette semaine": ("week", 0), "la semaine prochaine": ("week", 1),
        "le week-end dernier": ("weekend", -1), "le mois dernier": ("month", -1), "ce mois-ci": ("month", 0),
        "le mois prochain": ("month", 1), "l'année dernière": ("year", -1), "l’année dernière": ("year", -1),
        "cette année": ("year", 0), "l'année prochaine": ("year", 1), "l’année prochaine": ("year", 1),
    }),
    _ago(r"\bil\s+y\s+a\s+{count}\s+{unit}\b", "un/une deux trois quatre cinq six sept huit neuf dix",
         {"jour": "day", "jours": "day", "semaine": "week", "semaines": "week", "mois": "month",
          "an": "year", "ans": "year", "années": "year"}),
    _weekdays(r"\b{day}\s+dernier\b", _FRENCH_DAYS, future=False),
    _weekdays(r"\b{day}\s+prochain\b", _FRENCH_DAYS, future=True),
)  # fmt: skip
_SPANISH = (
    _words({
        "anteayer": ("day", -2), "ayer": ("day", -1), "anoche": ("day", -1), "hoy": ("day", 0),
        "pasado mañana": ("day", 2), "esta noche": ("day", 0), "la semana pasada": ("week", -1),
        "esta semana": ("week", 0), "la próxima semana": ("week", 1), "la semana que viene": ("week", 1),
        "el fin de semana pasado": ("weekend", -1), "el mes pasado": ("month", -1),
        "el próximo mes": ("month", 1), "el año pasado": ("year", -1), "este año": ("year", 0),
        "el próximo año": ("year", 1), "el año que viene": ("year", 1),
    }),
    _ago(r"\bhace\s+{count}\s+{unit}\b", "un/una dos tres cuatro cinco seis siete ocho nueve diez",
         {"día": "day", "días": "day", "semana": "week", "semanas": "week", "mes": "month", "meses": "month",
          "año": "year", "años": "year"}),
    _weekdays(r"\bel\s+{day}\s+pasado\b", _SPANISH_DAYS, future=False),
    _weekdays(r"\bel\s+próximo\s+{day}\b", _SPANISH_DAYS, future=True),
)  # fmt: skip
CHINESE_JAPANESE: tuple[Rule, ...] = (
    _words({
        "前天": ("day", -2), "昨天": ("day", -1), "今天": ("day", 0), "明天": ("day", 1), "后天": ("day", 2),
        "上周": ("week", -1), "上星期": ("week", -1), "这周": ("week", 0), "下周": ("week", 1),
        "上个月": ("month", -1), "下个月": ("month", 1), "去年": ("year", -1), "今年": ("year", 0),
        "明年": ("year", 1), "一昨日": ("day", -2), "昨日": ("day", -1), "今日": ("day", 0),
        "明日": ("day", 1), "先週": ("week", -1), "今週": ("week", 0), "来週": ("week", 1),
        "先月": ("month", -1), "来月": ("month", 1), "来年": ("year", 1),
    }, bounded=False),
)  # fmt: skip


def _shown_by(stop_words: str) -> frozenset[str]:
    return frozenset(stop_words.split())


LANGUAGES: tuple[tuple[frozenset[str], tuple[Rule, ...]], ...] = (
    (
        _shown_by(
            "ich wir und nicht ist der das mit gestern haben vor für mich mir mein meine sich auch nach bis eine"
        ),
        _GERMAN,
    ),
    (_shown_by("je j nous est une avec pas était chez suis les le"), _FRENCH),
    (_shown_by("yo nosotros un una con fui fue está muy pero el los ayer tengo"), _SPANISH),
)
"""For each language words that show that a text speaks it, and its rules."""
WITHOUT_BLANKS = re.compile(r"[\u4e00-\u9fff]")
