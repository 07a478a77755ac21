"""Architectures that are another's block under a name of their own or with one difference, against llama.cpp (see rows.py)."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.model import bind
from llamay.sample import Sampling
from llamay.serve.encoding import Encoded, batch_of
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.webgpu.device import Guest
from llamay.tensor.webgpu.executor import WebGPUExecutor

_specification = importlib.util.spec_from_file_location("rows", Path(__file__).parent / "rows.py")
rows = importlib.util.module_from_spec(_specification)
sys.modules["rows"] = rows  # where dataclasses look for it
_specification.loader.exec_module(rows)

REFERENCE = np.load(rows.REFERENCE)
TABLE = np.array([5, 6, 7, 3, 1, 0, 2], np.int32)
IDS = np.array(rows.IDS, np.int32)
HALVES = 3e-3  # llama.cpp reads GELU from a table of half floats
TOLERANCES = {"codeshell": HALVES, "starcoder": HALVES, "gemma-embedding": 2e-4}
EMBED = [name for name, row in rows.ROWS.items() if row.embeds]


@pytest.fixture(params=rows.ROWS)
def name(request):
    return request.param


@pytest.fixture
def file(name, tmp_path):
    rows.save(name, tmp_path / "model.gguf")
    with gguf.open(tmp_path / "model.gguf") as opened:
        yield opened


@pytest.fixture(params=["numpy", "webgpu"])
def executor(request, file):
    """The model's, on pages of its own."""
    program = bind(file, describe(file)).program
    if request.param == "numpy":
        made = NumpyExecutor(program, 8)
        yield made
        made.close()
        return
    guest = Guest(request.getfixturevalue("gpu"))
    yield WebGPUExecutor(guest, program, 8, rows=64)
    guest.close()


def test_llama_cpp(name, file, executor):
    if name in EMBED:
        (row,) = executor.forward(Batch.single(IDS, 0, TABLE))
        found = bind(file, describe(file)).finish.vector(row)
        assert np.abs(found - REFERENCE[f"{name}.vector"]).max() <= TOLERANCES.get(name, 3e-5)
        return
    found = executor.forward(Batch.single(IDS, 0, TABLE, np.array(rows.AT, np.int32)))
    assert np.abs(found - REFERENCE[f"{name}.logits"]).max() <= TOLERANCES.get(name, 3e-5)
    executor.begin((Sampling(temperature=0.0),), (IDS,))
    executor.submit(Batch.single(IDS, 0, TABLE), 4)
    executor.submit(None, 8)
    tokens = np.concatenate([executor.collect(), executor.collect()])[:, 0]
    assert tokens.tolist() == REFERENCE[f"{name}.greedy"].tolist()


@pytest.mark.parametrize("name", EMBED)
def test_a_text_is_the_same_beside_others(executor):
    texts = [Encoded(tuple(rows.IDS[:length])) for length in (40, 3, 17)]
    together = executor.forward(batch_of(texts))
    for at, text in enumerate(texts):
        assert np.array_equal(executor.forward(batch_of([text]))[0], together[at])


def test_nothing_is_left_unread(file):
    config = describe(file)
    assert not bind(file, config).audit.unread
    sections = f"{config.architecture}.rope.dimension_sections"  # of what is seen; a text has equal positions in all of them
    assert set(config.unread_keys) <= {sections, f"{config.architecture}.n_deepstack_layers"}


def test_the_reference_has_every_row():
    asked = {name: ("vector",) if name in EMBED else ("logits", "greedy") for name in rows.ROWS}
    assert set(REFERENCE) == {f"{name}.{what}" for name, several in asked.items() for what in several}


@pytest.mark.parametrize("name", ["mistral3"])
def test_positions_end_where_the_softmax_would_get_sharper(file):
    assert describe(file).context == 64
