"""`extract_user_profile`: one evolving `user.md` of what a person said about themself.

Each attribute carries its evidence, how often and when it was stated. A later statement of the same attribute
supersedes the earlier one, which stays with its "until". The file belongs to the person: the machine owns four
frontmatter keys and one marked block; a block that was edited by hand is kept as text, and the machine writes
a new one beside it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cairn.errors import NotFound
from cairn.language import traits, words
from cairn.language.near import particulars
from cairn.notes import frontmatter
from cairn.notes.format import Note, parse_note
from cairn.notes.kinds import KINDS
from cairn.strategies import Job, Kit, Outcome, Strategy, StrategyAsk, asking
from cairn.strategies.statements import Statement, quote
from cairn.types import Scope

MAX_ITEMS = 150
_BEGIN, _END = "<!-- cairn:profile:begin", "<!-- cairn:profile:end -->"
_BLOCK = re.compile(
    r"<!-- cairn:profile:begin sha256=([0-9a-f]{64}) -->\n(.*?)<!-- cairn:profile:end -->\n?", re.DOTALL
)
_ITEM = dict.fromkeys(("category", "attribute", "description"), asking.TEXT)
_SCHEMA = asking.listed("items", "category description message_ids", **_ITEM, message_ids=asking.TEXTS)


@dataclass(frozen=True, slots=True)
class Claim:
    """Something a person said about themself. `slot` is the attribute it sets, "" if it only adds."""

    category: str
    slot: str
    description: str
    evidence: str
    message_ids: tuple[str, ...]
    day: str
    trait: traits.Trait | None = None

    def read(self) -> traits.Trait:
        """What it sets, and to what; a model's claim sets its attribute to its own words."""
        value = frozenset({self.description.casefold()})
        if self.trait is not None:
            return traits.settled(self.trait, self.evidence)
        return traits.Trait(self.category, self.slot, 0, 0, value)


def claims_of(statements: Sequence[Statement], owner: str) -> list[Claim]:
    """The clauses of `owner` that tell who they are, how they live, what they like and what they want done."""
    found = []
    for statement in statements:
        if statement.speaker_id != owner:
            continue
        for trait in traits.traits_of(statement.sentence, to_agent=statement.to_agent):
            words_said = statement.sentence[trait.begin : trait.stop]
            whole = trait.begin == 0 and len(statement.sentence.rstrip(" .!")) <= trait.stop
            found.append(
                Claim(
                    trait.category,
                    trait.slot,
                    statement.text if whole else quote(statement.speaker, words_said),
                    words_said.rstrip(" .!"),
                    statement.message_ids,
                    statement.said_at.date().isoformat(),
                    trait,
                )
            )
    return found


def _read(item: Mapping[str, Any]) -> traits.Trait:
    """What an item of a profile sets, told from its evidence."""
    category, evidence = str(item.get("category", "")), str(item.get("evidence", ""))
    for trait in traits.traits_of(evidence, to_agent=True):
        if trait.category == category:
            return traits.settled(trait, evidence)
    value = frozenset({str(item.get("description", "")).casefold()})
    return traits.Trait(category, str(item.get("attribute", "")), 0, 0, value)


def _end(early: dict[str, Any], late: Mapping[str, Any], day: str) -> None:
    early["until"] = str(late.get("first_stated", day))
    early["superseded_by"] = str(late.get("description", ""))


def _holds_again(items: Iterable[Any], gone: Mapping[str, Any]) -> None:
    """Take the marks off what an item that is no more had ended."""
    for old in items:
        if not isinstance(old, dict) or old.get("until") != gone.get("first_stated"):
            continue
        same = gone.get("attribute") and old.get("attribute") == gone["attribute"]
        if old.get("superseded_by", gone.get("description") if same else None) == gone.get("description"):
            del old["until"]
            old.pop("superseded_by", None)


def withdrawn(items: Sequence[Any], claims: Sequence[Claim]) -> tuple[list[Any], bool]:
    """`items` without what rests on `claims` alone, and whether anything changed; what they ended holds again."""
    out = [dict(item) if isinstance(item, dict) else item for item in items]
    changed = False
    for claim in claims:
        for item in [i for i in out if isinstance(i, dict) and i.get("description") == claim.description]:
            ids = item.get("message_ids")
            if not isinstance(ids, list) or not set(claim.message_ids) & set(ids):
                continue
            changed = True
            item["message_ids"] = [one for one in ids if one not in claim.message_ids]
            item["count"] = max(_number(item.get("count")) - 1, 1)
            if item["message_ids"]:
                continue
            out.remove(item)
            _holds_again(out, item)
    return out, changed


