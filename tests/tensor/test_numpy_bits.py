"""The promise of executors: a row's logits have the same bits whatever shared its batch and however prompts were cut."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.model import bind
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.numpy import NumpyExecutor

LENGTH = 530  # past two attention splits of 256
MODELS = ("llama-gqa.f16", "gemma2.f16", "gemma3.f16", "qwen3.f16")  # full, softcap and window, two bases, head norms
MIXTURE = "gpt-oss.f16"  # experts and sinks
LATENT = "deepseek3.f32"  # latent attention, experts in groups
SPACES = ("mamba.f32", "falcon-mamba.f16", "mamba2-g2.f32", "granite-4-h.f16", "lfm2.f16")  # states in place of attention
LAYERED = [
    f"{name}.f16"
    for name in (
        "stablelm-2-12b", "gptneox-parallel", "starcoder2", "phi2", "falcon-40b", "nemotron", "command-r", "cohere2",
        "gpt2", "mpt", "bloom",
    )
]  # fmt: skip
PAGES = -(-LENGTH // PAGE)
FEATURES = np.show_config(mode="dicts")["SIMD Extensions"]
FOUND = {*FEATURES["baseline"], *FEATURES["found"]}
NEEDS = {"Nehalem": set(), "Haswell": {"AVX2", "X86_V3"}, "SkylakeX": {"AVX512_SKX", "X86_V4"}}  # either name will do
CORES = [core for core, names in NEEDS.items() if not names or names & FOUND]


def program_of(path: str | os.PathLike):
    file = gguf.open(path)
    return replace(bind(file, describe(file)).program, context=1024)  # positions need not make sense


def prompt(seed: int, length: int = LENGTH) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 320, length).astype(np.int32)


def in_chunks(executor, ids, size, table):
    """Logits of every position, computed `size` tokens at a time."""
    pieces = []
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        pieces.append(executor.forward(Batch.single(part, start, table, np.arange(len(part), dtype=np.int32))))
    return np.concatenate(pieces)


@pytest.mark.parametrize("name", MODELS)
def test_chunks(name, named_case):
    executor = NumpyExecutor(program_of(named_case(name).path), PAGES)
    ids, table = prompt(1), np.arange(PAGES, dtype=np.int32)
    whole = in_chunks(executor, ids, LENGTH, table)
    assert np.isfinite(whole).all() and whole.std() > 0.5
    for size in (1, 7, 64):
        assert np.array_equal(in_chunks(executor, ids, size, table), whole), size


@pytest.mark.parametrize("name", LAYERED)
def test_chunks_of_models_with_layer_norms(name, named_case):
    executor = NumpyExecutor(program_of(named_case(name).path), PAGES)
    ids, table = prompt(5, 90), np.arange(PAGES, dtype=np.int32)
    whole = in_chunks(executor, ids, 90, table)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for size in (1, 7):
        assert np.array_equal(in_chunks(executor, ids, size, table), whole), size


@pytest.mark.parametrize("name", [MIXTURE, LATENT, *SPACES])
def test_chunks_of_other_blocks(name, named_case):
    executor = NumpyExecutor(program_of(named_case(name).path), PAGES)
    ids, table = prompt(5, 280), np.arange(PAGES, dtype=np.int32)
    whole = in_chunks(executor, ids, 280, table)
    assert np.isfinite(whole).all() and whole.std() > 0.5
    for size in (7, 64):
        assert np.array_equal(in_chunks(executor, ids, size, table), whole), size
    for at in (279, 256, 255, 9, 0):  # going back: a state does not skip what follows
        alone = executor.forward(Batch.single(ids[at : at + 1], at, table))
        assert np.array_equal(alone[0], whole[at]), at


@pytest.mark.parametrize("name", [*MODELS, MIXTURE, LATENT, *SPACES])
def test_neighbours_in_the_batch(name, named_case):
    """Three sequences stepping together, their pages interleaved, give what each gives alone."""
    program = program_of(named_case(name).path)
    lengths = (300, 17, 260)
    alone = [
        in_chunks(NumpyExecutor(program, PAGES), prompt(i, n), n, np.arange(PAGES, dtype=np.int32))[-1]
        for i, n in enumerate(lengths)
    ]
    executor = NumpyExecutor(program, 3 * PAGES)
    tables = tuple(np.arange(PAGES, dtype=np.int32) * 3 + i for i in range(3))
    before = [
        np.concatenate(column)
        for column in zip(
            *[(prompt(i, n)[:-1], np.arange(n - 1), np.full(n - 1, i)) for i, n in enumerate(lengths)], strict=True
        )
    ]
    none = np.empty(0, np.int32)
    assert executor.forward(Batch(*[c.astype(np.int32) for c in before], tables, none)).shape == (0, program.vocabulary)
    last = Batch(
        tokens=np.array([prompt(i, n)[-1] for i, n in enumerate(lengths)], np.int32),
        positions=np.array(lengths, np.int32) - 1,
        sequences=np.arange(3, dtype=np.int32),
        tables=tables,
        outputs=np.arange(3, dtype=np.int32),
    )
    assert np.array_equal(executor.forward(last), np.stack(alone))


@pytest.mark.parametrize("name", [*MODELS, *SPACES])
def test_pages_left_dirty(name, named_case):
    """What earlier owners left in the pages, not-a-number included, changes nothing."""
    program = program_of(named_case(name).path)
    table, ids = np.arange(PAGES, dtype=np.int32)[::-1].copy(), prompt(3, 40)
    clean, dirty = NumpyExecutor(program, PAGES), NumpyExecutor(program, PAGES)
    noise = np.full((PAGES, dirty.page_bytes(0) // 4), np.nan, np.float32).view(np.uint8)
    dirty.write_pages(0, range(PAGES), noise)
    assert np.array_equal(in_chunks(dirty, ids, 9, table), in_chunks(clean, ids, 40, table))


@pytest.mark.parametrize("precise", [False, True])
def test_weights_dequantised_as_they_are_used(precise, named_case, monkeypatch):
    """Holding weights or not changes no bit, strips that end inside a part of q, k, v included."""
    monkeypatch.setattr("llamay.tensor.weights.STRIP_BYTES", 1)
    program = program_of(named_case("qwen2-k.q4_k").path)
    held, used = (NumpyExecutor(program, 4, precise=precise, hold=hold) for hold in (True, False))
    assert "held" in held.residence and "as they are used" in used.residence
    ids, table = prompt(4, 33), np.arange(4, dtype=np.int32)
    expected, found = (in_chunks(executor, ids, 33, table) for executor in (held, used))
    if precise:  # a plain float64 product of other shape: equal but for the last bits
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    else:
        assert np.array_equal(found, expected)
        assert held.numerics == used.numerics


@pytest.mark.parametrize("core", CORES)
def test_other_kernels_of_the_library(core, named_case):
    """OpenBLAS told to take another processor's kernels: other bits perhaps, the same promise.

    Where the BLAS library is another one, the variable is ignored and this repeats test_chunks.
    """
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, test_numpy_bits as t\n"
        "e = t.NumpyExecutor(t.program_of(sys.argv[2]), t.PAGES); ids = t.prompt(1, 280); table = np.arange(t.PAGES, dtype=np.int32)\n"
        "whole = t.in_chunks(e, ids, 280, table)\n"
        "print(e.numerics, [bool(np.array_equal(t.in_chunks(e, ids, n, table), whole)) for n in (1, 7, 64)])"
    )
    arguments = [sys.executable, "-c", script, str(Path(__file__).parent), str(named_case("gemma3.f16").path)]
    environment = {**os.environ, "OPENBLAS_CORETYPE": core}
    run = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("[True, True, True]\n"), run.stdout
