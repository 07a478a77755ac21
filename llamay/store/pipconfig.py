"""pip's configuration: which indexes, links and credentials pip itself would use on this machine."""

import configparser
import itertools
import locale
import netrc
import os
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llamay.errors import StoreError
from llamay.store import addresses

ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
SECTIONS = ("global", "install")  # later ones override; the command that would fetch a wheel is install


@dataclass(frozen=True, slots=True)
class PipConfig:
    """What pip's files and variables say about fetching; URLs may still hold credentials."""

    indexes: tuple[str, ...]  # index-url, then extra-index-url
    find_links: tuple[str, ...]
    trusted_hosts: tuple[str, ...] = ()
    certificates: str = ""
    client_certificate: str = ""
    proxy: str = ""
    timeout: float = 60.0  # seconds
    netrc_file: str = ""


def load(default_index: str, environ: Mapping[str, str] = os.environ) -> PipConfig:
    """Reads the files pip reads, in its order, and PIP_* variables above them.

    Raises StoreError for a file pip would refuse.
    """
    values = _values(environ)

    def words(key: str) -> tuple[str, ...]:
        return tuple(values.get(key, "").split())

    index = values.get("index-url") or default_index
    indexes = (index.strip(), *words("extra-index-url"))
    return PipConfig(
        indexes=() if _truth(values.get("no-index", "")) else indexes,
        find_links=words("find-links"),
        trusted_hosts=words("trusted-host"),
        certificates=values.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or "",
        client_certificate=values.get("client-cert", ""),
        proxy=_proxy(values.get("proxy", "")),
        timeout=_seconds(values.get("timeout", "")),
        netrc_file=environ.get("NETRC", ""),
    )


def files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The configuration files pip reads, later ones overriding earlier ones; they need not exist."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    base = "pip.ini" if sys.platform == "win32" else "pip.conf"
    found = [folder / base for folder in _global_folders(environ)]
    if not (named and os.path.exists(named)):
        home = Path(environ.get("HOME") or os.path.expanduser("~"))
        found += [home / ("pip" if sys.platform == "win32" else ".pip") / base, _user_folder(environ, home) / base]
    found.append(Path(sys.prefix) / base)
    return [*found, Path(named)] if named else found


def authorization(url: str, config: PipConfig) -> str:
    """The Authorization header for a URL: its own credentials, those of the index it is on, or netrc's; else ""."""
    place = addresses.endpoint(url)
    same = [index for index in config.indexes if index.startswith("http") and addresses.endpoint(index) == place]
    same.sort(key=lambda index: _shared(urlsplit(url).path, urlsplit(index).path), reverse=True)
    halves = [urlsplit(candidate) for candidate in (url, *same)]
    for parts in halves:
        if parts.username is not None and parts.password is not None:
            return _basic(unquote(parts.username), unquote(parts.password))
    kept = _from_netrc(place.host, config.netrc_file)
    users = [parts.username for parts in halves if parts.username is not None]
    return kept or (_basic(unquote(users[0]), "") if users else "")  # a token alone stands where the user would


def credentials(url: str, netrc_file: str = "") -> str:
    """The Authorization header of the credentials in a URL, else of netrc's entry for its host, else ""."""
    parts = addresses.split(url)
    if parts.username is not None:
        return _basic(unquote(parts.username), unquote(parts.password or ""))
    return _from_netrc(addresses.endpoint(url).host, netrc_file)


def without_credentials(url: str) -> str:
    """The URL as it may be shown and sent."""
    parts = addresses.split(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _values(environ: Mapping[str, str]) -> dict[str, str]:
    """Option names (dashes, no prefix) to their values; empty values count as not given."""
    sections: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for path in files(environ):
        for section, key, value in _read(path):
            if section in sections:
                sections[section][key] = value
    variables = {
        _option(name.removeprefix("PIP_")): value for name, value in environ.items() if name.startswith("PIP_")
    }
    merged: dict[str, str] = {}
    for layer in (*sections.values(), variables):
        merged |= {key: value for key, value in layer.items() if value}
    return merged


def _read(path: Path) -> list[tuple[str, str, str]]:
    if not path.exists():
        return []
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding=locale.getpreferredencoding(False))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise StoreError(f"pip's configuration {path} cannot be read: {error}") from error
    return [(section, _option(key), value) for section in parser.sections() for key, value in parser.items(section)]


def _option(name: str) -> str:
    option = name.lower().replace("_", "-").removeprefix("--")
    return ALIASES.get(option, option)


def _global_folders(environ: Mapping[str, str]) -> list[Path]:
    if sys.platform == "win32":
        return [Path(environ.get("PROGRAMDATA") or "C:\\ProgramData") / "pip"]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support/pip")]
    listed = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    return [*(Path(os.path.expanduser(folder)) / "pip" for folder in listed if folder), Path("/etc")]


def _user_folder(environ: Mapping[str, str], home: Path) -> Path:
    if sys.platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming") / "pip"
    mac = home / "Library" / "Application Support" / "pip"
    if sys.platform == "darwin" and mac.is_dir():
        return mac
    config = environ.get("XDG_CONFIG_HOME") if sys.platform != "darwin" else ""
    return Path(config or home / ".config") / "pip"


def _from_netrc(host: str, named: str) -> str:
    """Credentials of a netrc file; one that cannot be parsed counts as none, as for pip."""
    candidates = [named] if named else ["~/.netrc", "~/_netrc"]
    for path in map(os.path.expanduser, candidates):
        if not os.path.isfile(path):
            continue
        try:
            entry = netrc.netrc(path).authenticators(host)
        except (netrc.NetrcParseError, OSError, UnicodeDecodeError):
            return ""
        if entry is not None:
            return _basic(entry[0] or entry[1] or "", entry[2] or "")
        return ""
    return ""


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode('ascii')}"


def _shared(path: str, other: str) -> int:
    """How many leading folders two paths share."""
    pairs = zip(path.split("/"), other.split("/"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _proxy(text: str) -> str:
    return f"http://{text}" if text and "://" not in text else text


def _truth(text: str) -> bool:
    return text.strip().lower() in ("y", "yes", "t", "true", "on", "1")


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 1.0), 3600.0) if text else 60.0
    except ValueError:
        raise StoreError(f"pip's timeout is {text!a}; expected seconds") from None
