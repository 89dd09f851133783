"""The server of the walk: `python -m benchmarks._walked ROOT PORT`, with a hook in every thread of it.

A line on standard input is the name of the leg that begins; "end" asks for what was passed, as one line of JSON:
`{leg: {thread: [module:function, ...]}}`. Each line is answered by one.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_NUMBER = re.compile(r"(_\d+|-\d+)+$")
_HERE = "/cairn/"


class Passed:
    """Which functions ran in which thread, by leg."""

    def __init__(self) -> None:
        self.legs: dict[str, set[tuple[CodeType, str]]] = {"": set()}
        self.now = self.legs[""]

    def begin(self, leg: str) -> None:
        self.now = self.legs.setdefault(leg, set())

    def hook(self) -> Callable[[FrameType, str, Any], None]:
        def called(frame: FrameType, event: str, _arg: Any) -> None:
            code = frame.f_code
            if event == "call" and _HERE in code.co_filename:
                self.now.add((code, threading.current_thread().name))

        return called

    def told(self) -> dict[str, dict[str, list[str]]]:
        self.begin("")  # other threads go on, and are not counted any more
        found: dict[str, dict[str, list[str]]] = {}
        for leg, passed in self.legs.items():
            threads: dict[str, set[str]] = {}
            for code, thread in list(passed):
                if not code.co_name.startswith("<"):
                    module = code.co_filename.rpartition(_HERE)[2].removesuffix(".py").replace("/", ".")
                    name = f"{module}:{code.co_qualname}"
                    threads.setdefault(_NUMBER.sub("", thread), set()).add(name)
            found[leg] = {thread: sorted(names) for thread, names in threads.items()}
        return found


def main() -> int:
    passed = Passed()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "end":
                print(json.dumps(passed.told()), file=sys.__stdout__, flush=True)
            else:
                passed.begin(line.strip())
                print("begun", file=sys.__stdout__, flush=True)

    threading.Thread(target=listen, name="control", daemon=True).start()
    hook = passed.hook()
    threading.setprofile(hook)
    sys.setprofile(hook)
    sys.stdout = sys.stderr
    from cairn.surfaces.cli import main as cairn

    root, port = sys.argv[1:]
    return cairn(["server", "start", "--root", root, "--port", port, "--log-level", "warning"])


if __name__ == "__main__":
    raise SystemExit(main())
