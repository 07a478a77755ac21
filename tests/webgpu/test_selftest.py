"""The self-test passes right kernels, refuses wrong ones by name, and drops token widths whose bits differ."""

import os
import re
from itertools import cycle, product
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf, wgsl
from llamay.arch import describe
from llamay.errors import WrongNumbers
from llamay.model import bind
from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.cache import OFFERED
from llamay.tensor.program import Scan
from llamay.tensor.webgpu import device as device_module
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.executor import WebGPUExecutor

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
# of every model the executor's tests load each kernel and test it so; here the widths and the long ones are tested, too
KINDS = ("llama-gqa.f16", "gemma2.f16", "gemma3.f16", "qwen3.f16", "exaone4.f16", "bloom.f16", "qwen2-k.q4_0-mix", "qwen2-k.q3_k_m")
# ways to norm, turn, see and weigh heads
BY_HEAD = ("llama-gqa", "gemma2", "gemma3", "qwen3", "olmo2", "smollm3", "glm4", "phi3-swa", "stablelm-2-12b", "bloom")
TABLE = np.arange(20, dtype=np.int32)
IDS = np.arange(11, dtype=np.int32)


@pytest.fixture
def fresh(adapter):
    """A device on which nothing was tested yet."""
    device = Device(adapter)
    yield device
    device.close()


def program_of(case):
    file = gguf.open(case.path)
    return bind(file, describe(file)).program


def broken(monkeypatch: pytest.MonkeyPatch, kernel: str, pattern: str, text: str, **choices: object) -> list[str]:
    """From now on the kernel is compiled with `pattern` replaced, where it has these choices; lists those that were."""
    hit: list[str] = []

    def compose(name: str, **given: object) -> str:
        right = wgsl.compose(name, **given)
        if name != kernel or any(given.get(key) != value for key, value in choices.items()):
            return right
        wrong, count = re.subn(pattern, text, right)
        if count:
            hit.append(name)
        return wrong

    monkeypatch.setattr(device_module, "compose", compose)
    return hit


@pytest.mark.parametrize("name", KINDS)
def test_right_kernels_pass(name: str, named_case, gpu: Device) -> None:
    proven(gpu, named_case(name), OFFERED[0])


@pytest.mark.parametrize(("name", "kv"), list(zip(BY_HEAD, cycle(OFFERED[1:]))))  # the formats go round
def test_right_kernels_pass_with_other_caches(name: str, named_case, gpu: Device, kv: str) -> None:
    proven(gpu, named_case(f"{name}.f16"), kv)


@pytest.mark.soak
def test_right_kernels_pass_in_every_model(case_names: list[str], named_case, gpu: Device) -> None:
    """LLAMAY_SOAK scales how many models with how many formats of the cache."""
    every = list(product(case_names, OFFERED))
    for name, kv in Random(1).sample(every, max(2, round(len(every) * min(SOAK, 1)))):
        proven(gpu, named_case(name), kv)


def proven(gpu: Device, case, kv: str) -> None:
    gpu.proven.clear()
    executor = WebGPUExecutor(gpu, program_of(case), 20, kv=kv)
    test = executor.selftest
    for rows in (1, 2, max(gpu.launch.tokens)):
        test.prove(rows, long=True)
        assert test.width(rows) == gpu.launch.tokens_for(rows)
    assert all(row.passed for row in test.rows)
    kernels = " ".join(row.kernel for row in test.rows)
    scans = any(isinstance(op, Scan) for op in executor.program.operations)
    for name in ("embed", "linear", "head", *(("convolve", "scan") if scans else ("attention", "attention_combine"))):
        assert name in kernels
    assert {row.tokens for row in test.rows} >= {1, 2}
    assert max(row.error for row in test.rows if row.tokens == 1) > 0  # something was compared


def test_a_kernel_is_tested_once_on_a_device(named_case, gpu: Device) -> None:
    program = program_of(named_case("llama-gqa.f16"))
    first = WebGPUExecutor(gpu, program, 20)
    first.forward(Batch.single(IDS, 0, TABLE))
    again = WebGPUExecutor(gpu, program, 20)
    again.forward(Batch.single(IDS, 0, TABLE))
    assert again.selftest.rows == []


FAULTS = [  # kernel, what is wrong with it, choices
    ("linear", r"a0_0_0 = fma\(", "a0_0_0 = 0.5 * fma(", {"epilogue": "qkv"}),
    ("linear", r"(let h0 = fma\()", r"\1 1.0001 * ", {"epilogue": "residual"}),
    ("linear", r"(let n0 = )", r"\1 0.999 * ", {"epilogue": "gated"}),
    ("linear", r"if \(v > top\)", "if (v < top)", {"epilogue": "head"}),
    ("embed", r"(let v = )", r"\1 1.001 * ", {}),
    ("attention", r"exp\(max\(z0_0", "exp(0.9 * max(z0_0", {}),
    ("attention", r"end0 = min\(position0 \+ 1u", "end0 = min(position0", {}),
]


