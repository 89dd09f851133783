"""One declaration per kind of memory: where it lives, its fields, what is searchable; and the places of a root, by name.

Three storage strategies: `daily` (one note of entries per day), `single` (one document with a fixed name) and
`skill` (a folder per skill). `place_of` turns a locator back into what it means; the two directions agree.
A new kind is one more `Kind` in `_DECLARED`. Every place of a memory root has a name in `MemoryRoot`, and is a
`Locator`, never a path.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cairn.errors import Conflict, Invalid
from cairn.notes import frontmatter
from cairn.notes.format import EntryId, Note, checked_day, checked_text, content_sha256, parse_note
from cairn.seams import Locator, StorageBackend, TierLayout
from cairn.seams.storage import children
from cairn.types import Entry, Problem, Scope, Space, Track

SCOPE_DIRS: Mapping[Track, str] = {
    "user": "users",
    "agent": "agents",
    "project": "shared",
    "mission": "missions",
}
OWNER_KEYS: Mapping[Track, str] = {"user": "user_id", "agent": "agent_id", "mission": "run_id"}
TRACKS: Mapping[str, Track] = {directory: track for track, directory in SCOPE_DIRS.items()}
DEFAULT_APP, DEFAULT_PROJECT = "default_app", "default_project"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of memory.

    `hashed_inline`, `hashed_sections` and `hashed_keys` (frontmatter) make up the content hash: only a change
    in them costs a new embedding. Text without a heading is taken for the section `main` (the first one unless
    set).
    """

    name: str
    type: str
    storage: Literal["daily", "single", "skill"]
    tracks: tuple[Track, ...]
    prefix: str = ""
    dir_name: str = ""
    file_name: str = ""
    sections: tuple[str, ...] = ()
    search_sections: tuple[str, ...] = ()
    hashed_inline: tuple[str, ...] = ()
    hashed_keys: tuple[str, ...] = ()
    id_prefix: str = ""
    main: str = ""

    @property
    def main_section(self) -> str:
        return self.main or (self.sections[0] if self.sections else "Content")

    def locator(self, scope: Scope, which: str = "") -> Locator:
        """The note of this kind for a scope; `which` is the day (daily) or the name (skill)."""
        if scope.track not in self.tracks:
            raise Invalid(
                f"{self.name} notes belong to {' or '.join(self.tracks)}, not to a {scope.track}.",
                kind=self.name,
            )
        base = scope_locator(scope)
        if self.storage == "daily":
            return base.child(self.dir_name, f"{self.file_name}-{checked_day(which)}.md")
        if self.storage == "skill":
            return base.child(self.dir_name, f"skill_{checked_name(which)}", self.file_name)
        return base.child(self.file_name)

    def parse(self, text: str) -> Note:
        """`parse_note` with text that has no heading taken for this kind's main section."""
        return parse_note(text, loose=self.main_section)

    def content_hash(self, item: Entry | Note) -> str:
        """The hash of what an entry (or a document) says, without what is merely kept about it."""
        if isinstance(item, Note):
            said = {key: str(item.frontmatter[key]) for key in self.hashed_keys if key in item.frontmatter}
            return content_sha256({**said, "body": item.body})
        said = {title: item.sections[title] for title in self.sections if title in item.sections}
        said |= {key: item.inline[key] for key in self.hashed_inline if key in item.inline}
        return content_sha256(said)

    def search_text(self, item: Entry | Note) -> str:
        """The words to index and embed; a section that another one begins with is not said twice."""
        if isinstance(item, Note):
            values = [
                str(item.frontmatter[k])
                for k in ("name", "description", "summary")
                if item.frontmatter.get(k)
            ]
            body = item.body.strip()
            return "\n".join([*(v for v in values if v not in body), body]).strip()
        texts = [item.sections[title].strip() for title in self.search_sections if item.sections.get(title)]
        kept = [t for n, t in enumerate(texts) if not any(later.startswith(t) for later in texts[n + 1 :])]
        return "\n".join(kept)

    def fresh_frontmatter(self, scope: Scope, which: str = "") -> dict[str, Any]:
        """The head of a new note of this kind, its keys in the order they are written."""
        owner = scope.owner or "project"
        note_id = {
            "daily": f"{self.name}_log_{owner}_{which}",
            "single": f"{self.id_prefix or self.name}_{owner}",
            "skill": f"{owner}_{which}",
        }[self.storage]
        head: dict[str, Any] = {"id": note_id, "type": self.type}
        if self.storage == "daily":
            head["file_type"] = self.type
        head["schema_version"] = SCHEMA_VERSION
        if scope.track in OWNER_KEYS:
            head[OWNER_KEYS[scope.track]] = scope.owner
        head["track"] = scope.track
        if self.storage == "daily":
            head |= {"date": which, "entry_count": 0, "last_appended_at": None}
        return head

    def document(self, scope: Scope, fields: Mapping[str, Any], body: str, *, name: str = "") -> str:
        """A whole document of this kind: its head with `fields` added, then `body`.

        Raises:
            Invalid: NUL or broken Unicode, or a head longer than the cap.
        """
        head = {**self.fresh_frontmatter(scope, name), **fields}
        checked_text(body, field="body")
        end = "" if not body or body.endswith("\n") else "\n"
        return f"---\n{frontmatter.dump(head)}---\n{body}{end}"


