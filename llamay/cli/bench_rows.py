"""The lines of measurements of contexts: forks, batches, questions on one prefix."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamay.bench.batch import Width
    from llamay.bench.forks import Forks
    from llamay.bench.questions import Answers
    from llamay.bench.target import Target


def heading(target: "Target") -> list[str]:
    """What is measured, and where."""
    return [f"{target.device} · {target.name} · kv {target.kv} · {target.executor.pages} pages", ""]


def forks(found: "Forks") -> list[str]:
    """Fork, snapshot, restore, and what they save."""
    from statistics import median

    from llamay.store.progress import size

    shared = f"{found.shared_tokens} of its {found.tokens} tokens"
    return [
        f"fork x{found.forks} {duration(median(found.fork_seconds))} {found.allocated} pages allocated "
        f"(a copy would be {found.copied})",
        f"generate x{found.forks} {duration(found.generate_seconds)} a token each, the original's; integrity holds",
        f"snapshot {duration(median(found.snapshot_seconds))} {size(found.page_bytes)} of pages, "
        f"{size(found.snapshot_bytes)} on disk",
        f"second snapshot {found.second_share:.1%} of the first's bytes: {size(found.second_bytes)}, sharing {shared}",
        f"restore {duration(found.restored)} vs {duration(found.prefill)} to re-prefill",
        f"Restoring a {found.tokens}-token context is {found.speedup:.1f}x faster than recomputing it.",
    ]


def batch(width: "Width", first: "Width") -> str:
    """One width, against width 1."""
    gain = width.samples.rate / first.samples.rate
    odd = "" if width.same else "  OTHER TOKENS"
    return (
        f"batch {width.width:>3}{width.samples.rate:>10.1f} tok/s  best {width.samples.best:>9.1f} {gain:>7.2f}x"
        f"   cpu {1e3 * width.cpu:.2f}ms a token, {1e3 * width.host:.2f}ms of it the scheduler's{odd}"
    )


def questions(found: "Answers") -> list[str]:
    """The three ways, the slowest last."""
    shape, cold = found.shape, found.cold_seconds
    again = f", {found.preempted} preempted" if found.preempted else ""
    return [
        f"{shape.questions} questions of {shape.question} tokens on a prefix of {shape.prefix}, "
        f"{shape.answer} tokens to each answer; all ways answer alike",
        f"{'prefix':<8}{duration(found.prefix_seconds):>9}   computed once",
        f"{'forked':<8}{duration(found.forked_seconds):>9}   {duration(found.forked):>8} with the prefix "
        f"{cold / found.forked:>6.1f}x faster than cold",
        f"{'warm':<8}{duration(found.warm_seconds):>9}   {duration(found.warm):>8} with the prefix "
        f"{cold / found.warm:>6.1f}x faster than cold",
        f"{'cold':<8}{duration(cold):>9}   every question computes the prefix{again}",
    ]


def duration(seconds: float) -> str:
    """65us, 74ms, 3.149s."""
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.0f}ms" if seconds < 0.9995 else f"{seconds:.3f}s"
