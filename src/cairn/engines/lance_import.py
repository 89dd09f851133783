"""Imports LanceDB without its REST client, which is most of the cost of `import lancedb`.

While LanceDB is imported, the modules of that client are stand-ins whose classes fetch the real one when the first of
them is made. Nothing is left out for good: whoever imports the client himself gets it whole.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_CLIENT = "lance_namespace_urllib3_client"
_lock = threading.Lock()


def imported() -> Any:
    """The module `lancedb`; the first call loads it."""
    # LanceDB's libraries ask for numpy's innermost module first. Beside a thread that imports numpy by its name the two
    # would wait for each other, and Python then hands out a module that is half made.
    import numpy  # noqa: F401, ICN001

    # Without this LanceDB writes a warning to the terminal for each query.
    os.environ.setdefault("LANCEDB_LOG", "error")
    with _lock:
        if "lancedb" not in sys.modules and _CLIENT not in sys.modules:
            finder = _StandIns()
            sys.meta_path.insert(0, finder)
            try:
                importlib.import_module("lancedb")
            finally:
                sys.meta_path.remove(finder)
                for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
                    del sys.modules[name]
        return importlib.import_module("lancedb")


class _StandIn(ModuleType):
    """A module any of whose names is a class that fetches the real one."""

    __path__: list[str] = []  # noqa: RUF012 -- what makes a module a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        home = self.__name__

        def made(_: type, *given: Any, **named: Any) -> Any:
            return getattr(importlib.import_module(home), name)(*given, **named)

        found = type(name, (), {"__module__": home, "__new__": made})
        setattr(self, name, found)
        return found


class _StandIns(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] == _CLIENT else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
