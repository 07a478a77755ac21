"""How OpenAI's API counts tokens and names the end of an answer."""

from typing import Any

from llamay.serve.events import Ended, Timings
from llamay.serve.models import Served
from llamay.server.site import Site

REASONS = {"end": "stop", "stop": "stop", "length": "length", "context": "length", "cancel": "stop"}


def finish(ended: Ended) -> str:
    """The finish_reason of a choice."""
    return REASONS[ended.reason]


def usage(*timings: Timings, thought: int = 0) -> dict[str, Any]:
    """The usage object of one turn, or of several together; `thought` of the tokens are no content, times are in milliseconds."""
    prompt = sum(one.prompt_tokens for one in timings)
    generated = sum(one.generated_tokens for one in timings)
    cached = sum(one.cached_tokens for one in timings)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
        "llamay_prefill_ms": round(sum(one.prompt_seconds for one in timings) * 1e3, 3),
        "llamay_decode_ms": round(sum(one.decode_seconds for one in timings) * 1e3, 3),
        "llamay_cached_prompt_tokens": cached,
    }


def fingerprint(site: Site, served: Served) -> str | None:
    """The numerics id of what computes, while the model is loaded: answers of equal ids are equal bits."""
    loaded = site.models.loaded(served.name)
    return None if loaded is None else loaded.executor.numerics
