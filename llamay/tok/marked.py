"""Strings that remember which of their characters came from the user, through all that a template does to them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, SupportsIndex

from llamay.tok.budget import ACCOUNT, ELEMENT

Spans = tuple[tuple[int, int], ...]
WHITE = tuple("\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") + tuple(map(chr, range(0x2000, 0x200B)))
CONTAINERS = (dict, list, tuple)
MANY = 1_000  # characters to strip


class Marked(str):
    """Text with the spans of it that are input: sorted, disjoint, in characters.

    What is made of marked text is marked where it can be told which characters are input, and otherwise as a whole:
    text may lose its power to hold control tokens, and never gains it. Every method that a template may call and that
    returns text is overridden, so a plain string must become Marked (without spans) before its methods are used.
    """

    __slots__ = ("spans",)
    spans: Spans

    def __new__(cls, text: str, spans: Spans | None = None) -> "Marked":
        """`spans` None: all of it is input."""
        made = super().__new__(cls, str.__str__(text))
        made.spans = (((0, len(made)),) if made else ()) if spans is None else spans
        return made

    def __str__(self) -> str:
        return self

    def __iter__(self) -> Iterator[str]:
        return (self.cut(at, at + 1) for at in range(len(self)))

    def __getitem__(self, key: SupportsIndex | slice) -> "Marked":
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self.cut(start, max(start, stop)) if step == 1 else self.like(str.__getitem__(self, key))
        text = str.__getitem__(self, key)
        at = range(len(self))[key]
        return self.cut(at, at + 1) if text else self.like(text)

    def cut(self, start: int, stop: int) -> "Marked":
        """The characters from start to stop."""
        if not self.spans or start >= stop:
            return Marked(str.__getitem__(self, slice(start, stop)), ())
        first = bisect_right(self.spans, start, key=itemgetter(1))
        spans = []
        for a, b in self.spans[first:]:
            if a >= stop:
                break
            spans.append((max(a, start) - start, min(b, stop) - start))
        return Marked(str.__getitem__(self, slice(start, stop)), tuple(spans))

    def like(self, text: str, *others: Any) -> "Marked":
        """Text that was made of this and others in a way nobody followed: all input if anything of them may be."""
        return Marked(text, None if self.spans or any(map(doubtful, others)) else ())

    def strip(self, chars: str | None = None) -> "Marked":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> "Marked":
        return self.cut(len(self) - len(str.lstrip(self, _few(chars))), len(self))

    def rstrip(self, chars: str | None = None) -> "Marked":
        return self.cut(0, len(str.rstrip(self, _few(chars))))

    def removeprefix(self, prefix: str) -> "Marked":
        return self.cut(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str) -> "Marked":
        return self.cut(0, len(self) - (len(suffix) if suffix and self.endswith(suffix) else 0))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        self._pay_pieces((sep,) if sep else WHITE, maxsplit.__index__())
        return self._cuts(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        self._pay_pieces((sep,) if sep else WHITE, maxsplit.__index__())
        return self._cuts(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        self._pay_pieces(WHITE, -1)
        lines: list[str] = []
        at = 0
        for line, whole in zip(str.splitlines(self), str.splitlines(self, keepends=True), strict=True):
            lines.append(self.cut(at, at + len(whole if keepends else line)))
            at += len(whole)
        return lines

    def partition(self, sep: str) -> tuple[str, str, str]:
        before, found, _ = str.partition(self, sep)
        return self._three(len(before), len(before) + len(found))

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        before, found, _ = str.rpartition(self, sep)
        return self._three(len(before), len(before) + len(found))

    def _three(self, first: int, second: int) -> tuple[str, str, str]:
        return self.cut(0, first), self.cut(first, second), self.cut(second, len(self))

    def _cuts(self, pieces: list[str], sep: str | None) -> list[str]:
        """The same pieces, found again in order; between two of them is `sep`, or white space only."""
        found: list[str] = []
        at = 0
        for piece in pieces:
            at = str.find(self, piece, at) if sep is None else at
            found.append(self.cut(at, at + len(piece)))
            at += len(piece) + len(sep or "")
        return found

    def _pay_pieces(self, seps: Iterable[str], most: int) -> None:
        count = sum(str.count(self, sep) for sep in seps)
        pay(ELEMENT * (1 + (count if most < 0 else min(count, most))))

    def join(self, parts: Iterable[Any]) -> "Marked":
        parts = [shown(part) for part in parts]
        pay((len(self) + 1) * len(parts))
        between = [piece for part in parts for piece in (self, part)][1:]
        return concat(between if self else parts)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> "Marked":
        found = str.count(self, old)
        pay(len(self) + (found if count.__index__() < 0 else min(found, count.__index__())) * len(new))
        if not old:
            return self.like(str.replace(self, old, new, count), new)
        return Marked(new, spans_of(new)).join(self.split(old, count))

    def _same_length(self, text: str) -> "Marked":
        return Marked(text, self.spans) if len(text) == len(self) else self.like(text)

    def upper(self) -> "Marked":
        return self._same_length(str.upper(self))

    def lower(self) -> "Marked":
        return self._same_length(str.lower(self))

    def title(self) -> "Marked":
        return self._same_length(str.title(self))

    def capitalize(self) -> "Marked":
        return self._same_length(str.capitalize(self))

    def swapcase(self) -> "Marked":
        return self._same_length(str.swapcase(self))

    def casefold(self) -> "Marked":
        return self._same_length(str.casefold(self))

    def center(self, width: SupportsIndex, fillchar: str = " ") -> "Marked":
        return self._padded(str.center, width, fillchar)

    def ljust(self, width: SupportsIndex, fillchar: str = " ") -> "Marked":
        return self._padded(str.ljust, width, fillchar)

    def rjust(self, width: SupportsIndex, fillchar: str = " ") -> "Marked":
        return self._padded(str.rjust, width, fillchar)

    def zfill(self, width: SupportsIndex) -> "Marked":
        pay(width.__index__())
        return self.like(str.zfill(self, width))

    def _padded(self, pad: Callable[[str, SupportsIndex, str], str], width: SupportsIndex, fill: str) -> "Marked":
        pay(width.__index__())
        return self.like(pad(self, width, fill), fill)

    def __add__(self, other: Any) -> Any:
        return concat([self, other]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return concat([other, self]) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> "Marked":
        pay(len(self) * max(0, count.__index__()))
        return concat([self] * count.__index__()) if self.spans else Marked(str.__mul__(self, count), ())

    __rmul__ = __mul__


def _few(chars: str | None) -> str | None:
    if chars is not None and len(chars) > MANY:
        raise ValueError(f"{len(chars)} characters to strip; at most {MANY} are taken")
    return chars


def pay(characters: int) -> None:
    """Charge the rendering that runs, if one does, for characters that are about to be made."""
    if (account := ACCOUNT.get(None)) is not None:
        account.make(characters)


def spans_of(text: str) -> Spans:
    return text.spans if isinstance(text, Marked) else ()


def doubtful(value: Any) -> bool:
    """Whether text made of this value may hold input: it is marked, or something that may hold marked text."""
    if isinstance(value, str):
        return bool(spans_of(value))
    return not (value is None or isinstance(value, (bool, int, float)))


def shown(value: Any) -> str:
    """What a template prints for a value; of a container nobody can tell what in it is input."""
    if isinstance(value, str):
        return value
    if not isinstance(value, CONTAINERS):
        return str(value)
    if (account := ACCOUNT.get(None)) is not None:
        account.weigh(value, printed=True)
    return Marked(str(value))


def concat(parts: Iterable[str]) -> Marked:
    """Texts one after the other."""
    parts = list(parts)
    pay(sum(map(len, parts)))
    spans: list[tuple[int, int]] = []
    at = 0
    for part in parts:
        for start, end in spans_of(part):
            if spans and spans[-1][1] == at + start:
                spans[-1] = (spans[-1][0], at + end)
            else:
                spans.append((at + start, at + end))
        at += len(part)
    return Marked("".join(parts), tuple(spans))
