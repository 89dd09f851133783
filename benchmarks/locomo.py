"""Evidence recall on LoCoMo through the product: `python -m benchmarks locomo --data PATH`.

The data set (CC BY-NC) is not part of the project and is only read from the path given. A question's evidence are
the turns an annotator marked; recall is the share of them among the messages that `search` returns as evidence.
Conversations go in through `add` and `flush`, session by session, both speakers as senders; questions are asked
as one of the two, in whose memory the shared sessions lie. No language model is involved.

`Cairn` alone serves other harnesses: anything with `ingest(conversation)` and `search(question, k)` in it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn import BlockingMemory, config
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


class Cairn:
    """The product as a system to be measured. A fresh folder for each conversation, removed afterwards."""

    name = "cairn"

    def __init__(self, opts: dict[str, Any] | None = None) -> None:
        self.opts = opts or {}
        self.memory: BlockingMemory | None = None

    def ingest(self, conv: Any) -> None:
        """Take in a conversation: `speakers`, and `turns` with `dia_id`, `speaker`, `body`, `session` and `date`."""
        self.close()
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-locomo-"))
        chosen = {"CAIRN_INDEX__ENGINE": self.opts.get("engine", "auto")}
        if chosen["CAIRN_INDEX__ENGINE"] == "lancedb":
            chosen["CAIRN_INDEX__MEMORY_ROWS"] = "0"  # whoever asks waits for LanceDB to be loaded
        self.memory = BlockingMemory(config.load(self.folder, environ=chosen)).__enter__()
        self.owner = _id(conv.speakers[0])
        self.ids: dict[str, list[str]] = {}
        sessions = defaultdict(list)
        for turn in conv.turns:
            sessions[turn.session].append(turn)
        for number, turns in sessions.items():
            session = f"session-{number}"
            self.ids[session] = [turn.dia_id for turn in turns]
            began = int(turns[0].date.replace(tzinfo=UTC).timestamp() * 1000)
            said = [
                {
                    "sender_id": _id(turn.speaker),
                    "sender_name": turn.speaker,
                    "role": "user",
                    "timestamp": began + place * 20_000,
                    "content": turn.body,
                }
                for place, turn in enumerate(turns)
            ]
            for start in range(0, len(said), 100):
                self.memory.add(session, said[start : start + 100])
            self.memory.flush(session)
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            result = self.memory.search("anything", user_id=self.owner, consistency="strong")
            if not any("vector" in note for note in result.freshness.notes):
                break
        if self.opts.get("engine") == "lancedb":
            self.memory.sync()

    def search(self, query: str, k: int) -> list[list[str]]:
        assert self.memory is not None
        result = self.memory.search(query, user_id=self.owner, evidence=k, top_k=5)
        return [[self.ids[e.session_id][int(e.message_id.rpartition("_")[2])]] for e in result.evidence or ()]

    def close(self) -> None:
        if self.memory is not None:
            self.memory.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.memory = None


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", name.lower()) or "someone"


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


def run(args: argparse.Namespace) -> dict[str, Any]:
    if not args.data:
        raise SystemExit("it needs the data: --data PATH of a LoCoMo file")
    limit = 10 if args.quick else None
    scored: list[tuple[str, int, dict[str, float]]] = []
    seconds: list[float] = []
    ingest = 0.0
    parser = argparse.ArgumentParser(prog="benchmarks locomo")
    parser.add_argument("--engine", default="auto", help="who answers: auto, memory or lancedb")
    system = Cairn({"engine": parser.parse_args(args.rest).engine})
    turns = 0
    for conversation in load(Path(args.data)):
        began = time.perf_counter()
        system.ingest(conversation)
        ingest += time.perf_counter() - began
        turns += len(conversation.turns)
        cost = {turn.dia_id: tokens_of(f"{turn.speaker}: {turn.body}") for turn in conversation.turns}
        for text, evidence, category in conversation.questions[:limit]:
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
