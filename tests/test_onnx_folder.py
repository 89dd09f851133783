"""An encoder in a folder of one's own: loaded, checked, told apart from others, and used by search."""

import json
from pathlib import Path

import numpy as np
import pytest

import cairn
from cairn import config
from cairn.engines.embedders import choose
from cairn.engines.onnx_folder import OnnxFolder
from cairn.errors import Misconfigured, Unavailable
from tests.onnx_kit import WIDTH, make_folder


def said(text: str) -> dict[str, object]:
    return {"sender_id": "ada", "role": "user", "timestamp": 1_760_000_000_000, "content": text}


def test_a_text_gets_the_same_vector_alone_and_beside_longer_ones(tmp_path: Path):
    """Padding does not count, though the graph has a vector for it."""
    model = OnnxFolder(str(make_folder(tmp_path / "m")))
    alone = model.embed(["Katze"])
    beside = model.embed(["Katze", "wohnt lebt Lissabon size one text"])
    assert alone.shape == (1, WIDTH)
    assert np.allclose(alone[0], beside[0])
    assert np.allclose(np.linalg.norm(beside, axis=1), 1)


@pytest.mark.parametrize("inputs", [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")])
def test_graphs_with_fewer_or_more_inputs_run(tmp_path: Path, inputs: tuple[str, ...]):
    assert OnnxFolder(str(make_folder(tmp_path / "m", inputs=inputs))).embed(["Katze", ""]).shape == (
        2,
        WIDTH,
    )


def test_a_graph_that_pools_by_itself_is_taken_at_its_word(tmp_path: Path):
    assert OnnxFolder(str(make_folder(tmp_path / "m", pooled=True))).embed(["Katze wohnt"]).shape == (
        1,
        WIDTH,
    )


def test_pooling_follows_the_file_that_says_so(tmp_path: Path):
    """With the first piece alone, texts that begin alike are alike: all begin with the same mark here."""
    first = OnnxFolder(str(make_folder(tmp_path / "first", first=True)))
    mean = OnnxFolder(str(make_folder(tmp_path / "mean")))
    assert np.allclose(*first.embed(["Katze", "Lissabon"]))
    assert not np.allclose(*mean.embed(["Katze", "Lissabon"]))


def test_every_text_begins_as_the_model_wants(tmp_path: Path):
    folder = make_folder(tmp_path / "m")
    plain = OnnxFolder(str(folder))
    begun = {"prompts": {"query": "one "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(begun))
    model = OnnxFolder(str(folder))
    assert np.allclose(model.embed(["Katze"]), plain.embed(["one Katze"]))
    assert model.id != plain.id


def test_another_graph_in_the_same_place_is_another_model(tmp_path: Path):
    """Vectors of the two are never compared."""
    one = OnnxFolder(str(make_folder(tmp_path / "a" / "m")))
    other = OnnxFolder(str(make_folder(tmp_path / "b" / "m", seed=4)))
    assert one.id.startswith("m/")
    assert one.id != other.id
    assert one.id == OnnxFolder(str(tmp_path / "a" / "m")).id


def test_words_it_has_no_pieces_for_are_not_believed(tmp_path: Path):
    model = OnnxFolder(str(make_folder(tmp_path / "m")))
    assert model.grasps("кошка") == 1
    assert model.grasps("dunno whatever") == 0


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda folder: (folder / "onnx" / "model.onnx").unlink(), "no graph"),
    ],
)
def test_what_is_missing_in_the_folder_is_named(tmp_path: Path, spoil, named: str):
    folder = make_folder(tmp_path / "m")
    spoil(folder)
    with pytest.raises(Misconfigured, match=named):
        OnnxFolder(str(folder))


def test_a_folder_that_is_not_named_or_not_there_is_refused(tmp_path: Path):
    with pytest.raises(Misconfigured, match=r"embedding\.model"):
        OnnxFolder("")
    with pytest.raises(Misconfigured, match="is no folder"):
        OnnxFolder(str(tmp_path / "gone"))


def test_a_graph_that_is_none_and_one_for_something_else_are_refused(tmp_path: Path):
    folder = make_folder(tmp_path / "m")
    (folder / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        OnnxFolder(str(folder)).embed(["Katze"])
    with pytest.raises(Unavailable, match="pixel_values"):
        OnnxFolder(str(make_folder(tmp_path / "picture", inputs=("input_ids", "pixel_values")))).embed(
            ["Katze"]
        )


def test_it_is_one_setting_and_a_switch_embeds_anew(tmp_path: Path):
    """Added under one model, asked by meaning under another, both from their folders."""
    root, folders = tmp_path / "root", [make_folder(tmp_path / name, seed=n) for n, name in enumerate("ab")]
    for number, folder in enumerate(folders):
        settings = config.load(
            root, environ={"CAIRN_EMBEDDING__PROVIDER": "onnx", "CAIRN_EMBEDDING__MODEL": str(folder)}
        )
        model = choose(settings)
        assert model is not None
        assert model.id.startswith(folder.name)
        with cairn.BlockingMemory(settings, background=False) as memory:
            if not number:
                memory.add("s1", [said("Katze wohnt Lissabon")])
                memory.flush("s1")
            found = memory.search("Katze lebt", user_id="ada", method="vector", consistency="strong")
        assert "Katze" in found.episodes[0].fields["Content"]


def test_a_broken_folder_leaves_search_to_words_and_doctor_names_it(tmp_path: Path):
    settings = config.load(
        tmp_path / "root",
        environ={"CAIRN_EMBEDDING__PROVIDER": "onnx", "CAIRN_EMBEDDING__MODEL": str(tmp_path / "gone")},
    )
    with cairn.BlockingMemory(settings, background=False) as memory:
        memory.add("s1", [said("Katze wohnt Lissabon")])
        memory.flush("s1")
        found = memory.search("Katze", user_id="ada", consistency="strong")
        told = [one["what"] for one in memory.doctor()]
    assert found.episodes
    assert any("is no folder" in what for what in told)
