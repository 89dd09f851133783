"""The gate's rules as pure functions: equal text, nearly equal text, text that can be derived from code.

`Keeper.remember` (in `memories`) walks them in this order: empty, scope, category, strict mode, exact
duplicate, near duplicate, derivable from code, insert. Nothing here reads a file or a clock, so each rule can
be tried on its own.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

from cairn.canonical import text_hash
from cairn.errors import Invalid
from cairn.governed.records import CATEGORIES, UNTRUSTED, Importance, Record, Status
from cairn.language import tongues, words
from cairn.language.near import jaccard
from cairn.types import Track

CATEGORY_ALLOWLIST = frozenset(CATEGORIES)
STRICT_CATEGORIES = frozenset({"convention", "pattern", "gotcha", "decision"})
PROMOTE_ON_WRITE: frozenset[str] = frozenset()  # no category is promoted by its name alone (X8)
NEAR = 0.85
KEY_CHARACTERS = 2000
IMPORTANCE_SCORE: dict[Importance, float] = {"high": 1.0, "medium": 0.6, "low": 0.3}
_ALIASES_KEPT = 64
LEAST_GIST = 3
_OF_ONE_MATTER = 0.6
_NAME = re.compile(r"(?<=[^.!?:\n] )[A-Z][A-Za-z]{2,}")  # a capital within a sentence
_SENTENCE = re.compile(r"(?<=[.!?;])\s|\n")
_CLAUSE_END = re.compile(r"([,;:.!?]\s|[(—–。，；：]|\s-\s)")
_WORD_OR_NUMBER = re.compile(r"\w+(?:[.:-]\w+)*")
_IN_A_NAME = 2  # words of a name before its number, as in "meeting room 3"
_STATUS_RANK: dict[Status, int] = {"archived": 0, "candidate": 1, "promoted": 2}
_IMPORTANCE_RANK: dict[Importance, int] = {"low": 0, "medium": 1, "high": 2}


def normalise_scope(scope: str) -> Track:
    """The scope-string rule of ADE clients (A48): "user" means `agent`, "lane" means `mission`.

    Only for callers that speak ADE's words. Cairn's own API names a person with `scope="user"` and an owner,
    and means `users/<owner>/`; it does not pass through here.
    """
    word = scope.strip().lower() if isinstance(scope, str) else ""
    track = {"user": "agent", "lane": "mission"}.get(word, word)
    if track not in {"project", "agent", "mission"}:
        raise Invalid(
            f'"{scope}" is not a scope (project, agent, mission; user and lane are aliases).', field="scope"
        )
    return track  # type: ignore[return-value]


def dedupe_key(content: str) -> str:
    """The key two writings of one thing share: first 2000 characters, blanks collapsed, lower case (A72).

    Changing this rule would break dedup for every memory written so far; entries carry its version.
    """
    return " ".join(content[:KEY_CHARACTERS].split()).lower()


def dedupe_hash(content: str) -> str:
    """The short form of `dedupe_key` that stands in an entry."""
    return text_hash(dedupe_key(content))[:16]


@functools.cache
def _said(name: str) -> frozenset[str]:
    """Words of every language by what they do, as they stand in a gist: "denials" turn a statement round, "turns" tell of a
    change or of leave to do something, and not of what.
    """
    said = tongues.every_word("words", name)
    return said | {words.stem(word) for word in said}


@functools.cache
def _denials() -> frozenset[str]:
    return _said("denials") | tongues.every_word("words", "limits")


@functools.cache
def _number_words() -> frozenset[str]:
    """The numbers above one as words: "one" is said of anything."""
    said = {
        form
        for tongue in tongues.known().values()
        for forms in tongue.table("dates").get("numbers", [])[1:]
        for form in str(forms).split("/")
    }
    return frozenset(said | {words.stem(word) for word in said})


@functools.cache
def _empty_words() -> frozenset[str]:
    return words.word_set(" ".join(tongues.every_word("words", "small"))) | words.stop_words()


def gist(content: str) -> frozenset[str]:
    """The stems of what a text says, without little words; denials count: two wordings of one thing share it."""
    little = words.stop_words() - _denials()
    # Where words are not parted, a denial is a sign among others.
    said = frozenset(sign for sign in _said("denials") if len(sign) == 1 and sign in content)
    return said | frozenset(words.stem(word) for word in words.word_set(content) if word not in little)


def opposes(one: frozenset[str], other: frozenset[str]) -> Literal["", "denial", "number"]:
    """How two gists of one matter say otherwise: one denies what the other does not, or a number of it differs.

    Where more differs, or each names something that the other does not, they are of two things: "room 3 has 20
    seats" says nothing of room 4, and what Ann does not like says nothing of Bob. Two numbers are one value where all else is
    the same ("from 7 to 22"), and so is a number in another measure ("5 minutes", "30 seconds").
    """
    left, right = one - _denials(), other - _denials()
    counts = frozenset(filter(_is_number, left)), frozenset(filter(_is_number, right))
    left, right = left - counts[0], right - counts[1]
    if all(counts) and left & _said("measures") and right & _said("measures"):
        left, right = left - _said("measures"), right - _said("measures")
    shared = len(left & right)
    if shared < 2 or shared < _OF_ONE_MATTER * min(len(left), len(right)):
        return ""
    if (left - right - _said("turns")) and (right - left - _said("turns")):
        return ""
    changed = len(counts[0] - counts[1]), len(counts[1] - counts[0])
    if denies(one) != denies(other):
        return "" if all(changed) else "denial"
    if changed == (2, 2):
        return "number" if left == right else ""
    return "number" if changed == (1, 1) and jaccard(left, right) >= 0.75 else ""


def opposed_texts(one: str, other: str) -> Literal["", "denial", "number"]:
    """How two texts of one matter say otherwise, by all of each, or by what each says first where only one says more.

    >>> opposed_texts("The cache keeps rows for 5 minutes.", "The cache keeps rows for 30 seconds, since the bug in May.")
    'number'
    >>> opposed_texts("The hall holds 80 people, in Porto.", "The hall holds 90 people, in Lisbon.")
    ''
    """
    found = opposes(gist(one), gist(other))
    if found:
        return found
    first, then = _main_clause(one), _main_clause(other)
    if (first != one) == (then != other):
        return ""
    found = opposes(gist(first), gist(then))
    return "number" if found == "number" else ""


def _main_clause(content: str) -> str:
    """What a text says first: up to the first stop that more follows."""
    clause, stop, rest = (
        _CLAUSE_END.split(content, maxsplit=1) if _CLAUSE_END.search(content) else (content, "", "")
    )
    return clause if stop and rest.strip() else content


def denies(gist: frozenset[str]) -> bool:
    """Whether what a text says is said not to be so."""
    return bool(gist & _said("denials"))


def of_one_thing(one: str, other: str) -> bool:
    """Whether two texts may speak of the same thing: not where the numbers in their names differ.

    >>> of_one_thing("Database db0 uses 4 GB.", "Database db1 uses 4 GB.")
    False
    >>> of_one_thing("The port is 8080.", "The port is 9090."), of_one_thing("Room 3 has 9 seats.", "Room 3 has 8 seats.")
    (True, True)
    """
    mine, theirs = _labels(one), _labels(other)
    return not (mine and theirs) or mine == theirs


def _labels(text: str) -> frozenset[str]:
    """The numbers that tell which thing a text is about: of the first words, behind a name or part of it.

    What stands before a word that ties ("port 8080 for the API"), or last, is what is said of a thing.
    """
    found = set()
    for sentence in _SENTENCE.split(text):
        said = [word.casefold() for word in _WORD_OR_NUMBER.findall(sentence)]
        tells = [word not in words.stop_words() and not _is_number(word) for word in said]
        for at, word in enumerate(said):
            if not _is_number(word) or sum(tells[:at]) > _IN_A_NAME or not any(tells[at + 1 :]):
                continue
            is_mixed = not word.isalpha() and any(map(str.isalpha, word))
            is_named = is_mixed or not any(tells[:at]) or tells[at - 1]
            if (
                is_named
                and said[at + 1] not in tongues.every_word("words", "ties")
                and not (at == 0 and tells[1] and not is_mixed)
            ):
                found.add(word)
                break
    return frozenset(found)


def differ(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two gists, however alike, are no wordings of one thing: a denial or any number differs."""
    counts = frozenset(filter(_is_number, one)), frozenset(filter(_is_number, other))
    return bool(opposes(one, other)) or (bool(counts[0]) and bool(counts[1]) and counts[0] != counts[1])


