"""The filter language of `search` and `get`: parsed once, checked, then SQL of two dialects or a plain predicate.

    {"session_id": "s1", "timestamp": {"gte": 1760000000000}, "OR": [{"sender_id": "ana"}, {"sender_id": "bo"}]}

Everything side by side must hold. `AND` and `OR` take lists of filters. A field takes a value (equal) or
operators. Tags and metadata of messages (`tags`, `metadata.KEY`) are compared as a whole, any of several counting:
they have no order. Whose memories are searched is never a filter: owner, app and project stand in the request itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Literal

from cairn.canonical import label
from cairn.errors import Invalid

if TYPE_CHECKING:
    import numpy as np

Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in"]

FIELDS = ("session_id", "parent_type", "parent_id", "timestamp", "sender_id", "tags", "metadata.KEY")
OPERATORS: tuple[Operator, ...] = ("eq", "ne", "gt", "gte", "lt", "lte", "in")
_SYMBOLS: dict[str, str] = {"eq": "IS", "ne": "IS NOT", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_OUTSIDE = frozenset(
    {"user_id", "agent_id", "owner_id", "owner", "app_id", "app", "project_id", "project", "space"}
)
_SEVERAL = frozenset({"sender_id", "labels"})
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": eq,
    "ne": ne,
    "gt": gt,
    "gte": ge,
    "lt": lt,
    "lte": le,
}
_MOST_MS = 1 << 62
_MAX_DEPTH, _MAX_NODES, _MAX_LIST = 16, 256, 1000

# Where the index keeps each field. Senders are one text, each id between line breaks: "\nana\nbo\n"; so are the labels
# (`cairn.talk.messages`) that `tags` and `metadata.KEY` look into.
LABELS = "labels"
COLUMNS: Mapping[str, str] = {
    "session_id": "session_id",
    "parent_type": "parent_type",
    "parent_id": "parent_id",
    "timestamp": "timestamp_ms",
    "sender_id": "sender_ids",
    LABELS: "labels",
}


def packed(values: Sequence[str]) -> str:
    """The text form of several ids or labels that `to_sql` looks into."""
    return "".join(f"\n{value}" for value in values) + "\n" if values else ""


def unpacked(text: str) -> tuple[str, ...]:
    """The values of a text that `packed` made."""
    return tuple(text[1:-1].split("\n")) if text else ()


@dataclass(frozen=True, slots=True)
class Test:
    """One field against one value; a test of `labels` has the label, which names tag or key, for its value."""

    field: str
    operator: Operator
    value: Any

    def to_sql(self) -> tuple[str, list[Any]]:
        column = COLUMNS[self.field]
        if self.field in _SEVERAL:
            wanted = self.value if self.operator == "in" else (self.value,)
            found = " OR ".join(f"instr({column}, ?) > 0" for _ in wanted) or "0"
            return (f"NOT ({found})" if self.operator == "ne" else f"({found})"), [f"\n{v}\n" for v in wanted]
        if self.operator == "in":
            return f"{column} IN ({', '.join('?' * len(self.value))})", list(self.value)
        return f"{column} {_SYMBOLS[self.operator]} ?", [self.value]

    def to_lance(self) -> str:
        """The condition as LanceDB reads it: it takes no values apart, so they stand in it, quoted."""
        if self.field in _SEVERAL:
            wanted = self.value if self.operator == "in" else (self.value,)
            column = "senders" if self.field == "sender_id" else "labels"
            found = " OR ".join(f"array_has({column}, {_quoted(one)})" for one in wanted) or "false"
            return f"(NOT ({found}))" if self.operator == "ne" else f"({found})"
        column = COLUMNS[self.field]
        if self.operator == "in":
            return f"({column} IN ({', '.join(map(_quoted, self.value))}))" if self.value else "(false)"
        if self.operator == "ne":
            return f"({column} IS NULL OR {column} <> {_quoted(self.value)})"
        symbol = "=" if self.operator == "eq" else _SYMBOLS[self.operator]
        return f"({column} IS NOT NULL AND {column} {symbol} {_quoted(self.value)})"

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether `row` passes. `sender_id` and `labels` may be one or several (then any of them counts)."""
        have = row.get(self.field)
        if self.field in _SEVERAL:
            several = {have} if isinstance(have, str) else set(have or ())
            if self.operator == "in":
                return bool(several.intersection(self.value))
            return (self.value in several) is (self.operator == "eq")
        if self.operator == "in":
            return have in self.value
        is_ordered = self.operator not in {"eq", "ne"}
        return not (have is None and is_ordered) and bool(_COMPARED[self.operator](have, self.value))

    def over(self, times: np.ndarray, session: np.ndarray, sessions: Sequence[str]) -> np.ndarray | None:
        """The same judgement on many rows at once, by their times and sessions; None where it needs more than those.

        `session` holds for each row the place of its session in `sessions`, -1 for none.
        """
        import numpy as np

        wanted = self.value if self.operator == "in" else (self.value,)
        if self.field == "timestamp" and all(abs(one) < _MOST_MS for one in wanted):
            found = (
                np.isin(times, wanted)
                if self.operator == "in"
                else _COMPARED[self.operator](times, self.value)
            )
            return np.asarray(found, bool)
        if self.field == "session_id" and self.operator in {"eq", "ne", "in"} and None not in wanted:
            named = [place for place, name in enumerate(sessions) if name in wanted]
            return np.isin(session, named, invert=self.operator == "ne")
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """Several filters of which all (`AND`) or one (`OR`) must hold. An empty `AND` holds always."""

    joined_by: Literal["AND", "OR"]
    parts: tuple[Test | Group, ...]

    def to_sql(self) -> tuple[str, list[Any]]:
        """A SQL condition with `?` for each value, and the values. Nothing of the request enters the text."""
        if not self.parts:
            return ("1" if self.joined_by == "AND" else "0"), []
        pieces, values = [], []
        for part in self.parts:
            sql, bound = part.to_sql()
            pieces.append(sql)
            values.extend(bound)
        return f"({f' {self.joined_by} '.join(pieces)})", values

    def to_lance(self) -> str:
        """The condition as LanceDB reads it."""
        if not self.parts:
            return "(true)" if self.joined_by == "AND" else "(false)"
        return f"({f' {self.joined_by} '.join(part.to_lance() for part in self.parts)})"

    def matches(self, row: Mapping[str, Any]) -> bool:
        """The same judgement on a row at hand; `timestamp` is in epoch milliseconds."""
        judged = (part.matches(row) for part in self.parts)
        return all(judged) if self.joined_by == "AND" else any(judged)

    def over(self, times: np.ndarray, session: np.ndarray, sessions: Sequence[str]) -> np.ndarray | None:
        """The same judgement on many rows at once; None where it needs more than their times and sessions."""
        import numpy as np

        judged = [part.over(times, session, sessions) for part in self.parts]
        known = [one for one in judged if one is not None]
        if not known or len(known) < len(judged):
            return None
        return np.asarray((np.logical_and if self.joined_by == "AND" else np.logical_or).reduce(known))

    def fields(self) -> frozenset[str]:
        """What of a row it looks at."""
        return frozenset[str]().union(
            *(part.fields() if isinstance(part, Group) else {part.field} for part in self.parts)
        )

    def __bool__(self) -> bool:
        return bool(self.parts)


