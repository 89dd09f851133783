"""A large root of made-up Markdown: `python -m tools.make_root FOLDER --rows 1000000 --owners 1`.

Each day of an owner has a note of episodes and a note of the facts drawn from them, written by the notebook as any other
entry is, so the root can be indexed, searched, edited, rebuilt and forgotten from like one that was lived in. Row `n` says
the same on every run, and its number stands in it. Nothing is indexed here: `cairn cascade sync` does that, or a server.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import MemoryRoot
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

_FIRST = date(2015, 1, 1)
_DAY_ROWS = 500
_EPISODE_ROWS = 10
_SENTENCES = 4
_WHO = ("Ana", "Bo", "Carla", "Deniz", "Emeka", "Fumi", "Greta", "Hugo", "Ines", "Jorge", "Kofi")
_DID = ("bought", "repaired", "lost", "painted", "sold", "measured", "borrowed", "wrapped", "found")
_WHICH = ("blue", "heavy", "wooden", "second", "broken", "silver", "narrow")
_WHAT = (
    "bicycle",
    "kettle",
    "camera",
    "ladder",
    "guitar",
    "suitcase",
    "lantern",
    "compass",
    "violin",
    "anchor",
)
_WHERE = (
    "Lisbon",
    "Oslo",
    "Nairobi",
    "Kyoto",
    "Quito",
    "Tallinn",
    "Perth",
    "Cusco",
    "Leipzig",
    "Accra",
    "Bergen",
)


def said(number: int) -> str:
    """The sentence of a row; neighbours share little, and no two are the same."""
    place = number * 7919
    words = [
        table[place // step % len(table)]
        for table, step in zip((_WHO, _DID, _WHICH, _WHAT, _WHERE), (1, 11, 97, 677, 6763), strict=True)
    ]
    return "{} {} the {} {} in {}, item {}.".format(*words, number)


def make(folder: Path, rows: int, owners: int = 1) -> int:
    """Write a root of at least `rows` rows, as many for each owner; returns how many there are.

    Raises:
        FileExistsError: something is there already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a folder that is new or empty.")
    storage = DeviceLocalBackend(folder)
    MemoryRoot(storage).ensure()
    notebook = Notebook(storage, FileLocks(folder / ".tmp" / "locks"))
    each = -(-rows // owners)
    for owner in range(owners):
        scope = Scope(Space(), "user", f"person{owner}")
        for start in range(0, each, _DAY_ROWS):
            day = _FIRST + timedelta(days=start // _DAY_ROWS)
            _write_day(
                notebook, scope, day, range(owner * each + start, owner * each + min(start + _DAY_ROWS, each))
            )
    return each * owners


def _write_day(notebook: Notebook, scope: Scope, day: date, numbers: range) -> None:
    def inline(number: int, **more: str) -> dict[str, object]:
        at = f"{day.isoformat()}T{8 + number % 12:02}:{number // 12 % 60:02}:00+00:00"
        return {"owner_id": scope.owner, "session_id": f"talk-{number // 100}", "timestamp": at, **more}

    heads = numbers[::_EPISODE_ROWS]
    episodes = [
        Draft(
            inline(head, parent_type="memcell", parent_id=f"mc_{head}"),
            {"Content": " ".join(said(n) for n in numbers[head - numbers[0] :][:_SENTENCES])},
        )
        for head in heads
    ]
    written = notebook.append("episode", scope, day.isoformat(), episodes)
    facts = [
        Draft(inline(n, parent_type="episode", parent_id=one.entry_id), {"Fact": said(n)})
        for head, one in zip(heads, written, strict=True)
        for n in numbers[head - numbers[0] :][1:_EPISODE_ROWS]
    ]
    notebook.append("atomic_fact", scope, day.isoformat(), facts)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_root", description="Write a large root of made-up notes."
    )
    parser.add_argument("folder", type=Path, help="where; it must be new or empty")
    parser.add_argument("--rows", type=int, default=100_000, help="episodes and facts together")
    parser.add_argument("--owners", type=int, default=1, help="whose they are, in equal parts")
    given = parser.parse_args(argv)
    if given.rows < 1 or given.owners < 1:
        parser.error("--rows and --owners must be 1 or more")
    began = time.monotonic()
    try:
        made = make(given.folder, given.rows, given.owners)
    except FileExistsError as error:
        parser.error(str(error))
    print(
        f"{made:,} rows of {given.owners:,} owners in {given.folder} after {time.monotonic() - began:.0f} s."
    )
    print(f"Index them: CAIRN_MEMORY__ROOT={given.folder} cairn cascade sync")
    return 0


if __name__ == "__main__":
    sys.exit(main())
