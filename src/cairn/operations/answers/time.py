"""What time travel answers: changes, checkpoints, differences, what was restored or taken back."""

from __future__ import annotations

from typing import Annotated, Literal

from cairn.operations.table import says


class ChangeItem:
    """One change of an entry."""

    id: Annotated[str, says("the change, to restore what was before it", "ent-000001")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    before: Annotated[str | None, says("the hash of its text before", "9f86d081")]
    after: Annotated[str | None, says("the hash of its text after", "60303ae2")]
    cause: Annotated[str, says("what changed it", "edit")]
    action: Annotated[Literal["added", "changed", "removed"], says("what happened", "changed")]
    words: Annotated[
        str,
        says(
            "in one line, what came, went or is different; empty where it was forgotten", "I live in Lisbon"
        ),
    ]
    diff: Annotated[str | None, says("line by line, where asked for", "-Porto\n+Lisbon")] = None


class LogData:
    """Changes of entries."""

    changes: Annotated[list[ChangeItem], says("newest first", [])]


class CheckpointData:
    """A marked moment."""

    id: Annotated[str, says("its id", "chk-000001")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    changes: Annotated[int, says("how many changes there were by then", 12)]
    hash: Annotated[str, says("the hash of all of them", "9f86d081")]
    label: Annotated[str, says("what it is called", "before the move")]


class CheckpointsData:
    """The marked moments."""

    checkpoints: Annotated[list[CheckpointData], says("oldest first", [])]


class DifferenceItem:
    """An entry that is different now."""

    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    action: Annotated[Literal["added", "changed", "removed"], says("what happened", "changed")]
    diff: Annotated[str, says("the difference, line by line", "-Porto\n+Lisbon")]


class DiffData:
    """What is different now."""

    differences: Annotated[list[DifferenceItem], says("each entry", [])]


class RestoredItem:
    """An entry that was, or would be, brought back."""

    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    action: Annotated[
        Literal["write", "remove", "purged"], says('"purged" for one whose text was forgotten since', "write")
    ]


class RestoreData:
    """What was brought back."""

    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    entries: Annotated[list[RestoredItem], says("each entry", [])]


class TakenBack:
    """What became of one entry of a run."""

    path: Annotated[str, says("its note", "default_app/default_project/shared/memories/memory-2026-06-01.md")]
    entry: Annotated[str, says("its id", "mem_20260601_00000001")]
    action: Annotated[
        Literal["write", "remove", "kept", "purged"],
        says(
            "put back, taken out, kept because it was changed since, or gone because it was forgotten",
            "write",
        ),
    ]


class UndoneData:
    """What was taken back."""

    run_id: Annotated[str, says("the run", "con_0123456789ab")]
    kind: Annotated[str, says("what it was", "consolidation")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    restored: Annotated[int, says("how many entries are as they were before", 3)]
    kept: Annotated[int, says("how many were changed since and stay", 0)]
    entries: Annotated[list[TakenBack], says("each entry that was not as before the run", [])]


class FoldData:
    """What was dropped of the history."""

    dry_run: Annotated[bool, says("whether nothing was dropped, only told", False)]
    texts: Annotated[int, says("former texts that went", 120)]
    characters: Annotated[int, says("how long they were together", 48000)]
