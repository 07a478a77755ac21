"""`llamay bench`: what it measures adds up, on both executors; how it tells it; what it refuses."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamay.bench import measure, probe, report, target
from llamay.bench.report import Report
from llamay.bench.target import kv_bytes, open_file, open_synthetic, weight_bytes
from llamay.errors import UsageError
from llamay.settings import Settings
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Attend, Program

PROMPT, GENERATED, REPS = 150, 12, 2  # more than one of a scheduler's chunks

Captured = pytest.CaptureFixture[str]


def quiet(what: str) -> None:
    """Nobody looks."""


@pytest.fixture(scope="module")
def found(in_force: Settings) -> tuple[Report, dict]:
    """One measurement of each backend, at which several tests look."""
    with open_synthetic("tiny:q4_k_m", in_force, PROMPT + GENERATED) as made:
        result = report.run(made, PROMPT, GENERATED, REPS, quiet, widths=True)
        return result, {"gpu": made.webgpu is not None, "tokens": measure.tile_widths(made)}


def test_a_report_adds_up(found: tuple[Report, dict]) -> None:
    result, on = found
    told = json.loads(json.dumps(result.as_json()))
    assert (told["prompt"], told["generated"], told["reps"]) == (PROMPT, GENERATED, REPS)
    assert told["synthetic"] and "random weights" in told["notes"][0]
    for name in ("prefill", "decode"):
        row = told[name]
        assert len(row["seconds"]) == REPS and min(row["seconds"]) > 0
        assert row["best"] >= row["rate"] > 0
    assert told["prefill"]["best"] == pytest.approx(PROMPT / min(told["prefill"]["seconds"]))
    assert told["decode"]["best"] == pytest.approx((GENERATED - 1) / min(told["decode"]["seconds"]))
    assert told["ttft"]["best"] == min(told["ttft"]["seconds"]) > 0
    band = told["bandwidth"]
    assert band["reached"] == pytest.approx((band["weights"] + band["keys_values"]) * told["decode"]["best"])
    assert band["share"] == pytest.approx(band["reached"] / band["copy"]) and band["copy"] > 1e8
    assert told["memory"]["peak_rss"] is None or told["memory"]["peak_rss"] > 20e6
    assert told["memory"]["grown"] is None or told["memory"]["grown"] < 50e6
    for timings in result.figures.timings:
        assert (timings.prompt_tokens, timings.cached_tokens) == (PROMPT, 0)
        assert timings.generated_tokens == GENERATED
    assert (told["token"] is not None) == (told["whole_prompt"] is not None) == on["gpu"]
    assert [width["tokens"] for width in told["sweep"]] == list(on["tokens"])


def test_the_parts_of_a_device_s_time(found: tuple[Report, dict]) -> None:
    result, on = found
    if not on["gpu"]:
        assert result.token is None and result.whole_prompt is None
        assert result.target["dispatches"] is None and result.memory.device is None
        return
    assert result.target["dispatches"] > 2 * 5
    for parts in (result.token, result.whole_prompt):
        assert parts is not None
        assert parts.kernels > 0 and parts.copy_back > 0 and parts.encoding > 0 and parts.staging >= 0
        assert max(parts.kernels, parts.encoding, parts.copy_back, parts.staging) < 60
    assert result.whole_prompt.staging > 0  # the prompt's rows went over
    assert result.memory.device > result.memory.device_weights + result.memory.device_kv


def test_every_tile_width_gives_the_same_logits(found: tuple[Report, dict]) -> None:
    result, _ = found
    assert all(width.same for width in result.widths)


def test_a_sweep_leaves_the_device_as_it_was(in_force: Settings) -> None:
    with open_synthetic("tiny:q8_0", in_force, 64) as made:
        before = measure.tile_widths(made)
        prompt = measure.prompt_of(made, 20)
        logits = measure.prefill(made, prompt, 16)
        widths = measure.sweep(made, prompt, 1, 16, quiet)
        assert [width.tokens for width in widths] == list(measure.tile_widths(made)) == list(before)
        assert (measure.prefill(made, prompt, 16) == logits).all()


def test_an_odd_width_is_told(in_force: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A width whose logits differ in one bit is not the same."""
    with open_synthetic("tiny:q8_0", in_force, 64) as made:
        if made.webgpu is None:
            assert measure.sweep(made, measure.prompt_of(made, 20), 1, 16, quiet) == ()
            return
        real, calls = measure.prefill, []

        def odd(*args: object) -> np.ndarray:
            calls.append(1)
            logits = real(*args)
            logits.view(np.uint32)[0, 3] ^= len(calls) == 2
            return logits

        monkeypatch.setattr(measure, "prefill", odd)
        same = [width.same for width in measure.sweep(made, measure.prompt_of(made, 20), 1, 16, quiet)]
        assert same[0] and not same[1] and all(same[2:])


