"""A disk that refuses and a clock that jumps: named errors, the old state intact, and work goes on afterwards (P9).

System calls of the file engines fail by schedule (full, broken, read-only, short, done-but-reported-broken,
slow) under a whole open root. After every refusal the notes and logs are looked at, the faults are switched off,
and the very same call must succeed. In the end every acknowledged word is there exactly once.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from cairn.config import load
from cairn.errors import CairnError
from cairn.notes.kinds import place_of
from cairn.parts import Parts
from cairn.seams import Locator, SystemClock
from cairn.talk.sessions import SessionLog, session_locator
from cairn.testing.faults import Faults, JumpingClock, faulty_disk
from cairn.types import Message, Space
from tests.chaos.world import FIRST_DAY, TOKEN, USERS, Violation, _words

SPACE = Space()
CALLS = 40


def _notes(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in root.glob("*/*/*/**/*.md")
    }


def _ids(notes: dict[str, str]) -> dict[str, list[str]]:
    found = {}
    for key, text in notes.items():
        place = place_of(Locator(key))
        if place is None:
            continue
        note = place.kind.parse(text)
        if note.problems:
            raise Violation(f"{key} is damaged: {note.problems[:2]}")
        found[key] = [entry.id for entry in note.entries]
    return found


class Trial:
    """One root, its faults, and what was promised."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        share = self.rng.choice([0.02, 0.1, 0.3])
        self.faults = Faults.at_random(seed, share)
        self.faults.is_on = False
        jumps = random.Random(seed + 1)
        clock = JumpingClock(SystemClock(), lambda _: timedelta(hours=jumps.uniform(-60, 60)))
        settings = load(root, environ={}, embedding__provider="none", capture__max_messages=5)
        self.parts: Parts = Parts(settings, clock=clock)
        self.words = _words()
        self.said: dict[str, str] = {}
        self.kept: set[str] = set()
        self.facts: set[str] = set()
        self.counts: Counter[str] = Counter()

    def call(self) -> tuple[Callable[[], Any], Callable[[], None]]:
        """A call, and what is true once it was answered."""
        choice = self.rng.random()
        if choice < 0.6:
            tokens = [next(self.words) for _ in range(self.rng.randint(1, 3))]
            session = f"s{self.rng.randrange(2)}"
            batch = [
                Message(
                    self.rng.choice(USERS), "user", FIRST_DAY + len(self.said) * 1000 + n, f"A boat, {token}."
                )
                for n, token in enumerate(tokens)
            ]
            self.said |= dict.fromkeys(tokens, session)
            defer = self.rng.random() < 0.2
            return lambda: self.parts.capture.add(
                SPACE, session, batch, defer=defer
            ), lambda: self.kept.update(tokens)
        if choice < 0.75:
            session = f"s{self.rng.randrange(2)}"
            return lambda: self.parts.capture.flush(SPACE, session), lambda: None
        token = next(self.words)
        words = " ".join("".join(self.rng.choice("abcdefghik") for _ in range(8)) for _ in range(5))

        def remember() -> Any:
            return self.parts.keeper.remember(
                f"{words} {token}", space=SPACE, scope="user", owner="u0", gated=False
            )

        return remember, lambda: self.facts.add(token)

    def step(self) -> None:
        work, promised = self.call()
        before = _ids(_notes(self.root))
        logs = {s: len(self._log(s).messages) for s in ("s0", "s1")}
        self.faults.is_on = self.rng.random() < 0.7
        try:
            work()
            promised()
            self.counts["answered"] += 1
        except CairnError as error:
            if not str(error).strip():
                raise Violation(f"{type(error).__name__} says nothing") from error
            self.counts["refused"] += 1
            self.faults.is_on = False
            self._is_intact(before, logs)
            work()
            promised()
            self.counts["answered"] += 1
        except Exception as error:
            raise Violation(f"a bare {type(error).__name__} came out: {error}") from error
        finally:
            self.faults.is_on = False

    def _log(self, session: str) -> Any:
        return SessionLog(self.parts.journals).load(session_locator(SPACE, session))

    def _is_intact(self, before: dict[str, list[str]], logs: dict[str, int]) -> None:
        after = _ids(_notes(self.root))
        for key, ids in before.items():
            if after.get(key, [])[: len(ids)] != ids:
                raise Violation(f"a refused call took entries from {key}: {ids} became {after.get(key)}")
        for session, count in logs.items():
            log = self._log(session)
            if len(log.messages) < count or log.skipped_lines:
                raise Violation(f"a refused call hurt the log of {session}")

    def finish(self) -> dict[str, int]:
        """Everything that was promised is there once, and can be found."""
        self.parts.capture.recover(everywhere=True)
        for session in ("s0", "s1"):
            self.parts.capture.flush(SPACE, session)
        stands: Counter[tuple[str, str]] = Counter()
        for key, text in _notes(self.root).items():
            place = place_of(Locator(key))
            if place is not None and place.kind.name == "episode":
                for entry in place.kind.parse(text).entries:
                    stands.update((key, token) for token in TOKEN.findall(entry.sections["Content"]))
        memories = Counter(
            token
            for path in self.root.glob("*/*/users/*/memories/*.md")
            for token in TOKEN.findall(path.read_text(encoding="utf-8"))
        )
        doubled = [where for where, times in stands.items() if times > 1]
        doubled += [token for token, times in memories.items() if times > 1]
        present = {token for _, token in stands}
        lost = (self.kept - present) | (self.facts - set(memories))
        if doubled or lost:
            raise Violation(f"doubled {doubled[:3]}, lost {sorted(lost)[:3]}")
        state = self.parts.waits.catch_up(30).state
        if state != "fresh":
            raise Violation(f"the index is {state}")
        self.counts["faults"] = len(self.faults.seen)
        return dict(self.counts)


def one_trial(root: Path, seed: int, calls: int = CALLS) -> dict[str, int]:
    """Run one schedule of faults. Raises `Violation`, telling the seed."""
    try:
        trial = Trial(root, seed)
        try:
            with faulty_disk(trial.faults):
                for _ in range(calls):
                    trial.step()
            return trial.finish()
        finally:
            with suppress(CairnError):
                trial.parts.close()
    except Exception as error:
        error.add_note(f"Replay this trial: PART=faults SEED={seed} CHAOS_SECONDS=1 make chaos")
        raise


def run(seconds: float, seed: int) -> dict[str, int]:
    """Trials until the time is up; at least three."""
    until = time.monotonic() + seconds
    total: Counter[str] = Counter()
    while total["trials"] < 3 or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            total.update(one_trial(Path(folder) / "root", seed + total["trials"]))
        total["trials"] += 1
    if not total["refused"]:
        raise Violation("no call was ever refused: the faults did not reach the disk")
    return dict(total)
