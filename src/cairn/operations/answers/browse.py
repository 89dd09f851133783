"""What looking through a memory answers: owners, days, cards, what is coming up."""

from __future__ import annotations

from typing import Annotated

from cairn.operations.answers.shared import FreshnessBlock
from cairn.operations.table import says


class OverviewOwner:
    """One owner of memory."""

    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("user, agent, mission or project", "user")]
    owner: Annotated[str, says("who; empty for the project itself", "alice")]
    kinds: Annotated[dict[str, int], says("how many entries of each kind", {"episode": 12})]


class OverviewData:
    """Who has a memory here."""

    owners: Annotated[list[OverviewOwner], says("every owner that may be seen", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class EntryCard:
    """An entry as one line of a listing."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    kind: Annotated[str, says("what it is", "episode")]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    owner: Annotated[str, says("whose it is", "alice")]
    title: Annotated[str, says("in a few words", "A move to Lisbon")]
    text: Annotated[str, says("the beginning of its text", "On 1 June 2026 Alice said ...")]
    timestamp: Annotated[str, says("when; empty where unknown", "2026-06-01T09:30:00+00:00")]
    session_id: Annotated[str, says("the session it was said in", "s1")]
    status: Annotated[str, says("of a memory: candidate, promoted or archived", "promoted")]
    category: Annotated[str, says("of a memory: what kind of statement", "preference")]
    pinned: Annotated[bool, says("whether it is kept at hand for good", False)]
    origin: Annotated[str, says("of a memory: where the words come from", "human")]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md"
        ),
    ]


class DayCount:
    """How much there is of one day."""

    day: Annotated[str, says("the day, in the display zone", "2026-06-01")]
    count: Annotated[int, says("how many entries", 12)]


class TimelineData:
    """Entries, newest first."""

    entries: Annotated[list[EntryCard], says("the entries", [])]
    total: Annotated[int, says("how many there are in all", 420)]
    days: Annotated[list[DayCount] | None, says("entries of each day, where asked for", [])] = None
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class UpcomingItem(EntryCard):
    """A plan."""

    starts: Annotated[str, says("when its time begins; of a deadline the day it was told", "2026-06-01")]
    ends: Annotated[str, says("when its time ends", "2026-06-12")]
    due: Annotated[str, says("the day to be shown: when it is due; empty where none was told", "2026-06-12")]


class UpcomingData:
    """What is coming up."""

    entries: Annotated[list[UpcomingItem], says("plans, the soonest first", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class SaidItem:
    """Words behind an entry."""

    sender: Annotated[str, says("who said it", "Alice")]
    text: Annotated[str, says("what was said", "I moved to Lisbon in May.")]


class FoundCard(EntryCard):
    """An entry that answers."""

    score: Annotated[float, says("how well it answers", 0.83)]
    facts: Annotated[list[str] | None, says("its facts that answer", ["Alice lives in Lisbon."])] = None
    said: Annotated[list[SaidItem] | None, says("verbatim words behind it", [])] = None
    explain: Annotated[
        dict[str, float] | None, says("what each leg contributed, where asked for", {"words": 0.4})
    ] = None


class FoundData:
    """What was found in everybody's memory."""

    hits: Annotated[list[FoundCard], says("best first", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class LinkedData:
    """How an entry is connected."""

    came_from: Annotated[list[EntryCard], says("the entry it was made from", [])]
    made_from_it: Annotated[list[EntryCard], says("what was made from it", [])]
    supersedes: Annotated[list[EntryCard], says("what it replaces", [])]
    superseded_by: Annotated[list[EntryCard], says("what replaced it", [])]
    contradicts: Annotated[list[EntryCard], says("what says otherwise", [])]


class Connection:
    """Two entries that hang together."""

    from_id: Annotated[str, says("the newer of the two", "alice_af_20260801_00000001")]
    to_id: Annotated[str, says("the other", "alice_af_20260601_00000001")]
    how: Annotated[str, says("replaces, contradicts, or same talk", "replaces")]


class ConnectionsData:
    """How entries hang together."""

    entries: Annotated[list[EntryCard], says("every entry that a link names, newest first", [])]
    links: Annotated[list[Connection], says("the links, the newest first", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class RevisedData:
    """An entry that was put right."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    version: Annotated[str, says("its version from now on", "9f86d081884c7d65")]
