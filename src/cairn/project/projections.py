"""Writes the bundle as Markdown pages, and reads edits of those pages back.

Five pages below `docs/cairn/`, each opened by a marker with the hash of the bundle it shows and of its own
body. A body that no longer fits its hash was edited by hand: `read_back` turns such a page into the bundle
again, so the edit is taken over instead of overwritten. The entry block in the repository's entry file points
contributors at the pages; its text never changes, only the hash in its first line does.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, Literal

from cairn.canonical import text_hash
from cairn.errors import Invalid
from cairn.project.bundle import Bundle, checked
from cairn.project.layout import CONFLICT_LINE, ENTRY_VERSION, PAGES, PROJECTION_VERSION
from cairn.seams import Locator

PAGE_FILES: Mapping[str, Locator] = {
    "readme": PAGES.child("README.md"),
    "project-map": PAGES.child("project-map.md"),
    "current-focus": PAGES.child("current-focus.md"),
    "gotchas": PAGES.child("gotchas.md"),
    "next-steps": PAGES.child("next-steps.md"),
}
_MARKER = re.compile(
    r"^<!-- cairn:projection file=(?P<file>[a-z-]+) version=(?P<version>\d+) bundleHash=(?P<bundle>[0-9a-f]{64})"
    r"(?: bodyHash=(?P<body>[0-9a-f]{64}))? -->$",
    re.MULTILINE,
)
_ENTRY = re.compile(
    r"<!-- cairn:entry version=(?P<version>\d+) bundleHash=(?P<hash>[0-9a-f]{64}) start -->.*?<!-- cairn:entry end -->",
    re.DOTALL,
)
_ENTRY_TEXT = """## Project memory

This repository keeps its memory in [docs/cairn](docs/cairn/README.md). Before you start, read
[current focus](docs/cairn/current-focus.md) and [gotchas](docs/cairn/gotchas.md); then the
[project map](docs/cairn/project-map.md) and [next steps](docs/cairn/next-steps.md).
Ask it with `cairn project query "..."`; record what you learned with `cairn project record "..."`."""
_NONE = "_None recorded._"
_FACT = r"\*\*(?P<key>[^*]+?):\*\*\s*(?P<value>.+)"
# The lists of each page: heading, place in the bundle, and how an item is written.
_LISTS = {
    "readme": (
        ("## Key paths", "project.keyPaths", "`{path}`"),
        ("## Check your work", "validationCommands", "**{label}** `{command}`: {purpose}"),
    ),
    "project-map": (
        ("## First files to read", "projectMap.firstFilesToRead", "`{path}`"),
        ("## Modules", "projectMap.modules", "**{name}** `{path}`: {responsibility}"),
        ("## Entry points", "projectMap.entrypoints", "`{path}`: {role}"),
        ("## Dense areas", "projectMap.denseSourceAreas", "`{path}`: {note}"),
        ("## Architecture notes", "projectMap.architectureNotes", "{text}"),
    ),
    "current-focus": (
        ("## Current state", "currentFocus.currentState", "{text}"),
        ("## Known risks", "currentFocus.knownRisks", "{text}"),
        ("### Results", "currentFocus.validationSnapshot.results", "{text}"),
        ("### Suggested next actions", "currentFocus.validationSnapshot.suggestedNextActions", "{text}"),
    ),
}
# What stands in a page as "**Label:** value", by the key of each value.
_FACTS = {
    "primaryEcosystem": "Ecosystem",
    "packageManager": "Package manager",
    "workspaceManager": "Workspace manager",
    "recommendedEntryFile": "Entry file",
}
_CHECKED = {"status": "Status", "validatedAt": "Checked", "summary": "Summary"}
_RECORDS = {
    "gotchas": ("gotchas", {"symptom": "Symptom", "cause": "Cause", "correctPath": "Correct path"}),
    "next-steps": ("nextSteps", {"why": "Why", "start": "Start", "done": "Done when"}),
}
_PAGES = """
## Pages

- [Current focus](current-focus.md): what is going on, and how healthy it is
- [Gotchas](gotchas.md): what has cost others time
- [Next steps](next-steps.md): what to do, where to start, when it is done
- [Project map](project-map.md): parts, entry points, first files to read

