"""Turns messages into statements that can be read alone: the speaker's words, who said them, and the days
they mean.

A message is taken apart into sentences. Code, tables, lists and letters are no statements, nor are greetings, thanks,
questions, hedges and empty reactions. What stays is quoted word for word behind the speaker's name, with the date in
brackets behind a relative time. A sentence that leans on the one before ("It's special to me") is quoted together with
it, and a bare answer with its question, or it is left out. Of what an assistant says only what it did, found, decided or
learned is kept. Pure and deterministic; the words by which this is judged are in `language/data/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from cairn.language import dates, prose, traits, words
from cairn.language.later import Later
from cairn.language.prose import Spoken
from cairn.strategies.phrases import Phrases, lowered, spoken
from cairn.types import Message

MAX_CHARS = 400
LONGEST_SENTENCE = 2000
_LONGEST_ANSWER, _FEW = 12, 4
_SHORT = 40
_ATTACHED = re.compile(r"\[(image|audio|doc|pdf|html|email): ([^\]]+)\]")
_BLANKED = re.compile(_ATTACHED.pattern + r"|(?<!\S)\{[a-z]+\}(?!\S)")
_SPECIFIC = re.compile(r"\d|[a-z][A-Z]|\w[_/]\w|\w\.\w|`|(?<=[\w,;] )[A-ZÀ-Þ][\w’'-]+")
_NAMED_THING = re.compile(r"\d[\d.,]*(?:%|\w)|\w[_/]\w|[^\W\d]\.\w|`|[a-z][A-Z]|\b\d{4}\b|\b\d{1,2}:\d\d\b")
_STOPPED = (".", "!", "?", "。", "！", "？", "…", "।", '"', "”", "»", ")", "]")
# A talk is a transcript of speech where this share of its turns has fillers in it, or a transcriber's blanks before signs:
# those nobody types, so a few turns are enough to tell.
_SPEECH, _TURNS, _MARKED = 0.15, 20, 0.3
_REPEATED = re.compile(r"\b(\w+)(?: ?,)?(?: \w{1,3})? \1\b", re.I)
_UNSPACED = Later(r"[\u3041-\u30ff\u3400-\u9fff]")
_CLAUSE = re.compile(r"[,;，；、] ?")
# What somebody else is to read, or what is to be worked on: quoted behind a colon or on a line of its own, however many
# sentences it has.
_HANDED = re.compile(r"[:：\n][^\S\n]*[\"“„«「『]([^\"”“»」』]{20,2000})[\"”“»」』]")
_SPACED = re.compile(r" (?=['’,.;!?])")
# A transcriber's blank before a sign, which nobody said.
_APART = re.compile(r"(?<=[\w)]) (?=[,.;!](?:\s|$))")
_TRANSCRIBED = re.compile(r"(?<=[\w)]) (?=[,.](?:\s|$))")
_BROKEN = re.compile(r"(?<!\S)(?![aAI]\b)[b-zB-HJ-Z](?!\S)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One claim in its speaker's words, with the messages it comes from.

    `about` are the owners it belongs to (the speaker, and whom it names of those present); nobody means everybody.
    `sentence` are the words alone; `to_agent` says that they were said to an agent.
    """

    text: str
    message_ids: tuple[str, ...]
    said_at: datetime
    speaker_id: str
    speaker: str
    sentence: str
    about: tuple[str, ...] = ()
    to_agent: bool = False
    attribute: str = ""
    """What a model says it sets of its speaker, for what has one value at a time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The context of a sentence: who talks, with an agent or not, spoken or written."""

    names: dict[str, str]
    has_agent: bool
    is_speech: bool
    is_alone: bool = False

    @property
    def to_agent(self) -> bool:
        """Whether an order is meant for an agent: one is there, or one person speaks to nobody else."""
        return self.has_agent or self.is_alone

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Setting:
        people = {m.sender_id: m.speaker for m in messages if m.role != "tool"}
        turns = [m for m in messages if m.role == "user" and m.text.strip()]
        noisy = sum(bool(spoken(m.text).speech.search(m.text)) for m in turns)
        agent = any(m.role != "user" for m in messages)
        transcribed = sum(bool(_TRANSCRIBED.search(m.text)) for m in turns)
        is_speech = (transcribed > _MARKED * len(turns) and not agent) or (
            len(turns) >= _TURNS and noisy > _SPEECH * len(turns)
        )
        return cls(people, agent, is_speech, is_alone=len({m.sender_id for m in turns}) == 1)

    def named(self, text: str, message: Message) -> list[str]:
        """The ids of those present whom a message of someone else names."""
        return [s for s, name in self.names.items() if s != message.sender_id and _names(text, name)]

    def others(self, message: Message) -> list[str]:
        """The names of those who are spoken to."""
        return [name for sender, name in self.names.items() if sender != message.sender_id]