@pytest.mark.parametrize(("kernel", "pattern", "text", "choices"), FAULTS, ids=range(len(FAULTS)))
def test_a_wrong_kernel_is_refused_by_name(
    kernel: str, pattern: str, text: str, choices: dict, named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = broken(monkeypatch, kernel, pattern, text, **choices)
    with pytest.raises(WrongNumbers) as refusal:
        WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    words = str(refusal.value)
    assert hit
    assert fresh.name in words and kernel in words and choices.get("epilogue", "") in words
    assert "expected is" in words and "-device numpy" in words


@pytest.mark.parametrize(
    ("case_name", "kernel", "pattern"),
    [
        ("gemma2.f16", "norm_add", r"(let v = )"),
        ("qwen3.f16", "rope_store", r"(let norm = )"),
        ("bloom.f16", "layer_norm", r"(let scale = )"),
        ("falcon-mamba.f16", "part_norm", r"(let scale = )"),
        ("mixtral.f16", "route", r"(let share = )"),
        ("mixtral.f16", "expert_add", r"(let v = )"),
    ],
)
def test_a_wrong_norm_is_refused(
    case_name: str, kernel: str, pattern: str, named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = broken(monkeypatch, kernel, pattern, r"\1 1.01 * ")
    with pytest.raises(WrongNumbers, match=kernel):
        WebGPUExecutor(fresh, program_of(named_case(case_name)), 20)
    assert hit


@pytest.mark.parametrize("kernel", ["sum_norm", "rope_store"])
def test_a_wrong_norm_of_an_encoder_is_refused(kernel: str, fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of jina-embeddings-v2-base-code: of h and a branch together, and of all heads."""
    hit = broken(monkeypatch, kernel, r"(let norm = )", r"\1 1.01 * ")
    case = SimpleNamespace(path=Path(__file__).parents[1] / "data" / "encoders" / "jina-bert-v2-code.f16.gguf")
    with pytest.raises(WrongNumbers, match=kernel):
        WebGPUExecutor(fresh, program_of(case), 20)
    assert hit


def test_a_kernel_of_long_contexts_is_tested_before_it_is_used(
    named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = broken(monkeypatch, "attention_combine", r"sum = fma\(stat.y", "sum = fma(0.9 * stat.y")
    executor = WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    executor.forward(Batch.single(IDS, 0, TABLE))
    assert not hit
    with pytest.raises(WrongNumbers, match="attention_combine"):
        executor.selftest.prove(1, long=True)
    assert hit


def test_a_width_whose_bits_differ_is_not_used(named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that contracts one kernel otherwise: its last bit differs, its numbers are right."""
    program = program_of(named_case("llama-gqa.f16"))
    right = WebGPUExecutor(fresh, program, 20).forward(Batch.single(IDS, 0, TABLE))
    fresh.proven.clear()
    fresh._kernels.clear()
    widest = max(fresh.launch.tokens)
    hit = broken(monkeypatch, "linear", r"(let n0 = )", r"\1 1.0000001 * ", MT=widest, epilogue="gated")
    executor = WebGPUExecutor(fresh, program, 20)
    found = executor.forward(Batch.single(IDS, 0, TABLE))
    assert hit
    assert executor.selftest.width(widest) < widest
    row = next(row for row in executor.selftest.rows if not row.passed)
    assert row.tokens == widest and "differ" in row.note and "gated" in row.kernel
    assert found.tobytes() == right.tobytes()


def test_pairs_that_are_grouped_wrongly_are_not_grouped(named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups of experts overlap."""
    program = program_of(named_case("mixtral.f16"))
    hit = broken(monkeypatch, "group_pairs", r"at \+= \(count", "at += (count - 1u")
    executor = WebGPUExecutor(fresh, program, 20)
    executor.selftest.prove(max(fresh.launch.tokens))
    assert hit and executor.selftest.width(max(fresh.launch.tokens)) == 1
    assert any("group_pairs" in row.kernel and not row.passed for row in executor.selftest.rows)


def test_a_test_between_steps_changes_nothing(named_case, fresh: Device) -> None:
    """Crossing into the second split of attention tests its kernels while sequences hold pages."""
    program = program_of(named_case("llama-gqa.f16"))
    ids = (np.arange(250, dtype=np.int32) * 7) % program.vocabulary
    executor = WebGPUExecutor(fresh, program, 20)
    executor.forward(Batch.single(ids, 0, TABLE, np.empty(0, np.int32)))
    more = (np.arange(6, dtype=np.int32) * 5) % program.vocabulary
    apart = [executor.forward(Batch.single(more[i : i + 1], 250 + i, TABLE)) for i in range(6)]
    again = WebGPUExecutor(fresh, program, 20)
    together = again.forward(Batch.single(np.concatenate([ids, more]), 0, TABLE, np.arange(250, 256, dtype=np.int32)))
    assert np.concatenate(apart).tobytes() == together.tobytes()


SAMPLED = (Sampling(), Sampling(top_k=0, top_p=0.9, min_p=0.05, repeat_penalty=1.3), Sampling(top_k=0, typical_p=0.7))


def test_sampling_is_tested_when_it_is_first_asked_for(named_case, fresh: Device) -> None:
    executor = WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    executor.begin((Sampling(temperature=0.0),), (IDS,))
    assert not any("sample" in row.kernel for row in executor.selftest.rows)
    for sampling in (*SAMPLED, SAMPLED):
        samplings = sampling if isinstance(sampling, tuple) else (sampling,)
        executor.begin(samplings, (IDS,) * len(samplings))
        executor.submit(several(len(samplings)), 3)
        executor.collect()
    rows = [row for row in executor.selftest.rows if "sample" in row.kernel]
    assert len(rows) >= 3 and all(row.passed and row.error == 0 for row in rows)
    count = len(executor.selftest.rows)
    executor.begin(SAMPLED, (IDS,) * 3)
    assert len(executor.selftest.rows) == count


def several(sequences: int) -> Batch:
    """A row for each of some sequences, a page each."""
    places = np.arange(sequences, dtype=np.int32)
    return Batch(places, 0 * places, places, tuple(places[i : i + 1] for i in range(sequences)), places)


@pytest.mark.parametrize(
    ("kernel", "pattern", "text", "sampling"),
    [
        ("sample_shortlist", r"chosen\[slot\] = ", "chosen[slot] = 1u + ", SAMPLED[0]),
        ("sample_draw", r"chosen\[slot\] = ", "chosen[slot] = 1u + ", SAMPLED[1]),
        ("sample_keys", r"(?<!fn )settled\(", "0.5 * settled(", SAMPLED[1]),
    ],
)
def test_wrong_sampling_is_refused(
    kernel: str, pattern: str, text: str, sampling, named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = broken(monkeypatch, kernel, pattern, text)
    executor = WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    with pytest.raises(WrongNumbers, match=kernel):
        executor.begin((sampling,), (IDS,))
    assert hit


def test_wrong_greedy_choice_is_refused(named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    hit = broken(monkeypatch, "pick", r"n < tokens\[lane\]", "n > tokens[lane]")
    with pytest.raises(WrongNumbers, match="pick"):
        WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    assert hit


def test_steps_that_were_not_proven_are_refused(named_case, fresh: Device) -> None:
    executor = WebGPUExecutor(fresh, program_of(named_case("llama-gqa.f16")), 20)
    with pytest.raises(ValueError, match="not proven"):
        executor.selftest.width(max(fresh.launch.tokens))


UNPACKERS = [  # model whose first layer has such a tensor, what is wrong with reading it
    ("qwen2-k.q4_0-mix", r"fma\(-8\.0, s0_0,", "fma(-7.0, s0_0,"),
    ("qwen2-k.q4_1", r"fma\(dm0\.y, ", "fma(-dm0.y, "),
    ("qwen2-k.q8_0", r"fma\(d0, a0_0_0", "fma(-d0, a0_0_0"),
    ("qwen2-k.q4_k", r"s0 >> 8u", "s0 >> 9u"),
    ("qwen2-k.q4_k", r"let w0_17 = ", "let w0_17 = 0.0 * "),
]


@pytest.mark.parametrize(("case_name", "pattern", "text"), UNPACKERS, ids=range(len(UNPACKERS)))
def test_wrong_unpacking_is_refused(
    case_name: str, pattern: str, text: str, named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = broken(monkeypatch, "linear", pattern, text)
    with pytest.raises(WrongNumbers, match="linear"):
        WebGPUExecutor(fresh, program_of(named_case(case_name)), 20)
    assert hit


def test_a_width_that_sums_in_another_order_is_not_used(
    named_case, fresh: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first term comes last: numbers as right as the others, of which some differ in the last bit."""
    program = program_of(named_case("llama-gqa.f16"))
    right = WebGPUExecutor(fresh, program, 20).forward(Batch.single(IDS, 0, TABLE))
    fresh.proven.clear()
    fresh._kernels.clear()
    widest = max(fresh.launch.tokens)
    first, rest = r"(a0_0_0 = fma\(w0_0, [^;]*;)", r"(.*?a0_0_0 = fma\(w0_31, [^;]*;)"
    hit = broken(monkeypatch, "linear", f"(?s){first}{rest}", r"\2 \1", MT=widest, epilogue="residual")
    executor = WebGPUExecutor(fresh, program, 20)
    found = executor.forward(Batch.single(IDS, 0, TABLE))
    assert hit and executor.selftest.width(widest) < widest
    assert found.tobytes() == right.tobytes()
