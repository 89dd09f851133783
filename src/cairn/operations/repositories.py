"""Operations on the memory of repositories: set up, record, consolidate, query, import, prune, restore.

The commands of `cairn project` have their fields from here and need no root; `cairn.open_project` gives the same to
programs on this machine. Starting and stopping the background runner is the command line's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cairn.operations import rules
from cairn.operations.answers import Answer, Answers
from cairn.operations.table import Room, fields_of, operation, says

if TYPE_CHECKING:
    from cairn.project.archive import PrunePlan
    from cairn.project.automate import RunResult
    from cairn.project.consolidate import Plan
    from cairn.project.events import Event
    from cairn.project.imports import SourceReport
    from cairn.project.project import ProjectChange, ProjectMemory
    from cairn.project.query import QueryResult
    from cairn.project.sources import Source
    from cairn.project.status import RecordFinding

answers = Answers("repositories")

F = TypeVar("F", bound=Callable[..., Any])
Folder = Annotated[str, says("the absolute path of the repository", "/srv/tides", low=1, high=4096)]
SourceId = Annotated[str, says("the id of the source", "claude-local-1", low=1, high=200)]


def _served(http: str, shape: Answer, told: Callable[..., dict[str, Any]] | None = None) -> Callable[[F], F]:
    """A row at `/project/...`, whose answer says itself in JSON unless `told` does; all but GET and a question write, and
    what they write is cleaned of credentials where it is recorded.
    """
    path = http.partition(" /")[2].removesuffix("/{id}")
    write = "" if http.startswith("GET ") or path == "project/query" else path

    def data(answer: Any, _room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
        if told is not None:
            return told(answer, asked)
        if isinstance(answer, list):
            [only] = fields_of(shape.shape)
            return {only.name: [one.to_json() for one in answer]}
        return answer if isinstance(answer, dict) else dict(answer.to_json())

    return operation(http, shape, rules.repository(write=write), data=data, writes=False)


def _findings(found: list[RecordFinding], _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ok": not any(one.status == "fail" for one in found),
        "findings": [one.to_json() for one in found],
    }


def _folded(done: tuple[Plan, ProjectChange | None], _asked: Mapping[str, Any]) -> dict[str, Any]:
    plan, written = done
    return {
        "noop": plan.is_noop,
        "applied": written is not None,
        "summary": plan.summary,
        "diffs": dict(plan.diffs),
        "written": written.to_json() if written else None,
    }


def _pruned(done: tuple[PrunePlan, str | None], asked: Mapping[str, Any]) -> dict[str, Any]:
    plan, batch = done
    return {**plan.to_json(), "batch": batch, "dryRun": asked["dry_run"]}


class Repositories(Room):
    """What is known about repositories of this machine."""

    @_served("GET /project/status", answers.ProjectStatusData)
    def project_status(
        self,
        path: Folder,
        *,
        checkpoint: Annotated[
            str | None, says("compare with this checkpoint instead of the newest", "chk-000001", high=100)
        ] = None,
    ) -> dict[str, Any]:
        """How a repository's memory stands: what waits, what drifted, what to do next."""
        return self._project(path).status(checkpoint=checkpoint)

    @_served("POST /project/query", answers.ProjectAnswer)
    def project_query(
        self,
        path: Folder,
        question: Annotated[str, says("the question, in your words", "what waits", low=1, high=65_536)],
        *,
        scope: Annotated[Literal["state", "history", "all"], says("where to look", "all")] = "all",
    ) -> QueryResult:
        """Ask about a repository; the answer cites its evidence."""
        return self._project(path).query(question, scope=scope)

    @_served("GET /project/story", answers.ProjectStoryData)
    def project_story(
        self,
        path: Folder,
        *,
        before: Annotated[
            str | None, says("the earlier of two checkpoints to compare", "chk-000001", high=100)
        ] = None,
        after: Annotated[
            str | None,
            says("the later one; the newest where only the other is named", "chk-000003", high=100),
        ] = None,
        limit: Annotated[
            int, says("how many events and checkpoints, newest first", 50, low=1, high=500)
        ] = 50,
    ) -> dict[str, Any]:
        """A repository's memory to read: its pages, newest events and checkpoints, and what changed between two of them.

        Raises:
            NotFound: there is no such checkpoint, or the repository has no memory yet.
        """
        from cairn.project.checkpoints import section_diffs
        from cairn.project.projections import PAGE_FILES

        project = self._project(path)
        store = project.record_.checkpoints
        made = store.newest(limit)
        told: dict[str, Any] = {
            "pages": {name: project.page(name) for name in PAGE_FILES} if made else {},
            "checkpoints": [{"id": one.id, "at": one.createdAt, "summary": one.summary} for one in made],
            "events": [
                {"id": one.id, "at": one.happened_at, "kind": one.kind, "summary": one.summary}
                for one in reversed(project.events()[-limit:] if made else ())
            ],
            "changed": {},
        }
        if before is not None and made:
            later = store.find(after) if after is not None else made[0]
            told["changed"] = section_diffs(store.find(before).bundle, later.bundle)
        return told

    @_served("GET /project/validate", answers.ValidateData, _findings)
    def project_validate(self, path: Folder) -> list[RecordFinding]:
        """Whether a repository's record is whole."""
        return list(self._project(path).validate())

    @_served("POST /project/init", answers.ProjectChangeData)
    def project_init(
        self,
        path: Folder,
        *,
        force: Annotated[bool, says("start over: the old record is removed", False)] = False,
    ) -> ProjectChange:
        """Read a repository and set up its memory."""
        return self._project(path).init(force=force)

    @_served("POST /project/update", answers.ProjectChangeData)
    def project_update(self, path: Folder) -> ProjectChange:
        """Read a repository again; what was learned stays."""
        return self._project(path).update()

    @_served("POST /project/record", answers.ProjectEvent)
    def project_record(
        self,
        path: Folder,
        summary: Annotated[
            str, says("what happened, in a sentence", "Moved the parser to its own file", low=1, high=65_536)
        ],
        *,
        decisions: Annotated[
            Sequence[str], says("something that was decided", ["Tides are kept in UTC"], high=100)
        ] = (),
        gotchas: Annotated[
            Sequence[str],
            says(
                "a trap: `topic: what goes wrong. Use the way around.`",
                ["ports: 8000 is taken. Use 8001."],
                high=100,
            ),
        ] = (),
        next_steps: Annotated[
            Sequence[str],
            says(
                "a task (`NEXT: title: why`), or one that is done (`DONE: title`)",
                ["NEXT: cache tables: they are slow"],
                high=100,
            ),
        ] = (),
        paths: Annotated[
            Sequence[str], says("a file or folder it was about", ["src/parser.py"], high=100)
        ] = (),
        checks: Annotated[Sequence[str], says("the result of a check", ["make test: passed"], high=100)] = (),
    ) -> Event:
        """Add one event to a repository's record: what was done or learned."""
        signals = {
            "decisions": decisions,
            "gotchas": gotchas,
            "nextStepHints": next_steps,
            "keyPaths": paths,
            "validationObservations": checks,
        }
        return self._project(path).record(summary, signals)

    @_served("POST /project/consolidate", answers.FoldedData, _folded)
    def project_consolidate(
        self,
        path: Folder,
        *,
        section: Annotated[
            Literal[
                "all",
                "project",
                "project-map",
                "current-focus",
                "gotchas",
                "next-steps",
                "validation-commands",
            ]
            | None,
            says("change this section only", "gotchas"),
        ] = None,
        source: Annotated[Literal["all", "local", "imports"] | None, says("whose events", "local")] = None,
        policy: Annotated[
            Literal["balanced", "imports-only", "local-only", "project-map-protected"] | None,
            says("what may change, and from what", "balanced"),
        ] = None,
        apply: Annotated[bool, says("write the change; otherwise it is only shown", True)] = False,
    ) -> tuple[Plan, ProjectChange | None]:
        """Fold a repository's new events into its bundle, or show what that would change."""
        return self._project(path).consolidate(
            section=section, source=source, policy=policy, confirm=lambda _plan: apply
        )

    @_served("GET /project/sources", answers.SourcesData)
    def project_sources(self, path: Folder) -> list[Source]:
        """The folders that a repository's sessions are imported from."""
        return self._project(path).sources()

    @_served("POST /project/sources", answers.SourceData)
    def project_source_add(
        self,
        path: Folder,
        type: Annotated[
            Literal["claude-local", "codex-local", "jsonl"], says("whose format", "claude-local")
        ],
        folder: Annotated[
            str, says("the folder of sessions, or one file", "/srv/sessions", low=1, high=4096)
        ],
    ) -> Source:
        """Register a folder of sessions with a repository."""
        return self._project(path).add_source(type, Path(folder).expanduser())

    @_served("DELETE /project/sources/{id}", answers.SourceData)
    def project_source_remove(self, path: Folder, id: SourceId) -> Source:
        """Forget a folder of sessions; what was imported stays."""
        return self._project(path).remove_source(id)

    @_served("POST /project/import", answers.ReportsData)
    def project_import(
        self,
        path: Folder,
        ids: Annotated[
            Sequence[str], says("sources to import (all by default)", ["claude-local-1"], high=100)
        ] = (),
    ) -> list[SourceReport]:
        """Import the sessions of a repository's sources, each once."""
        return self._project(path).import_(ids)

    @_served("POST /project/prune", answers.PrunedData, _pruned)
    def project_prune(
        self,
        path: Folder,
        *,
        dry_run: Annotated[bool, says("only show what would be archived", True)] = False,
    ) -> tuple[PrunePlan, str | None]:
        """Archive a repository's old, consolidated history; expire old archives."""
        return self._project(path).prune(dry_run=dry_run)

    @_served("POST /project/restore", answers.ProjectChangeData)
    def project_restore(
        self,
        path: Folder,
        id: Annotated[str, says("chk-000001, or prune-<time>", "chk-000001", low=1, high=100)],
    ) -> ProjectChange:
        """Bring back the bundle of a checkpoint, or a batch of the archive."""
        return self._project(path).restore(id)

    @_served("GET /project/automate", answers.RunnerData)
    def project_runner(self, path: Folder) -> dict[str, Any]:
        """Whether a repository's background runner runs, and how its last run went."""
        from cairn.project.automate import runner_status

        project = self._project(path)
        project.record_.require()
        return runner_status(project.record_.storage, project.locks)

    @_served("POST /project/automate", answers.RunData)
    def project_run_once(self, path: Folder) -> RunResult:
        """One cycle of a repository's upkeep: import, consolidate, prune."""
        from cairn.project.automate import run_once

        project = self._project(path)
        project.record_.require()
        return run_once(project)

    def _project(self, path: str) -> ProjectMemory:
        from cairn.projects import open_project

        return open_project(path, writer=self.parts.writer)
