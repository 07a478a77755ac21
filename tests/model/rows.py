"""Tiny models of architectures that are another's block under their own name or with one difference, made from their names.

Their weights are bits of a counter, so no file holds them; `tests/data/rows.npz` has what llama.cpp computes of the same files
(`python tests/model/rows.py NAME FILE.gguf` writes one): for each row the logits at `AT` of `IDS`, and the tokens it continues with
(`python tests/model/rows.py NAME LOGITS.npy TOKENS...` adds them, logits of all positions), or the vector it makes of `IDS`.
"""

import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.gguf import write
from llamay.quant import TensorType

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, VOCABULARY = 64, 4, 2, 16, 96, 160
EXPERTS, USED = 4, 2
INNER, STATES, STEPS = 128, 16, 8  # of a state space
IDS = [(7 * i * i + 3 * i + 11) % VOCABULARY for i in range(40)]
AT = [0, 1, 7, 8, 9, 23, 39]  # on both sides of a window of eight
REFERENCE = Path(__file__).parents[1] / "data" / "rows.npz"
WINDOW = {"attention.sliding_window": 8}


@dataclass(frozen=True)
class Row:
    """What a file of the architecture has beside or instead of llama's tensors and keys."""

    architecture: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    layer_norms: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    head_norms: int = 0  # heads that one norm of q goes over (and of k, as many as there are)
    biases: tuple[str, ...] = ()  # linears that have one
    gated: bool = True
    fused: bool = False  # q, k and v in one tensor
    fused_gate: bool = False  # gate and up in one
    positions: bool = False
    kv_heads: int = KV_HEADS
    ffn_norm: str = "ffn_norm"
    experts: bool = False
    shared: bool = False  # experts that all tokens use
    dense: int = 0  # first layers without experts
    choice_bias: bool = False  # of the sigmoids by which experts are chosen
    layers: int = 4
    linears: bool = False  # behind the mean of a model that embeds
    scanned: tuple[int, ...] = ()  # layers with a state space in place of attention
    fed: tuple[int, ...] | None = None  # layers that are a feed-forward and nothing else, where a layer has one branch
    groups: int = 1  # of a state space
    convolved: tuple[int, ...] = ()  # layers with a short convolution in place of attention
    norm_name: str = "output_norm"

    @property
    def embeds(self) -> bool:
        """Whether the reference is a vector of `IDS` instead of logits and tokens."""
        return "pooling_type" in self.keys

    def metadata(self) -> dict[str, Any]:
        eps = "attention.layer_norm_epsilon" if self.layer_norms else "attention.layer_norm_rms_epsilon"
        keyless = (*self.scanned, *self.convolved, *(self.fed or ()))
        kv_heads = [0 if layer in keyless else self.kv_heads for layer in range(self.layers)]
        own = {
            "context_length": 128, "embedding_length": HIDDEN, "block_count": self.layers, "feed_forward_length": WIDTH,
            "attention.head_count": HEADS, "attention.head_count_kv": kv_heads, eps: 1e-5,
            "rope.freq_base": 10000.0, "rope.dimension_count": HEAD_DIM, "vocab_size": VOCABULARY,
        }  # fmt: skip
        if self.scanned:
            own |= {
                "ssm.conv_kernel": 4, "ssm.inner_size": INNER, "ssm.state_size": STATES, "ssm.time_step_rank": STEPS,
                "ssm.group_count": self.groups,
            }  # fmt: skip
        if self.convolved:
            own["shortconv.l_cache"] = 3
        if self.fed is not None:
            own["feed_forward_length"] = [WIDTH if layer in self.fed else 0 for layer in range(self.layers)]
        if self.experts:
            own |= {"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": 32}
        named = {f"{self.architecture}.{key}": value for key, value in {**own, **self.keys}.items()}
        return {"general.architecture": self.architecture, "tokenizer.ggml.model": "no_vocab", **named}

    def tensors(self) -> Iterator[tuple[str, TensorType, tuple[int, ...], NDArray[np.float32]]]:
        yield matrix("token_embd", VOCABULARY, HIDDEN, 1.0)
        if not self.embeds:
            yield matrix("output", VOCABULARY, HIDDEN)
        if self.linears:
            yield matrix("dense_2", 2 * HIDDEN, HIDDEN)
            yield matrix("dense_3", HIDDEN, 2 * HIDDEN)
        if self.positions:
            yield matrix("position_embd", 128, HIDDEN, 0.5)
        yield from self._norm(self.norm_name)
        for layer in range(self.layers):
            yield from self._block(f"blk.{layer}", layer)

    def _norm(self, name: str, size: int = HIDDEN) -> Iterator[Any]:
        yield vector(f"{name}.weight", size, 1.0)
        if self.layer_norms:
            yield vector(f"{name}.bias", size)

    def _linear(self, name: str, rows: int, columns: int) -> Iterator[Any]:
        yield matrix(name, rows, columns)
        if name.rpartition(".")[2] in self.biases:
            yield vector(f"{name}.bias", rows)

    def _block(self, blk: str, layer: int) -> Iterator[Any]:
        if self.pre_norms:
            yield from self._norm(f"{blk}.attn_norm")
            yield from self._norm(f"{blk}.{self.ffn_norm}") if self.fed is None else ()
        if self.post_norms:
            yield from self._norm(f"{blk}.post_attention_norm")
            yield from self._norm(f"{blk}.post_ffw_norm")
        if layer in self.scanned:
            yield from self._scan(blk)
        elif layer in self.convolved:
            yield matrix(f"{blk}.shortconv.in_proj", 3 * HIDDEN, HIDDEN)
            yield matrix(f"{blk}.shortconv.conv", HIDDEN, 3)
            yield matrix(f"{blk}.shortconv.out_proj", HIDDEN, HIDDEN)
        elif layer not in (self.fed or ()):
            yield from self._attention(blk)
        if self.fed is not None and layer not in self.fed:
            return
        if not self.experts or layer < self.dense:
            for part in ("gate", "up") if self.gated and not self.fused_gate else ("up",):
                yield from self._linear(f"{blk}.ffn_{part}", WIDTH * (1 + self.fused_gate), HIDDEN)
            yield from self._linear(f"{blk}.ffn_down", HIDDEN, WIDTH)
            return
        yield matrix(f"{blk}.ffn_gate_inp", EXPERTS, HIDDEN)
        if self.choice_bias:
            yield vector(f"{blk}.exp_probs_b.bias", EXPERTS)
        sizes = (("gate", 32, HIDDEN), ("up", 32, HIDDEN), ("down", HIDDEN, 32))
        for part, rows, columns in sizes if self.gated else sizes[1:]:
            yield matrix(f"{blk}.ffn_{part}_exps", rows, columns, count=EXPERTS)
            if self.shared:
                yield matrix(f"{blk}.ffn_{part}_shexp", rows, columns)

    def _attention(self, blk: str) -> Iterator[Any]:
        q, kv = HEADS * HEAD_DIM, self.kv_heads * HEAD_DIM
        if self.head_norms:
            yield vector(f"{blk}.attn_q_norm.weight", HEAD_DIM * self.head_norms, 1.0)
            yield vector(f"{blk}.attn_k_norm.weight", HEAD_DIM * min(self.head_norms, self.kv_heads), 1.0)
        if self.fused:
            yield from self._linear(f"{blk}.attn_qkv", q + 2 * kv, HIDDEN)
        else:
            for part, rows in (("q", q), ("k", kv), ("v", kv)):
                yield from self._linear(f"{blk}.attn_{part}", rows, HIDDEN)
        yield from self._linear(f"{blk}.attn_output", HIDDEN, q)

    def _scan(self, blk: str) -> Iterator[Any]:
        convolved = INNER + 2 * STATES * self.groups
        yield matrix(f"{blk}.ssm_in", INNER + convolved + STEPS, HIDDEN)
        yield matrix(f"{blk}.ssm_conv1d", convolved, 4)
        yield vector(f"{blk}.ssm_conv1d.bias", convolved)
        yield vector(f"{blk}.ssm_dt.bias", STEPS)
        yield vector(f"{blk}.ssm_a", STEPS, -1.0, (1, STEPS))
        yield vector(f"{blk}.ssm_d", STEPS, 1.0, (1, STEPS))
        yield vector(f"{blk}.ssm_norm.weight", INNER, 1.0, (INNER // self.groups, self.groups))
        yield matrix(f"{blk}.ssm_out", HIDDEN, INNER)


def drawn(name: str, count: int) -> NDArray[np.float64]:
    """`count` numbers of [-1, 1) that half floats hold, by the name; NumPy promises the bits of its generators for ever."""
    raw = np.random.Philox(key=zlib.crc32(name.encode())).random_raw(count)
    return (raw >> np.uint64(54)).astype(np.float64) / 512 - 1


def matrix(name: str, rows: int, columns: int, size: float = 0.0, count: int = 1) -> Any:
    values = drawn(name, count * rows * columns) * (size or 2.0 * columns**-0.5)
    shape = (columns, rows) if count == 1 else (columns, rows, count)
    return f"{name}.weight", TensorType.F32, shape, values.astype(np.float16).astype(np.float32)


def vector(name: str, size: int, middle: float = 0.0, shape: tuple[int, ...] = ()) -> Any:
    values = middle + drawn(name, size) / 4
    return name, TensorType.F32, shape or (size,), values.astype(np.float16).astype(np.float32)


YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32,
    "rope.scaling.attn_factor": 1.1,
}  # fmt: skip
QKV = ("attn_q", "attn_k", "attn_v")
ALL = (*QKV, "attn_qkv", "attn_output", "ffn_up", "ffn_down")
SIGMOID = {"expert_gating_func": 2, "expert_weights_norm": True}
DEEPSEEK = {"expert_shared_count": 1, "leading_dense_block_count": 1, "expert_weights_scale": 1.0}

LINEARS = {"dense_2_feat_in": HIDDEN, "dense_2_feat_out": 2 * HIDDEN, "dense_3_feat_in": 2 * HIDDEN, "dense_3_feat_out": HIDDEN}
GRANITE = {"attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.6, "logit_scale": 2.0}
EMBEDS = {"pooling_type": 1, "attention.causal": False}

ROWS: dict[str, Row] = {
    "arcee": Row("arcee", gated=False),
    "bailingmoe": Row(
        "bailingmoe", {"expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 1.0}, experts=True, shared=True
    ),
    "bailingmoe2": Row(
        "bailingmoe2", {**SIGMOID, **DEEPSEEK, "rope.dimension_count": 8}, fused=True, head_norms=1, experts=True, shared=True,
        dense=1, choice_bias=True,
    ),
    "chatglm": Row("chatglm", {"rope.dimension_count": 8}, fused=True, fused_gate=True, biases=("attn_qkv",)),
    "codeshell": Row("codeshell", layer_norms=True, gated=False, fused=True, biases=ALL),
    "deepseek": Row("deepseek", DEEPSEEK, experts=True, shared=True, dense=1),
    "dots1": Row("dots1", {**SIGMOID, **DEEPSEEK}, head_norms=1, kv_heads=HEADS, experts=True, shared=True, dense=1, choice_bias=True),
    "ernie4_5": Row("ernie4_5"),
    "eurobert": Row("eurobert", EMBEDS),
    "exaone": Row("exaone"),
    "exaone4-32b": Row("exaone4", WINDOW, pre_norms=False, post_norms=True, head_norms=1, layers=64),
    "gemma-embedding": Row(
        "gemma-embedding",
        {**EMBEDS, **WINDOW, "rope.freq_base": 1e6, "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM, **LINEARS},
        post_norms=True, head_norms=1, layers=7, linears=True,
    ),
    "glm4moe": Row(
        "glm4moe", {**SIGMOID, **DEEPSEEK, "rope.dimension_count": 8}, biases=QKV, ffn_norm="post_attention_norm", experts=True,
        shared=True, dense=1, choice_bias=True,
    ),
    "granite-4": Row("granite", {**GRANITE, "rope.scaling.finetuned": False}),
    "granite-4-h": Row("granitehybrid", {**GRANITE, "rope.scaling.finetuned": False}, scanned=(0, 2, 3)),
    "granite-4-h-moe": Row(
        "granitehybrid",
        {**GRANITE, "feed_forward_length": 32, "expert_shared_feed_forward_length": 32},
        scanned=(0, 1, 3), experts=True, shared=True,
    ),
    "hunyuan-dense": Row("hunyuan-dense", head_norms=1),
    "hunyuan-moe": Row(
        "hunyuan-moe", {"feed_forward_length": 32, "expert_shared_feed_forward_length": 32}, head_norms=1, experts=True, shared=True
    ),
    "internlm2": Row("internlm2"),
    "jais2": Row("jais2", layer_norms=True, gated=False, biases=ALL, kv_heads=HEADS),
    "lfm2": Row("lfm2", head_norms=1, convolved=(0, 1, 3), norm_name="token_embd_norm"),
    "lfm2moe": Row(
        "lfm2moe", {**SIGMOID, "leading_dense_block_count": 1}, head_norms=1, convolved=(0, 3), norm_name="token_embd_norm",
        experts=True, dense=1, choice_bias=True,
    ),
    "llama-embed": Row("llama-embed", EMBEDS),
    "minicpm": Row("minicpm", {"logit_scale": 2.0}),
    "minicpm-stated": Row("minicpm", {"embedding_scale": 3.0, "residual_scale": 0.6, "logit_scale": 2.0}),
    "mistral3": Row(
        "mistral3",
        {**YARN, "rope.scaling.original_context_length": 64, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1},
    ),
    "mistral3-half": Row("mistral3", {**YARN, "rope.scaling.yarn_log_multiplier": 0.5}),
    "nemotron_h": Row("nemotron_h", {"attention.layer_norm_epsilon": 1e-3}, gated=False, scanned=(0, 2, 5), fed=(1, 4), layers=6, groups=2),
    "nemotron_h_moe": Row(
        "nemotron_h_moe",
        {
            **SIGMOID, "attention.layer_norm_epsilon": 1e-3, "expert_weights_scale": 1.5, "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 32,
        },
        gated=False, scanned=(0, 2, 5), fed=(1, 4), layers=6, groups=2, experts=True, shared=True, choice_bias=True,
    ),
    "olmo3": Row("olmo2", {**WINDOW, **YARN}, pre_norms=False, post_norms=True, head_norms=HEADS),
    "orion": Row("orion", layer_norms=True),
    "pangu-embedded": Row("pangu-embedded", biases=(*QKV, "attn_output")),
    # the llama.cpp that computed it does not read this one's epsilon
    "qwen2vl": Row("qwen2vl", {"rope.dimension_sections": [2, 3, 3, 0], "attention.layer_norm_rms_epsilon": 0.0}, biases=QKV),
    "qwen3vl": Row("qwen3vl", {"rope.dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 0}, head_norms=1),
    "qwen3vlmoe": Row(
        "qwen3vlmoe", {"rope.dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 0}, head_norms=1, experts=True
    ),
    "refact": Row("refact"),
    "seed_oss": Row("seed_oss", biases=QKV, ffn_norm="post_attention_norm"),
    "starcoder": Row("starcoder", layer_norms=True, gated=False, fused=True, biases=ALL, positions=True, kv_heads=1),
    "xverse": Row("xverse"),
}


def save(name: str, path: Path) -> None:
    """The row's file."""
    row = ROWS[name]
    write(path, row.metadata(), row.tensors())


def add(name: str, logits: Path, tokens: list[str]) -> None:
    """What was computed of the row's file goes to the reference."""
    known, found = dict(np.load(REFERENCE)), np.load(logits).astype(np.float32)
    if ROWS[name].embeds:
        known[f"{name}.vector"] = found
    else:
        known[f"{name}.logits"], known[f"{name}.greedy"] = found[AT], np.array(tokens, np.int32)
    np.savez_compressed(REFERENCE, **known)


if __name__ == "__main__":
    if sys.argv[2].endswith(".npy"):
        add(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    else:
        save(sys.argv[1], Path(sys.argv[2]))
