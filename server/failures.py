"""Failures: what a client of each API family is told when something is wrong, from the one table of llamay.errors."""

from dataclasses import dataclass
from typing import Any, Literal

import falcon

from llamay.errors import Closed, ContextFull, DeviceLost, LlamayError, NotInstalled, QueueFull

Family = Literal["openai", "anthropic", "ollama"]

TYPES = {  # HTTP status -> OpenAI's word, Anthropic's word
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("invalid_request_error", "not_found_error"),
    405: ("invalid_request_error", "invalid_request_error"),
    409: ("conflict_error", "invalid_request_error"),
    413: ("invalid_request_error", "request_too_large"),
    431: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    501: ("not_supported_error", "api_error"),
    502: ("upstream_error", "api_error"),
    503: ("unavailable_error", "api_error"),
    529: ("overloaded_error", "overloaded_error"),
}
RETRY_AFTER = "1"  # seconds: a place in a queue is free soon


class Loading(LlamayError):
    """The model is being loaded."""

    http_status = 503


PASSING = (DeviceLost, Closed, Loading)  # what may go well when it is tried again


@dataclass(frozen=True, slots=True)
class Failure:
    """What goes over the wire: status, JSON body and headers."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def family_of(request: falcon.Request) -> Family:
    """Which API a request speaks, by its path, and on shared paths by its headers."""
    return family_at(request.path, bool(request.get_header("anthropic-version")))


def family_at(path: str, versioned: bool = False) -> Family:
    """The same of a path, and whether there is a header that Anthropic's clients alone send."""
    if path.startswith("/api/") or path == "/":
        return "ollama"
    return "anthropic" if versioned or path.startswith("/v1/messages") else "openai"


def of(error: Exception, family: Family, request_id: str = "", method: str = "the method") -> Failure:
    """The failure that an exception comes to; `method` is the one that was asked with."""
    status = _status(error, family)
    message = str(error) if isinstance(error, LlamayError) else "internal error: the log has it under this request's id"
    if isinstance(error, falcon.HTTPError):
        message = error.description or error.title or message
    if isinstance(error, falcon.HTTPMethodNotAllowed):
        message = f"this route does not take {method}; it takes {dict(error.headers or {}).get('Allow', 'none')}"
    headers = {"request-id": request_id} if request_id else {}
    if isinstance(error, falcon.HTTPError):
        headers |= dict(error.headers or {})
    if isinstance(error, QueueFull):
        headers["retry-after"] = RETRY_AFTER
    elif status >= 500 or status == 409:  # SDKs would try again what would fail again
        headers["x-should-retry"] = "true" if isinstance(error, PASSING) else "false"
    return Failure(status, body(error, message, status, family, request_id), headers)


def body(error: Exception, message: str, status: int, family: Family, request_id: str = "") -> dict[str, Any]:
    """The JSON that a family's clients expect."""
    openai, anthropic = TYPES.get(status, ("server_error", "api_error"))
    if family == "ollama":
        return {"error": message}
    if family == "anthropic":
        if isinstance(error, ContextFull) and error.prompt:
            message = f"prompt is too long: {error.prompt} tokens > {error.context} maximum"
        return {"type": "error", "error": {"type": anthropic, "message": message}, "request_id": request_id}
    told: dict[str, Any] = {"message": message, "type": openai, "param": None, "code": code_of(error)}
    if isinstance(error, ContextFull) and error.prompt:
        told |= {"n_prompt_tokens": error.prompt, "n_ctx": error.context}
    return {"error": told}


def code_of(error: Exception) -> str | None:
    """The word that programs look for."""
    if isinstance(error, ContextFull):
        return "context_length_exceeded"
    if isinstance(error, NotInstalled):
        return "model_not_found"
    return getattr(error, "code", None) if isinstance(error, LlamayError) else None


def _status(error: Exception, family: Family) -> int:
    if isinstance(error, falcon.HTTPError):
        return error.status_code
    if isinstance(error, QueueFull) and family == "anthropic":
        return 529
    return error.http_status if isinstance(error, LlamayError) else 500
