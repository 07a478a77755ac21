"""What a sound file gives: metadata of every type, lazy arrays, tensors by their rows."""

import gc
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf
from llamay.errors import MalformedFile, ModelFileError
from llamay.gguf import Array, ValueType
from llamay.quant import TensorType

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.gguf"))


def test_every_value_type_is_read(build, saved):
    numbers = {
        "a.u8": (0, "B", 200), "a.i8": (1, "b", -100), "a.u16": (2, "H", 60_000), "a.i16": (3, "h", -30_000),
        "a.u32": (4, "I", 4_000_000_000), "a.i32": (5, "i", -2_000_000_000), "a.f32": (6, "f", 0.5),
        "a.u64": (10, "Q", 1 << 63), "a.i64": (11, "q", -(1 << 62)), "a.f64": (12, "d", 0.1),
    }  # fmt: skip
    entries = [build.entry(key, type, struct.pack("<" + code, value)) for key, (type, code, value) in numbers.items()]
    entries += [build.entry("a.yes", 7, b"\1"), build.entry("a.no", 7, b"\0")]
    entries += [build.entry("a.text", 8, build.text("für")), build.entry("a.empty", 8, build.text(""))]
    with gguf.open(saved(build.file(entries))) as file:
        assert {key: file.metadata[key] for key in numbers} == {key: value for key, (_, _, value) in numbers.items()}
        assert file.metadata["a.yes"] is True
        assert file.metadata["a.no"] is False
        assert (file.metadata["a.text"], file.metadata["a.empty"]) == ("für", "")
        assert list(file.metadata) == [*numbers, "a.yes", "a.no", "a.text", "a.empty"]
        assert len(file.metadata) == 14
        assert {int(type) for type in file.metadata.types.values()} == set(range(13)) - {9}
        assert "a.gone" not in file.metadata


def test_arrays_are_read_when_asked(build, saved):
    words = ["", "ab", "für"]
    entries = [
        build.array("n", 5, 3, struct.pack("<3i", -1, 2, 3)),
        build.array("f", 6, 2, struct.pack("<2f", 0.5, -2)),
        build.array("b", 7, 3, b"\1\0\1"),
        build.array("s", 8, 3, b"".join(build.text(word) for word in words)),
        build.array("none", 8, 0, b""),
        build.array("nested", 9, 2, struct.pack("<IQ3B", 0, 3, 1, 2, 3) + struct.pack("<IQ", 8, 1) + build.text("x")),
        build.entry("after", 4, struct.pack("<I", 7)),
    ]
    with gguf.open(saved(build.file(entries))) as file:
        arrays = {key: file.get(key, Array) for key in ("n", "f", "b", "s", "none", "nested")}
        assert {key: len(array) for key, array in arrays.items()} == {
            "n": 3, "f": 2, "b": 3, "s": 3, "none": 0, "nested": 2
        }  # fmt: skip
        assert arrays["n"].numpy().tolist() == [-1, 2, 3]
        assert arrays["n"].numpy().dtype == np.int32
        assert arrays["f"].numpy().tolist() == [0.5, -2]
        assert arrays["b"].numpy().tolist() == [True, False, True]
        assert arrays["s"].strings() == words
        assert arrays["s"].bytes() == [word.encode() for word in words]
        assert arrays["none"].strings() == []
        assert arrays["nested"].type is ValueType.ARRAY
        assert file.metadata["after"] == 7


def test_an_array_of_another_kind_is_refused_by_name(build, saved):
    entries = [build.array("tokens", 4, 2, bytes(8)), build.array("scores", 8, 1, build.text("x"))]
    with gguf.open(saved(build.file(entries))) as file:
        with pytest.raises(MalformedFile, match="'tokens' is an array of uint32, strings expected"):
            file.get("tokens", Array).strings()
        with pytest.raises(MalformedFile, match="'scores' is an array of string, numbers expected"):
            file.get("scores", Array).numpy()
        with pytest.raises(MalformedFile, match="'scores' is an array of string, a float for each expected"):
            file.array("scores", float)
        with pytest.raises(MalformedFile, match="'tokens' has 2 elements, 3 expected"):
            file.array("tokens", int, length=3)
        found = file.array("tokens", int, length=2)
        assert found is not None
        assert len(found) == 2
        assert file.array("gone", int) is None


def test_getters_check_the_declared_type(build, saved):
    entries = [build.entry("n", 4, struct.pack("<I", 8)), build.entry("f", 6, struct.pack("<f", 0.5))]
    entries += [build.entry("s", 8, build.text("x")), build.entry("b", 7, b"\1"), build.array("a", 4, 0, b"")]
    with gguf.open(saved(build.file(entries))) as file:
        assert file.get("n", int) == 8
        assert file.get("f", float) == 0.5
        assert file.get("s", str) == "x"
        assert file.get("b", bool) is True
        assert file.get("gone", int, None) is None
        assert file.get("gone", float, 10000.0) == 10000.0
        for key, type, message in [
            ("n", float, "'n' is declared as uint32, a float expected"),
            ("b", int, "'b' is declared as bool, an integer expected"),
            ("s", int, "'s' is declared as string, an integer expected"),
            ("a", str, "'a' is declared as array, a string expected"),
            ("f", Array, "'f' is declared as float32, an array expected"),
            ("gone", str, "'gone' is missing, a string expected"),
        ]:
            with pytest.raises(MalformedFile, match=message):
                file.get(key, type)
        with pytest.raises(MalformedFile, match="'n' is declared as uint32"):
            file.get("n", str, "default")


