"""The shelf: contexts by id, what goes first, and that nothing of a parent changes."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llamay import settings
from llamay.errors import ContextBusy, ContextLost, ContextMismatch, NoSuchContext, ShelfFull, UsageError
from llamay.serve.contexts.kept import Kept
from llamay.serve.contexts.shelf import Shelf
from llamay.serve.engine import Bounds
from llamay.serve.events import Done
from llamay.serve.models import Models, Served
from llamay.serve.options import Options

MODELS = Path(__file__).parents[1] / "data" / "models"
TINY = MODELS / "llama-gqa.f16.gguf"
WINDOWED = MODELS / "gemma3.f16.gguf"
GREEDY: Options = {"max_tokens": 8, "temperature": 0.0, "ignore_end": True}
SEEDED: Options = {"max_tokens": 8, "temperature": 0.9, "seed": 7, "ignore_end": True}


class Desk:
    """A shelf with its models."""

    def __init__(self, path: Path, folder: Path, most: int, bounds: Bounds | None, **given: Any) -> None:
        in_force = settings.load({"backend": "numpy", "models": folder / "models", "contexts": folder / "contexts", **given})
        self.models = Models(in_force, bounds, str(path))
        self.shelf = Shelf(self.models, most)

    @property
    def served(self) -> Served:
        return self.models.default

    def make(self, tokens: list[int], **more: Any) -> Kept:
        kept, ticket = self.shelf.grow(self.served, tokens, {"max_tokens": 0}, **more)
        ticket.result()
        return kept

    def child(self, parent: Kept, new: list[int], options: Options = GREEDY) -> tuple[Kept, Done]:
        kept, ticket = self.shelf.grow(self.served, [*parent.tokens, *new], options, parent=parent)
        return kept, ticket.result()

    def answer(self, tokens: list[int], options: Options = GREEDY) -> list[int]:
        """What a request without contexts and without what is known comes to."""
        asked: Options = {**options, "prefix_cache": False}
        return list(self.models.ask(self.served, tuple(tokens), asked).result().choices[0].tokens)

    def integrity(self) -> None:
        self.models.engine.call(lambda scheduler: scheduler.cache.check_integrity(), self.served.name)


def numbers(seed: int, count: int) -> list[int]:
    """Tokens that no other seed gives."""
    return [3 + (seed * 7919 + at * 31 + at * at * seed) % 290 for at in range(count)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(most: int = 8, path: Path = TINY, bounds: Bounds | None = None, **given: Any) -> Desk:
        made.append(Desk(path, tmp_path, most, bounds, **given))
        return made[-1]

    yield make
    for one in made:
        one.models.close()


@pytest.mark.parametrize("path", [TINY, WINDOWED], ids=["llama", "gemma3"])
@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_forks_answer_as_the_original_bit_for_bit(desk, path: Path, options: Options) -> None:
    at = desk(path=path)
    parent = at.make(numbers(1, 50))
    before = at.shelf.told([parent])
    new = numbers(2, 5)
    expected = at.answer([*parent.tokens, *new], options)
    for fork in [parent, *at.shelf.fork(parent, 2)]:
        child, done = at.child(fork, new, options)
        assert list(done.choices[0].tokens) == expected
        assert list(child.tokens) == [*numbers(1, 50), *new, *expected]
        assert (child.parent, child.fork_point, child.busy) == (fork.id, 50, False)
        assert done.timings.cached_tokens == 49
    after = at.shelf.told([parent])[0]
    assert (after.tokens, after.own + after.shared) == (50, before[0].own + before[0].shared)
    at.integrity()


def test_a_child_goes_on_and_on_without_computing_anything_again(desk) -> None:
    at = desk()
    kept = at.make(numbers(1, 20))
    for turn in range(3):
        held = list(kept.tokens)
        kept, done = at.child(kept, numbers(10 + turn, 4))
        assert done.timings.cached_tokens == len(held) - 1
        assert list(kept.tokens[: len(held)]) == held


def test_eight_forks_share_their_pages(desk) -> None:
    at = desk(most=16)
    parent = at.make(numbers(1, 70))
    forks = at.shelf.fork(parent, 8)
    assert len({one.id for one in forks}) == 8
    for told in at.shelf.told(forks):
        assert (told.own, told.shared, told.tokens, told.parent, told.fork_point) == (0, 5, 70, parent.id, 70)
        assert not told.pinned
    at.integrity()


def test_the_least_recently_used_goes_and_pinned_ones_stay(desk) -> None:
    at = desk(most=3)
    pinned = at.make(numbers(1, 5), pinned=True)
    first, second = at.make(numbers(2, 5)), at.make(numbers(3, 5))
    assert at.shelf.find(first.id) is first  # a use
    third = at.make(numbers(4, 5))
    with pytest.raises(ContextLost, match="3 are kept, -max-contexts"):
        at.shelf.find(second.id)
    assert at.shelf.all() == [pinned, first, third]
    at.make(numbers(5, 5), pinned=True)
    at.make(numbers(6, 5), pinned=True)
    with pytest.raises(ShelfFull, match="3 of 3 contexts are pinned"):
        at.make(numbers(7, 5))
    with pytest.raises(ShelfFull):
        at.shelf.fork(pinned, 1)
    with pytest.raises(UsageError, match="4 forks were asked for; 1 to 3"):
        at.shelf.fork(pinned, 4)
    at.shelf.delete(pinned)
    at.make(numbers(7, 5))
    at.integrity()


def test_what_is_given_up_leaves_no_page(desk) -> None:
    at = desk(most=4)
    for n in range(12):
        at.child(at.make(numbers(n, 20)), numbers(n + 50, 3))
    at.integrity()
    count = at.models.engine.call(lambda scheduler: len(scheduler.cache.contexts), at.served.name)
    assert count == 4
    for kept in at.shelf.all():
        at.shelf.delete(kept)
    with pytest.raises(ContextLost):
        at.shelf.find(kept.id)
    assert at.models.engine.call(lambda scheduler: len(scheduler.cache.contexts), at.served.name) == 0


def test_many_contexts_on_a_tiny_pool_refuse_nobody(desk) -> None:
    """Pages for one context of 128 tokens; twelve of 60 are kept, and all of them answer right."""
    at = desk(most=12, context=128, kv_mem="0.1M")
    kept = [at.make(numbers(n, 60)) for n in range(12)]
    pages = [told.own + told.shared for told in at.shelf.told(kept)]
    assert 0 in pages and max(pages) > 0
    for n, one in enumerate(kept):
        child, done = at.child(one, numbers(n + 20, 3))
        assert list(done.choices[0].tokens) == at.answer([*numbers(n, 60), *numbers(n + 20, 3)])
        assert len(one.tokens) == 60
        at.shelf.delete(child)
        at.integrity()
    assert at.answer(numbers(99, 100)), "requests without contexts are answered too"


@pytest.mark.parametrize("path", [TINY, WINDOWED], ids=["llama", "gemma3"])
@pytest.mark.parametrize("to", [0, 1, 16, 33, 60])
def test_rewinding(desk, path: Path, to: int) -> None:
    at = desk(path=path)
    kept = at.make(numbers(1, 60), messages=[{"role": "user", "content": "x"}])
    fork = at.shelf.fork(kept)[0]
    at.shelf.rewind(kept, to)
    assert list(kept.tokens) == numbers(1, 60)[:to]
    assert kept.messages == {0: (), 60: ({"role": "user", "content": "x"},)}.get(to)
    _, done = at.child(kept, numbers(2, 4))
    assert list(done.choices[0].tokens) == at.answer([*numbers(1, 60)[:to], *numbers(2, 4)])
    assert list(at.child(fork, numbers(3, 2))[1].choices[0].tokens) == at.answer([*numbers(1, 60), *numbers(3, 2)])
    at.integrity()


def test_rewinding_past_the_end_is_refused(desk) -> None:
    at = desk()
    kept = at.make(numbers(1, 10))
    for to in (-1, 11):
        with pytest.raises(UsageError, match=f"has 10 tokens; it can go back to 0 to 10, not {to}"):
            at.shelf.rewind(kept, to)
    assert len(kept.tokens) == 10


@pytest.mark.parametrize("path", [TINY, WINDOWED], ids=["llama", "gemma3"])
def test_saving_and_restoring(desk, path: Path) -> None:
    at = desk(path=path)
    said = [{"role": "user", "content": "the sea"}]
    kept = at.make(numbers(1, 50), messages=said, name="sea")
    expected = at.answer([*numbers(1, 50), *numbers(2, 3)])
    saved = at.shelf.snapshot(kept, "the sea", ["notes"])
    assert (saved.name, saved.manifest.tags, len(saved.manifest.tokens)) == ("the sea", ("notes",), 50)
    with pytest.raises(UsageError, match="saved as 'the sea' already"):
        at.shelf.snapshot(kept, "the sea")
    at.shelf.snapshot(kept, "the sea", replace=True)
    whole, ticket, note = at.shelf.restore(at.served, "the sea")
    assert ticket is None and note == "49 tokens restored as pages"
    assert (whole.tokens, whole.messages, whole.name) == (kept.tokens, tuple(said), "the sea")
    assert list(at.child(whole, numbers(2, 3))[1].choices[0].tokens) == expected
    part, ticket, _ = at.shelf.restore(at.served, "the sea", tokens=20, name="beach", recompute=True)
    if ticket is not None:
        ticket.result()
    assert (list(part.tokens), part.messages, part.name) == (numbers(1, 50)[:20], None, "beach")
    with pytest.raises(NoSuchContext):
        at.shelf.restore(at.served, "the land")
    at.integrity()


def test_a_saved_context_of_another_model_is_refused(desk) -> None:
    at, other = desk(), desk(path=MODELS / "llama-mha-bias.f16.gguf")
    at.shelf.snapshot(at.make(numbers(1, 20)), "mine")
    with pytest.raises(ContextMismatch, match="weights"):
        other.shelf.restore(other.served, "mine")
    assert other.shelf.all() == []


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", "a\\b", ".hidden", "-x", "a\nb", " ", "x" * 200])
def test_names_that_could_be_paths_are_refused(desk, name: str) -> None:
    at = desk()
    kept = at.make(numbers(1, 5))
    for ask in (
        lambda: at.shelf.grow(at.served, [5, 6], {"max_tokens": 0}, name=name),
        lambda: at.shelf.snapshot(kept, name),
        lambda: at.shelf.restore(at.served, name),
    ):
        with pytest.raises(UsageError, match="name is"):
            ask()
    assert at.shelf.all() == [kept]


def test_where_two_part(desk) -> None:
    at = desk()
    left = at.make(numbers(1, 40))
    right, _ = at.child(left, numbers(2, 3))
    other = at.make([*numbers(1, 20), *numbers(3, 20)])
    found = at.shelf.diff(left, right)
    assert (found.common, found.tokens, found.rest[0], found.shared) == (40, (40, 51), (), 2)
    found = at.shelf.diff(left, other)
    assert (found.common, found.rest) == (20, (tuple(numbers(1, 40)[20:]), tuple(numbers(3, 20))))
    text = at.models.language(at.served).tokenizer.text
    assert found.texts[0].endswith(text(numbers(1, 40)[20:], special=True, continues=True))
    assert at.shelf.nearest(at.served, [*numbers(1, 30), 4, 4]) in ((left, 30), (right, 30))
    assert at.shelf.nearest(at.served, [299, 299]) is None


def test_under_way_it_cannot_be_used_and_cancelled_it_holds_what_there_is(desk, halt) -> None:
    at = desk()
    parent = at.make(numbers(1, 20))
    held = halt.by_step(at.models.engine, at.models.load(at.served).executor)
    child, ticket = at.shelf.grow(at.served, [*parent.tokens, 5], {**GREEDY, "max_tokens": 200}, parent=parent)
    assert at.shelf.find(child.id) is child and child.busy
    for use in (
        lambda: at.shelf.fork(child), lambda: at.shelf.rewind(child, 1), lambda: at.shelf.delete(child),
        lambda: at.shelf.snapshot(child, "x"),
    ):  # fmt: skip
        with pytest.raises(ContextBusy, match="still being made"):
            use()
    until(lambda: ticket.clock.generated)
    ticket.cancel()
    held.go_on.set()
    done = ticket.result()
    assert not child.busy
    assert list(child.tokens) == [*numbers(1, 20), 5, *done.choices[0].tokens]
    again, _ = at.child(child, [7])
    assert list(again.tokens[:-8]) == [*child.tokens, 7]
    at.integrity()


def test_one_that_failed_is_gone(desk) -> None:
    at = desk(context=64)
    parent = at.make(numbers(1, 20))
    child, ticket = at.shelf.grow(at.served, numbers(1, 80), GREEDY, parent=parent)
    with pytest.raises(Exception, match="80 tokens"):
        ticket.result()
    with pytest.raises(ContextLost):
        at.shelf.find(child.id)
    with pytest.raises(UsageError, match="continued by one choice"):
        at.shelf.grow(at.served, numbers(1, 20), {**GREEDY, "n": 3}, parent=parent)
    assert at.shelf.all() == [parent]


def loaded(at: Desk) -> bool:
    return bool(at.models.engine.stats().models)


def until(so: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.06)  # statistics are good for a moment


def test_only_pinned_contexts_keep_a_model_loaded(desk) -> None:
    at = desk(bounds=Bounds(keep_alive=0.05))
    kept = at.make(numbers(1, 30))
    until(lambda: not loaded(at))
    told = at.shelf.told([kept])[0]
    assert (told.tokens, told.own, told.shared) == (30, 0, 0)
    assert not loaded(at), "looking loads nothing"
    (fork,) = at.shelf.fork(kept)
    at.shelf.rewind(fork, 25)
    assert not loaded(at)
    assert list(at.child(fork, [9])[1].choices[0].tokens) == at.answer([*numbers(1, 25), 9])
    pinned = at.make(numbers(2, 30), pinned=True)
    time.sleep(0.3)
    assert loaded(at)
    assert at.shelf.told([pinned])[0].own + at.shelf.told([pinned])[0].shared == 2
    at.shelf.delete(pinned)
    until(lambda: not loaded(at))


def test_threads_that_do_everything_at_once(desk) -> None:
    """On pages for one context: nothing fails but by name, no answer changes, and every page is accounted for."""
    at = desk(most=6, context=128, kv_mem="0.1M")
    answers: list[tuple[list[int], list[int]]] = []
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        mine = [at.make(numbers(number, 20 + number))]
        for _ in range(12):
            kept = rng.choice(mine)
            try:
                match rng.randrange(6):
                    case 0:
                        mine.append(at.make(numbers(rng.randrange(99), rng.randrange(1, 70))))
                    case 1:
                        mine += at.shelf.fork(kept, 2)
                    case 2:
                        at.shelf.rewind(kept, rng.randrange(1, len(kept.tokens) + 1))
                    case 3:
                        at.shelf.delete(at.shelf.find(kept.id))
                    case _:
                        prompt = [*kept.tokens[:90], *numbers(rng.randrange(99), 3)]
                        child, ticket = at.shelf.grow(at.served, prompt, GREEDY, parent=kept)
                        mine.append(child)
                        if rng.random() < 0.3:
                            ticket.cancel()
                        done = ticket.result()
                        if done.choices:
                            answers.append((prompt, list(done.choices[0].tokens)))
            except (ContextLost, ContextBusy):
                continue
            except BaseException as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    at.integrity()
    held = at.models.engine.call(lambda scheduler: len(scheduler.cache.contexts), at.served.name)
    assert held <= len(at.shelf.all()) <= 6
    assert len(answers) > 10
    for prompt, given in answers[::5]:
        assert at.answer(prompt)[: len(given)] == given
