"""Making blocks: the reference's bytes for the simple formats, small errors for the searched ones."""

import struct
from pathlib import Path

import numpy as np
import pytest

from llamay.errors import UsageError
from llamay.quant import LAYOUTS, TensorType, dequantize, quantize
from llamay.quant.codebooks import CODEBOOKS

VECTORS = Path(__file__).parents[1] / "data" / "quants"
SIMPLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
SEARCHED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
BLOCKED = [type for type in LAYOUTS if type not in (TensorType.F32, TensorType.F16, TensorType.BF16)]
# two values, or three; points of a codebook; and NVFP4, whose scales have three bits of fraction and end at 224
COARSE = (TensorType.TQ1_0, TensorType.TQ2_0, TensorType.Q1_0, TensorType.Q2_0, TensorType.NVFP4, *CODEBOOKS)

# root mean square error over the deviation of normal weights, measured once and given a tenth of slack
NORMAL_ERROR = {
    "Q4_0": 0.095, "Q4_1": 0.087, "Q5_0": 0.047, "Q5_1": 0.042, "Q8_0": 0.006, "Q8_1": 0.006,
    "Q2_K": 0.30, "Q3_K": 0.16, "Q4_K": 0.079, "Q5_K": 0.040, "Q6_K": 0.019, "Q8_K": 0.008,
    "IQ4_NL": 0.10, "IQ4_XS": 0.10, "MXFP4": 0.13,
    "IQ3_XXS": 0.20, "IQ3_S": 0.148, "IQ2_XXS": 0.364, "IQ2_XS": 0.318, "IQ2_S": 0.268, "IQ1_S": 0.516, "IQ1_M": 0.466,
    "TQ1_0": 0.49, "TQ2_0": 0.49, "NVFP4": 0.16, "Q1_0": 0.66, "Q2_0": 0.49,
}  # fmt: skip


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_formats_give_the_reference_bytes(name):
    vectors = np.load(VECTORS / f"{name}.npz")
    np.testing.assert_array_equal(quantize(TensorType[name], vectors["quant_src"]), vectors["quant_raw"])


@pytest.mark.parametrize("name", SEARCHED)
def test_searched_formats_err_no_more_than_the_reference(name):
    vectors = np.load(VECTORS / f"{name}.npz")
    source = vectors["quant_src"]
    own = dequantize(TensorType[name], quantize(TensorType[name], source)) - source
    reference = vectors["quant_f32"] - source
    assert 0 < np.square(own).sum() <= 1.02 * np.square(reference).sum()


@pytest.mark.parametrize("type", BLOCKED, ids=lambda type: type.name)
def test_normal_weights_keep_their_values(type):
    source = np.random.default_rng(3).standard_normal((64, 1024), dtype=np.float32) * np.float32(0.02)
    error = dequantize(type, quantize(type, source)) - source
    assert error.std() <= NORMAL_ERROR[type.name] * source.std()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type", [type for type in LAYOUTS if type not in COARSE], ids=lambda type: type.name)
def test_special_rows_come_back(type):
    index = np.arange(256, dtype=np.float32)
    near = 0.04 if type in (TensorType.IQ4_NL, TensorType.IQ4_XS) else 0.01  # those have no zero
    rows = {
        "zeros": (np.zeros(256), 0),
        "a constant": (np.full(256, 3.0), 0.01),
        "a negative constant": (np.full(256, -3.0), 0.01),
        "one value among zeros": (np.where(index == 77, 4.0, 0.0), near),
        "one negative value among zeros": (np.where(index == 200, -4.0, 0.0), near),
        "two values": (np.where(index % 2, 1.0, -1.0), 0.5),
        "large": (index * 100, 0.3 * 25600),
        "tiny": (index * 1e-12, 1e-9),
    }
    for name, (row, tolerance) in rows.items():
        values = dequantize(type, quantize(type, row[None].astype(np.float32)))[0]
        assert np.abs(values - row).max() <= tolerance, name


@pytest.mark.parametrize("type", LAYOUTS, ids=lambda type: type.name)
def test_quantising_again_changes_little(type):
    source = np.random.default_rng(4).standard_normal((8, 512), dtype=np.float32)
    once = dequantize(type, quantize(type, source))
    twice = dequantize(type, quantize(type, once))
    assert np.square(twice - once).sum() <= 0.5 * max(np.square(once - source).sum(), 1e-4)


def test_bf16_rounds_to_even_and_keeps_nan():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF], np.uint32)
    raw = quantize(TensorType.BF16, bits.view(np.float32)[None]).view("<u2")[0]
    assert [hex(word) for word in raw] == ["0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7fc0", "0xffff", "0x7f80"]


@pytest.mark.filterwarnings("error")
def test_f16_rounds_and_overflows_to_infinity():
    raw = quantize(TensorType.F16, np.array([[1.0, 65504.0, 1e9, -1e9, 2.0**-24, 1e-9]], np.float32))
    assert [hex(word) for word in raw.view("<u2")[0]] == ["0x3c00", "0x7bff", "0x7c00", "0xfc00", "0x1", "0x0"]


def test_q8_1_carries_the_sum():
    source = np.linspace(-1, 2, 32, dtype=np.float32)[None]
    d, s, *q = struct.unpack("<2e32b", quantize(TensorType.Q8_1, source).tobytes())
    assert max(q) == 127
    assert s == pytest.approx(d * sum(q), rel=2e-3)


def test_q8_k_carries_the_sums_of_sixteen():
    source = np.random.default_rng(5).standard_normal((1, 256), dtype=np.float32)
    fields = struct.unpack("<f256b16h", quantize(TensorType.Q8_K, source).tobytes())
    q, sums = fields[1:257], fields[257:]
    assert max(abs(value) for value in q) == 127
    assert list(sums) == [sum(q[start : start + 16]) for start in range(0, 256, 16)]


def test_other_shapes_are_refused():
    for values in (np.zeros((1, 33), np.float32), np.zeros(32, np.float32), np.zeros((1, 32))):
        with pytest.raises(UsageError, match=r"Q4_0 is made of float32 \[rows, n \* 32\]"):
            quantize(TensorType.Q4_0, values)


@pytest.mark.parametrize("type", BLOCKED, ids=lambda type: type.name)
def test_values_that_are_not_finite_are_refused(type):
    for bad in (np.nan, np.inf, -np.inf):
        values = np.ones((2, 256), np.float32)
        values[1, 40] = bad
        with pytest.raises(UsageError, match=f"{type.name} holds finite values; 1 are not"):
            quantize(type, values)
