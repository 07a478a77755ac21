"""The application: every route in one table, and what happens to an error on any of them."""

from collections.abc import Callable
from typing import Any

import falcon

from llamay.errors import ContextTooLong
from llamay.server import contexts, failures, replies, requests, visits
from llamay.server.anthropic.messages import CountTokens, Messages
from llamay.server.guards import Guards
from llamay.server.health import Health, LlamaHealth, Ready
from llamay.server.metrics import Metrics
from llamay.server.ollama.routes import routes as ollama
from llamay.server.openai.routes import routes as openai
from llamay.server.openapi import OpenApi
from llamay.server.site import Site
from llamay.server.stats import Statistics

Handler = Callable[[falcon.Request, falcon.Response, Exception, dict[str, Any]], None]


def routes(site: Site) -> dict[str, Any]:
    """Path -> resource."""
    return {
        "/healthz": Health(site),
        "/health": LlamaHealth(site),
        "/v1/health": LlamaHealth(site),
        "/readyz": Ready(site),
        "/v1/stats": Statistics(site),
        "/metrics": Metrics(site),
        "/openapi.json": OpenApi(lambda: routes(site)),
        **openai(site),
        **contexts.routes(site),
        **requests.routes(site),
        "/v1/messages": Messages(site),
        "/v1/messages/count_tokens": CountTokens(site),
        **ollama(site),
    }


def build(site: Site) -> falcon.App[falcon.Request, falcon.Response]:
    """The WSGI application of a site."""
    app = falcon.App(middleware=[Guards(site)])
    app.add_error_handler(Exception, failing(site))
    app.add_error_handler(falcon.HTTPError, failing(site))
    app.add_sink(missing)
    for path, resource in routes(site).items():
        app.add_route(path, resource)
    return app


def failing(site: Site) -> Handler:
    """What answers any exception, in the words of the family that was spoken to."""

    def fail(request: falcon.Request, response: falcon.Response, error: Exception, params: dict[str, Any]) -> None:
        visit = visits.of(request.env)
        failure = failures.of(error, failures.family_of(request), visit.id, request.method)
        if isinstance(error, ContextTooLong):
            site.journal.unfit(str(error))
        elif failure.status == 500:
            site.journal.fault(visit.id, error)
        response.stream = None
        replies.json(response, failure.body, failure.status)
        response.set_headers(failure.headers)

    return fail


def missing(req: falcon.Request, resp: falcon.Response, **kwargs: Any) -> None:
    """A path that is no route."""
    raise falcon.HTTPNotFound(description=f"there is no route {req.method} {req.path[:200]}; GET /openapi.json lists them")
