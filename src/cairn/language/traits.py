"""What people say about themselves, clause by clause: who they are, what they like, what they want done.

The rules of each language are in `language/data/<code>.toml`: every `[[profile]]` names a category, the attribute it
sets (`slot`, for what has one value at a time) and patterns that a clause must begin with. A clause is found where a
sentence starts, and behind a comma or a joining word; it ends where the next one begins, so that "I prefer tea, can
you ..." gives the preference and not the question.

A later clause takes the place of an earlier one where both set the same attribute to another value (`replaces`), or
where the later one says that the earlier is over ("I no longer ..."). A further value ("I also work at ...") ends none.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from cairn.budget import kept
from cairn.language import dates, sentences, tongues, wishes, words
from cairn.language.tongues import Tongue

INSTRUCTION = "Instruction"
_WISHES = frozenset({INSTRUCTION, "Preference"})
_LONGEST = 300
_FEW = 8
_ASKED = ("?", "？", "؟")
_NAME = re.compile(r"[^\W\d_][\w’'&.-]*")
_QUOTED = re.compile(r"[\"“„«「『][^\"”“»」』]{8,}[\"”“»」』]")


@dataclass(frozen=True, slots=True)
class Trait:
    """One clause about the speaker: its category, the attribute it sets, and where it stands in the sentence.

    `value` is what the attribute is set to and `said` what the clause tells, both as word stems. `how` says whether
    the value stands alone, comes beside others ("also"), or is over.
    """

    category: str
    slot: str
    begin: int
    stop: int
    value: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    how: Literal["set", "add", "end"] = "set"
    is_new: bool = False
    """Whether the clause says itself that it was otherwise before: "now", "my new ...", "these days"."""
    is_own: bool = True
    """Whether it tells what the speaker does or is: "I smoke", not "my brother smokes"."""
    place: frozenset[str] = frozenset()
    """Where an occupation is followed, as stems: "I work as a nurse at St. Mary's"."""


@dataclass(frozen=True, eq=False, slots=True)
class _Rule:
    category: str
    slot: str
    value: str
    ends: bool
    pattern: re.Pattern[str]


@dataclass(frozen=True, eq=False, slots=True)
class _Rules:
    rules: tuple[_Rule, ...]
    tag: re.Pattern[str]
    back: re.Pattern[str]
    starts: re.Pattern[str]
    ends: re.Pattern[str]
    breaks: re.Pattern[str]
    doubt: re.Pattern[str]
    reports: re.Pattern[str]
    beside: re.Pattern[str]
    partly: re.Pattern[str]
    purpose: re.Pattern[str]
    kept: re.Pattern[str]
    nothing: re.Pattern[str]
    little: frozenset[str]
    articles: frozenset[str]
    object_ends: re.Pattern[str]
    between: re.Pattern[str]
    frame: re.Pattern[str]
    now: re.Pattern[str]
    oneself: re.Pattern[str]
    when: re.Pattern[str]
    changes: re.Pattern[str]
    at: re.Pattern[str]
    day: re.Pattern[str]
    dated: re.Pattern[str]
    month: re.Pattern[str]
    joints: frozenset[str]
    numbers: Mapping[str, int]
    resumed: tuple[tuple[re.Pattern[str], str], ...]
    retold: tuple[tuple[re.Pattern[str], str], ...]
    has_blanks: bool


def traits_of(sentence: str, *, to_agent: bool = False) -> Iterator[Trait]:
    """The clauses of a sentence in which its speaker tells of themself.

    Args:
        sentence: What was said, bared of greetings.
        to_agent: Whether it was said to an agent; only then an order ("always answer in French") is a wish that stands.
    """
    yield from _traits_of(sentence, to_agent=to_agent)


def is_wish(clause: str) -> bool:
    """Whether a clause told to an agent is by its form an order that stands or a taste, and points at nothing."""
    tongue = tongues.spoken_in(clause)
    said = (clause, wishes.respelt(clause, tongue))
    return any(_wish(one, tongue, _rules_of(tongue)) is not None for one in dict.fromkeys(said))


def asked_for(sentence: str) -> int:
    """Where that begins which a sentence asks to have remembered; 0 where it asks for nothing."""
    asked = _rules_of(tongues.spoken_in(sentence)).purpose.match(sentence)
    return asked.end() if asked else 0


def doubt_of(sentence: str) -> re.Pattern[str]:
    """How the language of a sentence says that something is not certain, or only on a condition."""
    return _rules_of(tongues.spoken_in(sentence)).doubt


@kept("traits of sentences", 4 * 1024 * 1024)
def _traits_of(sentence: str, *, to_agent: bool, is_respelt: bool = False) -> tuple[Trait, ...]:
    tongue = tongues.spoken_in(sentence)
    known = _rules_of(tongue)
    sentence = known.tag.sub("", sentence)
    asked = known.purpose.match(sentence)
    # What a manual, a coach or a grandfather says to do binds nobody here.
    is_order = to_agent and known.reports.search(sentence) is None
    found: list[Trait] = []
    first = taken = asked.end() if asked else 0
    quoted = [one.span() for one in _QUOTED.finditer(sentence)]
    for start in _starts(sentence, known, taken):
        if start < taken or any(begin <= start < stop for begin, stop in quoted):
            continue
        end = known.ends.search(sentence, start + 1)
        clause = sentence[start : end.start() if end else len(sentence)].rstrip(" .!…,;。！")
        # A clause that opens the sentence and ends with its question mark is the question: "I have asthma?"
        is_asked = start == first and end is not None and end.group().strip() in _ASKED
        if is_asked and (head := _before_question(clause, tongue)):
            clause, is_asked = head, False  # "J'adore les polars, tu en connais ?"
        if len(clause) > _LONGEST:
            continue
        is_doubtful = is_asked or known.doubt.search(clause) is not None
        for rule in known.rules:
            # An order may have its condition, or be asked for: "if you are unsure, say so", "can you always ...?"
            if not is_order if rule.category == INSTRUCTION else is_doubtful:
                continue
            whole = sentence[start:].rstrip(" .!…,;。！") if rule.category == INSTRUCTION else clause
            match = rule.pattern.match(whole) if len(whole) <= _LONGEST else None
            if match is None and rule.ends and start == 0 and len(sentence) <= _LONGEST:
                whole = sentence.rstrip(" .!…,;。！")  # "Hannah and I broke up"
                match = rule.pattern.match(whole)
            if match is not None and _binds_nothing(rule.category, whole, tongue):
                continue
            if (
                rule.category == INSTRUCTION
                and match is not None
                and not _orders(sentence, start, whole, rule, tongue)
            ):
                continue
            if match is not None and rule.category == "Preference" and not rule.ends:
                if wishes.is_past(sentence[:start] if known.has_blanks else clause, tongue):
                    continue  # "When I was small, I loved ..."
                if start > first and known.back.search(clause):
                    start, whole = (
                        first,
                        sentence[first : start + len(clause)],
                    )  # "Long talks, I don't like that"
            if match is not None and _says_what(rule.slot, match, known):
                taken = start + len(whole)
                found.append(_trait(rule, match, whole, start, known))
                break
    if not is_respelt and not any(one.slot for one in found):
        found = _told_of_change(sentence, known) or found
    if asked and to_agent and not any(trait.begin == asked.end() for trait in found):
        # What someone asks to have remembered is worth it, whatever it is about.
        rest = sentence[asked.end() :].rstrip(" .!…,;。！")
        if 0 < len(rest) <= _LONGEST and not rest.endswith(("?", "？")) and not known.nothing.fullmatch(rest):
            return (Trait(INSTRUCTION, "", asked.end(), asked.end() + len(rest), said=_stems(rest, known)),)
    if is_order and (kept_in_mind := known.kept.search(sentence)) and kept_in_mind.start() > _FEW:
        # "We use pnpm here, keep that in mind": what stands before it is to be remembered.
        return (
            Trait(
                INSTRUCTION, "", 0, len(whole := sentence.rstrip(" .!…,;。！")), said=_all_stems(whole, known)
            ),
        )
    if is_order and not found and (wish := _wish(sentence, tongue, known)) is not None:
        return (wish,)
    if not found and not is_respelt and (plain := wishes.respelt(sentence, tongue)) != sentence:
        # Of "big fan of jazz" what "I'm a big fan of jazz" says.
        own = _before_question(sentence, tongue) if sentence.endswith(_ASKED) else ""
        length = len((own or sentence).rstrip(" .!…,;。！"))
        told = _traits_of(plain, to_agent=to_agent, is_respelt=True)
        return tuple(replace(one, begin=0, stop=length) for one in told[:1])
    if not found and not is_respelt and (plain := dates.without_lately(sentence)) != sentence:
        # "Last Friday we moved to Porto": when it happened stands before it, or in its midst.
        told = _traits_of(plain, to_agent=False, is_respelt=True) if dates.looks_back(plain) else ()
        length = len(sentence.rstrip(" .!…,;。！"))
        found = [replace(one, begin=0, stop=length) for one in told[:1] if one.category not in _WISHES]
    reason = found[0] if is_order and found and found[0].category != INSTRUCTION else None
    before = sentence[: reason.begin].rstrip(" ,;–—-") if reason else ""
    if len(before) >= _FEW and (wish := _wish(wishes.respelt(before, tongue), tongue, known)) is not None:
        # "Skip the lecture when I ask about my meds, I'm a pharmacist": the reason may stand behind the order.
        return (replace(wish, stop=min(wish.stop, len(before))), *found)
    if is_order and found and found[-1].category != INSTRUCTION:
        # "I'm dyslexic, so please point out every mistake": what is asked for beside it, by its form.
        for start in _starts(sentence, known, taken):
            rest = sentence[start:].rstrip(" .!…,;。！")
            if taken < start and len(rest) <= _LONGEST and wishes.begged(rest, tongue):
                found.append(Trait(INSTRUCTION, "", start, start + len(rest), said=_all_stems(rest, known)))
                break
    return tuple(found)


def _orders(sentence: str, start: int, said: str, rule: _Rule, tongue: Tongue) -> bool:
    """Whether what a rule calls an order is one that stands, and its speaker's own."""
    if wishes.demanded(sentence, start, tongue) or wishes.for_once(sentence, start, tongue):
        return False  # "write a function that never ...", "answer this one in German"
    return rule.pattern.match(_unquoted(said)) is not None


