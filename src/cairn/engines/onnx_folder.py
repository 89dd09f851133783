"""A sentence encoder in a folder of one's own, run by onnxruntime: `embedding.provider = "onnx"`, `model` is the folder.

The folder is laid out as such models are published: `tokenizer.json`, and the graph as `model.onnx`, there or below
`onnx/`. The graph takes `input_ids` and `attention_mask` (`token_type_ids` are zeros where it wants them) and gives a vector
for each text, or one for each piece, which are then pooled as `1_Pooling/config.json` says, by their mean without it.
`sentence_bert_config.json` says where texts are cut, `config_sentence_transformers.json` what every text begins with.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.canonical import object_in
from cairn.engines import minilm
from cairn.engines.embedders import GraphEmbedder
from cairn.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

_GRAPHS = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
_MAX_TOKENS, _LONGEST = 256, 512
_FED = {"input_ids", "attention_mask", "token_type_ids"}
_SEEN = (
    1024 * 1024
)  # of each end of a graph: enough to tell two apart without reading gigabytes at every start


class OnnxFolder(GraphEmbedder):
    """Any sentence encoder whose graph and tokenizer lie in one folder.

    Raises:
        Misconfigured: no folder is named, something is missing in it, or what runs it is not installed.
    """

    def __init__(self, folder: str, *, threads: int = 2) -> None:
        self._folder = Path(folder).expanduser()
        graph = next((at for name in _GRAPHS if (at := self._folder / name).is_file()), None)
        trouble = ""
        if not folder.strip():
            trouble = (
                "no folder is named: set embedding.model to one that holds model.onnx and tokenizer.json"
            )
        elif not self._folder.is_dir():
            trouble = f"{self._folder} is no folder"
        elif graph is None:
            trouble = f"{self._folder} has no graph: it needs one of {', '.join(_GRAPHS)}"
        elif not (self._folder / minilm.TOKENIZER).is_file():
            trouble = f"{self._folder} has no {minilm.TOKENIZER}"
        elif missing := minilm.missing_packages():
            trouble = f"it needs {missing}: {minilm.EXTRA}"
        if trouble or graph is None:
            raise Misconfigured(f'embedding.provider = "onnx": {trouble}.', setting="embedding.model")
        pooling, prompts = (
            self._told("1_Pooling/config.json"),
            self._told("config_sentence_transformers.json"),
        )
        self._is_first = bool(pooling.get("pooling_mode_cls_token"))
        by_name = prompts.get("prompts")
        begins = by_name.get(prompts.get("default_prompt_name")) if isinstance(by_name, dict) else None
        self._begins = begins if isinstance(begins, str) else ""
        longest = self._told("sentence_bert_config.json").get("max_seq_length")
        super().__init__(
            graph,
            self._folder / minilm.TOKENIZER,
            max_tokens=min(longest, _LONGEST) if isinstance(longest, int) and longest > 2 else _MAX_TOKENS,
            next_step="Check the files of that folder.",
            threads=threads,
        )

    @cached_property
    def id(self) -> str:
        """The folder's name and a hash of what decides a vector; another file there is another model."""
        made = hashlib.sha256(f"{self._is_first} {self._max_tokens} {self._begins}".encode())
        try:
            with self._graph.open("rb") as file:
                size = file.seek(0, 2)
                for place in (0, max(0, size - _SEEN)):
                    file.seek(place)
                    made.update(file.read(_SEEN))
            made.update(b"%d" % size)
            made.update(self._tokenizer.read_bytes())
        except OSError as error:
            raise Unavailable(f"{self._folder}: the model cannot be read ({error.strerror}).") from error
        return f"{self._folder.name}/{made.hexdigest()[:12]}"

    @cached_property
    def dimensions(self) -> int:
        """How long its vectors are, found out by embedding one word."""
        _, session = self._parts or self._load()
        one = self._encoded(["size"])
        return int(self._answer(session, one, one * 0 + 1, with_pieces=False)[0].shape[1])

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed([self._begins + text for text in texts] if self._begins else texts)

    def grasps(self, text: str) -> float:
        """The share of a text's pieces it knows: scripts it was not made for fall into unknown ones."""
        tokenizer, _ = self._parts or self._load()
        found = tokenizer.encode(text or " ", add_special_tokens=False).tokens
        unknown = sum(piece in {"[UNK]", "<unk>"} for piece in found)
        return 1 - unknown / len(found) if found else 1.0

    def _encoded(self, texts: Sequence[str]) -> np.ndarray:
        import numpy as np

        tokenizer, _ = self._parts or self._load()
        return np.array([tokenizer.encode(text).ids for text in texts], np.int64)

    def _answer(
        self, session: Any, ids: np.ndarray, mask: np.ndarray, *, with_pieces: bool
    ) -> list[np.ndarray]:
        import numpy as np

        del with_pieces
        wanted = {one.name for one in session.get_inputs()}
        if unknown := sorted(wanted - _FED):
            raise Unavailable(
                f"{self._graph}: the graph asks for {', '.join(unknown)}, which is no input of a sentence encoder "
                f"({', '.join(sorted(_FED))}). Export it anew, or name another folder."
            )
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            found = session.run(None, {name: fed[name] for name in wanted})
        except Exception as error:  # The library raises bare exceptions of its own.
            raise Unavailable(f"{self._graph}: the graph cannot run ({error}).") from error
        vectors = next((one for one in found if np.ndim(one) == 2), None)
        pieces = next((one for one in found if np.ndim(one) == 3), None)
        if vectors is None and pieces is not None:
            inside = mask[:, :, None].astype(np.float32)
            vectors = pieces[:, 0] if self._is_first else (pieces * inside).sum(1) / inside.sum(1)
        if vectors is None or len(vectors) != len(ids) or not np.isfinite(vectors).all():
            raise Unavailable(f"{self._graph}: the graph gives no vector for each text. Name another folder.")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return [np.asarray(vectors / np.where(norms > 0, norms, 1), np.float32)]

    def _told(self, name: str) -> dict[str, Any]:
        try:
            return dict(object_in((self._folder / name).read_text("utf-8")) or {})
        except (OSError, ValueError):
            return {}
