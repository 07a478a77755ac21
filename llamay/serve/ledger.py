"""The Ledger: what an engine tells of itself, kept between two looks, and the requests that were over last."""

import time
from collections import deque
from collections.abc import Collection

from llamay.serve.events import Failed, Final
from llamay.serve.resident import Resident
from llamay.serve.stats import EndedStats, Stats
from llamay.serve.ticket import Ticket

FRESH = 0.05  # seconds that statistics are good for
REMEMBERED = 64  # requests that are over: whoever looks four times a second misses none of 250 a second


class Ledger:
    """Written by the engine's thread; `stats` and `fresh` may be read by any."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many requests may wait."""
        self.stats = Stats((), (), 0, limit, 0, 0.0)
        self.submitted = 0
        self._limit = limit
        self._started = time.monotonic()
        self._over: deque[EndedStats] = deque(maxlen=REMEMBERED)
        self._told = 0.0  # when the statistics were made
        self._shown: list[tuple[str, bool, bool, str]] = []  # the models in them: name, loading, loaded, why lost

    @property
    def fresh(self) -> bool:
        """Whether the statistics are new enough."""
        return time.monotonic() - self._told <= FRESH

    def spoil(self) -> None:
        """Something changed that whoever asks next is to hear of."""
        self._told = 0.0

    def remember(self, ticket: Ticket, final: Final) -> None:
        """A request is over."""
        times, asked = final.timings, ticket.asked
        outcome = type(final.error).__name__ if isinstance(final, Failed) else final.reason
        self._over.append(
            EndedStats(
                ticket.id, asked.model, outcome, times.prompt_tokens, times.cached_tokens,
                times.generated_tokens, times.queue_seconds, times.prompt_seconds, times.decode_seconds,
                asked.client, times.preempted, time.time(), asked.via,
            )
        )  # fmt: skip

    def notice(self, residents: Collection[Resident], waiting: int) -> None:
        """Tells anew where a model was loaded, lost or given back, so that nobody is told of one that is gone."""
        shown = [(one.name, one.loading, one.scheduler is not None, one.lost) for one in residents]
        if shown != self._shown:
            self._shown, told = shown, self._told
            self.tell(residents, waiting)
            self._told = told  # whoever asks wants what is going on now

    def tell(self, residents: Collection[Resident], waiting: int) -> None:
        """Makes the statistics of this moment; `waiting` requests are in queues."""
        found = [one.stats() for one in residents]
        active = sum(len({r.id for r in one.requests if r.state != "waiting"}) for one in found if one is not None)
        self.stats = Stats(
            models=tuple([one for one in found if one is not None]),
            loading=tuple([one.name for one in residents if one.loading]),
            waiting=waiting,
            limit=self._limit,
            finished=self.submitted - waiting - active,
            seconds=time.monotonic() - self._started,
            ended=tuple(self._over),
            lost={one.name: one.lost for one in residents if one.lost},
        )
        self._told = time.monotonic()