class Told:
    """One message with the days its words mean, resolved once for everything that is made of it."""

    def __init__(self, message: Message, zone: tzinfo, talk: Sequence[Message] = ()) -> None:
        self.message = message
        self._talk = talk
        self.at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
        # Blanks for what is attached, and for a transcriber's {laugh}: every place in the text stays where it is.
        self.text = _BLANKED.sub(lambda found: " " * len(found.group()), message.text)
        self._mentions: list[dates.TimeMention] | None = None

    @property
    def mentions(self) -> list[dates.TimeMention]:
        """The times named in the message, in order."""
        if self._mentions is None:
            around = (message.text for message in self._talk)
            self._mentions = dates.settled(dates.mentions(self.text, self.at), around)
        return self._mentions

    def quoted(self, begin: int, stop: int) -> str:
        """The words from `begin` to `stop`, on one line, with the date behind each relative time."""
        inside = [
            replace(m, begin=m.begin - begin, stop=m.stop - begin)
            for m in self.mentions
            if begin <= m.begin and m.stop <= stop
        ]
        return " ".join(dates.beside(self.text[begin:stop], inside).split())

    def said(self) -> Iterator[Spoken]:
        """The sentences that are the speaker's own."""
        return prose.spoken(self.text)


def statements_of(
    messages: Sequence[Message], zone: tzinfo, pause: Callable[[], object] = lambda: None
) -> list[Statement]:
    """The statements made in `messages`, in order, each one once; `pause` is called between messages."""
    setting = Setting.of(messages)
    found: list[Statement] = []
    heard: set[str] = set()
    question: tuple[str, Message] | None = None
    asker, asked_by = "", ""
    latest: dict[str, str] = {}
    for message in messages:
        if message.role == "tool" or not message.text.strip():
            continue
        pause()
        asker = message.sender_id if message.role == "user" else asker
        told = Told(message, zone, messages)
        said = list(told.said())
        if said and _is_withdrawal(said[0].text):
            found = [one for one in found if one.message_ids != (latest.get(message.sender_id),)]
        latest[message.sender_id] = message.id
        made = (
            _assistants(told, said, asker)
            if message.role == "assistant"
            else _peoples(told, said, setting, question, asked_by)
        )
        for statement in (*made, *_attached(told)):
            key = normal(statement.text)
            if key not in heard and len(statement.text) <= MAX_CHARS:
                heard.add(key)
                found.append(statement)
        last = said[-1].text if said else ""
        asks = spoken(last).is_question(last)
        asked_by = message.sender_id if asks else ""
        question = (" ".join(last.split()), message) if asks else None
    return found


def normal(text: str) -> str:
    """The form under which two statements count as the same."""
    return " ".join(re.findall(r"(?<!\S)-\d+|[^\W_]+[+#%]*", text.casefold()))


# -- what people say


