"""What is being forgotten: whose memory, which entries, which words; and how a text loses those words.

Two ways to look for words. What an entry says is looked for as a *statement*: the same words in the same order,
blanks and case aside, standing for themselves between stops, quotes, brackets or line ends. "Ann likes tea" is
not found in "Ann likes tea with milk" nor in "Nobody says Ann likes tea": those are other statements, and at
most alike. A *phrase* that the caller gives is found wherever it stands as whole words. A letter with its marks is the
same letter whether Unicode writes it as one sign or as several (NFC, NFD, or between).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cairn.errors import CairnError
from cairn.governed.framing import without_escapes
from cairn.governed.unfinished import Begun, ForgetAgain
from cairn.language.near import jaccard
from cairn.language.words import is_unspaced, word_set
from cairn.notes.kinds import TRACKS
from cairn.seams import Locator
from cairn.types import Scope, Space

TOMBSTONE = "[forgotten]"
IN_GIT = (".git", "the repository's history keeps former versions; rewrite it to remove them there")
SAID_AGAIN = "a sentence that went was said there, too; forget it there by its words"
ELSEWHERE = "other apps or projects"
OF_HISTORY = frozenset({"texts.jsonl", "changes.jsonl"})  # they are purged by time travel itself
SHORTEST = 4
TELLING = 3  # words; fewer are said by anybody at any time
ALIKE = 0.5
ALIKE_WITH_MARK = 0.3
SHOWN_CHARS = 500
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?]++(?![\s。！？]|\Z))*+(?:[.!?。！？]+|\n|\Z)")
_STOPS = ".!?…。！？"
_BEFORE = frozenset(_STOPS + ':;="“”„«»‹›「」『』()[]{}<>|*#`–—•·：；')
_AFTER = frozenset('"”“»«」』)]}>|*_`;\\<；')
_PLAIN_RUN = re.compile(r"[A-Za-z0-9]+")
_SPEAKER = re.compile(r"[^\n.!?:]{1,60}: ")
_BETWEEN = r"(?:\\(?:[nrtbf]|u[0-9a-f]{4})|[^a-z0-9])+"  # a line end or a letter may stand behind a backslash
_ESCAPED_LETTER = re.compile(rb"\\u00[3-7]")
_LAYERS = 3  # JSON in a field of a note, which a line of the history holds as JSON
_NO_LETTER_AFTER = r"(?![^\W_]|[\u0300-\u036f])"
_FIELD = re.compile(r"(\*\*[A-Za-z][\w.-]*\*\*: )(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Affected:
    """One thing that is removed, or is similar and stays: what it is, where it stands, its words, and why it is named."""

    what: str
    id: str
    path: str
    owner: str
    words: str
    why: str


@dataclass(slots=True)
class Lost:
    """The sentences of a message that are removed, and those that stay (none: it is removed whole)."""

    gone: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Core:
    """The words of a statement or a phrase, and the plain runs of letters in them: most texts do not have those in a row.

    Looked for in small letters as they are, runs are found many times faster than words in any case; `raw` finds them in
    bytes.
    """

    pattern: re.Pattern[str]
    runs: re.Pattern[str]
    raw: re.Pattern[bytes]


@dataclass(slots=True)
class Wanted:
    """What is being forgotten, and what was found to follow from it so far. Purge hooks receive it.

    `reach` is whose memory may be touched; None means everyone's in the space.
    """

    space: Space
    reach: Scope | None = None
    entries: tuple[tuple[Scope, str], ...] = ()
    statements: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    cells: set[str] = field(default_factory=set)
    lost: dict[str, Lost] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    _cores: dict[str, _Core] = field(default_factory=dict)

    # ------------------------------------------------------------ whose

    def reaches(self, scope: Scope) -> bool:
        return self.reach is None or scope == self.reach

    def reaches_path(self, at: Locator) -> bool:
        """Whether a file of the space belongs to who is asked about; what has no owner is the project's."""
        return self.reaches(scope_of_path(self.space, at))

    # ------------------------------------------------------------ words

    def want(self, texts: Iterable[str]) -> None:
        """Look for these statements, too."""
        self.statements = tuple(dict.fromkeys((*self.statements, *filter(None, map(plain, texts)))))

    def follow(self, texts: Iterable[str]) -> None:
        """Statements of what was derived: they go from what is made of such things, and from nothing else."""
        self.followed = tuple(dict.fromkeys((*self.followed, *filter(None, map(plain, texts)))))

    def found_in(self, text: str, *, derived: bool = False) -> bool:
        """Whether `text` says any of it."""
        return self._has_phrase(text) or any(True for _ in self._spans(text, derived=derived))

    def found_in_bytes(self, raw: bytes) -> bool:
        """Whether a file's bytes say any of it, as text or as a JSON string."""
        lowered = raw.lower()
        sought = [self._core(one, whole=False) for one in self.phrases]
        sought += [self._core(one, whole=True) for one in self.statements]
        if not any(core.raw.search(lowered) for core in sought) and not _ESCAPED_LETTER.search(lowered):
            return False
        return self.found_in_layers(raw.decode("utf-8", "ignore"))

    def found_in_layers(self, text: str) -> bool:
        """Whether `text`, or a JSON string in it, or one in that, says any of it."""
        for _ in range(_LAYERS):
            if self.found_in(text):
                return True
            bare = without_escapes(text) if "\\" in text else text
            if bare == text:
                return False
            text = bare
        return self.found_in(text)

    def touches(self, scope: Scope) -> Callable[[str], bool]:
        """Tells of an entry of `scope`, as it stands in its note, whether it may say any of it or name what goes."""
        sought = [self._core(one, whole=False).runs for one in self.phrases]
        sought += [self._core(one, whole=True).runs for one in (*self.statements, *self.followed)]
        gone = [one for owner, one in self.entries if owner == scope]
        named = [name for name in (*gone, *self.cells, *self.lost) if name]

        def may(block: str) -> bool:
            lowered = block.lower()
            return any(runs.search(lowered) for runs in sought) or any(name in block for name in named)

        return may

    def without(self, text: str, *, derived: bool = False) -> str:
        """`text` with a mark in place of the words; the same object where it has none of them."""
        if not self.found_in(text, derived=derived):
            return text
        whole = _marked(text, self._spans(text, derived=derived))
        return self._without_phrases(whole) if self._has_phrase(whole) else whole

    def without_in_line(self, line: str, *, derived: bool = False) -> str:
        """A line of a note without the words; a field with JSON that holds them loses its whole value."""
        made = self.without(line, derived=derived)
        field = _FIELD.fullmatch(made)
        if field is None or not self.found_in_layers(made):
            return made
        return f"{field[1]}{TOMBSTONE}{line[len(line.rstrip()) :]}"

    def masked(self, text: str) -> str:
        """`text` with nothing but the words themselves replaced, for text that is not prose."""
        for one in self.phrases:
            text = self._core(one, whole=False).pattern.sub(TOMBSTONE, text)
        return _marked(text, self._spans(text, derived=False))

    def _without_phrases(self, text: str) -> str:
        parts: list[str] = []
        for sentence in sentences(text):
            if not self._has_phrase(sentence):
                parts.append(sentence)
                continue
            tail = "\n" if sentence.endswith("\n") else ""
            if parts and parts[-1].strip() == TOMBSTONE:
                parts[-1] = parts[-1].rstrip("\n") + tail
            else:
                parts.append((" " if sentence.startswith(" ") else "") + TOMBSTONE + tail)
        whole = "".join(parts)
        for one in self.phrases:  # what runs over the end of a sentence
            whole = self._core(one, whole=False).pattern.sub(TOMBSTONE, whole)
        return whole

    def _has_phrase(self, text: str) -> bool:
        if not self.phrases:
            return False
        lowered = text.lower()
        return any(
            core.runs.search(lowered) and core.pattern.search(text)
            for core in (self._core(one, whole=False) for one in self.phrases)
        )

    def _spans(self, text: str, *, derived: bool) -> Iterator[tuple[int, int]]:
        wanted = (*self.statements, *self.followed) if derived else self.statements
        lowered = text.lower() if wanted else ""
        for one in wanted:
            core = self._core(one, whole=True)
            if not core.runs.search(lowered):
                continue
            for match in core.pattern.finditer(text):
                if _begins(text, match.start()) and (end := _ends(text, match.end())):
                    yield match.start(), end

    def _core(self, words: str, *, whole: bool) -> _Core:
        key = f"{whole}{words}"
        found = self._cores.get(key)
        if found is None:
            core = r"\s+".join(map(_any_form, words.split()))
            if not whole:
                written = unicodedata.normalize("NFC", words)
                core = _edge(written[0], r"(?<![^\W_])") + core + _edge(written[-1], _NO_LETTER_AFTER)
            runs = _plain_runs(words.split())
            found = self._cores[key] = _Core(
                re.compile(core, re.IGNORECASE),
                re.compile(_BETWEEN.join(runs)),
                re.compile(_BETWEEN.join(runs).encode()),
            )
        return found

    # ------------------------------------------------------------ what is left of an entry

    def nothing_left(self, texts: Iterable[str], *, derived: bool = False) -> bool:
        """Whether texts say nothing once the words are out; who said them does not count."""
        for text in texts:
            cleaned = self.without(text, derived=derived)
            if any(TOMBSTONE not in one and word_set(one) for one in sentences(cleaned)):
                return False
        return True

    def follows_from_lost(self, messages: Sequence[str], text: str) -> bool:
        """Whether something made of `messages` that says `text` was made of the part that goes."""
        lost = [self.lost[one] for one in messages if one in self.lost]
        if not lost:
            return False
        if len(lost) == len(messages) and not any(one.kept for one in lost):
            return True
        own = word_set(text)
        near = max((jaccard(own, word_set(s)) for one in lost for s in one.gone), default=0.0)
        other = max((jaccard(own, word_set(s)) for one in lost for s in one.kept), default=0.0)
        return near > 0 and near >= other


