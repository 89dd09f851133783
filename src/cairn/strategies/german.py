"""What people say about themselves in German, as rules for the profile.

The statement itself stays in its own words, quoted with its speaker; only what it is about is understood. A
sentence begins with "ich" or "mein", states it plainly (no "würde", no "wenn"), and is not denied.
"""

from __future__ import annotations

import re

_ADVERB = (
    r"(?:(?:jetzt|nun|derzeit|zurzeit|momentan|aktuell|auch|immer noch|noch|wirklich|sehr|total|besonders|eigentlich|"
    r"schon immer|schon|hier|seit (?:\w+ ){1,3}?(?:tagen|wochen|monaten|jahren|jahr|\d{4})|seit \d{4}) )*"
)
_KIN = (
    r"(?:frau|mann|partner|partnerin|freund|freundin|verlobter?|söhne|sohn|töchter|tochter|kinder|kind|mutter|mama|"
    r"vater|papa|eltern|schwestern?|brüder|bruder|geschwister|oma|opa|tante|onkel|hunde?|katzen?|kater|chef|chefin)"
)
_TRADE = (
    r"(?:[a-zäöüß]*(?:lehrer|ärzt|arzt|ingenieur|entwickler|informatiker|student|schüler|pfleger|koch|köch|anwält|anwalt|"
    r"architekt|designer|journalist|musiker|programmierer|verkäufer|mechaniker|bäcker|elektriker|übersetzer|"
    r"wissenschaftler|autor|künstler|pilot|polizist|buchhalter|berater|therapeut|psycholog|tischler|gärtner|friseur|"
    r"krankenschwester|hebamme|rentner)(?:in|e)?)"
)
_TONGUE = (
    r"(?:deutsch|englisch|französisch|spanisch|italienisch|portugiesisch|russisch|polnisch|türkisch|arabisch|chinesisch|"
    r"japanisch|niederländisch|schwedisch)"
)
_PLAYED = r"(?:klavier|gitarre|geige|cello|schlagzeug|flöte|saxofon|trompete|schach|fußball|tennis|handball|volleyball)"
_DO_GLADLY = r"(?:esse|trinke|spiele|lese|höre|koche|backe|reise|wandere|schwimme|tanze|male|fahre|schaue|gehe|laufe|singe)"
# "Ich mag dich", "ich mag das", "ich mag, wie ...": nothing that can be told by itself.
_NOTHING = r"(?!(?:es|das|dies|diese[rsnm]?|dich|euch|sie|ihn|ihr|ihm|dein\w*|eure?\w*|wenn|wie|dass|was|mich|die idee)\b|,)"

