"""Finds problems of an open root, each with its next step, and mends those that are safe to mend.

Each look stands alone: where one cannot be finished (a disk that refuses, a folder that cannot be read), that
is one more finding, and the others go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cairn import governed
from cairn.engines import spool
from cairn.engines.audit import AuditLog
from cairn.engines.lance import MANY_ROWS
from cairn.engines.tokens import TokenFile
from cairn.engines.tree import trouble_writing
from cairn.errors import CairnError, NotFound, Unavailable
from cairn.language.documents import LINKS
from cairn.notes.conflicts import conflict_copies
from cairn.notes.kinds import SCOPE_DIRS, place_of
from cairn.parts import Parts
from cairn.retrieval import tongue
from cairn.seams import Locator
from cairn.seams.storage import children
from cairn.settings_files import SECRET_KEYS
from cairn.talk.sessions import SessionState, session_locator, sessions_of
from cairn.types import Space
from cairn.wording import counted

if TYPE_CHECKING:
    from cairn.governed.checks import MemoryFinding

_log = logging.getLogger(__name__)
_LATE_SECONDS = 60.0
_LEVELS = {"fail": 0, "warn": 1, "info": 2}
_NOTE_STEPS = {
    "crlf": "nothing has to be done",
    "bom": "nothing has to be done",
    "frontmatter": "mend the lines between the --- at the top (docs/note-format.md); the entries are read without them",
    "doubled-entry": "give the second one an id of its own; until then only the first is searched",
    "doubled-": "keep one of the two",
    "unterminated-entry": "put its closing marker back; the other entries stay searchable",
    "mismatched-close": "correct the marker; the other entries stay searchable",
    "stray-close": "remove the marker, or put the opening one back",
}
_MEMORY_STEPS = {
    "secret": "run `cairn memories forget ID --yes`, and rotate the credential",
    "untrusted-promoted": "look at it with `cairn memories show ID`; archive it if nobody vouches for it",
    "field": "correct it in its note; until then it is not mended either",
    "duplicate": "run `cairn consolidate`, or archive one of them",
    "over-limit": "run `cairn sweep`",
    "page-edited": "move the edit into a note or a memory, then run `cairn refresh`",
    "core-differs": "run `cairn refresh`",
    "code-derivable": "archive it with `cairn memories archive ID` if it tells nothing new",
    "journal-damaged": "restore the file from a backup if the lines matter; the rest is in use",
}

Finds = Iterator[dict[str, Any]]


def findings(parts: Parts) -> list[dict[str, Any]]:
    """Every trouble that can be seen from here, worst first; each finding names the next step."""
    found: list[dict[str, Any]] = []
    for what, look in _LOOKS:
        try:
            found.extend(look(parts))
        except Exception as error:
            if not isinstance(error, CairnError | OSError):  # a fault of ours
                _log.exception("%s could not be looked at", what)
            found.append(
                finding("fail", f"{what} could not be looked at: {error}", "mend that, then run it again")
            )
    return sorted(found, key=lambda item: _LEVELS[item["level"]])


def finding(level: str, what: str, following: str) -> dict[str, Any]:
    return {"level": level, "what": what, "next": following}


def repair(parts: Parts) -> list[dict[str, Any]]:
    """Mend what is safe to mend in every space; each item says what was done."""
    mended = []
    if _open_keys(parts):
        (parts.settings.root / "cairn.toml").chmod(0o600)
        mended.append({"where": "cairn.toml", "what": "is readable by you alone now", "code": "open-keys"})
    mended += [
        {
            "where": merge.copy.locator.key,
            "what": f"is part of {merge.copy.original} now",
            "code": "conflict-copy",
        }
        for merge in parts.merge_copies()
        if merge.removed
    ]
    mended += [
        {"where": f".hooks/{name}", "what": "is taken in by the next hook", "code": "set-aside"}
        for name in spool.try_again(parts.settings.root)
    ]
    mended += [
        {"where": one.where, "what": one.message, "code": one.code}
        for space in parts.root.spaces()
        for one in governed.checks.repair(parts.keeper, space)
    ]
    if mended:
        parts.settle()  # that the index is behind these very writes is no finding
    return mended


# ---------------------------------------------------------------- the looks


def _root(parts: Parts) -> Finds:
    root, index = parts.settings.root, parts.settings.index_dir
    in_root = trouble_writing(root)
    in_index = trouble_writing(index) if not (in_root and root in index.parents) else ""
    for name, place, trouble in (
        ("the memory root", root, in_root),
        ("the folder of the index", index, in_index),
    ):
        if trouble:
            yield finding(
                "fail",
                f"{name} ({place}) cannot be written: {trouble}",
                "make it writable; until then what is there can be read, and nothing new is kept",
            )


def _settings(parts: Parts) -> Finds:
    if _open_keys(parts):
        yield finding(
            "warn",
            f"{parts.settings.root / 'cairn.toml'} holds keys or tokens and can be read by other users of this machine",
            "run `cairn doctor --fix`, or chmod 600 the file",
        )


def _server(parts: Parts) -> Finds:
    """What a server of this root would be stopped or silenced by."""
    folder = parts.settings.server_dir
    try:
        TokenFile(folder).grants()
    except CairnError as error:
        yield finding(
            "fail", str(error), "do that; until then no server starts, and one that runs lets in nobody new"
        )
    if trouble := AuditLog(folder, parts.settings.server.audit_bytes).blocked():
        yield finding("warn", trouble, "calls are answered all the same")


def _folders(parts: Parts) -> Finds:
    """Whatever stands where a folder of ours belongs: what would lie below it is neither found nor kept."""
    for place in dict.fromkeys(_expected(parts)):
        try:
            if parts.storage.info(place).is_dir:
                continue
            trouble = f"{place} is a file, and a folder belongs there: nothing below it is found, nothing can be kept there"
        except NotFound:
            continue
        except CairnError as error:
            trouble = str(error)
        yield finding("fail", trouble, "move it away; what was in the folder has to come from a backup")


def _expected(parts: Parts) -> Iterator[Locator]:
    """The folders that a root has or may have, outermost first."""
    for space in (Space(), *parts.root.spaces()):
        home = parts.root.space(space)
        yield from (home.parent, home, sessions_of(space), parts.root.journal(space))
        for track, name in SCOPE_DIRS.items():
            yield home.child(name)
            if track != "project":
                yield from (
                    at for at in children(parts.storage, home.child(name)) if not at.name.startswith(".")
                )


def _open_keys(parts: Parts) -> bool:
    """Whether the settings hold a secret and their file is not its owner's alone."""
    origins = parts.settings.origins
    held = [name for name in origins if name.partition(".")[2] in SECRET_KEYS]
    if not any(origins[name].startswith("cairn.toml") for name in held):
        return False
    try:
        return bool((parts.settings.root / "cairn.toml").stat().st_mode & 0o077)
    except FileNotFoundError:
        return False


