"""The whole product under kill -9, thousands of times: `PART=product KILLS=10000 make chaos`.

One process imports everything and forks the victims, so a kill costs a fork and an opening, not a start. Several of them
are open on one root at a time, some with their background (index, strategies, history, chores), some without. Each adds,
flushes, remembers, edits, pins, notes days, makes checkpoints, sweeps, runs strategies, rebuilds and searches, and is killed
at a random instant: in the middle of opening, recovering, or anything after it. Before a call it tells its intent, after it
the acknowledgement. What was not acknowledged is tried again with the same key. Every hundred kills, all is looked up:

- each acknowledged message stands in one episode of its sender, once; each that was not, at most once;
- no fact was derived twice from a cell, no memory, day's line or checkpoint is there twice, and each acknowledged one is there;
- the last acknowledged text of an edited memory stands, and the history knows it;
- a strong search finds the words, `log` and `diff` answer, and `doctor` finds nothing that is damaged.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

CHILDREN = 3
PATIENCE = 60.0  # seconds until one that does not come up is killed anyway
KILLS_A_LOOK = 100
USERS = ("u0", "u1", "u2")
START = 1_780_272_000_000
SETTINGS: dict[str, Any] = {
    "embedding__provider": "hashing",
    "capture__max_messages": 5,
    "index__scan_seconds": 2.0,
}
TOKEN = re.compile(r"\bzq[a-z]{9}\b")
WORDS = (
    "amber",
    "birch",
    "cobalt",
    "delta",
    "ember",
    "fjord",
    "garnet",
    "harbour",
    "indigo",
    "juniper",
    "kelp",
    "lilac",
)


def token(rng: random.Random) -> str:
    """A word that nobody has ever said."""
    return "zq" + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(9))


# ---------------------------------------------------------------- a victim


class Victim:
    """One process on the root: what it does, told line by line before and after."""

    def __init__(self, memory: Any, out: int, rng: random.Random, number: int) -> None:
        self.memory, self.out, self.rng, self.number = memory, out, rng, number
        self.held: list[tuple[str, str]] = []

    def tell(self, kind: str, value: object) -> None:
        os.write(self.out, f"{kind} {json.dumps(value)}\n".encode())

    def live(self, retry: list[dict[str, Any]]) -> None:
        for intent in retry:
            self.do(intent)
        acts = [
            (self.say, 40),
            (self.flush, 12),
            (self.keep, 14),
            (self.edit, 8),
            (self.note, 5),
            (self.mark, 3),
        ]
        acts += [(self.sweep, 2), (self.strategies, 3), (self.search, 8), (self.index, 2)]
        does, weights = zip(*acts, strict=True)
        while True:
            self.rng.choices(does, weights)[0]()

    def do(self, intent: dict[str, Any]) -> None:
        """Tell it, do it, tell that it is done."""
        self.tell("intent", intent)
        got = DOES[intent["verb"]](self.memory, intent)
        self.tell("ack", [intent["id"], got])
        if intent["verb"] == "keep" and got:
            self.held.append((intent["owner"], got))

    def say(self) -> None:
        # Not near the sessions of others: their order would be the clock's.
        at = START + self.number * 60_000 + self.rng.randrange(50_000)
        said = [
            [
                self.rng.choice(USERS),
                at + n,
                f"The {token(self.rng)} lamp stands by the {self.rng.choice(WORDS)} door.",
            ]
            for n in range(self.rng.randint(1, 3))
        ]
        session = self.rng.choice(["shared", f"own{self.number % 7}", f"n{self.number}"])
        self.do({"verb": "say", "id": token(self.rng), "session": session, "said": said})

    def keep(self) -> None:
        words = " ".join(token(self.rng) for _ in range(5))
        self.do(
            {
                "verb": "keep",
                "id": token(self.rng),
                "owner": self.rng.choice(USERS),
                "text": f"{words} it is.",
            }
        )

    def edit(self) -> None:
        if self.held:
            owner, one = self.held.pop()
            text = " ".join(token(self.rng) for _ in range(5))
            self.do(
                {"verb": "edit", "id": token(self.rng), "owner": owner, "of": one, "text": f"{text} it was."}
            )

    def note(self) -> None:
        self.do({"verb": "note", "id": token(self.rng), "text": f"Saw {token(self.rng)} today."})

    def mark(self) -> None:
        self.do({"verb": "mark", "id": token(self.rng), "text": token(self.rng)})

    def flush(self) -> None:
        self.memory.flush(self.rng.choice(["shared", f"own{self.number % 7}", f"n{self.number}"]))

    def sweep(self) -> None:
        self.memory.memories.sweep()

    def strategies(self) -> None:
        self.memory.quiesce(timeout=1.0)

    def search(self) -> None:
        self.memory.search("lamp by the door", user_id=self.rng.choice(USERS), method="keyword")

    def index(self) -> None:
        self.memory.sync()


def _say(memory: Any, intent: dict[str, Any]) -> str:
    said = [
        {"sender_id": who, "role": "user", "timestamp": at, "content": text}
        for who, at, text in intent["said"]
    ]
    return str(memory.add(intent["session"], said, idempotency_key=intent["id"]).status)


def _keep(memory: Any, intent: dict[str, Any]) -> str:
    verdict = memory.remember(intent["text"], scope="user", owner=intent["owner"])
    assert verdict.accepted, verdict
    return str(verdict.memory["id"])


def _edit(memory: Any, intent: dict[str, Any]) -> str:
    memory.memories.edit(intent["of"], content=intent["text"], scope="user", owner=intent["owner"])
    return ""


def _note(memory: Any, intent: dict[str, Any]) -> str:
    memory.memories.note_day(intent["text"])
    return ""


def _mark(memory: Any, intent: dict[str, Any]) -> str:
    memory.checkpoint(intent["text"])
    return ""


DOES = {"say": _say, "keep": _keep, "edit": _edit, "note": _note, "mark": _mark}
# A second try of these is the same call once more; of the others it would be another.
AGAIN = frozenset({"say", "keep", "edit"})


def victim(root: str, out: int, seed: str, number: int, retry: list[dict[str, Any]]) -> None:
    """What a fork does until it is killed; an error of ours is told, and is a failure."""
    import cairn
    from cairn.errors import CairnError

    rng = random.Random(seed)
    try:
        with cairn.open_blocking(root, background=rng.random() < 0.6, **SETTINGS) as memory:
            os.write(out, b"ready 0\n")
            Victim(memory, out, rng, number).live(retry)
    except CairnError as error:
        os.write(out, f"broken {json.dumps(f'{type(error).__name__}: {error}')}\n".encode())
    except BaseException:
        import traceback

        os.write(out, f"broken {json.dumps(traceback.format_exc()[-1500:])}\n".encode())


# ---------------------------------------------------------------- who kills


class Killer:
    """Forks victims, kills them, and knows what they told."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed
        self.rng = random.Random(seed)
        self.intents: dict[str, dict[str, Any]] = {}
        self.acked: dict[str, str] = {}
        self.broken: list[str] = []
        self.kills = self.number = self.removed = self.opened = 0

    def round(self) -> None:
        """Some victims at once, each killed at an instant of its own; sometimes the index goes with them."""
        retry = [i for i in self.intents.values() if i["id"] not in self.acked and i["verb"] in AGAIN]
        alive = dict(self._fork(retry[n::CHILDREN]) for n in range(CHILDREN))
        # A few die while they open the memory; the others some moments after a call that was answered, or the first.
        born = time.monotonic()
        ends = {pid: born + (PATIENCE if self.rng.random() < 0.8 else self.rng.random()) for pid in alive}
        calls = {pid: self.rng.randrange(8) for pid in alive}
        heard = dict.fromkeys(alive, b"")
        while alive:
            wait = max(0.0, min(ends[pid] for pid in alive) - time.monotonic())
            for back in select.select(list(alive.values()), [], [], wait)[0]:
                pid = next(one for one, its in alive.items() if its == back)
                data = os.read(back, 1 << 16)
                heard[pid] += data
                if heard[pid].count(b"ack ") >= calls[pid] and heard[pid]:
                    ends[pid] = min(ends[pid], time.monotonic() + 0.001 * 200 ** self.rng.random())
                if not data:
                    ends[pid] = 0.0
            for pid in [one for one in alive if time.monotonic() >= ends[one]]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                back = alive.pop(pid)
                while data := os.read(back, 1 << 16):
                    heard[pid] += data
                os.close(back)
                self._take(heard[pid])
                self.kills += 1
        if self.rng.random() < 0.05:
            shutil.rmtree(self.root / ".index", ignore_errors=True)
            self.removed += 1

    def _fork(self, retry: list[dict[str, Any]]) -> tuple[int, int]:
        self.number += 1
        back, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(back)
            try:
                victim(str(self.root), out, f"{self.seed}-{self.number}", self.number, retry)
            finally:
                os._exit(1)
        os.close(out)
        return pid, back

    def _take(self, told: bytes) -> None:
        for line in told.decode().split("\n")[:-1]:
            kind, _, rest = line.partition(" ")
            value = json.loads(rest)
            if kind == "ready":
                self.opened += 1
            elif kind == "intent":
                self.intents[value["id"]] = value
            elif kind == "ack":
                self.acked[value[0]] = value[1]
            else:
                self.broken.append(value)

    def look(self) -> None:
        """Everything that was promised, looked up by a process of its own."""
        assert not self.broken, self.broken[:3]
        asked = json.dumps([list(self.intents.values()), self.acked])
        pid = os.fork()
        if pid == 0:
            try:
                look_up(self.root, *json.loads(asked))
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, f"SEED={self.seed}: after {self.kills} kills; see above"


