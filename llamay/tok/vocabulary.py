"""What a file says about its tokenizer: one checked, immutable value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llamay.errors import MalformedFile, Unsupported

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

PREFIX = "tokenizer.ggml."
SPECIAL = (
    *("bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "cls", "mask", "fim_pad", "fim_rep", "fim_sep"),
)
NONE_ID = 2**32 - 1  # how some writers say "there is none"


@dataclass(frozen=True, slots=True)
class Model:
    """What a `tokenizer.ggml.model` has in its file, and what is meant where the file does not say it."""

    kind: str  # how text becomes tokens
    words: str  # what errors call it
    merges: bool = False  # there is a list of merges
    scores: bool = False  # there is a score for each token
    begins: bool = False  # texts begin with BOS; for BPE the pre-tokenizer says it
    ends: bool = False  # texts end with EOS
    special: Mapping[str, int] = field(default_factory=dict)  # ids of special tokens


MODELS = {
    "gpt2": Model("BPE", "byte-level BPE", merges=True),
    "llama": Model(
        "SentencePiece", "SentencePiece BPE", scores=True, begins=True, special={"bos": 1, "eos": 2, "unknown": 0}
    ),
    "gemma4": Model("BPE", "BPE over raw UTF-8", merges=True),
    "bert": Model(
        "WordPiece",
        "WordPiece",
        begins=True,
        special={"unknown": 100, "bos": 101, "seperator": 102, "padding": 0, "mask": 103},
    ),
    "t5": Model("Unigram", "Unigram", scores=True, ends=True, special={"eos": 1, "unknown": 2, "padding": 0}),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer as plain data: `tokens[id]` is the piece as the file writes it.

    Pieces of byte-level models are in GPT-2 letters, those of SentencePiece have U+2581 for a space; bytes that are
    not UTF-8 are kept as surrogate escapes. `types[id]` is one of NORMAL ... BYTE; `scores`, `merges` and `charsmap`
    are empty where the model needs none. A flag that the file leaves open is None.
    """

    model: str
    tokens: tuple[str, ...]
    types: bytes
    pre: str | None = None
    scores: tuple[float, ...] = ()
    merges: tuple[str, ...] = ()
    special: Mapping[str, int] = field(default_factory=dict)  # "bos", "eos", "eot", ... -> id
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None
    squeeze: bool | None = None  # Unigram: runs of spaces count as one
    charsmap: bytes = b""  # Unigram: see `llamay.tok.charsmap`
    lowercase: bool | None = None  # WordPiece
    strip_accents: bool | None = None  # WordPiece; None: as lowercase
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # "" is the one that is used by default
    name: str = ""  # of the model: some families differ in ways the file does not say
    notes: tuple[str, ...] = ()  # what was ignored, and why

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Vocabulary":
        """Check and take what the metadata of a file says.

        Arrays may be lists, NumPy arrays or lazy ones with `.bytes()`, `.strings()` or `.numpy()`. MalformedFile when
        an element type, a length or an id is impossible; Unsupported for a kind of tokenizer that is not here.
        """
        reader = _Reader(metadata)
        model = reader.model()
        tokens = reader.strings("tokens")
        if MODELS[model].merges and PREFIX + "merges" not in metadata:
            raise MalformedFile(f"{PREFIX}merges is missing; a {MODELS[model].words} vocabulary needs its list of merges")
        if not tokens:
            raise MalformedFile(f"{PREFIX}tokens is empty or missing; a vocabulary of at least one token was expected")
        return cls(
            model=model,
            tokens=tuple(tokens),
            types=reader.types(len(tokens)),
            pre=reader.scalar("pre", str),
            scores=reader.scores(len(tokens)) if MODELS[model].scores else (),
            merges=tuple(reader.strings("merges")) if MODELS[model].merges else (),
            special=reader.special(len(tokens), model),
            add_bos=reader.scalar("add_bos_token", bool),
            add_eos=reader.scalar("add_eos_token", bool),
            add_space_prefix=reader.scalar("add_space_prefix", bool),
            squeeze=reader.scalar("remove_extra_whitespaces", bool),
            charsmap=reader.charsmap() if model == "t5" else b"",
            lowercase=reader.scalar("normalizer.lowercase", bool),
            strip_accents=reader.scalar("normalizer.strip_accents", bool),
            chat_templates=reader.chat_templates(),
            name=reader.name(),
            notes=tuple(reader.notes),
        )


