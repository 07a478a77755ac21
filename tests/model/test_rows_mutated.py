"""Files of rows.py with wrong hyper-parameters, shapes or tensors left out are refused by a typed error, or run."""

import importlib.util
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import LlamayError, MalformedFile
from llamay.model import Bound, bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

_specification = importlib.util.spec_from_file_location("rows", Path(__file__).parent / "rows.py")
rows = importlib.util.module_from_spec(_specification)
sys.modules["rows"] = rows  # where dataclasses look for it
_specification.loader.exec_module(rows)

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
NAMES = [name for name, row in rows.ROWS.items() if row.layers < 64]
IDS, TABLE = np.array(rows.IDS, np.int32), np.array([5, 6, 7, 3, 1, 0, 2], np.int32)
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 64, 128, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, -1, 0.0, 1e-9, 0.5, 1e6, 1e30, float("inf"), float("nan"), True, "x")
KEYS = (  # that not every file has
    "attention.head_count_kv", "attention.sliding_window", "attention.sliding_window_pattern", "attention.temperature_length",
    "attention.temperature_scale", "attention.scale", "embedding_scale", "expert_count", "expert_group_count", "feed_forward_length",
    "logit_scale", "nextn_predict_layers", "pooling_type", "residual_scale", "rope.scaling.yarn_log_multiplier", "shortconv.l_cache",
    "ssm.conv_kernel", "ssm.group_count", "ssm.state_size", "ssm.time_step_rank",
)  # fmt: skip


def opened(path: Path, row: Any, keys: dict[str, Any], tensors: list[Any] | None = None) -> Bound:
    """What is made of the row's file with other keys, and with other tensors where they are given."""
    named = {f"{row.architecture}.{key}": value for key, value in keys.items()}
    gguf.write(path, {**row.metadata(), **named}, iter(row.tensors() if tensors is None else tensors))
    file = gguf.open(path)
    return bind(file, describe(file))


def forward(bound: Bound) -> Any:
    """The last logits, or the vector."""
    ids = IDS[: bound.program.context] % bound.program.vocabulary
    executor = NumpyExecutor(bound.program, 8)
    try:
        (row,) = executor.forward(Batch.single(ids, 0, TABLE))
        return bound.finish.vector(row) if bound.program.pools else row
    finally:
        executor.close()


def changes(row: Any, chance: random.Random) -> tuple[dict[str, Any], list[Any]]:
    """Some keys or arrays of them with other values; tensors with a dimension that is another, or without one of them."""
    own = [key.removeprefix(f"{row.architecture}.") for key in row.metadata() if key.startswith(f"{row.architecture}.")]
    keys, tensors = {}, list(row.tensors())
    for key in chance.sample([*own, *KEYS], chance.choice([0, 1, 1, 2])):
        several = [chance.choice([0, 0, 1, 2, *NUMBERS[:17]]) for _ in range(chance.choice([row.layers, row.layers, 1]))]
        keys[key] = chance.choice([chance.choice(NUMBERS), several, [0] * row.layers])
    at = chance.randrange(len(tensors))
    if chance.random() < 0.2:
        del tensors[at]
    elif chance.random() < 0.3:
        name, type, shape, values = tensors[at]
        sizes = list(shape)
        sizes[chance.randrange(len(sizes))] = chance.choice([1, 2, 63, 65, 128])
        tensors[at] = name, type, tuple(sizes), np.resize(values.reshape(-1), int(np.prod(sizes)))
    return keys, tensors


def tried(name: str, path: Path, count: int) -> Iterator[bool]:
    """Whether each of `count` changed files still ran."""
    row, chance = rows.ROWS[name], random.Random(name)
    for _ in range(count):
        keys, tensors = changes(row, chance)
        try:
            forward(opened(path, row, keys, tensors))
        except LlamayError as error:
            assert str(error)
            yield False
        else:
            yield True


@pytest.mark.parametrize("name", NAMES)
def test_a_few(name, tmp_path):
    list(tried(name, tmp_path / "model.gguf", 8))


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_many(name, tmp_path):
    ran = list(tried(name, tmp_path / "model.gguf", max(40, round(200 * SOAK))))
    assert True in ran and False in ran


def test_gate_and_up_in_one_tensor_that_is_missing(tmp_path):
    row = rows.ROWS["chatglm"]
    with pytest.raises(MalformedFile, match=r"no tensor blk\.2\.ffn_up\.weight, expected with shape \[64, 192\]"):
        opened(tmp_path / "model.gguf", row, {}, [one for one in row.tensors() if one[0] != "blk.2.ffn_up.weight"])


def test_layers_that_all_are_feed_forwards(tmp_path):
    """Nothing would have pages."""
    row = rows.ROWS["nemotron_h"]
    sizes = {key.split(".", 1)[1]: value for key, value in row.metadata().items() if ".ssm." in key}
    with pytest.raises(MalformedFile, match="all layers are feed-forwards, expected some with attention or a state space"):
        opened(tmp_path / "model.gguf", replace(row, scanned=(), fed=tuple(range(6))), sizes)


@pytest.mark.parametrize("name", ["olmo3", "gemma-embedding"])
def test_the_largest_window_hides_nothing(name, tmp_path):
    wide, widest = (forward(opened(tmp_path / f"{window}.gguf", rows.ROWS[name], {"attention.sliding_window": window})) for window in (100, 2**31 - 1))
    assert np.array_equal(wide, widest)


@pytest.mark.parametrize("missing", ["dense_2", "dense_3"])
def test_one_of_two_linears(missing, tmp_path):
    row = rows.ROWS["gemma-embedding"]
    with pytest.raises(MalformedFile, match=f"no tensor {missing}.weight"):
        opened(tmp_path / "model.gguf", row, {}, [one for one in row.tensors() if one[0] != f"{missing}.weight"])


def test_linears_whose_vectors_float32_does_not_hold(tmp_path):
    row = rows.ROWS["gemma-embedding"]
    tensors = [(name, type, shape, values * np.float32(1e30 if name.startswith("dense_") else 1)) for name, type, shape, values in row.tensors()]
    assert np.isinf(forward(opened(tmp_path / "model.gguf", row, {}, tensors))).any()