def look_up(root: Path, intents: list[dict[str, Any]], acked: dict[str, str]) -> None:
    """Raises on anything that is lost, doubled or damaged."""
    import cairn

    with cairn.open_blocking(root, background=False, **SETTINGS) as memory:
        for session in sorted({one["session"] for one in intents if one["verb"] == "say"}):
            memory.flush(session)
        memory.quiesce(timeout=120.0)
        assert memory.checkpoints() is not None and memory.log(limit=20) is not None
        troubles = [one for one in memory.doctor() if one.get("level") == "error"]
        assert not troubles, troubles[:3]
        wanted = [one for one in intents if one["verb"] == "say" and one["id"] in acked][-40::4]
        for who, _, text in (one["said"][0] for one in wanted):
            word = TOKEN.findall(text)[0]
            found = memory.search(word, user_id=who, method="keyword", consistency="strong")
            assert any(word in hit.text for hit in found.episodes), f"{word} of {who} is not found"
        marks = Counter(one["label"] for one in memory.checkpoints())
        noted = Counter(TOKEN.findall(json.dumps(memory.memories.daily())))
    space = root / "default_app" / "default_project"
    told, facts, kept = (
        _counted(space, pattern)
        for pattern in ("users/*/episodes/*.md", "users/*/.atomic_facts/*.md", "users/*/memories/*.md")
    )
    lost: list[object] = []
    doubled: list[object] = []
    edited = {one["of"] for one in intents if one["verb"] == "edit"}
    for one in intents:
        is_acked, verb = one["id"] in acked, one["verb"]
        if verb == "say":
            counts = [told.get((who, TOKEN.findall(text)[0]), 0) for who, _, text in one["said"]]
            doubled += [
                one for who, _, text in one["said"] if facts.get((who, TOKEN.findall(text)[0]), 0) > 1
            ]
        elif verb in {"keep", "edit"}:
            counts = [kept.get((one["owner"], TOKEN.findall(one["text"])[0]), 0)]
            is_acked = is_acked and not (verb == "keep" and acked[one["id"]] in edited)
        else:
            counts = [(noted if verb == "note" else marks)[TOKEN.findall(one["text"])[0]]]
        lost += [one] if is_acked and min(counts) == 0 else []
        doubled += [one] if max(counts) > 1 else []
    assert not lost, f"{len(lost)} acknowledged and gone: {lost[:3]}"
    assert not doubled, f"{len(doubled)} there twice: {doubled[:3]}"


