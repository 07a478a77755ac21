"""What a file says of pooling and of its head is checked: run, or refused by name; no value of a key does harm."""

import os
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llamay import arch, gguf, model, settings
from llamay.errors import LlamayError, MalformedFile, Unsupported
from llamay.model.finish import Dense, Finish
from llamay.quant import TensorType
from llamay.serve import ranking
from llamay.serve.encoding import Encoded, Encoder, batch_of
from llamay.serve.engine import Engine
from llamay.serve.loading.load import load
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Qkv

DATA = Path(__file__).parents[1] / "data"
QWEN = DATA / "models" / "qwen3.f16.gguf"
SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))


def changed(target: Path, source: Path, keys: dict[str, Any], more: tuple[Any, ...] = ()) -> Path:
    """The file with keys set, or removed by None, and with more tensors."""
    file = gguf.open(source)
    metadata = {key: value for key, value in {**file.metadata, **keys}.items() if value is not None}
    tensors = [(name, one.type, one.shape, one.read(0, one.rows)) for name, one in file.tensors.items()]
    gguf.write(target, metadata, [*tensors, *more])
    return target


@pytest.mark.parametrize(
    ("name", "keys", "error", "message"),
    [
        ("bert-mean", {"bert.pooling_type": 9}, MalformedFile, "pooling_type is 9"),
        ("bert-mean", {"bert.attention.causal": True}, Unsupported, "is read in one direction"),
        ("bert-rerank", {"bert.classifier.output_labels": 3}, MalformedFile, "no array of up to 1024 strings"),
        ("bert-rerank", {"bert.classifier.output_labels": ["a", "b", "c"]}, MalformedFile, "cls.output.weight has shape"),
        ("qwen3", {"qwen3.pooling_type": 1}, Unsupported, "pools by mean; of decoders llamay runs those that take the last"),
        ("qwen3", {"qwen3.attention.causal": False}, Unsupported, "is read both ways"),
    ],
)
def test_what_is_refused(name, keys, error, message, tmp_path):
    source = QWEN if name == "qwen3" else DATA / "encoders" / f"{name}.f16.gguf"
    file = gguf.open(changed(tmp_path / "model.gguf", source, keys))
    with pytest.raises(error, match=message):
        model.bind(file, arch.describe(file))


@pytest.mark.parametrize(("stated", "pooling"), [(None, "mean"), (0, "mean"), (1, "mean"), (2, "first"), (3, "last"), (4, "first")])
def test_pooling_of_encoders(stated, pooling, tmp_path):
    path = changed(tmp_path / "model.gguf", DATA / "encoders" / "bert-mean.f16.gguf", {"bert.pooling_type": stated})
    assert arch.describe(gguf.open(path)).pooling == pooling


def test_kinds_may_be_missing(named):
    """nomic-bert's own files have one; of a model without a table every token is alike."""
    encoder = named("nomic-bert")
    file = gguf.open(encoder.path)
    fewer = {name: one for name, one in file.tensors.items() if name != "token_types.weight"}
    bound = model.bind_tensors(fewer, encoder.config)
    assert bound.audit.unread == () and bound.program.operations[0].kinds is None
    assert np.isfinite(NumpyExecutor(bound.program, 8).forward(batch_of([encoder.text("p7")]))).all()


def test_files_of_the_code_model_by_older_and_by_newer_converters(named):
    """Older ones cut the tensor that holds up above gate into two, newer ones leave it: the same bits."""
    def below(one: Any, first: int, start: int, stop: int) -> Any:
        return one.read(first + start, first + stop)

    encoder = named("jina-bert-v2-code")
    file, halves = gguf.open(encoder.path), {}
    for name, one in file.tensors.items():
        if not name.endswith("ffn_up.weight"):
            halves[name] = one
            continue
        columns, rows = one.shape[0], one.shape[1] // 2
        for part, at in (("up", 0), ("gate", rows)):
            half = SimpleNamespace(type=one.type, shape=(columns, rows), read=partial(below, one, at))
            halves[name.replace("ffn_up", f"ffn_{part}")] = half
    whole, cut = (NumpyExecutor(model.bind_tensors(one, encoder.config).program, 8) for one in (file.tensors, halves))
    batch = batch_of([encoder.text("p33")])
    assert len(halves) == len(file.tensors) + 2 and np.array_equal(whole.forward(batch), cut.forward(batch))