def names_differ(one: str, other: str) -> bool:
    """Whether each of two texts names somebody, a day or a thing that the other does not: then they are two facts."""
    mine, theirs = ({words.stem(name.lower()) for name in _NAME.findall(text)} for text in (one, other))
    return bool(mine - gist(other)) and bool(theirs - gist(one))


def _is_number(word: str) -> bool:
    return any(map(str.isdigit, word)) or word in _number_words()


def says_something(content: str) -> bool:
    """Whether a text tells anything by itself: "ok", "thanks, will do" and a lone sign do not."""
    return bool(words.word_set(content) - _empty_words())


def seed_score(importance: Importance, confidence: float) -> float:
    """The access score a memory starts from (A75)."""
    return max(IMPORTANCE_SCORE[importance], confidence)


def merge(old: Record, new: Record, *, near: bool, vouched: bool = True) -> Record:
    """`old` after `new` turned out to say the same (A74).

    An exact duplicate leaves the text. A near one keeps the text that contains the other, or both on lines of
    their own. Importance, status and tier take the better of the two, a pin sticks, and having been seen again
    makes it surer. What comes from an untrusted origin may add to the count, and nothing else: it can neither
    reword, raise nor promote what a person or an agent has said. Nor can a caller that nobody `vouched` for what was
    promoted already; and its saying a thing again makes nothing surer, or a sweep would let in what it repeats.
    """
    seen = old.but(
        observation_count=old.observation_count + 1,
        aliases=_with_aliases(old, new),
        write_gate_reason="near_duplicate" if near else "duplicate",
        updated_at=new.updated_at,
    )
    if new.origin in UNTRUSTED and old.origin not in UNTRUSTED:
        return seen
    if not vouched and (old.status == "promoted" or old.pinned):
        return seen
    content = joined(old.content, new.content) if near else old.content
    status = max(old.status, new.status, key=_STATUS_RANK.__getitem__)
    trusted = new.is_trusted and (not near or content == new.content)
    return seen.but(
        content=content,
        importance=max(old.importance, new.importance, key=_IMPORTANCE_RANK.__getitem__),
        status=status if (old.is_trusted or trusted) else old.status,
        tier=min(old.tier, new.tier),
        pinned=old.pinned or new.pinned,
        confidence=min(1.0, max(old.confidence, new.confidence) + 0.05) if vouched else old.confidence,
        origin=new.origin if trusted and not old.is_trusted else old.origin,
        promoted_at=old.promoted_at or (new.promoted_at if status == "promoted" else None),
        dedupe=dedupe_hash(content),
        trigger=old.trigger or new.trigger,
        procedure=old.procedure or new.procedure,
    )


