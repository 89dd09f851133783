"""Two machines on one synced folder, and the sync program between them, in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import cairn

AT = 1_780_000_000_000
Name = Callable[[str, str, int], str]

NAMES: dict[str, Name] = {
    "Dropbox": lambda stem, end, n: f"{stem} (Ann's conflicted copy 2026-06-{n % 28 + 1:02d}){end}",
    "iCloud": lambda stem, end, n: f"{stem} {n % 90 + 2}{end}",
    "OneDrive": lambda stem, end, n: f"{stem}-ANNS-LAPTOP-{n}{end}",
    "Syncthing": lambda stem, end, n: f"{stem}.sync-conflict-20260603-{n:06d}-ABCDEFG{end}",
    "Google Drive": lambda stem, end, n: f"{stem} ({n % 90 + 1}){end}",
    "Seafile": lambda stem, end, n: f"{stem} (SFConflict ann@example.org 2026-06-03-10-15-{n % 60:02d}){end}",
    "Nextcloud": lambda stem, end, n: f"{stem} (conflicted copy 2026-06-03 {n:06d}){end}",
}


class Machine:
    """One of the two: its copy of the folder, its cache, and the memory opened on it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.root = folder / name
        self._options = {
            "storage__backend": "vault",
            "storage__cache": str(folder / f"cache-{name}"),
            "embedding__provider": "none",
            "strategies__enabled": False,
            "index__engine": "memory",  # what is merged are files
            "background": False,
        }
        self.memory = None

    def __enter__(self):
        self._held = cairn.open_blocking(self.root, **self._options)
        self.memory = self._held.__enter__()
        return self

    def __exit__(self, *error):
        self._held.__exit__(*error)

    def files(self) -> dict[str, bytes]:
        return {
            str(at.relative_to(self.root)): at.read_bytes()
            for at in self.root.rglob("*")
            if at.is_file() and not at.relative_to(self.root).parts[0].startswith(".")
        }

    def put(self, path: str, data: bytes | None) -> None:
        at = self.root / path
        if data is None:
            at.unlink(missing_ok=True)
            return
        at.parent.mkdir(parents=True, exist_ok=True)
        new = at.with_name(f".{at.name}.syncing")
        new.write_bytes(data)
        new.replace(at)


class Sync:
    """Keeps two folders in step as sync programs do: whole files, and a conflict copy where both changed."""

    def __init__(self, one: Machine, two: Machine, name: Name, rng: random.Random) -> None:
        self._machines = (one, two)
        self._name = name
        self._rng = rng
        self._base: dict[str, bytes] = {}
        self.conflicts = 0

    def run(self) -> int:
        """Bring both folders in step; how many conflicts that made."""
        before = self.conflicts
        one, two = (machine.files() for machine in self._machines)
        for path in sorted({*one, *two, *self._base}):
            mine, other, base = one.get(path), two.get(path), self._base.get(path)
            if mine == other:
                chosen = mine
            elif mine == base or (mine is None and other is not None):
                chosen = other
            elif other == base or other is None:
                chosen = mine
            else:
                assert mine is not None and other is not None
                chosen, loser = (mine, other) if self._rng.random() < 0.5 else (other, mine)
                self._beside(path, loser)
            for machine, has in zip(self._machines, (mine, other), strict=True):
                if has != chosen:
                    machine.put(path, chosen)
        self._base = self._machines[0].files()
        return self.conflicts - before

    def _beside(self, path: str, data: bytes) -> None:
        self.conflicts += 1
        at = Path(path)
        name = str(at.with_name(self._name(at.stem, at.suffix, self.conflicts)))
        for machine in self._machines:
            machine.put(name, data)


def said(text: str, who: str, n: int, role: str = "user") -> dict:
    return {"sender_id": who, "role": role, "timestamp": AT + n * 1000, "content": text}
