"""Cache formats and page groups on the device: NumPy agrees, bits do not change, pages move, windows leave holes."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import UsageError
from llamay.model import bind
from llamay.sample import Sampling
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.cache import CACHE_FORMATS
from llamay.tensor.numpy import NumpyExecutor

FORMATS = tuple(CACHE_FORMATS)
# windows and none in one model; a cap on scores, and none at all, with formats of both kinds: kernels are what this costs
PAIRS = [*(("gemma3.f16", kv) for kv in FORMATS), ("gemma2.f16", "f32"), ("gemma2.f16", "vq8"), ("llama-gqa.f16", "f16")]
APART = {"f32": 3e-4, "f16": 5e-3, "vq8": 1e-2, "q8": 5e-2, "q1": 3e-1}  # a logit that lies on a tie goes the other way
LENGTH = 100


@pytest.fixture
def program(named_case):
    def of(name):
        file = gguf.open(named_case(name).path)
        return replace(bind(file, describe(file)).program, context=1024)  # positions need not make sense

    return of


@pytest.fixture
def made(gpu):
    """Executors on the shared device; what they took there is given back at the end."""
    from llamay.tensor.webgpu.device import Guest
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    guests = []

    def make(program, pages, device=gpu, **more):
        guests.append(Guest(device))
        return WebGPUExecutor(guests[-1], program, pages, **{"rows": 64, **more})

    yield make
    for guest in guests:
        guest.close()


def prompt(seed, length=LENGTH):
    return np.random.default_rng(seed).integers(0, 320, length).astype(np.int32)


def logits(executor, ids, size, table, window, first=0):
    pieces = []
    for start in range(first, len(ids), size):
        part = ids[start : start + size]
        rows = np.arange(len(part), dtype=np.int32)
        pieces.append(executor.forward(Batch(part, start + rows, np.zeros_like(rows), (table,), rows, (window,))))
    return np.concatenate(pieces)


def tables(seed, *pools):
    """A table of scattered pages for each group."""
    random = np.random.default_rng(seed)
    return [random.permutation(pool)[: -(-LENGTH // PAGE)].astype(np.int32) for pool in pools]


@pytest.mark.parametrize(("name", "kv"), PAIRS)
def test_agree_with_numpy(name, kv, program, made):
    model, ids = program(name), prompt(1)
    where = tables(2, 9, 8)
    ours, theirs = (
        logits(make(model, 9, window_pages=8, kv=kv), ids, LENGTH, *where) for make in (made, NumpyExecutor)
    )
    assert theirs.std() > 0.5
    assert np.abs(ours - theirs).max() <= APART[kv] * theirs.std()
    assert np.abs(ours - theirs).mean() <= APART[kv] * theirs.std() / 20


@pytest.mark.parametrize("kv", ["f16", "q8"])
def test_latents(kv, program, made):
    """One row for all heads, as keys are kept: NumPy agrees, and pages that go elsewhere by way of the host keep their bits."""
    model, ids = program("deepseek3.f32"), prompt(1)
    (where,), (moved,) = tables(2, 9), tables(3, 9)
    executor, other = made(model, 9, kv=kv), NumpyExecutor(model, 9, kv=kv)
    ours, theirs = (logits(each, ids, LENGTH, where, where) for each in (executor, other))
    assert np.abs(ours - theirs).mean() <= APART[kv] * theirs.std() / 20
    assert executor.page_bytes(0) == other.page_bytes(0)
    held = executor.read_pages(0, where[:5].tolist())
    executor.copy_pages(0, [(int(where[0]), int(where[-2]))])
    assert np.array_equal(executor.read_pages(0, [int(where[-2])])[0], held[0])
    fresh = made(model, 9, kv=kv)
    fresh.write_pages(0, moved[:5].tolist(), held)
    assert np.array_equal(logits(fresh, ids, 7, moved, moved, first=80), ours[80:])
    other.write_pages(0, moved[:5].tolist(), held)
    assert np.array_equal(other.read_pages(0, moved[:5].tolist()), held)


@pytest.mark.parametrize("kv", FORMATS)
def test_bits(kv, program, made):
    """By chunks of other sizes, in company, from pages copied or brought from outside: the same bits."""
    model, ids = program("gemma3.f16"), prompt(3)
    executor, where, moved = made(model, 24, window_pages=22, kv=kv), tables(4, 12, 11), tables(5, 12, 11)
    moved = [moved[0] + np.int32(12), moved[1] + np.int32(11)]
    whole = logits(executor, ids, LENGTH, *where)
    assert np.isfinite(whole).all() and whole.std() > 0.5
    for size in (7, 33):
        assert np.array_equal(logits(executor, ids, size, *where), whole), size
    assert np.array_equal(logits(executor, ids, 1, *where, first=70), whole[70:])

    held = [executor.read_pages(group, where[group][:4].tolist()) for group in (0, 1)]
    for group in (0, 1):
        executor.copy_pages(group, list(zip(where[group][:4].tolist(), moved[group][:4].tolist(), strict=True)))
        assert np.array_equal(executor.read_pages(group, moved[group][:4].tolist()), held[group])
    assert np.array_equal(logits(executor, ids, 13, *moved, first=50), whole[50:]), "copied"
    assert np.array_equal(executor.read_pages(0, where[0][:4].tolist()), held[0])

    another = made(model, 12, window_pages=11, kv=kv)
    for group in (0, 1):
        another.write_pages(group, where[group][:4].tolist(), held[group])
    assert np.array_equal(logits(another, ids, 13, *where, first=50), whole[50:]), "written"

    rows = np.arange(30, dtype=np.int32)
    both = Batch(
        np.concatenate([prompt(6, 30), ids[64:94]]),
        np.concatenate([rows, rows + 64]),
        np.repeat(np.arange(2, dtype=np.int32), 30),
        (moved[0], where[0]),
        np.arange(60, dtype=np.int32),
        (moved[1], where[1]),
    )
    assert np.array_equal(executor.forward(both)[30:], whole[64:94]), "company"


@pytest.mark.parametrize(("name", "kv"), [pair for pair in PAIRS if pair[0] != "llama-gqa.f16"])
def test_holes(name, kv, program, made):
    """Layers with a window of 16 in pages of their own, given up as soon as no window reaches them."""
    holes(program(name), kv, made)


@pytest.mark.parametrize("kv", ["f32", "q8"])
def test_holes_where_a_chunk_has_two_pages(kv, program, made, portable_gpu, monkeypatch):
    """Workgroups of 32 lanes look at 32 positions at a time, and so into the hole beside the window."""
    assert portable_gpu.launch.attention_lanes > PAGE
    monkeypatch.setattr(portable_gpu, "launch", replace(portable_gpu.launch, tokens=(1,)))  # more take long to compile
    holes(program("gemma2.f16"), kv, partial(made, device=portable_gpu, rows=16))


def holes(model, kv, made):
    ids = prompt(6)
    table = tables(1, 7)[0]
    whole = logits(made(model, 7, kv=kv), ids, LENGTH, table, table)
    few = made(model, 7, window_pages=4, kv=kv)
    pieces, free, window = [], [0, 1, 2, 3], np.zeros(7, np.int32)  # 0 in holes: masked, never used
    held: dict[int, int] = {}
    for start in range(0, LENGTH, 10):
        for page in [page for page in held if page < max(0, start - 15) // PAGE]:
            free.append(held.pop(page))
            window[page] = 0
            few.write_pages(1, free[-1:], np.full((1, few.page_bytes(1)), 0xFF, np.uint8))  # its next owner's NaNs
        for page in range(start // PAGE, (start + 9) // PAGE + 1):
            if page not in held:
                held[page] = window[page] = free.pop(0)
        pieces.append(logits(few, ids[: start + 10], 10, table, window, first=start))
    assert np.array_equal(np.concatenate(pieces), whole)


def test_submissions_keep_window_tables(program, made):
    model, ids = program("gemma3.f16"), prompt(7, 30)
    table, window = np.array([1, 3, 2, 0], np.int32), np.array([2, 0, 3, 1], np.int32)
    found = []
    for make in (made, NumpyExecutor):
        for windows in ((), (window,)):
            executor = make(model, 4, window_pages=4 * len(windows))
            executor.begin((Sampling(temperature=0.0),), (ids,))
            rows = np.arange(30, dtype=np.int32)
            executor.submit(Batch(ids, rows, rows * 0, (table,), rows[-1:], windows), 12)
            executor.submit(None, 8)
            found.append(np.concatenate([executor.collect(), executor.collect()])[:, 0].tolist())
    assert found[0] == found[1] == found[2] == found[3] and len(set(found[0])) > 1


def test_page_refusals(program, made):
    executor = made(program("gemma3.f16"), 3, window_pages=2)
    same = NumpyExecutor(program("gemma3.f16"), 3, window_pages=2)
    assert [executor.page_bytes(group) for group in (0, 1)] == [same.page_bytes(group) for group in (0, 1)]
    assert executor.read_pages(0, []).shape == (0, executor.page_bytes(0))
    executor.write_pages(0, [], np.empty((0, executor.page_bytes(0)), np.uint8))
    executor.copy_pages(1, [])
    with pytest.raises(UsageError, match="copied and written over"):
        executor.copy_pages(0, [(0, 1), (1, 2)])
    with pytest.raises(UsageError, match="written over twice"):
        executor.copy_pages(0, [(0, 2), (1, 2)])
    for wrong in (-1, 3):  # 3 is the page of padding rows
        with pytest.raises(UsageError, match="the pool has 3"):
            executor.copy_pages(0, [(0, wrong)])
        with pytest.raises(UsageError, match="the pool has 3"):
            executor.read_pages(0, [wrong])
    with pytest.raises(UsageError, match="the pool has 2"):
        executor.write_pages(1, [2], np.zeros((1, executor.page_bytes(1)), np.uint8))
    with pytest.raises(UsageError, match="1 pages hold"):
        executor.write_pages(1, [1], np.zeros((1, 4), np.uint8))
    with pytest.raises(UsageError, match="page group 2"):
        executor.page_bytes(2)


def test_beside(program, made):
    """Other formats over the same weights; nothing of them is left behind, and nothing of the first one changes."""
    model, ids, table = program("gemma3.f16"), prompt(8), tables(1, 7)[0]
    executor = made(model, 7)
    whole = logits(executor, ids, LENGTH, table, table)
    before = executor.device.allocated
    for kv in ("f32", "q8"):
        other = executor.beside(kv, 7)
        assert (other.kv, other.pages, other.window_pages) == (kv, 7, 0) and other.numerics.endswith(f".{kv}")
        assert 0 < other.device.allocated and executor.device.allocated == before
        assert np.array_equal(
            logits(other, ids, 30, table, table), logits(made(model, 7, kv=kv), ids, 50, table, table)
        )
        before = executor.device.allocated
        other.close()
        other.close()
        assert other.device.allocated == 0 and executor.device.allocated == before
    assert np.array_equal(logits(executor, ids, 50, table, table), whole)
