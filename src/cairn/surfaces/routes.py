"""The routes, made from the table of operations, and how a request is read.

A request is handed to a thread once: there its fields are checked, the caller's grant is asked, the operation runs and
its answer becomes bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_origin

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cairn.canonical import as_line, from_json
from cairn.errors import Invalid
from cairn.memory import Memories, Memory
from cairn.operations.check import checked, options_of
from cairn.operations.table import Field, Operation, operations_of
from cairn.surfaces.guard import Refusal


@dataclass(frozen=True)
class Route:
    """One method and path, and the operation behind it."""

    method: str
    path: str
    operation: Operation
    room: str = ""

    @cached_property
    def in_path(self) -> tuple[Field, ...]:
        """The fields in its path."""
        named = set(re.findall(r"{(\w+)}", self.path))
        return tuple(one for one in self.operation.fields if one.wire in named)

    @cached_property
    def query(self) -> tuple[Field, ...]:
        """The fields in its query string."""
        if self._is_bodiless:
            return tuple(one for one in self._rest if not _is_list(one))
        return tuple(one for one in self._rest if one.name in self.operation.in_query)

    @cached_property
    def body(self) -> tuple[Field, ...]:
        """The fields in its body; without any, none is read."""
        return () if self._is_bodiless else tuple(one for one in self._rest if one not in self.query)

    @property
    def _is_bodiless(self) -> bool:
        return self.method in {"GET", "DELETE"}

    @property
    def _rest(self) -> list[Field]:
        return [one for one in self.operation.fields if not one.says.here and one not in self.in_path]


def _is_list(one: Field) -> bool:
    return any(get_origin(kind) in {list, Sequence} for kind in options_of(one.type))


def _routes() -> Iterator[Route]:
    for room, name in ((Memory, ""), (Memories, "memories")):
        for row in operations_of(room).values():
            for line in row.http:
                method, path = line.split(" ")
                yield Route(method, path, row, name)


ROUTES = tuple(sorted(_routes(), key=lambda route: (route.path, route.method)))


def as_json(content: Any, status: int = 200) -> Response:
    """A response that holds `content`."""
    text = as_line(content)
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def fields_in(
    route: Route, params: Mapping[str, Any], query: Mapping[str, str], body: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything a request says, checked, by the names in Python.

    Raises:
        Invalid: something is missing, unknown or wrong; the message names it.
    """
    asked = checked(route.query, query, text=True, what="query parameter") if route.query or query else {}
    sent = checked(route.body, body, text=isinstance(body, FormFields))
    return (checked(route.in_path, params, text=True) if route.in_path else {}) | asked | sent


def read_query(request: Request) -> dict[str, str]:
    """The query parameters, each once.

    Raises:
        Invalid: one is given twice.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Invalid(f"{name[:80]}: given more than once.", field=name[:80])
        given[name] = value
    return given


def takes_files(route: Route) -> bool:
    """Whether a field of its body may be a file."""
    return any(bytes in options_of(one.type) for one in route.body)


class FormFields(dict[str, Any]):
    """The fields of a form: files, and texts that stand for numbers and switches, too."""


async def read_form(request: Request, *, named: bool) -> FormFields:
    """The fields of a form; a file is its bytes, and with `named` its name is the field `file_name`.

    Raises:
        Refusal: 400 for no form.
        Invalid: a field is given twice.
    """
    try:
        form = await request.form(max_files=1, max_fields=50)
    except (HTTPException, ValueError) as error:
        told = getattr(error, "detail", None) or str(error)
        raise Refusal(400, "BAD_REQUEST", f"The body is no valid form: {told}.") from None
    fields = FormFields()
    try:
        for name, value in form.multi_items():
            if name in fields:
                raise Invalid(f"{name[:80]}: given more than once.", field=name[:80])
            if isinstance(value, str):
                fields[name] = value
                continue
            fields[name] = await value.read()
            if named and value.filename:
                fields["file_name"] = value.filename.replace("\\", "/").rpartition("/")[2]
    finally:
        await form.close()
    return fields


async def read_body(request: Request, route: Route) -> dict[str, Any]:
    """The JSON object of a request, or the fields of a form where it may hold a file.

    Raises:
        Refusal: 415 for another format, 400 for no JSON.
        Invalid: JSON, but no object, or half a character in it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data" and takes_files(route):
        return await read_form(request, named=any(one.wire == "file_name" for one in route.body))
    if kind != "application/json":
        raise Refusal(
            415,
            "UNSUPPORTED_FORMAT",
            f'Send JSON with Content-Type: application/json, not "{kind[:60] or "none"}".',
        )
    raw = await request.body()
    try:
        text = raw.decode("utf-8-sig")
        value = from_json(text, once=True)
    except ValueError as error:
        raise Refusal(400, "BAD_REQUEST", f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise Invalid("The body must be a JSON object, with the fields by name.", field="body")
    if ("\\ud" in text or "\\uD" in text) and (where := _half_a_character(value)) is not None:
        raise Invalid(
            f"{where or 'A name of a field'} holds half a character (a lone surrogate): do not cut a text between the two "
            "halves of a sign, or replace it.",
            field=where or "body",
        )
    return value


def _half_a_character(value: Any) -> str | None:
    """The path of a text in a body that holds half of a pair of surrogates, empty for a name or the whole; None if none does."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return ""
        return None
    for name, one in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if isinstance(name, str) and _half_a_character(name) is not None:
            return ""
        if (at := _half_a_character(one)) is not None:
            here = f"[{name}]" if isinstance(name, int) else f"{name}"
            return f"{here}.{at}".removesuffix(".").replace(".[", "[")
    return None