def _told_of_change(sentence: str, known: _Rules) -> list[Trait]:
    """What a sentence sets that says of its speaker first that something changed, and then how it is now.

    "Ich bin umgezogen und wohne jetzt in Bremen", "I quit the bank and started as a baker at Hill's": the clause behind
    the change may lack its subject, and is one matter with it.
    """
    whole = sentence.rstrip(" .!…,;。！")
    if len(whole) > _LONGEST or known.doubt.search(whole):
        return []
    readings = [known_as] if (known_as := _replaced(whole, known.retold)) != whole else []
    for found in known.breaks.finditer(whole):
        if known.changes.search(whole[: found.start()].rstrip()) is not None:
            readings.append(_replaced(whole[found.end() :], known.resumed))
    for one in readings:
        for told in _traits_of(one, to_agent=False, is_respelt=True)[:1]:
            if (told.slot or told.how == "end") and told.category not in _WISHES:
                return [replace(told, begin=0, stop=len(whole), said=_all_stems(whole, known), is_new=True)]
    return []


def _replaced(said: str, pairs: Sequence[tuple[re.Pattern[str], str]]) -> str:
    for was, put in pairs:
        said = was.sub(put, said, count=1)
    return said


def _binds_nothing(category: str, said: str, tongue: Tongue) -> bool:
    """Whether what reads like a wish is none: "don't touch the second draft", "from now on I work four days"."""
    if category == INSTRUCTION and wishes.is_stated(said, tongue):
        return True
    if category == "Habit" and (wishes.is_past(said, tongue) or wishes.is_anothers(said, tongue)):
        return True
    return category in _WISHES and wishes.is_of_a_part(said, tongue)


