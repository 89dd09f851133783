"""What `doctor` says about governed memories: drift is found and named, and mended only where it is safe.

Hand-written entries skip the gate, so what the gate would have refused is reported here, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cairn.canonical import from_json
from cairn.errors import CairnError, NotFound
from cairn.governed import core, gate, lifecycle, pages
from cairn.governed.memories import Keeper
from cairn.governed.records import CATEGORIES, UNTRUSTED, Record, misread
from cairn.governed.secrets import redact
from cairn.seams.storage import readable_files
from cairn.types import Scope, Space


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
    """Mend what is safe to mend: stale dedupe marks, and supersessions that were cut short. Says what it did."""
    done = []
    for scope in keeper.scopes(space):
        records = keeper.records(scope)
        replaced = {r.supersedes: r.id for r in records if r.supersedes and r.is_live}
        odd = {
            entry for _, entry, *_ in _misread(keeper, records)
        }  # a rewrite would settle what a person meant
        for record in records:
            if _is_stale(record) and record.entry_id not in odd:
                with keeper.locked(scope):
                    keeper.rewrite(record, lambda r: r.but(dedupe=gate.dedupe_hash(r.content)))
                done.append(
                    MemoryFinding(
                        "warn",
                        "dedupe-stale",
                        _where(record),
                        "Its dedupe mark was computed anew.",
                        fixable=True,
                    )
                )
            successor = replaced.get(record.id)
            if successor is not None and record.is_live and record.superseded_by is None:
                now = keeper.clock.now()
                with keeper.locked(scope):
                    keeper.rewrite(
                        record,
                        lambda r, s=successor, n=now: r.but(  # type: ignore[misc]
                            status="archived", pinned=False, superseded_by=s, superseded_at=n,
                            superseded_reason="finished by repair",
                        ),
                    )  # fmt: skip
                done.append(
                    MemoryFinding(
                        "warn",
                        "supersession-open",
                        _where(record),
                        f"It is archived now: {successor} replaced it.",
                        fixable=True,
                    )
                )
    return done


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
        where = _where(record)
        if record.entry_id in ids and ids[record.entry_id] != record.locator.key:
            yield MemoryFinding(
                "fail", "id-doubled", where, f"{record.entry_id} also stands in {ids[record.entry_id]}."
            )
        ids[record.entry_id] = record.locator.key
        if not record.content.strip():
            yield MemoryFinding("warn", "empty", where, "It has no text.")
        if record.category not in CATEGORIES:
            yield MemoryFinding("warn", "category", where, f'"{record.category}" is not a category.')
        if _is_stale(record):
            yield MemoryFinding(
                "warn",
                "dedupe-stale",
                where,
                "Its text was edited since its dedupe mark was written.",
                fixable=True,
            )
        if record.superseded_by and record.superseded_by not in everyone:
            yield MemoryFinding(
                "warn",
                "successor-missing",
                where,
                f"{record.superseded_by}, which replaced it, is not there.",
            )
        if record.is_live and record.id in replaced:
            yield MemoryFinding(
                "warn", "supersession-open", where, "It was replaced, but is not archived.", fixable=True
            )
        if (
            record.is_live
            and record.origin in UNTRUSTED
            and record.status == "promoted"
            and record.promoted_at is None
        ):
            yield MemoryFinding(
                "warn",
                "untrusted-promoted",
                where,
                f"It came from {record.origin} and is promoted; make sure a person did that.",
            )
        if found := redact(f"{record.content}\n{record.trigger}\n{record.procedure}").kinds:
            yield MemoryFinding(
                "fail",
                "secret",
                where,
                f"It holds a credential ({', '.join(found)}); forget it and rotate the credential.",
            )
        if not record.is_live:
            continue
        if (
            record.category != "procedure"
            and record.source_type != "consolidation"
            and (why := gate.derivable(record.content))
        ):
            yield MemoryFinding("warn", "code-derivable", where, f"The gate would refuse it: {why}")
        mark = gate.dedupe_hash(record.content)
        if mark in marks:
            yield MemoryFinding("warn", "duplicate", where, f"It says the same as {marks[mark]}.")
        marks.setdefault(mark, record.id)
    live, limit = sum(r.is_live for r in records), lifecycle.limit_of(keeper, scope)
    if live > limit:
        place = keeper.root.scope(scope).key
        yield MemoryFinding(
            "warn",
            "over-limit",
            place,
            f"{live} live memories are more than {limit}; the next sweep archives the lowest.",
        )


def _check_pages(keeper: Keeper, space: Space) -> Iterator[MemoryFinding]:
    for key in pages.check(keeper, space):
        yield MemoryFinding(
            "warn", "page-edited", key, "It was edited by hand; the next refresh keeps the edit aside."
        )
    project = core.core_scope(space)
    page, file = core.page_of(keeper, project), core.json_locator(keeper, project)
    if page.version and keeper.storage.exists(file):
        try:
            value = from_json(keeper.storage.read(file))
            same = isinstance(value, dict) and value == page.payload()
        except (CairnError, ValueError):
            same = False
        if not same:
            yield MemoryFinding(
                "warn", "core-differs", file.key, "It differs from core.md; reconciling lets the newer win."
            )


def _check_journals(keeper: Keeper, space: Space) -> Iterator[MemoryFinding]:
    for at in readable_files(keeper.storage, keeper.root.journal(space)):
        if at.name.endswith(".jsonl"):
            damaged = sum(not _is_json(line) for line in keeper.journals.read(at).lines)
            if damaged:
                yield MemoryFinding(
                    "warn", "journal-damaged", at.key, f"{damaged} lines cannot be read and are passed over."
                )


def _is_stale(record: Record) -> bool:
    return bool(record.dedupe) and record.dedupe != gate.dedupe_hash(record.content)


def _is_json(line: str) -> bool:
    try:
        from_json(line)
    except ValueError:
        return False
    return True


def _where(record: Record) -> str:
    return f"{record.locator.key}#{record.entry_id}"
