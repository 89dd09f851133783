"""What the operations on a whole person or session answer."""

from __future__ import annotations

from typing import Annotated, Any

from cairn.operations.answers.shared import LeftItem
from cairn.operations.table import says


class PersonNote:
    """A note of a person's."""

    path: Annotated[str, says("its file", "default_app/default_project/users/alice/user.md")]
    text: Annotated[str, says("as it stands", "---\nid: ...\n---\n")]
    trouble: Annotated[str, says("why it could not be read, where it could not", "")] = ""


class PersonSession:
    """A session a person spoke in."""

    session_id: Annotated[str, says("which", "s1")]
    shared: Annotated[
        bool, says("whether other users spoke in it: then only this person's words are here", False)
    ]
    messages: Annotated[list[dict[str, Any]], says("what was said, word for word", [{"content": "I moved."}])]


class PersonData:
    """Everything that is kept of a person."""

    user_id: Annotated[str, says("the person", "alice")]
    at: Annotated[str, says("when it was looked up", "2026-06-01T09:30:00+00:00")]
    notes: Annotated[list[PersonNote], says("their notes", [])]
    sessions: Annotated[list[PersonSession], says("what they said", [])]
    waiting: Annotated[
        list[dict[str, Any]], says("what hooks of agents have left and the memory has not taken in yet", [])
    ]


class SessionEntry:
    """An entry that was made from a session."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    kind: Annotated[str, says("what it is", "episode")]
    path: Annotated[
        str, says("its file", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    sections: Annotated[dict[str, str], says("what it says", {"Subject": "A move"})]


class SessionData:
    """A session as a whole."""

    session_id: Annotated[str, says("which", "s1")]
    at: Annotated[str, says("when it was looked up", "2026-06-01T09:30:00+00:00")]
    messages: Annotated[list[dict[str, Any]], says("what was said, word for word", [{"content": "I moved."}])]
    entries: Annotated[list[SessionEntry], says("what was made from it", [])]
    waiting: Annotated[
        list[dict[str, Any]], says("what hooks of agents have left and the memory has not taken in yet", [])
    ]


class FarewellData:
    """A person or a session that was forgotten."""

    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    complete: Annotated[bool, says("whether nothing of their own is left below the root", True)]
    dry_run: Annotated[bool, says("whether nothing was removed, only told", False)]
    removed: Annotated[dict[str, int], says("how many of each", {"notes": 5, "messages": 12})]
    sessions: Annotated[list[str], says("sessions that went whole", ["s1"])]
    places: Annotated[list[str], says("files that went or were cleaned", [])]
    stays: Annotated[list[LeftItem], says("what stays, and why", [{"where": "backups", "why": "..."}])]
