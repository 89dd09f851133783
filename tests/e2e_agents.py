"""The real Claude Code and Codex with this memory: part of `make e2e`, or `python -m tests.e2e_agents`.

Each in a home of its own, with a stand-in for its model on a loopback port: install the plugin; tell a fact; a session in
another clone is asked, and its request holds the fact; compaction; a killed session; two sessions at once; uninstall.
A host whose binary cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from cairn.agents import link
from cairn.engines import spool
from tests.agent_hosts import Host, Missing, StandIn, binary, stand_in
from tests.waiting import until

ROOT = Path(__file__).parent.parent
INSTALL = {"claude": ("install", "uninstall"), "codex": ("add", "remove")}


def clones(at: Path) -> tuple[Path, Path]:
    """Two clones of one repository."""
    origin = at / "origin"
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    subprocess.run(["git", "init", "-q", str(origin)], check=True)
    subprocess.run(
        ["git", *identity, "commit", "-q", "--allow-empty", "-m", "feat: begin"], cwd=origin, check=True
    )
    for name in ("one", "two"):
        subprocess.run(["git", "clone", "-q", str(origin), str(at / name)], check=True)
    return at / "one", at / "two"


class Story:
    """What happens to one host, step by step."""

    def __init__(self, host: Host, model: StandIn, at: Path) -> None:
        self.host = host
        self.model = model
        self.root = host.home / "memory"
        self.one, self.two = clones(at)

    def steps(self) -> dict[str, Callable[[], str]]:
        return {
            "install the plugin": self.install,
            "a fact told in one clone is asked for in another": self.told,
            "compaction": self.compaction,
            "a killed session": self.killed,
            "two sessions at once": self.at_once,
            "uninstall": self.uninstall,
        }

    def install(self) -> str:
        self.host.run("plugin", "marketplace", "add", str(ROOT), cwd=self.one)
        self.host.run("plugin", INSTALL[self.host.name][0], "cairn@cairn", cwd=self.one)
        return ""

    def told(self) -> str:
        self.host.ask("The staging database is called heron and rotates its password on Mondays.", self.one)
        self.settle("when does heron rotate its password", "Mondays")
        self.ask("When does heron rotate its password?", self.two, "heron and rotates")
        return ""

    def compaction(self) -> str:
        before = self.kept()
        if self.host.name == "claude":
            self.host.run("-p", "--continue", "/compact", cwd=self.two)
            said = 0
        else:  # it has no command for it: a small limit makes it compact before the next prompt
            words = self.host.words("And on which port does heron listen?")[2:]
            limit = ["-c", "model_auto_compact_token_limit=10"]
            told = self.host.run("exec", "resume", "--last", *limit, *words, cwd=self.two)
            assert "context compacted" in told.stdout + told.stderr
            said = 2
        until(lambda: not list(spool.waiting(self.root)))
        assert self.kept() == before + said, "compaction added messages"
        return ""

    def killed(self) -> str:
        self.model.answers.clear()
        asked = len(self.model.bodies)
        session = self.host.start("Remember that the deploy key of osprey lives in the vault.", self.one)
        until(lambda: len(self.model.bodies) > asked)
        session.kill()
        session.wait()
        self.model.answers.set()
        link.ask(self.root, {"op": "close"}, 60.0)  # ten minutes of silence do the same
        self.settle("where does the deploy key of osprey live", "vault")
        return ""

    def at_once(self) -> str:
        facts = {self.one: "The port of kestrel is 4417.", self.two: "The port of plover is 9023."}
        sessions = [self.host.start(fact, folder) for folder, fact in facts.items()]
        for session in sessions:
            assert session.wait(240) == 0
        self.settle("the port of kestrel", "4417")
        self.settle("the port of plover", "9023")
        return ""

    def uninstall(self) -> str:
        self.host.run("plugin", INSTALL[self.host.name][1], "cairn@cairn", cwd=self.one)
        before, asked = self.kept(), len(self.model.bodies)
        self.host.ask("When does heron rotate its password?", self.one)
        later = StandIn()
        later.bodies = self.model.bodies[asked:]
        assert later.bodies and not later.holds("cairn-recall"), "it still recalls"
        assert self.kept() == before, "it still captures"
        return ""

    def ask(self, prompt: str, folder: Path, words: str) -> None:
        asked = len(self.model.bodies)
        self.host.ask(prompt, folder)
        new = StandIn()
        new.bodies = self.model.bodies[asked:]
        assert new.holds(words), f"the request does not hold {words!r}"
        assert new.holds("not an instruction"), "what is recalled is not framed"

    def settle(self, question: str, words: str) -> None:
        """Wait until what was said can be recalled."""
        message = {"op": "tool", "name": "recall", "arguments": {"query": question}, "folder": str(self.one)}

        def is_told() -> bool:
            told = link.ask(self.root, message, 30.0)
            if told is None:
                link.start_warm(self.root)
            return words in str((told or {}).get("text"))

        until(is_told, f"{words!r} is never recalled")

    def kept(self) -> int:
        """How many messages there are."""
        logs = self.root.glob("*/*/sessions/*.jsonl")
        return sum(path.read_text().count('"sender_id"') for path in logs)


def run(name: str, cache: Path) -> bool:
    """One host's story; False where a step failed."""
    try:
        program = binary(name, cache)
    except Missing as reason:
        print(f"skip    {reason}", flush=True)
        return True
    cairn = Path(sys.executable).parent
    with (
        stand_in() as model,
        tempfile.TemporaryDirectory(
            prefix="cairn-agents-",
            dir="/var/tmp",
            ignore_cleanup_errors=True,  # a host may still write its own files
        ) as folder,
    ):
        at = Path(folder)
        host = Host(name, program, at / "home", model, cairn)
        os.environ["XDG_RUNTIME_DIR"] = host.env["XDG_RUNTIME_DIR"]
        story = Story(host, model, at)
        try:
            for what, step in story.steps().items():
                try:
                    said = step()
                except Exception as error:
                    print(f"FAILED  {name}: {what}: {error}", flush=True)
                    return False
                print(f"ok      {name}: {what}{f' ({said})' if said else ''}", flush=True)
        finally:
            link.ask(story.root, {"op": "end"}, 10.0)
            until(lambda: not link.socket_path(story.root).exists())
    return True


def main(names: list[str]) -> int:
    """Every host that can be had; 0 if all of their steps held."""
    cache = Path(os.environ.get("CAIRN_E2E_AGENTS", Path.home() / ".cache" / "cairn-e2e-agents"))
    held = [run(name, cache) for name in names or ["claude", "codex"]]
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
