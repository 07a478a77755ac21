"""One model by name: loaded or not, its queue, and what is to be done with it once it is there."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from llamay.errors import DeviceError, DeviceLost, LlamayError, OutOfMemory
from llamay.serve.events import Done
from llamay.serve.scheduling.scheduler import Model, Scheduler
from llamay.serve.scheduling.sequence import Sequence
from llamay.serve.scheduling.waiting import Waiting
from llamay.serve.stats import ModelStats, RequestStats, State
from llamay.serve.ticket import Ticket

LISTED = 64  # of those who wait: telling of a thousand would cost the engine's thread milliseconds


@dataclass(frozen=True, slots=True)
class Call:
    """Something to do on the engine's thread with a loaded model; exactly one of the two is called."""

    do: Callable[[Scheduler], None]
    fail: Callable[[LlamayError], None]


@dataclass(slots=True, eq=False)
class Resident:
    """What the engine knows of one model name.  The engine's thread owns it."""

    name: str
    waiting: Waiting
    light: bool = False  # it has a place of its own, beside the models that answer
    model: Model | None = None
    scheduler: Scheduler | None = None
    loading: bool = False
    calls: list[Call] = field(default_factory=list)  # for when it is loaded
    handles: int = 0  # contexts that belong to somebody
    keep_alive: float | None = None  # seconds that it stays loaded when idle; None: until its place is needed
    dismissed: bool = False  # it is to go when idle, whoever has contexts in it
    used: float = field(default_factory=time.monotonic)  # when it last had something to do
    lost: str = ""  # why its device cannot be used, until it is loaded again

    @property
    def wanted(self) -> bool:
        """Whether it should be loaded and is not."""
        return self.scheduler is None and not self.loading and bool(self.calls or len(self.waiting))

    @property
    def first(self) -> int:
        """The lowest id of those who wait; 0 where something else does, too."""
        return 0 if self.calls else min((ticket.id for ticket in self.waiting.heads()), default=0)

    @property
    def forgettable(self) -> bool:
        """Whether nothing would be lost with it."""
        doing = self.loading or self.calls or self.handles or len(self.waiting)
        return self.scheduler is None and not (doing or self.lost)

    @property
    def busy(self) -> bool:
        """Whether a turn would do something."""
        return self.scheduler is not None and self.scheduler.busy

    def ready(self, model: Model, scheduler: Scheduler) -> None:
        """It has been loaded."""
        self.loading, self.model, self.scheduler = False, model, scheduler
        self.lost = ""
        self.used = time.monotonic()
        calls, self.calls = self.calls, []
        for call in calls:
            call.do(scheduler)

    def turn(self) -> None:
        """Lets its requests go on.  Where a step fails, everyone in it does, and the model is given back."""
        if self.scheduler is None:
            return
        try:
            self.scheduler.turn()
        except LlamayError as error:
            self.lost = str(error) if isinstance(error, DeviceLost) else ""
            self.unload(error)
        except Exception as error:  # a fault of the program: the requests must hear of it, and others go on
            told = LlamayError(f"a step of {self.name or 'the model'} failed: {type(error).__name__}: {error}")
            told.__cause__ = error
            self.unload(told)
        self.used = time.monotonic()

    def cancel(self, ticket: Ticket) -> None:
        """Ends a request, wherever it is."""
        if self.waiting.remove(ticket):
            ticket.post(Done("cancel", ticket.clock.timings(), 0))
        elif self.scheduler is not None and not ticket.done:
            self.scheduler.cancel(ticket)

    def unload(self, error: LlamayError) -> None:
        """Gives the model back; who is not done fails with the error, who waits goes on waiting."""
        model, scheduler, self.model, self.scheduler = self.model, self.scheduler, None, None
        if scheduler is not None:
            scheduler.fail(error)
        if model is not None:
            model.close()

    def refuse(self, error: LlamayError) -> None:
        """Fails everyone who waits."""
        self.loading = False
        if isinstance(error, DeviceError) and not isinstance(error, OutOfMemory):
            self.lost = str(error)
        for ticket in self.waiting.all():
            self.waiting.remove(ticket)
            ticket.fail(error)
        calls, self.calls = self.calls, []
        for call in calls:
            call.fail(error)

    @property
    def expiry(self) -> float | None:
        """When it is to be given back if it stays idle; None: when its place is needed."""
        if self.dismissed:
            return self.used
        return None if self.keep_alive is None or self.handles else self.used + self.keep_alive

    def stats(self) -> ModelStats | None:
        """What it is doing, None while it is not loaded."""
        scheduler, expiry = self.scheduler, self.expiry
        if scheduler is None:
            return None
        now = time.perf_counter()
        requests = [_sequence(one, slot, "decode", now) for slot, one in enumerate(scheduler.running)]
        if scheduler.prefilling is not None:
            requests.append(_sequence(scheduler.prefilling, None, "prefill", now))
        requests += [_sequence(one, None, "paused", now) for one in scheduler.admission.paused]
        requests += [_waiting(ticket, now) for ticket in self.waiting.upcoming(LISTED)]
        return ModelStats(
            name=self.name,
            device=scheduler.executor.name,
            slots=scheduler.most,
            requests=tuple(requests),
            waiting=len(self.waiting),
            clients=self.waiting.clients(),
            cache=scheduler.cache.stats(),
            times=scheduler.times.copy(),
            expires=None if expiry is None else max(0.0, expiry - time.monotonic()),
        )


def _sequence(one: Sequence, slot: int | None, state: State, now: float) -> RequestStats:
    clock, context = one.ticket.clock, one.context
    return RequestStats(
        id=one.ticket.id,
        state=state,
        prompt=one.prompt,
        client=one.ticket.asked.client,
        via=one.ticket.asked.via,
        slot=slot,
        context=None if context is None else context.id,
        cached=clock.cached,
        held=one.held,
        generated=one.generated,
        waited=clock.admitted - clock.submitted,
        seconds=now - clock.submitted,
    )


def _waiting(ticket: Ticket, now: float) -> RequestStats:
    since = now - ticket.clock.submitted
    asked = ticket.asked
    return RequestStats(ticket.id, "waiting", len(asked.tokens), asked.client, waited=since, seconds=since, via=asked.via)
