"""From a file's metadata and tensor shapes to a Config, or a refusal by name."""

import math

from llamay.arch import latent, pooling, space
from llamay.arch.config import Config, Mixture, Rotary, Scaling
from llamay.arch.keys import Keys
from llamay.arch.table import BY_NAME, Architecture
from llamay.errors import MalformedFile, Unsupported
from llamay.gguf import Array, File

# Far beyond any real model; they only keep a hostile number from becoming an allocation.
MOST_LAYERS = 4096
MOST_WIDTH = 1 << 24
MOST_HEADS = 1 << 16
MOST_HEAD_DIM = 1 << 12
MOST_POSITIONS = (1 << 31) - 1
MOST_ALIBI = 64.0
LONG_FACTORS = "rope_factors_long.weight"  # what tells LongRoPE, whose files need not name a scaling
MOST_EXPERTS = 1 << 10
MOST_OF_ALL_LAYERS = 1 << 16  # experts
MOST_USED = 1 << 6
# What goes with a model and is none, by its general.type or its architecture.
PARTS = {
    "adapter": "a LoRA adapter",
    "clip": "the part of a model that sees",
    "controlvector": "a control vector",
    "imatrix": "an importance matrix, which quantisers read",
    "mmproj": "the part of a model that sees or hears",
}


def describe(file: File) -> Config:
    """The file's network.

    Raises Unsupported for an architecture or feature that llamay does not run, and
    MalformedFile where a value is missing, out of bounds or contradicts the tensors.
    """
    name = file.metadata.get("general.architecture")
    part = PARTS.get(str(file.metadata.get("general.type"))[:60]) or PARTS.get(str(name)[:60])
    if part is not None:
        raise Unsupported(f"the file holds {part}, and llamay runs whole models only: name the one that this goes with")
    if not isinstance(name, str):
        raise MalformedFile("the file has no general.architecture string, so nothing says what its tensors are")
    row = BY_NAME.get(name)
    if row is None:
        raise Unsupported(f"architecture {name[:60]!r} is not supported; supported are {', '.join(BY_NAME)}")
    keys = Keys(file.metadata, name)
    for sign, what in row.foreign.items():
        if sign in file.tensors or file.metadata.get(f"{name}.{sign}"):
            raise Unsupported(
                f"this {name} file has {what} ({sign}), which llamay does not run yet; without it {name} runs"
            )
    return _config(file, row, keys)


def _config(file: File, row: Architecture, keys: Keys) -> Config:
    layers = _layers(file, keys)
    vocabulary, hidden = _embedding(file, keys)
    latents = latent.sizes(keys) if row.latent else None
    spaces = space.sizes(row, keys) if row.scan else None
    whole = spaces is not None and not row.hybrid  # layers are state spaces and nothing else
    heads, kv_heads = ((0,) * layers, (0,) * layers) if whole else _heads(keys, layers, least=0 if row.hybrid else 1)
    if whole:
        head_dim, key_dim = 0, 1
    elif latents is None:
        head_dim = key_dim = _head_dim(keys, hidden, heads)
    else:
        head_dim, key_dim, kv_heads = latents.row, latents.own + latents.turned, (1,) * layers
    windows = _windows(row, keys, layers)
    keys.get("tensor_data_layout")  # says how the writer laid out what the names and shapes already say
    mixture = _mixture(file, row, keys, layers)
    wide = layers == row.wide_layers
    plain = {"embedding_scale": math.sqrt(hidden) if row.scaled_embedding else 1.0, "residual_scale": 1.0, "logit_scale": 1.0}
    plain |= {key: scale(layers, hidden) for key, scale in row.scales.items()}
    return Config(
        architecture=keys.prefix,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=(0,) * layers if whole else _widths(keys, layers, mixture, least=0 if row.single else 1),
        context=_context(keys),
        vocabulary=vocabulary,
        eps=_eps(row, keys),
        rotary=(None,) * layers if whole else _rotary(file, row, keys, windows, head_dim),
        windows=windows,
        pairs="halves" if _sections(keys) else row.pairs,
        activation=row.activation,
        head_norms=row.head_norms,
        whole_norms=row.whole_norms,
        pre_norms=row.pre_norms,
        post_norms=row.post_norms,
        fused_gate=row.fused_gate,
        norms=row.norms,
        late_norms=row.late_norms,
        own_head_norms=row.own_head_norms,
        post_norm_qk=row.post_norm_qk,
        parallel=_parallel(file, row, keys),
        gated=row.gated,
        learned_positions=row.learned_positions,
        embedding_norm=row.embedding_norm,
        alibi=keys.number("attention.max_alibi_bias", 0.0, MOST_ALIBI, default=row.alibi) if row.alibi else 0.0,
        ffn_norm=row.ffn_norm,
        sinks=row.sinks,
        tied="output.weight" not in file.tensors,
        attention_scale=_multiplier(row, keys, "attention.scale", (hidden / heads[0] if wide else key_dim) ** -0.5)
        * (latent.longer(keys) if row.latent else 1.0),
        embedding_scale=_multiplier(row, keys, "embedding_scale", plain["embedding_scale"]),
        residual_scale=_multiplier(row, keys, "residual_scale", plain["residual_scale"]),
        logit_scale=_logit_scale(row, keys, plain["logit_scale"]),
        attention_softcap=keys.number("attn_logit_softcapping", 0.0, 1e6, default=0.0) if row.softcaps == "both" else 0.0,
        both_ways=row.both_ways,
        after_norms=row.after_norms,
        kinds=row.kinds,
        pooling=pooling.pooling(file, row, keys),
        ranks=pooling.ranks(file),
        labels=pooling.labels(keys),
        final_softcap=keys.number("final_logit_softcapping", 0.0, 1e6, default=0.0) if row.softcaps else 0.0,
        mixture=mixture,
        latents=latents,
        space=spaces,
        single=row.single,
        short_conv=keys.integer("shortconv.l_cache", 2, space.MOST_KERNEL) if row.short_conv else 0,
        unread_keys=keys.unread(),
    )


