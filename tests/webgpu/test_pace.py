"""Submissions are cut by the time they would take, and the cuts change no bit."""

import dataclasses

import numpy as np
import pytest

from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu import pace as pace_module
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.pace import BOUND, SEEDS, SOFTWARE, Pace, Piece, Stretch

TABLE = np.arange(30, dtype=np.int32)


def adapter(type: str = "DiscreteGPU") -> Adapter:
    return Adapter("made up", type, "Vulkan", "driver", (), {}, None)


def stretch(steps: int, seconds: float, width: int = 1, rate: float = 1 / SEEDS["DiscreteGPU"]) -> Stretch:
    """So many steps, which an unmeasured device is thought to take so long over."""
    return Stretch([("p", f"g{i}", i, 1, 1) for i in range(steps)], seconds / (rate * width), width)


def flat(pieces: list[Piece]) -> list[object]:
    return [step for piece in pieces for step in piece.steps]


def test_hardware_is_bounded_and_slow_types_are_thought_slow() -> None:
    assert Pace(adapter()).bound == BOUND <= 0.2
    assert Pace(adapter("CPU")).bound == SOFTWARE
    assert Pace(adapter("Unknown")).rate(1) > Pace(adapter("DiscreteGPU")).rate(1)


def test_what_fits_is_joined_and_what_does_not_is_cut() -> None:
    pace = Pace(adapter())
    short = [stretch(10, 0.05) for _ in range(3)]
    assert [len(piece.steps) for piece in pace.pieces(short)] == [30]
    many = [stretch(10, 0.049) for _ in range(9)]
    assert [len(piece.steps) for piece in pace.pieces(many)] == [40, 40, 10]
    long = [stretch(100, 1.0)]
    pieces = pace.pieces(long)
    assert [len(piece.steps) for piece in pieces] == [20] * 5
    assert flat(pieces) == list(long[0].steps)
    mixed = [stretch(5, 0.1), stretch(100, 1.0), stretch(5, 0.1)]
    pieces = pace.pieces(mixed)
    assert flat(pieces) == [step for part in mixed for step in part.steps]
    assert all(piece.seconds <= BOUND * 1.001 for piece in pieces[:-1])


def test_a_list_is_not_cut_below_one_dispatch() -> None:
    pieces = Pace(adapter()).pieces([stretch(3, 100.0)])
    assert [len(piece.steps) for piece in pieces] == [1, 1, 1]


def test_nothing_is_no_piece() -> None:
    assert Pace(adapter()).pieces([]) == []


def test_measurements_correct_the_rate_of_their_width() -> None:
    pace = Pace(adapter())
    (piece,) = pace.pieces([stretch(10, 0.1, width=8)])
    pace.took(piece, 0.4)
    assert pace.seconds(stretch(10, 0.1, width=8)) == pytest.approx(0.4)
    assert len(pace.pieces([stretch(10, 0.1, width=8)])) == 2
    one = pace.pieces([stretch(1, 0.01, width=8)])[0]
    for seconds in (0.04, 4.0, 0.04, 0.0051, 0.04):  # odd ones out count for nothing
        pace.took(one, seconds)
    assert pace.seconds(stretch(10, 0.1, width=8)) == pytest.approx(0.4)
    for _ in range(7):  # but a device that has become slow does
        pace.took(one, 0.2)
    assert pace.seconds(stretch(10, 0.1, width=8)) == pytest.approx(2.0)


def test_a_width_never_measured_is_not_thought_faster_than_others() -> None:
    pace = Pace(adapter())
    (piece,) = pace.pieces([stretch(10, 0.1, width=4)])
    pace.took(piece, 1.0)
    assert pace.rate(8) == pytest.approx(2 * pace.rate(4))
    assert pace.rate(1) == pytest.approx(pace.rate(4))


def test_a_measurement_of_almost_nothing_says_nothing() -> None:
    pace = Pace(adapter())
    before = pace.rate(1)
    pace.took(Piece((), 0.1, {1: before}), 1e-5)
    pace.took(Piece((), 0.0, {1: before}), 1.0)
    assert pace.rate(1) == before


def test_rows_keep_the_heaviest_dispatch_within_the_bound() -> None:
    pace = Pace(adapter(), bound=0.1)
    rate = pace.rate(8)
    assert pace.rows(8, 0.01 / rate) == 80
    assert pace.rows(8, 1 / rate) == 8  # never less than one workgroup's
    assert pace.rows(8, 0) > 1 << 20


def greedy(executor, ids: np.ndarray, steps: int) -> list[int]:
    executor.begin((Sampling(temperature=0.0),), (ids,))
    executor.submit(Batch.single(ids, 0, TABLE), 1)
    executor.submit(None, steps - 1)
    return [*executor.collect()[:, 0], *executor.collect()[:, 0]]


@pytest.mark.parametrize("bound", [1e-5, 3e-3, pytest.param(1e-3, marks=pytest.mark.soak)])
def test_cuts_change_no_bit(bound: float, gpu, program, opened, monkeypatch: pytest.MonkeyPatch) -> None:
    case = program("llama-gqa.f16")
    ids = (np.arange(300, dtype=np.int32) * 7) % case.vocabulary
    batch = Batch.single(ids, 0, TABLE, np.arange(280, 300, dtype=np.int32))
    whole = opened(case, 30)
    whole.pace = Pace(gpu.adapter, bound=1e9)
    expected, tokens = whole.forward(batch), greedy(whole, ids, 6)
    counted = whole.meter.read().submissions
    cut = opened(case, 30)
    cut.pace = Pace(gpu.adapter, bound=bound)
    found, same = cut.forward(batch), greedy(cut, ids, 6)
    assert found.tobytes() == expected.tobytes()
    assert same == tokens
    assert cut.meter.read().submissions > 2 * counted


def test_a_mixed_batch_is_one_step_whatever_the_bound(gpu, program, opened) -> None:
    """Its first output lies in its first rows, so that no rows may be computed before the rest."""
    case = program("llama-gqa.f16")
    ids = (np.arange(40, dtype=np.int32) * 7) % case.vocabulary
    executor = opened(case, 30)
    executor.pace = Pace(gpu.adapter, bound=1e-9)
    one, other = TABLE[:4], TABLE[4:8]
    executor.forward(Batch.single(ids[:9], 0, one))
    batch = Batch(
        np.concatenate([ids[9:10], ids[:40]]),
        np.concatenate([[9], np.arange(40)]).astype(np.int32),
        np.array([0] + [1] * 40, np.int32),
        (one, other),
        np.array([0, 40], np.int32),
    )
    executor.begin((Sampling(temperature=0.0),) * 2, (ids[:10], ids))
    executor.submit(batch, 2)
    found = executor.collect()
    alone = [greedy(executor, ids[:10], 2), greedy(executor, ids, 2)]
    assert found.T.tolist() == alone


def test_submissions_are_measured(program, opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "LEAST", 1e-4)  # this model is small
    executor = opened(program("llama-gqa.f16"), 30)
    executor.pace = Pace(dataclasses.replace(executor.device.adapter, type="DiscreteGPU"))
    ids = (np.arange(120, dtype=np.int32) * 7) % executor.program.vocabulary
    widest = executor.device.launch.tokens[-1]
    before = {width: executor.pace.rate(width) for width in (1, widest)}
    for _ in range(4):
        executor.forward(Batch.single(ids, 0, TABLE))
        greedy(executor, ids, 8)
    executor.device.flush()
    assert executor.pace.rate(1) > 2 * before[1]  # a made-up discrete GPU is in truth a CPU
    assert executor.pace.rate(widest) > 2 * before[widest]
