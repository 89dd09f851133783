"""The same calls awaited. Made by `make docs` from the operations; change those."""

import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from cairn.config import Settings
from cairn.governed.forget import Receipt
from cairn.governed.ledger import MissionEnd
from cairn.governed.lifecycle import ConsolidationReport, SweepReport
from cairn.governed.memories import HistoryLine
from cairn.governed.migrate import ImportReport
from cairn.governed.pages import PagesReport
from cairn.governed.persons import Farewell
from cairn.governed.procedures import ScanReport
from cairn.memory import Memories, Memory
from cairn.operations.access import TokenName
from cairn.operations.browse import EntryName, OneKind, Since, Until
from cairn.operations.fields import (
    AgentId,
    AnyScope,
    AppId,
    Category,
    Confidence,
    Consistency,
    DryRun,
    Explain,
    Files,
    Filters,
    ForInjection,
    Importance,
    MemoryId,
    MinScore,
    Origin,
    Owner,
    ProjectId,
    Reason,
    ScopeName,
    SessionId,
    Status,
    Steps,
    Tier,
    TokenBudget,
    TopK,
    TriggerText,
    UserId,
)
from cairn.operations.keeping import AgentName, Items, Values
from cairn.operations.knowledge import CategoryId, DocId, File, FileName, SourceType, Title
from cairn.operations.library import StoredDocument
from cairn.operations.memories import (
    Limited,
    MemoryPage,
    NewCategory,
    NewImportance,
    NewText,
    Text,
    Vouched,
)
from cairn.operations.persons import WholePerson
from cairn.operations.recall import (
    FurtherKind,
    Here,
    MemoryType,
    Method,
    OtherProject,
    Person,
    ReachedProjects,
    SeesShared,
)
from cairn.operations.recalling import Recalled
from cairn.operations.repositories import Folder, SourceId
from cairn.operations.talk import LimitedTo, Sees
from cairn.parts import Parts
from cairn.project.archive import PrunePlan
from cairn.project.automate import RunResult
from cairn.project.consolidate import Plan
from cairn.project.events import Event
from cairn.project.imports import SourceReport
from cairn.project.project import ProjectChange
from cairn.project.query import QueryResult
from cairn.project.sources import Source
from cairn.project.status import RecordFinding
from cairn.retrieval.answers import SearchResult
from cairn.retrieval.listing import GetResult
from cairn.seams import Clock
from cairn.talk import AddOutcome, FlushOutcome
from cairn.timetravel.runs import Undone
from cairn.types import Message, Verdict

_T = TypeVar("_T")

