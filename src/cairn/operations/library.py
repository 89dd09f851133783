"""The documents of a space: taken in, listed, shown, changed, removed, and folders linked to be searched in place.

A document that is taken in becomes one Markdown file below `knowledge/<category>/`, with the address and the hash of its
original in the head. The same original again changes nothing; a newer version of it takes its place under the same id.
Everything is found through the index, so that documents of linked folders are listed and shown like the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engines.convert import MAX_BYTES, text_of
from cairn.engines.links import Link, read_links, write_links
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.index import filters
from cairn.index.corpus import KNOWLEDGE, Row, knowledge_scope
from cairn.language.documents import (
    CONVERTED,
    FOLDER,
    HTML,
    LINKED,
    LINKS,
    TEXTS,
    Topic,
    html_lines,
    suffix_of,
    summary,
)
from cairn.notes import frontmatter
from cairn.notes.kinds import SCHEMA_VERSION, safe_name, space_locator
from cairn.retrieval import library
from cairn.retrieval.answers import shown_time
from cairn.retrieval.library import CATEGORIES, DOC_ID, DOCUMENT, GENERAL
from cairn.seams import Locator
from cairn.seams.storage import children
from cairn.types import Space, with_texts

if TYPE_CHECKING:
    from cairn.parts import Parts
    from cairn.retrieval.answers import SearchResult

_CATEGORY = re.compile(r"[\w-][\w.-]{0,59}")
_CATEGORY_LINE = re.compile(r"[-*]\s+`?([\w.-]+)`?\s*:\s*(.+)")
_PAGE = 500
_INDEX_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document that was taken in, and what became of it: added, replaced or unchanged."""

    id: str
    locator: Locator
    title: str
    category: str
    topic_count: int
    source: str
    change: str
    lsn: int


