"""What keeping memories in order answers: captures, agents, sweeps, consolidations, core memory, skills, pages."""

from __future__ import annotations

from typing import Annotated, Any

from cairn.operations.answers.memories import VerdictData
from cairn.operations.table import says


class Move:
    """A change of state."""

    id: Annotated[str, says("the memory", "mem_20260601_00000001")]
    move: Annotated[str, says("what happened", "demoted")]
    reason: Annotated[str, says("why", "not read for 30 days")]


class CaptureData:
    """What became of what was fed in."""

    captured: Annotated[bool, says("whether it is kept now", True)]
    reason: Annotated[str | None, says('why not: "known" if its source was taken in before', None)]
    verdict: Annotated[VerdictData | None, says("what the gate said", None)]


class CaptureRow:
    """One source that was taken in."""

    id: Annotated[str, says("its id", "led_0123456789abcdef")]
    project_id: Annotated[str, says("the space", "default/default")]
    source_type: Annotated[str, says("what it is", "pr_feedback")]
    source_key: Annotated[str, says("what tells it from others", "pr-17/comment-3")]
    memory_id: Annotated[str | None, says("the memory it became", "mem_20260601_00000001")]
    episode_memory_id: Annotated[str | None, says("the episode it belongs to", None)]
    metadata: Annotated[dict[str, Any], says("what else is known", {})]
    created_at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class CapturesData:
    """The sources that were taken in."""

    captures: Annotated[list[CaptureRow], says("the newest first", [])]
    total: Annotated[int, says("how many there are", 3)]


