"""`extract_foresight`: what someone means to do, promised or must have done, and until when it matters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta, tzinfo

from cairn.errors import NotFound
from cairn.language import dates, tongues
from cairn.language.prose import Spoken
from cairn.language.tongues import Tongue
from cairn.notes.notebook import Draft
from cairn.strategies import Job, Kit, Outcome, Strategy, StrategyAsk, asking
from cairn.strategies.facts import answered
from cairn.strategies.phrases import Phrases, pattern_in, spoken
from cairn.strategies.statements import MAX_CHARS, Setting, Told, is_binding, quote, stated_part, supports
from cairn.talk.messages import inline_of
from cairn.types import Message, Scope

ASSUMED_DAYS = 30
SOON_DAYS = 14
_FEW_DAYS = 15  # a trip, a leave, a week; what is said of a whole month or summer must be meant
_PLAN = dict.fromkeys(("text", "message_id", "start", "end"), asking.TEXT)
_SCHEMA = asking.listed("foresights", "text message_id", **_PLAN)


@dataclass(frozen=True, slots=True)
class Foresight:
    """Something ahead: what, from when to when (both days included), the words it rests on, and whose it is."""

    text: str
    start: date
    end: date
    is_stated: bool
    evidence: str
    message: Message
    about: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class _Plans:
    """By which words a language tells what is ahead."""

    intent: re.Pattern[str]
    commitment: re.Pattern[str]
    appointed: re.Pattern[str]
    noted: re.Pattern[str]
    scheduled: re.Pattern[str]
    doubt: re.Pattern[str]
    not_a_plan: re.Pattern[str]
    deadline: re.Pattern[str]
    opens_deadline: re.Pattern[str]
    closes_deadline: re.Pattern[str]
    soon: re.Pattern[str]
    someone: re.Pattern[str]
    something: re.Pattern[str]


@functools.cache
def _plans_of(tongue: Tongue) -> _Plans:
    table = tongue.table("plans")
    return _Plans(**{field.name: pattern_in(table, field.name) for field in fields(_Plans)})


def foresights_of(messages: Sequence[Message], zone: tzinfo) -> list[Foresight]:
    """The plans, promises and deadlines in `messages`, in order, each once: what has a day ahead, or binds someone."""
    setting = Setting.of(messages)
    found: list[Foresight] = []
    told: set[str] = set()
    for message in messages:
        if message.role != "user":
            continue
        said = Told(message, zone, messages)
        before: Spoken | None = None
        for one in said.said():
            ahead = _ahead(one, before, said, setting)
            before = one
            if ahead is not None and ahead.text not in told:
                told.add(ahead.text)
                found.append(ahead)
    return found


def _ahead(one: Spoken, before: Spoken | None, said: Told, setting: Setting) -> Foresight | None:
    others = setting.others(said.message)
    phrases, plans = spoken(one.text), _plans_of(tongues.spoken_in(one.text))
    core = phrases.bared(one.text, others)
    if setting.is_speech and not is_binding(core, phrases):
        return None
    begin = one.stop - len(core)
    length = stated_part(core, phrases)
    text = core[:length]
    today = said.at.date()
    named = [m for m in said.mentions if begin <= m.begin and m.stop <= begin + length]
    # "It's already 15 April", "over the past week" end today; "tonight" is ahead.
    coming = [m for m in named if m.end > today or (m.start == today and not m.is_absolute)]
    # A day that leaves two readings ("next Friday") makes a plan all the same; its window is then assumed.
    vague = [m for m in dates.mentions(text, said.at, lean=1) if m.end > today] if not named else []
    # A time that is not understood ("in a few weeks") has no window, and none is made up for it.
    is_unread = not named and not vague and dates.names_time(text)
    if (
        not text
        or (named and not coming)
        or is_unread
        or not _is_plan(text, coming, today, plans, phrases, vague=bool(vague))
    ):
        return None
    first = _readable(one, before, text, begin, phrases, plans, others)
    if first is None and coming and before is not None and one.follows and phrases.is_question(before.text):
        first = before.begin  # "Are you coming to my birthday? It's on the 19th of June."
    if first is None or begin + length - first > MAX_CHARS:
        return None
    is_cut = length < len(core.rstrip(" .!…。！"))
    if _is_appointed(text, vague, plans):
        start, end, is_stated = _window(text, 0, vague, today, plans)
    else:
        start, end, is_stated = _window(text, begin, coming, today, plans)
        end = max(end, *(m.end for m in vague)) if vague else end
    quoted = quote(said.message.speaker, said.quoted(first, begin + length), is_cut=is_cut)
    named_too = (sender for sender in setting.named(text, said.message))
    about = (said.message.sender_id, *sorted(named_too))
    return Foresight(quoted, start, end, is_stated, one.text, said.message, about)


def _is_appointed(text: str, vague: Sequence[dates.TimeMention], plans: _Plans) -> bool:
    """Whether an unclear day is that of an occasion: "my birthday is on 24 November" leaves only the year open, and the
    nearest is meant. A promise may name the day it was made, or what it is about.
    """
    if len(vague) != 1 or vague[0].start != vague[0].end or not any(map(str.isdigit, vague[0].words)):
        return False
    is_one = plans.appointed.search(text) or plans.scheduled.search(text) or plans.noted.match(text)
    return bool(is_one) and not plans.commitment.search(text)


def _is_plan(
    text: str,
    coming: Sequence[dates.TimeMention],
    today: date,
    plans: _Plans,
    phrases: Phrases,
    *,
    vague: bool,
) -> bool:
    """Whether a sentence tells of something ahead: a day, a span or an unclear day with an intention, a commitment.

    A claim whose words leave one day ahead, or a few, needs no word of intention: "the plumber can do 19 June".
    """
    if plans.not_a_plan.search(text):
        return False
    is_sure = not plans.doubt.search(text)
    is_near = any(m.start > today and (m.end - m.start).days < _FEW_DAYS for m in coming)
    if is_sure and (plans.commitment.search(text) or (is_near and phrases.is_claim(text))):
        return True
    if not coming and not (vague and is_sure):
        return False
    if plans.intent.search(text) or (is_sure and plans.noted.match(text)):
        return True
    later = any(m.end > today for m in coming)
    return later and is_sure and bool(plans.appointed.search(text) or plans.scheduled.search(text))


def _readable(
    one: Spoken,
    before: Spoken | None,
    text: str,
    begin: int,
    phrases: Phrases,
    plans: _Plans,
    others: Sequence[str],
) -> int | None:
    """Where the quote of a plan begins: at its sentence, or at the one before where it leans on that; else None."""
    if not phrases.leans(text):
        return begin
    if before is not None and one.follows and supports(before, phrases, others):
        return before.stop - len(phrases.bared(before.text, others))
    # Whom it is about may be told elsewhere; the day is worth keeping all the same.
    return begin if plans.someone.search(text) and not plans.something.search(text) else None


def _window(
    text: str, begin: int, coming: Sequence[dates.TimeMention], today: date, plans: _Plans
) -> tuple[date, date, bool]:
    """From when to when a plan matters: as stated, else a month from the day it was said (two weeks if "soon")."""
    if coming:
        mention = coming[0]
        lead, behind = text[: max(0, mention.begin - begin)], text[max(0, mention.stop - begin) :]
        is_deadline = (
            plans.deadline.search(lead)
            or plans.opens_deadline.match(mention.words)
            or plans.closes_deadline.match(behind)
        )
        return (today if is_deadline else max(mention.start, today)), max(m.end for m in coming), True
    days = SOON_DAYS if plans.soon.search(text) else ASSUMED_DAYS
    return today, today + timedelta(days=days), False


class ExtractForesight(Strategy):
    name = "extract_foresight"
    purpose = "intentions, plans and deadlines with their time window"
    trigger = "cell"
    takes = frozenset({"episode"})
    kind = "foresight"

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        drafts: list[Draft] = []
        answers: list[tuple[Job, int, str]] = []
        for job in jobs:
            try:
                found = _found(job.ask, kit)
            except NotFound as gone:
                answers.append((job, 0, str(gone)))
                continue
            drafts += [foresight_draft(job.ask, ahead, kit.redact) for ahead in found]
            answers.append((job, len(found), "" if found else "nothing lies ahead in it"))
        written = kit.notebook.append("foresight", scope, day, drafts, once_by=("parent_id",))
        yield from answered(answers, written)


def foresight_draft(ask: StrategyAsk, ahead: Foresight, redact: Callable[[str], str]) -> Draft:
    """The entry of one foresight of the cell an ask is about."""
    return Draft(
        {
            "owner_id": ask.scope.owner,
            "session_id": ask.session_id,
            "timestamp": datetime.fromtimestamp(ahead.message.timestamp / 1000, UTC).isoformat(),
            "parent_type": "memcell",
            "parent_id": ask.cell_id,
            "start_time": ahead.start.isoformat(),
            "end_time": ahead.end.isoformat(),
            "duration_days": (ahead.end - ahead.start).days + 1,
            "window": "stated" if ahead.is_stated else "assumed",
            "message_ids": [ahead.message.id] if ahead.message.id else [],
            **inline_of([ahead.message]),
        },
        {"Foresight": redact(ahead.text), "Evidence": redact(ahead.evidence)},
    )


def _found(ask: StrategyAsk, kit: Kit) -> list[Foresight]:
    cell = kit.cells.cell(ask)
    if kit.writer is not None:
        answer = asking.ask(kit, "foresight", asking.transcript(cell.messages, kit), _SCHEMA)
        by_id = {m.id: m for m in cell.messages}
        found = [
            made for item in asking.items(answer, "foresights") if (made := _checked(item, by_id, kit.zone))
        ]
        if found:
            return found
    return mine(foresights_of(cell.messages, kit.zone), ask.scope.owner)


def mine(found: Sequence[Foresight], owner: str) -> list[Foresight]:
    """Those of `found` that are `owner`'s: they said it, or it names them."""
    return [ahead for ahead in found if not ahead.about or owner in ahead.about]


def _checked(item: object, by_id: dict[str, Message], zone: tzinfo) -> Foresight | None:
    """A model's foresight, if its text, its message and its days hold up."""
    assert isinstance(item, dict) or hasattr(item, "get")
    text = asking.line(item.get("text"))
    message = by_id.get(str(item.get("message_id")))
    if message is None or len(text.split()) < 3:
        return None
    if not asking.holds(text, asking.cited([message.id], by_id, zone)):
        return None
    at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
    said, named = at.date(), dates.mentions(message.text, at)
    try:
        start = date.fromisoformat(str(item.get("start") or said.isoformat()))
        end = date.fromisoformat(str(item.get("end") or (said + timedelta(days=ASSUMED_DAYS)).isoformat()))
    except ValueError:
        return None
    if not said <= end <= said + timedelta(days=3660) or start > end:
        return None
    # A day that the words do not name is the model's own: the window is assumed then.
    ends, starts = (any(m.start <= day <= m.end for m in named) for day in (end, start))
    is_stated = bool(item.get("end")) and ends and (starts or start == said)
    if not is_stated:
        start, end = said, said + timedelta(days=ASSUMED_DAYS)
    return Foresight(text, start, end, is_stated, asking.line(message.text, 2000) or text, message)
