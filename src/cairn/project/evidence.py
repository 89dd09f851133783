"""What a repository says about itself: files, manifests, readme, commits, markers. No model, no guesses.

`survey` reads a bounded amount whatever the size of the tree: names and sizes of all files, the text of a few
hundred small ones. Binary, huge and vendored files are never opened. `describe.py` makes the bundle of it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cairn.canonical import from_json
from cairn.project import git

MAX_FILES = 200_000
MAX_TEXT_BYTES = 256 * 1024
MAX_DOCS = 150
MAX_SCANNED_SOURCES = 2_000
MAX_MARKERS = 200

SKIPPED_DIRS = frozenset(
    {
        ".git", ".hg", ".svn", ".cairn", ".venv", "venv", "env", "node_modules", "bower_components", "vendor",
        "third_party", "dist", "build", "out", "target", "coverage", ".next", ".nuxt", ".turbo", ".cache", ".idea",
        ".vscode", ".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "__pycache__", ".gradle", ".eggs",
        "site-packages", ".terraform", "Pods", "DerivedData",
    }
)  # fmt: skip
LANGUAGES: Mapping[str, str] = {
    ".py": "Python", ".pyi": "Python", ".ts": "TypeScript", ".tsx": "TypeScript", ".mts": "TypeScript",
    ".js": "JavaScript", ".jsx": "JavaScript", ".mjs": "JavaScript", ".cjs": "JavaScript", ".go": "Go",
    ".rs": "Rust", ".java": "Java", ".kt": "Kotlin", ".scala": "Scala", ".rb": "Ruby", ".php": "PHP", ".cs": "C#",
    ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++", ".swift": "Swift", ".ex": "Elixir",
    ".exs": "Elixir", ".sh": "Shell", ".lua": "Lua", ".dart": "Dart", ".vue": "Vue", ".svelte": "Svelte",
    ".hs": "Haskell", ".clj": "Clojure", ".erl": "Erlang", ".zig": "Zig", ".sql": "SQL",
}  # fmt: skip
MANIFEST_NAMES = (
    "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "package.json", "Cargo.toml", "go.mod", "pom.xml",
    "build.gradle", "build.gradle.kts", "Gemfile", "composer.json", "mix.exs", "CMakeLists.txt", "Makefile", "makefile",
    "justfile", "Justfile", "Taskfile.yml", "pnpm-workspace.yaml", "turbo.json", "nx.json", "lerna.json",
)  # fmt: skip
_DOC = re.compile(r"\.(?:md|markdown|rst|txt)$", re.IGNORECASE)
_MARKER = re.compile(
    r"(?:#|//|/\*|\*|--|<!--|;|%)\s*(TODO|FIXME|HACK|XXX)\b[\s:()\[\]\w@.-]{0,24}?[:)\s]\s*(.{4,160})"
)
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
    if any(
        part in {"test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "fixtures"}
        for part in path.parts[:-1]
    ):
        return True
    stem = path.stem
    return stem.startswith("test_") or stem.endswith(("_test", ".test", ".spec", "_spec"))


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
        if len(files) >= MAX_FILES or _skipped(name):
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
        if PurePosixPath(name).name in MANIFEST_NAMES and name.count("/") <= 3
    }
    return Survey(
        tree=tree,
        files=files,
        submodules=tuple(submodules),
        manifests=manifests,
        documents=tuple(_documents(tree, files)),
        commits=tuple(git.recent_commits(tree)) if has_git else (),
        markers=tuple(_markers(tree, files, has_git=has_git)),
        has_git=has_git,
    )


def _walk(tree: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_DIRS)
        base = os.path.relpath(folder, tree)
        for name in sorted(names):
            yield (name if base == "." else f"{base}/{name}").replace(os.sep, "/")


def _skipped(name: str) -> bool:
    return name.startswith("docs/cairn/") or any(part in SKIPPED_DIRS for part in name.split("/")[:-1])


def _documents(tree: Path, files: Mapping[str, int]) -> Iterator[ProsePage]:
    def rank(name: str) -> tuple[int, int, str]:
        stem = PurePosixPath(name).stem.lower()
        first = (
            "readme",
            "agents",
            "claude",
            "contributing",
            "architecture",
            "development",
            "gotchas",
            "roadmap",
            "todo",
        )
        known = next((index for index, word in enumerate(first) if stem.startswith(word)), len(first))
        return name.count("/"), known, name

    names = [name for name in files if _DOC.search(name) and "requirements" not in name and not is_test(name)]
    taken = 0
    for name in sorted(names, key=rank):
        if taken >= MAX_DOCS:
            return
        text = read_text(tree / name)
        if text:
            taken += 1
            yield ProsePage(name, _without_own_block(text))


def _without_own_block(text: str) -> str:
    """Our own entry block is not evidence about the project."""
    return re.sub(
        r"<!-- cairn:entry version=.*? start -->.*?<!-- cairn:entry end -->\n?", "", text, flags=re.DOTALL
    )


def _markers(tree: Path, files: Mapping[str, int], *, has_git: bool) -> Iterator[Marker]:
    found = 0
    for path, line, text in _marker_lines(tree, files, has_git=has_git):
        match = _MARKER.search(text)
        # An open quote before it: the mark stands in a string, not in a comment.
        if match and not is_test(path) and text.count('"', 0, match.start()) % 2 == 0:
            note = re.sub(r"\s*(?:\*/|-->)\s*$", "", match.group(2)).strip()
            if len(note) >= 4:
                yield Marker(match.group(1), path, line, note)
                found += 1
        if found >= MAX_MARKERS:
            return


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
