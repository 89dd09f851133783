"""Search as of a past time: an index over the entries a scope held then."""

from __future__ import annotations

from datetime import datetime, tzinfo

from cairn.notes.kinds import place_of
from cairn.retrieval.lexical import NoteScan, ScannedScope
from cairn.retrieval.reading import read_note
from cairn.seams import Locator
from cairn.timetravel.changes import Observer
from cairn.types import Scope


def known_at(
    observer: Observer, scan: NoteScan, scope: Scope, when: datetime, zone: tzinfo
) -> ScannedScope | None:
    """What a scope held at `when`; None where nothing had been recorded by then.

    Entries are as their text stood then, later edits and removals undone; messages are those said by then.
    """
    observer.look_around()
    texts = observer.of(scope.space).as_of(when)
    blocks: dict[str, list[str]] = {}
    for (path, _), text in sorted(texts.items()):
        blocks.setdefault(path, []).append(text)
    rows = []
    for path, found in blocks.items():
        place = place_of(Locator(path))
        if place is None or place.scope != scope or place.kind.storage != "daily":
            continue
        note = place.kind.parse("\n".join(found))
        rows += [new.row for new in read_note(place, note, path, {}, zone=zone).rows]
    return scan.told_by(scope, rows, when) if texts else None
