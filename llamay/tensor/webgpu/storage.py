"""What kernels read and write: windows of buffers, and textures of vec4s for adapters that load texels faster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TEXELS = 1024  # vec4s of a texture's line
LINE = 16 * TEXELS  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A window of device memory."""

    handle: Any
    offset: int
    size: int

    def window(self, offset: int, size: int) -> "Buffer":
        """Bytes [offset, offset + size) of this window."""
        return Buffer(self.handle, self.offset + offset, size)


@dataclass(frozen=True, slots=True, eq=False)
class Texture:
    """vec4s of 32-bit words laid line by line, TEXELS a line."""

    handle: Any
    view: Any
    size: int  # bytes


Rows = Buffer | Texture


def texels(**bound: Rows) -> str:
    """The choice of that name of a kernel: which of its bindings are textures."""
    return " ".join(sorted(name for name, memory in bound.items() if isinstance(memory, Texture)))


def pieces(offset: int, size: int) -> Iterator[tuple[int, tuple[int, int, int], tuple[int, int, int]]]:
    """Bytes [offset, offset + size) of a texture as at most three rectangles: (bytes before it, origin, extent).

    Both are multiples of a vec4's 16 bytes.
    """
    done = 0
    while done < size:
        line, column = divmod(offset + done, LINE)
        left = size - done
        if column or left < LINE:
            count = min(left, LINE - column)
            yield done, (column // 16, line, 0), (count // 16, 1, 1)
        else:
            count = left // LINE * LINE
            yield done, (0, line, 0), (TEXELS, count // LINE, 1)
        done += count


def copy_out(encoder: Any, source: Rows, offset: int, target: Buffer, at: int, size: int) -> None:
    """Records a copy of bytes [offset, offset + size) to byte `at` of a buffer."""
    if isinstance(source, Buffer):
        encoder.copy_buffer_to_buffer(source.handle, source.offset + offset, target.handle, target.offset + at, size)
        return
    for lines, rectangle, extent in _matched(target, at, source, offset, size):
        encoder.copy_texture_to_buffer(rectangle, lines, extent)


def copy_in(encoder: Any, source: Buffer, at: int, target: Rows, offset: int, size: int) -> None:
    """Records a copy of bytes [at, at + size) of a buffer to byte `offset`."""
    if isinstance(target, Buffer):
        encoder.copy_buffer_to_buffer(source.handle, source.offset + at, target.handle, target.offset + offset, size)
        return
    for lines, rectangle, extent in _matched(source, at, target, offset, size):
        encoder.copy_buffer_to_texture(lines, rectangle, extent)


def _matched(buffer: Buffer, at: int, texture: Texture, offset: int, size: int) -> Iterator[tuple[Any, Any, Any]]:
    """Each rectangle of a copy between byte `at` of a buffer and byte `offset` of a texture: both its sides, and its extent."""
    for done, origin, extent in pieces(offset, size):
        lines = {"buffer": buffer.handle, "offset": buffer.offset + at + done, "bytes_per_row": LINE, "rows_per_image": extent[1]}
        yield lines, {"texture": texture.handle, "mip_level": 0, "origin": origin}, extent
