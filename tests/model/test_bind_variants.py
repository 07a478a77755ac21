"""What files of an architecture may hold beside what its fixture holds: the same network said otherwise has the same logits."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile
from llamay.model import Bound, bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

Rows = np.ndarray[Any, np.dtype[np.uint8]]
Changed = Callable[..., gguf.File]
IDS, TABLE = np.arange(12, dtype=np.int32) * 7, np.array([0], np.int32)


@pytest.fixture
def changed(named_case, tmp_path: Path) -> Changed:
    """Writes a case anew: with other keys (None: without), each tensor through `through`, those of a prefix with another too."""

    def write(
        name: str,
        keys: Mapping[str, Any],
        through: Callable[[str, Rows], Rows] = lambda name, raw: raw,
        also: tuple[str, str] = ("", ""),
    ) -> gguf.File:
        file = gguf.open(named_case(name).path)
        architecture = file.metadata["general.architecture"]
        metadata = {**file.metadata, **{f"{architecture}.{key}": value for key, value in keys.items()}}
        tensors = [(one, t.type, t.shape, through(one, t.read(0, t.rows))) for one, t in file.tensors.items()]
        if also[0]:
            tensors += [(one.replace(*also), *rest) for one, *rest in tensors if one.startswith(also[0])]
        gguf.write(tmp_path / "changed.gguf", {key: value for key, value in metadata.items() if value is not None}, tensors)
        return gguf.open(tmp_path / "changed.gguf")

    return write


def bound(file: gguf.File) -> Bound:
    return bind(file, describe(file))


def logits(file: gguf.File) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = np.arange(len(IDS), dtype=np.int32)
    return NumpyExecutor(bound(file).program, 1).forward(Batch.single(IDS, 0, TABLE, rows))


@pytest.fixture
def plain(named_case) -> Callable[[str], Any]:
    """The logits of a case as it is."""
    return lambda name: logits(gguf.open(named_case(name).path))


def apart(name: str, raw: Rows) -> Rows:
    """q and k of glm4 as its writer leaves them where rope has sections: pairs are half of the 8 rotated dimensions apart."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return raw
    elements = raw.view(np.uint32 if name.endswith("bias") else np.uint16)  # of which a head has 16 rows
    order = [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]
    width = 1 if name.endswith("bias") else elements.shape[1]
    moved = np.ascontiguousarray(elements.reshape(-1, 16, width)[:, order])
    return moved.reshape(elements.shape).view(np.uint8)


def test_pairs_of_a_network_that_sees(changed: Changed, plain) -> None:
    """Text of GLM-4V is turned as any other, but its pairs lie otherwise than glm4's."""
    file = changed("glm4.f16", {"rope.dimension_sections": [2, 1, 1, 0]}, apart)
    assert describe(file).unread_keys == ()
    assert np.array_equal(logits(file), plain("glm4.f16"))
    told_nothing = changed("glm4.f16", {"rope.dimension_sections": [8, 0, 0, 0]})
    assert np.array_equal(logits(told_nothing), plain("glm4.f16"))


def test_layers_that_draft_stay_unread(changed: Changed, plain) -> None:
    """As GLM-OCR and GLM-4.7-Flash have one behind the others."""
    file = changed("glm4.f16", {"block_count": 3, "nextn_predict_layers": 1}, also=("blk.1.", "blk.2."))
    made = bound(file)
    assert len(made.program.layers) == 2 and made.audit.unread[0] == "blk.2.attn_norm.weight"
    assert np.array_equal(logits(file), plain("glm4.f16"))
    with pytest.raises(MalformedFile, match="nextn_predict_layers"):
        describe(changed("glm4.f16", {"nextn_predict_layers": 2}))


def test_experts_with_a_bias_are_chosen_by_sigmoids(changed: Changed, plain) -> None:
    """The first files of GLM-4.7-Flash do not say so."""
    assert np.array_equal(logits(changed("deepseek3.f32", {"expert_gating_func": None})), plain("deepseek3.f32"))


def test_final_logits_may_be_capped(changed: Changed, plain) -> None:
    expected = plain("gemma3.f16").astype(np.float64)
    found = logits(changed("gemma3.f16", {"final_logit_softcapping": 2.5}))
    np.testing.assert_allclose(found, 2.5 * np.tanh(expected / 2.5), atol=1e-6)
    assert np.abs(found - expected).max() > 0.1


def test_attention_that_sharpens_ends_the_context(changed: Changed, plain) -> None:
    """Mistral Large 3, a deepseek2 otherwise, divides by more beyond the positions it was first trained with."""
    file = changed("deepseek3.f32", {"attention.temperature_scale": 0.1, "attention.temperature_length": 16})
    assert describe(file).context == 16
    assert np.array_equal(logits(file), plain("deepseek3.f32"))
