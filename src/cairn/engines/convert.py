"""Converts files to text: PDF and DOCX by libraries, everything else by decoding.

The converters come with the extra `documents`; without it a file that needs one is refused by the name of what is
missing. They run on whatever a person hands over, so any failure of theirs is a refusal of that one file.
"""

from __future__ import annotations

import io
import logging
import time
import zipfile
from importlib.util import find_spec

from cairn.errors import Invalid, Misconfigured
from cairn.language.documents import CONVERTED, TEXTS, suffix_of

MAX_BYTES = 20 * 1024 * 1024
_UNPACKED_BYTES = 5 * MAX_BYTES
_SECONDS = 60.0  # of reading the pages of one file
EXTRA = "documents"
_NEEDS = {".pdf": "pypdf", ".docx": "docx"}
_PACKAGES = {"pypdf": "pypdf", "docx": "python-docx"}


def missing_for(name: str) -> str:
    """The package that reading a file of this name lacks; "" for none."""
    module = _NEEDS.get(suffix_of(name), "")
    return _PACKAGES[module] if module and find_spec(module) is None else ""


def text_of(name: str, data: bytes) -> str:
    """The text of a file.

    Raises:
        Invalid: no document, too large, damaged, protected or not text; the message says which.
        Misconfigured: the converter for it is not installed.
    """
    ending = suffix_of(name)
    if len(data) > MAX_BYTES:
        raise Invalid(
            f"{name} has {len(data)} bytes, more than the {MAX_BYTES} that a document may have: split it.",
            file=name,
        )
    if ending in CONVERTED:
        if package := missing_for(name):
            raise Misconfigured(
                f'{name}: reading {ending[1:].upper()} needs {package}: pip install "cairn-memory[{EXTRA}]".',
                package=package,
            )
        return _converted(name, ending, data)
    if ending not in TEXTS:
        kinds = ", ".join(sorted(TEXTS | CONVERTED))
        raise Invalid(f"{name} is no document that can be read; those are {kinds}.", file=name)
    if b"\0" in data:  # valid UTF-8, and in no text that a person wrote
        raise Invalid(f"{name} is no text (byte {data.index(0)} is NUL): save it as UTF-8.", file=name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is no UTF-8 text (byte {error.start}): save it as UTF-8.", file=name) from None


def _converted(name: str, ending: str, data: bytes) -> str:
    level = logging.getLogger("pypdf")
    level.setLevel(logging.CRITICAL)  # what it has to say of a file is in the error, or of no use to anybody
    try:
        text = _pdf(data) if ending == ".pdf" else _docx(data)
    except (AttributeError, KeyError, TypeError, IndexError):  # a converter that met what it did not expect
        raise Invalid(f"{name} cannot be read as {ending[1:].upper()}: it is damaged.", file=name) from None
    except Exception as error:
        why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise Invalid(f"{name} cannot be read as {ending[1:].upper()}: {why}.", file=name) from None
    if not text.strip():
        raise Invalid(f"{name} holds no text (scanned pages?): add it as text instead.", file=name)
    return text


def _pdf(data: bytes) -> str:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is protected by a password")
    pages, length, until = [], 0, time.monotonic() + _SECONDS
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text().strip()
        length += len(text)
        if length > _UNPACKED_BYTES or time.monotonic() > until:
            raise ValueError(f"page {number} is not the last, and it takes too long or is too much: split it")
        if text:
            pages.append(f"## Page {number}\n\n{text}")
    return "\n\n".join(pages)


def _docx(data: bytes) -> str:
    from docx import Document
    from docx.table import Table

    with zipfile.ZipFile(io.BytesIO(data)) as packed:  # no more is unpacked of a part than is said here
        if sum(part.file_size for part in packed.infolist()) > _UNPACKED_BYTES:
            raise ValueError(f"it unpacks to more than {_UNPACKED_BYTES} bytes")
    lines = []
    for block in Document(io.BytesIO(data)).iter_inner_content():
        if isinstance(block, Table):
            rows = [" | ".join(cell.text.strip() for cell in row.cells) for row in block.rows]
            lines.append("\n".join(rows))
            continue
        words = block.text.strip()
        style = (block.style.name or "") if block.style is not None else ""
        if not words:
            continue
        if style == "Title":
            words = f"# {words}"
        elif style.startswith("Heading ") and style[8:].isdigit():
            words = f"{'#' * min(6, int(style[8:]))} {words}"
        elif style.startswith("List"):
            words = f"- {words}"
        lines.append(words)
    return "\n\n".join(lines)
