"""The Python API on a tiny model: answers, streams, contexts that fork, rewind, are saved and come back."""

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamay
from llamay import Choice, Completion, Context, Llama, Stream
from llamay.errors import Closed, ContextFileError, ContextFull, ContextMismatch, NotInstalled, UsageError
from llamay.serve.events import Text

DATA = Path(__file__).parents[1] / "data" / "models"
TINY = DATA / "llama-gqa.f16.gguf"
TEXT = "The ferry leaves at seven, whatever the weather does."
QUIET = {"max_tokens": 12, "temperature": 0.0}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in (("HOME", ""), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


@pytest.fixture(params=["llama-gqa.f16", "gemma3.f16", "mamba.f32"])
def llama(request: pytest.FixtureRequest, home: Path) -> Iterator[Llama]:
    """One without and one with sliding windows, and one of states; every page must be accounted for in the end."""
    with Llama(DATA / f"{request.param}.gguf", device="numpy") as made:
        yield made
        gc.collect()
        made.engine.call(lambda scheduler: scheduler.cache.check_integrity())


@pytest.fixture
def plain(home: Path) -> Iterator[Llama]:
    with Llama(TINY, device="numpy") as made:
        yield made


def contexts(llama: Llama) -> int:
    return llama.engine.call(lambda scheduler: len(scheduler.cache.contexts))


def pages_taken(llama: Llama) -> int:
    return llama.engine.call(lambda scheduler: scheduler.cache.stats().counters.taken)


def test_importing_loads_nothing_until_it_is_asked_for() -> None:
    script = (
        "import sys, llamay; assert 'Llama' in dir(llamay); assert not {'numpy', 'wgpu', 'llamay.serve'} & set(sys.modules);"
        "llamay.Llama; assert 'numpy' in sys.modules and 'wgpu' not in sys.modules; print('lazy')"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "lazy\n"
    with pytest.raises(AttributeError, match="no attribute 'Lama'"):
        llamay.Lama  # noqa: B018


def test_an_answer(llama: Llama) -> None:
    found = llama.complete(TEXT, seed=7, max_tokens=20)
    assert isinstance(found, Completion) and isinstance(found.choices[0], Choice)
    assert (found.reason, len(found.tokens), found.choices[0].seed) == ("length", 20, 7)
    assert str(found) == found.text == found.choices[0].text
    assert found.timings.generated_tokens == 20
    assert llama.complete(TEXT, seed=7, max_tokens=20).tokens == found.tokens
    assert llama.complete(TEXT, seed=8, max_tokens=20).tokens != found.tokens
    drawn = llama.complete(TEXT, max_tokens=20)
    assert llama.complete(TEXT, seed=drawn.choices[0].seed, max_tokens=20).tokens == drawn.tokens


def test_a_stream_gives_the_same_text_in_pieces(llama: Llama, halt: Any) -> None:
    whole = llama.complete(TEXT, seed=3, max_tokens=40)
    stream = llama.complete(TEXT, seed=3, max_tokens=40, stream=True)
    assert isinstance(stream, Stream)
    pieces = list(stream)
    assert all(isinstance(piece, Text) and piece.text for piece in pieces)
    assert "".join(piece.text for piece in pieces) == whole.text == stream.completion.text
    held = halt(llama._loaded.executor)
    with llama.complete(TEXT, max_tokens=200, ignore_end=True, stream=True) as cut:
        next(iter(cut))  # and no more of it, which cancels
        held.go_on.set()
    assert cut.completion.reason == "cancel" and len(cut.completion.tokens) < 200


def test_a_token_is_handed_out_before_the_next_is_computed(llama: Llama, halt: Any) -> None:
    """NumPy computes when it is given a step, so that none is given ahead."""
    for already in (1, 2):
        llama.engine.call(lambda scheduler: scheduler.drain())
        held = halt(llama._loaded.executor, after=already)
        stream = llama.complete(TEXT, max_tokens=6, ignore_end=True, stream=True, prefix_cache=False)
        assert held.reached.wait(60) and stream.ticket.clock.generated == already
        held.go_on.set()
        assert len(stream.completion.tokens) == 6


def test_a_conversation_through_the_template(llama: Llama) -> None:
    messages = [{"role": "user", "content": "hello"}]
    found = llama.chat(messages, **QUIET)
    prompt = llama._loaded.language.chat(messages)
    assert found.tokens == llama.context(tokens=prompt.tokens).generate(stop=list(prompt.stops), **QUIET).tokens
    assert llama.chat(messages, stream=True, **QUIET).completion.tokens == found.tokens


def test_choices_and_the_best_of_them(llama: Llama) -> None:
    found = llama.complete(TEXT, n=4, seed=5, max_tokens=10)
    assert [choice.seed for choice in found.choices] == [5, 6, 7, 8]
    for choice in found.choices:
        assert choice.tokens == llama.complete(TEXT, seed=choice.seed, max_tokens=10).tokens
    best = llama.complete(TEXT, n=2, best_of=4, seed=5, max_tokens=10)
    prompt = llama._loaded.language.raw(TEXT).tokens
    scores = {}
    for choice in found.choices:
        rows = llama.context(tokens=[*prompt, *choice.tokens]).logits()[len(prompt) - 1 : -1].astype(np.float64)
        of_all = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
        scores[choice.index] = float(np.mean([row[token] for row, token in zip(of_all, choice.tokens, strict=True)]))
    order = sorted(scores, key=lambda index: -scores[index])
    assert [choice.index for choice in best.choices] == order[:2]
    assert [choice.logprob for choice in best.choices] == pytest.approx([scores[index] for index in order[:2]])


def test_logits_are_those_of_the_executor_at_every_position(llama: Llama) -> None:
    context = llama.context(text=TEXT)
    logits = context.logits()
    assert logits.shape == (len(context), len(llama.tokenizer)) and logits.dtype == np.float32
    greedy = context.generate(**QUIET)
    longer = llama.context(tokens=context.tokens).logits()
    assert (longer[: len(logits)] == logits).all()
    assert tuple(longer[len(logits) - 1 : -1].argmax(-1)) == greedy.tokens


def test_forks_share_pages_and_answer_as_if_alone(llama: Llama) -> None:
    context = llama.context(text=TEXT)
    want = [llama.complete(TEXT, seed=seed, max_tokens=8).tokens for seed in range(6)]
    before = pages_taken(llama)
    forks = context.fork(6)
    assert pages_taken(llama) == before
    assert [fork.generate(seed=seed, max_tokens=8).tokens for seed, fork in enumerate(forks)] == want
    assert context.tokens == llama.context(text=TEXT).tokens  # the original has not moved
    assert context.generate(seed=3, max_tokens=8).tokens == want[3]
    threads = [threading.Thread(target=fork.generate, kwargs={"max_tokens": 5, "ignore_end": True}) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {len(fork) for fork in forks} == {len(llama.context(text=TEXT)) + 13}


def test_a_context_goes_on_and_back(llama: Llama) -> None:
    context = llama.context(text=TEXT)
    length = len(context)
    first = context.generate(ignore_end=True, **QUIET)
    assert context.tokens[length:] == first.tokens and len(context) == length + 12
    second = context.append(text=" And").generate(ignore_end=True, **QUIET)
    whole = llama.context(tokens=context.tokens[:-12]).generate(ignore_end=True, **QUIET)
    assert second.tokens == whole.tokens
    assert context.rewind(length).generate(ignore_end=True, **QUIET).tokens == first.tokens
    assert context.rewind(5).append(text=llama.tokenizer.text(context.tokens[5:])).tokens[:5] == context.tokens[:5]
    assert len(context.rewind(0)) == 0
    several = context.append(text=TEXT).generate(n=3, **QUIET)
    assert len(several.choices) == 3 and context.text == llama.context(tokens=context.tokens).text
    for n in (-1, 10_000):
        with pytest.raises(UsageError, match="cannot go back to"):
            context.rewind(n)


def test_a_rewind_past_a_freed_window_is_computed_again(llama: Llama) -> None:
    context = llama.context(text=TEXT * 2)
    tokens = context.tokens
    for keep in (len(tokens) - 40, 20):
        again = context.rewind(keep).append(tokens=tokens[keep:])
        assert again.generate(**QUIET).tokens == llama.context(tokens=tokens).generate(**QUIET).tokens
        context.rewind(len(tokens))


def test_a_model_whose_layers_all_slide_is_saved_and_rewound(home: Path) -> None:
    with Llama(DATA / "phi3-swa.f16.gguf", device="numpy") as llama:
        context = llama.context(text=TEXT)
        tokens = context.tokens
        want = context.fork()[0].generate(**QUIET).tokens
        context.snapshot("slides")
        assert llama.restore("slides").generate(**QUIET).tokens == want
        assert context.rewind(10).append(tokens=tokens[10:]).generate(**QUIET).tokens == want


def test_a_saved_context_comes_back(llama: Llama) -> None:
    context = llama.context(text=TEXT)
    want = context.fork()[0].generate(seed=4, max_tokens=10).tokens
    assert context.snapshot("ferry", tags=["test"]) == "ferry"
    restored = llama.restore("ferry")
    assert restored.tokens == context.tokens
    assert context.note == "" and restored.note.endswith("tokens restored as pages")
    assert restored.generate(seed=4, max_tokens=10).tokens == want
    windowed = llama.engine.call(lambda scheduler: len(scheduler.cache.groups) > 1)
    if windowed:  # what its first tokens saw last is not in the file
        with pytest.raises(ContextMismatch, match="window of the first 10 tokens"):
            llama.restore("ferry", tokens=10)
    part = llama.restore("ferry", tokens=10, recompute=windowed)
    assert part.tokens == context.tokens[:10]
    assert part.note.startswith("10 tokens re" + ("computed" if windowed else "stored"))
    part.append(tokens=context.tokens[10:])
    assert part.generate(seed=4, max_tokens=10).tokens == want
    assert part.restore("ferry").tokens == context.tokens
    assert llama.folder.find("ferry").manifest.tokens == context.tokens
    with pytest.raises(UsageError, match="ferry"):
        context.snapshot("ferry", replace=False)
    held = context.tokens
    with pytest.raises((UsageError, ContextFileError)):
        context.restore("nowhere")
    assert context.tokens == held and context.generate(seed=4, max_tokens=10).tokens == want
    assert context.snapshot()  # a name is made up


def test_a_saved_context_whose_page_is_damaged_is_computed_again(llama: Llama) -> None:
    context = llama.context(text=TEXT)
    want = context.fork()[0].generate(seed=4, max_tokens=10).tokens
    context.snapshot("holed")
    for page in llama.folder.find("holed").manifest.digests():
        llama.folder.page(page).write_bytes(b"")
    with pytest.raises(ContextFileError, match="-recompute"):
        llama.restore("holed")
    again = llama.restore("holed", recompute=True)
    assert again.tokens == context.tokens and f"{len(again.tokens)} tokens recomputed: " in again.note
    assert again.generate(seed=4, max_tokens=10).tokens == want


@pytest.mark.parametrize("llama", ["gemma3.f16"], indirect=True)
def test_a_saved_context_comes_back_in_another_process(llama: Llama, home: Path) -> None:
    context = llama.context(text=TEXT)
    want = context.fork()[0].generate(seed=4, max_tokens=10).tokens
    context.snapshot("ferry")
    script = (
        f"import llamay; m = llamay.Llama({str(llama.path)!r}, device='numpy'); c = m.restore('ferry');"
        "print(c.generate(seed=4, max_tokens=10).tokens); m.close()"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out == f"{want}\n"


def test_contexts_give_their_pages_back(plain: Llama) -> None:
    context = plain.context(text=TEXT)
    forks = context.fork(5)
    assert contexts(plain) == 6
    forks.pop().close()
    assert contexts(plain) == 5
    del forks
    gc.collect()
    assert contexts(plain) == 1
    with context:
        context.generate(**QUIET)
    context.close()
    assert contexts(plain) == 0
    with pytest.raises(UsageError, match="closed"):
        context.generate()


def test_a_stream_that_is_left_is_over_before_the_context_goes_on(plain: Llama, halt: Any) -> None:
    context = plain.context(text=TEXT)
    held = halt(plain._loaded.executor)
    stream = context.generate(max_tokens=150, ignore_end=True, stream=True)
    with pytest.raises(UsageError, match="finish or close that first"):
        context.fork()
    for _ in stream:
        break
    held.go_on.set()
    cut = len(context)
    assert len(plain.context(text=TEXT)) < cut < len(plain.context(text=TEXT)) + 150
    assert context.tokens[len(plain.context(text=TEXT)) :] == stream.completion.tokens
    rest = context.generate(**QUIET)
    assert rest.tokens == plain.context(tokens=context.tokens[:-12]).generate(**QUIET).tokens


def test_a_context_outlives_its_pages(plain: Llama) -> None:
    """The model is given back and loaded again: the tokens are computed anew."""
    context = plain.context(text=TEXT)
    want = context.fork()[0].generate(**QUIET).tokens
    resident = plain.engine._residents[""]
    done = threading.Event()
    plain.engine.post(lambda: (resident.unload(Closed("for the test")), done.set()))
    assert done.wait(60)
    assert context.generate(**QUIET).tokens == want
    assert context.fork()[0].tokens == context.tokens


def test_what_cannot_be_done_is_said(plain: Llama) -> None:
    with pytest.raises(UsageError, match="no option 'max_token'; did you mean max_tokens"):
        plain.complete(TEXT, max_token=5)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="best_of is 2 and n 3"):
        plain.complete(TEXT, n=3, best_of=2)
    with pytest.raises(UsageError, match="n is 0; it may be 1 or more"):
        plain.complete(TEXT, n=0)
    with pytest.raises(UsageError, match="a text to complete is a int; expected a str"):
        plain.complete(3)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="a stop string is empty"):
        plain.complete(TEXT, stop="")
    with pytest.raises(UsageError, match="temperature is -1"):
        plain.complete(TEXT, temperature=-1.0)
    with pytest.raises(UsageError, match="one of text, tokens and messages"):
        plain.context(text="a", tokens=[1])
    with pytest.raises(UsageError, match="either text or tokens"):
        plain.context().append()
    with pytest.raises(UsageError, match="nothing to continue"):
        plain.context().generate()
    with pytest.raises(ContextFull):
        plain.complete(TEXT * 20)
    context = plain.context(text=TEXT)
    with pytest.raises(ContextFull):
        context.append(text=TEXT * 20)
    assert context.tokens == plain.context(text=TEXT).tokens
    with pytest.raises(NotInstalled, match=r"nothing\.gguf"):
        Llama("nothing.gguf")
    plain.close()
    with pytest.raises(Closed):
        plain.complete(TEXT)


def test_options_reach_the_sampling(plain: Llama) -> None:
    biased = plain.complete(TEXT, max_tokens=3, logit_bias={65: 100.0})
    assert biased.tokens == (65, 65, 65)
    assert plain.complete(TEXT, temperature=0.0, max_tokens=5).tokens == plain.complete(TEXT, top_k=1, max_tokens=5).tokens
    stop = plain.complete(TEXT, temperature=0.0, max_tokens=30, ignore_end=True).text
    cut = plain.complete(TEXT, temperature=0.0, max_tokens=30, ignore_end=True, stop=stop[5:7])
    assert (cut.text, cut.reason, cut.choices[0].stop) == (stop[: stop.index(stop[5:7])], "stop", stop[5:7])


def test_what_it_tells_of_itself(plain: Llama) -> None:
    assert plain.device == "numpy" and plain.context_size == 256
    assert "numpy" in plain.describe() and plain.name in plain.describe()
    assert plain.stats().models[0].device == "numpy"
    assert isinstance(plain.context(), Context) and repr(plain.context(text="a")) == "<Context of 2 tokens>"
