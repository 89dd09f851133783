"""Fail on naive or local time inside the package: UTC within, the display zone only at the edge.

Refused: `datetime.now()` and `datetime.fromtimestamp(x)` without a zone or with None, `utcnow`,
`utcfromtimestamp`, `date.today()`, `time.localtime`, `astimezone()` without a zone (it takes the machine's),
under whatever name `datetime` and `date` were imported. Exit 0 clean, 1 found, 2 set-up error.
"""

from __future__ import annotations

import ast
import sys

from tools.each_file import look

ALWAYS = {"utcnow", "utcfromtimestamp", "today", "localtime"}
NEEDS_ZONE = {"now": 1, "fromtimestamp": 2, "astimezone": 1}
OWNERS = {"datetime", "date", "time"}


def naive_in(source: str, name: str) -> list[str]:
    """Describe each call in `source` that makes a time without a zone."""
    found = []
    tree = ast.parse(source, name)
    owners = OWNERS | {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname and alias.name in OWNERS
    }
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if not isinstance(call.func, ast.Attribute):
            continue
        owner, verb = ast.unparse(call.func.value).rpartition(".")[2], call.func.attr
        if owner not in owners and verb != "astimezone":
            continue
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        given = [v for v in values if not (isinstance(v, ast.Constant) and v.value is None)]
        if verb in ALWAYS or (verb in NEEDS_ZONE and len(given) < NEEDS_ZONE[verb]):
            found.append(
                f"{name}:{call.lineno}: {ast.unparse(call)} has no zone; use datetime.now(UTC) or the clock"
            )
    return found


def main(argv: list[str]) -> int:
    return look(argv, "src/cairn", "*.py", naive_in)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
