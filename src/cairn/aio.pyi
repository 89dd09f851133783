"""The same calls awaited. Made by `make docs` from the operations; change those."""

import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from cairn.config import Settings
from cairn.governed.consolidation import ConsolidationReport
from cairn.governed.forget import Receipt
from cairn.governed.lifecycle import SweepReport
from cairn.governed.memories import HistoryLine
from cairn.governed.migrate import ImportReport
from cairn.governed.missions import MissionEnd
from cairn.governed.pages import PagesReport
from cairn.governed.skills import ScanReport
from cairn.memory import Memories, Memory
from cairn.operations.memories import MemoryPage
from cairn.operations.recall import MemoryType, Method
from cairn.operations.recalling import Recalled
from cairn.parts import Parts
from cairn.retrieval.answers import SearchResult
from cairn.retrieval.listing import GetResult
from cairn.seams import Clock
from cairn.talk import AddOutcome, FlushOutcome
from cairn.types import Message, Verdict

_T = TypeVar("_T")

class Pools:
    """The threads that calls run in while the memory is open."""

    async def run(self, call: Callable[[], _T], *, writes: bool) -> _T: ...

class AsyncMemory:
    """`Memory`, each call awaited. Takes what `Memory` takes; use it inside an `async with` statement."""

    memory: Memory
    memories: AsyncMemories
    pools: Pools

    def __init__(self, settings: Settings, *, background: bool = ..., clock: Clock | None = ...) -> None: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def parts(self) -> Parts: ...
    async def __aenter__(self) -> AsyncMemory: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def add(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        app_id: str = "default",
        project_id: str = "default",
        *,
        defer_extraction: bool = False,
        idempotency_key: str | None = None,
        mode: Literal["chat", "agent"] | None = None,
        limited_to: Collection[str] | None = None,
    ) -> AddOutcome:
        """Keep `messages`, all or none, durably before this returns."""
    async def brief(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        folder: str | None = None,
        app_id: str = "default",
        project_id: str | None = None,
        token_budget: int = 1500,
    ) -> Recalled:
        """What a new session should know: core memory, what was promoted, how the project stands, what is due."""
    async def checkpoint(
        self, label: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """Mark this moment, to compare with or come back to."""
    async def checkpoints(
        self, *, app_id: str = "default", project_id: str = "default"
    ) -> builtins.list[dict[str, Any]]:
        """Every marked moment."""
    async def diff(
        self, target: str, *, app_id: str = "default", project_id: str = "default"
    ) -> builtins.list[dict[str, Any]]:
        """What is different now from a checkpoint or a time."""
    async def doctor(self) -> builtins.list[dict[str, Any]]:
        """Look for trouble everywhere; each finding names the next step."""
    async def export_to(self, target: str, *, with_secrets: bool = False) -> dict[str, Any]:
        """Copy the truth into a new folder or a .tar.gz archive, readable by its owner alone."""
    async def failures(self, *, retry: bool = False) -> builtins.list[dict[str, Any]]:
        """Changes that could not be indexed, with reasons; with `retry` the retryable ones are queued again."""
    async def flush(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> FlushOutcome:
        """Close the session's open stretch now; its episode is on disk before this returns."""
    async def gauges(self) -> dict[str, tuple[str, float]]:
        """Figures for /metrics."""
    async def get(
        self,
        memory_type: MemoryType,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
        page: int = 1,
        page_size: int = 20,
        sort_by: Literal["timestamp", "updated_at"] = "timestamp",
        sort_order: Literal["asc", "desc"] = "desc",
        filters: Mapping[str, Any] | None = None,
        consistency: Literal["eventual", "strong"] = "eventual",
    ) -> GetResult:
        """One page of an owner's memories of one type, newest first unless asked otherwise."""
    async def health(self) -> dict[str, Any]:
        """Status, capabilities and the index's health; quick whatever else goes on."""
    async def import_from(self, source: str) -> dict[str, Any]:
        """Bring in an export, a folder or another program's memory root; nothing here is overwritten."""
    async def index_status(self) -> dict[str, Any]:
        """The queue, the index and who works on it."""
    async def log(
        self,
        entry_id: str | None = None,
        *,
        limit: int = 100,
        app_id: str = "default",
        project_id: str = "default",
    ) -> builtins.list[dict[str, Any]]:
        """Changes of entries, newest first: of one entry by the id `search` gives or `path#id`, or of all."""
    async def rebuild(self) -> dict[str, Any]:
        """Make the whole index anew from the files."""
    async def recall(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        mission_id: str | None = None,
        folder: str | None = None,
        app_id: str = "default",
        project_id: str | None = None,
        token_budget: int = 800,
        min_score: float | None = None,
    ) -> Recalled:
        """What of everything remembered helps with `query`: nothing rather than junk, framed as data."""
    async def reextract(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        date: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
    ) -> int:
        """Write episodes anew from their transcripts, in place; the number changed."""
    async def remember(
        self,
        /,
        content: str,
        category: str = "fact",
        scope: str = "project",
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        *,
        mode: Literal["default", "strict"] = "default",
        importance: Literal["low", "medium", "high"] = "medium",
        pinned: bool = False,
        origin: Literal["human", "agent", "tool", "web", "recalled", "import"] = "human",
        **more: Any,
    ) -> Verdict:
        """Keep one explicit fact if the gate lets it in; the verdict says kept, merged or refused, and why."""
    async def repair(self) -> builtins.list[dict[str, Any]]:
        """Mend what is safe to mend among `doctor`'s findings, and say what was done."""
    async def restore(
        self, target: str, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> builtins.list[dict[str, Any]]:
        """Bring entries back to a checkpoint, a time, or before one change; this too can be undone."""
    async def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
        method: Method = "hybrid",
        top_k: int = -1,
        radius: float | None = None,
        min_score: float | None = None,
        include_profile: bool = False,
        enable_llm_rerank: bool = False,
        filters: Mapping[str, Any] | None = None,
        evidence: int = 0,
        token_budget: int | None = None,
        explain: bool = False,
        for_injection: bool = False,
        consistency: Literal["eventual", "strong"] = "eventual",
        min_lsn: int | None = None,
        as_of: str | datetime | None = None,
    ) -> SearchResult:
        """Find what answers `query` in one owner's memory. An empty result is an answer."""
    async def session_owners(
        self, session_id: str, app_id: str = "default", project_id: str = "default"
    ) -> builtins.list[str]:
        """Everyone who spoke in a session."""
    async def show(
        self, entry_id: str, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """One thing by any id that a search, a listing or `doctor` gives: its text, its file and line, and the messages it came from."""
    async def strategies(self) -> builtins.list[dict[str, Any]]:
        """Every strategy: whether it is on, what triggers it, how its runs went."""
    async def sync(self, path: str | None = None) -> dict[str, Any]:
        """Bring the index up to date now: every file, or one note."""
    async def trigger(self, name: str, *, timeout: float = 120.0, force: bool = False) -> dict[str, Any]:
        """Run a strategy now over all it has not seen."""
    async def undo_reflection(self, run_id: str) -> builtins.list[str]:
        """Take back one reflection run; the notes are byte for byte as before it."""
    async def unprocessed(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> builtins.list[Message]:
        """The messages of a session that are in no cell yet."""

class AsyncMemories:
    """`memory.memories`, each call awaited."""

    memory: Memories
    async def archive(
        self,
        memory_id: str,
        *,
        reason: str = "",
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Put a memory away: it stays in its note, but out of answers, dedup and limits."""
    async def consolidate(
        self,
        *,
        dry_run: bool = False,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> ConsolidationReport:
        """Merge clusters of memories that say nearly the same. `undo_consolidation` takes a run back."""
    async def core(
        self, agent: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """The core memory of the project, or of an agent."""
    async def edit(
        self,
        /,
        memory_id: str,
        *,
        reason: str = "",
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        **changes: Any,
    ) -> dict[str, Any]:
        """Change fields of a memory: content, category, importance, confidence, tier, file_scope_pattern, trigger, procedure. The old text stays in its history."""
    async def end_mission(
        self, run_id: str, *, success: bool, app_id: str = "default", project_id: str = "default"
    ) -> MissionEnd:
        """End a run: on success what it learned goes to the project, once; then its own are archived."""
    async def export_skill(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> str:
        """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; the path inside the root."""
    async def forget(
        self,
        memory_id: str | None = None,
        *,
        words: Sequence[str] = (),
        also: Sequence[str] = (),
        similar: bool = False,
        all_owners: bool = False,
        dry_run: bool = False,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Receipt:
        """Remove a memory, the same statement elsewhere in its owner's memory, and what was made from it: notes, transcripts, journals, pages, index, history. There is no undo."""
    async def history(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[HistoryLine]:
        """Everything on record about a memory, oldest first."""
    async def import_from(
        self,
        source: str,
        text: str,
        *,
        owner: str = "",
        trust: bool = False,
        app_id: str = "default",
        project_id: str = "default",
    ) -> ImportReport:
        """Take in another program's export through the gate, each item once: ade, mem0, everos, basic-memory or claude. What comes in waits for a person to promote it, unless `trust` vouches for all of it."""
    async def import_skill(
        self, path: str, *, text: str | None = None, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Take one SKILL.md in as a procedure: the file at `path`, or `text` under that name."""
    async def list(
        self,
        *,
        scope: str | None = None,
        owner: str = "",
        status: str | None = None,
        category: str | None = None,
        pinned: bool | None = None,
        archived: bool = False,
        skills: bool = True,
        offset: int = 0,
        limit: int = 50,
        app_id: str = "default",
        project_id: str = "default",
    ) -> MemoryPage:
        """One page of memories. Archived ones only with `archived`, or by asking for that status."""
    async def pin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Keep a memory at hand: promoted, tier 1, no decay."""
    async def promote(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Promote a candidate: a person vouches for it, whatever its origin."""
    async def refresh(self, *, app_id: str = "default", project_id: str = "default") -> PagesReport:
        """Make the pages agents read (MEMORY.md and its topics) anew, and settle core memory."""
    async def restore(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Bring an archived memory back."""
    async def scan_skills(
        self, folders: Sequence[str] = (), *, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Bring the registry in step with the skills in the root and in `folders`."""
    async def search(
        self,
        query: str,
        *,
        scope: str = "project",
        owner: str = "",
        method: str = "hybrid",
        top_k: int = -1,
        min_score: float | None = None,
        token_budget: int | None = None,
        explain: bool = False,
        for_injection: bool = False,
        archived: bool = False,
        consistency: str = "eventual",
        app_id: str = "default",
        project_id: str = "default",
    ) -> SearchResult:
        """Find the memories of one scope that answer `query`; the project's unless another is named."""
    async def set_core(
        self, /, agent: str = "", *, app_id: str = "default", project_id: str = "default", **fields: Any
    ) -> dict[str, Any]:
        """Set fields of the core memory: projectSummary, criticalConventions, userPreferences, activeFocus, notes. The version grows by one."""
    async def show(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """One memory as a row."""
    async def skills(
        self, *, app_id: str = "default", project_id: str = "default"
    ) -> Sequence[Mapping[str, Any]]:
        """The registry of skill files, tombstones included."""
    async def supersede(
        self,
        /,
        memory_id: str,
        content: str,
        *,
        reason: str,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
        **fields: Any,
    ) -> Verdict:
        """Replace a memory by a new one; the old stays readable and says by what and why."""
    async def sweep(
        self, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> SweepReport:
        """Decay, demote, promote and archive what is due; consolidate crowded scopes; refresh the pages."""
    async def undo_consolidation(
        self, run_id: str, *, app_id: str = "default", project_id: str = "default"
    ) -> int:
        """Take a consolidation back; how many memories are as they were before."""
    async def unpin(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> dict[str, Any]:
        """Let a pinned memory age like any other, from now."""
    async def why(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> Sequence[str]:
        """Why a memory is kept as it is: where it came from, what merged, how it is used."""
