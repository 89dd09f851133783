"""Cuts text into tokens, the same way for the index and for queries.

One function, `tokens`, cuts both sides, so what was written can be found by what is asked. It knows six
things no plain word splitter knows: pictures (each is a word), little words that hang on the next by an apostrophe ("l'ami"), scripts without blanks (characters and pairs of them), accents (with and
without), names from code (`snake_case`, `camelCase`, `dotted.paths`, `file/paths`: whole and in parts) and
endings (`[words.endings]` of a language's file). A token holds only ASCII letters and digits, `_` and non-ASCII characters, so an index may
store the stream joined by blanks and split it again without loss.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from cairn.budget import share
from cairn.language import tongues
from cairn.language.later import Later

MAX_TOKEN = 64
_MAX_PARTS = 24
_WORDS_KEPT = 32_768

# Scripts written without blanks between words: Thai to Myanmar, Khmer, kana, Han (with extensions).
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"
_MARKS = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u06d6-\u06ed\u0900-\u0dff\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d"
)

_PICTURES = "\u2600-\u27bf\U0001f300-\U0001faff"
_CHUNK = re.compile(rf"\w[\w{_MARKS}]*(?:['’._/\\:@&~+-]+[\w{_MARKS}]+)*(?:\+\+|#(?![\w]))?|[{_PICTURES}]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_RUNS = Later(
    rf"[{_UNSPACED}{_MARKS}]*[{_UNSPACED}][{_UNSPACED}{_MARKS}]*|[{_HANGUL}]+|[^{_UNSPACED}{_HANGUL}]+"
)
_UNSPACED_ONLY = Later(rf"[{_UNSPACED}]")
_HANGUL_ONLY = Later(rf"[{_HANGUL}]")
# Where words stand without blanks, a number or path among them begins and ends with its letters.
_BETWEEN_SCRIPTS = Later(rf"(?<=[A-Za-z0-9])(?=[{_UNSPACED}])|(?<=[{_UNSPACED}])(?=[A-Za-z0-9])")
_SEPARATORS = re.compile(r"[^\w" + _MARKS + r"]+|_+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^A-Za-z\d]+")
_APOSTROPHES = re.compile(r"['’]")
_PICTURE = re.compile(f"[{_PICTURES}]")


@functools.cache
def stop_words() -> frozenset[str]:
    """Words that say nothing by themselves, as every language lists them."""
    return tongues.every_word("words", "little")


def tokens(text: str) -> list[str]:
    """The searchable tokens of `text`, in order, repeated as often as they occur.

    >>> tokens("getUserName fixed")
    ['getusername', 'get', 'user', 'nam', 'fix']
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if "," in text:
        text = _THOUSANDS.sub("", text)
    chunks = _CHUNK.findall(text)
    if len(max(chunks, key=len, default="")) <= MAX_TOKEN:
        return list(chain.from_iterable(map(_pieces, chunks)))
    # A chunk so long hardly comes again: it does not push out words that do.
    return [
        piece
        for chunk in chunks
        for piece in (_pieces(chunk) if len(chunk) <= MAX_TOKEN else _pieces.__wrapped__(chunk))
    ]


