"""Selective state spaces on the NumPy executor: what their pages keep, and a sequence's next tokens from them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE, Ints
from llamay.tensor.program import Linear, Norm, Scan
from llamay.tensor.twins.linear import Real

Bytes = NDArray[np.uint8]
Product = Callable[[Linear, Real], Real]


class ScanPages:
    """One layer's pages.  `read` and `write` speak the bytes that a device holds of a page, in two parts.

    Where others have keys: the state [states / 4, inner, 4] and B [16, groups * states].  Where they have values:
    of each token the inputs of the convolution, x and d [16, kept], then how many of them the state is after, and 3 zeros.
    """

    def __init__(self, op: Scan, pages: int, dtype: type[np.floating[Any]]) -> None:
        self.op = op
        self.states: Real = np.zeros((pages, op.inner, op.states), dtype)
        self.shared: Real = np.zeros((pages, PAGE, op.groups, op.states), dtype)
        self.tokens: Real = np.zeros((pages, PAGE, op.kept), dtype)
        self.counts: Real = np.zeros((pages, 4), dtype)
        size = np.dtype(dtype).itemsize
        self.key_bytes = size * (op.inner * op.states + PAGE * op.shared)
        self.value_bytes = size * (PAGE * op.kept + 4)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies pages over pages."""
        for array in (self.states, self.shared, self.tokens, self.counts):
            array[list(targets)] = array[list(sources)]

    def read_keys(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, key_bytes]."""
        four, states = _four(self.op), self.states[list(pages)]
        turned = states.reshape(len(pages), self.op.inner, -1, four).transpose(0, 2, 1, 3)
        return np.concatenate([_bytes(turned), _bytes(self.shared[list(pages)])], axis=1)

    def read_values(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, value_bytes]."""
        return np.concatenate([_bytes(self.tokens[list(pages)]), _bytes(self.counts[list(pages)])], axis=1)

    def write_keys(self, pages: Sequence[int], data: Bytes) -> None:
        """Takes bytes [pages, key_bytes]."""
        four, op, values = _four(self.op), self.op, np.ascontiguousarray(data).view(self.states.dtype)
        states, shared = np.split(values, [op.inner * op.states], axis=1)
        turned = states.reshape(len(pages), -1, op.inner, four).transpose(0, 2, 1, 3)
        self.states[list(pages)] = turned.reshape(len(pages), op.inner, op.states)
        self.shared[list(pages)] = shared.reshape(len(pages), PAGE, op.groups, op.states)

    def write_values(self, pages: Sequence[int], data: Bytes) -> None:
        """Takes bytes [pages, value_bytes]."""
        tokens, counts = np.split(np.ascontiguousarray(data).view(self.tokens.dtype), [PAGE * self.op.kept], axis=1)
        self.tokens[list(pages)] = tokens.reshape(len(pages), PAGE, -1)
        self.counts[list(pages)] = counts

    def before(self, table: Ints, position: int) -> Real:
        """The inputs of the convolution before a position [K - 1, channels]; zeros before the first."""
        return before(self.tokens[..., : self.op.channels], len(self.op.kernel) - 1, table, position)

    def keep(self, table: Ints, positions: Ints, entered: Real, x: Real, d: Real, b: Real) -> None:
        """What the tokens at these positions leave: inputs [T, channels], x [T, inner], d [T, heads], B."""
        pages, slots = table[positions // PAGE], positions % PAGE
        self.tokens[pages, slots] = np.concatenate([entered, x, d], axis=1)
        self.shared[pages, slots] = b

    def leave(self, page: int, state: Real, count: int) -> None:
        """The state after the first `count` tokens of a page."""
        self.states[page], self.counts[page, 0] = state, count

    def at(self, table: Ints, position: int) -> Real:
        """The state [inner, states] before a position: its page's, or that of the page before and the tokens since."""
        op, inside = self.op, position % PAGE
        page, channels = table[position // PAGE], op.channels
        if inside and self.counts[page, 0] == inside:
            kept: Real = self.states[page].copy()
            return kept
        if position < PAGE:
            state: Real = np.zeros((op.inner, op.states), self.states.dtype)
        else:
            state = self.states[table[position // PAGE - 1]].copy()
        for slot in range(inside):
            x, d = np.split(self.tokens[page, slot, channels:], [op.inner])
            twins.advance(state, x, d, self.shared[page, slot], op)
        return state


def before(tokens: Real, count: int, table: Ints, position: int) -> Real:
    """What pages [page, 16, channels] keep of the `count` tokens before a position; zeros before the first."""
    found: Real = np.zeros((count, tokens.shape[2]), tokens.dtype)
    for at in range(max(0, position - count), position):
        found[at - position] = tokens[table[at // PAGE], at % PAGE]
    return found


def run(op: Scan, h: Real, pages: ScanPages, sequences: Sequence[tuple[NDArray[np.intp], Ints, Ints]], product: Product) -> Real:
    """The branch [T, inner] of rows h [T, H]; of each sequence its rows, their positions in a row, and its table."""
    y = product(op.enter, twins.norm(h, op.norm))
    entered, z = (y[:, at : at + count] for at, count in ((op.convolved_at, op.channels), (op.gate_at, op.inner)))
    mixed = np.empty_like(entered)
    for rows, positions, table in sequences:
        mixed[rows] = twins.convolve(entered[rows], pages.before(table, int(positions[0])), op.kernel, op.bias)
    x = np.ascontiguousarray(mixed[:, : op.inner])
    source, d = mixed, y[:, op.inner + op.channels :]
    if op.select is not None and op.step is not None:
        source = product(op.select, x)
        if op.part_eps is not None:
            source = twins.part_norm(source, op.parts, op.part_eps)
        d = product(op.step, np.ascontiguousarray(source[:, : op.step.columns]))
    d = twins.softplus(d + op.step_bias.astype(d.dtype))
    shape = (len(h), op.groups, op.states)
    b, c = (source[:, at : at + op.shared].reshape(shape) for at in (op.shared_at, op.shared_at + op.shared))
    out = np.empty_like(x)
    for rows, positions, table in sequences:
        pages.keep(table, positions, entered[rows], x[rows], d[rows], b[rows])
        state = pages.at(table, int(positions[0]))
        for some in np.split(np.arange(len(rows)), np.flatnonzero(positions[1:] % PAGE == 0) + 1):
            at, last = rows[some], int(positions[some[-1]])
            out[at] = twins.scan(state, x[at], d[at], (b[at], c[at]), z[at], op)
            pages.leave(table[last // PAGE], state, last % PAGE + 1)
    return out if op.gate_norm is None else grouped(out, op.gate_norm, op.groups)


def grouped(x: Real, norm: Norm, groups: int) -> Real:
    """An RMS norm of each group of neighbouring values of x [T, inner]."""
    parts = x.reshape(len(x), groups, -1)
    return twins.rms_norm(parts, norm.weight.reshape(groups, -1), norm.eps).reshape(x.shape)


def _four(op: Scan) -> int:
    """How many states of a channel lie together."""
    return 4 if op.states % 4 == 0 else 1


def _bytes(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
