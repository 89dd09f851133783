"""Memories of kinds that nothing was fitted on: a diary, support tickets, an agent's log, four languages, long documents."""

import statistics
from collections import defaultdict

import pytest
from benchmarks.transfer import BASELINES, Plain, Served, judged, written

import cairn
from cairn import config
from cairn.engines import minilm
from cairn.engines.embedders import MiniLM
from cairn.retrieval.answers import tokens_of

KINDS = {kind: memory for memory, kind in written()}


class InProcess:
    """What `Served` asks of a server, answered by an open memory."""

    def __init__(self, memory: cairn.BlockingMemory) -> None:
        self.memory = memory

    def post(self, name: str, **body: object) -> object:
        return getattr(self.memory, name)(**body)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = minilm.installed(config.models_dir())
    if folder is None:
        pytest.skip("the local model is not installed: run `make setup`")
    with cairn.open_blocking(tmp_path_factory.mktemp("kinds") / "root", background=False) as memory:
        for kind, one in KINDS.items():
            Served(InProcess(memory), kind).ingest(one)
        memory.sync()  # all vectors are there: a question waits for them for some seconds only
        yield memory, MiniLM(folder, threads=2)


def asked(memory, kind, text, **more):
    served = Served(InProcess(memory), kind)
    return served.ask(KINDS[kind], text, consistency="strong", **more)


@pytest.mark.parametrize("kind", KINDS)
def test_what_answers_is_found(opened, kind):
    """Among the first five there is at least as much of it as any plain baseline has, and nearly all within 500 tokens."""
    memory, model = opened
    one = KINDS[kind]
    cost = {unit.id: tokens_of(f"{unit.speaker}: {unit.text}") for unit in one.units}
    by_time = {unit.ts: unit.id for unit in one.units}
    plain = Plain(one, model)
    scored = defaultdict(list)
    for question in one.questions:
        evidence = asked(memory, kind, question.text, evidence=20).evidence
        found = [by_time[round(item.timestamp.timestamp() * 1000)] for item in evidence]
        for name, answer in {"ours": found, **plain.answers(question.text)}.items():
            scored[name].append(judged(answer, question.gold, cost))
    mean = {name: statistics.fmean(row["R@5"] for row in rows) for name, rows in scored.items()}
    assert mean["ours"] >= max(mean[name] for name in BASELINES), mean
    assert statistics.fmean(row["R@500t"] for row in scored["ours"]) >= 0.9


def test_what_is_known_is_told_and_what_others_are_asked_is_not(opened):
    """Of all kinds together: most questions are answered in 800 tokens, few of another memory's are."""
    memory, _ = opened
    bounded = {"evidence": 5, "for_injection": True, "token_budget": 800}
    own, foreign = [], []
    for kind, one in KINDS.items():
        for question in one.questions:
            result = asked(memory, kind, question.text, **bounded)
            own.append(bool(result.evidence or result.episodes))
        others = [q.text for name, other in KINDS.items() if name != kind for q in other.questions[::4]]
        for text in others:
            result = asked(memory, kind, text, **bounded)
            foreign.append(bool(result.evidence or result.episodes))
    assert statistics.fmean(own) >= 0.85
    assert statistics.fmean(foreign) <= 0.1
