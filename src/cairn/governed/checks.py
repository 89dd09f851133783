"""What `doctor` says about governed memories: drift is found and named, and mended only where it is safe.

Hand-written entries skip the gate, so what the gate would have refused is reported here, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cairn.canonical import from_json
from cairn.errors import CairnError, NotFound
from cairn.governed import core, corrections, gate, lifecycle, pages
from cairn.governed.memories import Keeper
from cairn.governed.records import CATEGORIES, UNTRUSTED, Record, misread
from cairn.governed.secrets import redact
from cairn.seams.storage import readable_files
from cairn.types import Scope, Space

_OF_A_RECORD = {
    "id-doubled": "{entry_id} also stands in {more}.",
    "empty": "It has no text.",
    "category": '"{category}" is not a category.',
    "successor-missing": "{superseded_by}, which replaced it, is not there.",
    "supersession-open": "It was replaced, but is not archived.",
    "untrusted-promoted": "It came from {origin} and is promoted; make sure a person did that.",
    "secret": "It holds a credential ({more}); forget it and rotate the credential.",
    "code-derivable": "The gate would refuse it: {more}",
    "duplicate": "It says the same as {more}.",
}
_FAIL = frozenset({"id-doubled", "secret"})
_MENDED = frozenset({"supersession-open"})


@dataclass(frozen=True, slots=True)
class MemoryFinding:
    """One thing a person should know. `status` is "warn" or "fail"; `fixable` says whether `repair` mends it."""

    status: str
    code: str
    where: str
    message: str
    fixable: bool = False


def check(keeper: Keeper, space: Space) -> list[MemoryFinding]:
    """Everything that is wrong, or merely odd, with the memories of a space. Writes nothing."""
    found: list[MemoryFinding] = []
    everyone = {record.id for scope in keeper.scopes(space) for record in keeper.records(scope)}
    for scope in keeper.scopes(space):
        found += _check_scope(keeper, scope, everyone)
    found += _check_pages(keeper, space)
    found += _check_journals(keeper, space)
    return found


def repair(keeper: Keeper, space: Space) -> list[MemoryFinding]:
    """Mend what is safe to mend, and say what was done: supersessions that were cut short, and the dedupe marks of texts
    that were edited by hand, which `check` does not name: an edit is no trouble.
    """
    done = []
    for scope in keeper.scopes(space):
        records = keeper.records(scope)
        replaced = {r.supersedes: r.id for r in records if r.supersedes and r.is_live}
        # Of what makes no sense a rewrite would settle what a person meant.
        odd = {entry for _, entry, *_ in _misread(keeper, records)}
        for record in records:
            if _is_stale(record) and record.entry_id not in odd:
                with keeper.locked(scope):
                    keeper.rewrite(record, lambda r: r.but(dedupe=gate.dedupe_hash(r.content)))
                done.append(_finding(record, "dedupe-stale", words="Its dedupe mark was computed anew."))
            successor = replaced.get(record.id)
            if successor is not None and record.is_live and record.superseded_by is None:
                corrections.put_away(
                    keeper, record, by="repair", reason="finished by repair", successor=successor
                )
                words = f"It is archived now: {successor} replaced it."
                done.append(_finding(record, "supersession-open", words=words))
    return done


def _finding(record: Record, code: str, more: str = "", *, words: str = "") -> MemoryFinding:
    told = words or _OF_A_RECORD[code].format(
        more=more, entry_id=record.entry_id, category=record.category, origin=record.origin,
        superseded_by=record.superseded_by,
    )  # fmt: skip
    status = "fail" if code in _FAIL else "warn"
    return MemoryFinding(
        status, code, f"{record.locator.key}#{record.entry_id}", told, fixable=code in _MENDED
    )


def _misread(keeper: Keeper, records: Sequence[Record]) -> Iterator[tuple[str, str, str, str, str]]:
    """Note, entry, field, value and reading of each field whose value makes no sense."""
    for locator in dict.fromkeys(record.locator for record in records):
        with suppress(NotFound):
            for entry in keeper.notebook.read(locator).entries:
                yield from ((locator.key, entry.id, *one) for one in misread(entry.inline))


def _check_scope(keeper: Keeper, scope: Scope, everyone: set[str]) -> Iterator[MemoryFinding]:
    records = keeper.records(scope)
    for path, entry, name, value, reading in _misread(keeper, records):
        told = f'{name} "{value[:40]}" makes no sense; it is read as {reading}.'
        yield MemoryFinding("warn", "field", f"{path}#{entry}", told)
    ids: dict[str, str] = {}
    marks: dict[str, str] = {}
    replaced = {r.supersedes for r in records if r.supersedes and r.is_live}
    for record in records:
        elsewhere = ids.get(record.entry_id, record.locator.key)
        ids[record.entry_id] = record.locator.key
        vouched = record.promoted_at is not None or record.origin not in UNTRUSTED
        kinds = redact(f"{record.content}\n{record.trigger}\n{record.procedure}").kinds
        for code, is_so, more in (
            ("id-doubled", elsewhere != record.locator.key, elsewhere),
            ("empty", not record.content.strip(), ""),
            ("category", record.category not in CATEGORIES, ""),
            ("successor-missing", record.superseded_by and record.superseded_by not in everyone, ""),
            ("supersession-open", record.is_live and record.id in replaced, ""),
            ("untrusted-promoted", record.status == "promoted" and not vouched, ""),
            ("secret", kinds, ", ".join(kinds)),
        ):
            if is_so:
                yield _finding(record, code, more)
        if not record.is_live:
            continue
        is_made = record.category == "procedure" or record.source_type == "consolidation"
        if not is_made and (why := gate.derivable(record.content)):
            yield _finding(record, "code-derivable", why)
        mark = gate.dedupe_hash(record.content)
        if mark in marks:
            yield _finding(record, "duplicate", marks[mark])
        marks.setdefault(mark, record.id)
    live, limit = sum(r.is_live for r in records), lifecycle.limit_of(keeper, scope)
    if live > limit:
        told = f"{live} live memories are more than {limit}; the next sweep archives the lowest."
        yield MemoryFinding("warn", "over-limit", keeper.root.scope(scope).key, told)


def _check_pages(keeper: Keeper, space: Space) -> Iterator[MemoryFinding]:
    edited = "It was edited by hand; the next refresh keeps the edit aside."
    yield from (MemoryFinding("warn", "page-edited", key, edited) for key in pages.check(keeper, space))
    project = core.core_scope(space)
    page, file = core.page_of(keeper, project), core.json_locator(keeper, project)
    if page.version and keeper.storage.exists(file):
        try:
            same = from_json(keeper.storage.read(file)) == page.payload()
        except (CairnError, ValueError):
            same = False
        if not same:
            told = "It differs from core.md; reconciling lets the newer win."
            yield MemoryFinding("warn", "core-differs", file.key, told)


def _check_journals(keeper: Keeper, space: Space) -> Iterator[MemoryFinding]:
    for at in readable_files(keeper.storage, keeper.root.journal(space)):
        if at.name.endswith(".jsonl"):
            damaged = sum(not _is_json(line) for line in keeper.journals.read(at).lines)
            if damaged:
                told = f"{damaged} lines cannot be read and are passed over."
                yield MemoryFinding("warn", "journal-damaged", at.key, told)


def _is_stale(record: Record) -> bool:
    return bool(record.dedupe) and record.dedupe != gate.dedupe_hash(record.content)


def _is_json(line: str) -> bool:
    try:
        from_json(line)
    except ValueError:
        return False
    return True
