"""Reads a repository's record, repairs what a crash or merge left, and commits to it in a fixed order.

A writing command starts with `ready()`, under the repository lock:

    unfinished prune      -> finished            (archive.py)
    merged event log      -> ids made unique     (events.py)
    merged checkpoints    -> heads united in one (here)
    interrupted command   -> finished from its checkpoint
    pages edited by hand  -> taken over as a new checkpoint
    state, pages, block   -> written where they differ

and ends with `commit()`: checkpoint, state, pages, entry block, event. Reading commands use `view()`, which
does the same in memory and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cairn.canonical import from_json, json_hash, pretty, text_hash
from cairn.errors import Conflict, Invalid, Misconfigured, NotFound
from cairn.project import git, projections
from cairn.project.archive import Archive
from cairn.project.bundle import Bundle, checked
from cairn.project.checkpoints import Checkpoint, CheckpointStore, Story, carried_cursors, heads_of, made
from cairn.project.consolidate import three_way, united
from cairn.project.describe import ENTRY_FILES
from cairn.project.events import Event, EventDraft, EventLog, Parsed, Signals, normalised
from cairn.project.layout import EDITS, EVENTS, HOME, REF_PREFIX, SCHEMA_VERSION, STATE, read_json
from cairn.project.sources import SourceRegistry
from cairn.seams import Clock, Journals, Locator, StorageBackend, content_hash


@dataclass(frozen=True, slots=True)
class View:
    """What is there, put in order in memory. `problems` are things the next writing command will mend."""

    story: Story
    shown: Bundle
    edited: tuple[str, ...]
    problems: tuple[str, ...]
    parsed: Parsed


class ProjectRecord:
    """Reads and writes `.cairn/` and the pages of one work tree."""

    def __init__(self, tree: Path, storage: StorageBackend, journals: Journals, clock: Clock) -> None:
        self.tree = tree
        self.storage = storage
        self.clock = clock
        self.journals = journals
        self.log = EventLog(journals, tree / EVENTS.key)
        self.checkpoints = CheckpointStore(storage)
        self.sources = SourceRegistry(storage)
        self.archive = Archive(storage, self.log, self.checkpoints)
        self.notes: list[str] = []
        self._eased: set[str] = set()

    # ------------------------------------------------------------ reading

    def require(self, files: Sequence[Locator] | None = None) -> None:
        """Raise unless the repository has a memory of this schema."""
        if not (self.checkpoints.files() if files is None else files):
            if self.storage.exists(HOME):
                self._refuse_old()
            raise NotFound(
                f"{self.tree} has no project memory yet. Run `cairn project init` in it.", path=str(self.tree)
            )
        self._refuse_old()

    def _refuse_old(self) -> None:
        try:
            state = read_json(self.storage, STATE)
        except Invalid:
            return
        if isinstance(state, dict) and state.get("schemaVersion") != SCHEMA_VERSION:
            raise Misconfigured(
                f"{STATE} has schema {state.get('schemaVersion')!r}; this version reads {SCHEMA_VERSION} only. "
                "Run `cairn project init` to rebuild it.",
                schema=state.get("schemaVersion"),
            )

    def view(self) -> View:
        """The record as it stands, without writing."""
        files = self.checkpoints.files()
        self.require(files)
        problems: list[str] = []
        parsed = self.log.read()
        normal = self.log.ordered(parsed)
        if parsed.bad:
            problems.append(f"{EVENTS}: {len(parsed.bad)} unreadable lines (first: line {parsed.bad[0][0]})")
        if normal.renamed or normal.dropped or parsed.markers:
            problems.append(f"{EVENTS}: a merge left ids to be renumbered")
        latest = self._latest()
        bundle = latest.bundle
        if self.checkpoints.collides():
            problems.append("checkpoints of two branches wait to be united")
            heads = heads_of(self.checkpoints.readable())
            if len(heads) > 1:
                bundle = united(heads[-1].bundle, [head.bundle for head in heads[:-1]])
                latest = replace(heads[-1], bundle=bundle)
        events = list(normal.events)
        if not any(event.contentHash == latest.event.contentHash for event in events):
            problems.append("the last command was interrupted; the next one finishes it")
            events.append(latest.event)
        story = self._story(latest, events)
        shown, edited = bundle, []
        for name, at in projections.PAGE_FILES.items():
            page = self._page(name, at, latest.bundleHash)
            if page is not None and page.condition == "edited":
                edited.append(str(at))
                shown = self._edit_in(name, page, shown, latest.bundleHash)[0]
        return View(story, shown, tuple(edited), tuple(problems), parsed)

    def _story(self, latest: Checkpoint, events: Sequence[Event]) -> Story:
        sources = 0
        with suppress(Invalid):
            sources = len(self.sources.all())
        return Story(latest, tuple(events), sources)

    def _latest(self) -> Checkpoint:
        latest = self.checkpoints.latest()
        if latest is None:
            raise Invalid(
                "No checkpoint can be read. Restore .cairn/history/checkpoints from version control."
            )
        return latest

    def _page(self, name: str, at: Locator, bundle_hash: str) -> projections.ProjectPage | None:
        try:
            return projections.examine(name, self.storage.read(at), bundle_hash)
        except (NotFound, Invalid):
            return None

    # ------------------------------------------------------------ mending

    def ready(self) -> Story:
        """Mend what needs mending and return the story; `notes` says what was done. Needs the lock."""
        self.require()
        self.notes = []
        self.notes += self.archive.finish()
        events = self._mend_log()
        latest = self._mend_checkpoints(events)
        story = self._story(latest, events)
        if not any(event.contentHash == latest.event.contentHash for event in events):
            story = self._finish(story)
        story = self._adopt(story)
        self.publish(story)
        return story

    def _mend_log(self) -> list[Event]:
        parsed = self.log.read()
        normal = normalised(parsed.events)
        if parsed.bad:
            lines = self.journals.read(EVENTS).lines
            torn = [lines[number - 1] for number, _ in parsed.bad if number <= len(lines)]
            self._keep_aside(
                "events-unreadable.jsonl", "\n".join(torn) + "\n", "unreadable lines of the event log"
            )
        if parsed.bad or parsed.markers or normal.renamed or normal.dropped:
            self.log.replace(normal.events)
            self.notes.append(
                f"event log put in order: {len(normal.renamed)} renumbered, {normal.dropped} there twice, "
                f"{len(parsed.bad)} unreadable, {parsed.markers} conflict markers"
            )
        return list(normal.events)

    def _mend_checkpoints(self, events: list[Event]) -> Checkpoint:
        latest = self._latest()
        if not self.checkpoints.collides():
            return latest
        known: dict[str, Checkpoint] = {}
        for checkpoint in self.checkpoints.readable():
            known.setdefault(checkpoint.key, checkpoint)
        ordered = sorted(known.values(), key=lambda cp: (cp.number, cp.createdAt, cp.key))
        numbered: list[Checkpoint] = []
        last = 0
        for checkpoint in ordered:
            last = max(checkpoint.number, last + 1)
            numbered.append(replace(checkpoint, id=f"chk-{last:06d}"))
        heads = heads_of(ordered)
        if len(heads) > 1:
            # First the union, under the number it will keep: from here on a crash leaves one head.
            latest = self._unite(heads, last + 1, events)
            self.notes.append(f"{len(heads)} branches united in {latest.id}")
        else:
            latest = next(one for one in numbered if one.key == heads[0].key)
        now = {event.contentHash: event for event in reversed(events)}
        for checkpoint, wanted in reversed([*zip(ordered, numbered, strict=True)]):
            if wanted.id != checkpoint.id:
                event = now.get(checkpoint.event.contentHash, checkpoint.event)
                self.checkpoints.write(replace(wanted, event=event))
        keep = {latest.file, *(one.file for one in numbered)}
        for at in self.checkpoints.files():
            with suppress(Invalid, NotFound):
                if at not in keep and self.checkpoints.read(at):
                    self.checkpoints.remove(at)
        return latest

    def _unite(self, heads: Sequence[Checkpoint], number: int, events: Sequence[Event]) -> Checkpoint:
        newest = heads[-1]
        bundle = united(newest.bundle, [head.bundle for head in heads[:-1]])
        story = Story(newest, tuple(events), 0)
        event = EventDraft(
            kind="tool_run",
            summary=f"United {len(heads)} branches of project memory",
            signals=Signals(),
            sourceRef=f"{REF_PREFIX}merge",
            effect={"command": "merge", "cursors": carried_cursors(story)},
        ).event(story.next_number(), self.clock.now())
        checkpoint = made(
            number,
            event,
            bundle,
            event.summary,
            parents=[head.key for head in heads],
            provider=newest.provider,
            files=_files(bundle),
            evidence=newest.evidence,
        )
        self.checkpoints.write(checkpoint)
        return checkpoint

    def _finish(self, story: Story) -> Story:
        """Write what an interrupted command had still to write; its checkpoint knows the event."""
        event = story.checkpoint.event
        last = max((one.number for one in story.events), default=0)
        if event.number <= last:
            event = replace(event, id=f"evt-{last + 1:06d}")
        done = replace(story, events=(*story.events, event))
        self.publish(done)
        self.log.append([event])
        self.notes.append(f"finished an interrupted {event.effect.get('command', 'command')} ({event.id})")
        return done

    def _adopt(self, story: Story) -> Story:
        """Take over what a person or a program changed in the pages and in `state.json`."""
        bundle, touched = self._state_in(story)
        for name, at in projections.PAGE_FILES.items():
            page = self._page(name, at, story.checkpoint.bundleHash)
            if page is None or page.condition != "edited":
                continue
            bundle, strange = self._edit_in(name, page, bundle, story.checkpoint.bundleHash)
            touched.append(str(at))
            if strange:
                self._keep_aside(
                    at.name, self.storage.read(at), f"{len(strange)} lines of {at} that no field can hold"
                )
        if not touched or bundle == story.checkpoint.bundle:
            return story
        summary = f"Took over edits made by hand in {', '.join(touched)}"
        self.notes.append(summary)
        return self.commit(story, bundle, "edit", summary, Signals.of({"keyPaths": touched}))

    def _state_in(self, story: Story) -> tuple[Bundle, list[str]]:
        """The bundle with what was changed in `state.json`; what cannot be taken over is kept aside."""
        current = story.checkpoint.bundle
        text = self._read(STATE)
        if not text or text == pretty(story.to_json()):
            return current, []
        try:
            state = from_json(text)
            edited = checked(state["bundle"])
            named = state["maintenance"]["latestCheckpointId"]
        except (ValueError, KeyError, TypeError, Invalid):
            self._keep_aside(STATE.name, text, f"{STATE} as it was (it cannot be read)")
            return current, []
        base = next((one.bundle for one in self.checkpoints.newest(50) if one.id == named), None)
        if base is None or edited == base:
            if base is None and edited != current:
                self._keep_aside(STATE.name, text, f"{STATE} as it was (its checkpoint is not there)")
            return current, []
        return three_way(base, edited, current), [str(STATE)]

    def _edit_in(
        self, name: str, page: projections.ProjectPage, bundle: Bundle, digest: str
    ) -> tuple[Bundle, list[str]]:
        """`bundle` with what the edited page says; an edit of an older page only brings its own changes."""
        if page.bundle_hash == digest:
            return projections.read_back(name, page.body, bundle)
        base = next(
            (cp.bundle for cp in self.checkpoints.newest(50) if cp.bundleHash == page.bundle_hash), None
        )
        if base is None:
            return bundle, page.body.splitlines()
        edited, strange = projections.read_back(name, page.body, base)
        return three_way(base, edited, bundle), strange

    def _keep_aside(self, name: str, text: str, what: str) -> None:
        at = EDITS.child(f"{text_hash(text)[:8]}-{name}")
        if not self.storage.exists(at):
            self.storage.write(at, text)
        self.notes.append(f"kept aside in {at}: {what}")

    # ------------------------------------------------------------ writing

    def append(self, draft: EventDraft, story: Story | None = None) -> Event:
        """Add one event that changes no bundle. Cheap: reads the tail of the log only. Needs the lock."""
        last = max(self.log.last_number(), story.checkpoint.event.number if story else 0)
        event = draft.event(last + 1, self.clock.now())
        self.log.append([event])
        return event

    def commit(
        self,
        story: Story | None,
        bundle: Bundle,
        command: str,
        summary: str,
        signals: Signals,
        *,
        provider: str = "none",
        effect: Mapping[str, Any] | None = None,
        evidence: Bundle | None = None,
    ) -> Story:
        """Write a new bundle: checkpoint, state, pages, entry block, and last the event. Needs the lock."""
        bundle = checked(bundle)
        previous = story.checkpoint if story else None
        draft = EventDraft(
            kind="tool_run",
            summary=summary,
            signals=signals,
            sourceRef=f"{REF_PREFIX}{command}",
            effect={"command": command, "cursors": carried_cursors(story), **(effect or {})},
        )
        event = draft.event(story.next_number() if story else 1, self.clock.now())
        checkpoint = made(
            previous.number + 1 if previous else 1,
            event,
            bundle,
            summary,
            parents=[previous.key] if previous else [],
            provider=provider,
            files=_files(bundle),
            evidence=evidence or (previous.evidence if previous else None),
        )
        self.checkpoints.write(checkpoint)
        events = (*story.events, event) if story else (event,)
        after = self._story(checkpoint, events)
        self.publish(after)
        self.log.append([event])
        return after

    def publish(self, story: Story) -> None:
        """Write state, pages and entry block where they differ from what they should be."""
        self._put(STATE, pretty(story.to_json()))
        bundle, digest = story.checkpoint.bundle, story.checkpoint.bundleHash
        for (name, at), text in zip(
            projections.PAGE_FILES.items(), projections.pages(bundle, digest).values(), strict=True
        ):
            self._put_page(name, at, text, digest)
        entry = Locator(bundle["project"]["recommendedEntryFile"])
        self._put_entry(entry, digest)
        for other in ENTRY_FILES:
            if other != entry.key and self._read(Locator(other)).count("<!-- cairn:entry version="):
                self._put(Locator(other), projections.without_entry(self._read(Locator(other))))
        if entry.key not in self._eased:
            git.ease_merges(self.tree, [entry.key])
            self._eased.add(entry.key)

    def _read(self, at: Locator) -> str:
        try:
            return self.storage.read(at)
        except (NotFound, Invalid):
            return ""

    def _put(self, at: Locator, text: str) -> None:
        if self._read(at) != text:
            self.storage.write(at, text)

    def _put_page(self, name: str, at: Locator, text: str, digest: str) -> None:
        def page(before: str) -> str:
            found = projections.examine(name, before, digest)
            unread = found.condition == "edited" and found.bundle_hash == digest
            if found.condition in {"foreign", "merged"} or unread:
                self._keep_aside(at.name, before, f"{at} as it was ({found.condition})")
            return text

        try:
            self._swap(at, page, text)
        except Invalid:
            # Not UTF-8: nothing of it can be read back, so its bytes are kept beside it.
            kept = self.tree / EDITS.key / f"{at.name}.binary"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes((self.tree / at.key).read_bytes())
            self.storage.write(at, text)

    def _put_entry(self, at: Locator, digest: str) -> None:
        def block(before: str) -> str:
            after = projections.with_entry(before, digest)
            found = projections.entry_text(before)
            if found is not None and found != projections.entry_text(after):
                self._keep_aside(at.name, found + "\n", f"the text of the entry block in {at} as it was")
            return after

        self._swap(at, block, projections.with_entry("", digest))

    def _swap(self, at: Locator, change: Callable[[str], str], fresh: str) -> None:
        """Write what `change` makes of a file, `fresh` where there is none; again if somebody wrote meanwhile."""
        for _ in range(5):
            try:
                before = self.storage.read(at)
            except NotFound:
                self.storage.write(at, fresh)
                return
            after = fresh if before == fresh else change(before)
            if after == before:
                return
            with suppress(Conflict):
                self.storage.write(at, after, expect=content_hash(before))
                return


def _files(bundle: Bundle) -> list[dict[str, str]]:
    pages = projections.pages(bundle, json_hash(bundle))
    return [{"path": str(at), "hash": text_hash(text)} for at, text in pages.items()]
