"""The shapes of real models and the usual mixes of tensor types, from which synthetic models are made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from llamay.arch import Config, Mixture, Rotary
from llamay.arch.table import BY_NAME
from llamay.errors import UsageError
from llamay.quant import LAYOUTS, TensorType, type_named
from llamay.quant.codebooks import CODEBOOKS

T = TensorType


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of one network.  `window` applies to the layers its architecture lets slide.

    With experts `feed_forward` is the width of each.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    rope_base: float
    tied: bool = True
    window: int = 0
    experts: int = 0
    used: int = 0

    def config(self) -> Config:
        """The network as a file of it would describe it."""
        row = BY_NAME[self.architecture]
        slides = [bool(row.sliding) and row.sliding[layer % len(row.sliding)] for layer in range(self.layers)]
        full, local = Rotary(self.rope_base, self.head_dim), Rotary(row.sliding_base or self.rope_base, self.head_dim)
        return Config(
            architecture=self.architecture,
            layers=self.layers,
            hidden=self.hidden,
            heads=(self.heads,) * self.layers,
            kv_heads=(self.kv_heads,) * self.layers,
            head_dim=self.head_dim,
            feed_forward=(self.feed_forward,) * self.layers,
            context=self.context,
            vocabulary=self.vocabulary,
            eps=1e-6,
            rotary=tuple(local if slide else full for slide in slides),
            windows=tuple(self.window if slide else 0 for slide in slides),
            pairs=row.pairs,
            activation=row.activation,
            head_norms=row.head_norms,
            whole_norms=row.whole_norms,
            pre_norms=row.pre_norms,
            post_norms=row.post_norms,
            fused_gate=row.fused_gate,
            ffn_norm=row.ffn_norm,
            sinks=row.sinks,
            tied=self.tied,
            attention_scale=self.head_dim**-0.5,
            embedding_scale=self.hidden**0.5 if row.scaled_embedding else 1.0,
            attention_softcap=50.0 if row.softcaps == "both" else 0.0,
            final_softcap=30.0 if row.softcaps == "both" else 0.0,
            mixture=self._mixture(row.normalised) if self.experts else None,
        )

    def _mixture(self, normalised: bool) -> Mixture:
        return Mixture(self.experts, self.used, self.feed_forward, 0, "softmax", normalised, 1.0)

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor's name and shape, the fastest dimension first."""
        row, hidden, wide = BY_NAME[self.architecture], self.hidden, self.feed_forward
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", (hidden, self.vocabulary)
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            for part, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                yield f"{blk}{part}.weight", (hidden, rows)
                if self.architecture == "qwen2":
                    yield f"{blk}{part}.bias", (rows,)
            yield f"{blk}attn_output.weight", (q, hidden)
            kind, stacked = ("_exps", (self.experts,)) if self.experts else ("", ())
            yield f"{blk}ffn_gate{kind}.weight", (hidden, wide, *stacked)
            yield f"{blk}ffn_up{kind}.weight", (hidden, wide, *stacked)
            yield f"{blk}ffn_down{kind}.weight", (wide, hidden, *stacked)
            if self.experts:
                yield f"{blk}ffn_gate_inp.weight", (hidden, self.experts)
            if row.sinks:
                yield f"{blk}attn_sinks.weight", (self.heads,)
            norms = ["attn_norm", row.ffn_norm, *(("post_attention_norm", "post_ffw_norm") if row.post_norms else ())]
            yield from ((f"{blk}{norm}.weight", (hidden,)) for norm in norms)
            if row.head_norms:
                yield from ((f"{blk}attn_{part}_norm.weight", (self.head_dim,)) for part in "qk")
            if row.whole_norms:
                yield from ((f"{blk}attn_{part}_norm.weight", (rows,)) for part, rows in (("q", q), ("k", kv)))
        yield "output_norm.weight", (hidden,)
        if not self.tied:
            yield "output.weight", (hidden, self.vocabulary)


LLAMA3, QWEN2, QWEN3, GEMMA = 128256, 151936, 151936, 262144  # vocabularies

