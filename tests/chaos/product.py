"""The whole product under kill -9, thousands of times: `PART=product KILLS=10000 make chaos`.

One process lives through a life of the product on a root of its own, so that everything is imported and every pattern
compiled; it has no thread and no open file when it forks the victims. A kill then costs a fork and an opening, not a start.
Three of them are open on one root at a time, some with their background (index, strategies, history, chores), some without.
Each says, flushes, remembers, edits, undoes, forgets, notes days, makes checkpoints, sweeps, runs strategies, indexes and
searches, and is ended by SIGKILL in one of these ways:

- `opening`: at a random instant while it opens the root and recovers what others left;
- `instant`: at a random instant during or after a call;
- `before`, `after`: by its own hand right before or after its n-th call that changes a file (write, fsync, rename, link,
  unlink, truncate, mkdir: SQLite's with ours), counted by `ending.c` from the opening or from the first call on;
- `full`: some moments after the disk was full for some calls, from its n-th on (writes, renames and flushes of SQLite and
  ours fail): a call may be refused then, and only then; what was refused is tried again;
- `folding`: while a process of its own brings rows into the tables of LanceDB, both at once.

Before a call a victim tells its intent, after it the acknowledgement. What was not acknowledged is tried again, with the same
key, by the next. After every fifteen the files are compared with what was told; every hundred kills all is looked up
through the product by a process of its own:

- each acknowledged message stands in one episode of its sender, once; each that was not, at most once;
- no fact was derived twice from a cell, no memory, day's line or checkpoint is there twice, and each acknowledged one is there;
- of a memory that was edited or undone the last acknowledged text stands, and no other;
- of what was forgotten with a complete receipt no byte is left below the root;
- a strong search finds the words, `log` and `diff` answer, and `doctor` finds nothing that is damaged.
"""

from __future__ import annotations

import ctypes
import gc
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

CHILDREN = 3
PATIENCE = 60.0  # seconds until one that does not come up is killed anyway
COUNTED_SECONDS = 1.5  # for one who ends by its own hand; then it is killed at that instant
KILLS_A_GLANCE = 15
KILLS_A_LOOK = 100
KILLS_A_ROOT = 500
MEMORIES = 300  # so many remembered things a root: from then on the old ones are edited and forgotten
USERS = ("u0", "u1", "u2")
START = 1_780_272_000_000
SETTINGS: dict[str, Any] = {
    "embedding__provider": "hashing",
    "capture__max_messages": 5,
    "index__scan_seconds": 2.0,
}
TOKEN = re.compile(r"\bzq[a-z]{9}\b")
ENTRY = re.compile(r"<!-- entry:\S+ -->.*?<!-- /entry:\S+ -->", re.DOTALL)
WORDS = [
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
]
HOWS = {"opening": 12, "instant": 32, "before": 23, "after": 22, "full": 10, "folding": 1}
COUNTED = frozenset({"before", "after", "full"})


def token(rng: random.Random) -> str:
    """A word that nobody has ever said."""
    return "zq" + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(9))


def five(rng: random.Random) -> str:
    return " ".join(token(rng) for _ in range(5))


def first(text: str) -> str:
    return str(TOKEN.findall(text)[0])


# ---------------------------------------------------------------- a victim


