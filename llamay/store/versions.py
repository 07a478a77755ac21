"""Versions of Python distributions: the order PEP 440 gives them, as far as choosing the newest needs it."""

import re

Key = tuple[int, tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, int], tuple[tuple[int, int, str], ...]]

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,18}(?:\.\d{1,18}){0,63})"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d{0,18}))?"
    r"(?:-(?P<bare_post>\d{1,18})|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d{0,18}))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d{0,18}))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.ASCII,
)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_NEVER, _FINAL = -(1 << 62), 1 << 62


def key(version: str) -> Key | None:
    """What sorts versions as PEP 440 does; None for text that is no version."""
    match = _VERSION.fullmatch(version.strip().lower()) if len(version) <= 512 else None
    if match is None:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post = match["bare_post"] if match["bare_post"] is not None else match["post_number"]
    posted = match["bare_post"] is not None or match["post"] is not None
    dev = int(match["dev_number"] or 0) if match["dev"] else _FINAL
    if match["pre"]:
        pre = (_PRE[match["pre"]], int(match["pre_number"] or 0))
    else:  # a development version of a release comes before the release's first alpha
        pre = (_NEVER, 0) if match["dev"] and not posted else (_FINAL, 0)
    after = (1, int(post or 0)) if posted else (0, 0)
    local = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in _parts(match["local"]))
    return int(match["epoch"] or 0), tuple(release), pre, after, (dev, 0), local


def is_prerelease(version: str) -> bool:
    """Whether a version is an alpha, beta, candidate or development version."""
    match = _VERSION.fullmatch(version.strip().lower())
    return match is not None and (match["pre"] is not None or match["dev"] is not None)


def same(one: str, other: str) -> bool:
    """Whether two spellings name the same version, as `==` compares: without a local part only if none is asked."""
    first, second = key(one), key(other)
    if first is None or second is None:
        return one == other
    return first == second or ("+" not in other and first[:5] == second[:5])


def _parts(local: str | None) -> list[str]:
    return re.split(r"[-_.]", local) if local else []
