"""`llamay embed` and `llamay rerank`."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from llamay import cli
from llamay.cli import embed, lines, rerank

ENCODERS = Path(__file__).parents[1] / "data" / "encoders"
MEAN, JUDGE = str(ENCODERS / "bert-mean.f16.gguf"), str(ENCODERS / "bert-rerank.f16.gguf")
NUMPY = ("-device", "numpy")


def test_a_vector_a_line(capsys: Any, tmp_path: Path) -> None:
    assert cli.main(["embed", MEAN, "a text", "another", *NUMPY]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(row) for row in rows] == [64, 64] and sum(value * value for value in rows[0]) == pytest.approx(1, abs=1e-6)
    (tmp_path / "texts").write_text("another\n\na text\n")
    assert cli.main(["embed", "-m", MEAN, "-f", str(tmp_path / "texts"), "-json", "-dimensions", "4", "-raw", *NUMPY]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(row) for row in found["vectors"]] == [4, 4] and found["tokens"] > 4 and found["model"] == "bert-mean"
    length = sum(value * value for value in found["vectors"][1]) ** 0.5
    assert found["vectors"][1][0] / length != pytest.approx(rows[0][0], abs=1e-6)


def test_the_best_first(capsys: Any) -> None:
    assert cli.main(["rerank", JUDGE, "which", "one", "two", "three", *NUMPY]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = [float(line.split()[0]) for line in lines]
    assert len(lines) == 3 and scores == sorted(scores, reverse=True)
    assert cli.main(["rerank", JUDGE, "which", "one", "two", "three", "-n", "1", "-json", *NUMPY]) == 0
    (best,) = json.loads(capsys.readouterr().out)["results"]
    assert best["document"] == lines[0].split()[1] and best["probability"] == pytest.approx(scores[0], abs=1e-6)


def test_lines_are_read_as_they_are_needed(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Of stdin that never ends what fits is embedded, and the line that no model takes is not read to its end."""
    monkeypatch.setattr(embed, "TOGETHER", 2)
    told = Endless(b"\xef\xbb\xbfa text\r\n \nanother\nthird\n")
    monkeypatch.setattr(lines.sys, "stdin", io.TextIOWrapper(io.BufferedReader(told)))
    assert cli.main(["embed", MEAN, "-f", "-", *NUMPY]) == 2
    shown, error = capsys.readouterr()
    assert len(shown.splitlines()) == 2 and "line 5 of stdin has more than 262,144 bytes" in error
    assert told.given < 1 << 20
    assert cli.main(["embed", MEAN, "a text", *NUMPY]) == 0
    assert capsys.readouterr().out == shown.splitlines()[0] + "\n"
    (tmp_path / "texts").write_text("a\nb\n" + "word " * 99 + "\n")
    assert cli.main(["embed", MEAN, "-f", str(tmp_path / "texts"), *NUMPY]) == 7
    assert "text 2 has " in capsys.readouterr().err
    assert cli.main(["embed", MEAN, "-f", str(tmp_path / "texts"), "-cut", "-json", *NUMPY]) == 0
    assert len(json.loads(capsys.readouterr().out)["vectors"]) == 3


class Endless(io.RawIOBase):
    """Some bytes, and after them one letter for ever."""

    def __init__(self, first: bytes) -> None:
        self.first, self.given = first, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        some = (self.first + b"x" * len(buffer))[: len(buffer)]
        self.first = self.first[len(some) :]
        buffer[: len(some)] = some
        self.given += len(some)
        return len(some)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rerank", JUDGE, " ", "a"], "the query is empty"),
        (["rerank", JUDGE, "query", "-f", os.devnull, *NUMPY], "nothing to rank: /dev/null has no line"),
        (["embed", MEAN, "-f", os.devnull, *NUMPY], "nothing to embed: /dev/null has no line"),
        (["embed", MEAN], "nothing to embed"),
        (["rerank", JUDGE, "query"], "nothing to rank"),
        (["rerank", JUDGE, "query", "a", "-n", "0"], "-n is 0"),
        (["rerank", MEAN, "query", "a", *NUMPY], "was not made to rank"),
        (["embed", JUDGE, "a", *NUMPY], "ranks documents and does not embed"),
        (["ppl", MEAN, "-f", MEAN, *NUMPY], "turns texts into vectors"),
    ],
)
def test_what_cannot_be(words: list[str], message: str, capsys: Any) -> None:
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_documents_of_a_file(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "texts").write_text("one\n\ntwo\n")
    words = ["rerank", JUDGE, "which", "three", "-f", str(tmp_path / "texts"), *NUMPY]
    assert cli.main(words) == 0
    assert sorted(line.split()[1] for line in capsys.readouterr().out.splitlines()) == ["one", "three", "two"]
    monkeypatch.setattr(rerank, "MOST", 5)
    assert cli.main(words) == 2
    assert "more than 5 characters of documents" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        (MEAN, ["positions     learned", "vector        64 values, the mean over all tokens", "tokenizer     WordPiece"]),
        (JUDGE, ["vector        64 values, of the first token; a head makes a score of it"]),
        (str(ENCODERS / "jina-bert-v2.f16.gguf"), ["positions     ALiBi"]),
        (str(ENCODERS / "nomic-bert.f16.gguf"), ["rope base     1000, 16 of 16 dimensions turn"]),
    ],
)
def test_what_info_tells(model: str, lines: list[str], capsys: Any) -> None:
    assert cli.main(["info", model]) == 0
    found = capsys.readouterr().out
    assert all(line in found for line in lines) and "KV bytes" not in found


def test_a_round_trip_of_tokens(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The  CAT, and a hat\n")
    assert cli.main(["info", MEAN, "-tokenize", str(tmp_path / "text")]) == 0
    assert "round trip: 1 of 1 lines, the whole text ok (its tokens: this tokenizer folds text)" in capsys.readouterr().out