RULES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (category, slot, re.compile(pattern, re.I))
    for category, slot, pattern in (
        (
            "Identity",
            "name",
            r"^(?:mein (?:voller )?name ist|ich hei(?:ß|ss)e) (?P<o>(?!so\b|nicht\b|es\b|das\b).+)",
        ),
        (
            "Identity",
            "age",
            r"^ich bin (?:jetzt |gerade |schon )?(?P<o>\d{1,3})(?: jahre alt)?(?: geworden)?$",
        ),
        ("Identity", "birthday", r"^mein geburtstag ist (?P<o>.+)|^ich habe (?P<p>am .+) geburtstag$"),
        (
            "Identity",
            "origin",
            (
                rf"^ich (?:komme|stamme) {_ADVERB}(?:ursprünglich )?aus (?P<o>(?!de[mrn]\b|eine[mr]\b|mein|versehen|neugier)[\w .-]+|der (?:schweiz|türkei|ukraine|slowakei)|den (?:usa|niederlanden))$"
                r"|^ich bin in (?P<p>.+) (?:geboren|aufgewachsen)\b"
            ),
        ),
        (
            "Home",
            "home",
            (
                rf"^ich (?:wohne|lebe) {_ADVERB}(?:in|bei|auf|am|an der) (?P<o>(?!angst\b|sorge\b|hoffnung\b|frieden\b|der (?:hoffnung|angst|annahme|vergangenheit)\b).+)"
                r"|^ich bin (?:\S+ ){0,3}?nach (?P<p>.+?) (?:um)?gezogen$"
            ),
        ),
        (
            "Work",
            "employer",
            rf"^ich arbeite {_ADVERB}bei (?:der |dem )?(?P<o>(?!mir\b|uns\b|dir\b|ihm\b|ihr\b|euch\b|regen\b|nacht\b|musik\b|licht\b|tageslicht\b|hitze\b|kerzenlicht\b|gutem\b|schlechtem\b|offenem\b).+)",
        ),
        (
            "Work",
            "occupation",
            (
                rf"^ich arbeite {_ADVERB}als (?P<o>(?!ob\b|wäre\b).+)|^ich bin (?:von beruf|gelernte[rn]?|ausgebildete[rn]?) (?P<p>.+)"
                rf"|^ich bin {_ADVERB}(?P<q>{_TRADE})\b(?! (?:als|wie)\b)"
            ),
        ),
        ("Education", "", rf"^ich studiere {_ADVERB}(?P<o>.+)|^ich habe (?P<p>.+) studiert$"),
        (
            "Health",
            "",
            (
                rf"^ich bin {_ADVERB}(?:allergisch (?:gegen|auf) .+|(?:ein |eine )?(?:vegetarier|veganer|diabetiker)(?:in)?\b.*|vegan\b.*|schwanger\b.*|laktoseintolerant\b.*)"
                r"|^ich habe (?:eine |starkes? |leichtes? )?\w*(?:allergie|intoleranz|asthma|diabetes|migräne)\b.*|^ich (?:esse|trinke|vertrage) kein\w* .+"
            ),
        ),
        ("Preference", "favorite", r"^meine? lieblings(?P<k>\w+) (?:ist|sind|heißt) (?P<o>.+)"),
        (
            "Preference",
            "taste-",
            (
                rf"^ich (?:mag|liebe) {_ADVERB}{_NOTHING}(?P<o>.+?) (?:überhaupt |gar |nicht mehr |eigentlich )*nicht$"
                r"|^ich mag (?:überhaupt |gar )?kein\w* (?P<p>.+)"
            ),
        ),
        ("Preference", "taste-", rf"^ich hasse {_ADVERB}{_NOTHING}(?P<o>.+)"),
        (
            "Preference",
            "taste+",
            (
                rf"^ich (?:mag|liebe) {_ADVERB}{_NOTHING}(?!nicht\b|kein|überhaupt|gar\b)(?P<o>(?:(?!\bnicht\b).)+)$"
                rf"|^ich {_DO_GLADLY} {_ADVERB}gerne? (?P<p>(?:(?!\b(?:nicht|mit dir|mit euch)\b).)+)$"
            ),
        ),
        ("Preference", "prefer", r"^ich bevorzuge (?P<o>.+)"),
        (
            "Family",
            "",
            (
                rf"^meine? (?:\w+ )?{_KIN} (?:hei(?:ß|ss)t|hei(?:ß|ss)en|arbeitet|wohnt|wohnen|lebt|leben|studiert|ist \d|sind \d).*"
                rf"|^ich habe (?:eine?n?|zwei|drei|vier|fünf|\d+) (?:\w+ )?{_KIN}\b.*|^ich bin {_ADVERB}(?:verheiratet|ledig|verlobt|geschieden)\b.*"
            ),
        ),
        (
            "Skill",
            "",
            rf"^ich (?:spreche|kann|lerne) (?:\w+ )?{_TONGUE}\b.*|^ich spiele (?:\w+ )?{_PLAYED}\b(?! mit (?:dir|euch)).*",
        ),
        (
            "Habit",
            "",
            r"^ich (?!würde|könnte|möchte|sollte|hätte|muss|war\b|habe\b).+\bjede[nrs]? (?:tag|morgen|abend|nacht|mittag|woche|monat|jahr|wochenende|sommer|winter|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch)\b.*",
        ),
    )
)
_BEGINS = re.compile(r"(?:ich|meine?)\s", re.I)
_DOUBT = re.compile(r"\b(?:würde|wäre|hätte|könnte|falls|angeblich)\b", re.I)


def is_about_oneself(text: str) -> bool:
    """Whether `text` is a German sentence in which someone plainly tells about themself."""
    if not _BEGINS.match(text) or _DOUBT.search(text):
        return False
    bare = text.rstrip(" .!…")
    return any(pattern.match(bare) for _, _, pattern in RULES)