def _peoples(
    told: Told,
    said: Sequence[Spoken],
    setting: Setting,
    question: tuple[str, Message] | None,
    asked_by: str,
) -> Iterator[Statement]:
    answered = _answer(told, said, setting, question)
    if answered is not None:
        yield answered
    others = setting.others(told.message)
    groups: list[tuple[int, int]] = []
    before: Spoken | None = None
    handed = [found.span(1) for found in _HANDED.finditer(told.text)]
    for one in said:
        if any(begin - 1 <= one.begin < stop for begin, stop in handed):
            continue  # a sentence of a text that is to be translated
        phrases = spoken(one.text)
        if phrases.playing.search(one.text):
            break  # what follows is said by somebody they play
        is_reply = one is said[0] and bool(asked_by) and asked_by != told.message.sender_id
        if is_reply and (answered or _is_bare_answer(phrases.bared(one.text, others), phrases)):
            before = one
            continue
        if before is not None and _is_withdrawal(one.text) and groups and groups[-1][1] >= before.begin:
            groups.pop()
        for begin, stop, is_joined in _kept(one, before, phrases, others, setting):
            if is_joined and groups and before is not None and groups[-1][1] >= before.stop:
                groups[-1] = (groups[-1][0], stop)
            else:
                groups.append((begin, stop))
        before = one
    for begin, stop in groups:
        if (statement := _made(told, begin, stop, setting)) is not None:
            yield statement


def _kept(
    one: Spoken, before: Spoken | None, phrases: Phrases, others: Sequence[str], setting: Setting
) -> Iterator[tuple[int, int, bool]]:
    """What of a sentence is kept: from where to where, and whether it goes with the sentence before."""
    if len(one.text) > LONGEST_SENTENCE:
        return  # no sentence anyone said
    core = phrases.bared(one.text, others)
    begin = one.stop - len(core)
    if phrases.joking.search(one.text):
        return  # said and taken back in one breath, or meant the other way round
    if phrases.speech.search(core):
        return  # half a sentence and a search for words, whoever wrote it down
    if setting.is_speech:
        if is_binding(core, phrases):
            yield begin, one.stop, False
        return
    is_unreal = phrases.is_unreal(core)
    stated = 0 if is_unreal else stated_part(core, phrases)
    told = 0
    if 0 < stated < MAX_CHARS and _is_worth(core[:stated], phrases, setting):
        is_rule = setting.has_agent and phrases.ruling.search(core[:stated])
        if is_rule or not phrases.leans(core[:stated]):
            told = stated
            yield begin, begin + stated, False
        elif before is not None and one.follows and supports(before, phrases, others):
            told = stated
            yield before.stop - len(phrases.bared(before.text, others)), begin + stated, True
    asked = traits.asked_for(core)
    for trait in _told(core, phrases, setting):
        # "If the build were red, never merge it" is an order all the same, "were I rich, I'd never cook" is none.
        is_order = trait.category == traits.INSTRUCTION and phrases.own_clause(core) is None
        if trait.begin >= told and (not is_unreal or is_order):
            # "Remember that ..." stays with what is to be remembered.
            yield begin + (0 if trait.begin == asked else trait.begin), begin + trait.stop, False


def _is_withdrawal(sentence: str) -> bool:
    """Whether a few words say that what was said before them was a joke."""
    return len(sentence) <= _SHORT and spoken(sentence).joking.search(sentence) is not None


def stated_part(core: str, phrases: Phrases) -> int:
    """How much of a sentence states something: all of it, or what stands before the request or doubt it ends with."""
    whole = (
        not phrases.is_question(core) and not phrases.second.search(core) and not phrases.hedged.search(core)
    )
    if whole or not phrases.is_full:
        return len(core) if whole else 0
    for found in phrases.request.finditer(core, 16):
        head = core[: found.start()].rstrip(" ,;-")
        if phrases.first.search(head) and not phrases.second.search(head) and not phrases.hedged.search(head):
            return len(head)
    return 0


