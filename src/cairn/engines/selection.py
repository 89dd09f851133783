"""Opens the storage engine that the settings name, and says why when it cannot.

There is no fallback. A memory that opens on another backend than its owner chose looks empty, and what is
then written is lost to sight.
"""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any, cast

from cairn.config import Settings
from cairn.engines import files, objects, vault
from cairn.engines.foreign import ForeignBackend
from cairn.errors import CairnError, CapabilityMismatchError, StorageSelectionError
from cairn.seams import BackendRegistry, Capabilities, StorageBackend, registry

__all__ = ["PLUGINS", "find_backend", "select_backend"]

PLUGINS = "cairn.storage"
"""The entry point group in which an installed package offers a backend under its protocol name."""

BUILT_IN = (files.PROTOCOL, vault.PROTOCOL, objects.PROTOCOL)
NEEDED = ("expect", "remove")
"""The extensions without which notes could be overwritten, or never forgotten."""

_IN_MEMORY = "in-memory"


def find_backend(name: str, known: BackendRegistry = registry) -> type[StorageBackend]:
    """The class registered as `name`, or offered under it by an installed package.

    Raises:
        StorageSelectionError: the name is empty, nobody offers it, or its package cannot be loaded.
    """
    if not isinstance(name, str) or not name.strip():
        raise StorageSelectionError("storage.backend is empty. Name a backend, or leave the setting out.")
    found = known.get(name)
    if found is not None:
        return found
    if name == _IN_MEMORY:
        raise StorageSelectionError(
            f'storage.backend = "{name}" would lose everything when the process ends: it is there for tests. '
            f"Choose {' or '.join(known.protocols())}.",
            backend=name,
        )
    offers = [point for point in metadata.entry_points(group=PLUGINS) if point.name == name]
    if not offers:
        raise StorageSelectionError(
            f'storage.backend = "{name}": no such backend. Known are {", ".join(known.protocols())}. '
            "Correct the name, or install the package that offers it.",
            backend=name,
        )
    try:
        known.register(name, cast("Any", offers[0].load()))
    except Exception as error:
        raise StorageSelectionError(
            f'storage.backend = "{name}": its package {offers[0].value} cannot be used '
            f"({type(error).__name__}: {error}).",
            backend=name,
        ) from error
    return cast("type[StorageBackend]", known.get(name))


def select_backend(
    settings: Settings, *, required: Capabilities | None = None, known: BackendRegistry = registry
) -> StorageBackend:
    """Open the configured backend on the configured root.

    It is made by its class's `from_settings`, which by itself gives it nothing but `root=`.

    Args:
        settings: Says which backend (`storage.backend`) and where (`memory.root`).
        required: Capabilities the caller cannot do without.
        known: Where names are looked up.

    Raises:
        StorageSelectionError: it cannot be had. Nothing else is opened in its place.
        CapabilityMismatchError: it lacks what was required; the message names each missing one.
    """
    name = settings.storage.backend
    kind = find_backend(name, known)
    if name == vault.PROTOCOL and "memory.root" not in settings.origins:
        raise StorageSelectionError(
            'storage.backend = "vault" needs the synced folder: set memory.root to it.', backend=name
        )
    lacking = [f'"{extension}"' for extension in NEEDED if extension not in kind.extensions]
    if lacking:
        raise StorageSelectionError(
            f'storage.backend = "{name}": {kind.__name__} cannot carry a memory root, because it does not declare '
            f"the extension {' and '.join(lacking)} beside its seven verbs. Implement it and name it in "
            "`extensions` (docs/engines.md), or choose another backend.",
            backend=name,
        )
    try:
        backend: StorageBackend = kind.from_settings(settings)
        if name not in BUILT_IN:
            backend = ForeignBackend(backend)
    except Exception as error:
        what = (
            str(error).replace("the root:", f"the root {settings.root}:")
            if isinstance(error, CairnError)
            else f"it cannot be opened ({type(error).__name__}: {error})"
        )
        raise StorageSelectionError(f'storage.backend = "{name}": {what}', backend=name) from error
    missing = [
        field.name
        for field in dataclasses.fields(Capabilities)
        if required and getattr(required, field.name) and not getattr(backend.capabilities, field.name)
    ]
    if missing:
        raise CapabilityMismatchError(
            f'storage.backend = "{name}" does not offer {", ".join(missing)}. Choose a backend that does.',
            backend=name,
            missing=tuple(missing),
        )
    return backend