def _notes(parts: Parts) -> Finds:
    hidden: list[CairnError] = []
    for space in parts.root.spaces():
        for locator in parts.notebook.notes(space, passed_over=lambda _, error: hidden.append(error)):
            try:
                note = parts.notebook.read(locator)
            except CairnError as error:
                yield finding("fail", str(error), f"open {locator} and mend it; nothing else is affected")
                continue
            for problem in note.problems:
                where = f"{locator}, line {problem.line}: {problem.message}"
                level = "info" if problem.code in {"crlf", "bom"} else "warn"
                yield finding(level, where, _note_step(problem.code))
            place = place_of(locator)
            most = parts.settings.storage.max_entry_bytes
            for entry in note.entries if most and len(note.text) > most else ():
                if entry.end - entry.start > most:
                    yield finding(
                        "warn",
                        f"{locator}: {entry.id} has {entry.end - entry.start} characters, more than storage.max_entry_bytes "
                        f"({most}); it is kept, but not searched",
                        "split it, or raise the limit",
                    )
            if place is not None and place.day and not note.entries and note.body.strip():
                yield finding(
                    "warn",
                    f"{locator} holds text outside of any entry; it is kept, but not searched",
                    "put it between entry markers (docs/note-format.md), or `cairn add` it",
                )
    for trouble in hidden:
        yield finding(
            "fail", str(trouble), "mend that; what lies in it is not searched, nothing else is affected"
        )