class Likeness:
    """Which statements are alike to what is named: nearly the same words, or the same and more."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._bags: list[tuple[frozenset[str], frozenset[str]]] = []
        self._sentences: set[str] = set()
        self._probes: set[str] = set()
        for text in dict.fromkeys(texts):
            telling = [one for one in sentences(text) if len(word_set(one)) >= TELLING]
            self._sentences |= {key for one in telling if (key := folded(one))}
            for part in {text, *telling}:
                bag = word_set(part)
                if len(bag) < TELLING:
                    continue
                marks = frozenset(w for w in bag if len(w) >= 5 and any(c.isdigit() for c in w))
                self._bags.append((bag, marks))
                # Whatever shares half of the words shares one of the longest.
                self._probes |= {*sorted(bag, key=len, reverse=True)[: len(bag) // 2 + 1], *marks}

    def may_be_in(self, block: str) -> bool:
        """Whether a text may be alike, or a sentence in it: it has as many of the words as that takes."""
        lowered = unicodedata.normalize("NFKC", block).casefold().replace("'", "").replace("’", "")
        return any(
            sum(word in lowered for word in bag) >= (ALIKE_WITH_MARK if marks else ALIKE) * len(bag)
            for bag, marks in self._bags
        )

    def why(self, text: str) -> str:
        """Why `text` is alike, or "" where it is not."""
        lowered = unicodedata.normalize("NFKC", text).casefold()
        if not any(probe in lowered for probe in self._probes):
            return ""
        if folded(text) in self._sentences:
            return "says a part of it"
        words = word_set(text)
        for bag, marks in self._bags:
            if bag <= words:
                return "says the same and more"
            alike = jaccard(words, bag)
            if alike >= ALIKE or (alike >= ALIKE_WITH_MARK and marks & words):
                return "is said in nearly these words"
        return ""


def sentences(text: str) -> list[str]:
    """The sentences of a text, as they stand; joined they are the text."""
    return [match[0] for match in _SENTENCE.finditer(text) if match[0]]


def plain(text: str) -> str:
    """A statement without what surrounds it: blanks, quotes, the stop at its end."""
    bare = text.strip().rstrip(_STOPS + " \t\n\"'”’»").lstrip("\"'“‘«„ ")
    return bare if len(bare) >= SHORTEST else ""


def quoted(text: str) -> list[str]:
    """A statement, and what is left of it without who said it (`alice: I live in Berlin.`)."""
    match = _SPEAKER.match(text.strip())
    rest = text.strip()[match.end() :] if match else ""
    return [text, rest] if len(word_set(rest)) >= TELLING else [text]


def folded(text: str) -> str:
    """The form under which two statements are one and the same."""
    return " ".join(plain(text).casefold().split())


def shown(text: str) -> str:
    """Words for a preview or a receipt: in one line, and not endless."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]} ..."


