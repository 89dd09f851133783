"""What the operations on documents answer: documents, topics, hits, categories, linked folders."""

from __future__ import annotations

from typing import Annotated, Literal

from cairn.operations.table import says


class DocumentStored:
    """A document that was taken in."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    topic_count: Annotated[int, says("how many topics it has", 12)]
    source_name: Annotated[str | None, says("the name of the original", "tides.pdf")]
    md_path: Annotated[
        str, says("its file in the root", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    original_file_path: Annotated[
        str | None, says("where the original is; none for one that was sent", "/srv/tides.pdf")
    ]
    title: Annotated[str, says("its title", "Tides")]
    change: Annotated[Literal["added", "replaced", "unchanged"], says("what became of it", "added")]


class KnowledgeRefused:
    """A file that was not taken in."""

    path: Annotated[str, says("the file", "/srv/scan.pdf")]
    reason: Annotated[str, says("why", "scan.pdf holds no text")]


class KnowledgeAddData:
    """What was taken in, and what was not."""

    documents: Annotated[list[DocumentStored], says("what was taken in", [])]
    refused: Annotated[list[KnowledgeRefused], says("what was not", [])]


class DocumentEdited:
    """What changed of a document."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    updated_fields: Annotated[list[str], says("what changed", ["title"])]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class DocumentRemoved:
    """A document that is gone."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    removed: Annotated[
        str, says("the file that was removed", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]


class DocumentItem:
    """A document in a list."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    title: Annotated[str, says("its title", "Tides")]
    topic_count: Annotated[int, says("how many topics it has", 12)]
    created_at: Annotated[str, says("when it came", "2026-06-01T09:30:00+00:00")]
    path: Annotated[str, says("its file", "default_app/default_project/knowledge/manuals/Tides_d_01.md")]


class DocumentsData:
    """One page of documents."""

    documents: Annotated[list[DocumentItem], says("the documents", [])]
    total: Annotated[int, says("how many there are", 42)]
    page: Annotated[int, says("which page this is", 1)]
    page_size: Annotated[int, says("how many a page", 20)]
    notes: Annotated[list[str], says("files that cannot be read, and why", [])]


class TopicOverview:
    """A topic in a few words."""

    topic_id: Annotated[str, says("its id", "d_0123456789abcdef_2")]
    topic_name: Annotated[str, says("its heading", "Springs")]
    topic_path: Annotated[str, says("the headings above it and its own", "Tides > Springs")]
    depth: Annotated[int, says("how deep its heading is; 0 for what stands before the first", 2)]
    summary: Annotated[str, says("its beginning", "High at noon.")]
    line: Annotated[int, says("the line it begins on", 17)]


class DocumentData:
    """One document."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    title: Annotated[str, says("its title", "Tides")]
    summary: Annotated[str, says("its beginning", "High at noon.")]
    source_name: Annotated[str | None, says("the name of the original", "tides.pdf")]
    source_type: Annotated[str | None, says("what the original is", "pdf")]
    original_file_path: Annotated[str | None, says("where the original is", "/srv/tides.pdf")]
    sha256: Annotated[str | None, says("the hash of the original", "9f86d081884c7d65")]
    md_path: Annotated[
        str, says("its file in the root", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    topics: Annotated[list[TopicOverview], says("its topics, in order", [])]
    created_at: Annotated[str, says("when it came", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class TopicData(TopicOverview):
    """One topic."""

    doc_id: Annotated[str, says("the document", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    content: Annotated[str, says("its words", "High at noon.")]
    content_labels: Annotated[list[str], says("always empty: nothing labels documents here", [])]
    parent_topic_id: Annotated[str | None, says("the topic it belongs to", "d_0123456789abcdef_0")]
    children_topic_ids: Annotated[list[str], says("the topics below it", [])]
    created_at: Annotated[str, says("when the document came", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class DocumentContext:
    """The document of a hit."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    title: Annotated[str, says("its title", "Tides")]
    summary: Annotated[str, says("its beginning", "High at noon.")]


class KnowledgeHit:
    """A topic that answers."""

    topic_id: Annotated[str, says("its id", "d_0123456789abcdef_2")]
    category_id: Annotated[str, says("its category", "manuals")]
    topic_name: Annotated[str, says("its heading", "Springs")]
    topic_path: Annotated[str, says("the headings above it and its own", "Tides > Springs")]
    depth: Annotated[int, says("how deep its heading is", 2)]
    summary: Annotated[str, says("the beginning of the passage", "High at noon.")]
    content: Annotated[str | None, says("the passage, where asked for", "High at noon.")]
    score: Annotated[float, says("how well it answers, 0 to 1", 0.83)]
    retrieval_method: Annotated[str, says("how it was found", "hybrid")]
    source: Annotated[str | None, says("where the original is", "/srv/tides.pdf")]
    path: Annotated[
        str, says("the file it stands in", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    line: Annotated[int, says("the line the passage begins on", 17)]
    document: Annotated[
        DocumentContext,
        says("its document", {"doc_id": "d_0123456789abcdef", "title": "Tides", "summary": "High at noon."}),
    ]


class KnowledgeFound:
    """What a search of the documents found."""

    hits: Annotated[list[KnowledgeHit], says("the topics, best first", [])]
    total: Annotated[int, says("how many", 3)]
    took_ms: Annotated[float, says("how long it took", 8.1)]
    notes: Annotated[list[str], says("what the answer rests on", [])]


class CategoryItem:
    """A category of documents."""

    category_id: Annotated[str, says("its name", "manuals")]
    description: Annotated[str, says("what it holds, as categories.md says", "How things are run.")]
    document_count: Annotated[int, says("how many documents it has", 4)]


class CategoriesData:
    """The categories of a space."""

    categories: Annotated[list[CategoryItem], says("the categories, by name", [])]


class LinkData:
    """A linked folder."""

    name: Annotated[str, says("what it is called here", "notes")]
    path: Annotated[str, says("where it is", "/srv/notes")]
    documents: Annotated[int, says("how many documents of it are known", 120)]
    waiting: Annotated[int, says("how many files of the space's knowledge are still to be read", 0)]


class LinkItem(LinkData):
    """A linked folder in a list."""

    trouble: Annotated[str, says("what is wrong with it", "")]


class LinksData:
    """The linked folders."""

    links: Annotated[list[LinkItem], says("the folders", [])]
    notes: Annotated[list[str], says("files that cannot be read, and why", [])]
