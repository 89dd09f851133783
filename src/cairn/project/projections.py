"""The bundle as pages a person reads, and the way back.

Five pages below `docs/cairn/`, each opened by a marker with the hash of the bundle it shows and of its own
body. A body that no longer fits its hash was edited by hand: `read_back` turns such a page into the bundle
again, so the edit is taken over instead of overwritten. The entry block in the repository's entry file points
contributors at the pages; its text never changes, only the hash in its first line does.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


# ---------------------------------------------------------------- writing


def pages(bundle: Bundle, bundle_hash: str) -> dict[Locator, str]:
    """The five pages of a bundle, each with its marker."""
    out = {}
    for name, render in _RENDER.items():
        body = "\n".join(render(bundle)).rstrip("\n") + "\n"
        out[PAGE_FILES[name]] = f"{_marker(name, bundle_hash, body)}\n{body}"
    return out


def _marker(name: str, bundle_hash: str, body: str) -> str:
    return (
        f"<!-- cairn:projection file={name} version={PROJECTION_VERSION} bundleHash={bundle_hash}"
        f" bodyHash={body_hash(body)} -->"
    )


def body_hash(body: str) -> str:
    """The hash of a page's words; line endings and blanks at its end do not count as an edit."""
    return text_hash(body.replace("\r\n", "\n").rstrip() + "\n")


def _list(items: list[str]) -> Iterator[str]:
    yield from (f"- {item}" for item in items)
    if not items:
        yield _NONE


def _readme(bundle: Bundle) -> Iterator[str]:
    project = bundle["project"]
    yield f"# {project['name']}: project memory"
    yield from ("", project["summary"], "")
    yield f"- **Ecosystem:** {project['primaryEcosystem']}"
    yield f"- **Package manager:** {project['packageManager'] or 'none'}"
    yield f"- **Workspace manager:** {project['workspaceManager'] or 'none'}"
    yield f"- **Entry file:** {project['recommendedEntryFile']}"
    yield from ("", "## Key paths", "", *_list([f"`{path}`" for path in project["keyPaths"]]))
    yield from ("", "## Check your work", "")
    yield from _list(
        [
            f"**{item['label']}** `{shlex.join(item['command'])}`: {item['purpose']}"
            for item in bundle["validationCommands"]
        ]
    )
    yield from ("", "## Pages", "")
    yield "- [Current focus](current-focus.md): what is going on, and how healthy it is"
    yield "- [Gotchas](gotchas.md): what has cost others time"
    yield "- [Next steps](next-steps.md): what to do, where to start, when it is done"
    yield "- [Project map](project-map.md): parts, entry points, first files to read"
    yield ""
    yield "These pages are written by `cairn project`. You may correct them: the next command takes the edit over."


def _project_map(bundle: Bundle) -> Iterator[str]:
    chart = bundle["projectMap"]
    yield "# Project map"
    yield from ("", "## First files to read", "", *_list([f"`{path}`" for path in chart["firstFilesToRead"]]))
    yield from ("", "## Modules", "")
    yield from _list(
        [f"**{item['name']}** `{item['path']}`: {item['responsibility']}" for item in chart["modules"]]
    )
    yield from ("", "## Entry points", "")
    yield from _list([f"`{item['path']}`: {item['role']}" for item in chart["entrypoints"]])
    yield from ("", "## Dense areas", "")
    yield from _list([f"`{item['path']}`: {item['note']}" for item in chart["denseSourceAreas"]])
    yield from ("", "## Architecture notes", "", *_list(chart["architectureNotes"]))


def _focus(bundle: Bundle) -> Iterator[str]:
    focus = bundle["currentFocus"]
    snapshot = focus["validationSnapshot"]
    yield "# Current focus"
    yield from ("", focus["summary"])
    yield from ("", "## Current state", "", *_list(focus["currentState"]))
    yield from ("", "## Known risks", "", *_list(focus["knownRisks"]))
    yield from ("", "## Validation", "", f"- **Status:** {snapshot['status']}")
    yield f"- **Checked:** {snapshot['validatedAt'] or 'never'}"
    yield f"- **Summary:** {snapshot['summary']}"
    yield from ("", "### Results", "", *_list(snapshot["results"]))
    yield from ("", "### Suggested next actions", "", *_list(snapshot["suggestedNextActions"]))


def _items(title: str, items: Sequence[Mapping[str, str]], labels: Mapping[str, str]) -> Iterator[str]:
    yield f"# {title}"
    for item in items:
        yield from ("", f"## {item['title']}", "")
        yield from (f"- **{label}:** {item[name]}" for name, label in labels.items())
    if not items:
        yield from ("", _NONE)


def _gotchas(bundle: Bundle) -> Iterator[str]:
    labels = {"symptom": "Symptom", "cause": "Cause", "correctPath": "Correct path"}
    return _items("Gotchas", bundle["gotchas"], labels)


