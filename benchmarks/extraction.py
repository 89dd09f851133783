"""What is made of talk: facts, profile, what is current, dates. `make bench PART=extraction MODEL=...` asks a model, too.

The labelled talk stands in `_extraction.toml`, the sentences with dates in `tests/said_times.toml` and
`tests/said_elsewhen.toml`. Everything goes in
through `add` and `flush`; what came of it is read from the Markdown. The rules run first; with `--model NAME` the same
talk runs again with that model, at the endpoint of `[llm]` (`CAIRN_LLM__BASE_URL`, `CAIRN_LLM__API_KEY`), and the two
stand beside each other. A fact is held to its source as in the product: every name, number and most words of it must be in
the messages it cites.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn import BlockingMemory, config
from cairn.language import dates
from cairn.notes.format import list_items, parse_note
from cairn.strategies.asking import cited, holds
from cairn.talk.sessions import session_locator
from cairn.types import Message, Space

_SAID = datetime(2026, 4, 22, 9, 30, tzinfo=UTC)
_STRATEGIES = ("extract_atomic_facts", "extract_user_profile")
_HERE = Path(__file__).parent


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks extraction")
    parser.add_argument("--model", default="", help="the model's name at the endpoint of [llm]")
    chosen = parser.parse_args(args.rest)
    labels = tomllib.loads((_HERE / "_extraction.toml").read_text("utf-8"))
    figures: dict[str, Any] = {"rules": measured(labels, {}), "dates": dated()}
    if chosen.model:
        figures["model"] = {"name": chosen.model, **measured(labels, {"llm__model": chosen.model})}
    return figures


def measured(labels: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one way of extracting."""
    facts = [judged(talk, overrides) for talk in labels["talk"]]
    made, wanted = sum(one["facts"] for one in facts), sum(one["wanted"] for one in facts)
    changes, besides = (marked(labels[name], overrides) for name in ("changes", "besides"))
    return {
        "facts": made,
        "found": sum(one["found"] for one in facts) / wanted,
        "junk": sum(one["junk"] for one in facts) / max(made, 1),
        "held by their source": sum(one["held"] for one in facts) / max(made, 1),
        "profile": profiled(labels["profile"], overrides),
        "changes seen": changes / len(labels["changes"]),
        "wrongly ended": besides / len(labels["besides"]),
        "by talk": {talk["name"]: one for talk, one in zip(labels["talk"], facts, strict=True)},
    }


def extracted(
    sessions: Sequence[Sequence[tuple[str, str]]], overrides: Mapping[str, Any]
) -> tuple[dict[str, Message], Path]:
    """Talk put into a fresh root and thought about; its messages by id, and the root (the caller removes it)."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-extraction-"))
    settings = config.load(folder, **overrides) if overrides else config.load(folder, environ={})
    with BlockingMemory(settings, background=False) as memory:
        for number, session in enumerate(sessions):
            began = int((_SAID + timedelta(days=number)).timestamp() * 1000)
            said = [
                {
                    "sender_id": by.lower() if by.isascii() else "someone",
                    "sender_name": by,
                    "role": "assistant" if by == "Assistant" else "user",
                    "timestamp": began + place * 30_000,
                    "content": text,
                }
                for place, (by, text) in enumerate(session)
            ]
            memory.add(f"s{number}", said)
            memory.flush(f"s{number}")
        for name in _STRATEGIES:
            memory.trigger(name)
        messages = _messages(memory, len(sessions))
    return messages, folder


def _messages(memory: BlockingMemory, sessions: int) -> dict[str, Message]:
    log = memory.parts.sessions
    states = [log.load(session_locator(Space(), f"s{number}")) for number in range(sessions)]
    return {m.id: m for state in states for cell in state.cells for m in state.messages_of(cell)}


def entries(folder: Path) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Every fact in a root, once for each owner: whose it is, its fields and its text."""
    for note in sorted(folder.rglob(".atomic_facts/*.md")):
        for entry in parse_note(note.read_text("utf-8")).entries:
            yield note.parent.parent.name, entry.inline, entry.sections.get("Fact", "")


def judged(talk: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, int]:
    """Of one labelled talk: how many facts came, how many of those wanted, how much junk, how many held."""
    messages, folder = extracted([[(line["by"], line["says"]) for line in talk["lines"]]], overrides)
    keep = {line["says"]: line.get("keep", "") for line in talk["lines"]}
    by_text = {one.id: keep.get(one.text, "") for one in messages.values()}
    told = {text: list_items(inline.get("message_ids", "[]")) for _, inline, text in entries(folder)}
    facts = [(ids, text) for text, ids in told.items()]
    shutil.rmtree(folder, ignore_errors=True)
    wanted = {source: words for source, words in by_text.items() if words}
    found = sum(
        any(source in ids and all(word in text for word in words.split()) for ids, text in facts)
        for source, words in wanted.items()
    )
    junk = sum(not any(by_text.get(source) for source in ids) for ids, _ in facts)
    held = sum(holds(text, cited([i for i in ids if i in messages], messages, UTC)) for ids, text in facts)
    return {"facts": len(facts), "wanted": len(wanted), "found": found, "junk": junk, "held": held}


def profiled(labels: Mapping[str, str], overrides: Mapping[str, Any]) -> float:
    """The share of statements that stand in the profile under their category."""
    talk = [[("Ana", text), ("Assistant", "Sure.")] for text in labels]
    _, folder = extracted(talk, overrides)
    items = _items(folder)
    shutil.rmtree(folder, ignore_errors=True)
    found = {(str(one["category"]), str(one["evidence"]).rstrip(".。")) for one in items}
    good = [
        any(kind == category and said and said in text.rstrip(".。") for kind, said in found)
        for text, category in labels.items()
    ]
    return sum(good) / len(good)


def _items(folder: Path) -> list[Mapping[str, Any]]:
    page = next(iter(folder.rglob("users/ana/user.md")), None)
    return list(parse_note(page.read_text("utf-8")).frontmatter["explicit_info"]) if page else []


def marked(pairs: Mapping[str, str], overrides: Mapping[str, Any]) -> int:
    """In how many pairs, each told by somebody of their own, the earlier fact is marked as over."""
    talk = [
        [(f"P{number}", text), ("Assistant", "Ok.")]
        for number, pair in enumerate(pairs.items())
        for text in pair
    ]
    _, folder = extracted(talk, overrides)
    over = {owner for owner, inline, _ in entries(folder) if "superseded_by" in inline}
    shutil.rmtree(folder, ignore_errors=True)
    return len(over)


def dated() -> dict[str, float]:
    """Of sentences whose days are known: how many come out wrong, and how many of the resolvable ones come out."""
    tests = _HERE.parent / "tests"
    said = {f"{_SAID:%Y-%m-%d}": tomllib.loads((tests / "said_times.toml").read_text("utf-8"))}
    said |= tomllib.loads((tests / "said_elsewhen.toml").read_text("utf-8"))
    total = wrong = resolvable = resolved = 0
    for day, text, days in (
        (day, text, days)
        for day, languages in said.items()
        for sentences in languages.values()
        for text, days in sentences.items()
    ):
        at = datetime.fromisoformat(f"{day}T09:30:00+00:00")
        found = [(m.start.isoformat(), m.end.isoformat()) for m in dates.mentions(text, at)]
        told = " + ".join(start if start == end else f"{start}..{end}" for start, end in found)
        total += 1
        wrong += bool(told) and told != days
        resolvable += bool(days)
        resolved += bool(days) and told == days
    return {"sentences": total, "wrong": wrong, "resolved": resolved / resolvable}
