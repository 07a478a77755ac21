"""What a caller may ask of a generation, by keyword, and the Request it comes to."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, cast

from llamay.errors import UsageError
from llamay.sample import Sampling, fresh_seed
from llamay.serve import sampling
from llamay.serve.request import LONGEST_CLIENT, Keeper, Limits, Request

SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "repeat_last_n", "logit_bias", "seed",
)  # fmt: skip


class Options(TypedDict, total=False):
    """Keywords of `chat`, `complete` and `generate`; None is as if not given.  docs/sampling.md says what each of the
    sampling's does; what is not given there comes from the model's file, else from llamay.
    """

    max_tokens: int | None  # default: until the model ends, or the context
    temperature: float | None  # 0 is greedy
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repeat_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_last_n: int | None
    logit_bias: dict[int, float] | None
    seed: int | None  # default: drawn; the result tells it
    stop: str | Sequence[str] | None  # strings that end the answer, and are not part of it
    ignore_end: bool | None  # go on past the model's end token
    n: int | None  # choices, forks of one prefill; choice i has the seed + i
    best_of: int | None  # make so many choices, and give the n likeliest a token
    logprobs: int | None  # tell each token's probability, and that of so many of the likeliest
    prefix_cache: bool | None  # use what is known of the prompt's beginning; it changes no bit of the answer
    client: str | None  # clients take turns


def checked(options: dict[str, Any]) -> Options:
    """The options that were given; UsageError for a keyword that is none."""
    known = list(Options.__annotations__)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(f"there is no option {name!r}{f'; did you mean {near[0]}?' if near else ''}")
    return cast(Options, {name: value for name, value in options.items() if value is not None})


def choices_of(options: Options) -> tuple[int, int]:
    """How many choices are made, and how many of them are given."""
    given = 1 if (n := options.get("n")) is None else n
    made = given if (best_of := options.get("best_of")) is None else best_of
    if given < 1:
        raise UsageError(f"n is {given}; it may be 1 or more")
    if made < given:
        raise UsageError(f"best_of is {made} and n {given}; it may be n or more")
    return made, given


def request(
    tokens: Sequence[int],
    options: Options,
    base: Sampling,
    *,
    ends: frozenset[int],
    stops: tuple[str, ...] = (),
    via: str = "",
    model: str = "",
    context: int | None = None,
    keeper: Keeper | None = None,
) -> Request:
    """The request for an answer to `tokens`.  `base` is the sampling of what is not given, `stops` are the template's."""
    asked: dict[str, Any] = {name: options.get(name) for name in SAMPLING}
    bias = options.get("logit_bias")
    asked["logit_bias"] = None if bias is None else tuple(sorted(bias.items()))
    how = sampling.checked(asked, base)
    if options.get("seed") is None:
        how = replace(how, seed=fresh_seed())
    stop = options.get("stop")
    more = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if not all(more):
        raise UsageError("a stop string is empty; it would end every answer before its first character")
    return Request(
        tuple(tokens),
        how,
        Limits(options.get("max_tokens"), frozenset() if options.get("ignore_end") else ends, (*stops, *more)),
        choices=choices_of(options)[0],
        client=(options.get("client") or "")[:LONGEST_CLIENT],
        via=via,
        model=model,
        context=context,
        prefix_cache=options.get("prefix_cache") is not False,
        logprobs=options.get("logprobs"),
        keeper=keeper,
    )