def _counted(space: Path, pattern: str) -> Counter[tuple[str, str]]:
    """How many entries of each owner hold each word."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in space.glob(pattern):
        owner = path.relative_to(space).parts[1]
        for entry in re.findall(
            r"<!-- entry:\S+ -->.*?<!-- /entry:\S+ -->", path.read_text("utf-8"), re.DOTALL
        ):
            counts.update((owner, word) for word in set(TOKEN.findall(entry)))
    return counts


def kill(seconds: float, seed: int, wanted: int) -> dict[str, int]:
    """Roots of a thousand kills each until `wanted` are done or the time is up, looked through every hundred."""
    until = time.monotonic() + seconds
    total: Counter[str] = Counter()
    number = 0
    while (total["kills"] < wanted and time.monotonic() < until) or not number:
        folder = Path(tempfile.mkdtemp(prefix="cairn-kills-"))
        killer = Killer(folder / "root", seed + number)
        seen = 0
        while killer.kills < 1000 and total["kills"] + killer.kills < wanted and time.monotonic() < until:
            killer.round()
            if killer.kills - seen >= KILLS_A_LOOK:
                killer.look()
                seen = killer.kills
                print(f"product: {total['kills'] + killer.kills} kills", file=sys.stderr, flush=True)
        killer.look()
        shutil.rmtree(folder)  # kept where something was lost
        total.update({"kills": killer.kills, "calls": len(killer.intents), "acknowledged": len(killer.acked)})
        total.update({"at work": killer.opened, "index removed": killer.removed})
        number += 1
    return {**total, "roots": number, "seed": seed}


def run(seconds: float, seed: int) -> dict[str, int]:
    """The same in a process of its own: whoever forks must not have threads."""
    wanted = os.environ.get("KILLS") or "1000000"
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.product", str(seconds), str(seed), wanted],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"kills of the whole product: SEED={seed}"
    report: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return report


def main() -> None:
    """`python -m tests.chaos.product SECONDS SEED KILLS`"""
    import cairn.background
    import cairn.memory
    import cairn.strategies.engine  # noqa: F401 -- imported once, for all who are forked

    seconds, seed, wanted = sys.argv[1:4]
    print(json.dumps(kill(float(seconds), int(seed), int(wanted))))


if __name__ == "__main__":
    main()
