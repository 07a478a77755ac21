"""The trials of latent attention: what its linears and norms leave on the way to the pages and to q, and what lifts values."""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.pools import LayerPages
from llamay.tensor.program import Latent, Lift
from llamay.tensor.twins.linear import Real
from llamay.tensor.webgpu import golden_values
from llamay.tensor.webgpu.formats import padded
from llamay.tensor.webgpu.golden_experts import ExpertTrials
from llamay.tensor.webgpu.trial import SUM, Arrays, Check, Trial


class LatentTrials(ExpertTrials):
    """See `Trials`."""

    def _latent(self, op: Latent, at: int) -> Trial:
        memory, latents, positions = self.memory, self.memory.latents, np.arange(self.rows) % PAGE
        put, x, scale = self._reading(at, op.norm)
        queries, stride = (latents.raw, latents.down) if op.up is None else (latents.queries, latents.up)
        heads = op.heads * (op.own + op.turned)

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions)
            put()
            self._spoil(latents.raw, latents.down, op.down.rows)
            if op.up is not None:
                self._spoil(latents.queries, latents.up, heads)
            filled = np.tile(_spoilt(op.head_dim, op.turned + op.rank), op.heads)
            self._put(memory.q, np.tile(filled, (self.rows, 1)), memory.attended)
            own = np.tile(_spoilt(padded(op.own), op.own), self.rows * op.heads)
            self.device.write(latents.own, own)
            (pool, size), _ = self._pages(op.layer)
            self.device.write(pool, np.zeros(size, np.uint8), pool.size - size)

        def read() -> Arrays:
            (pool, size), _ = self._pages(op.layer)
            words = self.device.read(pool, np.uint8, size, pool.size - size)
            pages = LayerPages(op, 1, memory.cache, np.float32)
            pages.write_keys([0], words[None])
            keys, _ = golden_values.decoded(pages)
            own = self.device.read(latents.own, np.float32, self.rows * op.heads * padded(op.own))
            return {
                "raw": self._get(latents.raw, latents.down, op.down.rows),
                "queries": self._get(queries, stride, heads),
                "q": self._get(memory.q, memory.attended, op.heads * op.head_dim),
                "own": own.reshape(self.rows, op.heads, -1)[..., : op.own],
                "words": words,
                "keys": keys[0][:, positions].T,
            }

        def checks(found: Arrays) -> list[Check]:
            raw, asked = found["raw"].astype(np.float64), found["queries"].astype(np.float64)
            rows = golden_values.some(op.down.rows)
            y, size = golden_values.product(x, op.down, rows, scale)
            out = [Check("latents", found["raw"][:, rows], y, SUM * size + 1e-9)]
            if op.up is not None and op.q_norm is not None:
                normed, rows = twins.norm(raw[:, : op.asked], op.q_norm), golden_values.some(heads)
                y, size = golden_values.product(normed, op.up, rows)
                out.append(Check("queries", found["queries"][:, rows], y, SUM * size + 1e-9))
            turn = twins.rotation(positions.astype(np.int32), op.rope, np.float64)
            row = np.zeros((1, op.head_dim, PAGE))
            shape = (self.rows, op.heads, -1)
            q, own = twins.latent_store(
                raw[:, op.asked :], asked.reshape(shape), op, turn, row, positions.astype(np.int64)
            )
            ours, keys = found["q"].reshape(shape), row[0][:, positions].T
            largest = np.abs(keys).max(axis=1, keepdims=True)
            moved = golden_values.rounding(memory.cache.keys, keys, memory.cache.one_bit)
            turned = np.abs(q).max(axis=-1, keepdims=True)
            out += [
                Check("rows of pages", found["keys"], keys, SUM * largest + moved + 1e-9),
                Check("turned queries", ours[..., : op.turned], q[..., : op.turned], SUM * turned + 1e-9),
                Check("queries of their own", found["own"], own, SUM * np.abs(own) + 1e-9),
            ]
            rows, asks = golden_values.some(op.rank), found["own"]
            for head in {0, op.heads - 1}:
                y, size = golden_values.product(asks[:, head], op.absorb[head], rows)
                out.append(Check("absorbing queries", ours[:, head, op.turned + rows], y, SUM * size + 1e-9))
            return out

        return Trial(arrange, read, checks)

    def _lift(self, op: Lift) -> Trial:
        memory, latents, heads, first = self.memory, self.memory.latents, len(op.linears), op.linears[0]
        x = self._random.standard_normal((self.rows, heads, padded(first.columns))).astype(np.float32)
        rows = golden_values.some(first.rows)

        def arrange() -> None:
            self._put(memory.att, x.reshape(self.rows, -1), memory.attended)
            self._spoil(latents.lifted, latents.lift, heads * first.rows)

        def read() -> Arrays:
            return {"lifted": self._get(latents.lifted, latents.lift, heads * first.rows)}

        def checks(found: Arrays) -> list[Check]:
            values = found["lifted"].reshape(self.rows, heads, -1)
            out = []
            for head in {0, heads - 1}:
                y, size = golden_values.product(x[:, head, : first.columns], op.linears[head], rows)
                out.append(Check("lifted values", values[:, head, rows], y, SUM * size + 1e-9))
            return out

        return Trial(arrange, read, checks)


def _spoilt(stride: int, count: int) -> NDArray[np.float32]:
    """Of a row what is to be written is no number, and what pads it zero."""
    row: Real = np.zeros(stride, np.float32)
    row[:count] = np.nan
    return row.astype(np.float32)