class IdentityData:
    """Who an agent is."""

    id: Annotated[str, says("its id", "coder")]
    project_id: Annotated[str, says("the space", "default/default")]
    name: Annotated[str, says("what it is called", "The coder")]
    profile: Annotated[dict[str, Any], says("what it is", {"role": "reviewer"})]
    persona: Annotated[dict[str, Any], says("how it speaks", {"tone": "dry"})]
    tool_policy: Annotated[dict[str, Any], says("what it may use", {"shell": "ask"})]
    user_preferences: Annotated[dict[str, Any], says("what its people prefer", {"language": "en"})]
    heartbeat: Annotated[dict[str, Any] | None, says("when it wakes by itself", None)]
    model_preference: Annotated[str | None, says("the model it should run on", None)]
    created_at: Annotated[str, says("since when", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class AgentsData:
    """The agents of a space."""

    agents: Annotated[list[IdentityData], says("those with an identity", [])]


class AgentData:
    """One agent."""

    identity: Annotated[IdentityData | None, says("who it is, where that is on record", None)]
    documents: Annotated[dict[str, str], says("its documents by name", {"soul": "Speak plainly."})]


class AgentDocumentData:
    """A document that was written."""

    path: Annotated[str, says("its file in the root", "default_app/default_project/agents/coder/soul.md")]
    lsn: Annotated[int, says("the change to wait for with min_lsn; 0 if nothing changed", 12)]


class RunItem:
    """A piece of work that wrote many entries."""

    run_id: Annotated[str, says("its id, to undo it by", "con_0123456789ab")]
    kind: Annotated[
        str, says("consolidation, sweep, reflection, correction, import, mission or undo", "consolidation")
    ]
    at: Annotated[str, says("when it began to write", "2026-06-01T10:00:00+00:00")]
    entries: Annotated[int, says("how many changes of entries it made", 4)]
    undone_at: Annotated[str | None, says("when it was taken back, if it was", None)]


class KeepingRuns:
    """When memories were kept in order, and what else wrote many of them."""

    runs: Annotated[list[RunItem], says("every kind of run, newest first", [])]
    last_sweep: Annotated[dict[str, Any] | None, says("the last sweep with its counts", None)]
    last_consolidation: Annotated[dict[str, Any] | None, says("the last consolidation", None)]
    sweeps: Annotated[list[dict[str, Any]], says("the sweeps, newest first", [])]
    consolidations: Annotated[list[dict[str, Any]], says("the consolidations, newest first", [])]


class DailyData:
    """The daily log."""

    days: Annotated[dict[str, Any], says("the lines of each day", {"2026-06-01": ["- 09:30 Released 2.0."]})]


class SweepData:
    """What a sweep did."""

    sweep_id: Annotated[str, says("its id", "swp_0123456789ab")]
    trigger_reason: Annotated[str, says("why it ran", "manual")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    entries_decayed: Annotated[int, says("how many lost score", 4)]
    entries_demoted: Annotated[int, says("how many went further away", 1)]
    entries_promoted: Annotated[int, says("how many were promoted", 0)]
    entries_archived: Annotated[int, says("how many were put away", 1)]
    entries_orphaned: Annotated[int, says("how many had lost what they were about", 0)]
    transitions: Annotated[list[Move], says("each change of state", [])]


class Merged:
    """A cluster that became one memory."""

    scope: Annotated[str, says("whose kind of memory", "project")]
    owner: Annotated[str, says("whose", "")]
    category: Annotated[str, says("what kind of statement", "fact")]
    new_id: Annotated[str | None, says("the new memory, where one was made", "mem_20260601_00000009")]
    originals: Annotated[list[str], says("what it was made from", ["mem_20260601_00000001"])]


class ConsolidateData:
    """What was merged."""

    run_id: Annotated[str, says("the run, to undo it by", "con_0123456789ab")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    merged: Annotated[list[Merged], says("each cluster", [])]


class MissionEndData:
    """What became of a run's memories."""

    run_id: Annotated[str, says("the run", "run-42")]
    success: Annotated[bool, says("how it ended", True)]
    promoted: Annotated[list[str], says("what went to the project", ["mem_20260601_00000003"])]
    archived: Annotated[list[str], says("what was put away", [])]
    already: Annotated[bool, says("whether it had ended before", False)]


class CoreData:
    """The small document an agent always has before it."""

    projectSummary: Annotated[str, says("what the project is", "A parser for tide tables.")]  # noqa: N815 -- the contract's name
    criticalConventions: Annotated[list[str], says("what must be kept to", ["Tabs"])]  # noqa: N815 -- the contract's name
    userPreferences: Annotated[list[str], says("what its people prefer", ["Short answers"])]  # noqa: N815 -- the contract's name
    activeFocus: Annotated[list[str], says("what is worked on", ["the 2.0 release"])]  # noqa: N815 -- the contract's name
    notes: Annotated[list[str], says("what else to know", ["Mind the tide."])]
    version: Annotated[int, says("grows with each change; 0 where there is none yet", 3)]
    updatedAt: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]  # noqa: N815 -- the contract's name


class SkillItem:
    """A skill file that is known; more columns follow these."""

    path: Annotated[str, says("the file", "skills/deploy/SKILL.md")]
    kind: Annotated[str, says("a skill or a command", "skill")]
    memory_id: Annotated[str | None, says("the memory that stands for it", "mem_20260601_00000004")]
    archived_at: Annotated[str | None, says("since when it is gone", "2026-06-02T00:00:00+00:00")]


class SkillsData:
    """The skill files that are known."""

    skills: Annotated[list[SkillItem], says("tombstones included", [])]


class RefusedFile:
    """A file that was not taken."""

    path: Annotated[str, says("the file", "skills/x/SKILL.md")]
    reason: Annotated[str, says("why", "it has no name")]


class ScanData:
    """What a look at skill files found."""

    added: Annotated[list[str], says("new ones", ["skills/deploy/SKILL.md"])]
    changed: Annotated[list[str], says("changed ones", [])]
    removed: Annotated[list[str], says("those that are gone", [])]
    unchanged: Annotated[list[str], says("the rest", [])]
    superseded: Annotated[list[str], says("memories that newer files replaced", [])]
    refused: Annotated[list[RefusedFile], says("files that were not taken", [])]


class SkillPath:
    """Where a skill was written."""

    path: Annotated[str, says("the file in the root", "default_app/default_project/skills/deploy/SKILL.md")]


class RefusedItem:
    """An item that was not taken."""

    key: Annotated[str, says("which", "item 3")]
    reason: Annotated[str, says("why", "empty")]


class ImportData:
    """What was taken in."""

    kept: Annotated[list[str], says("new memories", ["mem_20260601_00000005"])]
    merged: Annotated[list[str], says("memories that said the same", [])]
    known: Annotated[list[str], says("items that were taken in before", [])]
    refused: Annotated[list[RefusedItem], says("items that were not taken", [])]


class PageEdit:
    """A page that somebody had edited."""

    page: Annotated[str, says("the page", "MEMORY.md")]
    kept_as: Annotated[str, says("where the edit is kept", "MEMORY.edited.md")]


class PagesData:
    """What became of the pages."""

    written: Annotated[list[str], says("pages that changed", ["MEMORY.md"])]
    unchanged: Annotated[list[str], says("pages that were current", [])]
    edited: Annotated[list[PageEdit], says("pages that had been edited by hand", [])]
