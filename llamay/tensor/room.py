"""How much memory the machine has, and how much of it this process may still take."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = 8 << 30  # bytes assumed where the system does not say
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of memory: what there is in all, and what is free without taking from anybody else."""

    total: int
    free: int


def machine() -> Room:
    """The machine's memory, or that of the container this process is confined to where that is less."""
    room = _system()
    for limit, used in _limits():
        room = Room(min(room.total, limit), min(room.free, max(0, limit - used)))
    return room


def _system() -> Room:
    if sys.platform == "win32":
        return _windows()
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = UNKNOWN
    fields = _fields(Path("/proc/meminfo"))
    free = fields.get("MemAvailable:")
    return Room(total, total if free is None else min(total, free << 10))


def _windows() -> Room:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            *((name, ctypes.c_uint64) for name in ("total", "free", "pages", "free_pages", "all", "free_all", "extended")),
        )

    status = Status(length=ctypes.sizeof(Status))
    known = ctypes.CDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
    return Room(status.total, status.free) if known else Room(UNKNOWN, UNKNOWN)


def _limits() -> list[tuple[int, int]]:
    """(limit, use that cannot be dropped) of the control groups around this process, of both versions."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += [_limit(folder, "memory.max", "memory.current") for folder in _folders(CGROUPS, path)]
        elif "memory" in controllers.split(","):
            base = CGROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            found += [_limit(folder, *names) for folder in _folders(base, path)]
    return [pair for pair in found if pair is not None]


def _folders(base: Path, path: str) -> list[Path]:
    """A control group's folder and those around it; inside a container the path may name what is outside."""
    inner = base / path.strip("/")
    return [folder for folder in (inner, *inner.parents) if folder.is_relative_to(base)]


def _limit(folder: Path, limit: str, used: str) -> tuple[int, int] | None:
    try:
        allowed = (folder / limit).read_text().strip()
        current = int((folder / used).read_text())
    except (OSError, ValueError):
        return None
    if not allowed.isdigit():
        return None  # "max"
    statistics = _fields(folder / "memory.stat")
    cached = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))  # dropped before anything fails
    return int(allowed), max(0, current - cached)


def _fields(path: Path) -> dict[str, int]:
    """The `name number ...` lines of a file; nothing where there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}
