"""The OpenAPI description of the route table, and a page that shows it without fetching anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cairn.surfaces import schemas
from cairn.surfaces.routes import contract
from cairn.version import VERSION

if TYPE_CHECKING:
    from cairn.surfaces.routes import Endpoint

_REF = "#/components/schemas/{model}"


def describe(endpoints: Sequence[Endpoint], prefixes: Sequence[str]) -> dict[str, Any]:
    """The whole description as one JSON value, in a stable order."""
    bodies = {contract(e.body) for e in endpoints if e.body is not None}
    answers: set[type[BaseModel]] = {contract(e.answer) for e in endpoints if e.answer is not None} | {
        schemas.HealthAnswer,
        schemas.ErrorAnswer,
    }
    wanted: list[tuple[type[BaseModel], Any]] = []
    wanted.extend((model, "validation") for model in bodies)
    wanted.extend((model, "serialization") for model in answers)
    wanted.sort(key=lambda pair: pair[0].__name__)
    _, definitions = models_json_schema(wanted, ref_template=_REF)
    components = dict(sorted(definitions.get("$defs", {}).items()))
    paths: dict[str, Any] = {
        "/health": {
            "get": _operation("health", "How the server and the index are", None, "HealthAnswer", bare=True)
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Prometheus metrics",
                "responses": {
                    "200": {"description": "Text", "content": {"text/plain": {"schema": {"type": "string"}}}}
                },
            }
        },
    }
    for endpoint in endpoints:
        for prefix in prefixes:
            path = prefix + endpoint.path
            name = re.sub(r"[^a-z0-9]+", "_", f"{endpoint.method.lower()}{path}").strip("_")
            operation = _operation(name, endpoint.summary, endpoint.body, endpoint.answer)
            names = re.findall(r"{(\w+)(?::\w+)?}", path)
            parameters: list[dict[str, Any]] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ]
            if endpoint.query is not None:
                parameters += _query_parameters(contract(endpoint.query))
            if parameters:
                operation["parameters"] = parameters
            paths.setdefault(re.sub(r"{(\w+):\w+}", r"{\1}", path), {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cairn",
            "version": VERSION,
            "description": "Long-term memory for AI agents that a person can read.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    described = model.model_json_schema(ref_template=_REF)
    required = set(described.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in described["properties"].items()
    ]


def _operation(
    name: str, summary: str, body: str | None, answer: str | None, *, bare: bool = False
) -> dict[str, Any]:
    data: dict[str, Any] = {"$ref": f"#/components/schemas/{answer}"} if answer else {}
    wrapped = {
        "type": "object",
        "required": ["request_id", "data"],
        "properties": {"request_id": {"type": "string"}, "data": data},
    }
    schema = data if bare else wrapped
    error = {
        "description": "Refused or failed; the message says why",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
    }
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": schema}}},
            "4XX": error,
            "5XX": error,
        },
    }
    if name.endswith("memory_add"):
        operation["responses"]["202"] = {
            "description": "Kept; extraction follows",
            "content": {"application/json": {"schema": wrapped}},
        }
    if body:
        reference = {"$ref": f"#/components/schemas/{body}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return operation


DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cairn HTTP API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{margin-bottom:0}code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f5f5f2;padding:.8rem;overflow:auto}
details{border:1px solid #ddd;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer}
b.m{display:inline-block;min-width:3.6rem;color:#1a6b4a}small{color:#666}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#262626}details{border-color:#444}}
</style></head><body>
<h1>Cairn HTTP API</h1><p><small>Made from <a href="/openapi.json">openapi.json</a>; nothing is fetched from elsewhere.</small></p>
<main id="routes">Loading the description…</main>
<script>
fetch('/openapi.json').then(r=>r.json()).then(d=>{
 const main=document.getElementById('routes');main.textContent='';
 const resolve=s=>s&&s.$ref?d.components.schemas[s.$ref.split('/').pop()]:s;
 for(const [path,ops] of Object.entries(d.paths))for(const [method,op] of Object.entries(ops)){
  if(path.startsWith('/api/v2'))continue;
  const box=document.createElement('details'),head=document.createElement('summary'),m=document.createElement('b');
  m.className='m';m.textContent=method.toUpperCase();
  const code=document.createElement('code');code.textContent=path;
  const words=document.createElement('small');words.textContent='  '+(op.summary||'');
  head.append(m,code,words);box.append(head);
  const show=(title,schema)=>{if(!schema)return;const h=document.createElement('p');h.textContent=title;
   const pre=document.createElement('pre');pre.textContent=JSON.stringify(resolve(schema),null,2);box.append(h,pre)};
  show('Body',op.requestBody&&op.requestBody.content['application/json'].schema);
  const ok=op.responses['200'];const c=ok&&ok.content&&ok.content['application/json'];
  const s=c&&c.schema;show('Answer (data)',s&&s.properties&&s.properties.data?s.properties.data:s);
  main.append(box);
 }
 const p=document.createElement('p');p.innerHTML='<small>Every route exists under /api/v2 too.</small>';main.append(p);
});
</script></body></html>
"""