_DECLARED: Sequence[Kind] = (
    Kind(
        "episode", "episode_daily", "daily", ("user", "agent"),
        prefix="ep", dir_name="episodes", file_name="episode",
        sections=("Subject", "Summary", "Content"), search_sections=("Subject", "Summary", "Content"),
        main="Content",
    ),
    Kind(
        "atomic_fact", "atomic_fact_daily", "daily", ("user", "agent"),
        prefix="af", dir_name=".atomic_facts", file_name="atomic_fact",
        sections=("Fact",), search_sections=("Fact",),
    ),
    Kind(
        "foresight", "foresight_daily", "daily", ("user", "agent"),
        prefix="fs", dir_name=".foresights", file_name="foresight",
        sections=("Foresight", "Evidence"), search_sections=("Foresight",),
        hashed_inline=("start_time", "end_time"),
    ),
    Kind(
        "agent_case", "agent_case_daily", "daily", ("agent",),
        prefix="ac", dir_name=".cases", file_name="agent_case",
        sections=("TaskIntent", "Approach", "KeyInsight"),
        search_sections=("TaskIntent", "KeyInsight", "Approach"), hashed_inline=("quality_score",),
    ),
    Kind(
        "memory", "memory_daily", "daily", ("user", "agent", "project", "mission"),
        prefix="mem", dir_name="memories", file_name="memory",
        sections=("Content", "Trigger", "Procedure"), search_sections=("Trigger", "Procedure", "Content"),
        hashed_inline=("category", "importance", "file_scope_pattern"),
    ),
    Kind(
        "profile", "user_profile", "single", ("user",),
        file_name="user.md", hashed_keys=("summary", "explicit_info", "implicit_traits"),
    ),
    Kind(
        "agent_skill", "agent_skill", "skill", ("agent",),
        dir_name="skills", file_name="SKILL.md",
        hashed_keys=("name", "description", "confidence", "maturity_score"),
    ),
    Kind("core", "core_memory", "single", ("project", "agent"), file_name="core.md"),
    Kind("agent", "agent_profile", "single", ("agent",), file_name="agent.md", id_prefix="agent_profile"),
    Kind("soul", "agent_soul", "single", ("agent",), file_name="soul.md"),
    Kind("tools", "agent_tools", "single", ("agent",), file_name="tools.md"),
    Kind("behaviors", "agent_behaviors", "single", ("agent",), file_name="behaviors.md"),
)  # fmt: skip

KINDS: dict[str, Kind] = {kind.name: kind for kind in _DECLARED}
_BY_PREFIX = {kind.prefix: kind for kind in _DECLARED if kind.prefix}
_BY_DIR = {kind.dir_name: kind for kind in _DECLARED if kind.dir_name}
_BY_FILE = {kind.file_name: kind for kind in _DECLARED if kind.storage == "single"}


def kind_named(name: str) -> Kind:
    """The kind with that name, or `Invalid` with the names there are."""
    found = KINDS.get(name)
    if found is None:
        raise Invalid(f'There is no kind "{str(name)[:60]}". Kinds are: {", ".join(KINDS)}.', kind=name)
    return found


def kind_of_entry(entry_id: str) -> Kind:
    """The kind an entry id belongs to, by its prefix."""
    parsed = EntryId.parse(entry_id)
    found = _BY_PREFIX.get(parsed.prefix)
    if found is None:
        raise Invalid(
            f'No kind of entry begins with "{parsed.prefix}". Known are: {", ".join(_BY_PREFIX)}.',
            entry_id=entry_id,
        )
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """What a locator means: whose note, of which kind, for which day or under which name."""

    scope: Scope
    kind: Kind
    day: str = ""
    name: str = ""

    @property
    def locator(self) -> Locator:
        return self.kind.locator(self.scope, self.day or self.name)


def space_locator(space: Space) -> Locator:
    """The folder of an (app, project) space; the id "default" has folders of its own name."""
    app = DEFAULT_APP if space.app == "default" else space.app
    project = DEFAULT_PROJECT if space.project == "default" else space.project
    return Locator(f"{app}/{project}")


