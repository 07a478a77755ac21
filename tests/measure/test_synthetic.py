"""Synthetic models: real shapes and sizes, valid bytes of every type, next to no memory."""

import tracemalloc

import numpy as np
import pytest

from llamay.bench import shapes
from llamay.bench.shapes import MIXES, SHAPES, Mix, named
from llamay.bench.synthetic import SPREAD, build, make
from llamay.errors import UsageError
from llamay.quant import LAYOUTS, TensorType, dequantize
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Embed, ExpertGated, ExpertResidual, Gated, Head, Matrix, Qkv, Residual, Route

GIGABYTES = {  # of the tensors in the files of these models that are commonly downloaded
    "llama-8b:q4_k_m": 4.912,
    "llama-1b:q4_k_m": 0.800,
    "qwen-0.5b:q8_0": 0.525,
    "smollm2-135m:q8_0": 0.143,
    "qwen3-30b-a3b:q4_k_m": 18.56,
}


def matrices(program) -> list[Matrix]:
    found = []
    for op in program.operations:
        match op:
            case Embed(table=table):
                found.append(table)
            case Qkv(linear=linear) | Residual(linear=linear) | Route(linear=linear) | Head(linear=linear):
                found += linear.parts
            case Gated(gate=gate, up=up):
                found += [*gate.parts, *up.parts]
            case ExpertGated(gate=gates, up=ups):
                found += [part for linear in (*gates, *ups) for part in linear.parts]
            case ExpertResidual(down=downs):
                found += [part for linear in downs for part in linear.parts]
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_binds_whole(name: str) -> None:
    shape, mix = named(f"{name}:q4_k_m")
    made = build(shape, mix)
    names = [name for name, _ in shape.tensors()]
    assert len(names) == len(set(names))
    assert len(made.program.layers) == shape.layers
    assert made.program.vocabulary == shape.vocabulary
    stacked = {matrix.name.partition("#")[0] for matrix in matrices(made.program)}
    assert stacked == {name for name, dims in shape.tensors() if len(dims) > 1}


@pytest.mark.parametrize(("spec", "gigabytes"), GIGABYTES.items())
def test_sizes_are_those_of_the_real_files(spec: str, gigabytes: float) -> None:
    assert make(spec).bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize("type", LAYOUTS, ids=lambda type: type.name)
def test_every_type_gives_a_model_that_computes(type: TensorType) -> None:
    program = build(SHAPES["tiny"], Mix(type, output=None)).program
    for matrix in matrices(program):
        assert matrix.type == type
        values = dequantize(type, matrix.read(0, matrix.rows))
        assert values.shape == (matrix.rows, matrix.columns)
        assert np.isfinite(values).all()
        assert values.std() == pytest.approx(SPREAD, rel=0.3)
    executor = NumpyExecutor(program, 2)
    logits = executor.forward(Batch.single(np.arange(9, dtype=np.int32), 0, np.arange(2, dtype=np.int32)))
    assert np.isfinite(logits).all()
    assert len(np.unique(logits)) > 300  # of 512 tokens; rows of one block may be alike
    executor.close()


def test_rows_differ() -> None:
    table = matrices(make("tiny:q4_0").program)[0]
    rows = table.read(0, table.rows)
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_a_model_of_eight_billion_weights_takes_little_memory() -> None:
    tracemalloc.start()
    made = make("llama-8b:q4_k_m")
    for matrix in matrices(made.program):
        assert matrix.read(0, 1).shape[0] == 1
        matrix.read(matrix.rows - 1, matrix.rows)[-1].copy()  # the last row is there
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_is_between_its_types(mix: str) -> None:
    chosen = MIXES[mix]
    sizes = [make(f"llama-1b:{name}").bytes for name in (chosen.base.name, mix, "q8_0")]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3


def test_better_types_go_to_the_first_the_last_and_every_third_layer() -> None:
    shape, mix = named("llama-8b:q4_k_m")
    better = [layer for layer in range(32) if mix.type(f"blk.{layer}.ffn_down.weight", 14336, shape) == TensorType.Q6_K]
    assert better == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    assert mix.type("blk.5.ffn_up.weight", 4096, shape) == TensorType.Q4_K
    assert mix.type("output.weight", 4096, shape) == TensorType.Q6_K
    assert mix.type("token_embd.weight", 4096, shape) == TensorType.Q4_K  # not tied
    assert mix.type("blk.0.attn_norm.weight", 4096, shape) == TensorType.F32


def test_rows_without_whole_blocks_take_a_type_of_smaller_ones() -> None:
    shape, mix = named("qwen-0.5b:q4_k_m")  # rows of 896
    assert mix.type("blk.5.ffn_up.weight", 896, shape) == TensorType.Q5_0
    assert mix.type("blk.0.attn_v.weight", 896, shape) == TensorType.Q8_0
    assert mix.type("blk.5.ffn_down.weight", 4864, shape) in (TensorType.Q4_K, TensorType.Q6_K)
    for type in LAYOUTS:
        assert Mix(type).type("blk.5.ffn_up.weight", 896, shape) in LAYOUTS  # whatever has blocks of 256


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("llama-2b:q4_k_m", "there are tiny, .*llama-8b.*followed by :TYPE"),
        ("llama-1b:q9_z", "asks for the type 'q9_z'; there are .*q4_k_m.*q8_0"),
        ("llama-1b", "asks for the type ''"),
        ("llama-1b:i32", "asks for the type 'i32'"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(spec)


def test_windows_slide_where_the_architecture_lets_them() -> None:
    config = shapes.SHAPES["gemma3-1b"].config()
    assert config.windows[:6] == (512,) * 5 + (0,)
    assert shapes.SHAPES["llama-1b"].config().windows == (0,) * 16
