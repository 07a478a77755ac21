"""Texts through an engine: normalised, cut, in as many steps as they take, and refused where they cannot be."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from llamay import Llama, gguf, settings
from llamay.errors import ContextFull, LlamayError, UsageError
from llamay.model.finish import Dense, Finish
from llamay.serve import encoding
from llamay.serve.encoding import Encoder
from llamay.serve.engine import Engine
from llamay.serve.loading.load import Loaded, load
from llamay.serve.request import Request

DATA = Path(__file__).parents[1] / "data"
TEXTS = ["a sentence", "Another one!", "", "the the the the", "naïve café"]


def loaded(path: Path) -> Loaded:
    return load(path, settings.load({"backend": "numpy"}), embeds=True)


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    model = loaded(DATA / "encoders" / "bert-mean.f16.gguf")
    with Engine.of(model) as engine:
        yield Encoder(model, engine)


def test_vectors_of_length_one(encoder):
    assert encoder.loaded.describe() == "bert-mean · numpy · texts of up to 128 tokens"
    found = encoder.embed(TEXTS)
    assert found.rows.shape == (5, 64) and found.rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found.rows.astype(np.float64), axis=1), 1, atol=1e-7)
    assert found.tokens == sum(len(encoder.loaded.tokenizer.encode(text, add_special=True)) for text in TEXTS)
    raw = encoder.embed(TEXTS, normalised=False).rows
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), found.rows, atol=1e-6)


def test_dimensions_are_the_first_ones(encoder):
    whole, cut = encoder.embed(TEXTS).rows, encoder.embed(TEXTS, dimensions=8).rows
    np.testing.assert_allclose(cut, whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True), atol=1e-6)
    for wrong in (0, 65):
        with pytest.raises(UsageError, match=rf"dimensions is {wrong}; .* 1 to 64"):
            encoder.embed(TEXTS, dimensions=wrong)


def test_a_device_gives_the_same_vectors(encoder, gpu, monkeypatch):
    from llamay.tensor.webgpu import opening
    from llamay.tensor.webgpu.device import Guest

    monkeypatch.setattr(opening, "Device", lambda adapter: Guest(gpu))
    model = load(DATA / "encoders" / "bert-mean.f16.gguf", settings.load({"backend": "webgpu"}), embeds=True)
    with Engine.of(model) as engine:
        made = Encoder(model, engine)
        texts = [*TEXTS, "and so " * 60, *TEXTS * 13]  # more than one step has outputs
        rows = made.embed(texts, truncate=True).rows
        assert np.abs(rows - encoder.embed(texts, truncate=True).rows).max() <= 2e-6
        assert np.array_equal(rows[:5], rows[-5:]) and model.executor.rows_at(127) >= 512


def test_ids_are_taken_as_they_are(encoder):
    ids = encoder.loaded.tokenizer.encode("a sentence", add_special=True)
    assert np.array_equal(encoder.embed([ids]).rows, encoder.embed(["a sentence"]).rows)
    with pytest.raises(UsageError, match="text 1 holds token id 320"):
        encoder.embed(["a", [320]])
    with pytest.raises(UsageError, match="text 0 has no tokens"):
        encoder.embed([[]])


def test_long_texts(encoder):
    words = "word " * 200
    with pytest.raises(ContextFull, match=r"text 1 has .* and the context 128"):
        encoder.embed(["a", words])
    cut = encoder.encoded(words, 0, truncate=True).ids
    assert len(cut) == 128 and cut[-1] == encoder.loaded.tokenizer.closing
    assert np.array_equal(encoder.embed([words], truncate=True).rows, encoder.embed([cut]).rows)


def test_many_texts_take_many_steps_and_no_bit_changes(encoder, monkeypatch):
    steps, step = [], encoding.step

    def counted(scheduler, texts):
        found = step(scheduler, texts)
        steps.append(len(found))
        return found

    monkeypatch.setattr(encoding, "step", counted)
    texts = [f"{TEXTS[at % 5]} {'and ' * (at % 7)}" for at in range(150)]
    together = encoder.embed(texts).rows
    assert len(steps) > 1 and sum(steps) == 150 and max(steps) > 20
    alone = np.concatenate([encoder.embed([text]).rows for text in texts[:12]])
    assert np.array_equal(together[:12], alone)
    assert encoder.embed([]).rows.shape == (0, 64)


def test_work_ends_where_nobody_waits(encoder):
    class Left(Exception):
        pass

    def check() -> None:
        raise Left

    with pytest.raises(Left):
        Encoder(encoder.loaded, encoder.engine, check=check).embed(["a"])


def test_vectors_that_float32_does_not_hold_are_told(encoder, monkeypatch):
    large = Dense(np.full((64, 64), 1e30, np.float32), None)
    monkeypatch.setattr(encoder.loaded, "finish", Finish(linears=(large, large)))
    with pytest.raises(LlamayError, match="text 2 came to no finite numbers on numpy"):
        encoder.embed(TEXTS[:1], first=2)


def test_an_encoder_generates_nothing(encoder):
    with pytest.raises(UsageError, match="turns texts into vectors"):
        for event in encoder.engine.submit(Request((1, 2))):
            raise getattr(event, "error", AssertionError(event))
    with pytest.raises(UsageError, match=r"bert-mean turns texts into vectors; `llamay embed` takes it"):
        load(DATA / "encoders" / "bert-mean.f16.gguf", settings.load({"backend": "numpy"}))


def test_from_python():
    with Llama(DATA / "encoders" / "bert-mean.f16.gguf", device="numpy") as made:
        rows = made.embed(TEXTS)
        assert rows.shape == (5, 64) and np.array_equal(made.embed(TEXTS[:1], dimensions=64), rows[:1])
        with pytest.raises(UsageError, match="turns texts into vectors"):
            made.complete("a")
    with Llama(DATA / "encoders" / "bert-rerank.f16.gguf", device="numpy") as made:
        assert len(made.rank("which", TEXTS)) == 5 and all(0 < one < 1 for one in made.rank("which", TEXTS))


def test_a_model_that_generates_does_not_embed():
    model = loaded(DATA / "models" / "llama-gqa.f16.gguf")
    with Engine.of(model) as engine, pytest.raises(UsageError, match="generates text and does not embed"):
        Encoder(model, engine).embed(["a"])


def test_a_decoder_embeds_by_its_last_row(tmp_path):
    """Qwen3-Embedding is qwen3 that says so: times the output matrix its vectors are the logits of the last position."""
    source = gguf.open(DATA / "models" / "qwen3.f16.gguf")
    path = tmp_path / "embedding.gguf"
    tensors = [(name, one.type, one.shape, one.read(0, one.rows)) for name, one in source.tensors.items()]
    gguf.write(path, {**source.metadata, "qwen3.pooling_type": 3}, tensors)
    with np.load(DATA / "logits" / "qwen3.npz") as case:
        texts, wanted = [case[f"ids_{name}"].tolist() for name in ("p33", "p7")], [case[f"logits_{name}"][-1] for name in ("p33", "p7")]
    model = loaded(path)
    with Engine.of(model) as engine:
        encoder = Encoder(model, engine)
        found = encoder.embed(texts, normalised=False).rows
        assert np.array_equal(encoder.embed(texts[1:], normalised=False).rows[0], found[1])
    assert model.config.pooling == "last" and [name for name in model.audit.unread if name != "output.weight"] == []
    matrix = source.tensors["output.weight" if "output.weight" in source.tensors else "token_embd.weight"]
    output = matrix.dequantize() if hasattr(matrix, "dequantize") else np.frombuffer(matrix.read(0, matrix.rows).tobytes(), np.float16)
    logits = found.astype(np.float64) @ output.reshape(-1, 64).astype(np.float64).T
    assert np.abs(logits - np.stack(wanted)).max() <= 3e-4
