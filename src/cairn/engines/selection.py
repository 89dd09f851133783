"""Which storage engine carries the truth: by configured name, and loudly when it cannot be had.

There is no fallback. A memory that opens on another backend than its owner chose looks empty, and what is
then written is lost to sight.
"""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any, cast

from cairn.config import Settings
from cairn.engines import files, inmemory, vault
from cairn.errors import CairnError, CapabilityMismatchError, StorageSelectionError
from cairn.seams import BackendRegistry, Capabilities, StorageBackend, registry

__all__ = ["PLUGINS", "find_backend", "select_backend"]

PLUGINS = "cairn.storage"
"""The entry point group in which an installed package offers a backend under its protocol name."""

BUILT_IN = (files.PROTOCOL, inmemory.PROTOCOL, vault.PROTOCOL)


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

    A backend class that has `from_settings(settings)` is made by it, any other with `root=`.

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
    try:
        make = getattr(kind, "from_settings", None)
        backend: StorageBackend = make(settings) if make else cast("Any", kind)(root=settings.root)
    except CairnError as error:
        raise StorageSelectionError(f'storage.backend = "{name}": {error}', backend=name) from error
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