def _heads(keys: Keys, layers: int, least: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Heads of queries, and of keys and values, by layer; `least` 0: some layers have none of these."""
    heads = keys.integers("attention.head_count", layers, 1, MOST_HEADS)
    kv_heads = keys.integers("attention.head_count_kv", layers, least, MOST_HEADS, default=heads)
    for layer, (queries, pairs) in enumerate(zip(heads, kv_heads, strict=True)):
        if pairs and queries % pairs:
            raise MalformedFile(f"layer {layer} has {queries} heads, not a multiple of its {pairs} kv heads")
    return heads, kv_heads


def _multiplier(row: Architecture, keys: Keys, key: str, plain: float) -> float:
    """A scale that only some architectures take from their file; `plain` for the rest, and where the file has none."""
    return keys.number(key, 1e-6, 1e6, default=plain) if row.multipliers else plain


def _logit_scale(row: Architecture, keys: Keys, plain: float) -> float:
    if row.scaled_logits:
        return keys.number("logit_scale", 1e-6, 1e6, default=plain)
    return 1.0 / _multiplier(row, keys, "logit_scale", plain)


def _parallel(file: File, row: Architecture, keys: Keys) -> bool:
    """Whether both branches of a block read the same h."""
    if row.parallel == "stated":
        return keys.flag("use_parallel_residual")
    if row.parallel == "one norm":
        keys.get("use_parallel_residual")  # writers say yes where the model's own settings say nothing
        return "blk.0.ffn_norm.weight" not in file.tensors
    return row.parallel == "always"


def _sections(keys: Keys) -> bool:
    """Whether sections of the pairs turn by where a part of a picture is.  Text has one position, and turns as without."""
    time, height, _, _ = keys.integers("rope.dimension_sections", 4, 0, MOST_HEAD_DIM, default=(0,) * 4)
    return time > 0 and height > 0


def _eps(row: Architecture, keys: Keys) -> float:
    """What norms add to the mean square or the variance."""
    if row.norms == "rms":
        keys.get("attention.layer_norm_epsilon")  # some writers give both; there is no layer norm here
        return keys.number("attention.layer_norm_rms_epsilon", 0.0, 1.0)
    keys.get("attention.layer_norm_rms_epsilon")  # as there is no RMS norm here
    return keys.number("attention.layer_norm_epsilon", 0.0, 1.0)


def _feed_forward(keys: Keys, layers: int, least: int = 1) -> tuple[int, ...]:
    return keys.integers("feed_forward_length", layers, least, MOST_WIDTH)


def _widths(keys: Keys, layers: int, mixture: Mixture | None, least: int) -> tuple[int, ...]:
    """Of each layer's feed-forward, or of one expert; `least` 0: some layers have none."""
    if mixture is None:
        return _feed_forward(keys, layers, least)
    if not least:
        return tuple(mixture.width if width else 0 for width in _feed_forward(keys, layers, least))
    dense = _feed_forward(keys, layers)[: mixture.dense] if mixture.dense else ()
    return dense + (mixture.width,) * (layers - len(dense))


def _mixture(file: File, row: Architecture, keys: Keys, layers: int) -> Mixture | None:
    """The experts of a file that has some; None for a dense one."""
    least = 1 if row.experts == "always" else 0
    count = keys.integer("expert_count", least, MOST_EXPERTS, default=None if least else 0)
    if not count:
        keys.get("expert_used_count")  # some dense files say 0
        return None
    if row.experts == "never":
        raise Unsupported(
            f"this {keys.prefix} file is a mixture of {count} experts; llamay runs those of "
            f"{', '.join(name for name, other in BY_NAME.items() if other.experts != 'never')}"
        )
    if count * layers > MOST_OF_ALL_LAYERS:
        raise MalformedFile(f"{count} experts in each of {layers} layers, expected at most {MOST_OF_ALL_LAYERS} in all")
    keys.get("feed_forward_length")  # of layers without experts, or theirs where nothing else is said
    gating = keys.integer("expert_gating_func", 0, 3, default=0)  # 0: not told, 3: softmax of the chosen
    if not gating and f"blk.{layers - 1}.exp_probs_b.bias" in file.tensors:
        gating = 2  # a bias that only chooses goes with sigmoids; the first files of GLM-4.7-Flash say no more
    used = keys.integer("expert_used_count", 1, min(count, MOST_USED))
    width = keys.integer("expert_feed_forward_length", 0, MOST_WIDTH, default=0) or _feed_forward(keys, layers)[0]
    several = keys.integer("expert_shared_count", 0, MOST_EXPERTS, default=0)
    shared = keys.integer("expert_shared_feed_forward_length", 0, MOST_WIDTH, default=0)
    groups, groups_used = _groups(keys, count, used)
    return Mixture(
        count=count,
        used=used,
        width=width,
        shared_width=shared or width * several,
        dense=keys.integer("leading_dense_block_count", 0, layers, default=0),
        groups=groups,
        groups_used=groups_used,
        gating="sigmoid" if gating == 2 else "softmax",
        normalised=gating == 3 or keys.flag("expert_weights_norm", default=row.normalised),
        scale=keys.number("expert_weights_scale", 0.0, 1e6, default=0.0) or 1.0,  # 0: some files' word for none
    )


def _groups(keys: Keys, count: int, used: int) -> tuple[int, int]:
    """(groups of experts, those that a token uses); zeros where it may use all."""
    groups = keys.integer("expert_group_count", 0, count, default=0)
    some = keys.integer("expert_group_used_count", 0, groups, default=groups)
    if groups <= 1 or some in (0, groups):
        return 0, 0
    if count % groups or used > count // groups * some:
        raise MalformedFile(f"{used} of {count} experts cannot be chosen from {some} of {groups} equal groups")
    return groups, some


def _layers(file: File, keys: Keys) -> int:
    """Of the network; those that some files have behind them, which draft further tokens, stay unread."""
    blocks = keys.integer("block_count", 1, MOST_LAYERS)
    layers = blocks - keys.integer("nextn_predict_layers", 0, blocks - 1, default=0)
    last = f"blk.{layers - 1}."
    if not any(name.startswith(last) for name in file.tensors):
        raise MalformedFile(f"{keys.prefix}.block_count is {blocks}, but the file has no tensor {last}*")
    return layers


def _context(keys: Keys) -> int:
    """Positions; of a model whose softmax gets sharper beyond some place, those up to that."""
    context = keys.integer("context_length", 1, MOST_POSITIONS)
    if keys.number("attention.temperature_scale", 0.0, 1e3, default=0.0):
        original = keys.integer("rope.scaling.original_context_length", 1, MOST_POSITIONS, default=context)
        return min(context, keys.integer("attention.temperature_length", 1, MOST_POSITIONS, default=original))
    return context


def _embedding(file: File, keys: Keys) -> tuple[int, int]:
    """Vocabulary and hidden size, from the embedding table and the keys together."""
    hidden = keys.integer("embedding_length", 1, MOST_WIDTH)
    table = file.tensors.get("token_embd.weight")
    if table is None:
        raise MalformedFile("the file has no tensor token_embd.weight (is it a vocabulary only?)")
    if len(table.shape) != 2 or table.shape[0] != hidden:
        raise MalformedFile(f"token_embd.weight has shape {list(table.shape)}, expected [{hidden}, vocabulary]")
    vocabulary = int(table.shape[1])
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, Array) else 0
    if count > vocabulary:
        raise MalformedFile(f"the tokenizer has {count} tokens, but token_embd.weight only {vocabulary} rows")
    keys.get("vocab_size")  # says the same as the table, or less where rows were padded
    return vocabulary, hidden


