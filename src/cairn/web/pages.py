"""The HTTP handlers of the page: views for GET, forms for POST, its two files, and notices of changes.

Every answer says what a browser may load (nothing but ours), and nothing of it is kept by caches. A view is made in
one thread of the readers' pool, a form in one of the writers'.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, FileSystemLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from cairn.aio import AsyncMemory
from cairn.errors import CairnError, Forbidden, Invalid, NotFound
from cairn.listening import news
from cairn.retrieval.events import MISSED, Notice
from cairn.rights import Grant
from cairn.types import Space
from cairn.version import VERSION
from cairn.web import marking
from cairn.web.acts import ACTS, Done
from cairn.web.desk import Desk
from cairn.web.views import KINDS, VIEWS
from cairn.web.visitors import Visit, Visitors, cookie_name, hashed

log = logging.getLogger("cairn.page")

HERE = Path(__file__).parent
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # A form's Origin would be "null" without any referrer.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_FIRST_VIEW = ("parts.html", "base.html", "home.html")


class WebPages:
    """Answers every request for the page.

    Args:
        memory: The open memory.
        visitors: Who is there.
        status_of: The HTTP status for an error.
        is_stopping: Whether the server is about to end: open streams end then, too.
        counted: Lets a stream begin, as one of so many.
    """

    def __init__(
        self,
        memory: AsyncMemory,
        visitors: Visitors,
        status_of: Callable[[BaseException], int],
        is_stopping: Callable[[], bool],
        counted: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] = lambda lines: lines,
    ) -> None:
        self.memory = memory
        self.visitors = visitors
        self._status_of = status_of
        self._is_stopping = is_stopping
        self._counted = counted
        self._loading: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Response:
        path = request.url.path.removeprefix("/view/").removeprefix("/").rstrip("/")
        request.state.route = "/view/" + (
            path.partition("/")[0] if path.partition("/")[0] in KNOWN else "other"
        )
        visit: Visit | None = request.state.visit
        grant: Grant | None = request.state.grant
        try:
            if path.startswith("static/"):
                return self._static(path.removeprefix("static/"), request)
            if path == "open":
                return self._opened(request)
            if path == "login":
                return await self._login(request)
            if grant is None:
                return self._page(request, "login.html", {"said": ""}, None, status=401)
            if path == "events":
                return self._events(grant, request.state.still)
            request.state.operation, request.state.about = f"page {request.method} /{path}"[:80], {}
            if request.method == "POST":
                return await self._act(request, path.removeprefix("do/"), visit, grant)
            return await self._view(request, path, visit, grant)
        except CairnError as error:
            return self._failed(request, error, visit, grant)

    # ------------------------------------------------------------ views and forms

    def _desk(self, request: Request, visit: Visit | None, grant: Grant) -> Desk:
        named = request.query_params.get("space", "default/default")
        app, _, project = named.partition("/")
        space = Space(app, project or "default")
        form = visit.form if visit else ""
        return Desk(self.memory.memory, grant, space.app, space.project, form, partial(_note, request))

    async def _view(self, request: Request, path: str, visit: Visit | None, grant: Grant) -> Response:
        if visit is None and self.visitors.writes:
            return self._with_cookie(request, *self.visitors.begin(), to=_same(str(request.url)))
        query = dict(request.query_params)

        def work() -> Response:
            desk = self._desk(request, visit, grant)
            _note(
                request, f"page {path or 'home'}", {"app_id": desk.app, "project_id": desk.project, **query}
            )
            if path == "raw":
                from cairn.operations.recall import Recall

                found = desk.ask(Recall.show, id=query.get("id", ""))
                text = found.get("source") or "\n\n".join(found["sections"].values())
                return Response(text, media_type="text/plain; charset=utf-8", headers=_uncached())
            if path == "export":
                from cairn.operations.persons import Persons

                kept = desk.ask(Persons.export_person, user_id=query.get("owner", ""))
                name = f'attachment; filename="{kept["user_id"]}.json"'
                body = json.dumps(kept, ensure_ascii=False, indent=2).encode("utf-8", "replace")
                return Response(
                    body, media_type="application/json", headers=_uncached() | {"content-disposition": name}
                )
            if path not in VIEWS:
                raise NotFound(f"There is no view {path[:80]}. The links above lead everywhere.")
            template, shown = VIEWS[path](desk, query)
            return self._page(request, template, shown, desk)

        answer: Response = await self.memory.pools.run(work, writes=False)
        self._expect_more()
        return answer

    async def _act(self, request: Request, name: str, visit: Visit | None, grant: Grant) -> Response:
        form = await _form(request)
        told = str(form.get("form", "")).encode("utf-8", "surrogatepass")
        if visit is None or not hmac.compare_digest(told, visit.form.encode()):
            raise Forbidden("This form is not of this visit: load the page again, then send it.")
        if name == "leave":
            self.visitors.end(visit)
            return RedirectResponse("/", 303, headers=HEADERS)
        if name not in ACTS:
            raise NotFound(f"There is nothing called {name[:80]} to do.")

        def work() -> Response:
            desk = self._desk(request, visit, grant)
            done = ACTS[name](desk, form)
            if done.template:
                return self._page(
                    request, done.template, done.shown | {"said": done.said}, desk, status=done.status
                )
            return self._went(request, done, visit)

        answer: Response = await self.memory.pools.run(work, writes=True)
        return answer

    @staticmethod
    def _went(request: Request, done: Done, visit: Visit) -> Response:
        to = _same(done.to)
        if request.headers.get("accept", "").startswith("application/json"):
            body = json.dumps({"said": done.said, "to": to, "undo": done.undo})
            return Response(body, media_type="application/json", headers=_uncached())
        visit.said, visit.undo = done.said, done.undo
        return RedirectResponse(to, 303, headers=_uncached())

    def _failed(
        self, request: Request, error: CairnError, visit: Visit | None, grant: Grant | None
    ) -> Response:
        status = self._status_of(error)
        if request.headers.get("accept", "").startswith("application/json"):
            body = json.dumps({"trouble": str(error)})
            return Response(body, status, media_type="application/json", headers=_uncached())
        desk = None
        if grant is not None:
            try:
                desk = self._desk(request, visit, grant)
            except Invalid:
                desk = Desk(self.memory.memory, grant, form=visit.form if visit else "")
        return self._page(
            request, "trouble.html", {"trouble": str(error), "status": status}, desk, status=status
        )

    def _page(
        self,
        request: Request,
        template: str,
        shown: Mapping[str, Any],
        desk: Desk | None,
        *,
        status: int = 200,
    ) -> Response:
        visit: Visit | None = request.state.visit
        said, undo = visit.tell() if visit is not None and desk is not None else ("", "")
        given = {
            "desk": desk,
            "may_write": desk is not None and desk.may_write,
            "at": request.url.path,
            "here": _same(str(request.url)),
            "said": said,
            "undo": undo,
            "version": VERSION,
            "stamps": self._stamps,
            "KINDS": KINDS,
            "signed": visit is not None,
        }
        text = self._templates.get_template(template).render(given | dict(shown))
        return Response(
            text.encode("utf-8", "replace"),
            status,
            media_type="text/html; charset=utf-8",
            headers=_uncached(),
        )

    @cached_property
    def _templates(self) -> Environment:
        made = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters |= {
            "markdown": marking.markdown,
            "marked": marking.marked,
            "excerpt": marking.excerpt,
            "plain": marking.plain,
            "day": lambda text: text[:10],
            "minute": lambda text: text[:16].replace("T", " "),
        }
        return made

    def prepare(self) -> None:
        """Do what the first visitor would wait for: read the templates of the first view.

        The others, and what a search needs, are loaded beside that view (`_expect_more`): most servers are never looked at.
        """
        for name in _FIRST_VIEW:
            self._templates.get_template(name)

    def _expect_more(self) -> None:
        """Read the other templates, and load the embedding model if there is one, while the first view is read."""
        if self._loading is None:
            self._loading = asyncio.create_task(self.memory.pools.run(self._load_more, writes=False))

    def _load_more(self) -> None:
        for name in self._templates.list_templates():
            self._templates.get_template(name)
        with contextlib.suppress(CairnError):  # whoever searches is told
            embedder = self.memory.memory.parts.embedder()
            if embedder is not None:
                embedder.embed(["ready"])

    # ------------------------------------------------------------ its files

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return {one.name: one.read_bytes() for one in (HERE / "static").iterdir() if one.suffix in TYPES}

    @cached_property
    def _stamps(self) -> dict[str, str]:
        """A part of each file's hash, so that a new version has a new address."""
        return {name: hashlib.sha256(data).hexdigest()[:10] for name, data in self._files.items()}

    def _static(self, name: str, request: Request) -> Response:
        data = self._files.get(name)
        if data is None:
            raise NotFound(f"The page has no file {name[:80]}.")
        kept = request.query_params.get("v") == self._stamps[name]
        caching = "public, max-age=31536000, immutable" if kept else "no-cache"
        return Response(
            data, media_type=TYPES[Path(name).suffix], headers={**HEADERS, "cache-control": caching}
        )

    # ------------------------------------------------------------ coming in

    def _opened(self, request: Request) -> Response:
        if not self.visitors.take(request.query_params.get("code", "")):
            raise Forbidden("This link was used already, or is too old: `cairn open` gives a new one.")
        return self._with_cookie(request, *self.visitors.begin(is_owner=True), to="/")

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return self._page(request, "login.html", {"said": ""}, None)
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        digest = hashed(form.get("token", "").strip())
        if not any(hmac.compare_digest(one.digest, digest) for one in request.state.grants):
            said = "That is no token of this server."
            return self._page(request, "login.html", {"said": said}, None, status=401)
        return self._with_cookie(request, *self.visitors.begin(digest=digest), to="/")

    def _with_cookie(self, request: Request, secret: str, _visit: Visit, *, to: str) -> Response:
        answer = RedirectResponse(to, 303, headers=_uncached())
        name = cookie_name(dict(request.scope["headers"]))
        answer.set_cookie(
            name, secret, httponly=True, samesite="strict", path="/", secure=request.url.scheme == "https"
        )
        return answer

    # ------------------------------------------------------------ word of changes

    def _events(self, grant: Grant, still: Callable[[], bool]) -> Response:
        """A line for whatever changed of what this visitor may see. What it was a page asks for itself."""
        hub = self.memory.memory.parts.events

        def stopping() -> bool:
            return self._is_stopping() or not still()

        async def stream() -> AsyncIterator[bytes]:
            last = hub.last
            yield b"retry: 2000\n\n"
            async for found in news(hub, last, partial(_hears, grant), stopping):
                yield b"event: changed\ndata: 1\n\n" if found else b": still here\n\n"

        return StreamingResponse(self._counted(stream()), media_type="text/event-stream", headers=_uncached())


