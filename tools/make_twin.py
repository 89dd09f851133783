"""Write what type checkers see of the awaited twin: `src/cairn/aio.pyi`, from the operations themselves."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from cairn import memory
from cairn.operations import fields
from cairn.operations.table import Operation, operations_of

SOURCE = Path(__file__).parent.parent / "src" / "cairn"
HEAD = '''"""The same calls awaited. Made by `make docs` from the operations; change those."""

'''
BODY = {
    "AsyncMemory": '''class Pools:
    """The threads that calls run in while the memory is open."""

    async def run(self, call: Callable[[], _T], *, writes: bool, apart: bool = ...) -> _T: ...

class AsyncMemory:
    """`Memory`, each call awaited. Takes what `Memory` takes; use it inside an `async with` statement."""

    memory: Memory
    memories: AsyncMemories
    pools: Pools

    def __init__(self, settings: Settings, *, background: bool = ..., clock: Clock | None = ...) -> None: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def parts(self) -> Parts: ...
    async def __aenter__(self) -> AsyncMemory: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def subscribe(
        self, listener: Callable[[Mapping[str, Any]], object], *kinds: str
    ) -> Callable[[], None]: ...
''',
    "AsyncMemories": '''class AsyncMemories:
    """`memory.memories`, each call awaited."""

    memory: Memories
    async def on_upserted(self, listener: Callable[[Mapping[str, Any]], object]) -> Callable[[], None]: ...
''',
}
OWN_IMPORTS = """
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from cairn.config import Settings
from cairn.memory import Memories, Memory
from cairn.parts import Parts
from cairn.seams import Clock
"""


class _Plain(ast.NodeTransformer):
    """`Annotated[X, ...]` as X."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            return node.slice.elts[0]
        return node


def _definition(row: Operation) -> ast.FunctionDef:
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(row.call)))
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    if found.args.kwarg is not None:  # `**at: Unpack[InSpace]` stands for the fields of that
        assert isinstance(found.args.kwarg.annotation, ast.Subscript)
        several = getattr(fields, ast.unparse(found.args.kwarg.annotation.slice))
        for name, kind in several.__annotations__.items():
            found.args.kwonlyargs.append(ast.arg(name, ast.Name(kind.__forward_arg__)))
            found.args.kw_defaults.append(ast.Constant(row.signature.parameters[name].default))
        found.args.kwarg = None
    _Plain().visit(found.args)
    return found


def _stub(row: Operation) -> str:
    found = _definition(row)
    answer = ast.unparse(found.returns) if found.returns is not None else "None"
    # In a class that has a method called `list`, the type needs its full name.
    signature = f"{ast.unparse(found.args)}) -> {answer}"
    signature = re.sub(r"(?<![\w.])list\[", "builtins.list[", signature)
    words = " ".join((ast.get_docstring(found) or "").split("\n\n")[0].split())
    return f'    async def {row.name}({signature}:\n        """{words}"""\n'


def _imports(modules: list[str], text: str) -> str:
    """The imports of the modules that the stub needs."""
    lines = {"import builtins"}
    for source in [OWN_IMPORTS, *modules]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                for alias in node.names:
                    if re.search(rf"\b{alias.asname or alias.name}\b", text):
                        lines.add(f"from {node.module} import {alias.name}")
    plain = sorted(line for line in lines if line.startswith("import"))
    return "\n".join(plain + sorted(line for line in lines if line.startswith("from")))


def twin() -> str:
    """The text of `aio.pyi`."""
    text, modules = "", []
    for room, name in ((memory.Memory, "AsyncMemory"), (memory.Memories, "AsyncMemories")):
        rows = operations_of(room)
        text += "\n" + BODY[name] + "".join(_stub(row) for row in rows.values())
        for home in {row.call.__module__ for row in rows.values()}:
            modules.append(
                (SOURCE / f"{home.removeprefix('cairn.').replace('.', '/')}.py").read_text("utf-8")
            )
    defined = "\n".join(f"from cairn.operations.{home} import {name}" for home, name in _own_names(text))
    text = '\n\n_T = TypeVar("_T")\n' + text
    return HEAD + _imports([*modules, defined], text) + text


def _own_names(text: str) -> list[tuple[str, str]]:
    """Names that the modules of operations define themselves and signatures use."""
    found = []
    for file in sorted((SOURCE / "operations").glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found += [(file.stem, name) for name in names if re.search(rf"\b{name}\b", text)]
    return found
