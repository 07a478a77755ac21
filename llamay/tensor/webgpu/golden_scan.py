"""The trial of state spaces: a sequence's first tokens, what they leave in the page and what the branch gives."""

from dataclasses import replace

import numpy as np

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.program import Scan, ShortConv
from llamay.tensor.scans import ScanPages, grouped
from llamay.tensor.twins.linear import Real
from llamay.tensor.webgpu import golden_values
from llamay.tensor.webgpu.golden_latent import LatentTrials
from llamay.tensor.webgpu.trial import FUNCTION, SUM, Arrays, Check, Trial


class ScanTrials(LatentTrials):
    """See `Trials`."""

    def _scan(self, op: Scan, at: int) -> Trial:
        memory, spaces, device = self.memory, self.memory.spaces, self.device
        put, h, scale = self._reading(at, op.norm)
        gated = memory.att if op.gate_norm is None else memory.q

        def arrange() -> None:
            self._place(np.zeros(self.rows), np.arange(self.rows))
            put()
            self._spoil(spaces.raw, spaces.entered, op.enter.rows)
            self._spoil(spaces.mixed, spaces.channels, op.channels)
            if op.select is not None:
                self._spoil(spaces.selected, spaces.select, op.select.rows)
            for buffer in (memory.q, memory.att):
                self._spoil(buffer, memory.attended, op.inner)
            for pool, size in self._pages(op.layer):
                device.write(pool, np.zeros(size, np.uint8), pool.size - size)

        def read() -> Arrays:
            words = [device.read(pool, np.uint8, size, pool.size - size)[None] for pool, size in self._pages(op.layer)]
            page = ScanPages(op, 1, np.float32)
            page.write_keys([0], words[0])
            page.write_values([0], words[1])
            found: Arrays = {
                "z": self._get(spaces.raw, spaces.entered, op.enter.rows)[:, op.gate_at : op.gate_at + op.inner],
                "mixed": self._get(spaces.mixed, spaces.channels, op.channels),
                "tokens": page.tokens[0, : self.rows],
                "b": page.shared[0, : self.rows],
                "state": page.states[0],
                "count": page.counts[0, :1],
                "y": self._get(gated, memory.attended, op.inner),
                "branch": self._get(memory.att, memory.attended, op.inner),
            }
            if op.select is None:
                return found
            return {**found, "selected": self._get(spaces.selected, spaces.select, op.select.rows)}

        def checks(found: Arrays) -> list[Check]:
            wide = {name: array.astype(np.float64) for name, array in found.items()}
            entered, x, d = np.split(wide["tokens"], [op.channels, op.channels + op.inner], axis=1)
            out = []
            for what, part, first in (("inputs", entered, op.convolved_at), ("gates", wide["z"], op.gate_at)):
                rows = golden_values.some(part.shape[1])
                y, size = golden_values.product(h, op.enter, first + rows, scale)
                out.append(Check(what, part[:, rows], y, SUM * size + 1e-9))
            none = np.zeros((len(op.kernel) - 1, op.channels))
            size = np.abs(entered).max() * np.abs(op.kernel).sum(axis=0) + np.abs(op.bias) + 1
            mixed = twins.convolve(entered, none, op.kernel, op.bias)
            out.append(Check("convolved", wide["mixed"], mixed, FUNCTION * np.abs(mixed) + SUM * size))
            out.append(Check("x in pages", x, wide["mixed"][:, : op.inner], np.full(1, 1e-30)))
            source = wide["mixed"]
            steps = golden_values.some(op.heads)
            if op.select is None or op.step is None:
                raw, size = golden_values.product(h, op.enter, op.inner + op.channels + steps, scale)
            else:
                source = wide["selected"]
                rows = golden_values.some(op.select.rows) if op.part_eps is None else np.arange(op.select.rows)
                y, size = golden_values.product(x, op.select, rows)
                if op.part_eps is not None:
                    y, size = _part_normed(op, y, size, op.part_eps)
                out.append(Check("latents of steps, B and C", source[:, rows], y, SUM * size + 1e-9))
                raw, size = golden_values.product(source[:, : op.step.columns], op.step, steps)
            expected = twins.softplus(raw + op.step_bias[steps])
            out.append(Check("steps", d[:, steps], expected, SUM * size + FUNCTION * expected + 1e-9))
            b, c = (source[:, at : at + op.shared].reshape(wide["b"].shape) for at in (op.shared_at, op.shared_at + op.shared))
            out.append(Check("B in pages", wide["b"], b, np.full(1, 1e-30)))
            (y, state), (size, magnitude) = (_scanned(op, x, d, b, c, wide["z"], absolute) for absolute in (False, True))
            out.append(Check("gated sums", wide["y"], y, FUNCTION * self.rows * size + 1e-9))
            out.append(Check("states", wide["state"], state, FUNCTION * self.rows * magnitude + 1e-9))
            if op.gate_norm is not None:
                normed = grouped(wide["y"], op.gate_norm, op.groups)
                out.append(Check("normed sums", wide["branch"], normed, SUM * (np.abs(normed) + 1) + 1e-9))
            return [*out, Check("tokens of the state", wide["count"], np.full(1, float(self.rows)), np.full(1, 1e-30))]

        return Trial(arrange, read, checks)

    def _short(self, op: ShortConv, at: int) -> Trial:
        memory, spaces, device = self.memory, self.memory.spaces, self.device
        put, h, scale = self._reading(at, op.norm)

        def arrange() -> None:
            self._place(np.zeros(self.rows), np.arange(self.rows))
            put()
            self._spoil(spaces.raw, spaces.entered, op.enter.rows)
            self._spoil(memory.att, memory.attended, op.inner)
            (pool, size), _ = self._pages(op.layer)
            device.write(pool, np.full(size, 255, np.uint8), pool.size - size)  # what is no number

        def read() -> Arrays:
            (pool, size), _ = self._pages(op.layer)
            page = device.read(pool, np.float32, size // 4, pool.size - size).reshape(PAGE, op.inner)
            return {
                "entered": self._get(spaces.raw, spaces.entered, op.enter.rows),
                "tokens": page[: self.rows],
                "branch": self._get(memory.att, memory.attended, op.inner),
            }

        def checks(found: Arrays) -> list[Check]:
            rows = golden_values.some(op.enter.rows)
            y, size = golden_values.product(h, op.enter, rows, scale)
            b, c, x = np.split(found["entered"].astype(np.float64), 3, axis=1)
            none = np.zeros((len(op.kernel) - 1, op.inner))
            mixed, sizes = (
                twins.short_convolve(one, none, gate, taps)
                for one, gate, taps in ((b * x, c, op.kernel), (np.abs(b * x), np.abs(c), np.abs(op.kernel)))
            )
            return [
                Check("what enters", found["entered"][:, rows], y, SUM * size + 1e-9),
                Check("products in pages", found["tokens"], b * x, SUM * np.abs(b * x) + 1e-30),
                Check("convolved", found["branch"], mixed, SUM * sizes + 1e-9),
            ]

        return Trial(arrange, read, checks)


def _scanned(op: Scan, x: Real, d: Real, b: Real, c: Real, z: Real, absolute: bool) -> tuple[Real, Real]:
    """y of a sequence's first tokens and the state after them, or the magnitudes that are summed for both."""
    if absolute:
        x, b, c, op = np.abs(x), np.abs(b), np.abs(c), replace(op, skip=np.abs(op.skip))
    ones, state = np.ones_like(z), np.zeros((op.inner, op.states))
    y = twins.scan(state, x, d, (b, c), ones, op) / twins.silu(ones)
    gates = twins.silu(z)
    return y * (np.abs(gates) if absolute else gates), state


def _part_normed(op: Scan, y: Real, size: Real, eps: float) -> tuple[Real, Real]:
    """What select made, each part normed, and the magnitudes in that."""
    normed, cuts, sizes = twins.part_norm(y, op.parts, eps), np.cumsum(op.parts)[:-1], []
    for part, summed in zip(np.split(y, cuts, axis=-1), np.split(size, cuts, axis=-1), strict=True):
        root = np.sqrt(np.mean(np.square(part), axis=-1, keepdims=True) + eps)
        sizes.append((summed.max(axis=-1, keepdims=True) + np.abs(part)) / root)
    return normed, np.concatenate(sizes, axis=-1)
