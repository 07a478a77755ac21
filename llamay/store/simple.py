"""Simple index pages, as HTML (PEP 503) and JSON (PEP 691), and folders of wheels: links to files of a distribution."""

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from llamay.errors import PullError
from llamay.store import addresses

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON_TYPE}, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.1"
LIMIT_FILES = 100_000

# Best first; what is shorter or broken is no reason to trust a file.
HASHES = ("sha256", "sha512", "sha384")
_HEX = re.compile(r"[0-9a-f]{64,128}")


@dataclass(frozen=True, slots=True)
class Link:
    """A file of an index: its URL without fragment, its name, its best hash as `name=hex` ("" when none is told)."""

    url: str
    filename: str
    hash: str = ""
    size: int | None = None
    yanked: bool = False


def normalized(distribution: str) -> str:
    """A distribution's name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def read(body: bytes, content_type: str, url: str) -> list[Link]:
    """The links of a page that was found at `url`; raises PullError for a page that is none.

    Links that carry no file name are left out, as are those to this machine's files from a web page.
    """
    kind = content_type.partition(";")[0].strip().lower()
    links = _read_json(body, url) if kind in (JSON_TYPE, "application/json") else _read_html(body, url)
    return [link for link in links if link.filename and _followed(link.url, url)]


def _followed(target: str, page: str) -> bool:
    scheme = urlsplit(target).scheme
    return scheme in ("https", "http") or (scheme == "file" and urlsplit(page).scheme == "file")


def _read_json(body: bytes, url: str) -> list[Link]:
    try:
        files = json.loads(body)["files"]
        if not isinstance(files, list) or len(files) > LIMIT_FILES:
            raise ValueError(f"files is not a list of at most {LIMIT_FILES}")
        return [_link_of_json(entry, url) for entry in files]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise PullError(f"{addresses.host_of(url)} sends no page of a Python index: {problem}") from error


def _link_of_json(entry: dict[str, object], page: str) -> Link:
    hashes, size = entry.get("hashes"), entry.get("size")
    told = {str(name): str(value) for name, value in hashes.items()} if isinstance(hashes, dict) else {}
    target = _split_fragment(urljoin(page, str(entry["url"])))[0]
    filename = str(entry["filename"])
    whole = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 48
    return Link(
        target,
        filename if _fit(filename) else "",
        _best(told),
        size if whole and isinstance(size, int) else None,
        entry.get("yanked", False) is not False,
    )


def _read_html(body: bytes, url: str) -> list[Link]:
    parser = _Anchors()
    parser.feed(body.decode("utf-8", "replace"))
    parser.close()
    try:
        base = urljoin(url, parser.base) if parser.base else url
    except ValueError as error:
        raise PullError(f"{addresses.host_of(url)} sends a page whose base is no URL: {error}") from None
    links = []
    for attributes in parser.anchors[:LIMIT_FILES]:
        try:
            target, fragment = _split_fragment(urljoin(base, (attributes["href"] or "").strip()))
        except ValueError:  # not a URL; other links of the page may be good
            continue
        filename = unquote(urlsplit(target).path.rpartition("/")[2])
        told = dict([fragment.partition("=")[::2]])
        links.append(Link(target, filename if _fit(filename) else "", _best(told), None, "data-yanked" in attributes))
    return links


class _Anchors(HTMLParser):
    """Collects the anchors with an address, and the page's base."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.anchors: list[dict[str, str | None]] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Hears of every tag."""
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            self.anchors.append(attributes)
        elif tag == "base" and not self.base:
            self.base = attributes.get("href") or ""


def _split_fragment(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts._replace(fragment="").geturl(), parts.fragment


def _best(told: dict[str, str]) -> str:
    for name in HASHES:
        value = told.get(name, "").lower()
        if _HEX.fullmatch(value):
            return f"{name}={value}"
    return ""


def _fit(filename: str) -> bool:
    return filename.isprintable() and not any(sign in filename for sign in "/\\:") and len(filename) <= 255
