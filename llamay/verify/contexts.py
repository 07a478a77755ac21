"""The rows on contexts: sharing, saving, evicting, batching and preempting change no bit of what follows."""

import hashlib
import tempfile
from pathlib import Path

import numpy as np

from llamay.errors import LlamayError
from llamay.kv import Context
from llamay.kv.snapshots import Folder, Label, origin_of, save
from llamay.kv.table import sized
from llamay.sample import Sampling
from llamay.serve.events import Done, Failed, Rows
from llamay.serve.request import Limits, Reading, Request
from llamay.serve.scheduling.together import Together
from llamay.tensor.batch import PAGE, Ints
from llamay.verify import elsewhere
from llamay.verify.checks import Check, Row
from llamay.verify.stage import NOTHING, Part, Stage, differing, stage
from llamay.verify.subject import ANSWER, Subject

WIDTHS = (2, 3, 8)  # requests in a batch, the one that is watched among them
STAY, PERIOD = 13, 16  # steps that company stays, of so many: all are there at once at times
LIVELY = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=1)


def cut_of(text: Ints) -> int:
    """Where the text is cut: past its middle, inside a page."""
    at = max(1, len(text) * 3 // 5)
    return at if at % PAGE else at + 1


def later(subject: Subject, first: int) -> Ints:
    """The checkpoints from a position on."""
    return subject.checkpoints[subject.checkpoints >= first]


def fork_equals_original(subject: Subject) -> Row:
    """Two forks and their original go on in turns, one of them otherwise, each against the same text alone."""
    text, cut = subject.tokens, cut_of(subject.tokens)
    vocabulary = subject.executor.program.vocabulary
    rest, other, wanted = text[cut:], (text[cut:] + 1) % vocabulary, later(subject, cut)
    with stage(subject.executor, 4 * sized(len(text))) as on:
        alone = []
        for tokens in (text, np.concatenate([text[:cut], other])):
            context = on.new()
            alone.append(on.read(context, tokens, wanted))
            on.cache.drop(context)
        original = on.new()
        on.read(original, text[:cut])
        free = on.cache.groups[0].pages.free
        fork, odd = on.cache.fork(original, 2)
        taken = free - on.cache.groups[0].pages.free
        found = [on.read(context, tokens, wanted) for context, tokens in ((odd, other), (fork, rest), (original, rest))]
        on.cache.check_integrity()
    count = differing([alone[1], alone[0], alone[0]], found)
    note = f"of {3 * alone[0].size:,}; {taken} pages allocated, {cut} tokens shared"
    return Row("a fork goes on as its original", count + taken, 0, "logits differ", note)


def saved_equals_original(subject: Subject) -> Row:
    """The rest of the text after a snapshot, computed here and by another process that restored it."""
    text, cut = subject.tokens, cut_of(subject.tokens)
    wanted = later(subject, cut)
    weights = f"sha256:{hashlib.sha256(str(subject.loaded.file.path).encode()).hexdigest()}"  # the folder is our own
    with stage(subject.executor, 2 * sized(len(text))) as on, tempfile.TemporaryDirectory() as made:
        context = on.new()
        on.read(context, text[:cut])
        origin = origin_of(on.executor, on.cache, subject.loaded.name[:100], weights)
        save(Folder(Path(made)), context, on.executor, origin, Label(elsewhere.NAME), pending=text[cut:].tolist())
        there = elsewhere.continued(subject, Path(made), wanted)
        here = on.read(context, text[cut:], wanted)
        on.cache.check_integrity()
    note = f"of {here.size:,}; {cut} tokens restored as pages"
    return Row("a snapshot goes on in another process", differing([here], [there]), 0, "logits differ", note)


def evicted_equals_kept(subject: Subject) -> Row:
    """The text computed, evicted, its pages written over, and computed again."""
    text = subject.tokens
    with stage(subject.executor, 2 * sized(len(text))) as on:
        before = _published(on, text, subject.checkpoints)
        known = on.cache.known(text.tolist())
        if known != len(text) // PAGE * PAGE:
            raise LlamayError(f"the prefix tree knows {known} tokens of {len(text)}; expected all whole pages")
        for group in on.cache.groups:
            on.cache.evict(group.pages.count, group.number)
        left = on.cache.known(text.tolist())
        if left:
            raise LlamayError(f"the prefix tree still knows {left} tokens after giving up everything")
        _published(on, text[::-1].copy(), NOTHING)
        after = _published(on, text, subject.checkpoints)
        on.cache.check_integrity()
    note = f"of {before.size:,}; {known} tokens evicted"
    return Row("an evicted prefix is computed the same", differing([before], [after]), 0, "logits differ", note)


def _published(on: Stage, text: Ints, wanted: Ints) -> np.ndarray:
    """Logits [wanted, vocabulary] of a text that the tree knows afterwards."""
    context = on.new()
    logits = on.read(context, text, wanted)
    on.cache.publish(context)
    on.cache.drop(context)
    return logits


def known_equals_unknown(subject: Subject) -> Row:
    """Logits of the text's end, its beginning found in the prefix cache, against all of it computed."""
    text = tuple(np.resize(subject.tokens, max(len(subject.tokens), 2 * PAGE)).tolist())
    first = max(len(text) * 3 // 5, len(text) - ANSWER)
    whole = first // PAGE * PAGE
    with stage(subject.executor, 3 * sized(len(text))) as on:
        crowd = Together(on.executor, sized(len(text)) * PAGE, on.cache)
        unknown, none = _reading(crowd, Reading(text, first, prefix_cache=False))
        crowd.run(Request(text[: whole + 1], limits=Limits(tokens=0)))
        known, cached = _reading(crowd, Reading(text, first))
        on.cache.check_integrity()
    if none or cached != whole:
        raise LlamayError(f"the prefix cache found {cached} tokens of {whole} it knows, and {none} that were not sought")
    note = f"of {unknown.size:,}; {cached} tokens found"
    return Row("the prefix cache changes nothing", differing([unknown], [known]), 0, "logits differ", note)


def _reading(crowd: Together, asked: Reading) -> tuple[np.ndarray, int]:
    """Logits [rows, vocabulary], and how many tokens were known."""
    ticket = crowd.submit(asked)
    crowd.until(lambda: False)
    rows = []
    for event in ticket:
        match event:
            case Rows():
                rows.append(event.logits)
            case Failed():
                raise event.error
            case Done():
                return np.concatenate(rows), event.timings.cached_tokens
    raise LlamayError("a reading ended without its final event")


def joining_changes_nothing(subject: Subject) -> Row:
    """One sequence, token by token, alone and in batches of 2, 3 and 8 whose others join and leave."""
    text = subject.tokens
    cut = max(cut_of(text), len(text) - ANSWER)
    pages = sized(len(text)) + max(WIDTHS) * sized(2 * PAGE + PERIOD)
    with stage(subject.executor, pages) as on:
        alone = _decoded(on, text, cut, 1)
        found = {width: _decoded(on, text, cut, width) for width in WIDTHS}
        on.cache.check_integrity()
    counts = {width: differing([alone], [logits]) for width, logits in found.items()}
    odd = ", ".join(f"{count:,} among {width}" for width, count in counts.items() if count)
    note = odd or f"of {alone.size:,} each in batches of {', '.join(map(str, WIDTHS))}"
    return Row("who joins and leaves changes nothing", sum(counts.values()), 0, "logits differ", note)


def _decoded(on: Stage, text: Ints, cut: int, width: int) -> np.ndarray:
    """Logits of the text's rows from `cut` on, one a step, among others of the batch that come and go."""
    watched = on.new()
    on.read(watched, text[:cut])
    others: dict[int, Context] = {}
    found = []
    for step, row in enumerate(range(cut, len(text))):
        parts = [Part(watched, text[row : row + 1], np.array([row]))]
        for other in range(width - 1):
            phase = (step + 2 * other) % PERIOD
            if phase == 0 or (other not in others and phase < STAY):  # joins, with a prompt
                others[other] = on.new()
                parts.append(Part(others[other], text[other : other + 5 + other]))
            elif phase < STAY:
                parts.append(Part(others[other], text[step : step + 1]))
            elif other in others:
                on.cache.drop(others.pop(other))
        turn = step % len(parts)  # it stands elsewhere in each batch
        logits = on.compute(*parts[turn:], *parts[:turn])
        found.append(next(part for part in logits if len(part)))
    for context in (watched, *others.values()):
        on.cache.drop(context)
    return np.concatenate(found)


def preempted_equals_alone(subject: Subject) -> Row:
    """An answer that lost its pages to an older request and was computed again: tokens, pages, and what follows."""
    text = subject.tokens[: len(subject.tokens) // PAGE * PAGE]  # both take the last page in the middle of the answer
    pages = 2 * sized(len(text) + ANSWER) - 1
    with stage(subject.executor, pages) as on:
        alone = _answered(on, text, ())
        crowded = _answered(on, text, (text[::-1].tolist(),))
        on.cache.check_integrity()
    if not crowded.preempted:
        raise LlamayError(f"nothing was preempted, with {pages} pages for two requests that need one more")
    tokens = sum(one != other for one, other in zip(alone.tokens, crowded.tokens, strict=True))
    bytes = int((alone.pages != crowded.pages).sum())
    count = tokens + bytes + differing([alone.logits], [crowded.logits])
    note = f"{len(alone.tokens)} tokens, {len(alone.pages):,} bytes of pages, {alone.logits.size:,} logits"
    return Row("preemption changes nothing", count, 0, "values differ", note)


class _Answer:
    """What a request left: its tokens, the bytes of its pages, the logits of its last token."""

    def __init__(self, on: Stage, context: Context, done: Done) -> None:
        self.tokens = done.choices[0].tokens
        self.preempted = done.timings.preempted
        self.pages = on.pages(context)
        [self.logits] = on.compute(Part(context, np.array(self.tokens[-1:], np.int32), np.array([context.position])))


def _answered(on: Stage, text: Ints, older: tuple[list[int], ...]) -> _Answer:
    """ANSWER tokens after the text, in company of older requests of as many."""
    crowd = Together(on.executor, sized(len(text) + ANSWER) * PAGE, on.cache)
    limits = Limits(tokens=ANSWER)
    context = on.new()
    asked = [Request(tuple(tokens), LIVELY, limits, prefix_cache=False) for tokens in older]
    watched = Request(tuple(text.tolist()), LIVELY, limits, context=context.id, prefix_cache=False)
    *_, done = crowd.run(*asked, watched)
    found = _Answer(on, context, done)
    on.cache.drop(context)
    return found


CONTEXT_CHECKS: tuple[tuple[str, Check], ...] = (
    ("a fork goes on as its original", fork_equals_original),
    ("a snapshot goes on in another process", saved_equals_original),
    ("an evicted prefix is computed the same", evicted_equals_kept),
    ("the prefix cache changes nothing", known_equals_unknown),
    ("who joins and leaves changes nothing", joining_changes_nothing),
    ("preemption changes nothing", preempted_equals_alone),
)