class _Reader:
    """Typed access to the `tokenizer.` keys of one metadata mapping."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.notes: list[str] = []

    def model(self) -> str:
        model: str | None = self.scalar("model", str)
        if model is None:
            raise MalformedFile(f"{PREFIX}model is missing: the file holds no tokenizer; use a file that has one")
        if model not in MODELS:
            known = ", ".join(f"{name} ({one.words})" for name, one in MODELS.items())
            raise Unsupported(f"tokenizer model {model[:80]!r} is not supported; supported: {known}")
        return model

    def scalar(self, key: str, kind: type[Any]) -> Any:
        """The value under the tokenizer's prefix, or None when it is absent."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if (kind is int and isinstance(value, bool)) or not isinstance(value, kind):
            raise MalformedFile(f"{PREFIX}{key} is a {type(value).__name__}; a {kind.__name__} was expected")
        return value

    def name(self) -> str:
        value = self.metadata.get("general.name", "")
        return value if isinstance(value, str) else ""

    def strings(self, key: str) -> list[str]:
        value = self.metadata.get(PREFIX + key, ())
        if hasattr(value, "bytes"):
            value = value.bytes()
        elif hasattr(value, "strings"):
            value = value.strings()
        if not isinstance(value, (list, tuple)):
            raise MalformedFile(f"{PREFIX}{key} is a {type(value).__name__}; an array of strings was expected")
        kinds = set(map(type, value))
        if kinds <= {str}:
            return list(value)
        if kinds <= {bytes}:
            return [piece.decode("utf-8", "surrogateescape") for piece in value]
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise MalformedFile(f"{PREFIX}{key} holds {found}; an array of strings was expected")

    def numbers(self, key: str, count: int, kinds: str, *, whole: bool = False) -> "np.ndarray[Any, Any] | None":
        """An array of `count` numbers (all there are if `whole`) whose NumPy kind is in `kinds`; None without the key."""
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if isinstance(value, str) or not (hasattr(value, "numpy") or isinstance(value, (Sequence, np.ndarray))):
            raise MalformedFile(f"{PREFIX}{key} is a {type(value).__name__}; an array of {count} numbers was expected")
        try:
            found = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        except ValueError as error:
            raise MalformedFile(f"{PREFIX}{key} is no array of numbers: {error}") from error
        if found.dtype.kind not in kinds or found.ndim != 1:
            raise MalformedFile(f"{PREFIX}{key} holds {found.dtype.name}; an array of numbers was expected")
        if len(found) < count:
            raise MalformedFile(f"{PREFIX}{key} has {len(found)} elements for {count} tokens; one each was expected")
        checked: np.ndarray[Any, Any] = found if whole else found[:count]
        return checked

    def types(self, count: int) -> bytes:
        found = self.numbers("token_type", count, "iu")
        if found is None:
            return bytes([NORMAL]) * count
        return np.where((found < NORMAL) | (found > BYTE), NORMAL, found).astype(np.uint8).tobytes()

    def scores(self, count: int) -> tuple[float, ...]:
        found = self.numbers("scores", count, "fiu")
        if found is None:
            raise MalformedFile(f"{PREFIX}scores is missing; a vocabulary of this model needs a score for each token")
        if np.isnan(found).any():
            raise MalformedFile(f"{PREFIX}scores[{int(np.isnan(found).argmax())}] is not a number")
        return tuple(found.tolist())

    def charsmap(self) -> bytes:
        value = self.metadata.get(PREFIX + "precompiled_charsmap")
        found = None if value is None else self.numbers("precompiled_charsmap", 0, "iu", whole=True)
        if found is None:
            return b""
        if found.dtype.itemsize != 1 and len(found) and not -128 <= found.min() <= found.max() <= 255:
            raise MalformedFile(f"{PREFIX}precompiled_charsmap holds numbers that are no bytes")
        return found.astype(np.uint8).tobytes()

    def special(self, count: int, model: str) -> dict[str, int]:
        ids = {name: id for name, id in MODELS[model].special.items() if id < count}
        for name in SPECIAL:
            key = f"{name}_token_id"
            value = self.scalar(key, int)
            if value is None:
                continue
            if 0 <= value < count:
                ids[name] = value
            elif value in (-1, NONE_ID):
                ids.pop(name, None)
            elif name in ("bos", "eos"):
                raise MalformedFile(f"{PREFIX}{key} is {value}; an id below the {count} tokens was expected")
            else:
                self.notes.append(f"{PREFIX}{key} {value} ignored: the vocabulary has {count} tokens")
        if model == "bert" and "cls" in ids and PREFIX + "bos_token_id" not in self.metadata:
            ids["bos"] = ids["cls"]  # two names of what stands first
        return ids

    def chat_templates(self) -> dict[str, str]:
        key = "tokenizer.chat_template"
        found = {}
        for name in self.metadata:
            if name == key or name.startswith(key + "."):
                value = self.metadata[name]
                if isinstance(value, str):
                    found[name[len(key) + 1 :]] = value
                else:
                    self.notes.append(f"{name[:80]} ignored: a string was expected")
        return found
