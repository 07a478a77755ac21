"""Vectors and scores are those of the reference, and a text's depend on the text alone, bit for bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamay import arch, gguf, model
from llamay.errors import OutOfMemory, UsageError
from llamay.serve.encoding import Encoded, batch_of
from llamay.tensor.numpy import NumpyExecutor

DATA = Path(__file__).parents[1] / "data"
TOLERANCE = 2e-4


def test_the_reference_and_batches(encoder, opened):
    """All prompts in one step, each alone, and in another order: the same bits, and the reference's vectors."""
    assert encoder.bound.audit.unread == () and encoder.config.unread_keys == ()
    executor = opened(encoder.bound.program)
    texts = [encoder.text(prompt) for prompt in encoder.prompts]
    assert len(texts) == 4
    together = executor.forward(batch_of(texts))
    for at, prompt in enumerate(encoder.prompts):
        found = encoder.finished(together[at])
        assert np.abs(found - encoder.expected(prompt)).max() <= TOLERANCE, prompt
        assert np.array_equal(executor.forward(batch_of([texts[at]]))[0], together[at]), prompt
    assert np.array_equal(executor.forward(batch_of(texts[::-1]))[::-1], together)


def test_many_texts_are_one_submission(named, gpu):
    from llamay.tensor.webgpu.device import Guest
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    encoder = named("bert-mean")
    guest = Guest(gpu)
    try:
        executor = WebGPUExecutor(guest, encoder.bound.program, 32, rows=256)
        submit, submitted = executor.encoder.submit, []
        executor.encoder.submit = lambda steps, *rest, **more: submitted.append(len(steps)) or submit(steps, *rest, **more)
        executor.pace.bound = 60.0  # seconds: a slow machine would cut it, so that nobody waits for long
        assert executor.forward(batch_of([encoder.text("p7")] * 32)).shape == (32, 64)
        assert len(submitted) == 1
    finally:
        guest.close()


@pytest.mark.parametrize("opened", ["numpy", pytest.param("webgpu", marks=pytest.mark.soak)], indirect=True)
def test_beyond_the_first_split_of_attention(named, opened):
    """A text of 300 tokens beside a short one, against float64."""
    encoder = named("jina-bert-v2")
    program = replace(encoder.bound.program, context=512)
    random = np.random.default_rng(3)
    texts = [Encoded(tuple(random.integers(5, 320, length).tolist())) for length in (300, 9)]
    executor, precise = opened(program, pages=32, rows=320), NumpyExecutor(program, 32, precise=True)
    found, expected = executor.forward(batch_of(texts)), precise.forward(batch_of(texts))
    assert np.abs(found - expected).max() <= 2e-5
    assert np.array_equal(executor.forward(batch_of(texts[1:]))[0], found[1])


def test_a_step_that_no_binding_holds_is_refused(named, gpu):
    from llamay.tensor.webgpu.device import Guest
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    encoder, guest = named("bert-mean"), Guest(gpu)
    program = replace(encoder.bound.program, context=1 << 18)
    try:
        with pytest.raises(OutOfMemory, match=r"attention over 262144 tokens in one step .* -device numpy would do"):
            WebGPUExecutor(guest, program, (1 << 14) + 4, rows=1 << 18)
    finally:
        guest.close()


def test_kinds_of_tokens(named, opened):
    encoder = named("bert-rerank")
    executor = opened(encoder.bound.program)
    ids = encoder.text("p33").ids
    plain, first, second = (Encoded(ids, kinds) for kinds in ((), (0,) * 33, (0,) * 9 + (1,) * 24))
    rows = executor.forward(batch_of([plain, first, second]))
    assert np.array_equal(rows[0], rows[1]) and np.abs(rows[0] - rows[2]).max() > 1e-3
    precise = NumpyExecutor(encoder.bound.program, 24, precise=True).forward(batch_of([plain, first, second]))
    assert np.abs(rows - precise).max() <= 2e-5


def test_a_decoder_gives_its_last_rows(opened):
    """In chunks as in one piece, and whatever stands beside it; the last norm is left to the host."""
    file = gguf.open(DATA / "models" / "qwen3.f16.gguf")
    config = replace(arch.describe(file), pooling="last")
    bound = model.bind(file, config)
    random = np.random.default_rng(1)
    texts = [Encoded(tuple(random.integers(5, 300, length).tolist())) for length in (70, 9, 1)]
    executor, precise = opened(bound.program, rows=32), NumpyExecutor(bound.program, 24, precise=True)
    found = executor.forward(batch_of(texts))
    assert np.abs(found - precise.forward(batch_of(texts))).max() <= 2e-5 * np.abs(found).max()
    for at, text in enumerate(texts):
        assert np.array_equal(executor.forward(batch_of([text]))[0], found[at])
    batch = batch_of(texts[:1])
    part = [replace(batch, tokens=batch.tokens[at], positions=batch.positions[at], sequences=batch.sequences[at], kinds=None)
            for at in (slice(0, 40), slice(40, 70))]  # fmt: skip
    executor.forward(replace(part[0], outputs=np.empty(0, np.int32)))
    assert np.array_equal(executor.forward(replace(part[1], outputs=np.array([29], np.int32)))[0], found[0])


def test_what_is_no_whole_text_is_refused(named, opened):
    encoder = named("bert-mean")
    executor = opened(encoder.bound.program)
    batch = batch_of([encoder.text("p33")])
    cut = replace(batch, tokens=batch.tokens[:9], positions=batch.positions[1:10], sequences=batch.sequences[:9], kinds=None)
    with pytest.raises(UsageError, match="computed in one batch"):
        executor.forward(replace(cut, outputs=np.array([8], np.int32)))
    with pytest.raises(UsageError, match="kinds of tokens beyond the 2"):
        executor.forward(replace(batch, kinds=np.full(33, 2, np.int32)))
