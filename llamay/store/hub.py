"""Hugging Face: the files of a repository by its API, the choice among them, and where each is."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from llamay.errors import PullError
from llamay.store import addresses, shards
from llamay.store.network import Network, Page, Request
from llamay.store.plan import Asset, Download, Plan
from llamay.store.sources import Hosts, HubModel

LISTING_BYTES = 32 << 20
LISTING_FILES = 100_000

_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the listing tells of a file."""

    digest: str | None
    size: int | None


def plan(source: HubModel, hosts: Hosts, network: Network, environ: Mapping[str, str] = os.environ) -> Plan:
    """Lists the repository, chooses, and pins every file to the commit the listing is of; raises PullError."""
    authorization = _authorization(environ)
    url = f"{hosts.hub}/api/models/{source.repository}/revision/{quote(source.revision, safe='')}?blobs=true"
    commit, files = listing(network.page(Request(url, authorization=authorization), LISTING_BYTES))
    models = shards.group(files)
    whence = f"{source.repository} at {addresses.host_of(hosts.hub)}"
    if source.file:
        chosen = shards.named(models, source.file, whence)
    else:
        chosen = shards.choose(models, source.quant, whence)
    revision = commit or source.revision
    root = f"{hosts.hub}/{source.repository}/resolve/{quote(revision, safe='')}"
    assets = tuple(
        Asset(
            Download(Request(f"{root}/{quote(file)}", authorization=authorization)),
            title=file.rpartition("/")[2],
            digest=files[file].digest,
            size=files[file].size,
        )
        for file in chosen.files
    )
    return Plan(source.name, source.text, assets)


def listing(page: Page) -> tuple[str, dict[str, HubFile]]:
    """The commit and the files of an answer of the hub's API; raises PullError when it is not one."""
    try:
        document = json.loads(page.body)
        commit = document.get("sha") or ""
        siblings = document["siblings"]
        if not isinstance(siblings, list) or len(siblings) > LISTING_FILES:
            raise ValueError(f"siblings is not a list of at most {LISTING_FILES} files")
        files = {entry["rfilename"]: _file(entry) for entry in siblings if isinstance(entry["rfilename"], str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise PullError(f"{addresses.host_of(page.url)} sends no listing of a repository: {problem}") from error
    sound = {name: file for name, file in files.items() if name.isprintable() and ".." not in name.split("/")}
    return (commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else ""), sound


def _file(entry: Mapping[str, object]) -> HubFile:
    stored = entry.get("lfs")
    lfs: Mapping[str, object] = stored if isinstance(stored, dict) else {}
    digest, size = lfs.get("sha256") or lfs.get("oid"), lfs.get("size", entry.get("size"))
    known = isinstance(digest, str) and _SHA256.fullmatch(digest) is not None
    whole = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 48
    return HubFile(f"sha256:{digest}" if known else None, size if whole and isinstance(size, int) else None)


def _authorization(environ: Mapping[str, str]) -> str:
    """The hub's token from where its own tools keep it, or ""."""
    token = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if not token:
        home = environ.get("HF_HOME")
        folder = Path(os.path.expanduser(home or "~/.cache/huggingface"))
        kept = Path(environ.get("HF_TOKEN_PATH") or folder / "token")
        if kept.is_file():
            token = kept.read_text("utf-8", "replace")
    token = token.strip()
    if token and not _TOKEN.fullmatch(token):
        raise PullError("HF_TOKEN holds characters no token has; expected one word")
    return f"Bearer {token}" if token else ""