class Victim:
    """One process on the root: what it does, told line by line before and after."""

    def __init__(self, memory: Any, out: int, rng: random.Random, number: int) -> None:
        self.memory, self.out, self.rng, self.number = memory, out, rng, number
        self.held: list[dict[str, Any]] = []  # memories that nobody else touches

    def tell(self, kind: str, value: object) -> None:
        os.write(self.out, f"{kind} {json.dumps(value)}\n".encode())

    def live(self) -> None:
        acts = {self.say: 34, self.flush: 12, self.keep: 14, self.edit: 10, self.undo: 5, self.forget: 3}
        acts |= {
            self.note: 5,
            self.mark: 3,
            self.sweep: 2,
            self.strategies: 3,
            self.search: 7,
            self.strong: 2,
        }
        while True:
            self.bear(self.rng.choices(list(acts), list(acts.values()))[0])

    def once_each(self) -> None:
        """Every act, for whoever wants all of it loaded."""
        for act in (self.say, self.keep, self.edit, self.undo, self.forget, self.keep, self.flush, self.note):
            act()
        for act in (self.mark, self.sweep, self.strategies, self.search, self.strong):
            act()

    def do(self, intent: dict[str, Any]) -> str:
        """Tell it, do it, tell that it is done."""
        self.tell("intent", intent)
        try:
            got = DOES[intent["verb"]](self.memory, intent)
        except Exception:  # it may be half done, and will be tried again: nobody touches the memory meanwhile
            self.held = [one for one in self.held if one["of"] != intent.get("of")]
            raise
        self.tell("ack", [intent["id"], got])
        return got

    def bear(self, act: Callable[[], object]) -> None:
        """Do it; a refusal is borne where the disk was full meanwhile."""
        from cairn.errors import CairnError

        before = room_lacking()
        try:
            act()
        except CairnError as error:
            if not before:
                raise
            self.tell("refused", str(error))

    def ask(self, verb: str, **more: Any) -> dict[str, Any]:
        return {"verb": verb, "id": token(self.rng), **more}

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
        self.do(self.ask("say", session=session, said=said))

    def keep(self) -> None:
        if len(self.held) < MEMORIES // CHILDREN:
            owner, text = self.rng.choice(USERS), f"{five(self.rng)} it is."
            got = self.do(self.ask("keep", owner=owner, text=text))
            self.held.append({"of": got, "owner": owner, "text": text, "was": ""})

    def edit(self) -> None:
        if self.held:
            one = self.rng.choice(self.held)
            text = f"{five(self.rng)} it was."
            self.do(self.ask("edit", owner=one["owner"], of=one["of"], text=text))
            one["was"], one["text"] = one["text"], text

    def undo(self) -> None:
        """Take back the last edit of a memory, by the change that the history knows it by."""
        changed = [one for one in self.held if one["was"]]
        if not changed:
            return
        one = self.rng.choice(changed)
        word = first(one["text"])
        seen = self.memory.log(one["of"], limit=5, diffs=True)
        made = [
            change["id"]
            for change in seen
            if change["action"] == "changed"
            and any(line.startswith("+") and word in line for line in change["diff"].splitlines())
        ]
        if made:
            got = self.do(
                self.ask(
                    "undo",
                    owner=one["owner"],
                    of=one["of"],
                    ref=made[0],
                    text=one["was"],
                )
            )
            one["text"], one["was"] = (one["was"], "") if got == "undone" else (one["text"], "")

    def forget(self) -> None:
        if self.held:
            one = self.held.pop(self.rng.randrange(len(self.held)))
            self.do(self.ask("forget", owner=one["owner"], of=one["of"]))

    def note(self) -> None:
        self.do(self.ask("note", text=f"Saw {token(self.rng)} today."))

    def mark(self) -> None:
        self.do(self.ask("mark", text=token(self.rng)))

    def flush(self) -> None:
        self.memory.flush(self.rng.choice(["shared", f"own{self.number % 7}", f"n{self.number}"]))

    def sweep(self) -> None:
        from cairn.errors import Unavailable

        with suppress(Unavailable):  # two at once: the second is refused by name
            self.memory.memories.sweep()

    def strategies(self) -> None:
        self.memory.quiesce(timeout=1.0)

    def search(self) -> None:
        self.memory.search("lamp by the door", user_id=self.rng.choice(USERS), method="keyword")

    def strong(self) -> None:
        """Brings the index up to date first."""
        from cairn.errors import Unavailable

        who = self.rng.choice(USERS)
        try:
            self.memory.search("lamp by the door", user_id=who, method="keyword", consistency="strong")
        except Unavailable as error:  # a starved machine: ten seconds were not enough, and that is said
            self.tell("refused", str(error))

    def fold(self) -> None:
        while True:
            self.say()
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


def _undo(memory: Any, intent: dict[str, Any]) -> str:
    done = memory.undo(intent["ref"])
    return "undone" if any(one.action == "write" for one in done.entries) else "stays"


def _forget(memory: Any, intent: dict[str, Any]) -> str:
    from cairn.errors import NotFound

    try:
        receipt = memory.memories.forget(intent["of"], scope="user", owner=intent["owner"])
    except NotFound:
        return "gone"  # by the try before
    return "complete" if receipt.complete else "incomplete"


def _note(memory: Any, intent: dict[str, Any]) -> str:
    memory.memories.note_day(intent["text"])
    return ""


def _mark(memory: Any, intent: dict[str, Any]) -> str:
    memory.checkpoint(intent["text"])
    return ""


DOES = {
    "say": _say,
    "keep": _keep,
    "edit": _edit,
    "undo": _undo,
    "forget": _forget,
    "note": _note,
    "mark": _mark,
}
# A second try of these is the same call once more; of the others it would be another.
AGAIN = frozenset({"say", "keep", "edit", "undo", "forget"})


