"""Evidence recall on LoCoMo through HTTP, beside plain baselines: `python -m benchmarks locomo --data PATH`.

The data set (CC BY-NC) is not part of the project and is only read from the path given. A question's evidence are
the turns an annotator marked; recall is the share of them among the messages that `search` returns as evidence.
Conversations go into a real server through `add` and `flush`, session by session, both speakers as senders; questions
are asked as one of the two, in whose memory the shared sessions lie. No language model is involved.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks._client import Server
from benchmarks._sets import load
from benchmarks.transfer import Plain, Served, best_of, judged, means, print_measures, settled
from cairn import config
from cairn.engines.embedders import choose
from cairn.retrieval.answers import tokens_of


def run(args: argparse.Namespace) -> dict[str, Any]:
    if not args.data:
        raise SystemExit("it needs the data: --data PATH of a LoCoMo file")
    parser = argparse.ArgumentParser(prog="benchmarks locomo")
    parser.add_argument("--engine", default="auto", help="who answers: auto, memory or lancedb")
    environ = {"CAIRN_INDEX__ENGINE": parser.parse_args(args.rest).engine}
    if environ["CAIRN_INDEX__ENGINE"] == "lancedb":
        environ["CAIRN_INDEX__MEMORY_ROWS"] = "0"  # whoever asks waits for LanceDB to be loaded
    conversations = load(Path(args.data)).get("locomo", [])
    if not conversations:
        raise SystemExit(f"no LoCoMo file in {args.data}")
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory(prefix="cairn-locomo-") as folder:
        embedder = choose(config.load(Path(folder) / "root", environ={}))
        if embedder is None:
            raise SystemExit("it needs the local model: run `cairn model install`")
        with Server.cairn(Path(folder) / "root", **environ) as server:
            client = server.client()
            served = Served(client, "locomo")
            began = time.perf_counter()
            for memory in conversations:
                served.ingest(memory)
            settled(served.client)
            ingest = time.perf_counter() - began
            for memory in conversations:
                cost = {unit.id: tokens_of(f"{unit.speaker}: {unit.text}") for unit in memory.units}
                plain = Plain(memory, embedder)
                client.close()  # a server does not hold an idle connection for as long as that may take
                for question in memory.questions[: 10 if args.quick else None]:
                    began = time.perf_counter()
                    ours = judged(served.search(memory, question.text), question.gold, cost)
                    seconds.append(time.perf_counter() - began)
                    for group in ("all", question.cat, memory.id):
                        groups[group].append(ours)
                    for name, found in plain.answers(question.text).items():
                        groups[name].append(judged(found, question.gold, cost))
    table = {group: {"n": len(ones), **means(ones)} for group, ones in groups.items()}
    print_measures({f"{group} ({row['n']})": row for group, row in table.items()})
    p50 = statistics.median(seconds) * 1000
    speed = sum(len(memory.units) for memory in conversations) / ingest
    print(f"{speed:.0f} turns/s until their vectors are in; a question over HTTP takes {p50:.1f} ms (p50)")
    return {"table": table, "best": best_of(table), "search_p50_ms": p50, "turns_per_second": speed}
