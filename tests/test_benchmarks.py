"""The benchmarks measure what they say, and the page says what they measured."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks import extraction, transfer
from benchmarks._client import Client, Server, milliseconds, together
from benchmarks._targets import TARGETS, rows, summary
from benchmarks.locomo import judge

from cairn.engines.embedders import HashingEmbedder
from tests.fake_model import FakeModel

KEPT = sorted(bench.RESULTS.glob("*.json"))


def test_every_part_has_targets_and_a_section_with_a_table():
    """A part that nobody can find on the page would be a figure nobody reads."""
    page = (bench.DOCS / "benchmarks.md").read_text("utf-8")
    assert set(TARGETS) == set(bench.parts())
    for part in bench.parts():
        assert f"\n## {part}\n" in page
        assert f"<!-- table:{part} -->" in page or not TARGETS[part]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_the_page_shows_the_kept_figures(file):
    """Tables are made from the figures: editing one by hand, or forgetting to, fails here."""
    page = (bench.DOCS / "benchmarks.md").read_text("utf-8")
    kept = json.loads(file.read_text("utf-8"))
    front = (bench.DOCS.parent / "README.md").read_text("utf-8")
    assert bench.with_table(page, kept) == page
    assert bench.with_headline(front, kept) == front
    assert {"part", "date", "command", "machine", "figures"} <= set(kept)
    assert file.with_suffix(".png").exists()
    assert file.with_suffix(".svg").exists()


def test_a_missed_target_is_said():
    """A line compares in its own direction, and a figure that was not taken is left out rather than guessed."""
    figures = {"cold start": {"seconds": 1.2, "idle RSS MB": 90.0}, "adds/s by clients": {"8": 700}}
    lines = {line["what"]: line["met"] for line in summary("http", figures)}
    assert lines == {"cold start to first answer": False, "idle memory": True, "adds/s, 8 clients": True}
    shown = rows(summary("http", figures))
    assert any("**missed**" in row for row in shown)
    assert len({len(row) for row in shown}) == 1


def test_a_data_path_is_not_kept(tmp_path, monkeypatch):
    """Where somebody keeps a data set is no part of the figures."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    kept = bench.save("locomo", {}, ["locomo", "--data", "/somewhere/of/mine.json"], [1.0, 1.5])
    assert kept["command"] == "python -m benchmarks locomo --data PATH"
    assert "somewhere" not in (tmp_path / "locomo.json").read_text("utf-8")


def test_a_part_without_its_data_is_skipped_with_a_reason(capsys):
    """LoCoMo is not ours to ship: without a path the part says so and the run is marked."""
    assert bench.main(["locomo", "--no-save"]) == 1
    assert "skipped: it needs the data" in capsys.readouterr().out


def test_the_client_and_the_floor_speak_http():
    """The load client reads whole answers over one socket, and counts what several callers got done."""
    with Server.echo() as echo:
        client = Client(echo.port, prefix="")
        for size in (0, 1, 100_000):
            data = client.post("echo", session_id="s", messages=["x" * size] * 2)
            assert data == {"message_count": 2}
        assert client.request("GET", "/nowhere")[0] == 404
        with pytest.raises(RuntimeError, match="404"):
            client.post("nowhere")
        client.close()

        def work(_number, go_on):
            mine, done = Client(echo.port, prefix=""), 0
            while go_on():
                mine.post("echo")
                done += 1
            mine.close()
            return done

        rate, done = together(3, 0.2, work)
        assert done >= 3
        assert rate > 0


def test_a_failing_caller_fails_the_load():
    """A load that swallowed errors would praise a server that refuses everything."""

    def work(_number, _go_on):
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        together(2, 0.1, work)


def test_a_server_that_does_not_start_is_told():
    """The part is skipped with the command, not left waiting."""
    with pytest.raises(SystemExit, match="did not come up"):
        Server([sys.executable, "-c", "raise SystemExit(3)"], 9)


def test_quantiles_and_recall_are_what_they_say():
    """Small cases by hand."""
    assert milliseconds([0.001, 0.002, 0.009]) == 2.0
    assert milliseconds([0.001, 0.002, 0.009], 1.0) == 9.0
    told = judge([["a"], ["b"], ["c"]], {"b", "z"}, {"a": 300, "b": 150, "c": 100})
    assert (told["MRR"], told["R@5"], told["R@500t"], told["tok@10"]) == (0.5, 0.5, 0.5, 550)


def test_pictures_need_only_kept_figures(tmp_path):
    """Every kept part can be drawn again, and says where and when it was measured."""
    pytest.importorskip("matplotlib")
    from benchmarks import _plots

    for file in KEPT:
        kept = json.loads(file.read_text("utf-8"))
        conditions = bench.conditions(kept)
        assert re.search(r"\d+ cores, Python 3", conditions)
        assert _plots.draw(kept["part"], kept["figures"], tmp_path, conditions).startswith("plot:")
        assert (tmp_path / f"{file.stem}.svg").stat().st_size < 200_000
    assert len(list(Path(tmp_path).glob("*.png"))) == len(KEPT)


def test_extraction_is_measured_with_and_without_a_model(monkeypatch):
    """The labelled talk gives figures by rules alone, and with a model through its endpoint; both are held to the words."""
    labels = tomllib.loads((Path(extraction.__file__).parent / "_extraction.toml").read_text("utf-8"))
    small = {name: dict(list(labels[name].items())[:2]) for name in ("profile", "changes", "besides")} | {
        "talk": labels["talk"][3:4]
    }
    rules = extraction.measured(small, {})
    assert (rules["found"], rules["junk"], rules["held by their source"]) == (1.0, 0.0, 1.0)
    assert (rules["profile"], rules["changes seen"], rules["wrongly ended"]) == (1.0, 1.0, 0.0)
    with FakeModel(answer=lambda body: {}) as model:
        monkeypatch.setenv("CAIRN_LLM__BASE_URL", model.url)
        told = extraction.measured(small, {"llm__model": "fake"})
    assert any("You extract facts" in request["messages"][0]["content"] for request in model.requests)
    assert told["held by their source"] == 1.0


def test_a_memory_of_ones_own_is_read_and_judged(tmp_path):
    """`transfer --data`: one memory a line; recall, rank and budget are what a hand would count."""
    unit = {"id": "1", "session": "s", "speaker": "Sam", "role": "user", "ts": 1, "text": "Tea is at four."}
    line = {
        "id": "m",
        "owner": "Sam",
        "units": [unit],
        "questions": [{"text": "When is tea?", "gold": ["1"]}],
    }
    (tmp_path / "chats.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    [memory] = transfer.load(tmp_path)["chats"]
    assert memory.units[0].text == "Tea is at four." and memory.questions[0].gold == ("1",)
    plain = transfer.Plain(memory, HashingEmbedder())
    assert plain.bm25("When is tea?") == ["1"] == plain.cosine("tea") and plain.bm25("sandals") == []
    cost = {"a": 300, "b": 250, "c": 10}
    found = transfer.judged(["a", "b", "c"], ["b", "c"], cost)
    assert (found["MRR"], found["R@5"], found["R@500t"]) == (0.5, 1.0, 0.0)
    small = transfer.needles(31)
    assert len(small.units) == 31 == len(small.questions) == len({q.text for q in small.questions})
    assert set(transfer.shipped()) == {
        "31 identifiers", "200 identifiers", "coding agent", "user and assistant", "group of six", "four languages"
    }  # fmt: skip
