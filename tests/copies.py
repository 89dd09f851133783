"""Every conflict copy of a note merged, as a root does it, without the logs."""

from __future__ import annotations

from cairn.errors import Invalid
from cairn.notes.conflicts import Merge, conflict_copies, merge_conflict_copy
from cairn.notes.notebook import Notebook
from cairn.seams import StorageBackend


def merge_conflict_copies(notebook: Notebook, storage: StorageBackend) -> list[Merge]:
    """Merge each copy of a note; one that cannot be read is reported and left."""
    done = []
    for copy in [one for one in conflict_copies(storage) if not one.log]:
        try:
            done.append(merge_conflict_copy(notebook, storage, copy))
        except Invalid as error:
            done.append(Merge(copy, leftovers=(str(error),)))
    return done
