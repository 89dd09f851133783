"""A clock that is set back a year, forward ten, and back again, under a running server and across its restarts.

`clock.c` moves the wall clock of the real process by what a file says. It jumps between an add and its flush, between calls,
and while the server is down; some restarts are kills. In the end every acknowledged message and memory is there once and
is found, by whatever time it is then, and `doctor` finds nothing.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.world import Violation
from tests.surfaces.served import Server, serving

DAY = 86_400
JUMPS = (-365, 3650, 0, -1, 1, 30, -3650)  # days from the true time


def built(folder: Path) -> Path | None:
    """The library that moves the clock; None where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    made = folder / "clock.so"
    source = str(Path(__file__).with_name("clock.c"))
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(made), source], check=True)
    return made


class Life:
    """One root, its server under a clock that jumps, and what was acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.root, self.offset = folder / "root", folder / "offset"
        self.rng = random.Random(seed)
        self.said: dict[str, str] = {}
        self.kept: list[str] = []
        self.counts: Counter[str] = Counter()
        self.jump(0)

    def jump(self, days: int) -> None:
        self.offset.write_text(str(days * DAY))
        self.counts["jumps"] += 1

    def call(self, server: Server, method: str, path: str, body: Any = None) -> Any:
        status, answer = server.call(method, f"/api/v1/{path}", body)
        if status != 200:
            raise Violation(f"{method} {path} answered {status}: {answer}")
        return answer["data"]

    def round(self, server: Server) -> None:
        """Talk with a jump in the midst of it, a memory, and a look at all that asks the clock."""
        session, day = f"s{self.rng.randrange(4)}", self.rng.choice(JUMPS)
        cut = self.rng.randrange(4)
        for number in range(4):
            word = f"zqclock{len(self.said)}x"
            message = {
                "sender_id": "ann",
                "role": "user",
                "content": f"The {word} lantern hangs by the door.",
            }
            message["timestamp"] = int((time.time() + self.rng.choice((0, day)) * DAY) * 1000)
            self.call(server, "POST", "memory/add", {"session_id": session, "messages": [message]})
            self.said[word] = session
            if number == cut:
                self.jump(day)
        self.call(server, "POST", "memory/flush", {"session_id": session})
        word = f"zqfact{len(self.kept)}x"
        self.call(
            server,
            "POST",
            "memories",
            {"content": f"The {word} kettle is blue.", "scope": "user", "owner": "ann"},
        )
        self.kept.append(word)
        self.call(server, "POST", "memories/sweep", {})
        for path in ("status", "log?limit=3", "upcoming?scope=user&owner=ann"):
            self.call(server, "GET", path)

    def check(self, server: Server) -> None:
        for session in set(self.said.values()):
            self.call(server, "POST", "memory/flush", {"session_id": session})
        for day in (0, -365, 3650):
            self.jump(day)
            for word in self.rng.sample(sorted(self.said), min(12, len(self.said))):
                asked = {"user_id": "ann", "query": word, "method": "keyword", "consistency": "strong"}
                if word not in str(self.call(server, "POST", "memory/search", asked)):
                    raise Violation(f"{word} is not found with the clock {day} days away")
        counted = Counter(
            word
            for note in self.root.glob("*/*/users/ann/episodes/*.md")
            for content in re.findall(
                r"### Content\n(.*?)(?=\n### |\n<!-- /entry)", note.read_text(), re.DOTALL
            )
            for word in re.findall(r"zqclock\d+x", content)
        )
        wrong = {word: counted[word] for word in self.said if counted[word] != 1}
        if wrong:
            raise Violation(f"lost or doubled in episodes: {wrong}")
        notes = "".join(one.read_text() for one in self.root.glob("*/*/users/ann/memories/*.md"))
        gone = [word for word in self.kept if notes.count(word) < 1]
        if gone:
            raise Violation(f"memories are gone: {gone}")
        troubles = [
            one for one in self.call(server, "GET", "doctor")["findings"] if one.get("level") == "fail"
        ]
        if troubles:
            raise Violation(f"doctor finds {troubles[:3]}")


def one_life(folder: Path, library: Path, seed: int, *, turns: int = 3, rounds: int = 3) -> Counter[str]:
    """Some turns of a server under its clock, the last of which looks at everything."""
    life = Life(folder, seed)
    env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(life.offset)}
    env["CAIRN_EMBEDDING__PROVIDER"] = "hashing"
    for turn in range(turns):
        with serving(life.root, env=env, log=folder / "log") as server:
            for _ in range(rounds):
                life.round(server)
            if turn == turns - 1:
                life.check(server)
            elif life.rng.random() < 0.5 and server.process is not None:
                server.process.kill()
                server.process.wait()
                life.counts["kills"] += 1
        life.jump(life.rng.choice(JUMPS))
    told = (folder / "log").read_text(errors="replace")
    if "Traceback" in told:
        raise Violation(f"the server wrote a traceback: {told[-2000:]}")
    life.counts.update(lives=1, messages=len(life.said), memories=len(life.kept))
    return life.counts


def run(seconds: float, seed: int) -> dict[str, int]:
    """One life after another until the time is up; at least one."""
    until = time.monotonic() + seconds
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cairn-clock-") as place:
        library = built(Path(place))
        if library is None:
            return {"skipped": 1}
        while not total["lives"] or time.monotonic() < until:
            folder = Path(place) / str(total["lives"])
            folder.mkdir()
            total.update(one_life(folder, library, seed + total["lives"]))
    return {**total, "seed": seed}
