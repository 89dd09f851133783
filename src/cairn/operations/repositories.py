"""The memory of repositories, asked through a root: how it stands, what it answers, what would change.

All of it only reads. `cairn.open_project` gives the whole of a repository's memory to programs on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cairn.operations import rules
from cairn.operations.answers import repositories as answers
from cairn.operations.table import Room, operation, says

if TYPE_CHECKING:
    from cairn.project.consolidate import Plan
    from cairn.project.project import ProjectMemory
    from cairn.project.query import QueryResult
    from cairn.project.validate import RecordFinding

Folder = Annotated[str, says("the absolute path of the repository", "/srv/tides", low=1, high=4096)]
Word = Annotated[str | None, says("only this one", "gotchas", high=40)]


def _answer(result: QueryResult, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return result.to_json()


def _findings(found: list[RecordFinding], _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ok": not any(one.status == "fail" for one in found),
        "findings": [one.to_json() for one in found],
    }


def _preview(plan: Plan, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"noop": plan.is_noop, "summary": plan.summary, "diffs": dict(plan.diffs)}


class Repositories(Room):
    """What is known about repositories of this machine."""

    @operation(http="GET /project/status", answers=answers.ProjectStatusData, allow=rules.repository)
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

    @operation(
        http="POST /project/query", answers=answers.ProjectAnswer, data=_answer, allow=rules.repository
    )
    def project_query(
        self,
        path: Folder,
        question: Annotated[str, says("the question, in your words", "what waits", low=1, high=65_536)],
        *,
        scope: Annotated[Literal["state", "history", "all"], says("where to look", "all")] = "all",
    ) -> QueryResult:
        """Ask about a repository; the answer cites its evidence."""
        return self._project(path).query(question, scope=scope)

    @operation(http="GET /project/story", answers=answers.ProjectStoryData, allow=rules.repository)
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

    @operation(
        http="GET /project/validate", answers=answers.ValidateData, data=_findings, allow=rules.repository
    )
    def project_validate(self, path: Folder) -> list[RecordFinding]:
        """Whether a repository's record is whole."""
        return list(self._project(path).validate())

    @operation(
        http="POST /project/consolidate", answers=answers.PreviewData, data=_preview, allow=rules.repository
    )
    def project_preview(
        self, path: Folder, *, section: Word = None, source: Word = None, policy: Word = None
    ) -> Plan:
        """What consolidating would change; nothing is written."""
        return self._project(path).plan(section=section, source=source, policy=policy)

    def _project(self, path: str) -> ProjectMemory:
        from cairn.projects import open_project

        return open_project(path, writer=self.parts.writer)
