"""English from the first person into the third: "I'm keen on my work" said by Ana -> "Ana is keen on Ana's work".

Pure text, no model, linear time. It knows the closed classes (pronouns, auxiliaries, irregular past forms) and
guesses the rest by ending; what it cannot turn safely it says so, and the caller quotes instead.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence


def lexicon(text: str) -> frozenset[str]:
    """The words of `text`, as a set; `_` stands for a blank inside one."""
    return frozenset(word.replace("_", " ") for word in text.split())


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*(?:-[^\W_]+)*|\s+|.", re.DOTALL)

MODALS = lexicon(
    "can could will would should might may must shall can't cannot couldn't won't wouldn't shouldn't"
)
_PAST = lexicon(
    """was were went had did said got made came took saw knew thought found gave told became left felt put
    brought began kept held wrote stood heard let meant set met ran paid sat spoke lay led read grew
    lost fell sent built understood drew broke spent cut rose drove bought wore chose ate slept won
    taught caught threw flew sang swam rode drank forgot hid hit hurt quit shut fought sought sold shot
    stuck swept woke froze stole tore bent bled dealt dug fed hung knelt lent lit rang shook shone sank
    slid spread sprang stung swore swung wept withdrew wound bound bet cast cost burst dove overcame
    underwent outgrew rebuilt retook rewrote undertook used ended baked signed quit"""
)
_BASE_IN_ED = lexicon("need feed bleed breed speed exceed proceed succeed seed weed embed shed wed heed")
_BASE_IN_ING = lexicon("bring sing ring swing cling spring string fling sting wing")
_PARTICIPLES = lexicon(
    """been had done gone made taken seen known thought found given told become left felt put brought begun
    kept held written stood heard let meant set met run paid sat spoken led read grown lost fallen sent
    built understood drawn broken spent cut risen driven bought worn chosen eaten slept won taught
    caught thrown flown sung swum ridden drunk forgotten hidden hit hurt quit fought sold got gotten
    come better"""
)
ADVERBS = lexicon(
    """just also really always never usually actually definitely totally still even recently finally only
    often sometimes already soon now then ever almost absolutely truly probably certainly currently once
    first last mostly both too either simply basically honestly literally kinda sorta kindly well so
    very all again rarely seldom hardly mainly especially quite rather long"""
)
_UNAMBIGUOUS = lexicon(
    """go have am do feel think want get take make keep know try enjoy give find see hope believe say eat
    sing bring become spend write read learn teach meet buy sit leave let begin grow lose send build
    wear choose tell ask include continue agree seem need appreciate remember realize understand"""
)
_CONTRACTED = {"m": "is", "ve": "has", "ll": "will", "re": "are"}
_LOOSE = (
    (re.compile(r"\b(?:gonna)\b", re.I), "going to"),
    (re.compile(r"\bwanna\b", re.I), "want to"),
    (re.compile(r"\b(?:'ve |have )?gotta\b", re.I), "have to"),
    (re.compile(r"\blemme\b", re.I), "let me"),
    (re.compile(r"\bkinda\b", re.I), "kind of"),
    (re.compile(r"\b(?:'|’)?cuz\b|(?<!\w)['’]cause\b|\bcoz\b", re.I), "because"),
    (re.compile(r"\b([a-z]{3,})in['’](?=\s|[.,!?]|$)", re.I), r"\1ing"),
    (re.compile(r"\s&\s"), " and "),
    (re.compile(r"[\U0001F000-\U0001FAFF\u2600-\u27BF\uFE0F\u200D]+"), ""),
)


def words_of(text: str) -> list[str]:
    """Words, blanks and signs of `text`, in order; joined they give it back.

    >>> words_of("I'm in!")
    ["I'm", ' ', 'in', '!']
    """
    return _WORD.findall(text)


@functools.lru_cache(maxsize=4096)
def tidied(text: str) -> str:
    """Chat spelling in its long form, pictographs taken out, blanks made single."""
    for pattern, better in _LOOSE:
        text = pattern.sub(better, text)
    return " ".join(text.replace("’", "'").split())


def third_person(verb: str) -> str:
    """The form of a present-tense verb after a name.

    >>> [third_person(v) for v in ("love", "go", "try", "have", "play")]
    ['loves', 'goes', 'tries', 'has', 'plays']
    """
    lower = verb.lower()
    if lower in {"have", "do", "am", "are", "be", "don't", "haven't", "aren't"}:
        return {
            "have": "has",
            "do": "does",
            "am": "is",
            "are": "is",
            "be": "is",
            "don't": "doesn't",
            "haven't": "hasn't",
            "aren't": "isn't",
        }[lower]
    if lower.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if lower.endswith("y") and lower[-2:-1] not in set("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def is_past(verb: str) -> bool:
    """Whether `verb` after "I" is in the past tense already, and so the same for every person."""
    lower = verb.lower()
    return lower in _PAST or (lower.endswith("ed") and lower not in _BASE_IN_ED and len(lower) > 3)


def is_participle(word: str) -> bool:
    lower = word.lower()
    return lower in _PARTICIPLES or (lower.endswith("ed") and lower not in _BASE_IN_ED)


def spoken_by(sentence: str, name: str, others: str) -> str:
    """`sentence` as told about `name` instead of by them.

    Args:
        sentence: A statement in the first person, tidied.
        name: Who said it.
        others: What "we" is: "Ana and others", "Ana and Ana's family".

    >>> spoken_by("I've lost my keys and I don't know where we went.", "Ana", "Ana and others")
    "Ana has lost Ana's keys and Ana doesn't know where Ana and others went."
    """
    tokens = words_of(sentence)
    table = _pronouns(name, others)
    out: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        lower = token.lower()
        if lower == "i" or lower.startswith("i'"):
            if lower == "i" and _is_numeral(tokens, at):
                out.append(token)
                at += 1
                continue
            plural = _joined_subject(tokens, at)
            out.append(name)
            at = _agree(tokens, at, out, plural=plural)
            continue
        if lower == "we'd":
            token = f"{others} {'had' if is_participle(_next_word(tokens, at + 1)) else 'would'}"
        elif token != "US":
            token = table.get(lower, token)
        out.append(token)
        at += 1
    return "".join(out)


@functools.lru_cache(maxsize=256)
def _pronouns(name: str, others: str) -> dict[str, str]:
    """What each word of the first person becomes."""
    return {
        "me": name,
        "my": f"{name}'s",
        "mine": f"{name}'s",
        "myself": "themself",
        "we": others,
        "we're": f"{others} are",
        "we've": f"{others} have",
        "we'll": f"{others} will",
        "us": others,
        "ourselves": "themselves",
        "our": f"{name}'s",
        "ours": f"{name}'s",
    }


def _is_numeral(tokens: Sequence[str], at: int) -> bool:
    """Whether an "I" is the number of a chapter or a king rather than the speaker."""
    before = "".join(tokens[max(0, at - 2) : at]).strip().lower()
    after = "".join(tokens[at + 1 : at + 2])
    return before in {"part", "type", "phase", "chapter", "volume", "war", "level"} and after in {
        "",
        ".",
        ",",
        ")",
    }


def _joined_subject(tokens: Sequence[str], at: int) -> bool:
    """Whether this "I" ends a joined subject ("my mom and I"), so that the verb stays plural."""
    before = [t for t in tokens[:at] if not t.isspace()]
    if not before or before[-1].lower() not in {"and", "or"}:
        return False
    subject: list[str] = []
    for token in reversed(before[:-1]):
        if not token[0].isalnum() or token.lower() in {
            "that",
            "when",
            "because",
            "and",
            "so",
            "but",
            "since",
            "if",
        }:
            break
        subject.insert(0, token.lower())
    if not subject or len(subject) > 4 or "i" in subject or subject[0].startswith("i'"):
        return False
    return not any(
        is_past(w)
        or w in MODALS
        or w in {"is", "are", "am", "have", "has"}
        or ("'" in w and not w.endswith("'s"))
        for w in subject
    ) and (subject[0] in {"my", "the", "a", "our", "both"} or before[-2][0].isupper())


def _next_word(tokens: Sequence[str], at: int) -> str:
    for token in tokens[at:]:
        if token[0].isalnum() and token.lower() not in ADVERBS and token.lower() != "not":
            return token
        if not token.isspace() and not token[0].isalnum():
            return ""
    return ""


def _agree(tokens: Sequence[str], at: int, out: list[str], *, plural: bool) -> int:
    """Write the verb that belongs to the "I" at `at` behind the name in `out`; return where to go on."""
    token = tokens[at]
    _, _, short = token.lower().partition("'")
    at += 1
    if short:
        if short == "d":
            out.append(" had" if is_participle(_next_word(tokens, at)) else " would")
        elif plural:
            out.append({"m": " are", "ve": " have"}.get(short, " " + _CONTRACTED.get(short, short)))
        else:
            out.append(" " + _CONTRACTED.get(short, short))
        return at
    while at < len(tokens):
        word = tokens[at]
        lower = word.lower()
        if (
            word.isspace()
            or lower in ADVERBS
            or (lower.endswith("ly") and lower not in {"rely", "apply", "fly", "reply", "supply", "comply"})
        ):
            out.append(word)
            at += 1
            continue
        break
    if at >= len(tokens) or not tokens[at][0].isalpha():
        return at
    verb = tokens[at]
    lower = verb.lower()
    if (
        lower in MODALS
        or is_past(verb)
        or (lower.endswith("ing") and lower not in _BASE_IN_ING)
        or lower in {"and", "or", "to", "who", "in", "with", "for", "'s", "had", "didn't", "wasn't", "hadn't"}
    ):
        out.append(verb)
        return at + 1
    if plural:
        out.append({"am": "are"}.get(lower, verb))
        return at + 1
    out.append(third_person(verb))
    return _agree_joined(tokens, at + 1, out)


def _agree_joined(tokens: Sequence[str], at: int, out: list[str]) -> int:
    """Carry the person over to a second verb: "I cook and go" -> "Ana cooks and goes"."""
    for look in range(at, len(tokens)):
        lower = tokens[look].lower()
        if (
            lower in MODALS
            or lower in {"to", "i", "we", "they", "you", "that", "who", "which", "when", "if", "can"}
            or tokens[look] in ",;.-"
        ):
            return at
        if lower == "and":
            follow = look + 1
            while follow < len(tokens) and (tokens[follow].isspace() or tokens[follow].lower() in ADVERBS):
                follow += 1
            if follow < len(tokens) and tokens[follow].lower() in _UNAMBIGUOUS:
                out.extend(spoken_inside(tokens[at:follow]))
                out.append(third_person(tokens[follow]))
                return follow + 1
            return at
    return at


def spoken_inside(tokens: Sequence[str]) -> list[str]:
    """The tokens between two verbs, as they are; pronouns there are rare and left for the reader."""
    return list(tokens)
