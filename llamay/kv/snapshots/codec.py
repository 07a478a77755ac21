"""zstd: the standard library's where Python has it, else the zstandard package."""

import sys
from collections.abc import Callable
from typing import Any

from llamay.errors import MalformedContext

LEVEL = 1  # keys and values are nearly noise: higher levels cost much and save nothing

Compress = Callable[[Any], bytes]  # any buffer
Decompress = Callable[[bytes, int], bytes]  # data, most bytes that may come out


def _standard() -> tuple[Compress, Decompress]:
    from compression import zstd  # type: ignore[import-not-found, unused-ignore]

    def compress(data: Any) -> bytes:
        return bytes(zstd.compress(data, level=LEVEL))

    def decompress(data: bytes, most: int) -> bytes:
        decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 27})
        try:
            out = bytes(decompressor.decompress(data, max_length=most + 1))
        except zstd.ZstdError as error:
            raise MalformedContext(f"zstd: {error}") from error
        if len(out) > most or not decompressor.eof or decompressor.unused_data:
            raise MalformedContext("zstd: the data is cut, goes on after its end, or holds more than it may")
        return out

    return compress, decompress


def _package() -> tuple[Compress, Decompress]:
    import zstandard

    def compress(data: Any) -> bytes:
        return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)

    def decompress(data: bytes, most: int) -> bytes:
        try:
            announced = zstandard.get_frame_parameters(data).content_size
            if announced > most:  # also where it is unknown: that is the largest number
                raise MalformedContext(f"zstd: {announced} bytes are announced where at most {most} may be")
            unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
            return unpacker.decompress(data, max_output_size=most, read_across_frames=False, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise MalformedContext(f"zstd: {error}") from error

    return compress, decompress


if sys.version_info >= (3, 14):
    compress, decompress = _standard()
else:
    compress, decompress = _package()
