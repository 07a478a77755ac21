"""`llamay run -context`: an answer behind a saved context, from its pages or, where those are of no use, from its tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from llamay.kv import snapshots
from llamay.serve.contexts import turns
from llamay.serve.contexts.shelf import STATE
from llamay.serve.llama import Llama

Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]

MODELS = Path(__file__).parents[1] / "data" / "models"
TEXT = "hello there, old ferry"
SHORT = ("-n", "12", "-temp", "0")


@pytest.fixture
def ferry(home: Path, tiny: Path) -> Path:
    """The model that has a saved context `ferry`, which holds TEXT."""
    with Llama(tiny, device="numpy") as model:
        model.context(text=TEXT).snapshot("ferry")
    return tiny


def test_a_text_goes_on_behind_it(llamay: Run, ferry: Path, capsys: Captured) -> None:
    for text in ("", " of mine"):
        assert llamay("run", "-m", str(ferry), "-context", "ferry", "-p", text, *SHORT) == 0
        shown = capsys.readouterr()
        assert "'ferry': " in shown.err and "tokens restored as pages" in shown.err and "of them kept" in shown.err
        assert llamay("run", "-m", str(ferry), "-p", TEXT + text, *SHORT) == 0
        assert capsys.readouterr().out == shown.out
    with Llama(ferry, device="numpy") as model:
        assert model.restore("ferry").text == f"<s>{TEXT}"  # what was saved stays as it is


@pytest.mark.parametrize("name", ["gemma3.f16", "granite-4-h.f16", "lfm2.f16"])
def test_windows_and_states_are_restored_too(llamay: Run, home: Path, capsys: Captured, name: str) -> None:
    """Their pages lie in a group of their own where contexts are saved."""
    path = str(MODELS / f"{name}.gguf")
    with Llama(path, device="numpy") as model:
        model.context(text=TEXT).snapshot("ferry")
    assert llamay("run", "-m", path, "-context", "ferry", "-p", " of mine", *SHORT) == 0
    shown = capsys.readouterr()
    assert "tokens restored as pages" in shown.err
    assert llamay("run", "-m", path, "-p", f"{TEXT} of mine", *SHORT) == 0
    assert capsys.readouterr().out == shown.out


def test_a_question_goes_behind_the_last_answer(llamay: Run, home: Path, tiny: Path, capsys: Captured) -> None:
    asked = [{"role": "user", "content": "one"}]
    with Llama(tiny, device="numpy") as model:
        context = model.context(messages=asked)
        context.generate(temperature=0.0, max_tokens=4)
        context.snapshot("talk")
    assert llamay("run", str(tiny), "-context", "talk", "two", *SHORT) == 0
    asked_again = capsys.readouterr()
    assert "tokens restored as pages" in asked_again.err
    assert llamay("run", str(tiny), "-context", "talk", *SHORT) == 0  # nothing new: the answer goes on
    assert capsys.readouterr().out != asked_again.out


def test_messages_that_nobody_answered_are_a_conversation(llamay: Run, home: Path, tiny: Path, capsys: Captured) -> None:
    """As a server saves a context of messages; the template may join them with what is new."""
    said = [{"role": "user", "content": "one"}]
    with Llama(tiny, device="numpy") as model:
        whole = [*said, {"role": "user", "content": "two"}]
        want = [model.chat(messages, temperature=0.0, max_tokens=12).text for messages in (said, whole)]
        context = model.context(tokens=turns.opening(model._loaded.language, said).tokens)
        held, pages = context.tokens, context._pages
        with model.engine.call(lambda engine: pages.record(engine, model.folder, model.origin(engine), held)) as recording:
            recording.commit(snapshots.Label("open", state={STATE: said}))
    for words, text in zip(([], ["two"]), want, strict=True):
        assert llamay("run", str(tiny), "-context", "open", *words, *SHORT) == 0
        assert capsys.readouterr().out.rstrip("\n") == text.rstrip("\n")


def test_other_numerics_are_refused_or_computed_again(
    llamay: Run, ferry: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "-m", str(ferry), "-context", "ferry", "-p", " of mine", *SHORT)
    assert llamay(*words) == 0
    want = capsys.readouterr().out
    here = snapshots.origin_of
    monkeypatch.setattr(snapshots, "origin_of", lambda *given: replace(here(*given), numerics="elsewhere"))
    assert llamay(*words) == 9
    refused = capsys.readouterr()
    assert refused.out == "" and "elsewhere" in refused.err and "-recompute rebuilds it" in refused.err
    assert llamay(*words, "--recompute") == 0
    rebuilt = capsys.readouterr()
    assert rebuilt.out == want and "tokens recomputed: " in rebuilt.err and "elsewhere" in rebuilt.err


def test_a_damaged_page_is_told_and_its_tokens_computed_again(
    llamay: Run, home: Path, ferry: Path, capsys: Captured
) -> None:
    words = ("run", "-m", str(ferry), "-context", "ferry", "-p", " of mine", *SHORT)
    assert llamay(*words) == 0
    want = capsys.readouterr().out
    with Llama(ferry, device="numpy") as model:
        page = model.folder.page(model.folder.find("ferry").manifest.digests()[0])
    page.write_bytes(page.read_bytes()[:-1])
    assert llamay(*words) == 9
    assert str(page) in (refused := capsys.readouterr()).err and "-recompute rebuilds it" in refused.err and refused.out == ""
    assert llamay(*words, "-recompute") == 0
    rebuilt = capsys.readouterr()
    assert rebuilt.out == want and "tokens recomputed: " in rebuilt.err and str(page) in rebuilt.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-context", "lake", "-p", "x"], 9, "'lake'"),
        (["-recompute", "-p", "x"], 2, "name one with -context"),
        (["-context", "ferry", "-system", "be brief", "x"], 2, "give one of them"),
        (["-context", "ferry", "-p", "x", "-kv", "f16"], 9, "f16"),
    ],
)
def test_what_cannot_be_is_refused(
    llamay: Run, ferry: Path, capsys: Captured, words: list[str], code: int, message: str
) -> None:
    assert llamay("run", "-m", str(ferry), *words) == code
    shown = capsys.readouterr()
    assert message in shown.err and shown.out == ""
