"""Fail on code that nothing in the product calls: functions, methods, properties, classes and imports.

Two looks at the package, the tools and the benchmarks, and not at the tests: what only a test calls is dead to a user.

vulture goes by name alone. A name that stands alone in a string counts as called, and so does an operation, which
surfaces call through the table; fields of values are not judged, since whole values are written out as JSON.

The second look follows imports, for the functions and classes at the top of a module: `rebuild` of one module is not
called because another module calls its own `rebuild`. It takes for called what is named in the module itself (outside
of its own body), through an import of it, or through its module; what stands in the `__all__` of a public package is
called by whoever uses Cairn.

What may wait for its caller stands in `tools/uncalled.txt`, one name and one reason a line; a line whose name has found
a caller, or is gone, is an error too. Exit 0 clean, 1 found.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parent.parent
LOOKED_AT = ("src/cairn", "tools", "benchmarks")
JUDGED = {"function", "method", "property", "class", "import"}
PUBLIC = ("cairn", "cairn.testing", "cairn.seams", "cairn.types", "cairn.errors")
ALLOWED = ROOT / "tools" / "uncalled.txt"


def allowed(text: str) -> dict[str, str]:
    """`file:name` -> reason, from the list. Raises `ValueError` for a line without a reason."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise ValueError(f'"{line}" gives no reason')
        found[name] = reason.strip()
    return found


def names_in_strings(source: str) -> set[str]:
    """The strings of `source` that are a name and nothing else."""
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    }


def uncalled(root: Path, looked_at: tuple[str, ...] = LOOKED_AT) -> list[str]:
    """Everything judged that nothing below `looked_at` calls, as `file:name`."""
    look = Vulture(ignore_decorators=["@operation"])  # the surfaces call them through the table
    look.scavenge([str(root / place) for place in looked_at])
    spelled = {
        name
        for place in looked_at
        for file in sorted((root / place).rglob("*.py"))
        for name in names_in_strings(file.read_text(encoding="utf-8"))
    }
    return sorted(
        f"{Path(item.filename).resolve().relative_to(root.resolve()).as_posix()}:{item.name}"
        for item in look.get_unused_code(min_confidence=60)
        if item.typ in JUDGED and item.name not in spelled and not item.name.startswith("__")
    )


class Names(ast.NodeVisitor):
    """Every dotted name that one module refers to, with the top definition it stands in.

    A name of an import is followed to what it imports: `from cairn.governed import pages` makes `pages.log` the
    `cairn.governed.pages.log`.
    """

    def __init__(self, module: str, package: str, tree: ast.Module) -> None:
        self.module, self.package = module, package
        self.imported: dict[str, str] = {}
        self.found: set[tuple[str, str]] = set()
        self.inside = ""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for name in node.names:
                    self.imported[name.asname or name.name] = f"{self._source(node)}.{name.name}"
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self.imported[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0]
                    )
        for node in tree.body:
            self.inside = getattr(node, "name", "")
            self.visit(node)

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])

    def _refer(self, name: str, rest: str = "") -> None:
        self.found.add((f"{self.module}.{name}{rest}", self.inside))
        if name in self.imported:
            self.found.add((f"{self.imported[name]}{rest}", self.inside))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._refer(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        rest, below = "", node
        while isinstance(below, ast.Attribute):
            rest, below = f".{below.attr}{rest}", below.value  # type: ignore[assignment]
        if isinstance(below, ast.Name):
            while rest:  # `pages.log.cache_clear` calls `pages.log`, too
                self._refer(below.id, rest)
                rest = rest.rpartition(".")[0]
        self.generic_visit(node)


def uncalled_at_top(root: Path, looked_at: tuple[str, ...] = LOOKED_AT) -> list[str]:
    """Functions and classes at the top of a module of the package that no import leads to, as `file:name`."""
    trees: dict[str, tuple[Path, ast.Module]] = {}
    for place in looked_at:
        for file in sorted((root / place).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            module = ".".join(parts[parts[0] == "src" :]).removesuffix(".__init__")
            trees[module] = (file, ast.parse(file.read_text(encoding="utf-8")))
    names = {
        module: Names(module, module if file.name == "__init__.py" else module.rpartition(".")[0], tree)
        for module, (file, tree) in trees.items()
    }
    origins = {
        f"{module}.{name}": origin for module, one in names.items() for name, origin in one.imported.items()
    }
    called: dict[str, set[tuple[str, str]]] = {}
    for module, one in names.items():
        public = {
            (f"{module}.{name}", "")
            for node in ast.walk(trees[module][1])
            if module.startswith(PUBLIC[1]) or module in PUBLIC
            if isinstance(node, ast.Constant) and isinstance(name := node.value, str) and name.isidentifier()
        }
        for name, inside in one.found | public:
            while name in origins and origins[name] != name:
                called.setdefault(name, set()).add((module, inside))
                name = origins[name]  # through the package that hands it on
            called.setdefault(name, set()).add((module, inside))
    return sorted(
        f"{file.relative_to(root).as_posix()}:{node.name}"
        for module, (file, tree) in trees.items()
        if file.is_relative_to(root / "src")
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not called.get(f"{module}.{node.name}", set()) - {(module, node.name)}
    )


def main() -> int:
    found = {*uncalled(ROOT), *uncalled_at_top(ROOT)}
    waiting = allowed(ALLOWED.read_text(encoding="utf-8"))
    for name in sorted(found - waiting.keys()):
        print(
            f"{name}: nothing calls it; take it out, or give it a caller (tools/uncalled.txt may wait for one)"
        )
    for name in sorted(waiting.keys() - found):
        print(f"{name}: stands in tools/uncalled.txt and is called, or gone; take the line out")
    return 1 if found ^ waiting.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
