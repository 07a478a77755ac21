"""Commands of llamay as processes of their own: what computes for long is not to share the screen's process."""

import subprocess
import sys
import threading
from collections.abc import Iterator

from llamay.errors import LlamayError

TICK = 0.1


class CommandFailed(LlamayError):
    """A command ended with an exit code other than 0."""


def lines(words: list[str], stop: threading.Event) -> Iterator[str]:
    """The lines that `llamay WORDS` prints, as they come; ends it when `stop` is set.  Raises CommandFailed."""
    command = [sys.executable, "-m", "llamay", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        over, complaints = threading.Event(), list[bytes]()
        listening = threading.Thread(target=lambda: complaints.extend(child.stderr or ()), daemon=True)
        threading.Thread(target=_look, args=(child, stop, over), daemon=True).start()
        listening.start()
        try:
            for line in child.stdout or ():
                yield line.decode("utf-8", "replace").rstrip("\n")
        except GeneratorExit:  # nobody wants the rest
            child.terminate()
            raise
        finally:
            code = child.wait()
            over.set()
            listening.join()
    if code and not stop.is_set():
        said = b"".join(complaints[-3:]).decode("utf-8", "replace").strip()
        raise CommandFailed(said or f"llamay {words[0]} ended with {code}")


def _look(child: "subprocess.Popen[bytes]", stop: threading.Event, over: threading.Event) -> None:
    """Ends the process once `stop` is set."""
    while not over.is_set():
        if stop.wait(TICK):
            if child.poll() is None:
                child.terminate()
            return
