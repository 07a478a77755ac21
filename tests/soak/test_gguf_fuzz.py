"""Mutated and truncated GGUF files: a typed error or a whole load, in bounded time and memory, never a crash.

`LLAMAY_SOAK` scales the count of the soak test (1 is 20,000 files).  Case n is always the same file.
"""

import os
import random
import struct
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from llamay import gguf
from llamay.errors import ModelFileError
from llamay.gguf import Array, Typed, ValueType
from llamay.quant import TensorType

MODELS = Path(__file__).parents[1] / "data" / "models"
REAL = ["llama-gqa.f16", "qwen2-k.q2_k", "qwen2-k.q4_k"]
PLAIN = 300
CHUNKS = 20
EACH = max(1, round(1000 * float(os.environ.get("LLAMAY_SOAK", "1"))))
MOST_SECONDS = 2.0
MOST_BYTES = 64 << 20

WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of each number type
EDGES = [0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40]
EDGES += [(1 << 42) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]


class Fields:
    """Where the numbers of a sound file's header are: (position, width) of counts, lengths, types, sizes, offsets."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0
        self.found: list[tuple[int, int]] = []
        self.inner: list[tuple[int, int]] = []  # those inside arrays, too many to be chosen alike
        self.number(4)  # the magic
        self.number(4)
        tensors, entries = self.number(8), self.number(8)
        for _ in range(entries):
            self.text()
            self.value(self.number(4))
        for _ in range(tensors):
            self.text()
            for _ in range(self.number(4)):
                self.number(8)
            self.number(4)
            self.number(8)

    def number(self, width: int) -> int:
        self.found.append((self.at, width))
        self.at += width
        return int.from_bytes(self.content[self.at - width : self.at], "little")

    def text(self) -> None:
        length = self.number(8)
        self.at += length

    def value(self, type: int) -> None:
        if type == 8:
            self.text()
        elif type == 9:
            self.elements(self.number(4), self.number(8))
        else:
            self.number(WIDTHS[type])

    def elements(self, type: int, count: int) -> None:
        if type in WIDTHS:
            self.at += count * WIDTHS[type]
            return
        outer = len(self.found)
        for _ in range(count):
            self.value(type)
        self.inner += self.found[outer:]
        del self.found[outer:]


def made(folder: Path) -> bytes:
    """A small file with every value type, nested arrays, a wide alignment and tensors of several ranks."""
    scalars = {type.name: Typed(type, 1) for type in ValueType if type not in (ValueType.STRING, ValueType.ARRAY)}
    inner = struct.pack("<IQ", ValueType.UINT8, 3) + b"abc"
    metadata = {
        "general.alignment": 64, "text": "für", "words": ["a", "", "bc"], "none": Typed(ValueType.STRING, []),
        "nested": Typed(ValueType.UINT8, list(inner)), **scalars,
    }  # fmt: skip
    shapes = [(1,), (32, 2), (64, 2, 3), (32, 1, 2, 2)]
    tensors = [(f"t{i}", TensorType.Q8_0, shape, bytes(34 * size)) for i, (shape, size) in enumerate(
        zip(shapes[1:], (2, 12, 4), strict=True))]  # fmt: skip
    gguf.write(folder / "made.gguf", metadata, [("one", TensorType.F32, (1,), bytes(4)), *tensors])
    content = (folder / "made.gguf").read_bytes()
    # turn the array of bytes into an array holding one array: same bytes, other element type
    place = content.index(b"nested") + 6 + 4
    return content[:place] + struct.pack("<IQ", ValueType.ARRAY, 1) + content[place + 12 :]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """The sound files mutations start from, each with its fields."""
    contents = [(MODELS / f"{name}.gguf").read_bytes() for name in REAL]
    contents.append(made(tmp_path_factory.mktemp("made")))
    return [Fields(content) for content in contents]


def set_field(chance: random.Random, seed: Fields, content: bytearray) -> None:
    position, width = chance.choice(chance.choice([seed.found, seed.found, seed.found, seed.inner]))
    old = int.from_bytes(content[position : position + width], "little")
    near = [old + 1, old - 1, old * 2, old + 32, len(content), len(content) - position, chance.getrandbits(64)]
    value = chance.choice(chance.choice([EDGES, near, [chance.randrange(64)]]))
    content[position : position + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def copy_field(chance: random.Random, seed: Fields, content: bytearray) -> None:
    source, width = chance.choice(seed.found)
    target = chance.choice([place for place, other in seed.found if other == width])
    content[target : target + width] = content[source : source + width]


def change_bytes(chance: random.Random, seed: Fields, content: bytearray) -> None:
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(min(seed.at, len(content)))] = chance.randrange(256)


def remove_piece(chance: random.Random, seed: Fields, content: bytearray) -> None:
    start = chance.randrange(seed.at)
    del content[start : start + chance.choice([1, 4, 8, 12, chance.randint(1, 500)])]


def repeat_piece(chance: random.Random, seed: Fields, content: bytearray) -> None:
    start = chance.randrange(seed.at)
    content[start:start] = content[start : start + chance.choice([1, 4, 8, 25, chance.randint(1, 500)])]


def insert_noise(chance: random.Random, seed: Fields, content: bytearray) -> None:
    start = chance.randrange(seed.at)
    content[start:start] = chance.randbytes(chance.randint(1, 64))


def blank_piece(chance: random.Random, seed: Fields, content: bytearray) -> None:
    start, byte = chance.randrange(seed.at), chance.choice([b"\0", b"\xff"])
    size = min(chance.randint(1, 4096), len(content) - start)
    content[start : start + size] = byte * size


def cut(chance: random.Random, seed: Fields, content: bytearray) -> None:
    del content[chance.choice([chance.randrange(seed.at), chance.randrange(len(content) + 1)]) :]


def lengthen(chance: random.Random, seed: Fields, content: bytearray) -> None:
    content += chance.randbytes(chance.randint(1, 4096))


MUTATIONS = [set_field] * 5 + [copy_field, change_bytes, remove_piece, repeat_piece, insert_noise, blank_piece]
ENDS = [cut, lengthen]


def mutated(index: int, seeds: list[Fields]) -> bytes:
    """Case `index`: one to three mutations inside, or a cut, or a longer end, or both."""
    chance = random.Random(f"gguf {index}")
    seed = chance.choice(seeds)
    content = bytearray(seed.content)
    for mutation in chance.choices(MUTATIONS, k=chance.choice([0, 1, 1, 1, 2, 3])):
        if len(content) >= seed.at:
            mutation(chance, seed, content)
    if chance.random() < 0.15 or content == seed.content:
        chance.choice(ENDS)(chance, seed, content)
    return bytes(content)


def outcome(path: Path) -> str:
    """Open, read every array and every tensor; what happened, as "loaded" or the kind of refusal."""
    try:
        with gguf.open(path) as file:
            for value in file.metadata.values():
                if isinstance(value, Array):
                    assert len(value.raw()) >= len(value)
            for tensor in file.tensors.values():
                assert tensor.data.nbytes == tensor.nbytes > 0
                tensor.data.max()  # reads every byte
            for key, value in file.metadata.items():
                if isinstance(value, Array) and value.type is ValueType.STRING:
                    assert len(file.get(key, Array).bytes()) == len(value)
            return "loaded"
    except ModelFileError as error:
        return type(error).__name__


def run(indices: range, seeds: list[Fields], folder: Path) -> Counter[str]:
    """All cases of `indices`: fails on a slow one, a large one, or anything but a load and a typed error."""
    path = folder / "case.gguf"
    path.touch()
    outcomes: Counter[str] = Counter()
    tracemalloc.start()
    try:
        for index in indices:
            with path.open("r+b") as file:
                file.write(mutated(index, seeds))
                file.truncate()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            started = time.process_time()
            outcomes[outcome(path)] += 1
            assert time.process_time() - started < MOST_SECONDS, f"case {index} took too long"
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, f"case {index} took too much memory"
    finally:
        tracemalloc.stop()
    return outcomes


def test_the_seeds_load(seeds, tmp_path):
    for seed in seeds:
        (tmp_path / "seed.gguf").write_bytes(seed.content)
        assert outcome(tmp_path / "seed.gguf") == "loaded"
        assert len(seed.found) > 50


def test_a_few_mutated_files_load_or_are_refused(seeds, tmp_path):
    outcomes = run(range(PLAIN), seeds, tmp_path)
    assert outcomes.total() == PLAIN
    assert outcomes["loaded"] > PLAIN // 20
    assert outcomes["MalformedFile"] > PLAIN // 5
    assert outcomes["Unsupported"] > PLAIN // 50


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_mutated_files_load_or_are_refused(seeds, tmp_path, chunk):
    first = PLAIN + chunk * EACH
    assert run(range(first, first + EACH), seeds, tmp_path).total() == EACH
