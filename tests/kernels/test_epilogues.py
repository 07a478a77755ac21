"""What linear.wgsl does with its sums: qkv, residual, heads, gated, activated and head, against their twins, with strays caught."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.quant import TensorType, dequantize
from llamay.tensor import twins
from llamay.tensor.program import Linear, Matrix, Norm, Qkv, Rope
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.weights import interleaved

LAUNCHES = ["own", "wide", "lanes", "portable"]
TOKENS = {"own": 4, "wide": 2, "lanes": 1, "portable": 1}
TYPE = TensorType.Q8_0
COLUMNS = 64
EPS = 1e-5
SEED = st.integers(0, 2**32 - 1)
COUNT = st.integers(1, 6)


@pytest.fixture(params=LAUNCHES, scope="session")
def launched(request, lab):
    """A launch and its tokens a workgroup."""
    return lab.variant(request.param), TOKENS[request.param]


class Normed:
    """A residual stream h, as the writer before a normed linear leaves it: h times the norm's weight, and sums."""

    def __init__(self, random, count: int, padded: int, partials: int, rows=None) -> None:
        self.h = random.standard_normal((count, COLUMNS)) * 10 ** random.uniform(-3, 1)  # eps counts in the small
        self.weight = random.uniform(0.5, 2, COLUMNS)
        self.x = (self.h * self.weight).astype(np.float32)
        share = random.dirichlet(np.ones(partials), count)
        sums = np.full((padded, partials), np.nan, np.float32)
        sums[:count] = np.square(self.h).sum(-1, keepdims=True) * share
        self.sums = sums
        self.dims = {"width": COLUMNS, "eps": EPS, "partials": partials}

    def twin(self, weights) -> tuple[np.ndarray, np.ndarray]:
        """The linear of the normed h, and the size of its terms."""
        normed = twins.rms_norm(self.h, self.weight, EPS)
        y = twins.linear(normed, weights.values, weights.bias)
        scale = np.abs(normed).sum(-1, keepdims=True) * np.abs(weights.values).max(-1)
        return y, scale if weights.bias is None else scale + np.abs(weights.bias)


def matrix(lab, launched, rows, random, biased=False):
    bias = random.standard_normal(rows).astype(np.float32) if biased else None
    return lab.load(launched[0], TYPE, lab.blocks(TYPE, rows, COLUMNS, random), bias)


