"""pick.wgsl: each output slot's token into the ring and into the row that the next step reads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay.tensor import twins
from llamay.tensor.webgpu.state import RING, SLOTS

TAKEN_AT = 1
SLOTS_AT = TAKEN_AT + SLOTS + 2
ROWS_AT = SLOTS_AT + 4 * SLOTS + 1
OUTPUTS_AT = ROWS_AT + 4 * 40
RING_AT = OUTPUTS_AT + SLOTS + 2
WORDS = RING_AT + RING * SLOTS + 5
PLACES = {"SLOTS_AT": SLOTS_AT, "TAKEN_AT": TAKEN_AT, "SLOTS": SLOTS, "RING": RING}
DIMS = {"rows_at": ROWS_AT, "outputs_at": OUTPUTS_AT, "ring_at": RING_AT}


def state_of(random, outputs, taken):
    """Random words, with the slots' steps and their output rows as given."""
    state = random.integers(0, 1 << 30, WORDS).astype(np.uint32)
    state[OUTPUTS_AT : OUTPUTS_AT + len(outputs)] = outputs
    state[TAKEN_AT : TAKEN_AT + len(outputs)] = taken
    return state


def after(state, outputs, taken, tokens):
    """What is to become of the state."""
    state = state.copy()
    for slot, (row, count, token) in enumerate(zip(outputs, taken, tokens, strict=True)):
        at, row_at = SLOTS_AT + 4 * slot, ROWS_AT + 4 * row
        state[at : at + 4] = token, state[row_at + 1] + 1, *state[row_at + 2 : row_at + 4]
        state[TAKEN_AT + slot] = count + 1
        state[RING_AT + count % RING * SLOTS + slot] = token
    return state


def best_of(logits, height, vocabulary):
    """What the head leaves: the largest of each tile and its lowest token [slot, tile, 2]."""
    tiles = -(-vocabulary // height)
    padded = np.full((len(logits), tiles * height), -3.4e38, np.float32)
    padded[:, :vocabulary] = logits
    cut = padded.reshape(len(logits), tiles, height)
    tokens = cut.argmax(-1) + np.arange(tiles) * height
    return np.stack([cut.max(-1).view(np.uint32), tokens.astype(np.uint32)], -1)


def pick(lab, launch, state, outputs, *, best=None, chosen=None, logits=None):
    greedy = best is not None
    choices = {"greedy": greedy, **PLACES}
    read = {"best": best} if greedy else {"chosen": chosen, "logits": logits.view(np.uint32)}
    dims = {**DIMS, "partials_out": best.shape[1] if greedy else 0, "vocabulary": 0 if greedy else logits.shape[1]}
    return lab.run(lab.variant(launch), "pick", choices, (len(outputs), 1, 1), dims, read, {"state": state})["state"]


def test_by_hand(lab):
    state = np.zeros(WORDS, np.uint32)
    state[ROWS_AT : ROWS_AT + 8] = [11, 5, 900, 800, 12, 8, 901, 801]  # token, position, tables
    state[OUTPUTS_AT : OUTPUTS_AT + 2] = [1, 0]
    best = best_of(np.array([[1, 3, 3, -1], [-5, -6, -4, -4]], np.float32), 2, 4)
    found = pick(lab, "own", state, [1, 0], best=best)
    assert found[SLOTS_AT : SLOTS_AT + 8].tolist() == [1, 9, 901, 801, 2, 6, 900, 800]
    assert found[TAKEN_AT : TAKEN_AT + 3].tolist() == [1, 1, 0]
    assert found[RING_AT : RING_AT + 3].tolist() == [1, 2, 0]
    assert found[ROWS_AT : ROWS_AT + 8].tolist() == [11, 5, 900, 800, 12, 8, 901, 801]


@pytest.mark.parametrize("launch", ["own", "portable"])
def test_greedy(lab, launch):
    @settings(max_examples=15)
    @given(
        slots=st.integers(1, SLOTS),
        vocabulary=st.one_of(st.integers(1, 300), st.sampled_from([32, 2048, 4100])),
        height=st.sampled_from([16, 32, 64]),
        levels=st.sampled_from([1, 2, 1000]),  # distinct values: 1 is all ties
        seed=st.integers(0, 2**32 - 1),
    )
    def check(slots, vocabulary, height, levels, seed):
        random = np.random.default_rng(seed)
        logits = (random.integers(0, levels, (slots, vocabulary)) - levels / 2).astype(np.float32)
        outputs, taken = random.integers(0, 40, slots), random.integers(0, 3 * RING, slots)
        state = state_of(random, outputs, taken)
        found = pick(lab, launch, state, outputs, best=best_of(logits, height, vocabulary))
        assert np.array_equal(found, after(state, outputs, taken, twins.pick(logits)))

    check()


@given(slots=st.integers(1, SLOTS), vocabulary=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_chosen(lab, slots, vocabulary, seed):
    """With a sampler's tokens it only moves them, but for those whose logits are no finite numbers."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, vocabulary, slots).astype(np.uint32)
    logits = random.choice(np.array([0.5, -1e30, 3.4e38, -3.4e38, 1e-40, np.inf, -np.inf, np.nan], np.float32), (slots, vocabulary))
    kept = np.isfinite(logits[np.arange(slots), tokens])
    outputs, taken = random.permutation(40)[:slots], random.integers(0, 3 * RING, slots)
    outputs = outputs if len(outputs) == slots else random.integers(0, 40, slots)
    state = state_of(random, outputs, taken)
    found = pick(lab, "own", state, outputs, chosen=tokens, logits=logits)
    assert np.array_equal(found, after(state, outputs, taken, np.where(kept, tokens, 0xFFFFFFFF)))


def test_rows_without_a_number_have_no_token(lab):
    """What the head leaves of a row of NaN, or of minus infinity: no tile has a best."""
    state = state_of(np.random.default_rng(2), [0, 1], [0, 0])
    best = np.zeros((2, 3, 2), np.uint32)
    best[..., 0], best[..., 1] = np.float32(-3.4e38).view(np.uint32), 0xFFFFFFFF
    best[1, 2] = np.float32(-5.0).view(np.uint32), 40
    found = pick(lab, "own", state, [0, 1], best=best)
    assert found[RING_AT : RING_AT + 2].tolist() == [0xFFFFFFFF, 40]


def test_continuing_from_the_slots(lab):
    """A step that continues: its rows are the slots themselves, its outputs 0, 1, 2."""
    random = np.random.default_rng(1)
    state = state_of(random, [0, 1, 2], [RING - 1, 4, 5])
    best = best_of(random.standard_normal((3, 50)).astype(np.float32), 16, 50)
    choices = {"greedy": True, **PLACES}
    dims = {**DIMS, "rows_at": SLOTS_AT, "partials_out": best.shape[1]}
    before = state[SLOTS_AT : SLOTS_AT + 12].reshape(3, 4).astype(int)
    found = lab.run(lab.variant("own"), "pick", choices, (3, 1, 1), dims, {"best": best}, {"state": state}, passes=2)
    now = found["state"][SLOTS_AT : SLOTS_AT + 12].reshape(3, 4)
    assert np.array_equal(now[:, 1:], before[:, 1:] + [2, 0, 0])
    ring = found["state"][RING_AT : RING_AT + RING * SLOTS].reshape(RING, SLOTS)
    assert [ring[RING - 1, 0], ring[0, 0], ring[4, 1], ring[5, 1]] == [now[0, 0], now[0, 0], now[1, 0], now[1, 0]]
