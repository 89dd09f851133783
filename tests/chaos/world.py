"""The whole product under fire: real processes on one root, a person at the files, and a model of what must be true.

Workers (the public Python API) and an HTTP server share one root. A schedule made from the seed tells them to
add, flush, remember, search and rebuild; a person edits, moves, deletes and restores notes meanwhile; `.index`
vanishes; any process is killed -9 at any instant and started again. After each epoch and at the end:

- every acknowledged message stands in exactly one episode of its sender, and at most once in anybody's;
- every acknowledged memory is there exactly once, under its own words or those it was merged with;
- notes that rest are byte for byte what the person last left there; what was deleted stays deleted;
- a strong search finds each word where it stands, and nowhere else: no other owner, app or project;
- `get` counts what the files hold, and the index equals one made anew;
- nobody saw an error, and no process wrote a traceback.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.surfaces.served import free_port

SPACES = (("default", "default"), ("shop", "web"))
USERS = ("u0", "u1", "u2")
DAY_MS = 86_400_000
FIRST_DAY = 1_780_272_000_000  # 2026-06-01T00:00Z
SETTINGS: dict[str, Any] = {
    "embedding__provider": "hashing",
    "capture__max_messages": 6,
    "index__scan_seconds": 2.0,
}
STEPS_PER_EPOCH = 45
PATIENCE = 120.0
TOKEN = re.compile(r"\bzq[a-z]{6}\b")
ENTRY = re.compile(r"<!-- entry:\S+ -->.*?<!-- /entry:\S+ -->\n", re.DOTALL)
ANSWER = dict[str, Any]


class Violation(AssertionError):
    """A promise was broken."""


# ---------------------------------------------------------------- the processes


def _redirect(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    os.close(file)


def work(root: str, log: str, orders: Connection) -> None:
    """A worker: opens the root, then does as it is told from several threads until it is killed."""
    _redirect(log)
    import cairn

    guard = threading.Lock()

    def answer(number: int, ok: bool, value: Any) -> None:
        with guard, suppress(OSError):
            orders.send((number, ok, value))

    with cairn.open_blocking(root, **SETTINGS) as memory, ThreadPoolExecutor(3) as pool:

        def do(number: int, verb: str, order: dict[str, Any]) -> None:
            try:
                answer(number, True, VERBS[verb](memory, **order))
            except BaseException as error:
                answer(number, False, (type(error).__name__, str(error)))

        answer(0, True, "ready")
        while True:
            try:
                number, verb, order = orders.recv()
            except (EOFError, OSError):
                return
            if verb == "stop":
                return
            pool.submit(do, number, verb, order)


def serve(root: str, log: str, port: int) -> None:
    """The HTTP server, as `cairn server start` runs it."""
    _redirect(log)
    from cairn.config import load
    from cairn.surfaces.http import serve as run_server

    run_server(load(root, server__port=port, **SETTINGS))


def _add(memory: Any, session: str, messages: list[ANSWER], space: list[str], **more: Any) -> ANSWER:
    done = memory.add(session, messages, *space, **more)
    return {"status": done.status}


def _flush(memory: Any, session: str, space: list[str]) -> ANSWER:
    return {"status": memory.flush(session, *space).status}


def _remember(memory: Any, content: str, space: list[str], owner: str) -> ANSWER:
    from cairn.types import Space

    verdict = memory.parts.keeper.remember(
        content, space=Space(*space), scope="user", owner=owner, gated=False
    )
    return {"accepted": verdict.accepted, "reason": verdict.reason}


def _search(memory: Any, query: str, owner: str, space: list[str], **more: Any) -> list[tuple[str, str]]:
    found = memory.search(
        query, user_id=owner, app_id=space[0], project_id=space[1], method="keyword", top_k=50, **more
    )
    return [(hit.path, _text(hit)) for hit in (*found.episodes, *found.memories)]


def _text(hit: Any) -> str:
    return hit.text if hasattr(hit, "text") else str(hit.fields)


def _count(memory: Any, owner: str, space: list[str]) -> int:
    return int(
        memory.get(
            "episode", user_id=owner, app_id=space[0], project_id=space[1], page_size=1, consistency="strong"
        ).total_count
    )


VERBS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "flush": _flush,
    "remember": _remember,
    "search": _search,
    "count": _count,
    "rebuild": lambda memory: memory.rebuild(),
    "status": lambda memory: memory.index_status()["state"],
    "doctor": lambda memory: [row for row in memory.doctor() if row["level"] == "fail"],
}


class Worker:
    """A process of the Python API and what it still owes an answer for."""

    verbs = frozenset(VERBS)

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(str(world.root), str(world.log), theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self._sending = threading.Lock()
        self.ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def send(self, number: int, verb: str, order: dict[str, Any]) -> None:
        with self._sending, suppress(OSError):
            self._pipe.send((number, verb, order))

    def _listen(self) -> None:
        while True:
            try:
                number, ok, value = self._pipe.recv()
            except (EOFError, OSError, ValueError):
                self._world.is_gone(self)
                return
            except Exception:  # an answer cut in two by the kill
                self._world.is_gone(self)
                return
            if number == 0:
                self.ready.set()
            else:
                self._world.answered(number, ok, value)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._listener.join(10)

    def stop(self) -> None:
        self.send(0, "stop", {})
        self.process.join(60)
        if self.process.exitcode is None:
            self.kill()
            raise Violation(f"{self.name} did not stop within 60 s")
        self._listener.join(10)


class Server:
    """The HTTP server; each order is one request on a connection of its own."""

    verbs = frozenset({"add", "flush", "search"})

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self.port = free_port()
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(
            target=serve, args=(str(world.root), str(world.log), self.port), daemon=True
        )
        self.process.start()
        self._pool = ThreadPoolExecutor(4)
        self.ready = threading.Event()
        self._pool.submit(self._await)

    def _await(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.is_alive():
            with suppress(OSError, http.client.HTTPException):
                if self._call("GET", "/health", None)[0] == 200:
                    self.ready.set()
                    return
            time.sleep(0.02)

    def _call(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(
                method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def send(self, number: int, verb: str, order: dict[str, Any]) -> None:
        self._pool.submit(self._do, number, verb, order)

    def _do(self, number: int, verb: str, order: dict[str, Any]) -> None:
        if not self.ready.wait(PATIENCE / 2):
            self._world.answered(number, None, "not up")
            return
        body = {"app_id": order["space"][0], "project_id": order["space"][1]}
        if verb == "search":
            body |= {"query": order["query"], "user_id": order["owner"], "method": "keyword", "top_k": 50}
            body |= {"consistency": order.get("consistency", "eventual")}
        else:
            body |= {"session_id": order["session"]}
            if verb == "add":
                body |= {name: order[name] for name in order if name not in {"session", "space"}}
        try:
            status, answer = self._call("POST", f"/api/v1/memory/{verb}", body)
        except (OSError, http.client.HTTPException, ValueError):
            self._world.answered(number, None, "connection lost")
            return
        if status >= 300:
            self._world.answered(number, False, (f"HTTP {status}", json.dumps(answer)[:300]))
        elif verb == "search":
            lists = [*answer["data"]["episodes"], *answer["data"]["memories"]]
            self._world.answered(number, True, [("", json.dumps(hit)) for hit in lists])
        else:
            self._world.answered(number, True, answer["data"])

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.ready.set()  # nobody need wait for it any longer: what is asked of it now is refused
        self._pool.shutdown(wait=True)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(60)
        if self.process.exitcode is None:
            self.kill()
            raise Violation("the server did not stop within 60 s of SIGTERM")
        self._pool.shutdown(wait=True)


# ---------------------------------------------------------------- the model


@dataclass
class Order:
    """Something asked of a process. `fate`: open, done, unknown (the process died) or failed."""

    number: int
    verb: str
    order: dict[str, Any]
    actor: Any
    fate: str = "open"
    answer: Any = None
    expects: Callable[[Any], None] | None = None
    again: bool = False


@dataclass
class Model:
    """What was said and done, and to whom it must be visible."""

    said: dict[str, tuple[tuple[str, str], str, str, str]] = field(
        default_factory=dict
    )  # token: space, sender, role, session
    kept: set[str] = field(default_factory=set)
    facts: dict[str, tuple[tuple[str, str], str, str]] = field(
        default_factory=dict
    )  # token: space, owner, words
    facts_kept: set[str] = field(default_factory=set)
    facts_gone: set[str] = field(default_factory=set)
    resting: dict[str, bytes] = field(default_factory=dict)  # path: what the person last left there
    deleted: dict[str, bytes] = field(default_factory=dict)


class World:
    """One root, its processes, the person, and the model."""

    def __init__(self, folder: Path, seed: int, *, workers: int = 3) -> None:
        self.root = folder / "root"
        self.log = folder / "stderr.log"
        self.folder = folder
        self.rng = random.Random(seed)
        self.model = Model()
        self.orders: dict[int, Order] = {}
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.epoch = 0
        self._numbers = iter(range(1, 10**9))
        self._words = iter(_words())
        self._changed = threading.Condition()
        self._versions: Counter[str] = Counter()
        self.began = time.monotonic()
        self.story: deque[str] = deque(maxlen=60)  # what happened last, told with a violation
        self.edited: dict[str, list[str]] = {}  # lines of the person in notes that do not rest yet
        self.actors: list[Any] = [Worker(self, f"worker{n}") for n in range(workers)]
        self.actors.append(Server(self, "server"))

    # ---- asking

    def ask(
        self, actor: Any, verb: str, order: dict[str, Any], expects: Callable[[Any], None] | None = None
    ) -> Order:
        asked = Order(next(self._numbers), verb, order, actor, expects=expects)
        with self._changed:
            self.orders[asked.number] = asked
            told = {key: value for key, value in order.items() if key != "messages"}
            self.story.append(
                f"{time.monotonic() - self.began:.3f} ask {asked.number} {verb} {actor.name} {told}"
            )
        actor.send(asked.number, verb, order)
        return asked

    def answered(self, number: int, ok: bool | None, value: Any) -> None:
        with self._changed:
            asked = self.orders[number]
            if asked.fate != "open":
                return
            asked.answer = value
            self.story.append(f"{time.monotonic() - self.began:.3f} answer {number} {ok} {str(value)[:120]}")
            asked.fate = "unknown" if ok is None else "done" if ok else "failed"
            if ok:
                self._note(asked)
            elif ok is False and not _is_named(asked.verb, value):
                self.errors.append(f"{asked.verb} through {asked.actor.name}: {value[0]}: {value[1][:300]}")
            self._changed.notify_all()

    def is_gone(self, actor: Any) -> None:
        """Whatever a dead process still owed may have happened or not."""
        with self._changed:
            for asked in self.orders.values():
                if asked.actor is actor and asked.fate == "open":
                    asked.fate = "unknown"
            self._changed.notify_all()

    def _note(self, asked: Order) -> None:
        self.counts[asked.verb] += 1
        if asked.verb == "add":
            self.model.kept.update(TOKEN.findall(json.dumps(asked.order["messages"])))
        elif asked.verb == "remember" and asked.answer["accepted"]:
            self.model.facts_kept.update(TOKEN.findall(asked.order["content"]))
        if asked.expects is not None:
            try:
                asked.expects(asked.answer)
            except Violation as broken:
                self.errors.append(str(broken))

    def wait(self) -> None:
        """Until nothing is under way."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: all(one.fate != "open" for one in self.orders.values()), PATIENCE
            ):
                late = [f"{one.verb}@{one.actor.name}" for one in self.orders.values() if one.fate == "open"]
                raise Violation(f"no answer within {PATIENCE:g} s: {late[:5]}")
        self.check_errors()

    def check_errors(self) -> None:
        if self.errors:
            raise Violation("; ".join(self.errors[:3]))

    def throttle(self, most: int = 10) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: sum(one.fate == "open" for one in self.orders.values()) < most, PATIENCE
            )

    # ---- one step of the schedule

    def step(self) -> None:
        self.throttle()
        choice = self.rng.random()
        for share, act in (
            (0.40, self.add), (0.12, self.flush), (0.10, self.remember), (0.10, self.search), (0.10, self.edit),
            (0.03, self.take_out_entry), (0.02, self.move), (0.02, self.delete), (0.02, self.restore),
            (0.01, self.rebuild), (0.02, self.lose_index), (0.06, self.kill),
        ):  # fmt: skip
            if choice < share:
                act()
                break
            choice -= share
        if self.rng.random() < 0.3:
            time.sleep(self.rng.random() * 0.03)
        self.check_errors()

    def some_actor(self, verb: str) -> Any:
        return self.rng.choice([actor for actor in self.actors if verb in actor.verbs])

    def add(self) -> None:
        space, session = self.rng.choice(SPACES), f"s{self.epoch}-{self.rng.randrange(4)}"
        at = FIRST_DAY + self.epoch * DAY_MS + 36_000_000 + len(self.model.said) * 1000
        messages = []
        for _ in range(self.rng.randint(1, 3)):
            token = next(self._words)
            role = "user" if self.rng.random() < 0.75 else "assistant"
            sender = self.rng.choice(USERS) if role == "user" else "bot"
            self.model.said[token] = (space, sender, role, session)
            text = f"The {self.rng.choice(_NOUNS)} called {token} is in the {self.rng.choice(_NOUNS)}."
            messages.append({"sender_id": sender, "role": role, "timestamp": at, "content": text})
        order: dict[str, Any] = {"session": session, "messages": messages, "space": list(space)}
        if self.rng.random() < 0.4:
            order["idempotency_key"] = f"key-{token}"
        if self.rng.random() < 0.2:
            order["defer_extraction"] = True
        self.ask(self.some_actor("add"), "add", order)

    def flush(self) -> None:
        space, session = self.rng.choice(SPACES), f"s{self.epoch}-{self.rng.randrange(4)}"
        self.ask(self.some_actor("flush"), "flush", {"session": session, "space": list(space)})

    def remember(self) -> None:
        known = sorted(self.model.facts)
        if known and self.rng.random() < 0.25:
            token = known[self.rng.randrange(len(known))]
            if token in self.model.facts_gone:
                return
        else:
            token = next(self._words)
            words = " ".join(
                "".join(self.rng.choice("abcdefghiklmnoprstuvw") for _ in range(7)) for _ in range(6)
            )
            self.model.facts[token] = (
                self.rng.choice(SPACES), self.rng.choice(USERS), f"{words} {token}"
            )  # fmt: skip
        space, owner, words = self.model.facts[token]
        order = {"content": words, "space": list(space), "owner": owner}
        self.ask(self.some_actor("remember"), "remember", order)

    def search(self) -> None:
        """A word that rests: strong, it must be found where it is, and never by somebody else."""
        resting = sorted(self.model.resting)
        strong = self.rng.random() < 0.5
        if not resting:
            self.ask(
                self.some_actor("search"),
                "search",
                {"query": "lantern", "owner": "u0", "space": list(SPACES[0])},
            )
            return
        path = self.rng.choice(resting)
        blocks = ENTRY.findall(self.model.resting[path].decode())  # a line outside any entry belongs to none
        tokens = sorted(set(TOKEN.findall("".join(blocks))))
        if not tokens:
            return
        token, (space, owner) = self.rng.choice(tokens), _whose(path)
        version = self._versions[path]
        stranger = self.rng.random() < 0.3
        if stranger:
            space = SPACES[1 - SPACES.index(space)]

        def check(hits: list[tuple[str, str]]) -> None:
            found = [place for place, text in hits if token in text]
            if stranger and found:
                raise Violation(f"{token} of {path} was found in {space}: {found}")
            if not stranger and strong and not found and self._versions[path] == version:
                raise Violation(f"{token} stands in {path}, but a strong search does not find it: {hits[:3]}")

        order = {"query": token, "owner": owner, "space": list(space)}
        if strong:
            order["consistency"] = "strong"
        self.ask(self.some_actor("search"), "search", order, check)

    def rebuild(self) -> None:
        self.ask(self.some_actor("rebuild"), "rebuild", {})

    def lose_index(self) -> None:
        self.story.append(f"{time.monotonic() - self.began:.3f} .index removed")
        for _ in range(3):
            shutil.rmtree(self.root / ".index", ignore_errors=True)
        self.counts["index lost"] += 1

    def kill(self) -> None:
        """One process dies at once; another of its kind takes its place, and half of what it owed is asked again."""
        place = self.rng.randrange(len(self.actors))
        victim = self.actors[place]
        if self.rng.random() < 0.7:
            victim.ready.wait(PATIENCE)
        time.sleep(self.rng.random() * 0.05)
        self.story.append(f"{time.monotonic() - self.began:.3f} kill {victim.name}")
        victim.kill()
        self.is_gone(victim)
        self.counts["kills"] += 1
        self.actors[place] = type(victim)(self, victim.name)
        with self._changed:
            owed = [
                one
                for one in self.orders.values()
                if one.fate == "unknown" and not one.again and one.verb in {"add", "remember"}
            ]
        for one in owed:
            one.again = True
            if self.rng.random() < 0.7:
                self.ask(self.some_actor(one.verb), one.verb, one.order)

    # ---- the person at the files

    def _episode_files(self) -> list[str]:
        return sorted(
            path.relative_to(self.root).as_posix() for path in self.root.glob("*/*/users/*/episodes/*.md")
        )

    @contextmanager
    def _touching(self, *paths: str) -> Iterator[None]:
        """A search that was under way at any moment of this change may have seen the file before or after it."""
        self._versions.update(paths)
        try:
            yield
        finally:
            self._versions.update(paths)
            self.story.append(f"{time.monotonic() - self.began:.3f} touched {', '.join(paths)}")

    def _save(self, path: str, change: Callable[[str], str]) -> str:
        """Save as a careful editor does: not over a file that changed since it was opened, and with no lock of ours."""
        from cairn.engines.files import DeviceLocalBackend
        from cairn.errors import Conflict
        from cairn.seams import Locator

        files, at = DeviceLocalBackend(self.root), Locator(path)
        while True:
            text, version = files.read_version(at)
            new = change(text)
            with suppress(Conflict), self._touching(path):
                files.write(at, new, expect=version)
                return new

    def edit(self) -> None:
        """A line is added to an entry, often of a note that is being written to just now."""
        files = self._episode_files()
        if not files:
            return
        path = files[-1 - min(int(self.rng.expovariate(0.5)), len(files) - 1)]
        token, which = next(self._words), self.rng.random()

        def change(text: str) -> str:
            ends = re.findall(r"<!-- /entry:\S+ -->", text)
            if not ends:  # every entry was taken out meanwhile
                return text + f"\nSeen by hand: {token}.\n"
            end = ends[int(which * len(ends))]
            return text.replace(end, f"Seen by hand: {token}.\n{end}", 1)

        new = self._save(path, change)
        self.counts["edits"] += 1
        if path in self.model.resting:
            self.model.resting[path] = new.encode()
        else:
            self.edited.setdefault(path, []).append(token)

    def _resting(self) -> str | None:
        resting = sorted(self.model.resting)
        return self.rng.choice(resting) if resting else None

    def take_out_entry(self) -> None:
        path = self._resting()
        if path is None:
            return
        which = self.rng.random()

        def change(text: str) -> str:
            blocks = ENTRY.findall(text)
            return text.replace(blocks[int(which * len(blocks))], "", 1) if blocks else text

        self.model.resting[path] = self._save(path, change).encode()
        self.counts["entries taken out"] += 1

    def move(self) -> None:
        path = self._resting()
        if path is None:
            return
        _, owner = _whose(path)
        target = path.replace(f"/users/{owner}/", f"/users/{owner}-moved/")
        if (self.root / target).exists() or owner.endswith("-moved") or target in self.model.deleted:
            return
        (self.root / target).parent.mkdir(parents=True, exist_ok=True)
        with self._touching(path, target):
            (self.root / path).rename(self.root / target)
        self.model.resting[target] = self.model.resting.pop(path)
        self.model.deleted[path] = b""
        self.counts["moves"] += 1

    def delete(self) -> None:
        path = self._resting()
        if path is None or self.rng.random() < 0.3:
            return
        with self._touching(path):
            (self.root / path).unlink()
        self.model.deleted[path] = self.model.resting.pop(path)
        self.counts["deletes"] += 1

    def restore(self) -> None:
        copies = sorted(path for path, data in self.model.deleted.items() if data)
        if not copies:
            return
        path = self.rng.choice(copies)
        data = self.model.deleted.pop(path)
        with self._touching(path):
            (self.root / path).write_bytes(data)
            if self.rng.random() < 0.5:
                os.utime(self.root / path, (1_700_000_000, 1_700_000_000))
        self.model.resting[path] = data
        self.counts["restores"] += 1

    # ---- checking

    def settle(self) -> None:
        """Let everything finish, check this epoch's words, and let its notes rest."""
        self.wait()
        fresh = Worker(self, "finisher")
        if not fresh.ready.wait(PATIENCE):
            raise Violation("a fresh process did not open the root")
        for space in SPACES:
            for number in range(4):
                self.ask(fresh, "flush", {"session": f"s{self.epoch}-{number}", "space": list(space)})
        self.wait()
        self._check_words()
        self._check_facts()
        self._check_resting()
        self._check_reading(fresh)
        fresh.stop()
        day = time.strftime("%Y-%m-%d", time.gmtime(FIRST_DAY / 1000 + self.epoch * 86400))
        for path in self._episode_files():
            if path.endswith(f"episode-{day}.md") and path not in self.model.resting:
                self.model.resting[path] = (self.root / path).read_bytes()
        self.edited = {}
        self.epoch += 1

    def _episodes(self) -> Iterator[tuple[str, Any]]:
        from cairn.notes.kinds import KINDS

        for path in self._episode_files():
            note = KINDS["episode"].parse((self.root / path).read_text(encoding="utf-8"))
            if note.problems:
                raise Violation(f"{path}: {note.problems[:2]}")
            for entry in note.entries:
                yield path, entry

    def _check_words(self) -> None:
        stands: dict[str, Counter[str]] = defaultdict(Counter)
        hand: Counter[tuple[str, str]] = Counter()
        for path, entry in self._episodes():
            for token in TOKEN.findall(entry.sections.get("Content", "")):
                stands[token][path] += 1
                hand[path, token] += 1
        for token, (space, sender, role, session) in self.model.said.items():
            if not session.startswith(f"s{self.epoch}-"):
                continue
            places = stands.get(token, Counter())
            twice = {path: times for path, times in places.items() if times > 1}
            if twice:
                raise Violation(f"{token} is doubled: {twice}")
            if any(_whose(path)[0] != space for path in places):
                raise Violation(f"{token} of {space} stands in {sorted(places)}")
            if token in self.model.kept:
                owners = {_whose(path)[1] for path in places}
                if role == "user" and sender not in owners:
                    raise Violation(
                        f"acknowledged {token} of {sender} is in no episode of {sender}: {sorted(places)}"
                    )
                if not places and not self._stands_with_agent(token):
                    raise Violation(f"acknowledged {token} ({role} in {space} {session}) is in no episode")
        for path, tokens in self.edited.items():
            for token in tokens:
                if hand[path, token] != 1:
                    raise Violation(f"a person's line {token} stands {hand[path, token]} times in {path}")

    def _stands_with_agent(self, token: str) -> bool:
        return any(
            token in path.read_text(encoding="utf-8") for path in self.root.glob("*/*/agents/*/episodes/*.md")
        )

    def _check_facts(self) -> None:
        stands: Counter[str] = Counter()
        for path in self.root.glob("*/*/users/*/memories/*.md"):
            stands.update(TOKEN.findall(path.read_text(encoding="utf-8")))
        for token in self.model.facts:
            if stands[token] > 1 or (token in self.model.facts_kept and stands[token] != 1):
                raise Violation(f"memory {token} stands {stands[token]} times")

    def _check_resting(self) -> None:
        for path, data in self.model.resting.items():
            found = (self.root / path).read_bytes() if (self.root / path).exists() else b""
            if found != data:
                raise Violation(f"{path} rested with {len(data)} bytes and has {len(found)} now")
        for path in self.model.deleted:
            if (self.root / path).exists():
                raise Violation(f"{path} was deleted or moved away and is back")

    def _check_reading(self, actor: Worker) -> None:
        """Every owner's count, and a sample of words from everybody's point of view."""
        files: Counter[tuple[tuple[str, str], str]] = Counter()
        words: dict[str, set[tuple[tuple[str, str], str]]] = defaultdict(set)
        for path, entry in self._episodes():
            files[_whose(path)] += 1
            for token in TOKEN.findall(entry.sections.get("Content", "")):
                words[token].add(_whose(path))
        views = {(space, user) for space in SPACES for user in USERS} | set(files)
        for space, owner in sorted(views):
            expected = files[space, owner]

            def check(total: int, expected: int = expected, who: object = (space, owner)) -> None:
                if total != expected:
                    raise Violation(f"get counts {total} episodes of {who}; the files hold {expected}")

            self.ask(actor, "count", {"owner": owner, "space": list(space)}, check)
        sample = self.rng.sample(sorted(words), min(len(words), 12))
        sample += [token for token in self._gone_words() if token not in words][:4]
        for token in sample:
            for space, owner in sorted(views):

                def sees(
                    hits: list[tuple[str, str]],
                    token: str = token,
                    who: tuple[tuple[str, str], str] = (space, owner),
                ) -> None:
                    found = any(token in text for _, text in hits)
                    if found != (who in words.get(token, set())):
                        raise Violation(
                            f"{token}: {who} {'sees' if found else 'does not see'} it; it stands with {words.get(token)}"
                        )

                order = {"query": token, "owner": owner, "space": list(space), "consistency": "strong"}
                self.ask(actor, "search", order, sees)
                self.throttle(6)
        self.wait()

    def _gone_words(self) -> list[str]:
        return sorted(
            {token for data in self.model.deleted.values() for token in TOKEN.findall(data.decode())}
        )

    def finish(self) -> None:
        """After the last epoch: everybody stops, the index equals one made anew, no process complained."""
        for actor in self.actors:
            if not actor.ready.wait(PATIENCE):
                raise Violation(f"{actor.name} did not come up")
            actor.stop()
        from tests.world import Indexed

        kept = Indexed(self.root)
        kept.waits.catch_up(60)
        anew = Indexed(self.root, index_dir=self.folder / "anew")
        anew.waits.catch_up(60)
        rows = [
            sorted(
                (r.path, str(r.scope), r.entry_id, r.kind, r.text, r.content_sha256) for r in one.all_rows()
            )
            for one in (kept, anew)
        ]
        kept.close()
        anew.close()
        if rows[0] != rows[1]:
            only = [sorted(set(a) - set(b))[:3] for a, b in (rows, rows[::-1])]
            raise Violation(f"the index differs from one made anew: only kept {only[0]}, only anew {only[1]}")
        self.counts["rows"] = len(rows[0])
        left = [path for path in (self.root).rglob("*") if ".tmp-" in path.name]
        self.counts["leftovers"] = len(left)
        if self.log.exists() and "Traceback" in (told := self.log.read_text(errors="replace")):
            raise Violation("a process wrote a traceback: " + told[told.index("Traceback") :][:3000])

    def close(self) -> None:
        for actor in self.actors:
            with suppress(Exception):
                actor.kill()


