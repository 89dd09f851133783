"""The OpenAPI description of the routes, and a page that shows it without fetching anything."""

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
 const resolve=(s,seen=[])=>{
  if(Array.isArray(s))return s.map(one=>resolve(one,seen));
  if(!s||typeof s!=='object')return s;
  if(s.$ref){const name=s.$ref.split('/').pop();
   const {$ref,...own}=s;return seen.includes(name)?{title:name,...own}:{title:name,...resolve(d.components.schemas[name],[...seen,name]),...own}}
  return Object.fromEntries(Object.entries(s).map(([k,v])=>[k,k==='examples'||k==='example'||k==='default'?v:resolve(v,seen)]))};
 for(const [path,ops] of Object.entries(d.paths))for(const [method,op] of Object.entries(ops)){
  if(path.startsWith('/api/v2'))continue;
  const box=document.createElement('details'),head=document.createElement('summary'),m=document.createElement('b');
  m.className='m';m.textContent=method.toUpperCase();
  const code=document.createElement('code');code.textContent=path;
  const words=document.createElement('small');words.textContent='  '+(op.summary||'');
  head.append(m,code,words);box.append(head);
  const show=(title,schema)=>{if(!schema)return;const h=document.createElement('p');h.textContent=title;
   const pre=document.createElement('pre');pre.textContent=JSON.stringify(resolve(schema),null,2);box.append(h,pre)};
  if(op.parameters)show('Parameters',op.parameters);
  show('Body',op.requestBody&&op.requestBody.content['application/json'].schema);
  const ok=op.responses['200'];const c=ok&&ok.content&&ok.content['application/json'];
  const s=c&&c.schema;show('Answer (data)',s&&s.properties&&s.properties.data?s.properties.data:s);
  main.append(box);
 }
 const p=document.createElement('p');p.innerHTML='<small>Every route exists under /api/v2 too.</small>';main.append(p);
});
</script></body></html>
"""
