"""Governed memories as a whole: sweeping, consolidating, missions, core memory, skills and pages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from cairn import governed
from cairn.errors import Invalid, NotFound, Unavailable
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import (
    ID_PATTERN,
    MAX_ID,
    MAX_TEXT,
    Category,
    DryRun,
    InScope,
    InSpace,
    MemoryId,
    Owner,
    ScopeName,
    memory_named,
    scope_named,
    space_named,
)
from cairn.operations.memories import PLACE, Vouched
from cairn.operations.table import Room, operation, says

if TYPE_CHECKING:
    from cairn.governed.ledger import MissionEnd
    from cairn.governed.lifecycle import ConsolidationReport, SweepReport
    from cairn.governed.migrate import ImportReport
    from cairn.governed.pages import PagesReport
    from cairn.governed.procedures import ScanReport, SkillFile

answers = Answers("keeping")

_MAX_SKILL_BYTES, _MAX_SKILL_FILES = 1024 * 1024, 10_000


Items = Sequence[str] | None
Values = Mapping[str, Any] | None
AgentName = Annotated[str, says("the agent", "coder", low=1, high=MAX_ID, pattern=ID_PATTERN)]


def _swept(report: SweepReport, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    moves = [
        {
            "id": one.before.id,
            "move": one.move,
            "reason": one.reason,
            "from": {"status": one.before.status, "tier": one.before.tier},
            "to": {"status": one.after.status, "tier": one.after.tier},
        }
        for one in report.transitions
    ]
    return {**report.columns(), "dry_run": report.dry_run, "transitions": moves}


def _consolidated(report: ConsolidationReport, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    merged = [
        {
            "scope": one.scope.track,
            "owner": one.scope.owner,
            "category": one.category,
            "new_id": one.new_id or None,
            "originals": list(one.originals),
        }
        for one in report.merged
    ]
    return {"run_id": report.run_id, "dry_run": report.dry_run, "merged": merged}


class Keeping(Room):
    """Operations on all governed memories: sweep, consolidate, missions, core memory, skills."""

    @operation(
        "POST /memories/sweep", answers.SweepData, rules.whole_space(write=True), data=_swept, apart=True
    )
    def sweep(self, *, dry_run: DryRun = False, **at: Unpack[InSpace]) -> SweepReport:
        """Decay, demote, promote and archive what is due; consolidate crowded scopes; refresh the pages.

        A dry run only tells.
        """
        parts, space = self.parts, space_named(**at)
        if dry_run:
            report = governed.lifecycle.sweep(parts.keeper, space, dry_run=True)
        else:
            report = governed.lifecycle.keep_in_order(parts.keeper, space, writer=parts.writer)
        if report is None:  # pragma: no cover -- by hand it is always due
            raise Unavailable("Another sweep of this project is under way; wait for it to end.")
        return report

    @operation("POST /memories/import", answers.ImportData, rules.bring_in, judges=("text",), apart=True)
    def import_from(
        self,
        source: Annotated[
            Literal["ade", "mem0", "everos", "basic-memory", "claude"], says("whose export it is", "mem0")
        ],
        text: Annotated[
            str | bytes,
            says(
                "the export: its text, or its bytes as a part of a form, as of a database of ADE",
                "- Alice keeps a log.",
                low=1,
            ),
        ],
        *,
        owner: Annotated[str, says("the user whose memories they are", "alice", high=MAX_ID)] = "",
        trust: Annotated[bool, says("vouch for them: they count as your own words", True)] = False,
        **at: Unpack[InSpace],
    ) -> ImportReport:
        """Take in another program's export through the gate, each item once: ade, mem0, everos, basic-memory
        or claude. What comes in waits for a person to promote it, unless `trust` vouches for all of it.
        """
        from cairn.engines.ade import text_of

        items = governed.migrate.read(source, text if isinstance(text, str) else text_of(text), owner=owner)
        return governed.migrate.bring_in(self.parts.keeper, space_named(**at), source, items, trust=trust)

    @operation("POST /captures", answers.CaptureData, rules.capture, judges=("text",))
    def capture(
        self,
        source_type: Annotated[
            Literal["intervention", "error_capture", "error_cluster", "pr_feedback"],
            says(
                "what it is: a person's correction, an error, a cluster of them, or review feedback",
                "pr_feedback",
            ),
        ],
        source_key: Annotated[
            str,
            says("the source's unique key: each key is taken in once", "pr-17/comment-3", low=1, high=500),
        ],
        text: Annotated[
            str, says("the text", "Always close the pool before the tests end.", low=1, high=MAX_TEXT)
        ],
        *,
        author: Annotated[str, says("who wrote it; what bots write is ignored", "alice", high=MAX_ID)] = "",
        origin_key: Annotated[
            str, says("where it happened: an error from three places becomes a gotcha", "run-42", high=500)
        ] = "",
        category: Annotated[
            Category | None, says("its category; otherwise taken from its words", "gotcha")
        ] = None,
        scope: Annotated[ScopeName, says("whose memory it goes to", "project")] = "project",
        owner: Owner = "",
        vouched: Vouched = True,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Take an intervention, an error or review feedback in, once by its source, through the gate as a candidate."""
        keeper, space = self.parts.keeper, space_named(**at)
        known = governed.ledger.CaptureLedger(keeper).find(space, source_type, source_key)
        verdict = None
        if known is None:
            verdict = governed.ledger.learn(
                keeper,
                space,
                source_type,
                source_key,
                text,
                author=author,
                origin_key=origin_key,
                scope=scope,
                owner=owner,
                category=category,
                vouched=vouched,
            )
        if verdict is not None:
            return {
                "captured": verdict.accepted,
                "reason": verdict.reason,
                "verdict": governed.memories.verdict_json(verdict),
            }
        reason = "known" if known is not None else "nothing to capture"
        return {"captured": False, "reason": reason, "verdict": None}

    @operation("GET /captures", answers.CapturesData, rules.whole_space(write=False))
    def captures(
        self,
        *,
        source_type: Annotated[str | None, says("only of this sort", "pr_feedback", low=1, high=100)] = None,
        limit: Annotated[int, says("how many, the newest first", 50, low=1, high=500)] = 50,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """What was taken in by source: interventions, errors, feedback, imports and missions, each once."""
        rows = [
            asdict(row)
            for row in governed.ledger.CaptureLedger(self.parts.keeper).rows(space_named(**at))
            if source_type is None or row.source_type == source_type
        ]
        return {"captures": rows[::-1][:limit], "total": len(rows)}

    @operation(
        "POST /memories/consolidate",
        answers.ConsolidateData,
        rules.whole_space(write=True, promotes="consolidate"),
        data=_consolidated,
        apart=True,
    )
    def consolidate(self, *, dry_run: DryRun = False, **at: Unpack[InScope]) -> ConsolidationReport:
        """Merge memories that say nearly the same; `undo` takes a run back."""
        parts, (space, where) = self.parts, scope_named(self.parts, **at)
        return governed.lifecycle.consolidate(
            parts.keeper, space, scope=where, writer=parts.writer, dry_run=dry_run
        )

    @operation("POST /missions/{run}/end", answers.MissionEndData, rules.whole_space(write=True))
    def end_mission(
        self,
        run_id: Annotated[
            str, says("the run: the owner of its memories", "run-42", low=1, high=200, wire="run")
        ],
        *,
        success: Annotated[bool, says("whether it reached its goal", True)],
        **at: Unpack[InSpace],
    ) -> MissionEnd:
        """End a mission: on success what it learned is copied to the project, once; then its memories are archived."""
        return governed.ledger.end_mission(self.parts.keeper, space_named(**at), run_id, success=success)

    @operation("GET /core", answers.CoreData, rules.core(write=False))
    def core(
        self,
        agent: Annotated[str, says("whose; the project's where none is named", "coder", high=MAX_ID)] = "",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """The core memory of the project, or of an agent."""
        return governed.core.show(
            self.parts.keeper, governed.core.core_scope(space_named(**at), agent)
        ).payload()

    @operation(
        "PUT /core", answers.CoreData, rules.core(write=True), in_query=("agent", "app_id", "project_id")
    )
    def set_core(
        self,
        agent: Annotated[str, says("whose; the project's where none is named", "coder", high=MAX_ID)] = "",
        *,
        projectSummary: Annotated[  # noqa: N803 -- the field names are ADE's
            str | None, says("what the project is", "A parser for tide tables.", high=MAX_TEXT)
        ] = None,
        criticalConventions: Annotated[  # noqa: N803
            Items, says("what must be kept to", ["Tabs"], each=(0, MAX_TEXT))
        ] = None,
        userPreferences: Annotated[  # noqa: N803
            Items, says("what its people prefer", ["Short answers"], each=(0, MAX_TEXT))
        ] = None,
        activeFocus: Annotated[  # noqa: N803
            Items, says("what is worked on", ["the 2.0 release"], each=(0, MAX_TEXT))
        ] = None,
        notes: Annotated[Items, says("what else to know", ["Mind the tide."], each=(0, MAX_TEXT))] = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Set fields of the core memory; its version grows by one."""
        named: dict[str, Any] = {
            "projectSummary": projectSummary,
            "criticalConventions": criticalConventions,
            "userPreferences": userPreferences,
            "activeFocus": activeFocus,
            "notes": notes,
        }
        fields = {name: value for name, value in named.items() if value is not None}
        if not fields:
            raise Invalid("Say which field to set: projectSummary, criticalConventions, ...", field="core")
        return governed.core.update(
            self.parts.keeper, governed.core.core_scope(space_named(**at), agent), **fields
        ).payload()

    # ------------------------------------------------------------ agents

    @operation("GET /agents", answers.AgentsData, rules.whole_space(write=False))
    def agents(self, **at: Unpack[InSpace]) -> dict[str, Any]:
        """The agents of a space that have an identity."""
        found = governed.core.identities(self.parts.keeper, space_named(**at))
        return {"agents": [asdict(one) for one in found]}

    @operation("GET /agents/{agent}", answers.AgentData, rules.agent(write=False))
    def agent(self, agent: AgentName, **at: Unpack[InSpace]) -> dict[str, Any]:
        """Who an agent is, and the documents it is given: agent.md, soul.md, tools.md and behaviors.md."""
        space = space_named(**at)
        identity = governed.core.identity(self.parts.keeper, space, agent)
        documents = governed.core.documents(self.parts.keeper, space, agent)
        if identity is None and not documents:
            raise NotFound(f'Nothing is on record about an agent "{agent[:80]}".', agent=agent)
        return {"identity": asdict(identity) if identity is not None else None, "documents": documents}

    @operation(
        "PUT /agents/{agent}",
        answers.IdentityData,
        rules.agent(write=True),
        in_query=("app_id", "project_id"),
    )
    def set_agent(
        self,
        agent: AgentName,
        *,
        name: Annotated[str | None, says("what it is called", "The coder", low=1, high=200)] = None,
        profile: Annotated[Values, says("what it is", {"role": "reviewer"})] = None,
        persona: Annotated[Values, says("how it speaks", {"tone": "dry"})] = None,
        tool_policy: Annotated[Values, says("what it may use", {"shell": "ask"})] = None,
        user_preferences: Annotated[Values, says("what its people prefer", {"language": "en"})] = None,
        heartbeat: Annotated[Values, says("when it wakes by itself", {"every": "1h"})] = None,
        model_preference: Annotated[
            str | None, says("the model it should run on", "small-1", low=1, high=200)
        ] = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Put an agent's identity on record, or change some of its fields."""
        named: dict[str, Any] = {
            "name": name,
            "profile": profile,
            "persona": persona,
            "tool_policy": tool_policy,
            "user_preferences": user_preferences,
            "heartbeat": heartbeat,
            "model_preference": model_preference,
        }
        fields = {key: value for key, value in named.items() if value is not None}
        if not fields:
            raise Invalid("Say what to set: name, profile, persona, ...", field="name")
        return asdict(governed.core.set_identity(self.parts.keeper, space_named(**at), agent, **fields))

    @operation(
        "PUT /agents/{agent}/documents/{document}",
        answers.AgentDocumentData,
        rules.agent(write=True),
        in_query=("app_id", "project_id"),
    )
    def set_agent_document(
        self,
        agent: AgentName,
        document: Annotated[
            Literal["agent", "soul", "tools", "behaviors"], says("which of its documents", "soul")
        ],
        text: Annotated[str, says("what it says from now on", "Speak plainly.", low=1, high=MAX_TEXT)],
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Write `agent.md`, `soul.md`, `tools.md` or `behaviors.md` of an agent: searched, and handed out with it."""
        path, lsn = governed.core.write_document(self.parts.keeper, space_named(**at), agent, document, text)
        return {"path": path, "lsn": lsn}

    # ------------------------------------------------------------ what was done

    @operation("GET /memories/runs", answers.KeepingRuns, rules.whole_space(write=False))
    def runs(
        self,
        *,
        limit: Annotated[int, says("how many of each, the newest first", 10, low=1, high=500)] = 10,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """What wrote many entries at once, newest first, to be taken back by `undo`; when memories were last swept and
        consolidated, and what came of it.
        """
        keeper, space = self.parts.keeper, space_named(**at)
        sweeps = [dict(one) for one in governed.lifecycle.sweeps(keeper, space)][::-1]
        merged = [dict(one) for one in governed.lifecycle.consolidations(keeper, space)][::-1]
        return {
            "runs": self.parts.runs.runs(space, limit=limit),
            "last_sweep": sweeps[0] if sweeps else None,
            "last_consolidation": merged[0] if merged else None,
            "sweeps": sweeps[:limit],
            "consolidations": merged[:limit],
        }

    @operation("POST /daily", answers.DailyData, rules.whole_space(write=True))
    def note_day(
        self,
        text: Annotated[str, says("what happened, in a line", "Released 2.0.", low=1, high=2000)],
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Add a line to today's log; `pages/daily/<date>.md` shows it."""
        keeper, space = self.parts.keeper, space_named(**at)
        governed.pages.log(keeper, space, text)
        return {"days": {keeper.day(): governed.pages.daily(keeper, space)[keeper.day()]}}

    @operation("GET /daily", answers.DailyData, rules.whole_space(write=False))
    def daily(
        self,
        *,
        day: Annotated[str | None, says("only this day", "2026-06-01", pattern=r"\d{4}-\d\d-\d\d")] = None,
        limit: Annotated[int, says("how many days, the newest first", 7, low=1, high=366)] = 7,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """The daily log: what was noted on each day."""
        found = governed.pages.daily(self.parts.keeper, space_named(**at))
        days = [day] if day is not None else sorted(found, reverse=True)[:limit]
        return {"days": {one: found.get(one, []) for one in days}}

    @operation("GET /skills", answers.SkillsData, rules.whole_space(write=False))
    def skills(self, **at: Unpack[InSpace]) -> Sequence[Mapping[str, Any]]:
        """The registry of skill files, tombstones included."""
        return [asdict(row) for row in governed.procedures.skill_index(self.parts.keeper, space_named(**at))]

    @operation("POST /skills/scan", answers.ScanData, rules.skill_folders, apart=True)
    def scan_skills(
        self,
        folders: Annotated[
            Sequence[str],
            says(
                "folders besides the root's own skills; over HTTP below server.project_roots",
                ["/srv/skills"],
                high=50,
                each=(1, 4096),
            ),
        ] = (),
        **at: Unpack[InSpace],
    ) -> ScanReport:
        """Bring the registry in step with the skills in the root and in `folders`."""
        space = space_named(**at)
        found = [*governed.procedures.skills_in_root(self.parts.keeper, space)]
        sources = ["root"]
        for folder in folders:
            source, files = _skill_files(folder)
            found += files
            sources.append(source)
        return governed.procedures.scan_skills(self.parts.keeper, space, found, sources=sources)

    @operation("POST /memories/{id}/skill", answers.SkillPath, rules.whole_space(write=True), in_query=PLACE)
    def export_skill(self, memory_id: MemoryId, **at: Unpack[InScope]) -> str:
        """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; the path inside the root."""
        return governed.procedures.export_skill(
            self.parts.keeper, memory_named(self.parts, memory_id, at)
        ).key

    @operation(
        "POST /skills/import", answers.ScanData, rules.whole_space(write=True, promotes="skills/import")
    )
    def import_skill(
        self,
        path: Annotated[
            str, says("a SKILL.md, or the folder it is in", "skills/deploy/SKILL.md", here=True)
        ] = "",
        *,
        name: Annotated[
            str,
            says(
                "its name in the registry, where `text` is given",
                "deploy",
                low=1,
                high=MAX_ID,
                pattern=ID_PATTERN,
            ),
        ] = "",
        text: Annotated[
            str | None, says("the SKILL.md itself", "---\nname: deploy\n---\n", low=1, high=1024 * 1024)
        ] = None,
        **at: Unpack[InSpace],
    ) -> ScanReport:
        """Take one SKILL.md in as a procedure: the file at `path`, or `text` under that name."""
        if text is None:
            if not path:
                raise Invalid("Give the path of a SKILL.md, or its text and a name.", field="path")
            file = _one_skill_file(path)
        elif path or name:
            file = governed.procedures.SkillFile(path or f"{name}/SKILL.md", text, source="import")
        else:
            raise Invalid("name: is missing.", field="name")
        return governed.procedures.scan_skills(self.parts.keeper, space_named(**at), [file], sources=())

    @operation("POST /refresh", answers.PagesData, rules.whole_space(write=True), apart=True)
    def refresh(self, **at: Unpack[InSpace]) -> PagesReport:
        """Rewrite the pages that agents read (MEMORY.md and its topics), and reconcile core memory."""
        space = space_named(**at)
        governed.core.reconcile_all(self.parts.keeper, space)
        return governed.pages.refresh(self.parts.keeper, space)


# ---------------------------------------------------------------- skill files outside the memory root, on this machine


def _skill_files(folder: str) -> tuple[str, list[SkillFile]]:
    """What a folder is called in the registry, and the skills below it: every `SKILL.md`, and every `.md` file of a
    folder called `commands`. Links are not followed.

    Raises:
        NotFound: there is no such folder.
        Invalid: it is a file, or holds more skills than anyone means.
    """
    top = _place(folder)
    if not top.exists():
        raise NotFound(f"{folder}: there is no such folder.", path=folder)
    if not top.is_dir():
        raise Invalid(f"{folder} is a file; name the folder that holds skills.", path=folder)
    source = f"folder:{top}"
    found = []
    for here, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in {".git", "node_modules"})
        for name in sorted(names):
            is_command = name.endswith(".md") and Path(here).name == "commands"
            if name == "SKILL.md" or is_command:
                file = Path(here) / name
                if file.is_symlink():
                    continue
                found.append(_read_skill(file, source))
                if len(found) > _MAX_SKILL_FILES:
                    raise Invalid(f"{folder} holds more than {_MAX_SKILL_FILES} skills.", path=folder)
    return source, found


def _one_skill_file(path: str) -> SkillFile:
    """One skill file, wherever it lies; of a folder, its `SKILL.md`.

    Raises:
        NotFound: there is no such file.
        Invalid: it is not a Markdown file, too large, or not UTF-8.
    """
    file = _place(path)
    if file.is_dir():
        file /= "SKILL.md"
    elif file.exists() and file.suffix != ".md":
        raise Invalid(f"{path} is not a Markdown file: name a SKILL.md, or the folder it is in.", path=path)
    return _read_skill(file, "import")


def _place(name: str) -> Path:
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise Invalid(f"{name!r:.60} is no path: name a folder or a SKILL.md.", field="path")
    return Path(name).expanduser().absolute()


def _read_skill(file: Path, source: str) -> SkillFile:
    try:
        info = file.stat()
        if info.st_size > _MAX_SKILL_BYTES:
            raise Invalid(
                f"{file.name} has {info.st_size} bytes; a skill has at most {_MAX_SKILL_BYTES}.",
                path=str(file),
            )
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"{file}: there is no such file.", path=str(file)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read as UTF-8 text ({error}).", path=str(file)) from None
    changed = datetime.fromtimestamp(info.st_mtime, UTC).isoformat()
    return governed.procedures.SkillFile(str(file), text, changed, source)
