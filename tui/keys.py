"""Keys: what the help and the palette say, made from the bindings themselves."""

from textual.app import App
from textual.binding import Binding

from llamay.tui.pane import Pane


def bound(owner: type[Pane] | type[App[int]]) -> list[Binding]:
    """The bindings of a class, those of the classes above it too."""
    found: dict[str, Binding] = {}
    for one in owner.__mro__:
        for binding in one.__dict__.get("BINDINGS", ()) if one.__module__.startswith("llamay.") else ():
            if isinstance(binding, Binding) and binding.description:
                found.setdefault(binding.key, binding)
    return list(found.values())


def keys(owner: type[Pane] | type[App[int]]) -> list[tuple[str, str]]:
    """Keys and what they do, for the help: the first sentence of what carries it out says more than the label."""
    found: dict[str, list[str]] = {}  # keys of the same action share a line
    for binding in bound(owner):
        if binding.action.startswith("show("):
            continue
        method = getattr(owner, f"action_{binding.action.partition('(')[0]}", None)
        more = (method.__doc__ or "").strip().partition("\n")[0].rstrip(".") if method is not None else ""
        found.setdefault(f"{binding.description}: {more}" if more else binding.description, []).append(shown_key(binding).replace(",", " "))
    return [(" ".join(pressed), what) for what, pressed in found.items()]


def shown_key(binding: Binding) -> str:
    """As a person would say it."""
    return binding.key_display or binding.key.replace("question_mark", "?").replace("slash", "/").replace("_sign", "")