class Pools:
    """The threads that calls run in while the memory is open."""

    async def run(self, call: Callable[[], _T], *, writes: bool, apart: bool = ...) -> _T: ...

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
    async def subscribe(
        self, listener: Callable[[Mapping[str, Any]], object], *kinds: str
    ) -> Callable[[], None]: ...
    async def add(
        self,
        session_id: SessionId,
        messages: Sequence[Any],
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        user_id: str | None = None,
        defer_extraction: bool = False,
        async_mode: bool = False,
        idempotency_key: str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        mode: Literal["chat", "agent"] | None = None,
        limited_to: LimitedTo = None,
    ) -> AddOutcome:
        """Keep messages, all or none, durably before this returns."""
    async def add_token(self, name: TokenName, rights: str = "", *, expires: str = "") -> dict[str, Any]:
        """Make a token for the HTTP server; running servers take it from the next call on."""
    async def audit(
        self,
        *,
        token: str = "",
        operation: str = "",
        about: str = "",
        refused: bool = False,
        since: str = "",
        limit: int = 100,
    ) -> builtins.list[dict[str, Any]]:
        """Calls of the HTTP server, newest first: when, whose token, which operation, about whom, and how it ended."""
    async def backup(self, target: str, *, with_secrets: bool = False) -> dict[str, Any]:
        """Copy the truth into a .tar.gz archive while others go on writing, and read it back before saying so."""
    async def brief(
        self,
        *,
        user_id: Person = None,
        agent_id: str | None = None,
        folder: Here = None,
        app_id: AppId = "default",
        project_id: OtherProject = None,
        token_budget: int = 1500,
        sees_shared: SeesShared = True,
        projects: ReachedProjects = None,
    ) -> Recalled:
        """What a new session should know: core memory, promoted memories, the state of the project, what is due."""
    async def checkpoint(
        self, label: str = "", *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Make a checkpoint of this moment, to compare with or restore later."""
    async def checkpoints(
        self, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> builtins.list[dict[str, Any]]:
        """Every checkpoint."""
    async def connections(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        since: Since = None,
        until: Until = None,
        limit: int = 200,
        sees: Sees = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """How entries are related, the newest links first: what replaces or contradicts what, what came of the same talk."""
    async def diff(
        self,
        target: str,
        *,
        until: str | None = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> builtins.list[dict[str, Any]]:
        """What is different now, or at a later checkpoint or time, from an earlier one."""
    async def doctor(self) -> builtins.list[dict[str, Any]]:
        """Look for problems everywhere; each finding names the next step."""
    async def events(
        self,
        *,
        after: int | None = None,
        owner: str | None = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """What changed lately in a space: files that were indexed, memories that were kept."""
    async def export_person(
        self, user_id: WholePerson, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Everything that is kept of a person, to hand over: their notes as they stand, and what they said."""
    async def export_session(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """A session word for word, and the entries that were made from it."""
    async def export_sqlite(self, target: str) -> dict[str, Any]:
        """Write governed memories as ADE's tables into a new SQLite file: memories with full text and vectors, procedures, skills, ledger, logs, core memory and agents."""
    async def export_to(self, target: str, *, with_secrets: bool = False) -> dict[str, Any]:
        """Copy the truth into a new folder or a .tar.gz archive, readable by its owner alone."""
    async def failures(self, *, retry: bool = False) -> builtins.list[dict[str, Any]]:
        """Changes that could not be indexed, with reasons; with `retry` the retryable ones are queued again."""
    async def find(
        self,
        query: str,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        kind: OneKind = None,
        since: Since = None,
        until: Until = None,
        limit: int = 20,
        explain: Explain = False,
        sees: Sees = None,
        limited_to: LimitedTo = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Find what answers a question in everybody's memory, or in one owner's, best first."""
    async def flush(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: LimitedTo = None,
    ) -> FlushOutcome:
        """Close the session's open messages into a cell now; its episode is on disk before this returns."""
    async def fold_history(
        self,
        days: int = 365,
        *,
        dry_run: DryRun = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Drop former texts of entries that nothing needs: not standing now, in no checkpoint, older than `days`."""
    async def forget_person(
        self,
        user_id: WholePerson,
        *,
        shared: bool = False,
        dry_run: DryRun = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Farewell:
        """Remove a person: their notes, the sessions in which no other user spoke, and every line, former text, row, queued job and file name about them. There is no undo."""
    async def forget_session(
        self,
        session_id: SessionId,
        *,
        dry_run: DryRun = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Farewell:
        """Remove a session from everybody's memory: its words, its episodes, and what was made from them. There is no undo."""
    async def gauges(self) -> dict[str, tuple[str, float]]:
        """Figures for /metrics."""
    async def get(
        self,
        memory_type: MemoryType,
        *,
        user_id: UserId = None,
        agent_id: AgentId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        page: int = 1,
        page_size: int = 20,
        sort_by: Literal["timestamp", "updated_at"] = "timestamp",
        sort_order: Literal["asc", "desc"] = "desc",
        filters: Filters = None,
        consistency: Consistency = "eventual",
    ) -> GetResult:
        """List an owner's memories of one type, page by page, newest first unless asked otherwise."""
    async def health(self) -> dict[str, Any]:
        """Status, capabilities and the index's health; quick whatever else goes on."""
    async def import_from(self, source: str) -> dict[str, Any]:
        """Bring in an export, a folder or another program's memory root; nothing here is overwritten."""
    async def index_status(self) -> dict[str, Any]:
        """The queue, the index and who works on it."""
    async def knowledge_add(
        self,
        paths: Sequence[str],
        *,
        category: str = "",
        title: str = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Take in documents (Markdown, text, HTML, PDF, DOCX): kept as Markdown with the address of the original."""
    async def knowledge_categories(
        self, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """The categories of a space's documents, with their number; `knowledge/categories.md` may describe them."""
    async def knowledge_edit(
        self,
        doc_id: DocId,
        *,
        title: str | None = None,
        category_id: CategoryId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Give a document another title or category."""
    async def knowledge_link(
        self, path: str, *, name: str = "", app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Link a folder of documents: it is searched in place and never written to; what is removed there leaves the index."""
    async def knowledge_links(
        self, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """The linked folders, with how many documents of each are known, and what is wrong with one."""
    async def knowledge_list(
        self,
        *,
        category_id: CategoryId = None,
        page: int = 1,
        page_size: int = 20,
        sort_by: Literal["created_at", "updated_at", "title"] = "created_at",
        sort_order: Literal["asc", "desc"] = "desc",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """The documents of a space, those of linked folders included, page by page."""
    async def knowledge_remove(
        self, doc_id: DocId, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Remove a document that was taken in; the original it was made of stays where it is."""
    async def knowledge_replace(
        self,
        doc_id: DocId,
        title: Title,
        file: File,
        *,
        file_name: FileName = "document.md",
        source_type: SourceType = None,
        category_id: CategoryId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> StoredDocument:
        """Put another text in the place of a document; what cannot be read leaves the old one as it is."""
    async def knowledge_search(
        self,
        query: str,
        *,
        method: Literal["keyword", "vector", "hybrid"] = "hybrid",
        top_k: int = 10,
        score_threshold: float | None = None,
        include_content: bool = False,
        consistency: Consistency = "eventual",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Find the topics of a space's documents that answer a question, each by its best passage."""
    async def knowledge_show(
        self, doc_id: DocId, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """One document: what it is, where its original is, and its topics with their lines."""
    async def knowledge_topic(
        self, topic_id: str, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """One topic of a document: what stands below a heading."""
    async def knowledge_unlink(
        self, name: str, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Stop searching a linked folder; its files stay as they are."""
    async def knowledge_upload(
        self,
        title: Title,
        file: File,
        *,
        file_name: FileName = "document.md",
        source_type: SourceType = None,
        category_id: CategoryId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> StoredDocument:
        """Take in one document as it is sent: as a form with a file, or as text."""
    async def linked(
        self, entry_id: EntryName, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """What an entry came from, what was made from it, and what it replaces, was replaced by or contradicts."""
    async def log(
        self,
        entry_id: str | None = None,
        *,
        limit: int = 100,
        diffs: bool = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> builtins.list[dict[str, Any]]:
        """Changes of entries, newest first: of one entry by the id `search` gives or `path#id`, or of all."""
    async def move_to(self, target: str, *, database: str = "", endpoint: str = "") -> dict[str, Any]:
        """Copy this memory to another storage while it is in use, read everything back, and say what is there."""
    async def overview(self, *, sees: Sees = None) -> dict[str, Any]:
        """Who has a memory here and how much of each kind: every owner of every space the caller may see."""
    async def project_consolidate(
        self,
        path: Folder,
        *,
        section: Literal[
            "all", "project", "project-map", "current-focus", "gotchas", "next-steps", "validation-commands"
        ]
        | None = None,
        source: Literal["all", "local", "imports"] | None = None,
        policy: Literal["balanced", "imports-only", "local-only", "project-map-protected"] | None = None,
        apply: bool = False,
    ) -> tuple[Plan, ProjectChange | None]:
        """Fold a repository's new events into its bundle, or show what that would change."""
    async def project_import(self, path: Folder, ids: Sequence[str] = ()) -> builtins.list[SourceReport]:
        """Import the sessions of a repository's sources, each once."""
    async def project_init(self, path: Folder, *, force: bool = False) -> ProjectChange:
        """Read a repository and set up its memory."""
    async def project_prune(self, path: Folder, *, dry_run: bool = False) -> tuple[PrunePlan, str | None]:
        """Archive a repository's old, consolidated history; expire old archives."""
    async def project_query(
        self, path: Folder, question: str, *, scope: Literal["state", "history", "all"] = "all"
    ) -> QueryResult:
        """Ask about a repository; the answer cites its evidence."""
    async def project_record(
        self,
        path: Folder,
        summary: str,
        *,
        decisions: Sequence[str] = (),
        gotchas: Sequence[str] = (),
        next_steps: Sequence[str] = (),
        paths: Sequence[str] = (),
        checks: Sequence[str] = (),
    ) -> Event:
        """Add one event to a repository's record: what was done or learned."""
    async def project_restore(self, path: Folder, id: str) -> ProjectChange:
        """Bring back the bundle of a checkpoint, or a batch of the archive."""
    async def project_run_once(self, path: Folder) -> RunResult:
        """One cycle of a repository's upkeep: import, consolidate, prune."""
    async def project_runner(self, path: Folder) -> dict[str, Any]:
        """Whether a repository's background runner runs, and how its last run went."""
    async def project_source_add(
        self, path: Folder, type: Literal["claude-local", "codex-local", "jsonl"], folder: str
    ) -> Source:
        """Register a folder of sessions with a repository."""
    async def project_source_remove(self, path: Folder, id: SourceId) -> Source:
        """Forget a folder of sessions; what was imported stays."""
    async def project_sources(self, path: Folder) -> builtins.list[Source]:
        """The folders that a repository's sessions are imported from."""
    async def project_status(self, path: Folder, *, checkpoint: str | None = None) -> dict[str, Any]:
        """How a repository's memory stands: what waits, what drifted, what to do next."""
    async def project_story(
        self, path: Folder, *, before: str | None = None, after: str | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """A repository's memory to read: its pages, newest events and checkpoints, and what changed between two of them."""
    async def project_update(self, path: Folder) -> ProjectChange:
        """Read a repository again; what was learned stays."""
    async def project_validate(self, path: Folder) -> builtins.list[RecordFinding]:
        """Whether a repository's record is whole."""
    async def pull(self, folder: str, *, under: str | None = None) -> dict[str, Any]:
        """Bring the notes into a folder to edit them there; edits in it stay, and theirs is put beside a conflict."""
    async def push(self, folder: str, *, delete: bool = False) -> dict[str, Any]:
        """Take the edits of a pulled folder back; a note that changed meanwhile is a conflict and stays as it is."""
    async def quiesce(self, *, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until every change so far is indexed, and say whether that is so."""
    async def read_back(self) -> dict[str, Any]:
        """After the database of several servers was lost: read its journals back from the bucket, and say what is missing."""
    async def rebuild(self) -> dict[str, Any]:
        """Rebuild the whole index from the files."""
    async def recall(
        self,
        query: str,
        *,
        user_id: Person = None,
        agent_id: str | None = None,
        mission_id: str | None = None,
        folder: Here = None,
        app_id: AppId = "default",
        project_id: OtherProject = None,
        token_budget: int = 800,
        method: Literal["keyword", "hybrid"] = "hybrid",
        min_score: MinScore = None,
        filters: Filters = None,
        open_talk: bool = True,
        sees_shared: SeesShared = True,
        projects: ReachedProjects = None,
    ) -> Recalled:
        """Find what helps with a question in every memory the caller may see, framed as data; nothing if nothing fits."""
    async def reextract(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        date: str | None = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> int:
        """Write episodes again from their transcripts, in place; returns how many changed."""
    async def remember(
        self,
        content: Text,
        category: str = "fact",
        scope: ScopeName = "project",
        owner: str = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        mode: Literal["default", "strict"] = "default",
        importance: Importance = "medium",
        pinned: bool = False,
        origin: Origin = "human",
        confidence: Confidence = None,
        status: Status | None = None,
        tier: Tier = None,
        source_id: Limited = None,
        source_session_id: Limited = None,
        source_run_id: Limited = None,
        agent_id: str | None = None,
        file_scope_pattern: Files = None,
        trigger: TriggerText = None,
        procedure: Steps = None,
        vouched: Vouched = True,
    ) -> Verdict:
        """Remember one fact, if the gate lets it in; the verdict says kept, merged or refused, and why."""
    async def repair(self) -> builtins.list[dict[str, Any]]:
        """Repair what is safe to repair among `doctor`'s findings, and say what was done."""
    async def restore(
        self,
        target: str,
        *,
        dry_run: DryRun = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> builtins.list[dict[str, Any]]:
        """Bring entries back to a checkpoint, a time, or before one change; this too can be undone."""
    async def revise(
        self,
        entry_id: EntryName,
        source: str,
        *,
        expect: str,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Correct an entry or a document in place, if nobody changed it since it was read."""
    async def revoke_token(self, name: TokenName) -> dict[str, Any]:
        """End a token at once, on running servers, too. It stays in the list, so that the audit log can be read."""
    async def search(
        self,
        query: str,
        *,
        user_id: UserId = None,
        agent_id: AgentId = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        method: Method = "hybrid",
        top_k: TopK = -1,
        radius: float | None = None,
        min_score: MinScore = None,
        include_profile: bool = False,
        enable_llm_rerank: bool = False,
        filters: Filters = None,
        evidence: int = 0,
        token_budget: TokenBudget = None,
        kinds: Sequence[FurtherKind] = (),
        include_knowledge: bool = True,
        explain: Explain = False,
        for_injection: ForInjection = False,
        consistency: Consistency = "eventual",
        min_lsn: int | None = None,
        as_of: str | datetime | None = None,
        limited_to: LimitedTo = None,
        sees_shared: SeesShared = True,
    ) -> SearchResult:
        """Find what answers a question in one owner's memory; an empty result is an answer."""
    async def session_owners(
        self, session_id: SessionId, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> builtins.list[str]:
        """Everyone who spoke in a session, in order of appearance."""
    async def show(
        self, entry_id: str, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """One thing by any id that is printed: its text, its file and line, and the messages it came from."""
    async def status(self) -> dict[str, Any]:
        """The state of the memory: root, index and queue, strategies, last sweep, last capture, models and spend, engines, warnings."""
    async def strategies(self) -> builtins.list[dict[str, Any]]:
        """Every strategy: whether it is on, what triggers it, how its runs went."""
    async def switch(self, name: str, *, off: bool = False) -> builtins.list[dict[str, Any]]:
        """Switch a strategy on, or off, in `ome.toml`; every strategy as it stands then."""
    async def sync(self, path: str | None = None) -> dict[str, Any]:
        """Bring the index up to date now: every file, or one note; conflict copies of a sync program are merged first."""
    async def task(
        self, task_id: str, *, app_id: AppId = "default", project_id: ProjectId = "default", sees: Sees = None
    ) -> dict[str, Any]:
        """One task by its id: of the space, else of any other that the caller reaches."""
    async def tasks(
        self,
        *,
        session_id: str | None = None,
        status: Literal["queued", "processing", "success", "failed"] | None = None,
        page: int = 1,
        page_size: int = 20,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """The cells of a space: those that wait to become episodes, and those whose episodes are written."""
    async def timeline(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        kind: OneKind = None,
        since: Since = None,
        until: Until = None,
        session_id: str | None = None,
        archived: bool = False,
        offset: int = 0,
        limit: int = 50,
        days: bool = False,
        sees: Sees = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Entries of everybody, or of one owner, newest first."""
    async def tokens(self) -> builtins.list[dict[str, Any]]:
        """The tokens made by `add_token`, those that ended or were revoked included; none has its secret any more."""
    async def trigger(self, name: str, *, timeout: float = 120.0, force: bool = False) -> dict[str, Any]:
        """Run a strategy now over everything it has not processed."""
    async def undo(
        self,
        run_id: str,
        *,
        dry_run: DryRun = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Undone:
        """Take back exactly what a run wrote: a consolidation, sweep, reflection, correction, import, mission or undo."""
    async def unprocessed(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: LimitedTo = None,
    ) -> builtins.list[Message]:
        """The messages of a session that are in no cell yet."""
    async def upcoming(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        ahead: int = 30,
        sees: Sees = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """What is coming up: plans whose time falls into the next days, those that are due soonest first."""

class AsyncMemories:
    """`memory.memories`, each call awaited."""

    memory: Memories
    async def on_upserted(self, listener: Callable[[Mapping[str, Any]], object]) -> Callable[[], None]: ...
    async def agent(
        self, agent: AgentName, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Who an agent is, and the documents it is given: agent.md, soul.md, tools.md and behaviors.md."""
    async def agents(self, *, app_id: AppId = "default", project_id: ProjectId = "default") -> dict[str, Any]:
        """The agents of a space that have an identity."""
    async def archive(
        self,
        memory_id: MemoryId,
        *,
        reason: Reason = "",
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Put a memory away: it stays in its note, but out of answers, dedup and limits."""
    async def capture(
        self,
        source_type: Literal["intervention", "error_capture", "error_cluster", "pr_feedback"],
        source_key: str,
        text: str,
        *,
        author: str = "",
        origin_key: str = "",
        category: Category | None = None,
        scope: ScopeName = "project",
        owner: Owner = "",
        vouched: Vouched = True,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Take an intervention, an error or review feedback in, once by its source, through the gate as a candidate."""
    async def captures(
        self,
        *,
        source_type: str | None = None,
        limit: int = 50,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """What was taken in by source: interventions, errors, feedback, imports and missions, each once."""
    async def consolidate(
        self,
        *,
        dry_run: DryRun = False,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> ConsolidationReport:
        """Merge memories that say nearly the same; `undo` takes a run back."""
    async def core(
        self, agent: str = "", *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """The core memory of the project, or of an agent."""
    async def daily(
        self,
        *,
        day: str | None = None,
        limit: int = 7,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """The daily log: what was noted on each day."""
    async def edit(
        self,
        memory_id: MemoryId,
        *,
        content: NewText = None,
        category: NewCategory = None,
        importance: NewImportance = None,
        confidence: Confidence = None,
        tier: Tier = None,
        file_scope_pattern: Files = None,
        trigger: TriggerText = None,
        procedure: Steps = None,
        reason: Reason = "",
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Change a memory where it stands; the old text stays in its history."""
    async def end_mission(
        self, run_id: str, *, success: bool, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> MissionEnd:
        """End a mission: on success what it learned is copied to the project, once; then its memories are archived."""
    async def export_skill(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
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
        dry_run: DryRun = False,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Receipt:
        """Remove a memory, the same statement elsewhere in its owner's memory, and what was made from it: notes, transcripts, journals, pages, index, history. There is no undo."""
    async def history(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Sequence[HistoryLine]:
        """Everything on record about a memory, oldest first."""
    async def import_from(
        self,
        source: Literal["ade", "mem0", "everos", "basic-memory", "claude"],
        text: str | bytes,
        *,
        owner: str = "",
        trust: bool = False,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> ImportReport:
        """Take in another program's export through the gate, each item once: ade, mem0, everos, basic-memory or claude. What comes in waits for a person to promote it, unless `trust` vouches for all of it."""
    async def import_skill(
        self,
        path: str = "",
        *,
        name: str = "",
        text: str | None = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> ScanReport:
        """Take one SKILL.md in as a procedure: the file at `path`, or `text` under that name."""
    async def list(
        self,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        status: Status | None = None,
        category: Category | None = None,
        pinned: bool | None = None,
        archived: bool = False,
        skills: bool = True,
        offset: int = 0,
        limit: int = 50,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> MemoryPage:
        """One page of memories. Archived ones only with `archived`, or by asking for that status."""
    async def note_day(
        self, text: str, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Add a line to today's log; `pages/daily/<date>.md` shows it."""
    async def outcome(
        self,
        memory_id: MemoryId,
        *,
        success: bool,
        reason: Reason = "",
        source: str = "",
        vouched: Vouched = True,
        pins: bool = True,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Record how a use of a procedure went: it grows surer or fades, is pinned when it proves itself (three successes, confidence 0.8) and archived when it does not (five uses, below 0.3)."""
    async def pin(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Keep a memory at hand: promoted, tier 1, no decay."""
    async def procedure(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """A procedure as a whole: when and how, how often it worked, every outcome, and what it was learned from."""
    async def promote(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Promote a candidate: a person vouches for it, whatever its origin."""
    async def refresh(self, *, app_id: AppId = "default", project_id: ProjectId = "default") -> PagesReport:
        """Rewrite the pages that agents read (MEMORY.md and its topics), and reconcile core memory."""
    async def restore(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Bring an archived memory back."""
    async def runs(
        self, *, limit: int = 10, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """What wrote many entries at once, newest first, to be taken back by `undo`; when memories were last swept and consolidated, and what came of it."""
    async def scan_skills(
        self, folders: Sequence[str] = (), *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> ScanReport:
        """Bring the registry in step with the skills in the root and in `folders`."""
    async def search(
        self,
        query: str,
        *,
        scope: ScopeName = "project",
        owner: Owner = "",
        method: Literal["keyword", "vector", "hybrid"] = "hybrid",
        top_k: TopK = -1,
        min_score: MinScore = None,
        token_budget: TokenBudget = None,
        explain: Explain = False,
        for_injection: ForInjection = False,
        archived: bool = False,
        consistency: Consistency = "eventual",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> SearchResult:
        """Find the memories of one scope that answer `query`; the project's unless another is named."""
    async def set_agent(
        self,
        agent: AgentName,
        *,
        name: str | None = None,
        profile: Values = None,
        persona: Values = None,
        tool_policy: Values = None,
        user_preferences: Values = None,
        heartbeat: Values = None,
        model_preference: str | None = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Put an agent's identity on record, or change some of its fields."""
    async def set_agent_document(
        self,
        agent: AgentName,
        document: Literal["agent", "soul", "tools", "behaviors"],
        text: str,
        *,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Write `agent.md`, `soul.md`, `tools.md` or `behaviors.md` of an agent: searched, and handed out with it."""
    async def set_core(
        self,
        agent: str = "",
        *,
        projectSummary: str | None = None,
        criticalConventions: Items = None,
        userPreferences: Items = None,
        activeFocus: Items = None,
        notes: Items = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Set fields of the core memory; its version grows by one."""
    async def show(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """One memory as a row."""
    async def skills(
        self, *, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> Sequence[Mapping[str, Any]]:
        """The registry of skill files, tombstones included."""
    async def supersede(
        self,
        memory_id: MemoryId,
        content: str,
        *,
        reason: str,
        category: NewCategory = None,
        importance: NewImportance = None,
        vouched: Vouched = True,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Verdict:
        """Replace a memory by a new one; the old stays readable and says by what and why."""
    async def sweep(
        self, *, dry_run: DryRun = False, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> SweepReport:
        """Decay, demote, promote and archive what is due; consolidate crowded scopes; refresh the pages."""
    async def unpin(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """Let a pinned memory age like any other, from now."""
    async def why(
        self,
        memory_id: MemoryId,
        *,
        scope: AnyScope = None,
        owner: Owner = "",
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> Sequence[str]:
        """Why a memory is kept as it is: where it came from, what merged, how it is used."""
