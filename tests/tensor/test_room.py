"""The machine's memory, and a container's, from files laid out as the kernel has them."""

from pathlib import Path

import pytest

from llamay.tensor import room
from llamay.tensor.room import Room


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Writes control group files and says where this process is."""
    monkeypatch.setattr(room, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(room, "_system", lambda: Room(total=16000, free=9000))
    lines: list[str] = []
    reading = Path.read_text

    def read(path: Path, *args: str, **named: str) -> str:
        return "\n".join(lines) if str(path) == "/proc/self/cgroup" else reading(path, *args, **named)

    monkeypatch.setattr(Path, "read_text", read)

    def write(line: str, folder: str, **files: str) -> None:
        lines.append(line)
        place = tmp_path / "cgroup" / folder
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name.replace("__", ".")).write_text(text)

    return write


def test_this_machine_has_memory() -> None:
    found = room.machine()
    assert 0 < found.free <= found.total


def test_no_groups(groups) -> None:
    assert room.machine() == Room(16000, 9000)


def test_a_limit_of_version_2(groups) -> None:
    stat = "anon 100\ninactive_file 300\n"
    groups("0::/job", "job", memory__max="4000\n", memory__current="1000\n", memory__stat=stat)
    assert room.machine() == Room(4000, 3300)


def test_a_limit_of_a_group_around(groups) -> None:
    groups("0::/slice/job", "slice/job", memory__max="max\n", memory__current="1000\n")
    groups("0::/slice/job", "slice", memory__max="5000\n", memory__current="5500\n")
    assert room.machine() == Room(5000, 0)


def test_a_limit_of_version_1(groups) -> None:
    limits = {"memory__limit_in_bytes": "2000\n", "memory__usage_in_bytes": "500\n"}
    groups("4:memory:/not/visible/inside", "memory", memory__stat="total_inactive_file 100\n", **limits)
    assert room.machine() == Room(2000, 1600)


def test_a_broken_file_limits_nothing(groups) -> None:
    groups("0::/job", "job", memory__max="4000\n", memory__current="lots\n")
    assert room.machine() == Room(16000, 9000)
