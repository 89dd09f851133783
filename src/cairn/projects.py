"""Opening the memory of a repository: the one place where its engines are picked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.errors import CairnError, Invalid
from cairn.project import git
from cairn.project.project import ProjectMemory
from cairn.types import Space

if TYPE_CHECKING:
    import os

    from cairn.project.imports import Capture
    from cairn.seams import Writer


def open_project(
    folder: str | os.PathLike[str] = ".", *, writer: Writer | None = None, capture: Capture | None = None
) -> ProjectMemory:
    """The memory of the work tree that `folder` belongs to; its calls are synchronous.

    Args:
        folder: Any folder of a git work tree, or a plain folder.
        writer: A language model, or None: every command works without one.
        capture: Where messages of imported sessions go as well.

    Raises:
        Invalid: there is no such folder.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise Invalid(f"{folder} is not a folder.", path=str(folder))
    tree = git.top_of(place)
    storage = DeviceLocalBackend(tree)
    return ProjectMemory(
        tree,
        storage=storage,
        journals=storage.journals,
        locks=FileLocks(tree / ".cairn" / "locks"),
        writer=writer,
        capture=capture,
    )


def space_at(folder: str) -> Space:
    """The space of the repository at `folder`; the general one where there is no repository."""
    project = _repository(folder)
    return project.space if project is not None else Space()


def space_of_talk(folder: str) -> Space:
    """The same for what is said there: the clone notes the name, so that it is asked under a later one, too."""
    project = _repository(folder)
    if project is None:
        return Space()
    space = project.space
    git.keep_name(project.tree, space)
    return space


def spaces_at(folder: str) -> list[Space]:
    """Where talk of the repository at `folder` may lie, its space first; the general one where there is no repository."""
    project = _repository(folder)
    return project.spaces if project is not None else [Space()]


def unbound_at(folder: str) -> str | None:
    """Why the space that the repository at `folder` names for itself is not used, with the next step; None where it is."""
    project = _repository(folder)
    try:
        return project.unbound if project is not None else None
    except CairnError as error:
        return str(error)


def _repository(folder: str) -> ProjectMemory | None:
    """That of `folder`, or, where the folder is gone, of the nearest one above it that is there."""
    place = Path(folder)
    while place.is_absolute() and place != place.parent and not place.is_dir():
        place = place.parent
    if not folder or not place.is_dir():
        return None
    try:
        return open_project(place) if (git.top_of(place) / ".git").exists() else None
    except CairnError:
        return None