def scope_locator(scope: Scope) -> Locator:
    """The folder of a user, an agent, a mission, or the project's shared one; documents lie in `knowledge/`."""
    base = space_locator(scope.space).child(SCOPE_DIRS.get(scope.track, scope.track))
    return base.child(scope.owner) if scope.owner else base


def space_of(locator: Locator) -> Space | None:
    """The space a locator lies in; None for the system's own folders and for what no id can name."""
    parts = locator.parts
    if len(parts) < 2 or "default" in parts[:2]:
        return None
    app = "default" if parts[0] == DEFAULT_APP else parts[0]
    project = "default" if parts[1] == DEFAULT_PROJECT else parts[1]
    try:
        return Space(app, project)
    except Invalid:
        return None


def place_of(locator: Locator) -> Place | None:
    """What a note's locator means; None where no kind of note lives."""
    parts = locator.parts
    track = TRACKS.get(parts[2]) if len(parts) > 3 else None
    space = space_of(locator) if track is not None else None
    if space is None or track is None:
        return None
    owner, rest = ("", parts[3:]) if track == "project" else (parts[3], parts[4:])
    kind = _BY_FILE.get(rest[0]) if len(rest) == 1 else _BY_DIR.get(rest[0]) if rest else None
    if kind is None or track not in kind.tracks:
        return None
    day = name = ""
    try:
        if kind.storage == "daily":
            day = checked_day(rest[1].removeprefix(f"{kind.file_name}-").removesuffix(".md"))
            is_named = rest[1:] == (f"{kind.file_name}-{day}.md",)
        elif kind.storage == "skill":
            name = checked_name(rest[1].removeprefix("skill_"))
            is_named = rest[1:] == (f"skill_{name}", kind.file_name)
        else:
            is_named = True
        return Place(Scope(space, track, owner), kind, day, name) if is_named else None
    except Invalid:
        return None


def is_stray(locator: Locator) -> bool:
    """Whether a Markdown file lies in a folder of daily notes under a name that no kind reads."""
    parts = locator.parts
    track = TRACKS.get(parts[2]) if len(parts) > 3 else None
    rest = parts[3:] if track == "project" else parts[4:]
    if track is None or len(rest) != 2 or not rest[1].endswith(".md") or place_of(locator) is not None:
        return False
    kind = _BY_DIR.get(rest[0])
    return kind is not None and kind.storage == "daily"


def safe_name(text: str, fallback: str = "unnamed") -> str:
    """A file-safe name from free text: NFC, spaces to `_`, only word characters, `-` and `.`, at most 50.

    Idempotent and lossy.
    """
    name = re.sub(r"\s", "_", unicodedata.normalize("NFC", text))
    name = re.sub(r"[^\w.-]", "", name)[:50]
    while len(name.encode("utf-8", "ignore")) > 200:
        name = name[:-1]
    return fallback if name.strip("._") == "" else name


def checked_name(name: str) -> str:
    """Return `name` if it may name a skill folder: 1 to 120 word characters, `-` and `.`, as `safe_name` makes."""
    if isinstance(name, str) and re.fullmatch(r"[\w.-]{1,120}", name) and not name.endswith("."):
        try:
            if len(name.encode("utf-8")) <= 200:
                return name
        except UnicodeEncodeError:
            pass
    raise Invalid(
        f"{str(name)[:60]!r} is not a usable name: use letters, digits, _, - and . (safe_name makes one).",
        field="name",
    )


_MEMORY_CHOICES: Mapping[str, frozenset[str]] = {
    "status": frozenset({"candidate", "promoted", "archived"}),
    "tier": frozenset({"1", "2", "3"}),
    "importance": frozenset({"low", "medium", "high"}),
}


