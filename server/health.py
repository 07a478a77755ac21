"""Whether the server lives, and whether it can answer."""

import falcon

from llamay import __version__
from llamay.errors import Closed, DeviceLost
from llamay.server import replies
from llamay.server.failures import Loading
from llamay.server.site import Site


class Health:
    """GET /healthz: the process answers, and on what it computes."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """200 as long as there is a server; `status` says whether something is wrong with it."""
        stats, settings = self._site.models.engine.stats(wait=0), self._site.models.settings
        models = [{"model": one.name, "device": one.device} for one in stats.models]
        value = {
            "status": "lost" if stats.lost else "ok",
            "version": __version__,
            "device": models[0]["device"] if models else None,
            "backend": settings.backend,
            "kv": settings.kv,
            "models": models,
            "loading": list(stats.loading),
            "lost": dict(stats.lost),
        }
        replies.json(response, value)

    on_head = on_get


class LlamaHealth:
    """GET /health, as llama.cpp's server has it: 503 while the first model is being loaded, or a device is lost."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """An error says what keeps it from answering."""
        check(self._site)
        replies.json(response, {"status": "ok"})

    on_head = on_get


class Ready:
    """GET /readyz: 200 where a model is loaded or may be; 503 while one is being loaded, after a lost device, and at the end."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """An error says what keeps it from answering; a model whose device was lost is loaded again."""
        check(self._site)
        replies.json(response, {"status": "ready"})

    on_head = on_get


def check(site: Site) -> None:
    """Raises Closed, DeviceLost or Loading where requests would wait or fail; asks for what is lost to be loaded again."""
    stats, lost = site.models.engine.stats(wait=0), site.models.engine.lost
    if site.closing.is_set():
        raise Closed("the server is closing")
    if lost:
        site.models.engine.revive()
        model, why = next(iter(lost.items()))
        raise DeviceLost(f"the device of {model} was lost, and the model is to be loaded again: {why}")
    if stats.loading and not stats.models:
        raise Loading(f"Loading model {', '.join(stats.loading)}")