def _is_worth(text: str, phrases: Phrases, setting: Setting) -> bool:
    if phrases.small_talk.search(text) or phrases.second.search(text):
        return False
    is_plain = phrases.selves.match(text.rstrip(" .!…。！")) and not phrases.is_question(text)
    is_rule = setting.has_agent and phrases.ruling.search(text)
    if is_plain or is_rule or phrases.worth.search(text) or any(_told(text, phrases, setting)):
        return True
    if _is_of_late(text, phrases):
        return True
    if not phrases.is_claim(text):
        return False
    if not (setting.has_agent and phrases.is_full):
        return True
    # To an agent people mostly say what they are at: what is worth keeping of that names something.
    is_named = _NAMED_THING.search(text) and phrases.possessive.search(text)
    framed = phrases.frames.match(text) or (phrases.tasks.match(text) and not is_named)
    framed = framed and not phrases.beside_frame.search(text)
    own = phrases.first.search(text) or phrases.we.search(text) or _NAMED_THING.search(text)
    own = own or phrases.dated.search(text)
    lived = phrases.first.search(text) and phrases.life.search(text)
    return bool((_SPECIFIC.search(text) and own) or lived) and not framed


def _is_of_late(text: str, phrases: Phrases) -> bool:
    """Whether its speaker tells what they did, and when: "I handed in my thesis ten days ago"."""
    if not phrases.first.search(text) and not phrases.we.search(text):
        return False
    is_task = phrases.frames.match(text) or phrases.tasks.match(text)
    if is_task or phrases.is_question(text) or phrases.hedged.search(text) or not dates.looks_back(text):
        return False
    plain = dates.without_lately(text)
    return plain != text and phrases.possessive.search(plain) is not None


def _told(text: str, phrases: Phrases, setting: Setting) -> Iterator[traits.Trait]:
    """What a sentence says of its speaker that can be read without the one before."""
    for trait in traits.traits_of(text, to_agent=setting.to_agent):
        clause = text[trait.begin : trait.stop]
        of_life = trait.category in ("Preference", "Habit")
        if of_life and phrases.is_full and not phrases.telling(lowered(clause)):
            continue  # a taste for nothing in particular; "I never get anything done"
        if trait.category != traits.INSTRUCTION and phrases.small_talk.search(clause):
            continue
        if trait.begin and phrases.is_full and not phrases.has_verb(lowered(clause)):
            continue  # "... in my cousin's van"
        if not setting.to_agent and phrases.second.search(clause):
            continue  # said for the listener's sake
        # A wish is worth having though a word in it points elsewhere, where it says enough besides.
        enough = {traits.INSTRUCTION: 2, "Preference": 3}.get(trait.category)
        wish = enough is not None and len(phrases.telling(lowered(clause))) >= enough
        is_formed = enough is not None and setting.to_agent and traits.is_wish(clause)
        if wish or is_formed or not phrases.leans(clause):
            yield trait


def is_binding(text: str, phrases: Phrases) -> bool:
    """Of speech that was written down, only what is said cleanly and binds someone: a decision, a task, a figure."""
    text = _SPACED.sub("", text)
    unclean = phrases.filler.search(text) or _REPEATED.search(text) or _BROKEN.search(text)
    unclean = unclean or phrases.speech.search(text)
    to_them = phrases.second.search(text) and not phrases.handed.search(text)
    quiet = phrases.hedged.search(text) or to_them or phrases.is_question(text)
    if unclean or quiet or phrases.torn.match(text) or not text.endswith(".") or len(text) > MAX_CHARS:
        return False
    tokens = lowered(text)
    is_told = len(phrases.telling(tokens)) >= 3 and phrases.has_verb(tokens) and not phrases.leans(text)
    return is_told and bool(phrases.binding.search(text))


