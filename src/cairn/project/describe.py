"""From a survey to a bundle: what the project is, where things are, what is going on, what to beware of.

Every line is taken from something in the tree (a manifest, a heading, a docstring, a commit) and says where
from when that helps. What is not known is left out rather than filled in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from cairn.project.bundle import Bundle, checked
from cairn.project.survey import (
    KNOWN,
    Facts,
    ProsePage,
    Survey,
    described,
    docstring,
    entrypoints_of,
    facts_of,
    first_paragraph,
    is_test,
    language_of,
    pipelines,
    plain,
    sentences,
    validation_commands,
)
from cairn.wording import counted

MAX_MODULES = 14
_TRAPS = re.compile(
    r"\b(gotchas?|pitfalls?|known (?:issues|problems|limitations)|caveats?|beware|warnings?|common (?:mistakes|errors)"
    r"|troubleshooting|limitations|traps?)\b",
    re.IGNORECASE,
)
_PLANS = re.compile(
    r"\b(roadmap|to-?dos?|next steps?|planned|open (?:tasks|questions)|what'?s next|not done)\b",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"\b(because|caused by|root cause|due to|turned out|since the)\b", re.IGNORECASE)
_REVERT = re.compile(r'^Revert "(.*)"$')
_FORBIDDEN = re.compile(
    r"\b(?:never|do not|don't|must not|must never|avoid|not allowed|forbidden)\b", re.IGNORECASE
)
ENTRY_FILES = ("AGENTS.md", "CLAUDE.md", "README.md")


def describe(survey: Survey) -> Bundle:
    """The bundle of a repository, from evidence alone."""
    facts = facts_of(survey)
    modules = _modules(survey, facts)
    entrypoints = entrypoints_of(survey, facts)
    dense = _dense(survey)
    commands = validation_commands(survey, facts)
    gotchas = _gotchas(survey)
    steps = _next_steps(survey)
    bundle: Bundle = {
        "project": {
            "name": facts.name,
            "summary": _summary(survey, facts),
            "primaryEcosystem": facts.ecosystem,
            "packageManager": facts.package_manager,
            "workspaceManager": facts.workspace_manager,
            "recommendedEntryFile": entry_file(survey.tree),
            "keyPaths": _key_paths(survey, facts, entrypoints, modules),
        },
        "projectMap": {
            "modules": modules,
            "entrypoints": entrypoints,
            "denseSourceAreas": dense,
            "architectureNotes": _architecture(survey, facts),
            "firstFilesToRead": _first_files(survey, facts, entrypoints),
        },
        "currentFocus": {
            "summary": _focus(survey),
            "currentState": _state(survey),
            "knownRisks": _risks(survey, facts),
            "validationSnapshot": {
                "status": "unknown",
                "validatedAt": None,
                "summary": "No check result has been recorded here yet.",
                "results": [],
                "suggestedNextActions": [f"Run `{' '.join(item['command'])}`." for item in commands],
            },
        },
        "gotchas": gotchas,
        "nextSteps": steps,
        "validationCommands": commands,
    }
    return checked(bundle)


def entry_file(tree: Path) -> str:
    """The file contributors meet first: AGENTS.md, CLAUDE.md, README.md, else an AGENTS.md to be made.

    A link to another of them is passed over: the block is written once, into the file behind it.
    """
    real = (name for name in ENTRY_FILES if (tree / name).is_file() and not (tree / name).is_symlink())
    return next(real, "AGENTS.md")


def _summary(survey: Survey, facts: Facts) -> str:
    readme = survey.readme()
    prose = first_paragraph(readme.text) if readme else ""
    told = plain(facts.description)
    if prose and told and told.lower()[:40] not in prose.lower() and prose.lower()[:40] not in told.lower():
        prose = f"{told.rstrip('.')}. {prose}"
    text = sentences(prose or told, 4, 500)
    if text:
        return text
    languages = ", ".join(f"{name} ({count} files)" for name, count in survey.languages()[:3])
    return (
        f"{facts.name}: {languages}."
        if languages
        else f"{facts.name}: {len(survey.files)} files, no description yet."
    )


def _modules(survey: Survey, facts: Facts) -> list[dict[str, str]]:
    sources = {name: size for name, size in survey.sources().items() if not is_test(name)}
    roots = [one for one in facts.members if any(name.startswith(f"{one}/") for name in survey.files)]
    roots = roots or _module_roots(sources)
    out = []
    for root in sorted(roots, key=lambda root: (-_weight(sources, root), root))[:MAX_MODULES]:
        name = facts.member_names.get(root) or PurePosixPath(root).name
        out.append({"name": name, "path": root, "responsibility": _responsibility(survey, root, sources)})
    return sorted(out, key=lambda item: item["path"])


def _module_roots(sources: dict[str, int]) -> list[str]:
    """Folders that hold parts of the program: descend while one folder holds nearly everything."""
    base = ""
    while True:
        inside = [name for name in sources if name.startswith(base)]
        children = Counter(name[len(base) :].partition("/")[0] for name in inside if "/" in name[len(base) :])
        top = children.most_common(1)
        if not top or top[0][1] < max(2, 0.8 * len(inside)):
            break
        base = f"{base}{top[0][0]}/"
    roots = [f"{base}{child}" for child in children]
    if not base:
        return roots
    if not roots:
        return [base.rstrip("/")]
    others = {name.partition("/")[0] for name in sources if "/" in name and not name.startswith(base)}
    return roots + sorted(other for other in others if not base.startswith(f"{other}/"))


def _weight(sources: dict[str, int], root: str) -> int:
    return sum(size for name, size in sources.items() if name.startswith(f"{root}/"))


def _responsibility(survey: Survey, root: str, sources: dict[str, int]) -> str:
    told = described(survey, root)
    if told:
        return told
    inside = sorted(
        ((size, name) for name, size in sources.items() if name.startswith(f"{root}/")), reverse=True
    )
    if not inside:
        return f"{sum(name.startswith(f'{root}/') for name in survey.files)} files, no source code."
    told_by = [(PurePosixPath(name).name, docstring(survey, name)) for _, name in inside[:6]]
    named = [f"{name}: {sentences(told, 1, 110).rstrip('.')}" for name, told in told_by if told][:3]
    if named:
        return "; ".join(named) + "."
    usual: str = dict(KNOWN["usual_folders"]).get(PurePosixPath(root).name.lower(), "")
    if usual:
        return usual
    language = Counter(language_of(name) for _, name in inside).most_common(1)[0][0]
    largest = ", ".join(PurePosixPath(name).name for _, name in inside[:3])
    return f"{counted(len(inside), f'{language} file')}; largest: {largest}."


def _dense(survey: Survey) -> list[dict[str, str]]:
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, size in survey.sources().items():
        folder = str(PurePosixPath(name).parent)
        if folder != "." and not is_test(name):
            folders[folder] += size
            counts[folder] += 1
    touched: Counter[str] = Counter()
    for commit in survey.commits:
        touched.update({str(PurePosixPath(name).parent) for name in commit.files})
    out: list[dict[str, str]] = []
    for folder, size in folders.most_common(5):
        if size < 2000 and out:
            break
        note = f"{counted(counts[folder], 'source file')}, {max(1, size // 1024)} KB"
        if touched[folder]:
            note += f"; touched by {touched[folder]} of the last {len(survey.commits)} commits"
        out.append({"path": folder, "note": note + "."})
    return out


def _architecture(survey: Survey, facts: Facts) -> list[str]:
    notes = []
    for document in survey.documents:
        stem = PurePosixPath(document.path).stem.lower()
        if stem in {"architecture", "design", "overview"} and document.path.count("/") <= 2:
            told = first_paragraph(document.text)
            if told:
                notes.append(f"{sentences(told, 2, 300)} ({document.path})")
    if facts.members:
        manager = facts.workspace_manager or "workspaces"
        notes.append(
            f"A workspace of {len(facts.members)} packages ({manager}): {', '.join(facts.members[:8])}."
        )
    tests = [name for name in survey.sources() if is_test(name)]
    if tests:
        places = Counter(_test_folder(name) for name in tests)
        named = ", ".join(f"{folder} ({count})" for folder, count in places.most_common(3))
        notes.append(f"Tests live in {named}.")
    notes += pipelines(survey)
    if survey.submodules:
        notes.append(f"Git submodules (not described here): {', '.join(survey.submodules[:5])}.")
    return list(dict.fromkeys(notes))[:10]


def _test_folder(name: str) -> str:
    parts = name.split("/")
    for index, part in enumerate(parts[:-1]):
        if part.lower() in {"test", "tests", "__tests__", "spec", "specs", "e2e"}:
            return "/".join(parts[: index + 1])
    return "/".join(parts[:-1]) or "the top folder"


def _first_files(survey: Survey, facts: Facts, entrypoints: Sequence[dict[str, str]]) -> list[str]:
    wanted = ["README.md", "README.rst", "AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md"]
    wanted += [
        doc.path
        for doc in survey.documents
        if PurePosixPath(doc.path).stem.lower() in {"architecture", "design"}
    ][:2]
    wanted += [facts.manifest] if facts.manifest else []
    wanted += [item["path"] for item in entrypoints if language_of(item["path"])][:2]
    return list(dict.fromkeys(name for name in wanted if name in survey.files))[:8]


def _key_paths(
    survey: Survey,
    facts: Facts,
    entrypoints: Sequence[dict[str, str]],
    modules: Sequence[dict[str, str]],
) -> list[str]:
    top = {name.partition("/")[0] for name in survey.files if "/" in name}
    wanted = [facts.manifest] if facts.manifest else []
    wanted += [
        name
        for name in ("src", "lib", "app", "apps", "packages", "cmd", "internal", "pkg", "crates")
        if name in top
    ]
    wanted += [item["path"] for item in modules[:2]] if len(wanted) < 2 else []
    wanted += [item["path"] for item in entrypoints[:2]]
    wanted += [name for name in ("tests", "test", "spec", "docs", "scripts", "migrations") if name in top]
    wanted += [name for name in survey.files if name.startswith(".github/workflows/")][:2]
    wanted += [
        name for name in (".gitlab-ci.yml", "Dockerfile", "docker-compose.yml") if name in survey.files
    ]
    return list(dict.fromkeys(wanted))[:10]


def _areas(survey: Survey) -> list[tuple[str, int]]:
    touched: Counter[str] = Counter()
    for commit in survey.commits[:20]:
        folders = {"/".join(name.split("/")[:-1][:3]) for name in commit.files if "/" in name}
        touched.update(
            folder for folder in folders if folder and not folder.startswith((".cairn", "docs/cairn"))
        )
    return touched.most_common(3)


def _focus(survey: Survey) -> str:
    if not survey.commits:
        return (
            "No commits yet: the work so far is in the working tree."
            if survey.has_git
            else "A folder without git history."
        )
    latest = survey.commits[0]
    areas = [f"`{folder}` ({count})" for folder, count in _areas(survey) if count > 1]
    count = min(20, len(survey.commits))
    where = f"The last {count} commits went mostly to {', '.join(areas)}. " if areas else ""
    return f"{where}Latest, {latest.at[:10]}: {latest.subject.rstrip('.')}."


def _state(survey: Survey) -> list[str]:
    if not survey.commits:
        return [f"{len(survey.files)} files, {len(survey.sources())} of them source code."]
    lines = [f"{commit.at[:10]}: {commit.subject}" for commit in survey.commits[:6] if commit.subject]
    return list(dict.fromkeys(lines))


def _risks(survey: Survey, facts: Facts) -> list[str]:
    risks = []
    for commit in survey.commits:
        if commit.subject.lower().startswith("revert"):
            undone = _REVERT.sub(r"\1", commit.subject)
            risks.append(f"Reverted on {commit.at[:10]}: {undone}.")
    fixes: Counter[str] = Counter()
    for commit in survey.commits:
        if re.match(r"(?:fix|hotfix|bugfix)\b", commit.subject.lower()):
            fixes.update(name for name in commit.files if language_of(name) and not is_test(name))
    for name, count in fixes.most_common(2):
        if count >= 2:
            risks.append(f"`{name}` was mended in {count} of the last {len(survey.commits)} commits.")
    marked = Counter(marker.path for marker in survey.markers)
    if sum(marked.values()) >= 5:
        path, count = marked.most_common(1)[0]
        risks.append(f"{sum(marked.values())} TODO/FIXME marks in the source; most in `{path}` ({count}).")
    if survey.sources() and not any(is_test(name) for name in survey.sources()):
        risks.append("No tests were found.")
    if (
        facts.manifest
        and facts.package_manager is None
        and facts.ecosystem in {"Python", "TypeScript", "JavaScript"}
    ):
        risks.append("No lock file was found: installs are not reproducible.")
    return risks[:6]


def _items(text: str) -> Iterator[str]:
    """List items or short paragraphs of a section, each as one line."""
    bullets = re.findall(
        r"^\s{0,3}(?:[-*+]|\d+[.)])\s+(.+(?:\n(?!\s*(?:[-*+]|\d+[.)])\s|\s*\n|#).+)*)", text, re.MULTILINE
    )
    if bullets:
        yield from (plain(item) for item in bullets)
        return
    body = re.sub(r"(```|~~~).*?(\1|\Z)", "\n", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", body):
        line = plain(block).lstrip("> ")
        if len(line) > 25 and not block.lstrip().startswith(("|", "<")):
            yield line


def trap(text: str, cause: str, source: str, title: str = "") -> dict[str, str]:
    """A gotcha from one line of prose: title before a colon or dash, cause after "because", way out after "use"."""
    head, _, tail = text.partition(": ")
    if not title:
        title = head if tail and len(head) <= 90 else sentences(text, 1, 90)
        symptom = tail if tail and len(head) <= 90 else text
    else:
        symptom = text
    because = re.search(r"\b(?:because|since|due to|caused by)\b\s*(.+?)(?:[.;]|$)", symptom, re.IGNORECASE)
    way = re.search(
        r"(?:^|[.;,:]\s+|\bso\b\s+|→\s*)((?:use|run|set|prefer|always|never (?!before|again)|do not|don't|instead|add|call|keep|pass|make sure)\b.+?)(?:\.\s|$)",
        symptom,
        re.IGNORECASE,
    )
    if way and len(way.group(1)) >= 0.8 * len(symptom.rstrip(". ")):
        # Only the way out is told after the colon: what goes wrong is what stands before it.
        symptom = title
    return {
        "title": _capital(title.strip().rstrip(".")),
        "symptom": _capital(sentences(symptom, 3, 400)),
        "cause": _sentence(because.group(1)) if because else cause,
        "correctPath": _sentence(way.group(1)) if way else f"See {source}.",
    }


def _sentence(text: str) -> str:
    return f"{_capital(text.strip().rstrip('.'))}."


def _capital(text: str) -> str:
    """A capital at the start of prose; a name from code keeps its spelling."""
    first = text.split(" ", 1)[0]
    return text if not first.isalpha() or not first.islower() else f"{text[0].upper()}{text[1:]}"


def _gotchas(survey: Survey) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for document in survey.documents:
        if "changelog" in document.path.lower():
            continue
        inherited = ""
        for heading, text in document.sections():
            if _TRAPS.search(heading):
                inherited, told = heading, f'Told under "{heading}".'
                found += [trap(item, told, document.path) for item in list(_items(text))[:5]]
            elif inherited and heading.endswith("?"):
                answer = sentences(plain(text), 2, 400) or heading
                found.append(trap(answer, f'Told under "{inherited}".', document.path, heading))
            else:
                inherited = ""
        found += _callouts(document)
        found += _rules(document)
    for commit in survey.commits:
        if commit.subject.lower().startswith(("fix", "hotfix", "bugfix", "revert")):
            told = _explained(plain(commit.body))
            if told:
                title = re.sub(
                    r"^(?:fix|hotfix|bugfix)(?:\([^)]*\))?!?:?\s*", "", commit.subject, flags=re.IGNORECASE
                )
                title = _REVERT.sub(r"Reverted: \1", title)
                found.append(trap(told, f"Mended in {commit.hash[:9]}.", f"commit {commit.hash[:9]}", title))
    return _unique(item for item in found if item["symptom"])


def _explained(body: str) -> str:
    """The sentence of a commit message that gives a cause, with the one after it."""
    parts = re.split(r"(?<=[.!?])\s+", body)
    at = next((index for index, part in enumerate(parts) if _CAUSE.search(part)), None)
    return "" if at is None else " ".join(parts[at : at + 2])


def _rules(document: ProsePage) -> Iterator[dict[str, str]]:
    """Prohibitions in the files written for contributors: breaking one costs time, so each is a trap."""
    stem = PurePosixPath(document.path).stem.lower()
    if stem not in {"agents", "claude", "contributing", "development"} or document.path.count("/") > 1:
        return
    taken = 0
    for heading, text in document.sections():
        if _TRAPS.search(heading) or not _bulleted(text):
            continue
        for item in _items(text):
            if _FORBIDDEN.search(item) and taken < 5:
                taken += 1
                gotcha = trap(item, f'A rule under "{heading or document.path}".', document.path)
                yield {**gotcha, "title": sentences(gotcha["title"], 1, 90)}


def _callouts(document: ProsePage) -> Iterator[dict[str, str]]:
    pattern = r"^> \[!(?:WARNING|CAUTION|IMPORTANT)\]\s*\n((?:> ?.*\n?)+)"
    for match in list(re.finditer(pattern, document.text, re.MULTILINE))[:3]:
        text = plain(re.sub(r"^> ?", "", match.group(1), flags=re.MULTILINE))
        if text:
            yield trap(text, "Marked as a warning in the docs.", document.path)


def _next_steps(survey: Survey) -> list[dict[str, str]]:
    steps: list[dict[str, str]] = []
    for document in survey.documents:
        stem = PurePosixPath(document.path).stem.lower()
        whole = stem in {"todo", "roadmap", "next-steps", "next_steps"}
        for heading, text in document.sections():
            if not (whole or _PLANS.search(heading)):
                continue
            boxes = re.findall(r"^\s*[-*]\s+\[ \]\s+(.+)$", text, re.MULTILINE)
            loose = [] if re.search(r"\[[ xX]\]", text) or not _bulleted(text) else list(_items(text))
            for item in [plain(box) for box in boxes] or loose[:4]:
                steps.append(
                    {
                        "title": sentences(item, 1, 120).rstrip("."),
                        "why": f"Listed in {document.path}{f' under “{heading}”' if heading else ''}.",
                        "start": document.path,
                        "done": "The point is carried out and struck from the list.",
                    }
                )
    order = {"FIXME": 0, "XXX": 1, "HACK": 2, "TODO": 3}
    for marker in sorted(survey.markers, key=lambda marker: order[marker.word]):
        steps.append(
            {
                "title": _capital(sentences(marker.text, 1, 120).rstrip(".")),
                "why": f"A {marker.word} in the source asks for it.",
                "start": f"{marker.path}:{marker.line}",
                "done": "The mark is gone and the checks pass.",
            }
        )
    return _unique(steps)


def _unique(items: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The first of each title, eight at most."""
    found: dict[str, dict[str, str]] = {}
    for item in items:
        if item["title"]:
            found.setdefault(item["title"].lower(), item)
    return list(found.values())[:8]


def _bulleted(text: str) -> bool:
    return bool(re.search(r"^\s{0,3}(?:[-*+]|\d+[.)])\s+", text, re.MULTILINE))
