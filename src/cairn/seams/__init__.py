"""All that can be swapped, each promise in prose: smaller ones share a module, and the suite of each in `cairn.testing`.

`StorageBackend` (seven verbs over `Locator`s, three declared extensions) carries the truth, `Journals` (append-only
lines) included. Beside it stand smaller seams: `Locks` (units of work and leases), `State` (the change queue, which
may vanish at any moment) and `Jobs`, `Embedder` and `Writer` (models, both optional), and `Clock`. The index's own
contract stands with its values, in `index/corpus.py` (reading: `SearchIndex`, writing: `RowStore`).
"""

from cairn.errors import InvalidLocatorError, ProtocolError
from cairn.seams.models import Clock, Completion, Embedder, SystemClock, Writer
from cairn.seams.queues import Glance, Jobs, Known, Noticed, QueueCounts, State
from cairn.seams.storage import (
    EXTENSIONS,
    BackendRegistry,
    Capabilities,
    DerivedMaintenance,
    Info,
    Journals,
    JournalSlice,
    Locator,
    Locks,
    StorageBackend,
    Tier,
    TierLayout,
    checked_new_name,
    content_hash,
    normalize_key,
    registry,
)

__all__ = [
    "EXTENSIONS",
    "BackendRegistry",
    "Capabilities",
    "Clock",
    "Completion",
    "DerivedMaintenance",
    "Embedder",
    "Glance",
    "Info",
    "InvalidLocatorError",
    "Jobs",
    "JournalSlice",
    "Journals",
    "Known",
    "Locator",
    "Locks",
    "Noticed",
    "ProtocolError",
    "QueueCounts",
    "State",
    "StorageBackend",
    "SystemClock",
    "Tier",
    "TierLayout",
    "Writer",
    "checked_new_name",
    "content_hash",
    "normalize_key",
    "registry",
]
