"""The dispatches that sample on a device: which kernels, in which order, over which buffers.

Two routes, a slot takes one.  Short: two dispatches, while top_k (or the vocabulary) is
at most SHORT.  Whole: the filters select over the whole vocabulary by histograms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from llamay.sample.sampling import Sampling
from llamay.sample.terms import SHORT, WHOLE, Terms

BLOCK = 4096  # tokens a workgroup looks at
WORK = 544  # words of a slot's `work`; wgsl/include/sample_work.wgsl lays them out

KEYS = {0: "terms", 3: "keys", 4: "work"}

Choices = dict[str, int | bool | str]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel of wgsl/, its choices, its grid and the buffer at each binding."""

    kernel: str
    choices: Choices
    grid: tuple[int, int]
    buffers: dict[int, str]


def buffer_words(slots: int, vocabulary: int) -> dict[str, int]:
    """Words of each buffer that sampling owns.  `work` and the levels begin zero; the kernels leave them so."""
    return {
        "shortlist": slots * blocks(vocabulary) * SHORT * 2,
        "keys": slots * vocabulary,
        "work": slots * WORK,
        "level0": slots * 1024 * 2,
        "level1": slots * 2048 * 2,
        "level2": slots * 2048 * 2,
        "chosen": slots,
    }


def blocks(vocabulary: int) -> int:
    """Workgroups that look at one row of logits."""
    return -(-vocabulary // BLOCK)


def route(samplings: Sequence[Sampling], vocabulary: int, masked: bool = False) -> tuple[Dispatch, ...]:
    """What turns `logits` into `chosen`, for these slots.

    Buffers besides those of buffer_words: logits, terms (Terms.words of each slot), dims
    and state (of the step), and where a slot needs them counts, recent, bias, allowed.
    Raises UsageError when a sampling does not fit the vocabulary.
    """
    terms = [Terms.of(sampling, vocabulary) for sampling in samplings]
    whole = [t for t in terms if not t.shortlisted(vocabulary)]
    plan = _Plan(vocabulary, len(terms), any(t.repeat is not None for t in terms), any(t.bias for t in terms), masked)
    steps: list[Dispatch] = []
    if len(whole) < len(terms):
        steps += [plan.first("sample_top", {2: "shortlist"}), plan.last("sample_shortlist", {4: "shortlist"})]
    if whole:
        steps.append(plan.first("sample_keys", {3: "keys", 4: "work"}))
        if any(t.top_k for t in whole):
            steps += plan.pick("top_k")
        if any(t.typical < WHOLE for t in whole):
            steps += [plan.scan("sample_moments"), *plan.pick("typical")]
        if any(t.typical < WHOLE or t.top_p < WHOLE for t in whole):
            steps += plan.pick("top_p")
        steps += [plan.scan("sample_masses"), plan.last("sample_draw", {4: "work", 5: "keys"})]
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class _Plan:
    vocabulary: int
    slots: int
    penalties: bool
    bias: bool
    masked: bool

    def first(self, kernel: str, buffers: dict[int, str]) -> Dispatch:
        wanted = {5: ("counts", self.penalties), 6: ("bias", self.bias), 7: ("allowed", self.masked)}
        extra = {at: name for at, (name, on) in wanted.items() if on}
        choices: Choices = {"penalties": self.penalties, "bias": self.bias, "masked": self.masked}
        return self._scan(kernel, choices, {0: "terms", 1: "logits", **buffers, **extra})

    def last(self, kernel: str, buffers: dict[int, str]) -> Dispatch:
        row = {0: "dims", 1: "terms", 2: "state", 3: "chosen"}
        extra = {6: "counts", 7: "recent"} if self.penalties else {}
        choices: Choices = {"vocabulary": self.vocabulary, "penalties": self.penalties}
        return Dispatch(kernel, choices, (self.slots, 1), {**row, **buffers, **extra})

    def scan(self, kernel: str) -> Dispatch:
        return self._scan(kernel, {}, KEYS)

    def pick(self, name: str) -> list[Dispatch]:
        steps = []
        for level in range(3):
            histograms = {5: f"level{level}"} | ({6: f"level{level - 1}"} if level else {})
            steps.append(self._scan("sample_histogram", {"pick": name, "level": level}, KEYS | histograms))
        end: Choices = {"vocabulary": self.vocabulary, "pick": name}
        levels = {5: "level0", 6: "level1", 7: "level2"}
        return [*steps, Dispatch("sample_settle", end, (self.slots, 1), KEYS | levels)]

    def _scan(self, kernel: str, choices: Choices, buffers: dict[int, str]) -> Dispatch:
        grid = (blocks(self.vocabulary), self.slots)
        return Dispatch(kernel, {"vocabulary": self.vocabulary, **choices}, grid, buffers)
