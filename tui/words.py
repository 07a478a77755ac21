"""Words: figures as screens show them, of a fixed width, and bars that need no colour."""

import re

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
SPARKS = "▁▂▃▄▅▆▇█"
# controls, bidirectional overrides and halves of surrogate pairs: a terminal would obey them
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Text from elsewhere without what a terminal obeys; line ends and tabs pass."""
    return OBEYED.sub("?", text)


def line(text: str) -> str:
    """The same in one line."""
    return " ".join(plain(text).split())


def seconds(value: float) -> str:
    """`  0.4ms`, `   41ms`, ` 3.14s`, `   12m`: seven columns at most."""
    if value <= 0:
        return "-"
    if value < 0.01:
        return f"{value * 1e3:.1f}ms"
    if value < 1:
        return f"{value * 1e3:.0f}ms"
    if value < 60:
        return f"{value:.2f}s"
    return f"{value / 60:.0f}m" if value < 5940 else f"{value / 3600:.0f}h"


def rate(value: float) -> str:
    """Tokens a second: `41.2`, `1,204`; a dash for none."""
    if value <= 0:
        return "-"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def age(value: float) -> str:
    """How long ago: `5s`, `12m`, `3h`, `2d`."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if value >= size:
            return f"{value // size:.0f}{unit}"
    return f"{max(0.0, value):.0f}s"


def bar(share: float, width: int) -> str:
    """A bar of a share of the width, padded to it; never empty where the share is not."""
    share = min(max(share, 0.0), 1.0)
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).ljust(width)


def spark(values: list[float], width: int) -> str:
    """The last values as a line of blocks."""
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return "▁" * len(shown)
    return "".join(SPARKS[min(7, int(value / most * 7.999))] for value in shown)


def short(context: str) -> str:
    """An id as it is shown: its first digits."""
    kind, _, digits = context.partition("_")
    return f"{kind}_{digits[:6]}" if digits else context[:10]
