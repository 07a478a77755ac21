"""What Ollama's API tells of an installed model wherever it names one."""

import hashlib
from typing import Any

from llamay.serve import details
from llamay.serve.models import Served
from llamay.server.ollama.named import tagged


def document(served: Served) -> dict[str, Any]:
    """`details`."""
    found = details.of(served.path)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": found.architecture,
        "families": [found.architecture] if found.architecture else None,
        "parameter_size": details.counted(found.parameters),
        "quantization_level": found.quantization,
    }


def entry(served: Served) -> dict[str, Any]:
    """What every list has of a model."""
    name = tagged(served.name)
    return {"name": name, "model": name, "size": size(served), "digest": digest(served), "details": document(served)}


def size(served: Served) -> int:
    """Bytes on disk."""
    return served.path.stat().st_size if served.installed is None else served.installed.size


def digest(served: Served) -> str:
    """What tells a model's state from another: 64 hex digits.  A file outside the store is told by its place and time."""
    if served.installed is not None:
        return served.installed.id
    found = served.path.stat()
    return hashlib.sha256(f"{served.path} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()


def modified(served: Served) -> int:
    """When it came here, in nanoseconds since 1970."""
    return served.path.stat().st_mtime_ns if served.installed is None else int(served.installed.modified * 1e9)
