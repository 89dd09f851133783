"""Whether the talk that is kept is in a language the embedding model knows.

The newest messages of each person are read, a few of each, and their language told by its little words or its script.
Where most are in another language than the model's, questions are answered by shared words alone: whoever runs the
memory is told so, with the setting that helps.
"""

from __future__ import annotations

from collections.abc import Iterable

from cairn.config import EmbeddingSettings
from cairn.index.corpus import Pages
from cairn.language import tongues
from cairn.seams import Embedder
from cairn.types import Scope

_PEOPLE, _OF_EACH = 20, 40
_FEWEST, _FEWEST_LETTERS = 10, 12

HINT = "Most of what was said here is not in the language the embedding model knows: questions find it by shared words alone"
STEP = (
    "run `pip install 'cairn-memory[multilingual]'`, set embedding.provider = \"multilingual\" (16 languages) and restart; "
    'or set it to "minilm" to leave it so'
)


def is_foreign(
    pages: Pages, scopes: Iterable[Scope], chosen: EmbeddingSettings, model: Embedder | None
) -> bool:
    """Whether people lately said most in another language than the one `model` knows, and nobody chose that model."""
    if model is None or model.language is None or chosen.provider != "auto":
        return False
    people = [scope for scope in scopes if scope.track == "user"][:_PEOPLE]
    said = [
        row.text
        for scope in people
        for row in pages.rows(scope, pages.page(scope, ("message",), limit=_OF_EACH).rowids)
        if len(row.text) >= _FEWEST_LETTERS or not row.text.isascii()
    ]
    foreign = sum(tongues.spoken_in(text).code != model.language for text in said)
    return len(said) >= _FEWEST and 2 * foreign > len(said)
