"""The table of operations: what each is called, and whether it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.parts import Parts

F = TypeVar("F", bound=Callable[..., Any])


class Room:
    """What the operations of one family stand on: the parts of the open root."""

    settings: Settings

    @property
    def parts(self) -> Parts:
        """The parts of the open root, for those who build on them."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table."""

    name: str
    call: Callable[..., Any]
    writes: bool


def operation(*, writes: bool) -> Callable[[F], F]:
    """Declare the method below as an operation."""

    def declare(call: F) -> F:
        call.operation = Operation(call.__name__, call, writes)  # type: ignore[attr-defined]
        return call

    return declare


def operations_of(room: type) -> dict[str, Operation]:
    """The operations of a room, by name."""
    found = {name: getattr(getattr(room, name), "operation", None) for name in dir(room)}
    return {name: row for name, row in found.items() if isinstance(row, Operation)}
