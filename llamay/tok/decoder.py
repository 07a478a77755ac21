"""Token ids to text as they come: never half a character, never a part of a stop string."""

import codecs

from llamay.errors import UsageError
from llamay.tok.tokenizer import SPECIAL, Tokenizer


class Decoder:
    """One stream of generated tokens as text, which ends at the first stop string that is complete.

    What it emits, put together, is `tokenizer.text(ids, continues=...)` up to that stop string, with the names of tokens
    that are `shown`, however the tokens cut the text. Bytes that are no UTF-8 become U+FFFD once it is certain that they are none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...] = (),
        *,
        special: bool = False,
        continues: bool = True,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        """`continues` is False where the stream starts a text, so that its first space is SentencePiece's own.

        `shown` are the control tokens whose names are text all the same, as those that mark thoughts.  UsageError for an empty stop string.
        """
        if "" in stop:
            raise UsageError("a stop string is empty; each needs at least one character")
        self._tokenizer, self._special, self._shown = tokenizer, special, shown
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._fresh = tokenizer.add_space_prefix and not continues
        self._stops = [_Stop(text) for text in dict.fromkeys(stop)]
        self._held = ""  # emitted only when it turns out to be no stop string
        self.stopped: str | None = None  # the stop string that was found

    @property
    def withheld(self) -> int:
        """Characters that are held back, because they may become a stop string."""
        return len(self._held)

    def push(self, id: int) -> str:
        """The text that becomes certain with this token; empty once `stopped`. UsageError for an unknown id."""
        piece = self._tokenizer.token_bytes(id, special=self._special or id in self._shown)
        is_special = self._tokenizer.types[id] in SPECIAL
        if self._fresh and not is_special and piece.startswith(b" "):
            piece = piece[1:]
        self._fresh = is_special and self._tokenizer.add_space_prefix
        return self._pass(self._characters.decode(piece))

    def finish(self) -> str:
        """The text that was still held back; the stream is over."""
        text = self._pass(self._characters.decode(b"", final=True))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _pass(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        if not self._stops:
            return text
        for at, character in enumerate(text, len(self._held) + 1):
            complete = [stop.text for stop in self._stops if stop.advance(character)]
            if complete:
                self.stopped = max(complete, key=len)
                emitted, self._held = (self._held + text)[: at - len(self.stopped)], ""
                return emitted
        text = self._held + text
        keep = max(stop.matched for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


class _Stop:
    """How much of one stop string the end of the text is: the automaton of Knuth, Morris and Pratt."""

    def __init__(self, text: str) -> None:
        self.text, self.matched = text, 0
        self._shorter = [0] * len(text)  # [i]: the longest proper prefix that also ends text[: i + 1]
        for at in range(1, len(text)):
            self._shorter[at] = self._step(self._shorter[at - 1], text[at])

    def advance(self, character: str) -> bool:
        """Take one character; True when the string is complete."""
        self.matched = self._step(self.matched, character)
        return self.matched == len(self.text)

    def _step(self, matched: int, character: str) -> int:
        while matched and character != self.text[matched]:
            matched = self._shorter[matched - 1]
        return matched + (character == self.text[matched])
