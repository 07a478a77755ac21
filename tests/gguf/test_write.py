"""Files written: the exact bytes of the format, whole or not at all, and read back the same."""

import struct
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf
from llamay.errors import ModelFileError, UsageError
from llamay.gguf import Array, Typed, ValueType
from llamay.quant import TensorType

MODELS = Path(__file__).parents[1] / "data" / "models"


def copy_of(file):
    """The metadata and tensors of an open file as `write` takes them."""
    metadata = {key: file.metadata.typed(key) for key in file.metadata}
    return metadata, [(t.name, t.type, t.shape, t.data) for t in file.tensors.values()]


@pytest.mark.parametrize("name", ["llama-gqa.f16", "qwen2-k.q2_k", "qwen2-k.q4_k"])
def test_a_model_copied_is_the_same_file(tmp_path, name):
    """These files were written by llama.cpp's converter and quantiser."""
    with gguf.open(MODELS / f"{name}.gguf") as file:
        gguf.write(tmp_path / "copy.gguf", *copy_of(file))
    assert (tmp_path / "copy.gguf").read_bytes() == (MODELS / f"{name}.gguf").read_bytes()


def test_the_bytes_are_those_of_the_format(tmp_path, build):
    metadata = {
        "text": "für", "yes": True, "small": 7, "below": -7, "large": 1 << 40, "low": -(1 << 40), "real": 0.5,
        "words": ["a", ""], "numbers": [1, -2], "reals": [0.5], "flags": (True, False),
        "typed": Typed(ValueType.UINT8, 9), "bytes": Typed(ValueType.UINT8, [1, 2]), "none": Typed(ValueType.STRING, []),
        "numpy": np.array([3, 4], np.uint64), "double": Typed(ValueType.FLOAT64, 0.1), "big": [1 << 31],
    }  # fmt: skip
    gguf.write(
        tmp_path / "x.gguf",
        metadata,
        [
            ("a", TensorType.F32, (2, 3), np.arange(6, dtype=np.float32).reshape(3, 2)),
            ("b", TensorType.Q8_0, (32,), bytes(range(34))),
            ("c", TensorType.F16, (1, 1, 1, 2), lambda: memoryview(b"wxyz")),
        ],
    )
    expected = build.file(
        [
            build.entry("text", 8, build.text("für")), build.entry("yes", 7, b"\1"),
            build.entry("small", 4, struct.pack("<I", 7)), build.entry("below", 5, struct.pack("<i", -7)),
            build.entry("large", 10, struct.pack("<Q", 1 << 40)), build.entry("low", 11, struct.pack("<q", -(1 << 40))),
            build.entry("real", 6, struct.pack("<f", 0.5)),
            build.array("words", 8, 2, build.text("a") + build.text("")),
            build.array("numbers", 5, 2, struct.pack("<2i", 1, -2)), build.array("reals", 6, 1, struct.pack("<f", 0.5)),
            build.array("flags", 7, 2, b"\1\0"), build.entry("typed", 0, b"\x09"), build.array("bytes", 0, 2, b"\1\2"),
            build.array("none", 8, 0, b""), build.array("numpy", 10, 2, struct.pack("<2Q", 3, 4)),
            build.entry("double", 12, struct.pack("<d", 0.1)), build.array("big", 4, 1, struct.pack("<I", 1 << 31)),
        ],
        [build.tensor("a", (2, 3), 0, 0), build.tensor("b", (32,), 8, 32), build.tensor("c", (1, 1, 1, 2), 1, 96)],
        struct.pack("<6f", *range(6)) + bytes(8) + bytes(range(34)) + bytes(30) + b"wxyz" + bytes(28),
    )  # fmt: skip
    assert (tmp_path / "x.gguf").read_bytes() == expected


def test_the_alignment_asked_for_is_kept(tmp_path):
    metadata = {"general.alignment": 512}
    gguf.write(tmp_path / "x.gguf", metadata, [(n, TensorType.F32, (1,), n.encode() * 4) for n in "ab"])
    with gguf.open(tmp_path / "x.gguf") as file:
        assert [tensor.offset for tensor in file.tensors.values()] == [512, 1024]
        assert [tensor.data.tobytes() for tensor in file.tensors.values()] == [b"aaaa", b"bbbb"]
    with pytest.raises(UsageError, match=r"general.alignment is 48; a power of two"):
        gguf.write(tmp_path / "x.gguf", {"general.alignment": 48}, [])