def _before_question(said: str, tongue: Tongue) -> str:
    """What is said before the clause that asks; "" where the question is all there is."""
    parts = list(_CLAUSE.finditer(said))
    told = said[: parts[-1].start()].rstrip() if parts else ""
    return "" if wishes.is_asking(told, tongue) else told


def _unquoted(said: str) -> str:
    """What is said with the words of others blanked out: a rule someone quotes binds nobody."""
    return _QUOTED.sub(lambda found: "_" * len(found.group()), said)


def _wish(sentence: str, tongue: Tongue, known: _Rules) -> Trait | None:
    """An order that stands, or a taste, where no rule of the language has its wording."""
    whole = sentence.rstrip(" .!…,;。！")
    if len(whole) > _LONGEST:
        return None
    said = _all_stems(whole, known)
    if wishes.ordered(_unquoted(whole), tongue):
        return Trait(INSTRUCTION, "", 0, len(whole), said=said)
    if whole.endswith(_ASKED):
        whole = _before_question(whole, tongue)  # "Small inns are my thing, do you know any?"
    own = _QUOTED.sub(lambda one: "_" * len(one[0]) if wishes.felt(one[0][1:-1], tongue) else one[0], whole)
    if known.doubt.search(own) is not None:
        # "I'm more of a morning person, so before 10 if possible": the doubt is about what follows.
        own = whole = wishes.first_clause(own, tongue)
    is_doubtful = known.doubt.search(own) is not None
    feeling = None if is_doubtful else wishes.felt(own, tongue)
    if feeling is None:
        is_habit = not is_doubtful and wishes.practised(own, tongue)
        return Trait("Habit", "", 0, len(whole), said=said) if is_habit else None
    kind, about = feeling
    slot = f"taste {_object(about.strip(' ,;:'), known)}".strip()
    return Trait("Preference", slot, 0, len(whole), frozenset({kind}), said)


