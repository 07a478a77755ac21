"""The table of architectures: each row says in data how one family differs from the plain llama block."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from llamay.tensor.program import Activation

Pairs = Literal["neighbours", "halves"]
Norms = Literal["rms", "layer"]
Parallel = Literal["never", "always", "stated", "one norm"]
Experts = Literal["never", "maybe", "always"]
Scanned = Literal["", "channels", "heads"]
Softcaps = Literal["", "logits", "both"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row.  The defaults are llama's block: pre-norms, neighbouring rotary pairs, SwiGLU."""

    names: tuple[str, ...]  # what `general.architecture` says, and so the prefix of the keys
    pairs: Pairs = "neighbours"  # which two dimensions of a head turn together
    activation: Activation = "silu"
    norms: Norms = "rms"  # what a norm of h is; layer norms have a bias where the file has one
    head_norms: bool = False  # an RMS norm of each head of q and k before rope
    late_norms: bool = False  # head norms come after rope
    own_head_norms: bool = False  # a layer norm of each head of q and k with its own weights, where the file has them
    whole_norms: bool = False  # an RMS norm of all heads of q together, and of k, before rope
    post_norm_qk: bool = False  # the file may have layer norms of all heads of q and of k, with them up above gate, and attn_norm_2
    pre_norms: bool = True  # a norm of what each branch reads
    post_norms: bool = False  # a norm of each branch before it is added
    scaled_embedding: bool = False  # embeddings times sqrt(hidden)
    softcaps: Softcaps = ""  # final logits may be capped, or these and attention's
    parallel: Parallel = "never"  # when both branches read the same h: where the key says so, or a block has one norm
    gated: bool = True  # the feed-forward branch has a gate
    learned_positions: bool = False  # a vector for each position is added to the embedding
    embedding_norm: bool = False  # a norm of the embedding
    alibi: float = 0.0  # largest slope's exponent of ALiBi where the file gives none; 0: no ALiBi
    sliding: tuple[bool, ...] = ()  # which layers look through the window, repeated over the layers
    window: int = 0  # window where the file gives none; 0: full attention then
    sliding_rope: bool = False  # sliding layers have a rope of their own, which is never scaled
    sliding_base: float = 0.0  # its base where the file gives none; 0: that of the others
    wide_layers: int = 0  # with this many layers the softmax scale is (hidden / heads)^-0.5
    roped: tuple[bool, ...] | Literal["sliding"] = (True,)  # which layers have rope, repeated; those that slide, or all where none does
    rope_stated: bool = False  # there is none where the file says `rope.scaling.finetuned` false
    foreign: Mapping[str, str] = field(default_factory=dict)  # tensors or keys of what llamay does not run, by its name
    fused_gate: bool = False  # gate lies above up in ffn_up where the file has no ffn_gate
    multipliers: bool = False  # the file scales embeddings, attention and branches, and divides the logits
    scales: Mapping[str, Callable[[int, int], float]] = field(default_factory=dict)  # of (layers, hidden), where it says none
    scaled_logits: bool = False  # the file scales the logits
    both_ways: bool = False  # a position sees all of its text, which becomes a vector
    after_norms: bool = False  # a norm of h behind each branch that was added to it
    kinds: bool = False  # a vector for the first or the second text of a pair is added to the embedding
    experts: Experts = "never"  # whether a file of it is a mixture of experts
    normalised: bool = True  # the weights of the chosen experts sum to 1
    ffn_norm: str = "ffn_norm"  # the tensor that norms what the feed-forward reads
    sinks: bool = False  # each head has a logit that leads to no value
    whole_ramp: bool = True  # YaRN's ramp begins and ends at whole pairs
    latent: bool = False  # pages keep one row for all heads, of which keys and values are made
    scan: Scanned = ""  # a state space stands in place of both branches, whose channels or heads have their own steps
    hybrid: bool = False  # some layers have no heads of keys, where a state space or a convolution stands in place of attention
    short_conv: bool = False  # a short convolution stands in place of attention in layers that have no heads of keys
    single: bool = False  # a layer has one branch: attention where it has heads of keys, else what its width says


