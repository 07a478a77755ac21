"""Shows an answer as it comes, and the lines that close it."""

import contextlib
import sys
from dataclasses import dataclass, replace

from llamay.cli import status
from llamay.cli.terminal import folded, note, plain
from llamay.sample import Sampling, fresh_seed
from llamay.serve.engine import Engine
from llamay.serve.events import Done, Failed, Text
from llamay.serve.loading.language import Prompt
from llamay.serve.loading.load import Loaded
from llamay.serve.request import Limits, Request

STATISTICS = 20  # columns of name and time before what a line of the statistics says


@dataclass(frozen=True, slots=True)
class Answer:
    """What was shown; `done` is None when Ctrl-C cut it."""

    text: str
    done: Done | None


def show(
    engine: Engine, loaded: Loaded, prompt: Prompt, sampling: Sampling, limits: Limits, seed: int | None,
    context: int | None = None,
) -> Answer:  # fmt: skip
    """Writes the pieces to stdout as they come and ends the line.  `seed` None draws one, `context` is one of the engine's.

    A terminal gets control characters spelled out; a pipe or file gets the text as it is.
    """
    screen = sys.stdout.isatty()
    pieces: list[str] = []
    done: Done | None = None
    for news in loaded.language.news(prompt):
        note(news)
    how = replace(sampling, seed=fresh_seed() if seed is None else seed)
    ticket = engine.submit(Request(tuple(prompt.tokens), how, replace(limits, stops=prompt.stops), context=context))
    reading = f"reading a prompt of {len(prompt.tokens):,} tokens"
    with contextlib.closing(ticket.events()) as events, status.waiting(reading) as read:
        try:
            for event in events:
                read()
                match event:
                    case Text(text):
                        pieces.append(text)
                        sys.stdout.write(plain(text, lines=True) if screen else text)
                        sys.stdout.flush()
                    case Failed(error):
                        raise error
                    case Done():
                        done = event
        except KeyboardInterrupt:
            pass  # the answer so far stands; `done` tells that it was cut
        finally:
            if pieces and not pieces[-1].endswith("\n"):
                sys.stdout.write("\n")
                sys.stdout.flush()
    return Answer("".join(pieces), done)


def close(done: Done, loaded: Loaded, sampling: Sampling, *, stats: bool) -> None:
    """Prints the closing line, after the statistics where they are wanted."""
    for line in statistics(done, loaded, sampling) if stats else []:
        print(folded(line, sys.stderr, STATISTICS), file=sys.stderr)
    print(folded(summary(done), sys.stderr), file=sys.stderr)


def summary(done: Done) -> str:
    """`prompt 11 tokens in 112ms (98.0 tok/s) · generated 64 in 5.093s (12.6 tok/s) · stop: length`."""
    times = done.timings
    kept = f", {times.cached_tokens} of them kept," if times.cached_tokens else ""
    return " · ".join(
        [
            f"prompt {times.prompt_tokens} tokens{kept} in {seconds(times.prompt_seconds)} ({times.prompt_rate:.1f} tok/s)",
            f"generated {times.generated_tokens} in {seconds(times.decode_seconds)} ({times.generated_rate:.1f} tok/s)",
            f"stop: {done.reason}",
        ]
    )


def statistics(done: Done, loaded: Loaded, sampling: Sampling) -> list[str]:
    """A line each for load, prefill, decode, sampling and readback."""
    times = done.timings
    computed = times.prompt_tokens - times.cached_tokens
    kept = f", {times.cached_tokens} kept from before" if times.cached_tokens else ""
    steps = max(times.generated_tokens - 1, 0)
    queueing = f"{times.submissions} submissions, {seconds(times.submit_seconds)} of it queueing them"
    rows = [
        ("load", loaded.seconds, loaded.describe()),
        ("prefill", times.prompt_seconds, f"{computed} tokens ({times.prompt_rate:.1f} tok/s){kept}"),
        (
            "decode",
            times.decode_seconds,
            f"{steps} steps after the first token ({times.decode_rate:.1f} tok/s), {queueing}",
        ),
        ("sampling", None, f"on the device, within decode: {described(sampling, done.seed)}"),
        ("readback", times.collect_seconds, "of decode: waiting for the device and reading token ids"),
    ]
    return [f"{name:<9} {'-' if spent is None else seconds(spent):>8}  {what}" for name, spent, what in rows]


def described(sampling: Sampling, seed: int) -> str:
    """What differs from doing nothing."""
    if sampling.greedy:
        return "greedy"
    parts = [f"temperature {sampling.temperature:g}"]
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}
    for name, off in neutral.items():
        value = getattr(sampling, name)
        if value != off:
            parts.append(f"{name.replace('_', '-')} {value:g}")
    return ", ".join([*parts, f"seed {seed}"])


def seconds(value: float) -> str:
    """112ms below a second, 5.093s from there."""
    return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.3f}s"