def whole(lab, launched, values):
    """Weights that are the given whole numbers."""
    blocks = np.zeros((len(values), COLUMNS // 32, 34), np.uint8)
    blocks[..., :2] = np.array([1], np.float16).view(np.uint8)
    numbers = np.zeros((len(values), COLUMNS), np.int8)
    numbers[:, : len(values[0])] = values
    blocks[..., 2:] = numbers.view(np.uint8).reshape(len(values), -1, 32)
    return lab.load(launched[0], TensorType.Q8_0, blocks.reshape(len(values), -1))


# -- plain, after a norm


@given(count=COUNT, rows=st.integers(1, 100), partials=st.integers(1, 40), seed=SEED)
@settings(max_examples=8)
def test_norm(lab, launched, count, rows, partials, seed):
    variant, tokens = launched
    random = np.random.default_rng(seed)
    weights = matrix(lab, launched, rows, random)
    padded, wide = lab.up(count, tokens), lab.up(rows, 32)
    h = Normed(random, count, padded, partials)
    y = lab.linear(
        variant, weights, h.x, tokens, "plain", {**h.dims, "y_stride": wide // 4}, {"sums": h.sums},
        {"y": lab.poisoned(padded, wide)}, normed=True,
    )["y"]  # fmt: skip
    lab.close("linear", y[:count, :rows], *h.twin(weights))


# -- heads


@given(count=COUNT, rows=st.integers(1, 12), heads=st.integers(1, 4), row0=st.sampled_from([0, 4, 8]), seed=SEED)
@settings(max_examples=4)
@example(count=3, rows=5, heads=3, row0=8, seed=0)
def test_heads(lab, launched, count, rows, heads, row0, seed):
    """Each head's matrix on its part of x, into its part of y, of which what stands around stays; the first is left out."""
    variant, tokens = launched
    random, rows = np.random.default_rng(seed), 4 * rows
    tiles = -(-rows // variant.tile.height)
    raw = [lab.blocks(TYPE, rows, COLUMNS, random) for _ in range(heads)]
    whole_tiles = [np.pad(part, ((0, tiles * variant.tile.height - rows), (0, 0))) for part in raw]
    weights = lab.load(variant, TYPE, np.concatenate(whole_tiles))
    x = random.standard_normal((count, (heads + 1) * COLUMNS)).astype(np.float32)
    padded, part, stride = lab.up(count, tokens), row0 + rows + 4, lab.up((heads + 1) * (row0 + rows + 4), 32)
    chosen = choices.linear(TYPE, variant.launch, variant.tile, tokens, "heads", bias=False, normed=False, heads=True)
    dims = {
        **weights.dims, "rows": rows, "row0": row0, "x_stride": x.shape[1] // 4, "y_stride": stride // 4,
        "head_in": COLUMNS // 4, "head_out": part // 4, "expert0": 1, "tiles": tiles,
    }  # fmt: skip
    read = {"w": weights, "x": lab.inputs(x, padded, x.shape[1])}
    write = {"y": lab.poisoned(padded, stride)}
    y = lab.run(variant, "linear", chosen, (tiles * heads, padded // tokens, 1), dims, read, write)["y"]
    for head in range(1, heads + 1):
        own, values = x[:, head * COLUMNS : (head + 1) * COLUMNS].astype(np.float64), dequantize(TYPE, raw[head - 1])
        found = y[:count, head * part + row0 :][:, :rows]
        size = np.abs(own).sum(-1, keepdims=True) * np.abs(values).max(-1)
        lab.close("linear", found, twins.linear(own, values.astype(np.float64)), size)
        y[:, head * part + row0 : head * part + row0 + rows] = lab.poisoned(1, 1)
    assert lab.untouched(y)


# -- activated


@pytest.mark.parametrize(("activation", "normed"), [("gelu_erf", False), ("relu_squared", True)])
def test_activated(lab, launched, activation, normed):
    variant, tokens = launched

    @settings(max_examples=6)
    @given(count=COUNT, rows=st.integers(1, 100), biased=st.booleans(), seed=SEED)
    def check(count, rows, biased, seed):
        random = np.random.default_rng(seed)
        weights = matrix(lab, launched, rows, random, biased)
        padded, wide = lab.up(count, tokens), lab.up(rows, 32)
        h = Normed(random, count, padded, 3)
        y = lab.linear(
            variant, weights, h.x, tokens, "activated", {**h.dims, "y_stride": wide // 4},
            {"sums": h.sums} if normed else {}, {"y": lab.poisoned(padded, wide)}, normed=normed, activation=activation,
        )["y"]  # fmt: skip
        if normed:
            x, size = h.twin(weights)
        else:
            x = twins.linear(h.x.astype(np.float64), weights.values, weights.bias)
            size = np.abs(h.x).sum(-1, keepdims=True) * np.abs(weights.values).max(-1)
            size = size if weights.bias is None else size + np.abs(weights.bias)
        steep = 2 * np.maximum(x, 0) if activation == "relu_squared" else 1.2
        lab.close("linear", y[:count, :rows], twins.activated(x, activation), size * steep + np.abs(x) + 1e-6)

    check()


# -- residual


def residual(lab, launched, weights, x, h, weight, scale, *, row0=0, width=None):
    """(h, hw, sums) [T, ..] as the kernel leaves them; rows [row0, row0 + rows) of a residual of `width`."""
    variant, tokens = launched
    count, rows, height = len(x), len(weights.values), weights.tile.height
    width = width or rows
    padded, wide, partials = lab.up(count, tokens), lab.up(width, 32), -(-width // height)
    before, next = np.zeros((padded, wide), np.float32), np.zeros(wide, np.float32)
    before[:count, :width], next[:width] = h, weight
    dims = {"row0": row0, "tile0": row0 // height, "y_stride": wide // 4, "partials": partials, "scale": scale}
    write = {"h": before, "hw": lab.poisoned(padded, wide), "sums": lab.poisoned(padded, partials)}
    out = lab.linear(variant, weights, x, tokens, "residual", dims, {"next": next}, write)
    own = slice(row0, row0 + rows)
    tiles = slice(row0 // height, row0 // height + weights.tiles)
    outside = np.ones(wide, bool)
    outside[own] = False
    assert np.array_equal(out["h"][:count, outside], before[:count, outside])
    apart = np.delete(out["hw"], np.s_[row0 : lab.up(row0 + rows, weights.tile.rows)], axis=1)
    assert lab.untouched(apart) and lab.untouched(np.delete(out["sums"], np.s_[tiles], axis=1))
    return out["h"][:count, own], out["hw"][:count, own], out["sums"][:count, tiles]


def test_residual_by_hand(lab, launched):
    weights = whole(lab, launched, [[2, 0], [0, 3], [1, 1]])
    x = np.zeros((2, COLUMNS), np.float32)
    x[:, :2] = [[1, 2], [0, -1]]
    h, hw, sums = residual(lab, launched, weights, x, [[10, 20, 30], [1, 2, 3]], [1, 10, 0.5], 0.5)
    assert h.tolist() == [[11, 23, 31.5], [1, 0.5, 2.5]]
    assert hw.tolist() == [[11, 230, 15.75], [1, 5, 1.25]]
    assert sums.tolist() == [[11**2 + 23**2 + 31.5**2], [1 + 0.25 + 6.25]]


@given(count=COUNT, rows=st.integers(1, 150), before=st.integers(0, 2), after=st.integers(0, 9), seed=SEED)
@settings(max_examples=10)
def test_residual(lab, launched, count, rows, before, after, seed):
    random = np.random.default_rng(seed)
    weights = matrix(lab, launched, rows, random)
    row0 = before * weights.tile.height
    if after:  # only a last stream may end inside a tile
        rows = lab.up(rows, weights.tile.height)
        weights = matrix(lab, launched, rows, random)
    width = row0 + rows + 32 * after
    x = random.standard_normal((count, COLUMNS)).astype(np.float32)
    h = random.standard_normal((count, width)).astype(np.float32)
    next = random.standard_normal(width).astype(np.float32)
    scale = float(np.float32(random.uniform(0.1, 3)))
    found, hw, sums = residual(lab, launched, weights, x, h, next, scale, row0=row0, width=width)
    own = slice(row0, row0 + rows)
    y = twins.residual(h[:, own].astype(np.float64), twins.linear(x.astype(np.float64), weights.values), scale)
    size = np.abs(x).sum(-1, keepdims=True) * np.abs(weights.values).max(-1) * scale + np.abs(h[:, own])
    lab.close("linear", found, y, size)
    assert np.array_equal(hw, found * next[own])
    squares = np.zeros((count, weights.tiles * weights.tile.height))
    squares[:, :rows] = np.square(found.astype(np.float64))
    tiles = squares.reshape(count, weights.tiles, -1).sum(-1)
    lab.close("linear", sums, tiles, tiles)


# -- gated


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "clipped"])
def test_gated(lab, launched, activation):
    variant, tokens = launched
    if activation == "clipped" and variant.name != "own":
        return  # compiling is what this costs
    biases = st.booleans() if variant.name == "own" and activation == "silu" else st.just(False)  # or it takes long

    @settings(max_examples=8)
    @example(count=1, width=variant.tile.height // 2, biased=False, extra=0, seed=1)
    @given(count=COUNT, width=st.integers(1, 90), biased=biases, extra=st.integers(0, 2), seed=SEED)
    def check(count, width, biased, extra, seed):
        random = np.random.default_rng(seed)
        raw = lab.blocks(TYPE, 2 * width, COLUMNS, random)
        bias = random.standard_normal(2 * width).astype(np.float32) if biased else None
        linears = [
            Linear((Matrix(name, TYPE, width, COLUMNS, lambda start, stop, part=part: part[start:stop]),))
            for name, part in (("gate", raw[:width]), ("up", raw[width:]))
        ]
        order = interleaved(*linears, variant.tile)
        woven = np.where(order[:, None] < 0, 0, raw[order]).astype(np.uint8)
        woven_bias = None if bias is None else np.where(order < 0, 0, bias[order]).astype(np.float32)
        weights = lab.load(variant, TYPE, woven, woven_bias)
        padded, wide = lab.up(count, tokens), lab.up(width, 32) + 32 * extra
        h = Normed(random, count, padded, 3)
        dims = {**h.dims, "rows": 2 * width, "y_stride": wide // (variant.tile.rows // 2)}
        y = lab.linear(
            variant, weights, h.x, tokens, "gated", dims, {"sums": h.sums}, {"y": lab.poisoned(padded, wide)},
            normed=True, activation=activation,
        )["y"]  # fmt: skip
        normed = twins.rms_norm(h.h, h.weight, EPS)
        values = dequantize(TYPE, raw).astype(np.float64)
        both = twins.linear(normed, values, bias)
        expected = twins.activate(both[:, :width], both[:, width:], activation)
        size = np.abs(normed).sum(-1, keepdims=True) * np.abs(values).max(-1)
        scale = size[:, :width] * np.maximum(np.abs(both[:, width:]), 1) * 1.2 + size[:, width:] * np.abs(both[:, :width])
        lab.close("linear", y[:count, :width], expected, scale + 3)
        end = lab.up(width, variant.tile.rows // 2)
        assert not y[:count, width:end].any() and lab.untouched(y[:, end:])

    check()


# -- head


def head(lab, launched, weights, h, outputs, vocabulary, scale, softcap, row0=0):
    """(logits [slot, vocabulary], best values and tokens [slot, tile]) of the output rows."""
    variant, tokens = launched
    count, height = len(outputs), weights.tile.height
    padded, tiles = lab.up(count, tokens), -(-vocabulary // height)
    state = np.zeros(9 + padded, np.uint32)  # padding slots: row 0
    state[9 : 9 + count] = outputs
    dims = {
        **h.dims, "outputs_at": 9, "row0": row0, "tile0": row0 // height, "y_stride": vocabulary, "partials_out": tiles,
        "scale": scale, "softcap": softcap,
    }  # fmt: skip
    found = lab.linear(
        variant, weights, h.x, tokens, "head", dims, {"sums": h.sums, "state": state},
        {"logits": lab.poisoned(padded, vocabulary), "best": lab.poisoned(padded, tiles, 2, dtype=np.uint32)},
        normed=True, count=count,
    )  # fmt: skip
    best = found["best"][:count]
    return found["logits"][:count], best[..., 0].copy().view(np.float32), best[..., 1]


def test_head_by_hand(lab, launched):
    """Three tokens in the vocabulary, two of them equal; row 1 is asked for, then row 0."""
    weights = whole(lab, launched, [[1], [4], [4]])
    h = Normed(np.random.default_rng(0), 2, 2, 1)
    h.x[:, 0] = [2, -2]
    h.sums[:, 0] = COLUMNS / 4 - COLUMNS * EPS  # a mean square of 1/4, so the norm doubles
    logits, best, token = head(lab, launched, weights, h, [1, 0], 3, 0.5, 0.0)
    assert logits.tolist() == [[-2, -8, -8], [2, 8, 8]]
    assert best.tolist() == [[-2], [8]] and token.tolist() == [[0], [1]]


@given(
    count=COUNT,
    rows=st.one_of(st.integers(1, 100), st.sampled_from([32, 64])),
    before=st.integers(0, 1),
    softcap=st.sampled_from([0.0, 5.0]),
    seed=SEED,
)
@settings(max_examples=10)
def test_head(lab, launched, count, rows, before, softcap, seed):
    random = np.random.default_rng(seed)
    weights = matrix(lab, launched, rows, random)
    row0, height = before * weights.tile.height, weights.tile.height
    outputs = random.integers(0, count, random.integers(1, 7))
    h = Normed(random, count, count, 2)
    scale = float(np.float32(random.uniform(0.1, 2)))
    logits, best, token = head(lab, launched, weights, h, outputs, row0 + rows, scale, softcap, row0)
    y, size = h.twin(weights)
    lab.close("linear", logits[:, row0:], twins.head(y, scale, softcap)[outputs], size[outputs] * scale + softcap)
    assert lab.untouched(logits[:, :row0]) and lab.untouched(best[:, :before])
    for start in range(0, rows, height):
        tile = logits[:, row0 + start : row0 + min(start + height, rows)]
        at = (row0 + start) // height
        assert np.array_equal(best[:, at], tile.max(-1))
        assert np.array_equal(token[:, at], row0 + start + tile.argmax(-1))


# -- qkv


def shape(heads=2, kv_heads=1, head_dim=8, rope_half=4, scale=0.5, magnitude=1.0):
    """The operation; its linear is not looked at."""
    rope = Rope(10.0 ** -np.arange(rope_half), magnitude) if rope_half else None
    return Qkv(0, Norm(np.ones(1, np.float32), EPS), Linear(()), heads, kv_heads, head_dim, scale, rope)


def turns(op: Qkv, positions: int) -> np.ndarray:
    """(cos, sin) [position, pair] as a kernel reads them."""
    if op.rope is None:
        return np.zeros((1, 2), np.float32)
    cos, sin = twins.rotation(np.arange(positions, dtype=np.int32), op.rope, np.float64)
    return np.stack([cos[:, 0], sin[:, 0]], -1).astype(np.float32)


def stored(lab, launched, pool, weights, h, op, positions, sequences, first, format, windowed):
    """q [T, heads * head_dim] and the words of key and value pages, from rows `first` on of q, k and v."""
    variant, tokens = launched
    padded = lab.up(len(positions), tokens)
    words, where = pool.state(positions, sequences, padded, windowed=windowed)
    wide = lab.up(op.heads * op.head_dim, 32)
    rope_half = 0 if op.rope is None else len(op.rope.frequencies)
    dims = {
        **h.dims, **where, "row0": first, "y_stride": wide // 4, "heads": op.heads, "kv_heads": op.kv_heads,
        "head_dim": op.head_dim, "rope_half": rope_half, "scale": op.scale,
    }  # fmt: skip
    page = lab.poisoned(pool.pages, op.kv_heads, pool.words(format), dtype=np.uint32)
    write = {"q_out": lab.poisoned(padded, wide), "keys": page, "values": page}
    return lab.linear(
        variant, weights, h.x, tokens, "qkv", dims,
        {"sums": h.sums, "state": words, "turns": turns(op, max(positions) + 1)}, write, normed=True,
        key_format=format, value_format=format,
    )  # fmt: skip


@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.sampled_from([4, 8, 12, 20, 32, 64]),
    turned=st.floats(0, 1),
    parted=st.booleans(),
    format=st.sampled_from(["f32", "f16"]),
    windowed=st.integers(0, 1),
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    seed=SEED,
)
@settings(max_examples=12)
@example(kv_heads=1, group=1, head_dim=12, turned=1.0, parted=False, format="f32", windowed=0, lengths=[1], seed=0)
def test_qkv(lab, launched, pool, kv_heads, group, head_dim, turned, parted, format, windowed, lengths, seed):
    """With `parted` v is a stream of its own, as where its type is another; the example's rows end in a lane's 8."""
    format = format if launched[0].name == "own" else "f32"  # or compiling takes long
    random = np.random.default_rng(seed)
    op = shape(kv_heads * group, kv_heads, head_dim, round(turned * head_dim / 2), random.uniform(0.1, 1))
    rows = (op.heads + 2 * kv_heads) * head_dim
    pages = pool(kv_heads, head_dim, lengths, random)
    sequences = np.concatenate([np.full(min(n, 3), i) for i, n in enumerate(lengths)])
    positions = np.concatenate([np.arange(max(0, n - 3), n) for n in lengths])
    count, padded = len(positions), lab.up(len(positions), launched[1])
    h = Normed(random, count, padded, 3)
    first = (op.heads + kv_heads) * head_dim if parted else 0
    weights = matrix(lab, launched, rows - first, random)
    found = stored(lab, launched, pages, weights, h, op, positions, sequences, first, format, windowed)

    y, size = h.twin(weights)
    y = np.concatenate([np.full((count, first), np.nan), y], 1)
    keys = np.full((kv_heads, head_dim, pages.pages * 16), np.nan)
    values = np.full((kv_heads, pages.pages * 16, head_dim), np.nan)
    turn = None if op.rope is None else twins.rotation(positions.astype(np.int32), op.rope, np.float64)
    slots = np.array([pages.slots(s, p) for s, p in zip(sequences, positions, strict=True)])
    q = twins.rope_store(y, op, turn, keys, values, slots)
    bound = size.max() * 3
    for name, wanted, at in (("keys", keys, np.s_[:, :, slots]), ("values", values, np.s_[:, slots])):
        if np.isnan(wanted[at]).all():  # these rows are another stream's
            assert not pages.stray(name, format, found[name], [])
            continue
        assert not pages.stray(name, format, found[name], slots)
        half = 0 if format == "f32" else np.abs(wanted[at]) * 2**-11 / 2e-6  # in units of the tolerance
        lab.close("linear", pages.read(name, format, found[name])[at], wanted[at], bound + half)
    if parted:
        assert lab.untouched(found["q_out"])
    else:
        width = op.heads * head_dim
        lab.close("linear", found["q_out"][:count, :width], q.reshape(count, -1), bound)
        assert lab.untouched(found["q_out"][:, width:])
