"""A model's language: its vocabulary, chat template and recommended sampling, without weights or a device."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from llamay import arch, gguf, tok
from llamay.arch import Config
from llamay.errors import ContextFull, UsageError
from llamay.sample import Sampling
from llamay.serve import sampling
from llamay.tok import thinking
from llamay.tok.fallback import chat_template
from llamay.tok.special import FILL_IN, FILL_IN_ENDS
from llamay.tok.thinking import Thinking

SOON_ENCODED = 1 << 17  # characters: a fraction of a second
REPOSITORY, SEPARATOR = FILL_IN_ENDS["fim_rep"], FILL_IN_ENDS["fim_sep"]
SNIPPET = "\n\n--- snippet ---\n\n"  # before a file, where the vocabulary has no token for that

Message = dict[str, Any]  # role, content and what else the template may want


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be continued."""

    tokens: list[int]
    stops: tuple[str, ...] = ()  # strings that end the answer
    notes: tuple[str, ...] = ()  # what was changed of the messages so that the template takes them
    thinking: Thinking | None = None  # how thoughts are told from the answer; None: nobody looks for any


@dataclass(slots=True, eq=False)
class Language:
    """What turns text into a model's tokens and back.  Any number of threads may use it."""

    name: str  # what the file calls its model, else the file's own name
    config: Config
    tokenizer: tok.Tokenizer
    template: tok.ChatTemplate
    sampling: Sampling  # how tokens are chosen where nothing else is asked for
    notes: tuple[str, ...] = ()  # values of the file's recommended sampling that cannot be meant
    context: int = 0  # tokens a prompt may have at most; the model's own context until it is known how it is served
    _told: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def of(cls, file: gguf.File, config: Config) -> Self:
        """The language of an open file; raises what is wrong with its vocabulary."""
        tokenizer = tok.load(file.metadata)
        base, notes = sampling.of_file(file.metadata)
        name = file.metadata.get("general.name")
        called = name if isinstance(name, str) and name else Path(file.path).name
        return cls(called, config, tokenizer, chat_template(tokenizer), base, notes)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The language of a file that need not be loaded."""
        with gguf.open(path) as file:
            return cls.of(file, arch.describe(file))

    def raw(self, text: str) -> Prompt:
        """A text to complete; special tokens written in it are recognised, as the person typed them.

        Raises ContextFull, before it is encoded, for a text that cannot fit.
        """
        if not isinstance(text, str):  # Python's callers are held to no types
            raise UsageError(f"a text to complete is a {type(text).__name__}; expected a str")
        self.check(text)
        return Prompt(self.begun(self.tokenizer.encode(text, parse_special=True)))

    def chat(self, messages: Sequence[Message], start: str = "", /, **variables: Any) -> Prompt:
        """A conversation through the file's chat template, or the one that goes with its vocabulary.

        `start` is the beginning of the answer, which is to be continued.  Special tokens that it or
        a message spells stay text; `variables` are those of ChatTemplate.render.
        Raises TemplateError when the template refuses, ContextFull as `raw` does.
        """
        rendered = self.template.render(messages, **variables)
        text, spans = rendered.text + start, rendered.spans
        self.check(text)
        if start:
            spans = (*spans, (len(rendered.text), len(text)))
        ids = self.tokenizer.encode(text, parse_special=True, plain=spans)
        thoughts = thinking.after(self.template.thinks, rendered.text, start)
        return Prompt(self.begun(ids), self.template.stops, rendered.notes, thoughts)

    @property
    def fills(self) -> bool:
        """Whether its vocabulary has the tokens by which it fills a gap in a text."""
        return all(self._marked(texts) is not None for texts in FILL_IN)

    def infill(self, before: str, after: str, files: Sequence[tuple[str, str]] = (), begun: str = "") -> Prompt:
        """A text with a gap, which the answer fills; UsageError where the vocabulary has no tokens for that.

        `files`, pairs of name and text, stand before it, and `begun` is the beginning of what fills the gap.
        """
        marks = [self._marked(texts) for texts in FILL_IN]
        if None in marks:
            raise UsageError("this model's vocabulary has no tokens for filling in the middle; send the request without a suffix")
        self.check("".join([before, after, begun, *self._texts(files)]))
        prefix, suffix, middle = [mark for mark in marks if mark is not None]
        encode = self.tokenizer.encode
        gap = [prefix, *encode(before), suffix, *encode(after), middle, *encode(begun)]
        return Prompt(self.begun([*self._shelved(files), *gap]))

    def _shelved(self, files: Sequence[tuple[str, str]]) -> list[int]:
        """Files as the model has seen repositories, where its vocabulary tells; else as snippets."""
        repository, separator = (self._marked(texts) for texts in (REPOSITORY, SEPARATOR))
        encode = self.tokenizer.encode
        if not files or separator is None:
            return [token for text in self._texts(files) for token in encode(text)]
        found = [] if repository is None else [repository, *encode("repository\n")]
        for text in self._texts((*files, ("this file", ""))):
            found += [separator, *encode(text)]
        return found

    def _texts(self, files: Sequence[tuple[str, str]]) -> list[str]:
        """What is said of each file."""
        named = self._marked(SEPARATOR) is not None
        return [f"{name}\n{text}" if named else SNIPPET + text for name, text in files]

    def _marked(self, texts: Sequence[str]) -> int | None:
        """The id of a token that vocabularies spell differently."""
        ids = self.tokenizer.ids
        return next((ids[text] for text in texts if text in ids), None)

    def news(self, prompt: Prompt) -> list[str]:
        """The prompt's notes that no earlier prompt had: a conversation is told a thing once."""
        fresh = [note for note in prompt.notes if note not in self._told]
        self._told.update(fresh)
        return fresh

    def decoder(self, prompt: Sequence[int], stops: tuple[str, ...] = ()) -> tok.Decoder:
        """The decoder of an answer to this prompt, which also finds the stop strings."""
        shown = thinking.controls(self.template.thinks, self.tokenizer)
        return tok.Decoder(self.tokenizer, stops, continues=self.tokenizer.continues(prompt), shown=shown)

    def check(self, text: str) -> None:
        """Encoding takes time and memory by the length of the text: one that is far too long is refused before.

        A shorter one is not looked at: what refuses it later tells its exact number of tokens.
        """
        if len(text) <= SOON_ENCODED:
            return
        least, context = self.tokenizer.least(text), self.context or self.config.context
        if least > context:
            raise ContextFull(
                f"the prompt has {len(text):,} characters, which are {least:,} tokens at the least, and the context "
                f"{context:,}; shorten the prompt",
                prompt=least,
                context=context,
            )

    def begun(self, ids: list[int]) -> list[int]:
        """With the token that begins every text of this model, once."""
        bos = self.tokenizer.bos
        if bos is None or not self.tokenizer.add_bos or ids[:1] == [bos]:
            return ids
        return [bos, *ids]
