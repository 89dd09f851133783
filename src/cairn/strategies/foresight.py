"""`extract_foresight`: what someone means to do, promised or must have done, and until when it matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from cairn.errors import NotFound
from cairn.language import dates, sentences
from cairn.notes.notebook import Draft
from cairn.strategies import Ask, Event, Job, Kit, Outcome, Strategy, asking
from cairn.strategies.facts import by_day, cell_asks, parents_of
from cairn.strategies.grammar import tidied
from cairn.strategies.statements import NEXT_MOVE, retold
from cairn.types import Message, Scope

ASSUMED_DAYS = 30
SOON_DAYS = 14
_INTENT = re.compile(
    r"\b(?:I'll|I will|I'm (?:\w+ )?(?:going to|gonna|planning|hoping|thinking (?:of|about)|considering|about to|looking forward to|set to|due to|aiming|signing up|"
    r"leaving|flying|moving|meeting|visiting|getting ready)|I am (?:going to|planning|hoping|on (?:leave|vacation|holiday))|I'm on (?:leave|vacation|holiday)|"
    r"I (?:\w+ )?(?:plan|intend|want|hope|need|have|aim|expect|promise) to|I've (?:signed up|booked|decided) |I (?:signed up|booked|registered|applied|decided|scheduled)\b|I can't wait (?:to|for)|I must|"
    r"we'll|we're (?:\w+ )?(?:going to|gonna|planning|hoping|thinking|having|going|meeting|visiting)|we (?:plan|want|hope) to|"
    r"(?:^|[.!] )(?:going to|gonna|planning to|hoping to|can't wait to|looking forward to)|I(?:'m| am) off to\b|"
    r"ich (?:werde|muss|möchte|plane|habe vor)|(?:muss|werde|möchte) ich\b)",
    re.I,
)
_APPOINTED = re.compile(
    r"\b(?:deadline|due|appointment|scheduled|upcoming|coming up|reminder|remind me|is (?:on|next|tomorrow)|starts|begins|opens|launch(?:es)?|expires?|renew\w*|must be)\b",
    re.I,
)
# A present tense that a day ahead makes a plan: "we meet her tomorrow", "Morgen fliegen wir nach Rom".
_SCHEDULED = re.compile(
    r"^(?:(?:so|and|then|ok|okay|well|yes|yeah|also),? )*(?:(?:tomorrow|tonight|next \w+|(?:this|on) \w+|at \S+),? )*"
    r"(?:I|we|my (?:\w+ )?\w+|our (?:\w+ )?\w+|the (?:\w+ )?\w+|[A-Z]\w+(?: and (?:I|[A-Z]\w+))?) (?:(?:both|also|then|finally|all) )?"
    r"(?:meets?|fly|flies|leaves?|travels?|go|goes|visits?|moves?|starts?|begins?|arrives?|returns?|lands?|departs?|drives?|"
    r"see|sees|presents?|hosts?|takes?|plays?|performs?|have|has|picks? up|celebrates?|marry|marries|gets? married|run|runs)\b"
    r"|^(?:(?:also|dann|und|ja),? )*(?:ich|wir) (?:treffen?|fliegen?|fahren?|reisen?|besuchen?|ziehen?|haben?|starten?)\b"
    r"|^(?:\S+ ){1,3}(?:treffen?|fliegen?|fahren?|reisen?|besuchen?|ziehen?|haben?|starten?) (?:ich|wir)\b",
    re.I,
)
_HABIT_OR_DOUBT = re.compile(
    r"\b(?:every|each|usually|often|always|never|normally|typically|sometimes|whenever|most|if|unless|whether|would|could|"
    r"might|maybe|perhaps|not|don't|doesn't|won't|can't|nobody|no longer|(?:mon|tues|wednes|thurs|fri|satur|sun)days|"
    r"jede[nrs]?|immer|oft|meistens|nie|nicht|kein\w*|falls|wenn|vielleicht|würden?|könnten?)\b",
    re.I,
)
_SOMEONE = re.compile(r"\b(?:her|him|them)\b", re.I)
_SOMETHING = re.compile(r"\b(?:it|this|that|these|those|there|he|she|they|ones?)\b", re.I)
_NOT_A_PLAN = re.compile(
    r"\b(?:keep (?:\w+ing|you|ya|it|going|pushing|on|plugging|grinding|spreading|up)|give up|posted|updated|let (?:you|anything|any)|stay (?:determined|positive|strong|focused)|be (?:awesome|amazing|great)|be sure to|"
    r"just want to|on the right (?:track|path)|make it\b|by your side|memories|for sure|what i have to|start(?:ing)? (?:to )?think|right by|want to (?:positively|make (?:a|the) )|stop me|believ(?:e|ing) in|my best|(?:will|'ll) (?:never|always|let you|be (?:fine|okay|ok|great|there for)|see|keep you|help|make sure to tell|send you|be back|have to admit|say)|never forget|i'll keep (?:at|that|you|doing|going|pushing)|"
    r"have to (?:say|admit|agree)|want to (?:say|thank)|need to (?:say|hear)|hope (?:you|it|that|your)|have to be|if i|would have|wanted to|needed to|had to|to hear (?:about|more|all|from you)|to see (?:what|how|it|you))\b",
    re.I,
)
_DEADLINE = re.compile(r"\b(?:by|before|until|till|due|no later than)\s+(?:the\s+)?(?:end of\s+)?$", re.I)
_SCHEMA = {
    "type": "object",
    "properties": {
        "foresights": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "message_id": {"type": "string"},
                    "start": {"type": "string"},
                    "end": {"type": "string"},
                },
                "required": ["text", "message_id"],
            },
        }
    },
    "required": ["foresights"],
}


@dataclass(frozen=True, slots=True)
class Foresight:
    """Something ahead: what, from when to when (both days included), and the words it rests on."""

    text: str
    start: date
    end: date
    is_stated: bool
    evidence: str
    message: Message


def foresights_of(messages: Sequence[Message], zone: tzinfo) -> list[Foresight]:
    """The plans, promises and deadlines in `messages`, in order, each once."""
    names = {m.sender_id: m.speaker for m in messages if m.role != "tool"}
    found: list[Foresight] = []
    told: set[str] = set()
    for message in messages:
        if message.role == "tool":
            continue
        others = [name for sender, name in names.items() if sender != message.sender_id]
        before = ""
        for sentence in sentences.split(message.text):
            ahead = _ahead(sentence, message, others, zone, before)
            before = sentence
            if message.tool_calls and NEXT_MOVE.match(sentence):
                continue
            if ahead is not None and ahead.text not in told:
                told.add(ahead.text)
                found.append(ahead)
    return found


def _ahead(
    sentence: str, message: Message, others: Sequence[str], zone: tzinfo, before: str
) -> Foresight | None:
    text = tidied(sentence)
    if text.endswith("?") or len(text.split()) < 4:
        return None
    intends = bool(_INTENT.search(text)) and not _NOT_A_PLAN.search(text)
    if not intends and not _APPOINTED.search(text) and not _is_scheduled(text):
        return None
    said = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
    found = dates.mentions(text, said)
    coming = [m for m in found if m.end >= said.date() and m.words.lower() != "now"]
    if not intends and not any(m.end > said.date() for m in coming):
        return None
    if found and not coming:
        return None
    retelling = retold(sentence, message, others, zone, before)
    if not retelling and _SOMEONE.search(text) and not _SOMETHING.search(text) and coming:
        # Whom it is about may be told elsewhere; the day is worth keeping all the same.
        retelling = retold(sentence, message, others, zone, alone=True)
    if not retelling or len(retelling.split()) < 5:
        return None
    start, end, stated = _window(text, coming, said.date())
    return Foresight(retelling, start, end, stated, sentence.strip(), message)


def _is_scheduled(text: str) -> bool:
    return bool(_SCHEDULED.search(text)) and not _HABIT_OR_DOUBT.search(text)


def _window(text: str, coming: Sequence[dates.TimeMention], today: date) -> tuple[date, date, bool]:
    """From when to when a plan matters: as stated, else a month from the day it was said (two weeks if "soon")."""
    if not coming and re.search(r"\b(?:I'm off to|tonight)\b", text, re.I):
        return today, today, True
    if coming:
        mention = coming[0]
        deadline = bool(_DEADLINE.search(text[: mention.begin])) or mention.words.lower().startswith(
            ("by ", "before ", "until ", "bis ")
        )
        return (today if deadline else max(mention.start, today)), max(m.end for m in coming), True
    days = (
        SOON_DAYS
        if re.search(r"\b(?:soon|shortly|later|tonight|in a bit|these days)\b", text, re.I)
        else ASSUMED_DAYS
    )
    return today, today + timedelta(days=days), False


class ExtractForesight(Strategy):
    name = "extract_foresight"
    purpose = "intentions, plans and deadlines with their time window"
    trigger = "cell"

    def asks(self, event: Event) -> Iterable[Ask]:
        return cell_asks(self.name, event, tracks=("user",))

    def finished(self, asks: Sequence[Ask], kit: Kit) -> set[str]:
        parents = parents_of("foresight", asks, kit)
        return {ask.input for ask in asks if (ask.scope, ask.day, ask.cell_id) in parents}

    def run(self, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        for (scope, day), group in by_day(jobs).items():
            yield from self._run_day(scope, day, group, kit)

    def _run_day(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
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
        at = 0
        for job, count, why in answers:
            ids = tuple(w.entry_id for w in written[at : at + count])
            at += count
            yield Outcome(job, "wrote" if ids else "skipped", why, ids)


def foresight_draft(ask: Ask, ahead: Foresight, redact: Callable[[str], str]) -> Draft:
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
        },
        {"Foresight": redact(ahead.text), "Evidence": redact(ahead.evidence)},
    )


def _found(ask: Ask, kit: Kit) -> list[Foresight]:
    cell = kit.cells.cell(ask)
    if kit.writer is not None:
        answer = asking.ask(kit, "foresight", asking.transcript(cell.messages, kit), _SCHEMA)
        by_id = {m.id: m for m in cell.messages}
        found = [
            made for item in asking.items(answer, "foresights") if (made := _checked(item, by_id, kit.zone))
        ]
        if found:
            return found
    return foresights_of(cell.messages, kit.zone)


def _checked(item: object, by_id: dict[str, Message], zone: tzinfo) -> Foresight | None:
    """A model's foresight, if its text, its message and its days hold up."""
    assert isinstance(item, dict) or hasattr(item, "get")
    text = asking.line(item.get("text"))
    message = by_id.get(str(item.get("message_id")))
    if message is None or len(text.split()) < 3:
        return None
    said = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone).date()
    try:
        start = date.fromisoformat(str(item.get("start") or said.isoformat()))
        end = date.fromisoformat(str(item.get("end") or (said + timedelta(days=ASSUMED_DAYS)).isoformat()))
    except ValueError:
        return None
    if not said <= end <= said + timedelta(days=3660) or start > end:
        return None
    return Foresight(
        text, start, end, bool(item.get("end")), asking.line(message.text, 2000) or text, message
    )