def test_arrays_of_an_open_file_can_be_passed_on(tmp_path, build, saved):
    nested = build.array("nested", 9, 1, struct.pack("<IQ", 0, 2) + b"xy")
    with gguf.open(saved(build.file([nested]))) as file:
        gguf.write(tmp_path / "x.gguf", {"again": file.get("nested", Array)}, [])
    with gguf.open(tmp_path / "x.gguf") as file:
        assert file.get("again", Array).raw() == struct.pack("<IQ", 0, 2) + b"xy"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"": 1}, "a metadata key of 0 bytes"),
        ({"k": []}, r"'k' is an empty list; Typed\(type, \[\]\)"),
        ({"k": [1, "x"]}, "'k' mixes string, uint32; one type expected"),
        ({"k": None}, "'k' is None; a boolean, a number"),
        ({"k": 1 << 64}, "'k' is 18446744073709551616"),
        ({"k": [1 << 64]}, "'k' is 18446744073709551616"),
        ({"k": Typed(ValueType.UINT8, 256)}, "'k': 256 is no uint8"),
        ({"k": Typed(ValueType.STRING, 5)}, "'k': 5 is no string"),
        ({"k": Typed(ValueType.UINT32, "5")}, "'k': '5' is no uint32"),
        ({"k": np.zeros((2, 2))}, "'k' is an array .* one dimension of numbers expected"),
        ({"k": np.zeros(2, np.complex64)}, "one dimension of numbers expected"),
        ({"k": Typed(ValueType.FLOAT32, 1e300)}, "'k': 1e.300 is no float32"),
    ],
)
def test_values_that_cannot_be_written_are_refused(tmp_path, metadata, message):
    with pytest.raises(UsageError, match=message):
        gguf.write(tmp_path / "x.gguf", metadata, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([("t", TensorType.F32, (2,), bytes(7))], "'t' came with 7 bytes, 8 expected"),
        ([("t", TensorType.F32, (), bytes(4))], "'t' of type F32 has shape"),
        ([("t", TensorType.F32, (0,), b"")], "'t' of type F32 has shape"),
        ([("t", TensorType.Q4_K, (128, 2), bytes(144))], "the first a multiple of 256 expected"),
        ([("t", TensorType.I8, (256,), bytes(256))], "'t' is of type I8, which has no layout"),
        ([("t", TensorType.F32, (1,), bytes(4))] * 2, "two tensors are named 't'"),
        ([("", TensorType.F32, (1,), bytes(4))], "a tensor name of 0 bytes"),
    ],
)
def test_tensors_that_cannot_be_written_are_refused(tmp_path, tensors, message):
    with pytest.raises(UsageError, match=message):
        gguf.write(tmp_path / "x.gguf", {}, tensors)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.gguf"
    gguf.write(path, {"k": 1}, [])
    before = path.read_bytes()

    def fail():
        raise RuntimeError("no bytes today")

    with pytest.raises(RuntimeError, match="no bytes today"):
        gguf.write(path, {"k": 2}, [("t", TensorType.F32, (1,), bytes(4)), ("u", TensorType.F32, (1,), fail)])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ModelFileError, match="cannot write"):
        gguf.write(tmp_path / "gone" / "x.gguf", {}, [])


def test_a_file_may_be_rewritten_from_itself(tmp_path):
    path = tmp_path / "x.gguf"
    gguf.write(path, {"k": 1}, [("t", TensorType.F32, (1,), b"abcd")])
    with gguf.open(path) as file:
        metadata, tensors = copy_of(file)
        gguf.write(path, {**metadata, "more": "x"}, tensors)
    with gguf.open(path) as file:
        assert dict(file.metadata) == {"k": 1, "more": "x"}
        assert file.tensors["t"].data.tobytes() == b"abcd"


def test_strings_that_are_not_utf8_are_copied_as_they_are(tmp_path, build, saved):
    entries = [build.entry("k", 8, build.text(b"caf\xe9")), build.entry("long", 8, build.text(b"x" * (5 << 20)))]
    path = saved(build.file([*entries, build.array("a", 8, 1, build.text(b"\xff"))]))
    with gguf.open(path) as file:
        gguf.write(tmp_path / "copy.gguf", *copy_of(file))
    assert (tmp_path / "copy.gguf").read_bytes() == Path(path).read_bytes()
