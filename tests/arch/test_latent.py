"""Multi-head latent attention: what the keys of its files come to, in both forms, and what is refused by name."""

import math
from types import SimpleNamespace

import pytest

from llamay import gguf
from llamay.arch import Latents, Mixture, describe, frequencies
from llamay.errors import MalformedFile

LITE, LATER = "deepseek2-lite.f16", "deepseek3.f32"
YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0, "rope__scaling__original_context_length": 4096}


def described(named_case, name, **changes):
    """The case's Config with keys changed: `a__b` is a.b, None removes it."""
    with gguf.open(named_case(name).path) as file:
        metadata = {**file.metadata, **{f"deepseek2.{key.replace('__', '.')}": value for key, value in changes.items()}}
        kept = {key: value for key, value in metadata.items() if value is not None}
        return describe(SimpleNamespace(metadata=kept, tensors=file.tensors))


def test_the_fixtures(named_case):
    lite, later = described(named_case, LITE), described(named_case, LATER)
    assert lite.latents == Latents(rank=16, asked=0, own=12, turned=8, value=12)
    assert lite.mixture == Mixture(4, 2, 16, 32, "softmax", False, 1.0, dense=1)
    assert later.latents == Latents(rank=32, asked=40, own=24, turned=16, value=20)
    assert later.mixture == Mixture(8, 2, 48, 96, "sigmoid", True, 2.5, dense=1, groups=4, groups_used=2)
    assert later.feed_forward == (128, 48, 48) and set(later.kv_heads) == {1}
    assert (later.head_dim, later.value_dim, lite.head_dim) == (48, 0, 40)  # what pages keep, in whole units
    assert later.attention_scale == 40**-0.5 and later.unread_keys == () == lite.unread_keys


def test_sizes_of_the_first_files(named_case):
    """They give the sizes of heads where others give those of latents."""
    first = {f"attention__{part}_length_mla": None for part in ("key", "value")}
    found = described(named_case, LATER, **first, attention__key_length=40, attention__value_length=20, attention__head_count_kv=4)
    usual = described(named_case, LATER)
    assert (found.latents, found.kv_heads, found.attention_scale) == (usual.latents, usual.kv_heads, usual.attention_scale)


def test_yarn_lengthens_the_scale_in_place_of_cos_and_sin(named_case):
    """The published sizes of DeepSeek V3: mscale_all_dim of 1 and a context stretched 40 times."""
    config = described(named_case, LATER, **YARN, rope__scaling__yarn_log_multiplier=0.1)
    longer = 0.1 * math.log(40) + 1
    assert math.isclose(config.attention_scale, 40**-0.5 * longer**2)
    turns, magnitude = frequencies(config.rotary[0])
    assert math.isclose(magnitude, 1.0) and len(turns) == 8
    config = described(named_case, LATER, **YARN)
    assert config.attention_scale == 40**-0.5 and math.isclose(frequencies(config.rotary[0])[1], longer)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__kv_lora_rank": None}, r"no key deepseek2\.attention\.kv_lora_rank"),
        ({"attention__kv_lora_rank": 1 << 20}, r"kv_lora_rank is 1048576, expected 1 to 4096"),
        ({"attention__q_lora_rank": -1}, r"q_lora_rank is -1, expected 0 to 65536"),
        ({"attention__key_length_mla": 16}, "heads have keys of 16 values, of which 16 turn"),
        ({"rope__dimension_count": None}, r"no key deepseek2\.rope\.dimension_count"),
        ({"rope__dimension_count": 7}, r"rope\.dimension_count is 7, expected an even number"),
        ({"leading_dense_block_count": 4}, r"leading_dense_block_count is 4, expected 0 to 3"),
        ({"expert_group_count": 3}, "2 of 8 experts cannot be chosen from 2 of 3 equal groups"),
        ({"expert_group_count": 8, "expert_group_used_count": 1}, "2 of 8 experts cannot be chosen from 1 of 8"),
        ({"expert_group_used_count": 5}, r"expert_group_used_count is 5, expected 0 to 4"),
        ({"rope__scaling__yarn_log_multiplier": 1e9}, "yarn_log_multiplier is 1000000000"),
    ],
)
def test_hostile_sizes_are_refused_by_name(changes, words, named_case):
    with pytest.raises(MalformedFile, match=words):
        described(named_case, LATER, **changes)


def test_one_group_is_none(named_case):
    assert described(named_case, LATER, expert_group_count=1, expert_group_used_count=1).mixture.groups == 0
    assert described(named_case, LATER, expert_group_used_count=4).mixture.groups == 0