def victim(
    root: str, out: int, plan: dict[str, Any], retry: list[dict[str, Any]], held: list[dict[str, Any]]
) -> None:
    """What a fork does until it is killed; an error of ours is told, and is a failure."""
    import cairn
    from cairn.errors import CairnError

    rng = random.Random(plan["seed"])
    try:
        if plan["from the start"]:
            arm(plan["calls"], plan["how"])
        with cairn.open_blocking(root, background=rng.random() < 0.5, **SETTINGS) as memory:
            os.write(out, b"ready 0\n")
            if not plan["from the start"]:
                arm(plan["calls"], plan["how"])
            one = Victim(memory, out, rng, plan["number"])
            for intent in retry:
                one.bear(partial(one.do, intent))
            one.held = held
            if plan["how"] == "folding":
                one.fold()
            one.live()
    except CairnError as error:
        kind = "refused" if plan["how"] == "full" and plan["from the start"] else "broken"
        os.write(out, f"{kind} {json.dumps(f'{type(error).__name__}: {error}')}\n".encode())
    except BaseException:
        import traceback

        os.write(out, f"broken {json.dumps(traceback.format_exc()[-1500:])}\n".encode())


def arm(calls: int, how: str) -> None:
    """End this process, or fill the disk, at its n-th call that changes a file, where it was planned so."""
    if how == "full":
        ctypes.CDLL(None).ending_fill(ctypes.c_long(calls), ctypes.c_long(calls % 7 + 1))
    elif how in COUNTED:
        ctypes.CDLL(None).ending_arm(ctypes.c_long(calls), ctypes.c_int(how == "after"))


def room_lacking() -> int:
    """How many calls will still find no room, or have not yet come to it."""
    library = ctypes.CDLL(None)
    return int(library.ending_full()) if hasattr(library, "ending_full") else 0


# ---------------------------------------------------------------- who kills


