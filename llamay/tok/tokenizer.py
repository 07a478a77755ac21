"""The tokenizer of one model: text to ids, ids to bytes, and what its special tokens are."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llamay.errors import UsageError
from llamay.tok.bpe import BytePairs
from llamay.tok.guess import pretokenizer
from llamay.tok.pretokenizers import Pre
from llamay.tok.sentencepiece import SentencePiece
from llamay.tok.special import Finder, Spans, roles, strips_after
from llamay.tok.unigram import LONGEST, Unigram
from llamay.tok.vocabulary import CONTROL, MODELS, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary
from llamay.tok.wordpiece import WordPiece

if TYPE_CHECKING:
    from llamay.tok.chat import ChatTemplate, Rendered

SPECIAL = (CONTROL, UNKNOWN, USER_DEFINED)
SILENT = (CONTROL, UNKNOWN)
SURROGATE = re.compile("[\ud800-\udfff]")
WHITE = re.compile(r"[ \t\n\v\f\r]+")


class Tokenizer:
    """Encodes and decodes; immutable but for caches, so it may be shared between threads.

    kind is that of its model in MODELS; pre is the pre-tokenizer in use (None but for BPE) and guessed says why it had to
    be guessed, or is None. bos, eos, eot, eom, unknown and padding are ids or None; end_tokens holds every id that ends a
    generation. add_bos and closing, an id or None, are what add_special=True adds. notes lists what of the file was
    ignored.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        tokens, special = vocabulary.tokens, vocabulary.special
        self.ids: dict[str, int] = dict(zip(tokens, range(len(tokens)), strict=True))
        if len(self.ids) < len(tokens):  # of equal tokens the first counts
            self.ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        self.ids.pop("", None)
        self.pre: str | None
        self.pre, pre, self.guessed = pretokenizer(vocabulary, self.ids)
        model = MODELS[vocabulary.model]
        self.kind = model.kind
        found = roles(vocabulary, self.ids)
        silent = frozenset(at.start() for at in re.finditer(b"[%c%c]" % SILENT, found.types))
        self._encoder = _encoder(vocabulary, pre, self.ids, silent)
        self.types, self.end_tokens, self.eot, self.eom = found.types, found.end_tokens, found.eot, found.eom
        self.bos, self.eos = special.get("bos"), special.get("eos")
        self.unknown, self.padding = special.get("unknown"), special.get("padding")
        default = model.begins if pre is None else pre.add_bos
        self.add_bos = self.bos is not None and (default if vocabulary.add_bos is None else vocabulary.add_bos)
        adds_eos = model.ends if vocabulary.add_eos is None else vocabulary.add_eos
        self.closing = special.get("seperator") if self.kind == "WordPiece" else self.eos if adds_eos else None
        self.add_space_prefix = pre is None and vocabulary.add_space_prefix is not False
        overlong = self._encoder.overlong() if isinstance(self._encoder, Unigram) else 0
        self.notes = (*vocabulary.notes, *_unspellable(self._encoder.unspellable()), *_overlong(overlong))
        self._pieces: dict[int, bytes] = {}

    @property
    def folds(self) -> bool:
        """Whether other texts may come to the same ids: letters made small, characters replaced or unknown."""
        return self.kind in ("WordPiece", "Unigram")

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary.tokens)

    def encode(
        self,
        text: str | bytes,
        *,
        add_special: bool = False,
        parse_special: bool = False,
        plain: Spans = (),
        continues: bool = False,
    ) -> list[int]:
        """The ids of a text.

        Tokens the vocabulary calls user-defined are always recognised, control tokens only with `parse_special`, and
        then not where they touch one of the `plain` spans (start, end; in characters, in order). `add_special` adds
        what the model expects around a text. Where it `continues` one, no space is put before it. Bytes need not be
        UTF-8; half a surrogate pair in a str becomes U+FFFD. UsageError when the vocabulary cannot spell it.
        """
        text = escaped(text)
        finder = self._all_special if parse_special else self._user_defined
        ids = [self.bos] if add_special and self.add_bos and self.bos is not None else []
        at, fresh = 0, not continues  # fresh: at the start of the text, or right after a special token
        while found := finder.search(text, at, plain):
            start, end, id = found
            if start > at:
                ids += self._plain(text[at:start], fresh)
            ids.append(id)
            at, fresh = _past_white(text, end) if id in self._strips_after else end, True
        if at < len(text):
            ids += self._plain(text[at:], fresh)
        return [*ids, self.closing] if add_special and self.closing is not None else ids

    def pair(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
        """The ids of two texts that are judged together, and the kind of each id: 0 for the first text's, 1 for the other's.

        BERT parts them by one separator, RoBERTa by two that all belong to the first text.
        """
        between = self.closing if self.closing is not None else self.special("seperator")
        end = [] if between is None else [between]
        twice = end if self.kind == "WordPiece" else [*end, *end]
        ids = [*([self.bos] if self.add_bos and self.bos is not None else []), *first, *twice]
        other = [*second, *end]
        return ids + other, [0] * len(ids) + [int(self.kind == "WordPiece")] * len(other)

    def special(self, name: str) -> int | None:
        """The id of a special token by its name in the metadata ("seperator", "mask", ...)."""
        return self.vocabulary.special.get(name)

    def least(self, text: str) -> int:
        """The fewest ids that so many bytes can encode to; known without encoding them."""
        if self.folds:  # characters may drop out, and one unknown token stand for many
            return 0
        raw = escaped(text).encode()
        lost = self._encoder.unspellable() if self.kind == "BPE" else []
        white = b" \t\n\v\f\r" if self._strips_after else b""
        kept = len(raw) - sum(raw.count(byte) for byte in {*lost, *white})
        return -(-kept // self.longest)

    @cached_property
    def longest(self) -> int:
        """Bytes that one token stands for, at most."""
        longest = 1
        for id, text in enumerate(self.vocabulary.tokens):
            if 4 * len(text) > longest:  # a character has at most four
                longest = max(longest, len(self.token_bytes(id)))
        return longest

    def _plain(self, text: str, fresh: bool) -> list[int]:
        return self._encoder.encode(" " + text if fresh and self.add_space_prefix else text)

    @cached_property
    def _user_defined(self) -> Finder:
        return Finder(self._of_types(USER_DEFINED))

    @cached_property
    def _all_special(self) -> Finder:
        return Finder(self._of_types(*SPECIAL), frozenset(self._of_types(CONTROL, UNKNOWN).values()))

    @cached_property
    def _strips_after(self) -> frozenset[int]:
        return strips_after(self.vocabulary, self._of_types(*SPECIAL).values())

    def _of_types(self, *types: int) -> dict[str, int]:
        """Text -> id of the tokens of some types."""
        tokens, wanted = self.vocabulary.tokens, re.compile(b"[" + re.escape(bytes(types)) + b"]")
        found = {tokens[at.start()]: at.start() for at in wanted.finditer(self.types)}
        found.pop("", None)
        return found

    def token_bytes(self, id: int, *, special: bool = True) -> bytes:
        """The bytes of one token; those of a control or unknown token are its name, or nothing without `special`.

        UsageError for an id that the vocabulary does not have.
        """
        if (piece := self._pieces.get(id)) is None:
            if not 0 <= id < len(self):
                raise UsageError(f"token id {id} does not exist; the vocabulary has ids 0 to {len(self) - 1}")
            named = self.types[id] in (*SPECIAL, UNUSED)
            text = self.vocabulary.tokens[id]
            piece = text.encode("utf-8", "surrogateescape") if named else self._encoder.piece(id)
            self._pieces[id] = piece
        return piece if special or self.types[id] not in SILENT else b""

    def decode(self, ids: Iterable[int], *, special: bool = False, continues: bool = False) -> bytes:
        """The bytes of many tokens; the inverse of `encode`.

        The space that SentencePiece puts before a text is taken away again, at the start (not when the ids continue a
        text) and after each special token. Control tokens are silent unless `special`.
        """
        ids = list(ids)
        pieces = [self.token_bytes(id, special=special) for id in ids]
        if self.add_space_prefix:
            fresh = not continues
            for at, id in enumerate(ids):
                if fresh and self.types[id] not in SPECIAL and pieces[at].startswith(b" "):
                    pieces[at] = pieces[at][1:]
                fresh = self.types[id] in SPECIAL
        return b"".join(pieces)

    def continues(self, ids: Sequence[int]) -> bool:
        """Whether what follows these ids goes on with their text, and does not begin one after a special token."""
        return bool(ids) and self.types[ids[-1]] not in SPECIAL

    def text(self, ids: Iterable[int], *, special: bool = False, continues: bool = False) -> str:
        """`decode` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode(ids, special=special, continues=continues).decode("utf-8", "replace")

    @cached_property
    def chat_template(self) -> "ChatTemplate":
        """The template for conversations: the file's own, or a fallback that its `name` tells."""
        from llamay.tok.fallback import chat_template

        return chat_template(self)

    def chat(self, messages: Iterable[Mapping[str, Any]], **options: Any) -> list[int]:
        """The ids of a conversation; see `ChatTemplate.render` for the options and errors.

        Nothing that came from the caller becomes a control token, and BOS is there once if the model wants it.
        """
        if options.get("tools") and "tool_use" in self.vocabulary.chat_templates:
            from llamay.tok.fallback import chat_template

            return self.prompt(chat_template(self, "tool_use").render(messages, **options))
        return self.prompt(self.chat_template.render(messages, **options))

    def prompt(self, rendered: "Rendered") -> list[int]:
        """The ids of a conversation that a template has rendered."""
        ids = self.encode(rendered.text, parse_special=True, plain=rendered.spans)
        return [self.bos, *ids] if self.add_bos and self.bos is not None and ids[:1] != [self.bos] else ids


def escaped(text: str | bytes) -> str:
    """Text in which bytes that are not UTF-8 are surrogate escapes; half a surrogate pair in a str is no text: U+FFFD."""
    return SURROGATE.sub("\ufffd", text) if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def _overlong(pieces: int) -> list[str]:
    return [f"{pieces} pieces of more than {LONGEST} characters are not looked for in text"] if pieces else []


def _unspellable(missing: list[int]) -> list[str]:
    if not missing:
        return []
    few = ", ".join(f"0x{byte:02x}" for byte in missing[:8]) + (", ..." if len(missing) > 8 else "")
    return [f"no token stands for {len(missing)} of the bytes ({few}); text loses them where no larger piece has them"]


def _past_white(text: str, at: int) -> int:
    match = WHITE.match(text, at)
    return match.end() if match else at


def _encoder(
    vocabulary: Vocabulary, pre: Pre | None, ids: dict[str, int], never: frozenset[int]
) -> BytePairs | SentencePiece | WordPiece | Unigram:
    """`never`: the tokens that plain text must not become."""
    if pre is not None:
        return BytePairs(vocabulary, pre, ids, never)
    kind = MODELS[vocabulary.model].kind
    if kind == "WordPiece":
        return WordPiece(vocabulary, never)
    return Unigram(vocabulary, never) if kind == "Unigram" else SentencePiece(vocabulary, ids, never)


def load(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that the metadata of a file describes; see `Vocabulary.from_metadata` for what is refused."""
    return Tokenizer(Vocabulary.from_metadata(metadata))
