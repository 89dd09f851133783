"""`ProjectMemory`: the memory of one repository, one method per command.

    init, update      the repository is read, the bundle follows it
    record, import_   events are added
    consolidate       events are folded into the bundle
    query, status     answers, without writing
    validate          is the record whole?
    prune, restore    history leaves and comes back

All parts are passed in. Writing commands hold one lock per work tree; a crash in any of them is made good by
the next (see `record.py`).
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cairn.canonical import pretty
from cairn.errors import Conflict, Invalid, Misconfigured, NotFound
from cairn.project import consolidate as folding
from cairn.project import git, legacy, projections
from cairn.project import options as settings
from cairn.project import query as asking
from cairn.project import status as standing
from cairn.project.archive import PrunePlan
from cairn.project.bundle import SECTIONS, Bundle, checked
from cairn.project.checkpoints import Story, changed_sections, made, mark_of, marks, section_diffs
from cairn.project.consolidate import Plan, refreshed
from cairn.project.describe import describe
from cairn.project.events import Event, EventDraft, Signals
from cairn.project.imports import Capture, Progress, SessionImport, SourceReport
from cairn.project.layout import (
    ARCHIVE,
    AUTOMATION,
    CONFIG,
    EDITS,
    EVENTS,
    HOME,
    PAGES,
    REF_PREFIX,
    SOURCES,
    STATE,
)
from cairn.project.options import ProjectOptions
from cairn.project.record import ProjectRecord
from cairn.project.sources import ImportLedger, Source
from cairn.project.status import RecordFinding, validate
from cairn.project.survey import survey
from cairn.seams import Clock, Journals, Locks, StorageBackend, SystemClock, Writer
from cairn.types import Space
from cairn.wording import counted

LOCK = "project"
# By these a folder is known as a memory root, which is called `.cairn` too where it lies in a home folder.
_OF_A_ROOT = ("cairn.toml", "ome.toml", ".index", ".server", ".hooks")
_OF_A_SPACE = ("users", "agents", "shared", "sessions", "journal", "missions", "knowledge")
_GITIGNORE = "# Paths and processes of one machine.\nsources.json\nautomation/\nedits/\nlocks/\n"
_ATTRIBUTES = (
    "# Two branches may both write here: keep the lines of both, the next command puts them in order.\n"
)


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """What a writing command did."""

    event_id: str | None
    checkpoint_id: str
    bundle_hash: str
    changed: tuple[str, ...]
    notes: tuple[str, ...]
    summary: str

    def to_json(self) -> dict[str, Any]:
        return {
            "eventId": self.event_id,
            "checkpointId": self.checkpoint_id,
            "bundleHash": self.bundle_hash,
            "changedSections": list(self.changed),
            "notes": list(self.notes),
            "summary": self.summary,
        }


class ProjectMemory:
    """The memory of the work tree at `tree`.

    Args:
        tree: The top of the work tree (see `git.top_of`).
        storage: A backend rooted at `tree`.
        journals: Journals rooted at `tree`.
        locks: Locks of this work tree.
        clock: Time, for tests.
        writer: A language model, or None: every command works without one.
        capture: Where messages of imported sessions go as well, or None.
    """

    def __init__(
        self,
        tree: Path,
        *,
        storage: StorageBackend,
        journals: Journals,
        locks: Locks,
        clock: Clock | None = None,
        writer: Writer | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.tree = tree
        self.clock = clock or SystemClock()
        self.locks = locks
        self.record_ = ProjectRecord(tree, storage, journals, self.clock)
        self._storage = storage
        self._journals = journals
        self._writer = writer
        self._capture = capture

    # ------------------------------------------------------------ where

    @property
    def exists(self) -> bool:
        return bool(self.record_.checkpoints.files())

    @property
    def options(self) -> ProjectOptions:
        return settings.load(self._storage)

    @property
    def space(self) -> Space:
        """The app and project of the memory root this repository is bound to.

        By the clone's own git settings, else by its remote or place. The committed `binding` is anybody's: it chooses
        between remote and place, and names no other space.
        """
        if bound := git.bound_space(self.tree):
            return bound
        by_remote = git.space_of(self.tree)
        if (named := self._named) in {None, str(by_remote)}:
            return by_remote
        place = git.space_of_place(self.tree)
        return place if named == str(place) else by_remote

    @property
    def _named(self) -> str | None:
        """What the committed `binding` says."""
        options = self.options
        app, project = options.get("binding.app"), options.get("binding.project")
        return f"{app or 'default'}/{project}" if project else None

    @property
    def unbound(self) -> str | None:
        """That the committed `binding` names a space which is not this clone's, with the next step; None where it does not."""
        named, space = self._named, self.space
        if named in {None, str(space)}:
            return None
        first = (
            "" if git.common_dir(self.tree) else "`git init`, which keeps it from the next move on, and then "
        )
        return (
            f"{CONFIG} names the space {shlex.quote(str(named)[:80])}, which this clone was not bound to on this machine: "
            f"{space} is used. A repository's file may name anybody's memory; if that space is "
            f"this repository's, run {first}`git config {git.BOUND} APP/PROJECT` in it."
        )

    @property
    def spaces(self) -> list[Space]:
        """The same, and those that were this clone's before it had a remote, or had another name: what was said then is there."""
        return list(dict.fromkeys((self.space, git.space_of_place(self.tree), *git.spaces_before(self.tree))))

    # ------------------------------------------------------------ init and update

    def init(self, *, force: bool = False) -> ProjectChange:
        """Make the memory of this repository, from evidence alone, and write the pages.

        Raises:
            Conflict: there is one already and `force` is not set. With `force` the old record is removed.
            Invalid: `.cairn` is a memory root, as it is in a home folder; or this is in a git directory.
        """
        if (inside := git.git_dir_around(self.tree)) is not None:
            raise Invalid(
                f"{inside} is a git directory, where no project memory belongs: go to the work tree of the repository, or name "
                "it with -C.",
                path=str(self.tree),
            )
        if self._holds_a_root():
            raise Invalid(
                f"{self.tree / HOME.key} is a memory root, which a project's memory cannot share: go to the repository, "
                "or name it with -C.",
                path=str(self.tree),
            )
        with self.locks.hold(LOCK):
            if self.exists and not force and self._is_current():
                raise Conflict(
                    f"{self.tree} has a project memory already. Run `cairn project update`, or `init --force` to start anew.",
                    path=str(self.tree),
                )
            old = legacy.read(self._storage)
            if old and old.sources and git.is_tracked(self.tree, legacy.OLD_SOURCES.key):
                # A repository may not say which folders of its reader are taken in.
                left = f"{legacy.OLD_SOURCES} is tracked by git, so its folders are not taken over: add them by hand"
                old = replace(old, sources=(), notes=(*old.notes, left))
            space = git.space_of(self.tree)
            evidence = describe(survey(self.tree))
            bundle = refreshed(None, old.bundle, evidence) if old and old.bundle else evidence
            self._wipe()
            self._write_frame(old.config if old and old.config else settings.defaults(), space)
            git.bind(self.tree, space)
            self.record_.sources.save(list(old.sources) if old else [])
            drafts = old.drafts if old else ()
            events = [draft.event(number, self.clock.now()) for number, draft in enumerate(drafts, start=1)]
            for event in events:
                self.record_.log.append([event])
            base = self._first_story(events, bundle, old) if events or (old and old.checkpoints) else None
            summary = f"Set up project memory for {bundle['project']['name']}"
            story = self._commit(base, bundle, "init", summary, evidence)
            return self._written(story, None, [*self.record_.notes, *(old.notes if old else ())])

    def _is_current(self) -> bool:
        try:
            self.record_.require()
        except (NotFound, Invalid, RuntimeError):
            return False
        return True

    def _holds_a_root(self) -> bool:
        home = self.tree / HOME.key
        return any((home / name).exists() for name in _OF_A_ROOT) or any(
            (space / name).is_dir() for space in home.glob("*/*/") for name in _OF_A_SPACE
        )

    def _wipe(self) -> None:
        """Remove what `init` and the commands after it write; a file of somebody else, such as the switch of agents, stays."""
        own = (STATE, CONFIG, SOURCES, HOME.child("history"), ARCHIVE, EDITS, AUTOMATION)
        for child in (self.tree / at.key for at in own):
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink(missing_ok=True)

    def _write_frame(self, config: Mapping[str, Any], space: Space) -> None:
        self._storage.write(
            CONFIG, pretty({**config, "binding": {"app": space.app, "project": space.project}})
        )
        self._storage.write(HOME.child(".gitignore"), _GITIGNORE)
        merged = ["state.json merge=union", "history/*.jsonl merge=union"]
        self._storage.write(HOME.child(".gitattributes"), _ATTRIBUTES + "\n".join(merged) + "\n")
        self._storage.write(PAGES.child(".gitattributes"), _ATTRIBUTES + "*.md merge=union\n")

    def _first_story(self, events: Sequence[Event], bundle: Bundle, old: legacy.Legacy | None) -> Story:
        """A story to build on when events and checkpoints came from elsewhere; the checkpoints are written."""
        carried = EventDraft("tool_run", "Carried over", Signals(), f"{REF_PREFIX}init")
        first = events[-1] if events else carried.event(1, self.clock.now())
        root = made(0, first, bundle, "before", parents=[], provider="none")
        for number, kept in enumerate(old.checkpoints if old else (), start=1):
            parents = [root.key] if root.number else []
            told = replace(first, createdAt=kept.created)
            root = made(number, told, kept.bundle, kept.summary, parents=parents, provider="none")
            self.record_.checkpoints.write(root)
        return Story(root, tuple(events), 0)

    def update(self) -> ProjectChange:
        """Read the repository again: what went stale follows it, what was learned or corrected stays.

        Where the repository says what it said last time, nothing is written.
        """
        with self.locks.hold(LOCK):
            story = self.record_.ready()
            evidence = describe(survey(self.tree))
            before = story.checkpoint
            bundle = refreshed(before.evidence, before.bundle, evidence)
            if (bundle, evidence) == (before.bundle, before.evidence):
                told = "Nothing changed since the last look; nothing was written"
                return ProjectChange(None, before.id, before.bundleHash, (), tuple(self.record_.notes), told)
            git.bind(self.tree, self.space)
            after = self._commit(story, bundle, "update", "Read the repository again", evidence)
            return self._written(after, before.bundle, self.record_.notes)

    def _commit(
        self, story: Story | None, bundle: Bundle, command: str, summary: str, evidence: Bundle
    ) -> Story:
        signals = Signals.of({"keyPaths": bundle["project"]["keyPaths"]})
        provider = self._writer.id if self._writer else "none"
        return self.record_.commit(
            story, bundle, command, summary, signals, provider=provider, evidence=evidence
        )

    def _written(self, story: Story, before: Bundle | None, notes: Sequence[str]) -> ProjectChange:
        changed = changed_sections(before, story.checkpoint.bundle) if before else list(SECTIONS)
        return ProjectChange(
            story.checkpoint.event.id,
            story.checkpoint.id,
            story.checkpoint.bundleHash,
            tuple(changed),
            tuple(dict.fromkeys(notes)),
            story.checkpoint.summary,
        )

    # ------------------------------------------------------------ events

    def record(
        self, summary: str, signals: Mapping[str, Sequence[str]] | None = None, *, ref: str = "record"
    ) -> Event:
        """Add one `tool_run` event: something a person or an agent did or learned. Durable when it returns."""
        if not self._journals.size(EVENTS):
            self.record_.require()
        draft = EventDraft("tool_run", summary, Signals.of(signals or {}), f"{REF_PREFIX}{ref}")
        draft.event(1, self.clock.now())
        with self.locks.hold(LOCK):
            return self.record_.append(draft)

    def events(self) -> tuple[Event, ...]:
        """The active events, oldest first."""
        return self.record_.view().story.events

    # ------------------------------------------------------------ sources and imports

    def add_source(self, kind: str, path: Path) -> Source:
        self.record_.require()
        with self.locks.hold(LOCK):
            return self.record_.sources.add(kind, path, self.clock.now())

    def sources(self) -> list[Source]:
        self.record_.require()
        return self.record_.sources.all()

    def remove_source(self, ident: str) -> Source:
        self.record_.require()
        with self.locks.hold(LOCK):
            return self.record_.sources.remove(ident)

    def import_(
        self, idents: Sequence[str] = (), *, capture: bool = False, progress: Progress | None = None
    ) -> list[SourceReport]:
        """Import the sessions of the named sources (all of them by default), each session once for ever.

        The lock is taken for each event, not for the whole run: others may write meanwhile.
        """
        with self.locks.hold(LOCK):
            story = self.record_.ready()
        known = self.record_.sources.all()
        if known and git.is_tracked(self.tree, SOURCES.key):
            raise Invalid(
                f"{SOURCES} came with the repository: it names folders of somebody's choice, and what is imported goes "
                f"into the repository's history. Take it out (`git rm --cached {SOURCES}`), look at what it names "
                "(`cairn project sources list`), and import again.",
                path=SOURCES.key,
            )
        missing = [ident for ident in idents if ident not in {source.id for source in known}]
        if missing:
            raise NotFound(
                f"There is no source {missing[0]}. `cairn project sources list` names them.", id=missing[0]
            )

        def emit(draft: EventDraft) -> Event:
            with self.locks.hold(LOCK):
                return self.record_.append(draft, story)

        told = self._capture if capture else None
        run = SessionImport(
            self.tree, ImportLedger(self._journals), story.events, emit, self._storage, self.clock.now, capture=told, writer=self._writer
        )  # fmt: skip
        reports = []
        with self.locks.hold("project-import", timeout=5.0):
            for source in known:
                if idents and source.id not in idents:
                    continue
                report = run.run(source, progress)
                reports.append(report)
                with self.locks.hold(LOCK):
                    self.record_.sources.record(
                        source.id, self.clock.now(), report.imported, report.first_error
                    )
        with self.locks.hold(LOCK):
            self.record_.ready()
        return reports

    # ------------------------------------------------------------ consolidate

    def plan(
        self, *, section: str | None = None, source: str | None = None, policy: str | None = None
    ) -> Plan:
        """What `consolidate` would do now, with a summary and a diff per section. Writes nothing."""
        view = self.record_.view()
        return self._plan(view.story, view.shown, section, source, policy)

    def _plan(
        self, story: Story, bundle: Bundle, section: str | None, source: str | None, policy: str | None
    ) -> Plan:
        options = self.options
        section = options.text("recall.defaultSection", section)
        source = options.text("recall.defaultSource", source)
        policy = options.text("recall.policy", policy)
        waiting = story.backlog(source)
        protected = folding.protected_sections(policy, section)
        allowed = folding.allowed_events(waiting, policy)
        done = story.read_in_part(source)
        news = {event.id: folding.news_of(event) - done.get(mark_of(event), set()) for event in allowed}
        groups = folding.grouped(
            [event for event in allowed if event.signals and news[event.id] - set(protected)]
        )
        whole = tuple(event for event in allowed if not news[event.id] & set(protected))
        in_part = tuple(event for event in allowed if news[event.id] & set(protected))
        candidate, provider = None, "none"
        if groups and self._writer is not None:
            candidate = folding.asked(self._writer, bundle, groups)
            provider = self._writer.id if candidate else "none"
        if groups and candidate is None:
            candidate = folding.proposed(bundle, groups, lambda path: (self.tree / path).exists())
        after = bundle
        if candidate is None:
            summary = folding.summary_of(bundle, bundle, {"gotchas": [], "nextSteps": []})
        else:
            after, summary = folding.folded(bundle, candidate, protected)
        summary |= {"selectedSection": section, "protectedSections": list(protected), "events": len(waiting)}
        plan = Plan(None, tuple(waiting), section, source, policy, protected, summary, {}, provider)
        if after == bundle:
            return plan
        return replace(
            plan, bundle=after, diffs=section_diffs(bundle, after), read=whole, read_in_part=in_part
        )

    def consolidate(
        self,
        *,
        section: str | None = None,
        source: str | None = None,
        policy: str | None = None,
        confirm: Callable[[Plan], bool] | None = None,
    ) -> tuple[Plan, ProjectChange | None]:
        """Fold the backlog into the bundle. Nothing to fold, or `confirm` says no: nothing is written.

        The plan is shown and confirmed outside the lock; under it, it is made again from what is there then, so
        that an event recorded meanwhile is neither lost nor counted as read.
        """
        plan = self.plan(section=section, source=source, policy=policy)
        if plan.is_noop or (confirm is not None and not confirm(plan)):
            return plan, None
        with self.locks.hold(LOCK):
            story = self.record_.ready()
            before, fresh = story.checkpoint.bundle, plan
            if (
                marks(plan.events) != marks(story.backlog(plan.source))
                or section_diffs(before, checked(plan.bundle)) != plan.diffs
            ):
                fresh = self._plan(story, before, section, source, policy)
            if fresh.bundle is None:
                return fresh, None
            after = self.record_.commit(
                story,
                fresh.bundle,
                "consolidate",
                _told(fresh),
                Signals(),
                provider=fresh.provider,
                effect={
                    "source": fresh.source,
                    "section": fresh.section,
                    "consumed": marks(fresh.read),
                    "partly": marks(fresh.read_in_part),
                    "sections": sorted(set(SECTIONS) - set(fresh.protected)),
                },
            )
            return fresh, self._written(after, before, self.record_.notes)

    # ------------------------------------------------------------ reading

    def query(self, question: str, *, scope: str = "all") -> asking.QueryResult:
        """Answer a question from bundle, checkpoints and events; see `query.py` for the rules."""
        asked = asking.ProjectQuestion.of(question, scope)
        view, kept = self.record_.view(), self.record_.checkpoints
        sources = asking.QuerySources(
            view.shown,
            view.story.events,
            view.story.backlog("all"),
            view.story.checkpoint.evidence,
            checkpoints=kept.newest(asking.CHECKPOINTS_READ) if scope != "state" else (),
            commits=git.recent_commits(self.tree, asking.COMMITS_READ)
            if scope != "state" and asked.mode == "changes"
            else (),
            files=git.tracked_files(self.tree) or () if asked.kind == "where" and scope != "history" else (),
        )
        return asking.query(asked, sources, self.options, now=self.clock.now(), writer=self._writer)

    def status(self, *, checkpoint: str | None = None) -> dict[str, Any]:
        """How things stand, compared with the newest checkpoint or the one named."""
        told = standing.status(self.record_, self.options, self.clock.now(), checkpoint)
        return {**told, "unbound": self.unbound}

    def validate(self) -> list[RecordFinding]:
        """Every check of the record."""
        found = validate(self.record_, self.clock.now())
        with suppress(Misconfigured):  # a finding already
            if told := self.unbound:
                found.append(RecordFinding("warn", "config.binding", told))
        return found

    # ------------------------------------------------------------ retention and restore

    def prune(self, *, dry_run: bool = False) -> tuple[PrunePlan, str | None]:
        """Archive what is old and consolidated, and expire old archives. Automation calls this."""
        if dry_run:
            view = self.record_.view()
            return self.record_.archive.plan(view.story, self.options, self.clock.now()), None
        with self.locks.hold(LOCK):
            story = self.record_.ready()
            options, now = self.options, self.clock.now()
            plan = self.record_.archive.plan(story, options, now)
            name = self.record_.archive.copy_out(plan, options, now)
            if name:
                self.record_.archive.drop(name)
            self.record_.archive.expire(plan.expired)
            for batch in plan.expired:
                for folder in (
                    self.tree / ARCHIVE.key / batch / "checkpoints",
                    self.tree / ARCHIVE.key / batch,
                ):
                    with suppress(OSError):  # it holds something, or is not there
                        folder.rmdir()
            if plan:
                self.record_.ready()
            return plan, name

    def restore(self, ident: str) -> ProjectChange:
        """Bring back a checkpoint's bundle (as a new checkpoint, so this can be undone) or an archive batch."""
        with self.locks.hold(LOCK):
            story = self.record_.ready()
            if ident.startswith("prune-"):
                events, checkpoints = self.record_.archive.restore(ident, self.clock.now())
                after = self.record_.ready()
                told = f"{events} events and {checkpoints} checkpoints are active again"
                return ProjectChange(
                    None, after.checkpoint.id, after.checkpoint.bundleHash, (), (told,), f"Restored {ident}"
                )
            target = self.record_.checkpoints.find(ident)
            summary, effect = f"Restored the bundle of {target.id}", {"restored": target.key}
            after = self.record_.commit(
                story, target.bundle, "restore", summary, Signals(), provider=target.provider, effect=effect
            )
            return self._written(after, story.checkpoint.bundle, self.record_.notes)

    def page(self, name: str) -> str:
        """The text of one page as it should read now."""
        if name not in projections.PAGE_FILES:
            raise NotFound(f'There is no page "{name}": {", ".join(projections.PAGE_FILES)}.', id=name)
        return projections.pages_body(name, self.record_.view().shown)


def _told(plan: Plan) -> str:
    """What a consolidation did, for the log: the news by name, else the sections."""
    news = [
        *(f"gotcha “{title}”" for title in plan.summary["addedGotchas"]),
        *(f"next step “{title}”" for title in plan.summary["addedNextSteps"]),
        *(f"done: “{title}”" for title in plan.summary["removedNextSteps"]),
    ]
    told = ", ".join(news[:4]) + (f" and {len(news) - 4} more" if len(news) > 4 else "")
    return f"Folded in {counted(len(plan.events), 'event')}: {told or ', '.join(plan.summary['changedSections'])}"
