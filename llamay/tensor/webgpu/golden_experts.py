"""The trials of what makes a mixture of experts: the choice, the branches of the chosen, their sum.

Of the first rows the experts are all there are in turn, so that a few rows try many; those
of the last two are the same, so that pairs share an expert.
"""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.program import ExpertGated, ExpertResidual, Linear, Route
from llamay.tensor.twins.linear import Real
from llamay.tensor.webgpu import golden_values
from llamay.tensor.webgpu.plan import next_norm
from llamay.tensor.webgpu.trial import FUNCTION, SUM, Arrays, Check, Trial, Trials, squares


class ExpertTrials(Trials):
    """See `Trials`."""

    def _route(self, op: Route, at: int) -> Trial:
        pairs = self.memory.pairs
        put, x, scale = self._reading(at, op.norm)
        count, logits = self.rows * op.used, op.linear.rows

        def arrange() -> None:
            put()
            self._spoil(pairs.scores, pairs.logits, logits)
            self.device.write(pairs.chosen, np.full(count, 1 << 20, np.uint32))
            self.device.write(pairs.weights, np.full(self.rows * (op.used + 1), np.nan, np.float32))

        def read() -> Arrays:
            return {
                "scores": self._get(pairs.scores, pairs.logits, logits),
                "chosen": self.device.read(pairs.chosen, np.uint32, count).reshape(self.rows, -1),
                "weights": self.device.read(pairs.weights, np.float32, count + self.rows).reshape(self.rows, -1),
            }

        def checks(found: Arrays) -> list[Check]:
            y, size = golden_values.product(x, op.linear, np.arange(logits), scale)
            scores, given = found["scores"].astype(np.float64), found["chosen"].astype(np.int64)
            chosen, weights = twins.route(scores, op)
            order = Check("chosen experts", found["chosen"], chosen.astype(np.float64), np.full(1, 0.5))
            if op.bias is not None and given.max() < op.experts:  # sums that differ by a rounding may change places
                standing, weights = twins.standing(scores, op), twins.weighed(scores, given, op)
                taken, best = (np.take_along_axis(standing, experts, axis=1) for experts in (given, chosen))
                order = Check("chosen experts", taken, best, 1e-5 * (1 + np.abs(best)))
            return [
                Check("router logits", found["scores"], y, SUM * size + 1e-9),
                order,
                Check("weights of experts", found["weights"], weights, FUNCTION * np.abs(weights) + 1e-9),
            ]

        return Trial(arrange, read, checks)

    def _expert_gated(self, op: ExpertGated, at: int) -> Trial:
        pairs, width = self.memory.pairs, op.up[0].rows
        put, x, scale = self._reading(at, op.norm)
        chosen = self._chosen(len(op.up), op.used)
        rows = golden_values.some(width)

        def arrange() -> None:
            put()
            self.device.write(pairs.chosen, chosen.astype(np.uint32))
            self.device.write(pairs.act, _spoilt(chosen.size, pairs.width, width))

        def read() -> Arrays:
            act = self.device.read(pairs.act, np.float32, chosen.size * pairs.width).reshape(*chosen.shape, -1)
            return {"act": act[..., :width]}

        def checks(found: Arrays) -> list[Check]:
            wide = np.repeat(x, op.used, axis=0), chosen.reshape(-1), rows, np.repeat(scale, op.used, axis=0)
            up, up_size = _products(*wide, op.up)
            if op.gate is None:
                expected, slope = twins.activated(up, op.activation), 2 * np.abs(up) + 1
                bound = SUM * slope * up_size + FUNCTION * np.abs(expected) + 1e-9
                return [Check("branches of experts", found["act"].reshape(-1, width)[:, rows], expected, bound)]
            gate, gate_size = _products(*wide, op.gate)
            expected = twins.activate(gate, up, op.activation)
            beside = np.abs(twins.raised(up)) if op.activation == "clipped" else np.abs(up)
            bound = SUM * (gate_size * beside + up_size * np.abs(gate)) + FUNCTION * np.abs(gate) * beside + 1e-9
            return [Check("branches of experts", found["act"].reshape(-1, width)[:, rows], expected, bound)]

        return Trial(arrange, read, checks)

    def _expert_residual(self, op: ExpertResidual, at: int, tokens: int) -> Trial:
        memory, pairs, hidden = self.memory, self.memory.pairs, self.plan.program.hidden
        next = next_norm(self.plan.program.operations, at).weight
        width, chosen = op.down[0].columns, self._chosen(len(op.down), op.used)
        x = self._random.standard_normal((chosen.size, width)).astype(np.float32)
        h, weights = self._normal(hidden), self._random.random((self.rows, op.used + 1)).astype(np.float32)
        shared_x = None if op.shared is None else self._normal(op.shared.columns)
        rows = golden_values.some(hidden)
        groups = [[*group, *[-1] * (tokens - len(group))] for group in twins.group_pairs(chosen, len(op.down), tokens)]

        def arrange() -> None:
            self.device.write(pairs.chosen, chosen.astype(np.uint32))
            order = np.full(pairs.order.size // 4, -1, np.int32)
            order[: len(groups) * tokens] = np.reshape(groups, -1)
            self.device.write(pairs.order, order)
            act = np.zeros((chosen.size, pairs.width), np.float32)
            act[:, :width] = x
            self.device.write(pairs.act, act)
            self.device.write(pairs.weights, weights)
            self.device.write(pairs.out, _spoilt(chosen.size, memory.hidden, hidden))
            self._put(memory.h, h, memory.hidden)
            self._spoil(memory.sums, memory.partials, memory.partials)
            if shared_x is not None:
                self._put(memory.act, shared_x, memory.branch)
                self._spoil(pairs.shared, memory.hidden, hidden)

        def read() -> Arrays:
            out = self.device.read(pairs.out, np.float32, chosen.size * memory.hidden).reshape(*chosen.shape, -1)
            parts = {"h": memory.h, "hw": memory.hw} | ({} if shared_x is None else {"shared": pairs.shared})
            found: Arrays = {name: self._get(buffer, memory.hidden, hidden) for name, buffer in parts.items()}
            sums = self._get(memory.sums, memory.partials, memory.partials)
            return {**found, "parts": out[..., :hidden], "sums": sums}

        def checks(found: Arrays) -> list[Check]:
            y, size = _products(x, chosen.reshape(-1), rows, 1.0, op.down)
            own = [Check("outputs of experts", found["parts"].reshape(-1, hidden)[:, rows], y, SUM * size + 1e-9)]
            parts = found["parts"].astype(np.float64)
            if op.shared is not None and shared_x is not None:
                y, size = golden_values.product(shared_x, op.shared, rows)
                own.append(Check("output of the shared expert", found["shared"][:, rows], y, SUM * size + 1e-9))
                parts = np.concatenate([parts, found["shared"][:, None]], axis=1)
            expected = twins.expert_add(h.astype(np.float64), parts, weights.astype(np.float64), op.scale)
            moved = abs(op.scale) * (np.abs(parts) * weights[:, : parts.shape[1], None]).sum(axis=1)
            weighted = found["h"].astype(np.float64) * next
            return [
                *own,
                Check("h", found["h"], expected, SUM * (np.abs(h) + moved) + 1e-9),
                Check("hw", found["hw"], weighted, 1e-6 * np.abs(weighted) + 1e-30),
                squares(found),
            ]

        return Trial(arrange, read, checks)

    def _chosen(self, experts: int, used: int) -> NDArray[np.int64]:
        """Experts of each row [rows, used], none twice in a row."""
        chosen = (np.arange(self.rows)[:, None] * used + np.arange(used)) % experts
        chosen[-1] = chosen[-2]
        return chosen


def _products(
    x: Real, experts: NDArray[np.int64], rows: NDArray[np.int64], scale: Real | float, linears: tuple[Linear, ...]
) -> tuple[Real, Real]:
    """As `golden_values.product`, each row of x [pairs, columns] through its own expert."""
    y, size = np.empty((len(x), len(rows))), np.empty((len(x), len(rows)))
    wide = np.broadcast_to(np.asarray(scale, np.float64).reshape(-1, 1), (len(x), 1))
    for expert in np.unique(experts).tolist():
        own = experts == expert
        y[own], size[own] = golden_values.product(x[own], linears[expert], rows, wide[own])
    return y, size


def _spoilt(rows: int, stride: int, columns: int) -> Real:
    """What is never written shows; what pads a row is zero."""
    full = np.zeros((rows, stride), np.float32)
    full[:, :columns] = np.nan
    return full
