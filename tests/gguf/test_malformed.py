"""Files that lie: each is refused by name, before anything large is allocated, and never crashes."""

import os
import struct
import tracemalloc

import pytest

from llamay import gguf
from llamay.errors import MalformedFile, ModelFileError, Unsupported

HUGE = (1 << 63, (1 << 64) - 1, 1 << 40, 10_000)


@pytest.fixture
def refused(saved):
    """Checks that opening these bytes raises, by this message, and allocates next to nothing."""

    def check(content: bytes, message: str, error: type[ModelFileError] = MalformedFile) -> None:
        path = saved(content)
        tracemalloc.start()
        try:
            with pytest.raises(error, match=message) as caught:
                gguf.open(path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert str(caught.value).startswith(path)
        assert len(str(caught.value)) < 600

    return check


def test_other_formats_are_refused_by_name(refused):
    tail = bytes(64)
    for magic, message in [
        (b"lmgg", "a GGML file"), (b"fmgg", "a GGMF file"), (b"tjgg", "a GGJT file"), (b"PK\3\4", "a zip archive"),
        (b"version https://git-lfs", "a Git LFS pointer"), (b"<!DOCTYPE html>", "an HTML or XML page"),
        (b"\1\0\0\0\0\0\0\0{\"a\":", "a safetensors file"), (b"\x1f\x8b\x08", "gzip data"),
    ]:  # fmt: skip
        refused(magic + tail, message, Unsupported)
    refused(b"XXXX" + tail, "starts with b'XXXX', b'GGUF' expected.*; name a GGUF file")


def test_other_versions_are_refused_by_name(refused, build):
    refused(build.file(version=1), "GGUF version 1; llamay reads 2 and 3", Unsupported)
    refused(build.file(version=4), "GGUF version 4; llamay reads 2 and 3", Unsupported)
    refused(b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(32), "a big-endian GGUF file", Unsupported)
    refused(build.file(version=0), "GGUF version 0", Unsupported)


def test_a_zero_length_key_is_refused(refused, build):
    refused(build.file([build.entry(b"", 7, b"\1")]), "metadata entry 0 is 0 bytes long, 1 to 65,535 expected")
    refused(build.file([], [build.tensor(b"", (1,), 0, 0)], bytes(4)), "tensor 0 is 0 bytes long")


def test_names_must_be_utf8_and_short(refused, build):
    refused(build.file([build.entry(b"a\xff", 7, b"\1")]), "metadata entry 0 is not UTF-8")
    refused(build.file([build.entry(b"k" * 65_536, 7, b"\1")]), "65,536 bytes long")
    refused(build.file([], [build.tensor(b"\xff", (1,), 0, 0)], bytes(4)), "the name of tensor 0 is not UTF-8")


@pytest.mark.parametrize("length", HUGE)
def test_lengths_are_compared_with_the_file(refused, build, length):
    refused(build.file([build.text(b"key", length)]), "metadata entry 0|the file has")
    refused(build.file([build.entry("k", 8, build.text(b"x", length))]), "'k' takes .* but the file has")
    refused(build.file([build.array("k", 8, length, build.text("x"))]), "'k' announces .* elements")
    refused(build.file([build.array("k", 6, length, bytes(8))]), "'k', an array of .* float32, takes")
    refused(build.file([build.array("k", 0, length, bytes(8))]), "'k', an array of .* uint8, takes")
    refused(build.file([build.array("k", 9, length, bytes(24))]), "'k' announces .* elements")
    inner = struct.pack("<IQ", 8, length)
    refused(build.file([build.array("k", 9, 1, inner)]), "'k' announces .* elements")
    strings = build.text("x") + build.text(b"y", length) + build.text("z")
    refused(build.file([build.array("k", 8, 3, strings)]), "'k', an array of 3 strings, leaves the file by its string")
    last = build.text("x") + build.text(b"y", length)
    refused(build.file([build.array("k", 8, 2, last)]), "leaves the file by its string 2")


@pytest.mark.parametrize("count", HUGE)
def test_counts_are_compared_with_the_file(refused, build, count):
    refused(build.file(counts=(0, count)), "announces .* metadata entries")
    refused(build.file(counts=(count, 0)), "announces .* tensors")


def test_duplicates_are_refused_by_name(refused, build):
    refused(build.file([build.entry("k", 7, b"\1")] * 2), "the key 'k' appears twice")
    tensors = [build.tensor("t", (1,), 0, 0), build.tensor("t", (1,), 0, 32)]
    refused(build.file([], tensors, bytes(64)), "the tensor 't' appears twice")


def test_unknown_value_types_are_refused(refused, build):
    refused(build.file([build.entry("k", 13, bytes(8))]), "'k' has value type 13, 0 to 12 expected")
    refused(build.file([build.array("k", 99, 0, bytes(8))]), "'k' has value type 99, 0 to 12 expected")
    refused(build.file([build.entry("k", 7, b"\2")]), "'k' is a boolean of 2, 0 or 1 expected")


def test_deep_nesting_is_refused(refused, build):
    deep = b"".join(struct.pack("<IQ", 9, 1) for _ in range(500)) + struct.pack("<IQ", 0, 0)
    refused(build.file([build.array("k", 9, 1, deep)]), "'k' nests arrays deeper than 4")


@pytest.mark.parametrize("alignment", [0, 3, 48, 1 << 30, (1 << 20) + 1, 1 << 21])
def test_alignment_is_a_bounded_power_of_two(refused, build, alignment):
    entry = build.entry("general.alignment", 4, struct.pack("<I", alignment))
    refused(build.file([entry]), "general.alignment is .*; a power of two up to 1,048,576 expected")


def test_alignment_has_its_type(refused, build):
    for type, value in [(6, bytes(4)), (8, build.text("32")), (7, b"\1"), (10, struct.pack("<Q", 32))]:
        entry = build.entry("general.alignment", type, value)
        refused(build.file([entry]), "general.alignment is a value of type .*, uint32 expected")
    refused(build.file([build.array("general.alignment", 4, 1, struct.pack("<I", 32))]), "uint32 expected")


def test_dimensions_are_bounded(refused, build):
    def file(shape, type=0):
        return build.file([], [build.tensor("t", shape, type, 0)], bytes(64))

    refused(file((1, 1, 1, 1, 1)), "tensor 't' has 5 dimensions, at most 4 expected")
    refused(file((4, 0)), r"tensor 't' of shape \[4, 0\] is empty")
    refused(file(((1 << 42) + 1,)), "'t' takes bytes .*; get it again: it is cut short or damaged")
    refused(file((1 << 32, 1 << 32)), "'t' takes bytes")  # 2**64 elements
    refused(file((1 << 63, 2)), "'t' takes bytes")
    refused(file((1 << 62, 4, 1 << 60, 1 << 60)), "'t' takes bytes")
    refused(file((17,)), "'t' takes bytes")
    refused(file((33,), 2), "'t' has rows of 33 elements, a multiple of 32 expected for Q4_0")
    refused(file((128, 2), 12), "'t' has rows of 128 elements, a multiple of 256 expected for Q4_K")


def test_unknown_tensor_types_are_refused_by_name_and_number(refused, build):
    def file(type):
        return build.file([], [build.tensor("t", (256,), type, 0)], bytes(1024))

    refused(file(25), r"'t' is of type I16 \(number 25\); llamay reads F32, F16, .* Q8_K", Unsupported)
    refused(file(31), r"'t' is of type Q4_0_4_4 \(number 31\); llamay reads", Unsupported)
    refused(file(24), r"'t' is of type I8 \(number 24\)", Unsupported)
    refused(file(1234567), "'t' is of the unknown type number 1,234,567; llamay reads", Unsupported)


def test_offsets_are_aligned_inside_and_apart(refused, build):
    def file(*places, data=96):
        tensors = [build.tensor(f"t{index}", (8,), 0, offset) for index, offset in enumerate(places)]
        return build.file([], tensors, bytes(data))

    refused(file(16), "'t0' starts at offset 16, a multiple of 32 expected")
    refused(file(96), "'t0' takes bytes")
    refused(file(1 << 63), "'t0' takes bytes")
    refused(file((1 << 64) - 32), "'t0' takes bytes")
    refused(file(0, 32, 0), "'t0' and 't2' overlap|'t2' and 't0' overlap")
    long = [build.tensor("long", (16,), 0, 0), build.tensor("other", (8,), 0, 32)]
    refused(build.file([], long, bytes(96)), "'long' and 'other' overlap")


def test_every_prefix_of_a_file_is_refused(build, saved):
    entries = [build.entry("k", 8, build.text("value")), build.array("a", 8, 2, build.text("x") + build.text("y"))]
    entries += [build.array("n", 9, 1, struct.pack("<IQ", 4, 2) + bytes(8)), build.entry("f", 6, bytes(4))]
    content = build.file(entries, [build.tensor("t", (8, 2), 0, 0), build.tensor("u", (32,), 8, 64)], bytes(98))
    gguf.open(saved(content)).close()
    for length in range(len(content)):
        with pytest.raises(ModelFileError):
            gguf.open(saved(content[:length]))


def test_every_changed_byte_loads_or_is_refused(build, saved):
    entries = [build.entry("k", 8, build.text("v")), build.array("a", 8, 2, build.text("x") + build.text("y"))]
    content = build.file(entries, [build.tensor("t", (8, 2), 0, 0)], bytes(64))
    outcomes = {"loaded": 0, "refused": 0}
    for position in range(len(content) - 64):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytearray(content)
            changed[position] = value
            try:
                with gguf.open(saved(bytes(changed))) as file:
                    assert all(tensor.data.size for tensor in file.tensors.values())
                outcomes["loaded"] += 1
            except ModelFileError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 100


def test_long_names_are_cut_in_messages(refused, build):
    refused(build.file([build.entry("k" * 5000, 7, b"\1")] * 2), "the key 'k{77}'... appears twice")


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(ModelFileError, match=r"cannot open the model file .*gone.gguf"):
        gguf.open(tmp_path / "gone.gguf")
    with pytest.raises(ModelFileError):
        gguf.open(tmp_path)
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(MalformedFile, match="0 bytes are no GGUF file"):
        gguf.open(tmp_path / "empty.gguf")
    with pytest.raises(ModelFileError, match="cannot open"):
        gguf.open("nul\0byte")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        gguf.open(tmp_path / "pipe.gguf")


def crowded(build, count):
    """A sound file of so many entries and as many tensors."""
    entries = [build.array(str(index), 0, 0, b"") for index in range(count)]
    tensors = [build.tensor(str(index), (1, 1, 1, 1), 0, 32 * index) for index in range(count)]
    return build.file(entries, tensors, bytes(32 * count))


def test_as_many_entries_as_may_be_open(build, saved):
    count = 65_536
    with gguf.open(saved(crowded(build, count))) as file:
        assert len(file.metadata) == len(file.tensors) == count


def test_an_entry_and_a_tensor_take_a_kilobyte_at_most(build, saved):
    count = 4_096
    path = saved(crowded(build, count))
    tracemalloc.start()
    try:
        with gguf.open(path) as file:
            assert len(file.metadata) == len(file.tensors) == count
        assert tracemalloc.get_traced_memory()[1] < count << 10
    finally:
        tracemalloc.stop()
