"""The Journal: a line for each request and for each fault, as text or JSON, and never a word of a prompt or an answer."""

import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from llamay.server.visits import Visit

Form = Literal["text", "json", "none"]
FORMS: tuple[str, ...] = get_args(Form)
FRAMES = 8  # of a fault, the innermost


class Journal:
    """Writes lines.  Any thread may use it: a line is written by one call."""

    def __init__(self, write: Callable[[str], None] = lambda line: None, form: str = "text") -> None:
        self._write, self._form = write, form
        self._unfit: set[str] = set()

    def visit(self, visit: "Visit") -> None:
        """One request, when its reply is over."""
        found: dict[str, Any] = {
            "method": visit.method, "route": visit.route, "status": visit.status, "ms": round(visit.seconds * 1e3, 1),
            "id": visit.id, "from": visit.address,
        }  # fmt: skip
        if visit.outcome:
            found |= {
                "model": visit.model, "outcome": visit.outcome, "prompt_tokens": visit.prompt,
                "cached_tokens": visit.cached, "generated_tokens": visit.generated,
            }  # fmt: skip
        self._line("request", found)

    def fault(self, id: str, error: BaseException) -> None:
        """A fault of the program: its kind and where it was.  Its message is left out, as it may quote what was sent."""
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        self._line("fault", {"id": id, "kind": type(error).__name__, "at": " < ".join(reversed(where))})

    def unfit(self, told: str) -> None:
        """A model that cannot be loaded the way the server was started, once for each."""
        if told not in self._unfit:
            self._unfit.add(told)
            self._line("unfit", {"told": told})

    def _line(self, event: str, found: dict[str, Any]) -> None:
        if self._form == "none":
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._form == "json":
            self._write(msgspec.json.encode({"time": now, "event": event, **found}).decode())
        else:
            self._write(" ".join([now, event, *(f"{key}={_word(value)}" for key, value in found.items())]))


def _word(value: Any) -> str:
    """A value as logfmt has it: in quotes where it has spaces."""
    text = str(value)
    plain = text and all(character.isprintable() and character not in ' "=' for character in text)
    return text if plain else msgspec.json.encode(text).decode()


class Bare(logging.Filter):
    """Takes tracebacks from what other packages log: the messages in them may quote what was sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every record."""
        if record.exc_info and record.exc_info[0] is not None:
            record.msg, record.args = f"{record.getMessage()}: {record.exc_info[0].__name__}", ()
        record.exc_info = record.exc_text = None
        return True


def hush() -> None:
    """Keeps waitress's log to lines without tracebacks, and from telling how many requests wait for a thread."""
    logger = logging.getLogger("waitress")
    if not any(isinstance(one, Bare) for one in logger.filters):
        logger.addFilter(Bare())
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