KNOWN = frozenset({*VIEWS, "static", "do", "open", "login", "events", "raw", "export"})


async def _form(request: Request) -> dict[str, Any]:
    """The fields of a form; a file is its bytes, and its name is the field `file_name`.

    Raises:
        Invalid: it is no form.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
    try:
        sent = await request.form(max_files=1, max_fields=50)
    except (HTTPException, ValueError):
        raise Invalid("The form could not be read: load the page again, then send it.") from None
    fields: dict[str, Any] = {}
    try:
        for name, value in sent.items():
            if isinstance(value, str):
                fields[name] = value
            elif value.filename:
                fields[name] = await value.read()
                fields["file_name"] = value.filename.replace("\\", "/").rpartition("/")[2]
    finally:
        await sent.close()
    return fields


def _hears(grant: Grant, event: Notice) -> bool:
    """Whether a visitor may know that something happened there. That some were missed concerns all."""
    if event.kind == MISSED:
        return True
    try:
        if event.scope is None:
            grant.reach_space(event.space)
        else:
            grant.reach_scope(event.scope)
    except Forbidden:
        return False
    return True


def _uncached() -> dict[str, str]:
    return {**HEADERS, "cache-control": "no-store"}


def _note(request: Request, operation: str, about: Mapping[str, Any]) -> None:
    """Leave for the guard what is asked here, and about whom: it writes the audit log."""
    request.scope["state"]["asked"] = (operation, about)


def _same(address: str) -> str:
    """The path and query of an address: no redirect leaves this server."""
    parts = urlsplit(address)
    path = "/" + parts.path.lstrip("/\\")
    return f"{path}?{parts.query}" if parts.query else path
