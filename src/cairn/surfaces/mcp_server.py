"""The memory over MCP: `cairn mcp`, a thin client of the process that holds the memory open and serves the hooks, too.

    host <- stdio -> mcp_quick (plain messages) -> a message over the socket -> warm process or HTTP server -> the tool
                  -> Server (official SDK), from the first message on that is not plain

The warm process is started first; until it answers, `recall` tells what it finds by words. Where it cannot run, a call
opens the memory here, so that a refusal says why.
Nothing is ever printed: standard output is the wire.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from cairn.agents import link
from cairn.agents.hook import is_switched_off
from cairn.canonical import object_in
from cairn.errors import CairnError, Misconfigured, Unavailable
from cairn.surfaces.mcp_quick import (
    ENTRY,
    INSTRUCTIONS,
    PAGE,
    PAGES,
    SERVER,
    SWITCHED_OFF,
    Front,
    Reply,
    called,
    listed,
)
from cairn.wording import words_of_system

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from cairn.config import Settings

Answer = Callable[[dict[str, Any], Any], Awaitable[Mapping[str, Any]]]
"""Answers a message; over HTTP the request it came with is there, too."""

MISSING = "MCP needs the package mcp, which is not installed: pip install 'cairn-memory[mcp]'."
_CALL_SECONDS = 120.0
_OPEN_SECONDS = 30.0
_LAST_SECONDS = 30.0
_LOOK_SECONDS = 0.02


class WarmCaller:
    """Hands messages to the warm process of a root, which it starts where there is none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turn = threading.Lock()
        self._started: subprocess.Popen[bytes] | None = None
        self._has_answered = False

    def start(self) -> bool:
        """See that a warm process is there or on its way; whether one is."""
        with self._turn:
            if self._started is not None and not self._has_answered:
                if (code := self._started.poll()) is None:
                    return True
                if code:
                    self._started = None
                    return False
            if link.ask(self._settings.root, {"op": "ping"}, 1.0) is not None:
                return True
            try:
                self._started, self._has_answered = link.start_warm(self._settings.root), False
            except OSError:
                return False
            return True

    def __call__(self, message: dict[str, Any]) -> Mapping[str, Any]:
        is_first = True
        until = time.monotonic() + _OPEN_SECONDS
        while time.monotonic() < until:
            try:
                told = link.converse(self._settings.root, message, _CALL_SECONDS)
            except TimeoutError:
                return {
                    "error": f"It took longer than {_CALL_SECONDS:g} seconds; it may still be done. Look before you try again."
                }
            except OSError:  # none is there, or it went away
                is_there = self.start()
            else:
                self._has_answered = True
                return told
            if is_first and (by_words := self._at_once(message)):
                return by_words
            if not is_there:
                break
            is_first = False
            time.sleep(_LOOK_SECONDS)
        return self._here(message)

    def _at_once(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What words alone tell while the warm process comes up: an agent waits for its first answer."""
        if (message.get("op"), message.get("name")) != ("tool", "recall"):
            return None
        from cairn.agents import cold

        return cold.recalled(self._settings, str(message.get("folder") or ""), message["arguments"])

    def _here(self, message: dict[str, Any]) -> Mapping[str, Any]:
        """The answer of a memory that is opened for this call alone."""
        from cairn.agents import tools
        from cairn.memory import Memory

        try:
            with Memory(self._settings, background=False) as memory:
                return tools.reply(memory, message)
        except CairnError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": words_of_system(error)}


def in_thread(reply: Reply) -> Answer:
    """`reply` run apart from the loop."""
    import anyio.to_thread

    async def answer(message: dict[str, Any], _request: Any) -> Mapping[str, Any]:
        return await anyio.to_thread.run_sync(reply, message)

    return answer


def build_server(answer: Answer, folder: str | None) -> Server[Any]:
    """The MCP server over `answer`, for an agent that works in `folder`."""
    import mcp_types as types
    from mcp import MCPError
    from mcp.server.lowlevel import Server

    is_off = _is_off(folder)

    async def ask(context: Any, **message: Any) -> Mapping[str, Any]:
        return await answer({**message, "folder": folder}, context.request)

    def listing(method: str, shape: Any) -> Any:
        async def handle(context: Any, _params: Any) -> Any:
            told = await ask(context, op="pages") if method == PAGES and not is_off else {}
            return shape.model_validate(listed(method, told, is_off=is_off))

        return handle

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        told: Mapping[str, Any] = {"error": SWITCHED_OFF}
        if not is_off:
            told = await ask(context, op="tool", name=params.name, arguments=params.arguments or {})
        return types.CallToolResult.model_validate(called(told))

    async def read_resource(
        context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        wanted = uri.removeprefix(ENTRY).removeprefix(PAGE)
        if wanted == uri or is_off:
            raise MCPError(
                types.INVALID_PARAMS, f"{uri[:200]} is no resource of this memory.", {"uri": uri[:200]}
            )
        told = await ask(context, op="tool", name="show", arguments={"id": wanted})
        if "error" in told:
            raise MCPError(types.INVALID_PARAMS, str(told["error"]), {"uri": uri[:200]})
        text = types.TextResourceContents(uri=params.uri, mime_type="text/markdown", text=told["text"])
        return types.ReadResourceResult(contents=[text])

    async def get_prompt(context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        given = params.arguments or {}
        if params.name not in {"brief", "recall"} or is_off:
            raise MCPError(types.INVALID_PARAMS, f'There is no prompt "{params.name[:60]}".')
        if params.name == "recall" and not given.get("topic"):
            raise MCPError(types.INVALID_PARAMS, "recall: topic is missing.")
        wanted = {"query": given["topic"]} if params.name == "recall" else {}
        told = await ask(context, op="tool", name=params.name, arguments=wanted)
        if "error" in told:
            raise MCPError(types.INVALID_PARAMS, str(told["error"]))
        text = types.TextContent(type="text", text=told["text"])
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    return Server(
        SERVER["name"],
        title=SERVER["title"],
        version=SERVER["version"],
        instructions=INSTRUCTIONS,
        on_list_tools=listing("tools/list", types.ListToolsResult),
        on_call_tool=call_tool,
        on_list_resources=listing(PAGES, types.ListResourcesResult),
        on_list_resource_templates=listing("resources/templates/list", types.ListResourceTemplatesResult),
        on_read_resource=read_resource,
        on_list_prompts=listing("prompts/list", types.ListPromptsResult),
        on_get_prompt=get_prompt,
    )


def main(root: str | None) -> int:
    """`cairn mcp`: serve one host over standard input and output until it hangs up.

    A root that cannot be had is said in every call.

    Raises:
        Misconfigured: the package `mcp` is not installed.
        Unavailable: standard input is a terminal: somebody typed this who wanted something else.
    """
    if sys.stdin.isatty():
        raise Unavailable(
            "cairn mcp speaks MCP over standard input: a host starts it. `cairn integrate HOST` sets one up."
        )
    if importlib.util.find_spec("mcp") is None:
        raise Misconfigured(MISSING, setting="mcp")
    # The folder the agent works in: what the host says, else the one it was started in.
    named = os.environ.get("CLAUDE_PROJECT_DIR", "")
    folder = named if named and Path(named).is_dir() else _started_in()
    is_off = _is_off(folder)
    reply: Reply = (
        (lambda _message: {"error": SWITCHED_OFF}) if is_off else _caller(root)
    )  # opens the memory meanwhile
    front = Front(reply, folder, sys.stdout.buffer, is_off=is_off)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        if lines := front.run(iter(sys.stdin.buffer.readline, b"")):
            serve_rest(reply, folder, lines, sys.stdin.buffer, sys.stdout.buffer)
    return 0


def serve_rest(
    reply: Reply, folder: str | None, lines: Sequence[bytes], source: BinaryIO, sink: BinaryIO
) -> None:
    """Serve a host by the SDK from here on; all of `lines` but the last are a greeting that was answered already."""
    gc.disable()  # looking for garbage among what is imported is a sixth of the time
    import anyio
    from mcp.server.stdio import stdio_server

    server = build_server(in_thread(reply), folder)
    gc.freeze()
    gc.enable()
    answers = _Unrepeated(sink, skip=len(lines) > 1)
    said = anyio.wrap_file(cast("TextIO", _Resumed(lines, source, answers)))
    told = anyio.wrap_file(cast("TextIO", answers))

    async def run() -> None:
        async with stdio_server(said, told) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


class _Resumed:
    """The lines that were read already, then those that follow; the end, which ends the SDK, once all were answered."""

    def __init__(self, lines: Sequence[bytes], source: BinaryIO, answers: _Unrepeated) -> None:
        self._next = itertools.chain(lines, iter(source.readline, b""))
        self._answers = answers
        self._asked = 0

    def readline(self) -> str:
        line = next(self._next, b"").decode("utf-8", "replace")
        asked = object_in(line) or {}
        self._asked += "method" in asked and isinstance(asked.get("id"), str | int)
        if not line:
            self._answers.wait_for(self._asked)
        return line


class _Unrepeated:
    """Where answers go, without the first, where that was given already."""

    def __init__(self, sink: BinaryIO, *, skip: bool) -> None:
        self._sink = sink
        self._skip = skip
        self._given = 0
        self._one_more = threading.Condition()

    def write(self, text: str) -> int:
        if self._skip:
            self._skip = False
        else:
            self._sink.write(text.encode())
        with self._one_more:
            self._given += bool({"result", "error"} & (object_in(text) or {}).keys())
            self._one_more.notify_all()
        return len(text)

    def flush(self) -> None:
        self._sink.flush()

    def wait_for(self, answers: int) -> None:
        """Wait until so many were given. Not for ever: one that the host took back never comes."""
        with self._one_more:
            self._one_more.wait_for(lambda: self._given >= answers, _LAST_SECONDS)


def _started_in() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # a work tree that was removed under it
        return None


def _is_off(folder: str | None) -> bool:
    return os.environ.get("CAIRN_DISABLE") == "1" or (folder is not None and is_switched_off(folder))


def _caller(root: str | None) -> Reply:
    from cairn.config import load

    try:
        caller = WarmCaller(load(root))
    except CairnError as error:
        words = str(error)
        return lambda _message: {"error": words}
    caller.start()
    return caller
