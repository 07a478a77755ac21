"""Submissions and waits of one device: they hear Ctrl-C, and a lost or closed device is an error that says so.

Three facts about wgpu-native shape this.  An invalid submission aborts the process, while
`finish` of a command encoder reports a lost device as an exception; so every submission
goes through `finish` here.  A mapping that was accepted before a loss may report success;
so a device is asked whether it still lives after every wait.  And a loss that a poll or a
submission is the first to notice aborts: see `aborts`.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import wgpu

from llamay.errors import DeviceError, DeviceLost
from llamay.tensor.webgpu import aborts

TICK = 0.1  # seconds between looks at the device during a wait; an interrupt may wait as long on some systems
ABORTED = (
    "the driver gave it up in the middle of its work (a reset, a driver update, or a submission that took too long)"
)


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
class Fence:
    """A point in the queue."""

    buffer: Any
    promise: Any


class Watch:
    """One device's submissions and waits.  `guarded` submits on a thread of its own, which may be parked by a loss."""

    def __init__(self, name: str, handle: Any, *, guarded: bool) -> None:
        self.name, self.handle = name, handle
        self._cause = ""  # set once the device is lost
        self._closed = False
        self._mark: Any = None
        self._fences: list[Any] = []
        self._words = _LossWords()
        logging.getLogger("wgpu").addHandler(self._words)
        self._sender: _Sender | None = None
        poller = getattr(handle, "_poller", None)
        if guarded and aborts.POSSIBLE and isinstance(poller, threading.Thread):
            aborts.guard(poller, self._aborted)
            self._sender = _Sender(self._aborted)

    def check(self) -> None:
        """Raises DeviceError once the device is closed, DeviceLost once it is known to be gone; costs nothing else."""
        if self._closed:
            raise DeviceError(f"{self.name} was closed; open it anew to use it")
        if self._cause:
            raise DeviceLost(f"{self.name} was lost: {self._cause}")

    def alive(self) -> None:
        """Asks the device itself; raises as `check` does."""
        self.check()
        self.finish(self.handle.create_command_encoder())

    def told(self, error: Exception, doing: str) -> DeviceError:
        """What to raise for an error of wgpu."""
        words = " ".join(str(error).split())
        if "is lost" in words:
            self._cause = self._cause or self._words.words or words
            return DeviceLost(f"{self.name} was lost: {self._cause}")
        return DeviceError(f"{self.name} failed at {doing}: {words}")

    def finish(self, encoder: Any) -> Any:
        """The encoder's command buffer; raises DeviceLost, or DeviceError for commands that may not be submitted."""
        self.check()
        try:
            return encoder.finish()
        except wgpu.GPUError as error:
            raise self.told(error, "recording commands") from error

    def submit(self, commands: Sequence[Any]) -> None:
        """Queues finished command buffers.  What they use must be neither mapped nor destroyed."""
        self.check()
        if self._sender is None:
            self.handle.queue.submit(commands)
        else:
            call = self._sender.send(lambda: self.handle.queue.submit(commands))
            self._until(call.done)
            if call.error is not None:
                raise self.told(call.error, "submitting") from call.error

    def wait(self, promise: Any, doing: str) -> None:
        """Waits for a promise of wgpu."""
        event = getattr(promise, "_thread_event", None)
        if event is not None:  # without it (a wgpu-py that keeps it elsewhere) only the promise's own wait is left
            self._until(event)
        try:
            promise.sync_wait()
        except (RuntimeError, wgpu.GPUError) as error:
            self.alive()
            raise self.told(error, doing) from error
        self.alive()

    def fenced(self, encoder: Any) -> "Fence":
        """Queues what the encoder recorded; `reach` waits for it and for all that was queued before."""
        self.check()
        buffer = self._fences.pop() if self._fences else self._new_fence()
        encoder.copy_buffer_to_buffer(self._mark, 0, buffer, 0, 16)
        self.submit([self.finish(encoder)])
        return Fence(buffer, buffer.map_async("READ_NOSYNC"))

    def reach(self, fence: "Fence") -> None:
        """Waits for a fence, once; interrupted, it may be waited for again."""
        self.wait(fence.promise, "waiting for work")
        fence.buffer.unmap()
        self._fences.append(fence.buffer)

    def idle(self) -> None:
        """Waits until everything submitted is done."""
        self.check()
        self.reach(self.fenced(self.handle.create_command_encoder()))

    def _new_fence(self) -> Any:
        # a mapping waits for the last submission that used the buffer; wgpu-py 0.32 has no other way to ask
        if self._mark is None:
            self._mark = self.handle.create_buffer(size=16, usage=wgpu.BufferUsage.COPY_SRC)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self.handle.create_buffer(size=16, usage=usage)

    def close(self) -> None:
        """From now on everything raises DeviceError."""
        if self._closed:
            return
        self._closed = True
        logging.getLogger("wgpu").removeHandler(self._words)
        if self._sender is not None:
            self._sender.stop()

    def _until(self, event: threading.Event) -> None:
        while not event.wait(TICK):
            self.alive()

    def _aborted(self) -> None:
        """Runs on the thread that is about to be parked."""
        self._cause = ABORTED


@dataclass(slots=True, eq=False)
class _Call:
    """Something to do on another thread, and what came of it."""

    work: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class _Sender:
    """A thread for calls that may be the last thing a thread does."""

    def __init__(self, aborted: Callable[[], None]) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        thread = threading.Thread(target=self._run, name="llamay-submit", daemon=True)
        aborts.guard(thread, aborted)
        thread.start()

    def send(self, work: Callable[[], None]) -> _Call:
        call = _Call(work)
        self._calls.put(call)
        return call

    def stop(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.work()
            except Exception as error:  # it is the caller's, who waits for it
                call.error = error
            call.done.set()
