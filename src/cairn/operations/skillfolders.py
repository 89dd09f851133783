"""Skill files outside the memory root: `SKILL.md` files and commands below a folder on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cairn.errors import Invalid, NotFound
from cairn.governed.procedures import SkillFile

MAX_BYTES = 1024 * 1024
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """The skills below one folder; `source` names the folder in the registry."""

    source: str
    files: tuple[SkillFile, ...]


def skill_files(folder: str) -> SkillFolder:
    """Every `SKILL.md` below `folder`, and every `.md` file of a folder called `commands`. Links are not followed.

    Raises:
        NotFound: there is no such folder.
        Invalid: it is a file, or holds more skills than anyone means.
    """
    top = _place(folder)
    if not top.exists():
        raise NotFound(f"{folder}: there is no such folder.", path=folder)
    if not top.is_dir():
        raise Invalid(f"{folder} is a file; name the folder that holds skills.", path=folder)
    source = f"folder:{top}"
    found = []
    for here, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in {".git", "node_modules"})
        for name in sorted(names):
            is_command = name.endswith(".md") and Path(here).name == "commands"
            if name == "SKILL.md" or is_command:
                file = Path(here) / name
                if file.is_symlink():
                    continue
                found.append(_read(file, source))
                if len(found) > MAX_FILES:
                    raise Invalid(f"{folder} holds more than {MAX_FILES} skills.", path=folder)
    return SkillFolder(source, tuple(found))


def one_skill_file(path: str) -> SkillFile:
    """One skill file, wherever it lies; of a folder, its `SKILL.md`.

    Raises:
        NotFound: there is no such file.
        Invalid: it is not a Markdown file, too large, or not UTF-8.
    """
    file = _place(path)
    if file.is_dir():
        file /= "SKILL.md"
    elif file.exists() and file.suffix != ".md":
        raise Invalid(f"{path} is not a Markdown file: name a SKILL.md, or the folder it is in.", path=path)
    return _read(file, "import")


def _place(name: str) -> Path:
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise Invalid(f"{name!r:.60} is no path: name a folder or a SKILL.md.", field="path")
    return Path(name).expanduser().absolute()


def _read(file: Path, source: str) -> SkillFile:
    try:
        info = file.stat()
        if info.st_size > MAX_BYTES:
            raise Invalid(
                f"{file.name} has {info.st_size} bytes; a skill has at most {MAX_BYTES}.", path=str(file)
            )
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file.", path=str(file)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read as UTF-8 text ({error}).", path=str(file)) from None
    changed = datetime.fromtimestamp(info.st_mtime, UTC).isoformat()
    return SkillFile(str(file), text, changed, source)
