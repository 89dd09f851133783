"""Governed memories asked over HTTP, beside plain baselines: `python -m benchmarks beliefs`.

    _beliefs.toml ─> a real server (memories, supersede) ─> memories/search, the same for a prompt, recall, a hook's recall
                  └> BM25 above 0, cosine above .3, same texts ┴─> precision, recall, exact sets, MRR, silence

Of each answer it counts what is in it, not only what comes first: what an agent is given has to be right, and nothing where
nothing answers. `--kinds` takes some of the memories, `--misses` prints what was answered wrongly, `--fitted` asks those that
the gate was fitted on besides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._client import Client, Server
from benchmarks.transfer import settled
from cairn import config
from cairn.engines.embedders import choose
from cairn.index.postings import Postings, word_marks
from cairn.language import words

SETS = Path(__file__).parent / "_beliefs.toml"
FITTED = Path(__file__).parent / "_beliefs_fitted.toml"
NEAR = 0.3  # the cosine from which the plainest baseline takes an answer
HOOK_TOKENS = 600
MEASURES = ("precision", "recall", "exact", "MRR", "silent")
PRODUCT = ("search", "for_injection", "recall", "hook")
Answer = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Beliefs:
    """One memory of governed entries: what was kept, in order, and what is asked of it."""

    kind: str
    owner: str
    scope: str
    kept: Sequence[tuple[str, str, str]]
    replaced: Mapping[str, str]
    superseded: Sequence[tuple[str, str]]
    against: Sequence[tuple[str, str]]
    asks: Sequence[tuple[str, tuple[str, ...]]]
    silent: Sequence[str]

    @property
    def project(self) -> str:
        return self.kind.replace(" ", "-")


def load(kinds: Sequence[str] = (), sets: Path = SETS) -> list[Beliefs]:
    """The memories of `_beliefs.toml`, or of another such file, all or those of some kinds."""
    found = []
    for one in tomllib.loads(sets.read_text("utf-8"))["memory"]:
        pairs = [tuple(pair) for pair in (*one["superseded"], *one["against"])]
        found.append(
            Beliefs(
                kind=one["kind"],
                owner=one["owner"],
                scope=one["scope"],
                kept=[tuple(entry) for entry in one["kept"]],
                replaced={earlier: later for later, earlier in pairs},
                superseded=[tuple(pair) for pair in one["superseded"]],
                against=[tuple(pair) for pair in one["against"]],
                asks=[(text, tuple(names.split())) for text, names in one["asks"]],
                silent=one["silent"],
            )
        )
    return [one for one in found if not kinds or one.kind in kinds]


class Asked:
    """The product behind HTTP with one memory in it; `told` are the changes of mind that `remember` named."""

    def __init__(self, client: Client, beliefs: Beliefs) -> None:
        self.client, self.beliefs = client, beliefs
        self.names: dict[str, str] = {}
        self.told: list[bool] = []
        where = {"project_id": beliefs.project, "scope": beliefs.scope}
        self.where = where | ({} if beliefs.scope == "project" else {"owner": beliefs.owner})
        ids: dict[str, str] = {}
        after = dict(beliefs.superseded)
        expected = dict(beliefs.against)
        for name, category, text in beliefs.kept:
            if name in after:
                old = ids[after[name]]
                verdict = self._post(f"memories/{old}/supersede", content=text, reason="it changed")
            else:
                verdict = self._post("memories", content=text, category=category)
            if name in expected:
                self.told.append(ids[expected[name]] in (verdict.get("contradicts", ())))
            row = verdict["memory"]
            ids[name] = row["id"]
            self.names[row["id"]] = name
        settled(client)

    def _post(self, path: str, **body: Any) -> dict[str, Any]:
        at = self.where if not path.endswith("supersede") else {}
        query = "&".join(f"{name}={value}" for name, value in self.where.items())
        target = f"/api/v1/{path}" + ("" if at else f"?{query}")
        status, answer = self.client.request("POST", target, json.dumps(at | body).encode())
        if status not in {200, 201}:
            raise RuntimeError(f"{path}: {status} {answer[:300]!r}")
        data: dict[str, Any] = json.loads(answer)["data"]
        return data

    def search(self, query: str) -> list[str]:
        return self._named(self._post("memories/search", query=query)["memories"])

    def for_injection(self, query: str) -> list[str]:
        return self._named(self._post("memories/search", query=query, for_injection=True)["memories"])

    def recall(self, query: str, **more: Any) -> list[str]:
        body = {"query": query, "project_id": self.beliefs.project, **more}
        if self.beliefs.scope != "project":
            body["user_id"] = self.beliefs.owner
        status, answer = self.client.request("POST", "/api/v1/recall", json.dumps(body).encode())
        if status != 200:
            raise RuntimeError(f"recall: {status} {answer[:300]!r}")
        return self._named(json.loads(answer)["data"]["items"])

    def hook(self, query: str) -> list[str]:
        """What the hook of a coding agent asks at each prompt."""
        return self.recall(query, agent_id="coder", open_talk=False, token_budget=HOOK_TOKENS)

    def _named(self, found: Sequence[Mapping[str, Any]]) -> list[str]:
        return [self.names.get(one["id"], one["id"]) for one in found]


class Plain:
    """The two plainest rules over the same texts."""

    def __init__(self, beliefs: Beliefs, embedder: Any) -> None:
        self.names = [name for name, _, _ in beliefs.kept]
        texts = [text for _, _, text in beliefs.kept]
        rows = [(n, "message", word_marks(words.tokens(text))) for n, text in enumerate(texts)]
        self.postings, self.embedder = Postings().updated(rows), embedder
        self.vectors = embedder.embed(texts)

    def bm25(self, query: str) -> list[str]:
        scores = self.postings.scores(words.query_terms(query, limit=64))
        best = [place for place in np.argsort(-scores, kind="stable") if scores[place] > 0]
        return [self.names[int(self.postings.rowids[place])] for place in best]

    def cosine(self, query: str) -> list[str]:
        near = self.vectors @ self.embedder.embed([query])[0]
        return [self.names[int(n)] for n in np.argsort(-near, kind="stable") if near[n] > NEAR]


def judged(found: Sequence[str], right: Sequence[str], replaced: Mapping[str, str]) -> dict[str, float]:
    """How right one answer is; what was replaced counts for nothing behind what replaced it.

    >>> judged(["new", "old"], ["new"], {"old": "new"})["exact"], judged(["old", "new"], ["new"], {"old": "new"})["exact"]
    (1.0, 0.0)
    """
    shown = [
        name
        for place, name in enumerate(found)
        if name in right or name not in replaced or replaced[name] not in found[:place]
    ]
    ranks = [place for place, name in enumerate(shown, 1) if name in right]
    return {
        "precision": len(ranks) / len(shown) if shown else 0.0,
        "recall": len(ranks) / len(right),
        "exact": float(len(ranks) == len(right) == len(shown)),
        "MRR": 1 / ranks[0] if ranks else 0.0,
    }


def measure(beliefs: Beliefs, asked: Asked, plain: Plain, *, misses: bool = False) -> dict[str, Any]:
    """The figures of every way to ask, and of the baselines."""
    ways: dict[str, Answer] = {name: getattr(asked, name) for name in PRODUCT}
    ways |= {"bm25": plain.bm25, "cosine": plain.cosine}
    out: dict[str, Any] = {"asked": len(beliefs.asks), "unanswerable": len(beliefs.silent)}
    former = {later: earlier for earlier, later in beliefs.replaced.items()}
    for name, answer in ways.items():
        asked.client.close()  # a server does not hold an idle connection for as long as embedding may take
        found = [(text, right, answer(text)) for text, right in beliefs.asks]
        nothing = [(text, answer(text)) for text in beliefs.silent]
        scored = [judged(shown, right, beliefs.replaced) for _, right, shown in found]
        row = {what: statistics.fmean(one[what] for one in scored) for what in MEASURES[:-1]}
        row["silent"] = statistics.fmean(not shown for _, shown in nothing)
        leads = [
            right[0] in shown and former[right[0]] not in shown[: shown.index(right[0])]
            for _, right, shown in found
            if right[0] in former
        ]
        out[name] = row | {"current_leads": statistics.fmean(leads or [1.0])}
        if misses and name in {"search", "for_injection", "recall"}:
            for (text, right, shown), one in zip(found, scored, strict=True):
                if one["exact"] < 1 and (name != "search" or one["MRR"] < 1):
                    print(f"    {name}: {text!r} wants {' '.join(right)}: {' '.join(shown[:6])}")
            for text, shown in nothing:
                if shown and name != "search":
                    print(f"    {name}: {text!r} wants nothing: {' '.join(shown[:6])}")
    out["contradictions_told"] = statistics.fmean(asked.told or [1.0])
    return out


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks beliefs")
    parser.add_argument("--kinds", help="only these, divided by commas")
    parser.add_argument("--misses", action="store_true", help="print what was answered wrongly")
    parser.add_argument(
        "--fitted", action="store_true", help="ask the memories of _beliefs_fitted.toml instead"
    )
    more = parser.parse_args(args.rest)
    table: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cairn-beliefs-") as folder:
        root = Path(folder) / "root"
        embedder = choose(config.load(root, environ={}))
        if embedder is None:
            raise SystemExit("it needs the local model: run `cairn model install`")
        with Server.cairn(root) as server:
            for beliefs in load(more.kinds.split(",") if more.kinds else (), FITTED if more.fitted else SETS)[
                : 1 if args.quick else None
            ]:
                asked = Asked(server.client(), beliefs)
                table[beliefs.kind] = measure(beliefs, asked, Plain(beliefs, embedder), misses=more.misses)
                _tell(beliefs.kind, table[beliefs.kind])
    told = statistics.fmean(row["contradictions_told"] for row in table.values())
    return {"kinds": table, "mean": means(list(table.values())), "contradictions_told": told}


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each way to ask the mean over the memories."""
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    for name in (*PRODUCT, "bm25", "cosine"):
        for what in (*MEASURES, "current_leads"):
            sums[name][what] = statistics.fmean(row[name][what] for row in rows)
    return dict(sums)


def _tell(kind: str, row: Mapping[str, Any]) -> None:
    print(f"\n{kind}: {row['asked']} questions, {row['unanswerable']} that nothing answers")
    columns = (*MEASURES, "current_leads")
    print(f"{'':26}" + "".join(f"{what:>14}" for what in columns))
    for name in (*PRODUCT, "bm25", "cosine"):
        print(f"{name:26}" + "".join(f"{row[name][what]:>14.3f}" for what in columns))
    print(f"  contradictions told: {row['contradictions_told']:.3f}", flush=True)
