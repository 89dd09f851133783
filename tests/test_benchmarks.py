"""The benchmarks measure what they say, and the page says what they measured."""

import json
import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks import extraction, transfer
from benchmarks._client import Client, Server, milliseconds, together
from benchmarks._sets import load
from benchmarks._targets import TARGETS, rows, summary

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
    told = transfer.judged(["a", "b", "c"], ["b", "z"], {"a": 300, "b": 150, "c": 100})
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
    [memory] = load(tmp_path)["chats"]
    assert memory.units[0].text == "Tea is at four." and memory.questions[0].gold == ("1",)
    plain = transfer.Plain(memory, HashingEmbedder())
    assert plain.bm25("When is tea?") == ["1"] == plain.cosine("tea") and plain.bm25("sandals") == []
    assert plain.answers("When is tea?") == {"bm25": ["1"], "cosine": ["1"], "fused": ["1"]}
    cost = {"a": 300, "b": 250, "c": 10}
    found = transfer.judged(["a", "b", "c"], ["b", "c"], cost)
    assert (found["MRR"], found["R@5"], found["R@500t"]) == (0.5, 1.0, 0.0)
    small = transfer.needles(31)
    assert len(small.units) == 31 == len(small.questions) == len({q.text for q in small.questions})
    assert set(transfer.shipped()) == {
        "31 identifiers", "200 identifiers", "coding agent", "user and assistant", "group of six", "four languages",
        "a diary", "support tickets", "a code agent's log", "a household in four languages", "long documents"
    }  # fmt: skip
    assert all(question.gold for memory, _ in transfer.written() for question in memory.questions)


def test_published_sets_are_read_as_they_are(tmp_path):
    """LoCoMo, BEAM, QMSum and MemDaily: who spoke, when, and which messages answer; what cannot be scored stays out."""
    talk = {
        "speaker_a": "Ann", "speaker_b": "Ben", "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"dia_id": "D1:1", "speaker": "Ann", "text": "Look!", "blip_caption": "a red kite"},
            {"dia_id": "D1:2", "speaker": "Ben", "text": "Lovely."},
        ],
    }  # fmt: skip
    asked = [
        {"question": "What did Ann show?", "evidence": ["D1:1; D9:9"], "category": 4},
        {"question": "Who?", "evidence": ["D1:2"], "category": 5},
    ]
    said = [
        {"role": role, "id": n, "time_anchor": day, "content": text}
        for role, n, day, text in (
            ("user", 0, "March-15-2024", "I use Flask. ->-> 1,2"),
            ("assistant", 1, None, "Good."),
        )
    ]
    probes = {
        "knowledge_update": [{"question": "What do I use?", "source_chat_ids": {"old": [0], "new": [1]}}],
        "abstention": [{"question": "Who is my boss?"}],
        "summarization": [{"question": "Sum up.", "source_chat_ids": [0]}],
    }
    meeting = {
        "meeting_transcripts": [{"speaker": "PM", "content": "So {vocalsound} the cost ."}] * 3,
        "specific_query_list": [{"query": "What of the cost?", "relevant_text_span": [["1", "2"]]}],
    }
    diary = {
        "tid": 4,
        "message_list": [{"mid": 0, "time": "2024年04月07日08:01", "message": "地点是上海。"}],
        "question_list": [{"question": "在哪里？", "target_step_id": [0]}],
    }
    files = {
        "talk.json": [{"sample_id": "conv-1", "conversation": talk, "qa": asked}],
        "100K-1-chat.json": [{"turns": [said]}],
        "100K-1-q.json": probes,
        "notes/01.json": [diary],
    }
    (tmp_path / "notes").mkdir()
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "val.jsonl").write_text(json.dumps(meeting) + "\n", encoding="utf-8")
    found = {kind: one for kind, [one] in load(tmp_path).items()}
    assert set(found) == {"locomo", "assistant", "meetings", "notes_zh"}
    assert [unit.text for unit in found["locomo"].units] == ["Look! [shared image: a red kite]", "Lovely."]
    assert [(q.text, q.gold, q.cat) for q in found["locomo"].questions] == [
        ("What did Ann show?", ("D1:1",), "single-hop")
    ]
    chat = found["assistant"]
    assert [(unit.speaker, unit.text) for unit in chat.units] == [
        ("Sam", "I use Flask."),
        ("assistant", "Good."),
    ]
    assert [(q.text, q.gold) for q in chat.questions] == [
        ("What do I use?", ("0", "1")),
        ("Who is my boss?", ()),
    ]
    assert datetime.fromtimestamp(chat.units[0].ts / 1000, UTC).isoformat() == "2024-03-15T09:00:00+00:00"
    assert (
        found["meetings"].questions[0].gold == ("1", "2")
        and found["meetings"].units[0].text == "So the cost ."
    )
    assert found["notes_zh"].questions[0].gold == ("0",) and found["notes_zh"].owner == "小王"
    assert all(len({u.ts for u in one.units}) == len(one.units) for one in found.values())
