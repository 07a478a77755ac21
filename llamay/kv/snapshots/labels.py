"""Names and tags of saved contexts: any printable text, which never becomes a path."""

import hashlib
import unicodedata

from llamay.errors import UsageError

LONGEST = 128  # characters of a name or tag
MOST_TAGS = 32


def check_name(text: str) -> str:
    """The name in its composed form; UsageError for one that is empty, too long, or holds what a terminal obeys."""
    return _checked(text, "a context's name")


def check_tags(tags: tuple[str, ...] | list[str] | frozenset[str]) -> tuple[str, ...]:
    """The tags, each once, sorted; UsageError as for names."""
    found = tuple(sorted({_checked(tag, "a tag") for tag in tags}))
    if len(found) > MOST_TAGS:
        raise UsageError(f"{len(found)} tags were given; a context has at most {MOST_TAGS}")
    return found


def file_name(name: str) -> str:
    """What the manifest of a checked name is called on disk: a digest, whatever the name says."""
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def _checked(text: str, what: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    fit = composed.isprintable() and composed == composed.strip() and not composed.startswith("-")
    if not fit or not 1 <= len(composed) <= LONGEST:
        raise UsageError(
            f"{what} is {text[: LONGEST + 1]!a}; expected 1 to {LONGEST} printable characters, "
            "no space at the ends, no dash at the start"
        )
    return composed