def _head_dim(keys: Keys, hidden: int, heads: tuple[int, ...]) -> int:
    derived = hidden // heads[0]
    head_dim = keys.integer("attention.key_length", 2, MOST_HEAD_DIM, default=derived)
    value_dim = keys.integer("attention.value_length", 2, MOST_HEAD_DIM, default=derived)
    if head_dim != value_dim:
        raise Unsupported(f"keys of {head_dim} and values of {value_dim} dimensions; llamay runs equal ones only")
    if head_dim % 2 or head_dim < 2:
        raise MalformedFile(f"heads have {head_dim} dimensions, expected an even number: rope turns pairs")
    return head_dim


def _windows(row: Architecture, keys: Keys, layers: int) -> tuple[int, ...]:
    """Positions each layer sees; 0: all."""
    if not row.sliding:
        return (0,) * layers
    window = keys.integer("attention.sliding_window", 0, MOST_POSITIONS, default=row.window)
    if window and row.both_ways:  # half to each side
        window = window // 2 + 1
    stated = keys.get("attention.sliding_window_pattern")
    if stated is None:
        sliding = tuple(row.sliding[layer % len(row.sliding)] for layer in range(layers))
    elif isinstance(stated, int):
        period = keys.integer("attention.sliding_window_pattern", 1, MOST_LAYERS)
        sliding = tuple((layer + 1) % period != 0 for layer in range(layers))
    else:
        sliding = keys.flags("attention.sliding_window_pattern", layers)
    return tuple(window if slides else 0 for slides in sliding)


