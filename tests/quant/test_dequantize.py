"""Reading blocks: bit-equal to ggml's own values, whatever the shape and the memory order."""

import struct
from pathlib import Path

import numpy as np
import pytest

from llamay.errors import Unsupported, UsageError
from llamay.quant import LAYOUTS, TensorType, dequantize, quantize, supported, type_named

VECTORS = Path(__file__).parents[1] / "data" / "quants"
RECORDED = sorted(VECTORS.glob("*.npz"))
CASES = [(path, key[:-4]) for path in RECORDED for key in np.load(path) if key.endswith("_raw")]


def test_every_recorded_format_is_there():
    names = {path.stem for path in RECORDED}
    assert names == {type.name for type in LAYOUTS} - {"F32", "Q8_1", "Q8_K"}
    assert len(CASES) == 2 * len(names) - 2  # F16 and BF16 have no quantiser's vectors


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{path.stem}-{case}" for path, case in CASES])
def test_values_are_bit_equal_to_the_reference(path, case):
    vectors = np.load(path)
    raw = vectors[f"{case}_raw"]
    values = dequantize(TensorType[path.stem], raw if raw.ndim == 2 else raw.reshape(1, -1))
    expected = vectors[f"{case}_f32"]
    assert values.size == expected.size > 1000
    np.testing.assert_array_equal(values.ravel().view(np.uint32), expected.ravel().view(np.uint32))


def test_f32_keeps_every_bit():
    bits = np.random.default_rng(1).integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    values = dequantize(TensorType.F32, bits.view(np.uint8))
    np.testing.assert_array_equal(values.view(np.uint32), bits)


def test_all_halves_match_the_definition():
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = dequantize(TensorType.F16, bits.view(np.uint8).reshape(1, -1))[0]
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent, fraction = (bits >> 10 & 31).astype(int), (bits & 1023).astype(float)
    finite = exponent < 31
    size = np.where(exponent > 0, (1024 + fraction) * 2.0 ** (exponent - 25.0), fraction * 2.0**-24)
    np.testing.assert_array_equal(values[finite], (sign * size)[finite].astype(np.float32))
    assert np.isinf(values[~finite & (fraction == 0)]).all()
    assert np.isnan(values[~finite & (fraction != 0)]).all()


def test_q8_1_is_scale_times_quant():
    q = list(range(-16, 16))
    block = struct.pack("<2e32b", 0.5, 123.0, *q)
    values = dequantize(TensorType.Q8_1, np.frombuffer(block, np.uint8).reshape(1, -1))
    np.testing.assert_array_equal(values[0], np.array(q, np.float32) * 0.5)


def test_q8_k_is_scale_times_quant():
    q = list(range(-128, 128))
    block = struct.pack("<f256b16h", 0.1, *q, *range(16))
    values = dequantize(TensorType.Q8_K, np.frombuffer(block, np.uint8).reshape(1, -1))
    np.testing.assert_array_equal(values[0], np.array(q, np.float32) * np.float32(0.1))


@pytest.mark.parametrize("type", LAYOUTS, ids=lambda type: type.name)
def test_many_rows_equal_one_row_at_a_time(type):
    layout = LAYOUTS[type]
    source = np.random.default_rng(2).standard_normal((5, 512), dtype=np.float32)
    raw = quantize(type, source)[np.arange(133) % 5]  # more than one piece
    assert raw.shape == (133, layout.row_bytes(source.shape[1]))
    whole = dequantize(type, raw)
    for row in (0, 66, 132):
        np.testing.assert_array_equal(dequantize(type, raw[row : row + 1])[0], whole[row])
    np.testing.assert_array_equal(dequantize(type, raw[::2]), whole[::2])
    out = np.empty_like(whole)
    assert dequantize(type, raw, out) is out
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("type", [TensorType.F16, TensorType.Q4_1, TensorType.Q6_K], ids=lambda type: type.name)
def test_many_rows_are_quantised_as_one_at_a_time(type):
    source = np.random.default_rng(3).standard_normal((37, 5 * 512), dtype=np.float32)  # more than one piece
    np.testing.assert_array_equal(quantize(type, source), np.concatenate([quantize(type, row[None]) for row in source]))


def test_read_only_bytes_are_enough():
    raw = quantize(TensorType.Q4_K, np.ones((1, 256), np.float32))
    frozen = np.frombuffer(raw.tobytes(), np.uint8).reshape(1, -1)
    assert not frozen.flags.writeable
    np.testing.assert_array_equal(dequantize(TensorType.Q4_K, frozen), dequantize(TensorType.Q4_K, raw))


@pytest.mark.parametrize("type", LAYOUTS, ids=lambda type: type.name)
def test_no_rows_give_no_values(type):
    assert dequantize(type, np.empty((0, LAYOUTS[type].bytes), np.uint8)).shape == (0, LAYOUTS[type].elements)


@pytest.mark.parametrize(
    "raw",
    [np.zeros((2, 17), np.uint8), np.zeros(18, np.uint8), np.zeros((1, 18), np.int8)],
    ids=["half a block", "one dimension", "signed bytes"],
)
def test_other_shapes_are_refused(raw):
    with pytest.raises(UsageError, match=r"Q4_0 rows are uint8 \[rows, n \* 18\]"):
        dequantize(TensorType.Q4_0, raw)


def test_an_out_of_another_shape_is_refused():
    raw = np.zeros((2, 18), np.uint8)
    for out in (np.empty((2, 31), np.float32), np.empty((2, 32), np.float64), np.empty((32, 2), np.float32).T):
        with pytest.raises(UsageError, match="out must be contiguous float32"):
            dequantize(TensorType.Q4_0, raw, out)


def test_types_are_found_by_name():
    assert type_named("q4_k") is TensorType.Q4_K
    assert type_named("BF16") is TensorType.BF16
    assert all(supported(type) for type in LAYOUTS)
    for name in ("q4_k_m", "i32", "", "type"):
        with pytest.raises(UsageError, match="there are f32, f16"):
            type_named(name)


def test_a_type_without_reader_is_refused_by_name():
    assert not supported(TensorType.I32)
    with pytest.raises(Unsupported, match="I32"):
        dequantize(TensorType.I32, np.zeros((1, 64), np.uint8))
    with pytest.raises(Unsupported, match="I32"):
        quantize(TensorType.I32, np.zeros((1, 256), np.float32))
