"""Ollama-style registries: a manifest by name and tag, then its blobs by digest."""

import json
import re
from dataclasses import replace
from urllib.parse import urlencode, urlsplit

from llamay.errors import PullError, Unsupported
from llamay.store import addresses, digests, manifest, names
from llamay.store.manifest import Manifest
from llamay.store.network import Network, Page, Request
from llamay.store.plan import Asset, Download, Plan
from llamay.store.sources import Hosts, RegistryModel

ACCEPT = f"{manifest.MANIFEST_TYPE}, {manifest.OCI_MANIFEST_TYPE}"
TOKEN_BYTES = 64 << 10

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def plan(source: RegistryModel, hosts: Hosts, network: Network) -> Plan:
    """Asks the registry what the model consists of.

    Raises PullError when it cannot be had and Unsupported when it holds no GGUF file.
    """
    name = source.name
    base = hosts.registry if name.host == names.DEFAULT_HOST else f"https://{name.host}"
    repository = f"{base}/v2/{name.namespace}/{name.name}"
    request = Request(f"{repository}/manifests/{name.tag}", {"Accept": ACCEPT})
    page = network.page(request, manifest.LIMIT_BYTES, accept=frozenset({200, 401}))
    if page.status == 401:
        request = replace(request, authorization=_authorization(network, page, repository))
        page = network.page(request, manifest.LIMIT_BYTES)
    document = manifest.decode(page.body, f"what {addresses.host_of(repository)} sent for {name}")
    if not document.models():
        kinds = ", ".join(sorted({layer.kind for layer in document.layers})) or "nothing"
        raise Unsupported(f"{name} holds no GGUF file but {ascii(kinds)[1:-1][:200]}; llamay runs GGUF models")
    return Plan(name, source.text, _assets(document, repository, request.authorization), verbatim=page.body)


def _assets(document: Manifest, repository: str, authorization: str) -> tuple[Asset, ...]:
    return tuple(
        Asset(
            Download(Request(f"{repository}/blobs/{digests.parse(layer.digest)}", authorization=authorization)),
            title=f"{layer.kind.rpartition('/')[2]} {layer.digest[7:19]}",
            media_type=layer.media_type,
            digest=layer.digest,
            size=layer.size,
        )
        for layer in document.blobs()
    )


def _authorization(network: Network, refused: Page, repository: str) -> str:
    """An anonymous bearer token from the realm that a 401 names; the realm is judged like any other URL."""
    challenge = refused.headers.get("www-authenticate", "")
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.get("realm", "")
    if not challenge.lower().startswith("bearer ") or not realm:
        raise PullError(f"{addresses.host_of(repository)} answered 401: it wants a login, which llamay does not have")
    query = urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    same = addresses.endpoint(realm) == addresses.endpoint(repository)
    url = f"{realm}{'&' if urlsplit(realm).query else '?'}{query}"
    return f"Bearer {_token(network.page(Request(url, trusted=same), TOKEN_BYTES))}"


def _token(page: Page) -> str:
    try:
        document = json.loads(page.body)
        token = document.get("token") or document.get("access_token")
    except (ValueError, RecursionError, AttributeError) as error:
        raise PullError(f"{addresses.host_of(page.url)} sends no token: {error}") from error
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]{1,16384}", token):
        raise PullError(f"{addresses.host_of(page.url)} sends no usable token")
    return token
