"""Many questions on one prefix: as forks of it, with the prefix known, and each from nothing."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from llamay.bench.measure import GREEDY, SEED, Progress
from llamay.bench.shared import Room
from llamay.bench.target import Target
from llamay.errors import LlamayError, UsageError
from llamay.kv.table import sized
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.together import Together
from llamay.tensor.batch import PAGE

MOST = 1024
AT_ONCE = 4  # whole contexts there are pages for; who finds none waits
WARM = 2  # questions that compile and touch what is in use


@dataclass(frozen=True, slots=True)
class Shape:
    """Counts: questions, and tokens of the prefix, of each question and of each answer."""

    questions: int = 16
    prefix: int = 1024
    question: int = 16
    answer: int = 16

    def check(self) -> None:
        """Raises UsageError for counts that measure nothing."""
        if not 1 <= self.questions <= MOST:
            raise UsageError(f"-questions is {self.questions}; it may be 1 to {MOST}")
        for name, value in (("-prefix", self.prefix), ("-question", self.question), ("-gen", self.answer)):
            if value < 1:
                raise UsageError(f"{name} is {value}; it may be 1 or more")

    def room(self) -> Room:
        """The pages: some whole contexts, and what each question has of its own."""
        own = sized(self.question + self.answer + PAGE) + 1
        return Room(self.prefix + self.question + self.answer, AT_ONCE, self.questions * own)


@dataclass(frozen=True, slots=True)
class Answers:
    """Seconds for the same questions, all asked at once, in each of the three ways.  All gave the same answers."""

    shape: Shape
    prefix_seconds: float  # the prefix computed once
    forked_seconds: float  # forking it and answering
    warm_seconds: float  # answering, the prefix tree knowing the prefix
    cold_seconds: float  # answering, nothing known and nothing shared
    preempted: int  # how often a cold request gave its pages up and was computed again

    @property
    def forked(self) -> float:
        """Seconds, the prefix included."""
        return self.prefix_seconds + self.forked_seconds

    @property
    def warm(self) -> float:
        """Seconds, the prefix included."""
        return self.prefix_seconds + self.warm_seconds

    def as_json(self) -> dict[str, Any]:
        """Plain data, and what follows from it."""
        return {
            **asdict(self),
            "forked_with_prefix_seconds": self.forked,
            "warm_with_prefix_seconds": self.warm,
            "forked_speedup": self.cold_seconds / self.forked,
            "warm_speedup": self.cold_seconds / self.warm,
            "warm_to_forked": self.warm / self.forked,
        }


def run(target: Target, shape: Shape, say: Progress) -> Answers:
    """Computes a random prefix, and answers random questions on it, greedy, in the three ways.

    LlamayError where one way gives other answers than another.
    """
    shape.check()
    crowd = Together(target.executor, target.context)
    cache = crowd.cache
    random = np.random.default_rng(SEED)
    prefix = tuple(random.integers(0, target.program.vocabulary, shape.prefix).tolist())
    questions = random.integers(0, target.program.vocabulary, (shape.questions, shape.question)).tolist()
    prompts = [(*prefix, *question) for question in questions]
    limits = Limits(tokens=shape.answer)

    def ask(contexts: list[int | None], *, known: bool = False) -> tuple[float, list[tuple[int, ...]], int]:
        """Seconds, answers, preemptions; each question in its context, where that is given."""
        asked = [
            Request(prompt, GREEDY, limits, context=context, prefix_cache=known)
            for prompt, context in zip(prompts, contexts, strict=False)
        ]
        start = time.perf_counter()
        done = crowd.run(*asked)
        seconds = time.perf_counter() - start
        return seconds, [one.choices[0].tokens for one in done], sum(one.timings.preempted for one in done)

    nothing: list[int | None] = [None] * shape.questions
    say("warming up")
    ask(nothing[:WARM])
    say("computing the prefix")
    start = time.perf_counter()
    held, _ = cache.match(())
    # one token more, which stays uncomputed: all of the prefix is in pages then
    crowd.run(Request((*prefix, 0), GREEDY, Limits(tokens=0), context=held.id, prefix_cache=False))
    target.executor.read_pages(0, held.tables[0].live[-1:].tolist())  # comes back after all that was queued
    prefix_seconds = time.perf_counter() - start
    say(f"{shape.questions} questions as forks")
    start = time.perf_counter()
    forks = cache.fork(held, shape.questions)
    forked_seconds = time.perf_counter() - start
    seconds, forked, _ = ask([fork.id for fork in forks])
    forked_seconds += seconds
    for fork in forks:
        cache.drop(fork)
    say(f"{shape.questions} questions with the prefix known")
    cache.publish(held)
    cache.drop(held)
    warm_seconds, warm, _ = ask(nothing, known=True)
    for group in cache.groups:
        cache.evict(group.pages.count, group.number)
    say(f"{shape.questions} questions from nothing")
    cold_seconds, cold, preempted = ask(nothing)
    cache.check_integrity()
    if not forked == warm == cold:
        raise LlamayError("the questions were answered otherwise as forks, with the prefix known, or from nothing")
    return Answers(shape, prefix_seconds, forked_seconds, warm_seconds, cold_seconds, preempted)
