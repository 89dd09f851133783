"""From what people say to statements that stand on their own.

A message is taken apart into sentences. Greetings, thanks, questions, compliments and empty reactions go; the
rest is told in the third person with names for pronouns and dates for "yesterday". A sentence that leans on
the one before ("It's special to me") is kept together with it, and a bare answer with its question, or it is
left out: a statement nobody can read alone is worse than none. Pure, deterministic, English first; sentences in
other languages are quoted with their speaker and their dates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cairn.language import dates, sentences, words
from cairn.strategies import german, grammar
from cairn.strategies.grammar import lexicon
from cairn.strategies.phrases import (
    EMPTY,
    EVALUATION,
    FIRST,
    LEADS,
    REQUEST,
    SECOND,
    SOCIAL,
    STOP,
    WE,
    bared,
    is_claim,
    is_english,
    leans,
    split_claims,
    telling,
    with_subject,
)
from cairn.types import Message

MAX_CHARS = 400
LONGEST_SENTENCE = 1000
_COMPANY = re.compile(
    r"\bmy (?:family|kids|husband|wife|partner|boyfriend|girlfriend|friends?|mom|mother|dad|father|parents|sister|brother|team|son|daughter|children|dog|dogs|roommate|colleagues?|class|grandma|cousins?)\b"
    r"|\bthe (?:kids|family|fam|team|guys|crew|band)\b",
    re.I,
)
_YES_NO = re.compile(
    r"^(?:do|does|did|is|are|was|were|have|has|had|can|could|will|would|should|isn't|aren't|don't|didn't|haven't)\b",
    re.I,
)
_YES = re.compile(r"^(?:yes|yeah|yep|yup|yea|absolutely|definitely|of course|for sure|sure|totally)\b", re.I)
_NO = re.compile(r"^(?:no|nope|nah|not yet|not really|never)\b", re.I)
NEXT_MOVE = re.compile(
    r"^(?:(?:ok|okay|now|next|first|then|sure|right|great)[,.!]? )*(?:I'll|I will|I'm going to|let me|let's)\b",
    re.I,
)
"""How an agent announces the tool call it makes in the same message: no fact, and done a moment later."""
_IMAGE = re.compile(r"\[(image|audio|doc|pdf|html|email): ([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Statement:
    """One claim, told in the third person, with the messages it comes from."""

    text: str
    message_ids: tuple[str, ...]
    said_at: datetime
    speaker_id: str
    speaker: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A sentence on its way: `text` still in the first person; `leans` if it needs the one before."""

    text: str
    message: Message
    leans: bool


def statements_of(
    messages: Sequence[Message], zone: tzinfo, pause: Callable[[], object] = lambda: None
) -> list[Statement]:
    """The statements made in `messages`, in order, each one once; `pause` is called between messages."""
    found: list[Statement] = []
    heard: set[str] = set()
    names = _names(messages)
    question: tuple[str, Message] | None = None
    for message in messages:
        if message.role == "tool" or (not message.text.strip()):
            continue
        said_at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
        pause()
        made, asked = _of_message(message, question, names, said_at)
        for statement in made:
            key = normal(statement.text)
            if key not in heard and len(statement.text) <= MAX_CHARS:
                heard.add(key)
                found.append(statement)
        question = (asked, message) if asked else None
    return found


def normal(text: str) -> str:
    """The form under which two statements count as the same."""
    return " ".join(re.findall(r"(?<!\S)-\d+|[^\W_]+[+#%]*", text.casefold()))


def _names(messages: Sequence[Message]) -> dict[str, str]:
    return {m.sender_id: m.speaker for m in messages if m.role != "tool"}


def _of_message(
    message: Message, question: tuple[str, Message] | None, names: dict[str, str], said_at: datetime
) -> tuple[list[Statement], str]:
    """The statements of one message, and the question it ends with ("" if none)."""
    others = [name for sender, name in names.items() if sender != message.sender_id]
    raw = [s for s in sentences.split(_IMAGE.sub("", message.text)) if s]
    asked = grammar.tidied(raw[-1]) if raw and raw[-1].rstrip("\"')*").endswith("?") else ""
    company = _company(message.text, message.speaker, others)
    groups: list[list[_Part]] = []
    unbroken = False
    for index, sentence in enumerate(raw):
        if message.tool_calls and NEXT_MOVE.match(sentence):
            continue
        parts = list(_parts(sentence, message, others))
        if index == 0 and question is not None and question[1].sender_id != message.sender_id:
            answer = _answer(sentence, question, message, parts, said_at)
            if answer is not None:
                groups.append([answer])
                unbroken = True
                continue
        for part in parts:
            if not part.leans:
                groups.append([part])
            elif unbroken and groups and _can_join(groups[-1], part):
                groups[-1].append(part)
            unbroken = True
        if not parts:
            unbroken = False
    made = []
    for group in groups:
        text = _told(group, message, company, said_at)
        if text:
            ids = [message.id] if message.id else []
            if question is not None and group[0].message is question[1]:
                ids = [question[1].id, *ids]
            made.append(
                Statement(
                    text,
                    tuple(ids),
                    said_at,
                    message.sender_id,
                    message.speaker,
                    " ".join(p.text for p in group),
                )
            )
    for kind, caption in _IMAGE.findall(message.text):
        article = "an" if kind[0] in "aeiou" else "a"
        made.append(
            Statement(
                _ended(f"{message.speaker} shared {article} {kind}: {' '.join(caption.split())}"),
                (message.id,) if message.id else (),
                said_at,
                message.sender_id,
                message.speaker,
                caption,
            )
        )
    return made, asked


