"""Which executor a model gets: an adapter through WebGPU, or NumPy and the reason for it."""

from dataclasses import dataclass, replace

from llamay.errors import NoAdapter
from llamay.serve.loading.pools import Pools
from llamay.settings import Settings
from llamay.tensor import room
from llamay.tensor.executor import Executor
from llamay.tensor.program import Program
from llamay.tensor.webgpu import adapters


@dataclass(frozen=True, slots=True)
class Choice:
    """An adapter, or None for NumPy, with the reason in one clause."""

    backend: str  # webgpu or numpy
    adapter: adapters.Adapter | None
    reason: str
    adapters: tuple[adapters.Adapter, ...]
    fallback: bool = False  # numpy, though an adapter would have been taken

    @property
    def name(self) -> str:
        """What computes, as a banner shows it."""
        return f"{self.adapter.name} ({self.adapter.backend})" if self.adapter else "numpy"


def choose(settings: Settings) -> Choice:
    """Decides by `settings.backend`: `numpy`, `webgpu`, `webgpu:NAME`, or `auto`, the best adapter else NumPy.

    Raises NoAdapter when an adapter was asked for, by backend or by require_webgpu, and none fits.
    """
    word, _, name = settings.backend.partition(":")
    if word == "numpy":
        return Choice("numpy", None, "it was asked for", _listed())
    try:
        adapter, reason = adapters.choose(name)
    except NoAdapter as error:
        if word == "webgpu" or settings.require_webgpu:
            raise
        return Choice("numpy", None, str(error), (), fallback=True)
    return Choice("webgpu", adapter, reason, adapters.adapters())


def _listed() -> tuple[adapters.Adapter, ...]:
    """The adapters, for the list only: where wgpu cannot be loaded NumPy needs none."""
    try:
        return adapters.adapters()
    except NoAdapter:
        return ()


def free(choice: Choice, settings: Settings) -> int | None:
    """Bytes that a model may take where it computes, None where nobody knows."""
    if choice.adapter is None:
        return room.machine().free
    from llamay.tensor.webgpu import budget

    found = budget.have(choice.adapter, settings.device_bytes)
    return None if found is None else found.bytes


def largest(choice: Choice) -> int:
    """Bytes of the largest buffer that can be bound; 0: there is no such bound."""
    if choice.adapter is None:
        return 0
    limits = choice.adapter.limits
    return min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])


def executor(choice: Choice, program: Program, sizes: Pools, settings: Settings) -> Executor:
    """Loads the program into the chosen executor, with pools of KV pages in the format `settings.kv`.

    Raises DeviceError for what the device cannot do.
    """
    if choice.adapter is None:
        from llamay.tensor.numpy import NumpyExecutor

        return NumpyExecutor(program, sizes.pages, window_pages=sizes.window_pages, kv=settings.kv)
    from llamay.tensor.webgpu.opening import open_executor

    return open_executor(
        choice.adapter, program, sizes.pages, settings.cache, window_pages=sizes.window_pages, kv=settings.kv,
        entries=sizes.entries, allowed=settings.device_bytes, **({"rows": sizes.rows} if sizes.rows else {}),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernels:
    """How an adapter's kernels are launched: its class, what fixes its sums, and what was tuned."""

    launch: str
    numerics: str
    tuning: str


def kernels(adapter: adapters.Adapter, settings: Settings, *, measure: bool = False) -> Kernels:
    """Opens the adapter to see; with `measure` its launch is tuned anew.  Raises DeviceError."""
    from llamay.tensor.webgpu import tune
    from llamay.tensor.webgpu.device import Device

    device = Device(adapter)
    try:
        found = tune.measure(device, settings.cache) if measure else tune.stored(device, settings.cache)
        if found is None:
            later = "" if adapter.software else "; measured at the first load"
            found = replace(tune.defaults(device.launch), source=f"the class's defaults{later}")
        return Kernels(str(device.launch), device.launch.numerics, str(found))
    finally:
        device.close()
