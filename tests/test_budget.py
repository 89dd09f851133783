"""What is kept only to be quick is counted in bytes, stays within its share, and all shares within one budget."""

import re
from pathlib import Path

from cairn import budget
from cairn.budget import CACHES, SHARES, TOTAL, Memoized, kept, weight
from cairn.engines import row_tables
from cairn.index import embedding_text
from cairn.index.postings import word_mark
from cairn.language import tongues
from cairn.language.words import _pieces, stem, tokens
from cairn.operations import table  # noqa: F401 -- its cache is in the list
from cairn.project import consolidate  # noqa: F401
from cairn.retrieval import fitting

SOURCE = Path(budget.__file__).parent


def test_a_cache_holds_bytes_and_not_items():
    """The least lately used goes; what is too large for it is made each time and not kept."""
    cache, made = Memoized(10_000), []

    def look(text):
        return cache.get(text, lambda: made.append(text) or text.upper())

    for number in range(100):
        assert look(f"{number:03}" + "x" * 200) == f"{number:03}" + "X" * 200
        assert cache.bytes <= 10_000
    assert look("099" + "x" * 200)
    assert len(made) == 100
    look("000" + "x" * 200)
    assert len(made) == 101
    before = cache.bytes
    for _ in range(2):
        look("y" * 5_000)
    assert (len(made), cache.bytes) == (103, before)
    cache.clear()
    assert cache.bytes == 0


def test_the_product_stays_within_its_budget():
    """Sentences, rows and names nobody has seen, by the ten thousand: every cache is full and none is over its share."""
    for number in range(3_000):
        long = f"word{number} " * 150
        tongues.spoken_in(long)
        fitting._token_set(long)
        embedding_text.spoken_names(((f"person-{number}", "Name " * 40),))
        tokens(f"chunk{number}" + "z" * 10_000)
    for name, cache in CACHES.items():
        assert cache.bytes <= SHARES[name], name
    assert CACHES["the words of rows"].bytes > SHARES["the words of rows"] / 2
    assert sum(SHARES.values()) <= TOTAL
    assert (
        _pieces.cache_info().maxsize * (weight("x" * 64) + weight(("x" * 64, "y" * 64)))
        <= SHARES["pieces of words"]
    )
    assert stem.cache_info().maxsize * weight("x" * 64) <= SHARES["stems of words"]
    pieces = "_".join("abcdefghijklmnopqrstuvwx")
    read = weight(pieces) + weight(row_tables._read(pieces))
    assert row_tables._read.cache_info().maxsize * read <= SHARES["words as rows have them"]
    mark = weight("x" * 64) + weight(word_mark("x" * 64))
    assert word_mark.cache_info().maxsize * mark <= SHARES["marks of words"]


def test_a_new_cache_of_texts_cannot_forget_to_count():
    """Wherever results are kept by the hundred, either the key is short by construction, or bytes are counted."""
    short = {
        "stem",
        "_pieces",
        "session_locator",
        "place_of_session",
        "places_of",
        "_session_hash",
        "_pattern",
        "_field_name",
        "word_mark",
        "_read",
        "_trouble_of",
    }
    found = set()
    for path in SOURCE.rglob("*.py"):
        for size, name in re.findall(
            r"lru_cache\(maxsize=(\w+)\)\n(?:async )?def (\w+)", path.read_text(encoding="utf-8")
        ):
            if not size.isdigit() or int(size) > 300:
                found.add(name)
    assert found <= short
    assert kept
