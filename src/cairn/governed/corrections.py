"""Putting a memory right: edit, supersede, pin, archive, restore, promote, and the story of each.

Every correction is made where the memory stands, under its scope's lock, and leaves a line in the history
before the note changes. Nothing here deletes text; that is `forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cairn.errors import Invalid
from cairn.governed import gate
from cairn.governed.access import Stat, born, is_evergreen, ref, score_at
from cairn.governed.memories import CONTRADICTS, HistoryLine, Keeper, check_fields, check_text
from cairn.governed.records import UNTRUSTED, Record, stamp
from cairn.types import Scope, Space, Verdict, with_texts

_EDITABLE = (
    "content",
    "category",
    "importance",
    "confidence",
    "tier",
    "file_scope_pattern",
    "trigger",
    "procedure",
)


def edit(
    keeper: Keeper,
    space: Space,
    memory_id: str,
    *,
    scope: Scope | None = None,
    by: str = "human",
    reason: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """Change fields of a memory and return its row. Editable: content, category, importance, confidence, tier,
    file_scope_pattern, trigger, procedure. Credentials are cut out of new text as on any write.

    Raises:
        NotFound: there is no such memory.
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
        raise Invalid(f'"{changes["category"]}" is not a category.', field="category")
    check_fields(
        changes.get("importance", "medium"),
        None,
        "human",
        changes.get("tier"),
        changes.get("confidence"),
        None,
        "default",
    )
    return _change(
        keeper, space, memory_id, "edited",
        lambda record: record.but(**changes, dedupe=gate.dedupe_hash(changes.get("content", record.content))),
        scope=scope, by=by, reason=reason, told=tuple(changes),
    )  # fmt: skip


def supersede(
    keeper: Keeper,
    space: Space,
    memory_id: str,
    content: str,
    *,
    reason: str,
    scope: Scope | None = None,
    by: str = "human",
    **fields: Any,
) -> Verdict:
    """Replace a memory by a new one; the old stays readable, archived, and says by what and why (S83).

    The new memory goes through the gate. Where it is refused nothing changes; where it merges into a third
    memory, that one becomes the successor.

    Raises:
        Invalid: no reason given, or the memory is not live any more.
    """
    if not reason.strip():
        raise Invalid("Superseding needs a reason.", field="reason")
    reason = keeper.cut(reason)
    old = keeper.find(space, memory_id, scope=scope)
    if not old.is_live:
        raise Invalid(f"{old.id} is archived; only a live memory can be superseded.", id=old.id)
    with keeper.notebook.run("correction"):
        verdict = keeper.remember(
            content,
            fields.pop("category", old.category),
            scope=old.scope,
            importance=fields.pop("importance", old.importance),
            status=fields.pop("status", "promoted" if old.status == "promoted" and by == "human" else None),
            pinned=fields.pop("pinned", old.pinned),
            origin=fields.pop("origin", "human" if by == "human" else "agent"),
            supersedes=old.id,
            **fields,
        )
        if not verdict.accepted or verdict.memory is None:
            return verdict
        now = keeper.clock.now()
        new_id = str(verdict.memory["id"])
        _change(
            keeper, space, old.id, "superseded",
            lambda record: record.but(
                status="archived", pinned=False, superseded_by=new_id, superseded_at=now, superseded_reason=reason
            ),
            scope=old.scope, by=by, reason=reason, told=("status", "superseded_by"),
        )  # fmt: skip
        return verdict


def pin(
    keeper: Keeper,
    space: Space,
    memory_id: str,
    *,
    pinned: bool = True,
    scope: Scope | None = None,
    by: str = "human",
) -> dict[str, Any]:
    """Keep a memory at hand: promoted, tier 1, no decay. Unpinning leaves its tier; decay starts from now."""
    now = keeper.clock.now()

    def change(record: Record) -> Record:
        if not pinned:
            return record.but(pinned=False)
        if not record.is_live:
            raise Invalid(f"{record.id} is archived; restore it first.", id=record.id)
        if record.origin in UNTRUSTED and by != "human":
            raise Invalid(f"{record.id} came from {record.origin}; only a person can pin it.", id=record.id)
        return record.but(pinned=True, tier=1, status="promoted", promoted_at=record.promoted_at or now)

    record = keeper.find(space, memory_id, scope=scope)
    if not pinned and record.pinned:
        before = keeper.access.stat(record)
        score = score_at(record, before, now, keeper.settings.keeping.half_life_days)
        keeper.access.set_states(space, {ref(record): Stat(before.count, before.last, score, now)})
    what = "pinned" if pinned else "unpinned"
    return _change(
        keeper, space, record.id, what, change, scope=record.scope, by=by, told=("pinned", "tier", "status")
    )


