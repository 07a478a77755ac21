"""Documents ranked by a query: by the head of a cross-encoder, or by what a decoder that judges gives yes against no."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llamay.errors import ContextFull, LlamayError, UsageError
from llamay.serve.encoding import Encoded, Encoder
from llamay.serve.events import Failed, Rows
from llamay.serve.loading.language import Language
from llamay.serve.request import Reading
from llamay.tensor.batch import kinds_of

PURPOSE = "rerank"  # of a chat template, and in the name of a model that judges
JUDGE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web '
    "search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)  # what Qwen3-Reranker was trained with
GAPS = ("{query}", "{document}")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A logit for each document, in the order they were given; the sigmoid of it is a probability."""

    logits: tuple[float, ...]
    tokens: int  # of all pairs

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Each logit as 0 to 1."""
        return tuple(sigmoid(logit) for logit in self.logits)


def judges(language: Language) -> bool:
    """Whether a model was made to rank: by a head, or by words."""
    if language.config.pooling:
        return language.config.ranks
    named = PURPOSE in language.name.lower() or PURPOSE in language.tokenizer.vocabulary.chat_templates
    return named and {"yes", "no"} <= language.tokenizer.ids.keys()


def rank(encoder: Encoder, query: str, documents: Sequence[str]) -> Ranked:
    """How well each document answers the query.  A document beyond the context is cut.

    UsageError for a model that does not rank, ContextFull for a query that leaves no room.
    """
    if not judges(encoder.loaded.language):
        raise UsageError(f"{encoder.loaded.name} was not made to rank documents; name a model that was")
    loaded, pairs = encoder.loaded, []
    asked = loaded.tokenizer.encode(encoder.begun(query))
    for at, document in enumerate(documents):
        encoder.check()
        if len(asked) > loaded.context:
            raise _no_room(at, len(asked), loaded.context)
        both_ways, begun = loaded.config.both_ways, encoder.begun(document)
        pairs.append(_pair(encoder, asked, begun, at) if both_ways else _question(encoder, query, begun, at))
    if loaded.config.pooling:
        logits = [loaded.finish.score(row) for row in encoder.pooled(pairs)]
    else:
        logits = [_yes(encoder, pair) for pair in pairs]
    return Ranked(tuple(logits), sum(len(pair.ids) for pair in pairs))


def _pair(encoder: Encoder, asked: Sequence[int], document: str, at: int) -> Encoded:
    """The ids of a query and a document as a cross-encoder reads them."""
    tokenizer, context = encoder.loaded.tokenizer, encoder.loaded.context
    told = tokenizer.encode(document)
    ids, kinds = tokenizer.pair(asked, told)
    if kinds_of(encoder.loaded.executor.program) == 1:  # as RoBERTa's, whatever its vocabulary is
        kinds = [0] * len(ids)
    if len(ids) > context:
        spare = len(ids) - context
        if spare >= len(told):
            raise _no_room(at, len(ids), context)
        end = 1 if tokenizer.closing is not None else 0
        ids = ids[: len(ids) - end - spare] + ids[len(ids) - end :]
        kinds = kinds[: len(kinds) - spare]
    return Encoded(tuple(ids), tuple(kinds))


def _question(encoder: Encoder, query: str, document: str, at: int) -> Encoded:
    """Both texts in the words that a decoder was trained to judge; special tokens written in them stay text."""
    tokenizer, context = encoder.loaded.tokenizer, encoder.loaded.context
    template = tokenizer.vocabulary.chat_templates.get(PURPOSE, JUDGE)
    head, gap, rest = template.partition(GAPS[0])
    middle, other, tail = rest.partition(GAPS[1])
    if not gap or not other:
        raise UsageError(f"the {PURPOSE} template of {encoder.loaded.name} has no {GAPS[0]} followed by {GAPS[1]}")
    text = head + query + middle + document
    first = len(head) + len(query)
    spans = ((len(head), first), (first + len(middle), len(text)))
    ids = tokenizer.encode(text, parse_special=True, plain=spans)
    if tokenizer.add_bos and tokenizer.bos is not None:
        ids = [tokenizer.bos, *ids]
    end = tokenizer.encode(tail, parse_special=True)
    room = context - len(end)
    if len(ids) > room:
        asked = len(tokenizer.encode(text[:first] + middle, parse_special=True, plain=spans[:1]))
        if asked + 2 > room:  # the token that begins a text, and one of the document
            raise _no_room(at, len(ids) + len(end), context)
    return Encoded((*ids[:room], *end))


def _no_room(at: int, tokens: int, context: int) -> ContextFull:
    return ContextFull(
        f"the query with document {at} has {tokens} tokens, and the context {context}; the query leaves no room",
        prompt=tokens,
        context=context,
    )


def _yes(encoder: Encoder, pair: Encoded) -> float:
    """The logit of yes against no after a question."""
    encoder.check()
    ids = encoder.loaded.tokenizer.ids
    last = len(pair.ids) - 1
    for event in encoder.engine.submit(Reading(pair.ids, last, model=encoder.model)):
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Rows):
            row = event.logits[-1].astype(np.float64)
            return float(row[ids["yes"]] - row[ids["no"]])
    raise LlamayError("a reading ended without its row")


def sigmoid(logit: float) -> float:
    """1 / (1 + e^-logit), without overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    small = math.exp(logit)
    return small / (1.0 + small)
