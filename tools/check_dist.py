"""Build the wheel and the sdist, and use the wheel as a stranger would: `make dist`.

The wheel is built from the sdist, so a file the sdist lacks is missed at once. Every file of the package that git
knows must be in the wheel, and nothing else. Then the wheel is installed into an empty environment with an empty home,
and keeps, finds and backs up one memory there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def troubles_of(wheel: Path, tracked: Collection[str], version: str) -> Iterator[str]:
    """What is wrong with the contents of `wheel`: files of the package that lack or are too many, its metadata.

    Args:
        wheel: The file.
        tracked: Every path the package has, such as "cairn/memory.py".
        version: The version it must say.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        inside = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
        yield from (f"{name} is not in the wheel" for name in sorted(set(tracked) - inside))
        yield from (f"{name} is in the wheel and not in git" for name in sorted(inside - set(tracked)))
        known = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
        if known is None:
            yield "the wheel has no METADATA"
            return
        about = message_from_bytes(archive.read(known))
        if about["Version"] != version:
            yield f"the wheel says version {about['Version']}, the package {version}"
        for extra in ("model", "mcp"):
            if extra not in about.get_all("Provides-Extra", []):
                yield f"the wheel does not offer the extra [{extra}]"


def tracked_files() -> set[str]:
    """The files of the package that git knows, as a wheel names them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", "src/cairn"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.removeprefix("src/") for name in listed.stdout.split("\0") if name}


def build() -> Path:
    """The new wheel in dist/, which holds nothing but it and the sdist."""
    for old in (*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")):
        old.unlink()
    run("build", [_tool("uv"), "build", "--quiet", "--out-dir", str(DIST), "."], cwd=ROOT, env=os.environ)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    print(f"built   {sdist.name} ({sdist.stat().st_size} bytes), {wheel.name} ({wheel.stat().st_size} bytes)")
    return wheel


def run(
    what: str, command: list[str], *, cwd: Path, env: Mapping[str, str], expect: str = "", code: int = 0
) -> None:
    """One step. Ends everything where it fails or does not say `expect`."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    said = done.stdout + done.stderr
    if done.returncode != code or expect not in said:
        raise SystemExit(f'{what}: exit code {done.returncode}, "{expect}" was expected.\n{said[-4000:]}')
    print(f"ok      {what}", flush=True)


def try_out(wheel: Path) -> None:
    """Install `wheel` into an empty environment and go from nothing to an answer with it."""
    with tempfile.TemporaryDirectory(prefix="cairn-dist-") as folder:
        place = Path(folder)
        home = place / "home"
        home.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in {"PATH", "LANG", "TMPDIR", "SSL_CERT_FILE"} or name.startswith(("PIP_", "UV_"))
        }
        env = {**kept, "HOME": str(home)}
        run("a new environment", [sys.executable, "-m", "venv", "--without-pip", "other"], cwd=place, env=env)
        python = str(place / "other" / "bin" / "python")
        # Packages may come out of the builder's cache; the environment itself is new.
        into = [_tool("uv"), "pip", "install", "--quiet", "--python", python, str(wheel)]
        run("install the wheel", into, cwd=place, env=os.environ)
        cairn = [str(place / "other" / "bin" / "cairn")]
        version = wheel.name.split("-")[1]
        run("cairn --version", [*cairn, "--version"], cwd=place, env=env, expect=version)
        for words, expect in (
            ("init", ""),
            ("add --session s1 --sender alice|I moved to Lisbon last Friday.", "1 message"),
            ("flush --session s1", "extracted"),
            ("search --user alice|where does Alice live", "Lisbon"),
            ("ome list", "extract_atomic_facts"),
            ("backup kept.tar.gz", "Read back and compared"),
            ("doctor", ""),
        ):
            head, _, text = words.partition("|")
            command = [*cairn, "--root", "memory", *head.split(), *([text] if text else [])]
            run(f"cairn {head}", command, cwd=place, env=env, expect=expect)
        without = [*cairn, "model", "install"]
        hint = "pip install 'cairn-memory[model]'"
        run("cairn model install says what it needs", without, cwd=place, env=env, expect=hint, code=6)


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def main() -> int:
    """Build, look inside, try out; exit code 0 if all of it held."""
    from cairn.version import VERSION

    wheel = build()
    if troubles := list(troubles_of(wheel, tracked_files(), VERSION)):
        print("\n".join(troubles), file=sys.stderr)
        return 1
    print("ok      every file of the package is in the wheel, and nothing else")
    try_out(wheel)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
