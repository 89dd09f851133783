"""Evidence recall on LoCoMo through the product: `python -m benchmarks locomo --data PATH`.

The data set (CC BY-NC) is not part of the project and is only read from the path given. A question's evidence are
the turns an annotator marked; recall is the share of them among the messages that `search` returns as evidence.
No language model is involved.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.locomo_adapter import Cairn
from cairn.retrieval.answers import tokens_of

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
ASKED, BUDGET = 20, 500


@dataclass
class Turn:
    dia_id: str
    speaker: str
    body: str
    session: int
    date: datetime


@dataclass
class Conversation:
    sample_id: str
    speakers: tuple[str, str]
    turns: list[Turn]
    questions: list[tuple[str, set[str], int]] = field(default_factory=list)


def load(path: Path) -> list[Conversation]:
    """The conversations of a LoCoMo file; questions without usable evidence and adversarial ones are left out."""
    found = []
    for sample in json.loads(path.read_text(encoding="utf-8")):
        talk = sample["conversation"]
        turns = []
        numbers = sorted(
            int(key.split("_")[1]) for key in talk if re.fullmatch(r"session_\d+", key) and talk[key]
        )
        for number in numbers:
            stamp = talk[f"session_{number}_date_time"].strip().lower().replace(",", "")
            day = datetime.strptime(stamp, "%I:%M %p on %d %B %Y")  # noqa: DTZ007 -- the data names no zone
            for item in talk[f"session_{number}"]:
                shared = f" [shared image: {item['blip_caption']}]" if item.get("blip_caption") else ""
                turns.append(
                    Turn(item["dia_id"], item["speaker"], item["text"].strip() + shared, number, day)
                )
        known = {turn.dia_id for turn in turns}
        made = Conversation(sample["sample_id"], (talk["speaker_a"], talk["speaker_b"]), turns)
        for asked in sample["qa"]:
            marks = [
                f"D{int(a)}:{int(b)}" for e in asked["evidence"] for a, b in re.findall(r"D:?(\d+):(\d+)", e)
            ]
            evidence = {mark for mark in marks if mark in known}
            if evidence and asked["category"] in CATEGORIES:
                made.questions.append((asked["question"], evidence, asked["category"]))
        found.append(made)
    return found


def judge(results: Sequence[Sequence[str]], evidence: set[str], cost: dict[str, int]) -> dict[str, float]:
    """Recall at 5, 10 and 20 results and within a token budget, and the reciprocal rank of the first right one."""
    covered: set[str] = set()
    spent = 0
    out = {"R@5": 0.0, "R@10": 0.0, "R@20": 0.0, "MRR": 0.0, "tok@10": 0.0, f"R@{BUDGET}t": 0.0}
    for rank, item in enumerate(results, start=1):
        new = evidence & set(item)
        if new and not covered:
            out["MRR"] = 1 / rank
        covered |= new
        spent += sum(cost[turn] for turn in item)
        share = len(covered) / len(evidence)
        for cut in (5, 10, 20):
            if rank <= cut:
                out[f"R@{cut}"] = share
        if rank <= 10:
            out["tok@10"] = spent
        if spent <= BUDGET:
            out[f"R@{BUDGET}t"] = share
    return out


def run(args: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks locomo")
    parser.add_argument("--data", required=True, type=Path, help="a LoCoMo file")
    parser.add_argument(
        "--limit", type=int, default=0, help="ask only so many questions of each conversation"
    )
    chosen = parser.parse_args(list(args))
    scored: list[tuple[str, int, dict[str, float]]] = []
    seconds: list[float] = []
    ingest = 0.0
    system = Cairn()
    turns = 0
    for conversation in load(chosen.data):
        began = time.perf_counter()
        system.ingest(conversation)
        ingest += time.perf_counter() - began
        turns += len(conversation.turns)
        cost = {turn.dia_id: tokens_of(f"{turn.speaker}: {turn.body}") for turn in conversation.turns}
        for text, evidence, category in conversation.questions[: chosen.limit or None]:
            began = time.perf_counter()
            results = system.search(text, ASKED)
            seconds.append(time.perf_counter() - began)
            scored.append((conversation.sample_id, category, judge(results, evidence, cost)))
    system.close()
    groups: dict[str, list[dict[str, float]]] = {"all": [one for _, _, one in scored]}
    for sample, category, one in scored:
        groups.setdefault(CATEGORIES[category], []).append(one)
        groups.setdefault(sample, []).append(one)
    names = list(scored[0][2])
    table = {
        group: {"n": len(ones), **{name: statistics.fmean(one[name] for one in ones) for name in names}}
        for group, ones in groups.items()
    }
    print(f"{'':14}{'n':>5}" + "".join(f"{name:>9}" for name in names))
    for group, row in table.items():
        print(
            f"{group:14}{row['n']:>5}"
            + "".join(f"{row[name]:>9.0f}" if "tok@" in name else f"{row[name]:>9.3f}" for name in names)
        )
    p50 = statistics.median(seconds) * 1000
    print(
        f"ingest {turns / ingest:.0f} turns/s with extraction, indexing and embedding; search p50 {p50:.1f} ms"
    )
    return {"table": table, "search_p50_ms": p50, "turns_per_second": turns / ingest}