NOTHING_ASKED = Group("AND", ())


def parse(filters: Mapping[str, Any] | None, *, zone: tzinfo = UTC) -> Group:
    """Read a filter as it came with a request.

    Args:
        filters: The JSON object, or None for no filter.
        zone: The display zone: a timestamp text without an offset is meant in it.

    Raises:
        Invalid: an unknown field or operator, a value of the wrong type, an owner, or far too much of it.
    """
    if filters is None:
        return NOTHING_ASKED
    budget = [_MAX_NODES]
    return _group(filters, zone, 1, budget)


def plain_session(filters: Mapping[str, Any] | None) -> str | None:
    """The session a request names outright at the top level; None where it names none or several."""
    value = (filters or {}).get("session_id")
    if isinstance(value, Mapping) and set(value) == {"eq"}:
        value = value["eq"]
    return value if isinstance(value, str) else None


def _group(node: Any, zone: tzinfo, depth: int, budget: list[int]) -> Group:
    if not isinstance(node, Mapping):
        raise Invalid(f"A filter must be an object of fields, not {_kind(node)}.", field="filters")
    if depth > _MAX_DEPTH:
        raise Invalid(f"The filter is nested more than {_MAX_DEPTH} deep: flatten it.", field="filters")
    parts: list[Test | Group] = []
    for name, value in node.items():
        if name in {"AND", "OR"}:
            if value is None:
                continue
            if not isinstance(value, list | tuple) or not value:
                raise Invalid(f"{name} in a filter takes a list of one or more filters.", field="filters")
            parts.append(Group(name, tuple(_group(item, zone, depth + 1, budget) for item in value)))
        else:
            parts.extend(_tests(name, value, zone))
        budget[0] -= 1
        if budget[0] < 0:
            raise Invalid(f"The filter has more than {_MAX_NODES} conditions: ask for less.", field="filters")
    return Group("AND", tuple(parts))


