"""What every HTTP route is made of: a row of the table, the call its handler gets, and how input is checked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response

from cairn.aio import AsyncMemory
from cairn.rights import Grant
from cairn.surfaces.guard import Refusal

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler gets: the memory, the checked body and query, the caller's grant, the path's parameters."""

    memory: AsyncMemory
    body: Any
    grant: Grant
    params: dict[str, str]
    query: Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the route table; the OpenAPI description is made from it. Types go by their name in the contract."""

    method: str
    path: str
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    body: str | None = None
    answer: str | None = None
    reads: str | None = None  # what is checked at run time, where that differs from `body`
    query: str | None = None


def contract(name: str) -> type[BaseModel]:
    """A type of the contract, by name. What checks bodies is a quarter of a server's start: it loads at first use."""
    from cairn.surfaces import schemas, schemas_kept

    home = schemas if hasattr(schemas, name) else schemas_kept
    return cast("type[BaseModel]", getattr(home, name))


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def named(error: ValidationError, *, unknown: str = "unknown field") -> str:
    """A validation error in one sentence per field, each naming the field."""
    parts = []
    for item in error.errors(include_url=False, include_input=False)[:5]:
        place = ".".join(str(part) for part in item["loc"]) or "body"
        if item["type"] == "extra_forbidden":
            parts.append(f"{place[:80]}: {unknown}; remove it")
        else:
            parts.append(f"{place}: {item['msg']}")
    more = error.error_count() - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "") + "."


async def read_body(request: Request, model: type[BaseModel]) -> BaseModel:
    """The JSON body, checked.

    Raises:
        Refusal: 415 for another format, 400 for no JSON, 422 with the field's name for anything else.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415,
            "UNSUPPORTED_FORMAT",
            f'Send JSON with Content-Type: application/json, not "{kind[:60] or "none"}".',
        )
    from pydantic import ValidationError

    raw = await request.body()
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Refusal(400, "BAD_REQUEST", f"The body is not valid JSON: {first['msg']}.") from None
        raise Refusal(422, "INVALID_INPUT", named(error)) from None


def read_query(request: Request, model: type[BaseModel] | None) -> BaseModel | None:
    """The query parameters, checked: each once, each known.

    Raises:
        Refusal: 422 with the parameter's name.
    """
    from pydantic import ValidationError

    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Refusal(422, "INVALID_INPUT", f"{name[:80]}: given more than once.")
        given[name] = value
    if model is None:
        if given:
            raise Refusal(422, "INVALID_INPUT", f"{min(given)[:80]}: unknown query parameter; remove it.")
        return None
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise Refusal(422, "INVALID_INPUT", named(error, unknown="unknown query parameter")) from None
