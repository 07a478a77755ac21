"""What `llamay info` knows of a file, as plain data for text and JSON alike."""

import hashlib
from collections import defaultdict
from typing import Any

from llamay import arch, model, tok
from llamay.arch import Config, Mixture, StateSpace
from llamay.errors import LlamayError
from llamay.gguf import Array, File
from llamay.settings import Settings
from llamay.tensor.cache import CACHE_FORMATS, OFFERED, state_sizes
from llamay.tok import Tokenizer

Facts = dict[str, Any]

FIRST = 6  # elements of an array that are shown


def gather(file: File) -> Facts:
    """Everything about the file; what llamay cannot run is told under `refused`, not raised."""
    facts: Facts = {
        "files": list(file.paths),
        "bytes": file.size,
        "gguf_version": file.version,
        "keys": len(file.metadata),
        "tensors": len(file.tensors),
        "name": _text(file, "general.name"),
        "architecture": _text(file, "general.architecture"),
        "weights": sum(tensor.rows * tensor.columns for tensor in file.tensors.values()),
        "quantisation": histogram(file),
        "refused": [],
    }
    try:
        config = arch.describe(file)
        facts["network"] = network(config)
        bound = model.bind(file, config)
        facts["audit"] = {"text": str(bound.audit), "read": bound.audit.read, "unread": list(bound.audit.unread)}
    except LlamayError as error:
        facts["refused"].append(str(error))
    try:
        facts["tokenizer"] = tokenizer(tok.load(file.metadata))
    except LlamayError as error:
        facts["refused"].append(str(error))
    return facts


def network(config: Config) -> Facts:
    """The numbers of the network.  A per-layer value is a list only where layers differ."""
    turned = [(rotary, window) for rotary, window in zip(config.rotary, config.windows, strict=True) if rotary]
    rope: Facts = {}
    if turned:
        rotary = min(turned, key=lambda layer: layer[1] > 0)[0]  # of a layer that sees everything, where one has any
        rope = {
            "rope_base": rotary.base,
            "rope_dimensions": rotary.dimensions,
            "rope_scaling": None if rotary.scaling is None else f"{rotary.scaling.kind} x{rotary.scaling.factor:g}",
            "rope_base_sliding": next((r.base for r, w in turned if w), None),
        }
    return {
        "layers": config.layers,
        "hidden": config.hidden,
        "feed_forward": _one(config.feed_forward),
        "experts": None if config.mixture is None else _experts(config.mixture),
        "heads": _one(config.heads),
        "kv_heads": _one(config.kv_heads),
        "head_dim": config.head_dim,
        "context": config.context,
        "vocabulary": config.vocabulary,
        "positions": "rope" if turned else "learned" if config.learned_positions else "ALiBi" if config.alibi else "none",
        **rope,
        "sliding_window": max(config.windows),
        "sliding_layers": sum(1 for window in config.windows if window),
        "tied": config.tied,
        "state": None if config.space is None else _state(config.space, config.kv_heads.count(0)),
        "kv_bytes_a_token": {
            name: sum(config.kv_heads) * CACHE_FORMATS[name].token_bytes(config.head_dim, config.value_dim) for name in OFFERED
        },
        "pooling": config.pooling or None,
        "ranks": config.ranks,
        "unread_keys": list(config.unread_keys),
    }


def _state(space: StateSpace, layers: int) -> Facts:
    """The state that stands in so many layers in place of attention; bytes are of all of them."""
    return {
        "inner": space.inner,
        "states": space.states,
        "heads": space.heads,
        "groups": space.groups,
        "convolution": space.kernel,
        "bytes": 4 * layers * (space.inner * space.states + (space.kernel - 1) * space.convolved),
        "page_bytes": layers * sum(state_sizes(space.inner, space.states, space.shared, space.kept)),
    }


def _experts(mixture: Mixture) -> Facts:
    """The experts that stand in each layer; `feed_forward` is the width of one."""
    return {"count": mixture.count, "used": mixture.used, "shared_width": mixture.shared_width}


def kv_measured(file: File, in_force: Settings) -> Facts | None:
    """What `verify` measured of the quantised KV formats with these weights; None where it did not."""
    from llamay.verify import caches, safety

    found = safety.recall(in_force, file.paths)
    if found is None:
        return None
    return {
        "distances": found.distances,
        "bound": caches.BOUND,
        "safe": [kv for kv in found.distances if found.safe(kv)],
        "device": found.device,
        "tokens": found.tokens,
    }


def histogram(file: File) -> list[Facts]:
    """Bytes, weights and tensors of each type, the largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for tensor in file.tensors.values():
        entry = sums[tensor.type.name]
        entry[0] += tensor.nbytes
        entry[1] += tensor.rows * tensor.columns
        entry[2] += 1
    rows = [{"type": type, "bytes": b, "weights": w, "tensors": n} for type, (b, w, n) in sums.items()]
    return sorted(rows, key=lambda row: (-row["bytes"], row["type"]))


def tokenizer(tokenizer: Tokenizer) -> Facts:
    """What the tokenizer is and how it was come by."""
    templates = tokenizer.vocabulary.chat_templates
    return {
        "kind": tokenizer.kind,
        "pre": tokenizer.pre,
        "guessed": tokenizer.guessed,
        "tokens": len(tokenizer),
        "bos": tokenizer.bos,
        "eos": tokenizer.eos,
        "end_tokens": sorted(tokenizer.end_tokens),
        "adds_bos": tokenizer.add_bos,
        "adds_eos": tokenizer.closing is not None,
        "notes": list(tokenizer.notes),
        "chat_templates": {
            name or "default": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            for name, text in templates.items()
        },
    }


def tensors(file: File) -> list[Facts]:
    """Every tensor in the file's order; shape as the file has it, fastest dimension first."""
    return [
        {"name": name, "type": tensor.type.name, "shape": list(tensor.shape), "bytes": tensor.nbytes}
        for name, tensor in file.tensors.items()
    ]


def metadata(file: File) -> Facts:
    """Every key; of an array its type, length and first elements."""
    return {key: _value(value) for key, value in file.metadata.items()}


def tokenized(tokenizer: Tokenizer, data: bytes) -> Facts:
    """Tokens and round trip of every line of a text, and of all of it at once."""
    lines = []
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        ids = tokenizer.encode(line)
        lines.append(
            {"line": number, "bytes": len(line), "tokens": len(ids), "round_trip": _comes_back(tokenizer, ids, line)}
        )
    ids = tokenizer.encode(data)
    return {
        "lines": lines,
        "bytes": len(data),
        "tokens": len(ids),
        "bytes_a_token": len(data) / max(len(ids), 1),
        "round_trip": _comes_back(tokenizer, ids, data),
        "of": "tokens" if tokenizer.folds else "bytes",
    }


def _comes_back(tokenizer: Tokenizer, ids: list[int], data: bytes) -> bool:
    """Whether the ids give the bytes again, or where the tokenizer folds text, the same ids."""
    found = tokenizer.decode(ids)
    return found == data or (tokenizer.folds and tokenizer.encode(found) == ids)


def _value(value: Any) -> Any:
    if not isinstance(value, Array):
        return value
    first = [str(piece, "utf-8", "replace") for piece in value.bytes()[:FIRST]] if value.type.name == "STRING" else []
    if value.type.name not in ("STRING", "ARRAY"):
        first = value.numpy()[:FIRST].tolist()
    return {"array": value.type.name.lower(), "count": len(value), "first": first}


def _text(file: File, key: str) -> str | None:
    value = file.metadata.get(key)
    return value if isinstance(value, str) else None


def _one(values: tuple[int, ...]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)
