"""Reading the header front to back: every length is checked against the file before it is used."""

from typing import Any

from llamay.errors import MalformedFile, ModelFileError
from llamay.gguf.source import Source
from llamay.gguf.values import NUMBERS, SCALARS, U32, U64, Array, Text, Value, ValueType, quoted

MAX_NAME = 65_535  # bytes of a key or a tensor name, the format's own limit
MAX_DEPTH = 4  # arrays of arrays of ...
EAGER_TEXT = 4 << 20  # bytes of string values decoded at once; further ones wait until asked
ANEW = "get it again: it is cut short or damaged"
WINDOW = 1 << 16  # bytes read of the file at a time


class Cursor:
    """A position in one file, of which a window is in memory."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.position = 0
        self.end = source.size
        self._source = source
        self._eager = EAGER_TEXT
        self._window, self._first = b"", 0  # and where in the file it starts

    def fail(self, message: str, error: type[ModelFileError] = MalformedFile, do: str = ANEW) -> ModelFileError:
        """The error to raise, with the file and the byte it is about; `do` is what helps with a malformed one."""
        advice = f"; {do}" if error is MalformedFile else ""
        return error(f"{self.path}: {message} (at byte {self.position:,} of {self.end:,}){advice}")

    def take(self, count: int, what: str) -> int:
        """Step over `count` bytes and return where they start; MalformedFile if the file is shorter."""
        start = self.position
        if count > self.end - start:
            raise self.fail(f"{what} takes {count:,} bytes, but the file has {self.end - start:,} left")
        self.position = start + count
        return start

    def raw(self, count: int, what: str) -> bytes:
        """Step over `count` bytes and return them; MalformedFile if the file is shorter."""
        start = self.take(count, what)
        if count > WINDOW:
            return self._source.read(start, count, what)
        at = self._reach(start, count)
        return self._window[at : at + count]

    def u32(self, what: str) -> int:
        return int(U32.unpack(self.raw(4, what))[0])

    def u64(self, what: str) -> int:
        return int(U64.unpack(self.raw(8, what))[0])

    def name(self, what: str) -> str:
        """A key or tensor name: 1 to 65,535 bytes of UTF-8."""
        length = self.u64(f"the length of {what}")
        if not 1 <= length <= MAX_NAME:
            raise self.fail(f"{what} is {length:,} bytes long, 1 to {MAX_NAME:,} expected")
        try:
            return self.raw(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8: {error.reason}") from error

    def value_type(self, key: str) -> ValueType:
        number = self.u32(f"the type of {quoted(key)}")
        try:
            return ValueType(number)
        except ValueError:
            raise self.fail(f"{quoted(key)} has value type {number}, 0 to {max(ValueType)} expected") from None

    def value(self, key: str, type: ValueType) -> Value | Text:
        """One value: numbers and short strings now, arrays and long strings as a place in the file."""
        if type is ValueType.STRING:
            return self._text(key)
        if type is ValueType.ARRAY:
            return self._array(key)
        if type is ValueType.BOOL:
            byte = self.raw(1, quoted(key))[0]
            if byte > 1:
                raise self.fail(f"{quoted(key)} is a boolean of {byte}, 0 or 1 expected")
            return byte == 1
        layout = SCALARS[type]
        found: Any = layout.unpack(self.raw(layout.size, quoted(key)))[0]
        number: int | float = found
        return number

    def _text(self, key: str) -> str | Text:
        length = self.u64(f"the length of {quoted(key)}")
        later = Text(key, self._source, self.position, self.position + length)
        if length > self._eager:
            self.take(length, quoted(key))
            return later
        self._eager -= length
        try:
            return self.raw(length, quoted(key)).decode()
        except UnicodeDecodeError:
            return later

    def _array(self, key: str) -> Array:
        type, count = self._array_header(key)
        start = self.position
        self._skip(key, type, count, depth=1)
        return Array(key, type, count, self._source, start, self.position)

    def _array_header(self, key: str) -> tuple[ValueType, int]:
        type = self.value_type(key)
        return type, self.u64(f"the length of {quoted(key)}")

    def _skip(self, key: str, type: ValueType, count: int, depth: int) -> None:
        """Step over the elements of an array, creating nothing."""
        if type is ValueType.STRING:
            self._skip_strings(key, count)
        elif type is not ValueType.ARRAY:
            self.take(count * NUMBERS[type].itemsize, f"{quoted(key)}, an array of {count:,} {type.name.lower()},")
        elif depth == MAX_DEPTH:
            raise self.fail(f"{quoted(key)} nests arrays deeper than {MAX_DEPTH}")
        else:
            self._fits(key, count, 12)
            for _ in range(count):
                self._skip(key, *self._array_header(key), depth + 1)

    def _skip_strings(self, key: str, count: int) -> None:
        self._fits(key, count, 8)
        position, unpack = self.position, U64.unpack_from
        window, first, last = self._window, self._first, self.end - 8  # where a length may start at the latest
        inside = first + len(window) - 8  # where one may start that is in the window
        for index in range(count):
            if position > inside:
                if position > last:
                    raise self._cut(key, index, count)
                self._reach(position, 8)
                window, first, inside = self._window, self._first, self._first + len(self._window) - 8
            position += 8 + unpack(window, position - first)[0]
        if position > self.end:
            raise self._cut(key, count, count)
        self.position = position

    def _reach(self, start: int, count: int) -> int:
        """Has up to WINDOW bytes from `start` on in the window, and returns where in it they are."""
        if not self._first <= start <= start + count <= self._first + len(self._window):
            size = min(WINDOW, self.end - start)
            self._window, self._first = self._source.read(start, size, "the header"), start
        return start - self._first

    def _fits(self, key: str, count: int, least: int) -> None:
        if count * least > self.end - self.position:
            left = self.end - self.position
            raise self.fail(f"{quoted(key)} announces {count:,} elements, but the file has {left:,} bytes left")

    def _cut(self, key: str, index: int, count: int) -> ModelFileError:
        return self.fail(f"{quoted(key)}, an array of {count:,} strings, leaves the file by its string {index:,}")