class Library:
    """The knowledge of one space."""

    def __init__(self, parts: Parts, space: Space) -> None:
        self._parts = parts
        self.space = space
        self.scope = knowledge_scope(space)
        self.folder = space_locator(space).child(FOLDER)

    # ------------------------------------------------------------ taking in

    def add_files(
        self, paths: Sequence[str], *, category: str, title: str
    ) -> tuple[list[StoredDocument], list[tuple[str, str]]]:
        """Take in files and all documents in folders; what could not be, with the reason for each."""
        done: list[StoredDocument] = []
        refused: list[tuple[str, str]] = []
        for given in paths:
            path = Path(given).expanduser().absolute()
            if not path.exists():
                why = "it is a link to nothing" if path.is_symlink() else "there is no such file or folder"
                refused.append((str(path), why))
                continue
            if path.is_symlink():
                path = Path(os.path.realpath(path))
            files = list(_documents_in(path)) if path.is_dir() else [(path, "")]
            if not files:
                refused.append((str(path), "there is no document in this folder"))
            for file, folder in files:
                try:
                    done.append(self._add_file(file, category or folder, title))
                except CairnError as error:
                    refused.append((str(file), str(error)))
                except OSError as error:
                    refused.append((str(file), f"it cannot be read: {error.strerror or error}"))
        return done, refused

    def _add_file(self, path: Path, category: str, title: str) -> StoredDocument:
        if path.is_symlink():
            path = path.resolve()
        if not path.is_file():
            raise Invalid(
                f"{path.name} is neither a file nor a folder: nothing is read from it.", path=str(path)
            )
        if path.stat().st_size > MAX_BYTES:
            raise Invalid(f"{path.name} has more than the {MAX_BYTES} bytes a document may have: split it.")
        root = self._parts.settings.root.resolve()
        if root in path.resolve().parents:
            raise Invalid(f"{path} lies in this memory: what is in it is searched already.", path=str(path))
        address = str(path)
        return self.store(
            path.read_bytes(),
            name=path.name,
            title=title,
            category=category,
            source=address,
            doc_id=_id_of(f"{self.folder.key}\n{address}"),
        )

    def upload(
        self, data: bytes, *, name: str, title: str, category: str, source_type: str, doc_id: str = ""
    ) -> StoredDocument:
        """Take in a file that somebody sent, or put it in the place of the document `doc_id`."""
        digest = hashlib.sha256(data).hexdigest()
        if doc_id and self.locate(doc_id) not in self._stored.values():
            raise _only_read(doc_id)
        return self.store(
            data,
            name=name,
            title=title,
            category=category,
            source="",
            source_type=source_type,
            doc_id=doc_id or _id_of(f"{title}\n{digest}"),
        )

    def store(
        self,
        data: bytes,
        *,
        name: str,
        title: str,
        category: str,
        source: str,
        doc_id: str,
        source_type: str = "",
    ) -> StoredDocument:
        """Write a document, unless the very same is there already."""
        text = text_of(name, data)
        own, body = _taken_apart(name, text)
        if not body.strip():
            raise Invalid(f"{name} holds no text: there is nothing to take in.", file=name)
        old = self._stored.get(doc_id)
        before = self._read(old) if old is not None else None
        digest = hashlib.sha256(data).hexdigest()
        kept = before.head if before is not None else {}
        category = category or str(kept.get("category") or GENERAL)
        _check_category(category)
        says = library.read(f"{self.folder.child(category, name).key}", self._parts.redact(text)).title
        called = str(kept.get("title") or "")
        if called == str(kept.get("own_title")):
            called = ""  # nobody else named it: it is called what the newer text says
        title = title or called or says
        now = self._parts.clock.now().isoformat(timespec="seconds")
        head = {
            **with_texts(own, self._parts.redact),
            "id": doc_id,
            "type": "knowledge_document",
            "schema_version": SCHEMA_VERSION,
            "title": title,
            "own_title": says,
            "category": category,
            "source": source or None,
            "source_name": name,
            "source_type": source_type or suffix_of(name)[1:],
            "sha256": digest,
            "created_at": kept.get("created_at") or now,
            "updated_at": now,
        }
        locator = self.folder.child(category, f"{safe_name(title)}_{doc_id}.md")
        clean = self._parts.redact(body)
        told = StoredDocument(
            doc_id, locator, title, category, len(library.read(locator.key, clean).topics), source, "added", 0
        )
        same = ("sha256", "title", "category")
        if before is not None and all(str(kept.get(key)) == str(head[key]) for key in same):
            return replace(told, change="unchanged")
        lsn = self._parts.notebook.rewrite(locator, lambda _old: _file(head, clean))
        if old is not None and old != locator:
            self._parts.notebook.drop(old)
        self._stored[doc_id] = locator
        return replace(told, change="added" if old is None else "replaced", lsn=lsn)

    def edit(self, doc_id: str, *, title: str | None, category: str | None) -> tuple[list[str], str, int]:
        """Give a document another title or category; the names of what changed, when, and the change."""
        locator = self.locate(doc_id)
        if locator not in self._stored.values():
            raise _only_read(doc_id)
        document = self._read(locator)
        wanted = {"title": title, "category": category}
        if category is not None:
            _check_category(category)
        news = {
            key: value
            for key, value in wanted.items()
            if value is not None and value != document.head.get(key)
        }
        if not news:
            return [], str(document.head.get("updated_at") or ""), 0
        now = self._parts.clock.now().isoformat(timespec="seconds")
        new_title, new_category = title or document.title, category or document.category
        target = self.folder.child(new_category, f"{safe_name(new_title)}_{doc_id}.md")
        text = self._parts.storage.read(locator)
        new = frontmatter.in_head(text, {**news, "updated_at": now})
        lsn = self._parts.notebook.rewrite(target, lambda _old: new)
        if target != locator:
            self._parts.notebook.drop(locator)
            self._stored[doc_id] = target
        names = {"title": "title", "category": "category_id"}
        return [names[key] for key in news], now, lsn

    def remove(self, doc_id: str) -> Locator:
        """Remove a document that was taken in. The original it was made of stays where it is."""
        locator = self.locate(doc_id)
        if locator.parts[3] == LINKED:
            raise _only_read(doc_id)
        self._parts.notebook.drop(locator)
        self._stored.pop(doc_id, None)
        return locator

    # ------------------------------------------------------------ reading

    @cached_property
    def _stored(self) -> dict[str, Locator]:
        """The documents that were taken in, by id, as their file names say."""
        found = {}
        for category in children(self._parts.storage, self.folder):
            for at in children(self._parts.storage, category):
                name = at.name.removesuffix(".md")
                start = name.rfind("_d_") + 1
                if start and DOC_ID.fullmatch(name[start:]):
                    found[name[start:]] = at
        return found

    def locate(self, doc_id: str) -> Locator:
        """Where a document is.

        Raises:
            NotFound: there is none with this id.
        """
        if (at := self._stored.get(doc_id)) is not None:
            return at
        for row in self._parts.index.find(self.scope, [f"{doc_id}_0"], KNOWLEDGE):
            return Locator(row.path)
        raise NotFound(f'There is no document "{doc_id[:80]}": `cairn knowledge list` shows them.', id=doc_id)

    def rows(self, entry_ids: Sequence[str]) -> list[Row]:
        """Rows of the knowledge by their ids."""
        return self._parts.index.find(self.scope, entry_ids, KNOWLEDGE)

    def _read(self, locator: Locator) -> library.Document:
        return library.read(locator.key, self._parts.linked.read(locator))

    def document(self, doc_id: str) -> tuple[library.Document, dict[str, Any]]:
        """A document, and what is told of it as a whole."""
        locator = self.locate(doc_id)
        document = self._read(locator)
        info = self._parts.linked.info(locator)
        head = document.head
        really = self._parts.linked.path_of(locator)
        zone = self._parts.settings.zone
        made = shown_time(int(info.mtime * 1000), zone)
        return document, {
            "doc_id": document.id,
            "category_id": document.category,
            "title": document.title,
            "summary": document.summary,
            "source_name": str(head.get("source_name") or (really.name if really else locator.name)),
            "source_type": str(head.get("source_type") or suffix_of(locator.name)[1:]),
            "original_file_path": str(head.get("source") or "") or (str(really) if really else None),
            "sha256": str(head.get("sha256") or "") or None,
            "md_path": locator.key,
            "created_at": str(head.get("created_at") or made),
            "updated_at": str(head.get("updated_at") or made),
        }

    def listed(
        self, category: str | None, page: int, size: int, sort_by: str, *, descending: bool
    ) -> tuple[list[dict[str, Any]], int]:
        """One page of the documents, and how many there are."""
        where = {"parent_type": DOCUMENT} | ({"parent_id": category} if category is not None else {})
        chosen, index = filters.parse(where), self._parts.index
        sort = {"created_at": "timestamp", "updated_at": "updated_at"}.get(sort_by, "timestamp")
        begin = (page - 1) * size
        if sort_by == "title":
            rows = sorted(self._firsts(chosen), key=lambda row: str(row.fields["title"]).casefold())
            rows = rows[::-1] if descending else rows
            total, rows = len(rows), rows[begin : begin + size]
        else:
            found = index.page(
                self.scope,
                [KNOWLEDGE],
                where=chosen,
                sort=sort,
                descending=descending,
                offset=begin,
                limit=size,
            )
            total, rows = found.total, index.rows(self.scope, found.rowids)
        return [self._overview(row) for row in rows], total

    def _firsts(self, chosen: filters.Group) -> list[Row]:
        out: list[Row] = []
        while True:
            page = self._parts.index.page(self.scope, [KNOWLEDGE], where=chosen, offset=len(out), limit=_PAGE)
            if not page.rowids:
                return out
            out += self._parts.index.rows(self.scope, page.rowids)

    def _overview(self, row: Row) -> dict[str, Any]:
        zone = self._parts.settings.zone
        return {
            "doc_id": row.fields["doc_id"],
            "category_id": row.fields["category"],
            "title": row.fields["title"],
            "topic_count": row.fields.get("topic_count", 1),
            "created_at": shown_time(row.timestamp_ms, zone),
            "path": home(self._parts, row.path),
        }

    def categories(self) -> list[dict[str, Any]]:
        """Every category with its description, from `categories.md` where a person wrote one."""
        counts = Counter(
            str(row.fields["category"]) for row in self._firsts(filters.parse({"parent_type": DOCUMENT}))
        )
        words: dict[str, str] = {}
        try:
            lines = self._parts.storage.read(self.folder.child(CATEGORIES)).splitlines()
        except NotFound:
            lines = []
        for line in lines:
            if found := _CATEGORY_LINE.fullmatch(line.strip()):
                words[found[1]] = found[2].strip()
        return [
            {"category_id": name, "description": words.get(name, ""), "document_count": counts[name]}
            for name in sorted({*counts, *words})
        ]

    # ------------------------------------------------------------ links

    def links(self) -> dict[str, Link]:
        """The linked folders by name."""
        return self._parts.linked.links(self.folder.child(LINKS))

    def link(self, folder: str, name: str) -> Link:
        """Search a folder where it lies, from now on."""
        path = Path(folder).expanduser().absolute()
        if not path.is_dir():
            raise NotFound(f"{path} is no folder: name one that is there.", path=str(path))
        path = path.resolve()
        root = self._parts.settings.root.resolve()
        if path == root or root in path.parents or path in root.parents:
            raise Invalid(
                f"{path} and this memory ({root}) lie in each other: what is in the memory is searched already. "
                "Link another folder.",
                path=str(path),
            )
        known = self.links()
        same = next((link for link in known.values() if link.folder == path), None)
        if same is not None and (not name or name == same.name):
            return same
        name = name or safe_name(path.name, "folder")
        if name in known:
            raise Conflict(
                f'A folder is linked as "{name}" already ({known[name].folder}): give another --name.',
                name=name,
            )
        made = Link(name, path)
        text = write_links({**known, name: made})
        if name not in read_links(text):
            raise Invalid(f'name "{name[:60]}": use letters, digits, _, - and .', field="name")
        self._parts.notebook.rewrite(self.folder.child(LINKS), lambda _old: text)
        return made

    def unlink(self, name: str) -> Link:
        """Search a folder no longer; its files are not touched."""
        known = self.links()
        path = Path(name).expanduser()
        found = known.get(name) or next((one for one in known.values() if one.folder == path), None)
        if found is None:
            raise NotFound(
                f'No folder is linked as "{name[:80]}": `cairn knowledge links` shows them.', name=name
            )
        rest = {key: value for key, value in known.items() if key != found.name}
        at = self.folder.child(LINKS)
        if rest:
            self._parts.notebook.rewrite(at, lambda _old: write_links(rest))
        else:
            self._parts.notebook.drop(at)
        return found

    def settle(self, lsn: int = 0, *, seconds: float = _INDEX_SECONDS) -> None:
        """Have what was just written or linked in the index, as far as so many seconds allow."""
        parts = self._parts
        if lsn:
            parts.waits.wait(lsn, seconds)
        else:
            parts.waits.reach(seconds, scope=self.scope)

    def about(self, link: Link) -> dict[str, Any]:
        """A linked folder, how many documents of it are known, and how many files of the knowledge are not indexed yet."""
        _, total = self.listed(link.name, 1, 1, "created_at", descending=True)
        waiting = self._parts.freshness(self.scope).pending
        return {"name": link.name, "path": str(link.folder), "documents": total, "waiting": waiting}