def _trait(rule: _Rule, match: re.Match[str], clause: str, start: int, known: _Rules) -> Trait:
    is_beside = known.beside.search(clause) is not None and not rule.slot.startswith(_COUNT)
    # Who works at a bar on Saturdays may work elsewhere on other days.
    is_beside = is_beside or (rule.slot in _WORK and known.partly.search(clause) is not None)
    return Trait(
        rule.category,
        _slot(rule.slot, match, known),
        start,
        start + len(clause),
        _value(rule, match, known),
        _all_stems(clause, known),
        "end" if rule.ends else "add" if is_beside else "set",
        known.now.search(clause) is not None,
        known.oneself.match(clause) is not None,
        _place(match, known) if rule.slot == "occupation" else frozenset(),
    )


def _place(match: re.Match[str], known: _Rules) -> frozenset[str]:
    """Where somebody works by what is said of their work, as stems; nothing where no place is named."""
    found = known.at.search(match.string, match.start("o"))
    return _stems(match.string[found.end() :], known) if found else frozenset()


def replaces(later: Trait, earlier: Trait) -> bool:
    """Whether a later clause of the same speaker takes the place of an earlier one.

    >>> one, other = (next(traits_of(f"I live in {town}.")) for town in ("Lisbon", "Porto"))
    >>> replaces(other, one), replaces(one, one)
    (True, False)
    """
    if later.how == "add" or (later.is_new and later.how == "set" and _is_other_taste(later, earlier)):
        return later.how != "add"
    if later.how == "end":
        if earlier.how == "end":
            return False
        if later.slot:
            same = later.slot == earlier.slot and (not later.value or _agree(later.value, earlier.value))
            # "I'm a teacher at Hill School", and then "I left Hill School".
            held = later.category == earlier.category and earlier.is_own and bool(later.value)
            if later.slot == _PARTNER:  # "I'm engaged to Tom", and then "Tom and I broke up"
                held = earlier.slot == "marital" and bool(later.value)
            return same or (held and later.value <= earlier.said)
        if not later.value or not later.value <= earlier.said:
            return False
        if later.category != "Change":
            return later.category == earlier.category  # "I'm not allergic to cats" leaves the two cats
        if later.is_own and earlier.slot.startswith(
            _FRAME
        ):  # "Our database is MySQL", "we migrated from MySQL"
            return earlier.slot.endswith(_NAMED) and later.value <= set(map(words.stem, earlier.value))
        if later.is_own:
            return earlier.is_own and earlier.category != "Preference"
        return earlier.category == "Family" or earlier.slot.startswith(_FRAME)
    if later.slot == "employer" and earlier.slot == "occupation" and later.is_new:
        return bool(earlier.place) and not _agree(later.value, earlier.place)
    if later.slot.startswith(_COUNT) and later.slot == earlier.slot and not later.is_new:
        return _most(later.value) > _most(earlier.value)
    if not later.slot or later.slot != earlier.slot or (_is_many(later.slot) and not later.is_new):
        return False
    # What was over and has begun again; what is over otherwise stays true beside what came after it.
    if earlier.how == "end":
        return not earlier.value or _agree(later.value, earlier.value)
    return not _agree(later.value, earlier.value)


Quantity = tuple[str, str, frozenset[str]]
"""A thing, the unit ("" where none is named) and the number or day that it is given."""


