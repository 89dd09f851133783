"""Nothing phones home: the real product under a system-call trace, and in a network of its own.

Python's `socket` is not where to look: native code never passes it. The kernel sees every call, so strace writes
down the whole day of `tests/quiet_day.py`; a network namespace counts the packets that had nowhere to go.
`QUIET_SECONDS=60` leaves the server alone for a minute after its search (`make e2e` does).
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import config
from cairn.engines import minilm, quiet

HERE = Path(__file__).parent.parent
WAIT = os.environ.get("QUIET_SECONDS", "0")
_CALL = re.compile(r"^(?P<name>\w+)\((?P<args>.*)\) += (?P<code>-?\d+|\?)(?:<(?P<path>[^>]*)>)?")
_PATHS = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<folder>[^>]*)>, )?"(?P<name>(?:[^"\\]|\\.)*)"')
_TRACED = "%network,/^(open|creat|mkdir|mknod|rename|link|symlink|unlink|rmdir|truncate|chmod|chown|utime)"
_CHANGES = re.compile(r"(creat|mkdir|mknod|rename|link|symlink|unlink|rmdir|truncate|chmod|chown|utime)")
_ADDRESSES = re.compile(r'inet_(?:addr\(|pton\(AF_INET6, )"(?P<address>[^"]+)"')
_LOOKUPS = ("/etc/resolv.conf", "/etc/hosts", "nscd/socket", "/run/systemd/resolve")
# Inside a namespace the loopback device has to be switched on before a server can listen on it.
_ALONE = 'ip link set lo up && "$@"; code=$?; cat /proc/net/snmp; exit $code'


@pytest.fixture
def places(tmp_path) -> dict[str, Path]:
    """Scratch folders for all a process may write to; the model is the installed one, read where it lies."""
    if minilm.installed(config.models_dir()) is None:
        pytest.skip("the local model is not installed: run `make setup`")
    found = {name: tmp_path / name for name in ("home", "temp", "work", "root", "trace")}
    for folder in found.values():
        folder.mkdir()
    return found


def day(places: dict[str, Path], *before: str) -> subprocess.CompletedProcess[str]:
    """The day, run behind `before`, in an environment that switches nothing off."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(places["home"]),
        "TMPDIR": str(places["temp"]),
        "PYTHONPATH": f"{HERE / 'src'}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CAIRN_EMBEDDING__PROVIDER": "minilm",
        "CAIRN_EMBEDDING__MODEL_DIR": str(config.models_dir()),
    }
    assert not set(quiet.SWITCHES) & set(env)
    command = [*before, sys.executable, "-m", "tests.quiet_day", str(places["root"]), WAIT]
    done = subprocess.run(command, cwd=places["work"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def works(*command: str) -> bool:
    return bool(shutil.which(command[0])) and subprocess.run(command, capture_output=True).returncode == 0


def calls(folder: Path) -> Iterator[re.Match[str]]:
    """Every call of every thread, one file each."""
    for file in sorted(folder.iterdir()):
        for line in file.read_text(errors="replace").splitlines():
            if found := _CALL.match(line):
                yield found


def written(call: re.Match[str]) -> list[str]:
    """The paths a call has made, changed or removed."""
    name, args = call["name"], call["args"]
    if call["code"].startswith(("-", "?")):
        return []
    if name in {"open", "openat", "openat2"}:
        return [call["path"] or args] if re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC)", args) else []
    if not _CHANGES.match(name):
        return []
    return [os.path.join(found["folder"] or "", found["name"]) for found in _PATHS.finditer(args)]


def is_here(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def left_in(places: dict[str, Path]) -> list[str]:
    """What the day left where nothing belongs: the home beside our cache, and the folder it was run in."""
    found = [*places["home"].rglob("*"), *places["work"].rglob("*")]
    ours = (places["home"] / ".cache", places["home"] / ".cache" / "cairn")
    return [str(path) for path in found if path not in ours and not path.is_relative_to(ours[1])]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not works("strace", "-o", os.devnull, "true"), reason="strace is missing or may not trace"
)
def test_a_traced_day_asks_no_name_reaches_nobody_and_writes_only_where_it_may(places):
    """init, add, flush, search, a server, LanceDB and doctor: only loopback; only root, cache and temp."""
    trace = ["strace", "-ff", "--seccomp-bpf", "-y", "-qq", "-s", "4096", "-e", f"trace={_TRACED}"]
    day(places, *trace, "-o", str(places["trace"] / "t"))
    made = list(calls(places["trace"]))
    opened = " ".join(call["path"] or "" for call in made)
    for needed in ("libonnxruntime", "_lancedb", "pyarrow", "tokenizers", minilm.GRAPH):
        assert needed in opened, "the day did not load it: the trace proves nothing about it"
    cache = places["home"] / ".cache" / "cairn"
    allowed = (places["root"], places["temp"], cache, Path("/dev"), Path("/proc"))

    assert [call[0] for call in made if any(place in call["args"] for place in _LOOKUPS)] == []
    assert [
        call[0]
        for call in made
        if any(not is_here(it["address"]) for it in _ADDRESSES.finditer(call["args"]))
    ] == []
    assert [
        path
        for call in made
        for path in written(call)
        if not any(Path(path).is_relative_to(at) for at in allowed)
    ] == []
    assert left_in(places) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not works("unshare", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"),
    reason="no network namespace can be made here",
)
def test_a_day_alone_in_its_network_sends_no_packet_outward(places):
    """All of it works where there is no network, and not one packet was meant for elsewhere."""
    done = day(places, "unshare", "--map-root-user", "--net", "sh", "-c", _ALONE, "sh")
    lines = [line.split() for line in done.stdout.splitlines() if re.match(r"(Ip|Udp): ", line)]
    counted = {
        f"{names[0]}{name}": int(value)
        for names, values in zip(lines[::2], lines[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=True)
    }
    assert counted["Ip:OutRequests"] > 0, "no packet at all: the server was not asked"
    assert (counted["Ip:OutNoRoutes"], counted["Udp:OutDatagrams"]) == (0, 0)
    assert left_in(places) == []


def test_one_module_loads_the_runtime_and_hushes_it_first():
    """onnxruntime reads its switch while it is imported: a second importer would have to think of it again."""
    importers = [
        path
        for path in (HERE / "src").rglob("*.py")
        if re.search(r"^\s*(import|from) onnxruntime", path.read_text(), re.M)
    ]
    assert len(importers) == 1
    text = importers[0].read_text()
    assert 0 < text.index("    hush()\n") < text.index("import onnxruntime")
