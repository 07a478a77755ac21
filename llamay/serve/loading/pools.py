"""How many KV pages a model gets: enough for one context, and more where several requests are to share them."""

from dataclasses import dataclass, replace

from llamay.errors import OutOfMemory
from llamay.kv.table import sized
from llamay.serve.scheduling.scheduler import CHUNK, RUNNING
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.program import Program, Scan

MOST_CONTEXTS = 4  # whole ones that the default makes room for: more requests than that are rarely all long
TOGETHER = 512  # tokens of texts that are embedded in one step
SHARE = 0.25  # of the free memory that the default takes at most
COUNTED = 1 << 16  # pages of a group without layers, which only count tokens
STATES = 4  # pages of states beyond those that one context needs at a time: to go back to


@dataclass(frozen=True, slots=True)
class Pools:
    """Pages of both groups."""

    pages: int
    window_pages: int  # 0: there is one group
    span: int  # the longest window; 0: there is one group
    bytes: int
    entries: int = 0  # of the page tables of all sequences that a step may have; 0: the executor's own choice
    rows: int = 0  # that a step computes together at most; 0: the executor's own choice


def single(program: Program, kv: str, context: int) -> Pools:
    """One context in one group: for one sequence at a time."""
    page = sum(sum(cache_format(kv).sizes(op)) for op in program.layers)
    return Pools(sized(context), 0, 0, sized(context) * page)


def alone(program: Program, kv: str, context: int) -> Pools:
    """One context: in one group, but that pages of state spaces have one of their own, of those that are needed at a time."""
    near = _near(program, context) + STATES
    if not any(isinstance(op, Scan) for op in program.layers) or near >= sized(context):
        return single(program, kv, context)
    full, window = _bytes(program, kv, program.windowed)
    return Pools(sized(context), near, program.span, sized(context) * full + near * window)


def whole(program: Program, context: int) -> Pools:
    """Pages for the texts of one step of a model that embeds: one of `context` tokens, or up to RUNNING short ones."""
    rows = max(context, TOGETHER)
    found = single(program, "f32", rows + RUNNING * PAGE)
    return replace(found, rows=rows if program.both_ways else 0)


def pools(program: Program, kv: str, context: int, *, allowed: int = 0, free: int | None = None, largest: int = 0) -> Pools:
    """The pools for many contexts of up to `context` tokens; one group where no window is much shorter than that.

    `allowed` are the bytes a person gave them; without, they take a share of the `free` ones (None: of nobody
    knows how many, so one context).  `largest` bounds the bytes of one layer's keys or values (0: it does not).
    Raises OutOfMemory where the allowed bytes hold less than one context.
    """
    span, near, format = program.span, _near(program, context), cache_format(kv)
    windowed = program.windowed if near < sized(context) else frozenset()
    full, window = _bytes(program, kv, windowed)
    one = sized(context) * full + near * window
    if allowed and allowed < one:
        advice = _fitting(program, kv, allowed) if full else "its state takes that, however long it is"
        raise OutOfMemory(
            f"a context of {context} tokens needs {one:,} bytes of keys and values, and kv_mem allows {allowed:,}; {advice}"
        )
    share = one if free is None else min(int(free * SHARE), MOST_CONTEXTS * one)
    budget = allowed or max(one, share)
    page = max(max(format.sizes(op)) for op in program.layers)
    most = largest // page - 1 if largest else budget  # one page more takes what padding rows write
    if full:
        pages = max(sized(context), min(sized(context) * budget // one, most))
        near_pages = max(near, near * pages // sized(context)) if windowed else 0
    else:
        pages = max(sized(context), min(RUNNING * sized(context), COUNTED))
        near_pages = max(near, min(budget // window, most))
    entries = RUNNING * sized(context) * (2 if windowed else 1)
    return Pools(pages, near_pages, span if windowed else 0, pages * full + near_pages * window, entries)


def _fitting(program: Program, kv: str, allowed: int) -> str:
    """What is to be done where the bytes allowed hold less than the context that was asked for, and not all is state."""
    full, window = _bytes(program, kv, program.windowed)
    count, near = allowed // (full + window), sized(program.span + CHUNK) + 2
    if count > near:  # pages of the window group, which longer contexts need no more of
        count = (allowed - near * window) // full
    return f"-c {count * PAGE} would fit" if count else f"the shortest takes {full + window:,}"


def _near(program: Program, context: int) -> int:
    """Pages that one sequence needs of the window group at most."""
    return min(sized(context), sized(program.span + CHUNK) + 2)


def _bytes(program: Program, kv: str, windowed: frozenset[int]) -> tuple[int, int]:
    """Of a page of the first group, and of one of the layers in the second."""
    of_layer = {op.layer: sum(cache_format(kv).sizes(op)) for op in program.layers}
    window = sum(size for layer, size in of_layer.items() if layer in windowed)
    return sum(of_layer.values()) - window, window