These pages are written by `cairn project`. You may correct them: the next command takes the edit over."""


# ---------------------------------------------------------------- writing


def pages(bundle: Bundle, bundle_hash: str) -> dict[Locator, str]:
    """The five pages of a bundle, each with its marker."""
    out = {}
    for name, at in PAGE_FILES.items():
        body = pages_body(name, bundle)
        marker = (
            f"file={name} version={PROJECTION_VERSION} bundleHash={bundle_hash} bodyHash={body_hash(body)}"
        )
        out[at] = f"<!-- cairn:projection {marker} -->\n{body}"
    return out


def body_hash(body: str) -> str:
    """The hash of a page's words; line endings and blanks at its end do not count as an edit."""
    return text_hash(body.replace("\r\n", "\n").rstrip() + "\n")


def pages_body(name: str, bundle: Bundle) -> str:
    """The body a page of `bundle` would have."""
    return "\n".join(_lines(name, bundle)).rstrip("\n") + "\n"


def _lines(name: str, bundle: Bundle) -> Iterator[str]:
    project, focus = bundle["project"], bundle["currentFocus"]
    if name == "readme":
        yield from (f"# {project['name']}: project memory", "", project["summary"], "")
        yield from _labelled(_FACTS, project, "none")
        yield from (*_lists(name, bundle), _PAGES)
    elif name == "current-focus":
        yield from (
            "# Current focus",
            "",
            focus["summary"],
            *_lists(name, bundle, slice(2)),
            "",
            "## Validation",
            "",
        )
        yield from _labelled(_CHECKED, focus["validationSnapshot"], "never")
        yield from _lists(name, bundle, slice(2, None))
    elif name == "project-map":
        yield from ("# Project map", *_lists(name, bundle))
    else:
        key, labels = _RECORDS[name]
        yield f"# {name.capitalize().replace('-', ' ')}"
        for item in bundle[key]:
            yield from ("", f"## {item['title']}", "", *_labelled(labels, item))
        if not bundle[key]:
            yield from ("", _NONE)


def _lists(name: str, bundle: Bundle, part: slice = slice(None)) -> Iterator[str]:
    for heading, place, line in _LISTS[name][part]:
        items = reduce(getitem, place.split("."), bundle)
        yield from ("", heading, "", *([f"- {_item(line, item)}" for item in items] or [_NONE]))


def _item(line: str, item: Any) -> str:
    if isinstance(item, str):
        return line.format(path=item, text=item)
    return line.format_map({**item, "command": shlex.join(item.get("command", ()))})


def _labelled(labels: Mapping[str, str], values: Mapping[str, Any], none: str = "") -> Iterator[str]:
    return (f"- **{label}:** {values[key] or none}" for key, label in labels.items())


# ---------------------------------------------------------------- looking at what is there


@dataclass(frozen=True, slots=True)
class ProjectPage:
    """A page as found. `condition`: "current", "stale" (an older bundle), "edited", "merged" or "foreign"."""

    name: str
    condition: Literal["current", "stale", "edited", "merged", "foreign"]
    bundle_hash: str
    body: str


def examine(name: str, text: str, bundle_hash: str) -> ProjectPage:
    """Say what has become of a page: untouched, edited by hand, or mixed by a merge."""
    text = text.replace("\r\n", "\n")
    markers = list(_MARKER.finditer(text))
    body = "\n".join(line for line in text.split("\n") if not _MARKER.fullmatch(line)).lstrip("\n")
    if not markers:
        return ProjectPage(name, "foreign", "", body)
    marker = markers[0]
    if len(markers) > 1 or CONFLICT_LINE.search(text):
        return ProjectPage(name, "merged", marker["bundle"], body)
    if marker["file"] != name or int(marker["version"]) != PROJECTION_VERSION or not marker["body"]:
        return ProjectPage(name, "foreign", marker["bundle"], body)
    if marker["body"] != body_hash(body) or marker.start() != 0:
        return ProjectPage(name, "edited", marker["bundle"], body)
    return ProjectPage(
        name, "current" if marker["bundle"] == bundle_hash else "stale", marker["bundle"], body
    )


# ---------------------------------------------------------------- reading back


