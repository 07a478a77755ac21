"""Submissions and waits of one device: they hear Ctrl-C, and a lost or closed device is an error that says so.

What shapes this:

- An invalid submission aborts the process, while finishing a command encoder reports a lost
  device as an exception; so every submission is finished here first.
- A loss that a submission or a poll is the first to notice aborts too: see `aborts`.
- A submission may block for as long as the one before it takes, and it may run wgpu-py's
  callbacks.  An interrupt that came in one of them would be swallowed, and a promise with it.
  So submissions and mappings are made on a thread of their own, where no interrupts come.
- A mapping that was accepted before a loss may report success; so the device is asked
  whether it still lives after every wait.
"""

import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import wgpu

from llamay.errors import DeviceError, DeviceLost
from llamay.tensor.webgpu import aborts

TICK = 0.1  # seconds between looks at the device during a wait; on Windows an interrupt waits as long
DEPTH = 3  # so that the device never waits for the host
GONE = "the driver gave it up: a reset, a new driver, or work that took too long"


class _LossWords(logging.Handler):
    """wgpu-py tells of a lost device in its log only; this keeps the words."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "device was lost" in message:
            self.words = " ".join(message.split())


@dataclass(frozen=True, slots=True, eq=False)
class _Fence:
    """The end of a submission: it writes the buffer, which can be mapped once it is done."""

    buffer: Any
    promise: Any
    sent: float  # by time.perf_counter
    done: Callable[[float], None] | None


class Watch:
    """One device's submissions and waits; `depth` submissions with a fence are on their way at a time."""

    def __init__(self, name: str, handle: Any, depth: int = DEPTH) -> None:
        self.name, self.handle, self.depth = name, handle, depth
        self._reached = 0.0  # when the last wait ended
        self._cause = ""  # set once the device is lost
        self._closed = False
        self._mark: Any = None
        self._fences: list[Any] = []  # buffers for fences to come
        self._out: deque[_Fence] = deque()  # fences not yet reached
        self._words = _LossWords()
        logging.getLogger("wgpu").addHandler(self._words)
        mine = weakref.WeakMethod(self._aborted)  # the poller is guarded until it ends, which it does with the device

        def aborted() -> None:
            tell = mine()
            if tell is not None:
                tell()

        poller = getattr(handle, "_poller", None)
        if isinstance(poller, threading.Thread):
            aborts.guard(poller, aborted)
        self._sender = _Sender(aborted)
        self._call: _Call | None = None  # on its way through the sender

    def check(self) -> None:
        """Raises DeviceError once the device is closed, DeviceLost once it is known to be gone.

        Comes before everything that touches the queue: a submission whose caller was interrupted is
        awaited here, so that what follows it follows it.
        """
        if self._closed:
            raise DeviceError(f"{self.name} was closed; open it anew to use it")
        if self._cause:
            raise DeviceLost(f"{self.name} was lost: {self._cause}")
        if self._call is not None:
            while not self._call.done.wait(TICK):
                self.alive()
            self._call = None

    def alive(self) -> None:
        """Asks the device itself; raises as `check` does."""
        if self._closed or self._cause:
            self.check()
        try:
            # the cheapest object that a lost device refuses; wgpu keeps one empty layout and gives it again.
            # An encoder finished and not submitted would do too, but wgpu 0.32 leaks some 90 KB for each.
            self.handle.create_bind_group_layout(entries=[])
        except wgpu.GPUError as error:
            raise self.told(error, "asking whether it lives") from error

    def told(self, error: Exception, doing: str) -> DeviceError:
        """What to raise for an error of wgpu."""
        words = " ".join(str(error).split())
        if "is lost" in words:
            self._cause = self._cause or f"{GONE} ({self._words.words or words})"
            return DeviceLost(f"{self.name} was lost: {self._cause}")
        return DeviceError(f"{self.name} failed at {doing}: {words}")

    def submit(self, encoder: Any, reads: Any = None, done: Callable[[float], None] | None = None) -> Any:
        """Queues what the encoder recorded; what it uses must be neither mapped nor destroyed.

        With `reads`, a buffer it copies to, returns the promise that this can be read, for
        `wait`.  Without, the submission gets a fence, and `done` is told the seconds it took
        once that is reached; waits first while too many are on their way.
        """
        self.check()
        if reads is not None:
            return self._send(self._finish(encoder), reads)
        while len(self._out) >= self.depth:
            self._reach()
        fence = self._fences.pop() if self._fences else self._new_fence()
        encoder.copy_buffer_to_buffer(self._mark, 0, fence, 0, 16)
        sent = time.perf_counter()
        self._out.append(_Fence(fence, self._send(self._finish(encoder), fence), sent, done))
        return None

    def took(self, promise: Any, sent: float) -> float:
        """Seconds of the submission that was sent then and whose promise was waited for.

        The device may tell of two that followed each other at once: then the first seems to
        have taken the time of both.
        """
        now = getattr(getattr(promise, "_thread_event", None), "time", 0.0) or time.perf_counter()
        spent, self._reached = now - max(sent, self._reached), max(now, self._reached)
        return max(0.0, spent)

    def wait(self, promise: Any) -> None:
        """Waits for what `submit` gave; interrupted, it may be waited for again."""
        event = getattr(promise, "_thread_event", None)
        while event is not None and not event.wait(TICK) and promise._state == "pending":
            self.alive()
        try:
            promise.sync_wait()  # where wgpu-py keeps no such event only this wait is left
        except (RuntimeError, wgpu.GPUError) as error:
            self.alive()
            raise self.told(error, "reading back") from error
        self.alive()

    def idle(self) -> None:
        """Waits until everything submitted or written is done."""
        self.submit(self.handle.create_command_encoder())
        while self._out:
            self._reach()

    def close(self) -> None:
        """From now on everything raises DeviceError."""
        if self._closed:
            return
        self._closed = True
        logging.getLogger("wgpu").removeHandler(self._words)
        self._sender.stop()

    def _finish(self, encoder: Any) -> Any:
        """The encoder's command buffer; raises DeviceLost, or DeviceError for commands that may not be submitted."""
        try:
            return encoder.finish()
        except wgpu.GPUError as error:
            raise self.told(error, "recording commands") from error

    def _send(self, commands: Any, reads: Any) -> Any:
        """Submits and maps on the sender's thread."""

        def work() -> Any:
            self.handle.queue.submit([commands])
            return _timed(reads.map_async("READ_NOSYNC"))

        self._call = call = _Call(work)
        self._sender.send(call)
        while not call.done.wait(TICK):
            self.alive()
        self._call = None
        if call.error is not None:
            self.alive()
            raise self.told(call.error, "submitting") from call.error
        return call.promise

    def _reach(self) -> None:
        """Waits for the oldest fence."""
        fence = self._out[0]
        self.wait(fence.promise)
        self._out.popleft()
        fence.buffer.unmap()
        self._fences.append(fence.buffer)
        spent = self.took(fence.promise, fence.sent)
        if fence.done is not None:
            fence.done(spent)

    def _new_fence(self) -> Any:
        # a mapping waits for the last submission that used the buffer; wgpu-py 0.32 has no other way to ask
        if self._mark is None:
            self._mark = self.handle.create_buffer(size=16, usage=wgpu.BufferUsage.COPY_SRC)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self.handle.create_buffer(size=16, usage=usage)

    def _aborted(self) -> None:
        """Runs on the thread that is about to be parked."""
        self._cause = GONE


class _Moment(threading.Event):
    """An event that knows when it came."""

    time = 0.0

    def set(self) -> None:
        self.time = time.perf_counter()
        super().set()


def _timed(promise: Any) -> Any:
    """The promise, with an event that knows when it came in the place of wgpu-py's."""
    event = getattr(promise, "_thread_event", None)
    if event is not None:
        promise._thread_event = moment = _Moment()
        if event.is_set():
            moment.set()
    return promise


@dataclass(slots=True, eq=False)
class _Call:
    """A submission to make on another thread, and what came of it."""

    work: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    promise: Any = None
    error: Exception | None = None


class _Sender:
    """The thread that submits."""

    def __init__(self, aborted: Callable[[], None]) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._kept: list[Any] = []  # promises: wgpu calls what belongs to them even when nobody waits any more
        thread = threading.Thread(target=self._run, name="llamay-submit", daemon=True)
        aborts.guard(thread, aborted)
        thread.start()

    def send(self, call: _Call) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.promise = call.work()
                self._kept = [promise for promise in self._kept if promise._state == "pending"] + [call.promise]
            except Exception as error:  # it is the caller's, who waits for it
                call.error = error
            call.done.set()
            del call