def test_the_device_s_clock_and_the_host_s_agree(in_force: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without timestamps the kernels' time is what the host waits, never less than what the device says."""
    with open_synthetic("tiny:q8_0", in_force, 200) as made:
        prompt = measure.prompt_of(made, 150)
        measure.warm(made, prompt, 128)
        if made.webgpu is None:
            assert probe.prefill(made, prompt, 128) is None
            return
        clocked, by_host = [], []
        for _ in range(20):  # in turn, as others may compute meanwhile
            clocked.append(probe.prefill(made, prompt, 128).kernels)
            with monkeypatch.context() as patch:
                patch.setattr(probe, "_timed", lambda target: nullcontext())
                parts = probe.prefill(made, prompt, 128)
            assert not parts.clocked
            by_host.append(parts.kernels)
            if len(by_host) >= 3 and min(clocked) < 3 * min(by_host):
                break
        assert min(clocked) < 3 * min(by_host)


def test_bytes_that_a_token_reads(in_force: Settings) -> None:
    with open_synthetic("tiny:q8_0", in_force, 64) as made:
        elements = 512 * 256 + 2 * (256 * (256 + 2 * 128) + 256 * 256 + 3 * 256 * 512)
        read = weight_bytes(made)
        if isinstance(made.executor, NumpyExecutor):
            assert made.executor.held and read == 4 * elements
            made.executor.held = False
            read = weight_bytes(made)
        assert elements * 34 / 32 <= read <= 1.2 * elements * 34 / 32  # the device pads tiles


def test_an_embedding_table_of_its_own_is_not_read_whole() -> None:
    numpy = Settings(backend="numpy")
    with open_synthetic("tiny:q8_0", numpy, 64) as tied:
        whole = weight_bytes(tied)
        operations = list(tied.program.operations)
        table = replace(operations[0].table, name="another")
        tied.executor.program = replace(tied.program, operations=(replace(operations[0], table=table), *operations[1:]))
        assert weight_bytes(tied) == whole


def test_bytes_of_keys_and_values() -> None:
    program = Program((Attend(0, 8, 2, 64), Attend(1, 8, 4, 64, window=100)), 1, 1, 1000)
    assert kv_bytes(program, 50, "f32") == 2 * 4 * 64 * (2 * 50 + 4 * 50)
    assert kv_bytes(program, 500, "f16") == 2 * 2 * 64 * (2 * 500 + 4 * 100)
    assert kv_bytes(program, 50, "q8") == 2 * (64 + 4) * (2 * 50 + 4 * 50)  # a scale for each head of each token


def test_a_file(in_force: Settings, models: Path) -> None:
    path = models / "llama-gqa.f16.gguf"
    with open_file(path, in_force, 60) as made:
        assert made.name == "llama-gqa" and not made.synthetic and made.context == 60
        result = report.run(made, 40, 20, 1, quiet)
    assert result.widths == () and 0 < result.memory.file_weights < path.stat().st_size


def test_a_context_asked_for(in_force: Settings, models: Path) -> None:
    path = models / "llama-gqa.f16.gguf"
    with open_file(path, replace(in_force, context=200), 60) as made:
        assert made.context == 200
    with pytest.raises(UsageError, match="60 tokens and the context is 40: -c 60"):
        open_file(path, replace(in_force, context=40), 60)
    with pytest.raises(UsageError, match="-c 60"):
        target.open_synthetic("tiny:q8_0", replace(in_force, context=40), 60)


def test_the_page(llamay, models: Path, capsys: Captured) -> None:
    words = ("bench", "-m", models / "llama-gqa.f16.gguf", "-prompt", "40", "-gen", "10", "-reps", "2")
    assert llamay(*words, "-sweep") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r".+ · kernels .+ · kv f32 · (\d+ dispatches a token|no dispatches)", lines[0])
    assert re.fullmatch(r"llama-gqa · weights .+ · context 50 · prompt 40 · generate 10", lines[1])
    rates = r" +[\d.]+ tok/s  best +[\d.]+   .+"
    assert re.fullmatch("prefill" + rates, lines[3])
    assert re.fullmatch("decode" + rates, lines[4])
    assert re.fullmatch(r"ttft +[\d.]+[mu]?s +best +[\d.]+[mu]?s   .+", lines[5])
    text = "\n".join(lines)
    assert re.search(r"^cpu encoding .+ · gpu execution .+$", text, re.MULTILINE)
    assert re.search(r"^gpu time: (staging .+ · kernels .+ · copy-back .+|none)$", text, re.MULTILINE)
    assert re.search(r"^bandwidth: a token reads .+: .+/s, \d+% of a copy's .+/s$", text, re.MULTILINE)
    assert re.search(r"^memory: peak RSS .+ · device .+$", text, re.MULTILINE)


def test_json_and_the_note_on_random_weights(llamay, capsys: Captured) -> None:
    words = ("bench", "-synthetic", "tiny:q5_k_m", "-prompt", "20", "-gen", "4", "-reps", "1")
    assert llamay(*words, "--json", "-device", "numpy") == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["device"] == "numpy" and told["token"] is None and told["decode"]["best"] > 0
    assert "random weights of a real shape, for speed only" in shown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-prompt", "0"), "-prompt is 0; it may be 1 or more"),
        (("-gen", "1"), "-gen is 1; it may be 2 or more"),
        (("-reps", "0"), "-reps is 0; it may be 1 to 1000"),
        (("-reps", "1001"), "-reps is 1001; it may be 1 to 1000"),
        (("-batch", "2", "-reps", "1001"), "-reps is 1001"),
        (("-synthetic", "tiny:q8_0", "-forks", "2", "-reps", "1001"), "-reps is 1001"),
        (("-m", "x", "-synthetic", "tiny:q8_0"), "x and tiny:q8_0 are 2 models"),
        (("-synthetic", "giant:q8_0"), "no synthetic model 'giant'"),
        (("-synthetic", "tiny:q8_0", "-prompt", "4000"), "this model was made for 2048"),
    ],
)
def test_what_is_refused(llamay, capsys: Captured, words: tuple[str, ...], message: str) -> None:
    assert llamay("bench", *words) == 2
    assert message in capsys.readouterr().err
