"""Calls operations for one visitor of the page, with the same rights and answers as over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from cairn.errors import CairnError, Forbidden
from cairn.memory import Memory
from cairn.operations.browse import Browse
from cairn.operations.check import checked
from cairn.rights import Grant


@dataclass
class Desk:
    """An open memory as one visitor sees it, in one space."""

    memory: Memory
    grant: Grant
    app: str = "default"
    project: str = "default"
    form: str = ""
    noted: Callable[[str, Mapping[str, Any]], object] = lambda _operation, _about: None  # for the audit log

    @property
    def may_write(self) -> bool:
        """Whether this visitor is offered to change anything."""
        return self.grant.write and bool(self.form)

    def ask(self, method: Callable[..., Any], **given: Any) -> Any:
        """Ask an operation in this space, as this visitor; fields by their names on the wire.

        Raises:
            CairnError: what the operation refuses, in its own words.
        """
        row = method.operation  # type: ignore[attr-defined]
        named = {one.wire for one in row.fields}
        place = {"app_id": self.app, "project_id": self.project}
        asked = {name: value for name, value in place.items() if name in named} | given
        if row.writes:
            self.noted(row.name, {name: value for name, value in asked.items() if name not in row.forgets})
        return row.ask(row.room_in(self.memory), checked(row.fields, asked), self.grant)

    def tried(self, method: Callable[..., Any], **given: Any) -> Any:
        """The answer, or None where this visitor may not ask."""
        try:
            return self.ask(method, **given)
        except Forbidden:
            return None

    def told(self, method: Callable[..., Any], **given: Any) -> tuple[Any, str]:
        """The answer, or what went wrong."""
        try:
            return self.ask(method, **given), ""
        except CairnError as error:
            return None, str(error)

    # ------------------------------------------------------------ who is there

    @cached_property
    def overview(self) -> Mapping[str, Any]:
        """Everybody this visitor may see."""
        answer: Mapping[str, Any] = self.ask(Browse.overview)
        return answer

    @property
    def owners(self) -> list[Mapping[str, Any]]:
        """Everybody of this space."""
        here = (self.app, self.project)
        return [one for one in self.overview["owners"] if (one["app_id"], one["project_id"]) == here]

    @property
    def spaces(self) -> list[str]:
        """Every space this visitor may see something of, and this one."""
        known = {f"{one['app_id']}/{one['project_id']}" for one in self.overview["owners"]}
        return sorted(known | {self.space})

    @property
    def space(self) -> str:
        """The name of this space."""
        return f"{self.app}/{self.project}"

    # ------------------------------------------------------------ addresses

    def link(self, path: str, **query: Any) -> str:
        """An address of the page, in this space."""
        given = {name: value for name, value in query.items() if value}
        if self.space != "default/default":
            given["space"] = self.space
        return f"{path}?{urlencode(given)}" if given else path