def test_tensors_have_their_shape_and_bytes(build, saved):
    matrix, vector = bytes(range(144)), bytes(range(100, 112))
    tensors = [
        build.tensor("vector", (3,), 0, 192),  # the file's order need not be that of the data
        build.tensor("matrix", (32, 2, 4), 2, 0),
        build.tensor("scalar", (), 1, 256),
    ]
    data = matrix + bytes(48) + vector + bytes(52) + b"\1\2"
    path = saved(build.file([], tensors, data))
    with gguf.open(path) as file:
        assert list(file.tensors) == ["vector", "matrix", "scalar"]
        tensor = file.tensors["matrix"]
        assert (tensor.type, tensor.shape, tensor.rows, tensor.columns) == (TensorType.Q4_0, (32, 2, 4), 8, 32)
        assert (tensor.nbytes, tensor.row_bytes) == (144, 18)
        assert tensor.data.shape == (8, 18)
        assert not tensor.data.flags.writeable
        assert tensor.data.tobytes() == matrix
        assert Path(path).read_bytes()[tensor.offset :][:144] == matrix
        assert file.tensors["vector"].data.tobytes() == vector
        assert (file.tensors["vector"].rows, file.tensors["vector"].columns) == (1, 3)
        assert file.tensors["scalar"].data.tolist() == [[1, 2]]
        assert (file.path, file.paths, file.version) == (path, (path,), 3)
        assert file.size == Path(path).stat().st_size
        assert tensor.read(3, 5).tobytes() == matrix[54:90]


def test_alignment_moves_the_data(build, saved):
    entry = build.entry("general.alignment", 4, struct.pack("<I", 256))
    tensors = [build.tensor("a", (1,), 0, 0), build.tensor("b", (1,), 0, 256)]
    content = build.file([entry], tensors, b"abcd" + bytes(252) + b"efgh", alignment=256)
    with gguf.open(saved(content)) as file:
        assert file.tensors["a"].offset == 256
        assert file.tensors["a"].data.tobytes() + file.tensors["b"].data.tobytes() == b"abcdefgh"


def test_version_two_reads_the_same(build, saved):
    content = build.file([build.entry("k", 8, build.text("v"))], [build.tensor("t", (2,), 1, 0)], b"abcd", version=2)
    with gguf.open(saved(content)) as file:
        assert file.version == 2
        assert file.metadata["k"] == "v"
        assert file.tensors["t"].data.tobytes() == b"abcd"


def test_a_file_without_tensors_needs_no_data(build, saved):
    content = build.file([build.entry("k", 7, b"\1")], alignment=1)
    with gguf.open(saved(content)) as file:
        assert dict(file.metadata) == {"k": True}
        assert file.tensors == {}
    with gguf.open(saved(build.file())) as file:
        assert len(file.metadata) == 0


def test_text_that_is_not_utf8_shows_its_bytes(build, saved):
    strings = build.text("fine") + build.text(b"b\xffd")
    entries = [build.entry("name", 8, build.text(b"caf\xe9")), build.array("tokens", 8, 2, strings)]
    with gguf.open(saved(build.file(entries))) as file:
        assert file.metadata["name"] == "caf\\xe9"
        assert file.get("tokens", Array).bytes() == [b"fine", b"b\xffd"]
        with pytest.raises(MalformedFile, match=r"'tokens'\[1\] is not UTF-8"):
            file.get("tokens", Array).strings()


def test_a_large_vocabulary_costs_nothing_until_asked(build, saved):
    count = 150_000
    strings = b"".join(build.text(b"token %d" % index) for index in range(count))
    path = saved(build.file([build.array("tokenizer.ggml.tokens", 8, count, strings)]))
    gc.collect()
    tracemalloc.start()
    with gguf.open(path) as file:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000
        started = time.process_time()
        gguf.open(path).close()
        assert time.process_time() - started < 0.5
        words = file.get("tokenizer.ggml.tokens", Array).strings()
    assert len(words) == count
    assert (words[0], words[-1]) == ("token 0", "token 149999")


def test_long_strings_are_decoded_when_asked(build, saved):
    long = "x" * (5 << 20)
    entries = [build.entry("tokenizer.huggingface.json", 8, build.text(long)), build.entry("k", 7, b"\1")]
    path = saved(build.file(entries))
    tracemalloc.start()
    with gguf.open(path) as file:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000
        assert file.get("tokenizer.huggingface.json", str) == long
        assert file.metadata["k"] is True
    with pytest.raises(ModelFileError, match="the file was closed"):
        file.metadata["tokenizer.huggingface.json"]


def test_closing_leaves_what_was_read_and_nothing_else(build, saved):
    content = build.file([build.array("a", 0, 2, b"xy")], [build.tensor("t", (2,), 1, 0)], b"abcd")
    file = gguf.open(saved(content))
    view = file.tensors["t"].data
    file.close()
    assert view.tobytes() == b"abcd"
    del view
    file.close()
    with pytest.raises(ModelFileError, match="the file was closed; 't'"):
        _ = file.tensors["t"].data
    with pytest.raises(ModelFileError, match="the file was closed; 'a'"):
        file.get("a", Array).numpy()


def test_small_models_open():
    assert len(MODELS) >= 3


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_open_whole(path):
    with gguf.open(path) as file:
        architecture = file.get("general.architecture", str)
        assert file.get(f"{architecture}.embedding_length", int) == file.tensors["token_embd.weight"].columns
        tokens = file.array("tokenizer.ggml.tokens", str)
        assert tokens is not None
        assert len(tokens.strings()) == len(tokens) > 0
        assert sum(tensor.data.nbytes for tensor in file.tensors.values()) < file.size == path.stat().st_size