def supports(before: Spoken, phrases: Phrases, others: Sequence[str]) -> bool:
    """Whether a sentence can carry the one that leans on it: it states something, and leans on nothing itself."""
    core = phrases.bared(before.text, others)
    said = phrases.telling(lowered(core))
    quiet = phrases.is_question(core) or phrases.second.search(core) or phrases.hedged.search(core)
    quiet = quiet or phrases.small_talk.search(core)
    is_told = len(core) < 250 and len(said) >= 2 and not quiet and not phrases.is_unreal(core)
    # "Six ans. Elle ...": an answer of two words carries nothing.
    is_whole = phrases.is_full or not phrases.has_blanks or len(lowered(core)) >= phrases.least
    return is_told and is_whole and not phrases.leans(core)


def _made(told: Told, begin: int, stop: int, setting: Setting) -> Statement | None:
    message = told.message
    words_said = " ".join(told.text[begin:stop].split())
    text = quote(message.speaker, told.quoted(begin, stop), is_cut=_is_cut(told.text, stop))
    if not words_said or len(text) > MAX_CHARS:
        return None
    return Statement(
        text,
        (message.id,) if message.id else (),
        told.at,
        message.sender_id,
        message.speaker,
        words_said,
        (message.sender_id, *sorted(setting.named(words_said, message))),
        setting.to_agent,
    )


def _names(text: str, name: str) -> bool:
    first = name.split(maxsplit=1)[0] if name.strip() else ""
    return len(first) > 1 and re.search(rf"(?<!\w){re.escape(first)}(?!\w|['’]s\b)", text) is not None


def _is_cut(text: str, stop: int) -> bool:
    """Whether the sentence goes on behind `stop`."""
    rest = text[stop:].lstrip(" \t.!…。！)\"'”")
    return (
        bool(rest)
        and rest[0] not in "\r\n"
        and text[stop - 1] not in ".!?…。！？"
        and not re.match(r"\s*[.!…。！\r\n]", text[stop:])
    )


def quote(speaker: str, said: str, *, is_cut: bool = False) -> str:
    """Words behind the name of who said them, ended as a sentence; three dots where more was said.

    >>> quote("Ana", "I moved to Oslo")
    'Ana: I moved to Oslo.'
    """
    said = _APART.sub("", said.strip(" ,;-–—"))
    stop = "。" if said and _UNSPACED.now.match(said[-1]) else "."
    end = " …" if is_cut else "" if said.endswith(_STOPPED) else stop
    return f"{speaker}: {said}{end}"


def _attached(told: Told) -> Iterator[Statement]:
    message = told.message
    for kind, caption in _ATTACHED.findall(message.text):
        if not _SPECIFIC.search(caption):
            continue  # "a photo of a barn" tells nobody anything; it stays with the message
        article = "an" if kind[0] in "aeiou" else "a"
        text = f"{message.speaker} shared {article} {kind}: {' '.join(caption.split())}"
        ids = (message.id,) if message.id else ()
        text = text if text.endswith(_STOPPED) else f"{text}."
        yield Statement(text, ids, told.at, message.sender_id, message.speaker, caption, (message.sender_id,))


# -- answers


