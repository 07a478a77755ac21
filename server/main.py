"""Running the server: waitress in front, the engine behind, and a clean end on SIGTERM and Ctrl-C."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llamay.errors import Closed, LlamayError
from llamay.serve.models import Models
from llamay.server import app, banner, log
from llamay.server.configuration import Configuration
from llamay.server.listening import LINGER, Listening
from llamay.server.site import Site
from llamay.server.visits import Visits
from llamay.settings import Settings

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CUT = 2.0  # seconds that requests have to say their last words once they are cut


def serve(
    settings: Settings,
    configuration: Configuration,
    model: str = "",
    *,
    note: Callable[[str], None],
    ready: Callable[[Site, int], None] = lambda site, port: None,
) -> int:
    """Serves until SIGTERM or Ctrl-C, and returns the exit code.  `note` gets what a person should read.

    `ready` is called once with the port, when connections are taken.  A second signal ends the process by that signal.
    """
    log.hush()
    models = Models(settings, configuration.bounds, model)
    site = Site(models, configuration, journal=log.Journal(to_stderr, configuration.log))
    with contextlib.ExitStack() as ending:
        ending.callback(models.close)
        models.check(configuration.embed, configuration.rerank)  # who starts it can mend it; clients only hear of it
        listening = listen(site)
        with _signals(site, listening, note):
            note(banner.text(site, listening.port))
            if model:
                threading.Thread(target=_warm, args=(site, note), name="llamay-warm", daemon=True).start()
            ready(site, listening.port)
            listening.run()
            ending.pop_all().close()  # while signals are heard: it waits for the running step
    return 0


def listen(site: Site) -> Listening:
    """A server that is bound and not yet running; raises LlamayError where the address is taken."""
    return Listening(Visits(app.build(site), site), site.configuration)


def drain(site: Site, listening: Listening, note: Callable[[str], None] = lambda text: None) -> None:
    """Lets what is under way finish, cuts what is left at the deadline or when told to, and ends the server."""
    site.closing.set()
    listening.refuse()
    loading = site.models.engine.stats(wait=0).loading
    if loading:
        note(f"{', '.join(one or 'a model' for one in loading)} is being loaded, which is waited for; a second signal does not wait")
    if site.visiting:
        note(f"requests under way: {site.visiting}; they have {site.configuration.drain:g} s to finish, and a second signal cuts them")
    until = time.monotonic() + site.configuration.drain
    while site.visiting and time.monotonic() < until and not site.cut.wait(0.02):
        pass
    site.cut.set()
    until = time.monotonic() + CUT
    while site.visiting and time.monotonic() < until:
        time.sleep(0.02)
    listening.close()


@dataclass(slots=True, eq=False)
class Signals:
    """What signals do: the first drains, the second cuts and ends the process, a third ends it without last words.

    A running step cannot be interrupted, and on a slow device it lasts; so nobody waits for it after the second.
    """

    site: Site
    listening: Listening
    note: Callable[[str], None]
    draining: threading.Thread | None = None
    dying: threading.Thread | None = None

    def hear(self, number: int, frame: object) -> None:
        """The handler of each of SIGNALS."""
        self.site.closing.set()
        if self.draining is None:
            told = (self.site, self.listening, self.note)
            self.draining = threading.Thread(target=drain, args=told, name="llamay-drain", daemon=True)
            self.draining.start()
            return
        self.site.cut.set()
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        self.dying = threading.Thread(target=self._die, args=(number, self.draining), name="llamay-dying", daemon=True)
        self.dying.start()

    def _die(self, number: int, draining: threading.Thread) -> None:
        """Lets replies have their last words, and ends the process as the signal would have."""
        draining.join(CUT + LINGER)
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def _signals(site: Site, listening: Listening, note: Callable[[str], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the server while this is open."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = Signals(site, listening, note)
    before = {number: signal.signal(number, found.hear) for number in SIGNALS}
    try:
        yield
    finally:
        if found.dying is not None:
            found.dying.join()  # whoever sent two signals learns that from the exit status, however quick the end was
        for number, handler in before.items():
            signal.signal(number, handler)


def _warm(site: Site, note: Callable[[str], None]) -> None:
    """Loads the model that was named at the start."""
    try:
        note(f"loading {site.models.default.name}; requests wait for it")
        loaded = site.models.load(site.models.default)
        note(f"loaded {loaded.describe()} in {loaded.seconds:.1f}s")
    except Closed:  # by a signal
        return
    except LlamayError as error:
        note(str(error))


def to_stderr(text: str) -> None:
    """Where notes and the journal go by default."""
    print(text, file=sys.stderr, flush=True)
