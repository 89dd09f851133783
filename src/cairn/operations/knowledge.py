"""Knowledge: documents of a space, searched beside its memories, and folders that are searched where they lie."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Unpack

from cairn.operations import rules
from cairn.operations.answers import Answer, Answers
from cairn.operations.fields import MAX_ID, Consistency, InSpace, space_named
from cairn.operations.table import Room, operation, says

if TYPE_CHECKING:
    from cairn.operations.library import Library, StoredDocument

answers = Answers("knowledge")

F = TypeVar("F", bound=Callable[..., Any])
_ALONE_SECONDS, _SERVED_SECONDS = 3600.0, 10.0
DocId = Annotated[
    str, says("the document's id", "d_0123456789abcdef", pattern=r"^d_[a-f0-9]{12,32}$", wire="doc_id")
]
File = Annotated[
    str | bytes,
    says("the document: its text, or its bytes as a part of a form", "# Tides\n\nHigh at noon.", low=1),
]
Title = Annotated[str, says("its title", "Tide tables", low=1, high=300, pattern=r"(?s).*\w.*")]
FileName = Annotated[
    str,
    says("its file name: the ending says what it is", "tides.md", low=1, high=255, pattern=r"[^/\\\x00]+"),
]
SourceType = Annotated[str | None, says("what it is, in the caller's words", "manual", high=MAX_ID)]
CategoryId = Annotated[str | None, says("the category it belongs to", "manuals", low=1, high=60)]


def _stored(one: StoredDocument, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "doc_id": one.id,
        "category_id": one.category,
        "topic_count": one.topic_count,
        "source_name": None,
        "md_path": one.locator.key,
        "original_file_path": one.source or None,
        "title": one.title,
        "change": one.change,
    }


def _uploaded(one: StoredDocument, room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**_stored(one, room, asked), "source_name": asked["file_name"]}


def _served(http: str, shape: Answer, **more: Any) -> Callable[[F], F]:
    """A row at `/knowledge/...`: all but GET and a search write."""
    writes = not http.startswith("GET ") and not http.endswith("/search")
    return operation(writes=writes, http=http, answers=shape, **{"allow": rules.library(write=writes)} | more)


class Knowledge(Room):
    """What a space knows from documents."""

    def _library(self, **at: Unpack[InSpace]) -> Library:
        from cairn.operations.library import Library

        return Library(self.parts, space_named(**at))

    def _settled(self, consistency: str = "eventual", **at: Unpack[InSpace]) -> Library:
        """The library as it is now: a lone call does its own indexing."""
        library = self._library(**at)
        if self.parts.daemon is None or consistency == "strong":
            library.settle()
        return library

    def _take_in(
        self,
        file: str | bytes,
        at: InSpace,
        title: str,
        name: str,
        source_type: str | None,
        category: str | None,
        doc_id: str = "",
    ) -> StoredDocument:
        library = self._library(**at)
        data = file.encode("utf-8") if isinstance(file, str) else file
        done = library.upload(
            data,
            name=name,
            title=title,
            category=category or "",
            source_type=source_type or "",
            doc_id=doc_id,
        )
        library.settle(done.lsn)
        return done

    # ------------------------------------------------------------ taking in

    @operation(writes=True, answers=answers.KnowledgeAddData, allow=rules.library(write=True))
    def knowledge_add(
        self,
        paths: Annotated[
            Sequence[str],
            says(
                "files, and folders with all that is in them", ["manuals"], low=1, each=(1, 4096), here=True
            ),
        ],
        *,
        category: Annotated[
            str, says("the category; that of their folder otherwise", "manuals", high=60)
        ] = "",
        title: Annotated[str, says("the title of a single file; its own otherwise", "Tides", high=300)] = "",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Take in documents (Markdown, text, HTML, PDF, DOCX): kept as Markdown with the address of the original.

        The same file again changes nothing, and a newer version of it takes its place. A file that cannot be read is
        named with the reason; the others are taken in all the same.
        """
        done, refused = self._library(**at).add_files(paths, category=category, title=title)
        return {
            "documents": [
                _stored(one, self, {}) | {"source_name": one.source.rpartition("/")[2]} for one in done
            ],
            "refused": [{"path": path, "reason": reason} for path, reason in refused],
        }

    @_served(
        "POST /knowledge/documents", answers.DocumentStored, data=_uploaded, judges=("file",), status=201
    )
    def knowledge_upload(
        self,
        title: Title,
        file: File,
        *,
        file_name: FileName = "document.md",
        source_type: SourceType = None,
        category_id: CategoryId = None,
        **at: Unpack[InSpace],
    ) -> StoredDocument:
        """Take in one document as it is sent: as a form with a file, or as text.

        Raises:
            Invalid: it cannot be read; the message says why, and nothing was written.
            Misconfigured: the converter for it is not installed.
        """
        return self._take_in(file, at, title, file_name, source_type, category_id)

    @_served("PUT /knowledge/documents/{doc_id}", answers.DocumentStored, data=_uploaded, judges=("file",))
    def knowledge_replace(
        self,
        doc_id: DocId,
        title: Title,
        file: File,
        *,
        file_name: FileName = "document.md",
        source_type: SourceType = None,
        category_id: CategoryId = None,
        **at: Unpack[InSpace],
    ) -> StoredDocument:
        """Put another text in the place of a document; what cannot be read leaves the old one as it is."""
        return self._take_in(file, at, title, file_name, source_type, category_id, doc_id)

    @_served("PATCH /knowledge/documents/{doc_id}", answers.DocumentEdited)
    def knowledge_edit(
        self,
        doc_id: DocId,
        *,
        title: Annotated[
            str | None, says("its new title", "Tide tables", low=1, high=300, pattern=r"(?s).*\w.*")
        ] = None,
        category_id: CategoryId = None,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Give a document another title or category."""
        library = self._library(**at)
        fields, updated_at, lsn = library.edit(doc_id, title=title, category=category_id)
        library.settle(lsn)
        return {"doc_id": doc_id, "updated_fields": fields, "updated_at": updated_at}

    @_served("DELETE /knowledge/documents/{doc_id}", answers.DocumentRemoved)
    def knowledge_remove(self, doc_id: DocId, **at: Unpack[InSpace]) -> dict[str, Any]:
        """Remove a document that was taken in; the original it was made of stays where it is."""
        library = self._settled(**at)
        removed = library.remove(doc_id)
        library.settle()
        return {"doc_id": doc_id, "removed": removed.key}

    # ------------------------------------------------------------ reading

    @_served("GET /knowledge/documents", answers.DocumentsData)
    def knowledge_list(
        self,
        *,
        category_id: CategoryId = None,
        page: Annotated[int, says("which page", 1, low=1)] = 1,
        page_size: Annotated[int, says("how many a page", 20, low=1, high=100)] = 20,
        sort_by: Annotated[
            Literal["created_at", "updated_at", "title"], says("what to sort by", "title")
        ] = "created_at",
        sort_order: Annotated[Literal["asc", "desc"], says("which way", "desc")] = "desc",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """The documents of a space, those of linked folders included, page by page."""
        library = self._settled(**at)
        rows, total = library.listed(category_id, page, page_size, sort_by, descending=sort_order == "desc")
        notes = list(self.parts.freshness(library.scope).notes)
        return {"documents": rows, "total": total, "page": page, "page_size": page_size, "notes": notes}

    @_served("GET /knowledge/documents/{doc_id}", answers.DocumentData)
    def knowledge_show(self, doc_id: DocId, **at: Unpack[InSpace]) -> dict[str, Any]:
        """One document: what it is, where its original is, and its topics with their lines."""
        from cairn.operations.library import overview_of

        library = self._settled(**at)
        document, about = library.document(doc_id)
        return {**about, "topics": [overview_of(document, topic) for topic in document.topics]}

    @_served("GET /knowledge/topics/{topic_id}", answers.TopicData)
    def knowledge_topic(
        self,
        topic_id: Annotated[
            str, says("the topic's id", "d_0123456789abcdef_2", pattern=r"^d_[a-f0-9]{12,32}_\d{1,9}$")
        ],
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """One topic of a document: what stands below a heading."""
        from cairn.operations.library import topic_data

        library = self._settled(**at)
        doc_id, _, number = topic_id.rpartition("_")
        document, about = library.document(doc_id)
        return topic_data(document, int(number), about)

    @_served("POST /knowledge/search", answers.KnowledgeFound)
    def knowledge_search(
        self,
        query: Annotated[str, says("the question, in plain words", "when is high tide", low=1, high=2000)],
        *,
        method: Annotated[
            Literal["keyword", "vector", "hybrid"], says("by words, by meaning, or both", "hybrid")
        ] = "hybrid",
        top_k: Annotated[int, says("how many passages to look at, at most", 10, low=1, high=100)] = 10,
        score_threshold: Annotated[
            float | None, says("leave out hits below this score", 0.3, low=0, high=1)
        ] = None,
        include_content: Annotated[bool, says("add the text of each passage", True)] = False,
        consistency: Consistency = "eventual",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Find the topics of a space's documents that answer a question, each by its best passage."""
        from cairn.operations.library import at_home, hits_of
        from cairn.retrieval.answers import SearchRequest

        begun = time.perf_counter()
        library = self._settled(consistency, **at)
        request = SearchRequest(
            query, scope=library.scope, method=method, top_k=top_k, min_score=score_threshold
        )
        with self.parts.traffic:
            found = at_home(self.parts, self.parts.searcher.search(request))
        hits = hits_of(found, library, with_content=include_content, method=method)
        return {
            "hits": hits,
            "total": len(hits),
            "took_ms": round((time.perf_counter() - begun) * 1e3, 3),
            "notes": list(found.freshness.notes),
        }

    @_served("GET /knowledge/categories", answers.CategoriesData)
    def knowledge_categories(self, **at: Unpack[InSpace]) -> dict[str, Any]:
        """The categories of a space's documents, with their number; `knowledge/categories.md` may describe them."""
        library = self._settled(**at)
        return {"categories": library.categories()}

    # ------------------------------------------------------------ folders

    @_served("POST /knowledge/links", answers.LinkData, allow=rules.linked_folder)
    def knowledge_link(
        self,
        path: Annotated[
            str, says("the folder; over HTTP below server.project_roots", "/srv/notes", low=1, high=4096)
        ],
        *,
        name: Annotated[str, says("what it is called here; its own name otherwise", "notes", high=60)] = "",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Link a folder of documents: it is searched in place and never written to; what is removed there leaves the index.

        Raises:
            NotFound: there is no such folder.
            Invalid: it lies in the memory itself, or around it.
            Conflict: another folder has that name.
        """
        library = self._library(**at)
        made = library.link(path, name)
        # A lone call reads the whole folder, however large; a server goes on in the background.
        library.settle(seconds=_ALONE_SECONDS if self.parts.daemon is None else _SERVED_SECONDS)
        return library.about(made)

    @_served("DELETE /knowledge/links/{name}", answers.LinkData)
    def knowledge_unlink(
        self,
        name: Annotated[str, says("what it is called here", "notes", low=1, high=4096)],
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Stop searching a linked folder; its files stay as they are."""
        library = self._library(**at)
        gone = library.unlink(name)
        library.settle()
        return {**library.about(gone), "documents": 0}

    @_served("GET /knowledge/links", answers.LinksData)
    def knowledge_links(self, **at: Unpack[InSpace]) -> dict[str, Any]:
        """The linked folders, with how many documents of each are known, and what is wrong with one."""
        library = self._settled(**at)
        links = []
        for link in library.links().values():
            trouble = "" if link.folder.is_dir() else "the folder is not there; what was known of it is kept"
            links.append({**library.about(link), "trouble": trouble})
        return {"links": links, "notes": list(self.parts.freshness(library.scope).notes)}
