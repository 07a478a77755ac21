"""A file that is cut short while it is open: an error that says so, and never a signal."""

import os

import pytest

from llamay import gguf
from llamay.errors import MalformedFile
from llamay.gguf import Array

SHORTER = "became shorter while it was in use: 't' takes bytes"


@pytest.fixture
def cut(build, saved):
    """An open file of one array and one tensor, which then loses its last half."""
    strings = b"".join(build.text(f"word {index}") for index in range(1000))
    content = build.file([build.array("a", 8, 1000, strings)], [build.tensor("t", (1000, 4), 0, 0)], bytes(16_000))
    path = saved(content)
    with gguf.open(path) as file:
        os.truncate(path, len(content) - 8_000)
        yield file, path


def test_a_tensor_that_is_gone_is_told(cut):
    file, path = cut
    assert file.tensors["t"].read(0, 2).shape == (2, 4000)
    for read in (lambda: file.tensors["t"].data, lambda: file.tensors["t"].read(1, 3)):
        with pytest.raises(MalformedFile, match=SHORTER) as refusal:
            read()
        assert path in str(refusal.value) and "are left" in str(refusal.value)


def test_an_array_that_is_gone_is_told(cut):
    file, path = cut
    assert file.get("a", Array).strings()[999] == "word 999"
    os.truncate(path, 100)
    with pytest.raises(MalformedFile, match="'a' takes bytes"):
        file.get("a", Array).strings()


def test_another_file_in_its_place_changes_nothing(build, saved):
    path = saved(build.file([], [build.tensor("t", (2,), 1, 0)], b"abcd"))
    with gguf.open(path) as file:
        os.replace(saved(b"nothing", "other"), path)
        assert file.tensors["t"].data.tobytes() == b"abcd"


def test_a_header_longer_than_the_window_is_read_whole(build, saved):
    """Values of every size on the edges of what is read at a time."""
    words = ["x" * size for size in (65_527, 65_528, 0, 1, 65_535, 65_536, 65_537, 200_000, 3)]
    entries = [build.entry(f"k{at}", 8, build.text(word)) for at, word in enumerate(words)]
    entries += [build.array("all", 8, len(words), b"".join(map(build.text, words))), build.entry("after", 7, b"\1")]
    with gguf.open(saved(build.file(entries))) as file:
        assert [file.metadata[f"k{at}"] for at in range(len(words))] == words
        assert file.get("all", Array).strings() == words
        assert file.metadata["after"] is True
