"""The Engine: requests in, tickets out, and one thread that owns every device."""

import atexit
import itertools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from llamay.errors import Closed, LlamayError
from llamay.serve.request import Asked
from llamay.serve.resident import Call, Resident
from llamay.serve.scheduler import CHUNK, RUNNING, Model, Scheduler
from llamay.serve.stats import Stats
from llamay.serve.ticket import TICK, Ticket
from llamay.serve.waiting import MOST_WAITING, Gate, Waiting

FRESH = 0.05  # seconds that statistics are good for

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much an engine takes on."""

    waiting: int = MOST_WAITING  # requests that may wait, over all models
    running: int = RUNNING  # sequences a step, if the device has so many slots
    chunk: int = CHUNK  # prompt tokens a step
    loaded: int = 1  # models at once
    keep_alive: float | None = 300.0  # seconds that an idle model stays loaded; None: until its place is needed


class Engine:
    """Carries out requests for any number of models, of which `bounds.loaded` are loaded at once.

    `open` loads a model by its name, on a thread of its own; everything after that happens on
    the engine's thread.  All methods may be called from any other.
    """

    def __init__(self, open: Callable[[str], Model], bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._open = open
        self._gate = Gate(self.bounds.waiting)
        self._residents: dict[str, Resident] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.RLock()  # of `_closed`, and of the order of what is put in the inbox
        self._closed = False
        self._stopped = False
        self._ids = itertools.count(1)
        self._loaders: list[threading.Thread] = []
        self._started = time.monotonic()
        self._submitted = 0
        self._stats = Stats((), (), 0, self.bounds.waiting, 0, 0.0)
        self._told = 0.0  # when they were made
        self._thread = threading.Thread(target=self._work, name="llamay-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a daemon thread must not be in a driver when Python goes away

    @classmethod
    def of(cls, model: Model, bounds: Bounds | None = None) -> "Engine":
        """An engine for one model that is loaded already, which it closes in the end; no other takes its place."""
        waiting = [model]

        def open(name: str) -> Model:
            if not waiting:
                raise Closed("the model was given back; it has to be loaded again")
            return waiting.pop()

        return cls(open, replace(bounds or Bounds(), keep_alive=None))

    def submit(self, asked: Asked) -> Ticket:
        """Puts a request in the queue; raises QueueFull where there is no place, Closed after `close`.

        Everything else that is wrong with it ends the ticket with Failed.
        """
        with self._lock:
            self._check()
            self._gate.enter()
            ticket = Ticket(next(self._ids), asked, self._cancel)
            self._submitted += 1
            self._inbox.put(lambda: self._resident(asked.model).waiting.push(ticket))
        return ticket

    def call(self, do: Callable[[Scheduler], T], model: str = "") -> T:
        """Runs a function on the engine's thread, between two steps, and returns what it returns.

        The model is loaded for it.  What it raises is raised here.
        """
        result: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def carry_out(scheduler: Scheduler) -> None:
            try:
                result.append(do(scheduler))
            except BaseException as error:
                errors.append(error)
            done.set()

        def fail(error: LlamayError) -> None:
            errors.append(error)
            done.set()

        with self._lock:
            self._check()
            self._inbox.put(lambda: self._do(self._resident(model), Call(carry_out, fail)))
        while not done.wait(TICK):
            pass
        if errors:
            raise errors[0]
        return result[0]

    def hold(self, count: int, model: str = "") -> None:
        """So many contexts more, or less, belong to somebody: while there are any, the model stays loaded when idle."""
        self.post(lambda: self._hold(self._resident(model), count))

    def post(self, do: Callable[[], None]) -> None:
        """Has the engine's thread call a function between two steps, soon; after `close` nothing happens."""
        with self._lock:
            if not self._closed:
                self._inbox.put(do)

    def stats(self) -> Stats:
        """What is going on, at most a step old."""
        if time.monotonic() - self._told > FRESH:
            fresh = threading.Event()
            with self._lock:
                if self._closed:
                    return self._stats
                self._inbox.put(lambda: self._tell(fresh))
            fresh.wait(FRESH)
        return self._stats

    def close(self) -> None:
        """Fails what is under way, gives every model back and ends the thread.  Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(self._stop)
        self._thread.join()
        for thread in self._loaders:
            thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed("the engine was closed")

    def _cancel(self, ticket: Ticket) -> None:
        self.post(lambda: self._resident(ticket.asked.model).cancel(ticket))

    # -- the engine's thread

    def _work(self) -> None:
        reason = Closed("the engine was closed")
        try:
            while not self._stopped:
                self._listen()
                self._provide()
                for resident in list(self._residents.values()):
                    if resident.busy:
                        resident.turn()
                self._expire()
        except BaseException as error:
            reason = Closed(f"the engine failed: {type(error).__name__}: {error}")
            reason.__cause__ = error
            raise
        finally:  # whatever happened, nobody is left waiting
            with self._lock:
                self._closed = True
            self._clear(reason)

    def _listen(self) -> None:
        """Does what was asked; waits for it where there is nothing else to do."""
        idle = not any(one.busy or self._can_provide(one) for one in self._residents.values())
        try:
            if idle:
                self._inbox.get(timeout=self._patience())()
            while not self._stopped:
                self._inbox.get_nowait()()
        except queue.Empty:
            pass

    def _patience(self) -> float:
        """Seconds until an idle model is to be given back."""
        now = time.monotonic()
        return max(0.001, min((until - now for until in map(self._until, self._residents.values())), default=60.0))

    def _until(self, resident: Resident) -> float:
        """When an idle model is to be given back."""
        if self.bounds.keep_alive is None or resident.scheduler is None or resident.busy or resident.handles:
            return time.monotonic() + 60.0
        return resident.used + self.bounds.keep_alive

    def _expire(self) -> None:
        """Gives idle models back, and forgets names that mean nothing."""
        for resident in list(self._residents.values()):
            if resident.scheduler is not None and not resident.busy and self._until(resident) <= time.monotonic():
                resident.unload(Closed("the model was idle"))
            if resident.forgettable:
                del self._residents[resident.name]

    def _resident(self, name: str) -> Resident:
        if name not in self._residents:
            self._residents[name] = Resident(name, Waiting(self._gate))
        return self._residents[name]

    def _do(self, resident: Resident, call: Call) -> None:
        if resident.scheduler is None:
            resident.calls.append(call)
        else:
            resident.used = time.monotonic()
            call.do(resident.scheduler)

    def _hold(self, resident: Resident, count: int) -> None:
        resident.handles += count
        resident.used = time.monotonic()

    def _can_provide(self, resident: Resident) -> bool:
        return resident.wanted and (self._vacancies() > 0 or self._idle() is not None)

    def _vacancies(self) -> int:
        return self.bounds.loaded - sum(one.loading or one.scheduler is not None for one in self._residents.values())

    def _idle(self) -> Resident | None:
        """The model whose place is given to another first."""
        idle = [one for one in self._residents.values() if one.scheduler is not None and not one.busy]
        return min(idle, key=lambda one: (one.handles > 0, one.used), default=None)

    def _provide(self) -> None:
        """Loads the models that are wanted, the one that was asked for first before others.

        Where all places are taken and no model is idle, those that are loaded admit only what came before.
        """
        before: int | None = None
        for resident in sorted((one for one in self._residents.values() if one.wanted), key=lambda one: one.first):
            if not self._begin_loading(resident) and before is None:
                before = resident.first
        for resident in self._residents.values():
            if resident.scheduler is not None:
                resident.scheduler.admission.before = before

    def _begin_loading(self, resident: Resident) -> bool:
        """In a free place, or that of an idle model; False where there is neither."""
        if self._vacancies() < 1:
            idle = self._idle()
            if idle is None:
                return False
            idle.unload(Closed(f"the model's place was given to {resident.name or 'another'}"))
        resident.loading = True
        thread = threading.Thread(target=self._load, args=(resident,), name="llamay-load", daemon=True)
        self._loaders = [*(one for one in self._loaders if one.is_alive()), thread]
        thread.start()
        return True

    def _load(self, resident: Resident) -> None:
        """On a thread of its own: others go on meanwhile."""
        try:
            model = self._open(resident.name)
        except LlamayError as error:
            told = error
        except Exception as error:  # a fault of the program: who waits must hear of it
            told = LlamayError(f"loading {resident.name or 'the model'} failed: {type(error).__name__}: {error}")
            told.__cause__ = error
        else:
            with self._lock:
                closed = self._closed
                if not closed:
                    self._inbox.put(lambda: self._loaded(resident, model))
            if closed:
                model.close()
            return
        with self._lock:
            if not self._closed:
                self._inbox.put(lambda: resident.refuse(told))

    def _loaded(self, resident: Resident, model: Model) -> None:
        try:
            scheduler = Scheduler(model, resident.waiting, chunk=self.bounds.chunk, running=self.bounds.running)
        except LlamayError as error:
            model.close()
            resident.refuse(error)
            return
        resident.ready(model, scheduler)

    def _tell(self, fresh: threading.Event | None = None) -> None:
        found = [one.stats() for one in self._residents.values()]
        waiting = self._gate.inside
        active = sum(len({r.id for r in one.requests if r.state != "waiting"}) for one in found if one is not None)
        self._stats = Stats(
            models=tuple([one for one in found if one is not None]),
            loading=tuple([one.name for one in self._residents.values() if one.loading]),
            waiting=waiting,
            limit=self.bounds.waiting,
            finished=self._submitted - waiting - active,
            seconds=time.monotonic() - self._started,
        )
        self._told = time.monotonic()
        if fresh is not None:
            fresh.set()

    def _stop(self) -> None:
        self._stopped = True

    def _clear(self, error: LlamayError) -> None:
        """Ends everything."""
        while True:  # what was asked before the end
            try:
                self._inbox.get_nowait()()
            except queue.Empty:
                break
        for resident in self._residents.values():
            resident.refuse(error)
            resident.unload(error)
        self._tell()
