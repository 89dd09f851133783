"""Governed memories as a whole: sweeping, consolidating, missions, core memory, skills and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid, Unavailable
from cairn.operations.memories import named_scope
from cairn.operations.table import Room, operation
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.governed.consolidation import ConsolidationReport
    from cairn.governed.lifecycle import SweepReport
    from cairn.governed.migrate import ImportReport
    from cairn.governed.missions import MissionEnd
    from cairn.governed.pages import PagesReport
    from cairn.governed.skills import ScanReport


class Keeping(Room):
    """What keeps governed memories in order."""

    @operation(writes=True)
    def sweep(
        self, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> SweepReport:
        """Decay, demote, promote and archive what is due; consolidate crowded scopes; refresh the pages.

        A dry run only tells.
        """
        from cairn.governed import lifecycle, maintenance

        parts, space = self.parts, Space(app_id, project_id)
        if dry_run:
            report = lifecycle.sweep(parts.keeper, space, dry_run=True)
        else:
            done = maintenance.run(parts.keeper, space, writer=parts.writer)
            report = done.sweep if done is not None else None
            parts.tables.sync(parts.keeper)
        if report is None:  # pragma: no cover -- by hand it is always due
            raise Unavailable("Another sweep of this project is under way; wait for it to end.")
        return report

    @operation(writes=True)
    def import_from(
        self,
        source: str,
        text: str,
        *,
        owner: str = "",
        trust: bool = False,
        app_id: str = "default",
        project_id: str = "default",
    ) -> ImportReport:
        """Take in another program's export through the gate, each item once: ade, mem0, everos, basic-memory
        or claude. What comes in waits for a person to promote it, unless `trust` vouches for all of it.
        """
        from cairn.governed import migrate

        items = migrate.read(source, text, owner=owner)
        return migrate.bring_in(self.parts.keeper, Space(app_id, project_id), source, items, trust=trust)

    @operation(writes=True)
    def consolidate(
        self,
        *,
        dry_run: bool = False,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> ConsolidationReport:
        """Merge clusters of memories that say nearly the same. `undo_consolidation` takes a run back."""
        from cairn.governed import consolidation

        parts, space = self.parts, Space(app_id, project_id)
        where = named_scope(parts, space, scope, owner)
        return consolidation.consolidate(
            parts.keeper, space, scope=where, writer=parts.writer, dry_run=dry_run
        )

    @operation(writes=True)
    def undo_consolidation(self, run_id: str, *, app_id: str = "default", project_id: str = "default") -> int:
        """Take a consolidation back; how many memories are as they were before."""
        from cairn.governed import consolidation

        return consolidation.undo(self.parts.keeper, Space(app_id, project_id), run_id)

    @operation(writes=True)
    def end_mission(
        self, run_id: str, *, success: bool, app_id: str = "default", project_id: str = "default"
    ) -> MissionEnd:
        """End a run: on success what it learned goes to the project, once; then its own are archived."""
        from cairn.governed import missions

        return missions.end(self.parts.keeper, Space(app_id, project_id), run_id, success=success)

    @operation(writes=False)
    def core(
        self, agent: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """The core memory of the project, or of an agent."""
        from cairn.governed import core

        return core.show(self.parts.keeper, core.core_scope(Space(app_id, project_id), agent)).payload()

    @operation(writes=True)
    def set_core(
        self, /, agent: str = "", *, app_id: str = "default", project_id: str = "default", **fields: Any
    ) -> dict[str, Any]:
        """Set fields of the core memory: projectSummary, criticalConventions, userPreferences, activeFocus,
        notes. The version grows by one.
        """
        from cairn.governed import core

        if not fields:
            raise Invalid("Say which field to set: projectSummary, criticalConventions, ...", field="core")
        return core.update(
            self.parts.keeper, core.core_scope(Space(app_id, project_id), agent), **fields
        ).payload()

    @operation(writes=False)
    def skills(self, *, app_id: str = "default", project_id: str = "default") -> Sequence[Mapping[str, Any]]:
        """The registry of skill files, tombstones included."""
        from cairn.governed import skills

        return [asdict(row) for row in skills.index(self.parts.keeper, Space(app_id, project_id))]

    @operation(writes=True)
    def scan_skills(
        self, folders: Sequence[str] = (), *, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Bring the registry in step with the skills in the root and in `folders`."""
        from cairn.engines.skillfolders import skill_files
        from cairn.governed import skills

        space = Space(app_id, project_id)
        found = [*skills.in_root(self.parts.keeper, space)]
        sources = ["root"]
        for folder in folders:
            mine = skill_files(folder)
            found += mine.files
            sources.append(mine.source)
        return skills.scan(self.parts.keeper, space, found, sources=sources)

    @operation(writes=True)
    def export_skill(
        self,
        memory_id: str,
        *,
        scope: str | None = None,
        owner: str = "",
        app_id: str = "default",
        project_id: str = "default",
    ) -> str:
        """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; the path inside the root."""
        from cairn.governed import skills

        space = Space(app_id, project_id)
        where = named_scope(self.parts, space, scope, owner)
        return skills.export(self.parts.keeper, space, memory_id, scope=where).key

    @operation(writes=True)
    def import_skill(
        self, path: str, *, text: str | None = None, app_id: str = "default", project_id: str = "default"
    ) -> ScanReport:
        """Take one SKILL.md in as a procedure: the file at `path`, or `text` under that name."""
        from cairn.engines.skillfolders import one_skill_file
        from cairn.governed import skills

        file = one_skill_file(path) if text is None else skills.SkillFile(path, text, source="import")
        return skills.scan(self.parts.keeper, Space(app_id, project_id), [file], sources=())

    @operation(writes=True)
    def refresh(self, *, app_id: str = "default", project_id: str = "default") -> PagesReport:
        """Make the pages agents read (MEMORY.md and its topics) anew, and settle core memory."""
        from cairn.governed import core, pages

        space = Space(app_id, project_id)
        core.reconcile_all(self.parts.keeper, space)
        return pages.refresh(self.parts.keeper, space)
