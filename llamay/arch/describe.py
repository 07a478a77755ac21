"""From a file's metadata and tensor shapes to a Config, or a refusal by name."""

import math

from llamay.arch.config import Config, Rotary, Scaling
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


def describe(file: File) -> Config:
    """The file's network.

    Raises Unsupported for an architecture or feature that llamay does not run, and
    MalformedFile where a value is missing, out of bounds or contradicts the tensors.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise MalformedFile("the file has no general.architecture string, so nothing says what its tensors are")
    row = BY_NAME.get(name)
    if row is None:
        raise Unsupported(f"architecture {name[:60]!r} is not supported; supported are {', '.join(BY_NAME)}")
    keys = Keys(file.metadata, name)
    experts = keys.integer("expert_count", 0, MOST_WIDTH, default=0)
    if experts > 0:
        raise Unsupported(f"this {name} file is a mixture of {experts} experts, which llamay does not run yet")
    return _config(file, row, keys)


def _config(file: File, row: Architecture, keys: Keys) -> Config:
    layers = _layers(file, keys)
    vocabulary, hidden = _embedding(file, keys)
    heads = keys.integers("attention.head_count", layers, 1, MOST_HEADS)
    kv_heads = keys.integers("attention.head_count_kv", layers, 1, MOST_HEADS, default=heads)
    for layer, (queries, pairs) in enumerate(zip(heads, kv_heads, strict=True)):
        if queries % pairs:
            raise MalformedFile(f"layer {layer} has {queries} heads, not a multiple of its {pairs} kv heads")
    head_dim = _head_dim(keys, hidden, heads)
    windows = _windows(row, keys, layers)
    wide = layers == row.wide_layers
    return Config(
        architecture=keys.prefix,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        feed_forward=keys.integers("feed_forward_length", layers, 1, MOST_WIDTH),
        context=keys.integer("context_length", 1, MOST_POSITIONS),
        vocabulary=vocabulary,
        eps=keys.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rotary=_rotary(row, keys, windows, head_dim),
        windows=windows,
        pairs=row.pairs,
        activation=row.activation,
        head_norms=row.head_norms,
        post_norms=row.post_norms,
        tied="output.weight" not in file.tensors,
        attention_scale=(hidden / heads[0] if wide else head_dim) ** -0.5,
        embedding_scale=math.sqrt(hidden) if row.scaled_embedding else 1.0,
        attention_softcap=keys.number("attn_logit_softcapping", 0.0, 1e6, default=0.0) if row.softcaps else 0.0,
        final_softcap=keys.number("final_logit_softcapping", 0.0, 1e6, default=0.0) if row.softcaps else 0.0,
        unread_keys=keys.unread(),
    )


def _layers(file: File, keys: Keys) -> int:
    layers = keys.integer("block_count", 1, MOST_LAYERS)
    last = f"blk.{layers - 1}."
    if not any(name.startswith(last) for name in file.tensors):
        raise MalformedFile(f"{keys.prefix}.block_count is {layers}, but the file has no tensor {last}*")
    return layers


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
    stated = keys.get("attention.sliding_window_pattern")
    if stated is None:
        sliding = tuple(row.sliding[layer % len(row.sliding)] for layer in range(layers))
    elif isinstance(stated, int):
        period = keys.integer("attention.sliding_window_pattern", 1, MOST_LAYERS)
        sliding = tuple((layer + 1) % period != 0 for layer in range(layers))
    else:
        sliding = keys.flags("attention.sliding_window_pattern", layers)
    return tuple(window if slides else 0 for slides in sliding)


def _rotary(row: Architecture, keys: Keys, windows: tuple[int, ...], head_dim: int) -> tuple[Rotary, ...]:
    dimensions = keys.integer("rope.dimension_count", 2, MOST_HEAD_DIM, default=head_dim)
    if dimensions > head_dim or dimensions % 2:
        raise MalformedFile(
            f"{keys.prefix}.rope.dimension_count is {dimensions}, expected an even number up to {head_dim}"
        )
    full = Rotary(keys.number("rope.freq_base", 1.001, 1e30, default=10000.0), dimensions, _scaling(keys))
    if row.sliding_base is None:
        return (full,) * len(windows)
    local = Rotary(keys.number("rope.freq_base_swa", 1.001, 1e30, default=row.sliding_base), dimensions)
    return tuple(local if window else full for window in windows)


def _scaling(keys: Keys) -> Scaling | None:
    kind = keys.text("rope.scaling.type", "")
    factor = keys.number("rope.scaling.factor", 0.0, 1e6, default=0.0)
    old = keys.number("rope.scale_linear", 0.0, 1e6, default=0.0)  # files from before rope.scaling.*
    if not kind and (factor or old):
        kind, factor = "linear", factor or old
    if kind in ("", "none"):
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
    return Scaling(
        "yarn",
        factor,
        keys.integer("rope.scaling.original_context_length", 1, MOST_POSITIONS, default=context),
        keys.number("rope.scaling.yarn_beta_fast", 0.0, 1e6, default=32.0),
        keys.number("rope.scaling.yarn_beta_slow", 0.0, 1e6, default=1.0),
        keys.number("rope.scaling.yarn_ext_factor", 0.0, 1.0, default=1.0),
        keys.number("rope.scaling.yarn_attn_factor", 0.0, 1e6, default=1.0) * attention,
    )
