"""The product as a new user meets it: `make e2e`.

A clone in a temporary folder, an empty home, only the README's commands; then the quickstart by copy and paste,
the model's own answers, a wheel built and installed elsewhere. Takes minutes: everything is set up from nothing.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def step(
    what: str, command: list[str], *, cwd: Path, env: dict[str, str], expect: str = "", show: bool = False
) -> None:
    """Run one command; say how long it took, and what it said; stop everything if it failed or said something else."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=1800)
    print(
        f"{'ok' if done.returncode == 0 else 'FAILED':6}  {time.monotonic() - began:6.1f} s  {what}",
        flush=True,
    )
    if show:
        print(done.stdout, end="", flush=True)
    if done.returncode or expect not in done.stdout:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
        raise SystemExit(f"{what}: exit code {done.returncode}" + (f', "{expect}" missing' if expect else ""))


def main() -> int:
    """Every step in order; exit code 0 if all of them held."""
    with tempfile.TemporaryDirectory(prefix="cairn-e2e-") as folder:
        home, clone = Path(folder) / "home", Path(folder) / "clone"
        home.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        kept |= {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))
        }
        env = {**kept, "HOME": str(home)}
        step("clone", ["git", "clone", "--quiet", str(ROOT), str(clone)], cwd=ROOT, env=env)
        step("make run, from nothing", ["make", "run"], cwd=clone, env=env, expect="Done in")
        step("make run, again", ["make", "run"], cwd=clone, env=env, expect="Done in")
        step("make lint", ["make", "lint"], cwd=clone, env=env)
        python = str(clone / ".venv" / "bin" / "python")
        quick = [
            python,
            "-m",
            "pytest",
            "-q",
            "tests/surfaces/test_quickstart.py",
            "tests/surfaces/test_scenario.py",
        ]
        step("quickstart and the one story", quick, cwd=clone, env=env)
        alone = [python, "-m", "pytest", "-q", "tests/test_nothing_leaves.py"]
        step("a server left alone for a minute", alone, cwd=clone, env={**env, "QUIET_SECONDS": "60"})
        fetched = os.environ.get("CAIRN_E2E_AGENTS", str(Path.home() / ".cache" / "cairn-e2e-agents"))
        agents = [python, "-m", "tests.e2e_agents"]
        step("real coding agents", agents, cwd=clone, env={**env, "CAIRN_E2E_AGENTS": fetched}, show=True)
        wheels = Path(folder) / "wheels"
        build = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), "."]
        step("build the wheel", build, cwd=clone, env=env)
        other = Path(folder) / "other"
        step("another environment", [python, "-m", "venv", str(other)], cwd=clone, env=env)
        inner = str(other / "bin" / "python")
        wheel = str(next(wheels.glob("*.whl")))
        step("install the wheel", [inner, "-m", "pip", "install", "--quiet", wheel], cwd=home, env=env)
        demo = [inner, "-m", "cairn.surfaces.cli", "demo"]
        step("its demo, without the model", demo, cwd=home, env=env, expect="Done in")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