class Killer:
    """Forks victims, kills them, and knows what they told."""

    def __init__(self, root: Path, seed: int, *, counting: bool) -> None:
        self.root, self.seed = root, seed
        self.rng = random.Random(seed)
        self.hows = {how: n for how, n in HOWS.items() if counting or how not in COUNTED}
        self.intents: dict[str, dict[str, Any]] = {}
        self.tries: Counter[str] = Counter()
        self.acked: dict[str, str] = {}
        self.broken: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.kills = self.number = self.removed = self.opened = self.refused = 0

    def round(self) -> None:
        """Three victims at once, each ended in a way of its own; sometimes the index goes with them."""
        retry = [i for i in self.intents.values() if i["id"] not in self.acked and i["verb"] in AGAIN]
        held = self.settled()
        self.rng.shuffle(held)
        plans = [self._plan() for _ in range(CHILDREN)]
        alive = dict(
            self._fork(plan, retry[n::CHILDREN], held[n : 3 * CHILDREN : CHILDREN])
            for n, plan in enumerate(plans)
        )
        planned = dict(zip(alive, plans, strict=True))
        born = time.monotonic()
        ends = {
            pid: born + (0.06 * self.rng.random() if plan["how"] == "opening" else PATIENCE)
            for pid, plan in planned.items()
        }
        acks = {pid: self.rng.randrange(5) for pid in alive}
        heard = dict.fromkeys(alive, b"")
        while alive:
            wait = max(0.0, min(ends[pid] for pid in alive) - time.monotonic())
            for back in select.select(list(alive.values()), [], [], wait)[0]:
                pid = next(one for one, its in alive.items() if its == back)
                data = os.read(back, 1 << 16)
                heard[pid] += data
                if not data:
                    ends[pid] = 0.0
                else:
                    ends[pid] = min(ends[pid], self._end(planned[pid]["how"], heard[pid], acks[pid]))
            for pid in [one for one in alive if time.monotonic() >= ends[one]]:
                self._finish(pid, alive.pop(pid), planned[pid], heard[pid], by_itself=ends[pid] == 0.0)
        if self.rng.random() < 0.03:
            shutil.rmtree(self.root / ".index", ignore_errors=True)
            self.removed += 1
        assert not self.broken, self.broken[:3]

    def _plan(self) -> dict[str, Any]:
        self.number += 1
        return {
            "how": self.rng.choices(list(self.hows), list(self.hows.values()))[0],
            "calls": int(200 ** self.rng.random()),
            "from the start": self.rng.random() < 0.3,
            "number": self.number,
            "seed": f"{self.seed}-{self.number}",
        }

    def _end(self, how: str, heard: bytes, acks: int) -> float:
        """When one of whom this was heard is to be killed from outside."""
        now = time.monotonic()
        if how == "folding":
            return now + 3.0 * self.rng.random()
        if how == "instant":
            enough = heard.count(b"ack ") >= acks
            return now + 0.0005 * 100 ** self.rng.random() if enough else now + PATIENCE
        return now + (COUNTED_SECONDS if how != "opening" else PATIENCE)

    def _finish(self, pid: int, back: int, plan: dict[str, Any], heard: bytes, *, by_itself: bool) -> None:
        """Kill it with whatever it has started, and take what it told to the last byte."""
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have died before it had a group
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while data := os.read(back, 1 << 16):
            heard += data
        os.close(back)
        self._take(heard)
        self.kills += 1
        how = plan["how"]
        self.kinds["instant" if how in {"before", "after"} and not by_itself else how] += 1

    def _fork(
        self, plan: dict[str, Any], retry: list[dict[str, Any]], held: list[dict[str, Any]]
    ) -> tuple[int, int]:
        back, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(back)
            os.setsid()
            try:
                victim(str(self.root), out, plan, retry, held)
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
                self.tries[value["id"]] += 1
            elif kind == "ack":
                self.acked[value[0]] = value[1]
            elif kind == "refused":
                self.refused += 1
            else:
                self.broken.append(value)

    def memories(self) -> dict[str, Kept]:
        """What is known of each memory that was kept, by what was told of it in order."""
        found: dict[str, Kept] = {}
        for one in self.intents.values():
            if one["verb"] == "keep" and one["id"] in self.acked:
                found[self.acked[one["id"]] + one["owner"]] = Kept(one["owner"], one["text"])
            elif "of" in one:
                found[one["of"] + one["owner"]].take(one, self.acked.get(one["id"]), self.tries[one["id"]])
        return found

    def settled(self) -> list[dict[str, Any]]:
        """Memories with one text and nothing half done, to be handled by one victim each."""
        return [
            {"of": key[: -len(kept.owner)], "owner": kept.owner, "text": kept.may[0], "was": kept.was}
            for key, kept in self.memories().items()
            if len(kept.may) == 1
        ]

    def glance(self) -> None:
        """Everything that was told against the files as they lie there."""
        space = self.root / "default_app" / "default_project"
        if not space.is_dir():
            return
        logs = Counter(
            word for line in _lines(space.glob("sessions/*.jsonl")) for word in TOKEN.findall(line)
        )
        said = {
            (who, first(text)): logs[first(text)]
            for one in self.intents.values()
            if one["verb"] == "say"
            for who, _, text in one["said"]
        }
        noted = Counter(
            word for line in _lines([space / "journal/daily.jsonl"]) for word in TOKEN.findall(line)
        )
        marked = _lines([space / "journal/history/checkpoints.jsonl"])
        marks = Counter(word for line in marked for word in TOKEN.findall(line))
        kept = _counted(space, "users/*/memories/*.md")
        judge(self.intents, self.acked, self.memories(), Found(said, {}, kept, noted, marks))

    def look(self) -> None:
        """Everything that was promised, looked up by a process of its own."""
        pid = os.fork()
        if pid == 0:
            try:
                look_up(self.root, self.intents, self.acked, self.memories())
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, f"SEED={self.seed}: after {self.kills} kills; see above"


class Kept:
    """One memory: the texts it may have now, and every word it ever had."""

    def __init__(self, owner: str, text: str) -> None:
        self.owner, self.may, self.ever, self.gone = owner, [text], {first(text)}, ""
        self.was = ""  # where it can be taken back

    def take(self, intent: dict[str, Any], ack: str | None, tries: int) -> None:
        if intent["verb"] == "forget":
            self.may, self.gone = [], ack or "perhaps"
            return
        self.ever.add(first(intent["text"]))
        if ack is None or (intent["verb"] == "undo" and tries > 1):
            self.may = [
                *self.may,
                intent["text"],
            ]  # before or after; an undo that was tried again may have been done
        elif ack != "stays":
            self.was = self.may[0] if intent["verb"] == "edit" and len(self.may) == 1 else ""
            self.may = [intent["text"]]


