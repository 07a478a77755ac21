"""Manifests: which blobs make a model, in the shape Ollama's store and OCI registries use."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llamay.errors import StoreError
from llamay.store import digests

MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
OCI_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
LAYER_PREFIX = "application/vnd.ollama.image."
MODEL_TYPE = f"{LAYER_PREFIX}model"
MODEL_TYPES = frozenset({MODEL_TYPE, "application/vnd.docker.ai.gguf.v3"})

TITLE = "org.opencontainers.image.title"  # a layer's file name
SOURCE = "llamay.source"  # what was given to `pull`
ETAG = "llamay.etag"  # the web file's validator
ARCHIVE = "llamay.archive"  # digest of the wheel the model came out of
MEMBER = "llamay.member"  # which file of the wheel was asked for

LIMIT_BYTES = 4 << 20
LIMIT_LAYERS = 1024
LIMIT_SIZE = 1 << 48


@dataclass(frozen=True, slots=True)
class Layer:
    """One blob of a model: what it is, its digest and its size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`model`, `template`, `params`, `license`, `projector`, ... or the whole media type."""
        if self.media_type in MODEL_TYPES:
            return "model"
        return self.media_type.removeprefix(LAYER_PREFIX)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model: a config blob, layers in order and notes."""

    config: Layer
    layers: tuple[Layer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)

    def blobs(self) -> list[Layer]:
        """Every blob, each digest once."""
        return list({layer.digest: layer for layer in (self.config, *self.layers)}.values())

    def models(self) -> list[Layer]:
        """The GGUF layers; several are the parts of one split file, in order."""
        return [layer for layer in self.layers if layer.kind == "model"]

    def size(self) -> int:
        """Bytes of all blobs together."""
        return sum(layer.size for layer in self.blobs())


def encode(manifest: Manifest) -> bytes:
    """The manifest as the bytes that are stored; the same manifest always gives the same bytes."""
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _encode_layer(manifest.config),
        "layers": [_encode_layer(layer) for layer in manifest.layers],
    }
    if manifest.annotations:
        document["annotations"] = dict(sorted(manifest.annotations.items()))
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, whence: str) -> Manifest:
    """Reads and checks a manifest; `whence` names it in the StoreError a bad one raises."""
    if len(data) > LIMIT_BYTES:
        raise StoreError(f"{whence} is {len(data)} bytes; a manifest has at most {LIMIT_BYTES}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{whence} is not a manifest: {error}") from error
    if not isinstance(document, dict) or document.get("schemaVersion") != 2:
        raise StoreError(f"{whence} is not a manifest: expected a JSON object with schemaVersion 2")
    layers = document.get("layers")
    if not isinstance(layers, list) or len(layers) > LIMIT_LAYERS:
        raise StoreError(f"{whence} is not a manifest: expected a list of at most {LIMIT_LAYERS} layers")
    return Manifest(
        config=_decode_layer(document.get("config"), whence),
        layers=tuple(_decode_layer(layer, whence) for layer in layers),
        annotations=_annotations(document.get("annotations")),
    )


def with_source(data: bytes, source: str) -> bytes:
    """A manifest that tells what `pull` takes to get it: as it is where it does already."""
    document = decode(data, "the manifest")
    if SOURCE in document.annotations:
        return data
    return encode(replace(document, annotations={**document.annotations, SOURCE: source}))


def _encode_layer(layer: Layer) -> dict[str, Any]:
    document: dict[str, Any] = {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}
    if layer.annotations:
        document["annotations"] = dict(sorted(layer.annotations.items()))
    return document


def _decode_layer(document: object, whence: str) -> Layer:
    if not isinstance(document, dict):
        raise StoreError(f"{whence}: a layer is {ascii(document)[:60]}; expected an object")
    media_type, size = document.get("mediaType"), document.get("size")
    if not isinstance(media_type, str) or len(media_type) > 255:
        raise StoreError(f"{whence}: a layer's mediaType is {ascii(media_type)[:60]}; expected a media type")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= LIMIT_SIZE:
        raise StoreError(f"{whence}: a layer's size is {ascii(size)[:60]}; expected bytes, at most 2^48")
    return Layer(media_type, digests.parse(document.get("digest")), size, _annotations(document.get("annotations")))


def _annotations(document: object) -> dict[str, str]:
    """The text entries; others are not ours to use and are left alone."""
    if not isinstance(document, dict):
        return {}
    return {key: value for key, value in document.items() if isinstance(value, str)}