def word_set(text: str) -> frozenset[str]:
    """The distinct plain words of `text`, for comparing texts: no endings cut, nothing taken apart twice."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    found: set[str] = set()
    for chunk in _CHUNK.findall(text):
        if chunk.isascii() and chunk.isalnum():  # most words: nothing to take apart
            found.add(chunk.lower()[:MAX_TOKEN])
            continue
        for word in _SEPARATORS.split(_APOSTROPHES.sub("", chunk)):
            if not word:
                continue
            for run in _RUNS.now.findall(word):
                if _UNSPACED_ONLY.now.search(run):
                    found.update(_pairs(run))
                else:
                    found.add(run.casefold()[:MAX_TOKEN])
    return frozenset(found)


def query_terms(text: str, *, limit: int, without: Iterable[str] = ()) -> list[str]:
    """The distinct terms worth looking up, at most `limit` of them.

    Stop words and `without` are left out unless nothing else remains. When there are too many terms the longest stay,
    so the cost of a question does not grow with its length.
    """
    distinct = list(dict.fromkeys(tokens(text)))
    unwanted = set(without)
    kept = [term for term in distinct if term not in stop_words() and term not in unwanted]
    kept = kept or [term for term in distinct if term not in stop_words()] or distinct
    if len(kept) <= limit:
        return kept
    chosen = set(sorted(kept, key=len, reverse=True)[:limit])
    return [term for term in kept if term in chosen]


share("stems of words", _WORDS_KEPT * 160)
share("pieces of words", _WORDS_KEPT * 420)


@lru_cache(maxsize=_WORDS_KEPT)
def stem(word: str) -> str:
    """A word without the endings that its language cuts, so that its forms meet; others are left alone.

    >>> stem("wishes"), stem("planned"), stem("Zürich"), stem("bought") == stem("buy")
    ('wish', 'plan', 'Zürich', True)
    """
    word = _forms().get(word, word)
    for kind, steps in _endings():
        if kind.fullmatch(word):
            for step in steps:
                found = next(((cut, form) for ending, form in step if (cut := ending.fullmatch(word))), None)
                word = found[0].expand(found[1]) if found else word
            break
    return word


@functools.cache
def _forms() -> dict[str, str]:
    """Of each language the forms of a word that no ending tells, with the word."""
    tables = [tongue.table("words").get("endings", {}) for tongue in tongues.known().values()]
    groups = [group.split() for table in tables for group in table.get("forms", "").split("/")]
    return {form: group[0] for group in groups for form in group[1:]}


_Step = tuple[tuple[re.Pattern[str], str], ...]


@functools.cache
def _endings() -> tuple[tuple[re.Pattern[str], tuple[_Step, ...]], ...]:
    """Of each language that cuts endings the words that are its, and its steps: of each the first that fits is taken.

    A word stands alone here, so its letters tell whose it is; what no other language claims is the default's.
    """
    languages = sorted(tongues.known().values(), key=lambda tongue: tongue.code == tongues.DEFAULT)
    tables = [tongue.table("words").get("endings") for tongue in languages]
    return tuple(
        (
            re.compile(table["of"]),
            tuple(tuple((re.compile(ending), form) for ending, form in step) for step in table["steps"]),
        )
        for table in tables
        if table
    )


@lru_cache(maxsize=_WORDS_KEPT)
def _pieces(chunk: str) -> tuple[str, ...]:
    """All tokens of one blank-free chunk."""
    if _PICTURE.match(chunk):
        return (chunk,)
    if chunk.isascii() and chunk.isalpha() and (chunk.islower() or chunk.istitle()):
        return (stem(chunk.lower()[:MAX_TOKEN]),)
    if chunk.endswith(("++", "#")):
        plain = chunk.rstrip("+#")
        named = [part.casefold()[:48] for part in _SEPARATORS.split(plain) if part][-1:]
        mark = "plusplus" if chunk.endswith("++") else "sharp"
        return (*_pieces(plain), *(part + mark for part in named))
    if "'" in chunk or "’" in chunk:
        bare = _without_little_words(chunk)
        if len(bare) < len(chunk):
            return _pieces(bare) if len(bare) <= MAX_TOKEN else _pieces.__wrapped__(bare)
        if _SEPARATORS.sub("", chunk).isalpha():
            chunk = _APOSTROPHES.sub("", chunk)
            if chunk.isalpha():
                return (chunk.casefold()[:MAX_TOKEN],)
    out: list[str] = []
    parts = [part for part in _SEPARATORS.split(chunk) if part]
    if len(parts) > 1 and len(scripts := _BETWEEN_SCRIPTS.now.split(chunk)) > 1:
        return tuple(dict.fromkeys(piece for script in scripts for piece in _pieces(script)))
    if len(parts) > 1:
        out.append("_".join(parts).casefold()[:MAX_TOKEN])
    for part in parts[:_MAX_PARTS]:
        for run in _RUNS.now.findall(part):
            if _UNSPACED_ONLY.now.search(run):
                out.extend(_pairs(run, singles=True))
            else:
                out.extend(_word(run))
    return tuple(dict.fromkeys(out)) if len(parts) > 1 else tuple(out)


def _without_little_words(chunk: str) -> str:
    """A chunk less the little words that hang on it with an apostrophe, before ("l'") and behind ("'s").

    >>> _without_little_words("qu'l'ami's"), _without_little_words("o'clock")
    ('ami', "o'clock")
    """
    plain = chunk.replace("’", "'")
    begin, end = 0, len(plain)
    longest = max(map(len, _hung()), default=0)
    while (first := plain.find("'", begin, end)) >= 0:
        hangs = end - first - 1 <= longest and plain[first + 1 : end].casefold() in _hung()
        if plain[begin:first].casefold() in _elided() and not hangs:
            begin = first + 1
            continue
        last = plain.rfind("'", begin, end)
        if end - last - 1 > longest or plain[last + 1 : end].lower() not in _hung():
            break
        end = last
    return chunk[begin:end]


@lru_cache(maxsize=1)
def _elided() -> frozenset[str]:
    """Little words that lose their end before a vowel and hang on the next word ("l'ami"), of every language."""
    return frozenset(
        word
        for tongue in tongues.known().values()
        for word in tongue.table("language").get("elided", "").split()
    )


@functools.cache
def _hung() -> frozenset[str]:
    """What an apostrophe hangs on a word and says nothing by itself ("Ann's"); nothing at all is such, too."""
    return tongues.every_word("words", "hung") | {""}


def _word(run: str) -> Iterable[str]:
    if _HANGUL_ONLY.now.match(run):
        return (run[:MAX_TOKEN], *(_pairs(run) if len(run) > 2 else ()))
    if run.isascii():
        lower = run.lower()[:MAX_TOKEN]
        humps = _CAMEL.findall(run) if not (lower == run or run.isupper() or run.isdigit()) else ()
        if len(humps) > 1 and len(run) <= MAX_TOKEN:
            return (lower, *(stem(hump.lower()) for hump in humps))
        return (stem(lower),)
    folded = run.casefold()[:MAX_TOKEN]
    bare = without_accents(folded)
    return (stem(folded),) if bare == folded or not bare else (stem(bare), folded)


def _pairs(run: str, *, singles: bool = False) -> list[str]:
    """Neighbouring characters in pairs; single ones too where asked, and where there is only one."""
    run = run.casefold()
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    return [*run, *pairs] if singles or not pairs else pairs


def without_accents(word: str) -> str:
    """A word as it is written without accents; what is no word of letters stays as it is."""
    if word.isascii() or is_unspaced(word[0]):
        return word
    bare = "".join(ch for ch in unicodedata.normalize("NFD", word) if not unicodedata.combining(ch))
    return unicodedata.normalize("NFC", bare)


def is_unspaced(letter: str) -> bool:
    """Whether `letter` belongs to a script that writes words without blanks between them."""
    return _UNSPACED_ONLY.now.match(letter) is not None
