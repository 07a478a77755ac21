"""One benchmark: run, and told as lines of text or as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from llamay import __version__
from llamay.bench import probe
from llamay.bench.copy import copy_bandwidth
from llamay.bench.measure import Figures, Progress, Width, check_reps, measure, prompt_of, sweep
from llamay.bench.probe import Parts
from llamay.bench.resident import peak_rss
from llamay.bench.target import Target, kv_bytes, weight_bytes
from llamay.errors import UsageError
from llamay.serve.scheduling.scheduler import CHUNK

LEAST_GENERATED = 2  # the first token's time is the prompt's


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; None where the system or the executor does not say."""

    file_weights: int
    device_weights: int | None
    device_kv: int | None
    device: int | None  # all buffers
    peak_rss: int | None
    grown: int | None  # resident memory that the repetitions after the first added


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What one decoded token reads, and how fast this memory is."""

    weights: int  # bytes a token
    keys_values: float  # bytes a token, in the middle of the answer
    copy: float  # bytes a second that a plain copy reads and writes
    reached: float  # bytes a second at the best decode rate

    @property
    def share(self) -> float:
        """What decoding reaches of the copy."""
        return self.reached / self.copy


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one run found."""

    target: dict[str, Any]
    prompt: int
    generated: int
    reps: int
    figures: Figures
    token: Parts | None
    whole_prompt: Parts | None
    memory: Memory
    bandwidth: Bandwidth
    widths: tuple[Width, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data: every repetition, and what follows from them."""
        figures, best = self.figures, self.bandwidth
        return {
            **self.target,
            "prompt": self.prompt,
            "generated": self.generated,
            "reps": self.reps,
            "prefill": {"rate": figures.prefill.rate, "best": figures.prefill.best, "seconds": figures.prefill.seconds},
            "decode": {"rate": figures.decode.rate, "best": figures.decode.best, "seconds": figures.decode.seconds},
            "ttft": {"seconds": figures.first.seconds, "best": min(figures.first.seconds)},
            "token": None if self.token is None else asdict(self.token),
            "whole_prompt": None if self.whole_prompt is None else asdict(self.whole_prompt),
            "memory": asdict(self.memory),
            "bandwidth": {**asdict(best), "share": best.share},
            "sweep": [
                {"tokens": width.tokens, "rate": width.samples.rate, "best": width.samples.best, "same": width.same}
                for width in self.widths
            ],
        }


def run(target: Target, prompt: int, generated: int, reps: int, say: Progress, *, widths: bool = False) -> Report:
    """Measures the target; `widths` adds prefill with each tile width of its device.

    Raises UsageError for counts that measure nothing.
    """
    check(prompt, generated, reps)
    figures = measure(target, prompt, generated, reps, say)
    say("taking a step apart")
    ids = prompt_of(target, prompt)
    token = probe.decode(target, ids, figures.steps, generated - 1)
    whole_prompt = probe.prefill(target, ids, CHUNK)
    swept = sweep(target, ids, reps, CHUNK, say) if widths else ()
    memory = _memory(target, figures)  # before the copy, which takes some for itself
    say("measuring a copy")
    return Report(
        target=facts(target),
        prompt=prompt,
        generated=generated,
        reps=reps,
        figures=figures,
        token=token,
        whole_prompt=whole_prompt,
        memory=memory,
        bandwidth=_bandwidth(target, prompt + generated / 2, figures.decode.best),
        widths=swept,
    )


def check(prompt: int, generated: int, reps: int) -> None:
    """Raises UsageError for counts that measure nothing."""
    for name, value, least in (("-prompt", prompt, 1), ("-gen", generated, LEAST_GENERATED)):
        if value < least:
            raise UsageError(f"{name} is {value}; it may be {least} or more")
    check_reps(reps)


def facts(target: Target) -> dict[str, Any]:
    """What is measured and where, as plain data."""
    gpu = target.webgpu
    return {
        "version": __version__,
        "model": target.name,
        "synthetic": target.synthetic,
        "device": target.device,
        "kernels": _kernels(target),
        "numerics": target.executor.numerics,
        "kv": target.kv,
        "dispatches": gpu.dispatches if gpu else None,
        "context": target.context,
        "load_seconds": target.load_seconds,
        "notes": list(target.notes),
    }


def _kernels(target: Target) -> str:
    """Which variants compute, in a few words."""
    gpu = target.webgpu
    if gpu is None:
        return f"{target.executor.numerics}, {getattr(target.executor, 'residence', '')}".rstrip(", ")
    launch = gpu.device.launch
    tokens = "/".join(str(count) for count in launch.tokens)
    return f"{launch.name} {launch.tile.lanes}x{launch.tile.rows}, {tokens} tokens a workgroup"


def _memory(target: Target, figures: Figures) -> Memory:
    gpu = target.webgpu
    return Memory(
        file_weights=target.file_bytes,
        device_weights=gpu.memory.weight_bytes if gpu else None,
        device_kv=gpu.memory.kv_bytes if gpu else None,
        device=gpu.device.allocated if gpu else None,
        peak_rss=peak_rss(),
        grown=figures.grown,
    )


def _bandwidth(target: Target, position: float, rate: float) -> Bandwidth:
    weights = weight_bytes(target)
    keys_values = kv_bytes(target.program, position, target.kv)
    return Bandwidth(weights, keys_values, copy_bandwidth(target), (weights + keys_values) * rate)