# architecture, layers, hidden, heads, kv heads, head dim, feed forward, vocabulary, context, rope base
SHAPES: dict[str, Shape] = {
    "tiny": Shape("llama", 2, 256, 4, 2, 64, 512, 512, 2048, 1e4),
    "smollm2-135m": Shape("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5),
    "smollm2-360m": Shape("llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5),
    "smollm2-1.7b": Shape("llama", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1.3e5),
    "llama-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, LLAMA3, 131072, 5e5),
    "llama-3b": Shape("llama", 28, 3072, 24, 8, 128, 8192, LLAMA3, 131072, 5e5),
    "llama-8b": Shape("llama", 32, 4096, 32, 8, 128, 14336, LLAMA3, 131072, 5e5, tied=False),
    "qwen-0.5b": Shape("qwen2", 24, 896, 14, 2, 64, 4864, QWEN2, 32768, 1e6),
    "qwen-1.5b": Shape("qwen2", 28, 1536, 12, 2, 128, 8960, QWEN2, 32768, 1e6),
    "qwen-3b": Shape("qwen2", 36, 2048, 16, 2, 128, 11008, QWEN2, 32768, 1e6),
    "qwen-7b": Shape("qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e6, tied=False),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, QWEN3, 40960, 1e6),
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 16, 8, 128, 6144, QWEN3, 40960, 1e6),
    "qwen3-4b": Shape("qwen3", 36, 2560, 32, 8, 128, 9728, QWEN3, 40960, 1e6),
    "qwen3-8b": Shape("qwen3", 36, 4096, 32, 8, 128, 12288, QWEN3, 40960, 1e6, tied=False),
    "gemma-2b": Shape("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, 1e4, window=4096),
    "gemma3-270m": Shape("gemma3", 18, 640, 4, 1, 256, 2048, GEMMA, 32768, 1e6, window=512),
    "gemma3-1b": Shape("gemma3", 26, 1152, 4, 1, 256, 6912, GEMMA, 32768, 1e6, window=512),
    "granite-1b-a400m": Shape("granitemoe", 24, 1024, 16, 8, 64, 512, 49155, 4096, 1e4, experts=32, used=8),
    "olmoe-7b-a1b": Shape("olmoe", 16, 2048, 16, 16, 128, 1024, 50304, 4096, 1e4, tied=False, experts=64, used=8),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, 1.5e5, tied=False, window=128, experts=32, used=4),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 32, 4, 128, 768, QWEN3, 40960, 1e6, tied=False, experts=128, used=8),
    "gemma3-4b": Shape("gemma3", 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1e6, window=1024),
}


def _every_third(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def _first_eighth(layer: int, layers: int) -> bool:
    return layer < layers // 8


@dataclass(frozen=True, slots=True)
class Mix:
    """Which type each matrix has, as llama.cpp's recipe of that name has it by rule of thumb."""

    base: TensorType
    output: TensorType | None = T.Q6_K  # of the output matrix, or of the table that is both
    always: dict[str, TensorType] = field(default_factory=dict)  # by part, in every layer
    better: dict[str, TensorType] = field(default_factory=dict)  # by part, in the layers that `where` names
    where: Callable[[int, int], bool] = _every_third

    def type(self, name: str, columns: int, shape: Shape) -> TensorType:
        """The type of one tensor; a vector or a router is F32, and a matrix without whole blocks takes the next type that fits."""
        if not name.endswith(".weight") or any(part in name for part in ("norm", "gate_inp", "sinks")):
            return T.F32
        if name == "output.weight" or (name == "token_embd.weight" and shape.tied):
            return _fitting(self.output or self.base, columns)
        _, _, rest = name.partition("blk.")
        layer, _, part = rest.partition(".")
        part = part.removesuffix(".weight").removesuffix("_exps")
        chosen = self.always.get(part, self.base)
        if part in self.better and self.where(int(layer), shape.layers):
            chosen = self.better[part]
        return _fitting(chosen, columns)


MIXES: dict[str, Mix] = {
    "q3_k_m": Mix(T.Q3_K, always={"attn_v": T.Q4_K, "attn_output": T.Q4_K}, better={"ffn_down": T.Q4_K}),
    "q3_k_l": Mix(T.Q3_K, always={"attn_v": T.Q5_K, "attn_output": T.Q5_K, "ffn_down": T.Q5_K}),
    "q4_k_s": Mix(T.Q4_K, better={"attn_v": T.Q5_K, "ffn_down": T.Q5_K}, where=_first_eighth),
    "q4_k_m": Mix(T.Q4_K, better={"attn_v": T.Q6_K, "ffn_down": T.Q6_K}),
    "q5_k_s": Mix(T.Q5_K),
    "q5_k_m": Mix(T.Q5_K, better={"attn_v": T.Q6_K, "ffn_down": T.Q6_K}),
}

SMALLER_BLOCKS = {  # as llama.cpp chooses them where it quantises
    **dict.fromkeys((T.Q2_K, T.Q3_K, T.IQ4_XS, *CODEBOOKS), T.IQ4_NL),
    T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0, T.Q8_K: T.Q8_0,
    T.TQ1_0: T.Q4_0, T.TQ2_0: T.Q4_0, T.Q1_0: T.Q2_0, T.Q2_0: T.Q4_0, T.NVFP4: T.MXFP4,
}  # fmt: skip


def named(spec: str) -> tuple[Shape, Mix]:
    """The shape and mix of `llama-1b:q4_k_m`; a type's own name (`q4_k`) gives every matrix that type.

    Raises UsageError that lists what there is.
    """
    name, _, mix = spec.lower().partition(":")
    if name not in SHAPES:
        raise UsageError(f"no synthetic model {name!r}; there are {', '.join(SHAPES)}, followed by :TYPE")
    if mix in MIXES:
        return SHAPES[name], MIXES[mix]
    if mix.upper() not in {type.name for type in LAYOUTS}:
        types = ", ".join([*MIXES, *(type.name.lower() for type in LAYOUTS)])
        raise UsageError(f"{spec!r} asks for the type {mix!r}; there are {types}, as in {name}:q4_k_m")
    return SHAPES[name], Mix(type_named(mix), output=None)


def _fitting(type: TensorType, columns: int) -> TensorType:
    while columns % LAYOUTS[type].elements:
        if type not in SMALLER_BLOCKS:
            raise UsageError(f"rows of {columns} are not whole blocks of {type.name}")
        type = SMALLER_BLOCKS[type]
    return type
