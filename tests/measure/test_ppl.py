"""`llamay ppl`: the scheme of llama-perplexity, checked against llama.cpp's figures and against the definition."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from llamay import ppl
from llamay.errors import UsageError
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

Captured = pytest.CaptureFixture[str]

TEXT = Path(__file__).parents[2] / "LICENSE"
# llama.cpp (llama_version 0.4.0-dev), float32 weights and cache, no flash attention, on LICENSE: context 64, 8 chunks.
# Its gelu is a table of half floats, hence gemma's difference.
LLAMA_CPP = {
    "llama-gqa": (2114.1101, 288.45893, 1e-5),
    "llama-mha-bias": (2775.0384, 368.57986, 1e-5),
    "gemma3": (774.3203, 84.58743, 2e-3),
}


def estimates(path: Path, in_force: Settings, context: int, chunks: int | None) -> list[ppl.Estimate]:
    with load.load(path, Settings(backend=in_force.backend, context=context)) as loaded:
        ids = ppl.tokens_of(loaded, TEXT.read_bytes())
        count = ppl.chunk_count(len(ids), context, chunks)
        bos = loaded.tokenizer.bos if loaded.tokenizer.add_bos else None
        return list(ppl.perplexity(loaded.executor, ids, context, count, bos))


@pytest.mark.parametrize("name", LLAMA_CPP)
def test_the_figures_are_llama_cpp_s(in_force: Settings, models: Path, name: str) -> None:
    expected, deviation, tolerance = LLAMA_CPP[name]
    found = estimates(models / f"{name}.f16.gguf", in_force, 64, 8)
    assert [estimate.chunks for estimate in found] == list(range(1, 9))
    assert found[-1].tokens == 8 * 31
    assert found[-1].perplexity == pytest.approx(expected, rel=tolerance)
    assert found[-1].uncertainty == pytest.approx(deviation, rel=tolerance)


@pytest.mark.parametrize("context", [4, 33, 200])
def test_the_definition(models: Path, context: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token of every chunk's second half, one by one, from the logits of all before it."""
    monkeypatch.setattr(ppl, "ROWS", 48)  # the steps end anywhere
    path, numpy = models / "gemma3.f16.gguf", Settings(backend="numpy", context=context)
    found = estimates(path, numpy, context, 2)
    with load.load(path, numpy) as loaded:
        assert loaded.tokenizer.add_bos
        ids = loaded.tokenizer.encode(TEXT.read_bytes()[:-1], add_special=True)
        exact = NumpyExecutor(loaded.executor.program, 13, precise=True)
        surprises = []
        for chunk in range(2):
            tokens = [loaded.tokenizer.bos, *ids[chunk * context + 1 : (chunk + 1) * context]]
            rows = np.arange(context, dtype=np.int32)
            logits = exact.logits(Batch.single(np.array(tokens, np.int32), 0, np.arange(13, dtype=np.int32), rows))
            for target in range(context // 2 + 1, context):
                row = logits[target - 1]
                shares = np.exp(row - row.max())
                surprises.append(-math.log(shares[tokens[target]] / shares.sum()))
    assert found[-1].tokens == len(surprises)
    assert found[-1].mean == pytest.approx(np.mean(surprises), rel=1e-5)
    each = len(surprises) // 2
    assert found[0].mean == found[0].chunk_mean == pytest.approx(np.mean(surprises[:each]), rel=1e-5)
    assert found[1].chunk_mean == pytest.approx(np.mean(surprises[each:]), rel=1e-5)
    spread = np.std(surprises) / math.sqrt(len(surprises) - 1)
    assert found[-1].uncertainty == pytest.approx(spread * math.exp(np.mean(surprises)), rel=1e-4)


def test_the_beginning_of_a_text(models: Path) -> None:
    """BOS where the model wants one, in front of the text; a final line end is dropped; special tokens are text."""
    with load.load(models / "gemma3.f16.gguf", Settings(backend="numpy")) as loaded:
        tokenizer = loaded.tokenizer
        assert ppl.tokens_of(loaded, b"one two\n") == [tokenizer.bos, *tokenizer.encode("one two")]
        assert ppl.tokens_of(loaded, b"one\n\n") == [tokenizer.bos, *tokenizer.encode("one\n")]
        name = tokenizer.vocabulary.tokens[tokenizer.eos]
        assert tokenizer.eos not in ppl.tokens_of(loaded, name.encode())
        assert ppl.tokens_of(loaded, b"\xff\xfe")  # a text need not be UTF-8
    with load.load(models / "qwen2.f16.gguf", Settings(backend="numpy")) as loaded:
        assert not loaded.tokenizer.add_bos
        assert ppl.tokens_of(loaded, b"one two\n") == loaded.tokenizer.encode("one two")


def test_how_many_chunks() -> None:
    assert ppl.chunk_count(1000, 256, None) == 3
    assert ppl.chunk_count(1000, 256, 2) == 2
    assert ppl.chunk_count(1000, 256, 20) == 3
    assert ppl.chunk_count(256, 256, None) == 1
    for tokens, context, most in ((255, 256, None), (100, 3, None), (1000, 256, 0)):
        with pytest.raises(UsageError):
            ppl.chunk_count(tokens, context, most)


def test_surprises_of_extreme_logits() -> None:
    logits = np.array([[1e4, -1e4, 0], [0, 0, 0]], np.float32)
    assert ppl.surprises(logits, np.array([1, 2], np.int32)) == pytest.approx([2e4, math.log(3)])
    estimate = ppl.Estimate(1, 1, 2, 2e4, 1.0, 2e4)
    assert estimate.perplexity == math.inf


def test_the_last_line_alone_is_on_stdout(llamay, models: Path, capsys: Captured) -> None:
    words = ("ppl", "-m", models / "llama-gqa.f16.gguf", "-f", TEXT, "-c", "64", "-chunks", "3")
    assert llamay(*words) == 0
    shown = capsys.readouterr()
    mean, deviation = shown.out.removeprefix("PPL = ").rstrip("\n").split(" +/- ")
    assert float(mean) > float(deviation) > 0
    progress = [line for line in shown.err.splitlines() if line.startswith("chunk ")]
    assert len(progress) == 3 and f"PPL {mean}" in progress[-1]


def test_json(llamay, models: Path, capsys: Captured) -> None:
    words = ("ppl", models / "llama-gqa.f16.gguf", "-f", TEXT, "-ctx", "64", "-chunks", "4", "--json")
    assert llamay(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["context"], told["chunks"], told["scored"]) == (64, 4, 4 * 31)
    assert told["perplexity"] == pytest.approx(math.exp(np.mean(told["chunk_nll"])))
    assert told["running"][-1] == told["perplexity"] and len(told["running"]) == 4


def test_a_chunk_is_512_tokens_or_what_the_model_takes(llamay, models: Path, capsys: Captured) -> None:
    words = ("ppl", models / "llama-gqa.f16.gguf", "-f", TEXT, "-chunks", "1", "--json", "-device", "numpy")
    assert llamay(*words) == 0
    assert json.loads(capsys.readouterr().out)["context"] == 256


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which text? -f FILE"),
        (("-f", TEXT, "-c", "3"), "at least 4"),
        (("-f", TEXT, "-c", "100000"), "this model was made for 256"),
        (("-f", TEXT, "-chunks", "0"), "-chunks is 0"),
        (("-f", "short", "-c", "256"), "fewer than one chunk of 256"),
        (("-f", "nothing"), "the text has 1 tokens, fewer than one chunk of 256; give a longer text"),
    ],
)
def test_what_is_refused(llamay, models: Path, tmp_path: Path, capsys: Captured, words, message: str) -> None:
    (tmp_path / "short").write_text("a few words")
    (tmp_path / "nothing").touch()
    words = [tmp_path / word if word in ("short", "nothing") else word for word in words]
    assert llamay("ppl", models / "llama-gqa.f16.gguf", *words) == 2
    assert message in capsys.readouterr().err


def test_a_text_that_is_not_there(llamay, models: Path, capsys: Captured) -> None:
    assert llamay("ppl", models / "llama-gqa.f16.gguf", "-f", "nowhere.txt") == 1
    assert "nowhere.txt" in capsys.readouterr().err