def read_back(name: str, body: str, bundle: Bundle) -> tuple[Bundle, list[str]]:
    """The bundle with what an edited page says, and the lines that could not be understood.

    Only the fields a page shows are taken from it. A page that no longer gives a valid bundle changes
    nothing: all of its lines come back as not understood.
    """
    edited = copy.deepcopy(bundle)
    strange: list[str] = []
    try:
        _read(name, _Sections(body, strange), edited)
        if pages_body(name, edited) == pages_body(name, bundle):
            return bundle, strange
        return checked(edited), strange
    except (Invalid, ValueError, KeyError):
        return bundle, body.splitlines()


class _Sections:
    """A page cut at its headings. What a reader does not take ends up in `strange`."""

    def __init__(self, body: str, strange: list[str]) -> None:
        self.title = ""
        self.strange = strange
        self._parts: dict[str, list[str]] = {"": []}
        current = ""
        for line in body.split("\n"):
            found = re.match(r"(#{1,3})\s+(.+?)\s*$", line)
            if found and found.group(1) == "#":
                self.title = found.group(2)
            elif found:
                current = found.group(2)
                self._parts.setdefault(current, [])
            elif line.strip():
                self._parts[current].append(line.strip())

    def names(self) -> list[str]:
        return [name for name in self._parts if name]

    def lines(self, name: str) -> list[str]:
        return self._parts.get(name, [])

    def items(self, name: str) -> list[str]:
        """List items; an indented or unmarked line continues the one before."""
        out: list[str] = []
        for line in self.lines(name):
            if line == _NONE:
                continue
            if line.startswith(("- ", "* ")):
                out.append(line[2:].strip())
            elif out:
                out[-1] = f"{out[-1]} {line}"
            else:
                self.strange.append(line)
        return out

    def matched(self, name: str, pattern: str) -> list[dict[str, str]]:
        out = []
        for item in self.items(name):
            found = re.fullmatch(pattern, item, re.DOTALL)
            if found:
                out.append({key: value.strip() for key, value in found.groupdict().items()})
            else:
                self.strange.append(item)
        return out


def _read(name: str, page: _Sections, bundle: Bundle) -> None:
    """Put what a page says into `bundle`."""
    project, focus = bundle["project"], bundle["currentFocus"]
    if name in _RECORDS:
        key, labels = _RECORDS[name]
        bundle[key] = _read_records(page, {label.lower(): field for field, label in labels.items()})
        return
    for heading, place, line in _LISTS[name]:
        *way, last = place.split(".")
        found = page.matched(heading.lstrip("# "), _pattern(line))
        texts = [next(iter(item.values())) for item in found] if line in {"{text}", "`{path}`"} else None
        reduce(getitem, way, bundle)[last] = found if texts is None else texts
    also = {"Pages"} if name == "readme" else {"Validation"} if name == "current-focus" else set[str]()
    for other in page.names():
        if other not in {heading.lstrip("# ") for heading, _, _ in _LISTS[name]} | also:
            page.strange += [f"## {other}", *page.lines(other)]
    if name == "readme":
        for item in bundle["validationCommands"]:
            item["command"] = shlex.split(item["command"])
        project["name"] = page.title.removesuffix(": project memory") or project["name"]
        prose = [line for line in page.lines("") if not line.startswith("- ")]
        project["summary"] = " ".join(prose) or project["summary"]
        facts_of = (re.fullmatch(f"- {_FACT}", line) for line in page.lines(""))
        facts = {one["key"].lower(): one["value"].strip() for one in facts_of if one}
        told = {key: facts.get(label.lower()) for key, label in _FACTS.items()}
        project |= {key: value for key, value in told.items() if value or key.endswith("Manager")}
        project |= {key: _optional(project[key]) for key in ("packageManager", "workspaceManager")}
    elif name == "current-focus":
        focus["summary"] = " ".join(page.lines("")) or focus["summary"]
        said = {found["key"].lower(): found["value"] for found in page.matched("Validation", _FACT)}
        focus["validationSnapshot"] |= {
            "status": said["status"].lower(),
            "validatedAt": _optional(said.get("checked")),
            "summary": said["summary"],
        }
    else:
        page.strange += page.lines("")


def _pattern(line: str) -> str:
    """What fits the lines that `line` writes: bold words and code end at their marks, all else at the end."""
    inside = {None: ".+", "`": "[^`]+", r"\*\*": "[^*]+"}
    return re.sub(
        r"(\\\*\\\*|`)?\\\{(\w+)\\\}",
        lambda found: f"{found[1] or ''}(?P<{found[2]}>{inside[found[1]]})",
        re.escape(line).replace(r"\ ", r"\s*"),
    )


