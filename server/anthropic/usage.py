"""How Anthropic's API counts tokens and names the end of an answer."""

from typing import Any

from llamay.serve.events import Ended, Timings

REASONS = {  # `pause_turn`: the server ended it early, and the client may send the answer back to have it continued
    "end": "end_turn",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "cancel": "pause_turn",
}


def stop(ended: Ended, sequences: list[str] | None) -> dict[str, str | None]:
    """stop_reason and stop_sequence; `sequences` are the client's own, the template may have others."""
    if ended.reason == "stop":
        own = ended.stop is not None and ended.stop in (sequences or ())
        return {"stop_reason": "stop_sequence" if own else "end_turn", "stop_sequence": ended.stop if own else None}
    return {"stop_reason": REASONS[ended.reason], "stop_sequence": None}


def usage(timings: Timings) -> dict[str, Any]:
    """The usage object, whose three kinds of input tokens are the prompt together."""
    return {
        "input_tokens": timings.prompt_tokens - timings.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": timings.cached_tokens,
        "output_tokens": timings.generated_tokens,
    }
