"""Evidence recall on five sorts of memory, beside plain BM25 and plain cosine: `python -m benchmarks variety`.

The sets stand in `_variety_sets.py`. Talk goes in through `add` and `flush`, notes as a Markdown file; questions
through `search`. BM25 runs over the same messages cut into the same words, cosine over the same messages embedded as
they are. The gate is judged too: how many of the questions pass `for_injection`, and how many unrelated ones.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._variety_sets import UNRELATED, Set, every
from cairn import BlockingMemory, config
from cairn.engines.embedders import choose
from cairn.index.postings import Postings, word_marks
from cairn.language import words

ASKED = 10
_START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def ingest(memory: BlockingMemory, root: Path, chosen: Set) -> None:
    """Put a set into a memory and wait until all of it is searchable by meaning."""
    if chosen.notes:
        _write_notes(root, chosen)
    for number, session in enumerate(() if chosen.notes else chosen.sessions):
        began = int((_START + timedelta(days=number)).timestamp() * 1000)
        messages = [
            {
                "sender_id": said.sender.lower(),
                "sender_name": said.sender.title(),
                "role": said.role,
                "timestamp": began + place * 30_000,
                "content": said.text,
            }
            for place, said in enumerate(session)
        ]
        memory.add(f"s{number}", messages)
        memory.flush(f"s{number}")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        result = memory.search("anything", user_id=chosen.owner, consistency="strong")
        if not any("vector" in note for note in result.freshness.notes):
            break


def _write_notes(root: Path, chosen: Set) -> None:
    """Entries as a person or an importer would leave them: one file per day, no session behind them."""
    folder = root / "default_app" / "default_project" / "users" / chosen.owner / "episodes"
    folder.mkdir(parents=True)
    for start in range(0, len(chosen.sessions), 20):
        day = (_START + timedelta(days=start // 20)).date()
        part = chosen.sessions[start : start + 20]
        head = (
            f"---\nid: episode_log_{chosen.owner}_{day}\ntype: episode_daily\nschema_version: 1\n"
            f"user_id: {chosen.owner}\ntrack: user\ndate: '{day}'\nentry_count: {len(part)}\n---\n"
        )
        text = [head]
        for place, (said,) in enumerate(part, start=1):
            name = f"ep_{day:%Y%m%d}_{place:08d}"
            text.append(
                f"<!-- entry:{name} -->\n## {name}\n\n**owner_id**: {chosen.owner}\n"
                f"**timestamp**: {day}T10:{place:02d}:00+00:00\n\n### Content\n{said.text}\n<!-- /entry:{name} -->\n"
            )
        (folder / f"episode-{day}.md").write_text("".join(text), encoding="utf-8")


def found_by(memory: BlockingMemory, chosen: Set, question: str, **options: Any) -> list[str]:
    """The texts the product answers with, best first."""
    if chosen.notes:
        hits = memory.search(question, user_id=chosen.owner, top_k=ASKED, **options).episodes
        return [str(hit.fields.get("Content", hit.text)).strip() for hit in hits]
    result = memory.search(question, user_id=chosen.owner, evidence=ASKED, top_k=5, **options)
    return [item.text for item in result.evidence or ()]


def judged(answers: Sequence[Sequence[str]], wanted: Sequence[str]) -> tuple[float, float]:
    """Recall among ten, and the mean reciprocal rank."""
    ranks = [
        list(dict.fromkeys(found)).index(text) + 1 if text in found else 0
        for found, text in zip(answers, wanted, strict=True)
    ]
    return (
        statistics.fmean(0 < rank <= ASKED for rank in ranks),
        statistics.fmean(1 / rank if rank else 0.0 for rank in ranks),
    )


def baselines(chosen: Set, embedder: Any) -> dict[str, list[list[str]]]:
    """What plain BM25 and plain cosine over the same texts answer."""
    texts = list(dict.fromkeys(said.text for session in chosen.sessions for said in session))
    postings = Postings().updated(
        [(n, "message", word_marks(words.tokens(text))) for n, text in enumerate(texts)]
    )
    out: dict[str, list[list[str]]] = {"bm25": [], "cosine": []}
    matrix = embedder.embed(texts)
    for question, _ in chosen.questions:
        scores = postings.scores(words.query_terms(question, limit=64))
        best = [i for i in np.argsort(-scores, kind="stable")[:ASKED] if scores[i] > 0]
        out["bm25"].append([texts[int(postings.rowids[i])] for i in best])
        near = matrix @ embedder.embed([question])[0]
        out["cosine"].append([texts[int(i)] for i in np.argsort(-near, kind="stable")[:ASKED]])
    return out


def run(args: argparse.Namespace) -> dict[str, Any]:
    table: dict[str, dict[str, float]] = {}
    for chosen in every():
        if args.quick and chosen.name != "group of six":
            continue
        folder = Path(tempfile.mkdtemp(prefix="cairn-variety-"))
        settings = config.load(folder, environ={})
        embedder = choose(settings)
        if embedder is None:
            raise SystemExit("it needs the local model: run `cairn model install`")
        with BlockingMemory(settings) as memory:
            ingest(memory, folder, chosen)
            asked = [question for question, _ in chosen.questions]
            wanted = [text for _, text in chosen.questions]
            ours = [found_by(memory, chosen, question) for question in asked]
            passed = [bool(found_by(memory, chosen, question, for_injection=True)) for question in asked]
            leaked = [bool(found_by(memory, chosen, question, for_injection=True)) for question in UNRELATED]
        others = baselines(chosen, embedder)
        row: dict[str, float] = {"questions": len(asked)}
        row["R@10"], row["MRR"] = judged(ours, wanted)
        for name, answers in others.items():
            row[f"{name} R@10"], row[f"{name} MRR"] = judged(answers, wanted)
        row["gate passes"], row["gate leaks"] = statistics.fmean(passed), statistics.fmean(leaked)
        table[chosen.name] = row
        shutil.rmtree(folder, ignore_errors=True)
    names = list(next(iter(table.values())))
    print(f"{'':20}" + "".join(f"{name:>13}" for name in names))
    for label, row in table.items():
        print(
            f"{label:20}"
            + "".join(f"{row[n]:>13.3f}" if n != "questions" else f"{row[n]:>13.0f}" for n in names)
        )
    return table