def joined(old: str, new: str) -> str:
    """The one that contains the other, else both."""
    left, right = dedupe_key(old), dedupe_key(new)
    if right in left:
        return old
    if left in right:
        return new
    return f"{old.rstrip()}\n{new.strip()}"


def _with_aliases(old: Record, new: Record) -> tuple[str, ...]:
    """The keys of every text merged here so far, so that none of them is ever taken for a new one."""
    marks = dict.fromkeys((*old.aliases, dedupe_hash(old.content), dedupe_hash(new.content)))
    return tuple(marks)[-_ALIASES_KEPT:] if len(marks) > 1 else old.aliases


# What code, logs and version control tell better than a memory. Each rule wants the form, not a mere word of it.
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE)
_DIFF = re.compile(r"^(?:diff --git \S+ \S+|index [0-9a-f]{7,40}\.\.[0-9a-f]{7,40})", re.MULTILINE)
_DIFF_FILES = re.compile(r"^--- \S+[^\n]*\n\+\+\+ \S+", re.MULTILINE)
_TRACEBACK = re.compile(r"^[ \t]*Traceback \(most recent call last\):[ \t]*$", re.MULTILINE)
_FRAME = re.compile(
    r"^[ \t]*(?:at[ \t].{0,400}?[\w./\\<>$-]:\d{1,9}(?::\d{1,9})?\)?[ \t]*|File \"[^\"\n]{1,400}\", line \d+.*|\w*panic: .*)$",
    re.MULTILINE,
)
_ERROR_LINE = re.compile(
    r"^[ \t]*(?:[\w.]*(?:Error|Exception)|ERROR|FATAL)\b[ \t]*(?:\[[^\]\n]{0,200}\])?:.*$", re.MULTILINE
)
_COMMIT = re.compile(r"^commit [0-9a-f]{7,40}(?: \(.*\))?\s*$", re.MULTILINE)
_AUTHOR = re.compile(r"^Author:\s.+<.+>\s*$", re.MULTILINE)
_DATE = re.compile(r"^Date:\s", re.MULTILINE)
_ONELINE = re.compile(
    r"^(?:\* )?(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40} (?P<subject>\S.*)$", re.MULTILINE
)
_SUBJECT = re.compile(
    r"(?:\([^)]*\) )?(?:[A-Z][a-z]+ |(?:feat|fix|docs|chore|test|refactor|build|ci|perf)(?:\([^)]*\))?!?: )"
)
_PATH_LINE = re.compile(
    r"^[ \t]*(?:[-*] )?(?:[A-Za-z]:)?[\w.@~+-]*(?:[/\\][\w.@+\[\]-]+)+[/\\]?(?::\d+)?[ \t]*$"
)
_WORD = re.compile(r"[^\W\d_]{2,}")


