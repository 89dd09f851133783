"""Knowledge: documents of a space and of linked folders, cut into passages that are searched beside memories.

    <app>/<project>/knowledge/<category>/<title>_<id>.md    a document that was added, or put there by hand
    <app>/<project>/knowledge/links.toml                    folders that are searched where they lie
    <app>/<project>/knowledge/.linked/<name>/...            how the files of such a folder are named here; no such place
                                                            exists, and nothing is ever written to them

A document is cut at its headings into topics, a topic at its paragraphs into passages. Each passage is a row that knows
its file, its headings and its line; the first of a document carries what the document is.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property
from typing import Any

from cairn.errors import Invalid
from cairn.index.corpus import KNOWLEDGE, SKILL_FILE, NewRow, Row, knowledge_scope
from cairn.language.documents import (
    CONVERTED,
    FOLDER,
    HTML,
    LINKED,
    TEXTS,
    Lines,
    Topic,
    html_lines,
    plain_lines,
    suffix_of,
    summary,
    topics,
)
from cairn.language.sentences import passages
from cairn.notes.frontmatter import find_head, read_head
from cairn.notes.kinds import place_of, scope_locator, space_of
from cairn.notes.notebook import ChangeType
from cairn.retrieval.reading import FileContent, content_of, first_time, in_passages, source_hash
from cairn.seams import Locator, Noticed
from cairn.talk.sessions import SESSIONS, place_of_session, sessions_of
from cairn.types import Scope, Space

CATEGORIES = "categories.md"
GENERAL = "general"
DOCUMENT, PASSAGE_OF = (
    "document",
    "passage",
)  # what `parent_type` says of the first row of a document, and of the others
SKILL_FOLDERS = frozenset({"references", "scripts"})
SKILL_TEXTS = frozenset(
    {".md", ".txt", ".py", ".sh", ".js", ".ts", ".json", ".yaml", ".yml", ".toml", ".sql"}
)
DOC_ID = re.compile(r"d_[a-f0-9]{12,32}")
_TIMES = ("created_at", "created", "date")
_UPDATES = ("updated_at", "updated", "modified")


def document_at(locator: Locator) -> Space | None:
    """The space whose knowledge a file belongs to; None where the place holds none."""
    parts = locator.parts
    if len(parts) < 4 or parts[2] != FOLDER:
        return None
    linked = parts[3] == LINKED
    rest = parts[5:] if linked else parts[3:]
    if not rest or any(name.startswith(".") for name in rest) or rest == (CATEGORIES,):
        return None
    if suffix_of(rest[-1]) not in (TEXTS | CONVERTED if linked else TEXTS):
        return None
    return space_of(locator)


def is_linked(locator: Locator) -> bool:
    """Whether a place lies in a linked folder: outside the root, and away where its drive is."""
    return locator.parts[2:4] == (FOLDER, LINKED)


def skill_file_at(locator: Locator) -> tuple[Scope, str, str] | None:
    """Whose skill a file beside a SKILL.md belongs to, its name, and the file's place in it; None for any other file."""
    parts = locator.parts
    if len(parts) < 8 or parts[2] != "agents" or parts[4] != "skills" or parts[6] not in SKILL_FOLDERS:
        return None
    if not parts[5].startswith("skill_") or suffix_of(parts[-1]) not in SKILL_TEXTS:
        return None
    space = space_of(locator)
    try:
        scope = Scope(space, "agent", parts[3]) if space is not None else None
    except Invalid:
        return None
    return (scope, parts[5].removeprefix("skill_"), "/".join(parts[6:])) if scope is not None else None


def read_file(
    locator: Locator,
    text: str,
    known: Mapping[tuple[Scope, str], bytes],
    *,
    mtime: float = 0.0,
    zone: tzinfo = UTC,
) -> FileContent:
    """The rows of a document, one per passage, or of what lies beside a skill; those that are `known` are only named."""
    changed = int(mtime * 1000)
    beside = skill_file_at(locator)
    if beside is not None:
        return content_of(_skill_rows(*beside, locator.key, text, changed), known)
    scope = knowledge_scope(space_of(locator) or Space())
    made = (
        NewRow(row, source_hash(row.text, repr(sorted(row.fields.items())), row.parent_id or ""))
        for row in _rows(scope, read(locator.key, text), changed, zone)
    )
    return content_of(made, known)


def _skill_rows(scope: Scope, skill: str, place: str, path: str, text: str, changed: int) -> Iterator[NewRow]:
    """The rows of a reference or a script of a skill: found by their words, shown as the skill's."""
    row = Row(
        rowid=0,
        kind=SKILL_FILE,
        scope=scope,
        entry_id=f"{skill}/{place}",
        path=path,
        text=f"{skill} {place}\n{text.strip()}",
        timestamp_ms=changed,
        updated_ms=changed,
        fields={"name": skill, "description": place, "body": text},
    )
    return in_passages(NewRow(row, source_hash(text)))