class Found(NamedTuple):
    """How often each word of each owner stands where it belongs."""

    told: Mapping[tuple[str, str], int]
    facts: Mapping[tuple[str, str], int]
    kept: Mapping[tuple[str, str], int]
    noted: Counter[str]
    marks: Counter[str]


def judge(
    intents: dict[str, dict[str, Any]], acked: dict[str, str], memories: dict[str, Kept], found: Found
) -> None:
    """Raises on anything that is lost or doubled."""
    lost: list[object] = []
    doubled: list[object] = []
    for one in intents.values():
        if one["verb"] == "say":
            words = [(who, first(text)) for who, _, text in one["said"]]
            counts = [found.told.get(word, 0) for word in words]
            doubled += [one for word in words if found.facts.get(word, 0) > 1]
        elif one["verb"] in {"note", "mark"}:
            counts = [(found.noted if one["verb"] == "note" else found.marks)[first(one["text"])]]
        elif one["verb"] == "keep" and one["id"] not in acked:
            counts = [found.kept.get((one["owner"], first(one["text"])), 0)]
        else:
            continue
        lost += [one] if one["id"] in acked and min(counts) == 0 else []
        doubled += [one] if max(counts) > 1 else []
    for name, kept in memories.items():
        counted = {word: found.kept.get((kept.owner, word), 0) for word in kept.ever}
        standing = [word for word, count in counted.items() if count]
        if kept.gone:
            lost += [("not gone", name, standing)] if standing and kept.gone != "perhaps" else []
        elif not set(standing) <= {first(text) for text in kept.may} or len(standing) != 1:
            lost.append((name, kept.may, "stands as", standing))
        doubled += [name] if max(counted.values()) > 1 else []
    assert not lost, f"{len(lost)} acknowledged and gone: {lost[:3]}"
    assert not doubled, f"{len(doubled)} there twice: {doubled[:3]}"


def look_up(
    root: Path, intents: dict[str, dict[str, Any]], acked: dict[str, str], memories: dict[str, Kept]
) -> None:
    """Raises on anything that is lost, doubled or damaged."""
    import cairn

    with cairn.open_blocking(root, background=False, **SETTINGS) as memory:
        for session in sorted({one["session"] for one in intents.values() if one["verb"] == "say"}):
            memory.flush(session)
        memory.quiesce(timeout=120.0)
        assert memory.checkpoints() is not None and memory.log(limit=20) is not None
        troubles = [one for one in memory.doctor() if one.get("level") == "error"]
        assert not troubles, troubles[:3]
        wanted = [one for one in intents.values() if one["verb"] == "say" and one["id"] in acked][-40::4]
        for who, _, text in (one["said"][0] for one in wanted):
            word = first(text)
            found = memory.search(word, user_id=who, method="keyword", consistency="strong")
            assert any(word in hit.text for hit in found.episodes), f"{word} of {who} is not found"
        marks = Counter(one["label"] for one in memory.checkpoints())
        noted = Counter(TOKEN.findall(json.dumps(memory.memories.daily())))
    space = root / "default_app" / "default_project"
    told, facts, kept = (
        _counted(space, pattern)
        for pattern in ("users/*/episodes/*.md", "users/*/.atomic_facts/*.md", "users/*/memories/*.md")
    )
    judge(intents, acked, memories, Found(told, facts, kept, noted, marks))
    forgotten = {word for one in memories.values() if one.gone == "complete" for word in one.ever}
    left = {
        str(path.relative_to(root)): words
        for path in root.rglob("*")
        if path.is_file() and (words := forgotten & set(TOKEN.findall(path.read_bytes().decode("latin-1"))))
    }
    assert not left, f"forgotten with a complete receipt, and still there: {left}"


def _lines(paths: Iterable[Path]) -> Iterator[str]:
    """The whole lines of logs: what a kill has torn is nobody's."""
    for path in paths:
        if path.is_file():
            for line in path.read_text("utf-8").split("\n")[:-1]:
                try:
                    json.loads(line)
                except ValueError:
                    continue
                yield line