def at_home(parts: Parts, found: SearchResult) -> SearchResult:
    """The same answer, in which a passage of a linked folder names the file where it really lies."""
    if not found.knowledge:
        return found
    hits = [replace(hit, path=home(parts, hit.path)) for hit in found.knowledge]
    return replace(found, knowledge=tuple(hits))


def home(parts: Parts, path: str) -> str:
    """Where a document really lies: its path in the root, or that of a linked file on this machine."""
    try:
        really = parts.linked.path_of(Locator(path))
    except CairnError:
        return path
    return path if really is None else str(really)


def _check_category(name: str) -> None:
    if not _CATEGORY.fullmatch(name):
        told = f'category "{name[:60]}": use up to 60 letters, digits, _, - and .'
        raise Invalid(told, field="category_id")


def _only_read(doc_id: str) -> Invalid:
    return Invalid(
        f"{doc_id} was not taken in by Cairn: change or remove its file yourself, the index follows.",
        id=doc_id,
    )


def _id_of(text: str) -> str:
    return "d_" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _taken_apart(name: str, text: str) -> tuple[Mapping[str, Any], str]:
    """The head a document brings along, and its body as Markdown."""
    if suffix_of(name) in HTML:
        return {}, "\n".join(html_lines(text).text)
    at = frontmatter.find_head(text)
    if not (at.fenced and at.closed):
        return {}, text
    return frontmatter.read_head(text[at.start : at.end])[0], text[at.body :]


