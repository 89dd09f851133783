"""Forgets something on a root, and ends at once, as if killed, before a given write of it; prints how many writes there were."""

from __future__ import annotations

import json
import os
import sys

import cairn
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals


def main(root: str, call: str, dies_at: str) -> None:
    asked, count = json.loads(call), 0

    def counted(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def do(*args: object, **more: object) -> object:
            nonlocal count
            count += 1
            if count == int(dies_at):
                os._exit(9)
            return real(*args, **more)

        setattr(kind, name, do)

    with cairn.open_blocking(root, background=False) as memory:
        memory.sync()
        for kind, name in (
            (DeviceLocalBackend, "write"),
            (DeviceLocalBackend, "remove"),
            (FileJournals, "edit"),
        ):
            counted(kind, name)
        name = asked.pop("call")
        getattr(memory.memories if name == "forget" else memory, name)(**asked)
        print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