def _counted(space: Path, pattern: str) -> Counter[tuple[str, str]]:
    """How many entries of each owner hold each word."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in space.glob(pattern):
        owner = path.relative_to(space).parts[1]
        for entry in ENTRY.findall(path.read_text("utf-8")):
            counts.update((owner, word) for word in set(TOKEN.findall(entry)))
    return counts


def kill(seconds: float, seed: int, wanted: int, *, counting: bool) -> dict[str, int]:
    """Roots of some hundred kills each, `ROOTS_AT_ONCE` side by side, until `wanted` are done or the time is up."""
    warm_up()
    until = time.monotonic() + seconds
    beside = max(1, int(os.environ.get("ROOTS_AT_ONCE") or 1))
    planned = [min(KILLS_A_ROOT, wanted - done) for done in range(0, wanted, KILLS_A_ROOT)]
    total: Counter[str] = Counter()
    alive: dict[int, int] = {}
    while alive or (total["begun"] < len(planned) and (time.monotonic() < until or not total["begun"])):
        while len(alive) < beside and total["begun"] < len(planned):
            back, out = os.pipe()
            pid = os.fork()
            if pid == 0:
                os._exit(
                    _one_root(out, seed + total["begun"], planned[total["begun"]], until, counting=counting)
                )
            os.close(out)
            alive[pid] = back
            total["begun"] += 1
        pid, status = os.wait()
        with os.fdopen(alive.pop(pid), "rb") as told:
            report = told.read()
        for other in alive if status else ():
            os.kill(other, signal.SIGKILL)
        assert status == 0, (
            f"a root lost something or was damaged; see above ({total['kills']} kills in whole roots before)"
        )
        total.update(json.loads(report))
        print(f"product: {total['kills']} kills in {total['roots']} whole roots", file=sys.stderr, flush=True)
    return {**{name: count for name, count in total.items() if name != "begun"}, "seed": seed}


def _one_root(out: int, seed: int, most: int, until: float, *, counting: bool) -> int:
    """Kill on one root, look, and tell the counts; 1 where something was lost."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-kills-", dir=quick_place()))
    killer = Killer(folder / "root", seed, counting=counting)
    seen, begun = 0, time.monotonic()
    try:
        while killer.kills < most and (time.monotonic() < until or not killer.kills):
            killer.round()
            if killer.kills % KILLS_A_GLANCE < CHILDREN:
                killer.glance()
            if killer.kills - seen >= KILLS_A_LOOK:
                killer.look()
                seen = killer.kills
        killer.look()
    except BaseException:
        import traceback

        traceback.print_exc()
        print(f"product: seed {seed}: broke after {killer.kills} kills; {folder} is kept", file=sys.stderr)
        return 1
    shutil.rmtree(folder)  # kept where something was lost
    told = {
        "roots": 1,
        "kills": killer.kills,
        "calls": len(killer.intents),
        "acknowledged": len(killer.acked),
    }
    told |= {"at work": killer.opened, "index removed": killer.removed, "refused": killer.refused}
    told |= {f"by {how}": n for how, n in sorted(killer.kinds.items())}
    print(f"product: seed {seed}: {told}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    os.write(out, json.dumps(told).encode())
    return 0


def quick_place() -> str | None:
    """Memory, where there is such a folder: a kill loses nothing that the kernel has, on no kind of disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def warm_up() -> None:
    """Live once, so that all is imported and compiled; whoever forks has no thread and no open file of it."""
    import cairn.background  # for those who have one

    before = set(os.listdir("/proc/self/fd"))
    with tempfile.TemporaryDirectory(dir=quick_place()) as folder, open(os.devnull, "wb") as out:
        with cairn.open_blocking(Path(folder) / "root", background=False, **SETTINGS) as memory:
            Victim(memory, out.fileno(), random.Random(0), 0).once_each()
    assert len(os.listdir("/proc/self/task")) == 1, "who forks must not have threads"
    assert set(os.listdir("/proc/self/fd")) <= before, "who forks must have nothing open"
    gc.collect()
    gc.freeze()


def built(folder: str) -> str | None:
    """The library that counts and ends; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    made, source = f"{folder}/ending.so", str(Path(__file__).with_name("ending.c"))
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


def run(seconds: float, seed: int) -> dict[str, int]:
    """The same in a process of its own: whoever forks must not have threads."""
    wanted = os.environ.get("KILLS") or "1000000"
    with tempfile.TemporaryDirectory(prefix="cairn-ending-") as folder:
        library = built(folder)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        if library:
            environment["LD_PRELOAD"] = library
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos.product", str(seconds), str(seed), wanted, library or ""],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    assert done.returncode == 0, f"kills of the whole product: SEED={seed}"
    report: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return report


def main() -> None:
    """`python -m tests.chaos.product SECONDS SEED KILLS LIBRARY`"""
    seconds, seed, wanted, library = sys.argv[1:5]
    print(json.dumps(kill(float(seconds), int(seed), int(wanted), counting=bool(library))))


if __name__ == "__main__":
    main()
