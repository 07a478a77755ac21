"""How much of this process lies in memory, as the system tells."""

import sys
from pathlib import Path


def peak_rss() -> int | None:
    """The most bytes of memory this process has had resident; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def rss() -> int | None:
    """Bytes resident now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize()
