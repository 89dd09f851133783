"""The smallest honest derived tier, for the rebuild check."""

from cairn.engines.inmemory import InMemoryBackend
from cairn.seams import DerivedMaintenance, Locator, TierLayout


class Mirror(DerivedMaintenance):
    """A derived tier that copies the source: the smallest honest one."""

    def __init__(self, backend):
        self.backend, self.layout = backend, TierLayout()

    def reindex(self, tier):
        for key, _, _ in list(self.backend.scan(self.layout.source)):
            text = self.backend.read(Locator(key))
            self.backend.write(self.layout.root_for(tier).child(key.removeprefix("source/")), text)

    def changed_since(self, mtime):
        found = [Locator(key) for key, _, _ in self.backend.scan(self.layout.source)]
        return [place for place in found if self.backend.info(place).mtime > mtime]


class Mirrored(InMemoryBackend):
    @property
    def derived_maintenance(self):
        return Mirror(self)
