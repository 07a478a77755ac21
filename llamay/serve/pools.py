"""How many KV pages a model gets: enough for one context, and more where several requests are to share them."""

from dataclasses import dataclass

from llamay.errors import OutOfMemory
from llamay.kv.table import sized
from llamay.serve.scheduler import CHUNK, RUNNING
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.program import Attend, Program

MOST_CONTEXTS = 4  # whole ones that the default makes room for: more requests than that are rarely all long
SHARE = 0.25  # of the free memory that the default takes at most


@dataclass(frozen=True, slots=True)
class Pools:
    """Pages of both groups."""

    pages: int
    window_pages: int  # 0: there is one group
    span: int  # the longest window; 0: there is one group
    bytes: int
    entries: int = 0  # of the page tables of all sequences that a step may have; 0: the executor's own choice


def single(program: Program, kv: str, context: int) -> Pools:
    """One context in one group: for one sequence at a time."""
    format = cache_format(kv)
    page = sum(PAGE * op.kv_heads * format.token_bytes(op.head_dim) for op in program.layers)
    return Pools(sized(context), 0, 0, sized(context) * page)


def span_of(program: Program) -> int:
    """The longest window of a program's layers, 0 where none has one."""
    return max((op.window for op in program.operations if isinstance(op, Attend)), default=0)


def pools(program: Program, kv: str, context: int, *, allowed: int = 0, free: int | None = None, largest: int = 0) -> Pools:
    """The pools for many contexts of up to `context` tokens; one group where no window is much shorter than that.

    `allowed` are the bytes a person gave them; without, they take a share of the `free` ones (None: of nobody
    knows how many, so one context).  `largest` bounds the bytes of one layer's keys or values (0: it does not).
    Raises OutOfMemory where the allowed bytes hold less than one context.
    """
    span = span_of(program)
    near = min(sized(context), sized(span + CHUNK) + 2)  # pages that one sequence needs of the window group
    windowed = program.windowed if near < sized(context) else frozenset()
    format = cache_format(kv)
    of_layer = {op.layer: PAGE * op.kv_heads * format.token_bytes(op.head_dim) for op in program.layers}
    full = sum(size for layer, size in of_layer.items() if layer not in windowed)
    window = sum(size for layer, size in of_layer.items() if layer in windowed)
    one = sized(context) * full + near * window
    if allowed and allowed < one:
        fitting = allowed * sized(context) // one * PAGE
        raise OutOfMemory(
            f"a context of {context} tokens needs {one:,} bytes of keys and values, and kv_mem allows {allowed:,}; "
            f"-c {max(PAGE, fitting)} would fit"
        )
    share = one if free is None else min(int(free * SHARE), MOST_CONTEXTS * one)
    budget = allowed or max(one, share)
    pages = max(sized(context), sized(context) * budget // one)
    if largest:
        page = max(op.kv_heads * format.key_bytes(op.head_dim) for op in program.layers)  # keys are never the smaller
        most = largest // page - 1  # one page more takes what padding rows write
        pages = max(sized(context), min(pages, most))
    near_pages = max(near, near * pages // sized(context)) if windowed else 0
    entries = RUNNING * sized(context) * (2 if windowed else 1)
    return Pools(pages, near_pages, span if windowed else 0, pages * full + near_pages * window, entries)
