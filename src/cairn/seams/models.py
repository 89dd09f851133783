"""The models, both optional (`Embedder`, `Writer`), and the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from cairn.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The word pieces of one text, in order: their vectors (int8, 127 is one) and how much each says (float32)."""

    vectors: np.ndarray
    weights: np.ndarray


class Embedder(ABC):
    """Turns texts into unit vectors. What only some models can is given here as those that cannot have it."""

    language: str | None = None
    """The one language it was made for; None where it names none, and is believed to know all."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Model and version; vectors with another id are never compared."""

    @property
    @abstractmethod
    def dimensions(self) -> int: ...

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A float32 array (len(texts), dimensions) of unit length. Raises `Unavailable`."""

    @property
    def loaded(self) -> bool:
        """Whether a text costs next to nothing now: those who can do without look here first."""
        return False

    @property
    def token_dimensions(self) -> int:
        """How long the vector of a word piece is; 0 where there are none."""
        return 0

    def embed_tokens(self, texts: Sequence[str]) -> tuple[np.ndarray, list[TokenVectors]]:
        """As `embed`, and the word pieces of each text. Raises `Unavailable`."""
        del texts
        raise Unavailable(f"{self.id} has no vectors of word pieces.")

    def grasps(self, text: str) -> float:  # noqa: ARG002 -- a default
        """How much of a text the model has words for, 0 to 1; one that does not know has them all."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered, already parsed and checked against the schema."""

    value: Mapping[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Writer(Protocol):
    """A language model that answers with JSON of a given schema."""

    @property
    def id(self) -> str: ...

    def complete(self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: str) -> Completion:
        """Ask once, within the budget. Raises `Unavailable` on timeout, refusal, bad JSON or spent budget."""
        ...


class Clock(Protocol):
    """Time, so that tests can set it. Always aware, always UTC."""

    def now(self) -> datetime: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