def scope_of_path(space: Space, at: Locator) -> Scope:
    """Whose a file of a space is, by its path: an owner's, or else the project's."""
    parts = at.parts
    track = TRACKS.get(parts[2]) if len(parts) > 4 else None
    if track is None or track == "project":
        return Scope(space, "project", "")
    return Scope(space, track, parts[3])


def owner_name(scope: Scope) -> str:
    """A scope in words: `user alice`, `project`."""
    return f"{scope.track} {scope.owner}" if scope.owner else scope.track


def cleaned_json(wanted: Wanted, value: Any, *, skip: frozenset[str] = frozenset()) -> Any:
    """A JSON value without the words, names in `skip` left alone; the very same object where it holds none."""
    if isinstance(value, str):
        return wanted.without(value)
    if isinstance(value, list):
        items = [cleaned_json(wanted, item, skip=skip) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        made = {
            wanted.masked(key) if wanted.found_in(key) else key: item
            if key in skip
            else cleaned_json(wanted, item, skip=skip)
            for key, item in value.items()
        }
        same = made.keys() == value.keys() and all(made[key] is value[key] for key in value)
        return value if same else made
    return value


def _letters(word: str) -> list[list[str]]:
    """The letters of a word, each in every form that Unicode has for it and its marks; the longest first."""
    letters: list[str] = []
    for sign in unicodedata.normalize("NFC", word):
        if letters and unicodedata.combining(sign):
            letters[-1] += sign
        else:
            letters.append(sign)
    return [_forms(letter) for letter in letters]


def _forms(letter: str) -> list[str]:
    parts = unicodedata.normalize("NFD", letter)
    made = {unicodedata.normalize("NFC", parts[:n]) + parts[n:] for n in range(1, len(parts) + 1)}
    return sorted({letter, parts, *made}, key=lambda one: (-len(one), one))


def _any_form(word: str) -> str:
    """A pattern for a word, whichever way its letters are written."""
    made = "".join(
        re.escape(forms[0]) if len(forms) == 1 else f"(?:{'|'.join(map(re.escape, forms))})"
        for forms in _letters(word)
    )
    return made if re.fullmatch(made, word) else f"(?:{re.escape(word)}|{made})"


def _plain_runs(words: Sequence[str]) -> list[str]:
    """Plain runs of letters that stand in a row in every text with these words, whichever way others are written."""
    signs = " ".join(
        "".join(forms[0] if len(forms) == 1 else "\0" for forms in _letters(word))
        if word == unicodedata.normalize("NFC", word) or word == unicodedata.normalize("NFD", word)
        else "\0"
        for word in words
    )
    rows = [[run.lower() for run in _PLAIN_RUN.findall(stretch)] for stretch in signs.split("\0")]
    return max(rows, key=lambda row: sum(map(len, row)))


def _edge(letter: str, guard: str) -> str:
    """A guard against the middle of a word, where the script keeps words apart."""
    return guard if letter.isalnum() and not is_unspaced(letter) else ""


def _begins(text: str, at: int) -> bool:
    """Whether a statement may begin at `at`: nothing before it in its line, or a mark that ends what was."""
    before = at
    while before and text[before - 1] in " \t":
        before -= 1
    if before == 0 or text[before - 1] in "\n\r":
        return True
    mark = text[before - 1]
    if mark in "'’-_":
        return before < at if mark in "-_" else before < 2 or not text[before - 2].isalnum()
    return mark in _BEFORE


def _ends(text: str, at: int) -> int:
    """Where the statement that reaches to `at` ends, its stop included; 0 where it goes on."""
    end = at
    while end < len(text) and text[end] in _STOPS:
        end += 1
    if end > at:
        return 0 if text[end - 1] == "." and text[end : end + 1].isalnum() else end
    while end < len(text) and text[end] in " \t":
        end += 1
    if end == len(text) or text[end] in "\n\r" or text[end] in _AFTER:
        return at
    return at if text[end] in "'’" and not text[end + 1 : end + 2].isalnum() else 0


def _marked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """`text` with one mark in the place of each span, or of several that overlap."""
    parts, last = [], 0
    for start, end in sorted(spans):
        if start >= last:
            parts += [text[last:start], TOMBSTONE]
        last = max(last, end)
    return "".join((*parts, text[last:]))


Left = Sequence[tuple[str, str]]
"""Places where something stays, and why."""
WithoutItems = Callable[[str, Scope, Callable[[Mapping[str, Any]], bool]], str | None]
"""A profile's text, whose it is, and which of its items go -> its new text; None where none does."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Callbacks that a forgetting needs beside notes, logs and journals.

    Attributes:
        settle: Waits for those who read what was said before it was cleaned and may still write from it;
            returns who was not done in time, and why, for the receipt.
        purgers: By name, what removes it from places `governed` cannot see (the index, the vectors, the history of
            entries); each gets what goes and returns how many things it removed.
        profile: Takes items out of a profile; without it they lose their words.
        files: Every file that is kept, index and temporary ones included, for the last look: its path, and piece by piece
            its bytes (None: unreadable). Without it, those of the space.
        waiting: How much of who goes waits to be taken in.
        retell: Tells a session's episodes anew from what is left of it.
        begun: Where this forgetting is on record until nothing is left to do.
    """

    settle: Callable[[], Left] = tuple
    purgers: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    profile: WithoutItems | None = None
    files: Callable[[], Iterable[tuple[str, bytes | None]]] | None = None
    waiting: Callable[[Any], int] = lambda _: 0
    retell: Callable[[str], int] = lambda _: 0
    begun: Begun | None = None

    def earlier(self) -> dict[str, Any]:
        """What an earlier try of the same call had found; empty as a rule."""
        return self.begun.found() if self.begun is not None else {}

    def keep(self, found: Mapping[str, Any]) -> None:
        if self.begun is not None:
            self.begun.keep(found)

    def stays(self, left: Left) -> Left:
        """The record itself, where what is left asks to forget again."""
        return self.begun.stays(left) if self.begun is not None else []

    def end(self, left: Left) -> None:
        if self.begun is not None:
            self.begun.end(left)

    def purge(self, gone: Any, add: Callable[[str, int], None]) -> Left:
        """Have it removed everywhere; what could not be, and why."""
        left = []
        for name, take in self.purgers.items():
            try:
                add(name, take(gone))
            except (CairnError, OSError) as error:
                left.append((name, ForgetAgain(error)))
        return left


@dataclass(slots=True)
class ForgetTally:
    """What was found to go (or to stay), counted and listed."""

    dry: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    taken: dict[tuple[str, str], Affected] = field(default_factory=dict)

    def add(self, what: str, count: int = 1) -> None:
        if count:
            self.counts[what] = self.counts.get(what, 0) + count

    def take(self, found: Affected) -> bool:
        """Note a thing once; whether it is new."""
        key = (found.path, found.id)
        if key in self.taken:
            return False
        self.taken[key] = found
        return True