def _whose(path: str) -> tuple[tuple[str, str], str]:
    app, project, _, owner = path.split("/")[:4]
    return (app.removesuffix("_app"), project.removesuffix("_project")), owner


def _is_named(verb: str, value: Any) -> bool:
    """Errors a caller may meet here: a rebuild that another process is still making."""
    return verb == "rebuild" and value[0] == "Unavailable"


_NOUNS = ("lantern", "boat", "kettle", "orchard", "ladder", "station", "violin", "cellar", "harbour", "attic")


def _words() -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    number = 0
    while True:
        rest, word = number * 7919 + 13, ""
        for _ in range(6):
            rest, letter = divmod(rest, 26)
            word += letters[letter]
        number += 1
        yield f"zq{word}"


def one_world(
    folder: Path, seed: int, *, epochs: int, steps: int = STEPS_PER_EPOCH, workers: int = 3
) -> dict[str, int]:
    """Run one schedule. Raises `Violation`, telling the seed."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["cairn.memory", "cairn.aio", "cairn.surfaces.http", "tests.chaos.world", "numpy", "uvicorn"]
    )
    world = World(folder, seed, workers=workers)
    try:
        for _ in range(epochs):
            for _ in range(steps):
                world.step()
            world.settle()
        world.finish()
    except BaseException as error:
        error.add_note("\n".join(["The last events:", *world.story.copy()]))
        error.add_note(
            f"Replay this world, which broke in epoch {world.epoch}: PART=world SEED={seed} CHAOS_SECONDS=1 make chaos"
        )
        if os.environ.get("CHAOS_KEEP"):
            world.close()
            shutil.copytree(folder, Path(os.environ["CHAOS_KEEP"]), dirs_exist_ok=True)
        raise
    finally:
        world.close()
    return dict(world.counts)


def run(seconds: float, seed: int) -> dict[str, int]:
    """Worlds of four epochs, one after another, until the time is up; at least one."""
    until = time.monotonic() + seconds
    total: Counter[str] = Counter()
    while not total["worlds"] or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-", ignore_cleanup_errors=True) as folder:
            total.update(one_world(Path(folder), seed + total["worlds"], epochs=4))
        total["worlds"] += 1
    return dict(total)