@functools.cache
def _report() -> re.Pattern[str]:
    """How a report of what was done begins, in any language: who, the verb, and the rest of its line."""
    lead, done, now = (tongues.every_body("reports", name) for name in ("lead", "done", "now"))
    return re.compile(rf"(?i)\A\W*(?:(?:{lead})\s+)*(?:(?P<now>{now})|{done})(?P<rest>[^\n]*)")


@functools.cache
def _report_label() -> re.Pattern[str]:
    return re.compile(rf"(?i)\A\W*(?:{tongues.every_body('reports', 'label')})\s*(?::|-\s|–|\n)")


@functools.cache
def _things() -> re.Pattern[str]:
    return re.compile(rf"(?i)\A\s+(?:{tongues.every_body('reports', 'things')}|[`\"'(])")


def _reports(name: str, text: str) -> bool:
    return tongues.every_pattern("reports", name).search(text) is not None


def derivable(content: str) -> str | None:
    """Say what kind of throw-away text `content` is (for the verdict's detail), or None for a memory.

    Raw diffs, stack traces, session summaries, version-control logs and path dumps are refused, each by its
    form. A rule of dashes, the word "Fixed" at the start, one commit hash or a short command between fences do
    not make a memory worthless.
    """
    lines = [line for line in content.splitlines() if line.strip()]
    if _DIFF.search(content) or _HUNK.search(content) or _DIFF_FILES.search(content):
        return "It is a raw diff; the repository keeps that."
    if _TRACEBACK.search(content) or len(_FRAME.findall(content)) >= 2:
        return "It is a stack trace; remember what caused it instead."
    errors = [line for line in _ERROR_LINE.findall(content) if not _reports("explains", line)]
    if len(errors) >= 2 and len(errors) * 2 >= len(lines):
        return "It is error output; remember what caused it instead."
    if (_COMMIT.search(content) or (_AUTHOR.search(content) and _DATE.search(content))) or _is_log(content):
        return "It is version-control history; the repository keeps that."
    fenced = sum(len([x for x in match[0].splitlines() if x.strip()]) for match in _FENCE.finditer(content))
    if fenced:
        prose = len(_WORD.findall(_FENCE.sub(" ", content)))
        if fenced > 5 or prose < 8:
            return "It is mostly a code block; the code itself is the better source."
    paths = sum(bool(_PATH_LINE.match(line)) for line in lines)
    if paths >= 3:
        prose = sum(len(_WORD.findall(line)) for line in lines if not _PATH_LINE.match(line))
        if prose < 8:
            return "It is a list of paths; the file tree tells that."
    if _is_report(content):
        return "It is a progress report, true only now; remember what was learned instead."
    return None


def _is_log(content: str) -> bool:
    subjects = [match["subject"] for match in _ONELINE.finditer(content)]
    return len(subjects) >= 2 or (len(content.splitlines()) == 1 and any(_SUBJECT.match(s) for s in subjects))


def _is_report(content: str) -> bool:
    if _report_label().match(content):
        return True
    match = _report().match(content.strip())
    if match is None or _reports("lesson", match["rest"] + content.strip()[match.end() :]):
        return False
    rest = match["rest"]
    if not rest.strip(" .!") or match["now"] or _reports("place", rest):
        return True
    return bool(_things().match(rest)) or (rest.startswith(" ") and len(rest.split()) <= 5)
