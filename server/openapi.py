"""GET /openapi.json: every route as the table has it, with the wire types that its methods take.

A resource says what it takes by class attributes: `takes`, wire types by method, and `queries`, JSON schemas by method and name.
The first lines of what is written at it and at its method are the summary and the description.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import falcon
import msgspec

from llamay import __version__
from llamay.server import failures, replies

METHODS = ("get", "head", "post", "put", "patch", "delete")
FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::[^}]*)?\}")  # in a path's template, with its converter
REF = "#/components/schemas/{name}"
TEXT = {"type": "string"}
ERRORS: dict[str, dict[str, Any]] = {  # by family
    "openai": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
    "anthropic": {"type": {"const": "error"}, "error": {"type": "object", "required": ["type", "message"]}},
    "ollama": {"error": TEXT},
}
SPEAKS = ("application/json", "text/event-stream", "application/x-ndjson", "text/plain")


class OpenApi:
    """Answers with the description of all routes of a table, its own too."""

    def __init__(self, routes: Callable[[], Mapping[str, object]]) -> None:
        self._routes = routes

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """The description, in OpenAPI 3.1."""
        response.content_type, response.data = replies.JSON, self._made

    @cached_property
    def _made(self) -> bytes:
        return msgspec.json.encode(described(self._routes()))


def described(routes: Mapping[str, object]) -> dict[str, Any]:
    """The description of a table of routes."""
    types = {type for resource in routes.values() for type in getattr(resource, "takes", {}).values()}
    wanted = sorted(types, key=lambda type: (type.__module__, type.__qualname__))
    schemas, components = msgspec.json.schema_components(wanted, ref_template=REF)
    by_type = dict(zip(wanted, schemas, strict=True))
    errors = {f"{family}_error": _error(family) for family in ERRORS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llamay",
            "version": __version__,
            "description": "OpenAI's, Anthropic's, Ollama's and llama.cpp's APIs over one engine, and contexts as objects.",
        },
        "paths": {FIELD.sub(r"{\1}", path): _path(path, resource, by_type) for path, resource in routes.items()},
        "components": {
            "schemas": {**components, **errors},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _path(path: str, resource: object, types: Mapping[type, Any]) -> dict[str, Any]:
    fields = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in FIELD.findall(path)]
    found: dict[str, Any] = {"parameters": fields} if fields else {}
    for method in METHODS:
        responder = getattr(resource, f"on_{method}", None)
        if responder is not None:
            found[method] = _operation(path, method, resource, types)
    return found


def _operation(path: str, method: str, resource: object, types: Mapping[type, Any]) -> dict[str, Any]:
    words = (type(resource).__doc__ or path).strip().splitlines()[0]
    error = {"$ref": REF.format(name=f"{failures.family_at(path)}_error")}
    found: dict[str, Any] = {
        "operationId": f"{method}_{re.sub(r'[^A-Za-z0-9]+', '_', path).strip('_') or 'root'}",
        "summary": words,
        "responses": {
            "2XX": {"description": "done", "content": {type: {} for type in SPEAKS}},
            "default": {"description": "an error that says what to do", "content": {"application/json": {"schema": error}}},
        },
    }
    more = (getattr(resource, f"on_{method}").__doc__ or "").strip().splitlines()
    if more:
        found["description"] = more[0]
    queries = getattr(resource, "queries", {}).get(method.upper(), {})
    if queries:
        found["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in queries.items()]
    takes = getattr(resource, "takes", {}).get(method.upper())
    if takes is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": types[takes]}}}
    return found


def _error(family: str) -> dict[str, Any]:
    properties = ERRORS[family]
    return {"type": "object", "properties": properties, "required": sorted(properties)}
