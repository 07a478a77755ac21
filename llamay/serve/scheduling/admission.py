"""Who may take part in steps: requests are admitted when their pages are there, and the youngest gives its pages up."""

from array import array
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import replace

from llamay.errors import ContextFull, LlamayError, OutOfMemory, UsageError
from llamay.kv import Cache, Context
from llamay.kv.table import sized
from llamay.sample import Sampling
from llamay.sample.terms import Terms
from llamay.serve.logprobs import Alignment
from llamay.serve.request import Asked, Limits, Reading, Request
from llamay.serve.scheduling.sequence import Decoder, Mute, Sequence
from llamay.serve.scheduling.waiting import Waiting
from llamay.serve.ticket import Ticket
from llamay.tensor.batch import PAGE
from llamay.tensor.program import Program

MOST_PAGES_AHEAD = 4  # that a decoding sequence takes before it needs them: fewer batches have to be composed

DecoderOf = Callable[[tuple[int, ...], tuple[str, ...]], Decoder]  # (prompt, stop strings)


class Admission:
    """The pages of one model's requests.  What waits holds none of them.

    Whoever was admitted and lost its pages again, or is a fork that waits for a place, is `paused`:
    it goes before all that wait, the oldest first.
    """

    def __init__(
        self, cache: Cache, waiting: Waiting, decoder: DecoderOf, context: int, program: Program, chunk: int
    ) -> None:
        self.cache = cache
        self.waiting = waiting
        self.paused: list[Sequence] = []  # by order
        self.context = context
        self.before: int | None = None  # only tickets with a lower id are admitted: another model is to be loaded
        self._decoder = decoder
        self._vocabulary, self._made_for, self._pools = program.vocabulary, program.context, program.pools
        self._chunk = chunk
        self._blocked: LlamayError | None = None  # why the next did not fit; nothing was given back since
        self._held_back = False  # a sequence lost its pages and nothing has ended since
        self._lent: dict[int, Context] = {}  # by id, the least recently used first

    def anyone(self) -> bool:
        """Whether somebody is to be admitted, now or later."""
        return bool(self.paused) or self.waiting.first(self.before) is not None

    def may_succeed(self, *, others: bool) -> bool:
        """Whether trying to admit is worth it; `others` take part in steps and will give pages back."""
        return self.anyone() and not (others and (self._blocked is not None or self._held_back))

    def admit(self, *, others: bool) -> Sequence | None:
        """The next sequence, with pages for all it is to compute, or None where it has to wait for some.

        One that can never go on is failed: by what it asks for, or because there are not enough
        pages although no `others` take part in steps.
        """
        while self.may_succeed(others=others):
            sequence = self.paused[0] if self.paused else self._opened()
            if sequence is None:
                continue
            fits = self._fits(sequence)
            while not fits and self.spare():
                fits = self._fits(sequence)
            if fits:
                self._let_in(sequence)
                return sequence
            if others:
                return None
            holder = youngest(other for other in self.paused if other is not sequence)
            if holder is not None:
                self.preempt(holder)
            else:
                self._refuse(sequence)
        return None

    def grow(self, sequence: Sequence, running: int) -> None:
        """Room for the next token of a decoding sequence, and some more where pages are free; raises OutOfMemory."""
        context = sequence.context
        if context is None:
            raise LlamayError(f"request {sequence.ticket.id} decodes without having pages")
        least = len(sequence.tokens)
        most = max(least, sequence.prompt + sequence.count - 1)
        if context.room >= min(most, least + PAGE // 2):
            return
        pages = min(MOST_PAGES_AHEAD, max(1, self.cache.groups[0].pages.free // (2 * running)))
        wanted = min(most, (sized(least) + pages - 1) * PAGE)
        if wanted > least and self._extended(context, wanted):
            return
        if context.room < least:
            self.cache.extend(context, least - context.position)

    def reserve(self, sequence: Sequence, rows: int) -> None:
        """Room for the next rows of a prompt; raises OutOfMemory."""
        context = sequence.context
        if context is None:
            raise LlamayError(f"request {sequence.ticket.id} is computed without having pages")
        if context.position + rows > context.room:
            self.cache.extend(context, rows)

    def preempt(self, sequence: Sequence) -> None:
        """Its pages go, its tokens are kept; it will be computed again, bit for bit."""
        self.publish(sequence)
        if sequence.context is not None:
            if sequence.kept:
                self.cache.rewind(sequence.context, 0)
            else:
                self.cache.drop(sequence.context)
                sequence.context = None
        sequence.ticket.clock.preempted += 1
        if sequence not in self.paused:
            insort(self.paused, sequence, key=lambda other: other.order)
        self._held_back = True
        self._blocked = None

    def pause(self, sequences: Iterable[Sequence]) -> None:
        """Forks that are to go on as soon as there is a place for each."""
        for sequence in sequences:
            insort(self.paused, sequence, key=lambda other: other.order)

    def choice(self, stem: Sequence, index: int, context: Context) -> Sequence:
        """One answer to the prompt of `stem`, in a context of its own."""
        asked = stem.ticket.asked
        sampling = asked.sampling_of(index) if isinstance(asked, Request) else stem.sampling
        decoder = self._decoder(asked.tokens, stem.limits.stops)
        return replace(
            stem, index=index, purpose="answer", tokens=list(asked.tokens), sampling=sampling, decoder=decoder,
            context=context, kept=False, keeper=None, alignment=_alignment(asked),
        )  # fmt: skip

    def release(self, sequence: Sequence) -> None:
        """The sequence is over: what it computed becomes known, and its pages are given back."""
        if sequence in self.paused:
            self.paused.remove(sequence)
        self.publish(sequence)
        context, sequence.context = sequence.context, None
        if context is not None and sequence.kept:
            self.cache.rewind(context, context.position)  # the room beyond
        elif context is not None and sequence.keeper is not None:
            self.cache.rewind(context, context.position)
            sequence.keeper.keep(self, context)
        elif context is not None:
            self.cache.drop(context)
        self.gave_back()

    def gave_back(self) -> None:
        """Pages may have become free."""
        self._blocked = None
        self._held_back = False

    def lend(self, context: Context) -> None:
        """A context that nobody uses just now: its pages may be taken back, the least recently lent one's first."""
        self._lent.pop(context.id, None)
        self._lent[context.id] = context

    def spare(self) -> bool:
        """Takes back the pages of a context that was lent and is not pinned; False where there is none."""
        context = next((one for one in self._lent.values() if not one.pinned), None)
        if context is None:
            return False
        self.drop(context)
        return True

    def drop(self, context: Context) -> None:
        """Gives a context back that belongs to nobody any more."""
        self._lent.pop(context.id, None)
        self.cache.drop(context)
        self.gave_back()

    def publish(self, sequence: Sequence) -> None:
        """What the sequence has computed so far becomes known to others."""
        if sequence.prefix_cache and sequence.context is not None and sequence.context.position:
            self.cache.publish(sequence.context)

    def _opened(self) -> Sequence | None:
        """The next waiting request as a sequence; None where it was failed instead."""
        ticket = self.waiting.first(self.before)
        if ticket is None:
            return None
        try:
            return self._sequence(ticket)
        except LlamayError as error:
            self.waiting.take(ticket)
            ticket.fail(error)
            return None

    def _sequence(self, ticket: Ticket) -> Sequence:
        asked = ticket.asked
        if self._pools:
            raise UsageError("this model turns texts into vectors and generates none; `llamay embed` or `rerank` takes it")
        outside = [token for token in asked.tokens if not 0 <= token < self._vocabulary]
        if outside:
            raise UsageError(f"the prompt holds token {outside[0]}; the vocabulary ends at {self._vocabulary - 1}")
        tokens = list(asked.tokens)
        if isinstance(asked, Reading):
            self._room(asked, 0)
            return Sequence(
                ticket, 0, "reading", tokens, len(tokens), Sampling(), Limits(), 0, Mute(), prefix_cache=asked.prefix_cache,
                unread=asked.first,
            )  # fmt: skip
        Terms.of(asked.sampling, self._vocabulary)
        stem = asked.choices > 1 or asked.limits.tokens == 0
        sequence = Sequence(
            ticket, 0, "prompt" if stem else "answer", tokens, len(tokens), asked.sampling_of(0), asked.limits,
            self._room(asked, asked.limits.tokens), self._decoder(asked.tokens, asked.limits.stops),
            self._own(asked), asked.context is not None, asked.prefix_cache, keeper=asked.keeper,
            alignment=_alignment(asked),
        )  # fmt: skip
        return sequence

    def _room(self, asked: Asked, wanted: int | None) -> int:
        """How many tokens may be generated."""
        room = self.context - len(asked.tokens)
        if room < (0 if wanted == 0 else 1):
            raise ContextFull(
                f"the prompt has {len(asked.tokens)} tokens and the context {self.context}; "
                f"{self._way_out(len(asked.tokens), 256 if wanted is None else wanted)}",
                prompt=len(asked.tokens),
                context=self.context,
            )
        return room if wanted is None else min(wanted, room)

    def _way_out(self, prompt: int, answer: int) -> str:
        """What would let a prompt of so many tokens in, and its answer."""
        if prompt + answer <= self._made_for:
            return f"-c {prompt + answer} would hold it with its answer"
        longer = f", or use -c {self._made_for}" if prompt < self._made_for and self.context < self._made_for else ""
        return f"this model was made for {self._made_for}: shorten the prompt{longer}"

    def _own(self, asked: Request) -> Context | None:
        """The context the asker wants continued."""
        if asked.context is None:
            return None
        context = self.cache.contexts.get(asked.context)
        if context is None:
            raise UsageError(f"there is no context {asked.context}; it may have been dropped")
        held = context.position
        if held > len(asked.tokens) or context.tokens != array(context.tokens.typecode, asked.tokens[:held]):
            raise UsageError(f"context {context.id} holds {held} tokens, and the prompt does not begin with them")
        return context

    def _fits(self, sequence: Sequence) -> bool:
        """Takes the pages of all that is known, less what the tree has; where they are not there, takes nothing."""
        fresh = sequence.context is None
        if sequence.context is None:
            known = sequence.unread if sequence.purpose == "reading" else len(sequence.tokens) - 1
            found = sequence.tokens[:known] if sequence.prefix_cache else []
            keeper = sequence.keeper
            sequence.context = self.cache.match(found)[0] if keeper is None else keeper.begin(self, found)
            sequence.context.remembered = sequence.prefix_cache
        context = sequence.context
        if sequence.purpose == "answer" and context.position == len(sequence.tokens):
            self.cache.rewind(context, context.position - 1)  # the last token's logits are wanted
        end = len(sequence.tokens) + min(sequence.count - sequence.generated, PAGE) * (sequence.purpose == "answer")
        if self._enough(context, end):
            return True
        if fresh:
            self.cache.drop(context)
            sequence.context = None
        return False

    def _enough(self, context: Context, end: int) -> bool:
        """Takes pages up to position `end`; where there are windows, which pass on, those of one chunk at a time."""
        if end <= context.room:
            return True
        full = self.cache.groups[0]
        lacking = sized(end) - len(context.tables[0])
        if lacking > full.pages.free + full.reclaimable():
            self._blocked = OutOfMemory(
                f"{end} tokens need {lacking} KV pages of {PAGE} more, but of {full.pages.count} only "
                f"{full.pages.free} are free and {full.reclaimable()} can be given up; contexts hold the others"
            )
            return False
        windowed = len(self.cache.groups) > 1
        return self._extended(context, min(end, context.position + self._chunk) if windowed else end)

    def _extended(self, context: Context, end: int) -> bool:
        """Room up to position `end`, or False and nothing changed."""
        if end <= context.room:
            return True
        try:
            self.cache.extend(context, end - context.position)
        except OutOfMemory as error:
            self._blocked = error
            return False
        return True

    def _let_in(self, sequence: Sequence) -> None:
        """Out of the queue it stood in."""
        if self.paused and self.paused[0] is sequence:
            del self.paused[0]
            return
        ticket = sequence.ticket
        self.waiting.take(ticket)
        ticket.clock.admit(sequence.held)

    def _refuse(self, sequence: Sequence) -> None:
        """It will never fit: the pages it needs are held by contexts that belong to somebody."""
        error = self._blocked or OutOfMemory("there are too few KV pages")
        if sequence in self.paused:
            for other in [other for other in self.paused if other.ticket is sequence.ticket]:
                self.release(other)
        else:
            self.waiting.take(sequence.ticket)
        self._blocked = None
        sequence.ticket.fail(error)


def _alignment(asked: Asked) -> Alignment | None:
    return None if asked.logprobs is None else Alignment()


def youngest(sequences: Iterable[Sequence]) -> Sequence | None:
    """The youngest of those that hold pages."""
    holding = [one for one in sequences if one.context is not None and len(one.context.tables[0].live)]
    return max(holding, key=lambda one: one.order, default=None)
