"""Ollama's part of the table of routes."""

from typing import Any

from llamay.server.ollama.blobs import Blobs
from llamay.server.ollama.chat import Chat
from llamay.server.ollama.create import Create
from llamay.server.ollama.embed import Embed, OldEmbed
from llamay.server.ollama.generate import Generate
from llamay.server.ollama.models import Copy, Delete, Running, Tags
from llamay.server.ollama.probes import Push, Root, Version
from llamay.server.ollama.pull import Pull
from llamay.server.ollama.show import Show
from llamay.server.site import Site


def routes(site: Site) -> dict[str, Any]:
    """Path -> resource."""
    return {
        "/": Root(),
        "/api/version": Version(),
        "/api/generate": Generate(site),
        "/api/chat": Chat(site),
        "/api/embed": Embed(site),
        "/api/embeddings": OldEmbed(site),
        "/api/tags": Tags(site),
        "/api/ps": Running(site),
        "/api/show": Show(site),
        "/api/copy": Copy(site),
        "/api/delete": Delete(site),
        "/api/create": Create(site),
        "/api/blobs/{digest}": Blobs(site),
        "/api/pull": Pull(site),
        "/api/push": Push(),
    }