def _rotary(
    file: File, row: Architecture, keys: Keys, windows: tuple[int, ...], head_dim: int
) -> tuple[Rotary | None, ...]:
    dimensions = keys.integer("rope.dimension_count", 2, MOST_HEAD_DIM, default=head_dim)
    if dimensions > head_dim or dimensions % 2:
        raise MalformedFile(
            f"{keys.prefix}.rope.dimension_count is {dimensions}, expected an even number up to {head_dim}"
        )
    if row.rope_stated and not keys.flag("rope.scaling.finetuned", default=True):
        keys.get("rope.freq_base")
        return (None,) * len(windows)
    full = Rotary(keys.number("rope.freq_base", 1.001, 1e30, default=10000.0), dimensions, _scaling(file, row, keys))
    if not row.sliding_rope:
        return tuple(full if turns else None for turns in _roped(row, windows))
    local = Rotary(keys.number("rope.freq_base_swa", 1.001, 1e30, default=row.sliding_base or full.base), dimensions)
    return tuple(local if window else full for window in windows)


def _roped(row: Architecture, windows: tuple[int, ...]) -> tuple[bool, ...]:
    """Which layers have rope."""
    if row.roped == "sliding":
        return tuple(bool(window) or not any(windows) for window in windows)
    return tuple(row.roped[layer % len(row.roped)] for layer in range(len(windows)))


def _scaling(file: File, row: Architecture, keys: Keys) -> Scaling | None:
    kind = keys.text("rope.scaling.type", "")
    factor = keys.number("rope.scaling.factor", 0.0, 1e6, default=0.0)
    old = keys.number("rope.scale_linear", 0.0, 1e6, default=0.0)  # files from before rope.scaling.*
    if not kind and (factor or old):
        kind, factor = "linear", factor or old
    if LONG_FACTORS in file.tensors and kind in ("", "none", "longrope"):
        context = keys.integer("context_length", 1, MOST_POSITIONS)
        original = keys.integer("rope.scaling.original_context_length", 1, MOST_POSITIONS, default=context)
        return Scaling(
            "longrope", 1.0, original, attention=keys.number("rope.scaling.attn_factor", 0.0, 1e6, default=1.0)
        )
    if kind in ("", "none"):
        keys.get("rope.scaling.original_context_length")  # says nothing without a type
        return None
    factor = factor or 1.0
    if factor < 1e-3:
        raise MalformedFile(f"{keys.prefix}.rope.scaling.factor is {factor}, expected 0.001 to 1000000")
    if kind == "linear":
        return Scaling("linear", factor)
    if kind != "yarn":
        raise Unsupported(f"rope scaling {kind[:40]!r} is not supported here; supported are none, linear, yarn, llama3")
    context = keys.integer("context_length", 1, MOST_POSITIONS)
    attention = keys.number("rope.scaling.attn_factor", 0.0, 1e6, default=1.0)
    if row.latent and latent.longer(keys) > 1.0:  # all of what YaRN scales is in the softmax's scale
        attention /= 0.1 * math.log(max(factor, 1.0)) + 1.0
    elif not row.latent:
        weight = keys.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, default=0.0)
        attention /= 0.1 * weight * math.log(max(factor, 1.0)) + 1.0
    return Scaling(
        "yarn",
        factor,
        keys.integer("rope.scaling.original_context_length", 1, MOST_POSITIONS, default=context),
        keys.number("rope.scaling.yarn_beta_fast", 0.0, 1e6, default=32.0),
        keys.number("rope.scaling.yarn_beta_slow", 0.0, 1e6, default=1.0),
        keys.number("rope.scaling.yarn_ext_factor", 0.0, 1.0, default=1.0),
        keys.number("rope.scaling.yarn_attn_factor", 0.0, 1e6, default=1.0) * attention,
        whole=row.whole_ramp,
    )
