"""What manifests tell: name, ecosystem, package manager, workspace members, entry points, test commands, CI."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from cairn.project.evidence import Survey, is_test

_LOCKS = (
    ("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile.lock", "pipenv"),
    ("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun"),
    ("package-lock.json", "npm"), ("Cargo.lock", "cargo"), ("go.sum", "go"), ("Gemfile.lock", "bundler"),
    ("composer.lock", "composer"), ("mix.lock", "mix"), ("requirements.lock", "pip"), ("requirements.txt", "pip"),
)  # fmt: skip
_OWN_MANAGER = {"Cargo.toml": "cargo", "go.mod": "go", "pom.xml": "maven", "build.gradle": "gradle",
                "build.gradle.kts": "gradle", "mix.exs": "mix"}  # fmt: skip
_ECOSYSTEMS = (
    ("pyproject.toml", "Python"), ("setup.py", "Python"), ("Cargo.toml", "Rust"), ("go.mod", "Go"),
    ("package.json", "JavaScript"), ("pom.xml", "Java"), ("build.gradle", "Java"), ("build.gradle.kts", "Kotlin"),
    ("Gemfile", "Ruby"), ("composer.json", "PHP"), ("mix.exs", "Elixir"), ("CMakeLists.txt", "C++"),
    ("requirements.txt", "Python"),
)  # fmt: skip
_USUAL_STARTS = (
    (r"(?:.*/)?__main__\.py", "runs with `python -m`"),
    (r"manage\.py", "the Django command line"),
    (r"(?:src/)?(?:.*/)?(?:wsgi|asgi)\.py", "the web server loads it"),
    (r"(?:src/)?(?:[^/]+/)?(?:app|main|server)\.py", "starts the program"),
    (r"(?:cmd/[^/]+/)?main\.go", "starts the program"),
    (r"(?:crates/[^/]+/)?src/main\.rs", "starts the program"),
    (r"(?:crates/[^/]+/)?src/lib\.rs", "the library's surface"),
    (r"(?:(?:apps|packages|services)/[^/]+/)?src/(?:server|main)\.[jt]sx?", "starts the program"),
    (r"(?:(?:apps|packages|services)/[^/]+/)?src/index\.[jt]sx?", "the package's surface"),
    (r"(?:src/)?index\.[jt]s", "the package's surface"),
    (r"Dockerfile", "builds the image"),
)  # fmt: skip


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
    scripts: dict[str, str] = field(default_factory=dict)


def read(survey: Survey) -> Facts:
    """Gather the facts; a broken manifest counts as an empty one."""
    files = survey.files
    languages = dict(survey.languages())
    present = [(name, ecosystem) for name, ecosystem in _ECOSYSTEMS if name in files]
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
            member: _named(survey, f"{member}/package.json")[0]
            or _named(survey, f"{member}/Cargo.toml")[0]
            or _named(survey, f"{member}/pyproject.toml")[0]
            or PurePosixPath(member).name
            for member in members
        },
        scripts=_python_scripts(survey),
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
    if manifest in _OWN_MANAGER:
        return _OWN_MANAGER[manifest]
    node = {"pnpm", "yarn", "bun", "npm"}
    for lock, name in _LOCKS:
        if lock in survey.files and (name in node) == (manifest == "package.json"):
            return name
    return None


def _members(survey: Survey) -> tuple[str, ...]:
    patterns: list[str] = []
    declared = survey.json("package.json").get("workspaces")
    if isinstance(declared, dict):
        declared = declared.get("packages")
    patterns += [item for item in declared if isinstance(item, str)] if isinstance(declared, list) else []
    if "pnpm-workspace.yaml" in survey.files:
        try:
            listed = yaml.safe_load(survey.text("pnpm-workspace.yaml"))
        except yaml.YAMLError:
            listed = None
        packages = listed.get("packages") if isinstance(listed, dict) else None
        patterns += [item for item in packages if isinstance(item, str)] if isinstance(packages, list) else []
    for table in (
        _table(survey.toml("Cargo.toml"), "workspace"),
        _table(survey.toml("pyproject.toml"), "tool", "uv", "workspace"),
    ):
        listed = table.get("members")
        patterns += [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    folders = {
        str(PurePosixPath(name).parent) for name in survey.manifests if "/" in name and _is_member_file(name)
    }
    chosen = [folder for folder in folders if any(_fits(folder, pattern) for pattern in patterns)]
    return tuple(
        sorted(
            folder
            for folder in chosen
            if not any(_fits(folder, p[1:]) for p in patterns if p.startswith("!"))
        )
    )


def _is_member_file(name: str) -> bool:
    return PurePosixPath(name).name in {"package.json", "Cargo.toml", "pyproject.toml"}


def _fits(folder: str, pattern: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    if pattern.endswith("/**"):
        return folder.startswith(pattern[:-2])
    return folder.count("/") == pattern.count("/") and fnmatch.fnmatchcase(folder, pattern)


def _workspace_manager(survey: Survey, members: tuple[str, ...]) -> str | None:
    for name, manager in (
        ("turbo.json", "turborepo"),
        ("nx.json", "nx"),
        ("lerna.json", "lerna"),
        ("pnpm-workspace.yaml", "pnpm"),
    ):
        if name in survey.files:
            return manager
    if not members:
        return None
    if "package.json" in survey.files:
        return f"{_manager(survey, 'package.json') or 'npm'} workspaces"
    return "cargo workspaces" if "Cargo.toml" in survey.files else "uv workspaces"


def _python_scripts(survey: Survey) -> dict[str, str]:
    data = survey.toml("pyproject.toml")
    table = _table(data, "project", "scripts") or _table(data, "tool", "poetry", "scripts")
    return {name: target for name, target in table.items() if isinstance(target, str)}


def entrypoints(survey: Survey, facts: Facts) -> list[dict[str, str]]:
    """Where the program starts: declared ones first, then files with the usual names."""
    found: dict[str, str] = {}
    for name, target in facts.scripts.items():
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
    for pattern, role in _USUAL_STARTS:
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
    from cairn.project.describe import first_paragraph, plain, sentences

    for manifest in ("package.json", "Cargo.toml", "pyproject.toml"):
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
    base = PurePosixPath(folder).name
    for name in (
        "doc.go",
        f"{base}.go",
        "main.go",
        "mod.rs",
        "lib.rs",
        "src/lib.rs",
        "src/index.ts",
        "index.ts",
        "index.js",
    ):
        text = survey.text(f"{folder}/{name}")
        told = _comment(text)
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


def validation_commands(survey: Survey, facts: Facts) -> list[dict[str, Any]]:
    """At most two: how to run the tests, and one further check."""
    found: list[tuple[str, list[str], str]] = []
    targets = _targets(survey)
    for wanted, purpose in (
        ("test", "runs the tests"),
        ("check", "runs every check"),
        ("lint", "checks style and types"),
    ):
        if wanted in targets:
            found.append((wanted, [targets[wanted], wanted], purpose))
    scripts = survey.json("package.json").get("scripts")
    runner = facts.package_manager if facts.package_manager in {"pnpm", "yarn", "bun", "npm"} else "npm"
    for wanted, purpose in (
        ("test", "runs the tests"),
        ("lint", "checks style"),
        ("typecheck", "checks types"),
        ("build", "builds"),
    ):
        if (
            isinstance(scripts, dict)
            and wanted in scripts
            and not any(label == wanted for label, *_ in found)
        ):
            found.append((wanted, [runner, "run", wanted], purpose))
    if not any(label == "test" for label, *_ in found):
        found = [*_usual_tests(survey, facts), *found]
    found.sort(key=lambda item: item[0] != "test")
    return [{"label": label, "command": command, "purpose": purpose} for label, command, purpose in found[:2]]


def _targets(survey: Survey) -> dict[str, str]:
    out: dict[str, str] = {}
    for name, program in (
        ("Makefile", "make"),
        ("makefile", "make"),
        ("justfile", "just"),
        ("Justfile", "just"),
    ):
        for target in re.findall(
            r"^([A-Za-z][\w-]*)\s*(?:[\w=\"' ]*)?:(?![=])", survey.manifests.get(name, ""), re.MULTILINE
        ):
            out.setdefault(target, program)
    return out


def _usual_tests(survey: Survey, facts: Facts) -> Iterator[tuple[str, list[str], str]]:
    sources = [name for name in survey.sources() if is_test(name)]
    usual = {
        "Rust": ["cargo", "test"],
        "Go": ["go", "test", "./..."],
        "Java": ["mvn", "test"],
        "Elixir": ["mix", "test"],
        "Ruby": ["bundle", "exec", "rake", "test"],
    }
    if facts.ecosystem == "Python" and sources:
        prefix = {"uv": ["uv", "run"], "poetry": ["poetry", "run"], "pdm": ["pdm", "run"]}.get(
            facts.package_manager or "", []
        )
        yield (
            "test",
            [*prefix, "python" if not prefix else "pytest", *(["-m", "pytest"] if not prefix else [])],
            "runs the tests",
        )
    elif facts.manifest in {"build.gradle", "build.gradle.kts"}:
        yield "test", ["./gradlew" if "gradlew" in survey.files else "gradle", "test"], "runs the tests"
    elif facts.ecosystem in usual and facts.manifest:
        yield "test", usual[facts.ecosystem], "runs the tests"


def pipelines(survey: Survey) -> list[str]:
    """A line for each CI file: its jobs, and what starts it."""
    notes = []
    names = [
        n
        for n in survey.files
        if re.fullmatch(
            r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|azure-pipelines\.yml", n
        )
    ]
    for name in names[:4]:
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
