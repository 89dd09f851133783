"""Ranking and gate on memories of other kinds, over HTTP, beside plain baselines: `python -m benchmarks transfer`.

    memories ─> a real server (add, flush, search) ┐
             ─> BM25, cosine, both fused, same units ┴─> one table for each kind

`--data PATH` reads LoCoMo, BEAM, QMSum and MemDaily as they are published (`_sets.py`), and memories of your own: one
file for each kind, `<kind>.jsonl`, a memory in each line,

    {"id": "m1", "owner": "Sam",
     "units": [{"id": "1", "session": "s1", "speaker": "Sam", "role": "user", "ts": 1760000000000, "text": "..."}],
     "questions": [{"text": "...", "gold": ["1"], "cat": "single"}]}

where `gold` names the units that answer and no gold means that nothing does. Without data the memories of `_kinds.toml`, the
made-up sets of `_variety_sets.py` and identifiers among near-identical lines stand in; a kind with one memory is asked what
the other kinds are asked. Beside the ranking stand the gate (questions of
another memory of the same kind, unrelated prompts in six languages, memories of one, three and ten notes) and prompts of
800 tokens.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._client import Client, Server
from benchmarks._gate_sets import EVERY, FIRST
from benchmarks._sets import Memory, Question, Unit, load
from benchmarks._variety_sets import assistant, coding, group, tongues
from cairn import config
from cairn.engines.embedders import choose
from cairn.index.postings import Postings, word_marks
from cairn.language import words
from cairn.retrieval.answers import tokens_of

ASKED, BUDGET = 20, 500
PROMPT_TOKENS = 800
FOREIGN = 40  # questions of other memories that each memory is asked
KEPT = Path(__file__).parent.parent / "docs" / "benchmarks" / "transfer.json"
COSTED = 200  # searches whose processor time is taken, at most
UNRELATED = 2  # memories of each kind that are asked what has nothing to do with them
MEASURES = ("R@5", "R@10", "R@20", "hit@10", "P@10", "MRR", "tok@10", "R@500t")
BASELINES = ("bm25", "cosine", "fused")
_START = 1_760_000_000_000


# ---- memories ---------------------------------------------------------------------------------------------------


def shipped() -> dict[str, list[Memory]]:
    """Small memories of our own: other seeds of the sets of `variety`, and identifiers."""
    out = identifiers()
    for memory, kind in written():
        out[kind] = [memory]
    for make in (coding, assistant, group, tongues):
        for number, seed in enumerate((11, 12)):
            chosen = make(seed)
            units = [
                Unit(
                    f"{s}-{n}",
                    f"s{s}",
                    said.sender,
                    said.role,
                    _START + 86_400_000 * s + 30_000 * n,
                    said.text,
                )
                for s, session in enumerate(chosen.sessions)
                for n, said in enumerate(session)
            ]
            places: dict[str, list[str]] = defaultdict(list)
            for unit in units:
                places[unit.text].append(unit.id)
            asked = [Question(text, tuple(places[answer])) for text, answer in chosen.questions]
            out.setdefault(chosen.name, []).append(Memory(f"{number}", chosen.owner, units, asked))
    return out


def written() -> Iterator[tuple[Memory, str]]:
    """The memories of `_kinds.toml`, each with its kind."""
    for one in tomllib.loads((Path(__file__).parent / "_kinds.toml").read_text("utf-8"))["memory"]:
        units = []
        for number, session in enumerate(one["session"]):
            began = int(datetime.fromisoformat(f"{session['day']}T09:00:00+00:00").timestamp() * 1000)
            for place, (speaker, role, text) in enumerate(session["said"]):
                units.append(
                    Unit(f"{number}-{place}", f"s{number}", speaker, role, began + 40_000 * place, text)
                )
        asked = []
        for question in one["questions"]:
            gold = tuple(unit.id for unit in units if any(words in unit.text for words in question["gold"]))
            asked.append(Question(question["ask"], gold))
        yield Memory("1", one["owner"], units, asked), one["kind"]


def identifiers() -> dict[str, list[Memory]]:
    """Exact names in a new memory and in one of some size."""
    return {f"{count} identifiers": [needles(count)] for count in (31, 200)}


def needles(count: int, seed: int = 3) -> Memory:
    """Lines of a log that differ in one identifier, and a question for every third of them."""
    pick = random.Random(seed)
    makes = (
        lambda: f"E{pick.randint(100, 999)}-{pick.randint(10, 99)}",
        lambda: f"{pick.getrandbits(32):08x}",
        lambda: f"lib/{pick.choice(('net', 'disk', 'auth'))}/part_{pick.randint(10, 99)}.c",
        lambda: f"{pick.randint(1, 9)}.{pick.randint(0, 20)}.{pick.randint(0, 20)}",
        lambda: f"zone{pick.randint(10, 9999)}",
    )
    units: list[Unit] = []
    asked: list[Question] = []
    seen: set[str] = set()
    while len(units) < count:
        name = makes[len(units) % len(makes)]()
        if name in seen:
            continue
        seen.add(name)
        who, role = (("Ada", "user"), ("assistant", "assistant"))[len(units) % 2]
        text = (
            f"During the evening shift we looked into {name} once more; it had been reported by the second team, "
            "the log was long and said little, and after a restart everything went through as it should."
        )
        units.append(
            Unit(str(len(units)), f"d{len(units) // 20}", who, role, _START + 60_000 * len(units), text)
        )
        asked.append(Question(f"What did we find out about {name}?", (units[-1].id,)))
    return Memory(f"{count}", "Ada", units, asked if count < 50 else asked[::3])


# ---- systems ----------------------------------------------------------------------------------------------------


class Served:
    """The product behind HTTP: each memory is a project of its own."""

    def __init__(self, client: Client, kind: str) -> None:
        self.client = client
        self.kind = re.sub(r"[^a-z0-9]+", "-", kind.lower())

    def project(self, memory: Memory) -> str:
        return f"{self.kind}-{_id(memory.id)}".replace("_", "-")

    def ingest(self, memory: Memory) -> None:
        sessions: dict[str, list[Unit]] = defaultdict(list)
        for unit in memory.units:
            sessions[unit.session].append(unit)
        for session, said in sessions.items():
            where = {"session_id": f"{memory.id}-{session}", "project_id": self.project(memory)}
            messages = [
                {
                    "sender_id": _id(unit.speaker),
                    "sender_name": unit.speaker,
                    "role": unit.role,
                    "timestamp": unit.ts,
                    "content": unit.text,
                    **({"tool_call_id": f"call-{unit.id}"} if unit.role == "tool" else {}),
                }
                for unit in said
            ]
            for start in range(0, len(messages), 100):
                self.client.post("add", **where, messages=messages[start : start + 100])
            self.client.post("flush", **where)

    def ask(self, memory: Memory, query: str, **more: Any) -> dict[str, Any]:
        body = {"user_id": _id(memory.owner), "project_id": self.project(memory), "query": query, **more}
        return self.client.post("search", **body)

    def search(self, memory: Memory, query: str) -> list[str]:
        by_time = {unit.ts: unit.id for unit in memory.units}
        found = self.ask(memory, query, evidence=ASKED, top_k=10)["evidence"]
        return [by_time.get(_moment(item["timestamp"]), "?") for item in found]


def settled(client: Client, limit: float = 3600.0) -> None:
    """Wait until nothing is pending: neither a change nor a vector."""
    deadline = time.monotonic() + limit
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        _, body = client.request("GET", "/health")
        cascade = json.loads(body)["cascade"]
        quiet = quiet + 1 if cascade["pending"] == 0 and cascade["state"] == "fresh" else 0
        time.sleep(0.3)


class Plain:
    """BM25 and cosine over the same units, each as "speaker: text"."""

    def __init__(self, memory: Memory, embedder: Any) -> None:
        self.memory, self.embedder = memory, embedder
        texts = [f"{unit.speaker}: {unit.text}" for unit in memory.units]
        self.postings = Postings().updated(
            [(n, "message", word_marks(words.tokens(text))) for n, text in enumerate(texts)]
        )
        self.vectors = embedder.embed(texts)

    def bm25(self, query: str) -> list[str]:
        scores = self.postings.scores(words.query_terms(query, limit=64))
        best = [i for i in np.argsort(-scores, kind="stable")[:ASKED] if scores[i] > 0]
        return [self.memory.units[int(self.postings.rowids[i])].id for i in best]

    def cosine(self, query: str) -> list[str]:
        near = self.vectors @ self.embedder.embed([query])[0]
        return [self.memory.units[int(i)].id for i in np.argsort(-near, kind="stable")[:ASKED]]

    def answers(self, query: str) -> dict[str, list[str]]:
        """What each baseline finds; `fused` adds 1 / (60 + rank) of the other two, as LanceDB's hybrid does."""
        out = {"bm25": self.bm25(query), "cosine": self.cosine(query)}
        worth: dict[str, float] = defaultdict(float)
        for found in out.values():
            for rank, unit in enumerate(found):
                worth[unit] += 1 / (60 + rank)
        return {**out, "fused": sorted(worth, key=lambda unit: -worth[unit])[:ASKED]}


