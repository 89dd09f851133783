"""A LangGraph store over one session: each item is added once as a message, and found by meaning.

    put ("prefs", "ann") "tea" {"text": "..."}  ->  a message of the store's session: the text of the value, and
                                                    metadata namespace [prefs, prefs.ann], key tea
    search ("prefs",) query                     ->  search of the memory, filtered on metadata.namespace

The last value of a key counts. One that was replaced or deleted is no longer an item; it stays remembered as something
that was said, until it is forgotten (`cairn forget`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cairn.adapters import missing
from cairn.adapters.history import SessionView
from cairn.aio import AsyncMemory
from cairn.errors import Invalid
from cairn.memory import Memory
from cairn.types import Message

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        PutOp,
        SearchItem,
        SearchOp,
        get_text_at_path,
        tokenize_path,
    )
except ImportError as error:
    raise missing("langgraph", "langgraph") from error

_TAG = "langgraph-store"
_MOST = 100  # messages that one search of the memory gives back
_COMPARES = {
    "$eq": lambda have, want: have == want,
    "$ne": lambda have, want: have != want,
    "$gt": lambda have, want: have > want,
    "$gte": lambda have, want: have >= want,
    "$lt": lambda have, want: have < want,
    "$lte": lambda have, want: have <= want,
}


@dataclass(frozen=True)
class _Kept:
    """An item, and the message it stands in."""

    message_id: str
    item: Item


class CairnStore(BaseStore):
    """Items of one session of the memory. The options are those of `SessionView`.

    Values are JSON. Texts of a value are searched (or the fields that `index` names; with `index=False` none), in one
    question at most 100 of them. There is no time to live.
    """

    def __init__(self, memory: Memory | AsyncMemory, session_id: str = _TAG, **options: Any) -> None:
        self._history = SessionView(memory, session_id, **options)

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Do several operations: what is read was so before the first of them wrote."""
        asked = list(ops)
        items = self._items()
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        results: list[Any] = []
        for op in asked:
            if isinstance(op, GetOp):
                found = items.get((tuple(op.namespace), op.key))
                results.append(found.item if found else None)
            elif isinstance(op, SearchOp):
                results.append(self._search(op, items))
            elif isinstance(op, ListNamespacesOp):
                results.append(_namespaces(op, items))
            elif isinstance(op, PutOp):
                puts[tuple(op.namespace), op.key] = op
                results.append(None)
            else:
                raise Invalid(f"{type(op).__name__} is no operation of a store.", field="ops")
        if puts:
            self._put(puts.values())
        return results

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """The same, apart from the loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _items(self) -> dict[tuple[tuple[str, ...], str], _Kept]:
        """Every item by namespace and key."""
        found = {}
        for message in self._history.messages():
            kept = _kept(message)
            if kept is not None:
                found[kept.item.namespace, kept.item.key] = kept
        return found

    def _put(self, ops: Iterable[PutOp]) -> None:
        with self._history.alone():
            before = self._items()
            gone, said = [], []
            for op in ops:
                old = before.get((tuple(op.namespace), op.key))
                gone += [old.message_id] if old else []
                if op.value is not None:
                    said.append(_message(op, old.item.created_at if old else datetime.now(UTC)))
            if said:
                self._history.add(said, tags=[_TAG])
            self._history.drop(gone)

    def _search(self, op: SearchOp, items: Mapping[tuple[tuple[str, ...], str], _Kept]) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        reached = {
            kept.message_id: kept.item
            for (namespace, _), kept in items.items()
            if namespace[: len(prefix)] == prefix and _passes(op.filter, kept.item.value)
        }
        if op.query:
            ranked = [(reached[one], score) for one, score in self._asked(op.query, prefix) if one in reached]
        else:
            newest = sorted(reached.values(), key=lambda item: item.updated_at, reverse=True)
            ranked = [(item, None) for item in newest]
        return [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)
            for item, score in ranked[op.offset : op.offset + op.limit]
        ]

    def _asked(self, query: str, prefix: tuple[str, ...]) -> list[tuple[str, float | None]]:
        where: dict[str, Any] = {"tags": _TAG, "session_id": self._history.session_id}
        if prefix:
            where["metadata.namespace"] = ".".join(prefix)
        found = self._history.memory.search(
            query,
            user_id=self._history.person,
            filters=where,
            evidence=_MOST,
            top_k=1,
            consistency="strong",
            **self._history.place,
        )
        return [(one.message_id, one.score) for one in found.evidence or ()]


def _message(op: PutOp, created: datetime) -> dict[str, Any]:
    now = datetime.now(UTC)
    kept = {"value": dict(op.value or {}), "created_at": created.isoformat(), "updated_at": now.isoformat()}
    try:
        kept = json.loads(json.dumps(kept))
    except (TypeError, ValueError) as error:
        raise Invalid(f"The value of {op.key[:60]} is no JSON: {error}.", field="value") from None
    names = list(op.namespace)
    return {
        "role": "user",
        "timestamp": int(now.timestamp() * 1000),
        "content": [{"type": "text", "text": _text(op), "extras": kept}],
        "metadata": {"namespace": [".".join(names[: n + 1]) for n in range(len(names))], "key": op.key},
    }


def _text(op: PutOp) -> str:
    """What of a value is searched."""
    value = dict(op.value or {})
    if op.index is False:
        return ""
    if op.index is not None:
        return "\n".join(text for path in op.index for text in get_text_at_path(value, tokenize_path(path)))
    texts = [one for one in value.values() if isinstance(one, str)]
    if len(texts) == len(value) == 1:
        return texts[0]
    return "\n".join(
        f"{name}: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)}"
        for name, one in value.items()
    )


def _kept(message: Message) -> _Kept | None:
    """The item that a message of the store's session holds; None for other talk."""
    held = message.content[0].extras if not isinstance(message.content, str) and message.content else None
    about = message.metadata or {}
    if _TAG not in message.tags or not held or not about.get("namespace"):
        return None
    item = Item(
        value=dict(held["value"]),
        key=str(about["key"]),
        namespace=tuple(str(about["namespace"][-1]).split(".")),
        created_at=held["created_at"],
        updated_at=held["updated_at"],
    )
    return _Kept(message.id, item)


def _passes(filters: Mapping[str, Any] | None, value: Mapping[str, Any]) -> bool:
    return all(_holds(value.get(name), wanted) for name, wanted in (filters or {}).items())


def _holds(have: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return bool(have == wanted)
    for name, operand in wanted.items():
        if name not in _COMPARES:
            raise Invalid(f"{name} is no operator of a filter ({', '.join(_COMPARES)}).", field="filter")
        try:
            if not _COMPARES[name](have, operand):
                return False
        except TypeError:
            return False
    return True


def _namespaces(op: ListNamespacesOp, items: Iterable[tuple[tuple[str, ...], str]]) -> list[tuple[str, ...]]:
    found = {
        namespace[: op.max_depth] if op.max_depth else namespace
        for namespace, _ in items
        if all(_matches(namespace, one) for one in op.match_conditions or ())
    }
    return sorted(found)[op.offset : op.offset + op.limit]


def _matches(namespace: Sequence[str], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(want in {"*", have} for have, want in zip(part, path, strict=True))
