"""The commands for documents: knowledge add, list, show, topic, search, edit, replace, remove, link, unlink, links."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cairn.errors import Invalid, NotFound
from cairn.operations.knowledge import Knowledge
from cairn.surfaces.command import Command
from cairn.surfaces.output import Output


def say_document(data: Any, output: Output) -> None:
    output.line(f"{data['title']}  ({data['doc_id']})", style="bold")
    output.line(f"{data['md_path']}  [{data['category_id']}]")
    if data["original_file_path"]:
        output.line(f"original: {data['original_file_path']}")
    for topic in data["topics"]:
        output.line(f"{topic['line']:>6}  {'  ' * max(topic['depth'] - 1, 0)}{topic['topic_name']}")


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
    Command("knowledge add", Knowledge.knowledge_add, reading=False),
    Command(
        "knowledge upload",
        Knowledge.knowledge_upload,
        positional="",
        without="file file_name",
        also=_FILE_ARGUMENT,
        fill=_fill_file,
        reading=False,
    ),
    Command(
        "knowledge replace",
        Knowledge.knowledge_replace,
        positional="doc_id",
        without="file file_name",
        also=_FILE_ARGUMENT,
        fill=_fill_file,
    ),
    Command("knowledge edit", Knowledge.knowledge_edit),
    Command("knowledge remove", Knowledge.knowledge_remove),
    Command("knowledge list", Knowledge.knowledge_list, short={"category_id": "--category"}),
    Command("knowledge show", Knowledge.knowledge_show, say_document),
    Command("knowledge topic", Knowledge.knowledge_topic),
    Command("knowledge search", Knowledge.knowledge_search, short={"include_content": "--content"}),
    Command("knowledge categories", Knowledge.knowledge_categories),
    Command("knowledge link", Knowledge.knowledge_link, reading=False, progress="reading the folder"),
    Command("knowledge unlink", Knowledge.knowledge_unlink),
    Command("knowledge links", Knowledge.knowledge_links),
)