def _next_steps(bundle: Bundle) -> Iterator[str]:
    return _items("Next steps", bundle["nextSteps"], {"why": "Why", "start": "Start", "done": "Done when"})


_RENDER: Mapping[str, Callable[[Bundle], Iterator[str]]] = {
    "readme": _readme,
    "project-map": _project_map,
    "current-focus": _focus,
    "gotchas": _gotchas,
    "next-steps": _next_steps,
}


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
        _READ[name](_Sections(body, strange), edited)
        if pages_body(name, edited) == pages_body(name, bundle):
            return bundle, strange
        return checked(edited), strange
    except (Invalid, ValueError, KeyError):
        return bundle, body.splitlines()


def pages_body(name: str, bundle: Bundle) -> str:
    """The body a page of `bundle` would have."""
    return "\n".join(_RENDER[name](bundle)).rstrip("\n") + "\n"


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

    def fields(self, name: str) -> dict[str, str]:
        return {
            found["key"].lower(): found["value"]
            for found in self.matched(name, r"\*\*(?P<key>[^*]+?):\*\*\s*(?P<value>.+)")
        }


def _optional(text: str) -> str | None:
    return None if text.lower() in {"none", "never", ""} else text


def _read_readme(page: _Sections, bundle: Bundle) -> None:
    project = bundle["project"]
    project["name"] = page.title.removesuffix(": project memory") or project["name"]
    prose = [line for line in page.lines("") if not line.startswith("- ")]
    project["summary"] = " ".join(prose) or project["summary"]
    fields = {
        found.group(1).lower(): found.group(2).strip()
        for line in page.lines("")
        if (found := re.fullmatch(r"- \*\*([^*]+?):\*\*\s*(.+)", line))
    }
    project["primaryEcosystem"] = fields.get("ecosystem", project["primaryEcosystem"])
    project["packageManager"] = _optional(fields.get("package manager", "none"))
    project["workspaceManager"] = _optional(fields.get("workspace manager", "none"))
    project["recommendedEntryFile"] = fields.get("entry file", project["recommendedEntryFile"])
    project["keyPaths"] = [found["path"] for found in page.matched("Key paths", r"`(?P<path>[^`]+)`")]
    commands = page.matched(
        "Check your work", r"\*\*(?P<label>[^*]+)\*\*\s*`(?P<command>[^`]+)`:\s*(?P<purpose>.+)"
    )
    bundle["validationCommands"] = [{**item, "command": shlex.split(item["command"])} for item in commands]
    _strange_sections(page, {"Key paths", "Check your work", "Pages"})


def _read_map(page: _Sections, bundle: Bundle) -> None:
    chart = bundle["projectMap"]
    chart["firstFilesToRead"] = [
        found["path"] for found in page.matched("First files to read", r"`(?P<path>[^`]+)`")
    ]
    chart["modules"] = page.matched(
        "Modules", r"\*\*(?P<name>[^*]+)\*\*\s*`(?P<path>[^`]+)`:\s*(?P<responsibility>.+)"
    )
    chart["entrypoints"] = page.matched("Entry points", r"`(?P<path>[^`]+)`:\s*(?P<role>.+)")
    chart["denseSourceAreas"] = page.matched("Dense areas", r"`(?P<path>[^`]+)`:\s*(?P<note>.+)")
    chart["architectureNotes"] = page.items("Architecture notes")
    page.strange += page.lines("")
    _strange_sections(
        page, {"First files to read", "Modules", "Entry points", "Dense areas", "Architecture notes"}
    )


def _read_focus(page: _Sections, bundle: Bundle) -> None:
    focus = bundle["currentFocus"]
    focus["summary"] = " ".join(page.lines("")) or focus["summary"]
    focus["currentState"] = page.items("Current state")
    focus["knownRisks"] = page.items("Known risks")
    fields = page.fields("Validation")
    focus["validationSnapshot"] = {
        "status": fields["status"].lower(),
        "validatedAt": _optional(fields.get("checked", "never")),
        "summary": fields["summary"],
        "results": page.items("Results"),
        "suggestedNextActions": page.items("Suggested next actions"),
    }
    _strange_sections(
        page, {"Current state", "Known risks", "Validation", "Results", "Suggested next actions"}
    )


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


def _read_gotchas(page: _Sections, bundle: Bundle) -> None:
    bundle["gotchas"] = _read_records(
        page, {"symptom": "symptom", "cause": "cause", "correct path": "correctPath"}
    )


def _read_steps(page: _Sections, bundle: Bundle) -> None:
    bundle["nextSteps"] = _read_records(page, {"why": "why", "start": "start", "done when": "done"})


def _strange_sections(page: _Sections, known: set[str]) -> None:
    for name in page.names():
        if name not in known:
            page.strange += [f"## {name}", *page.lines(name)]


_READ: Mapping[str, Callable[[_Sections, Bundle], None]] = {
    "readme": _read_readme,
    "project-map": _read_map,
    "current-focus": _read_focus,
    "gotchas": _read_gotchas,
    "next-steps": _read_steps,
}


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
