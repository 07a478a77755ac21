"""What clients ask to see whether Ollama is there: / and /api/version; and /api/push, which is refused by name."""

import falcon

from llamay import __version__
from llamay.server import replies
from llamay.server.refusals import Unoffered

VERSION = "0.32.0"  # of the API: clients compare it as dotted numbers, and refuse what is too old


class Root:
    """GET and HEAD /."""

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        response.content_type = "text/plain; charset=utf-8"
        response.text = "Ollama is running"

    on_head = on_get


class Version:
    """GET and HEAD /api/version."""

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        replies.json(response, {"version": VERSION, "llamay": __version__})

    on_head = on_get


class Push:
    """POST and DELETE /api/push: models come here, they do not leave."""

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        raise Unoffered("push is not supported: llamay gives no model to a registry")

    on_delete = on_post
