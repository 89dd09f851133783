"""The commands for documents: knowledge add, list, show, topic, search, edit, replace, remove, link, unlink, links."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cairn.errors import Invalid, NotFound
from cairn.operations.knowledge import Knowledge
from cairn.surfaces.command import Command
from cairn.surfaces.output import Output


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def say_added(data: Any, output: Output) -> int:
    for one in data["documents"]:
        output.line(
            f"{one['change']}: {one['title']}  {one['doc_id']}  ({_many(one['topic_count'], 'topic')})"
        )
    for one in data["refused"]:
        output.note(f"not taken in: {one['path']}: {one['reason']}")
    if data["documents"]:
        output.line('Next: cairn knowledge search "..."')
    return 1 if data["refused"] else 0


def say_edited(done: Any, output: Output) -> None:
    changed = ", ".join(done["updated_fields"])
    output.line(f"{done['doc_id']}: {changed} changed." if changed else "Nothing changed.")


def say_documents(data: Any, output: Output) -> int:
    rows = [
        (one["doc_id"], one["created_at"][:10], one["category_id"], one["title"], str(one["topic_count"]))
        for one in data["documents"]
    ]
    output.table(("id", "since", "category", "title", "topics"), rows)
    output.line(f"{len(rows)} of {data['total']}")
    _say_notes(data, output)
    return 0 if data["total"] else 1


def say_document(data: Any, output: Output) -> None:
    output.line(f"{data['title']}  ({data['doc_id']})", style="bold")
    output.line(f"{data['md_path']}  [{data['category_id']}]")
    if data["original_file_path"]:
        output.line(f"original: {data['original_file_path']}")
    for topic in data["topics"]:
        output.line(f"{topic['line']:>6}  {'  ' * max(topic['depth'] - 1, 0)}{topic['topic_name']}")


def say_topic(data: Any, output: Output) -> None:
    output.line(f"{data['topic_path']}  ({data['topic_id']}, line {data['line']})", style="bold")
    output.block(data["content"])


def say_found(data: Any, output: Output) -> int:
    for hit in data["hits"]:
        output.line(f"{hit['score']:.2f}  {hit['topic_path']}", style="bold")
        output.line(f"      {hit['path']}:{hit['line']}  {hit['topic_id']}")
        output.block(hit["content"] or hit["summary"], indent="      ", limit=400)
    if not data["hits"]:
        output.line("Nothing fits.")
    _say_notes(data, output)
    return 0 if data["hits"] else 1


def say_categories(data: Any, output: Output) -> int:
    rows = [
        (one["category_id"], str(one["document_count"]), one["description"]) for one in data["categories"]
    ]
    output.table(("category", "documents", "what"), rows)
    return 0 if rows else 1


def say_linked(done: Any, output: Output) -> None:
    output.line(
        f"{done['name']}: {done['path']}, {_many(done['documents'], 'document')}, searched where they lie."
    )
    if done["waiting"]:
        output.line(f"{done['waiting']} files are still to be read.")


def say_links(data: Any, output: Output) -> int:
    for one in data["links"]:
        trouble = f"  ({one['trouble']})" if one["trouble"] else ""
        output.line(f"{one['name']}: {one['path']}, {_many(one['documents'], 'document')}{trouble}")
    if not data["links"]:
        output.line("No folder is linked: `cairn knowledge link FOLDER` links one.")
    _say_notes(data, output)
    return 0 if data["links"] else 1


def _say_notes(data: Any, output: Output) -> None:
    for note in data["notes"]:
        output.note(note)


_STORED = "{change}: {title}  {doc_id}  {md_path}"
_FILE_ARGUMENT = {"file": {"metavar": "FILE", "help": "the file"}}


def _fill_file(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    path = Path(args.file).expanduser()
    try:
        fields["file"] = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file.", file=str(path)) from None
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror or error}.", file=str(path)) from None
    fields["file_name"] = path.name


COMMANDS = (
    Command("knowledge add", Knowledge.knowledge_add, say_added, positional="paths+", reading=False),
    Command(
        "knowledge upload",
        Knowledge.knowledge_upload,
        _STORED,
        without="file file_name",
        also=_FILE_ARGUMENT,
        fill=_fill_file,
        reading=False,
    ),
    Command(
        "knowledge replace",
        Knowledge.knowledge_replace,
        _STORED,
        positional="doc_id",
        without="file file_name",
        also=_FILE_ARGUMENT,
        fill=_fill_file,
    ),
    Command("knowledge edit", Knowledge.knowledge_edit, say_edited, positional="doc_id"),
    Command("knowledge remove", Knowledge.knowledge_remove, "Removed {removed}.", positional="doc_id"),
    Command("knowledge list", Knowledge.knowledge_list, say_documents, short={"category_id": "--category"}),
    Command("knowledge show", Knowledge.knowledge_show, say_document, positional="doc_id"),
    Command("knowledge topic", Knowledge.knowledge_topic, say_topic, positional="topic_id"),
    Command(
        "knowledge search",
        Knowledge.knowledge_search,
        say_found,
        positional="query+",
        short={"include_content": "--content"},
    ),
    Command("knowledge categories", Knowledge.knowledge_categories, say_categories),
    Command(
        "knowledge link",
        Knowledge.knowledge_link,
        say_linked,
        positional="path",
        reading=False,
        progress="reading the folder",
    ),
    Command(
        "knowledge unlink",
        Knowledge.knowledge_unlink,
        "{path} is searched no longer; nothing in it was touched.",
        positional="name",
    ),
    Command("knowledge links", Knowledge.knowledge_links, say_links),
)
