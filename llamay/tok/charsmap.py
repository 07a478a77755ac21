"""The precompiled character map of SentencePiece: which characters of a text are replaced before it is cut.

The bytes are a length, a double array of 32-bit units (Darts-clone: each unit has a label, an offset to its children
and a leaf bit) that holds the keys, and the replacements, each ended by a zero.
"""

import re
from collections import defaultdict

import numpy as np

from llamay.errors import MalformedFile

LONGEST_KEY = 64  # bytes; real ones are some characters
LONGEST_REPLACEMENT = 256  # bytes
MOST_STEPS = 1 << 20  # bytes of all keys, those they begin with counted once


class Charsmap:
    """The keys and their replacements, unfolded into tables."""

    def __init__(self, raw: bytes) -> None:
        """MalformedFile where lengths, offsets or texts are impossible."""
        keys = _unfolded(raw)
        self._single = {ord(key): text for key, text in keys.items() if len(key) == 1}
        self._longer = {key: text for key, text in keys.items() if len(key) > 1}
        self._longest = max(map(len, self._longer), default=1)
        firsts = "".join(map(re.escape, sorted({key[0] for key in self._longer})))
        others = "".join(map(re.escape, sorted(set().union(*(key[1:] for key in self._longer)))))
        # where a longer key can begin, and all that it or one within can have of the text
        self._runs = re.compile(f"[{firsts}][{others}]+") if self._longer else None

    def replace(self, text: str) -> str:
        """The text with every key, the longest first, replaced."""
        if self._runs is None:
            return text.translate(self._single)
        parts, at = [], 0
        for run in self._runs.finditer(text):
            parts += [text[at : run.start()].translate(self._single), self._replaced(run.group())]
            at = run.end()
        return "".join([*parts, text[at:].translate(self._single)])

    def _replaced(self, run: str) -> str:
        """Character by character."""
        parts, at = [], 0
        while at < len(run):
            for length in range(min(self._longest, len(run) - at), 1, -1):
                if (found := self._longer.get(run[at : at + length])) is not None:
                    break
            else:
                length, found = 1, self._single.get(ord(run[at]), run[at])
            parts.append(found)
            at += length
        return "".join(parts)


def _unfolded(raw: bytes) -> dict[str, str]:
    """Key -> replacement."""
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size % 4 or size > len(raw) - 4:
        raise MalformedFile(
            f"tokenizer.ggml.precompiled_charsmap has {len(raw)} bytes and says that {size} of them are its keys; "
            f"a multiple of 4 that fits was expected"
        )
    units = np.frombuffer(raw, "<u4", size // 4, 4)
    texts = raw[4 + size :]
    labels = units & np.uint32(0x8000_00FF)
    offsets = ((units >> np.uint32(10)) << ((units & np.uint32(1 << 9)) >> np.uint32(6))).tolist()
    leaves = (units & np.uint32(1 << 8)).tolist()
    values = (units & np.uint32(0x7FFF_FFFF)).tolist()
    places = np.flatnonzero((labels > 0) & (labels < 256))
    children: dict[int, list[tuple[bytes, int]]] = defaultdict(list)  # where the children of a unit are -> which there are
    for place, label in zip(places.tolist(), labels[places].tolist(), strict=True):
        children[place ^ label].append((bytes([label]), place))
    table: dict[str, str] = {}
    known: dict[int, str] = {}
    waiting = [(b"", offsets[0])] if len(units) else []
    steps = 0
    while waiting:
        key, base = waiting.pop()
        below = children.get(base, ())  # which may be those of several keys that end alike
        steps += len(below)
        if below and (steps > MOST_STEPS or len(key) >= LONGEST_KEY):  # a map that turns in circles
            raise MalformedFile(
                f"tokenizer.ggml.precompiled_charsmap unfolds to keys of more than {LONGEST_KEY} bytes, "
                f"or more than {MOST_STEPS} bytes of keys"
            )
        for label, place in below:
            longer, next_base = key + label, place ^ offsets[place]
            if leaves[place]:
                start = values[next_base] if next_base < len(values) else -1
                if start not in known:
                    known[start] = _text(texts, start, longer)
                table[_decoded(longer)] = known[start]
            waiting.append((longer, next_base))
    return table


def _text(texts: bytes, start: int, key: bytes) -> str:
    end = texts.find(b"\0", start, start + LONGEST_REPLACEMENT) if 0 <= start < len(texts) else -1
    if end < 0:
        raise MalformedFile(
            f"tokenizer.ggml.precompiled_charsmap replaces {key!r} by the text at byte {start} of {len(texts)}, "
            f"where none of fewer than {LONGEST_REPLACEMENT} bytes is"
        )
    return _decoded(texts[start:end])


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedFile(f"tokenizer.ggml.precompiled_charsmap holds a text that is not UTF-8: {error}") from error