def _answer(
    told: Told, said: Sequence[Spoken], setting: Setting, question: tuple[str, Message] | None
) -> Statement | None:
    """A short answer quoted with its question, where the answer alone says nothing."""
    message = told.message
    if question is None or question[1].sender_id == message.sender_id or not said or setting.is_speech:
        return None
    asked, asker = question
    phrases = spoken(asked)
    first = said[0]
    core = phrases.bared(asked, [message.speaker])
    answer = phrases.bared(first.text, [asker.speaker])
    if not _is_plain_question(core, phrases) or _length(first.text, phrases) > _LONGEST_ANSWER:
        return None
    if asker.role != "user" and (phrases.first.search(core) or phrases.we.search(core)):
        return None  # an agent asks what it is to do
    # "My neighbour Ines" has no verb: of a language whose verbs are not known, so few words stay with their question.
    is_few = (
        not phrases.is_full and _length(answer, phrases) < _FEW and not any(_told(answer, phrases, setting))
    )
    is_alone = not (is_few or _is_bare_answer(answer, phrases)) and _kept_alone(
        first, phrases, setting, asker
    )
    if is_alone or phrases.is_question(first.text):
        return None
    if phrases.yes_no.match(core):
        if not (phrases.yes.match(first.text) or phrases.no.match(first.text)) or len(said) > 1:
            return None
    elif (
        not phrases.asked_for.match(core)
        or not phrases.telling(lowered(answer))
        or phrases.evasive.match(answer)
        or phrases.small_talk.search(first.text)
        or phrases.second.search(first.text)
        or phrases.hedged.search(first.text)
        or phrases.joking.search(first.text)
        or (phrases.leans(answer) and not phrases.resumed.match(answer))
    ):
        return None
    text = f"{asker.speaker}: {asked} {quote(message.speaker, told.quoted(first.begin, first.stop))}"
    ids = tuple(one for one in (asker.id, message.id) if one)
    return Statement(text, ids, told.at, message.sender_id, message.speaker, first.text, (message.sender_id,))


def _length(text: str, phrases: Phrases) -> int:
    """How many words are said; of words that are not parted, half the letters."""
    return len(text.split()) if phrases.has_blanks else len(text) // 2


def _is_bare_answer(core: str, phrases: Phrases) -> bool:
    """Whether a few words answer a question and do not begin with a person, in a language whose verbs are not known.

    "Au restaurant, on était quinze" is half an answer, though its second half names somebody.
    """
    opening = _CLAUSE.split(core)[0]
    own = phrases.first.search(opening) or phrases.we.search(opening)
    short = (
        len(core.split()) <= _LONGEST_ANSWER * 2 // 3 if phrases.has_blanks else len(core) <= _LONGEST_ANSWER
    )
    return not phrases.is_full and short and not own


def _kept_alone(first: Spoken, phrases: Phrases, setting: Setting, asker: Message) -> bool:
    return any(_kept(first, None, phrases, [asker.speaker], setting))


def _is_plain_question(asked: str, phrases: Phrases) -> bool:
    """Whether a question says by itself what it asks: of the listener, of something named, and no mere courtesy."""
    content = phrases.telling(list(words.word_set(asked)))
    return (
        3 <= _length(asked, phrases) <= 16
        and len(content) >= (1 if phrases.asked_for.match(asked) else 2)
        and bool(phrases.second.search(asked) or phrases.asked_for.match(asked))
        and not phrases.pointed_at.search(asked)
        and not phrases.offers.match(asked)
    )


# -- what an assistant says


def _assistants(told: Told, said: Sequence[Spoken], asker: str) -> Iterator[Statement]:
    """What an assistant did, found, decided or learned, of a message that is a report and not an essay."""
    message = told.message
    before: Spoken | None = None
    for one in said:
        phrases = spoken(one.text)
        begin = one.begin
        to_them = phrases.second.search(one.text) and not phrases.reported.match(one.text)
        is_report = (phrases.result.search(one.text) or phrases.reported.match(one.text)) and not to_them
        moves = message.tool_calls and phrases.next_move.match(one.text)
        quiet = phrases.is_question(one.text) or phrases.hedged.search(one.text) or len(one.text) > 300
        quiet = bool(quiet or phrases.agreed.match(one.text))
        past = bool(message.tool_calls) and _SPECIFIC.search(one.text) and phrases.is_claim(one.text)
        if (is_report or past) and not moves and not quiet and len(phrases.telling(lowered(one.text))) >= 3:
            if phrases.leans(one.text):
                if before is None or not one.follows or not supports(before, phrases, ()):
                    before = one
                    continue
                begin = before.begin
            text = quote(message.speaker, told.quoted(begin, one.stop))
            ids = (message.id,) if message.id else ()
            about = (asker,) if asker else ()
            yield Statement(text, ids, told.at, message.sender_id, message.speaker, one.text, about, True)
        before = one