def _file(head: Mapping[str, Any], body: str) -> str:
    end = "" if body.endswith("\n") else "\n"
    return f"---\n{frontmatter.dump({k: v for k, v in head.items() if v is not None})}---\n{body.replace(chr(0), '')}{end}"


def _documents_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every document below a folder with the name of the folder it lies in; links and hidden names are passed over."""
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(at).relative_to(folder).parts
        for name in sorted(files):
            path = Path(at, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            if suffix_of(name) in TEXTS | CONVERTED:
                yield path, safe_name(inside[0]) if inside else ""


def overview_of(document: library.Document, topic: Topic) -> dict[str, Any]:
    """A topic in a few words."""
    return {
        "topic_id": document.topic_id(topic.number),
        "topic_name": topic.name,
        "topic_path": document.path_of(topic),
        "depth": topic.depth,
        "summary": summary(topic.text),
        "line": topic.line,
    }


def topic_data(document: library.Document, number: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """A topic as a whole.

    Raises:
        NotFound: the document has no such topic.
    """
    if not 0 <= number < len(document.topics):
        raise NotFound(f"{document.id} has {len(document.topics)} topics, and none with number {number}.")
    topic = document.topics[number]
    return {
        **overview_of(document, topic),
        "doc_id": document.id,
        "category_id": document.category,
        "content": topic.text,
        "content_labels": [],
        "parent_topic_id": document.topic_id(topic.parent) if topic.parent is not None else None,
        "children_topic_ids": [
            document.topic_id(one.number) for one in document.topics if one.parent == number
        ],
        "created_at": about["created_at"],
        "updated_at": about["updated_at"],
    }


def hits_of(
    found: SearchResult, library_of: Library, *, with_content: bool, method: str
) -> list[dict[str, Any]]:
    """What a search of the knowledge found, each topic once, by its best passage."""
    out: dict[str, dict[str, Any]] = {}
    firsts: dict[str, Row] = {}
    wanted = {f"{hit.fields['doc_id']}_0" for hit in found.knowledge}
    for row in library_of.rows(sorted(wanted)):
        firsts[str(row.fields["doc_id"])] = row
    for hit in found.knowledge:
        fields = hit.fields
        first = firsts.get(str(fields["doc_id"]))
        about = first.fields if first is not None else {}
        text = library.passage_text(hit.text)
        out.setdefault(
            str(fields["topic_id"]),
            {
                "topic_id": fields["topic_id"],
                "category_id": fields["category"],
                "topic_name": fields["topic"],
                "topic_path": fields["topic_path"],
                "depth": fields["depth"],
                "summary": summary(text),
                "content": text if with_content else None,
                "score": hit.score,
                "retrieval_method": method,
                "source": about.get("source") or hit.path,
                "path": hit.path,
                "line": fields["line"],
                "document": {
                    "doc_id": fields["doc_id"],
                    "title": fields["title"],
                    "summary": str(about.get("summary") or ""),
                },
            },
        )
    return list(out.values())
