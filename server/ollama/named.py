"""Names that Ollama's clients send, and the models they stand for; none of them ever becomes a path."""

from llamay.errors import NotInstalled, UsageError
from llamay.serve.models import Models, Served


def served(models: Models, name: str) -> Served:
    """The model of a name, the default where it is empty; the 404 that Ollama's clients know."""
    try:
        return models.served(name)
    except NotInstalled as error:
        raise NotInstalled(f"model {quoted(name)} not found: {error}") from None


def required(name: str, field: str = "model") -> str:
    """A name that has to be there."""
    if not name:
        raise UsageError(f"{field} is required: the name of a model")
    return name


def tagged(name: str) -> str:
    """The name with its tag, as lists have it."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def quoted(name: str) -> str:
    """A name as an error has it."""
    return f"'{ascii(name[:200])[1:-1]}'"
