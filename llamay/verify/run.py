"""Runs the rows one after the other; what breaks is a red row, not the end of the list."""

import math
from collections.abc import Callable, Iterator

from llamay.errors import DeviceLost, LlamayError
from llamay.serve.loading.load import Loaded
from llamay.verify.caches import apply, cache_checks
from llamay.verify.checks import CHECKS, Row
from llamay.verify.contexts import CONTEXT_CHECKS
from llamay.verify.subject import Subject

TEXT = 288  # tokens: beyond the first attention split


def verify(loaded: Loaded, say: Callable[[str], None], length: int = TEXT) -> Iterator[Row]:
    """Yields every row for this model on this device; `length` is that of the text in tokens.

    Raises UsageError for a context too short, and DeviceLost, after which no row could run.
    """
    subject = Subject.of(loaded, length)
    formats = cache_checks() if apply(subject.executor.program) else ()
    for name, check in (*CHECKS, *CONTEXT_CHECKS, *formats):
        say(name)
        try:
            yield check(subject)
        except DeviceLost:
            raise
        except LlamayError as error:
            yield Row(name, math.nan, 0, "", str(error))
