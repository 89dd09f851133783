"""What a repository says about itself: files, manifests, readme, commits, markers. No model, no guesses.

`survey` reads a bounded amount whatever the size of the tree: names and sizes of all files, the text of a few
hundred small ones. Binary, huge and vendored files are never opened. `facts_of` says what its manifests agree on: name,
ecosystem, package manager, workspace members. What is known of repositories in general stands in `known.toml`.
`describe.py` makes the bundle of it all.
"""

from __future__ import annotations

import fnmatch
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from cairn.canonical import from_json
from cairn.project import git
from cairn.shipped import tables_of

MAX_FILES = 200_000
MAX_TEXT_BYTES = 256 * 1024
MAX_DOCS = 150
MAX_SCANNED_SOURCES = 2_000
MAX_MARKERS = 200

KNOWN: Mapping[str, Any] = tables_of(files(__package__) / "known.toml")
LANGUAGES: dict[str, str] = {ending: name for name, *endings in KNOWN["languages"] for ending in endings}
_SKIPPED = frozenset(KNOWN["skipped_folders"])
_TESTS = frozenset(KNOWN["test_folders"])
_MEMBER_FILES = ("package.json", "Cargo.toml", "pyproject.toml")
_DOC = re.compile(r"\.(?:md|markdown|rst|txt)$", re.IGNORECASE)
_MARKER = re.compile(
    r"(?:#|//|/\*|\*|--|<!--|;|%)\s*(TODO|FIXME|HACK|XXX)\b[\s:()\[\]\w@.-]{0,24}?[:)\s]\s*(.{4,160})"
)
_OWN_BLOCK = re.compile(r"<!-- cairn:entry version=.*? start -->.*?<!-- cairn:entry end -->\n?", re.DOTALL)
_GREP = r"(#|//|/[*]|[*]|--|<!--|;|%)[[:space:]]*(TODO|FIXME|HACK|XXX)([^A-Za-z0-9_]|$)"


