"""What becomes of a pooled row on the host: the last norm of a decoder, linears behind a mean, and the head of a model that judges."""

from dataclasses import dataclass

import numpy as np

from llamay.tensor import twins
from llamay.tensor.program import Floats, Norm
from llamay.tensor.twins.linear import Real


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """y = W x + b."""

    weight: Floats  # [rows, columns]
    bias: Floats | None

    def __call__(self, x: Real) -> Real:
        """x [columns] -> [rows], in the precision of x."""
        y: Real = self.weight.astype(x.dtype) @ x
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True, eq=False)
class Finish:
    """Everything is computed in float64 and one row at a time, so that no row depends on its neighbours."""

    norm: Norm | None = None  # of what the last layer wrote
    dense: Dense | None = None  # of a head: tanh follows
    scores: Dense | None = None  # of a head: [labels, H]
    labels: tuple[str, ...] = ()
    linears: tuple[Dense, ...] = ()  # that make the vector of a row, where there is no head

    def vector(self, row: Floats) -> Floats:
        """A pooled row [H] as the model means it; float32, infinite where that holds it no more."""
        x = self._normed(row)
        for linear in self.linears:
            x = linear(x)
        with np.errstate(over="ignore"):
            vector: Floats = x.astype(np.float32)
        return vector

    def score(self, row: Floats) -> float:
        """The logit that a head gives a pooled row [H]: its only label's, or that of `yes` against that of `no`."""
        x = self._normed(row)
        if self.dense is not None:
            x = np.tanh(self.dense(x))
        if self.scores is None:
            return 0.0
        found = self.scores(x)
        if len(found) == 1:
            return float(found[0])
        yes, no = self.labels.index("yes"), self.labels.index("no")
        return float(found[yes] - found[no])

    def _normed(self, row: Floats) -> Real:
        x = row.astype(np.float64)
        return x if self.norm is None else twins.norm(x, self.norm)