def _links(parts: Parts) -> Finds:
    """Linked folders of documents that are away or closed: what is known of them is still searched, and gets older."""
    for space in parts.root.spaces():
        try:
            links = parts.linked.links(parts.root.knowledge(space).child(LINKS))
        except CairnError as error:
            yield finding("fail", f"{space}: {error}", "mend that; nothing else is affected")
            continue
        here = "" if space == Space() else f"--app {space.app} --project {space.project} "
        for link in links.values():
            if not link.folder.is_dir():
                yield finding(
                    "warn",
                    f'the folder {link.folder}, linked as "{link.name}" in {space}, is not there; '
                    "what was known of it is kept",
                    f"bring it back, or run `cairn {here}knowledge unlink {link.name}`",
                )
                continue
            for trouble in parts.linked.closed(link.folder, parts.root.knowledge(space).child(link.name)):
                yield finding(
                    "warn",
                    f"{trouble}; what was known of it is kept",
                    "let it be read; the next look takes it in",
                )


def _sessions(parts: Parts) -> Finds:
    """Lines of session logs that were set aside, and logs that cannot be read at all."""
    hidden: list[CairnError] = []
    for place in parts.capture.sessions(passed_over=lambda _, error: hidden.append(error)):
        locator = session_locator(*place)
        try:
            state = parts.sessions.load(locator, keep=False)
        except CairnError as error:
            yield finding("fail", str(error), f"mend {locator}; no other session is affected")
            continue
        for one in state.troubles:
            yield finding(
                "warn",
                f"{locator}, line {one.line}: {one.trouble}; it was set aside",
                "correct the line or take it out; the other lines are in use",
            )
        yield from _unfinished(parts, locator, state)
        if more := state.skipped_lines - len(state.troubles):
            yield finding("warn", f"{locator}: {more} more lines were set aside", "look at the file")
    for trouble in hidden:
        yield finding("fail", str(trouble), "mend that; no other session is affected")


def _unfinished(parts: Parts, locator: Locator, state: SessionState) -> Finds:
    """Cells of a session whose episodes are not all there, and why."""
    waiting = parts.capture.waiting
    for cell in state.pending:
        reasons = [one for one in waiting if one.cell_id == cell.cell_id and one.scope.space == state.space]
        for one in reasons:
            yield finding("fail", f"{locator}: {one}", "mend that; it is tried again by itself")
        if not reasons and not parts.capture.is_at(cell):
            yield finding(
                "warn",
                f"{locator}: cell {cell.cell_id} of {cell.day} has no episode yet",
                f"run `cairn flush --session '{state.session_id}'`",
            )


def _note_step(code: str) -> str:
    """What to do about a problem in a note, by its code or the start of it."""
    if code.endswith("-mismatch"):
        return "correct the line, or move the file back; the file's place counts"
    found = next((step for start, step in _NOTE_STEPS.items() if code.startswith(start)), "")
    return found or "correct the line by hand; the rest of the note stays searchable"


def _hooks(parts: Parts) -> Finds:
    """Turns of coding agents that are not in the memory yet, or could not be taken in; agents that bring none."""
    root = parts.settings.root
    aside = spool.aside(root)
    if aside:
        what = "turn of a coding agent" if len(aside) == 1 else "turns of coding agents"
        lie = "lies" if len(aside) == 1 else "lie"
        yield finding(
            "warn",
            f"{len(aside)} {what} could not be taken in and {lie} in {spool.folder(root)} as .broken",
            "run `cairn doctor --fix` to have them tried again; what cannot be read even then, look at or remove",
        )
    late = sum(1 for path, _ in spool.waiting(root) if time.time() - path.stat().st_mtime > _LATE_SECONDS)
    if late:
        what = "turn of a coding agent waits" if late == 1 else "turns of coding agents wait"
        yield finding(
            "info",
            f"{late} {what} to be taken in",
            "the next hook, MCP call or server of this root does that",
        )
    agents = ", ".join(spool.integrated(root))
    if agents and not (spool.folder(root) / "read").is_dir() and not any(spool.waiting(root)):
        yield finding(
            "info",
            f"nothing was captured yet from {agents}",
            "begin a new session there and say something; where this stays, run `cairn integrate AGENT` once more",
        )


def _strays(parts: Parts) -> Finds:
    copies = list(conflict_copies(parts.storage))
    copied = {copy.locator for copy in copies}
    for locator in parts.notebook.strays():
        if locator not in copied:
            yield finding(
                "warn",
                f"{locator} has a name that no note has; it is kept, but not searched",
                "rename it like the notes beside it (kind-YYYY-MM-DD.md), or move it elsewhere",
            )
    for copy in copies:
        yield finding(
            "warn",
            f"{copy.locator} is a sync conflict copy of {copy.original}",
            "run `cairn doctor --fix`; what stays then is to be merged by hand",
        )


