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

Choice = int | bool | str
Choices = dict[str, Choice]
Buffers = dict[int, str]
KEYS: Buffers = {0: "terms", 3: "keys", 4: "work"}


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel of wgsl/, its choices, its grid and the buffer at each binding."""

    kernel: str
    choices: Choices
    grid: tuple[int, int]
    buffers: Buffers


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
    typical = any(t.typical < WHOLE for t in whole)
    plan = _Plan(
        vocabulary=vocabulary,
        slots=len(terms),
        penalties=any(t.repeat is not None for t in terms),
        bias=any(t.bias for t in terms),
        masked=masked,
        typical=typical,
    )
    steps: list[Dispatch] = []
    if len(whole) < len(terms):
        steps += [plan.first("sample_top", {2: "shortlist"}), plan.last("sample_shortlist", {4: "shortlist"})]
    if whole:
        steps.append(plan.first("sample_keys", {3: "keys", 4: "work"}))
        if any(t.top_k for t in whole):
            steps += plan.pick("top_k")
        if typical:
            steps += [plan.scan("sample_moments"), *plan.pick("typical")]
        if typical or any(t.top_p < WHOLE for t in whole):
            steps += plan.pick("top_p")
        steps += [plan.scan("sample_masses"), plan.last("sample_draw", {4: "work", 5: "keys"}, typical=typical)]
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class _Plan:
    vocabulary: int
    slots: int
    penalties: bool
    bias: bool
    masked: bool
    typical: bool

    def first(self, kernel: str, buffers: Buffers) -> Dispatch:
        """A pass over the logits."""
        wanted = {5: ("counts", self.penalties), 6: ("bias", self.bias), 7: ("allowed", self.masked)}
        extra = {at: name for at, (name, on) in wanted.items() if on}
        adjust: Choices = {"penalties": self.penalties, "bias": self.bias, "masked": self.masked, "typical": False}
        return self.scan(kernel, {0: "terms", 1: "logits", **buffers, **extra}, **adjust)

    def scan(self, kernel: str, buffers: Buffers = KEYS, **choices: Choice) -> Dispatch:
        """A pass over every token of every slot."""
        return Dispatch(kernel, self._choices(choices), (blocks(self.vocabulary), self.slots), buffers)

    def each(self, kernel: str, buffers: Buffers, **choices: Choice) -> Dispatch:
        """One workgroup for each slot."""
        return Dispatch(kernel, self._choices(choices), (self.slots, 1), buffers)

    def last(self, kernel: str, buffers: Buffers, typical: bool = False) -> Dispatch:
        """The draw."""
        extra = {6: "counts", 7: "recent"} if self.penalties else {}
        row = {0: "dims", 1: "terms", 2: "state", 3: "chosen"}
        return self.each(kernel, {**row, **buffers, **extra}, penalties=self.penalties, typical=typical)

    def pick(self, name: str) -> list[Dispatch]:
        """A filter: three levels of histograms and the end."""
        steps = []
        for level in range(3):
            histograms = {5: f"level{level}"} | ({6: f"level{level - 1}"} if level else {})
            steps.append(self.scan("sample_histogram", KEYS | histograms, pick=name, level=level))
        levels = {5: "level0", 6: "level1", 7: "level2"}
        return [*steps, self.each("sample_settle", KEYS | levels, pick=name)]

    def _choices(self, more: Choices) -> Choices:
        return {"vocabulary": self.vocabulary, "typical": self.typical, **more}