def _id(name: str) -> str:
    return re.sub(r"[^a-z0-9_.@+-]", "_", name.lower()) or "someone"


def _moment(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


# ---- judging ----------------------------------------------------------------------------------------------------


def judged(found: Sequence[str], gold: Sequence[str], cost: Mapping[str, int]) -> dict[str, float]:
    """Recall, hit, reciprocal rank and recall within a token budget of one answer.

    >>> judged(["a", "b"], ["b"], {"a": 10, "b": 600})["MRR"], judged(["a", "b"], ["b"], {"a": 10, "b": 600})["R@500t"]
    (0.5, 0.0)
    """
    right = set(gold)
    ranks = [place for place, unit in enumerate(found[:ASKED], 1) if unit in right]
    spent = list(itertools.accumulate(cost.get(unit, 0) for unit in found[:ASKED]))
    return {
        **{f"R@{cut}": sum(rank <= cut for rank in ranks) / len(right) for cut in (5, 10, 20)},
        "hit@10": float(any(rank <= 10 for rank in ranks)),
        "P@10": sum(rank <= 10 for rank in ranks) / 10,
        "MRR": 1 / ranks[0] if ranks else 0.0,
        "tok@10": float(spent[min(10, len(spent)) - 1]) if spent else 0.0,
        f"R@{BUDGET}t": sum(spent[rank - 1] <= BUDGET for rank in ranks) / len(right),
    }


def means(judgements: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(one[name] for one in judgements) for name in MEASURES}


def best_of(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Of each measure what the best of the baselines has."""
    return {name: max(table[one][name] for one in BASELINES) for name in MEASURES}


def measure(
    kind: str, memories: Sequence[Memory], server: Server, embedder: Any, elsewhere: Sequence[Memory] = ()
) -> dict[str, Any]:
    """One kind of memory: ranking beside the baselines, the gate, bounded prompts, and what a search costs."""
    client = server.client()
    served = Served(client, kind)
    for memory in memories:
        served.ingest(memory)
    settled(client)
    scored: dict[str, list[dict[str, float]]] = defaultdict(list)
    by_cat: dict[str, list[dict[str, float]]] = defaultdict(list)
    let_in: list[bool] = []
    empty: list[bool] = []
    for memory in memories:
        cost = {unit.id: tokens_of(f"{unit.speaker}: {unit.text}") for unit in memory.units}
        plain = Plain(memory, embedder)
        client.close()  # a server does not hold an idle connection for as long as that may take
        for question in memory.questions:
            if not question.gold:
                continue
            systems = {"cairn": served.search(memory, question.text)}
            for name, found in (systems | plain.answers(question.text)).items():
                scored[name].append(judged(found, question.gold, cost))
            by_cat[question.cat].append(scored["cairn"][-1])
            let_in.append(answered(served, memory, question.text))
            bounded = served.ask(
                memory, question.text, evidence=5, token_budget=PROMPT_TOKENS, for_injection=True
            )
            empty.append(not bounded["prompt"])
    foreign = [
        answered(served, memory, text) for memory, text in other_peoples_questions(memories, elsewhere)
    ]
    out: dict[str, Any] = {name: means(ones) for name, ones in scored.items()}
    out["best"] = best_of(out)
    out["questions"] = len(let_in)
    out["categories"] = {cat: means(ones) for cat, ones in by_cat.items() if cat}
    out["gate"] = {"answerable": statistics.fmean(let_in), "foreign_asked": len(foreign)}
    out["gate"] |= {"foreign": statistics.fmean(foreign)} if foreign else {}
    # What is asked all day, of memories as large as they are: in the small ones of `silence` little is near by chance.
    out["gate"]["unrelated"] = {
        language: statistics.fmean(
            answered(served, memory, text) for memory in memories[:UNRELATED] for text in kept.unrelated
        )
        for language, kept in EVERY.items()
    }
    out["empty_prompts"] = statistics.fmean(empty)
    again = [(memory, question.text) for memory in memories for question in memory.questions][-COSTED:]
    for memory, text in again:
        served.search(memory, text)
    before = server.cpu_seconds()
    for memory, text in again:  # its vectors are known by now: what is left is the search
        served.search(memory, text)
    out["search_cpu_ms"] = 1e3 * (server.cpu_seconds() - before) / len(again)
    return out


def answered(served: Served, memory: Memory, query: str) -> bool:
    """Whether anything at all would be put into a prompt."""
    data = served.ask(memory, query, evidence=5, top_k=5, for_injection=True)
    return bool(data["prompt"])


def other_peoples_questions(
    memories: Sequence[Memory], elsewhere: Sequence[Memory] = ()
) -> Iterator[tuple[Memory, str]]:
    """For each memory an even choice of what the others of its kind are asked; of one that is alone, what others are."""
    for memory in memories:
        others = [
            question.text
            for other in (memories if len(memories) > 1 else elsewhere)
            if other is not memory
            for question in other.questions
            if question.gold
        ]
        own = {question.text for question in memory.questions}
        others = [text for text in others if text not in own]
        yield from ((memory, text) for text in others[:: max(1, len(others) // FOREIGN)][:FOREIGN])


def silence(client: Client) -> dict[str, dict[str, float]]:
    """For each language how much of what is unrelated is answered, and how much of what is known."""
    out = {}
    for language, kept in EVERY.items():
        units = [
            Unit(str(n), f"s{n}", "Alice", "user", _START + 86_400_000 * n, text)
            for n, text in enumerate(kept.notes)
        ]
        memory = Memory(language, "Alice", units)
        served = Served(client, "silence")
        served.ingest(memory)
        settled(client)
        own = [
            any(
                item["text"] == kept.notes[place]
                for item in served.ask(memory, text, evidence=5, for_injection=True)["evidence"]
            )
            for text, place in kept.questions
        ]
        out[language] = {
            "answered": statistics.fmean(own),
            "unrelated_answered": statistics.fmean(answered(served, memory, text) for text in kept.unrelated),
        }
    return out


def first_steps(client: Client, sizes: Sequence[int] = (1, 3, 10)) -> dict[str, dict[str, float]]:
    """For each language and size of a small memory how much of what it holds is told, and of what is unrelated."""
    told: dict[str, list[bool]] = defaultdict(list)
    leaked: dict[str, list[bool]] = defaultdict(list)
    served = Served(client, "first")
    for number, first in enumerate(FIRST):
        unrelated = EVERY[first.language].unrelated
        for size in sizes:
            key = f"{first.language}, {size}"
            for start in range(0, len(first.notes) - size + 1, size):
                chosen = first.notes[start : start + size]
                units = [
                    Unit(str(n), f"s{n}", first.name, "user", _START + 86_400_000 * n, note)
                    for n, (note, _) in enumerate(chosen)
                ]
                memory = Memory(f"{number}-{size}-{start}", first.name, units)
                served.ingest(memory)
                settled(client)
                for note, asked in chosen:
                    for text in asked:
                        found = served.ask(memory, text, evidence=5, for_injection=True)["evidence"]
                        told[key].append(any(item["text"] == note for item in found))
                leaked[key] += [answered(served, memory, text) for text in unrelated[start % 3 :: 3]]
    return {
        key: {
            "asked": len(told[key]),
            "told": statistics.fmean(told[key]),
            "unrelated_answered": statistics.fmean(leaked[key]),
        }
        for key in told
    }


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks transfer")
    parser.add_argument("--kinds", help="only these, divided by commas")
    parser.add_argument("--add", action="store_true", help="keep the figures of other kinds that are there")
    more = parser.parse_args(args.rest)
    chosen = more.kinds
    kinds = {**load(Path(args.data)), **identifiers()} if args.data else shipped()
    if chosen:
        kinds = {name: kinds[name] for name in chosen.split(",")}
    if args.quick:
        kinds = {name: memories[:1] for name, memories in list(kinds.items())[:1]}
    kept = json.loads(KEPT.read_text("utf-8"))["figures"] if more.add and KEPT.exists() else {}
    table: dict[str, Any] = dict(kept.get("kinds", {}))
    with tempfile.TemporaryDirectory(prefix="cairn-transfer-") as folder:
        root = Path(folder) / "root"
        embedder = choose(config.load(root, environ={}))
        if embedder is None:
            raise SystemExit("it needs the local model: run `cairn model install`")
        with Server.cairn(root) as server:
            client = server.client()
            for kind, memories in kinds.items():
                others = (
                    [] if args.data else [one for name, ones in kinds.items() if name != kind for one in ones]
                )
                table[kind] = measure(kind, memories, server, embedder, others)
                _tell(kind, table[kind])
            quiet = kept.get("silence", {}) if args.quick or chosen else silence(client)
            small = kept.get("first", {}) if args.quick or chosen else first_steps(client)
    for language, shares in quiet.items():
        print(f"{language}: answered {shares['answered']:.3f}, unrelated {shares['unrelated_answered']:.3f}")
    for key, shares in small.items():
        print(f"{key} notes: told {shares['told']:.3f}, unrelated {shares['unrelated_answered']:.3f}")
    return {"kinds": table, "silence": quiet, "first": small, "worst": worst(table, quiet)}


def worst(table: Mapping[str, Any], quiet: Mapping[str, Any]) -> dict[str, float]:
    """The least favourable figure over all kinds, for the lines that hold for each of them."""
    out = {}
    for name in ("MRR", "R@10", "hit@10"):
        gains = [row["cairn"][name] - row["best"][name] for row in table.values()]
        out[f"{name} above the best baseline"] = min(gains)
    out["answerable let through"] = min(row["gate"]["answerable"] for row in table.values())
    foreign = [row["gate"]["foreign"] for row in table.values() if "foreign" in row["gate"]]
    if foreign:
        out["foreign answered"] = max(foreign)
    out["empty prompts"] = max(row["empty_prompts"] for row in table.values())
    unrelated = [one["unrelated_answered"] for one in quiet.values()]
    unrelated += [share for row in table.values() for share in row["gate"].get("unrelated", {}).values()]
    if unrelated:
        out["unrelated answered"] = max(unrelated)
    return out


def print_measures(shown: Mapping[str, Mapping[str, float]]) -> None:
    """A line for each name, a column for each measure."""
    print(f"{'':26}" + "".join(f"{name:>8}" for name in MEASURES))
    for name, one in shown.items():
        print(
            f"{name:26}" + "".join(f"{one[m]:>8.0f}" if "tok@" in m else f"{one[m]:>8.3f}" for m in MEASURES)
        )


def _tell(kind: str, row: Mapping[str, Any]) -> None:
    print(f"\n{kind}: {row['questions']} questions")
    shown = {**{name: row[name] for name in ("cairn", *BASELINES)}, **row["categories"]}
    print_measures({name if name in row else f"  {name}": one for name, one in shown.items()})
    gate = row["gate"]
    print(
        f"  gate: answerable {gate['answerable']:.3f}, of another memory {gate.get('foreign', float('nan')):.3f} of"
        f" {gate['foreign_asked']}; prompts of {PROMPT_TOKENS} tokens empty {row['empty_prompts']:.3f};"
        f" {row['search_cpu_ms']:.1f} ms of the server's processor time for a search; unrelated"
        + "".join(f" {language} {share:.3f}" for language, share in gate["unrelated"].items()),
        flush=True,
    )
