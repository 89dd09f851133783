"""Fail when a storage verb could hand out a file-system path.

Every class in `cairn` that derives from a name ending in `Backend`, by whatever alias, is looked at: the return annotations of
the seven verbs must not mention a path type, however deeply nested, quoted or renamed. Exit 0 clean, 1 leak,
2 set-up error.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from tools.each_file import look

VERBS = {"resolve", "read", "write", "list", "exists", "info", "mkdir"}
PATHS = {"Path", "PurePath", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "PathLike"}


def leaks_in(source: str, name: str) -> list[str]:
    """Describe each leaking verb in `source`."""
    found = []
    tree = ast.parse(source, name)
    paths = _standing_for(tree, PATHS.__contains__)
    backends = _standing_for(tree, lambda word: word.endswith("Backend"))
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        if cls.name not in backends and not cls.name.endswith("Backend"):
            continue
        for verb in (
            n for n in cls.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name in VERBS
        ):
            if verb.returns is None:
                found.append(f"{name}:{verb.lineno}: {cls.name}.{verb.name} has no return annotation")
            elif any(word in PATHS or word in paths for word in _words(verb.returns)):
                found.append(
                    f"{name}:{verb.lineno}: {cls.name}.{verb.name} returns {ast.unparse(verb.returns)}: "
                    "a path crosses the seam"
                )
    return found


def _standing_for(tree: ast.Module, is_one: Callable[[str], bool]) -> set[str]:
    """Every name in the module that stands for one of those: import aliases, type aliases, and classes derived from one."""
    names: set[str] = set()

    def any_of(*expressions: ast.expr) -> bool:
        return any(is_one(word) or word in names for one in expressions for word in _words(one))

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname and is_one(alias.name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any_of(*node.bases):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.expr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not isinstance(node.value, ast.Call) and any_of(node.value):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _words(annotation: ast.expr) -> set[str]:
    """Every name in an annotation, also inside quotes."""
    words = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                words |= _words(ast.parse(node.value, mode="eval").body)
            except (SyntaxError, ValueError):  # a text, not a quoted type
                continue
    return words


def main(argv: list[str]) -> int:
    return look(argv, "src/cairn", "*.py", leaks_in)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
