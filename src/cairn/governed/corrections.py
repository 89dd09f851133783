"""Corrects a memory: edit, supersede, pin, archive, restore, promote; and tells its history.

Every correction is made where the memory stands, under its scope's lock, and leaves a line in the history
before the note changes. Nothing here deletes text; that is `forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cairn.errors import Invalid
from cairn.governed import gate
from cairn.governed.access import Stat, born, is_evergreen, ref, score_at
from cairn.governed.memories import CONTRADICTS, HistoryLine, Keeper, check_fields, check_text
from cairn.governed.records import UNTRUSTED, Record, stamp
from cairn.types import Verdict, with_texts
from cairn.wording import counted

_EDITABLE = (
    "content", "category", "importance", "confidence", "tier", "file_scope_pattern", "trigger", "procedure",
)  # fmt: skip


def edit(
    keeper: Keeper, record: Record, *, by: str = "human", reason: str = "", **changes: Any
) -> dict[str, Any]:
    """Change fields of a memory and return its row. Editable: content, category, importance, confidence, tier,
    file_scope_pattern, trigger, procedure. Credentials are cut out of new text as on any write.

    Raises:
        Invalid: a field that cannot be edited, or a value it cannot have. Nothing was written.
    """
    for name in changes:
        if name not in _EDITABLE:
            raise Invalid(f'"{name}" cannot be edited; editable are {", ".join(_EDITABLE)}.', field=name)
    for name in ("content", "trigger", "procedure"):
        if name in changes:
            check_text(changes[name])
            if keeper.settings.keeping.secrets != "allow":
                changes[name] = changes[name].strip()
    changes = with_texts(changes, keeper.cut)
    if not changes.get("content", "x").strip():
        raise Invalid("A memory needs text; to be rid of it, archive or forget it.", field="content")
    if changes.get("category", "fact") not in gate.CATEGORY_ALLOWLIST:
        raise Invalid(
            f'"{changes["category"]}" is not a category: use {", ".join(sorted(gate.CATEGORY_ALLOWLIST))}.',
            field="category",
        )
    check_fields(**{name: changes[name] for name in ("importance", "tier", "confidence") if name in changes})
    return _change(
        keeper, record, "edited",
        lambda old: old.but(**changes, dedupe=gate.dedupe_hash(changes.get("content", old.content))),
        tuple(changes), by=by, reason=reason,
    )  # fmt: skip


def supersede(keeper: Keeper, old: Record, content: str, *, reason: str, **fields: Any) -> Verdict:
    """Replace a memory by a new one; the old stays readable, archived, and says by what and why (S83).

    The new memory goes through the gate. Where it is refused nothing changes; where it merges into a third
    memory, that one becomes the successor.

    Raises:
        Invalid: no reason given, or the memory is not live any more.
    """
    if not reason.strip():
        raise Invalid("Superseding needs a reason.", field="reason")
    reason = keeper.cut(reason)
    if not old.is_live:
        raise Invalid(f"{old.id} is archived; only a live memory can be superseded.", id=old.id)
    given = {
        "category": old.category,
        "importance": old.importance,
        "status": "promoted" if old.status == "promoted" else None,
        "pinned": old.pinned,
        "origin": "human",
    }
    with keeper.notebook.run("correction"):
        verdict = keeper.remember(content, scope=old.scope, supersedes=old.id, **given | fields)
        if verdict.memory_id is not None:
            put_away(keeper, old, by="human", reason=reason, successor=verdict.memory_id)
        return verdict


def put_away(keeper: Keeper, record: Record, *, by: str, reason: str, successor: str) -> None:
    """Archive a memory that another one has replaced; it says which, and why."""
    end = {"superseded_by": successor, "superseded_at": keeper.clock.now(), "superseded_reason": reason}
    _change(
        keeper, record, "superseded", lambda old: old.but(status="archived", pinned=False, **end),
        ("status", "superseded_by"), by=by, reason=reason,
    )  # fmt: skip


def pin(keeper: Keeper, record: Record, *, pinned: bool = True, by: str = "human") -> dict[str, Any]:
    """Keep a memory at hand: promoted, tier 1, no decay. Unpinning leaves its tier; decay starts from now."""
    now = keeper.clock.now()

    def change(old: Record) -> Record:
        if not pinned:
            return old.but(pinned=False)
        _check_may(old, "pin", by)
        return old.but(pinned=True, tier=1, status="promoted", promoted_at=old.promoted_at or now)

    if not pinned and record.pinned:
        before = keeper.access.stat(record)
        score = score_at(record, before, now, keeper.settings.keeping.half_life_days)
        keeper.access.set_states(
            record.scope.space, {ref(record): Stat(before.count, before.last, score, now)}
        )
    what = "pinned" if pinned else "unpinned"
    return _change(keeper, record, what, change, ("pinned", "tier", "status"), by=by)


def archive(keeper: Keeper, record: Record, *, reason: str = "", by: str = "human") -> dict[str, Any]:
    """Put a memory away: it stays in its note, but takes no part in answers, dedup and limits."""
    return _change(
        keeper, record, "archived", lambda old: old.but(status="archived", pinned=False), ("status", "pinned"),
        by=by, reason=reason,
    )  # fmt: skip


def restore(keeper: Keeper, record: Record) -> dict[str, Any]:
    """Bring an archived memory back with the status it had; at least tier 3."""
    if record.is_live:
        return keeper.row(record)
    status = "promoted" if record.promoted_at is not None else "candidate"
    now, seed = keeper.clock.now(), gate.seed_score(record.importance, record.confidence)
    count = keeper.access.stat(record).count
    keeper.access.set_states(record.scope.space, {ref(record): Stat(count, now, seed, now)})
    return _change(
        keeper, record, "restored",
        lambda old: old.but(status=status, superseded_by=None, superseded_at=None, superseded_reason=None),
        ("status", "superseded_by"), by="human",
    )  # fmt: skip


def promote(keeper: Keeper, record: Record, *, by: str = "human") -> dict[str, Any]:
    """Promote a candidate. What came from an untrusted origin only a person can promote.

    That it says otherwise than another memory is settled by it: whoever vouches for it has seen both.
    """
    now = keeper.clock.now()

    def change(old: Record) -> Record:
        _check_may(old, "promote", by)
        settled = None if old.write_gate_reason == CONTRADICTS else old.write_gate_reason
        return old.but(
            status="promoted",
            promoted_at=old.promoted_at or now,
            tier=min(old.tier, 2),
            write_gate_reason=settled,
        )

    return _change(keeper, record, "promoted", change, ("status", "tier"), by=by)


def _check_may(record: Record, what: str, by: str) -> None:
    if not record.is_live:
        raise Invalid(f"{record.id} is archived; restore it first.", id=record.id)
    if record.origin in UNTRUSTED and by != "human":
        raise Invalid(f"{record.id} came from {record.origin}; only a person can {what} it.", id=record.id)


def history(keeper: Keeper, record: Record) -> Sequence[HistoryLine]:
    """Everything that is on record about a memory, oldest first."""
    first = HistoryLine(
        stamp(record.created_at) or stamp(born(record)),
        "created" if record.created_at else "written by hand",
        record.origin,
        "",
        None,
        {k: v for k, v in (("session", record.source_session_id), ("source_id", record.source_id)) if v}
        or None,
    )
    return [first, *keeper.histories(record.scope.space).get(ref(record), ())]


def why(keeper: Keeper, record: Record) -> Sequence[str]:
    """Why a memory is kept as it is: where it came from, what merged, how it is used, what would change it."""
    stat = keeper.access.stat(record)
    now = keeper.clock.now()
    half_life = keeper.settings.keeping.half_life_days
    score = score_at(record, stat, now, half_life)
    lines = [f"It came from {record.origin} on {born(record).date().isoformat()}" + (
        f", said in session {record.source_session_id}." if record.source_session_id else "."
    )]  # fmt: skip
    told = keeper.histories(record.scope.space).get(ref(record), ())
    merges = [line for line in told if line.what == "merged"]
    if record.observation_count > 1:
        exact = sum(line.reason == "duplicate" for line in merges)
        lines.append(
            f"It was seen {record.observation_count} times: {exact} equal and {len(merges) - exact} similar texts merged into it."
        )
    if stat.count:
        lines.append(
            f"It was used {counted(stat.count, 'time')}, last on {stat.last.date().isoformat() if stat.last else 'an unknown day'}."
        )
    else:
        lines.append("It has not been recalled yet.")
    if record.superseded_by:
        lines.append(
            f"It was superseded by {record.superseded_by}: {record.superseded_reason or 'no reason given'}."
        )
    elif not record.is_live:
        ending = [
            line for line in told if line.what in {"archived", "consolidated", "swept", "mission ended"}
        ]
        lines.append(f"It is archived{': ' + ending[-1].reason if ending and ending[-1].reason else ''}.")
    elif record.pinned:
        lines.append("It is pinned: no decay, no demotion, no limit touches it.")
    elif is_evergreen(record):
        lines.append(f"A {record.category} does not age; its score stays {score:.3f}.")
    else:
        lines.append(
            f"It is {record.status} in tier {record.tier} with score {score:.3f}, halved every {half_life:g} days unread."
        )
    if record.is_live and record.origin in UNTRUSTED and record.status == "candidate":
        lines.append(f"Its origin ({record.origin}) is untrusted: a person has to promote it.")
    return lines


def _change(
    keeper: Keeper,
    record: Record,
    what: str,
    change: Callable[[Record], Record],
    told: Sequence[str],
    *,
    by: str,
    reason: str = "",
) -> dict[str, Any]:
    """Change a memory under its scope's lock; the fields that are `told` stand in its history, before and after."""
    now = keeper.clock.now()
    with keeper.locked(record.scope) as shelf:
        current = shelf.get(record.entry_id) or record
        after = change(current)
        if after == current:
            return keeper.row(current)
        after = after.but(updated_at=now)
        old, new = (
            {name: value for name in told if (value := getattr(one, name)) not in (None, "")}
            for one in (current, after)
        )
        keeper.note_history(current, what=what, by=by, reason=reason, old=old, new=new)
        with keeper.notebook.run("correction"):
            keeper.rewrite(current, lambda found: change(found).but(updated_at=now))
    return keeper.row(after)
