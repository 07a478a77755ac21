"""llamay: a local-first inference engine for GGUF models whose compute is WGSL.

`llamay.Llama` is a model that answers.  Importing this package starts nothing and loads neither
numpy nor a GPU: what stands below comes when it is first asked for.
"""

TYPE_CHECKING = False  # what type checkers take for true; `typing` itself takes long to import, deaf to Ctrl-C
if TYPE_CHECKING:
    from llamay.serve.context import Context as Context
    from llamay.serve.engine import Bounds as Bounds
    from llamay.serve.llama import Llama as Llama
    from llamay.serve.results import Choice as Choice
    from llamay.serve.results import Completion as Completion
    from llamay.serve.results import Stream as Stream

__version__ = "0.1.0"

_LATER = {
    "Bounds": "llamay.serve.engine",
    "Choice": "llamay.serve.results",
    "Completion": "llamay.serve.results",
    "Context": "llamay.serve.context",
    "Llama": "llamay.serve.llama",
    "Stream": "llamay.serve.results",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
