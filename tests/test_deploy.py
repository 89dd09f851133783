"""The files in deploy/ fit the product, and docs/operating.md names what a running server really tells."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cairn.config import load
from cairn.surfaces.cli import build_parser
from cairn.surfaces.guard import _OPEN_PATHS
from cairn.surfaces.hangup import RELOADED
from tests.surfaces.served import serving

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
UNITS = ("cairn.service", "cairn-user.service")
PAGE = (ROOT / "docs/operating.md").read_text(encoding="utf-8")


def instructions():
    """The Dockerfile as (word, rest) pairs, continued lines put together, comments left out."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def given(name):
    """The rest of the last instruction of that name: the one that holds for the image."""
    return [rest for word, rest in instructions() if word == name][-1]


def values(unit, key):
    text = (DEPLOY / unit).read_text(encoding="utf-8")
    return re.findall(rf"^{key}=(.*)$", text, flags=re.MULTILINE)


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_manifests_ask_what_a_server_answers(tmp_path):
    """Their settings are settings, probes ask for pages that are open to all, and a server has time to drain."""
    found = [*yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))]
    by_kind = {one["kind"]: one for one in found}
    assert set(by_kind) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    settings = load(tmp_path, environ=by_kind["ConfigMap"]["data"])
    assert (settings.storage.backend, settings.storage.url) == ("s3", "s3://bucket/memory")
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    asked = {
        server[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert asked == {"/health", "/ready"} <= _OPEN_PATHS
    # Not ready for longer than the time between two probes, and the calls that have begun are answered after that.
    assert settings.server.drain_seconds > server["readinessProbe"]["periodSeconds"]
    assert pod["terminationGracePeriodSeconds"] > 20 + settings.server.drain_seconds
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"] == labels
    assert str(server["ports"][0]["containerPort"]) == given("EXPOSE")
    assert pod["securityContext"]["runAsUser"] == int(given("USER").partition(":")[0])


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_a_server_that_can_be_reloaded_and_drained(unit, tmp_path):
    """Its command is one of ours, its variables are settings, and stopping leaves more time than draining takes."""
    (command,) = values(unit, "ExecStart")
    assert build_parser().parse_args(shlex.split(command)[1:]).command == "start"
    given = dict(one.split("=", 1) for one in values(unit, "Environment"))
    settings = load(
        tmp_path, environ={name: value for name, value in given.items() if name.startswith("CAIRN_")}
    )
    assert (settings.logging.format, settings.logging.level) == ("json", "info")
    assert values(unit, "ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert int(values(unit, "TimeoutStopSec")[0]) > 20
    assert values(unit, "NoNewPrivileges") == ["yes"]
    assert values(unit, "UMask") == ["0077"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
def test_the_systems_unit_is_understood_and_tight():
    """systemd knows every line of it, and finds little that the service could do beyond its work."""
    unit = str(DEPLOY / "cairn.service")
    told = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    unknown = [
        line for line in told.stderr.splitlines() if re.search(r"Unknown|Failed to parse|Invalid", line)
    ]
    assert unknown == []
    asked = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    scored = subprocess.run(asked, capture_output=True, text=True)
    assert scored.returncode == 0, scored.stdout[-300:] + scored.stderr


def test_the_image_is_small_pinned_and_not_root():
    """Two stages, named versions, a numbered user, commands without a shell, and copies of what is there."""
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert len(bases) == 2 and all(re.fullmatch(r"python:3\.\d+-slim-\w+", base) for base in bases)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", given("USER"))
    assert json.loads(given("ENTRYPOINT")) == ["/opt/cairn/bin/cairn"]
    assert build_parser().parse_args(json.loads(given("CMD"))).command == "start"
    assert "ADD" not in {word for word, _ in instructions()}
    copied = [
        name
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for name in rest.split()[:-1]
    ]
    assert copied and all((ROOT / name).exists() for name in copied)
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in let_in if line.startswith("!")} == {
        name.removeprefix("./") for name in copied
    }


def test_the_image_asks_for_tokens_and_writes_only_where_it_may(tmp_path):
    """Its variables are settings; all it writes is below /memory and /tmp; beyond loopback it wants a token."""
    given_env = dict(one.split("=", 1) for one in shlex.split(given("ENV")))
    ours = {name: value for name, value in given_env.items() if name.startswith("CAIRN_")}
    settings = load(environ={**ours, "HOME": str(tmp_path)})
    assert settings.server.host == "0.0.0.0"
    for place in (settings.root, settings.index_dir, settings.cache_dir):
        assert place.is_relative_to("/memory") or place.is_relative_to("/tmp")
    env = {
        **ours,
        "HOME": str(tmp_path),
        "CAIRN_MEMORY__ROOT": str(tmp_path / "root"),
        "CAIRN_SERVER__PORT": "0",
    }
    command = [sys.executable, "-m", "cairn.surfaces.cli", *json.loads(given("CMD"))]
    refused = subprocess.run(command, env=env, capture_output=True, text=True)
    assert refused.returncode == 6 and "without a token" in refused.stderr


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed here")
def test_hadolint_has_nothing_to_say():
    """The usual faults of Dockerfiles are not in ours."""
    told = subprocess.run([str(HADOLINT), str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


def test_a_running_server_tells_what_the_page_says(tmp_path):
    """The image's health check passes; every metric has its row and alert, every field of the log its meaning."""
    log = tmp_path / "log"
    env = {"CAIRN_LOGGING__FORMAT": "json", "CAIRN_LOGGING__LEVEL": "info"}
    check = json.loads(given("HEALTHCHECK").partition("CMD ")[2])
    with serving(tmp_path / "root", env=env, log=log) as server:
        here = [sys.executable, check[1], check[2].replace(":8000", f":{server.port}")]
        assert subprocess.run(here).returncode == 0
        _, text = server.call("GET", "/metrics")
    assert subprocess.run(here, stderr=subprocess.DEVNULL).returncode != 0

    rows = re.findall(r"^\| `(cairn_\w+)` \| [^|]+ \| `([^`]+)`", section("Monitoring"), flags=re.MULTILINE)
    assert {name for name, _ in rows} == set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))
    assert all(name in alert for name, alert in rows)
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    told = next(line for line in lines if line["message"] == "request")
    fields = {
        name
        for row in re.findall(r"^\| (`.+?) \|", section("Logs"), re.MULTILINE)
        for name in row.split("`")[1::2]
    }
    assert fields == {*told, "exception"}


def test_the_page_lists_what_is_reloaded():
    """SIGHUP takes exactly the settings that the page names."""
    listed = section("As a service").split("Reloaded:")[1].split(" Another\n")[0]
    assert set(re.findall(r"`(\w+\.\w+)`", listed)) == RELOADED
