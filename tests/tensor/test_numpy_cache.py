"""Cache formats and page groups on the NumPy executor: bits, bytes of pages, holes behind a window."""

from dataclasses import replace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import UsageError
from llamay.model import bind
from llamay.sample import Sampling
from llamay.tensor import twins
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.cache import CACHE_FORMATS, cache_format
from llamay.tensor.numpy import NumpyExecutor

LENGTH = 290  # past an attention split of 256
PAGES = -(-LENGTH // PAGE)
FORMATS = tuple(CACHE_FORMATS)
SPREAD = {"f32": 0.0, "f16": 2e-3, "vq8": 0.02, "q8": 0.03}  # mean difference of a logit, in standard deviations


@pytest.fixture
def program(named_case):
    def of(name):
        file = gguf.open(named_case(name).path)
        return replace(bind(file, describe(file)).program, context=1024)  # positions need not make sense

    return of


def prompt(seed, length=LENGTH):
    return np.random.default_rng(seed).integers(0, 320, length).astype(np.int32)


def logits(executor, ids, size, table, window=None, first=0):
    """Logits of every position from `first` on, computed `size` tokens at a time."""
    pieces = []
    for start in range(first, len(ids), size):
        part = ids[start : start + size]
        rows = np.arange(len(part), dtype=np.int32)
        windows = () if window is None else (window,)
        batch = Batch(part, start + rows, np.zeros_like(rows), (table,), rows, windows)
        pieces.append(executor.forward(batch))
    return np.concatenate(pieces)


# -- formats


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("name", ["llama-gqa.f16", "gemma3.f16"])
def test_chunks(name, kv, program):
    executor = NumpyExecutor(program(name), PAGES, kv=kv)
    ids, table = prompt(1), np.random.default_rng(2).permutation(PAGES).astype(np.int32)
    whole = logits(executor, ids, LENGTH, table)
    assert np.isfinite(whole).all() and whole.std() > 0.5
    for size in (7, 64):
        assert np.array_equal(logits(executor, ids, size, table), whole), size
    assert np.array_equal(logits(executor, ids, 1, table, first=250), whole[250:])


@pytest.mark.parametrize("kv", FORMATS)
def test_company(kv, program):
    model = program("llama-gqa.f16")
    parts = [prompt(seed, length) for seed, length in ((1, 40), (2, 5), (3, 33))]
    alone = [logits(NumpyExecutor(model, 3, kv=kv), part, 40, np.arange(3, dtype=np.int32))[-1] for part in parts]
    together = Batch(
        tokens=np.concatenate(parts),
        positions=np.concatenate([np.arange(len(part), dtype=np.int32) for part in parts]),
        sequences=np.repeat(np.arange(3, dtype=np.int32), [len(part) for part in parts]),
        tables=tuple(np.arange(3, dtype=np.int32) * 3 + at for at in range(3)),
        outputs=(np.cumsum([len(part) for part in parts]) - 1).astype(np.int32),
    )
    assert np.array_equal(NumpyExecutor(model, 9, kv=kv).forward(together), np.stack(alone))


def test_formats_differ_as_much_as_they_should(program):
    model, ids, table = program("llama-gqa.f16"), prompt(5), np.arange(PAGES, dtype=np.int32)
    exact = logits(NumpyExecutor(model, PAGES), ids, LENGTH, table)
    off = {
        kv: np.abs(logits(NumpyExecutor(model, PAGES, kv=kv), ids, LENGTH, table) - exact).mean() / exact.std()
        for kv in FORMATS
    }
    assert all(off[kv] <= most for kv, most in SPREAD.items()), off
    assert 0 == off["f32"] < off["f16"] < off["vq8"] < off["q8"] < 0.3 < off["q1"], off


@pytest.mark.parametrize("kv", FORMATS)
def test_numerics_name_the_format(kv, program):
    executor = NumpyExecutor(program("llama-gqa.f16"), 1, kv=kv)
    assert executor.numerics.endswith(f".{kv}") and executor.kv == kv


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("name", ["gemma2.f16", "gemma3.f16"])
def test_stale_pages(name, kv, program):
    """What earlier owners left, not-a-number where the format has it, changes nothing."""
    model, ids, table = program(name), prompt(3, 40), np.array([2, 0, 1], np.int32)
    clean, dirty = (NumpyExecutor(model, 4, window_pages=4, kv=kv) for _ in range(2))
    for layer in dirty._layers.values():
        for array in (layer.keys, layer.values, layer.key_scales, layer.value_scales):
            if array is not None:
                array[:] = 77 if array.dtype == np.int8 else np.nan
    expected = logits(clean, ids, 40, table, table)
    assert np.array_equal(logits(dirty, ids, 9, table, table), expected)


# -- the twins of the formats


def test_halves():
    found = twins.halves(np.array([1 + 2**-11, 1 + 3 * 2**-11, 1e9, -65520.0, 3e-8, -0.0]))  # ties to even
    assert found.tolist() == [1, 1 + 2**-9, 65504, -65504, 2**-25 * 2, 0] and np.signbit(found[-1])


def test_shrink():
    bytes, scales = twins.shrink(np.array([[127.0, -63.5, 0.5, -0.49, 1.5, 0.0], [0.0] * 6, [-254, 1, 3, 2, 0, 254]]))
    assert bytes.tolist() == [[127, -64, 1, 0, 2, 0], [0] * 6, [-127, 1, 2, 1, 0, 127]]
    assert scales.tolist() == [1, 0, 2]
    assert twins.shrink(np.full((1, 4), 1e-35))[0].tolist() == [[0] * 4]
    bytes, scales = twins.shrink(np.array([[3.0, -1e-3, 0.0, 1.001]], np.float32), one_bit=True)
    assert bytes.tolist() == [[127, -127, 0, 127]]
    np.testing.assert_allclose(scales * 127, [4.002 / 4], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shrink_is_near(dtype):
    x = np.random.default_rng(0).standard_normal((50, 3, 64)).astype(dtype) * 10.0 ** np.arange(-1, 2)[:, None]
    x = x.astype(dtype)
    bytes, scales = twins.shrink(x)
    assert bytes.dtype == np.int8 and scales.dtype == np.float32 and bytes.shape == x.shape
    assert (np.abs(bytes).max(-1) == 127).all()
    assert (np.abs(bytes * scales[..., None] - x) <= scales[..., None] * 0.501).all()


def test_unknown_format():
    with pytest.raises(UsageError, match="no KV format 'q4'; there are f32, f16, vq8, q8"):
        cache_format("q4")


# -- pages as bytes


def layouts(executor, layer, page, kv):
    """The keys and values [kv_heads, 16, hd] of a page, by the formulas of wgsl/include/pages.wgsl, from read_pages."""
    format, op = CACHE_FORMATS[kv], executor.program.layers[layer]
    count, dim = len(executor.program.layers), op.head_dim
    raw = executor.read_pages(0, [page])[0].tobytes()
    sizes = [format.key_bytes(dim) * op.kv_heads] * count + [format.value_bytes(dim) * op.kv_heads] * count
    cuts = np.cumsum([0, *sizes])
    assert len(raw) == cuts[-1] == executor.page_bytes(0)
    found = []
    for what, at, kind in ((0, layer, format.keys), (1, count + layer, format.values)):
        type = {"f32": np.float32, "f16": np.float16, "q8": np.int8}[kind]
        piece, size = raw[cuts[at] : cuts[at + 1]], np.dtype(type).itemsize
        out = np.zeros((op.kv_heads, PAGE, dim))
        for head in range(op.kv_heads):
            own = piece[head * len(piece) // op.kv_heads : (head + 1) * len(piece) // op.kv_heads]
            elements = np.frombuffer(own[: PAGE * dim * size], type)
            for token in range(PAGE):
                for d in range(dim):
                    quad = d // 4 * PAGE + token if what == 0 else token * dim // 4 + d // 4
                    out[head, token, d] = elements[4 * quad + d % 4]
            if kind == "q8":
                out[head] *= np.frombuffer(own[PAGE * dim :], np.float32)[:, None]
        found.append(out)
    return found


@pytest.mark.parametrize("kv", FORMATS)
def test_bytes_lie_as_on_the_device(kv, program):
    executor = NumpyExecutor(program("llama-gqa.f16"), 4, kv=kv)
    logits(executor, prompt(1, 40), 40, np.array([3, 1, 2], np.int32))
    kept = executor._layers[1].look(slice(PAGE, 2 * PAGE), PAGE)
    keys, values = layouts(executor, 1, 1, kv)
    ones = np.ones((1, PAGE), np.float32)
    np.testing.assert_allclose(
        keys,
        (kept.keys * (ones if kept.key_scales is None else kept.key_scales)[:, None]).transpose(0, 2, 1),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        values, kept.values * (ones if kept.value_scales is None else kept.value_scales)[..., None], rtol=1e-6
    )
    assert np.abs(keys).min() >= 0 and keys.std() > 0.01 < values.std()


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("how", ["copied", "written"])
def test_moved_pages(how, kv, program):
    """A text goes on from copies of its pages, in this executor or another, with the same bits; the originals stay."""
    model, ids = program("gemma3.f16"), prompt(4, 90)
    windows = {"window_pages": 14, "kv": kv}
    first = NumpyExecutor(model, 12, **windows)
    tables = np.array([4, 2, 0, 1, 3, 5], np.int32), np.array([7, 8, 9, 2, 1, 0], np.int32)
    whole = logits(first, ids, 90, *tables)
    logits(first, ids[:50], 50, *tables)
    other = np.array([11, 6, 7, 10, 9, 8], np.int32), np.array([13, 12, 3, 4, 5, 6], np.int32)
    second = first if how == "copied" else NumpyExecutor(model, 12, **windows)
    kept = [first.read_pages(group, tables[group][:4].tolist()) for group in (0, 1)]
    for group in (0, 1):
        old, new = tables[group][:4].tolist(), other[group][:4].tolist()
        if how == "copied":
            first.copy_pages(group, list(zip(old, new, strict=True)))
        else:
            second.write_pages(group, new, kept[group])
        assert np.array_equal(second.read_pages(group, new), kept[group])
    assert np.array_equal(logits(second, ids, 11, *other, first=50), whole[50:])
    for group in (0, 1):
        assert np.array_equal(first.read_pages(group, tables[group][:4].tolist()), kept[group])
    assert not np.array_equal(kept[0][0], kept[0][1])


def test_page_refusals(program):
    executor = NumpyExecutor(program("gemma3.f16"), 3, window_pages=2)
    assert executor.page_bytes(0) * 6 == executor.page_bytes(1)  # one layer of seven has no window
    assert executor.read_pages(0, []).shape == (0, executor.page_bytes(0))
    executor.write_pages(0, [], np.empty((0, executor.page_bytes(0)), np.uint8))
    executor.copy_pages(1, [])
    with pytest.raises(UsageError, match="copied and written over"):
        executor.copy_pages(0, [(0, 1), (1, 2)])
    with pytest.raises(UsageError, match="written over twice"):
        executor.copy_pages(0, [(0, 2), (1, 2)])
    for wrong in (-1, 3):
        with pytest.raises(UsageError, match="the pool has 3"):
            executor.copy_pages(0, [(0, wrong)])
        with pytest.raises(UsageError, match="the pool has 3"):
            executor.read_pages(0, [wrong])
    with pytest.raises(UsageError, match="the pool has 2"):
        executor.write_pages(1, [2], np.zeros((1, executor.page_bytes(1)), np.uint8))
    with pytest.raises(UsageError, match="1 pages hold bytes"):
        executor.write_pages(1, [1], np.zeros((1, 4), np.uint8))
    with pytest.raises(UsageError, match="page group 2"):
        executor.page_bytes(2)
    with pytest.raises(UsageError, match="has 1"):
        NumpyExecutor(program("llama-gqa.f16"), 3, window_pages=2).page_bytes(1)  # no layer has a window


# -- the window group


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("name", ["gemma2.f16", "gemma3.f16"])
def test_holes(name, kv, program):
    """Layers with a window of 16 in pages of their own, given up as soon as no window reaches them."""
    model, ids = program(name), prompt(6, 120)
    table = np.random.default_rng(1).permutation(8).astype(np.int32)
    whole = logits(NumpyExecutor(model, 8, kv=kv), ids, 120, table)
    few = NumpyExecutor(model, 8, window_pages=4, kv=kv)
    pieces, free, window = [], [0, 1, 2, 3], np.zeros(8, np.int32)  # 0 in holes: masked, never used
    held: dict[int, int] = {}
    for start in range(0, 120, 10):
        for page in [page for page in held if page < max(0, start - 15) // PAGE]:
            free.append(held.pop(page))
            window[page] = 0
            few.write_pages(1, free[-1:], np.full((1, few.page_bytes(1)), 0xFF, np.uint8))  # its next owner's
        for page in range(start // PAGE, (start + 9) // PAGE + 1):
            if page not in held:
                held[page] = window[page] = free.pop(0)
        pieces.append(logits(few, ids[: start + 10], 10, table, window, first=start))
    assert np.array_equal(np.concatenate(pieces), whole)


def test_submissions_keep_window_tables(program):
    model, ids = program("gemma3.f16"), prompt(7, 30)
    greedy, table, window = (
        (Sampling(temperature=0.0),),
        np.array([1, 3, 2, 0], np.int32),
        np.array([2, 0, 3, 1], np.int32),
    )
    found = []
    for windows in ((), (window,)):
        executor = NumpyExecutor(model, 4, window_pages=4 * len(windows))
        executor.begin(greedy, (ids,))
        rows = np.arange(30, dtype=np.int32)
        executor.submit(Batch(ids, rows, rows * 0, (table,), rows[-1:], windows), 20)
        found.append(executor.collect()[:, 0].tolist())
    assert found[0] == found[1] and len(set(found[0])) > 1


def test_window_refusals(program):
    executor = NumpyExecutor(program("gemma3.f16"), 4, window_pages=1)
    ids, table = prompt(1, 17), np.arange(2, dtype=np.int32)
    with pytest.raises(UsageError, match="1 sequences came with 0 window tables"):
        logits(executor, ids, 17, table)
    with pytest.raises(UsageError, match="position 16 lies beyond the 1 pages"):
        logits(executor, ids, 17, table, table[:1])
    with pytest.raises(UsageError, match="outside the pool of 1"):
        logits(executor, ids, 17, table, table)


# -- an executor beside another


def test_beside(program):
    model, ids, table = program("gemma3.f16"), prompt(8, 40), np.arange(3, dtype=np.int32)
    executor = NumpyExecutor(model, 3)
    whole = logits(executor, ids, 40, table)
    for kv in FORMATS:
        other = executor.beside(kv, 3)
        assert (other.kv, other.pages, other.window_pages) == (kv, 3, 0) and other.numerics.endswith(f".{kv}")
        assert other._products.keys() == executor._products.keys()
        assert np.array_equal(logits(other, ids, 9, table), logits(NumpyExecutor(model, 3, kv=kv), ids, 40, table))
        other.close()
    assert np.array_equal(logits(executor, ids, 40, table, first=0), whole)
