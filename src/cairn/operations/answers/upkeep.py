"""What the keeper of a root is answered: index, strategies, doctor, copies, moves, status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.table import says


class RunSummary:
    """One run of a strategy."""

    run_id: Annotated[str, says("its id", "17")]
    status: Annotated[str, says("how it went", "done")]
    error: Annotated[str | None, says("what went wrong", "the model did not answer")] = None


class TriggerAnswer:
    """What running a strategy did."""

    status: Annotated[str, says("done, timeout, disabled or busy", "done")]
    name: Annotated[str, says("the strategy", "extract_atomic_facts")]
    dispatched: Annotated[int, says("how many runs it took", 3)]
    waiting: Annotated[int, says("how many still wait", 0)] = 0
    runs: Annotated[list[RunSummary], says("its latest runs", [])]


class StrategyItem:
    """One strategy."""

    name: Annotated[str, says("its name", "extract_atomic_facts")]
    purpose: Annotated[str, says("what it is for", "facts from episodes")]
    enabled: Annotated[bool, says("whether it is on", True)]
    trigger: Annotated[str, says("when it runs", "episode")]
    runs: Annotated[int, says("runs that were done", 12)]
    skipped: Annotated[int, says("runs that had nothing to do", 0)]
    waiting: Annotated[int, says("runs that wait", 0)]
    failed: Annotated[int, says("runs that were given up", 0)]
    last_run: Annotated[str, says("when it ran last", "2026-06-01T09:30:00+00:00")]
    last_error: Annotated[str, says("what went wrong last", "")]


class StrategiesData:
    """The strategies."""

    strategies: Annotated[list[StrategyItem], says("each with how its runs went", [])]


class SetAside:
    """A line that could not be used."""

    path: Annotated[str, says("the file", "default_app/default_project/sessions/s1.jsonl")]
    trouble: Annotated[str, says("what is wrong with it", "line 3: not JSON")]


class WaitingItem:
    """An episode that could not be written yet."""

    owner: Annotated[str, says("whose it is", "alice")]
    session_id: Annotated[str, says("the session it comes from", "s1")]
    cell_id: Annotated[str, says("the stretch of talk", "mc_0123456789ab")]
    reason: Annotated[str, says("why", "the disk is full")]


class IndexStatus:
    """The queue and the index at a glance."""

    state: Annotated[str, says("fresh, behind or rebuilding", "fresh")]
    pending: Annotated[int, says("changes that wait", 0)]
    done: Annotated[int, says("files that are indexed", 42)]
    failed: Annotated[int, says("files that could not be", 0)]
    last_lsn: Annotated[int, says("the newest change", 99)]
    applied_lsn: Annotated[int, says("every change up to this one is searchable", 99)]
    rows: Annotated[int, says("rows in the index", 512)]
    vectors_missing: Annotated[int, says("rows that wait for their vector", 0)]
    index_bytes: Annotated[int, says("its bytes on disk, all below .index", 1048576)]
    engine: Annotated[str, says("who answers: auto, memory or lancedb", "auto")]
    lancedb: Annotated[
        dict[str, int],
        says(
            "rows in the tables of LanceDB, and changes that are not in them yet", {"rows": 512, "waiting": 0}
        ),
    ]
    set_aside: Annotated[list[SetAside], says("lines that could not be used", [])]
    waiting: Annotated[list[WaitingItem], says("episodes that could not be written yet", [])]
    daemon: Annotated[
        dict[str, Any] | None, says("how background life goes, while there is one", {"healthy": True})
    ] = None


class EventItem:
    """One thing that happened; what else it carries depends on `event`."""

    id: Annotated[int, says("its number, ascending", 1780300000001)]
    event: Annotated[
        Literal["changed", "memory_inserted", "memory_upserted", "missed"],
        says('what happened; "missed" if events before it are gone: look at everything again', "changed"),
    ]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str | None, says("whose: user, agent, mission or project", "user")]
    owner: Annotated[str | None, says("the user, agent or run", "alice")]
    path: Annotated[str, says("the file", "default_app/default_project/users/alice/user.md")] = ""
    kind: Annotated[str, says("what the file holds", "profile")] = ""
    change: Annotated[str, says("added, modified or deleted", "modified")] = ""
    lsn: Annotated[int, says("the change as min_lsn takes it", 12)] = 0
    memory: Annotated[dict[str, Any] | None, says("the memory's row", {"id": "mem_20260601_00000001"})] = None


class EventsData:
    """What happened lately."""

    events: Annotated[list[EventItem], says("the events, oldest first", [])]
    last: Annotated[int, says("the number to ask after next", 1780300000001)]


class QuiesceData:
    """Whether every change so far is indexed."""

    quiesced: Annotated[bool, says("whether nothing waits any more", True)]
    drained: Annotated[int, says("how many changes were indexed meanwhile", 3)]
    pending_before: Annotated[int, says("how many waited", 3)]
    pending_after: Annotated[int, says("how many wait now", 0)]
    failed_permanent: Annotated[int, says("how many can never be indexed as they are", 0)]


class SyncData:
    """What bringing the index up to date did."""

    applied: Annotated[int, says("changes that were indexed", 3)]
    pending: Annotated[int, says("changes that wait", 0)]
    failed: Annotated[int, says("changes that could not be indexed", 0)]
    lsn: Annotated[int, says("every change up to this one is searchable", 99)]


class FailureItem:
    """A change that could not be indexed."""

    path: Annotated[
        str, says("the file", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    retryable: Annotated[bool, says("whether trying again is sensible", True)]
    reason: Annotated[str, says("why", "not UTF-8")]
    retries: Annotated[int, says("how often it was tried", 2)]


class FailuresData:
    """What could not be indexed."""

    failures: Annotated[list[FailureItem], says("each with its reason", [])]


class RebuildData:
    """What making the index anew took."""

    rows: Annotated[int, says("rows", 512)]
    notes: Annotated[int, says("files", 42)]
    failed: Annotated[int, says("files that could not be indexed", 0)]
    seconds: Annotated[float, says("how long it took", 1.5)]


class FindingItem:
    """One trouble and its next step."""

    level: Annotated[str, says("fail, warn or info", "warn")]
    what: Annotated[str, says("the trouble", "the local embedding model is not installed")]
    next: Annotated[str, says("what to do", "run `cairn model install`")]


class DoctorData:
    """Every trouble that can be seen."""

    findings: Annotated[list[FindingItem], says("worst first", [])]


class MendedItem:
    """Something that was mended."""

    where: Annotated[str, says("where", "cairn.toml")]
    what: Annotated[str, says("what was done", "is readable by you alone now")]
    code: Annotated[str, says("which trouble it was", "open-keys")]


class RepairData:
    """What was mended."""

    mended: Annotated[list[MendedItem], says("each with what was done", [])]


class ExportData:
    """What was copied."""

    target: Annotated[str, says("where to", "backup.tar.gz")]
    files: Annotated[int, says("how many files", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    left_out: Annotated[list[str], says("keys and tokens that stayed here", ["llm.api_key"])]
    unread: Annotated[list[str], says("what is in the root and cannot be read, so it is not in the copy", [])]


class BackupPart:
    """One part of a backup."""

    what: Annotated[str, says("sessions, journal, users, agents, ..., or settings", "sessions")]
    files: Annotated[int, says("how many files", 12)]
    bytes: Annotated[int, says("how many bytes", 34567)]


class TablesData:
    """The file that was written."""

    target: Annotated[str, says("the file", "memories.db")]
    memories: Annotated[int, says("how many memories are in it", 120)]
    bytes: Annotated[int, says("how large it is", 262144)]


class BackupData:
    """What a backup holds."""

    target: Annotated[str, says("the archive", "backups/cairn-20260601T120000Z.tar.gz")]
    files: Annotated[int, says("how many files", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    still: Annotated[bool, says("whether nothing was written meanwhile: the copy is of one moment", True)]
    contents: Annotated[list[BackupPart], says("what is in it, part by part", [])]
    left_out: Annotated[list[str], says("keys and tokens that stayed here", ["llm.api_key"])]
    unread: Annotated[list[str], says("what is in the root and cannot be read, so it is not in the copy", [])]


class BroughtData:
    """What was brought in."""

    imported: Annotated[int, says("files that are new", 40)]
    same: Annotated[int, says("files that were there already", 2)]
    merged: Annotated[int, says("files that were merged", 1)]
    messages: Annotated[int, says("messages that waited there to be extracted, now in the inbox", 0)]
    problems: Annotated[list[str], says("what could not be taken", [])]


class MovedData:
    """What a move did."""

    target: Annotated[str, says("where the memory is now, too", "s3://bucket/prefix")]
    files: Annotated[int, says("how many files the source holds", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    copied: Annotated[int, says("files that were brought over by this call", 42)]
    removed: Annotated[int, says("files that are gone since an earlier call", 0)]
    verified: Annotated[int, says("files that were read back from the target and are the same", 42)]
    still: Annotated[bool, says("whether nothing more was written to the source meanwhile", True)]
    problems: Annotated[list[str], says("what could not be brought over, and why", [])]


class MissingMessage:
    """A message that was acknowledged and is in no log any more."""

    session: Annotated[str, says("the log of its session", "default_app/default_project/sessions/s1.jsonl")]
    id: Annotated[str, says("the message", "m_s1_000007")]
    sender_ids: Annotated[list[str], says("who said it", ["alice"])]
    at: Annotated[str, says("when it was said", "2026-06-01T08:00:00+00:00")]
    text: Annotated[str, says("what was said, as this machine's index has it", "I adopted a heron.")]


class ReadBackData:
    """What was read back after the database was lost, and what is missing."""

    at: Annotated[str, says("when it was read back; empty where nothing was lost", "")]
    until: Annotated[str, says("all that was acknowledged before this is there", "2026-06-01T08:00:00+00:00")]
    journals: Annotated[list[str], says("the logs and journals that were read back", [])]
    missing: Annotated[list[MissingMessage], says("what this machine knew of and no log has", [])]


class EditConflict:
    """A note that changed on both sides."""

    path: Annotated[str, says("the note", "default_app/default_project/users/alice/user.md")]
    diff: Annotated[str, says("from theirs to yours", "-theirs\n+yours\n")]


class PulledData:
    """What a pull did, by path."""

    brought: Annotated[list[str], says("new in the folder, or as it is there now", [])]
    removed: Annotated[list[str], says("gone there, and so here", [])]
    yours: Annotated[list[str], says("edited here only: a push takes them", [])]
    conflicts: Annotated[
        list[EditConflict], says("edited on both sides: theirs lies beside as NAME.theirs", [])
    ]
    problems: Annotated[list[str], says("what cannot be read", [])]
    same: Annotated[int, says("notes that were the same", 40)]


class PushedData:
    """What a push did, by path."""

    written: Annotated[list[str], says("edits that are there now", [])]
    removed: Annotated[list[str], says("removed there, since they were here", [])]
    missing: Annotated[list[str], says("removed here and left there: `delete` removes them", [])]
    conflicts: Annotated[
        list[EditConflict], says("changed there, too: theirs lies beside as NAME.theirs", [])
    ]
    problems: Annotated[list[str], says("what was not taken, and why", [])]


class Capabilities:
    """What this server can do."""

    llm: Annotated[bool, says("ask a language model", False)]
    embed: Annotated[bool, says("search by meaning", True)]
    rerank: Annotated[bool, says("let a model order hits", False)]
    multimodal_llm: Annotated[bool, says("read pictures", False)]
    parser: Annotated[bool, says("read documents", False)]


class CascadeBlock:
    """How the index is."""

    healthy: Annotated[bool, says("whether all goes well", True)]
    reasons: Annotated[list[str], says("why not", [])]
    pending: Annotated[int, says("changes that wait", 0)]
    failed_permanent: Annotated[int, says("changes that cannot be indexed", 0)]
    failed_retryable: Annotated[int, says("changes that are tried again", 0)]
    drain_consecutive_failures: Annotated[int, says("rounds that failed in a row", 0)]
    unrecoverable_total: Annotated[int, says("changes that cannot be indexed, in all", 0)]
    optimize_failure_streak: Annotated[int, says("upkeep that failed in a row", 0)]
    prune_stale_seconds: Annotated[float, says("always 0", 0.0)]
    index_rows: Annotated[dict[str, int], says("rows of the index by kind", {"episode": 40})]
    index_emptied: Annotated[bool, says("whether it was found empty and is being made anew", False)]


class HealthAnswer:
    """How the server and the index are."""

    status: Annotated[str, says("ok or degraded", "ok")]
    version: Annotated[str, says("Cairn's version", "0.1.0")]
    reasons: Annotated[list[str], says("what is wrong, where something is", [])]
    ready: Annotated[bool, says("whether calls should be sent here: not while the index is made anew", True)]
    capabilities: Annotated[Capabilities, says("what can be done here", {"llm": False, "embed": True})]
    disabled_features: Annotated[list[str], says("what cannot", ["llm", "rerank"])]
    cascade: Annotated[CascadeBlock | None, says("how the index is", {"healthy": True})] = None
    memorize_queue: Annotated[
        None, says("always null: what is added is told in the call or waits as a task", None)
    ] = None


class IndexGlance:
    """The index and its queue in figures."""

    state: Annotated[str, says("fresh, behind or rebuilding", "fresh")]
    pending: Annotated[int, says("changes that wait", 0)]
    failed: Annotated[int, says("files that could not be indexed", 0)]
    vectors_missing: Annotated[int, says("rows that wait for their vector", 0)]
    rows: Annotated[int, says("rows in the index", 512)]
    bytes: Annotated[int, says("what everything below the index's folder takes on disk", 1048576)]


class StrategiesGlance:
    """The offline strategies in figures."""

    on: Annotated[int, says("how many are switched on", 7)]
    waiting: Annotated[int, says("runs that wait or go on", 0)]
    gave_up: Annotated[int, says("runs that failed for good", 0)]


class SpaceGlance:
    """One space of the root."""

    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    last_sweep: Annotated[str | None, says("when its memories were last swept", "2026-06-01T03:00:00+00:00")]


class ModelGlance:
    """The models in use, and what was spent."""

    embedding: Annotated[str | None, says("what makes vectors; none: words alone", "minilm")]
    language_model: Annotated[str | None, says("the configured language model", None)]
    tokens_today: Annotated[int, says("what it has cost since 00:00 UTC", 0)]
    tokens_cap: Annotated[int, says("the most of a day", 1000000)]


class ServerGlance:
    """The HTTP server's settings."""

    tokens: Annotated[int, says("tokens that hold; none: open to this machine", 0)]
    address: Annotated[str, says("where `cairn server start` listens", "127.0.0.1:8000")]


class SizesOfDay:
    """What a root took on the disk."""

    day: Annotated[str, says("the day, in the display zone", "2026-06-01")]
    files: Annotated[int, says("bytes of everything but the index", 1048576)]
    index: Annotated[int, says("bytes of the index", 4194304)]


class StatusData:
    """How a root stands."""

    root: Annotated[str, says("the folder", "/home/ann/.cairn")]
    version: Annotated[str, says("Cairn's version", "0.1.0")]
    index: Annotated[IndexGlance, says("the index and its queue", {"state": "fresh", "pending": 0})]
    strategies: Annotated[StrategiesGlance, says("the offline strategies", {"on": 8, "waiting": 0})]
    spaces: Annotated[list[SpaceGlance], says("what there is", [{"app_id": "default"}])]
    model: Annotated[ModelGlance, says("models and spend", {"embedding": "minilm"})]
    engines: Annotated[dict[str, str], says("what each seam is served by", {"storage": "device-local"})]
    server: Annotated[ServerGlance, says("the HTTP server", {"tokens": 0})]
    sizes: Annotated[list[SizesOfDay], says("what it took on each day that a server ran", [])]
    warnings: Annotated[list[str], says("what to look at, with the next step", [])]