def differ(one: Sequence[Quantity], other: Sequence[Quantity]) -> bool:
    """Whether one thing has two numbers, or two days, in what two texts tell.

    >>> differ(quantities("My rate is 85 an hour."), quantities("My rate went up to 95.")), differ(quantities("My rate is 85."), quantities("My rent is 95."))
    (True, False)
    """
    return any(
        of == also and not _agree(value, also_value) and (unit == also_unit or not (unit and also_unit))
        for of, unit, value in one
        for also, also_unit, also_value in other
    )


def quantities(text: str) -> list[Quantity]:
    """Of each thing whose number or day a text tells: the thing, the unit ("" where none is named) and the value."""
    found = []
    for sentence in sentences.split(text) if _DIGIT.search(text) else ():
        clauses = dict.fromkeys([sentence, *_CLAUSE.split(sentence)])
        for trait in filter(None, map(_framed, (one.strip() for one in clauses if _DIGIT.search(one)))):
            of, _, unit = trait.slot.removeprefix(_FRAME).rpartition(f" {_NUMBER}")
            if of:
                found.append((of, unit.strip(), trait.value))
            elif trait.slot.endswith(f" {_DAY}"):
                found.append((trait.slot.removeprefix(_FRAME).removesuffix(f" {_DAY}"), _DAY, trait.value))
    return found


def _is_many(slot: str) -> bool:
    """Whether what says no word of a change may stand beside another value: "Freund" is a friend, too."""
    return slot.startswith(_FRAME) or slot == _PARTNER


def _is_other_taste(later: Trait, earlier: Trait) -> bool:
    """Whether two preferences are for one kind of thing: "morning meetings", and now "afternoon meetings"."""
    tastes = [one.slot.partition(" ")[0] in _TASTES and one.value == _LIKED for one in (later, earlier)]
    mine, other = (one.slot.split()[1:] for one in (later, earlier))
    return all(tastes) and mine != other and bool(set(mine) & set(other)) and len(mine) == len(other)


def are_two_tastes(one: str, other: str) -> bool:
    """Whether one sentence likes a thing and the other dislikes another: who likes tea need not like green tea.

    >>> are_two_tastes("I like tea.", "I don't like green tea."), are_two_tastes("I like tea.", "I don't like tea.")
    (True, False)
    """
    mine, theirs = only_trait(one), only_trait(other)
    if mine is None or theirs is None:
        return False
    tastes = mine.slot.startswith("taste ") and theirs.slot.startswith("taste ")
    return tastes and mine.value != theirs.value and mine.slot != theirs.slot


def _most(value: frozenset[str]) -> int:
    return max((int(one) for one in value if one.isdigit()), default=0)


_COUNT = "count "
_WORK, _PARTNER = frozenset({"employer", "occupation"}), "partner"
_TASTES, _LIKED = frozenset({"taste", "prefer"}), frozenset({"like"})


