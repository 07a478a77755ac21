"""Refusals: what llamay does not have, said by name, so that nobody waits for it or tries again."""

from llamay.errors import LlamayError, UsageError


class Unbuilt(UsageError):
    """A field or a value of one that llamay does not take yet; the rest of the request would be fine."""


class Unoffered(LlamayError):
    """A route that llamay has for its name only."""

    http_status = 501
