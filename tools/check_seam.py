"""Fail when a storage verb could hand out a file-system path.

Every class in `cairn` that derives from a name ending in `Backend` is looked at: the return annotations of
the seven verbs must not mention a path type, however deeply nested. Exit 0 clean, 1 leak, 2 set-up error.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

VERBS = {"resolve", "read", "write", "list", "exists", "info", "mkdir"}
PATHS = {"Path", "PurePath", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "PathLike"}


def leaks_in(source: str, name: str) -> list[str]:
    """Describe each leaking verb in `source`."""
    found = []
    for cls in (node for node in ast.walk(ast.parse(source, name)) if isinstance(node, ast.ClassDef)):
        bases = {ast.unparse(base).rpartition(".")[2] for base in cls.bases}
        if not any(base.endswith("Backend") for base in bases) and not cls.name.endswith("Backend"):
            continue
        for verb in (
            n for n in cls.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in VERBS
        ):
            if verb.returns is None:
                found.append(f"{name}:{verb.lineno}: {cls.name}.{verb.name} has no return annotation")
                continue
            annotation = ast.unparse(verb.returns).strip("'\"")
            words = {n.id for n in ast.walk(ast.parse(annotation)) if isinstance(n, ast.Name)}
            words |= {n.attr for n in ast.walk(ast.parse(annotation)) if isinstance(n, ast.Attribute)}
            if words & PATHS:
                found.append(
                    f"{name}:{verb.lineno}: {cls.name}.{verb.name} returns {annotation}: a path crosses the seam"
                )
    return found


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).parent.parent / "src" / "cairn"
    files = sorted(root.rglob("*.py")) if root.is_dir() else []
    if not files:
        print(f"{root}: no Python files to check", file=sys.stderr)
        return 2
    leaks = [leak for file in files for leak in leaks_in(file.read_text(encoding="utf-8"), str(file))]
    print("\n".join(leaks)) if leaks else None
    return 1 if leaks else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
