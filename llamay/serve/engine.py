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
from llamay.serve.ledger import FRESH, Ledger
from llamay.serve.request import Asked
from llamay.serve.resident import Call, Resident
from llamay.serve.residents import Residents
from llamay.serve.scheduling.scheduler import CHUNK, RUNNING, Model, Scheduler
from llamay.serve.scheduling.waiting import MOST_WAITING, Gate
from llamay.serve.stats import Stats
from llamay.serve.ticket import Ticket
from llamay.serve.told import Told

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
    the engine's thread.  Models that are `light` by their name, small encoders, take no place of
    those that answer.  All methods may be called from any other thread.
    """

    def __init__(
        self, open: Callable[[str], Model], bounds: Bounds | None = None, light: Callable[[str], bool] = lambda name: False
    ) -> None:
        self.bounds = bounds or Bounds()
        self._open = open
        self._gate = Gate(self.bounds.waiting)
        self._residents = Residents(self._gate, self.bounds.loaded, self.bounds.keep_alive, light)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.RLock()  # of `_closed`, and of the order of what is put in the inbox
        self._closed = False
        self._stopped = False
        self._ids = itertools.count(1)
        self._loaders: list[threading.Thread] = []
        self._ledger = Ledger(self.bounds.waiting)
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
            ticket = Ticket(next(self._ids), asked, self._cancel, self._ledger.remember)
            self._ledger.submitted += 1
            self._inbox.put(lambda: self._residents[asked.model].waiting.push(ticket))
        return ticket

    def call(self, do: Callable[[Scheduler], T], model: str = "") -> T:
        """Runs a function on the engine's thread, between two steps, and returns what it returns.

        The model is loaded for it.  What it raises is raised here.
        """
        told: Told[T] = Told()
        with self._lock:
            self._check()
            self._inbox.put(lambda: self._do(self._residents[model], Call(lambda scheduler: told.of(do, scheduler), told.fail)))
        return told.wait()

    def visit(self, do: Callable[[Scheduler | None], T], model: str = "") -> T:
        """As `call`, with None where the model is not loaded, which this does not change."""
        told: Told[T] = Told()

        def carry_out() -> None:
            resident = self._residents.get(model)
            told.of(do, None if resident is None else resident.scheduler)

        with self._lock:
            self._check()
            self._inbox.put(carry_out)
        return told.wait()

    def cancel(self, id: int) -> bool:
        """Ends the request that a ticket or the statistics call so, wherever it is; False where none is under way."""
        told: Told[bool] = Told()
        with self._lock:
            self._check()
            self._inbox.put(lambda: told.of(self._cancel_by, id))
        return told.wait()

    def hold(self, count: int, model: str = "") -> None:
        """So many contexts more, or less, belong to somebody: while there are any, the model stays loaded when idle."""
        self.post(lambda: self._hold(self._residents[model], count))

    def keep(self, model: str, seconds: float | None) -> None:
        """How long a loaded model stays when it is idle, until it is given back; None: until its place is needed.

        With 0 it goes as soon as nobody waits for it, also where somebody has a context in it:
        that is computed again when it is used.
        """
        self.post(lambda: self._keep(self._residents[model], seconds))

    def post(self, do: Callable[[], None]) -> None:
        """Has the engine's thread call a function between two steps, soon; after `close` nothing happens."""
        with self._lock:
            if not self._closed:
                self._inbox.put(do)

    def revive(self) -> None:
        """Has models whose device was lost loaded again, soon; whether that worked the statistics tell."""
        self.post(self._revive)

    @property
    def lost(self) -> dict[str, str]:
        """Models whose device was lost, and why; true before any of their requests hears of it."""
        return {one.name: one.lost for one in list(self._residents.values()) if one.lost}

    def stats(self, wait: float = FRESH) -> Stats:
        """What is going on, at most a step old.  With a `wait` of 0 it may be as old as the last look, but for which
        models are loaded or lost.
        """
        if not self._ledger.fresh:
            fresh = threading.Event()
            with self._lock:
                if self._closed:
                    return self._ledger.stats
                self._inbox.put(lambda: self._tell(fresh))
            fresh.wait(wait)
        return self._ledger.stats

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
        self.post(lambda: self._residents[ticket.asked.model].cancel(ticket))

    # -- the engine's thread

    def _work(self) -> None:
        reason = Closed("the engine was closed")
        try:
            while not self._stopped:
                self._listen()
                self._residents.provide(self._begin_loading)
                for resident in list(self._residents.values()):
                    if resident.busy:
                        resident.turn()
                self._residents.expire()
                self._ledger.notice(self._residents.values(), self._gate.inside)
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
        idle = self._residents.idle
        try:
            if idle:
                self._inbox.get(timeout=self._residents.patience)()
            while not self._stopped:
                self._inbox.get_nowait()()
        except queue.Empty:
            pass

    def _do(self, resident: Resident, call: Call) -> None:
        if resident.scheduler is None:
            resident.calls.append(call)
        else:
            resident.used = time.monotonic()
            call.do(resident.scheduler)

    def _revive(self) -> None:
        for resident in self._residents.values():
            if resident.lost and not (resident.loading or resident.wanted):
                resident.calls.append(Call(lambda scheduler: None, lambda error: None))

    def _hold(self, resident: Resident, count: int) -> None:
        resident.handles += count
        resident.used = time.monotonic()

    def _keep(self, resident: Resident, seconds: float | None) -> None:
        resident.dismissed = seconds == 0
        resident.keep_alive = seconds
        self._residents.expire()  # so that whoever asks next hears of it
        self._ledger.spoil()

    def _cancel_by(self, id: int) -> bool:
        for resident in self._residents.values():
            active = [] if resident.scheduler is None else [one.ticket for one in resident.scheduler.active]
            found = next((one for one in [*active, *resident.waiting.all()] if one.id == id), None)
            if found is not None:
                resident.cancel(found)
                return True
        return False

    def _begin_loading(self, resident: Resident) -> None:
        thread = threading.Thread(target=self._load, args=(resident,), name="llamay-load", daemon=True)
        self._loaders = [*(one for one in self._loaders if one.is_alive()), thread]
        thread.start()

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
        self._ledger.spoil()
        resident.ready(model, scheduler)

    def _tell(self, fresh: threading.Event | None = None) -> None:
        self._ledger.tell(self._residents.values(), self._gate.inside)
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
