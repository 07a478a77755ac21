"""`llamay context` as a person types it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llamay.kv import Cache
from llamay.kv.snapshots import Folder, Label, origin_of, save

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(home: Path) -> Folder:
    """Two saved contexts that share 32 tokens: `sea` and `hill`."""
    from llamay import gguf
    from llamay.arch import describe
    from llamay.model import bind
    from llamay.tensor.numpy import NumpyExecutor

    file = gguf.open(Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf")
    executor = NumpyExecutor(bind(file, describe(file)).program, 16)
    cache = Cache(16)
    made = Folder(home / ".llamay" / "contexts")
    noise = np.random.default_rng(1).integers(0, 256, (16, executor.page_bytes(0)), np.uint8)
    executor.write_pages(0, range(16), noise)
    origin = origin_of(executor, cache, "tiny\x1b[31m", "sha256:" + "1" * 64)
    stem = cache.allocate([7] * 32)
    for name, tokens, text in (("sea", [72, 105], "same line\nthe sea\x07"), ("hill", [104], "same line\nthe hill")):
        (context,) = cache.fork(stem)
        cache.extend(context, len(tokens))
        cache.commit(context, tokens)
        save(made, context, executor, origin, Label(name, tags=(name[0],), text=text, state={"sampling": {}}))
    return made


def test_list(llamay: Run, folder: Folder, capsys: Captured) -> None:
    assert llamay("context", "list") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "TOKENS", "SIZE", "OWN", "SAVED", "MODEL", "TAGS"]
    assert [row.split()[:2] for row in rows] == [["hill", "33"], ["sea", "34"]]
    assert all("\x1b" not in row and "tiny\\x1b[31m" in row and "just now" in row for row in rows)
    assert llamay("context", "list", "-tag", "s", "-json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["tokens"], row["held"], row["pages"], row["tags"]) == ("sea", 34, 34, 3, ["s"])
    assert 0 < row["own_bytes"] < row["bytes"]
    broken = next(folder.saved.iterdir())
    broken.write_bytes(b"no")
    assert llamay("context", "list", "-json") == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)) == 1 and f"{broken.name} is broken" in shown.err


def test_an_empty_list(llamay: Run, capsys: Captured) -> None:
    assert llamay("context", "list") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 and "nothing is saved yet" in shown.err


def test_a_tag_that_nothing_has(llamay: Run, folder: Folder, capsys: Captured) -> None:
    assert llamay("context", "list", "-tag", "zz") == 0
    assert "none of the 2 saved has the tag 'zz'" in capsys.readouterr().err


def test_show(llamay: Run, folder: Folder, capsys: Captured) -> None:
    assert llamay("context", "show", "sea", "-check") == 0
    page = capsys.readouterr().out
    for wanted in ("34, 34 of them in pages", "all sound", "sha256:111", "numpy-float32", "kv f32", "sampling", "same line"):
        assert wanted in page
    assert "\x1b" not in page and "\x07" not in page
    assert llamay("context", "show", "sea", "-text") == 0
    assert capsys.readouterr().out == "same line\nthe sea\x07\n"
    assert llamay("context", "show", "-json", "hill") == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] == [7] * 32 + [104]
    page = next(folder.pages.iterdir())
    page.write_bytes(page.read_bytes()[:-1])
    codes = [llamay("context", "show", name, "-check") for name in ("sea", "hill")]
    assert 9 in codes and "is cut" in capsys.readouterr().err


def test_diff(llamay: Run, folder: Folder, tiny: Path, capsys: Captured) -> None:
    assert llamay("context", "diff", "sea", "hill") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "sea and hill begin with the same 32 tokens, then part: 2 and 1 follow",
        "2 pages of 3 and 3 are the same",
        "--- sea",
        "the sea\\x07",
        "--- hill",
        "the hill",
    ]
    assert llamay("context", "diff", "sea", "hill", "-json", "-m", str(tiny)) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["common_tokens"], found["rest"], found["shared_pages"]) == (32, [[72, 105], [104]], 2)
    assert all(found["texts"]) and found["texts"][0] != found["texts"][1]
    assert llamay("context", "diff", "sea", "sea") == 0
    assert capsys.readouterr().out.startswith("sea and sea have the same 34 tokens\n")


def test_diff_without_texts_shows_tokens(llamay: Run, folder: Folder, capsys: Captured, monkeypatch) -> None:
    from msgspec.structs import replace

    found = folder.find
    monkeypatch.setattr(Folder, "find", lambda self, name: type(found(name))(replace(found(name).manifest, text=""), 0))
    assert llamay("context", "diff", "sea", "hill") == 0
    assert "--- sea\ntokens 72 105\n--- hill\ntokens 104" in capsys.readouterr().out


def test_rm(llamay: Run, folder: Folder, capsys: Captured) -> None:
    assert llamay("context", "rm") == 2
    assert llamay("context", "rm", "lake") == 9
    assert "'lake'" in capsys.readouterr().err
    (folder.pages / ("0" * 64)).write_bytes(bytes(100))
    assert llamay("context", "rm", "-unused") == 0
    assert "100 B freed" in capsys.readouterr().err
    assert llamay("context", "rm", "sea", "hill") == 0
    assert capsys.readouterr().err.count("removed") == 2
    assert not any(folder.pages.iterdir()) and not any(folder.saved.iterdir())


def test_export_and_import(llamay: Run, folder: Folder, home: Path, capsys: Captured, monkeypatch) -> None:
    file = str(home / "sea.context")
    assert llamay("context", "export", "sea", file) == 0
    assert f"wrote sea to {file}" in capsys.readouterr().err
    assert llamay("context", "import", file) == 2
    assert "already" in capsys.readouterr().err
    assert llamay("context", "import", file, "-name", "ocean") == 0
    assert "ocean is saved: 34 tokens" in capsys.readouterr().err
    monkeypatch.setenv("LLAMAY_CONTEXTS", str(home / "other"))
    assert llamay("context", "import", file) == 0
    assert llamay("context", "list", "-json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["sea"]
    Path(file).write_bytes(Path(file).read_bytes()[:-1])
    assert llamay("context", "import", file, "-name", "b") == 9


@pytest.mark.parametrize("words", [["show"], ["list", "x"], ["diff", "a"], ["export", "a"], ["import"], ["fly"], []])
def test_wrong_usage(words: list[str], llamay: Run, capsys: Captured) -> None:
    assert llamay("context", *words) == 2
    assert capsys.readouterr().err.startswith("llamay context: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "show takes NAME and was given nothing"),
        (["diff", "a"], "diff takes NAME NAME and was given 'a'"),
        (["list", "a"], "list takes no names and was given 'a'"),
    ],
)
def test_what_an_action_takes_is_told(llamay: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert llamay("context", *words) == 2
    assert says in capsys.readouterr().err
