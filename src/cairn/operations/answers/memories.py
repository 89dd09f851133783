"""What the operations on single governed memories answer: rows, verdicts, receipts, procedures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.answers.shared import FreshnessBlock, LeftItem, MemoryHit
from cairn.operations.table import says


class MemoryRow:
    """A governed memory; more columns follow these."""

    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    scope_owner_id: Annotated[str, says("whose it is", "alice")]
    category: Annotated[str, says("what kind of statement it is", "preference")]
    content: Annotated[str, says("what it says", "Prefers short answers.")]
    importance: Annotated[str, says("how much it matters", "medium")]
    confidence: Annotated[float, says("how sure it is", 0.8)]
    status: Annotated[str, says("candidate, promoted or archived", "promoted")]
    tier: Annotated[int, says("how close to hand it is kept", 2)]
    pinned: Annotated[int, says("1 if it is kept at hand for good", 0)]
    origin: Annotated[str, says("where the words come from", "human")]
    path: Annotated[
        str,
        says("its file in the root", "default_app/default_project/users/alice/memories/memory-2026-06-01.md"),
    ]


class VerdictData:
    """What the gate decided."""

    accepted: Annotated[bool, says("whether it is kept", True)]
    memory: Annotated[MemoryRow | None, says("the memory as it stands", {"id": "mem_20260601_00000001"})] = (
        None
    )
    reason: Annotated[str | None, says("why it was refused or merged", "near_duplicate")] = None
    detail: Annotated[str | None, says("the same in words", "It repeats a memory.")] = None
    deduped: Annotated[bool | None, says("whether it was merged into another", True)] = None
    mergedIntoId: Annotated[str | None, says("into which", "mem_20260601_00000001")] = None  # noqa: N815 -- the contract's name
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 12)] = None
    contradicts: Annotated[
        list[str] | None, says("the memories that say otherwise; both are marked", ["mem_20260601_00000001"])
    ] = None


class MemoriesData:
    """One page of memories."""

    memories: Annotated[list[MemoryRow], says("the memories, newest change first", [])]
    total: Annotated[int, says("how many there are in all", 12)]


class MemorySearchData:
    """The memories that answer."""

    memories: Annotated[list[MemoryHit], says("best first", [])]
    prompt: Annotated[
        str | None, says("text for an agent's context, with for_injection", "Recalled: deploys wait.")
    ] = None
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class FoundItem:
    """A thing that goes, or is merely alike."""

    what: Annotated[str, says("what it is", "memory")]
    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    path: Annotated[
        str, says("its file", "default_app/default_project/users/alice/memories/memory-2026-06-01.md")
    ]
    owner: Annotated[str, says("whose it is", "alice")]
    words: Annotated[str, says("its words", "Lives at Elm Street 12.")]
    why: Annotated[str, says("why it is named", "it was named")]


class ReceiptData:
    """What was forgotten."""

    id: Annotated[str, says("the receipt's id", "forget-20260601T093000Z")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    complete: Annotated[bool, says("whether not a byte of the words is left below the root", True)]
    dry_run: Annotated[bool, says("whether nothing was removed, only told", False)]
    taken: Annotated[list[FoundItem], says("what went", [])]
    alike: Annotated[list[FoundItem], says("what is merely alike and stays", [])]
    removed: Annotated[dict[str, int], says("how many of each", {"entries": 2})]
    places: Annotated[list[str], says("where something was removed", ["notes"])]
    left: Annotated[list[LeftItem], says("what could not be removed", [])]


class HistoryItem:
    """One thing that happened to a memory; what is empty is left out."""

    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    what: Annotated[str, says("what happened", "edited")]
    by: Annotated[str, says("who did it", "human")] = ""
    reason: Annotated[str, says("why", "the pipeline is new")] = ""
    old: Annotated[dict[str, Any] | None, says("fields as they were", {"content": "We use spaces."})] = None
    new: Annotated[dict[str, Any] | None, says("fields as they are since", {"content": "We use tabs."})] = (
        None
    )


class HistoryData:
    """Everything on record about a memory."""

    history: Annotated[list[HistoryItem], says("oldest first", [])]


class WhyData:
    """Why a memory is kept as it is."""

    why: Annotated[list[str], says("in sentences", ["A person said it on 2026-06-01."])]


class OutcomeItem:
    """How one use of a procedure went."""

    id: Annotated[str, says("its number", "2026-06-01T09:30:00+00:00#1")]
    outcome: Annotated[Literal["success", "failure"], says("how it went", "success")]
    confidence: Annotated[float, says("how sure the procedure was after it", 0.62)]
    reason: Annotated[str | None, says("why", "the deploy went through")]
    recorded_at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]


class ProcedureSource:
    """What a procedure was learned from."""

    episode_memory_id: Annotated[str, says("the episode or case", "coder_ac_20260601_00000001")]
    created_at: Annotated[str, says("when it was noted", "2026-06-01T09:30:00+00:00")]


class ProcedureData:
    """A procedure as a whole."""

    id: Annotated[str, says("its id", "mem_20260601_00000001")]
    content: Annotated[str, says("what it is", "Roll back a failed deploy")]
    trigger: Annotated[str, says("when it applies", "a deploy fails")]
    procedure: Annotated[str, says("how it goes", "1. Roll back. 2. Tell.")]
    status: Annotated[str, says("candidate, promoted or archived", "promoted")]
    pinned: Annotated[bool, says("whether it is kept at hand", True)]
    confidence: Annotated[float, says("how sure it is", 0.81)]
    success_count: Annotated[int, says("how often it worked", 3)]
    failure_count: Annotated[int, says("how often it did not", 0)]
    last_used_at: Annotated[str | None, says("when it was used last", "2026-06-01T09:30:00+00:00")]
    exported_skill_path: Annotated[str | None, says("its skill file", None)]
    superseded_by_memory_id: Annotated[str | None, says("what replaced it", None)]
    history: Annotated[list[OutcomeItem], says("every outcome, oldest first", [])]
    sources: Annotated[list[ProcedureSource], says("what it was learned from", [])]