@dataclass(frozen=True)
class Document:
    """A document as its file tells it; `source` is the address of the original."""

    id: str
    path: str
    title: str
    category: str
    head: Mapping[str, Any]
    lines: Lines
    headings: bool

    @cached_property
    def topics(self) -> list[Topic]:
        """Its parts, in order."""
        return topics(self.lines, self.title, headings=self.headings)

    @property
    def summary(self) -> str:
        """Its beginning."""
        return next((told for topic in self.topics if (told := summary(topic.text))), "")

    def topic_id(self, number: int) -> str:
        return f"{self.id}_{number}"

    def path_of(self, topic: Topic) -> str:
        """The headings of a topic in one line, the document's title first."""
        names = topic.path if topic.path[:1] == (self.title,) else (self.title, *topic.path)
        return " > ".join(names)


def read(path: str, text: str) -> Document:
    """The document in the file `path` with this text. What is missing in its head is taken from its place."""
    locator = Locator(path)
    parts = locator.parts
    ending = suffix_of(locator.name)
    if ending in HTML:
        head: Mapping[str, Any] = {}
        lines = html_lines(text)
    else:
        at = find_head(text)
        head = read_head(text[at.start : at.end])[0] if at.fenced and at.closed else {}
        body = at.body if head or (at.fenced and at.closed) else 0
        lines = plain_lines(text[body:], 1 + text.count("\n", 0, body))
    rest = parts[4:] if parts[3] == LINKED else parts[3:]
    folder = rest[0] if len(rest) > 1 else GENERAL
    named = str(head.get("id") or "")
    title = str(head.get("title") or lines.title or "").strip()
    headings = ending != ".txt"
    if not title:
        found = topics(lines, "", headings=headings)
        title = next((topic.name for topic in found if topic.depth == 1), "") or _title_of(locator.name)
    return Document(
        id=named if DOC_ID.fullmatch(named) else _id_of(path),
        path=path,
        title=title,
        category=str(head.get("category") or folder),
        head=head,
        lines=lines,
        headings=headings,
    )


def _title_of(name: str) -> str:
    return name[: len(name) - len(suffix_of(name))].replace("_", " ").strip() or name


def _id_of(path: str) -> str:
    return "d_" + hashlib.sha256(path.encode("utf-8")).hexdigest()[:16]


def _rows(scope: Scope, document: Document, mtime: int, zone: tzinfo) -> Iterator[Row]:
    updated = first_time(document.head, _UPDATES, zone) or mtime
    created = first_time(document.head, _TIMES, zone) or updated
    about = {
        "topic_count": len(document.topics),
        "summary": document.summary,
        "source": document.head.get("source"),
        "source_name": document.head.get("source_name"),
    }
    for topic in document.topics:
        path = document.path_of(topic)
        for number, part in enumerate(passages(topic.text)):
            is_first = not (topic.number or number)
            said = topic.text[part.start : part.end].strip("\n")
            fields: dict[str, Any] = {
                "doc_id": document.id,
                "title": document.title,
                "category": document.category,
                "topic_id": document.topic_id(topic.number),
                "topic": topic.name,
                "topic_path": path,
                "depth": topic.depth,
                "line": topic.line if not number else topic.line_of(part.start),
                **(about if is_first else {}),
            }
            yield Row(
                rowid=0,
                kind=KNOWLEDGE,
                scope=scope,
                entry_id=document.topic_id(topic.number) + (f"-{number}" if number else ""),
                path=document.path,
                text=f"{path}\n{said}",
                timestamp_ms=created,
                updated_ms=updated,
                parent_type=DOCUMENT if is_first else PASSAGE_OF,
                parent_id=document.category,
                ordinal=topic.number,
                fields=fields,
            )


def passage_text(text: str) -> str:
    """The words of a passage without the headings above it."""
    return text.partition("\n")[2]


# ---- which files the index is told of ------------------------------------------------------------------------------------


def noticed(changes: Sequence[tuple[Locator, ChangeType]]) -> list[Noticed]:
    """The changes of `changes` that concern the index, as the queue takes them."""
    return [
        Noticed(locator.key, kind, change)
        for locator, change in changes
        if (kind := kind_of(locator)) is not None
    ]


@functools.lru_cache(maxsize=1024)
def places_of(scope: Scope) -> tuple[str, ...]:
    """Where the files lie that a scope's rows are made of: the owner's folder, and the session logs of the space.

    Documents are made of no talk.
    """
    if scope.track == "knowledge":
        return (f"{scope_locator(scope).key}/",)
    return f"{scope_locator(scope).key}/", f"{sessions_of(scope.space).key}/"


def kind_of(locator: Locator) -> str | None:
    """The kind of truth at `locator` ("session" for a session's log); None for anything else."""
    parts = locator.parts
    if len(parts) > 3 and parts[2] == SESSIONS:
        return "session" if place_of_session(locator) is not None else None
    if document_at(locator) is not None:
        return KNOWLEDGE
    if skill_file_at(locator) is not None:
        return SKILL_FILE
    place = place_of(locator)
    return place.kind.name if place is not None else None