def archive(
    keeper: Keeper,
    space: Space,
    memory_id: str,
    *,
    reason: str = "",
    scope: Scope | None = None,
    by: str = "human",
) -> dict[str, Any]:
    """Put a memory away: it stays in its note, but takes no part in answers, dedup and limits."""
    return _change(
        keeper, space, memory_id, "archived", lambda r: r.but(status="archived", pinned=False),
        scope=scope, by=by, reason=reason, told=("status", "pinned"),
    )  # fmt: skip


def restore(
    keeper: Keeper, space: Space, memory_id: str, *, scope: Scope | None = None, by: str = "human"
) -> dict[str, Any]:
    """Bring an archived memory back with the status it had; at least tier 3."""
    record = keeper.find(space, memory_id, scope=scope)
    if record.is_live:
        return keeper.row(record)
    status = (
        "promoted" if record.promoted_at is not None and (record.is_trusted or by == "human") else "candidate"
    )
    now = keeper.clock.now()
    keeper.access.set_states(
        space,
        {
            ref(record): Stat(
                keeper.access.stat(record).count,
                now,
                gate.seed_score(record.importance, record.confidence),
                now,
            )
        },
    )
    return _change(
        keeper, space, record.id, "restored",
        lambda r: r.but(status=status, superseded_by=None, superseded_at=None, superseded_reason=None),
        scope=record.scope, by=by, told=("status", "superseded_by"),
    )  # fmt: skip


def promote(
    keeper: Keeper, space: Space, memory_id: str, *, scope: Scope | None = None, by: str = "human"
) -> dict[str, Any]:
    """Promote a candidate. What came from an untrusted origin only a person can promote.

    That it says otherwise than another memory is settled by it: whoever vouches for it has seen both.
    """
    now = keeper.clock.now()

    def change(record: Record) -> Record:
        if record.origin in UNTRUSTED and by != "human":
            raise Invalid(
                f"{record.id} came from {record.origin}; only a person can promote it.", id=record.id
            )
        if not record.is_live:
            raise Invalid(f"{record.id} is archived; restore it first.", id=record.id)
        settled = None if record.write_gate_reason == CONTRADICTS else record.write_gate_reason
        return record.but(
            status="promoted",
            promoted_at=record.promoted_at or now,
            tier=min(record.tier, 2),
            write_gate_reason=settled,
        )

    return _change(keeper, space, memory_id, "promoted", change, scope=scope, by=by, told=("status", "tier"))


def history(
    keeper: Keeper, space: Space, memory_id: str, *, scope: Scope | None = None
) -> Sequence[HistoryLine]:
    """Everything that is on record about a memory, oldest first."""
    record = keeper.find(space, memory_id, scope=scope)
    first = HistoryLine(
        stamp(record.created_at) or stamp(born(record)),
        "created" if record.created_at else "written by hand",
        record.origin,
        "",
        None,
        {k: v for k, v in (("session", record.source_session_id), ("source_id", record.source_id)) if v}
        or None,
    )
    return [first, *keeper.histories(space).get(ref(record), ())]


def why(keeper: Keeper, space: Space, memory_id: str, *, scope: Scope | None = None) -> Sequence[str]:
    """Why a memory is kept as it is: where it came from, what merged, how it is used, what would change it."""
    record = keeper.find(space, memory_id, scope=scope)
    stat = keeper.access.stat(record)
    now = keeper.clock.now()
    half_life = keeper.settings.keeping.half_life_days
    score = score_at(record, stat, now, half_life)
    lines = [f"It came from {record.origin} on {born(record).date().isoformat()}" + (
        f", said in session {record.source_session_id}." if record.source_session_id else "."
    )]  # fmt: skip
    told = keeper.histories(space).get(ref(record), ())
    merges = [line for line in told if line.what == "merged"]
    if record.observation_count > 1:
        exact = sum(line.reason == "duplicate" for line in merges)
        lines.append(
            f"It was seen {record.observation_count} times: {exact} equal and {len(merges) - exact} similar texts merged into it."
        )
    if stat.count:
        lines.append(
            f"It was used {stat.count} time{'s' if stat.count != 1 else ''}, last on {stat.last.date().isoformat() if stat.last else 'an unknown day'}."
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
    space: Space,
    memory_id: str,
    what: str,
    change: Callable[[Record], Record],
    *,
    scope: Scope | None = None,
    by: str = "",
    reason: str = "",
    told: Sequence[str] = (),
) -> dict[str, Any]:
    record = keeper.find(space, memory_id, scope=scope)
    now = keeper.clock.now()
    with keeper.locked(record.scope) as shelf:
        current = shelf.get(record.entry_id) or record
        after = change(current)
        if after == current:
            return keeper.row(current)
        after = after.but(updated_at=now)
        old, new = _told(current, told), _told(after, told)
        keeper.note_history(current, what, by=by, reason=reason, old=old, new=new)
        with keeper.notebook.run("correction"):
            keeper.rewrite(current, lambda found: change(found).but(updated_at=now))
    return keeper.row(after)


def _told(record: Record, names: Sequence[str]) -> Mapping[str, Any]:
    return {name: value for name in names if (value := getattr(record, name)) not in (None, "")}