def _agree(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two values can be one and the same: "Lisbon" and "Lisbon, in Alfama"."""
    return one <= other or other <= one


def told_of(fact: str) -> tuple[Trait, ...]:
    """`means` of a quoted fact: "Ana: I left Acme, I'm at Beta now."."""
    said = dates.undated(fact).partition(": ")[2]
    return means(said) if said else ()


def matter_of(fact: str) -> tuple[str, Trait] | None:
    """Whose attribute a quoted fact sets: ("ana", the trait) for "Ana: I live in Oslo.".

    None where the quote says more than that: another fact must not end what was told beside it.
    """
    who, colon, said = dates.undated(fact).partition(": ")
    trait = only_trait(said) if colon and said else None
    return (who.casefold(), trait) if trait is not None else None


def means(said: str) -> tuple[Trait, ...]:
    """All that a sentence says of its speaker and their things, clause by clause: what may end something said before."""
    clauses = [one.strip() for one in _CLAUSE.split(said)] if len(said) <= _LONGEST else []
    framed = [trait for clause in clauses if (trait := _framed(clause)) is not None and trait.slot]
    alone = only_trait(said)
    found = [settled(trait, said[trait.begin : trait.stop]) for trait in traits_of(said, to_agent=True)]
    return tuple(dict.fromkeys([*([alone] if alone else []), *found, *framed]))


_CLAUSE = re.compile(r"[,;] |[，；、]")


def only_trait(said: str) -> Trait | None:
    """What a sentence says of its speaker, where it says one thing and little besides; or what a thing of theirs is."""
    found = list(traits_of(said, to_agent=True))
    if not found or (len(found) == 1 and not found[0].slot and found[0].how == "set"):
        framed = _framed(said)
        return (
            replace(framed, category=found[0].category) if framed and found else framed or _alone(found, said)
        )
    return _alone(found, said)


def settled(trait: Trait, clause: str) -> Trait:
    """What a clause sets, read as what a thing is where its own rule names no attribute."""
    framed = _framed(clause) if not trait.slot and trait.how == "set" else None
    return replace(framed, category=trait.category) if framed else trait


def _alone(found: Sequence[Trait], said: str) -> Trait | None:
    if len(found) != 1 or found[0].stop - found[0].begin < _MOST * len(said.rstrip(" .!…")):
        return None
    return found[0]


_MOST = 0.6
_FRAME = "is "


@kept("matters of sentences", 2 * 1024 * 1024)
def _framed(said: str) -> Trait | None:
    """A sentence that says what something is ("The standup is at 9:00."), or merely one that another may end.

    The attribute is the subject together with the form of the value, a number of something, a name, or words behind a
    preposition: "my daughter is 6 years old" and "my daughter is ill" are two matters.
    """
    known = _rules_of(tongues.spoken_in(said))
    plain = _replaced(said.rstrip(" .!…。！"), known.retold)
    led = known.now.match(plain)  # "Ahora mi médico es ..."
    match = known.frame.match(plain) or (led and known.frame.match(plain[led.end() :].lstrip(" ,，、")))
    is_own = known.oneself.pattern != "" and known.oneself.match(plain) is not None
    is_new = known.now.search(plain) is not None
    if len(plain) > _LONGEST or known.doubt.search(plain) or not (match or is_own):
        return None
    if dates.looks_back(plain) and not (match and is_new):
        return None  # what happened stays true, whatever comes after it
    whole = Trait("", "", 0, len(plain), said=_all_stems(plain, known), is_own=is_own)
    if match is None or known.beside.search(plain):
        return whole
    of, value = (known.now.sub(" ", match[name]).strip(" ,:") for name in ("k", "o"))
    named = (w for w in re.findall(r"[^\W_]+", of.casefold()) if w not in known.little | known.joints)
    subject = " ".join(sorted(words.stem(w) for w in named))
    first, *rest = [*itertools.dropwhile(lambda w: w.casefold() in known.articles, value.split()), ""]
    is_name = first[:1].isupper() and not known.month.match(first)
    if known.day.search(value) or known.dated.search(value):
        shape = _DAY
    elif any(map(str.isdigit, value)) and not is_name:
        counted = (w for w in re.findall(r"[^\W\d]+", value) if len(w) > 2 and not w[0].isupper())
        shape = f"{_NUMBER} " + " ".join(sorted(words.stem(w) for w in counted))
    elif is_name:
        shape = _NAMED
    else:
        shape = first.casefold() if any(rest) and len(first) <= _PREPOSITION else ""
    if not subject or not (shape or match.groupdict().get("one")):
        return whole
    slot = f"{_FRAME}{subject} {shape}"
    kept_words = (word for word in value.casefold().split() if word not in known.articles)
    return replace(whole, slot=slot, value=frozenset(kept_words), is_new=is_new)


_PREPOSITION = 3
_NAMED, _DAY, _NUMBER = "Name", "day", "#"
_DIGIT = re.compile(r"\d")


def _starts(sentence: str, known: _Rules, first: int) -> Iterator[int]:
    yield first
    for found in known.starts.finditer(sentence, first):
        yield found.end()


@functools.cache
def _rules_of(tongue: Tongue) -> _Rules:
    table = tongue.table("clauses")

    def compiled(pattern: str | Sequence[str]) -> re.Pattern[str]:
        return re.compile(tongues.widened(tongues.either(pattern)), re.I)

    rules: list[_Rule] = []
    given: list[Mapping[str, Any]] = tongue.tables.get("profile", [])
    for rule in given:
        slot, value, ends = rule.get("slot", ""), rule.get("value", ""), rule.get("ends", False)
        rules += [_Rule(rule["category"], slot, value, ends, compiled("^" + p)) for p in rule["patterns"]]
    found: dict[str, Any] = {"rules": tuple(rules), "has_blanks": tongue.has_blanks}
    found |= {name: frozenset(str(table.get(name, "")).split()) for name in ("little", "articles", "joints")}
    found |= {
        name: tuple((compiled(was), put) for was, put in table.get(name, ()))
        for name in ("resumed", "retold")
    }
    calendar = tongue.table("dates")
    counted = [
        (name, at) for key in ("numbers", "ordinals") for at, name in enumerate(calendar.get(key, ()), 1)
    ]
    found["numbers"] = {one: at for names, at in counted for one in names.split("/")}
    months = tongues.choice("/".join(calendar.get("months", ())).split("/"))
    found["month"] = compiled(rf"{months}(?!\w)")
    # "23rd of June", "9. Februar", "20 de junio", "June 23": a day of a month, however it is joined.
    day_of = rf"\d{{1,2}}[^\d\s]{{0,2}}( \w{{1,2}})? ?{months}(?!\w)|(?<!\w){months} \d{{1,2}}(?!\d)|\d{{1,2}}\.\d{{1,2}}\.(?!\d)"
    found["dated"] = compiled([*([table["dated"]] if "dated" in table else []), day_of])
    names = [n for n in "/".join(calendar.get("weekdays", ())).split("/") if len(n) > 1]
    found["day"] = tongues.compiled([rf"{tongues.choice(names)}s?"] if names else [], tongue)
    if "day" in table:
        found["day"] = compiled(table["day"])
    otherwise = {"object_ends": "[,;]", "oneself": ""}
    for name in (field.name for field in fields(_Rules) if field.name not in found):
        found[name] = compiled(table.get(name, otherwise.get(name, "(?!)")))
    return _Rules(**found)


def _says_what(slot: str, match: re.Match[str], known: _Rules) -> bool:
    """Whether a taste names what it is for: "I love to" does not."""
    return slot not in {"taste", "prefer"} or bool(_object(match.groupdict().get("o") or "", known))


def _slot(slot: str, match: re.Match[str], known: _Rules) -> str:
    """The attribute a clause sets. Tastes and orders are attributes by what they are about: a change of mind is one."""
    groups = match.groupdict()
    if slot in {"favorite", "use"}:
        what = groups.get("k") or groups.get("l") or ""
        return f"{slot} {_object(what, known)}" if what else ""
    if slot in {"taste", "do"}:
        return f"{slot} {_object(groups.get('o') or '', known)}".strip()
    if slot == "prefer":
        pair = known.between.split(groups.get("o") or "")
        if len(pair) < 2:
            return f"taste {_object(pair[0], known)}"
        return "prefer " + " / ".join(sorted(_object(p, known) for p in pair[:2]))
    return slot


def _value(rule: _Rule, match: re.Match[str], known: _Rules) -> frozenset[str]:
    """What an attribute is set to: as the rule says, else the words behind the verb, a name by its own words alone."""
    if rule.value:
        return frozenset(rule.value.split())
    groups = match.groupdict()
    if rule.slot.startswith(_COUNT):
        return frozenset({str(known.numbers.get(groups.get("o", "").casefold(), groups.get("o")))})
    said = groups.get("o") or ""
    if rule.slot == "occupation" and groups.get("l"):
        said = f"{said} {groups['l']}"
    if rule.slot == "prefer":
        pair = known.between.split(said)
        return frozenset(_object(pair[0], known).split()) if len(pair) > 1 else frozenset({"like"})
    if rule.ends and not rule.slot:
        return _stems(known.when.sub("", f"{said} {groups.get('l') or ''}"), known)
    if known.has_blanks and (name := _leading_name(said, known)):
        return name
    return frozenset(_object(said, known).split())


def _leading_name(said: str, known: _Rules) -> frozenset[str]:
    """The words with a capital that open `said`: "Halden Marine" of "Halden Marine as a welder"."""
    name = []
    for word in _NAME.findall(said):
        if word[0].isupper():
            name.append(words.stem(word.casefold().rstrip(".")))
        elif name or word.casefold() not in known.little:
            break
    return frozenset(name)


def _object(text: str, known: _Rules) -> str:
    plain = known.object_ends.split(text.casefold())[0]
    keep = [w for w in re.findall(r"[^\W_]+", plain) if w not in known.little]
    return " ".join(words.stem(w) for w in keep[:4])


def _stems(text: str, known: _Rules) -> frozenset[str]:
    """What is named first, as stems: "pasta" of "pasta with cheese"."""
    return _all_stems(known.object_ends.split(text.casefold())[0], known)


def _all_stems(text: str, known: _Rules) -> frozenset[str]:
    """What a clause tells, as stems; pairs of letters where words are not parted."""
    said = words.word_set(text.casefold())
    return frozenset(words.stem(word) for word in said if word not in known.little)
