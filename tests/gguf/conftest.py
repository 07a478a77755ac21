"""GGUF files made byte by byte, without the writer under test."""

import struct

import pytest

U32, STRING, ARRAY = 4, 8, 9


class Bytes:
    """Builds a file from parts that may each lie."""

    @staticmethod
    def text(raw: bytes | str, length: int | None = None) -> bytes:
        raw = raw.encode() if isinstance(raw, str) else raw
        return struct.pack("<Q", len(raw) if length is None else length) + raw

    @classmethod
    def entry(cls, key: bytes | str, type: int, value: bytes) -> bytes:
        return cls.text(key) + struct.pack("<I", type) + value

    @classmethod
    def array(cls, key: str, type: int, count: int, elements: bytes) -> bytes:
        return cls.entry(key, ARRAY, struct.pack("<IQ", type, count) + elements)

    @classmethod
    def tensor(cls, name: bytes | str, shape: tuple[int, ...], type: int, offset: int) -> bytes:
        return cls.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset)

    @staticmethod
    def file(entries=(), tensors=(), data=b"", version=3, counts=None, alignment=32, magic=b"GGUF") -> bytes:
        counted = (len(tensors), len(entries)) if counts is None else counts
        head = magic + struct.pack("<IQQ", version, *counted) + b"".join(entries) + b"".join(tensors)
        return head + b"\0" * (-len(head) % alignment) + data


@pytest.fixture
def build() -> type[Bytes]:
    return Bytes


@pytest.fixture
def saved(tmp_path):
    """Writes bytes to a file and returns its path."""

    def save(content: bytes, name: str = "made.gguf") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return save
