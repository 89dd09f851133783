"""Which of a person's sentences say something, and what they need to stand alone. English chat, as it is written.

Patterns for greetings, thanks and reactions; sentences without their subject; and the pronouns that point at
something said before. All of it is judged from the words alone, so it errs towards leaving a sentence out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from cairn.strategies import german, grammar
from cairn.strategies.grammar import lexicon

LEADS = re.compile(
    r"^(?:(?:so far,? so good|and|but|so|well|also|plus|anyway|anyways|oh|ah|aw|aww|wow|yeah|yep|yup|yes|no|nope|nah|hey|hi|hello|hmm|haha|lol|ok|okay|"
    r"sure|absolutely|definitely|totally|exactly|right|true|honestly|actually|basically|seriously|literally|thanks|thank you|cool|nice|great|"
    r"awesome|amazing|by the way|btw|to be honest|tbh|i mean|you know|you see|of course|for sure|no problem|sounds good|good|anyhow|"
    r"in fact|luckily|fortunately|unfortunately|sadly|sorry|congrats|congratulations|totally agree|agreed|guess what|look|listen|man|gosh|oof|phew|"
    r"ugh|yay|woah|whoa|woohoo|that said|speaking of which|as for me|personally|not much|same here|me too|yea|ya)"
    r"(?:[,!.…:;]+| -| –|—)\s*)+",
    re.I,
)
_SINCE_LAST = re.compile(
    r"^(?:since|after) (?:the|our|we) last (?:chat|talk|conversation|talked|spoke|chatted)\w*,? ", re.I
)
_GREETING = re.compile(r"^(?:hello|hi|hey)(?: there| all| everyone| team)?,? +(?=(?:I|we|my|our)\b)", re.I)
_SOFT_LEADS = re.compile(
    r"^(?:and|but|so(?! far)|also|plus|well|yeah|yep|yes|oh|then|or|like|though)\s+(?=[a-z'])", re.I
)
SOCIAL = re.compile(
    r"\b(?:thanks|thank you|thx|good to (?:see|hear)|great to (?:see|hear)|nice to (?:see|hear)|glad (?:you|to hear|it|that you)|happy for you|"
    r"proud of you|how are you|how's it|what's up|talk to you|talk soon|see you|see ya|take care|good luck|congrat\w*|sounds (?:great|good|awesome|fun|amazing|like)|"
    r"let me know|let's|keep (?:it )?up|keep going|have fun|have a (?:great|good|nice)|cheers|no worries|no problem|you're welcome|"
    r"i (?:totally |completely |really )?(?:agree|appreciate (?:it|that|you\w*|your|the)|hear you|get it|understand|bet|know|hope so|think so|feel (?:you|that way))(?=[.,!]|$| (?:with )?(?:you|how|what|that feeling))|"
    r"i'm (?:all ears|here for you|so happy for|so glad|glad|sorry|(?:really |so |totally )?proud of you|always here|rooting)|i love (?:that|it|this)(?=[.,!]|$)|"
    r"can't wait to (?:see|hear)|looking forward to (?:seeing|hearing|it|that)|hope (?:you|to see|to hear|it|that you)|i'd love to (?:see|hear|join|come|check)|count me in|"
    r"check (?:it|this|that) out|take a look|here's|here is|speaking of|(?:that|it|this) (?:must|sounds?|looks?) |wish(?:ing)? you|i'll (?:let you|keep you|send you)|what about you|guess what|i did it(?=[.!]|$)|^i bet\b|\bi mean\b|check out (?:this|these|the|that|my)|\bthis (?:pic|photo|picture)\b|^on another note|i'm (?:so |pretty )?sure\b|(?:my|our) best\b|no doubt|stayed away|i (?:really |just |also )?(?:love|like) the (?:colou?rs?|way|vibe|patterns?|design|idea|look|sound|view|theme|message|photo|self-|thought)|my fingers|fingers crossed|can't wait for (?:the|it|this|that)\b|stay(?:ing)? (?:determined|positive|focused|strong|motivated|optimistic)|believing in|my true self|everything just right|\bfriendship\b|i'm doing (?:well|good|great|okay|fine|alright)|(?:last|since we) (?:talked|spoke|chatted|met|last)|^(?:so |really |very )?(?:glad|happy|sorry|stoked|pumped) (?!to have)|"
    r"like (?:this|that|these|those)(?=\W*$| (?:can|make|remind|help|keep|give|show))|keep (?:plugging|grinding|pushing|at it|moving)|out of this world|for (?:this|that)(?=\W*$| for)|it all|^(?:sounds|looks|seems|wish|hope)\b|means a lot|means so much|this (?:journey|ride)|i'm (?:really |so |super |very )?(?:excited|happy|stoked|pumped)(?= (?:about|for) (?:it|this|that)|[.!]|$))",
    re.I,
)
SECOND = re.compile(r"\b(?:you|your|yours|yourself|you'(?:re|ve|ll|d)|y'all)\b", re.I)
FIRST = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b(?!-)")
WE = re.compile(r"\b(?:we|we're|we've|we'll|we'd|us|our|ours|ourselves)\b", re.I)
EVALUATION = re.compile(
    r"(?:(?:,| [-–—]|;|\.|,? which|,? but)+ (?:it|that|this|they|which|it all)?|,? and (?:it|that|this|they|it all))(?:'s| is| was|'re| are| were|'s been| has been| felt)? ?"
    r"(?:(?:so|really|pretty|such|a|an|very|super|quite|just|truly|been|feels?|feeling|total|totally|real|absolutely|tough|hard|and|but|lots? of|the) )*"
    r"(?:great|good|nice|cool|awesome|amazing|wonderful|fantastic|lovely|beautiful|fun|exciting|special|powerful|blast|incredible|inspiring|rewarding|"
    r"tough|hard|best|perfect|interesting|stunning|relaxing|challenging|magical|scary|crazy|wild|happy|sweet|worth it|so much fun|unforgettable|priceless|delicious|yummy)"
    r"(?: (?:experience|feeling|time|moment|day|to see|night|ride|memory))?$",
    re.I,
)
# What follows is asked of the listener, not told: ", so please send me the file".
REQUEST = re.compile(
    r",? +(?:(?:so|and|then),? +)?(?:please\b|(?:can|could|would|will) (?:you|someone|anyone)\b).*$", re.I
)
_HEDGED = re.compile(
    r"\b(?:maybe|perhaps|might|not sure|i guess|i suppose|who knows|possibly|i wonder|probably|if only|i wish|(?-i:may))\b",
    re.I,
)
_IMPERATIVE = re.compile(
    r"^(?:please |just |don't |never |always )*(?:let|keep|take|try|go|check|look|tell|remember|enjoy|imagine|believe|stay|come|give|send|show|make sure|"
    r"be |have a|hang|follow|trust|feel free|ask|call|watch|listen|don't|do |get |wait|hold|stop|start|think of|picture|focus|find|put|use|read|write|dream|embrace|celebrate|cherish|dance|stick|work hard)\b",
    re.I,
)
_OMITTED = (
    (
        re.compile(
            r"^(?:going to(?! be\b|.*\b(?:has|have) (?:given|been|made|helped|taught|shown)\b)|hoping to|planning (?:to|on)|thinking (?:of|about)|looking forward|trying to|excited (?:to|about)|so excited|ready to|off to)\b",
            re.I,
        ),
        "I'm ",
    ),
    (
        re.compile(
            r"^(?:looking for|working on|getting|feeling|starting|taking|doing|learning|loving)\b(?!.*\b(?:can|is|was|are|helps?|makes?|has|will|gives?|brings?|could|takes)\b)",
            re.I,
        ),
        "I'm ",
    ),
    (
        re.compile(
            r"^(?:been (?=\w+ing|to |busy|really|super)|always wanted|always been|never been|never had|never tried|already|got to)\b",
            re.I,
        ),
        "I have ",
    ),
    (re.compile(r"^(?:can't wait|cannot wait|can't believe|couldn't|would love|wouldn't)\b", re.I), "I "),
    (
        re.compile(
            r"^(?:just|recently|finally|also|actually) (?:also |just )?(?=\w+ed\b|got\b|went\b|had\b|made\b|saw\b|took\b|did\b|found\b|bought\b|started\b|came\b|won\b|lost\b|wrote\b|read\b|met\b)",
            re.I,
        ),
        "I ",
    ),
    (
        re.compile(
            r"^(?:went|had|got|saw|took|bought|met|made|did|won|lost|wrote|found|started|finished|visited|joined|moved|love (?:the|this|my|to|\w+ing)|enjoy|tried|decided|spent|hope to|plan to|want to|need to|have to|loved|liked|didn't|haven't|wasn't|couldn't|gave|felt|ended up|told|watched|played|worked|learned)\b",
            re.I,
        ),
        "I ",
    ),
)
_POINTING = lexicon(
    """it it's it'll it'd its they they're they've them their theirs he he's she she's him her his hers
    this that that's those these there one ones here"""
)
_EXPLETIVE = re.compile(
    r"^(?:it's (?:been )?(?:a |an )?\w+ (?:to(?! (?:me|us|him|her|my|them|our|you)\b)|that|how|when|for)\b|it(?:'s| is| was) (?:so |really |very )?\w+ (?:to(?! (?:me|us|him|her|my|them|our|you)\b)|that|how|seeing|having|being|when)\b|it (?:takes|took|rained|snowed)\b|there(?:'s| is| are| was| were)\b)",
    re.I,
)
EMPTY = lexicon(
    """great good nice cool awesome amazing wonderful fantastic lovely beautiful fun funny happy glad sad
    sorry excited exciting important special super pretty so really very much lot lots thing things
    stuff way time times day days life feel feeling feels felt love loved loves like liked likes know
    think thought thinks hope hopes see seen say said got get gets getting make makes made go going goes
    went come came want wants need needs keep sure yes yeah no wow thanks thank hey hi bit kind sort
    always never even still just too also actually definitely totally truly absolutely right true best
    better perfect interesting inspiring incredible blast awesome sweet neat agree helps help helped
    works work means mean meant keeps part such one ones some something someone anything everything
    people everyone today lately really back more most many new well able ways find finds ready can
    could would will true"""
)
STOP = lexicon(
    """a an the and or but so if then than that this these those there here it its is are was were be been
    being am i me my mine we us our you your he she they them their his her him in on at to of for from
    with by as about into over after before up down out off not no do does did done have has had having
    can could would should will shall may might must what which who whom when where why how all any both
    each few more other own same too very just it's i'm i've i'd i'll that's don't didn't isn't wasn't
    can't she's he's they're"""
)
_BETWEEN = re.compile(
    r"(?:,? (?:and|but|so) |; ?| [-–—] |, )(?=(?:I|I'm|I've|I'd|I'll|we|we're|we've|we'll)\s)"
)