def merged(items: Sequence[Any], claims: Sequence[Claim]) -> tuple[list[dict[str, Any]], bool]:
    """`items` (the explicit_info of a profile) with `claims` taken in, and whether anything changed.

    What was put in by hand (no message ids) is never touched. A claim from a message that is already evidence
    is not counted again.
    """
    out = [dict(item) for item in items if isinstance(item, dict)]
    changed = False
    for claim in claims:
        current = [i for i in out if "until" not in i and isinstance(i.get("message_ids"), list)]
        if any(
            set(claim.message_ids) & set(i["message_ids"]) and i.get("description") == claim.description
            for i in out
            if isinstance(i.get("message_ids"), list)
        ):
            continue
        same = next((i for i in current if _says_the_same(i, claim)), None)
        if same is not None:
            if set(claim.message_ids) <= set(same["message_ids"]):
                continue
            same["count"] = _number(same.get("count")) + 1
            same["last_stated"] = max(str(same.get("last_stated", "")), claim.day)
            same["message_ids"] = [*same["message_ids"], *claim.message_ids][-10:]
            changed = True
            continue
        made = {
            "category": claim.category,
            "description": claim.description,
            "evidence": claim.evidence,
            "count": 1,
            "first_stated": claim.day,
            "last_stated": claim.day,
            "message_ids": list(claim.message_ids),
        }
        if claim.slot:
            made["attribute"] = claim.slot
        mine = claim.read()
        for old in current:
            known, is_later = _read(old), str(old.get("last_stated", "")) <= claim.day
            if is_later and traits.replaces(mine, known):
                _end(old, made, claim.day)
            elif not is_later and traits.replaces(known, mine):
                _end(made, old, claim.day)
        out.append(made)
        changed = True
    while (
        len(out) > MAX_ITEMS
        and (spare := next((n for n, i in enumerate(out) if "until" in i), None)) is not None
    ):
        del out[spare]
    return out[:MAX_ITEMS], changed


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _says_the_same(item: dict[str, Any], claim: Claim) -> bool:
    known = str(item.get("description", ""))
    mine, old = claim.read(), _read(item)
    if mine.slot and (mine.slot, mine.value, mine.how) == (old.slot, old.value, old.how) and mine.said:
        return mine.said <= old.said  # it says the same again, and nothing more
    one, other = words.word_set(known), words.word_set(claim.description)
    alike = bool(one) and len(one & other) >= 0.8 * len(one | other)
    return alike and particulars(known) == particulars(claim.description)


def summary_of(items: Sequence[dict[str, Any]], name: str) -> str:
    """A sentence or two: the newest current statement of the categories that tell most."""
    current = [i for i in items if "until" not in i]
    picked = []
    for category in ("Instruction", "Identity", "Work", "Home", "Family", "Preference", "Goal", "Health"):
        mine = [i for i in current if i.get("category") == category]
        if mine:
            best = max(mine, key=lambda i: (_number(i.get("count")), str(i.get("last_stated", ""))))
            picked.append(str(best.get("description", "")))
    return " ".join(picked[:4]) or f"{name} has not said much about themself yet."


