"""A nursery of capture processes to be killed: imports once, then forks fresh ones on command.

Each child opens the root anew, recovers, and adds and flushes from several threads. Before a call it writes its
intent to stdout, after the call returned its acknowledgement; the harness kills it at a random instant.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
from pathlib import Path

from cairn.seams import SystemClock
from tests.world import MAY_8, SPACE, World, said

THREADS = 3
USERS = ("u0", "u1", "u2")


def tell(kind: str, value: object) -> None:
    """One whole line in one write: a killed process leaves no half line that matters."""
    os.write(1, f"{kind} {json.dumps(value)}\n".encode())


def work(order: dict) -> None:
    """What a child does until it is killed."""
    kit = World(Path(order["root"]), capture__max_messages=5, clock=SystemClock())
    kit.capture.recover()
    for intent in order["retry"]:
        send(kit, intent)
    tell("ready", os.getpid())
    threads = [threading.Thread(target=talk, args=(kit, order, n), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def talk(kit: World, order: dict, thread: int) -> None:
    name = f"r{order['round']}c{order['child']}t{thread}"
    rng = random.Random(f"{order['seed']}-{name}")
    for n in itertools.count():
        session = rng.choice(["shared", f"own{order['child']}{thread}", f"round{order['round']}"])
        if rng.random() < 0.15:
            kit.capture.flush(SPACE, session)
            continue
        at = MAY_8 + order["round"] * 100_000 + n * 10
        messages = []
        for k in range(rng.randint(1, 3)):
            role = "user" if rng.random() < 0.7 else "assistant"
            messages.append([rng.choice(USERS) if role == "user" else "bot", role, at, f"<{name}n{n}k{k}>"])
        send(
            kit,
            {
                "id": f"{name}n{n}",
                "session": session,
                "messages": messages,
                "defer": rng.random() < 0.2,
                "key": f"key-{name}n{n}" if rng.random() < 0.3 else None,
            },
        )


def send(kit: World, intent: dict) -> None:
    tell("intent", intent)
    batch = [said(text, who=who, role=role, at=at) for who, role, at, text in intent["messages"]]
    kit.capture.add(SPACE, intent["session"], batch, defer=intent["defer"], key=intent["key"])
    tell("ack", intent["id"])


def main() -> None:
    """Read orders, one JSON per line; fork a child for each; `reap N` waits for the N just killed."""
    for line in sys.stdin:
        if line.startswith("reap"):
            for _ in range(int(line.split()[1])):
                os.wait()
            tell("reaped", 0)
            continue
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                work(order)
            except BaseException as error:
                tell("broken", f"{type(error).__name__}: {error}")
            finally:
                os._exit(1)
        tell("pid", pid)


if __name__ == "__main__":
    main()