def test_norms_of_q_and_k_come_in_pairs_and_may_lack_biases(named):
    encoder = named("jina-bert-v2-code")
    tensors = gguf.open(encoder.path).tensors
    bare = {name: one for name, one in tensors.items() if not name.endswith("_norm.bias") or "blk.1.attn_k" not in name}
    qkv = [op for op in model.bind_tensors(bare, encoder.config).program.operations if isinstance(op, Qkv)]
    assert [op.head_norms for op in qkv] == ["whole", "whole"]
    assert qkv[0].k_norm.bias.any() and qkv[1].q_norm.bias.any() and not qkv[1].k_norm.bias.any()
    for other in "kq":
        alone = {name: one for name, one in tensors.items() if not name.startswith(f"blk.1.attn_{other}_norm")}
        with pytest.raises(MalformedFile, match=rf"no tensor blk\.1\.attn_{other}_norm\.weight"):
            model.bind_tensors(alone, encoder.config)


def test_a_score_by_hand():
    row = np.array([1.0, 2.0], np.float32)
    one = Dense(np.array([[1.0, -1.0]], np.float32), np.array([0.5], np.float32))
    assert Finish(scores=one).score(row) == -0.5
    swap = Dense(np.array([[0.0, 1.0], [1.0, 0.0]], np.float32), None)
    assert Finish(dense=swap, scores=one).score(row) == pytest.approx(np.tanh(2) - np.tanh(1) + 0.5)
    assert Finish(scores=swap, labels=("yes", "no")).score(row) == 1.0
    assert Finish(scores=swap, labels=("no", "yes")).score(row) == -1.0
    with pytest.raises(ValueError, match="not in tuple"):
        Finish(scores=swap, labels=("a", "b")).score(row)


def test_a_decoder_with_a_head_for_yes_and_no(tmp_path):
    """Qwen3-Reranker as its converter writes it: two rows of the output matrix are the head."""
    head = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    keys = {"qwen3.pooling_type": 4, "qwen3.classifier.output_labels": ["yes", "no"]}
    path = changed(tmp_path / "model.gguf", QWEN, keys, (("cls.output.weight", TensorType.F32, (64, 2), head),))
    loaded = load(path, settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(loaded) as engine:
        encoder = Encoder(loaded, engine)
        # the words it was trained with are more than this tiny model takes
        loaded.tokenizer.vocabulary.chat_templates["rerank"] = "{query}|{document}?"
        (logit,) = ranking.rank(encoder, "which", ["one"]).logits
        (row,) = encoder.pooled([ranking._question(encoder, "which", "one", 0)])
        vector = loaded.finish.vector(row)
    assert loaded.config.ranks and loaded.config.pooling == "last"
    assert logit == pytest.approx(float((head[0] - head[1]) @ vector), abs=1e-4)


VALUES = (0, 1, 2, 3, 5, 15, 16, 63, 64, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, -1, 0.0, 1e30, True, "x")


def survives(path: Path) -> str:
    """Describes, binds and computes with a file, or says why not."""
    try:
        file = gguf.open(path)
        config = arch.describe(file)
        bound = model.bind(file, config)
        executor = NumpyExecutor(bound.program, 2)
        row = executor.forward(batch_of([Encoded((5, 6, 7))]))[0]
        assert row.shape == (64,)
        bound.finish.vector(row)
        return f"{bound.finish.score(row)}"
    except LlamayError as error:
        assert len(str(error)) < 600
        return str(error)


def mutations(name: str, count: int, seed: int, folder: Path) -> set[str]:
    draw, told = random.Random(f"{name} {seed}"), set()
    source = DATA / "encoders" / f"{name}.f16.gguf"
    own = [key for key in gguf.open(source).metadata if not key.startswith(("tokenizer.", "general."))]
    for at in range(count):
        keys = {key: draw.choice((*VALUES, None)) for key in draw.sample(own, draw.choice([1, 1, 1, 2, 3]))}
        told.add(survives(changed(folder / f"{at}.gguf", source, keys)))
    return told


@pytest.mark.parametrize("name", ["bert-rerank", "jina-bert-v2"])
def test_no_value_of_a_key_does_harm(name, tmp_path):
    assert len(mutations(name, 20, 1, tmp_path)) > 5


@pytest.mark.soak
@pytest.mark.parametrize("name", ["bert-mean", "bert-rerank", "roberta-rerank", "nomic-bert", "jina-bert-v2", "jina-bert-v2-code"])
def test_no_value_of_any_key_does_harm(name, tmp_path):
    count = max(20, round(100 * SOAK))
    assert len(mutations(name, count, 2, tmp_path)) > count // 5