def _parts(sentence: str, message: Message, others: Sequence[str]) -> Iterator[_Part]:
    """The claims inside one sentence that are worth keeping, bared of address and exclamation."""
    text = grammar.tidied(sentence)
    if text.rstrip("\"')*").endswith("?") or len(text) > LONGEST_SENTENCE:
        return
    text = bared(text, others)
    if not is_english(text):
        said = len(words.word_set(text)) >= 4 or (len(text) >= 8 and not text.isascii())
        if said or german.is_about_oneself(text):
            yield _Part(text, message, leans=False)
        return
    text = with_subject(text)
    for claim in split_claims(text):
        claim = REQUEST.sub("", bared(claim, others).rstrip(" .!…"))
        claim = EVALUATION.sub("", claim.strip(" ,;-–—"))
        if claim and is_claim(claim):
            yield _Part(claim, message, leans=leans(claim))


def _can_join(group: Sequence[_Part], part: _Part) -> bool:
    size = sum(len(p.text.split()) for p in group) + len(part.text.split())
    said = telling([t.lower() for t in grammar.words_of(part.text) if t[0].isalnum()])
    return len(group) < 2 and size <= 40 and len(said) >= 3


# -- answers


def _answer(
    sentence: str, question: tuple[str, Message], message: Message, parts: Sequence[_Part], said_at: datetime
) -> _Part | None:
    """A short answer joined with its question, where the answer alone says nothing."""
    asked, asker = question
    text = grammar.tidied(sentence).strip()
    if not (_YES.match(text) or _NO.match(text)):
        text = bared(text, [asker.speaker])
    asked = re.sub(r"^.*?[.!]\s+(?=\S)", "", asked)
    asked = LEADS.sub("", asked).strip()
    if parts or text.endswith("?") or not 3 <= len(asked.split()) <= 16 or len(text.split()) > 12:
        return None
    content = {t for t in words.word_set(asked) if t not in STOP and t not in EMPTY}
    if (
        len(content) < 2
        or not SECOND.search(asked)
        or re.search(r"\b(?:it|that|this|these|those|they|them|there|he|she|him|her|one)\b", asked, re.I)
    ):
        return None
    asked = dates.with_absolute(asked, said_at)
    bare = text.rstrip(".!")
    if _YES_NO.match(asked):
        if _NO.match(text):
            return _Part(
                f'\0When {asker.speaker} asked "{asked}", {message.speaker} answered no', asker, leans=False
            )
        if _YES.match(text):
            return _Part(
                f'\0When {asker.speaker} asked "{asked}", {message.speaker} answered yes', asker, leans=False
            )
        return None
    if re.match(r"^(?:what|where|who|which|when|how (?:many|long|old|often|much))\b", asked, re.I):
        telling = {t for t in words.word_set(bare) if t not in STOP and t not in EMPTY}
        if (
            telling
            and not SOCIAL.search(text)
            and not SECOND.search(text)
            and not leans(bare + " ")
            and not _YES.match(text)
        ):
            bare = _absolute(
                grammar.spoken_by(bare, message.speaker, f"{message.speaker} and others"), said_at
            )
            return _Part(
                f'\0When {asker.speaker} asked "{asked}", {message.speaker} answered: {bare}',
                asker,
                leans=False,
            )
    return None


# -- telling


def _told(group: Sequence[_Part], message: Message, company: str, said_at: datetime) -> str:
    """The parts of a group as one sentence in the third person."""
    if group[0].text.startswith("\0"):
        return _ended(group[0].text[1:])
    pieces: list[str] = []
    for part in group:
        text = part.text.rstrip(" .!…")
        if not is_english(text):
            return _ended(f"{message.speaker} said: {dates.with_absolute(text, said_at)}")
        personal = bool(FIRST.search(text) or WE.search(text))
        told = grammar.spoken_by(_absolute(text, said_at), message.speaker, company)
        if not personal and not pieces:
            told = f"{message.speaker} said: {told[:1].upper()}{told[1:]}"
        elif pieces:
            told = told if told.startswith(message.speaker) else _lowered(told)
        pieces.append(told)
    return _ended("; ".join(pieces))


def _company(text: str, speaker: str, others: Sequence[str]) -> str:
    """What "we" means in a message: the speaker and the people it names."""
    if len(others) == 1 and re.search(
        r"\b(?:we both|we're both|both of us|you and me|you and i|we've both)\b", text, re.I
    ):
        return f"{speaker} and {others[0]}"
    found = _COMPANY.search(text)
    if not found:
        return f"{speaker} and others"
    who = re.sub(r"^my\b", f"{speaker}'s", found.group(), flags=re.I)
    return f"{speaker} and {who}"