@dataclass(frozen=True, slots=True)
class Marker:
    """A TODO or FIXME in the source."""

    word: str
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ProsePage:
    """A page of prose, read whole."""

    path: str
    text: str

    def sections(self) -> Iterator[tuple[str, str]]:
        """(heading, text below it) for every heading; fenced code is not mistaken for one."""
        heading, fenced = "", False
        lines: list[str] = []
        for line in self.text.splitlines():
            if line.lstrip().startswith(("```", "~~~")):
                fenced = not fenced
            found = None if fenced else re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
            if found:
                yield heading, "\n".join(lines)
                heading, lines = found.group(1), []
            else:
                lines.append(line)
        yield heading, "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything read from a work tree."""

    tree: Path
    files: Mapping[str, int]
    submodules: tuple[str, ...] = ()
    manifests: Mapping[str, str] = field(default_factory=dict)
    documents: tuple[ProsePage, ...] = ()
    commits: tuple[git.Commit, ...] = ()
    markers: tuple[Marker, ...] = ()
    has_git: bool = False

    def text(self, path: str) -> str:
        """The text of a small file, or "" where it is missing, large or binary."""
        return read_text(self.tree / path) if path in self.files else ""

    def toml(self, path: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self.manifests.get(path) or self.text(path))
        except (tomllib.TOMLDecodeError, RecursionError):
            return {}

    def json(self, path: str) -> dict[str, Any]:
        try:
            value = from_json(self.manifests.get(path) or self.text(path) or "{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def sources(self) -> dict[str, int]:
        """Source files with their sizes."""
        return {name: size for name, size in self.files.items() if language_of(name)}

    def languages(self) -> list[tuple[str, int]]:
        """(language, files), most first."""
        counts = Counter(language_of(name) for name in self.files)
        del counts[""]
        return counts.most_common()

    def readme(self) -> ProsePage | None:
        """The readme at the top, where there is one."""
        return next(
            (doc for doc in self.documents if "/" not in doc.path and doc.path.lower().startswith("readme")),
            None,
        )


def language_of(name: str) -> str:
    return LANGUAGES.get(PurePosixPath(name).suffix.lower(), "")


def is_test(name: str) -> bool:
    """Whether a file is there to check the others."""
    path = PurePosixPath(name.lower())
    is_named = path.stem.startswith("test_") or path.stem.endswith(("_test", ".test", ".spec", "_spec"))
    return is_named or not _TESTS.isdisjoint(path.parts[:-1])


def read_text(path: Path) -> str:
    """A small text file, or "" for anything else: missing, large, binary, a link out, a pipe."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_TEXT_BYTES:
            return ""
        data = path.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in data[:4096] else data.decode("utf-8", "replace")


def survey(tree: Path) -> Survey:
    """Read a work tree. Works on a repository without commits and on a plain folder."""
    listed = git.tracked_files(tree)
    has_git = listed is not None
    files: dict[str, int] = {}
    submodules: list[str] = []
    for name in listed if listed is not None else _walk(tree):
        is_ours = name.startswith("docs/cairn/") or not _SKIPPED.isdisjoint(name.split("/")[:-1])
        if len(files) >= MAX_FILES or is_ours:
            continue
        try:
            found = os.lstat(tree / name)
        except (OSError, ValueError):
            continue
        if os.path.isdir(tree / name) and not os.path.islink(tree / name):
            submodules.append(name.rstrip("/"))
        else:
            files[name] = found.st_size
    manifests = {
        name: read_text(tree / name)
        for name in files
        if PurePosixPath(name).name in KNOWN["manifests"] and name.count("/") <= 3
    }
    return Survey(
        tree=tree,
        files=files,
        submodules=tuple(submodules),
        manifests=manifests,
        documents=tuple(_documents(tree, files)),
        commits=tuple(git.recent_commits(tree)) if has_git else (),
        markers=tuple(islice(_markers(tree, files, has_git=has_git), MAX_MARKERS)),
        has_git=has_git,
    )


def _walk(tree: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        base = os.path.relpath(folder, tree)
        for name in sorted(names):
            yield (name if base == "." else f"{base}/{name}").replace(os.sep, "/")


def _documents(tree: Path, files: Mapping[str, int]) -> Iterator[ProsePage]:
    def rank(name: str) -> tuple[int, int, str]:
        stem = PurePosixPath(name).stem.lower()
        first = KNOWN["first_pages"]
        known = next((index for index, word in enumerate(first) if stem.startswith(word)), len(first))
        return name.count("/"), known, name

    names = [name for name in files if _DOC.search(name) and "requirements" not in name and not is_test(name)]
    read = ((name, read_text(tree / name)) for name in sorted(names, key=rank))
    # Our own entry block is not evidence about the project.
    found = (ProsePage(name, _OWN_BLOCK.sub("", text)) for name, text in read if text)
    return islice(found, MAX_DOCS)


def _markers(tree: Path, files: Mapping[str, int], *, has_git: bool) -> Iterator[Marker]:
    for path, line, text in _marker_lines(tree, files, has_git=has_git):
        match = _MARKER.search(text)
        # An open quote before it: the mark stands in a string, not in a comment.
        if match and not is_test(path) and text.count('"', 0, match.start()) % 2 == 0:
            note = re.sub(r"\s*(?:\*/|-->)\s*$", "", match.group(2)).strip()
            if len(note) >= 4:
                yield Marker(match.group(1), path, line, note)


def _marker_lines(tree: Path, files: Mapping[str, int], *, has_git: bool) -> Iterator[tuple[str, int, str]]:
    if has_git:
        # git reads a file whole before it judges it: only source files, and none of the large ones.
        large = [
            f":(exclude,literal){name}"
            for name, size in files.items()
            if size > MAX_TEXT_BYTES and language_of(name)
        ]
        wanted = [f":(glob)**/*{ending}" for ending in LANGUAGES]
        out = git.git(
            tree, "grep", "-nIE", "--untracked", "--no-textconv", "-e", _GREP, "--", *wanted, *large[:500]
        )
        for row in (out or "").splitlines():
            path, _, rest = row.partition(":")
            line, _, text = rest.partition(":")
            if path in files and language_of(path) and line.isdigit():
                yield path, int(line), text[:400]
        return
    for name in [name for name in files if language_of(name)][:MAX_SCANNED_SOURCES]:
        for number, text in enumerate(read_text(tree / name).splitlines(), start=1):
            if "TODO" in text or "FIXME" in text or "HACK" in text or "XXX" in text:
                yield name, number, text[:400]


_BADGE = re.compile(r"^\s*(?:\[?!\[|<(?:p|div|img|a|h\d|br|picture|center|!--)|\[!\w)", re.IGNORECASE)


def plain(text: str) -> str:
    """Markdown prose as one line of plain words."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\[\]]*)\]\([^()]*\)", r"\1", text)
    text = re.sub(r"(\*\*|__)(.+?)\1", r"\2", text)
    text = re.sub(r"</?\w[^>]*>", "", text)
    return " ".join(text.split())


