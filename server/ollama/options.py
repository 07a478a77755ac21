"""Ollama's options: their names, their types, and what they come to for the engine."""

import logging
import re
from collections.abc import Mapping
from typing import Any, cast

from llamay.errors import ContextFull, UsageError
from llamay.serve.options import Options

log = logging.getLogger("llamay.server")

INTEGERS = (
    "num_ctx", "num_keep", "seed", "num_predict", "top_k", "repeat_last_n", "num_batch", "num_gpu", "main_gpu",
    "num_thread", "draft_num_predict",
)  # fmt: skip
FLOATS = (
    "top_p", "min_p", "typical_p", "temperature", "repeat_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")  # of an option; what is none may be anything that was sent
MOST_TOLD = 8  # unknown options of a request, in its line of the log
SAME = (*FLOATS, "repeat_last_n")  # mean the same to the engine


def checked(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The known options that are not null, as their types; UsageError for a wrong one, a log line for an unknown one."""
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in (given or {}).items():
        if value is None:
            continue
        if name in INTEGERS:
            found[name] = _integer(name, value)
        elif name in FLOATS:
            found[name] = _float(name, value)
        elif name == "stop":
            found[name] = _texts(name, value)
        elif name == "use_mmap":
            if not isinstance(value, bool):
                raise UsageError(f'option "{name}" must be of type boolean')
        else:
            unknown.append(name)
    if unknown:
        told = [name for name in unknown if NAME.fullmatch(name)][:MOST_TOLD]
        log.warning("%d options are unknown and change nothing: %s", len(unknown), ", ".join(told) or "no names")
    return found


def options(values: Mapping[str, Any], prompt: int) -> Options:
    """What checked options come to, for a prompt of so many tokens; ContextFull where num_ctx does not hold it."""
    seed = values.get("seed", -1)
    top_k = values.get("top_k")
    found: dict[str, Any] = {name: values.get(name) for name in SAME}
    found |= {
        "max_tokens": _most(values, prompt),
        "top_k": None if top_k is None else max(top_k, 0),
        "seed": None if seed == -1 else seed % (1 << 32),
        "stop": [stop for stop in values.get("stop", ()) if stop] or None,
    }
    return cast(Options, found)


def _most(values: Mapping[str, Any], prompt: int) -> int | None:
    """How many tokens may be generated, None where nothing but the context bounds it."""
    asked = values.get("num_predict", -1)
    bounds = [asked] if asked >= 0 else []
    context = values.get("num_ctx", 0)
    if context > 0:
        if prompt > context:
            raise ContextFull(
                f"the prompt has {prompt} tokens and num_ctx is {context}; nothing was cut: send less, or a larger num_ctx",
                prompt=prompt,
                context=context,
            )
        bounds.append(context - prompt)
    return min(bounds, default=None)


def _integer(name: str, value: Any) -> int:
    whole = isinstance(value, float) and value.is_integer()  # 1.0: many languages have one kind of number
    if isinstance(value, bool) or not (isinstance(value, int) or whole):
        raise UsageError(f'option "{name}" must be of type integer')
    return int(value)


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f'option "{name}" must be of type float32')
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f'option "{name}" is beyond every float') from None


def _texts(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f'option "{name}" must be of type array of strings')
    return value
