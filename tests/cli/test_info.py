"""`llamay info`: the page, the lists, JSON, and files it cannot run or trust."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llamay import gguf
from llamay.cli import terminal
from llamay.gguf import Typed, ValueType

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_the_page(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("info", str(tiny)) == 0
    page = capsys.readouterr().out
    for wanted in (
        str(tiny),
        "GGUF v3",
        "llama,",
        "heads ",
        "head dim",
        "context ",
        "rope base",
        "KV bytes",
        "tokenizer ",
    ):
        assert wanted in page
    assert "F16 " in page and "█" in page
    assert page.rstrip().splitlines()[-1].startswith("tensor audit ") and page.rstrip().endswith("none unread")


def test_json_holds_the_numbers(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("info", "-m", str(tiny), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    with gguf.open(tiny) as file:
        network = facts["network"]
        assert network["heads"] == file.metadata["llama.attention.head_count"]
        assert network["context"] == file.metadata["llama.context_length"]
        values = network["layers"] * network["kv_heads"] * network["head_dim"] * 2
        scales = 4 * network["layers"] * network["kv_heads"]  # one for each head of each token
        sizes = {"f32": values * 4, "f16": values * 2, "vq8": values * 5 // 2 + scales, "q8": values + 2 * scales}
        assert network["kv_bytes_a_token"] == sizes
        assert sum(row["tensors"] for row in facts["quantisation"]) == len(file.tensors) == facts["tensors"]
        assert sum(row["bytes"] for row in facts["quantisation"]) == sum(t.nbytes for t in file.tensors.values())
        assert facts["bytes"] == tiny.stat().st_size
        assert (facts["audit"]["read"], facts["audit"]["unread"]) == (len(file.tensors), [])


@pytest.mark.parametrize(
    ("name", "experts"),
    [("mixtral", "4 of that width, 2 for each token"), ("qwen2moe", "6 of that width, 2 for each token, and one of 96 that all use")],
)
def test_experts_are_told(name: str, experts: str, llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("info", str(tiny.with_name(f"{name}.f16.gguf"))) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("experts"))
    assert line.split(None, 1)[1] == experts


@pytest.mark.parametrize(
    ("name", "space", "bytes"),
    [
        ("mamba", "128 channels of 16 states each, convolution over 4 tokens", "19456 a context, however long; 67.6 kB a page of 16 tokens"),
        ("mamba2-g2", "128 channels in 8 heads in 2 groups of 16 states each, convolution over 4 tokens", "20992 a context"),
    ],
)  # fmt: skip
def test_states_are_told_in_place_of_heads(name: str, space: str, bytes: str, llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("info", str(tiny.with_name(f"{name}.f32.gguf"))) == 0
    page = capsys.readouterr().out
    rows = dict(line.split("  ", 1) for line in page.splitlines() if "  " in line)
    assert rows["state space"].strip() == space and rows["state bytes"].strip().startswith(bytes)
    assert not {"heads", "head dim", "KV bytes", "KV formats", "rope base"} & {word.strip() for word in rows}


def test_tensors_and_metadata_are_listed(llamay: Run, tiny: Path, capsys: Captured) -> None:
    assert llamay("info", str(tiny), "-tensors") == 0
    lines = capsys.readouterr().out.splitlines()
    with gguf.open(tiny) as file:
        assert [line.split()[0] for line in lines] == list(file.tensors)
        assert llamay("info", str(tiny), "-meta") == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(" = ")[0] for line in lines] == list(file.metadata)
        assert any(line.startswith("tokenizer.ggml.tokens = string[320] [") for line in lines)
        assert llamay("info", str(tiny), "-meta", "-json") == 0
        assert list(json.loads(capsys.readouterr().out)) == list(file.metadata)


def test_a_text_is_tokenized_line_by_line(llamay: Run, tiny: Path, tmp_path: Path, capsys: Captured) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("hello there\n\nübergroß\n".encode() + b"half \xc3")
    assert llamay("info", str(tiny), "-tokenize", str(text)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 + 2
    assert lines[0].split()[:3] == ["line", "1", "12"]
    assert "bytes a token" in lines[-2]
    assert llamay("info", str(tiny), "-tokenize", str(text), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == len(text.read_bytes())
    assert lines[-1] == f"round trip: {sum(row['round_trip'] for row in found['lines'])} of 4 lines, the whole text ok"


def made(path: Path, metadata: dict[str, Typed]) -> Path:
    gguf.write(path, metadata, [])
    return path


def test_a_file_llamay_cannot_run_is_still_described(llamay: Run, tmp_path: Path, capsys: Captured) -> None:
    path = made(
        tmp_path / "odd.gguf",
        {
            "general.architecture": Typed(ValueType.STRING, "odd"),
            "general.name": Typed(ValueType.STRING, "a\x1b[31mred\x1b[0m \u202ename"),
        },
    )
    assert llamay("info", str(path)) == 0
    page = capsys.readouterr().out
    assert "architecture 'odd' is not supported; supported are llama" in page
    assert "\x1b" not in page and "\u202e" not in page and "\\x1b[31mred" in page
    assert llamay("info", str(path), "-meta") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_no_model_file_is_an_error(llamay: Run, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("no model")
    assert llamay("info", str(path)) == 3
    assert llamay("info", str(tmp_path / "missing.gguf")) == 4
    assert llamay("info", "a", "-m", "b") == 2
    assert capsys.readouterr().out == ""


def test_bars_have_the_length_of_their_share() -> None:
    assert terminal.bar(1.0, 4) == "████"
    assert terminal.bar(0.5, 4) == "██"
    assert terminal.bar(0.0001, 4) == "▏"
    assert terminal.bar(0.0, 4) == ""


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    kept = "plain ü 漢 👨\u200d👩\u00a0x\u200f"
    assert terminal.plain(kept) == kept
    assert terminal.plain("a\u202eb\ud800") == "a\\u202eb\\ud800"
    assert terminal.plain("a\x1b]0;x\x07\x9b\n") == "a\\x1b]0;x\\x07\\x9b\\n"
    assert terminal.plain("a\n\tb\r", lines=True) == "a\n\tb\\r"
    assert terminal.count(134515008) == "134.5M"


def test_lines_fold_between_words_where_a_terminal_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "prompt 36 tokens in 491ms (73.3 tok/s) \u00b7 generated 55 in 819ms (67.2 tok/s) \u00b7 stop: end"
    stream = io.StringIO()
    assert terminal.folded(line, stream) == line  # a file keeps its line
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("COLUMNS", "80")
    first, second = terminal.folded(line, stream).split("\n")
    assert len(first) <= 80 and second.startswith("  ") and f"{first} {second.strip()}" == line
    monkeypatch.setenv("COLUMNS", "200")
    assert terminal.folded(line, stream) == line
