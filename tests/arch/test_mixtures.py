"""Mixtures of experts: what their keys come to, and what of them is refused by name."""

from types import SimpleNamespace

import pytest

from llamay import gguf
from llamay.arch import BY_NAME, Mixture, Scaling, describe, frequencies
from llamay.arch.config import Rotary
from llamay.errors import MalformedFile, Unsupported

EXPECTED = {
    "mixtral": Mixture(4, 2, 96, 0, "softmax", True, 1.0),
    "qwen2moe": Mixture(6, 2, 48, 96, "softmax", False, 1.0),
    "qwen3moe": Mixture(8, 2, 48, 0, "softmax", True, 1.0),
    "olmoe": Mixture(8, 2, 48, 0, "softmax", False, 1.0),
    "granitemoe": Mixture(4, 2, 64, 0, "softmax", True, 1.0),
    "gpt-oss": Mixture(4, 2, 64, 0, "softmax", True, 1.0),
}


def described(named_case, name, **changes):
    """The case's Config with keys of its architecture changed: `a__b` is a.b, None removes it."""
    with gguf.open(named_case(f"{name}.f16").path) as file:
        metadata = dict(file.metadata)
        for key, value in changes.items():
            metadata[f"{metadata['general.architecture']}.{key.replace('__', '.')}"] = value
        kept = {key: value for key, value in metadata.items() if value is not None}
        return describe(SimpleNamespace(metadata=kept, tensors=file.tensors))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_fixtures(name, named_case):
    config = described(named_case, name)
    assert config.mixture == EXPECTED[name] and set(config.feed_forward) == {EXPECTED[name].width}


def test_what_a_file_may_say_of_the_weights(named_case):
    stated = described(named_case, "qwen2moe", expert_weights_norm=True, expert_weights_scale=2.5, expert_gating_func=2)
    assert (stated.mixture.gating, stated.mixture.normalised, stated.mixture.scale) == ("sigmoid", True, 2.5)
    assert described(named_case, "olmoe", expert_gating_func=3).mixture.normalised  # a softmax of the chosen
    assert described(named_case, "olmoe", expert_gating_func=1).mixture == EXPECTED["olmoe"]
    assert described(named_case, "olmoe", expert_weights_scale=0.0).mixture.scale == 1


def test_a_width_of_experts_goes_before_that_of_others(named_case):
    assert described(named_case, "mixtral", expert_feed_forward_length=48).mixture.width == 48
    assert described(named_case, "qwen3moe", feed_forward_length=None).mixture.width == 48


def test_gpt_oss(named_case):
    config = described(named_case, "gpt-oss")
    assert config.windows == (16, 0, 16, 0) and config.sinks and config.activation == "clipped"
    assert config.ffn_norm == "post_attention_norm" and not config.rotary[0].scaling.whole


def test_a_ramp_between_whole_pairs_and_one_that_is_not():
    """The published sizes: 8.09 to 17.40 pairs, which others round to 8 and 18."""
    scaling = Scaling("yarn", 32.0, 4096, whole=False)
    exact, magnitude = frequencies(Rotary(150000.0, 64, scaling))
    rounded, _ = frequencies(Rotary(150000.0, 64, Scaling("yarn", 32.0, 4096)))
    plain, _ = frequencies(Rotary(150000.0, 64))
    assert (exact[:9] == plain[:9]).all() and rounded[8] == plain[8] and rounded[9] < exact[9] < plain[9]
    assert (abs(exact[18:] * 32 / plain[18:] - 1) < 1e-12).all() and rounded[17] > exact[17] > plain[17] / 32
    assert abs(magnitude - 1.3465735902799727) < 1e-12


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("qwen2moe", {"expert_count": 0}, r"qwen2moe\.expert_count is 0, expected 1 to 1024"),
        ("qwen3moe", {"expert_count": None}, r"no key qwen3moe\.expert_count"),
        ("olmoe", {"expert_count": 1 << 20}, r"olmoe\.expert_count is 1048576, expected 1 to 1024"),
        ("mixtral", {"expert_count": -1}, r"llama\.expert_count is -1, expected 0 to 1024"),
        ("mixtral", {"expert_used_count": 0}, r"llama\.expert_used_count is 0, expected 1 to 4"),
        ("gpt-oss", {"expert_used_count": 5}, r"gpt-oss\.expert_used_count is 5, expected 1 to 4"),
        ("mixtral", {"expert_used_count": None}, r"no key llama\.expert_used_count"),
        ("mixtral", {"expert_used_count": "two"}, "the string 'two', expected a whole number"),
        ("qwen3moe", {"expert_feed_forward_length": -3}, r"expert_feed_forward_length is -3"),
        ("qwen3moe", {"expert_gating_func": 9}, r"qwen3moe\.expert_gating_func is 9, expected 0 to 3"),
        ("qwen3moe", {"expert_weights_norm": 3}, "expert_weights_norm is 3, expected true or false"),
        ("qwen3moe", {"expert_weights_scale": float("inf")}, "expert_weights_scale is inf"),
    ],
)
def test_hostile_counts_are_refused_by_name(name, changes, words, named_case):
    with pytest.raises(MalformedFile, match=words):
        described(named_case, name, **changes)


def test_more_experts_than_any_model_has(named_case):
    """A small file could ask for millions of them."""
    with gguf.open(named_case("mixtral.f16").path) as file:
        many = {"llama.block_count": 4000, "llama.expert_count": 1000}
        last = {**file.tensors, "blk.3999.attn_norm.weight": file.tensors["blk.0.attn_norm.weight"]}
        with pytest.raises(MalformedFile, match="1000 experts in each of 4000 layers, expected at most 65536 in all"):
            describe(SimpleNamespace(metadata={**file.metadata, **many}, tensors=last))


def test_an_architecture_without_experts_refuses_them_and_says_which_have_some(named_case):
    with pytest.raises(Unsupported, match=r"this qwen2 file is a mixture of 8 experts; llamay runs those of llama, .*gpt-oss"):
        described(named_case, "qwen2", expert_count=8)
    assert described(named_case, "qwen2", expert_count=0, expert_used_count=0).mixture is None
    assert described(named_case, "llama-gqa", expert_count=0).mixture is None
    maybe = ["llama", "mistral", "mistral3", "azmx", "hunyuan-dense", "hunyuan-moe", "deepseek", "bailingmoe", "deepseek2"]
    maybe += ["granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"]
    assert [name for name, row in BY_NAME.items() if row.experts == "maybe"] == maybe
