"""Types that are read quickly are the types that are read."""

import cffi
import cffi.cparser
import pytest

from llamay.tensor.webgpu.cdecl import quicken

HEADER = "".join(f"typedef struct s{number} {{ int a; t{number - 1} *next; }} t{number};\n" for number in range(1, 200))
TYPES = ["t7 *", "t150[]", "t3 *[4]", "struct s9 *", "uint32_t *", "char[]", "int(*)(t5 *, size_t)", "void *"]


def made() -> cffi.FFI:
    found = cffi.FFI()
    found.cdef("typedef int t0;\n" + HEADER)
    return found


def test_the_types_are_the_same_and_little_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ffi, plain = made(), made()
    quicken(ffi)
    parser, lengths = cffi.cparser._get_parser(), []

    class Heard:
        def parse(self, text: str) -> object:
            lengths.append(len(text))
            return parser.parse(text)

    monkeypatch.setattr(cffi.cparser, "_get_parser", Heard)
    for name in TYPES:
        assert ffi.getctype(name) == plain.getctype(name)
    quick, slow = lengths[::2], lengths[1::2]
    assert max(quick) < 500 < min(slow)
    assert ffi.sizeof("t9") == plain.sizeof("t9") and ffi.new("t9 *", {"a": 5}).a == 5
    assert ffi.typeof("t9").fields[1][1].type is ffi.typeof("t8 *")


def test_what_is_declared_later_is_known_and_what_is_not_is_refused() -> None:
    ffi = made()
    quicken(ffi)
    ffi.cdef("typedef t7 late;")
    assert ffi.typeof("late *") is ffi.typeof("t7 *")
    with pytest.raises(cffi.CDefError):
        ffi.typeof("nowhere *")


def test_what_is_built_otherwise_is_left_alone() -> None:
    other = type("Other", (), {"_parser": None})()
    quicken(other)
    quicken(object())
    assert other._parser is None