GEMMA3 = Architecture(
    names=("gemma3",),
    pairs="halves",
    activation="gelu_tanh",
    scaled_embedding=True,
    post_norms=True,
    head_norms=True,
    softcaps="logits",
    sliding=(True, True, True, True, True, False),
    sliding_rope=True,
    sliding_base=10000.0,
    wide_layers=62,
)

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(names=("llama", "mistral", "mistral3", "azmx"), experts="maybe"),
    Architecture(names=("internlm2", "xverse", "ernie4_5")),
    Architecture(names=("qwen2", "qwen2vl", "exaone", "pangu-embedded"), pairs="halves"),
    Architecture(names=("qwen3", "qwen3vl"), pairs="halves", head_norms=True),
    Architecture(names=("gemma",), pairs="halves", activation="gelu_tanh", scaled_embedding=True),
    Architecture(
        names=("gemma2",),
        pairs="halves",
        activation="gelu_tanh",
        scaled_embedding=True,
        post_norms=True,
        softcaps="both",
        sliding=(True, False),
        window=4096,
        wide_layers=46,
    ),
    GEMMA3,
    replace(GEMMA3, names=("gemma-embedding",), wide_layers=0, both_ways=True),
    Architecture(names=("llama-embed",), both_ways=True),
    Architecture(names=("eurobert",), pairs="halves", both_ways=True),
    Architecture(names=("smollm3",), roped=(True, True, True, False)),
    Architecture(names=("granite",), multipliers=True, rope_stated=True),
    Architecture(
        names=("minicpm",),
        multipliers=True,
        scales={
            "embedding_scale": lambda layers, hidden: 12.0,
            "residual_scale": lambda layers, hidden: 1.4 / layers**0.5,
            "logit_scale": lambda layers, hidden: hidden / 256,
        },
    ),
    Architecture(names=("phi3",), pairs="halves", sliding=(True,), fused_gate=True),
    Architecture(
        names=("olmo2",),
        pairs="halves",
        whole_norms=True,
        pre_norms=False,
        post_norms=True,
        sliding=(True, True, True, False),
        sliding_rope=True,
    ),
    Architecture(
        names=("exaone4",),
        pairs="halves",
        head_norms=True,
        pre_norms=False,
        post_norms=True,
        sliding=(True, True, True, False),
        roped="sliding",
    ),
    Architecture(names=("hunyuan-dense", "hunyuan-moe"), pairs="halves", head_norms=True, late_norms=True, experts="maybe"),
    Architecture(names=("seed_oss",), pairs="halves", ffn_norm="post_attention_norm"),
    Architecture(names=("arcee",), gated=False, activation="relu_squared"),
    Architecture(names=("chatglm",), fused_gate=True),
    Architecture(names=("refact",), roped=(False,), alibi=8.0),
    Architecture(names=("orion",), pairs="halves", norms="layer"),
    Architecture(names=("glm4",), post_norms=True, fused_gate=True),
    Architecture(names=("stablelm",), pairs="halves", norms="layer", own_head_norms=True, parallel="one norm"),
    Architecture(names=("gptneox",), pairs="halves", norms="layer", parallel="stated", gated=False, activation="gelu_erf"),
    Architecture(
        names=("starcoder2", "codeshell"), pairs="halves", norms="layer", gated=False, activation="gelu_tanh", sliding=(True,)
    ),
    Architecture(names=("phi2",), pairs="halves", norms="layer", parallel="always", gated=False, activation="gelu_tanh"),
    Architecture(names=("falcon",), pairs="halves", norms="layer", parallel="always", gated=False, activation="gelu_erf"),
    Architecture(names=("nemotron", "jais2"), pairs="halves", norms="layer", gated=False, activation="relu_squared"),
    Architecture(names=("command-r",), norms="layer", own_head_norms=True, parallel="always", scaled_logits=True),
    Architecture(
        names=("cohere2",),
        norms="layer",
        parallel="always",
        scaled_logits=True,
        sliding=(True, True, True, False),
        roped="sliding",
    ),
    Architecture(
        names=("gpt2", "starcoder"),
        norms="layer",
        gated=False,
        activation="gelu_tanh",
        roped=(False,),
        learned_positions=True,
    ),
    Architecture(
        names=("mpt",),
        norms="layer",
        gated=False,
        activation="gelu_erf",
        roped=(False,),
        alibi=8.0,
        foreign={
            "attention.clamp_kqv": "clamped queries, keys and values",
            "position_embd.weight": "learned positions",
            "blk.0.attn_q_norm.weight": "norms of queries and keys",
        },
    ),
    Architecture(
        names=("bloom",),
        norms="layer",
        gated=False,
        activation="gelu_tanh",
        roped=(False,),
        embedding_norm=True,
        alibi=8.0,
    ),
    Architecture(
        names=("bert",),
        norms="layer",
        pre_norms=False,
        after_norms=True,
        gated=False,
        activation="gelu_erf",
        roped=(False,),
        learned_positions=True,
        embedding_norm=True,
        kinds=True,
        both_ways=True,
    ),
    Architecture(
        names=("nomic-bert",),
        pairs="halves",
        norms="layer",
        pre_norms=False,
        after_norms=True,
        embedding_norm=True,
        kinds=True,
        both_ways=True,
    ),
    Architecture(
        names=("jina-bert-v2",),
        norms="layer",
        pre_norms=False,
        after_norms=True,
        activation="gelu_erf",
        fused_gate=True,
        roped=(False,),
        alibi=8.0,
        embedding_norm=True,
        kinds=True,
        both_ways=True,
        post_norm_qk=True,
    ),
    Architecture(names=("qwen2moe",), pairs="halves", experts="always", normalised=False),
    Architecture(names=("qwen3moe", "qwen3vlmoe"), pairs="halves", head_norms=True, experts="always"),
    Architecture(names=("olmoe",), pairs="halves", whole_norms=True, experts="always", normalised=False),
    Architecture(names=("granitemoe",), multipliers=True, rope_stated=True, experts="always"),
    Architecture(
        names=("gpt-oss",),
        pairs="halves",
        activation="clipped",
        sliding=(True, False),
        experts="always",
        ffn_norm="post_attention_norm",
        sinks=True,
        whole_ramp=False,
    ),
    Architecture(names=("dots1", "bailingmoe2"), pairs="halves", head_norms=True, experts="always"),
    Architecture(
        names=("glm4moe",),
        pairs="halves",
        experts="always",
        ffn_norm="post_attention_norm",
        foreign={"blk.0.attn_q_norm.weight": "norms of queries and keys, as the largest have them"},
    ),
    Architecture(names=("deepseek", "bailingmoe"), experts="maybe", normalised=False),
    Architecture(names=("deepseek2",), latent=True, experts="maybe", normalised=False),
    Architecture(names=("mamba",), roped=(False,), scan="channels"),
    Architecture(names=("mamba2",), roped=(False,), scan="heads"),
    Architecture(
        names=("granitehybrid",), multipliers=True, rope_stated=True, experts="maybe", scan="heads", hybrid=True
    ),
    Architecture(names=("lfm2", "lfm2moe"), pairs="halves", head_norms=True, experts="maybe", hybrid=True, short_conv=True),
    Architecture(
        names=("nemotron_h", "nemotron_h_moe"),
        gated=False,
        activation="relu_squared",
        roped=(False,),
        experts="maybe",
        scan="heads",
        hybrid=True,
        single=True,
    ),
)

BY_NAME: dict[str, Architecture] = {name: row for row in ARCHITECTURES for name in row.names}
