"""The OpenAPI description of the routes; `docs.html` shows it without fetching anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cairn.operations.answers import shapes_of
from cairn.operations.check import object_schema, schema_of, shape_schemas
from cairn.operations.table import REQUIRED, Field
from cairn.surfaces.routes import Route, takes_files
from cairn.version import VERSION


def describe(routes: Sequence[Route], prefixes: Sequence[str]) -> dict[str, Any]:
    """The whole description as one JSON value, in a stable order."""
    shapes: dict[str, type] = {
        "ErrorAnswer": shapes_of("shared")["ErrorAnswer"],
        "HealthAnswer": shapes_of("upkeep")["HealthAnswer"],
    }
    requests: dict[str, Any] = {}
    paths: dict[str, Any] = {
        "/health": {"get": _bare("health", "How the server and the index are.", _reference("HealthAnswer"))},
        "/ready": {
            "get": _bare(
                "ready", "200 when calls should be sent here, 503 otherwise.", _reference("HealthAnswer")
            )
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Prometheus metrics.",
                "responses": {
                    "200": {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
                },
            }
        },
    }
    for route in routes:
        for prefix in prefixes:
            made = _operation(route, prefix, shapes, requests)
            paths.setdefault(prefix + route.path, {})[route.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cairn",
            "version": VERSION,
            "description": "Long-term memory for AI agents that a person can read.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted({**shape_schemas(shapes), **requests}.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def request_name(route: Route) -> str:
    """What the body of a route is called in the description."""
    words = "".join(part.capitalize() for part in route.operation.name.split("_"))
    return f"{'Memories' if route.room else ''}{words}Request"


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    route: Route, prefix: str, shapes: dict[str, type], requests: dict[str, Any]
) -> dict[str, Any]:
    row = route.operation
    data: dict[str, Any] = {}
    if row.shape is not None:
        shapes[row.shape.__name__] = row.shape
        data = _reference(row.shape.__name__)
    answer = {
        "type": "object",
        "required": ["request_id", "data"],
        "properties": {
            "request_id": {
                "type": "string",
                "description": "To find the call in the server's log.",
                "examples": ["4f1c"],
            },
            "data": data,
        },
    }
    name = re.sub(r"[^a-z0-9]+", "_", f"{route.method.lower()}{prefix}{route.path}").strip("_")
    made = _bare(name, row.summary, answer)
    if row.status != 200:
        made["responses"] = {str(row.status): made["responses"].pop("200"), **made["responses"]}
    if row.late:
        made["responses"]["202"] = {
            "description": "Kept; the rest follows",
            "content": {"application/json": {"schema": answer}},
        }
    parameters = [*_parameters("path", route.in_path, shapes), *_parameters("query", route.query, shapes)]
    if parameters:
        made["parameters"] = parameters
    if route.body:
        body = request_name(route)
        requests[body] = object_schema(route.body, shapes, row.summary, closed=True)
        requests[body]["examples"] = [{one.wire: one.says.example for one in _shown(route.body)}]
        kinds = ("multipart/form-data", "application/json") if takes_files(route) else ("application/json",)
        made["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": _reference(body)} for kind in kinds},
        }
    return made


def _shown(fields: Iterable[Field]) -> list[Field]:
    """The fields an example shows: what is needed, or the first where nothing is."""
    rows = list(fields)
    return [one for one in rows if one.default is REQUIRED or one.name == "user_id"] or rows[:1]


def _parameters(place: str, fields: Iterable[Field], shapes: dict[str, type]) -> list[dict[str, Any]]:
    found = []
    for one in fields:
        schema = schema_of(one, shapes)
        words = schema.pop("description")
        needed = place == "path" or one.default is REQUIRED
        found.append(
            {"name": one.wire, "in": place, "required": needed, "description": words, "schema": schema}
        )
    return found


def _bare(name: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    error = {
        "description": "Refused or failed; the message says why",
        "content": {"application/json": {"schema": _reference("ErrorAnswer")}},
    }
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": schema}}},
            "4XX": error,
            "5XX": error,
        },
    }