def first_paragraph(text: str) -> str:
    """The first paragraph of prose below the title; badges, pictures, tables and code are passed over."""
    body = re.sub(r"^---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL)
    body = re.sub(r"(```|~~~).*?(\1|\Z)", "\n", body, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", body):
        lines = [
            line for line in block.strip().splitlines() if not line.startswith("#") and not _BADGE.match(line)
        ]
        joined = plain("\n".join(lines)).lstrip("> ")
        if len(joined) >= 20 and not lines[0].lstrip().startswith(("|", "- ", "* ", "1.", "===", "---")):
            return joined
    return ""


def sentences(text: str, limit: int, chars: int) -> str:
    """The first `limit` sentences of `text`, whole ones, within `chars`."""
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z0-9`\"“(])", text)
    out = parts[0]
    for part in parts[1:limit]:
        if len(out) + len(part) + 1 > chars:
            break
        out = f"{out} {part}"
    return out if len(out) <= chars else out[: chars - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the top-level manifests agree on."""

    name: str
    description: str
    ecosystem: str
    manifest: str | None
    package_manager: str | None
    workspace_manager: str | None
    members: tuple[str, ...] = ()
    member_names: dict[str, str] = field(default_factory=dict)


def facts_of(survey: Survey) -> Facts:
    """Gather the facts; a broken manifest counts as an empty one."""
    files = survey.files
    languages = dict(survey.languages())
    present = [(name, ecosystem) for name, ecosystem in KNOWN["ecosystems"] if name in files]
    best = max(present, key=lambda item: languages.get(item[1], 0), default=None)
    ecosystem = best[1] if best else next(iter(languages), "none")
    if (
        best
        and best[0] == "package.json"
        and languages.get("TypeScript", 0) >= languages.get("JavaScript", 0)
    ):
        ecosystem = "TypeScript" if languages.get("TypeScript") else "JavaScript"
        rival = next(
            (
                item
                for item in present
                if item[0] != "package.json" and languages.get(item[1], 0) > languages.get(ecosystem, 0)
            ),
            None,
        )
        best, ecosystem = (rival, rival[1]) if rival else (best, ecosystem)
    manifest = best[0] if best else None
    name, description = _named(survey, manifest)
    members = _members(survey)
    return Facts(
        name=name or survey.tree.resolve().name or "project",
        description=description,
        ecosystem=ecosystem,
        manifest=manifest,
        package_manager=_manager(survey, manifest),
        workspace_manager=_workspace_manager(survey, members),
        members=members,
        member_names={
            member: next(
                filter(None, (_named(survey, f"{member}/{file}")[0] for file in _MEMBER_FILES)),
                PurePosixPath(member).name,
            )
            for member in members
        },
    )


def _table(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _named(survey: Survey, manifest: str | None) -> tuple[str, str]:
    """(name, description) from one manifest."""
    if manifest is None or manifest not in survey.files:
        return "", ""
    kind = PurePosixPath(manifest).name
    table: dict[str, Any] = {}
    if kind == "pyproject.toml":
        data = survey.toml(manifest)
        table = _table(data, "project") or _table(data, "tool", "poetry")
    elif kind in {"package.json", "composer.json"}:
        table = survey.json(manifest)
    elif kind == "Cargo.toml":
        table = _table(survey.toml(manifest), "package")
    elif kind == "go.mod":
        found = re.search(r"^module\s+(\S+)", survey.text(manifest), re.MULTILINE)
        table = {"name": found.group(1).rsplit("/", 1)[-1] if found else ""}
    elif kind == "pom.xml":
        text = re.sub(r"<parent>.*?</parent>", "", survey.text(manifest), flags=re.DOTALL)
        for key, tag in (("name", "artifactId"), ("description", "description")):
            found = re.search(rf"<{tag}>\s*(.*?)\s*</{tag}>", text, re.DOTALL)
            table[key] = found.group(1) if found else ""
    name, description = table.get("name"), table.get("description")
    return (name if isinstance(name, str) else ""), (description if isinstance(description, str) else "")


def _manager(survey: Survey, manifest: str | None) -> str | None:
    declared = survey.json("package.json").get("packageManager") if manifest == "package.json" else None
    if isinstance(declared, str) and declared:
        return declared.split("@")[0]
    if own := dict(KNOWN["managers_by_manifest"]).get(manifest):
        return str(own)
    node = {"pnpm", "yarn", "bun", "npm"}
    for lock, name in KNOWN["managers_by_lock"]:
        if lock in survey.files and (name in node) == (manifest == "package.json"):
            return str(name)
    return None


def _members(survey: Survey) -> tuple[str, ...]:
    declared = survey.json("package.json").get("workspaces")
    lists = [declared.get("packages") if isinstance(declared, dict) else declared]
    if "pnpm-workspace.yaml" in survey.files:
        try:
            listed = yaml.safe_load(survey.text("pnpm-workspace.yaml"))
        except yaml.YAMLError:
            listed = None
        lists.append(listed.get("packages") if isinstance(listed, dict) else None)
    lists.append(_table(survey.toml("Cargo.toml"), "workspace").get("members"))
    lists.append(_table(survey.toml("pyproject.toml"), "tool", "uv", "workspace").get("members"))
    patterns = [item for one in lists if isinstance(one, list) for item in one if isinstance(item, str)]
    named = [PurePosixPath(name) for name in survey.manifests if "/" in name]
    folders = {str(name.parent) for name in named if name.name in _MEMBER_FILES}
    chosen = [folder for folder in folders if any(_fits(folder, pattern) for pattern in patterns)]
    return tuple(
        sorted(
            folder
            for folder in chosen
            if not any(_fits(folder, p[1:]) for p in patterns if p.startswith("!"))
        )
    )


def _fits(folder: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    if pattern.endswith("/**"):
        return folder.startswith(pattern[:-2])
    return folder.count("/") == pattern.count("/") and fnmatch.fnmatchcase(folder, pattern)


def _workspace_manager(survey: Survey, members: tuple[str, ...]) -> str | None:
    for name, manager in KNOWN["workspace_managers"]:
        if name in survey.files:
            return str(manager)
    if not members:
        return None
    if "package.json" in survey.files:
        return f"{_manager(survey, 'package.json') or 'npm'} workspaces"
    return "cargo workspaces" if "Cargo.toml" in survey.files else "uv workspaces"


def entrypoints_of(survey: Survey, facts: Facts) -> list[dict[str, str]]:
    """Where the program starts: declared ones first, then files with the usual names."""
    found: dict[str, str] = {}
    data = survey.toml("pyproject.toml")
    scripts = _table(data, "project", "scripts") or _table(data, "tool", "poetry", "scripts")
    for name, target in scripts.items():
        if not isinstance(target, str):
            continue
        module = target.partition(":")[0].replace(".", "/")
        for path in (
            f"src/{module}.py",
            f"{module}.py",
            f"src/{module}/__init__.py",
            f"{module}/__init__.py",
        ):
            if path in survey.files:
                found[path] = f"the `{name}` command ({target})"
    for manifest in ["package.json", *(f"{member}/package.json" for member in facts.members)]:
        package = survey.json(manifest)
        base = str(PurePosixPath(manifest).parent)
        declared = package.get("bin")
        if isinstance(declared, str):
            declared = {str(package.get("name", "bin")): declared}
        for name, target in declared.items() if isinstance(declared, dict) else ():
            source = _source_of(survey, base, target)
            if source:
                found.setdefault(source, f"the `{name}` command")
    for pattern, role in KNOWN["usual_starts"]:
        for name in sorted(survey.files, key=lambda name: (name.count("/"), name)):
            if re.fullmatch(pattern, name) and not is_test(name):
                found.setdefault(name, role)
    return [{"path": path, "role": role} for path, role in list(found.items())[:8]]


def _source_of(survey: Survey, base: str, target: object) -> str | None:
    if not isinstance(target, str):
        return None
    path = str(PurePosixPath(base) / target.removeprefix("./"))
    stem = re.sub(r"(^|/)(?:dist|build|lib|out)/", r"\1src/", re.sub(r"\.[cm]?js$", "", path))
    return next(
        (name for name in (path, f"{stem}.ts", f"{stem}.tsx", f"{stem}.js") if name in survey.files), None
    )


def described(survey: Survey, folder: str) -> str:
    """What a folder says it is for: its manifest, its readme, the docstring or comment of its main file."""
    for manifest in _MEMBER_FILES:
        told = _named(survey, f"{folder}/{manifest}")[1]
        if told:
            return sentences(plain(told), 1, 200)
    for name in ("README.md", "readme.md", "README.rst"):
        told = first_paragraph(survey.text(f"{folder}/{name}"))
        if told:
            return sentences(told, 1, 200)
    told = docstring(survey, f"{folder}/__init__.py")
    if told:
        return sentences(told, 1, 200)
    for name in KNOWN["main_files"]:
        told = _comment(survey.text(f"{folder}/{name.format(PurePosixPath(folder).name)}"))
        if told:
            return sentences(plain(told), 1, 200)
    return ""


_DOCSTRING = re.compile(r'\A(?:#[^\n]*\n|\s)*[rR]?("""|\'\'\')(.+?)\1', re.DOTALL)


def docstring(survey: Survey, path: str) -> str:
    """What the opening docstring or comment of a source file says, as one line."""
    text = survey.text(path)
    found = _DOCSTRING.match(text)
    if found:
        return " ".join(re.split(r"\n\s*\n", found.group(2).strip())[0].split())
    return "" if path.endswith(".py") else " ".join(_comment(text).split())


def _comment(text: str) -> str:
    comment = re.match(r"\s*(?:/\*\*?(.*?)\*/|((?:\s*//[/!]?[^\n]*\n)+))", text, re.DOTALL)
    if not comment:
        return ""
    words = re.sub(r"^\s*(?://[/!]?|\*)\s?", "", comment.group(1) or comment.group(2), flags=re.MULTILINE)
    usable = len(words.split()) >= 3 and not re.search(r"eslint|opyright|@ts-|use strict|go:build", words)
    return words.strip() if usable else ""


_CHECKS = {"test": "runs the tests", "check": "runs every check", "lint": "checks style and types"}
_SCRIPTS = {"test": "runs the tests", "lint": "checks style", "typecheck": "checks types", "build": "builds"}


def validation_commands(survey: Survey, facts: Facts) -> list[dict[str, Any]]:
    """At most two: how to run the tests, and one further check."""
    found: list[tuple[str, list[str], str]] = []
    targets = _targets(survey)
    for wanted, purpose in _CHECKS.items():
        if wanted in targets:
            found.append((wanted, [targets[wanted], wanted], purpose))
    scripts = survey.json("package.json").get("scripts")
    runner = facts.package_manager if facts.package_manager in {"pnpm", "yarn", "bun", "npm"} else "npm"
    known = {label for label, *_ in found}
    for wanted, purpose in _SCRIPTS.items():
        if isinstance(scripts, dict) and wanted in scripts and wanted not in known:
            found.append((wanted, [runner, "run", wanted], purpose))
    if not any(label == "test" for label, *_ in found) and (usual := _usual_test(survey, facts)):
        found.insert(0, ("test", usual, "runs the tests"))
    found.sort(key=lambda item: item[0] != "test")
    return [{"label": label, "command": command, "purpose": purpose} for label, command, purpose in found[:2]]


def _targets(survey: Survey) -> dict[str, str]:
    out: dict[str, str] = {}
    for name in ("Makefile", "makefile", "justfile", "Justfile"):
        text = survey.manifests.get(name, "")
        for target in re.findall(r"^([A-Za-z][\w-]*)\s*(?:[\w=\"' ]*)?:(?![=])", text, re.MULTILINE):
            out.setdefault(target, name.lower().removesuffix("file"))
    return out


def _usual_test(survey: Survey, facts: Facts) -> list[str]:
    if facts.ecosystem == "Python" and any(is_test(name) for name in survey.sources()):
        manager = facts.package_manager
        return (
            [manager, "run", "pytest"] if manager in {"uv", "poetry", "pdm"} else ["python", "-m", "pytest"]
        )
    if facts.manifest in {"build.gradle", "build.gradle.kts"}:
        return ["./gradlew" if "gradlew" in survey.files else "gradle", "test"]
    usual = {name: command for name, *command in KNOWN["usual_tests"]}
    return usual.get(facts.ecosystem, []) if facts.manifest else []


_PIPELINE = re.compile(
    r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|azure-pipelines\.yml"
)


def pipelines(survey: Survey) -> list[str]:
    """A line for each CI file: its jobs, and what starts it."""
    notes = []
    for name in list(filter(_PIPELINE.fullmatch, survey.files))[:4]:
        try:
            data = yaml.safe_load(survey.text(name))
        except (yaml.YAMLError, RecursionError):
            continue
        jobs = data.get("jobs") if isinstance(data, dict) else None
        if isinstance(jobs, dict) and jobs:
            # YAML 1.1 reads the key `on` as true.
            starts = data.get("on", data.get(True))
            when = f", on {', '.join(map(str, starts))}" if isinstance(starts, dict | list) and starts else ""
            notes.append(f"CI: {name} runs {', '.join(map(str, jobs))}{when}.")
        else:
            notes.append(f"CI is set up in {name}.")
    if "Dockerfile" in survey.files:
        notes.append("A Dockerfile builds the image.")
    return notes
