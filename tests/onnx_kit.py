"""A small sentence encoder as a folder: real files in the layout in which such models are published."""

import json
from pathlib import Path

import numpy as np

WORDS = (
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "wohnt",
    "lebt",
    "Lissabon",
    "Katze",
    "кошка",
    "猫",
    "size",
    "one",
    "text",
)
WIDTH = 8


def make_folder(
    folder: Path, *, inputs=("input_ids", "attention_mask"), pooled=False, first=False, seed=3
) -> Path:
    """One vector for each word, with `<pad>` far from all others, so that padding which is counted shows."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    (folder / "onnx").mkdir(parents=True)
    table = np.random.default_rng(seed).standard_normal((len(WORDS), WIDTH)).astype(np.float32)
    table[1] = 1000
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "n", WIDTH])]
    constants = [numpy_helper.from_array(table, "table")]
    if pooled:
        constants.append(numpy_helper.from_array(np.array([1], np.int64), "along"))
        nodes.append(
            helper.make_node("ReduceMean", ["last_hidden_state", "along"], ["sentence_embedding"], keepdims=0)
        )
        outputs = [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", WIDTH])]
    taken = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "n"]) for name in inputs]
    graph = helper.make_graph(nodes, "encoder", taken, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(made, str(folder / "onnx" / "model.onnx"))
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    tokenizer.save(str(folder / "tokenizer.json"))
    if first:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return folder