def bared(text: str, others: Sequence[str]) -> str:
    """`text` without interjections and without the name of the person spoken to."""
    called, calling = _calls(tuple(others))
    before = None
    while before != text:
        before = text
        text = LEADS.sub("", text)
        text = _SINCE_LAST.sub("", text)
        text = _GREETING.sub("", text)
        text = called.sub("", text)
        text = _SOFT_LEADS.sub("", text)
    return calling.sub("", text).strip()


@functools.lru_cache(maxsize=256)
def _calls(others: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for being addressed at the start and at the end of a sentence, by name or the start of it."""
    names = "|".join(
        re.escape(n) + "|" + re.escape(n.split()[0][:3]) + r"\w{0,6}" for n in others if n.strip()
    )
    names = names or r"(?!)"
    called = re.compile(
        r"^(?:(?:hey|hi|hello|wow|oh|yeah|yes|thanks|woah|whoa|aw|aww|oof|yo|nice|cool|great|congrats|dear),?\s+)?"
        rf"(?:{names})\b\s*[,!.:-]+\s*",
        re.I,
    )
    return called, re.compile(rf",\s*(?:{names}|buddy|man|dude|friend|bro|girl)\s*(?=[.!]*$)", re.I)


def with_subject(text: str) -> str:
    """Put the speaker back where chat leaves "I" out."""
    text = re.sub(r"^(?:for|as for|to) me,? (?=I\b)", "", text, flags=re.I)
    for pattern, lead in _OMITTED:
        if pattern.match(text):
            return lead + text[0].lower() + text[1:]
    return text


def split_claims(text: str) -> list[str]:
    """Part a sentence where a new clause starts with its own "I" or "we"."""
    pieces: list[str] = []
    at = 0
    for match in _BETWEEN.finditer(text):
        left, right = text[at : match.start()], text[match.end() :]
        bound = re.search(
            r"\b(?:if|when|because|since|while|whenever|although|though|after|before|as|what|where|how|why|that|which|who)\b",
            left,
            re.I,
        )
        own = re.match(r"^(?:I|I'm|I've|I'd|I'll|we|we're|we've|it|it's|that's|my)\b", left.strip(), re.I)
        if not has_verb([t.lower() for t in grammar.words_of(left) if t[0].isalnum()]):
            continue
        if match.group() == ", " and (bound or not own or len(right.split()) < 4):
            continue
        if (len(left.split()) < 4 and not own) or len(right.split()) < 4:
            continue
        if (
            bound
            and bound.start() < 25
            and bound.group().lower()
            in {
                "if",
                "when",
                "whenever",
                "although",
                "though",
                "while",
                "since",
                "after",
                "before",
                "as",
                "because",
            }
            and bound.start() == 0
        ):
            continue
        if re.search(r"\b(?:so)\b", match.group()) and re.search(r"\b(?:so|such)\b", left):
            continue
        pieces.append(left)
        at = match.end()
    pieces.append(text[at:])
    return [p for p in pieces if p.strip()]


def is_claim(text: str) -> bool:
    """Whether a sentence says something that may be worth knowing later."""
    tokens = [t.lower() for t in grammar.words_of(text) if t[0].isalnum()]
    plainly = re.match(
        r"^I(?: \w+ly)? (?:love|like|hate|enjoy|prefer|play|speak|teach|study|own|collect|eat|drink) \w+",
        text,
    )
    if len(tokens) < (3 if plainly else 4) or text.endswith("?"):
        return False
    if SOCIAL.search(text) or _HEDGED.search(text) or _IMPERATIVE.match(text):
        return False
    if SECOND.search(text) and not re.match(
        r"^I(?:'ve| have)? (?:just |also |already )?(?:told|sent|changed|fixed|added|made|set|gave|showed|moved|updated|created|removed|deployed|installed|booked|bought)\b",
        text,
    ):
        return False
    if re.match(r"^we (?:all|should|need to|can all|must)\b", text, re.I):
        return False
    if re.match(r"^(?:what|how|such) (?:a|an|great|nice|awesome|cool)\b", text, re.I):
        return False
    if re.search(r"[,-] (?:didn't|wasn't|couldn't|haven't|not|but no)\b", text) and not FIRST.search(text):
        return False
    if not FIRST.search(text) and not _is_specific(text, tokens):
        return False
    said = telling(tokens)
    named = FIRST.search(text) and re.search(r"\d|(?<=[a-z,] )[A-Z][a-z]+", text)
    return len(said) >= (1 if named or plainly else 2) and has_verb(tokens)


def telling(tokens: Sequence[str]) -> set[str]:
    return {t for t in tokens if t not in STOP and t not in EMPTY and not t.endswith("n't")}


def _is_specific(text: str, tokens: Sequence[str]) -> bool:
    """Whether a sentence without the speaker in it tells of something in particular, not of life in general."""
    we = re.search(r"\bwe(?:'re|'ve|'ll)?\s+(?:\w+ly )?(\w+)", text, re.I)
    if we:
        usual = re.search(r"\b(?:usually|every|often|once|regularly|each)\b", text, re.I)
        if we.group(1).lower() in grammar.MODALS:
            return False
        return bool(
            "'" in we.group()
            or grammar.is_past(we.group(1))
            or re.search(r"\bwe (?:are|have) (?:\w+(?:ing|ed|en)|been|an?|two|three|\d+)\b", text, re.I)
            or usual
        )
    if WE.search(text):
        return any(grammar.is_past(t) for t in tokens)
    if re.search(r"\d|[a-z][A-Z]|\w[_/]\w|\w\.\w|`", text):
        return True
    if re.match(
        r"^(?:\w+ing|life|love|family|nature|music|art|it|every|the (?:best|hardest|toughest|coolest|good|great))\b",
        text,
        re.I,
    ):
        return False
    if re.search(
        r"\b(?:was|were|is|are|looked|felt|seemed) (?:\w+ly |so |very |such |pretty |just )*[\w-]+$",
        text.rstrip(".!"),
    ):
        return False
    inner = re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text)
    return bool(inner) or (
        len(telling(tokens)) >= 3
        and any(t in {"was", "were", "had", "did", "didn't"} or grammar.is_past(t) for t in tokens)
    )


_OF_MANY = grammar.lexicon("live sit lie run stay go come stand work use need keep belong start end cost")
"""Verbs without an ending that often follow a plural: "the numbers live in ...", "our tests need ..."."""


def has_verb(tokens: Sequence[str]) -> bool:
    """Whether some word can be the verb of a sentence."""
    if any(token == "i" or token.startswith("i'") for token in tokens):
        return True
    for at, token in enumerate(tokens):
        tail = token.rpartition("'")[2] if "'" in token else ""
        if (
            token in grammar.MODALS
            or tail in {"m", "re", "ve", "ll", "d", "t"}
            or (at and _is_past_verb(tokens, at))
        ):
            return True
        if token in {"is", "are", "was", "were", "am", "has", "have", "had", "do", "does", "did"} or (
            tail == "s"
            and token.partition("'")[0] in {"it", "that", "there", "he", "she", "who", "what", "here"}
        ):
            return True
        if at and token in _OF_MANY and tokens[at - 1].endswith("s"):
            return True
        if (
            at
            and tokens[at - 1] in {"i", "we", "they", "he", "she", "it", "who", "you"}
            and token not in STOP
        ):
            return True
        if (
            at
            and re.fullmatch(r"[a-z]+(?:s|es)", token)
            and not token.endswith("ss")
            and at + 1 < len(tokens)
            and tokens[at - 1]
            not in {
                "the",
                "a",
                "my",
                "our",
                "of",
                "some",
                "these",
                "those",
                "many",
                "all",
                "with",
                "in",
                "for",
                "and",
                "to",
                "from",
                "on",
                "at",
                "by",
                "her",
                "his",
                "their",
                "your",
                "other",
                "more",
                "new",
                "few",
                "two",
                "three",
            }
            and tokens[at + 1]
            in {"me", "my", "the", "a", "an", "to", "in", "on", "us", "like", "people", "with", "for", "of"}
        ):
            return True
    return False


def _is_past_verb(tokens: Sequence[str], at: int) -> bool:
    """Whether a past form is a verb: not "much-needed", nor "definitely excited"."""
    return grammar.is_past(tokens[at]) and "-" not in tokens[at] and tokens[at - 1] not in grammar.ADVERBS


def leans(text: str) -> bool:
    """Whether a pronoun in `text` points at something said before.

    A pronoun is at home when a noun stands before it with a clause's edge between them: "the dog ran off and I
    found it". "It" that points at nothing ("it took years to learn") is looked past.
    """
    if _ELLIPTIC.search(text):
        return True
    tokens = [t for t in grammar.words_of(text) if not t.isspace()]
    nouns, closed = 0, False
    for at, token in enumerate(tokens):
        lower = token.lower()
        following = tokens[at + 1].lower() if at + 1 < len(tokens) else ""
        if nouns and (lower in _EDGES or (lower in _JOINTS and following.partition("'")[0] in _SUBJECTS)):
            closed = True
        if at == 0 and _EXPLETIVE.match(text):
            continue
        base = lower.partition("'")[0]
        if lower in {"this", "that", "these", "those"} and at and _is_determiner(following):
            if _is_bare_pointer(tokens, at) and not closed:
                return True
        elif lower in _POINTING or ("'" in lower and base in {"it", "they", "he", "she", "that", "this"}):
            if lower == "there" and following in {"is", "are", "was", "were"}:
                continue
            if (lower == "that" and at and _introduces(following)) or (
                lower == "one" and following in {"of", "day", "time", "more"}
            ):
                continue
            if not closed:
                return True
        elif _is_noun(tokens, at):
            nouns += 1
    return False


_ELLIPTIC = re.compile(
    r"^(?:really|definitely|totally) (?:made|makes|helped|helps|got)\b|\bsomething similar\b|\b(?:go|going|went|come|do|did|done|try|tried) (?:often|again|together|so|either|too|the same|both)\b|\bthe same(?: thing| way)?$|\bas well$|\btoo$|\b(?:the|an)other one\b",
    re.I,
)
_EDGES = lexicon("; so because which when who while where since as if after before though")
_JOINTS = lexicon(", - – — and but or plus")
_SUBJECTS = lexicon("i it they he she we this that their")
_DETERMINERS = lexicon(
    """a an the my our some his her their its this these those any no another each every two three four
    five many most"""
)
_TIMES = lexicon(
    """year week month day time morning summer winter spring fall weekend afternoon evening night past
    coming season"""
)
_INTRODUCING = lexicon(
    """new amazing cool really awesome great guy girl woman man person super little lovely crazy one kid
    friend"""
)


def _is_determiner(following: str) -> bool:
    """Whether "this" or "that" belongs to the word after it."""
    if not following[:1].isalpha() or following in STOP or following in grammar.MODALS or "'" in following:
        return False
    is_verb = (
        grammar.is_past(following)
        or following.endswith("ly")
        or (following.endswith("s") and following[-2:] not in {"ss", "us", "is"})
    )
    return not is_verb or following in {"things", "kids", "days", "friends", "people", "guys"}


def _is_bare_pointer(tokens: Sequence[str], at: int) -> bool:
    """Whether "this book" points at something the reader cannot see; "this guy who..." and "this year" do not."""
    if tokens[at].lower() == "that" and tokens[at - 1].lower() in {
        "said",
        "think",
        "know",
        "believe",
        "hope",
        "feel",
        "realized",
        "learned",
        "so",
    }:
        return False
    following = [t.lower() for t in tokens[at + 1 : at + 7]]
    if following[0] in _TIMES or (tokens[at].lower() in {"this", "these"} and following[0] in _INTRODUCING):
        return False
    return not any(t in {"who", "that", "which", "called", "named", "where", "i", "we"} for t in following)


def _introduces(following: str) -> bool:
    """Whether a "that" opens a clause ("the band that played", "said that I") and points at nothing itself."""
    return following[:1].isalpha() and following not in {
        "is",
        "was",
        "and",
        "but",
        "so",
        "too",
        "to",
        "for",
        "in",
        "at",
        "by",
        "out",
        "up",
        "down",
        "off",
        "on",
        "all",
        "one",
    }


def _is_noun(tokens: Sequence[str], at: int) -> bool:
    """A guess: a content word behind a determiner, a plural, or a capitalised word inside the sentence."""
    token = tokens[at]
    lower = token.lower()
    if (
        lower in STOP
        or lower in grammar.ADVERBS
        or not lower[0].isalpha()
        or grammar.is_past(lower)
        or at == 0
    ):
        return bool(at == 0 and lower not in STOP and lower.endswith("s") and not lower.endswith("ss"))
    before = tokens[at - 1].lower()
    if before in {"i", "to", "we", "they", "it", "he", "she"} or before in grammar.MODALS:
        return False
    if before in {
        "in",
        "of",
        "for",
        "with",
        "about",
        "from",
        "at",
        "on",
        "enjoy",
        "love",
        "like",
        "doing",
        "playing",
        "started",
    }:
        return True
    behind = {t.lower() for t in tokens[max(0, at - 3) : at]}
    return (
        bool(behind & _DETERMINERS)
        or token[0].isupper()
        or (lower.endswith("s") and not lower.endswith("ss"))
        or "'s" in "".join(behind)
    )


@functools.lru_cache(maxsize=4096)
def is_english(text: str) -> bool:
    if german.is_about_oneself(text):
        return False
    tokens = [t.lower() for t in grammar.words_of(text) if t[0].isalnum()]
    if not tokens:
        return True
    letters = [c for c in text if c.isalpha()]
    if sum(c.isascii() for c in letters) < 0.8 * len(letters):
        return False
    return len(tokens) < 5 or any(t in STOP or t in EMPTY or "'" in t for t in tokens)
