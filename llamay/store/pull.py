"""Pulling: from what a person typed to an installed model; the manifest is written last."""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial

from llamay.errors import StoreError, UsageError
from llamay.store import hub, index, manifest, names, registry, shards, sources
from llamay.store.download import Fetcher
from llamay.store.library import Installed, Store
from llamay.store.manifest import Layer, Manifest
from llamay.store.names import ModelName
from llamay.store.network import Network, Request
from llamay.store.obtain import Obtainer, Unchanged
from llamay.store.plan import Asset, Copy, Download, Member, Plan
from llamay.store.progress import Reporter, Silent
from llamay.store.sources import Hosts, HubModel, IndexFile, LocalFile, RegistryModel, Source, WebFile

CONFIG = b'{"model_format":"gguf"}'


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull came to; `fresh` is False when it was all here already."""

    model: Installed
    fresh: bool


def pull(
    store: Store,
    text: str | Source,
    *,
    name: ModelName | None = None,
    link: bool = False,
    hosts: Hosts | None = None,
    network: Network | None = None,
    reporter: Reporter | None = None,
) -> Pulled:
    """Gets the model that `text` is a source of (`sources.FORMS`) and installs it, under `name` if given.

    `link` imports a local file as a hard link instead of a copy.  Raises UsageError for
    text that is no source, PullError when it cannot be had (received bytes are kept and
    resume), StoreError when this machine cannot take it.
    """
    source = sources.parse(text) if isinstance(text, str) else text
    target = name or source.name
    reporter = reporter or Silent()
    with network or Network() as way:
        way.notice = reporter.say
        _check_free(store, source, target)
        with store.claim() as claim:
            installed = partial(_installed, store, target)
            with Obtainer(store, claim, Fetcher(way, reporter, store.free), installed, link) as obtainer:
                plan = replace(_plan(source, hosts or Hosts(), way), name=target)
                try:
                    layers = [layer for asset in plan.assets for layer in obtainer.obtain(asset)]
                except Unchanged as news:
                    return Pulled(news.model, fresh=False)
                pulled = _write(store, plan, layers, obtainer)
                obtainer.settled()
                return pulled


def _plan(source: Source, hosts: Hosts, network: Network) -> Plan:
    """What the source consists of, asked at its server or read from the folder."""
    match source:
        case RegistryModel():
            return registry.plan(source, hosts, network)
        case HubModel():
            return hub.plan(source, hosts, network)
        case IndexFile():
            return index.plan(source, hosts, network)
        case WebFile():
            asset = Asset(
                Download(_web_request(source)), title=source.url.partition("?")[0].rpartition("/")[2], revalidate=True
            )
            return Plan(source.name, source.text, (asset,))
        case LocalFile():
            folder = source.path.parent
            model = shards.beside(source.path.name, os.listdir(folder))
            assets = tuple(Asset(Copy(folder / file), title=file) for file in model)
            return Plan(source.name, source.text, assets)


def _web_request(source: WebFile) -> Request:
    from llamay.store import pipconfig

    return Request(pipconfig.without_credentials(source.url), authorization=pipconfig.credentials(source.url))


def _installed(store: Store, name: ModelName) -> Installed | None:
    """The model that has a name now; a broken one counts as none and is replaced."""
    try:
        return store.installed(name)
    except StoreError:
        return None


def _check_free(store: Store, source: Source, name: ModelName) -> None:
    """Raises StoreError when the name belongs to a model from somewhere else."""
    model = _installed(store, name)
    if model is not None and _identity(model.source) != _identity(source.text):
        raise StoreError(
            f"{model.name} is installed already, from {model.source}; choose another name (`llamay pull {source.text} "
            f"-name NAME`) or remove it first (`llamay rm {model.name.typed()}`)"
        )


def _identity(source: str) -> object:
    """A source without what names a version of it or its case where case says nothing."""
    if source.startswith("pypi:"):
        return source.partition("==")[0].partition("/")[0].lower()
    if source.startswith("hf:"):
        return source.partition("@")[0]
    try:
        return names.parse(source).folded()
    except UsageError:
        return source


def _write(store: Store, plan: Plan, layers: list[Layer], obtainer: Obtainer) -> Pulled:
    if plan.verbatim is None:
        data = manifest.encode(_compose(plan, layers, obtainer))
    elif plan.name.typed() == plan.source:
        data = plan.verbatim
    else:  # under another name, which would not tell where it came from
        data = manifest.with_source(plan.verbatim, plan.source)
    found = hashlib.sha256(data).hexdigest()
    existing = obtainer.installed()
    if existing is not None and existing.id == found:
        return Pulled(existing, fresh=obtainer.transferred)
    return Pulled(store.put_manifest(plan.name, data, obtainer.claim), fresh=True)


def _compose(plan: Plan, layers: list[Layer], obtainer: Obtainer) -> Manifest:
    annotations = {**plan.annotations, manifest.SOURCE: plan.source}
    if obtainer.etag:
        annotations[manifest.ETAG] = obtainer.etag
    origin = plan.assets[0].origin
    if isinstance(origin, Member) and origin.digest:
        annotations |= {manifest.ARCHIVE: origin.digest, manifest.MEMBER: origin.file}
    return Manifest(obtainer.inline(CONFIG, manifest.CONFIG_TYPE), tuple(layers), annotations)