_WITHOUT = lexicon("since until till by from of for before after around on in during the about between this")


_TIMELY = re.compile(
    r"\d|day|week|month|year|night|morning|evening|afternoon|noon|ago|last|next|this|now|tomorrow|decade|fortnight|spring|summer|fall|"
    r"autumn|winter|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|christmas|easter|eve|past|coming|hour|minute|century",
    re.I,
)


def _absolute(text: str, said_at: datetime) -> str:
    """`text` with its relative times replaced by dates, or, where that would not read, followed by them."""
    if not _TIMELY.search(text):
        return text
    out: list[str] = []
    at = 0
    for mention in dates.mentions(text, said_at):
        if mention.is_absolute:
            continue
        out.append(text[at : mention.begin])
        if text[mention.stop : mention.stop + 2] in {"'s", "’s"}:
            out.append(f"{mention.words}'s ({dates.shown(mention.start, mention.end)})")
            at = mention.stop + 2
            continue
        out.append(_dated(text, mention))
        at = mention.stop
    return "".join(out) + text[at:]


def _dated(text: str, mention: dates.TimeMention) -> str:
    said = mention.words.lower()
    before = text[: mention.begin].split()
    follows = text[mention.stop : mention.stop + 1]
    start, end = mention.start, mention.end
    shown = dates.shown(start, end)
    plain = re.fullmatch(
        r"(?:yesterday|today|tomorrow|(?:last|next|this past|this|past|this coming) (?:week|month|year|weekend|mon|tues|wednes|thurs|fri|satur|sun)\w*|"
        r"(?:on )?(?:last|next) \w+day|.+ ago|the day before yesterday)",
        said,
    )
    heads = not before and re.match(r"\s+(?:was|is|has|had|will|were)\b", text[mention.stop :])
    if (
        heads
        or follows in {"'", "’", "-"}
        or not plain
        or (before and before[-1].lower() in _WITHOUT and before[-1].lower() not in {"on", "in"})
    ):
        return f"{mention.words} ({shown})"
    if said in {"this week", "this month", "this year"}:
        return f"{mention.words} ({shown})"
    if before and before[-1].lower() in {"on", "in"}:
        return shown
    if start == end:
        return f"on {shown}"
    if (end - start) == timedelta(days=1):
        return f"on the weekend of {shown}"
    if (end - start) == timedelta(days=6):
        return f"in the week of {shown}"
    return f"in {shown}"


def _lowered(text: str) -> str:
    """`text` to go on after a semicolon: its first word small where it is no name."""
    first = text.split(" ", 1)[0].rstrip(",")
    lower = first.lower()
    is_plain = lower in STOP or lower in EMPTY or lower in grammar.ADVERBS or lower.endswith(("ing", "ly"))
    return text[:1].lower() + text[1:] if is_plain or lower in {"even", "crazy", "since", "now"} else text


def _ended(text: str) -> str:
    text = " ".join(text.split()).strip(" ,;-–—")
    return (
        text[:1].upper()
        + text[1:]
        + ("" if text.endswith((".", "!", "?", "。", "！", "？", "…", "।")) else ".")
        if text
        else ""
    )


def retold(
    sentence: str,
    message: Message,
    others: Sequence[str],
    zone: tzinfo,
    before: str = "",
    *,
    alone: bool = False,
) -> str:
    """One sentence of `message` in the third person with its dates, whatever it says; "" if it cannot stand alone.

    A sentence that leans on `before`, the one said just ahead of it, is told together with it; with `alone` it is
    told by itself although a pronoun in it points elsewhere.
    """
    said_at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
    parts = [_Part(text, message, leans=False) for s in (before, sentence) if (text := _plain(s, others))]
    if not parts or not _plain(sentence, others):
        return ""
    if leans(parts[-1].text) and not alone:
        if len(parts) < 2 or leans(parts[0].text) or not is_claim(parts[0].text):
            return ""
    else:
        parts = parts[-1:]
    if sum(len(part.text) for part in parts) > MAX_CHARS:
        return ""
    return _told(parts, message, _company(message.text, message.speaker, others), said_at)


def _plain(sentence: str, others: Sequence[str]) -> str:
    text = with_subject(bared(grammar.tidied(sentence), others)).rstrip(" .!…")
    return _with_addressee(text, others) if SECOND.search(text) else text


def _with_addressee(text: str, others: Sequence[str]) -> str:
    """`text` with "you" named, where one person was spoken to and "you" is not a subject; "" otherwise."""
    if len(others) != 1:
        return ""
    name = others[0]
    text = re.sub(r"\byours?\b", f"{name}'s", text, flags=re.I)
    text = re.sub(
        r"\b(?:you|ya)\b(?=\W*$|[,.;]| (?:in|on|at|to|for|with|about|and|after|before|when|if|there|soon|this|next|a|the|some|my)\b)",
        name,
        text,
        flags=re.I,
    )
    return "" if SECOND.search(text) else text
