"""What `verify` measured of quantised caches, kept by the digest of the weights so that `info` can tell it."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamay.settings import Settings
from llamay.store import fingerprint
from llamay.store.parts import replace_file
from llamay.verify.caches import BOUND, QUANTISED
from llamay.verify.checks import Row

KEPT = "kv-safety.json"
MOST_ENTRIES = 256
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Safety:
    """The mean distances of one model's quantised caches from the exact one, in per cent."""

    distances: dict[str, float]
    device: str
    tokens: int  # of the text

    def safe(self, kv: str) -> bool:
        """Whether a format keeps the bound."""
        return self.distances.get(kv, math.inf) <= BOUND

    @classmethod
    def of(cls, rows: Iterable[Row], device: str, tokens: int) -> "Safety | None":
        """From verify's rows; None unless every format was measured."""
        found = {row.kv: row.figure for row in rows if row.kv and math.isfinite(row.figure)}
        return cls(found, device, tokens) if found.keys() == set(QUANTISED) else None


def remember(safety: Safety, settings: Settings, paths: Sequence[str]) -> None:
    """Keeps it for the file or parts at `paths`.  StoreError or OSError where the cache folder takes nothing."""
    digest = fingerprint.fingerprint(paths, settings.models / "blobs", settings.cache)
    entry = {"distances": safety.distances, "device": safety.device, "tokens": safety.tokens}
    kept = {key: value for key, value in _read(settings.cache).items() if key != digest}
    newest = dict([*kept.items(), (digest, entry)][-MOST_ENTRIES:])
    settings.cache.mkdir(parents=True, exist_ok=True)
    replace_file(settings.cache / KEPT, json.dumps(newest, indent=0).encode(), durable=False)


def recall(settings: Settings, paths: Sequence[str]) -> Safety | None:
    """What was measured for the file or parts at `paths`; None where nothing was, or cannot be read."""
    digest = fingerprint.known(paths, settings.models / "blobs", settings.cache)
    entry = _read(settings.cache).get(digest or "")
    if not isinstance(entry, dict):
        return None
    try:
        distances = {kv: float(entry["distances"][kv]) for kv in QUANTISED}
        return Safety(distances, str(entry["device"]), int(entry["tokens"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _read(cache: Path) -> dict[str, object]:
    """Everything kept; nothing where the file is missing or not as we write it."""
    try:
        with open(cache / KEPT, "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
