"""Which adapters the machine has, which one is used and why, and what to install where there is none."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llamay.errors import NoAdapter
from llamay.tensor.webgpu.cdecl import quicken

BACKENDS = ("Vulkan", "Metal", "D3D12")  # OpenGL lacks what the kernels need
RANKS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")  # preferred first
LAVAPIPE_THREADS = 16  # beyond this Mesa's dispatches only get slower to hand out
FEATURES = ("subgroup", "shader-f16", "timestamp-query", "immediates", "pipeline-cache")
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)

_DRIVERS = {  # os-release id -> the command that brings a software Vulkan driver
    "debian": "apt-get install mesa-vulkan-drivers",
    "ubuntu": "apt-get install mesa-vulkan-drivers",
    "fedora": "dnf install mesa-vulkan-drivers vulkan-loader",
    "rhel": "dnf install mesa-vulkan-drivers vulkan-loader",
    "suse": "zypper install libvulkan_lvp libvulkan1",
    "arch": "pacman -S vulkan-swrast vulkan-icd-loader",
    "alpine": "apk add mesa-vulkan-swrast vulkan-loader",
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter as the driver describes it."""

    name: str
    type: str  # DiscreteGPU, IntegratedGPU, VirtualGPU, CPU or Unknown
    backend: str  # Vulkan, Metal or D3D12
    driver: str
    features: tuple[str, ...]  # those of FEATURES it has
    limits: dict[str, int]  # those of LIMITS
    handle: Any = field(repr=False, compare=False)  # the wgpu.GPUAdapter
    subgroups: tuple[int, int] = (0, 0)  # the least and the most invocations a subgroup may have, 0 where it is not told

    @property
    def software(self) -> bool:
        """Whether the "GPU" is the machine's own CPU."""
        return self.type == "CPU"


@functools.cache
def adapters() -> tuple[Adapter, ...]:
    """The usable adapters, best first; among equals in the driver's order.

    Raises NoAdapter where wgpu itself cannot be loaded.
    """
    try:
        import wgpu
        from wgpu.backends.wgpu_native import ffi
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except (ImportError, OSError, RuntimeError) as error:
        raise NoAdapter(f"wgpu cannot be loaded ({error}); `pip install --force-reinstall wgpu` brings it") from error
    quicken(ffi)
    _thread_lavapipe()
    with _runtime_folder():
        # without OpenGL the list is made in 0.05 s instead of 0.4
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
        found = [_describe(handle) for handle in wgpu.gpu.enumerate_adapters_sync()]
    usable = [adapter for adapter in found if adapter.backend in BACKENDS]
    return tuple(sorted(usable, key=lambda adapter: (_rank(adapter), BACKENDS.index(adapter.backend))))


def choose(wanted: str = "") -> tuple[Adapter, str]:
    """The adapter to use and the reason, one clause.

    `wanted` is part of a name, in any case, or a position in `adapters()`; empty means the best.
    Raises NoAdapter, with what is there or what would bring one.
    """
    found = adapters()
    if not found:
        raise NoAdapter(f"no Vulkan, Metal or DX12 adapter on this machine; {advice()}")
    if not wanted:
        return found[0], _reason(found)
    named = [adapter for adapter in found if wanted.lower() in adapter.name.lower()]
    if not named and wanted.isdecimal() and int(wanted) < len(found):
        named = [found[int(wanted)]]
    if not named:
        names = ", ".join(repr(adapter.name) for adapter in found)
        raise NoAdapter(f"no adapter is called {wanted!r}; there is {names}")
    return named[0], f"its name holds {wanted!r}"


def advice() -> str:
    """What to install so that an adapter appears, for this operating system."""
    if sys.platform == "darwin":
        return "Metal needs macOS on its own hardware (virtual machines often hide it)"
    if sys.platform == "win32":
        return "install your graphics card's driver (it brings Vulkan and DX12)"
    for name in _distribution():
        if name in _DRIVERS:
            return f"`{_DRIVERS[name]}` brings a software one, your graphics card's driver a fast one"
    return "install Mesa's Vulkan drivers (lavapipe, a software one) or your graphics card's driver"


def _thread_lavapipe() -> None:
    """Asks Mesa's software driver for two threads a core, unless the person chose a number.

    A decode step is some 150 short dispatches, each handed to the driver's threads and waited
    for; with two a core the hand-offs overlap (docs/bench.md has the figures).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("LP_NUM_THREADS", str(min(2 * cores, LAVAPIPE_THREADS)))


def _describe(handle: Any) -> Adapter:
    info = handle.info
    kind = info["adapter_type"]
    return Adapter(
        name=info["device"] or info["description"] or "unnamed",
        type=kind if kind in RANKS else "Unknown",
        backend=info["backend_type"],
        driver=info["description"],
        features=tuple(name for name in FEATURES if name in handle.features),
        limits={name: int(handle.limits[name]) for name in LIMITS},
        handle=handle,
        subgroups=_subgroups(info),
    )


def _subgroups(info: Mapping[str, Any]) -> tuple[int, int]:
    if info["backend_type"] == "Metal":
        return 0, 0  # wgpu tells of the same 4 to 64 everywhere
    # wgpu-py 0.32 spells the names with "stack"
    least, most = (info.get(f"subgroup_{end}_size", info.get(f"stackgroup_{end}_size", 0)) for end in ("min", "max"))
    return int(least), int(most)


def _rank(adapter: Adapter) -> int:
    return RANKS.index(adapter.type)


def _reason(found: tuple[Adapter, ...]) -> str:
    best = found[0]
    if best.software:
        return "no hardware adapter was found, so the CPU plays the GPU"
    if len(found) == 1:
        return "it is the only one"
    others = [adapter for adapter in found if _rank(adapter) == _rank(best)]
    if len(others) > 1:
        return f"it is the first of {len(others)} of type {best.type}"
    return f"{best.type} comes before {found[1].type}"


def _distribution() -> list[str]:
    """The os-release ids of this Linux, the nearest first."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return []  # not every system has the file; the general advice serves
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return [values.get("ID", "").strip("\"'"), *values.get("ID_LIKE", "").strip("\"'").split()]


@contextlib.contextmanager
def _runtime_folder() -> Iterator[None]:
    """Vulkan's window-system probe complains on stderr where XDG_RUNTIME_DIR is unset; for its length it is set."""
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]
