"""Configs of the tiny models, refusals by name, and hostile metadata."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay import gguf
from llamay.arch import ARCHITECTURES, BY_NAME, Architecture, Config, Rotary, Scaling, describe
from llamay.errors import LlamayError, MalformedFile, Unsupported

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 256,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def described(**changes) -> Config:
    """The config of LLAMA with keys changed: `a__b` is llama.a.b, None removes it."""
    metadata = dict(LLAMA)
    for name, value in changes.items():
        key = "general.architecture" if name == "architecture" else "llama." + name.replace("__", ".")
        metadata[key] = value
    architecture = metadata["general.architecture"]
    renamed = {
        key.replace("llama.", f"{architecture}.", 1): value for key, value in metadata.items() if value is not None
    }
    return describe(file_of(renamed))


def file_of(metadata, vocabulary=320, hidden=64, layers=2):
    names = {"token_embd.weight": (hidden, vocabulary)}
    names |= {f"blk.{layer}.attn_norm.weight": (hidden,) for layer in range(layers)}
    return SimpleNamespace(
        metadata=metadata, tensors={name: SimpleNamespace(shape=shape) for name, shape in names.items()}
    )


def test_llama():
    config = described()
    assert (config.layers, config.hidden, config.head_dim, config.vocabulary) == (2, 64, 16, 320)
    assert (config.heads, config.kv_heads, config.feed_forward) == ((4, 4), (2, 2), (128, 128))
    assert config.rotary == (Rotary(10000.0, 16),) * 2
    assert config.tied and config.attention_scale == 0.25 and config.embedding_scale == 1


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"general.architecture": "clip"}, "part of a model that sees"),
        ({"general.architecture": "clip", "general.type": "mmproj"}, "sees or hears"),
        ({**LLAMA, "general.type": "adapter"}, "LoRA adapter"),
        ({"general.type": "imatrix"}, "importance matrix"),
        ({"general.architecture": "controlvector"}, "control vector"),
    ],
)
def test_what_goes_with_a_model_is_told_apart(metadata, what):
    with pytest.raises(Unsupported, match=f"{what}.* name the one that this goes with"):
        describe(file_of(metadata))
    assert describe(file_of({**LLAMA, "general.type": "model"})).layers == 2


@pytest.mark.parametrize("name", ["llama", "mistral", "azmx"])
def test_names_that_reach_llama(name):
    config = described(architecture=name)
    assert config.architecture == name and config.pairs == "neighbours" and config.hidden == 64


def test_a_value_for_each_layer():
    config = described(attention__head_count=8, attention__key_length=8, attention__value_length=8)
    assert config.heads == (8, 8) and config.head_dim == 8


def test_every_tiny_model(case):
    with gguf.open(case.path) as file:
        config = describe(file)
    assert config.architecture == file.metadata["general.architecture"]
    assert config.unread_keys == ()
    row = BY_NAME[config.architecture]
    assert (config.head_norms, config.whole_norms) == (row.head_norms, row.whole_norms)
    assert (config.pre_norms, config.post_norms) == (row.pre_norms, row.post_norms)


def test_gemma3_has_two_bases_and_five_windows_to_one(named_case):
    with gguf.open(named_case("gemma3.f16").path) as file:
        config = describe(file)
    assert config.windows == (16, 16, 16, 16, 16, 0, 16)
    assert [rotary.base for rotary in config.rotary] == [1e4] * 5 + [1e6, 1e4]
    assert config.embedding_scale == 8 and config.attention_scale == 32**-0.5


def test_gemma2_alternates_and_caps(named_case):
    with gguf.open(named_case("gemma2.f16").path) as file:
        config = describe(file)
    assert config.windows == (16, 0, 16, 0)
    assert (config.attention_softcap, config.final_softcap) == (5.0, 3.0)


def test_the_documented_row_is_the_one_in_the_table():
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"```python\n(Architecture\(.*?\n\))\n```", page, re.DOTALL)
    assert eval(row, {"Architecture": Architecture}) == BY_NAME["olmo2"]


def test_the_readme_names_every_row():
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"\*\*Models\*\*: (.*)", text)
    missing = {row.names[0] for row in ARCHITECTURES} - set(re.findall(r"[\w-]+", line))
    assert not missing, "the list of models in README.md lacks them"


def test_every_row_has_a_fixture():
    names = set()
    for path in (Path(__file__).parents[1] / "data").glob("*/*.gguf"):
        with gguf.open(path) as file:
            names.add(file.metadata["general.architecture"])
    names |= set(re.findall(r'Row\(\s*"([\w-]+)"', (Path(__file__).parents[1] / "model" / "rows.py").read_text(encoding="utf-8")))
    wanted = {row.names[0] for row in ARCHITECTURES}
    assert not names - BY_NAME.keys(), "files of no row"
    assert not wanted - names, "no file of them in tests/data: docs/architecture.md says what a fixture is"


def test_what_makes_a_block_parallel(named_case):
    changes = {"attention__layer_norm_epsilon": 1e-5}
    assert described(architecture="phi2", **changes).parallel and not described(use_parallel_residual=True).parallel
    for stated in (True, False):
        assert described(architecture="gptneox", use_parallel_residual=stated, **changes).parallel == stated
    with pytest.raises(MalformedFile, match=r"gptneox\.use_parallel_residual is 1, expected true or false"):
        described(architecture="gptneox", use_parallel_residual=1, **changes)
    with pytest.raises(MalformedFile, match=r"no key gptneox\.use_parallel_residual"):
        described(architecture="gptneox", **changes)
    for name, parallel in (("stablelm-3b", False), ("stablelm-2-12b", True)):  # whatever the key says
        with gguf.open(named_case(f"{name}.f16").path) as file:
            metadata = {**file.metadata, "stablelm.use_parallel_residual": not parallel}
            config = describe(SimpleNamespace(metadata=metadata, tensors=file.tensors))
        assert config.parallel == parallel and config.unread_keys == ()


def test_layer_norms_take_their_own_epsilon():
    both = {"attention__layer_norm_rms_epsilon": 1e-3, "attention__layer_norm_epsilon": 1e-5}
    assert described(architecture="nemotron", **both).eps == 1e-5
    assert described(**both).eps == 1e-3
    with pytest.raises(MalformedFile, match=r"no key nemotron\.attention\.layer_norm_epsilon"):
        described(architecture="nemotron")


def test_cohere_multiplies_its_logits_and_slides_with_rope():
    changes = {"attention__layer_norm_epsilon": 1e-5, "logit_scale": 0.25, "attention__sliding_window": 16}
    assert described(architecture="command-r", **changes).logit_scale == 0.25
    metadata = {key.replace("llama.", "cohere2."): value for key, value in LLAMA.items()}
    metadata |= {"general.architecture": "cohere2", "cohere2.block_count": 5}
    metadata |= {"cohere2." + key.replace("__", "."): value for key, value in changes.items()}
    config = describe(file_of(metadata, layers=5))
    assert config.windows == (16, 16, 16, 0, 16) and [bool(rotary) for rotary in config.rotary] == [True] * 3 + [False, True]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("max_alibi_bias", 4.0, None), ("clamp_kqv", 6.0, "clamped queries, keys and values"), ("clamp_kqv", 0.0, None)],
)
def test_what_mpt_files_may_set(key, value, words):
    changes = {"attention__layer_norm_epsilon": 1e-5, f"attention__{key}": value}
    if words is None:
        assert described(architecture="mpt", **changes).alibi == (value or 8.0)
    else:
        with pytest.raises(Unsupported, match=f"this mpt file has {words}"):
            described(architecture="mpt", **changes)


def test_every_fourth_layer_of_smollm3_has_no_rope(named_case):
    with gguf.open(named_case("smollm3.f16").path) as file:
        config = describe(file)
    assert [rotary and rotary.base for rotary in config.rotary] == [2e6, 2e6, 2e6, None]


def test_phi3_looks_through_its_window(named_case):
    with gguf.open(named_case("phi3-swa.f16").path) as file:
        assert describe(file).windows == (16, 16)


def test_long_rope_is_told_by_its_factors(named_case):
    with gguf.open(named_case("phi3-longrope.f16").path) as file:
        (scaling,) = {rotary.scaling for rotary in describe(file).rotary}
        assert (scaling.kind, scaling.original_context) == ("longrope", 256)
        assert math.isclose(scaling.attention, (1 + math.log(4) / math.log(256)) ** 0.5, rel_tol=1e-6)


@pytest.mark.parametrize("name", ["olmo2", "exaone4"])
def test_larger_relatives_have_windows(name):
    config = described(architecture=name, attention__sliding_window=16, rope__scaling__type="yarn", rope__scaling__factor=2.0)
    assert config.windows == (16, 16) and None not in config.rotary
    assert (config.rotary[0].scaling is None) == (name == "olmo2")  # whose layers with a window have a rope that is not scaled
    assert described(architecture=name, attention__sliding_window=0).windows == (0, 0)


def test_minicpm_has_scales_of_its_own_where_its_file_says_none():
    config = described(architecture="minicpm")
    assert (config.embedding_scale, config.residual_scale) == (12, 1.4 / 2**0.5)
    assert config.logit_scale == 256 / config.hidden  # as the model's own code has it; llama.cpp takes the inverse
    assert described(architecture="minicpm", logit_scale=2.0).logit_scale == 0.5


def test_only_granite_says_by_its_tuning_that_there_is_no_rope():
    assert described(architecture="granite", rope__scaling__finetuned=False).rotary == (None, None)
    assert None not in described(architecture="minicpm", rope__scaling__finetuned=False).rotary


def test_layers_that_guess_further_tokens_take_no_part():
    assert described(nextn_predict_layers=1).layers == 1
    with pytest.raises(MalformedFile, match="nextn_predict_layers"):
        described(nextn_predict_layers=2)


def test_granite_takes_its_scales_from_the_file_and_llama_does_not():
    scales = {"attention__scale": 0.2, "embedding_scale": 4.0, "residual_scale": 0.6, "logit_scale": 2.0}
    config = described(architecture="granite", **scales)
    assert (config.attention_scale, config.embedding_scale) == (0.2, 4)
    assert (config.residual_scale, config.logit_scale) == (0.6, 0.5)
    config = described(**scales)
    assert (config.attention_scale, config.embedding_scale) == (0.25, 1)
    assert (config.residual_scale, config.logit_scale) == (1, 1)
    with pytest.raises(MalformedFile, match=r"granite\.logit_scale is 0\.0"):
        described(architecture="granite", logit_scale=0.0)


@pytest.mark.parametrize(
    ("name", "layers", "scale"),
    [("gemma2", 46, (64 / 4) ** -0.5), ("gemma3", 62, (64 / 4) ** -0.5), ("gemma3", 61, 32**-0.5)],
)
def test_the_27b_gemmas_scale_by_hidden_size(name, layers, scale):
    metadata = {key.replace("llama.", f"{name}."): value for key, value in LLAMA.items()}
    metadata |= {"general.architecture": name, f"{name}.block_count": layers}
    metadata |= {f"{name}.attention.key_length": 32, f"{name}.attention.value_length": 32}
    assert math.isclose(describe(file_of(metadata, layers=layers)).attention_scale, scale)


def test_a_window_pattern_of_the_file():
    metadata = {key.replace("llama.", "gemma3."): value for key, value in LLAMA.items()}
    metadata |= {"general.architecture": "gemma3", "gemma3.block_count": 6, "gemma3.attention.sliding_window": 32}
    metadata["gemma3.attention.sliding_window_pattern"] = 3
    assert describe(file_of(metadata, layers=6)).windows == (32, 32, 0, 32, 32, 0)


def test_rope_scaling():
    assert described(rope__scaling__type="linear", rope__scaling__factor=4.0).rotary[0].scaling == Scaling(
        "linear", 4.0
    )
    assert described(rope__scale_linear=2.0).rotary[0].scaling == Scaling("linear", 2.0)
    assert described(rope__scaling__type="none", rope__scaling__factor=4.0).rotary[0].scaling is None
    yarn = described(rope__scaling__type="yarn", rope__scaling__factor=8.0, rope__scaling__original_context_length=32)
    assert yarn.rotary[0].scaling == Scaling("yarn", 8.0, 32)


@pytest.mark.parametrize("name", ["jamba", "rwkv6", "no such thing", ""])
def test_other_architectures_are_refused_by_name(name):
    with pytest.raises(Unsupported, match="gemma3") as refusal:
        described(architecture=name)
    assert repr(name) in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": None}, "no key llama.block_count"),
        ({"block_count": 3}, r"block_count is 3, but the file has no tensor blk\.2\."),
        ({"block_count": 4_000_000_000}, "expected 1 to 4096"),
        ({"block_count": "two"}, "the string 'two', expected a whole number"),
        ({"block_count": True}, "expected a whole number"),
        ({"embedding_length": 65}, r"token_embd.weight has shape \[64, 320\], expected \[65, vocabulary\]"),
        ({"attention__head_count": 0}, "head_count is 0"),
        ({"attention__head_count_kv": 3}, "4 heads, not a multiple of its 3"),
        ({"attention__head_count": 64, "attention__head_count_kv": 64}, "1 dimensions"),
        ({"attention__key_length": 3, "attention__value_length": 3}, "even number"),
        ({"rope__dimension_count": 18}, "rope.dimension_count is 18"),
        ({"rope__dimension_count": 7}, "rope.dimension_count is 7"),
        ({"rope__freq_base": math.nan}, "freq_base is nan"),
        ({"rope__freq_base": 0.0}, "freq_base is 0.0"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "epsilon is -1.0"),
        ({"attention__layer_norm_rms_epsilon": None}, "no key llama.attention.layer_norm_rms_epsilon"),
        ({"context_length": 0}, "context_length is 0"),
        ({"rope__scaling__type": 7}, "expected a string"),
        ({"architecture": 5}, "no general.architecture string"),
    ],
)
def test_malformed(changes, words):
    with pytest.raises(MalformedFile, match=words):
        described(**changes)


def test_unsupported_features():
    with pytest.raises(Unsupported, match="keys of 16 and values of 32"):
        described(attention__key_length=16, attention__value_length=32)
    with pytest.raises(Unsupported, match="rope scaling 'longrope'"):
        described(rope__scaling__type="longrope")


def test_keys_that_change_nothing_are_told():
    config = described(attention__sliding_window=4096, some__new__key=1)
    assert config.unread_keys == ("llama.attention.sliding_window", "llama.some.new.key")


def test_more_tokens_than_rows(named_case):
    with gguf.open(named_case("llama-gqa.f16").path) as file:
        metadata = dict(file.metadata)
        metadata["llama.embedding_length"] = 64
        short = file_of(metadata, vocabulary=300, layers=3)
        with pytest.raises(MalformedFile, match=r"320 tokens, but token_embd\.weight only 300 rows"):
            describe(short)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64), st.floats(), st.text(max_size=5),
    st.sampled_from([0, 1, 2, 3, 4, 8, 16, 64, "yarn", "linear", 0.5, 1e4]),
)  # fmt: skip
KEYS = [key for key in LLAMA if key != "general.architecture"]
KEYS += [
    f"llama.{key}"
    for key in (
        "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
        "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
        "rope.scaling.yarn_ext_factor", "attention.key_length", "attention.value_length", "expert_count",
        "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_gating_func",
        "attention.sliding_window", "attention.sliding_window_pattern", "attn_logit_softcapping",
        "attention.layer_norm_epsilon", "attention.max_alibi_bias", "logit_scale", "use_parallel_residual",
    )
]  # fmt: skip


@given(st.sampled_from(sorted(BY_NAME)), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_hostile_values_give_a_config_or_a_typed_error(name, changes):
    experts = {"llama.expert_count": 4, "llama.expert_used_count": 2} if BY_NAME[name].experts == "always" else {}
    metadata = LLAMA | experts | {"llama.attention.layer_norm_epsilon": 1e-5} | changes
    metadata = {key.replace("llama.", f"{name}.", 1): value for key, value in metadata.items() if value is not None}
    metadata["general.architecture"] = name
    try:
        config = describe(file_of(metadata))
    except LlamayError as error:
        assert str(error)
    else:
        assert config.layers <= 2 and config.head_dim % 2 == 0
        assert all(h % k == 0 for h, k in zip(config.heads, config.kv_heads, strict=True))
