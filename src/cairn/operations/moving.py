"""A memory from a folder to a bucket and back, and its notes in a folder that a person edits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cairn.errors import Invalid, NotFound
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.table import Room, operation, says

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.pulling import PulledFolder
    from cairn.seams import Locator

answers = Answers("upkeep")

BUCKET = "s3://"


class Moving(Room):
    """What takes a whole memory, or its notes, to another place and back."""

    @operation(writes=True, answers=answers.MovedData, allow=rules.root(write=True), apart=True)
    def move_to(
        self,
        target: Annotated[
            str, says("a folder, or a bucket as s3://bucket/prefix", "s3://bucket/prefix", low=1, here=True)
        ],
        *,
        database: Annotated[
            str, says("the PostgreSQL beside a bucket (default storage.database)", "postgresql://db/cairn")
        ] = "",
        endpoint: Annotated[
            str, says("the address of the store (default storage.endpoint)", "https://store.example")
        ] = "",
    ) -> dict[str, Any]:
        """Copy this memory to another storage while it is in use, read everything back, and say what is there.

        A call that was interrupted, or after which something was written here, is made again: it brings over what
        changed. To change over: move, stop the servers here, move again, start them there.

        Raises:
            Conflict: the target holds a memory that was not moved there from here, or was written to since.
            Invalid: there is nothing to move, or the target lies in this memory.
        """
        from cairn.engines.selection import select_backend
        from cairn.moving import move

        settings = place_settings(self.settings, target, database=database, endpoint=endpoint)
        there = address_of(settings)
        here = address_of(self.settings)
        if there == here or (
            not there.startswith(BUCKET) and Path(there).is_relative_to(self.settings.root.resolve())
        ):
            raise Invalid(f"{target} lies in the memory itself: choose a place outside.", target=target)
        storage = select_backend(settings)
        try:
            done = move(self.parts.storage, storage, here, there)
            storage.archive()
        finally:
            storage.close()
        return {"target": there, **dataclasses.asdict(done)}

    @operation(writes=True, answers=answers.PulledData, allow=rules.root(write=True), apart=True)
    def pull(
        self,
        folder: Annotated[str, says("a new folder, or one pulled into before", "notes", low=1, here=True)],
        *,
        under: Annotated[
            str | None,
            says(
                "only notes below this place of the root",
                "default_app/default_project/users/alice",
                high=4096,
            ),
        ] = None,
    ) -> dict[str, Any]:
        """Bring the notes into a folder to edit them there; edits in it stay, and theirs is put beside a conflict.

        Raises:
            Conflict: the folder holds other things, or notes of another memory.
        """
        with self._folder(folder) as opened:
            return _told(opened.pull(under))

    @operation(writes=True, answers=answers.PushedData, allow=rules.root(write=True), apart=True)
    def push(
        self,
        folder: Annotated[str, says("a folder that was pulled into", "notes", low=1, here=True)],
        *,
        delete: Annotated[bool, says("also remove notes that were deleted in the folder", True)] = False,
    ) -> dict[str, Any]:
        """Take the edits of a pulled folder back; a note that changed meanwhile is a conflict and stays as it is.

        Raises:
            NotFound: there is no such folder.
            Invalid: nothing was pulled into it.
        """
        parts = self.parts
        notebook = parts.notebook

        def write(at: Locator, text: str, base: str) -> None:
            parts.storage.write(at, text, expect=base)
            notebook.announce(at, "modified" if base else "added")

        def drop(at: Locator) -> None:
            parts.storage.remove(at)
            notebook.announce(at, "deleted")

        with self._folder(folder, is_there=True) as opened:
            return _told(opened.push(write, parts.locks.hold, drop, delete=delete))

    @operation(writes=True, answers=answers.ReadBackData, allow=rules.root(write=True), apart=True)
    def read_back(self) -> dict[str, Any]:
        """After the database of several servers was lost: read its journals back from the bucket, and say what is missing.

        A new or older database is brought up to the bucket at every start; this tells of the last time. What this machine
        had indexed and no log has any more is named word for word, as long as nothing was indexed since: so ask each
        machine before its server is started.
        """
        found = self.parts.storage.read_back()
        if found is None:
            raise Invalid(
                "This memory has no database to lose: its logs are files. Nothing to do.", field="storage"
            )
        return {**dataclasses.asdict(found), "journals": list(found.journals), "missing": self._missing()}

    def _missing(self) -> list[dict[str, Any]]:
        """The messages of this machine's index that no log has."""
        from cairn.seams import Locator
        from cairn.talk.sessions import place_of_session

        index, logs, lost = self.parts.index, self.parts.sessions, []
        for path in index.known_paths():
            if place_of_session(at := Locator(path)) is None:
                continue
            said = {message.id for message in logs.load(at, keep=False).messages}
            for scope, entry_id in index.stored(path):
                lost += [row for row in index.find(scope, [entry_id], "message") if entry_id not in said]
        told = {
            row.entry_id: {
                "session": row.path,
                "id": row.entry_id,
                "sender_ids": list(row.sender_ids),
                "at": datetime.fromtimestamp(row.timestamp_ms / 1000, UTC).isoformat(),
                "text": row.text,
            }
            for row in lost
        }
        return sorted(told.values(), key=lambda one: (one["session"], one["at"]))

    @contextmanager
    def _folder(self, folder: str, *, is_there: bool = False) -> Iterator[PulledFolder]:
        from cairn.engines.files import DeviceLocalBackend
        from cairn.pulling import PulledFolder

        place = Path(folder).expanduser().resolve()
        if place.is_relative_to(self.settings.root.resolve()):
            raise Invalid(f"{folder} lies in the memory root: choose a place outside of it.", folder=folder)
        if is_there and not place.is_dir():
            raise NotFound(f"{folder}: there is no such folder.", folder=folder)
        yield PulledFolder(DeviceLocalBackend(place), self.parts.storage, address_of(self.settings))


def place_settings(base: Settings, address: str, *, database: str = "", endpoint: str = "") -> Settings:
    """The settings of the memory at an address: a bucket with what `base` says of buckets, or a plain folder."""
    from cairn.config import load

    if not address.startswith(BUCKET):
        if "://" in address:
            raise Invalid(f"{address}: give a folder, or a bucket as s3://bucket/prefix.", address=address)
        return load(Path(address).expanduser().resolve(), environ={}, storage__backend="device-local")
    storage = dataclasses.replace(
        base.storage,
        backend="s3",
        url=address.rstrip("/"),
        database=database or base.storage.database,
        endpoint=endpoint or base.storage.endpoint,
    )
    return dataclasses.replace(base, storage=storage)


def address_of(settings: Settings) -> str:
    """What a memory is called: its bucket, or its folder."""
    return settings.storage.url if settings.storage.backend == "s3" else str(settings.root.resolve())


def _told(done: Any) -> dict[str, Any]:
    data = dataclasses.asdict(done)
    return data | {"conflicts": [{"path": path, "diff": diff} for path, diff in done.conflicts]}
