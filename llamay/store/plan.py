"""Plans: what a source turned out to consist of, before any model byte is fetched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llamay.store.manifest import MODEL_TYPE
from llamay.store.names import ModelName
from llamay.store.network import Request


@dataclass(frozen=True, slots=True)
class Download:
    """A layer that is a file of its own on a server."""

    request: Request


@dataclass(frozen=True, slots=True)
class Member:
    """A layer that is a member of a zip archive, which is at a server (`request`) or here (`path`)."""

    request: Request | None
    path: Path | None
    archive: str  # the archive's file name
    hash: str  # the archive's hash as the index tells it, `sha256=hex`, or ""
    size: int | None
    file: str  # the member's name or base name; "" for the only model in the archive

    @property
    def digest(self) -> str | None:
        """The archive's digest where the index tells it."""
        algorithm, _, value = self.hash.partition("=")
        return f"sha256:{value}" if algorithm == "sha256" else None


@dataclass(frozen=True, slots=True)
class Copy:
    """A layer that is a file of this machine."""

    path: Path


Origin = Download | Member | Copy


@dataclass(frozen=True, slots=True)
class Asset:
    """A layer to obtain: its kind, the name it is shown under, where it is, and what is announced of it."""

    origin: Origin
    title: str
    media_type: str = MODEL_TYPE
    digest: str | None = None
    size: int | None = None
    revalidate: bool = False  # the whole model, to be asked for only if it changed


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a model: the name it is installed under, its layers, and a registry's manifest to keep verbatim."""

    name: ModelName
    source: str
    assets: tuple[Asset, ...]
    verbatim: bytes | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
