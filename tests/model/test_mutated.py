"""Files whose hyper-parameters are wrong are refused by a typed error, or run: nothing crashes, hangs or takes what it must not."""

import os
import random
from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import LlamayError
from llamay.model import bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
VALUES = (0, 1, 2, 3, 4, 7, 8, 16, 64, 128, 2**31 - 1, 2**32 - 1, 2**63, -1, 0.0, 1e-9, 1e30, -5.0, float("nan"), True, False, "x")
MORE = (  # keys that not every file has
    "attention.max_alibi_bias", "attention.key_length", "attention.value_length", "attention.sliding_window",
    "attention.head_count_kv", "attention.scale", "logit_scale", "rope.dimension_count", "rope.freq_base", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.attn_factor", "use_parallel_residual",
)  # fmt: skip


def tried(case, count: int) -> int:
    """How many of `count` changed files still ran."""
    ran, chance = 0, random.Random(case.id)
    with gguf.open(case.path) as file:
        prefix = f"{file.metadata['general.architecture']}."
        keys = [key for key in file.metadata if key.startswith(prefix)] + [prefix + key for key in MORE]
        for _ in range(count):
            changes = {key: chance.choice(VALUES) for key in chance.sample(keys, chance.choice([1, 1, 2, 3]))}
            changed = SimpleNamespace(metadata={**file.metadata, **changes}, tensors=file.tensors)
            try:
                program = bind(changed, describe(changed)).program
                rows = min(3, program.context)
                batch = Batch.single(np.arange(rows, dtype=np.int32), 0, np.zeros(1, np.int32))
                logits = NumpyExecutor(program, 1).forward(batch)
            except LlamayError as error:
                assert str(error)
            else:
                ran += 1
                assert logits.shape[0] == 1
    return ran


def test_a_few(case):
    tried(case, 3)


@pytest.mark.soak
def test_many(case):
    count = max(20, round(100 * SOAK))  # fewer may all run, or none
    assert 0 < tried(case, count) < count
