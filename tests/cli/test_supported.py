"""`llamay info -supported`: the tables that decide what is read, as text and as JSON."""

import json
from collections.abc import Callable

import pytest

from llamay.arch import BY_NAME
from llamay.quant import LAYOUTS
from llamay.tok.pretokenizers import PRETOKENIZERS

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_every_row_is_there(llamay: Run, capsys: Captured) -> None:
    assert llamay("info", "-supported", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    types = {row["type"]: row for row in found["types"]}
    assert set(types) == {type.name for type in LAYOUTS}
    assert types["IQ2_XXS"] == {
        "type": "IQ2_XXS", "number": 16, "elements": 256, "bytes": 66, "bits": 2.0625, "numpy": True, "wgsl": True,
    }  # fmt: skip
    rows = found["architectures"]
    assert sorted(name for row in rows for name in row["names"]) == sorted(BY_NAME)
    (gemma2,) = (row for row in rows if "gemma2" in row["names"])
    assert {"post norms", "sliding: x-", "window: 4096"} <= set(gemma2["differs"])
    (olmo2,) = (row for row in rows if "olmo2" in row["names"])
    (mpt,) = (row for row in rows if "mpt" in row["names"])
    assert "pre norms: no" in olmo2["differs"] and "learned positions" in mpt["refused"]
    assert {row["model"] for row in found["tokenizers"]} >= {"gpt2", "llama"}
    assert found["tokenizers"][0]["pre"] == sorted(PRETOKENIZERS)


def test_the_page(llamay: Run, capsys: Captured) -> None:
    assert llamay("info", "-supported") == 0
    page = capsys.readouterr().out.splitlines()
    titles = [line for line in page if line and not line.startswith(" ")]
    assert titles == ["types", "architectures", "tokenizers"]
    assert "  MXFP4    39      32 in 17 bytes    4.25           yes    yes" in page
    assert any(line.startswith("  llama, mistral, ") and line.endswith(" experts: maybe") for line in page)
