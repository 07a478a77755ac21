"""Names of models: `[host/][namespace/]name[:tag]`, checked so that no part can ever be a path."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from llamay.errors import UsageError

DEFAULT_HOST = "registry.ollama.ai"  # as in Ollama's own store, so that the folders match
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"
HUB_HOST = "hf.co"

PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,78}[A-Za-z0-9_-])?"
_PART = re.compile(PART)
_REPOSITORY = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")  # the hub allows 96
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(?::[0-9]{1,5})?")
_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
_UNFIT = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True, order=True)
class ModelName:
    """A complete name; make one with `parse`, which validates each part."""

    host: str
    namespace: str
    name: str
    tag: str

    def __str__(self) -> str:
        return f"{self.short()}:{self.tag}"

    def short(self) -> str:
        """The name without its tag, default host and namespace left out."""
        if self.host != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{self.name}"
        return self.name if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}/{self.name}"

    def typed(self) -> str:
        """The least a person types for it: the tag is left out where it is the default."""
        return self.short() if self.tag == DEFAULT_TAG else str(self)

    def path(self, manifests: Path) -> Path:
        """The manifest's file inside the folder `manifests`; a port's colon becomes a plus sign."""
        return manifests / self.host.replace(":", "+") / self.namespace / self.name / self.tag

    def folded(self) -> tuple[str, str, str, str]:
        """The parts without case, for folders that do not tell case apart and people who do not either."""
        return (self.host.lower(), self.namespace.lower(), self.name.lower(), self.tag.lower())


def parse(text: str) -> ModelName:
    """Reads `[host/][namespace/]name[:tag]`; raises UsageError naming the part that is wrong."""
    head, slash, last = text.rpartition("/")
    last, colon, tag = last.partition(":")
    parts = [*head.split("/"), last] if slash else [last]
    if len(parts) > 3:
        raise UsageError(f"{text!a} is no model name: expected [host/][namespace/]name[:tag]")
    host = parts[-3] if len(parts) == 3 else DEFAULT_HOST
    namespace = parts[-2] if len(parts) >= 2 else DEFAULT_NAMESPACE
    if host in ("huggingface.co", "www.huggingface.co", "www.hf.co"):
        host = HUB_HOST
    return check(ModelName(host, namespace, parts[-1], tag if colon else DEFAULT_TAG), text)


def check(name: ModelName, text: str = "") -> ModelName:
    """Returns the name when every part is fit to be a folder's name; else raises UsageError."""
    repository = _REPOSITORY if name.host == HUB_HOST else _PART
    rules = (
        ("host", name.host, _HOST),
        ("namespace", name.namespace, repository),
        ("name", name.name, repository),
        ("tag", name.tag, _PART),
    )
    for what, part, rule in rules:
        if not rule.fullmatch(part) or part.split(".")[0].lower() in _RESERVED or ".." in part:
            raise UsageError(
                f"{text or str(name)!a} is no model name: its {what} is {part!a}; "
                "expected letters, digits and . _ - between them"
            )
    return name


def retag(name: ModelName, tag: str) -> ModelName:
    """The same name under another tag, validated."""
    return check(replace(name, tag=tag))


def slug(text: str) -> str:
    """Text (a file's stem, say) as a name's part: lower case, unfit characters become a dash.

    Never empty: text without one fit character gives `model`.
    """
    part = _UNFIT.sub("-", text.lower()).replace("..", ".").strip(".-")[:80].rstrip(".-")
    part = re.sub(r"\.{2,}", ".", part)
    return "model" if not part or part.split(".")[0] in _RESERVED else part