def check(note: Note, place: Place) -> Iterator[Problem]:
    """Where a note is at odds with its place or with itself: type, owner, date, counts, ids."""
    head, kind = note.frontmatter, place.kind
    if head:
        expected: dict[str, str] = {"type": kind.type, "track": place.scope.track}
        if place.scope.track in OWNER_KEYS:
            expected[OWNER_KEYS[place.scope.track]] = place.scope.owner
        if kind.storage == "daily":
            expected |= {"date": place.day, "file_type": kind.type}
        for key, value in expected.items():
            found = head.get(key)
            if found is None and key in {"track", "file_type"}:
                continue
            if str(found) != value:
                line = _line_of(note, key)
                yield Problem(
                    f"{key}-mismatch", line, f"{key} is {found!r}, but the file's place says {value!r}."
                )
        if isinstance(head.get("schema_version"), int) and head["schema_version"] > SCHEMA_VERSION:
            line = _line_of(note, "schema_version")
            yield Problem(
                "newer-schema",
                line,
                f"schema_version {head['schema_version']} is newer than {SCHEMA_VERSION}.",
            )
    if kind.storage != "daily":
        return
    highest = 0
    for entry in note.entries:
        try:
            parsed = EntryId.parse(entry.id)
        except Invalid:
            yield Problem("entry-id", entry.line, f"{entry.id[:80]} is not an entry id of this note.")
            continue
        highest = max(highest, parsed.sequence)
        if (parsed.prefix, parsed.day) != (kind.prefix, place.day):
            yield Problem(
                "entry-id", entry.line, f"{entry.id} belongs to another kind or day than this note."
            )
        if kind.name == "memory":
            for key, allowed in _MEMORY_CHOICES.items():
                if key in entry.inline and entry.inline[key] not in allowed:
                    names = ", ".join(sorted(allowed))
                    yield Problem(
                        f"memory-{key}", entry.line, f"{key} {entry.inline[key]!r:.60} is not one of {names}."
                    )
    count = head.get("entry_count")
    if head and (not isinstance(count, int) or isinstance(count, bool) or count < highest):
        line = _line_of(note, "entry_count")
        yield Problem(
            "entry-count", line, f"entry_count is {count!r:.40}, but the highest entry is {highest}."
        )


def _line_of(note: Note, key: str) -> int:
    position = re.search(rf"^{re.escape(key)}[ \t]*:", note.text[: note.head.end], re.MULTILINE)
    return note.text.count("\n", 0, position.start()) + 1 if position is not None else 1


OME_TEMPLATE = """\
# Overrides for the offline strategies; read again within seconds of a save.
# Uncomment what should differ from the defaults, for example:
#
# [strategies.extract_foresight]
# enabled = false
"""


class MemoryRoot:
    """Names the places of one memory root. Only `ensure`, `spaces` and `scopes` touch the storage."""

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage

    root = Locator("")
    index = Locator(".index")
    sqlite = Locator(".index/sqlite")
    lancedb = Locator(".index/lancedb")
    tmp = Locator(".tmp")
    locks = Locator(".tmp/locks")
    ome_toml = Locator("ome.toml")

    def tiers(self, space: Space) -> TierLayout:
        """Where the truth, the pages made of it for a space, and the index lie."""
        shared = scope_locator(Scope(space, "project", ""))
        return TierLayout(source=self.root, shared_abstracts=shared.child("pages"), local_index=self.index)

    def ensure(self, ome_template: str = OME_TEMPLATE) -> None:
        """Make the system's own folders and put the strategy template in place if there is none.

        What users see comes into being when something is first written there. A synced root gets no
        `.index/`: a database must not travel with it.
        """
        if not self._storage.capabilities.sync:
            self._storage.mkdir(self.sqlite)
            self._storage.mkdir(self.lancedb)
        self._storage.mkdir(self.tmp)
        if not self._storage.exists(self.ome_toml):
            try:
                self._storage.write(self.ome_toml, ome_template, expect="")
            except Conflict:
                pass  # another process put it there in the meantime

    def spaces(self) -> Iterator[Space]:
        """Every (app, project) space that has a folder, by key order."""
        for app in self._storage.list(self.root):
            if not app.name.startswith("."):
                for project in children(self._storage, app):
                    if (space := space_of(project)) is not None:
                        yield space

    def scopes(self, space: Space, *tracks: Track) -> Iterator[Scope]:
        """The project, and everybody who has a folder in a space; of these tracks alone, where any are named."""
        for track, name in SCOPE_DIRS.items():
            if tracks and track not in tracks:
                continue
            base = space_locator(space).child(name)
            for owner in [""] if track == "project" else [at.name for at in children(self._storage, base)]:
                try:
                    found = Scope(space, track, owner)
                except Invalid:
                    continue  # a folder that no id can name is nobody's
                yield found

    space = staticmethod(space_locator)
    scope = staticmethod(scope_locator)

    def note(self, kind: str, scope: Scope, which: str = "") -> Locator:
        """The note of a kind; `which` is the day of a daily note or the name of a skill."""
        return kind_named(kind).locator(scope, which)

    def knowledge(self, space: Space) -> Locator:
        """The shared library of a space."""
        return space_locator(space).child("knowledge")

    def sessions(self, space: Space) -> Locator:
        """What was said in a space, verbatim."""
        return space_locator(space).child("sessions")

    def journal(self, space: Space, name: str = "") -> Locator:
        """A journal of a space, or the folder that holds them."""
        folder = space_locator(space).child("journal")
        return folder.child(f"{name}.jsonl") if name else folder