def _index(parts: Parts) -> Finds:
    from cairn.engines import everos

    if unread := everos.unread(parts.index_dir):
        yield finding(
            "warn",
            unread,
            "take what it holds with `sqlite3 FILE .recover`, or delete it; ours was made anew",
        )
    for row in parts.state.failures():
        try:
            path = parts.linked.path_of(Locator(row["path"])) or row["path"]
        except CairnError:  # linked no longer
            path = row["path"]
        following = (
            "run `cairn cascade fix --apply`"
            if row["retryable"]
            else f"mend {path}; saving it queues it again"
        )
        yield finding("fail", f"{path} is not indexed: {row['error']}", following)
    fresh = parts.indexer.status()
    if fresh.state != "fresh":
        yield finding(
            "info",
            f"the index is {fresh.state}: {counted(fresh.pending, 'change')} pending",
            "run `cairn cascade sync`",
        )
    yield from _tables(parts)


def _tables(parts: Parts) -> Finds:
    """Owners too large for memory whose rows LanceDB does not hold: they are answered, and slowly."""
    chosen = parts.settings.index
    if chosen.engine == "memory":
        return
    large = [scope for scope, kinds in parts.index.scopes() if sum(kinds.values()) > chosen.memory_rows]
    waiting = parts.folder.told()["waiting"]
    if large and waiting > MANY_ROWS:
        yield finding(
            "info",
            f"{waiting} rows are not in the tables of LanceDB yet: {len(large)} large owners are answered slowly",
            "run `cairn cascade sync`, or let the server fold them in",
        )


def _strategies(parts: Parts) -> Finds:
    if parts.engine.trouble:
        yield finding("fail", parts.engine.trouble, "correct ome.toml; it is read again within seconds")
    for words in parts.engine.unknown.values():
        yield finding("warn", words, "take its table out of ome.toml, or leave it: nothing else is held up")
    for run in parts.engine.runs(status="dead", limit=20):
        yield finding(
            "warn",
            f"{run.strategy} gave up on {run.input} after {run.attempts} tries: {run.reason}",
            f"run `cairn ome trigger {run.strategy} --force` once the cause is gone",
        )


def _model(parts: Parts) -> Finds:
    embedder = parts.embedder()
    if embedder is not None:
        with suppress(Unavailable):
            scopes = (scope for scope, _ in parts.index.scopes())
            if tongue.is_foreign(parts.index, scopes, parts.settings.embedding, embedder):
                yield finding("info", tongue.HINT, tongue.STEP)
    elif parts.settings.embedding.provider != "none":
        if trouble := parts.embedder.trouble:
            yield finding("info", trouble, "mend that setting; until then search works on words alone")
        else:
            yield finding(
                "info",
                "the local embedding model is not installed: search works on words alone",
                "run `cairn model install`",
            )


def _memories(parts: Parts) -> Finds:
    for space in parts.root.spaces():
        try:
            yield from map(_memory_finding, governed.checks.check(parts.keeper, space))
        except CairnError as error:
            yield finding("fail", str(error), f"mend that; the memories of {space} wait")


def _history(parts: Parts) -> Finds:
    for space in parts.root.spaces():
        if damaged := parts.observer.of(space).damaged_texts():
            yield finding(
                "warn",
                f"{parts.root.journal(space, 'history/texts')}: {counted(damaged, 'former text')} not as recorded, "
                "so not brought back; the others are",
                "bring the file back from a backup if they matter",
            )


def _memory_finding(one: MemoryFinding) -> dict[str, Any]:
    following = "run `cairn doctor --fix`" if one.fixable else _MEMORY_STEPS.get(one.code, "")
    return finding(one.status, f"{one.where}: {one.message}", following or "correct the entry by hand")


_LOOKS: Sequence[tuple[str, Callable[[Parts], Finds]]] = (
    ("the root", _root),
    ("the settings", _settings),
    ("the server", _server),
    ("the folders", _folders),
    ("the notes", _notes),
    ("the session logs", _sessions),
    ("what hooks left", _hooks),
    ("linked folders", _links),
    ("stray files", _strays),
    ("the index", _index),
    ("the strategies", _strategies),
    ("the embedding model", _model),
    ("governed memories", _memories),
    ("the history", _history),
)
