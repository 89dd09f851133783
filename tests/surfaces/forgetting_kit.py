"""One root reached through Python, the command line or HTTP, with the same few calls: for tests of forgetting."""

from __future__ import annotations

import contextlib
import io
import json
from urllib.parse import urlencode

import pytest

import cairn
from cairn.operations.memories import Single
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here
from tests.surfaces.test_scenario import ENV


class ThroughPython:
    """The library, without an event loop."""

    def __init__(self, memory):
        self._memory = memory

    def remember(self, content, **more):
        return self._memory.remember(content, **more).memory["id"]

    def contents(self):
        return sorted(row["content"] for row in self._memory.memories.list(limit=500).memories)

    def edit(self, memory_id, content):
        self._memory.memories.edit(memory_id, content=content)

    def forget(self, memory_id=None, **more):
        return Single.forget.operation.told(None, self._memory.memories.forget(memory_id, **more), {})

    def refused(self, **more):
        with pytest.raises(cairn.CairnError) as caught:
            self._memory.memories.forget(**more)
        return str(caught.value)

    def mark(self):
        return self._memory.checkpoint("before")["id"]

    def restore(self, target, *, dry_run=False):
        return self._memory.restore(target, dry_run=dry_run)


class ThroughCommands:
    """The command line, one process's worth per call."""

    def __init__(self, root):
        self._root = root

    def run(self, *words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["--root", str(self._root), "--json", *words])
        return json.loads(out.getvalue())

    def remember(self, content, *, scope=None, owner=None):
        more = [*(("--scope", scope) if scope else ()), *(("--owner", owner) if owner else ())]
        return self.run("remember", content, *more)["memory"]["id"]

    def contents(self):
        return sorted(row["content"] for row in self.run("memories", "list", "--limit", "500")["memories"])

    def edit(self, memory_id, content):
        self.run("memories", "edit", memory_id, "--content", content)

    def forget(self, memory_id=None, **more):
        return self.run("memories", "forget", *([memory_id] if memory_id else []), *_flags(more), "--yes")

    def refused(self, **more):
        told = self.run("memories", "forget", *_flags(more), "--yes")
        return told["error"]["message"]

    def mark(self):
        return self.run("log", "--mark", "before")["id"]

    def restore(self, target, *, dry_run=False):
        return self.run("restore", target, *(["--dry-run"] if dry_run else []))


def _flags(more):
    """`words=("a", "b"), all_owners=True` as the options of a command."""
    out = []
    for name, value in more.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            out.append(flag)
        elif value not in (False, None):
            for one in [value] if isinstance(value, str) else value:
                out += [flag, one]
    return out


class ThroughHttp:
    """A running server."""

    def __init__(self, server):
        self._server = server

    def call(self, method, path, body=None):
        status, answer = self._server.call(method, f"/api/v1/{path}", body)
        assert status == 200, answer
        return answer["data"]

    def remember(self, content, **more):
        return self.call("POST", "memories", {"content": content, **more})["memory"]["id"]

    def contents(self):
        return sorted(row["content"] for row in self.call("GET", "memories?limit=500")["memories"])

    def edit(self, memory_id, content):
        self.call("PATCH", f"memories/{memory_id}", {"content": content})

    def forget(self, memory_id=None, **more):
        if memory_id is None or "also" in more:
            return self.call("POST", "memories/forget", {"id": memory_id, **more})
        given = {name: str(value).lower() for name, value in more.items()}
        return self.call("DELETE", f"memories/{memory_id}?{urlencode(given)}")

    def refused(self, **more):
        _, answer = self._server.call("POST", "/api/v1/memories/forget", more)
        return answer["error"]["message"]

    def mark(self):
        return self.call("POST", "checkpoints", {"label": "before"})["id"]

    def restore(self, target, *, dry_run=False):
        return self.call("POST", "restore", {"target": target, "dry_run": dry_run})["entries"]


@contextlib.contextmanager
def reached(surface, root):
    """The root at `root`, through "python", "cli" or "http"."""
    if surface == "python":
        with cairn.open_blocking(root, embedding__provider="none") as memory:
            yield ThroughPython(memory)
    elif surface == "cli":
        yield ThroughCommands(root)
    else:
        with serving_here(root, env=ENV) as server:
            yield ThroughHttp(server)


SURFACES = ("python", "cli", "http")
