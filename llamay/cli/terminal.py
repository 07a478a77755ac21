"""Showing text of unknown origin and large numbers to a person."""


def plain(text: str, *, lines: bool = False) -> str:
    """The text with what a terminal would obey (escapes, controls, direction marks) spelled out.

    With `lines`, line ends and tabs pass.
    """
    if text.isprintable():
        return text
    passing = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in passing else _spelled(c) for c in text)


def count(number: float) -> str:
    """134.5M, 1.24B."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.{2 if unit == 'B' else 1}f}{unit}"
    return f"{number:.0f}"


def bar(share: float, width: int = 24) -> str:
    """A bar of `share` (0 to 1) of the width, never empty where the share is not."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
