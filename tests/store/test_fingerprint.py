"""The digest of weights: the file's own, whole, hashed once, and never remembered past a change."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from llamay.errors import ModelFileError
from llamay.store import fingerprint as module
from llamay.store.fingerprint import fingerprint, known

LONG_AGO = 1_600_000_000_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(5000))
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with every file that is hashed."""
    names: list[str] = []
    real = hashlib.file_digest

    def spy(file, name):
        names.append(name)
        return real(file, name)

    monkeypatch.setattr(hashlib, "file_digest", spy)
    return names


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def ticked(file: Path) -> None:
    """Waits until the file system's clock has gone on since the file changed: many tell no two changes within some milliseconds apart."""
    probe, until = file.with_name("probe"), time.monotonic() + 60
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > file.stat().st_ctime_ns:
            return
        assert time.monotonic() < until
        time.sleep(0.001)


def test_it_is_the_files_digest_and_is_remembered(file: Path, tmp_path: Path, hashed: list[str]) -> None:
    for _ in range(3):
        assert fingerprint([file], tmp_path / "blobs", tmp_path / "cache") == digest(file.read_bytes())
    assert len(hashed) == 1


def test_another_name_of_the_file_is_the_same_file(file: Path, tmp_path: Path, hashed: list[str]) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(file)
    both = {fingerprint([path], tmp_path / "blobs", tmp_path / "cache") for path in (file, link)}
    assert both == {digest(file.read_bytes())} and len(hashed) == 1


def test_a_change_is_seen(file: Path, tmp_path: Path, hashed: list[str]) -> None:
    first = fingerprint([file], tmp_path / "blobs", tmp_path / "cache")
    ticked(file)
    with open(file, "r+b") as out:
        out.seek(2000)
        out.write(b"x")
    os.utime(file, ns=(LONG_AGO, LONG_AGO))  # as if nothing had been: the time of the change of the inode tells
    second = fingerprint([file], tmp_path / "blobs", tmp_path / "cache")
    assert first != second == digest(file.read_bytes()) and len(hashed) == 2


def test_a_file_just_written_is_not_remembered(
    file: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 3600.0)
    os.utime(file)
    for _ in range(2):
        fingerprint([file], tmp_path / "blobs", tmp_path / "cache")
    assert len(hashed) == 2


def test_a_blob_is_what_its_name_says(tmp_path: Path, hashed: list[str]) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    data = b"GGUF" + bytes(10)
    blob = blobs / digest(data).replace(":", "-")
    blob.write_bytes(data)
    view = tmp_path / "model-00001-of-00001.gguf"
    view.symlink_to(blob)
    for path in (blob, view):
        assert fingerprint([path], blobs, tmp_path / "cache") == digest(data)
    assert hashed == []
    other = blobs / "notes.gguf"
    other.write_bytes(b"x")
    assert fingerprint([other], blobs, tmp_path / "cache") == digest(b"x")
    outside = tmp_path / blob.name
    outside.write_bytes(b"a lie")
    assert fingerprint([outside], blobs, tmp_path / "cache") == digest(b"a lie")


def test_parts_make_one_digest(file: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.gguf"
    second.write_bytes(b"GGUF")
    found = fingerprint([file, second], tmp_path / "blobs", tmp_path / "cache")
    assert found == digest(f"{digest(file.read_bytes())}\n{digest(b'GGUF')}".encode())
    assert found != fingerprint([second, file], tmp_path / "blobs", tmp_path / "cache")


@pytest.mark.parametrize("text", ["", "[]", "no", '{"a": 1}', "[" * 100_000, '{"a": "sha256:0"}', "\xff"])
def test_a_spoilt_cache_is_made_anew(text: str, file: Path, tmp_path: Path, hashed: list[str]) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / module.CACHE_FILE).write_text(text, encoding="latin-1")
    for _ in range(2):
        assert fingerprint([file], tmp_path / "blobs", tmp_path / "cache") == digest(file.read_bytes())
    assert len(hashed) == 1


def test_the_cache_keeps_its_size(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    for number in range(6):
        os.utime(file, ns=(LONG_AGO + number, LONG_AGO + number))
        fingerprint([file], tmp_path / "blobs", tmp_path / "cache")
    assert len(json.loads((tmp_path / "cache" / module.CACHE_FILE).read_text())) == 3


def test_a_cache_that_cannot_be_written_costs_only_time(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert fingerprint([file], tmp_path / "blobs", tmp_path / "cache") == digest(file.read_bytes())


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        fingerprint([tmp_path / "none"], tmp_path / "blobs", tmp_path / "cache")


def test_what_is_known_costs_nothing(file: Path, tmp_path: Path, hashed: list[str]) -> None:
    folders = tmp_path / "blobs", tmp_path / "cache"
    assert known([file], *folders) is None and not hashed
    found = fingerprint([file], *folders)
    assert known([file], *folders) == found
    other = tmp_path / "other.gguf"
    other.write_bytes(b"x")
    os.utime(other, ns=(LONG_AGO, LONG_AGO))
    assert known([file, other], *folders) is None
    both = fingerprint([file, other], *folders)
    assert known([file, other], *folders) == both and len(hashed) == 2
    assert known([file, tmp_path / "missing"], *folders) is None