def body_of(items: Sequence[dict[str, Any]], summary: str) -> str:
    """The readable page: what holds now by category, then what used to."""
    lines = [summary, ""]
    for category in dict.fromkeys(str(i.get("category", "Other")) for i in items if "until" not in i):
        lines.append(f"## {category}")
        for item in items:
            if item.get("category") == category and "until" not in item:
                lines.append(f"- {item.get('description', '')}{_when(item)}")
        lines.append("")
    former = [i for i in items if "until" in i]
    if former:
        lines.append("## Earlier")
        lines += [
            f"- {i.get('description', '')} (until {i['until']}; stated {i.get('first_stated', '')})"
            for i in former
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _when(item: dict[str, Any]) -> str:
    first, last, count = (
        str(item.get("first_stated", "")),
        str(item.get("last_stated", "")),
        _number(item.get("count")),
    )
    if not first:
        return ""
    return f" ({first})" if count == 1 else f" (stated {count} times, {first} to {last})"


def with_block(body: str, block: str) -> str:
    """`body` with the machine's block renewed; whatever a person wrote stays where it is."""
    begin = f"{_BEGIN} sha256={hashlib.sha256(block.encode()).hexdigest()} -->\n"
    made = f"{begin}{block}{_END}\n"
    found = list(_BLOCK.finditer(body))
    if not found:
        kept = re.sub(r"<!-- cairn:profile:(?:begin[^>\n]*|end) -->\n?", "", body)
        return f"{kept.rstrip()}\n\n{made}" if kept.strip() else made
    last = found[-1]
    if hashlib.sha256(last.group(2).encode()).hexdigest() == last.group(1):
        return body[: last.start()] + made + body[last.end() :]
    # Someone edited inside the block: their text stays, without our markers, and ours goes beside it.
    return body[: last.start()] + last.group(2) + "\n" + made + body[last.end() :]


class ExtractUserProfile(Strategy):
    name = "extract_user_profile"
    purpose = "what a person said about themself, in one page"
    trigger = "cell"
    takes = frozenset({"episode"})
    writes_daily = False

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:  # noqa: ARG002 -- of all days
        claims: list[Claim] = []
        outcomes = []
        name = scope.owner
        for job in jobs:
            try:
                statements = kit.cells.statements(job.ask, kit.zone)
                found = _found(job.ask, statements, kit)
            except NotFound as gone:
                outcomes.append(Outcome(job, "skipped", str(gone)))
                continue
            name = next((s.speaker for s in statements if s.speaker_id == scope.owner), name)
            claims += found
            why = "" if found else f"{scope.owner} said nothing about themself"
            outcomes.append(Outcome(job, "wrote" if found else "skipped", why, ("user.md",) if found else ()))
        if claims:
            kit.notebook.rewrite(
                KINDS["profile"].locator(scope), lambda text: _rewritten(text, scope, name, claims)
            )
        return outcomes


def follow(scope: Scope, kit: Kit, before: Sequence[Sequence[Statement]], after: Sequence[Statement]) -> None:
    """Bring the profile from the statements of a cell as they were (the followed ones first) to those as they are."""
    *old, new = (
        [_redacted(claim, kit) for claim in claims_of(said, scope.owner)] for said in (*before, after)
    )
    gone = [claim for claims in old for claim in claims if claim not in new]
    come = [claim for claim in new if claim not in old[0]]
    if not gone and not come:
        return
    name = next((s.speaker for s in (*after, *before[0]) if s.speaker_id == scope.owner), scope.owner)
    kit.notebook.rewrite(
        KINDS["profile"].locator(scope),
        lambda text: _rewritten(text, scope, name, come, gone) if text is not None else None,
    )


def without_items(text: str, scope: Scope, goes: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """A profile without the items that go, its traits, summary and page made anew; None where none of them does.

    For `forget`: what an item had ended holds again, as with a claim that was taken back.
    """
    note = parse_note(text)
    known = note.frontmatter.get("explicit_info")
    items = [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []
    if not any(goes(one) for one in items):
        return None
    left = [dict(one) for one in items if not goes(one)]
    for gone in (one for one in items if goes(one)):
        _holds_again(left, gone)
    return _written(text, note, scope, scope.owner, left, 0)


def _rewritten(
    text: str | None, scope: Scope, name: str, claims: Sequence[Claim], gone: Sequence[Claim] = ()
) -> str | None:
    note = parse_note(text) if text else None
    if note is not None and note.head.fenced and not note.head.closed:
        return None
    old = note.frontmatter if note is not None else {}
    known = old.get("explicit_info")
    left, lost = withdrawn(known if isinstance(known, list) else [], gone)
    items, changed = merged(left, claims)
    if not changed and not lost:
        return None
    latest = max((c.day for c in claims), default="")
    stamp = int(datetime.fromisoformat(latest).replace(tzinfo=UTC).timestamp() * 1000) if latest else 0
    return _written(text, note, scope, name, items, stamp)


def _written(
    text: str | None,
    note: Note | None,
    scope: Scope,
    name: str,
    items: Sequence[dict[str, Any]],
    stamp: int,
) -> str:
    """The profile with these items; what a person wrote around them stays."""
    old = note.frontmatter if note is not None else {}
    summary = summary_of(items, name)
    hand = [
        t
        for t in old.get("implicit_traits") or []
        if isinstance(t, dict) and not str(t.get("trait", "")).startswith("[Recurring theme")
    ]
    before = old.get("profile_timestamp_ms")
    fields = {
        "summary": summary,
        "explicit_info": items,
        "implicit_traits": hand,
        "profile_timestamp_ms": max(stamp, before if isinstance(before, int) else 0),
    }
    block = body_of(items, summary)
    if text is None or note is None or not text.strip():
        return KINDS["profile"].document(scope, fields, with_block("", block))
    body = with_block(note.body, block)
    if not note.head.fenced:
        return KINDS["profile"].document(scope, fields, body)
    return frontmatter.in_head(note.text[: note.head.body], fields, note.head) + body


def _found(ask: StrategyAsk, statements: Sequence[Statement], kit: Kit) -> list[Claim]:
    mine = claims_of(statements, ask.scope.owner)
    if kit.writer is not None:
        cell = kit.cells.cell(ask)
        by_id = {m.id: m for m in cell.messages if m.sender_id == ask.scope.owner}
        answer = asking.ask(
            kit,
            "profile",
            f"The person: {ask.scope.owner}\n\n{asking.transcript(cell.messages, kit)}",
            _SCHEMA,
        )
        found = []
        for item in asking.items(answer, "items"):
            text, ids = asking.line(item.get("description")), asking.known_ids(item.get("message_ids"), by_id)
            category = asking.line(item.get("category"), 40) or "Other"
            if text and ids and asking.holds(text, asking.cited(ids, by_id, kit.zone)):
                at = datetime.fromtimestamp(by_id[ids[0]].timestamp / 1000, UTC).astimezone(kit.zone)
                told = traits.traits_of(by_id[ids[0]].text, to_agent=True)
                is_beside = any(trait.how == "add" and trait.category == category for trait in told)
                slot = "" if is_beside else asking.line(item.get("attribute"), 60).casefold()
                evidence = asking.line(by_id[ids[0]].text, 2000) or text
                found.append(Claim(category, slot, text, evidence, ids, at.date().isoformat()))
        mine = found or mine
    return [_redacted(claim, kit) for claim in mine]


def _redacted(claim: Claim, kit: Kit) -> Claim:
    return replace(claim, description=kit.redact(claim.description), evidence=kit.redact(claim.evidence))
