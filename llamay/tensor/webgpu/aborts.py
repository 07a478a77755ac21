"""Keeps the process alive where wgpu would abort it, so that a lost device becomes an error and no crash.

wgpu-native ends the process (a panic that cannot unwind, then abort) when a poll or a
submission finds that the driver lost the device, and nothing in its interface prevents
that.  But abort() first runs the handler of SIGABRT, on the thread that called it; a
handler that never returns leaves that thread parked and the rest of the process running.
wgpu has dropped its locks by then, so other devices go on working.

Only threads that were given to `guard` are parked: an abort anywhere else stays one.
Windows ends the process without asking a handler; there a loss can only be avoided.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

POSSIBLE = os.name == "posix"

_guarded: dict[threading.Thread, Callable[[], None]] = {}  # what to call before a thread is parked
_installed: list[Any] = []  # the handler's C function, which must not be collected


def guard(thread: threading.Thread, aborted: Callable[[], None]) -> None:
    """From now on an abort on this thread calls `aborted` there and parks the thread for good."""
    if POSSIBLE and not _installed:
        _install()
    for ended in [known for known in _guarded if known.ident is not None and not known.is_alive()]:
        del _guarded[ended]
    _guarded[thread] = aborted


def _install() -> None:
    libc = ctypes.CDLL(None)
    set_handler, again = libc["signal"], libc["raise"]
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before: list[int | None] = []

    def handler(number: int) -> None:
        aborted = _guarded.get(threading.current_thread())
        if aborted is None:
            set_handler(signal.SIGABRT, before[0])
            again(number)  # delivered to the handler that was there before, once this one returns
            return
        aborted()
        while True:
            time.sleep(3600)

    function = ctypes.CFUNCTYPE(None, ctypes.c_int)(handler)
    _installed.append(function)
    before.append(set_handler(signal.SIGABRT, ctypes.cast(function, ctypes.c_void_p)))
