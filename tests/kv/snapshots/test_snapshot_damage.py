"""Damaged and hostile files: refused with a typed error, bounded in memory, live contexts untouched.

`LLAMAY_SOAK` scales the soak's 5,000 files.  Case n is always the same damage.
"""

import hashlib
import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import ContextFileError, LlamayError, MalformedContext, UsageError
from llamay.kv.snapshots import Folder, export, import_file, manifest, page, restore
from llamay.kv.snapshots.codec import compress, decompress
from llamay.kv.snapshots.labels import file_name

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
MOST_BYTES = 8 << 20
EDGES = [0, 1, 2, 7, 8, 63, 64, 255, 256, 65535, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]


class Target:
    """A machine with live contexts, a saved context in a folder, and the same as one file."""

    def __init__(self, machine, folder: Folder, tokens) -> None:
        self.folder = folder
        self.machine = machine("gemma3.f16", pages=16)
        self.context = self.machine.fill(tokens(70))
        size = self.machine.executor.page_bytes(0)
        even = np.repeat(np.arange(2 * size // 64, dtype=np.uint8) + 1, 64).reshape(2, size)
        self.machine.executor.write_pages(0, self.context.tables[0].array[:2].tolist(), even)  # pages that are compressed
        self.saved = self.machine.save(folder, self.context, state={"sampling": {"seed": 1}}, text="some text")
        self.file = folder.root / "exported"
        export(folder, "a", self.file)
        self.manifest = folder.saved / file_name("a")
        self.files = [self.manifest, *sorted(folder.pages.iterdir())]
        self.before = self.machine.everything()
        self.free = [group.pages.free for group in self.machine.cache.groups]

    def refuses_to_restore(self) -> None:
        here = self.machine
        with pytest.raises(MalformedContext):
            restore(self.folder, self.folder.find("a").manifest, here.cache, here.executor, here.origin)
        self.is_untouched()

    def refuses_to_import(self, path: Path) -> None:
        with pytest.raises((MalformedContext, UsageError)):
            import_file(self.folder, path, "b")
        self.is_untouched()
        assert not (self.folder.saved / file_name("b")).exists()
        assert not any(self.folder.aside.iterdir())

    def is_untouched(self) -> None:
        assert self.machine.everything() == self.before
        assert [group.pages.free for group in self.machine.cache.groups] == self.free
        assert list(self.machine.cache.contexts.values()) == [self.context]
        self.machine.cache.check_integrity()


@pytest.fixture
def target(machine, folder: Folder, tokens) -> Target:
    made = Target(machine, folder, tokens)
    assert {page.load(path, path.name, memoryview(bytearray(size)))[0].method for path, size in sized(made)} == {0, 1}
    return made


def sized(target: Target) -> list[tuple[Path, int]]:
    return [(target.folder.page(digest), size) for digest, size in target.saved.manifest.sizes().items()]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one thing done to them; never the same bytes."""
    out = bytearray(data)
    at = chance.randrange(min(len(data), 400)) if chance.random() < 0.5 else chance.randrange(len(data))
    kind = chance.randrange(7)
    if kind == 0:
        out[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del out[at:]
    elif kind == 2:
        out += chance.randbytes(chance.choice([1, 64, 1000]))
    elif kind == 3:
        out[at : at + 4] = struct.pack("<I", chance.choice(EDGES))
    elif kind == 4:
        del out[at : at + chance.choice([1, 4, 64])]
    elif kind == 5:
        out[at:at] = chance.randbytes(chance.choice([1, 4, 64]))
    else:
        size = chance.choice([1, 16, 256])
        out[at : at + size] = chance.randbytes(len(out[at : at + size]))
    return damaged(data, chance) if bytes(out) == data else bytes(out)


def damage(target: Target, number: int) -> None:
    """Case `number`: one file of the folder, or the exported one."""
    chance = random.Random(number)
    if number % 2:
        copy = target.folder.root / "damaged"
        copy.write_bytes(damaged(target.file.read_bytes(), chance))
        target.refuses_to_import(copy)
        return
    victim = chance.choice(target.files)
    sound = victim.read_bytes()
    victim.write_bytes(damaged(sound, chance))
    target.refuses_to_restore()
    victim.write_bytes(sound)


def test_damage(target: Target) -> None:
    for number in range(160):
        damage(target, number)
    restore(target.folder, target.folder.find("a").manifest, target.machine.cache, target.machine.executor, target.machine.origin)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(10))
def test_damage_soak(target: Target, chunk: int) -> None:
    each = max(1, round(500 * SOAK))
    tracemalloc.start()
    slowest = 0.0
    for number in range(chunk * each, (chunk + 1) * each):
        start = time.monotonic()
        damage(target, number)
        slowest = max(slowest, time.monotonic() - start)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES and slowest < 10


def test_every_byte_counts(target: Target) -> None:
    """A flipped bit anywhere in a manifest or in a page of either kind is noticed; of the bulk some bytes stand for all."""
    raw, packed = (
        next(path for path, size in sized(target) if (path.stat().st_size < size) == small) for small in (False, True)
    )
    for path in (target.manifest, raw, packed):
        sound = path.read_bytes()
        for at in {*range(min(len(sound), 200)), *range(0, len(sound), 23)}:
            changed = bytearray(sound)
            changed[at] ^= 1 << at % 8
            with pytest.raises(MalformedContext):
                if path == target.manifest:
                    manifest.decode(bytes(changed), "it")
                else:
                    path.write_bytes(changed)
                    size = dict(sized(target))[path]
                    page.load(path, path.name, memoryview(bytearray(size)))
        if path != target.manifest:
            path.write_bytes(sound)


def test_a_missing_page(target: Target) -> None:
    target.files[1].unlink()
    target.refuses_to_restore()
    with pytest.raises(MalformedContext, match="missing"):
        export(target.folder, "a", target.folder.root / "again")
    assert not (target.folder.root / "again").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(target: Target) -> None:
    for path in target.files[:2]:
        sound = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        target.refuses_to_restore()
        path.unlink()
        path.write_bytes(sound)
    pipe = target.folder.root / "pipe"
    os.mkfifo(pipe)
    target.refuses_to_import(pipe)
    target.refuses_to_import(target.folder.root)


def test_a_file_that_is_not_there(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ContextFileError, match="cannot be read"):
        import_file(folder, tmp_path / "nothing")
    (tmp_path / "foreign").write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(MalformedContext, match="foreign is no saved context; a file that `llamay context export` wrote"):
        import_file(folder, tmp_path / "foreign")


# crafted: sound checksums around a lie


def crafted(body: bytes, version: int = 1) -> bytes:
    digest = hashlib.sha256(struct.pack("<II", version, len(body)) + body).digest()
    return manifest.HEAD.pack(manifest.MAGIC, version, len(body), digest) + body


LIES = [
    {"name": "../../escape\n"},
    {"name": "-rf"},
    {"name": ""},
    {"name": "x" * 129},
    {"tags": ["b", "a"]},
    {"created": 1e300},
    {"created": -1.0},
    {"page_tokens": 32},
    {"held": 71},
    {"held": 10**30},
    {"tokens": [5000] * 70},
    {"tokens": [-1] * 70},
    {"tokens": [1 << 31] * 70},
    {"tokens": [1.5] * 70},
    {"runs": []},
    {"runs": [{"first": 0, "pages": []}, {"first": 3, "pages": []}]},
    {"state": {"deep": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}},
    {"unknown": 1},
    {"parent": "a\x1b[2J"},
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(lie)[:40])
def test_a_lie_in_a_description(lie: dict, target: Target) -> None:
    document = msgspec.json.decode(target.manifest.read_bytes()[manifest.HEAD.size :])
    assert manifest.decode(crafted(msgspec.json.encode(document)), "it") == target.saved.manifest
    path = target.folder.root / "crafted"
    rest = target.file.read_bytes()[target.manifest.stat().st_size :]
    path.write_bytes(crafted(msgspec.json.encode({**document, **lie})) + rest)
    target.refuses_to_import(path)


@pytest.mark.parametrize("change", [{"page_bytes": 0}, {"page_bytes": 1 << 40}, {"page_bytes": 257 << 20}, {"span": -1}])
def test_a_lie_about_sizes(change: dict, target: Target) -> None:
    document = msgspec.json.decode(target.manifest.read_bytes()[manifest.HEAD.size :])
    document["origin"]["groups"][0].update(change)
    path = target.folder.root / "crafted"
    path.write_bytes(crafted(msgspec.json.encode(document)))
    tracemalloc.start()
    target.refuses_to_import(path)
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_a_digest_is_never_a_path(digest: str, target: Target) -> None:
    document = msgspec.json.decode(target.manifest.read_bytes()[manifest.HEAD.size :])
    document["runs"][0]["pages"][0] = digest
    path = target.folder.root / "crafted"
    path.write_bytes(crafted(msgspec.json.encode(document)))
    target.refuses_to_import(path)


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 100_000, b'{"tokens":' + b"[" * 100_000, b"\xff", b"null"])
def test_a_description_that_is_none(body: bytes, target: Target) -> None:
    with pytest.raises(MalformedContext):
        manifest.decode(crafted(body), "it")


def test_another_version_is_named() -> None:
    with pytest.raises(MalformedContext, match="version 2; this llamay reads version 1"):
        manifest.decode(crafted(b"{}", version=2), "it")


def test_an_announced_length_takes_no_memory(target: Target) -> None:
    path = target.folder.root / "crafted"
    path.write_bytes(manifest.HEAD.pack(manifest.MAGIC, 1, (1 << 32) - 1, bytes(32)) + b"{}")
    tracemalloc.start()
    target.refuses_to_import(path)
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("announces", [True, False])
def test_a_page_that_swells_is_bounded_by_its_size(announces: bool, tmp_path: Path) -> None:
    """64 MiB of zeros in 2 kB, said to be a page of 4096 bytes."""
    bomb = zstandard.ZstdCompressor(write_content_size=announces).compress(bytes(64 << 20))
    digest = hashlib.sha256(bytes(64 << 20)).hexdigest()
    head = page.Head(page.ZSTD, 4096, len(bomb), page.zlib.crc32(bomb), digest)
    path = tmp_path / digest
    path.write_bytes(head.encode() + bomb)
    tracemalloc.start()
    with pytest.raises(MalformedContext):
        page.load(path, digest, memoryview(bytearray(4096)))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@given(st.binary(min_size=1, max_size=2000), st.integers(0, 4000))
def test_the_codec_gives_back_what_it_got_within_its_bound(data: bytes, most: int) -> None:
    small = compress(data)
    if len(data) <= most:
        assert decompress(small, most) == data
    else:
        with pytest.raises(MalformedContext):
            decompress(small, most)
    for wrong in (small + b"\0", small[:-1], small + small):
        with pytest.raises(MalformedContext):
            decompress(wrong, max(most, 2 * len(data)))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_zstd(data: bytes) -> None:
    try:
        assert len(decompress(data, 1000)) <= 1000
    except LlamayError as error:
        assert isinstance(error, MalformedContext)
