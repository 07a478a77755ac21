"""POST /v1/requests/{id}/cancel: ends a request that is under way, whoever asked for it."""

from typing import Any

import falcon

from llamay.errors import NotUnderWay
from llamay.server import replies
from llamay.server.site import Site


class Cancel:
    """The id is the one that GET /v1/stats tells.  What was generated until then is answered, as for any stop."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        if not (id.isdecimal() and len(id) < 19 and self._site.models.engine.cancel(int(id))):
            raise NotUnderWay(f"request {id[:40]!a} is not under way; GET /v1/stats lists those that are")
        replies.json(response, {"id": int(id), "object": "request", "cancelled": True})


def routes(site: Site) -> dict[str, Any]:
    """Path -> resource."""
    return {"/v1/requests/{id}/cancel": Cancel(site)}