def _tests(name: Any, value: Any, zone: tzinfo) -> list[Test]:
    if name in _OUTSIDE:
        raise Invalid(
            f'"{name}" cannot be filtered on: name the owner, app and project in the request itself.',
            field=name,
        )
    is_label = name == "tags" or (
        isinstance(name, str) and name.startswith("metadata.") and name != "metadata."
    )
    if not is_label and name not in COLUMNS.keys() - {LABELS}:
        raise Invalid(f'"{_short(name)}" is not a filter field ({", ".join(FIELDS)}).', field="filters")
    if not isinstance(value, Mapping):
        return [_test(name, "eq", value, zone, is_label=is_label)]
    if not value:
        raise Invalid(f"{name} has no operator: use one of {', '.join(OPERATORS)}.", field=name)
    tests = []
    for operator, operand in value.items():
        if operator not in OPERATORS:
            raise Invalid(
                f'"{_short(operator)}" is not a filter operator ({", ".join(OPERATORS)}).', field=name
            )
        if (is_label or name == "sender_id") and operator in {"gt", "gte", "lt", "lte"}:
            raise Invalid(f"{name} has no order: {operator} cannot be used; take eq, ne or in.", field=name)
        tests.append(_test(name, operator, operand, zone, is_label=is_label))
    return tests


def _test(name: str, operator: Operator, value: Any, zone: tzinfo, *, is_label: bool) -> Test:
    compared = _value(name, operator, value, zone)
    if not is_label:
        return Test(name, operator, compared)
    several = tuple(label(name, one) for one in compared) if operator == "in" else label(name, compared)
    return Test(LABELS, operator, several)


def _value(name: str, operator: str, value: Any, zone: tzinfo) -> Any:
    if operator == "in":
        if not isinstance(value, list | tuple):
            raise Invalid(f"{name}: in takes a list of values, not {_kind(value)}.", field=name)
        if len(value) > _MAX_LIST:
            raise Invalid(f"{name}: in takes at most {_MAX_LIST} values, not {len(value)}.", field=name)
        return tuple(_value(name, "eq", item, zone) for item in value)
    if name == "timestamp":
        return _milliseconds(value, zone)
    if name.startswith("metadata."):
        if not isinstance(value, str | int | float | bool):
            raise Invalid(
                f"{name} must be compared with a text, a number, or true or false, not {_kind(value)}.",
                field=name,
            )
        if not isinstance(value, str):
            return value
    if not isinstance(value, str):
        hint = '; for several values use {"in": [...]}' if isinstance(value, list | tuple) else ""
        raise Invalid(f"{name} must be compared with a text, not {_kind(value)}{hint}.", field=name)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise Invalid(f"{name} {_short(value)} is not valid Unicode.", field=name)
    return value


def _milliseconds(value: Any, zone: tzinfo) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        return int(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None:
            return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
    raise Invalid(
        f"timestamp {_short(value)} is neither epoch milliseconds nor an ISO date and time.",
        field="timestamp",
    )


def _quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _short(value: Any) -> str:
    return str(value)[:60].encode("unicode_escape").decode("ascii")