def _optional(text: str | None) -> str | None:
    return None if (text or "none").lower() in {"none", "never"} else text


def _read_records(page: _Sections, labels: Mapping[str, str]) -> list[dict[str, str]]:
    """`## Title` sections with labelled items; loose prose under a title becomes the first field."""
    page.strange += [line for line in page.lines("") if line != _NONE]
    out = []
    for title in page.names():
        record: dict[str, Any] = {"title": title}
        loose = []
        for line in page.lines(title):
            found = re.fullmatch(r"[-*]\s+\*\*([^*]+?):\*\*\s*(.+)", line)
            if found and found.group(1).lower() in labels:
                record[labels[found.group(1).lower()]] = found.group(2).strip()
            else:
                loose.append(line.removeprefix("- ").removeprefix("* "))
        for field in labels.values():
            if field not in record:
                record[field] = " ".join(loose) if loose else "Not stated."
                loose = []
        page.strange += loose
        out.append(record)
    return out


# ---------------------------------------------------------------- the entry block


def entry_block(bundle_hash: str) -> str:
    """The block that tells contributors where the memory is."""
    return (
        f"<!-- cairn:entry version={ENTRY_VERSION} bundleHash={bundle_hash} start -->\n"
        f"{_ENTRY_TEXT}\n<!-- cairn:entry end -->"
    )


def entry_hash(text: str) -> str | None:
    """The bundle hash in the entry block of `text`, or None where there is no block of this version."""
    found = _ENTRY.search(text)
    return found["hash"] if found and int(found["version"]) == ENTRY_VERSION else None


def entry_text(text: str) -> str | None:
    """The words inside the entry block, or None where there is none."""
    found = _ENTRY.search(text)
    if not found:
        return None
    return "\n".join(found.group(0).replace("\r\n", "\n").split("\n")[1:-1]).strip()


def with_entry(text: str, bundle_hash: str) -> str:
    """`text` with the block in place: replaced where it stands, else after the first heading, else on top.

    A second block, or the halves a merge left around it, are taken out. Every other byte stays.
    """
    block = entry_block(bundle_hash)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = block.replace("\n", newline)
    text = _without_merge_leftovers(text)
    found = list(_ENTRY.finditer(text))
    if found:
        first = found[0]
        rest = text[first.end() :]
        for extra in _ENTRY.finditer(rest):
            rest = rest.replace(extra.group(0), "")
        return text[: first.start()] + block + rest
    if not text.strip():
        return f"# Working in this repository{newline}{newline}{block}{newline}"
    heading = re.search(r"^# .*$", text, re.MULTILINE)
    if heading:
        end = heading.end() - (1 if heading.group(0).endswith("\r") else 0)
        after = text[end:].lstrip("\r\n")
        return f"{text[:end]}{newline}{newline}{block}{newline}{newline}{after}"
    return f"{block}{newline}{newline}{text}"


def without_entry(text: str) -> str:
    """`text` without the block."""
    return _ENTRY.sub("", _without_merge_leftovers(text))


_CONFLICT = re.compile(
    r"^<{7}[^\n]*\n(?P<ours>.*?)(?:^\|{7}[^\n]*\n.*?)?^={7}[^\n]*\n(?P<theirs>.*?)^>{7}[^\n]*\n",
    re.DOTALL | re.MULTILINE,
)
_START = re.compile(r"^<!-- cairn:entry version=\d+ bundleHash=[0-9a-f]+ start -->\r?\n", re.MULTILINE)


def _without_merge_leftovers(text: str) -> str:
    """Undo conflicts that are about the block's first line only; others are the person's to settle."""

    def settle(match: re.Match[str]) -> str:
        ours, theirs = match["ours"], match["theirs"]
        return ours if _START.sub("", ours) == _START.sub("", theirs) else match.group(0)

    text = _CONFLICT.sub(settle, text)
    # A union merge leaves two first lines, one under the other.
    return re.sub(r"(^<!-- cairn:entry version=\d+ bundleHash=[0-9a-f]+ start -->\r?\n)(?:<!-- cairn:entry version=\d+ bundleHash=[0-9a-f]+ start -->\r?\n)+",
                  r"\1", text, flags=re.MULTILINE)  # fmt: skip
