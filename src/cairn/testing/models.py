"""The suites of the models (`Embedder`, `Writer`) and of the `Clock`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from cairn.errors import Unavailable
from cairn.seams import Clock, Completion, Embedder, Writer
from cairn.testing.suite import Mixin, in_threads, raises, require

# -- embedders

TEXTS = (
    "The heron nests by the weir.",
    "Der Reiher nistet am Wehr.",
    "鷺は堰のそばに巣を作る。",
    "",
    "weir " * 2000,
)


def check_embedder_unit_vectors(embedder: Embedder) -> None:
    """One float32 vector of unit length per text, in their order, whatever the text; none for no text."""
    import numpy as np

    vectors = embedder.embed(TEXTS)
    require(vectors.shape == (len(TEXTS), embedder.dimensions), f"got an array of shape {vectors.shape}")
    require(vectors.dtype == np.float32, f"vectors must be float32, not {vectors.dtype}")
    norms = np.linalg.norm(vectors, axis=1)
    require(
        bool(np.all((abs(norms - 1) < 1e-3) | (norms == 0))), f"length one, or nothing at all, got {norms}"
    )
    require(bool(norms[0] > 0), "a sentence must have a vector")
    require(embedder.embed([]).shape[0] == 0, "no text, no vector")
    require(bool(embedder.id) and embedder.dimensions > 0, "a model has a name and a size")


def check_embedder_repeatable(embedder: Embedder) -> None:
    """A text has the same vector alone, among others and in many threads; it is nearest to itself."""
    import numpy as np

    together = embedder.embed(TEXTS[:3])
    seen: list[object] = []

    def work(who: int) -> None:
        alone = embedder.embed([TEXTS[who % 3]])[0]
        seen.append(bool(np.allclose(alone, together[who % 3], atol=0.02)))

    in_threads(work, range(6))
    require(seen == [True] * 6, "a text's company must not change its vector")
    require(bool(np.all((together @ together.T).argmax(axis=1) == np.arange(3))), "nearest to itself")


def check_embedder_pieces(embedder: Embedder) -> None:
    """Where a model gives word pieces, they have the length it says and a weight each; it grasps 0 to 1 of a text."""
    require(0.0 <= embedder.grasps("heron 鷺") <= 1.0, "a share is between 0 and 1")
    require(isinstance(embedder.loaded, bool), "a model is loaded or not")
    if not embedder.token_dimensions:
        raises(Unavailable, lambda: embedder.embed_tokens(["heron"]), "without pieces, Unavailable")
        return
    vectors, pieces = embedder.embed_tokens(["the heron nests", "weir"])
    require(vectors.shape == (2, embedder.dimensions) and len(pieces) == 2, "one of each per text")
    for piece in pieces:
        require(piece.vectors.shape[1] == embedder.token_dimensions, f"got {piece.vectors.shape}")
        require(len(piece.weights) == len(piece.vectors) > 0, "a weight for each piece")


EMBEDDER_CHECKS: Mapping[str, Callable[[Embedder], None]] = {
    "unit_vectors": check_embedder_unit_vectors,
    "repeatable": check_embedder_repeatable,
    "pieces": check_embedder_pieces,
}


class EmbedderConformance(Mixin, checks=EMBEDDER_CHECKS, make="make_embedder"):
    """Derive from this, give `make_embedder`, and every embedder check is a test."""

    def make_embedder(self) -> Embedder:
        raise NotImplementedError


# -- writers

SCHEMA = {
    "type": "object",
    "properties": {"subject": {"type": "string"}, "summary": {"type": "string"}},
    "required": ["subject", "summary"],
    "additionalProperties": False,
}


def check_writer_answers(writer: Writer) -> None:
    """An answer is a value of the schema, with what it cost."""
    answer = writer.complete("You summarise.", "The heron nests.", SCHEMA, purpose="episode mc_1")
    require(isinstance(answer, Completion), f"expected a Completion, got {answer!r}")
    require(set(answer.value) == {"subject", "summary"}, f"got {answer.value}")
    require(all(isinstance(value, str) for value in answer.value.values()), "values must be of their type")
    require(answer.prompt_tokens >= 0 and answer.completion_tokens >= 0, "costs are counts")
    require(bool(writer.id), "a model has a name")


WRITER_CHECKS: Mapping[str, Callable[[Writer], None]] = {"answers": check_writer_answers}


def check_writer_unavailable(writer: Writer) -> None:
    """For a writer whose model answers with nothing of use: `Unavailable`, and no other error."""
    raises(
        Unavailable,
        lambda: writer.complete("You summarise.", "The heron nests.", SCHEMA, purpose="episode mc_1"),
        "a model that does not answer must raise Unavailable",
    )


class WriterConformance(Mixin, checks=WRITER_CHECKS, make="make_writer"):
    """Derive from this, give `make_writer`, and every writer check is a test."""

    def make_writer(self) -> Writer:
        raise NotImplementedError


# -- clocks


def check_clock_utc(clock: Clock) -> None:
    """The time is aware and UTC."""
    now = clock.now()
    require(isinstance(now, datetime) and now.utcoffset() == timedelta(0), f"aware and UTC, got {now!r}")


CLOCK_CHECKS: Mapping[str, Callable[[Clock], None]] = {"utc": check_clock_utc}


class ClockConformance(Mixin, checks=CLOCK_CHECKS, make="make_clock"):
    """Derive from this, give `make_clock`, and every clock check is a test."""

    def make_clock(self) -> Clock:
        raise NotImplementedError
