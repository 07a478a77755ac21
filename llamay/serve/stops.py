"""Stop strings in a stream: text is held back while it may still become one."""

from collections.abc import Sequence


class Stops:
    """Passes text through until the first stop string, which is swallowed with all that follows."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(string for string in strings if string)
        self._held = ""
        self.found: str | None = None  # the stop string that ended the text

    def feed(self, text: str) -> str:
        """Takes the next piece and returns what may be shown."""
        if self.found is not None:
            return ""
        self._held += text
        cut, found = self._first()
        if found is not None:
            shown, self._held, self.found = self._held[:cut], "", found
            return shown
        keep = max((self._overlap(string) for string in self._strings), default=0)
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return shown

    def flush(self) -> str:
        """The text ended: what was held back was no stop string after all."""
        shown, self._held = self._held, ""
        return shown

    def _first(self) -> tuple[int, str | None]:
        """Where the earliest stop string begins, the longest one winning a tie."""
        places = [(self._held.find(string), -len(string), string) for string in self._strings if string in self._held]
        if not places:
            return len(self._held), None
        cut, _, string = min(places)
        return cut, string

    def _overlap(self, string: str) -> int:
        """Length of the longest end of the held text that begins the stop string."""
        for length in range(min(len(string) - 1, len(self._held)), 0, -1):
            if self._held.endswith(string[:length]):
                return length
        return 0
