"""The memory root: every place in it has a name here, and is a `Locator`, never a path."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.errors import Conflict
from cairn.notes.kinds import kind_named, scope_locator, space_locator, space_of
from cairn.seams import Locator, StorageBackend, TierLayout
from cairn.seams.storage import children
from cairn.types import Scope, Space

OME_TEMPLATE = """\
# Overrides for the offline strategies; read again within seconds of a save.
# Uncomment what should differ from the defaults, for example:
#
# [strategies.extract_foresight]
# enabled = false
"""


class MemoryRoot:
    """Names the places of one memory root. Only `ensure` and `spaces` touch the storage."""

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage

    root = Locator("")
    index = Locator(".index")
    sqlite = Locator(".index/sqlite")
    lancedb = Locator(".index/lancedb")
    tmp = Locator(".tmp")
    locks = Locator(".tmp/locks")
    ome_toml = Locator("ome.toml")

    def tiers(self, space: Space) -> TierLayout:
        """Where the truth, the pages made of it for a space, and the index lie."""
        shared = scope_locator(Scope(space, "project", ""))
        return TierLayout(source=self.root, shared_abstracts=shared.child("pages"), local_index=self.index)

    def ensure(self, ome_template: str = OME_TEMPLATE) -> None:
        """Make the system's own folders and put the strategy template in place if there is none.

        What users see comes into being when something is first written there. A synced root gets no
        `.index/`: a database must not travel with it.
        """
        if not self._storage.capabilities.sync:
            self._storage.mkdir(self.sqlite)
            self._storage.mkdir(self.lancedb)
        self._storage.mkdir(self.tmp)
        if not self._storage.exists(self.ome_toml):
            try:
                self._storage.write(self.ome_toml, ome_template, expect="")
            except Conflict:
                pass  # another process put it there in the meantime

    def spaces(self) -> Iterator[Space]:
        """Every (app, project) space that has a folder, by key order."""
        for app in self._storage.list(self.root):
            if not app.name.startswith("."):
                for project in children(self._storage, app):
                    if (space := space_of(project)) is not None:
                        yield space

    def space(self, space: Space) -> Locator:
        """The folder of an (app, project) space."""
        return space_locator(space)

    def scope(self, scope: Scope) -> Locator:
        """The folder of a user, an agent, a mission or the whole project."""
        return scope_locator(scope)

    def note(self, kind: str, scope: Scope, which: str = "") -> Locator:
        """The note of a kind; `which` is the day of a daily note or the name of a skill."""
        return kind_named(kind).locator(scope, which)

    def knowledge(self, space: Space) -> Locator:
        """The shared library of a space."""
        return space_locator(space).child("knowledge")

    def sessions(self, space: Space) -> Locator:
        """What was said in a space, verbatim."""
        return space_locator(space).child("sessions")

    def journal(self, space: Space, name: str = "") -> Locator:
        """A journal of a space, or the folder that holds them."""
        folder = space_locator(space).child("journal")
        return folder.child(f"{name}.jsonl") if name else folder
